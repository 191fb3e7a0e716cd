/* make FOLDER: writes the vectors of falcon-protocol(7) there, the same each time.  The
 * handshakes are those of lib/net with ephemeral keys, and a build, that are known: the
 * program is linked with --wrap=fal_random_bytes and --wrap=fal_build. */
#include "../naive_bfp.h"
#include "base/rng.h"
#include "crypto/noise.h"
#include "net/handshake.h"
#include "net/record.h"
#include "wire/bfp.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static uint8_t next_random[FAL_KEY_BYTES];
static FILE *out;

/* Declared here for the linker alone. */
void __wrap_fal_random_bytes(void *p, size_t n);
void
__wrap_fal_random_bytes(void *p, size_t n)
{
	for (size_t i = 0; i < n; i++)
		((uint8_t *)p)[i] = next_random[i % FAL_KEY_BYTES];
}

const char *__wrap_fal_build(void);
const char *
__wrap_fal_build(void)
{
	return "1.2.3";
}

static void
must(bool fact, const char *what)
{
	if (fact)
		return;
	fprintf(stderr, "vectors: %s\n", what);
	exit(1);
}

static void
text(const char *key, const char *value)
{
	fprintf(out, "%s: %s\n", key, value);
}

static void
number(const char *key, int64_t value)
{
	fprintf(out, "%s: %" PRId64 "\n", key, value);
}

static void
bytes(const char *key, const void *p, size_t n)
{
	fprintf(out, "%s: ", key);
	for (size_t i = 0; i < n; i++)
		fprintf(out, "%02x", ((const uint8_t *)p)[i]);
	fputc('\n', out);
}

/* Begins a file with the meaning of its members, as comments. */
static void
begin(const char *folder, const char *name, const char *members)
{
	char path[4096];
	snprintf(path, sizeof(path), "%s/%s", folder, name);
	out = fopen(path, "w");
	must(out != NULL, path);
	fprintf(out, "# Test vectors of falcon-protocol(7), TEST VECTORS.\n#\n%s",
		members);
}

static const char handshake_members[] =
	"# judge             the side that judges the other's bytes\n"
	"# key, build        the name of their key; the version of both sides\n"
	"# prologue          that of Noise\n"
	"# psk               the shared key; of a key pair `common` takes its place\n"
	"# client-ephemeral, server-ephemeral  the keys that the sides draw\n"
	"# client, server    the bytes that they send\n"
	"# expect: ok        with `hash`, the handshake hash of Noise, and `client-key`\n"
	"#                   and `server-key`, each side's key for sending\n"
	"# expect: verdict N the server's answer\n"
	"# expect: silence   the server closes without a byte\n"
	"# expect: refused   the client refuses the server's bytes\n";

static const char record_members[] =
	"# kind: session     the receiver has `key` and `counter`, and `record` comes\n"
	"# kind: shared      the publication has `key`, the number `publication` and\n"
	"#                   `records` records; `ad` ends the additional data; `came` "
	"is\n"
	"#                   the index of a record that came before\n"
	"# expect: ok        with `message` and `then`\n"
	"# expect: refused   the record ends the session\n";

static const char block_members[] =
	"# kind: quantise    a model of `parameters` values has `gradient` (f32 values "
	"as 8\n"
	"#                   hexadecimal digits, the highest first), `exponent` and "
	"`room`\n"
	"# kind: record      a record of a contribution of `tasks` tasks comes\n"
	"# expect: ok        with `values`, `needed`, `record`, and with `seed` a "
	"checksum\n"
	"# expect: nonfinite, malformed (the record cannot be read), refused (its tasks\n"
	"#                   cannot have made the record)\n";

static void
end(void)
{
	must(fclose(out) == 0, "writing");
}

static void
called(const char *name)
{
	fprintf(out, "\nname: %s\n", name);
}

/* ---- handshake --- */

enum {
	SECRET = 0x11,
	CLIENT = 0x22,
	SERVER = 0x33,
	PSK = 0x44,
	OTHER = 0x55,
	OWN = 0x66
};

static const uint8_t *
key_of(uint8_t what)
{
	static uint8_t key[6][FAL_KEY_BYTES];
	uint8_t *k = key[what / 0x11 - 1];
	for (uint8_t i = 0; i < FAL_KEY_BYTES; i++)
		k[i] = (uint8_t)(what + i);
	return k;
}

