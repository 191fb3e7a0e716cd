/* The store: each block of each contribution counts once, whatever comes again, comes
 * late, or comes from a filling contribution; the update equals the naive one. */
#include "../naive_optim.h"
#include "base/err.h"
#include "base/rng.h"
#include "server/store.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

/* Three blocks, the last one short. */
enum { N = 2 * FAL_BLOCK + 100, BLOCKS = 3, SEED = 5 };

static const struct fal_contrib_id none = { 0, 0 }, a = { 1, 1 }, b = { 2, 1 },
				   c = { 3, 1 };

static struct fal_store *store;
static float init[N], grad[N];
static struct fal_sum *sum;   /* the values of a test's contributions */
static struct fal_buf record; /* memory of `rec` */
static struct fal_bfp_rec rec;
static struct fal_unstepped unstepped; /* left out of changes of weights */

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
				       .checksums = true };
	fill(init, 0);
	fill(grad, 1);
	store = fal_store_new(&conf, init);
	sum = fal_sum_new(N);
	if (store == NULL || sum == NULL)
		return -1;
	return fal_sum_quantise(sum, grad, fal_store_exps(store), FAL_BFP_ROOM, NULL);
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

/* The number of blocks that a contribution has brought to a round, and their checksum. */
static struct fal_contribution_blocks
brought_by(uint64_t round, struct fal_contrib_id id)
{
	struct fal_contribution_blocks is = { .id = id };
	uint32_t n;
	struct fal_contribution_blocks *all =
		fal_store_list_contributions(store, round, &n);
	for (uint32_t i = 0; i < n; i++)
		if (fal_contrib_id_equal(all[i].id, id))
			is = all[i];
	free(all);
	return is;
}

/* The sum of the checksums of all contributions to a round. */
static uint64_t
sum_of_checksums(uint64_t round)
{
	uint32_t n;
	struct fal_contribution_blocks *each =
		fal_store_list_contributions(store, round, &n);
	uint64_t all = 0;
	for (uint32_t i = 0; i < n; i++)
		all += each[i].sum;
	free(each);
	return all;
}

/* Makes `rec` the record of a block of `from`. */
static void
pack_rec(const struct fal_sum *from, uint32_t block, int8_t exponent)
{
	fal_buf_clear(&record);
	check(fal_sum_pack(from, block, exponent, &record), 0, "pack");
	struct fal_rd r = fal_rd_init(record.p, record.n);
	check(fal_bfp_parse(&r, N, &rec), 0, "parse");
}

/* A record with exponents of the newest version. */
static void
make_rec(const struct fal_sum *from, uint32_t block)
{
	pack_rec(from, block, fal_store_exps(store)[block]);
}

static int
add_to(uint64_t round, struct fal_contrib_id id, struct fal_contrib_id fills,
       uint32_t tasks)
{
	const struct fal_store_from from = { round, id, fills, tasks };
	return fal_store_add(store, &from, &rec);
}

/* To round 1. */
static int
add(struct fal_contrib_id id, struct fal_contrib_id fills, uint32_t tasks, uint32_t block)
{
	make_rec(sum, block);
	return add_to(1, id, fills, tasks);
}

static void
open_round(uint64_t round, uint32_t tasks, uint64_t version)
{
	const struct fal_store_round r = { .round = round,
					   .tasks = tasks,
					   .kind = FAL_KIND_GRAD,
					   .version = version,
					   .seed = SEED };
	fal_store_open(store, &r);
}

static void
open_delta(uint64_t round)
{
	const struct fal_store_round r = { .round = round,
					   .tasks = 1,
					   .kind = FAL_KIND_DELTA };
	fal_store_open(store, &r);
}

static void
a_block_counts_once(void **state)
{
	(void)state;
	open_round(1, 3, 0);
	check(add(a, none, 2, 1), 1, "first");
	check(add(a, none, 2, 1), FAL_EEXIST, "again");
	check(add(b, none, 1, 1), 1, "of another contribution");
	check(add(a, none, 2, 0), 1, "another block");
	check(fal_store_is_whole(store, 1, a), 0, "whole without block 2");
	check(add(a, none, 2, 2), 1, "the last block");
	check(fal_store_is_whole(store, 1, a), 1, "whole");
	check(fal_store_is_whole(store, 1, b), 0, "the other is whole");
	check(fal_store_is_whole(store, 1, c), 0, "an unknown one is whole");
}

static void
complete_exactly_at_k(void **state)
{
	(void)state;
	check(fal_store_is_complete(store, 1), 0, "before a round");
	open_round(1, 3, 0);
	check(add(a, none, 2, 0), 1, "a 0");
	check(add(a, none, 2, 1), 1, "a 1");
	check(add(a, none, 2, 2), 1, "a 2");
	check(add(b, none, 1, 0), 1, "b 0");
	check(add(b, none, 1, 1), 1, "b 1");
	check(fal_store_is_complete(store, 1), 0, "with one block at 2 of 3");
	check(add(c, none, 2, 2), FAL_EINVAL, "more tasks than are left");
	check(fal_store_is_complete(store, 1), 0, "after what was refused");
	check(add(b, none, 1, 2), 1, "b 2");
	check(fal_store_is_complete(store, 1), 1, "with all");
	check(add(c, none, 1, 2), FAL_EINVAL, "one task too many");
}

static void
refusals(void **state)
{
	(void)state;
	open_round(1, 4, 0);
	check(add(a, none, 0, 0), FAL_EINVAL, "no tasks");
	check(add(a, none, 5, 0), FAL_EINVAL, "more tasks than the round has");
	check(add(a, none, UINT32_MAX, 0), FAL_EINVAL, "the most tasks");
	check(add(a, none, 2, 0), 1, "good");
	check(add(a, none, 1, 1), FAL_EINVAL, "another task count");
	make_rec(sum, 1);
	rec.exponent++;
	check(add_to(1, a, none, 2), FAL_EINVAL, "wrong exponent");
	rec.exponent--;
	rec.block = BLOCKS;
	check(add_to(1, a, none, 2), FAL_EINVAL, "no such block");
	check(add(b, c, 2, 1), FAL_ESTATE, "fills an unknown one");
	check(add(b, a, 2, 1), FAL_ESTATE, "fills one that is not fenced");
	check(add(a, none, 2, 1), 1, "good after all");
}

static void
fence_and_fill(void **state)
{
	(void)state;
	open_round(1, 2, 0);
	check(add(a, none, 2, 0), 1, "before the fence");
	check(fal_store_fence(store, 1, a, none), 0, "fence");
	check(fal_store_fence(store, 1, a, none), 0, "fence again");
	check(add(a, none, 2, 1), FAL_EFENCED, "after the fence");
	/* Two workers fill the contribution, one task each: block 0 was there, the others
	 * not. */
	for (uint32_t w = 0; w < 2; w++) {
		struct fal_contrib_id id = w == 0 ? b : c;
		check(add(id, a, 1, 0), 0, "dropped");
		check(add(id, a, 1, 0), FAL_EEXIST, "dropped again");
		check(add(id, a, 1, 1), 1, "added");
		check(fal_store_is_whole(store, 1, id), 0, "whole without block 2");
		check(fal_store_is_complete(store, 1), 0, "complete");
		check(add(id, a, 1, 2), 1, "added, too");
		check(fal_store_is_whole(store, 1, id), 1, "whole");
	}
	check(fal_store_is_complete(store, 1), 1, "complete with both");
}

