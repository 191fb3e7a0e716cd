/* What falcon-work --emulate reads, and the times that follow. */

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#include "base/mem.h"
#include "emul/emul.h"

#define SECOND UINT64_C(1000000000)
#define START (7 * SECOND) /* uv_hrtime() of a first task */

static const struct fal_spec_host host = { "w2", 4 };

static struct fal_emul *
made(const char *spec)
{
	struct fal_emul *e = NULL;
	struct fal_diag diag = { "" };
	const int err = fal_spec_read(spec, &host, &e, &diag);
	if (err != 0)
		fail_msg("%s: %d %s", spec, err, diag.text);
	fal_emul_set_batch(e, 64);
	return e;
}

static void
refused(const char *spec, const char *why)
{
	struct fal_emul *e = NULL;
	struct fal_diag diag = { "" };
	if (fal_spec_read(spec, &host, &e, &diag) >= 0)
		fail_msg("%s: taken", spec);
	if (strcmp(diag.text, why) != 0)
		fail_msg("%s: '%s', not '%s'", spec, diag.text, why);
	assert_null(e);
}

static void
near(const char *what, double got, double want, double by)
{
	if (!(fabs(got - want) <= by))
		fail_msg("%s: %.9g, not %.9g within %g", what, got, want, by);
}

static void
same_ns(uint64_t got, uint64_t want)
{
	if (got != want)
		fail_msg("%llu ns, not %llu", (unsigned long long)got,
			 (unsigned long long)want);
}

/* A file of this text in the current folder. */
static void
file(const char *name, const char *text)
{
	FILE *f = fopen(name, "w");
	assert_non_null(f);
	assert_true(fputs(text, f) >= 0);
	assert_int_equal(fclose(f), 0);
}

/* Compares two files, of which the shorter one may end early. */
static void
same_files(const char *one, const char *two, unsigned at_least)
{
	FILE *a = fopen(one, "r"), *b = fopen(two, "r");
	char x[80], y[80];
	unsigned n = 0;
	assert_true(a != NULL && b != NULL);
	while (fgets(x, sizeof(x), a) != NULL && fgets(y, sizeof(y), b) != NULL) {
		n++;
		if (strcmp(x, y) != 0)
			fail_msg("line %u: %s: %s%s: %s", n, one, x, two, y);
	}
	fclose(a);
	fclose(b);
	if (n < at_least)
		fail_msg("%u lines, not %u", n, at_least);
}

/* --- reading --- */

static void
test_spec(void **state)
{
	static const struct {
		const char *spec;
		double rate, speed;
		uint32_t cores;
	} cases[] = {
		{ "rate=3000", 3000, 1, 4 },
		{ "rate=3000,speed=1/4", 3000, 0.25, 4 },
		{ "speed=0.25,cores=2,rate=0.5", 0.5, 0.25, 2 },
		{ "rate=1,worker=8/8,pattern=p1", 1, 0.25, 4 },
		{ "rate=1,worker=7/8,pattern=p1", 1, 1, 4 },
		{ "rate=1,worker=7/8,pattern=persistent:8:2", 1, 0.125, 4 },
		{ "rate=1,worker=9/10,pattern=p1b:4", 1, 0.25, 4 },
		{ "rate=1,worker=8/10,pattern=level:4", 1, 1, 4 },
		{ "rate=1,worker=5/8,pattern=p1c", 1, 0.5, 4 },
		{ "rate=1,worker=4/8,pattern=classes", 1, 1, 4 },
		{ "rate=1,worker=1/4,pattern=p1e", 1, 1, 4 },
		{ "rate=1,worker=3/4,pattern=graded", 1, 1 / 3.0, 4 },
		{ "rate=1,worker=2/3,pattern=graded:2", 1, 1 / 1.5, 4 },
		{ "rate=1,speed=1/2,worker=8/8,pattern=p1,pattern=p1c", 1, 1 / 16.0, 4 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_emul *e = made(cases[i].spec);
		near(cases[i].spec, e->rate, cases[i].rate, 0);
		near(cases[i].spec, e->speed, cases[i].speed, 1e-12);
		assert_int_equal(e->cores, cases[i].cores);
		fal_spec_free(e);
	}
}

static void
test_nominal_clock(void **state)
{
	static const struct {
		const char *spec;
		uint64_t clock, t0;
	} cases[] = {
		{ "rate=1000,cores=1", 0, 100000000 },
		{ "rate=1000,cores=1,t0=0.25", 0, 250000000 },
		{ "rate=1000,cores=1,worker=1/8", 8, 8000000 },
		{ "rate=1000,cores=2,clock=100,worker=1/8", 100, 50000000 },
		{ "rate=1000,cores=1,worker=1/1000", 1, 1000000 },
	};
	(void)state;
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_emul *e = made(cases[i].spec);
		same_ns(e->clock, cases[i].clock);
		same_ns(e->machine.t0_ns, cases[i].t0);
		fal_spec_free(e);
	}
}

