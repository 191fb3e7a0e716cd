/* Workers that leave, are silent, or get results that are not finite. */
#include "../drawn.h"
#include "test_sched.h"

#include "sched/state.h"

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
	fal_sched_leave(sched, now, 1);
	follow_all();
	check(acts[FAL_ACT_FENCE], 1, "fences");
	assert_true(fal_contrib_id_equal(last[FAL_ACT_FENCE].cid,
					 (struct fal_contrib_id){ 1, 1 }));
	check(worker[2].n, 6, "tasks that the other holds");
	for (uint32_t i = 0; i < 6; i++) {
		struct fal_contrib_id want = { worker[2].q[i].task == 0, 0 };
		want.seq = want.worker;
		if (!fal_contrib_id_equal(worker[2].q[i].fills, want))
			fail_msg("task %u fills %u.%u", worker[2].q[i].task,
				 worker[2].q[i].fills.worker, worker[2].q[i].fills.seq);
	}
	check(claim_as(2, 0, 1, none, 0.1), 0, "a claim that fills nothing");
	check(claim_as(2, 0, 1, (struct fal_contrib_id){ 1, 1 }, 0.1), 1,
	      "one that fills");
	check(claim_as(1, 1, 2, none, 0.1), 0, "a claim of who left");
	fal_sched_leave(sched, now, 1);
	fal_sched_note_message(sched, now, 1);
	follow_all();
	check(acts[FAL_ACT_FENCE], 1, "fences at the end");
	check((int64_t)entries(FAL_ENTRY_REGRANT), 1, "ranges granted again");
}

