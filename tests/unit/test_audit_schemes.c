/* The audit of each scheme: a sound trace passes, and what its rules forbid is named. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "trace/audit.h"
#include "whole.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Clocks of 4 tasks of 8 samples, 5 blocks; one epoch. */
#define JOB(scheme, clocks, samples)                                                   \
	"{\"t\":0.0,\"ev\":\"job\",\"name\":\"j\",\"epochs\":1,\"batch\":32,"          \
	"\"task\":8,\"samples\":" samples ",\"blocks\":5,\"clocks_per_epoch\":" clocks \
	",\"clocks\":" clocks ",\"scheme\":\"" scheme "\",\"audit\":\"claims\"}\n"     \
	"{\"t\":0.1,\"ev\":\"join\",\"worker\":\"a\",\"id\":1}\n"                      \
	"{\"t\":0.1,\"ev\":\"join\",\"worker\":\"b\",\"id\":2}\n"
#define POLICY(clock, scheme, version)                                        \
	"{\"t\":1,\"ev\":\"policy\",\"clock\":" clock ",\"scheme\":\"" scheme \
	"\",\"by\":\"k\",\"version\":" version "}\n"
#define DONE(version) "{\"t\":9,\"ev\":\"done\",\"version\":" version ",\"seconds\":9}\n"
/* A round that worker w ran as one contribution; `how` is the rest of its head. */
#define ROUND(r, c, first, n, samples, version, w, how)                                  \
	"{\"t\":1,\"ev\":\"ledger\",\"round\":" #r ",\"clock\":" #c ",\"first\":" #first \
	",\"tasks\":" #n ",\"samples\":" #samples ",\"version\":" #version               \
	",\"blocks\":5," how ",\"grant\":[[" #w "," #first "," #n                        \
	"]],\"move\":[],\"clone\":[],\"regrant\":[],\"contrib\":[{\"c\":[" #w ",1" #r    \
	"],\"tasks\":[[" #first "," #n "]],\"blocks\":5}],\"lost\":[]}\n"
#define STALE(c, u) "\"stale\":{\"clocks\":" #c ",\"updates\":" #u "}"
#define SHARED(u) "\"kind\":\"grad\",\"end\":\"applied\"," STALE(0, u)
#define OWN(w, c, u) "\"kind\":\"grad\",\"owner\":" #w ",\"end\":\"applied\"," STALE(c, u)
#define DELTA(w, weight, c, u)                                                        \
	"\"kind\":\"delta\",\"owner\":" #w ",\"end\":\"applied\",\"weight\":" #weight \
	"," STALE(c, u)
#define WEIGHT_1 "1"
#define WEIGHT_2 "0.5"
#define SLOT(w, rank, slot)                                             \
	"\"kind\":\"delta\",\"owner\":" #w                              \
	",\"end\":\"applied\",\"weight\":" WEIGHT_##rank                \
		","                                                     \
		"\"stale\":{\"clocks\":0,\"updates\":0,\"rank\":" #rank \
		"},\"slot\":" #slot
#define UPDATE_BY(version, c, rounds, samples, by)                          \
	"{\"t\":1,\"ev\":\"update\",\"version\":" #version ",\"clock\":" #c \
	",\"rounds\":[" rounds "]," by "\"samples\":" #samples              \
	",\"loss\":0.5,\"lr\":0.1,\"epoch\":1}\n"
#define UPDATE(version, c, rounds, samples) UPDATE_BY(version, c, rounds, samples, "")

static unsigned demands; /* of the audit */

/* What is changed in a trace, and the finding that begins so; `from` NULL: nothing. */
struct forgery {
	const char *from, *to, *finding;
};

struct outcome {
	int err;
	struct fal_diag diag;
	struct fal_audit *a;
	struct fal_audit_verdict v;
};

static struct outcome
audit(const char *text)
{
	struct outcome o = { .a = fal_audit_new() };
	struct fal_trace_reader *r = fal_trace_reader_new(fal_audit_line, o.a);
	assert_non_null(r);
	fal_audit_demand(o.a, demands);
	o.err = whole_feed(r, text, strlen(text), &o.diag);
	if (o.err == 0)
		o.err = fal_trace_end(r, &o.diag);
	if (o.err == 0)
		o.err = fal_audit_end(o.a, &o.v, &o.diag);
	fal_trace_reader_free(r);
	return o;
}

/* The trace with the first `from` replaced. */
static char *
forge(const char *text, const struct forgery *f)
{
	const char *at = strstr(text, f->from);
	if (at == NULL)
		fail_msg("the trace has no '%s'", f->from);
	struct fal_buf b = { 0 };
	fal_put_bytes(&b, text, (size_t)(at - text));
	fal_put_bytes(&b, f->to, strlen(f->to));
	fal_put_bytes(&b, at + strlen(f->from), strlen(at + strlen(f->from)) + 1);
	assert_int_equal(b.err, 0);
	return (char *)b.p;
}

static bool
is_caught(const char *text, const struct forgery *f)
{
	char *forged = forge(text, f);
	struct outcome o = audit(forged);
	bool caught = false;
	for (size_t i = 0; o.err == 0 && i < o.v.n_text; i++)
		caught = caught ||
			 strncmp(o.v.text[i], f->finding, strlen(f->finding)) == 0;
	if (!caught) {
		print_error("# forged: %s -> %s\n# wanted: %s\n", f->from, f->to,
			    f->finding);
		print_error("# error: %d %s\n", o.err, o.diag.text);
		for (size_t i = 0; o.err == 0 && i < o.v.n_text; i++)
			print_error("# finding: %s\n", o.v.text[i]);
	}
	fal_audit_free(o.a);
	free(forged);
	return caught;
}

