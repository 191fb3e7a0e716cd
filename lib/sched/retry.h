/* Tasks without a finite result: one retry, then they are skipped, or the job ends. */
#ifndef FAL_SCHED_RETRY_H
#define FAL_SCHED_RETRY_H

#include "sched/state.h"

/* `w` has claimed the task without a finite result: it is to be retried, or was the
 * retry. FAL_ENOMEM. */
int fal_retry_nonfinite(struct fal_sched *s, double now, struct fal_round *r,
			struct fal_worker *w, uint32_t task);
/* The task has a result; the tasks of the round are somebody else's matter. */
void fal_retry_done(struct fal_sched *s, const struct fal_round *r, uint32_t task);
void fal_retry_forget(struct fal_sched *s, const struct fal_round *r);
/* Is it to be retried?  By whom, drawn, or NULL: it is not, or by whoever comes; may it
 * be by `w`? */
bool fal_retried(const struct fal_sched *s, const struct fal_round *r, uint32_t task);
struct fal_worker *fal_retry_draw(struct fal_sched *s, const struct fal_round *r,
				  uint32_t task);
bool fal_retry_may(const struct fal_sched *s, const struct fal_worker *w,
		   const struct fal_round *r, uint32_t task);
/* Workers begin no round while the next one has a task that others are to retry. */
int fal_retries_review(struct fal_sched *s, double now, bool *changed);
/* The round is new: what was skipped in one before it is so in this one, too. */
int fal_skip_again(struct fal_sched *s, struct fal_round *r);

#endif
