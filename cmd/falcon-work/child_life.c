/* A trainer's thread: starts, ends, deadlines. */
#include "child_priv.h"

#include "base/mem.h"
#include "base/text.h"
#include "work.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <uv.h>

#define MS UINT64_C(1000000)
#define S (1000 * MS)

static const uint64_t hello_ns = 120 * S, say_ns = 10 * S; /* it says nothing so long */
static const uint64_t unknown_ns = 300 * S; /* for a task of a kind that is new */
static const uint64_t least_ns = 1 * S;     /* for any */
static const uint64_t least_pause = 100 * MS, most_pause = 30 * S;
static const uint64_t bye_ns = 2 * S;

enum { SH_NOT_RUN = 126, SH_NOT_FOUND = 127 }; /* as POSIX has them */

/* --- memory ------------------------------------------------------------------------- */

void
child_drop(struct start *s)
{
	if (s == NULL || atomic_fetch_sub(&s->refs, 1) > 1)
		return;
	for (int i = 0; i < SPAWN_SHARED; i++)
		bulk_close(&s->area[i]);
	free(s->place);
	free(s);
}

static struct start *
new_start(void)
{
	static const char *const name[] = { "falcon-params", "falcon-grads",
					    "falcon-samples" };
	struct start *s = fal_calloc(1, sizeof(*s));
	int err = s == NULL ? FAL_ENOMEM : FAL_OK;
	for (int i = 0; i < SPAWN_SHARED && s != NULL; i++)
		s->area[i].fd = -1;
	for (int i = 0; i < SPAWN_SHARED && err == FAL_OK; i++)
		err = bulk_open(name[i], &s->area[i]);
	if (s != NULL)
		s->refs = 1;
	if (err == FAL_OK)
		return s;
	child_drop(s);
	return NULL;
}

static int
map_all(struct child *c)
{
	struct start *s = c->start;
	const struct child_job *j = c->job;
	const struct bulk_conf params = { .header = j->params,
					  .data = j->params_bytes,
					  .count = c->slots + 1,
					  .read_only = true };
	const struct bulk_conf grads = { .header = j->params,
					 .data = j->params_bytes,
					 .count = c->slots * CHILD_TURNS };
	const struct bulk_conf samples = { .header = j->samples,
					   .data = j->samples_bytes,
					   .count = c->slots * CHILD_TURNS,
					   .read_only = true };
	s->places = c->slots + 1;
	s->place = fal_calloc(s->places, sizeof(*s->place));
	int err = s->place == NULL ? FAL_ENOMEM : FAL_OK;
	if (err == FAL_OK)
		err = bulk_map(&s->area[SPAWN_PARAMS], &params);
	if (err == FAL_OK)
		err = bulk_map(&s->area[SPAWN_GRADS], &grads);
	if (err == FAL_OK && c->hello.samples)
		err = bulk_map(&s->area[SPAWN_SAMPLES], &samples);
	return err;
}

void
child_tell_job(struct child *c)
{
	int err = map_all(c);
	if (err < 0) {
		child_blame(c, "memory to share: %s", fal_strerror(err));
		return;
	}
	struct fal_grad_job line = c->job->job;
	line.params = c->start->area[SPAWN_PARAMS].shape;
	line.grads = c->start->area[SPAWN_GRADS].shape;
	line.samples = c->start->area[SPAWN_SAMPLES].shape;
	fal_grad_put_job(&c->lines.b, &line);
	c->told = c->jobs;
	c->up = true;
	pthread_cond_broadcast(&c->change);
}

/* --- starts and ends ---------------------------------------------------------------- */

static void
forget_bytes(struct child *c)
{
	fal_buf_clear(&c->lines.b);
	fal_buf_clear(&c->params.b);
	fal_buf_clear(&c->in);
	fal_buf_clear(&c->err);
	c->lines.sent = c->params.sent = 0;
	c->frame = 0;
	c->heard_by_lanes = c->hung_up = false;
	c->closed = "its standard output";
}

static void
lose_all(struct child *c)
{
	c->up = false;
	for (uint32_t i = 0; i < c->slots; i++)
		if (c->slot[i].state == SLOT_SENT)
			c->slot[i].state = SLOT_LOST;
	child_rouse(c);
}

