/* The chain: what was kept holds; whatever is changed, left out, put in or moved breaks
 * it. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "trace/chain.h"

#include <stdio.h>
#include <string.h>

enum { LINES = 5, MOST = 160 };

static char line[LINES][MOST]; /* without newlines */

static void
make(void)
{
	struct fal_chain c = { "" };
	for (size_t i = 0; i < LINES; i++) {
		struct fal_buf b = { 0 };
		char body[64];
		const int n =
			snprintf(body, sizeof(body), "{\"t\":%zu,\"ev\":\"x\"}", i / 2);
		fal_chain_put(&c, body, (size_t)n, &b);
		assert_int_equal(b.err, 0);
		memcpy(line[i], b.p, b.n - 1);
		assert_int_equal(b.p[b.n - 1], '\n');
		fal_buf_free(&b);
	}
}

static bool
take(struct fal_chain *c, const char *text)
{
	return fal_chain_take(c, text, strlen(text));
}

/* By the words of falcon-trace(5) and `b2sum -l 256`. */
static void
vector(void **state)
{
	(void)state;
	make();
	assert_string_equal(
		line[0],
		"{\"t\":0,\"ev\":\"x\",\"h\":\"4377890c0f62afd57f81619a75341612\"}");
	assert_string_equal(
		line[1],
		"{\"t\":0,\"ev\":\"x\",\"h\":\"2937859703b8dba6184ad769d4adfbf7\"}");
}

static void
holds(void **state)
{
	(void)state;
	struct fal_chain c = { "" }, late;
	make();
	for (size_t i = 0; i < LINES; i++) {
		assert_true(take(&c, line[i]));
		/* Whoever begins here goes on from it. */
		late = c;
		for (size_t k = i + 1; k < LINES; k++)
			assert_true(take(&late, line[k]));
	}
}

static void
breaks(void **state)
{
	(void)state;
	make();
	for (size_t at = 0; at < strlen(line[1]); at++) {
		struct fal_chain c = { "" };
		char changed[MOST];
		memcpy(changed, line[1], sizeof(changed));
		changed[at] ^= 1;
		assert_true(take(&c, line[0]));
		assert_false(take(&c, changed));
	}
	for (size_t from = 0; from < LINES; from++)
		for (size_t to = 0; to < LINES; to++) {
			struct fal_chain c = { "" };
			for (size_t i = 0; i < from; i++)
				assert_true(take(&c, line[i]));
			assert_true(take(&c, line[to]) == (to == from));
		}
	static const char *const none[] = { "", "{}", "{\"t\":1}", "{\"h\":\"00\"}" };
	for (size_t i = 0; i < sizeof(none) / sizeof(none[0]); i++) {
		struct fal_chain c = { "" };
		char link[FAL_CHAIN_DIGITS + 1] = "as it was";
		assert_false(take(&c, none[i]));
		assert_false(fal_chain_link(none[i], strlen(none[i]), link));
		assert_string_equal(link, "as it was");
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(vector),
					    cmocka_unit_test(holds),
					    cmocka_unit_test(breaks) };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
