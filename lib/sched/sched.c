/* Events in, actions out. */
#include "sched/state.h"

#include "base/mem.h"
#include "base/sorted.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static const struct fal_scheme *const schemes[] = { &fal_scheme_bsp, &fal_scheme_epsp };

static const struct fal_scheme *
find_scheme(const char *name)
{
	for (size_t i = 0; i < sizeof(schemes) / sizeof(schemes[0]); i++)
		if (strcmp(schemes[i]->name, name) == 0)
			return schemes[i];
	return NULL;
}

bool
fal_scheme_known(const char *name)
{
	return find_scheme(name) != NULL;
}

int
fal_sched_new(const struct fal_sched_conf *conf, struct fal_sched **out)
{
	const struct fal_scheme *scheme = find_scheme(conf->scheme);
	if (scheme == NULL)
		return FAL_EINVAL;
	struct fal_sched *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return FAL_ENOMEM;
	s->scheme = scheme;
	s->lanes_start = conf->lanes_start;
	s->eval_cost = conf->eval_cost;
	*out = s;
	return FAL_OK;
}

void
fal_sched_free(struct fal_sched *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->workers; i++)
		free(s->worker[i].pace);
	free(s->worker);
	fal_ledger_free(&s->ledger);
	free(s->node);
	free(s->nonfinite);
	free(s->granted);
	free(s->free_task);
	fal_heap_free(&s->takers);
	fal_heap_free(&s->donors);
	fal_heap_free(&s->runners);
	fal_heap_free(&s->idle);
	fal_heap_free(&s->due);
	fal_heap_free(&s->planner);
	free(s->eval_holder);
	free(s->eval_free);
	free(s->act);
	free(s);
}

/* Slots stand in order of their ids: binary search. */
struct fal_worker *
fal_find(const struct fal_sched *s, uint32_t id)
{
	size_t at = fal_sorted_place(s->worker, s->workers, sizeof(*s->worker), id);
	if (at == s->workers || s->worker[at].id != id || s->worker[at].gone)
		return NULL;
	return &s->worker[at];
}

/* What follows every event: free tasks find holders, work is evened out. */
static int
settle(struct fal_sched *s, double now)
{
	int err = s->open ? fal_plan(s, now) : FAL_OK;
	if (err == FAL_OK && s->open && s->scheme->rebalance != NULL)
		err = s->scheme->rebalance(s, now);
	return err == FAL_OK ? fal_eval_feed(s, now) : err;
}

int
fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j)
{
	if (j->lanes_min < 1 || j->lanes_max < j->lanes_min || j->cores < 1 ||
	    j->lanes_max > FAL_LANES_MAX || j->id <= s->last_id || j->id == FAL_EVALUATED)
		return FAL_EINVAL;
	size_t n = (size_t)s->workers + 1;
	if (FAL_GROW(s->worker, s->worker_cap, n) < 0 ||
	    fal_heap_reserve(&s->takers, n) < 0 || fal_heap_reserve(&s->donors, n) < 0 ||
	    fal_heap_reserve(&s->runners, n) < 0 || fal_heap_reserve(&s->idle, n) < 0 ||
	    fal_heap_reserve(&s->due, n) < 0 || fal_heap_reserve(&s->planner, n) < 0)
		return FAL_ENOMEM;
	struct fal_pace *pace = fal_calloc((size_t)j->lanes_max + 1, sizeof(*pace));
	if (pace == NULL)
		return FAL_ENOMEM;
	uint32_t lanes = s->lanes_start > 0 ? s->lanes_start : j->lanes_max;
	lanes = lanes < j->lanes_min ? j->lanes_min : lanes;
	lanes = lanes > j->lanes_max ? j->lanes_max : lanes;
	struct fal_worker *w = &s->worker[s->workers++];
	*w = (struct fal_worker){
		.id = j->id,
		.lanes = lanes,
		.lanes_min = j->lanes_min,
		.lanes_max = j->lanes_max,
		.cores = j->cores,
		.pace = pace,
		.probe_s = j->task_s,
		.rtt = j->rtt,
		.head = FAL_NONE,
		.tail = FAL_NONE,
		.newest = FAL_NONE,
		.base = now,
		.heard = now,
		.pinged = -1,
	};
	s->last_id = w->id;
	s->active++;
	struct fal_act act = { .kind = FAL_ACT_LANES, .worker = w->id, .count = lanes };
	if (fal_emit(s, act) == NULL)
		return FAL_ENOMEM;
	fal_refresh(s, w, now);
	return settle(s, now);
}

