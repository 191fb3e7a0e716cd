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
#include "sched/scheme.h"

/* s->own_heap[0], publish=slowest: least rate first, as refreshed. */
struct wbsp {
	uint32_t awaited; /* no team before this place has yet to push */
};

/* Of a team. */
struct steps {
	uint64_t published; /* its last round that is in a published version */
	bool based;         /* has weights of its own to go on from */
	bool pull;          /* a version was published since */
	bool pushed;        /* since the last publication */
	uint32_t local;     /* rounds begun since it pulled */
};

static uint32_t
ahead(const struct fal_sched *s)
{
	return s->is.overlaps ? 2 : 1;
}

static bool
may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	const struct steps *own = t->own;
	return !own->based || own->pull || own->local < s->policy.rule.cap;
}

static void
begin(struct fal_sched *s, struct fal_team *t, struct fal_round *r)
{
	struct steps *own = t->own;
	r->steps = s->policy.rule.steps;
	if (own->based && !own->pull) {
		r->base = FAL_START_LOCAL;
		r->version = t->version;
		own->local++;
		return;
	}
	if (own->based && s->policy.rule.overlap) {
		r->base = FAL_START_REBASE;
		r->since = own->published;
	}
	own->based = true;
	own->pull = false;
	own->local = 1;
}

static void
lost(struct fal_team *t)
{
	struct steps *own = t->own;
	own->based = false;
}

static bool
must_push(const struct fal_team *t)
{
	const struct steps *own = t != NULL ? t->own : NULL;
	return own != NULL && t->members > 0 && !own->pushed;
}

/* Has whoever is waited for pushed since the last publication?  O(W) for all calls
 * between two. */
static bool
due(struct fal_sched *s)
{
	struct wbsp *is = s->own;
	uint32_t slowest = fal_heap_top(&s->own_heap[0]);
	while (is->awaited < s->teams && !must_push(s->team[is->awaited]))
		is->awaited++;
	return is->awaited == s->teams ||
	       (slowest != FAL_NONE && !must_push(s->team[slowest]));
}

static void
publish(struct fal_sched *s)
{
	struct wbsp *is = s->own;
	for (uint32_t i = 0; i < s->teams; i++) {
		struct steps *own = s->team[i] != NULL ? s->team[i]->own : NULL;
		if (own == NULL)
			continue;
		own->pull = true;
		own->pushed = false;
		own->published = fal_team_worker(s, s->team[i])->included;
	}
	is->awaited = 0;
	fal_teams_wake(s);
	fal_pending_apply(s, (double)s->merged_samples);
}

static void
publish_if_due(struct fal_sched *s)
{
	if (s->merged > 0 && due(s))
		publish(s);
}

static void
changed(struct fal_sched *s, double now)
{
	struct wbsp *is = s->own;
	(void)now;
	is->awaited = 0;
	publish_if_due(s);
}

/* Whoever has done its `cap` of local steps may go on from here, too. */
static void
flush(struct fal_sched *s, double now)
{
	(void)now;
	if (s->rounds == 0)
		publish(s);
}

static void
complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_ADD,
				     .weight = 1.0 / s->active,
				     .among = s->active };
	struct steps *own = r->team->own;
	fal_round_end_own(s, r, end, now);
	own->pushed = true;
	publish_if_due(s);
}

static void
refreshed(struct fal_sched *s, const struct fal_worker *w)
{
	const uint32_t slot = fal_worker_slot(s, w);
	if (s->policy.rule.slowest && fal_worker_active(w))
		fal_heap_set(&s->own_heap[0], slot, fal_worker_rate(s, w, w->lanes));
	else
		fal_heap_remove(&s->own_heap[0], slot);
}

const struct fal_scheme fal_scheme_wbsp = { .own = sizeof(struct wbsp),
					    .team_own = sizeof(struct steps),
					    .ahead = ahead,
					    .may_begin = may_begin,
					    .begin = begin,
					    .complete = complete,
					    .flush = flush,
					    .lost = lost,
					    .changed = changed,
					    .refreshed = refreshed };
