/* The test set. */
#ifndef FAL_SCHED_EVAL_H
#define FAL_SCHED_EVAL_H

#include "sched/state.h"

void fal_eval_feed(struct fal_sched *s, double now);
/* The eval tasks that `w` holds are anybody's again. */
void fal_eval_return(struct fal_sched *s, struct fal_worker *w);

#endif
