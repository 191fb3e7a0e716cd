/* Bounds of a clock, and what a worker's tasks took, against plain sums. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "sched/bound.h"
#include "sched/state.h"

#include <math.h>

static void
near_at(double is, double want, int line)
{
	if (!(fabs(is - want) <= 1e-6 * fmax(fabs(want), 1)))
		fail_msg("line %d: is %.9g, want %.9g", line, is, want);
}

#define NEAR(is, want) near_at(is, want, __LINE__)

static void
test_sharing(void **state)
{
	(void)state;
	/* 3 lanes at 10 ms and one at 40: 13 tasks take 4 rounds of the quick ones. */
	const struct fal_bound_lanes v[] = { { 0.01, 3, NAN }, { 0.04, 1, NAN } };
	NEAR(fal_bound_capacity(v, 2, 13), 13 / 325.0);
	NEAR(fal_bound_whole_tasks(v, 2, 13, NULL), 0.04);
	NEAR(fal_bound_whole_tasks(v, 2, 12, NULL), 0.04);
	NEAR(fal_bound_whole_tasks(v, 2, 14, NULL), 0.05);
	NEAR(fal_bound_capacity(v, 0, 13), 0);
	NEAR(fal_bound_whole_tasks(v, 0, 13, NULL), 0);
}

/* The rest of the clock's tasks by handing out one after the other to whoever ends it
 * first, when lane `at` has begun with `first` seconds. */
static double
hand_out(const struct fal_bound_lanes *v, uint32_t n, uint32_t tasks, uint32_t at,
	 double first)
{
	double ends[5] = { 0 }, last = first;
	ends[at] = first;
	for (uint32_t t = 0; t < tasks; t++) {
		uint32_t best = 0;
		for (uint32_t i = 1; i < n; i++)
			if (ends[i] + v[i].task_s < ends[best] + v[best].task_s)
				best = i;
		ends[best] += v[best].task_s;
		last = fmax(last, ends[best]);
	}
	return last;
}

/* Drawn lanes and clocks, with a short task and without one. */
static void
test_whole_is_best(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	for (int k = 0; k < 200; k++) {
		struct fal_bound_lanes v[5];
		const uint32_t n = 1 + fal_rng_below(&r, 5);
		const uint32_t tasks = 1 + fal_rng_below(&r, 60);
		for (uint32_t i = 0; i < n; i++)
			v[i] = (struct fal_bound_lanes){
				0.001 * (1 + fal_rng_below(&r, 90)), 1,
				k % 3 == 0 ? (double)NAN : (double)fal_rng_unit(&r)
			};
		const double part = (double)fal_rng_unit(&r);
		double best = INFINITY;
		for (uint32_t i = 0; i < n; i++) {
			const double is =
				v[i].task_s * fal_bound_task_size(v[i].fixed, part);
			best = fmin(best, hand_out(v, n, tasks, i, is));
		}
		NEAR(fal_bound_whole_tasks(v, n, tasks, NULL),
		     hand_out(v, n, tasks, 0, 0));
		NEAR(fal_bound_whole_tasks(v, n, tasks + part, NULL), best);
	}
}

/* The fewest seconds for the large and small tasks that are left, by trying all ways to
 * share them among the lanes from `at` on. */
static double
try_all(const struct fal_bound_lanes *v, uint32_t n, uint32_t at, uint32_t large,
	uint32_t small, double unit)
{
	double best = INFINITY;
	if (at == n)
		return large + small == 0 ? 0 : INFINITY;
	for (uint32_t a = 0; a <= large; a++)
		for (uint32_t b = 0; b <= small; b++) {
			const double own = (a + b * unit) * v[at].task_s;
			const double others =
				try_all(v, n, at + 1, large - a, small - b, unit);
			best = fmin(best, fmax(own, others));
		}
	return best;
}

/* Drawn lanes without a fixed part, and clocks with a tail. */
static void
test_whole_with_a_tail(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(2, FAL_RNG_TEST, 0);
	for (int k = 0; k < 100; k++) {
		struct fal_bound_lanes v[3];
		const uint32_t n = 1 + fal_rng_below(&r, 3);
		const uint32_t large = fal_rng_below(&r, 6);
		const uint32_t small = 1 + fal_rng_below(&r, 8);
		const double unit = 1.0 / (2 + fal_rng_below(&r, 3));
		const struct fal_bound_tail tail = { small * unit, unit };
		for (uint32_t i = 0; i < n; i++)
			v[i] = (struct fal_bound_lanes){
				0.001 * (1 + fal_rng_below(&r, 90)), 1, NAN
			};
		NEAR(fal_bound_whole_tasks(v, n, large + small * unit, &tail),
		     try_all(v, n, 0, large, small, unit));
		NEAR(fal_bound_whole_tasks(v, n, 0, &tail), 0);
	}
	/* A set of fewer samples than a task: one task, and nothing is small. */
	const struct fal_grid g = { .samples = 5, .batch = 64, .task = 8 };
	const struct fal_bound_tail all = fal_bound_tail_of(&g, 0);
	NEAR(all.tasks, 1);
	NEAR(all.unit, 1);
}

