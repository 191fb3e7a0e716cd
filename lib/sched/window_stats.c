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
	l->s = l->most = s;
	for (uint32_t i = 0; i < 3 && i < l->n; i++) {
		l->s = fal_min(l->s, l->v[i]);
		l->most = fal_max(l->most, l->v[i]);
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
	r->mid = window_median(v, n);
	for (uint32_t i = 0; i < n; i++)
		v[i] = fabs(r->v[i] - r->mid);
	r->most = r->mid + 6 * fal_max(window_median(v, n), 0.05 * r->mid);
}
