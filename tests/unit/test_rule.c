/* Rules: what parses to what, what is written back, and what is refused, how. */
#include "base/err.h"
#include "base/rng.h"
#include "sched/policy.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmocka.h>

static struct fal_rule
parse(const char *text)
{
	struct fal_rule r;
	struct fal_diag diag = { "" };
	int err = fal_rule_parse(text, &r, &diag);
	if (err != FAL_OK)
		fail_msg("%s: got %d (%s), want 0", text, err, diag.text);
	return r;
}

/* Text, what is written back, and the rule. */
static const struct good {
	const char *text, *put;
	struct fal_rule rule;
} good[] = {
	{ "bsp", "bsp", { .scheme = FAL_BSP } },
	{ "bsp,shares=equal", "bsp", { .scheme = FAL_BSP } },
	{ "bsp,shares=speed",
	  "bsp,shares=speed",
	  { .scheme = FAL_BSP, .by_speed = true } },
	{ "asp", "asp", { .scheme = FAL_ASP } },
	{ "rennala", "rennala:clock", { .scheme = FAL_RENNALA } },
	{ "rennala:64", "rennala:64", { .scheme = FAL_RENNALA, .batch = 64 } },
	{ "ringmaster", "ringmaster:auto", { .scheme = FAL_RINGMASTER } },
	{ "ringmaster:3", "ringmaster:3", { .scheme = FAL_RINGMASTER, .threshold = 3 } },
	{ "ssp", "ssp:3", { .scheme = FAL_SSP, .slack = 3 } },
	{ "ssp:0", "ssp:0", { .scheme = FAL_SSP } },
	{ "ssp:64", "ssp:64", { .scheme = FAL_SSP, .slack = 64 } },
	{ "epsp", "epsp", { .scheme = FAL_EPSP } },
	{ "epsp:0", "epsp", { .scheme = FAL_EPSP } },
	{ "epsp:2", "epsp:2", { .scheme = FAL_EPSP, .slack = 2 } },
	{ "epsp:1/4",
	  "epsp:1/4",
	  { .scheme = FAL_EPSP, .slack = 1, .slack_p = 1, .slack_q = 4 } },
	{ "epsp:6/8",
	  "epsp:3/4",
	  { .scheme = FAL_EPSP, .slack = 1, .slack_p = 3, .slack_q = 4 } },
	{ "epsp:1/4096",
	  "epsp:1/4096",
	  { .scheme = FAL_EPSP, .slack = 1, .slack_p = 1, .slack_q = 4096 } },
	{ "flexrr", "flexrr:1", { .scheme = FAL_FLEXRR, .slack = 1, .helpers = 3 } },
	{ "flexrr:0,steal=half,helpers=5",
	  "flexrr:0,helpers=5,steal=half",
	  { .scheme = FAL_FLEXRR, .helpers = 5, .steals_half = true } },
	{ "flexrr,steal=rapid",
	  "flexrr:1",
	  { .scheme = FAL_FLEXRR, .slack = 1, .helpers = 3 } },
	{ "syncopt",
	  "syncopt:auto",
	  { .scheme = FAL_SYNCOPT, .backups = FAL_BACKUPS_AUTO } },
	{ "syncopt:2", "syncopt:2", { .scheme = FAL_SYNCOPT, .backups = 2 } },
	{ "consgd", "consgd:3", { .scheme = FAL_CONSGD, .slack = 3, .steps = 1 } },
	{ "consgd:1,lambda=0.1,steps=4",
	  "consgd:1,lambda=0.1,steps=4",
	  { .scheme = FAL_CONSGD, .slack = 1, .lambda = 0.1, .steps = 4 } },
	{ "dynsgd:3,staleness=updates",
	  "dynsgd:3,staleness=updates",
	  { .scheme = FAL_DYNSGD, .slack = 3, .by_updates = true, .steps = 1 } },
	{ "wbsp",
	  "wbsp",
	  { .scheme = FAL_WBSP, .overlap = true, .cap = 16, .steps = 1 } },
	{ "wbsp,overlap=no,publish=slowest,cap=8,steps=2",
	  "wbsp,overlap=no,publish=slowest,cap=8,steps=2",
	  { .scheme = FAL_WBSP, .slowest = true, .cap = 8, .steps = 2 } },
	{ "groups",
	  "groups:progressive",
	  { .scheme = FAL_GROUPS, .max_groups = 4, .window = 20 } },
	{ "groups:progressive,max=8,window=10",
	  "groups:progressive,max=8,window=10",
	  { .scheme = FAL_GROUPS, .max_groups = 8, .window = 10 } },
	{ "groups:4", "groups:4", { .scheme = FAL_GROUPS, .groups = 4 } },
	{ "groups:4,rounds=3,mode=delta",
	  "groups:4,mode=delta,rounds=3",
	  { .scheme = FAL_GROUPS, .groups = 4, .delta = true, .rounds = 3 } },
	{ "groups:2,mode=delta,rounds=1",
	  "groups:2,mode=delta",
	  { .scheme = FAL_GROUPS, .groups = 2, .delta = true, .rounds = 1 } },
	{ "groups:2,mode=grad", "groups:2", { .scheme = FAL_GROUPS, .groups = 2 } },
	{ "groups:4,grace=0.25,quorum=3",
	  "groups:4,quorum=3,grace=0.25",
	  { .scheme = FAL_GROUPS, .groups = 4, .quorum = 3, .grace = 0.25 } },
	{ "groups:4,mode=delta,quorum=2,outer=0.7,momentum=0.9,grace=0",
	  "groups:4,mode=delta,quorum=2",
	  { .scheme = FAL_GROUPS,
	    .groups = 4,
	    .delta = true,
	    .rounds = 1,
	    .quorum = 2,
	    .outer_rate = 0.7,
	    .momentum = 0.9 } },
	{ "groups:4,mode=delta,quorum=2,outer=1,momentum=0",
	  "groups:4,mode=delta,quorum=2,outer=1,momentum=0",
	  { .scheme = FAL_GROUPS,
	    .groups = 4,
	    .delta = true,
	    .rounds = 1,
	    .quorum = 2,
	    .outer_rate = 1 } },
};

