/* A job that comes from above: its texts, and the chunks of its data, into a cache.
 *
 * A session of its own, before anybody is served, which says HELLO and never READY. */
#include "above.h"

#include "base/build.h"
#include "cli/cli.h"
#include "data/cache.h"
#include "net/dial.h"
#include "run.h"
#include "run/texts.h"
#include "sec/hash.h"
#include "session.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

enum { ASKS = 8 }; /* chunks that are asked for at a time */

struct fetch {
	uv_loop_t loop;
	uv_timer_t timer; /* to dial, or the deadline of WELCOME */
	const struct ps_above_opt *opt;
	struct fal_chan *chan;
	struct fal_files *job;
	struct fal_texts texts;
	uint32_t incarnation;
	bool welcome, whole; /* the texts are here */
	struct fal_diag later;
	/* Those before this one are here, or asked for. */
	uint32_t next;
	struct coming {
		bool is, test;
		uint32_t chunk;
		struct fal_buf bytes; /* so far */
	} coming[ASKS];
	uint64_t bytes; /* that came */
	bool over;
	int code;
};

/* It is over with this exit code, and, if that is none of success, this line. */
static void
end(struct fetch *f, int code, const char *fmt, ...)
{
	struct fal_diag why;
	va_list ap;
	if (f->over)
		return;
	va_start(ap, fmt);
	vsnprintf(why.text, sizeof(why.text), fmt, ap);
	va_end(ap);
	if (fmt[0] != '\0')
		fal_cli_err(PROG, "%s", why.text);
	f->over = true;
	f->code = code;
	if (f->chan != NULL)
		fal_chan_close(f->chan);
	ps_close(&f->timer);
}

static void
send_msg(struct fetch *f, struct fal_msg *m)
{
	m->incarnation = f->incarnation;
	int err = f->chan != NULL ? ps_chan_send(f->chan, m, FAL_SEND_CONTROL) : FAL_OK;
	if (err < 0 && err != FAL_ESTATE)
		end(f, FAL_EXIT_NO, "%s: %s", f->opt->text, fal_strerror(err));
}

/* ---- chunks ------------------------------------------------------------------------ */

static const struct fal_part *
part_of(const struct fetch *f, bool test)
{
	return test ? &f->job->manifest.test : &f->job->manifest.train;
}

/* Chunk number `i` of both parts; false: there is none. */
static bool
chunk_at(const struct fetch *f, uint32_t i, struct coming *out)
{
	const uint32_t train = part_of(f, false)->chunks;
	*out = (struct coming){ .is = true,
				.test = i >= train,
				.chunk = i >= train ? i - train : i };
	return out->chunk < part_of(f, out->test)->chunks;
}

static bool
is_here(const struct fetch *f, const struct coming *c)
{
	struct fal_buf b = { 0 };
	const int err =
		fal_cache_get(f->opt->cache, part_of(f, c->test)->hash[c->chunk], &b);
	fal_buf_free(&b);
	return err == FAL_OK;
}

/* Asks for as many as may be; when none is missing any more it is over. */
static void
ask(struct fetch *f)
{
	unsigned asked = 0;
	struct coming c;
	for (unsigned i = 0; i < ASKS && !f->over; i++) {
		while (!f->coming[i].is && chunk_at(f, f->next, &c)) {
			f->next++;
			if (is_here(f, &c))
				continue;
			struct fal_msg m = { .type = FAL_MSG_CHUNK_GET };
			m.chunk_get.test = c.test;
			m.chunk_get.chunk = c.chunk;
			f->coming[i] = c;
			send_msg(f, &m);
		}
		asked += f->coming[i].is;
	}
	if (asked == 0)
		end(f, FAL_EXIT_DONE, "");
}

static int
keep(struct fetch *f, struct coming *c)
{
	uint8_t is[FAL_HASH_BYTES];
	const uint8_t *want = part_of(f, c->test)->hash[c->chunk];
	fal_hash(c->bytes.p, c->bytes.n, is);
	if (memcmp(is, want, sizeof(is)) != 0)
		return FAL_EFORMAT;
	if (fal_cache_put(f->opt->cache, want, c->bytes.p, c->bytes.n) < 0)
		end(f, FAL_EXIT_NO, "%s: %s", f->opt->cache, strerror(errno));
	f->bytes += c->bytes.n;
	fal_buf_free(&c->bytes);
	*c = (struct coming){ 0 };
	ask(f);
	return FAL_OK;
}

static int
on_chunk(struct fetch *f, const struct fal_msg *m)
{
	struct coming *c = NULL;
	for (unsigned i = 0; i < ASKS; i++)
		if (f->coming[i].is && f->coming[i].test == (m->chunk.test != 0) &&
		    f->coming[i].chunk == m->chunk.chunk)
			c = &f->coming[i];
	if (c == NULL)
		return FAL_ESTATE;
	const size_t total = fal_chunk_bytes(part_of(f, c->test), c->chunk);
	if (m->chunk.total != total || m->chunk.offset != c->bytes.n ||
	    m->chunk.bytes.n == 0 || m->chunk.bytes.n > total - c->bytes.n)
		return FAL_ESTATE;
	fal_put_bytes(&c->bytes, m->chunk.bytes.p, m->chunk.bytes.n);
	if (c->bytes.err < 0)
		return c->bytes.err;
	return c->bytes.n == total ? keep(f, c) : FAL_OK;
}

/* ---- what is said ------------------------------------------------------------------ */

