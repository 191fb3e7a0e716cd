/* What one key costs that does not do what it claims, however many sessions it has:
 * little of the time.  Two honest workers of other keys are there. */
#include "sched_play.h"

#include "sched/state.h"

enum { CLOCKS = 40000, TASKS = 12, HONEST = 2 };

static const struct attack {
	const char *name;
	enum play_fault fault;
	uint32_t sessions;
	bool again; /* whoever is suspected leaves, and comes as another session */
} attacks[] = {
	{ "keeps", PLAY_KEEPS, 1, false },
	{ "keeps, 16 sessions", PLAY_KEEPS, 16, false },
	{ "keeps, and comes again", PLAY_KEEPS, 1, true },
	{ "pushes every second time", PLAY_SECOND, 1, false },
	{ "pushes every second time, 16 sessions", PLAY_SECOND, 16, false },
	{ "drips", PLAY_DRIPS, 1, false },
	{ "drips, and comes again", PLAY_DRIPS, 1, true },
	{ "hangs", PLAY_HANGS, 16, false },
};

static uint32_t late, barred;
static double barred_s;

static void
see(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_SUSPECT)
		late = a->worker;
	if (a->kind != FAL_ACT_BARRED)
		return;
	barred++;
	barred_s = a->seconds;
}

static void
join_liar(const struct attack *a)
{
	play_join_as(1, 7);
	play.worker[play.last_id].fault = a->fault;
}

/* The next event; whoever is here says something all the while. */
static bool
step(double until)
{
	const bool more = play_step(until);
	for (uint32_t id = 1; id <= play.last_id; id++)
		if (play.worker[id].id != 0)
			fal_sched_note_message(play.s, play.now, id);
	play_follow_all();
	return more;
}

/* Clocks from second 20 on until `until`; a: NULL: nobody lies. */
static uint64_t
clocks(const char *scheme, const struct attack *a, double until)
{
	uint64_t over = 0;
	play_job(scheme, CLOCKS, TASKS);
	play.task_s = 0.01;
	play.on_act = see;
	late = barred = 0;
	for (uint32_t i = 0; i < HONEST; i++)
		play_join(1);
	for (uint32_t i = 0; a != NULL && i < a->sessions; i++)
		join_liar(a);
	fal_sched_set_clock_limit(play.s, play.now, CLOCKS);
	play_follow_all();
	while (step(until)) {
		if (play.now <= 20)
			over = fal_sched_first_open_clock(play.s);
		if (a == NULL || !a->again || late <= HONEST ||
		    play.last_id == PLAY_WORKERS)
			continue;
		play_leave(late);
		late = 0;
		join_liar(a);
	}
	play_at_least(CLOCKS - 1, (double)fal_sched_first_open_clock(play.s),
		      "clocks that there are");
	return fal_sched_first_open_clock(play.s) - over;
}

static void
costs_little(void **state)
{
	static const char *const scheme[] = { "bsp", "epsp", "epsp:2", "ssp:2" };
	(void)state;
	for (size_t i = 0; i < sizeof(scheme) / sizeof(scheme[0]); i++) {
		const uint64_t all = clocks(scheme[i], NULL, 100);
		play_end(NULL);
		for (size_t k = 0; k < sizeof(attacks) / sizeof(attacks[0]); k++) {
			char what[128];
			const uint64_t some = clocks(scheme[i], &attacks[k], 100);
			snprintf(what, sizeof(what), "%s, %s", scheme[i],
				 attacks[k].name);
			printf("# %s: %.3f of %llu clocks; out %u times\n", what,
			       (double)some / (double)all, (unsigned long long)all,
			       barred);
			play_at_least((double)some, 0.9 * (double)all, what);
			play_end(NULL);
		}
	}
}

