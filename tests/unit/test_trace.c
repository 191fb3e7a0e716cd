/* The trace reader, the classes of workers, and the sums over a trace. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "../drawn.h"
#include "base/buf.h"
#include "trace/reader.h"
#include "trace/summary.h"
#include "trace/writer.h"
#include "whole.h"
#include "wire/zip.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Within a billionth, and both are printed. */
static void
assert_near(double is, double want)
{
	double d = is > want ? is - want : want - is;
	if (!(d <= 1e-9 * (want > 1 ? want : 1)))
		fail_msg("is %.12g, want %.12g", is, want);
}

struct seen {
	size_t lines, cut;
	double t_sum;
	uint64_t number;
};

static int
on_count(void *arg, struct fal_trace_line *l)
{
	struct seen *s = arg;
	s->lines++;
	s->t_sum += l->t;
	s->number = (uint64_t)json_integer_value(json_object_get(l->o, "count"));
	return l->err;
}

/* Every way of cutting the bytes in two gives the same lines. */
static void
test_every_cut(void **state)
{
	(void)state;
	static const char text[] = "{\"t\":1,\"ev\":\"job\",\"count\":3}\n"
				   "{\"t\":2.5,\"ev\":\"b\",\"count\":100}\n";
	struct fal_buf b = whole_lines(text, sizeof(text) - 1);
	for (size_t cut = 0; cut <= b.n; cut++) {
		struct seen s = { 0 };
		struct fal_diag diag = { "" };
		struct fal_trace_reader *r = fal_trace_reader_new(on_count, &s);
		assert_int_equal(fal_trace_feed(r, b.p, cut, &diag), 0);
		assert_int_equal(fal_trace_feed(r, b.p + cut, b.n - cut, &diag), 0);
		assert_int_equal(fal_trace_end(r, &diag), 0);
		assert_int_equal(s.lines, 2);
		assert_near(s.t_sum, 3.5);
		assert_int_equal(s.number, 100);
		fal_trace_reader_free(r);
	}
	fal_buf_free(&b);
}

/* Reads n bytes in steps; the sum and the number of lines into *s. */
static int
read_in_steps(const uint8_t *p, size_t n, size_t step, struct seen *s,
	      struct fal_diag *diag)
{
	int err = 0;
	struct fal_trace_reader *r = fal_trace_reader_new(on_count, s);
	for (size_t at = 0; err == 0 && at < n; at += step)
		err = fal_trace_feed(r, p + at, n - at < step ? n - at : step, diag);
	if (err == 0)
		err = fal_trace_end(r, diag);
	fal_trace_reader_free(r);
	return err;
}

static int
on_any(void *arg, struct fal_trace_line *l)
{
	struct seen *s = arg;
	s->cut += l->cut;
	return l->cut ? 0 : on_count(arg, l);
}

/* Lines that a restart takes back do not count; a gap counts as many lines as it stands
 * for; a later restart may take back an earlier one. */
static void
test_restarts(void **state)
{
	(void)state;
	static const char lines[] =
		"{\"t\":0,\"ev\":\"job\",\"count\":0}\n"
		"{\"t\":1,\"ev\":\"a\",\"count\":1}\n"
		"{\"t\":2,\"ev\":\"gap\",\"lines\":3,\"count\":1}\n"
		"{\"t\":3,\"ev\":\"a\",\"count\":6}\n"
		"{\"t\":3,\"ev\":\"a\",\"count\":0}\n"
		"{\"t\":4,\"ev\":\"restart\",\"lines\":6,\"count\":1}\n"
		"{\"t\":4,\"ev\":\"a\",\"count\":0}\n"
		"{\"t\":5,\"ev\":\"restart\",\"lines\":6,\"count\":1}\n"
		"{\"t\":8,\"ev\":\"a\",\"count\":10}\n";
	struct fal_buf b = whole_lines(lines, sizeof(lines) - 1);
	const char *text = (const char *)b.p;
	const size_t n = b.n;
	for (size_t step = 1; step < n; step += 7) {
		struct fal_diag diag = { "" };
		struct seen s = { 0 };
		struct fal_trace_reader *r = fal_trace_reader_new(on_any, &s);
		fal_trace_reader_deliver_cut(r);
		for (size_t at = 0; at < n; at += step)
			assert_int_equal(fal_trace_find_restarts(r, text + at,
								 n - at < step ? n - at
									       : step),
					 0);
		assert_int_equal(fal_trace_feed(r, text, n, &diag), 0);
		assert_int_equal(s.lines, 6);
		assert_int_equal(s.cut, 3);
		assert_near(s.t_sum, 0 + 1 + 2 + 3 + 5 + 8);
		fal_trace_reader_free(r);
	}
	/* Read once, it is said when it is too late. */
	struct fal_diag diag = { "" };
	struct seen s = { 0 };
	struct fal_trace_reader *r = fal_trace_reader_new(on_count, &s);
	assert_int_equal(fal_trace_feed(r, text, n, &diag), FAL_EINVAL);
	assert_string_equal(diag.text,
			    "6: restart: the job goes on from line 6, but later "
			    "lines were read already: give the file itself");
	assert_int_equal(s.lines, 5);
	fal_trace_reader_free(r);
	fal_buf_free(&b);
}

