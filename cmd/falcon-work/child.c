/* The lanes' side of a trainer. */
#include "child_priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>
#include <uv.h>

static void
close_events(const struct child *c)
{
	if (c->wake >= 0)
		close(c->wake);
	if (c->nudge >= 0)
		close(c->nudge);
}

int
child_new(const struct child_conf *conf, struct child **out)
{
	pthread_condattr_t monotonic;
	struct child *c = fal_calloc(1, sizeof(*c));
	if (c == NULL)
		return FAL_ENOMEM;
	c->conf = *conf;
	c->proc = (struct spawned){ 0, -1, -1, -1, -1, -1 };
	c->pidfd = -1;
	c->wake = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	c->nudge = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (c->wake < 0 || c->nudge < 0) {
		close_events(c);
		free(c);
		return FAL_EIO;
	}
	pthread_mutex_init(&c->mutex, NULL);
	pthread_condattr_init(&monotonic);
	pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
	pthread_cond_init(&c->change, &monotonic);
	pthread_condattr_destroy(&monotonic);
	if (pthread_create(&c->thread, NULL, child_main, c) != 0) {
		pthread_cond_destroy(&c->change);
		pthread_mutex_destroy(&c->mutex);
		close_events(c);
		free(c);
		return FAL_ENOMEM; /* of a stack */
	}
	*out = c;
	return FAL_OK;
}

void
child_free(struct child *c)
{
	if (c == NULL)
		return;
	child_quit(c);
	pthread_join(c->thread, NULL);
	pthread_cond_destroy(&c->change);
	pthread_mutex_destroy(&c->mutex);
	close_events(c);
	fal_buf_free(&c->lines.b);
	fal_buf_free(&c->params.b);
	fal_buf_free(&c->in);
	fal_buf_free(&c->err);
	free(c->slot);
	free(c);
}

void
child_poke(struct child *c)
{
	const uint64_t one = 1;
	(void)!write(c->wake, &one, sizeof(one));
}

int
child_greet(struct child *c, struct fal_grad_hello *out, struct fal_diag *diag)
{
	pthread_mutex_lock(&c->mutex);
	while (!c->greeted && !c->failed)
		pthread_cond_wait(&c->change, &c->mutex);
	const bool failed = c->failed;
	*out = c->hello;
	if (failed)
		*diag = c->why;
	pthread_mutex_unlock(&c->mutex);
	return failed ? FAL_EPERM : FAL_OK;
}

bool
child_failed(struct child *c)
{
	pthread_mutex_lock(&c->mutex);
	const bool failed = c->failed;
	pthread_mutex_unlock(&c->mutex);
	return failed;
}

void
child_trouble(struct child *c, struct fal_diag *out)
{
	pthread_mutex_lock(&c->mutex);
	*out = c->trouble;
	pthread_mutex_unlock(&c->mutex);
}

void
child_begin(struct child *c, const struct child_job *job)
{
	pthread_mutex_lock(&c->mutex);
	c->job = job;
	c->jobs++;
	c->up = false;
	pthread_mutex_unlock(&c->mutex);
	child_poke(c);
}

void
child_forget(struct child *c)
{
	child_begin(c, NULL);
}

void
child_quit(struct child *c)
{
	pthread_mutex_lock(&c->mutex);
	c->quit = true;
	child_rouse(c);
	pthread_mutex_unlock(&c->mutex);
	child_poke(c);
}

void
child_cancel(struct child *c, uint32_t slot, uint64_t id)
{
	struct slot *s = &c->slot[slot];
	pthread_mutex_lock(&c->mutex);
	s->cancel = id;
	if (s->state == SLOT_SENT && s->id == id && !s->told) {
		fal_grad_put_cancel(&c->lines.b, id);
		s->told = true;
		child_poke(c);
	}
	child_rouse(c);
	pthread_mutex_unlock(&c->mutex);
}

