/* Task queues of the workers, the heaps over them, the actions that follow, and who gets
 * a round's free tasks. */
#include "sched/scheme.h"

#include "base/branch.h"
#include "base/mem.h"
#include "base/minmax.h"
#include "base/oversubscription.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- queues --------------------------------------------------------------- */

void
fal_act_emit(struct fal_sched *s, struct fal_act act)
{
	FAL_XGROW(s->act, s->act_cap, s->acts + 1);
	s->act[s->acts++] = act;
}

/* The last action, if nobody has fetched it yet, and it says the same of other tasks. */
static struct fal_act *
last_like(struct fal_sched *s, const struct fal_act *act)
{
	struct fal_act *last = s->acts > s->act_next ? &s->act[s->acts - 1] : NULL;
	const bool same =
		last != NULL && last->kind == act->kind && last->worker == act->worker &&
		last->round == act->round && last->version == act->version &&
		fal_cid_eq(last->fills, act->fills) && fal_cid_eq(last->cid, act->cid);
	return same ? last : NULL;
}

/* Does the task continue the last action, which nobody has fetched yet? */
static bool
join(struct fal_sched *s, const struct fal_act *act, uint32_t task)
{
	struct fal_act *last = last_like(s, act);
	return last != NULL && last->late == act->late &&
	       fal_range_join(&last->first, &last->count, task);
}

void
fal_act_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task)
{
	if (join(s, &act, task))
		return;
	act.first = task;
	act.count = 1;
	fal_act_emit(s, act);
}

struct fal_node *
fal_task_newest_holder(const struct fal_round *r, uint32_t task)
{
	return r->held[task - r->ledger.first];
}

struct fal_node *
fal_node_find(const struct fal_sched *s, const struct fal_round *r, uint32_t task,
	    const struct fal_worker *w)
{
	struct fal_node *n = fal_task_newest_holder(r, task);
	while (n != NULL && n->slot != fal_worker_slot(s, w))
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
fal_worker_uncloned(const struct fal_worker *w)
{
	struct fal_node *n = w->head;
	for (uint32_t i = 0; i < w->lanes && n != NULL; i++, n = n->next)
		if (fal_task_newest_holder(n->round, n->task) == n && !is_claimed(n))
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
		/* The helper of a mixed round computes on the version that it has. */
		const bool late = n->task >= n->round->late;
		const uint64_t on =
			n->round->mixed ? w->version : fal_task_version(n->round, n->task);
		if (n->began < 0 && fal_branch_of(on) == 0 && on > s->published) {
			awaited = fal_min(awaited, (double)on);
			continue;
		}
		if (n->began < 0) {
			/* The version of a late task is pulled behind its grant. */
			const double ready =
				late ? fal_max(n->ready, s->published_at + w->pull.s)
				     : n->ready;
			n->began = fal_max(now, ready);
			w->pulls_from = fal_min(w->pulls_from, now);
		}
		oldest = fal_min(oldest, n->began);
	}
	heap_put(&s->awaits, fal_worker_slot(s, w), awaited < INFINITY, awaited);
	return oldest;
}

/* The load that `w` holds of the first round that is not done; if none, all that `w`
 * holds. */
static struct fal_load
pressing(const struct fal_sched *s, const struct fal_worker *w)
{
	struct fal_load load = { 0 };
	const struct fal_round *first = fal_oldest_unfinished_round(s);
	if (s->rounds > 1)
		for (struct fal_node *i = w->head; i != NULL && i->round == first;
		     i = i->next) {
			load.tasks++;
			load.samples += fal_task_samples(i->round, i->task);
		}
	return load.tasks > 0 ? load : fal_load_queued(w);
}

void
fal_worker_refresh_deadline(struct fal_sched *s, struct fal_worker *w)
{
	/* Looked at when it is late, be it of the way here; then what it is at may take
	 * twice as long as it took so far, however often it is projected anew meanwhile.
	 */
	const double turn =
		w->turn[FAL_TURN_TASK].most * fal_oversubscription(w->lanes, w->cores);
	double late = w->began + fal_max(fal_max(fal_task_late_s(s, w), turn), 1e-3);
	if (w->looked > w->base)
		late = fal_max(late, w->looked + (w->looked - w->base));
	const double look = w->gone ? INFINITY : fal_deadline_next_look(s, w, late);
	heap_put(&s->due, fal_worker_slot(s, w), look < INFINITY,
		 fal_max(look, w->looked + 1e-3));
}