static void
two_generations(void **state)
{
	(void)state;
	open_round(1, 1, 0);
	check(add(a, none, 1, 0), 1, "first brings block 0");
	fal_store_fence(store, 1, a, none);
	check(add(b, a, 1, 1), 1, "second brings block 1");
	fal_store_fence(store, 1, b, a);
	check(add(c, b, 1, 0), 0, "block 0 of the first");
	check(add(c, b, 1, 1), 0, "block 1 of the second");
	check(fal_store_is_complete(store, 1), 0, "complete without block 2");
	check(add(c, b, 1, 2), 1, "third brings block 2");
	check(fal_store_is_whole(store, 1, c), 1, "whole");
	check(fal_store_is_complete(store, 1), 1, "complete");
}

/* A contribution that died before its first block came. */
static void
same_params(const float *was, const char *what)
{
	if (memcmp(fal_store_params(store), was, fal_store_len(store) * sizeof(*was)) !=
	    0)
		fail_msg("%s: the parameters are others", what);
}

/* Skipped tasks count once in each block. */
static void
skipped_tasks_count(void **state)
{
	(void)state;
	open_round(1, 3, 0);
	check(add(a, none, 1, 0), 1, "brought");
	check(fal_store_fence(store, 1, a, none), 0, "fence");
	fal_store_skip(store, 1, 1,
		       a); /* in the blocks that the contribution has not brought */
	for (uint32_t i = 0; i < BLOCKS; i++)
		check(add(b, none, 1, i), 1, "another task");
	check(fal_store_is_complete(store, 1), 0, "complete without the third");
	fal_store_skip(store, 1, 1, none);
	check(fal_store_is_complete(store, 1), 1, "complete");
}

/* An update of no sample makes a new version with the same parameters. */
static void
nothing_is_no_step(void **state)
{
	(void)state;
	float was[BLOCKS * FAL_BLOCK];
	int8_t exps[BLOCKS];
	memcpy(was, fal_store_params(store), fal_store_len(store) * sizeof(*was));
	memcpy(exps, fal_store_exps(store), BLOCKS);
	open_round(1, 1, 0);
	fal_store_skip(store, 1, 1, none);
	check(fal_store_is_complete(store, 1), 1, "complete");
	check(fal_store_merge(store, 1), 0, "merge");
	check(fal_store_step(store, &(struct fal_store_update){ .lr = 0.5f }).nonfinite,
	      0, "refused blocks");
	check((int64_t)fal_store_version(store), 1, "version");
	same_params(was, "a step of nothing");
	check(memcmp(fal_store_exps(store), exps, BLOCKS), 0, "exponents");
	double left[BLOCKS];
	fal_store_squares(store, UINT64_MAX, 1, left);
	check(left[0] != 0, 0, "gradients are left");
}

static void
fenced_before_it_came(void **state)
{
	(void)state;
	open_round(1, 1, 0);
	check(fal_store_fence(store, 1, a, none), 0, "fence");
	check(add(a, none, 1, 0), FAL_EFENCED, "late");
	for (uint32_t i = 0; i < BLOCKS; i++)
		check(add(b, a, 1, i), 1, "filled");
	check(fal_store_is_complete(store, 1), 1, "complete");
}

static void
many_contributions(void **state)
{
	(void)state;
	enum { MANY = 500 };
	open_round(1, MANY, 0);
	for (uint32_t i = 1; i <= MANY; i++)
		for (uint32_t k = 0; k < BLOCKS; k++)
			check(add((struct fal_contrib_id){ i, i * 7 }, none, 1, k), 1,
			      "add");
	for (uint32_t i = 1; i <= MANY; i++)
		check(fal_store_is_whole(store, 1, (struct fal_contrib_id){ i, i * 7 }),
		      1, "whole");
	check(fal_store_is_complete(store, 1), 1, "complete");
	check((int64_t)sum_of_checksums(1), (int64_t)fal_store_checksum(store, 1),
	      "sums");
}

/* Plain code for the elements from `first` on: `was` before the step, `mean` their
 * gradients. */
static void
step_ranges(const struct fal_optim *o, size_t first, uint32_t len, const float *was,
	    const float *mean, float *w, float *held)
{
	const float hold = (float)(1 - o->buffer_momentum);
	const float take = (float)o->buffer_momentum;
	for (uint32_t r = 0; r < o->ranges; r++)
		for (uint64_t i = o->range[r].first;
		     i < o->range[r].first + o->range[r].count; i++) {
			if (i < first || i >= first + len)
				continue;
			const size_t k = i - first;
			const float kept = hold * was[k], new = take *mean[k];
			w[k] = o->range[r].rule == FAL_RANGE_EMA ? kept + new : was[k];
			for (uint32_t s = 0; s < fal_optim_slots(o); s++)
				held[s * len + k] = 0;
		}
}

/* Two clocks of three tasks in two contributions against one plain loop. */
static void
updates_are_naive(const struct fal_optim *optim)
{
	static float want[N], held[2 * N], mean[FAL_BLOCK], average[N], was[FAL_BLOCK];
	const struct fal_store_conf conf = { .n = N, .tasks = 8, .optim = *optim };
	const uint32_t slots = fal_optim_slots(optim);
	fal_store_free(store);
	store = fal_store_new(&conf, init);
	assert_non_null(store);
	int8_t exps[BLOCKS];
	struct fal_sum *one = fal_sum_new(N), *all = fal_sum_new(N);
	assert_true(one != NULL && all != NULL);
	memcpy(want, init, sizeof(want));
	memset(held, 0, sizeof(held));
	memcpy(average, init, sizeof(average));
	memset(exps, FAL_EXP_FIRST, sizeof(exps));
	for (uint32_t clock = 0; clock < 2; clock++) {
		check((int64_t)fal_store_version(store), clock, "version");
		open_round(clock, 3, clock);
		fal_sum_clear(all);
		for (uint32_t t = 0; t < 3; t++) {
			if (t != 1) /* tasks 0 and 1 are one contribution */
				fal_sum_clear(sum);
			fill(grad, 10 * clock + t + 2);
			check(fal_sum_quantise(one, grad, exps, FAL_BFP_ROOM, NULL), 0,
			      "quantise");
			check(fal_sum_add(sum, one), 0, "add");
			check(fal_sum_add(all, one), 0, "add");
			for (uint32_t k = 0; k < BLOCKS && t > 0; k++) {
				make_rec(sum, k);
				check(add_to(clock, t == 1 ? a : b, none, t == 1 ? 2 : 1),
				      1, "record");
			}
		}
		check(fal_store_is_complete(store, clock), 1, "complete");
		check(fal_store_merge(store, clock), 0, "merge");
		check(fal_store_step(store, &(struct fal_store_update){ .lr = 0.1f,
									.divisor = 24 })
			      .nonfinite,
		      0, "refused");
		const struct fal_optim_step by = fal_optim_step(optim, 0.1f, clock);
		for (uint32_t k = 0; k < BLOCKS; k++) {
			const size_t first = (size_t)k * FAL_BLOCK;
			const uint32_t len = fal_block_len(N, k);
			fal_sum_mean(all, k, exps[k], 24, mean);
			memcpy(was, want + first, len * sizeof(float));
			fal_optim_apply_naive(&by, want + first, held + slots * first,
					      len, mean, len);
			step_ranges(optim, first, len, was, mean, want + first,
				    held + slots * first);
			exps[k] = fal_exp_next(exps[k], fal_sum_needed(all, k));
			check(fal_store_exps(store)[k], exps[k], "exponent");
		}
		assert_memory_equal(fal_store_params(store), want, sizeof(want));
		for (size_t i = 0; i < N && optim->ema > 0; i++) {
			const float off = want[i] - average[i];
			const float moved = (float)(1 - optim->ema) * off;
			average[i] = average[i] + moved;
		}
		if (optim->ema > 0)
			assert_memory_equal(fal_store_average(store), average,
					    sizeof(average));
		else
			assert_null(fal_store_average(store));
	}
	assert_memory_not_equal(want, init, sizeof(want));
	fal_sum_free(one);
	fal_sum_free(all);
}

