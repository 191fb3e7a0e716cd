/* Groups with a model of their own (groups, mode=delta): the store's lines against plain
 * loops, the scheduler's rounds and pushes, and both together against mode=grad. */
#include "../naive_optim.h"
#include "sched_play.h"

#include "base/branch.h"
#include "base/rng.h"
#include "server/store.h"

enum { N = FAL_BLOCK + 50, BLOCKS = 2, LINES = 5, CLOCKS = 200, FOREVER = 100000 };

static struct fal_store *store;
static struct fal_sum *sum;
static float grad[N];

static struct {
	float seen[LINES][N]; /* what the open round of a group is computed on */
	int8_t exps[LINES][BLOCKS];
	uint32_t unpushed[LINES];    /* rounds */
	uint32_t ends, pushes, full; /* full: pushes of `rounds` rounds */
	uint32_t rounds, abandoned;
	double weight;
} is;

static void
fill(float *v, uint64_t seed)
{
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < N; i++)
		v[i] = fal_rng_unit(&r) - 0.5f;
}

static const struct fal_optim adamw = {
	.kind = FAL_ADAMW, .beta1 = 0.9, .beta2 = 0.98, .eps = 1e-8f
};

static int
begin(const struct fal_optim *optim)
{
	static float init[N];
	const struct fal_store_conf conf = { .n = N, .optim = *optim };
	fill(init, 1);
	memset(&is, 0, sizeof(is));
	store = fal_store_new(&conf, init);
	sum = fal_sum_new(N);
	return store == NULL || sum == NULL ? -1 : 0;
}

static int
with_adamw(void **state)
{
	(void)state;
	return begin(&adamw);
}

static int
with_sgd(void **state)
{
	(void)state;
	return begin(&(struct fal_optim){ 0 });
}

static int
end(void **state)
{
	fal_store_free(store);
	fal_sum_free(sum);
	return play.s != NULL ? play_end(state) : 0;
}

static void
open_round(uint64_t round, uint64_t version)
{
	const struct fal_store_round open = {
		.round = round, .tasks = 1, .kind = FAL_KIND_GRAD, .version = version
	};
	fal_store_open(store, &open);
}

/* `values`, quantised with `exps`, is the whole of an open round. */
static void
bring(uint64_t round, const float *values, const int8_t *exps)
{
	const struct fal_store_from from = { .round = round, .id = { 1, 1 }, .tasks = 1 };
	struct fal_buf b = { 0 };
	struct fal_bfp_rec rec;
	play_check(fal_sum_quantise(sum, values, exps, FAL_BFP_ROOM, NULL), 0,
		   "quantise");
	for (uint32_t k = 0; k < BLOCKS; k++) {
		fal_buf_clear(&b);
		play_check(fal_sum_pack(sum, k, exps[k], &b), 0, "pack");
		struct fal_rd r = fal_rd_init(b.p, b.n);
		play_check(fal_bfp_parse(&r, N, &rec), 0, "parse");
		play_check(fal_store_add(store, &from, &rec), 1, "add");
	}
	fal_buf_free(&b);
}

/* --- the store ------------------------------------------------------------------- */

/* A plain model: parameters, the optimiser's state, exponents. */
struct plain {
	float params[N], state[2 * N];
	uint64_t steps;
	int8_t exps[BLOCKS];
};

/* One step by `grad` over 3 samples. */
static void
plain_step(struct plain *p)
{
	const struct fal_optim_step by = fal_optim_step(&adamw, 0.1f, p->steps++);
	float mean[FAL_BLOCK];
	play_check(fal_sum_quantise(sum, grad, p->exps, FAL_BFP_ROOM, NULL), 0,
		   "quantise");
	for (uint32_t k = 0; k < BLOCKS; k++) {
		size_t first = (size_t)k * FAL_BLOCK;
		fal_sum_mean(sum, k, p->exps[k], 3, mean);
		const uint32_t len = fal_block_len(N, k);
		fal_optim_apply_naive(&by, p->params + first, p->state + 2 * first, len,
				      mean, len);
		p->exps[k] = fal_exp_next(p->exps[k], fal_sum_needed(sum, k));
	}
}

