/* Exact sums whose exponents differ: against a naive twin in long double, which holds
 * every integer of a sum. */
#include "base/err.h"
#include "base/rng.h"
#include "wire/bfp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "../naive_bfp.h"

enum { N = FAL_BLOCK + 37, BLOCKS = 2 };

static struct fal_sum *a, *b;
static struct fal_buf record;
static struct fal_rng rng;

static void
same(int64_t got, int64_t want, const char *what, size_t i)
{
	if (got != want)
		fail_msg("%s %zu: got %lld, want %lld", what, i, (long long)got,
			 (long long)want);
}

static int
begin(void **state)
{
	(void)state;
	rng = fal_rng_init(7, FAL_RNG_TEST, 0);
	a = fal_sum_new(N);
	b = fal_sum_new(N);
	return a != NULL && b != NULL ? 0 : -1;
}

static int
end(void **state)
{
	(void)state;
	fal_sum_free(a);
	fal_sum_free(b);
	fal_buf_free(&record);
	return 0;
}

/* Values of up to `bits` bits, and one that reaches them. */
static void
fill(struct fal_sum *s, uint32_t block, unsigned bits)
{
	static int64_t v[FAL_BLOCK];
	const int64_t bound = bits > 0 ? (int64_t)1 << (bits - 1) : 0;
	for (uint32_t i = 0; i < FAL_BLOCK; i++)
		v[i] = bits > 0 ? (int64_t)(fal_rng_u64(&rng) % (2 * (uint64_t)bound)) -
					  bound
				: 0;
	v[0] = bound;
	int8_t needed = (int8_t)(bits > 0 ? (int)fal_rng_below(&rng, 20) : FAL_EXP_NONE);
	same(fal_sum_store(s, block, v, (uint64_t)bound, needed), 0, "store", block);
}

/* Whether both can be had in the quantum of the finer one, with room for more. */
static bool
fits(const struct fal_sum *coarse, const struct fal_sum *fine, uint32_t block, int d)
{
	return ldexpl((long double)fal_sum_bound(coarse, block), d) +
		       (long double)fal_sum_bound(fine, block) <=
	       0x1p60L;
}

struct naive {
	int e, rounds;
	int8_t needed;
	int64_t v[FAL_BLOCK];
};

/* What a + b, of exponents ea and eb, should be. */
static void
naive_add(uint32_t block, int ea, int eb, struct naive *out)
{
	const bool a_fine = ea < eb;
	const struct fal_sum *fine = a_fine ? a : b, *coarse = a_fine ? b : a;
	const int low = a_fine ? ea : eb, high = a_fine ? eb : ea;
	const int8_t na = fal_sum_needed(a, block), nb = fal_sum_needed(b, block);
	out->rounds = !fits(coarse, fine, block, high - low);
	out->e = out->rounds ? high : low;
	if (fal_sum_bound(a, block) == 0)
		out->e = eb, out->rounds = 0;
	if (fal_sum_bound(b, block) == 0)
		out->e = fal_sum_bound(a, block) != 0 ? ea : eb, out->rounds = 0;
	out->needed = na > nb ? na : nb;
	for (uint32_t i = 0; i < fal_block_len(N, block); i++) {
		size_t at = (size_t)block * FAL_BLOCK + i;
		long double x = ldexpl((long double)sum_value(fine, at), low - out->e);
		long double y = ldexpl((long double)sum_value(coarse, at), high - out->e);
		out->v[i] = (int64_t)(rintl(x) + y);
	}
}

static void
compare(uint32_t block, int8_t e, const struct naive *want)
{
	same(e, want->e, "exponent of block", block);
	same(fal_sum_needed(a, block), want->needed, "needed of block", block);
	for (uint32_t i = 0; i < fal_block_len(N, block); i++) {
		int64_t v = sum_value(a, (size_t)block * FAL_BLOCK + i);
		same(v, want->v[i], "value", i);
		if ((uint64_t)llabs(v) > fal_sum_bound(a, block))
			fail_msg("value %u: %lld is beyond %llu", i, (long long)v,
				 (unsigned long long)fal_sum_bound(a, block));
	}
}

static unsigned
some_bits(void)
{
	static const unsigned bits[] = { 0, 1, 8, 24, 30, 31, 32, 33, 43, 55, 60 };
	return bits[fal_rng_below(&rng, sizeof(bits) / sizeof(bits[0]))];
}

static int8_t
some_exponent(void)
{
	return (int8_t)((int)fal_rng_below(&rng, 2) == 0
				? (int)fal_rng_below(&rng, 8)
				: (int)fal_rng_below(&rng, 201) - 100);
}

static void
sums_equal_naive(void **state)
{
	(void)state;
	static struct naive want[BLOCKS];
	int rounds = 0, exact = 0;
	for (int turn = 0; turn < 300; turn++) {
		int8_t ea[BLOCKS], eb[BLOCKS];
		for (uint32_t k = 0; k < BLOCKS; k++) {
			ea[k] = some_exponent();
			eb[k] = some_exponent();
			fill(a, k, some_bits());
			fill(b, k, some_bits());
			naive_add(k, ea[k], eb[k], &want[k]);
			rounds += want[k].rounds;
			exact += !want[k].rounds;
		}
		same(fal_sum_add_aligned(a, ea, b, eb), 0, "add", (size_t)turn);
		for (uint32_t k = 0; k < BLOCKS; k++)
			compare(k, ea[k], &want[k]);
	}
	if (rounds < 20 || exact < 20)
		fail_msg("%d rounded, %d exact: too few of one kind", rounds, exact);
}

