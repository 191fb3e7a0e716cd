/* Channels: life, the stream, what comes, what goes, and the ways to end.  How a client's
 * stream comes up is dial.c's. */
#include "base/mem.h"
#include "net/conn_priv.h"
#include "net/near.h"

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

#define OFFER ((size_t)128 << 10) /* bytes of bulk that are offered at a time */
#define IN_SLOW ((size_t)4 << 20) /* FAL_CHAN_AHEAD of a slow line */
/* Bytes that TCP may hold unsent: what is there cannot be overtaken. */
#define NOTSENT_LOWAT (256 << 10)

_Static_assert(FAL_CHAN_IN_GREETING >= FAL_HANDSHAKE_MAX, "a handshake fits");
_Static_assert(FAL_CHAN_AHEAD >= FAL_RECORD_WIRE_MAX, "a record fits");

/* Why a server leaves without a word, or answers so that it does not authenticate. */
#define MISMATCH "the coordinator's key does not match, or ours is not in its keyring"

static void start_deadline(struct fal_chan *c);
static void pump(struct fal_chan *c);
static void stream_ended(void *arg, int status);

/* --- the stream --- */

int
fal_chan_stream(struct fal_chan *c, bool tcp)
{
	const int err = tcp ? uv_tcp_init(c->loop, &c->io.tcp)
			    : uv_pipe_init(c->loop, &c->io.pipe, 0);
	c->up = err >= 0;
	if (c->up)
		c->io.handle.data = c;
	return err;
}

static bool
is_tcp(const struct fal_chan *c)
{
	return c->io.handle.type == UV_TCP;
}

int
fal_chan_fd(const struct fal_chan *c)
{
	uv_os_fd_t fd;
	return c->up && uv_fileno(&c->io.handle, &fd) == 0 ? fd : -1;
}

bool
fal_chan_is_kin(const struct fal_chan *c)
{
	const int fd = fal_chan_fd(c);
	return fd >= 0 && !is_tcp(c) && fal_near_is_kin(fd);
}

int
fal_chan_peer(const struct fal_chan *c, struct sockaddr_storage *out)
{
	int n = sizeof(*out);
	return is_tcp(c) ? uv_tcp_getpeername(&c->io.tcp, (struct sockaddr *)out, &n)
			 : UV_ENOTSUP;
}

/* Is the peer on this machine, as far as its address tells? */
static bool
is_on_this_machine(const struct fal_chan *c)
{
	static const uint8_t mapped[13] = { [10] = 0xff, 0xff, 127 };
	struct sockaddr_storage ss = { 0 };
	if (!is_tcp(c))
		return true;
	if (fal_chan_peer(c, &ss) < 0)
		return false;
	const struct in6_addr *six = &((const struct sockaddr_in6 *)&ss)->sin6_addr;
	if (ss.ss_family == AF_INET6)
		return IN6_IS_ADDR_LOOPBACK(six) ||
		       memcmp(six, mapped, sizeof(mapped)) == 0;
	return ntohl(((const struct sockaddr_in *)&ss)->sin_addr.s_addr) >> 24 == 127;
}

/* Small messages do not wait, and little that is unsent is in the kernel, as it cannot be
 * overtaken; FAL_CHAN_IDLE_S and those behind it. */
