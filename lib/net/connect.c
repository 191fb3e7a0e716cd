/* Connecting by TCP, Unix socket or command. */
#include "net/connect.h"

#include "base/mem.h"
#include "net/lookup.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

struct fal_connect {
	uv_loop_t *loop;
	struct fal_addr addr;
	struct fal_stream *io;
	struct fal_connect_ops ops;
	struct fal_lookup *lookup; /* of the name, while it runs */
	uv_connect_t connect;
	struct addrinfo *all, *next; /* results, and the next one to be tried */
	struct child *child;         /* of an exec address, while it runs */
	int exit_status;             /* after that */
	bool busy;                   /* the last attempt's end is to come */
	bool closed;
};

/* The process lives as long as it likes, its connection too. */
struct child {
	uv_process_t process;
	struct fal_connect *of; /* NULL when that is gone */
};

static void connect_next(struct fal_connect *k);

/* The stream of the last attempt is closed. */
static void
on_retry(uv_handle_t *h)
{
	struct fal_connect *k = h->data;
	k->busy = false;
	if (k->closed) {
		k->ops.closed(k->ops.arg);
		return;
	}
	fal_stream_closed(k->io);
	connect_next(k);
}

static void
done(struct fal_connect *k, int status)
{
	if (status == 0) {
		k->ops.up(k->ops.arg);
	} else if (k->next != NULL) {
		k->busy = true;
		fal_stream_uv(k->io)->data = k;
		fal_stream_close(k->io, false, on_retry);
	} else {
		k->ops.failed(k->ops.arg, status);
	}
}

static void
on_connect(uv_connect_t *req, int status)
{
	struct fal_connect *k = req->data;
	if (!k->closed)
		done(k, status);
}

static void
connect_next(struct fal_connect *k)
{
	const struct addrinfo *ai = k->next;
	int err = fal_stream_tcp(k->io);
	if (err < 0) {
		k->ops.failed(k->ops.arg, err);
		return;
	}
	k->next = ai->ai_next;
	k->connect.data = k;
	err = uv_tcp_connect(&k->connect, (uv_tcp_t *)fal_stream_uv(k->io), ai->ai_addr,
			     on_connect);
	if (err < 0)
		done(k, err);
}

static void
on_found(void *arg, int status, struct addrinfo *all)
{
	struct fal_connect *k = arg;
	k->lookup = NULL;
	k->all = k->next = all;
	if (status < 0)
		k->ops.failed(k->ops.arg, status);
	else
		connect_next(k);
}

static int
begin_tcp(struct fal_connect *k)
{
	const struct addrinfo numeric = { .ai_family = AF_UNSPEC,
					  .ai_socktype = SOCK_STREAM,
					  .ai_flags = AI_NUMERICHOST };
	char port[8];
	snprintf(port, sizeof(port), "%u", k->addr.port);
	/* What is no name hangs on no server of names. */
	if (getaddrinfo(k->addr.what, port, &numeric, &k->all) == 0) {
		k->next = k->all;
		connect_next(k);
		return 0;
	}
	return fal_lookup_begin(k->loop, k->addr.what, k->addr.port, on_found, k,
				&k->lookup);
}

static int
begin_unix(struct fal_connect *k)
{
	const int err = fal_stream_pipe(k->io);
	if (err < 0)
		return err;
	k->connect.data = k;
	uv_pipe_connect(&k->connect, (uv_pipe_t *)fal_stream_uv(k->io), k->addr.what,
			on_connect);
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
	struct child *child = p->data;
	struct fal_connect *k = child->of;
	if (k != NULL) {
		k->child = NULL;
		k->exit_status = sig != 0 ? 128 + sig : (int)status;
		k->ops.exited(k->ops.arg);
	}
	uv_close((uv_handle_t *)p, on_child_closed);
}

/* /bin/sh -c COMMAND with `fd` as stdin and stdout. */
static int
spawn(struct fal_connect *k, int fd)
{
	struct fal_buf command = { 0 };
	struct child *child = fal_calloc(1, sizeof(*child));
	if (child == NULL || fal_addr_command(&k->addr, &command) < 0) {
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
	const int err = uv_spawn(k->loop, &child->process, &opt);
	fal_buf_free(&command);
	child->process.data = child;
	if (err < 0) {
		uv_close((uv_handle_t *)&child->process, on_child_closed);
		return err;
	}
	child->of = k;
	k->child = child;
	return 0;
}

int
fal_connect_take(struct fal_connect *k, int fd)
{
	int err = fal_stream_pipe(k->io);
	if (err >= 0)
		err = uv_pipe_open((uv_pipe_t *)fal_stream_uv(k->io), fd);
	if (err < 0)
		close(fd);
	else
		k->ops.up(k->ops.arg);
	return err;
}

static int
begin_exec(struct fal_connect *k)
{
	uv_os_sock_t fds[2]; /* ours, the command's */
	int err = uv_socketpair(SOCK_STREAM, 0, fds, UV_NONBLOCK_PIPE, 0);
	if (err < 0)
		return err;
	err = spawn(k, fds[1]);
	close(fds[1]);
	if (err >= 0)
		return fal_connect_take(k, fds[0]);
	close(fds[0]);
	return err;
}

int
fal_connect_new(uv_loop_t *loop, const struct fal_addr *addr, struct fal_stream *io,
		const struct fal_connect_ops *ops, struct fal_connect **out)
{
	struct fal_connect *k = fal_calloc(1, sizeof(*k));
	if (k == NULL)
		return FAL_ENOMEM;
	k->loop = loop;
	k->addr = *addr;
	k->io = io;
	k->ops = *ops;
	*out = k;
	return FAL_OK;
}

int
fal_connect_begin(struct fal_connect *k)
{
	return k->addr.kind == FAL_ADDR_TCP    ? begin_tcp(k)
	       : k->addr.kind == FAL_ADDR_UNIX ? begin_unix(k)
					       : begin_exec(k);
}

bool
fal_connect_close(struct fal_connect *k)
{
	if (k == NULL)
		return false;
	k->closed = true;
	fal_lookup_cancel(k->lookup);
	k->lookup = NULL;
	if (k->child != NULL) {
		/* The loop waits for its end: a command that hangs in its handlers would
		 * hang us. */
		(void)uv_process_kill(&k->child->process, SIGKILL);
		k->child->of = NULL;
		k->child = NULL;
	}
	return k->busy;
}

void
fal_connect_free(struct fal_connect *k)
{
	if (k != NULL && k->all != NULL)
		freeaddrinfo(k->all);
	free(k);
}

bool
fal_connect_is_exec(const struct fal_connect *k)
{
	return k != NULL && k->addr.kind == FAL_ADDR_EXEC;
}

bool
fal_connect_runs(const struct fal_connect *k)
{
	return k != NULL && k->child != NULL;
}

int
fal_connect_exit(const struct fal_connect *k)
{
	return k != NULL ? k->exit_status : 0;
}
