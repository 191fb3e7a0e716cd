/* The audit: a valid trace passes, and every kind of tampering is named. */
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

#define HEAD(clock, tasks, samples)                                           \
	"{\"t\":1.5,\"ev\":\"ledger\",\"clock\":" clock ",\"version\":" clock \
	",\"tasks\":" tasks ",\"samples\":" samples ",\"blocks\":5,"
#define SUMS "\"seed\":\"00112233445566aa\",\"added\":\"0000000000000000\"}\n"
#define Z "\"sum\":\"0000000000000000\","
#define UPDATE(clock, version, samples, epoch)                                  \
	"{\"t\":1.5,\"ev\":\"update\",\"version\":" version ",\"clock\":" clock \
	",\"samples\":" samples ",\"loss\":0.5,\"lr\":0.1,\"epoch\":" epoch "}\n"

/* Two epochs of 150 samples: clocks of 64, 64, 22 samples, 8, 8, 3 tasks; 5 blocks.
 * Clock 1 has moves, a clone and a dropped claim; in clock 3 worker 2 dies after 2 blocks
 * of contribution 2.23, which is filled by two, one of which is fenced and filled again;
 * in clock 4 a contribution is fenced with all its blocks. */
static const char *const valid[] = {
	"{\"t\":0.0,\"ev\":\"job\",\"name\":\"j\",\"epochs\":2,\"batch\":64,\"task\":8,"
	"\"samples\":150,\"blocks\":5,\"clocks_per_epoch\":3,\"clocks\":6,"
	"\"scheme\":\"epsp\",\"audit\":\"sums\"}\n",
	"{\"t\":0.1,\"ev\":\"join\",\"worker\":\"fast\",\"id\":1}\n",
	"{\"t\":0.2,\"ev\":\"join\",\"worker\":\"mid\",\"id\":2}\n",
	"{\"t\":0.3,\"ev\":\"join\",\"worker\":\"slow\",\"id\":3}\n",
	"{\"t\":0.3,\"ev\":\"policy\",\"clock\":0,\"scheme\":\"epsp\",\"by\":\"job\"}\n",
	HEAD("0", "8",
	     "64") "\"grant\":[[1,0,4],[2,4,2],[3,6,2]],\"move\":[],\"clone\":[],"
		   "\"regrant\":[],"
		   "\"contrib\":[{" Z "\"c\":[1,10],\"tasks\":[[0,4]],\"blocks\":5},"
		   "{" Z "\"c\":[2,20],\"tasks\":[[4,2]],\"blocks\":5},"
		   "{" Z
		   "\"c\":[3,30],\"tasks\":[[6,2]],\"blocks\":5}],\"lost\":[]," SUMS,
	UPDATE("0", "1", "64", "1"),
	HEAD("1", "8",
	     "64") "\"grant\":[[1,0,3],[2,3,3],[3,6,2]],\"move\":[[3,1,7,1],[2,1,5,1]],"
		   "\"clone\":[[1,6,1]],\"regrant\":[],"
		   "\"contrib\":[{" Z
		   "\"c\":[1,11],\"tasks\":[[0,3],[5,3]],\"blocks\":5},"
		   "{" Z
		   "\"c\":[2,21],\"tasks\":[[3,2]],\"blocks\":5}],\"lost\":[[3,6,1]]"
		   "," SUMS,
	UPDATE("1", "2", "64", "1"),
	HEAD("2", "3",
	     "22") "\"grant\":[[1,0,2],[2,2,1]],\"move\":[],\"clone\":[],\"regrant\":[],"
		   "\"contrib\":[{" Z "\"c\":[1,12],\"tasks\":[[0,2]],\"blocks\":5},"
		   "{" Z
		   "\"c\":[2,22],\"tasks\":[[2,1]],\"blocks\":5}],\"lost\":[]," SUMS,
	UPDATE("2", "3", "22", "1"),
	"{\"t\":1.5,\"ev\":\"leave\",\"worker\":\"mid\",\"id\":2,\"reason\":\"lost\"}\n",
	HEAD("3", "8",
	     "64") "\"grant\":[[1,0,3],[2,3,3],[3,6,2]],\"move\":[],\"clone\":[],"
		   "\"regrant\":[[1,3,2],[3,5,1],[1,5,1]],"
		   "\"contrib\":[{" Z "\"c\":[1,13],\"tasks\":[[0,3]],\"blocks\":5},"
		   "{" Z "\"c\":[2,23],\"tasks\":[[3,3]],\"blocks\":2,\"fenced\":true},"
		   "{" Z "\"c\":[3,33],\"tasks\":[[6,2]],\"blocks\":5},"
		   "{" Z "\"c\":[1,14],\"tasks\":[[3,2]],\"blocks\":3,\"fills\":[2,23]},"
		   "{" Z "\"c\":[3,34],\"tasks\":[[5,1]],\"blocks\":1,\"fills\":[2,23],"
		   "\"fenced\":true},"
		   "{" Z "\"c\":[1,15],\"tasks\":[[5,1]],\"blocks\":2,\"fills\":[3,34]}],"
		   "\"lost\":[]," SUMS,
	UPDATE("3", "4", "64", "2"),
	"{\"t\":1.5,\"ev\":\"join\",\"worker\":\"mid\",\"id\":4}\n",
	HEAD("4", "8",
	     "64") "\"grant\":[[1,0,3],[4,3,3],[3,6,2]],\"move\":[],\"clone\":[],"
		   "\"regrant\":[],"
		   "\"contrib\":[{" Z "\"c\":[1,16],\"tasks\":[[0,3]],\"blocks\":5},"
		   "{" Z "\"c\":[4,40],\"tasks\":[[3,3]],\"blocks\":5},"
		   "{" Z "\"c\":[3,35],\"tasks\":[[6,2]],\"blocks\":5,\"fenced\":true}],"
		   "\"lost\":[]," SUMS,
	UPDATE("4", "5", "64", "2"),
	HEAD("5", "3",
	     "22") "\"grant\":[[1,0,2],[4,2,1]],\"move\":[],\"clone\":[],\"regrant\":[],"
		   "\"contrib\":[{" Z "\"c\":[1,17],\"tasks\":[[0,2]],\"blocks\":5},"
		   "{" Z
		   "\"c\":[4,41],\"tasks\":[[2,1]],\"blocks\":5}],\"lost\":[]," SUMS,
	UPDATE("5", "6", "22", "2"),
	"{\"t\":9.0,\"ev\":\"done\",\"version\":6,\"sha256\":\"00\",\"seconds\":9.0}\n",
};
#define LINES (sizeof(valid) / sizeof(valid[0]))
#define OF_CLOCK_3 12
#define BEFORE_DONE (LINES - 1)