/* Nobody is told to fill what a shard may still add to, nor may. */
static void
fills_wait_for_fences(void **state)
{
	(void)state;
	const struct fal_contrib_id dead = { 1, 1 };
	begin("epsp", 6, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	now = 0.1;
	check(claim_as(1, 0, 1, none, 0.1), 1, "claim");
	late = true;
	fal_sched_leave(sched, now, 1);
	follow_all();
	check(acts[FAL_ACT_FENCE], 1, "fences");
	check(worker[2].n, 5, "tasks that the other holds");
	check(holds(2, 0), 0, "that of what is fenced");
	fal_sched_note_blocks(sched, now, current(), dead, 3, false);
	fal_sched_note_fenced(sched, now, current(), dead);
	follow_all();
	check(holds(2, 0), 1, "that of what is fenced everywhere");
	struct fal_round_info r;
	assert_true(fal_sched_round(sched, current(), &r));
	check(r.ledger->contrib[fal_ledger_find(r.ledger, dead)].blocks, 3,
	      "blocks that came before the fence");
}

/* No task is due on a version that is not there. */
static void
shards_are_waited_for(void **state)
{
	(void)state;
	begin("bsp", 2, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	for (uint64_t c = 0; c < 4; c++) {
		open_clock(c);
		late = c == 3;
		now += 0.1;
		check(claim_as(1, 0, (uint32_t)c + 1, none, 0.1), 1, "claim");
		check(claim_as(2, 1, (uint32_t)c + 1, none, 0.1), 1, "claim");
		complete(current());
	}
	check(fal_sched_is_quiet(sched), 0, "quiet");
	open_clock(4);
	for (double until = now + 20;
	     now < until && fal_sched_next_tick(sched) < until;) {
		now = fal_sched_next_tick(sched);
		fal_sched_tick(sched, now);
		follow_all();
	}
	check(acts[FAL_ACT_SUSPECT], 0, "suspects while nothing can be begun");
	late = false;
	fal_sched_note_published(sched, now, 4);
	tick_until(FAL_ACT_SUSPECT, 1);
	check(acts[FAL_ACT_SUSPECT] > 0, 1, "suspects when it can");
}

static double
most_pull(uint32_t id)
{
	return fal_worker_find(sched, id)->pull.largest;
}

/* What waits for a version that others are late with is not pulling, and nobody has
 * longer to push for it: neither who computes on it then, nor who hangs. */
static void
waiting_is_no_pull(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 1);
	(void)state;
	for (int turn = 0; turn < 20; turn++) {
		const double waits = 1 + fal_rng_below(&r, 1000);
		const uint64_t clocks = 1 + fal_rng_below(&r, 4);
		begin("bsp", 2, 0);
		join(1, 1, 1, 0.1);
		join(2, 1, 1, 0.1);
		for (uint64_t c = 0; c < clocks; c++) {
			open_clock(c);
			late = c + 1 == clocks;
			now += 0.11;
			check(claim_as(1, 0, (uint32_t)c + 1, none, 0.1), 1, "claim");
			check(claim_as(2, 1, (uint32_t)c + 1, none, 0.1), 1, "claim");
			complete(current());
		}
		open_clock(clocks);
		late = false;
		now += waits;
		fal_sched_note_published(sched, now, clocks);
		now += 0.12;
		check(claim_as(1, 0, 9, none, 0.1), 1, "claim of the first");
		near(most_pull(1), 0.02, 1e-6, "what it pulled for");
		tick_until(FAL_ACT_SUSPECT, 1);
		check(info(2).suspected, 1, "the second suspected");
		check(claim_as(1, 1, 10, none, 0.1), 1, "claim for the second");
		complete(current());
		check(most_pull(2) < 1, 1, "what the second pulled for is no wait");
		end(NULL);
	}
}

/* The same of one that others' versions overtake before it has claimed. */
static void
nor_is_it_behind_others(void **state)
{
	(void)state;
	begin("asp", 2, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(8);
	late = true;
	uint64_t made = 0;
	for (uint32_t id = 1; id <= 2; id++) {
		const struct item i = worker[id].q[0];
		now += 0.11;
		check(claim_of(i.round, id, i.task, 1, none, 0.1), 1, "claim");
		complete(i.round);
		made++;
	}
	check(worker[1].n > 1, 1, "more of the first");
	const struct item next = worker[1].q[worker[1].n - 1];
	now += 100;
	fal_sched_note_published(sched, now, made - 1);
	fal_sched_note_published(sched, now + 0.01, made);
	now += 0.12;
	check(claim_of(next.round, 1, next.task, 2, none, 0.1), 1, "the next one");
	near(most_pull(1), 0.02, 1e-6, "what it pulled for");
}

/* Who has begun with one version pulls on while another lane waits for the next. */
static void
the_first_one_is_pulled_for(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 2);
	const double waits = 1 + fal_rng_below(&r, 1000);
	(void)state;
	begin("bsp", 2, 0);
	join(1, 2, 2, 0.1);
	open_clock(0);
	late = true;
	now += 0.11;
	check(claim_as(1, 0, 1, none, 0.1), 1, "claim");
	check(claim_as(1, 1, 1, none, 0.1), 1, "claim");
	complete(current());
	open_clock(1);
	struct fal_worker *w = fal_worker_find(sched, 1);
	check(w->queued, 2, "tasks that wait");
	check(w->head->began < 0 && w->pullable_at == INFINITY, 1, "none has begun");
	w->head->began = w->pullable_at = now; /* its version was there */
	now += waits;
	fal_sched_note_published(sched, now, 1);
	check(w->tail->began >= now, 1, "the other one has begun");
	now += 0.12;
	check(claim_as(1, 0, 2, none, 0.1), 1, "claim");
	near(w->pull.largest, waits + 0.02, 1e-6, "what it pulled for");
}

/* Nor does a claim of what it had before tell of what it pulls now. */
static void
an_old_claim_is_no_pull(void **state)
{
	(void)state;
	begin("bsp", 2, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	now += 0.15;
	check(claim_as(1, 0, 1, none, 0.1), 1, "claim");
	struct fal_worker *w = fal_worker_find(sched, 1);
	near(w->pull.least, 0.05, 1e-6, "what it pulled for");
	/* It was given what comes next meanwhile. */
	w->pull_timer.is_running = true;
	w->pull_timer.since = w->pullable_at = now;
	w->pull_timer.round = current() + 1;
	w->grants++;
	check(claim_as(1, 0, 2, none, 0.1), 0, "the same claim again");
	near(w->pull.least, 0.05, 1e-6, "what it pulls for");
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
		fal_sched_leave(sched, now, 2 + i);
		follow_all();
		for (uint32_t t = 0; t < 4; t++)
			check(claim_as(1, t, i + 1, none, 0.1), 1, "claim");
		complete(current());
	}
	check(most, 35, "most slots");
	struct fal_join again = guest_of(1 + cycles);
	check(fal_sched_join(sched, now, &again), FAL_EINVAL, "the last guest's id");
}

/* Worker 2 has done its part of a clock of 2 tasks at 0.1 s; worker 1 has not. */
static void
one_is_behind(void)
{
	begin("bsp", 2, 0); /* nothing else takes its task */
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	now = 0.1;
	check(claim_as(2, 1, 1, none, 0.1), 1, "claim");
	worker[2].n = 0;
	fal_sched_note_blocks(sched, now, current(), (struct fal_contrib_id){ 2, 1 }, 1,
			      true);
}

/* So many actions of the kind came, the last one of worker `id`. */
static void
was_told(enum fal_act_kind kind, uint32_t count, uint32_t id, double seconds,
	 const char *why)
{
	const struct fal_act *a = &last[kind];
	check(acts[kind], count, "times told");
	check(a->worker, id, "of whom");
	near(a->seconds, seconds, 1e-9, "for how long");
	assert_string_equal(a->why, why);
}

/* A silent worker is asked before 4 times what the other one took are over, and
 * suspected when it has not answered for as long. */
static void
silence_is_suspected(void **state)
{
	(void)state;
	one_is_behind();
	tick_until(FAL_ACT_PING, 1);
	check(last[FAL_ACT_PING].worker, 1, "who is asked");
	near(now, 0.85 * 0.4, 1e-6, "when it is asked");
	check(info(1).suspected, 0, "suspected when asked");
	double asked = now;
	tick_until(FAL_ACT_REVOKE, 1);
	near(now - asked, 0.4, 1e-6, "from the question to the suspicion");
	check(info(1).suspected, 1, "suspected");
	was_told(FAL_ACT_SUSPECT, 1, 1, now, "it does not answer");
	assert_string_equal(last[FAL_ACT_SUSPECT].owes, "task");
	double since = now;
	check(last[FAL_ACT_GRANT].worker, 2, "who gets its task");
	check(holds(2, 0), 1, "task 0");
	answer(1, 1);
	check(info(1).suspected, 1, "suspected when it answers");
	check(claim_as(1, 0, 1, none, 0.5), 1, "its late claim comes first");
	check(holds(2, 0), 0, "task 0 after the claim");
	check(info(1).suspected, 1, "suspected after the claim");
	fal_sched_note_blocks(sched, now, current(), (struct fal_contrib_id){ 1, 1 }, 1,
			      true);
	complete(current());
	check(info(1).suspected, 0, "suspected when its work has come");
	was_told(FAL_ACT_CLEARED, 1, 1, now - since, "its work came");
	open_clock(1);
	check(worker[1].n, 1, "tasks of the one that came back");
}

/* Time passes; whoever is asked answers that it is where it was. */
static void
talk(void)
{
	now = fmax(now, fal_sched_next_tick(sched));
	fal_sched_tick(sched, now);
	follow_all();
	for (uint32_t id = 1; id <= WORKERS; id++)
		answer(id, 7);
}

/* Answers alone are no work: the deadline is the deadline. */
static void
talk_is_no_work(void **state)
{
	(void)state;
	one_is_behind();
	while (!info(1).suspected)
		talk();
	near(now, 0.4, 1e-6, "when it is suspected");
	was_told(FAL_ACT_SUSPECT, 1, 1, now, "its lanes stand still");
	check(info(1).suspected, 1, "suspected");
	check(holds(2, 0), 1, "task 0");
}

/* Lanes that go on have ten times as long, and no more. */
static void
lanes_that_go_on_have_longer(void **state)
{
	(void)state;
	one_is_behind();
	for (uint32_t i = 1; i < 100 && !info(1).suspected; i++) {
		check(holds(1, 0), 1, "task 0");
		tick_until(FAL_ACT_PING, i);
		answer(1, i);
	}
	near(now, 4, 0.1, "when it is suspected");
	was_told(FAL_ACT_SUSPECT, 1, 1, now, "it takes too long");
}

/* What a worker says of itself moves no deadline: neither what a task took it, nor how
 * long a round trip is. */
static void
claims_of_time_count_for_nothing(void **state)
{
	(void)state;
	begin("bsp", 2, 0);
	join(1, 1, 1, 1e9);
	join(2, 1, 1, 0.1);
	for (uint64_t clock = 0; clock < 3; clock++) {
		open_clock(clock);
		now += 0.1;
		for (uint32_t id = 1; id <= 2; id++) {
			uint32_t seq = (uint32_t)clock + 1, task = worker[id].q[0].task;
			check(claim_as(id, task, seq, none, id == 1 ? 1e9 : 0.1), 1,
			      "claim");
			worker[id].n = 0;
			fal_sched_note_blocks(sched, now, current(),
					      (struct fal_contrib_id){ id, seq }, 1,
					      true);
		}
		complete(current());
	}
	fal_sched_note_pong(sched, now, 1, 1e9, 0);
	near(fal_task_deadline_s(sched, fal_worker_find(sched, 2)), 0.2, 1e-9,
	     "of the honest one");
	near(fal_task_deadline_s(sched, fal_worker_find(sched, 1)), 4, 1e-9,
	     "of the other");
}

/* A worker that stood still answers late, once: its link is as near as before.  One
 * that answers late again has another link. */
static void
late_answer_is_no_far_link(void **state)
{
	(void)state;
	begin("bsp", 2, 0);
	join(1, 1, 1, 0.1);
	for (int stop = 0; stop < 3; stop++) {
		fal_sched_note_pong(sched, now, 1, 0.001, 0);
		near(info(1).rtt, 0.001, 1e-9, "of a worker that answers");
		fal_sched_note_pong(sched, now, 1, 0.4, 0);
		near(info(1).rtt, 0.001, 1e-9, "of one that stood still");
	}
	for (int i = 0; i < 100; i++)
		fal_sched_note_pong(sched, now, 1, 0.4, 0);
	near(info(1).rtt, 0.4, 0.01, "of one that is far now");
}

/* Does anybody compute, or have to, on this version? */
static bool
is_named(uint64_t version)
{
	uint64_t on[8];
	const uint32_t n = fal_sched_list_versions(sched, 2, on, 8);
	bool is = false;
	for (uint32_t i = 0; i < n; i++)
		is |= on[i] == version;
	return is;
}

/* A round that was ordered to end is computed on no more, but where somebody has to fill
 * it: he may have been granted that when its version was no old one. */
static void
what_is_filled_is_named(void **state)
{
	(void)state;
	begin("epsp:1", 2, 0);
	sched->conf.ahead = true;
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(1);
	now = 0.1;
	for (uint32_t id = 1; id <= 2; id++)
		check(claim_of(0, id, worker[id].q[0].task, 1, none, 0.1), 1, "claim");
	worker[1].n = worker[2].n = 0;
	follow_all();
	check(round_info(0).commit_ordered, 1, "ordered to end");
	fal_sched_leave(sched, now, 1);
	follow_all();
	check(round_info(0).ledger->claimed, 1, "claimed of two");
	check(is_named(0), 1, "to be filled");
	/* All of the next clock is claimed, too: nothing else is on that version. */
	for (uint32_t task = 0; task < 2; task++) {
		const struct fal_ltask *t = fal_ledger_task(round_info(1).ledger, task);
		check(t->contrib == FAL_NONE, 1, "not claimed");
		check(claim_of(1, 2, task, 2, none, 0.1), 1, "claim");
	}
	follow_all();
	check(fal_sched_oldest_version(sched, 2) > 0, 1, "an old one");
	check(is_named(0), 1, "to be filled");
	const struct fal_contrib_id dead = { 1, 1 };
	for (uint32_t task = 0; task < 2; task++)
		if (fal_ledger_task(round_info(0).ledger, task)->contrib == FAL_NONE)
			check(claim_of(0, 2, task, 3, dead, 0.1), 1, "fills");
	follow_all();
	check(is_named(0), 0, "filled");
}

/* What goes out while it is made takes from its first block on, or deadlines would be
 * learnt from what is left when it is claimed. */
static void
a_push_takes_from_its_first_block(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	(void)state;
	preclaims = true;
	begin("bsp", 1, 0);
	join(1, 1, 1, 0.1);
	for (uint32_t clock = 0; clock < 40; clock++) {
		open_clock(clock);
		const struct fal_contrib_id id = last[FAL_ACT_GRANT].cid;
		const bool before = fal_rng_below(&r, 2) == 0;
		const double gap = 1e-3 * (1 + fal_rng_below(&r, 1000)),
			     rest = 1e-3 * (1 + fal_rng_below(&r, 1000));
		const uint32_t task = worker[1].q[0].task;
		now += 0.1;
		if (before)
			fal_sched_note_blocks(sched, now, current(), id, 1, false);
		now += gap;
		check(claim_as(1, task, id.seq, none, 0.1), 1, "claim");
		worker[1].n = 0;
		now += rest / 2;
		fal_sched_note_blocks(sched, now, current(), id, 1, false);
		now += rest / 2;
		fal_sched_note_blocks(sched, now, current(), id, 1, true);
		const struct fal_window *turn =
			&fal_worker_find(sched, 1)->turn[FAL_TURN_PUSH];
		near(fal_window_ago(turn, 0), before ? gap + rest : rest, 1e-9,
		     "what the push took");
		complete(current());
	}
}

/* Ends the open clock: worker `id` claims and pushes all that it holds. */
static void
do_all(uint32_t id, uint32_t seq)
{
	uint64_t round = current();
	uint32_t won = 0;
	while (worker[id].n > 0) {
		struct item it = worker[id].q[0];
		memmove(worker[id].q, worker[id].q + 1,
			--worker[id].n * sizeof(*worker[id].q));
		hear(id);
		won += claim_of(it.round, id, it.task, seq, it.fills, 0.01) == 1;
	}
	if (won > 0)
		fal_sched_note_blocks(sched, now, round,
				      (struct fal_contrib_id){ id, seq }, 1, true);
}

/* It is tried with one task, in the next clock, and is a full member when that came. */
static void
trial_of_one_task(void **state)
{
	(void)state;
	one_is_behind();
	while (!info(1).suspected)
		talk();
	check(info(1).suspected, 1, "suspected");
	now += 0.1;
	check(claim_as(2, 0, 2, none, 0.1), 1, "the other one does it");
	worker[2].n = 0;
	fal_sched_note_blocks(sched, now, current(), (struct fal_contrib_id){ 2, 2 }, 1,
			      true);
	complete(current());
	end(state);

	begin("bsp", 6, 0);
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 1, 1, 0.1);
	open_clock(0);
	now = 0.01;
	do_all(3, 1);
	while (worker[1].n + worker[2].n > 0)
		talk();
	check(info(1).suspected && info(2).suspected, 1, "both suspected");
	check(worker[3].n, 4, "tasks of the honest one");
	do_all(3, 2);
	complete(current());
	for (uint32_t clock = 1; clock <= 2; clock++) {
		open_clock(clock);
		check(worker[1].n + worker[2].n, 1, "tasks on trial");
		uint32_t id = worker[1].n > 0 ? 1 : 2;
		do_all(id, 1);
		do_all(3, 2 + clock);
		check(info(id).suspected, 0, "suspected when its work has come");
		if (clock == 2)
			break;
		/* The other one is tried in the next clock; this one is a member. */
		complete(current());
		open_clock(clock + 1);
		check(worker[1].n > 1 || worker[2].n > 1, 1, "a full member");
		check(worker[3 - id].n, 1, "the other's trial");
		break;
	}
}

