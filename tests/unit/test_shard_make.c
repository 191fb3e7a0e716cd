/* Early steps: a version that is made block by block, while its round is not complete,
 * equals the version made at once.  One shard is ordered to step early, its twin after
 * all pushes; both get the same pushes, of contributions that are cut at random, fenced,
 * filled, or out of range.  All is drawn from SEED, which is printed; FAL_TEST_SEED sets
 * another one. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include "base/rng.h"
#include "server/shard.h"
#include "trace/chain.h"
#include "wire/bfp.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCKS = 9, TASKS = 6, PARTS = 64, CLOCKS = 5, EARLY = 0, TWIN = 1 };

static struct fal_rng rng;
static size_t n;
static uint32_t blocks, first, slack;
static bool averages;
static struct fal_shard *shard[2];
static struct fal_diag diag;
static struct { /* numbers of events */
	uint32_t halves, fences, beyond, refused;
} met;

/* The says of a shard since the last reset. */
static struct said {
	uint32_t complete, beyond, ended, stepped;
	struct fal_contrib_id by; /* the contribution with the largest value, if blocks
				   * are out of range */
	uint64_t sent, added;
	bool odd;
	uint8_t leaves[BLOCKS * FAL_HASH_BYTES];
} said[2];

/* A contribution. */
struct part {
	struct fal_contrib_id id, fills;
	uint32_t tasks;
	const struct fal_sum *sum;
	const int8_t *exps;      /* of that value */
	bool had[BLOCKS];        /* brought by it, or by the contribution that it fills */
	uint32_t order[BLOCKS];  /* in the order of its pushes, */
	uint32_t pushed, pushes; /* … this many, then it is fenced */
	bool over;
};

static struct round {
	uint64_t round;
	struct fal_facts facts;
	struct part part[PARTS];
	uint32_t parts, alive;
	struct fal_sum *sum[TASKS], *odd;
	int8_t exps[BLOCKS], odd_exps[BLOCKS];
	uint32_t counted[BLOCKS];
	bool opened, ordered;
} rounds[2];

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld (%s)", what, (long long)got,
			 (long long)want, diag.text);
}

static uint32_t
below(uint32_t most)
{
	return fal_rng_below(&rng, most);
}

static void
note_result(uint32_t i, struct fal_shard_result *result)
{
	struct said *to = &said[i];
	for (size_t j = 0; j < result->n; j++) {
		const struct fal_shard_report s = result->v[j];
		to->complete += s.kind == FAL_REPORT_COMPLETE;
		to->beyond += s.beyond;
		to->by = s.beyond > 0 ? s.id : to->by;
		to->ended += s.kind == FAL_REPORT_ENDED;
		to->stepped += s.kind == FAL_REPORT_STEPPED;
		to->odd |= s.odd != NULL;
		to->added += s.added;
		for (uint32_t k = 0; k < s.broughts && s.kind == FAL_REPORT_ENDED; k++)
			to->sent += s.brought[k].sum;
		if (s.leaves != NULL)
			memcpy(to->leaves, s.leaves, (size_t)blocks * FAL_HASH_BYTES);
	}
	fal_shard_result_free(result);
}

static void
order_one(uint32_t i, struct fal_shard_order o)
{
	struct fal_shard_result result = { 0 };
	check(fal_shard_order(shard[i], &o, &result), 0, "an order");
	note_result(i, &result);
}

static void
order(struct fal_shard_order o)
{
	order_one(EARLY, o);
	order_one(TWIN, o);
}

/* ---- the shards' versions -----------------------------------------------------------
 */

/* Both shards have the same whole version, whatever an early step does. */
static void
same_version(uint64_t version)
{
	const float *p, *q;
	const int8_t *e, *f;
	if (!fal_shard_find_version(shard[TWIN], version, &q, &f))
		return;
	assert_true(fal_shard_find_version(shard[EARLY], version, &p, &e));
	assert_memory_equal(p, q, n * sizeof(*p));
	assert_memory_equal(e, f, blocks);
}

/* Exactly the complete blocks have stepped. */
static void
check_stepped_blocks(const struct round *r)
{
	struct fal_shard_making m;
	const uint64_t version = fal_shard_version(shard[EARLY]);
	const bool makes = fal_shard_making(shard[EARLY], &m);
	for (uint64_t v = version > slack ? version - slack : 0; v <= version; v++)
		same_version(v);
	if (!r->ordered || version == r->round || averages) {
		/* The end of the next round may be ordered, too. */
		assert_true(!makes || !averages);
		return;
	}
	assert_true(makes);
	met.halves++;
	check((int64_t)m.version, (int64_t)r->round, "version that is made");
	for (uint32_t b = 0; b < blocks; b++)
		check(m.made[b], r->counted[b] == TASKS, "made");
}

