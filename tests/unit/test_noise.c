/* The handshake, in both patterns: known answers, the published vectors, and everything
 * that must be refused.  FALCON_NOISE_VECTORS names a file of published vectors in the
 * form that the cacophony and snow projects share (snow: tests/vectors/cacophony.txt);
 * when it is set, only these are tested. */
#include "base/err.h"
#include "base/parse.h"
#include "crypto/noise.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MSG_MAX 256
#define FIRST_MAX \
	(FAL_NOISE_OVERHEAD + FAL_NOISE_STATIC) /* of either message, without payload */

/* Keys of a test: byte i of key number c is 32c + i. */
struct keys {
	uint8_t psk[32];
	uint8_t s[32]; /* responder's static secret */
	uint8_t s_pub[32];
	uint8_t c[32]; /* IK: the initiator's */
	uint8_t c_pub[32];
	uint8_t e[2][32]; /* ephemerals of initiator and responder */
};

/* A test's pattern, by its name; each test has both. */
static const enum fal_noise_pattern nkpsk0 = FAL_NOISE_NKPSK0, ik = FAL_NOISE_IK;
static enum fal_noise_pattern pattern;

static void
take(void **state)
{
	pattern = *(const enum fal_noise_pattern *)*state;
}

/* Bytes of message 0 or 1 without payload. */
static size_t
size(int message)
{
	return fal_noise_overhead(pattern, message + 1);
}

static const char PROLOGUE[] = "falcon test";

static struct keys
test_keys(void)
{
	struct keys k;
	for (unsigned i = 0; i < 32; i++) {
		k.psk[i] = (uint8_t)i;
		k.s[i] = (uint8_t)(32 + i);
		k.e[0][i] = (uint8_t)(64 + i);
		k.e[1][i] = (uint8_t)(96 + i);
		k.c[i] = (uint8_t)(128 + i);
	}
	fal_noise_derive_public(k.s, k.s_pub);
	fal_noise_derive_public(k.c, k.c_pub);
	return k;
}

static struct fal_noise *
begin_with(enum fal_noise_side side, const struct keys *k, const char *prologue,
	   const uint8_t *ephemeral)
{
	const bool initiator = side == FAL_NOISE_INITIATOR;
	const struct fal_noise_opt opt = {
		.side = side,
		.pattern = pattern,
		.prologue = prologue,
		.prologue_n = strlen(prologue),
		.psk = pattern == FAL_NOISE_NKPSK0 ? k->psk : NULL,
		.static_key = initiator ? k->s_pub : k->s,
		.client_key = pattern == FAL_NOISE_NKPSK0 ? NULL
			      : initiator                 ? k->c
							  : k->c_pub,
		.ephemeral = ephemeral,
	};
	struct fal_noise *ns = NULL;
	ns = fal_noise_new(&opt);
	return ns;
}

static struct fal_noise *
begin(enum fal_noise_side side, const struct keys *k, const char *prologue)
{
	return begin_with(side, k, prologue, k->e[side]);
}

static void
assert_hex(const uint8_t *p, size_t n, const char *want)
{
	char got[2 * MSG_MAX + 1];
	assert_true(n <= MSG_MAX);
	fal_hex(p, n, got);
	assert_string_equal(got, want);
}

/* Message 1 of the test keys. */
static void
first_message(const struct keys *k, uint8_t out[static FIRST_MAX])
{
	struct fal_noise *init = begin(FAL_NOISE_INITIATOR, k, PROLOGUE);
	assert_int_equal(fal_noise_write(init, NULL, 0, out), FAL_OK);
	fal_noise_free(init);
}

/* What a responder with `k` and `prologue` says to message 1. */
static int
respond(const struct keys *k, const char *prologue, const uint8_t *msg, size_t n)
{
	struct fal_noise *resp = begin(FAL_NOISE_RESPONDER, k, prologue);
	uint8_t payload[MSG_MAX];
	int err = fal_noise_read(resp, msg, n, payload);
	if (err < 0) { /* dead for good */
		uint8_t out[FIRST_MAX];
		assert_int_equal(fal_noise_write(resp, NULL, 0, out), FAL_ESTATE);
		assert_int_equal(fal_noise_read(resp, msg, n, payload), FAL_ESTATE);
	}
	fal_noise_free(resp);
	return err;
}

/* One side's end of a session. */
struct end {
	struct fal_seal tx, rx;
	uint8_t hash[FAL_NOISE_HASH];
};

