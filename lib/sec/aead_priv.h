/* What libcrypto does for aead.c; without it there is nothing of all this. */
#ifndef FAL_SEC_AEAD_PRIV_H
#define FAL_SEC_AEAD_PRIV_H

#include "sec/aead.h"

enum { AEAD_NONCE = 12 };

/* A context of the suite without a key, as EVP_CIPHER_CTX.  NULL: it has none such, or no
 * memory. */
void *fal_evp_new(uint8_t suite);
void fal_evp_free(void *ctx);

/* As fal_aead_seal and fal_aead_open, under a nonce.  Wipe the context. */
int fal_evp_seal(void *ctx, const struct fal_aead_record *r,
		 const uint8_t nonce[static AEAD_NONCE], const void *in, size_t n,
		 uint8_t *out);
int fal_evp_open(void *ctx, const struct fal_aead_record *r,
		 const uint8_t nonce[static AEAD_NONCE], const void *in, size_t n,
		 uint8_t *out);

#endif