/* The trace passes; each forgery of it is caught.  Returns the verdict's numbers. */
static struct fal_audit_verdict
check(const char *text, const struct forgery *f, size_t n)
{
	struct outcome o = audit(text);
	for (size_t i = 0; o.err == 0 && i < o.v.n_text; i++)
		print_error("# finding: %s\n", o.v.text[i]);
	assert_string_equal(o.diag.text, "");
	assert_int_equal(o.v.findings, 0);
	size_t caught = 0;
	for (size_t i = 0; i < n; i++)
		caught += is_caught(text, &f[i]);
	assert_int_equal(caught, n);
	struct fal_audit_verdict v = o.v;
	v.text = NULL;
	fal_audit_free(o.a);
	return v;
}

#define CHECK(text, forgeries) \
	check(text, forgeries, sizeof(forgeries) / sizeof(forgeries[0]))

/* Worker 2 leaves in round 3, whose tasks come back as round 4. */
static const char asp[] = JOB("asp", "3", "96") POLICY("0", "asp", "0")
	ROUND(0, 0, 0, 2, 16, 0, 1, OWN(1, 0, 0)) UPDATE(1, 0, "0", 16)
		ROUND(1, 0, 2, 2, 16, 0, 2, OWN(2, 0, 1)) UPDATE(2, 0, "1", 16) ROUND(
			2, 1, 0, 2, 16, 1, 1, OWN(1, 0, 1)) UPDATE(3, 1, "2", 16)
			ROUND(3, 1, 2, 2, 16, 2, 2,
			      "\"owner\":2,\"end\":\"abandoned\",\"why\":\"left\"")
				ROUND(5, 2, 0, 2, 16, 3, 1, OWN(1, 0, 0)) UPDATE(4, 2,
										 "5", 16)
					ROUND(4, 1, 2, 2, 16, 3, 1,
					      OWN(1, 0, 1)) UPDATE(5, 1, "4", 16)
						ROUND(6, 2, 2, 2, 16, 5, 1, OWN(1, 0, 0))
							UPDATE(6, 2, "6", 16) DONE("6");

static void
test_asp(void **state)
{
	static const struct forgery f[] = {
		{ "\"clock\":0,\"first\":2", "\"clock\":0,\"first\":1",
		  "round 1 of clock 0: task 1: it ended in an earlier round, too" },
		{ "\"clock\":0,\"first\":2", "\"clock\":0,\"first\":3",
		  "round 1 of clock 0: tasks 3-4: the clock has tasks 0-3" },
		{ "\"clock\":2,\"first\":2", "\"clock\":3,\"first\":2",
		  "round 6 of clock 3: ledger: the job has 3 clocks" },
		{ "\"samples\":16,\"version\":1", "\"samples\":24,\"version\":1",
		  "round 2 of clock 1: samples is 24, not 16" },
		{ "\"version\":1,\"blocks\"", "\"version\":3,\"blocks\"",
		  "round 2 of clock 1: version is 3, but the newest is 2" },
		{ "\"version\":1,\"blocks\"", "\"version\":0,\"blocks\"",
		  "round 2 of clock 1: stale by 1 update, not 2" },
		{ "\"updates\":1", "\"updates\":0",
		  "round 1 of clock 0: stale by 0 updates, not 1" },
		{ "," STALE(0, 0), "", "round 0 of clock 0: nothing says how stale" },
		{ "\"owner\":1,", "", "clock 0: no owner" },
		{ "\"owner\":1", "\"owner\":2",
		  "round 0 of clock 0: tasks 0-1: granted to worker 1, but worker 2" },
		{ "\"owner\":1", "\"owner\":9",
		  "round 0 of clock 0: owner: worker 9 never joined" },
		{ "\"grad\"", "\"delta\"", "round 0 of clock 0: kind is delta" },
		{ "\"round\":6", "\"round\":5",
		  "round 5 of clock 2: ledger again, or out of order" },
		{ "\"end\":\"abandoned\"", "\"end\":\"applied\"",
		  "round 4 of clock 1: task 2: it ended in an earlier round, too" },
		{ "\"rounds\":[4]", "\"rounds\":[3]",
		  "version 5: round 3 was not applied before, or twice" },
		{ "\"rounds\":[2]", "\"rounds\":[1]",
		  "version 3: round 1 was not applied before, or twice" },
		{ "\"rounds\":[2]", "\"rounds\":[]", "version 3 is made of no round" },
		{ "\"rounds\":[2]", "\"rounds\":[]",
		  "round 2 of clock 1: no update before that of round 5 of clock 2" },
		{ "\"rounds\":[6]", "\"rounds\":[]", "round 6 of clock 2: no update" },
		{ UPDATE(5, 1, "4", 16), "", "clock 2: update: version is 6, not 5" },
		{ UPDATE(1, 0, "0", 16), UPDATE(1, 0, "0", 17),
		  "clock 0: update: samples is 17, not 16" },
		{ UPDATE(6, 2, "6", 16), UPDATE(6, 1, "6", 16),
		  "clock 1: update: clock is 1, not 2" },
		{ ROUND(6, 2, 2, 2, 16, 5, 1, OWN(1, 0, 0)), "",
		  "clock 2: task 2: never ended" },
		{ ROUND(4, 1, 2, 2, 16, 3, 1, OWN(1, 0, 1)), "",
		  "clock 1: task 2: never ended" },
		{ DONE("6"), DONE("7"), "done: version is 7, not 6" },
	};
	(void)state;
	struct fal_audit_verdict v = CHECK(asp, f);
	assert_int_equal(v.clocks, 3);
	assert_int_equal(v.sums.tasks, 12);
	assert_int_equal(v.duplicate_samples, 16); /* round 3 had claimed its tasks */
	assert_int_equal(v.stale.samples[FAL_STALE_UPDATES][0], 48);
	assert_int_equal(v.stale.samples[FAL_STALE_UPDATES][1], 48);
}