static void
tune(const struct fal_chan *c)
{
	static const struct {
		int level, name, value;
	} options[] = {
		{ IPPROTO_TCP, TCP_NODELAY, 1 },
		/* A kernel that does not know it is slower to let control pass. */
		{ IPPROTO_TCP, TCP_NOTSENT_LOWAT, NOTSENT_LOWAT },
		{ IPPROTO_TCP, TCP_KEEPIDLE, FAL_CHAN_IDLE_S },
		{ IPPROTO_TCP, TCP_KEEPINTVL, FAL_CHAN_PROBE_S },
		{ IPPROTO_TCP, TCP_KEEPCNT, FAL_CHAN_PROBES },
		{ IPPROTO_TCP, TCP_USER_TIMEOUT, FAL_CHAN_UNHEARD_MS },
		{ SOL_SOCKET, SO_KEEPALIVE, 1 },
	};
	const int fd = fal_chan_fd(c);
	if (fd < 0 || !is_tcp(c))
		return;
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

/* --- ends --- */

static void
on_closed(uv_handle_t *h)
{
	fal_chan_ended(h->data);
}

static void
free_parts(struct fal_chan *c)
{
	fal_outbox_drop(&c->out);
	fal_reader_free(c->reader);
	fal_writer_free(c->writer);
	fal_slow_free(c->slow);
	free(c->in.p);
	free(c);
}

void
fal_chan_ended(struct fal_chan *c)
{
	if (--c->pending != 0)
		return;
	if (!c->killed)
		c->ops.on_close(c->ops.arg, c, c->err, c->why.text);
	if (c->host.gone != NULL)
		c->host.gone(c->host.arg);
	fal_dial_free(c->dial);
	fal_handshake_free(c->handshake);
	free_parts(c);
}

static void
die(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_DEAD)
		return;
	/* A server that did not judge the client says so by a reset: the client would
	 * take an end in order for a refusal. */
	const bool reset = c->server && c->state == FAL_CHAN_GREETING && is_tcp(c) &&
			   c->err != FAL_EAUTH && c->err != FAL_EFORMAT;
	c->state = FAL_CHAN_DEAD;
	c->pending += fal_dial_end(c->dial);
	uv_close((uv_handle_t *)&c->deadline, on_closed);
	uv_close((uv_handle_t *)&c->again, on_closed);
	uv_close((uv_handle_t *)&c->flush, on_closed);
	fal_slow_close(c->slow);
	if (!c->up || uv_is_closing(&c->io.handle))
		return;
	c->pending++;
	if (!reset || uv_tcp_close_reset(&c->io.tcp, on_closed) < 0)
		uv_close(&c->io.handle, on_closed);
}

/* A reason that was set before stays. */
static void
set_why(struct fal_chan *c, int err, const char *text)
{
	if (c->why.text[0] != '\0')
		return;
	c->err = err;
	if (!c->server)
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
	set_why(c, err, d.text);
	die(c);
}

void
fal_chan_kill(struct fal_chan *c)
{
	c->killed = true;
	die(c);
}

/* Sends the waiting bytes, then ends the stream. */
static void
begin_close(struct fal_chan *c)
{
	c->state = FAL_CHAN_FLUSHING;
	start_deadline(c);
	fal_chan_flush(c);
}

/* --- the deadline --- */

static void
on_deadline(uv_timer_t *t)
{
	struct fal_chan *c = t->data;
	if (c->state == FAL_CHAN_LINGERING)
		fal_chan_fail(c, FAL_OK, "closed");
	else if (c->state == FAL_CHAN_FLUSHING)
		fal_chan_fail(c, FAL_EIO, "what was to be sent did not leave in time");
	else if (c->state == FAL_CHAN_CONNECTING)
		fal_chan_fail(c, FAL_EIO, "no connection within %g s",
			      c->deadline_ms / 1e3);
	else
		fal_chan_fail(c, FAL_EIO, "no handshake within %g s",
			      c->deadline_ms / 1e3);
}

void
fal_chan_hurry(struct fal_chan *c, unsigned ms)
{
	uv_update_time(c->loop);
	uv_timer_start(&c->deadline, on_deadline, ms, 0);
}

static void
start_deadline(struct fal_chan *c)
{
	fal_chan_hurry(c, c->deadline_ms);
}

/* --- signs of life --- */

static void
on_life(uv_timer_t *t)
{
	struct fal_chan *c = t->data;
	const uint64_t said = c->out.tx;
	c->silent = c->heard ? 0 : c->silent + 1;
	c->heard = false;
	if (c->silent == FAL_CHAN_LIVES) {
		fal_chan_fail(c, FAL_EIO, "nothing was heard for %g s",
			      c->life_ms * FAL_CHAN_LIVES / 1e3);
		return;
	}
	if (said == c->said && c->out.bytes == 0 &&
	    fal_writer_put(c->writer, NULL, 0, FAL_SEND_CONTROL) == FAL_OK)
		fal_chan_flush(c);
	c->said = said;
}

