/* An emulated slow link before a channel's socket.
 *
 * In each direction the link takes bytes at its bandwidth, in their order, and delivers
 * them after its delay.  Bytes that the link has not taken yet wait in the channel's
 * queues, so control still goes before bulk.  Channels that share a link take turns of a
 * few packets each, as on a real link: messages sent to several channels at once arrive
 * at all of them at the end.
 */
#ifndef FAL_NET_SLOW_H
#define FAL_NET_SLOW_H

#include "net/link.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct fal_outbox;
struct fal_slow; /* opaque */

/* Callbacks.  Each but `closed` may close the link, and then only `closed` follows. */
struct fal_slow_ops {
	void *arg;
	void (*arrived)(void *arg); /* bytes have arrived, or the link can take more */
	void (*taken)(void *arg);   /* the link has taken the batch */
	void (*sent)(void *arg);    /* the socket has all bytes */
	/* The stream has ended, by libuv's error, and takes nothing more. */
	void (*ended)(void *arg, int status);
	void (*failed)(void *arg); /* the socket failed */
	void (*closed)(void *arg); /* after fal_slow_close; the link may be freed */
};

/* Makes a link before the stream `to`, kept, which must be up before the first batch;
 * `link` and `ops` are copied.  NULL: the system has no timer for it. */
struct fal_slow *fal_slow_new(uv_loop_t *loop, const struct fal_link *link,
			      uv_stream_t *to, const struct fal_slow_ops *ops);
void fal_slow_close(struct fal_slow *s); /* does nothing with NULL */
void fal_slow_free(struct fal_slow *s);  /* after fal_slow_close; may be NULL */

/* Puts the n bytes read last on the link; `arrived` follows. */
void fal_slow_read(struct fal_slow *s, size_t n);

/* The stream has ended.  True: bytes are still on the link; `arrived` follows, and after
 * the last byte `ended`. */
bool fal_slow_set_end(struct fal_slow *s, int status);

/* The bytes read that are still on the link; NULL: 0. */
size_t fal_slow_held_bytes(const struct fal_slow *s);
/* Does the link want no more bytes now?  `no_room`: the channel has no room for any. */
bool fal_slow_is_full(const struct fal_slow *s, bool no_room);

/* Copies the batch onto the link; `taken` follows when the link has taken all.
 * FAL_ENOMEM. */
int fal_slow_write(struct fal_slow *s, const struct fal_outbox *b);

/* Has the link nearly taken the batch, so that the next may come?  Then `taken` does not
 * follow. */
bool fal_slow_has_taken(struct fal_slow *s);

/* Has the socket all bytes written?  NULL: true. */
bool fal_slow_has_sent(const struct fal_slow *s);

/* Bytes to write or read at once, for about 2 ms of the link; SIZE_MAX: no limit. */
size_t fal_slow_batch_limit(const struct fal_slow *s);

#endif