/* Has it no more queued than bridges a round trip without an idle lane? */
static bool
bridges(const struct fal_sched *s, const struct fal_worker *w)
{
	const double full = w->lanes * (1 + floor(w->rtt / fal_task_s(s, w, w->lanes)));
	return fal_load_size(s, w, fal_load_queued(w)) <= full;
}

/* When it finishes, and whom it could give tasks to, or take them from. */
static void
project(struct fal_sched *s, struct fal_worker *w, double now)
{
	/* Work of the first round goes before any other, however late that is. */
	static const double other_rounds = 1e9; /* seconds */
	const struct fal_load none = { 0 }, load = pressing(s, w);
	const uint32_t slot = fal_worker_slot(s, w);
	const bool active = fal_worker_active(w);
	const bool first = w->head != NULL && w->head->round == fal_oldest_unfinished_round(s);
	w->finish = fal_worker_project(s, w, load, none, now);
	const double late_first = first ? -w->finish : other_rounds - w->finish;
	const bool moves = active && s->scheme->rebalance != NULL;
	const bool takes = moves && !w->trial && s->rounds > 0 && bridges(s, w);
	heap_put(&s->takers, slot, takes,
		 takes ? fal_worker_project(s, w, fal_load_queued(w), fal_load_full(s, 1), now)
		       : 0);
	heap_put(&s->donors, slot,
		 moves && load.tasks > w->lanes && fal_worker_last_unstarted(s, w) != NULL,
		 late_first);
	heap_put(&s->runners, slot, active && !w->trial && fal_worker_uncloned(w) != NULL,
		 late_first);
}

void
fal_worker_refresh(struct fal_sched *s, struct fal_worker *w, double now)
{
	const uint32_t slot = fal_worker_slot(s, w);
	const bool active = fal_worker_active(w);
	w->began = begin_tasks(s, w, now);
	if (w->queued == 0 && w->empty < 0)
		w->empty = now;
	project(s, w, now);
	const bool idle = active && !w->trial && w->queued == 0 && w->evals == 0;
	heap_put(&s->idle, slot, idle, idle ? fal_task_s(s, w, w->lanes) : 0);
	fal_worker_refresh_deadline(s, w);
	heap_put(&s->suspects, slot,
		 w->suspected && !w->gone && !w->excluded && w->heard >= w->suspected_at,
		 w->proved ? 0 : w->again);
	if (s->scheme->refreshed != NULL)
		s->scheme->refreshed(s, w);
}

void
fal_round_notify_owner(struct fal_sched *s, const struct fal_round *r)
{
	const struct fal_worker *w = fal_team_worker(s, r->team);
	if (w != NULL && s->scheme->touched != NULL)
		s->scheme->touched(s, w);
}

void
fal_node_detach(struct fal_sched *s, struct fal_node *n)
{
	struct fal_worker *w = &s->worker[n->slot];
	struct fal_node **at = &n->round->held[n->task - n->round->ledger.first];
	*(n->prev != NULL ? &n->prev->next : &w->head) = n->next;
	*(n->next != NULL ? &n->next->prev : &w->tail) = n->prev;
	while (*at != n)
		at = &(*at)->other;
	*at = n->other;
	w->queued--;
	w->queued_samples -= fal_task_samples(n->round, n->task);
	n->next = s->spare_node;
	s->spare_node = n;
}

/* Is there nobody to move tasks to, and does each have a lane, so that whoever comes
 * would be given none to begin with, but what is at work to run again? */
static bool
is_alone(const struct fal_sched *s, const struct fal_worker *w, const struct fal_round *r)
{
	return s->active == 1 && fal_worker_active(w) && s->is.shared &&
	       r->ledger.tasks <= w->lanes && w->queued <= w->lanes;
}

/* Does `w` keep its tasks, although tasks move?  A claim costs the clock a round trip;
 * tasks that are claimed ahead cost the clock the help of others.  Tasks move where a
 * round trip is nothing beside a clock, and so does the task that tries a worker on
 * standby. */
static bool
is_firm(const struct fal_sched *s, const struct fal_worker *w)
{
	static const double least = 0.01; /* part of a clock */
	return s->is.shared && !w->retried && w->helps > 1 && w->help_s < w->rtt &&
	       w->rtt > least * s->clock_s;
}

