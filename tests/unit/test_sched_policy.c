/* Policies in the scheduler, and what it takes to change them: hold, quiet. */
#include "test_sched.h"

static struct fal_policy policy;

/* Begins with rule `text`; workers have the names a, b, c … in order of their ids, and
 * one core. */
static void
begin_job(const char *text, uint32_t tasks, uint32_t workers, uint32_t lanes)
{
	begin(text, tasks, 0);
	policy = policy_of(text);
	for (uint32_t id = 1; id <= workers; id++) {
		char name[] = { (char)('a' + id - 1), '\0' };
		check(join_as(id, name, lanes, 1, 0.1), 0, "join");
	}
}

static int
end_job(void **state)
{
	fal_policy_free(&policy);
	return end(state);
}

static struct fal_policy_worker *
entry(const char *name)
{
	return fal_policy_entry(&policy, name);
}

static int
set(void)
{
	int err = fal_sched_set_policy(sched, now, &policy);
	follow_all();
	return err;
}

static void
hold(bool held)
{
	fal_sched_hold(sched, now, held);
	follow_all();
}

/* Who is excluded loses what it has, at once, and what it claimed is done again. */
static void
exclusion_strips(void **state)
{
	(void)state;
	begin_job("epsp", 6, 2, 1);
	open_clock(0);
	check(worker[2].n, 3, "tasks before");
	uint32_t claimed = worker[2].q[0].task;
	check(claim_as(2, claimed, 1, none, 0.1), 1, "claim");
	entry("b")->excluded = true;
	check(set(), 0, "set");
	check(worker[2].n - holds(2, claimed), 0, "tasks of the excluded one");
	check(worker[1].n, 6, "tasks of the other one");
	check(acts[FAL_ACT_FENCE], 1, "fences");
	check((int64_t)last[FAL_ACT_FENCE].cid.worker, 2, "whose");
	check(acts[FAL_ACT_EVICT], 0, "evictions: it stays");
	worker[2].n = 0;
	complete(current());
	open_clock(1);
	check(worker[2].n, 0, "tasks of the next clock");
	check(info(2).suspected, 0, "suspected");
}

/* It is in again when the policy says so, from the next free task on. */
static void
exclusion_ends(void **state)
{
	(void)state;
	begin_job("epsp", 6, 2, 1);
	entry("b")->excluded = true;
	entry("nobody")->excluded = true; /* who is not here */
	check(set(), 0, "set");
	open_clock(0);
	check(worker[1].n, 6, "tasks of the one");
	hear(2); /* whatever it says, it is still out */
	check(worker[2].n, 0, "tasks of the excluded one");
	entry("b")->excluded = false;
	check(set(), 0, "set");
	check(worker[2].n, 2, "tasks of the other: one to run, one to come");
	check(worker[1].n, 4, "tasks of the one");
	play_clock(1);
	check(told[1].done + told[2].done, 6, "tasks done");
	check(told[2].share, 3, "share of the next clock");
}

/* A name is a rule for sessions to come, too. */
static void
exclusion_of_a_newcomer(void **state)
{
	(void)state;
	begin_job("epsp", 6, 1, 1);
	entry("late")->excluded = true;
	check(set(), 0, "set");
	check(join_as(2, "late", 1, 1, 0.1), 0, "join");
	check(join_as(3, "later", 1, 1, 0.1), 0, "join");
	open_clock(0);
	check(worker[1].n, 3, "tasks of the first");
	check(worker[2].n, 0, "tasks of the excluded one");
	check(worker[3].n, 3, "tasks of the third");
}

/* Nobody may work: the round waits, and goes on. */
static void
exclusion_of_all(void **state)
{
	(void)state;
	begin_job("epsp", 4, 2, 1);
	open_clock(0);
	entry("a")->excluded = true;
	entry("b")->excluded = true;
	check(set(), 0, "set");
	check(worker[1].n + worker[2].n, 0, "tasks of anybody");
	check(fal_sched_next_tick(sched) == INFINITY, 1, "nothing to wait for");
	entry("a")->excluded = false;
	check(set(), 0, "set");
	check(worker[1].n, 4, "tasks of the one that is in again");
}

/* Under a scheme of own rounds what is under way of it is abandoned, and done by others.
 */
