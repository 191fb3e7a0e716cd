/* share/vectors: what they expect is what comes out, of this code.  In the handshakes the
 * ephemeral keys are those of the vectors. */
#include "../naive_bfp.h"
#include "base/buf.h"
#include "crypto/noise.h"
#include "net/handshake.h"
#include "net/record.h"
#include "wire/bfp.h"

#include <ctype.h>
#include <inttypes.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* ---- reading --- */

enum { LINES = 20, LINE = 1 << 16, MOST = 1 << 14 };

struct vector {
	unsigned n;
	char *key[LINES], *value[LINES]; /* owned by key */
};

static void
drop(struct vector *v)
{
	while (v->n > 0)
		free(v->key[--v->n]);
}

/* The next one; false: the file has ended. */
static bool
next(FILE *f, struct vector *v)
{
	static char line[LINE];
	drop(v);
	while (fgets(line, sizeof(line), f) != NULL) {
		line[strcspn(line, "\n")] = '\0';
		if (line[0] == '#')
			continue;
		if (line[0] == '\0' && v->n > 0)
			return true;
		char *colon = strstr(line, ":");
		if (colon == NULL)
			continue;
		assert_true(v->n < LINES);
		*colon++ = '\0';
		const size_t at = (size_t)(colon - line);
		char *copy = malloc(at + strlen(colon) + 1);
		assert_non_null(copy);
		memcpy(copy, line, at);
		strcpy(copy + at, colon + (*colon == ' '));
		v->key[v->n] = copy;
		v->value[v->n++] = copy + at;
	}
	return v->n > 0;
}

static const char *
word(const struct vector *v, const char *key)
{
	for (unsigned i = 0; i < v->n; i++)
		if (strcmp(v->key[i], key) == 0)
			return v->value[i];
	return NULL;
}

static int64_t
number(const struct vector *v, const char *key)
{
	const char *value = word(v, key);
	if (value == NULL)
		fail_msg("%s: no %s", word(v, "name"), key);
	return strtoll(value, NULL, 10);
}

/* How many bytes `to` now has. */
static size_t
bytes(const struct vector *v, const char *key, uint8_t *to)
{
	const char *p = word(v, key);
	size_t n = 0;
	if (p == NULL)
		fail_msg("%s: no %s", word(v, "name"), key);
	for (; isxdigit((unsigned char)p[0]) && isxdigit((unsigned char)p[1]); p += 2) {
		unsigned byte = 0;
		assert_true(n < MOST && sscanf(p, "%2x", &byte) == 1);
		to[n++] = (uint8_t)byte;
	}
	assert_int_equal(*p, '\0');
	return n;
}

static void
same(const struct vector *v, const char *key, const void *p, size_t n)
{
	static uint8_t want[MOST];
	const size_t want_n = bytes(v, key, want);
	if (n != want_n || (n > 0 && memcmp(p, want, n) != 0))
		fail_msg("%s: another %s, %zu and %zu bytes", word(v, "name"), key, n,
			 want_n);
}

static void
expects(const struct vector *v, const char *got)
{
	if (strcmp(word(v, "expect"), got) != 0)
		fail_msg("%s: %s, expected %s", word(v, "name"), got, word(v, "expect"));
}

/* Each vector of a file; there are at least so many. */
static void
each(const char *name, void (*judge)(const struct vector *v), unsigned least)
{
	struct vector v = { 0 };
	char path[256];
	unsigned n = 0;
	snprintf(path, sizeof(path), "share/vectors/%s", name);
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	for (; next(f, &v); n++)
		judge(&v);
	drop(&v);
	fclose(f);
	if (n < least)
		fail_msg("%s: %u vectors, expected %u or more", path, n, least);
}

/* ---- handshake --- */

static uint8_t next_random[FAL_KEY_BYTES];

/* In the place of fal_random_bytes. */
void __wrap_fal_random_bytes(void *p, size_t n);
void
__wrap_fal_random_bytes(void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = next_random[i % FAL_KEY_BYTES];
}

static char build[FAL_BUILD_MAX + 1];

