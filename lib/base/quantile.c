/* Quantiles. */
#include "base/quantile.h"

#include <math.h>
#include <stdlib.h>

static int
by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

double
fal_quantile(double *v, size_t n, double q)
{
	if (n == 0)
		return (double)NAN;
	qsort(v, n, sizeof(*v), by_value);
	const double at = q * (double)(n - 1);
	const size_t low = (size_t)at, high = low + 1 < n ? low + 1 : low;
	return v[low] + (at - (double)low) * (v[high] - v[low]);
}
