/* How much useful work each scheme does, in virtual time: it must reach what its section
 * of the literature says it can, or a comparison with it is worth nothing.
 *
 * Eight workers, 16 tasks of 5 ms each a clock, 2 ms to pull and 2 to push; workers are
 * equal, or one runs at 1/4, or half of them at 1/2, or each clock of each worker is six
 * times as long with probability 1/8.  A cell is the tasks per second that were applied,
 * over those of bsp with equal workers.  The floors are what was found in a simulation
 * of the papers' texts, less a few per cent. */
#include "sched_play.h"

#include "base/rng.h"

enum { MACHINES = 8, CLOCKS = 60, SHARE = 16 };

enum pattern { EQUAL, ONE_SLOW, HALF_SLOW, RANDOM, PATTERNS };

static double
sometimes(uint32_t id, uint64_t clock)
{
	struct fal_rng r = fal_rng_init(clock, FAL_RNG_EMULATE, id);
	return fal_rng_below(&r, MACHINES) == 0 ? 6 : 1;
}

/* Tasks applied in a second. */
static double
rate_of(const char *rule, enum pattern pattern)
{
	const struct fal_grid grid = { .samples = CLOCKS * MACHINES * SHARE,
				       .batch = MACHINES * SHARE,
				       .task = 1,
				       .epochs = 1000 };
	play_begin(rule, &grid);
	play.slower = pattern == RANDOM ? sometimes : NULL;
	for (uint32_t i = 0; i < MACHINES; i++) {
		bool slow = pattern == ONE_SLOW ? i == 0 : i < MACHINES / 2;
		double by = pattern == ONE_SLOW ? 4 : 2;
		bool any = pattern == ONE_SLOW || pattern == HALF_SLOW;
		play_join(any && slow ? by : 1);
	}
	enum { SECONDS = 20, WARM = 4 };
	uint64_t before = 0, after = 0;
	play_run(1000 * CLOCKS, WARM);
	for (int f = 0; f < FAL_FATE_DROP; f++)
		before += play.tasks[f];
	play_run(1000 * CLOCKS, WARM + SECONDS);
	for (int f = 0; f < FAL_FATE_DROP; f++)
		after += play.tasks[f];
	play_end(NULL);
	return (double)(after - before) / SECONDS;
}

static const struct {
	const char *rule;
	double least[PATTERNS]; /* per cent */
} rows[] = {
	{ "bsp", { 97, 25, 49, 24 } },
	{ "bsp,shares=speed", { 97, 85, 70, 22 } },
	{ "syncopt:1", { 84, 84, 44, 32 } },
	{ "syncopt:2", { 72, 72, 37, 36 } },
	{ "ssp:3", { 97, 25, 50, 46 } },
	{ "asp", { 97, 88, 73, 60 } },
	{ "rennala", { 97, 86, 70, 60 } },
	/* Whose clock is long never ends it here, and begins it anew. */
	{ "ringmaster", { 97, 85, 62, 24 } },
	{ "consgd:3", { 97, 25, 50, 46 } },
	{ "dynsgd:3", { 97, 25, 50, 46 } },
	{ "dynsgd:3,staleness=updates", { 97, 25, 50, 46 } },
	{ "flexrr", { 97, 78, 72, 77 } }, /* three helpers cannot do all of it */
	{ "flexrr,helpers=7", { 97, 88, 74, 77 } },
	{ "flexrr,helpers=7,steal=half", { 97, 78, 74, 75 } },
	{ "epsp", { 97, 86, 71, 85 } },
	{ "epsp:3", { 97, 87, 72, 85 } },
	{ "wbsp", { 97, 88, 73, 60 } },
	{ "wbsp,overlap=no", { 97, 88, 73, 60 } },
	{ "groups:2", { 97, 62, 73, 33 } },
	{ "groups:4", { 97, 80, 73, 45 } },
	{ "groups:progressive", { 97, 62, 73, 30 } },
};

static void
test_rates(void **state)
{
	(void)state;
	double full = rate_of("bsp", EQUAL);
	uint32_t poor = 0;
	print_message(
		"%% of bsp with equal workers    equal  1 at 1/4  4 at 1/2  random\n");
	for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
		double got[PATTERNS];
		for (int p = 0; p < PATTERNS; p++) {
			got[p] = 100 * rate_of(rows[i].rule, (enum pattern)p) / full;
			if (!(got[p] >= rows[i].least[p]))
				poor++;
		}
		print_message("%-28s %8.1f %9.1f %9.1f %7.1f   floors %g %g %g %g\n",
			      rows[i].rule, got[EQUAL], got[ONE_SLOW], got[HALF_SLOW],
			      got[RANDOM], rows[i].least[0], rows[i].least[1],
			      rows[i].least[2], rows[i].least[3]);
	}
	play_check(poor, 0, "cells below their floor");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(test_rates, play_end),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
