/* Channels: what comes, the peer's handshake and its records, and how the stream ends. */
#include "net/chan_priv.h"

#include <string.h>
#include <time.h>

#define IN_SLOW ((size_t)4 << 20) /* FAL_CHAN_AHEAD of a slow line */

_Static_assert(FAL_CHAN_IN_GREETING >= FAL_HANDSHAKE_MAX, "a handshake fits");
_Static_assert(FAL_CHAN_AHEAD >= FAL_RECORD_WIRE_MAX, "a record fits");

/* Why a server leaves without a word, or answers so that it does not authenticate. */
#define MISMATCH "the coordinator's key does not match, or ours is not in its keyring"

/* What has arrived and is to be opened. */
static uint8_t *
arrived(const struct fal_chan *c, size_t *n)
{
	uint8_t *p = fal_inbox_bytes(c->in, n);
	*n -= fal_slow_held(c->slow);
	return p;
}

static bool
has_more(const struct fal_chan *c)
{
	size_t n;
	(void)arrived(c, &n);
	return n != 0;
}

/* --- the end of the stream --- */

/* The kernel has all that we said first, even if on_written is to come. */
static bool
has_spoken(const struct fal_chan *c)
{
	return (c->writing || fal_outbox_tx(c->out) != 0) && fal_slow_sent(c->slow) &&
	       uv_stream_get_write_queue_size(fal_stream_uv(c->io)) == 0;
}

/* The stream ended while the server's answer was to come.  A command's exit status says
 * more than its stream, and may come later. */
