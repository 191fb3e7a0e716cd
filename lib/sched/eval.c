/* Evaluation of the test set: optional work for whoever would wait. */
#include "sched/state.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* So that a worker with eval tasks is back when training needs it. */
static const uint32_t most_at_once = 64;

static void
make_room(struct fal_sched *s, uint32_t tasks)
{
	FAL_XGROW(s->eval_task, s->eval_task_cap, tasks);
	FAL_XGROW(s->eval_free, s->eval_free_cap, tasks);
	fal_grant_history_open(&s->eval_given, tasks);
}

int
fal_sched_eval(struct fal_sched *s, double now, uint32_t tasks)
{
	if (s->eval_left > 0)
		return FAL_ESTATE;
	make_room(s, tasks);
	for (uint32_t i = 0; i < tasks; i++) {
		s->eval_task[i].holder = 0;
		s->eval_task[i].said = 0;
		s->eval_free[i] = tasks - 1 - i;
	}
	s->eval_tasks = s->eval_left = s->eval_free_n = tasks;
	fal_eval_grant_idle(s, now);
	return FAL_OK;
}

void
fal_sched_evals(struct fal_sched *s, double now, uint32_t tasks)
{
	for (uint32_t i = 0; i < s->workers; i++) {
		s->worker[i].evals = 0;
		if (!s->worker[i].gone)
			fal_worker_refresh(s, &s->worker[i], now);
	}
	s->eval_tasks = s->eval_left = s->eval_free_n = 0;
	make_room(s, tasks);
	for (uint32_t i = 0; i < tasks; i++)
		s->eval_task[i].holder = FAL_EVALUATED;
	s->eval_tasks = tasks;
}

int
fal_sched_eval_one(struct fal_sched *s, double now, uint32_t task)
{
	if (task >= s->eval_tasks)
		return FAL_EINVAL;
	if (s->eval_task[task].holder != FAL_EVALUATED)
		return FAL_OK;
	s->eval_task[task].said = 0;
	fal_sched_eval_again(s, now, task);
	return FAL_OK;
}

bool
fal_sched_eval_done(const struct fal_sched *s)
{
	return s->eval_left == 0;
}

/* What the word of `w` on the task would be: 0 nothing new, 1 that of another session, 2
 * that of another key. */
static int
weight(const struct fal_sched *s, const struct fal_worker *w, uint32_t task)
{
	const struct fal_eval_task *t = &s->eval_task[task];
	int best = 2;
	for (uint32_t i = 0; i < t->said; i++)
		if (t->worker[i] == w->id)
			return 0;
		else if (t->key[i] == w->key)
			best = 1;
	return best;
}

/* The most that the word of anybody here would be; 2, too, where all that are here, and
 * were, have the same key and another session is there. */
static int
most_weight(const struct fal_sched *s, uint32_t task, bool *one_key)
{
	const struct fal_eval_task *t = &s->eval_task[task];
	int most = 0;
	*one_key = true;
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		if (!fal_worker_active(w))
			continue;
		int is = weight(s, w, task);
		most = is > most ? is : most;
		*one_key &= t->said > 0 && w->key == t->key[0];
	}
	return most;
}

bool
fal_sched_eval_can_repeat(const struct fal_sched *s, uint32_t task)
{
	bool one_key;
	if (s->eval_task[task].holder != FAL_EVALUATED)
		return false; /* it is under way */
	int most = most_weight(s, task, &one_key);
	return most == 2 || (most == 1 && one_key);
}

/* May it have the task?  Whoever would say most of it, and anybody, if nobody says more.
 */
static bool
may_have(const struct fal_sched *s, const struct fal_worker *w, uint32_t task)
{
	bool one_key;
	return s->eval_task[task].said == 0 ||
	       weight(s, w, task) >= most_weight(s, task, &one_key);
}

void
fal_sched_eval_again(struct fal_sched *s, double now, uint32_t task)
{
	s->eval_task[task].holder = 0;
	s->eval_free[s->eval_free_n++] = task;
	s->eval_left++;
	fal_eval_grant_idle(s, now);
}

/* The last free task that it may have; eval_free_n: there is none. */
static uint32_t
free_for(const struct fal_sched *s, const struct fal_worker *w)
{
	for (uint32_t i = s->eval_free_n; i > 0; i--)
		if (may_have(s, w, s->eval_free[i - 1]))
			return i - 1;
	return s->eval_free_n;
}

