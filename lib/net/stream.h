/* The stream of a channel: a TCP connection, or a pipe. */
#ifndef FAL_NET_STREAM_H
#define FAL_NET_STREAM_H

#include <stdbool.h>
#include <uv.h>

/* TCP, both sides: when the peer has been silent for FAL_CHAN_IDLE_S it is asked, and
 * again every FAL_CHAN_PROBE_S; after FAL_CHAN_PROBES without an answer, and when what
 * was sent is not acknowledged, or not taken, for FAL_CHAN_UNHEARD_MS, the channel ends
 * with FAL_EIO.  So a peer that lost its power is missed after a minute, whoever waits.
 */
#define FAL_CHAN_IDLE_S 30
#define FAL_CHAN_PROBE_S 10
#define FAL_CHAN_PROBES 3
#define FAL_CHAN_UNHEARD_MS 60000

struct fal_stream; /* opaque */

/* Not up yet; `owner` becomes the handle's data.  NULL: out of memory.  It is freed by
 * free() where it is not up, or closed. */
struct fal_stream *fal_stream_new(uv_loop_t *loop, void *owner);

/* Opens it, as TCP or as a pipe; it is then to be closed.  libuv's errors: it is not up.
 */
int fal_stream_tcp(struct fal_stream *s);
int fal_stream_pipe(struct fal_stream *s);
/* Closes it, if it is up and not closing: true, and `closed` follows; `reset`: the peer
 * of a TCP connection is to see no end in order. */
bool fal_stream_close(struct fal_stream *s, bool reset, uv_close_cb closed);
/* It was closed, and may be up once more. */
void fal_stream_closed(struct fal_stream *s);

/* What libuv is to read, write, connect. */
uv_stream_t *fal_stream_uv(struct fal_stream *s);
bool fal_stream_is_tcp(const struct fal_stream *s);
/* The descriptor; -1: none. */
int fal_stream_fd(const struct fal_stream *s);
/* The peer's address; libuv's errors. */
int fal_stream_peer(const struct fal_stream *s, struct sockaddr_storage *out);
/* Is the peer on this machine, as far as its address tells? */
bool fal_stream_is_local(const struct fal_stream *s);
/* Is it a unix socket, and was its other end made by a process of the same user? */
bool fal_stream_is_kin(const struct fal_stream *s);
/* Sets what is said above of TCP; small messages do not wait, and little that is unsent
 * is in the kernel, as it cannot be overtaken. */
void fal_stream_tune(const struct fal_stream *s);

#endif
