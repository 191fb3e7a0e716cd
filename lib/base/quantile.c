/* Quantiles. */
#include "base/quantile.h"

#include <math.h>
#include <stdlib.h>

static int
compare_doubles(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* Hoare's FIND. */
double
fal_nth_least(double *v, size_t n, size_t nth)
{
	const int at = (int)nth;
	for (int from = 0, to = (int)n - 1; from < to;) {
		const double x = v[at];
		int i = from, k = to;
		while (i <= k) {
			while (v[i] < x)
				i++;
			while (v[k] > x)
				k--;
			if (i > k)
				break;
			const double was = v[i];
			v[i++] = v[k];
			v[k--] = was;
		}
		from = k < at ? i : from;
		to = at < i ? k : to;
	}
	return v[at];
}

double
fal_quantile(double *v, size_t n, double q)
{
	enum { FEW = 256 }; /* for more numbers O(n·n) would be too slow */
	if (n == 0)
		return (double)NAN;
	const double at = q * (double)(n - 1);
	const size_t low = (size_t)at;
	if (n <= FEW)
		fal_nth_least(v, n, low);
	else
		qsort(v, n, sizeof(*v), compare_doubles);
	double next = low + 1 < n ? v[low + 1] : v[low];
	for (size_t i = low + 1; i < n; i++)
		next = v[i] < next ? v[i] : next;
	return v[low] + (at - (double)low) * (next - v[low]);
}
