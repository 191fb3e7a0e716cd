/* Dialling: a client's channel, and how its stream comes up, by TCP, Unix socket or
 * command. */
#include "base/mem.h"
#include "net/conn_priv.h"
#include "net/near.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The process lives as long as it likes, its connection too. */
struct fal_dial_command {
	uv_process_t process;
	struct fal_chan *of; /* NULL when that is gone */
};

static void connect_next(struct fal_chan *c);

static void
no_stream(struct fal_chan *c, int status)
{
	if (status == UV_EAI_NONAME)
		fal_chan_fail(c, FAL_ENOENT, "there is no host of this name");
	else if (status == UV_EAI_AGAIN || status == UV_EAI_FAIL)
		fal_chan_fail(c, FAL_ENOENT, "its name cannot be looked up now");
	else
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(status));
}

/* The stream of the last attempt is closed. */
static void
on_retry(uv_handle_t *h)
{
	struct fal_chan *c = h->data;
	c->dial->busy = false;
	if (c->state == FAL_CHAN_DEAD) {
		fal_chan_ended(c);
		return;
	}
	c->up = false;
	connect_next(c);
}

static void
attempted(struct fal_chan *c, int status)
{
	if (status == 0) {
		fal_chan_connected(c);
	} else if (c->dial->next != NULL) {
		c->dial->busy = true;
		uv_close(&c->io.handle, on_retry);
	} else {
		no_stream(c, status);
	}
}

static void
on_connect(uv_connect_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (c->state != FAL_CHAN_DEAD)
		attempted(c, status);
}

static void
connect_next(struct fal_chan *c)
{
	const struct addrinfo *ai = c->dial->next;
	int err = fal_chan_stream(c, true);
	if (err < 0) {
		no_stream(c, err);
		return;
	}
	c->dial->next = ai->ai_next;
	err = uv_tcp_connect(&c->dial->connect, &c->io.tcp, ai->ai_addr, on_connect);
	if (err < 0)
		attempted(c, err);
}

/* The end of a lookup: what was found, or libuv's error. */
static void
found(struct fal_chan *c, int status, struct addrinfo *all)
{
	c->dial->lookup = NULL;
	c->dial->all = c->dial->next = all;
	if (status < 0)
		no_stream(c, status);
	else
		connect_next(c);
}

/* The lookups of the process, as the threads are the process's: a lookup that hangs is
 * nobody's any more. */
static atomic_uint lookups;

struct fal_lookup {
	uv_async_t over;
	struct fal_chan *of;
	char port[8];
	pthread_mutex_t lock;
	atomic_uint holders; /* the thread, and the loop */
	bool closing;        /* locked: `over` may not be used any more */
	int status;          /* libuv's; */
	struct addrinfo *all;
	char host[];
};

static void
lookup_release(struct fal_lookup *l)
{
	if (atomic_fetch_sub(&l->holders, 1) != 1)
		return;
	if (l->all != NULL)
		freeaddrinfo(l->all);
	pthread_mutex_destroy(&l->lock);
	free(l);
}

/* libuv's name for an error of getaddrinfo. */
static int
status_of(int err)
{
	switch (err) {
	case 0:
		return 0;
	case EAI_AGAIN:
		return UV_EAI_AGAIN;
	case EAI_MEMORY:
		return UV_EAI_MEMORY;
	case EAI_NONAME:
		return UV_EAI_NONAME;
	default:
		return UV_EAI_FAIL;
	}
}

static void *
look_up(void *arg)
{
	struct fal_lookup *l = arg;
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *all = NULL;
	const int err = getaddrinfo(l->host, l->port, &hints, &all);
	atomic_fetch_sub(&lookups, 1);
	pthread_mutex_lock(&l->lock);
	l->status = status_of(err);
	l->all = err == 0 ? all : NULL;
	if (!l->closing)
		uv_async_send(&l->over);
	pthread_mutex_unlock(&l->lock);
	lookup_release(l);
	return NULL;
}

