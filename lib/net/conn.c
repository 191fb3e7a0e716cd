/* Channels: life, stream, reading, writing, and the ways to end.  dial.c brings up a
 * client's stream. */
#include "base/mem.h"
#include "net/conn_priv.h"
#include "net/door.h"

#include <assert.h>
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#define OFFER ((size_t)128 << 10) /* bytes of bulk after which a batch is offered */
#define IN_SLOW ((size_t)4 << 20) /* FAL_CHAN_READ_AHEAD of an emulated link */
/* Bytes that TCP may hold unsent: control cannot overtake them. */
#define NOTSENT_LOWAT (256 << 10)

_Static_assert(FAL_CHAN_IN_GREETING >= FAL_HANDSHAKE_MAX, "a handshake fits");
_Static_assert(FAL_CHAN_READ_AHEAD >= FAL_RECORD_WIRE_MAX, "a record fits");

/* The reason when a server ends the stream without an answer, or when its answer does not
 * authenticate. */
#define MISMATCH "the coordinator's key does not match, or ours is not in its keyring"

static void chan_pump(struct fal_chan *c);
static void chan_on_stream_end(void *arg, int status);

/* --- the stream --- */

int
fal_chan_make_stream(struct fal_chan *c, bool tcp)
{
	const int err = tcp ? uv_tcp_init(c->loop, &c->io.tcp)
			    : uv_pipe_init(c->loop, &c->io.pipe, 0);
	c->has_stream = err >= 0;
	if (c->has_stream)
		c->io.handle.data = c;
	return err;
}

static bool
chan_is_tcp(const struct fal_chan *c)
{
	return c->io.handle.type == UV_TCP;
}

int
fal_chan_fd(const struct fal_chan *c)
{
	uv_os_fd_t fd;
	return c->has_stream && uv_fileno(&c->io.handle, &fd) == 0 ? fd : -1;
}

bool
fal_chan_is_same_user(const struct fal_chan *c)
{
	const int fd = fal_chan_fd(c);
	return fd >= 0 && !chan_is_tcp(c) && fal_peer_is_same_user(fd);
}

int
fal_chan_peer(const struct fal_chan *c, struct sockaddr_storage *out)
{
	int n = sizeof(*out);
	return chan_is_tcp(c) ? uv_tcp_getpeername(&c->io.tcp, (struct sockaddr *)out, &n)
			      : UV_ENOTSUP;
}

/* Small messages leave at once; the kernel holds little unsent, which control could not
 * overtake; TCP keepalive as conn.h has it. */
static void
chan_set_socket_options(const struct fal_chan *c)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		/* On a kernel without this option control waits longer. */
		{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT },
		{ IPPROTO_TCP, TCP_KEEPIDLE, FAL_CHAN_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, FAL_CHAN_PROBE_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, FAL_CHAN_PROBES },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, FAL_CHAN_UNACKED_MS },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
	};
	const int fd = fal_chan_fd(c);
	if (fd < 0 || !chan_is_tcp(c))
		return;
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

/* --- ends --- */

static void
chan_on_closed(uv_handle_t *h)
{
	fal_chan_release(h->data);
}

static void
chan_free_parts(struct fal_chan *c)
{
	fal_outbox_drop(&c->out);
	fal_reader_free(c->reader);
	fal_writer_free(c->writer);
	fal_link_emul_free(c->link);
	free(c->in.p);
	free(c);
}

void
fal_chan_release(struct fal_chan *c)
{
	if (--c->pending != 0)
		return;
	if (!c->is_killed)
		c->ops.on_close(c->ops.arg, c, c->err, c->why.text);
	if (c->host.gone != NULL)
		c->host.gone(c->host.arg);
	fal_handshake_free(c->handshake);
	chan_free_parts(c);
}

static void
chan_shut(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_DEAD)
		return;
	/* A server resets a connection whose first message the server did not check: the
	 * client would take an end without a reset for a refusal. */
	const bool reset = c->is_server && c->state == FAL_CHAN_GREETING &&
			   chan_is_tcp(c) && c->err != FAL_EAUTH && c->err != FAL_EFORMAT;
	c->state = FAL_CHAN_DEAD;
	c->pending += c->host.shut != NULL && c->host.shut(c->host.arg);
	uv_close((uv_handle_t *)&c->deadline, chan_on_closed);
	uv_close((uv_handle_t *)&c->next_turn, chan_on_closed);
	uv_close((uv_handle_t *)&c->flush, chan_on_closed);
	fal_link_emul_close(c->link);
	if (!c->has_stream || uv_is_closing(&c->io.handle))
		return;
	c->pending++;
	if (!reset || uv_tcp_close_reset(&c->io.tcp, chan_on_closed) < 0)
		uv_close(&c->io.handle, chan_on_closed);
}