static void
update_is_the_naive_one(void **state)
{
	static const struct fal_range range[] = {
		{ .first = 3, .count = 5, .rule = FAL_RANGE_EMA },
		{ .first = 8, .count = 1, .rule = FAL_RANGE_FROZEN },
		{ .first = FAL_BLOCK - 2, .count = 4, .rule = FAL_RANGE_EMA },
		{ .first = N - 1, .count = 1, .rule = FAL_RANGE_EMA }
	};
	(void)state;
	for (unsigned k = 0; k < 2 * FAL_OPTIMS; k++)
		updates_are_naive(&(struct fal_optim){
			.kind = (enum fal_optim_kind)(k % FAL_OPTIMS),
			.momentum = 0.9f,
			.weight_decay = 0.01f,
			.decoupled = k % 2 == 0,
			.ema = k % 2 == 0 ? 0.9 : 0,
			.beta1 = 0.9,
			.beta2 = 0.999,
			.eps = 1e-8f,
			.buffer_momentum = 0.1,
			.range = range,
			.ranges = k < FAL_OPTIMS ? 0 : 4 });
}

/* Makes a record with these fields. */
static void
make_lie(int64_t value, int8_t needed, uint32_t block)
{
	int64_t v[FAL_BLOCK];
	for (uint32_t i = 0; i < FAL_BLOCK; i++)
		v[i] = value;
	check(fal_sum_store(sum, block, v, (uint64_t)llabs(value), needed), 0, "store");
	make_rec(sum, block);
}

/* A contribution with more than its room is refused, and not a later one. */
static void
room_is_for_all(void **state)
{
	(void)state;
	const int64_t most = ((int64_t)1 << FAL_BFP_ROOM) - 1;
	open_round(1, 32, 0);
	make_lie(FAL_BFP_LIMIT - 1, 20, 0);
	check(add_to(1, a, none, 1), FAL_ELIMIT, "2^62 - 1 of one task");
	check(add_to(1, a, none, 8), FAL_ELIMIT, "of eight");
	make_lie((int64_t)1 << 61, 100, 0);
	check(add_to(1, a, none, 8), FAL_ELIMIT, "2^61 and needed 100");
	make_lie(0, 100, 0);
	check(add_to(1, a, none, 8), FAL_EINVAL, "zeros and needed 100");
	check(add_to(1, a, none, 1), FAL_EINVAL, "of one task");
	check((int64_t)fal_store_checksum(store, 1), 0, "added");
	for (uint32_t t = 0; t < 32; t++) {
		make_lie(t % 2 ? -most : most, 20, 0);
		check(add_to(1, (struct fal_contrib_id){ 2, t + 1 }, none, 1), 1,
		      "the most of one task");
	}
	open_delta(2);
	make_lie(1 << 23, 20, 0);
	rec.exponent = 20;
	check(add_to(2, a, none, 1), 1, "a change of weights");
	rec.exponent = 21;
	check(add_to(2, b, none, 1), FAL_EINVAL, "not the least exponent");
	make_lie((1 << 23) + 1, 20, 1);
	rec.exponent = 20;
	check(add_to(2, a, none, 1), FAL_EINVAL, "more than the exponent holds");
}

static void
checksums(void **state)
{
	(void)state;
	open_round(1, 4, 0);
	check(add(a, none, 1, 0), 1, "add");
	check(add(a, none, 1, 2), 1, "add");
	assert_true(sum_of_checksums(1) != 0);
	check((int64_t)sum_of_checksums(1), (int64_t)fal_store_checksum(store, 1),
	      "sums");
	uint64_t sent = sum_of_checksums(1);
	check(add(a, none, 1, 0), FAL_EEXIST, "again");
	check((int64_t)sum_of_checksums(1), (int64_t)sent, "sent after a refusal");
	/* A dropped record counts on neither side. */
	fal_store_fence(store, 1, a, none);
	check(add(b, a, 1, 2), 0, "dropped");
	check((int64_t)sum_of_checksums(1), (int64_t)sent, "sent after a drop");
	/* Each contribution has the checksum of its own values, under the round's seed.
	 */
	check(add(c, none, 1, 1), 1, "another one");
	const uint64_t own = fal_sum_checksum(sum, 1, 1, SEED);
	check((int64_t)brought_by(1, c).sum, (int64_t)own, "its own");
	check((int64_t)brought_by(1, a).sum, (int64_t)sent, "the other's");
	check((int64_t)brought_by(1, b).sum, 0, "of what was dropped");
	check((int64_t)fal_store_checksum(store, 1), (int64_t)(sent + own), "added");
	fal_store_drop(store, 1);
	open_round(1, 1, 0);
	check((int64_t)sum_of_checksums(1), 0, "sent in a new round");
	check((int64_t)fal_store_checksum(store, 1), 0, "added in a new round");
}

/* ---- several rounds ------------------------------------------------------------ */

/* Adds a whole contribution of one task to a round: `values` under `exps`. */
static void
bring(uint64_t round, struct fal_contrib_id id, const float *values, const int8_t *exps)
{
	check(fal_sum_quantise(sum, values, exps, FAL_BFP_ROOM, NULL), 0, "quantise");
	for (uint32_t k = 0; k < BLOCKS; k++) {
		pack_rec(sum, k, exps[k]);
		check(add_to(round, id, none, 1), 1, "add");
	}
}

static void
close_to(const float *got, const double *want, double tolerance)
{
	for (size_t i = 0; i < N; i++)
		if (fabs((double)got[i] - want[i]) > tolerance)
			fail_msg("value %zu: got %.9g, want %.9g", i, (double)got[i],
				 want[i]);
}