int
fal_sched_leave(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return FAL_OK;
	if (fal_worker_active(w))
		s->active--;
	w->gone = true;
	if (fal_strip(s, w, false) < 0)
		return FAL_ENOMEM;
	fal_refresh(s, w, now);
	free(w->pace);
	w->pace = NULL;
	return settle(s, now);
}

int
fal_sched_heard(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return FAL_OK;
	w->heard = now;
	if (!w->suspected)
		return FAL_OK;
	w->suspected = false;
	w->base = now;
	s->active++;
	fal_refresh(s, w, now);
	return settle(s, now);
}

/* Everything that one clock leaves behind in a worker. */
static void
reset_worker(struct fal_worker *w, double now)
{
	w->ready = now + w->pull_s;
	w->base = now;
	if (w->work.share > 0)
		w->standby = 0;
	else
		w->standby++;
	w->head = w->tail = FAL_NONE;
	w->queued = 0;
	w->given = w->claims = 0;
	w->no_evals = false;
	w->newest = FAL_NONE;
	w->claimed = -1;
	w->work = (struct fal_work){ 0 };
}

/* The slots of workers that left are free for others.  Between clocks, when only the
 * heaps know slots; the caller fills them again. */
static void
drop_gone(struct fal_sched *s)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		if (s->worker[i].gone)
			continue;
		if (kept < i)
			s->worker[kept] = s->worker[i];
		kept++;
	}
	s->workers = kept;
	fal_heap_clear(&s->takers);
	fal_heap_clear(&s->donors);
	fal_heap_clear(&s->runners);
	fal_heap_clear(&s->idle);
	fal_heap_clear(&s->due);
	fal_heap_clear(&s->planner);
}

int
fal_sched_open(struct fal_sched *s, double now, uint64_t clock, uint32_t tasks)
{
	assert(!s->open && tasks > 0 && tasks <= UINT32_MAX / 4);
	if (fal_ledger_open(&s->ledger, clock, tasks) < 0 ||
	    FAL_GROW(s->node, s->node_cap, (size_t)tasks * 2) < 0 ||
	    FAL_GROW(s->nonfinite, s->nonfinite_cap, tasks) < 0 ||
	    FAL_GROW(s->granted, s->granted_cap, tasks) < 0)
		return FAL_ENOMEM;
	s->free_n = 0;
	for (uint32_t t = 0; t < tasks; t++) {
		s->node[t].slot = s->node[t + tasks].slot = FAL_NONE;
		s->nonfinite[t] = FAL_NONE;
		s->granted[t] = false;
		if (fal_free_task(s, t) < 0)
			return FAL_ENOMEM;
	}
	s->open = true;
	s->opened = now;
	drop_gone(s);
	for (uint32_t i = 0; i < s->workers; i++)
		reset_worker(&s->worker[i], now);
	int err = s->scheme->lanes != NULL ? s->scheme->lanes(s) : FAL_OK;
	for (uint32_t i = 0; i < s->workers; i++)
		if (fal_worker_active(&s->worker[i]))
			fal_refresh(s, &s->worker[i], now);
	return err < 0 ? err : settle(s, now);
}

bool
fal_sched_is_open(const struct fal_sched *s)
{
	return s->open;
}

int
fal_sched_close(struct fal_sched *s, double now)
{
	assert(s->open);
	s->open = false;
	for (uint32_t i = 0; i < s->workers; i++)
		if (!s->worker[i].gone) {
			struct fal_worker *w = &s->worker[i];
			while (w->head != FAL_NONE)
				fal_detach(s, w->head);
			/* Had work, and was not heard of: it is still pulling. */
			if (fal_worker_active(w) && w->work.share > 0 && w->claimed < 0)
				fal_ewma(&w->pull_s, now - s->opened);
			w->newest = FAL_NONE;
			fal_refresh(s, w, now);
		}
	return fal_eval_feed(s, now);
}

