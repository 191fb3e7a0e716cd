/* What is said of those who are refused: a line at once, then one in FAL_REFUSALS_S for
 * all that came since.  Whoever comes often costs a count, and is never silent for ever.
 * Time is an argument; nothing is allocated.
 */
#ifndef FAL_NET_REFUSALS_H
#define FAL_NET_REFUSALS_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

#define FAL_REFUSALS_S 10         /* seconds between two lines */
#define FAL_REFUSALS_SOURCES 1024 /* that are told apart */

/* {0}: nobody came yet. */
struct fal_refusals {
	bool begun;
	double said; /* when a line was said last */
	uint64_t n;  /* since then */
	uint64_t source[FAL_REFUSALS_SOURCES];
	unsigned sources; /* of those n */
	char last[64];    /* the last one's source, and the reason */
	char why[160];
};

/* One more, from `source`, was refused; both are borrowed. */
void fal_refusals_add(struct fal_refusals *r, const char *source, const char *why);

/* Whether something is to be said at `now`, in seconds, which is then in `line` and
 * counts as said: of those that came since the last line, when FAL_REFUSALS_S have
 * passed, or `over`, after which nobody asks any more. */
bool fal_refusals_due(struct fal_refusals *r, double now, bool over,
		      struct fal_diag *line);

#endif
