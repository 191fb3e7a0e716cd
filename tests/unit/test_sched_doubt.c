/* Workers that lie or err where rounds have owners; clocks that are collected as a whole
 * while nobody is there; what a group's round weighs. */
#include "sched_play.h"

#include "sched/trial.h"

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
	struct fal_claim_in c = { .worker = worker,
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
	play_check(fal_sched_allow(play.s, 0, 10), 0, "allow");
	play_follow_all();
	struct fal_round *mine = open_round(0), *other = open_round(1);
	play_check(mine->owner, 1, "owner");
	play_check(claim(2, mine, mine->ledger.first, false), FAL_ESTATE,
		   "a claim of it");
	play_check(claim(2, mine, mine->ledger.first, true), FAL_ESTATE,
		   "no result of it");
	play_check(mine->ledger.claimed, 0, "claimed");
	play_check(claim(2, other, other->ledger.first, false), 1, "a claim of its own");
}

/* Worker `a` makes no result of its round's first task, twice: which others get then. All
 * of its own done, `b` has that round. */
static struct fal_round *
pass_on(uint32_t a, uint32_t b)
{
	const struct fal_round *bad = play_its(a)->team->rounds;
	const uint64_t clock = bad->clock, id = bad->id;
	const uint32_t task = bad->ledger.first, tasks = bad->ledger.tasks;
	const uint64_t back = play.tasks[FAL_FATE_ABANDON];
	play_check(claim(a, bad, task, true), 0, "the first time");
	play_check(play_its(a)->team->rounds->id == id, 1, "it goes on");
	play_check(claim(a, bad, task, true), 0, "the second time");
	play_check(play.acts[FAL_ACT_STOP], 0, "one worker ends no job");
	play_check(play.tasks[FAL_FATE_ABANDON] - back, tasks, "tasks that came back");
	struct fal_round *own = play_its(b)->team->rounds;
	for (uint32_t i = 0; i < own->ledger.tasks; i++)
		play_check(claim(b, own, own->ledger.first + i, false), 1, "own");
	fal_sched_arrived(play.s, play.now, own->id, (struct fal_cid){ b, 1 }, 1, true);
	play_check(fal_sched_complete(play.s, play.now, own->id), 0, "complete");
	play_follow_all();
	struct fal_round *again = play_its(b)->team->rounds;
	assert_non_null(again);
	play_check(again->clock == clock && again->ledger.first == task, 1,
		   "the same tasks");
	return again;
}

/* Whoever was wrong is charged, but where there are three keys not for the word of one;
 * only when another one errs, too, the job ends. */
static void
test_doubt(void **state)
{
	(void)state;
	for (int keys = 2; keys < 4; keys++) {
		play_job("asp", 20, 16);
		for (int i = 0; i < keys; i++)
			play_join(1);
		play_check(fal_sched_allow(play.s, 0, 20), 0, "allow");
		play_follow_all();
		struct fal_round *again = pass_on(1, 2);
		play_check(claim(2, again, again->ledger.first, false), 1, "a result");
		play_check(play_its(1)->charges, keys == 2, "charges of the first");
		play_check(play_its(2)->charges, 0, "charges of the other");
		if (keys == 3) {
			again = pass_on(1, 3);
			play_check(claim(3, again, again->ledger.first, false), 1,
				   "a result of the third");
			play_check(play_its(1)->charges, 1, "charges after that");
		}
		play_end(NULL);
	}
	play_job("asp", 10, 16);
	play_join(1);
	play_join(1);
	play_check(fal_sched_allow(play.s, 0, 10), 0, "allow");
	play_follow_all();
	struct fal_round *again = pass_on(1, 2);
	play_check(claim(2, again, again->ledger.first, true), 0, "the first time");
	play_check(claim(2, again, again->ledger.first, true), 0, "the second time");
	play_check(play.acts[FAL_ACT_STOP], 1, "two workers end the job");
}

/* The first task that the worker holds, if any: it makes no result, or one. */
static void
say_of_next(uint32_t worker, bool nonfinite)
{
	const struct fal_worker *w = play_its(worker);
	if (w->head == NULL)
		return;
	const struct fal_round *r = w->head->round;
	const uint32_t task = w->head->task;
	play_forget(&play.worker[worker], r->id, task, 1);
	const uint64_t id = r->id;
	play_check(claim(worker, r, task, nonfinite), !nonfinite, "claim");
	struct fal_round_info is;
	if (!fal_sched_round(play.s, id, &is) || is.owner != worker ||
	    is.ledger->claimed < is.tasks)
		return;
	fal_sched_arrived(play.s, play.now, id, (struct fal_cid){ worker, 1 }, 1, true);
	play_check(fal_sched_complete(play.s, play.now, id), 0, "complete");
	play_follow_all();
}

