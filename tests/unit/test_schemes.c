/* The schemes' laws: asp, ssp, syncopt, consgd, dynsgd, and exactly-once for all. */
#include "sched_play.h"

enum { FOREVER = 100000 };

static struct {
	uint64_t most_ahead, steps, merged, merged_tasks, clock;
	uint64_t local, pulled;                 /* rounds by how they began */
	uint64_t cached[PLAY_WORKERS + 1];      /* slowest clock at the last pull + 1 */
	uint64_t slot[FOREVER], below;          /* arrivals in each slot */
	double opened[PLAY_WORKERS + 1], ended; /* when */
	uint64_t stale;                         /* rounds with staleness in updates */
	double weight;
	uint64_t abandoned, revoked;
	uint32_t share[PLAY_WORKERS + 1]; /* tasks of the newest clock */
} seen;

static int
clean(void **state)
{
	memset(&seen, 0, sizeof(seen));
	return play_end(state);
}

/* --- bsp ------------------------------------------------------------------------- */

static void
share_act(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_OPEN)
		memset(seen.share, 0, sizeof(seen.share));
	if (a->kind == FAL_ACT_GRANT)
		seen.share[a->worker] += a->count;
}

/* shares=speed: in proportion to what was measured, the largest rests one more, at least
 * one each; and nothing moves in a clock in which speeds change. */
static void
test_bsp_speed(void **state)
{
	static const double slow[] = { 1, 1, 2, 4, 100 };
	static const uint32_t first[] = { 13, 13, 13, 13, 12 };
	static const uint32_t share[] = { 23, 23, 11, 6, 1 };
	(void)state;
	play_job("bsp,shares=speed", 40, 64);
	play.on_act = share_act;
	for (int i = 0; i < 5; i++)
		play_join(slow[i]);
	for (uint64_t clock = 1; clock <= 40; clock++) {
		play_run(clock, FOREVER);
		for (uint32_t i = 0; i < 5 && (clock == 1 || clock == 20); i++)
			play_check(seen.share[i + 1], (clock == 1 ? first : share)[i],
				   "share");
		if (clock == 20)
			play.worker[1].slow = 8;
	}
	play_check(seen.share[1], 4, "share of who got slow");
	play_check(play.acts[FAL_ACT_REVOKE], 0, "tasks moved");
}

/* Where there are less tasks than workers, the fastest have them. */
static void
test_bsp_speed_few(void **state)
{
	(void)state;
	play_job("bsp,shares=speed", 20, 2);
	play.on_act = share_act;
	for (int i = 0; i < 3; i++)
		play_join(i == 0 ? 4 : 1);
	play_run(20, FOREVER);
	play_check(seen.share[1], 0, "share of the slow one");
	play_check(seen.share[2], 1, "share of a fast one");
}

/* --- asp ------------------------------------------------------------------------- */

static void
asp_act(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_END)
		play_check(++seen.merged, seen.steps + 1, "rounds before a step");
	if (a->kind != FAL_ACT_STEP)
		return;
	play_check(++seen.steps, seen.merged, "steps");
	play_near(a->divisor, 64, 0, "divisor");
}

/* Each worker does what it can, whatever the others do, and each round is a step. */
static void
test_asp(void **state)
{
	(void)state;
	const double slow[] = { 1, 4, 1, 20 };
	play_job("asp", 1000, 64);
	play.on_act = asp_act;
	for (int i = 0; i < 4; i++)
		play_join(slow[i]);
	play_run(FOREVER, 10);
	for (uint32_t i = 0; i < 4; i++) {
		double round_s = 16 * play.task_s * slow[i] + 2 * play.link_s;
		double rounds = (double)play_its(i + 1)->team->clock;
		play_near(rounds, floor(10 / round_s), 1, "rounds of a worker");
	}
	play_at_least((double)seen.steps, 200, "steps");
}

/* --- rennala --------------------------------------------------------------------- */

static void
rennala_act(const struct fal_act *a)
{
	const uint32_t set = play.s->policy.rule.batch;
	if (a->kind == FAL_ACT_END && a->fate == FAL_FATE_MERGE) {
		play_check(play_round(a->round).version, seen.steps, "its version");
		seen.merged_tasks += play_round(a->round).tasks;
	}
	seen.abandoned += a->kind == FAL_ACT_END && a->fate == FAL_FATE_RETRY;
	if (a->kind != FAL_ACT_STEP)
		return;
	/* The last one of the job has what is left. */
	if (fal_sched_first_open_clock(play.s) < play.s->pool.clocks)
		play_check(seen.merged_tasks, set > 0 && set < 32 ? set : 32,
			   "tasks in a step");
	play_near(a->divisor, (double)seen.merged_tasks, 0, "divisor");
	seen.merged_tasks = 0;
	seen.steps++;
}

