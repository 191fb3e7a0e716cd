/* Quantiles of a few numbers. */
#ifndef FAL_BASE_QUANTILE_H
#define FAL_BASE_QUANTILE_H

#include <stddef.h>

/* The q-quantile of the n numbers at `v`, of which it changes the order; 0 ≤ q ≤ 1, 0.5
 * is the median.  Between two values it is linear; NAN for n = 0. */
double fal_quantile(double *v, size_t n, double q);

#endif
