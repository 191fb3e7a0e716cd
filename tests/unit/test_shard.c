/* Shards: any number of shards makes the same versions, bit for bit, and the same says,
 * from the same orders and pushes.  Sizes, orders and lies are drawn from SEED, which is
 * printed; FAL_TEST_SEED sets another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "../taking.h"
#include "base/branch.h"
#include "base/rng.h"
#include "server/shard_set.h"
#include "wire/bfp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 9 * FAL_BLOCK, RACKS = 4, TASKS = 4 };

static struct fal_rng rng;
static size_t n;
static uint32_t blocks;
static float init[MOST], grad[MOST];
static struct fal_shard_set *shard_set[RACKS]; /* shard_set r has r + 1 shards */
static struct fal_diag diag;

/* The says of a shard_set about the round since the last reset. */
static struct said {
	uint32_t arrived, whole, complete, beyond;
	uint64_t sent, added;
	uint32_t ended, stepped;
} said[RACKS];

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld (%s)", what, (long long)got,
			 (long long)want, diag.text);
}

static void
note_result(uint32_t r, struct fal_shard_result *result)
{
	for (size_t k = 0; k < result->n; k++) {
		const struct fal_shard_report s = result->v[k];
		struct said *to = &said[r];
		assert_true(s.shard < fal_shard_set_count(shard_set[r]));
		to->arrived += s.kind == FAL_REPORT_ARRIVED ? s.blocks : 0;
		to->whole += s.kind == FAL_REPORT_ARRIVED && s.whole;
		to->complete += s.kind == FAL_REPORT_COMPLETE;
		to->beyond += s.beyond;
		to->ended += s.kind == FAL_REPORT_ENDED;
		to->stepped += s.kind == FAL_REPORT_STEPPED;
		for (uint32_t i = 0; i < s.broughts && s.kind == FAL_REPORT_ENDED; i++)
			to->sent += s.brought[i].sum;
		to->added += s.added;
		assert_null(s.odd);
	}
	fal_shard_result_free(result);
}

static void
order(struct fal_shard_order o)
{
	for (uint32_t r = 0; r < RACKS; r++) {
		struct fal_shard_result result = { 0 };
		check(fal_shard_set_order(shard_set[r], &o, &result), 0, "an order");
		note_result(r, &result);
	}
}

static void
reset_said(void)
{
	memset(said, 0, sizeof(said));
}

/* Makes a task's gradient, quantised with the exponents of the version. */
static struct fal_sum *
gradient(uint64_t version, float scale, int8_t *exps)
{
	struct fal_sum *sum = fal_sum_new(n);
	struct fal_shard_part part;
	assert_true(fal_shard_set_part(shard_set[0], 0, version, &part));
	memcpy(exps, part.exps, blocks);
	for (size_t i = 0; i < n; i++)
		grad[i] = scale * (fal_rng_unit(&rng) - 0.5f);
	check(fal_sum_quantise(sum, grad, exps, fal_bfp_room(TASKS), NULL), 0,
	      "quantise");
	return sum;
}

/* Pushes some blocks of such a gradient to all shard_sets. */
static int
push(const struct fal_ticket *t, uint64_t version, float scale, uint32_t from,
     uint32_t to)
{
	int8_t exps[MOST / FAL_BLOCK];
	struct fal_sum *sum = gradient(version, scale, exps);
	struct fal_buf records = { 0 };
	int err = FAL_OK;
	for (uint32_t b = from; b < to; b++)
		check(fal_sum_pack(sum, b, exps[b], &records), 0, "pack");
	const struct fal_tail tail = { records.p, records.n };
	for (uint32_t r = 0; r < RACKS; r++) {
		struct fal_shard_result result = { 0 };
		const int got =
			fal_shard_set_push(shard_set[r], t, &tail, &result, &diag);
		if (r > 0)
			check(got, err, "as with one shard");
		err = got;
		note_result(r, &result);
	}
	fal_buf_free(&records);
	fal_sum_free(sum);
	return err;
}

static uint32_t epoch; /* of the first map */

