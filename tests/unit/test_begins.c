/* Tasks begin while their version comes.  Drawn, against what the shards have sent. */
#include "../drawn.h"
#include "agent_play.h"
#include "wire/block_map.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { BLOCKS = 12, N = BLOCKS * FAL_BLOCK, SHARDS = 5 };

static struct fal_rng rng;
static size_t n;    /* floats */
static size_t sums; /* in halves, that there may be; 0: any number */
static uint32_t blocks, push_blocks;
static struct fal_map map;
static uint64_t now; /* ns */
static bool may_begin;

/* Hooks of a test: a message was sent, a lane begins, so many blocks are here for a lane.
 */
static void (*heard)(const struct fal_msg *m, uint32_t shard);
static void (*begun)(uint32_t lane);
static void (*came)(uint32_t lane, uint32_t blocks);

/* ---- the driver -------------------------------------------------------------------- */

static void
on_push(void *arg, uint32_t shard, const struct fal_buf *msg)
{
	struct fal_msg m;
	(void)arg;
	check(fal_msg_get(msg->p, msg->n, &m), 0, "parse what was sent");
	if (heard != NULL)
		heard(&m, shard);
}

static void
on_send(void *arg, const struct fal_buf *msg, bool bulk)
{
	(void)bulk;
	on_push(arg, 0, msg);
}

static void
on_begun(void *arg, uint32_t lane, const struct fal_task_run *r)
{
	on_run(arg, lane, r);
	if (begun != NULL)
		begun(lane);
}

static bool
on_begins(void *arg)
{
	(void)arg;
	return may_begin;
}

static void
on_came(void *arg, uint32_t lane, uint32_t so_many)
{
	(void)arg;
	assert_true(lane < LANES && busy[lane]);
	if (came != NULL)
		came(lane, so_many);
}

static void
tell(const struct fal_msg *m)
{
	check(fal_agent_msg(agent, now, m), 0, fal_msg_name(m->type));
}

/* Announces `map`. */
static void
tell_map(void)
{
	struct fal_msg m = { .type = FAL_MSG_BLOCKS, .blocks.epoch = map.epoch };
	struct fal_buf of = { 0 };
	fal_map_put(&of, &map);
	m.blocks.of = (struct fal_tail){ of.p, of.n };
	tell(&m);
	fal_buf_free(&of);
}

/* Announces another map: runs of drawn lengths, of shards in a drawn order. */
static void
draw_map(uint32_t epoch)
{
	uint32_t left = blocks;
	map = (struct fal_map){ .epoch = epoch,
				.shards = 1 + fal_rng_below(&rng, SHARDS) };
	while (left > 0) {
		const uint32_t i = fal_rng_below(&rng, map.shards);
		bool last = map.of[i].count == 0;
		for (uint32_t k = 0; k < map.shards; k++)
			last &= k == i || map.of[k].count > 0;
		if (map.of[i].count > 0)
			continue;
		map.of[i].first = blocks - left;
		map.of[i].count = last ? left : 1 + fal_rng_below(&rng, left);
		left -= map.of[i].count;
	}
	tell_map();
}

/* Makes an agent whose model has so many blocks, or more. */
static void
begin(uint32_t least)
{
	const struct fal_agent_ops ops = { .send = on_send,
					   .run = on_begun,
					   .cancel = on_cancel,
					   .steps = on_steps,
					   .push = on_push,
					   .begins = on_begins,
					   .came = on_came };
	push_blocks = one_in(&rng, 2) ? 0 : 1 + fal_rng_below(&rng, 3);
	blocks = least + fal_rng_below(&rng, BLOCKS - least + 1);
	n = (size_t)(blocks - 1) * FAL_BLOCK + 1 + fal_rng_below(&rng, FAL_BLOCK);
	const struct fal_agent_conf conf = {
		.n = n,
		.grid = { .samples = 64, .batch = 64, .task = 1 },
		.lanes_max = LANES,
		.incarnation = 6,
		.map_epoch = 1,
		.push_blocks = push_blocks,
		.sums = sums,
		.most.versions = sums > 0
	};
	memset(busy, 0, sizeof(busy));
	heard = NULL;
	begun = NULL;
	came = NULL;
	may_begin = true;
	now = 1000;
	agent = fal_agent_new(&conf, &ops);
	assert_non_null(agent);
	draw_map(1);
}