/* A claim without a result: the first one is run again elsewhere, the second decides. */
static int
claim_nonfinite(struct fal_sched *s, double now, struct fal_worker *w, uint32_t task)
{
	if (s->ledger.task[task].contrib != FAL_NONE)
		return 0;
	uint32_t first = s->nonfinite[task];
	if (first == fal_slot(s, w) && s->active > 1) {
		/* Says nothing new: whoever runs it to decide goes on. */
		fal_drop_own(s, task, w);
		return fal_task_held(s, task) ? 0 : fal_free_task(s, task);
	}
	if (fal_withdraw(s, task, w, now) < 0)
		return FAL_ENOMEM;
	if (first != FAL_NONE) {
		struct fal_act act = { .kind = FAL_ACT_STOP, .worker = w->id };
		act.first = task;
		return fal_emit(s, act) != NULL ? 0 : FAL_ENOMEM;
	}
	s->nonfinite[task] = fal_slot(s, w);
	return fal_free_task(s, task);
}

static int
claim_result(struct fal_sched *s, double now, struct fal_worker *w,
	     const struct fal_claim_in *c)
{
	struct fal_cid id = { c->worker, c->seq };
	int won =
		fal_ledger_claim(&s->ledger, id, c->fills, c->task, c->loss, &w->newest);
	if (won < 0)
		return won;
	if (won == 0) {
		w->work.lost++;
		return fal_ledger_log(&s->ledger, FAL_ENTRY_LOST, w->id, 0, c->task);
	}
	w->work.done++;
	if (w->claimed < 0)
		fal_ewma(&w->pull_s, fmax(now - s->opened - c->task_s, 1e-6));
	w->claimed = now;
	if (fal_withdraw(s, c->task, w, now) < 0)
		return FAL_ENOMEM;
	uint32_t accused = s->nonfinite[c->task];
	if (accused != FAL_NONE && &s->worker[accused] != w && !s->worker[accused].gone) {
		s->nonfinite[c->task] = FAL_NONE;
		int err = fal_sched_charge(s, now, s->worker[accused].id,
					   "non-finite result that another did not get");
		return err < 0 ? err : 1;
	}
	return 1;
}

int
fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_in *c)
{
	struct fal_worker *w = fal_find(s, c->worker);
	if (w == NULL || !s->open || c->clock != s->ledger.clock)
		return 0;
	if (c->task >= s->ledger.tasks)
		return FAL_EINVAL;
	if (w->claims == w->given)
		return FAL_ESTATE;
	w->claims++;
	if (c->task_s > 0)
		fal_measured(s, w, c->task_s);
	w->base = now;
	int won = c->nonfinite ? claim_nonfinite(s, now, w, c->task)
			       : claim_result(s, now, w, c);
	if (won < 0)
		return won;
	fal_refresh(s, w, now);
	int err = settle(s, now);
	return err < 0 ? err : won;
}

const struct fal_contrib *
fal_sched_contrib(const struct fal_sched *s, struct fal_cid cid)
{
	const struct fal_worker *w = fal_find(s, cid.worker);
	if (w == NULL || !s->open)
		return NULL;
	uint32_t ci = fal_ledger_find(&s->ledger, cid, w->newest);
	return ci != FAL_NONE ? &s->ledger.contrib[ci] : NULL;
}

struct fal_cid
fal_sched_fills(const struct fal_sched *s, const struct fal_contrib *c)
{
	return c->fills != FAL_NONE ? s->ledger.contrib[c->fills].id
				    : (struct fal_cid){ 0, 0 };
}

