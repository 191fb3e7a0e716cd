/* The scheduler, decision by decision: claims, lanes, nonsense.  A few workers, virtual
 * time, actions looked at one by one.  Whole clusters under misfortune are the
 * simulator's (tests/sim). */
#include "test_sched.h"

#include "../drawn.h"

static void
claims_do_not_exceed_grants(void **state)
{
	(void)state;
	begin("bsp", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	for (uint64_t clock = 0; clock < 2; clock++) {
		worker[1].n = worker[2].n = 0;
		open_clock(clock);
		uint32_t task = worker[1].q[0].task;
		uint32_t seq = (uint32_t)clock + 1;
		check(worker[1].n, 2, "granted");
		check(claim_as(1, task, seq, none, 0.1), 1, "first claim");
		check(claim_as(1, task, seq, none, 0.1), 0, "second claim");
		for (uint32_t i = 0; i < 100; i++)
			check(claim_as(1, task, seq, none, 0.1), FAL_ESTATE, "more");
		check(claim_nonfinite(1, task), FAL_ESTATE, "more, non-finite");
		check((int64_t)entries(FAL_ENTRY_LOST), 1, "entries of lost claims");
		check(work(1).lost, 1, "lost");
		check(claim_as(2, worker[2].q[0].task, seq, none, 0.1), 1, "another's");
		complete(current());
	}
}

/* The number of a contribution is nobody's of another round: the trace names them by it.
 */
static void
numbers_are_of_one_round(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(drawn_seed(46), FAL_RNG_TEST, 0);
	const uint32_t one = 1 + fal_rng_below(&r, 1 << 20);
	begin("bsp", 4, 0);
	join(1, 1, 1, 0.1);
	for (uint64_t clock = 0; clock < 2; clock++) {
		worker[1].n = 0;
		open_clock(clock);
		const uint32_t task = worker[1].q[0].task;
		if (clock > 0)
			check(claim_as(1, task, one, none, 0.1), FAL_ESTATE, "once more");
		else
			for (uint32_t i = 0; i < 2; i++)
				check(claim_as(1, task + i, one, none, 0.1), 1,
				      "a task of it");
		if (clock == 0)
			complete(current());
	}
}

/* Whoever leaves so many gaps between its numbers that they cannot be remembered loses
 * its session, and ends nobody else's work. */
static void
numbers_with_gaps_end_the_session(void **state)
{
	(void)state;
	uint64_t twice;
	begin("bsp", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	struct fal_intervals *are = &fal_worker_find(sched, 1)->seqs;
	for (uint32_t i = 0; i < FAL_INTERVALS_MAX; i++)
		if (fal_intervals_add(are, 2 * (uint64_t)i + 2, 2 * (uint64_t)i + 3,
				      &twice) != 0)
			fail_msg("run %u", i);
	check(claim_as(1, worker[1].q[0].task, 1, none, 0.1), FAL_ESTATE, "one more");
	check(claim_as(2, worker[2].q[0].task, 1, none, 0.1), 1, "another's");
}

/* What was fenced away and granted again is claimed again. */
static void
granted_again_is_claimed_again(void **state)
{
	(void)state;
	begin("bsp", 1, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	struct fal_contrib_id fills = none;
	uint32_t claims[3] = { 0 };
	for (uint32_t i = 1; i <= 6; i++) { /* nobody ever pushes */
		uint32_t id = holds(1, 0) ? 1 : 2;
		check(claim_as(id, 0, ++claims[id], fills, 0.1), 1, "claim");
		worker[id].n = 0;
		tick_until(FAL_ACT_FENCE, i);
		hear(1);
		hear(2);
		check(acts[FAL_ACT_GRANT], i + 1, "grants");
		fills = last[FAL_ACT_GRANT].fills;
		check(fills.worker, id, "whom it fills");
	}
	uint32_t id = holds(1, 0) ? 1 : 2;
	check(claim_as(id, 0, claims[id], none, 0.1), 0, "into a fenced one");
	check(claim_as(id, 0, ++claims[id], fills, 0.1), FAL_ESTATE, "never granted");
}

/* The contribution that what was granted last was claimed for. */
static struct fal_contrib_id
ahead(void)
{
	const struct fal_contrib_id id = last[FAL_ACT_GRANT].cid;
	check(id.seq >= FAL_PRECLAIMED, 1, "claimed ahead");
	return id;
}

/* Under bsp nobody else gets what a worker has: it is claimed as it is granted, each
 * grant for a contribution of its own.  A clock is over when all is there and reported,
 * whichever comes first. */
static void
claimed_ahead(void **state)
{
	(void)state;
	preclaims = true;
	begin("bsp", 4, 0);
	join(1, 2, 2, 0.1);
	join(2, 2, 2, 0.1);
	open_clock(0);
	const struct fal_contrib_id second = ahead(),
				    first = { 3 - second.worker, second.seq };
	check(acts[FAL_ACT_GRANT], 2, "grants");
	check(ledger()->claimed, 4, "claimed");
	check(ledger()->due, 4, "not reported");
	for (uint32_t i = 0; i < 2; i++)
		check(claim_as(first.worker, worker[first.worker].q[i].task, first.seq,
			       none, 0.1),
		      1, "reported");
	fal_sched_note_blocks(sched, now, current(), first, 1, true);
	check(fal_sched_find_contrib(sched, current(), first)->state, FAL_CONTRIB_DONE,
	      "reported, and there");
	/* The other one is there before it is reported. */
	const uint32_t *task = (uint32_t[]){ worker[second.worker].q[0].task,
					     worker[second.worker].q[1].task };
	fal_sched_note_blocks(sched, now, current(), second, 1, true);
	complete(current());
	check((int64_t)fal_sched_first_open_clock(sched), 0, "over without reports");
	check(claim_as(second.worker, task[0], second.seq, none, 0.1), 1, "reported");
	check((int64_t)fal_sched_first_open_clock(sched), 0,
	      "over with one of two reports");
	check(fal_sched_close_contrib(sched, current(), second), FAL_ESTATE,
	      "sealed by a worker");
	check(claim_as(second.worker, task[1], second.seq, none, 0.1), 1, "reported");
	check((int64_t)fal_sched_first_open_clock(sched), 1, "over");
	/* No more than that. */
	worker[1].n = worker[2].n = 0;
	open_clock(1);
	task = &worker[1].q[0].task;
	check(claim_as(1, *task, FAL_PRECLAIMED | 7, none, 0.1), FAL_ESTATE,
	      "for what was not claimed");
	check(claim_as(1, *task, 1, none, 0.1), 0, "claimed for another one");
}

/* The step of what is claimed as it is granted is ordered then, and nothing else happens
 * before it is reported: no version is told, no time asked for, and nothing else granted.
 * It is over when it is made, too, whichever comes first. */
static void
ordered_while_at_work(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	(void)state;
	for (int i = 0; i < 60; i++) {
		const uint32_t tasks = 1 + fal_rng_below(&r, 6);
		const bool sooner = fal_rng_below(&r, 2) == 0;
		struct fal_round_info is;
		preclaims = true;
		begin(fal_rng_below(&r, 2) == 0 ? "bsp" : "epsp", tasks, 0);
		sched->conf.ahead = true;
		join(1, tasks, tasks, 0.1);
		late = true;
		const uint32_t models = acts[FAL_ACT_MODEL];
		open_clock(2);
		const struct fal_contrib_id id = ahead();
		check(ledger()->due, tasks, "at work");
		check(acts[FAL_ACT_STEP], 1, "steps ordered");
		check(round_info(0).commit_ordered, 1, "ordered to end");
		check(round_info(0).all_reported, 0, "passed");
		check((int64_t)fal_sched_oldest_version(sched, 1), 0, "computes on");
		if (sooner) {
			fal_sched_note_blocks(sched, now, 0, id, 1, true);
			fal_sched_note_stepped(sched, now, 0);
			fal_sched_note_applied(sched, now, 0);
			follow_all();
			check(round_info(0).commit_ordered, 1, "over without reports");
		}
		for (uint32_t k = 0; k < tasks; k++) {
			check(acts[FAL_ACT_MODEL], models, "told");
			check(acts[FAL_ACT_ACCOUNT], 0, "asked");
			check(acts[FAL_ACT_GRANT], 1, "granted");
			check(claim_as(1, worker[1].q[k].task, id.seq, none, 0.1), 1,
			      "reported");
			follow_all();
		}
		check(acts[FAL_ACT_STEP], 1, "steps ordered");
		check(acts[FAL_ACT_MODEL], models + 1, "told");
		check(acts[FAL_ACT_ACCOUNT], 1, "asked");
		check(acts[FAL_ACT_GRANT], 2, "granted");
		check((int64_t)fal_sched_oldest_version(sched, 1), 1, "computes on");
		check((int64_t)fal_sched_first_open_clock(sched), 0, "over");
		fal_sched_note_published(sched, now, 1);
		fal_sched_note_applied(sched, now, 0);
		follow_all();
		check((int64_t)fal_sched_first_open_clock(sched), 1, "over");
		check(fal_sched_round(sched, 0, &is) && is.commit_ordered, 0, "armed");
		/* Now the next one may be. */
		check(acts[FAL_ACT_STEP], 2, "steps ordered");
		end(state);
	}
}

/* Who has pushed all and reports nothing is fenced, and that is over: nobody has to run
 * again what is there. */
static void
made_and_never_reported(void **state)
{
	(void)state;
	preclaims = true;
	begin("bsp", 1, 0);
	sched->conf.ahead = true;
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	late = true;
	open_clock(0);
	const struct fal_contrib_id id = ahead();
	fal_sched_note_blocks(sched, now, 0, id, 1, true);
	fal_sched_note_stepped(sched, now, 0);
	check(round_info(0).all_reported, 0, "passed");
	tick_until(FAL_ACT_FENCE, 1);
	follow_all();
	check(round_info(0).all_reported, 1, "passed");
	check(acts[FAL_ACT_GRANT], 1, "granted again");
	fal_sched_note_applied(sched, now, 0);
	check((int64_t)fal_sched_first_open_clock(sched), 1, "over");
}

/* What was claimed ahead and comes to nothing is fenced, and granted again when all
 * shards know, to be filled. */
static void
claimed_ahead_in_vain(void **state)
{
	(void)state;
	preclaims = true;
	begin("bsp", 4, 0);
	join(1, 2, 2, 0.1);
	join(2, 2, 2, 0.1);
	late = true;
	open_clock(0);
	const uint32_t task = worker[1].q[0].task, other = worker[1].q[1].task;
	const struct fal_contrib_id id = { 1, ahead().seq };
	/* One of its tasks has no result: the others are called off, too. */
	check(claim_as(1, task, id.seq, none, 0.1), 1, "reported");
	check(claim_nonfinite(1, other), 0, "without a result");
	check(acts[FAL_ACT_FENCE], 1, "fenced");
	check(ledger()->claimed, 2, "claimed");
	check(ledger()->due, 2, "not reported");
	check(acts[FAL_ACT_GRANT], 2, "granted before all shards know");
	fal_sched_note_fenced(sched, now, current(), id);
	follow_all();
	check(last[FAL_ACT_GRANT].fills.seq, id.seq, "to be filled");
	/* Whoever leaves has all of it fenced, of which nothing was reported. */
	fal_sched_leave(sched, now, 2);
	follow_all();
	check(acts[FAL_ACT_FENCE] >= 2, 1, "fenced");
	const uint32_t grants = acts[FAL_ACT_GRANT];
	fal_sched_note_fenced(sched, now, current(),
			      (struct fal_contrib_id){ 2, id.seq });
	follow_all();
	check(acts[FAL_ACT_GRANT] > grants, 1, "granted again");
	check(last[FAL_ACT_GRANT].worker, 1, "to who is left");
	check(last[FAL_ACT_GRANT].fills.worker, 2, "to be filled");
}

static void
lanes_follow_the_projection(void **state)
{
	(void)state;
	begin("epsp", 24, 0);
	join(1, 4, 2, 0.1);
	check(worker[1].lanes, 4, "lanes at first");
	uint64_t clock = 0;
	for (; clock < 30; clock++)
		play_clock(clock);
	/* Four lanes on two cores do no more than two. */
	check(worker[1].lanes, 2, "lanes when more do not help");
	check(acts[FAL_ACT_LANES], 3, "changes: 4, 3, 2");
	near(play_clock(clock++), 1.2, 1e-6, "length of a clock");
	worker[1].task_s = 0.2; /* now more lanes did better than two do */
	for (uint32_t i = 0; i < 12 && worker[1].lanes == 2; i++)
		play_clock(clock++);
	check(worker[1].lanes, 3, "lanes taken again");
}

static void
lanes_that_help_stay(void **state)
{
	(void)state;
	begin("epsp", 24, 0);
	join(1, 4, 4, 0.1);
	for (uint64_t clock = 0; clock < 20; clock++)
		play_clock(clock);
	check(worker[1].lanes, 4, "lanes");
	check(acts[FAL_ACT_LANES], 1, "changes");
}

/* CPU seconds of some clocks of workers with the most lanes. */
static double
cpu_of(const char *scheme, uint32_t clocks)
{
	begin(scheme, WORKERS, 0);
	for (uint32_t id = 1; id <= WORKERS; id++)
		check(join(id, FAL_LANES_MAX, FAL_LANES_MAX, 0.1), 0, "join");
	clock_t from = clock();
	for (uint32_t i = 0; i < clocks; i++) {
		for (uint32_t id = 1; id <= WORKERS; id++)
			worker[id].n = 0;
		open_clock(i);
		complete(current());
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
	/* The least of some: others use the machine, too. */
	double fixed = INFINITY, adapted = INFINITY;
	for (int i = 0; i < 5; i++) {
		fixed = fmin(fixed, cpu_of("bsp", 40));
		adapted = fmin(adapted, cpu_of("epsp", 40));
	}
	/* All pairs would be hundreds of times as many. */
	if (!(adapted < 10 * fixed + 0.01))
		fail_msg("CPU: %g s when lanes adapt, %g s when not", adapted, fixed);
}

/* A worker of one lane with a probe of 10 ms, of which more may be known. */
static void
join_known(uint32_t id, struct fal_history was)
{
	const struct fal_join j = { .id = id,
				    .lanes_min = 1,
				    .lanes_max = 1,
				    .cores = 1,
				    .task_s = 0.01,
				    .fixed = NAN,
				    .history = was };
	check(fal_sched_join(sched, now, &j), 0, "join");
	follow_all();
}

/* Probes say the same of two workers: what a scheduler of before has measured of them
 * makes their shares of the first clock, and is kept if nothing else is measured. */
static void
known_speeds_share(void **state)
{
	(void)state;
	for (uint32_t times = 1; times <= 4; times++) {
		const struct fal_history slow = { 1, 0.01 * times, 0.125, 0.003, 0.0001 };
		struct fal_history is;
		begin("epsp", 60, 1.0 / 3);
		join_known(1, (struct fal_history){ 1, 0.01, -1, 0, 0 });
		join_known(2, slow);
		assert_true(fal_sched_history(sched, 2, &is));
		assert_true(is.lanes == slow.lanes && is.task_s == slow.task_s &&
			    is.fixed == slow.fixed && is.eval_s == slow.eval_s &&
			    is.push_s == slow.push_s);
		open_clock(0);
		near(held_of(1, current()), 60.0 * times / (times + 1), 1,
		     "the fast one");
		near(held_of(2, current()), 60.0 / (times + 1), 1, "the slow one");
		end(NULL);
	}
	/* Of lanes that it may not have any more nothing is known. */
	struct fal_history is;
	begin("bsp", 60, 1.0 / 3);
	join_known(1, (struct fal_history){ 2, 0.04, -1, 0, 0 });
	assert_false(fal_sched_history(sched, 1, &is));
}

static void
nonsense_is_refused(void **state)
{
	(void)state;
	begin("epsp", 2, 0);
	check(join(1, 0, 1, 1), FAL_EINVAL, "no lanes");
	check(join(1, FAL_LANES_MAX + 1, 1, 1), FAL_EINVAL, "too many lanes");
	check(join(1, 1, 0, 1), FAL_EINVAL, "no cores");
	check(join(1, FAL_LANES_MAX, UINT32_MAX, 1e9), 0, "the most");
	check(join(1, 1, 1, 1), FAL_EINVAL, "an id again");
	struct fal_join bad = { .lanes_min = 1, .lanes_max = 1, .cores = 1 };
	check(fal_sched_join(sched, now, &bad), FAL_EINVAL, "id 0");
	bad.id = UINT32_MAX;
	check(fal_sched_join(sched, now, &bad), FAL_EINVAL, "the largest id");
	check(claim_as(1, 0, 1, none, 1), FAL_ESTATE, "nothing was granted");
	for (uint64_t clock = 0; clock < 2; clock++) {
		open_clock(clock);
		complete(current());
	}
	open_clock(2); /* six tasks were granted: so many claims may come */
	check(claim_as(5, 0, 1, none, 1), 0, "an unknown worker");
	check(claim_as(1, 2, 1, none, 1), FAL_EINVAL, "no such task");
	check(claim_as(1, UINT32_MAX, 1, none, 1), FAL_EINVAL, "the largest task");
	check(claim_nonfinite(1, 2), FAL_EINVAL, "no such task, non-finite");
	check(claim_of(current() - 1, 1, 0, 1, none, 1), 0, "a round that is over");
	check(claim_as(1, 0, FAL_PRECLAIMED - 1, none, 1.8e10), 1, "after 570 years");
	fal_sched_note_blocks(sched, now, current(), (struct fal_contrib_id){ 1, 1 }, 1,
			      true);
	assert_null(fal_sched_find_contrib(sched, current(),
					   (struct fal_contrib_id){ 1, 1 }));
	fal_sched_note_pong(sched, now, 7, 1, 0);
	fal_sched_charge(sched, 7, "why");
	check(ledger()->claimed, 1, "claimed");
}

/* A claim is computed once more on the version that it names. */
static void
checked_on_the_version_of_its_claim(void **state)
{
	(void)state;
	begin("epsp", 4, 0);
	for (uint32_t id = 1; id <= 2; id++) {
		const struct fal_join j = { .id = id,
					    .key = id,
					    .numerics = 1,
					    .lanes_min = 1,
					    .lanes_max = 1,
					    .cores = 1,
					    .task_s = 0.1 };
		check(fal_sched_join(sched, now, &j), 0, "join");
	}
	open_clock(0);
	const struct fal_claim_report c = { .worker = 1,
					    .round = worker[1].q[0].round,
					    .task = worker[1].q[0].task,
					    .seq = 1,
					    .task_s = 0.1,
					    .verify = true,
					    .version = 5 };
	check(fal_sched_claim(sched, now, &c), 1, "claim");
	follow_all();
	check(acts[FAL_ACT_CHECK], 1, "checks");
	check((int64_t)last[FAL_ACT_CHECK].version, 5, "version");
	end(state);
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		TEST(claims_do_not_exceed_grants),
		TEST(numbers_are_of_one_round),
		TEST(numbers_with_gaps_end_the_session),
		TEST(granted_again_is_claimed_again),
		TEST(claimed_ahead),
		TEST(ordered_while_at_work),
		TEST(made_and_never_reported),
		TEST(claimed_ahead_in_vain),
		TEST(lanes_follow_the_projection),
		TEST(lanes_that_help_stay),
		TEST(many_lanes_are_cheap),
		TEST(checked_on_the_version_of_its_claim),
		TEST(known_speeds_share),
		TEST(nonsense_is_refused),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