/* What a client of the name 'own' has is a static key. */
static struct fal_client_key
client_key(const char *name, uint8_t key_byte)
{
	struct fal_client_key key = { 0 };
	snprintf(key.name, sizeof(key.name), "%s", name);
	memcpy(key.psk, key_of(key_byte), FAL_KEY_BYTES);
	fal_noise_derive_public(key_of(SECRET), key.server);
	if (strcmp(name, "own") == 0)
		must(fal_client_key_static(&key, key_of(key_byte)) == 0, "static key");
	return key;
}

static struct fal_keyring *
keyring(void)
{
	char ring[512], secret[FAL_KEY_TEXT + 1], psk[FAL_KEY_TEXT + 1],
		own[FAL_KEY_TEXT + 1];
	const struct fal_client_key key = client_key("own", OWN);
	struct fal_keyring *kr;
	fal_key_encode(key_of(SECRET), secret);
	fal_key_encode(key_of(PSK), psk);
	fal_key_encode(key.public, own);
	snprintf(ring, sizeof(ring), "c self %s\nlab work %s\nown work public:%s\n",
		 secret, psk, own);
	must(fal_keyring_parse(ring, strlen(ring), "keyring", &kr, NULL) == 0, "keyring");
	return kr;
}

/* What differs from what a client of ours says. */
struct words {
	const char *name; /* of the vector */
	const char *key;
	uint16_t major, minor;
	uint8_t pattern, suite, secret;
	bool as_shared; /* a static key's handshake is that of a shared one */
	uint32_t shard;
	uint8_t more;   /* zero bytes behind message 1 */
	size_t flip;    /* byte of message 1 that is changed, from 1; 0: none */
	bool low;       /* the ephemeral key is 0 */
	bool wrong_mac; /* its last bit */
	const char *magic;
};

enum { FIRST_MAX = FAL_NOISE_OVERHEAD + FAL_NOISE_STATIC };

/* Message 1 of whoever has `key`, behind this prologue, by what is known to be drawn. */
static struct fal_noise *
first(const struct fal_client_key *key, enum fal_noise_pattern pattern,
      const uint8_t *prologue, size_t n, uint8_t msg[static FIRST_MAX])
{
	uint8_t psk[FAL_KEY_BYTES];
	fal_key_derive("falcon psk", key->server, key->psk, psk);
	const struct fal_noise_opt opt = { .side = FAL_NOISE_INITIATOR,
					   .pattern = pattern,
					   .prologue = prologue,
					   .prologue_n = n,
					   .psk = psk,
					   .static_key = key->server,
					   .client_key = pattern == FAL_NOISE_IK
								 ? key->secret
								 : NULL,
					   .ephemeral = key_of(CLIENT) };
	struct fal_noise *ns;
	ns = fal_noise_new(&opt);
	must(fal_noise_write(ns, NULL, 0, msg) == 0, "noise");
	return ns;
}

static enum fal_noise_pattern
pattern_of(const struct fal_client_key *key)
{
	return key->is_static ? FAL_NOISE_IK : FAL_NOISE_NKPSK0;
}

static void
mac_of(const char *label, const struct fal_client_key *key, const uint8_t *said, size_t n,
       uint8_t mac[static FAL_HANDSHAKE_MAC])
{
	uint8_t both[FAL_MAC_KEY];
	memcpy(both, key->server, FAL_KEY_BYTES);
	fal_key_derive("falcon mac", key->server, key->psk, both + FAL_KEY_BYTES);
	fal_mac(label, both, said, n, mac);
}

