/* syncopt: synchronous with b backup workers (Chen, Pan, Monga, Bengio, Jozefowicz 2016;
 * schemes.md, syncopt).  Of M workers that begin a round on a version, the first N = M -
 * b that are done make the update; the others abandon their work, and its samples are
 * dropped.  The decision is made once for a round, not for each block.
 */
#include "sched/scheme.h"

/* N: rounds that make an update. */
static uint32_t
among(const struct fal_sched *s)
{
	uint32_t m = s->active, b = s->policy.rule.backups;
	if (b == FAL_BACKUPS_AUTO) /* 5 %, rounded */
		b = m < 30 ? 1 : (m + 10) / 20;
	return m > b ? m - b : 1;
}

/* One round on each version. */
static bool
may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	return t->version != s->version;
}

/* The update, when enough came for it; whoever is not done yet is too late. */
static void
decide(struct fal_sched *s, double now)
{
	const struct fal_act drop = { .fate = FAL_FATE_DROP, .why = "stale" };
	if (s->merged == 0 || s->merged < among(s))
		return;
	fal_pending_apply(s, s->merged_of);
	while (s->newest != NULL)
		fal_round_end_own(s, s->newest, drop, now);
	fal_teams_wake(s);
}

static void
complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	fal_round_end_own(s, r, end, now);
	decide(s, now);
}

const struct fal_scheme fal_scheme_syncopt = {
	.among = among, .may_begin = may_begin, .complete = complete, .changed = decide
};