static void
exclusion_abandons_own_rounds(void **state)
{
	(void)state;
	begin_job("asp", 6, 2, 1);
	open_clock(0);
	check(acts[FAL_ACT_OPEN], 2, "rounds");
	entry("b")->excluded = true;
	check(set(), 0, "set");
	check(acts[FAL_ACT_END], 1, "ends");
	check(last[FAL_ACT_END].fate, FAL_FATE_RETRY, "fate");
	check(worker[2].n, 0, "tasks of the excluded one");
	while (play_step())
		;
	check((int64_t)fal_sched_first_open_clock(sched), 1, "clocks over");
	check(acts[FAL_ACT_OPEN], 3, "rounds");
	check(acts[FAL_ACT_STEP], 2, "steps");
}

static void
lanes_stay_in_bounds(void **state)
{
	(void)state;
	begin_job("epsp", 24, 2, 8);
	check(worker[1].lanes, 8, "lanes at first");
	entry("a")->lanes_min = 2;
	entry("a")->lanes_max = 3;
	check(set(), 0, "set");
	check(worker[1].lanes, 3, "lanes, at most 3");
	check(worker[2].lanes, 8, "lanes of the other");
	check(info(1).lanes_min, 2, "least");
	check(info(1).lanes_max, 3, "most");
	uint64_t clock = 0;
	for (; clock < 20; clock++) {
		play_clock(clock);
		assert_true(worker[1].lanes >= 2 && worker[1].lanes <= 3);
	}
	check(worker[1].lanes, 2, "lanes, at least 2");
	entry("a")->lanes_min = 5;
	entry("a")->lanes_max = 100; /* of its own 8 */
	check(set(), 0, "set");
	check(worker[1].lanes, 5, "lanes, at least 5");
	check(info(1).lanes_max, 8, "most, its own");
	entry("a")->lanes_min = entry("a")->lanes_max = 0;
	check(set(), 0, "set");
	check(info(1).lanes_min, 1, "least, its own");
	for (uint32_t i = 0; i < 40 && worker[1].lanes > 1; i++)
		play_clock(clock++);
	check(worker[1].lanes, 1, "lanes without bounds");
}

/* A weight is a multiple of an equal share, whatever is measured. */
static void
weights_are_shares(void **state)
{
	(void)state;
	begin_job("epsp", 40, 4, 1);
	worker[2].task_s = 0.2;
	play_clock(0);
	entry("a")->share = 0.5;
	entry("c")->share = 0;
	check(set(), 0, "set");
	for (uint64_t clock = 1; clock < 20; clock++) {
		open_clock(clock);
		check(work(1).share, 5, "share of half an equal one");
		check(work(3).share, 0, "share of nothing"); /* and is never tried */
		check(work(2).share + work(4).share, 35, "shares of the others");
		assert_true(work(4).share > work(2).share);
		complete(current());
	}
	entry("a")->share = entry("c")->share = -1;
	check(set(), 0, "set");
	open_clock(20);
	check(work(2).share, 6, "share as projected, at half the speed");
	check(work(1).share + work(3).share + work(4).share, 34, "shares as projected");
	assert_true(work(1).share >= 11 && work(3).share >= 11);
	complete(current());
	entry("a")->share = 100;
	check(set(), 0, "set");
	open_clock(21);
	check(work(1).share, 40, "share of all");
}

/* As last_task_is_cloned of test_sched_epsp.c, without clones. */
static void
no_clones(void **state)
{
	for (uint32_t forbidden = 0; forbidden < 2; forbidden++) {
		begin_job("epsp", 2, 2, 1);
		policy.no_clones = forbidden != 0;
		check(set(), 0, "set");
		play_clock(0);
		open_clock(1);
		now += 0.1;
		check(claim_as(1, 0, 9, none, 0.1), 1, "the pioneer's claim");
		for (uint32_t i = 0; i < 200 && now < 2; i++) {
			now = fmax(now, fal_sched_next_tick(sched));
			fal_sched_tick(sched, now);
			follow_all();
			answer(2, i); /* it computes on */
		}
		check((int64_t)entries(FAL_ENTRY_CLONE), forbidden ? 0 : 1, "clones");
		check(holds(2, 1), 1, "the straggler runs it");
		end_job(state);
	}
}

