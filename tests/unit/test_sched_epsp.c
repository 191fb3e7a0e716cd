/* Who gets what under epsp and bsp: shares, transfer, clones, versions. */
#include "test_sched.h"

#include "sched/state.h"

#include "../drawn.h"

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
		begin("epsp", tasks, 0);
		for (uint32_t id = 1; id <= workers; id++) {
			uint32_t lanes = 1 + fal_rng_below(&r, 3);
			double s = 0.01 * (1 + fal_rng_below(&r, 30));
			check(join(id, lanes, lanes, s), 0, "join");
		}
		open_clock(0);
		uint32_t sum = 0;
		for (uint32_t id = 1; id <= workers; id++) {
			sum += worker[id].n;
			latest = fmax(latest, info(id).finish);
			check(work(id).share, worker[id].n, "share");
		}
		check(sum, tasks, "tasks granted");
		near(latest, brute_force(1, workers, tasks), 1e-5, "latest finish");
		end(state);
	}
}

/* Its push costs more than the whole clock: it stands by, and is tried after 1 clock, 2,
 * 4, 8, and then each 16. */
static void
standby_and_trial(void **state)
{
	(void)state;
	begin("epsp", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	worker[2].push_s = 1;
	play_clock(0);
	check(told[2].share, 2, "share before anything is known");
	uint64_t clock = 1;
	for (uint32_t k = 0; k < 6; k++) {
		for (uint32_t i = 0; i < (k < 4 ? 1U << k : 16); i++) {
			near(play_clock(clock++), 0.4, 1e-3,
			     "length of a clock without it");
			check(told[2].share, 0, "share");
			check(told[2].in, 0, "tasks moved to it");
		}
		worker[2].push_s = k == 5 ? 0 : 1;
		play_clock(clock++);
		check(told[2].share, 1, "trial share");
	}
	play_clock(clock);
	check(told[2].share, 2, "share of one that is as fast as the other");
}

/* Workers that are as fast as each other, a task for each. */
static uint32_t
begin_equals(struct fal_rng *r, double task_s)
{
	const uint32_t n = 2 + fal_rng_below(r, WORKERS - 1);
	begin("epsp", n, 0);
	for (uint32_t id = 1; id <= n; id++) {
		join(id, 1, 1, task_s);
		worker[id].pull_s = task_s * 0.01 * fal_rng_below(r, 20);
		worker[id].push_s = task_s * 0.01 * fal_rng_below(r, 20);
	}
	return n;
}

static void
all_have_work(uint64_t clock, uint32_t n)
{
	play_clock(clock);
	for (uint32_t id = 1; id <= n; id++)
		if (told[id].share == 0)
			fail_msg("clock %llu: worker %u of %u has no task",
				 (unsigned long long)clock, id, n);
}

/* Whoever took long to begin, when it had all to read, is not held to that. */
static void
a_start_says_nothing(void **state)
{
	struct fal_rng r = fal_rng_init(drawn_seed(20261126), FAL_RNG_TEST, 0);
	for (uint32_t round = 0; round < 40; round++) {
		const double task_s = 0.001 * (1 + fal_rng_below(&r, 100));
		const uint32_t n = begin_equals(&r, task_s);
		double pull_s[WORKERS + 1];
		for (uint32_t id = 1; id <= n; id++) {
			pull_s[id] = worker[id].pull_s;
			worker[id].pull_s = task_s * fal_rng_below(&r, 60);
		}
		play_clock(0);
		for (uint32_t id = 1; id <= n; id++)
			worker[id].pull_s = pull_s[id];
		uint64_t clock = 1;
		while (clock < 3 + n) /* one that stands by is tried in a clock */
			play_clock(clock++);
		while (clock < 30)
			all_have_work(clock++, n);
		end(state);
	}
}

/* One task or pull that takes long costs its worker the next clock or two, a push none.
 */
static void
a_hiccup_says_little(void **state)
{
	struct fal_rng r = fal_rng_init(drawn_seed(20261126), FAL_RNG_TEST, 1);
	for (uint32_t round = 0; round < 40; round++) {
		const double task_s = 0.001 * (1 + fal_rng_below(&r, 100));
		const uint32_t n = begin_equals(&r, task_s);
		uint64_t clock = 0;
		while (clock < 4 + fal_rng_below(&r, 20))
			play_clock(clock++);
		struct worker *w = &worker[1 + fal_rng_below(&r, n)];
		double *of[] = { &w->task_s, &w->pull_s, &w->push_s };
		double *what = of[fal_rng_below(&r, 3)], was = *what;
		*what = task_s * (2 + fal_rng_below(&r, 20));
		if (what == &w->push_s) /* not late */
			*what = fmin(*what, 0.15);
		play_clock(clock++);
		for (uint32_t i = 0; i < 3 && what != &w->push_s; i++) {
			*what = was;
			play_clock(clock++);
		}
		*what = was;
		for (uint32_t i = 0; i < 10; i++)
			all_have_work(clock++, n);
		end(state);
	}
}

/* One that takes ten clocks to begin costs little more than if it was not here, when one
 * of the others has two tasks: be it that its own is run by others, too, or that it is
 * tried.
 */
static void
a_slow_puller_costs_nothing(void **state)
{
	struct fal_rng r = fal_rng_init(drawn_seed(20261126), FAL_RNG_TEST, 3);
	for (uint32_t round = 0; round < 40; round++) {
		const double task_s = 0.001 * (8 + fal_rng_below(&r, 90));
		const uint32_t n = begin_equals(&r, task_s);
		worker[1 + fal_rng_below(&r, n)].pull_s =
			task_s * (10 + fal_rng_below(&r, 50));
		double all = 0, longest = 0;
		play_clock(0);
		for (uint64_t clock = 1; clock < 60; clock++) {
			const double took = play_clock(clock) / task_s;
			all += took;
			longest = fmax(longest, took);
		}
		if (longest > 5 || all > 59 * 2.6)
			fail_msg("%g tasks a clock, %g the longest", all / 59, longest);
		end(state);
	}
}

/* Whoever had work and was not heard of is still pulling: it gets less. */
static void
silent_puller_gets_less(void **state)
{
	(void)state;
	begin("epsp", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	worker[2].task_s = 1000;
	play_clock(0);
	check(told[2].share, 2, "share before anything is known");
	play_clock(1);
	check(told[2].share, 1, "share after a clock without a word");
}

static void
straggler_gives_its_tail(void **state)
{
	(void)state;
	begin("epsp", 8, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	worker[2].task_s = 0.8;
	open_clock(0);
	for (uint32_t i = 0; i < 3; i++) {
		check(worker[2].n, 4, "tasks of the straggler");
		check((int64_t)entries(FAL_ENTRY_MOVE), 0, "moves before it is needed");
		now += 0.1;
		finish_item(1, &worker[1].q[0]);
	}
	const struct fal_ledger *l = ledger();
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
	begin("epsp", 16, 0);
	for (uint32_t id = 1; id <= 4; id++)
		join(id, 2, 2, 0.1);
	for (uint64_t clock = 0; clock < 6; clock++) {
		near(play_clock(clock), 0.2, 1e-9, "length of a clock");
		check((int64_t)entries(FAL_ENTRY_MOVE), 0, "moves");
		check((int64_t)entries(FAL_ENTRY_CLONE), 0, "clones");
	}
}

/* A machine gives a turn to another program: that is no reason to run a task twice. */
static void
a_turn_is_not_late(void **state)
{
	struct fal_rng r = fal_rng_init(drawn_seed(20261126), FAL_RNG_TEST, 2);
	for (uint32_t round = 0; round < 40; round++) {
		const double task_s = 0.0005 * (1 + fal_rng_below(&r, 6));
		const uint32_t n = begin_equals(&r, task_s);
		uint64_t clock = 0;
		while (clock < 8)
			play_clock(clock++);
		struct worker *w = &worker[1 + fal_rng_below(&r, n)];
		w->task_s = task_s + 0.0038;
		play_clock(clock++);
		check((int64_t)entries(FAL_ENTRY_CLONE), 0,
		      "clones of what is a turn late");
		w->task_s = task_s;
		for (uint32_t i = 0; i < 8; i++)
			play_clock(clock++);
		w->task_s = 0.1;
		play_clock(clock++);
		assert_true(entries(FAL_ENTRY_CLONE) > 0);
		end(state);
	}
}

/* However many that hang hold it: the next idle one runs it, too. */
static void
cloned_as_often_as_needed(void **state)
{
	(void)state;
	begin("epsp", 1, 0);
	for (uint32_t id = 1; id <= 5; id++)
		join(id, 1, 1, 0.1);
	open_clock(0);
	while (now < 1 &&
	       !holds(1, 0) + !holds(2, 0) + !holds(3, 0) + !holds(4, 0) + !holds(5, 0) >
		       0) {
		now = fmax(now, fal_sched_next_tick(sched));
		fal_sched_tick(sched, now);
		follow_all();
		for (uint32_t id = 1; id <= 5; id++)
			answer(id, (uint64_t)(now * 1e6)); /* they only seem to work */
	}
	for (uint32_t id = 1; id <= 5; id++)
		check(holds(id, 0), 1, "every one runs it");
	check(claim_as(5, 0, 1, none, 0.1), 1, "the claim that comes");
	for (uint32_t id = 1; id <= 4; id++)
		check(holds(id, 0), 0, "the others are told");
}

static void
last_task_is_cloned(void **state)
{
	(void)state;
	begin("epsp", 2, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	play_clock(0);
	open_clock(1);
	check(holds(1, 0) && holds(2, 1), 1, "one task each");
	now += 0.1;
	check(claim_as(1, 0, 9, none, 0.1), 1, "the pioneer's claim");
	check((int64_t)entries(FAL_ENTRY_CLONE), 0, "clones while nobody is late");
	while (now < 5 && entries(FAL_ENTRY_CLONE) == 0) {
		now = fmax(now, fal_sched_next_tick(sched));
		fal_sched_note_message(sched, now, 2); /* it lives, and computes on */
		fal_sched_tick(sched, now);
		follow_all();
	}
	check(last[FAL_ACT_GRANT].worker, 1, "who runs it again");
	check(last[FAL_ACT_GRANT].first, 1, "what");
	check(holds(2, 1), 1, "the straggler still runs it");
	check(claim_as(1, 1, 9, none, 0.1), 1, "the clone's claim");
	check(last[FAL_ACT_REVOKE].worker, 2, "the loser is told");
	check(holds(2, 1), 0, "the loser runs it");
	check(work(2).cut.tasks, 1, "tasks cut short");
	if (!(work(2).cut.seconds > 0.1 && work(2).cut.seconds <= now))
		fail_msg("cut after %g s at %g", work(2).cut.seconds, now);
	check(claim_as(2, 1, 9, none, 3), 0, "the loser's claim");
	check(work(2).lost, 1, "lost");
}

/* A clock of no more tasks than the only worker has lanes is claimed as it is granted.
 * Who comes while it is at that takes nothing of it, and gets it if that worker leaves.
 */
static void
who_is_alone_claims_ahead(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	(void)state;
	for (int i = 0; i < 60; i++) {
		const uint32_t lanes = 1 + fal_rng_below(&r, 4),
			       tasks = 1 + fal_rng_below(&r, 8);
		const bool alone = fal_rng_below(&r, 3) > 0,
			   own = alone && tasks <= lanes;
		preclaims = true;
		begin(fal_rng_below(&r, 2) == 0 ? "epsp" : "epsp:2", tasks, 0);
		join(1, lanes, lanes, 0.1);
		if (!alone)
			join(2, lanes, lanes, 0.1);
		open_clock(0);
		const struct fal_contrib_id id = last[FAL_ACT_GRANT].cid;
		check(id.seq >= FAL_PRECLAIMED, own, "claimed ahead");
		check(ledger()->claimed, own ? tasks : 0, "claimed");
		if (!own) {
			end(state);
			continue;
		}
		join(3, 4, 4, 0.001);
		for (int k = 0; k < 3; k++) {
			now += 0.001 * fal_rng_below(&r, 100);
			hear(1);
			hear(3);
			fal_sched_tick(sched, now);
		}
		follow_all();
		check(worker[1].n, tasks, "its own");
		check(worker[3].n, 0, "who came takes");
		fal_sched_leave(sched, now, 1);
		follow_all();
		check(worker[3].n, tasks, "who is left has");
		check(last[FAL_ACT_GRANT].fills.seq, id.seq, "to be filled");
		end(state);
	}
}

/* A lone worker's clock of less than a second is claimed as it is granted, however many
 * tasks it has; a longer clock is not. */
static void
lone_worker_claims_short_clocks_ahead(void **state)
{
	for (int i = 0; i < 2; i++) {
		begin("epsp", 4, 0);
		join(1, 1, 1, i == 0 ? 0.1 : 1);
		for (uint64_t clock = 0; clock < 3; clock++)
			play_clock(clock);
		sched->conf.preclaims = true;
		open_clock(3);
		check(last[FAL_ACT_GRANT].cid.seq >= FAL_PRECLAIMED, i == 0,
		      "claimed ahead");
		end(state);
	}
}

/* The samples that a worker holds. */
static uint32_t
samples_of(uint32_t id)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < worker[id].n; i++)
		n += fal_ledger_task(ledger(), worker[id].q[i].task)->samples;
	return n;
}

/* Clocks of 24 large tasks of 8 samples and 32 small ones of 2. */
static void
begin_cut(const char *rule)
{
	cut = (struct fal_grid){ .samples = 256000,
				 .batch = 256,
				 .task = 8,
				 .epochs = 1,
				 .tail = 0.25,
				 .tail_task = 2 };
	begin(rule, 1, 0);
}

/* Small tasks even out what large ones leave: workers of these speeds end together, to
 * within a small task.  Without claims each has one contribution of both. */
static void
small_tasks_even_out(void **state)
{
	static const double task_s[] = { 0.08, 0.08, 0.08, 0.32 };
	double first = INFINITY, last_end = 0;
	(void)state;
	begin_cut("epsp");
	for (uint32_t id = 1; id <= 4; id++)
		join(id, 1, 1, task_s[id - 1]);
	open_clock(0);
	uint32_t all = 0;
	for (uint32_t id = 1; id <= 4; id++) {
		const double is = samples_of(id) * task_s[id - 1] / 8;
		first = fmin(first, is);
		last_end = fmax(last_end, is);
		all += samples_of(id);
	}
	check(all, 256, "samples");
	near(last_end, first, 0.081, "the last end");
	check(worker[4].q[0].task < 24, 1, "a large task first");
	check(worker[4].q[worker[4].n - 1].task >= 24, 1, "small ones last");
	end(state);
	preclaims = true;
	begin_cut("bsp");
	for (uint32_t id = 1; id <= 4; id++)
		join(id, 1, 1, 0.08);
	open_clock(0);
	check(acts[FAL_ACT_GRANT], 8, "grants");
	check(ledger()->contribs, 4, "contributions");
	for (uint32_t id = 1; id <= 4; id++)
		check(samples_of(id), 64, "samples of each");
}

/* The contribution for which a task of the open clock is claimed ahead, or `own`. */
static uint32_t
seq_of(uint32_t task, uint32_t own)
{
	const struct fal_ltask *t = fal_ledger_task(ledger(), task);
	return t->due ? ledger()->contrib[t->contrib].id.seq : own;
}

/* A clock of a task for each of n workers, of which those in `slow` (bit id) are done
 * `later` than the others; `rtt` is that of all but the last, whose is `far`.  Returns
 * how many tasks were claimed ahead. */
static uint32_t
clock_of(uint32_t n, uint64_t clock, double rtt, double far, double later, uint32_t slow)
{
	uint32_t ahead = 0;
	open_clock(clock);
	const double begun = now;
	for (uint32_t i = 0; i < 2 * n; i++) {
		const uint32_t id = i % n + 1;
		if ((slow >> id & 1) != i / n)
			continue;
		check(worker[id].n, 1, "a task");
		const uint32_t task = worker[id].q[0].task,
			       seq = seq_of(task, worker[id].seq++);
		worker[id].n = 0;
		fal_sched_note_pong(sched, now, id, id == n ? far : rtt, clock);
		now = begun + 0.1 + (i / n) * later;
		ahead += seq >= FAL_PRECLAIMED;
		check(claim_as(id, task, seq, none, 0.1), 1, "claim");
		fal_sched_note_blocks(sched, now, current(),
				      (struct fal_contrib_id){ id, seq }, 1, true);
	}
	complete(current());
	return ahead;
}

/* Tasks are claimed ahead where a claim takes longer than others would save: the last
 * worker is late by more than who was done first takes for its task, and for hearing of
 * it.  That is so of all workers, whoever is late in which clock, but of those that are
 * much farther. */
static void
firm_where_help_saves_less_than_a_claim(void **state)
{
	enum { ONE, IN_TURN, ALL_BUT_ONE, ONE_NEAR, KINDS };
	static const char *const name[] = { "a", "b", "c", "d", "e" };
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 2);
	for (uint32_t i = 0; i < 80; i++) {
		const uint32_t kind = i % KINDS, n = 2 + (uint32_t)fal_rng_below(&r, 4);
		const double rtt = 0.01 * (2 + fal_rng_below(&r, 9)), task_s = 0.1;
		const double far = n > 2 && kind == ONE_NEAR ? 10 * rtt : rtt;
		const bool firm = fal_rng_below(&r, 2) == 0;
		const double times = firm ? 0.5 : kind == ONE_NEAR ? 20 : 2;
		const double later = task_s + rtt + times * rtt;
		struct fal_policy p =
			policy_of(fal_rng_below(&r, 2) == 0 ? "epsp" : "epsp:1");
		p.no_clones = true;
		for (uint32_t k = 0; k < n; k++)
			fal_policy_entry(&p, name[k])->share = 1;
		preclaims = true;
		begin_with(&p, n, 0);
		for (uint32_t k = 0; k < n; k++)
			join_as(k + 1, name[k], 1, 1, task_s);
		/* The first clock knows no speeds, and does not count. */
		for (uint64_t c = 0; c < 6; c++) {
			const uint32_t one = 2U << c % n, all = (2U << n) - 2;
			const uint32_t slow = kind == ONE || kind == ONE_NEAR ? 2U
					      : kind == IN_TURN               ? one
									      : all - one;
			const uint32_t ahead = c < 2 ? 0 : firm ? n : far > rtt;
			check(clock_of(n, c, rtt, far, c == 0 ? 1 : later, slow), ahead,
			      "claimed ahead");
		}
		fal_policy_free(&p);
		end(state);
	}
}

/* Who was alone, and stands still though it answers, keeps nothing from who has come. */
static void
alone_and_hung(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 1);
	(void)state;
	for (int i = 0; i < 20; i++) {
		const uint32_t lanes = 1 + fal_rng_below(&r, 4),
			       tasks = 1 + fal_rng_below(&r, lanes);
		const double task_s = 0.001 * (1 + fal_rng_below(&r, 1000));
		preclaims = true;
		begin(fal_rng_below(&r, 2) == 0 ? "epsp" : "epsp:2", tasks, 0);
		join(1, lanes, lanes, task_s);
		open_clock(0);
		const uint64_t round = current();
		check(last[FAL_ACT_GRANT].cid.seq >= FAL_PRECLAIMED, 1, "claimed ahead");
		join(3, 4, 4, task_s);
		for (uint32_t k = 0; k < 1000 && held_of(3, round) < tasks; k++) {
			now = fmax(now, fal_sched_next_tick(sched));
			fal_sched_tick(sched, now);
			follow_all();
			answer(1, 1);
			answer(3, k + 1);
		}
		check(held_of(3, round), tasks, "who has come has");
		if (!(now < 60 * (task_s + 1)))
			fail_msg("after %g s, tasks of %g s", now, task_s);
		end(state);
	}
}