/* Sets the reason of the end, unless there is one. */
static void
chan_set_reason(struct fal_chan *c, int err, const char *text)
{
	if (c->why.text[0] != '\0')
		return;
	c->err = err;
	if (!c->is_server)
		fal_diag_set(&c->why, err, "%s: %s", c->source, text);
	else
		fal_diag_set(&c->why, err, "%s", text);
}

void
fal_chan_fail(struct fal_chan *c, int err, const char *fmt, ...)
{
	struct fal_diag d;
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(d.text, sizeof(d.text), fmt, ap);
	va_end(ap);
	chan_set_reason(c, err, d.text);
	chan_shut(c);
}

void
fal_chan_kill(struct fal_chan *c)
{
	c->is_killed = true;
	chan_shut(c);
}

/* Sends the queue, then ends the stream. */
static void
chan_begin_close(struct fal_chan *c)
{
	c->state = FAL_CHAN_FLUSHING;
	fal_chan_set_deadline(c, c->deadline_ms);
	fal_chan_flush(c);
}

/* --- the deadline --- */

static void
chan_on_deadline(uv_timer_t *t)
{
	struct fal_chan *c = t->data;
	if (c->state == FAL_CHAN_LINGERING)
		fal_chan_fail(c, FAL_OK, "closed");
	else if (c->state == FAL_CHAN_FLUSHING)
		fal_chan_fail(c, FAL_EIO, "the last messages did not leave in time");
	else if (c->state == FAL_CHAN_CONNECTING)
		fal_chan_fail(c, FAL_EIO, "no connection within %g s",
			      c->deadline_ms / 1e3);
	else
		fal_chan_fail(c, FAL_EIO, "no handshake within %g s",
			      c->deadline_ms / 1e3);
}

void
fal_chan_set_deadline(struct fal_chan *c, unsigned ms)
{
	uv_update_time(c->loop);
	uv_timer_start(&c->deadline, chan_on_deadline, ms, 0);
}

/* --- keepalive --- */

static void
chan_on_keepalive(uv_timer_t *t)
{
	struct fal_chan *c = t->data;
	const uint64_t said = c->out.tx;
	c->keepalive.silent = c->keepalive.heard ? 0 : c->keepalive.silent + 1;
	c->keepalive.heard = false;
	if (c->keepalive.silent == FAL_CHAN_KEEPALIVES) {
		fal_chan_fail(c, FAL_EIO, "nothing was heard for %g s",
			      c->keepalive.ms * FAL_CHAN_KEEPALIVES / 1e3);
		return;
	}
	if (said == c->keepalive.sent_tx && c->out.bytes == 0 &&
	    fal_writer_put(c->writer, NULL, 0, FAL_SEND_CONTROL) == FAL_OK)
		fal_chan_flush(c);
	c->keepalive.sent_tx = said;
}

/* --- reading --- */

/* Returns the number of bytes, from c->in.from on, that have arrived and are not opened
 * yet. */
static size_t
chan_unopened(const struct fal_chan *c)
{
	return c->in.to - c->in.from - fal_link_emul_held(c->link);
}

/* --- the end of the stream --- */

/* Has the kernel taken our whole first message, even if chan_on_written is still to
 * come? */
static bool
chan_sent_hello(const struct fal_chan *c)
{
	return (c->is_writing || c->out.tx != 0) && fal_link_emul_has_sent(c->link) &&
	       uv_stream_get_write_queue_size(&c->io.stream) == 0;
}

/* The stream ended before the server's answer.  A command's exit status says more than
 * the end of its stream, and may come later. */
static void
chan_fail_unanswered(struct fal_chan *c, int status)
{
	const struct fal_dial *d = c->dial;
	if (d->command != NULL) {
		if (c->stream_status == 0)
			c->stream_status = status;
	} else if (d->addr.kind == FAL_ADDR_EXEC &&
		   (d->exit_status != 0 || status != UV_EOF || !chan_sent_hello(c))) {
		fal_chan_fail(c, FAL_EIO, "the command ended with status %d",
			      d->exit_status);
	} else if (status != UV_EOF) {
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(status));
	} else if (!chan_sent_hello(c)) {
		fal_chan_fail(c, FAL_EIO, "the peer left before our first message");
	} else if (c->rx != 0) {
		fal_chan_fail(c, FAL_ETRUNC, "the peer left in the handshake");
	} else {
		fal_chan_fail(c, FAL_EPERM, MISMATCH ", or a tunnel leads nowhere");
	}
}

void
fal_chan_command_ended(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_GREETING && c->stream_status != 0)
		chan_fail_unanswered(c, c->stream_status);
}