/* --- what comes --- */

/* How many bytes, from c->in.from on, have arrived and are to be opened. */
static size_t
arrived(const struct fal_chan *c)
{
	return c->in.to - c->in.from - fal_slow_held(c->slow);
}

/* --- the end of the stream --- */

/* The kernel has all that we said first, even if on_written is to come. */
static bool
has_spoken(const struct fal_chan *c)
{
	return (c->writing || c->out.tx != 0) && fal_slow_sent(c->slow) &&
	       uv_stream_get_write_queue_size(&c->io.stream) == 0;
}

/* The stream ended while the server's answer was to come.  A command's exit status says
 * more than its stream, and may come later. */
static void
unanswered(struct fal_chan *c, int status)
{
	const struct fal_dial *d = c->dial;
	if (d->command != NULL) {
		if (c->ended == 0)
			c->ended = status;
	} else if (d->addr.kind == FAL_ADDR_EXEC &&
		   (d->exit_status != 0 || status != UV_EOF || !has_spoken(c))) {
		fal_chan_fail(c, FAL_EIO, "the command ended with status %d",
			      d->exit_status);
	} else if (status != UV_EOF) {
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(status));
	} else if (!has_spoken(c)) {
		fal_chan_fail(c, FAL_EIO, "the peer left before we said a word");
	} else if (c->rx != 0) {
		fal_chan_fail(c, FAL_ETRUNC, "the peer left in the handshake");
	} else {
		fal_chan_fail(c, FAL_EPERM, MISMATCH ", or a tunnel leads nowhere");
	}
}

void
fal_chan_command_ended(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_GREETING && c->ended != 0)
		unanswered(c, c->ended);
}