/* Can nobody else get the task while `w` has it?  Neither does it move, nor is it run
 * twice, as what is on trial is, or in a retry.  firm: it is granted for the first time,
 * to a worker whose tasks stay. */
static bool
is_its_own(const struct fal_sched *s, const struct fal_worker *w,
	   const struct fal_round *r, uint32_t task, bool firm)
{
	const struct fal_node *n = fal_task_newest_holder(r, task);
	return s->conf.preclaims && (!s->is.moves || firm || is_alone(s, w, r)) &&
	       !r->delta && !w->trial && !w->group && n->other == NULL &&
	       !fal_retried(s, r, task);
}

/* The task is claimed as it is granted: the runs of tasks that a worker is granted at
 * once are one contribution. */
static void
preclaim(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
	 struct fal_act act, uint32_t task)
{
	act.cid = (struct fal_cid){ w->id, FAL_PRECLAIMED | w->preclaimed };
	if (!join(s, &act, task)) {
		struct fal_act *last = last_like(s, &act);
		if (last != NULL && last->run + 1 < FAL_SPANS) {
			last->more = true;
			act.run = last->run + 1;
		} else {
			act.cid.seq = FAL_PRECLAIMED | ++w->preclaimed;
			w->owed++;
		}
		act.first = task;
		act.count = 1;
		fal_act_emit(s, act);
	}
	fal_ledger_preclaim(&r->ledger, act.cid, task);
}

/* Puts a task into the queue of `w`, which does not hold it, behind the tasks of its
 * round or older, and tells `w`.  A task that nobody else can get is claimed ahead for
 * `w`. */
static void
give(struct fal_sched *s, struct fal_worker *w, struct fal_round *r, uint32_t task,
     bool firm, double now)
{
	struct fal_node *n = s->spare_node, *after = w->tail;
	struct fal_node **held = &r->held[task - r->ledger.first];
	if (n != NULL)
		s->spare_node = n->next;
	else
		n = fal_xcalloc(1, sizeof(*n));
	if (w->queued == 0) { /* begins to work now */
		w->base = now;
		/* A version that was pulled meanwhile takes the worker no time. */
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
				.slot = fal_worker_slot(s, w),
				.ready = w->ready,
				.began = -1,
				.again = fal_grant_history_has(&r->given, task - r->ledger.first,
						       w->id) };
	*held = n;
	*(after != NULL ? &after->next : &w->head) = n;
	*(n->next != NULL ? &n->next->prev : &w->tail) = n;
	w->queued++;
	w->queued_samples += fal_task_samples(r, task);
	const uint32_t fills = fal_ledger_task(&r->ledger, task)->fills;
	struct fal_act act = { .kind = FAL_ACT_GRANT,
			       .worker = w->id,
			       .round = r->id,
			       .late = task >= r->late };
	w->given++;
	fal_grant_history_add(&r->given, task - r->ledger.first, w->id);
	if (fills != FAL_NONE)
		act.fills = r->ledger.contrib[fills].id;
	if (is_its_own(s, w, r, task, firm))
		preclaim(s, w, r, act, task);
	else
		fal_act_emit_task(s, act, task);
}

static void
revoke(struct fal_sched *s, const struct fal_worker *w, const struct fal_round *r,
       uint32_t task)
{
	struct fal_act act = { .kind = FAL_ACT_REVOKE, .worker = w->id, .round = r->id };
	fal_act_emit_task(s, act, task);
}

struct fal_node *
fal_worker_last_unstarted(const struct fal_sched *s, const struct fal_worker *w)
{
	struct fal_node *n = w->tail;
	if (w->head != NULL && w->head->round == fal_oldest_unfinished_round(s))
		while (n->round != w->head->round)
			n = n->prev;
	return n != NULL && n->began < 0 && !is_claimed(n) ? n : NULL;
}

void
fal_node_move(struct fal_sched *s, struct fal_node *n, struct fal_worker *to, double now)
{
	struct fal_worker *from = &s->worker[n->slot];
	struct fal_round *r = n->round;
	const uint32_t task = n->task;
	fal_node_detach(s, n);
	from->relieved = now;
	from->relieved_of = r->id;
	if (fal_task_newest_holder(r, task) != NULL) { /* a clone that never began */
		fal_worker_refresh(s, from, now);
		revoke(s, from, r, task);
		return;
	}
	from->work.out++;
	to->work.in++;
	revoke(s, from, r, task);
	give(s, to, r, task, false, now);
	fal_ledger_log(&r->ledger, FAL_ENTRY_MOVE, from->id, to->id, task);
	fal_worker_refresh(s, from, now);
	fal_worker_refresh(s, to, now);
}