static void
records_equal_naive(void **state)
{
	(void)state;
	static struct naive want;
	for (int turn = 0; turn < 300; turn++) {
		struct fal_bfp_rec rec;
		int8_t ea = some_exponent(), eb = some_exponent();
		const uint32_t k = fal_rng_below(&rng, BLOCKS);
		fill(a, k, some_bits());
		fill(b, k, some_bits());
		fal_buf_clear(&record);
		same(fal_sum_pack(b, k, eb, &record), 0, "pack", k);
		struct fal_rd r = fal_rd_init(record.p, record.n);
		same(fal_bfp_parse(&r, N, &rec), 0, "parse", k);
		/* The record's bound is that of its width, not that of the sum. */
		static int64_t v[FAL_BLOCK];
		fal_bfp_rec_load(&rec, v);
		for (uint32_t i = 0; i < rec.len; i++)
			same(v[i], record_value(&rec, i), "record's value", i);
		fal_sum_store(b, k, v, fal_bfp_rec_bound(&rec), fal_sum_needed(b, k));
		naive_add(k, ea, eb, &want);
		if (fal_bfp_rec_bound(&rec) == 0)
			want.e = ea; /* zeros change nothing */
		same(fal_sum_add_rec_aligned(a, &ea, &rec), want.rounds, "add", k);
		if (want.e == ea || fal_bfp_rec_bound(&rec) != 0)
			compare(k, ea, &want);
	}
}

/* What keeps to the room of a clock is never refused, in whatever order it comes: a
 * coarse one that was made finer has left room for all that is still to come. */
static void
nobody_uses_up_the_room(void **state)
{
	(void)state;
	enum { ALL = 8 };
	for (int turn = 0; turn < 400; turn++) {
		int8_t ea[BLOCKS] = { 0, 0 }, eb[BLOCKS];
		fal_sum_clear(a);
		for (int k = 0; k < ALL; k++) {
			/* Thrice 2^57, as a record's bound may be, eight times. */
			const unsigned bits = k % 2 == turn % 2 ? 58 : some_bits() % 58;
			for (uint32_t block = 0; block < BLOCKS; block++) {
				eb[block] = (int8_t)fal_rng_below(&rng, 12);
				fill(b, block, bits);
				static int64_t v[FAL_BLOCK];
				fal_sum_load(b, block, v);
				const uint64_t bound = 3 * fal_sum_bound(b, block);
				same(fal_sum_store(b, block, v, bound, 3), 0, "store",
				     block);
			}
			same(fal_sum_add_aligned(a, ea, b, eb), 0, "add", (size_t)k);
		}
	}
}

/* Equal exponents are plain addition, and what is too large is refused whole. */
static void
limits(void **state)
{
	(void)state;
	int8_t ea[BLOCKS] = { 3, 3 }, eb[BLOCKS] = { 3, 3 };
	for (uint32_t k = 0; k < BLOCKS; k++) {
		fill(a, k, 62);
		fill(b, k, 62);
	}
	int64_t was = sum_value(a, 5), other = sum_value(b, 5);
	same(fal_sum_add_aligned(a, ea, b, eb), 0, "just fits", 0);
	same(sum_value(a, 5), was + other, "plain sum", 5);
	was = sum_value(a, 5);
	same(fal_sum_add_aligned(a, ea, b, eb), FAL_ELIMIT, "one more", 0);
	same(sum_value(a, 5), was, "unchanged", 5);
	eb[0] = 4; /* a is rounded to it: 2^61 of the coarser, and 2^61 more */
	same(fal_sum_add_aligned(a, ea, b, eb), FAL_ELIMIT, "the next block", 0);
	same(ea[0], 4, "exponent", 0);
	same((int64_t)fal_sum_bound(a, 0), (int64_t)1 << 62, "bound", 0);
	eb[0] = 5;
	eb[1] = 4;
	same(fal_sum_add_aligned(a, ea, b, eb), 0, "half of both", 0);
}

static void
needed_exponent(void **state)
{
	(void)state;
	static float g[FAL_BLOCK];
	struct fal_sum *s = fal_sum_new(FAL_BLOCK);
	const int8_t e = 40;
	assert_non_null(s);
	same(fal_exp_needed(g, FAL_BLOCK), FAL_EXP_NONE, "needed by zeros", 0);
	for (int i = -110; i <= 70; i++) {
		g[i + 110] = ldexpf(i % 2 == 0 ? 1.0f : -1.25f, i);
		same(fal_sum_quantise(s, g, &e, FAL_BFP_ROOM, NULL), 0, "quantise", 0);
		same(fal_exp_needed(g, FAL_BLOCK), fal_sum_needed(s, 0), "needed",
		     (size_t)(i + 110));
	}
	fal_sum_free(s);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(sums_equal_naive),        TEST(records_equal_naive),
		TEST(nobody_uses_up_the_room), TEST(limits),
		TEST(needed_exponent),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
