/* The rule for repeated messages, in logs and in the trace: the first message comes at
 * once, later ones after pauses that double.  A message tells how many were left out.
 */
#ifndef FAL_BASE_RATELIMIT_H
#define FAL_BASE_RATELIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define FAL_RATELIMIT_S 10       /* seconds of the first pause */
#define FAL_RATELIMIT_MAX_S 3600 /* seconds of the longest pause */

/* {0}: no message yet. */
struct fal_ratelimit {
	double next, pause;
	uint64_t left_out; /* since the last message */
};

/* Counts an event at `now`, in seconds above 0.  True: report the event, and *left_out,
 * the number of events since the last report that were not reported.  Then a pause
 * begins, a short one if there was no event for a whole pause. */
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
