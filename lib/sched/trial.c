/* Who has not kept a deadline, and how it becomes a full member again: by work that
 * arrives.  It is tried with one task, which anybody else may take; one trial at a time,
 * and at most one for each clock.
 *
 * Somebody works at any time.  When nobody is left, or nobody who may decide of a doubt,
 * all are back, with twice the time: then it was not they who were slow. */
#include "sched/trial.h"

#include "sched/doubt.h"
#include "sched/members.h"
#include "sched/plan.h"
#include "sched/queue.h"
#include "sched/skip.h"
#include "sched/speed.h"

#include <math.h>

/* So many clocks at most until a worker is tried again. */
static const uint32_t rarest = 16;

static const char came[] = "its work came", alone[] = "nobody else is left";

/* Who is on trial, or NULL. */
static struct fal_worker *
on_trial(const struct fal_sched *s)
{
	struct fal_worker *w = s->trial != 0 ? fal_find(s, s->trial) : NULL;
	return w != NULL && w->trial ? w : NULL;
}

bool
fal_trial_others(const struct fal_sched *s, const struct fal_worker *w)
{
	bool waits = false; /* for its word */
	for (uint32_t i = 0; i < s->workers && s->barred > 0; i++)
		waits |= s->worker[i].waits && &s->worker[i] != w;
	return waits || s->active > fal_worker_active(w) || s->suspects.n > 0;
}

int
fal_trial_tell(struct fal_sched *s, struct fal_worker *w, struct fal_act act, double now)
{
	if (w->told)
		return FAL_OK;
	act.kind = FAL_ACT_SUSPECT;
	act.worker = w->id;
	w->told = true;
	w->told_at = now;
	return fal_emit(s, act) != NULL ? FAL_OK : FAL_ENOMEM;
}

/* It is a full member again. */
static int
tell_back(struct fal_sched *s, struct fal_worker *w, const char *why, double now)
{
	const struct fal_act act = { .kind = FAL_ACT_BACK,
				     .worker = w->id,
				     .why = why,
				     .seconds = now - w->told_at };
	if (!w->told)
		return FAL_OK;
	w->told = false;
	return fal_emit(s, act) != NULL ? FAL_OK : FAL_ENOMEM;
}

int
fal_trial_ask(struct fal_sched *s, double now)
{
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		const struct fal_act ping = { .kind = FAL_ACT_PING, .worker = w->id };
		const bool speaks = fal_heap_has(&s->suspects, i);
		if (w->gone || !w->suspected || speaks || w->asked >= w->suspected_at)
			continue;
		w->asked = now;
		if (fal_emit(s, ping) == NULL)
			return FAL_ENOMEM;
	}
	return FAL_OK;
}

/* Nobody works, or is waited for. */
static bool
is_deserted(const struct fal_sched *s)
{
	return s->active == 0 && !fal_skip_waits(s);
}

int
fal_trial_recall(struct fal_sched *s, double now)
{
	uint32_t slot;
	if (fal_trial_ask(s, now) < 0)
		return FAL_ENOMEM;
	if (s->suspects.n == 0)
		return FAL_OK;
	s->patience *= 2;
	while ((slot = fal_heap_top(&s->suspects)) != FAL_NONE) {
		struct fal_worker *w = &s->worker[slot];
		w->suspected = false;
		w->base = now;
		if (fal_recount(s, w, now) < 0 || tell_back(s, w, alone, now) < 0)
			return FAL_ENOMEM;
	}
	return FAL_OK;
}

int
fal_suspect(struct fal_sched *s, struct fal_worker *w, double now)
{
	if (w->trial && (1u << w->failed) < rarest)
		w->failed++;
	w->trial = w->proved = false;
	w->suspected = true;
	w->suspected_at = now;
	w->again = s->pool.over + (1u << w->failed);
	if (fal_strip(s, w, true) < 0 || fal_recount(s, w, now) < 0)
		return FAL_ENOMEM;
	return is_deserted(s) ? fal_trial_recall(s, now) : FAL_OK;
}

int
fal_trial_heard(struct fal_sched *s, struct fal_worker *w, double now)
{
	fal_refresh(s, w, now);
	return is_deserted(s) ? fal_trial_recall(s, now) : FAL_OK;
}

