/* The scheduler, decision by decision: a few workers, virtual time, actions looked at one
 * by one.  Whole clusters under misfortune are the simulator's (tests/sim). */
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

enum { WORKERS = 8, TASKS = 64 };

/* A task in a worker's queue; the first `lanes` run. */
struct item {
	uint32_t task;
	struct fal_cid fills;
	double began; /* negative: not yet */
};

struct worker {
	double task_s, push_s; /* what it really takes: on a lane; from idle to counted */
	uint32_t cores, lanes;
	struct item q[2 * TASKS];
	uint32_t n;
	struct fal_cid fills[TASKS]; /* of its open contribution, by seq - first */
	uint32_t seq, contribs;
	double push_at;
	uint32_t evals, eval[TASKS];
};

static struct fal_sched *sched;
static struct worker worker[WORKERS + 1]; /* by id */
static uint32_t acts[FAL_ACT_STOP + 1];   /* how many came of each kind */
static struct fal_act last[FAL_ACT_STOP + 1];
static double now;

static const struct fal_cid none = { 0, 0 };

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld", what, (long long)got,
			 (long long)want);
}

static void
near(double got, double want, double tol, const char *what)
{
	if (!(fabs(got - want) <= tol))
		fail_msg("%s: got %.9g, want %.9g within %g", what, got, want, tol);
}

static void
begin(const char *scheme, double eval_cost)
{
	struct fal_sched_conf conf = { .scheme = scheme, .eval_cost = eval_cost };
	memset(worker, 0, sizeof(worker));
	memset(acts, 0, sizeof(acts));
	now = 0;
	check(fal_sched_new(&conf, &sched), 0, "fal_sched_new");
}

static int
end(void **state)
{
	(void)state;
	fal_sched_free(sched);
	sched = NULL;
	return 0;
}

static bool
in_range(uint32_t task, const struct fal_act *a)
{
	return task >= a->first && task - a->first < a->count;
}

/* Lanes that are free begin with what stands first. */
static void
run_lanes(struct worker *w)
{
	for (uint32_t i = 0; i < w->n && i < w->lanes; i++)
		if (w->q[i].began < 0)
			w->q[i].began = now;
}

static void
follow(const struct fal_act *a)
{
	struct worker *w = &worker[a->worker];
	uint32_t kept = 0;
	acts[a->kind]++;
	last[a->kind] = *a;
	if (a->kind == FAL_ACT_LANES)
		w->lanes = a->count;
	for (uint32_t i = 0; a->kind == FAL_ACT_GRANT && i < a->count; i++)
		w->q[w->n++] = (struct item){ a->first + i, a->fills, -1 };
	for (uint32_t i = 0; a->kind == FAL_ACT_EVAL && i < a->count; i++)
		w->eval[w->evals++] = a->first + i;
	if (a->kind == FAL_ACT_REVOKE) {
		for (uint32_t i = 0; i < w->n; i++)
			if (!in_range(w->q[i].task, a))
				w->q[kept++] = w->q[i];
		w->n = kept;
	}
	run_lanes(w);
}

static void
follow_all(void)
{
	struct fal_act a;
	while (fal_sched_next(sched, &a))
		if (a.worker <= WORKERS) /* of the first ones only */
			follow(&a);
}

static int
join(uint32_t id, uint32_t lanes, uint32_t cores, double probe_s)
{
	struct fal_join j = { id, 1, lanes, cores, probe_s, 0 };
	worker[id].task_s = probe_s;
	worker[id].cores = cores;
	worker[id].seq = 1;
	int err = fal_sched_join(sched, now, &j);
	follow_all();
	return err;
}

static void
open_clock(uint64_t clock, uint32_t tasks)
{
	check(fal_sched_open(sched, now, clock, tasks), 0, "open");
	follow_all();
}

static int
claim_as(uint32_t id, uint32_t task, uint32_t seq, struct fal_cid fills, double task_s)
{
	struct fal_claim_in c = { .worker = id,
				  .clock = fal_sched_ledger(sched)->clock,
				  .task = task,
				  .seq = seq,
				  .fills = fills,
				  .task_s = task_s };
	int won = fal_sched_claim(sched, now, &c);
	follow_all();
	return won;
}

static int
claim_nonfinite(uint32_t id, uint32_t task)
{
	struct fal_claim_in c = { .worker = id,
				  .clock = fal_sched_ledger(sched)->clock,
				  .task = task,
				  .nonfinite = true };
	struct worker *w = &worker[id];
	for (uint32_t i = 0; i < w->n; i++)
		if (w->q[i].task == task)
			w->q[i--] = w->q[--w->n];
	int won = fal_sched_claim(sched, now, &c);
	follow_all();
	return won;
}

