/* The task queues of workers, the heaps of workers, and actions for the caller. */
#include "sched/scheme.h"

#include "base/branch.h"
#include "base/mem.h"
#include "base/minmax.h"

#include <math.h>
#include <stdlib.h>

/* ---- actions -------------------------------------------------------------- */

void
fal_act_emit(struct fal_sched *s, struct fal_act act)
{
	FAL_XGROW(s->act, s->act_cap, s->acts + 1);
	s->act[s->acts++] = act;
}

/* The last action, if the caller has not fetched the action, and if the action differs
 * from `act` only in its tasks; or NULL. */
static struct fal_act *
act_last_like(struct fal_sched *s, const struct fal_act *act)
{
	struct fal_act *last = s->acts > s->act_next ? &s->act[s->acts - 1] : NULL;
	const bool same = last != NULL && last->kind == act->kind &&
			  last->worker == act->worker && last->round == act->round &&
			  last->version == act->version &&
			  fal_contrib_id_equal(last->fills, act->fills) &&
			  fal_contrib_id_equal(last->cid, act->cid);
	return same ? last : NULL;
}

/* Extends the range of the last action by the task; false: the task does not touch the
 * range. */
static bool
act_extend_last(struct fal_sched *s, const struct fal_act *act, uint32_t task)
{
	struct fal_act *last = act_last_like(s, act);
	return last != NULL && last->late == act->late &&
	       fal_range_join(&last->first, &last->count, task);
}

void
fal_act_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task)
{
	if (act_extend_last(s, &act, task))
		return;
	act.first = task;
	act.count = 1;
	fal_act_emit(s, act);
}

void
fal_worker_set_lanes(struct fal_sched *s, struct fal_worker *w, uint32_t lanes)
{
	w->lanes = lanes;
	w->lanes_held = 0;
	fal_act_emit(s, (struct fal_act){
				.kind = FAL_ACT_LANES, .worker = w->id, .count = lanes });
}

/* ---- look-ups in queues --------------------------------------------------- */

struct fal_node *
fal_node_find(const struct fal_sched *s, const struct fal_round *r, uint32_t task,
	      const struct fal_worker *w)
{
	struct fal_node *n = fal_task_newest_holder(r, task);
	while (n != NULL && n->slot != fal_worker_slot(s, w))
		n = n->other;
	return n;
}

static bool
node_is_preclaimed(const struct fal_node *n)
{
	return fal_ledger_task(&n->round->ledger, n->task)->due;
}

/* The version that the node's task awaits at `w`; 0: the task has begun, or its version
 * is published or a branch's. */
static uint64_t
node_awaited_version(const struct fal_sched *s, const struct fal_worker *w,
		     const struct fal_node *n)
{
	const struct fal_round_info *r = &n->round->info;
	/* The helper of a mixed round computes on whatever version the helper has. */
	const uint64_t on = r->mixed                   ? w->version
			    : n->task >= r->first_late ? r->late_version
						       : r->version;
	return n->began < 0 && fal_branch_of(on) == 0 && on > s->published ? on : 0;
}

/* With a fraction of slack: must the task wait at `w` for its version?  With
 * other slacks no idle worker holds a task that waits for its version. */
static bool
node_waits(const struct fal_sched *s, const struct fal_worker *w,
	   const struct fal_node *n)
{
	return n->round->info.first_late != FAL_NONE && node_awaited_version(s, w, n) > 0;
}

struct fal_load
fal_load_runnable(const struct fal_sched *s, const struct fal_worker *w)
{
	struct fal_load load = fal_load_queued(w);
	for (const struct fal_node *n = w->tail; n != NULL && node_waits(s, w, n);
	     n = n->prev) {
		load.tasks--;
		load.samples -= fal_task_samples(n->round, n->task);
	}
	return load;
}

/* A task that waits for its version has no clone: the clone would wait, too. */
struct fal_node *
fal_worker_uncloned(const struct fal_worker *w)
{
	struct fal_node *n = w->head;
	for (uint32_t i = 0; i < w->lanes && n != NULL; i++, n = n->next)
		if (fal_task_newest_holder(n->round, n->task) == n &&
		    !node_is_preclaimed(n) &&
		    (n->began >= 0 || n->round->info.first_late == FAL_NONE))
			return n;
	return NULL;
}

