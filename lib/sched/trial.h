/* Who has not kept its deadline, and how it comes back. */
#ifndef FAL_SCHED_TRIAL_H
#define FAL_SCHED_TRIAL_H

#include "sched/state.h"

/* Seconds that a key may cost others, or so many times what a task or a push takes; and
 * the part of each second that it may cost beyond that. */
#define FAL_COST_FREE_S 2.0
#define FAL_COST_FREE_TURNS 16
#define FAL_COST_PART 0.02

/* Is there anybody else who works, or may be tried? */
bool fal_trial_others(const struct fal_sched *s, const struct fal_worker *w);
/* `w` has not kept its deadline: others, who have waited since `since`, do what it owes.
 * That it is a suspect was told before (fal_trial_tell). */
void fal_suspect(struct fal_sched *s, struct fal_worker *w, double since, double now);
/* Its key pays for what others have waited for `w` since `since`, but for what it pays
 * for another worker already, and for when nobody waited. */
void fal_trial_charge(struct fal_sched *s, struct fal_worker *w, double since,
		      double now);
/* Tells that it is a suspect from now on, as the act says, unless that was told. */
void fal_trial_tell(struct fal_sched *s, struct fal_worker *w, struct fal_act act,
		    double now);
/* Whoever has not spoken since it was suspected is asked, once. */
void fal_trial_ask(struct fal_sched *s, double now);
/* Nobody is left who may do what is next: all who speak are back, the others asked. */
void fal_trial_recall(struct fal_sched *s, double now);
/* A suspected worker spoke. */
void fal_trial_heard(struct fal_sched *s, struct fal_worker *w, double now);
/* Work of `w` has arrived. */
void fal_trial_kept(struct fal_sched *s, struct fal_worker *w, double now);
/* Is the team nobody but who is on trial? */
bool fal_trial_of(const struct fal_sched *s, const struct fal_team *t);
/* Ends a trial, begins the next one, if that is due. */
void fal_trial_next(struct fal_sched *s, double now);
/* The worker on trial that still has to get its task, or NULL. */
struct fal_worker *fal_trial_untried(const struct fal_sched *s);
/* Until when workers of the key get no work: `now`, or later. */
double fal_trial_barred(const struct fal_sched *s, uint32_t key, double now);

#endif
