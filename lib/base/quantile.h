/* Quantiles of a few numbers. */
#ifndef FAL_BASE_QUANTILE_H
#define FAL_BASE_QUANTILE_H

#include <stddef.h>

/* The q-quantile of the n numbers at `v`, 0 ≤ q ≤ 1; 0.5 is the median.  Reorders the
 * numbers.  Linear between two values; NAN for n = 0. */
double fal_quantile(double *v, size_t n, double q);

/* Reorders the n numbers at `v` so that v[nth] is as in a sorted array, no earlier number
 * is larger, and no later number is less; returns v[nth].  nth < n.  An adversary can
 * choose numbers that take O(n·n). */
double fal_nth_least(double *v, size_t n, size_t nth);

#endif
