/* The audit of traces with liars in them: what the coordinator has to make of a liar is
 * in its lines, and a trace that says otherwise is found out. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "trace/audit.h"
#include "whole.h"

#include <stdio.h>
#include <string.h>

#define JOB_OF(more)                                                               \
	"{\"t\":0.0,\"ev\":\"job\",\"name\":\"j\",\"epochs\":1,\"batch\":8,"       \
	"\"task\":2,\"samples\":16,\"test\":5,\"blocks\":5,\"clocks_per_epoch\":2" \
	",\"clocks\":2,\"scheme\":\"epsp\",\"audit\":\"claims\"" more "}\n"
#define JOB JOB_OF("")
#define SKIPPING JOB_OF(",\"nonfinite\":\"skip\"")
#define JOIN(id, key)                                                                    \
	"{\"t\":1.5,\"ev\":\"join\",\"worker\":\"w" id "\",\"id\":" id ",\"key\":\"" key \
	"\",\"key_fingerprint\":\"f" key "\"}\n"
#define SAYS(ev, id, name)                                                          \
	"{\"t\":1.5,\"ev\":\"" ev "\",\"worker\":\"w" id "\",\"id\":" id ",\"" name \
	"\":\"so\"}\n"
#define LEAVE(id) SAYS("leave", id, "reason")
#define CHARGE(id) SAYS("charge", id, "why")
#define LATE(ev, id, seconds, more)                                           \
	"{\"t\":1.5,\"ev\":\"" ev "\",\"worker\":\"w" id "\",\"id\":" id more \
	",\"why\":\"so\",\"seconds\":" seconds "}\n"
#define SUSPECT(id, seconds) LATE("suspect", id, seconds, ",\"owes\":\"task\"")
#define BACK(id, seconds) LATE("back", id, seconds, "")
#define EVAL_OF(version, epoch, keys)                                         \
	"{\"t\":1.5,\"ev\":\"eval\",\"version\":" version ",\"epoch\":" epoch \
	",\"right\":5,\"total\":5,\"loss\":0.1,\"accuracy\":1,\"keys\":[" keys "]}\n"
#define EVAL(keys) EVAL_OF("2", "1", keys)
#define KEY(key, tasks, twice, alone)                                                   \
	"{\"key\":\"" key "\",\"tasks\":" tasks ",\"twice\":" twice ",\"alone\":" alone \
	"}"
#define LEDGER(clock, grant, contrib)                                                \
	"{\"t\":1.5,\"ev\":\"ledger\",\"clock\":" clock ",\"version\":" clock        \
	",\"tasks\":4,\"samples\":8,\"blocks\":5,\"grant\":[" grant "],\"move\":[]," \
	"\"clone\":[],\"regrant\":[],\"contrib\":[" contrib "],\"lost\":[]}\n"
#define UPDATE(clock, version)                                                  \
	"{\"t\":1.5,\"ev\":\"update\",\"version\":" version ",\"clock\":" clock \
	",\"samples\":8,\"loss\":0.5,\"lr\":0.1,\"epoch\":1}\n"
#define UNSTEPPED(n) LEDGER("1", HALVES, WHOLE "],\"unstepped\":" n ",\"x\":[")
#define WHOLE                                                                          \
	"{\"c\":[1,1],\"tasks\":[[0,2]],\"blocks\":5},{\"c\":[2,1],\"tasks\":[[2,2]]," \
	"\"blocks\":5}"
#define BEFORE                                                                         \
	"{\"c\":[1,9],\"tasks\":[[0,2]],\"blocks\":5},{\"c\":[2,9],\"tasks\":[[2,2]]," \
	"\"blocks\":5}"
#define HALF                                                                           \
	"{\"c\":[1,1],\"tasks\":[[0,2]],\"blocks\":5},{\"c\":[2,1],\"tasks\":[[3,1]]," \
	"\"blocks\":5}"
#define HALVES "[1,0,2],[2,2,2]"
#define DENIAL(ev, id, clock, task)                                                   \
	"{\"t\":1.5,\"ev\":\"" ev "\",\"round\":1,\"clock\":" clock ",\"task\":" task \
	",\"worker\":\"w" id "\",\"id\":" id ",\"first_sample\":9}\n"

/* Workers 1 and 3 have key a, 2 has b.  Clock 0 is over; `said` comes before the ledger
 * of clock 1, which ends as it should unless it is `said`, too. */
