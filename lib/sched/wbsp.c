/* wbsp: versions are made together, but workers never wait (Yang, Hu, Liu, Jin, Yeung,
 * You, Parallel Computing 2024; schemes.md, wbsp).  A worker pushes the change of each
 * local step and goes on with its own weights; the changes are collected.  A version is
 * published when every worker has pushed since the last version (publish=slowest: when
 * the slowest worker has), so that all workers pull the same model.
 *
 * overlap=yes: the next local step begins while the worker pushes the last one, and a
 * worker keeps those of its steps that a published version lacks.  At most `cap` local
 * steps lie between two pulls.
 */
#include "sched/scheme.h"

/* s->scheme_heap[0], for publish=slowest: workers, the slowest first. */
struct wbsp {
	uint32_t awaited; /* every team before this index has pushed */
};

/* The state of a team. */
struct wbsp_team {
	uint64_t published; /* its last round that a published version contains */
	bool has_weights;   /* the worker has weights of its own to continue from */
	bool must_pull;     /* a version was published since its last pull */
	bool has_pushed;    /* since the last publication */
	uint32_t local;     /* rounds begun since its last pull */
};

static bool
wbsp_may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	const struct wbsp_team *own = t->state;
	return !own->has_weights || own->must_pull || own->local < s->policy.rule.cap;
}

static void
wbsp_begin_round(struct fal_sched *s, struct fal_team *t, struct fal_round *r)
{
	struct wbsp_team *own = t->state;
	r->info.steps = s->policy.rule.steps;
	if (own->has_weights && !own->must_pull) {
		r->info.base = FAL_START_LOCAL;
		r->info.version = t->version;
		own->local++;
		return;
	}
	if (own->has_weights && s->policy.rule.overlap) {
		r->info.base = FAL_START_REBASE;
		r->info.since = own->published;
	}
	own->has_weights = true;
	own->must_pull = false;
	own->local = 1;
}

static void
wbsp_round_lost(struct fal_team *t)
{
	struct wbsp_team *own = t->state;
	own->has_weights = false;
}

static bool
wbsp_must_push(const struct fal_team *t)
{
	const struct wbsp_team *own = t != NULL ? t->state : NULL;
	return own != NULL && t->members > 0 && !own->has_pushed;
}

static void
wbsp_publish(struct fal_sched *s)
{
	struct wbsp *state = s->scheme_state;
	for (uint32_t i = 0; i < s->teams; i++) {
		struct wbsp_team *own = s->team[i] != NULL ? s->team[i]->state : NULL;
		if (own == NULL)
			continue;
		own->must_pull = true;
		own->has_pushed = false;
		own->published = fal_team_worker(s, s->team[i])->collected_round;
	}
	state->awaited = 0;
	fal_teams_wake(s);
	fal_pending_order_step(s, (double)s->pending.samples);
}

/* Publishes if the awaited workers have pushed since the last publication.  O(W) for all
 * calls between two publications. */
static void
wbsp_publish_if_due(struct fal_sched *s)
{
	struct wbsp *state = s->scheme_state;
	const uint32_t slowest = fal_heap_top(&s->scheme_heap[0]);
	if (s->pending.rounds == 0)
		return;
	while (state->awaited < s->teams && !wbsp_must_push(s->team[state->awaited]))
		state->awaited++;
	if (state->awaited == s->teams ||
	    (slowest != FAL_NONE && !wbsp_must_push(s->team[slowest])))
		wbsp_publish(s);
}

static void
wbsp_teams_changed(struct fal_sched *s, double now)
{
	struct wbsp *state = s->scheme_state;
	(void)now;
	state->awaited = 0;
	wbsp_publish_if_due(s);
}

/* A flush also lets workers continue that have done `cap` local steps. */
static void
wbsp_flush(struct fal_sched *s, double now)
{
	(void)now;
	if (s->rounds == 0)
		wbsp_publish(s);
}

static void
wbsp_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_ADD,
				     .weight = 1.0 / s->active,
				     .among = s->active };
	struct wbsp_team *own = r->team->state;
	fal_round_end_own(s, r, end, now);
	own->has_pushed = true;
	wbsp_publish_if_due(s);
}

static void
wbsp_worker_changed(struct fal_sched *s, const struct fal_worker *w)
{
	const uint32_t slot = fal_worker_slot(s, w);
	if (s->policy.rule.slowest && fal_worker_active(w))
		fal_heap_set(&s->scheme_heap[0], slot, fal_worker_rate(s, w, w->lanes));
	else
		fal_heap_remove(&s->scheme_heap[0], slot);
}

const struct fal_scheme fal_scheme_wbsp = {
	.state_bytes = sizeof(struct wbsp),
	.team_state_bytes = sizeof(struct wbsp_team),
	.may_begin = wbsp_may_begin,
	.begin_round = wbsp_begin_round,
	.round_complete = wbsp_round_complete,
	.flush = wbsp_flush,
	.round_lost = wbsp_round_lost,
	.teams_changed = wbsp_teams_changed,
	.worker_changed = wbsp_worker_changed,
};
