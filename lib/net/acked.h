/* What a TCP peer acknowledged, and how long the link needed for that. */
#ifndef FAL_NET_ACKED_H
#define FAL_NET_ACKED_H

#include <stdbool.h>
#include <stdint.h>

struct fal_acked {
	uint64_t bytes;
	uint64_t us; /* with something to send that the peer had room for */
};

/* So far, of the socket `fd`; false: it is no TCP, or the kernel (before Linux 4.10) does
 * not tell. */
bool fal_acked(int fd, struct fal_acked *out);

#endif