/* A round that is dropped or abandoned may be incomplete, but not wrong. */
static void
test_weak(void **state)
{
	static const struct forgery pass[] = {
		{ "\"c\":[2,13],\"tasks\":[[2,2]]", "\"c\":[2,13],\"tasks\":[[2,1]]",
		  NULL },
		{ "\"tasks\":[[2,2]],\"blocks\":5}],\"lost\":[]}\n{\"t\":1,\"ev\":"
		  "\"ledger\","
		  "\"round\":5",
		  "\"tasks\":[[2,2]],\"blocks\":3,\"fenced\":true}],\"lost\":[]}\n{\"t\":"
		  "1,"
		  "\"ev\":\"ledger\",\"round\":5",
		  NULL },
	};
	static const struct forgery f[] = {
		{ "\"c\":[2,13]", "\"c\":[1,13]",
		  "round 3 of clock 1: task 2: contribution 1.13: worker 1 never held" },
		{ "\"c\":[2,13],\"tasks\":[[2,2]]",
		  "\"c\":[2,13],\"tasks\":[[2,2],[3,1]]",
		  "round 3 of clock 1: task 3: contribution 2.13 names the task 2 "
		  "times" },
	};
	(void)state;
	CHECK(asp, f);
	for (size_t i = 0; i < sizeof(pass) / sizeof(pass[0]); i++) {
		char *text = forge(asp, &pass[i]);
		check(text, NULL, 0);
		free(text);
	}
}

/* Two rounds open at once; then the drained change to asp, and back in mid-clock. */
static const char epsp[] = JOB("epsp:2", "5", "160") POLICY("0", "epsp:2", "0") ROUND(
	0, 0, 0, 4, 32, 0, 1, SHARED(0)) UPDATE(1, 0, "0", 32) ROUND(1, 1, 0, 4, 32, 0, 2,
								     SHARED(1))
	UPDATE(2, 1, "1", 32) ROUND(2, 2, 0, 4, 32, 0, 1, SHARED(2)) UPDATE(3, 2, "2", 32)
		POLICY("3", "asp",
		       "3") ROUND(3, 3, 0, 1, 8, 3, 1,
				  OWN(1, 0,
				      0)) UPDATE(4, 3, "3", 8) POLICY("3", "epsp:1", "4")
			ROUND(4, 3, 1, 3, 24, 4, 1, SHARED(0)) UPDATE(5, 3, "4", 24)
				POLICY("4", "epsp:1",
				       "5") /* lanes or the like: the counting goes on */
	ROUND(5, 4, 0, 4, 32, 4, 1, SHARED(1)) UPDATE(6, 4, "5", 32) DONE("6");

static void
test_epsp(void **state)
{
	static const struct forgery f[] = {
		{ ROUND(2, 2, 0, 4, 32, 0, 1, SHARED(2)),
		  ROUND(2, 2, 0, 4, 32, 1, 1, SHARED(1)),
		  "clock 2: version is 1, not 0" },
		{ ROUND(5, 4, 0, 4, 32, 4, 1, SHARED(1)),
		  ROUND(5, 4, 0, 4, 32, 5, 1, SHARED(0)),
		  "round 5 of clock 4: version is 5, not 4" },
		{ "\"round\":2", "\"round\":3",
		  "round 3 of clock 2: it is not the round" },
		{ "\"round\":5", "\"round\":2",
		  "round 2 of clock 4: it ended after round 4" },
		{ ROUND(1, 1, 0, 4, 32, 0, 2, SHARED(1)),
		  ROUND(1, 1, 0, 3, 24, 0, 2, SHARED(1)), "clock 1: tasks is 3, not 4" },
		{ ROUND(1, 1, 0, 4, 32, 0, 2, SHARED(1)), "",
		  "clock 1: no ledger before that of clock 2" },
		{ "\"end\":\"applied\"", "\"end\":\"dropped\"",
		  "clock 0: tasks 0-3: dropped" },
		{ UPDATE(1, 0, "0", 32), "",
		  "clock 0: no update before that of clock 1" },
		{ UPDATE(4, 3, "3", 8), "",
		  "round 3 of clock 3: no update before the scheme changes" },
		{ "\"by\":\"k\",\"version\":3", "\"by\":\"k\",\"version\":2",
		  "line 11: policy: version is 2, not 3" },
		{ "\"owner\":1,", "", "clock 3: no owner" },
		{ SHARED(1) ",\"grant\":[[1", OWN(1, 0, 1) ",\"grant\":[[1",
		  "round 5 of clock 4: worker 1 owns it" },
	};
	(void)state;
	struct fal_audit_verdict v = CHECK(epsp, f);
	assert_int_equal(v.stale.samples[FAL_STALE_UPDATES][0], 64);
	assert_int_equal(v.stale.samples[FAL_STALE_UPDATES][1], 64);
	assert_int_equal(v.stale.samples[FAL_STALE_UPDATES][2], 32);
}

static void
test_slack(void **state)
{
	static const char *const schemes[] = { "ssp:1", "flexrr", "ssp", "consgd:1",
					       "dynsgd:1,staleness=updates" };
	(void)state;
	for (size_t i = 0; i < 5; i++) {
		const bool delta = i > 2;
		char text[4096];
		snprintf(text, sizeof(text),
			 JOB("%s", "1", "32") "%s" UPDATE(1, 0, "0",
							  16) "%s" UPDATE(2, 0, "1", 16)
				 DONE("2"),
			 schemes[i],
			 delta ? ROUND(0, 0, 0, 2, 16, 0, 1, DELTA(1, 1, 1, 0))
			       : ROUND(0, 0, 0, 2, 16, 0, 1, OWN(1, 1, 0)),
			 delta ? ROUND(1, 0, 2, 2, 16, 0, 2, DELTA(2, 0.5, 0, 1))
			       : ROUND(1, 0, 2, 2, 16, 0, 2, OWN(2, 0, 1)));
		const struct forgery far[] = {
			{ "\"clocks\":1,\"updates\"", "\"clocks\":4,\"updates\"",
			  "round 0 of clock 0: it is 4 clocks before the slowest" },
			{ UPDATE(1, 0, "0", 16), "",
			  "round 0 of clock 0: no update before that of round 1" },
			{ "[0],\"samples\":16", "[0,1],\"samples\":16",
			  "version 1: round 1 was not applied before, or twice" },
		};
		CHECK(text, far);
	}
}

