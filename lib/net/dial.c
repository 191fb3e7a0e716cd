/* Dialling: a client's channel, and how its stream comes up, by TCP, Unix socket or
 * command. */
#include "base/mem.h"
#include "net/conn_priv.h"
#include "net/door.h"

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The command of an exec address.  The process may outlive its channel. */
struct fal_dial_command {
	uv_process_t process;
	struct fal_chan *chan; /* NULL: the channel has ended */
};

static void dial_next_address(struct fal_chan *c);

static void
dial_fail(struct fal_chan *c, int status)
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
dial_on_closed(uv_handle_t *h)
{
	struct fal_chan *c = h->data;
	c->dial->is_closing = false;
	if (c->state == FAL_CHAN_DEAD) {
		fal_chan_release(c);
		return;
	}
	c->has_stream = false;
	dial_next_address(c);
}

static void
dial_on_attempt(struct fal_chan *c, int status)
{
	if (status == 0) {
		fal_chan_connected(c);
	} else if (c->dial->next != NULL) {
		c->dial->is_closing = true;
		uv_close(&c->io.handle, dial_on_closed);
	} else {
		dial_fail(c, status);
	}
}

static void
dial_on_connect(uv_connect_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (c->state != FAL_CHAN_DEAD)
		dial_on_attempt(c, status);
}

static void
dial_next_address(struct fal_chan *c)
{
	const struct addrinfo *ai = c->dial->next;
	int err = fal_chan_make_stream(c, true);
	if (err < 0) {
		dial_fail(c, err);
		return;
	}
	c->dial->next = ai->ai_next;
	err = uv_tcp_connect(&c->dial->connect, &c->io.tcp, ai->ai_addr, dial_on_connect);
	if (err < 0)
		dial_on_attempt(c, err);
}

/* The number of running lookups in the process.  A lookup that hangs outlives its
 * channel. */
static atomic_uint lookups;