struct outcome {
	int err;
	struct fal_diag diag;
	struct fal_audit *a;
	struct fal_audit_verdict v;
};

static struct outcome
audit(const char *text, size_t n)
{
	struct outcome o = { .a = fal_audit_new() };
	assert_non_null(o.a);
	struct fal_trace_reader *r = fal_trace_reader_new(fal_audit_line, o.a);
	assert_non_null(r);
	o.err = whole_feed(r, text, n, &o.diag);
	if (o.err == 0)
		o.err = fal_trace_end(r, &o.diag);
	if (o.err == 0)
		o.err = fal_audit_end(o.a, &o.v, &o.diag);
	fal_trace_reader_free(r);
	return o;
}

/* The valid trace without lines [skip, skip + count), with the first `from` replaced. */
static struct fal_buf
trace(size_t skip, size_t count, const char *from, const char *to)
{
	struct fal_buf b = { 0 }, out = { 0 };
	for (size_t i = 0; i < LINES; i++)
		if (i < skip || i >= skip + count)
			fal_put_bytes(&b, valid[i], strlen(valid[i]));
	fal_put_u8(&b, 0);
	assert_int_equal(b.err, 0);
	const char *text = (const char *)b.p;
	const char *at = from != NULL ? strstr(text, from) : text;
	if (at == NULL)
		fail_msg("the trace has no '%s'", from);
	fal_put_bytes(&out, text, (size_t)(at - text));
	if (from != NULL) {
		fal_put_bytes(&out, to, strlen(to));
		at += strlen(from);
	}
	fal_put_bytes(&out, at, strlen(at));
	assert_int_equal(out.err, 0);
	fal_buf_free(&b);
	return out;
}