static void
test_fraction(void **state)
{
	static const char quarter[] = JOB("epsp:1/2", "2", "64")
		ROUND(0, 0, 0, 4, 32, 0, 1, SHARED(0)) UPDATE(1, 0, "0", 32)
			ROUND(1, 1, 0, 4, 32, 0, 2, "\"late\":2," SHARED(1))
				UPDATE(2, 1, "1", 32) DONE("2");
	static const struct forgery f[] = {
		{ "\"late\":2", "\"late\":3", "clock 1: late is not 2" },
		{ "\"late\":2,", "", "clock 1: late is missing: it is 2" },
		{ "epsp:1/2", "epsp:3/4", "clock 1: late is not 3" },
		{ "epsp:1/2", "epsp:1",
		  "clock 1: late is 2, but no task runs on the next version" },
		{ "\"kind\":\"grad\"", "\"late\":2,\"kind\":\"grad\"",
		  "clock 0: late is 2, but no task runs on the next version" },
	};
	(void)state;
	CHECK(quarter, f);
}

static void
test_rennala(void **state)
{
	static const char rennala[] =
		JOB("rennala:3", "2", "64") ROUND(0, 0, 0, 2, 16, 0, 1, OWN(1, 0, 0))
			ROUND(1, 0, 2, 2, 16, 0, 2, OWN(2, 0, 0)) UPDATE(1, 0, "0,1", 32)
				ROUND(2, 1, 0, 2, 16, 1, 1, OWN(1, 0, 0))
					ROUND(3, 1, 2, 2, 16, 1, 2, OWN(2, 0, 0))
						UPDATE(2, 1, "2,3", 32) DONE("2");
	static const struct forgery f[] = {
		{ "rennala:3", "rennala:2",
		  "round 1 of clock 0: version 1 had 2 tasks before it, but a batch is "
		  "2" },
		{ ROUND(3, 1, 2, 2, 16, 1, 2, OWN(2, 0, 0)),
		  ROUND(3, 1, 2, 2, 16, 0, 2, OWN(2, 0, 1)),
		  "round 3 of clock 1: it ran on version 0, but was applied to 1" },
		{ "[2,3],\"samples\"", "[2,3],\"divisor\":64,\"samples\"",
		  "round 3 of clock 1: divisor is 64, not 32" },
	};
	(void)state;
	CHECK(rennala, f);
}

static void
test_ringmaster(void **state)
{
	static const char ringmaster[] =
		JOB("ringmaster:2", "1", "32") ROUND(0, 0, 0, 2, 16, 0, 1, OWN(1, 0, 0))
			UPDATE(1, 0, "0", 16) ROUND(1, 0, 2, 2, 16, 0, 2, OWN(2, 0, 1))
				UPDATE(2, 0, "1", 16) DONE("2");
	static const struct forgery f[] = {
		{ "ringmaster:2", "ringmaster:1",
		  "round 1 of clock 0: stale by 1 update, but the threshold is 1" },
		{ "\"updates\":1", "\"updates\":2",
		  "round 1 of clock 0: stale by 2 updates, but the threshold is 2" },
	};
	(void)state;
	CHECK(ringmaster, f);
}

static void
test_weights(void **state)
{
	static const char consgd[] = JOB("consgd:3,lambda=0.25", "1", "32")
		ROUND(0, 0, 0, 4, 32, 0, 1, DELTA(1, 0.25, 0, 0)) UPDATE(1, 0, "0", 32)
			DONE("1");
	static const char dynsgd[] = JOB("dynsgd,staleness=updates", "1", "32")
		ROUND(0, 0, 0, 2, 16, 0, 1, DELTA(1, 1, 0, 0)) UPDATE(1, 0, "0", 16)
			ROUND(1, 0, 2, 2, 16, 0, 2, DELTA(2, 0.5, 0, 1))
				UPDATE(2, 0, "1", 16) DONE("2");
	static const struct forgery not_lambda[] = {
		{ "0.25,\"stale", "0.5,\"stale",
		  "round 0 of clock 0: weight is 0.5, not 0.25" },
		{ "0.25,\"stale", "2,\"stale", "round 0 of clock 0: weight is 2" },
		{ "\"delta\"", "\"grad\"", "round 0 of clock 0: kind is grad" },
	};
	static const struct forgery not_damped[] = {
		{ "0.5,\"stale", "1,\"stale",
		  "round 1 of clock 0: weight is 1, not 0.5" },
	};
	(void)state;
	CHECK(consgd, not_lambda);
	CHECK(dynsgd, not_damped);
}

static void
test_ranks(void **state)
{
	static const char dynsgd[] = JOB("dynsgd:1", "2", "64")
		ROUND(0, 0, 0, 2, 16, 0, 1, SLOT(1, 1, 0)) UPDATE(1, 0, "0", 16)
			ROUND(1, 0, 2, 2, 16, 1, 1, SLOT(1, 1, 1)) UPDATE(2, 0, "1", 16)
				ROUND(2, 1, 0, 2, 16, 2, 2, SLOT(2, 2, 0))
					UPDATE(3, 1, "2", 16)
						ROUND(3, 1, 2, 2, 16, 3, 2, SLOT(2, 2, 1))
							UPDATE(4, 1, "3", 16) DONE("4");
	static const struct forgery f[] = {
		{ "\"rank\":2},\"slot\":0", "\"rank\":1},\"slot\":0",
		  "round 2 of clock 1: rank is 1, but 1 came before in slot 0" },
		{ "\"rank\":2},\"slot\":0", "\"rank\":3},\"slot\":0",
		  "round 2 of clock 1: rank is 3, but 1 came before in slot 0" },
		{ "\"rank\":1},\"slot\":0", "\"rank\":2},\"slot\":0",
		  "round 0 of clock 0: rank is 2, but 0 came before in slot 0" },
		{ ",\"slot\":0", "", "round 0 of clock 0: no slot" },
		{ "\"weight\":0.5", "\"weight\":1",
		  "round 2 of clock 1: weight is 1, not 0.5" },
		{ "\"slot\":1", "\"slot\":5", "round 2 of clock 1: slot 0 is too old" },
	};
	(void)state;
	struct fal_audit_verdict v = CHECK(dynsgd, f);
	assert_int_equal(v.stale.samples[FAL_STALE_RANK][1], 32);
	assert_int_equal(v.stale.samples[FAL_STALE_RANK][2], 32);
}

