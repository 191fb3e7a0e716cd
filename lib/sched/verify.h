/* Claims that a worker of another key computes once more (job.verify). */
#ifndef FAL_SCHED_VERIFY_H
#define FAL_SCHED_VERIFY_H

#include "sched/state.h"

/* A claim of the worker `of`, which counts, was drawn: another key is asked, if one can
 * be. */
void fal_verify_ask(struct fal_sched *s, struct fal_round *r, const struct fal_worker *of,
		    const struct fal_claim_in *c, double now);
/* Takes back the checks of a worker (NULL: of all) and of a round that is over (NULL: of
 * all). */
void fal_verifies_end(struct fal_sched *s, const struct fal_worker *w,
		      const struct fal_round *r, double now);

#endif
