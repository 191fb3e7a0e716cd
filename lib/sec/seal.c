/* Sealed records with ChaCha20-Poly1305 (RFC 8439). */
#include "sec/seal.h"

#include "base/err.h"

#include <assert.h>
#include <sodium.h>
#include <string.h>

/* Noise's nonce for this cipher (revision 34, section 12.3): 32 zero bits, then the
 * counter, little-endian. */
static void
nonce_of(uint64_t counter,
	 uint8_t nonce[static crypto_aead_chacha20poly1305_ietf_NPUBBYTES])
{
	memset(nonce, 0, crypto_aead_chacha20poly1305_ietf_NPUBBYTES);
	for (unsigned i = 0; i < 8; i++)
		nonce[4 + i] = (uint8_t)(counter >> 8 * i);
}

void
fal_shared_seal(const uint8_t key[static FAL_KEY_BYTES], uint64_t index, const void *ad,
		size_t ad_n, const void *in, size_t n, uint8_t *out)
{
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
	nonce_of(index, nonce);
	(void)crypto_aead_chacha20poly1305_ietf_encrypt(out, NULL, in, n, ad, ad_n, NULL,
							nonce, key);
}

int
fal_shared_open(const uint8_t key[static FAL_KEY_BYTES], uint64_t index, const void *ad,
		size_t ad_n, const void *in, size_t n, uint8_t *out)
{
	if (n < FAL_SEAL_TAG)
		return FAL_ETRUNC;
	uint8_t nonce[crypto_aead_chacha20poly1305_ietf_NPUBBYTES];
	nonce_of(index, nonce);
	if (crypto_aead_chacha20poly1305_ietf_decrypt(out, NULL, NULL, in, n, ad, ad_n,
						      nonce, key) != 0)
		return FAL_EAUTH;
	return FAL_OK;
}

int
fal_seal_init(struct fal_seal *s, uint8_t suite, const uint8_t key[static FAL_KEY_BYTES])
{
	if (suite != FAL_SUITE_CHACHA20_POLY1305)
		return FAL_EVERSION;
	uint8_t *copy = fal_secret_alloc(FAL_KEY_BYTES);
	if (copy == NULL)
		return FAL_ENOMEM;
	memcpy(copy, key, FAL_KEY_BYTES);
	*s = (struct fal_seal){ .key = copy, .suite = suite };
	return FAL_OK;
}

void
fal_seal_wipe(struct fal_seal *s)
{
	fal_secret_free(s->key);
	*s = (struct fal_seal){ 0 };
}

/* One more record was sealed or opened: the key changes behind the last one of each. */
static void
count(struct fal_seal *s)
{
	uint8_t next[FAL_KEY_BYTES + FAL_SEAL_TAG] = { 0 };
	if (++s->next % FAL_SEAL_REKEY != 0)
		return;
	fal_shared_seal(s->key, UINT64_MAX, NULL, 0, next, FAL_KEY_BYTES, next);
	memcpy(s->key, next, FAL_KEY_BYTES);
	fal_secret_wipe(next, sizeof(next));
}

int
fal_seal_seal(struct fal_seal *s, const void *ad, size_t ad_n, uint8_t *p, size_t n)
{
	assert(s->key != NULL);
	if (s->next == UINT64_MAX)
		return FAL_ELIMIT;
	fal_shared_seal(s->key, s->next, ad, ad_n, p, n, p);
	count(s);
	return FAL_OK;
}

int
fal_seal_open(struct fal_seal *s, const void *ad, size_t ad_n, uint8_t *p, size_t n)
{
	assert(s->key != NULL);
	if (s->next == UINT64_MAX)
		return FAL_ELIMIT;
	int err = fal_shared_open(s->key, s->next, ad, ad_n, p, n, p);
	if (err == FAL_OK)
		count(s);
	return err;
}