/* Nobody has shown or said what a task takes: who is busy takes nobody's; who is idle
 * does, unless lanes go on from the grant on, and then after ten times the least
 * deadline. */
static void
nothing_is_known(void **state)
{
	(void)state;
	begin("bsp", 2, 0);
	join(1, 1, 1, 0);
	join(2, 1, 1, 0);
	open_clock(0);
	while (now < 10 && info(1).suspected + info(2).suspected == 0)
		talk();
	check(acts[FAL_ACT_REVOKE], 0, "what two that are busy lose");
	do_all(2, 1);
	while (now < 100 && !info(1).suspected)
		talk();
	near(now, 40, 1, "when it is suspected, as the other one took 10 s");
	end(state);

	begin("bsp", 1, 0);
	join(1, 1, 1, 0);
	join(2, 1, 1, 0);
	open_clock(0);
	const uint32_t busy = worker[1].n > 0 ? 1 : 2;
	tick_until(FAL_ACT_PING, 1);
	near(now, 0, 1e-2, "when it is asked first");
	for (uint32_t i = 1; i < 100 && !info(busy).suspected; i++) {
		tick_until(FAL_ACT_PING, i);
		answer(busy, i);
	}
	near(now, 2, 0.1, "when it is suspected, as the other one is idle");
	end(state);

	begin("bsp", 1, 0);
	join(1, 1, 1, 0);
	join(2, 1, 1, 0);
	open_clock(0);
	while (info(1).suspected + info(2).suspected == 0)
		talk();
	near(now, 0.2, 0.1, "when its lanes stand still");
}

