/* A stranger's bytes: as a client's and a server's handshake, as heads of records, as an
 * address, and as records whose seals are right, or that need none, but whose inside may
 * be anything. */
#include "crypto/noise.h"
#include "net/addr.h"
#include "net/handshake.h"
#include "net/record.h"
#include "net/sendq.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

/* The public half of 32 bytes 6. */
#define OWN "9bLW5g+Ud+MQwpgtqqbJE2wQihd3xZR+RI+jfWgXRVc="
#define KEYRING                                                   \
	"c self AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE=\n"   \
	"lab work AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI=\n" \
	"own work public:" OWN "\n"

static void
must(bool fact)
{
	if (!fact)
		abort();
}

/* What a client says that has the key `name`, of 32 bytes `byte`, and may say anything
 * with it: the bytes stand behind a right frame, under a right MAC. */
static void friend(const struct fal_keyring *kr, const char *name, int byte,
		   const uint8_t *p, size_t n)
{
	uint8_t raw[FAL_KEY_BYTES], key[FAL_MAC_KEY], mac[FAL_HANDSHAKE_MAC];
	struct fal_client_key mine = { 0 };
	struct fal_buf said = { 0 }, out = { 0 };
	struct fal_session s = { 0 };
	struct fal_greeting g;
	struct fal_diag d;
	if (n > FAL_HANDSHAKE_MAX - 14 - sizeof(mac))
		return;
	fal_put_bytes(&said, "FALC", 4);
	fal_put_u16(&said, n != 0 && p[0] == 255 ? 4 : FAL_PROTO_MAJOR);
	fal_put_u16(&said, 0);
	fal_put_u16(&said, (uint16_t)(4 + n + sizeof(mac)));
	fal_put_u8(&said, 3);
	fal_put_bytes(&said, name, 3);
	fal_put_bytes(&said, p, n);
	memset(raw, byte, sizeof(raw));
	memcpy(mine.server, fal_keyring_public(kr), FAL_KEY_BYTES);
	memcpy(mine.psk, raw, FAL_KEY_BYTES);
	if (name[0] == 'o')
		must(fal_client_key_static(&mine, raw) == 0);
	memcpy(key, mine.server, FAL_KEY_BYTES);
	fal_key_derive("falcon mac", mine.server, mine.psk, key + FAL_KEY_BYTES);
	fal_mac("falcon hello", key, said.p, said.n, mac);
	fal_put_bytes(&said, mac, sizeof(mac));
	int err = fal_handshake_check(kr, 0, said.p, said.n, &g, NULL);
	must(err == FAL_OK || err == FAL_EFORMAT); /* no build can be read */
	if (err == FAL_OK)
		err = fal_handshake_answer(kr, &g, &s, &out, &d);
	must(err < 0); /* message 1 is sealed */
	must((out.n != 0) == (err == FAL_EVERSION));
	fal_buf_free(&said);
	fal_buf_free(&out);
}

static void
handshakes(const uint8_t *p, size_t n)
{
	static struct fal_keyring *kr;
	static const uint8_t secret[FAL_KEY_BYTES] = { 6 };
	struct fal_client_key key[2] = { { .name = "lab", .psk = { 1 } },
					 { .name = "own" } };
	struct fal_handshake *h;
	struct fal_session s = { 0 };
	struct fal_greeting g;
	if (kr == NULL)
		must(fal_keyring_parse(KEYRING, strlen(KEYRING), "k", &kr, NULL) == 0);
	must(fal_handshake_check(kr, 0, p, n, &g, NULL) < 0);
	friend(kr, "lab", 2, p, n);
	friend(kr, "own", 6, p, n);
	for (int i = 0; i < 2; i++) {
		struct fal_buf out = { 0 };
		key[i].server[0] = 9;
		if (i == 1)
			must(fal_client_key_static(&key[i], secret) == 0);
		must(fal_handshake_begin(&key[i], &out, &h) == 0);
		must(out.n <= FAL_HANDSHAKE_MAX);
		must(fal_handshake_finish(h, p, n, &s, NULL) < 0);
		fal_handshake_free(h);
		fal_buf_free(&out);
	}
}