/* Another rule needs a boundary; anything else does not. */
static void
rules_change_when_quiet(void **state)
{
	(void)state;
	begin_job("epsp", 4, 2, 1);
	open_clock(5);
	check(fal_sched_is_quiet(sched), 0, "quiet while a round is open");
	check(fal_rule_parse("asp", &policy.rule, NULL), 0, "asp");
	check(set(), FAL_ESTATE, "another rule while a round is open");
	check(fal_sched_policy(sched)->rule.scheme, FAL_EPSP, "scheme that holds");
	check(fal_rule_parse("epsp:2", &policy.rule, NULL), 0, "epsp:2");
	check(set(), FAL_ESTATE, "another slack while a round is open");
	check(fal_sched_count_versions(sched), 1, "versions");
	hold(true);
	check(fal_sched_is_quiet(sched), 0, "quiet while what began goes on");
	while (play_step())
		;
	check(fal_sched_is_quiet(sched), 1, "quiet");
	check(acts[FAL_ACT_OPEN], 1, "rounds while it is held");
	check((int64_t)fal_sched_next_clock(sched), 1, "front");
	check(set(), 0, "another slack");
	check(fal_sched_count_versions(sched), 3, "versions");
	check(acts[FAL_ACT_OPEN], 1, "rounds while it is still held");
	hold(false);
	check(acts[FAL_ACT_OPEN], 4, "rounds: three of them at once");
	for (uint64_t r = 1; r < 4; r++) {
		check((int64_t)round_info(r).version, 1, "the version of the boundary");
		check((int64_t)round_info(r).clock, (int64_t)r, "clock");
	}
	complete(1);
	check((int64_t)round_info(4).version, 2, "version");
}

/* Held while workers come and go: nothing begins, and nothing is lost. */
static void
hold_outlasts_everything(void **state)
{
	(void)state;
	begin_job("asp", 4, 2, 1);
	hold(true);
	open_clock(0);
	check(acts[FAL_ACT_OPEN], 0, "rounds");
	check(join_as(3, "c", 1, 1, 0.1), 0, "join");
	fal_sched_leave(sched, now, 1);
	follow_all();
	hear(2);
	check(acts[FAL_ACT_OPEN], 0, "rounds");
	check(fal_sched_is_quiet(sched), 1, "quiet");
	hold(false);
	check(acts[FAL_ACT_OPEN], 2, "rounds");
	hold(true);
	/* What is abandoned under it waits, too. */
	fal_sched_leave(sched, now, 2);
	follow_all();
	check(acts[FAL_ACT_OPEN], 2, "rounds");
	while (play_step())
		;
	check(fal_sched_is_quiet(sched), 1, "quiet");
	check((int64_t)fal_sched_first_open_clock(sched), 0, "over");
	hold(false);
	while (play_step())
		;
	check((int64_t)fal_sched_first_open_clock(sched), 1, "over");
}

/* From rule to rule at every boundary: all clocks are over, each task once. */
static void
rules_in_a_job(void **state)
{
	static const char *const rules[] = {
		"epsp:3",       "asp",      "bsp",      "ssp:2",     "wbsp",
		"dynsgd:3",     "flexrr:1", "groups:2", "rennala:5", "bsp,shares=speed",
		"ringmaster:2", "epsp",     "syncopt:1"
	};
	const uint32_t n = sizeof(rules) / sizeof(rules[0]);
	(void)state;
	begin_job("epsp", 12, 4, 1);
	worker[3].task_s = 0.25;
	for (uint32_t i = 0; i < n; i++) {
		uint64_t clock = fal_sched_next_clock(sched) + 5;
		fal_sched_forget(sched);
		open_clock(clock);
		for (uint32_t step = 0; step < 50 + 3 * i && play_step(); step++)
			;
		hold(true);
		while (play_step())
			;
		check(fal_sched_is_quiet(sched), 1, rules[i]);
		check((int64_t)fal_sched_first_open_clock(sched),
		      (int64_t)fal_sched_next_clock(sched), "over and front");
		check(fal_rule_parse(rules[i], &policy.rule, NULL), 0, rules[i]);
		check(set(), 0, rules[i]);
		hold(false);
	}
	while (play_step())
		;
	check((int64_t)fal_sched_first_open_clock(sched),
	      (int64_t)fal_sched_next_clock(sched), "over");
	check(sched->rounds, 0, "open rounds");
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end_job)
	const struct CMUnitTest tests[] = {
		TEST(exclusion_strips),
		TEST(exclusion_ends),
		TEST(exclusion_of_a_newcomer),
		TEST(exclusion_of_all),
		TEST(exclusion_abandons_own_rounds),
		TEST(lanes_stay_in_bounds),
		TEST(weights_are_shares),
		TEST(no_clones),
		TEST(rules_change_when_quiet),
		TEST(hold_outlasts_everything),
		TEST(rules_in_a_job),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
