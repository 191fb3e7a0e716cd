/* Plans who gets the free tasks of a round: each task in turn goes to the worker with the
 * least cost.  Then the tasks are granted, in ranges.
 *
 * The free tasks are cut into spans: early large, early small, late large and late small
 * tasks.  The tasks of a span have one size, and begin together. */
#include "sched/scheme.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The number of clocks between two tries of a worker without shares doubles this many
 * times. */
static const uint32_t tries_max = 4;

/* at[k] is the first free task of span k, and the end of the span before. */
struct plan_spans {
	uint32_t at[FAL_SPANS + 1];
};

/* Grants `w` a task of the plan. */
static void
plan_grant(struct fal_sched *s, struct fal_round *r, struct fal_worker *w, uint32_t task,
	   double now)
{
	static const double short_rtt = 0.01; /* part of a clock */
	static const double short_clock = 1;  /* s */
	const bool is_first = r->given.newest[task - r->ledger.first] == 0;
	/* Does `w` keep its tasks, although the scheme moves tasks?  Such tasks can be
	 * claimed ahead.  A claim costs the clock a round trip; a claim ahead costs the
	 * clock the help of other workers.  So tasks do move if a round trip is short
	 * beside a clock.  The task that tries a worker without shares can always move.
	 * A lone worker has no help: only a worker that joins would wait, for the next
	 * clock. */
	const bool is_alone =
		s->active == 1 && s->clock_s > 0 && s->clock_s < short_clock;
	const bool is_helped = w->help.clocks < 2 || w->help.mean_s >= w->rtt ||
			       w->rtt <= short_rtt * s->clock_s;
	const bool is_firm = s->traits.shared && !w->is_tried && (is_alone || !is_helped);
	w->work.share += is_first;
	w->suspicion.has_task = true;
	fal_ledger_log(&r->ledger, is_first ? FAL_ENTRY_GRANT : FAL_ENTRY_REGRANT, w->id,
		       0, task);
	fal_task_grant(s, w, r, task, is_first && is_firm, now);
}

/* ---- prices --------------------------------------------------------------- */

/* Sets the price of `samples` more samples in the plan of a worker.  With shares by
 * speed, each worker first gets one task.  After that the worker furthest below its quota
 * is next: each worker gets the whole part of its quota, and those with the largest
 * remainders get one task more (Hamilton's method). */
static void
plan_set_price(struct fal_sched *s, uint32_t slot, uint32_t samples, double now)
{
	const struct fal_worker *w = &s->worker[slot];
	const struct fal_load more = { w->planned.tasks + 1,
				       w->planned.samples + samples };
	const struct fal_load none = { 0 };
	const double t = fal_task_s(s, w, w->lanes);
	double price = (double)(w->work.samples + w->queued_samples + more.samples) +
		       t / (1 + t);
	if (s->scheme->cost != NULL)
		price = s->scheme->cost(s, w,
					s->is_planning_late ? none : fal_load_queued(w),
					more, now);
	else if (s->traits.by_speed)
		price = (double)w->planned.samples -
			s->quota * fal_worker_rate(s, w, w->lanes) -
			(w->planned.tasks == 0 ? UINT32_MAX : 0);
	fal_heap_set(&s->planner, slot, price);
}

static void
plan_add(struct fal_worker *w, uint32_t span, const struct fal_load *more)
{
	w->plan[span] += more->tasks;
	w->planned.tasks += more->tasks;
	w->planned.samples += more->samples;
}

/* Plans the shares that the policy fixes: `weight` times an equal share.  Returns the
 * number of tasks that are left for the other workers; if there are no other workers, for
 * all. */
static uint32_t
plan_fixed_shares(struct fal_sched *s, const struct fal_round *r, uint32_t span,
		  const struct fal_load *all)
{
	uint32_t left = all->tasks, workers = 0, others = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		workers += fal_worker_may_compute(s, w, r);
		others += fal_heap_has(&s->planner, i) && w->weight < 0;
	}
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->weight < 0 || !fal_worker_may_compute(s, w, r))
			continue;
		const double share = round(w->weight * all->tasks / workers);
		const uint32_t n = (uint32_t)fmin(share, left);
		const struct fal_load load = { n, n * all->samples / all->tasks };
		plan_add(w, span, &load);
		left -= n;
		if (others > 0)
			fal_heap_remove(&s->planner, i);
	}
	return left;
}

/* Plans the free tasks of a span, from `at` to `end`: all of one size, but the last task
 * may be smaller.  Sets *last to the worker of the last task. */
