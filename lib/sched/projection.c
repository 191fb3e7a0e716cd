/* Measurements of each worker, projections from them, and the work that it did since it
 * last told where its time went. */
#include "sched/bound.h"
#include "sched/state.h"

#include "base/minmax.h"
#include "base/oversubscription.h"

#include <math.h>
#include <string.h>

/* ---- speeds --------------------------------------------------------------- */

static const double ewma_weight = 0.3; /* of the newest value */
static const double jump_rtts = 4;     /* round trips that it must differ by */
static const double guess_s = 1e-3;    /* a task, when nothing at all is known */
/* A late task takes so many times longer than it took so far: what is late is mostly very
 * late.  Found by play of random slowness (falcon-emulate(5), p2 and p3). */
static const double late_more = 1.5;
/* A task is not late yet when its machine may have let another program have a turn. */
static const double turn_s = 4e-3;

void
fal_ewma(double *mean, double x)
{
	*mean = *mean > 0 ? *mean + ewma_weight * (x - *mean) : x;
}

void
fal_typical_fixed(struct fal_sched *s, double fixed)
{
	double *mean = &s->typical_fixed;
	*mean = isnan(*mean) ? fixed : *mean + ewma_weight * (fixed - *mean);
}

static double
fixed_of(const struct fal_sched *s, const struct fal_worker *w)
{
	return isnan(w->fixed) ? s->typical_fixed : w->fixed;
}

/* From what is known at any lane count, or the worker's probe; 0: nothing. */
static double
own_task_s(const struct fal_worker *w, uint32_t lanes)
{
	uint32_t p = w->pace[lanes].nearest;
	if (p == lanes)
		return w->pace[p].task_s;
	const double crowd = fal_oversubscription(lanes, w->cores);
	return p > 0 ? w->pace[p].task_s * crowd / fal_oversubscription(p, w->cores)
		     : w->probe_s * crowd;
}

double
fal_task_s(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes)
{
	double t = own_task_s(w, lanes);
	if (t <= 0)
		t = s->typical_s > 0 ? s->typical_s : guess_s;
	return t;
}

double
fal_load_size(const struct fal_sched *s, const struct fal_worker *w, struct fal_load load)
{
	if (load.samples == (uint64_t)load.tasks * s->full)
		return load.tasks;
	double full = (double)load.samples / s->full;
	return load.tasks * fal_bound_longer(fixed_of(s, w), full / load.tasks);
}

double
fal_eval_task_s(const struct fal_sched *s, const struct fal_worker *w)
{
	return w->eval_s > 0 ? w->eval_s : fal_task_s(s, w, w->lanes) * s->conf.eval_cost;
}

/* By insertion: what is sorted here is short, and often in order. */
static void
sort(double *v, uint32_t n)
{
	for (uint32_t i = 1; i < n; i++) {
		double x = v[i];
		uint32_t k = i;
		for (; k > 0 && v[k - 1] > x; k--)
			v[k] = v[k - 1];
		v[k] = x;
	}
}

/* The first measurement at `p` lanes: the nearest one for the lane counts around it. */
static void
know(struct fal_worker *w, uint32_t p)
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
	know(w, was->lanes);
	w->pace[was->lanes].task_s = was->task_s;
	if (was->fixed >= 0)
		w->fixed = was->fixed;
	w->eval_s = was->eval_s;
	if (was->push_s > 0)
		fal_window_min_add(&w->push, was->push_s);
}

/* The median of the last three, or of as many as there are. */
static double
middle(const struct fal_window *r)
{
	const double a = fal_window_ago(r, 0);
	const double b = r->n > 1 ? fal_window_ago(r, 1) : a;
	if (r->n < 3)
		return (a + b) / 2;
	const double c = fal_window_ago(r, 2);
	return fal_max(fal_min(a, b), fal_min(fal_max(a, b), c));
}

/* A full task takes `task_s` seconds. */
static void
measured_full(struct fal_sched *s, struct fal_worker *w, double task_s)
{
	fal_ewma(&s->typical_s, task_s);
	fal_window_add(&w->recent, task_s);
	fal_window_judge(&w->recent);
	/* The middle one of the last three counts: one late wake-up says nothing of a
	 * speed.  But a time that is far from the projection, and by more than moving
	 * tasks takes, is another speed, and to be believed before the clock is over. */
	if (w->pace[w->lanes].nearest != w->lanes)
		know(w, w->lanes);
	double *t = &w->pace[w->lanes].task_s;
	bool other = task_s > FAL_JUMP * *t || task_s * FAL_JUMP < *t;
	if (other && fabs(task_s - *t) > jump_rtts * w->rtt)
		*t = task_s;
	else
		fal_ewma(t, middle(&w->recent));
}

/* A task of `part` of a full one's samples took `is` times a full one's seconds, which is
 * between `part` and 1: that tells the fixed part; what is known of it follows (LMS), the
 * less the larger the task. */
static void
learn_fixed(struct fal_sched *s, struct fal_worker *w, double part, double is)
{
	double now = (is - part) / (1 - part), weight = (1 - part) * (1 - part);
	if (isnan(w->fixed))
		w->fixed = now;
	w->fixed += ewma_weight * weight * (now - w->fixed);
	fal_typical_fixed(s, w->fixed);
}

/* A short task says of a full one only that it takes no less, and no more than in
 * proportion: between these it tells of the fixed part, beyond them of the speed. */
