/* Who has not kept a deadline, and how it becomes a full member again: by work that
 * arrives.  It is tried with one task, which nobody else may take meanwhile; one trial at
 * a time, and none before the last one that failed has cost but FAL_COST_PART of the
 * time.
 *
 * What others have waited for a worker is its key's to pay, whose sessions come and go: a
 * key that owes more than it may gets no work before it has paid what is beyond that,
 * FAL_COST_PART of a second in each.
 *
 * Somebody works at any time.  When nobody is left, or nobody of another key for a retry,
 * all are back, with twice the time: then it was not they who were slow. */
#include "sched/trial.h"

#include "base/mem.h"
#include "sched/members.h"
#include "sched/queue.h"

#include <math.h>

/* So often the time of a trial is doubled: what failed for want of it may succeed. */
enum { DOUBLED = 4 };

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

void
fal_trial_tell(struct fal_sched *s, struct fal_worker *w, struct fal_act act, double now)
{
	if (w->told)
		return;
	act.kind = FAL_ACT_SUSPECT;
	act.worker = w->id;
	w->told = true;
	w->told_at = now;
	fal_emit(s, act);
}

/* It is a full member again. */
static void
tell_back(struct fal_sched *s, struct fal_worker *w, const char *why, double now)
{
	const struct fal_act act = { .kind = FAL_ACT_BACK,
				     .worker = w->id,
				     .why = why,
				     .seconds = now - w->told_at };
	if (!w->told)
		return;
	w->told = false;
	fal_emit(s, act);
}

void
fal_trial_ask(struct fal_sched *s, double now)
{
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		const struct fal_act ping = { .kind = FAL_ACT_PING, .worker = w->id };
		const bool speaks = fal_heap_has(&s->suspects, i);
		if (w->gone || !w->suspected || speaks || w->asked >= w->suspected_at)
			continue;
		w->asked = now;
		fal_emit(s, ping);
	}
}

/* Nobody works, or is waited for. */
static bool
is_deserted(const struct fal_sched *s)
{
	return s->active == 0 && s->barred == 0;
}

void
fal_trial_recall(struct fal_sched *s, double now)
{
	uint32_t slot;
	fal_trial_ask(s, now);
	if (s->suspects.n == 0)
		return;
	s->patience *= 2;
	while ((slot = fal_heap_top(&s->suspects)) != FAL_NONE) {
		struct fal_worker *w = &s->worker[slot];
		w->suspected = false;
		w->base = now;
		fal_recount(s, w, now);
		tell_back(s, w, alone, now);
	}
}

/* What the key has cost others, which it pays as time goes by; NULL: nothing. */
static struct fal_key_debt *
cost_of(const struct fal_sched *s, uint32_t key, double now)
{
	for (size_t i = 0; i < s->costs; i++) {
		struct fal_key_debt *c = &s->cost[i];
		if (c->key != key)
			continue;
		c->lost = fmax(0, c->lost - FAL_COST_PART * (now - c->at));
		c->at = now;
		c->told = c->told && c->lost > 0;
		return c;
	}
	return NULL;
}

static bool
has_other_keys(const struct fal_sched *s, uint32_t key)
{
	bool any = false;
	for (uint32_t i = 0; i < s->workers && !any; i++)
		any = !s->worker[i].gone && s->worker[i].key != key;
	return any;
}

/* When the key has paid enough: of long tasks one that is late costs more.  Where all
 * have one key that says nothing of any of them. */
static double
paid_at(const struct fal_sched *s, const struct fal_key_debt *c, double now)
{
	if (!has_other_keys(s, c->key))
		return now;
	const double typical = fmax(s->typical[FAL_TURN_TASK], s->typical[FAL_TURN_PUSH]);
	const double free_s = fmax(FAL_COST_FREE_S, FAL_COST_FREE_TURNS * typical);
	return now + fmax(0, c->lost - free_s) / FAL_COST_PART;
}

double
fal_trial_barred(const struct fal_sched *s, uint32_t key, double now)
{
	const struct fal_key_debt *c = cost_of(s, key, now);
	return c != NULL ? paid_at(s, c, now) : now;
}