static const struct fal_image_array *
find(const struct fal_image *m, const char *name)
{
	for (uint32_t i = 0; i < m->arrays; i++)
		if (strcmp(m->array[i].name, name) == 0)
			return &m->array[i];
	return NULL;
}

static void
same_image(void)
{
	struct fal_image a = { 0 }, b = { 0 };
	check(fal_shard_image(shard[EARLY], &a), 0, "image");
	check(fal_shard_image(shard[TWIN], &b), 0, "image");
	check((int64_t)a.is.version, (int64_t)b.is.version, "version");
	check((int64_t)a.is.steps, (int64_t)b.is.steps, "steps");
	for (uint32_t i = 0; i < b.arrays; i++) {
		const struct fal_image_array *is = find(&a, b.array[i].name);
		assert_non_null(is);
		check((int64_t)is->bytes, (int64_t)b.array[i].bytes, is->name);
		assert_memory_equal(is->p, b.array[i].p, is->bytes);
	}
	fal_image_free(&a);
	fal_image_free(&b);
}

/* ---- rounds ------------------------------------------------------------------------ */

static void
shuffle(struct part *p)
{
	for (uint32_t b = 0; b < blocks; b++) {
		const uint32_t k = below(b + 1);
		p->order[b] = p->order[k];
		p->order[k] = b;
	}
	p->pushes = below(4) == 0 ? below(blocks) : blocks;
}

static struct part *
add_part(struct round *r, struct part is)
{
	assert_true(r->parts < PARTS);
	struct part *p = &r->part[r->parts++];
	*p = is;
	shuffle(p);
	r->alive++;
	return p;
}

/* The sum of all tasks of a contribution, true or of a liar. */
static struct fal_sum *
some_sum(const struct round *r, float scale)
{
	static float grad[BLOCKS * FAL_BLOCK];
	struct fal_sum *s = fal_sum_new(n);
	for (size_t i = 0; i < n; i++)
		grad[i] = ldexpf(scale * (fal_rng_unit(&rng) - 0.5f), FAL_EXP_FIRST);
	check(fal_sum_quantise(s, grad, r->exps, fal_bfp_room(TASKS), NULL), 0,
	      "quantise");
	return s;
}

/* Makes some blocks much larger, or, if blocks may have any exponent, out of range. */
static void
make_odd(struct round *r, struct fal_sum *from)
{
	const bool beyond = r->facts.mixed && below(2) == 0;
	struct fal_sum *loud = some_sum(r, 4096);
	int64_t v[FAL_BLOCK];
	r->odd = fal_sum_new(n);
	memcpy(r->odd_exps, r->exps, blocks);
	for (uint32_t b = 0; b < blocks; b++) {
		const struct fal_sum *of = from;
		const bool is_odd = below(3) == 0;
		if (is_odd)
			of = loud;
		fal_sum_load(of, b, v);
		for (uint32_t i = 0; i < FAL_BLOCK && is_odd && beyond; i++)
			v[i] = i < fal_block_len(n, b) ? (int64_t)1 << 51 : 0;
		if (is_odd && beyond) {
			r->odd_exps[b] = 100;
			check(fal_sum_store(r->odd, b, v, (uint64_t)1 << 51, FAL_EXP_MAX),
			      0, "store");
		} else {
			check(fal_sum_store(r->odd, b, v, fal_sum_bound(of, b),
					    fal_sum_needed(of, b)),
			      0, "store");
		}
	}
	fal_sum_free(loud);
}

