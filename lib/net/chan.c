/* Channels: reading, writing and the ways to end. */
#include "net/chan_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#define IN_GREETING 512                /* bytes of input kept before the session opens */
#define IN_OPEN ((size_t)256 << 10)    /* and after */
#define IN_SLOW ((size_t)4 << 20)      /* the same, of a slow line */
#define RATE_BATCH ((size_t)32 << 10)  /* of batches that are at least as large */
#define RATE_BYTES ((uint64_t)1 << 20) /* a rate is taken after so many bytes, */
#define RATE_NS 20000000u              /* or so much time */
/* Bytes that TCP may hold unsent: what is there cannot be overtaken. */
#define NOTSENT_LOWAT (256 << 10)

_Static_assert(IN_GREETING >= FAL_HANDSHAKE_MAX, "a handshake fits");
_Static_assert(IN_OPEN >= FAL_RECORD_WIRE_MAX, "a record fits");

/* Why a server leaves without a word, or answers so that it does not authenticate. */
#define MISMATCH "the coordinator's key does not match, or ours is not in its keyring"

static void start_deadline(struct fal_chan *c);
static void on_flush(uv_idle_t *h);
static void pump(struct fal_chan *c);

/* --- ends --- */

static void
on_closed(uv_handle_t *h)
{
	fal_chan_ended(h->data);
}

static void
drop_batch(struct fal_chan *c)
{
	for (unsigned i = 0; i < c->batch_n; i++)
		fal_piece_free(&c->batch[i]);
	c->batch_n = 0;
}

void
fal_chan_ended(struct fal_chan *c)
{
	if (--c->pending != 0)
		return;
	if (c->on_gone != NULL)
		c->on_gone(c);
	if (!c->killed)
		c->ops.on_close(c->ops.arg, c, c->err, c->why.text);
	drop_batch(c);
	fal_dial_free(c);
	fal_handshake_free(c->handshake);
	fal_reader_wipe(&c->reader);
	fal_writer_wipe(&c->writer);
	fal_slow_free(c->slow);
	free(c->in);
	free(c);
}

static void
close_handle(uv_handle_t *h)
{
	if (!uv_is_closing(h))
		uv_close(h, on_closed);
}

/* A server that did not judge the client says so by a reset: the client would take an end
 * in order for a refusal. */
static bool
ends_unjudged(const struct fal_chan *c)
{
	return c->keyring != NULL && c->state == FAL_CHAN_GREETING &&
	       c->io.handle.type == UV_TCP && c->err != FAL_EAUTH &&
	       c->err != FAL_EFORMAT;
}

static void
die(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_DEAD)
		return;
	const bool reset = ends_unjudged(c);
	c->state = FAL_CHAN_DEAD;
	fal_dial_over(c);
	close_handle((uv_handle_t *)&c->deadline);
	close_handle((uv_handle_t *)&c->again);
	close_handle((uv_handle_t *)&c->flush);
	fal_slow_close(c->slow);
	if (c->io_up && (!reset || uv_tcp_close_reset(&c->io.tcp, on_closed) < 0))
		close_handle(&c->io.handle);
}

/* Of a reason that was set before, this changes nothing. */
static void
set_why(struct fal_chan *c, int err, const char *text)
{
	if (c->why.text[0] != '\0')
		return;
	c->err = err;
	if (c->keyring == NULL)
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

static void
begin_close(struct fal_chan *c)
{
	c->state = FAL_CHAN_FLUSHING;
	start_deadline(c);
	uv_idle_start(&c->flush, on_flush);
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

static void
start_deadline(struct fal_chan *c)
{
	uv_update_time(c->loop);
	uv_timer_start(&c->deadline, on_deadline, c->deadline_ms, 0);
}

/* --- reading --- */

/* The end in c->in of what has arrived. */
static size_t
in_end(const struct fal_chan *c)
{
	return c->in_to - fal_slow_held(c->slow);
}

/* The kernel has all that we said first, even if on_written is to come. */
static bool
has_spoken(const struct fal_chan *c)
{
	return (c->writing || c->tx != 0) && fal_slow_sent(c->slow) &&
	       uv_stream_get_write_queue_size(&c->io.stream) == 0;
}

/* The stream ended while the server's answer was to come.  A command's exit status says
 * more than its stream, and may come later. */
static void
unanswered(struct fal_chan *c, int status)
{
	if (c->child != NULL) {
		if (c->ended == 0)
			c->ended = status;
	} else if (c->exec &&
		   (c->exit_status != 0 || status != UV_EOF || !has_spoken(c))) {
		fal_chan_fail(c, FAL_EIO, "the command ended with status %d",
			      c->exit_status);
	} else if (status != UV_EOF) {
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(status));
	} else if (!has_spoken(c)) {
		fal_chan_fail(c, FAL_EIO, "the peer left before we said a word");
	} else if (c->in_to != 0) {
		fal_chan_fail(c, FAL_ETRUNC, "the peer left in the handshake");
	} else {
		fal_chan_fail(c, FAL_EAUTH, MISMATCH);
	}
}

void
fal_chan_command_ended(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_GREETING && c->ended != 0)
		unanswered(c, c->ended);
}