static void
rounds_apart(void **state)
{
	(void)state;
	open_round(5, 1, 0);
	open_round(9, 2, 0);
	open_round(3, 1, 0);
	make_rec(sum, 0);
	check(add_to(9, a, none, 1), 1, "block 0 of 9");
	check(add_to(3, a, none, 1), 1, "the same contribution of 3");
	check(add_to(3, a, none, 1), FAL_EEXIST, "again");
	check(fal_store_fence(store, 3, a, none), 0, "fence in 3");
	make_rec(sum, 1);
	check(add_to(3, a, none, 1), FAL_EFENCED, "behind its fence");
	check(add_to(9, a, none, 1), 1, "fenced in another round");
	check(add_to(4, a, none, 1), FAL_ESTATE, "a round that is not open");
	check(fal_store_fence(store, 4, a, none), FAL_ESTATE, "fence in it");
	bring(5, b, grad, fal_store_exps(store));
	check(fal_store_is_complete(store, 5), 1, "5 is complete");
	check(fal_store_is_complete(store, 9), 0, "9 is complete");
	check(fal_store_is_complete(store, 4), 0, "4 is complete");
	check(fal_store_is_whole(store, 5, b), 1, "whole in 5");
	check(fal_store_is_whole(store, 9, b), 0, "whole in 9");
	check(fal_store_merge(store, 5), 0, "merge");
	check(fal_store_fence(store, 5, a, none), FAL_ESTATE, "5 is open");
	fal_store_drop(store, 3);
	check(fal_store_fence(store, 3, a, none), FAL_ESTATE, "3 is open");
	uint32_t n;
	free(fal_store_list_contributions(store, 9, &n));
	check(n > 0, 1, "9 is open");
	/* Recycled memory is empty. */
	open_round(10, 1, 0);
	check(fal_store_checksum(store, 10) == 0, 1, "nothing in 10");
	make_rec(sum, 0);
	check(add_to(10, a, none, 1), 1, "a block of 10");
	check((int64_t)sum_of_checksums(10), (int64_t)fal_store_checksum(store, 10),
	      "sums of 10");
	if (sum_of_checksums(10) == sum_of_checksums(9))
		fail_msg("rounds 9 and 10 have the same sum");
}

static void
versions_kept(void **state)
{
	(void)state;
	static float was[6][N];
	int8_t exps[6][BLOCKS];
	const float *params;
	const int8_t *e;
	check(fal_store_find_version(store, 0, &params, &e), 1, "the newest");
	fal_store_set_retained(store, 3);
	for (uint32_t v = 0; v < 6; v++) {
		memcpy(was[v], fal_store_params(store), sizeof(was[v]));
		memcpy(exps[v], fal_store_exps(store), BLOCKS);
		const uint32_t oldest = v < 2 ? 0 : v - 2;
		check((int64_t)fal_store_oldest(store), oldest, "oldest");
		for (uint32_t o = 0; o <= v + 1; o++) {
			check(fal_store_find_version(store, o, &params, &e),
			      o >= oldest && o <= v, "is kept");
			if (o < oldest || o > v)
				continue;
			assert_memory_equal(params, was[o], sizeof(was[o]));
			assert_memory_equal(e, exps[o], BLOCKS);
		}
		if (v == 5)
			break;
		open_round(v, 1, v);
		fill(grad, v + 20);
		bring(v, a, grad, fal_store_exps(store));
		check(fal_store_merge(store, v), 0, "merge");
		fal_store_step(store,
			       &(struct fal_store_update){ .lr = 0.1f, .divisor = 1 });
	}
	fal_store_set_retained(store, 2);
	check((int64_t)fal_store_oldest(store), 4, "oldest");
	check(fal_store_find_version(store, 4, &params, &e), 1, "version 4");
	assert_memory_equal(params, was[4], sizeof(was[4]));
	fal_store_set_retained(store, 4);
	check((int64_t)fal_store_oldest(store), 4, "oldest");
	fal_store_set_retained(store, 1);
	check(fal_store_find_version(store, 4, &params, &e), 0, "version 4");
	fal_store_step(store, &(struct fal_store_update){ .lr = 0.1f, .divisor = 1 });
	check((int64_t)fal_store_oldest(store), 6, "oldest");
}

/* Two rounds on versions of different exponents, against double. */
static void
merge_aligns(void **state)
{
	(void)state;
	static float before[N];
	static double want[N];
	int8_t old[BLOCKS];
	fal_store_set_retained(store, 2);
	memcpy(old, fal_store_exps(store), BLOCKS);
	open_round(1, 1, 0);
	open_round(2, 1, 0);
	bring(1, a, grad, old);
	check(fal_store_merge(store, 1), 0, "merge");
	fal_store_step(store, &(struct fal_store_update){ .divisor = 1 });
	check(fal_store_exps(store)[0] != old[0], 1, "the exponent moved");
	open_round(3, 1, 1);
	fill(grad, 30);
	make_rec(sum, 0);
	check(add_to(2, b, none, 1), FAL_EINVAL, "of version 1 in a round of 0");
	bring(2, b, grad, old);
	for (size_t i = 0; i < N; i++)
		want[i] = (double)grad[i];
	fill(grad, 31);
	bring(3, c, grad, fal_store_exps(store));
	memcpy(before, fal_store_params(store), sizeof(before));
	check(fal_store_merge(store, 3), 0, "merge 3");
	check(fal_store_merge(store, 2), 0, "merge 2");
	/* The momentum counts the step at rate 0: momentum 0.9, the first gradient. */
	static float first[N];
	fill(first, 1);
	fal_store_step(store, &(struct fal_store_update){ .lr = 0.5f, .divisor = 4 });
	for (size_t i = 0; i < N; i++)
		want[i] = (double)before[i] - 0.5 * ((want[i] + (double)grad[i]) / 4 +
						     0.9 * (double)first[i]);
	close_to(fal_store_params(store), want, 2e-6);
	check((int64_t)fal_store_version(store), 2, "version");
}

static void
mixed_round(void **state)
{
	(void)state;
	static double want[N];
	int8_t exps[3][BLOCKS] = { { -12, -12, 3 }, { -2, -20, 3 }, { -14, 40, -60 } };
	struct fal_store_round r = {
		.round = 1, .tasks = 3, .kind = FAL_KIND_GRAD, .mixed = true
	};
	for (uint32_t t = 0; t < 3; t++) /* some version had these exponents */
		check(fal_store_install(store, 0, init, exps[t]), 0, "put");
	fal_store_open(store, &r);
	for (uint32_t k = 0; k < 2; k++) {
		const int8_t exponent = k == 0 ? -15 : -1;
		make_lie(5, (int8_t)(3 + exponent - FAL_BFP_P + 1), 0);
		pack_rec(sum, 0, exponent);
		check(add_to(1, a, none, 1), FAL_EINVAL, "an exponent of no version");
	}
	for (uint32_t t = 0; t < 3; t++) {
		fill(grad, 40 + t);
		/* Values vanish at the quantum of 2^40, and are too large at that of
		 * 2^-60. */
		for (size_t i = 0; i < N; i++)
			grad[i] = ldexpf(grad[i], t == 2 && i >= 2 * FAL_BLOCK ? -30 : 0);
		for (size_t i = 0; i < N; i++)
			want[i] = (t > 0 ? want[i] : 0) + (double)grad[i];
		bring(1, (struct fal_contrib_id){ 4, t + 1 }, grad, exps[t]);
		if (t < 2)
			check((int64_t)sum_of_checksums(1),
			      (int64_t)fal_store_checksum(store, 1), "sums");
	}
	check((int64_t)sum_of_checksums(1), (int64_t)fal_store_checksum(store, 1),
	      "sums with rounding");
	check(fal_store_is_complete(store, 1), 1, "complete");
	check(fal_store_merge(store, 1), 0, "merge");
	fal_store_step(store, &(struct fal_store_update){ .lr = 1, .divisor = 1 });
	for (size_t i = 0; i < N; i++) {
		/* At most half of the largest quantum, 2^(40-23), may be lost. */
		double tolerance = i / FAL_BLOCK == 1 ? 1.5e5 : 1e-6;
		want[i] = (double)init[i] - want[i];
		if (fabs((double)fal_store_params(store)[i] - want[i]) > tolerance)
			fail_msg("value %zu: got %.9g, want %.9g", i,
				 (double)fal_store_params(store)[i], want[i]);
	}
}

