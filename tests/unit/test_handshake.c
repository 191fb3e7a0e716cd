/* The handshake, its gate, and what is said of those outside, without sockets.  The
 * client here is made by hand from falcon-protocol(7), so that it may say what ours never
 * does. */
#include "../measured.h"
#include "base/err.h"
#include "crypto/noise.h"
#include "net/gate.h"
#include "net/handshake.h"
#include "net/refusals.h"
#include "wire/msg.h"

#include <dlfcn.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Keys of 32 equal bytes: 1, 2, 3. */
#define K1 "AQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQEBAQE="
#define K2 "AgICAgICAgICAgICAgICAgICAgICAgICAgICAgICAgI="
#define K3 "AwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAwM="
#define KEYRING                                                                   \
	"coordinator self " K1 "\nlab work " K2 "\nlab work " K3 "\nold work " K2 \
	" 2001-02-03\n"
#define WE "we are Falcon " FAL_VERSION " with protocol 9.0"
/* The static secret key of the client 'own' is 32 bytes of this. */
enum { NOW = 1000000000, MAC = 32, HEAD = 10, OWN = 6, OTHER = 7 };

static struct fal_keyring *kr;

/* Diffie-Hellman as libsodium does it, counted: the library calls this one. */
static unsigned multiplied;
int crypto_scalarmult(unsigned char *q, const unsigned char *n, const unsigned char *p);

int
crypto_scalarmult(unsigned char *q, const unsigned char *n, const unsigned char *p)
{
	int (*real)(unsigned char *, const unsigned char *, const unsigned char *);
	*(void **)&real = dlsym(RTLD_NEXT, "crypto_scalarmult");
	assert_non_null(real);
	multiplied++;
	return real(q, n, p);
}

static int
setup(void **state)
{
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES];
	char text[1024], key[FAL_KEY_TEXT + 1];
	(void)state;
	memset(secret, OWN, sizeof(secret));
	fal_noise_derive_public(secret, public);
	fal_key_encode(public, key);
	snprintf(text, sizeof(text), KEYRING "\nown work public:%s\n", key);
	return fal_keyring_parse(text, strlen(text), "k", &kr, NULL);
}

static int
teardown(void **state)
{
	(void)state;
	fal_keyring_free(kr);
	return 0;
}

static struct fal_client_key
client_key(const char *name, int psk)
{
	struct fal_client_key key = { .role = FAL_ROLE_WORK };
	uint8_t secret[FAL_KEY_BYTES];
	snprintf(key.name, sizeof(key.name), "%s", name);
	memset(key.psk, psk, sizeof(key.psk));
	memset(secret, 1, sizeof(secret));
	fal_noise_derive_public(secret, key.server);
	memset(secret, psk, sizeof(secret));
	if (psk == OWN || psk == OTHER)
		assert_int_equal(fal_client_key_static(&key, secret), 0);
	return key;
}

static void
mac_key(const struct fal_client_key *key, uint8_t out[64])
{
	memcpy(out, key->server, 32);
	fal_key_derive("falcon mac", key->server, key->psk, out + 32);
}

/* What a client of its own says. */
struct words {
	const char *name;
	int psk;
	uint16_t major, minor;
	uint8_t pattern;
	uint32_t shard;
	uint8_t suites[300];
	uint8_t suites_n;
	size_t more;       /* bytes too many before the MAC */
	const char *build; /* NULL: ours */
};

static const struct words plain = { .name = "lab",
				    .psk = 2,
				    .major = 9,
				    .minor = FAL_PROTO_MINOR,
				    .pattern = 1,
				    .suites = { 1 },
				    .suites_n = 1 };

static const struct words of_its_own = { .name = "own",
					 .psk = OWN,
					 .major = 9,
					 .minor = FAL_PROTO_MINOR,
					 .pattern = 2,
					 .suites = { 1 },
					 .suites_n = 1 };