static void
unanswered(struct fal_chan *c, int status)
{
	if (fal_connect_runs(c->connect)) {
		if (c->ended == 0)
			c->ended = status;
	} else if (fal_connect_is_exec(c->connect) &&
		   (fal_connect_exit(c->connect) != 0 || status != UV_EOF ||
		    !has_spoken(c))) {
		fal_chan_fail(c, FAL_EIO, "the command ended with status %d",
			      fal_connect_exit(c->connect));
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
void
fal_chan_stream_ended(struct fal_chan *c, int status)
{
	const bool all_sent = fal_writer_idle(c->writer) &&
			      fal_outbox_bytes(c->out) == 0 && fal_slow_sent(c->slow);
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
	else if (fal_inbox_left(c->in) != 0)
		fal_chan_fail(c, FAL_ETRUNC, "the stream ended within a record");
	else
		fal_chan_fail(c, FAL_OK, "closed by the peer");
}

/* --- the handshake --- */

/* The ends know one another: session keys, larger buffers. */
static int
establish(struct fal_chan *c, const struct fal_session *s)
{
	fal_reader_key(c->reader, &s->rx);
	fal_writer_key(c->writer, &s->tx);
	memcpy(c->name, s->name, sizeof(c->name));
	memcpy(c->fingerprint, s->fingerprint, sizeof(c->fingerprint));
	c->role = s->role;
	c->suite = s->tx.suite;
	fal_session_skew(s, &c->skew);
	fal_inbox_used(c->in, s->used);
	return fal_inbox_grow(c->in, c->slow != NULL ? IN_SLOW : FAL_CHAN_AHEAD);
}

static void
open_now(struct fal_chan *c)
{
	c->state = FAL_CHAN_OPEN;
	fal_handshake_free(c->handshake); /* it has our key */
	c->handshake = NULL;
	fal_chan_live(c);
	if (fal_chan_name_self(c) < 0) {
		fal_chan_fail(c, FAL_ENOMEM, "out of memory");
		return;
	}
	if (c->ops.on_open != NULL)
		c->ops.on_open(c->ops.arg, c);
}

static int
greet_server(struct fal_chan *c, struct fal_session *s, struct fal_diag *d)
{
	struct fal_buf out = { 0 };
	struct fal_greeting g;
	size_t n;
	const uint8_t *in = arrived(c, &n);
	const struct fal_keyring *keys = c->host.keyring(c->host.arg);
	int err = fal_handshake_check(keys, (int64_t)time(NULL), in, n, &g, d);
	if (err == FAL_EAUTH)
		err = c->host.wrong(c->host.arg, d);
	else if (err == FAL_OK &&
		 (err = c->host.right(c->host.arg, g.name, g.mac, d)) == FAL_OK)
		err = fal_handshake_answer(keys, &g, s, &out, d);
	if (out.n != 0 && fal_writer_put_raw(c->writer, out.p, out.n) < 0) {
		fal_seal_wipe(&s->rx);
		fal_seal_wipe(&s->tx);
		err = fal_diag_set(d, FAL_ENOMEM, "out of memory");
	}
	if (out.n != 0)
		fal_chan_flush(c);
	fal_buf_free(&out);
	return err;
}

/* The peer's half of the handshake; false: nothing more can be done with the input. */
static bool
greet(struct fal_chan *c)
{
	struct fal_session s = { 0 };
	struct fal_diag d;
	size_t n;
	const uint8_t *in = arrived(c, &n);
	const int err = c->server ? greet_server(c, &s, &d)
				  : fal_handshake_finish(c->handshake, in, n, &s, &d);
	if (err == FAL_ETRUNC)
		return false;
	if (err == FAL_EVERSION && c->server) { /* the refusal is on its way */
		fal_chan_turn_away(c, err, d.text);
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

/* What a record held. */
static void
hear(struct fal_chan *c, enum fal_read what, const uint8_t *msg, size_t n)
{
	int err = FAL_OK;
	if (what == FAL_READ_PLACED)
		c->ops.on_placed(c->ops.arg, c, msg, n);
	else if (what == FAL_READ_UNSEAL)
		err = fal_chan_on_unseal(c, msg, n);
	else if (what == FAL_READ_MESSAGE && n > 0) /* else a sign of life */
		c->ops.on_msg(c->ops.arg, c, msg, n);
	if (err < 0)
		fal_chan_fail(c, err, "an unseal record: %s", fal_strerror(err));
}

/* One record; false: more bytes are needed. */
static bool
read_record(struct fal_chan *c)
{
	const uint8_t *msg;
	size_t used, n, left;
	uint8_t *in = arrived(c, &left);
	int got = fal_reader_next(c->reader, in, left, &used, &msg, &n);
	if (got == FAL_ETRUNC)
		return false;
	if (got < 0) {
		fal_chan_fail(c, got, "a record was refused: %s", fal_strerror(got));
		return true;
	}
	fal_inbox_used(c->in, used);
	c->heard = true; /* of a slow line it was read long before */
	/* Nothing is expected yet, so this was no shared record: the client is no replay.
	 */
	if (c->state == FAL_CHAN_UNPROVEN) {
		c->proved = uv_hrtime();
		open_now(c);
	}
	if (c->state == FAL_CHAN_OPEN)
		hear(c, (enum fal_read)got, msg, n);
	return true;
}

static void on_again(uv_idle_t *h);

/* Reads, or not: when what there is has to wait, or is too much. */
static void
read_or_not(struct fal_chan *c)
{
	if (c->paused ||
	    (c->slow != NULL && fal_slow_full(c->slow, fal_inbox_full(c->in))))
		uv_read_stop(fal_stream_uv(c->io));
	else if (!c->deaf)
		fal_chan_read(c);
}

/* The channel is closing: nobody wants it any more. */
static void
drop_arrived(struct fal_chan *c)
{
	size_t n;
	(void)arrived(c, &n);
	fal_inbox_used(c->in, n);
}

/* Opens what is there, until the turn is over. */
static void
consume(struct fal_chan *c)
{
	bool more = true;
	while (more && has_more(c)) {
		if (c->state == FAL_CHAN_GREETING)
			more = greet(c);
		else if (c->state == FAL_CHAN_OPEN || c->state == FAL_CHAN_UNPROVEN)
			more = read_record(c);
		else
			drop_arrived(c);
		if (more && uv_hrtime() - c->turn_begun > FAL_CHAN_TURN_NS)
			break;
	}
	if (c->state == FAL_CHAN_DEAD)
		return;
	const bool pause = more && has_more(c);
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
	size_t room;
	uint8_t *p = fal_inbox_room(c->in, &room);
	if (c->slow != NULL && fal_slow_batch(c->slow) < room)
		room = fal_slow_batch(c->slow);
	*buf = uv_buf_init((char *)p, (unsigned)room);
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
	c->heard = true;
	fal_inbox_put(c->in, (size_t)n);
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

int
fal_chan_read(struct fal_chan *c)
{
	return uv_read_start(fal_stream_uv(c->io), on_alloc, on_read);
}
