/* Task queues of the workers, the heaps over them, and the actions that follow. */
#include "sched/state.h"

#include "base/mem.h"

#include <math.h>

struct fal_act *
fal_emit(struct fal_sched *s, struct fal_act act)
{
	if (FAL_GROW(s->act, s->act_cap, s->acts + 1) < 0)
		return NULL;
	s->act[s->acts] = act;
	return &s->act[s->acts++];
}

int
fal_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task)
{
	struct fal_act *last = s->acts > s->act_next ? &s->act[s->acts - 1] : NULL;
	if (last != NULL && last->kind == act.kind && last->worker == act.worker &&
	    fal_cid_eq(last->fills, act.fills) &&
	    fal_range_join(&last->first, &last->count, task))
		return FAL_OK;
	act.first = task;
	act.count = 1;
	return fal_emit(s, act) != NULL ? FAL_OK : FAL_ENOMEM;
}

uint32_t
fal_node_task(const struct fal_sched *s, uint32_t node)
{
	return node < s->ledger.tasks ? node : node - s->ledger.tasks;
}

/* A running task of `w` that nobody else runs, or FAL_NONE. */
static uint32_t
uncloned(const struct fal_sched *s, const struct fal_worker *w)
{
	uint32_t n = w->head;
	for (uint32_t i = 0; i < w->lanes && n != FAL_NONE; i++, n = s->node[n].next) {
		uint32_t task = fal_node_task(s, n);
		if (s->node[task].slot == FAL_NONE ||
		    s->node[task + s->ledger.tasks].slot == FAL_NONE)
			return n;
	}
	return FAL_NONE;
}

/* Does the worker owe anything that could be late? */
static bool
owes(const struct fal_sched *s, const struct fal_worker *w)
{
	if (w->queued > 0 || w->evals > 0)
		return true;
	for (uint32_t c = s->open ? w->newest : FAL_NONE; c != FAL_NONE;
	     c = s->ledger.contrib[c].older)
		if (s->ledger.contrib[c].state == FAL_CONTRIB_OPEN)
			return true;
	return false;
}

static void
heap_put(struct fal_heap *h, uint32_t slot, bool in, double key)
{
	if (in)
		fal_heap_set(h, slot, key);
	else
		fal_heap_remove(h, slot);
}

/* The first tasks of the queue are on the lanes; returns when the oldest began. */
static double
begin_tasks(struct fal_sched *s, struct fal_worker *w, double now)
{
	uint32_t n = w->head;
	double oldest = w->base;
	for (uint32_t i = 0; i < w->lanes && n != FAL_NONE; i++, n = s->node[n].next) {
		if (s->node[n].began < 0)
			s->node[n].began = fmax(now, w->ready);
		oldest = i == 0 ? s->node[n].began : fmin(oldest, s->node[n].began);
	}
	return oldest;
}

void
fal_refresh(struct fal_sched *s, struct fal_worker *w, double now)
{
	uint32_t slot = fal_slot(s, w);
	bool active = fal_worker_active(w);
	double t = fal_task_s(s, w, w->lanes);
	double oldest = begin_tasks(s, w, now);
	/* Enough queued to bridge a round trip without an idle lane. */
	double bridge = w->lanes * (1 + floor(w->rtt / t));
	w->finish = fal_project(s, w, 0, now);
	heap_put(&s->takers, slot, active && s->open && w->queued <= bridge,
		 fal_project(s, w, 1, now));
	heap_put(&s->donors, slot, active && w->queued > w->lanes, -w->finish);
	heap_put(&s->runners, slot, active && uncloned(s, w) != FAL_NONE, -w->finish);
	heap_put(&s->idle, slot,
		 active && w->queued == 0 && w->evals == 0 && !w->no_evals, t);
	/* Looked at when it is late; later, if that is past (fal_sched_tick decides). */
	heap_put(&s->due, slot, active && owes(s, w),
		 fmax(oldest + fmax(fal_late_s(s, w), 1e-3), now + 1e-3));
}

void
fal_detach(struct fal_sched *s, uint32_t node)
{
	struct fal_node *n = &s->node[node];
	struct fal_worker *w = &s->worker[n->slot];
	*(n->prev != FAL_NONE ? &s->node[n->prev].next : &w->head) = n->next;
	*(n->next != FAL_NONE ? &s->node[n->next].prev : &w->tail) = n->prev;
	n->slot = FAL_NONE;
	w->queued--;
}

int
fal_give(struct fal_sched *s, struct fal_worker *w, uint32_t node)
{
	uint32_t task = fal_node_task(s, node), fills = s->ledger.task[task].fills;
	s->node[node] = (struct fal_node){ w->tail, FAL_NONE, fal_slot(s, w), -1 };
	*(w->tail != FAL_NONE ? &s->node[w->tail].next : &w->head) = node;
	w->tail = node;
	w->queued++;
	w->given++;
	struct fal_act act = { .kind = FAL_ACT_GRANT, .worker = w->id };
	if (fills != FAL_NONE)
		act.fills = s->ledger.contrib[fills].id;
	return fal_emit_task(s, act, task);
}

