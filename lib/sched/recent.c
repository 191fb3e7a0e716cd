/* The last measurements of something, kept in order. */
#include "sched/recent.h"

#include "base/least.h"

#include <stdbool.h>

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
	const uint32_t at = r->n++ % FAL_RECENT;
	const bool full = r->n > FAL_RECENT;
	const uint32_t n = full ? FAL_RECENT : r->n;
	double *rank = r->rank;
	uint32_t k = full ? 0 : at;
	/* The place of the one that is dropped. */
	while (full && rank[k] != r->v[at])
		k++;
	for (; k > 0 && rank[k - 1] > x; k--)
		rank[k] = rank[k - 1];
	for (; k + 1 < n && rank[k + 1] < x; k++)
		rank[k] = rank[k + 1];
	rank[k] = x;
	r->v[at] = x;
}

/* Where the k > 0 values of n begin that are nearest to `mid`: they stand in a row, and
 * the farther the row begins from there the farther is one of its ends. */
static uint32_t
nearest(const struct fal_recent *r, uint32_t n, uint32_t k, double mid)
{
	uint32_t low = 0, high = n - k;
	while (low < high) {
		const uint32_t at = (low + high) / 2;
		if (mid - r->rank[at] > r->rank[at + k] - mid)
			low = at + 1;
		else
			high = at;
	}
	return low;
}

/* The median of how far n values are from `mid`. */
static double
median_off(const struct fal_recent *r, uint32_t n, double mid)
{
	const uint32_t k = (n + 1) / 2, low = nearest(r, n, k, mid);
	const double off = fal_max(mid - r->rank[low], r->rank[low + k - 1] - mid);
	if (n % 2 == 1)
		return off;
	/* and the next one */
	double next = low + k < n ? r->rank[low + k] - mid : mid - r->rank[low - 1];
	if (low > 0)
		next = fal_min(next, mid - r->rank[low - 1]);
	return (off + next) / 2;
}

void
fal_recent_judge(struct fal_recent *r)
{
	const uint32_t n = r->n < FAL_RECENT ? r->n : FAL_RECENT, k = n / 2;
	r->mid = n % 2 == 1 ? r->rank[k] : (r->rank[k - 1] + r->rank[k]) / 2;
	r->most = r->mid + 6 * fal_max(median_off(r, n, r->mid), 0.05 * r->mid);
}