/* Nobody takes a task on trial, as long as that lasts: a deadline, and twice that in the
 * next one, which comes when the first one has cost a fiftieth of the time.  Of 2 seconds
 * that its key has cost it pays as much. */
static void
trials_cost_little(void **state)
{
	(void)state;
	uint32_t seq = 2;
	uint64_t clock = 0;
	double lost[2], free_at[2];
	one_is_behind();
	while (!info(1).suspected)
		talk();
	for (int k = 0; k < 2; k++) {
		do {
			now += 0.1;
			do_all(2, seq++);
			complete(current());
			open_clock(++clock);
		} while (worker[1].n == 0 && clock < CLOCKS - 1);
		check(worker[1].n, 1, "on trial");
		free_at[k] = now;
		const uint32_t task = worker[1].q[0].task;
		now += 0.1;
		do_all(2, seq++);
		while (!holds(2, task) && now < 1000)
			talk();
		lost[k] = now - free_at[k];
		near(lost[k],
		     fal_task_deadline_s(sched, fal_worker_find(sched, 1)) * (1 << k),
		     1e-2, "a trial");
		check(info(1).suspected, 1, "suspected again");
		worker[1].n = 0;
	}
	near(free_at[1], free_at[0] + lost[0] + lost[0] / 0.02, 0.3, "when it begins");
	check(acts[FAL_ACT_SUSPECT], 1, "times told: it was a suspect all the time");
	check(acts[FAL_ACT_CLEARED], 0, "times told that it is back");
}

