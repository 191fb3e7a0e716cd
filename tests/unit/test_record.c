/* The history that a follower gets: what lasts, and the last 100 clocks; no more, however
 * long the job is.  What is to be told of its files. */
#include "../../cmd/falcon-ps/trace_file.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cmocka.h>

static void
add(struct ps_trace_file *r, const char *ev, unsigned i)
{
	char line[128];
	int n = snprintf(line, sizeof(line), "{\"t\":%u.0,\"ev\":\"%s\",\"i\":%u}", i, ev,
			 i);
	ps_trace_file_add(r, line, (size_t)n);
}

static size_t
count(const struct fal_buf *b, const char *text)
{
	const size_t n = strlen(text);
	size_t found = 0;
	for (size_t i = 0; i + n <= b->n; i++)
		found += memcmp(b->p + i, text, n) == 0;
	return found;
}

static void
history(void **state)
{
	struct ps_trace_file r = { 0 };
	struct fal_buf b = { 0 };
	size_t most = 0;
	(void)state;
	add(&r, "job", 0);
	for (unsigned i = 0; i < 20000; i++) {
		if (i % 1000 == 0)
			add(&r, "join", i);
		for (unsigned k = 0; k < 5; k++)
			add(&r, "clock", i);
		add(&r, "ledger", i);
		if (i % 500 > 0)
			continue;
		fal_buf_clear(&b);
		ps_trace_file_history(&r, &b);
		assert_int_equal(count(&b, "\"job\""), 1);
		assert_int_equal(count(&b, "\"join\""), i / 1000 + 1);
		assert_int_equal(count(&b, "\"ledger\""), i < 100 ? i + 1 : 100);
		assert_in_range(count(&b, "\"clock\""), 1, 101 * 5);
		most = b.n > most ? b.n : most;
	}
	assert_in_range(most, 1, 60000);
	fal_buf_free(&b);
	ps_trace_file_close(&r);
}

/* What is kept chains; whoever begins in the middle goes on from the link that he is
 * told.
 */
static void
chained(void **state)
{
	struct ps_trace_file r = { 0 };
	struct fal_chain all = { "" }, late = { "" };
	(void)state;
	for (unsigned i = 0; i < 1000; i++) {
		char line[64];
		const int n = snprintf(line, sizeof(line), "{\"t\":%u.0,\"ev\":\"%s\"}",
				       i, i % 3 == 0 ? "ledger" : "clock");
		const struct ps_trace_line *l = ps_trace_file_add(&r, line, (size_t)n);
		assert_non_null(l);
		assert_memory_equal(l->text, line, (size_t)n - 1);
		assert_int_equal(l->text[l->n - 1], '\n');
		assert_true(fal_chain_take(&all, l->text, l->n - 1));
		assert_string_equal(all.link, r.chain.link);
		if (i > 500)
			assert_true(fal_chain_take(&late, l->text, l->n - 1));
		if (i == 500)
			late = r.chain;
	}
	ps_trace_file_close(&r);
}

/* That somebody is a suspect is known for as long as it is one, and no longer. */
static void
suspects(void **state)
{
	static const char *const what[] = { "suspect", "back", "leave" };
	struct ps_trace_file r = { 0 };
	struct fal_buf b = { 0 };
	(void)state;
	add(&r, "job", 0);
	for (unsigned i = 0; i < 3000; i++) {
		char line[128];
		/* 1: a suspect for good; 2: now and again; 12 was one when it left. */
		const unsigned id = i == 7 ? 1 : i == 5 || i == 1000 ? 12 : 2;
		const char *ev = i == 5 || i == 7 ? what[0]
				 : i == 1000      ? what[2]
						  : what[i % 2];
		int n = snprintf(line, sizeof(line),
				 "{\"t\":%u.0,\"ev\":\"%s\",\"worker\":\"w%u\",\"id\":%u,"
				 "\"why\":\"so\"}",
				 i, ev, id % 10, id);
		ps_trace_file_add(&r, line, (size_t)n);
		add(&r, "ledger", i);
	}
	add(&r, "ledger", 3000);
	ps_trace_file_history(&r, &b);
	assert_int_equal(count(&b, "\"suspect\",\"worker\":\"w1\",\"id\":1,"), 1);
	assert_int_equal(count(&b, "\"suspect\",\"worker\":\"w2\",\"id\":12,"), 0);
	assert_in_range(count(&b, "\"suspect\",\"worker\":\"w2\",\"id\":2,"), 49, 51);
	fal_buf_free(&b);
	ps_trace_file_close(&r);
}

