/* The world of the scheduler's tests: a few workers that do what they are told, in
 * virtual time; how many actions came of each kind, and the last one. */
#ifndef TEST_SCHED_H
#define TEST_SCHED_H

#include "base/err.h"
#include "base/rng.h"
#include "sched/state.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { WORKERS = 8, TASKS = 64, CLOCKS = 2000 };

/* A task in a worker's queue; the first `lanes` run. */
struct item {
	uint64_t round;
	uint32_t task;
	struct fal_contrib_id fills;
	double began; /* negative: not yet */
};

/* A contribution that did not arrive yet. */
struct pending {
	uint64_t round;
	struct fal_contrib_id fills;
	uint32_t seq;
	double at; /* when it arrives, if nothing more of its round comes before */
};

struct worker {
	/* What it really takes: on a lane; from idle to counted; till it begins with what
	 * comes when it has nothing. */
	double task_s, push_s, pull_s, ready;
	uint32_t cores, lanes;
	struct item q[4 * TASKS];
	uint32_t n;
	struct pending pending[TASKS];
	uint32_t seq, pendings; /* seq: of its next contribution */
	uint32_t evals, eval[TASKS];
};

static struct fal_sched *sched;
static struct worker worker[WORKERS + 1]; /* by id */
static uint32_t acts[FAL_ACT_STOP + 1];   /* how many came of each kind */
static struct fal_act last[FAL_ACT_STOP + 1];
static struct fal_work told[WORKERS + 1]; /* by the last ACCOUNT */
static uint32_t told_done;                /* over all ACCOUNTs */
static double now;
static bool late;      /* what shards do is done when the test says so */
static bool preclaims; /* of the next one */

static const struct fal_contrib_id none = { 0, 0 };

static inline void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld", what, (long long)got,
			 (long long)want);
}

static inline void
near(double got, double want, double tol, const char *what)
{
	if (!(fabs(got - want) <= tol))
		fail_msg("%s: got %.9g, want %.9g within %g", what, got, want, tol);
}

/* A policy of the rule `text` and nothing else. */
static inline struct fal_policy
policy_of(const char *text)
{
	struct fal_policy p = { .no_clones = false };
	struct fal_diag diag;
	check(fal_rule_parse(text, &p.rule, &diag), 0, text);
	return p;
}

static bool skips;          /* what has no finite result */
static struct fal_grid cut; /* of the next one, unless its batch is 0 */

/* Clocks of `tasks` tasks of one sample; none may begin. */
static inline void
begin_with(const struct fal_policy *p, uint32_t tasks, double eval_cost)
{
	struct fal_sched_conf conf = { .policy = p,
				       .grid = { .samples = CLOCKS * tasks,
						 .batch = tasks,
						 .task = 1,
						 .epochs = 1 },
				       .eval_cost = eval_cost,
				       .preclaims = preclaims,
				       .skips = skips };
	if (cut.batch > 0)
		conf.grid = cut;
	cut = (struct fal_grid){ 0 };
	memset(worker, 0, sizeof(worker));
	memset(acts, 0, sizeof(acts));
	memset(last, 0, sizeof(last));
	memset(told, 0, sizeof(told));
	told_done = 0;
	now = 0;
	late = preclaims = false;
	sched = fal_sched_new(&conf);
}

static inline void
begin(const char *rule, uint32_t tasks, double eval_cost)
{
	struct fal_policy p = policy_of(rule);
	begin_with(&p, tasks, eval_cost);
}

static inline int
end(void **state)
{
	(void)state;
	fal_sched_free(sched);
	sched = NULL;
	return 0;
}

static inline bool
in_range(const struct item *i, const struct fal_act *a)
{
	return i->round == a->round && i->task >= a->first &&
	       i->task - a->first < a->count;
}

/* Lanes that are free begin with what stands first. */
static inline void
run_lanes(struct worker *w)
{
	for (uint32_t i = 0; i < w->n && i < w->lanes; i++)
		if (w->q[i].began < 0)
			w->q[i].began = fmax(now, w->ready);
}

/* Older rounds stand first. */
static inline void
enqueue(struct worker *w, const struct fal_act *a)
{
	if (w->n == 0)
		w->ready = now + w->pull_s;
	for (uint32_t i = 0; i < a->count; i++) {
		uint32_t at = w->n++;
		for (; at > 0 && w->q[at - 1].round > a->round; at--)
			w->q[at] = w->q[at - 1];
		w->q[at] = (struct item){ a->round, a->first + i, a->fills, -1 };
	}
}