static void
make_shard_set(uint32_t r)
{
	const struct fal_shard_set_conf conf = {
		.shards = r + 1,
		.tickets = { .epoch = epoch },
		.each = { .n = n,
			  .tasks = TASKS,
			  .optim = { .kind = FAL_NESTEROV, .momentum = 0.9f },
			  .checksums = true },
	};
	shard_set[r] = fal_shard_set_new(&conf, init);
	assert_non_null(shard_set[r]);
	check(fal_shard_set_count(shard_set[r]), r + 1, "shards");
}

static int
begin(void **state)
{
	(void)state;
	const char *given = getenv("FAL_TEST_SEED");
	const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1;
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	print_message("# seed %llu\n", (unsigned long long)seed);
	n = FAL_BLOCK * 4 + 1 + fal_rng_below(&rng, MOST - 4 * FAL_BLOCK);
	blocks = fal_blocks(n);
	for (size_t i = 0; i < n; i++)
		init[i] = fal_rng_unit(&rng) - 0.5f;
	for (uint32_t r = 0; r < RACKS; r++)
		make_shard_set(r);
	order((struct fal_shard_order){ .kind = FAL_ORDER_RETAIN, .versions = 2 });
	reset_said();
	return 0;
}

static int
end(void **state)
{
	(void)state;
	for (uint32_t r = 0; r < RACKS; r++)
		fal_shard_set_free(shard_set[r]);
	return 0;
}

static void
same_versions(uint64_t version)
{
	const float *want = fal_shard_set_params(shard_set[0], version);
	assert_non_null(want);
	for (uint32_t r = 1; r < RACKS; r++) {
		const float *got = fal_shard_set_params(shard_set[r], version);
		assert_non_null(got);
		assert_memory_equal(got, want, n * sizeof(*got));
		check((int64_t)(said[r].sent - said[0].sent), 0, "sent");
		check((int64_t)(said[r].added - said[0].added), 0, "added");
		check(said[r].arrived, said[0].arrived, "blocks");
	}
	check((int64_t)(said[0].sent - said[0].added), 0, "sent and added");
}

static struct fal_facts
facts(uint64_t version)
{
	return (struct fal_facts){ .version = version,
				   .tasks = TASKS,
				   .kind = FAL_KIND_GRAD };
}

static void
open_round(uint64_t round, uint64_t version)
{
	order((struct fal_shard_order){
		.kind = FAL_ORDER_OPEN, .round = round, .facts = facts(version) });
}

static void
end_and_step(uint64_t round)
{
	order((struct fal_shard_order){
		.kind = FAL_ORDER_END, .round = round, .end = FAL_END_MERGE });
	order((struct fal_shard_order){
		.kind = FAL_ORDER_STEP, .lr = 0.1f, .divisor = TASKS, .versions = 2 });
	for (uint32_t r = 0; r < RACKS; r++) {
		check(said[r].ended, r + 1, "ended");
		check(said[r].stepped, r + 1, "stepped");
	}
}

/* Rounds of four contributions, some of which die half-way and are filled. */
static void
placements_make_equal_versions(void **state)
{
	(void)state;
	for (uint64_t round = 1; round <= 12; round++) {
		/* OPEN comes late, or after all pushes. */
		const uint32_t opens = 1 + fal_rng_below(&rng, TASKS + 1);
		reset_said();
		for (uint32_t i = 1; i <= TASKS; i++) {
			struct fal_ticket t = { round, { i, 1 },         { 0, 0 },
						1,     facts(round - 1), 0 };
			if (i == opens)
				open_round(round, round - 1);
			uint32_t came = blocks;
			if (fal_rng_below(&rng, 3) == 0)
				came = fal_rng_below(&rng, blocks);
			/* In two messages, cut at a random place. */
			const uint32_t cut = fal_rng_below(&rng, came + 1);
			check(push(&t, round - 1, 1, 0, cut), 0, "push");
			check(push(&t, round - 1, 1, cut, came), 0, "push");
			if (came == blocks)
				continue;
			order((struct fal_shard_order){
				.kind = FAL_ORDER_FENCE, .round = round, .id = t.id });
			check(push(&t, round - 1, 1, came, blocks), 0, "a late push");
			t.fills = t.id;
			t.id = (struct fal_contrib_id){ 9, i };
			check(push(&t, round - 1, 1, 0, blocks), 0, "a fill");
		}
		if (opens > TASKS)
			open_round(round, round - 1);
		for (uint32_t r = 0; r < RACKS; r++) {
			check(said[r].complete, r + 1, "complete");
			check(said[r].arrived, (int64_t)blocks * TASKS, "blocks");
			check(said[r].beyond, 0, "beyond");
		}
		check(said[0].whole, TASKS, "whole");
		end_and_step(round);
		same_versions(round);
	}
}

