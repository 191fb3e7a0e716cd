/* Workers that lie or err where rounds have owners; clocks that are collected as a whole
 * while nobody is there; what a group's round weighs. */
#include "sched_play.h"

#include "sched/state.h"

/* Round `i` of the open ones. */
static struct fal_round *
open_round(uint32_t i)
{
	struct fal_round *r = play.s->oldest;
	play_at_least(play.s->rounds, i + 1, "open rounds");
	while (i-- > 0)
		r = r->newer;
	return r;
}

static int
claim(uint32_t worker, const struct fal_round *r, uint32_t task, bool nonfinite)
{
	static uint32_t seq = 1000; /* beyond those of sched_play.h */
	struct fal_claim_report c = { .worker = worker,
				      .round = r->id,
				      .task = task,
				      .seq = ++seq,
				      .nonfinite = nonfinite };
	int won = fal_sched_claim(play.s, play.now, &c);
	play_follow_all();
	return won;
}

/* Whoever claims a task of another one's round breaks the protocol; nothing changes. */
static void
test_another_ones_task(void **state)
{
	(void)state;
	play_job("asp", 10, 16);
	play_join(1);
	play_join(1);
	fal_sched_set_clock_limit(play.s, 0, 10);
	play_follow_all();
	struct fal_round *mine = open_round(0), *other = open_round(1);
	play_check(mine->info.owner, 1, "owner");
	play_check(claim(2, mine, mine->ledger.first, false), FAL_ESTATE,
		   "a claim of it");
	play_check(claim(2, mine, mine->ledger.first, true), FAL_ESTATE,
		   "no result of it");
	play_check(mine->ledger.claimed, 0, "claimed");
	play_check(claim(2, other, other->ledger.first, false), 1, "a claim of its own");
}

/* Worker `a` makes no result of its round's first task, which others get then.  All of
 * its own done, `b` has that round. */
static struct fal_round *
pass_on(uint32_t a, uint32_t b)
{
	const struct fal_round *bad = play_its(a)->team->rounds;
	const uint64_t clock = bad->info.clock;
	const uint32_t task = bad->ledger.first, tasks = bad->ledger.tasks;
	const uint64_t back = play.tasks[FAL_FATE_RETRY];
	play_check(claim(a, bad, task, true), 0, "no result");
	play_check(play.acts[FAL_ACT_STOP], 0, "one worker ends no job");
	play_check(play.tasks[FAL_FATE_RETRY] - back, tasks, "tasks that came back");
	struct fal_round *own = play_its(b)->team->rounds;
	for (uint32_t i = 0; i < own->ledger.tasks; i++)
		play_check(claim(b, own, own->ledger.first + i, false), 1, "own");
	fal_sched_note_blocks(play.s, play.now, own->id, (struct fal_contrib_id){ b, 1 },
			      1, true);
	fal_sched_note_complete(play.s, play.now, own->id);
	play_follow_all();
	struct fal_round *again = play_its(b)->team->rounds;
	assert_non_null(again);
	play_check(again->info.clock == clock && again->ledger.first == task, 1,
		   "the same tasks");
	return again;
}

static void
begin_retry(const char *scheme, uint32_t keys, bool skips)
{
	play_job(scheme, 20, 16);
	play.s->conf.skips = skips;
	for (uint32_t i = 0; i < keys; i++)
		play_join_as(1, 7 + i);
	fal_sched_set_clock_limit(play.s, 0, 20);
	play_follow_all();
}

/* Another key retries the task of a round that was one worker's; only when that has no
 * result either the job ends, or the task is skipped.  Nobody is charged. */
static void
test_retry(void **state)
{
	(void)state;
	for (int run = 0; run < 4; run++) {
		const bool skips = run & 1, finite = run & 2;
		begin_retry("asp", 2, skips);
		struct fal_round *again = pass_on(1, 2);
		play_check(claim(2, again, again->ledger.first, !finite), finite,
			   "the retry");
		play_check(play.acts[FAL_ACT_STOP], !finite && !skips, "stops");
		play_check(play.acts[FAL_ACT_SKIP], !finite && skips, "skips");
		play_check(play.acts[FAL_ACT_CHARGE], 0, "charges");
		play_check(play.acts[FAL_ACT_NONFINITE], finite ? 1 : 2, "told");
		if (run < 3)
			play_end(NULL);
	}
}

static const struct fal_round *
round_of(uint32_t worker, uint32_t task)
{
	const struct fal_round *r = play_its(worker)->team->rounds;
	while (r != NULL && r->ledger.first != task)
		r = r->next;
	assert_non_null(r);
	return r;
}

/* A worker that begins two rounds at once does not get the task again of which it had no
 * result, though older tasks came back before it. */
