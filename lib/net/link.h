/* What a channel's slow line is like (net/slow.h). */
#ifndef FAL_NET_LINK_H
#define FAL_NET_LINK_H

#include <stdint.h>

struct fal_link {
	double bandwidth; /* bytes a second, each way; 0: unlimited */
	/* How long the line needs for what it takes at `now`, a uv_hrtime(). */
	uint64_t (*delay_ns)(void *arg, uint64_t now);
	void *arg;
};

#endif
