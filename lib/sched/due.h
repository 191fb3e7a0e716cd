/* What workers owe, and until when. */
#ifndef FAL_SCHED_DUE_H
#define FAL_SCHED_DUE_H

#include "sched/state.h"

/* So many seconds may pass at `w` from the moment that a full task and its version are
 * there until its claim is heard: median + 6·max(MAD, 5 %) of what was measured here,
 * without that 4 times the median of the others, or 10 times the least probe; with floors
 * of 4 RTT, of a second at most, and 200 ms; on trial twice that for each one that it
 * failed in a row; with checks, which come first, twice as many. */
double fal_deadline_s(const struct fal_sched *s, const struct fal_worker *w);
/* The seconds of a full task at `w`, as measured here; without that, as may be guessed.
 */
double fal_turn_s(const struct fal_sched *s, const struct fal_worker *w);
/* It took `w` so many seconds. */
void fal_turned(struct fal_sched *s, struct fal_worker *w, enum fal_turn_kind kind,
		double seconds);
/* The task at `n` was claimed by its holder `w`. */
void fal_due_claimed(struct fal_sched *s, struct fal_worker *w, const struct fal_node *n,
		     double now);
/* Brings what is typical up to date, once in a clock; after any event. */
void fal_due_typical(struct fal_sched *s);
/* When what `w` owes must be looked at, or `late`, if that is sooner; infinity: it owes
 * nothing. */
double fal_due_next(const struct fal_sched *s, const struct fal_worker *w, double late);
/* Looks at it: asks the worker, or suspects it. */
void fal_due_review(struct fal_sched *s, struct fal_worker *w, double now);
/* The worker answers what it was asked at `asked`: its lanes are `steps` far.  True: that
 * was not enough, it is suspected. */
bool fal_due_answer(struct fal_sched *s, struct fal_worker *w, double asked,
		    uint64_t steps, double now);
/* `w` goes: what it owes for longer than that takes its key pays, if others wait for it.
 */
void fal_due_left(struct fal_sched *s, struct fal_worker *w, double now);

#endif