static void
on_lookup_closed(uv_handle_t *h)
{
	lookup_release(h->data);
}

/* Nothing is called any more. */
static void
lookup_cancel(struct fal_lookup *l)
{
	pthread_mutex_lock(&l->lock);
	l->closing = true;
	pthread_mutex_unlock(&l->lock);
	uv_close((uv_handle_t *)&l->over, on_lookup_closed);
}

static void
on_over(uv_async_t *h)
{
	struct fal_lookup *l = h->data;
	pthread_mutex_lock(&l->lock);
	struct addrinfo *all = l->all;
	const int status = l->status;
	l->all = NULL;
	pthread_mutex_unlock(&l->lock);
	lookup_cancel(l);
	found(l->of, status, all);
}

static int
start_thread(struct fal_lookup *l)
{
	pthread_t thread;
	if (atomic_fetch_add(&lookups, 1) >= FAL_LOOKUPS_MAX) {
		atomic_fetch_sub(&lookups, 1);
		return UV_EAGAIN;
	}
	const int err = pthread_create(&thread, NULL, look_up, l);
	if (err != 0) {
		atomic_fetch_sub(&lookups, 1);
		return uv_translate_sys_error(err);
	}
	pthread_detach(thread);
	return 0;
}

/* Looks the host up in a thread of its own: a resolver cannot be interrupted, so one that
 * hangs is left behind, and neither the channel nor the end of the program waits for it.
 * libuv's errors; UV_EAGAIN: too many hang. */
static int
look_up_host(struct fal_chan *c)
{
	const char *host = c->dial->addr.what;
	const size_t n = strlen(host) + 1;
	struct fal_lookup *l = fal_xcalloc(1, sizeof(*l) + n);
	memcpy(l->host, host, n);
	snprintf(l->port, sizeof(l->port), "%u", c->dial->addr.port);
	l->of = c;
	int err = uv_async_init(c->loop, &l->over, on_over);
	if (err < 0) {
		free(l);
		return err;
	}
	l->over.data = l;
	pthread_mutex_init(&l->lock, NULL);
	atomic_init(&l->holders, 2);
	err = start_thread(l);
	if (err < 0) {
		lookup_release(l); /* the thread's */
		lookup_cancel(l);
		return err;
	}
	c->dial->lookup = l;
	return 0;
}

static int
begin_tcp(struct fal_chan *c)
{
	const struct addrinfo numeric = { .ai_family = AF_UNSPEC,
					  .ai_socktype = SOCK_STREAM,
					  .ai_flags = AI_NUMERICHOST };
	struct fal_dial *d = c->dial;
	char port[8];
	snprintf(port, sizeof(port), "%u", d->addr.port);
	/* A numeric address hangs on no name server. */
	if (getaddrinfo(d->addr.what, port, &numeric, &d->all) == 0) {
		d->next = d->all;
		connect_next(c);
		return 0;
	}
	return look_up_host(c);
}

static int
begin_unix(struct fal_chan *c)
{
	const int err = fal_chan_stream(c, false);
	if (err < 0)
		return err;
	uv_pipe_connect(&c->dial->connect, &c->io.pipe, c->dial->addr.what, on_connect);
	return 0;
}

static void
on_command_closed(uv_handle_t *h)
{
	free(h->data);
}

static void
on_command_exit(uv_process_t *p, int64_t status, int sig)
{
	struct fal_dial_command *command = p->data;
	struct fal_chan *c = command->of;
	if (c != NULL) {
		c->dial->command = NULL;
		c->dial->exit_status = sig != 0 ? 128 + sig : (int)status;
		fal_chan_command_ended(c);
	}
	uv_close((uv_handle_t *)p, on_command_closed);
}