static struct fal_noise *
say(const struct words *w, struct fal_buf *b)
{
	const struct fal_client_key key = client_key(w->name, w->psk);
	const bool is_ik = key.is_static && w->pattern == 2;
	const size_t name_n = strlen(w->name), noise_n = is_ik ? 96 : 48;
	const char *build = w->build != NULL ? w->build : fal_build();
	const size_t build_n = w->major < 6 ? 0 : 1 + strlen(build);
	uint8_t k[64], psk[FAL_KEY_BYTES];
	struct fal_noise *ns;
	fal_key_derive("falcon psk", key.server, key.psk, psk);
	fal_put_bytes(b, "FALC", 4);
	fal_put_u16(b, w->major);
	fal_put_u16(b, w->minor);
	fal_put_u16(b, (uint16_t)(1 + name_n + build_n + 6 + w->suites_n + noise_n +
				  w->more + MAC));
	fal_put_u8(b, (uint8_t)name_n);
	fal_put_bytes(b, w->name, name_n);
	if (build_n > 0) {
		fal_put_u8(b, (uint8_t)(build_n - 1));
		fal_put_bytes(b, build, build_n - 1);
	}
	fal_put_u8(b, w->pattern);
	fal_put_u32(b, w->shard);
	fal_put_u8(b, w->suites_n);
	fal_put_bytes(b, w->suites, w->suites_n);
	const struct fal_noise_opt opt = { .side = FAL_NOISE_INITIATOR,
					   .pattern = is_ik ? FAL_NOISE_IK
							    : FAL_NOISE_NKPSK0,
					   .prologue = b->p,
					   .prologue_n = b->n,
					   .psk = psk,
					   .static_key = key.server,
					   .client_key = is_ik ? key.secret : NULL };
	ns = fal_noise_new(&opt);
	assert_int_equal(fal_noise_write(ns, NULL, 0, fal_buf_room(b, noise_n)), 0);
	for (size_t i = 0; i < w->more; i++)
		fal_put_u8(b, 7);
	mac_key(&key, k);
	uint8_t mac[MAC];
	fal_mac("falcon hello", k, b->p, b->n, mac);
	fal_put_bytes(b, mac, MAC);
	assert_int_equal(b->err, 0);
	return ns;
}

/* Both steps of the server; the session is thrown away. */
static int
answer(const struct fal_buf *hello, size_t n, struct fal_buf *out, struct fal_diag *d)
{
	struct fal_session s = { 0 };
	struct fal_greeting g;
	int err = fal_handshake_check(kr, NOW, hello->p, n, &g, d);
	if (err == FAL_OK)
		err = fal_handshake_answer(kr, &g, &s, out, d);
	fal_seal_wipe(&s.tx);
	fal_seal_wipe(&s.rx);
	return err;
}

/* BLAKE2b as Python's hashlib.blake2b(data, digest_size=32, key=, person=) has it. */
static void
macs(void **state)
{
	static const uint8_t abc[32] = { 0x86, 0xf4, 0xea, 0x28, 0xec, 0xc3, 0xae, 0xb4,
					 0xc5, 0x9c, 0xfe, 0xfe, 0xfb, 0x79, 0x5e, 0x58,
					 0x6e, 0xcc, 0x28, 0xea, 0xa7, 0xe0, 0x8a, 0x7a,
					 0x78, 0x5f, 0x69, 0xce, 0x31, 0x34, 0xc6, 0xb2 };
	static const uint8_t empty[4] = { 0x91, 0x6c, 0x3c, 0xcc };
	uint8_t key[64], out[32];
	(void)state;
	for (uint8_t i = 0; i < 64; i++)
		key[i] = i;
	fal_mac("falcon hello", key, "abc", 3, out);
	assert_memory_equal(out, abc, 32);
	fal_mac("0123456789abcdef", key, NULL, 0, out);
	assert_memory_equal(out, empty, 4);
}

/* Whoever has no key costs a hash, and no Diffie-Hellman. */
static void
a_wrong_mac_costs_no_multiplication(void **state)
{
	const struct words *const all[] = { &plain, &of_its_own };
	(void)state;
	for (size_t k = 0; k < 2; k++) {
		struct fal_buf hello = { 0 }, out = { 0 };
		struct fal_diag d;
		fal_noise_free(say(all[k], &hello));
		multiplied = 0;
		for (size_t at = HEAD; at < hello.n; at++) {
			hello.p[at] ^= 1;
			assert_true(answer(&hello, hello.n, &out, &d) < 0);
			hello.p[at] ^= 1;
		}
		assert_int_equal(multiplied, 0);
		assert_int_equal(answer(&hello, hello.n, &out, &d), 0);
		assert_true(multiplied > 0);
		fal_buf_free(&hello);
		fal_buf_free(&out);
	}
}