/* The stream has ended, by libuv's error; sets the channel's reason. */
static void
chan_on_stream_end(void *arg, int status)
{
	struct fal_chan *c = arg;
	const bool all_sent = fal_writer_is_idle(c->writer) && c->out.bytes == 0 &&
			      fal_link_emul_has_sent(c->link);
	if (c->state == FAL_CHAN_LINGERING || (c->state == FAL_CHAN_FLUSHING && all_sent))
		fal_chan_fail(c, FAL_OK, "closed");
	else if (!c->is_server && c->state == FAL_CHAN_GREETING)
		chan_fail_unanswered(c, status);
	else if (status != 0 && status != UV_EOF)
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(status));
	else if (c->state == FAL_CHAN_FLUSHING)
		fal_chan_fail(c, FAL_EIO, "the peer left before all was sent");
	else if (c->state != FAL_CHAN_OPEN)
		fal_chan_fail(c, FAL_ETRUNC, "the peer left in the handshake");
	else if (c->in.to != c->in.from)
		fal_chan_fail(c, FAL_ETRUNC, "the stream ended within a record");
	else
		fal_chan_fail(c, FAL_OK, "closed by the peer");
}

/* --- unsealed records, over a Unix socket ---
 *
 * The client names its process.  If the server's kernel names the same process as the
 * peer, the server names its own process.  If the client's kernel names that process, the
 * client sends an empty unseal record, the client's last sealed record; then the server
 * sends one.  A relay between the two, such as ssh or socat, is a third process: then all
 * records stay sealed.  So a liar can unseal only the liar's own session. */
static void
chan_put_unseal(struct fal_chan *c, const uint8_t *p, size_t n)
{
	fal_writer_put_unseal(c->writer, p, n);
	fal_chan_flush(c);
}

static void
chan_send_process(struct fal_chan *c)
{
	uint8_t self[FAL_PROCESS_BYTES];
	if (!fal_process_name(self))
		return; /* sealed records work as well */
	c->unseal.sent_process = true;
	chan_put_unseal(c, self, sizeof(self));
}

static bool
chan_may_unseal(const struct fal_chan *c)
{
	return c->unseal.allowed && c->link == NULL && fal_chan_is_same_user(c);
}

/* Stops sealing: all later messages leave unsealed. */
static void
chan_unseal(struct fal_chan *c)
{
	c->unseal.tx = true;
	chan_put_unseal(c, NULL, 0);
}

/* Handles an unseal record.  A text names the peer's process; each end sends one text,
 * and the server only as an answer.  After an empty record the peer seals nothing more;
 * the client sends the empty record after the server's answer, and then the server does.
 */
static int
chan_on_unseal(struct fal_chan *c, const uint8_t *p, size_t n)
{
	if (n == 0) {
		if (!c->unseal.sent_process || c->unseal.tx == c->is_server ||
		    c->reader->unsealed)
			return FAL_ESTATE;
		c->reader->unsealed = true;
		if (c->is_server)
			chan_unseal(c);
		return FAL_OK;
	}
	if (n != FAL_PROCESS_BYTES)
		return FAL_EFORMAT;
	if (c->unseal.knows_process || (!c->is_server && !c->unseal.sent_process))
		return FAL_ESTATE;
	c->unseal.knows_process = true;
	if (!chan_may_unseal(c) || !fal_peer_is_process(fal_chan_fd(c), p))
		return FAL_OK;
	if (c->is_server)
		chan_send_process(c);
	else
		chan_unseal(c);
	return FAL_OK;
}

bool
fal_chan_is_unsealed(const struct fal_chan *c)
{
	return c->unseal.tx;
}

/* --- the handshake --- */

/* The handshake has succeeded: session keys, larger buffers. */
static int
chan_set_session(struct fal_chan *c, const struct fal_session *s)
{
	c->reader->rx = s->rx;
	c->writer->tx = s->tx;
	memcpy(c->session.name, s->name, sizeof(c->session.name));
	memcpy(c->session.fingerprint, s->fingerprint, sizeof(c->session.fingerprint));
	c->session.role = s->role;
	c->session.suite = s->tx.suite;
	fal_session_skew(s, &c->session.skew);
	c->in.from += s->used;
	const size_t cap = c->link != NULL ? IN_SLOW : FAL_CHAN_READ_AHEAD;
	uint8_t *p = fal_realloc(c->in.p, cap, 1);
	if (p == NULL)
		return FAL_ENOMEM;
	c->in.p = p;
	c->in.cap = cap;
	return FAL_OK;
}