static void
test_two_rounds_at_once(void **state)
{
	(void)state;
	play_job("rennala:16", 20, 16);
	for (int i = 0; i < 3; i++)
		play_join(1);
	fal_sched_set_clock_limit(play.s, 0, 20);
	play_follow_all();
	const struct fal_round *over = round_of(1, 0);
	play_check(claim(1, over, 0, false), 1, "its first task");
	fal_sched_note_blocks(play.s, play.now, over->id, (struct fal_contrib_id){ 1, 1 },
			      1, true);
	fal_sched_note_complete(play.s, play.now, over->id);
	play_follow_all();
	for (uint32_t task = 4; task < 6; task++)
		play_check(claim(3, round_of(3, task), task, true), 0, "no result");
	play_leave(1);
	const struct fal_team *t = play_its(3)->team;
	play_check(t->open, 1, "rounds");
	play_check(t->rounds->ledger.first, 1, "the task of the one that left");
}

/* A round ends before the next task to be retried: its worker may be the one that had no
 * result. */
static void
test_round_to_retry(void **state)
{
	(void)state;
	play_job("asp", 20, 16);
	for (int i = 0; i < 3; i++)
		play_join(1);
	fal_sched_set_clock_limit(play.s, 0, 20);
	play_follow_all();
	const struct fal_round *one = play_its(1)->team->rounds;
	play_forget(&play.worker[1], one->id, 3, 1);
	play_check(claim(1, one, 3, true), 0, "no result");
	one = play_its(1)->team->rounds;
	play_check(one->ledger.first, 0, "its next round");
	play_check(one->ledger.tasks, 3, "tasks");
	const struct fal_round *two = play_its(2)->team->rounds;
	const uint32_t first = two->ledger.first;
	play_forget(&play.worker[2], two->id, first, 1);
	play_check(claim(2, two, first, true), 0, "no result");
	two = play_its(2)->team->rounds;
	play_check(two->ledger.first, 3, "the other one's retry");
	play_check(two->ledger.tasks, first - 3, "tasks");
}

/* The first task that the worker holds, if any: it makes no result. */
static void
deny(uint32_t worker)
{
	const struct fal_worker *w = play_its(worker);
	if (w->head == NULL)
		return;
	const struct fal_round *r = w->head->round;
	const uint32_t task = w->head->task;
	play_forget(&play.worker[worker], r->id, task, 1);
	play_check(claim(worker, r, task, true), 0, "claim");
}

/* Another session retries where all have one key; a worker that is alone does so
 * itself. */
static void
test_alone(void **state)
{
	(void)state;
	for (int run = 0; run < 4; run++) {
		const uint32_t sessions = 1 + (run & 1);
		play_job(run & 2 ? "asp" : "bsp", 10, 1);
		for (uint32_t i = 0; i < sessions; i++)
			play_join_as(1, 7);
		fal_sched_set_clock_limit(play.s, 0, 10);
		play_follow_all();
		const uint32_t first = play_its(1)->head != NULL ? 1 : 2;
		deny(first);
		play_check(play.acts[FAL_ACT_STOP], 0, "one word ends no job");
		play_check(play_its(first)->head != NULL &&
				   play_its(first)->head->round->info.clock == 0,
			   sessions == 1, "it retries its own");
		if (sessions == 2 &&
		    run & 2) { /* the other one has its own to do first */
			play_check(play_its(first)->head == NULL, 1, "it waits");
			play_end(NULL);
			continue;
		}
		deny(sessions == 1 ? 1 : 3 - first);
		play_check(play.acts[FAL_ACT_STOP], 1, "two do");
		if (run < 3)
			play_end(NULL);
	}
}

static bool stopped;
static uint32_t evicted[PLAY_WORKERS], evictions;

static void
see_end(const struct fal_act *a)
{
	stopped |= a->kind == FAL_ACT_STOP;
	if (a->kind == FAL_ACT_EVICT && evictions < PLAY_WORKERS)
		evicted[evictions++] = a->worker;
}

/* Until the job is over, well or not, or to `until`. */
static void
play_to_end(double until)
{
	uint32_t gone = 0;
	fal_sched_set_clock_limit(play.s, play.now, 4);
	play_follow_all();
	while (!stopped && !fal_sched_is_done(play.s) && play_step(until)) {
		for (; gone < evictions; gone++)
			play_leave(evicted[gone]);
		/* Somebody says something now and again. */
		for (uint32_t id = 1; id <= play.last_id; id++)
			if (play.worker[id].id != 0)
				fal_sched_note_message(play.s, play.now, id);
		play_follow_all();
	}
}

/* Keys that hang, deny and keep what they have: with an honest one nine jobs in ten are
 * done, as it may be suspected just when its retry is wanted; all others have failed, and
 * all end soon. */
