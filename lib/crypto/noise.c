/* The handshake.  Section numbers are those of the Noise Protocol Framework, revision 34,
 * as are the names of the static functions. */
#include "crypto/noise.h"

#include "base/err.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define HASH_LEN FAL_NOISE_HASH /* HASHLEN of BLAKE2b, section 12.8 */
#define BLOCK_LEN 128           /* BLOCKLEN of BLAKE2b, likewise */

enum { STEP_MESSAGE_1 = 0, STEP_MESSAGE_2 = 1, STEP_SPLIT = 2, STEP_OVER = 3 };

/* The tokens of a message (section 7.1). */
enum token { END, PSK, E, S, EE, ES, SE, SS };

static const struct pattern {
	const char name[HASH_LEN];
	bool psk; /* "e" is mixed into the key, too (section 9.2) */
	enum token message[2][5];
} patterns[] = {
	[FAL_NOISE_NKPSK0] = { "Noise_NKpsk0_25519_ChaChaPoly_BLAKE2b",
			       true,
			       { { PSK, E, ES }, { E, EE } } },
	[FAL_NOISE_IK] = { "Noise_IK_25519_ChaChaPoly_BLAKE2b",
			   false,
			   { { E, ES, S, SS }, { E, EE, SE } } },
};

/* HandshakeState and SymmetricState in one (section 5).  The side with number i writes
 * message i, so step == side means: it is this side's turn to write. */
struct fal_noise {
	const struct pattern *pattern;
	int side;
	int step;
	uint8_t ck[HASH_LEN];       /* chaining key */
	uint8_t h[HASH_LEN];        /* handshake hash */
	uint8_t k[FAL_KEY_BYTES];   /* cipher key */
	uint64_t nonce;             /* for the next use of k */
	uint8_t psk[FAL_KEY_BYTES]; /* until the end of message 1 */
	uint8_t s[FAL_KEY_BYTES];   /* own static secret, if any */
	uint8_t s_pub[FAL_KEY_BYTES];
	uint8_t rs[FAL_KEY_BYTES]; /* the one static public key of the peer, if any */
	uint8_t e[FAL_KEY_BYTES];  /* own ephemeral secret */
	uint8_t e_pub[FAL_KEY_BYTES];
	uint8_t re[FAL_KEY_BYTES]; /* remote ephemeral public key */
};

/* HMAC-BLAKE2b (RFC 2104) of two strings in a row; key_n ≤ BLOCK_LEN. */
static void
hmac(const uint8_t *key, size_t key_n, const void *a, size_t a_n, const void *b,
     size_t b_n, uint8_t out[static HASH_LEN])
{
	uint8_t pad[BLOCK_LEN] = { 0 };
	crypto_generichash_state st;

	memcpy(pad, key, key_n);
	for (size_t i = 0; i < BLOCK_LEN; i++)
		pad[i] ^= 0x36;
	(void)crypto_generichash_init(&st, NULL, 0, HASH_LEN);
	(void)crypto_generichash_update(&st, pad, BLOCK_LEN);
	(void)crypto_generichash_update(&st, a, a_n);
	(void)crypto_generichash_update(&st, b, b_n);
	(void)crypto_generichash_final(&st, out, HASH_LEN);

	for (size_t i = 0; i < BLOCK_LEN; i++)
		pad[i] ^= 0x36 ^ 0x5c;
	(void)crypto_generichash_init(&st, NULL, 0, HASH_LEN);
	(void)crypto_generichash_update(&st, pad, BLOCK_LEN);
	(void)crypto_generichash_update(&st, out, HASH_LEN);
	(void)crypto_generichash_final(&st, out, HASH_LEN);
	sodium_memzero(pad, sizeof(pad));
	sodium_memzero(&st, sizeof(st));
}