static void
begin_round(struct round *r, uint64_t round)
{
	const uint64_t before = round - 1;
	const float *params;
	const int8_t *exps;
	*r = (struct round){ .round = round };
	r->facts = (struct fal_facts){ .version = before > slack ? before - slack : 0,
				       .tasks = TASKS,
				       .kind = FAL_KIND_GRAD,
				       .mixed = below(4) == 0 };
	assert_true(
		fal_shard_find_version(shard[TWIN], r->facts.version, &params, &exps));
	memcpy(r->exps, exps, blocks);
	for (uint32_t left = TASKS, i = 0; left > 0; i++) {
		const uint32_t most = left < 3 ? left : 3, tasks = 1 + below(most);
		r->sum[i] = some_sum(r, 1);
		add_part(r, (struct part){ .id = { i + 1, 1 },
					   .tasks = tasks,
					   .sum = r->sum[i],
					   .exps = r->exps });
		left -= tasks;
	}
	if (below(2) == 0) {
		struct part *p = &r->part[below(r->parts)];
		make_odd(r, r->sum[p - r->part]);
		p->sum = r->odd;
		p->exps = r->odd_exps;
	}
	order((struct fal_shard_order){
		.kind = FAL_ORDER_OPEN, .round = round, .facts = r->facts });
	r->opened = true;
}

static void
end_of_round(struct round *r)
{
	for (uint32_t i = 0; i < TASKS; i++)
		fal_sum_free(r->sum[i]);
	fal_sum_free(r->odd);
	*r = (struct round){ 0 };
}

static void
push(struct round *r, struct part *p, uint32_t b)
{
	const struct fal_ticket t = { r->round, p->id, p->fills, p->tasks, r->facts, 0 };
	/* Records number blocks as in the model. */
	struct fal_sum *as = fal_sum_new(n + (size_t)first * FAL_BLOCK);
	struct fal_buf out = { 0 };
	int64_t v[FAL_BLOCK];
	fal_sum_load(p->sum, b, v);
	check(fal_sum_store(as, first + b, v, fal_sum_bound(p->sum, b),
			    fal_sum_needed(p->sum, b)),
	      0, "store");
	check(fal_sum_pack(as, first + b, p->exps[b], &out), 0, "pack");
	const struct fal_tail tail = { out.p, out.n };
	for (uint32_t i = 0; i < 2; i++) {
		struct fal_shard_result result = { 0 };
		check(fal_shard_push(shard[i], &t, &tail, &result, &diag), 0, "push");
		note_result(i, &result);
	}
	/* Sometimes the push comes twice. */
	if (below(8) == 0 && fal_shard_version(shard[EARLY]) < r->round)
		for (uint32_t i = 0; i < 2; i++) {
			struct fal_shard_result result = { 0 };
			check(fal_shard_push(shard[i], &t, &tail, &result, &diag),
			      FAL_EEXIST, "a block twice");
			note_result(i, &result);
		}
	fal_buf_free(&out);
	fal_sum_free(as);
}

/* A contribution pushes its next block, or is fenced and a filling one begins. */
static void
go_on(struct round *r, struct part *p)
{
	if (p->pushed < p->pushes) {
		const uint32_t b = p->order[p->pushed++];
		push(r, p, b);
		r->counted[b] += p->had[b] ? 0 : p->tasks;
		p->had[b] = true;
		p->over = p->pushed == blocks;
	} else {
		struct part fill = *p;
		met.fences += r->ordered;
		order((struct fal_shard_order){ .kind = FAL_ORDER_FENCE,
						.round = r->round,
						.id = p->id,
						.fills = p->fills });
		fill.fills = p->id;
		fill.id = (struct fal_contrib_id){ 40 + r->parts, 1 };
		fill.pushed = 0;
		/* The filling contribution is honest. */
		if (fill.sum == r->odd)
			for (uint32_t i = 0; i < r->parts; i++)
				if (r->part[i].sum == r->odd &&
				    r->part[i].id.worker <= TASKS)
					fill.sum = r->sum[r->part[i].id.worker - 1];
		fill.exps = r->exps;
		p->over = true;
		add_part(r, fill);
	}
	r->alive -= p->over;
}

/* A random contribution of the round goes on. */
static void
go_on_any(struct round *r)
{
	struct part *p;
	do
		p = &r->part[below(r->parts)];
	while (p->over);
	go_on(r, p);
}

static void
order_ahead(struct round *r)
{
	order_one(EARLY, (struct fal_shard_order){ .kind = FAL_ORDER_END,
						   .round = r->round,
						   .end = FAL_END_MERGE,
						   .ahead = true });
	order_one(EARLY, (struct fal_shard_order){ .kind = FAL_ORDER_STEP,
						   .version = r->round,
						   .lr = 0.1f,
						   .divisor = TASKS,
						   .versions = slack + 2,
						   .hash = true });
	r->ordered = true;
}