void
child_fault(struct child *c, uint64_t start, const char *why)
{
	pthread_mutex_lock(&c->mutex);
	if (c->starts == start && c->up)
		child_blame(c, "%s", why);
	pthread_mutex_unlock(&c->mutex);
	child_poke(c);
}

uint64_t
child_steps(struct child *c)
{
	pthread_mutex_lock(&c->mutex);
	if (c->answers == c->seen) /* answers tell as well that it works */
		c->ticks = spawn_ticks(c->proc.pid);
	c->seen = c->answers;
	const uint64_t n = c->answers + c->ticks;
	pthread_mutex_unlock(&c->mutex);
	return n;
}

/* --- tasks: the mutex is held ------------------------------------------------------- */

static bool
unwanted(const struct child *c, uint32_t slot, uint64_t id)
{
	return c->quit || c->failed || c->slot[slot].cancel == id;
}

uint64_t
child_start(struct child *c, uint32_t slot, uint64_t id)
{
	pthread_mutex_lock(&c->mutex);
	while (!c->up && !unwanted(c, slot, id))
		pthread_cond_wait(&c->change, &c->mutex);
	const uint64_t start = unwanted(c, slot, id) ? 0 : c->starts;
	pthread_mutex_unlock(&c->mutex);
	return start;
}

bool
child_pause(struct child *c, uint32_t slot, uint64_t id, uint64_t ns)
{
	const uint64_t until = uv_hrtime() + ns;
	const struct timespec t = { (time_t)(until / 1000000000),
				    (long)(until % 1000000000) };
	pthread_mutex_lock(&c->mutex);
	while (!unwanted(c, slot, id) && uv_hrtime() < until)
		pthread_cond_timedwait(&c->change, &c->mutex, &t);
	const bool wanted = !unwanted(c, slot, id);
	pthread_mutex_unlock(&c->mutex);
	return wanted;
}

/* The place of the task's parameters, filled if they are in none yet: there are more
 * places than slots.  Gives up the mutex while it copies. */
static uint32_t
take_place(struct child *c, struct start *s, const struct child_task *t)
{
	uint32_t free = s->places;
	for (uint32_t i = 0; i < s->places; i++) {
		struct place *p = &s->place[i];
		if (p->serial == t->serial) {
			p->users++;
			while (!p->ready)
				pthread_cond_wait(&c->change, &c->mutex);
			return i;
		}
		free = free == s->places && p->users == 0 ? i : free;
	}
	struct place *p = &s->place[free];
	*p = (struct place){ t->serial, ++s->editions, 1, false };
	pthread_mutex_unlock(&c->mutex);
	fal_model_pack(c->job->model, t->params, bulk_data(&s->area[SPAWN_PARAMS], free));
	pthread_mutex_lock(&c->mutex);
	p->ready = true;
	pthread_cond_broadcast(&c->change);
	if (c->hello.pipes && c->start == s) {
		const struct bulk_area *a = &s->area[SPAWN_PARAMS];
		fal_grad_put_params(&c->lines.b, t->line.version, free);
		fal_put_u64(&c->params.b, a->shape.bytes);
		fal_put_bytes(&c->params.b, bulk_file(a, free), a->shape.bytes);
	}
	return free;
}

/* The slot as the trainer knows it. */
static uint32_t
alias_of(const struct child_task *t)
{
	return t->line.slot * CHILD_TURNS + t->turn;
}

