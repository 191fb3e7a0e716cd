/* What libcrypto does for aead.c; without it there is nothing of all this. */
#ifndef FAL_SEC_AEAD_PRIV_H
#define FAL_SEC_AEAD_PRIV_H

#include "sec/aead.h"

enum { AEAD_NONCE = 12 };

/* A context of the suite without a key, as EVP_CIPHER_CTX.  NULL: it has none such, or no
 * memory. */
void *fal_evp_new(uint8_t suite);
void fal_evp_free(void *ctx);

/* A stretch of a record's text: n bytes from `in` to `out`, which may be the same. */
struct aead_piece {
	const void *in;
	size_t n;
	uint8_t *out;
};

/* As fal_aead_seal and fal_aead_open, under a nonce, of a text in two stretches and its
 * tag.  Wipe the context. */
int fal_evp_seal(void *ctx, const struct fal_aead_record *r,
		 const uint8_t nonce[static AEAD_NONCE],
		 const struct aead_piece text[static 2], uint8_t *tag);
int fal_evp_open(void *ctx, const struct fal_aead_record *r,
		 const uint8_t nonce[static AEAD_NONCE],
		 const struct aead_piece text[static 2], const uint8_t *tag);

#endif