static void
published(uint64_t v, uint32_t shard)
{
	const struct fal_extent *of = &map.of[shard - 1];
	struct fal_msg m = { .type = FAL_MSG_PUBLISHED };
	m.published.version = v;
	m.published.order = (uint32_t)v;
	m.published.shard = shard;
	m.published.first = of->first;
	m.published.blocks = of->count;
	tell(&m);
}

/* Each value in block b of version v. */
static float
value_of(uint64_t v, uint32_t b)
{
	return (float)(v * 1000 + b + 1);
}

/* Sends a few blocks of version v: a message holds no more. */
static void
model(uint64_t v, uint32_t first, uint32_t count)
{
	static float params[N];
	static int8_t exps[BLOCKS];
	struct fal_msg m;
	struct fal_buf out = { 0 };
	size_t at = 0;
	for (uint32_t b = first; b < first + count; b++) {
		exps[b - first] = FAL_EXP_FIRST;
		for (uint32_t i = fal_block_len(n, b); i > 0; i--)
			params[at++] = value_of(v, b);
	}
	const struct fal_model_part part = { v, first, count, params, at, exps };
	put_model_msg(&out, 6, &part);
	check(fal_msg_get(out.p, out.n, &m), 0, "get");
	tell(&m);
	fal_buf_free(&out);
}

static void
models(uint64_t v, uint32_t first)
{
	for (uint32_t b = first; b < blocks; b++)
		model(v, b, 1);
}

static void
announce(uint64_t v, uint64_t oldest)
{
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	m.version.version = v;
	m.version.oldest = oldest;
	tell(&m);
}

static void
whole_version(uint64_t v)
{
	announce(v, v);
	for (uint32_t s = 1; s <= map.shards; s++)
		if (map.of[s - 1].count > 0)
			published(v, s);
	models(v, 0);
}

static void
grant(uint64_t v, uint32_t first, uint32_t count, uint32_t seq)
{
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	m.grant.round = v;
	m.grant.version = m.grant.exponents = v;
	m.grant.kind = FAL_KIND_GRAD;
	m.grant.first = first;
	m.grant.count = count;
	m.grant.seq = seq;
	m.grant.of = count;
	tell(&m);
}

static void
revoke(uint64_t round, uint32_t task)
{
	struct fal_msg m = { .type = FAL_MSG_REVOKE };
	m.revoke.round = round;
	m.revoke.first = task;
	m.revoke.count = 1;
	tell(&m);
}

static void
finished_after(uint32_t lane, bool nonfinite, uint64_t waited)
{
	const struct fal_task_result ran = { .cancelled = cancelled[lane],
					     .nonfinite = nonfinite,
					     .samples = 1,
					     .task_ns = 1,
					     .waited_ns = waited };
	busy[lane] = false;
	check(fal_agent_finished(agent, now, lane, &ran), 0, "finished");
}

static void
finished(uint32_t lane, bool nonfinite)
{
	finished_after(lane, nonfinite, 0);
}

static struct fal_msg worked;

static void
worked_heard(const struct fal_msg *m, uint32_t shard)
{
	(void)shard;
	if (m->type == FAL_MSG_WORKED)
		worked = *m;
}

/* Asks where the time went since the last ACCOUNT; `worked` gets the answer. */
static void
account(void)
{
	const struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	heard = worked_heard;
	tell(&m);
}

static int
draw(void **state)
{
	(void)state;
	rng = fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	return 0;
}

enum { VERSIONS = 4 };

/* What the shards have sent of it. */
static struct version {
	uint64_t published, begun; /* begun: and the first block of that was sent */
	uint32_t head[FAL_SHARDS_MAX];
	bool seen[BLOCKS];
	uint32_t tasks; /* that wait for it */
} version[VERSIONS];
static uint32_t told_came[LANES];
static uint32_t early_ones;

static uint32_t
first_ones(const struct version *v)
{
	uint32_t b = 0;
	while (b < blocks && v->seen[b])
		b++;
	return b;
}

static bool
all_begun(const struct version *v)
{
	return (v->begun & fal_map_busy(&map)) == fal_map_busy(&map);
}

static bool
may_run(const struct version *v)
{
	const uint32_t here = first_ones(v);
	return here == blocks || (here > 0 && all_begun(v) && may_begin);
}