/* In the place of fal_build. */
const char *__wrap_fal_build(void);
const char *
__wrap_fal_build(void)
{
	return build;
}

static bool
is_static(const struct vector *v)
{
	return strcmp(word(v, "key"), "own") == 0;
}

static struct fal_keyring *
ring(const struct vector *v)
{
	uint8_t secret[MOST], key[MOST];
	char text[512], self[FAL_KEY_TEXT + 1], line[FAL_KEY_TEXT + 1];
	struct fal_keyring *kr;
	assert_int_equal(bytes(v, "server-secret", secret), FAL_KEY_BYTES);
	assert_int_equal(bytes(v, is_static(v) ? "client-public" : "psk", key),
			 FAL_KEY_BYTES);
	snprintf(build, sizeof(build), "%s", word(v, "build"));
	fal_key_encode(secret, self);
	fal_key_encode(key, line);
	snprintf(text, sizeof(text), "c self %s\n%s work %s%s\n", self, word(v, "key"),
		 is_static(v) ? "public:" : "", line);
	assert_int_equal(fal_keyring_parse(text, strlen(text), "k", &kr, NULL), 0);
	same(v, "server-public", fal_keyring_public(kr), FAL_KEY_BYTES);
	return kr;
}

/* The keys of the session, and its hash as Noise has it. */
static void
session(const struct vector *v, const struct fal_session *s, bool client)
{
	uint8_t key[MOST], psk[FAL_KEY_BYTES], public[MOST], e[MOST], prologue[MOST],
		said[MOST], answer[MOST], msg[FAL_NOISE_OVERHEAD + FAL_NOISE_STATIC],
		payload[10], hash[FAL_NOISE_HASH];
	struct fal_seal tx, rx;
	struct fal_noise *ns;
	bytes(v, is_static(v) ? "client-secret" : "psk", key);
	bytes(v, "server-public", public);
	bytes(v, "client-ephemeral", e);
	bytes(v, "client", said);
	bytes(v, "server", answer);
	const size_t n = bytes(v, "prologue", prologue);
	fal_key_derive("falcon psk", public, key, psk);
	const struct fal_noise_opt opt = {
		.side = FAL_NOISE_INITIATOR,
		.pattern = is_static(v) ? FAL_NOISE_IK : FAL_NOISE_NKPSK0,
		.prologue = prologue,
		.prologue_n = n,
		.psk = psk,
		.static_key = public,
		.client_key = is_static(v) ? key : NULL,
		.ephemeral = e,
	};
	same(v, "client-key", client ? s->tx.key : s->rx.key, FAL_KEY_BYTES);
	same(v, "server-key", client ? s->rx.key : s->tx.key, FAL_KEY_BYTES);
	assert_memory_equal(prologue, said, n);
	ns = fal_noise_new(&opt);
	assert_int_equal(fal_noise_write(ns, NULL, 0, msg), 0);
	assert_memory_equal(msg, said + n, fal_noise_overhead(opt.pattern, 1));
	assert_int_equal(fal_noise_read(ns, answer + 10, 58, payload), 0);
	assert_int_equal(fal_noise_split(ns, 1, &tx, &rx, hash), 0);
	same(v, "hash", hash, sizeof(hash));
	fal_seal_wipe(&tx);
	fal_seal_wipe(&rx);
	fal_noise_free(ns);
}

static const char *
outcome(int err, const uint8_t *answer, const char *otherwise)
{
	static char text[32];
	if (err == FAL_OK)
		return "ok";
	if (err != FAL_EVERSION)
		return otherwise;
	snprintf(text, sizeof(text), "verdict %u", answer[8]);
	return text;
}

static void
as_server(const struct vector *v)
{
	uint8_t said[MOST];
	struct fal_keyring *kr = ring(v);
	struct fal_buf out = { 0 };
	struct fal_greeting g;
	struct fal_session s = { 0 };
	const size_t n = bytes(v, "client", said);
	bytes(v, "server-ephemeral", said + n);
	memcpy(next_random, said + n, FAL_KEY_BYTES);
	int err = fal_handshake_check(kr, 0, said, n, &g, NULL);
	if (err == FAL_OK)
		err = fal_handshake_answer(kr, &g, &s, &out, NULL);
	expects(v, outcome(err, out.p, "silence"));
	same(v, "server", out.p, out.n);
	if (err == FAL_OK)
		session(v, &s, false);
	fal_seal_wipe(&s.tx);
	fal_seal_wipe(&s.rx);
	fal_buf_free(&out);
	fal_keyring_free(kr);
}