static void
send_task(struct child *c, const struct child_task *t)
{
	const struct bulk_area *area = c->start->area;
	const uint32_t place = c->slot[t->line.slot].place;
	struct fal_grad_task line = t->line;
	line.place = place;
	line.slot = alias_of(t);
	line.edition = c->start->place[place].edition;
	line.params = bulk_at(&area[SPAWN_PARAMS], place);
	line.grads = bulk_at(&area[SPAWN_GRADS], line.slot);
	line.samples = c->hello.samples ? bulk_at(&area[SPAWN_SAMPLES], line.slot) : 0;
	fal_grad_put_task(&c->lines.b, &line);
	if (c->hello.pipes && c->hello.samples) {
		const struct bulk_area *a = &c->start->area[SPAWN_SAMPLES];
		fal_put_u64(&c->params.b, a->shape.bytes);
		fal_put_bytes(&c->params.b, bulk_file(a, line.slot), a->shape.bytes);
	}
	struct slot *s = &c->slot[t->line.slot];
	*s = (struct slot){ .state = SLOT_SENT,
			    .id = t->line.id,
			    .cancel = s->cancel,
			    .at = s->at,
			    .place = s->place,
			    .order = ++c->order,
			    .train = !t->line.eval,
			    .kind = t->kind,
			    .alias = line.slot };
	child_let_begin(c);
	if (!child_push(c)) /* its deadline is not before the thread looks again */
		child_poke(c);
}

/* Until it is answered, or lost. */
static void
await(struct child *c, struct slot *s)
{
	while (s->state == SLOT_SENT && !c->quit) {
		if (c->hearing || c->hung_up || c->hello.pipes)
			pthread_cond_wait(&c->change, &c->mutex);
		else
			child_hear(c);
	}
}

static enum child_end
end_of(const struct child *c, const struct slot *s)
{
	if (c->quit || s->cancel == s->id)
		return CHILD_CANCELLED;
	if (s->state != SLOT_ANSWERED)
		return s->begun != 0 ? CHILD_LOST : CHILD_UNSENT;
	return s->word.op == FAL_GRAD_DONE ? CHILD_MADE : CHILD_FAILED;
}

/* Sends it, in the start that is there; it is lost at once where that comes to nothing.
 */
static int
begin_in(struct child *c, const struct child_task *t)
{
	struct slot *s = &c->slot[t->line.slot];
	struct start *at = c->start;
	int err = FAL_OK;
	at->refs++;
	s->at = at;
	s->id = t->line.id;
	s->state = SLOT_LOST;
	s->begun = 0;
	s->place = take_place(c, at, t);
	if (c->hello.samples) {
		pthread_mutex_unlock(&c->mutex);
		err = t->fill(t->arg, bulk_data(&at->area[SPAWN_SAMPLES], alias_of(t)));
		pthread_mutex_lock(&c->mutex);
	}
	if (err == FAL_OK && !unwanted(c, t->line.slot, s->id) && c->start == at && c->up)
		send_task(c, t);
	return err;
}

static void
leave(struct slot *s)
{
	s->at->place[s->place].users--;
	child_drop(s->at);
	s->at = NULL;
	s->state = SLOT_IDLE;
}

/* Takes what became of it. */
static int
end_in(struct child *c, const struct child_task *t, struct child_made *out)
{
	struct slot *s = &c->slot[t->line.slot];
	struct start *at = s->at;
	int err = FAL_OK;
	*out = (struct child_made){ .end = end_of(c, s),
				    .loss = s->word.loss,
				    .right = s->word.right,
				    .ns = s->took };
	if (out->end == CHILD_MADE && t->take != NULL) {
		pthread_mutex_unlock(&c->mutex);
		err = t->take(t->arg, out,
			      t->line.eval ? NULL
					   : bulk_data(&at->area[SPAWN_GRADS], s->alias));
		pthread_mutex_lock(&c->mutex);
	}
	if (err == CHILD_KEEPS) {
		out->kept = at;
		at->refs++;
		err = FAL_OK;
	}
	leave(s);
	return err;
}

int
child_do(struct child *c, const struct child_task *t, struct child_made *out)
{
	int err = FAL_OK;
	*out = (struct child_made){ .end = CHILD_UNSENT };
	pthread_mutex_lock(&c->mutex);
	if (c->up && c->starts == t->start) {
		err = begin_in(c, t);
		await(c, &c->slot[t->line.slot]);
		const int ended = end_in(c, t, out);
		err = err < 0 ? err : ended;
	}
	pthread_mutex_unlock(&c->mutex);
	return err;
}
