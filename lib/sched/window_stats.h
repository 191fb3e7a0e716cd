/* The last measurements of something: what is typical of them, and what is late. */
#ifndef FAL_SCHED_WINDOW_STATS_H
#define FAL_SCHED_WINDOW_STATS_H

#include <stdint.h>

enum { FAL_WINDOW = 16 }; /* so many are kept */

/* {0} has none and is valid. */
struct fal_window {
	double v[FAL_WINDOW]; /* the k-th ever, from 0, at k modulo FAL_WINDOW */
	uint32_t n;           /* ever */
	double mid, most;     /* what fal_window_judge found; 0: nothing yet */
};

/* What was measured last of something that now and then takes long once, which says
 * nothing of the next time.  {0} has nothing and is valid. */
struct fal_window_min {
	double v[3]; /* the k-th ever, from 0, at k modulo 3 */
	uint32_t n;  /* ever; 0 at any time: forget them when there is another */
	double s;    /* what is believed; 0: nothing is known */
	double most; /* what it may take */
};

/* Takes in `s`, finite: the least of the last three is believed, and it may take what the
 * longest took. */
void fal_window_min_add(struct fal_window_min *l, double s);

/* Takes in `x`, finite, for the oldest one. */
void fal_window_add(struct fal_window *r, double x);

/* What was taken in `ago` times before the last, ago < n and < FAL_WINDOW. */
static inline double
fal_window_ago(const struct fal_window *r, uint32_t ago)
{
	return r->v[(r->n - 1 - ago) % FAL_WINDOW];
}

/* Sets mid, the median, and most: mid + 6·max(MAD, 5 % of mid), where MAD is the median
 * of how far they are from mid.  n > 0. */
void fal_window_judge(struct fal_window *r);

#endif