static bool
holds(uint32_t id, uint32_t task)
{
	for (uint32_t i = 0; i < worker[id].n; i++)
		if (worker[id].q[i].task == task)
			return true;
	return false;
}

static struct fal_worker_info
info(uint32_t id)
{
	struct fal_worker_info i;
	if (!fal_sched_info(sched, id, &i))
		fail_msg("worker %u is not here", id);
	return i;
}

static size_t
entries(enum fal_entry_kind kind)
{
	return fal_sched_ledger(sched)->log[kind].n;
}

/* --- a clock played to its end, workers being as fast as they really are --------- */

static double
task_time(const struct worker *w)
{
	return w->lanes > w->cores ? w->task_s * w->lanes / w->cores : w->task_s;
}

/* The running task that ends first, or, when a contribution arrives before, NULL. */
static struct item *
next_item(uint32_t *id, double *t)
{
	struct item *first = NULL;
	*t = INFINITY;
	*id = 0;
	for (uint32_t i = 1; i <= WORKERS; i++) {
		struct worker *w = &worker[i];
		if (w->contribs > 0 && w->n == 0 && w->push_at < *t) {
			*t = w->push_at;
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

static void
hear(uint32_t id)
{
	check(fal_sched_heard(sched, now, id), 0, "heard");
	follow_all();
}

static void
finish_item(uint32_t id, struct item *at)
{
	struct worker *w = &worker[id];
	struct item item = *at;
	memmove(at, at + 1, (size_t)(&w->q[--w->n] - at) * sizeof(*at));
	run_lanes(w);
	hear(id);
	uint32_t c = 0;
	while (c < w->contribs && !fal_cid_eq(w->fills[c], item.fills))
		c++;
	int won = claim_as(id, item.task, w->seq + c, item.fills, now - item.began);
	assert_true(won >= 0);
	if (won == 1 && c == w->contribs)
		w->fills[w->contribs++] = item.fills;
	w->push_at = now + w->push_s;
}

static void
arrive(uint32_t id)
{
	struct worker *w = &worker[id];
	hear(id);
	for (; w->contribs > 0; w->contribs--)
		fal_sched_arrived(sched, now, (struct fal_cid){ id, w->seq++ }, 1, true);
	follow_all();
}

/* Returns how long the clock took. */
static double
play_clock(uint64_t clock, uint32_t tasks)
{
	double opened = now, t;
	uint32_t id;
	open_clock(clock, tasks);
	for (;;) {
		struct item *item = next_item(&id, &t);
		if (id == 0)
			break;
		double wake = fal_sched_wake(sched);
		now = fmax(now, fmin(wake, t));
		if (wake < t) {
			check(fal_sched_tick(sched, now), 0, "tick");
			follow_all();
			for (id = 1; id <= WORKERS; id++) /* whoever was asked answers */
				hear(id);
		} else if (item != NULL) {
			finish_item(id, item);
		} else {
			arrive(id);
		}
	}
	check(fal_sched_ledger(sched)->claimed, tasks, "claimed tasks");
	check(fal_sched_close(sched, now), 0, "close");
	follow_all();
	return now - opened;
}

/* --- shares ---------------------------------------------------------------------- */

/* The earliest latest finish of `tasks` on the workers from `id` on. */
static double
brute_force(uint32_t id, uint32_t workers, uint32_t tasks)
{
	const struct worker *w = &worker[id];
	double best = INFINITY;
	for (uint32_t n = 0; n <= tasks; n++) {
		double own = ceil((double)n / w->lanes) * task_time(w);
		double rest = tasks > n ? INFINITY : 0;
		if (id < workers)
			rest = brute_force(id + 1, workers, tasks - n);
		best = fmin(best, fmax(own, rest));
	}
	return best;
}

static void
shares_minimise_the_latest_finish(void **state)
{
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	for (uint32_t round = 0; round < 60; round++) {
		uint32_t workers = 1 + fal_rng_below(&r, 4);
		uint32_t tasks = 1 + fal_rng_below(&r, 12);
		double latest = 0;
		begin("epsp", 0);
		for (uint32_t id = 1; id <= workers; id++) {
			uint32_t lanes = 1 + fal_rng_below(&r, 3);
			double s = 0.01 * (1 + fal_rng_below(&r, 30));
			check(join(id, lanes, lanes, s), 0, "join");
		}
		open_clock(0, tasks);
		uint32_t sum = 0;
		for (uint32_t id = 1; id <= workers; id++) {
			sum += worker[id].n;
			latest = fmax(latest, info(id).finish);
			check(info(id).work.share, worker[id].n, "share");
		}
		check(sum, tasks, "tasks granted");
		near(latest, brute_force(1, workers, tasks), 1e-5, "latest finish");
		end(state);
	}
}

/* Its push costs more than the whole clock: it stands by, and is tried after 16. */
static void
standby_and_trial(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	worker[2].push_s = 10;
	play_clock(0, 4);
	check(info(2).work.share, 2, "share before anything is known");
	uint64_t clock = 1;
	for (; clock < 40; clock++) {
		near(play_clock(clock, 4), 0.4, 1e-3, "length of a clock without it");
		check(info(2).work.share, 0, "share");
		check(info(2).work.in, 0, "tasks moved to it");
		if (clock == 16)
			break;
	}
	worker[2].push_s = 0;
	play_clock(17, 4);
	check(info(2).work.share, 1, "trial share");
}

/* Whoever had work and was not heard of is still pulling: it gets less. */
static void
silent_puller_gets_less(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	worker[2].task_s = 1000;
	play_clock(0, 4);
	check(info(2).work.share, 2, "share before anything is known");
	play_clock(1, 4);
	check(info(2).work.share, 0, "share after a clock without a word");
}

/* --- transfer and clone ------------------------------------------------------------ */

static void
straggler_gives_its_tail(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	worker[2].task_s = 0.8;
	open_clock(0, 8);
	for (uint32_t i = 0; i < 3; i++) {
		check(worker[2].n, 4, "tasks of the straggler");
		check((int64_t)entries(FAL_ENTRY_MOVE), 0, "moves before it is needed");
		now += 0.1;
		finish_item(1, &worker[1].q[0]);
	}
	const struct fal_ledger *l = fal_sched_ledger(sched);
	/* The pioneer runs its last task. */
	check((int64_t)entries(FAL_ENTRY_MOVE), 1, "moves");
	check(l->log[FAL_ENTRY_MOVE].v[0].a, 2, "from");
	check(l->log[FAL_ENTRY_MOVE].v[0].b, 1, "to");
	check(l->log[FAL_ENTRY_MOVE].v[0].first + l->log[FAL_ENTRY_MOVE].v[0].count, 8,
	      "end of the moved tasks");
	check(holds(1, 7), 1, "the pioneer has the last task");
	check(holds(2, 7), 0, "the straggler has it still");
	check(holds(2, 4), 1, "the straggler runs its first");
}

static void
equals_keep_their_tasks(void **state)
{
	(void)state;
	begin("epsp", 0);
	for (uint32_t id = 1; id <= 4; id++)
		join(id, 2, 2, 0.1);
	for (uint64_t clock = 0; clock < 6; clock++) {
		near(play_clock(clock, 16), 0.2, 1e-9, "length of a clock");
		check((int64_t)entries(FAL_ENTRY_MOVE), 0, "moves");
		check((int64_t)entries(FAL_ENTRY_CLONE), 0, "clones");
	}
}

static void
last_task_is_cloned(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	play_clock(0, 2);
	open_clock(1, 2);
	check(holds(1, 0) && holds(2, 1), 1, "one task each");
	now += 0.1;
	check(claim_as(1, 0, 9, none, 0.1), 1, "the pioneer's claim");
	check((int64_t)entries(FAL_ENTRY_CLONE), 0, "clones while nobody is late");
	while (now < 5 && entries(FAL_ENTRY_CLONE) == 0) {
		now = fmax(now, fal_sched_wake(sched));
		fal_sched_heard(sched, now, 2); /* it lives, and computes on */
		check(fal_sched_tick(sched, now), 0, "tick");
		follow_all();
	}
	check(last[FAL_ACT_GRANT].worker, 1, "who runs it again");
	check(last[FAL_ACT_GRANT].first, 1, "what");
	check(holds(2, 1), 1, "the straggler still runs it");
	check(claim_as(1, 1, 9, none, 0.1), 1, "the clone's claim");
	check(last[FAL_ACT_REVOKE].worker, 2, "the loser is told");
	check(holds(2, 1), 0, "the loser runs it");
	check(claim_as(2, 1, 9, none, 3), 0, "the loser's claim");
	check(info(2).work.lost, 1, "lost");
}

static void
bsp_is_static(void **state)
{
	(void)state;
	begin("bsp", 0);
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 4, 2, 0.1 * id);
	worker[3].task_s = 3;
	uint32_t lanes = acts[FAL_ACT_LANES];
	for (uint64_t clock = 0; clock < 10; clock++) {
		play_clock(clock, 12);
		for (uint32_t id = 1; id <= 3; id++) {
			check(info(id).work.share, 4, "share");
			check(info(id).work.done, 4, "done");
		}
		check((int64_t)entries(FAL_ENTRY_MOVE), 0, "moves");
		check((int64_t)entries(FAL_ENTRY_CLONE), 0, "clones");
	}
	check(acts[FAL_ACT_LANES], lanes, "lane changes");
	check(acts[FAL_ACT_REVOKE], 0, "revokes");
}

/* --- leaving, silence -------------------------------------------------------------- */

static void
leave_is_filled(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0, 6);
	now = 0.1;
	check(claim_as(1, 0, 1, none, 0.1), 1, "claim");
	check(fal_sched_leave(sched, now, 1), 0, "leave");
	follow_all();
	check(acts[FAL_ACT_FENCE], 1, "fences");
	assert_true(fal_cid_eq(last[FAL_ACT_FENCE].cid, (struct fal_cid){ 1, 1 }));
	check(worker[2].n, 6, "tasks that the other holds");
	for (uint32_t i = 0; i < 6; i++) {
		struct fal_cid want = { worker[2].q[i].task == 0, 0 };
		want.seq = want.worker;
		if (!fal_cid_eq(worker[2].q[i].fills, want))
			fail_msg("task %u fills %u.%u", worker[2].q[i].task,
				 worker[2].q[i].fills.worker, worker[2].q[i].fills.seq);
	}
	check(claim_as(2, 0, 1, none, 0.1), 0, "a claim that fills nothing");
	check(claim_as(2, 0, 1, (struct fal_cid){ 1, 1 }, 0.1), 1, "one that fills");
	check(claim_as(1, 1, 2, none, 0.1), 0, "a claim of who left");
	check(fal_sched_leave(sched, now, 1), 0, "a second leave");
	check(fal_sched_heard(sched, now, 1), 0, "heard of who left");
	follow_all();
	check(acts[FAL_ACT_FENCE], 1, "fences at the end");
	check((int64_t)entries(FAL_ENTRY_REGRANT), 1, "ranges granted again");
}

static void
tick_until(enum fal_act_kind kind, uint32_t count)
{
	for (uint32_t i = 0; i < 1000 && acts[kind] < count; i++) {
		double wake = fal_sched_wake(sched);
		if (wake == INFINITY)
			fail_msg("nothing to wait for, %u of %u came", acts[kind], count);
		now = fmax(now, wake);
		check(fal_sched_tick(sched, now), 0, "tick");
		follow_all();
	}
	check(acts[kind], count, "actions");
}

/* One stays, 1,000 come and go: only those of one clock take room. */
static void
slots_are_used_again(void **state)
{
	(void)state;
	const uint32_t cycles = 1000;
	uint32_t most = 0;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	for (uint32_t i = 0; i < cycles; i++, now += 1) {
		struct fal_join guest = { 2 + i, 1, 1, 1, 0.1, 0 };
		check(fal_sched_join(sched, now, &guest), 0, "join");
		most = sched->workers > most ? sched->workers : most;
		worker[1].n = 0;
		open_clock(i, 4);
		check(info(2 + i).work.share, 2, "share of the guest");
		check(fal_sched_leave(sched, now, 2 + i), 0, "leave");
		follow_all();
		for (uint32_t t = 0; t < 4; t++)
			check(claim_as(1, t, i + 1, none, 0.1), 1, "claim");
		check(fal_sched_close(sched, now), 0, "close");
	}
	check(most, 3, "most slots");
	open_clock(cycles, 4);
	check(sched->workers, 1, "slots when one is left");
	struct fal_join again = { 1 + cycles, 1, 1, 1, 0.1, 0 };
	check(fal_sched_join(sched, now, &again), FAL_EINVAL, "the last guest's id");
}

/* A silent worker is asked after the deadline, suspected after another one. */
static void
silence_is_suspected(void **state)
{
	(void)state;
	begin("bsp", 0); /* nothing else takes its task */
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0, 2);
	now = 0.1;
	check(claim_as(2, 1, 1, none, 0.1), 1, "claim");
	tick_until(FAL_ACT_PING, 1);
	check(last[FAL_ACT_PING].worker, 1, "who is asked");
	double asked = now; /* it is looked at when late, then at twice its lateness */
	near(asked, 0.3, 0.1, "when it is asked");
	check(info(1).suspected, 0, "suspected when asked");
	tick_until(FAL_ACT_REVOKE, 1);
	near(now - asked, 0.2, 1e-6, "from the question to the suspicion");
	check(info(1).suspected, 1, "suspected");
	check(last[FAL_ACT_GRANT].worker, 2, "who gets its task");
	check(holds(2, 0), 1, "task 0");
	check(fal_sched_heard(sched, now, 1), 0, "heard");
	check(info(1).suspected, 0, "suspected when heard");
	check(claim_as(1, 0, 1, none, 0.5), 1, "its late claim comes first");
	check(holds(2, 0), 0, "task 0 after the claim");
	fal_sched_close(sched, now);
	open_clock(1, 2);
	check(worker[1].n, 1, "tasks of the one that came back");
}

