/* Work of another scheduler's (design.md, D50): rounds begin when their tasks are
 * brought, and end when their sum is given; versions are told.  Which clocks are over
 * nobody says: as far as can be seen here, those before what was brought.  How a round is
 * shared, and what becomes of whoever dies or is late, is as ever. */
#include "sched/brought.h"

#include "sched/queue.h"
#include "sched/retry.h"
#include "sched/round.h"
#include "sched/team.h"

#include <assert.h>

void
fal_brought_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act give = { .fate = FAL_FATE_GIVE };
	fal_round_end(s, r, give, now);
	fal_account_all(s, r);
}

/* Clocks may come back, of which somebody else had tasks. */
static void
follow_clocks(struct fal_sched *s)
{
	uint64_t first = s->newest->clock;
	for (const struct fal_round *r = s->oldest; r != NULL; r = r->newer)
		first = r->clock < first ? r->clock : first;
	fal_pool_skip(&s->pool, first);
}

uint64_t
fal_sched_bring(struct fal_sched *s, double now, const struct fal_bring *b)
{
	const struct fal_run_of run = { b->clock, b->task, 1 };
	assert(s->brought && b->version <= s->version);
	fal_team_bring(s, &run, b->version, now);
	const uint64_t round = s->newest->id;
	follow_clocks(s);
	fal_settle(s, now);
	return round;
}

void
fal_sched_unwanted(struct fal_sched *s, double now, uint64_t round)
{
	const struct fal_act end = { .fate = FAL_FATE_DROP,
				     .why = "it is not wanted any more" };
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL)
		return;
	fal_retry_forget(s, r); /* if they are brought again, it is another story */
	fal_round_end(s, r, end, now);
	fal_settle(s, now);
}

bool
fal_sched_brought(const struct fal_sched *s, uint64_t *round)
{
	if (s->oldest != NULL)
		*round = s->oldest->id;
	return s->oldest != NULL;
}

void
fal_sched_newer(struct fal_sched *s, double now, uint64_t version)
{
	const struct fal_act model = { .kind = FAL_ACT_MODEL };
	assert(s->brought && version >= s->version);
	s->version = version;
	for (uint32_t i = 0; i < s->workers; i++)
		if (!s->worker[i].gone)
			s->worker[i].version = version;
	fal_sched_published(s, now, version);
	fal_emit(s, model);
}