static void
end_wipe(struct end *e)
{
	fal_seal_wipe(&e->tx);
	fal_seal_wipe(&e->rx);
}

/* Runs a whole handshake with fresh or fixed ephemerals; end[0] is the initiator's. */
static void
handshake(const struct keys *k, bool fresh, struct end end[static 2],
	  uint8_t msg[static 2][FIRST_MAX])
{
	struct fal_noise *ns[2];
	for (int i = 0; i < 2; i++)
		ns[i] = begin_with(i == 0 ? FAL_NOISE_INITIATOR : FAL_NOISE_RESPONDER, k,
				   PROLOGUE, fresh ? NULL : k->e[i]);
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fal_noise_write(ns[i], NULL, 0, msg[i]), FAL_OK);
		assert_int_equal(fal_noise_read(ns[1 - i], msg[i], size(i), NULL),
				 FAL_OK);
	}
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fal_noise_split(ns[i], FAL_SUITE_CHACHA20_POLY1305,
						 &end[i].tx, &end[i].rx, end[i].hash),
				 FAL_OK);
		assert_int_equal(fal_noise_split(ns[i], FAL_SUITE_CHACHA20_POLY1305,
						 &end[i].tx, &end[i].rx, end[i].hash),
				 FAL_ESTATE);
		fal_noise_free(ns[i]);
	}
	assert_memory_equal(end[0].hash, end[1].hash, FAL_NOISE_HASH);
}

/* Written down from this code after it had agreed with the published vectors, and with
 * tests/client, so that any change of a byte on the wire shows without them. */
static void
known_answer(void **state)
{
	static const char *const want[][5] = {
		[FAL_NOISE_NKPSK0] = { "79a631eede1bf9c98f12032cdeadd0e7a079398fc786b88cc"
				       "846ec89af85a51a"
				       "46a7be96f6bbfb1c0213823aed0b6637",
				       "675dd574ed7789310b3d2e7681f3790b466c773b1521fecf3"
				       "6577958371ea52f"
				       "e232832398f04e7f7acbeb9a524dbb28",
				       "a5844aaf011ec196642a2a9249b64b5ce33a7bcb025e28d56"
				       "c1789c924f9ac3e"
				       "596d4a7fbb9314b2ad326fdd27fe07f1d49f7353df94d906c"
				       "763156ca8930652",
				       "f83027a2a060779e3c23b139d156901ba28613d1ac26",
				       "8ac007c667f33e4f3aa9c00442466091dd46f7aae410" },
		[FAL_NOISE_IK] = { "79a631eede1bf9c98f12032cdeadd0e7a079398fc786b88cc846e"
				   "c89af85a51a"
				   "7180217e0b28410534912d6e7586c79b8af942afb7e54cc8ad04c"
				   "e8191ad90be"
				   "afc9b79ec24e72305d5f099210caba017d496eedce65568091e67"
				   "f322f6b5f9b",
				   "675dd574ed7789310b3d2e7681f3790b466c773b1521fecf36577"
				   "958371ea52f"
				   "93858eb93821c4b3500bfac4635a7760",
				   "cfb969c840a258406e6c47d99d7317532ed11796da577a22b78fb"
				   "341b31a67cd"
				   "074d66cbd0665e5d4be147f77ed195207d4b755033688e09bedd0"
				   "3c82062fb23",
				   "d4f43b4a3db03b1c7d36b01d1639c018c75d274d4d8b",
				   "6430ae8917642b916fa45d14fa93e2ea53b02725ff1b" },
	};
	take(state);
	const struct keys k = test_keys();
	struct end end[2];
	uint8_t msg[2][FIRST_MAX];
	handshake(&k, false, end, msg);
	for (int i = 0; i < 2; i++)
		assert_hex(msg[i], size(i), want[pattern][i]);
	assert_hex(end[0].hash, FAL_NOISE_HASH, want[pattern][2]);
	uint8_t rec[2][6 + FAL_SEAL_TAG] = { "falcon", "falcon" };
	for (int i = 0; i < 2; i++) {
		assert_int_equal(fal_seal_seal(&end[i].tx, NULL, 0, rec[i], 6), FAL_OK);
		assert_hex(rec[i], sizeof(rec[i]), want[pattern][3 + i]);
		end_wipe(&end[i]);
	}
}