/* Grants `w` up to n eval tasks.  False: there is none that it may have. */
static bool
grant(struct fal_sched *s, struct fal_worker *w, uint32_t n, double now)
{
	bool given = false;
	for (; n > 0 && s->eval_free_n > 0; n--) {
		uint32_t at = free_for(s, w), task;
		struct fal_act act = { .kind = FAL_ACT_EVAL, .worker = w->id };
		if (at == s->eval_free_n)
			break;
		task = s->eval_free[at];
		memmove(s->eval_free + at, s->eval_free + at + 1,
			(--s->eval_free_n - at) * sizeof(*s->eval_free));
		s->eval_task[task].holder = w->id;
		w->evals++;
		given = true;
		fal_grant_history_add(&s->eval_given, task, w->id);
		fal_act_emit_task(s, act, task);
	}
	fal_worker_refresh(s, w, now);
	return given;
}

void
fal_eval_return(struct fal_sched *s, struct fal_worker *w)
{
	for (uint32_t t = 0; w->evals > 0 && t < s->eval_tasks; t++) {
		if (s->eval_task[t].holder != w->id)
			continue;
		s->eval_task[t].holder = 0;
		s->eval_free[s->eval_free_n++] = t;
		w->evals--;
	}
}

/* The task is done: nobody else is to do it. */
static void
settle_task(struct fal_sched *s, uint32_t task, double now)
{
	struct fal_worker *holder = fal_worker_find(s, s->eval_task[task].holder);
	if (holder != NULL) {
		holder->evals--;
		fal_worker_refresh(s, holder, now);
	} else { /* was taken from it, and nobody else has it yet */
		uint32_t i = 0;
		while (i < s->eval_free_n && s->eval_free[i] != task)
			i++;
		assert(i < s->eval_free_n);
		s->eval_free[i] = s->eval_free[--s->eval_free_n];
	}
	s->eval_task[task].holder = FAL_EVALUATED;
	s->eval_left--;
}

int
fal_sched_evaluated(struct fal_sched *s, double now, uint32_t id, uint32_t task,
		    uint32_t samples, double task_s)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (task >= s->eval_tasks)
		return FAL_EINVAL;
	if (w == NULL)
		return 0;
	if (!fal_grant_history_has(&s->eval_given, task, id))
		return FAL_ESTATE;
	struct fal_eval_task *t = &s->eval_task[task];
	/* What it had once may be another one's by now, to confirm what it said. */
	bool counts = s->eval_task[task].holder != FAL_EVALUATED &&
		      (s->eval_task[task].holder == id || may_have(s, w, task));
	if (counts) {
		t->worker[t->said % 2] = id;
		t->key[t->said % 2] = w->key;
		t->said += t->said < 2;
		settle_task(s, task, now);
		fal_ewma(&w->eval_s,
			 task_s / fal_load_size(s, w, (struct fal_load){ 1, samples }));
		w->base = now;
		if (w->trial || w->suspected)
			fal_probation_note_work(s, w, now);
	}
	fal_worker_refresh(s, w, now);
	/* While nothing else is to be done, the next ones are there before it is idle. */
	if (counts && s->rounds == 0 && w->evals <= w->lanes && fal_worker_active(w)) {
		uint32_t n = (s->eval_free_n + 2 * s->active - 1) / (2 * s->active);
		grant(s, w, n, now);
	}
	fal_sched_settle(s, now);
	return counts;
}

/* How many eval tasks `w` may take: while a round is open, what fits into the time it
 * would wait; else half of its fair part of what is left (guided self-scheduling). */
static uint32_t
appetite(const struct fal_sched *s, const struct fal_worker *w, double now)
{
	double n = ceil((double)s->eval_free_n / (2.0 * s->active));
	if (s->rounds > 0) {
		uint32_t last = fal_heap_top(&s->runners);
		double until = last != FAL_NONE ? s->worker[last].finish : now;
		n = floor((until - now) / fal_eval_task_s(s, w)) * w->lanes;
	}
	return n < 1 ? 0 : (uint32_t)fmin(n, most_at_once);
}

/* Somebody else than the first one that is idle may have what is left. */
static void
feed_others(struct fal_sched *s, double now)
{
	for (uint32_t slot = 0; slot < s->workers && s->eval_free_n > 0; slot++) {
		struct fal_worker *w = &s->worker[slot];
		if (!fal_heap_has(&s->idle, slot))
			continue;
		uint32_t n = appetite(s, w, now);
		if (n > 0 && grant(s, w, n, now))
			w->base = now;
	}
}

void
fal_eval_grant_idle(struct fal_sched *s, double now)
{
	struct fal_worker *tried = s->rounds == 0 ? fal_probation_unserved(s) : NULL;
	uint32_t slot;
	if (tried != NULL && s->eval_free_n > 0) {
		tried->tried = true;
		tried->base = now;
		grant(s, tried, 1, now);
	}
	while (s->eval_free_n > 0 && (slot = fal_heap_top(&s->idle)) != FAL_NONE) {
		struct fal_worker *w = &s->worker[slot];
		uint32_t n = appetite(s, w, now);
		if (n == 0)
			break;
		if (!grant(s, w, n, now)) {
			feed_others(s, now);
			return;
		}
		w->base = now;
	}
}