/* /bin/sh -c COMMAND with `fd` as stdin and stdout. */
static int
spawn(struct fal_chan *c, int fd)
{
	struct fal_buf text = { 0 };
	fal_addr_command(&c->dial->addr, &text);
	struct fal_dial_command *command = fal_xcalloc(1, sizeof(*command));
	char sh[] = "sh", dash_c[] = "-c";
	char *args[] = { sh, dash_c, (char *)text.p, NULL };
	uv_stdio_container_t io[3] = { { .flags = UV_INHERIT_FD, .data.fd = fd },
				       { .flags = UV_INHERIT_FD, .data.fd = fd },
				       { .flags = UV_INHERIT_FD, .data.fd = 2 } };
	const uv_process_options_t opt = {
		.exit_cb = on_command_exit,
		.file = "/bin/sh",
		.args = args,
		.stdio_count = 3,
		.stdio = io,
	};
	const int err = uv_spawn(c->loop, &command->process, &opt);
	fal_buf_free(&text);
	command->process.data = command;
	if (err < 0) {
		uv_close((uv_handle_t *)&command->process, on_command_closed);
		return err;
	}
	command->of = c;
	c->dial->command = command;
	return 0;
}

/* Begins with a Unix socket that is connected; takes it.  libuv's errors. */
static int
begin_connected(struct fal_chan *c, int fd)
{
	int err = fal_chan_stream(c, false);
	if (err >= 0)
		err = uv_pipe_open(&c->io.pipe, fd);
	if (err < 0)
		close(fd);
	else
		fal_chan_connected(c);
	return err;
}

static int
begin_exec(struct fal_chan *c)
{
	uv_os_sock_t fds[2]; /* ours, the command's */
	int err = uv_socketpair(SOCK_STREAM, 0, fds, UV_NONBLOCK_PIPE, 0);
	if (err < 0)
		return err;
	err = spawn(c, fds[1]);
	close(fds[1]);
	if (err >= 0)
		return begin_connected(c, fds[0]);
	close(fds[0]);
	return err;
}

bool
fal_dial_end(struct fal_dial *d)
{
	if (d == NULL)
		return false;
	if (d->lookup != NULL)
		lookup_cancel(d->lookup);
	d->lookup = NULL;
	if (d->command != NULL) {
		/* The loop waits for its end: a command that hangs in its handlers would
		 * hang us. */
		(void)uv_process_kill(&d->command->process, SIGKILL);
		d->command->of = NULL;
		d->command = NULL;
	}
	return d->busy;
}

void
fal_dial_free(struct fal_dial *d)
{
	if (d != NULL && d->all != NULL)
		freeaddrinfo(d->all);
	free(d);
}

/* A channel that says its part, which waits in the queue, as soon as its stream is up. */
static int
new_client(uv_loop_t *loop, const struct fal_addr *addr, const struct fal_client_key *key,
	   const struct fal_chan_opt *opt, const struct fal_chan_ops *ops,
	   struct fal_chan **out)
{
	struct fal_buf hello = { 0 };
	struct fal_chan *c;
	int err = fal_chan_new(loop, opt, ops, &c);
	if (err < 0)
		return err;
	c->dial = fal_xcalloc(1, sizeof(*c->dial));
	c->dial->addr = *addr;
	c->dial->connect.data = c;
	fal_addr_format(addr, c->source);
	err = fal_handshake_begin(key, &hello, &c->handshake);
	if (err < 0) {
		fal_buf_free(&hello);
		fal_chan_kill(c);
		return err;
	}
	fal_writer_put_raw(c->writer, hello.p, hello.n);
	fal_buf_free(&hello);
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
	err = addr->kind == FAL_ADDR_TCP    ? begin_tcp(*out)
	      : addr->kind == FAL_ADDR_UNIX ? begin_unix(*out)
					    : begin_exec(*out);
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
	err = begin_connected(*out, fd);
	if (err < 0)
		fal_chan_fail(*out, FAL_EIO, "%s", uv_strerror(err));
	return FAL_OK;
}
