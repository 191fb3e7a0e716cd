/* Signatures: Ed25519 (RFC 8032), with keys in files as openssl(1) has them, and signed
 * lines.  falcon-key(1) defines both texts.
 */
#ifndef FAL_CRYPTO_SIGN_H
#define FAL_CRYPTO_SIGN_H

#include "base/buf.h"
#include "base/err.h"
#include "crypto/seal.h"

#include <stddef.h>
#include <stdint.h>

#define FAL_PEM_SECRET 119 /* characters of a secret key's file: PKCS #8, RFC 8410 */
#define FAL_PEM_PUBLIC 113 /* a public key's: SubjectPublicKeyInfo */

/* A new key pair; `secret`, the seed, should lie in locked memory. */
void fal_sign_keypair(uint8_t secret[static FAL_KEY_BYTES],
		      uint8_t public[static FAL_KEY_BYTES]);

/* Writes either key as a PEM file, with a NUL; the secret one in locked memory. */
void fal_sign_secret_text(const uint8_t secret[static FAL_KEY_BYTES],
			  char out[static FAL_PEM_SECRET + 1]);
void fal_sign_public_text(const uint8_t public[static FAL_KEY_BYTES],
			  char out[static FAL_PEM_PUBLIC + 1]);

/* Parses exactly such a file, byte for byte.  FAL_EFORMAT. */
int fal_sign_secret_parse(const char *text, size_t n,
			  uint8_t secret[static FAL_KEY_BYTES]);
int fal_sign_public_parse(const char *text, size_t n,
			  uint8_t public[static FAL_KEY_BYTES]);

/* Appends to `line`, which has no newline: a newline, the signature of the line and this
 * newline in base64, and a newline. */
void fal_sign_line(const uint8_t secret[static FAL_KEY_BYTES], struct fal_buf *line);

/* Checks the output of fal_sign_line, byte for byte; sets the length of the line, which
 * begins at `text`.  FAL_EFORMAT: not a signed line; FAL_EAUTH: signed by another key, or
 * changed. */
int fal_sign_check(const uint8_t public[static FAL_KEY_BYTES], const char *text, size_t n,
		   size_t *line_n);

#endif
