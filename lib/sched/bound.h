/* What a clock is held against: the time that its tasks would take on some lanes if
 * nothing else were to be done, and what sizes of tasks cost.
 *
 * A clock of n tasks is n full ones; of 12.25, 12 and a short one of a quarter of the
 * samples (fal_grid_size). */
#ifndef FAL_SCHED_BOUND_H
#define FAL_SCHED_BOUND_H

#include "sched/grid.h"

#include <stddef.h>
#include <stdint.h>

/* Some lanes, each of which does a full task in task_s seconds, above 0.  fixed: the
 * share of these that a task of any size takes, from 0 to 1; NAN: not known. */
struct fal_bound_lanes {
	double task_s;
	uint32_t lanes;
	double fixed;
};

/* The tail of a clock, in full tasks: all of it, and one of its tasks, at most 1. */
struct fal_bound_tail {
	double tasks, unit;
};

static inline struct fal_bound_tail
fal_bound_tail_of(const struct fal_grid *g, uint64_t clock)
{
	const double full = fal_grid_full(g), unit = fal_grid_tail_task(g) / full;
	const uint32_t head = fal_grid_head(g, clock);
	return (struct fal_bound_tail){
		fal_grid_size(g, clock) - head * g->task / full,
		unit < 1 ? unit : 1,
	};
}

/* The capacity bound: seconds that `tasks` tasks take these lanes if they could be split
 * at will; 0: there are no lanes. */
double fal_bound_capacity(const struct fal_bound_lanes *v, size_t n, double tasks);

/* The whole-task bound: the fewest seconds that whole tasks take them, however they are
 * shared, `tail` of them being small (NULL: none is).  O(n), and no sorting: by halvings,
 * to a billionth of a task. */
double fal_bound_whole(const struct fal_bound_lanes *v, size_t n, double tasks,
		       const struct fal_bound_tail *tail);

/* The share of the capacity bound by which it were shorter if what each lane does of
 * `tasks` were one batch; NAN: not known of any lane, else that of those of which it is.
 */
double fal_bound_small(const struct fal_bound_lanes *v, size_t n, double tasks,
		       const struct fal_bound_tail *tail);

/* `fixed` of a machine that takes task_s seconds for `task` samples and large_s for
 * `large` of them at once, on the line through both; NAN if these say nothing: not above
 * 0, or large no more than task. */
double fal_bound_fixed(double task, double task_s, double large, double large_s);

/* The seconds of `ratio` tasks as one, by those of a task; `fixed` may be NAN: then it is
 * taken to be 0. */
double fal_bound_longer(double fixed, double ratio);

/* What sizes cost, as shares of the whole-task bound: that tasks are whole, and that they
 * are small (NAN: not known). */
void fal_bound_sizes(const struct fal_bound_lanes *v, size_t n, double tasks,
		     const struct fal_bound_tail *tail, double *whole, double *small);

#endif
