/* Preambles, MACs, verdicts and the two Noise messages. */
#include "net/handshake.h"

#include "base/mem.h"
#include "base/text.h"
#include "crypto/noise.h"
#include "net/record.h"

#include <string.h>

#define MAGIC "FALC"
#define MAGIC_N 4
#define VERSION_N 8                   /* bytes: magic, version */
#define BEGIN_N (VERSION_N + 3)       /* bytes that follow, length of the name */
#define BODY_N(suites) (6 + (suites)) /* pattern, shard, number of suites, suites */
#define HEAD_N (VERSION_N + 2)        /* head of the answer: verdict, suite */
#define NOISE_1_MAX (FAL_NOISE_OVERHEAD + FAL_NOISE_STATIC)
#define NOISE_2 (HEAD_N + FAL_NOISE_OVERHEAD)
#define MAC_N FAL_HANDSHAKE_MAC
#define BUILD_N(text) (1 + strlen(text))

/* Personalisation of the MACs. */
#define LABEL_HELLO "falcon hello"
#define LABEL_REFUSAL "falcon refusal"

enum { FIRST_MAJOR = 4 }; /* the first version with this layout */
enum { BUILD_MAJOR = 6 }; /* the first version that sends its build */
enum { PATTERN_NKPSK0 = 1, PATTERN_IK = 2 };
enum {
	VERDICT_OK = 0,
	VERDICT_VERSION = 1,
	VERDICT_PATTERN = 2,
	VERDICT_SHARD = 3,
	VERDICT_SUITE = 4
};

_Static_assert(BEGIN_N + FAL_NAME_MAX + 1 + FAL_BUILD_MAX + BODY_N(FAL_SUITES) +
			       NOISE_1_MAX + MAC_N <=
		       FAL_HANDSHAKE_MAX,
	       "the longest client of ours fits");
_Static_assert(HEAD_N + NOISE_2 == FAL_HANDSHAKE_ANSWER, "the length of the answer");
_Static_assert(FAL_MAC_KEY == 2 * FAL_KEY_BYTES, "public key and PSK");

/* The struct lies in locked memory. */
struct fal_handshake {
	struct fal_noise *noise;
	uint8_t mac_key[FAL_MAC_KEY];
	char name[FAL_NAME_MAX + 1];
	char fingerprint[FAL_KEY_FINGERPRINT + 1];
	/* The bytes that we have sent, with room for the bytes of a refusal. */
	uint8_t sent[FAL_HANDSHAKE_MAX + HEAD_N + 1 + FAL_BUILD_MAX];
	size_t sent_n;
};

/* Makes room for all bytes that either side sends, so that no put runs out of memory. */
static void
handshake_reserve(struct fal_buf *b)
{
	const size_t n = b->n;
	if (fal_buf_room(b, FAL_HANDSHAKE_MAX) == NULL)
		fal_out_of_memory();
	b->n = n;
}

static void
put_version(struct fal_buf *b)
{
	fal_put_bytes(b, MAGIC, MAGIC_N);
	fal_put_u16(b, FAL_PROTO_MAJOR);
	fal_put_u16(b, FAL_PROTO_MINOR);
}

/* Reads magic and version.  FAL_EFORMAT for a wrong byte even before the rest has
 * come. */
static int
get_version(struct fal_rd *r, uint16_t *major, uint16_t *minor)
{
	if (memcmp(r->p, MAGIC, r->n < MAGIC_N ? r->n : MAGIC_N) != 0)
		return FAL_EFORMAT;
	(void)fal_get_bytes(r, MAGIC_N);
	*major = fal_get_u16(r);
	*minor = fal_get_u16(r);
	return r->err;
}

static void
put_build(struct fal_buf *b)
{
	const char *build = fal_build();
	fal_put_u8(b, (uint8_t)strlen(build));
	fal_put_bytes(b, build, strlen(build));
}

/* Reads the build of an end of this version; earlier versions send none. */
static int
get_build(struct fal_rd *r, uint16_t major, char out[static FAL_BUILD_MAX + 1])
{
	out[0] = '\0';
	if (major < BUILD_MAJOR)
		return FAL_OK;
	const size_t n = fal_get_u8(r);
	if (r->err == FAL_OK && n > FAL_BUILD_MAX)
		return FAL_EFORMAT;
	const uint8_t *text = fal_get_bytes(r, n);
	if (text == NULL)
		return r->err;
	memcpy(out, text, n);
	out[n] = '\0';
	fal_text_plain(out, FAL_BUILD_MAX + 1, out);
	return FAL_OK;
}