static inline void
follow(const struct fal_act *a)
{
	struct worker *w = &worker[a->worker];
	uint32_t kept = 0;
	acts[a->kind]++;
	last[a->kind] = *a;
	if (a->kind == FAL_ACT_ACCOUNT) {
		told[a->worker] = a->work;
		told_done += a->work.done;
	}
	if (a->kind == FAL_ACT_LANES)
		w->lanes = a->count;
	if (a->kind == FAL_ACT_GRANT)
		enqueue(w, a);
	for (uint32_t i = 0; a->kind == FAL_ACT_FENCE && i < w->pendings; i++)
		if (w->pending[i].round == a->round && w->pending[i].seq == a->cid.seq)
			w->pending[i--] = w->pending[--w->pendings];
	for (uint32_t i = 0; a->kind == FAL_ACT_EVAL && i < a->count; i++)
		w->eval[w->evals++] = a->first + i;
	if (a->kind == FAL_ACT_REVOKE) {
		for (uint32_t i = 0; i < w->n; i++)
			if (!in_range(&w->q[i], a))
				w->q[kept++] = w->q[i];
		w->n = kept;
	}
	if (a->kind == FAL_ACT_STEP && !late)
		fal_sched_note_published(sched, now, a->version);
	if (a->kind == FAL_ACT_FENCE && !late)
		fal_sched_note_fenced(sched, now, a->round, a->cid);
	run_lanes(w);
}

static inline void
follow_all(void)
{
	struct fal_act a;
	while (fal_sched_next_action(sched, &a))
		if (a.worker <= WORKERS) /* of the first ones only */
			follow(&a);
}

static inline int
join_as(uint32_t id, const char *name, uint32_t lanes, uint32_t cores, double probe_s)
{
	struct fal_join j = { .id = id,
			      .name = name,
			      .lanes_min = 1,
			      .lanes_max = lanes,
			      .cores = cores,
			      .task_s = probe_s };
	worker[id].task_s = probe_s;
	worker[id].cores = cores;
	worker[id].seq = 1;
	int err = fal_sched_join(sched, now, &j);
	follow_all();
	return err;
}

static inline int
join(uint32_t id, uint32_t lanes, uint32_t cores, double probe_s)
{
	return join_as(id, NULL, lanes, cores, probe_s);
}

/* The round that began last. */
static inline uint64_t
current(void)
{
	return last[FAL_ACT_OPEN].round;
}

static inline struct fal_round_info
round_info(uint64_t round)
{
	struct fal_round_info r;
	if (!fal_sched_round(sched, round, &r))
		fail_msg("round %llu is not known", (unsigned long long)round);
	return r;
}

static inline const struct fal_ledger *
ledger(void)
{
	return round_info(current()).ledger;
}

/* Clocks up to this one may begin. */
static inline void
open_clock(uint64_t clock)
{
	fal_sched_forget(sched);
	fal_sched_set_clock_limit(sched, now, clock + 1);
	follow_all();
}

/* The store says that the round is complete, whatever was claimed. */
static inline void
complete(uint64_t round)
{
	fal_sched_note_complete(sched, now, round);
	follow_all();
}

static inline int
claim_of(uint64_t round, uint32_t id, uint32_t task, uint32_t seq,
	 struct fal_contrib_id fills, double task_s)
{
	struct fal_claim_report c = { .worker = id,
				      .round = round,
				      .task = task,
				      .seq = seq,
				      .fills = fills,
				      .task_s = task_s };
	int won = fal_sched_claim(sched, now, &c);
	follow_all();
	return won;
}

static inline int
claim_as(uint32_t id, uint32_t task, uint32_t seq, struct fal_contrib_id fills,
	 double task_s)
{
	return claim_of(current(), id, task, seq, fills, task_s);
}

static inline int
claim_nonfinite(uint32_t id, uint32_t task)
{
	struct fal_claim_report c = {
		.worker = id, .round = current(), .task = task, .nonfinite = true
	};
	struct worker *w = &worker[id];
	for (uint32_t i = 0; i < w->n; i++)
		if (w->q[i].task == task)
			w->q[i--] = w->q[--w->n];
	int won = fal_sched_claim(sched, now, &c);
	follow_all();
	return won;
}

static inline bool
holds(uint32_t id, uint32_t task)
{
	for (uint32_t i = 0; i < worker[id].n; i++)
		if (worker[id].q[i].task == task)
			return true;
	return false;
}

/* How many tasks of the round the worker holds. */
static inline uint32_t
held_of(uint32_t id, uint64_t round)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < worker[id].n; i++)
		n += worker[id].q[i].round == round;
	return n;
}

static inline struct fal_worker_info
info(uint32_t id)
{
	struct fal_worker_info i;
	if (!fal_sched_info(sched, id, &i))
		fail_msg("worker %u is not here", id);
	return i;
}

/* What it did since it accounted for itself last. */
static inline struct fal_work
work(uint32_t id)
{
	const struct fal_worker *w = fal_worker_find(sched, id);
	assert_non_null(w);
	return w->work;
}

static inline size_t
entries(enum fal_entry_kind kind)
{
	return ledger()->log[kind].n;
}

static inline void
hear(uint32_t id)
{
	fal_sched_note_message(sched, now, id);
	follow_all();
}

