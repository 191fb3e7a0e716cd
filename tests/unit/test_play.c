/* The scheduler played on a cost model, against what can be reckoned by hand; and the
 * cost model's own formula. */
#include "../drawn.h"
#include "base/err.h"
#include "base/rng.h"
#include "proj/simulate.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <cmocka.h>

enum { MACHINES = 8, SHARE = 8, PACES = 64 };

static const double task_s = 0.016, pull_s = 0.002, push_s = 0.003, step_s = 0.001;

static void
near(double got, double want, double tol, const char *what)
{
	if (!(fabs(got - want) <= tol))
		fail_msg("%s: got %.9g, want %.9g within %g", what, got, want, tol);
}

/* Eight machines, the last one `slow` times as slow; in every eighth of its clocks only
 * if `now_and_then`. */
static void
build(struct fal_cost *c, double slow, bool now_and_then)
{
	*c = (struct fal_cost){ .grid = { .samples = MACHINES * SHARE * 100,
					  .batch = MACHINES * SHARE,
					  .task = 1,
					  .epochs = 1 },
				.step_s = step_s };
	for (int i = 0; i < MACHINES; i++) {
		struct fal_cost_pace pace[PACES];
		struct fal_cost_machine m = { .lanes_min = 1,
					      .lanes_max = 1,
					      .lanes = 1,
					      .cores = 1,
					      .pace = pace,
					      .paces = PACES,
					      .pull_s = pull_s,
					      .push_s = push_s };
		char name[16];
		for (int k = 0; k < PACES; k++) {
			bool now = i == MACHINES - 1 && (!now_and_then || k % 8 == 3);
			double t = task_s * (now ? slow : 1);
			pace[k] = (struct fal_cost_pace){ .task_s = t,
							  .tasks = SHARE,
							  .seconds = t * SHARE };
		}
		snprintf(name, sizeof(name), "w%d", i + 1);
		fal_cost_add(c, &m, name);
		fal_cost_choose_pacing(&c->machine[i], SHARE);
	}
}

static void
in_bounds(double got, double least, double most, const char *what)
{
	if (!(got >= least && got <= most))
		fail_msg("%s: got %.9g, want %.9g to %.9g", what, got, least, most);
}

static struct fal_simulation
play_for(const struct fal_cost *c, const char *rule, uint64_t clocks)
{
	struct fal_policy policy = { 0 };
	struct fal_diag diag;
	struct fal_simulation out;
	const struct fal_simulation_conf conf = {
		.cost = c, .policy = &policy, .clocks = clocks, .warm = 10
	};
	if (fal_rule_parse(rule, &policy.rule, &diag) < 0)
		fail_msg("%s: %s", rule, diag.text);
	int err = fal_simulate(&conf, &out);
	if (err < 0)
		fail_msg("%s: %s", rule, fal_strerror(err));
	return out;
}

static struct fal_simulation
play(const struct fal_cost *c, const char *rule)
{
	return play_for(c, rule, 320);
}

static void
equal_machines(void **state)
{
	(void)state;
	struct fal_cost c;
	const double clock_s = SHARE * task_s + pull_s + push_s + step_s;
	build(&c, 1, false);
	for (int i = 0; i < 2; i++) {
		struct fal_simulation p = play(&c, i == 0 ? "bsp" : "epsp");
		near(p.seconds / p.clocks, clock_s, 1e-9, "seconds of a clock");
		near(p.compute, SHARE * task_s / clock_s, 1e-6, "compute share");
		near(p.samples, 320 * MACHINES * SHARE, 0, "samples");
		near(p.updates, 320, 0, "updates");
		near(p.moved + p.cloned + p.dropped, 0, 0, "moved, cloned, dropped");
	}
	/* Rounds of its own: no barrier, but a round trip. */
	struct fal_simulation p = play(&c, "asp");
	near(p.seconds / p.clocks, clock_s, 0.01 * clock_s, "asp: seconds of a clock");
	near(p.updates, 320 * MACHINES, 0, "asp: updates");
	near(p.stale_updates, MACHINES - 1, 0.1, "asp: staleness");
	fal_cost_free(&c);
}

/* Six times as slow in every eighth clock, each machine in another one. */
static void
slow_at_times(struct fal_cost_machine *m, size_t which)
{
	for (size_t k = 0; k < m->paces; k++) {
		m->pace[k].task_s = (k + which) % 8 == 0 ? 6 * task_s : task_s;
		m->pace[k].seconds = m->pace[k].task_s * SHARE;
	}
	fal_cost_choose_pacing(m, SHARE);
}

