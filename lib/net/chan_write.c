/* Channels: what goes, sealed batch by batch, and the rate at which the socket takes it.
 */
#include "net/chan_priv.h"

static void pump(struct fal_chan *c);

static size_t
batch_limit(const struct fal_chan *c)
{
	const size_t slow = c->slow != NULL ? fal_slow_batch(c->slow) : SIZE_MAX;
	return slow <= FAL_OUTBOX_MAX ? slow : fal_outbox_limit(c->out);
}

bool
fal_chan_acked(const struct fal_chan *c, struct fal_acked *out)
{
	const int fd = fal_stream_fd(c->io);
	return c->slow == NULL && fd >= 0 && fal_acked(fd, out);
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
		return fal_outbox_rate(c->out);
	const uint64_t us = now.us - c->acked.us;
	return us < least_us ? 0
			     : (double)(now.bytes - c->acked.bytes) / (double)us * 1e6;
}

bool
fal_chan_room(struct fal_chan *c)
{
	c->crowded = fal_writer_queued(c->writer) >= batch_limit(c) ||
		     c->bulk >= FAL_OUTBOX_MAX;
	return !c->crowded;
}

/* Seals what goes next; 0 or an error. */
static int
fill_batch(struct fal_chan *c)
{
	const double rate = fal_writer_measuring(c->writer) ? link_rate(c) : 0;
	return fal_outbox_fill(c->out, c->writer, batch_limit(c), rate);
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
	fal_outbox_drop(c->out);
	if (c->state != FAL_CHAN_DEAD)
		fal_chan_stream_ended(c, status);
}

void
fal_chan_taken(struct fal_chan *c)
{
	c->writing = false;
	fal_outbox_taken(c->out);
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

/* The socket has all that could leave. */
static void
drained(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_FLUSHING && !fal_slow_sent(c->slow))
		return;
	if (c->state == FAL_CHAN_FLUSHING) {
		c->state = FAL_CHAN_LINGERING;
		c->shutdown.data = c;
		if (uv_shutdown(&c->shutdown, fal_stream_uv(c->io), on_shutdown) < 0)
			fal_chan_fail(c, FAL_OK, "closed");
	} else if (c->undrained && c->state == FAL_CHAN_OPEN) {
		c->undrained = false;
		if (c->ops.on_drain != NULL)
			c->ops.on_drain(c->ops.arg, c);
	}
}

/* A batch could not be written, or not be made. */
static void
lost_batch(struct fal_chan *c)
{
	fal_outbox_drop(c->out);
	fal_chan_fail(c, FAL_EIO, "cannot write");
}

/* The line has room for what is soon over, as a socket has. */
static int
try_line(struct fal_chan *c)
{
	int err = fal_slow_write(c->slow, c->out);
	c->writing = err == FAL_OK && !fal_slow_took(c->slow);
	if (err == FAL_OK && !c->writing)
		fal_outbox_taken(c->out);
	return err;
}

/* What the socket takes of the batch at once. */
static void
try_batch(struct fal_chan *c)
{
	uv_buf_t bufs[FAL_OUTBOX_PIECES];
	const unsigned n = fal_outbox_bufs(c->out, bufs);
	const int taken = uv_try_write(fal_stream_uv(c->io), bufs, n);
	if (taken > 0)
		fal_outbox_took(c->out, (size_t)taken);
}

/* Seals a batch, which leaves as far as there is room: 1; 0: there is nothing for it; or
 * an error. */
static int
next_batch(struct fal_chan *c)
{
	int err = fill_batch(c);
	if (err < 0 || fal_outbox_bytes(c->out) == 0)
		return err;
	fal_outbox_offered(c->out);
	if (c->slow != NULL)
		err = try_line(c);
	else
		try_batch(c);
	return err < 0 ? err : 1;
}

/* The rest of the batch follows when there is room again. */
static int
write_rest(struct fal_chan *c)
{
	uv_buf_t bufs[FAL_OUTBOX_PIECES];
	const unsigned n = fal_outbox_bufs(c->out, bufs);
	c->write.data = c;
	const int err = uv_write(&c->write, fal_stream_uv(c->io), bufs, n, on_written);
	c->writing = err == 0;
	return err;
}

void
fal_chan_offer(struct fal_chan *c)
{
	int got = 0;
	if (c->writing || c->state != FAL_CHAN_OPEN || c->fill_err < 0)
		return;
	if (fal_outbox_bytes(c->out) > 0)
		try_batch(c);
	if (fal_outbox_bytes(c->out) == 0)
		got = next_batch(c);
	c->fill_err = got < 0 ? got : FAL_OK;
	c->undrained |= got > 0;
	if (got != 0)
		fal_chan_flush(c); /* of what is left */
}

static void
pump(struct fal_chan *c)
{
	if (c->writing || c->state == FAL_CHAN_CONNECTING ||
	    c->state >= FAL_CHAN_LINGERING)
		return;
	c->bulk = 0;
	int got = c->fill_err;
	if (got == FAL_OK)
		got = fal_outbox_bytes(c->out) > 0 ? 1 : next_batch(c);
	if (got > 0 && !c->writing && fal_outbox_bytes(c->out) > 0)
		got = write_rest(c) == 0 ? 1 : FAL_EIO;
	if (got < 0) {
		lost_batch(c);
		return;
	}
	if (c->crowded && c->state == FAL_CHAN_OPEN && fal_chan_room(c) &&
	    c->ops.on_room != NULL)
		c->ops.on_room(c->ops.arg, c);
	/* Who was called may have offered something, of which there is a rest. */
	if (c->writing || fal_outbox_bytes(c->out) > 0 || c->fill_err < 0 ||
	    c->state == FAL_CHAN_DEAD)
		return;
	if (fal_writer_idle(c->writer))
		drained(c);
	else if (got > 0)
		fal_chan_flush(c); /* others have their turn before that */
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
