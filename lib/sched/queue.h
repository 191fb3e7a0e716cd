/* The workers' queues, and what is told. */
#ifndef FAL_SCHED_QUEUE_H
#define FAL_SCHED_QUEUE_H

#include "sched/state.h"

void fal_emit(struct fal_sched *s, struct fal_act act);
/* Appends the task to a range of the last action where it touches it. */
void fal_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task);
/* Recomputes the projection of `w` and its places in the heaps. */
void fal_refresh(struct fal_sched *s, struct fal_worker *w, double now);
/* Only its place in the heap `due`. */
void fal_refresh_due(struct fal_sched *s, struct fal_worker *w);
/* The round's owner, if it has one, is told to the scheme. */
void fal_touch_owner(struct fal_sched *s, const struct fal_round *r);
/* The newest holder of a task; the others by `other`.  NULL: nobody holds it. */
struct fal_node *fal_holders(const struct fal_round *r, uint32_t task);
/* Where the task stands in the queue of `w`, or NULL. */
struct fal_node *fal_held_by(const struct fal_sched *s, const struct fal_round *r,
			     uint32_t task, const struct fal_worker *w);
/* Takes the node out of all lists; it is spare. */
void fal_detach(struct fal_sched *s, struct fal_node *node);
/* Takes it from its worker, who is told unless it is gone; if it had begun it was cut
 * short, and its worker says so. */
void fal_take_away(struct fal_sched *s, struct fal_node *n, double now);
/* Puts a task into the queue of `w`, which does not hold it, behind what is of its round
 * or older, and tells it. */
void fal_give(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
	      uint32_t task, double now);
/* Tells `w`, which holds it, that it is to run the task, which may be claimed ahead for
 * it; not so for who may have been told, and know it. */
void fal_tell_grant(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
		    uint32_t task, bool ahead);
/* The last unstarted task of the oldest round that `w` has any of, or NULL. */
struct fal_node *fal_last_unstarted(const struct fal_sched *s,
				    const struct fal_worker *w);
void fal_move(struct fal_sched *s, struct fal_node *node, struct fal_worker *to,
	      double now);
/* A running task of `w` that nobody else was given since, or NULL. */
struct fal_node *fal_uncloned(const struct fal_worker *w);
/* Runs a task that `from` is running on `to`, too; 0 also when there is none left. */
void fal_clone_head(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
		    double now);
/* Fences the open contribution `ci`: shards and its worker are told.  Its tasks are free
 * again when all shards know (fal_sched_fenced). */
void fal_fence(struct fal_sched *s, struct fal_round *r, uint32_t ci);
/* Takes everything from `w`: tasks, open contributions, eval tasks; `tell`: with
 * revokes. */
void fal_strip(struct fal_sched *s, struct fal_worker *w, bool tell, double now);
/* The task leaves all queues and the free tasks; its holders are told. */
void fal_withdraw(struct fal_sched *s, struct fal_round *r, uint32_t task, double now);
/* The task leaves the queue of `w`, which has claimed it; other holders keep it.  Who was
 * given it twice may have claimed it before it heard of that, and is told: else it would
 * run it again. */
void fal_drop_claimed(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		      const struct fal_worker *w);
/* The task leaves the queue of `w`, which knows; other holders keep it. */
void fal_drop_own(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		  const struct fal_worker *w);

#endif