/* Sets a diagnosis with the versions of both ends. */
static int
diag_versions(struct fal_diag *diag, int err, const char *build, uint16_t major,
	      uint16_t minor)
{
	const bool named = build[0] != '\0';
	return fal_diag_set(
		diag, err,
		"it %s%s%s protocol %u.%u, we are Falcon %s with protocol %u.%u",
		named ? "is Falcon " : "speaks", build, named ? " with" : "", major,
		minor, fal_build(), FAL_PROTO_MAJOR, FAL_PROTO_MINOR);
}

static void
derive_mac_key(const uint8_t public[static FAL_KEY_BYTES],
	       const uint8_t psk[static FAL_KEY_BYTES], uint8_t out[static FAL_MAC_KEY])
{
	memcpy(out, public, FAL_KEY_BYTES);
	fal_key_derive("falcon mac", public, psk, out + FAL_KEY_BYTES);
}

/* Returns our first suite that is also in `theirs`; 0: none. */
static uint8_t
choose_suite(const uint8_t *theirs, size_t n)
{
	uint8_t ours[FAL_SUITES];
	const size_t ours_n = fal_suites(ours);
	for (size_t i = 0; i < ours_n; i++)
		if (n > 0 && memchr(theirs, ours[i], n) != NULL)
			return ours[i];
	return 0;
}

/* --- the client --- */

static enum fal_noise_pattern
pattern_of(bool is_static)
{
	return is_static ? FAL_NOISE_IK : FAL_NOISE_NKPSK0;
}

int
fal_handshake_begin(const struct fal_client_key *key, struct fal_buf *out,
		    struct fal_handshake **h)
{
	struct fal_handshake *hs = fal_secret_alloc(sizeof(*hs));
	memset(hs, 0, sizeof(*hs));
	derive_mac_key(key->server, key->psk, hs->mac_key);
	memcpy(hs->name, key->name, sizeof(hs->name));
	fal_client_key_print_fingerprint(key, hs->fingerprint);
	const size_t from = out->n, name_n = strlen(key->name);
	const size_t noise_n = fal_noise_overhead(pattern_of(key->is_static), 1);
	uint8_t suites[FAL_SUITES];
	const size_t suites_n = fal_suites(suites);
	handshake_reserve(out);
	/* The preamble: the first bytes, except message 1 and MAC. */
	put_version(out);
	fal_put_u16(out, (uint16_t)(1 + name_n + BUILD_N(fal_build()) + BODY_N(suites_n) +
				    noise_n + MAC_N));
	fal_put_u8(out, (uint8_t)name_n);
	fal_put_bytes(out, key->name, name_n);
	put_build(out);
	fal_put_u8(out, key->is_static ? PATTERN_IK : PATTERN_NKPSK0);
	fal_put_u32(out, 0); /* the only shard */
	fal_put_u8(out, (uint8_t)suites_n);
	fal_put_bytes(out, suites, suites_n);
	hs->sent_n = out->n - from;
	memcpy(hs->sent, out->p + from, hs->sent_n);
	/* Message 1, and the MAC. */
	uint8_t psk[FAL_KEY_BYTES], *message_1 = hs->sent + hs->sent_n;
	fal_key_derive("falcon psk", key->server, key->psk, psk);
	const struct fal_noise_opt opt = {
		.side = FAL_NOISE_INITIATOR,
		.pattern = pattern_of(key->is_static),
		.prologue = hs->sent,
		.prologue_n = hs->sent_n,
		.psk = psk,
		.static_key = key->server,
		.client_key = key->is_static ? key->secret : NULL,
	};
	hs->noise = fal_noise_new(&opt);
	fal_secret_wipe(psk, sizeof(psk));
	int err = fal_noise_write(hs->noise, NULL, 0, message_1);
	if (err < 0) {
		fal_handshake_free(hs);
		return err;
	}
	hs->sent_n += noise_n;
	fal_mac(LABEL_HELLO, hs->mac_key, hs->sent, hs->sent_n, message_1 + noise_n);
	hs->sent_n += MAC_N;
	fal_put_bytes(out, message_1, noise_n + MAC_N);
	*h = hs;
	return FAL_OK;
}

