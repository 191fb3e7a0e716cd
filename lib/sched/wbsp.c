/* wbsp: workers never wait (Yang, Hu, Liu, Jin, Yeung, You, Parallel Computing 2024;
 * schemes.md, wbsp).  A worker pushes the change of each local step and goes on with its
 * own weights; changes are collected, and a version is published when every worker has
 * pushed since the last one (publish=slowest: when the slowest has), so that all pull
 * consistent models.
 *
 * overlap=yes: the next local step begins while the last one is pushed, and what a
 * published version lacks of a worker's own steps is kept.  At most `cap` local steps lie
 * between two pulls.
 */
#include "sched/state.h"

static uint32_t
ahead(const struct fal_sched *s)
{
	return s->policy.rule.overlap ? 2 : 1;
}

static bool
may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	return !t->based || t->pull || t->local < s->policy.rule.cap;
}

static void
begin(struct fal_sched *s, struct fal_team *t, struct fal_round *r)
{
	r->steps = s->policy.rule.steps;
	if (t->based && !t->pull) {
		r->base = FAL_START_LOCAL;
		r->version = t->version;
		t->local++;
		return;
	}
	if (t->based && s->policy.rule.overlap) {
		r->base = FAL_START_REBASE;
		r->since = t->published;
	}
	t->based = true;
	t->pull = false;
	t->local = 1;
}

static bool
must_push(const struct fal_team *t)
{
	return t != NULL && t->members > 0 && !t->pushed;
}

/* Has whoever is waited for pushed since the last publication?  O(W) for all calls
 * between two. */
static bool
due(struct fal_sched *s)
{
	uint32_t slowest = fal_heap_top(&s->slow);
	while (s->awaited < s->teams && !must_push(s->team[s->awaited]))
		s->awaited++;
	return s->awaited == s->teams ||
	       (slowest != FAL_NONE && !must_push(s->team[slowest]));
}

static int
publish(struct fal_sched *s)
{
	for (uint32_t i = 0; i < s->teams; i++) {
		struct fal_team *t = s->team[i];
		if (t == NULL)
			continue;
		t->pull = true;
		t->pushed = false;
		t->published = t->included;
	}
	s->awaited = 0;
	fal_teams_wake(s);
	return fal_step(s, (double)s->merged_samples);
}

static int
publish_if_due(struct fal_sched *s)
{
	return s->merged > 0 && due(s) ? publish(s) : FAL_OK;
}

static int
changed(struct fal_sched *s, double now)
{
	(void)now;
	s->awaited = 0;
	return publish_if_due(s);
}

/* Whoever has done its `cap` of local steps may go on from here, too. */
static int
flush(struct fal_sched *s)
{
	return s->rounds == 0 ? publish(s) : FAL_OK;
}

static int
complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_ADD,
				     .weight = 1.0 / s->active,
				     .among = s->active };
	struct fal_worker *w = fal_find(s, r->owner);
	struct fal_team *t = r->team;
	fal_stale(s, r, t->clock - fal_slowest(s, NULL));
	if (w == NULL || fal_round_end(s, r, end, now) < 0 || fal_account(s, w, r) < 0)
		return FAL_ENOMEM;
	t->pushed = true;
	return publish_if_due(s);
}

const struct fal_scheme fal_scheme_wbsp = { .ahead = ahead,
					    .may_begin = may_begin,
					    .begin = begin,
					    .complete = complete,
					    .flush = flush,
					    .changed = changed,
					    .cost = fal_cost_equal };