static void
shakes_hands_with_either_key(void **state)
{
	(void)state;
	static const int keys[] = { 2, 3, OWN };
	for (size_t i = 0; i < 3; i++) {
		const char *name = keys[i] == OWN ? "own" : "lab";
		const struct fal_client_key key = client_key(name, keys[i]);
		struct fal_buf hello = { 0 }, out = { 0 };
		struct fal_handshake *h;
		struct fal_greeting g;
		struct fal_session cs, ss;
		assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
		for (size_t n = 0; n < hello.n; n++)
			assert_int_equal(answer(&hello, n, &out, NULL), FAL_ETRUNC);
		assert_int_equal(out.n, 0);
		assert_int_equal(fal_handshake_check(kr, NOW, hello.p, hello.n, &g, NULL),
				 0);
		assert_string_equal(g.name, name);
		assert_memory_equal(g.key->psk, key.psk, FAL_KEY_BYTES);
		assert_int_equal(fal_handshake_answer(kr, &g, &ss, &out, NULL), 0);
		assert_int_equal(out.n, FAL_HANDSHAKE_ANSWER);
		assert_int_equal(ss.used, hello.n);
		assert_string_equal(ss.name, name);
		assert_int_equal(ss.role, FAL_ROLE_WORK);
		for (size_t n = 0; n < out.n; n++)
			assert_int_equal(fal_handshake_finish(h, out.p, n, &cs, NULL),
					 FAL_ETRUNC);
		assert_int_equal(fal_handshake_finish(h, out.p, out.n, &cs, NULL), 0);
		assert_int_equal(cs.used, out.n);
		assert_memory_equal(cs.tx.key, ss.rx.key, FAL_KEY_BYTES);
		assert_memory_equal(cs.rx.key, ss.tx.key, FAL_KEY_BYTES);
		assert_string_equal(cs.fingerprint, ss.fingerprint);
		fal_seal_wipe(&cs.tx);
		fal_seal_wipe(&cs.rx);
		fal_seal_wipe(&ss.tx);
		fal_seal_wipe(&ss.rx);
		fal_handshake_free(h);
		fal_buf_free(&hello);
		fal_buf_free(&out);
	}
}

static void
same_as_by_hand(const struct words *w, size_t noise_n)
{
	const struct fal_client_key key = client_key(w->name, w->psk);
	struct fal_buf ours = { 0 }, hand = { 0 }, out = { 0 };
	struct fal_handshake *h;
	uint8_t payload[HEAD], mac[MAC], k[64];
	assert_int_equal(fal_handshake_begin(&key, &ours, &h), 0);
	struct fal_noise *ns = say(w, &hand);
	assert_int_equal(ours.n, hand.n);
	assert_memory_equal(ours.p, hand.p, hand.n - noise_n - MAC);
	mac_key(&key, k);
	fal_mac("falcon hello", k, ours.p, ours.n - MAC, mac);
	assert_memory_equal(mac, ours.p + ours.n - MAC, MAC);
	/* ... and hears what it says. */
	assert_int_equal(answer(&hand, hand.n, &out, NULL), 0);
	assert_int_equal(out.n, HEAD + 58);
	assert_memory_equal(out.p, "FALC\11\0\0\0\0\1", HEAD);
	assert_int_equal(fal_noise_read(ns, out.p + HEAD, 58, payload), 0);
	assert_memory_equal(payload, out.p, HEAD);
	fal_noise_free(ns);
	fal_handshake_free(h);
	fal_buf_free(&ours);
	fal_buf_free(&hand);
	fal_buf_free(&out);
}

/* Ours says what the page says, byte for byte but for what is drawn. */
static void
is_that_of_the_page(void **state)
{
	(void)state;
	same_as_by_hand(&plain, 48);
	same_as_by_hand(&of_its_own, 96);
}

/* Whoever does not prove a key is told nothing at all. */
static void
refuses_changed_bytes_of(const struct fal_client_key key)
{
	struct fal_buf hello = { 0 }, out = { 0 };
	struct fal_handshake *h;
	unsigned refused = 0;
	assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
	for (size_t i = 0; i < hello.n; i++) {
		for (int bit = 0; bit < 8; bit++) {
			hello.p[i] ^= (uint8_t)(1 << bit);
			const int err = answer(&hello, hello.n, &out, NULL);
			hello.p[i] ^= (uint8_t)(1 << bit);
			/* Versions, lengths and names have forms of their own. */
			if (err != FAL_EAUTH &&
			    (i > 14 || (err != FAL_EFORMAT && err != FAL_ETRUNC)))
				fail_msg("byte %zu, bit %d: %d", i, bit, err);
			assert_int_equal(out.n, 0);
			refused++;
		}
	}
	assert_int_equal(refused, 8 * hello.n);
	/* A client hears the server, or nobody. */
	struct fal_session s;
	assert_int_equal(answer(&hello, hello.n, &out, NULL), 0);
	for (size_t i = 0; i < out.n; i++) {
		struct fal_handshake *again;
		struct fal_buf other = { 0 }, reply = { 0 };
		assert_int_equal(fal_handshake_begin(&key, &other, &again), 0);
		assert_int_equal(answer(&other, other.n, &reply, NULL), 0);
		reply.p[i] ^= 1;
		const int err = fal_handshake_finish(again, reply.p, reply.n, &s, NULL);
		/* A refusal names a build of any length: more may be to come. */
		if (err != FAL_EAUTH && (i >= 6 || err != FAL_EFORMAT) &&
		    (i != 8 || err != FAL_ETRUNC))
			fail_msg("byte %zu of the answer: %d", i, err);
		fal_handshake_free(again);
		fal_buf_free(&other);
		fal_buf_free(&reply);
	}
	fal_handshake_free(h);
	fal_buf_free(&hello);
	fal_buf_free(&out);
}

