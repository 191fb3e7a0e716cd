/* Tasks that are run once more, elsewhere. */
#ifndef FAL_SCHED_CHECK_H
#define FAL_SCHED_CHECK_H

#include "sched/state.h"

/* May the worker run tasks of the round, as far as suspicion goes? */
bool fal_may_run(const struct fal_sched *s, const struct fal_round *r,
		 const struct fal_worker *w);
/* Gives up what is late; but a witness whose lanes go on has longer, up to FAL_MOST_TIMES
 * what it may take.  1: a witness that did nothing at all is suspected. */
int fal_checks_late(struct fal_sched *s, double now);
/* `w` answers what it was asked at `asked`: its lanes are `steps` far.  1: it is
 * suspected. */
int fal_checks_answer(struct fal_sched *s, struct fal_worker *w, double asked,
		      uint64_t steps, double now);
/* Is the worker's task at `n` behind what it is asked as a witness? */
bool fal_checks_before(const struct fal_sched *s, const struct fal_worker *w,
		       const struct fal_node *n);
/* Tasks that it is asked to run so. */
uint32_t fal_checks_held(const struct fal_sched *s, const struct fal_worker *w);
/* Gives up what `w` was asked; forgets what was asked of a round. */
int fal_checks_of(struct fal_sched *s, const struct fal_worker *w);
void fal_checks_end(struct fal_sched *s, uint64_t round);
double fal_checks_due(const struct fal_sched *s); /* when the first will be late */

#endif
