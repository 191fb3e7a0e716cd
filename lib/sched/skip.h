/* Tasks that are skipped. */
#ifndef FAL_SCHED_SKIP_H
#define FAL_SCHED_SKIP_H

#include "sched/state.h"

/* The task of the round, which nobody has claimed, is skipped. */
int fal_skip(struct fal_sched *s, struct fal_round *r, uint32_t task, double now);
/* The round is new: what was skipped in one before it is in this one, too. */
int fal_skip_again(struct fal_sched *s, struct fal_round *r);
/* Others are to decide before somebody works on, who will without them if they do not, as
 * tasks are skipped. */
bool fal_skip_waits(const struct fal_sched *s);

#endif
