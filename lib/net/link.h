/* The properties of an emulated link (net/link_emul.h). */
#ifndef FAL_NET_LINK_H
#define FAL_NET_LINK_H

#include <stdint.h>

struct fal_link {
	double bandwidth; /* bytes a second, each way; 0: unlimited */
	/* The delay in ns of bytes taken at `now`, a uv_hrtime(); NULL: none. */
	uint64_t (*delay_ns)(void *arg, uint64_t now);
	void *arg;
	/* For channels that send by one link: the time until which it takes the bytes
	 * given so far, 0 at first; input is not slowed then.  NULL: a link of its own.
	 */
	uint64_t *shared;
};

#endif