/* So many tasks of the newest version, whoever's, make the next one. */
static void
test_rennala(void **state)
{
	static const struct {
		const char *rule;
		uint64_t steps;
	} all[] = { { "rennala:1", 960 },
		    { "rennala:7", 138 },
		    { "rennala", 30 },
		    { "rennala:99", 30 } };
	(void)state;
	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		play_job(all[i].rule, 30, 32);
		play.on_act = rennala_act;
		for (int k = 0; k < 4; k++)
			play_join(k == 3 ? 7 : 1 + 0.3 * k);
		play_run(30, FOREVER);
		play_check(fal_sched_is_done(play.s), true, all[i].rule);
		play_check(seen.steps, all[i].steps, "steps");
		play_at_least((double)seen.abandoned, 20, "rounds that were too late");
		clean(NULL);
	}
}

static void
trial_act(const struct fal_act *a)
{
	seen.abandoned += a->kind == FAL_ACT_END && a->fate == FAL_FATE_RETRY &&
			  play_round(a->round).owner == 1 &&
			  play_its(1)->suspicion.has_task;
}

/* A trial whose round is over, as others were sooner, did not want for time: the one in
 * the last clock, for whose only task all wait, lasts no longer for that. */
static void
test_rennala_trial(void **state)
{
	enum { CLOCKS = 20, TASKS = 8 };
	const struct fal_grid grid = {
		.samples = CLOCKS * TASKS + 1, .batch = TASKS, .task = 1, .epochs = 1
	};
	(void)state;
	play_begin("rennala:1", &grid);
	for (int k = 0; k < 3; k++)
		play_join(1);
	play.worker[1].fault = PLAY_HANGS;
	play_run(1, FOREVER);
	play_check(fal_worker_is_suspect(play_its(1)), 1, "a suspect");
	play.on_act = trial_act;
	for (uint64_t clock = 2; clock <= CLOCKS; clock++) {
		fal_sched_note_message(play.s, play.now, 1);
		play_run(clock, FOREVER);
	}
	play_at_least((double)seen.abandoned, 4, "trials that were lost");
	fal_sched_note_message(play.s, play.now, 1);
	const double from = play.now;
	play_run(CLOCKS + 1, FOREVER);
	play_check(fal_sched_is_done(play.s), true, "done");
	play_at_least(0.3, play.now - from, "seconds of the last clock");
}

/* --- ringmaster ------------------------------------------------------------------ */

static void
ringmaster_act(const struct fal_act *a)
{
	const uint32_t set = play.s->policy.rule.threshold;
	const uint64_t threshold = set > 0 ? set : play.s->active;
	if (a->kind == FAL_ACT_END && a->fate == FAL_FATE_MERGE) {
		const uint64_t stale = play_round(a->round).stale_updates;
		play_at_least((double)threshold - 1, (double)stale, "updates it is old");
		seen.stale += stale + 1 == threshold;
	}
	seen.revoked += a->kind == FAL_ACT_REVOKE;
	seen.abandoned += a->kind == FAL_ACT_END && a->fate == FAL_FATE_RETRY;
}

/* Whoever is R updates late begins anew, in the middle of a task; what is one less
 * counts.
 */
static void
test_ringmaster(void **state)
{
	(void)state;
	for (uint32_t threshold = 1; threshold <= 4; threshold++) {
		char rule[16];
		snprintf(rule, sizeof(rule), "ringmaster:%u", threshold);
		play_job(rule, 1000, 64);
		play.on_act = ringmaster_act;
		for (int i = 0; i < 4; i++)
			play_join(i == 3 ? 9 : 1 + 0.3 * i);
		for (int step = 0; step < 20000; step++) {
			assert_true(play_step(FOREVER) || step == 0);
			fal_sched_set_clock_limit(play.s, play.now, FOREVER);
			play_follow_all();
			const struct fal_round *r = play.s->oldest;
			play_at_least((double)(threshold - 1),
				      (double)(play.s->version - r->info.version),
				      "updates that the oldest round is old");
		}
		play_at_least((double)seen.stale, 100, "rounds that are nearly too old");
		play_at_least((double)seen.abandoned, 100, "rounds that are too old");
		play_at_least((double)seen.revoked, 100, "ranges of tasks taken away");
		clean(NULL);
	}
}

/* As many as there are workers: equal ones drop nothing. */
static void
test_ringmaster_auto(void **state)
{
	(void)state;
	play_job("ringmaster", 100, 64);
	play.on_act = ringmaster_act;
	for (int i = 0; i < 8; i++)
		play_join(1);
	play_run(100, FOREVER);
	play_check(seen.abandoned, 0, "rounds abandoned");
}