/* The hex string that follows "name" in `text`, as bytes; returns their number. */
static size_t
vector_field(const char **text, const char *name, uint8_t out[static MSG_MAX])
{
	const char *p = strstr(*text, name);
	assert_non_null(p);
	p += strlen(name);
	p += strspn(p, "\": [");
	size_t n = 0;
	unsigned byte;
	for (; n < MSG_MAX && sscanf(p, "%2x", &byte) == 1; p += 2)
		out[n++] = (uint8_t)byte;
	assert_int_equal(*p, '"');
	*text = p;
	return n;
}

static char *
read_whole(const char *path)
{
	FILE *f = fopen(path, "r");
	assert_non_null(f);
	static char text[4 << 20];
	size_t n = fread(text, 1, sizeof(text) - 1, f);
	fclose(f);
	text[n] = '\0';
	return text;
}

static void
published_vectors(void **state)
{
	take(state);
	const bool is_ik = pattern == FAL_NOISE_IK;
	const char *path = getenv("FALCON_NOISE_VECTORS");
	assert_non_null(path);
	const char *v = strstr(read_whole(path),
			       is_ik ? "Noise_IK_25519_ChaChaPoly_BLAKE2b\""
				     : "Noise_NKpsk0_25519_ChaChaPoly_BLAKE2b\"");
	assert_non_null(v);
	const char *body = v, *hash_at = v;
	uint8_t prologue[MSG_MAX], key[MSG_MAX], public[MSG_MAX], e[2][MSG_MAX],
		s[2][MSG_MAX];
	size_t prologue_n = vector_field(&body, "init_prologue", prologue);
	assert_int_equal(vector_field(&body, is_ik ? "init_static" : "init_psks", key),
			 32);
	fal_noise_derive_public(key, public);
	assert_int_equal(vector_field(&body, "init_ephemeral", e[0]), 32);
	assert_int_equal(vector_field(&body, "init_remote_static", s[0]), 32);
	assert_int_equal(vector_field(&body, "resp_static", s[1]), 32);
	assert_int_equal(vector_field(&body, "resp_ephemeral", e[1]), 32);
	struct fal_noise *ns[2];
	for (int i = 0; i < 2; i++) {
		const struct fal_noise_opt opt = {
			.side = i == 0 ? FAL_NOISE_INITIATOR : FAL_NOISE_RESPONDER,
			.pattern = pattern,
			.prologue = prologue,
			.prologue_n = prologue_n,
			.psk = key,
			.static_key = s[i],
			.client_key = !is_ik   ? NULL
				      : i == 0 ? key
					       : public,
			.ephemeral = e[i],
		};
		ns[i] = fal_noise_new(&opt);
	}
	struct end end[2];
	unsigned messages = 0;
	const char *stop = strstr(body, "protocol_name");
	for (const char *p = body; (p = strstr(p, "\"payload\"")) != NULL;) {
		if (stop != NULL && p > stop)
			break;
		uint8_t payload[MSG_MAX], want[MSG_MAX], out[2 * MSG_MAX], back[MSG_MAX];
		size_t n = vector_field(&p, "payload", payload);
		size_t want_n = vector_field(&p, "ciphertext", want);
		const unsigned from = messages % 2;
		if (messages < 2) {
			assert_int_equal(want_n, n + size((int)from));
			assert_int_equal(fal_noise_write(ns[from], payload, n, out), 0);
			assert_int_equal(fal_noise_read(ns[1 - from], out, want_n, back),
					 0);
		} else {
			assert_int_equal(want_n, n + FAL_SEAL_TAG);
			memcpy(out, payload, n);
			assert_int_equal(fal_seal_seal(&end[from].tx, NULL, 0, out, n),
					 0);
			memcpy(back, out, want_n);
			assert_int_equal(fal_seal_open(&end[1 - from].rx, NULL, 0, back,
						       want_n),
					 0);
		}
		assert_memory_equal(out, want, want_n);
		assert_memory_equal(back, payload, n);
		if (++messages == 2)
			for (int i = 0; i < 2; i++)
				assert_int_equal(fal_noise_split(ns[i], 1, &end[i].tx,
								 &end[i].rx, end[i].hash),
						 FAL_OK);
	}
	assert_int_equal(messages, 6);
	uint8_t hash[MSG_MAX];
	assert_int_equal(vector_field(&hash_at, "handshake_hash", hash), FAL_NOISE_HASH);
	for (int i = 0; i < 2; i++) {
		assert_memory_equal(end[i].hash, hash, FAL_NOISE_HASH);
		end_wipe(&end[i]);
		fal_noise_free(ns[i]);
	}
}

