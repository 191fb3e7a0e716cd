/* Bounds of a clock: the least time of its tasks on some lanes, without any other work,
 * and the cost of the sizes of its tasks.
 *
 * A clock of n tasks is n full ones; of 12.25, 12 and a short one of a quarter of the
 * samples (fal_grid_size). */
#ifndef FAL_SCHED_BOUND_H
#define FAL_SCHED_BOUND_H

#include "sched/grid.h"

#include <stddef.h>
#include <stdint.h>

/* Some lanes; each does a full task in task_s seconds, above 0.  fixed: the share of
 * task_s that a task of any size takes, from 0 to 1; NAN: unknown. */
struct fal_bound_lanes {
	double task_s;
	uint32_t lanes;
	double fixed;
};

/* The tail of a clock, in full tasks: the whole tail, and one of its tasks, at most 1. */
struct fal_bound_tail {
	double tasks, unit;
};

static inline struct fal_bound_tail
fal_bound_tail_of(const struct fal_grid *g, uint64_t clock)
{
	const double full = fal_grid_full_samples(g), unit = fal_grid_tail_task(g) / full;
	const uint32_t head = fal_grid_head_tasks(g, clock);
	return (struct fal_bound_tail){
		fal_grid_size(g, clock) - head * g->task / full,
		unit < 1 ? unit : 1,
	};
}

/* The capacity bound: the seconds of `tasks` tasks on these lanes, if tasks could be
 * split at will; 0: there are no lanes. */
double fal_bound_capacity(const struct fal_bound_lanes *v, size_t n, double tasks);

/* The whole-task bound: the fewest seconds of whole tasks on these lanes, however the
 * tasks are shared, `tail` of them being small (NULL: none is).  O(n), without sorting:
 * by halvings, to a billionth of a task. */
double fal_bound_whole(const struct fal_bound_lanes *v, size_t n, double tasks,
		       const struct fal_bound_tail *tail);

/* The part of the capacity bound that would be saved if each lane did its part of `tasks`
 * in one batch, over the lanes with a known fixed share; NAN: no lane has one. */
double fal_bound_small(const struct fal_bound_lanes *v, size_t n, double tasks,
		       const struct fal_bound_tail *tail);

/* The fixed share of a machine that takes task_s seconds for `task` samples and large_s
 * for `large` samples at once, on the line through both; NAN if these values tell
 * nothing: not above 0, or large no more than task. */
double fal_bound_fixed(double task, double task_s, double large, double large_s);

/* The seconds of `ratio` tasks as one task, in those of a task; `fixed` NAN is taken as
 * 0.
 */
double fal_bound_task_size(double fixed, double ratio);

/* The costs of sizes, as parts of the whole-task bound: of whole tasks instead of split
 * ones, and of small tasks instead of batches (NAN: unknown). */
void fal_bound_sizes(const struct fal_bound_lanes *v, size_t n, double tasks,
		     const struct fal_bound_tail *tail, double *whole, double *small);

#endif
