/* Warnings where late gradients meet momentum. */
#include "job/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
warns(const char *rule, const struct fal_optim *o, uint32_t workers, const char *want)
{
	struct fal_rule r;
	struct fal_diag diag;
	char text[FAL_STALE_TEXT];
	assert_int_equal(fal_rule_parse(rule, &r, &diag), 0);
	assert_int_equal(fal_stale_warning(&r, o, workers, text), *want != '\0');
	assert_string_equal(text, want);
}

static void
test_warnings(void **state)
{
	(void)state;
	const struct fal_optim o = { .kind = FAL_NESTEROV, .momentum = 0.9f };
	const struct fal_optim sgd = { .kind = FAL_SGD, .momentum = 0.9f };
	static const char *const never_late[] = {
		"bsp",       "epsp",
		"ssp:0",     "flexrr:0",
		"wbsp",      "syncopt:1",
		"rennala:1", "consgd",
		"dynsgd",    "dynsgd:3,staleness=updates"
	};
	for (size_t i = 0; i < sizeof(never_late) / sizeof(never_late[0]); i++)
		warns(never_late[i], &o, 8, "");
	warns("epsp:2", &o, 8,
	      "slack 2 with momentum 0.9: stable learning rates are up to 17 times "
	      "lower");
	warns("epsp:1", &o, 8,
	      "slack 1 with momentum 0.9: stable learning rates are up to 5.4 times "
	      "lower");
	warns("epsp:2", &sgd, 8, "");
	/* Nesterov loses nothing by a quarter. */
	warns("epsp:1/8", &o, 8, "");
	warns("epsp:1/4", &o, 8, "");
	warns("epsp:1/2", &o, 8,
	      "slack 1/2 with momentum 0.9: stable learning rates are up to 1.8 times "
	      "lower");
	const struct fal_optim heavy = { .kind = FAL_MOMENTUM, .momentum = 0.9f };
	warns("epsp:1/4", &heavy, 8,
	      "slack 1/4 with momentum 0.9: stable learning rates are up to 9.5 times "
	      "lower");
	const struct fal_optim adam = { .kind = FAL_ADAMW,
					.momentum = 0.5f,
					.beta1 = 0.9 };
	const struct fal_optim adagrad = { .kind = FAL_ADAGRAD, .momentum = 0.9f };
	warns("epsp:2", &adam, 8,
	      "slack 2 with beta1 0.9: stable learning rates are up to 74 times lower");
	warns("asp", &adagrad, 8, "");
	warns("asp", &o, 2,
	      "asp of 2 workers with momentum 0.9: stable learning rates are up to 1.2 "
	      "times lower");
	const struct fal_optim one = { .kind = FAL_NESTEROV,
				       .momentum = 0.9f,
				       .one_momentum = true };
	warns("asp", &one, 8,
	      "asp of 8 workers with momentum 0.9: stable learning rates are up to 9.6 "
	      "times lower");
	warns("asp", &o, 1, "");
	warns("ringmaster:1", &o, 8, "");
	warns("ringmaster:2", &o, 8,
	      "ringmaster:2 of 8 workers with momentum 0.9: stable learning rates are up "
	      "to 2.0 times lower");
	/* No more groups than workers: of one nothing is late. */
	warns("groups:2", &o, 1, "");
	warns("groups:2", &o, 2,
	      "groups:2 of 2 workers with momentum 0.9: stable learning rates are up to "
	      "1.2 times lower");
	/* As many as there may be, where their number is not fixed. */
	warns("groups:progressive", &o, 1, "");
	warns("groups:progressive", &o, 2,
	      "groups:progressive of 2 workers with momentum 0.9: stable learning rates "
	      "are up to 1.2 times lower");
	warns("groups:progressive,max=2", &o, 8,
	      "groups:progressive,max=2 of 8 workers with momentum 0.9: stable learning "
	      "rates are up to 1.2 times lower");
	/* Of a quorum's only some are late: at most each of so many in turn. */
	warns("groups:4,quorum=4", &o, 8, "");
	warns("groups:4,quorum=3", &o, 8,
	      "groups:4,quorum=3 of 8 workers with momentum 0.9: stable learning rates "
	      "are up to 4.0 times lower");
	/* Not known how many: some. */
	warns("asp", &o, 0,
	      "asp of 4 workers, if so many come, with momentum 0.9: stable learning "
	      "rates are up to 1.5 times lower");
	warns("epsp:1", &o, 0,
	      "slack 1 with momentum 0.9: stable learning rates are up to 5.4 times "
	      "lower");
	char text[FAL_STALE_TEXT];
	struct fal_rule r = { .scheme = FAL_SSP, .slack = 3 };
	assert_true(fal_stale_warning(&r, &o, 0, text));
	r = (struct fal_rule){ .scheme = FAL_SSP, .slack = 64 };
	assert_true(fal_stale_warning(&r, &o, UINT32_MAX, text));
	assert_non_null(strstr(text, "times lower"));
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_warnings) };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