static void
order_twin(const struct round *r)
{
	order_one(TWIN, (struct fal_shard_order){ .kind = FAL_ORDER_END,
						  .round = r->round,
						  .end = FAL_END_MERGE });
	order_one(TWIN, (struct fal_shard_order){ .kind = FAL_ORDER_STEP,
						  .version = r->round,
						  .lr = 0.1f,
						  .divisor = TASKS,
						  .versions = slack + 2,
						  .hash = true });
}

/* The number of blocks that lack tasks. */
static uint32_t
lacking(const struct round *r)
{
	uint32_t lacks = 0;
	for (uint32_t b = 0; b < blocks; b++)
		lacks += r->counted[b] < TASKS;
	return lacks;
}

/* Plays a round to its end in random order; meanwhile the end is ordered, and the next
 * round goes on. */
static void
play(struct round *r, struct round *next)
{
	const uint32_t soon = below(3 * blocks);
	for (uint32_t i = 0; r->alive > 0; i++) {
		if (!r->ordered && i == soon)
			order_ahead(r);
		if (r->ordered && next->opened && !next->ordered && below(10) == 0)
			order_ahead(next);
		check_stepped_blocks(r);
		if (next->opened && lacking(next) > 1 && below(3) == 0)
			go_on_any(next);
		else
			go_on_any(r);
	}
}

static bool at_once; /* no worker gets blocks before the version is whole */

static void
settle(struct round *r)
{
	if (!r->ordered)
		order_ahead(r);
	order_twin(r);
	for (uint32_t i = 0; i < 2; i++) {
		check(said[i].ended, 1, "ended");
		check(said[i].stepped, 1, "stepped");
		check((int64_t)said[i].sent, (int64_t)said[i].added, "sent and added");
	}
	check(said[EARLY].odd, said[TWIN].odd, "steps that are refused");
	check(said[EARLY].beyond, said[TWIN].beyond, "blocks beyond the numbers");
	assert_true(fal_contrib_id_equal(said[EARLY].by, said[TWIN].by));
	met.refused += said[EARLY].odd;
	met.beyond += said[EARLY].beyond;
	check((int64_t)said[EARLY].added, (int64_t)said[TWIN].added, "added");
	assert_memory_equal(said[EARLY].leaves, said[TWIN].leaves,
			    (size_t)blocks * FAL_HASH_BYTES);
}

static void
begin_shards(void)
{
	static float init[2 * BLOCKS * FAL_BLOCK];
	const bool edges = below(4) == 0;
	blocks = 1 + below(BLOCKS);
	first = below(BLOCKS);
	n = (size_t)(blocks - 1) * FAL_BLOCK + 1 + below(FAL_BLOCK);
	slack = below(3);
	averages = below(8) == 0;
	for (size_t i = 0; i < n; i++)
		init[i] = edges && i / FAL_BLOCK % 3 == 1 ? 3.4e38f
							  : fal_rng_unit(&rng) - 0.5f;
	const struct fal_shard_conf conf = {
		.at_once = &at_once,
		.n = n + (size_t)first * FAL_BLOCK,
		.first = first,
		.count = blocks,
		.tasks = TASKS,
		.bits = below(3) == 0 ? 8 : 0,
		.optim = { .kind = (enum fal_optim_kind)below(FAL_OPTIMS),
			   .momentum = 0.9f,
			   .beta1 = 0.9,
			   .beta2 = 0.999,
			   .eps = 1e-8f,
			   /* so large that values near the limit leave it */
			   .weight_decay = edges ? -20 : 0.01f,
			   .ema = averages ? 0.9 : 0 },
		.checksums = below(2) == 0,
	};
	for (uint32_t i = 0; i < 2; i++)
		assert_non_null(shard[i] = fal_shard_new(&conf, init));
	/* Some version had exponents of 100. */
	static int8_t exps[2 * BLOCKS];
	static float whole[2 * BLOCKS * FAL_BLOCK];
	struct fal_shard_order put = {
		.kind = FAL_ORDER_INSTALL, .versions = 1, .params = whole, .exps = exps
	};
	memcpy(whole + (size_t)first * FAL_BLOCK, init, n * sizeof(*init));
	memset(exps, 100, sizeof(exps));
	order(put);
	memset(exps, FAL_EXP_FIRST, sizeof(exps));
	order(put);
	order((struct fal_shard_order){ .kind = FAL_ORDER_RETAIN,
					.versions = slack + 1 });
}

static void
end_shards(void)
{
	fal_shard_free(shard[EARLY]);
	fal_shard_free(shard[TWIN]);
}

