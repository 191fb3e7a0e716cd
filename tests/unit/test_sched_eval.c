/* Evaluation: who gets test tasks, and what becomes of them. */
#include "test_sched.h"

static void
eval_is_for_who_would_wait(void **state)
{
	(void)state;
	begin("epsp", 1, 0.25);
	join(1, 1, 1, 1);
	join(2, 1, 1, 1);
	open_clock(0);
	uint32_t busy = worker[1].n > 0 ? 1 : 2, idle = 3 - busy;
	check(fal_sched_start_eval(sched, now, 10), 0, "eval");
	check(fal_sched_start_eval(sched, now, 10), FAL_ESTATE, "a second one");
	follow_all();
	check(worker[busy].evals, 0, "eval tasks of the busy one");
	check(worker[idle].evals, 4, "what fits into the wait of the idle one");
	now = 1;
	check(claim_as(busy, 0, 1, none, 1), 1, "claim");
	check(worker[busy].evals, 0, "nothing to wait for any more");
	complete(current());
	follow_all();
	assert_true(worker[busy].evals > 0); /* no clock is open: everyone */
	uint32_t guard = 0;
	while (!fal_sched_is_eval_done(sched) && guard++ < 20)
		for (uint32_t id = 1; id <= 2; id++)
			while (worker[id].evals > 0) {
				uint32_t t = worker[id].eval[--worker[id].evals];
				now += 0.25;
				check(fal_sched_claim_eval(sched, now, id, t, 1, 0.25), 1,
				      "evaluated");
				check(fal_sched_claim_eval(sched, now, id, t, 1, 0.25), 0,
				      "the same again");
				follow_all();
			}
	check(fal_sched_is_eval_done(sched), 1, "done");
	check(fal_sched_claim_eval(sched, now, 1, 10, 1, 0.1), FAL_EINVAL,
	      "no such task");
}

static void
eval_tasks_come_back(void **state)
{
	(void)state;
	begin("epsp", 1, 0.25);
	join(1, 1, 1, 1);
	join(2, 1, 1, 1);
	check(fal_sched_start_eval(sched, now, 6), 0, "eval");
	follow_all();
	uint32_t first = worker[1].evals;
	assert_true(first > 0 && worker[2].evals > 0);
	uint32_t stolen = worker[1].eval[0];
	fal_sched_leave(sched, now, 1);
	follow_all();
	/* What it never had is not its to say. */
	bool has = false;
	for (uint32_t i = 0; i < worker[2].evals; i++)
		has |= worker[2].eval[i] == stolen;
	check(fal_sched_claim_eval(sched, now, 2, stolen, 1, 0.1), has ? 1 : FAL_ESTATE,
	      "not granted to it");
	follow_all();
	check(fal_sched_claim_eval(sched, now, 1, 5, 1, 0.1), 0, "by who left");
	uint32_t counted = 0;
	while (worker[2].evals > 0) {
		uint32_t t = worker[2].eval[--worker[2].evals];
		check(fal_sched_claim_eval(sched, now, 2, t, 1, 0.1), 1, "evaluated");
		follow_all();
		counted++;
	}
	check(counted, 6, "counted");
	check(fal_sched_is_eval_done(sched), 1, "done");
}

/* What a worker has is its own when its slot is another one: those of workers that left
 * are taken away when many have. */
static void
tasks_outlive_a_slot(void **state)
{
	enum { GUESTS = 40 };
	struct fal_join guest = { .lanes_min = 1, .lanes_max = 1, .cores = 1 };
	(void)state;
	begin("bsp", 6, 0.25); /* nothing moves */
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 1, 1, 1);
	check(fal_sched_start_eval(sched, now, 12), 0, "eval");
	follow_all();
	uint32_t mine = worker[3].evals;
	assert_true(mine > 0);
	open_clock(0);
	check(worker[3].n, 2, "tasks");
	fal_sched_leave(sched, now, 1);
	follow_all();
	check(worker[3].n, 3, "tasks");
	for (guest.id = 4; guest.id < 4 + GUESTS; guest.id++) {
		check(fal_sched_join(sched, now, &guest), 0, "join");
		fal_sched_leave(sched, now, guest.id);
		follow_all();
	}
	check(sched->worker[1].id, 3, "the second slot's worker");
	check(sched->worker[1].evals, mine, "eval tasks that it holds");
	check(sched->worker[1].queued, 3, "tasks that it holds");
	check(worker[3].n, 3, "tasks");
	for (uint32_t i = 1; i <= mine; i++) {
		uint32_t t = worker[3].eval[mine - i];
		check(fal_sched_claim_eval(sched, now, 3, t, 1, 0.1), 1, "evaluated");
		check(sched->worker[1].evals, mine - i, "eval tasks left");
	}
	for (uint32_t i = 0; i < 3; i++)
		check(claim_as(3, worker[3].q[i].task, 1, none, 0.1), 1, "claim");
	check(sched->worker[1].queued, 0, "tasks left");
	fal_sched_leave(sched, now, 3);
	follow_all();
	check(sched->worker[0].queued, 6, "tasks of the last one");
}