void
fal_handshake_free(struct fal_handshake *h)
{
	if (h == NULL)
		return;
	fal_noise_free(h->noise);
	fal_secret_free(h);
}

/* Reads a refusal, which counts only with a right MAC; `r` stands after the head. */
static int
read_refusal(struct fal_handshake *h, const uint8_t *p, struct fal_rd *r,
	     struct fal_diag *diag)
{
	uint8_t want[MAC_N];
	uint16_t major = 0, minor = 0;
	char build[FAL_BUILD_MAX + 1];
	struct fal_rd head = fal_rd_init(p, HEAD_N);
	(void)get_version(&head, &major, &minor);
	if (get_build(r, major, build) == FAL_EFORMAT)
		return fal_diag_set(diag, FAL_EAUTH, "it does not authenticate");
	const uint8_t *mac = fal_get_bytes(r, MAC_N);
	if (mac == NULL)
		return FAL_ETRUNC;
	const size_t n = (size_t)(mac - p);
	memcpy(h->sent + h->sent_n, p, n);
	fal_mac(LABEL_REFUSAL, h->mac_key, h->sent, h->sent_n + n, want);
	if (!fal_secret_equal(mac, want, MAC_N))
		return fal_diag_set(diag, FAL_EAUTH, "it does not authenticate");
	static const char *const verdicts[] = {
		[VERDICT_PATTERN] = "it takes no such handshake of this key",
		[VERDICT_SHARD] = "it has no such shard",
		[VERDICT_SUITE] = "it speaks none of our cipher suites",
	};
	const uint8_t verdict = fal_get_u8(&head);
	if (verdict == VERDICT_VERSION)
		return diag_versions(diag, FAL_EVERSION, build, major, minor);
	return fal_diag_set(diag, FAL_EVERSION, "%s",
			    verdict <= VERDICT_SUITE
				    ? verdicts[verdict]
				    : "it refuses us for a reason that we do not know");
}

int
fal_handshake_finish(struct fal_handshake *h, const uint8_t *p, size_t n,
		     struct fal_session *s, struct fal_diag *diag)
{
	struct fal_rd r = fal_rd_init(p, n);
	struct fal_session new = { 0 };
	uint8_t payload[HEAD_N], hash[FAL_NOISE_HASH];
	uint16_t major, minor;
	int err = get_version(&r, &major, &minor);
	if (err == FAL_EFORMAT)
		return fal_diag_set(diag, err, "it does not speak Falcon's protocol");
	if (err < 0)
		return FAL_ETRUNC;
	if (major < FIRST_MAJOR)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "it says that it speaks protocol %u.%u, we are "
				    "Falcon %s with protocol %u.%u",
				    major, minor, fal_build(), FAL_PROTO_MAJOR,
				    FAL_PROTO_MINOR);
	const uint8_t verdict = fal_get_u8(&r);
	const uint8_t suite = fal_get_u8(&r);
	if (verdict != VERDICT_OK)
		return r.err < 0 ? FAL_ETRUNC : read_refusal(h, p, &r, diag);
	const uint8_t *message_2 = fal_get_bytes(&r, NOISE_2);
	if (message_2 == NULL)
		return FAL_ETRUNC;
	err = fal_noise_read(h->noise, message_2, NOISE_2, payload);
	if (err < 0 || memcmp(payload, p, HEAD_N) != 0)
		return fal_diag_set(diag, FAL_EAUTH, "it does not authenticate");
	if (choose_suite(&suite, 1) == 0)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "it chose a suite that we did not offer");
	err = fal_noise_split(h->noise, suite, &new.tx, &new.rx, hash);
	if (err < 0)
		return fal_diag_set(diag, err, "%s", fal_strerror(err));
	memcpy(new.name, h->name, sizeof(new.name));
	memcpy(new.fingerprint, h->fingerprint, sizeof(new.fingerprint));
	new.used = n - r.n;
	*s = new;
	return FAL_OK;
}

/* --- the server --- */