void
fal_worker_clone_task(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
	       double now)
{
	struct fal_node *n = fal_worker_uncloned(from);
	if (n == NULL)
		return;
	to->work.cloned++;
	give(s, to, n->round, n->task, false, now);
	fal_ledger_log(&n->round->ledger, FAL_ENTRY_CLONE, to->id, 0, n->task);
	fal_worker_refresh(s, from, now);
	fal_worker_refresh(s, to, now);
}

void
fal_node_revoke(struct fal_sched *s, struct fal_node *n, double now)
{
	struct fal_worker *w = &s->worker[n->slot];
	if (n->began >= 0 && now > n->began) {
		w->work.cut.tasks++;
		w->work.cut.seconds += now - n->began;
	}
	const struct fal_round *r = n->round;
	const uint32_t task = n->task;
	fal_node_detach(s, n);
	w->relieved = now;
	w->relieved_of = r->id;
	if (!w->gone)
		revoke(s, w, r, task);
	fal_worker_refresh(s, w, now);
}

void
fal_task_withdraw(struct fal_sched *s, struct fal_round *r, uint32_t task, double now)
{
	for (uint32_t i = 0; i < r->free_n; i++)
		if (r->free_task[i] == task) {
			r->free_task[i--] = r->free_task[--r->free_n];
			s->unplanned--;
		}
	for (struct fal_node *n; (n = fal_task_newest_holder(r, task)) != NULL;)
		fal_node_revoke(s, n, now);
}

void
fal_task_drop_claimed(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		 const struct fal_worker *w)
{
	struct fal_node *n = fal_node_find(s, r, task, w);
	if (n == NULL)
		return;
	const bool again = n->again && !r->delta;
	fal_node_detach(s, n);
	if (again)
		revoke(s, w, r, task);
}

void
fal_task_drop(struct fal_sched *s, const struct fal_round *r, uint32_t task,
	     const struct fal_worker *w)
{
	struct fal_node *n = fal_node_find(s, r, task, w);
	if (n != NULL)
		fal_node_detach(s, n);
}

void
fal_contrib_fence(struct fal_sched *s, struct fal_round *r, uint32_t ci)
{
	struct fal_ledger *l = &r->ledger;
	const struct fal_contrib *c = &l->contrib[ci];
	const struct fal_worker *w = fal_worker_find(s, c->id.worker);
	struct fal_act act = { .kind = FAL_ACT_FENCE,
			       .worker = c->id.worker,
			       .round = r->id,
			       .cid = c->id };
	if (c->fills != FAL_NONE)
		act.fills = l->contrib[c->fills].id;
	fal_act_emit(s, act);
	/* Tasks of the contribution that are not done are called off with it. */
	for (uint32_t i = c->head; i != FAL_NONE && c->due > 0 && w != NULL;
	     i = l->claim[i].next)
		if (fal_ledger_task(l, l->claim[i].task)->due)
			fal_task_drop(s, r, l->claim[i].task, w);
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
		fal_contrib_fence(s, r, c);
		fal_round_notify_owner(s, r);
		w->owed--;
	}
}

void
fal_worker_strip(struct fal_sched *s, struct fal_worker *w, bool tell, double now)
{
	while (w->head != NULL) {
		struct fal_round *r = w->head->round;
		const uint32_t task = w->head->task;
		fal_node_detach(s, w->head);
		if (tell)
			revoke(s, w, r, task);
		/* A task that was claimed ahead is free when all shards have fenced its
		 * contribution. */
		if (fal_ledger_task(&r->ledger, task)->contrib == FAL_NONE &&
		    fal_task_newest_holder(r, task) == NULL)
			fal_task_release(s, r, task);
	}
	fal_eval_return(s, w);
	fal_verify_cancel(s, w, NULL, now);
	for (struct fal_round *r = s->oldest; r != NULL && w->owed > 0; r = r->newer)
		fence_all(s, r, w);
}

/* ---- plans ---------------------------------------------------------------- */