static void
address(const uint8_t *p, size_t n)
{
	struct fal_addr a, b;
	char text[FAL_ADDR_MAX + 16], in[2048] = "";
	memcpy(in, p, n < sizeof(in) ? n : sizeof(in) - 1);
	if (fal_addr_parse(in, &a, NULL) < 0)
		return;
	fal_addr_format(&a, text);
	must(fal_addr_parse(text, &b, NULL) == 0);
	must(a.kind == b.kind && a.port == b.port && strcmp(a.what, b.what) == 0);
}

/* A record with this inside, sealed as it should be: flags by the first byte. */
static void
sealed(const uint8_t *p, size_t n)
{
	static const uint8_t key[FAL_KEY_BYTES] = { 5 };
	struct fal_seal tx, rx;
	const uint8_t *msg;
	size_t used, msg_n;
	if (n == 0 || n > FAL_RECORD_MAX)
		return;
	struct fal_reader *r = fal_reader_new();
	uint8_t *rec = malloc(FAL_RECORD_HEAD + n + FAL_SEAL_TAG);
	must(r != NULL && rec != NULL);
	must(fal_seal_init(&tx, FAL_SUITE_CHACHA20_POLY1305, key) == 0);
	must(fal_seal_init(&rx, FAL_SUITE_CHACHA20_POLY1305, key) == 0);
	r->rx = rx;
	memcpy(rec + FAL_RECORD_HEAD, p + 1, n - 1);
	const uint8_t flags = p[0] & FAL_RECORD_ZSTD;
	must(fal_record_seal(&tx, FAL_RECORD_SESSION, flags, rec, n - 1) == 0);
	const int got = fal_reader_next(r, rec, FAL_RECORD_HEAD + n - 1 + FAL_SEAL_TAG,
					&used, &msg, &msg_n);
	must(got == 1 || flags != 0);
	must(got < 0 || msg_n <= FAL_RECORD_MAX);
	must(flags != 0 || (msg_n == n - 1 && memcmp(msg, p + 1, n - 1) == 0));
	fal_seal_wipe(&tx);
	fal_reader_free(r);
	free(rec);
}

/* --- a session, sealed or not --- */

#define COUNT 4 /* messages of a publication */

struct told {
	struct fal_reader *r;
	struct fal_seal tx;
	bool unsealed;
	struct fal_publication pub[2];
	uint32_t next[2];
};

static uint8_t *
on_place(void *arg, const struct fal_publication *pub, uint32_t index, size_t n,
	 size_t *head)
{
	static uint8_t room[FAL_RECORD_MAX];
	const struct told *b = arg;
	must(pub->id == 1 || pub->id == 2);
	must(index == b->next[pub->id - 1] && n <= sizeof(room));
	*head = n < 9 ? n : 9;
	return n % 5 == 4 ? NULL : room;
}

static void
told_begin(struct told *b, uint8_t what)
{
	static const uint8_t key[FAL_KEY_BYTES] = { 5 };
	struct fal_seal rx;
	*b = (struct told){ .r = fal_reader_new(), .unsealed = (what & 1) != 0 };
	must(b->r != NULL);
	must(fal_seal_init(&b->tx, FAL_SUITE_CHACHA20_POLY1305, key) == 0);
	must(fal_seal_init(&rx, FAL_SUITE_CHACHA20_POLY1305, key) == 0);
	b->r->rx = rx;
	for (uint64_t i = 0; i < 2; i++) {
		b->pub[i] = (struct fal_publication){ .id = i + 1,
						      .count = COUNT,
						      .key = key };
		must(fal_reader_expect(b->r, &b->pub[i]) == 0);
		must(fal_aead_new(FAL_SUITE_CHACHA20_POLY1305, FAL_LIBRARY_ANY,
				  &b->pub[i].aead) == 0);
	}
	if (b->unsealed)
		b->r->unsealed = true;
	if ((what & 4) != 0)
		b->r->place = on_place;
	b->r->place_arg = b;
}

static void
told_end(struct told *b)
{
	for (int i = 0; i < 2; i++)
		fal_aead_free(b->pub[i].aead);
	fal_seal_wipe(&b->tx);
	fal_reader_free(b->r);
}

