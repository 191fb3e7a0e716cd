/* The order of samples: golden values (worked out from falcon-data(7) by an independent
 * program), and what a permutation in windows must be. */
#include "job/order.h"

#include "base/err.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct fal_order
order_of(enum fal_shuffle shuffle, uint64_t seed, uint32_t epoch, uint32_t n,
	 uint32_t per_chunk)
{
	const struct fal_order_opts opts = {
		.seed = seed,
		.epoch = epoch,
		.n = n,
		.per_chunk = per_chunk,
		.shuffle = shuffle,
	};
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

/* Marks the chunks of `per` samples that places first … first+count-1 need; how many. */
static uint32_t
chunks_of(const struct fal_order *o, uint32_t per, uint32_t first, uint32_t count,
	  bool *needed)
{
	uint32_t n = 0;
	for (uint32_t i = first; i < first + count; i++) {
		bool *chunk = &needed[fal_order_at(o, i) / per];
		n += !*chunk;
		*chunk = true;
	}
	return n;
}

/* The places of 8 permuted chunks hold samples of just 8 chunks. */
static void
test_window_needs_few_chunks(void **state)
{
	enum { PER = 10, CHUNKS = 20 };
	struct fal_order o = order_of(FAL_SHUFFLE_WINDOW, 9, 1, PER * CHUNKS, PER);
	bool seen[CHUNKS] = { false }, few[CHUNKS] = { false };
	(void)state;
	/* Each group uses up chunks of its own, as no sample stands twice. */
	for (uint32_t first = 0; first < o.n; first += PER * FAL_ORDER_GROUP) {
		uint32_t left = o.n - first, places = PER * FAL_ORDER_GROUP;
		places = left < places ? left : places;
		assert_int_equal(chunks_of(&o, PER, first, places, seen), places / PER);
	}
	/* They are mixed: the first ten places do not come from one chunk. */
	assert_in_range(chunks_of(&o, PER, 0, PER, few), 2, FAL_ORDER_GROUP);
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

static struct fal_order
parts_of(const struct fal_order_opts *geometry, uint32_t epoch, const uint32_t *labels)
{
	struct fal_order_opts opts = *geometry;
	struct fal_order o;
	opts.per_chunk = 7;
	opts.shuffle = FAL_SHUFFLE_PARTS;
	opts.epoch = epoch;
	opts.labels = labels;
	assert_int_equal(fal_order_init(&o, &opts), FAL_OK);
	return o;
}

/* The part of each place, as falcon-job(5) says it; returns the places of each. */
static void
parts_by_place(const struct fal_grid *g, uint32_t *part, uint32_t *count)
{
	for (uint32_t c = 0; c < g->samples; c += g->batch) {
		const uint32_t left = g->samples - c;
		const uint32_t n = left < g->batch ? left : g->batch;
		const uint32_t head = (uint32_t)((1 - g->tail) * n / g->task) * g->task;
		const uint32_t small = g->tail > 0 ? g->tail_task : g->task;
		for (uint32_t s = 0, i = 0; s < n;) {
			const uint32_t each = s < head ? g->task : small;
			const uint32_t end = n - s < each ? n : s + each;
			while ((uint64_t)(i + 1) * n / g->parts < end)
				i++;
			for (; s < end; s++) {
				part[c + s] = i;
				count[i]++;
			}
		}
	}
}

static void
test_parts_golden(void **state)
{
	static const struct fal_grid grid = {
		.samples = 30, .batch = 12, .task = 2, .parts = 4
	};
	static const struct fal_order_opts g = { .seed = 42, .n = 30, .grid = &grid };
	static const uint32_t dealt[30] = { 12, 9,  24, 26, 13, 11, 25, 17, 28, 21,
					    8,  10, 22, 18, 27, 3,  15, 0,  6,  1,
					    14, 2,  5,  19, 4,  7,  23, 20, 16, 29 };
	static const uint32_t skewed[30] = { 15, 0,  21, 10, 26, 22, 27, 2,  23, 28,
					     24, 19, 25, 20, 5,  11, 16, 12, 13, 17,
					     9,  29, 4,  3,  1,  6,  7,  18, 8,  14 };
	uint32_t labels[30];
	(void)state;
	for (uint32_t i = 0; i < 30; i++)
		labels[i] = i % 5;
	struct fal_order o = parts_of(&g, 3, NULL), s = parts_of(&g, 3, labels);
	for (uint32_t i = 0; i < 30; i++) {
		assert_int_equal(fal_order_at(&o, i), dealt[i]);
		assert_int_equal(fal_order_at(&s, i), skewed[i]);
	}
	fal_order_free(&o);
	fal_order_free(&s);
}

/* In every epoch every sample once, and each in the part that it was dealt to. */
static void
test_parts_keep_their_samples(void **state)
{
	(void)state;
	for (uint32_t n = 1; n <= 200; n += 7)
		for (uint32_t parts = 1; parts <= 9; parts += 2) {
			const struct fal_grid grid = { .samples = n,
						       .batch = 40,
						       .task = 3,
						       .parts = parts,
						       .tail = n % 3 / 4.0,
						       .tail_task = 2 };
			const struct fal_order_opts g = { .seed = n,
							  .n = n,
							  .grid = &grid };
			uint32_t part[200], count[9] = { 0 }, owner[200], moved = 0;
			parts_by_place(&grid, part, count);
			struct fal_order a = parts_of(&g, 0, NULL);
			struct fal_order b = parts_of(&g, 1, NULL);
			assert_permutation(&a);
			assert_permutation(&b);
			for (uint32_t i = 0; i < n; i++) {
				owner[fal_order_at(&a, i)] = part[i];
				moved += fal_order_at(&a, i) != fal_order_at(&b, i);
			}
			for (uint32_t i = 0; i < n; i++)
				assert_int_equal(owner[fal_order_at(&b, i)], part[i]);
			if (n > 100)
				assert_in_range(moved, n / 2, n);
			fal_order_free(&a);
			fal_order_free(&b);
		}
}

/* Sorted by label and cut: the labels of a part end where those of the next begin. */
static void
test_parts_by_label(void **state)
{
	static const struct fal_grid grid = {
		.samples = 1000, .batch = 64, .task = 4, .parts = 6
	};
	static const struct fal_order_opts g = { .seed = 5, .n = 1000, .grid = &grid };
	uint32_t labels[1000], low[6], high[6] = { 0 };
	uint32_t part[1000], count[6] = { 0 };
	(void)state;
	parts_by_place(&grid, part, count);
	memset(low, 255, sizeof(low));
	for (uint32_t i = 0; i < 1000; i++)
		labels[i] = i * 7 % 11 * 25; /* up to 250 */
	struct fal_order o = parts_of(&g, 2, labels);
	assert_permutation(&o);
	for (uint32_t i = 0; i < 1000; i++) {
		uint32_t l = labels[fal_order_at(&o, i)];
		low[part[i]] = l < low[part[i]] ? l : low[part[i]];
		high[part[i]] = l > high[part[i]] ? l : high[part[i]];
	}
	assert_int_equal(low[0], 0);
	assert_int_equal(high[5], 250);
	for (unsigned i = 0; i + 1 < 6; i++)
		assert_in_range(low[i + 1], high[i], high[i] + 25);
	fal_order_free(&o);
}

static void
test_bad_options(void **state)
{
	static const struct {
		uint32_t n, per_chunk;
		unsigned shuffle;
		uint32_t batch, task, parts;
	} bad[] = {
		{ 0, 10, FAL_SHUFFLE_FULL, 0, 0, 0 },
		{ (1u << 31) + 1, 10, FAL_SHUFFLE_NONE, 0, 0, 0 },
		{ 10, 0, FAL_SHUFFLE_WINDOW, 0, 0, 0 },
		{ 10, 10, FAL_SHUFFLE_PARTS + 1, 4, 2, 2 },
		{ 10, 10, FAL_SHUFFLE_PARTS, 4, 2, 0 },
		{ 10, 10, FAL_SHUFFLE_PARTS, 4, 0, 2 },
		{ 10, 10, FAL_SHUFFLE_PARTS, 4, 5, 2 },
		{ 10, 10, FAL_SHUFFLE_PARTS, 0, 0, 2 },
	};
	struct fal_order o = { 0 };
	(void)state;
	for (unsigned i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		const struct fal_grid grid = { .samples = bad[i].n,
					       .batch = bad[i].batch,
					       .task = bad[i].task,
					       .parts = bad[i].parts };
		const struct fal_order_opts opts = {
			.n = bad[i].n,
			.per_chunk = bad[i].per_chunk,
			.shuffle = (enum fal_shuffle)bad[i].shuffle,
			.grid = &grid,
		};
		assert_int_equal(fal_order_init(&o, &opts), FAL_EINVAL);
	}
	assert_null(o.id);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_permutations),
		cmocka_unit_test(test_window_needs_few_chunks),
		cmocka_unit_test(test_key),
		cmocka_unit_test(test_parts_golden),
		cmocka_unit_test(test_parts_keep_their_samples),
		cmocka_unit_test(test_parts_by_label),
		cmocka_unit_test(test_bad_options),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("order", tests, NULL, NULL);
}