/* How the stream ended, for one who waits for more. */
void
fal_chan_stream_ended(struct fal_chan *c, int status)
{
	const bool client = c->keyring == NULL;
	const bool all_sent =
		fal_writer_empty(&c->writer) && !c->writing && fal_slow_sent(c->slow);
	if (c->state == FAL_CHAN_LINGERING || (c->state == FAL_CHAN_FLUSHING && all_sent))
		fal_chan_fail(c, FAL_OK, "closed");
	else if (client && c->state == FAL_CHAN_GREETING)
		unanswered(c, status);
	else if (status != 0 && status != UV_EOF)
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(status));
	else if (c->state == FAL_CHAN_FLUSHING)
		fal_chan_fail(c, FAL_EIO, "the peer left before all was sent");
	else if (c->state != FAL_CHAN_OPEN)
		fal_chan_fail(c, FAL_ETRUNC, "the peer left in the handshake");
	else if (c->in_from != c->in_to)
		fal_chan_fail(c, FAL_ETRUNC, "the stream ended within a record");
	else
		fal_chan_fail(c, FAL_OK, "closed by the peer");
}

/* The ends know one another: session keys, larger buffers. */
static int
establish(struct fal_chan *c, const struct fal_session *s)
{
	c->reader.rx = s->rx;
	c->writer.tx = s->tx;
	memcpy(c->name, s->name, sizeof(c->name));
	memcpy(c->fingerprint, s->fingerprint, sizeof(c->fingerprint));
	c->role = s->role;
	c->in_from += s->used;
	const size_t cap = c->slow != NULL ? IN_SLOW : IN_OPEN;
	uint8_t *in = fal_realloc(c->in, cap, 1);
	if (in == NULL)
		return FAL_ENOMEM;
	c->in = in;
	c->in_cap = cap;
	return FAL_OK;
}

static void
open_now(struct fal_chan *c)
{
	c->state = FAL_CHAN_OPEN;
	uv_timer_stop(&c->deadline);
	if (c->ops.on_open != NULL)
		c->ops.on_open(c->ops.arg, c);
}

static int
greet_server(struct fal_chan *c, struct fal_session *s, struct fal_diag *d)
{
	struct fal_buf out = { 0 };
	if (c->limit != NULL && fal_handshake_whole(c->in, in_end(c)) &&
	    !fal_limit_take(c->limit, c->limit_source, uv_hrtime()))
		return fal_diag_set(d, FAL_ELIMIT, "too many handshakes in a short time");
	int err = fal_handshake_answer(*c->keyring, (int64_t)time(NULL), c->in, in_end(c),
				       s, &out, d);
	if (out.n != 0 && fal_writer_put_raw(&c->writer, out.p, out.n) < 0) {
		fal_seal_wipe(&s->rx);
		fal_seal_wipe(&s->tx);
		err = fal_diag_set(d, FAL_ENOMEM, "out of memory");
	}
	if (out.n != 0)
		uv_idle_start(&c->flush, on_flush);
	fal_buf_free(&out);
	return err;
}