static void
refuses_every_changed_byte(void **state)
{
	(void)state;
	refuses_changed_bytes_of(client_key("lab", 2));
	refuses_changed_bytes_of(client_key("own", OWN));
}

/* What both come to, when the client offers what it does with `theirs` before ChaCha, and
 * the server what it does with `ours`. */
static uint8_t
chosen(uint8_t theirs, uint8_t ours)
{
	const struct fal_client_key key = client_key("lab", 2);
	struct fal_buf hello = { 0 }, out = { 0 };
	uint8_t rec[100 + FAL_SEAL_TAG] = "words";
	struct fal_session cs, ss;
	struct fal_handshake *h;
	struct fal_greeting g;
	assert_true(measured(theirs));
	assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
	assert_true(measured(ours));
	assert_int_equal(fal_handshake_check(kr, NOW, hello.p, hello.n, &g, NULL), 0);
	assert_int_equal(fal_handshake_answer(kr, &g, &ss, &out, NULL), 0);
	assert_true(measured(theirs));
	assert_int_equal(fal_handshake_finish(h, out.p, out.n, &cs, NULL), 0);
	assert_int_equal(cs.tx.suite, ss.rx.suite);
	assert_int_equal(cs.rx.suite, ss.tx.suite);
	assert_int_equal(cs.rx.suite, cs.tx.suite);
	for (int i = 0; i < 3; i++) {
		assert_int_equal(fal_seal_seal(&cs.tx, NULL, 0, rec, 100), 0);
		assert_int_equal(fal_seal_open(&ss.rx, NULL, 0, rec, sizeof(rec)), 0);
		assert_int_equal(fal_seal_seal(&ss.tx, NULL, 0, rec, 100), 0);
		assert_int_equal(fal_seal_open(&cs.rx, NULL, 0, rec, sizeof(rec)), 0);
		assert_string_equal((char *)rec, "words");
	}
	const uint8_t suite = cs.tx.suite;
	fal_seal_wipe(&cs.tx);
	fal_seal_wipe(&cs.rx);
	fal_seal_wipe(&ss.tx);
	fal_seal_wipe(&ss.rx);
	fal_handshake_free(h);
	fal_buf_free(&hello);
	fal_buf_free(&out);
	return suite;
}

/* The server chooses, from what both have, and nobody between them can. */
static void
suites(void **state)
{
	enum { CHACHA = FAL_SUITE_CHACHA20_POLY1305, AES = FAL_SUITE_AES256_GCM };
	(void)state;
	assert_int_equal(chosen(CHACHA, CHACHA), CHACHA);
	if (!measured(AES))
		skip();
	assert_int_equal(chosen(AES, CHACHA), CHACHA);
	assert_int_equal(chosen(CHACHA, AES), CHACHA);
	assert_int_equal(chosen(AES, AES), AES);
	/* Each byte of the list, and of what was chosen, is authenticated. */
	refuses_changed_bytes_of(client_key("lab", 2));
	refuses_changed_bytes_of(client_key("own", OWN));
	assert_true(measured(CHACHA));
}

/* Nor is a suite taken that was not offered, from whoever may answer. */
static void
no_other_suite(void **state)
{
	const struct fal_client_key key = client_key("lab", 2);
	struct fal_buf hello = { 0 }, out = { 0 };
	struct fal_handshake *h;
	struct fal_session s = { 0 }, ss = { 0 };
	struct fal_greeting g;
	struct fal_diag d = { "" };
	(void)state;
	if (!measured(FAL_SUITE_AES256_GCM))
		skip();
	assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
	assert_int_equal(fal_handshake_check(kr, NOW, hello.p, hello.n, &g, NULL), 0);
	assert_int_equal(fal_handshake_answer(kr, &g, &ss, &out, NULL), 0);
	assert_true(measured(FAL_SUITE_CHACHA20_POLY1305));
	assert_int_equal(fal_handshake_finish(h, out.p, out.n, &s, &d), FAL_EFORMAT);
	assert_string_equal(d.text, "it chose a suite that we did not offer");
	fal_seal_wipe(&ss.tx);
	fal_seal_wipe(&ss.rx);
	fal_handshake_free(h);
	fal_buf_free(&hello);
	fal_buf_free(&out);
}

