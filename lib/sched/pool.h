/* The tasks of a job that were not handed out yet: handed out clock by clock, in runs.
 *
 * Every part of the data advances by itself.  Runs that come back are handed out again,
 * before any new run.  The pool knows which clocks are over: all their tasks have ended.
 */
#ifndef FAL_SCHED_POOL_H
#define FAL_SCHED_POOL_H

#include "sched/grid.h"

#include <stdbool.h>
#include <stddef.h>

/* Tasks first … first+count-1 of a clock. */
struct fal_run_of {
	uint64_t clock;
	uint32_t first, count;
};

struct fal_pool {
	struct fal_grid grid;
	uint64_t clocks;
	struct fal_part {
		uint64_t clock;
		uint32_t task; /* the next one; its number in the clock */
	} *part;
	uint32_t hindmost; /* the part that is furthest behind; the first of equals */
	struct fal_run_of *back; /* runs that came back */
	size_t backs, back_cap;
	uint64_t over; /* all clocks before this one are over */
	struct fal_unended {
		uint64_t clock; /* the first member: base/sorted.h */
		uint32_t left;  /* tasks that have not ended */
	} *unended;             /* clocks that have begun and are not over, ascending */
	size_t unendeds, unended_cap;
};

void fal_pool_init(struct fal_pool *p, const struct fal_grid *g);
void fal_pool_free(struct fal_pool *p);
/* Skips the clocks before `clock`: they are over.  For a new pool. */
void fal_pool_skip(struct fal_pool *p, uint64_t clock);

/* The clock of the run that fal_pool_take would give: `clocks` when there is none. */
uint64_t fal_pool_next(const struct fal_pool *p, uint32_t part);
/* The tasks of that clock that are still to be handed out to the part. */
struct fal_run_of fal_pool_left(const struct fal_pool *p, uint32_t part);
/* The next clock of any part. */
uint64_t fal_pool_first(const struct fal_pool *p);
/* The ended part of the clock's tasks. */
double fal_pool_ended_part(const struct fal_pool *p, uint64_t clock);
/* The first clock of which, and of all later ones, no task was ever taken. */
uint64_t fal_pool_untouched(const struct fal_pool *p);

/* Takes at most `most` tasks of one clock: of runs that came back, else of part `part`,
 * else, when that is used up, of the hindmost part; `whole`: of the hindmost part and all
 * parts at the same clock.  count 0: no task is left. */
void fal_pool_take(struct fal_pool *p, uint32_t part, bool whole, uint32_t most,
		   struct fal_run_of *out);

/* Puts back a run that was taken. */
void fal_pool_back(struct fal_pool *p, const struct fal_run_of *r);
/* Ends a run that was taken. */
void fal_pool_ended(struct fal_pool *p, const struct fal_run_of *r);

#endif