static void
answers_are_believed(void **state)
{
	(void)state;
	begin("bsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0, 2);
	now = 0.1;
	claim_as(2, 1, 1, none, 0.1);
	for (uint32_t i = 1; i <= 5; i++) {
		tick_until(FAL_ACT_PING, i);
		now += 0.01;
		check(fal_sched_heard(sched, now, 1), 0, "heard");
		follow_all();
	}
	check(acts[FAL_ACT_REVOKE], 0, "revokes");
	check(info(1).suspected, 0, "suspected");
	check(holds(1, 0), 1, "task 0");
}

/* --- claims beyond what was granted --------------------------------------------------
 */

static void
claims_do_not_exceed_grants(void **state)
{
	(void)state;
	begin("bsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	for (uint64_t clock = 0; clock < 2; clock++) {
		worker[1].n = worker[2].n = 0;
		open_clock(clock, 4);
		uint32_t task = worker[1].q[0].task;
		uint32_t seq = (uint32_t)clock + 1;
		check(worker[1].n, 2, "granted");
		check(claim_as(1, task, seq, none, 0.1), 1, "first claim");
		check(claim_as(1, task, seq, none, 0.1), 0, "second claim");
		for (uint32_t i = 0; i < 100; i++)
			check(claim_as(1, task, seq, none, 0.1), FAL_ESTATE, "more");
		check(claim_nonfinite(1, task), FAL_ESTATE, "more, non-finite");
		check((int64_t)entries(FAL_ENTRY_LOST), 1, "entries of lost claims");
		check(info(1).work.lost, 1, "lost");
		check(claim_as(2, worker[2].q[0].task, seq, none, 0.1), 1, "another's");
		fal_sched_close(sched, now);
	}
}

/* What was fenced away and granted again is claimed again. */
static void
granted_again_is_claimed_again(void **state)
{
	(void)state;
	begin("bsp", 0);
	join(1, 1, 1, 0.1);
	open_clock(0, 1);
	struct fal_cid fills = none;
	for (uint32_t seq = 1; seq <= 5; seq++) {
		check(claim_as(1, 0, seq, fills, 0.1), 1, "claim");
		tick_until(FAL_ACT_FENCE, seq);
		hear(1);
		check(acts[FAL_ACT_GRANT], seq + 1, "grants");
		fills = last[FAL_ACT_GRANT].fills;
		check(fills.seq, seq, "what it fills");
	}
	check(claim_as(1, 0, 5, none, 0.1), 0, "into a fenced one");
	check(claim_as(1, 0, 6, fills, 0.1), FAL_ESTATE, "granted 6 times");
}

/* --- results that are not finite ---------------------------------------------------- */

static void
nonfinite_twice_stops(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 1);
	open_clock(0, 2);
	assert_true(holds(1, 0));
	check(claim_nonfinite(1, 0), 0, "the first");
	check(acts[FAL_ACT_STOP], 0, "stops after one");
	check(holds(2, 0), 1, "another one tries it");
	check(claim_nonfinite(2, 0), 0, "the second");
	check(acts[FAL_ACT_STOP], 1, "stops after two");
	check(last[FAL_ACT_STOP].first, 0, "for which task");
	check(last[FAL_ACT_STOP].worker, 2, "by whom");
}