/* What is said to be here is. */
static void
look_at(uint32_t lane)
{
	for (uint32_t b = 0; b < told_came[lane]; b++) {
		const float *at = run[lane].params + (size_t)b * FAL_BLOCK;
		const float want = value_of(run[lane].version, b);
		const uint32_t len = fal_block_len(n, b);
		if (at[0] != want || at[len - 1] != want)
			fail_msg("block %u is not here", b);
		check(run[lane].exps[b], FAL_EXP_FIRST, "exponent");
	}
}

static void
early_begins(uint32_t lane)
{
	struct version *v = &version[run[lane].version];
	const uint32_t here = first_ones(v);
	check(may_run(v), 1, "it may");
	check(run[lane].coming, here < blocks, "coming");
	if (run[lane].coming)
		check(run[lane].came, here, "came");
	told_came[lane] = here;
	look_at(lane);
	v->tasks--;
	early_ones += run[lane].coming;
}

static void
more_came(uint32_t lane, uint32_t so_many)
{
	check(run[lane].coming, 1, "of one that was coming");
	assert_true(so_many > told_came[lane]);
	check(so_many, first_ones(&version[run[lane].version]), "the first ones");
	told_came[lane] = so_many;
	look_at(lane);
}

/* Whoever could run does, and every lane knows what is here. */
static void
nobody_waits_in_vain(void)
{
	bool idle = false;
	for (uint32_t i = 0; i < LANES; i++) {
		idle |= !busy[i];
		if (busy[i] && !cancelled[i])
			check(told_came[i], first_ones(&version[run[i].version]),
			      "what a lane knows");
	}
	for (uint32_t v = 0; v < VERSIONS && idle; v++)
		if (version[v].tasks > 0)
			check(may_run(&version[v]), 0, "a task waits that could run");
}

/* Whose first block was sent has begun. */
static void
see_begun(struct version *v)
{
	for (uint32_t i = 0; i < FAL_SHARDS_MAX; i++)
		if ((v->published >> i & 1) != 0 && v->seen[v->head[i]])
			v->begun |= (uint64_t)1 << i;
}

static void
publishes(uint32_t v, uint32_t shard)
{
	if (map.of[shard - 1].count == 0)
		return;
	version[v].published |= (uint64_t)1 << (shard - 1);
	version[v].head[shard - 1] = map.of[shard - 1].first;
	see_begun(&version[v]);
	published(v, shard);
}

/* Some of what a shard has begun to send. */
static void
sends(uint32_t v, uint32_t shard)
{
	const struct fal_extent *of = &map.of[shard - 1];
	if ((version[v].published >> (shard - 1) & 1) == 0 || of->count == 0)
		return;
	const uint32_t first = of->first + fal_rng_below(&rng, of->count);
	const uint32_t most = of->first + of->count - first;
	const uint32_t count = 1 + fal_rng_below(&rng, most < 3 ? most : 3);
	for (uint32_t b = first; b < first + count; b++)
		version[v].seen[b] = true;
	see_begun(&version[v]);
	model(v, first, count);
}

/* The first version that may be granted: nothing newer is whole, or the oldest. */
static uint32_t
grantable(uint32_t oldest)
{
	for (uint32_t v = VERSIONS - 1; v > oldest; v--)
		if (first_ones(&version[v]) == blocks)
			return v;
	return oldest;
}

/* A lane ends, if it can, or its task is taken back. */
static void
lane_happens(uint32_t lane)
{
	if (!busy[lane])
		return;
	const bool whole = first_ones(&version[run[lane].version]) == blocks;
	if ((cancelled[lane] || whole) && one_in(&rng, 3))
		finished(lane, false);
	else if (!cancelled[lane] && one_in(&rng, 20))
		revoke(run[lane].round, run[lane].task);
}

