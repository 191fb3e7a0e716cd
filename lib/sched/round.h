/* Rounds: found, opened, ended. */
#ifndef FAL_SCHED_ROUND_H
#define FAL_SCHED_ROUND_H

#include "sched/state.h"

/* The open round of this number, or NULL.  O(1). */
struct fal_round *fal_round_find(const struct fal_sched *s, uint64_t id);
/* The round of this number that is open, or ended and not forgotten; NULL.  O(1). */
struct fal_round *fal_round_known(const struct fal_sched *s, uint64_t id);
/* A new round of the tasks `run` for team `t`, all of them free. */
void fal_round_open(struct fal_sched *s, struct fal_team *t,
		    const struct fal_run_of *run);
/* Ends the round: `end` says its fate, weight, slot, below and why.  What is held of it
 * is taken away; its tasks are over, or, abandoned, come back to the pool.  Staleness
 * must be set before. */
void fal_round_end(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		   double now);
/* Its end is ordered ahead.  When all of it is reported its team passes on, and may begin
 * another in its place.  It is over when it is so and its end has come to pass
 * everywhere. */
void fal_round_arm(struct fal_sched *s, struct fal_round *r);
void fal_round_pass(struct fal_sched *s, struct fal_round *r);
void fal_round_over(struct fal_sched *s, struct fal_round *r, double now);
/* Applies what was collected, over `divisor` samples. */
void fal_step(struct fal_sched *s, double divisor);
/* Tells worker `w` to account for its time up to now, the end of round `r`. */
void fal_account(struct fal_sched *s, struct fal_worker *w, const struct fal_round *r);
/* Of all workers that are here. */
void fal_account_all(struct fal_sched *s, const struct fal_round *r);
/* Sets the round's staleness: its team's clocks before the slowest, and the updates
 * since its version. */
void fal_stale(struct fal_sched *s, struct fal_round *r, uint64_t behind);
/* Samples of the round's tasks; of those that are claimed, or skipped; of all but those
 * that are skipped. */
uint32_t fal_round_samples(const struct fal_sched *s, const struct fal_round *r);
uint32_t fal_round_claimed(const struct fal_sched *s, const struct fal_round *r);
uint32_t fal_round_counted(const struct fal_sched *s, const struct fal_round *r);
/* What the sum of a round that is applied alone, as its part of its clock, is divided by:
 * the clock's samples but for those that it has skipped; 0: it has skipped all. */
double fal_round_divisor(const struct fal_sched *s, const struct fal_round *r);
void fal_round_free(struct fal_round *r);
void fal_free_task(struct fal_sched *s, struct fal_round *r, uint32_t task);
bool fal_task_held(const struct fal_round *r, uint32_t task);

#endif