static size_t
say(const struct words *w, struct fal_buf *said)
{
	const uint8_t suites[2] = { 200, w->suite };
	const size_t name_n = strlen(w->key);
	const size_t build_n = w->major < 6 ? 0 : 1 + strlen(fal_build());
	uint8_t msg[FIRST_MAX], mac[FAL_HANDSHAKE_MAC];
	const struct fal_client_key c = client_key(w->key, w->secret);
	const enum fal_noise_pattern pattern =
		w->as_shared ? FAL_NOISE_NKPSK0 : pattern_of(&c);
	const size_t msg_n = fal_noise_overhead(pattern, 1);
	fal_put_bytes(said, w->magic != NULL ? w->magic : "FALC", 4);
	fal_put_u16(said, w->major);
	fal_put_u16(said, w->minor);
	fal_put_u16(said,
		    (uint16_t)(1 + name_n + build_n + 8 + msg_n + w->more + sizeof(mac)));
	fal_put_u8(said, (uint8_t)name_n);
	fal_put_bytes(said, w->key, name_n);
	if (build_n > 0) {
		fal_put_u8(said, (uint8_t)(build_n - 1));
		fal_put_bytes(said, fal_build(), build_n - 1);
	}
	fal_put_u8(said, w->pattern);
	fal_put_u32(said, w->shard);
	fal_put_u8(said, 2);
	fal_put_bytes(said, suites, 2);
	const size_t prologue = said->n;
	fal_noise_free(first(&c, pattern, said->p, prologue, msg));
	if (w->flip > 0)
		msg[w->flip - 1] ^= 1;
	if (w->low)
		memset(msg, 0, FAL_KEY_BYTES);
	fal_put_bytes(said, msg, msg_n);
	for (uint8_t i = 0; i < w->more; i++)
		fal_put_u8(said, 0);
	mac_of("falcon hello", &c, said->p, said->n, mac);
	mac[31] ^= w->wrong_mac;
	fal_put_bytes(said, mac, sizeof(mac));
	return prologue;
}

static void
put_keys(const struct fal_client_key *key)
{
	text("key", key->name);
	bytes("server-secret", key_of(SECRET), FAL_KEY_BYTES);
	bytes("server-public", key->server, FAL_KEY_BYTES);
	if (key->is_static) {
		bytes("client-secret", key->secret, FAL_KEY_BYTES);
		bytes("client-public", key->public, FAL_KEY_BYTES);
		bytes("common", key->psk, FAL_KEY_BYTES);
	} else {
		bytes("psk", key->psk, FAL_KEY_BYTES);
	}
	text("build", fal_build());
	bytes("client-ephemeral", key_of(CLIENT), FAL_KEY_BYTES);
	bytes("server-ephemeral", key_of(SERVER), FAL_KEY_BYTES);
}

/* The keys of the session, and the hash, of what was said by both. */
static void
put_session(const struct fal_client_key *key, const uint8_t *said, size_t prologue,
	    const uint8_t *answer)
{
	uint8_t msg[FIRST_MAX], payload[10], hash[FAL_NOISE_HASH];
	const enum fal_noise_pattern pattern = pattern_of(key);
	struct fal_noise *ns = first(key, pattern, said, prologue, msg);
	struct fal_seal tx, rx;
	must(memcmp(msg, said + prologue, fal_noise_overhead(pattern, 1)) == 0 &&
		     fal_noise_read(ns, answer + 10, 58, payload) == 0 &&
		     memcmp(payload, answer, 10) == 0 &&
		     fal_noise_split(ns, FAL_SUITE_CHACHA20_POLY1305, &tx, &rx, hash) ==
			     0,
	     "session");
	bytes("hash", hash, sizeof(hash));
	bytes("client-key", tx.key, FAL_KEY_BYTES);
	bytes("server-key", rx.key, FAL_KEY_BYTES);
	fal_seal_wipe(&tx);
	fal_seal_wipe(&rx);
	fal_noise_free(ns);
}

/* A server's vector: what it answers. */
static void
heard(const struct words *w)
{
	const uint8_t right = strcmp(w->key, "own") == 0 ? OWN : PSK;
	const struct fal_client_key key = client_key(right == OWN ? "own" : "lab", right);
	struct fal_keyring *kr = keyring();
	struct fal_buf said = { 0 }, answer = { 0 };
	struct fal_greeting g;
	struct fal_session s = { 0 };
	char expect[32] = "silence";
	const size_t prologue = say(w, &said);
	memcpy(next_random, key_of(SERVER), FAL_KEY_BYTES);
	int err = fal_handshake_check(kr, 0, said.p, said.n, &g, NULL);
	if (err == FAL_OK)
		err = fal_handshake_answer(kr, &g, &s, &answer, NULL);
	called(w->name);
	text("judge", "server");
	put_keys(&key);
	bytes("prologue", said.p, prologue);
	bytes("client", said.p, said.n);
	bytes("server", answer.p, answer.n);
	if (err == FAL_OK) {
		put_session(&key, said.p, prologue, answer.p);
		strcpy(expect, "ok");
		fal_seal_wipe(&s.tx);
		fal_seal_wipe(&s.rx);
	} else if (err == FAL_EVERSION) {
		snprintf(expect, sizeof(expect), "verdict %u", answer.p[8]);
	}
	text("expect", expect);
	fal_buf_free(&said);
	fal_buf_free(&answer);
	fal_keyring_free(kr);
}

