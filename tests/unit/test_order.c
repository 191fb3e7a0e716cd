/* The order of samples: golden values (worked out from falcon-data(7) by an independent
 * program), and what a permutation in windows must be. */
#include "data/order.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static struct fal_order
order_of(enum fal_shuffle shuffle, uint64_t seed, uint32_t epoch, uint32_t n,
	 uint32_t per_chunk)
{
	const struct fal_order_opts opts = { seed, epoch, n, per_chunk, shuffle };
	struct fal_order o;
	assert_int_equal(fal_order_init(&o, &opts), FAL_OK);
	return o;
}

static void
assert_permutation(const struct fal_order *o)
{
	bool *seen = calloc(o->n, sizeof(*seen));
	assert_non_null(seen);
	for (uint32_t i = 0; i < o->n; i++) {
		uint32_t id = fal_order_at(o, i);
		assert_in_range(id, 0, o->n - 1);
		assert_false(seen[id]);
		seen[id] = true;
	}
	free(seen);
}

/* FNV-1a, 64 bits, of the ids as little-endian u32. */
static uint64_t
digest(const struct fal_order *o)
{
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	for (uint32_t i = 0; i < o->n; i++)
		for (unsigned b = 0; b < 32; b += 8)
			h = (h ^ (fal_order_at(o, i) >> b & 255)) * 0x100000001b3;
	return h;
}

static void
test_golden(void **state)
{
	static const uint32_t window[30] = { 7,  12, 6,  0,  3,  11, 1,  5,  8,  9,
					     15, 13, 18, 10, 2,  21, 23, 19, 16, 4,
					     17, 20, 22, 14, 24, 29, 25, 26, 27, 28 };
	static const uint32_t full[12] = { 6, 1, 8, 0, 2, 4, 7, 3, 11, 5, 9, 10 };
	struct fal_order o = order_of(FAL_SHUFFLE_WINDOW, 42, 3, 30, 3);
	(void)state;
	for (uint32_t i = 0; i < 30; i++)
		assert_int_equal(fal_order_at(&o, i), window[i]);
	fal_order_free(&o);
	o = order_of(FAL_SHUFFLE_FULL, 42, 3, 12, 3);
	for (uint32_t i = 0; i < 12; i++)
		assert_int_equal(fal_order_at(&o, i), full[i]);
	fal_order_free(&o);
	o = order_of(FAL_SHUFFLE_WINDOW, 1, 0, 60000, 1335);
	assert_int_equal(digest(&o), 0xf0d87c985a9d9ddd);
	fal_order_free(&o);
}

/* Every order of every small geometry is a permutation. */
static void
test_permutations(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= 70; n += 3)
		for (uint32_t per_chunk = 1; per_chunk <= n + 1; per_chunk++)
			for (unsigned s = 0; s <= FAL_SHUFFLE_FULL; s++) {
				struct fal_order o =
					order_of((enum fal_shuffle)s, n, s, n, per_chunk);
				assert_permutation(&o);
				fal_order_free(&o);
			}
}

/* The places of 8 permuted chunks hold samples of just 8 chunks. */
static void
test_window_needs_few_chunks(void **state)
{
	enum { PER = 10, CHUNKS = 20 };
	struct fal_order o = order_of(FAL_SHUFFLE_WINDOW, 9, 1, PER * CHUNKS, PER);
	uint32_t list[CHUNKS];
	bool seen[CHUNKS] = { false };
	(void)state;
	for (uint32_t first = 0; first < o.n; first += PER * FAL_ORDER_GROUP) {
		uint32_t left = o.n - first, places = PER * FAL_ORDER_GROUP;
		uint32_t found = fal_order_chunks(&o, first, places, list);
		places = left < places ? left : places;
		assert_int_equal(found, places / PER);
		for (uint32_t i = 0; i < found; i++) {
			assert_false(seen[list[i]]);
			seen[list[i]] = true;
		}
	}
	/* They are mixed: the first ten places do not come from one chunk. */
	assert_in_range(fal_order_chunks(&o, 0, PER, list), 2, FAL_ORDER_GROUP);
	fal_order_free(&o);
}

static void
test_chunks_of_a_range(void **state)
{
	struct fal_order o = order_of(FAL_SHUFFLE_NONE, 0, 0, 25, 10);
	uint32_t list[3];
	(void)state;
	assert_int_equal(fal_order_chunks(&o, 8, 4, list), 2);
	assert_int_equal(list[0], 0);
	assert_int_equal(list[1], 1);
	assert_int_equal(fal_order_chunks(&o, 10, 10, list), 1);
	assert_int_equal(list[0], 1);
	assert_int_equal(fal_order_chunks(&o, 0, UINT32_MAX, list), 3);
	assert_int_equal(fal_order_chunks(&o, 24, UINT32_MAX, list), 1);
	assert_int_equal(list[0], 2);
	assert_int_equal(fal_order_chunks(&o, 25, 1, list), 0);
	assert_int_equal(fal_order_chunks(&o, UINT32_MAX, 2, list), 0);
	assert_int_equal(fal_order_chunks(&o, 3, 0, list), 0);
	fal_order_free(&o);
}

/* Seed and epoch each change the order; the same ones give it again. */
static void
test_key(void **state)
{
	static const enum fal_shuffle modes[] = { FAL_SHUFFLE_WINDOW, FAL_SHUFFLE_FULL };
	(void)state;
	for (unsigned m = 0; m < 2; m++) {
		struct fal_order o[4] = {
			order_of(modes[m], 1, 1, 1000, 10),
			order_of(modes[m], 1, 1, 1000, 10),
			order_of(modes[m], 2, 1, 1000, 10),
			order_of(modes[m], 1, 2, 1000, 10),
		};
		assert_int_equal(digest(&o[0]), digest(&o[1]));
		assert_int_not_equal(digest(&o[0]), digest(&o[2]));
		assert_int_not_equal(digest(&o[0]), digest(&o[3]));
		for (unsigned i = 0; i < 4; i++)
			fal_order_free(&o[i]);
	}
}

static void
test_bad_options(void **state)
{
	static const struct fal_order_opts bad[] = {
		{ 1, 0, 0, 10, FAL_SHUFFLE_FULL },
		{ 1, 0, (1u << 31) + 1, 10, FAL_SHUFFLE_NONE },
		{ 1, 0, 10, 0, FAL_SHUFFLE_WINDOW },
		{ 1, 0, 10, 10, (enum fal_shuffle)3 },
	};
	struct fal_order o = { 0 };
	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++)
		assert_int_equal(fal_order_init(&o, &bad[i]), FAL_EINVAL);
	assert_null(o.id);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_permutations),
		cmocka_unit_test(test_window_needs_few_chunks),
		cmocka_unit_test(test_chunks_of_a_range),
		cmocka_unit_test(test_key),
		cmocka_unit_test(test_bad_options),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