/* The plan of a round's free tasks: one at a time to the worker that they cost least,
 * then in ranges. */

static const uint32_t most_retries = 4; /* that double what a worker stands by */

bool
fal_worker_may_compute(const struct fal_sched *s, const struct fal_worker *w,
	      const struct fal_round *r)
{
	return fal_worker_active(w) && w->team == r->team &&
	       (!s->is.groups || w->version == r->version);
}

static void
hand_out(struct fal_sched *s, struct fal_round *r, struct fal_worker *w, uint32_t task,
	 double now)
{
	bool *granted = &r->granted[task - r->ledger.first];
	enum fal_entry_kind kind = *granted ? FAL_ENTRY_REGRANT : FAL_ENTRY_GRANT;
	if (kind == FAL_ENTRY_GRANT)
		w->work.share++;
	w->tried = true;
	*granted = true;
	fal_ledger_log(&r->ledger, kind, w->id, 0, task);
	give(s, w, r, task, kind == FAL_ENTRY_GRANT && is_firm(s, w), now);
}

/* How far `w` is beyond its quota of the plan: who lacks most is next, so that all get
 * the whole part of theirs and the largest rests one more (Hamilton's method); before
 * that each gets one. */
static double
beyond_quota(const struct fal_sched *s, const struct fal_worker *w)
{
	const double first = w->planned.tasks == 0 ? UINT32_MAX : 0;
	return (double)w->planned.samples - s->quota * fal_worker_rate(s, w, w->lanes) - first;
}

/* Sets the cost of planning a task of so many samples more for a worker. */
static void
set_price(struct fal_sched *s, uint32_t slot, uint32_t samples, double now)
{
	const struct fal_worker *w = &s->worker[slot];
	const struct fal_load more = { w->planned.tasks + 1,
				       w->planned.samples + samples };
	const struct fal_load none = { 0 };
	const double t = fal_task_s(s, w, w->lanes);
	double price = (double)(w->work.samples + w->queued_samples + more.samples) +
		       t / (1 + t);
	if (s->scheme->cost != NULL)
		price = s->scheme->cost(s, w, s->plans_late ? none : fal_load_queued(w),
					more, now);
	else if (s->is.by_speed)
		price = beyond_quota(s, w);
	fal_heap_set(&s->planner, slot, price);
}

static void
set_prices(struct fal_sched *s, uint32_t samples, double now)
{
	for (uint32_t i = 0; i < s->workers; i++)
		if (fal_heap_has(&s->planner, i))
			set_price(s, i, samples, now);
}

static void
plan_tasks(struct fal_worker *w, uint32_t span, const struct fal_load *more)
{
	w->plan[span] += more->tasks;
	w->planned.tasks += more->tasks;
	w->planned.samples += more->samples;
}

/* Workers whose share is laid down get it: `weight` times an equal one.  The rest is for
 * the others, or, where there are none, for all. */
static uint32_t
count_out_fixed(struct fal_sched *s, const struct fal_round *r, uint32_t span,
		const struct fal_load *all)
{
	uint32_t left = all->tasks, workers = 0, others = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		workers += fal_worker_may_compute(s, w, r);
		others += fal_heap_has(&s->planner, i) && w->weight < 0;
	}
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->weight < 0 || !fal_worker_may_compute(s, w, r))
			continue;
		const double share = round(w->weight * all->tasks / workers);
		const uint32_t n = (uint32_t)fmin(share, left);
		const struct fal_load of = { n, n * all->samples / all->tasks };
		plan_tasks(w, span, &of);
		left -= n;
		if (others > 0)
			fal_heap_remove(&s->planner, i);
	}
	return left;
}

/* Whoever stands by is tried with a task of `most`, after 1, 2, 4 … 16 clocks: what is
 * known of it is of that time, or was chance. */
static void
retry(struct fal_sched *s, const struct fal_round *r, struct fal_worker *most,
      uint32_t span, double now)
{
	struct fal_worker *of = NULL;
	uint32_t longest = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		const uint32_t rest = 1U << w->retries;
		if (!fal_worker_may_compute(s, w, r) || w->trial || w->planned.tasks > 0 ||
		    w->weight >= 0 || w->standby < rest)
			continue;
		if (of != NULL && w->standby - rest <= longest)
			continue;
		of = w;
		longest = w->standby - rest;
	}
	if (of == NULL)
		return;
	of->plan[span] = 1;
	most->plan[span]--;
	of->standby = 0;
	of->retries += of->retries < most_retries;
	of->retried = true;
	of->pull.n = of->push.n = 0;
	if (of->fresh)
		of->ready = now;
}