/* ---- exponents, and values that are too large -------------------------------------- */

/* Adds a block of a contribution of `tasks` tasks: `value` in each place. */
static void
bring_tasks(uint64_t round, struct fal_contrib_id id, uint32_t tasks, uint32_t block,
	    int64_t value, int8_t exponent)
{
	const int bits = value != 0 ? 64 - __builtin_clzll((uint64_t)value) : 0;
	const int needed = bits + exponent - FAL_BFP_P + 1;
	make_lie(value, (int8_t)(needed < FAL_EXP_MAX ? needed : FAL_EXP_MAX), block);
	pack_rec(sum, block, exponent);
	check(add_to(round, id, none, tasks), 1, "add");
}

static void
bring_block(uint64_t round, struct fal_contrib_id id, uint32_t block, int64_t value,
	    int8_t exponent)
{
	bring_tasks(round, id, 1, block, value, exponent);
}

static void
bring_value(uint64_t round, struct fal_contrib_id id, uint32_t tasks, int64_t value,
	    int8_t exponent)
{
	for (uint32_t k = 0; k < BLOCKS; k++)
		bring_tasks(round, id, tasks, k, value, exponent);
}

static void
what_each_brought(void **state)
{
	(void)state;
	open_round(1, 3, 0);
	for (uint32_t k = 0; k < BLOCKS; k++) {
		if (k == 2)
			fal_store_fence(store, 1, a, none);
		check(add(k < 2 ? a : c, k < 2 ? none : a, 2, k), 1, "add");
		check(add(b, none, 1, k), 1, "add");
	}
	for (uint32_t k = 0; k < 2; k++)
		check(add(c, a, 2, k), 0, "dropped");
	check(fal_store_is_complete(store, 1), 1, "complete");
	check(brought_by(1, a).blocks, 2, "blocks of a");
	check(brought_by(1, b).blocks, BLOCKS, "blocks of b");
	check(brought_by(1, c).blocks, 1, "blocks of c");
	check(brought_by(1, (struct fal_contrib_id){ 9, 1 }).blocks, 0, "of nobody");
}

/* Some version had these exponents in all blocks, and the newest version has those. */
static void
had_exponent(int8_t e, const int8_t *now)
{
	int8_t all[BLOCKS];
	memset(all, e, sizeof(all));
	check(fal_store_install(store, 0, init, all), 0, "put");
	check(fal_store_install(store, 0, init, now), 0, "put");
}

/* Blocks 0 and 1 are out of range: they and their exponents stay, the contribution with
 * the largest values is named, and block 2 steps.  Over more samples all blocks step. */
static void
blocks_out_of_range_stay(void **state)
{
	(void)state;
	static float was[N];
	int8_t exps[BLOCKS];
	memcpy(exps, fal_store_exps(store), sizeof(exps));
	had_exponent(90, exps);
	for (uint32_t k = 0; k < 2; k++) {
		const struct fal_store_round r = { .round = k,
						   .tasks = 3,
						   .kind = FAL_KIND_GRAD,
						   .version = k,
						   .mixed = true };
		fal_store_open(store, &r);
		for (uint32_t i = 0; i < BLOCKS; i++) {
			const int8_t e = i < 2 ? 90 : -12;
			bring_block(k, a, i, 1000, -12);
			bring_block(k, b, i, (int64_t)1 << 53, e);
			bring_block(k, c, i, (int64_t)1 << 52, e);
		}
		memcpy(was, fal_store_params(store), sizeof(was));
		memcpy(exps, fal_store_exps(store), sizeof(exps));
		check(fal_store_merge(store, k), 0, "merge");
		/* 3 · 2^52 quanta of 2^67, over one sample and over two */
		const struct fal_unstepped is =
			fal_store_step(store,
				       &(struct fal_store_update){ .lr = 0x1p-100f,
								   .divisor = 1 + k });
		check(is.nonfinite, 0, "refused");
		check(is.out_of_range, k == 0 ? 2 : 0, "beyond");
		check(memcmp(was, fal_store_params(store),
			     (size_t)2 * FAL_BLOCK * sizeof(float)) == 0,
		      k == 0, "blocks 0 and 1 stay");
		check(fal_store_exps(store)[0], exps[0] + (k == 0 ? 0 : FAL_EXP_RISE),
		      "exponent of block 0");
		check(fal_store_exps(store)[2], exps[2] + FAL_EXP_RISE,
		      "exponent of block 2");
		if (k > 0)
			break;
		check(fal_contrib_id_equal(is.by.id, b), 1, "the largest");
		check(is.by.exponent, 53 + 67, "its exponent");
	}
}

/* A block out of range counts in no norm: the norm of the other blocks, which is finite,
 * clips them. */
static void
blocks_out_of_range_do_not_clip(void **state)
{
	(void)state;
	const struct fal_store_conf conf = { .n = N, .optim = { .clip = 0.5 } };
	const struct fal_store_round r = {
		.round = 0, .tasks = 1, .kind = FAL_KIND_GRAD, .mixed = true
	};
	double squares[BLOCKS];
	int8_t exps[BLOCKS];
	fal_store_free(store);
	store = fal_store_new(&conf, init);
	assert_non_null(store);
	memcpy(exps, fal_store_exps(store), sizeof(exps));
	had_exponent(100, exps);
	fal_store_open(store, &r);
	for (uint32_t i = 0; i < BLOCKS; i++)
		bring_block(0, b, i, (int64_t)1 << (i == 1 ? 54 : 35),
			    i == 1 ? 100 : -12);
	check(fal_store_merge(store, 0), 0, "merge");
	fal_store_squares(store, 0, 1, squares);
	double all = 0;
	for (uint32_t i = 0; i < BLOCKS; i++) {
		const double len = fal_block_len(N, i);
		assert_true(fabs(squares[i] - (i == 1 ? 0 : len)) < 1e-9);
		all += squares[i];
	}
	check(fal_store_step(store, &(struct fal_store_update){ .lr = 1,
								.divisor = 1,
								.squares = all })
		      .out_of_range,
	      1, "beyond");
	/* All mean gradients were 1. */
	const double by = (double)init[0] - (double)fal_store_params(store)[0];
	assert_true(fabs(by - 0.5 / sqrt(all)) < 1e-6);
	assert_memory_equal(fal_store_params(store) + FAL_BLOCK, init + FAL_BLOCK,
			    FAL_BLOCK * sizeof(float));
}

