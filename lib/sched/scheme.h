/* What schemes are to the rest of the scheduler, and what they share. */
#ifndef FAL_SCHED_SCHEME_H
#define FAL_SCHED_SCHEME_H

#include "sched/state.h"

/* A scheme: its functions.  policy.h has the traits: every worker is a team where rounds
 * are a worker's own, all workers are one team where rounds are shared, else the scheme
 * forms the teams. */
struct fal_scheme {
	/* What it keeps of its own, known to its file alone: so many bytes at s->own, and
	 * of each team at t->own, zero when the policy, or the team, begins; and the
	 * heaps s->own_heap of workers, by their slots, empty then and when slots change,
	 * after which all workers are `refreshed`. */
	size_t own, team_own;
	/* The policy begins, without a team.  NULL: nothing to do. */
	void (*form)(struct fal_sched *s);
	/* Rounds that a team may have open at once.  NULL: one. */
	uint32_t (*ahead)(const struct fal_sched *s);
	/* How many rounds a clock's tasks make, if every worker is a team.  NULL: one for
	 * each. */
	uint32_t (*among)(const struct fal_sched *s);
	/* Tasks of the team's next round, if there are as many.  NULL: as `among` says.
	 */
	uint32_t (*tasks)(const struct fal_sched *s, const struct fal_team *t);
	/* May the team begin its next round?  NULL: always.  It is asked again when a
	 * round of the team has ended, when the slowest clock has changed, and at
	 * fal_teams_wake. */
	bool (*may_begin)(const struct fal_sched *s, const struct fal_team *t);
	/* Would its next round be a part of the update that is under way, so that it may
	 * begin although the scheduler holds?  NULL: never. */
	bool (*under_way)(const struct fal_sched *s, const struct fal_team *t);
	/* A round of the team is about to be opened.  NULL: nothing to do. */
	void (*prepare)(struct fal_sched *s, struct fal_team *t);
	/* Sets version, base, since of the team's new round; the newest version, pulled
	 * by its workers if they have it not, where NULL. */
	void (*begin)(struct fal_sched *s, struct fal_team *t, struct fal_round *r);
	/* The round is complete: ends it, and whatever follows. */
	void (*complete)(struct fal_sched *s, struct fal_round *r, double now);
	/* After each event, where something is collected: applies it, where that waits
	 * in vain for more.  NULL: all of it, when no round is open. */
	void (*flush)(struct fal_sched *s, double now);
	/* When that would be, though nothing happens.  NULL: never. */
	double (*until)(const struct fal_sched *s);
	/* A round of the team was dropped or abandoned: what its workers have is not what
	 * others know.  NULL: nothing to do. */
	void (*lost)(struct fal_team *t);
	/* A worker gets work, so many seconds after it had none left.  NULL: nothing to
	 * do. */
	void (*busy)(struct fal_sched *s, double idle);
	/* A team came, left or was suspected, or a worker has another site.  NULL:
	 * nothing to do. */
	void (*changed)(struct fal_sched *s, double now);
	/* The cost of worker `w` holding `more` beside `held`; whoever has the least gets
	 * the next.  NULL: equal parts of the samples; among equals the fastest is first.
	 */
	double (*cost)(const struct fal_sched *s, const struct fal_worker *w,
		       struct fal_load held, struct fal_load more, double now);
	void (*rebalance)(struct fal_sched *s, double now); /* NULL: never */
	/* Something of `w` changed; of the round that it owns.  NULL: nothing to do. */
	void (*refreshed)(struct fal_sched *s, const struct fal_worker *w);
	void (*touched)(struct fal_sched *s, const struct fal_worker *w);
	void (*lanes)(struct fal_sched *s); /* NULL: fixed */
};
extern const struct fal_scheme fal_scheme_bsp, fal_scheme_epsp, fal_scheme_asp,
	fal_scheme_ssp, fal_scheme_flexrr, fal_scheme_syncopt, fal_scheme_consgd,
	fal_scheme_dynsgd, fal_scheme_wbsp, fal_scheme_groups, fal_scheme_rennala,
	fal_scheme_ringmaster;

/* bsp.c: what schemes share. */

/* The round was the clock's: applies it, and publishes the version to all. */
void fal_clock_complete(struct fal_sched *s, struct fal_round *r, double now);
/* All of it is reported, and its step ordered: everybody hears of the version. */
void fal_clock_publish(struct fal_sched *s, const struct fal_round *r, double now);

/* ---- ssp.c: what the schemes on its base share ---- */

/* SSP's bound: at most s clocks ahead of the slowest. */
bool fal_ssp_may_begin(const struct fal_sched *s, const struct fal_team *t);
/* s = 0: of the clock whose rounds are being collected. */
bool fal_ssp_under_way(const struct fal_sched *s, const struct fal_team *t);
/* Ends the round of a worker as `end` says; the worker accounts for its time. */
void fal_round_end_own(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		 double now);
/* The same, and steps. */
void fal_round_apply_alone(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		     double now);
/* Abandons the open rounds on versions before this one: their tasks are stopped, and
 * anybody's again. */
void fal_rounds_abandon_before(struct fal_sched *s, uint64_t version, double now);
void fal_ssp_complete(struct fal_sched *s, struct fal_round *r, double now);

/* With local steps a team pulls only when its last pulled version is too old, else the
 * team goes on by itself.  The state of such a team, at t->own; for ssp.c alone. */
struct fal_ssp_local {
	uint64_t pulled; /* slowest clock when it pulled last */
	bool based;      /* has weights of its own to go on from */
};
void fal_ssp_begin_local(struct fal_sched *s, struct fal_team *t, struct fal_round *r);
bool fal_ssp_may_begin_local(const struct fal_sched *s, const struct fal_team *t);
void fal_ssp_lost_local(struct fal_team *t);

#endif