static void
begins_before_it_is_whole(void **state)
{
	(void)state;
	early_ones = 0;
	for (uint32_t round = 0; round < 100; round++) {
		uint32_t told = 1, oldest = 1, tasks = 0;
		begin(1);
		memset(version, 0, sizeof(version));
		begun = early_begins;
		came = more_came;
		may_begin = !one_in(&rng, 6);
		announce(1, 1);
		for (uint32_t step = 0; step < 150; step++) {
			const uint32_t v = 1 + fal_rng_below(&rng, VERSIONS - 1);
			const uint32_t shard = 1 + fal_rng_below(&rng, map.shards);
			const uint32_t what = fal_rng_below(&rng, 12);
			if (what < 3 && v <= told + 1)
				publishes(v, shard);
			else if (what < 9 && v <= told + 1)
				sends(v, shard);
			else if (what == 9 && told + 1 < VERSIONS && one_in(&rng, 3)) {
				told++;
				oldest += fal_rng_below(&rng, told - oldest + 1);
				announce(told, oldest);
			} else if (what == 10 && v <= told && v >= grantable(oldest)) {
				tasks++;
				version[v].tasks++;
				grant(v, tasks, 1, FAL_PRECLAIMED + tasks);
			}
			lane_happens(fal_rng_below(&rng, LANES));
			nobody_waits_in_vain();
		}
		/* Whatever is older than what is whole by now, who began on it gets it.
		 */
		for (uint32_t v = VERSIONS; v-- > 1;)
			for (uint32_t s = 1; s <= map.shards; s++) {
				publishes(v, s);
				for (uint32_t k = 0; k < map.of[s - 1].count; k++) {
					version[v].seen[map.of[s - 1].first + k] = true;
					see_begun(&version[v]);
					model(v, map.of[s - 1].first + k, 1);
					nobody_waits_in_vain();
				}
			}
		for (uint32_t i = 0; i < LANES; i++)
			while (busy[i])
				finished(i, false);
		for (uint32_t v = 1; v < VERSIONS; v++)
			check(version[v].tasks, 0, "tasks that wait");
		fal_agent_free(agent);
	}
	assert_true(early_ones > 50);
}

/* Two shards, one of them with the first block, in *first. */
static void
two_shards(uint32_t epoch, uint32_t *first)
{
	const uint32_t cut = 1 + fal_rng_below(&rng, blocks - 1);
	*first = 1 + fal_rng_below(&rng, 2);
	map = (struct fal_map){ .epoch = epoch, .shards = 2 };
	map.of[*first - 1] = (struct fal_extent){ 0, cut };
	map.of[2 - *first] = (struct fal_extent){ cut, blocks - cut };
	tell_map();
}

/* What one of two shards had is another's now. */
static void
moves_to_a_third(uint32_t shard)
{
	map.epoch++;
	map.shards = 3;
	map.of[2] = map.of[shard - 1];
	map.of[shard - 1].count = 0;
	tell_map();
}

/* The first block of each of these shards. */
static void
heads(uint64_t v)
{
	for (uint32_t s = 1; s <= map.shards; s++)
		if (map.of[s - 1].count > 0)
			model(v, map.of[s - 1].first, 1);
}

/* All of them publish it, and have begun. */
static void
all_begin(uint64_t v)
{
	for (uint32_t s = 1; s <= map.shards; s++)
		if (map.of[s - 1].count > 0)
			published(v, s);
	heads(v);
}

/* A shard that has begun twice is not two, and one that has published has not begun. */
static void
all_shards_have_begun(void **state)
{
	uint32_t first;
	(void)state;
	begin(3);
	two_shards(2, &first);
	announce(1, 1);
	grant(1, 0, 1, FAL_PRECLAIMED + 1);
	published(1, first);
	published(1, first);
	model(1, 0, 1);
	published(1, first);
	check(busy[0], 0, "of two shards one has begun");
	published(1, 3 - first);
	models(1, map.of[2 - first].first + 1);
	check(busy[0], 0, "the other one has not sent its first block");
	model(1, map.of[2 - first].first, 1);
	check(busy[0], 1, "all have begun");
	check(run[0].coming, map.of[first - 1].count > 1, "coming");
	fal_agent_free(agent);
}

/* By either map: that by which it began to come, and that which holds now. */
static void
shards_of_both_maps_have_begun(void **state)
{
	uint32_t first;
	(void)state;
	for (int old = 0; old < 2; old++) {
		begin(3);
		two_shards(2, &first);
		const uint32_t other = 3 - first;
		const struct fal_extent was = map.of[other - 1];
		announce(1, 1);
		grant(1, 0, 1, FAL_PRECLAIMED + 1);
		published(1, first);
		if (old > 0)
			published(1, other);
		moves_to_a_third(other);
		if (old == 0)
			published(1, 3);
		model(1, 0, 1);
		model(1, was.first, 1);
		check(busy[0], 0, "of three shards two have begun");
		map.of[other - 1] = was;
		published(1, old > 0 ? 3 : other);
		check(busy[0], 1, "all have begun");
		check(run[0].coming, 1, "coming");
		fal_agent_free(agent);
	}
}

static uint32_t so_far;

static void
note_came(uint32_t lane, uint32_t so_many)
{
	(void)lane;
	so_far = so_many;
}