/* The same in an early step. */
static void
blocks_out_of_range_stay_early(void **state)
{
	(void)state;
	static float was[N];
	const struct fal_store_round r = {
		.round = 0, .tasks = 1, .kind = FAL_KIND_GRAD, .mixed = true
	};
	const struct fal_store_step_early how = { .round = 0,
						  .lr = 0x1p-10f,
						  .divisor = 1 };
	int8_t exps[BLOCKS];
	memcpy(exps, fal_store_exps(store), sizeof(exps));
	had_exponent(90, exps);
	fal_store_open(store, &r);
	check(fal_store_step_early(store, &how), 1, "make");
	memcpy(was, fal_store_params(store), sizeof(was));
	for (uint32_t i = 0; i < BLOCKS; i++) {
		bring_block(0, b, i, (int64_t)1 << 54, i == 1 ? 90 : -12);
		fal_store_step_ready(store);
	}
	check(fal_store_merge(store, 0), 0, "merge");
	const struct fal_unstepped is =
		fal_store_step(store, &(struct fal_store_update){
					      .lr = how.lr, .divisor = how.divisor });
	check(is.out_of_range, 1, "beyond");
	check(is.nonfinite, 0, "refused");
	check(fal_contrib_id_equal(is.by.id, b), 1, "the largest");
	for (uint32_t i = 0; i < BLOCKS; i++) {
		check(memcmp(was + (size_t)i * FAL_BLOCK,
			     fal_store_params(store) + (size_t)i * FAL_BLOCK,
			     sizeof(float)) == 0,
		      i == 1, "the block stays");
		check(fal_store_exps(store)[i],
		      i == 1 ? FAL_EXP_FIRST : FAL_EXP_FIRST + 8, "its exponent");
	}
}

/* Plays one clock of gradients of about 2^size (0: zeros) in each place. */
static void
small_clock(uint64_t clock, int size)
{
	for (size_t i = 0; i < N; i++)
		grad[i] = size != 0 ? ldexpf(1 + (float)(i % 7) / 8, size - 1) : 0;
	open_round(clock, 1, clock);
	bring(clock, a, grad, fal_store_exps(store));
	check(fal_store_merge(store, clock), 0, "merge");
	check(fal_store_step(store, &(struct fal_store_update){ .lr = 1, .divisor = 1 })
		      .nonfinite,
	      0, "refused");
}

/* Gradients of 2^-40 train once the exponent, which falls by 2 a clock, is low enough.
 * They become zeros, and the exponent stays.  Gradients 2^20 larger train at once, and
 * the exponent arrives in three clocks. */
static void
small_gradients_train(void **state)
{
	(void)state;
	const struct fal_store_conf conf = { .n = N, .optim = { .kind = FAL_SGD } };
	static const int up[] = { -32, -24, -20, -20 };
	double want = 0;
	uint64_t clock = 0;
	fal_store_free(store);
	store = fal_store_new(&conf, NULL);
	assert_non_null(store);
	for (; fal_store_exps(store)[0] > -40; clock++) {
		small_clock(clock, -40);
		check(fal_store_exps(store)[0], FAL_EXP_FIRST - 2 * (int)(clock + 1),
		      "it falls");
	}
	check((int64_t)clock, 14, "clocks until it is there");
	memset(grad, 0, sizeof(grad));
	const double began = (double)fal_store_params(store)[0];
	for (; clock < 30; clock++, want -= 0x1p-41)
		small_clock(clock, -40);
	if (fabs((double)fal_store_params(store)[0] - began - want) > 1e-6 * -want)
		fail_msg("it trains: %.9g, not %.9g",
			 (double)fal_store_params(store)[0] - began, want);
	for (; clock < 60; clock++)
		small_clock(clock, 0);
	check(fal_store_exps(store)[0], -40, "zeros leave it");
	for (uint32_t k = 0; k < 4; k++, clock++) {
		const double was = (double)fal_store_params(store)[0];
		small_clock(clock, -20);
		const double by = was - (double)fal_store_params(store)[0];
		if (fabs(by - 0x1p-21) > 1e-6 * 0x1p-21)
			fail_msg("it trains at once: %.9g, not %.9g", by, 0x1p-21);
		check(fal_store_exps(store)[0], up[k], "it rises");
	}
}

/* A worker that once claims to need 2^31 times the block's range makes the block coarse
 * for four clocks, whatever others need. */
static void
a_lie_costs_four_clocks(void **state)
{
	(void)state;
	const int64_t one = (int64_t)1 << 22; /* needs e, or e - 1 */
	int8_t e = fal_store_exps(store)[0];
	open_round(0, 4, 0);
	bring_value(0, a, 2, one, e);
	for (uint32_t k = 0; k < BLOCKS; k++) {
		make_lie(0, (int8_t)(e + 31), k);
		pack_rec(sum, k, e);
		check(add_to(0, b, none, 2), 1, "the lie");
	}
	check(fal_store_merge(store, 0), 0, "merge");
	fal_store_step(store, &(struct fal_store_update){ .divisor = 4 });
	for (uint32_t k = 0; k < 4; k++) {
		check(fal_store_exps(store)[0], e + 8 - 2 * (int)k, "coarse");
		open_round(k + 1, 2, k + 1);
		bring_value(k + 1, a, 2, one >> (8 - 2 * k), fal_store_exps(store)[0]);
		check(fal_store_merge(store, k + 1), 0, "merge");
		fal_store_step(store, &(struct fal_store_update){ .divisor = 2 });
	}
	check(fal_store_exps(store)[0], e, "it is over");
}

/* Adds a change of weights: `value` · 2^(exponent - 23) in every place. */
static void
bring_change(uint64_t round, struct fal_contrib_id id, int64_t value, int8_t exponent)
{
	open_delta(round);
	for (uint32_t k = 0; k < BLOCKS; k++) {
		make_lie(value, exponent, k);
		pack_rec(sum, k, exponent);
		check(add_to(round, id, none, 1), 1, "add");
	}
}

/* A change of more than four times the largest weight, or 1, is left out, and counts as
 * no change in the mean of a slot. */
static void
too_large_changes_are_left_out(void **state)
{
	(void)state;
	static float was[N];
	const int64_t one = 1 << 23; /* 2^exponent */
	uint64_t round = 0;
	/* Weights are less than 1, then 4.5, then 20.5. */
	static const int8_t by[] = { 3, 2, 4, 7 };
	for (uint32_t k = 0; k < 4; k++) {
		struct fal_unstepped is = { 0 };
		memcpy(was, fal_store_params(store), sizeof(was));
		bring_change(++round, a, one, by[k]);
		fal_store_add_delta(store, round, 1, &is);
		fal_store_step(store, &(struct fal_store_update){ 0 });
		const bool left_out = k == 0 || k == 3;
		check(is.out_of_range, left_out ? BLOCKS : 0, "blocks left out");
		check(memcmp(was, fal_store_params(store), sizeof(was)) == 0, left_out,
		      "they stay");
		if (left_out)
			check(fal_contrib_id_equal(is.by.id, a), 1, "whose");
	}
	struct fal_unstepped is = { 0 };
	memcpy(was, fal_store_params(store), sizeof(was));
	bring_change(++round, a, one, 0);
	check(fal_store_reweight(store, round, 5, &is), 1, "rank");
	check(is.out_of_range, 0, "blocks left out");
	bring_change(++round, b, one, 90);
	check(fal_store_reweight(store, round, 5, &is), 2, "rank");
	check(is.out_of_range, BLOCKS, "blocks left out");
	fal_store_step(store, &(struct fal_store_update){ 0 });
	for (size_t i = 0; i < N; i++)
		if (fabs((double)fal_store_params(store)[i] - (double)was[i] - 0.5) >
		    1e-5)
			fail_msg("weight %zu: %.9g, not %.9g", i,
				 (double)fal_store_params(store)[i],
				 (double)was[i] + 0.5);
}

