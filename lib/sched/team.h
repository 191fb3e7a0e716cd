/* Who works for whom; when a round begins. */
#ifndef FAL_SCHED_TEAM_H
#define FAL_SCHED_TEAM_H

#include "sched/state.h"

/* Forms the teams, as the scheme has them: at a new policy. */
void fal_teams_form(struct fal_sched *s);
/* Frees them, and what is the scheme's own. */
void fal_teams_end(struct fal_sched *s);
/* A team of nobody yet, whose clock is the slowest, behind those that there are, at
 * place `at`; NULL: out of memory. */
struct fal_team *fal_team_new(struct fal_sched *s, uint32_t at, uint32_t id);
/* The team has so many active workers, and this clock: it may begin, and, where it was
 * the slowest, others. */
void fal_team_set(struct fal_sched *s, struct fal_team *t, uint32_t members,
		  uint64_t clock);
/* A worker that joined gets its team. */
void fal_team_join(struct fal_sched *s, struct fal_worker *w);
/* A worker left, is suspected or excluded, or is in again: its team has so many active
 * workers now; its rounds are abandoned if nobody is left for them. */
void fal_team_changed(struct fal_sched *s, struct fal_worker *w, uint32_t members,
		      double now);
/* Teams move up to where there are none any more. */
void fal_teams_close_up(struct fal_sched *s);
/* Any team may be able to begin a round that could not before. */
void fal_teams_wake(struct fal_sched *s);
/* A round of these tasks, on this version, of the one team that there is:
 * fal_sched_bring. */
void fal_team_bring(struct fal_sched *s, const struct fal_run_of *run, uint64_t version,
		    double now);
/* Begins whatever may begin.  O(log W) for each team that may be able to. */
void fal_teams_begin(struct fal_sched *s, double now);
/* The clock of the tasks that its next round would get. */
uint64_t fal_team_next(const struct fal_sched *s, const struct fal_team *t);
/* The least clock of the teams that have active workers; `but` is not looked at.
 * UINT64_MAX: there is none.  O(1). */
uint64_t fal_slowest(const struct fal_sched *s, const struct fal_team *but);
/* Teams with active workers. */
uint32_t fal_teams_active(const struct fal_sched *s);
/* The worker of a team of one. */
struct fal_worker *fal_team_worker(const struct fal_sched *s, const struct fal_team *t);

#endif