/* What a lane waits for comes, though a newer version is whole; what none does is
 * forgotten. */
static void
who_waits_is_not_forgotten(void **state)
{
	uint32_t first;
	(void)state;
	for (int taken_back = 0; taken_back < 2; taken_back++) {
		const bool oldest = one_in(&rng, 2);
		begin(3);
		two_shards(2, &first);
		announce(1, 1);
		all_begin(1);
		grant(1, 0, 1, FAL_PRECLAIMED + 1);
		check(busy[0], 1, "runs");
		if (taken_back > 0)
			revoke(1, 0);
		announce(2, oldest ? 2 : 1);
		for (uint32_t s = 1; s <= 2; s++)
			published(2, s);
		models(2, 0);
		check(fal_agent_has_version(agent, 2), 1, "the newer one");
		so_far = 0;
		came = note_came;
		models(1, 0);
		came = NULL;
		check(so_far == blocks, taken_back == 0, "all of the older one");
		check(fal_agent_has_version(agent, 1), taken_back == 0 && !oldest,
		      "the older one");
		finished(0, false);
		fal_agent_free(agent);
	}
}

static void
spent(uint64_t compute, uint64_t pull)
{
	account();
	check((int64_t)worked.worked.compute, (int64_t)compute, "compute");
	check((int64_t)worked.worked.pull, (int64_t)pull, "pull");
}

/* What a lane has waited for its version is pull, and the rest is compute, beside which
 * nobody waited for what came; another lane at work is at work all the time. */
static void
waiting_is_pulling(void **state)
{
	(void)state;
	for (int other = 0; other < 2; other++) {
		const uint64_t before = 1 + fal_rng_below(&rng, 1000),
			       after = 1 + fal_rng_below(&rng, 1000),
			       waited = fal_rng_below(&rng, 1 + (uint32_t)before);
		uint32_t first;
		begin(3);
		two_shards(2, &first);
		whole_version(1);
		announce(2, 1);
		if (other > 0)
			grant(1, 1, 1, FAL_PRECLAIMED + 2);
		all_begin(2);
		account();
		grant(2, 0, 1, FAL_PRECLAIMED + 1);
		check(run[other].coming, 1, "coming");
		now += before;
		models(2, 1);
		now += after;
		finished_after((uint32_t)other, false, waited);
		spent(before + after - (other > 0 ? 0 : waited), other > 0 ? 0 : waited);
		check((int64_t)worked.worked.pull_all,
		      (int64_t)(other > 0 ? before : waited), "pull_all");
		if (other > 0)
			finished(0, false);
		fal_agent_free(agent);
	}
}

/* Evaluation, and local steps, are of whole versions. */
static void
what_waits_for_all_of_it(void **state)
{
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	(void)state;
	for (int delta = 0; delta < 2; delta++) {
		begin(2);
		m = (struct fal_msg){ .type = FAL_MSG_VERSION };
		m.version.version = m.version.oldest = 1;
		m.version.keep = 1;
		tell(&m);
		for (uint32_t s = 1; s <= map.shards; s++)
			if (map.of[s - 1].count > 0)
				published(1, s);
		m = (struct fal_msg){ .type = FAL_MSG_EVAL };
		m.eval.version = m.eval.count = 1;
		if (delta > 0) {
			m = (struct fal_msg){ .type = FAL_MSG_GRANT };
			m.grant.round = m.grant.count = 1;
			m.grant.version = m.grant.exponents = 1;
			m.grant.of = m.grant.steps = 1;
			m.grant.kind = FAL_KIND_DELTA;
			m.grant.base = FAL_BASE_VERSION;
			m.grant.lr = 0.1f;
		}
		tell(&m);
		for (uint32_t b = 0; b < blocks; b++) {
			check(busy[0], 0, "runs");
			model(1, b, 1);
		}
		check(busy[0], 1, "runs");
		check(run[0].eval, delta == 0, "eval");
		check(run[0].coming, 0, "coming");
		finished(0, false);
		fal_agent_free(agent);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(begins_before_it_is_whole),
		cmocka_unit_test(all_shards_have_begun),
		cmocka_unit_test(shards_of_both_maps_have_begun),
		cmocka_unit_test(who_waits_is_not_forgotten),
		cmocka_unit_test(waiting_is_pulling),
		cmocka_unit_test(what_waits_for_all_of_it),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, draw, NULL);
}