static void
chan_open(struct fal_chan *c)
{
	c->state = FAL_CHAN_OPEN;
	fal_handshake_free(c->handshake); /* holds our key */
	c->handshake = NULL;
	c->keepalive.heard = true; /* keepalive begins */
	uv_timer_start(&c->deadline, chan_on_keepalive, c->keepalive.ms, c->keepalive.ms);
	if (!c->is_server && chan_may_unseal(c))
		chan_send_process(c);
	if (c->ops.on_open != NULL)
		c->ops.on_open(c->ops.arg, c);
}

/* Memory of a connection, its handshake and the start of its session. */
#define SESSION_BYTES (FAL_CHAN_READ_AHEAD + 65536)

/* Handles the peer's half of the handshake.  False: the input is incomplete. */
static bool
chan_handshake(struct fal_chan *c)
{
	struct fal_session s = { 0 };
	struct fal_buf out = { 0 };
	struct fal_diag d;
	const uint8_t *in = c->in.p + c->in.from;
	const size_t n = chan_unopened(c);
	if (c->is_server && !fal_memory_is_free(SESSION_BYTES)) {
		fal_chan_fail(c, FAL_ENOMEM, "out of memory");
		return true;
	}
	const int err = c->is_server ? c->host.greet(c->host.arg, in, n, &s, &out, &d)
				     : fal_handshake_finish(c->handshake, in, n, &s, &d);
	if (out.n != 0) {
		fal_writer_put_raw(c->writer, out.p, out.n);
		fal_chan_flush(c);
	}
	fal_buf_free(&out);
	if (err == FAL_ETRUNC)
		return false;
	if (err == FAL_EVERSION && c->is_server) { /* `out` is the refusal */
		chan_set_reason(c, err, d.text);
		chan_begin_close(c);
	} else if (err == FAL_EAUTH && !c->is_server) {
		fal_chan_fail(c, err, MISMATCH);
	} else if (err < 0) {
		fal_chan_fail(c, err, "%s", d.text);
	} else if (chan_set_session(c, &s) < 0) {
		fal_chan_fail(c, FAL_ENOMEM, "out of memory");
	} else if (c->is_server) {
		c->answered_ns = uv_hrtime();
		c->state = FAL_CHAN_UNPROVEN;
	} else {
		fal_chan_flush(c);
		chan_open(c);
	}
	return true;
}

/* --- records --- */

/* Reads a record.  False: the input is incomplete. */
static bool
chan_read_record(struct fal_chan *c)
{
	const uint8_t *msg;
	size_t used, n;
	const int got = fal_reader_next(c->reader, c->in.p + c->in.from, chan_unopened(c),
					&used, &msg, &n);
	if (got == FAL_ETRUNC)
		return false;
	if (got < 0) {
		fal_chan_fail(c, got, "a record was refused: %s", fal_strerror(got));
		return true;
	}
	c->in.from += used;
	c->keepalive.heard = true; /* an emulated link delivers long after chan_on_read */
	/* No publication is expected yet, so this was a session record, which no replay
	 * can seal. */
	if (c->state == FAL_CHAN_UNPROVEN) {
		c->proved_ns = uv_hrtime();
		chan_open(c);
	}
	if (c->state != FAL_CHAN_OPEN)
		return true;
	int err = FAL_OK;
	if (got == FAL_READ_PLACED)
		c->ops.on_placed(c->ops.arg, c, msg, n);
	else if (got == FAL_READ_UNSEAL)
		err = chan_on_unseal(c, msg, n);
	else if (got == FAL_READ_MESSAGE && n > 0) /* an empty one is keepalive */
		c->ops.on_msg(c->ops.arg, c, msg, n);
	if (err < 0)
		fal_chan_fail(c, err, "an unseal record: %s", fal_strerror(err));
	return true;
}

static void chan_on_next_turn(uv_idle_t *h);
static int chan_start_reading(struct fal_chan *c);

/* Stops reading while input has to wait, or while there is too much input; else resumes
 * reading. */
static void
chan_update_reading(struct fal_chan *c)
{
	if (c->reading_paused ||
	    (c->link != NULL &&
	     fal_link_emul_is_full(c->link, c->in.to - c->in.from == c->in.cap)))
		uv_read_stop(&c->io.stream);
	else if (!c->read_ended)
		chan_start_reading(c);
}