/* A gap that begins and is over before anybody asks is told in that order. */
static void
told(void **state)
{
	char path[] = "/tmp/record.XXXXXX";
	const int fd = mkstemp(path);
	struct ps_trace_file r = { 0 };
	struct fal_diag diag;
	struct rlimit was, little;
	char said[1024];
	FILE *out = tmpfile();
	const int err = dup(STDERR_FILENO);
	(void)state;
	assert_non_null(out);
	assert_true(err >= 0 && dup2(fileno(out), STDERR_FILENO) >= 0);
	assert_true(fd >= 0 && close(fd) == 0);
	assert_int_equal(ps_trace_file_create(&r, path, &diag), FAL_OK);
	assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
	little = (struct rlimit){ 4096, was.rlim_max };
	signal(SIGXFSZ, SIG_IGN);
	add(&r, "job", 0);
	ps_trace_file_flush(&r);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &little), 0);
	for (unsigned i = 1; i < 200; i++)
		add(&r, "clock", i);
	ps_trace_file_flush(&r);
	assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
	add(&r, "clock", 200);
	ps_trace_file_flush(&r);
	ps_trace_file_close(&r);
	assert_true(dup2(err, STDERR_FILENO) >= 0 && close(err) == 0);
	rewind(out);
	assert_non_null(fgets(said, sizeof(said), out));
	assert_non_null(strstr(said, ": lines are missing from here on"));
	assert_non_null(fgets(said, sizeof(said), out));
	assert_non_null(strstr(said, ": is written again: "));
	assert_null(fgets(said, sizeof(said), out));
	fclose(out);
	unlink(path);
}

/* Who looks on where a job goes on gets the evaluations that count: not what a restart
 * has taken back, nor what lies behind the line that is gone on from. */
static void
goes_on(void **state)
{
	static const char *const was[] = { "job",  "join",    "eval", "ledger", "eval",
					   "eval", "restart", "eval", "ledger", "eval" };
	char dir[] = "/tmp/record.XXXXXX", path[64];
	struct ps_state s = { .dir = dir };
	struct ps_trace_file r = { 0 };
	struct ps_old_trace trace;
	struct ps_trace_position at = { .lines = 9 };
	struct fal_buf b = { 0 };
	struct fal_diag diag;
	(void)state;
	assert_non_null(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/trace.jsonl", dir);
	assert_int_equal(ps_trace_file_create(&r, path, &diag), FAL_OK);
	for (unsigned i = 0; i < sizeof(was) / sizeof(was[0]); i++) {
		char line[128];
		/* Line 5 counts, line 6 does not. */
		const int n = snprintf(line, sizeof(line),
				       "{\"t\":%u.5,\"ev\":\"%s\",\"lines\":5,\"i\":%u}",
				       i, was[i], i);
		ps_trace_file_add(&r, line, (size_t)n);
	}
	ps_trace_file_close(&r);
	assert_int_equal(ps_state_read_trace(&s, &trace, &at, &diag), FAL_OK);
	assert_int_equal(trace.lines, 10);
	assert_true(trace.worked == 8);
	assert_int_equal(ps_trace_file_append(&r, path, &trace, &diag), FAL_OK);
	ps_old_trace_free(&trace);
	add(&r, "job", 0);
	for (unsigned i = 11; i < 300; i++)
		add(&r, i == 11 ? "restart" : "ledger", i);
	ps_trace_file_history(&r, &b);
	fal_put_u8(&b, '\0');
	const char *at_line = (const char *)b.p;
	static const char *const first[] = { "\"job\"", "\"eval\",\"lines\":5,\"i\":2",
					     "\"eval\",\"lines\":5,\"i\":4",
					     "\"eval\",\"lines\":5,\"i\":7",
					     "\"restart\"" };
	for (size_t i = 0; i < sizeof(first) / sizeof(first[0]); i++) {
		const char *end = strchr(at_line, '\n'), *is = strstr(at_line, first[i]);
		assert_true(is != NULL && is < end);
		at_line = end + 1;
	}
	assert_int_equal(count(&b, "\"eval\""), 3);
	fal_buf_free(&b);
	ps_trace_file_close(&r);
	unlink(path);
	rmdir(dir);
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(history),
					    cmocka_unit_test(chained),
					    cmocka_unit_test(suspects),
					    cmocka_unit_test(told),
					    cmocka_unit_test(goes_on) };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
