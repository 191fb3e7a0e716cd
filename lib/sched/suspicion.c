/* Signs of life, and what follows where there are none. */
#include "sched/due.h"
#include "sched/members.h"
#include "sched/queue.h"
#include "sched/scheme.h"
#include "sched/trial.h"

#include <math.h>

int
fal_sched_heard(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return FAL_OK;
	w->heard = now;
	if (!w->suspected)
		return FAL_OK;
	return fal_trial_heard(s, w, now) < 0 ? FAL_ENOMEM : fal_settle(s, now);
}

int
fal_sched_pong(struct fal_sched *s, double now, uint32_t id, double rtt, uint64_t steps)
{
	static const double rounding = 1e-6; /* of times that travel as whole ns */
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return FAL_OK;
	/* What is shorter is nearer the truth: the rest is waiting in somebody's queue.
	 * One that is long alone tells of a worker that stood still, not of its link. */
	const double longer = fmin(rtt, w->pong) - w->rtt;
	w->rtt = w->rtt > 0 ? fmin(rtt, w->rtt + 0.1 * longer) : rtt;
	w->pong = rtt;
	const double asked = now - rtt + rounding;
	int err = fal_due_answer(s, w, asked, steps, now);
	return err > 0 ? fal_settle(s, now) : err;
}

int
fal_sched_charge(struct fal_sched *s, double now, uint32_t id, const char *why)
{
	(void)now;
	struct fal_worker *w = fal_find(s, id);
	struct fal_act act = { .kind = FAL_ACT_CHARGE, .worker = id, .why = why };
	if (fal_emit(s, act) == NULL)
		return FAL_ENOMEM;
	act.kind = FAL_ACT_EVICT;
	return w == NULL || ++w->charges < 2 || fal_emit(s, act) != NULL ? FAL_OK
									 : FAL_ENOMEM;
}

/* Looks at a worker that owes something and is late. */
static int
review(struct fal_sched *s, struct fal_worker *w, double now)
{
	int err = fal_due_review(s, w, now);
	w->looked = now;
	fal_refresh(s, w, now);
	return err < 0 ? err : FAL_OK;
}

/* When the scheme has something to do, though nothing happens. */
static double
until(const struct fal_sched *s)
{
	return s->scheme->until != NULL ? s->scheme->until(s) : INFINITY;
}

/* Looks at all that are late. */
static int
review_late(struct fal_sched *s, double now)
{
	int err = FAL_OK;
	while (err == FAL_OK && fal_heap_least(&s->due) <= now)
		err = review(s, &s->worker[fal_heap_top(&s->due)], now);
	return err;
}

int
fal_sched_tick(struct fal_sched *s, double now)
{
	bool any = until(s) <= now;
	int err = FAL_OK;
	/* Whoever is settled with may be late by what is known only now. */
	while (err == FAL_OK && (any || fal_heap_least(&s->due) <= now)) {
		any = false;
		err = review_late(s, now);
		if (err == FAL_OK)
			err = fal_settle(s, now);
	}
	return err;
}

double
fal_sched_wake(const struct fal_sched *s)
{
	return fmin(until(s), fal_heap_least(&s->due));
}