static void
made_as_at_once(void **state)
{
	(void)state;
	for (uint32_t turn = 0; turn < 60; turn++) {
		begin_shards();
		begin_round(&rounds[1], 1);
		for (uint64_t k = 1; k <= CLOCKS; k++) {
			struct round *r = &rounds[k % 2], *next = &rounds[(k + 1) % 2];
			if (!r->opened)
				begin_round(r, k);
			if (slack > 0 && k < CLOCKS)
				begin_round(next, k + 1);
			memset(said, 0, sizeof(said));
			play(r, next);
			settle(r);
			end_of_round(r);
			same_version(k);
			if (fal_shard_making(shard[EARLY],
					     &(struct fal_shard_making){ 0 }))
				assert_true(next->ordered);
			else
				same_image();
		}
		end_shards();
	}
	print_message("# looked at %u in part made, %u fences, %u blocks beyond, %u "
		      "refused\n",
		      met.halves, met.fences, met.beyond, met.refused);
	assert_true(met.halves > 100 && met.fences > 0 && met.beyond > 0 &&
		    met.refused > 0);
}

/* A shard of several blocks, without an average. */
static void
begin_plain(void)
{
	begin_shards();
	while (averages || blocks < 2) {
		end_shards();
		begin_shards();
	}
}

/* A round that lacks its last block, and a step behind it. */
static void
nearly(struct fal_shard_order step)
{
	struct round *r = &rounds[0];
	begin_round(r, 1);
	while (lacking(r) > 1)
		go_on_any(r);
	order_one(EARLY, (struct fal_shard_order){ .kind = FAL_ORDER_END,
						   .round = 1,
						   .end = FAL_END_MERGE,
						   .ahead = true });
	step.kind = FAL_ORDER_STEP;
	step.version = 1;
	step.lr = isfinite(step.lr) ? 0.1f : step.lr;
	order_one(EARLY, step);
}

/* A step that depends on other blocks is made at once; the number of kept versions does
 * not matter, and the version before stays whole until then. */
static void
not_made(void **state)
{
	(void)state;
	static const struct fal_shard_order step[] = {
		{ .versions = 2, .divisor = TASKS },
		{ .versions = 1, .divisor = TASKS },
		{ .versions = 2, .divisor = TASKS, .clipped = true },
		{ .versions = 2, .divisor = TASKS, .weight = 1 },
		{ .versions = 2 },
		{ .versions = 2, .divisor = TASKS, .lr = NAN },
	};
	for (uint32_t i = 0; i < 2 * sizeof(step) / sizeof(step[0]); i++) {
		struct fal_shard_making m;
		at_once = i % 2 > 0;
		begin_plain();
		nearly(step[i / 2]);
		check(fal_shard_making(shard[EARLY], &m), !at_once && i / 2 < 2,
		      "is made");
		same_version(0);
		end_of_round(&rounds[0]);
		end_shards();
	}
	at_once = false;
}

/* Orders that no coordinator gives during an early step are refused. */
static void
not_meanwhile(void **state)
{
	(void)state;
	static float params[2 * BLOCKS * FAL_BLOCK];
	static int8_t exps[2 * BLOCKS];
	const struct fal_shard_order put = { .kind = FAL_ORDER_INSTALL,
					     .version = 5,
					     .versions = 1,
					     .params = params,
					     .exps = exps },
				     skip = { .kind = FAL_ORDER_SKIP,
					      .round = 1,
					      .facts = { .tasks = 1 } };
	struct fal_shard_making m;
	struct fal_image live = { 0 };
	begin_plain();
	nearly((struct fal_shard_order){ .versions = 2, .divisor = TASKS });
	check(fal_shard_image(shard[EARLY], &live), FAL_ESTATE, "an image");
	check(fal_shard_order(shard[EARLY], &put, NULL), FAL_ESTATE, "another version");
	check(fal_shard_order(shard[EARLY], &skip, NULL), FAL_EINVAL, "a task less");
	assert_true(fal_shard_making(shard[EARLY], &m));
	same_version(0);
	fal_image_free(&live);
	end_of_round(&rounds[0]);
	end_shards();
}

static int
begin(void **state)
{
	(void)state;
	const char *given = getenv("FAL_TEST_SEED");
	const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : 1;
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	print_message("# seed %llu\n", (unsigned long long)seed);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_setup(made_as_at_once, begin),
		cmocka_unit_test_setup(not_made, begin),
		cmocka_unit_test_setup(not_meanwhile, begin),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