/* Answers a PING at once, its lanes having done `steps` in all. */
static inline void
answer(uint32_t id, uint64_t steps)
{
	struct fal_worker *w = fal_worker_find(sched, id);
	hear(id);
	if (w == NULL)
		return;
	double rtt = w->rtt;
	fal_sched_note_pong(sched, now, id, 0, steps);
	w->rtt = rtt;
	follow_all();
}

static inline void
tick_until(enum fal_act_kind kind, uint32_t count)
{
	for (uint32_t i = 0; i < 1000 && acts[kind] < count; i++) {
		double wake = fal_sched_next_tick(sched);
		if (wake == INFINITY)
			fail_msg("nothing to wait for, %u of %u came", acts[kind], count);
		now = fmax(now, wake);
		fal_sched_tick(sched, now);
		follow_all();
	}
	check(acts[kind], count, "actions");
}

/* --- rounds played to their end, workers being as fast as they really are -------- */

static inline double
task_time(const struct worker *w)
{
	return w->lanes > w->cores ? w->task_s * w->lanes / w->cores : w->task_s;
}

/* The contribution that arrives next, of those of whose round nothing is to be run. */
static inline struct pending *
next_pending(uint32_t id)
{
	struct pending *first = NULL;
	for (uint32_t i = 0; i < worker[id].pendings; i++) {
		struct pending *p = &worker[id].pending[i];
		if (held_of(id, p->round) == 0 && (first == NULL || p->at < first->at))
			first = p;
	}
	return first;
}

/* The running task that ends first, or, when a contribution arrives before, NULL; *id 0:
 * neither. */
static inline struct item *
next_item(uint32_t *id, double *t)
{
	struct item *first = NULL;
	*t = INFINITY;
	*id = 0;
	for (uint32_t i = 1; i <= WORKERS; i++) {
		struct worker *w = &worker[i];
		const struct pending *p = next_pending(i);
		if (p != NULL && p->at < *t) {
			*t = p->at;
			*id = i;
			first = NULL;
		}
		for (uint32_t k = 0; k < w->n && k < w->lanes; k++) {
			if (w->q[k].began + task_time(w) >= *t)
				continue;
			*t = w->q[k].began + task_time(w);
			*id = i;
			first = &w->q[k];
		}
	}
	return first;
}

static inline void
finish_item(uint32_t id, struct item *at)
{
	struct worker *w = &worker[id];
	struct item item = *at;
	memmove(at, at + 1, (size_t)(&w->q[--w->n] - at) * sizeof(*at));
	run_lanes(w);
	hear(id);
	uint32_t c = 0;
	while (c < w->pendings &&
	       (w->pending[c].round != item.round ||
		!fal_contrib_id_equal(w->pending[c].fills, item.fills)))
		c++;
	if (c == w->pendings)
		w->pending[c] = (struct pending){ item.round, item.fills, w->seq, 0 };
	int won = claim_of(item.round, id, item.task, w->pending[c].seq, item.fills,
			   now - item.began);
	assert_true(won >= 0);
	if (won == 1 && c == w->pendings) {
		w->pendings++;
		w->seq++;
	}
	for (c = 0; c < w->pendings; c++)
		if (w->pending[c].round == item.round)
			w->pending[c].at = now + w->push_s;
}

/* Everything is claimed, and has arrived. */
static inline bool
is_complete(uint64_t round)
{
	struct fal_round_info r;
	if (!fal_sched_round(sched, round, &r))
		return false;
	const struct fal_ledger *l = r.ledger;
	for (uint32_t i = 0; i < l->contribs; i++)
		if (l->contrib[i].state == FAL_CONTRIB_OPEN)
			return false;
	return l->claimed == l->tasks;
}

static inline void
arrive(uint32_t id, struct pending *p)
{
	struct worker *w = &worker[id];
	struct pending it = *p;
	*p = w->pending[--w->pendings];
	hear(id);
	struct fal_contrib_id cid = { id, it.seq };
	fal_sched_note_blocks(sched, now, it.round, cid, 1, true);
	follow_all();
	if (is_complete(it.round))
		complete(it.round);
}

/* The next thing happens: a tick, or a task or push that is over; false: nothing. */
static inline bool
play_step(void)
{
	uint32_t id;
	double t;
	struct item *item = next_item(&id, &t);
	if (id == 0)
		return false;
	double wake = fal_sched_next_tick(sched);
	now = fmax(now, fmin(wake, t));
	if (wake < t) {
		fal_sched_tick(sched, now);
		follow_all();
		for (id = 1; id <= WORKERS; id++) /* whoever was asked answers */
			answer(id, (uint64_t)(now * 1e6));
	} else if (item != NULL) {
		finish_item(id, item);
	} else {
		arrive(id, next_pending(id));
	}
	return true;
}

/* Plays until nothing happens any more; returns how long it took. */
static inline double
play_clock(uint64_t clock)
{
	double opened = now;
	open_clock(clock);
	while (play_step())
		;
	check((int64_t)fal_sched_first_open_clock(sched), (int64_t)clock + 1,
	      "clocks over");
	check(ledger()->claimed, ledger()->tasks, "claimed tasks");
	return now - opened;
}

#endif