static void
nonfinite_alone(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	open_clock(0, 1);
	claim_nonfinite(1, 0);
	check(acts[FAL_ACT_STOP], 0, "stops after one");
	check(holds(1, 0), 1, "the same one tries again");
	claim_nonfinite(1, 0);
	check(acts[FAL_ACT_STOP], 1, "stops after two");
}

/* A fast worker that gets a clone of what it has judged already must not take it away
 * from the slow one that decides. */
static void
nonfinite_again_decides_nothing(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.001);
	join(2, 1, 1, 1);
	open_clock(0, 1);
	assert_true(holds(1, 0));
	for (uint32_t i = 0; i < 5; i++) {
		/* Granted and cloned; after that it claims what it was not given. */
		check(holds(1, 0), i < 2, "the fast one has it");
		check(claim_nonfinite(1, 0), i < 2 ? 0 : FAL_ESTATE, "its claim");
		check(holds(2, 0), 1, "the slow one runs it");
		check(acts[FAL_ACT_REVOKE], 0, "revokes");
		check(acts[FAL_ACT_STOP], 0, "stops");
		now += 0.01;
	}
	claim_nonfinite(2, 0);
	check(acts[FAL_ACT_STOP], 1, "stops at the end");
}

static void
second_charge_evicts(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0, 8);
	for (uint32_t t = 0; t < 2; t++) {
		check(acts[FAL_ACT_EVICT], 0, "evictions");
		claim_nonfinite(1, t);
		check(holds(2, t), 1, "another one tries it");
		check(claim_as(2, t, 1, none, 0.1), 1, "and gets it right");
	}
	check(acts[FAL_ACT_EVICT], 1, "evictions at the second charge");
	check(last[FAL_ACT_EVICT].worker, 1, "who");
	check(acts[FAL_ACT_STOP], 0, "stops");
}

