/* Signs of life, and what follows where there are none. */
#include "sched/due.h"
#include "sched/members.h"
#include "sched/queue.h"
#include "sched/scheme.h"
#include "sched/trial.h"

#include <math.h>

void
fal_sched_heard(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return;
	w->heard = now;
	if (!w->suspected)
		return;
	fal_trial_heard(s, w, now);
	fal_settle(s, now);
}

void
fal_sched_pong(struct fal_sched *s, double now, uint32_t id, double rtt, uint64_t steps)
{
	static const double rounding = 1e-6; /* of times that travel as whole ns */
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return;
	/* What is shorter is nearer the truth: the rest is waiting in somebody's queue.
	 * One that is long alone tells of a worker that stood still, not of its link. */
	const double longer = fmin(rtt, w->pong) - w->rtt;
	w->rtt = w->rtt > 0 ? fmin(rtt, w->rtt + 0.1 * longer) : rtt;
	w->pong = rtt;
	const double asked = now - rtt + rounding;
	if (fal_due_answer(s, w, asked, steps, now))
		fal_settle(s, now);
}

void
fal_sched_charge(struct fal_sched *s, uint32_t id, const char *why)
{
	struct fal_worker *w = fal_find(s, id);
	struct fal_act act = { .kind = FAL_ACT_CHARGE, .worker = id, .why = why };
	fal_emit(s, act);
	act.kind = FAL_ACT_EVICT;
	if (w != NULL && ++w->charges >= 2)
		fal_emit(s, act);
}

/* When the scheme has something to do, though nothing happens. */
static double
until(const struct fal_sched *s)
{
	return s->scheme->until != NULL ? s->scheme->until(s) : INFINITY;
}

/* Looks at all workers that owe something and are late. */
static void
review_late(struct fal_sched *s, double now)
{
	while (fal_heap_least(&s->due) <= now) {
		struct fal_worker *w = &s->worker[fal_heap_top(&s->due)];
		fal_due_review(s, w, now);
		w->looked = now;
		fal_refresh(s, w, now);
	}
}

void
fal_sched_tick(struct fal_sched *s, double now)
{
	bool any = until(s) <= now;
	/* Whoever is settled with may be late by what is known only now. */
	while (any || fal_heap_least(&s->due) <= now) {
		any = false;
		review_late(s, now);
		fal_settle(s, now);
	}
}

double
fal_sched_wake(const struct fal_sched *s)
{
	return fmin(until(s), fal_heap_least(&s->due));
}