/* Opens the input until the turn is over. */
static void
chan_consume(struct fal_chan *c)
{
	bool more = true;
	while (more && chan_unopened(c) > 0) {
		if (c->state == FAL_CHAN_GREETING)
			more = chan_handshake(c);
		else if (c->state == FAL_CHAN_OPEN || c->state == FAL_CHAN_UNPROVEN)
			more = chan_read_record(c);
		else /* the channel is closing: the input is dropped */
			c->in.from += chan_unopened(c);
		if (more && uv_hrtime() - c->turn_begun > FAL_CHAN_TURN_NS)
			break;
	}
	if (c->state == FAL_CHAN_DEAD)
		return;
	const bool pause = more && chan_unopened(c) > 0;
	if (pause && !c->reading_paused)
		uv_idle_start(&c->next_turn, chan_on_next_turn);
	else if (!pause && c->reading_paused)
		uv_idle_stop(&c->next_turn);
	if (pause != c->reading_paused || c->link != NULL) {
		c->reading_paused = pause;
		chan_update_reading(c);
	}
}

/* Callback of the emulated link: bytes have arrived, or the link can take more. */
static void
chan_on_arrived(void *arg)
{
	struct fal_chan *c = arg;
	c->turn_begun = uv_hrtime();
	chan_consume(c);
}

static void
chan_on_next_turn(uv_idle_t *h)
{
	chan_on_arrived(h->data);
}

static void
chan_on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
	struct fal_chan *c = h->data;
	(void)hint;
	memmove(c->in.p, c->in.p + c->in.from, c->in.to - c->in.from);
	c->in.to -= c->in.from;
	c->in.from = 0;
	size_t room = c->in.cap - c->in.to;
	if (c->link != NULL && fal_link_emul_batch(c->link) < room)
		room = fal_link_emul_batch(c->link);
	*buf = uv_buf_init((char *)c->in.p + c->in.to, (unsigned)room);
}

static void
chan_on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
	struct fal_chan *c = s->data;
	(void)buf;
	if (n == 0)
		return;
	if (n < 0) {
		c->read_ended = true;
		if (c->link == NULL || !fal_link_emul_set_end(c->link, (int)n))
			chan_on_stream_end(c, (int)n);
		return;
	}
	c->rx += (uint64_t)n;
	c->keepalive.heard = true;
	c->in.to += (size_t)n;
	assert(c->in.to <= c->in.cap);
	if (c->link != NULL) {
		fal_link_emul_read(c->link, (size_t)n);
		chan_update_reading(c);
		return;
	}
	/* libuv may read several times in one turn of the loop. */
	if (c->turn_begun == 0 || uv_now(c->loop) != c->turn_now) {
		c->turn_now = uv_now(c->loop);
		c->turn_begun = uv_hrtime();
	}
	chan_consume(c);
}

/* Reads until uv_read_stop.  libuv's errors. */
static int
chan_start_reading(struct fal_chan *c)
{
	return uv_read_start(&c->io.stream, chan_on_alloc, chan_on_read);
}

/* --- writing --- */

static size_t
chan_batch_limit(const struct fal_chan *c)
{
	const size_t batch = c->link != NULL ? fal_link_emul_batch(c->link) : SIZE_MAX;
	return batch <= FAL_OUTBOX_MAX ? batch : fal_outbox_limit(&c->out);
}

/* Sets `out` to the bytes that the peer has acknowledged, and TCP's busy time.  False:
 * the system does not know them. */
static bool
chan_acked(const struct fal_chan *c, struct fal_acked *out)
{
	const int fd = fal_chan_fd(c);
	return c->link == NULL && fd >= 0 && fal_acked(fd, out);
}

bool
fal_chan_has_room(struct fal_chan *c)
{
	c->room_due = c->writer->queued >= chan_batch_limit(c) ||
		      c->turn_bulk >= FAL_OUTBOX_MAX;
	return !c->room_due;
}

/* The socket, or the emulated link, has taken the batch. */
static void
chan_on_taken(void *arg)
{
	struct fal_chan *c = arg;
	c->is_writing = false;
	fal_outbox_complete(&c->out);
	chan_pump(c);
}

static void
chan_on_written(uv_write_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (status >= 0 && c->state != FAL_CHAN_DEAD) {
		chan_on_taken(c);
		return;
	}
	c->is_writing = false;
	fal_outbox_drop(&c->out);
	if (c->state != FAL_CHAN_DEAD)
		chan_on_stream_end(c, status);
}

/* The socket has all bytes of the emulated link. */
static void
chan_on_sent(void *arg)
{
	struct fal_chan *c = arg;
	if (c->state == FAL_CHAN_FLUSHING)
		chan_pump(c);
}

static void
chan_on_shutdown(uv_shutdown_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (c->state != FAL_CHAN_DEAD && status < 0)
		chan_on_stream_end(c, UV_EOF);
}

/* Writes as much of the batch as the socket takes at once. */
static void
chan_try_write(struct fal_chan *c)
{
	uv_buf_t bufs[FAL_OUTBOX_PIECES];
	const unsigned n = fal_outbox_bufs(&c->out, bufs);
	const int taken = uv_try_write(&c->io.stream, bufs, n);
	if (taken > 0)
		fal_outbox_advance(&c->out, (size_t)taken);
}

