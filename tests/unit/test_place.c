/* Static placements: worked examples of each rule, and what holds of any model. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "place/place.h"
#include "shard/rack.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

enum { BLOCK = 4096, SHARDS = 64 };

/* Tensors one after the other; with `apart`, each begins a block. */
static struct fal_place_model
lie(struct fal_place_tensor *t, uint32_t n, bool apart)
{
	uint64_t at = 0;
	for (uint32_t i = 0; i < n; i++) {
		at = apart ? (at + BLOCK - 1) / BLOCK * BLOCK : at;
		t[i].at = at;
		at += t[i].count;
	}
	return (struct fal_place_model){ .blocks = (uint32_t)((at + BLOCK - 1) / BLOCK),
					 .block = BLOCK,
					 .tensor = t,
					 .tensors = n };
}

static void
is_at(enum fal_place_rule rule, const struct fal_place_model *m, uint32_t shards,
      const uint32_t *want, int line)
{
	uint32_t *map = fal_calloc(m->blocks, sizeof(*map));
	fal_place(rule, m, shards, map);
	for (uint32_t b = 0; b < m->blocks; b++)
		if (map[b] != want[b])
			fail_msg("line %d: block %u is on %u, not on %u", line, b, map[b],
				 want[b]);
	free(map);
}

#define IS(rule, m, shards, ...) \
	is_at(rule, &(m), shards, (const uint32_t[]){ __VA_ARGS__ }, __LINE__)

static void
test_examples(void **state)
{
	(void)state;
	/* Seven tensors of one block, but the last, which is short. */
	struct fal_place_tensor small[] = { { 0, BLOCK }, { 0, BLOCK }, { 0, BLOCK },
					    { 0, BLOCK }, { 0, BLOCK }, { 0, BLOCK },
					    { 0, 5 } };
	struct fal_place_model m = lie(small, 7, true);
	/* ⌊7/3⌋ = 2, ⌊14/3⌋ = 4. */
	IS(FAL_PLACE_BLOCKS, m, 3, 0, 0, 1, 1, 2, 2, 2);
	/* 9973 mod 5 is 3. */
	IS(FAL_PLACE_MXNET, m, 5, 0, 3, 1, 4, 2, 0, 3);
	IS(FAL_PLACE_TENSORFLOW, m, 3, 0, 1, 2, 0, 1, 2, 0);
	/* djb2 of "0" is 5381·33 + 48 = 177621, of "65536" 210653553582. */
	IS(FAL_PLACE_BYTEPS, m, 4, 1, 2, 3, 3, 0, 3, 1);
	IS(FAL_PLACE_BYTEPS, m, 3, 0, 0, 2, 2, 1, 0, 0);
	/* Without gaps: who has most of a block, the first of equal ones. */
	struct fal_place_tensor thirds[] = {
		{ 0, 1365 }, { 0, 1366 }, { 0, 1365 }, { 0, 2048 }, { 0, 2048 }
	};
	m = lie(thirds, 5, false);
	IS(FAL_PLACE_TENSORFLOW, m, 4, 1, 3);
}

/* Tensors at the split bounds. */
static void
test_split(void **state)
{
	(void)state;
	uint32_t map[600], n[3] = { 0 };
	/* MXNet splits from 10^6 floats on: 333333, 333334 and 333333; 245 blocks. */
	struct fal_place_tensor t[] = { { 0, 1000000 } };
	struct fal_place_model m = lie(t, 1, false);
	fal_place(FAL_PLACE_MXNET, &m, 3, map);
	assert_int_equal(m.blocks, 245);
	for (uint32_t b = 0; b < m.blocks; b++) {
		n[map[b]]++;
		assert_int_equal(map[b], b < 81 ? 0 : b < 163 ? 1 : 2);
	}
	assert_int_equal(n[0] + n[1] + n[2], 245);
	t[0].count--;
	m = lie(t, 1, false);
	fal_place(FAL_PLACE_MXNET, &m, 3, map);
	for (uint32_t b = 0; b < m.blocks; b++)
		assert_int_equal(map[b], 0);
	/* BytePS: 4,096,000 bytes are 250 blocks; the third part is one block. */
	t[0].count = 501 * BLOCK;
	m = lie(t, 1, false);
	fal_place(FAL_PLACE_BYTEPS, &m, 3, map);
	const uint32_t parts[] = { 0, 1, 2 };
	for (uint32_t b = 0; b < 501; b++)
		assert_int_equal(map[b], parts[b / 250]);
	/* TensorFlow never does. */
	fal_place(FAL_PLACE_TENSORFLOW, &m, 3, map);
	for (uint32_t b = 0; b < 501; b++)
		assert_int_equal(map[b], 0);
}

static void
test_names(void **state)
{
	(void)state;
	enum fal_place_rule r;
	for (int i = 0; i < FAL_PLACE_RULES; i++) {
		assert_true(fal_place_find(fal_place_name((enum fal_place_rule)i), &r));
		assert_int_equal(r, i);
	}
	assert_false(fal_place_find("psld", &r));
}

/* Drawn models: few tensors or many, one of them with most of the floats, one block,
 * more shards than tensors, a hundred times larger. */
