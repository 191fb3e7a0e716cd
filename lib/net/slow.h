/* A slow link on purpose: what a channel sends and gets waits as on a line of its own.
 *
 * Each way the line takes bytes at its bandwidth, in their order, and delivers them after
 * its delay.  What the line has not taken yet waits in the channel's queues, so control
 * still goes before bulk.
 */
#ifndef FAL_NET_SLOW_H
#define FAL_NET_SLOW_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct fal_link {
	double bandwidth; /* bytes a second, each way; 0: unlimited */
	/* How long the line needs for what it takes at `now`, a uv_hrtime(). */
	uint64_t (*delay_ns)(void *arg, uint64_t now);
	void *arg;
};

/* The rest is for lib/net. */

struct fal_chan;
struct fal_slow; /* opaque */

/* Puts a line into `c`, whose c->pending it counts up; `link` is kept.  FAL_ENOMEM,
 * FAL_EIO. */
int fal_slow_new(struct fal_chan *c, const struct fal_link *link);
void fal_slow_close(struct fal_slow *s); /* c->pending goes down later; NULL: nothing */
void fal_slow_free(struct fal_slow *s);  /* after that; may be NULL */

/* The n bytes that were read last are on the line; c->rx counts them already.
 * fal_chan_arrived follows. */
void fal_slow_read(struct fal_slow *s, size_t n);

/* The stream ended while bytes were on the line: fal_chan_arrived follows, and when they
 * are there, fal_chan_stream_ended.  False: none are. */
bool fal_slow_ends(struct fal_slow *s, int status);

/* How many of the bytes that were read are still on the line (NULL: 0), and whether it
 * wants no more of them now. */
size_t fal_slow_held(const struct fal_slow *s);
bool fal_slow_full(const struct fal_slow *s);

/* Copies c->batch onto the line; fal_chan_taken follows when it has taken all.
 * FAL_ENOMEM. */
int fal_slow_write(struct fal_slow *s);

/* Whether the socket has all that was written; NULL: true. */
bool fal_slow_sent(const struct fal_slow *s);

/* Bytes to write or read at once, for about 2 ms of the line; SIZE_MAX: any. */
size_t fal_slow_batch(const struct fal_slow *s);

#endif