/* Of three rounds of version 0 the first two count; the third is dropped. */
static void
test_syncopt(void **state)
{
	static const char syncopt[] =
		JOB("syncopt:1", "2", "64") ROUND(0, 0, 0, 2, 16, 0, 1, OWN(1, 0, 0))
			ROUND(1, 0, 2, 2, 16, 0, 2, OWN(2, 0, 0)) UPDATE(1, 0, "0,1", 32)
				ROUND(2, 1, 0, 2, 16, 0, 1,
				      "\"owner\":1,\"end\":\"dropped\",\"why\":\"stale\"")
					ROUND(3, 1, 2, 2, 16, 1, 2, OWN(2, 0, 0))
						UPDATE(2, 1, "3", 16) DONE("2");
	static const struct forgery f[] = {
		{ ROUND(3, 1, 2, 2, 16, 1, 2, OWN(2, 0, 0)),
		  ROUND(3, 1, 2, 2, 16, 0, 2, OWN(2, 0, 1)),
		  "round 3 of clock 1: it ran on version 0, but was applied to 1" },
		{ "\"end\":\"dropped\"", "\"end\":\"applied\"",
		  "round 2 of clock 1: no update before that of round 3 of clock 1" },
		{ "[0,1]", "[1,0]",
		  "round 0 of clock 0: no update before that of round 1 of clock 0" },
		{ "[0,1]", "[0,2]", "version 1: round 2 was not applied before" },
		{ "\"rounds\":[3]", "\"rounds\":[3],\"divisor\":16",
		  "round 3 of clock 1: divisor is 16, not 32" },
		{ "[0,1]", "[0]",
		  "round 1 of clock 0: no update before that of round 3" },
		{ "\"end\":\"dropped\"", "\"end\":\"abandoned\"",
		  "clock 1: task 0: never ended" },
	};
	(void)state;
	struct fal_audit_verdict v = CHECK(syncopt, f);
	assert_int_equal(v.samples_dropped, 16);
	assert_int_equal(v.duplicate_samples, 0);
	assert_int_equal(v.stale.samples[FAL_STALE_UPDATES][0], 48);
}

static void
test_wbsp_and_groups(void **state)
{
	static const char wbsp[] =
		JOB("wbsp", "1", "32") ROUND(0, 0, 0, 1, 8, 0, 1, DELTA(1, 0.5, 0, 0))
			ROUND(1, 0, 1, 1, 8, 0, 1, DELTA(1, 0.5, 1, 0))
				ROUND(2, 0, 2, 2, 16, 0, 2, DELTA(2, 0.5, 0, 0))
					UPDATE(1, 0, "0,1,2", 32) DONE("1");
	static const char groups[] = JOB("groups:2", "1", "32")
		ROUND(0, 0, 0, 2, 16, 0, 1,
		      "\"group\":1,\"end\":\"applied\"," STALE(0, 0))
			UPDATE(1, 0, "0", 16)
				ROUND(1, 0, 2, 2, 16, 0, 2,
				      "\"group\":2,\"end\":\"applied\"," STALE(0, 1))
					UPDATE(2, 0, "1", 16) DONE("2");
	static const struct forgery not_wbsp[] = {
		{ "\"weight\":0.5", "\"weight\":0.5,\"among\":3",
		  "round 0 of clock 0: weight is 0.5, not 0.333333" },
		{ "\"weight\":0.5", "\"weight\":0.5,\"steps\":2",
		  "round 0 of clock 0: steps is 2, not 1" },
		{ "\"rounds\":[0,1,2]", "\"rounds\":[0,1,2],\"divisor\":32",
		  "round 2 of clock 0: version 1 has a divisor, but no gradients" },
		{ "\"weight\":0.5", "\"weight\":0", "round 0 of clock 0: weight is 0" },
		{ "[0,1,2]", "[0,1]", "round 2 of clock 0: no update" },
		{ "\"scheme\":\"wbsp\"", "\"scheme\":\"consgd\"",
		  "round 0 of clock 0: version 1 is made of 3 rounds" },
	};
	static const struct forgery not_groups[] = {
		{ "\"rounds\":[0]", "\"rounds\":[0],\"divisor\":16",
		  "round 0 of clock 0: divisor is 16, not 32" },
		{ "\"group\":1,", "", "clock 0: no group" },
		{ "\"group\":1", "\"group\":1,\"owner\":1",
		  "round 0 of clock 0: worker 1 owns it" },
		{ "groups:2", "groups:2,mode=delta",
		  "round 0 of clock 0: local is 0, but at most 1 round is pushed" },
		{ "\"group\":2", "\"group\":2,\"weight\":0.5",
		  "round 1 of clock 0: weight is 0.5, not 1" },
	};
	(void)state;
	CHECK(wbsp, not_wbsp);
	CHECK(groups, not_groups);
}

#define LINE(group, local, u)                                      \
	"\"kind\":\"grad\",\"group\":" #group ",\"local\":" #local \
	",\"end\":\"applied\"," STALE(0, u)