static void
reads_and_writes(void **state)
{
	(void)state;
	struct fal_buf out = { 0 };
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]); i++) {
		const struct good *g = &good[i];
		struct fal_rule r = parse(g->text);
		fal_buf_clear(&out);
		fal_rule_put(&r, &out);
		fal_put_u8(&out, '\0');
		assert_int_equal(out.err, 0);
		assert_string_equal((const char *)out.p, g->put);
		if (!fal_rule_equal(&r, &g->rule))
			fail_msg("%s: other than it says (written: %s)", g->text, out.p);
		/* Fields that a scheme does not use are 0. */
		if (r.slack != g->rule.slack || r.backups != g->rule.backups ||
		    r.groups != g->rule.groups || r.max_groups != g->rule.max_groups ||
		    r.window != g->rule.window || r.rounds != g->rule.rounds ||
		    r.helpers != g->rule.helpers || r.cap != g->rule.cap ||
		    r.steps != g->rule.steps || r.overlap != g->rule.overlap ||
		    r.quorum != g->rule.quorum || r.grace > g->rule.grace ||
		    r.outer_rate > g->rule.outer_rate || r.momentum > g->rule.momentum)
			fail_msg("%s: a field is not what it should be", g->text);
		struct fal_rule again = parse((const char *)out.p);
		if (!fal_rule_equal(&r, &again))
			fail_msg("%s: '%s' is another rule", g->text, out.p);
	}
	fal_buf_free(&out);
}