static const struct {
	const char *said;
	const char *ledger;  /* of clock 1; NULL: in which nothing happened */
	const char *finding; /* NULL: none; "": an error */
} cases[] = {
	{ "", NULL, NULL },
	/* Tasks that were never granted to whom they are said to be of. */
	{ "", LEDGER("1", "[1,0,4]", WHOLE),
	  "clock 1: task 2: contribution 2.1: worker 2 never held it" },
	/* Not finite, says who is here. */
	{ DENIAL("nonfinite", "3", "1", "2") DENIAL("nonfinite", "1", "1", "2"), NULL,
	  NULL },
	{ DENIAL("nonfinite", "4", "1", "2"), NULL,
	  "line 7: nonfinite: worker 4 of task 2 of clock 1: it is not here" },
	{ LEAVE("3") DENIAL("nonfinite", "3", "1", "2"), NULL,
	  "line 8: nonfinite: worker 3 of task 2 of clock 1: it is not here" },
	{ DENIAL("nonfinite", "3", "1", "4"), NULL,
	  "line 7: nonfinite: worker 3 of task 4 of clock 1: the job has no such task" },
	{ DENIAL("nonfinite", "3", "2", "0"), NULL,
	  "line 7: nonfinite: worker 3 of task 0 of clock 2: the job has no such task" },
	/* Charged twice: it leaves, and does so next. */
	{ CHARGE("3"), NULL, NULL },
	{ CHARGE("3") CHARGE("2") CHARGE("3") LEAVE("3"), NULL, NULL },
	{ CHARGE("3") CHARGE("3"), NULL,
	  "line 9: worker 3 was charged twice, but did not leave" },
	{ CHARGE("3") CHARGE("3") CHARGE("2") LEAVE("3"), NULL,
	  "line 9: worker 3 was charged twice, but did not leave" },
	{ CHARGE("3") CHARGE("3") LEAVE("2") LEAVE("3"), NULL,
	  "line 9: worker 3 was charged twice, but did not leave" },
	{ CHARGE("7"), NULL, "line 7: worker 7 was charged, but never joined" },
	{ LEAVE("3") CHARGE("3"), NULL, NULL },
	/* Its key has no session any more while another one is here. */
	{ CHARGE("3") LEAVE("3") CHARGE("3") JOIN("4", "a"), NULL,
	  "line 10: worker 4 joined by a key that was charged twice" },
	{ CHARGE("3") CHARGE("1") LEAVE("1") LEAVE("3") JOIN("4", "a"), NULL,
	  "line 11: worker 4 joined by a key that was charged twice" },
	{ CHARGE("3") CHARGE("1") LEAVE("1") LEAVE("3") JOIN("4", "b"), NULL, NULL },
	/* Who is a suspect is one until it is back, or gone. */
	{ SUSPECT("3", "0.0") BACK("3", "0.0") SUSPECT("3", "0.0") LEAVE("3"), NULL,
	  NULL },
	{ SUSPECT("3", "0.0") SUSPECT("2", "0.0") BACK("2", "0.0"), NULL, NULL },
	{ SUSPECT("3", "0.0") SUSPECT("3", "0.0"), NULL,
	  "line 8: suspect: worker 3 was a suspect already" },
	{ BACK("3", "0.0"), NULL, "line 7: back: worker 3 was no suspect" },
	{ SUSPECT("7", "0.0"), NULL, "line 7: suspect: worker 7 is not here" },
	{ SUSPECT("3", "0.0") LEAVE("3") BACK("3", "0.0"), NULL,
	  "line 9: back: worker 3 is not here" },
	{ SUSPECT("3", "0.1"), NULL,
	  "line 7: suspect: worker 3 was to work before it joined" },
	{ SUSPECT("3", "0.0") BACK("3", "0.1"), NULL,
	  "line 8: back: worker 3 was a suspect for another time" },
	{ SUSPECT("3", "-1"), NULL, "" },
	/* All five blocks may be left as they were, and no more. */
	{ "", UNSTEPPED("5"), NULL },
	{ "", UNSTEPPED("6"), "line 7: 6 of 5 blocks were not stepped" },
	/* An evaluation is no single key's word, but where nobody else was there. */
	{ EVAL(KEY("a", "2", "1", "0") "," KEY("b", "1", "0", "1")), NULL, NULL },
	{ EVAL(KEY("a", "3", "0", "1")), NULL, NULL },
	{ EVAL(KEY("a", "3", "0", "0")), NULL,
	  "line 7: eval: no other key was to repeat tasks of key a" },
	{ EVAL(KEY("a", "2", "1", "0") "," KEY("b", "1", "0", "0")), NULL,
	  "line 7: eval: no other key was to repeat tasks of key b" },
	{ EVAL(KEY("a", "2", "1", "0")), NULL, "line 7: eval: 2 test tasks, not 3" },
	{ EVAL(KEY("a", "4", "1", "0")), NULL, "line 7: eval: 4 test tasks, not 3" },
	{ EVAL(""), NULL, "line 7: eval: 0 test tasks, not 3" },
	/* What the job begins with is not evaluated. */
	{ EVAL_OF("0", "0", KEY("a", "3", "3", "0")) EVAL(KEY("a", "3", "3", "0")), NULL,
	  "line 7: eval: version is not of that epoch" },
	{ EVAL(KEY("a", "3", "3", "1")), NULL, "" },
	{ EVAL(KEY("a", "3", "4", "0")), NULL, "" },
};