#define PUSH(version, rounds, weight, samples)                    \
	"{\"t\":1,\"ev\":\"update\",\"version\":" #version        \
	",\"clock\":0,\"rounds\":[" rounds "],\"weight\":" weight \
	",\"samples\":" #samples ",\"loss\":0.5,\"lr\":0.1,\"epoch\":1}\n"

/* Group 1 has done two rounds, and so has group 2, whose second one is pushed later than
 * it was done. */
static void
test_lines(void **state)
{
	static const char lines[] = JOB("groups:2,mode=delta,rounds=3", "1", "32")
		ROUND(0, 0, 0, 1, 8, 0, 1, LINE(1, 1, 0))
			ROUND(1, 0, 1, 1, 8, 0, 2, LINE(2, 1, 0))
				ROUND(2, 0, 2, 1, 8, 0, 2, LINE(2, 2, 0))
					ROUND(3, 0, 3, 1, 8, 0, 1, LINE(1, 2, 0))
						PUSH(1, "0,3", "0.25", 16)
							PUSH(2, "1,2", "0.75", 16)
								DONE("2");
	/* A round that was the third is pushed at once. */
	static const char full[] = JOB("groups:2,mode=delta", "1", "32")
		ROUND(0, 0, 0, 2, 16, 0, 1, LINE(1, 1, 0)) PUSH(1, "0", "0.5", 16)
			ROUND(1, 0, 2, 2, 16, 0, 2, LINE(2, 1, 1)) PUSH(2, "1", "0.5", 16)
				DONE("2");
	static const struct forgery not_lines[] = {
		{ "\"local\":2", "\"local\":2,\"divisor\":8",
		  "round 2 of clock 0: divisor is 8, not 24" },
		{ "\"local\":2", "\"local\":4",
		  "round 2 of clock 0: local is 4, but at most 3 rounds are pushed" },
		{ "\"local\":2", "\"local\":1",
		  "round 2 of clock 0: local is 1, but it is number 2 of version 2" },
		{ "[0,3]", "[3,0]",
		  "round 0 of clock 0: no update before that of round 3" },
		{ "[0,3]", "[0,2]",
		  "round 1 of clock 0: no update before that of round 2" },
		{ "[1,2]", "[1]", "round 2 of clock 0: no update" },
		{ "\"weight\":0.25,", "",
		  "round 0 of clock 0: the weight of version 1 is 0" },
		{ "\"weight\":0.75", "\"weight\":1.5",
		  "round 1 of clock 0: the weight of version 2 is 1.5" },
		{ "\"updates\":0", "\"updates\":1",
		  "round 0 of clock 0: stale by 1 update, not 0" },
		{ "mode=delta,rounds=3", "mode=delta,rounds=1",
		  "round 2 of clock 0: local is 2, but at most 1 round is pushed" },
		{ ",mode=delta,rounds=3", "",
		  "round 0 of clock 0: local is 1, but at most 0 rounds are pushed" },
	};
	static const struct forgery not_full[] = {
		{ "\"updates\":1", "\"updates\":0",
		  "round 1 of clock 0: stale by 0 updates, not 1" },
	};
	(void)state;
	CHECK(lines, not_lines);
	CHECK(full, not_full);
}

#define QUORUM(version, rounds, more, samples)                                \
	"{\"t\":1,\"ev\":\"update\",\"version\":" #version                    \
	",\"clock\":0,\"rounds\":[" rounds "]," more ",\"samples\":" #samples \
	",\"loss\":0.5,\"lr\":0.1,\"epoch\":1}\n"

/* Three groups, of whom two push what makes a version; the third is late. */
static void
test_quorum(void **state)
{
	static const char grads[] = JOB("groups:3,quorum=2", "1", "32")
		ROUND(0, 0, 0, 1, 8, 0, 1, "\"group\":1,\"end\":\"applied\"," STALE(0, 0))
			ROUND(1, 0, 1, 2, 16, 0, 2,
			      "\"group\":2,\"end\":\"applied\"," STALE(0, 0))
				QUORUM(1, "0,1", "\"groups\":3,\"divisor\":32", 24)
					ROUND(2, 0, 3, 1, 8, 0, 2,
					      "\"group\":3,\"end\":\"applied\"," STALE(0,
										       1))
						QUORUM(2, "2",
						       "\"groups\":1,\"divisor\":32", 8)
							DONE("2");
	static const struct forgery not_grads[] = {
		{ "\"divisor\":32", "\"divisor\":24",
		  "round 1 of clock 0: divisor is 24, not 32" },
		{ "\"groups\":1", "\"groups\":3",
		  "version 2: 1 of 3 groups have pushed, but the quorum is 2" },
		{ "\"groups\":3", "\"groups\":1",
		  "version 1: 2 of 1 groups have pushed, but the quorum is 2" },
		{ "\"groups\":3,", "", "version 1: the number of groups is missing" },
		{ "\"group\":2", "\"group\":1", "version 1: 1 of 3 groups have pushed" },
		{ ",quorum=2", "", "version 1: a quorum, but the scheme has none" },
	};
	static const char lines[] =
		JOB("groups:3,mode=delta,quorum=2,rounds=2", "1",
		    "32") ROUND(0, 0, 0, 1, 8, 0, 1, "\"divisor\":8," LINE(1, 1, 0))
			ROUND(1, 0, 1, 1, 8, 0, 2, LINE(2, 1, 0)) ROUND(2, 0, 2, 2, 16, 0,
									2, LINE(2, 2, 0))
				QUORUM(1, "0,1,2",
				       "\"groups\":3,\"pushes\":[[1,0.25],[2,0.75]],"
				       "\"outer\":[0.7,0.85]",
				       32) DONE("1");
	static const struct forgery not_lines[] = {
		{ "[2,0.75]", "[2,0.5]",
		  "version 1: group 2 counts by 0.5, but has 0.75 of its samples" },
		{ "0.85]", "0.9]", "version 1: its outer momentum is 0.9, not 0.85" },
		{ "[0.7,", "[0.6,", "version 1: its outer rate is 0.6, not 0.7" },
		{ "\"divisor\":8", "\"divisor\":32",
		  "round 0 of clock 0: divisor is 32, not 8" },
		{ "[1,0.25],", "",
		  "version 1: group 1 counts by 0, but has 0.25 of its samples" },
		{ ",\"outer\":[0.7,0.85]", "",
		  "version 1: its outer rate is 0, not 0.7" },
		{ "\"local\":2", "\"local\":1",
		  "round 2 of clock 0: local is 1, but it is number 2 of version 1" },
	};
	(void)state;
	CHECK(grads, not_grads);
	CHECK(lines, not_lines);
}

