/* The store: each block of each contribution counts once, whatever comes again, comes
 * late or comes from whoever fills a fenced one; and the update is the naive one. */
#include "base/err.h"
#include "base/rng.h"
#include "store/store.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

/* Three blocks, the last one short. */
enum { N = 2 * FAL_BLOCK + 100, BLOCKS = 3, SEED = 5 };

static const struct fal_cid none = { 0, 0 }, a = { 1, 1 }, b = { 2, 1 }, c = { 3, 1 };

static struct fal_store *store;
static float init[N], grad[N];
static struct fal_sum *sum;   /* what the contributions of a test hold */
static struct fal_buf record; /* what rec borrows from */
static struct fal_bfp_rec rec;

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld", what, (long long)got,
			 (long long)want);
}

static void
fill(float *v, uint32_t stream)
{
	struct fal_rng r = fal_rng_init(SEED, FAL_RNG_TEST, stream);
	for (size_t i = 0; i < N; i++)
		v[i] = fal_rng_unit(&r) - 0.5f;
}

static int
begin(void **state)
{
	(void)state;
	struct fal_store_conf conf = { .n = N,
				       .optim = { .kind = FAL_MOMENTUM,
						  .momentum = 0.9f },
				       .checksums = true,
				       .checksum_seed = SEED };
	fill(init, 0);
	fill(grad, 1);
	store = fal_store_new(&conf, init);
	sum = fal_sum_new(N);
	if (store == NULL || sum == NULL)
		return -1;
	return fal_sum_quantise(sum, grad, fal_store_exps(store), NULL);
}

static int
end(void **state)
{
	(void)state;
	fal_store_free(store);
	fal_sum_free(sum);
	fal_buf_free(&record);
	return 0;
}

/* Makes `rec` the record of a block of `from`. */
static void
make_rec(const struct fal_sum *from, uint32_t block)
{
	uint64_t checksum = fal_sum_checksum(from, block, SEED);
	fal_buf_clear(&record);
	check(fal_sum_pack(from, block, fal_store_exps(store)[block], &checksum, &record),
	      0, "pack");
	struct fal_rd r = fal_rd_init(record.p, record.n);
	check(fal_bfp_parse(&r, N, &rec), 0, "parse");
}

static int
add(struct fal_cid id, struct fal_cid fills, uint32_t tasks, uint32_t block)
{
	make_rec(sum, block);
	return fal_store_add(store, id, fills, tasks, &rec);
}

static void
a_block_counts_once(void **state)
{
	(void)state;
	fal_store_open(store, 3);
	check(add(a, none, 2, 1), 1, "first");
	check(add(a, none, 2, 1), FAL_EEXIST, "again");
	check(add(b, none, 1, 1), 1, "of another contribution");
	check(add(a, none, 2, 0), 1, "another block");
	check(fal_store_whole(store, a), 0, "whole without block 2");
	check(add(a, none, 2, 2), 1, "the last block");
	check(fal_store_whole(store, a), 1, "whole");
	check(fal_store_whole(store, b), 0, "the other is whole");
	check(fal_store_whole(store, c), 0, "an unknown one is whole");
}

static void
complete_exactly_at_k(void **state)
{
	(void)state;
	check(fal_store_complete(store), 0, "before a clock");
	fal_store_open(store, 3);
	check(add(a, none, 2, 0), 1, "a 0");
	check(add(a, none, 2, 1), 1, "a 1");
	check(add(a, none, 2, 2), 1, "a 2");
	check(add(b, none, 1, 0), 1, "b 0");
	check(add(b, none, 1, 1), 1, "b 1");
	check(fal_store_complete(store), 0, "with one block at 2 of 3");
	check(add(c, none, 2, 2), FAL_EINVAL, "more tasks than are left");
	check(fal_store_complete(store), 0, "after what was refused");
	check(add(b, none, 1, 2), 1, "b 2");
	check(fal_store_complete(store), 1, "with all");
	check(add(c, none, 1, 2), FAL_EINVAL, "one task too many");
}