static void
plan_span(struct fal_sched *s, const struct fal_round *r, uint32_t span, uint32_t at,
	  uint32_t end, struct fal_worker **last, double now)
{
	struct fal_load all = { end - at, 0 }, one = { 1, 0 };
	if (at == end)
		return;
	for (uint32_t i = at; i < end; i++)
		all.samples += fal_task_samples(r, r->free_task[i]);
	if (s->has_fixed_shares)
		at = end - plan_fixed_shares(s, r, span, &all);
	if (s->traits.by_speed) {
		uint64_t samples = (end - at) * all.samples / all.tasks;
		double rates = 0;
		for (uint32_t i = 0; i < s->workers; i++)
			if (fal_heap_has(&s->planner, i)) {
				const struct fal_worker *w = &s->worker[i];
				samples += w->planned.samples;
				rates += fal_worker_rate(s, w, w->lanes);
			}
		s->quota = (double)samples / rates;
	}
	for (; at < end; at++) {
		const uint32_t samples = fal_task_samples(r, r->free_task[at]);
		for (uint32_t i = 0; i < s->workers && samples != one.samples; i++)
			if (fal_heap_has(&s->planner, i))
				plan_set_price(s, i, samples, now);
		one.samples = samples;
		const uint32_t slot = fal_heap_top(&s->planner);
		struct fal_worker *w = &s->worker[slot];
		plan_add(w, span, &one);
		w->is_tried = false;
		*last = w;
		plan_set_price(s, slot, samples, now);
	}
}

/* ---- workers without shares ------------------------------------------------- */

/* Tries a worker without shares: gives it a task of `most`, after 1, 2, 4 … 16 clocks.
 * The measurements that left the worker without a share are old, or were chance. */
static void
plan_try_idle(struct fal_sched *s, const struct fal_round *r, struct fal_worker *most,
	      uint32_t span, double now)
{
	struct fal_worker *tried = NULL;
	uint32_t longest = 0;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		const uint32_t rest = 1U << w->tries;
		if (!fal_worker_may_compute(s, w, r) || w->standing == FAL_PROBATION ||
		    w->planned.tasks > 0 || w->weight >= 0 || w->idle_clocks < rest)
			continue;
		if (tried != NULL && w->idle_clocks - rest <= longest)
			continue;
		tried = w;
		longest = w->idle_clocks - rest;
	}
	if (tried == NULL)
		return;
	tried->plan[span] = 1;
	most->plan[span]--;
	tried->idle_clocks = 0;
	tried->tries += tried->tries < tries_max;
	tried->is_tried = true;
	tried->pull.n = tried->push.n = 0;
	if (tried->pull_timer.is_running)
		tried->pulled_at = now;
}

/* ---- plans ---------------------------------------------------------------- */

/* Plans two spans that begin together: `large`, and the next span, which has small tasks.
 * Sets *last to the worker of the last task.  False: the round has no worker. */
static bool
plan_sizes(struct fal_sched *s, const struct fal_round *r, const struct plan_spans *spans,
	   uint32_t large, struct fal_worker **last, double now)
{
	const uint32_t small = large + 1, *at = spans->at;
	const uint32_t larges = at[small] - at[large];
	const uint32_t smalls = at[small + 1] - at[small];
	struct fal_worker *unserved = fal_probation_unserved(s);
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		w->planned = (struct fal_load){ 0 };
		if (fal_worker_may_compute(s, w, r) && w->standing != FAL_PROBATION)
			fal_heap_set(&s->planner, i, 0);
		else
			fal_heap_remove(&s->planner, i);
	}
	/* If there is no other worker, the worker on probation gets all tasks. */
	for (uint32_t i = 0; i < s->workers && s->planner.n == 0; i++)
		if (fal_worker_may_compute(s, &s->worker[i], r))
			fal_heap_set(&s->planner, i, 0);
	if (s->planner.n == 0)
		return false;
	plan_span(s, r, large, at[large], at[small], last, now);
	plan_span(s, r, small, at[small], at[small + 1], last, now);
	/* A worker that is tried may be late, and so gets a small task, unless the clock
	 * has only one small task. */
	const uint32_t span = smalls > (larges > 0) ? small : large;
	struct fal_worker *most = NULL;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++)
		if (w->plan[span] > (most != NULL ? most->plan[span] : 0))
			most = w;
	if (most != NULL && most->plan[span] > 1)
		plan_try_idle(s, r, most, span, now);
	if (unserved != NULL && fal_worker_may_compute(s, unserved, r) &&
	    unserved->planned.tasks == 0 && most != NULL) {
		unserved->plan[span] = 1;
		most->plan[span]--;
	}
	return true;
}