static void
test_valid_passes(void **state)
{
	(void)state;
	struct fal_buf b = trace(0, 0, NULL, NULL);
	struct outcome o = audit((const char *)b.p, b.n);
	for (size_t i = 0; o.err == 0 && i < o.v.n_text; i++)
		print_error("# %s\n", o.v.text[i]);
	assert_string_equal(o.diag.text, "");
	assert_int_equal(o.err, 0);
	assert_true(o.v.ok);
	assert_true(o.v.finished);
	assert_int_equal(o.v.clocks, 6);
	assert_int_equal(o.v.sums.tasks, 38);
	assert_int_equal(o.v.sums.moved, 2);
	assert_int_equal(o.v.sums.cloned, 1);
	assert_int_equal(o.v.sums.filled, 3);
	assert_int_equal(o.v.sums.dropped, 1);
	assert_int_equal(o.v.samples_dropped, 0);
	/* A claim that lost; 2 and 1 and 1 tasks in fills. */
	assert_int_equal(o.v.duplicate_samples, 8 + 4 * 8);
	assert_int_equal(o.v.stale.samples[FAL_STALE_UPDATES][0], 300);
	fal_audit_free(o.a);
	fal_buf_free(&b);
}

/* A trace of a running job has no gaps, and may lack the last update or ledger. */
static void
test_unfinished(void **state)
{
	(void)state;
	for (size_t cut = 1; cut < 7; cut++) {
		static const uint64_t clocks[] = { 0, 6, 6, 5, 5, 4, 4 };
		struct fal_buf b = trace(LINES - cut, cut, NULL, NULL);
		struct outcome o = audit((const char *)b.p, b.n);
		assert_int_equal(o.err, 0);
		assert_int_equal(o.v.findings, 0);
		assert_false(o.v.finished);
		assert_int_equal(o.v.clocks, clocks[cut]);
		fal_audit_free(o.a);
		fal_buf_free(&b);
	}
}

struct tamper {
	const char *from, *to; /* the first `from` is replaced */
	const char *finding;   /* a finding begins so */
};

/* What is said before the ledger of clock 3, and the first finding that follows; NULL:
 * none, and so many words differ; "": an error. */
struct said {
	const char *said, *finding;
};

static void
judge_said(const struct said *cases, size_t n, uint64_t words)
{
	for (size_t k = 0; k < n; k++) {
		const char *want = cases[k].finding;
		struct fal_buf b = { 0 };
		for (size_t i = 0; i < LINES; i++) {
			if (i == OF_CLOCK_3)
				fal_put_bytes(&b, cases[k].said, strlen(cases[k].said));
			fal_put_bytes(&b, valid[i], strlen(valid[i]));
		}
		struct outcome o = audit((const char *)b.p, b.n);
		const char *text = o.err < 0 ? "" : o.v.ok ? "ok" : o.v.text[0];
		if (strcmp(text, want != NULL ? want : "ok") != 0)
			fail_msg("case %zu: '%s'", k, text);
		if (want == NULL)
			assert_int_equal(o.v.unlike, words);
		fal_audit_free(o.a);
		fal_buf_free(&b);
	}
}

/* Unlike results of a task, before the ledger of clock 3. */
#define WORD(id, hash)                 \
	"{\"worker\":\"w\",\"id\":" id \
	",\"hash\":\"0000000000000000000000000000000" hash "\"}"
#define VERIFY(words)                                                               \
	"{\"t\":1.5,\"ev\":\"verify\",\"round\":3,\"clock\":3,\"task\":0,\"c\":[1," \
	"13],\"words\":[" words "]}\n"

