/* The tasks of a job that nobody was given yet: handed out clock by clock, in runs.
 *
 * Every part of the data advances by itself.  Runs that come back are handed out again,
 * before anything new.  Knows which clocks are over: all their tasks ended.
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
		uint32_t task; /* the next one; of the clock, not of the part */
	} *part;
	uint32_t hindmost;       /* part */
	struct fal_run_of *back; /* came back */
	size_t backs, back_cap;
	uint64_t over; /* all clocks before this one are over */
	struct fal_unended {
		uint64_t clock; /* first: base/sorted.h */
		uint32_t left;  /* tasks that did not end yet */
	} *unended;             /* clocks that began and are not over, ascending */
	size_t unendeds, unended_cap;
};

void fal_pool_init(struct fal_pool *p, const struct fal_grid *g);
void fal_pool_free(struct fal_pool *p);
/* Of a new pool all clocks before `clock` are over. */
void fal_pool_skip(struct fal_pool *p, uint64_t clock);

/* The clock of the run that fal_pool_take would give: clocks when there is none. */
uint64_t fal_pool_next(const struct fal_pool *p, uint32_t part);
/* The tasks of that clock that are still to be handed out to the part. */
struct fal_run_of fal_pool_left(const struct fal_pool *p, uint32_t part);
/* The part that is furthest behind; the first of equals. */
uint32_t fal_pool_hindmost(const struct fal_pool *p);
/* The clock that is handed out next in any part. */
uint64_t fal_pool_first(const struct fal_pool *p);
/* The part of the clock's tasks that have ended. */
double fal_pool_ended_part(const struct fal_pool *p, uint64_t clock);
/* No task of this clock, or of a later one, was ever taken. */
uint64_t fal_pool_untouched(const struct fal_pool *p);

/* Takes at most `most` tasks of one clock, from what came back, else from part `part`,
 * else, when that is used up, from the one that is furthest behind; `whole`: from the
 * part furthest behind and over all parts that stand at the same clock.  count 0:
 * nothing is left. */
void fal_pool_take(struct fal_pool *p, uint32_t part, bool whole, uint32_t most,
		   struct fal_run_of *out);

/* A run that was taken comes back. */
void fal_pool_back(struct fal_pool *p, const struct fal_run_of *r);
/* A run that was taken has ended. */
void fal_pool_ended(struct fal_pool *p, const struct fal_run_of *r);

#endif