static void
test_bad_spec(void **state)
{
	(void)state;
	refused("", "'' is not KEY=VALUE");
	refused("rate", "'rate' is not KEY=VALUE");
	refused("rate=1,", "'' is not KEY=VALUE");
	refused("speed=1/2", "rate=SAMPLES_PER_SECOND is missing");
	refused("rate=1,rate=2", "rate is given twice");
	refused("rate=0", "rate: '0' is not a number of samples a second");
	refused("rate=nan", "rate: 'nan' is not a number of samples a second");
	refused("rate=1,speed=1/0", "speed: '1/0' is not a fraction such as 0.25 or 1/4");
	refused("rate=1,cores=0", "cores: '0' is not 1 to 1024");
	refused("rate=1,colour=2", "'colour' is not an item of falcon-emulate(5)");
	refused("rate=1,seed=-1", "seed: '-1' is not a number");
	refused("rate=1,worker=9/8", "worker: '9/8' is not I/M, worker I of M");
	refused("rate=1,worker=0/8", "worker: '0/8' is not I/M, worker I of M");
	refused("rate=1,clock=0", "clock: '0' is not a number of samples");
	refused("rate=1,latency=-1", "latency: '-1' is not a number of seconds");
	refused("rate=1,bandwidth=1kB",
		"bandwidth: '1kB' is not a number of bytes a second");
	refused("rate=1,freeze=1", "freeze: '1' is not AT:FOR, in seconds");
	refused("rate=1,freeze=1:0", "freeze: '1:0' is not AT:FOR, in seconds");
	refused("rate=1,crash=1,crash-every=2",
		"crash and crash-every exclude each other");
	refused("rate=1,flip=2", "flip: '2' is not 0 to 1");
	refused("rate=1,pattern=p8",
		"pattern: 'p8' is not a pattern of falcon-emulate(5)");
	refused("rate=1,pattern=p3:2",
		"pattern: p3: '2' is not a number from 0.001 to 1");
	refused("rate=1,pattern=drift:2:50:1",
		"pattern: drift: '1' is one argument too many");
	refused("rate=1,pattern=stall:5:1:6",
		"pattern: stall: 1 to 6 clocks in each 5 clocks are impossible");
	refused("rate=1,pattern=p3,pattern=slow-worker",
		"pattern slow-worker is given twice");
	refused("rate=1,pattern=p2", "pattern random-clock needs worker=I/M");
	refused("rate=1,pattern=p5",
		"pattern power-law needs worker=I/M or clock=SAMPLES");
	refused("rate=1,trace=none", "none: No such file or directory");
	refused("rate=1,record=none/none", "none/none: No such file or directory");
	refused("@none", "none: No such file or directory");
}