static void
same_line(uint64_t version, const struct plain *want)
{
	const float *params;
	const int8_t *exps;
	play_check(fal_store_find_version(store, version, &params, &exps), true,
		   "is kept");
	assert_memory_equal(params, want->params, sizeof(want->params));
	assert_memory_equal(exps, want->exps, BLOCKS);
}

/* Two lines of three steps each, pushed with weights 1/4 and 3/4, twice: bit by bit. */
static void
lines_are_plain(void **state)
{
	(void)state;
	static struct plain line[2];
	static float model[N], taken[2][N];
	static const float weight[2] = { 0.25f, 0.75f };
	uint64_t n = 0;
	memcpy(model, fal_store_params(store), sizeof(model));
	for (uint32_t l = 0; l < 2; l++)
		memset(line[l].exps, FAL_EXP_FIRST, BLOCKS);
	for (uint32_t turn = 0; turn < 2; turn++) {
		uint64_t at[2];
		for (uint32_t l = 0; l < 2; l++) {
			at[l] = fal_branch_version(l + 1, ++n);
			fal_store_set_branch(store, at[l]);
			memcpy(line[l].params, model, sizeof(model));
			memcpy(taken[l], model, sizeof(model));
			same_line(at[l], &line[l]);
		}
		for (uint32_t i = 0; i < 6; i++) {
			const uint32_t l = i % 2;
			fill(grad, n);
			open_round(n, at[l]);
			bring(n, grad, line[l].exps);
			struct fal_store_step_branch step = {
				fal_branch_version(l + 1, n + 1), 0.1f, 3, 0
			};
			fal_store_step_branch(store, n++, &step);
			const float *params;
			const int8_t *exps;
			play_check(fal_store_find_version(store, at[l], &params, &exps),
				   false, "an older version is kept");
			at[l] = step.version;
			plain_step(&line[l]);
			same_line(at[0], &line[0]);
			same_line(at[1], &line[1]);
		}
		assert_memory_equal(fal_store_params(store), model, sizeof(model));
		for (uint32_t l = 0; l < 2; l++) {
			fal_store_collect_branch(store, l + 1, (double)weight[l]);
			fal_store_step(store, &(struct fal_store_update){ .lr = 0.1f });
			for (size_t i = 0; i < N; i++)
				model[i] += weight[l] * (line[l].params[i] - taken[l][i]);
			assert_memory_equal(fal_store_params(store), model,
					    sizeof(model));
		}
		play_check(fal_store_version(store), 2 * turn + 2, "version");
	}
	const float *params;
	const int8_t *exps;
	fal_store_forget_branches(store);
	play_check(fal_store_find_version(store, fal_branch_version(1, n), &params,
					  &exps),
		   false, "kept when lines are over");
}

/* --- the scheduler, with the store ----------------------------------------------- */

static void
opened(const struct fal_round_info *r)
{
	const float *params;
	const int8_t *exps;
	play_check(fal_store_find_version(store, r->version, &params, &exps), true,
		   "is kept");
	memcpy(is.seen[r->group], params, sizeof(is.seen[0]));
	memcpy(is.exps[r->group], exps, BLOCKS);
	open_round(r->round, r->version);
	play_check(fal_branch_of(r->version), is.rounds > 0 ? r->group : 0, "line");
	play_check(r->local, is.rounds > 0 ? is.unpushed[r->group] + 1 : 0, "local");
}

/* A round is over: each task's gradient draws the parameters to its own point. */
static void
ended(const struct fal_act *a, const struct fal_round_info *r)
{
	static float point[N];
	const float *on = is.seen[r->group];
	memset(grad, 0, sizeof(grad));
	for (uint32_t t = r->first; t < r->first + r->tasks; t++) {
		fill(point, 1000 + t);
		for (size_t i = 0; i < N; i++)
			grad[i] += 0.01f * (on[i] - point[i]);
	}
	is.ends++;
	bring(a->round, grad, is.exps[r->group]);
	if (a->fate == FAL_FATE_MERGE) {
		play_check(fal_store_merge(store, a->round), 0, "merge");
		return;
	}
	const struct fal_store_step_branch step = { a->version, 0.1f, a->divisor, 0 };
	play_check(a->fate, FAL_FATE_BRANCH, "fate");
	play_check(fal_branch_of(a->version), r->group, "line");
	fal_store_step_branch(store, a->round, &step);
	is.unpushed[r->group]++;
	play_at_least(is.rounds, is.unpushed[r->group], "rounds between pushes");
	is.weight = a->weight;
}