/* When nobody is left all are back, and have longer. */
static void
somebody_works_at_any_time(void **state)
{
	(void)state;
	begin("ssp:1", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	for (uint32_t i = 1; i < 200; i++) {
		talk();
		if (info(1).suspected + info(2).suspected == 2)
			fail_msg("nobody works at %g s", now);
	}
	check(worker[1].n + worker[2].n > 0, 1, "tasks");
	assert_string_equal(last[FAL_ACT_CLEARED].why, "nobody else is left");
	assert_in_range(acts[FAL_ACT_SUSPECT] - acts[FAL_ACT_CLEARED], 0, 1);
}

/* Whoever is left, and speaks, is back at once; who does not is asked. */
static void
who_is_left_is_back(void **state)
{
	(void)state;
	one_is_behind();
	while (!info(1).suspected)
		talk();
	fal_sched_leave(sched, now, 2);
	follow_all();
	check(info(1).suspected, 0, "suspected when it is alone");
	check(worker[1].n, 1, "its task");
	end(state);

	one_is_behind();
	tick_until(FAL_ACT_REVOKE, 1);
	const uint32_t pings = acts[FAL_ACT_PING];
	fal_sched_leave(sched, now, 2);
	follow_all();
	check(info(1).suspected, 1, "suspected before it speaks");
	check(acts[FAL_ACT_PING], pings + 1, "questions");
	answer(1, 7);
	check(info(1).suspected, 0, "suspected when it has spoken");
	check(worker[1].n, 1, "its task");
}

/* Who answers and does nothing is the only one that works: who was suspected, and had no
 * reason to speak since, is asked, and takes over. */
static void
who_hangs_is_not_all_there_is(void **state)
{
	(void)state;
	one_is_behind();
	tick_until(FAL_ACT_REVOKE, 1);
	check(worker[2].n, 1, "its task is another one's");
	do {
		tick_until(FAL_ACT_PING, acts[FAL_ACT_PING] + 1);
		if (last[FAL_ACT_PING].worker == 2)
			answer(2, 7);
	} while (last[FAL_ACT_PING].worker == 2 && now < 100);
	check(last[FAL_ACT_PING].worker, 1, "who is asked");
	answer(1, 7);
	while (!holds(1, 0) && now < 100)
		talk();
	check(holds(1, 0), 1, "its task");
	check(info(1).suspected, 0, "suspected when nobody else is left");
}

/* The same where rounds are of single workers: nobody waits for a late one as long as the
 * others work, but the last active worker is waited for. */
static void
last_active_is_waited_for(void **state)
{
	(void)state;
	begin("asp", 1, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(1);
	check(worker[1].n + worker[2].n, 2, "tasks of two clocks");
	now = 0.1;
	const struct item done = worker[2].q[0];
	check(claim_of(done.round, 2, done.task, 1, none, 0.1), 1, "claim");
	worker[2].n = 0;
	complete(done.round);
	tick_until(FAL_ACT_SUSPECT, 1);
	check(last[FAL_ACT_SUSPECT].worker, 1, "suspected while another one is idle");
	check(worker[2].n, 1, "its task");
	worker[1].n = 0;
	answer(1, 7);
	/* Worker 2 hangs, and answers. */
	while (worker[1].n == 0 && now < 100) {
		now = fmax(now, fal_sched_next_tick(sched));
		fal_sched_tick(sched, now);
		follow_all();
		answer(2, 7);
		answer(1, 7);
	}
	check(worker[1].n, 1, "the task of the last active worker");
}

/* A worker on probation without a task waits, too, for the silent workers that hold the
 * last tasks. */
static void
probation_without_task_waits(void **state)
{
	(void)state;
	begin("asp", 1, 0);
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 1, 1, 0.1);
	open_clock(2);
	check(worker[1].n + worker[2].n + worker[3].n, 3, "tasks of three clocks");
	now = 0.1;
	const struct item done = worker[2].q[0];
	check(claim_of(done.round, 2, done.task, 1, none, 0.1), 1, "claim");
	worker[2].n = 0;
	complete(done.round);
	/* Worker 1 is late, and 2 is given its task. */
	while (!info(1).suspected && now < 100) {
		now = fmax(now, fal_sched_next_tick(sched));
		fal_sched_tick(sched, now);
		follow_all();
		answer(1, 7);
		answer(3, (uint64_t)(now * 1e6)); /* its lane goes on */
	}
	check(worker[2].n, 1, "its task");
	worker[1].n = 0;
	while (worker[1].n == 0 && now < 1000) {
		now = fmax(now, fal_sched_next_tick(sched));
		fal_sched_tick(sched, now);
		follow_all();
		answer(1, 7);
	}
	check(worker[1].n, 1, "the task of a silent worker");
}

/* So it is where several do: they are suspected and back by turns. */
static void
who_hang_by_turns_are_not_all_there_is(void **state)
{
	(void)state;
	begin("bsp", 3, 0);
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 1, 1, 0.1);
	open_clock(0);
	now = 0.1;
	for (uint32_t id = 2; id <= 3; id++) {
		check(claim_as(id, worker[id].q[0].task, 1, none, 0.1), 1, "claim");
		worker[id].n = 0;
		fal_sched_note_blocks(sched, now, current(),
				      (struct fal_contrib_id){ id, 1 }, 1, true);
	}
	tick_until(FAL_ACT_REVOKE, 1);
	check(info(1).suspected, 1, "who is silent");
	uint32_t pings = acts[FAL_ACT_PING];
	bool asked = false;
	while (!asked && now < 100) {
		now = fmax(now, fal_sched_next_tick(sched));
		fal_sched_tick(sched, now);
		follow_all();
		asked = acts[FAL_ACT_PING] > pings && last[FAL_ACT_PING].worker == 1;
		pings = acts[FAL_ACT_PING];
		answer(2, 7);
		answer(3, 7);
		asked |= acts[FAL_ACT_PING] > pings && last[FAL_ACT_PING].worker == 1;
		pings = acts[FAL_ACT_PING];
	}
	check(asked, 1, "is asked");
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

/* Where that is skipped the task is over, and so are all claims of it; the step divides
 * by what is left. */
static void
nonfinite_twice_skips(void **state)
{
	(void)state;
	skips = true;
	begin("epsp", 3, 0);
	skips = false;
	for (uint32_t i = 1; i <= 3; i++)
		join(i, 1, 1, 1);
	open_clock(0);
	const uint64_t round = current();
	uint32_t task[4] = { 0 };
	for (uint32_t i = 1; i <= 3; i++) {
		check(worker[i].n, 1, "tasks of each");
		task[i] = worker[i].q[0].task;
	}
	check(claim_nonfinite(1, task[1]), 0, "the first");
	check(acts[FAL_ACT_SKIP], 0, "skipped after one");
	const uint32_t second = holds(2, task[1]) ? 2 : 3, other = 5 - second;
	check(claim_nonfinite(second, task[1]), 0, "the second");
	check(acts[FAL_ACT_SKIP], 1, "skipped after two");
	check(acts[FAL_ACT_STOP], 0, "stops");
	check(last[FAL_ACT_SKIP].first, task[1], "which");
	for (uint32_t i = 1; i <= 3; i++)
		check(holds(i, task[1]), 0, "somebody holds it");
	check(claim_of(round, second, task[second], 1, (struct fal_contrib_id){ 0, 0 },
		       1),
	      1, "another task");
	check(claim_of(round, other, task[other], 1, (struct fal_contrib_id){ 0, 0 }, 1),
	      1, "and the last one");
	check(round_info(round).ledger->claimed, 3, "claimed");
	check(round_info(round).samples, 2, "samples");
	complete(round);
	check((int64_t)last[FAL_ACT_STEP].divisor, 2, "divisor");
	check(acts[FAL_ACT_CHARGE], 0, "charges");
}

static void
claim_first(uint32_t id, bool nonfinite)
{
	struct worker *w = &worker[id];
	const struct item t = w->q[0];
	struct fal_claim_report c = { .worker = id,
				      .round = t.round,
				      .task = t.task,
				      .seq = ++w->seq,
				      .task_s = 0.1,
				      .nonfinite = nonfinite };
	check(w->n > 0, 1, "a task that it holds");
	w->q[0] = w->q[--w->n];
	check(fal_sched_claim(sched, now, &c), !nonfinite, "claim");
	follow_all();
}

/* The first task of a worker, and all of its round, is done and counted. */
static void
finish_first(uint32_t id)
{
	const uint64_t round = worker[id].q[0].round;
	claim_first(id, false);
	fal_sched_note_blocks(sched, now, round,
			      (struct fal_contrib_id){ id, worker[id].seq }, 1, true);
	complete(round);
}

/* A retry waits for somebody to begin it when the last one who works falls under
 * suspicion, and so has, before, who is to leave it to others: nobody is left. */
static void
who_is_left_with_a_retry_is_back(void **state)
{
	(void)state;
	begin("asp", 1, 0);
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 1, 1, 0.1);
	open_clock(9);
	claim_first(1, true);
	now = 0.05;
	finish_first(2);
	check(worker[2].n, 1, "the retry");
	now = 0.1;
	finish_first(3);
	while (now < 100) {
		talk();
		check(sched->active > 0, 1, "somebody works");
	}
	check(now < INFINITY, 1, "something is going to happen");
}