static void
refusals(void **state)
{
	(void)state;
	fal_store_open(store, 4);
	check(add(a, none, 0, 0), FAL_EINVAL, "no tasks");
	check(add(a, none, 5, 0), FAL_EINVAL, "more tasks than the clock has");
	check(add(a, none, UINT32_MAX, 0), FAL_EINVAL, "the most tasks");
	check(add(a, none, 2, 0), 1, "good");
	check(add(a, none, 1, 1), FAL_EINVAL, "another task count");
	make_rec(sum, 1);
	rec.exponent++;
	check(fal_store_add(store, a, none, 2, &rec), FAL_EINVAL, "wrong exponent");
	rec.exponent--;
	rec.block = BLOCKS;
	check(fal_store_add(store, a, none, 2, &rec), FAL_EINVAL, "no such block");
	check(add(b, c, 2, 1), FAL_ESTATE, "fills an unknown one");
	check(add(b, a, 2, 1), FAL_ESTATE, "fills one that is not fenced");
	check(add(a, none, 2, 1), 1, "good after all");
}

static void
fence_and_fill(void **state)
{
	(void)state;
	fal_store_open(store, 2);
	check(add(a, none, 2, 0), 1, "before the fence");
	check(fal_store_fence(store, a, none), 0, "fence");
	check(fal_store_fence(store, a, none), 0, "fence again");
	check(add(a, none, 2, 1), FAL_EFENCED, "after the fence");
	/* Two workers fill it, a task each: block 0 is there, the others are not. */
	for (uint32_t w = 0; w < 2; w++) {
		struct fal_cid id = w == 0 ? b : c;
		check(add(id, a, 1, 0), 0, "dropped");
		check(add(id, a, 1, 0), FAL_EEXIST, "dropped again");
		check(add(id, a, 1, 1), 1, "added");
		check(fal_store_whole(store, id), 0, "whole without block 2");
		check(fal_store_complete(store), 0, "complete");
		check(add(id, a, 1, 2), 1, "added, too");
		check(fal_store_whole(store, id), 1, "whole");
	}
	check(fal_store_complete(store), 1, "complete with both");
}

static void
two_generations(void **state)
{
	(void)state;
	fal_store_open(store, 1);
	check(add(a, none, 1, 0), 1, "first brings block 0");
	fal_store_fence(store, a, none);
	check(add(b, a, 1, 1), 1, "second brings block 1");
	fal_store_fence(store, b, a);
	check(add(c, b, 1, 0), 0, "block 0 of the first");
	check(add(c, b, 1, 1), 0, "block 1 of the second");
	check(fal_store_complete(store), 0, "complete without block 2");
	check(add(c, b, 1, 2), 1, "third brings block 2");
	check(fal_store_whole(store, c), 1, "whole");
	check(fal_store_complete(store), 1, "complete");
}

/* A contribution that died before its first block came. */
static void
fenced_before_it_came(void **state)
{
	(void)state;
	fal_store_open(store, 1);
	check(fal_store_fence(store, a, none), 0, "fence");
	check(add(a, none, 1, 0), FAL_EFENCED, "late");
	for (uint32_t i = 0; i < BLOCKS; i++)
		check(add(b, a, 1, i), 1, "filled");
	check(fal_store_complete(store), 1, "complete");
}

static void
many_contributions(void **state)
{
	(void)state;
	enum { MANY = 500 };
	fal_store_open(store, MANY);
	for (uint32_t i = 1; i <= MANY; i++)
		for (uint32_t k = 0; k < BLOCKS; k++)
			check(add((struct fal_cid){ i, i * 7 }, none, 1, k), 1, "add");
	for (uint32_t i = 1; i <= MANY; i++)
		check(fal_store_whole(store, (struct fal_cid){ i, i * 7 }), 1, "whole");
	check(fal_store_complete(store), 1, "complete");
	check((int64_t)fal_store_sent(store), (int64_t)fal_store_added(store), "sums");
}

