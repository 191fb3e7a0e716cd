/* ChaCha20-Poly1305 and AES-256-GCM by OpenSSL's libcrypto, version 3; the one place that
 * knows it.  A context gets a record's key and, after it, a key of zeros in its place:
 * libcrypto's memory is not locked. */
#include "sec/aead_priv.h"

#include "base/err.h"

#ifdef FAL_LIBCRYPTO

#include <openssl/evp.h>
#include <string.h>

void *
fal_evp_new(uint8_t suite)
{
	EVP_CIPHER *cipher =
		EVP_CIPHER_fetch(NULL,
				 suite == FAL_SUITE_AES256_GCM ? "AES-256-GCM"
							       : "ChaCha20-Poly1305",
				 NULL);
	EVP_CIPHER_CTX *ctx = cipher != NULL ? EVP_CIPHER_CTX_new() : NULL;
	if (ctx != NULL && EVP_CipherInit_ex2(ctx, cipher, NULL, NULL, 1, NULL) != 1) {
		EVP_CIPHER_CTX_free(ctx);
		ctx = NULL;
	}
	EVP_CIPHER_free(cipher); /* the context has it */
	return ctx;
}

void
fal_evp_free(void *ctx)
{
	EVP_CIPHER_CTX_free(ctx);
}

static int
wipe(EVP_CIPHER_CTX *ctx)
{
	static const uint8_t zeros[FAL_KEY_BYTES];
	return EVP_CipherInit_ex2(ctx, NULL, zeros, zeros, 1, NULL);
}

/* All of the record but its tag; false: no memory, or a wrong tag, set before. */
static bool
run(EVP_CIPHER_CTX *ctx, const struct fal_aead_record *r,
    const struct aead_piece text[static 2])
{
	uint8_t none[1];
	int len;
	bool good = r->ad_n == 0 ||
		    EVP_CipherUpdate(ctx, NULL, &len, r->ad, (int)r->ad_n) == 1;
	for (int i = 0; i < 2 && good; i++)
		good = text[i].n == 0 ||
		       EVP_CipherUpdate(ctx, text[i].out, &len, text[i].in,
					(int)text[i].n) == 1;
	return good && EVP_CipherFinal_ex(ctx, none, &len) == 1;
}

int
fal_evp_seal(void *ctx, const struct fal_aead_record *r,
	     const uint8_t nonce[static AEAD_NONCE],
	     const struct aead_piece text[static 2], uint8_t *tag)
{
	const bool sealed =
		EVP_CipherInit_ex2(ctx, NULL, r->key, nonce, 1, NULL) == 1 &&
		run(ctx, r, text) &&
		EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_GET_TAG, FAL_SEAL_TAG, tag) == 1;
	return wipe(ctx) == 1 && sealed ? FAL_OK : FAL_ENOMEM;
}

int
fal_evp_open(void *ctx, const struct fal_aead_record *r,
	     const uint8_t nonce[static AEAD_NONCE],
	     const struct aead_piece text[static 2], const uint8_t *tag)
{
	uint8_t want[FAL_SEAL_TAG]; /* libcrypto's pointer is not const */
	memcpy(want, tag, sizeof(want));
	const bool set =
		EVP_CipherInit_ex2(ctx, NULL, r->key, nonce, 0, NULL) == 1 &&
		EVP_CIPHER_CTX_ctrl(ctx, EVP_CTRL_AEAD_SET_TAG, FAL_SEAL_TAG, want) == 1;
	const bool opened = set && run(ctx, r, text);
	for (int i = 0; i < 2 && !opened; i++)
		if (text[i].n != 0)
			memset(text[i].out, 0, text[i].n);
	if (wipe(ctx) != 1 || !set)
		return FAL_ENOMEM;
	return opened ? FAL_OK : FAL_EAUTH;
}

#else

void *
fal_evp_new(uint8_t suite)
{
	(void)suite;
	return NULL;
}

void
fal_evp_free(void *ctx)
{
	(void)ctx;
}

int
fal_evp_seal(void *ctx, const struct fal_aead_record *r,
	     const uint8_t nonce[static AEAD_NONCE],
	     const struct aead_piece text[static 2], uint8_t *tag)
{
	(void)ctx, (void)r, (void)nonce, (void)text, (void)tag;
	return FAL_EVERSION;
}

int
fal_evp_open(void *ctx, const struct fal_aead_record *r,
	     const uint8_t nonce[static AEAD_NONCE],
	     const struct aead_piece text[static 2], const uint8_t *tag)
{
	(void)ctx, (void)r, (void)nonce, (void)text, (void)tag;
	return FAL_EVERSION;
}

#endif
