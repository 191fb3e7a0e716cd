/* Workers that leave, are silent, or get results that are not finite. */
#include "test_sched.h"

static void
leave_is_filled(void **state)
{
	(void)state;
	begin("epsp", 6, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
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

static struct fal_join
guest_of(uint32_t id)
{
	return (struct fal_join){
		.id = id, .lanes_min = 1, .lanes_max = 1, .cores = 1, .task_s = 0.1
	};
}

/* One stays, 1,000 come and go: few of those who left take room. */
static void
slots_are_used_again(void **state)
{
	(void)state;
	const uint32_t cycles = 1000;
	uint32_t most = 0;
	begin("epsp", 4, 0);
	join(1, 1, 1, 0.1);
	for (uint32_t i = 0; i < cycles; i++, now += 1) {
		struct fal_join guest = guest_of(2 + i);
		check(fal_sched_join(sched, now, &guest), 0, "join");
		most = sched->workers > most ? sched->workers : most;
		worker[1].n = 0;
		open_clock(i);
		check(work(2 + i).share, 2, "share of the guest");
		check(fal_sched_leave(sched, now, 2 + i), 0, "leave");
		follow_all();
		for (uint32_t t = 0; t < 4; t++)
			check(claim_as(1, t, i + 1, none, 0.1), 1, "claim");
		complete(current());
	}
	check(most, 35, "most slots");
	struct fal_join again = guest_of(1 + cycles);
	check(fal_sched_join(sched, now, &again), FAL_EINVAL, "the last guest's id");
}

/* A silent worker is asked after the deadline, suspected after another one. */
static void
silence_is_suspected(void **state)
{
	(void)state;
	begin("bsp", 2, 0); /* nothing else takes its task */
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
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
	complete(current());
	open_clock(1);
	check(worker[1].n, 1, "tasks of the one that came back");
}

static void
answers_are_believed(void **state)
{
	(void)state;
	begin("bsp", 2, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
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

static void
nonfinite_twice_stops(void **state)
{
	(void)state;
	begin("epsp", 2, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 1);
	open_clock(0);
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
	begin("epsp", 1, 0);
	join(1, 1, 1, 0.1);
	open_clock(0);
	claim_nonfinite(1, 0);
	check(acts[FAL_ACT_STOP], 0, "stops after one");
	check(holds(1, 0), 1, "the same one tries again");
	claim_nonfinite(1, 0);
	check(acts[FAL_ACT_STOP], 1, "stops after two");
}

/* A fast worker gets no clone of what it has judged already: it would take it away
 * from the slow one that decides. */
static void
nonfinite_again_decides_nothing(void **state)
{
	(void)state;
	begin("epsp", 1, 0);
	join(1, 1, 1, 0.001);
	join(2, 1, 1, 1);
	open_clock(0);
	assert_true(holds(1, 0));
	for (uint32_t i = 0; i < 5; i++) {
		/* It is given it once; after that it claims what it was not given. */
		check(holds(1, 0), i < 1, "the fast one has it");
		check(claim_nonfinite(1, 0), i < 1 ? 0 : FAL_ESTATE, "its claim");
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
	begin("epsp", 8, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
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

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		TEST(leave_is_filled),
		TEST(slots_are_used_again),
		TEST(silence_is_suspected),
		TEST(answers_are_believed),
		TEST(nonfinite_twice_stops),
		TEST(nonfinite_alone),
		TEST(nonfinite_again_decides_nothing),
		TEST(second_charge_evicts),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
