/* The pool of tasks that nobody was given yet: parts, what comes back, what is over. */
#include "base/err.h"
#include "base/rng.h"
#include "sched/pool.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct fal_task_pool pool;

static void
check(int64_t got, int64_t want, const char *what)
{
	if (got != want)
		fail_msg("%s: got %lld, want %lld", what, (long long)got,
			 (long long)want);
}

/* Clocks of 4 tasks, at the end of both epochs one of 2. */
static const struct fal_grid small = {
	.samples = 20, .batch = 8, .task = 2, .epochs = 2, .parts = 1
};

static void
begin(struct fal_grid grid, uint32_t parts)
{
	grid.parts = parts;
	fal_task_pool_init(&pool, &grid);
}

static int
end(void **state)
{
	(void)state;
	fal_task_pool_free(&pool);
	return 0;
}

static struct fal_task_range
take(uint32_t part, bool whole, uint32_t most)
{
	struct fal_task_range r;
	fal_task_pool_take(&pool, part, whole, most, &r);
	return r;
}

static void
is(struct fal_task_range got, uint64_t clock, uint32_t first, uint32_t count)
{
	if (got.clock != clock || got.first != first || got.count != count)
		fail_msg("got %u tasks from %u of clock %llu, want %u from %u of %llu",
			 got.count, got.first, (unsigned long long)got.clock, count,
			 first, (unsigned long long)clock);
}

/* One part: clock by clock, never beyond one. */
static void
clocks_in_order(void **state)
{
	(void)state;
	begin(small, 0); /* 0 is 1 */
	check((int64_t)pool.clocks, 6, "clocks");
	is(take(0, false, 3), 0, 0, 3);
	check(fal_task_pool_left(&pool, 0).count, 1, "left of the clock");
	is(take(0, false, 3), 0, 3, 1);
	check((int64_t)fal_task_pool_next(&pool, 0), 1, "next");
	is(take(0, true, 100), 1, 0, 4);
	is(take(0, true, 100), 2, 0, 2); /* the short one */
	for (uint64_t clock = 3; clock < 6; clock++)
		is(take(0, true, 4), clock, 0, clock < 5 ? 4 : 2);
	check((int64_t)fal_task_pool_next(&pool, 0), 6, "next: none");
	check((int64_t)fal_task_pool_first(&pool), 6, "first: none");
	check(fal_task_pool_left(&pool, 0).count, 0, "left: none");
	check(take(0, true, 4).count, 0, "nothing is left");
	check(take(0, false, 4).count, 0, "nothing is left");
}

/* Each part goes through all clocks by itself; who has done its own helps the hindmost.
 */
static void
parts_advance_alone(void **state)
{
	(void)state;
	begin(small, 2);
	for (uint64_t clock = 0; clock < 6; clock++) {
		check((int64_t)fal_task_pool_next(&pool, 1), (int64_t)clock,
		      "next of part 1");
		uint32_t n = clock % 3 == 2 ? 1 : 2;
		check(fal_task_pool_left(&pool, 1).count, n, "left of part 1");
		is(take(1, false, 100), clock, n, n);
	}
	check((int64_t)fal_task_pool_next(&pool, 0), 0, "next of part 0");
	check(pool.hindmost, 0, "hindmost");
	check((int64_t)fal_task_pool_next(&pool, 1), 0, "part 1 helps");
	check(fal_task_pool_left(&pool, 1).count, 2, "left for part 1");
	is(take(1, false, 1), 0, 0, 1);
	is(take(0, false, 9), 0, 1, 1);
	check((int64_t)fal_task_pool_next(&pool, 0), 1, "next of part 0");
}

/* A clock of 2 tasks for 3 parts: one of them has none in it. */
static void
parts_without_tasks(void **state)
{
	(void)state;
	begin(small, 3); /* 0|1|2,3 of four; of two: nothing|0|1 */
	is(take(0, false, 9), 0, 0, 1);
	is(take(0, false, 9), 1, 0, 1);
	is(take(0, false, 9), 3, 0, 1); /* none in clock 2 */
	is(take(1, false, 9), 0, 1, 1);
	is(take(2, false, 9), 0, 2, 2);
	is(take(2, false, 9), 1, 2, 2);
	is(take(2, false, 9), 2, 1, 1);
	check((int64_t)fal_task_pool_first(&pool), 1, "first");
	check(pool.hindmost, 1, "hindmost");
}

/* Of many parts that never have a task one does; it would take minutes to look for theirs
 * clock by clock. */