/* Sets the quota of the workers in the heap, of what they have of the plan and so many
 * samples more. */
static void
set_quota(struct fal_sched *s, uint64_t samples)
{
	double rates = 0;
	for (uint32_t i = 0; i < s->workers; i++)
		if (fal_heap_has(&s->planner, i)) {
			samples += s->worker[i].planned.samples;
			rates += fal_worker_rate(s, &s->worker[i], s->worker[i].lanes);
		}
	s->quota = (double)samples / rates;
}

/* Plans the free tasks of a span, from `at` to `end`, which are of the same samples, or
 * the last one of fewer. */
static void
plan_span(struct fal_sched *s, const struct fal_round *r, uint32_t span, uint32_t at,
	  uint32_t end, struct fal_worker **last, double now)
{
	struct fal_load all = { end - at, 0 }, one = { 1, 0 };
	if (at == end)
		return;
	for (uint32_t i = at; i < end; i++)
		all.samples += fal_task_samples(r, r->free_task[i]);
	if (s->fixed_shares)
		at = end - count_out_fixed(s, r, span, &all);
	if (s->is.by_speed)
		set_quota(s, (end - at) * all.samples / all.tasks);
	for (; at < end; at++) {
		const uint32_t samples = fal_task_samples(r, r->free_task[at]);
		if (samples != one.samples)
			set_prices(s, samples, now);
		one.samples = samples;
		const uint32_t slot = fal_heap_top(&s->planner);
		struct fal_worker *w = &s->worker[slot];
		plan_tasks(w, span, &one);
		w->retried = false;
		*last = w;
		set_price(s, slot, samples, now);
	}
}

/* The worker that is planned to do most tasks of the span; NULL: none is to do any. */
static struct fal_worker *
most_planned(const struct fal_sched *s, uint32_t span)
{
	struct fal_worker *most = NULL;
	for (uint32_t i = 0; i < s->workers; i++)
		if (s->worker[i].plan[span] > (most != NULL ? most->plan[span] : 0))
			most = &s->worker[i];
	return most;
}

/* The free tasks of a plan, in order: at[k] is the first of span k, and behind that of
 * the span before. */
struct spans {
	uint32_t at[FAL_SPANS + 1];
};

/* Shares the free tasks of two spans, large ones and small ones, that begin together.
 * `last`: whom the last of them is for.  False: nobody is there. */
static bool
count_out(struct fal_sched *s, const struct fal_round *r, const struct spans *of,
	  uint32_t large, struct fal_worker **last, double now)
{
	const uint32_t small = large + 1;
	const uint32_t larges = of->at[small] - of->at[large];
	const uint32_t smalls = of->at[small + 1] - of->at[small];
	struct fal_worker *one = fal_probation_unserved(s);
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		w->planned = (struct fal_load){ 0 };
		if (fal_worker_may_compute(s, w, r) && !w->trial)
			fal_heap_set(&s->planner, i, 0);
		else
			fal_heap_remove(&s->planner, i);
	}
	if (one != NULL && !fal_worker_may_compute(s, one, r))
		one = NULL;
	for (uint32_t i = 0; i < s->workers && s->planner.n == 0; i++)
		if (fal_worker_may_compute(s, &s->worker[i], r)) /* nobody but who is on trial */
			fal_heap_set(&s->planner, i, 0);
	if (s->planner.n == 0)
		return false;
	plan_span(s, r, large, of->at[large], of->at[small], last, now);
	plan_span(s, r, small, of->at[small], of->at[small + 1], last, now);
	/* A worker that is tried may be late, and gets a small task, unless the clock has
	 * a single one. */
	const uint32_t span = smalls > (larges > 0) ? small : large;
	struct fal_worker *most = most_planned(s, span);
	if (most != NULL && most->plan[span] > 1)
		retry(s, r, most, span, now);
	if (one != NULL && one->planned.tasks == 0 && most != NULL) {
		one->plan[span] = 1;
		most->plan[span]--;
	}
	return true;
}

