/* Handles and options of streams. */
#include "net/stream.h"

#include "base/mem.h"
#include "net/near.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

/* Bytes that TCP may hold unsent: what is there cannot be overtaken. */
#define NOTSENT_LOWAT (256 << 10)

struct fal_stream {
	uv_loop_t *loop;
	bool up;
	union {
		uv_handle_t handle;
		uv_stream_t stream;
		uv_tcp_t tcp;
		uv_pipe_t pipe;
	} io;
	void *owner;
};

struct fal_stream *
fal_stream_new(uv_loop_t *loop, void *owner)
{
	struct fal_stream *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	s->loop = loop;
	s->owner = owner;
	return s;
}

/* What libuv has said of making it. */
static int
made(struct fal_stream *s, int err)
{
	s->up = err >= 0;
	if (s->up)
		s->io.handle.data = s->owner;
	return err;
}

int
fal_stream_tcp(struct fal_stream *s)
{
	return made(s, uv_tcp_init(s->loop, &s->io.tcp));
}

int
fal_stream_pipe(struct fal_stream *s)
{
	return made(s, uv_pipe_init(s->loop, &s->io.pipe, 0));
}

bool
fal_stream_close(struct fal_stream *s, bool reset, uv_close_cb closed)
{
	if (!s->up || uv_is_closing(&s->io.handle))
		return false;
	if (!reset || !fal_stream_is_tcp(s) || uv_tcp_close_reset(&s->io.tcp, closed) < 0)
		uv_close(&s->io.handle, closed);
	return true;
}

void
fal_stream_closed(struct fal_stream *s)
{
	s->up = false;
}

uv_stream_t *
fal_stream_uv(struct fal_stream *s)
{
	return &s->io.stream;
}

bool
fal_stream_is_tcp(const struct fal_stream *s)
{
	return s->io.handle.type == UV_TCP;
}

int
fal_stream_fd(const struct fal_stream *s)
{
	uv_os_fd_t fd;
	return s->up && uv_fileno(&s->io.handle, &fd) == 0 ? fd : -1;
}

int
fal_stream_peer(const struct fal_stream *s, struct sockaddr_storage *out)
{
	int n = sizeof(*out);
	return uv_tcp_getpeername(&s->io.tcp, (struct sockaddr *)out, &n);
}

bool
fal_stream_is_local(const struct fal_stream *s)
{
	static const uint8_t mapped[13] = { [10] = 0xff, 0xff, 127 };
	struct sockaddr_storage ss = { 0 };
	if (!fal_stream_is_tcp(s))
		return true;
	if (fal_stream_peer(s, &ss) < 0)
		return false;
	const struct in6_addr *six = &((const struct sockaddr_in6 *)&ss)->sin6_addr;
	if (ss.ss_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(six) ||
		       memcmp(six, mapped, sizeof(mapped)) == 0;
	return ntohl(((const struct sockaddr_in *)&ss)->sin_addr.s_addr) >> 24 == 127;
}

void
fal_stream_tune(const struct fal_stream *s)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		/* A kernel that does not know it is slower to let control pass. */
		{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT },
		{ IPPROTO_TCP, TCP_KEEPIDLE, FAL_CHAN_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, FAL_CHAN_PROBE_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, FAL_CHAN_PROBES },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, FAL_CHAN_UNHEARD_MS },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
	};
	const int fd = fal_stream_fd(s);
	if (fd < 0 || !fal_stream_is_tcp(s))
		return;
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

bool
fal_stream_is_kin(const struct fal_stream *s)
{
	const int fd = fal_stream_fd(s);
	return fd >= 0 && !fal_stream_is_tcp(s) && fal_near_is_kin(fd);
}