/* Every bit of message 1 matters. */
static void
tampered_message_1(void **state)
{
	take(state);
	const struct keys k = test_keys();
	uint8_t msg[FIRST_MAX];
	first_message(&k, msg);
	assert_int_equal(respond(&k, PROLOGUE, msg, size(0)), FAL_OK);
	unsigned refused = 0;
	for (unsigned bit = 0; bit < 8 * size(0); bit++) {
		msg[bit / 8] ^= (uint8_t)(1u << bit % 8);
		refused += respond(&k, PROLOGUE, msg, size(0)) == FAL_EAUTH;
		msg[bit / 8] ^= (uint8_t)(1u << bit % 8);
	}
	assert_int_equal(refused, 8 * size(0));
}

/* And every bit of message 2. */
static void
tampered_message_2(void **state)
{
	take(state);
	const struct keys k = test_keys();
	struct end end[2];
	uint8_t msg[2][FIRST_MAX];
	handshake(&k, false, end, msg);
	unsigned refused = 0, accepted = 0;
	for (unsigned bit = 0; bit <= 8 * FAL_NOISE_OVERHEAD; bit++) {
		struct fal_noise *init = begin(FAL_NOISE_INITIATOR, &k, PROLOGUE);
		uint8_t first[FIRST_MAX], bad[FAL_NOISE_OVERHEAD + 1] = { 0 };
		assert_int_equal(fal_noise_write(init, NULL, 0, first), FAL_OK);
		memcpy(bad, msg[1], FAL_NOISE_OVERHEAD);
		bad[bit / 8] ^= (uint8_t)(1u << bit % 8); /* the last: beyond the end */
		int err = fal_noise_read(init, bad, FAL_NOISE_OVERHEAD, NULL);
		refused += err == FAL_EAUTH;
		accepted += err == FAL_OK;
		fal_noise_free(init);
	}
	assert_int_equal(refused, 8 * FAL_NOISE_OVERHEAD);
	assert_int_equal(accepted, 1);
	for (int i = 0; i < 2; i++)
		end_wipe(&end[i]);
}

static void
wrong_keys(void **state)
{
	take(state);
	const struct keys k = test_keys();
	uint8_t msg[FIRST_MAX];
	first_message(&k, msg);

	struct keys bad = k;
	bad.psk[31] ^= 1;
	bad.c_pub[31] ^= 1; /* IK: another client's key is expected */
	assert_int_equal(respond(&bad, PROLOGUE, msg, size(0)), FAL_EAUTH);
	bad = k;
	bad.s[5] ^= 1; /* the initiator meant another coordinator */
	assert_int_equal(respond(&bad, PROLOGUE, msg, size(0)), FAL_EAUTH);
	assert_int_equal(respond(&k, "falcon tesT", msg, size(0)), FAL_EAUTH);
	assert_int_equal(respond(&k, "", msg, size(0)), FAL_EAUTH);
	/* Other ephemerals are no matter. */
	bad = k;
	bad.e[1][0] ^= 8;
	assert_int_equal(respond(&bad, PROLOGUE, msg, size(0)), FAL_OK);
}

/* A thief of the PSK who does not hold the static key cannot answer for the coordinator:
 * whatever static key he brings, message 2 is refused. */
static void
false_coordinator(void **state)
{
	take(state);
	const struct keys k = test_keys();
	struct keys thief = k;
	thief.s[0] ^= 8;
	fal_noise_derive_public(thief.s, thief.s_pub);
	uint8_t msg[2][FIRST_MAX];
	struct end end[2];
	handshake(&thief, false, end, msg); /* his own, to have a message 2 */
	struct fal_noise *init = begin(FAL_NOISE_INITIATOR, &k, PROLOGUE);
	assert_int_equal(fal_noise_write(init, NULL, 0, msg[0]), FAL_OK);
	assert_int_equal(fal_noise_read(init, msg[1], FAL_NOISE_OVERHEAD, NULL),
			 FAL_EAUTH);
	fal_noise_free(init);
	for (int i = 0; i < 2; i++)
		end_wipe(&end[i]);
}