/* Reads the layout of a client's first bytes, and its name. */
static int
read_frame(struct fal_greeting *g, const uint8_t *p, size_t n, struct fal_diag *diag)
{
	struct fal_rd r = fal_rd_init(p, n);
	int err = get_version(&r, &g->major, &g->minor);
	if (err == FAL_EFORMAT)
		return fal_diag_set(diag, err, "not Falcon's protocol");
	if (err < 0)
		return err;
	if (g->major < FIRST_MAJOR)
		return diag_versions(diag, FAL_EFORMAT, "", g->major, g->minor);
	const size_t rest = fal_get_u16(&r), name_n = fal_get_u8(&r);
	if (r.err < 0)
		return r.err;
	if (name_n > FAL_NAME_MAX)
		return fal_diag_set(diag, FAL_EFORMAT, "its key's name is too long");
	g->n = VERSION_N + 2 + rest;
	if (rest < 1 + name_n + MAC_N || g->n > FAL_HANDSHAKE_MAX)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "a handshake of an impossible length");
	if (n < g->n)
		return FAL_ETRUNC;
	(void)fal_get_bytes(&r, name_n);
	r.n = (size_t)(p + g->n - MAC_N - r.p);
	if (get_build(&r, g->major, g->build) < 0)
		return fal_diag_set(diag, FAL_EFORMAT,
				    "a handshake of an impossible length");
	g->p = p;
	g->mac = p + g->n - MAC_N;
	g->body = (size_t)(r.p - p);
	memcpy(g->name, p + BEGIN_N, name_n);
	if (!fal_name_valid(g->name) || strlen(g->name) != name_n)
		return fal_diag_set(diag, FAL_EFORMAT, "its key's name is not a name");
	return FAL_OK;
}

int
fal_handshake_check(const struct fal_keyring *kr, int64_t now, const uint8_t *p, size_t n,
		    struct fal_greeting *g, struct fal_diag *diag)
{
	struct fal_greeting new = { 0 };
	const struct fal_key *keys[2];
	uint8_t key[FAL_MAC_KEY], want[MAC_N];
	char text[FAL_EXPIRED_TEXT];
	const int err = read_frame(&new, p, n, diag);
	if (err < 0)
		return err;
	const int found = fal_keyring_find(kr, new.name, now, keys);
	for (int i = 0; i < 2; i++) {
		derive_mac_key(fal_keyring_public(kr), keys[i]->psk, key);
		fal_mac(LABEL_HELLO, key, p, new.n - MAC_N, want);
		if (fal_secret_equal(want, new.mac, MAC_N) && keys[i]->line != 0)
			new.key = keys[i];
	}
	fal_secret_wipe(key, sizeof(key));
	if (new.key == NULL)
		return fal_diag_set(diag, FAL_EAUTH, "key '%s' %s", new.name,
				    found == FAL_ENOENT ? "is not in the keyring"
				    : found == FAL_EPERM
					    ? fal_keyring_expired(kr, new.name, now, text)
					    : "does not authenticate");
	*g = new;
	return FAL_OK;
}

/* Puts a refusal.  The MAC proves that the refusal answers this client's message and no
 * other. */
static int
put_refusal(const struct fal_keyring *kr, const struct fal_greeting *g, uint8_t verdict,
	    struct fal_buf *out)
{
	uint8_t key[FAL_MAC_KEY], mac[MAC_N];
	uint8_t both[FAL_HANDSHAKE_MAX + HEAD_N + 1 + FAL_BUILD_MAX];
	const size_t from = out->n;
	put_version(out);
	fal_put_u8(out, verdict);
	fal_put_u8(out, 0);
	if (g->major >= BUILD_MAJOR)
		put_build(out);
	const size_t n = out->n - from;
	memcpy(both, g->p, g->n);
	memcpy(both + g->n, out->p + from, n);
	derive_mac_key(fal_keyring_public(kr), g->key->psk, key);
	fal_mac(LABEL_REFUSAL, key, both, g->n + n, mac);
	fal_secret_wipe(key, sizeof(key));
	fal_put_bytes(out, mac, MAC_N);
	return FAL_EVERSION;
}

/* The part between build and MAC: the suite, message 1. */
struct greeting_body {
	uint8_t suite;
	const uint8_t *msg;
};

