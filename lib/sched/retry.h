/* Tasks without a finite result: one retry, then they are skipped, or the job ends. */
#ifndef FAL_SCHED_RETRY_H
#define FAL_SCHED_RETRY_H

#include "sched/state.h"

/* `w` has claimed the task without a finite result: the task is retried, or, after the
 * retry, is skipped or ends the job. */
void fal_retry_nonfinite(struct fal_sched *s, double now, struct fal_round *r,
			 struct fal_worker *w, uint32_t task);
/* Forgets the retry of the task, which has a result; of all tasks of the round, which
 * nobody wants any more. */
void fal_retry_done(struct fal_sched *s, const struct fal_round *r, uint32_t task);
void fal_retry_forget(struct fal_sched *s, const struct fal_round *r);
/* Is the task to be retried?  The worker that is drawn for the retry, or NULL: there is
 * no retry, or anybody may do it.  May `w` have the task? */
bool fal_retried(const struct fal_sched *s, const struct fal_round *r, uint32_t task);
struct fal_worker *fal_retry_draw(struct fal_sched *s, const struct fal_round *r,
				  uint32_t task);
bool fal_retry_may(const struct fal_sched *s, const struct fal_worker *w,
		   const struct fal_round *r, uint32_t task);
/* Workers begin no round while the next one has a task that others are to retry.
 * True: some are stopped, or go on. */
bool fal_retries_review(struct fal_sched *s, double now);
/* The round is new: tasks that an earlier round of its clock skipped are skipped in it,
 * too. */
void fal_skip_again(struct fal_sched *s, struct fal_round *r);

#endif
