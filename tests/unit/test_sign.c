/* Signatures: keys as openssl(1) has them, and signed lines of which no byte may differ.
 */
#include "crypto/sign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* RFC 8410, section 10.3 and 10.1: one key pair. */
static const char rfc_secret[] =
	"-----BEGIN PRIVATE KEY-----\n"
	"MC4CAQAwBQYDK2VwBCIEINTuctv5E1hK1bbY8fdp+K06/nwoy/HU++CXqI9EdVhC\n"
	"-----END PRIVATE KEY-----\n";
static const char rfc_public[] =
	"-----BEGIN PUBLIC KEY-----\n"
	"MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=\n"
	"-----END PUBLIC KEY-----\n";

static void
reads_the_keys_of_rfc_8410(void **state)
{
	(void)state;
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES];
	char text[FAL_PEM_SECRET + 1], other[FAL_PEM_PUBLIC + 1];
	struct fal_buf line = { 0 };
	size_t back;
	assert_int_equal(sizeof(rfc_secret) - 1, FAL_PEM_SECRET);
	assert_int_equal(sizeof(rfc_public) - 1, FAL_PEM_PUBLIC);
	assert_int_equal(fal_sign_secret_parse(rfc_secret, FAL_PEM_SECRET, secret), 0);
	assert_int_equal(fal_sign_public_parse(rfc_public, FAL_PEM_PUBLIC, public), 0);
	fal_sign_secret_text(secret, text);
	fal_sign_public_text(public, other);
	assert_string_equal(text, rfc_secret);
	assert_string_equal(other, rfc_public);
	/* They belong together. */
	fal_put_fmt(&line, "x");
	fal_sign_line(secret, &line);
	assert_int_equal(fal_sign_check(public, (const char *)line.p, line.n, &back), 0);
	assert_int_equal(back, 1);
	fal_buf_free(&line);
}

/* As an editor elsewhere leaves them. */
static void
keys_may_have_crlf_and_a_mark(void **state)
{
	(void)state;
	uint8_t key[FAL_KEY_BYTES], good[FAL_KEY_BYTES];
	for (unsigned way = 0; way < 8; way++) {
		const char *text = way < 4 ? rfc_public : rfc_secret;
		int (*parse)(const char *, size_t, uint8_t *) =
			way < 4 ? fal_sign_public_parse : fal_sign_secret_parse;
		char other[FAL_PEM_SECRET + 16];
		size_t n = (way & 1) * 3;
		memcpy(other, "\xef\xbb\xbf", n);
		for (const char *c = text; *c != '\0'; c++) {
			if (*c == '\n' && (way & 2) != 0)
				other[n++] = '\r';
			other[n++] = *c;
		}
		assert_int_equal(parse(text, strlen(text), good), FAL_OK);
		assert_int_equal(parse(other, n, key), FAL_OK);
		assert_memory_equal(key, good, sizeof(key));
		other[n++] = '\n';
		assert_int_equal(parse(other, n, key), FAL_EFORMAT);
	}
}

/* Each bit of either file is looked at, and its length. */
static void
keys_are_read_strictly(void **state)
{
	(void)state;
	uint8_t key[FAL_KEY_BYTES], good[FAL_KEY_BYTES];
	char text[FAL_PEM_SECRET];
	assert_int_equal(fal_sign_public_parse(rfc_public, FAL_PEM_PUBLIC, good), 0);
	for (size_t bit = 0; bit < (size_t)8 * FAL_PEM_PUBLIC; bit++) {
		memcpy(text, rfc_public, FAL_PEM_PUBLIC);
		text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
		if (fal_sign_public_parse(text, FAL_PEM_PUBLIC, key) == FAL_OK)
			assert_memory_not_equal(key, good, sizeof(key));
	}
	assert_int_equal(fal_sign_secret_parse(rfc_secret, FAL_PEM_SECRET, good), 0);
	for (size_t bit = 0; bit < (size_t)8 * FAL_PEM_SECRET; bit++) {
		memcpy(text, rfc_secret, FAL_PEM_SECRET);
		text[bit / 8] = (char)(text[bit / 8] ^ 1 << bit % 8);
		if (fal_sign_secret_parse(text, FAL_PEM_SECRET, key) == FAL_OK)
			assert_memory_not_equal(key, good, sizeof(key));
	}
	for (size_t n = 0; n < FAL_PEM_PUBLIC; n++)
		assert_int_equal(fal_sign_public_parse(rfc_public, n, key), FAL_EFORMAT);
	for (size_t n = 0; n < FAL_PEM_SECRET; n++)
		assert_int_equal(fal_sign_secret_parse(rfc_secret, n, key), FAL_EFORMAT);
}

static int
check(const uint8_t public[static FAL_KEY_BYTES], const struct fal_buf *line, size_t n)
{
	size_t back;
	return fal_sign_check(public, (const char *)line->p, n, &back);
}

/* Lines of 0 to 40 bytes: a signed one with any bit changed, any byte less, or one more,
 * is none, nor is it one of another key. */
static void
no_byte_may_differ(void **state)
{
	(void)state;
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES], other[FAL_KEY_BYTES];
	fal_sign_keypair(secret, other);
	fal_sign_keypair(secret, public);
	for (size_t n = 0; n <= 40; n += n < 4 ? 1 : 12) {
		struct fal_buf line = { 0 };
		for (size_t i = 0; i < n; i++)
			fal_put_u8(&line, (uint8_t)('a' + i % 26));
		fal_sign_line(secret, &line);
		assert_int_equal(check(public, &line, line.n), 0);
		assert_int_equal(check(other, &line, line.n), FAL_EAUTH);
		for (size_t bit = 0; bit < 8 * line.n; bit++) {
			line.p[bit / 8] = (uint8_t)(line.p[bit / 8] ^ 1 << bit % 8);
			assert_true(check(public, &line, line.n) < 0);
			line.p[bit / 8] = (uint8_t)(line.p[bit / 8] ^ 1 << bit % 8);
		}
		for (size_t less = 0; less < line.n; less++)
			assert_int_equal(check(public, &line, less), FAL_EFORMAT);
		fal_put_u8(&line, '\n');
		assert_int_equal(check(public, &line, line.n), FAL_EFORMAT);
		fal_buf_free(&line);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_the_keys_of_rfc_8410),
		cmocka_unit_test(keys_may_have_crlf_and_a_mark),
		cmocka_unit_test(keys_are_read_strictly),
		cmocka_unit_test(no_byte_may_differ),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