/* Early tasks fill the time in which a version is pushed, made and pulled: a clock is
 * that much longer than its tasks as early ones leave of this time. */
static void
early_tasks_fill_the_barrier(void **state)
{
	static const double rtt_s = 0.04;
	(void)state;
	struct fal_cost c;
	build(&c, 1, false);
	for (size_t i = 0; i < c.machines; i++)
		c.machine[i].rtt_s = rtt_s;
	const double tasks_s = SHARE * task_s, gap_s = rtt_s + pull_s + push_s + step_s;
	for (int early = 1; early < 4; early++) {
		char rule[24];
		snprintf(rule, sizeof(rule), "epsp:%d/%d", early, SHARE);
		struct fal_simulation p = play(&c, rule);
		const double left = fmax(gap_s - early * task_s, 0);
		print_message("%s: %.4f of the time is computing\n", rule, p.compute);
		near(p.seconds / p.clocks, tasks_s + left, 0.01 * tasks_s, rule);
		near(p.compute, tasks_s / (tasks_s + left), 0.01, rule);
		near(p.moved + p.cloned, 0, 0, "moved, cloned");
	}
	fal_cost_free(&c);
}

/* Where machines are slow now and then, workers that wait for a version take the tasks of
 * the slow one under each slack: a fraction costs no more than the enforced clock. */
static void
a_fraction_moves_tasks(void **state)
{
	struct fal_rng rng =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	(void)state;
	double all = 0, all_enforced = 0;
	for (int turn = 0; turn < 8; turn++) {
		struct fal_cost c;
		char rule[24];
		snprintf(rule, sizeof(rule), "epsp:%u/%d",
			 1 + fal_rng_below(&rng, SHARE - 1), SHARE);
		build(&c, 1, false);
		for (size_t i = 0; i < c.machines; i++)
			slow_at_times(&c.machine[i], fal_rng_below(&rng, 8));
		const struct fal_simulation enforced = play(&c, "epsp");
		const struct fal_simulation p = play(&c, rule);
		print_message("%s: %.3f s, epsp %.3f s\n", rule, p.seconds,
			      enforced.seconds);
		all += p.seconds;
		all_enforced += enforced.seconds;
		in_bounds(p.moved, 1, INFINITY, "moved");
		fal_cost_free(&c);
	}
	in_bounds(all, 0, 1.05 * all_enforced, "seconds of all");
}

/* No scheme does more than the machines' speeds add up to, whatever is slow when. */
static void
no_more_than_all(void **state)
{
	static const char *const rules[] = { "bsp",
					     "epsp",
					     "epsp:2",
					     "asp",
					     "ssp:3",
					     "flexrr",
					     "wbsp",
					     "syncopt:1",
					     "rennala:5",
					     "ringmaster:2",
					     "bsp,shares=speed",
					     "groups:2",
					     "groups:2,quorum=2,grace=0.5",
					     "groups:4,mode=delta,quorum=2" };
	(void)state;
	for (int k = 0; k < 6; k++) {
		struct fal_cost c;
		build(&c, k < 2 ? 1 : k < 4 ? 2 : 6, k % 2 == 0);
		for (size_t i = 0; i < c.machines && k >= 4; i++)
			slow_at_times(&c.machine[i], i);
		const double most = fal_cost_speed(&c);
		for (size_t i = 0; i < sizeof(rules) / sizeof(*rules); i++) {
			const struct fal_simulation p = play(&c, rules[i]);
			if (p.samples / p.seconds > most * (1 + 1e-3))
				fail_msg("%s, %d: %.2f samples/s of %.2f", rules[i], k,
					 p.samples / p.seconds, most);
		}
		fal_cost_free(&c);
	}
}

/* Nor where paces are as uneven as those of a busy machine: a play that meets the quick
 * ones is not believed. */