/* --- lanes ---------------------------------------------------------------------------
 */

static void
lanes_follow_the_projection(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 4, 2, 0.1);
	check(worker[1].lanes, 4, "lanes at first");
	uint64_t clock = 0;
	for (; clock < 30; clock++)
		play_clock(clock, 24);
	/* Four lanes on two cores do no more than two. */
	check(worker[1].lanes, 2, "lanes when more do not help");
	check(acts[FAL_ACT_LANES], 3, "changes: 4, 3, 2");
	near(play_clock(clock++, 24), 1.2, 1e-6, "length of a clock");
	worker[1].task_s = 0.2; /* now more lanes did better than two do */
	for (uint32_t i = 0; i < 12 && worker[1].lanes == 2; i++)
		play_clock(clock++, 24);
	check(worker[1].lanes, 3, "lanes taken again");
}

static void
lanes_that_help_stay(void **state)
{
	(void)state;
	begin("epsp", 0);
	join(1, 4, 4, 0.1);
	for (uint64_t clock = 0; clock < 20; clock++)
		play_clock(clock, 24);
	check(worker[1].lanes, 4, "lanes");
	check(acts[FAL_ACT_LANES], 1, "changes");
}

/* CPU seconds of some clocks of workers with the most lanes. */
static double
cpu_of(const char *scheme, uint32_t clocks)
{
	begin(scheme, 0);
	for (uint32_t id = 1; id <= WORKERS; id++)
		check(join(id, FAL_LANES_MAX, FAL_LANES_MAX, 0.1), 0, "join");
	clock_t from = clock();
	for (uint32_t i = 0; i < clocks; i++) {
		for (uint32_t id = 1; id <= WORKERS; id++)
			worker[id].n = 0;
		open_clock(i, WORKERS);
		check(fal_sched_close(sched, now), 0, "close");
	}
	double s = (double)(clock() - from) / CLOCKS_PER_SEC;
	end(NULL);
	return s;
}

