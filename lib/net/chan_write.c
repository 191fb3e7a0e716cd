/* Channels: what goes, sealed batch by batch, and the rate at which the socket takes it.
 */
#include "net/chan_priv.h"

#define RATE_BATCH ((size_t)32 << 10)  /* of batches that are at least as large */
#define RATE_BYTES ((uint64_t)1 << 20) /* a rate is taken after so many bytes, */
#define RATE_NS 20000000u              /* or so much time */

static void pump(struct fal_chan *c);

void
fal_chan_drop_batch(struct fal_chan *c)
{
	for (unsigned i = 0; i < c->batch_n; i++)
		fal_piece_free(&c->batch[i]);
	c->batch_n = 0;
	c->batch_own = 0;
}

static size_t
batch_limit(const struct fal_chan *c)
{
	if (c->slow != NULL && fal_slow_batch(c->slow) <= FAL_CHAN_BATCH)
		return fal_slow_batch(c->slow);
	const double two_ms = c->rate * FAL_CHAN_BATCH_S;
	if (c->rate <= 0 || two_ms >= (double)FAL_CHAN_BATCH)
		return FAL_CHAN_BATCH;
	return two_ms < (double)FAL_CHAN_BATCH_MIN ? FAL_CHAN_BATCH_MIN : (size_t)two_ms;
}

bool
fal_chan_acked(const struct fal_chan *c, struct fal_acked *out)
{
	uv_os_fd_t fd;
	return c->slow == NULL && uv_fileno(&c->io.handle, &fd) == 0 &&
	       fal_acked(fd, out);
}

/* Bytes a second of the link itself; 0: not known yet.  TCP tells apart the time in which
 * it waited for the peer to make room: the peer's own work is not the link's.  Of other
 * streams it is what they take. */
static double
link_rate(const struct fal_chan *c)
{
	const uint64_t least_us = 2000; /* the kernel counts milliseconds */
	struct fal_acked now;
	if (!fal_chan_acked(c, &now))
		return c->rate;
	const uint64_t us = now.us - c->acked.us;
	return us < least_us ? 0
			     : (double)(now.bytes - c->acked.bytes) / (double)us * 1e6;
}

bool
fal_chan_room(struct fal_chan *c)
{
	c->crowded = c->writer.queued >= batch_limit(c);
	return !c->crowded;
}

/* Seals what goes next; 0 or an error. */
static int
fill_batch(struct fal_chan *c)
{
	const size_t limit = batch_limit(c);
	const double rate = fal_writer_measuring(&c->writer) ? link_rate(c) : 0;
	c->batch_bytes = 0;
	while (c->batch_n < FAL_CHAN_PIECES && c->batch_bytes < limit) {
		struct fal_piece *piece = &c->batch[c->batch_n];
		const int got = fal_writer_next(&c->writer, rate, piece);
		if (got <= 0)
			return got;
		c->batch_n++;
		c->batch_bytes += piece->n;
		c->batch_own += piece->node != NULL ? piece->n : 0;
	}
	return FAL_OK;
}

/* The socket took a batch: from when it was offered to now is what the link needed. */
static void
measure(struct fal_chan *c)
{
	c->tx += c->batch_bytes;
	/* A small one tells of wake-ups, not of the link. */
	if (c->batch_bytes < RATE_BATCH)
		return;
	c->rate_bytes += c->batch_bytes;
	c->rate_ns += uv_hrtime() - c->batch_begun;
	if (c->rate_bytes < RATE_BYTES && c->rate_ns < RATE_NS)
		return;
	const double rate = (double)c->rate_bytes / ((double)(c->rate_ns + 1) * 1e-9);
	c->rate = c->rate > 0 ? 0.75 * c->rate + 0.25 * rate : rate;
	c->rate_bytes = c->rate_ns = 0;
}

static void
on_written(uv_write_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (status >= 0 && c->state != FAL_CHAN_DEAD) {
		fal_chan_taken(c);
		return;
	}
	c->writing = false;
	fal_chan_drop_batch(c);
	if (c->state != FAL_CHAN_DEAD)
		fal_chan_stream_ended(c, status);
}

void
fal_chan_taken(struct fal_chan *c)
{
	c->writing = false;
	fal_chan_drop_batch(c);
	measure(c);
	pump(c);
}

void
fal_chan_sent(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_FLUSHING)
		pump(c);
}

static void
on_shutdown(uv_shutdown_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (c->state == FAL_CHAN_DEAD)
		return;
	if (status < 0)
		fal_chan_stream_ended(c, UV_EOF);
}

/* Both queues are empty and the socket has all. */
static void
drained(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_FLUSHING && !fal_slow_sent(c->slow))
		return;
	if (c->state == FAL_CHAN_FLUSHING) {
		c->state = FAL_CHAN_LINGERING;
		c->shutdown.data = c;
		if (uv_shutdown(&c->shutdown, &c->io.stream, on_shutdown) < 0)
			fal_chan_fail(c, FAL_OK, "closed");
	} else if (c->undrained && c->state == FAL_CHAN_OPEN) {
		c->undrained = false;
		if (c->ops.on_drain != NULL)
			c->ops.on_drain(c->ops.arg, c);
	}
}

static int
write_batch(struct fal_chan *c)
{
	uv_buf_t bufs[FAL_CHAN_PIECES];
	for (unsigned i = 0; i < c->batch_n; i++) {
		/* libuv's buffers are not const, even to be written from. */
		bufs[i].base = (char *)(uintptr_t)c->batch[i].p;
		bufs[i].len = c->batch[i].n;
	}
	c->write.data = c;
	return uv_write(&c->write, &c->io.stream, bufs, c->batch_n, on_written);
}

static void
pump(struct fal_chan *c)
{
	if (c->writing || c->state == FAL_CHAN_CONNECTING ||
	    c->state >= FAL_CHAN_LINGERING)
		return;
	int err = fill_batch(c);
	if (err == FAL_OK && c->batch_n == 0) {
		if (fal_writer_empty(&c->writer))
			drained(c);
		return;
	}
	c->batch_begun = uv_hrtime();
	if (err == FAL_OK)
		err = c->slow != NULL ? fal_slow_write(c->slow) : write_batch(c);
	if (err < 0) {
		fal_chan_drop_batch(c);
		fal_chan_fail(c, FAL_EIO, "cannot write");
		return;
	}
	c->writing = true;
	if (c->crowded && c->state == FAL_CHAN_OPEN && fal_chan_room(c) &&
	    c->ops.on_room != NULL)
		c->ops.on_room(c->ops.arg, c);
}

static void
on_flush(uv_idle_t *h)
{
	uv_idle_stop(h);
	pump(h->data);
}

void
fal_chan_flush(struct fal_chan *c)
{
	uv_idle_start(&c->flush, on_flush);
}