static void
no_more_than_all_uneven(void **state)
{
	(void)state;
	const char *text = getenv("FAL_TEST_SEED");
	const uint64_t first =
		text != NULL ? strtoull(text, NULL, 10) : (uint64_t)time(NULL) * 100;
	printf("# FAL_TEST_SEED=%llu\n", (unsigned long long)first);
	for (uint64_t seed = first; seed < first + 100; seed++) {
		struct fal_rng rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
		struct fal_policy policy = { 0 };
		struct fal_diag diag;
		struct fal_cost c;
		build(&c, 1, false);
		for (uint32_t gone = fal_rng_below(&rng, MACHINES); gone > 0; gone--)
			fal_cost_remove(&c, 0);
		for (size_t i = 0; i < c.machines; i++) {
			struct fal_cost_machine *m = &c.machine[i];
			const bool lasting = fal_rng_below(&rng, 2);
			double u = 0;
			m->pull_s = m->push_s = 1e-5;
			m->paces = 4 + fal_rng_below(&rng, PACES - 4);
			for (size_t k = 0; k < m->paces; k++) {
				u = lasting && fal_rng_below(&rng, 8)
					    ? u
					    : (double)fal_rng_unit(&rng);
				m->pace[k].task_s = task_s * exp(6 * u * u * u);
				m->pace[k].tasks = 1 + fal_rng_below(&rng, 8);
				m->pace[k].seconds = m->pace[k].task_s * m->pace[k].tasks;
			}
			fal_cost_choose_pacing(m, SHARE);
		}
		for (int i = 0; i < 2; i++) {
			struct fal_simulation p;
			assert_int_equal(fal_rule_parse(i == 0 ? "wbsp" : "asp",
							&policy.rule, &diag),
					 0);
			assert_int_equal(fal_predict(&c, &policy, &p), FAL_OK);
			const double most = fal_cost_speed(&c),
				     rate = p.samples / p.seconds;
			if (rate > most * (1 + 1e-9))
				fail_msg("FAL_TEST_SEED=%llu: %.2f samples/s of %.2f",
					 (unsigned long long)seed, rate, most);
		}
		fal_cost_free(&c);
	}
}

static void
persistent_straggler(void **state)
{
	(void)state;
	struct fal_cost c;
	build(&c, 4, false);
	const double fixed = pull_s + push_s + step_s;
	struct fal_simulation bsp = play(&c, "bsp"), epsp = play(&c, "epsp");
	near(bsp.seconds / bsp.clocks, 4 * SHARE * task_s + fixed, 1e-9, "bsp: clock");
	/* 64 tasks: seven machines do nine each, the slow one does one or two. */
	near(epsp.seconds / epsp.clocks, 9 * task_s + fixed, 0.02 * task_s,
	     "epsp: clock");
	/* A clock is seven rounds of nine or ten tasks; the straggler's is abandoned. */
	struct fal_simulation b1 = play(&c, "syncopt:1");
	near(b1.seconds / b1.updates, 10 * task_s + fixed, 0.1 * task_s,
	     "syncopt: update");
	/* What is abandoned before it is done was never won. */
	struct fal_simulation few = play(&c, "rennala:8");
	near(few.samples / few.updates, 8, 0.02, "rennala: samples of an update");
	fal_cost_free(&c);
}

/* Slowness of single clocks goes by the work: the machine has the same paces in each
 * scheme, and waits for nobody longer than they say. */
static void
by_work(void **state)
{
	(void)state;
	struct fal_cost c;
	build(&c, 6, true);
	const struct fal_cost_machine *m = &c.machine[MACHINES - 1];
	assert_false(m->by_time);
	near(fal_cost_task_s(m, 3 * SHARE, 99, 1, 1), 6 * task_s, 1e-12, "a slow task");
	near(fal_cost_task_s(m, 4 * SHARE, 99, 1, 1), task_s, 1e-12, "the next one");
	near(fal_cost_task_s(m, PACES * SHARE + 3 * SHARE, 0, 0.5, 1), 3 * task_s, 1e-12,
	     "half a task, the second time around");
	struct fal_simulation p = play(&c, "bsp");
	near(p.seconds / p.clocks,
	     SHARE * task_s * (7 + 6) / 8 + pull_s + push_s + step_s, 1e-6, "bsp: clock");
	fal_cost_free(&c);
}

static void
by_time(void **state)
{
	(void)state;
	struct fal_cost_pace pace[] = { { .task_s = 1, .tasks = 10, .seconds = 10 },
					{ .task_s = 4, .tasks = 5, .seconds = 20 } };
	struct fal_cost_machine m = { .lanes = 2, .cores = 2, .pace = pace, .paces = 2 };
	fal_cost_choose_pacing(&m, 1);
	assert_true(m.by_time);
	near(fal_cost_task_s(&m, 0, 3, 1, 2), 1, 1e-12, "in quick times");
	near(fal_cost_task_s(&m, 0, 12, 1, 2), 4, 1e-12, "in slow times");
	near(fal_cost_task_s(&m, 0, 9.5, 1, 2), 0.5 + 0.5 * 4, 1e-12,
	     "across the change");
	near(fal_cost_task_s(&m, 0, 29, 1, 2), 1 + 0.75, 1e-12, "around the end");
	near(fal_cost_task_s(&m, 0, 33, 1, 4), 2, 1e-12, "more lanes than cores");
	near(fal_cost_task_s(&m, 0, 33, 1, 1), 1, 1e-12, "fewer");
	near(fal_cost_mean_task_s(&m), 30.0 / 15, 1e-12, "mean");
}