struct fal_lookup {
	uv_async_t done;
	struct fal_chan *chan;
	char port[8];
	pthread_mutex_t lock;
	atomic_uint holders; /* the thread and the loop */
	bool closing;        /* under the lock: `done` is closing */
	int status;          /* libuv's */
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

static void *
lookup_main(void *arg)
{
	struct fal_lookup *l = arg;
	const struct addrinfo hints = { .ai_family = AF_UNSPEC,
					.ai_socktype = SOCK_STREAM };
	struct addrinfo *all = NULL;
	const int err = getaddrinfo(l->host, l->port, &hints, &all);
	atomic_fetch_sub(&lookups, 1);
	pthread_mutex_lock(&l->lock);
	l->status = err == 0            ? 0
		    : err == EAI_AGAIN  ? UV_EAI_AGAIN
		    : err == EAI_MEMORY ? UV_EAI_MEMORY
		    : err == EAI_NONAME ? UV_EAI_NONAME
					: UV_EAI_FAIL;
	l->all = err == 0 ? all : NULL;
	if (!l->closing)
		uv_async_send(&l->done);
	pthread_mutex_unlock(&l->lock);
	lookup_release(l);
	return NULL;
}

static void
on_lookup_closed(uv_handle_t *h)
{
	lookup_release(h->data);
}

/* Forgets the lookup: no callback follows. */
static void
lookup_cancel(struct fal_lookup *l)
{
	pthread_mutex_lock(&l->lock);
	l->closing = true;
	pthread_mutex_unlock(&l->lock);
	uv_close((uv_handle_t *)&l->done, on_lookup_closed);
}

static void
lookup_on_done(uv_async_t *h)
{
	struct fal_lookup *l = h->data;
	struct fal_chan *c = l->chan;
	pthread_mutex_lock(&l->lock);
	c->dial->all = c->dial->next = l->all;
	const int status = l->status;
	l->all = NULL;
	pthread_mutex_unlock(&l->lock);
	lookup_cancel(l);
	c->dial->lookup = NULL;
	if (status < 0)
		dial_fail(c, status);
	else
		dial_next_address(c);
}

/* Dials a numeric address at once, since it needs no name server.  Looks a name up in a
 * thread of its own.  A resolver cannot be interrupted, so a lookup that hangs is left
 * behind, and neither the channel nor the end of the program waits for it.  libuv's
 * errors; UV_EAGAIN: too many lookups hang. */
static int
dial_tcp(struct fal_chan *c)
{
	const struct addrinfo numeric = { .ai_family = AF_UNSPEC,
					  .ai_socktype = SOCK_STREAM,
					  .ai_flags = AI_NUMERICHOST };
	struct fal_dial *d = c->dial;
	const size_t n = strlen(d->addr.what) + 1;
	char port[8];
	pthread_t thread;
	snprintf(port, sizeof(port), "%u", d->addr.port);
	if (getaddrinfo(d->addr.what, port, &numeric, &d->all) == 0) {
		d->next = d->all;
		dial_next_address(c);
		return 0;
	}
	struct fal_lookup *l = fal_xcalloc(1, sizeof(*l) + n);
	memcpy(l->host, d->addr.what, n);
	memcpy(l->port, port, sizeof(port));
	l->chan = c;
	int err = uv_async_init(c->loop, &l->done, lookup_on_done);
	if (err < 0) {
		free(l);
		return err;
	}
	l->done.data = l;
	pthread_mutex_init(&l->lock, NULL);
	atomic_init(&l->holders, 2);
	err = UV_EAGAIN;
	if (atomic_fetch_add(&lookups, 1) < FAL_LOOKUPS_MAX)
		err = uv_translate_sys_error(
			pthread_create(&thread, NULL, lookup_main, l));
	if (err < 0) {
		atomic_fetch_sub(&lookups, 1);
		lookup_release(l); /* for the thread */
		lookup_cancel(l);
		return err;
	}
	pthread_detach(thread);
	d->lookup = l;
	return 0;
}

static void
dial_on_command_closed(uv_handle_t *h)
{
	free(h->data);
}

static void
dial_on_command_exit(uv_process_t *p, int64_t status, int sig)
{
	struct fal_dial_command *command = p->data;
	struct fal_chan *c = command->chan;
	if (c != NULL) {
		c->dial->command = NULL;
		c->dial->exit_status = sig != 0 ? 128 + sig : (int)status;
		fal_chan_command_ended(c);
	}
	uv_close((uv_handle_t *)p, dial_on_command_closed);
}

/* Begins with a connected Unix socket, which is taken.  libuv's errors. */
static int
dial_connected(struct fal_chan *c, int fd)
{
	int err = fal_chan_make_stream(c, false);
	if (err >= 0)
		err = uv_pipe_open(&c->io.pipe, fd);
	if (err < 0)
		close(fd);
	else
		fal_chan_connected(c);
	return err;
}

/* Starts /bin/sh -c COMMAND with an end of a socket pair as stdin and stdout. */
static int
dial_exec(struct fal_chan *c)
{
	uv_os_sock_t fds[2]; /* ours, the command's */
	int err = uv_socketpair(SOCK_STREAM, 0, fds, UV_NONBLOCK_PIPE, 0);
	if (err < 0)
		return err;
	struct fal_buf text = { 0 };
	fal_addr_command(&c->dial->addr, &text);
	struct fal_dial_command *command = fal_xcalloc(1, sizeof(*command));
	char sh[] = "sh", dash_c[] = "-c";
	char *args[] = { sh, dash_c, (char *)text.p, NULL };
	uv_stdio_container_t io[3] = { { .flags = UV_INHERIT_FD, .data.fd = fds[1] },
				       { .flags = UV_INHERIT_FD, .data.fd = fds[1] },
				       { .flags = UV_INHERIT_FD, .data.fd = 2 } };
	const uv_process_options_t opt = {
		.exit_cb = dial_on_command_exit,
		.file = "/bin/sh",
		.args = args,
		.stdio_count = 3,
		.stdio = io,
	};
	err = uv_spawn(c->loop, &command->process, &opt);
	fal_buf_free(&text);
	close(fds[1]);
	command->process.data = command;
	if (err < 0) {
		uv_close((uv_handle_t *)&command->process, dial_on_command_closed);
		close(fds[0]);
		return err;
	}
	command->chan = c;
	c->dial->command = command;
	return dial_connected(c, fds[0]);
}

/* Ends a lookup and a command.  True: the stream of the last attempt is closing, and
 * fal_chan_release follows. */
static bool
dial_on_shut(void *arg)
{
	struct fal_dial *d = arg;
	if (d->lookup != NULL)
		lookup_cancel(d->lookup);
	d->lookup = NULL;
	if (d->command != NULL) {
		/* The loop waits for the command's end: a command that hangs in its
		 * signal handlers would hang us. */
		(void)uv_process_kill(&d->command->process, SIGKILL);
		d->command->chan = NULL;
		d->command = NULL;
	}
	return d->is_closing;
}

static void
dial_on_gone(void *arg)
{
	struct fal_dial *d = arg;
	if (d->all != NULL)
		freeaddrinfo(d->all);
	free(d);
}

/* Makes a channel whose first message is queued, and leaves as soon as the stream is
 * up. */
static int
dial_new_channel(uv_loop_t *loop, const struct fal_addr *addr,
		 const struct fal_client_key *key, const struct fal_chan_opt *opt,
		 const struct fal_chan_ops *ops, struct fal_chan **out)
{
	struct fal_buf hello = { 0 };
	struct fal_chan *c;
	int err = fal_chan_new(loop, opt, ops, &c);
	if (err < 0)
		return err;
	c->dial = fal_xcalloc(1, sizeof(*c->dial));
	c->dial->addr = *addr;
	c->dial->connect.data = c;
	c->host = (struct fal_chan_host){ .arg = c->dial,
					  .shut = dial_on_shut,
					  .gone = dial_on_gone };
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
	struct fal_chan *c;
	if (addr->kind == FAL_ADDR_TCP && addr->port == 0)
		return FAL_EINVAL;
	int err = dial_new_channel(loop, addr, key, opt, ops, &c);
	if (err < 0)
		return err;
	*out = c;
	if (addr->kind == FAL_ADDR_TCP) {
		err = dial_tcp(c);
	} else if (addr->kind == FAL_ADDR_EXEC) {
		err = dial_exec(c);
	} else {
		err = fal_chan_make_stream(c, false);
		if (err >= 0)
			uv_pipe_connect(&c->dial->connect, &c->io.pipe, addr->what,
					dial_on_connect);
	}
	if (err < 0)
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(err));
	return FAL_OK;
}

int
fal_dial_door(uv_loop_t *loop, const struct fal_addr *addr,
	      const struct fal_client_key *key, const struct fal_chan_opt *opt,
	      const struct fal_chan_ops *ops, struct fal_chan **out)
{
	const int fd = fal_door_connect(addr);
	if (fd < 0)
		return FAL_ENOENT;
	int err = dial_new_channel(loop, addr, key, opt, ops, out);
	if (err < 0) {
		close(fd);
		return err;
	}
	(*out)->is_by_door = true;
	fal_chan_set_deadline(*out, FAL_DOOR_MS);
	err = dial_connected(*out, fd);
	if (err < 0)
		fal_chan_fail(*out, FAL_EIO, "%s", uv_strerror(err));
	return FAL_OK;
}