static void
wrong_names_are_wrong_keys(void **state)
{
	static const struct {
		const char *name;
		int psk;
		const char *why;
	} wrong[] = {
		{ "lab", 4, "key 'lab' does not authenticate" },
		{ "lob", 2, "key 'lob' is not in the keyring" },
		{ "old", 2,
		  "key 'old' has expired, 2001-02-03; it is 2001-09-09T01:46:40Z "
		  "here" },
		{ "own", OTHER, "key 'own' does not authenticate" },
		{ "own", 2, "key 'own' does not authenticate" },
		{ "lab", OWN, "key 'lab' does not authenticate" },
	};
	(void)state;
	for (size_t i = 0; i < 6; i++) {
		struct words w = plain;
		struct fal_buf hello = { 0 }, out = { 0 };
		struct fal_diag d;
		w.name = wrong[i].name;
		w.psk = wrong[i].psk;
		w.major = 10; /* says nothing of versions either */
		fal_noise_free(say(&w, &hello));
		assert_int_equal(answer(&hello, hello.n, &out, &d), FAL_EAUTH);
		assert_string_equal(d.text, wrong[i].why);
		assert_int_equal(out.n, 0);
		fal_buf_free(&hello);
	}
}

/* Whoever proves a key hears why not, and can believe it. */
static void
refusals(void **state)
{
	static const struct {
		struct words w;
		uint8_t verdict; /* 0: none */
		int err;
		const char *why;
	} cases[] = {
		{ { .major = 9,
		    .minor = FAL_PROTO_MINOR + 1,
		    .pattern = 1,
		    .suites = { 1 },
		    .suites_n = 1,
		    .build = "9.9" },
		  1,
		  FAL_EVERSION,
		  "it is Falcon 9.9 with protocol 9.1, " WE },
		{ { .major = 9, .pattern = 1, .suites = { 9, 200, 1, 7 }, .suites_n = 4 },
		  0,
		  FAL_OK,
		  NULL },
		{ { .major = 10,
		    .minor = 1,
		    .pattern = 1,
		    .suites = { 1 },
		    .suites_n = 1,
		    .build = "9.9" },
		  1,
		  FAL_EVERSION,
		  "it is Falcon 9.9 with protocol 10.1, " WE },
		{ { .major = 10, .pattern = 7, .more = 250, .build = "a\nb" },
		  1,
		  FAL_EVERSION,
		  "it is Falcon a?b with protocol 10.0, " WE },
		{ { .major = 5, .pattern = 1, .suites = { 1 }, .suites_n = 1 },
		  1,
		  FAL_EVERSION,
		  "it speaks protocol 5.0, " WE },
		{ { .major = 4, .minor = 9, .pattern = 7, .more = 250 },
		  1,
		  FAL_EVERSION,
		  "it speaks protocol 4.9, " WE },
		{ { .major = 9,
		    .pattern = 1,
		    .build = "0123456789012345678901234567890123456789012345678901234567"
			     "890123" },
		  0,
		  FAL_EFORMAT,
		  "a handshake of an impossible length" },
		{ { .major = 9, .pattern = 2, .suites = { 1 }, .suites_n = 1 },
		  2,
		  FAL_EVERSION,
		  "key 'lab': handshake 2 is not for this kind of key" },
		{ { .major = 9,
		    .pattern = 1,
		    .shard = 1,
		    .suites = { 1 },
		    .suites_n = 1 },
		  3,
		  FAL_EVERSION,
		  "there is no shard 1" },
		{ { .major = 9, .pattern = 1, .suites = { 2, 3 }, .suites_n = 2 },
		  4,
		  FAL_EVERSION,
		  "none of its cipher suites is spoken here" },
		{ { .major = 9, .pattern = 1 },
		  4,
		  FAL_EVERSION,
		  "none of its cipher suites is spoken here" },
		{ { .major = 9, .pattern = 1, .suites = { 1 }, .suites_n = 1, .more = 1 },
		  0,
		  FAL_EFORMAT,
		  "a handshake of an impossible length" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fal_buf hello = { 0 }, out = { 0 };
		struct fal_diag d = { "" };
		struct words w = cases[i].w;
		uint8_t both[700], mac[MAC], k[64];
		w.name = "lab";
		w.psk = 2;
		fal_noise_free(say(&w, &hello));
		const int err = answer(&hello, hello.n, &out, &d);
		if (err != cases[i].err)
			fail_msg("case %zu: %d '%s'", i, err, d.text);
		if (cases[i].why != NULL)
			assert_string_equal(d.text, cases[i].why);
		if (cases[i].verdict != 0) {
			const struct fal_client_key key = client_key("lab", 2);
			const size_t build_n = w.major < 6 ? 0 : 1 + strlen(fal_build());
			const size_t n = HEAD + build_n;
			assert_int_equal(out.n, n + MAC);
			assert_memory_equal(out.p, "FALC\11\0\0\0", 8);
			if (build_n > 0) {
				assert_int_equal(out.p[HEAD], build_n - 1);
				assert_memory_equal(out.p + HEAD + 1, fal_build(),
						    build_n - 1);
			}
			assert_int_equal(out.p[8], cases[i].verdict);
			assert_int_equal(out.p[9], 0);
			memcpy(both, hello.p, hello.n);
			memcpy(both + hello.n, out.p, n);
			mac_key(&key, k);
			fal_mac("falcon refusal", k, both, hello.n + n, mac);
			assert_memory_equal(mac, out.p + n, MAC);
		} else {
			assert_int_equal(out.n, err == 0 ? HEAD + 58 : 0);
		}
		fal_buf_free(&hello);
		fal_buf_free(&out);
	}
}

/* A static key and a shared one have handshakes of their own: of what the coordinator has
 * in common with a client, which whoever has the keyring can compute, no session is made.
 */
static void
each_key_its_handshake(void **state)
{
	(void)state;
	for (int i = 0; i < 2; i++) {
		struct words w = i == 0 ? of_its_own : plain;
		struct fal_buf hello = { 0 }, out = { 0 };
		struct fal_diag d;
		w.pattern = (uint8_t)(i + 1);
		fal_noise_free(say(&w, &hello));
		assert_int_equal(answer(&hello, hello.n, &out, &d), FAL_EVERSION);
		assert_string_equal(
			d.text,
			i == 0 ? "key 'own': handshake 1 is not for this kind of key"
			       : "key 'lab': handshake 2 is not for this kind of key");
		assert_int_equal(out.n, HEAD + 1 + strlen(fal_build()) + MAC);
		assert_int_equal(out.p[8], 2);
		fal_buf_free(&hello);
		fal_buf_free(&out);
	}
}

/* The client of ours hears refusals, and only authentic ones to what it has just said;
 * one of an older version, too, which names no build. */
static void
hears_refusals(void **state)
{
	static const struct {
		uint8_t major, minor, verdict;
		const char *build, *why;
	} cases[] = {
		{ 10, 2, 1, "9.9", "it is Falcon 9.9 with protocol 10.2, " WE },
		{ 9, 2, 1, "", "it speaks protocol 9.2, " WE },
		{ 5, 0, 1, NULL, "it speaks protocol 5.0, " WE },
		{ 4, 3, 1, NULL, "it speaks protocol 4.3, " WE },
		{ 9, 0, 2, "0.3", "it takes no such handshake of this key" },
		{ 9, 0, 3, "0.3", "it has no such shard" },
		{ 9, 0, 4, "0.3", "it speaks none of our cipher suites" },
		{ 9, 0, 5, "0.3", "it refuses us for a reason that we do not know" },
	};
	const struct fal_client_key key = client_key("lab", 2);
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		uint8_t both[700], k[64], mac[MAC];
		struct fal_buf hello = { 0 }, said = { 0 };
		struct fal_handshake *h;
		struct fal_session s;
		struct fal_diag d = { "" };
		assert_int_equal(fal_handshake_begin(&key, &hello, &h), 0);
		fal_put_bytes(&said, "FALC", 4);
		fal_put_u16(&said, cases[i].major);
		fal_put_u16(&said, cases[i].minor);
		fal_put_u8(&said, cases[i].verdict);
		fal_put_u8(&said, 0);
		if (cases[i].build != NULL) {
			fal_put_u8(&said, (uint8_t)strlen(cases[i].build));
			fal_put_bytes(&said, cases[i].build, strlen(cases[i].build));
		}
		memcpy(both, hello.p, hello.n);
		memcpy(both + hello.n, said.p, said.n);
		mac_key(&key, k);
		fal_mac("falcon refusal", k, both, hello.n + said.n, mac);
		fal_put_bytes(&said, mac, MAC);
		for (size_t n = 0; n < said.n; n++)
			assert_int_equal(fal_handshake_finish(h, said.p, n, &s, NULL),
					 FAL_ETRUNC);
		for (size_t b = 6; b < said.n; b++) {
			uint8_t full[HEAD + 64 + MAC] = { 0 };
			memcpy(full, said.p, said.n);
			full[b] ^= (uint8_t)(1 << b % 8);
			if (full[8] == 0)
				continue;
			assert_int_equal(fal_handshake_finish(h, full, sizeof(full), &s,
							      NULL),
					 FAL_EAUTH);
		}
		assert_int_equal(fal_handshake_finish(h, said.p, said.n, &s, &d),
				 FAL_EVERSION);
		assert_string_equal(d.text, cases[i].why);
		/* One from before versions were authenticated is believed nothing. */
		assert_int_equal(fal_handshake_finish(h,
						      (const uint8_t *)"FALC\3\0\0\0\1",
						      9, &s, &d),
				 FAL_EFORMAT);
		assert_string_equal(d.text, "it says that it speaks protocol 3.0, " WE);
		fal_handshake_free(h);
		fal_buf_free(&hello);
		fal_buf_free(&said);
	}
}

