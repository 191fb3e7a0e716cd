/* The minimum and the maximum of two numbers, neither of which is NAN: one instruction,
 * where fmin() and fmax() are calls. */
#ifndef FAL_BASE_MINMAX_H
#define FAL_BASE_MINMAX_H

static inline double
fal_min(double a, double b)
{
	return a < b ? a : b;
}

static inline double
fal_max(double a, double b)
{
	return a > b ? a : b;
}

#endif