static void
stepped(const struct fal_act *a)
{
	if (a->weight > 0)
		fal_store_outer_step(store, a->weight, a->momentum);
	is.pushes++;
	fal_store_step(store,
		       &(struct fal_store_update){ .lr = 0.1f, .divisor = a->divisor });
}

static void
pushed(const struct fal_act *a)
{
	play_at_least(is.unpushed[a->branch], 1, "rounds that are pushed");
	is.full += is.unpushed[a->branch] == is.rounds;
	is.unpushed[a->branch] = 0;
	fal_store_collect_branch(store, a->branch, a->weight);
	is.weight = a->weight;
}

static void
on_act(const struct fal_act *a)
{
	struct fal_round_info r = { 0 };
	if (a->kind == FAL_ACT_OPEN || a->kind == FAL_ACT_END)
		r = play_round(a->round);
	if (a->kind == FAL_ACT_OPEN)
		opened(&r);
	else if (a->kind == FAL_ACT_END && a->fate == FAL_FATE_RETRY) {
		is.abandoned++;
		fal_store_drop(store, a->round);
	} else if (a->kind == FAL_ACT_END)
		ended(a, &r);
	else if (a->kind == FAL_ACT_BRANCH)
		fal_store_set_branch(store, a->version);
	else if (a->kind == FAL_ACT_PUSH)
		pushed(a);
	else if (a->kind == FAL_ACT_STEP)
		stepped(a);
}

/* Eight workers, two of them slow; `rounds` 0: mode=grad. */
static void
play_lines(const char *rule, uint32_t rounds)
{
	play_job(rule, CLOCKS, 64);
	is.rounds = rounds;
	play.on_act = on_act;
	for (int i = 0; i < 8; i++)
		play_join(i < 2 ? 3 + 0.01 * i : 1 + 0.01 * i);
}

static void
nothing_waits(void)
{
	for (uint32_t l = 0; l < LINES; l++)
		play_check(is.unpushed[l], 0, "rounds that were never pushed");
	play_check(fal_sched_is_quiet(play.s), true, "quiet");
}

/* Pushed after each round, under plain SGD: that is mode=grad. */
static void
one_round_is_grad(void **state)
{
	static float want[N];
	play_lines("groups:2", 0);
	play_run(CLOCKS, FOREVER);
	memcpy(want, fal_store_params(store), sizeof(want));
	const uint64_t versions = fal_store_version(store);
	const uint32_t ends = is.ends;
	end(state);
	begin(&(struct fal_optim){ 0 });
	play_lines("groups:2,mode=delta", 1);
	play_run(CLOCKS, FOREVER);
	nothing_waits();
	play_check(fal_store_version(store), versions, "versions");
	play_check(is.ends, ends, "rounds");
	play_at_least(ends, CLOCKS, "rounds");
	float most = 0;
	for (size_t i = 0; i < N; i++) {
		play_near((double)fal_store_params(store)[i], (double)want[i], 2e-6,
			  "parameter");
		most = fmaxf(most, fabsf(want[i] - is.seen[1][i]));
	}
	play_at_least((double)most, 1e-5, "what the last rounds changed");
}

/* Every third round of a group moves the model, by its part of the workers. */
static void
third_round_pushes(void **state)
{
	(void)state;
	play_lines("groups:2,mode=delta,rounds=3", 3);
	play_run(CLOCKS, 1);
	while (play_step(FOREVER) && is.weight < 0.5)
		;
	play_near(is.weight, 6.0 / 8, 1e-12, "weight of six of eight");
	while (play_step(FOREVER) && is.weight > 0.5)
		;
	play_near(is.weight, 2.0 / 8, 1e-12, "weight of two of eight");
	play_run(CLOCKS, FOREVER);
	nothing_waits();
	play_check(play.tasks[FAL_FATE_BRANCH], CLOCKS * 64, "tasks applied");
	play_at_least(is.full, 20, "pushes of three rounds");
	play_at_least(is.full + 4, is.pushes, "pushes of three rounds, but for the last");
	play_check(play.acts[FAL_ACT_STEP], play.s->version, "versions");
}

