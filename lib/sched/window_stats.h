/* Windows over the last measurements of a quantity: its typical value, and its limit. */
#ifndef FAL_SCHED_WINDOW_STATS_H
#define FAL_SCHED_WINDOW_STATS_H

#include <stdint.h>

enum { FAL_WINDOW = 16 }; /* values in a window */

/* {0} is empty and valid. */
struct fal_window {
	double v[FAL_WINDOW]; /* the k-th value ever, from 0, at k modulo FAL_WINDOW */
	uint32_t n;           /* values ever */
	double median, limit; /* set by fal_window_judge; 0: not judged yet */
};

/* The least of the last three times of an action.  A single long time tells nothing of
 * the next time.  {0} is empty and valid. */
struct fal_window_min {
	double v[3];    /* the k-th value ever, from 0, at k modulo 3 */
	uint32_t n;     /* values ever; set this to 0, and the next value replaces all */
	double least;   /* the least of the last three; 0: unknown */
	double largest; /* the largest of the last three */
};

/* Adds `s`, finite. */
void fal_window_min_add(struct fal_window_min *l, double s);

/* Adds `x`, finite, in the place of the oldest value. */
void fal_window_add(struct fal_window *r, double x);

/* The value that was added `ago` values before the last one; ago < n and < FAL_WINDOW. */
static inline double
fal_window_ago(const struct fal_window *r, uint32_t ago)
{
	return r->v[(r->n - 1 - ago) % FAL_WINDOW];
}

/* Sets `median`, and `limit` to median + 6·max(MAD, 5 % of the median), where MAD is the
 * median distance from the median.  n > 0. */
void fal_window_judge(struct fal_window *r);

#endif