/* Plays four contributions, and the step, which may be marked. */
static void
whole_round(uint64_t round, float scale, bool mark)
{
	reset_said();
	open_round(round, round - 1);
	for (uint32_t i = 1; i <= TASKS; i++) {
		const struct fal_ticket t = { round, { i, 1 },         { 0, 0 },
					      1,     facts(round - 1), 0 };
		check(push(&t, round - 1, scale, 0, blocks), 0, "push");
	}
	order((struct fal_shard_order){
		.kind = FAL_ORDER_END, .round = round, .end = FAL_END_MERGE });
	order((struct fal_shard_order){ .kind = FAL_ORDER_STEP,
					.lr = 0.1f,
					.divisor = TASKS,
					.versions = 2,
					.mark = mark });
	same_versions(round);
}

/* Replaces shard_set `to` by one that is restored from the image of shard_set `from`. */
static void
replace(uint32_t from, uint32_t to, uint64_t version)
{
	struct fal_image image[RACKS];
	const uint32_t shards = fal_shard_set_count(shard_set[from]);
	assert_false(fal_shard_set_take_marked(shard_set[from], version + 1, image));
	assert_true(fal_shard_set_take_marked(shard_set[from], version, image));
	fal_shard_set_free(shard_set[to]);
	make_shard_set(to);
	struct taking t = { .image = image, .shards = shards };
	check(fal_shard_set_restore(shard_set[to], &image[0].is, taking_fill, &t), 0,
	      "become");
	check(t.asked, (int64_t)image[0].arrays * (to + 1), "arrays");
	check(t.array, image[0].arrays, "nothing is left");
	for (uint32_t i = 0; i < shards; i++)
		fal_shard_set_recycle_image(shard_set[from], i,
					    &image[i]); /* so a mark is possible again */
	assert_false(fal_shard_set_take_marked(
		shard_set[from], version,
		image)); /* the first call has taken the image */
}

static int
untaken(void *arg, const struct fal_image_array *a)
{
	(void)arg;
	fail_msg("bytes are asked for: %s", a->name);
	return FAL_OK;
}