/* Shards' lines, behind the update of clock 2, version 3, of a model with 5 blocks. */
#define SERVED(shard, clock, version, blocks, more)                        \
	"{\"t\":1.5,\"ev\":\"shard\",\"shard\":" shard ",\"clock\":" clock \
	",\"version\":" version ",\"blocks\":" blocks                      \
	",\"rx\":1,\"tx\":1,\"service\":0.1,\"queue\":0.1" more "}\n"
#define BLAME ",\"blame\":0.1"
#define PLACED                                                                    \
	"{\"t\":1.5,\"ev\":\"place\",\"map\":1,\"rule\":\"blocks\",\"shards\":2," \
	"\"runs\":[[1,0,2],[2,2,3]]}\n"
#define SET(clock) SERVED("1", clock, "3", "2", BLAME) SERVED("2", clock, "3", "3", BLAME)

static void
shards_are_judged(void **state)
{
	(void)state;
	static const struct said cases[] = {
		{ SET("2"), NULL },
		{ PLACED SET("1") SET("2"), NULL },
		{ SET("2") SET("2"),
		  "line 15: shard: a set of clock 2 follows a set of clock 2" },
		{ PLACED SERVED("2", "2", "3", "3", BLAME),
		  "line 14: shard: the line is of shard 2, but shard 1 is next" },
		{ PLACED SERVED("1", "2", "3", "3", BLAME),
		  "line 14: shard: blocks is 3, but the shard has 2" },
		{ SERVED("1", "2", "3", "4", BLAME) SERVED("2", "2", "3", "2", BLAME),
		  "line 14: shard: all shards have 6 blocks, not 5" },
		{ SERVED("1", "2", "4", "2", BLAME),
		  "line 13: shard: version is 4, but 3 is the newest" },
		{ SERVED("1", "2", "3", "2", ",\"blame\":1.6"),
		  "line 13: shard: workers waited longer than the job runs" },
		{ SERVED("1", "2", "3", "2", BLAME) SERVED("2", "1", "3", "3", BLAME),
		  "line 14: shard: a set of clock 1 follows a set of clock 2" },
		{ SERVED("0", "2", "3", "2", BLAME), "" },
		{ SERVED("65", "2", "3", "2", BLAME), "" },
		{ SERVED("1", "6", "3", "2", BLAME), "" },
		{ SERVED("1", "2", "3", "6", BLAME), "" },
		{ SERVED("1", "2", "3", "2", ",\"blame\":null"), "" },
		{ SERVED("1", "2", "3", "2", ",\"blame\":-1"), "" },
	};
	judge_said(cases, sizeof(cases) / sizeof(cases[0]), 0);
}

static void
words_are_judged(void **state)
{
	(void)state;
	static const struct said cases[] = {
		{ VERIFY(WORD("1", "a") "," WORD("2", "b")), NULL },
		{ VERIFY(WORD("1", "a") "," WORD("2", "a")),
		  "line 13: verify: the results are equal" },
		{ VERIFY(WORD("1", "a") "," WORD("9", "b")),
		  "line 13: verify: worker 9 never joined" },
		{ VERIFY(WORD("1", "a") "," WORD("1", "b")),
		  "line 13: verify: both results are of one key" },
		{ VERIFY(WORD("1", "a")), "" },
		{ VERIFY(WORD("1", "a") "," WORD("2", "b") "," WORD("3", "c")), "" },
	};
	judge_said(cases, sizeof(cases) / sizeof(cases[0]), 1);
}