/* The peer's half of the handshake; false: nothing more can be done with the input. */
static bool
greet(struct fal_chan *c)
{
	const bool server = c->keyring != NULL;
	struct fal_session s = { 0 };
	struct fal_diag d;
	const int err =
		server ? greet_server(c, &s, &d)
		       : fal_handshake_finish(c->handshake, c->in, in_end(c), &s, &d);
	if (err == FAL_ETRUNC)
		return false;
	if (err == FAL_EVERSION && server) { /* the refusal is on its way */
		set_why(c, err, d.text);
		begin_close(c);
	} else if (err == FAL_EAUTH && !server) {
		fal_chan_fail(c, err, MISMATCH);
	} else if (err < 0) {
		fal_chan_fail(c, err, "%s", d.text);
	} else if (establish(c, &s) < 0) {
		fal_chan_fail(c, FAL_ENOMEM, "out of memory");
	} else if (server) {
		c->state = FAL_CHAN_UNPROVEN;
	} else {
		uv_idle_start(&c->flush, on_flush);
		open_now(c);
	}
	return true;
}

/* One record; false: more bytes are needed. */
static bool
read_record(struct fal_chan *c)
{
	const uint8_t *msg;
	size_t used, n;
	int got = fal_reader_next(&c->reader, c->in + c->in_from, in_end(c) - c->in_from,
				  &used, &msg, &n);
	if (got == FAL_ETRUNC)
		return false;
	if (got < 0) {
		fal_chan_fail(c, got, "a record was refused: %s", fal_strerror(got));
		return true;
	}
	c->in_from += used;
	/* Nothing is expected yet, so this was no shared record: the client is no replay.
	 */
	if (c->state == FAL_CHAN_UNPROVEN)
		open_now(c);
	if (got == 1 && c->state == FAL_CHAN_OPEN)
		c->ops.on_msg(c->ops.arg, c, msg, n);
	return true;
}

static void on_again(uv_idle_t *h);
static void on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf);
static void on_read(uv_stream_t *s, ssize_t n, const uv_buf_t *buf);

/* Reads, or not: when what there is has to wait, or is too much. */
static void
read_or_not(struct fal_chan *c)
{
	if (c->paused || (c->slow != NULL && fal_slow_full(c->slow)))
		uv_read_stop(&c->io.stream);
	else if (!c->deaf)
		uv_read_start(&c->io.stream, on_alloc, on_read);
}

/* Opens what is there, until the turn is over. */
static void
consume(struct fal_chan *c)
{
	bool more = true;
	while (more && c->in_from != in_end(c)) {
		if (c->state == FAL_CHAN_GREETING)
			more = greet(c);
		else if (c->state == FAL_CHAN_OPEN || c->state == FAL_CHAN_UNPROVEN)
			more = read_record(c);
		else
			c->in_from = in_end(c);
		if (more && uv_hrtime() - c->turn_begun > FAL_CHAN_TURN_NS)
			break;
	}
	if (c->state == FAL_CHAN_DEAD)
		return;
	const bool pause = more && c->in_from != in_end(c);
	if (pause && !c->paused)
		uv_idle_start(&c->again, on_again);
	else if (!pause && c->paused)
		uv_idle_stop(&c->again);
	if (pause != c->paused || c->slow != NULL) {
		c->paused = pause;
		read_or_not(c);
	}
}

void
fal_chan_arrived(struct fal_chan *c)
{
	c->turn_begun = uv_hrtime();
	consume(c);
}

static void
on_again(uv_idle_t *h)
{
	fal_chan_arrived(h->data);
}

static void
on_alloc(uv_handle_t *h, size_t hint, uv_buf_t *buf)
{
	struct fal_chan *c = h->data;
	(void)hint;
	memmove(c->in, c->in + c->in_from, c->in_to - c->in_from);
	c->in_to -= c->in_from;
	c->in_from = 0;
	size_t room = c->in_cap - c->in_to;
	if (c->slow != NULL && fal_slow_batch(c->slow) < room)
		room = fal_slow_batch(c->slow);
	*buf = uv_buf_init((char *)c->in + c->in_to, (unsigned)room);
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
			fal_chan_stream_ended(c, (int)n);
		return;
	}
	c->rx += (uint64_t)n;
	c->in_to += (size_t)n;
	c->heard_ns = uv_hrtime();
	if (c->slow != NULL) {
		fal_slow_read(c->slow, (size_t)n);
		read_or_not(c);
		return;
	}
	/* libuv may read several times in one turn of the loop. */
	if (c->turn_begun == 0 || uv_now(c->loop) != c->turn_now) {
		c->turn_now = uv_now(c->loop);
		c->turn_begun = c->heard_ns;
	}
	consume(c);
}

