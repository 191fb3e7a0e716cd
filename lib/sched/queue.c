/* Task queues of the workers, the heaps over them, and the actions that follow. */
#include "sched/queue.h"

#include "base/crowd.h"
#include "base/least.h"
#include "base/line.h"
#include "base/mem.h"
#include "sched/ahead.h"
#include "sched/due.h"
#include "sched/eval.h"
#include "sched/members.h"
#include "sched/retry.h"
#include "sched/round.h"
#include "sched/scheme.h"
#include "sched/speed.h"
#include "sched/team.h"
#include "sched/verify.h"

#include <math.h>

void
fal_emit(struct fal_sched *s, struct fal_act act)
{
	FAL_XGROW(s->act, s->act_cap, s->acts + 1);
	s->act[s->acts++] = act;
}

/* Does the task continue the last action, which nobody has fetched yet? */
static bool
join(struct fal_sched *s, const struct fal_act *act, uint32_t task)
{
	struct fal_act *last = s->acts > s->act_next ? &s->act[s->acts - 1] : NULL;
	return last != NULL && last->kind == act->kind && last->worker == act->worker &&
	       last->round == act->round && last->version == act->version &&
	       fal_cid_eq(last->fills, act->fills) && fal_cid_eq(last->cid, act->cid) &&
	       fal_range_join(&last->first, &last->count, task);
}

void
fal_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task)
{
	if (join(s, &act, task))
		return;
	act.first = task;
	act.count = 1;
	fal_emit(s, act);
}

struct fal_node *
fal_holders(const struct fal_round *r, uint32_t task)
{
	return r->held[task - r->ledger.first];
}

struct fal_node *
fal_held_by(const struct fal_sched *s, const struct fal_round *r, uint32_t task,
	    const struct fal_worker *w)
{
	struct fal_node *n = fal_holders(r, task);
	while (n != NULL && n->slot != fal_slot(s, w))
		n = n->other;
	return n;
}

/* Was it claimed as it was granted? */
static bool
is_claimed(const struct fal_node *n)
{
	return fal_ledger_task(&n->round->ledger, n->task)->due;
}

struct fal_node *
fal_uncloned(const struct fal_worker *w)
{
	struct fal_node *n = w->head;
	for (uint32_t i = 0; i < w->lanes && n != NULL; i++, n = n->next)
		if (fal_holders(n->round, n->task) == n && !is_claimed(n))
			return n;
	return NULL;
}

static void
heap_put(struct fal_heap *h, uint32_t slot, bool in, double key)
{
	if (in)
		fal_heap_set(h, slot, key);
	else if (fal_heap_has(h, slot))
		fal_heap_remove(h, slot);
}

/* The first tasks of the queue are on the lanes, when their versions are there: the rest
 * waits for one to be published.  Returns when the oldest began. */
static double
begin_tasks(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_node *n = w->head;
	double oldest = INFINITY, awaited = INFINITY;
	for (uint32_t i = 0; i < w->lanes && n != NULL; i++, n = n->next) {
		const uint64_t on = n->round->version;
		if (n->began < 0 && fal_line_of(on) == 0 && on > s->published) {
			awaited = fal_min(awaited, (double)on);
			continue;
		}
		if (n->began < 0) {
			n->began = fal_max(now, w->ready);
			w->pulls_from = fal_min(w->pulls_from, now);
		}
		oldest = fal_min(oldest, n->began);
	}
	heap_put(&s->awaits, fal_slot(s, w), awaited < INFINITY, awaited);
	return oldest;
}

/* What `w` holds of the first round that is not done; all, where it has nothing of it. */
static struct fal_load
pressing(const struct fal_sched *s, const struct fal_worker *w)
{
	struct fal_load load = { 0 };
	const struct fal_round *first = fal_pressing(s);
	if (s->rounds > 1)
		for (struct fal_node *i = w->head; i != NULL && i->round == first;
		     i = i->next) {
			load.tasks++;
			load.samples += fal_task_samples(s, i->round, i->task);
		}
	return load.tasks > 0 ? load : fal_load_queued(w);
}