/* How the stream ended, for one who waits for more. */
static void
stream_ended(void *arg, int status)
{
	struct fal_chan *c = arg;
	const bool all_sent =
		fal_writer_idle(c->writer) && c->out.bytes == 0 && fal_slow_sent(c->slow);
	if (c->state == FAL_CHAN_LINGERING || (c->state == FAL_CHAN_FLUSHING && all_sent))
		fal_chan_fail(c, FAL_OK, "closed");
	else if (!c->server && c->state == FAL_CHAN_GREETING)
		unanswered(c, status);
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

/* --- unsealed records, over a unix socket ---
 *
 * The client says which process it is, and the server, if its kernel has that at the
 * other end, which one it is itself.  If the same holds there, the client sends an empty
 * unseal record, the last sealed one, and then the server does.  A relay between the two,
 * as ssh and socat, is another process than either: then all stays sealed.  So a liar
 * unseals no session but its own. */
static void
put_unseal(struct fal_chan *c, const uint8_t *p, size_t n)
{
	fal_writer_put_unseal(c->writer, p, n);
	fal_chan_flush(c);
}

static void
name_self(struct fal_chan *c)
{
	uint8_t self[FAL_PROCESS_BYTES];
	if (!fal_near_self(self))
		return; /* it is only a quicker way */
	c->named = true;
	put_unseal(c, self, sizeof(self));
}

static bool
may_unseal(const struct fal_chan *c)
{
	return c->unseals && c->slow == NULL && fal_chan_is_kin(c);
}

/* Seals nothing more that is sent from now on. */
static void
unseal(struct fal_chan *c)
{
	c->unsealed = true;
	put_unseal(c, NULL, 0);
}

/* An unseal record has come.  With a text the peer says which process it is: once, a
 * server as an answer.  Behind an empty one the peer seals nothing more: a client does so
 * first, once the server has answered, then the server. */
static int
on_unseal(struct fal_chan *c, const uint8_t *p, size_t n)
{
	if (n == 0) {
		if (!c->named || c->unsealed == c->server || c->reader->unsealed)
			return FAL_ESTATE;
		c->reader->unsealed = true;
		if (c->server)
			unseal(c);
		return FAL_OK;
	}
	if (n != FAL_PROCESS_BYTES)
		return FAL_EFORMAT;
	if (c->knows_peer || (!c->server && !c->named))
		return FAL_ESTATE;
	c->knows_peer = true;
	if (!may_unseal(c) || !fal_near_is(fal_chan_fd(c), p))
		return FAL_OK;
	if (c->server)
		name_self(c);
	else
		unseal(c);
	return FAL_OK;
}

bool
fal_chan_is_unsealed(const struct fal_chan *c)
{
	return c->unsealed;
}

/* --- the handshake --- */

/* The ends know one another: session keys, larger buffers. */
static int
establish(struct fal_chan *c, const struct fal_session *s)
{
	c->reader->rx = s->rx;
	c->writer->tx = s->tx;
	memcpy(c->name, s->name, sizeof(c->name));
	memcpy(c->fingerprint, s->fingerprint, sizeof(c->fingerprint));
	c->role = s->role;
	c->suite = s->tx.suite;
	fal_session_skew(s, &c->skew);
	c->in.from += s->used;
	const size_t cap = c->slow != NULL ? IN_SLOW : FAL_CHAN_AHEAD;
	uint8_t *p = fal_realloc(c->in.p, cap, 1);
	if (p == NULL)
		return FAL_ENOMEM;
	c->in.p = p;
	c->in.cap = cap;
	return FAL_OK;
}

static void
open_now(struct fal_chan *c)
{
	c->state = FAL_CHAN_OPEN;
	fal_handshake_free(c->handshake); /* it has our key */
	c->handshake = NULL;
	c->heard = true; /* from now on signs of life are given and looked for */
	uv_timer_start(&c->deadline, on_life, c->life_ms, c->life_ms);
	if (!c->server && may_unseal(c))
		name_self(c);
	if (c->ops.on_open != NULL)
		c->ops.on_open(c->ops.arg, c);
}

/* Memory of a connection, its handshake and the start of its session. */
#define SESSION_BYTES (FAL_CHAN_AHEAD + 65536)

/* The peer's half of the handshake; false: nothing more can be done with the input. */
static bool
greet(struct fal_chan *c)
{
	struct fal_session s = { 0 };
	struct fal_buf out = { 0 };
	struct fal_diag d;
	const uint8_t *in = c->in.p + c->in.from;
	const size_t n = arrived(c);
	if (c->server && !fal_memory_left(SESSION_BYTES)) {
		fal_chan_fail(c, FAL_ENOMEM, "out of memory");
		return true;
	}
	const int err = c->server ? c->host.greet(c->host.arg, in, n, &s, &out, &d)
				  : fal_handshake_finish(c->handshake, in, n, &s, &d);
	if (out.n != 0) {
		fal_writer_put_raw(c->writer, out.p, out.n);
		fal_chan_flush(c);
	}
	fal_buf_free(&out);
	if (err == FAL_ETRUNC)
		return false;
	if (err == FAL_EVERSION && c->server) { /* the refusal is on its way */
		set_why(c, err, d.text);
		begin_close(c);
	} else if (err == FAL_EAUTH && !c->server) {
		fal_chan_fail(c, err, MISMATCH);
	} else if (err < 0) {
		fal_chan_fail(c, err, "%s", d.text);
	} else if (establish(c, &s) < 0) {
		fal_chan_fail(c, FAL_ENOMEM, "out of memory");
	} else if (c->server) {
		c->answered = uv_hrtime();
		c->state = FAL_CHAN_UNPROVEN;
	} else {
		fal_chan_flush(c);
		open_now(c);
	}
	return true;
}

/* --- records --- */

/* Reads a record; false: more bytes are needed. */
static bool
read_record(struct fal_chan *c)
{
	const uint8_t *msg;
	size_t used, n;
	const int got = fal_reader_next(c->reader, c->in.p + c->in.from, arrived(c),
					&used, &msg, &n);
	if (got == FAL_ETRUNC)
		return false;
	if (got < 0) {
		fal_chan_fail(c, got, "a record was refused: %s", fal_strerror(got));
		return true;
	}
	c->in.from += used;
	c->heard = true; /* of a slow line it was read long before */
	/* Nothing is expected yet, so this was no shared record: the client is no replay.
	 */
	if (c->state == FAL_CHAN_UNPROVEN) {
		c->proved = uv_hrtime();
		open_now(c);
	}
	if (c->state != FAL_CHAN_OPEN)
		return true;
	int err = FAL_OK;
	if (got == FAL_READ_PLACED)
		c->ops.on_placed(c->ops.arg, c, msg, n);
	else if (got == FAL_READ_UNSEAL)
		err = on_unseal(c, msg, n);
	else if (got == FAL_READ_MESSAGE && n > 0) /* else a sign of life */
		c->ops.on_msg(c->ops.arg, c, msg, n);
	if (err < 0)
		fal_chan_fail(c, err, "an unseal record: %s", fal_strerror(err));
	return true;
}

static void on_again(uv_idle_t *h);
static int start_reading(struct fal_chan *c);

/* Reads, or not: when what there is has to wait, or is too much. */
static void
read_or_not(struct fal_chan *c)
{
	if (c->paused || (c->slow != NULL &&
			  fal_slow_full(c->slow, c->in.to - c->in.from == c->in.cap)))
		uv_read_stop(&c->io.stream);
	else if (!c->deaf)
		start_reading(c);
}

/* Opens what is there, until the turn is over. */
static void
consume(struct fal_chan *c)
{
	bool more = true;
	while (more && arrived(c) > 0) {
		if (c->state == FAL_CHAN_GREETING)
			more = greet(c);
		else if (c->state == FAL_CHAN_OPEN || c->state == FAL_CHAN_UNPROVEN)
			more = read_record(c);
		else /* the channel is closing: nobody wants it any more */
			c->in.from += arrived(c);
		if (more && uv_hrtime() - c->turn_begun > FAL_CHAN_TURN_NS)
			break;
	}
	if (c->state == FAL_CHAN_DEAD)
		return;
	const bool pause = more && arrived(c) > 0;
	if (pause && !c->paused)
		uv_idle_start(&c->again, on_again);
	else if (!pause && c->paused)
		uv_idle_stop(&c->again);
	if (pause != c->paused || c->slow != NULL) {
		c->paused = pause;
		read_or_not(c);
	}
}

/* A slow line's callback: bytes have arrived, or the line can take more of them. */
static void
on_arrived(void *arg)
{
	struct fal_chan *c = arg;
	c->turn_begun = uv_hrtime();
	consume(c);
}

static void
on_again(uv_idle_t *h)
{
	on_arrived(h->data);
}

static void
on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
	struct fal_chan *c = h->data;
	(void)hint;
	memmove(c->in.p, c->in.p + c->in.from, c->in.to - c->in.from);
	c->in.to -= c->in.from;
	c->in.from = 0;
	size_t room = c->in.cap - c->in.to;
	if (c->slow != NULL && fal_slow_batch(c->slow) < room)
		room = fal_slow_batch(c->slow);
	*buf = uv_buf_init((char *)c->in.p + c->in.to, (unsigned)room);
}