/* A client's: what it makes of an answer of which bit `flip` is changed (0: none), that
 * says `verdict`. */
static void
answered(const char *name, const char *client, size_t flip, uint8_t verdict)
{
	const struct fal_client_key key =
		client_key(client, strcmp(client, "own") == 0 ? OWN : PSK);
	struct fal_keyring *kr = keyring();
	struct fal_buf said = { 0 }, answer = { 0 };
	struct fal_handshake *h;
	struct fal_greeting g;
	struct fal_session s = { 0 }, mine = { 0 };
	memcpy(next_random, key_of(CLIENT), FAL_KEY_BYTES);
	must(fal_handshake_begin(&key, &said, &h) == 0 &&
		     fal_handshake_check(kr, 0, said.p, said.n, &g, NULL) == 0,
	     "client");
	memcpy(next_random, key_of(SERVER), FAL_KEY_BYTES);
	must(fal_handshake_answer(kr, &g, &s, &answer, NULL) == 0, "answer");
	if (verdict != 0) {
		uint8_t both[FAL_HANDSHAKE_MAX + 10 + 64];
		const size_t n = 11 + strlen(fal_build());
		answer.n = n + FAL_HANDSHAKE_MAC;
		answer.p[8] = verdict;
		answer.p[9] = 0;
		answer.p[10] = (uint8_t)strlen(fal_build());
		memcpy(answer.p + 11, fal_build(), n - 11);
		memcpy(both, said.p, said.n);
		memcpy(both + said.n, answer.p, n);
		mac_of("falcon refusal", &key, both, said.n + n, answer.p + n);
	}
	if (flip > 0)
		answer.p[flip] ^= 1;
	const int err = fal_handshake_finish(h, answer.p, answer.n, &mine, NULL);
	const size_t prologue =
		said.n - fal_noise_overhead(pattern_of(&key), 1) - FAL_HANDSHAKE_MAC;
	called(name);
	text("judge", "client");
	put_keys(&key);
	bytes("prologue", said.p, prologue);
	bytes("client", said.p, said.n);
	bytes("server", answer.p, answer.n);
	if (err == FAL_OK)
		put_session(&key, said.p, prologue, answer.p);
	char expect[32] = "refused";
	if (err == FAL_OK)
		strcpy(expect, "ok");
	else if (err == FAL_EVERSION)
		snprintf(expect, sizeof(expect), "verdict %u", answer.p[8]);
	text("expect", expect);
	fal_seal_wipe(&s.tx);
	fal_seal_wipe(&s.rx);
	fal_seal_wipe(&mine.tx);
	fal_seal_wipe(&mine.rx);
	fal_handshake_free(h);
	fal_keyring_free(kr);
	fal_buf_free(&said);
	fal_buf_free(&answer);
}