static int
on_welcome(struct fetch *f, const struct fal_msg *m)
{
	if (f->welcome)
		return FAL_ESTATE;
	f->welcome = true;
	uv_timer_stop(&f->timer);
	(void)fal_retry_reached(f->opt->retry, uv_hrtime());
	f->incarnation = m->incarnation;
	return fal_texts_begin(&f->texts, m);
}

static int
on_text(struct fetch *f, const struct fal_msg *m)
{
	struct fal_diag diag = { "" };
	int all = f->welcome && !f->whole ? fal_texts_add(&f->texts, m) : FAL_ESTATE;
	if (all <= 0)
		return all;
	f->whole = true;
	int err = fal_files_told(f->job, f->opt->text, &f->texts, &diag);
	if (err < 0)
		end(f, (int)fal_cli_exit(err), "%s", diag.text);
	else
		ask(f);
	return FAL_OK;
}

static void
on_msg(void *arg, struct fal_chan *c, const uint8_t *p, size_t n)
{
	struct fetch *f = arg;
	struct fal_msg m;
	int err = fal_msg_get(p, n, &m);
	if (f->over)
		return;
	if (err < 0 || !fal_msg_may_send(m.type, FAL_FROM_COORDINATOR))
		end(f, FAL_EXIT_NO, "%s: a message that cannot be read%s", f->opt->text,
		    fal_chan_skew(c));
	else if (m.type == FAL_MSG_WELCOME)
		err = on_welcome(f, &m);
	else if (m.type == FAL_MSG_TEXT)
		err = on_text(f, &m);
	else if (m.type == FAL_MSG_CHUNK)
		err = f->whole ? on_chunk(f, &m) : FAL_ESTATE;
	else if (m.type == FAL_MSG_DONE)
		end(f, FAL_EXIT_NO, "%s: %s", f->opt->text, m.done.why);
	else if (m.type == FAL_MSG_REFUSE)
		end(f, m.refuse.key != 0 || !f->welcome ? FAL_EXIT_NOPERM : FAL_EXIT_NO,
		    "%s: refused: %s", f->opt->text, m.refuse.why);
	else if (m.type == FAL_MSG_LATER)
		fal_diag_set(&f->later, 0, "%s: %s", f->opt->text, m.later.why);
	if (err < 0)
		end(f, FAL_EXIT_NO, "%s: %s: %s%s", f->opt->text, fal_msg_name(m.type),
		    fal_strerror(err), fal_chan_skew(c));
}

/* ---- the connection ---------------------------------------------------------------- */

static void dial(struct fetch *f);

static void
on_dial(uv_timer_t *t)
{
	dial(t->data);
}

static void
on_close(void *arg, struct fal_chan *c, int err, const char *reason)
{
	struct fetch *f = arg;
	(void)c;
	f->chan = NULL;
	if (f->over)
		return;
	const int code =
		fal_retry_after(f->opt->retry, PROG, err, reason, &f->later, false);
	if (code >= 0) {
		end(f, code, "%s", reason);
		return;
	}
	f->welcome = f->whole = false;
	f->next = 0;
	for (unsigned i = 0; i < ASKS; i++) {
		fal_buf_free(&f->coming[i].bytes);
		f->coming[i] = (struct coming){ 0 };
	}
	fal_files_free(f->job);
	uv_timer_start(&f->timer, on_dial, fal_retry_pause_ms(f->opt->retry, uv_hrtime()),
		       0);
}

static void
on_silent(uv_timer_t *t)
{
	struct fetch *f = t->data;
	if (f->chan != NULL)
		fal_chan_fail(f->chan, FAL_EIO, "no answer within %g s",
			      FAL_CHAN_DEADLINE_MS / 1e3);
}

static void
on_open(void *arg, struct fal_chan *c)
{
	struct fetch *f = arg;
	struct fal_msg m = { .type = FAL_MSG_HELLO };
	(void)c;
	above_hello(f->opt, &m);
	f->incarnation = 0; /* not known before WELCOME */
	send_msg(f, &m);
	uv_timer_start(&f->timer, on_silent, FAL_CHAN_DEADLINE_MS, 0);
}

static void
dial(struct fetch *f)
{
	const struct fal_chan_ops ops = {
		.arg = f, .on_open = on_open, .on_msg = on_msg, .on_close = on_close
	};
	const struct fal_chan_opt opt = { 0 };
	int err = fal_dial(&f->loop, f->opt->addr, f->opt->key, &opt, &ops, &f->chan);
	if (err < 0)
		end(f, err == FAL_EINVAL ? FAL_EXIT_USAGE : FAL_EXIT_NO, "%s: %s",
		    f->opt->text, fal_strerror(err));
}

int
above_fetch(const struct ps_above_opt *opt, struct fal_files *j)
{
	struct fetch f = { .opt = opt, .job = j };
	const int bad = uv_loop_init(&f.loop);
	if (bad < 0) {
		fal_cli_err(PROG, "%s: %s", opt->text, uv_strerror(bad));
		return FAL_EXIT_NO;
	}
	uv_timer_init(&f.loop, &f.timer);
	f.timer.data = &f;
	opt->retry->lost = uv_hrtime();
	dial(&f);
	uv_run(&f.loop, UV_RUN_DEFAULT);
	uv_loop_close(&f.loop);
	for (unsigned i = 0; i < ASKS; i++)
		fal_buf_free(&f.coming[i].bytes);
	fal_texts_free(&f.texts);
	if (f.code == FAL_EXIT_DONE)
		fal_cli_err(PROG, "%s: job %s; %" PRIu64 " MiB of data came", opt->text,
			    j->job.name, (f.bytes + (1 << 20) - 1) >> 20);
	return f.code;
}