/* HKDF (section 4.3): the first `n` ≤ 3 outputs from ck and the input key material. */
static void
hkdf(const uint8_t ck[static HASH_LEN], const uint8_t *ikm, size_t ikm_n, unsigned n,
     uint8_t (*out)[HASH_LEN])
{
	uint8_t temp[HASH_LEN];
	hmac(ck, HASH_LEN, ikm, ikm_n, NULL, 0, temp);
	for (unsigned i = 0; i < n; i++) {
		const uint8_t number = (uint8_t)(i + 1);
		hmac(temp, HASH_LEN, i > 0 ? out[i - 1] : NULL, i > 0 ? HASH_LEN : 0,
		     &number, 1, out[i]);
	}
	sodium_memzero(temp, sizeof(temp));
}

static void
initialize_key(struct fal_noise *ns, const uint8_t *key)
{
	memcpy(ns->k, key, FAL_KEY_BYTES);
	ns->nonce = 0;
}

static void
mix_key(struct fal_noise *ns, const uint8_t ikm[static FAL_KEY_BYTES])
{
	uint8_t out[2][HASH_LEN];
	hkdf(ns->ck, ikm, FAL_KEY_BYTES, 2, out);
	memcpy(ns->ck, out[0], HASH_LEN);
	initialize_key(ns, out[1]);
	sodium_memzero(out, sizeof(out));
}

static void
mix_hash(struct fal_noise *ns, const void *p, size_t n)
{
	crypto_generichash_state st;
	(void)crypto_generichash_init(&st, NULL, 0, HASH_LEN);
	(void)crypto_generichash_update(&st, ns->h, HASH_LEN);
	(void)crypto_generichash_update(&st, p, n);
	(void)crypto_generichash_final(&st, ns->h, HASH_LEN);
}

/* Seals or opens under k, and hashes the sealed form. */
static void
encrypt_and_hash(struct fal_noise *ns, const void *p, size_t n, uint8_t *out)
{
	const struct fal_aead_record r = { ns->k, ns->nonce++, ns->h, HASH_LEN };
	(void)fal_aead_seal(NULL, &r, p, n, out);
	mix_hash(ns, out, n + FAL_SEAL_TAG);
}

static int
decrypt_and_hash(struct fal_noise *ns, const uint8_t *p, size_t n, uint8_t *out)
{
	const struct fal_aead_record r = { ns->k, ns->nonce++, ns->h, HASH_LEN };
	const int err = fal_aead_open(NULL, &r, p, n, out);
	if (err == FAL_OK)
		mix_hash(ns, p, n);
	return err;
}

/* Token "psk", which precedes message 1: MixKeyAndHash(psk). */
static void
token_psk(struct fal_noise *ns)
{
	uint8_t out[3][HASH_LEN];
	hkdf(ns->ck, ns->psk, FAL_KEY_BYTES, 3, out);
	memcpy(ns->ck, out[0], HASH_LEN);
	mix_hash(ns, out[1], HASH_LEN);
	initialize_key(ns, out[2]);
	sodium_memzero(out, sizeof(out));
	sodium_memzero(ns->psk, sizeof(ns->psk));
}

/* Token "e", sent or received. */
static void
token_e(struct fal_noise *ns, const uint8_t public[static FAL_KEY_BYTES])
{
	mix_hash(ns, public, FAL_KEY_BYTES);
	if (ns->pattern->psk)
		mix_key(ns, public);
}

/* Tokens of two letters: the initiator's key, then the responder's. */
static int
token_dh(struct fal_noise *ns, enum token t)
{
	const bool first = t == EE || t == ES, second = t == EE || t == SE; /* e? */
	const bool initiator = ns->side == FAL_NOISE_INITIATOR;
	const uint8_t *secret = (initiator ? first : second) ? ns->e : ns->s;
	const uint8_t *public = (initiator ? second : first) ? ns->re : ns->rs;
	uint8_t shared[crypto_scalarmult_BYTES];

	int err = FAL_EAUTH; /* libsodium refuses the all-zero secret */
	if (crypto_scalarmult(shared, secret, public) == 0) {
		mix_key(ns, shared);
		err = FAL_OK;
	}
	sodium_memzero(shared, sizeof(shared));
	return err;
}