/* What is added to a complaint: nothing between like builds. */
static void
skews(void **state)
{
	static const struct {
		const char *build, *want;
	} cases[] = {
		{ FAL_VERSION, "" },
		{ "", "" },
		{ "9.9", " (from Falcon 9.9 to Falcon " FAL_VERSION ")" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(*cases); i++) {
		struct fal_session s = { 0 };
		struct fal_diag d;
		snprintf(s.build, sizeof(s.build), "%s", cases[i].build);
		assert_string_equal(fal_session_skew(&s, &d), cases[i].want);
	}
}

static uint64_t
at(double s)
{
	return (uint64_t)(s * 1e9);
}

static const uint8_t *
mac_no(uint32_t i)
{
	static uint8_t mac[FAL_GATE_PRINT];
	memcpy(mac, &i, sizeof(i));
	mac[15] = 1;
	return mac;
}

/* What is wrong spends its source's budget, and nothing of a name's. */
static void
budgets(void **state)
{
	struct fal_gate *g = malloc(sizeof(*g));
	const uint64_t lab = fal_gate_group(7, "lab"), bob = fal_gate_group(7, "bob");
	struct fal_diag d = { "" };
	uint32_t n = 0;
	(void)state;
	fal_gate_init(g);
	assert_true(lab != bob && lab != fal_gate_group(8, "lab"));
	for (int i = 0; i < FAL_GATE_WRONG; i++)
		assert_int_equal(fal_gate_count_wrong(g, 7, at(1), &d), FAL_EAUTH);
	assert_string_equal(d.text, "");
	for (int i = 0; i < 1000; i++)
		assert_int_equal(fal_gate_count_wrong(g, 7, at(1), &d), FAL_ELIMIT);
	assert_string_equal(d.text, "too many handshakes in a short time");
	assert_int_equal(fal_gate_count_wrong(g, 8, at(1), &d), FAL_EAUTH);
	/* Those that open a session are not counted, ... */
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(fal_gate_count_right(g, 7, lab, mac_no(n++), at(1), &d),
				 0);
		fal_gate_refund(g, 7, lab);
	}
	/* ... those that do not are, and cost no other name anything. */
	for (int i = 0; i < FAL_GATE_RIGHT; i++)
		assert_int_equal(fal_gate_count_right(g, 7, lab, mac_no(n++), at(1), &d),
				 0);
	assert_int_equal(fal_gate_count_right(g, 7, lab, mac_no(n++), at(1), &d),
			 FAL_ELIMIT);
	assert_int_equal(fal_gate_count_right(g, 7, bob, mac_no(n++), at(1), &d), 0);
	assert_int_equal(fal_gate_count_right(g, 7, lab, mac_no(n++), at(1.25), &d), 0);
	/* Without a network there are no sources. */
	for (int i = 0; i < 1000; i++) {
		assert_int_equal(fal_gate_count_wrong(g, 0, at(2), &d), FAL_EAUTH);
		assert_int_equal(fal_gate_count_right(g, 0, 1, mac_no(n++), at(2), &d),
				 0);
	}
	free(g);
}

