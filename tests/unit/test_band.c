/* What of a trace is drawn: the bands of its last clocks, and its curves. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "proj/picture.h"
#include "whole.h"

#include <stdlib.h>
#include <string.h>

/* Within a millionth, and both are printed. */
static void
assert_near(double is, double want)
{
	const double d = is > want ? is - want : want - is;
	if (!(d <= 1e-6))
		fail_msg("is %.12g, want %.12g", is, want);
}

/* Reads the lines and empties them. */
static int
read_lines(struct fal_buf *b, int (*on_line)(void *arg, struct fal_trace_line *l),
	   void *arg, struct fal_diag *diag)
{
	struct fal_trace_reader *r = fal_trace_reader_new(on_line, arg);
	assert_int_equal(b->err, 0);
	int err = whole_feed(r, b->p, b->n, diag);
	if (err == 0)
		err = fal_trace_end(r, diag);
	fal_trace_reader_free(r);
	fal_buf_free(b);
	return err;
}

#define JOB                                                                             \
	"{\"t\":0,\"ev\":\"job\",\"name\":\"j\",\"scheme\":\"bsp\",\"clocks\":1000000}" \
	"\n"

static void
join(struct fal_buf *b, double t, const char *name, unsigned id)
{
	fal_put_fmt(b, "{\"t\":%.6f,\"ev\":\"join\",\"worker\":\"%s\",\"id\":%u}\n", t,
		    name, id);
}

static void
leave(struct fal_buf *b, double t, unsigned id)
{
	fal_put_fmt(b, "{\"t\":%.6f,\"ev\":\"leave\",\"id\":%u}\n", t, id);
}

/* A clock of 4 tasks of `task_s` seconds; `more` is further fields. */
static void
clock_line(struct fal_buf *b, double t, unsigned id, double compute, double wait,
	   double task_s, const char *more)
{
	fal_put_fmt(b,
		    "{\"t\":%.6f,\"ev\":\"clock\",\"id\":%u,\"lanes\":1,\"done\":4,"
		    "\"in\":3,\"out\":2,\"cloned\":1,\"lost\":0,\"compute\":%.6f,"
		    "\"push\":0.01,\"pull\":0.02,\"wait\":%.6f,\"task_s\":%.6f%s}\n",
		    t, id, compute, wait, task_s, more);
}

static void
update(struct fal_buf *b, double t, unsigned version, double loss)
{
	fal_put_fmt(b,
		    "{\"t\":%.6f,\"ev\":\"update\",\"version\":%u,\"clock\":%u,"
		    "\"samples\":10,\"loss\":%.6f}\n",
		    t, version, version - 1, loss);
}

/* Clocks of a second each, `n` of them; w3 is slow in those whose bit is set, the last
 * clock having bit 0. */
static void
shared(struct fal_buf *b, unsigned n, unsigned slow_bits)
{
	fal_put_fmt(b, JOB);
	join(b, 0, "w10", 1);
	join(b, 0, "w2", 2);
	join(b, 0, "w3", 3);
	for (unsigned c = 0; c < n; c++) {
		const unsigned back = n - 1 - c;
		const double slow = back < 32 && (slow_bits >> back & 1) != 0 ? 3 : 1;
		update(b, c + 1, c + 1, 1);
		clock_line(b, c + 1, 1, 0.3, 0.67, 0.1, "");
		clock_line(b, c + 1, 2, 0.3, 0.67, 0.1, "");
		clock_line(b, c + 1, 3, 0.3 * slow, 0.97 - 0.3 * slow, 0.1 * slow, "");
	}
}

static void
test_shared(void **state)
{
	(void)state;
	struct fal_buf lines = { 0 };
	struct fal_gantt b = { 0 };
	struct fal_diag diag = { "" };
	shared(&lines, 1000, 0x380);
	assert_int_equal(read_lines(&lines, fal_gantt_line, &b, &diag), 0);
	assert_int_equal(fal_gantt_end(&b, &diag), 0);
	assert_string_equal(b.scheme, "bsp");
	assert_false(b.own);
	assert_near(b.begin, 1000 - FAL_GANTT_CLOCKS);
	assert_near(b.end, 1000);
	/* By the numbers in the names. */
	assert_int_equal(b.n_shown, 3);
	assert_string_equal(b.row[b.shown[0]].name, "w2");
	assert_string_equal(b.row[b.shown[1]].name, "w3");
	assert_string_equal(b.row[b.shown[2]].name, "w10");
	const struct fal_gantt_row *r = &b.row[b.shown[1]];
	assert_int_equal(r->n - r->first, FAL_GANTT_CLOCKS);
	assert_true(r->n <= 2 * FAL_GANTT_LINES);
	assert_true(r->persistent);
	assert_false(b.row[b.shown[0]].persistent);
	const struct fal_gantt_part *p = &r->part[r->n - 1];
	assert_near(p->begin, 999);
	assert_near(p->compute, 0.3);
	assert_near(p->wait, 0.67);
	assert_int_equal(p->in, 3);
	assert_int_equal(p->out, 2);
	assert_int_equal(p->cloned, 1);
	assert_true(b.updates <= 2 * FAL_GANTT_UPDATES);
	assert_int_equal(b.shown_updates, FAL_GANTT_CLOCKS + 1);
	assert_int_equal(b.update[b.first_update].clock, 999 - FAL_GANTT_CLOCKS);
	fal_gantt_free(&b);
}

