/* What falcon-work --emulate reads, and the times that follow. */
#include "../../cmd/falcon-work/emulate.c"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>

#include <cmocka.h>

static void
test_spec(void **state)
{
	static const struct {
		const char *spec;
		struct emulate want;
	} cases[] = {
		{ "rate=3000", { 3000, 1, 4 } },
		{ "rate=3000,speed=1/4", { 3000, 0.25, 4 } },
		{ "speed=0.25,cores=2,rate=0.5", { 0.5, 0.25, 2 } },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct emulate e = { 0 };
		struct fal_diag diag = { "" };
		int err = emulate_parse(cases[i].spec, 4, &e, &diag);
		const struct emulate *w = &cases[i].want;
		if (err != 0 || e.rate != w->rate || e.speed != w->speed ||
		    e.cores != w->cores)
			fail_msg("%s: %d %s: %g %g %u, not %g %g %u", cases[i].spec, err,
				 diag.text, e.rate, e.speed, e.cores, w->rate, w->speed,
				 w->cores);
	}
}

static void
test_bad_spec(void **state)
{
	static const struct {
		const char *spec, *why;
	} cases[] = {
		{ "", "'' is not KEY=VALUE" },
		{ "rate", "'rate' is not KEY=VALUE" },
		{ "rate=1,", "'' is not KEY=VALUE" },
		{ "speed=1/2", "rate=SAMPLES_PER_SECOND is missing" },
		{ "rate=1,rate=2", "rate is given twice" },
		{ "rate=0", "rate: '0' is not a number of samples a second" },
		{ "rate=nan", "rate: 'nan' is not a number of samples a second" },
		{ "rate=1,speed=1/0",
		  "speed: '1/0' is not a fraction such as 0.25 or 1/4" },
		{ "rate=1,cores=0", "cores: '0' is not 1 to 1024" },
		{ "rate=1,colour=2", "'colour' is not rate, speed or cores" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct emulate e = { 7, 7, 7 };
		struct fal_diag diag = { "" };
		int err = emulate_parse(cases[i].spec, 4, &e, &diag);
		if (err >= 0)
			fail_msg("%s: taken", cases[i].spec);
		assert_string_equal(diag.text, cases[i].why);
		assert_true(e.rate == 7 && e.speed == 7 && e.cores == 7);
	}
}

static void
same_ns(uint64_t got, uint64_t want)
{
	if (got != want)
		fail_msg("%llu ns, not %llu", (unsigned long long)got,
			 (unsigned long long)want);
}

static void
test_times(void **state)
{
	const struct emulate e = { .rate = 1000, .speed = 0.5, .cores = 2 };
	(void)state;
	same_ns(emulate_ns(&e, 8, 1, false), 16000000);
	same_ns(emulate_ns(&e, 8, 2, false), 16000000);
	same_ns(emulate_ns(&e, 8, 3, false), 24000000);
	same_ns(emulate_ns(&e, 3, 1, false), 6000000);
	same_ns(emulate_ns(&e, 3, 1, true), 2000000);
}

static void
test_start(void **state)
{
	(void)state;
	const struct emulated follows = { .next = true, .in_time = true, .end = 500 };
	const struct emulated late = { .next = true, .in_time = false, .end = 500 };
	const struct emulated rested = { .next = false, .in_time = true, .end = 500 };
	same_ns(emulate_start(&follows, 600), 500);
	same_ns(emulate_start(&late, 600), 600);
	same_ns(emulate_start(&rested, 600), 600);
}

int
main(void)
{
	cmocka_set_message_output(CM_OUTPUT_TAP);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spec),
		cmocka_unit_test(test_bad_spec),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_start),
	};
	return cmocka_run_group_tests_name("emulate", tests, NULL, NULL);
}