static void
replays(void **state)
{
	struct fal_gate *g = malloc(sizeof(*g));
	struct fal_diag d;
	(void)state;
	fal_gate_init(g);
	assert_int_equal(fal_gate_count_right(g, 7, 1, mac_no(0), at(1), &d), 0);
	for (int i = 0; i < FAL_GATE_WRONG; i++) {
		assert_int_equal(fal_gate_count_right(g, 7, 1, mac_no(0), at(1), &d),
				 FAL_EAUTH);
		assert_string_equal(d.text, "a handshake that has come before");
	}
	assert_int_equal(fal_gate_count_right(g, 7, 1, mac_no(0), at(1), &d), FAL_ELIMIT);
	/* It did not cost the name anything. */
	for (uint32_t i = 1; i < FAL_GATE_RIGHT; i++)
		assert_int_equal(fal_gate_count_right(g, 7, 1, mac_no(i), at(1), &d), 0);
	/* As many are known as is said. */
	for (uint32_t i = FAL_GATE_RIGHT; i < FAL_GATE_SEEN; i++)
		assert_int_equal(fal_gate_count_right(g, 0, 1, mac_no(i), at(1), &d), 0);
	assert_int_equal(fal_gate_count_right(g, 0, 1, mac_no(0), at(1), &d), FAL_EAUTH);
	assert_int_equal(fal_gate_count_right(g, 0, 1, mac_no(FAL_GATE_SEEN), at(1), &d),
			 0);
	assert_int_equal(fal_gate_count_right(g, 0, 1, mac_no(1), at(1), &d), FAL_EAUTH);
	free(g);
}

