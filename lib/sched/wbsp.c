/* wbsp: workers never wait (Yang, Hu, Liu, Jin, Yeung, You, Parallel Computing 2024;
 * SYSTEMS section 7).  A worker pushes the change of each local step and goes on with its
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

/* Has whoever is waited for pushed since the last publication? */
static bool
due(const struct fal_sched *s)
{
	const struct fal_team *slowest = NULL;
	double least = 0;
	bool all = true;
	for (uint32_t i = 0; i < s->teams; i++) {
		const struct fal_team *t = s->team[i];
		const struct fal_worker *w = fal_find(s, t->id);
		if (w == NULL || t->members == 0)
			continue;
		all = all && t->pushed;
		double rate = fal_rate(s, w, w->lanes);
		if (slowest == NULL || rate < least) {
			slowest = t;
			least = rate;
		}
	}
	return all || (s->policy.rule.slowest && slowest != NULL && slowest->pushed);
}

static int
publish(struct fal_sched *s)
{
	for (uint32_t i = 0; i < s->teams; i++) {
		struct fal_team *t = s->team[i];
		t->pull = true;
		t->pushed = false;
		t->published = t->included;
	}
	return fal_step(s, (double)s->merged_samples);
}

static int
publish_if_due(struct fal_sched *s, double now)
{
	(void)now;
	return s->merged > 0 && due(s) ? publish(s) : FAL_OK;
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
	const struct fal_act end = { .fate = FAL_FATE_ADD, .weight = 1.0 / s->active };
	struct fal_worker *w = fal_find(s, r->owner);
	struct fal_team *t = r->team;
	fal_stale(s, r, t->clock - fal_slowest(s, NULL));
	if (w == NULL || fal_round_end(s, r, end, now) < 0 || fal_account(s, w, r) < 0)
		return FAL_ENOMEM;
	t->pushed = true;
	return publish_if_due(s, now);
}

const struct fal_scheme fal_scheme_wbsp = { .own = true,
					    .delta = true,
					    .ahead = ahead,
					    .may_begin = may_begin,
					    .begin = begin,
					    .complete = complete,
					    .flush = flush,
					    .changed = publish_if_due,
					    .cost = fal_cost_equal };