/* Whoever may look at all lanes does not look at all pairs of them. */
static void
many_lanes_are_cheap(void **state)
{
	(void)state;
	double fixed = cpu_of("bsp", 40), adapted = cpu_of("epsp", 40);
	if (!(adapted < 4 * fixed + 0.01))
		fail_msg("CPU: %g s when lanes adapt, %g s when not", adapted, fixed);
}

/* --- evaluation ------------------------------------------------------------------------
 */

static void
eval_is_for_who_would_wait(void **state)
{
	(void)state;
	begin("epsp", 0.25);
	join(1, 1, 1, 1);
	join(2, 1, 1, 1);
	open_clock(0, 1);
	uint32_t busy = worker[1].n > 0 ? 1 : 2, idle = 3 - busy;
	check(fal_sched_eval(sched, now, 10), 0, "eval");
	check(fal_sched_eval(sched, now, 10), FAL_ESTATE, "a second one");
	follow_all();
	check(worker[busy].evals, 0, "eval tasks of the busy one");
	check(worker[idle].evals, 4, "what fits into the wait of the idle one");
	now = 1;
	check(claim_as(busy, 0, 1, none, 1), 1, "claim");
	check(worker[busy].evals, 0, "nothing to wait for any more");
	fal_sched_close(sched, now);
	follow_all();
	assert_true(worker[busy].evals > 0); /* no clock is open: everyone */
	uint32_t guard = 0;
	while (!fal_sched_eval_done(sched) && guard++ < 20)
		for (uint32_t id = 1; id <= 2; id++)
			while (worker[id].evals > 0) {
				uint32_t t = worker[id].eval[--worker[id].evals];
				now += 0.25;
				check(fal_sched_evaluated(sched, now, id, t, 0.25), 1,
				      "evaluated");
				check(fal_sched_evaluated(sched, now, id, t, 0.25), 0,
				      "the same again");
				follow_all();
			}
	check(fal_sched_eval_done(sched), 1, "done");
	check(fal_sched_evaluated(sched, now, 1, 10, 0.1), FAL_EINVAL, "no such task");
}