static void
test_file(void **state)
{
	(void)state;
	file("machines", "# four machines\nrate = 500\npattern = p1:4 ; slow\nseed = 3\n"
			 "[w1 w3]\nspeed = 1/2\n[w2]\ncores = 2\nseed = 5\n"
			 "[w4]\ncolour = red\n");
	struct fal_emul *e = made("@machines,speed=1/8");
	assert_int_equal(e->machine.index, 3);
	assert_int_equal(e->machine.count, 4);
	assert_int_equal(e->machine.seed, 5);
	assert_int_equal(e->cores, 2);
	near("speed", e->speed, 0.125, 0);
	fal_spec_free(e);

	file("bad", "rate = 1\n[w1 w2]\n\nspeed = fast\n");
	refused("@bad", "bad:4: speed: 'fast' is not a fraction such as 0.25 or 1/4");
	file("bad", "rate = 1\n[w2]\nspeed = 1\nspeed = 2\n");
	refused("@bad", "bad:4: speed is given twice");
	file("bad", "rate = 1\n[w2]\n[w1 w2]\n");
	refused("@bad", "bad:3: machine 'w2' for the second time");
	file("bad", "rate = 1\n[w1]\n");
	refused("@bad", "bad: no machine 'w2'");
	file("bad", "rate = 1\nspeed 2\n");
	refused("@bad", "bad:2: not a section, 'key = value' or comment");
	file("bad", "[w2]\n");
	refused("@bad", "rate=SAMPLES_PER_SECOND is missing");
}

static void
bad_trace(const char *text, const char *why)
{
	file("bad", text);
	refused("rate=1,trace=bad", why);
}

static void
test_trace(void **state)
{
	struct fal_speeds s = { 0 };
	struct fal_diag diag;
	(void)state;
	bad_trace("", "bad: no line with a speed");
	bad_trace("1 1\n", "bad:1: '1' is not 0, where a trace begins");
	bad_trace("# none\n0 1\n2 fast\n", "bad:3: 'fast' is not a speed");
	bad_trace("0 1\n2 -1\n", "bad:2: '-1' is not a speed");
	bad_trace("0 1\n2\n", "bad:2: '' is not a speed");
	bad_trace("0 1\n2 1 1\n", "bad:2: '1 1' is not a speed");
	bad_trace("0 1\nx 1\n", "bad:2: 'x' is not a number of seconds");
	bad_trace("0 1\n2 1\n2 1\n", "bad:3: '2' is not later than the line before");
	bad_trace("0 1\n2 loop\n3 1\n", "bad:3: '3' stands behind a loop");

	file("good", "0 1  # at first\n\n0.5\t0\r\n 2 0.25 \n4 loop");
	assert_int_equal(fal_speeds_read("good", &s, &diag), 0);
	static const struct {
		uint64_t t;
		double speed;
		uint64_t until;
	} cases[] = {
		{ 0, 1, SECOND / 2 },
		{ SECOND / 2 - 1, 1, SECOND / 2 },
		{ SECOND / 2, 0, 2 * SECOND },
		{ 3 * SECOND, 0.25, 4 * SECOND },
		{ 4 * SECOND, 1, 4 * SECOND + SECOND / 2 },
		{ 9 * SECOND, 0, 10 * SECOND },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		const struct fal_speed got = fal_speeds_at(&s, cases[i].t);
		near("speed", got.speed, cases[i].speed, 0);
		same_ns(got.until, cases[i].until);
	}
	s.loop = 0;
	same_ns(fal_speeds_at(&s, 9 * SECOND).until, UINT64_MAX);
	fal_speeds_free(&s);
}

/* --- times --- */

/* How long a task takes that begins `at` ns from the first. */
static uint64_t
lasts(struct fal_emul *e, uint32_t samples, uint32_t active, bool eval, uint64_t at)
{
	const struct fal_emul_job job = { samples, active, eval };
	const struct fal_emul_task t = fal_emul_begin(e, &job, START + at);
	return t.end - t.begin;
}

static void
test_times(void **state)
{
	struct fal_emul *e = made("rate=1000,speed=1/2,cores=2");
	(void)state;
	same_ns(lasts(e, 8, 1, false, 0), 16000000);
	same_ns(lasts(e, 8, 2, false, 0), 16000000);
	same_ns(lasts(e, 8, 3, false, 0), 24000000);
	same_ns(lasts(e, 3, 1, false, 0), 6000000);
	same_ns(lasts(e, 3, 1, true, 0), 2000000);
	same_ns(fal_emul_probe_ns(e, 8), 16000000);
	fal_spec_free(e);
	/* Nothing lasts longer than a day. */
	e = made("rate=0.00001");
	same_ns(lasts(e, 8, 1, false, 0), 86400 * SECOND);
	fal_spec_free(e);
}

