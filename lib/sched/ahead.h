/* Updates that are ordered before their rounds are complete. */
#ifndef FAL_SCHED_AHEAD_H
#define FAL_SCHED_AHEAD_H

#include "sched/state.h"

/* Are they, under this rule? */
bool fal_goes_ahead(const struct fal_sched *s);
/* Orders what can be. */
void fal_ahead(struct fal_sched *s, double now);
/* The first open round that anybody has to compute for; or NULL. */
const struct fal_round *fal_pressing(const struct fal_sched *s);

#endif