/* --- writing --- */

static size_t
batch_limit(const struct fal_chan *c)
{
	if (c->slow != NULL && fal_slow_batch(c->slow) <= FAL_CHAN_BATCH)
		return fal_slow_batch(c->slow);
	const double two_ms = c->rate * FAL_CHAN_BATCH_S;
	if (c->rate <= 0 || two_ms >= (double)FAL_CHAN_BATCH)
		return FAL_CHAN_BATCH;
	return two_ms < (double)FAL_CHAN_BATCH_MIN ? FAL_CHAN_BATCH_MIN : (size_t)two_ms;
}

/* Seals what goes next; 0 or an error. */
static int
fill_batch(struct fal_chan *c)
{
	const size_t limit = batch_limit(c);
	c->batch_bytes = 0;
	while (c->batch_n < FAL_CHAN_PIECES && c->batch_bytes < limit) {
		struct fal_piece *piece = &c->batch[c->batch_n];
		const int got = fal_writer_next(&c->writer, c->rate, piece);
		if (got <= 0)
			return got;
		c->batch_n++;
		c->batch_bytes += piece->n;
	}
	return FAL_OK;
}

/* The socket took a batch: from when it was offered to now is what the link needed. */
static void
measure(struct fal_chan *c)
{
	c->tx += c->batch_bytes;
	/* A small one tells of wake-ups, not of the link. */
	if (c->batch_bytes < RATE_BATCH)
		return;
	c->rate_bytes += c->batch_bytes;
	c->rate_ns += uv_hrtime() - c->batch_begun;
	if (c->rate_bytes < RATE_BYTES && c->rate_ns < RATE_NS)
		return;
	const double rate = (double)c->rate_bytes / ((double)(c->rate_ns + 1) * 1e-9);
	c->rate = c->rate > 0 ? 0.75 * c->rate + 0.25 * rate : rate;
	c->rate_bytes = c->rate_ns = 0;
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
	drop_batch(c);
	if (c->state != FAL_CHAN_DEAD)
		fal_chan_stream_ended(c, status);
}

void
fal_chan_taken(struct fal_chan *c)
{
	c->writing = false;
	drop_batch(c);
	measure(c);
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

/* Both queues are empty and the socket has all. */
static void
drained(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_FLUSHING && !fal_slow_sent(c->slow))
		return;
	if (c->state == FAL_CHAN_FLUSHING) {
		c->state = FAL_CHAN_LINGERING;
		c->shutdown.data = c;
		if (uv_shutdown(&c->shutdown, &c->io.stream, on_shutdown) < 0)
			fal_chan_fail(c, FAL_OK, "closed");
	} else if (c->undrained && c->state == FAL_CHAN_OPEN) {
		c->undrained = false;
		if (c->ops.on_drain != NULL)
			c->ops.on_drain(c->ops.arg, c);
	}
}

static int
write_batch(struct fal_chan *c)
{
	uv_buf_t bufs[FAL_CHAN_PIECES];
	for (unsigned i = 0; i < c->batch_n; i++) {
		/* libuv's buffers are not const, even to be written from. */
		bufs[i].base = (char *)(uintptr_t)c->batch[i].p;
		bufs[i].len = c->batch[i].n;
	}
	c->write.data = c;
	return uv_write(&c->write, &c->io.stream, bufs, c->batch_n, on_written);
}

static void
pump(struct fal_chan *c)
{
	if (c->writing || c->state == FAL_CHAN_CONNECTING ||
	    c->state >= FAL_CHAN_LINGERING)
		return;
	int err = fill_batch(c);
	if (err == FAL_OK && c->batch_n == 0) {
		if (fal_writer_empty(&c->writer))
			drained(c);
		return;
	}
	c->batch_begun = uv_hrtime();
	if (err == FAL_OK)
		err = c->slow != NULL ? fal_slow_write(c->slow) : write_batch(c);
	if (err < 0) {
		drop_batch(c);
		fal_chan_fail(c, FAL_EIO, "cannot write");
		return;
	}
	c->writing = true;
}

static void
on_flush(uv_idle_t *h)
{
	uv_idle_stop(h);
	pump(h->data);
}

