/* Tasks without a result. */
#ifndef FAL_SCHED_DOUBT_H
#define FAL_SCHED_DOUBT_H

#include "sched/state.h"

/* A claim of `w` without a result. */
int fal_doubt_claim(struct fal_sched *s, double now, struct fal_round *r,
		    struct fal_worker *w, uint32_t task);
/* `w` has a result: whoever of another key had none is charged, if that is enough. */
int fal_doubt_clear(struct fal_sched *s, double now, const struct fal_round *r,
		    const struct fal_worker *w, uint32_t task);
/* What was said of the round's tasks is forgotten. */
void fal_doubt_forget(struct fal_sched *s, const struct fal_round *r);
/* Who is to run the task, as it is in doubt; NULL: it is not, or nobody says more. */
struct fal_worker *fal_doubt_draw(struct fal_sched *s, const struct fal_round *r,
				  uint32_t task);
/* False: somebody else is to run the task, as it is in doubt. */
bool fal_doubt_may(const struct fal_sched *s, const struct fal_worker *w,
		   const struct fal_round *r, uint32_t task);
/* Did somebody make no finite result of it? */
bool fal_doubted(const struct fal_sched *s, const struct fal_round *r, uint32_t task);
/* Workers begin no round while the next one has a task that others must decide of. */
int fal_doubts_review(struct fal_sched *s, double now, bool *changed);

#endif