static void
on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf)
{
	struct fal_chan *c = s->data;
	(void)buf;
	if (n == 0)
		return;
	if (n < 0) {
		c->deaf = true;
		if (c->slow == NULL || !fal_slow_ends(c->slow, (int)n))
			stream_ended(c, (int)n);
		return;
	}
	c->rx += (uint64_t)n;
	c->heard = true;
	c->in.to += (size_t)n;
	assert(c->in.to <= c->in.cap);
	if (c->slow != NULL) {
		fal_slow_read(c->slow, (size_t)n);
		read_or_not(c);
		return;
	}
	/* libuv may read several times in one turn of the loop. */
	if (c->turn_begun == 0 || uv_now(c->loop) != c->turn_now) {
		c->turn_now = uv_now(c->loop);
		c->turn_begun = uv_hrtime();
	}
	consume(c);
}

/* Until uv_read_stop.  libuv's errors. */
static int
start_reading(struct fal_chan *c)
{
	return uv_read_start(&c->io.stream, on_alloc, on_read);
}

/* --- what goes --- */

static size_t
batch_limit(const struct fal_chan *c)
{
	const size_t slow = c->slow != NULL ? fal_slow_batch(c->slow) : SIZE_MAX;
	return slow <= FAL_OUTBOX_MAX ? slow : fal_outbox_limit(&c->out);
}

