/* Bounds of a clock: the least time that some lanes need for its tasks and nothing else;
 * and the part of this time that the sizes of the tasks cost.
 *
 * The number of tasks of a clock may be a fraction (fal_grid_size): a clock of 12.25
 * tasks has 12 full tasks and a short task with a quarter of the samples. */
#ifndef FAL_SCHED_BOUND_H
#define FAL_SCHED_BOUND_H

#include "sched/grid.h"

#include <stddef.h>
#include <stdint.h>

/* Lanes of one speed: each runs a full task in task_s seconds, above 0.  fixed: the share
 * of task_s that a task of any size takes, from 0 to 1; NAN: unknown. */
struct fal_bound_lanes {
	double task_s;
	uint32_t lanes;
	double fixed;
};

/* The tail of a clock, in full tasks: `tasks` is the size of the whole tail, `unit` the
 * size of one of its tasks, at most 1. */
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

/* The capacity bound: the seconds that these lanes need for `tasks` tasks, if tasks could
 * be split at any point; 0: there are no lanes. */
double fal_bound_capacity(const struct fal_bound_lanes *v, size_t n, double tasks);

/* The whole-task bound: the fewest seconds that these lanes need for whole tasks, however
 * the lanes share the tasks.  The tasks of `tail` are small (NULL: no task is).  O(n), by
 * halvings and without sorting; exact to a billionth of a task. */
double fal_bound_whole_tasks(const struct fal_bound_lanes *v, size_t n, double tasks,
			     const struct fal_bound_tail *tail);

/* The part of the capacity bound that the clock would save if each lane ran its part of
 * `tasks` as one batch.  Only lanes with a known fixed share count; NAN: there are
 * none. */
double fal_bound_batch_saving(const struct fal_bound_lanes *v, size_t n, double tasks,
			      const struct fal_bound_tail *tail);

/* The fixed share of a machine that takes task_s seconds for `task` samples and large_s
 * seconds for `large` samples at once; time is linear in samples.  NAN: the values tell
 * nothing, because one is not above 0, or `large` is no more than `task`. */
double fal_bound_fixed(double task, double task_s, double large, double large_s);

/* The time of one task that is as large as `ratio` tasks, in units of the time of a task.
 * `fixed` NAN counts as 0. */
double fal_bound_task_size(double fixed, double ratio);

/* Sets two costs of the sizes of tasks, as parts of the whole-task bound.  *whole: the
 * cost of whole tasks instead of split ones.  *small: the cost of small tasks instead of
 * batches; NAN: unknown. */
void fal_bound_sizes(const struct fal_bound_lanes *v, size_t n, double tasks,
		     const struct fal_bound_tail *tail, double *whole, double *small);

#endif
