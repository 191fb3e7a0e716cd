/* Bytes between a trainer and its thread. */
#include "child_priv.h"

#include "base/mem.h"
#include "base/text.h"
#include "work.h"

#include <errno.h>
#include <inttypes.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>
#include <uv.h>

enum { STDERR_LINE = 900 }; /* bytes; more are another line */
enum { MOST_FAILS = 2 };    /* as after an error of a GPU, which only a start mends */

/* --- out ---------------------------------------------------------------------------- */

static bool
waits(const struct outgoing *o)
{
	return o->sent < o->b.n;
}

/* Writes what goes in; whoever does not listen is found out by its end. */
static void
push(struct outgoing *o, int fd)
{
	const ssize_t n = write(fd, o->b.p + o->sent, o->b.n - o->sent);
	if (n > 0)
		o->sent += (size_t)n;
	if (!waits(o)) {
		fal_buf_clear(&o->b);
		o->sent = 0;
	}
}

bool
child_push(struct child *c)
{
	if (waits(&c->lines) && c->proc.in >= 0)
		push(&c->lines, c->proc.in);
	if (waits(&c->params) && c->proc.params >= 0)
		push(&c->params, c->proc.params);
	return !waits(&c->lines) && !waits(&c->params);
}

/* --- in: lines ---------------------------------------------------------------------- */

static void
on_hello(struct child *c, const struct fal_grad_hello *h)
{
	const struct fal_grad_hello *was = &c->hello;
	if (c->heard)
		child_blame(c, "it says hello again");
	else if (c->greeted && !fal_grad_alike(was, h))
		child_give_up(c, "its hello is not that of its first start");
	if (c->blamed)
		return;
	if (!c->greeted) {
		c->hello = *h;
		c->slots = h->lanes * h->depth;
		c->slot = fal_calloc(c->slots, sizeof(*c->slot));
		if (c->slot == NULL) {
			c->slots = 0;
			child_blame(c, "%s", fal_strerror(FAL_ENOMEM));
			return;
		}
	}
	c->greeted = c->heard = true;
	pthread_cond_broadcast(&c->change);
}

static void
finish(struct child *c, struct slot *s)
{
	const bool has_gradient = s->train && s->word.op == FAL_GRAD_DONE;
	if (c->hello.pipes && has_gradient &&
	    c->frame != sizeof(c->head) + c->job->params_bytes)
		return; /* it is still coming by a pipe */
	if (c->frame != 0 && !has_gradient) {
		child_blame(c, "it sent a gradient for a task that has none");
		return;
	}
	c->frame = 0;
	child_answered(c, s);
}

static void
on_answer(struct child *c, const struct fal_grad_word *w)
{
	uint32_t i = 0;
	while (i < c->slots && (c->slot[i].state != SLOT_SENT || c->slot[i].id != w->id ||
				c->slot[i].said))
		i++;
	if (i == c->slots) {
		child_blame(c, "it answers task %" PRIu64 ", which it does not have",
			    w->id);
		return;
	}
	struct slot *s = &c->slot[i];
	if (w->op == FAL_GRAD_CANCELLED && !s->told) {
		child_blame(c, "it cancelled task %" PRIu64 " by itself", w->id);
		return;
	}
	if (w->op == FAL_GRAD_FAIL && !s->told) {
		fal_cli_err(PROG, "trainer %u: a task failed: %s", c->conf.number,
			    w->why);
		fal_diag_set(&c->trouble, 0, "%s", w->why);
		c->last = c->trouble;
	}
	s->word = *w;
	s->said = true;
	if (!s->told)
		c->fails = w->op == FAL_GRAD_FAIL ? c->fails + 1 : 0;
	finish(c, s);
	if (c->fails == MOST_FAILS)
		child_blame(c, "it failed at %d tasks in a row", MOST_FAILS);
}

/* It said this on standard output, as a banner that is for standard error. */
static void
blame_output(struct child *c, const char *why, const char *p, size_t n)
{
	const size_t most = 60;
	struct fal_diag said;
	fal_diag_set(&said, 0, "%.*s", (int)(n > most ? fal_text_cut(p, most) : n), p);
	child_blame(c, "on its standard output: %s: '%s'", why, said.text);
}

static void
on_line(struct child *c, const char *line, size_t n)
{
	struct fal_grad_word w;
	struct fal_diag why;
	int err = fal_grad_get(line, n, &w, &why);
	if (err == FAL_EVERSION)
		child_give_up(c, "its hello: %s", why.text);
	else if (err < 0)
		blame_output(c, why.text, line, n);
	else if (w.op == FAL_GRAD_HELLO)
		on_hello(c, &w.hello);
	else if (w.op == FAL_GRAD_REFUSE)
		child_give_up(c, "it refuses: %s", w.why);
	else if (!c->up)
		child_blame(c, "it answers before it was asked");
	else
		on_answer(c, &w);
}