/* 200 sources in 2.5 s were 11,428 lines, and one that was said once was silent for ever.
 */
static void
says_little_and_goes_on(void **state)
{
	struct fal_refusals *r = calloc(1, sizeof(*r));
	struct fal_diag line;
	char source[32];
	unsigned lines = 0;
	(void)state;
	fal_refusals_add(r, "10.0.0.1", "key 'x' does not authenticate");
	assert_true(fal_refusals_due(r, 100, false, &line));
	assert_string_equal(
		line.text,
		"refused a handshake from 10.0.0.1: key 'x' does not authenticate");
	for (int i = 0; i < 11428; i++) {
		snprintf(source, sizeof(source), "10.0.1.%d", i % 200);
		fal_refusals_add(r, source, "not Falcon's protocol");
		lines += fal_refusals_due(r, 100 + 2.5 * i / 11428, false, &line);
	}
	assert_int_equal(lines, 0);
	assert_false(fal_refusals_due(r, 109.9, false, &line));
	assert_true(fal_refusals_due(r, 110, false, &line));
	assert_string_equal(line.text,
			    "refused 11428 handshakes from 200 sources in the last 10 s "
			    "(last: 10.0.1.27: not Falcon's protocol)");
	/* The next pause is twice as long. */
	fal_refusals_add(r, "10.0.0.2", "a");
	assert_false(fal_refusals_due(r, 129.9, false, &line));
	assert_true(fal_refusals_due(r, 130, false, &line));
	assert_false(fal_refusals_due(r, 1000, true, &line));
	/* Whoever was said once is said again, ... */
	fal_refusals_add(r, "10.0.0.1", "a");
	assert_true(fal_refusals_due(r, 1000, false, &line));
	assert_string_equal(line.text, "refused a handshake from 10.0.0.1: a");
	/* ... at the latest when all is over. */
	for (int i = 0; i < 2 * FAL_REFUSALS_SOURCES; i++) {
		snprintf(source, sizeof(source), "s%d", i);
		fal_refusals_add(r, source, "b");
	}
	assert_false(fal_refusals_due(r, 1004, false, &line));
	assert_true(fal_refusals_due(r, 1004, true, &line));
	assert_string_equal(line.text,
			    "refused 2048 handshakes from 1024 sources or more in the "
			    "last 4 s (last: s2047: b)");
	free(r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(macs),
		cmocka_unit_test(a_wrong_mac_costs_no_multiplication),
		cmocka_unit_test(shakes_hands_with_either_key),
		cmocka_unit_test(is_that_of_the_page),
		cmocka_unit_test(refuses_every_changed_byte),
		cmocka_unit_test(suites),
		cmocka_unit_test(no_other_suite),
		cmocka_unit_test(wrong_names_are_wrong_keys),
		cmocka_unit_test(refusals),
		cmocka_unit_test(each_key_its_handshake),
		cmocka_unit_test(hears_refusals),
		cmocka_unit_test(skews),
		cmocka_unit_test(budgets),
		cmocka_unit_test(replays),
		cmocka_unit_test(says_little_and_goes_on),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, setup, teardown);
}