/* Evaluates all that worker `id` has; time passes, the others answer that they
 * are where they were. */
static void
evaluate_all(uint32_t id)
{
	for (uint32_t i = 0; i < 1000 && !fal_sched_is_eval_done(sched); i++) {
		while (worker[id].evals > 0) {
			uint32_t t = worker[id].eval[--worker[id].evals];
			now += 0.025;
			check(fal_sched_claim_eval(sched, now, id, t, 1, 0.025) >= 0, 1,
			      "evaluated");
			follow_all();
		}
		double wake = fal_sched_next_tick(sched);
		if (wake == INFINITY)
			break;
		now = fmax(now, wake);
		fal_sched_tick(sched, now);
		follow_all();
		answer(1, 7);
		answer(2, 7);
	}
	check(fal_sched_is_eval_done(sched), 1, "evaluation done");
}

/* It answers, but evaluates nothing: others do it, and it is tried with one. */
static void
idle_talk_evaluates_nothing(void **state)
{
	(void)state;
	begin("epsp", 2, 0.25);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	check(fal_sched_start_eval(sched, now, 16), 0, "eval");
	follow_all();
	assert_true(worker[1].evals > 0);
	uint32_t had = worker[1].evals;
	evaluate_all(2);
	check(info(1).suspected, 1, "suspected");
	assert_true(now < 4);
	worker[1].evals = 0;
	open_clock(0);
	check(worker[1].n, 0, "tasks in the clock in which it was suspected");
	worker[2].n = 0;
	complete(current());
	open_clock(1);
	check(worker[1].n, 1, "a task on trial");
	worker[1].n = worker[2].n = 0;
	complete(current());
	check(fal_sched_start_eval(sched, now, 16), 0, "eval");
	follow_all();
	evaluate_all(2);
	check(info(1).suspected, 1, "suspected again");
	assert_true(worker[1].evals <= 1 && had > 1);
}

/* Alone, it keeps what it has: nobody would do it sooner. */
static void
slow_evaluation_alone(void **state)
{
	(void)state;
	begin("epsp", 1, 0.25);
	join(1, 1, 1, 0.1);
	check(fal_sched_start_eval(sched, now, 4), 0, "eval");
	follow_all();
	uint32_t had = worker[1].evals;
	for (uint32_t i = 1; i <= 5; i++) {
		tick_until(FAL_ACT_PING, i);
		answer(1, 7);
	}
	check(worker[1].evals, had, "eval tasks");
	check(sched->worker[0].evals, had, "eval tasks that it holds");
}

/* Whoever said something of a task is not heard again while another one is to confirm it,
 * be it that it was given the task once. */
static void
nobody_confirms_itself(void **state)
{
	(void)state;
	begin("epsp", 1, 0.25);
	join(1, 1, 1, 0.1);
	check(fal_sched_start_eval(sched, now, 1), 0, "eval");
	follow_all();
	check(worker[1].evals, 1, "eval tasks");
	check(fal_sched_claim_eval(sched, now, 1, 0, 1, 0.1), 1, "evaluated");
	join(2, 1, 1, 0.1);
	check(fal_sched_eval_can_repeat(sched, 0), 1, "another one is there");
	fal_sched_repeat_eval(sched, now, 0);
	follow_all();
	check(worker[2].evals, 1, "eval tasks of the other one");
	check(fal_sched_claim_eval(sched, now, 1, 0, 1, 0.1), 0, "the first one again");
	check(fal_sched_is_eval_done(sched), 0, "done");
	check(fal_sched_claim_eval(sched, now, 2, 0, 1, 0.1), 1, "the witness");
	check(fal_sched_is_eval_done(sched), 1, "done");
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		TEST(eval_is_for_who_would_wait), TEST(eval_tasks_come_back),
		TEST(tasks_outlive_a_slot),       TEST(idle_talk_evaluates_nothing),
		TEST(slow_evaluation_alone),      TEST(nobody_confirms_itself),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
