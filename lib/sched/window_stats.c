/* Medians over the last measurements of a quantity. */
#include "sched/window_stats.h"

#include "base/minmax.h"
#include "base/quantile.h"

#include <math.h>
#include <string.h>

void
fal_window_min_add(struct fal_window_min *l, double s)
{
	l->v[l->n++ % 3] = s;
	l->least = l->largest = s;
	for (uint32_t i = 0; i < 3 && i < l->n; i++) {
		l->least = fal_min(l->least, l->v[i]);
		l->largest = fal_max(l->largest, l->v[i]);
	}
}

void
fal_window_add(struct fal_window *r, double x)
{
	r->v[r->n++ % FAL_WINDOW] = x;
}

/* The median of n > 0 values; changes the order of `v`. */
static double
window_median(double *v, uint32_t n)
{
	const double mid = fal_nth_least(v, n, n / 2);
	return n % 2 == 1 ? mid : (fal_nth_least(v, n, n / 2 - 1) + mid) / 2;
}

void
fal_window_judge(struct fal_window *r)
{
	const uint32_t n = r->n < FAL_WINDOW ? r->n : FAL_WINDOW;
	double v[FAL_WINDOW];
	memcpy(v, r->v, n * sizeof(*v));
	r->median = window_median(v, n);
	for (uint32_t i = 0; i < n; i++)
		v[i] = fabs(r->v[i] - r->median);
	r->limit = r->median + 6 * fal_max(window_median(v, n), 0.05 * r->median);
}