void
fal_trial_charge(struct fal_sched *s, struct fal_worker *w, double since, double now)
{
	struct fal_key_debt *c = cost_of(s, w->key, now);
	if (c == NULL) {
		FAL_XGROW(s->cost, s->cost_cap, s->costs + 1);
		c = &s->cost[s->costs++];
		*c = (struct fal_key_debt){ .key = w->key, .at = now };
	}
	c->lost += fmax(0, now - fmax(since, fmax(w->spared, c->until)));
	c->until = now;
	const double again = paid_at(s, c, now);
	const struct fal_act act = { .kind = FAL_ACT_BARRED,
				     .worker = w->id,
				     .seconds = again - now };
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *of = &s->worker[i];
		if (of->gone || of->key != w->key)
			continue;
		of->again = again;
		fal_refresh(s, of, now);
	}
	if (c->told || act.seconds < 1)
		return;
	c->told = true;
	fal_emit(s, act);
}

void
fal_suspect(struct fal_sched *s, struct fal_worker *w, double since, double now)
{
	if (w->trial) {
		w->failed += w->failed < DOUBLED;
		s->trial_from = now + (now - since) / FAL_COST_PART;
	}
	w->trial = w->proved = false;
	w->suspected = true;
	w->suspected_at = now;
	s->trial_clock = s->pool.over + 1;
	fal_trial_charge(s, w, since, now);
	fal_strip(s, w, true, now);
	fal_recount(s, w, now);
	if (is_deserted(s))
		fal_trial_recall(s, now);
}

void
fal_trial_heard(struct fal_sched *s, struct fal_worker *w, double now)
{
	fal_refresh(s, w, now);
	if (is_deserted(s))
		fal_trial_recall(s, now);
}

void
fal_trial_kept(struct fal_sched *s, struct fal_worker *w, double now)
{
	s->patience = 1;
	w->kept = now;
	w->proved = w->suspected && w->again <= now;
	w->trial = false;
	w->failed = 0;
	fal_refresh(s, w, now);
	if (!w->suspected)
		tell_back(s, w, came, now);
}

/* Those whose work came, late as it was, are back. */
static void
take_back(struct fal_sched *s, double now)
{
	uint32_t slot;
	while ((slot = fal_heap_top(&s->suspects)) != FAL_NONE &&
	       s->worker[slot].proved) {
		struct fal_worker *w = &s->worker[slot];
		w->suspected = w->proved = false;
		fal_recount(s, w, now);
		tell_back(s, w, came, now);
	}
}

bool
fal_trial_of(const struct fal_sched *s, const struct fal_team *t)
{
	const struct fal_worker *w = on_trial(s);
	return w != NULL && w->team == t && t->members == 1 && !s->is.shared;
}

/* Ends the trial that has lost its object. */
static void
end(struct fal_sched *s, struct fal_worker *w, double now)
{
	if (!fal_worker_active(w) || s->active == 1) {
		const bool only = fal_worker_active(w);
		w->trial = false;
		fal_refresh(s, w, now);
		tell_back(s, w, only ? alone : "it is given no work", now);
		return;
	}
	/* The round was over without it. */
	bool lost = w->tried && w->queued == 0 && w->owed == 0 && w->evals == 0;
	if (lost)
		fal_suspect(s, w, now, now);
}

void
fal_trial_next(struct fal_sched *s, double now)
{
	struct fal_worker *w = on_trial(s);
	if (w != NULL)
		end(s, w, now);
	take_back(s, now);
	if (is_deserted(s))
		fal_trial_recall(s, now);
	if (on_trial(s) != NULL || s->active == 0 || now < s->trial_from ||
	    s->pool.over < s->trial_clock || fal_heap_least(&s->suspects) > now)
		return;
	w = &s->worker[fal_heap_top(&s->suspects)];
	w->suspected = w->tried = false;
	w->trial = true;
	w->base = now;
	s->trial = w->id;
	s->trial_clock = s->pool.over + 1;
	fal_recount(s, w, now);
}

struct fal_worker *
fal_trial_untried(const struct fal_sched *s)
{
	struct fal_worker *w = on_trial(s);
	return w != NULL && w->queued == 0 && w->owed == 0 && !w->tried ? w : NULL;
}