/* Seals a batch, and writes as much of the batch as the socket takes.  Returns 1; 0: the
 * queue has nothing for a batch; or an error. */
static int
chan_next_batch(struct fal_chan *c)
{
	/* Bytes a second of the link itself, for a measurement of compression; 0: not
	 * known yet.  TCP's busy time leaves out the time in which the peer had no room:
	 * the peer's own work is not the link's.  For other streams the rate is the rate
	 * at which the stream takes bytes. */
	const uint64_t least_us = 2000; /* the kernel counts milliseconds */
	struct fal_acked now;
	double rate = c->writer->trial ? c->out.rate : 0;
	if (c->writer->trial && chan_acked(c, &now)) {
		const uint64_t us = now.us - c->acked.us;
		const double bytes = (double)(now.bytes - c->acked.bytes);
		rate = us < least_us ? 0 : bytes / (double)us * 1e6;
	}
	int err = fal_outbox_fill(&c->out, c->writer, chan_batch_limit(c), rate);
	if (err < 0 || c->out.bytes == 0)
		return err;
	c->out.offered = uv_hrtime();
	if (c->link == NULL) {
		chan_try_write(c);
		return 1;
	}
	/* Like a socket, the emulated link has room while few bytes wait on the link. */
	err = fal_link_emul_write(c->link, &c->out);
	if (err < 0)
		return err;
	c->is_writing = !fal_link_emul_has_taken(c->link);
	if (!c->is_writing)
		fal_outbox_complete(&c->out);
	return 1;
}

void
fal_chan_write_now(struct fal_chan *c)
{
	int got = 0;
	if (c->is_writing || c->state != FAL_CHAN_OPEN || c->fill_err < 0)
		return;
	if (c->out.bytes > 0)
		chan_try_write(c);
	if (c->out.bytes == 0)
		got = chan_next_batch(c);
	c->fill_err = got < 0 ? got : FAL_OK;
	c->drain_due |= got > 0;
	if (got != 0)
		fal_chan_flush(c); /* writes the rest */
}

/* Writes batches as far as the socket takes them; then tells the owner of room, or of the
 * drained queue. */
static void
chan_pump(struct fal_chan *c)
{
	if (c->is_writing || c->state == FAL_CHAN_CONNECTING ||
	    c->state >= FAL_CHAN_LINGERING)
		return;
	c->turn_bulk = 0;
	int got = c->fill_err;
	if (got == FAL_OK)
		got = c->out.bytes > 0 ? 1 : chan_next_batch(c);
	if (got > 0 && !c->is_writing && c->out.bytes > 0) {
		/* The rest of the batch leaves when the socket has room again. */
		uv_buf_t bufs[FAL_OUTBOX_PIECES];
		const unsigned n = fal_outbox_bufs(&c->out, bufs);
		c->is_writing =
			uv_write(&c->write, &c->io.stream, bufs, n, chan_on_written) == 0;
		got = c->is_writing ? 1 : FAL_EIO;
	}
	if (got < 0) {
		fal_outbox_drop(&c->out);
		fal_chan_fail(c, FAL_EIO, "cannot write");
		return;
	}
	if (c->room_due && c->state == FAL_CHAN_OPEN && fal_chan_has_room(c) &&
	    c->ops.on_room != NULL)
		c->ops.on_room(c->ops.arg, c);
	/* The owner's callback may have offered messages, and part of a batch may be
	 * left. */
	if (c->is_writing || c->out.bytes > 0 || c->fill_err < 0 ||
	    c->state == FAL_CHAN_DEAD)
		return;
	if (!fal_writer_is_idle(c->writer)) {
		if (got > 0)
			fal_chan_flush(c); /* other channels have their turn first */
		return;
	}
	/* The socket, or the emulated link, has all bytes that could leave. */
	if (c->state == FAL_CHAN_FLUSHING && fal_link_emul_has_sent(c->link)) {
		c->state = FAL_CHAN_LINGERING;
		if (uv_shutdown(&c->shutdown, &c->io.stream, chan_on_shutdown) < 0)
			fal_chan_fail(c, FAL_OK, "closed");
	} else if (c->drain_due && c->state == FAL_CHAN_OPEN) {
		c->drain_due = false;
		if (c->ops.on_drain != NULL)
			c->ops.on_drain(c->ops.arg, c);
	}
}

static void
chan_on_flush(uv_idle_t *h)
{
	uv_idle_stop(h);
	chan_pump(h->data);
}

void
fal_chan_flush(struct fal_chan *c)
{
	uv_idle_start(&c->flush, chan_on_flush);
}

/* --- creation and end --- */