/* Two frames, of which the first ends in mid-line. */
static void
zip_lines(struct fal_buf *out)
{
	struct fal_buf text = { 0 };
	for (unsigned i = 1; i <= 2000; i++)
		fal_put_fmt(&text, "{\"t\":%u.5,\"ev\":\"%s\",\"count\":%u}\n", i,
			    i == 1 ? "job" : "a", i % 100);
	struct fal_buf all = whole_lines((const char *)text.p, text.n);
	struct fal_zip *z = fal_zip_new(FAL_ZIP_LEVEL);
	assert_non_null(z);
	assert_int_equal(fal_zip_compress(z, all.p, 20010, out), 0);
	assert_int_equal(fal_zip_compress(z, all.p + 20010, all.n - 20010, out), 0);
	fal_zip_free(z);
	fal_buf_free(&all);
	fal_buf_free(&text);
}

static void
test_zst(void **state)
{
	(void)state;
	static const size_t steps[] = { 1, 3, 1000, 1 << 20 };
	struct fal_buf f = { 0 };
	zip_lines(&f);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		struct seen s = { 0 }, cut = { 0 };
		struct fal_diag diag = { "" };
		assert_int_equal(read_in_steps(f.p, f.n, steps[i], &s, &diag), 0);
		assert_int_equal(s.lines, 2000);
		assert_near(s.t_sum, 2000 * 2001 / 2 + 1000);
		/* What came before the end is delivered. */
		assert_int_equal(read_in_steps(f.p, f.n - 1, steps[i], &cut, &diag),
				 FAL_ETRUNC);
		assert_true(cut.lines > 100);
	}
	fal_buf_free(&f);
}

static void
test_bad_zst(void **state)
{
	(void)state;
	struct fal_buf f = { 0 }, bomb = { 0 };
	struct seen s = { 0 };
	struct fal_diag diag = { "" };
	char want[80];
	zip_lines(&f);
	fal_put_bytes(&f, "\0\0", 2);
	snprintf(want, sizeof(want), "2001: zstd: byte %zu: not a frame, or damaged",
		 f.n);
	fal_put_bytes(&f, "{\"t\":1,\"ev\":\"a\"}\n", 18);
	assert_int_equal(read_in_steps(f.p, f.n, 7, &s, &diag), FAL_EFORMAT);
	assert_string_equal(diag.text, want);
	assert_int_equal(read_in_steps((const uint8_t *)"(t)\n", 4, 4, &s, &diag),
			 FAL_EFORMAT);
	assert_string_equal(diag.text, "1: zstd: byte 0: not a frame, or damaged");
	assert_int_equal(read_in_steps(f.p, 9, 4, &s, &diag), FAL_EFORMAT);
	assert_string_equal(diag.text, "1: ends in the middle of a zstd frame");

	/* A line without an end, of 32 MiB. */
	uint8_t *zeros = calloc(32, 1 << 20);
	struct fal_zip *z = fal_zip_new(FAL_ZIP_LEVEL);
	assert_non_null(zeros);
	assert_non_null(z);
	assert_int_equal(fal_zip_compress(z, zeros, 32 << 20, &bomb), 0);
	assert_int_equal(read_in_steps(bomb.p, bomb.n, bomb.n, &s, &diag), FAL_ELIMIT);
	assert_string_equal(diag.text, "1: longer than 16777216 bytes");
	fal_zip_free(z);
	free(zeros);
	fal_buf_free(&bomb);
	fal_buf_free(&f);
}

static int
on_get(void *arg, struct fal_trace_line *l)
{
	(void)arg;
	return l->event == FAL_EV_JOB ? 0 : FAL_ESTATE;
}

#define GOOD "{\"t\":1,\"ev\":\"job\",\"name\":\"x\",\"hash\":\"\"}\n"

