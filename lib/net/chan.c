/* Channels: life, the ways to end, and what is asked of one.  What comes is
 * chan_read.c's, what goes chan_write.c's. */
#include "net/chan_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define OFFER ((size_t)128 << 10) /* bytes of bulk that are offered at a time */

static void start_deadline(struct fal_chan *c);

/* --- ends --- */

static void
on_closed(uv_handle_t *h)
{
	fal_chan_ended(h->data);
}

static void
free_parts(struct fal_chan *c)
{
	fal_outbox_free(c->out);
	fal_reader_free(c->reader);
	fal_writer_free(c->writer);
	fal_slow_free(c->slow);
	fal_inbox_free(c->in);
	free(c->io);
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
	fal_connect_free(c->connect);
	fal_handshake_free(c->handshake);
	free_parts(c);
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
	return c->server && c->state == FAL_CHAN_GREETING && fal_stream_is_tcp(c->io) &&
	       c->err != FAL_EAUTH && c->err != FAL_EFORMAT;
}

static void
die(struct fal_chan *c)
{
	if (c->state == FAL_CHAN_DEAD)
		return;
	const bool reset = ends_unjudged(c);
	c->state = FAL_CHAN_DEAD;
	c->pending += fal_connect_close(c->connect);
	close_handle((uv_handle_t *)&c->deadline);
	close_handle((uv_handle_t *)&c->again);
	close_handle((uv_handle_t *)&c->flush);
	fal_slow_close(c->slow);
	c->pending += fal_stream_close(c->io, reset, on_closed);
}

/* Of a reason that was set before, this changes nothing. */
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

/* What waits goes out, then the stream ends. */
static void
begin_close(struct fal_chan *c)
{
	c->state = FAL_CHAN_FLUSHING;
	start_deadline(c);
	fal_chan_flush(c);
}

void
fal_chan_turn_away(struct fal_chan *c, int err, const char *why)
{
	set_why(c, err, why);
	begin_close(c);
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
	const uint64_t said = fal_outbox_tx(c->out);
	c->silent = c->heard ? 0 : c->silent + 1;
	c->heard = false;
	if (c->silent == FAL_CHAN_LIVES) {
		fal_chan_fail(c, FAL_EIO, "nothing was heard for %g s",
			      c->life_ms * FAL_CHAN_LIVES / 1e3);
		return;
	}
	if (said == c->said && fal_outbox_bytes(c->out) == 0 &&
	    fal_writer_put(c->writer, NULL, 0, FAL_SEND_CONTROL) == FAL_OK)
		fal_chan_flush(c);
	c->said = said;
}

void
fal_chan_live(struct fal_chan *c)
{
	c->heard = true;
	uv_timer_start(&c->deadline, on_life, c->life_ms, c->life_ms);
}

/* --- life --- */

static void
on_slow_arrived(void *arg)
{
	fal_chan_arrived(arg);
}

static void
on_slow_taken(void *arg)
{
	fal_chan_taken(arg);
}

static void
on_slow_sent(void *arg)
{
	fal_chan_sent(arg);
}

static void
on_slow_ended(void *arg, int status)
{
	fal_chan_stream_ended(arg, status);
}

static void
on_slow_failed(void *arg)
{
	fal_chan_fail(arg, FAL_EIO, "cannot write");
}

static void
on_slow_closed(void *arg)
{
	fal_chan_ended(arg);
}

static int
new_parts(struct fal_chan *c, const struct fal_chan_opt *opt)
{
	const struct fal_slow_ops slow = { .arg = c,
					   .arrived = on_slow_arrived,
					   .taken = on_slow_taken,
					   .sent = on_slow_sent,
					   .ended = on_slow_ended,
					   .failed = on_slow_failed,
					   .closed = on_slow_closed };
	c->io = fal_stream_new(c->loop, c);
	c->in = fal_inbox_new(FAL_CHAN_IN_GREETING);
	c->reader = fal_reader_new();
	c->writer =
		fal_writer_new(opt->send_cap != 0 ? opt->send_cap : FAL_CHAN_SEND_CAP);
	c->out = fal_outbox_new();
	if (c->io == NULL || c->in == NULL || c->reader == NULL || c->writer == NULL ||
	    c->out == NULL)
		return FAL_ENOMEM;
	return opt->link == NULL ? FAL_OK
				 : fal_slow_new(c->loop, opt->link, fal_stream_uv(c->io),
						&slow, &c->slow);
}

