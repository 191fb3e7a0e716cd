/* Connecting by TCP, Unix socket or command. */
#include "net/dial.h"

#include "base/mem.h"
#include "net/chan_priv.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

/* What connecting needs, until the channel is gone. */
struct fal_dialling {
	struct fal_addr addr;
	uv_getaddrinfo_t resolve;
	uv_connect_t connect;
	struct addrinfo *all, *next; /* results, and the next one to be tried */
	struct fal_child *child;     /* of an exec address, while it runs */
	int exit_status;             /* after that */
};

/* The process lives as long as it likes, the channel too. */
struct fal_child {
	uv_process_t process;
	struct fal_chan *chan; /* NULL when that is gone */
};

static void connect_next(struct fal_chan *c);

/* The stream of the last attempt is closed. */
static void
on_retry(uv_handle_t *h)
{
	struct fal_chan *c = h->data;
	if (c->state == FAL_CHAN_DEAD) {
		fal_chan_ended(c);
		return;
	}
	c->pending--;
	fal_stream_closed(c->io);
	connect_next(c);
}

static void
connect_done(struct fal_chan *c, int status)
{
	if (status == 0)
		fal_chan_connected(c);
	else if (c->dialling->next != NULL)
		fal_stream_close(c->io, false, on_retry);
	else
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(status));
}

static void
on_connect(uv_connect_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (c->state != FAL_CHAN_DEAD)
		connect_done(c, status);
}

static void
connect_next(struct fal_chan *c)
{
	struct fal_dialling *d = c->dialling;
	const struct addrinfo *ai = d->next;
	int err = fal_stream_tcp(c->io);
	if (err < 0) {
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(err));
		return;
	}
	c->pending++;
	d->next = ai->ai_next;
	d->connect.data = c;
	err = uv_tcp_connect(&d->connect, (uv_tcp_t *)fal_stream_uv(c->io), ai->ai_addr,
			     on_connect);
	if (err < 0)
		connect_done(c, err);
}

static void
on_resolved(uv_getaddrinfo_t *req, int status, struct addrinfo *res)
{
	struct fal_chan *c = req->data;
	c->dialling->all = c->dialling->next = res;
	if (c->state != FAL_CHAN_DEAD && status < 0)
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(status));
	else if (c->state != FAL_CHAN_DEAD)
		connect_next(c);
	fal_chan_ended(c);
}

static int
dial_tcp(struct fal_chan *c)
{
	struct fal_dialling *d = c->dialling;
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM };
	char port[8];
	snprintf(port, sizeof(port), "%u", d->addr.port);
	d->resolve.data = c;
	const int err = uv_getaddrinfo(c->loop, &d->resolve, on_resolved, d->addr.what,
				       port, &hints);
	c->pending += err == 0;
	return err;
}

static int
dial_unix(struct fal_chan *c)
{
	const int err = fal_stream_pipe(c->io);
	if (err < 0)
		return err;
	c->pending++;
	c->dialling->connect.data = c;
	uv_pipe_connect(&c->dialling->connect, (uv_pipe_t *)fal_stream_uv(c->io),
			c->dialling->addr.what, on_connect);
	return 0;
}

static void
on_child_closed(uv_handle_t *h)
{
	free(h->data);
}

static void
on_child_exit(uv_process_t *p, int64_t status, int sig)
{
	struct fal_child *child = p->data;
	struct fal_chan *c = child->chan;
	if (c != NULL) {
		c->dialling->child = NULL;
		c->dialling->exit_status = sig != 0 ? 128 + sig : (int)status;
		fal_chan_command_ended(c);
	}
	uv_close((uv_handle_t *)p, on_child_closed);
}

