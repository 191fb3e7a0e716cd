/* Evaluation of the test set: optional work for workers that would else wait. */
#include "sched/state.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <string.h>

/* The most eval tasks of one grant to an idle worker, so that the worker is soon back for
 * training. */
static const uint32_t grant_max = 64;

static void
evals_make_room(struct fal_sched *s, uint32_t tasks)
{
	FAL_XGROW(s->eval.task, s->eval.task_cap, tasks);
	FAL_XGROW(s->eval.free, s->eval.free_cap, tasks);
	fal_grant_history_open(&s->eval.given, tasks);
}

int
fal_sched_start_eval(struct fal_sched *s, double now, uint32_t tasks)
{
	if (s->eval.left > 0)
		return FAL_ESTATE;
	evals_make_room(s, tasks);
	for (uint32_t i = 0; i < tasks; i++) {
		s->eval.task[i].holder = 0;
		s->eval.task[i].answers = 0;
		s->eval.free[i] = tasks - 1 - i;
	}
	s->eval.tasks = s->eval.left = s->eval.free_n = tasks;
	fal_eval_grant_idle(s, now);
	return FAL_OK;
}

void
fal_sched_prepare_evals(struct fal_sched *s, double now, uint32_t tasks)
{
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		w->evals = 0;
		if (!w->has_left)
			fal_worker_refresh(s, w, now);
	}
	s->eval.tasks = s->eval.left = s->eval.free_n = 0;
	evals_make_room(s, tasks);
	for (uint32_t i = 0; i < tasks; i++)
		s->eval.task[i].holder = FAL_EVALUATED;
	s->eval.tasks = tasks;
}

int
fal_sched_start_eval_task(struct fal_sched *s, double now, uint32_t task)
{
	if (task >= s->eval.tasks)
		return FAL_EINVAL;
	if (s->eval.task[task].holder != FAL_EVALUATED)
		return FAL_OK;
	s->eval.task[task].answers = 0;
	fal_sched_repeat_eval(s, now, task);
	return FAL_OK;
}

bool
fal_sched_is_eval_done(const struct fal_sched *s)
{
	return s->eval.left == 0;
}

/* The weight of an answer of `w` to the task.  0: `w` has answered before.  1: another
 * session of the key of `w` has answered.  2: the key of `w` has not answered. */
static int
answer_weight(const struct fal_sched *s, const struct fal_worker *w, uint32_t task)
{
	const struct fal_eval_task *t = &s->eval.task[task];
	int best = 2;
	for (uint32_t i = 0; i < t->answers; i++)
		if (t->worker[i] == w->id)
			return 0;
		else if (t->key[i] == w->key)
			best = 1;
	return best;
}

/* The largest weight of an answer of any active worker.  *has_one_key: all active workers
 * have the key of the first answer. */
static int
answer_weight_max(const struct fal_sched *s, uint32_t task, bool *has_one_key)
{
	const struct fal_eval_task *t = &s->eval.task[task];
	int most = 0;
	*has_one_key = true;
	for (const struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		if (!fal_worker_active(w))
			continue;
		const int weight = answer_weight(s, w, task);
		most = weight > most ? weight : most;
		*has_one_key &= t->answers > 0 && w->key == t->key[0];
	}
	return most;
}

bool
fal_sched_eval_can_repeat(const struct fal_sched *s, uint32_t task)
{
	bool has_one_key;
	if (s->eval.task[task].holder != FAL_EVALUATED)
		return false; /* the evaluation of the task is under way */
	int most = answer_weight_max(s, task, &has_one_key);
	return most == 2 || (most == 1 && has_one_key);
}

/* May the worker have the task?  Not if the answer of another worker would have a larger
 * weight. */
static bool
eval_allows(const struct fal_sched *s, const struct fal_worker *w, uint32_t task)
{
	bool has_one_key;
	return s->eval.task[task].answers == 0 ||
	       answer_weight(s, w, task) >= answer_weight_max(s, task, &has_one_key);
}

void
fal_sched_repeat_eval(struct fal_sched *s, double now, uint32_t task)
{
	s->eval.task[task].holder = 0;
	s->eval.free[s->eval.free_n++] = task;
	s->eval.left++;
	fal_eval_grant_idle(s, now);
}

/* Grants `w` up to n eval tasks, the last free ones first.  False: `w` may have none of
 * the free tasks. */