static void
handshakes(void)
{
	const struct words plain = { .name = "welcome",
				     .key = "lab",
				     .major = FAL_PROTO_MAJOR,
				     .minor = FAL_PROTO_MINOR,
				     .pattern = 1,
				     .suite = 1,
				     .secret = PSK };
	struct words w[23];
	for (size_t i = 0; i < sizeof(w) / sizeof(w[0]); i++) {
		w[i] = plain;
		if (i >= 15)
			w[i].key = "own", w[i].pattern = 2, w[i].secret = OWN;
	}
	w[1].name = "another minor version", w[1].minor++;
	w[2].name = "another major version", w[2].major++;
	w[3].name = "unknown pattern", w[3].pattern = 200;
	w[4].name = "no such shard", w[4].shard = 1000;
	w[5].name = "no common suite", w[5].suite = 201;
	w[6].name = "wrong PSK", w[6].secret = OTHER;
	w[7].name = "unknown name", w[7].key = "lob";
	w[8].name = "a name that is none", w[8].key = "l b";
	w[9].name = "wrong MAC", w[9].wrong_mac = true;
	w[10].name = "a byte behind message 1", w[10].more = 1;
	w[11].name = "another ephemeral key under a right MAC", w[11].flip = 1;
	w[12].name = "another tag under a right MAC", w[12].flip = FAL_NOISE_OVERHEAD;
	w[13].name = "wrong magic", w[13].magic = "FALK";
	w[14].name = "a major version without builds", w[14].major = 5;
	w[15].name = "welcome, by a static key";
	w[16].name = "another static key", w[16].secret = OTHER;
	w[17].name = "a changed static key under a right MAC", w[17].flip = 40;
	w[18].name = "a low point under a right MAC", w[18].low = true;
	w[19].name = "a static key in the handshake of a shared one";
	w[19].pattern = 1, w[19].as_shared = true;
	w[20].name = "a shared key in the handshake of a static one";
	w[20].key = "lab", w[20].secret = PSK;
	w[21].name = "a static key, another major version", w[21].major++;
	w[22].name = "a byte behind message 1 of a static key", w[22].more = 1;
	for (size_t i = 0; i < sizeof(w) / sizeof(w[0]); i++)
		heard(&w[i]);
	answered("welcomed", "lab", 0, 0);
	answered("a suite in message 2 that is not the one before it", "lab", 9, 0);
	answered("another ephemeral key in message 2", "lab", 10, 0);
	answered("another tag of message 2", "lab", 67, 0);
	answered("refused for the version", "lab", 0, 1);
	answered("refused for the suites", "lab", 0, 4);
	answered("a refusal with another MAC", "lab", 41, 1);
	answered("a static key welcomed", "own", 0, 0);
	answered("a static key, another tag of message 2", "own", 67, 0);
	answered("a static key refused for the pattern", "own", 0, 2);
	answered("a static key, a refusal with another MAC", "own", 41, 2);
}

/* ---- records --- */

struct rec {
	const char *name;
	uint8_t flags;
	uint64_t counter; /* of the sender, */
	uint64_t seen;    /* of the receiver */
	size_t flip;      /* byte that is changed, from 1; 0: none */
	uint8_t by;       /* what it is XORed with */
	const char *message;
	size_t n;
	const char *plain; /* what the message holds; NULL: itself */
	const char *expect;
};

/* zstd frames by hand, raw blocks: magic, descriptor (one segment, size of one byte, or
 * no size but a window), size, block. */
#define MAGIC "\x28\xb5\x2f\xfd"
#define FRAME MAGIC "\x20\x05\x29\0\0"
#define M(s) s, sizeof(s) - 1

static const struct rec recs[] = {
	{ "plain", 0, 0, 0, 0, 0, M("twelve bytes"), NULL, "ok" },
	{ "the 258th of its direction", 0, 257, 257, 0, 0, M("twelve bytes"), NULL,
	  "ok" },
	{ "the last one of its key, and the one behind it", 0, 65535, 65535, 0, 0,
	  M("twelve bytes"), "twelve bytes, and more", "ok" },
	{ "an empty message", 0, 0, 0, 0, 0, M(""), NULL, "ok" },
	{ "a zstd frame", 1, 0, 0, 0, 0, M(FRAME "hello"), "hello", "ok" },
	{ "left out: the next one comes", 0, 1, 0, 0, 0, M("twelve bytes"), NULL,
	  "refused" },
	{ "repeated", 0, 0, 1, 0, 0, M("twelve bytes"), NULL, "refused" },
	{ "a bit of the tag", 0, 0, 0, 36, 0x80, M("twelve bytes"), NULL, "refused" },
	{ "a bit of the text", 0, 0, 0, 9, 1, M("twelve bytes"), NULL, "refused" },
	{ "the flag was added on the way", 0, 0, 0, 6, 1, M("twelve bytes"), NULL,
	  "refused" },
	{ "unknown flag", 2, 0, 0, 0, 0, M("twelve bytes"), NULL, "refused" },
	{ "unknown type", 0, 0, 0, 5, 2, M("twelve bytes"), NULL, "refused" },
	{ "reserved bytes", 0, 0, 0, 7, 1, M("twelve bytes"), NULL, "refused" },
	{ "shorter than a tag", 0, 0, 0, 1, 0x10, M(""), NULL, "refused" },
	{ "longer than any", 0, 0, 0, 3, 2, M("twelve bytes"), NULL, "refused" },
	{ "a frame with bytes behind it", 1, 0, 0, 0, 0, M(FRAME "hello."), NULL,
	  "refused" },
	{ "a frame cut short", 1, 0, 0, 0, 0, M(FRAME "hell"), NULL, "refused" },
	{ "a frame that does not tell its size", 1, 0, 0, 0, 0,
	  M(MAGIC "\0\x50\x29\0\0hello"), NULL, "refused" },
	{ "a frame that tells 65537 bytes", 1, 0, 0, 0, 0,
	  M(MAGIC "\xa0\1\0\1\0\x29\0\0hello"), NULL, "refused" },
	{ "no frame at all", 1, 0, 0, 0, 0, M("twelve bytes"), NULL, "refused" },
};

