/* The hash of what a task gave, against the bytes that falcon-protocol(7) says. */
#include "../naive_bfp.h"
#include "../task_hash.h"
#include "base/err.h"
#include "base/rng.h"

#include <endian.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { N = 2 * FAL_BLOCK + 7, SEEDS = 60 };

/* As the page says it, one value after the other. */
static void
plain_hash(const struct fal_sum *s, const int8_t *exps, uint8_t out[static FAL_TASK_HASH])
{
	struct fal_buf b = { 0 };
	uint8_t all[FAL_HASH_BYTES];
	const size_t n = fal_sum_len(s);
	for (uint32_t k = 0; k < fal_blocks(n); k++) {
		const size_t first = (size_t)k * FAL_BLOCK;
		const uint32_t len = fal_block_len(n, k);
		int64_t most = 0;
		for (uint32_t i = 0; i < len; i++)
			most = llabs(sum_value(s, first + i)) > most
				       ? llabs(sum_value(s, first + i))
				       : most;
		fal_put_u8(&b, (uint8_t)exps[k]);
		fal_put_u8(&b, (uint8_t)fal_sum_needed(s, k));
		fal_put_u8(&b, most == 0 ? 0 : most >> 31 == 0 ? 4 : 8);
		fal_put_u8(&b, 0);
		for (uint32_t i = 0; i < len && most > 0; i++) {
			const uint64_t v = (uint64_t)sum_value(s, first + i);
			if (most >> 31 == 0)
				fal_put_u32(&b, (uint32_t)v);
			else
				fal_put_u64(&b, v);
		}
	}
	fal_hash(b.p, b.n, all);
	memcpy(out, all, FAL_TASK_HASH);
	fal_buf_free(&b);
}

/* Blocks of zeros, of values that 32 bits hold, and of others. */
static void
draw(struct fal_rng *r, float *g, int8_t *exps)
{
	for (uint32_t b = 0; b < fal_blocks(N); b++) {
		static const int above[] = { -40, -1, 0, 7, 8, 9, 20 };
		const int up = above[fal_rng_below(r, 7)];
		exps[b] = (int8_t)(-20 + (int)fal_rng_below(r, 30));
		const bool none = fal_rng_below(r, 4) == 0;
		for (uint32_t i = 0; i < fal_block_len(N, b); i++)
			g[b * FAL_BLOCK + i] =
				none ? 0 : ldexpf(2 * fal_rng_unit(r) - 1, exps[b] + up);
	}
}

static void
as_the_page_says(void **state)
{
	(void)state;
	static float g[N];
	int8_t exps[3];
	struct fal_sum *s = fal_sum_new(N);
	assert_non_null(s);
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 3);
		uint8_t is[FAL_TASK_HASH], want[FAL_TASK_HASH], other[FAL_TASK_HASH];
		draw(&r, g, exps);
		assert_int_equal(fal_sum_quantise(s, g, exps, FAL_BFP_ROOM, NULL), 0);
		fal_task_hash(s, exps, is);
		plain_hash(s, exps, want);
		if (memcmp(is, want, sizeof(is)) != 0)
			fail_msg("seed %llu: another hash", (unsigned long long)seed);
		/* Any bit of any value, and the exponents, count. */
		int64_t v[FAL_BLOCK];
		const uint32_t b = fal_rng_below(&r, fal_blocks(N));
		fal_sum_load(s, b, v);
		v[fal_rng_below(&r, fal_block_len(N, b))] ^= 1;
		assert_int_equal(fal_sum_store(s, b, v, fal_sum_bound(s, b) + 1,
					       fal_sum_needed(s, b)),
				 0);
		fal_task_hash(s, exps, other);
		assert_memory_not_equal(is, other, sizeof(is));
	}
	fal_sum_free(s);
}

/* The sum that it was made in does not show. */
static void
wherever_it_was_made(void **state)
{
	(void)state;
	static float g[N], wide[N];
	int8_t exps[3] = { 0, 0, 0 };
	struct fal_sum *used = fal_sum_new(N), *fresh = fal_sum_new(N);
	uint8_t a[FAL_TASK_HASH], b[FAL_TASK_HASH];
	assert_true(used != NULL && fresh != NULL);
	for (size_t i = 0; i < N; i++) {
		g[i] = i < FAL_BLOCK ? 0 : (float)i / N;
		wide[i] = 1e6f;
	}
	assert_int_equal(fal_sum_quantise(used, wide, exps, FAL_BFP_ROOM, NULL), 0);
	assert_int_equal(fal_sum_quantise(used, g, exps, FAL_BFP_ROOM, NULL), 0);
	assert_int_equal(fal_sum_quantise(fresh, g, exps, FAL_BFP_ROOM, NULL), 0);
	fal_task_hash(used, exps, a);
	fal_task_hash(fresh, exps, b);
	assert_memory_equal(a, b, sizeof(a));
	fal_sum_free(used);
	fal_sum_free(fresh);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(as_the_page_says),
		cmocka_unit_test(wherever_it_was_made),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
