/* The interface of schemes: a table of functions, and functions that several schemes
 * share.
 */
#ifndef FAL_SCHED_SCHEME_H
#define FAL_SCHED_SCHEME_H

#include "sched/state.h"

/* A scheme.  policy.h has its traits.  The trait `own` makes each worker a team; `shared`
 * makes all workers one team; with `groups` the scheme forms the teams. */
struct fal_scheme {
	/* The scheme's own state, which only its file knows: state_bytes at
	 * s->scheme_state, zero when the policy begins, and team_state_bytes at each
	 * t->state, zero when the team begins.  The scheme also has s->scheme_heap, two
	 * heaps of workers by slot.  They are empty when the policy begins, and when
	 * slots change; worker_changed is then called for all workers. */
	size_t state_bytes, team_state_bytes;
	/* The policy begins, without a team.  NULL: nothing to do. */
	void (*start)(struct fal_sched *s);
	/* The number of rounds into which a clock is cut, where each worker is a team.
	 * NULL: one for each worker. */
	uint32_t (*clock_rounds)(const struct fal_sched *s);
	/* The number of tasks of the team's next round, unless the clock has fewer left.
	 * NULL: by clock_rounds. */
	uint32_t (*round_tasks)(const struct fal_sched *s, const struct fal_team *t);
	/* May the team begin its next round?  NULL: always.  The scheduler asks again
	 * after the end of a round of the team, after a change of the slowest clock, and
	 * at fal_teams_wake. */
	bool (*may_begin)(const struct fal_sched *s, const struct fal_team *t);
	/* Called before a round of the team opens.  NULL: nothing to do. */
	void (*before_round)(struct fal_sched *s, struct fal_team *t);
	/* Sets info.version, info.base and info.since of the team's new round.  NULL: the
	 * round is on the newest version, and the team's workers pull the newest version
	 * if they lack it. */
	void (*begin_round)(struct fal_sched *s, struct fal_team *t, struct fal_round *r);
	/* The round is complete: ends the round, with all consequences. */
	void (*round_complete)(struct fal_sched *s, struct fal_round *r, double now);
	/* Called after each event with a pending update: applies the update if no more
	 * rounds can come to it.  NULL: the scheduler applies the update when no round is
	 * open. */
	void (*flush)(struct fal_sched *s, double now);
	/* The time at which flush must be called even without an event.  NULL: never. */
	double (*next_flush)(const struct fal_sched *s);
	/* A round of the team was dropped or abandoned, so the team must not continue
	 * from weights of its own.  NULL: nothing to do. */
	void (*round_lost)(struct fal_team *t);
	/* A worker gets work after idle_s seconds without work.  NULL: nothing to do. */
	void (*idle_ended)(struct fal_sched *s, double idle_s);
	/* A worker came or left, is a suspect or a member again, or has another site.
	 * NULL: nothing to do. */
	void (*teams_changed)(struct fal_sched *s, double now);
	/* The cost of giving load `more` to worker `w`, which holds `held`.  The worker
	 * with the least cost gets the next task.  NULL: workers get equal parts of the
	 * samples, the fastest worker first. */
	double (*cost)(const struct fal_sched *s, const struct fal_worker *w,
		       struct fal_load held, struct fal_load more, double now);
	/* Moves and clones tasks.  NULL: tasks stay. */
	void (*rebalance)(struct fal_sched *s, double now);
	/* worker_changed: the state of `w` has changed; round_changed: the state of its
	 * own round has.  NULL: nothing to do. */
	void (*worker_changed)(struct fal_sched *s, const struct fal_worker *w);
	void (*round_changed)(struct fal_sched *s, const struct fal_worker *w);
	/* Changes the numbers of lanes of workers, once in each clock.  NULL: lanes
	 * stay. */
	void (*set_lanes)(struct fal_sched *s);
};
extern const struct fal_scheme fal_scheme_bsp, fal_scheme_epsp, fal_scheme_asp,
	fal_scheme_ssp, fal_scheme_flexrr, fal_scheme_syncopt, fal_scheme_consgd,
	fal_scheme_dynsgd, fal_scheme_wbsp, fal_scheme_groups, fal_scheme_rennala,
	fal_scheme_ringmaster;

/* ---- rounds.c: bsp, epsp ---- */

/* Completes a round that is a whole clock: applies the round, and publishes the version
 * to all workers. */
void fal_clock_complete(struct fal_sched *s, struct fal_round *r, double now);

/* ---- ssp.c: schemes with rounds of one worker ---- */

/* Ends the round of a worker as `end` says; asks the worker to account for its time. */
void fal_round_end_own(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		       double now);
/* The same; also applies the round as an update of its own. */
void fal_round_apply_alone(struct fal_sched *s, struct fal_round *r, struct fal_act end,
			   double now);
/* Abandons the open rounds on versions before `version`: stops their tasks, which any
 * worker may then get. */
void fal_rounds_abandon_before(struct fal_sched *s, uint64_t version, double now);
/* SSP's bound: the team is at most s clocks ahead of the slowest team. */
bool fal_ssp_may_begin(const struct fal_sched *s, const struct fal_team *t);

void fal_ssp_complete(struct fal_sched *s, struct fal_round *r, double now);

/* The state of a team with local steps, for ssp.c alone.  Such a team pulls only when its
 * last pull is too old; else the team continues from its own weights. */
struct fal_ssp_local {
	uint64_t pulled_at; /* the slowest clock at its last pull */
	bool has_weights;   /* the team has weights of its own to continue from */
};
void fal_ssp_begin_local(struct fal_sched *s, struct fal_team *t, struct fal_round *r);
bool fal_ssp_may_begin_local(const struct fal_sched *s, const struct fal_team *t);
void fal_ssp_lost_local(struct fal_team *t);

#endif
