/* Channels: a client's begins. */
#include "net/chan_priv.h"
#include "net/dial.h"
#include "net/near.h"

#include <unistd.h>

static void
on_up(void *arg)
{
	fal_chan_connected(arg);
}

static void
on_failed(void *arg, int status)
{
	if (status == UV_EAI_NONAME)
		fal_chan_fail(arg, FAL_ENOENT, "there is no host of this name");
	else if (status == UV_EAI_AGAIN || status == UV_EAI_FAIL)
		fal_chan_fail(arg, FAL_ENOENT, "its name cannot be looked up now");
	else
		fal_chan_fail(arg, FAL_EIO, "%s", uv_strerror(status));
}

static void
on_exited(void *arg)
{
	fal_chan_command_ended(arg);
}

static void
on_nothing_more(void *arg)
{
	fal_chan_ended(arg);
}

/* What the client says first waits in the queue. */
static int
prepare(struct fal_chan *c, const struct fal_addr *addr, const struct fal_client_key *key)
{
	const struct fal_connect_ops ops = { .arg = c,
					     .up = on_up,
					     .failed = on_failed,
					     .exited = on_exited,
					     .closed = on_nothing_more };
	struct fal_buf hello = { 0 };
	int err = fal_connect_new(c->loop, addr, c->io, &ops, &c->connect);
	if (err < 0)
		return err;
	fal_addr_format(addr, c->source);
	err = fal_handshake_begin(key, &hello, &c->handshake);
	if (err == 0)
		err = fal_writer_put_raw(c->writer, hello.p, hello.n);
	fal_buf_free(&hello);
	return err;
}

/* A channel that says its part as soon as its stream is up. */
static int
new_client(uv_loop_t *loop, const struct fal_addr *addr, const struct fal_client_key *key,
	   const struct fal_chan_opt *opt, const struct fal_chan_ops *ops,
	   struct fal_chan **out)
{
	struct fal_chan *c;
	int err = fal_chan_new(loop, opt, ops, &c);
	if (err < 0)
		return err;
	err = prepare(c, addr, key);
	if (err < 0) {
		fal_chan_kill(c);
		return err;
	}
	*out = c;
	return FAL_OK;
}

int
fal_dial(uv_loop_t *loop, const struct fal_addr *addr, const struct fal_client_key *key,
	 const struct fal_chan_opt *opt, const struct fal_chan_ops *ops,
	 struct fal_chan **out)
{
	if (addr->kind == FAL_ADDR_TCP && addr->port == 0)
		return FAL_EINVAL;
	int err = new_client(loop, addr, key, opt, ops, out);
	if (err < 0)
		return err;
	err = fal_connect_begin((*out)->connect);
	if (err < 0)
		fal_chan_fail(*out, FAL_EIO, "%s", uv_strerror(err));
	return FAL_OK;
}

int
fal_dial_near(uv_loop_t *loop, const struct fal_addr *addr,
	      const struct fal_client_key *key, const struct fal_chan_opt *opt,
	      const struct fal_chan_ops *ops, struct fal_chan **out)
{
	const int fd = fal_near_reach(addr);
	if (fd < 0)
		return FAL_ENOENT;
	int err = new_client(loop, addr, key, opt, ops, out);
	if (err < 0) {
		close(fd);
		return err;
	}
	(*out)->near = true;
	fal_chan_hurry(*out, FAL_NEAR_MS);
	err = fal_connect_take((*out)->connect, fd);
	if (err < 0)
		fal_chan_fail(*out, FAL_EIO, "%s", uv_strerror(err));
	return FAL_OK;
}

bool
fal_chan_is_near(const struct fal_chan *c)
{
	return c->near;
}
