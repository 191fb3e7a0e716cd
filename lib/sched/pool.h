/* The pool of a job's tasks that no round has yet.  The pool hands out tasks clock by
 * clock, in runs.
 *
 * Each part of the data has a position of its own.  Runs that come back are handed out
 * again before any new run.  The pool also knows which clocks are over: a clock is over
 * when all its tasks have ended.
 */
#ifndef FAL_SCHED_POOL_H
#define FAL_SCHED_POOL_H

#include "sched/grid.h"

#include <stdbool.h>
#include <stddef.h>

/* Tasks first … first+count-1 of a clock. */
struct fal_task_range {
	uint64_t clock;
	uint32_t first, count;
};

struct fal_task_pool {
	struct fal_grid grid;
	uint64_t clocks;
	struct fal_part {
		uint64_t clock;
		uint32_t task; /* the next task to hand out: its number in the clock */
	} *part;
	/* the part that is furthest behind; the first part among equals */
	uint32_t hindmost;
	struct fal_task_range *back; /* runs that came back */
	size_t backs, back_cap;
	uint64_t over; /* all clocks before this one are over */
	struct fal_unended {
		uint64_t clock; /* the first member: base/sorted.h */
		uint32_t left;  /* tasks that have not ended */
	} *unended;             /* clocks that have begun and are not over, ascending */
	size_t unendeds, unended_cap;
};

void fal_task_pool_init(struct fal_task_pool *p, const struct fal_grid *g);
void fal_task_pool_free(struct fal_task_pool *p);
/* Makes the clocks before `clock` over.  For a new pool. */
void fal_task_pool_skip_clocks(struct fal_task_pool *p, uint64_t clock);

/* The clock of the run that fal_task_pool_take would give; p->clocks if no task is left.
 */
uint64_t fal_task_pool_next(const struct fal_task_pool *p, uint32_t part);
/* The tasks of that clock that the part can still be given. */
struct fal_task_range fal_task_pool_left(const struct fal_task_pool *p, uint32_t part);
/* The next clock of any part. */
uint64_t fal_task_pool_first(const struct fal_task_pool *p);
/* The part of the clock's tasks that have ended, 0 to 1. */
double fal_task_pool_ended_part(const struct fal_task_pool *p, uint64_t clock);
/* The first clock from which on no task was ever taken. */
uint64_t fal_task_pool_untouched(const struct fal_task_pool *p);

/* Takes at most `most` tasks of one clock: from runs that came back; else from part
 * `part`; else, when that part is used up, from the hindmost part.  With `whole`, takes
 * new tasks from the hindmost part and from all parts at the same clock.  out->count 0:
 * no task is left. */
void fal_task_pool_take(struct fal_task_pool *p, uint32_t part, bool whole, uint32_t most,
			struct fal_task_range *out);

/* Puts a taken run back. */
void fal_task_pool_back(struct fal_task_pool *p, const struct fal_task_range *r);
/* Notes that the tasks of a taken run have ended. */
void fal_task_pool_ended(struct fal_task_pool *p, const struct fal_task_range *r);

#endif