/* All that work are gone, unnoticed, and nobody waits for them: a suspect that answers is
 * tried, though no clock ends, and does what they had. */
static void
a_suspect_does_what_the_lost_had(void **state)
{
	(void)state;
	begin("asp", 1, 0);
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 1, 1, 0.1);
	open_clock(2);
	check(worker[1].q[0].round < worker[2].q[0].round, 1, "the first clock");
	now = 0.1;
	finish_first(3);
	for (uint64_t steps = 1; !info(2).suspected && now < 100; steps++) {
		now = fmax(now, fal_sched_next_tick(sched));
		fal_sched_tick(sched, now);
		follow_all();
		answer(1, steps);
		answer(2, 7);
	}
	worker[2].n = 0;
	open_clock(9);
	check(worker[1].n + worker[3].n, 2, "tasks of those who are gone");
	check((int64_t)sched->pool.over, 0, "clocks");
	while (sched->pool.over < 10 && now < 100)
		if (worker[2].n > 0) {
			now += 0.1;
			finish_first(2);
		} else {
			now = fmax(now, fal_sched_next_tick(sched));
			fal_sched_tick(sched, now);
			follow_all();
			answer(2, 7);
		}
	check((int64_t)sched->pool.over, 10, "clocks");
}

/* A suspect that hangs holds up one of many results that are not finite, not each: the
 * worker that is left retries the others. */
