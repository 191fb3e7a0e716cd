/* Philox4x32-10 against published answers, and what is drawn from it against itself:
 * the streams are part of the protocol and must never change. */
#include "base/rng.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Random123 1.14, tests/kat_vectors, the lines "philox4x32 10". */
static void
test_known_answers(void **state)
{
	static const struct {
		uint32_t ctr[4], key[2], out[4];
	} kat[] = {
		{ { 0, 0, 0, 0 },
		  { 0, 0 },
		  { 0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8 } },
		{ { 0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff },
		  { 0xffffffff, 0xffffffff },
		  { 0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd } },
		{ { 0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344 },
		  { 0xa4093822, 0x299f31d0 },
		  { 0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1 } },
	};
	(void)state;
	for (size_t i = 0; i < COUNT(kat); i++) {
		uint32_t out[4];
		fal_philox(kat[i].ctr, kat[i].key, out);
		assert_memory_equal(out, kat[i].out, sizeof(out));
	}
}

/* A stream is block 0, block 1, … of its key. */
static void
test_stream_is_blocks(void **state)
{
	const uint32_t key[2] = { 0x89abcdef, 0x01234567 };
	struct fal_rng r = fal_rng_init(0x0123456789abcdef, FAL_RNG_ORDER, 7);
	(void)state;
	for (uint32_t block = 0; block < 3; block++) {
		const uint32_t ctr[4] = { block, 0, 7, FAL_RNG_ORDER };
		uint32_t out[4];
		fal_philox(ctr, key, out);
		for (unsigned i = 0; i < 4; i++)
			assert_int_equal(fal_rng_u32(&r), out[i]);
	}
	/* The counter carries into its second word. */
	r = fal_rng_init(0x0123456789abcdef, FAL_RNG_ORDER, 7);
	r.ctr[0] = UINT32_MAX;
	for (unsigned i = 0; i < 4; i++)
		fal_rng_u32(&r);
	const uint32_t ctr[4] = { 0, 1, 7, FAL_RNG_ORDER };
	uint32_t out[4];
	fal_philox(ctr, key, out);
	assert_int_equal(fal_rng_u32(&r), out[0]);
}

static void
test_golden(void **state)
{
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 2);
	uint32_t a[8] = { 0, 1, 2, 3, 4, 5, 6, 7 };
	static const uint32_t shuffled[8] = { 2, 0, 7, 4, 1, 3, 5, 6 };
	(void)state;
	assert_int_equal(fal_rng_u32(&r), 0x38aae009);
	assert_int_equal(fal_rng_u64(&r), 0xec40485b76394190);
	assert_int_equal(fal_rng_below(&r, 1000), 427);
	assert_int_equal((uint32_t)(fal_rng_unit(&r) * 0x1p24f), 0xa8c3d6);
	fal_rng_shuffle(&r, a, 8);
	for (unsigned i = 0; i < 8; i++)
		assert_int_equal(a[i], shuffled[i]);
}

/* Streams that differ in one part of their key share no number of the first 64. */
static void
test_streams_differ(void **state)
{
	const struct fal_rng base[] = {
		fal_rng_init(1, FAL_RNG_TEST, 1),
		fal_rng_init(2, FAL_RNG_TEST, 1),
		fal_rng_init(1ull << 32, FAL_RNG_TEST, 1),
		fal_rng_init(1, FAL_RNG_ORDER, 1),
		fal_rng_init(1, FAL_RNG_TEST, 2),
	};
	(void)state;
	for (size_t i = 0; i < COUNT(base); i++)
		for (size_t j = 0; j < i; j++) {
			struct fal_rng a = base[i], b = base[j];
			unsigned same = 0;
			for (unsigned k = 0; k < 64; k++)
				same += fal_rng_u32(&a) == fal_rng_u32(&b);
			assert_int_equal(same, 0);
		}
}

/* Lemire's method with n = 3·2^30: without the rejection the residues 0 mod 3 of the
 * upper bits would come twice as often as the others (chi-square 7500). */