static void
parts_that_never_have_tasks(void **state)
{
	(void)state;
	begin((struct fal_grid){ .samples = 1000000, .batch = 1, .task = 1, .epochs = 9 },
	      65536);
	check(pool.hindmost, 65535, "hindmost");
	is(take(0, false, 9), 0, 0, 1);
	is(take(65535, false, 9), 1, 0, 1);
	is(take(0, true, 9), 2, 0, 1);
}

/* One round for all takes a clock as one run, whatever parts it has; or what is left of
 * it, in runs that touch. */
static void
whole_clocks(void **state)
{
	(void)state;
	for (uint32_t parts = 1; parts <= 6; parts++) {
		begin(small, parts);
		for (uint64_t clock = 0; clock < 6; clock++)
			is(take(0, true, 4), clock, 0, clock % 3 == 2 ? 2 : 4);
		check(take(0, true, 4).count, 0, "nothing is left");
		end(state);
	}
	begin(small, 2);
	is(take(1, false, 9), 0, 2, 2); /* part 1 went ahead */
	is(take(1, true, 9), 0, 0, 2);
	is(take(1, true, 9), 1, 0, 4);
	is(take(0, false, 1), 2, 0, 1);
	is(take(0, true, 1), 2, 1, 1);
	is(take(0, true, 3), 3, 0, 3); /* over the border of the parts, not to its end */
	is(take(0, true, 3), 3, 3, 1);
	is(take(0, true, 3), 4, 0, 3);
}

/* What came back goes out before anything new: oldest clock, then lowest task, first. */
static void
what_came_back_goes_first(void **state)
{
	(void)state;
	begin(small, 2);
	struct fal_task_range a = take(0, false, 2), b = take(1, false, 2);
	struct fal_task_range c = take(0, false, 2);
	fal_task_pool_back(&pool, &c);
	fal_task_pool_back(&pool, &b);
	fal_task_pool_back(&pool, &a);
	check((int64_t)fal_task_pool_next(&pool, 1), 0, "next");
	check((int64_t)fal_task_pool_first(&pool), 0, "first");
	check(fal_task_pool_left(&pool, 1).count, 4, "left: runs that touch are one");
	is(take(1, false, 1), 0, 0, 1); /* not of its part: nobody else may come */
	check(fal_task_pool_left(&pool, 1).count, 3, "left of what came back");
	is(take(1, true, 9), 0, 1, 3);
	check((int64_t)fal_task_pool_next(&pool, 1), 1, "next");
	is(take(1, false, 9), 1, 0, 2);
	is(take(1, false, 9), 1, 2, 2);
	is(take(0, false, 9), 2, 0, 1);
}

/* A clock is over when all its tasks ended, and all before it. */
static void
over_is_in_order(void **state)
{
	(void)state;
	begin(small, 1);
	struct fal_task_range a = take(0, false, 2), b = take(0, false, 2);
	struct fal_task_range c = take(0, false, 4), d = take(0, false, 2);
	fal_task_pool_ended(&pool, &c);
	fal_task_pool_ended(&pool, &d);
	check((int64_t)pool.over, 0, "over while the first clock is not");
	fal_task_pool_ended(&pool, &b);
	check((int64_t)pool.over, 0, "over while half of the first is not");
	fal_task_pool_back(&pool, &a);
	check((int64_t)pool.over, 0, "over when it came back");
	a = take(0, false, 1);
	b = take(0, false, 1);
	fal_task_pool_ended(&pool, &b);
	check((int64_t)pool.over, 0, "over while one task is not");
	fal_task_pool_ended(&pool, &a);
	check((int64_t)pool.over, 3, "over");
	check((int64_t)fal_task_pool_first(&pool), 3, "first");
}

/* The clocks at which a part stands lie behind one that began: no task, not over. */
static void
over_waits_for_every_part(void **state)
{
	(void)state;
	begin(small, 2);
	struct fal_task_range a = take(0, false, 9);
	fal_task_pool_ended(&pool, &a);
	struct fal_task_range b = take(0, false, 9);
	fal_task_pool_ended(&pool, &b);
	check((int64_t)pool.over, 0, "over while part 1 did not begin");
	a = take(1, false, 9);
	fal_task_pool_ended(&pool, &a);
	check((int64_t)pool.over, 1, "over");
	a = take(1, false, 9);
	fal_task_pool_ended(&pool, &a);
	check((int64_t)pool.over, 2, "over");
}

enum { CLOCKS_MAX = 40, TASKS_MAX = 40 };

