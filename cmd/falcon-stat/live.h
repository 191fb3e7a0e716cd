/* The trace of a running job, by FOLLOW from its coordinator (falcon-protocol(7)). */
#ifndef FALCON_STAT_LIVE_H
#define FALCON_STAT_LIVE_H

#include "net/addr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct stat_live {
	const struct fal_addr *addr;
	const char *key; /* file; NULL: where fal_cli_key looks */
	/* Goes on after what there is, until on_bytes ends it, the job does, or SIGINT.
	 */
	bool follow;
	/* The next bytes of the trace, borrowed for the call: lines, perhaps in pieces.
	 * Returns -1 to go on, else the exit code to end with. */
	int (*on_bytes)(void *arg, const void *p, size_t n);
	/* With `follow`: the trace has ended, and on_bytes has not ended it. */
	void (*on_end)(void *arg);
	void *arg;
};

/* Dials and reads; ignores SIGPIPE from then on.  Returns an exit code; what went wrong
 * here, not in on_bytes, has been said on stderr. */
int stat_live(const struct stat_live *live);

#endif