void
fal_refresh_due(struct fal_sched *s, struct fal_worker *w)
{
	/* Looked at when it is late, be it of the way here; then what it is at may take
	 * twice as long as it took so far, however often it is projected anew meanwhile.
	 */
	const double turn =
		w->turn[FAL_TURN_TASK].most * fal_crowding(w->lanes, w->cores);
	double late = w->began + fal_max(fal_max(fal_late_s(s, w), turn), 1e-3);
	if (w->looked > w->base)
		late = fal_max(late, w->looked + (w->looked - w->base));
	const double look = w->gone ? INFINITY : fal_due_next(s, w, late);
	heap_put(&s->due, fal_slot(s, w), look < INFINITY,
		 fal_max(look, w->looked + 1e-3));
}

/* Enough queued to bridge a round trip without an idle lane. */
static double
bridge(const struct fal_sched *s, const struct fal_worker *w)
{
	return w->lanes * (1 + floor(w->rtt / fal_task_s(s, w, w->lanes)));
}

/* When it finishes, and whom it could give tasks to, or take them from. */
static void
project(struct fal_sched *s, struct fal_worker *w, double now)
{
	/* Work of the first round goes before any other, however late that is. */
	static const double other_rounds = 1e9; /* seconds */
	const struct fal_load none = { 0 }, load = pressing(s, w);
	const uint32_t slot = fal_slot(s, w);
	const bool active = fal_worker_active(w);
	const bool first = w->head != NULL && w->head->round == fal_pressing(s);
	w->finish = fal_project(s, w, load, none, now);
	const double late_first = first ? -w->finish : other_rounds - w->finish;
	const bool moves = active && s->scheme->rebalance != NULL;
	const bool takes =
		moves && !w->trial && s->rounds > 0 && w->queued <= bridge(s, w);
	heap_put(&s->takers, slot, takes,
		 takes ? fal_project(s, w, fal_load_queued(w), fal_load_full(s, 1), now)
		       : 0);
	heap_put(&s->donors, slot, moves && load.tasks > w->lanes, late_first);
	heap_put(&s->runners, slot, active && !w->trial && fal_uncloned(w) != NULL,
		 late_first);
}

void
fal_refresh(struct fal_sched *s, struct fal_worker *w, double now)
{
	const uint32_t slot = fal_slot(s, w);
	const bool active = fal_worker_active(w);
	w->began = begin_tasks(s, w, now);
	if (w->queued == 0 && w->empty < 0)
		w->empty = now;
	project(s, w, now);
	const bool idle = active && !w->trial && w->queued == 0 && w->evals == 0;
	heap_put(&s->idle, slot, idle, idle ? fal_task_s(s, w, w->lanes) : 0);
	fal_refresh_due(s, w);
	heap_put(&s->suspects, slot,
		 w->suspected && !w->gone && !w->excluded && w->heard >= w->suspected_at,
		 w->proved ? 0 : w->again);
	if (s->scheme->refreshed != NULL)
		s->scheme->refreshed(s, w);
}

void
fal_touch_owner(struct fal_sched *s, const struct fal_round *r)
{
	const struct fal_worker *w = fal_team_worker(s, r->team);
	if (w != NULL && s->scheme->touched != NULL)
		s->scheme->touched(s, w);
}

void
fal_detach(struct fal_sched *s, struct fal_node *n)
{
	struct fal_worker *w = &s->worker[n->slot];
	struct fal_node **at = &n->round->held[n->task - n->round->ledger.first];
	*(n->prev != NULL ? &n->prev->next : &w->head) = n->next;
	*(n->next != NULL ? &n->next->prev : &w->tail) = n->prev;
	while (*at != n)
		at = &(*at)->other;
	*at = n->other;
	w->queued--;
	w->queued_samples -= fal_task_samples(s, n->round, n->task);
	n->next = s->spare_node;
	s->spare_node = n;
}

/* A node that was spare, or a new one. */
static struct fal_node *
take_node(struct fal_sched *s)
{
	struct fal_node *n = s->spare_node;
	if (n == NULL)
		return fal_xcalloc(1, sizeof(*n));
	s->spare_node = n->next;
	return n;
}

/* Is there nobody to move tasks to, and does each have a lane, so that whoever comes
 * would be given none to begin with, but what is at work to run again? */
static bool
is_alone(const struct fal_sched *s, const struct fal_worker *w, const struct fal_round *r)
{
	return s->active == 1 && fal_worker_active(w) && s->is.shared &&
	       r->ledger.tasks <= w->lanes && w->queued <= w->lanes;
}