struct job {
	struct fal_rng r;
	struct fal_task_range held[64];
	uint32_t n;
	uint8_t state[CLOCKS_MAX][TASKS_MAX]; /* 0 in the pool, 1 held, 2 ended */
};

static void
mark(struct job *j, struct fal_task_range run, uint8_t from, uint8_t to)
{
	for (uint32_t i = 0; i < run.count; i++) {
		uint8_t *s = &j->state[run.clock][run.first + i];
		check(*s, from, "state of a task");
		*s = to;
	}
}

/* Clocks of which all tasks ended, up to the first that is not. */
static uint64_t
naive_over(const struct job *j, const struct fal_grid *g)
{
	uint64_t over = 0;
	for (; over < fal_grid_clocks(g); over++)
		for (uint32_t i = 0; i < fal_grid_tasks(g, over); i++)
			if (j->state[over][i] != 2)
				return over;
	return over;
}

/* A part stands at a clock in which it has tasks left, and the hindmost is the first of
 * those that are furthest behind. */
static void
judge_parts(const struct fal_grid *g)
{
	uint32_t last = 0;
	for (uint32_t i = 0; i < g->parts; i++) {
		const struct fal_part *a = &pool.part[i];
		if (a->clock < pool.part[last].clock)
			last = i;
		if (a->clock == pool.clocks)
			continue;
		assert_in_range(a->task, fal_grid_part_first_task(g, a->clock, i),
				fal_grid_part_first_task(g, a->clock, i + 1) - 1);
	}
	check(pool.hindmost, last, "hindmost");
}

/* Takes, gives back, ends; any of those who hold a run first. */
static void
random_step(struct job *j, const struct fal_grid *g)
{
	uint32_t part = fal_rng_below(&j->r, g->parts), what = fal_rng_below(&j->r, 8);
	if (j->n < 64 && what < 4) {
		uint64_t next = fal_task_pool_next(&pool, part);
		bool whole = fal_rng_below(&j->r, 4) == 0;
		struct fal_task_range run =
			take(part, whole, 1 + fal_rng_below(&j->r, TASKS_MAX));
		if (run.count == 0) {
			check((int64_t)next, (int64_t)pool.clocks, "next: none");
			return;
		}
		if (!whole)
			check((int64_t)run.clock, (int64_t)next, "clock against next");
		mark(j, run, 0, 1);
		j->held[j->n++] = run;
	} else if (j->n > 0) {
		uint32_t at = fal_rng_below(&j->r, j->n);
		struct fal_task_range run = j->held[at];
		j->held[at] = j->held[--j->n];
		mark(j, run, 1, what < 6 ? 2 : 0);
		if (what < 6)
			fal_task_pool_ended(&pool, &run);
		else
			fal_task_pool_back(&pool, &run);
	}
	check((int64_t)pool.over, (int64_t)naive_over(j, g), "over");
	judge_parts(g);
}

/* Every task is held by one at a time and ends once, whoever takes what. */
static void
every_task_ends_once(void **state)
{
	for (uint32_t seed = 1; seed <= 200; seed++) {
		struct job j = { .r = fal_rng_init(seed, FAL_RNG_TEST, 0) };
		struct fal_grid g = { .samples = 1 + fal_rng_below(&j.r, 300),
				      .task = 1 + fal_rng_below(&j.r, 4),
				      .epochs = 1 + fal_rng_below(&j.r, 2) };
		g.batch = g.samples / (1 + fal_rng_below(&j.r, 10)) + 1;
		g.batch = g.batch < TASKS_MAX ? g.batch : TASKS_MAX;
		uint32_t parts = g.parts = 1 + fal_rng_below(&j.r, seed % 2 ? 7 : 70);
		begin(g, parts);
		assert_true(pool.clocks <= CLOCKS_MAX);
		uint32_t steps = 0;
		while (pool.over < pool.clocks && steps++ < 100000)
			random_step(&j, &g);
		check((int64_t)pool.over, (int64_t)pool.clocks, "over at the end");
		check(j.n, 0, "held at the end");
		end(state);
		memset(&pool, 0, sizeof(pool));
	}
}

int
main(void)
{
#define TEST(f) cmocka_unit_test_teardown(f, end)
	const struct CMUnitTest tests[] = {
		TEST(clocks_in_order),      TEST(parts_advance_alone),
		TEST(parts_without_tasks),  TEST(parts_that_never_have_tasks),
		TEST(whole_clocks),         TEST(what_came_back_goes_first),
		TEST(over_is_in_order),     TEST(over_waits_for_every_part),
		TEST(every_task_ends_once),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