static void
as_client(const struct vector *v)
{
	uint8_t p[MOST];
	struct fal_client_key key = { 0 };
	struct fal_buf said = { 0 };
	struct fal_handshake *h;
	struct fal_session s = { 0 };
	snprintf(key.name, sizeof(key.name), "%s", word(v, "key"));
	snprintf(build, sizeof(build), "%s", word(v, "build"));
	bytes(v, "server-public", p);
	memcpy(key.server, p, FAL_KEY_BYTES);
	bytes(v, is_static(v) ? "client-secret" : "psk", p);
	if (is_static(v)) {
		assert_int_equal(fal_client_key_static(&key, p), 0);
		same(v, "client-public", key.public, FAL_KEY_BYTES);
		same(v, "common", key.psk, FAL_KEY_BYTES);
	} else {
		memcpy(key.psk, p, FAL_KEY_BYTES);
	}
	bytes(v, "client-ephemeral", p);
	memcpy(next_random, p, FAL_KEY_BYTES);
	assert_int_equal(fal_handshake_begin(&key, &said, &h), 0);
	same(v, "client", said.p, said.n);
	const size_t n = bytes(v, "server", p);
	const int err = fal_handshake_finish(h, p, n, &s, NULL);
	expects(v, outcome(err, p, "refused"));
	if (err == FAL_OK)
		session(v, &s, true);
	fal_seal_wipe(&s.tx);
	fal_seal_wipe(&s.rx);
	fal_handshake_free(h);
	fal_buf_free(&said);
}

static void
handshake(const struct vector *v)
{
	if (strcmp(word(v, "judge"), "server") == 0)
		as_server(v);
	else
		as_client(v);
}

static void
handshakes(void **state)
{
	(void)state;
	each("handshake.txt", handshake, 20);
}

/* ---- records --- */

static void
record(const struct vector *v)
{
	uint8_t key[MOST], rec[MOST];
	struct fal_reader *r = fal_reader_new();
	const uint8_t *msg;
	size_t used, msg_n;
	assert_non_null(r);
	bytes(v, "key", key);
	const bool session = strcmp(word(v, "kind"), "session") == 0;
	const int64_t suite = word(v, "suite") != NULL ? number(v, "suite") : 1;
	struct fal_seal rx;
	assert_int_equal(fal_seal_init(&rx, (uint8_t)suite, key), 0);
	rx.next = session ? (uint64_t)number(v, "counter") : 0;
	r->rx = rx;
	if (!session) {
		struct fal_publication pub = { .id = (uint64_t)number(v, "publication"),
					       .count = (uint32_t)number(v, "records"),
					       .key = key };
		pub.ad_n = bytes(v, "ad", rec);
		assert_in_range(pub.ad_n, 1, FAL_SHARED_AD_MAX);
		memcpy(pub.ad, rec, pub.ad_n);
		assert_int_equal(fal_reader_expect(r, &pub), 0);
	}
	size_t n = bytes(v, "record", rec);
	if (word(v, "came") != NULL) {
		assert_int_equal(number(v, "came"), rec[16]);
		assert_int_equal(fal_reader_next(r, rec, n, &used, &msg, &msg_n), 1);
		n = bytes(v, "record", rec);
	}
	const int got = fal_reader_next(r, rec, n, &used, &msg, &msg_n);
	expects(v, got == 1 && used == n ? "ok" : got == FAL_ETRUNC ? "more" : "refused");
	if (got == 1 && word(v, "then") != NULL) {
		uint8_t both[2 * LINES];
		const size_t first = msg_n;
		assert_in_range(first, 1, LINES);
		memcpy(both, msg, first);
		const size_t then = bytes(v, "then", rec);
		assert_int_equal(fal_reader_next(r, rec, then, &used, &msg, &msg_n), 1);
		assert_in_range(msg_n, 1, LINES);
		memcpy(both + first, msg, msg_n);
		same(v, "message", both, first + msg_n);
	} else if (got == 1)
		same(v, "message", msg, msg_n);
	fal_reader_free(r);
}

