/* The readers of keys to sign with and of signed lines.  No input is one of a key that
 * nobody has; what was signed comes back, and no other byte may be in its place. */
#include "crypto/sign.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void
check(bool fact)
{
	if (!fact)
		abort();
}

static void
keys(const char *text, size_t n)
{
	uint8_t key[FAL_KEY_BYTES];
	char public[FAL_PEM_PUBLIC + 1], secret[FAL_PEM_SECRET + 1];
	if (fal_sign_public_parse(text, n, key) == FAL_OK) {
		fal_sign_public_text(key, public);
		check(n == FAL_PEM_PUBLIC && memcmp(public, text, n) == 0);
	}
	if (fal_sign_secret_parse(text, n, key) == FAL_OK) {
		fal_sign_secret_text(key, secret);
		check(n == FAL_PEM_SECRET && memcmp(secret, text, n) == 0);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES];
	struct fal_buf line = { 0 };
	size_t back = 0;
	fal_sign_keypair(secret, public);
	keys((const char *)data, n);
	check(fal_sign_check(public, (const char *)data, n, &back) < 0);
	if (memchr(data, '\n', n) != NULL)
		return 0;
	fal_put_bytes(&line, data, n);
	fal_sign_line(secret, &line);
	check(fal_sign_check(public, (const char *)line.p, line.n, &back) == FAL_OK);
	check(back == n && (n == 0 || memcmp(line.p, data, n) == 0));
	if (n > 2) {
		const size_t at = (data[0] | (size_t)data[1] << 8) % line.n;
		line.p[at] ^= data[2] != 0 ? data[2] : 1;
		check(fal_sign_check(public, (const char *)line.p, line.n, &back) < 0);
	}
	fal_buf_free(&line);
	return 0;
}
