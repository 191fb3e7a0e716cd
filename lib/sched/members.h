/* Who is there. */
#ifndef FAL_SCHED_MEMBERS_H
#define FAL_SCHED_MEMBERS_H

#include "sched/state.h"

/* The worker with this id, or NULL: unknown or gone.  O(log W). */
struct fal_worker *fal_find(const struct fal_sched *s, uint32_t id);
/* The worker came, went, or changed: who counts, and who works for whom. */
void fal_recount(struct fal_sched *s, struct fal_worker *w, double now);

#endif
