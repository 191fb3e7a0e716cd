/* Quantiles of a few numbers. */
#ifndef FAL_BASE_QUANTILE_H
#define FAL_BASE_QUANTILE_H

#include <stddef.h>

/* The q-quantile of the n numbers at `v`, of which it changes the order; 0 ≤ q ≤ 1, 0.5
 * is the median.  Between two values it is linear; NAN for n = 0. */
double fal_quantile(double *v, size_t n, double q);

/* The nth least of n > nth numbers at `v`, from 0, which is where sorting would put it:
 * nothing behind it is less.  Of numbers that somebody else orders it may take n * n. */
double fal_nth_least(double *v, size_t n, size_t nth);

#endif