static uint8_t suite = FAL_SUITE_CHACHA20_POLY1305; /* of sessions and publications */

static void
session_record(const struct rec *r)
{
	uint8_t rec[FAL_RECORD_HEAD + 256 + FAL_SEAL_TAG];
	struct fal_seal tx;
	memcpy(rec + FAL_RECORD_HEAD, r->message, r->n);
	must(fal_seal_init(&tx, suite, key_of(CLIENT)) == 0, "seal");
	tx.next = r->counter;
	must(fal_record_seal(&tx, FAL_RECORD_SESSION, r->flags, rec, r->n) == 0, "seal");
	if (r->flip > 0)
		rec[r->flip - 1] ^= r->by;
	called(r->name);
	text("kind", "session");
	if (suite != FAL_SUITE_CHACHA20_POLY1305)
		number("suite", suite);
	bytes("key", key_of(CLIENT), FAL_KEY_BYTES);
	number("counter", (int64_t)r->seen);
	bytes("record", rec, FAL_RECORD_HEAD + r->n + FAL_SEAL_TAG);
	if (r->counter == FAL_SEAL_REKEY - 1) { /* the next one has another key */
		memcpy(rec + FAL_RECORD_HEAD, ", and more", 10);
		must(fal_record_seal(&tx, FAL_RECORD_SESSION, 0, rec, 10) == 0, "seal");
		bytes("then", rec, FAL_RECORD_HEAD + 10 + FAL_SEAL_TAG);
	}
	fal_seal_wipe(&tx);
	if (strcmp(r->expect, "ok") == 0)
		bytes("message", r->plain != NULL ? r->plain : r->message,
		      r->plain != NULL ? strlen(r->plain) : r->n);
	text("expect", r->expect);
}

/* Record `index` of a publication of three, told as one of `count` with the last byte of
 * its additional data changed by `ad`, its flags by `flip`; `again`: it came before. */
static void
shared_record(const char *name, uint32_t index, uint32_t count, uint8_t ad, uint8_t flip,
	      bool again, const char *expect)
{
	static const char message[] = "a part of a version";
	uint8_t rec[FAL_RECORD_SHARED_HEAD + sizeof(message) + FAL_SEAL_TAG];
	const struct fal_aead_text said = { .p = message, .n = sizeof(message) - 1 };
	struct fal_publication pub = { .id = 7, .count = 3, .key = key_of(SERVER) };
	pub.ad_n = 44;
	for (uint8_t i = 0; i < pub.ad_n; i++)
		pub.ad[i] = i;
	must(fal_aead_new(suite, FAL_LIBRARY_ANY, &pub.aead) == 0 &&
		     fal_record_seal_shared(&pub, index, 0, &said, rec) == 0,
	     "seal");
	fal_aead_free(pub.aead);
	rec[5] ^= flip;
	pub.ad[pub.ad_n - 1] ^= ad;
	called(name);
	text("kind", "shared");
	if (suite != FAL_SUITE_CHACHA20_POLY1305)
		number("suite", suite);
	bytes("key", pub.key, FAL_KEY_BYTES);
	number("publication", 7);
	number("records", count);
	if (again)
		number("came", index);
	bytes("ad", pub.ad, pub.ad_n);
	bytes("record", rec, sizeof(rec) - 1);
	if (strcmp(expect, "ok") == 0)
		bytes("message", message, sizeof(message) - 1);
	text("expect", expect);
}