int
fal_trial_kept(struct fal_sched *s, struct fal_worker *w, double now)
{
	s->patience = 1;
	w->kept = now;
	w->proved = w->suspected;
	w->trial = false;
	w->failed = 0;
	w->again = 0;
	fal_refresh(s, w, now);
	return w->proved ? FAL_OK : tell_back(s, w, came, now);
}

/* Those whose work came, late as it was, are back. */
static int
take_back(struct fal_sched *s, double now)
{
	uint32_t slot;
	while ((slot = fal_heap_top(&s->suspects)) != FAL_NONE &&
	       s->worker[slot].proved) {
		struct fal_worker *w = &s->worker[slot];
		w->suspected = w->proved = false;
		if (fal_recount(s, w, now) < 0 || tell_back(s, w, came, now) < 0)
			return FAL_ENOMEM;
	}
	return FAL_OK;
}

bool
fal_trial_of(const struct fal_sched *s, const struct fal_team *t)
{
	const struct fal_worker *w = on_trial(s);
	return w != NULL && w->team == t && t->members == 1 && !s->is.shared;
}

/* Ends the trial that has lost its object. */
static int
end(struct fal_sched *s, struct fal_worker *w, double now)
{
	if (!fal_worker_active(w) || s->active == 1) {
		const bool only = fal_worker_active(w);
		w->trial = false;
		fal_refresh(s, w, now);
		return tell_back(s, w, only ? alone : "it is given no work", now);
	}
	/* Somebody else was sooner. */
	bool lost = w->tried && w->queued == 0 && w->owed == 0 && w->evals == 0;
	return lost ? fal_suspect(s, w, now) : FAL_OK;
}

int
fal_trial_next(struct fal_sched *s, double now)
{
	struct fal_worker *w = on_trial(s);
	if ((w != NULL && end(s, w, now) < 0) || take_back(s, now) < 0)
		return FAL_ENOMEM;
	if (is_deserted(s) && fal_trial_recall(s, now) < 0)
		return FAL_ENOMEM;
	if (on_trial(s) != NULL || s->active == 0 || s->pool.over < s->trial_from ||
	    fal_heap_least(&s->suspects) > (double)s->pool.over)
		return FAL_OK;
	w = &s->worker[fal_heap_top(&s->suspects)];
	w->suspected = w->tried = false;
	w->trial = true;
	w->base = now;
	s->trial = w->id;
	s->trial_from = s->pool.over + 1;
	return fal_recount(s, w, now);
}

struct fal_worker *
fal_trial_untried(const struct fal_sched *s)
{
	struct fal_worker *w = on_trial(s);
	return w != NULL && w->queued == 0 && w->owed == 0 && !w->tried ? w : NULL;
}

/* Who would wait for the task on trial: somebody idle who may do it; or NULL. */
static struct fal_worker *
waits_for(struct fal_sched *s, const struct fal_node *n)
{
	uint32_t slot = fal_heap_top(&s->idle);
	struct fal_worker *r = slot != FAL_NONE ? &s->worker[slot] : NULL;
	if (r == NULL || s->is.own)
		return r;
	if (!fal_doubt_may(s, r, n->round, n->task)) /* its word would say nothing */
		r = fal_doubt_draw(s, n->round, n->task);
	const bool idle = r != NULL && fal_heap_has(&s->idle, fal_slot(s, r));
	return idle && fal_works_for(s, r, n->round) ? r : NULL;
}

int
fal_trial_relieve(struct fal_sched *s, double now)
{
	struct fal_worker *w = on_trial(s), *r;
	const struct fal_load none = { 0 };
	if (w != NULL && w->evals > 0 && s->idle.n > 0)
		return now - w->base > fal_late_s(s, w) ? fal_suspect(s, w, now) : FAL_OK;
	if (w == NULL || w->head == NULL || (r = waits_for(s, w->head)) == NULL)
		return FAL_OK;
	if (s->is.own)
		return now - w->began > fal_late_s(s, w) ? fal_suspect(s, w, now)
							 : FAL_OK;
	const struct fal_node *n = w->head;
	double done = fal_project(s, r, none, fal_load_of(s, n->round, n->task), now);
	if (s->policy.no_clones || fal_uncloned(w) == NULL ||
	    fal_project(s, w, fal_load_queued(w), none, now) <= done + r->rtt)
		return FAL_OK;
	return fal_clone_head(s, w, r, now);
}
