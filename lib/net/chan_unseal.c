/* Channels over a unix socket: from when on their records need not be sealed.
 *
 * The client says which process it is, and the server, if its kernel has that at the
 * other end, which one it is itself.  If the same holds there, the client sends an empty
 * unseal record, the last sealed one, and then the server does.  A relay between the two,
 * as ssh and socat, is another process than either: then all stays sealed.  So a liar
 * unseals no session but its own. */
#include "net/chan_priv.h"
#include "net/near.h"

static int
put(struct fal_chan *c, const uint8_t *p, size_t n)
{
	int err = fal_writer_put_unseal(c->writer, p, n);
	if (err == FAL_OK)
		fal_chan_flush(c);
	return err;
}

static int
name_self(struct fal_chan *c)
{
	uint8_t self[FAL_PROCESS_BYTES];
	if (!fal_near_self(self))
		return FAL_OK; /* it is only a quicker way */
	c->named = true;
	return put(c, self, sizeof(self));
}

static bool
may_unseal(const struct fal_chan *c)
{
	return c->unseals && c->slow == NULL && fal_stream_is_kin(c->io);
}

int
fal_chan_name_self(struct fal_chan *c)
{
	return !c->server && may_unseal(c) ? name_self(c) : FAL_OK;
}

/* Seals nothing more that is sent from now on. */
static int
unseal(struct fal_chan *c)
{
	c->unsealed = true;
	return put(c, NULL, 0);
}

/* The peer says which process it is: once, a server as an answer. */
static int
on_name(struct fal_chan *c, const uint8_t *p)
{
	if (c->knows_peer || (!c->server && !c->named))
		return FAL_ESTATE;
	c->knows_peer = true;
	if (!may_unseal(c) || !fal_near_is(fal_stream_fd(c->io), p))
		return FAL_OK;
	return c->server ? name_self(c) : unseal(c);
}

/* The peer seals nothing more: a client does so first, once the server has answered, then
 * the server. */
static int
on_unsealed(struct fal_chan *c)
{
	if (!c->named || c->unsealed == c->server || fal_reader_is_unsealed(c->reader))
		return FAL_ESTATE;
	fal_reader_unseal(c->reader);
	return c->server ? unseal(c) : FAL_OK;
}

int
fal_chan_on_unseal(struct fal_chan *c, const uint8_t *p, size_t n)
{
	if (n != 0 && n != FAL_PROCESS_BYTES)
		return FAL_EFORMAT;
	return n != 0 ? on_name(c, p) : on_unsealed(c);
}

bool
fal_chan_is_unsealed(const struct fal_chan *c)
{
	return c->unsealed;
}