static void
who_hangs_is_back_for_one_retry(void **state)
{
	(void)state;
	skips = true;
	begin("asp", 8, 0);
	skips = false;
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	while (sched->skipped < 8 && now < 1000) {
		const struct fal_round *r = sched->oldest;
		if (worker[1].n > 0)
			claim_first(1, true);
		else if (r != NULL && r->ledger.skipped == r->ledger.tasks)
			complete(r->id);
		else
			talk();
	}
	check(sched->skipped, 8, "tasks skipped");
	check(acts[FAL_ACT_CLEARED], 1, "times that the other one is back");
	check(now < 1, 1, "soon");
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

/* Who waits for another one's word, and leaves, is not waited for. */
static void
who_waited_and_left_decides_nothing(void **state)
{
	(void)state;
	begin("asp", 1, 0);
	for (uint32_t id = 1; id <= 3; id++) {
		struct fal_join j = { .id = id,
				      .key = id < 3 ? 1 : 2,
				      .lanes_min = 1,
				      .lanes_max = 1,
				      .cores = 1,
				      .task_s = 0.1 };
		check(fal_sched_join(sched, now, &j), 0, "join");
	}
	open_clock(9);
	check(worker[1].n, 1, "tasks that the first holds");
	claim_first(1, true);
	check(worker[1].n, 0, "it waits");
	uint64_t of_2 = worker[2].q[0].round;
	check(worker[2].n, 1, "tasks that the second holds");
	claim_first(2, false);
	complete(of_2);
	check(worker[2].n, 0, "so does the other one of its key");
	fal_sched_leave(sched, now, 2);
	fal_sched_leave(sched, now, 3);
	follow_all();
	check(worker[1].n, 1, "nobody is left who says more");
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
		fal_sched_charge(sched, 1, "a few words");
		follow_all();
	}
	check(acts[FAL_ACT_EVICT], 1, "evictions at the second charge");
	check(last[FAL_ACT_EVICT].worker, 1, "who");
	check(acts[FAL_ACT_STOP], 0, "stops");
}

/* A task that is late is reviewed each time that it has run twice as long, and no more
 * often for what the other lanes of its worker do. */
static void
late_tasks_are_reviewed_seldom(void **state)
{
	(void)state;
	uint32_t reviews = 0;
	begin("syncopt:0", 16, 0);
	join(1, 2, 2, 0.01);
	open_clock(0);
	for (uint32_t task = 1; task < 16; task++) {
		const double until = now + 0.01;
		for (double at; (at = fal_sched_next_tick(sched)) < until; reviews++) {
			now = fmax(now, at);
			fal_sched_tick(sched, now);
			follow_all();
		}
		now = until;
		check(claim_as(1, task, 1, none, 0.01), 1, "claim of the other lane");
	}
	assert_in_range(reviews, 2, 8);
}

/* Who has stopped is looked at, at most, when it becomes late, after twice as long, and
 * so on, and thrice for each deadline: whatever it answers, and however many others have.
 */