/* Weights and the optimiser's state stay finite; the other blocks step. */
static void
steps_stay_finite(void **state)
{
	(void)state;
	for (uint32_t k = 0; k < 2 * FAL_OPTIMS; k++) {
		/* Steps of adagrad and adamw are about as large as the rate. */
		const enum fal_optim_kind kind = (enum fal_optim_kind)(k % FAL_OPTIMS);
		const float lr = kind < FAL_ADAGRAD ? 0x1p118f : 0x1p126f;
		const struct fal_store_conf conf = { .n = N,
						     .optim = { .kind = kind,
								.momentum = 0.5f,
								.beta1 = 0.5,
								.beta2 = 0.9,
								.eps = 1e-8f } };
		static float before[N];
		int8_t exps[BLOCKS];
		fal_store_free(store);
		/* Block 1 is near the largest float from the start, or gets there. */
		for (size_t i = 0; i < N; i++)
			init[i] = k < FAL_OPTIMS && i / FAL_BLOCK == 1 ? 3e38f : 1;
		store = fal_store_new(&conf, init);
		assert_non_null(store);
		uint32_t refused = 0, steps = 0;
		for (; steps < 200 && refused == 0; steps++) {
			memcpy(before, fal_store_params(store), sizeof(before));
			memcpy(exps, fal_store_exps(store), BLOCKS);
			open_round(steps, 1, steps);
			for (size_t i = 0; i < N; i++)
				grad[i] = i / FAL_BLOCK == 1 ? -0x1p10f : -1;
			bring(steps, a, grad, fal_store_exps(store));
			check(fal_store_merge(store, steps), 0, "merge");
			refused = fal_store_step(store,
						 &(struct fal_store_update){
							 .lr = lr, .divisor = 1 })
					  .nonfinite;
			for (size_t i = 0; i < N; i++)
				if (!isfinite(fal_store_params(store)[i]))
					fail_msg("value %zu is %g", i,
						 (double)fal_store_params(store)[i]);
		}
		check(refused, 1, "blocks");
		check(steps >= 1 && steps < 20, 1, "steps");
		const float *now = fal_store_params(store);
		assert_memory_equal(now + FAL_BLOCK, before + FAL_BLOCK,
				    FAL_BLOCK * sizeof(float));
		check(fal_store_exps(store)[1], exps[1], "its exponent");
		check(now[0] != before[0] && now[N - 1] != before[N - 1], 1,
		      "the others went on");
	}
}

/* ---- changes of weights -------------------------------------------------------- */

/* A change of weights with the least exponents that hold it. */
static void
bring_delta(uint64_t round, const float *u)
{
	int8_t exps[BLOCKS];
	for (uint32_t k = 0; k < BLOCKS; k++)
		exps[k] = fal_exp_needed(u + (size_t)k * FAL_BLOCK, fal_block_len(N, k));
	open_delta(round);
	bring(round, a, u, exps);
}

static void
deltas_add(void **state)
{
	(void)state;
	static double want[N];
	int8_t exps[BLOCKS];
	memcpy(exps, fal_store_exps(store), BLOCKS);
	for (size_t i = 0; i < N; i++)
		want[i] = (double)init[i];
	for (uint32_t k = 0; k < 3; k++) {
		const double weight = 0.25 * (k + 1);
		fill(grad, 50 + k);
		bring_delta(k, grad);
		fal_store_add_delta(store, k, weight, &unstepped);
		for (size_t i = 0; i < N; i++)
			want[i] += weight * (double)grad[i];
	}
	check((int64_t)fal_store_version(store), 0, "version");
	fal_store_step(store, &(struct fal_store_update){ .lr = 0.1f, .divisor = 1 });
	close_to(fal_store_params(store), want, 1e-6);
	assert_memory_equal(fal_store_exps(store), exps, BLOCKS);
	check((int64_t)fal_store_version(store), 1, "version");
	/* The next step starts with no collected change. */
	bring_delta(7, grad);
	fal_store_add_delta(store, 7, 0, &unstepped);
	fal_store_step(store, &(struct fal_store_update){ .lr = 0.1f, .divisor = 1 });
	close_to(fal_store_params(store), want, 1e-6);
}

/* DynSGD: after all changes, in any order, the share is their mean; after some, the mean
 * of these; steps in between change nothing of that. */
static void
revisions_are_the_mean(void **state)
{
	(void)state;
	static const uint32_t order[2][3] = { { 0, 1, 2 }, { 2, 0, 1 } };
	static double want[N];
	static float u[N];
	for (size_t i = 0; i < N; i++)
		want[i] = (double)init[i];
	for (uint32_t turn = 0; turn < 2; turn++) {
		for (uint32_t k = 0; k < 3; k++) {
			const uint32_t w = order[turn][k];
			fill(u, 60 + w);
			bring_delta(10 * turn + k, u);
			check(fal_store_reweight(store, 10 * turn + k, 77, &unstepped),
			      k + 1, "d");
			if (k == 1) {
				fill(grad, 60 + order[turn][0]);
				for (size_t i = 0; i < N; i++)
					u[i] = (u[i] + grad[i]) / 2;
			}
			fal_store_step(store, &(struct fal_store_update){ .lr = 0.1f,
									  .divisor = 1 });
			if (k < 2) {
				static double mid[N];
				for (size_t i = 0; i < N; i++)
					mid[i] = want[i] + (double)u[i];
				close_to(fal_store_params(store), mid, 2e-6);
			}
		}
		for (uint32_t w = 0; w < 3; w++) {
			fill(u, 60 + w);
			for (size_t i = 0; i < N; i++)
				want[i] += (double)u[i] / 3;
		}
		close_to(fal_store_params(store), want, 4e-6);
		fal_store_forget_slots(store, 0, 78);
	}
	/* A forgotten slot begins anew; another slot goes on. */
	bring_delta(40, u);
	check(fal_store_reweight(store, 40, 77, &unstepped), 1, "d of a new slot");
	bring_delta(41, u);
	check(fal_store_reweight(store, 41, 78, &unstepped), 1, "d of another slot");
	fal_store_forget_slots(store, 0, 78);
	bring_delta(42, u);
	check(fal_store_reweight(store, 42, 77, &unstepped), 1, "d after forgetting");
	bring_delta(43, u);
	check(fal_store_reweight(store, 43, 78, &unstepped), 2,
	      "d of the slot that was kept");
}

static void
gradients_and_deltas(void **state)
{
	(void)state;
	static double want[N];
	static float u[N];
	open_round(1, 1, 0);
	bring(1, a, grad, fal_store_exps(store));
	fill(u, 70);
	bring_delta(2, u);
	check(fal_store_merge(store, 1), 0, "merge");
	fal_store_add_delta(store, 2, 1, &unstepped);
	fal_store_step(store, &(struct fal_store_update){ .lr = 0.5f, .divisor = 2 });
	for (size_t i = 0; i < N; i++)
		want[i] = (double)init[i] - 0.5 * (double)grad[i] / 2 + (double)u[i];
	close_to(fal_store_params(store), want, 1e-6);
}