static void
chan_on_line_failed(void *arg)
{
	fal_chan_fail(arg, FAL_EIO, "cannot write");
}

static void
chan_on_line_closed(void *arg)
{
	fal_chan_release(arg);
}

int
fal_chan_new(uv_loop_t *loop, const struct fal_chan_opt *opt,
	     const struct fal_chan_ops *ops, struct fal_chan **out)
{
	struct fal_chan *c = fal_xcalloc(1, sizeof(*c));
	const struct fal_link_emul_ops line = { .arg = c,
						.arrived = chan_on_arrived,
						.taken = chan_on_taken,
						.sent = chan_on_sent,
						.ended = chan_on_stream_end,
						.failed = chan_on_line_failed,
						.closed = chan_on_line_closed };
	c->loop = loop;
	c->ops = *ops;
	c->deadline_ms = opt->deadline_ms != 0 ? opt->deadline_ms : FAL_CHAN_DEADLINE_MS;
	c->keepalive.ms = opt->life_ms != 0 ? opt->life_ms : FAL_CHAN_KEEPALIVE_MS;
	c->unseal.allowed = opt->unseals;
	c->in.cap = FAL_CHAN_IN_GREETING;
	c->in.p = fal_xcalloc(1, c->in.cap);
	c->reader = fal_reader_new();
	c->writer =
		fal_writer_new(opt->send_cap != 0 ? opt->send_cap : FAL_CHAN_SEND_CAP);
	if (opt->link != NULL) {
		c->link = fal_link_emul_new(loop, opt->link, &c->io.stream, &line);
		if (c->link == NULL) {
			chan_free_parts(c);
			return FAL_EIO;
		}
	}
	c->reader->place = ops->on_place;
	c->reader->place_arg = ops->arg;
	/* These three cannot fail. */
	uv_timer_init(loop, &c->deadline);
	uv_idle_init(loop, &c->next_turn);
	uv_idle_init(loop, &c->flush);
	c->deadline.data = c->next_turn.data = c->flush.data = c;
	c->write.data = c->shutdown.data = c;
	c->pending += c->link != NULL ? 4 : 3;
	fal_chan_set_deadline(c, c->deadline_ms);
	*out = c;
	return FAL_OK;
}

int
fal_chan_accept(uv_stream_t *at, const struct fal_chan_opt *opt,
		const struct fal_chan_ops *ops, const struct fal_chan_host *host,
		struct fal_chan **out)
{
	struct sockaddr_storage ss = { 0 };
	char ip[INET6_ADDRSTRLEN] = "?";
	struct fal_chan *c;
	if (!fal_memory_is_free(SESSION_BYTES) ||
	    fal_chan_new(at->loop, opt, ops, &c) < 0)
		return FAL_ELIMIT;
	c->is_server = true;
	(void)fal_chan_make_stream(c,
				   at->type == UV_TCP); /* cannot fail without a socket */
	if (uv_accept(at, &c->io.stream) < 0) {
		fal_chan_kill(c);
		return FAL_EIO;
	}
	c->host = *host;
	if (fal_chan_peer(c, &ss) == 0)
		(void)uv_ip_name((struct sockaddr *)&ss, ip, sizeof(ip));
	snprintf(c->source, sizeof(c->source), "%s", chan_is_tcp(c) ? ip : "unix");
	*out = c;
	return FAL_OK;
}

void
fal_chan_connected(struct fal_chan *c)
{
	static const uint8_t mapped[13] = { [10] = 0xff, 0xff, 127 };
	struct sockaddr_storage ss = { 0 };
	const struct in6_addr *six = &((const struct sockaddr_in6 *)&ss)->sin6_addr;
	const struct in_addr *four = &((const struct sockaddr_in *)&ss)->sin_addr;
	/* Is the peer on this machine, as far as its address tells? */
	bool has_local_peer = !chan_is_tcp(c);
	if (fal_chan_peer(c, &ss) == 0)
		has_local_peer =
			ss.ss_family == AF_INET6
				? IN6_IS_ADDR_LOOPBACK(six) ||
					  memcmp(six, mapped, sizeof(mapped)) == 0
				: ntohl(four->s_addr) >> 24 == 127;
	c->state = FAL_CHAN_GREETING;
	c->is_local = (c->is_server || c->dial->addr.kind != FAL_ADDR_EXEC) &&
		      has_local_peer &&
		      (c->link == NULL || fal_link_emul_batch(c->link) == SIZE_MAX);
	chan_set_socket_options(c);
	const int err = chan_start_reading(c);
	if (err < 0)
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(err));
	else
		fal_chan_flush(c);
}