static void
hung_ones_are_looked_at_seldom(void **state)
{
	static const char *const rules[] = { "epsp", "epsp:2", "bsp" };
	static const double looked = 10; /* seconds */
	struct fal_rng r = fal_rng_init(drawn_seed(11), FAL_RNG_TEST, 0);
	for (int run = 0; run < 60; run++) {
		const uint32_t n = 2 + fal_rng_below(&r, WORKERS - 1);
		const uint32_t clocks = fal_rng_below(&r, 4);
		uint32_t ticks = 0;
		begin(rules[fal_rng_below(&r, 3)], 1 + fal_rng_below(&r, 3 * n), 0);
		for (uint32_t id = 1; id <= n; id++)
			join(id, 1, 1, pow(10, -3 + 3 * (double)fal_rng_unit(&r)));
		for (uint32_t clock = 0; clock < clocks; clock++)
			play_clock(clock);
		open_clock(clocks);
		const double until = now + looked;
		for (; now < until && fal_sched_next_tick(sched) < until; ticks++) {
			now = fmax(now, fal_sched_next_tick(sched));
			fal_sched_tick(sched, now);
			follow_all();
			for (uint32_t id = 1; id < n; id++)
				if (id % 3 > 0)
					answer(id, id % 3 == 1 ? 0 : ticks);
		}
		if (ticks > n * (16 + 3 * looked / 0.2))
			fail_msg("run %d: %u workers, %u clocks: %u looks in %g s", run,
				 n, clocks, ticks, looked);
		end(state);
	}
}

/* However much else happens. */
static void
hung_ones_are_looked_at_in_time(void **state)
{
	(void)state;
	begin("epsp", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	for (int i = 0; i < 10000 && acts[FAL_ACT_SUSPECT] == 0; i++) {
		now += 5e-4;
		fal_worker_refresh(sched, fal_worker_find(sched, 1), now);
		fal_worker_refresh(sched, fal_worker_find(sched, 2), now);
		if (fal_sched_next_tick(sched) <= now)
			fal_sched_tick(sched, now);
		follow_all();
		answer(2, (uint64_t)(now * 1e6));
	}
	check(last[FAL_ACT_SUSPECT].worker, 1, "who is suspected");
}

/* What was taken back, and granted again while the claim of it was under way, is claimed
 * by that: its worker is told, which would else run it once more. */
static void
claim_that_crosses_a_grant(void **state)
{
	(void)state;
	for (int nonfinite = 0; nonfinite < 2; nonfinite++) {
		begin("epsp", 4, 0);
		join(1, 1, 1, 0.1);
		join(2, 1, 1, 0.1);
		open_clock(0);
		const uint32_t task = worker[1].q[1].task;
		struct fal_worker *one = fal_worker_find(sched, 1),
				  *two = fal_worker_find(sched, 2);
		fal_node_move(sched, one->tail, two, now);
		check(two->tail->task, task, "what was moved");
		fal_node_move(sched, two->tail, one, now);
		follow_all();
		check(holds(1, task), 1, "that task");
		now = 0.1;
		const uint32_t revokes = acts[FAL_ACT_REVOKE];
		if (nonfinite)
			claim_nonfinite(1, task);
		else
			check(claim_as(1, task, 1, none, 0.1), 1, "claim");
		check(acts[FAL_ACT_REVOKE], revokes + 1, "revokes");
		check(last[FAL_ACT_REVOKE].worker, 1, "whose");
		check(last[FAL_ACT_REVOKE].first, task, "of what");
		check(claim_as(2, worker[2].q[0].task, 1, none, 0.1), 1, "another one");
		check(acts[FAL_ACT_REVOKE], revokes + 1, "revokes of who had it once");
		end(state);
	}
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		TEST(leave_is_filled),
		TEST(fills_wait_for_fences),
		TEST(shards_are_waited_for),
		TEST(waiting_is_no_pull),
		TEST(nor_is_it_behind_others),
		TEST(the_first_one_is_pulled_for),
		TEST(an_old_claim_is_no_pull),
		TEST(slots_are_used_again),
		TEST(silence_is_suspected),
		TEST(talk_is_no_work),
		TEST(lanes_that_go_on_have_longer),
		TEST(claims_of_time_count_for_nothing),
		TEST(late_answer_is_no_far_link),
		TEST(a_push_takes_from_its_first_block),
		TEST(what_is_filled_is_named),
		TEST(trial_of_one_task),
		TEST(nothing_is_known),
		TEST(trials_cost_little),
		TEST(somebody_works_at_any_time),
		TEST(who_is_left_is_back),
		TEST(who_hangs_is_not_all_there_is),
		TEST(last_active_is_waited_for),
		TEST(probation_without_task_waits),
		TEST(who_hang_by_turns_are_not_all_there_is),
		TEST(nonfinite_twice_stops),
		TEST(nonfinite_twice_skips),
		TEST(nonfinite_alone),
		TEST(who_is_left_with_a_retry_is_back),
		TEST(a_suspect_does_what_the_lost_had),
		TEST(who_hangs_is_back_for_one_retry),
		TEST(nonfinite_again_decides_nothing),
		TEST(who_waited_and_left_decides_nothing),
		TEST(second_charge_evicts),
		TEST(late_tasks_are_reviewed_seldom),
		TEST(hung_ones_are_looked_at_seldom),
		TEST(hung_ones_are_looked_at_in_time),
		TEST(claim_that_crosses_a_grant),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