/* Text, and what the diagnosis must say. */
static const struct {
	const char *text, *says;
} bad[] = {
	{ "", "'' is not a scheme (bsp, asp, " },
	{ "BSP", "'BSP' is not a scheme" },
	{ "sps:3", "'sps' is not a scheme" },
	{ "bsp:1", "bsp takes no number (given as '1')" },
	{ "asp:", "asp takes no number (given as '')" },
	{ "wbsp:3", "wbsp takes no number (given as '3')" },
	{ "ssp:65", "ssp: '65' is not a whole number from 0 to 64" },
	{ "ssp:-1", "ssp: '-1' is not" },
	{ "ssp:", "ssp: '' is not" },
	{ "ssp:3:4", "ssp: '3:4' is not" },
	{ "ssp: 3", "ssp: ' 3' is not" },
	{ "epsp:99999999999999999999",
	  "epsp: '99999999999999999999' is neither a whole number from 0 to 64 nor a "
	  "fraction from 1/4096 to 4095/4096" },
	{ "epsp:1/1", "epsp: '1/1' is neither" },
	{ "epsp:0/4", "epsp: '0/4' is neither" },
	{ "epsp:4/3", "epsp: '4/3' is neither" },
	{ "epsp:1/4097", "epsp: '1/4097' is neither" },
	{ "epsp:/4", "epsp: '/4' is neither" },
	{ "epsp:1/", "epsp: '1/' is neither" },
	{ "epsp:1/4/2", "epsp: '1/4/2' is neither" },
	{ "epsp:.25", "epsp: '.25' is neither" },
	{ "ssp:1/4", "ssp: '1/4' is not a whole number from 0 to 64" },
	{ "ssp:3,steps=2", "ssp has no 'steps' (given as '2')" },
	{ "ssp:3,", "ssp: '' is not KEY=VALUE" },
	{ "ssp:3,cap", "ssp: 'cap' is not KEY=VALUE" },
	{ "epsp,=3", "epsp has no '' (given as '3')" },
	{ "rennala:auto",
	  "rennala: 'auto' is not a whole number from 1 to 65536 or clock" },
	{ "ringmaster:0",
	  "ringmaster: '0' is not a whole number from 1 to 4096 or auto" },
	{ "flexrr:1,helpers=0", "helpers: '0' is not a whole number from 1 to 64" },
	{ "flexrr:1,steal=all", "steal: 'all' is neither rapid nor half" },
	{ "flexrr,steal=half,steal=half", "steal is set twice, now 'half'" },
	{ "flexrr:auto", "flexrr: 'auto' is not" },
	{ "syncopt:all", "'all' is not a whole number from 0 to 1024 or auto" },
	{ "consgd,lambda=0", "lambda: '0' is not a number above 0, at most 1" },
	{ "consgd,lambda=1.5", "lambda: '1.5' is not" },
	{ "consgd,lambda=nan", "lambda: 'nan' is not" },
	{ "consgd,steps=1025", "steps: '1025' is not a whole number from 1 to 1024" },
	{ "dynsgd,staleness=both", "'both' is neither version nor updates" },
	{ "wbsp,overlap=true", "overlap: 'true' is neither no nor yes" },
	{ "wbsp,cap=0", "cap: '0' is not" },
	{ "groups:0", "groups: '0' is not a whole number from 1 to 1024 or progressive" },
	{ "groups:2,max=4", "max '4' has no meaning without groups:progressive" },
	{ "groups:2,rounds=2", "rounds '2' has no meaning without mode=delta" },
	{ "groups:2,mode=delta,rounds=0", "rounds: '0' is not a whole number from 1" },
	{ "groups:2,mode=both", "mode: 'both' is neither grad nor delta" },
	{ "groups:2,steps=2", "groups has no 'steps' (given as '2')" },
	{ "groups:2,quorum=0", "quorum: '0' is not a whole number from 1 to 1024" },
	{ "groups:2,grace=0.5", "grace '0.5' has no meaning without a quorum" },
	{ "groups:2,quorum=2,grace=-1", "grace: '-1' is not a number from 0 to 3600" },
	{ "groups:2,quorum=2,outer=0.5",
	  "outer '0.5' has no meaning without mode=delta and a quorum" },
	{ "groups:2,mode=delta,momentum=0.5",
	  "momentum '0.5' has no meaning without mode=delta and a quorum" },
	{ "groups:2,mode=delta,quorum=2,outer=0",
	  "outer: '0' is not a number above 0, at most 1" },
	{ "groups:2,mode=delta,quorum=2,momentum=1",
	  "momentum: '1' is not a number from 0 to 0.999" },
};

static void
refuses(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_rule r = { .scheme = FAL_WBSP, .cap = 77 };
		struct fal_diag diag = { "" };
		int err = fal_rule_parse(bad[i].text, &r, &diag);
		if (err != FAL_EINVAL || strstr(diag.text, bad[i].says) == NULL)
			fail_msg("'%s': got %d '%s', want %d '%s'", bad[i].text, err,
				 diag.text, FAL_EINVAL, bad[i].says);
		assert_int_equal(r.cap, 77); /* set only on success */
	}
	char longest[1000];
	memset(longest, 's', sizeof(longest) - 1);
	longest[sizeof(longest) - 1] = '\0';
	struct fal_rule r;
	assert_int_equal(fal_rule_parse(longest, &r, NULL), FAL_EINVAL);
}

/* One byte of a good text is changed: it is refused, or what it became is written and
 * read again as itself. */
static void
mutations(void **state)
{
	(void)state;
	struct fal_rng rng = fal_rng_init(3, FAL_RNG_TEST, 0);
	uint32_t refused = 0;
	for (int i = 0; i < 20000; i++) {
		char text[64];
		const char *from =
			good[fal_rng_below(&rng, sizeof(good) / sizeof(good[0]))].text;
		size_t n = strlen(from);
		memcpy(text, from, n + 1);
		text[fal_rng_below(&rng, (uint32_t)n)] =
			(char)(33 + fal_rng_below(&rng, 94));
		struct fal_rule r;
		if (fal_rule_parse(text, &r, NULL) < 0) {
			refused++;
			continue;
		}
		struct fal_buf out = { 0 };
		fal_rule_put(&r, &out);
		fal_put_u8(&out, '\0');
		struct fal_rule again = parse((const char *)out.p);
		if (!fal_rule_equal(&r, &again))
			fail_msg("'%s' is written as '%s'", text, out.p);
		fal_buf_free(&out);
	}
	if (refused < 15000)
		fail_msg("refused %u of 20000, want at least 15000", refused);
}