static void
test_small(void **state)
{
	(void)state;
	/* 2 ms and 1 ms a sample: 10 ms for 8, of which 2 are fixed. */
	NEAR(fal_bound_fixed(8, 0.01, 64, 0.066), 0.2);
	NEAR(fal_bound_fixed(8, 0.01, 64, 0.08), 0);
	NEAR(fal_bound_fixed(8, 0.01, 64, 0.1), 0);   /* larger ones are slower */
	NEAR(fal_bound_fixed(8, 0.01, 64, 0.005), 1); /* and quicker than one */
	assert_true(isnan(fal_bound_fixed(8, 0.01, 8, 0.01)));
	assert_true(isnan(fal_bound_fixed(8, 0.01, 0, 0)));
	assert_true(isnan(fal_bound_fixed(8, 0, 64, 0.1)));
	/* 4 tasks a lane: 3 of 4 times the fixed part is too much. */
	struct fal_bound_lanes v[] = { { 0.01, 2, 0.2 }, { 0.01, 2, 0.2 } };
	NEAR(fal_bound_batch_saving(v, 2, 16, NULL), 0.15);
	NEAR(fal_bound_batch_saving(v, 2, 4, NULL), 0);
	NEAR(fal_bound_batch_saving(v, 2, 2, NULL), 0);
	v[1].fixed = NAN;
	NEAR(fal_bound_batch_saving(v, 2, 16, NULL), 0.15);
	v[0].fixed = NAN;
	assert_true(isnan(fal_bound_batch_saving(v, 2, 16, NULL)));
	assert_true(isnan(fal_bound_batch_saving(v, 0, 16, NULL)));
	NEAR(fal_bound_task_size(0.2, 4), 0.2 + 0.8 * 4);
	NEAR(fal_bound_task_size((double)NAN, 4), 4);
	/* 18 tasks on 4 lanes: 5 rounds for 4.5. */
	double whole, small;
	v[0].fixed = v[1].fixed = 0.2;
	fal_bound_sizes(v, 2, 18, NULL, &whole, &small);
	NEAR(whole, 0.1);
	NEAR(small, 0.2 * (1 - 1 / 4.5) * 0.9);
}

static void
paces(const struct fal_work *w, uint32_t n, const uint32_t *tasks, const double *seconds)
{
	assert_int_equal(w->paces, n);
	for (uint32_t i = 0; i < n; i++) {
		assert_int_equal(w->pace[i].tasks, tasks[i]);
		NEAR(w->pace[i].seconds, seconds[i]);
	}
}

static void
test_paces(void **state)
{
	(void)state;
	struct fal_work w = { 0 };
	/* Noise is no other speed; six times as long is. */
	for (int i = 0; i < 5; i++)
		fal_work_add(&w, i % 2 == 0 ? 0.010 : 0.012, 8, 1);
	paces(&w, 1, (const uint32_t[]){ 5 }, (const double[]){ 0.054 });
	for (int i = 0; i < 3; i++)
		fal_work_add(&w, 0.06, 8, 1);
	fal_work_add(&w, 0.01, 8, 1);
	paces(&w, 3, (const uint32_t[]){ 5, 3, 1 },
	      (const double[]){ 0.054, 0.18, 0.01 });
	fal_work_add(&w, 0.02, 8, 1);
	/* There is room for no fifth: 10 and 20 ms are most alike. */
	fal_work_add(&w, 0.09, 8, 1);
	paces(&w, 4, (const uint32_t[]){ 5, 3, 2, 1 },
	      (const double[]){ 0.054, 0.18, 0.03, 0.09 });
	/* It may be the last and the new one. */
	fal_work_add(&w, 0.059, 8, 1);
	paces(&w, 4, (const uint32_t[]){ 5, 3, 2, 2 },
	      (const double[]){ 0.054, 0.18, 0.03, 0.149 });
	/* A short one is not another speed. */
	w = (struct fal_work){ 0 };
	fal_work_add(&w, 0.01, 8, 1);
	fal_work_add(&w, 0.003, 2, 0.25);
	paces(&w, 1, (const uint32_t[]){ 2 }, (const double[]){ 0.013 });
	assert_int_equal(w.pace[0].samples, 10);
	/* Nothing is lost, whatever comes. */
	struct fal_rng r = fal_rng_init(2, FAL_RNG_TEST, 0);
	double sum = 0, is = 0;
	uint64_t n = 0, samples = 0, all = 0;
	w = (struct fal_work){ 0 };
	for (uint32_t i = 0; i < 500; i++) {
		const double t = 0.001 * fal_rng_below(&r, 100);
		sum += t;
		all += 1 + i % 8;
		fal_work_add(&w, t, 1 + i % 8, 0.125 * (1 + i % 8));
	}
	for (uint32_t i = 0; i < w.paces; i++) {
		n += w.pace[i].tasks;
		is += w.pace[i].seconds;
		samples += w.pace[i].samples;
	}
	assert_int_equal(n, 500);
	assert_int_equal(samples, all);
	if (fabs(is - sum) > 1e-9 * sum)
		fail_msg("%.9g s of %.9g", is, sum);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_sharing),
		cmocka_unit_test(test_whole_is_best),
		cmocka_unit_test(test_whole_with_a_tail),
		cmocka_unit_test(test_small),
		cmocka_unit_test(test_paces),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
