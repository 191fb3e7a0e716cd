/* Versions of a quorum of groups: when they are made, of whose pushes, by which weights
 * and with how much momentum; the outer step against plain loops. */
#include "sched_play.h"

#include "base/branch.h"
#include "base/rng.h"
#include "server/store.h"

enum { CLOCKS = 120, TASKS = 64, GROUPS = 8, FOREVER = 100000 };

static struct {
	const struct fal_rule *rule;
	uint32_t rounds[GROUPS + 1]; /* of each group since the last version */
	double last[GROUPS + 1];     /* when it has pushed; 0: not yet */
	double sum;                  /* of the weights of the pushes since then */
	uint32_t lines;
	uint32_t all, some, late; /* versions of all, of some; stale rounds */
} is;

static uint32_t
came(void)
{
	uint32_t n = 0;
	for (uint32_t g = 1; g <= GROUPS; g++)
		n += is.last[g] > 0;
	return n;
}

/* The n-th push, in time, from 1. */
static double
nth(uint32_t n)
{
	for (uint32_t g = 1; g <= GROUPS; g++) {
		uint32_t before = 0;
		for (uint32_t k = 1; k <= GROUPS; k++)
			before += is.last[k] > 0 && (is.last[k] < is.last[g] ||
						     (is.last[k] <= is.last[g] && k < g));
		if (is.last[g] > 0 && before + 1 == n)
			return is.last[g];
	}
	return -1;
}

static void
ended(const struct fal_act *a)
{
	const struct fal_round_info r = play_round(a->round);
	const bool line = is.rule->delta;
	play_check(is.last[r.group] > 0, false, "a group that waits has a round");
	is.rounds[r.group]++;
	is.late += r.stale_updates > 0;
	play_check(a->fate, line ? FAL_FATE_BRANCH : FAL_FATE_MERGE, "fate");
	if (line)
		play_near(a->divisor, r.tasks, 1e-9, "divisor of a line's step");
	if (!line || is.rounds[r.group] == is.rule->rounds)
		is.last[r.group] = play.now;
}

/* A group that is pushed early, as others came or went, is so by this at the latest. */
static void
pushed(const struct fal_act *a)
{
	if (is.last[a->branch] <= 0)
		is.last[a->branch] = play.now;
	is.sum += a->weight;
	is.lines++;
}

static void
stepped(const struct fal_act *a)
{
	const uint32_t n = came();
	const struct fal_rule *rule = is.rule;
	play_at_least(n, fmin(rule->quorum, a->among), "pushes");
	if (n == a->among)
		is.all++;
	else
		is.some++;
	if (n < a->among) /* nobody is waited for any longer, or less */
		play_near(play.now, nth(rule->quorum) + rule->grace, 1e-9, "when");
	if (rule->delta) {
		play_check(is.lines, n, "lines");
		play_near(is.sum, 1, 1e-9, "weights");
		play_near(a->weight, rule->outer_rate, 0, "outer rate");
		play_near(a->momentum, fmax(1 - (1 - rule->momentum) * a->among / n, 0),
			  1e-9, "outer momentum");
	} else {
		play_near(a->divisor, 64, 0, "divisor");
		play_near(a->clock_part, 1, 0,
			  "of the clock"); /* other groups are not waited for */
	}
	for (uint32_t g = 1; g <= GROUPS; g++)
		if (is.last[g] > 0) {
			is.last[g] = 0;
			is.rounds[g] = 0;
		}
	is.sum = 0;
	is.lines = 0;
}

static void
on_act(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_END && a->fate < FAL_FATE_DROP)
		ended(a);
	else if (a->kind == FAL_ACT_PUSH)
		pushed(a);
	else if (a->kind == FAL_ACT_STEP)
		stepped(a);
}

/* Eight workers, two each of four speeds. */
static void
play_quorum(const char *rule)
{
	memset(&is, 0, sizeof(is));
	play_job(rule, CLOCKS, TASKS);
	is.rule = &play.s->policy.rule;
	play.on_act = on_act;
	for (int i = 0; i < 8; i++)
		play_join(1 + i / 2);
}

static void
all_is_over(void)
{
	uint64_t tasks = 0;
	for (int f = 0; f <= FAL_FATE_DROP; f++)
		tasks += play.tasks[f];
	play_check(fal_sched_is_done(play.s), true, "done");
	play_check(tasks, CLOCKS * TASKS, "tasks");
	play_check(play.tasks[FAL_FATE_DROP], 0, "tasks dropped");
}

/* Two are enough, and others have as long as that to come. */
static void
waits_for_so_many(void **state)
{
	(void)state;
	play_quorum("groups:4,quorum=2,grace=0.03");
	play_run(CLOCKS, FOREVER);
	all_is_over();
	play_at_least(is.some, 20, "versions of some");
	play_at_least(is.late, 20, "rounds that came late, into the next version");
}

/* Nobody waits longer than for all. */
static void
waits_for_all_at_most(void **state)
{
	(void)state;
	play_quorum("groups:4,quorum=2,grace=1000");
	play_run(CLOCKS, FOREVER);
	all_is_over();
	play_at_least(is.all, 20, "versions of all");
	play_at_least(is.all, is.some * 10, "versions of some");
	play_end(state);
	play_quorum("groups:3,quorum=64");
	play_run(CLOCKS, FOREVER);
	all_is_over();
	play_at_least(is.all, 20, "versions of all");
	play_check(is.some, 0, "versions of some");
}