int
fal_chan_new(uv_loop_t *loop, const struct fal_chan_opt *opt,
	     const struct fal_chan_ops *ops, struct fal_chan **out)
{
	struct fal_chan *c = fal_calloc(1, sizeof(*c));
	if (c == NULL)
		return FAL_ENOMEM;
	c->loop = loop;
	c->ops = *ops;
	c->deadline_ms = opt->deadline_ms != 0 ? opt->deadline_ms : FAL_CHAN_DEADLINE_MS;
	c->life_ms = opt->life_ms != 0 ? opt->life_ms : FAL_CHAN_LIFE_MS;
	c->unseals = opt->unseals;
	const int err = new_parts(c, opt);
	if (err < 0) {
		free_parts(c);
		return err;
	}
	fal_reader_place(c->reader, ops->on_place, ops->arg);
	/* These three cannot fail. */
	uv_timer_init(loop, &c->deadline);
	uv_idle_init(loop, &c->again);
	uv_idle_init(loop, &c->flush);
	c->deadline.data = c->again.data = c->flush.data = c;
	c->pending += c->slow != NULL ? 4 : 3;
	start_deadline(c);
	*out = c;
	return FAL_OK;
}

/* The peer's address as text, without its port. */
static void
set_source(struct fal_chan *c)
{
	struct sockaddr_storage ss = { 0 };
	char ip[INET6_ADDRSTRLEN] = "?";
	if (fal_chan_peer(c, &ss) == 0)
		(void)uv_ip_name((struct sockaddr *)&ss, ip, sizeof(ip));
	snprintf(c->source, sizeof(c->source), "%s",
		 fal_stream_is_tcp(c->io) ? ip : "unix");
}

int
fal_chan_accept(uv_stream_t *at, const struct fal_chan_opt *opt,
		const struct fal_chan_ops *ops, const struct fal_chan_host *host,
		struct fal_chan **out)
{
	struct fal_chan *c;
	int err = fal_chan_new(at->loop, opt, ops, &c);
	if (err < 0)
		return FAL_ENOMEM;
	c->server = true;
	err = at->type == UV_TCP ? fal_stream_tcp(c->io) : fal_stream_pipe(c->io);
	const int taken = err < 0 ? err : uv_accept(at, fal_stream_uv(c->io));
	if (taken < 0) {
		fal_chan_kill(c);
		return err < 0 ? FAL_ENOMEM : FAL_EIO;
	}
	c->host = *host;
	set_source(c);
	*out = c;
	return FAL_OK;
}

enum fal_chan_state
fal_chan_state(const struct fal_chan *c)
{
	return c->state;
}

int
fal_chan_peer(const struct fal_chan *c, struct sockaddr_storage *out)
{
	return fal_stream_is_tcp(c->io) ? fal_stream_peer(c->io, out) : UV_ENOTSUP;
}

bool
fal_chan_is_kin(const struct fal_chan *c)
{
	return fal_stream_is_kin(c->io);
}

void
fal_chan_connected(struct fal_chan *c)
{
	c->state = FAL_CHAN_GREETING;
	c->local = !fal_connect_is_exec(c->connect) && fal_stream_is_local(c->io) &&
		   (c->slow == NULL || fal_slow_batch(c->slow) == SIZE_MAX);
	fal_stream_tune(c->io);
	const int err = fal_chan_read(c);
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
	fal_reader_place(c->reader, ops->on_place, ops->arg);
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
	assert(c->unsealed || !fal_shared_unsealed(s));
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
		(void)fal_chan_acked(c, &c->acked);
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
	const int stream = fal_stream_is_tcp(c->io) ? fal_stream_fd(c->io) : -1;
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
	const struct fal_zip_stat z = fal_writer_zipped(c->writer);
	const struct fal_zip_stat u = fal_reader_unzipped(c->reader);
	const size_t queued = fal_writer_queued(c->writer);
	return (struct fal_chan_stat){
		.rx = c->rx,
		.tx = fal_outbox_tx(c->out),
		.saved = z.bytes_in - z.bytes_out + u.bytes_out - u.bytes_in,
		.zip_ns = z.ns + u.ns,
		.queued = queued,
		.held = queued + fal_outbox_own(c->out),
		.rate = fal_outbox_rate(c->out),
	};
}