#define HASH "\"0123456789abcdef0123456789abcdef\""
static const struct tamper tampers[] = {
	/* A task less, more, twice. */
	{ "\"tasks\":[[0,4]]", "\"tasks\":[[0,3]]", "clock 0: task 3: never added" },
	{ "\"tasks\":[[4,2]]", "\"tasks\":[[3,3]]", "clock 0: task 3: added 2 times" },
	{ "\"tasks\":[[4,2]]", "\"tasks\":[[4,2],[5,1]]",
	  "clock 0: task 5: contribution 2.20 names the task 2 times" },
	{ "\"tasks\":[[6,2]]", "\"tasks\":[[6,3]]",
	  "clock 0: tasks 6-8: contrib: the round has tasks 0-7" },
	/* What tasks gave. */
	{ "\"tasks\":[[4,2]],", "\"tasks\":[[4,2]],\"hashes\":[" HASH "],",
	  "clock 0: tasks 4-5: contribution 2.20: 1 hashes of 2 tasks" },
	{ "\"tasks\":[[4,2]],",
	  "\"tasks\":[[4,2]],\"hashes\":[" HASH "," HASH "," HASH "],",
	  "clock 0: tasks 4-5: contribution 2.20: 3 hashes of 2 tasks" },
	/* Grants. */
	{ "\"grant\":[[1,0,4]", "\"grant\":[[1,0,3]",
	  "clock 0: task 3: granted 0 times" },
	{ "[2,4,2]", "[2,3,3]", "clock 0: task 3: granted 2 times" },
	{ "[[1,0,4]", "[[9,0,4]", "clock 0: tasks 0-3: grant: worker 9 never joined" },
	/* Who held what. */
	{ "\"c\":[2,20]", "\"c\":[3,20]",
	  "clock 0: task 4: contribution 3.20: worker 3 never held it" },
	{ "[3,1,7,1]", "[2,1,7,1]",
	  "clock 1: task 7: moved from worker 2, which did not hold it" },
	{ "[2,1,5,1]", "[2,1,5,1],[2,3,5,1]",
	  "clock 1: task 5: moved from worker 2, which did not hold it" },
	{ "[[1,6,1]]", "[]",
	  "clock 1: task 6: contribution 1.11: worker 1 never held it" },
	{ "\"lost\":[[3,6,1]]", "\"lost\":[[2,6,1]]",
	  "clock 1: task 6: a claim of worker 2 was dropped" },
	{ "\"regrant\":[[1,3,2]", "\"regrant\":[[1,3,1]",
	  "clock 3: task 4: contribution 1.14: worker 1 never held it" },
	{ "\"c\":[3,30]", "\"c\":[9,30]",
	  "clock 0: tasks 6-7: contrib: worker 9 never joined" },
	/* Blocks. */
	{ "\"tasks\":[[4,2]],\"blocks\":5", "\"tasks\":[[4,2]],\"blocks\":4",
	  "clock 0: tasks 4-5: contribution 2.20: 4 of 5 blocks were added" },
	{ "\"tasks\":[[4,2]],\"blocks\":5", "\"tasks\":[[4,2]],\"blocks\":6",
	  "clock 0: tasks 4-5: contribution 2.20: 6 of 5 blocks were added" },
	{ "\"blocks\":3,", "\"blocks\":4,",
	  "clock 3: tasks 3-4: contribution 1.14: 6 of 5 blocks were added" },
	{ "\"blocks\":2,\"fills\"", "\"blocks\":3,\"fills\"",
	  "clock 3: task 5: contribution 1.15: 6 of 5 blocks were added" },
	{ "\"blocks\":2,\"fenced\"", "\"blocks\":1,\"fenced\"",
	  "clock 3: tasks 3-4: contribution 1.14: 4 of 5 blocks were added" },
	/* Fences and fills. */
	{ "\"blocks\":2,\"fenced\":true", "\"blocks\":5",
	  "clock 3: tasks 3-4: contribution 1.14 fills 2.23, which was not fenced" },
	{ "\"blocks\":2,\"fills\":[3,34]", "\"blocks\":2,\"fills\":[3,33]",
	  "clock 3: task 5: contribution 3.34 was fenced after 3 of 5 blocks" },
	{ "\"blocks\":3,\"fills\":[2,23]", "\"blocks\":5",
	  "clock 3: task 3: added 2 times" },
	{ "\"tasks\":[[3,2]],\"blocks\":3", "\"tasks\":[[3,1]],\"blocks\":3",
	  "clock 3: task 4: contribution 2.23 was fenced after 2 of 5 blocks" },
	{ "\"tasks\":[[3,2]],\"blocks\":3", "\"tasks\":[[3,3]],\"blocks\":3",
	  "clock 3: task 5: contribution 2.23 was filled 2 times" },
	{ "\"tasks\":[[3,2]],\"blocks\":3", "\"tasks\":[[2,3]],\"blocks\":3",
	  "clock 3: task 2: contribution 1.14 fills 2.23, which lacks the task" },
	{ "\"fills\":[2,23]", "\"fills\":[1,15]",
	  "clock 3: tasks 3-4: contribution 1.14 fills 1.15, which is not before it" },
	{ "\"c\":[1,14]", "\"c\":[1,13]",
	  "clock 3: tasks 3-4: contribution 1.13 comes twice" },
	{ "\"blocks\":5,\"fenced\"", "\"blocks\":4,\"fenced\"",
	  "clock 4: task 6: contribution 3.35 was fenced after 4 of 5 blocks" },
	/* Clocks, sums, the end. */
	{ "\"clock\":3,\"version\":3", "\"clock\":3,\"version\":2",
	  "clock 3: version is 2, not 3" },
	{ "\"tasks\":3,\"samples\":22", "\"tasks\":4,\"samples\":22",
	  "clock 2: tasks is 4, not 3" },
	{ "\"tasks\":3,\"samples\":22", "\"tasks\":3,\"samples\":24",
	  "clock 2: samples is 24, not 22" },
	{ "\"samples\":64,\"loss\"", "\"samples\":63,\"loss\"",
	  "clock 0: update: samples is 63, not 64" },
	{ "\"version\":4,\"clock\":3", "\"version\":5,\"clock\":3",
	  "clock 3: update: version is 5, not 4" },
	{ "\"added\":\"0000000000000000\"", "\"added\":\"0000000000000001\"",
	  "clock 0: tasks 0-7: the contributions' sums make 0000000000000000, but "
	  "0000000000000001 was added" },
	{ "\"sum\":\"0000000000000000\"", "\"sum\":\"0000000000000002\"",
	  "clock 0: tasks 0-7: the contributions' sums make 0000000000000002, but "
	  "0000000000000000 was added" },
	{ "\"version\":6,\"sha256\"", "\"version\":5,\"sha256\"",
	  "done: version is 5, not 6" },
	{ "\"id\":4}", "\"id\":3}", "line 15: worker 3 joined before" },
	{ "\"id\":2,\"reason\"", "\"id\":7,\"reason\"", "line 12: worker 7 left" },
};
#define TAMPERS (sizeof(tampers) / sizeof(tampers[0]))