struct fal_node *
fal_worker_last_unstarted(const struct fal_sched *s, const struct fal_worker *w)
{
	struct fal_node *n = w->tail;
	if (w->head != NULL && w->head->round == fal_oldest_unfinished_round(s))
		while (n->round != w->head->round)
			n = n->prev;
	while (n != NULL && node_waits(s, w, n))
		n = n->prev;
	return n != NULL && n->began < 0 && !node_is_preclaimed(n) ? n : NULL;
}

/* ---- heaps ---------------------------------------------------------------- */

static void
heap_put(struct fal_heap *h, uint32_t slot, bool is_in, double key)
{
	if (is_in)
		fal_heap_set(h, slot, key);
	else if (fal_heap_has(h, slot))
		fal_heap_remove(h, slot);
}

/* Begins the first tasks of the queue, one for each lane, if their versions are
 * published; the other tasks await a version.  Returns the time at which the oldest
 * running task began. */
static double
begin_tasks(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_node *n = w->head;
	double oldest = INFINITY, awaited = INFINITY;
	for (uint32_t i = 0; i < w->lanes && n != NULL; i++, n = n->next) {
		const bool late = n->task >= n->round->info.first_late;
		const uint64_t on = node_awaited_version(s, w, n);
		if (on > 0) {
			awaited = fal_min(awaited, (double)on);
			continue;
		}
		if (n->began < 0) {
			/* The version of a late task is pulled after its grant. */
			const double pulled_at =
				late ? fal_max(n->pulled_at,
					       s->published_at + w->pull.least)
				     : n->pulled_at;
			n->began = fal_max(now, pulled_at);
			w->pullable_at = fal_min(w->pullable_at, now);
		}
		oldest = fal_min(oldest, n->began);
	}
	heap_put(&s->awaits, fal_worker_slot(s, w), awaited < INFINITY, awaited);
	return oldest;
}

/* The runnable load of `w` in the oldest unfinished round; if there is none, in the whole
 * queue. */
static struct fal_load
load_of_oldest_round(const struct fal_sched *s, const struct fal_worker *w)
{
	struct fal_load load = { 0 };
	const struct fal_round *oldest = fal_oldest_unfinished_round(s);
	if (s->rounds > 1)
		for (struct fal_node *i = w->head;
		     i != NULL && i->round == oldest && !node_waits(s, w, i);
		     i = i->next) {
			load.tasks++;
			load.samples += fal_task_samples(i->round, i->task);
		}
	return load.tasks > 0 ? load : fal_load_runnable(s, w);
}

void
fal_worker_refresh_deadline(struct fal_sched *s, struct fal_worker *w)
{
	/* A late worker is reviewed, even if only its messages are late.  The next review
	 * is when its task has run twice as long; a new projection of the finish does not
	 * change that time. */
	const double late =
		fal_max(w->running_since + fal_max(fal_task_late_s(s, w), 1e-3),
			w->reviewed_at + (w->reviewed_at - w->running_since));
	const double look = w->has_left ? INFINITY : fal_deadline_next_look(s, w, late);
	heap_put(&s->due, fal_worker_slot(s, w), look < INFINITY,
		 fal_max(look, w->reviewed_at + 1e-3));
}