static bool
eval_grant(struct fal_sched *s, struct fal_worker *w, uint32_t n, double now)
{
	const struct fal_act act = { .kind = FAL_ACT_EVAL, .worker = w->id };
	bool any = false;
	for (; n > 0; n--) {
		uint32_t at = s->eval.free_n;
		while (at > 0 && !eval_allows(s, w, s->eval.free[at - 1]))
			at--;
		if (at == 0)
			break;
		const uint32_t task = s->eval.free[--at];
		memmove(s->eval.free + at, s->eval.free + at + 1,
			(--s->eval.free_n - at) * sizeof(*s->eval.free));
		s->eval.task[task].holder = w->id;
		w->evals++;
		any = true;
		fal_grant_history_add(&s->eval.given, task, w->id);
		fal_act_emit_task(s, act, task);
	}
	fal_worker_refresh(s, w, now);
	return any;
}

/* The number of eval tasks for `w`: while a round is open, as many tasks as `w` can do in
 * the time that `w` would wait; else half of its fair part of the remaining tasks (guided
 * self-scheduling). */
static uint32_t
eval_grant_size(const struct fal_sched *s, const struct fal_worker *w, double now)
{
	double n = ceil((double)s->eval.free_n / (2.0 * s->active));
	if (s->rounds > 0) {
		uint32_t last = fal_heap_top(&s->runners);
		double until = last != FAL_NONE ? s->worker[last].finish : now;
		n = floor((until - now) / fal_eval_task_s(s, w)) * w->lanes;
	}
	return n < 1 ? 0 : (uint32_t)fmin(n, grant_max);
}

int
fal_eval_claim(struct fal_sched *s, struct fal_worker *w, uint32_t task, uint32_t samples,
	       double task_s, double now)
{
	struct fal_eval_task *t = &s->eval.task[task];
	if (!fal_grant_history_has(&s->eval.given, task, w->id))
		return FAL_ESTATE;
	/* The task may have another holder by now, to confirm the first answer. */
	const bool counts = t->holder != FAL_EVALUATED &&
			    (t->holder == w->id || eval_allows(s, w, task));
	if (counts) {
		struct fal_worker *holder = fal_worker_find(s, t->holder);
		t->worker[t->answers % 2] = w->id;
		t->key[t->answers % 2] = w->key;
		t->answers += t->answers < 2;
		if (holder != NULL) {
			holder->evals--;
			fal_worker_refresh(s, holder, now);
		} else { /* the task was taken from `w`, and is free */
			uint32_t i = 0;
			while (i < s->eval.free_n && s->eval.free[i] != task)
				i++;
			assert(i < s->eval.free_n);
			s->eval.free[i] = s->eval.free[--s->eval.free_n];
		}
		t->holder = FAL_EVALUATED;
		s->eval.left--;
		fal_ewma(&w->eval_s,
			 task_s / fal_load_size(s, w, (struct fal_load){ 1, samples }));
		w->progress_at = now;
		if (w->standing != FAL_MEMBER)
			fal_probation_note_work(s, w, now);
	}
	fal_worker_refresh(s, w, now);
	/* If `w` has no other work, grants more tasks now, so that these arrive before
	 * `w` is idle. */
	if (counts && s->rounds == 0 && w->evals <= w->lanes && fal_worker_active(w))
		eval_grant(s, w, eval_grant_size(s, w, now), now);
	return counts;
}

void
fal_eval_grant_idle(struct fal_sched *s, double now)
{
	struct fal_worker *unserved = s->rounds == 0 ? fal_probation_unserved(s) : NULL;
	uint32_t slot;
	if (unserved != NULL && s->eval.free_n > 0) {
		unserved->suspicion.has_task = true;
		unserved->progress_at = now;
		eval_grant(s, unserved, 1, now);
	}
	for (;;) {
		slot = fal_heap_top(&s->idle);
		if (s->eval.free_n == 0 || slot == FAL_NONE)
			return;
		struct fal_worker *w = &s->worker[slot];
		uint32_t n = eval_grant_size(s, w, now);
		if (n == 0)
			return;
		if (!eval_grant(s, w, n, now))
			break;
		w->progress_at = now;
	}
	/* The fastest idle worker may not have the free tasks, but others may. */
	for (slot = 0; slot < s->workers && s->eval.free_n > 0; slot++) {
		struct fal_worker *w = &s->worker[slot];
		if (!fal_heap_has(&s->idle, slot))
			continue;
		uint32_t n = eval_grant_size(s, w, now);
		if (n > 0 && eval_grant(s, w, n, now))
			w->progress_at = now;
	}
}