static bool
has_finding(const struct outcome *o, const char *begin)
{
	for (size_t i = 0; o->err == 0 && i < o->v.n_text; i++)
		if (strncmp(o->v.text[i], begin, strlen(begin)) == 0)
			return true;
	return false;
}

static void
print_outcome(const struct outcome *o, const char *want)
{
	print_error("# wanted:  %s\n# error:   %d %s\n", want, o->err, o->diag.text);
	for (size_t i = 0; o->err == 0 && i < o->v.n_text; i++)
		print_error("# finding: %s\n", o->v.text[i]);
}

static void
test_tampering_is_named(void **state)
{
	(void)state;
	size_t caught = 0;
	for (size_t i = 0; i < TAMPERS; i++) {
		struct fal_buf b = trace(0, 0, tampers[i].from, tampers[i].to);
		struct outcome o = audit((const char *)b.p, b.n);
		if (has_finding(&o, tampers[i].finding) && !o.v.ok)
			caught++;
		else
			print_outcome(&o, tampers[i].finding);
		fal_audit_free(o.a);
		fal_buf_free(&b);
	}
	print_message("# tampered %zu, caught %zu\n", TAMPERS, caught);
	assert_int_equal(caught, TAMPERS);
}

/* A line that is missing or doubled. */
static void
test_missing_lines(void **state)
{
	(void)state;
	static const struct {
		size_t skip, count;
		const char *finding;
	} miss[] = {
		{ OF_CLOCK_3, 1, "clock 3: no ledger before that of clock 4" },
		{ OF_CLOCK_3 + 1, 1, "clock 3: no update before that of clock 4" },
		{ OF_CLOCK_3, 2, "clock 3: no ledger before that of clock 4" },
		{ BEFORE_DONE - 2, 2, "clock 5: task 0: never ended" },
		{ BEFORE_DONE - 1, 1, "clock 5: no update" },
		{ 1, 1, "clock 0: tasks 0-3: grant: worker 1 never joined" },
	};
	for (size_t i = 0; i < sizeof(miss) / sizeof(miss[0]); i++) {
		struct fal_buf b = trace(miss[i].skip, miss[i].count, NULL, NULL);
		struct outcome o = audit((const char *)b.p, b.n);
		if (!has_finding(&o, miss[i].finding))
			print_outcome(&o, miss[i].finding);
		assert_true(has_finding(&o, miss[i].finding));
		fal_audit_free(o.a);
		fal_buf_free(&b);
	}
}

