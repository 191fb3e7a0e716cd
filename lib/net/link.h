/* What a channel's slow line is like (net/slow.h). */
#ifndef FAL_NET_LINK_H
#define FAL_NET_LINK_H

#include <stdint.h>

struct fal_link {
	double bandwidth; /* bytes a second, each way; 0: unlimited */
	/* How long the line needs for what it takes at `now`, a uv_hrtime(); NULL: no
	 * time. */
	uint64_t (*delay_ns)(void *arg, uint64_t now);
	void *arg;
	/* Channels that send by one line: until when it takes what they gave it, 0 at
	 * first; what comes in is not slowed then.  NULL: each has a line of its own. */
	uint64_t *shared;
};

#endif