/* --- life --- */

int
fal_chan_new(uv_loop_t *loop, const struct fal_chan_opt *opt,
	     const struct fal_chan_ops *ops, struct fal_chan **out)
{
	struct fal_chan *c = fal_calloc(1, sizeof(*c));
	if (c == NULL)
		return FAL_ENOMEM;
	c->in = fal_calloc(IN_GREETING, 1);
	if (c->in == NULL) {
		free(c);
		return FAL_ENOMEM;
	}
	c->in_cap = IN_GREETING;
	c->loop = loop;
	c->ops = *ops;
	c->deadline_ms = opt->deadline_ms != 0 ? opt->deadline_ms : FAL_CHAN_DEADLINE_MS;
	c->writer.cap = opt->send_cap != 0 ? opt->send_cap : FAL_CHAN_SEND_CAP;
	if (opt->link != NULL) {
		const int err = fal_slow_new(c, opt->link);
		if (err < 0) {
			free(c->in);
			free(c);
			return err;
		}
	}
	/* These three cannot fail. */
	uv_timer_init(loop, &c->deadline);
	uv_idle_init(loop, &c->again);
	uv_idle_init(loop, &c->flush);
	c->deadline.data = c->again.data = c->flush.data = c->io.handle.data = c;
	c->pending += 3;
	start_deadline(c);
	*out = c;
	return FAL_OK;
}

static void
tune_tcp(struct fal_chan *c)
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
	uv_os_fd_t fd;
	if (uv_fileno(&c->io.handle, &fd) < 0)
		return;
	for (size_t i = 0; i < sizeof(options) / sizeof(*options); i++)
		(void)setsockopt(fd, options[i].level, options[i].name, &options[i].value,
				 sizeof(options[i].value));
}

void
fal_chan_connected(struct fal_chan *c)
{
	c->io.handle.data = c;
	c->state = FAL_CHAN_GREETING;
	c->heard_ns = uv_hrtime();
	if (c->io.handle.type == UV_TCP)
		tune_tcp(c);
	const int err = uv_read_start(&c->io.stream, on_alloc, on_read);
	if (err < 0)
		fal_chan_fail(c, FAL_EIO, "%s", uv_strerror(err));
	else
		uv_idle_start(&c->flush, on_flush);
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
		uv_idle_start(&c->flush, on_flush);
	return FAL_OK;
}

int
fal_chan_send(struct fal_chan *c, const struct fal_buf *msg, enum fal_send how)
{
	if (c->state >= FAL_CHAN_FLUSHING)
		return FAL_ESTATE;
	if (msg->err < 0)
		return msg->err;
	return queued(c, fal_writer_put(&c->writer, msg->p, msg->n, how));
}

int
fal_chan_send_shared(struct fal_chan *c, struct fal_shared *s)
{
	if (c->state >= FAL_CHAN_FLUSHING)
		return FAL_ESTATE;
	return queued(c, fal_writer_put_shared(&c->writer, s));
}

void
fal_chan_skip_shared(struct fal_chan *c)
{
	fal_writer_skip_shared(&c->writer);
}

int
fal_chan_expect_shared(struct fal_chan *c, const struct fal_publication *pub)
{
	return fal_reader_expect(&c->reader, pub);
}

void
fal_chan_compress(struct fal_chan *c, enum fal_compress mode)
{
	fal_writer_compress(&c->writer, mode);
}

bool
fal_chan_compressing(const struct fal_chan *c)
{
	return fal_writer_compressing(&c->writer);
}

const char *
fal_chan_name(const struct fal_chan *c)
{
	return c->name;
}

enum fal_role
fal_chan_role(const struct fal_chan *c)
{
	return c->role;
}

struct fal_chan_stat
fal_chan_stat(const struct fal_chan *c)
{
	const struct fal_zip_stat *z = &c->writer.zipped, *u = &c->reader.unzipped;
	return (struct fal_chan_stat){
		.rx = c->rx,
		.tx = c->tx,
		.saved = z->bytes_in - z->bytes_out + u->bytes_out - u->bytes_in,
		.zip_ns = z->ns + u->ns,
		.queued = c->writer.queued,
		.heard_ns = c->heard_ns,
		.rate = c->rate,
	};
}