static void
test_bad_company(void **state)
{
	static const char *const scheme[] = { "bsp",       "epsp",
					      "epsp:2",    "asp",
					      "ssp:0",     "ssp:2",
					      "flexrr:0",  "flexrr:2",
					      "syncopt",   "consgd:2",
					      "dynsgd:2",  "wbsp",
					      "groups:2",  "groups:2,mode=delta",
					      "rennala:3", "ringmaster:2" };
	enum { RUNS = 20 };
	const uint32_t schemes = sizeof(scheme) / sizeof(scheme[0]);
	uint32_t ended = 0, of = 0;
	(void)state;
	for (uint32_t run = 0; run < RUNS * schemes; run++) {
		struct fal_rng rng = fal_rng_init(run, FAL_RNG_TEST, 0);
		const uint32_t bad = 1 + fal_rng_below(&rng, 5);
		const bool honest = fal_rng_below(&rng, 2) > 0;
		bool denies = false, keeps = false;
		char what[128];
		play_job(scheme[run % schemes], 4, 4 + fal_rng_below(&rng, 20));
		play.on_act = see_end;
		play.task_s = 0.5;
		stopped = false;
		evictions = 0;
		for (uint32_t i = 0; i < bad; i++) {
			const uint32_t fault = 1 + fal_rng_below(&rng, 3);
			denies |= fault == PLAY_DENIES;
			keeps |= fault == PLAY_KEEPS;
			/* Two keys that deny would be believed. */
			play_join_as(1 + 4 * (double)fal_rng_unit(&rng),
				     fault == PLAY_DENIES ? 7
							  : 8 + fal_rng_below(&rng, bad));
			play.worker[play.last_id].fault = (enum play_fault)fault;
		}
		if (!honest && (keeps || !denies)) { /* may wait for ever */
			play_end(NULL);
			continue;
		}
		if (honest)
			play_join_as(1 + 4 * (double)fal_rng_unit(&rng), 99);
		play_to_end(1500);
		snprintf(what, sizeof(what), "run %u, %s, %u bad, %s", run,
			 scheme[run % schemes], bad, honest ? "one honest" : "alone");
		const bool done = fal_sched_is_done(play.s);
		play_check(stopped || (honest && done), true, what);
		of += honest;
		ended += honest && done;
		play_at_least(honest ? 1000 : 700, play.now, what);
		play_end(NULL);
	}
	printf("# with an honest one %u of %u are done\n", ended, of);
	play_at_least(ended, 0.9 * of, "jobs that are done");
}

/* ssp:0 is bsp also when nobody is there for a while: no update of half a clock. */
static void
test_no_half_clock(void **state)
{
	(void)state;
	play_job("ssp:0", 3, 16);
	play_join(1);
	play_join(1);
	fal_sched_set_clock_limit(play.s, 0, 3);
	play_follow_all();
	struct fal_round *one = open_round(0);
	for (uint32_t i = 0; i < 8; i++)
		play_check(claim(1, one, one->ledger.first + i, false), 1, "claim");
	fal_sched_note_blocks(play.s, play.now, one->id, (struct fal_contrib_id){ 1, 1 },
			      1, true);
	fal_sched_note_complete(play.s, play.now, one->id);
	play_follow_all();
	play_leave(1);
	play_leave(2);
	play_check(play.acts[FAL_ACT_STEP], 0, "steps while nobody is there");
	play_check(fal_sched_is_quiet(play.s), false, "quiet");
	play_join(1);
	play_run(3, 100);
	play_check(play.acts[FAL_ACT_STEP], 3, "steps");
	play_check(fal_sched_is_done(play.s), true, "done");
}

static double divisor, weights;
static uint32_t least;

static void
see_weights(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_STEP)
		divisor = fmax(divisor, fabs(a->divisor - 64));
	if (a->kind != FAL_ACT_END || a->fate != FAL_FATE_MERGE)
		return;
	struct fal_round_info r = play_round(a->round);
	weights += a->weight;
	least = r.tasks < least ? r.tasks : least;
}

/* Three groups of one share 64 tasks: a clock's weights add up to 1, no round is a scrap,
 * and each counts by its tasks. */
static void
test_groups_weights(void **state)
{
	(void)state;
	divisor = weights = 0;
	least = UINT32_MAX;
	play_job("groups:3", 40, 64);
	play.on_act = see_weights;
	for (int i = 0; i < 3; i++)
		play_join(1);
	play_run(40, 1000);
	play_check(fal_sched_is_done(play.s), true, "done");
	play_near(weights, 40, 1e-9, "weights of 40 clocks");
	play_near(divisor, 0, 0, "divisor of a step");
	play_at_least(least, 20, "tasks of the smallest round");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_another_ones_task, play_end),
		cmocka_unit_test_teardown(test_retry, play_end),
		cmocka_unit_test_teardown(test_two_rounds_at_once, play_end),
		cmocka_unit_test_teardown(test_round_to_retry, play_end),
		cmocka_unit_test_teardown(test_alone, play_end),
		cmocka_unit_test(test_bad_company),
		cmocka_unit_test_teardown(test_no_half_clock, play_end),
		cmocka_unit_test_teardown(test_groups_weights, play_end),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