/* Tasks that span changes of speed, stalls, freezes. */
static void
test_spans(void **state)
{
	(void)state;
	file("steps", "0 1\n1 0.25\n2 0\n5 0.5\n");
	struct fal_emul *e = made("rate=100,cores=1,trace=steps");
	same_ns(lasts(e, 50, 1, false, 0), SECOND / 2);
	same_ns(lasts(e, 100, 1, false, SECOND / 2), 5 * SECOND);
	same_ns(lasts(e, 25, 1, false, 2 * SECOND), 3 * SECOND + SECOND / 2);
	same_ns(lasts(e, 50, 1, false, 6 * SECOND), SECOND);
	fal_spec_free(e);
	e = made("rate=100,cores=1,freeze=1:2");
	same_ns(lasts(e, 100, 1, false, 0), SECOND);
	same_ns(lasts(e, 100, 1, false, SECOND / 2), 3 * SECOND);
	same_ns(lasts(e, 100, 1, false, 2 * SECOND), 2 * SECOND);
	same_ns(lasts(e, 100, 1, false, 3 * SECOND), SECOND);
	fal_spec_free(e);
	/* One that is stopped for ever ends all the same. */
	file("steps", "0 0\n");
	e = made("rate=100,trace=steps");
	same_ns(lasts(e, 1, 1, false, 0), 86400 * SECOND);
	fal_spec_free(e);
}

#define DT UINT64_C(10000) /* of the naive twin */

/* A task by many small steps: the speed at the middle of each. */
static uint64_t
naive(const struct fal_emul *e, uint64_t t, uint64_t first, uint32_t samples)
{
	double sample = 0;
	uint64_t pause =
		first % e->clock == 0 ? fal_emul_pace(e, first / e->clock).pause_ns : 0;
	while (sample < samples) {
		const uint64_t at = first + (uint64_t)sample;
		t += DT;
		if (pause >= DT) {
			pause -= DT;
			continue;
		}
		sample += (double)DT * 1e-9 * e->rate *
			  fal_emul_speed(e, t - DT / 2).speed /
			  fal_emul_pace(e, at / e->clock).slow;
		const uint64_t now = first + (uint64_t)sample;
		if (now / e->clock != at / e->clock && sample < samples)
			pause = fal_emul_pace(e, now / e->clock).pause_ns;
	}
	return t;
}

static void
test_integral(void **state)
{
	static const char *const specs[] = {
		"pattern=p0",
		"pattern=p1d:0.02",
		"pattern=p2:6:0.3",
		"pattern=p2b:0.5:0.05",
		"pattern=p2c",
		"pattern=p3",
		"pattern=p4:0.5:3:2",
		"pattern=p5",
		"pattern=p6",
		"pattern=p9:4:0.5:2",
		"pattern=p10:4:8",
		("pattern=p2:6:0.3,pattern=p3,pattern=p9:4:0.5:2,pattern=p10,"
		 "pattern=p2b:0.5"),
	};
	(void)state;
	for (size_t i = 0; i < sizeof(specs) / sizeof(specs[0]); i++) {
		char spec[200];
		snprintf(spec, sizeof(spec),
			 "rate=1000,cores=1,seed=%zu,worker=3/4,clock=24,%s", i,
			 specs[i]);
		struct fal_emul *e = made(spec);
		uint64_t at = 0, first = 0;
		for (uint32_t n = 0; n < 60; n++) {
			const uint32_t samples = 5 + n % 7;
			const uint64_t got = at + lasts(e, samples, 1, false, at);
			const uint64_t want = naive(e, at, first, samples);
			near(spec, (double)got, (double)want, 8 * DT);
			first += samples;
			at = got + (n % 3) * 1000000;
		}
		fal_spec_free(e);
	}
}

/* Seconds for `samples` of work in tasks of `task`, one after another. */
static double
takes(const char *spec, uint32_t samples, uint32_t task)
{
	struct fal_emul *e = made(spec);
	uint64_t at = 0;
	for (uint32_t i = 0; i < samples; i += task)
		at += lasts(e, task, 1, false, at);
	fal_spec_free(e);
	return (double)at * 1e-9;
}

