/* syncopt: synchronous with b backup workers (Chen, Pan, Monga, Bengio, Jozefowicz 2016;
 * schemes.md, syncopt).  M workers begin a round on a version.  The first N = M - b
 * complete rounds make the update; the other workers abandon their rounds, whose samples
 * are dropped.  The decision is made once for a whole round, not for each block. */
#include "sched/scheme.h"

/* N: the number of rounds that make an update. */
static uint32_t
syncopt_clock_rounds(const struct fal_sched *s)
{
	uint32_t m = s->active, b = s->policy.rule.backups;
	if (b == FAL_BACKUPS_AUTO) /* 5 %, rounded */
		b = m < 30 ? 1 : (m + 10) / 20;
	return m > b ? m - b : 1;
}

/* Each team has one round on each version. */
static bool
syncopt_may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	return t->version != s->version;
}

/* Makes the update when enough rounds have come; open rounds are too late. */
static void
syncopt_apply(struct fal_sched *s, double now)
{
	const struct fal_act drop = { .fate = FAL_FATE_DROP, .why = "stale" };
	if (s->pending.rounds == 0 || s->pending.rounds < syncopt_clock_rounds(s))
		return;
	fal_pending_order_step(s, s->pending.step_samples);
	while (s->newest != NULL)
		fal_round_end_own(s, s->newest, drop, now);
	fal_teams_wake(s);
}

static void
syncopt_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	fal_round_end_own(s, r, end, now);
	syncopt_apply(s, now);
}

const struct fal_scheme fal_scheme_syncopt = {
	.clock_rounds = syncopt_clock_rounds,
	.may_begin = syncopt_may_begin,
	.round_complete = syncopt_round_complete,
	.teams_changed = syncopt_apply,
};