void
fal_worker_refresh(struct fal_sched *s, struct fal_worker *w, double now)
{
	/* Work of the oldest round comes first, however late other work is. */
	static const double other_rounds_s = 1e9;
	const uint32_t slot = fal_worker_slot(s, w);
	w->running_since = begin_tasks(s, w, now);
	const struct fal_load none = { 0 }, load = load_of_oldest_round(s, w);
	const struct fal_load runnable = fal_load_runnable(s, w), full = { 1, s->full };
	if (runnable.tasks == 0 && w->empty_since < 0)
		w->empty_since = now;
	else if (runnable.tasks > 0)
		w->empty_since = -1;
	const bool is_active = fal_worker_active(w);
	const bool is_trusted = is_active && w->standing != FAL_PROBATION;
	const bool has_oldest =
		w->head != NULL && w->head->round == fal_oldest_unfinished_round(s);
	w->finish = fal_worker_project(s, w, load, none, now);
	const double late_first = has_oldest ? -w->finish : other_rounds_s - w->finish;
	const bool moves = is_active && s->scheme->rebalance != NULL;
	bool takes = moves && is_trusted && s->rounds > 0;
	if (takes) {
		/* Takes no more tasks than keep all lanes busy during a round trip. */
		const double bridge =
			w->lanes * (1 + floor(w->rtt / fal_task_s(s, w, w->lanes)));
		takes = fal_load_size(s, w, runnable) <= bridge;
	}
	heap_put(&s->takers, slot, takes,
		 takes ? fal_worker_project(s, w, runnable, full, now) : 0);
	heap_put(&s->donors, slot,
		 moves && load.tasks > w->lanes &&
			 fal_worker_last_unstarted(s, w) != NULL,
		 late_first);
	heap_put(&s->runners, slot, is_trusted && fal_worker_uncloned(w) != NULL,
		 late_first);
	const bool is_idle = is_trusted && runnable.tasks == 0 && w->evals == 0;
	heap_put(&s->idle, slot, is_idle, is_idle ? fal_task_s(s, w, w->lanes) : 0);
	fal_worker_refresh_deadline(s, w);
	heap_put(&s->suspects, slot,
		 fal_worker_is_suspect(w) && !w->has_left && !w->is_excluded &&
			 w->heard_at >= w->suspicion.since,
		 w->standing == FAL_SUSPECT_PROVEN ? 0 : w->suspicion.next_at);
	if (s->scheme->worker_changed != NULL)
		s->scheme->worker_changed(s, w);
}

void
fal_round_notify_owner(struct fal_sched *s, const struct fal_round *r)
{
	const struct fal_worker *w = fal_team_worker(s, r->team);
	if (w != NULL && s->scheme->round_changed != NULL)
		s->scheme->round_changed(s, w);
}

/* ---- grants --------------------------------------------------------------- */

/* Can no other worker get the task while `w` has the task?  Such a task never moves and
 * is never cloned.  Tasks of a probation, and retries, are not exclusive. */
static bool
task_is_exclusive(const struct fal_sched *s, const struct fal_worker *w,
		  const struct fal_round *r, uint32_t task, bool is_firm)
{
	/* With one worker and a lane for each task, a worker that joins could at first
	 * only run a running task again. */
	const bool is_alone = s->active == 1 && fal_worker_active(w) &&
			      s->traits.shared && r->ledger.tasks <= w->lanes &&
			      w->queued <= w->lanes;
	return s->conf.preclaims && (!s->traits.moves || is_firm || is_alone) &&
	       !r->info.delta && w->standing != FAL_PROBATION && !w->is_group &&
	       fal_task_newest_holder(r, task)->other == NULL &&
	       fal_retry_find(s, r->info.clock, task) == NULL;
}

/* Grants the task, and claims the task ahead for the worker.  All tasks that the worker
 * is granted at once are one contribution. */
static void
task_preclaim(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
	      struct fal_act act, uint32_t task)
{
	act.cid = (struct fal_contrib_id){ w->id, FAL_PRECLAIMED | w->preclaims };
	if (!act_extend_last(s, &act, task)) {
		struct fal_act *last = act_last_like(s, &act);
		if (last != NULL && last->run + 1 < FAL_SPANS) {
			last->more = true;
			act.run = last->run + 1;
		} else {
			act.cid.seq = FAL_PRECLAIMED | ++w->preclaims;
			w->open_contribs++;
		}
		act.first = task;
		act.count = 1;
		fal_act_emit(s, act);
	}
	fal_ledger_preclaim(&r->ledger, act.cid, task);
}

/* Puts the task into the queue of `w`, behind all tasks of its round and of older
 * rounds. */
static void
node_attach(struct fal_sched *s, struct fal_worker *w, struct fal_round *r, uint32_t task)
{
	const uint32_t i = task - r->ledger.first;
	struct fal_node *n = fal_xcalloc(1, sizeof(*n)), *after = w->tail;
	/* In a round with two versions, tasks that need the later version come last. */
	while (after != NULL &&
	       (after->round->id > r->id ||
		(after->round == r && after->task >= r->info.first_late &&
		 task < r->info.first_late)))
		after = after->prev;
	*n = (struct fal_node){
		.prev = after,
		.next = after != NULL ? after->next : w->head,
		.other = r->held[i],
		.round = r,
		.task = task,
		.slot = fal_worker_slot(s, w),
		.pulled_at = w->pulled_at,
		.began = -1,
		.is_regrant = fal_grant_history_has(&r->given, i, w->id),
	};
	r->held[i] = n;
	*(after != NULL ? &after->next : &w->head) = n;
	*(n->next != NULL ? &n->next->prev : &w->tail) = n;
	w->queued++;
	w->queued_samples += fal_task_samples(r, task);
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
	free(n);
}

