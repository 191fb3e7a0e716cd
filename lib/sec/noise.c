/* The handshake.  Section numbers are those of the Noise Protocol Framework, revision 34;
 * the static functions bear the names that it gives them. */
#include "sec/noise.h"

#include "base/err.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

#define HASH_LEN FAL_NOISE_HASH /* HASHLEN of BLAKE2b, section 12.8 */
#define BLOCK_LEN 128           /* BLOCKLEN of BLAKE2b, likewise */

enum { STEP_MESSAGE_1 = 0, STEP_MESSAGE_2 = 1, STEP_SPLIT = 2, STEP_OVER = 3 };

/* HandshakeState and SymmetricState in one (section 5).  Message i is written by the
 * side with number i, so step == side reads: it is my turn to write. */
struct fal_noise {
	int side;
	int step;
	uint8_t ck[HASH_LEN];       /* chaining key */
	uint8_t h[HASH_LEN];        /* handshake hash */
	uint8_t k[FAL_KEY_BYTES];   /* cipher key */
	uint64_t nonce;             /* of the next use of k */
	uint8_t psk[FAL_KEY_BYTES]; /* until message 1 is through */
	uint8_t s[FAL_KEY_BYTES];   /* responder: own static secret */
	uint8_t rs[FAL_KEY_BYTES];  /* responder's static public key, on both sides */
	uint8_t e[FAL_KEY_BYTES];   /* own ephemeral secret */
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

static void
mix_key_and_hash(struct fal_noise *ns, const uint8_t ikm[static FAL_KEY_BYTES])
{
	uint8_t out[3][HASH_LEN];
	hkdf(ns->ck, ikm, FAL_KEY_BYTES, 3, out);
	memcpy(ns->ck, out[0], HASH_LEN);
	mix_hash(ns, out[1], HASH_LEN);
	initialize_key(ns, out[2]);
	sodium_memzero(out, sizeof(out));
}

/* Token "psk", which precedes message 1. */
static void
token_psk(struct fal_noise *ns)
{
	mix_key_and_hash(ns, ns->psk);
	sodium_memzero(ns->psk, sizeof(ns->psk));
}

/* Token "e", sent or received; with a PSK it goes into the key as well (section 9.2). */
static void
token_e(struct fal_noise *ns, const uint8_t public[static FAL_KEY_BYTES])
{
	mix_hash(ns, public, FAL_KEY_BYTES);
	mix_key(ns, public);
}

/* Token "es" of message 1 or "ee" of message 2. */
static int
token_dh(struct fal_noise *ns)
{
	const bool es = ns->step == STEP_MESSAGE_1;
	const uint8_t *secret = es && ns->side == FAL_NOISE_RESPONDER ? ns->s : ns->e;
	const uint8_t *public = es && ns->side == FAL_NOISE_INITIATOR ? ns->rs : ns->re;
	uint8_t shared[crypto_scalarmult_BYTES];

	int err = FAL_EAUTH; /* libsodium refuses the all-zero secret */
	if (crypto_scalarmult(shared, secret, public) == 0) {
		mix_key(ns, shared);
		err = FAL_OK;
	}
	sodium_memzero(shared, sizeof(shared));
	return err;
}

/* Ends the handshake: no secret stays, every later call is FAL_ESTATE. */
static void
finish(struct fal_noise *ns)
{
	sodium_memzero(ns, sizeof(*ns));
	ns->step = STEP_OVER;
}

int
fal_noise_new(const struct fal_noise_opt *opt, struct fal_noise **out)
{
	static const char name[HASH_LEN] = "Noise_NKpsk0_25519_ChaChaPoly_BLAKE2b";
	struct fal_noise *ns = fal_secret_alloc(sizeof(*ns));
	if (ns == NULL)
		return FAL_ENOMEM;
	memset(ns, 0, sizeof(*ns));
	ns->side = (int)opt->side;
	memcpy(ns->psk, opt->psk, FAL_KEY_BYTES);
	if (opt->side == FAL_NOISE_INITIATOR) {
		memcpy(ns->rs, opt->static_key, FAL_KEY_BYTES);
	} else {
		memcpy(ns->s, opt->static_key, FAL_KEY_BYTES);
		fal_noise_public(ns->s, ns->rs);
	}
	if (opt->ephemeral != NULL)
		memcpy(ns->e, opt->ephemeral, FAL_KEY_BYTES);
	else
		fal_random_bytes(ns->e, FAL_KEY_BYTES);
	fal_noise_public(ns->e, ns->e_pub);

	memcpy(ns->h, name, HASH_LEN);
	memcpy(ns->ck, name, HASH_LEN);
	mix_hash(ns, opt->prologue, opt->prologue_n);
	mix_hash(ns, ns->rs, FAL_KEY_BYTES); /* the pre-message */
	*out = ns;
	return FAL_OK;
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
	if (n > FAL_NOISE_MAX - FAL_NOISE_OVERHEAD)
		return FAL_ELIMIT;
	if (ns->step == STEP_MESSAGE_1)
		token_psk(ns);
	memcpy(out, ns->e_pub, FAL_KEY_BYTES);
	token_e(ns, ns->e_pub);
	if (token_dh(ns) < 0) {
		finish(ns);
		return FAL_EAUTH;
	}
	uint8_t *sealed = out + FAL_KEY_BYTES;
	fal_shared_seal(ns->k, ns->nonce++, ns->h, HASH_LEN, payload, n, sealed);
	mix_hash(ns, sealed, n + FAL_SEAL_TAG);
	ns->step++;
	return FAL_OK;
}

int
fal_noise_read(struct fal_noise *ns, const uint8_t *msg, size_t n, uint8_t *payload)
{
	if (ns->step >= STEP_SPLIT || ns->step == ns->side)
		return FAL_ESTATE;
	int err;
	if (n < FAL_NOISE_OVERHEAD || n > FAL_NOISE_MAX) {
		err = n < FAL_NOISE_OVERHEAD ? FAL_ETRUNC : FAL_ELIMIT;
		goto over;
	}
	if (ns->step == STEP_MESSAGE_1)
		token_psk(ns);
	memcpy(ns->re, msg, FAL_KEY_BYTES);
	token_e(ns, ns->re);
	err = token_dh(ns);
	if (err < 0)
		goto over;
	const uint8_t *sealed = msg + FAL_KEY_BYTES;
	err = fal_shared_open(ns->k, ns->nonce++, ns->h, HASH_LEN, sealed,
			      n - FAL_KEY_BYTES, payload);
	if (err < 0)
		goto over;
	mix_hash(ns, sealed, n - FAL_KEY_BYTES);
	ns->step++;
	return FAL_OK;
over:
	finish(ns);
	return err;
}

int
fal_noise_split(struct fal_noise *ns, uint8_t suite, struct fal_seal *tx,
		struct fal_seal *rx, uint8_t hash[static FAL_NOISE_HASH])
{
	if (ns->step != STEP_SPLIT)
		return FAL_ESTATE;
	/* The first key is the initiator's to send with (section 5.2, Split). */
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
	finish(ns);
wipe_keys:
	sodium_memzero(keys, sizeof(keys));
	return err;
}

void
fal_noise_keypair(uint8_t secret[static FAL_KEY_BYTES],
		  uint8_t public[static FAL_KEY_BYTES])
{
	fal_random_bytes(secret, FAL_KEY_BYTES);
	fal_noise_public(secret, public);
}

void
fal_noise_public(const uint8_t secret[static FAL_KEY_BYTES],
		 uint8_t public[static FAL_KEY_BYTES])
{
	/* Multiplying the base point cannot give zero: the scalar is clamped. */
	(void)crypto_scalarmult_base(public, secret);
}