/* Plans the free tasks for all workers of the round.  Late tasks all begin when their
 * version is there, whatever workers compute before.  So the plan for late tasks ignores
 * the tasks that workers hold; the plan for early tasks counts the tasks that workers
 * hold.  Sets *last to the worker of the last task.  False: the round has no worker. */
static bool
plan_all(struct fal_sched *s, const struct fal_round *r, const struct plan_spans *spans,
	 struct fal_worker **last, double now)
{
	struct fal_worker *last_early = NULL;
	const uint32_t late = FAL_SPANS / 2;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++)
		memset(w->plan, 0, sizeof(w->plan));
	if (spans->at[late] == r->free_n)
		return plan_sizes(s, r, spans, 0, last, now);
	s->is_planning_late = true;
	const bool is_planned = plan_sizes(s, r, spans, late, last, now);
	s->is_planning_late = false;
	return is_planned && plan_sizes(s, r, spans, 0, &last_early, now);
}

static int
compare_tasks(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* Grants `w` its plan; the tasks of span k start at the free task next->at[k]. */
static void
plan_grant_worker(struct fal_sched *s, struct fal_round *r, struct fal_worker *w,
		  struct plan_spans *next, double now)
{
	bool any = false;
	for (uint32_t k = 0; k < FAL_SPANS; k++)
		for (; w->plan[k] > 0; w->plan[k]--, s->unplanned--) {
			any = true;
			plan_grant(s, r, w, r->free_task[next->at[k]++], now);
		}
	if (any)
		fal_worker_refresh(s, w, now);
}

/* The spans of the free tasks, which are in order.  If both early and late tasks are
 * free, they have spans of their own; else the first two spans have all tasks. */
static struct plan_spans
plan_cut_spans(const struct fal_sched *s, const struct fal_round *r)
{
	const uint32_t small = fal_grid_large_tasks(&s->grid, r->info.clock);
	struct plan_spans spans = { .at = { 0 } };
	uint32_t early = 0;
	while (early < r->free_n && r->free_task[early] < r->info.first_late)
		early++;
	const uint32_t border = early > 0 ? early : r->free_n;
	const uint32_t end[] = { 0, border, r->free_n };
	for (uint32_t k = 0; k < 2; k++) {
		uint32_t at = end[k];
		spans.at[2 * k] = at;
		while (at < end[k + 1] && r->free_task[at] < small)
			at++;
		spans.at[2 * k + 1] = at;
	}
	spans.at[FAL_SPANS] = r->free_n;
	return spans;
}

void
fal_round_plan(struct fal_sched *s, struct fal_round *r, double now)
{
	struct fal_worker *last = NULL;
	bool is_planned = true;
	uint32_t kept = 0;
	if (s->active == 0)
		return;
	/* Each task with a retry goes to the worker that is drawn for the retry. */
	for (uint32_t i = 0; i < r->free_n; i++) {
		const uint32_t task = r->free_task[i];
		struct fal_worker *w = s->retries > 0 ? fal_retry_draw(s, r, task) : NULL;
		if (w == NULL) {
			r->free_task[kept++] = task;
			continue;
		}
		s->unplanned--;
		plan_grant(s, r, w, task, now);
		fal_worker_refresh(s, w, now);
	}
	r->free_n = kept;
	if (r->free_n == 0)
		return;
	qsort(r->free_task, r->free_n, sizeof(*r->free_task), compare_tasks);
	const struct plan_spans spans = plan_cut_spans(s, r);
	struct plan_spans next = spans;
	struct fal_worker *owner = fal_team_worker(s, r->team);
	if (owner != NULL && fal_worker_may_compute(s, owner, r)) {
		for (uint32_t k = 0; k < FAL_SPANS; k++)
			owner->plan[k] = spans.at[k + 1] - spans.at[k];
		plan_grant_worker(s, r, owner, &next, now);
	} else if (owner == NULL && (is_planned = plan_all(s, r, &spans, &last, now))) {
		for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++)
			if (w != last)
				plan_grant_worker(s, r, w, &next, now);
		if (last != NULL)
			plan_grant_worker(s, r, last, &next, now);
	}
	/* Either all tasks are granted, or none is. */
	r->free_n = memcmp(&next, &spans, sizeof(spans)) == 0 ? r->free_n : 0;
	const struct fal_act end = { .fate = FAL_FATE_RETRY,
				     .why = "nobody of its group has its version" };
	if (!is_planned && s->traits.groups)
		fal_round_end(s, r, end, now);
}