/* --- ssp ------------------------------------------------------------------------- */

static void
ssp_act(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_OPEN) {
		uint32_t owner = play_round(a->round).owner;
		uint64_t ahead =
			play_its(owner)->team->clock - fal_slowest_clock(play.s, NULL);
		seen.most_ahead = ahead > seen.most_ahead ? ahead : seen.most_ahead;
		seen.opened[owner] = play.now;
	}
	if (a->kind == FAL_ACT_END && play_round(a->round).owner == 2)
		seen.ended = play.now;
}

static void
test_ssp_bound(void **state)
{
	(void)state;
	for (uint32_t s = 1; s <= 3; s++) {
		char rule[16];
		snprintf(rule, sizeof(rule), "ssp:%u", s);
		play_job(rule, 1000, 64);
		play.on_act = ssp_act;
		for (int i = 0; i < 4; i++)
			play_join(i == 1 ? 8 : 1);
		play_run(FOREVER, 10);
		/* It is blocked until worker 2 moves, and then no longer. */
		play_check(seen.most_ahead, s, "clocks ahead");
		play_near(seen.opened[1], seen.ended, 0,
			  "goes on when the slowest moves");
		play_check(play_its(1)->team->clock, play_its(2)->team->clock + s + 1,
			   "worker 1 waits at clock");
		clean(NULL);
	}
}

static void
wave_act(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_OPEN)
		play_check(play_round(a->round).clock, seen.steps, "clock that begins");
	if (a->kind == FAL_ACT_END) {
		play_check(a->fate, FAL_FATE_MERGE, "fate");
		seen.merged_tasks += play_round(a->round).tasks;
	}
	if (a->kind != FAL_ACT_STEP)
		return;
	play_check(seen.merged_tasks, 64, "tasks in a step");
	play_near(a->divisor, 64, 0, "divisor");
	seen.merged_tasks = 0;
	seen.steps++;
}

/* All rounds of a clock in one step, and none of the next one before. */
static void
test_ssp_0_is_bsp(void **state)
{
	(void)state;
	const char *const rules[] = { "ssp:0", "flexrr:0", "flexrr:0,steal=half" };
	for (size_t i = 0; i < 3; i++) {
		play_job(rules[i], 50, 64);
		play.on_act = wave_act;
		for (int w = 0; w < 5; w++)
			play_join(1 + w);
		play_run(50, FOREVER);
		play_check(seen.steps, 50, rules[i]);
		clean(NULL);
	}
}

/* So it is when nobody has a part of the data. */
static void
test_ssp_0_parts(void **state)
{
	(void)state;
	const struct fal_grid grid = {
		.samples = 50 * 64, .batch = 64, .task = 1, .epochs = 1, .parts = 5
	};
	play_begin("ssp:0", &grid);
	play.on_act = wave_act;
	for (int w = 0; w < 3; w++)
		play_join(1 + w);
	play_run(50, FOREVER);
	play_check(seen.steps, 50, "steps");
}

/* --- syncopt --------------------------------------------------------------------- */

static void
syncopt_act(const struct fal_act *a)
{
	struct fal_round_info r;
	if (a->kind == FAL_ACT_STEP) {
		play_check(seen.merged, 6, "rounds of a step");
		seen.steps++;
		seen.merged = 0;
		seen.ended = play.now;
	}
	if (a->kind != FAL_ACT_END)
		return;
	r = play_round(a->round);
	if (a->fate == FAL_FATE_MERGE) {
		play_check(r.version, seen.steps, "version of what is applied");
		seen.merged++;
		return;
	}
	play_check(a->fate, FAL_FATE_DROP, "fate");
	play_check(r.version, seen.steps - 1, "version of what is dropped");
	play_near(play.now, seen.ended, 0, "dropped at the step");
}

/* The first N of M make each step; the others are dropped and told, and begin anew. */
static void
test_syncopt(void **state)
{
	(void)state;
	play_job("syncopt:2", 1000, 96);
	play.on_act = syncopt_act;
	for (int i = 0; i < 8; i++)
		play_join(i < 3 ? 5 + i : 1 + 0.01 * i);
	play_run(FOREVER, 20);
	play_at_least((double)seen.steps, 40, "steps");
	play_at_least((double)play.acts[FAL_ACT_REVOKE], 40, "revokes");
	/* Two of eight, but for the version that is under way. */
	play_near((double)play.tasks[FAL_FATE_DROP] * 3,
		  (double)play.tasks[FAL_FATE_MERGE], 6 * 16, "a quarter is dropped");
	for (uint32_t id = 1; id <= 8; id++)
		play_check(play_its(id)->team->version, seen.steps,
			   "they are on version");
}

