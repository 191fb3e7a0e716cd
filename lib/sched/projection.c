/* Measurements of each worker, and projections from them. */
#include "sched/bound.h"
#include "sched/state.h"

#include "base/minmax.h"
#include "base/oversubscription.h"

#include <math.h>
#include <string.h>

/* Speeds that differ by this factor are different speeds. */
#define JUMP 1.5

/* ---- speeds --------------------------------------------------------------- */

static const double ewma_weight = 0.3; /* weight of the newest value */
/* A jump of a task's time counts at once if the jump is longer than so many round trips,
 * which is more than a move of tasks takes. */
static const double jump_rtts = 4;
static const double guess_s = 1e-3; /* a task's seconds, without any knowledge */
/* if no task was measured: how many times longer than usual a late task takes */
static const double late_times = 1.3;
/* A late task is expected to run on for this many times the time that it has already
 * run, because most late tasks are very late.  Found in simulations of random slowness
 * (falcon-emulate(5), p2 and p3). */
static const double late_more = 1.5;
/* A task is not late yet if its machine may only have given another program a turn. */
static const double os_turn_s = 4e-3;

void
fal_ewma(double *mean, double x)
{
	*mean = *mean > 0 ? *mean + ewma_weight * (x - *mean) : x;
}

void
fal_typical_add_fixed(struct fal_sched *s, double fixed)
{
	double *mean = &s->typical.fixed;
	*mean = isnan(*mean) ? fixed : *mean + ewma_weight * (fixed - *mean);
}

static double
worker_fixed_share(const struct fal_sched *s, const struct fal_worker *w)
{
	return isnan(w->fixed) ? s->typical.fixed : w->fixed;
}

/* Seconds of a full task at `lanes` lanes, from the nearest measured lane count or the
 * worker's probe; 0: unknown. */
static double
own_task_s(const struct fal_worker *w, uint32_t lanes)
{
	uint32_t p = w->pace[lanes].nearest;
	if (p == lanes)
		return w->pace[p].task_s;
	const double slower = fal_oversubscription(lanes, w->cores);
	return p > 0 ? w->pace[p].task_s * slower / fal_oversubscription(p, w->cores)
		     : w->probe_s * slower;
}

double
fal_task_s(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes)
{
	double t = own_task_s(w, lanes);
	if (t <= 0)
		t = s->typical.task_s > 0 ? s->typical.task_s : guess_s;
	return t;
}

double
fal_load_size(const struct fal_sched *s, const struct fal_worker *w, struct fal_load load)
{
	if (load.samples == (uint64_t)load.tasks * s->full)
		return load.tasks;
	double full = (double)load.samples / s->full;
	return load.tasks *
	       fal_bound_task_size(worker_fixed_share(s, w), full / load.tasks);
}

double
fal_eval_task_s(const struct fal_sched *s, const struct fal_worker *w)
{
	return w->eval_s > 0 ? w->eval_s : fal_task_s(s, w, w->lanes) * s->conf.eval_cost;
}

double
fal_worker_rate(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes)
{
	return lanes / fal_task_s(s, w, lanes);
}

/* Lane count `p` is measured for the first time: notes `p` at each lane count for which
 * `p` is the nearest measured one. */
static void
pace_add_lanes(struct fal_worker *w, uint32_t p)
{
	for (uint32_t i = 1; i <= w->own_max; i++) {
		uint32_t q = w->pace[i].nearest;
		uint32_t to_p = i > p ? i - p : p - i, to_q = i > q ? i - q : q - i;
		if (q == 0 || to_p < to_q || (to_p == to_q && p < q))
			w->pace[i].nearest = p;
	}
}

void
fal_worker_restore(struct fal_worker *w, const struct fal_history *was)
{
	if (was->lanes == 0 || was->lanes > w->own_max || !(was->task_s > 0))
		return;
	pace_add_lanes(w, was->lanes);
	w->pace[was->lanes].task_s = was->task_s;
	if (was->fixed >= 0)
		w->fixed = was->fixed;
	w->eval_s = was->eval_s;
	if (was->push_s > 0)
		fal_window_min_add(&w->push, was->push_s);
}