/* Its group is no more, its memory is nobody's but of those who read.  Gives up the mutex
 * while it dies, which takes a large one long. */
static void
end(struct child *c)
{
	child_drain(c);
	struct spawned was = c->proc;
	struct start *memory = c->start;
	c->proc = (struct spawned){ 0, -1, -1, -1, -1, -1 };
	c->start = NULL;
	forget_bytes(c);
	lose_all(c);
	pthread_mutex_unlock(&c->mutex);
	spawn_kill(&was);
	child_drop(memory);
	pthread_mutex_lock(&c->mutex);
	if (c->pidfd >= 0)
		close(c->pidfd);
	c->pidfd = -1;
	c->told = 0;
	c->blamed = c->hopeless = false;
}

static void
blame(struct child *c, bool hopeless, const char *fmt, va_list ap)
{
	if (c->blamed)
		return;
	c->blamed = true;
	c->hopeless = hopeless;
	vsnprintf(c->blame.text, sizeof(c->blame.text), fmt, ap);
	child_drain(c); /* the reason may stand there */
	fal_diag_set(&c->trouble, 0, "%.300s%s%.180s", c->blame.text,
		     c->last.text[0] != '\0' ? "; it said last: " : "", c->last.text);
	lose_all(c);
	child_poke(c);
}

void
child_blame(struct child *c, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	blame(c, false, fmt, ap);
	va_end(ap);
}

void
child_give_up(struct child *c, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	blame(c, true, fmt, ap);
	va_end(ap);
}

static void
give_up(struct child *c, const char *why)
{
	c->failed = true;
	fal_diag_set(&c->why, FAL_EPERM, "%s: %s", c->conf.command, why);
	if (c->greeted) /* before whoever waits for it goes on */
		fal_cli_err(PROG, "trainer %u: %s; it is given up", c->conf.number, why);
	end(c);
}

/* Ends what was blamed. */
static void
settle(struct child *c)
{
	const struct fal_diag why = c->blame;
	struct fal_diag all;
	c->mute = c->heard ? 0 : c->mute + 1;
	if (c->hopeless || c->conf.once) {
		give_up(c, why.text);
	} else if (c->mute >= c->conf.mute) {
		fal_diag_set(&all, FAL_EPERM, "%s; %u starts in a row without a hello",
			     why.text, c->mute);
		give_up(c, all.text);
	} else {
		fal_cli_err(PROG, "trainer %u: %s; it starts again", c->conf.number,
			    why.text);
		end(c);
		c->pause = c->useful                   ? least_pause
			   : 2 * c->pause < most_pause ? 2 * c->pause
						       : most_pause;
		c->restart = uv_hrtime() + c->pause;
	}
}

static void
begin(struct child *c)
{
	const struct fal_grad_greeting hello = { c->conf.worker, c->conf.number,
						 c->conf.lanes };
	struct spawn_conf conf = { c->conf.command, c->conf.key, c->conf.number, { 0 } };
	c->starts++;
	c->started = uv_hrtime();
	c->heard = c->late = c->useful = false;
	c->fails = 0;
	c->last.text[0] = '\0';
	c->start = new_start();
	if (c->start == NULL) {
		child_blame(c, "memory to share: %s", strerror(errno));
		return;
	}
	for (int i = 0; i < SPAWN_SHARED; i++)
		conf.fd[i] = c->start->area[i].fd;
	if (spawn(&conf, &c->proc) < 0) {
		child_blame(c, "it cannot be started: %s", strerror(errno));
		return;
	}
	c->pidfd = (int)syscall(SYS_pidfd_open, c->proc.pid, 0);
	fal_grad_put_hello(&c->lines.b, &hello);
}

static const char *
before(const struct child *c)
{
	return c->heard ? "" : " before it said hello";
}

/* It ended by itself.  What the shell cannot start will not start the next time. */
static void
ended(struct child *c)
{
	int status;
	if (!spawn_ended(&c->proc, &status))
		child_blame(c, "it closed %s%s", c->closed, before(c));
	else if (c->starts == 1 && !c->heard && WIFEXITED(status) &&
		 (WEXITSTATUS(status) == SH_NOT_FOUND ||
		  WEXITSTATUS(status) == SH_NOT_RUN))
		child_give_up(c, "it cannot be started: the shell exited with status %d",
			      WEXITSTATUS(status));
	else if (WIFSIGNALED(status))
		child_blame(c, "it was ended by signal %d%s", WTERMSIG(status),
			    before(c));
	else
		child_blame(c, "it exited with status %d%s", WEXITSTATUS(status),
			    before(c));
}

