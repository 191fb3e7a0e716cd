/* Who gets the free tasks: one at a time to whom they cost least, then in ranges. */
#include "sched/state.h"

#include "base/mem.h"

#include <stdlib.h>

static const uint32_t standby_clocks = 16; /* then a worker with share 0 is tried again */

/* The active worker, other than `slot`, to whom one task more costs least. */
static struct fal_worker *
cheapest_but(struct fal_sched *s, uint32_t slot, double now)
{
	struct fal_worker *best = NULL;
	double least = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (!fal_worker_active(w) || (i == slot && s->active > 1))
			continue;
		double cost = s->scheme->cost(s, w, w->queued + 1, now);
		if (best == NULL || cost < least) {
			best = w;
			least = cost;
		}
	}
	return best;
}

static int
hand_out(struct fal_sched *s, struct fal_worker *w, uint32_t task)
{
	enum fal_entry_kind kind = s->granted[task] ? FAL_ENTRY_REGRANT : FAL_ENTRY_GRANT;
	if (kind == FAL_ENTRY_GRANT)
		w->work.share++;
	s->granted[task] = true;
	if (fal_ledger_log(&s->ledger, kind, w->id, 0, task) < 0)
		return FAL_ENOMEM;
	return fal_give(s, w, task);
}

/* Sets every active worker's `plan` to its part of `n` tasks. */
static void
count_out(struct fal_sched *s, uint32_t n, double now)
{
	struct fal_worker *most = NULL;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		w->plan = 0;
		if (fal_worker_active(w))
			fal_heap_set(&s->planner, i,
				     s->scheme->cost(s, w, w->queued + 1, now));
		else
			fal_heap_remove(&s->planner, i);
	}
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = fal_heap_top(&s->planner);
		struct fal_worker *w = &s->worker[slot];
		w->plan++;
		fal_heap_set(&s->planner, slot,
			     s->scheme->cost(s, w, w->queued + w->plan + 1, now));
		if (most == NULL || w->plan > most->plan)
			most = w;
	}
	/* Whoever stands by is tried with one task now and then. */
	for (uint32_t i = 0; i < s->workers && most != NULL && most->plan > 1; i++) {
		struct fal_worker *w = &s->worker[i];
		if (fal_worker_active(w) && w->plan == 0 &&
		    w->standby >= standby_clocks) {
			w->plan = 1;
			most->plan--;
			break;
		}
	}
}

/* Tasks that one worker reported non-finite go to another one. */
static int
hand_out_suspects(struct fal_sched *s, double now)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < s->free_n; i++) {
		uint32_t task = s->free_task[i];
		if (s->nonfinite[task] == FAL_NONE) {
			s->free_task[kept++] = task;
			continue;
		}
		struct fal_worker *w = cheapest_but(s, s->nonfinite[task], now);
		if (w->queued == 0)
			w->base = now;
		if (hand_out(s, w, task) < 0)
			return FAL_ENOMEM;
		fal_refresh(s, w, now);
	}
	s->free_n = kept;
	return FAL_OK;
}

static int
by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

int
fal_plan(struct fal_sched *s, double now)
{
	if (s->free_n == 0 || s->active == 0)
		return FAL_OK;
	if (hand_out_suspects(s, now) < 0)
		return FAL_ENOMEM;
	qsort(s->free_task, s->free_n, sizeof(*s->free_task), by_number);
	count_out(s, s->free_n, now);
	uint32_t next = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->plan == 0)
			continue;
		if (w->queued == 0)
			w->base = now;
		for (; w->plan > 0; w->plan--)
			if (hand_out(s, w, s->free_task[next++]) < 0)
				return FAL_ENOMEM;
		fal_refresh(s, w, now);
	}
	s->free_n = 0;
	return FAL_OK;
}