/* All whole lines of c->in. */
static void
on_lines(struct child *c)
{
	size_t at = 0;
	while (!c->blamed) {
		const char *p = (const char *)c->in.p + at;
		const char *nl = memchr(p, '\n', c->in.n - at);
		if (nl == NULL)
			break;
		at += (size_t)(nl - p) + 1;
		on_line(c, p, (size_t)(nl - p));
	}
	memmove(c->in.p, c->in.p + at, c->in.n - at);
	c->in.n -= at;
	if (!c->blamed && c->in.n > FAL_GRAD_LINE_MAX)
		blame_output(c, "a line of more than 65536 bytes", (const char *)c->in.p,
			     c->in.n);
}

/* What stands on the descriptor, up to 64 KiB, after what `b` holds; 0: its end, -1:
 * nothing. */
static ssize_t
take(int fd, struct fal_buf *b)
{
	uint8_t some[65536];
	const ssize_t n = read(fd, some, sizeof(some));
	if (n > 0)
		fal_put_bytes(b, some, (size_t)n);
	return n;
}

static void
say(struct child *c, const char *p, size_t n)
{
	char line[STDERR_LINE + 1];
	memcpy(line, p, n);
	line[n] = '\0';
	fal_text_plain(line, sizeof(line), line);
	fal_cli_err(PROG, "trainer %u: %s", c->conf.number, line);
	if (line[strspn(line, " ")] != '\0')
		fal_diag_set(&c->last, 0, "%.180s", line);
}

/* Passes on what stderr has, line by line; `rest`: that of the last one, too. */
static void
say_lines(struct child *c, bool rest)
{
	size_t at = 0;
	/* A NUL would end a text: it becomes what other controls do. */
	for (size_t i = 0; i < c->err.n; i++)
		if (c->err.p[i] == '\0')
			c->err.p[i] = '?';
	while (at < c->err.n) {
		const char *p = (const char *)c->err.p + at;
		const size_t left = c->err.n - at;
		const size_t most = left <= STDERR_LINE ? left : STDERR_LINE + 1;
		const char *nl = memchr(p, '\n', most);
		const char *cr = memchr(p, '\r', nl != NULL ? (size_t)(nl - p) : most);
		if (cr != NULL && (cr + 1 < p + left || rest))
			nl = cr;
		if (nl == NULL && left <= STDERR_LINE && !rest)
			break;
		size_t n = left;
		if (nl != NULL)
			n = (size_t)(nl - p);
		else if (left > STDERR_LINE) /* it looks one byte behind */
			n = fal_text_cut(p, STDERR_LINE);
		say(c, p, n);
		at += n + (nl != NULL) +
		      (nl == cr && nl != NULL && n + 1 < left && nl[1] == '\n');
	}
	if (at > 0)
		memmove(c->err.p, c->err.p + at, c->err.n - at);
	c->err.n -= at;
}

/* It may close that, or have it elsewhere, and live on. */
static void
listen_to_err(struct child *c)
{
	const ssize_t n = take(c->proc.err, &c->err);
	if (n != 0) {
		say_lines(c, false);
		return;
	}
	say_lines(c, true);
	close(c->proc.err);
	c->proc.err = -1;
}

void
child_drain(struct child *c)
{
	/* Somebody whom it left behind may write for ever. */
	for (int i = 0; i < 16 && c->proc.err >= 0 && take(c->proc.err, &c->err) > 0; i++)
		say_lines(c, false);
	say_lines(c, true);
}

/* --- in: gradients ------------------------------------------------------------------ */

/* The task whose gradient comes, or NULL. */
static struct slot *
expecting(struct child *c)
{
	struct slot *s = c->slots > 0 ? &c->slot[0] : NULL;
	return s != NULL && c->up && c->hello.pipes && s->state == SLOT_SENT && s->train
		       ? s
		       : NULL;
}

/* As much of the frame as is there.  True: no more will come. */
static bool
on_frame(struct child *c)
{
	struct slot *s = expecting(c);
	const uint64_t bytes = c->job != NULL ? c->job->params_bytes : 0;
	const size_t head = sizeof(c->head);
	uint8_t *to = c->head + c->frame;
	size_t want = c->frame < head ? head - c->frame : 0;
	if (s == NULL || c->frame == head + bytes) {
		child_blame(c, "it sent a gradient that nobody wants");
		return false;
	}
	if (want == 0) {
		to = (uint8_t *)bulk_data(&c->start->area[SPAWN_GRADS], s->alias) +
		     c->frame - head;
		want = head + bytes - c->frame;
	}
	const ssize_t n = read(c->proc.grads, to, want);
	if (n <= 0)
		return n == 0;
	c->frame += (uint64_t)n;
	if (c->frame == head) {
		struct fal_rd r = fal_rd_init(c->head, head);
		const uint64_t said = fal_get_u64(&r);
		if (said != bytes)
			child_blame(c, "its gradient has %" PRIu64 " bytes, not %" PRIu64,
				    said, bytes);
	} else if (c->frame == head + bytes && s->said) {
		finish(c, s);
	}
	return false;
}