void
fal_chan_close(struct fal_chan *c)
{
	if (c->state >= FAL_CHAN_FLUSHING)
		return;
	if (c->state == FAL_CHAN_OPEN)
		chan_begin_close(c);
	else
		fal_chan_fail(c, FAL_OK, "closed");
}

void
fal_chan_set_ops(struct fal_chan *c, const struct fal_chan_ops *ops)
{
	c->ops = *ops;
	c->reader->place = ops->on_place;
	c->reader->place_arg = ops->arg;
}

/* --- sending and asking --- */

/* After a put without an error: writes at the end of this turn. */
static int
chan_queued(struct fal_chan *c, int err)
{
	if (err < 0)
		return err;
	c->drain_due = true;
	if (c->state != FAL_CHAN_CONNECTING)
		fal_chan_flush(c);
	return FAL_OK;
}

int
fal_chan_send(struct fal_chan *c, const struct fal_buf *msg, enum fal_send how)
{
	if (c->state >= FAL_CHAN_FLUSHING)
		return FAL_ESTATE;
	if (msg->err < 0)
		return msg->err;
	int err = chan_queued(c, fal_writer_put(c->writer, msg->p, msg->n, how));
	if (err < 0 || how != FAL_SEND_BULK)
		return err;
	const size_t before = c->turn_bulk;
	c->turn_bulk += msg->n;
	if (before / OFFER != c->turn_bulk / OFFER)
		fal_chan_write_now(c);
	return FAL_OK;
}

int
fal_chan_send_shared(struct fal_chan *c, struct fal_shared *s)
{
	assert(c->unseal.tx || !s->unsealed);
	if (c->state >= FAL_CHAN_FLUSHING)
		return FAL_ESTATE;
	return chan_queued(c, fal_writer_put_shared(c->writer, s));
}

void
fal_chan_drop_outdated(struct fal_chan *c, fal_is_outdated_fn *is_old, const void *arg)
{
	fal_writer_drop_outdated(c->writer, is_old, arg);
}

int
fal_chan_expect_publication(struct fal_chan *c, const struct fal_publication *pub)
{
	return fal_reader_expect(c->reader, pub);
}

void
fal_chan_compress(struct fal_chan *c, enum fal_compress mode)
{
	c->acked = (struct fal_acked){ 0 };
	if (mode == FAL_COMPRESS_AUTO && c->is_local)
		mode = FAL_COMPRESS_NEVER;
	else if (mode == FAL_COMPRESS_AUTO)
		(void)chan_acked(c, &c->acked);
	fal_writer_compress(c->writer, mode);
}

bool
fal_chan_compressing(const struct fal_chan *c)
{
	return fal_writer_is_compressing(c->writer);
}

const char *
fal_chan_name(const struct fal_chan *c)
{
	return c->session.name;
}

bool
fal_chan_is_local(const struct fal_chan *c)
{
	return c->is_local;
}

double
fal_chan_rtt(const struct fal_chan *c)
{
	return (double)(c->proved_ns - c->answered_ns) * 1e-9;
}

bool
fal_chan_is_stranded(const struct fal_chan *c)
{
	const int stream = chan_is_tcp(c) ? fal_chan_fd(c) : -1;
	struct sockaddr_storage own = { 0 };
	socklen_t n = sizeof(own);
	if (getsockname(stream, (struct sockaddr *)&own, &n) < 0)
		return false;
	/* The port has the same offset in both families. */
	((struct sockaddr_in *)&own)->sin_port = 0;
	const int fd = socket(own.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const int err = bind(fd, (struct sockaddr *)&own, n) < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	return err == EADDRNOTAVAIL;
}

uint8_t
fal_chan_suite(const struct fal_chan *c)
{
	return c->session.suite;
}

enum fal_role
fal_chan_role(const struct fal_chan *c)
{
	return c->session.role;
}

const char *
fal_chan_fingerprint(const struct fal_chan *c)
{
	return c->session.fingerprint;
}

const char *
fal_chan_skew(const struct fal_chan *c)
{
	return c->session.skew.text;
}

const char *
fal_chan_source(const struct fal_chan *c)
{
	return c->source;
}

struct fal_chan_stat
fal_chan_stat(const struct fal_chan *c)
{
	const struct fal_zip_stat z = c->writer->zipped;
	const struct fal_zip_stat u = c->reader->unzipped;
	const size_t queued = c->writer->queued;
	return (struct fal_chan_stat){
		.rx = c->rx,
		.tx = c->out.tx,
		.saved = z.bytes_in - z.bytes_out + u.bytes_out - u.bytes_in,
		.queued = queued,
		.held = queued + c->out.own,
		.rate = c->out.rate,
	};
}

bool
fal_chan_is_by_door(const struct fal_chan *c)
{
	return c->is_by_door;
}
