/* Tasks begin while their version comes.  Drawn, against what the shards have sent. */
#include "test_overlap.h"

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
		check(fal_agent_has(agent, 2), 1, "the newer one");
		so_far = 0;
		came = note_came;
		models(1, 0);
		came = NULL;
		check(so_far == blocks, taken_back == 0, "all of the older one");
		check(fal_agent_has(agent, 1), taken_back == 0 && !oldest,
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

static struct fal_msg spans;
static uint32_t spans_said;

static void
spans_heard(const struct fal_msg *m, uint32_t shard)
{
	(void)shard;
	if (m->type != FAL_MSG_SPANS)
		return;
	spans = *m;
	spans_said++;
}

static void
asks(uint64_t mark)
{
	const struct fal_msg m = { .type = FAL_MSG_ACCOUNT, .account.mark = mark };
	heard = spans_heard;
	spans_said = 0;
	tell(&m);
}

static void
is_span(const struct fal_msg_span *is, uint64_t from, uint64_t to, const char *what)
{
	check((int64_t)(now - is->from), (int64_t)from, what);
	check((int64_t)(now - is->to), (int64_t)to, what);
}

/* Of a round that is through: when its version came, when it was computed, and when what
 * came of it left; the next one's version and task are none of it. */
static void
spans_say_when(void **state)
{
	const uint32_t seq = FAL_PRECLAIMED + 1;
	struct fal_msg m = { .type = FAL_MSG_TICKET };
	uint64_t at[7];
	uint32_t first;
	(void)state;
	begin(3);
	two_shards(2, &first);
	at[0] = now;
	for (int i = 1; i < 7; i++)
		at[i] = at[i - 1] + 1 + fal_rng_below(&rng, 1000);
	announce(2, 2);
	all_begin(2);
	now = at[1];
	grant(2, 0, 1, seq);
	m.ticket.round = 2;
	m.ticket.seq = seq;
	m.ticket.tasks = 1;
	tell(&m);
	now = at[2];
	models(2, 1);
	now = at[3];
	check(fal_agent_made(agent, now, 0, blocks - 1), 0, "made");
	while (fal_agent_more(agent) > 0)
		;
	asks(2);
	check(spans_said, 0, "said before it is through");
	now = at[4];
	finished(0, false);
	while (fal_agent_more(agent) > 0)
		;
	now = at[5];
	fal_agent_flushed(agent, now);
	whole_version(3);
	grant(3, 0, 1, seq + 1);
	now = at[6];
	asks(2);
	check(spans_said, 1, "said");
	check((int64_t)spans.spans.mark, 2, "of the round");
	is_span(&spans.spans.pull, at[0], at[2], "pull");
	is_span(&spans.spans.compute, at[1], at[4], "compute");
	is_span(&spans.spans.push, at[3], at[5], "push");
	asks(3);
	check(spans_said, 0, "of a round that is not through");
	finished(0, false);
	fal_agent_free(agent);
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
			m.grant.round = m.grant.version = m.grant.count = 1;
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
		cmocka_unit_test(spans_say_when),
		cmocka_unit_test(what_waits_for_all_of_it),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, draw, NULL);
}