/* The median of the last three values, or of as many as there are. */
static double
median_of_last(const struct fal_window *r)
{
	const double a = fal_window_ago(r, 0);
	const double b = r->n > 1 ? fal_window_ago(r, 1) : a;
	if (r->n < 3)
		return (a + b) / 2;
	const double c = fal_window_ago(r, 2);
	return fal_max(fal_min(a, b), fal_min(fal_max(a, b), c));
}

/* Measures a full task of `task_s` seconds.  The median of the last three times counts,
 * because one late wake-up tells nothing about speed.  But if a time differs from the
 * projection by a large factor, and by more than a move of tasks takes, the machine's
 * speed has changed.  Then this one time counts at once, before the clock ends. */
static void
measure_full(struct fal_sched *s, struct fal_worker *w, double task_s)
{
	fal_ewma(&s->typical.task_s, task_s);
	fal_window_add(&w->recent, task_s);
	fal_window_judge(&w->recent);
	if (w->pace[w->lanes].nearest != w->lanes)
		pace_add_lanes(w, w->lanes);
	double *t = &w->pace[w->lanes].task_s;
	bool jumps = task_s > JUMP * *t || task_s * JUMP < *t;
	if (jumps && fabs(task_s - *t) > jump_rtts * w->rtt)
		*t = task_s;
	else
		fal_ewma(t, median_of_last(&w->recent));
}

/* A full task takes no less than a short one, and no more than in proportion.  A time
 * between these bounds tells the fixed part; a time beyond them tells the speed. */
void
fal_worker_measure(struct fal_sched *s, struct fal_worker *w, double task_s,
		   uint32_t samples)
{
	double part = (double)samples / s->full;
	double full = own_task_s(w, w->lanes);
	bool known = w->pace[w->lanes].nearest == w->lanes;
	if (full <= 0)
		full = task_s / fal_bound_task_size(worker_fixed_share(s, w), part);
	if (!known || task_s >= full || full >= task_s / part) {
		measure_full(s, w, fal_min(fal_max(full, task_s), task_s / part));
		return;
	}
	/* Least mean squares: a larger task tells less about the fixed part. */
	const double fixed = (task_s / full - part) / (1 - part);
	const double weight = (1 - part) * (1 - part);
	if (isnan(w->fixed))
		w->fixed = fixed;
	w->fixed += ewma_weight * weight * (fixed - w->fixed);
	fal_typical_add_fixed(s, w->fixed);
}

double
fal_task_late_s(const struct fal_sched *s, const struct fal_worker *w)
{
	return w->recent.n > 0 ? w->recent.limit
			       : late_times * fal_task_s(s, w, w->lanes);
}

/* ---- projections ---------------------------------------------------------- */

/* Sets `r` to the seconds until each lane of `w` is free, ascending, if a full task takes
 * t seconds.  `first` is the front of the queue of `w`; returns the part of `first` that
 * no lane has begun. */
static struct fal_load
project_lanes(const struct fal_sched *s, const struct fal_worker *w, double t,
	      struct fal_load first, double now, double *r)
{
	double late = w->recent.n > 0 ? w->recent.limit : late_times * t;
	const struct fal_node *node = w->head;
	struct fal_load rest = first;
	uint32_t i = 0;
	for (; i < w->lanes && i < first.tasks; i++, node = node->next) {
		double began =
			node->began >= 0 ? node->began : fal_max(now, w->pulled_at);
		struct fal_load load = fal_load_of_task(node->round, node->task);
		double ran = now - began, size = fal_load_size(s, w, load);
		const bool is_late = ran > fal_max(late * size, t * size + os_turn_s);
		r[i] = is_late ? late_more * ran : fal_max(t * size - ran, 0);
		rest.tasks--;
		rest.samples -= load.samples;
	}
	for (; i < w->lanes; i++)
		r[i] = fal_max(w->pulled_at - now, 0);
	/* Sorts by insertion: lanes are few, and often in order. */
	for (i = 1; i < w->lanes; i++) {
		const double x = r[i];
		uint32_t k = i;
		for (; k > 0 && r[k - 1] > x; k--)
			r[k] = r[k - 1];
		r[k] = x;
	}
	return rest;
}