static void
lengths(void **state)
{
	take(state);
	const struct keys k = test_keys();
	static uint8_t msg[FAL_NOISE_MAX + 1];
	first_message(&k, msg);
	unsigned short_ones = 0;
	for (size_t n = 0; n < size(0); n++)
		short_ones += respond(&k, PROLOGUE, msg, n) == FAL_ETRUNC;
	assert_int_equal(short_ones, size(0));
	assert_int_equal(respond(&k, PROLOGUE, msg, size(0) + 1), FAL_EAUTH);
	assert_int_equal(respond(&k, PROLOGUE, msg, FAL_NOISE_MAX + 1), FAL_ELIMIT);
	struct fal_noise *init = begin(FAL_NOISE_INITIATOR, &k, PROLOGUE);
	assert_int_equal(fal_noise_write(init, msg, FAL_NOISE_MAX - size(0) + 1, msg),
			 FAL_ELIMIT);
	fal_noise_free(init);
}

/* The points of small order give the all-zero secret. */
static void
small_order(void **state)
{
	take(state);
	struct keys k = test_keys();
	uint8_t msg[FIRST_MAX];
	first_message(&k, msg);
	for (uint8_t u = 0; u < 2; u++) { /* u = 0 has order 2, u = 1 order 4 */
		memset(msg, 0, 32);
		msg[0] = u;
		assert_int_equal(respond(&k, PROLOGUE, msg, size(0)), FAL_EAUTH);
		memset(k.s_pub, 0, 32);
		k.s_pub[0] = u;
		struct fal_noise *init = begin(FAL_NOISE_INITIATOR, &k, PROLOGUE);
		uint8_t out[FIRST_MAX];
		assert_int_equal(fal_noise_write(init, NULL, 0, out), FAL_EAUTH);
		assert_int_equal(fal_noise_write(init, NULL, 0, out), FAL_ESTATE);
		fal_noise_free(init);
	}
}

static void
out_of_turn(void **state)
{
	take(state);
	const struct keys k = test_keys();
	uint8_t msg[FIRST_MAX], hash[FAL_NOISE_HASH];
	struct fal_seal tx, rx;
	struct fal_noise *init = begin(FAL_NOISE_INITIATOR, &k, PROLOGUE);
	struct fal_noise *resp = begin(FAL_NOISE_RESPONDER, &k, PROLOGUE);
	assert_int_equal(fal_noise_write(resp, NULL, 0, msg), FAL_ESTATE);
	assert_int_equal(fal_noise_split(init, 1, &tx, &rx, hash), FAL_ESTATE);
	assert_int_equal(fal_noise_read(init, msg, size(1), NULL), FAL_ESTATE);
	/* A wrong moment does no harm. */
	assert_int_equal(fal_noise_write(init, NULL, 0, msg), FAL_OK);
	assert_int_equal(fal_noise_write(init, NULL, 0, msg), FAL_ESTATE);
	assert_int_equal(fal_noise_read(resp, msg, size(0), NULL), FAL_OK);
	assert_int_equal(fal_noise_read(resp, msg, size(0), NULL), FAL_ESTATE);
	assert_int_equal(fal_noise_write(resp, NULL, 0, msg), FAL_OK);
	assert_int_equal(fal_noise_read(init, msg, size(1), NULL), FAL_OK);
	/* An unknown suite neither: the caller may say the right one. */
	assert_int_equal(fal_noise_split(init, 0, &tx, &rx, hash), FAL_EVERSION);
	assert_int_equal(fal_noise_split(init, 1, &tx, &rx, hash), FAL_OK);
	fal_seal_wipe(&tx);
	fal_seal_wipe(&rx);
	fal_noise_free(init);
	fal_noise_free(resp);
}

