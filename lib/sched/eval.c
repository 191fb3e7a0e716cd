/* Evaluation of the test set: optional work for whoever would wait. */
#include "sched/state.h"

#include "base/mem.h"

#include <math.h>

/* So that a worker with eval tasks is back when training needs it. */
static const uint32_t most_at_once = 64;

int
fal_sched_eval(struct fal_sched *s, double now, uint32_t tasks)
{
	if (s->eval_left > 0)
		return FAL_ESTATE;
	if (FAL_GROW(s->eval_slot, s->eval_slot_cap, tasks) < 0 ||
	    FAL_GROW(s->eval_free, s->eval_free_cap, tasks) < 0)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < tasks; i++) {
		s->eval_slot[i] = FAL_NONE;
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

int
fal_eval_grant(struct fal_sched *s, struct fal_worker *w, uint32_t n, double now)
{
	for (; n > 0 && s->eval_free_n > 0; n--) {
		uint32_t task = s->eval_free[--s->eval_free_n];
		struct fal_act act = { .kind = FAL_ACT_EVAL, .worker = w->id };
		s->eval_slot[task] = fal_slot(s, w);
		w->evals++;
		if (fal_emit_task(s, act, task) < 0)
			return FAL_ENOMEM;
	}
	fal_refresh(s, w, now);
	return FAL_OK;
}

int
fal_eval_return(struct fal_sched *s, uint32_t slot)
{
	struct fal_worker *w = &s->worker[slot];
	for (uint32_t t = 0; w->evals > 0 && t < s->eval_tasks; t++) {
		if (s->eval_slot[t] != slot)
			continue;
		s->eval_slot[t] = FAL_NONE;
		s->eval_free[s->eval_free_n++] = t;
		w->evals--;
	}
	return FAL_OK;
}

/* How many eval tasks `w` may take: while a clock is open, what fits into the time it
 * would wait; else half of its fair part of what is left (guided self-scheduling). */
static uint32_t
appetite(const struct fal_sched *s, const struct fal_worker *w, double now)
{
	double n = ceil((double)s->eval_free_n / (2.0 * s->active));
	if (s->open) {
		uint32_t last = fal_heap_top(&s->runners);
		double until = last != FAL_NONE ? s->worker[last].finish : now;
		n = floor((until - now) / fal_eval_s(s, w)) * w->lanes;
	}
	return n < 1 ? 0 : (uint32_t)fmin(n, most_at_once);
}

int
fal_eval_feed(struct fal_sched *s, double now)
{
	uint32_t slot;
	while (s->eval_free_n > 0 && (slot = fal_heap_top(&s->idle)) != FAL_NONE) {
		struct fal_worker *w = &s->worker[slot];
		uint32_t n = appetite(s, w, now);
		if (n == 0)
			break;
		w->base = now;
		if (fal_eval_grant(s, w, n, now) < 0)
			return FAL_ENOMEM;
	}
	return FAL_OK;
}