/* Reads the body; returns the verdict. */
static uint8_t
read_body(const struct fal_greeting *g, struct greeting_body *out, struct fal_diag *diag)
{
	struct fal_rd r = fal_rd_init(g->p + g->body, g->n - MAC_N - g->body);
	*out = (struct greeting_body){ 0 };
	if (g->major != FAL_PROTO_MAJOR || g->minor != FAL_PROTO_MINOR) {
		diag_versions(diag, 0, g->build, g->major, g->minor);
		return VERDICT_VERSION;
	}
	/* The common secret makes the MAC of a static key, and no session. */
	const bool is_static = g->key->public != NULL;
	const uint8_t pattern = fal_get_u8(&r);
	if (r.err == 0 && pattern != (is_static ? PATTERN_IK : PATTERN_NKPSK0)) {
		fal_diag_set(diag, 0,
			     "key '%s': handshake %u is not for this kind of key",
			     g->name, pattern);
		return VERDICT_PATTERN;
	}
	const uint32_t shard = fal_get_u32(&r);
	const size_t suites_n = fal_get_u8(&r);
	const uint8_t *suites = fal_get_bytes(&r, suites_n);
	const uint8_t *noise =
		fal_get_bytes(&r,
			      fal_noise_overhead(pattern_of(g->key->public != NULL), 1));
	if (r.err < 0 || r.n != 0) {
		fal_diag_set(diag, 0, "a handshake of an impossible length");
		return VERDICT_OK;
	}
	if (shard != 0) {
		fal_diag_set(diag, 0, "there is no shard %u", shard);
		return VERDICT_SHARD;
	}
	out->suite = choose_suite(suites, suites_n);
	if (out->suite == 0) {
		fal_diag_set(diag, 0, "none of its cipher suites is spoken here");
		return VERDICT_SUITE;
	}
	out->msg = noise;
	return VERDICT_OK;
}

int
fal_handshake_answer(const struct fal_keyring *kr, const struct fal_greeting *g,
		     struct fal_session *s, struct fal_buf *out, struct fal_diag *diag)
{
	struct fal_session new = { .used = g->n, .role = g->key->role };
	const size_t from = out->n;
	handshake_reserve(out);
	struct greeting_body body;
	const uint8_t verdict = read_body(g, &body, diag);
	if (verdict != VERDICT_OK)
		return put_refusal(kr, g, verdict, out);
	if (body.msg == NULL)
		return FAL_EFORMAT;
	uint8_t psk[FAL_KEY_BYTES], head[HEAD_N], message_2[NOISE_2],
		hash[FAL_NOISE_HASH];
	fal_key_derive("falcon psk", fal_keyring_public(kr), g->key->psk, psk);
	const struct fal_noise_opt opt = {
		.side = FAL_NOISE_RESPONDER,
		.pattern = pattern_of(g->key->public != NULL),
		.prologue = g->p,
		.prologue_n = (size_t)(body.msg - g->p),
		.psk = psk,
		.static_key = fal_keyring_secret(kr),
		.client_key = g->key->public,
	};
	struct fal_noise *ns = fal_noise_new(&opt);
	fal_secret_wipe(psk, sizeof(psk));
	int err = fal_noise_read(ns, body.msg, fal_noise_overhead(opt.pattern, 1), NULL);
	if (err == FAL_OK) {
		put_version(out);
		fal_put_u8(out, VERDICT_OK);
		fal_put_u8(out, body.suite);
		memcpy(head, out->p + from, HEAD_N);
		err = fal_noise_write(ns, head, HEAD_N, message_2);
	}
	if (err == FAL_OK) {
		fal_put_bytes(out, message_2, NOISE_2);
		err = fal_noise_split(ns, body.suite, &new.tx, &new.rx, hash);
	}
	fal_noise_free(ns);
	if (err < 0) {
		out->n = from; /* half an answer is no answer */
		return fal_diag_set(diag, err, "key '%s': %s", g->name,
				    fal_strerror(err));
	}
	memcpy(new.name, g->name, sizeof(new.name));
	memcpy(new.build, g->build, sizeof(new.build));
	fal_key_print_fingerprint(g->key, new.fingerprint);
	*s = new;
	return FAL_OK;
}

const char *
fal_session_skew(const struct fal_session *s, struct fal_diag *out)
{
	out->text[0] = '\0';
	if (s->build[0] != '\0' && strcmp(s->build, fal_build()) != 0)
		fal_diag_set(out, 0, " (from Falcon %s to Falcon %s)", s->build,
			     fal_build());
	return out->text;
}
