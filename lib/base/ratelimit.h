/* The one rule for what is said again and again, in logs and in the trace: the first time
 * at once, then after pauses that double, each time with how often it was not said.  Time
 * is an argument.
 */
#ifndef FAL_BASE_RATELIMIT_H
#define FAL_BASE_RATELIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define FAL_RATELIMIT_S 10       /* seconds of the first pause, */
#define FAL_RATELIMIT_MAX_S 3600 /* … and of the longest */

/* {0}: it was never said. */
struct fal_ratelimit {
	double next, pause;
	uint64_t left_out; /* since it was said last */
};

/* It happens at `now`, in seconds above 0: whether it is to be said.  If so, `*left_out`
 * is how often it was not since the last time, and a pause begins, which is a short one
 * if it has not happened for a whole pause. */
static inline bool
fal_ratelimit(struct fal_ratelimit *s, double now, uint64_t *left_out)
{
	if (now < s->next) {
		s->left_out++;
		return false;
	}
	const double longer =
		2 * s->pause < FAL_RATELIMIT_MAX_S ? 2 * s->pause : FAL_RATELIMIT_MAX_S;
	s->pause = now < s->next + s->pause && s->pause > 0 ? longer : FAL_RATELIMIT_S;
	s->next = now + s->pause;
	*left_out = s->left_out;
	s->left_out = 0;
	return true;
}

#endif