/* Can nobody else get the task while `w` has it?  Neither does it move, nor is it run
 * twice, as what is on trial is, or in a retry. */
static bool
is_its_own(const struct fal_sched *s, const struct fal_worker *w,
	   const struct fal_round *r, uint32_t task)
{
	const struct fal_node *n = fal_holders(r, task);
	return s->preclaims && (!s->is.moves || is_alone(s, w, r)) && !r->delta &&
	       !w->trial && !w->group && n->other == NULL && !fal_retried(s, r, task);
}

/* The task is claimed as it is granted: each grant is a contribution of its own. */
static void
preclaim(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
	 struct fal_act act, uint32_t task)
{
	act.cid = (struct fal_cid){ w->id, FAL_PRECLAIMED | w->preclaimed };
	if (!join(s, &act, task)) {
		act.cid.seq = FAL_PRECLAIMED | ++w->preclaimed;
		act.first = task;
		act.count = 1;
		fal_emit(s, act);
		w->owed++;
	}
	fal_ledger_preclaim(&r->ledger, act.cid, task);
}

void
fal_tell_grant(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
	       uint32_t task, bool ahead)
{
	const uint32_t fills = fal_ledger_task(&r->ledger, task)->fills;
	struct fal_act act = { .kind = FAL_ACT_GRANT, .worker = w->id, .round = r->id };
	w->given++;
	fal_holds_give(&r->given, task - r->ledger.first, w->id);
	if (fills != FAL_NONE)
		act.fills = r->ledger.contrib[fills].id;
	if (ahead)
		preclaim(s, w, r, act, task);
	else
		fal_emit_task(s, act, task);
}

void
fal_give(struct fal_sched *s, struct fal_worker *w, struct fal_round *r, uint32_t task,
	 double now)
{
	struct fal_node *n = take_node(s), *after = w->tail;
	struct fal_node **held = &r->held[task - r->ledger.first];
	if (w->queued == 0) { /* begins to work now */
		w->base = now;
		/* What was pulled meanwhile takes it no time. */
		w->fresh = w->fresh && now <= w->given_at;
	}
	if (w->empty >= 0 && s->scheme->busy != NULL)
		s->scheme->busy(s, now - w->empty);
	w->empty = -1;
	while (after != NULL && after->round->id > r->id)
		after = after->prev;
	*n = (struct fal_node){ .prev = after,
				.next = after != NULL ? after->next : w->head,
				.other = *held,
				.round = r,
				.task = task,
				.slot = fal_slot(s, w),
				.began = -1,
				.again = fal_holds_has(&r->given, task - r->ledger.first,
						       w->id) };
	*held = n;
	*(after != NULL ? &after->next : &w->head) = n;
	*(n->next != NULL ? &n->next->prev : &w->tail) = n;
	w->queued++;
	w->queued_samples += fal_task_samples(s, r, task);
	fal_tell_grant(s, w, r, task, is_its_own(s, w, r, task));
}

static void
revoke(struct fal_sched *s, const struct fal_worker *w, const struct fal_round *r,
       uint32_t task)
{
	struct fal_act act = { .kind = FAL_ACT_REVOKE, .worker = w->id, .round = r->id };
	fal_emit_task(s, act, task);
}

struct fal_node *
fal_last_unstarted(const struct fal_sched *s, const struct fal_worker *w)
{
	struct fal_node *n = w->tail;
	if (w->head != NULL && w->head->round == fal_pressing(s))
		while (n->round != w->head->round)
			n = n->prev;
	return n != NULL && n->began < 0 && !is_claimed(n) ? n : NULL;
}

void
fal_move(struct fal_sched *s, struct fal_node *n, struct fal_worker *to, double now)
{
	struct fal_worker *from = &s->worker[n->slot];
	struct fal_round *r = n->round;
	const uint32_t task = n->task;
	fal_detach(s, n);
	from->relieved = now;
	if (fal_task_held(r, task)) { /* a clone that never began */
		fal_refresh(s, from, now);
		revoke(s, from, r, task);
		return;
	}
	from->work.out++;
	to->work.in++;
	revoke(s, from, r, task);
	fal_give(s, to, r, task, now);
	fal_ledger_log(&r->ledger, FAL_ENTRY_MOVE, from->id, to->id, task);
	fal_refresh(s, from, now);
	fal_refresh(s, to, now);
}