/* Who is heard again when it is the only one left is granted what it had, claimed ahead:
 * the claim that it had sent before that is lost, and nothing is claimed twice. */
static void
alone_again(void **state)
{
	(void)state;
	preclaims = true;
	begin("epsp", 4, 0);
	join(1, 4, 4, 0.1);
	join(2, 2, 2, 0.1);
	open_clock(0);
	const uint32_t one = worker[1].q[0].task, other = worker[1].q[1].task;
	now = 0.1;
	hear(1);
	hear(2);
	check(claim_as(1, one, 1, none, 0.1), 1, "won");
	for (int i = 0; i < 200 && !info(1).suspected; i++) {
		now = fmax(now, fal_sched_next_tick(sched));
		fal_sched_tick(sched, now);
		follow_all();
		answer(2, (uint64_t)i + 1);
	}
	check(info(1).suspected, 1, "suspected");
	now += 0.01;
	fal_sched_leave(sched, now, 2);
	follow_all();
	now += 0.01;
	hear(1);
	check(last[FAL_ACT_GRANT].cid.seq >= FAL_PRECLAIMED, 1, "claimed ahead");
	const uint32_t grants = acts[FAL_ACT_GRANT];
	check(claim_as(1, other, 1, none, 0.1), 0, "lost");
	check(acts[FAL_ACT_GRANT], grants, "granted once more");
}

