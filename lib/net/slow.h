/* A slow link on purpose: what a channel sends and gets waits as on a line of its own.
 *
 * Each way the line takes bytes at its bandwidth, in their order, and delivers them after
 * its delay.  What the line has not taken yet waits in the channel's queues, so control
 * still goes before bulk.  Channels that share a line take turns, with a few packets
 * each, as on a real one: what several are sent at once comes to all of them in the end.
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

/* What becomes of the line; each but `closed` may close it, and then nothing else is
 * called. */
struct fal_slow_ops {
	void *arg;
	void (*arrived)(void *arg); /* bytes, or it can take more of them */
	void (*taken)(void *arg);   /* it has taken the batch */
	void (*sent)(void *arg);    /* the socket has all of them */
	/* The stream has ended, by libuv's error; it takes nothing more. */
	void (*ended)(void *arg, int status);
	void (*failed)(void *arg);
	void (*closed)(void *arg); /* after fal_slow_close; it may be freed */
};

/* A line before the stream `to`, kept, which is to be up before the first batch; `link`
 * and `ops` are copied.  NULL: the system has no timer for it. */
struct fal_slow *fal_slow_new(uv_loop_t *loop, const struct fal_link *link,
			      uv_stream_t *to, const struct fal_slow_ops *ops);
void fal_slow_close(struct fal_slow *s); /* NULL: nothing */
void fal_slow_free(struct fal_slow *s);  /* after that; may be NULL */

/* The n bytes that were read last are on the line; `arrived` follows. */
void fal_slow_read(struct fal_slow *s, size_t n);

/* The stream ended while bytes were on the line: `arrived` follows, and when they are
 * there, `ended`.  False: none are. */
bool fal_slow_ends(struct fal_slow *s, int status);

/* How many of the bytes that were read are still on the line (NULL: 0), and whether it
 * wants no more of them now; `stuffed`: there is no room for any. */
size_t fal_slow_held(const struct fal_slow *s);
bool fal_slow_full(const struct fal_slow *s, bool stuffed);

/* Copies the batch onto the line; `taken` follows when it has taken all.  FAL_ENOMEM. */
int fal_slow_write(struct fal_slow *s, const struct fal_outbox *b);

/* Whether the line is as good as through with it, so that the next batch may come: then
 * `taken` does not follow. */
bool fal_slow_took(struct fal_slow *s);

/* Whether the socket has all that was written; NULL: true. */
bool fal_slow_sent(const struct fal_slow *s);

/* Bytes to write or read at once, for about 2 ms of the line; SIZE_MAX: any. */
size_t fal_slow_batch(const struct fal_slow *s);

#endif
