/* Ed25519 by libsodium; PEM and base64 are parsed by comparison with our own output. */
#include "crypto/sign.h"

#include "base/mem.h"
#include "base/text.h"

#include <sodium.h>
#include <stdio.h>
#include <string.h>

#define BASE64 sodium_base64_VARIANT_ORIGINAL
enum { HEAD_MAX = 16 }; /* bytes of DER before a key */

/* RFC 8410, sections 7 and 4: the bytes before the 32 bytes of the key are constant. */
static const struct pem {
	const char *begin, *end;
	uint8_t head[HEAD_MAX];
	size_t head_n;
	size_t text_n; /* characters in all, without the NUL */
} secret_pem = { .begin = "-----BEGIN PRIVATE KEY-----\n",
		 .end = "\n-----END PRIVATE KEY-----\n",
		 .head = { 0x30, 0x2e, 0x02, 0x01, 0x00, 0x30, 0x05, 0x06, 0x03, 0x2b,
			   0x65, 0x70, 0x04, 0x22, 0x04, 0x20 },
		 .head_n = 16,
		 .text_n = FAL_PEM_SECRET },
  public_pem = { .begin = "-----BEGIN PUBLIC KEY-----\n",
		 .end = "\n-----END PUBLIC KEY-----\n",
		 .head = { 0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03,
			   0x21, 0x00 },
		 .head_n = 12,
		 .text_n = FAL_PEM_PUBLIC };

/* --- keys --- */

void
fal_sign_keypair(uint8_t secret[static FAL_KEY_BYTES],
		 uint8_t public[static FAL_KEY_BYTES])
{
	uint8_t both[crypto_sign_SECRETKEYBYTES];
	fal_random_bytes(secret, FAL_KEY_BYTES);
	(void)crypto_sign_seed_keypair(public, both, secret);
	sodium_memzero(both, sizeof(both));
}

/* `out` has room for is->text_n and a NUL. */
static void
put_pem(const struct pem *pem, const uint8_t key[static FAL_KEY_BYTES], char *out)
{
	uint8_t der[HEAD_MAX + FAL_KEY_BYTES];
	const size_t at = strlen(pem->begin), cap = pem->text_n + 1;
	memcpy(der, pem->head, pem->head_n);
	memcpy(der + pem->head_n, key, FAL_KEY_BYTES);
	memcpy(out, pem->begin, at);
	sodium_bin2base64(out + at, cap - at, der, pem->head_n + FAL_KEY_BYTES, BASE64);
	snprintf(out + strlen(out), cap - strlen(out), "%s", pem->end);
	sodium_memzero(der, sizeof(der));
}

/* Parses the output of put_pem, and nothing else. */
static int
get_pem(const struct pem *pem, const char *text, size_t n,
	uint8_t key[static FAL_KEY_BYTES])
{
	uint8_t der[HEAD_MAX + FAL_KEY_BYTES];
	char encoded[(FAL_PEM_SECRET > FAL_PEM_PUBLIC ? FAL_PEM_SECRET : FAL_PEM_PUBLIC) +
		     1];
	const size_t begin_n = strlen(pem->begin), ends_n = begin_n + strlen(pem->end);
	/* Skips a byte order mark, and reads CRLF as LF. */
	char plain[sizeof(encoded)];
	size_t got = 0, k = 0;
	int err = FAL_EFORMAT;
	for (size_t i = fal_text_bom(text, n); i < n && k < sizeof(plain); i++)
		if (text[i] != '\r' || i + 1 == n || text[i + 1] != '\n')
			plain[k++] = text[i];
	if (k == pem->text_n &&
	    sodium_base642bin(der, sizeof(der), plain + begin_n, k - ends_n, NULL, &got,
			      NULL, BASE64) == 0 &&
	    got == pem->head_n + FAL_KEY_BYTES) {
		memcpy(key, der + pem->head_n, FAL_KEY_BYTES);
		put_pem(pem, key, encoded);
		err = sodium_memcmp(encoded, plain, k) == 0 ? FAL_OK : FAL_EFORMAT;
		sodium_memzero(encoded, sizeof(encoded));
	}
	sodium_memzero(der, sizeof(der));
	sodium_memzero(plain, sizeof(plain));
	return err;
}

void
fal_sign_secret_text(const uint8_t secret[static FAL_KEY_BYTES],
		     char out[static FAL_PEM_SECRET + 1])
{
	put_pem(&secret_pem, secret, out);
}

void
fal_sign_public_text(const uint8_t public[static FAL_KEY_BYTES],
		     char out[static FAL_PEM_PUBLIC + 1])
{
	put_pem(&public_pem, public, out);
}

int
fal_sign_secret_parse(const char *text, size_t n, uint8_t secret[static FAL_KEY_BYTES])
{
	return get_pem(&secret_pem, text, n, secret);
}

int
fal_sign_public_parse(const char *text, size_t n, uint8_t public[static FAL_KEY_BYTES])
{
	return get_pem(&public_pem, text, n, public);
}

/* --- signed texts --- */

enum { SIGNATURE_TEXT = 88 }; /* characters of base64 */

void
fal_sign_line(const uint8_t secret[static FAL_KEY_BYTES], struct fal_buf *line)
{
	uint8_t public[FAL_KEY_BYTES], signature[crypto_sign_BYTES];
	char text[SIGNATURE_TEXT + 1];
	uint8_t *both = fal_secret_alloc(crypto_sign_SECRETKEYBYTES);
	fal_put_u8(line, '\n');
	if (line->err < 0)
		fal_out_of_memory();
	(void)crypto_sign_seed_keypair(public, both, secret);
	(void)crypto_sign_detached(signature, NULL, line->p, line->n, both);
	sodium_bin2base64(text, sizeof(text), signature, sizeof(signature), BASE64);
	fal_put_fmt(line, "%s\n", text);
	if (line->err < 0)
		fal_out_of_memory();
	fal_secret_free(both);
}

int
fal_sign_check(const uint8_t public[static FAL_KEY_BYTES], const char *text, size_t n,
	       size_t *line_n)
{
	uint8_t signature[crypto_sign_BYTES];
	char encoded[SIGNATURE_TEXT + 1];
	const char *end = memchr(text, '\n', n);
	size_t got = 0;
	/* One line, one signature, one newline; for some bytes base64 has several
	 * texts. */
	if (end == NULL || (size_t)(text + n - end) != 1 + SIGNATURE_TEXT + 1 ||
	    text[n - 1] != '\n' ||
	    sodium_base642bin(signature, sizeof(signature), end + 1, SIGNATURE_TEXT, NULL,
			      &got, NULL, BASE64) != 0 ||
	    got != sizeof(signature))
		return FAL_EFORMAT;
	sodium_bin2base64(encoded, sizeof(encoded), signature, sizeof(signature), BASE64);
	if (memcmp(encoded, end + 1, SIGNATURE_TEXT) != 0)
		return FAL_EFORMAT;
	const size_t signed_n = (size_t)(end - text) + 1;
	if (crypto_sign_verify_detached(signature, (const uint8_t *)text, signed_n,
					public) != 0)
		return FAL_EAUTH;
	*line_n = signed_n - 1;
	return FAL_OK;
}
