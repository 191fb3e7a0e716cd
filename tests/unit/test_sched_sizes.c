/* Clocks whose samples are no multiple of a task's: the last task is short, and so is its
 * time.  Nobody is quicker for it, nothing moves for it, and what is projected holds.
 *
 * Geometry, speeds and the part of a task that any size takes are drawn from SEED, which
 * is printed; FAL_TEST_SEED gives another one. */
#include "sched_play.h"

#include "base/rng.h"
#include "sched/state.h"

#include <stdlib.h>

static struct fal_rng rng;

static double
between(double least, double most)
{
	return least + (most - least) * (double)fal_rng_unit(&rng);
}

/* What is seen of a play: tasks moved, to worker `slow` and at all, and the worst error
 * of what is projected of anybody's task. */
static struct seen {
	bool counts;
	uint32_t slow;
	uint64_t moved, to_slow;
	double off;
} seen;

static void
see(const struct fal_act *a)
{
	if (!seen.counts)
		return;
	if (a->kind == FAL_ACT_ACCOUNT) {
		seen.moved += a->work.in;
		seen.to_slow += a->worker == seen.slow ? a->work.in : 0;
	}
	for (uint32_t id = 1; id <= play.last_id; id++) {
		double is = fal_task_s(play.s, play_its(id), 1);
		double want = play.task_s * play.worker[id].slow;
		seen.off = fmax(seen.off, fabs(is / want - 1));
	}
}

/* The whole-task bound of a whole clock, with what it takes beside computing. */
static double
bound(void)
{
	struct fal_bound_lanes v[PLAY_WORKERS];
	for (uint32_t i = 0; i < play.last_id; i++)
		v[i] = (struct fal_bound_lanes){ play.task_s * play.worker[i + 1].slow, 1,
						 play.fixed };
	return fal_bound_whole_tasks(v, play.last_id, fal_grid_size(&play.s->grid, 0),
				     NULL) +
	       2 * play.link_s;
}

/* Seconds of the clocks from `warm` to `clocks`. */
static double
run(uint64_t warm, uint64_t clocks)
{
	play_run(warm, INFINITY);
	double began = play.now;
	seen = (struct seen){ .counts = true, .slow = seen.slow };
	play.on_act = see;
	play_run(clocks, INFINITY);
	return play.now - began;
}

/* Three workers and a straggler, three times as slow; a task of 8 samples takes 8 ms. */
static void
with_straggler(uint32_t batch, double fixed)
{
	const struct fal_grid grid = {
		.samples = 12000, .batch = batch, .task = 8, .epochs = 2
	};
	play_begin("epsp", &grid);
	play.task_s = 8e-3;
	play.fixed = fixed;
	for (int k = 0; k < 4; k++)
		play_join(k == 2 ? 3 : 1);
	seen.slow = 3;
	double least = bound() * grid.samples / grid.batch;
	double epoch = run(fal_grid_epoch_clocks(&grid), fal_grid_clocks(&grid));
	print_message("# B = %u, fixed %.2f: %.3f s an epoch, bound %.3f s; %llu moved, "
		      "%llu of them to the straggler; off by up to %.2f\n",
		      batch, fixed, epoch, least, (unsigned long long)seen.moved,
		      (unsigned long long)seen.to_slow, seen.off);
	play_check(seen.to_slow, 0, "tasks moved to the straggler");
	play_near(seen.off, 0, 0.01, "a projected task");
	play_near(epoch, least, 0.01 * least, "seconds of an epoch");
	play_end(NULL);
}

static void
straggler(void **state)
{
	(void)state;
	for (uint32_t batch = 201; batch <= 208; batch++) {
		with_straggler(batch, 0);
		with_straggler(batch, 0.25);
	}
}

static struct fal_grid
draw_grid(void)
{
	uint32_t task = 1 + fal_rng_below(&rng, 32);
	uint32_t batch = 1 + fal_rng_below(&rng, 40 * task);
	uint32_t clocks = 40 + fal_rng_below(&rng, 40);
	return (struct fal_grid){ .samples = (clocks - 1) * batch + 1 +
					     fal_rng_below(&rng, batch),
				  .batch = batch,
				  .task = task,
				  .epochs = 1 };
}

/* Equal workers have no reason to move anything, and, if their probes told the fixed
 * part, are known from any task. */