/* The same slowness, however work is cut, and for each worker and seed another one. */
static void
test_seed(void **state)
{
	static const char all[] =
		"rate=1000,cores=1,clock=24,seed=1,worker=3/4,pattern=p2,"
		"pattern=p2b,pattern=p5,pattern=p3,pattern=p4,pattern=p9";
	static const char *const others[] = {
		"rate=1000,cores=1,clock=24,seed=2,worker=3/4,pattern=p2,"
		"pattern=p2b,pattern=p5,pattern=p3,pattern=p4,pattern=p9",
		"rate=1000,cores=1,clock=24,seed=1,worker=4/4,pattern=p2,"
		"pattern=p2b,pattern=p5,pattern=p3,pattern=p4,pattern=p9",
		"rate=1000,cores=1,clock=24,seed=4294967297,worker=3/4,pattern=p2,"
		"pattern=p2b,pattern=p5,pattern=p3,pattern=p4,pattern=p9",
	};
	(void)state;
	const double once = takes(all, 9600, 8);
	near("again", takes(all, 9600, 8), once, 0);
	near("larger tasks", takes(all, 9600, 32), once, 1e-5);
	near("smaller ones", takes(all, 9600, 3), once, 1e-5);
	for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++)
		if (fabs(takes(others[i], 9600, 8) - once) < 1e-6)
			fail_msg("%s: %g s as well", others[i], once);
}

/* --- distributions, with fixed seeds --- */

struct tally {
	double slow, slow2, pause, slowed, paused;
};

/* Means over many clocks of work. */
static struct tally
clocks(const char *pattern, uint64_t n)
{
	char spec[100];
	struct tally t = { 0 };
	snprintf(spec, sizeof(spec), "rate=1000,t0=1,worker=1/8,pattern=%s", pattern);
	struct fal_emul *e = made(spec);
	for (uint64_t i = 0; i < n; i++) {
		const struct fal_clock_pace p = fal_emul_pace(e, i);
		t.slow += p.slow;
		t.slow2 += p.slow * p.slow;
		t.pause += (double)p.pause_ns * 1e-9;
		t.slowed += p.slow > 1;
		t.paused += p.pause_ns > 0;
	}
	fal_spec_free(e);
	const double m = (double)n;
	return (struct tally){ t.slow / m, t.slow2 / m, t.pause / m, t.slowed / m,
			       t.paused / m };
}

static void
test_clock_patterns(void **state)
{
	const uint64_t n = 100000;
	(void)state;
	struct tally t = clocks("p0", n);
	near("jitter: mean", t.slow, 1, 0.001);
	near("jitter: deviation", sqrt(t.slow2 - t.slow * t.slow), 0.05, 0.001);
	t = clocks("p1d", n);
	near("sleep: all", t.pause, 0.5, 1e-9);
	t = clocks("p2", n);
	near("random clock: often", t.slowed, 1.0 / 8, 0.005);
	near("random clock: mean", t.slow, 1 + 5.0 / 8, 0.02);
	t = clocks("p2b", n);
	near("random sleep: often", t.paused, 0.05, 0.003);
	near("random sleep: mean", t.pause, 0.05 * 0.05, 0.0002);
	t = clocks("p2c", n);
	/* 2.3 % of them would be negative. */
	near("gauss sleep: often", t.paused, 0.3 * 0.97725, 0.005);
	near("gauss sleep: mean", t.pause, 0.3 * 1.00425, 0.005);
	t = clocks("p5", n);
	near("power law: mean", t.slow, 1.5, 0.02);
	t = clocks("p5:11", n);
	near("power law: mean at 11", t.slow, 10.0 / 9, 0.002);
	near("power law: all", t.slowed, 1, 1e-9);
	t = clocks("p6", n);
	near("shifted exponential: mean", t.slow, 1, 0.01);
	near("shifted exponential: deviation", sqrt(t.slow2 - t.slow * t.slow), 0.5,
	     0.01);
}

