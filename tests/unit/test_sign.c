/* Signatures: keys as openssl(1) has them, and envelopes of which no byte may differ. */
#include "sec/sign.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

#define TYPE "application/vnd.in-toto+json"

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
	struct fal_buf out = { 0 }, back = { 0 };
	assert_int_equal(sizeof(rfc_secret) - 1, FAL_PEM_SECRET);
	assert_int_equal(sizeof(rfc_public) - 1, FAL_PEM_PUBLIC);
	assert_int_equal(fal_sign_secret_parse(rfc_secret, FAL_PEM_SECRET, secret), 0);
	assert_int_equal(fal_sign_public_parse(rfc_public, FAL_PEM_PUBLIC, public), 0);
	fal_sign_secret_text(secret, text);
	fal_sign_public_text(public, other);
	assert_string_equal(text, rfc_secret);
	assert_string_equal(other, rfc_public);
	/* They belong together. */
	assert_int_equal(fal_envelope_put(secret, TYPE, "x", 1, &out), 0);
	assert_int_equal(fal_envelope_get(public, TYPE, out.p, out.n, &back, NULL), 0);
	assert_int_equal(back.n, 1);
	fal_buf_free(&out);
	fal_buf_free(&back);
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

/* Payloads of 0 to 40 bytes, so that base64 ends in each way: what was signed comes back,
 * and an envelope with any bit changed, any byte less, or one more, is none. */
static void
no_byte_may_differ(void **state)
{
	(void)state;
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES], payload[40];
	fal_sign_keypair(secret, public);
	fal_random_bytes(payload, sizeof(payload));
	for (size_t n = 0; n <= sizeof(payload); n += n < 4 ? 1 : 12) {
		struct fal_buf out = { 0 }, back = { 0 };
		assert_int_equal(fal_envelope_put(secret, TYPE, payload, n, &out), 0);
		assert_int_equal(fal_envelope_get(public, TYPE, out.p, out.n, &back,
						  NULL),
				 0);
		assert_int_equal(back.n, n);
		if (n > 0)
			assert_memory_equal(back.p, payload, n);
		for (size_t bit = 0; bit < 8 * out.n; bit++) {
			out.p[bit / 8] = (uint8_t)(out.p[bit / 8] ^ 1 << bit % 8);
			assert_true(fal_envelope_get(public, TYPE, out.p, out.n, &back,
						     NULL) < 0);
			out.p[bit / 8] = (uint8_t)(out.p[bit / 8] ^ 1 << bit % 8);
		}
		for (size_t less = 0; less < out.n; less++)
			assert_true(fal_envelope_get(public, TYPE, out.p, less, &back,
						     NULL) < 0);
		fal_put_u8(&out, '\n');
		assert_true(fal_envelope_get(public, TYPE, out.p, out.n, &back, NULL) <
			    0);
		assert_int_equal(back.n, n);
		fal_buf_free(&out);
		fal_buf_free(&back);
	}
}

static void
says_what_is_wrong(void **state)
{
	(void)state;
	uint8_t secret[FAL_KEY_BYTES], public[FAL_KEY_BYTES], other[FAL_KEY_BYTES];
	struct fal_buf out = { 0 }, back = { 0 };
	struct fal_diag diag = { "" };
	fal_sign_keypair(secret, other);
	fal_sign_keypair(secret, public);
	assert_int_equal(fal_envelope_put(secret, TYPE, "abc", 3, &out), 0);
	assert_int_equal(fal_envelope_get(other, TYPE, out.p, out.n, &back, &diag),
			 FAL_EAUTH);
	assert_non_null(strstr(diag.text, "is not signed by the key "));
	out.p[strlen("{\"payloadType\":\"" TYPE "\",\"payload\":\"")] ^= 1;
	assert_int_equal(fal_envelope_get(public, TYPE, out.p, out.n, &back, &diag),
			 FAL_EAUTH);
	assert_non_null(strstr(diag.text, "is not what was signed by the key "));
	assert_int_equal(fal_envelope_get(public, "text/plain", out.p, out.n, &back,
					  &diag),
			 FAL_EFORMAT);
	assert_string_equal(diag.text, "is not a signed statement");
	assert_int_equal(fal_envelope_get(public, TYPE, "", 0, &back, &diag),
			 FAL_EFORMAT);
	assert_int_equal(back.n, 0);
	fal_buf_free(&out);
	fal_buf_free(&back);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_the_keys_of_rfc_8410),
		cmocka_unit_test(keys_are_read_strictly),
		cmocka_unit_test(no_byte_may_differ),
		cmocka_unit_test(says_what_is_wrong),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