/* A group dies with rounds on its line: what it did is pushed at once, what it was at is
 * done by others. */
static void
death_loses_nothing(void **state)
{
	(void)state;
	play_lines("groups:2,mode=delta,rounds=50", 50);
	play_run(CLOCKS, 1);
	uint32_t group = play_its(1)->team->id, pushes;
	play_check(play_its(2)->team->id == group, true, "the slow ones are together");
	play_check(play_its(3)->team->id == group, false, "with a fast one");
	while (is.unpushed[group] < 2)
		assert_true(play_step(FOREVER));
	pushes = is.pushes;
	play_leave(1);
	play_check(is.pushes, pushes, "pushes while one is left");
	play_leave(2);
	play_check(is.unpushed[group], 0, "rounds of the dead group");
	play_check(is.pushes, pushes + 1, "pushes");
	play_check(is.abandoned, 1, "rounds abandoned");
	play_run(CLOCKS, FOREVER);
	nothing_waits();
	play_check(play.tasks[FAL_FATE_BRANCH], CLOCKS * 64, "tasks applied");
}

/* Held: rounds under way end, and all lines are pushed; then they go on. */
static void
hold_loses_nothing(void **state)
{
	(void)state;
	struct fal_policy p = { 0 };
	play_lines("groups:2,mode=delta,rounds=50", 50);
	play_run(CLOCKS, 1.2);
	play_check(is.unpushed[1] > 0 && is.unpushed[2] > 0, true, "both have rounds");
	const uint32_t pushes = is.pushes;
	fal_sched_hold(play.s, play.now, true);
	play_follow_all();
	while (!fal_sched_is_quiet(play.s))
		assert_true(play_step(FOREVER));
	nothing_waits();
	play_check(is.pushes, pushes + 2, "pushes");
	/* Another scheme counts only what comes under it. */
	play_check(fal_rule_parse("groups:2", &p.rule, NULL), 0, "rule");
	play_check(fal_sched_set_policy(play.s, play.now, &p), 0, "policy");
	is.rounds = 0;
	fal_store_forget_branches(store);
	fal_sched_hold(play.s, play.now, false);
	play_follow_all();
	play_run(CLOCKS, FOREVER);
	nothing_waits();
	play_check(play.tasks[FAL_FATE_BRANCH] + play.tasks[FAL_FATE_MERGE], CLOCKS * 64,
		   "tasks applied");
	play_at_least((double)play.tasks[FAL_FATE_MERGE], 64, "tasks applied one by one");
}

/* Groups that come and go: a line whose group has no members is pushed. */
static void
progressive_loses_nothing(void **state)
{
	(void)state;
	play_lines("groups:progressive,window=2,mode=delta,rounds=4", 4);
	play.loss = 1000;
	play_run(CLOCKS, 4);
	play_at_least(fal_teams_count_active(play.s), 2, "groups while they idle");
	play.loss = 1500;
	while (fal_teams_count_active(play.s) > 1)
		assert_true(play_step(FOREVER));
	play_run(CLOCKS, FOREVER);
	nothing_waits();
	play_check(play.tasks[FAL_FATE_BRANCH], CLOCKS * 64, "tasks applied");
}

int
main(void)
{
#define TEST(f, optim) cmocka_unit_test_setup_teardown(f, optim, end)
	const struct CMUnitTest tests[] = {
		TEST(lines_are_plain, with_adamw),
		TEST(one_round_is_grad, with_sgd),
		TEST(third_round_pushes, with_adamw),
		TEST(death_loses_nothing, with_adamw),
		TEST(hold_loses_nothing, with_adamw),
		TEST(progressive_loses_nothing, with_adamw),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