static void
test_syncopt_auto(void **state)
{
	(void)state;
	const struct {
		uint32_t workers, n;
	} is[] = { { 1, 1 }, { 2, 1 }, { 8, 7 }, { 29, 28 }, { 30, 28 }, { 60, 57 } };
	struct fal_policy policy = { .rule = { .scheme = FAL_SYNCOPT,
					       .backups = FAL_BACKUPS_AUTO } };
	struct fal_sched s = { .policy = policy };
	for (size_t i = 0; i < sizeof(is) / sizeof(is[0]); i++) {
		s.active = is[i].workers;
		play_check(fal_scheme_syncopt.clock_rounds(&s), is[i].n, "N");
	}
}

/* Who leaves in mid-version is not waited for. */
static void
test_syncopt_leave(void **state)
{
	(void)state;
	play_job("syncopt", 1000, 60);
	for (int i = 0; i < 4; i++)
		play_join(i == 0 ? 1 : 100);
	play_run(FOREVER, 0.5);
	play_check(play.acts[FAL_ACT_END], 1, "rounds that ended");
	play_leave(4);
	play_check(play.acts[FAL_ACT_STEP], 0, "steps while 1 of 2 came");
	play_leave(3);
	play_check(play.acts[FAL_ACT_STEP], 1, "steps when 1 of 1 came");
	play_check(play_its(2)->team->version, 1, "worker 2 is on version");
}

/* --- consgd ---------------------------------------------------------------------- */

/* After its clock c it pulls only if c is s or more after what was the slowest clock. */
static void
local_act(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_END)
		seen.weight = a->weight;
	if (a->kind != FAL_ACT_OPEN)
		return;
	struct fal_round_info r = play_round(a->round);
	uint64_t clock = play_its(r.owner)->team->clock, *cached = &seen.cached[r.owner];
	bool pull = *cached == 0 || clock - 1 - (*cached - 1) >= 2;
	play_check(r.base == FAL_START_VERSION, pull, "pulls");
	if (!pull) {
		seen.local++;
		return;
	}
	seen.pulled++;
	*cached = fal_slowest_clock(play.s, NULL) + 1;
	play_at_least((double)(*cached + 1), (double)clock, "what it pulls has clocks");
	play_check(r.version, play.s->version, "version that it pulls");
}

static void
test_local_pulls(void **state)
{
	(void)state;
	const char *const rules[] = { "consgd:2", "dynsgd:2",
				      "dynsgd:2,staleness=updates" };
	for (size_t i = 0; i < 3; i++) {
		play_job(rules[i], 500, 64);
		play.on_act = local_act;
		for (int w = 0; w < 4; w++)
			play_join(w == 0 ? 2 : 1 + 0.1 * w);
		play_run(FOREVER, 20);
		play_at_least((double)seen.local, 20, "rounds that go on by themselves");
		play_at_least((double)seen.pulled, 20, "rounds that pull");
		clean(NULL);
	}
}

static void
weight_act(const struct fal_act *a)
{
	if (a->kind != FAL_ACT_END || a->fate == FAL_FATE_RETRY)
		return;
	play_check(a->fate, FAL_FATE_ADD, "fate");
	play_near(a->weight, seen.weight, 1e-12, "weight");
	seen.merged++;
}

static void
test_consgd_weight(void **state)
{
	(void)state;
	const struct {
		const char *rule;
		double before, after; /* one worker of four left */
	} is[] = { { "consgd,lambda=0.1", 0.1, 0.1 }, { "consgd", 0.25, 1.0 / 3 } };
	for (size_t i = 0; i < 2; i++) {
		play_job(is[i].rule, 500, 64);
		play.on_act = weight_act;
		seen.weight = is[i].before;
		for (int w = 0; w < 4; w++)
			play_join(1);
		play_run(FOREVER, 1);
		seen.weight = is[i].after;
		play_leave(4);
		play_run(FOREVER, 2);
		play_at_least((double)seen.merged, 60, "rounds");
		clean(NULL);
	}
}

/* --- dynsgd ---------------------------------------------------------------------- */

