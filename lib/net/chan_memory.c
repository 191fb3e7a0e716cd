/* Channels over a unix socket: memory that both ends share.
 *
 * The server offers a shelf and a ring, whose descriptors travel beside the stream; the
 * client maps them and says so.  Who hands descriptors on, and is not at the other end
 * itself, as ssh and socat, loses them: then all goes over the stream, as ever. */
#include "net/chan_priv.h"

#include "wire/msg.h"

#include <fcntl.h>
#include <unistd.h>

void
fal_chan_drop_fds(struct fal_chan *c)
{
	while (c->fds > 0)
		close(c->fd[--c->fds]);
}

/* --- the server's end --- */

bool
fal_chan_may_share(const struct fal_chan *c)
{
	return c->server && c->state == FAL_CHAN_OPEN && c->slow == NULL && !c->lent &&
	       fal_stream_is_kin(c->io);
}

int
fal_chan_lend(struct fal_chan *c, const struct fal_shelf *shelf)
{
	const struct fal_memory m = { .word = FAL_MEMORY_OFFER,
				      .shelf = fal_shelf_bytes(shelf),
				      .ring = fal_ring_bytes(fal_shelf_bytes(shelf)) };
	struct fal_ring *ring;
	if (!fal_chan_may_share(c) || fal_ring_new(m.ring, &ring) < 0)
		return FAL_OK; /* it is only a quicker way */
	fal_reader_ring(c->reader, ring);
	c->lent = true;
	/* The ring's alone will not be taken. */
	const int seen = fcntl(fal_shelf_fd(shelf), F_DUPFD_CLOEXEC, 0);
	if (seen >= 0)
		c->fd[c->fds++] = seen;
	c->fd[c->fds++] = fal_ring_hand(ring);
	int err = fal_writer_put_memory(c->writer, &m, false);
	if (err == FAL_OK)
		fal_chan_flush(c);
	return err;
}

bool
fal_chan_lent(const struct fal_chan *c)
{
	return c->lent;
}

bool
fal_chan_shares(const struct fal_chan *c)
{
	return c->shares;
}

int
fal_chan_try_write(struct fal_chan *c, const uv_buf_t *bufs, unsigned n)
{
	if (!c->server || c->fds == 0)
		return uv_try_write(fal_stream_uv(c->io), bufs, n);
	/* Once: else the offer comes without them, and is not taken. */
	const int taken = fal_stream_hand(c->io, bufs, n, c->fd, c->fds);
	fal_chan_drop_fds(c);
	return taken;
}

/* --- the client's end --- */

void
fal_chan_take_fds(struct fal_chan *c)
{
	int fd;
	while ((fd = fal_stream_take(c->io)) >= 0) {
		/* Nobody else's, before the peer is known. */
		if (c->server || c->state != FAL_CHAN_OPEN || c->fds == FAL_CHAN_FDS)
			close(fd);
		else
			c->fd[c->fds++] = fd;
	}
}

/* Maps what was offered; nothing that fails here matters. */
static bool
map(struct fal_chan *c, const struct fal_memory *m)
{
	struct fal_shelf_view *shelf;
	struct fal_ring_end *ring;
	if (c->slow != NULL || c->ops.on_missed == NULL || c->fds < FAL_CHAN_FDS ||
	    !fal_stream_is_kin(c->io) || fal_shelf_see(c->fd[0], m->shelf, &shelf) < 0)
		return false;
	if (fal_ring_join(c->fd[1], m->ring, &ring) < 0) {
		fal_shelf_view_free(shelf);
		return false;
	}
	fal_reader_shelf(c->reader, shelf);
	fal_writer_ring(c->writer, ring);
	return true;
}

static int
take_offer(struct fal_chan *c, const struct fal_memory *m)
{
	const struct fal_memory taken = { .word = FAL_MEMORY_TAKEN };
	if (c->server || c->shares)
		return FAL_ESTATE;
	c->shares = map(c, m);
	fal_chan_drop_fds(c);
	if (!c->shares)
		return FAL_OK;
	int err = fal_writer_put_memory(c->writer, &taken, false);
	if (err == FAL_OK)
		fal_chan_flush(c);
	return err;
}

int
fal_chan_on_memory(struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct fal_memory m;
	int err = fal_memory_get(p, n, &m);
	if (err < 0 || m.word == FAL_MEMORY_OFFER)
		return err < 0 ? err : take_offer(c, &m);
	if (!c->lent || c->shares)
		return FAL_ESTATE; /* nothing was offered, or it was taken already */
	c->shares = true;
	return FAL_OK;
}
