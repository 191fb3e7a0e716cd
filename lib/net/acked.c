/* Reads TCP_INFO by Linux's own header, as libc's header lacks these members.  One file
 * cannot include Linux's header and libc's, which libuv includes: hence this file. */
#include "net/acked.h"

#include <linux/tcp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <sys/socket.h>

bool
fal_acked(int fd, struct fal_acked *out)
{
	struct tcp_info t;
	socklen_t n = sizeof(t);
	if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &t, &n) < 0 ||
	    n < offsetof(struct tcp_info, tcpi_sndbuf_limited))
		return false;
	*out = (struct fal_acked){ t.tcpi_bytes_acked,
				   t.tcpi_busy_time - t.tcpi_rwnd_limited };
	return true;
}