/* Part 1 of the data, tasks 2 and 3, goes on while part 0 has not begun. */
static void
test_parts(void **state)
{
	static const char parts[] = JOB("asp", "2", "64,\"parts\":2")
		ROUND(0, 0, 2, 2, 16, 0, 2, OWN(2, 0, 0)) UPDATE(1, 0, "0", 16)
			ROUND(1, 1, 2, 2, 16, 1, 2, OWN(2, 1, 0)) UPDATE(2, 1, "1", 16)
				ROUND(2, 0, 0, 2, 16, 2, 1, OWN(1, 0, 0))
					UPDATE(3, 0, "2", 16)
						ROUND(3, 1, 0, 2, 16, 3, 1, OWN(1, 0, 0))
							UPDATE(4, 1, "3", 16) DONE("4");
	static const struct forgery f[] = {
		{ "\"round\":2,\"clock\":0", "\"round\":2,\"clock\":1",
		  "round 3 of clock 1: task 0: it ended in an earlier round, too" },
		{ "\"round\":3,\"clock\":1,\"first\":0",
		  "\"round\":3,\"clock\":1,\"first\":1",
		  "round 3 of clock 1: task 2: it ended in an earlier round, too" },
		{ ROUND(2, 0, 0, 2, 16, 2, 1, OWN(1, 0, 0)), "",
		  "clock 0: task 0: never ended" },
	};
	(void)state;
	CHECK(parts, f);
}

/* A long job in which workers are far apart is judged in little memory: runs, not tasks.
 * Worker 1 has the even rounds, and worker 2 ends its own long after. */
static void
test_long(void **state)
{
	enum { ROUNDS = 20000, BEHIND = 500 };
	struct fal_buf b = { 0 };
	(void)state;
	fal_put_fmt(&b, JOB("asp", "%d", "%d"), ROUNDS / 2 * 32, ROUNDS / 2, ROUNDS / 2);
	uint64_t version = 0;
	for (int i = 0; i < ROUNDS + 2 * BEHIND; i++) {
		int r = i % 2 == 0 ? i : i - 2 * BEHIND;
		if (r < 0 || r >= ROUNDS)
			continue;
		int w = r % 2 + 1, c = r / 2, first = r % 2 * 2;
		fal_put_fmt(
			&b,
			"{\"t\":1,\"ev\":\"ledger\",\"round\":%d,\"clock\":%d,"
			"\"first\":%d,\"tasks\":2,\"samples\":16,\"version\":%llu,"
			"\"blocks\":5,\"kind\":\"grad\",\"owner\":%d,"
			"\"stale\":{\"clocks\":0,\"updates\":0},"
			"\"grant\":[[%d,%d,2]],\"move\":[],\"clone\":[],\"regrant\":[],"
			"\"contrib\":[{\"c\":[%d,%d],\"tasks\":[[%d,2]],\"blocks\":5}],"
			"\"lost\":[]}\n",
			r, c, first, (unsigned long long)version, w, w, first, w, r + 1,
			first);
		version++;
		fal_put_fmt(&b,
			    "{\"t\":1,\"ev\":\"update\",\"version\":%llu,\"clock\":%d,"
			    "\"rounds\":[%d],\"samples\":16,\"loss\":1,\"epoch\":1}\n",
			    (unsigned long long)version, c, r);
	}
	fal_put_fmt(&b, DONE("%d"), ROUNDS);
	fal_put_u8(&b, 0);
	assert_int_equal(b.err, 0);
	struct fal_audit_verdict v = check((const char *)b.p, NULL, 0);
	assert_int_equal(v.clocks, ROUNDS / 2);
	assert_int_equal(v.sums.tasks, 2 * ROUNDS);
	fal_buf_free(&b);
}

/* Where it is demanded a trace says what gradients were divided by, and of how many
 * workers a weight is a share. */
static void
test_said(void **state)
{
	static const char bsp[] =
		JOB("bsp", "1", "32") ROUND(0, 0, 0, 4, 32, 0, 1, SHARED(0))
			UPDATE_BY(1, 0, "0", 32, "\"divisor\":32,") DONE("1");
	static const char consgd[] = JOB("consgd:3", "1", "32")
		ROUND(0, 0, 0, 4, 32, 0, 1, "\"among\":2," DELTA(1, 0.5, 0, 0))
			UPDATE(1, 0, "0", 32) DONE("1");
	static const char wbsp[] = JOB("wbsp", "1", "32")
		ROUND(0, 0, 0, 2, 16, 0, 1, "\"among\":2," DELTA(1, 0.5, 0, 0))
			ROUND(1, 0, 2, 2, 16, 0, 2, "\"among\":2," DELTA(2, 0.5, 0, 0))
				UPDATE(1, 0, "0,1", 32) DONE("1");
	static const char dynsgd[] =
		JOB("dynsgd", "1", "32") ROUND(0, 0, 0, 4, 32, 0, 1, SLOT(1, 1, 0))
			UPDATE(1, 0, "0", 32) DONE("1");
	static const char line[] = JOB("groups:1,mode=delta", "1", "32")
		ROUND(0, 0, 0, 4, 32, 0, 1, "\"divisor\":32," LINE(1, 1, 0))
			PUSH(1, "0", "1", 32) DONE("1");
	static const struct forgery undivided[] = {
		{ "\"divisor\":32,", "",
		  "clock 0: nothing says the divisor of its gradients" },
	};
	static const struct forgery line_undivided[] = {
		{ "\"divisor\":32,", "",
		  "round 0 of clock 0: nothing says the divisor of its gradients" },
	};
	static const struct forgery of_nobody[] = {
		{ "\"among\":2,", "",
		  "round 0 of clock 0: nothing says how many workers share its weight" },
		{ "\"among\":2,", "\"among\":4,",
		  "round 0 of clock 0: weight is 0.5, not 0.25" },
	};
	(void)state;
	demands = FAL_AUDIT_PARTS;
	CHECK(bsp, undivided);
	CHECK(consgd, of_nobody);
	CHECK(wbsp, of_nobody);
	CHECK(line, line_undivided);
	check(dynsgd, NULL, 0);
	demands = 0;
}

