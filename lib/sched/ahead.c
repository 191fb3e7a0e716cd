/* Updates that are ordered before their rounds are complete: when all of a clock is
 * claimed, what its step is made of is known, and stays so.  Each shard steps when it has
 * all of it, and the next clock is handed out meanwhile.  Whatever happens to a
 * contribution on its way, its tasks are run again and fill it: the shards wait.  Under
 * the law only (traits.c), where no round is abandoned. */
#include "sched/ahead.h"
#include "sched/round.h"
#include "sched/scheme.h"

bool
fal_goes_ahead(const struct fal_sched *s)
{
	/* Samples that are skipped are known when all is complete. */
	return s->ahead && s->is.ahead && !s->skips;
}

/* All of it is claimed, and reported where that was done ahead, or has come although
 * claims were lost again, and nothing of it is being verified; and those who have claimed
 * had its version to compute on. */
static bool
is_ready(const struct fal_sched *s, const struct fal_round *r)
{
	const bool all = r->ledger.claimed == r->ledger.tasks;
	return (all || r->complete) && r->ledger.due == 0 && r->unsure == 0 &&
	       s->published >= r->version;
}

/* In the order of rounds, as their updates are. */
int
fal_ahead(struct fal_sched *s, double now)
{
	struct fal_round *r = fal_goes_ahead(s) ? s->oldest : NULL;
	int err = FAL_OK;
	for (; r != NULL && err == FAL_OK && (r->armed || is_ready(s, r)); r = r->newer)
		if (!r->armed)
			err = fal_complete_clock(s, r, now);
	return err;
}

int
fal_sched_made(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || !r->armed)
		return FAL_OK;
	return fal_round_over(s, r, now) < 0 ? FAL_ENOMEM : fal_settle(s, now);
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
	while (r != NULL && r->armed && r->ledger.claimed == r->ledger.tasks)
		r = r->newer;
	return r;
}