/* Two slow clocks do not make a persistent straggler, nor do they with others that do not
 * follow them, nor do old ones. */
static void
test_transient(void **state)
{
	(void)state;
	static const unsigned slow[] = { 0x60, 0x6db, 0xfffff000, 0x3c00 };
	for (size_t i = 0; i < sizeof(slow) / sizeof(slow[0]); i++) {
		struct fal_buf lines = { 0 };
		struct fal_gantt b = { 0 };
		shared(&lines, 100, slow[i]);
		assert_int_equal(read_lines(&lines, fal_gantt_line, &b, NULL), 0);
		assert_int_equal(fal_gantt_end(&b, NULL), 0);
		if (b.row[2].persistent)
			fail_msg("slow in %#x: persistent", slow[i]);
		fal_gantt_free(&b);
	}
}

/* The slow one has four times as long rounds; the time is that of the median. */
static void
test_own(void **state)
{
	(void)state;
	struct fal_buf lines = { 0 };
	struct fal_gantt b = { 0 };
	fal_put_fmt(&lines, JOB);
	for (unsigned id = 1; id <= 3; id++)
		join(&lines, 0, id == 3 ? "slow" : "fast", id);
	for (unsigned c = 0; c < 40; c++) {
		clock_line(&lines, c + 1, 1, 0.97, 0, 0.25, ",\"round\":1");
		clock_line(&lines, c + 1, 2, 0.97, 0, 0.25, ",\"round\":2");
		if (c % 4 == 3)
			clock_line(&lines, c + 1, 3, 3.97, 0, 1, ",\"round\":3");
	}
	assert_int_equal(read_lines(&lines, fal_gantt_line, &b, NULL), 0);
	assert_int_equal(fal_gantt_end(&b, NULL), 0);
	assert_true(b.own);
	assert_near(b.begin, 40 - FAL_GANTT_CLOCKS);
	assert_int_equal(b.n_shown, 3);
	assert_int_equal(b.row[0].n - b.row[0].first, FAL_GANTT_CLOCKS);
	assert_int_equal(b.row[2].n - b.row[2].first, FAL_GANTT_CLOCKS / 4);
	assert_true(b.row[2].persistent);
	assert_false(b.row[0].persistent || b.row[1].persistent);
	fal_gantt_free(&b);
}

/* A worker that came back keeps its row, one that is long gone has none that is drawn,
 * and neither has one whose lines say nothing. */
static void
test_leave(void **state)
{
	(void)state;
	struct fal_buf lines = { 0 };
	struct fal_gantt b = { 0 };
	struct fal_trace_reader *r = fal_trace_reader_new(fal_gantt_line, &b);
	shared(&lines, 5, 0);
	for (unsigned id = 21; id < 24; id++) {
		join(&lines, 5, "x", id);
		clock_line(&lines, 5, id, 0.97, 0, 0.1, "");
	}
	for (unsigned id = 21; id < 24; id++)
		leave(&lines, 5, id);
	leave(&lines, 5, 1);
	leave(&lines, 5, 2);
	join(&lines, 5, "w2", 9);
	fal_put_fmt(&lines, "{\"t\":5,\"ev\":\"policy\",\"scheme\":\"epsp\"}\n");
	for (unsigned c = 5; c < 40; c++) {
		update(&lines, c + 1, c + 1, 1);
		clock_line(&lines, c + 1, 9, 0.97, 0, 0.1, "");
		clock_line(&lines, c + 1, 3, 0.97, 0, 0.1, "");
	}
	join(&lines, 40, "idle", 10);
	fal_put_fmt(&lines, "{\"t\":41,\"ev\":\"clock\",\"id\":10,\"lanes\":0,\"done\":0,"
			    "\"in\":0,\"out\":0,\"cloned\":0,\"lost\":0,\"compute\":0,"
			    "\"push\":0,\"pull\":0,\"wait\":0,\"task_s\":0}\n");
	assert_int_equal(whole_feed(r, lines.p, lines.n, NULL), 0);
	assert_int_equal(fal_gantt_end(&b, NULL), 0);
	assert_string_equal(b.scheme, "epsp");
	assert_int_equal(b.rows, 7);
	assert_int_equal(b.n_shown, 2);
	assert_string_equal(b.row[b.shown[0]].name, "w2");
	assert_string_equal(b.row[b.shown[1]].name, "w3");
	assert_near(b.begin, 40 - FAL_GANTT_CLOCKS);
	assert_near(b.end, 40);
	/* More lines, and another end. */
	fal_buf_clear(&lines);
	clock_line(&lines, 42, 9, 1.97, 0, 0.1, "");
	assert_int_equal(whole_feed(r, lines.p, lines.n, NULL), 0);
	assert_int_equal(fal_gantt_end(&b, NULL), 0);
	assert_near(b.end, 42);
	fal_trace_reader_free(r);
	fal_buf_free(&lines);
	fal_gantt_free(&b);
}