static void
deny(uint32_t worker)
{
	say_of_next(worker, true);
}

static void
accept(uint32_t worker)
{
	say_of_next(worker, false);
}

/* A key that is alone with its word ends no job before another one could have come;
 * whoever comes by then decides.  Its sessions may be several. */
static void
test_alone(void **state)
{
	(void)state;
	for (int run = 0; run < 8; run++) {
		const uint32_t liars = 1 + (run & 1);
		const bool comes = run & 2;
		const char *scheme = run & 4 ? "asp" : "bsp";
		play_job(scheme, 10, 16);
		fal_sched_alone(play.s, 300);
		for (uint32_t i = 0; i < liars; i++)
			play_join_as(1, 7);
		play_check(fal_sched_allow(play.s, 0, 10), 0, "allow");
		play_follow_all();
		for (int minute = 0; minute < 5; minute++, play.now += 60)
			for (int i = 0; i < 40; i++)
				deny(1 + (uint32_t)i % liars);
		play_check(play.acts[FAL_ACT_STOP], 0, "one key ends no job");
		if (comes) {
			play_join_as(1, 8);
			play_follow_all();
			play.now = 400;
			for (int i = 0; i < 40 && play.acts[FAL_ACT_EVICT] == 0; i++) {
				deny(1 + (uint32_t)i % liars);
				accept(liars + 1);
			}
			play_at_least((double)play.acts[FAL_ACT_CHARGE], 1, "charges");
		} else {
			for (int i = 0; i < 2; i++)
				deny(1);
		}
		play_check(play.acts[FAL_ACT_STOP] > 0, !comes, "the job has ended");
		if (run < 7)
			play_end(NULL);
	}
}

static struct fal_act lone;

static void
see_lone(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_ALONE)
		lone = *a;
}

/* What is said first is told, and once that nobody else is here, for how long; not how
 * often it is said again. */
static void
test_told(void **state)
{
	(void)state;
	for (int run = 0; run < 4; run++) {
		const uint32_t liars = 1 + (run & 1);
		struct fal_lone is;
		play_job(run & 2 ? "asp" : "bsp", 1, 1);
		play.on_act = see_lone;
		fal_sched_alone(play.s, 300);
		for (uint32_t i = 0; i < liars; i++)
			play_join_as(1, 7);
		play.now = 5;
		play_check(fal_sched_allow(play.s, 5, 1), 0, "allow");
		play_follow_all();
		play_check(fal_sched_lone(play.s, &is), false, "before anything is said");
		for (int i = 0; i < 40; i++, play.now += 1)
			deny(1 + (uint32_t)i % liars);
		play_check(play.acts[FAL_ACT_DOUBT], liars, "first words");
		play_check(play.acts[FAL_ACT_ALONE], 1, "times told that it is alone");
		play_near(lone.seconds, 300, 40, "seconds");
		play_check(fal_sched_lone(play.s, &is), true, "it waits");
		play_near(is.until, 305, 5, "until");
		play_check(is.task, 0, "task");
		play_join_as(1, 8);
		play_follow_all();
		play_check(fal_sched_lone(play.s, &is), false, "another key is here");
		for (int i = 0; i < 8; i++) {
			deny(1 + (uint32_t)i % liars);
			accept(liars + 1);
		}
		play_check(play.acts[FAL_ACT_STOP], 0, "the job has ended");
		play_at_least((double)play.acts[FAL_ACT_CHARGE], 1, "charges");
		if (run < 3)
			play_end(NULL);
	}
}

/* A key that is alone with its word since all others are suspected: they are back, with
 * no clock to be tried in, and decide. */
