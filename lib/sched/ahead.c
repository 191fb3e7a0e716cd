/* Updates that are ordered before their rounds are complete: when all of a clock is
 * claimed, what its step is made of is known, and stays so.  Each shard steps when it has
 * all of it, and the next clock is handed out meanwhile.  Whatever happens to a
 * contribution on its way, its tasks are run again and fill it: the shards wait.  Under
 * the law only (policy.c), where no round is abandoned. */
#include "sched/ahead.h"
#include "sched/round.h"
#include "sched/scheme.h"

bool
fal_goes_ahead(const struct fal_sched *s)
{
	/* Samples that are skipped are known when all is complete. */
	return s->ahead && s->is.ahead && !s->skips;
}

/* Is all of it claimed, or has it come although claims were lost again? */
static bool
has_all(const struct fal_round *r)
{
	return r->ledger.claimed == r->ledger.tasks || r->complete;
}

/* Are all tasks of the round claimed, by workers that had its version?  Tasks that were
 * claimed as they were granted may still be at work in the oldest round alone: workers
 * would need more versions else. */
static bool
can_arm(const struct fal_sched *s, const struct fal_round *r)
{
	return has_all(r) && (r->ledger.due == 0 || r == s->oldest) &&
	       s->published >= r->version;
}

static void
arm(struct fal_sched *s, struct fal_round *r)
{
	const double samples = fal_round_counted(s, r);
	fal_stale(s, r, 0);
	fal_round_arm(s, r);
	fal_step(s, samples);
	s->act[s->acts - 1].ahead = true;
}

/* In the order of rounds, as their updates are: each is armed, and passes when all of it
 * is reported, as the next one may then, too. */
void
fal_ahead(struct fal_sched *s, double now)
{
	struct fal_round *r = fal_goes_ahead(s) ? s->oldest : NULL;
	for (; r != NULL && (r->armed || can_arm(s, r)); r = r->newer) {
		if (!r->armed)
			arm(s, r);
		if (r->passed)
			continue;
		if (r->ledger.due > 0 || !has_all(r))
			break;
		fal_round_pass(s, r);
		fal_tell_clock(s, r, now);
	}
}

void
fal_sched_stepped(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || !r->armed || r->passed || r->complete)
		return;
	r->complete = true;
	fal_settle(s, now);
}

void
fal_sched_made(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || !r->passed)
		return;
	fal_round_over(s, r, now);
	fal_settle(s, now);
}

uint64_t
fal_sched_read(const struct fal_sched *s, uint64_t version)
{
	/* What is armed is the oldest, and has the oldest version. */
	const struct fal_round *r = s->oldest;
	return r != NULL && r->armed && r->version < version ? r->version : version;
}

const struct fal_round *
fal_pressing(const struct fal_sched *s)
{
	const struct fal_round *r = s->oldest;
	while (r != NULL && r->passed && r->ledger.claimed == r->ledger.tasks)
		r = r->newer;
	return r;
}