static struct fal_store *other; /* restored from the first one */

/* A push of a quarter of a clock. */
static void
push_one(struct fal_store *s, uint64_t round, uint64_t pusher, uint32_t samples)
{
	const struct fal_store_update how = {
		.lr = 0.25f, .divisor = samples, .pusher = pusher, .part = { 0.25, 1 }
	};
	const struct fal_store_round r = { .round = round,
					   .tasks = 1,
					   .kind = FAL_KIND_GRAD,
					   .version = fal_store_version(s) };
	fal_sum_clear(sum);
	check(fal_sum_quantise(sum, grad, fal_store_exps(s), FAL_BFP_ROOM, NULL), 0,
	      "sum");
	fal_store_open(s, &r);
	for (uint32_t k = 0; k < BLOCKS; k++) {
		pack_rec(sum, k, fal_store_exps(s)[k]);
		const struct fal_store_from from = { round, a, none, 1 };
		check(fal_store_add(s, &from, &rec), 1, "record");
	}
	check(fal_store_merge(s, round), 0, "merge");
	check(fal_store_step(s, &how).nonfinite, 0, "refused");
}

/* Restores the other store from the first one. */
static void
restore_other(const struct fal_store_conf *conf)
{
	struct fal_image is = { 0 }, live = { 0 };
	check(fal_store_image(store, fal_store_version(store), &is), 0, "image");
	other = fal_store_new(conf, NULL);
	check(fal_store_restore_begin(other, &is.is), 0, "become");
	check(fal_store_image(other, is.is.version, &live), 0, "image");
	check(live.arrays, is.arrays, "arrays");
	for (uint32_t k = 0; k < is.arrays; k++)
		memcpy(live.array[k].p, is.array[k].p, is.array[k].bytes);
	fal_store_restore_end(other);
	fal_image_free(&is);
	fal_image_free(&live);
}

/* Each pusher has a momentum of its own, which ends the common one; a pusher that left
 * begins anew: the path of the first weight, by the formula.  A restored store goes on
 * the same. */
static void
pushes_have_a_momentum_each(void **state)
{
	(void)state;
	static const uint64_t by[] = { 0, 1, 2, 1, 3, 2, 1, 9, 1, 3, 2, 9 };
	enum { PUSHES = sizeof(by) / sizeof(by[0]), LEAVES = 8, MOVES = 10 };
	double m[10] = { 0 }, want = (double)init[0];
	for (uint32_t i = 0; i < N; i++)
		grad[i] = 0.0001f;
	const struct fal_store_conf conf = {
		.n = N, .optim = { .kind = FAL_MOMENTUM, .momentum = 0.9f }
	};
	for (uint32_t i = 0; i < PUSHES; i++) {
		const uint64_t of = by[i];
		if (i == LEAVES) {
			fal_store_forget_slots(store, 1, 2);
			m[1] = 0;
		}
		if (i == MOVES)
			restore_other(&conf);
		push_one(store, i, of, 1);
		if (i >= MOVES)
			push_one(other, i, of, 1);
		m[of] = 0.9 * m[of] + 0.25 * 0.0001;
		want -= 0.25 * m[of];
		if (fabs((double)fal_store_params(store)[0] - want) > 1e-6)
			fail_msg("push %u: got %.9g, want %.9g", i,
				 (double)fal_store_params(store)[0], want);
	}
	same_params(fal_store_params(other), "of the image");
	fal_store_free(other);
}

/* A restored store has the corrections of adamw's parts of a clock, too. */
static void
parts_stay_in_an_image(void **state)
{
	(void)state;
	const struct fal_store_conf conf = {
		.n = N,
		.optim = { .kind = FAL_ADAMW, .beta1 = 0.9, .beta2 = 0.999, .eps = 1e-8f }
	};
	fal_store_free(store);
	store = fal_store_new(&conf, init);
	for (uint32_t i = 0; i < 5; i++)
		push_one(store, i, 1, 1);
	restore_other(&conf);
	push_one(store, 5, 2, 1);
	push_one(other, 5, 2, 1);
	same_params(fal_store_params(other), "of the image");
	fal_store_free(other);
}

static void
memory_needed(void **state)
{
	(void)state;
	struct fal_store_conf sgd = { .n = N }, momentum = sgd;
	momentum.optim.kind = FAL_MOMENTUM;
	const struct fal_store_limits one = { .versions = 1, .rounds = 1 };
	struct fal_store_limits three = one, lines = one, outer;
	three.versions = three.rounds = lines.lines = 3;
	const size_t least = fal_store_bytes(&sgd, &one),
		     more = fal_store_bytes(&momentum, &one);
	assert_true(least >= N * sizeof(float) + fal_sum_bytes(N));
	check((int64_t)(more - least), N * sizeof(float), "bytes of the momentum");
	/* The collected pushes; for each branch: model, base, momentum, exponents. */
	check((int64_t)(fal_store_bytes(&sgd, &three) - least),
	      (int64_t)(2 * (N * sizeof(float) + BLOCKS + fal_sum_bytes(N))),
	      "bytes of two versions and rounds");
	check((int64_t)(fal_store_bytes(&momentum, &lines) - more),
	      N * sizeof(float) + 3 * (3 * N * sizeof(float) + BLOCKS),
	      "bytes of three lines");
	outer = one;
	outer.pushers = 3;
	check((int64_t)(fal_store_bytes(&momentum, &outer) - more), 3 * N * sizeof(float),
	      "bytes of three pushers' momentum");
	momentum.optim.one_momentum = true;
	check((int64_t)(fal_store_bytes(&momentum, &outer) - more), 0,
	      "bytes of one for all");
	outer = lines;
	outer.outer = true;
	check((int64_t)(fal_store_bytes(&sgd, &outer) - fal_store_bytes(&sgd, &lines)),
	      N * sizeof(float), "bytes of an outer step's momentum");
	check((int64_t)(fal_store_image_bytes(&momentum, &three) -
			fal_store_image_bytes(&sgd, &one)),
	      N * sizeof(float) + 2 * (N * sizeof(float) + BLOCKS),
	      "bytes of an image's momentum and two versions");
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
		TEST(skipped_tasks_count),
		TEST(nothing_is_no_step),
		TEST(fenced_before_it_came),
		TEST(many_contributions),
		TEST(update_is_the_naive_one),
		TEST(room_is_for_all),
		TEST(checksums),
		TEST(what_each_brought),
		TEST(blocks_out_of_range_stay),
		TEST(blocks_out_of_range_do_not_clip),
		TEST(blocks_out_of_range_stay_early),
		TEST(small_gradients_train),
		TEST(a_lie_costs_four_clocks),
		TEST(too_large_changes_are_left_out),
		TEST(steps_stay_finite),
		TEST(rounds_apart),
		TEST(versions_kept),
		TEST(merge_aligns),
		TEST(mixed_round),
		TEST(deltas_add),
		TEST(revisions_are_the_mean),
		TEST(gradients_and_deltas),
		TEST(pushes_have_a_momentum_each),
		TEST(parts_stay_in_an_image),
		TEST(memory_needed),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