/* The bytes that TCP sent and the peer acknowledged so far, and how long that took;
 * false: nobody knows. */
static bool
acked(const struct fal_chan *c, struct fal_acked *out)
{
	const int fd = fal_chan_fd(c);
	return c->slow == NULL && fd >= 0 && fal_acked(fd, out);
}

/* Bytes a second of the link itself; 0: not known yet.  TCP tells apart the time in which
 * it waited for the peer to make room: the peer's own work is not the link's.  The rate
 * of other streams is what they take. */
static double
link_rate(const struct fal_chan *c)
{
	const uint64_t least_us = 2000; /* the kernel counts milliseconds */
	struct fal_acked now;
	if (!acked(c, &now))
		return c->out.rate;
	const uint64_t us = now.us - c->acked.us;
	return us < least_us ? 0
			     : (double)(now.bytes - c->acked.bytes) / (double)us * 1e6;
}

bool
fal_chan_room(struct fal_chan *c)
{
	c->crowded = c->writer->queued >= batch_limit(c) || c->bulk >= FAL_OUTBOX_MAX;
	return !c->crowded;
}

/* The socket, or the slow line, has taken the batch. */
static void
on_taken(void *arg)
{
	struct fal_chan *c = arg;
	c->writing = false;
	fal_outbox_taken(&c->out);
	pump(c);
}

static void
on_written(uv_write_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (status >= 0 && c->state != FAL_CHAN_DEAD) {
		on_taken(c);
		return;
	}
	c->writing = false;
	fal_outbox_drop(&c->out);
	if (c->state != FAL_CHAN_DEAD)
		stream_ended(c, status);
}

/* The socket has all of what was on the slow line. */
static void
on_sent(void *arg)
{
	struct fal_chan *c = arg;
	if (c->state == FAL_CHAN_FLUSHING)
		pump(c);
}

static void
on_shutdown(uv_shutdown_t *req, int status)
{
	struct fal_chan *c = req->data;
	if (c->state != FAL_CHAN_DEAD && status < 0)
		stream_ended(c, UV_EOF);
}

/* The socket has all that could leave. */
static void
drained(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_FLUSHING && !fal_slow_sent(c->slow))
		return;
	if (c->state == FAL_CHAN_FLUSHING) {
		c->state = FAL_CHAN_LINGERING;
		if (uv_shutdown(&c->shutdown, &c->io.stream, on_shutdown) < 0)
			fal_chan_fail(c, FAL_OK, "closed");
	} else if (c->undrained && c->state == FAL_CHAN_OPEN) {
		c->undrained = false;
		if (c->ops.on_drain != NULL)
			c->ops.on_drain(c->ops.arg, c);
	}
}

/* Writes as much of the batch as the socket takes at once. */
static void
try_batch(struct fal_chan *c)
{
	uv_buf_t bufs[FAL_OUTBOX_PIECES];
	const unsigned n = fal_outbox_bufs(&c->out, bufs);
	const int taken = uv_try_write(&c->io.stream, bufs, n);
	if (taken > 0)
		fal_outbox_took(&c->out, (size_t)taken);
}

/* Seals a batch, which leaves as far as there is room: 1; 0: there is nothing for it; or
 * an error. */
static int
next_batch(struct fal_chan *c)
{
	const double rate = c->writer->trial ? link_rate(c) : 0;
	int err = fal_outbox_fill(&c->out, c->writer, batch_limit(c), rate);
	if (err < 0 || c->out.bytes == 0)
		return err;
	c->out.offered = uv_hrtime();
	if (c->slow == NULL) {
		try_batch(c);
		return 1;
	}
	/* The line has room for what is soon over, as a socket has. */
	err = fal_slow_write(c->slow, &c->out);
	if (err < 0)
		return err;
	c->writing = !fal_slow_took(c->slow);
	if (!c->writing)
		fal_outbox_taken(&c->out);
	return 1;
}