/* Tasks that are to be retried go to whoever is drawn for that. */
static void
hand_out_retries(struct fal_sched *s, struct fal_round *r, double now)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < r->free_n; i++) {
		uint32_t task = r->free_task[i];
		struct fal_worker *w = s->retries > 0 ? fal_retry_draw(s, r, task) : NULL;
		if (w == NULL) {
			r->free_task[kept++] = task;
			continue;
		}
		s->unplanned--;
		hand_out(s, r, w, task, now);
		fal_worker_refresh(s, w, now);
	}
	r->free_n = kept;
}

static int
by_number(const void *a, const void *b)
{
	uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
	return x < y ? -1 : x > y;
}

/* Hands `w` its plan, of each span from the free task `next` on. */
static void
hand_out_plan(struct fal_sched *s, struct fal_round *r, struct fal_worker *w,
	      struct spans *next, double now)
{
	bool any = false;
	for (uint32_t k = 0; k < FAL_SPANS; k++)
		for (; w->plan[k] > 0; w->plan[k]--, s->unplanned--) {
			any = true;
			hand_out(s, r, w, r->free_task[next->at[k]++], now);
		}
	if (any)
		fal_worker_refresh(s, w, now);
}

/* The spans of the free tasks, which are in order.  Early tasks and late ones are apart
 * if both are free; else the first two spans have all. */
static struct spans
spans_of(const struct fal_sched *s, const struct fal_round *r)
{
	const uint32_t small = fal_grid_large(&s->grid, r->clock);
	struct spans of = { .at = { 0 } };
	uint32_t early = 0;
	while (early < r->free_n && r->free_task[early] < r->late)
		early++;
	const uint32_t border = early > 0 ? early : r->free_n;
	const uint32_t end[] = { 0, border, r->free_n };
	for (uint32_t k = 0; k < 2; k++) {
		uint32_t at = end[k];
		of.at[2 * k] = at;
		while (at < end[k + 1] && r->free_task[at] < small)
			at++;
		of.at[2 * k + 1] = at;
	}
	of.at[FAL_SPANS] = r->free_n;
	return of;
}

/* Plans the free tasks for all workers of the round; `last`: whom the last of them is
 * for. Late tasks begin together, when their version is there, whatever workers have to
 * do until then: so they are shared as if nobody held anything, and early tasks by what
 * workers hold.  False: nobody is there. */
static bool
count_out_all(struct fal_sched *s, const struct fal_round *r, const struct spans *of,
	      struct fal_worker **last, double now)
{
	struct fal_worker *last_early = NULL;
	const uint32_t late = FAL_SPANS / 2;
	for (uint32_t i = 0; i < s->workers; i++)
		memset(s->worker[i].plan, 0, sizeof(s->worker[i].plan));
	if (of->at[late] == r->free_n)
		return count_out(s, r, of, 0, last, now);
	s->plans_late = true;
	const bool planned = count_out(s, r, of, late, last, now);
	s->plans_late = false;
	return planned && count_out(s, r, of, 0, &last_early, now);
}

void
fal_round_plan(struct fal_sched *s, struct fal_round *r, double now)
{
	struct fal_worker *last = NULL;
	bool planned = true;
	if (s->active > 0)
		hand_out_retries(s, r, now);
	if (r->free_n == 0 || s->active == 0)
		return;
	qsort(r->free_task, r->free_n, sizeof(*r->free_task), by_number);
	const struct spans of = spans_of(s, r);
	struct spans next = of;
	struct fal_worker *one = fal_team_worker(s, r->team);
	if (one != NULL && fal_worker_may_compute(s, one, r)) {
		for (uint32_t k = 0; k < FAL_SPANS; k++)
			one->plan[k] = of.at[k + 1] - of.at[k];
		hand_out_plan(s, r, one, &next, now);
	} else if (one == NULL && (planned = count_out_all(s, r, &of, &last, now))) {
		for (uint32_t i = 0; i < s->workers; i++)
			if (&s->worker[i] != last)
				hand_out_plan(s, r, &s->worker[i], &next, now);
		if (last != NULL)
			hand_out_plan(s, r, last, &next, now);
	}
	/* All are handed out, or none. */
	r->free_n = memcmp(&next, &of, sizeof(of)) == 0 ? r->free_n : 0;
	const struct fal_act end = { .fate = FAL_FATE_ABANDON,
				     .why = "nobody of its group has its version" };
	if (!planned && s->is.groups)
		fal_round_end(s, r, end, now);
}
