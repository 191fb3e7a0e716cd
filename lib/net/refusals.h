/* Log lines about refused handshakes: a line at once, then, after pauses that double
 * (base/ratelimit.h), a line for all refusals since the line before.  So a client that
 * comes often costs only a count, and still the log counts all refusals.  Time is an
 * argument; nothing is allocated.
 */
#ifndef FAL_NET_REFUSALS_H
#define FAL_NET_REFUSALS_H

#include "base/err.h"
#include "base/ratelimit.h"

#include <stdbool.h>
#include <stdint.h>

#define FAL_REFUSALS_SOURCES 1024 /* counted sources */

/* {0}: no refusal yet. */
struct fal_refusals {
	struct fal_ratelimit limit; /* of lines */
	double logged_at;           /* time of the last line */
	uint64_t n;                 /* refusals since then */
	uint64_t source[FAL_REFUSALS_SOURCES];
	unsigned sources;     /* sources of those n */
	char last_source[64]; /* source and reason of the last refusal */
	char last_why[160];
};

/* Counts a refusal of `source`; both texts are borrowed. */
void fal_refusals_add(struct fal_refusals *r, const char *source, const char *why);

/* Is a line due at `now`, in seconds?  Then sets `line`, and counts the line as logged. A
 * line is due for refusals since the last line once the pause is over, or, with `over`,
 * at the end. */
bool fal_refusals_due(struct fal_refusals *r, double now, bool over,
		      struct fal_diag *line);

#endif
