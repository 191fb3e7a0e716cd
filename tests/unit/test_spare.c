/* When a core counts as left over: by what the system says of the time since it was asked
 * last, and no more often than twice a second. */
#include "../../cmd/falcon-work/spare.h"

#include "../drawn.h"
#include "base/rng.h"
#include "cli/cores.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <time.h>

#include <cmocka.h>

static const uint64_t ms = 1000000; /* in ns */
static uint64_t idle;               /* what the system says */
static uint32_t asked;

uint64_t __wrap_fal_cli_idle_ns(const char *root);

uint64_t
__wrap_fal_cli_idle_ns(const char *root)
{
	assert_string_equal(root, "");
	asked++;
	return idle;
}

static void
most_of_a_core_is_enough(void **state)
{
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	struct spare s = { 0 };
	uint64_t now = ms * (1 + fal_rng_below(&r, 1000000));
	bool is = false;
	(void)state;
	idle = now * 7;
	assert_false(spare_core(&s, now)); /* nothing is known yet */
	for (int i = 0; i < 500; i++) {
		/* Until half a second is over nobody looks, whatever happens. */
		const uint32_t before = asked;
		const uint64_t since = ms * (500 + fal_rng_below(&r, 4000));
		const uint64_t soon = ms * fal_rng_below(&r, 500);
		assert_int_equal(spare_core(&s, now + soon), is);
		assert_int_equal(asked, before);
		/* Of a core, in hundredths; clear of the bounds. */
		uint32_t part = fal_rng_below(&r, 300);
		part += part == 50 || part == 70;
		now += since;
		idle += since / 100 * part;
		is = part > 70 || (is && part > 50);
		if (spare_core(&s, now) != is)
			fail_msg("%u %% of a core: not %d", part, is);
		assert_int_equal(asked, before + 1);
	}
	/* Where the system does not tell there is none. */
	idle = 0;
	assert_false(spare_core(&s, now + 1000 * ms));
	assert_false(spare_core(&s, now + 2000 * ms));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(most_of_a_core_is_enough),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