/* Whoever leaves just before it would be late has cost as much. */
static void
leaving_costs_as_much(void **state)
{
	const double until = 8, hold = 0.18;
	uint64_t all = 0, some;
	(void)state;
	for (int lies = 0; lies < 2; lies++) {
		double since = 0;
		play_job("bsp", CLOCKS, TASKS);
		play.task_s = 0.01;
		play.on_act = see;
		barred = 0;
		for (uint32_t i = 0; i < HONEST; i++)
			play_join(1);
		if (lies != 0)
			join_liar(&attacks[0]);
		fal_sched_set_clock_limit(play.s, play.now, CLOCKS);
		play_follow_all();
		while (step(until)) {
			if (lies == 0 || play.now - since < hold ||
			    play.last_id == PLAY_WORKERS)
				continue;
			since = play.now;
			play_leave(play.last_id);
			join_liar(&attacks[0]);
		}
		some = fal_sched_first_open_clock(play.s);
		all = lies == 0 ? some : all;
		printf("# %llu clocks, the last of %u sessions\n",
		       (unsigned long long)some, play.last_id);
		play_end(NULL);
	}
	play_at_least((double)some, 0.6 * (double)all, "clocks");
	play_check(barred, 1, "times that its key gets no work");
}

/* What is late once and is honest else is tried at once. */
static void
once_is_forgiven(void **state)
{
	(void)state;
	play_job("bsp", CLOCKS, TASKS);
	play.task_s = 0.01;
	play.on_act = see;
	barred = 0;
	for (uint32_t i = 0; i < HONEST; i++)
		play_join(1);
	fal_sched_set_clock_limit(play.s, play.now, CLOCKS);
	play_follow_all();
	while (play.now < 5 && step(5))
		;
	play.worker[1].fault = PLAY_HANGS;
	while (!fal_worker_is_suspect(play_its(1)) && step(10))
		;
	play_check(fal_worker_is_suspect(play_its(1)), 1, "suspected");
	const double since = play.now;
	play.worker[1].fault = PLAY_WELL;
	while (play_its(1)->standing != FAL_MEMBER && step(10))
		;
	play_check(play_its(1)->standing != FAL_MEMBER, 0, "a suspect still");
	play_at_least(1, play.now - since, "seconds until it is back");
	play_check(barred, 0, "times that its key gets no work");
}

/* Pushes take 15 s, tasks 1 s: a worker that is cut off for the time of four pushes is
 * not charged, because 16 pushes are free. */
static void
long_pushes_are_forgiven(void **state)
{
	const double gone = 60;
	(void)state;
	play_job("bsp", CLOCKS, TASKS);
	play.task_s = 1;
	play.push_s = 15;
	play.on_act = see;
	late = barred = 0;
	play_join_as(1, 7);
	play_join(1);
	fal_sched_set_clock_limit(play.s, play.now, CLOCKS);
	play_follow_all();
	while (step(300))
		;
	late = 0;
	struct play_worker *w = &play.worker[1];
	w->id = 0;
	for (uint32_t i = 0; i < w->n; i++)
		w->q[i].ends += gone;
	for (uint32_t i = 0; i < 32; i++)
		w->part[i].arrives += gone;
	while (step(300 + gone))
		;
	play_check(late, 1, "who is late");
	w->id = 1;
	while (play_its(1)->standing != FAL_MEMBER && step(1000))
		;
	play_check(play_its(1)->standing == FAL_MEMBER, 1, "who is back");
	play_check(barred, 0, "keys that get no work");
}

/* The network is gone for a minute, for all of them.  Who is back last is late, but
 * nobody waited for it before. */
static void
outage_is_nobodys(void **state)
{
	const double gone = 60;
	(void)state;
	play_job("bsp", CLOCKS, TASKS);
	play.task_s = 0.01;
	play.on_act = see;
	barred = 0;
	for (uint32_t i = 0; i < 3; i++)
		play_join(1);
	fal_sched_set_clock_limit(play.s, play.now, CLOCKS);
	play_follow_all();
	while (play.now < 5 && step(5))
		;
	for (uint32_t id = 1; id <= 3; id++) {
		struct play_worker *w = &play.worker[id];
		w->id = 0;
		for (uint32_t i = 0; i < w->n; i++)
			w->q[i].ends += gone;
		for (uint32_t i = 0; i < 32; i++)
			w->part[i].arrives += gone;
	}
	const double until = play.now + gone - 1;
	while (play_step(until))
		play_follow_all();
	uint32_t out = 0, last = 0;
	for (uint32_t id = 1; id <= 3; id++) {
		out += fal_worker_is_suspect(play_its(id));
		last = fal_worker_is_suspect(play_its(id)) ? last : id;
	}
	play_check(out, 2, "suspects while nobody speaks");
	for (uint32_t id = 1; id <= 3; id++)
		play.worker[id].id = id == last ? 0 : id;
	late = 0;
	while (late != last && step(until + 5))
		;
	play_check(late, last, "who is late then");
	play_check(barred, 0, "keys that get no work");
}

