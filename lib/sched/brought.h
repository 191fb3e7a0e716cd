/* Rounds whose tasks are brought: see sched.h. */
#ifndef FAL_SCHED_BROUGHT_H
#define FAL_SCHED_BROUGHT_H

#include "sched/state.h"

/* The round has all of its tasks: what was summed up is given. */
void fal_brought_complete(struct fal_sched *s, struct fal_round *r, double now);

#endif