static void
eval_tasks_come_back(void **state)
{
	(void)state;
	begin("epsp", 0.25);
	join(1, 1, 1, 1);
	join(2, 1, 1, 1);
	check(fal_sched_eval(sched, now, 6), 0, "eval");
	follow_all();
	uint32_t first = worker[1].evals;
	assert_true(first > 0 && worker[2].evals > 0);
	uint32_t stolen = worker[1].eval[0];
	check(fal_sched_leave(sched, now, 1), 0, "leave");
	follow_all();
	/* Also what it never had is evaluated only once. */
	check(fal_sched_evaluated(sched, now, 2, stolen, 0.1), 1, "not granted to it");
	follow_all();
	check(fal_sched_evaluated(sched, now, 1, 5, 0.1), 0, "by who left");
	uint32_t counted = 1;
	while (worker[2].evals > 0) {
		uint32_t t = worker[2].eval[--worker[2].evals];
		check(fal_sched_evaluated(sched, now, 2, t, 0.1), 1, "evaluated");
		follow_all();
		counted++;
	}
	check(counted, 6, "counted");
	check(fal_sched_eval_done(sched), 1, "done");
}

/* A worker's eval tasks are its own when its slot is another one. */
static void
eval_tasks_outlive_a_slot(void **state)
{
	(void)state;
	begin("epsp", 0.25);
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 1, 1, 1);
	check(fal_sched_eval(sched, now, 12), 0, "eval");
	follow_all();
	uint32_t mine = worker[3].evals;
	assert_true(mine > 0);
	check(fal_sched_leave(sched, now, 1), 0, "leave");
	follow_all();
	open_clock(0, 2);
	check(sched->workers, 2, "slots");
	check(sched->worker[1].id, 3, "the second slot's worker");
	check(sched->worker[1].evals, mine, "eval tasks that it holds");
	for (uint32_t i = 1; i <= mine; i++) {
		uint32_t t = worker[3].eval[mine - i];
		check(fal_sched_evaluated(sched, now, 3, t, 0.1), 1, "evaluated");
		check(sched->worker[1].evals, mine - i, "eval tasks left");
	}
	check(fal_sched_leave(sched, now, 3), 0, "leave");
}

/* Evaluates all that worker `id` has; time passes, the others answer when asked. */
static void
evaluate_all(uint32_t id)
{
	for (uint32_t i = 0; i < 1000 && !fal_sched_eval_done(sched); i++) {
		while (worker[id].evals > 0) {
			uint32_t t = worker[id].eval[--worker[id].evals];
			now += 0.025;
			check(fal_sched_evaluated(sched, now, id, t, 0.025) >= 0, 1,
			      "evaluated");
			follow_all();
		}
		double wake = fal_sched_wake(sched);
		if (wake == INFINITY)
			break;
		now = fmax(now, wake);
		check(fal_sched_tick(sched, now), 0, "tick");
		follow_all();
		hear(1);
		hear(2);
	}
	check(fal_sched_eval_done(sched), 1, "evaluation done");
}

/* It answers, but evaluates nothing: others do it, until it does or a clock opens. */
static void
idle_talk_evaluates_nothing(void **state)
{
	(void)state;
	begin("epsp", 0.25);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	check(fal_sched_eval(sched, now, 16), 0, "eval");
	follow_all();
	assert_true(worker[1].evals > 0);
	uint32_t had = worker[1].evals;
	evaluate_all(2);
	check(info(1).suspected, 0, "suspected");
	check(worker[1].evals, had, "what the talker was given");
	assert_true(now < 2);
	check(fal_sched_eval(sched, now, 16), 0, "eval");
	follow_all();
	check(worker[1].evals, had, "of the next evaluation");
	check(fal_sched_evaluated(sched, now, 1, worker[1].eval[0], 0.1), 1, "one");
	follow_all();
	assert_true(worker[1].evals > had); /* it is trusted again */
	had = worker[1].evals;
	evaluate_all(2);
	check(worker[1].evals, had, "what it was given until it was late again");
	open_clock(0, 2);
	fal_sched_close(sched, now);
	check(fal_sched_eval(sched, now, 16), 0, "eval");
	follow_all();
	assert_true(worker[1].evals > had); /* a clock was opened */
	evaluate_all(2);
}

