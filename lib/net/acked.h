/* The bytes that a TCP peer has acknowledged, and the time that the link needed for
 * them. */
#ifndef FAL_NET_ACKED_H
#define FAL_NET_ACKED_H

#include <stdbool.h>
#include <stdint.h>

struct fal_acked {
	uint64_t bytes;
	uint64_t us; /* time with bytes to send, and room at the peer */
};

/* Reads the figures of the socket `fd`.  False: the socket is not TCP, or the kernel
 * (before Linux 4.10) does not tell. */
bool fal_acked(int fd, struct fal_acked *out);

#endif
