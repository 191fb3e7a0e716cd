/* What is read while an allocation of jansson's fails, each in turn, drawn texts: all of
 * it or none, and never a word against the text. */
#include "../drawn.h"
#include "base/err.h"
#include "base/json_load.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { TEXTS = 20, MOST = 400 /* members */ };

void *__real_malloc(size_t n);
void *__wrap_malloc(size_t n);

static uint64_t left; /* calls until the one that fails; 0: none does */
static bool failed;

void *
__wrap_malloc(size_t n)
{
	if (left == 0 || --left > 0)
		return __real_malloc(n);
	failed = true;
	return NULL;
}

static struct fal_rng
draws(void)
{
	return fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
}

/* An object of strings as long as they come, some of them escaped, and one object. */
static json_t *
drawn(struct fal_rng *rng)
{
	json_t *o = json_pack("{s:s, s:{s:i}}", "name", "it", "inner", "one", 1);
	const uint64_t n = fal_rng_u64(rng) % MOST;
	char key[24], text[201];
	for (uint64_t i = 0; i < n; i++) {
		const uint64_t len = fal_rng_u64(rng) % sizeof(text);
		for (uint64_t k = 0; k < len; k++)
			text[k] = (char)(1 + fal_rng_u64(rng) % 127);
		text[len] = '\0';
		snprintf(key, sizeof(key), "%llu", (unsigned long long)fal_rng_u64(rng));
		assert_int_equal(json_object_set_new(o, key, json_string(text)), 0);
	}
	assert_non_null(o);
	return o;
}

static void
fail_at(uint64_t n)
{
	left = n;
	failed = false;
}

/* The next allocation that fails: all of few, steps of many. */
static uint64_t
next(struct fal_rng *rng, uint64_t n)
{
	return n < 40 ? n + 1 : n + 1 + fal_rng_u64(rng) % (n / 4);
}

static void
loads_all_or_nothing(void **state)
{
	(void)state;
	struct fal_rng rng = draws();
	for (int i = 0; i < TEXTS; i++) {
		json_t *o = drawn(&rng);
		char *text = json_dumps(o, JSON_COMPACT);
		assert_non_null(text);
		for (uint64_t n = 1;; n = next(&rng, n)) {
			json_error_t why;
			fail_at(n);
			json_t *is = fal_json_load(text, strlen(text), 0, &why);
			left = 0;
			if (!failed) {
				assert_true(json_equal(is, o));
				json_decref(is);
				break;
			}
			assert_null(is);
			assert_string_equal(why.text, "");
		}
		free(text);
		json_decref(o);
	}
}

static void
a_wrong_text_is_told_from_want_of_memory(void **state)
{
	(void)state;
	json_error_t why;
	const char *const wrong[] = { "", "{", "{\"a\":1", "\"\xff\"", "[1 2]" };
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		fail_at(1);
		assert_null(fal_json_load("{\"a\":1}", 7, 0, &why));
		left = 0;
		assert_null(fal_json_load(wrong[i], strlen(wrong[i]), 0, &why));
		assert_string_not_equal(why.text, "");
	}
}

static void
unpacks_all_or_nothing(void **state)
{
	(void)state;
	struct fal_rng rng = draws();
	json_t *o = drawn(&rng);
	for (uint64_t n = 1;; n++) {
		const char *name = "";
		int one = 0;
		fail_at(n);
		const int err = fal_json_unpack(o, NULL, 0, "{s:s, s:{s:i}}", "name",
						&name, "inner", "one", &one);
		left = 0;
		assert_int_equal(err, failed ? FAL_ENOMEM : FAL_OK);
		if (failed)
			continue;
		assert_string_equal(name, "it");
		assert_int_equal(one, 1);
		break;
	}
	assert_int_equal(fal_json_unpack(o, NULL, 0, "{s:i}", "name", &(int){ 0 }),
			 FAL_EFORMAT);
	assert_int_equal(fal_json_unpack(NULL, NULL, 0, "{s:i}", "name", &(int){ 0 }),
			 FAL_EFORMAT);
	json_decref(o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(loads_all_or_nothing),
		cmocka_unit_test(a_wrong_text_is_told_from_want_of_memory),
		cmocka_unit_test(unpacks_all_or_nothing),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
