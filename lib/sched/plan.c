/* Who gets a round's free tasks: one at a time to whom they cost least, then in ranges.
 */
#include "sched/plan.h"

#include "sched/queue.h"
#include "sched/retry.h"
#include "sched/round.h"
#include "sched/scheme.h"
#include "sched/team.h"
#include "sched/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

static const uint32_t most_retries = 4; /* that double what a worker stands by */

bool
fal_works_for(const struct fal_sched *s, const struct fal_worker *w,
	      const struct fal_round *r)
{
	return fal_worker_active(w) && w->team == r->team &&
	       (!s->is.groups || w->version == r->version);
}

static void
hand_out(struct fal_sched *s, struct fal_round *r, struct fal_worker *w, uint32_t task,
	 double now)
{
	bool *granted = &r->granted[task - r->ledger.first];
	enum fal_entry_kind kind = *granted ? FAL_ENTRY_REGRANT : FAL_ENTRY_GRANT;
	if (kind == FAL_ENTRY_GRANT)
		w->work.share++;
	w->tried = true;
	*granted = true;
	fal_ledger_log(&r->ledger, kind, w->id, 0, task);
	fal_give(s, w, r, task, now);
}

/* What it costs to plan a task of so many samples more for `w`. */
static double
price(const struct fal_sched *s, const struct fal_worker *w, uint32_t samples, double now)
{
	struct fal_load more = fal_load_full(s, w->plan);
	more.tasks++;
	more.samples += samples;
	return s->scheme->cost(s, w, more, now);
}

static void
set_price(struct fal_sched *s, uint32_t slot, double now)
{
	fal_heap_set(&s->planner, slot, price(s, &s->worker[slot], s->full, now));
}

/* Whom a short task costs least, of those in the heap, where full ones are compared. */
static uint32_t
cheapest_short(struct fal_sched *s, uint32_t samples, double now)
{
	uint32_t best = FAL_NONE;
	double least = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		if (!fal_heap_has(&s->planner, i))
			continue;
		double cost = price(s, &s->worker[i], samples, now);
		if (best == FAL_NONE || cost < least) {
			best = i;
			least = cost;
		}
	}
	return best;
}

/* Workers whose share is laid down get it: `weight` times an equal one.  What is left is
 * for the others, or, where there are none, for all. */
static uint32_t
count_out_fixed(struct fal_sched *s, const struct fal_round *r, uint32_t n, double now)
{
	uint32_t left = n, all = 0, others = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		all += fal_works_for(s, w, r);
		others += fal_works_for(s, w, r) && w->weight < 0;
	}
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->weight < 0 || !fal_works_for(s, w, r))
			continue;
		w->plan = (uint32_t)fmin(round(w->weight * n / all), left);
		left -= w->plan;
		if (others > 0)
			fal_heap_remove(&s->planner, i);
		else
			set_price(s, i, now);
	}
	return left;
}

/* Whoever stands by is tried with a task of `most`, after 1, 2, 4 … 16 clocks: what is
 * known of it is of that time, or was chance. */
static void
retry(struct fal_sched *s, const struct fal_round *r, struct fal_worker *most, double now)
{
	struct fal_worker *of = NULL;
	uint32_t longest = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		const uint32_t rest = 1U << w->retries;
		if (!fal_works_for(s, w, r) || w->trial || w->plan > 0 ||
		    w->weight >= 0 || w->standby < rest)
			continue;
		if (of != NULL && w->standby - rest <= longest)
			continue;
		of = w;
		longest = w->standby - rest;
	}
	if (of == NULL)
		return;
	of->plan = 1;
	most->plan--;
	of->standby = 0;
	of->retries += of->retries < most_retries;
	of->retried = true;
	of->pull.n = of->push.n = 0;
	if (of->fresh)
		of->ready = now;
}

/* Sets every worker's `plan` to its part of the round's free tasks, and `last` to whom
 * the last of them is for.  Returns how many nobody is there for. */