static void
equal_speeds(void **state)
{
	for (int k = 0; k < 100; k++) {
		const struct fal_grid grid = draw_grid();
		uint32_t workers = 1 + fal_rng_below(&rng, 8);
		play_begin("epsp", &grid);
		play.task_s = between(1e-3, 0.1);
		play.fixed = between(0, 0.9);
		for (uint32_t i = 1; i <= workers; i++) {
			play_join(1);
			play_its(i)->fixed = k % 2 == 0 ? play.fixed : (double)NAN;
		}
		run(12, fal_grid_clocks(&grid));
		if (seen.moved > 0 || (k % 2 == 0 && seen.off > 0.02))
			fail_msg("task %u, batch %u, %u workers, %.3f fixed: %llu moved, "
				 "off by %.3f",
				 grid.task, grid.batch, workers, play.fixed,
				 (unsigned long long)seen.moved, seen.off);
		play_end(state);
	}
}

/* What bsp's workers have of the clock that begins. */
static void
parts_of(uint32_t n, struct fal_load *part)
{
	for (uint32_t id = 1; id <= n; id++)
		part[id] = fal_load_queued(play_its(id));
}

/* Parts differ by a task at most, and nobody who is faster has less: the last task goes
 * to whom the last full one did not. */
static void
equal_parts(void **state)
{
	for (int k = 0; k < 100; k++) {
		const struct fal_grid grid = draw_grid();
		uint32_t n = 1 + fal_rng_below(&rng, 8);
		struct fal_load part[9];
		play_begin("bsp", &grid);
		play.task_s = 0.01;
		play.fixed = between(0, 0.9);
		for (uint32_t i = 0; i < n; i++)
			play_join(between(1, 4));
		play_run(10, INFINITY);
		fal_sched_set_clock_limit(play.s, play.now, 11);
		parts_of(n, part);
		for (uint32_t a = 1; a <= n; a++)
			for (uint32_t b = 1; b <= n; b++)
				if (fal_task_s(play.s, play_its(a), 1) <
					    0.999 * fal_task_s(play.s, play_its(b), 1) &&
				    (part[a].samples < part[b].samples ||
				     part[a].samples > part[b].samples + grid.task))
					fail_msg("task %u, batch %u: %u samples, and %u "
						 "for who is slower",
						 grid.task, grid.batch,
						 (uint32_t)part[a].samples,
						 (uint32_t)part[b].samples);
		play_follow_all();
		play_end(state);
	}
}

/* What short tasks show of the fixed part, whatever the probe said. */
static void
fixed_part(void **state)
{
	static const double said[] = { NAN, 0, 0.4, 1 };
	for (size_t k = 0; k < 4; k++) {
		const struct fal_grid grid = {
			.samples = 9000, .batch = 90, .task = 32, .epochs = 4
		};
		play_begin("epsp", &grid);
		play.fixed = between(0.1, 0.8);
		play_join(1);
		play_its(1)->fixed = said[k];
		play_run(fal_grid_clocks(&grid), INFINITY);
		play_near(play_its(1)->fixed, play.fixed, 0.03, "the fixed part");
		play_end(state);
	}
}

/* A worker that becomes slow, or fast, with a short task is believed as far as that
 * shows it, and wholly with the next full one. */
static void
change_of_speed(void **state)
{
	static const double by[] = { 8, 1.0 / 8 };
	for (size_t k = 0; k < 2; k++) {
		const struct fal_grid grid = {
			.samples = 9000, .batch = 90, .task = 32, .epochs = 4
		};
		play_begin("epsp", &grid);
		play_join(1);
		play_run(20, INFINITY);
		struct fal_worker *w = play_its(1);
		double t = fal_task_s(play.s, w, 1);
		fal_worker_measure(play.s, w, by[k] * t * 26 / 32, 26);
		double least = fmin(by[k], by[k] * 26 / 32) * t;
		double most = fmax(by[k], by[k] * 26 / 32) * t;
		double is = fal_task_s(play.s, w, 1);
		if (!(is >= least * (1 - 1e-9) && is <= most * (1 + 1e-9)))
			fail_msg("%.6f s, not from %.6f to %.6f", is, least, most);
		fal_worker_measure(play.s, w, by[k] * t, 32);
		play_near(fal_task_s(play.s, w, 1), by[k] * t, 0.2 * by[k] * t, "after");
		play_end(state);
	}
}

int
main(void)
{
	const char *text = getenv("FAL_TEST_SEED");
	const uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(straggler, play_end),
		cmocka_unit_test_teardown(equal_speeds, play_end),
		cmocka_unit_test_teardown(equal_parts, play_end),
		cmocka_unit_test_teardown(fixed_part, play_end),
		cmocka_unit_test_teardown(change_of_speed, play_end),
	};
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	print_message("# seed %llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