/* Ends the handshake: wipes the secrets; every later call is FAL_ESTATE. */
static void
noise_end(struct fal_noise *ns)
{
	sodium_memzero(ns, sizeof(*ns));
	ns->step = STEP_OVER;
}

size_t
fal_noise_overhead(enum fal_noise_pattern pattern, int message)
{
	return FAL_NOISE_OVERHEAD +
	       (pattern == FAL_NOISE_IK && message == 1 ? FAL_NOISE_STATIC : 0);
}

/* The overhead of the message that is due. */
static size_t
overhead(const struct fal_noise *ns)
{
	return fal_noise_overhead((enum fal_noise_pattern)(ns->pattern - patterns),
				  ns->step + 1);
}

struct fal_noise *
fal_noise_new(const struct fal_noise_opt *opt)
{
	struct fal_noise *ns = fal_secret_alloc(sizeof(*ns));
	memset(ns, 0, sizeof(*ns));
	ns->pattern = &patterns[opt->pattern];
	ns->side = (int)opt->side;
	const bool initiator = opt->side == FAL_NOISE_INITIATOR;
	const uint8_t *own = initiator ? opt->client_key : opt->static_key;
	const uint8_t *peer = initiator ? opt->static_key : opt->client_key;
	if (ns->pattern->psk)
		memcpy(ns->psk, opt->psk, FAL_KEY_BYTES);
	if (own != NULL) {
		memcpy(ns->s, own, FAL_KEY_BYTES);
		fal_noise_derive_public(ns->s, ns->s_pub);
	}
	if (peer != NULL)
		memcpy(ns->rs, peer, FAL_KEY_BYTES);
	if (opt->ephemeral != NULL)
		memcpy(ns->e, opt->ephemeral, FAL_KEY_BYTES);
	else
		fal_random_bytes(ns->e, FAL_KEY_BYTES);
	fal_noise_derive_public(ns->e, ns->e_pub);
	memcpy(ns->h, ns->pattern->name, HASH_LEN);
	memcpy(ns->ck, ns->pattern->name, HASH_LEN);
	mix_hash(ns, opt->prologue, opt->prologue_n);
	mix_hash(ns, initiator ? ns->rs : ns->s_pub, FAL_KEY_BYTES); /* the pre-message */
	return ns;
}

void
fal_noise_free(struct fal_noise *ns)
{
	fal_secret_free(ns);
}

int
fal_noise_write(struct fal_noise *ns, const void *payload, size_t n, uint8_t *out)
{
	if (ns->step >= STEP_SPLIT || ns->step != ns->side)
		return FAL_ESTATE;
	if (n > FAL_NOISE_MAX - overhead(ns))
		return FAL_ELIMIT;
	for (const enum token *t = ns->pattern->message[ns->step]; *t != END; t++) {
		int err = FAL_OK;
		if (*t == PSK) {
			token_psk(ns);
		} else if (*t == E) {
			memcpy(out, ns->e_pub, FAL_KEY_BYTES);
			token_e(ns, ns->e_pub);
			out += FAL_KEY_BYTES;
		} else if (*t == S) {
			encrypt_and_hash(ns, ns->s_pub, FAL_KEY_BYTES, out);
			out += FAL_NOISE_STATIC;
		} else {
			err = token_dh(ns, *t);
		}
		if (err < 0) {
			noise_end(ns);
			return err;
		}
	}
	encrypt_and_hash(ns, payload, n, out);
	ns->step++;
	return FAL_OK;
}