static uint32_t
count_out(struct fal_sched *s, const struct fal_round *r, struct fal_worker **last,
	  double now)
{
	struct fal_worker *most = NULL;
	uint32_t n = r->free_n;
	const uint32_t samples = fal_task_samples(s, r, r->free_task[n - 1]);
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		w->plan = 0;
		if (fal_works_for(s, w, r) && !w->trial)
			set_price(s, i, now);
		else
			fal_heap_remove(&s->planner, i);
	}
	struct fal_worker *one = fal_trial_untried(s);
	if (one != NULL && !fal_works_for(s, one, r))
		one = NULL;
	for (uint32_t i = 0; i < s->workers && s->planner.n == 0; i++)
		if (fal_works_for(s, &s->worker[i], r)) /* nobody but who is on trial */
			set_price(s, i, now);
	if (s->planner.n > 0 && s->fixed_shares)
		n = count_out_fixed(s, r, n, now);
	uint32_t slot = fal_heap_top(&s->planner);
	for (; n > 0 && slot != FAL_NONE; n--, slot = fal_heap_top(&s->planner)) {
		struct fal_worker *w = &s->worker[slot];
		if (n == 1 && samples < s->full) {
			slot = cheapest_short(s, samples, now);
			w = &s->worker[slot];
		}
		w->plan++;
		w->retried = false;
		*last = w;
		set_price(s, slot, now);
		if (most == NULL || w->plan > most->plan)
			most = w;
	}
	if (most != NULL && most->plan > 1)
		retry(s, r, most, now);
	if (one != NULL && one->plan == 0 && most != NULL) {
		one->plan = 1;
		most->plan--;
	}
	return n;
}

/* Tasks that are to be retried go to whoever is drawn for that. */
static void
hand_out_retries(struct fal_sched *s, struct fal_round *r, double now)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < r->free_n; i++) {
		uint32_t task = r->free_task[i];
		struct fal_worker *w = s->retries > 0 ? fal_retry_draw(s, r, task) : NULL;
		if (w == NULL) {
			r->free_task[kept++] = task;
			continue;
		}
		s->unplanned--;
		hand_out(s, r, w, task, now);
		fal_refresh(s, w, now);
	}
	r->free_n = kept;
}

static int
by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* Hands `w` its plan, from the free task `next` on. */
static void
hand_out_plan(struct fal_sched *s, struct fal_round *r, struct fal_worker *w,
	      uint32_t *next, double now)
{
	for (; w->plan > 0; w->plan--, s->unplanned--)
		hand_out(s, r, w, r->free_task[(*next)++], now);
	fal_refresh(s, w, now);
}

void
fal_plan(struct fal_sched *s, struct fal_round *r, double now)
{
	struct fal_worker *last = NULL;
	uint32_t next = 0, left = 0;
	if (s->active > 0)
		hand_out_retries(s, r, now);
	if (r->free_n == 0 || s->active == 0)
		return;
	qsort(r->free_task, r->free_n, sizeof(*r->free_task), by_number);
	struct fal_worker *one = fal_team_worker(s, r->team);
	if (one != NULL && fal_works_for(s, one, r)) {
		one->plan = r->free_n;
		hand_out_plan(s, r, one, &next, now);
	} else if (one == NULL) {
		left = count_out(s, r, &last, now);
		for (uint32_t i = 0; i < s->workers; i++)
			if (s->worker[i].plan > 0 && &s->worker[i] != last)
				hand_out_plan(s, r, &s->worker[i], &next, now);
		if (last != NULL)
			hand_out_plan(s, r, last, &next, now);
	}
	memmove(r->free_task, r->free_task + next,
		(r->free_n - next) * sizeof(*r->free_task));
	r->free_n -= next;
	const struct fal_act end = { .fate = FAL_FATE_ABANDON,
				     .why = "nobody of its group has its version" };
	if (left > 0 && s->is.groups)
		fal_round_end(s, r, end, now);
}