static void
slots_act(const struct fal_act *a)
{
	if (a->kind != FAL_ACT_END)
		return;
	struct fal_round_info r = play_round(a->round);
	play_check(a->fate, FAL_FATE_REWEIGHT, "fate");
	play_check(a->slot, r.stale_clocks + seen.below,
		   "slot, from the oldest open one");
	play_at_least((double)a->slot, (double)seen.below, "slot");
	play_at_least((double)a->below, (double)seen.below, "slots that are closed");
	seen.slot[a->slot]++;
	seen.below = a->below;
	for (uint64_t v = 0; v < a->below; v++)
		play_check(seen.slot[v], 4, "changes in a slot that is closed");
	play_check(a->below, fal_slowest_clock(play.s, NULL),
		   "slots below the slowest clock");
}

/* A worker's v-th change is of slot v: each gets one of each worker, then is closed. */
static void
test_dynsgd_slots(void **state)
{
	(void)state;
	play_job("dynsgd:2", 200, 64);
	play.on_act = slots_act;
	for (int w = 0; w < 4; w++)
		play_join(1 + 0.5 * w);
	play_run(FOREVER, 10);
	play_at_least((double)seen.below, 30, "slots");
}

static void
updates_act(const struct fal_act *a)
{
	if (a->kind != FAL_ACT_END)
		return;
	struct fal_round_info r = play_round(a->round);
	uint64_t tau = seen.steps++ - r.version;
	play_check(a->fate, FAL_FATE_ADD, "fate");
	play_check(r.stale_updates, tau, "updates since the pull");
	play_near(a->weight, 1 / ((double)tau + 1), 1e-12, "weight");
	seen.stale += tau > 1;
}

static void
test_dynsgd_updates(void **state)
{
	(void)state;
	play_job("dynsgd:2,staleness=updates", 200, 64);
	play.on_act = updates_act;
	for (int w = 0; w < 4; w++)
		play_join(1 + 0.5 * w);
	play_run(FOREVER, 10);
	play_at_least((double)seen.stale, 30, "stale rounds");
}

/* --- all ------------------------------------------------------------------------- */

/* One worker leaves, one is new, and every task ends, once. */
static void
test_exactly_once(void **state)
{
	(void)state;
	const char *const rules[] = { "bsp",
				      "bsp,shares=speed",
				      "asp",
				      "rennala",
				      "rennala:3",
				      "ringmaster",
				      "ringmaster:1",
				      "ssp",
				      "ssp:0",
				      "epsp",
				      "epsp:2",
				      "flexrr",
				      "flexrr:0",
				      "flexrr,steal=half",
				      "syncopt",
				      "syncopt:3",
				      "consgd",
				      "dynsgd",
				      "dynsgd,staleness=updates",
				      "wbsp",
				      "wbsp,overlap=no,cap=2",
				      "wbsp,publish=slowest",
				      "groups",
				      "groups:2",
				      "groups:4",
				      "groups:3,quorum=2,grace=0.1",
				      "groups:4,mode=delta,rounds=2,quorum=3" };
	for (size_t i = 0; i < sizeof(rules) / sizeof(rules[0]); i++) {
		play_job(rules[i], 60, 100);
		for (int w = 0; w < 6; w++)
			play_join(w == 2 ? 6 : 1 + 0.3 * w);
		play_run(60, 1.03);
		play_leave(2);
		play_run(60, 1.51);
		play_leave(3);
		play_join(2);
		play_run(60, FOREVER);
		uint64_t tasks = 0;
		for (int f = 0; f <= FAL_FATE_DROP; f++)
			tasks += play.tasks[f];
		play_check(fal_sched_is_done(play.s), true, rules[i]);
		play_check(tasks, 6000, rules[i]);
		play_end(NULL);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_bsp_speed, clean),
		cmocka_unit_test_teardown(test_bsp_speed_few, clean),
		cmocka_unit_test_teardown(test_asp, clean),
		cmocka_unit_test_teardown(test_rennala, clean),
		cmocka_unit_test_teardown(test_rennala_trial, clean),
		cmocka_unit_test_teardown(test_ringmaster, clean),
		cmocka_unit_test_teardown(test_ringmaster_auto, clean),
		cmocka_unit_test_teardown(test_ssp_bound, clean),
		cmocka_unit_test_teardown(test_ssp_0_is_bsp, clean),
		cmocka_unit_test_teardown(test_ssp_0_parts, clean),
		cmocka_unit_test_teardown(test_syncopt, clean),
		cmocka_unit_test_teardown(test_syncopt_auto, clean),
		cmocka_unit_test_teardown(test_syncopt_leave, clean),
		cmocka_unit_test_teardown(test_local_pulls, clean),
		cmocka_unit_test_teardown(test_consgd_weight, clean),
		cmocka_unit_test_teardown(test_dynsgd_slots, clean),
		cmocka_unit_test_teardown(test_dynsgd_updates, clean),
		cmocka_unit_test_teardown(test_exactly_once, clean),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