static void
records(void)
{
	for (size_t i = 0; i < sizeof(recs) / sizeof(recs[0]); i++)
		session_record(&recs[i]);
	shared_record("the first of a publication", 0, 3, 0, 0, false, "ok");
	shared_record("the last one before all others", 2, 3, 0, 0, false, "ok");
	shared_record("one that has come", 1, 3, 0, 0, true, "refused");
	shared_record("one more than there are", 3, 3, 0, 0, false, "refused");
	shared_record("of a publication of another length", 0, 4, 0, 0, false, "refused");
	shared_record("of another version", 0, 3, 1, 0, false, "refused");
}

/* The same by AES-256-GCM; without it there is no such file. */
static void
records_by_aes(const char *folder)
{
	struct fal_aead *a;
	if (fal_aead_new(FAL_SUITE_AES256_GCM, FAL_LIBRARY_ANY, &a) < 0)
		return;
	fal_aead_free(a);
	begin(folder, "aes.txt", record_members);
	suite = FAL_SUITE_AES256_GCM;
	records();
	shared_record("the flag was taken away", 0, 3, 0, FAL_RECORD_AES, false,
		      "refused");
	end();
}

/* ---- blocks --- */

static const uint64_t seed = UINT64_C(0x0123456789abcdef);

static void
put_values(const struct fal_sum *s, uint32_t block, uint32_t len)
{
	fprintf(out, "values:");
	for (uint32_t i = 0; i < len; i++)
		fprintf(out, " %" PRId64, sum_value(s, (size_t)block * FAL_BLOCK + i));
	fputc('\n', out);
}

/* A gradient of `len` values, up to 2^scale in magnitude, becomes a record. */
static void
quantised(const char *name, uint32_t block, uint32_t len, int scale, int8_t e, bool sums)
{
	const size_t n = (size_t)block * FAL_BLOCK + len;
	const unsigned room = fal_bfp_room(8);
	struct fal_rng rng = fal_rng_init(1, FAL_RNG_TEST, len);
	struct fal_sum *s = fal_sum_new(n);
	struct fal_buf rec = { 0 };
	float g[FAL_BLOCK];
	must(s != NULL, "memory");
	for (uint32_t i = 0; i < len; i++)
		g[i] = scale == INT32_MIN ? 0 : ldexpf(2 * fal_rng_unit(&rng) - 1, scale);
	if (scale == INT32_MAX)
		g[len / 2] = INFINITY;
	called(name);
	text("kind", "quantise");
	number("parameters", (int64_t)n);
	number("block", block);
	number("exponent", e);
	number("room", room);
	fprintf(out, "gradient:");
	for (uint32_t i = 0; i < len; i++) {
		uint32_t bits;
		memcpy(&bits, &g[i], sizeof(bits));
		fprintf(out, " %08x", bits);
	}
	fputc('\n', out);
	if (fal_sum_quantise_block(s, block, g, e, room) < 0) {
		text("expect", "nonfinite");
	} else {
		const uint64_t sum = fal_sum_checksum(s, block, block, seed);
		number("needed", fal_sum_needed(s, block));
		put_values(s, block, len);
		if (sums)
			fprintf(out, "seed: %016" PRIx64 "\nchecksum: %016" PRIx64 "\n",
				seed, sum);
		must(fal_sum_pack(s, block, e, &rec) == 0, "pack");
		bytes("record", rec.p, rec.n);
		text("expect", "ok");
	}
	fal_buf_free(&rec);
	fal_sum_free(s);
}

/* A record of five values, as of so many tasks, in which something is changed. */
struct bad {
	const char *name;
	uint32_t tasks;
	int64_t value[5];
	int8_t e, needed;
	size_t flip; /* byte that is changed, from 1; 0: none */
	uint8_t by;
	size_t cut; /* bytes less */
	const char *expect;
};