/* Lines by their samples; less momentum where fewer push. */
static void
lines_by_samples(void **state)
{
	static const char *const rules[] = {
		"groups:4,mode=delta,quorum=2,grace=0.03",
		"groups:4,mode=delta,rounds=3,quorum=1",
		"groups:4,mode=delta,quorum=2,outer=1,momentum=0.3",
		"groups:3,mode=delta,rounds=2,quorum=3,momentum=0"
	};
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		play_quorum(rules[i]);
		play_run(CLOCKS, FOREVER);
		all_is_over();
		if (is.rule->quorum < 3)
			play_at_least(is.some, 10, "versions of some");
		else
			play_at_least(is.all, 10, "versions of all");
		play_end(state);
	}
}

/* A group that has pushed dies: its push stays.  One that has not is waited for no more.
 */
static void
deaths(void **state)
{
	(void)state;
	play_quorum("groups:4,quorum=4");
	play_run(CLOCKS, 2);
	while (came() != 3)
		assert_true(play_step(FOREVER));
	uint32_t missing = 1;
	while (is.last[missing] > 0)
		missing++;
	const uint64_t version = play.s->version;
	for (uint32_t id = 8; id > 0; id--)
		if (play_its(id)->team->id == missing)
			play_leave(id);
	play_check(play.s->version, version + 1, "versions");
	while (came() != 1)
		assert_true(play_step(FOREVER));
	for (uint32_t id = 8; id > 0; id--)
		if (fal_worker_find(play.s, id) != NULL &&
		    is.last[play_its(id)->team->id] > 0)
			play_leave(id);
	play_check(came(), 1, "pushes that stay");
	play_run(CLOCKS, FOREVER);
	all_is_over();
}

/* Held: what was pushed makes a version when nothing is under way. */
static void
hold(void **state)
{
	(void)state;
	play_quorum("groups:4,mode=delta,rounds=50,quorum=4");
	play_run(CLOCKS, 2);
	const uint64_t version = play.s->version;
	fal_sched_hold(play.s, play.now, true);
	play_follow_all();
	while (!fal_sched_is_quiet(play.s))
		assert_true(play_step(FOREVER));
	play_check(play.s->version, version + 1, "versions");
	fal_sched_hold(play.s, play.now, false);
	play_follow_all();
	play_run(CLOCKS, FOREVER);
	all_is_over();
}

/* The outer step, bit by bit. */
static void
outer_is_plain(void **state)
{
	(void)state;
	enum { N = FAL_BLOCK + 9 };
	static float init[N], x[N], v[N];
	struct fal_rng r = fal_rng_init(5, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < N; i++)
		x[i] = init[i] = fal_rng_unit(&r) - 0.5f;
	const struct fal_store_conf conf = { .n = N };
	struct fal_store *store = fal_store_new(&conf, init);
	struct fal_sum *sum = fal_sum_new(N);
	assert_non_null(store);
	assert_non_null(sum);
	for (uint64_t k = 0; k < 6; k++) {
		const uint64_t line = fal_branch_version(1, k + 1);
		const float m = 0.9f - 0.1f * (float)k;
		if (k == 4) { /* it begins anew */
			fal_store_forget_slots(store, 0, UINT64_MAX);
			memset(v, 0, sizeof(v));
		}
		fal_store_set_branch(store, line);
		const struct fal_store_round open = {
			.round = k, .tasks = 1, .kind = FAL_KIND_GRAD, .version = line
		};
		const struct fal_store_from from = { .round = k,
						     .id = { 1, 1 },
						     .tasks = 1 };
		const float *at;
		const int8_t *exps;
		static float grad[N], was[N];
		struct fal_buf b = { 0 };
		struct fal_bfp_rec rec;
		for (size_t i = 0; i < N; i++)
			grad[i] = fal_rng_unit(&r) - 0.5f;
		fal_store_open(store, &open);
		play_check(fal_store_find_version(store, line, &at, &exps), true,
			   "is kept");
		memcpy(was, at, sizeof(was));
		fal_sum_clear(sum);
		play_check(fal_sum_quantise(sum, grad, exps, FAL_BFP_ROOM, NULL), 0,
			   "quantise");
		for (uint32_t k2 = 0; k2 < 2; k2++) {
			fal_buf_clear(&b);
			play_check(fal_sum_pack(sum, k2, exps[k2], &b), 0, "pack");
			struct fal_rd rd = fal_rd_init(b.p, b.n);
			play_check(fal_bfp_parse(&rd, N, &rec), 0, "parse");
			play_check(fal_store_add(store, &from, &rec), 1, "add");
		}
		fal_buf_free(&b);
		const uint64_t to = fal_branch_version(1, k + 2);
		const struct fal_store_step_branch step = { to, 0.1f, 1, 0 };
		play_check(fal_store_step_branch(store, k, &step).out_of_range, 0,
			   "step");
		play_check(fal_store_find_version(store, to, &at, &exps), true,
			   "is kept");
		for (size_t i = 0; i < N; i++) {
			const float by = 0.25f * (at[i] - was[i]);
			v[i] = m * v[i] + by;
			x[i] += 0.7f * (by + m * v[i]);
		}
		fal_store_collect_branch(store, 1, 0.25);
		fal_store_outer_step(store, (double)0.7f, (double)m);
		fal_store_step(store, &(struct fal_store_update){ .lr = 0.1f });
		assert_memory_equal(fal_store_params(store), x, sizeof(x));
		play_at_least((double)fabsf(v[0]), 1e-6, "what it changes by");
	}
	fal_sum_free(sum);
	fal_store_free(store);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, play_end)
	const struct CMUnitTest tests[] = {
		TEST(waits_for_so_many),
		TEST(waits_for_all_at_most),
		cmocka_unit_test(lines_by_samples),
		TEST(deaths),
		TEST(hold),
		cmocka_unit_test(outer_is_plain),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