/* --- a turn ------------------------------------------------------------------------- */

enum { WAKE, END, OUT, ERR, GRADS, IN, PARAMS, ALL };

static int
timeout_ms(uint64_t until)
{
	const uint64_t now = uv_hrtime();
	if (until == UINT64_MAX)
		return -1;
	if (until <= now)
		return 0;
	const uint64_t ms = (until - now) / 1000000 + 1;
	return ms < 3600000 ? (int)ms : 3600000;
}

/* Whether its standard output has come to its end.  What is left there is heard the next
 * time, if there is one: unless it has `ended`. */
static bool
hear(struct child *c, bool ended)
{
	ssize_t n = 1;
	for (bool more = true; more && n > 0 && !c->blamed; more = ended)
		if ((n = take(c->proc.out, &c->in)) > 0)
			on_lines(c);
	return n == 0;
}

void
child_rouse(struct child *c)
{
	const uint64_t one = 1;
	if (c->hearing)
		(void)!write(c->nudge, &one, sizeof(one));
	pthread_cond_broadcast(&c->change);
}

void
child_hear(struct child *c)
{
	const uint64_t start = c->starts;
	struct pollfd p[] = { { c->proc.out, POLLIN, 0 }, { c->nudge, POLLIN, 0 } };
	uint64_t nudges;
	c->hearing = c->heard_by_lanes = true;
	pthread_mutex_unlock(&c->mutex);
	(void)poll(p, 2, -1);
	pthread_mutex_lock(&c->mutex);
	c->hearing = false;
	if (p[1].revents != 0)
		(void)!read(c->nudge, &nudges, sizeof(nudges));
	if (c->starts == start && c->proc.pid != 0 && p[0].revents != 0 &&
	    (c->hung_up = hear(c, false)))
		child_poke(c);
	child_rouse(c); /* one of them hears now */
}

bool
child_turn(struct child *c, uint64_t until)
{
	const bool alive = c->proc.pid != 0;
	const uint64_t start = c->starts;
	struct pollfd p[ALL] = {
		[WAKE] = { c->wake, POLLIN, 0 },
		[END] = { c->pidfd, POLLIN, 0 },
		[OUT] = { c->heard_by_lanes ? -1 : c->proc.out, POLLIN, 0 },
		[ERR] = { c->proc.err, POLLIN, 0 },
		[GRADS] = { expecting(c) != NULL ? c->proc.grads : -1, POLLIN, 0 },
		[IN] = { waits(&c->lines) ? c->proc.in : -1, POLLOUT, 0 },
		[PARAMS] = { waits(&c->params) ? c->proc.params : -1, POLLOUT, 0 },
	};
	uint64_t pokes;
	bool eof = false;
	pthread_mutex_unlock(&c->mutex);
	(void)poll(p, ALL, timeout_ms(until));
	if (p[WAKE].revents != 0)
		(void)!read(c->wake, &pokes, sizeof(pokes));
	pthread_mutex_lock(&c->mutex);
	if (!alive || c->starts != start || c->proc.pid == 0)
		return false;
	if (p[ERR].revents != 0)
		listen_to_err(c);
	if (p[GRADS].revents != 0 && on_frame(c))
		c->closed = "the pipe of its gradients", eof = true;
	/* Nobody is there who would read. */
	if ((p[IN].revents & POLLERR) != 0)
		c->closed = "its standard input", eof = true;
	if ((p[PARAMS].revents & POLLERR) != 0)
		c->closed = "the pipe of its parameters", eof = true;
	/* Whether it is late is not to be said before what it said was heard. */
	if ((p[OUT].revents | p[END].revents) != 0 || uv_hrtime() >= until)
		eof = hear(c, p[END].revents != 0) || eof;
	eof = eof || c->hung_up;
	(void)child_push(c);
	if (eof && !c->blamed) {
		pthread_mutex_unlock(&c->mutex);
		(void)poll(&p[END], 1, 200); /* a moment for its status */
		pthread_mutex_lock(&c->mutex);
		if (c->starts == start && c->proc.pid != 0) /* its last word */
			(void)hear(c, true);
	}
	return eof || p[END].revents != 0;
}