/* --- deadlines ---------------------------------------------------------------------- */

void
child_let_begin(struct child *c)
{
	uint32_t at_work = 0;
	for (uint32_t i = 0; i < c->slots; i++)
		at_work += c->slot[i].state == SLOT_SENT && c->slot[i].begun != 0;
	while (at_work < c->hello.lanes) {
		struct slot *next = NULL;
		for (uint32_t i = 0; i < c->slots; i++) {
			struct slot *s = &c->slot[i];
			if (s->state == SLOT_SENT && s->begun == 0 &&
			    (next == NULL || s->order < next->order))
				next = s;
		}
		if (next == NULL)
			return;
		next->begun = uv_hrtime();
		at_work++;
	}
}

void
child_answered(struct child *c, struct slot *s)
{
	if (s->begun == 0) /* out of turn */
		s->begun = uv_hrtime();
	s->took = uv_hrtime() - s->begun;
	s->state = SLOT_ANSWERED;
	c->answers++;
	if (s->word.op == FAL_GRAD_DONE) {
		c->history[s->kind][c->known[s->kind]++ % CHILD_HISTORY] = s->took;
		c->useful = true;
	}
	child_let_begin(c);
	child_rouse(c);
}

/* How long a task of this kind may take: much longer than the longest of late. */
static uint64_t
allowed(const struct child *c, unsigned kind)
{
	uint64_t longest = 0;
	for (int i = 0; i < CHILD_HISTORY; i++)
		if (c->history[kind][i] > longest)
			longest = c->history[kind][i];
	return c->known[kind] == 0 ? unknown_ns : least_ns + 8 * longest;
}

static uint64_t
due(const struct child *c)
{
	uint64_t t = UINT64_MAX;
	if (c->proc.pid == 0)
		return c->failed ? t : c->restart;
	if (!c->heard)
		t = c->started + (c->late ? hello_ns : say_ns);
	for (uint32_t i = 0; i < c->slots; i++) {
		const struct slot *s = &c->slot[i];
		const uint64_t at = s->begun + allowed(c, s->kind);
		if (s->state == SLOT_SENT && s->begun != 0 && at < t)
			t = at;
	}
	return t;
}

static void
overdue(struct child *c)
{
	const uint64_t now = uv_hrtime();
	if (c->proc.pid == 0) {
		begin(c);
	} else if (c->heard) {
		child_blame(c, "no answer in time");
	} else if (now >= c->started + hello_ns) {
		child_blame(c, "no hello within %d s", (int)(hello_ns / S));
	} else if (!c->late) {
		c->late = true;
		fal_cli_err(PROG, "trainer %u: no hello yet", c->conf.number);
	}
}

void *
child_main(void *arg)
{
	struct child *c = arg;
	pthread_mutex_lock(&c->mutex);
	c->pause = least_pause / 2;
	while (!c->quit) {
		/* Tasks that come meanwhile are not due before. */
		const uint64_t look = uv_hrtime() + least_ns, first = due(c);
		const bool gone = child_turn(c, first < look ? first : look);
		if (c->quit)
			break;
		if (gone && c->proc.pid != 0)
			ended(c);
		else if (uv_hrtime() >= due(c))
			overdue(c);
		if (c->blamed)
			settle(c);
		/* Whoever has heard of another job starts anew. */
		if (c->told != 0 && c->told != c->jobs)
			end(c);
		else if (c->heard && c->told == 0 && c->job != NULL && c->proc.pid != 0)
			child_tell_job(c);
	}
	if (c->blamed) /* what nobody has heard of yet */
		fal_cli_err(PROG, "trainer %u: %s", c->conf.number, c->blame.text);
	const uint64_t until = uv_hrtime() + bye_ns;
	if (c->proc.in >= 0)
		close(c->proc.in);
	c->proc.in = -1;
	forget_bytes(c);
	while (c->proc.pid != 0 && !c->blamed && uv_hrtime() < until &&
	       !child_turn(c, until))
		;
	end(c);
	pthread_mutex_unlock(&c->mutex);
	return NULL;
}