/* The coordinator itself stood still, or its machine slept: whoever has left meanwhile,
 * or is late then, has cost no more than it could have. */
static void
own_sleep_is_nobodys(void **state)
{
	(void)state;
	for (int leaves = 0; leaves < 2; leaves++) {
		play_job("bsp", CLOCKS, TASKS);
		play.task_s = 0.01;
		play.on_act = see;
		late = barred = 0;
		for (uint32_t i = 0; i < 3; i++)
			play_join(1);
		fal_sched_set_clock_limit(play.s, play.now, CLOCKS);
		play_follow_all();
		while (play.now < 5 && step(5))
			;
		play.worker[1].fault = leaves != 0 ? PLAY_WELL : PLAY_HANGS;
		while (leaves == 0 && play.now < 5.1 && step(5.1))
			;
		play_check(late, 0, "who is late before");
		play.now += 60;
		for (uint32_t id = 1; leaves != 0 && id <= 2; id++)
			play_leave(id);
		while (leaves == 0 && late == 0 && step(play.now + 5))
			;
		play_check(late, leaves != 0 ? 0 : 1, "who is late");
		play_check(barred, 0, "keys that get no work");
		play_end(NULL);
	}
}

/* Of a key that gets no work nobody is back, though its work came. */
static void
barred_are_not_back(void **state)
{
	(void)state;
	play_job("bsp", CLOCKS, TASKS);
	play.task_s = 0.01;
	play.on_act = see;
	play_join(1);
	play_join_as(1, 7);
	fal_sched_set_clock_limit(play.s, play.now, CLOCKS);
	play_follow_all();
	while (play.now < 5 && step(5))
		;
	play.worker[2].fault = PLAY_HANGS;
	barred = 0;
	while (barred == 0 && step(600))
		;
	play_check(barred, 1, "times that its key gets no work");
	const uint64_t back = play.acts[FAL_ACT_CLEARED];
	play_check(fal_worker_is_suspect(play_its(2)), 1, "suspected");
	fal_probation_note_work(play.s, play_its(2), play.now);
	play_follow_all();
	play_check(fal_worker_is_suspect(play_its(2)), 1, "suspected");
	play_check(play.acts[FAL_ACT_CLEARED], back, "told that it is back");
}

/* Where all have the same key whoever comes works at once, whatever others cost. */
static void
one_key_for_all(void **state)
{
	(void)state;
	for (int other = 0; other < 2; other++) {
		play_job("bsp", CLOCKS, TASKS);
		play.task_s = 0.01;
		play_join_as(1, other != 0 ? 8 : 7);
		join_liar(&attacks[5]);
		fal_sched_set_clock_limit(play.s, play.now, CLOCKS);
		play_follow_all();
		while (play.now < 30 && step(30))
			;
		play_join_as(1, 7);
		play_check(fal_worker_is_suspect(play_its(play.last_id)), other != 0,
			   "whether it gets no work");
		play_end(NULL);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(costs_little),
		cmocka_unit_test(leaving_costs_as_much),
		cmocka_unit_test_teardown(once_is_forgiven, play_end),
		cmocka_unit_test_teardown(long_pushes_are_forgiven, play_end),
		cmocka_unit_test_teardown(outage_is_nobodys, play_end),
		cmocka_unit_test(own_sleep_is_nobodys),
		cmocka_unit_test_teardown(barred_are_not_back, play_end),
		cmocka_unit_test_teardown(one_key_for_all, play_end),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