void
fal_sched_arrived(struct fal_sched *s, double now, struct fal_cid cid, uint32_t blocks,
		  bool complete)
{
	const struct fal_contrib *c = fal_sched_contrib(s, cid);
	if (c == NULL)
		return;
	uint32_t ci = (uint32_t)(c - s->ledger.contrib);
	fal_ledger_arrived(&s->ledger, ci, blocks);
	if (!complete)
		return;
	fal_ledger_done(&s->ledger, ci);
	struct fal_worker *w = fal_find(s, cid.worker);
	if (w->newest == ci && w->queued == 0)
		fal_ewma(&w->push_s, fmax(now - w->claimed, 1e-6));
	fal_refresh(s, w, now);
}

void
fal_sched_rtt(struct fal_sched *s, uint32_t id, double rtt)
{
	struct fal_worker *w = fal_find(s, id);
	/* What is shorter is nearer the truth: the rest is waiting in somebody's queue.
	 */
	if (w != NULL)
		w->rtt = w->rtt > 0 ? fmin(rtt, w->rtt + 0.1 * (rtt - w->rtt)) : rtt;
}

int
fal_sched_charge(struct fal_sched *s, double now, uint32_t id, const char *why)
{
	(void)now;
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL || ++w->charges < 2)
		return FAL_OK;
	struct fal_act act = { .kind = FAL_ACT_EVICT, .worker = id, .why = why };
	return fal_emit(s, act) != NULL ? FAL_OK : FAL_ENOMEM;
}

/* A silent worker gets nothing more until it speaks; others do what it owes. */
static int
suspect(struct fal_sched *s, struct fal_worker *w, double now)
{
	w->suspected = true;
	s->active--;
	int err = fal_strip(s, w, true);
	fal_refresh(s, w, now);
	return err;
}

/* Looks at a worker that owes something and is late. */
static int
review(struct fal_sched *s, struct fal_worker *w, double now)
{
	double deadline = fal_deadline_s(s, w);
	bool asked = w->pinged > w->heard;
	if (asked && now >= w->pinged + deadline)
		return suspect(s, w, now);
	if (!asked && now >= fmax(w->base, w->heard) + deadline) {
		struct fal_act act = { .kind = FAL_ACT_PING, .worker = w->id };
		w->pinged = now;
		asked = true;
		if (fal_emit(s, act) == NULL)
			return FAL_ENOMEM;
	}
	if (fal_eval_overdue(s, w, now)) {
		fal_eval_return(s, w);
		w->no_evals = true;
		fal_refresh(s, w, now);
		return FAL_OK;
	}
	fal_refresh(s, w, now);
	/* Its task may take twice as long as it took so far. */
	double next = now + fmax(now - w->base, 1e-3);
	fal_heap_set(&s->due, fal_slot(s, w),
		     fmin(next, asked ? w->pinged + deadline : now + deadline));
	return FAL_OK;
}

int
fal_sched_tick(struct fal_sched *s, double now)
{
	uint32_t slot;
	bool any = false;
	while ((slot = fal_heap_top(&s->due)) != FAL_NONE && s->due.key[slot] <= now) {
		any = true;
		int err = review(s, &s->worker[slot], now);
		if (err < 0)
			return err;
	}
	return any ? settle(s, now) : FAL_OK;
}

double
fal_sched_wake(const struct fal_sched *s)
{
	uint32_t slot = fal_heap_top(&s->due);
	return slot != FAL_NONE ? s->due.key[slot] : INFINITY;
}

bool
fal_sched_next(struct fal_sched *s, struct fal_act *out)
{
	if (s->act_next == s->acts) {
		s->act_next = s->acts = 0;
		return false;
	}
	*out = s->act[s->act_next++];
	return true;
}

const struct fal_ledger *
fal_sched_ledger(const struct fal_sched *s)
{
	return &s->ledger;
}

bool
fal_sched_info(const struct fal_sched *s, uint32_t id, struct fal_worker_info *out)
{
	const struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return false;
	*out = (struct fal_worker_info){
		.id = id,
		.lanes = w->lanes,
		.lanes_min = w->lanes_min,
		.lanes_max = w->lanes_max,
		.task_s =
			w->recents > 0 || w->probe_s > 0 ? fal_task_s(s, w, w->lanes) : 0,
		.finish = w->finish,
		.suspected = w->suspected,
		.work = w->work,
	};
	return true;
}