/* Paces of any length are found, as by looking through them from the first on. */
static void
uneven_paces(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	for (uint32_t run = 0; run < 200; run++) {
		struct fal_cost_pace pace[40];
		struct fal_cost_machine m = { .lanes = 1, .cores = 1, .pace = pace };
		m.paces = 1 + fal_rng_below(&r, 40);
		m.by_time = run % 2 == 0;
		for (size_t i = 0; i < m.paces; i++) {
			double tasks = exp2((double)fal_rng_below(&r, 12));
			pace[i] = (struct fal_cost_pace){ .task_s = 1 + (double)i,
							  .tasks = tasks,
							  .seconds = tasks };
		}
		fal_cost_update_sums(&m);
		for (uint32_t k = 0; k < 50; k++) {
			double at = m.tasks * (double)fal_rng_unit(&r), left = at;
			size_t i = 0;
			while (i + 1 < m.paces && left >= pace[i].tasks)
				left -= pace[i++].tasks;
			near(fal_cost_task_s(&m, at, at, 1e-9, 1) * 1e9, pace[i].task_s,
			     1e-3, "seconds of a task");
		}
	}
}

/* Where the coordinator does nothing but move bytes, a clock takes as long as that. */
static void
coordinator_is_the_limit(void **state)
{
	(void)state;
	struct fal_cost c;
	build(&c, 1, false);
	c.byte_s = 1e-9;
	c.push_bytes = c.pull_bytes = 100e6;
	struct fal_simulation p = play(&c, "bsp");
	near(p.bytes / p.clocks, 2 * MACHINES * 100e6, 1, "bytes of a clock");
	assert_true(p.seconds / p.clocks > 2 * MACHINES * 0.1);
	near(p.load, 2 * MACHINES * 0.1 / (p.seconds / p.clocks), 0.01, "load");
	fal_cost_free(&c);
}

/* Where all wait for the coordinator, a move is two messages more for it and helps
 * nobody; nor does a clone by whoever has to pull first. */
static void
no_moves_for_a_busy_coordinator(void **state)
{
	(void)state;
	struct fal_cost c;
	build(&c, 4, false);
	while (c.machines < 48)
		fal_cost_add(&c, &c.machine[0], "more");
	c.message_s = 2.5e-3;
	c.grid.batch = 48 * 32;
	c.grid.samples = c.grid.batch * 10;
	struct fal_simulation many = play_for(&c, "epsp", 20);
	in_bounds(many.moved / many.clocks, 0, 0.01 * c.grid.batch, "tasks moved");
	in_bounds(many.cloned / many.clocks, 0, 0.01 * c.grid.batch, "tasks cloned");
	/* A claim for each task, and half a dozen messages for each worker. */
	in_bounds(many.seconds / many.clocks, 48 * 32 * c.message_s,
		  48 * (32 + 6) * c.message_s, "seconds of a clock");
	c.message_s = 0.5e-3;
	c.grid.batch = 10;
	struct fal_simulation few = play_for(&c, "epsp", 60);
	in_bounds(few.cloned / few.clocks, 0, 0.5, "few tasks: cloned");
	fal_cost_free(&c);
}

static void
what_cannot_go_on(void **state)
{
	(void)state;
	struct fal_cost c;
	struct fal_policy policy = { 0 };
	struct fal_policy_worker *entry;
	struct fal_simulation out;
	build(&c, 1, false);
	while (c.machines > 1)
		fal_cost_remove(&c, 0);
	entry = fal_policy_entry(&policy, "w8");
	entry->share = -1;
	entry->excluded = true;
	const struct fal_simulation_conf conf = { .cost = &c,
						  .policy = &policy,
						  .clocks = 9 };
	assert_int_equal(fal_simulate(&conf, &out), FAL_ESTATE);
	fal_policy_free(&policy);
	fal_cost_free(&c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(equal_machines),
		cmocka_unit_test(early_tasks_fill_the_barrier),
		cmocka_unit_test(a_fraction_moves_tasks),
		cmocka_unit_test(no_more_than_all),
		cmocka_unit_test(no_more_than_all_uneven),
		cmocka_unit_test(persistent_straggler),
		cmocka_unit_test(by_work),
		cmocka_unit_test(by_time),
		cmocka_unit_test(uneven_paces),
		cmocka_unit_test(coordinator_is_the_limit),
		cmocka_unit_test(no_moves_for_a_busy_coordinator),
		cmocka_unit_test(what_cannot_go_on),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