/* Bytes: 0 block, 4 exponent, 5 needed, 6 width, 7 zero, 8 base, 16 values. */
static const struct bad bads[] = {
	{ "one task", 1, { 1 << 20, -3, 0, 7, 9 }, -12, -15, 0, 0, 0, "ok" },
	{ "four tasks that cancel out", 4, { 1, 0, 0, 0, -1 }, -12, -15, 0, 0, 0, "ok" },
	{ "zeros", 1, { 0 }, -12, FAL_EXP_NONE, 0, 0, 0, "ok" },
	{ "width above 32", 4, { INT64_C(1) << 40, 0, 0, 0, -1 }, -12, 5, 0, 0, 0, "ok" },
	{ "needs more than it shows",
	  1,
	  { 1 << 20, -3, 0, 7, 9 },
	  -12,
	  -13,
	  0,
	  0,
	  0,
	  "refused" },
	{ "needs less than it shows",
	  1,
	  { 1 << 20, -3, 0, 7, 9 },
	  -12,
	  -16,
	  0,
	  0,
	  0,
	  "refused" },
	{ "needs nothing, and is not 0",
	  1,
	  { 1 << 20, -3, 0, 7, 9 },
	  -12,
	  FAL_EXP_NONE,
	  0,
	  0,
	  0,
	  "refused" },
	{ "four tasks need less than they show",
	  4,
	  { 1 << 24, -3, 0, 7, 9 },
	  -12,
	  -16,
	  0,
	  0,
	  0,
	  "refused" },
	{ "beyond the room",
	  1,
	  { INT64_C(1) << 59, 0, 0, 0, 0 },
	  -12,
	  24,
	  0,
	  0,
	  0,
	  "refused" },
	{ "a block that there is not",
	  1,
	  { 1 << 20, -3, 0, 7, 9 },
	  -12,
	  -15,
	  1,
	  1,
	  0,
	  "malformed" },
	{ "an exponent above 100", 1, { 0 }, -12, FAL_EXP_NONE, 5, 0x91, 0, "malformed" },
	{ "no zero", 1, { 0 }, -12, FAL_EXP_NONE, 8, 2, 0, "malformed" },
	{ "width above 64", 1, { 0 }, -12, FAL_EXP_NONE, 7, 65, 0, "malformed" },
	{ "cut short", 1, { 1 << 20, -3, 0, 7, 9 }, -12, -15, 0, 0, 1, "malformed" },
};

static void
received(const struct bad *b)
{
	struct fal_sum *s = fal_sum_new(5);
	struct fal_buf rec = { 0 };
	uint64_t most = 0;
	must(s != NULL, "memory");
	for (int i = 0; i < 5; i++) {
		const uint64_t a =
			(uint64_t)(b->value[i] < 0 ? -b->value[i] : b->value[i]);
		most = a > most ? a : most;
	}
	must(fal_sum_store(s, 0, b->value, most, b->needed) == 0, "store");
	must(fal_sum_pack(s, 0, b->e, &rec) == 0, "pack");
	if (b->flip > 0)
		rec.p[b->flip - 1] ^= b->by;
	called(b->name);
	text("kind", "record");
	number("parameters", 5);
	number("tasks", b->tasks);
	number("room", fal_bfp_room(8));
	bytes("record", rec.p, rec.n - b->cut);
	if (strcmp(b->expect, "ok") == 0)
		put_values(s, 0, 5);
	text("expect", b->expect);
	fal_buf_free(&rec);
	fal_sum_free(s);
}

static void
blocks(void)
{
	quantised("a short block", 0, 5, -14, -12, false);
	quantised("two rows and a bit", 0, 259, -9, -12, true);
	quantised("the last block of a model", 1, 7, -3, -12, true);
	quantised("above 32 bits", 0, 5, 12, -12, false);
	quantised("zeros", 0, 5, INT32_MIN, -12, false);
	quantised("below the quantum", 0, 5, -60, -12, false);
	quantised("no room", 0, 5, 60, -12, false);
	quantised("not finite", 0, 5, INT32_MAX, -12, false);
	quantised("the largest exponent", 0, 5, 99, 100, false);
	for (size_t i = 0; i < sizeof(bads) / sizeof(bads[0]); i++)
		received(&bads[i]);
}

int
main(int argc, char **argv)
{
	must(argc == 2, "a folder is needed");
	begin(argv[1], "handshake.txt", handshake_members);
	handshakes();
	end();
	begin(argv[1], "records.txt", record_members);
	records();
	end();
	records_by_aes(argv[1]);
	begin(argv[1], "blocks.txt", block_members);
	blocks();
	end();
	return 0;
}