static void
test_any(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 300; seed++) {
		struct fal_rng g = fal_rng_init(seed, FAL_RNG_TEST, 0);
		struct fal_place_tensor t[40];
		const uint32_t n = 1 + fal_rng_below(&g, 40);
		const uint32_t shards = 1 + fal_rng_below(&g, SHARDS);
		const uint32_t most = seed % 10 == 0 ? 3000000 : 1 + (1u << (seed % 20));
		const bool skewed = seed % 3 == 0;
		uint64_t sum = 0;
		for (uint32_t i = 0; i < n; i++)
			sum += t[i].count = 1 + fal_rng_below(&g, most);
		if (skewed)
			t[fal_rng_below(&g, n)].count += 9 * sum;
		const struct fal_place_model m = lie(t, n, seed % 2 == 0);
		uint32_t *map = fal_calloc(m.blocks, sizeof(*map));
		for (int r = 0; r < FAL_PLACE_RULES; r++) {
			const enum fal_place_rule rule = (enum fal_place_rule)r;
			uint32_t count[SHARDS] = { 0 };
			for (uint32_t b = 0; b < m.blocks; b++)
				map[b] = UINT32_MAX;
			fal_place(rule, &m, shards, map);
			for (uint32_t b = 0; b < m.blocks; b++) {
				if (map[b] >= shards)
					fail_msg("seed %llu, %s: block %u is on %u of %u",
						 (unsigned long long)seed,
						 fal_place_name(rule), b, map[b], shards);
				count[map[b]]++;
			}
			for (uint32_t i = 0; rule == FAL_PLACE_BLOCKS && i < shards; i++)
				assert_in_range(count[i], m.blocks / shards,
						(m.blocks + shards - 1) / shards);
			/* What is inside one tensor that is not split stays together. */
			for (uint32_t i = 0; i < n; i++) {
				const uint64_t first = (t[i].at + BLOCK - 1) / BLOCK;
				const uint64_t end = (t[i].at + t[i].count) / BLOCK;
				const bool whole = rule == FAL_PLACE_TENSORFLOW ||
						   (rule == FAL_PLACE_MXNET &&
						    t[i].count < 1000000) ||
						   (rule == FAL_PLACE_BYTEPS &&
						    t[i].count <= 1024000);
				for (uint64_t b = first + 1; whole && b < end; b++)
					assert_int_equal(map[b], map[first]);
			}
		}
		free(map);
	}
}

/* One range of each, in their order, with as many blocks as before. */
static void
as_ranges(void **state)
{
	const char *env = getenv("FAL_TEST_SEED");
	const uint64_t seed = env != NULL ? strtoull(env, NULL, 10) : 1;
	struct fal_rng g = fal_rng_init(seed, FAL_RNG_DRAW, 3);
	(void)state;
	for (int k = 0; k < 1000; k++) {
		const uint32_t shards = 1 + fal_rng_below(&g, SHARDS),
			       blocks = 1 + fal_rng_below(&g, k % 2 == 0 ? 9 : 300);
		uint32_t map[300], was[SHARDS] = { 0 }, is[SHARDS] = { 0 };
		for (uint32_t b = 0; b < blocks; b++)
			was[map[b] = fal_rng_below(&g, shards)]++;
		fal_place_ranges(map, blocks, shards);
		for (uint32_t b = 0; b < blocks; b++) {
			is[map[b]]++;
			if (b > 0 && map[b] < map[b - 1])
				fail_msg("seed %llu: block %u is on %u, behind %u",
					 (unsigned long long)seed, b, map[b], map[b - 1]);
		}
		assert_memory_equal(is, was, sizeof(is));
		uint32_t some = 0;
		for (uint32_t i = 0; i < shards; i++)
			some += was[i] > 0;
		assert_int_equal(fal_place_dense(map, blocks), some);
		assert_int_equal(map[0], 0);
		assert_int_equal(map[blocks - 1], some - 1);
	}
}

/* What falcon-ps says of its shards is where they have their blocks. */
static void
test_rack(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 50; seed++) {
		struct fal_rng g = fal_rng_init(seed, FAL_RNG_TEST, 3);
		const uint32_t n = 1 + fal_rng_below(&g, 80 * BLOCK);
		const struct fal_rack_conf conf = {
			.shards = 1 + fal_rng_below(&g, SHARDS),
			.each = { .n = n, .tasks = 4, .optim = { .kind = FAL_SGD } }
		};
		const struct fal_place_model m = { .blocks = (n + BLOCK - 1) / BLOCK,
						   .block = BLOCK };
		uint32_t map[80];
		float *init = fal_calloc(n, sizeof(*init));
		struct fal_rack *rack = fal_rack_new(&conf, init);
		fal_place(FAL_PLACE_BLOCKS, &m, fal_rack_shards(rack), map);
		for (uint32_t i = 0, b = 0; i < fal_rack_shards(rack); i++) {
			uint32_t first, count;
			fal_rack_range(rack, i, &first, &count);
			assert_int_equal(first, b);
			for (; b < first + count; b++)
				assert_int_equal(map[b], i);
		}
		fal_rack_free(rack);
		free(init);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_examples), cmocka_unit_test(test_split),
		cmocka_unit_test(test_names),    cmocka_unit_test(test_any),
		cmocka_unit_test(test_rack),     cmocka_unit_test(as_ranges),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