static int
revoke(struct fal_sched *s, const struct fal_worker *w, uint32_t task)
{
	struct fal_act act = { .kind = FAL_ACT_REVOKE, .worker = w->id };
	return fal_emit_task(s, act, task);
}

/* A worker that held nothing begins to work now. */
static void
begin(struct fal_worker *w, double now)
{
	if (w->queued == 0)
		w->base = now;
}

int
fal_move_tail(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
	      double now)
{
	uint32_t node = from->tail, task = fal_node_task(s, node);
	fal_detach(s, node);
	if (fal_task_held(s, task)) { /* a clone that never began: not worth moving */
		fal_refresh(s, from, now);
		return revoke(s, from, task);
	}
	begin(to, now);
	from->work.out++;
	to->work.in++;
	if (revoke(s, from, task) < 0 || fal_give(s, to, node) < 0 ||
	    fal_ledger_log(&s->ledger, FAL_ENTRY_MOVE, from->id, to->id, task) < 0)
		return FAL_ENOMEM;
	fal_refresh(s, from, now);
	fal_refresh(s, to, now);
	return FAL_OK;
}

int
fal_clone_head(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
	       double now)
{
	uint32_t node = uncloned(s, from);
	if (node == FAL_NONE)
		return FAL_OK;
	uint32_t task = fal_node_task(s, node);
	uint32_t other = node == task ? task + s->ledger.tasks : task;
	begin(to, now);
	to->work.cloned++;
	if (fal_give(s, to, other) < 0 ||
	    fal_ledger_log(&s->ledger, FAL_ENTRY_CLONE, to->id, 0, task) < 0)
		return FAL_ENOMEM;
	fal_refresh(s, from, now);
	fal_refresh(s, to, now);
	return FAL_OK;
}

bool
fal_task_held(const struct fal_sched *s, uint32_t task)
{
	return s->node[task].slot != FAL_NONE ||
	       s->node[task + s->ledger.tasks].slot != FAL_NONE;
}

int
fal_free_task(struct fal_sched *s, uint32_t task)
{
	if (FAL_GROW(s->free_task, s->free_cap, (size_t)s->free_n + 1) < 0)
		return FAL_ENOMEM;
	s->free_task[s->free_n++] = task;
	return FAL_OK;
}

int
fal_withdraw(struct fal_sched *s, uint32_t task, const struct fal_worker *except,
	     double now)
{
	for (uint32_t i = 0; i < s->free_n; i++)
		if (s->free_task[i] == task)
			s->free_task[i--] = s->free_task[--s->free_n];
	for (uint32_t clone = 0; clone < 2; clone++) {
		uint32_t node = task + clone * s->ledger.tasks;
		if (s->node[node].slot == FAL_NONE)
			continue;
		struct fal_worker *w = &s->worker[s->node[node].slot];
		fal_detach(s, node);
		if (w == except)
			continue;
		if (revoke(s, w, task) < 0)
			return FAL_ENOMEM;
		fal_refresh(s, w, now);
	}
	return FAL_OK;
}

void
fal_drop_own(struct fal_sched *s, uint32_t task, const struct fal_worker *w)
{
	for (uint32_t node = task; node < 2 * s->ledger.tasks; node += s->ledger.tasks)
		if (s->node[node].slot == fal_slot(s, w))
			fal_detach(s, node);
}

/* Fences every open contribution of `w`; their tasks are free again. */
static int
fence_all(struct fal_sched *s, struct fal_worker *w)
{
	for (uint32_t c = w->newest; c != FAL_NONE; c = s->ledger.contrib[c].older) {
		const struct fal_contrib *contrib = &s->ledger.contrib[c];
		if (contrib->state != FAL_CONTRIB_OPEN)
			continue;
		struct fal_act act = { .kind = FAL_ACT_FENCE, .worker = w->id };
		act.cid = contrib->id;
		if (contrib->fills != FAL_NONE)
			act.fills = s->ledger.contrib[contrib->fills].id;
		if (fal_emit(s, act) == NULL)
			return FAL_ENOMEM;
		fal_ledger_fence(&s->ledger, c);
		for (uint32_t i = contrib->head; i != FAL_NONE;
		     i = s->ledger.claim[i].next)
			if (fal_free_task(s, s->ledger.claim[i].task) < 0)
				return FAL_ENOMEM;
	}
	return FAL_OK;
}

int
fal_strip(struct fal_sched *s, struct fal_worker *w, bool tell)
{
	while (w->head != FAL_NONE) {
		uint32_t task = fal_node_task(s, w->head);
		fal_detach(s, w->head);
		if (tell && revoke(s, w, task) < 0)
			return FAL_ENOMEM;
		if (!fal_task_held(s, task) && fal_free_task(s, task) < 0)
			return FAL_ENOMEM;
	}
	fal_eval_return(s, w);
	return s->open ? fence_all(s, w) : FAL_OK;
}
