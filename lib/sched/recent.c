/* The last measurements of something. */
#include "sched/recent.h"

#include "base/least.h"
#include "base/quantile.h"

#include <math.h>
#include <string.h>

void
fal_lately_add(struct fal_lately *l, double s)
{
	l->v[l->n++ % 3] = s;
	l->s = l->most = s;
	for (uint32_t i = 0; i < 3 && i < l->n; i++) {
		l->s = fal_min(l->s, l->v[i]);
		l->most = fal_max(l->most, l->v[i]);
	}
}

void
fal_recent_add(struct fal_recent *r, double x)
{
	r->v[r->n++ % FAL_RECENT] = x;
}

/* The order of `v` changes. */
static double
median(double *v, uint32_t n)
{
	const double mid = fal_nth_least(v, n, n / 2);
	return n % 2 == 1 ? mid : (fal_nth_least(v, n, n / 2 - 1) + mid) / 2;
}

void
fal_recent_judge(struct fal_recent *r)
{
	const uint32_t n = r->n < FAL_RECENT ? r->n : FAL_RECENT;
	double v[FAL_RECENT];
	memcpy(v, r->v, n * sizeof(*v));
	r->mid = median(v, n);
	for (uint32_t i = 0; i < n; i++)
		v[i] = fabs(r->v[i] - r->mid);
	r->most = r->mid + 6 * fal_max(median(v, n), 0.05 * r->mid);
}