static void
test_doubled_line(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	for (size_t i = 0; i <= OF_CLOCK_3; i++)
		fal_put_bytes(&b, valid[i], strlen(valid[i]));
	fal_put_bytes(&b, valid[OF_CLOCK_3], strlen(valid[OF_CLOCK_3]));
	struct outcome o = audit((const char *)b.p, b.n);
	assert_true(has_finding(&o, "clock 3: ledger again, or out of order"));
	fal_audit_free(o.a);
	fal_buf_free(&b);
}

/* A ledger in which nothing happened, which has no events at all. */
static void
test_empty_ledger(void **state)
{
	(void)state;
	static const char empty[] =
		HEAD("0", "8",
		     "64") "\"grant\":[],\"move\":[],\"clone\":[],\"regrant\":[],"
			   "\"contrib\":[],\"lost\":[]," SUMS;
	struct fal_buf b = { 0 };
	fal_put_bytes(&b, valid[0], strlen(valid[0]));
	fal_put_bytes(&b, empty, strlen(empty));
	struct outcome o = audit((const char *)b.p, b.n);
	assert_int_equal(o.err, 0);
	assert_int_equal(o.v.findings, 2 * 8);
	assert_true(has_finding(&o, "clock 0: task 7: granted 0 times"));
	assert_true(has_finding(&o, "clock 0: task 7: never added"));
	fal_audit_free(o.a);
	fal_buf_free(&b);
}