/* The audit of the n lines, NULL ones left out, ends as `want` says, as in `cases`. */
static void
audits(size_t i, const char *const *lines, size_t n, const char *want)
{
	struct fal_audit *a = fal_audit_new();
	struct fal_trace_reader *r = fal_trace_reader_new(fal_audit_line, a);
	struct fal_audit_verdict v = { .n_text = 0 };
	struct fal_diag diag = { "" };
	int err = 0;
	assert_true(a != NULL && r != NULL);
	for (size_t k = 0; k < n && err == 0; k++)
		if (lines[k] != NULL)
			err = whole_feed(r, lines[k], strlen(lines[k]), &diag);
	/* Whatever is to come has not come yet: this is one more line. */
	static const char later[] = "{\"t\":2.0,\"ev\":\"hold\"}\n";
	if (err == 0)
		err = whole_feed(r, later, strlen(later), &diag);
	if (err == 0)
		err = fal_trace_end(r, &diag);
	if (err == 0)
		err = fal_audit_end(a, &v, &diag);
	if ((err < 0) != (want != NULL && want[0] == '\0'))
		fail_msg("case %zu: %d %s", i, err, diag.text);
	if (err == 0 && want == NULL && v.findings > 0)
		fail_msg("case %zu: %s", i, v.text[0]);
	if (err == 0 && want != NULL && (v.findings == 0 || strcmp(v.text[0], want) != 0))
		fail_msg("case %zu: '%s', not '%s'", i, v.findings > 0 ? v.text[0] : "",
			 want);
	fal_trace_reader_free(r);
	fal_audit_free(a);
}

/* Task 2 is not finite, say two workers. */
#define TWICE(clock) \
	DENIAL("nonfinite", "2", clock, "2") DENIAL("nonfinite", "1", clock, "2")

/* Task 2 of clock 0 is skipped; `said` comes before the ledger. */
static void
test_skips(void **state)
{
	static const struct {
		const char *job, *said, *samples, *skipped, *contrib, *finding;
	} skips[] = {
		{ SKIPPING, TWICE("0"), "6", "[2,1]", HALF, NULL },
		{ SKIPPING, TWICE("0"), "4", "[2,1],[2,1]", HALF,
		  "clock 0: task 2: skipped 2 times" },
		{ SKIPPING, TWICE("0"), "4", "[2,2]", HALF,
		  "clock 0: task 3: skipped without two results that were not finite" },
		{ SKIPPING, TWICE("1"), "6", "[2,1]", HALF,
		  "clock 0: task 2: skipped without two results that were not finite" },
		{ SKIPPING, DENIAL("nonfinite", "2", "0", "2"), "6", "[2,1]", HALF,
		  "clock 0: task 2: skipped without two results that were not finite" },
		{ SKIPPING, NULL, "6", "[2,1]", HALF,
		  "clock 0: task 2: skipped without two results that were not finite" },
		{ SKIPPING, TWICE("0"), "6", "[2,1]", WHOLE,
		  "clock 0: task 2: skipped, but contribution 2.1 has it" },
		{ JOB, TWICE("0"), "6", "[2,1]", HALF,
		  "clock 0: task 2: skipped, but the job does not say so" },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(skips) / sizeof(skips[0]); i++) {
		char ledger[1000];
		snprintf(ledger, sizeof(ledger),
			 "{\"t\":1.5,\"ev\":\"ledger\",\"clock\":0,\"version\":0,"
			 "\"tasks\":4,\"samples\":%s,\"blocks\":5,\"grant\":[" HALVES
			 "],\"move\":[],\"clone\":[],\"regrant\":[],\"skipped\":[%s],"
			 "\"contrib\":[%s],\"lost\":[]}\n",
			 skips[i].samples, skips[i].skipped, skips[i].contrib);
		const char *const lines[] = { skips[i].job, JOIN("1", "a"),
					      JOIN("2", "b"), skips[i].said, ledger };
		audits(i, lines, sizeof(lines) / sizeof(lines[0]), skips[i].finding);
	}
}

static void
test_cases(void **state)
{
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const char *const lines[] = {
			JOB,
			JOIN("1", "a"),
			JOIN("2", "b"),
			JOIN("3", "a"),
			LEDGER("0", HALVES, BEFORE),
			UPDATE("0", "1"),
			cases[i].said,
			cases[i].ledger,
		};
		audits(i, lines, sizeof(lines) / sizeof(lines[0]), cases[i].finding);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(test_cases),
					    cmocka_unit_test(test_skips) };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