void
fal_chan_offer(struct fal_chan *c)
{
	int got = 0;
	if (c->writing || c->state != FAL_CHAN_OPEN || c->fill_err < 0)
		return;
	if (c->out.bytes > 0)
		try_batch(c);
	if (c->out.bytes == 0)
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
		got = c->out.bytes > 0 ? 1 : next_batch(c);
	if (got > 0 && !c->writing && c->out.bytes > 0) {
		/* The rest of the batch follows when there is room again. */
		uv_buf_t bufs[FAL_OUTBOX_PIECES];
		const unsigned n = fal_outbox_bufs(&c->out, bufs);
		c->writing = uv_write(&c->write, &c->io.stream, bufs, n, on_written) == 0;
		got = c->writing ? 1 : FAL_EIO;
	}
	if (got < 0) {
		fal_outbox_drop(&c->out);
		fal_chan_fail(c, FAL_EIO, "cannot write");
		return;
	}
	if (c->crowded && c->state == FAL_CHAN_OPEN && fal_chan_room(c) &&
	    c->ops.on_room != NULL)
		c->ops.on_room(c->ops.arg, c);
	/* The owner's callback may have offered messages, of which a rest is left. */
	if (c->writing || c->out.bytes > 0 || c->fill_err < 0 ||
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

/* --- life --- */

static void
on_line_failed(void *arg)
{
	fal_chan_fail(arg, FAL_EIO, "cannot write");
}

static void
on_line_closed(void *arg)
{
	fal_chan_ended(arg);
}

int
fal_chan_new(uv_loop_t *loop, const struct fal_chan_opt *opt,
	     const struct fal_chan_ops *ops, struct fal_chan **out)
{
	struct fal_chan *c = fal_xcalloc(1, sizeof(*c));
	const struct fal_slow_ops line = { .arg = c,
					   .arrived = on_arrived,
					   .taken = on_taken,
					   .sent = on_sent,
					   .ended = stream_ended,
					   .failed = on_line_failed,
					   .closed = on_line_closed };
	c->loop = loop;
	c->ops = *ops;
	c->deadline_ms = opt->deadline_ms != 0 ? opt->deadline_ms : FAL_CHAN_DEADLINE_MS;
	c->life_ms = opt->life_ms != 0 ? opt->life_ms : FAL_CHAN_LIFE_MS;
	c->unseals = opt->unseals;
	c->in.cap = FAL_CHAN_IN_GREETING;
	c->in.p = fal_xcalloc(1, c->in.cap);
	c->reader = fal_reader_new();
	c->writer =
		fal_writer_new(opt->send_cap != 0 ? opt->send_cap : FAL_CHAN_SEND_CAP);
	if (opt->link != NULL) {
		c->slow = fal_slow_new(loop, opt->link, &c->io.stream, &line);
		if (c->slow == NULL) {
			free_parts(c);
			return FAL_EIO;
		}
	}
	c->reader->place = ops->on_place;
	c->reader->place_arg = ops->arg;
	/* These three cannot fail. */
	uv_timer_init(loop, &c->deadline);
	uv_idle_init(loop, &c->again);
	uv_idle_init(loop, &c->flush);
	c->deadline.data = c->again.data = c->flush.data = c;
	c->write.data = c->shutdown.data = c;
	c->pending += c->slow != NULL ? 4 : 3;
	start_deadline(c);
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
	if (!fal_memory_left(SESSION_BYTES) || fal_chan_new(at->loop, opt, ops, &c) < 0)
		return FAL_ELIMIT;
	c->server = true;
	(void)fal_chan_stream(c, at->type == UV_TCP); /* cannot fail without a socket */
	if (uv_accept(at, &c->io.stream) < 0) {
		fal_chan_kill(c);
		return FAL_EIO;
	}
	c->host = *host;
	if (fal_chan_peer(c, &ss) == 0)
		(void)uv_ip_name((struct sockaddr *)&ss, ip, sizeof(ip));
	snprintf(c->source, sizeof(c->source), "%s", is_tcp(c) ? ip : "unix");
	*out = c;
	return FAL_OK;
}

enum fal_chan_state
fal_chan_state(const struct fal_chan *c)
{
	return c->state;
}

void
fal_chan_connected(struct fal_chan *c)
{
	c->state = FAL_CHAN_GREETING;
	c->local = (c->server || c->dial->addr.kind != FAL_ADDR_EXEC) &&
		   is_on_this_machine(c) &&
		   (c->slow == NULL || fal_slow_batch(c->slow) == SIZE_MAX);
	tune(c);
	const int err = start_reading(c);
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
		begin_close(c);
	else
		fal_chan_fail(c, FAL_OK, "closed");
}

void
fal_chan_adopt(struct fal_chan *c, const struct fal_chan_ops *ops)
{
	c->ops = *ops;
	c->reader->place = ops->on_place;
	c->reader->place_arg = ops->arg;
}

/* --- sending and asking --- */

/* After a put: writes at the end of this turn. */
static int
queued(struct fal_chan *c, int err)
{
	if (err < 0)
		return err;
	c->undrained = true;
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
	int err = queued(c, fal_writer_put(c->writer, msg->p, msg->n, how));
	if (err < 0 || how != FAL_SEND_BULK)
		return err;
	const size_t before = c->bulk;
	c->bulk += msg->n;
	if (before / OFFER != c->bulk / OFFER)
		fal_chan_offer(c);
	return FAL_OK;
}

int
fal_chan_send_shared(struct fal_chan *c, struct fal_shared *s)
{
	assert(c->unsealed || !s->unsealed);
	if (c->state >= FAL_CHAN_FLUSHING)
		return FAL_ESTATE;
	return queued(c, fal_writer_put_shared(c->writer, s));
}

void
fal_chan_skip_shared(struct fal_chan *c, fal_old_fn *is_old, const void *arg)
{
	fal_writer_skip_shared(c->writer, is_old, arg);
}

int
fal_chan_expect_shared(struct fal_chan *c, const struct fal_publication *pub)
{
	return fal_reader_expect(c->reader, pub);
}

void
fal_chan_compress(struct fal_chan *c, enum fal_compress mode)
{
	c->acked = (struct fal_acked){ 0 };
	if (mode == FAL_COMPRESS_AUTO && c->local)
		mode = FAL_COMPRESS_NEVER;
	else if (mode == FAL_COMPRESS_AUTO)
		(void)acked(c, &c->acked);
	fal_writer_compress(c->writer, mode);
}

bool
fal_chan_compressing(const struct fal_chan *c)
{
	return fal_writer_compressing(c->writer);
}

const char *
fal_chan_name(const struct fal_chan *c)
{
	return c->name;
}

bool
fal_chan_is_local(const struct fal_chan *c)
{
	return c->local;
}

double
fal_chan_rtt(const struct fal_chan *c)
{
	return (double)(c->proved - c->answered) * 1e-9;
}

bool
fal_chan_is_stranded(const struct fal_chan *c)
{
	const int stream = is_tcp(c) ? fal_chan_fd(c) : -1;
	struct sockaddr_storage own = { 0 };
	socklen_t n = sizeof(own);
	if (getsockname(stream, (struct sockaddr *)&own, &n) < 0)
		return false;
	((struct sockaddr_in *)&own)->sin_port =
		0; /* at the same place for both families */
	const int fd = socket(own.ss_family, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	const int err = bind(fd, (struct sockaddr *)&own, n) < 0 ? errno : 0;
	if (fd >= 0)
		close(fd);
	return err == EADDRNOTAVAIL;
}

uint8_t
fal_chan_suite(const struct fal_chan *c)
{
	return c->suite;
}

enum fal_role
fal_chan_role(const struct fal_chan *c)
{
	return c->role;
}

const char *
fal_chan_fingerprint(const struct fal_chan *c)
{
	return c->fingerprint;
}

const char *
fal_chan_skew(const struct fal_chan *c)
{
	return c->skew.text;
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
fal_chan_is_near(const struct fal_chan *c)
{
	return c->near;
}
