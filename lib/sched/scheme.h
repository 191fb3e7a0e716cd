/* The interface of schemes: a table of functions, and functions that several schemes
 * share.
 */
#ifndef FAL_SCHED_SCHEME_H
#define FAL_SCHED_SCHEME_H

#include "sched/state.h"

/* A scheme.  Its traits stand in policy.h: each worker is a team if rounds have one
 * owner, all workers are one team if rounds are shared, else the scheme forms the teams.
 */
struct fal_scheme {
	/* The scheme's own state, known to its file alone: so many bytes at
	 * s->scheme_state, and of each team at t->state, zero when the policy, or the
	 * team, begins; and the heaps s->scheme_heap of workers, by their slots, empty
	 * then and when slots change, followed by worker_changed for all workers. */
	size_t state_bytes, team_state_bytes;
	/* The policy begins, without a team.  NULL: nothing to do. */
	void (*start)(struct fal_sched *s);
	/* Rounds that a clock's tasks make, where each worker is a team.  NULL: one for
	 * each worker. */
	uint32_t (*clock_rounds)(const struct fal_sched *s);
	/* Tasks of the team's next round, if so many are left.  NULL: by clock_rounds. */
	uint32_t (*round_tasks)(const struct fal_sched *s, const struct fal_team *t);
	/* May the team begin its next round?  NULL: always.  The scheduler asks again
	 * when a round of the team has ended, when the slowest clock has changed, and at
	 * fal_teams_wake. */
	bool (*may_begin)(const struct fal_sched *s, const struct fal_team *t);
	/* A round of the team is about to be opened.  NULL: nothing to do. */
	void (*before_round)(struct fal_sched *s, struct fal_team *t);
	/* Sets version, base, since of the team's new round.  NULL: the newest version,
	 * which the team's workers pull if they lack it. */
	void (*begin_round)(struct fal_sched *s, struct fal_team *t, struct fal_round *r);
	/* The round is complete: ends the round, with all consequences. */
	void (*round_complete)(struct fal_sched *s, struct fal_round *r, double now);
	/* After each event with a pending update: applies the update, if the update would
	 * wait for more in vain.  NULL: applies it when no round is open. */
	void (*flush)(struct fal_sched *s, double now);
	/* The time of the next flush without any event.  NULL: never. */
	double (*next_flush)(const struct fal_sched *s);
	/* A round of the team was dropped or abandoned: the state of its workers is not
	 * known to others.  NULL: nothing to do. */
	void (*round_lost)(struct fal_team *t);
	/* A worker gets work, after so many seconds without.  NULL: nothing to do. */
	void (*idle_ended)(struct fal_sched *s, double idle_s);
	/* A worker came, left, became a suspect, or has another site.  NULL: nothing to
	 * do. */
	void (*teams_changed)(struct fal_sched *s, double now);
	/* The cost of `more` for worker `w` that holds `held`; the worker with the least
	 * cost gets the next task.  NULL: equal parts of the samples; among equals the
	 * fastest worker is first. */
	double (*cost)(const struct fal_sched *s, const struct fal_worker *w,
		       struct fal_load held, struct fal_load more, double now);
	/* Moves and clones tasks.  NULL: tasks stay. */
	void (*rebalance)(struct fal_sched *s, double now);
	/* Something of `w` changed; of its own round.  NULL: nothing to do. */
	void (*worker_changed)(struct fal_sched *s, const struct fal_worker *w);
	void (*round_changed)(struct fal_sched *s, const struct fal_worker *w);
	/* Changes the lanes of workers, once a clock.  NULL: lanes stay. */
	void (*set_lanes)(struct fal_sched *s);
};
extern const struct fal_scheme fal_scheme_bsp, fal_scheme_epsp, fal_scheme_asp,
	fal_scheme_ssp, fal_scheme_flexrr, fal_scheme_syncopt, fal_scheme_consgd,
	fal_scheme_dynsgd, fal_scheme_wbsp, fal_scheme_groups, fal_scheme_rennala,
	fal_scheme_ringmaster;

/* ---- rounds.c: bsp, epsp ---- */

/* The round is a clock: applies it, and publishes the version to all workers. */
void fal_clock_complete(struct fal_sched *s, struct fal_round *r, double now);

/* ---- ssp.c: schemes with rounds of one worker ---- */

/* Ends the round of a worker as `end` says; the worker accounts for its time. */
void fal_round_end_own(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		       double now);
/* The same, and applies the round as an update of its own. */
void fal_round_apply_alone(struct fal_sched *s, struct fal_round *r, struct fal_act end,
			   double now);
/* Abandons the open rounds on versions before this one: their tasks are stopped, and free
 * for all. */
void fal_rounds_abandon_before(struct fal_sched *s, uint64_t version, double now);
/* SSP's bound: at most s clocks ahead of the slowest. */
bool fal_ssp_may_begin(const struct fal_sched *s, const struct fal_team *t);

void fal_ssp_complete(struct fal_sched *s, struct fal_round *r, double now);

/* With local steps a team pulls only when its last pulled version is too old, else the
 * team goes on by itself.  The state of such a team, for ssp.c alone. */
struct fal_ssp_local {
	uint64_t pulled_at; /* the slowest clock at its last pull */
	bool has_weights;   /* of its own, to go on from */
};
void fal_ssp_begin_local(struct fal_sched *s, struct fal_team *t, struct fal_round *r);
bool fal_ssp_may_begin_local(const struct fal_sched *s, const struct fal_team *t);
void fal_ssp_lost_local(struct fal_team *t);

#endif