/* Lines that do not follow the format are errors, not findings. */
static void
test_bad_lines(void **state)
{
	(void)state;
	static const struct {
		const char *from, *to;
		int err;
		const char *diag;
	} bad[] = {
		{ "\"clocks\":6", "\"clocks\":7", FAL_EINVAL, "1: job.clocks: 7" },
		{ "\"clocks_per_epoch\":3", "\"clocks_per_epoch\":2", FAL_EINVAL,
		  "1: job.clocks_per_epoch: 2" },
		{ "\"scheme\":\"epsp\"", "\"scheme\":\"hop\"", FAL_EINVAL,
		  "1: job.scheme: 'hop'" },
		{ "\"batch\":64,\"task\":8", "\"batch\":9999999,\"task\":1", FAL_EINVAL,
		  "1: job.clocks_per_epoch: 3" },
		{ "\"task\":8", "\"task\":8,\"tail\":0.5,\"tail_task\":9", FAL_EINVAL,
		  "1: job: tail, tail_task: 0, or more than the batch or the task" },
		{ "\"ev\":\"job\"", "\"ev\":\"bob\"", FAL_EINVAL, "1: the first line" },
		{ "[[1,0,4]", "[[1,0]", FAL_EFORMAT, "6: ledger.grant: not 3 numbers" },
		{ "[[1,0,4]", "[[1,0,-4]", FAL_EFORMAT, "6: ledger.grant: not a whole" },
		{ "[[1,0,4]", "[[1,0,0]", FAL_EFORMAT, "6: ledger.grant: 0 tasks" },
		{ "[[1,0,4]", "[[1,0,5000000]", FAL_ELIMIT, "6: ledger.grant: 5000000" },
		{ "\"c\":[1,10],", "", FAL_EFORMAT, "6: ledger.c: missing" },
		{ "\"clock\":1,", "\"clock\":null,", FAL_EFORMAT,
		  "8: ledger.clock: missing" },
		{ "\"lost\":[],\"seed\":\"0", "\"lost\":[],\"seed\":\"", FAL_EFORMAT,
		  "6: ledger.seed: not 16" },
		{ "\"sum\":\"0", "\"sum\":\"", FAL_EFORMAT, "6: ledger.sum: not 16" },
		{ ",\"lost\":[]", ",\"lost\":null", FAL_EFORMAT,
		  "6: ledger.lost: missing" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_buf b = trace(0, 0, bad[i].from, bad[i].to);
		struct outcome o = audit((const char *)b.p, b.n);
		if (o.err != bad[i].err ||
		    strncmp(o.diag.text, bad[i].diag, strlen(bad[i].diag)) != 0)
			print_outcome(&o, bad[i].diag);
		assert_int_equal(o.err, bad[i].err);
		assert_int_equal(strncmp(o.diag.text, bad[i].diag, strlen(bad[i].diag)),
				 0);
		fal_audit_free(o.a);
		fal_buf_free(&b);
	}
	struct outcome o = audit("", 0);
	assert_int_equal(o.err, FAL_ETRUNC);
	fal_audit_free(o.a);
}

/* Is the value at `at` one whose every change must be caught?  Sequence numbers are free,
 * and a clone, a regrant or a dropped claim more does no harm. */
static bool
is_judged(const char *line, const char *at)
{
	static const char *const free_keys[] = {
		"\"t\":", "\"c\":", "\"clone\":", "\"regrant\":", "\"lost\":", "\"seed\":"
	};
	const char *key = at;
	while (key > line && (key[-1] != '"' || *key != ':'))
		key--;
	for (size_t i = 0; i < sizeof(free_keys) / sizeof(free_keys[0]); i++) {
		size_t n = strlen(free_keys[i]);
		if ((size_t)(key + 1 - line) >= n &&
		    memcmp(key + 1 - n, free_keys[i], n) == 0)
			return false;
	}
	return true;
}

/* Changing any one digit of what the ledger lines account is an error or a finding. */
static void
test_every_digit(void **state)
{
	(void)state;
	struct fal_buf b = trace(0, 0, NULL, NULL);
	size_t changed = 0, passed = 0;
	char *text = (char *)b.p, *line = text;
	for (char *at = text; at < text + b.n; at++) {
		if (at[0] == '\n')
			line = at + 1;
		if (*at < '0' || *at > '9' ||
		    strncmp(line + 9, "\"ev\":\"ledger", 12) != 0 || !is_judged(line, at))
			continue;
		char was = *at;
		*at = was == '9' ? '1' : (char)(was + 1);
		struct outcome o = audit(text, b.n);
		changed++;
		if (o.err == 0 && o.v.ok) {
			passed++;
			print_error("# passed: %.60s\n", at - 20);
		}
		fal_audit_free(o.a);
		*at = was;
	}
	print_message("# changed %zu digits, %zu passed\n", changed, passed);
	assert_true(changed > 300);
	assert_int_equal(passed, 0);
	fal_buf_free(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_valid_passes),
		cmocka_unit_test(test_unfinished),
		cmocka_unit_test(words_are_judged),
		cmocka_unit_test(shards_are_judged),
		cmocka_unit_test(test_tampering_is_named),
		cmocka_unit_test(test_missing_lines),
		cmocka_unit_test(test_doubled_line),
		cmocka_unit_test(test_empty_ledger),
		cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_every_digit),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