/* Message 1 may be replayed, as the framework says; what follows may not. */
static void
replay(void **state)
{
	take(state);
	const struct keys k = test_keys();
	struct end old[2], now[2];
	uint8_t msg[2][FIRST_MAX], later[2][FIRST_MAX];
	handshake(&k, true, old, msg);
	uint8_t rec[6 + FAL_SEAL_TAG] = "falcon", copy[sizeof(rec)];
	assert_int_equal(fal_seal_seal(&old[0].tx, NULL, 0, rec, 6), FAL_OK);

	/* Message 1 and the first record of the old session, at a responder of today. */
	struct fal_noise *resp = begin(FAL_NOISE_RESPONDER, &k, PROLOGUE);
	assert_int_equal(fal_noise_read(resp, msg[0], size(0), NULL), FAL_OK);
	assert_int_equal(fal_noise_write(resp, NULL, 0, later[1]), FAL_OK);
	assert_int_equal(fal_noise_split(resp, 1, &now[0].tx, &now[0].rx, now[0].hash),
			 FAL_OK);
	memcpy(copy, rec, sizeof(rec));
	assert_int_equal(fal_seal_open(&now[0].rx, NULL, 0, copy, sizeof(rec)),
			 FAL_EAUTH);
	end_wipe(&now[0]);
	fal_noise_free(resp);

	/* Message 2 of the old session, at a new initiator with a fresh ephemeral. */
	struct keys other = k;
	other.e[0][1] ^= 1;
	struct fal_noise *init = begin(FAL_NOISE_INITIATOR, &other, PROLOGUE);
	assert_int_equal(fal_noise_write(init, NULL, 0, later[0]), FAL_OK);
	assert_int_equal(fal_noise_read(init, msg[1], FAL_NOISE_OVERHEAD, NULL),
			 FAL_EAUTH);
	fal_noise_free(init);

	/* Two sessions of the same keys have nothing in common. */
	handshake(&k, true, now, later);
	assert_memory_not_equal(now[0].hash, old[0].hash, FAL_NOISE_HASH);
	memcpy(copy, rec, sizeof(rec));
	assert_int_equal(fal_seal_open(&now[1].rx, NULL, 0, copy, sizeof(rec)),
			 FAL_EAUTH);
	memcpy(copy, rec, sizeof(rec));
	assert_int_equal(fal_seal_open(&old[1].rx, NULL, 0, copy, sizeof(rec)), FAL_OK);
	assert_memory_equal(copy, "falcon", 6);
	for (int i = 0; i < 2; i++) {
		end_wipe(&old[i]);
		end_wipe(&now[i]);
	}
}

/* Whoever has no right static key of the client's is known by it. */
static void
another_client(void **state)
{
	take(state);
	const struct keys k = test_keys();
	struct keys thief = k;
	uint8_t msg[FIRST_MAX];
	thief.c[7] ^= 1;
	first_message(&thief, msg);
	assert_int_equal(respond(&k, PROLOGUE, msg, size(0)), FAL_EAUTH);
	fal_noise_derive_public(thief.c, thief.c_pub);
	assert_int_equal(respond(&thief, PROLOGUE, msg, size(0)), FAL_OK);
}

/* What two static keys have in common. */
static void
common(void **state)
{
	take(state);
	const struct keys k = test_keys();
	uint8_t a[32], b[32], none[32] = { 0 };
	assert_int_equal(fal_noise_shared_secret(FAL_NOISE_INITIATOR, k.c, k.s_pub, a),
			 0);
	assert_int_equal(fal_noise_shared_secret(FAL_NOISE_RESPONDER, k.s, k.c_pub, b),
			 0);
	assert_memory_equal(a, b, 32);
	assert_hex(a, 32,
		   "394aaf6505f5b9cf33446f28faaa861bc9c1a58f877fe8b2d34aa8dab367ac3f");
	/* The sides are told apart. */
	assert_int_equal(fal_noise_shared_secret(FAL_NOISE_RESPONDER, k.c, k.s_pub, b),
			 0);
	assert_memory_not_equal(a, b, 32);
	for (none[0] = 0; none[0] < 2; none[0]++)
		assert_int_equal(fal_noise_shared_secret(FAL_NOISE_INITIATOR, k.c, none,
							 a),
				 FAL_EAUTH);
}

#define BOTH(f)                                                        \
	{ #f " (NKpsk0)", f, NULL, NULL, (void *)(uintptr_t)&nkpsk0 }, \
	{                                                              \
		#f " (IK)", f, NULL, NULL, (void *)(uintptr_t)&ik      \
	}
#define ONLY(p, f) { #f, f, NULL, NULL, (void *)(uintptr_t)&(p) }

int
main(void)
{
	const struct CMUnitTest published[] = { BOTH(published_vectors) };
	const struct CMUnitTest tests[] = {
		BOTH(known_answer),
		BOTH(tampered_message_1),
		BOTH(tampered_message_2),
		BOTH(wrong_keys),
		BOTH(false_coordinator),
		BOTH(lengths),
		BOTH(small_order),
		BOTH(out_of_turn),
		BOTH(replay),
		ONLY(ik, another_client),
		ONLY(ik, common),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	if (getenv("FALCON_NOISE_VECTORS") != NULL)
		return cmocka_run_group_tests(published, NULL, NULL);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