/* Two clocks of three tasks in two contributions against one plain loop. */
static void
update_is_the_naive_one(void **state)
{
	(void)state;
	static float want[N], momentum[N], mean[FAL_BLOCK];
	static const struct fal_optim optim = { .kind = FAL_MOMENTUM, .momentum = 0.9f };
	int8_t exps[BLOCKS];
	struct fal_sum *one = fal_sum_new(N), *all = fal_sum_new(N);
	assert_true(one != NULL && all != NULL);
	memcpy(want, init, sizeof(want));
	memset(momentum, 0, sizeof(momentum));
	memset(exps, FAL_EXP_FIRST, sizeof(exps));
	for (uint32_t clock = 0; clock < 2; clock++) {
		check((int64_t)fal_store_version(store), clock, "version");
		fal_store_open(store, 3);
		fal_sum_clear(all);
		for (uint32_t t = 0; t < 3; t++) {
			if (t != 1) /* tasks 0 and 1 are one contribution */
				fal_sum_clear(sum);
			fill(grad, 10 * clock + t + 2);
			check(fal_sum_quantise(one, grad, exps, NULL), 0, "quantise");
			check(fal_sum_add(sum, one), 0, "add");
			check(fal_sum_add(all, one), 0, "add");
			for (uint32_t k = 0; k < BLOCKS && t > 0; k++)
				check(add(t == 1 ? a : b, none, t == 1 ? 2 : 1, k), 1,
				      "record");
		}
		check(fal_store_complete(store), 1, "complete");
		fal_store_update(store, 0.1f, 24);
		for (uint32_t k = 0; k < BLOCKS; k++) {
			size_t first = (size_t)k * FAL_BLOCK;
			fal_sum_mean(all, k, exps[k], 24, mean);
			fal_optim_apply_naive(&optim, 0.1f, want + first,
					      momentum + first, mean,
					      fal_block_len(N, k));
			exps[k] = fal_exp_next(exps[k], fal_sum_needed(all, k));
			check(fal_store_exps(store)[k], exps[k], "exponent");
		}
		assert_memory_equal(fal_store_params(store), want, sizeof(want));
	}
	assert_memory_not_equal(want, init, sizeof(want));
	fal_sum_free(one);
	fal_sum_free(all);
}

static void
checksums(void **state)
{
	(void)state;
	fal_store_open(store, 4);
	check(add(a, none, 1, 0), 1, "add");
	check(add(a, none, 1, 2), 1, "add");
	assert_true(fal_store_sent(store) != 0);
	check((int64_t)fal_store_sent(store), (int64_t)fal_store_added(store), "sums");
	uint64_t sent = fal_store_sent(store);
	check(add(a, none, 1, 0), FAL_EEXIST, "again");
	check((int64_t)fal_store_sent(store), (int64_t)sent, "sent after a refusal");
	/* What is dropped because it is there already counts on neither side. */
	fal_store_fence(store, a, none);
	check(add(b, a, 1, 2), 0, "dropped");
	check((int64_t)fal_store_sent(store), (int64_t)sent, "sent after a drop");
	/* A record whose values are not those that were summed up. */
	make_rec(sum, 1);
	rec.base++;
	check(fal_store_add(store, c, none, 1, &rec), 1, "a changed record");
	if (fal_store_sent(store) == fal_store_added(store))
		fail_msg("sent %llx equals added",
			 (unsigned long long)fal_store_sent(store));
	fal_store_open(store, 1);
	check((int64_t)fal_store_sent(store), 0, "sent in a new clock");
	check((int64_t)fal_store_added(store), 0, "added in a new clock");
}

static void
memory_needed(void **state)
{
	(void)state;
	struct fal_store_conf sgd = { .n = N }, momentum = sgd;
	momentum.optim.kind = FAL_MOMENTUM;
	assert_true(fal_store_bytes(&sgd) >= N * 2 * sizeof(float));
	check((int64_t)(fal_store_bytes(&momentum) - fal_store_bytes(&sgd)),
	      N * sizeof(float), "bytes of the momentum");
	check((int64_t)fal_store_len(store), N, "length");
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(a_block_counts_once),
		TEST(complete_exactly_at_k),
		TEST(refusals),
		TEST(fence_and_fill),
		TEST(two_generations),
		TEST(fenced_before_it_came),
		TEST(many_contributions),
		TEST(update_is_the_naive_one),
		TEST(checksums),
		TEST(memory_needed),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
