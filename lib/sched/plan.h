/* Who gets the free tasks of a round. */
#ifndef FAL_SCHED_PLAN_H
#define FAL_SCHED_PLAN_H

#include "sched/state.h"

/* May `w` work for round `r`?  For a team's own round it must have been sent the version;
 * in the one team of all everybody is. */
bool fal_works_for(const struct fal_sched *s, const struct fal_worker *w,
		   const struct fal_round *r);
void fal_plan(struct fal_sched *s, struct fal_round *r, double now);

#endif
