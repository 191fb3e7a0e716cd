/* An emulated slow link before a channel's socket.
 *
 * In each direction the link takes bytes in order, at the link's bandwidth, and delivers
 * the bytes after the link's delay.  Bytes that the link has not taken yet wait in the
 * channel's queues, so control still goes before bulk.  Channels that share a link take
 * turns of a few packets each, as on a real link: messages sent to several channels at
 * once arrive at all of them at the end.
 */
#ifndef FAL_NET_LINK_EMUL_H
#define FAL_NET_LINK_EMUL_H

#include "net/link.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <uv.h>

struct fal_outbox;
struct fal_link_emul; /* opaque */

/* Callbacks.  Each callback except `closed` may close the link; then only `closed`
 * follows. */
struct fal_link_emul_ops {
	void *arg;
	void (*arrived)(void *arg); /* bytes have arrived, or the link can take more */
	void (*taken)(void *arg);   /* the link has taken the batch */
	void (*sent)(void *arg);    /* the socket has all bytes */
	/* The stream has ended, by libuv's error, and takes nothing more. */
	void (*ended)(void *arg, int status);
	void (*failed)(void *arg); /* the socket failed */
	void (*closed)(void *arg); /* after fal_link_emul_close; the link may be freed */
};

/* Makes a link before the stream `to`, kept, which must be up before the first batch;
 * `link` and `ops` are copied.  NULL: the system has no timer for the link. */
struct fal_link_emul *fal_link_emul_new(uv_loop_t *loop, const struct fal_link *link,
					uv_stream_t *to,
					const struct fal_link_emul_ops *ops);
void fal_link_emul_close(struct fal_link_emul *s); /* does nothing with NULL */
void
fal_link_emul_free(struct fal_link_emul *s); /* after fal_link_emul_close; may be NULL */

/* Puts the last n bytes read on the link; `arrived` follows. */
void fal_link_emul_read(struct fal_link_emul *s, size_t n);

/* The stream has ended.  True: bytes are still on the link; `arrived` follows, and after
 * the last byte `ended`. */
bool fal_link_emul_set_end(struct fal_link_emul *s, int status);

/* The bytes read that are still on the link; NULL: 0. */
size_t fal_link_emul_held(const struct fal_link_emul *s);
/* Does the link want no more bytes now?  `no_room`: the channel has no room for more
 * bytes.
 */
bool fal_link_emul_is_full(const struct fal_link_emul *s, bool no_room);

/* Copies the batch onto the link; `taken` follows when the link has taken all.
 * FAL_ENOMEM. */
int fal_link_emul_write(struct fal_link_emul *s, const struct fal_outbox *b);

/* Has the link nearly taken the batch, so that the next batch may come?  Then `taken`
 * does not follow. */
bool fal_link_emul_has_taken(struct fal_link_emul *s);

/* Has the socket taken all bytes?  NULL: true. */
bool fal_link_emul_has_sent(const struct fal_link_emul *s);

/* Bytes to write or read at once, for about 2 ms of the link; SIZE_MAX: no limit. */
size_t fal_link_emul_batch(const struct fal_link_emul *s);

#endif