static void
test_bad(void **state)
{
	(void)state;
#define JOIN JOB "{\"t\":0,\"ev\":\"join\",\"worker\":\"w\",\"id\":1}\n"
#define CLOCK(COMPUTE)                                                                  \
	"{\"t\":1,\"ev\":\"clock\",\"id\":1,\"lanes\":1,\"done\":1,\"in\":0,"           \
	"\"out\":0,\"cloned\":0,\"lost\":0,\"compute\":" COMPUTE ",\"push\":0,\"pull\"" \
	":0,\"wait\":0,\"task_s\":1}\n"
	static const struct {
		const char *text, *diag;
		int err;
	} bad[] = {
		{ "", "no clock ended", FAL_ETRUNC },
		{ JOIN, "no clock ended", FAL_ETRUNC },
		{ JOIN CLOCK("0"), "no clock ended", FAL_ETRUNC },
		{ JOB CLOCK("1"), "2: clock.id: 1 never joined", FAL_EINVAL },
		{ JOIN "{\"t\":0,\"ev\":\"join\",\"worker\":\"v\",\"id\":1}\n",
		  "3: join.id: 1 joined before", FAL_EINVAL },
		{ JOIN CLOCK("-1"), "3: clock.compute: -1 seconds", FAL_EINVAL },
		{ JOIN CLOCK("2e9"), "3: clock.compute: 2e+09 seconds", FAL_EINVAL },
		{ JOB "{\"t\":0,\"ev\":\"update\",\"version\":null}\n",
		  "2: update.version: missing", FAL_EFORMAT },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_buf lines = { 0 };
		struct fal_gantt b = { 0 };
		struct fal_diag diag = { "" };
		fal_put_fmt(&lines, "%s", bad[i].text);
		int err = read_lines(&lines, fal_gantt_line, &b, &diag);
		if (err == 0)
			err = fal_gantt_end(&b, &diag);
		assert_string_equal(diag.text, bad[i].diag);
		assert_int_equal(err, bad[i].err);
		fal_gantt_free(&b);
	}
}

/* 10,000 updates whose loss falls evenly, a judgement of an old version, a loss that is
 * not finite. */
static void
test_curve(void **state)
{
	(void)state;
	struct fal_buf lines = { 0 };
	struct fal_curve *c = calloc(1, sizeof(*c));
	fal_put_fmt(&lines, JOB);
	for (unsigned v = 1; v <= 10000; v++)
		update(&lines, v, v, 20000 - v);
	fal_put_fmt(&lines, "{\"t\":10001,\"ev\":\"update\",\"version\":10001,"
			    "\"samples\":10,\"loss\":null}\n"
			    "{\"t\":10002,\"ev\":\"eval\",\"version\":9000,"
			    "\"accuracy\":0.75}\n"
			    "{\"t\":10003,\"ev\":\"eval\",\"version\":20000,"
			    "\"accuracy\":0.5}\n");
	assert_int_equal(read_lines(&lines, fal_curve_line, c, NULL), 0);
	const struct fal_curve_line *l = &c->loss;
	/* 32 values a point: the first power of two with which they fit. */
	assert_int_equal(l->n, (10000 + 31) / 32);
	for (size_t i = 0; i + 1 < l->n; i++) {
		assert_near(l->point[i].t, 32 * (double)i + 16.5);
		assert_near(l->point[i].samples, 10 * l->point[i].t);
		assert_near(l->point[i].value, 20000 - l->point[i].t);
	}
	assert_near(l->point[l->n - 1].value, 20000 - 9992.5);
	assert_int_equal(c->accuracy.n, 2);
	assert_near(c->accuracy.point[0].t, 10002);
	assert_near(c->accuracy.point[0].samples, 90000);
	assert_near(c->accuracy.point[0].value, 0.75);
	/* Of a version that is not known: what there is. */
	assert_near(c->accuracy.point[1].samples, 100010);
	free(c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_shared), cmocka_unit_test(test_transient),
		cmocka_unit_test(test_own),    cmocka_unit_test(test_leave),
		cmocka_unit_test(test_bad),    cmocka_unit_test(test_curve),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