static void
test_bad_lines(void **state)
{
	(void)state;
	static const struct {
		const char *line;
		int err;
		const char *diag;
	} bad[] = {
		{ "\n", FAL_EFORMAT, "2: column" },
		{ "nonsense\n", FAL_EFORMAT, "2: column" },
		{ "[1]\n", FAL_EFORMAT, "2: not a JSON object" },
		{ "{\"t\":1,\"t\":1,\"ev\":\"e\"}\n", FAL_EFORMAT, "2: column" },
		{ "{\"ev\":\"e\"}\n", FAL_EFORMAT, "2: t: missing" },
		{ "{\"t\":\"1\",\"ev\":\"e\"}\n", FAL_EFORMAT, "2: t: not a number" },
		{ "{\"t\":0.9,\"ev\":\"e\"}\n", FAL_EINVAL,
		  "2: e.t: 0.9 is before 1 of line 1" },
		{ GOOD, FAL_EINVAL,
		  "2: a second job line: the trace of the same job (incarnation 0) "
		  "begins here" },
		{ "{\"t\":0,\"ev\":\"job\",\"hash\":\"bb\",\"incarnation\":3}\n",
		  FAL_EINVAL,
		  "2: a second job line: the trace of another job (incarnation 3) "
		  "begins here" },
		{ "{\"t\":1,\"ev\":7}\n", FAL_EFORMAT, "2: ev: not a string" },
		{ "{\"t\":1,\"ev\":\"now\"}\n", FAL_EFORMAT, "2: now.h: missing" },
		{ "{\"t\":1,\"ev\":\"version\",\"version\":-1}\n", FAL_EFORMAT,
		  "2: version.version: not a whole number" },
		{ "{\"t\":1,\"ev\":\"version\",\"version\":1.0}\n", FAL_EFORMAT,
		  "2: version.version: not a whole number" },
		{ "{\"t\":1,\"ev\":\"version\",\"version\":9007199254740993}\n",
		  FAL_ELIMIT,
		  "2: version.version: 9007199254740993 is above 9007199254740992" },
		{ "{\"t\":1,\"ev\":\"leave\",\"worker\":\"a\",\"id\":4294967296,"
		  "\"reason\":"
		  "\"\"}\n",
		  FAL_ELIMIT, "2: leave.id: 4294967296 is above 4294967295" },
		{ "{\"t\":1,\"ev\":\"leave\",\"worker\":\"a\",\"id\":1,\"reason\":\"\","
		  "\"fell\":1}\n",
		  FAL_EFORMAT, "2: leave.fell: neither true nor false" },
#define PLACE(runs)                                                                      \
	"{\"t\":1,\"ev\":\"place\",\"map\":1,\"rule\":\"r\",\"shards\":1,\"runs\":" runs \
	"}\n"
		{ PLACE("7"), FAL_EFORMAT, "2: place.runs: not an array" },
		{ PLACE("[1,2,3]"), FAL_EFORMAT, "2: place.runs: not 3 numbers" },
		{ PLACE("[[]]"), FAL_EFORMAT, "2: place.runs: not 3 numbers" },
		{ PLACE("[[1,2,-3]]"), FAL_EFORMAT, "2: place.runs: not a whole number" },
		{ "{\"t\":1,\"ev\":\"back\",\"worker\":\"a\",\"id\":1,\"why\":\"\","
		  "\"seconds\":-1}\n",
		  FAL_EINVAL, "2: back.seconds: -1 seconds" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_diag diag = { "" }, again = { "" };
		struct fal_trace_reader *r = fal_trace_reader_new(on_get, NULL);
		assert_int_equal(whole_feed(r, GOOD, strlen(GOOD), &diag), 0);
		int err = fal_trace_feed(r, bad[i].line, strlen(bad[i].line), &diag);
		if (strncmp(diag.text, bad[i].diag, strlen(bad[i].diag)) != 0)
			fail_msg("is '%s', want '%s'", diag.text, bad[i].diag);
		assert_int_equal(err, bad[i].err);
		/* The error stays. */
		assert_int_equal(fal_trace_feed(r, GOOD, strlen(GOOD), &again), err);
		assert_int_equal(fal_trace_end(r, NULL), err);
		assert_string_equal(again.text, diag.text);
		fal_trace_reader_free(r);
	}
}

static void
test_first_is_no_job(void **state)
{
	(void)state;
	static const char line[] = "{\"t\":1,\"ev\":\"e\"}\n";
	struct fal_diag diag = { "" };
	struct seen s = { 0 };
	assert_int_equal(read_in_steps((const uint8_t *)line, sizeof(line) - 1, 4, &s,
				       &diag),
			 FAL_EINVAL);
	assert_string_equal(diag.text, "1: the first line is not job");
	assert_int_equal(s.lines, 0);
}

static void
test_ends_in_a_line(void **state)
{
	(void)state;
	struct seen s = { 0 };
	struct fal_diag diag = { "" };
	struct fal_trace_reader *r = fal_trace_reader_new(on_get, &s);
	assert_int_equal(whole_feed(r, GOOD "{\"t\":1", strlen(GOOD) + 6, &diag), 0);
	assert_int_equal(fal_trace_end(r, &diag), FAL_ETRUNC);
	assert_string_equal(diag.text, "2: ends in the middle of the line");
	fal_trace_reader_free(r);
}

static void
test_line_limit(void **state)
{
	(void)state;
	static char spaces[1 << 16];
	memset(spaces, ' ', sizeof(spaces));
	struct fal_diag diag = { "" };
	struct fal_trace_reader *r = fal_trace_reader_new(on_get, NULL);
	for (size_t n = 0; n < FAL_TRACE_LINE_MAX; n += sizeof(spaces))
		assert_int_equal(fal_trace_feed(r, spaces, sizeof(spaces), &diag), 0);
	assert_int_equal(fal_trace_feed(r, spaces, 1, &diag), FAL_ELIMIT);
	assert_string_equal(diag.text, "1: longer than 16777216 bytes");
	fal_trace_reader_free(r);
}

static struct fal_trace_load
load(uint64_t tasks, double lane_s, double push, double pull)
{
	return (struct fal_trace_load){ .clocks = 10,
					.tasks = tasks,
					.size = (double)tasks,
					.lane_s = lane_s * (double)tasks,
					.push = push * 10,
					.pull = pull * 10 };
}

static void
check_classes(const struct fal_trace_load *w, size_t n, const char *want)
{
	struct fal_trace_class c[8];
	char is[128] = "";
	fal_trace_classify(w, n, c);
	for (size_t i = 0; i < n; i++) {
		size_t at = strlen(is);
		snprintf(is + at, sizeof(is) - at, "%s%s/%s", i > 0 ? " " : "",
			 fal_class_name(c[i].class), fal_cause_name(c[i].cause));
	}
	assert_string_equal(is, want);
}

static void
test_classes(void **state)
{
	(void)state;
	/* Equal shares or not, what counts is the time of an equal one. */
	struct fal_trace_load w[4] = { load(100, .01, .01, .01), load(100, .01, .01, .01),
				       load(100, .01, .01, .01),
				       load(10, .04, .01, .01) };
	check_classes(w, 4, "steady/- steady/- steady/- straggler/compute");
	w[3] = load(100, .01, .20, .05);
	check_classes(w, 4, "steady/- steady/- steady/- straggler/push");
	w[3] = load(100, .01, .05, .20);
	check_classes(w, 4, "steady/- steady/- steady/- straggler/pull");
	w[3] = load(100, .005, .01, .01);
	check_classes(w, 4, "steady/- steady/- steady/- pioneer/compute");
	/* S = 10: 0.12 of the others; 20 % more is 0.144, 20 % less 0.096. */
	w[3] = load(100, .0123, .01, .01);
	check_classes(w, 4, "steady/- steady/- steady/- steady/-");
	w[3] = load(100, .0125, .01, .01);
	check_classes(w, 4, "steady/- steady/- steady/- straggler/compute");
	w[3] = load(100, .0077, .01, .01);
	check_classes(w, 4, "steady/- steady/- steady/- steady/-");
	w[3] = load(100, .0075, .01, .01);
	check_classes(w, 4, "steady/- steady/- steady/- pioneer/compute");
	w[3] = load(0, 0, .01, .01); /* it ran nothing */
	check_classes(w, 4, "steady/- steady/- steady/- -/-");
	w[3].latency = 0.3; /* 30 ms a clock: for that it was granted nothing */
	check_classes(w, 4, "steady/- steady/- steady/- straggler/latency");
	w[3].size = 100;
	w[3].lane_s = 1;
	check_classes(w, 4, "steady/- steady/- steady/- straggler/latency");
	w[3] = load(100, .04, .01, .01);
	check_classes(w + 2, 2, "pioneer/compute straggler/compute");
	check_classes(w + 3, 1, "steady/-");
	check_classes(w, 0, "");
}

#define CLOCK(t, c, name, id, lanes, done, compute, wait, task_s)                        \
	"{\"t\":" t ",\"ev\":\"clock\",\"clock\":" c ",\"worker\":\"" name               \
	"\",\"id\":" id ",\"lanes\":" lanes ",\"share\":4,\"done\":" done                \
	",\"in\":1,\"out\":2,\"cloned\":0,\"lost\":0,\"compute\":" compute               \
	",\"push\":0.1,\"pull\":0.2,\"wait\":" wait ",\"push_all\":0.1,\"pull_all\":0.2" \
	",\"task_s\":" task_s ",\"staleness\":0,\"tx\":1,\"rx\":1}\n"
#define UPDATE(t, c, v, samples, loss, epoch)                           \
	"{\"t\":" t ",\"ev\":\"update\",\"version\":" v ",\"clock\":" c \
	",\"samples\":" samples ",\"loss\":" loss ",\"lr\":0.1,\"epoch\":" epoch "}\n"
#define METRICS(list) "null,\"metrics\":[" list "]" /* behind the loss */
#define M(name, sum) "{\"name\":\"" name "\",\"sum\":" sum "}"
#define AND(name) "," M(name, "1")
#define JOIN(t, name, id, print)                                          \
	"{\"t\":" t ",\"ev\":\"join\",\"worker\":\"" name "\",\"id\":" id \
	",\"lanes\":[1,2],\"cores\":4,\"fingerprint\":\"" print "\"}\n"

static const char *const job_lines[] = {
	"{\"t\":0,\"ev\":\"job\",\"name\":\"j\",\"epochs\":2,\"batch\":64,\"task\":8,"
	"\"samples\":96,\"blocks\":5,\"clocks_per_epoch\":2,\"clocks\":4,"
	"\"scheme\":\"bsp\",\"audit\":\"claims\"}\n",
	JOIN("0.1", "a", "1", "f0"),
	JOIN("0.1", "b", "2", "f0"),
	JOIN("0.1", "c", "3", "f1"),
	CLOCK("1", "0", "a", "1", "2", "4", "0.5", "0.2", "0.2"),
	CLOCK("1", "0", "b", "2", "1", "4", "0.7", "0.0", "0.4"),
	UPDATE("1.0", "0", "1", "64", "2.0", "1"),
	"{\"t\":1.1,\"ev\":\"leave\",\"worker\":\"b\",\"id\":2,\"reason\":\"lost\"}\n",
	JOIN("1.1", "b", "7", "f0"),
	"{\"t\":1.2,\"ev\":\"unheard-of\"}\n",
	CLOCK("2", "1", "b", "7", "2", "2", "0.5", "0.2", "0.4"),
	UPDATE("2.0", "1", "2", "32", "0.5", "1"),
	"{\"t\":2.1,\"ev\":\"eval\",\"version\":2,\"epoch\":1,\"right\":9,\"total\":10,"
	"\"loss\":0.4,\"accuracy\":0.9}\n",
	"{\"t\":2.2,\"ev\":\"policy\",\"clock\":2,\"scheme\":\"epsp\",\"by\":\"root\"}\n",
	UPDATE("3.0", "2", "3", "64", "0.25", "2"),
};

static void
feed_job(struct fal_trace_reader *r)
{
	for (size_t i = 0; i < sizeof(job_lines) / sizeof(job_lines[0]); i++) {
		struct fal_diag diag = { "" };
		whole_feed(r, job_lines[i], strlen(job_lines[i]), &diag);
		assert_string_equal(diag.text, "");
	}
}

#define CAPACITY_JOB                                                                    \
	"{\"t\":0,\"ev\":\"job\",\"name\":\"j\",\"epochs\":1,\"batch\":%u,\"task\":1,"  \
	"\"samples\":%u,\"test\":0,\"blocks\":5,\"clocks_per_epoch\":%u,\"clocks\":%u," \
	"\"scheme\":\"epsp\",\"audit\":\"claims\"}\n"
#define CAPACITY_JOIN                                                               \
	"{\"t\":%.6f,\"ev\":\"join\",\"worker\":\"w%u\",\"id\":%u,\"lanes\":[1,1]," \
	"\"cores\":1,\"fingerprint\":\"f\"}\n"
#define CAPACITY_LATE                                                              \
	"{\"t\":%.6f,\"ev\":\"%s\",\"worker\":\"w%u\",\"id\":%u,\"reason\":\"x\"," \
	"\"owes\":\"task\",\"why\":\"x\",\"seconds\":1}\n"
#define CAPACITY_CLOCK                                                                  \
	"{\"t\":%.6f,\"ev\":\"clock\",\"clock\":%u,\"worker\":\"w%u\",\"id\":%u,"       \
	"\"lanes\":1,\"share\":1,\"in\":0,\"out\":0,\"cloned\":0,\"lost\":0,"           \
	"\"compute\":%.6f,\"push\":0,\"pull\":0,\"wait\":0,\"push_all\":0,"             \
	"\"pull_all\":0,\"late\":0,\"done\":%u,\"task_s\":%.9f,\"staleness\":0,\"tx\":" \
	"0,"                                                                            \
	"\"rx\":0}\n"
#define CAPACITY_UPDATE                                                             \
	"{\"t\":%.6f,\"ev\":\"update\",\"version\":%u,\"clock\":%u,\"samples\":%u," \
	"\"loss\":1,\"lr\":0.1,\"epoch\":1}\n"

static void
test_summary(void **state)
{
	(void)state;
	struct fal_summary s = { 0 };
	struct fal_diag diag = { "" };
	struct fal_trace_reader *r = fal_trace_reader_new(fal_summary_line, &s);
	feed_job(r);
	assert_int_equal(fal_summary_end(&s, &diag), 0);
	assert_int_equal(s.n_worker, 3);
	const struct fal_summary_worker *a = &s.worker[0], *b = &s.worker[1];
	assert_string_equal(b->name, "b");
	assert_false(b->left); /* it came back, and went on with its row */
	assert_int_equal(b->tasks.done, 6);
	assert_int_equal(b->load.clocks, 2);
	assert_near(b->samples, 4 * 8 + 2 * 8);
	assert_near(b->spent.compute, 1.2);
	assert_near(b->load.lane_s, 4 * 0.4 + 2 * 0.2);
	assert_near(b->core_s, 4 * 0.4 + 2 * 0.4);
	assert_near(a->spent.wait, 0.2);
	assert_int_equal(a->tasks.out, 2);
	assert_false(s.identical);
	assert_false(a->numerics.differs);
	assert_true(s.worker[2].numerics.differs);
	assert_int_equal(s.worker[2].verdict.class, FAL_CLASS_NONE);
	assert_near(s.rate.clocks, 1.0);
	assert_near(s.rate.samples, (32 + 64) / 2.0);
	/* a: 8 samples in 0.2 s a core; b: in 0.4 s; 2 lanes each. */
	assert_near(s.rate.capacity, 2 * 8 / 0.2 + 2 * 8 / 0.4);
	assert_string_equal(s.scheme, "epsp");
	assert_int_equal(s.version, 3);
	assert_int_equal(s.n_epoch, 2);
	assert_near(s.epoch[0].loss_sum / 96, (64 * 2.0 + 32 * 0.5) / 96);
	assert_near(s.epoch[1].begin, 2.0);
	assert_true(s.epoch[0].evaluated);
	assert_near(s.epoch[0].accuracy, 0.9);
	assert_false(s.epoch[1].evaluated);
	static const char lost[] = UPDATE("4.0", "3", "4", "32",
					  METRICS(M("a", "5") "," M("b", "null")), "2");
	assert_int_equal(whole_feed(r, lost, strlen(lost), &diag), 0);
	assert_true(s.loss != s.loss); /* not finite */
	assert_int_equal(s.metric_names.n, 2);
	assert_true(s.metrics.samples == 32 && s.metrics.sum[0] == 5);
	assert_true(isnan(s.metrics.sum[1]) && isnan(s.epoch[1].training.sum[1]));
	assert_true(s.epoch[1].training.samples == 96 && s.epoch[1].training.sum[0] == 5);
	fal_trace_reader_free(r);
	fal_summary_free(&s);
}

/* Who is impure is no measure of the others, whoever came first, and however many. */
static void
test_impure(void **state)
{
	static const char order[][4] = { "ip", "pi", "iip", "pii", "ppi", "qip", "ii" };
	static const char *const print[] = {
		['i'] = "0000000000000000aa", ['p'] = "aa", ['q'] = "bb"
	};
	(void)state;
	for (size_t i = 0; i < sizeof(order) / sizeof(*order); i++) {
		const size_t n = strlen(order[i]);
		const char *pure = order[i] + strspn(order[i], "i");
		const char first = *pure != '\0' ? *pure : 'i';
		struct fal_summary s = { 0 };
		struct fal_diag diag = { "" };
		struct fal_buf b = { 0 };
		struct fal_trace_reader *r = fal_trace_reader_new(fal_summary_line, &s);
		fal_put_fmt(&b, CAPACITY_JOB, 8, 8, 1, 1);
		for (size_t w = 0; w < n; w++)
			fal_put_fmt(&b,
				    "{\"t\":1,\"ev\":\"join\",\"worker\":\"w%zu\","
				    "\"id\":%zu,\"lanes\":[1,1],\"cores\":1,"
				    "\"fingerprint\":\"%s\"}\n",
				    w, w + 1, print[(unsigned char)order[i][w]]);
		assert_int_equal(whole_feed(r, b.p, b.n, &diag), 0);
		assert_int_equal(fal_summary_end(&s, &diag), 0);
		assert_false(s.identical);
		for (size_t w = 0; w < n; w++) {
			const char is = order[i][w];
			if (s.worker[w].numerics.nondeterministic != (is == 'i') ||
			    s.worker[w].numerics.differs != (is == 'i' || is != first))
				fail_msg("%s: worker %zu: impure %d, differs %d",
					 order[i], w,
					 s.worker[w].numerics.nondeterministic,
					 s.worker[w].numerics.differs);
		}
		fal_trace_reader_free(r);
		fal_summary_free(&s);
		fal_buf_free(&b);
	}
}

/* Workers of any speed that come, go and are suspects do all that they can: what is used
 * is all of the capacity, and no more, whoever has left since. */
static void
test_capacity(void **state)
{
	enum { MOST = 6, BATCH = 5040, RUNS = 200 };
	const uint64_t seed = drawn_seed(1);
	struct fal_rng g = fal_rng_init(seed, FAL_RNG_DRAW, 0);
	(void)state;
	for (unsigned run = 0; run < RUNS; run++) {
		const unsigned n = 2 + fal_rng_below(&g, MOST - 1);
		const unsigned clocks = 3 + fal_rng_below(&g, 300);
		double speed[MOST], t = 1;
		enum { HERE, LATE, GONE } is[MOST] = { 0 };
		uint32_t id[MOST], ids = 0;
		struct fal_summary s = { 0 };
		struct fal_diag diag = { "" };
		struct fal_buf b = { 0 };
		struct fal_trace_reader *r = fal_trace_reader_new(fal_summary_line, &s);
		fal_put_fmt(&b, CAPACITY_JOB, BATCH, clocks * BATCH, clocks, clocks);
		for (unsigned i = 0; i < n; i++) {
			speed[i] = 10 + fal_rng_below(&g, 1000);
			fal_put_fmt(&b, CAPACITY_JOIN, t, i, id[i] = ++ids);
		}
		for (unsigned c = 0; c < clocks; c++) {
			const unsigned w = 1 + fal_rng_below(&g, n - 1);
			double all = 0, clock_s = 0;
			if (fal_rng_below(&g, 20) == 0 && is[w] == GONE) {
				fal_put_fmt(&b, CAPACITY_JOIN, t, w, id[w] = ++ids);
				is[w] = HERE;
			} else if (fal_rng_below(&g, 20) == 0) {
				const bool gone = fal_rng_below(&g, 2) == 0;
				const char *ev = gone            ? "leave"
						 : is[w] == LATE ? "back"
								 : "suspect";
				if (is[w] != GONE)
					fal_put_fmt(&b, CAPACITY_LATE, t, ev, w, id[w]);
				if (is[w] != GONE)
					is[w] = gone ? GONE : is[w] == LATE ? HERE : LATE;
			}
			for (unsigned i = 0; i < n; i++)
				all += is[i] == HERE ? speed[i] : 0;
			clock_s = BATCH / all;
			for (unsigned i = 0; i < n; i++)
				if (is[i] == HERE)
					fal_put_fmt(&b, CAPACITY_CLOCK, t + clock_s, c, i,
						    id[i], clock_s,
						    (unsigned)(clock_s * speed[i]),
						    1 / speed[i]);
			fal_put_fmt(&b, CAPACITY_UPDATE, t += clock_s, c + 1, c, BATCH);
		}
		if (whole_feed(r, b.p, b.n, &diag) < 0 || fal_summary_end(&s, &diag) < 0)
			fail_msg("seed %llu, run %u: %s", (unsigned long long)seed, run,
				 diag.text);
		const double used = s.rate.samples / s.rate.capacity;
		if (!(used > 0.97 && used < 1.005))
			fail_msg("seed %llu, run %u: %u workers, %u clocks: used %.4f",
				 (unsigned long long)seed, run, n, clocks, used);
		fal_trace_reader_free(r);
		fal_summary_free(&s);
		fal_buf_free(&b);
	}
}

/* A group is one worker above, whose members come and go; its own trace tells of versions
 * that are made elsewhere. */
static void
test_groups(void **state)
{
	static const char above[] =
		"{\"t\":1,\"ev\":\"group\",\"worker\":\"w1\",\"id\":1,\"members\":3,"
		"\"lanes\":5}\n"
		"{\"t\":2,\"ev\":\"clock\",\"clock\":0,\"worker\":\"w1\",\"id\":1,"
		"\"lanes\":5,\"share\":1,\"in\":0,\"out\":0,\"cloned\":0,\"lost\":0,"
		"\"compute\":1,\"push\":0,\"pull\":0,\"wait\":0,\"push_all\":0,"
		"\"pull_all\":0,\"late\":0,\"done\":5,\"task_s\":1,\"staleness\":0,"
		"\"tx\":70,\"rx\":9}\n"
		"{\"t\":2,\"ev\":\"group\",\"worker\":\"w1\",\"id\":1,\"members\":2,"
		"\"lanes\":4}\n";
	static const char below[] =
		"{\"t\":0,\"ev\":\"job\",\"name\":\"j\",\"epochs\":1,\"batch\":8,"
		"\"task\":1,\"samples\":64,\"blocks\":5,\"clocks_per_epoch\":8,"
		"\"clocks\":8,\"scheme\":\"epsp\",\"audit\":\"claims\","
		"\"above\":\"lab:7000\"}\n"
		"{\"t\":1,\"ev\":\"version\",\"version\":4}\n"
		"{\"t\":2,\"ev\":\"ledger\",\"round\":1,\"clock\":4,\"first\":1,"
		"\"tasks\":3,\"samples\":3,\"blocks\":5,\"version\":4,\"end\":\"given\","
		"\"grant\":[],\"move\":[],\"clone\":[],\"contrib\":[],\"lost\":[]}\n"
		"{\"t\":4,\"ev\":\"ledger\",\"round\":2,\"clock\":5,\"first\":0,"
		"\"tasks\":4,\"samples\":4,\"blocks\":5,\"version\":4,\"end\":\"given\","
		"\"grant\":[],\"move\":[],\"clone\":[],\"contrib\":[],\"lost\":[]}\n";
	struct fal_summary s = { 0 }, g = { 0 };
	struct fal_diag diag = { "" };
	struct fal_buf b = { 0 };
	(void)state;
	struct fal_trace_reader *r = fal_trace_reader_new(fal_summary_line, &s);
	fal_put_fmt(&b, CAPACITY_JOB, 8, 64, 8, 8);
	fal_put_fmt(&b, CAPACITY_JOIN, 0.0, 1U, 1U);
	fal_put_bytes(&b, above, sizeof(above) - 1);
	whole_feed(r, b.p, b.n, &diag);
	assert_string_equal(diag.text, "");
	assert_int_equal(fal_summary_end(&s, &diag), 0);
	assert_null(s.above);
	assert_int_equal(s.worker[0].members, 2);
	assert_int_equal(s.worker[0].lanes_max, 4);
	assert_int_equal(s.worker[0].bytes.up, 70);
	assert_int_equal(s.worker[0].bytes.down, 9);
	fal_trace_reader_free(r);
	r = fal_trace_reader_new(fal_summary_line, &g);
	whole_feed(r, below, sizeof(below) - 1, &diag);
	assert_string_equal(diag.text, "");
	assert_int_equal(fal_summary_end(&g, &diag), 0);
	assert_string_equal(g.above, "lab:7000");
	assert_int_equal(g.version, 4);
	assert_int_equal(g.samples, 7);
	assert_int_equal(g.clocks, 5); /* that before which all is over */
	assert_near(g.rate.samples, 4 / 2.0);
	fal_trace_reader_free(r);
	fal_summary_free(&s);
	fal_summary_free(&g);
	fal_buf_free(&b);
}

/* One line of a shard of a set. */
static void
put_shard(struct fal_buf *b, uint32_t shard, uint32_t blocks, double took, double blame)
{
	const struct fal_ev_shard d = { .shard = (uint64_t)shard + 1,
					.version = 1,
					.blocks = blocks,
					.took = took,
					.blame = blame };
	struct fal_buf line = { 0 };
	fal_trace_put(&line, 2, FAL_EV_SHARD, &d);
	fal_put_bytes(b, line.p, line.n);
	fal_put_u8(b, '\n');
	fal_buf_free(&line);
}

/* Who is waited for is named, and why, where the others take no time that a trace has. */
static void
test_shards(void **state)
{
	struct fal_summary s = { 0 };
	struct fal_diag diag = { "" };
	struct fal_buf b = { 0 };
	struct fal_trace_reader *r = fal_trace_reader_new(fal_summary_line, &s);
	(void)state;
	fal_put_fmt(&b, CAPACITY_JOB, 64, 64, 1, 1);
	put_shard(&b, 0, 2, 0, 0);
	put_shard(&b, 1, 1, 0.5, 0.9);
	put_shard(&b, 2, 2, 0, 0);
	assert_int_equal(whole_feed(r, b.p, b.n, &diag), 0);
	assert_int_equal(fal_summary_end(&s, &diag), 0);
	assert_int_equal(s.shards.n, 3);
	for (uint32_t i = 0; i < 3; i++) {
		const struct fal_shard_row *w = &s.shards.v[i];
		assert_int_equal(w->class,
				 i == 1 ? FAL_CLASS_STRAGGLER : FAL_CLASS_STEADY);
		assert_string_equal(w->cause, i == 1 ? "pace" : "-");
		assert_true(isfinite(w->slower));
	}
	assert_true(s.shards.v[1].slower > 1000);
	fal_trace_reader_free(r);
	fal_summary_free(&s);
	fal_buf_free(&b);
}

static void
test_summary_refuses(void **state)
{
	(void)state;
	static const struct {
		const char *line, *diag;
	} bad[] = {
		{ CLOCK("3", "1", "b", "9", "2", "2", "0.5", "0.2", "0.4"),
		  "16: clock.id: 9 never joined" },
		{ CLOCK("3", "4", "a", "1", "2", "2", "0.5", "0.2", "0.4"),
		  "16: clock.clock: 4 is above 3" },
		{ CLOCK("3", "3", "a", "1", "2", "2", "-0.5", "0.2", "0.4"),
		  "16: clock.compute: -0.5 seconds" },
		{ UPDATE("3", "4", "5", "64", "2.0", "2"),
		  "16: update.clock: 4 is above 3" },
		{ JOIN("3", "d", "7", "f0"), "16: join.id: 7 joined before" },
		{ UPDATE("3", "3", "4", "32", METRICS(M("A b", "1")), "2"),
		  "16: update.metrics: 'A b' is not a name of at most 32 characters of "
		  "a-z, 0-9 and _" },
		{ UPDATE("3", "3", "4", "32",
			 METRICS(M("a", "1") AND("b") AND("c") AND("d") AND("e") AND("f")
					 AND("g") AND("h") AND("i")),
			 "2"),
		  "16: update.metrics: 'i' is one too many: a job has at most 8 "
		  "metrics" },
		{ UPDATE("3", "3", "4", "32", METRICS(M("a", "\"1\"")), "2"),
		  "16: update.sum: not a number" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_summary s = { 0 };
		struct fal_diag diag = { "" };
		struct fal_trace_reader *r = fal_trace_reader_new(fal_summary_line, &s);
		feed_job(r);
		assert_true(whole_feed(r, bad[i].line, strlen(bad[i].line), &diag) < 0);
		assert_string_equal(diag.text, bad[i].diag);
		fal_trace_reader_free(r);
		fal_summary_free(&s);
	}
	struct fal_summary s = { 0 };
	assert_int_equal(fal_summary_end(&s, NULL), FAL_ETRUNC);
	fal_summary_free(&s);
}

static void
check_line(struct fal_buf *b, const char *want)
{
	fal_put_u8(b, 0);
	assert_int_equal(b->err, 0);
	assert_string_equal((const char *)b->p, want);
}

/* The lines of rounds as they are written. */
static void
test_written(void **state)
{
	static const uint64_t rounds[] = { 7, 6 };
	static const char object[] = "{\"scheme\":\"dynsgd\"}";
	static const struct fal_granted_on on[] = { { 1, 9, 5, 0, 1 },
						    { 0, 3, 5, 2, 1 } };
	const struct fal_ledger ledger = { .tasks = 2 };
	const struct fal_ev_stale stale = { 1, 2, 3 };
	const struct fal_line_ledger none = { .hashed = false };
	struct fal_ev_ledger d = { .round = 7,
				   .clock = 3,
				   .version = 5,
				   .first = 4,
				   .samples = 16,
				   .blocks = 5,
				   .kind = FAL_TRACE_DELTA,
				   .weight = 0.5,
				   .among = 2,
				   .lr = 0.25,
				   .steps = 3,
				   .base = "rebase",
				   .since = 4,
				   .late = FAL_TRACE_ABSENT,
				   .owner = 2,
				   .stale = &stale,
				   .slot = 9 };
	struct fal_buf b = { 0 };
	(void)state;
#define EMPTY                                                                            \
	"\"grant\":[],\"move\":[],\"clone\":[],\"regrant\":[],\"lost\":[],\"contrib\":[" \
	"]"
	fal_line_ledger(&b, 1.5, &none, &ledger, &d);
	check_line(&b, "{\"t\":1.500000,\"ev\":\"ledger\",\"round\":7,\"clock\":3,"
		       "\"first\":4,\"tasks\":2,\"samples\":16,\"version\":5,"
		       "\"blocks\":5,\"kind\":\"delta\",\"owner\":2,"
		       "\"end\":\"applied\",\"weight\":0.5,\"among\":2,"
		       "\"steps\":3,\"base\":\"rebase\",\"since\":4,"
		       "\"lr\":0.25,\"stale\":{\"clocks\":1,"
		       "\"updates\":2,\"rank\":3},\"slot\":9," EMPTY "}");
	d = (struct fal_ev_ledger){ .end = FAL_END_ABANDONED,
				    .why = "left",
				    .group = 1,
				    .local = 2,
				    .weight = (double)NAN,
				    .since = FAL_TRACE_ABSENT,
				    .late = 0,
				    .slot = FAL_TRACE_ABSENT };
	const struct fal_line_ledger of = {
		.sums = true, .seed = 255, .on = on, .ons = 2
	};
	fal_line_ledger(&b, 0, &of, &ledger, &d);
	check_line(&b, "{\"t\":0.000000,\"ev\":\"ledger\",\"round\":0,\"clock\":0,"
		       "\"first\":0,\"tasks\":2,\"samples\":0,\"version\":0,"
		       "\"late\":0,\"blocks\":0,\"kind\":\"grad\",\"group\":1,"
		       "\"local\":2,\"end\":\"abandoned\",\"why\":\"left\"," EMPTY
		       ",\"on\":[[5,2,1,3]],\"seed\":\"00000000000000ff\",\"added\":"
		       "\"0000000000000000\"}");
	const struct fal_branch_push push = { 1, 0.75, 4 };
	struct fal_ev_update update = { .version = 6,
					.clock = 3,
					.rounds = { rounds, 2 },
					.epoch = 1,
					.divisor = 64,
					.samples = 32,
					.loss = 0.5,
					.lr = 0.25 };
	fal_line_update(&b, 2, &(struct fal_line_update){ .push = &push, .pushes = 1 },
			&update);
	check_line(&b, "{\"t\":2.000000,\"ev\":\"update\",\"version\":6,\"clock\":3,"
		       "\"rounds\":[7,6],\"weight\":0.75,\"among\":4,"
		       "\"divisor\":64,\"samples\":32,\"loss\":0.5,"
		       "\"lr\":0.25,"
		       "\"epoch\":1}");
	fal_trace_put(&b, 3, FAL_EV_POLICY,
		      &(struct fal_ev_policy){
			      4, "dynsgd:3", "ann", 6, { object, sizeof(object) - 1 } });
	check_line(&b, "{\"t\":3.000000,\"ev\":\"policy\",\"clock\":4,"
		       "\"scheme\":\"dynsgd:3\",\"by\":\"ann\",\"version\":6,"
		       "\"policy\":{\"scheme\":\"dynsgd\"}}");
	fal_trace_put(&b, 3, FAL_EV_HOLD, &(struct fal_ev_hold){ "paused", "control" });
	check_line(&b, "{\"t\":3.000000,\"ev\":\"hold\",\"why\":\"paused\","
		       "\"by\":\"control\"}");
	fal_buf_free(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_every_cut),
		cmocka_unit_test(test_bad_lines),
		cmocka_unit_test(test_first_is_no_job),
		cmocka_unit_test(test_ends_in_a_line),
		cmocka_unit_test(test_line_limit),
		cmocka_unit_test(test_classes),
		cmocka_unit_test(test_summary),
		cmocka_unit_test(test_impure),
		cmocka_unit_test(test_shards),
		cmocka_unit_test(test_groups),
		cmocka_unit_test(test_capacity),
		cmocka_unit_test(test_summary_refuses),
		cmocka_unit_test(test_written),
		cmocka_unit_test(test_zst),
		cmocka_unit_test(test_restarts),
		cmocka_unit_test(test_bad_zst),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
