/* When a core counts as left over: by the system's counters since the last look, at most
 * twice a second. */
#include "../../cmd/falcon-work/lanes.h"

#include "../drawn.h"
#include "base/rng.h"
#include "cli/cores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

static const uint64_t ms = 1000000; /* in ns */
static uint64_t idle, own;          /* the system's counters */
static uint32_t asked;

uint64_t __wrap_fal_cli_idle_ns(const char *root);
uint64_t __wrap_fal_cli_cpu_ns(void);

uint64_t
__wrap_fal_cli_cpu_ns(void)
{
	return own;
}

uint64_t
__wrap_fal_cli_idle_ns(const char *root)
{
	assert_string_equal(root, "");
	asked++;
	return idle;
}

/* A third of a core is enough, whether idle or used by this process. */
static void
a_third_of_a_core_is_enough(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	struct spare_core s = { 0 };
	uint64_t now = ms * (1 + fal_rng_below(&r, 1000000));
	bool is = false;
	(void)state;
	idle = now * 7;
	own = now / 3;
	assert_false(spare_core_exists(&s, now, 1)); /* the first look */
	for (int i = 0; i < 500; i++) {
		/* Before half a second is over nothing is read, whatever happens. */
		const uint32_t before = asked, lanes = 1 + fal_rng_below(&r, 64);
		const uint64_t since = ms * (500 + fal_rng_below(&r, 4000));
		const uint64_t soon = ms * fal_rng_below(&r, 500);
		assert_int_equal(spare_core_exists(&s, now + soon, 1), is);
		assert_int_equal(asked, before);
		/* Hundredths of a core beside the lanes, or of what the lanes lack; clear
		 * of the limits. */
		int part = (int)fal_rng_below(&r, 200) - 99;
		part += part == 28 || part == 35;
		/* Some of the core is idle, this process has used the rest. */
		const uint32_t all = (uint32_t)((int)lanes * 100 + part);
		const uint32_t rest = 1 + fal_rng_below(&r, all);
		now += since;
		idle += since / 100 * rest;
		own += since / 100 * (all - rest);
		is = part > 35 || (is && part > 28);
		if (spare_core_exists(&s, now, lanes) != is)
			fail_msg("%d %% of a core beside %u lanes, %u %% idle: not %d",
				 part, lanes, rest, is);
		assert_int_equal(asked, before + 1);
	}
	/* This process may have used all of the core. */
	now += 1000 * ms;
	own += 2000 * ms;
	assert_true(spare_core_exists(&s, now, 1));
	/* Used time does not become idle again. */
	own -= 1000 * ms;
	assert_false(spare_core_exists(&s, now += 1000 * ms, 1));
	/* Without the system's counters no core is left over. */
	idle = 0;
	assert_false(spare_core_exists(&s, now + 1000 * ms, 1));
	assert_false(spare_core_exists(&s, now + 2000 * ms, 1));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(a_third_of_a_core_is_enough),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