/* What the reader says to a record; it is all of it, or nothing. */
static int
hears(struct told *b, uint8_t *rec, size_t n, const uint8_t **msg, size_t *msg_n)
{
	size_t used;
	const int got = fal_reader_next(b->r, rec, n, &used, msg, msg_n);
	must(got != FAL_ETRUNC);
	must(got < 0 || (used == n && *msg_n <= FAL_RECORD_MAX));
	return got;
}

/* A message, or an unseal record, in the session's row; unsealed or not. */
static int
in_session(struct told *b, uint8_t type, bool unsealed, uint8_t flags, const uint8_t *p,
	   size_t n)
{
	const uint8_t *msg;
	size_t msg_n, all = FAL_RECORD_HEAD + n;
	uint8_t *rec = malloc(all + FAL_SEAL_TAG);
	must(rec != NULL);
	memcpy(rec + FAL_RECORD_HEAD, p, n);
	if (unsealed) {
		fal_record_put_unsealed(flags, rec, n);
	} else {
		must(fal_record_seal(&b->tx, type, flags, rec, n) == 0);
		all += FAL_SEAL_TAG;
	}
	const int got = hears(b, rec, all, &msg, &msg_n);
	must(unsealed == b->unsealed || got == FAL_EFORMAT);
	must(got < 0 || (got == FAL_READ_UNSEAL) == (type == FAL_RECORD_UNSEAL));
	must(got < 0 || flags != 0 || (msg_n == n && memcmp(msg, p, n) == 0));
	free(rec);
	return got;
}

/* The next message of a publication. */
static int
published(struct told *b, unsigned which, uint8_t flags, const uint8_t *p, size_t n)
{
	const struct fal_aead_text text = { .p = p, .n = n };
	const bool unsealed = (flags & FAL_RECORD_UNSEALED) != 0;
	const size_t all = FAL_RECORD_SHARED_HEAD + n + (unsealed ? 0 : FAL_SEAL_TAG);
	const uint8_t *msg;
	size_t msg_n;
	uint8_t *rec = malloc(all);
	const bool over = b->next[which] == COUNT;
	must(rec != NULL);
	if (unsealed)
		fal_record_put_shared_unsealed(&b->pub[which], b->next[which], &text,
					       rec);
	else
		must(fal_record_seal_shared(&b->pub[which], b->next[which], flags, &text,
					    rec) == 0);
	const int got = hears(b, rec, all, &msg, &msg_n);
	must(got < 0 || (got == FAL_READ_NOTHING) == over);
	must(!unsealed || b->unsealed || got == FAL_EFORMAT);
	b->next[which] += got > 0 && !over;
	free(rec);
	return got;
}

/* Records one after the other, each of a byte that says which, two for its length, and
 * what is in it. */
static void
session(const uint8_t *p, size_t n)
{
	struct told b;
	int got = 0;
	if (n == 0)
		return;
	told_begin(&b, p[0]);
	for (size_t at = 1; got >= 0 && n - at >= 3;) {
		const uint8_t what = p[at], flags = what >> 2 & 7;
		const bool odd = (what & 3) == 3;
		size_t len = (size_t)p[at + 1] | (size_t)p[at + 2] << 8;
		const uint8_t *inside = p + (at += 3);
		if (len > n - at)
			len = n - at;
		at += len;
		if ((what & 3) == 1)
			got = in_session(&b, FAL_RECORD_UNSEAL, false, 0, inside, len);
		else if ((what & 3) == 2)
			got = published(&b, what >> 5 & 1,
					flags >= FAL_RECORD_UNSEALED
						? FAL_RECORD_UNSEALED
						: flags & FAL_RECORD_ZSTD,
					inside, len);
		else
			got = in_session(&b, FAL_RECORD_SESSION, b.unsealed != odd,
					 flags & FAL_RECORD_ZSTD, inside, len);
	}
	told_end(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_record rec;
	if (fal_record_parse_head(p, n, &rec) == 0)
		must(rec.head + rec.body <= n && rec.body >= rec.tag &&
		     rec.body <= FAL_RECORD_MAX + rec.tag);
	handshakes(p, n);
	address(p, n);
	sealed(p, n);
	session(p, n);
	return 0;
}
