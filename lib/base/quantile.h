/* Quantiles of a few numbers. */
#ifndef FAL_BASE_QUANTILE_H
#define FAL_BASE_QUANTILE_H

#include <stddef.h>

/* The q-quantile of the n numbers at `v`, which are reordered; 0 ≤ q ≤ 1, 0.5 is the
 * median. Linear between two values; NAN for n = 0. */
double fal_quantile(double *v, size_t n, double q);

/* The nth least, from 0, of n > nth numbers at `v`, which are reordered so that it stands
 * at index nth and no later number is less.  With an adversary's numbers it may take n *
 * n. */
double fal_nth_least(double *v, size_t n, size_t nth);

#endif