/* Alone, it keeps what it has: nobody would do it sooner. */
static void
slow_evaluation_alone(void **state)
{
	(void)state;
	begin("epsp", 0.25);
	join(1, 1, 1, 0.1);
	check(fal_sched_eval(sched, now, 4), 0, "eval");
	follow_all();
	uint32_t had = worker[1].evals;
	for (uint32_t i = 1; i <= 5; i++) {
		tick_until(FAL_ACT_PING, i);
		hear(1);
	}
	check(worker[1].evals, had, "eval tasks");
	check(sched->worker[0].evals, had, "eval tasks that it holds");
}

/* --- nonsense
 * ---------------------------------------------------------------------------- */

static void
nonsense_is_refused(void **state)
{
	(void)state;
	struct fal_sched *other;
	struct fal_sched_conf conf = { .scheme = "psychic" };
	check(fal_sched_new(&conf, &other), FAL_EINVAL, "unknown scheme");
	check(fal_scheme_known("psychic"), 0, "known");
	check(fal_scheme_known("epsp"), 1, "known");
	begin("epsp", 0);
	check(join(1, 0, 1, 1), FAL_EINVAL, "no lanes");
	check(join(1, FAL_LANES_MAX + 1, 1, 1), FAL_EINVAL, "too many lanes");
	check(join(1, 1, 0, 1), FAL_EINVAL, "no cores");
	check(join(1, FAL_LANES_MAX, UINT32_MAX, 1e9), 0, "the most");
	check(join(1, 1, 1, 1), FAL_EINVAL, "an id again");
	struct fal_join bad = { 0, 1, 1, 1, 1, 0 };
	check(fal_sched_join(sched, now, &bad), FAL_EINVAL, "id 0");
	bad.id = UINT32_MAX;
	check(fal_sched_join(sched, now, &bad), FAL_EINVAL, "the largest id");
	check(claim_as(1, 0, 1, none, 1), 0, "no clock is open");
	open_clock(3, 2);
	check(claim_as(5, 0, 1, none, 1), 0, "an unknown worker");
	check(claim_as(1, 2, 1, none, 1), FAL_EINVAL, "no such task");
	check(claim_as(1, UINT32_MAX, 1, none, 1), FAL_EINVAL, "the largest task");
	check(claim_nonfinite(1, 2), FAL_EINVAL, "no such task, non-finite");
	struct fal_claim_in late = { .worker = 1, .clock = 2, .seq = 1 };
	check(fal_sched_claim(sched, now, &late), 0, "another clock");
	check(claim_as(1, 0, UINT32_MAX, none, 1.8e10), 1, "after 570 years");
	fal_sched_arrived(sched, now, (struct fal_cid){ 1, 1 }, 1, true);
	assert_null(fal_sched_contrib(sched, (struct fal_cid){ 1, 1 }));
	fal_sched_rtt(sched, 7, 1);
	check(fal_sched_charge(sched, now, 7, "why"), 0, "an unknown one is charged");
	check(fal_sched_ledger(sched)->claimed, 1, "claimed");
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		TEST(shares_minimise_the_latest_finish),
		TEST(standby_and_trial),
		TEST(silent_puller_gets_less),
		TEST(straggler_gives_its_tail),
		TEST(equals_keep_their_tasks),
		TEST(last_task_is_cloned),
		TEST(bsp_is_static),
		TEST(leave_is_filled),
		TEST(slots_are_used_again),
		TEST(silence_is_suspected),
		TEST(answers_are_believed),
		TEST(claims_do_not_exceed_grants),
		TEST(granted_again_is_claimed_again),
		TEST(nonfinite_twice_stops),
		TEST(nonfinite_alone),
		TEST(nonfinite_again_decides_nothing),
		TEST(second_charge_evicts),
		TEST(lanes_follow_the_projection),
		TEST(lanes_that_help_stay),
		TEST(many_lanes_are_cheap),
		TEST(eval_is_for_who_would_wait),
		TEST(eval_tasks_come_back),
		TEST(eval_tasks_outlive_a_slot),
		TEST(idle_talk_evaluates_nothing),
		TEST(slow_evaluation_alone),
		TEST(nonsense_is_refused),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