/* What it spends on a task that another one finishes first is not part of its push. */
static void
lost_race_is_no_push(void **state)
{
	(void)state;
	begin("epsp", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(0);
	now += 0.1;
	finish_item(1, &worker[1].q[0]);
	finish_item(2, &worker[2].q[0]);
	now += 0.1;
	finish_item(1, &worker[1].q[0]);
	uint32_t task = worker[2].q[0].task;
	while (now < 5 && entries(FAL_ENTRY_CLONE) == 0) {
		now = fmax(now, fal_sched_next_tick(sched));
		hear(2);
		fal_sched_tick(sched, now);
		follow_all();
	}
	now += 0.1;
	finish_item(1, &worker[1].q[0]);
	check(holds(2, task), 0, "the loser runs it");
	now += 0.001;
	fal_sched_note_blocks(sched, now, current(), (struct fal_contrib_id){ 2, 1 }, 1,
			      true);
	near(fal_worker_find(sched, 2)->push.least, 0.001, 1e-9, "seconds of the push");
}

/* One task that takes much longer says how the rest of the clock will be; one that is a
 * little late does not. */
static void
other_speed_is_believed_at_once(void **state)
{
	(void)state;
	begin("epsp", 8, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	for (uint64_t clock = 0; clock < 4; clock++)
		play_clock(clock);
	open_clock(4);
	now += 0.14;
	finish_item(2, &worker[2].q[0]);
	near(info(2).task_s, 0.1, 1e-9, "projected after a late wake-up");
	now += 0.6;
	finish_item(2, &worker[2].q[0]);
	near(info(2).task_s, 0.6, 1e-9, "projected after a slow task");
	now += 0.1;
	finish_item(2, &worker[2].q[0]);
	near(info(2).task_s, 0.1, 1e-9, "projected after a quick task");
}

static void
bsp_is_static(void **state)
{
	(void)state;
	begin("bsp", 12, 0);
	for (uint32_t id = 1; id <= 3; id++)
		join(id, 4, 2, 0.1 * id);
	worker[3].task_s = 3;
	uint32_t lanes = acts[FAL_ACT_LANES];
	for (uint64_t clock = 0; clock < 10; clock++) {
		play_clock(clock);
		for (uint32_t id = 1; id <= 3; id++) {
			check(told[id].share, 4, "share");
			check(told[id].done, 4, "done");
		}
		check((int64_t)entries(FAL_ENTRY_MOVE), 0, "moves");
		check((int64_t)entries(FAL_ENTRY_CLONE), 0, "clones");
	}
	check(acts[FAL_ACT_LANES], lanes, "lane changes");
	check(acts[FAL_ACT_REVOKE], 0, "revokes");
}

/* --- slack ---------------------------------------------------------------------------
 */

/* Round k is computed on version k - s, whoever is complete first; updates are made in
 * the order of clocks. */
static void
rounds_name_their_versions(void **state)
{
	(void)state;
	for (uint32_t slack = 0; slack <= 3; slack++) {
		char rule[16];
		snprintf(rule, sizeof(rule), "epsp:%u", slack);
		begin(rule, 4, 0);
		join(1, 1, 1, 0.1);
		join(2, 1, 1, 0.1);
		check(fal_sched_count_versions(sched), slack + 1, "versions");
		open_clock(9);
		check(acts[FAL_ACT_OPEN], slack + 1, "rounds open");
		for (uint64_t r = 0; r < 6; r++) {
			for (uint64_t i = r; i <= r + slack; i++) {
				uint64_t v = i > slack ? i - slack : 0;
				check((int64_t)round_info(i).version, (int64_t)v,
				      "version");
				check((int64_t)round_info(i).clock, (int64_t)i, "clock");
			}
			uint64_t least = r > slack ? r - slack : 0;
			check((int64_t)fal_sched_oldest_version(sched, 1), (int64_t)least,
			      "oldest");
			check((int64_t)fal_sched_oldest_version(sched, 2), (int64_t)least,
			      "oldest");
			check((int64_t)fal_sched_first_open_clock(sched), (int64_t)r,
			      "over");
			check((int64_t)fal_sched_next_clock(sched),
			      (int64_t)(r + slack + 1), "front");
			complete(r);
			check(acts[FAL_ACT_STEP], (int64_t)r + 1, "steps");
		}
		end(state);
	}
}

/* A fraction: round k opens as with a slack of one; its early tasks are computed on
 * version k - 1, the others on version k, and are in one contribution with them. */
static void
late_tasks_wait_for_their_version(void **state)
{
	preclaims = true;
	begin("epsp:1/4", 16, 0);
	for (uint32_t id = 1; id <= 2; id++) {
		join(id, 1, 1, 0.1);
		worker[id].push_s = 0.02;
	}
	open_clock(9);
	check(acts[FAL_ACT_OPEN], 2, "rounds open");
	check(fal_sched_count_versions(sched), 2, "versions");
	check(round_info(0).first_late, FAL_NONE, "no task is early in the first clock");
	for (uint64_t r = 1; r < 4; r++) {
		check((int64_t)round_info(r).version, (int64_t)r - 1, "version");
		check(round_info(r).first_late, 4, "late");
		check((int64_t)round_info(r).late_version, (int64_t)r,
		      "version of late tasks");
		uint32_t early[3] = { 0 }, all[3] = { 0 };
		for (uint32_t id = 1; id <= 2; id++)
			for (uint32_t i = 0; i < worker[id].n; i++) {
				const struct item *it = &worker[id].q[i];
				early[id] += it->round == r && it->task < 4;
				all[id] += it->round == r;
			}
		check(early[1], 2, "early tasks of one");
		check(early[2], 2, "early tasks of the other");
		check(all[1], 8, "tasks of one");
		check(all[2], 8, "tasks of the other");
		complete(r - 1);
	}
	end(state);
}

static void
updates_are_in_order(void **state)
{
	(void)state;
	begin("epsp:2", 4, 0);
	join(1, 1, 1, 0.1);
	open_clock(9);
	complete(2);
	complete(1);
	check(acts[FAL_ACT_STEP], 0, "steps while round 0 is open");
	check(acts[FAL_ACT_OPEN], 3, "rounds");
	check((int64_t)fal_sched_first_open_clock(sched), 0, "over");
	check(fal_sched_is_quiet(sched), 0, "quiet");
	complete(0);
	check(acts[FAL_ACT_STEP], 3, "steps");
	check((int64_t)last[FAL_ACT_STEP].clock, 2, "clock of the last step");
	check(acts[FAL_ACT_OPEN], 6, "rounds");
	check((int64_t)fal_sched_first_open_clock(sched), 3, "over");
	check((int64_t)fal_sched_oldest_version(sched, 1), 1, "oldest");
	check((int64_t)fal_sched_oldest_version(sched, 7), 3, "oldest of an unknown one");
}

/* A pioneer goes on with the next clock where an enforced one would wait. */
static void
slack_bridges_a_slow_task(void **state)
{
	static const char *const rules[] = { "bsp", "epsp", "epsp:2" };
	double s[3];
	for (uint32_t i = 0; i < 3; i++) {
		begin(rules[i], 8, 0);
		join(1, 1, 1, 0.1);
		join(2, 1, 1, 0.1);
		worker[2].task_s = 0.33;
		s[i] = play_clock(19);
		check(acts[FAL_ACT_STEP], 20, "steps");
		end(state);
	}
	/* 20 clocks of 8 tasks, of which the two do 13.03 a second. */
	double ideal = 160 / (1 / 0.1 + 1 / 0.33);
	near(s[0], 20 * 4 * 0.33, 0.1, "bsp: seconds");
	if (!(s[1] < 0.6 * s[0] && s[2] < s[1] && s[2] < 1.05 * ideal))
		fail_msg("seconds: bsp %g, epsp %g, epsp:2 %g, ideal %g", s[0], s[1],
			 s[2], ideal);
}

/* Whoever is idle takes of the oldest round first: its end is what all wait for. */
static void
oldest_round_goes_first(void **state)
{
	(void)state;
	begin("epsp:1", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(9);
	check(held_of(2, 0), 2, "of round 0");
	check(held_of(2, 1), 2, "of round 1");
	fal_sched_leave(sched, now, 1);
	follow_all();
	check(worker[2].n, 8, "tasks of the one that is left");
	for (uint32_t i = 0; i < 8; i++)
		check((int64_t)worker[2].q[i].round, i / 4, "round of a place");
	check(join(3, 1, 1, 0.1), 0, "join");
	for (uint32_t i = 0; i < worker[3].n; i++)
		check((int64_t)worker[3].q[i].round, i < held_of(3, 0) ? 0 : 1,
		      "round of a moved task");
	assert_true(held_of(3, 0) > 0);
}

/* Two rounds that end in one event are accounted for, each. */
static void
no_account_is_lost(void **state)
{
	(void)state;
	begin("epsp:1", 4, 0);
	join(1, 1, 1, 0.1);
	join(2, 1, 1, 0.1);
	open_clock(9);
	const uint64_t first = worker[1].q[0].round;
	for (uint32_t n = 0, id = 1; n < 8; id = 3 - id) {
		struct item i = worker[id].q[0];
		if (worker[id].n == 0 || i.round > first + 1)
			continue;
		memmove(&worker[id].q[0], &worker[id].q[1], --worker[id].n * sizeof(i));
		uint32_t seq = (uint32_t)(i.round - first) + 1;
		check(claim_of(i.round, id, i.task, seq, none, 0.1), 1, "claim");
		n++;
	}
	complete(first + 1);
	check(acts[FAL_ACT_ACCOUNT], 0, "accounts before the older round is complete");
	complete(first);
	check(acts[FAL_ACT_ACCOUNT], 4, "accounts");
	check(told_done, 8, "tasks in them");
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		TEST(shares_minimise_the_latest_finish),
		TEST(standby_and_trial),
		TEST(a_start_says_nothing),
		TEST(a_hiccup_says_little),
		TEST(a_slow_puller_costs_nothing),
		TEST(silent_puller_gets_less),
		TEST(straggler_gives_its_tail),
		TEST(equals_keep_their_tasks),
		TEST(last_task_is_cloned),
		TEST(who_is_alone_claims_ahead),
		TEST(lone_worker_claims_short_clocks_ahead),
		TEST(small_tasks_even_out),
		TEST(firm_where_help_saves_less_than_a_claim),
		TEST(alone_and_hung),
		TEST(alone_again),
		TEST(a_turn_is_not_late),
		TEST(cloned_as_often_as_needed),
		TEST(lost_race_is_no_push),
		TEST(no_account_is_lost),
		TEST(other_speed_is_believed_at_once),
		TEST(bsp_is_static),
		TEST(rounds_name_their_versions),
		TEST(late_tasks_wait_for_their_version),
		TEST(updates_are_in_order),
		TEST(slack_bridges_a_slow_task),
		TEST(oldest_round_goes_first),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