static void
same_model(void **state)
{
	(void)state;
	static const char *const bsp[] = { "bsp",      "bsp,shares=speed",
					   "epsp:0",   "ssp:0",
					   "flexrr:0", "flexrr:0,steal=half" };
	static const char *const other[] = {
		"asp",       "ssp:1", "epsp:1",   "epsp:2", "flexrr",
		"syncopt:0", "wbsp",  "groups:1", "consgd", "consgd,lambda=0.5",
		"dynsgd:0"
	};
	enum { NB = sizeof(bsp) / sizeof(bsp[0]), NO = sizeof(other) / sizeof(other[0]) };
	for (size_t i = 0; i < NB + NO; i++)
		for (size_t j = 0; j < NB + NO; j++) {
			const char *x = i < NB ? bsp[i] : other[i - NB];
			const char *y = j < NB ? bsp[j] : other[j - NB];
			struct fal_rule a = parse(x), b = parse(y);
			bool want = (i < NB && j < NB) || i == j;
			if (fal_rule_same_model(&a, &b) != want)
				fail_msg("%s and %s: got %d, want %d", x, y, !want, want);
			if (fal_rule_equal(&a, &b) != (i == j))
				fail_msg("%s equals %s: got %d", x, y, i != j);
		}
}

/* The table agrees with itself: rounds are somebody's, and the law holds where it can. */
static void
traits(void **state)
{
	(void)state;
	for (int i = 0; i < FAL_SCHEMES; i++)
		for (uint32_t n = 0; n < 3; n++) {
			char text[40];
			struct fal_rule r;
			snprintf(text, sizeof(text), "%s:%u",
				 fal_scheme_name((enum fal_scheme_id)i), n);
			if (fal_rule_parse(text, &r, NULL) < 0) /* it takes no number */
				r = parse(fal_scheme_name((enum fal_scheme_id)i));
			const struct fal_traits is = fal_rule_traits(&r);
			if (is.shared + is.groups + is.own != 1)
				fail_msg("%s: whose rounds?", text);
			if (is.delta != (r.steps > 0))
				fail_msg("%s: local steps %u, delta %d", text, r.steps,
					 is.delta);
			if (is.law && (is.delta || is.alone || !is.counted))
				fail_msg("%s: not under the law", text);
			if (is.law != (is.shared || is.waves))
				fail_msg("%s: law %d", text, is.law);
			if (is.delay != (is.slacks ? r.slack : 0))
				fail_msg("%s: delay %u", text, is.delay);
			if (is.bounded && is.collects)
				fail_msg("%s: bounded, and collected", text);
		}
}

/* Tasks that lie wholly within a part of the clock; a part without one is refused. */
static void
fractions_have_tasks(void **state)
{
	static const struct fal_grid g = {
		.samples = 100, .batch = 60, .task = 8, .epochs = 1
	};
	static const struct fal_grid one = {
		.samples = 8, .batch = 8, .task = 8, .epochs = 1
	};
	struct fal_diag diag;
	(void)state;
	const struct fal_rule quarter = parse("epsp:1/4"), most = parse("epsp:59/60"),
			      less = parse("epsp:1/8"), whole = parse("epsp:1");
	assert_int_equal(fal_rule_first_late_task(&quarter, &g, 0), 1);
	assert_int_equal(fal_rule_first_late_task(&quarter, &g, 1),
			 1); /* of 40 samples */
	assert_int_equal(fal_rule_first_late_task(&most, &g, 0),
			 7); /* but the last, of 4 */
	assert_int_equal(fal_rule_first_late_task(&whole, &g, 0), UINT32_MAX);
	assert_int_equal(fal_rule_check_grid(&quarter, &g, &diag), 0);
	assert_int_equal(fal_rule_check_grid(&whole, &one, &diag), 0);
	assert_int_equal(fal_rule_check_grid(&less, &g, &diag), FAL_EINVAL);
	assert_string_equal(diag.text,
			    "epsp:1/8: no task of 8 samples lies within this part of a "
			    "clock's 60 samples; 1/7 has one");
	/* The fraction that is named is one, though 1/10000 of a clock is a task. */
	const struct fal_grid large = {
		.samples = 20001, .batch = 20001, .task = 2, .epochs = 1
	};
	const struct fal_rule least = parse("epsp:1/4096");
	assert_int_equal(fal_rule_check_grid(&least, &large, &diag), 0);
	assert_int_equal(fal_rule_check_grid(&most, &one, &diag), FAL_EINVAL);
	assert_string_equal(diag.text,
			    "epsp:59/60: a clock is one task, no part of which is early");
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(reads_and_writes),
		cmocka_unit_test(refuses),
		cmocka_unit_test(mutations),
		cmocka_unit_test(same_model),
		cmocka_unit_test(traits),
		cmocka_unit_test(fractions_have_tasks),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