static void
records(void **state)
{
	(void)state;
	each("records.txt", record, 20);
}

static void
records_by_aes(void **state)
{
	struct fal_aead *a;
	(void)state;
	if (fal_aead_new(FAL_SUITE_AES256_GCM, FAL_LIBRARY_ANY, &a) < 0)
		skip();
	fal_aead_free(a);
	each("aes.txt", record, 20);
}

/* ---- blocks --- */

static uint64_t
hex64(const struct vector *v, const char *name)
{
	return strtoull(word(v, name), NULL, 16);
}

/* The sum's block is what the vector says. */
static void
holds(const struct vector *v, const struct fal_sum *s, uint32_t block, uint32_t len)
{
	const char *p = word(v, "values");
	char *end;
	assert_non_null(p);
	for (uint32_t i = 0; i < len; i++, p = end) {
		const int64_t want = strtoll(p, &end, 10);
		const int64_t got = sum_value(s, (size_t)block * FAL_BLOCK + i);
		if (end == p || got != want)
			fail_msg("%s: value %u is %" PRId64 ", expected %" PRId64,
				 word(v, "name"), i, got, want);
	}
}

static void
quantise(const struct vector *v)
{
	const size_t n = (size_t)number(v, "parameters");
	const uint32_t block = (uint32_t)number(v, "block");
	const uint32_t len = fal_block_len(n, block);
	const int8_t e = (int8_t)number(v, "exponent");
	struct fal_sum *s = fal_sum_new(n);
	float g[FAL_BLOCK];
	const char *p = word(v, "gradient");
	char *end;
	for (uint32_t i = 0; i < len; i++, p = end) {
		const uint32_t bits = (uint32_t)strtoul(p, &end, 16);
		assert_true(end > p);
		memcpy(&g[i], &bits, sizeof(bits));
	}
	const int err =
		fal_sum_quantise_block(s, block, g, e, (unsigned)number(v, "room"));
	expects(v, err == 0 ? "ok" : "nonfinite");
	if (err == 0) {
		struct fal_buf rec = { 0 };
		if (word(v, "seed") != NULL)
			assert_int_equal(fal_sum_checksum(s, block, block,
							  hex64(v, "seed")),
					 hex64(v, "checksum"));
		assert_int_equal(fal_sum_needed(s, block), number(v, "needed"));
		holds(v, s, block, len);
		assert_int_equal(fal_sum_pack(s, block, e, &rec), 0);
		same(v, "record", rec.p, rec.n);
		fal_buf_free(&rec);
	}
	fal_sum_free(s);
}

static void
receive(const struct vector *v)
{
	const size_t n = (size_t)number(v, "parameters");
	uint8_t p[MOST];
	struct fal_rd r = fal_rd_init(p, bytes(v, "record", p));
	struct fal_sum *s = fal_sum_new(n);
	struct fal_bfp_rec rec;
	const char *got = "ok";
	if (fal_bfp_parse(&r, n, &rec) < 0 || fal_rd_end(&r) < 0)
		got = "malformed";
	else if (fal_bfp_rec_check(&rec, (uint32_t)number(v, "tasks"),
				   (unsigned)number(v, "room")) < 0)
		got = "refused";
	expects(v, got);
	if (strcmp(got, "ok") == 0) {
		assert_int_equal(fal_sum_add_rec(s, &rec), 0);
		holds(v, s, rec.block, rec.len);
	}
	fal_sum_free(s);
}

static void
block(const struct vector *v)
{
	if (strcmp(word(v, "kind"), "quantise") == 0)
		quantise(v);
	else
		receive(v);
}

static void
blocks(void **state)
{
	(void)state;
	each("blocks.txt", block, 20);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(handshakes),
		cmocka_unit_test(records),
		cmocka_unit_test(records_by_aes),
		cmocka_unit_test(blocks),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
