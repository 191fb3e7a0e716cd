/* What is measured of each worker, and what is projected from it. */
#include "sched/state.h"

#include <math.h>
#include <stdlib.h>

static const double ewma_weight = 0.3;    /* of the newest value (SYSTEMS: a) */
static const double guess_s = 1e-3;       /* a task, when nothing at all is known */
static const double deadline_floor = 0.2; /* seconds; DESIGN section 7 */

void
fal_ewma(double *mean, double x)
{
	*mean = *mean > 0 ? *mean + ewma_weight * (x - *mean) : x;
}

void
fal_measured(struct fal_sched *s, struct fal_worker *w, double task_s)
{
	fal_ewma(&s->typical_s, task_s);
	fal_ewma(&w->lane_s[w->lanes], task_s);
	w->recent[w->recents++ % FAL_RECENT] = task_s;
}

/* How much slower a lane is at `lanes` lanes than alone, by the worker's core count. */
static double
crowding(const struct fal_worker *w, uint32_t lanes)
{
	return lanes > w->cores ? (double)lanes / w->cores : 1;
}

/* From what is known at any lane count, or the worker's probe; 0: nothing. */
static double
own_task_s(const struct fal_worker *w, uint32_t lanes)
{
	if (w->lane_s[lanes] > 0)
		return w->lane_s[lanes];
	for (uint32_t d = 1; d <= w->lanes_max; d++)
		for (int up = 0; up < 2; up++) {
			uint32_t p = up ? lanes + d : lanes - d;
			if (p >= 1 && p <= w->lanes_max && w->lane_s[p] > 0)
				return w->lane_s[p] * crowding(w, lanes) / crowding(w, p);
		}
	return w->probe_s * crowding(w, lanes);
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
fal_eval_s(const struct fal_sched *s, const struct fal_worker *w)
{
	return w->eval_s > 0 ? w->eval_s : fal_task_s(s, w, w->lanes) * s->eval_cost;
}

static int
by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

static double
median(double *v, uint32_t n)
{
	qsort(v, n, sizeof(*v), by_size);
	return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

double
fal_late_s(const struct fal_sched *s, const struct fal_worker *w)
{
	double v[FAL_RECENT];
	uint32_t n = w->recents < FAL_RECENT ? w->recents : FAL_RECENT;
	double mid = fal_task_s(s, w, w->lanes), mad = 0;
	if (n > 0) {
		for (uint32_t i = 0; i < n; i++)
			v[i] = w->recent[i];
		mid = median(v, n);
		for (uint32_t i = 0; i < n; i++)
			v[i] = fabs(w->recent[i] - mid);
		mad = median(v, n);
	}
	return mid + 6 * fmax(mad, 0.05 * mid);
}

double
fal_deadline_s(const struct fal_sched *s, const struct fal_worker *w)
{
	return fmax(fal_late_s(s, w), fmax(4 * w->rtt, deadline_floor));
}

double
fal_finish_fresh(const struct fal_sched *s, const struct fal_worker *w, uint32_t n,
		 double now)
{
	uint32_t waves = (n + w->lanes - 1) / w->lanes;
	return now + w->pull_s + waves * fal_task_s(s, w, w->lanes) + w->push_s;
}

double
fal_finish(const struct fal_sched *s, const struct fal_worker *w, double now)
{
	double t = fal_task_s(s, w, w->lanes);
	double ran = fmax(now - w->base, 0);
	double p = w->lanes;
	if (w->queued == 0)
		return now;
	/* A late task will take as long again as it took so far. */
	double first = ran <= fal_late_s(s, w) ? fmax(t - ran, 0) : ran;
	/* The other lanes are, on average, half-way through theirs. */
	double running = fmin(w->queued, p);
	double work = (w->queued - (running - 1) / 2) * t - fmin(ran, t);
	double rest = w->queued > w->lanes ? work / p : first;
	return now + fmax(first, rest) + w->push_s;
}

double
fal_finish_more(const struct fal_sched *s, const struct fal_worker *w, double now)
{
	double t = fal_task_s(s, w, w->lanes);
	if (w->queued < w->lanes)
		return now + t + w->push_s;
	return fmax(w->finish, now) + t / w->lanes;
}
