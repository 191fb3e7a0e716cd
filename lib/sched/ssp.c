/* ssp: stale synchronous parallel (Ho et al. 2013; schemes.md, ssp).  Every worker has
 * rounds of its own, and each round is applied at once.  A worker may be at most s rounds
 * ahead of the slowest worker.
 *
 * s = 0 is the same as bsp: the rounds of a clock are collected and applied together.
 */
#include "sched/scheme.h"

#include <assert.h>

void
fal_round_end_own(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		  double now)
{
	struct fal_worker *w = fal_worker_find(s, r->info.owner);
	assert(w != NULL); /* the rounds of a worker that leaves are abandoned at once */
	fal_round_set_staleness(
		s, r, s->traits.waves ? 0 : r->team->clock - fal_slowest_clock(s, NULL));
	fal_round_end(s, r, end, now);
	fal_worker_account(s, w, r);
}

void
fal_round_apply_alone(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		      double now)
{
	const double divisor = fal_round_divisor(s, r);
	fal_round_end_own(s, r, end, now);
	fal_pending_order_step(s, divisor);
}

void
fal_rounds_abandon_before(struct fal_sched *s, uint64_t version, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_RETRY,
				     .why = "its version is too old" };
	/* Older rounds have older versions. */
	while (s->oldest != NULL && s->oldest->info.version < version)
		fal_round_end(s, s->oldest, end, now);
}

bool
fal_ssp_may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	return s->traits.waves ||
	       t->clock <= fal_slowest_clock(s, NULL) + s->policy.rule.slack;
}

void
fal_ssp_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	if (!s->traits.waves) {
		fal_round_apply_alone(s, r, end, now);
		return;
	}
	/* s = 0: the round is collected; the clock's last round applies all rounds of the
	 * clock. */
	fal_round_end_own(s, r, end, now);
	if (s->rounds > 0 || fal_task_pool_first(&s->pool) == r->info.clock)
		return;
	fal_teams_wake(s);
	fal_pending_order_step(s, (double)s->pending.samples);
}

/* Is the last pull too old for the team's next clock?  SSP's bound holds against the
 * slowest clock at the time of the pull. */
static bool
ssp_must_pull(const struct fal_sched *s, const struct fal_team *t)
{
	const struct fal_ssp_local *own = t->state;
	return !own->has_weights || t->clock > own->pulled_at + s->policy.rule.slack;
}

bool
fal_ssp_may_begin_local(const struct fal_sched *s, const struct fal_team *t)
{
	uint32_t slack = s->policy.rule.slack;
	return !ssp_must_pull(s, t) || t->clock <= fal_slowest_clock(s, NULL) + slack;
}

void
fal_ssp_begin_local(struct fal_sched *s, struct fal_team *t, struct fal_round *r)
{
	struct fal_ssp_local *own = t->state;
	r->info.steps = s->policy.rule.steps;
	if (ssp_must_pull(s, t)) {
		own->pulled_at = fal_slowest_clock(s, NULL);
		own->has_weights = true;
		return;
	}
	r->info.base = FAL_START_LOCAL;
	r->info.version = t->version;
}

void
fal_ssp_lost_local(struct fal_team *t)
{
	struct fal_ssp_local *own = t->state;
	own->has_weights = false;
}

const struct fal_scheme fal_scheme_ssp = { .may_begin = fal_ssp_may_begin,
					   .round_complete = fal_ssp_complete };