int
fal_noise_read(struct fal_noise *ns, const uint8_t *msg, size_t n, uint8_t *payload)
{
	if (ns->step >= STEP_SPLIT || ns->step == ns->side)
		return FAL_ESTATE;
	const uint8_t *end = msg + n;
	int err = n < overhead(ns) ? FAL_ETRUNC : n > FAL_NOISE_MAX ? FAL_ELIMIT : FAL_OK;
	for (const enum token *t = ns->pattern->message[ns->step];
	     err == FAL_OK && *t != END; t++) {
		if (*t == PSK) {
			token_psk(ns);
		} else if (*t == E) {
			memcpy(ns->re, msg, FAL_KEY_BYTES);
			token_e(ns, ns->re);
			msg += FAL_KEY_BYTES;
		} else if (*t == S) { /* must be the key that is known */
			uint8_t rs[FAL_KEY_BYTES];
			err = decrypt_and_hash(ns, msg, FAL_NOISE_STATIC, rs);
			if (err == FAL_OK && sodium_memcmp(rs, ns->rs, sizeof(rs)) != 0)
				err = FAL_EAUTH;
			msg += FAL_NOISE_STATIC;
		} else {
			err = token_dh(ns, *t);
		}
	}
	if (err == FAL_OK)
		err = decrypt_and_hash(ns, msg, (size_t)(end - msg), payload);
	if (err < 0)
		noise_end(ns);
	else
		ns->step++;
	return err;
}

int
fal_noise_split(struct fal_noise *ns, uint8_t suite, struct fal_seal *tx,
		struct fal_seal *rx, uint8_t hash[static FAL_NOISE_HASH])
{
	if (ns->step != STEP_SPLIT)
		return FAL_ESTATE;
	/* The first key is for the initiator's sending (section 5.2, Split). */
	const int mine = ns->side == FAL_NOISE_INITIATOR ? 0 : 1;
	uint8_t keys[2][HASH_LEN];
	struct fal_seal new_tx, new_rx;
	hkdf(ns->ck, NULL, 0, 2, keys);
	int err = fal_seal_init(&new_tx, suite, keys[mine]);
	if (err < 0)
		goto wipe_keys;
	err = fal_seal_init(&new_rx, suite, keys[1 - mine]);
	if (err < 0) {
		fal_seal_wipe(&new_tx);
		goto wipe_keys;
	}
	memcpy(hash, ns->h, FAL_NOISE_HASH);
	*tx = new_tx;
	*rx = new_rx;
	noise_end(ns);
wipe_keys:
	sodium_memzero(keys, sizeof(keys));
	return err;
}

void
fal_noise_keypair(uint8_t secret[static FAL_KEY_BYTES],
		  uint8_t public[static FAL_KEY_BYTES])
{
	fal_random_bytes(secret, FAL_KEY_BYTES);
	fal_noise_derive_public(secret, public);
}

int
fal_noise_shared_secret(enum fal_noise_side side,
			const uint8_t secret[static FAL_KEY_BYTES],
			const uint8_t peer[static FAL_KEY_BYTES],
			uint8_t out[static FAL_KEY_BYTES])
{
	const bool initiator = side == FAL_NOISE_INITIATOR;
	uint8_t shared[crypto_scalarmult_BYTES], both[FAL_MAC_KEY];
	int err = FAL_EAUTH;
	memcpy(both + (initiator ? 0 : FAL_KEY_BYTES), peer, FAL_KEY_BYTES);
	fal_noise_derive_public(secret, both + (initiator ? FAL_KEY_BYTES : 0));
	if (crypto_scalarmult(shared, secret, peer) == 0) {
		fal_mac("falcon static", both, shared, sizeof(shared), out);
		err = FAL_OK;
	}
	sodium_memzero(shared, sizeof(shared));
	return err;
}

void
fal_noise_derive_public(const uint8_t secret[static FAL_KEY_BYTES],
			uint8_t public[static FAL_KEY_BYTES])
{
	/* Multiplying the base point cannot give zero: the scalar is clamped. */
	(void)crypto_scalarmult_base(public, secret);
}
