/* Evaluation of the test set: optional work for whoever would wait. */
#include "sched/state.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>

/* So that a worker with eval tasks is back when training needs it. */
static const uint32_t most_at_once = 64;

int
fal_sched_eval(struct fal_sched *s, double now, uint32_t tasks)
{
	if (s->eval_left > 0)
		return FAL_ESTATE;
	if (FAL_GROW(s->eval_holder, s->eval_holder_cap, tasks) < 0 ||
	    FAL_GROW(s->eval_free, s->eval_free_cap, tasks) < 0)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < tasks; i++) {
		s->eval_holder[i] = 0;
		s->eval_free[i] = tasks - 1 - i;
	}
	s->eval_tasks = s->eval_left = s->eval_free_n = tasks;
	return fal_eval_feed(s, now);
}

bool
fal_sched_eval_done(const struct fal_sched *s)
{
	return s->eval_left == 0;
}

static int
grant(struct fal_sched *s, struct fal_worker *w, uint32_t n, double now)
{
	for (; n > 0 && s->eval_free_n > 0; n--) {
		uint32_t task = s->eval_free[--s->eval_free_n];
		struct fal_act act = { .kind = FAL_ACT_EVAL, .worker = w->id };
		s->eval_holder[task] = w->id;
		w->evals++;
		if (fal_emit_task(s, act, task) < 0)
			return FAL_ENOMEM;
	}
	fal_refresh(s, w, now);
	return FAL_OK;
}

void
fal_eval_return(struct fal_sched *s, struct fal_worker *w)
{
	for (uint32_t t = 0; w->evals > 0 && t < s->eval_tasks; t++) {
		if (s->eval_holder[t] != w->id)
			continue;
		s->eval_holder[t] = 0;
		s->eval_free[s->eval_free_n++] = t;
		w->evals--;
	}
}

/* The task is done: nobody else is to do it. */
static void
settle_task(struct fal_sched *s, uint32_t task, double now)
{
	struct fal_worker *holder = fal_find(s, s->eval_holder[task]);
	if (holder != NULL) {
		holder->evals--;
		fal_refresh(s, holder, now);
	} else { /* was taken from it, and nobody else has it yet */
		uint32_t i = 0;
		while (i < s->eval_free_n && s->eval_free[i] != task)
			i++;
		assert(i < s->eval_free_n);
		s->eval_free[i] = s->eval_free[--s->eval_free_n];
	}
	s->eval_holder[task] = FAL_EVALUATED;
	s->eval_left--;
}

int
fal_sched_evaluated(struct fal_sched *s, double now, uint32_t id, uint32_t task,
		    uint32_t samples, double task_s)
{
	struct fal_worker *w = fal_find(s, id);
	if (task >= s->eval_tasks)
		return FAL_EINVAL;
	if (w == NULL)
		return 0;
	bool counts = s->eval_holder[task] != FAL_EVALUATED;
	if (counts) {
		settle_task(s, task, now);
		fal_ewma(&w->eval_s,
			 task_s / fal_size(s, w, (struct fal_load){ 1, samples }));
		w->base = now;
		if (w->trial || w->suspected)
			fal_trial_kept(s, w, now);
	}
	fal_refresh(s, w, now);
	/* While nothing else is to be done, the next ones are there before it is idle. */
	if (counts && s->rounds == 0 && w->evals <= w->lanes && fal_worker_active(w)) {
		uint32_t n = (s->eval_free_n + 2 * s->active - 1) / (2 * s->active);
		if (grant(s, w, n, now) < 0)
			return FAL_ENOMEM;
	}
	int err = fal_eval_feed(s, now);
	return err < 0 ? err : counts;
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
		n = floor((until - now) / fal_eval_s(s, w)) * w->lanes;
	}
	return n < 1 ? 0 : (uint32_t)fmin(n, most_at_once);
}

int
fal_eval_feed(struct fal_sched *s, double now)
{
	struct fal_worker *tried = s->rounds == 0 ? fal_trial_untried(s) : NULL;
	uint32_t slot;
	if (tried != NULL && s->eval_free_n > 0) {
		tried->tried = true;
		tried->base = now;
		if (grant(s, tried, 1, now) < 0)
			return FAL_ENOMEM;
	}
	while (s->eval_free_n > 0 && (slot = fal_heap_top(&s->idle)) != FAL_NONE) {
		struct fal_worker *w = &s->worker[slot];
		uint32_t n = appetite(s, w, now);
		if (n == 0)
			break;
		w->base = now;
		if (grant(s, w, n, now) < 0)
			return FAL_ENOMEM;
	}
	return FAL_OK;
}