/* /bin/sh -c COMMAND with `fd` as stdin and stdout. */
static int
spawn(struct fal_chan *c, int fd)
{
	struct fal_buf command = { 0 };
	struct fal_child *child = fal_calloc(1, sizeof(*child));
	if (child == NULL || fal_addr_command(&c->dialling->addr, &command) < 0) {
		free(child);
		fal_buf_free(&command);
		return UV_ENOMEM;
	}
	char sh[] = "sh", dash_c[] = "-c";
	char *args[] = { sh, dash_c, (char *)command.p, NULL };
	uv_stdio_container_t io[3] = { { .flags = UV_INHERIT_FD, .data.fd = fd },
				       { .flags = UV_INHERIT_FD, .data.fd = fd },
				       { .flags = UV_INHERIT_FD, .data.fd = 2 } };
	const uv_process_options_t opt = {
		.exit_cb = on_child_exit,
		.file = "/bin/sh",
		.args = args,
		.stdio_count = 3,
		.stdio = io,
	};
	const int err = uv_spawn(c->loop, &child->process, &opt);
	fal_buf_free(&command);
	child->process.data = child;
	if (err < 0) {
		uv_close((uv_handle_t *)&child->process, on_child_closed);
		return err;
	}
	child->chan = c;
	c->dialling->child = child;
	return 0;
}

static int
dial_exec(struct fal_chan *c)
{
	uv_os_sock_t fds[2]; /* ours, the command's */
	int err = uv_socketpair(SOCK_STREAM, 0, fds, UV_NONBLOCK_PIPE, 0);
	if (err < 0)
		return err;
	err = spawn(c, fds[1]);
	close(fds[1]);
	if (err < 0 || (err = fal_stream_pipe(c->io)) < 0) {
		close(fds[0]);
		return err;
	}
	c->pending++;
	err = uv_pipe_open((uv_pipe_t *)fal_stream_uv(c->io), fds[0]);
	if (err < 0) {
		close(fds[0]);
		return err;
	}
	fal_chan_connected(c);
	return 0;
}

bool
fal_dial_is_exec(const struct fal_chan *c)
{
	return c->dialling != NULL && c->dialling->addr.kind == FAL_ADDR_EXEC;
}

bool
fal_dial_runs(const struct fal_chan *c)
{
	return c->dialling != NULL && c->dialling->child != NULL;
}

int
fal_dial_exit(const struct fal_chan *c)
{
	return c->dialling != NULL ? c->dialling->exit_status : 0;
}

void
fal_dial_over(struct fal_chan *c)
{
	struct fal_dialling *d = c->dialling;
	if (d != NULL && d->addr.kind == FAL_ADDR_TCP)
		(void)uv_cancel((uv_req_t *)&d->resolve);
	if (d == NULL || d->child == NULL)
		return;
	/* The loop waits for its end: a command that hangs in its handlers would hang us.
	 */
	(void)uv_process_kill(&d->child->process, SIGKILL);
	d->child->chan = NULL;
	d->child = NULL;
}

void
fal_dial_free(struct fal_chan *c)
{
	if (c->dialling != NULL && c->dialling->all != NULL)
		uv_freeaddrinfo(c->dialling->all);
	free(c->dialling);
}

/* What the client says first waits in the queue. */
static int
prepare(struct fal_chan *c, const struct fal_addr *addr, const struct fal_client_key *key)
{
	struct fal_buf hello = { 0 };
	c->dialling = fal_calloc(1, sizeof(*c->dialling));
	if (c->dialling == NULL)
		return FAL_ENOMEM;
	c->dialling->addr = *addr;
	fal_addr_format(addr, c->source);
	int err = fal_handshake_begin(key, &hello, &c->handshake);
	if (err == 0)
		err = fal_writer_put_raw(c->writer, hello.p, hello.n);
	fal_buf_free(&hello);
	return err;
}

int
fal_dial(uv_loop_t *loop, const struct fal_addr *addr, const struct fal_client_key *key,
	 const struct fal_chan_opt *opt, const struct fal_chan_ops *ops,
	 struct fal_chan **out)
{
	struct fal_chan *c;
	if (addr->kind == FAL_ADDR_TCP && addr->port == 0)
		return FAL_EINVAL;
	int err = fal_chan_new(loop, opt, ops, &c);
	if (err < 0)
		return err;
	err = prepare(c, addr, key);
	if (err < 0) {
		fal_chan_kill(c);
		return err;
	}
	if (addr->kind == FAL_ADDR_TCP)
		err = dial_tcp(c);
	else if (addr->kind == FAL_ADDR_UNIX)
		err = dial_unix(c);
	else
		err = dial_exec(c);
	if (err < 0)
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(err));
	*out = c;
	return FAL_OK;
}