double
fal_worker_project(const struct fal_sched *s, const struct fal_worker *w,
		   struct fal_load first, struct fal_load extra, double now)
{
	double r[FAL_LANES_MAX], last = 0;
	if (first.tasks + extra.tasks == 0)
		return now;
	const double t = fal_task_s(s, w, w->lanes);
	struct fal_load rest = project_lanes(s, w, t, first, now, r);
	rest.tasks += extra.tasks;
	rest.samples += extra.samples;
	const uint32_t p = w->lanes, n = rest.tasks;
	/* the first `more` lanes run one task more */
	const uint32_t each = n / p, more = n % p;
	/* Short tasks come last. */
	const uint32_t end_at = more > 0 ? more - 1 : n > 0 ? p - 1 : FAL_NONE;
	const double less = t * (n - fal_load_size(s, w, rest));
	if (p > 1 && (uint64_t)n * s->full - rest.samples >= s->full) {
		/* Many small tasks: the lanes end together, each from r[k] on. */
		const double work = t * n - less;
		double end = r[0] + work;
		for (uint32_t k = 1; k < p && end > r[k]; k++)
			end += (r[k] - end) / (k + 1);
		last = first.tasks > 0 ? r[p - 1] : 0;
		return now + fal_max(end, last) + w->push.least;
	}
	for (uint32_t i = 0; i < p; i++) {
		const uint32_t waves = each + (i < more);
		bool used = waves > 0 || i + first.tasks >= p;
		double end = r[i] + waves * t;
		if (i == end_at)
			end = fal_max(end - less, r[i]);
		last = fal_max(last, used ? end : 0);
	}
	return now + last + w->push.least;
}

/* ---- paces of a worker's tasks, for the trace ------------------------------- */

/* Seconds of a full task. */
static double
pace_mean(const struct fal_work_pace *p)
{
	return p->seconds / p->size;
}

/* The growth of the squared distances from the means when the two paces become one. */
static double
pace_distance(const struct fal_work_pace *a, const struct fal_work_pace *b)
{
	const double d = pace_mean(a) - pace_mean(b), n = a->size, m = b->size;
	return d * d * n * m / (n + m);
}

static void
pace_merge(struct fal_work_pace *to, const struct fal_work_pace *p)
{
	to->tasks += p->tasks;
	to->samples += p->samples;
	to->seconds += p->seconds;
	to->size += p->size;
}

void
fal_work_add(struct fal_work *work, double task_s, uint32_t samples, double size)
{
	const struct fal_work_pace ran = { 1, samples, task_s, size };
	const double full_s = task_s / size;
	struct fal_work_pace all[FAL_WORK_PACES + 1];
	const uint32_t n = work->paces;
	struct fal_work_pace *last = n > 0 ? &work->pace[n - 1] : NULL;
	if (last != NULL &&
	    fal_max(full_s, pace_mean(last)) <= JUMP * fal_min(full_s, pace_mean(last))) {
		pace_merge(last, &ran);
	} else if (n < FAL_WORK_PACES) {
		work->pace[work->paces++] = ran;
	} else {
		uint32_t at = 0; /* the paces `at` and `at` + 1 differ least */
		memcpy(all, work->pace, sizeof(work->pace));
		all[n] = ran;
		for (uint32_t i = 1; i < n; i++)
			if (pace_distance(&all[i], &all[i + 1]) <
			    pace_distance(&all[at], &all[at + 1]))
				at = i;
		pace_merge(&all[at], &all[at + 1]);
		memmove(&all[at + 1], &all[at + 2], (n - at - 1) * sizeof(*all));
		memcpy(work->pace, all, sizeof(work->pace));
	}
}
