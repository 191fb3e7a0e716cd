/* Signatures: Ed25519 (RFC 8032), keys as files of openssl(1) have them, and what is
 * signed in an envelope of DSSE (github.com/secure-systems-lab/dsse, v1.0.2).  Texts in
 * and out; falcon-key(1) defines both.
 */
#ifndef FAL_SEC_SIGN_H
#define FAL_SEC_SIGN_H

#include "base/buf.h"
#include "base/err.h"
#include "sec/seal.h"

#include <stddef.h>
#include <stdint.h>

#define FAL_PEM_SECRET 119 /* characters of a secret key's file: PKCS #8, RFC 8410 */
#define FAL_PEM_PUBLIC 113 /* of a public one's: SubjectPublicKeyInfo */

/* A new key pair; `secret`, the seed, should lie in locked memory. */
void fal_sign_keypair(uint8_t secret[static FAL_KEY_BYTES],
		      uint8_t public[static FAL_KEY_BYTES]);

/* Either key as a PEM file, with a NUL; the first in locked memory. */
void fal_sign_secret_text(const uint8_t secret[static FAL_KEY_BYTES],
			  char out[static FAL_PEM_SECRET + 1]);
void fal_sign_public_text(const uint8_t public[static FAL_KEY_BYTES],
			  char out[static FAL_PEM_PUBLIC + 1]);

/* The reverse: exactly that, byte for byte.  FAL_EFORMAT. */
int fal_sign_secret_parse(const char *text, size_t n,
			  uint8_t secret[static FAL_KEY_BYTES]);
int fal_sign_public_parse(const char *text, size_t n,
			  uint8_t public[static FAL_KEY_BYTES]);

/* Appends an envelope with the n bytes at `payload`, which are of the media type `type`
 * (no character of it needs a quote in JSON), and a newline.  FAL_ENOMEM. */
int fal_envelope_put(const uint8_t secret[static FAL_KEY_BYTES], const char *type,
		     const void *payload, size_t n, struct fal_buf *out);

/* Appends the payload of an envelope of n bytes to `out`.  Only what fal_envelope_put
 * makes is one, byte for byte: another envelope of DSSE is FAL_EFORMAT, one by another
 * key, or changed, FAL_EAUTH; `diag` (may be NULL) says what.  FAL_ENOMEM. */
int fal_envelope_get(const uint8_t public[static FAL_KEY_BYTES], const char *type,
		     const void *p, size_t n, struct fal_buf *out, struct fal_diag *diag);

#endif