/* Numbers that no image has are refused.  fuzz_image found the first. */
static void
impossible_images_are_refused(void **state)
{
	static const struct fal_image_head heads[] = {
		{ .version = UINT64_C(1) << 40 }, /* a branch's version */
		{ .version = 3, .olds = 4 },
		{ .version = UINT64_C(1) << 39, .olds = UINT32_MAX },
		{ .version = 3, .holds = true, .held = 4 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(heads) / sizeof(heads[0]); i++) {
		fal_shard_set_free(shard_set[0]);
		make_shard_set(0);
		check(fal_shard_set_restore(shard_set[0], &heads[i], untaken, NULL),
		      FAL_EINVAL, "become");
	}
}

/* Shards restored from images of others, with other runs of blocks, go on like the
 * others: with the same versions, and the same held version. */
static void
restored_shards_go_on(void **state)
{
	(void)state;
	const uint64_t last = 2 + fal_rng_below(&rng, 20);
	const uint64_t held = 1 + fal_rng_below(&rng, (uint32_t)last);
	const uint64_t loud = last - fal_rng_below(&rng, last < 12 ? (uint32_t)last : 12);
	for (uint64_t round = 1; round <= last; round++) {
		whole_round(round, round == loud ? 64 : 1, round == last);
		if (round != held)
			continue;
		order((struct fal_shard_order){ .kind = FAL_ORDER_PIN,
						.version = round });
		if (round == last) /* the held version is a part of the image */
			order((struct fal_shard_order){ .kind = FAL_ORDER_SNAPSHOT,
							.version = round });
	}
	replace(0, 2, last);
	replace(3, 1, last);
	same_versions(last);
	same_versions(last - 1);
	same_versions(held);
	for (uint64_t round = last + 1; round <= last + 3; round++) {
		whole_round(round, 1, false);
		same_versions(held);
	}
	/* Once more, with recycled memory. */
	order((struct fal_shard_order){ .kind = FAL_ORDER_SNAPSHOT,
					.version = last + 3 });
	replace(0, 3, last + 3);
	same_versions(last + 3);
	same_versions(held);
}

/* Each shard refuses the same pushes, without an effect. */
static void
refusals_are_equal(void **state)
{
	(void)state;
	const struct fal_ticket t = { 2, { 1, 1 }, { 0, 0 }, 1, facts(0), 0 };
	const struct fal_ticket late = { 1, { 1, 1 }, { 0, 0 }, 1, facts(0), 0 };
	const struct fal_ticket soon = { 7, { 1, 1 }, { 0, 0 }, 1, facts(1), 0 };
	const struct fal_tail rubbish = { (const uint8_t *)"\1\2\3", 3 };
	open_round(2, 0);
	check(push(&soon, 0, 1, 0, blocks), FAL_ESTATE, "on a version to come");
	check(push(&late, 0, 1, 0, blocks), 0, "a round that is over");
	check(said[0].arrived, 0, "blocks");
	check(push(&t, 0, 1, 0, 2), 0, "push");
	check(push(&t, 0, 1, 0, 1), FAL_EEXIST, "a block twice");
	for (uint32_t r = 0; r < RACKS; r++) {
		struct fal_shard_result result = { 0 };
		assert_true(fal_shard_set_push(shard_set[r], &t, &rubbish, &result,
					       &diag) < 0);
		note_result(r, &result);
	}
	check(said[0].arrived, 2, "blocks");
	same_versions(0);
}

/* Writes records of all blocks in random order, some of them bad; returns the number of
 * bad ones. */
static uint32_t
put_some_bad(uint64_t version, struct fal_buf *records)
{
	int8_t exps[MOST / FAL_BLOCK];
	uint32_t at[MOST / FAL_BLOCK], good = 0;
	struct fal_sum *sum = gradient(version, 1, exps);
	for (uint32_t b = 0; b < blocks; b++) {
		const uint32_t k = fal_rng_below(&rng, b + 1);
		at[b] = at[k];
		at[k] = b;
	}
	for (uint32_t i = 0; i < blocks; i++) {
		const uint32_t b = at[i], how = fal_rng_below(&rng, 6);
		const uint32_t times = how == 0 ? 2 : 1;
		for (uint32_t k = 0; k < times; k++)
			check(fal_sum_pack(sum, b, (int8_t)(exps[b] + (how == 1)),
					   records),
			      0, "pack");
		good += how != 1;
	}
	fal_sum_free(sum);
	return good;
}

/* A record counts whatever else its push contains, and whichever shard it is for: good
 * records count, and the push is refused. */
static void
good_records_count_beside_bad_ones(void **state)
{
	(void)state;
	for (uint64_t round = 1; round <= 8; round++) {
		reset_said();
		open_round(round, round - 1);
		for (uint32_t i = 1; i <= TASKS; i++) {
			const struct fal_ticket t = { round, { i, 1 },         { 0, 0 },
						      1,     facts(round - 1), 0 };
			const struct fal_ticket fill = { round, { 9, i }, t.id,
							 1,     t.facts,  0 };
			const bool fenced = fal_rng_below(&rng, 4) == 0;
			const bool cut = fal_rng_below(&rng, 2) == 0;
			const struct fal_shard_order o = { .kind = FAL_ORDER_FENCE,
							   .round = round,
							   .id = t.id };
			const uint32_t before = said[0].arrived;
			struct fal_buf records = { 0 };
			const uint32_t good = put_some_bad(round - 1, &records);
			if (cut)
				fal_put_bytes(&records, "\1\2\3", 3);
			if (fenced)
				order(o);
			const struct fal_tail tail = { records.p, records.n };
			bool was = false;
			for (uint32_t r = 0; r < RACKS; r++) {
				struct fal_shard_result result = { 0 };
				const bool is =
					fal_shard_set_push(shard_set[r], &t, &tail,
							   &result, &diag) < 0;
				if (r > 0)
					check(is, was, "refused, as with one shard");
				was = is;
				note_result(r, &result);
				check(said[r].arrived - before, fenced ? 0 : good,
				      "blocks");
			}
			if (fenced)
				check(was, cut, "what nobody listens to is refused");
			else
				order(o);
			check(push(&fill, round - 1, 1, 0, blocks), 0, "fill");
			fal_buf_free(&records);
		}
		check(said[0].arrived, TASKS * blocks, "blocks");
		end_and_step(round);
		same_versions(round);
	}
}

/* KEEP never keeps more versions than FAL_KEPT_MAX. */
static void
kept_versions_are_limited(void **state)
{
	(void)state;
	const uint64_t last = FAL_KEPT_MAX + 20;
	for (uint64_t v = 1; v <= last; v++)
		order((struct fal_shard_order){
			.kind = FAL_ORDER_STEP, .version = v, .versions = 1000 });
	for (uint32_t r = 0; r < RACKS; r++) {
		assert_non_null(
			fal_shard_set_params(shard_set[r], last - FAL_KEPT_MAX + 1));
		assert_null(fal_shard_set_params(shard_set[r], last - FAL_KEPT_MAX));
	}
}

/* A held version stays. */
static void
held_version_stays(void **state)
{
	(void)state;
	whole_round(1, 1, false);
	order((struct fal_shard_order){ .kind = FAL_ORDER_PIN, .version = 1 });
	for (uint64_t round = 2; round <= 4; round++)
		whole_round(round, 1, false);
	same_versions(1);
	assert_null(fal_shard_set_params(shard_set[1], 2));
}

/* A fence that comes before OPEN is kept, for a limited number of rounds. */
static void
early_fences_are_kept(void **state)
{
	(void)state;
	struct fal_shard_order o = { .kind = FAL_ORDER_FENCE, .id = { 1, 1 } };
	for (uint64_t round = 1; round <= TASKS; round++) {
		o.round = round;
		order(o);
	}
	o.round++;
	for (uint32_t r = 0; r < RACKS; r++)
		check(fal_shard_set_order(shard_set[r], &o, NULL), FAL_ELIMIT,
		      "one too many");
	for (uint64_t round = 1; round <= TASKS; round++) {
		const struct fal_ticket t = { round, { 1, 1 }, { 0, 0 }, 1, facts(0), 0 };
		const struct fal_ticket other = { round, { 2, 1 }, { 0, 0 },
						  1,     facts(0), 0 };
		reset_said();
		check(push(&t, 0, 1, 0, blocks), 0, "what is fenced");
		check(said[0].arrived, 0, "blocks");
		check(push(&other, 0, 1, 0, blocks), 0, "another one");
		check(said[0].arrived, blocks, "blocks");
	}
	order(o); /* OPEN has made room */
}

/* The result of a call has the answers of all shards behind what the result had before.
 */
static void
results_have_the_answers_of_all(void **state)
{
	(void)state;
	const struct fal_shard_order o = { .kind = FAL_ORDER_FENCE, .id = { 1, 1 } };
	for (uint32_t r = 0; r < RACKS; r++) {
		struct fal_shard_result result = { 0 };
		check(fal_shard_set_order(shard_set[r], &o, &result), 0, "an order");
		check(fal_shard_set_order(shard_set[r], &o, &result), 0, "another one");
		check((int64_t)result.n, 2 * (r + 1), "answers");
		for (uint32_t i = 0; i < result.n; i++)
			check(result.v[i].shard, i % (r + 1), "in their order");
		fal_shard_result_free(&result);
	}
}

/* ---- orders that no coordinator gives ---- */

static uint32_t
some(uint32_t most)
{
	return fal_rng_below(&rng, most + 1);
}

static double
odd_number(void)
{
	static const double odd[] = { 0, 1, TASKS, -1, 1e300, 1e-300, NAN, INFINITY };
	return odd[some(7)];
}

static uint64_t
some_version(void)
{
	return fal_branch_version(some(3) == 0 ? some(2) : 0, some(3));
}

static struct fal_shard_order
any_order(struct fal_map *map)
{
	struct fal_shard_order o = {
		.kind = (enum fal_order_kind)some(FAL_ORDER_ABORT),
		.round = some(2),
		.version = some_version(),
		.facts = { some_version(), some(TASKS),
			   (enum fal_kind)some(FAL_KIND_CHECK), some(1) != 0 },
		.id = { some(2), some(1) },
		.fills = { some(2), some(1) },
		.end = (enum fal_end)some(FAL_END_DROP),
		.weight = odd_number(),
		.divisor = odd_number(),
		.squares = odd_number(),
		.clipped = some(4) == 0,
		.ahead = some(3) == 0,
		.lr = (float)odd_number(),
		.slot = some(2),
		.below = some(2),
		.branch = some(2),
		.versions = some(9) == 0 ? UINT32_MAX : some(3),
		.mark = some(3) == 0,
		.hash = some(3) == 0,
	};
	fal_map_even(map, blocks, 1 + some(RACKS));
	if (some(1) != 0)
		(void)fal_map_drain(map, some(7));
	map->epoch = some(3);
	if (o.kind == FAL_ORDER_MIGRATE_BEGIN)
		o.map = map;
	return o;
}

/* Any order is executed or refused. */
static void
any_orders(void **state)
{
	(void)state;
	uint32_t refusals = 0, most = 0;
	for (uint32_t i = 0; i < 1200; i++) {
		const uint32_t r = i % RACKS;
		struct fal_map map;
		uint32_t n_of = 0;
		fal_shard_set_free(shard_set[r]);
		make_shard_set(r);
		for (int err = FAL_OK; err == FAL_OK && n_of < 60; n_of++) {
			const struct fal_shard_order o = any_order(&map);
			struct fal_shard_result result = { 0 };
			err = fal_shard_set_order(shard_set[r], &o, &result);
			refusals += err < 0;
			for (size_t k = 0; k < result.n; k++)
				assert_true(result.v[k].shard <
					    fal_shard_set_count(shard_set[r]));
			fal_shard_result_free(&result);
		}
		most = n_of > most ? n_of : most;
	}
	assert_in_range(refusals, 100, 1200);
	assert_in_range(most, 20, 60);
}

/* A push by an older map counts nowhere, and is no fault; a push by an unknown map is. */
static void
pushes_by_other_maps(void **state)
{
	end(state);
	epoch = 2 + fal_rng_below(&rng, 5);
	begin(state);
	open_round(1, 0);
	struct fal_ticket t = { 1, { 1, 1 }, { 0, 0 }, 1, facts(0), epoch - 1 };
	check(push(&t, 0, 1, 0, blocks), 0, "by the map before");
	check(said[0].arrived, 0, "blocks of it");
	t.epoch = epoch + 1;
	check(push(&t, 0, 1, 0, blocks), FAL_ESTATE, "by no map");
	check(said[0].arrived, 0, "blocks of that");
	t.epoch = epoch;
	check(push(&t, 0, 1, 0, blocks), 0, "by the map");
	check(said[0].arrived, blocks, "blocks");
	epoch = 0;
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_setup_teardown(f, begin, end)
	const struct CMUnitTest tests[] = {
		TEST(kept_versions_are_limited),
		TEST(placements_make_equal_versions),
		TEST(restored_shards_go_on),
		TEST(impossible_images_are_refused),
		TEST(refusals_are_equal),
		TEST(good_records_count_beside_bad_ones),
		TEST(held_version_stays),
		TEST(early_fences_are_kept),
		TEST(results_have_the_answers_of_all),
		TEST(any_orders),
		TEST(pushes_by_other_maps),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