/* Who is here at the end has told of the last clock, unless it came too late for that;
 * and who is here has a name of its own. */
#define JOIN(name, id) \
	"{\"t\":1,\"ev\":\"join\",\"worker\":\"" name "\",\"id\":" #id "}\n"
#define LEAVE(name, id)                                                 \
	"{\"t\":1,\"ev\":\"leave\",\"worker\":\"" name "\",\"id\":" #id \
	",\"reason\":\"lost\"}\n"
#define TOLD(c, name, id, n)                                                             \
	"{\"t\":1,\"ev\":\"clock\",\"clock\":" #c ",\"worker\":\"" name "\",\"id\":" #id \
	",\"share\":" #n ",\"done\":" #n                                                 \
	",\"in\":0,\"out\":0,\"cloned\":0,\"lost\":0,\"compute\":0,\"push\":0,"          \
	"\"pull\":0,\"wait\":0}\n"
#define SHARED_CLOCK(c, v)                     \
	ROUND(c, c, 0, 4, 32, c, 1, SHARED(0)) \
	UPDATE(v, c, #c, 32) TOLD(c, "a", 1, 4) TOLD(c, "b", 2, 0)

static void
test_who_is_here(void **state)
{
	static const char went[] = JOB("bsp", "3", "96") SHARED_CLOCK(0, 1) JOIN("c", 3)
		LEAVE("c", 3) JOIN("c", 4) LEAVE("c", 4) SHARED_CLOCK(1, 2)
			SHARED_CLOCK(2, 3) DONE("3");
	static const struct forgery stays[] = {
		{ LEAVE("c", 4), "", "line 19: done: worker 4 has no line of clock 2" },
		{ LEAVE("c", 3), "", "line 9: worker 4 joined as c, who is here" },
		{ LEAVE("c", 3), "", "line 19: done: worker 3 has no line of clock 2" },
		{ "\"worker\":\"c\",\"id\":3", "\"worker\":\"b\",\"id\":3",
		  "line 8: worker 3 joined as b, who is here" },
	};
	/* When the last clock's round was over, all of it need not be told yet. */
	static const char late[] = JOB("bsp", "2", "64") SHARED_CLOCK(0, 1) JOIN("c", 3)
		SHARED_CLOCK(1, 2) JOIN("d", 4) DONE("2");
	static const char unended[] =
		JOB("bsp", "2", "64") JOIN("c", 3) SHARED_CLOCK(0, 1) SHARED_CLOCK(1, 2);
	static const char failed[] = JOB("bsp", "2", "64") JOIN("c", 3)
		SHARED_CLOCK(0, 1) "{\"t\":1,\"ev\":\"failed\",\"version\":1,"
				   "\"reason\":\"so\"}\n";
	/* With a slack of 1 the last clock is run on version 1. */
	static const char slack[] = JOB("epsp:1", "3", "96") ROUND(0, 0, 0, 4, 32, 0, 1,
								   SHARED(0))
		UPDATE(1, 0, "0", 32) TOLD(0, "a", 1, 4) TOLD(0, "b", 2, 0) JOIN("c", 3)
			ROUND(1, 1, 0, 4, 32, 0, 1, SHARED(1)) UPDATE(2, 1, "1", 32)
				TOLD(1, "a", 1, 4) TOLD(1, "b", 2, 0)
					ROUND(2, 2, 0, 4, 32, 1, 1, SHARED(1))
						UPDATE(3, 2, "2", 32) TOLD(2, "a", 1, 4)
							TOLD(2, "b", 2, 0) DONE("3");
	static const struct forgery sooner[] = {
		{ UPDATE(1, 0, "0", 32), JOIN("d", 4) UPDATE(1, 0, "0", 32),
		  "line 18: done: worker 4 has no line of clock 2" },
	};
	(void)state;
	demands = FAL_AUDIT_CLOCKS;
	CHECK(went, stays);
	check(late, NULL, 0);
	check(unended, NULL, 0);
	check(failed, NULL, 0);
	CHECK(slack, sooner);
	demands = 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_asp),
		cmocka_unit_test(test_weak),
		cmocka_unit_test(test_epsp),
		cmocka_unit_test(test_slack),
		cmocka_unit_test(test_weights),
		cmocka_unit_test(test_ranks),
		cmocka_unit_test(test_fraction),
		cmocka_unit_test(test_rennala),
		cmocka_unit_test(test_ringmaster),
		cmocka_unit_test(test_syncopt),
		cmocka_unit_test(test_wbsp_and_groups),
		cmocka_unit_test(test_quorum),
		cmocka_unit_test(test_lines),
		cmocka_unit_test(test_parts),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_said),
		cmocka_unit_test(test_who_is_here),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("audit_schemes", tests, NULL, NULL);
}