static void
test_suspected(void **state)
{
	static const char *const scheme[] = { "bsp", "asp", "groups:2,mode=delta" };
	(void)state;
	for (int run = 0; run < 6; run++) {
		const bool speaks = run & 1;
		play_job(scheme[run / 2], 10, 16);
		fal_sched_alone(play.s, 300);
		play_join_as(1, 7);
		play_join_as(1, 8);
		play_check(fal_sched_allow(play.s, 0, 10), 0, "allow");
		play_follow_all();
		play_check(fal_suspect(play.s, play_its(2), play.now, play.now), 0,
			   "suspect");
		play.now = 1;
		if (speaks)
			play_check(fal_sched_heard(play.s, play.now, 2), 0, "heard");
		play_follow_all();
		for (int i = 0; i < 40 && play.acts[FAL_ACT_CHARGE] == 0; i++) {
			if (!speaks && i == 20)
				play_check(fal_sched_heard(play.s, play.now, 2), 0,
					   "heard after all");
			deny(1);
			if (play_its(2)->head != NULL)
				accept(2);
		}
		play_check(play.acts[FAL_ACT_STOP], 0, "one key ends no job");
		play_check(play_its(1)->charges > 0, 1, "the first is charged");
		play_check(play_its(2)->charges, 0, "charges of the other");
		if (run < 5)
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
	play_check(fal_sched_allow(play.s, play.now, 4), 0, "allow");
	play_follow_all();
	while (!stopped && !fal_sched_done(play.s) && play_step(until)) {
		for (; gone < evictions; gone++)
			play_leave(evicted[gone]);
		/* Somebody says something now and again. */
		for (uint32_t id = 1; id <= play.last_id; id++)
			if (play.worker[id].id != 0)
				play_check(fal_sched_heard(play.s, play.now, id), 0,
					   "heard");
		play_follow_all();
	}
}

/* Keys that hang, deny and keep what they have: with an honest one the job is done, and
 * without it has failed, both soon. */
static void
test_bad_company(void **state)
{
	static const char *const scheme[] = { "bsp",      "epsp",
					      "epsp:2",   "asp",
					      "ssp:0",    "ssp:2",
					      "flexrr:0", "flexrr:2",
					      "syncopt",  "consgd:2",
					      "dynsgd:2", "wbsp",
					      "groups:2", "groups:2,mode=delta" };
	enum { RUNS = 20 };
	const uint32_t schemes = sizeof(scheme) / sizeof(scheme[0]);
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
		fal_sched_alone(play.s, 300);
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
		if (!honest && (keeps || !denies)) { /* waits, and says so */
			play_end(NULL);
			continue;
		}
		if (honest)
			play_join_as(1 + 4 * (double)fal_rng_unit(&rng), 99);
		play_to_end(1500);
		snprintf(what, sizeof(what), "run %u, %s, %u bad, %s", run,
			 scheme[run % schemes], bad, honest ? "one honest" : "alone");
		if (honest)
			play_check(fal_sched_done(play.s), true, what);
		else
			play_check(stopped, true, what);
		play_at_least(honest ? 1000 : 700, play.now, what);
		play_end(NULL);
	}
}

/* ssp:0 is bsp also when nobody is there for a while: no update of half a clock. */
static void
test_no_half_clock(void **state)
{
	(void)state;
	play_job("ssp:0", 3, 16);
	play_join(1);
	play_join(1);
	play_check(fal_sched_allow(play.s, 0, 3), 0, "allow");
	play_follow_all();
	struct fal_round *one = open_round(0);
	for (uint32_t i = 0; i < 8; i++)
		play_check(claim(1, one, one->ledger.first + i, false), 1, "claim");
	fal_sched_arrived(play.s, play.now, one->id, (struct fal_cid){ 1, 1 }, 1, true);
	play_check(fal_sched_complete(play.s, play.now, one->id), 0, "complete");
	play_follow_all();
	play_leave(1);
	play_leave(2);
	play_check(play.acts[FAL_ACT_STEP], 0, "steps while nobody is there");
	play_check(fal_sched_quiet(play.s), false, "quiet");
	play_join(1);
	play_run(3, 100);
	play_check(play.acts[FAL_ACT_STEP], 3, "steps");
	play_check(fal_sched_done(play.s), true, "done");
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
	play_check(fal_sched_done(play.s), true, "done");
	play_near(weights, 40, 1e-9, "weights of 40 clocks");
	play_near(divisor, 0, 0, "divisor of a step");
	play_at_least(least, 20, "tasks of the smallest round");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_another_ones_task, play_end),
		cmocka_unit_test_teardown(test_doubt, play_end),
		cmocka_unit_test_teardown(test_alone, play_end),
		cmocka_unit_test_teardown(test_told, play_end),
		cmocka_unit_test_teardown(test_suspected, play_end),
		cmocka_unit_test(test_bad_company),
		cmocka_unit_test_teardown(test_no_half_clock, play_end),
		cmocka_unit_test_teardown(test_groups_weights, play_end),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