void
fal_worker_measure(struct fal_sched *s, struct fal_worker *w, double task_s, uint32_t samples)
{
	double part = (double)samples / s->full;
	double full = own_task_s(w, w->lanes);
	bool known = w->pace[w->lanes].nearest == w->lanes;
	if (full <= 0)
		full = task_s / fal_bound_longer(fixed_of(s, w), part);
	if (known && task_s < full && full < task_s / part)
		learn_fixed(s, w, part, task_s / full);
	else
		measured_full(s, w, fal_min(fal_max(full, task_s), task_s / part));
}

static const double late_times = 1.3; /* a task's seconds, when none was measured */

double
fal_task_late_s(const struct fal_sched *s, const struct fal_worker *w)
{
	return w->recent.n > 0 ? w->recent.most : late_times * fal_task_s(s, w, w->lanes);
}

double
fal_worker_rate(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes)
{
	return lanes / fal_task_s(s, w, lanes);
}

/* Seconds until each lane of `w` is free, ascending, when a full task takes t; returns
 * what of `first`, which it holds first, no lane has begun. */
static struct fal_load
lanes_free(const struct fal_sched *s, const struct fal_worker *w, double t,
	   struct fal_load first, double now, double *r)
{
	double late = w->recent.n > 0 ? w->recent.most : late_times * t;
	const struct fal_node *node = w->head;
	struct fal_load rest = first;
	uint32_t i = 0;
	for (; i < w->lanes && i < first.tasks; i++, node = node->next) {
		double began = node->began >= 0 ? node->began : fal_max(now, w->ready);
		struct fal_load load = fal_load_of_task(node->round, node->task);
		double ran = now - began, size = fal_load_size(s, w, load);
		const bool is_late = ran > fal_max(late * size, t * size + turn_s);
		r[i] = is_late ? late_more * ran : fal_max(t * size - ran, 0);
		rest.tasks--;
		rest.samples -= load.samples;
	}
	for (; i < w->lanes; i++)
		r[i] = fal_max(w->ready - now, 0);
	sort(r, w->lanes);
	return rest;
}

/* Seconds until `work` seconds of small tasks are over on p lanes, which are free after
 * r, ascending, seconds: they end together. */
static double
level(const double *r, uint32_t p, double work)
{
	double end = r[0] + work;
	for (uint32_t k = 1; k < p && end > r[k]; k++)
		end += (r[k] - end) / (k + 1);
	return end;
}

double
fal_worker_project(const struct fal_sched *s, const struct fal_worker *w, struct fal_load first,
	    struct fal_load extra, double now)
{
	double r[FAL_LANES_MAX], last = 0;
	if (first.tasks + extra.tasks == 0)
		return now;
	const double t = fal_task_s(s, w, w->lanes);
	struct fal_load rest = lanes_free(s, w, t, first, now, r);
	rest.tasks += extra.tasks;
	rest.samples += extra.samples;
	const uint32_t p = w->lanes, n = rest.tasks;
	const uint32_t each = n / p, more = n % p; /* the first lanes run one more */
	/* The short ones come last. */
	const uint32_t end_at = more > 0 ? more - 1 : n > 0 ? p - 1 : FAL_NONE;
	const double less = t * (n - fal_load_size(s, w, rest));
	if (p > 1 && (uint64_t)n * s->full - rest.samples >= s->full) {
		last = first.tasks > 0 ? r[p - 1] : 0;
		return now + fal_max(level(r, p, t * n - less), last) + w->push.s;
	}
	for (uint32_t i = 0; i < p; i++) {
		const uint32_t waves = each + (i < more);
		bool used = waves > 0 || i + first.tasks >= p;
		double end = r[i] + waves * t;
		if (i == end_at)
			end = fal_max(end - less, r[i]);
		last = fal_max(last, used ? end : 0);
	}
	return now + last + w->push.s;
}

/* ---- work ----------------------------------------------------------------- */

/* Seconds of a full task. */
static double
mean(const struct fal_work_pace *p)
{
	return p->seconds / p->size;
}

/* The growth of the squared distances from the means when the two paces become one. */
static double
apart(const struct fal_work_pace *a, const struct fal_work_pace *b)
{
	const double d = mean(a) - mean(b), n = a->size, m = b->size;
	return d * d * n * m / (n + m);
}

static void
add(struct fal_work_pace *to, const struct fal_work_pace *p)
{
	to->tasks += p->tasks;
	to->samples += p->samples;
	to->seconds += p->seconds;
	to->size += p->size;
}

/* The two neighbours of n > 1 that are least apart: the first of them. */
static uint32_t
nearest(const struct fal_work_pace *p, uint32_t n)
{
	uint32_t least = 0;
	for (uint32_t i = 1; i + 1 < n; i++)
		if (apart(&p[i], &p[i + 1]) < apart(&p[least], &p[least + 1]))
			least = i;
	return least;
}

void
fal_work_add(struct fal_work *work, double task_s, uint32_t samples, double size)
{
	const struct fal_work_pace ran = { 1, samples, task_s, size };
	const double full_s = task_s / size;
	struct fal_work_pace all[FAL_WORK_PACES + 1], *last = NULL;
	const uint32_t n = work->paces;
	if (n > 0)
		last = &work->pace[n - 1];
	if (last != NULL &&
	    fal_max(full_s, mean(last)) <= FAL_JUMP * fal_min(full_s, mean(last))) {
		add(last, &ran);
	} else if (n < FAL_WORK_PACES) {
		work->pace[work->paces++] = ran;
	} else {
		memcpy(all, work->pace, sizeof(work->pace));
		all[n] = ran;
		const uint32_t at = nearest(all, n + 1);
		add(&all[at], &all[at + 1]);
		memmove(&all[at + 1], &all[at + 2], (n - at - 1) * sizeof(*all));
		memcpy(work->pace, all, sizeof(work->pace));
	}
}
