/* The properties of an emulated link (net/link_emul.h). */
#ifndef FAL_NET_LINK_H
#define FAL_NET_LINK_H

#include <stdint.h>

struct fal_link {
	double bandwidth; /* bytes a second, each way; 0: unlimited */
	/* Returns the delay, in ns, of bytes that the link takes at `now`, a uv_hrtime();
	 * NULL: no delay. */
	uint64_t (*delay_ns)(void *arg, uint64_t now);
	void *arg;
	/* For channels that share one link: the time until which the link is busy with
	 * the bytes given so far, 0 at first; a shared link does not slow input.  NULL:
	 * the channel has a link of its own.
	 */
	uint64_t *shared;
};

#endif