static void
test_below_is_unbiased(void **state)
{
	struct fal_rng r = fal_rng_init(3, FAL_RNG_TEST, 0);
	const uint32_t n = 3u << 30;
	const unsigned draws = 60000;
	unsigned count[3] = { 0 };
	double chi2 = 0;
	(void)state;
	for (unsigned i = 0; i < draws; i++) {
		uint32_t v = fal_rng_below(&r, n);
		assert_in_range(v, 0, n - 1);
		count[v % 3]++;
	}
	for (unsigned i = 0; i < 3; i++) {
		double d = count[i] - draws / 3.0;
		chi2 += d * d / (draws / 3.0);
	}
	print_message("# chi-square %.2f, limit 18.4 (p = 0.0001, 2 degrees)\n", chi2);
	assert_true(chi2 < 18.4);
	for (unsigned i = 0; i < 100; i++)
		assert_int_equal(fal_rng_below(&r, 1), 0);
}

static void
test_unit_range(void **state)
{
	struct fal_rng r = fal_rng_init(4, FAL_RNG_TEST, 0);
	double sum = 0;
	(void)state;
	for (unsigned i = 0; i < 100000; i++) {
		float u = fal_rng_unit(&r);
		assert_true(u >= 0 && u < 1);
		sum += (double)u;
	}
	print_message("# mean %.5f, expected 0.5 +- 0.005\n", sum / 100000);
	assert_true(sum / 100000 > 0.495 && sum / 100000 < 0.505);
}

static void
test_shuffle_is_permutation(void **state)
{
	enum { N = 1000 };
	uint32_t a[N];
	bool seen[N] = { false };
	struct fal_rng r = fal_rng_init(5, FAL_RNG_TEST, 0);
	unsigned fixed = 0;
	(void)state;
	for (uint32_t i = 0; i < N; i++)
		a[i] = i;
	fal_rng_shuffle(&r, a, N);
	for (uint32_t i = 0; i < N; i++) {
		assert_in_range(a[i], 0, N - 1);
		assert_false(seen[a[i]]);
		seen[a[i]] = true;
		fixed += a[i] == i;
	}
	print_message("# fixed points %u, expected about 1\n", fixed);
	assert_in_range(fixed, 0, 8);
	fal_rng_shuffle(&r, a, 0);
	fal_rng_shuffle(&r, a, 1);
}

/* All 24 orders of four things come about equally often. */
static void
test_shuffle_is_uniform(void **state)
{
	struct fal_rng r = fal_rng_init(6, FAL_RNG_TEST, 0);
	unsigned count[256] = { 0 };
	const unsigned draws = 24000;
	double chi2 = 0;
	unsigned orders = 0;
	(void)state;
	for (unsigned i = 0; i < draws; i++) {
		uint32_t a[4] = { 0, 1, 2, 3 };
		fal_rng_shuffle(&r, a, 4);
		count[a[0] | a[1] << 2 | a[2] << 4 | a[3] << 6]++;
	}
	for (unsigned i = 0; i < 256; i++) {
		if (count[i] == 0)
			continue;
		double d = count[i] - draws / 24.0;
		chi2 += d * d / (draws / 24.0);
		orders++;
	}
	print_message("# chi-square %.2f, limit 58.6 (p = 0.0001, 23 degrees)\n", chi2);
	assert_int_equal(orders, 24);
	assert_true(chi2 < 58.6);
}

static void
test_task_seeds(void **state)
{
	(void)state;
	assert_true(fal_rng_task(1, 2, 3) == fal_rng_task(1, 2, 3));
	assert_false(fal_rng_task(1, 2, 3) == fal_rng_task(1, 3, 2));
	assert_false(fal_rng_task(1, 2, 3) == fal_rng_task(2, 2, 3));
	assert_false(fal_rng_task(1, 2, 3) ==
		     fal_rng_task(1, 2 + (UINT64_C(1) << 32), 3));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known_answers),
		cmocka_unit_test(test_stream_is_blocks),
		cmocka_unit_test(test_golden),
		cmocka_unit_test(test_streams_differ),
		cmocka_unit_test(test_task_seeds),
		cmocka_unit_test(test_below_is_unbiased),
		cmocka_unit_test(test_unit_range),
		cmocka_unit_test(test_shuffle_is_permutation),
		cmocka_unit_test(test_shuffle_is_uniform),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("rng", tests, NULL, NULL);
}