void
fal_task_grant(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
	       uint32_t task, bool is_firm, double now)
{
	if (w->queued == 0) { /* `w` begins to work now */
		w->progress_at = now;
		/* If the worker has pulled the version meanwhile, the pull takes no time
		 * now. */
		w->pull_timer.is_running =
			w->pull_timer.is_running && now <= w->pull_timer.since;
	}
	if (w->empty_since >= 0 && s->scheme->idle_ended != NULL)
		s->scheme->idle_ended(s, now - w->empty_since);
	w->empty_since = -1;
	node_attach(s, w, r, task);
	const uint32_t fills = fal_ledger_task(&r->ledger, task)->fills;
	struct fal_act act = { .kind = FAL_ACT_GRANT,
			       .worker = w->id,
			       .round = r->id,
			       .late = task >= r->info.first_late };
	w->grants++;
	fal_grant_history_add(&r->given, task - r->ledger.first, w->id);
	if (fills != FAL_NONE)
		act.fills = r->ledger.contrib[fills].id;
	if (task_is_exclusive(s, w, r, task, is_firm))
		task_preclaim(s, w, r, act, task);
	else
		fal_act_emit_task(s, act, task);
}

void
fal_task_revoke(struct fal_sched *s, const struct fal_worker *w,
		const struct fal_round *r, uint32_t task)
{
	struct fal_act act = { .kind = FAL_ACT_REVOKE, .worker = w->id, .round = r->id };
	fal_act_emit_task(s, act, task);
}

void
fal_node_move(struct fal_sched *s, struct fal_node *n, struct fal_worker *to, double now)
{
	struct fal_worker *from = &s->worker[n->slot];
	struct fal_round *r = n->round;
	const uint32_t task = n->task;
	fal_node_detach(s, n);
	from->relieved.at = now;
	from->relieved.round = r->id;
	if (fal_task_newest_holder(r, task) != NULL) { /* a clone that never began */
		fal_worker_refresh(s, from, now);
		fal_task_revoke(s, from, r, task);
		return;
	}
	from->work.out++;
	to->work.in++;
	fal_task_revoke(s, from, r, task);
	fal_task_grant(s, to, r, task, false, now);
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
	fal_task_grant(s, to, n->round, n->task, false, now);
	fal_ledger_log(&n->round->ledger, FAL_ENTRY_CLONE, to->id, 0, n->task);
	fal_worker_refresh(s, from, now);
	fal_worker_refresh(s, to, now);
}

void
fal_node_revoke(struct fal_sched *s, struct fal_node *n, double now)
{
	struct fal_worker *w = &s->worker[n->slot];
	const struct fal_round *r = n->round;
	const uint32_t task = n->task;
	if (n->began >= 0 && now > n->began) {
		w->work.cut.tasks++;
		w->work.cut.seconds += now - n->began;
	}
	fal_node_detach(s, n);
	w->relieved.at = now;
	w->relieved.round = r->id;
	if (!w->has_left)
		fal_task_revoke(s, w, r, task);
	fal_worker_refresh(s, w, now);
}

void
fal_task_release(struct fal_sched *s, struct fal_round *r, uint32_t task)
{
	FAL_XGROW(r->free_task, r->free_cap, (size_t)r->free_n + 1);
	r->free_task[r->free_n++] = task;
	s->unplanned++;
	if (s->first_unplanned == NULL || r->id < s->first_unplanned->id)
		s->first_unplanned = r;
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
fal_task_drop(struct fal_sched *s, const struct fal_round *r, uint32_t task,
	      const struct fal_worker *w)
{
	struct fal_node *n = fal_node_find(s, r, task, w);
	if (n != NULL)
		fal_node_detach(s, n);
}

void
fal_task_drop_claimed(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		      const struct fal_worker *w)
{
	const struct fal_node *n = fal_node_find(s, r, task, w);
	const bool wants_revoke = n != NULL && n->is_regrant && !r->info.delta;
	fal_task_drop(s, r, task, w);
	if (wants_revoke)
		fal_task_revoke(s, w, r, task);
}