/* The part of `seconds` at which the speed is `speed`. */
static double
part(const char *pattern, double speed, uint64_t seconds)
{
	char spec[100];
	uint64_t sum = 0;
	snprintf(spec, sizeof(spec), "rate=1000,t0=0.1,seed=4,worker=2/8,pattern=%s",
		 pattern);
	struct fal_emul *e = made(spec);
	for (uint64_t t = 0; t < seconds * SECOND;) {
		const struct fal_speed s = fal_emul_speed(e, t);
		assert_true(s.until > t);
		if (fabs(s.speed - speed) < 1e-9)
			sum += s.until - t;
		t = s.until;
	}
	fal_spec_free(e);
	return (double)sum / (double)(seconds * SECOND);
}

static void
test_time_patterns(void **state)
{
	(void)state;
	/* Onsets every 5 ms with 1 %, each for up to 0.2 s: 0.2 of them at a time, so it
	 * is free of them for exp(-0.2) of the time, but for the grid. */
	near("slow worker", part("p3", 0.25, 2000), 1 - exp(-0.2), 0.02);
	near("disrupted machine", part("p4", 0.5, 40000), 0.2, 0.01);
	/* 5.5 of 50 clocks. */
	near("stall", part("p9", 0, 40000), 0.11, 0.005);
	near("drift: slowest", part("p10", 0.5, 50), 1.0 / 50, 1e-9);
	near("drift: fastest", part("p10", 1, 50), 1.0 / 50, 1e-9);
}

static void
test_network(void **state)
{
	struct fal_emul *e = made("rate=1000,t0=0.1,worker=2/8,latency=0.01,pattern=p7");
	uint64_t more = 0;
	(void)state;
	assert_null(fal_emul_link(NULL));
	const struct fal_link *link = fal_emul_link(e);
	assert_non_null(link);
	/* No task has begun. */
	same_ns(link->delay_ns(link->arg, START), 10000000);
	lasts(e, 1, 1, false, 0);
	for (uint64_t i = 0; i < 20000; i++) {
		const uint64_t ns = link->delay_ns(link->arg, START + i * SECOND);
		if (ns == 60000000)
			more++;
		else
			same_ns(ns, 10000000);
	}
	near("delayed", (double)more / 20000, 0.2, 0.015);
	fal_spec_free(e);
	e = made("rate=1");
	assert_null(fal_emul_link(e));
	fal_spec_free(e);
}

static void
test_crash_every(void **state)
{
	double sum = 0;
	(void)state;
	for (unsigned seed = 0; seed < 2000; seed++) {
		char spec[80];
		snprintf(spec, sizeof(spec), "rate=1,seed=%u,crash-every=10", seed);
		struct fal_emul *e = made(spec);
		sum += (double)e->crash_ns * 1e-9;
		fal_spec_free(e);
	}
	near("mean", sum / 2000, 10, 0.7);
}

/* --- recording --- */

/* Tasks with pauses between them, then the files are whole. */
static void
play(const char *spec, unsigned tasks, uint64_t rest)
{
	struct fal_emul *e = made(spec);
	uint64_t at = START;
	for (unsigned i = 0; i < tasks; i++) {
		const struct fal_emul_job job = { 8, 1, i % 5 == 4 };
		const struct fal_emul_task t = fal_emul_begin(e, &job, at);
		fal_emul_end(e, &t, t.end);
		at = t.end + rest;
	}
	fal_spec_free(e);
}

static void
test_record(void **state)
{
	static const char times[] =
		"pattern=p3,pattern=p4,pattern=p9,pattern=p10,speed=1/3";
	char spec[200];
	(void)state;
	snprintf(spec, sizeof(spec), "rate=1000,t0=0.05,worker=1/4,%s,record=one", times);
	play(spec, 400, 3000000);
	play("rate=1000,trace=one,record=two", 400, 1000000);
	same_files("one", "two", 50);
	/* The same under another cut of the work, as the patterns are of time. */
	snprintf(spec, sizeof(spec), "rate=1000,t0=0.05,worker=1/4,%s,record=two", times);
	play(spec, 300, 50000000);
	same_files("one", "two", 50);
	/* Of work: what was met in time. */
	play("rate=1000,cores=1,clock=24,seed=1,pattern=p2:6:0.3,pattern=p2b:0.5:0.02,"
	     "record=one",
	     200, 0);
	play("rate=1000,cores=1,trace=one,record=two", 200, 0);
	same_files("one", "two", 20);
}