void
fal_clone_head(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
	       double now)
{
	struct fal_node *n = fal_uncloned(from);
	if (n == NULL)
		return;
	to->work.cloned++;
	fal_give(s, to, n->round, n->task, now);
	fal_ledger_log(&n->round->ledger, FAL_ENTRY_CLONE, to->id, 0, n->task);
	fal_refresh(s, from, now);
	fal_refresh(s, to, now);
}

void
fal_take_away(struct fal_sched *s, struct fal_node *n, double now)
{
	struct fal_worker *w = &s->worker[n->slot];
	if (n->began >= 0 && now > n->began) {
		w->work.cut.tasks++;
		w->work.cut.seconds += now - n->began;
	}
	const struct fal_round *r = n->round;
	const uint32_t task = n->task;
	fal_detach(s, n);
	w->relieved = now;
	if (!w->gone)
		revoke(s, w, r, task);
	fal_refresh(s, w, now);
}

void
fal_withdraw(struct fal_sched *s, struct fal_round *r, uint32_t task, double now)
{
	for (uint32_t i = 0; i < r->free_n; i++)
		if (r->free_task[i] == task) {
			r->free_task[i--] = r->free_task[--r->free_n];
			s->unplanned--;
		}
	for (struct fal_node *n; (n = fal_holders(r, task)) != NULL;)
		fal_take_away(s, n, now);
}

void
fal_drop_claimed(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		 const struct fal_worker *w)
{
	struct fal_node *n = fal_held_by(s, r, task, w);
	if (n == NULL)
		return;
	const bool again = n->again && !r->delta;
	fal_detach(s, n);
	if (again)
		revoke(s, w, r, task);
}

void
fal_drop_own(struct fal_sched *s, const struct fal_round *r, uint32_t task,
	     const struct fal_worker *w)
{
	struct fal_node *n = fal_held_by(s, r, task, w);
	if (n != NULL)
		fal_detach(s, n);
}

void
fal_fence(struct fal_sched *s, struct fal_round *r, uint32_t ci)
{
	struct fal_ledger *l = &r->ledger;
	const struct fal_contrib *c = &l->contrib[ci];
	const struct fal_worker *w = fal_find(s, c->id.worker);
	struct fal_act act = { .kind = FAL_ACT_FENCE,
			       .worker = c->id.worker,
			       .round = r->id,
			       .cid = c->id };
	if (c->fills != FAL_NONE)
		act.fills = l->contrib[c->fills].id;
	fal_emit(s, act);
	/* What of it is not done is called off with it. */
	for (uint32_t i = c->head; i != FAL_NONE && c->due > 0 && w != NULL;
	     i = l->claim[i].next)
		if (fal_ledger_task(l, l->claim[i].task)->due)
			fal_drop_own(s, r, l->claim[i].task, w);
	fal_ledger_fence(l, ci);
}

/* Fences every open contribution of `w` to round `r`. */
static void
fence_all(struct fal_sched *s, struct fal_round *r, struct fal_worker *w)
{
	const struct fal_ledger *l = &r->ledger;
	for (uint32_t c = fal_ledger_newest(l, w->id); c != FAL_NONE;
	     c = l->contrib[c].older) {
		if (l->contrib[c].state != FAL_CONTRIB_OPEN)
			continue;
		fal_fence(s, r, c);
		fal_touch_owner(s, r);
		w->owed--;
	}
}

void
fal_strip(struct fal_sched *s, struct fal_worker *w, bool tell, double now)
{
	while (w->head != NULL) {
		struct fal_round *r = w->head->round;
		const uint32_t task = w->head->task;
		fal_detach(s, w->head);
		if (tell)
			revoke(s, w, r, task);
		/* What was claimed ahead is free when all shards have fenced it. */
		if (fal_ledger_task(&r->ledger, task)->contrib == FAL_NONE &&
		    !fal_task_held(r, task))
			fal_free_task(s, r, task);
	}
	fal_eval_return(s, w);
	fal_verifies_end(s, w, NULL, now);
	for (struct fal_round *r = s->oldest; r != NULL && w->owed > 0; r = r->newer)
		fence_all(s, r, w);
}