/* A task that is cancelled half-way is recorded until then. */
static void
test_record_cancelled(void **state)
{
	struct fal_emul *e = made("rate=8,cores=1,clock=8,pattern=p2:6:1,record=one");
	const struct fal_emul_job job = { 8, 1, false };
	(void)state;
	struct fal_emul_task t = fal_emul_begin(e, &job, START);
	same_ns(t.end - t.begin, 6 * SECOND);
	fal_emul_end(e, &t, START + SECOND);
	same_ns(e->written.at, SECOND);
	t = fal_emul_begin(e, &job, START + 2 * SECOND);
	fal_emul_end(e, &t, t.end);
	same_ns(e->written.at, 8 * SECOND);
	fal_spec_free(e);
	file("two", "0.000000000 0.166666667\n");
	same_files("one", "two", 1);
}

/* What a cancelled task was spared is not counted. */
static void
test_cancelled(void **state)
{
	struct fal_emul *e = made("rate=1000,cores=1,clock=100,pattern=p2b:1:0.02");
	const struct fal_emul_job job = { 80, 1, false };
	(void)state;
	struct fal_emul_task t = fal_emul_begin(e, &job, START);
	fal_emul_end(e, &t, t.end - 60000000);
	same_ns(e->done, 20);
	/* Within the clock, so without a pause. */
	t = fal_emul_begin(e, &job, START + SECOND);
	same_ns(t.end - t.begin, 80000000);
	fal_emul_end(e, &t, t.end + 1000);
	same_ns(e->done, 100);
	/* One that was overtaken counts as a whole. */
	t = fal_emul_begin(e, &job, START + 2 * SECOND);
	const struct fal_emul_task other = fal_emul_begin(e, &job, START + 2 * SECOND);
	fal_emul_end(e, &t, t.begin + 1);
	same_ns(e->done, 260);
	fal_emul_end(e, &other, other.begin);
	same_ns(e->done, 180);
	fal_spec_free(e);
}

static void
test_start(void **state)
{
	(void)state;
	const struct fal_emul_previous follows = {
		.next = true, .in_time = true, .end = 500, .late = 90
	};
	const struct fal_emul_previous late = { .next = true, .end = 500, .late = 90 };
	const struct fal_emul_previous rested = { .in_time = true,
						  .end = 500,
						  .late = 90 };
	uint64_t regained;
	same_ns(fal_emul_task_begin_time(&follows, 600, &regained), 500);
	same_ns(regained, 90);
	same_ns(fal_emul_task_begin_time(&late, 600, &regained), 600);
	same_ns(regained, 0);
	same_ns(fal_emul_task_begin_time(&rested, 600, &regained), 600);
	same_ns(regained, 0);
}

/* In a folder that is thrown away. */
static char folder[] = "/tmp/falcon-emulate-XXXXXX";

static int
enter(void **state)
{
	(void)state;
	return mkdtemp(folder) != NULL && chdir(folder) == 0 ? 0 : -1;
}

static int
leave(void **state)
{
	static const char *const names[] = { "machines", "bad", "good",
					     "steps",    "one", "two" };
	(void)state;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		unlink(names[i]);
	return chdir("/") == 0 && rmdir(folder) == 0 ? 0 : -1;
}

int
main(void)
{
	cmocka_set_message_output(CM_OUTPUT_TAP);
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_spec),
		cmocka_unit_test(test_nominal_clock),
		cmocka_unit_test(test_bad_spec),
		cmocka_unit_test(test_file),
		cmocka_unit_test(test_trace),
		cmocka_unit_test(test_times),
		cmocka_unit_test(test_spans),
		cmocka_unit_test(test_integral),
		cmocka_unit_test(test_seed),
		cmocka_unit_test(test_clock_patterns),
		cmocka_unit_test(test_time_patterns),
		cmocka_unit_test(test_network),
		cmocka_unit_test(test_crash_every),
		cmocka_unit_test(test_record),
		cmocka_unit_test(test_record_cancelled),
		cmocka_unit_test(test_cancelled),
		cmocka_unit_test(test_start),
	};
	return cmocka_run_group_tests_name("emulate", tests, enter, leave);
}
