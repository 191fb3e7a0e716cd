/* The cost model of made-up traces whose answers are known. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/buf.h"
#include "proj/fit.h"
#include "proj/simulate.h"
#include "whole.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Epochs of 10 clocks of 8 tasks of 8 samples. */
#define JOB_OF(scheme, test)                                                      \
	"{\"t\":0,\"ev\":\"job\",\"name\":\"j\",\"hash\":\"aa\",\"epochs\":1000," \
	"\"batch\":64,\"task\":8,\"samples\":640,\"test\":" test ",\"blocks\":5," \
	"\"clocks_per_epoch\":10,\"clocks\":10000,\"scheme\":\"" scheme           \
	"\",\"audit\":\"claims\",\"incarnation\":0}\n"
#define JOB(scheme) JOB_OF(scheme, "0")
#define JOIN_OF(t, name, id, most)                                          \
	"{\"t\":" #t ",\"ev\":\"join\",\"worker\":\"" name "\",\"id\":" #id \
	",\"lanes\":[1," #most "],\"cores\":2,\"fingerprint\":\"f\"}\n"
#define JOIN(t, name, id) JOIN_OF(t, name, id, 4)
#define LEAVE(t, name, id)                                                   \
	"{\"t\":" #t ",\"ev\":\"leave\",\"worker\":\"" name "\",\"id\":" #id \
	",\"reason\":\"closed\"}\n"
#define HOLD(t, why) "{\"t\":" #t ",\"ev\":\"hold\",\"why\":\"" why "\",\"by\":\"k\"}\n"
#define LATE(t, ev, seconds)                                                        \
	"{\"t\":" #t ",\"ev\":\"" ev "\",\"worker\":\"b\",\"id\":2,\"why\":\"so\"," \
	"\"seconds\":" #seconds "}\n"
#define POLICY(t, clock, scheme)                                                    \
	"{\"t\":" #t ",\"ev\":\"policy\",\"clock\":" #clock ",\"scheme\":\"" scheme \
	"\",\"by\":\"k\",\"version\":0}\n"

/* What a worker says of a clock; own: a round of its own. */
struct says {
	uint64_t clock;
	unsigned id, lanes, tasks;
	bool own;
	double task_s, compute, push, pull, wait;
};

static void
put_clock(struct fal_buf *b, double t, const struct says *s)
{
	fal_put_fmt(b, "{\"t\":%.6f,\"ev\":\"clock\",\"clock\":%llu,", t,
		    (unsigned long long)s->clock);
	if (s->own)
		fal_put_fmt(b, "\"round\":%llu,", (unsigned long long)s->clock);
	fal_put_fmt(b,
		    "\"worker\":\"?\",\"id\":%u,\"lanes\":%u,\"share\":4,\"done\":%u,"
		    "\"in\":0,\"out\":0,\"cloned\":0,\"lost\":0,\"compute\":%.6f,"
		    "\"push\":%.6f,\"pull\":%.6f,\"wait\":%.6f,\"push_all\":%.6f,"
		    "\"pull_all\":%.6f,\"late\":0,\"task_s\":%.6f,\"staleness\":0,"
		    "\"tx\":1000,\"rx\":2000}\n",
		    s->id, s->lanes, s->tasks, s->compute, s->push, s->pull, s->wait,
		    s->push, s->pull, s->tasks > 0 ? s->task_s : 0);
}

static void
put_update(struct fal_buf *b, double t, uint64_t clock, unsigned samples)
{
	fal_put_fmt(b,
		    "{\"t\":%.6f,\"ev\":\"update\",\"version\":%llu,\"clock\":%llu,"
		    "\"samples\":%u,\"loss\":1,\"lr\":0.1,\"epoch\":1}\n",
		    t, (unsigned long long)clock + 1, (unsigned long long)clock, samples);
}

static void
put_text(struct fal_buf *b, const char *text)
{
	fal_put_bytes(b, text, strlen(text));
}

/* Clocks from … to-1 of 50 ms, in which worker 1 needs 10 ms for each of its 4 tasks and
 * worker 2 `slow` times as long for its own; the first of them ends at t + 50 ms. */
static void
put_clocks(struct fal_buf *b, double t, uint64_t from, uint64_t to, double slow)
{
	const double clock_s = 0.01 + 0.04 * slow;
	for (uint64_t c = from; c < to; c++) {
		t += clock_s;
		put_update(b, t, c, 64);
		struct says s = { .clock = c,
				  .id = 1,
				  .lanes = 1,
				  .tasks = 4,
				  .task_s = 0.01,
				  .compute = 0.04,
				  .push = 0.001,
				  .pull = 0.002,
				  .wait = clock_s - 0.043 };
		put_clock(b, t + 0.001, &s);
		s.id = 2;
		s.task_s *= slow;
		s.compute *= slow;
		s.wait = 0.007;
		put_clock(b, t + 0.001, &s);
	}
}

struct outcome {
	struct fal_fit *f;
	struct fal_trace_reader *r;
	struct fal_cost cost;
	struct fal_fit_run run;
	struct fal_diag diag;
	int err;
};

/* Feeds the text and makes the model; the text is freed. */
static struct outcome
fit(struct fal_buf *b)
{
	struct outcome o = { .f = fal_fit_new() };
	assert_non_null(o.f);
	assert_int_equal(b->err, 0);
	o.r = fal_trace_reader_new(fal_fit_line, o.f);
	o.err = whole_feed(o.r, b->p, b->n, &o.diag);
	if (o.err == 0)
		o.err = fal_fit_end(o.f, &o.cost, &o.run, &o.diag);
	fal_buf_free(b);
	return o;
}

static void
drop(struct outcome *o)
{
	fal_cost_free(&o->cost);
	fal_trace_reader_free(o->r);
	fal_fit_free(o->f);
}

static void
check_good(const struct outcome *o, size_t machines)
{
	assert_string_equal(o->diag.text, "");
	assert_int_equal(o->err, 0);
	assert_int_equal(o->cost.machines, machines);
}

/* Within a millionth of it: the model keeps floats. */
static void
near_at(double is, double want, const char *what, int line)
{
	if (!(fabs(is - want) <= 1e-6 * fabs(want) + 1e-12))
		fail_msg("line %d: %s is %.9g, want %.9g", line, what, is, want);
}

#define NEAR(is, want) near_at(is, want, #is, __LINE__)

/* What the messages of n workers cost, which is no part of a step. */
static double
talk(double n)
{
	return n * (2 * FAL_FIT_MESSAGE_S + 3000 * FAL_FIT_BYTE_S);
}

static void
test_uniform(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") POLICY(0, 0, "bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	put_clocks(&b, 1, 0, 40, 1);
	struct outcome o = fit(&b);
	check_good(&o, 2);
	const struct fal_cost_machine *m = fal_cost_find(&o.cost, "b");
	assert_non_null(m);
	assert_int_equal(m->lanes, 1);
	assert_int_equal(m->lanes_max, 4);
	assert_int_equal(m->cores, 2);
	assert_int_equal(m->paces, 35); /* without those of the start */
	NEAR(m->pace[34].task_s, 0.01);
	NEAR(m->pace[34].tasks, 4);
	NEAR(m->pace[34].seconds, 0.05);
	NEAR(m->tasks, 35 * 4); /* settled */
	NEAR(m->pull_s, 0.002);
	NEAR(m->push_s, 0.001);
	NEAR(o.cost.step_s, 0.007 - talk(2));
	NEAR(o.cost.push_bytes, 1000);
	NEAR(o.cost.pull_bytes, 2000);
	assert_int_equal(fal_grid_tasks(&o.cost.grid, 0), 8);
	assert_string_equal(o.run.scheme, "bsp");
	assert_int_equal(o.run.policy.rule.scheme, FAL_BSP);
	NEAR(o.run.epoch_s, 0.5);
	NEAR(o.run.compute, 0.8);
	assert_int_equal(o.run.clocks, 35);
	assert_int_equal(o.run.from, 5);
	drop(&o);
}

static void
test_straggler(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	put_clocks(&b, 1, 0, 40, 4);
	struct outcome o = fit(&b);
	check_good(&o, 2);
	NEAR(fal_cost_mean_task_s(&o.cost.machine[0]), 0.01);
	NEAR(fal_cost_mean_task_s(&o.cost.machine[1]), 0.04);
	NEAR(o.cost.step_s, 0.007 - talk(2));
	NEAR(o.run.epoch_s, 1.7);
	NEAR(o.run.compute, (0.04 + 0.16) / (2 * 0.17));
	drop(&o);
}

/* Rounds of one's own: a round makes an update; only b never waits for the other. */
static void
test_own_rounds(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("ssp:1") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	double t = 1;
	for (unsigned c = 0; c < 60; c++) {
		struct says s = { .clock = c,
				  .id = 1,
				  .lanes = 1,
				  .tasks = 4,
				  .own = true,
				  .task_s = 0.01,
				  .compute = 0.04,
				  .push = 0.001,
				  .pull = 0.002,
				  .wait = 0.0405 };
		t += 0.0835;
		put_update(&b, t, c, 32);
		put_update(&b, t, c, 32);
		put_clock(&b, t, &s);
		s.id = 2;
		s.task_s = 0.02;
		s.compute = 0.08;
		s.wait = 0.0005;
		put_clock(&b, t, &s);
	}
	struct outcome o = fit(&b);
	check_good(&o, 2);
	assert_int_equal(o.cost.machine[1].paces, 55);
	NEAR(o.cost.machine[1].pace[0].task_s, 0.02);
	NEAR(o.cost.machine[1].pace[1].seconds, 0.0835);
	NEAR(o.cost.step_s, 0.0005 - talk(1));
	NEAR(o.run.epoch_s, 0.835);
	NEAR(o.run.compute, 0.12 / 0.167);
	drop(&o);
}

/* Four lanes on two cores: each runs half as fast; all paces are those of the last. */
static void
test_lanes(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1));
	for (unsigned c = 0; c < 40; c++) {
		const bool wide = c >= 30;
		const struct says s = { .clock = c,
					.id = 1,
					.lanes = wide ? 4 : 2,
					.tasks = 8,
					.task_s = wide ? 0.02 : 0.01,
					.compute = 0.04,
					.wait = 0.01 };
		put_update(&b, 1 + 0.05 * c, c, 64);
		put_clock(&b, 1 + 0.05 * c, &s);
	}
	struct outcome o = fit(&b);
	check_good(&o, 1);
	const struct fal_cost_machine *m = &o.cost.machine[0];
	assert_int_equal(m->lanes, 4);
	NEAR(m->pace[0].task_s, 0.02);
	NEAR(m->pace[34].task_s, 0.02);
	NEAR(fal_cost_task_s(m, 0, 0, 1, 2), 0.01);
	drop(&o);
}

/* What the first clocks take to start is no speed. */
static void
test_start(void **state)
{
	(void)state;
	static const double times[6] = { 2.5, 1.4, 2, 1, 1, 1.4 };
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	for (unsigned c = 0; c < 30; c++) {
		const double task_s = 0.01 * (c < 6 ? times[c] : 1);
		struct says s = { .clock = c,
				  .id = 1,
				  .lanes = 1,
				  .tasks = 8,
				  .task_s = task_s,
				  .compute = c == 0 ? 0.5 : 8 * task_s,
				  .wait = 0.1 };
		put_update(&b, 1 + c, c, 64);
		put_clock(&b, 1 + c, &s);
		s.id = 2;
		s.task_s *= c == 0 ? 4 : 1;
		put_clock(&b, 1 + c, &s);
	}
	struct outcome o = fit(&b);
	check_good(&o, 2);
	assert_int_equal(o.cost.machine[0].paces, 25);
	for (size_t i = 0; i < 25; i++)
		for (size_t k = 0; k < 2; k++)
			NEAR(o.cost.machine[k].pace[i].task_s, i == 0 ? 0.014 : 0.01);
	drop(&o);
}

/* Clocks of one worker, all tasks of which take 30 ms, at `t` and their number. */
static void
put_alone(struct fal_buf *b, unsigned id, unsigned t, unsigned from, unsigned to)
{
	for (unsigned c = from; c < to; c++) {
		const struct says s = { .clock = c,
					.id = id,
					.lanes = 1,
					.tasks = 8,
					.task_s = 0.03,
					.compute = 0.24 };
		put_update(b, t + c, c, 64);
		put_clock(b, t + c, &s);
	}
}

/* b comes back under its name, c leaves for good, d has not done anything yet. */
static void
test_names(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2) JOIN(0.5, "c", 3));
	put_clocks(&b, 1, 0, 20, 2);
	put_text(&b,
		 LEAVE(3, "b", 2) LEAVE(3, "c", 3) JOIN(3.2, "b", 7) JOIN(3.2, "d", 8));
	put_alone(&b, 7, 4, 20, 30);
	put_text(&b, HOLD(50, "stopped") LEAVE(51, "a", 1) LEAVE(51, "d", 8));
	put_clock(&b, 52,
		  &(struct says){ .clock = 30, .id = 7, .tasks = 8, .task_s = 1 });
	put_text(&b, LEAVE(53, "b", 7));
	struct outcome o = fit(&b);
	check_good(&o, 3);
	assert_string_equal(o.cost.machine[0].name, "a");
	assert_string_equal(o.cost.machine[1].name, "b");
	assert_string_equal(o.cost.machine[2].name, "d");
	assert_int_equal(o.cost.machine[1].paces, 25);
	NEAR(o.cost.machine[1].pace[0].task_s, 0.02);
	NEAR(o.cost.machine[1].pace[24].task_s, 0.03);
	/* Between the means of a, 10 ms, and b; on four lanes of two cores. */
	NEAR(o.cost.machine[2].pace[0].task_s,
	     0.01 + (15 * 4 * 0.02 + 10 * 8 * 0.03) / 140);
	NEAR(o.cost.machine[2].push_s, 0.001);
	drop(&o);
}

/* A job that was stopped goes on: whoever does not come back is no machine of it, and its
 * clocks are measured again. */
static void
test_stopped_and_resumed(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	put_clocks(&b, 1, 0, 20, 2);
	put_text(&b, HOLD(30, "stopped") LEAVE(30.5, "a", 1) LEAVE(30.5, "b", 2));
	uint64_t lines = 0;
	for (size_t i = 0; i < b.n; i++)
		lines += b.p[i] == '\n';
	fal_put_fmt(&b,
		    "{\"t\":31,\"ev\":\"restart\",\"incarnation\":1,\"clock\":20,"
		    "\"until\":20,\"lines\":%llu,\"count\":%llu}\n",
		    (unsigned long long)lines, (unsigned long long)lines);
	put_text(&b, JOIN(32, "b", 3));
	put_alone(&b, 3, 20, 20, 40);
	struct outcome o = fit(&b);
	check_good(&o, 1);
	assert_string_equal(o.cost.machine[0].name, "b");
	NEAR(o.cost.machine[0].pace[o.cost.machine[0].paces - 1].task_s, 0.03);
	drop(&o);
}

/* A clock in which a worker ran nothing has the speed of the one before, or after. */
static void
test_idle_clocks(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("epsp") JOIN(0.5, "a", 1));
	for (unsigned c = 0; c < 12; c++) {
		const unsigned ran = c >= 2 && c % 3 != 0;
		const struct says s = { .clock = 10 + c,
					.id = 1,
					.lanes = 1,
					.tasks = 4 * ran,
					.task_s = 0.01 + 1e-5 * c,
					.compute = 0.04 * ran,
					.wait = 0.1 };
		put_update(&b, 1 + c, 10 + c, 64);
		put_clock(&b, 1 + c, &s);
	}
	struct outcome o = fit(&b);
	check_good(&o, 1);
	const struct fal_cost_pace *p = o.cost.machine[0].pace;
	assert_int_equal(o.cost.machine[0].paces, 12);
	NEAR(p[0].task_s, 0.01002);
	NEAR(p[0].tasks, 0);
	NEAR(p[3].task_s, 0.01002);
	NEAR(p[4].task_s, 0.01004);
	NEAR(p[6].task_s, 0.01005);
	drop(&o);
}

/* What is between a hold and its end does not count; neither does a joining. */
static void
test_hold(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	put_clocks(&b, 1, 0, 20, 1);
	put_text(&b, HOLD(2.01, "paused"));
	put_clocks(&b, 2, 20, 21, 1);
	put_text(&b, HOLD(7, "resumed"));
	put_clocks(&b, 7, 21, 31, 1);
	put_text(&b, JOIN(7.9, "c", 3));
	put_clocks(&b, 8, 31, 41, 1);
	struct outcome o = fit(&b);
	check_good(&o, 3);
	NEAR(o.run.epoch_s, 0.5);
	assert_int_equal(o.run.clocks, 15 + 9 + 9);
	NEAR(o.run.compute, 0.8);
	NEAR(o.cost.step_s, 0.007 - talk(3));
	drop(&o);
}

/* As a live stream begins: what lasts, then the last clocks.  More may follow. */
static void
test_stream(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b,
		 JOB("epsp:2") JOIN(0.5, "a", 1) POLICY(0.6, 30, "bsp") JOIN(99, "b", 2));
	put_clocks(&b, 100, 500, 515, 1);
	struct outcome o = fit(&b);
	check_good(&o, 2);
	assert_int_equal(o.cost.machine[0].paces, 15);
	assert_int_equal(o.run.from, 505);
	NEAR(o.run.epoch_s, 0.5);
	fal_cost_free(&o.cost);
	put_clocks(&b, 100.75, 515, 600, 1);
	assert_int_equal(whole_feed(o.r, b.p, b.n, &o.diag), 0);
	assert_int_equal(fal_fit_end(o.f, &o.cost, &o.run, &o.diag), 0);
	assert_int_equal(o.cost.machine[0].paces, 100);
	assert_int_equal(o.run.clocks, 95);
	fal_buf_free(&b);
	drop(&o);
}

static void
test_policy_changes(void **state)
{
	(void)state;
	static const char change[] =
		"{\"t\":3.01,\"ev\":\"policy\",\"clock\":40,\"scheme\":\"epsp:1\",\"by\":"
		"\"k\","
		"\"version\":40,\"policy\":{\"scheme\":\"epsp:1\",\"clones\":false,"
		"\"workers\":{\"b\":{\"lanes\":[1,2]}}}}\n";
	for (unsigned n = 10; n <= 30; n += 20) {
		struct fal_buf b = { 0 };
		put_text(&b, JOB("bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
		put_clocks(&b, 1, 0, 40, 1);
		put_text(&b, change);
		put_clocks(&b, 4, 40, 40 + n, 3);
		struct outcome o = fit(&b);
		check_good(&o, 2);
		assert_int_equal(o.cost.machine[1].paces, n == 10 ? 45 : 30);
		NEAR(o.cost.machine[1].pace[0].task_s, n == 10 ? 0.01 : 0.03);
		assert_string_equal(o.run.scheme, "epsp:1");
		assert_int_equal(o.run.policy.rule.slack, 1);
		assert_true(o.run.policy.no_clones);
		assert_int_equal(o.run.policy.workers, 1);
		assert_int_equal(o.run.policy.worker[0].lanes_max, 2);
		NEAR(o.run.epoch_s, 1.3);
		assert_int_equal(o.run.clocks, n - 5);
		assert_int_equal(o.run.from, 45);
		drop(&o);
	}
}

/* Only the last lines of a worker are kept. */
static void
test_long(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	put_clocks(&b, 1, 0, 1000, 3);
	put_clocks(&b, 200, 1000, 1000 + FAL_FIT_CLOCKS, 1);
	struct outcome o = fit(&b);
	check_good(&o, 2);
	assert_int_equal(o.cost.machine[1].paces, FAL_FIT_CLOCKS);
	NEAR(o.cost.machine[1].pace[0].task_s, 0.01);
	NEAR(o.cost.step_s, 0.007 - talk(2));
	assert_int_equal(o.run.clocks, 1000 + FAL_FIT_CLOCKS - 5);
	drop(&o);
}

#define GOOD JOB("bsp") JOIN(0.5, "a", 1)
#define DONE1 "{\"t\":1,\"ev\":\"clock\",\"clock\":0,\"worker\":\"a\","
#define REST(task_s)                                                             \
	"\"lanes\":1,\"lost\":0,\"compute\":1,\"push\":0,\"pull\":0,\"wait\":0," \
	"\"push_all\":0,\"pull_all\":0,\"task_s\":" task_s ",\"tx\":1,\"rx\":1}\n"

static void
test_errors(void **state)
{
	(void)state;
	static const struct {
		const char *text, *diag;
		int err;
	} bad[] = {
		{ "", "no job line", FAL_ETRUNC },
		{ JOIN(0.5, "a", 1), "1: the first line is not job", FAL_EINVAL },
		{ GOOD, "no worker that is here has run a task", FAL_ETRUNC },
		{ JOB("hop"),
		  "1: job.scheme: 'hop' is not a scheme (bsp, asp, ssp, epsp, flexrr, "
		  "syncopt, consgd, dynsgd, wbsp, groups, rennala, ringmaster)",
		  FAL_EINVAL },
		{ GOOD POLICY(1, 0, "ssp:65"),
		  "3: policy.scheme: ssp: '65' is not a whole number from 0 to 64",
		  FAL_EINVAL },
		{ GOOD DONE1 "\"id\":9,\"done\":1," REST("1"),
		  "3: clock.id: 9 never joined", FAL_EINVAL },
		{ GOOD DONE1 "\"id\":1,\"done\":9999," REST("1"),
		  "3: clock.done: 9999 is above 528", FAL_ELIMIT },
		{ GOOD DONE1 "\"id\":1,\"done\":1," REST("-1"),
		  "3: clock.task_s: -1 seconds", FAL_EINVAL },
		{ GOOD DONE1 "\"id\":1,\"done\":null," REST("1"),
		  "3: clock.done: missing", FAL_EFORMAT },
		{ GOOD JOIN(1, "b", 1), "3: join.id: 1 joined before", FAL_EINVAL },
		{ GOOD LEAVE(1, "b", 2), "3: leave.id: 2 never joined", FAL_EINVAL },
		{ GOOD "{\"t\":1,\"ev\":\"update\",\"clock\":10000,\"samples\":1}\n",
		  "3: update.clock: 10000 is above 9999", FAL_ELIMIT },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct fal_buf b = { 0 };
		put_text(&b, bad[i].text);
		struct outcome o = fit(&b);
		assert_string_equal(o.diag.text, bad[i].diag);
		assert_int_equal(o.err, bad[i].err);
		drop(&o);
	}
}

/* Worker 1 in a line: two tasks of 10 ms, then three of 60. */
#define PACES(t, clock, paces)                                                     \
	"{\"t\":" #t ",\"ev\":\"clock\",\"clock\":" #clock                         \
	",\"worker\":\"a\",\"id\":1,\"lanes\":1,\"share\":5,\"done\":4,\"in\":0,"  \
	"\"out\":0,\"cloned\":0,\"lost\":1,\"compute\":0.2,\"push\":0.001,"        \
	"\"pull\":0.002,\"wait\":0.007,\"push_all\":0.001,\"pull_all\":0.002,"     \
	"\"late\":0,\"task_s\":0.04,\"paces\":" paces ",\"staleness\":0,\"tx\":1," \
	"\"rx\":2}\n"

/* A line with two paces is as two lines, but for the push and the pull. */
static void
test_paces(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1));
	for (int c = 5; c < 60; c += 2)
		put_text(&b, PACES(1, 10, "[[2,10000],[3,60000]]")
				     PACES(1, 11, "[[2,10000],[3,60000]]"));
	struct outcome o = fit(&b);
	check_good(&o, 1);
	const struct fal_cost_machine *m = &o.cost.machine[0];
	assert_int_equal(m->paces, 112);
	for (size_t i = 0; i < m->paces; i += 2) {
		NEAR(m->pace[i].task_s, 0.01);
		NEAR(m->pace[i].tasks, 2);
		NEAR(m->pace[i + 1].task_s, 0.06);
		NEAR(m->pace[i + 1].tasks, 3);
		if (i > 0) { /* in proportion; the very first line tells of a start */
			NEAR(m->pace[i].seconds, 0.021);
			NEAR(m->pace[i + 1].seconds, 0.189);
		}
	}
	NEAR(m->push_s, 0.001);
	NEAR(m->pull_s, 0.002);
	drop(&o);

	const char *const bad[][2] = {
		{ PACES(1, 10, "[[2,10000],[4,60000]]"),
		  "3: clock.paces: 6 tasks in all, not 5" },
		{ PACES(1, 10, "[[5,10000]]"), "3: clock.paces: not from 2 to 4" },
		{ PACES(1, 10, "[[1,1],[1,1],[1,1],[1,1],[1,1]]"),
		  "3: clock.paces: not from 2 to 4" },
		{ PACES(1, 10, "7"), "3: clock.paces: not an array" },
		{ PACES(1, 10, "[[5,40000],[0,40000]]"),
		  "3: clock.paces: a pace of no task" },
		{ PACES(1, 10, "[[2,10000],[3,70000]]"),
		  "3: clock.paces: their mean is 0.046000, task_s 0.040000" },
	};
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		put_text(&b, JOB("bsp") JOIN(0.5, "a", 1));
		put_text(&b, bad[i][0]);
		o = fit(&b);
		assert_string_equal(o.diag.text, bad[i][1]);
		drop(&o);
	}
}

/* What a probe of two sizes says: 2 of 10 ms are no sample's. */
static void
test_probe(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	double whole, small;
	put_text(&b, JOB("bsp") "{\"t\":0.5,\"ev\":\"join\",\"worker\":\"a\",\"id\":1,"
				"\"lanes\":[1,1],"
				"\"cores\":1,\"fingerprint\":\"f\",\"task_s\":0.01,"
				"\"large\":64,"
				"\"large_s\":0.066}\n" JOIN(0.5, "b", 2));
	put_clocks(&b, 1, 0, 40, 1);
	struct outcome o = fit(&b);
	check_good(&o, 2);
	NEAR(o.cost.machine[0].fixed, 0.2);
	NEAR(o.cost.machine[1].fixed, 0.2); /* did not try: as the others */
	fal_cost_task_sizes(&o.cost, &whole, &small);
	NEAR(whole, 0);
	NEAR(small, 0.2 * 3 / 4); /* a lane does 4 tasks */
	fal_machines_task(&o.cost, 16);
	NEAR(o.cost.machine[0].pace[34].task_s, 0.018);
	NEAR(o.cost.machine[0].fixed, 0.002 / 0.018);
	NEAR(o.cost.machine[1].pace[34].task_s, 0.018);
	drop(&o);
}

/* Where all have left, those are meant who were there at the last version. */
static void
test_all_left(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.4, "c", 3) JOIN(0.5, "a", 1) JOIN(0.5, "b", 2)
			     LEAVE(0.6, "c", 3));
	put_clocks(&b, 1, 0, 40, 1);
	put_text(&b, LEAVE(9, "a", 1) LEAVE(9.1, "b", 2));
	struct outcome o = fit(&b);
	check_good(&o, 2);
	assert_null(fal_cost_find(&o.cost, "c"));
	drop(&o);
}

/* What a lane spends between tasks is no part of their seconds; neither is what it spends
 * on those of another line. */
static void
test_turn(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	for (unsigned c = 0; c < 40; c++) {
		struct says s = { .clock = c,
				  .id = 1,
				  .lanes = 1,
				  .tasks = 4,
				  .task_s = 0.01,
				  .compute = 0.044,
				  .wait = 0.01 };
		put_update(&b, 1 + c, c, 64);
		put_clock(&b, 1 + c, &s);
		/* Eight tasks on four lanes; every third line tells of too few. */
		s.id = 2;
		s.lanes = 4;
		s.tasks = c % 3 == 0 ? 4 : 8;
		s.compute = c % 3 == 0 ? 0.011 : 0.022;
		put_clock(&b, 1 + c, &s);
	}
	struct outcome o = fit(&b);
	check_good(&o, 2);
	NEAR(o.cost.machine[0].turn_s, 0.001);
	NEAR(o.cost.machine[1].turn_s, 0.001);
	drop(&o);

	/* Tasks that end a line late: half of the lines have more of them than time. */
	put_text(&b, JOB("epsp:1") JOIN(0.5, "a", 1));
	for (unsigned c = 0; c < 41; c++) {
		const struct says s = { .clock = c,
					.id = 1,
					.lanes = 1,
					.tasks = c % 2 == 0 ? 3 : 5,
					.task_s = 0.01,
					.compute = 0.04,
					.wait = 0.01 };
		put_update(&b, 1 + c, c, 64);
		put_clock(&b, 1 + c, &s);
	}
	o = fit(&b);
	check_good(&o, 1);
	if (o.cost.machine[0].turn_s > 0.0003)
		fail_msg("turn: is %g", o.cost.machine[0].turn_s);
	drop(&o);
}

/* Who is slow loses the race for its task, and tells of it only that it was cut short. */
static void
test_cut_tasks(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("epsp") JOIN(0.5, "a", 1));
	for (unsigned c = 5; c < 45; c += 2)
		put_text(
			&b,
			"{\"t\":1,\"ev\":\"clock\",\"clock\":10,\"worker\":\"a\",\"id\":"
			"1,"
			"\"lanes\":1,\"share\":5,\"done\":3,\"in\":0,\"out\":0,"
			"\"cloned\":0,"
			"\"lost\":0,\"compute\":0.08,\"push\":0,\"pull\":0,\"wait\":0.02,"
			"\"push_all\":0,\"pull_all\":0,\"late\":0,\"task_s\":0.01,"
			"\"cut\":1,\"cut_s\":0.05,\"staleness\":0,\"tx\":1,\"rx\":2}\n"
			"{\"t\":1,\"ev\":\"clock\",\"clock\":11,\"worker\":\"a\",\"id\":"
			"1,"
			"\"lanes\":1,\"share\":1,\"done\":1,\"in\":0,\"out\":0,"
			"\"cloned\":0,"
			"\"lost\":0,\"compute\":0.1,\"push\":0,\"pull\":0,\"wait\":0,"
			"\"push_all\":0,\"pull_all\":0,\"late\":0,\"task_s\":0.1,"
			"\"staleness\":0,\"tx\":1,\"rx\":2}\n");
	struct outcome o = fit(&b);
	check_good(&o, 1);
	const struct fal_cost_machine *m = &o.cost.machine[0];
	assert_int_equal(m->paces, 60);
	/* Half a task, as slow as the next one; of the line's time what it ran. */
	NEAR(m->pace[3].task_s, 0.01);
	NEAR(m->pace[3].tasks, 3);
	NEAR(m->pace[3].seconds, 0.1 * 3 / 8);
	NEAR(m->pace[4].task_s, 0.1);
	NEAR(m->pace[4].tasks, 0.5);
	NEAR(m->pace[4].seconds, 0.1 * 5 / 8);
	NEAR(m->pace[5].task_s, 0.1);
	NEAR(m->pace[5].tasks, 1);
	drop(&o);
}

enum { WELL = 20, HUNG = 13 };

/* WELL clocks from second `t` on, then HUNG in which b is a suspect and a does its tasks;
 * the time at their end. */
static double
put_hang(struct fal_buf *b, double t, unsigned from)
{
	put_clocks(b, t, from, from + WELL, 1);
	t += WELL * 0.05;
	fal_put_fmt(b,
		    "{\"t\":%.6f,\"ev\":\"suspect\",\"worker\":\"b\",\"id\":2,"
		    "\"owes\":\"task\",\"why\":\"so\",\"seconds\":0.039}\n",
		    t + 0.04);
	for (unsigned c = from + WELL; c < from + WELL + HUNG; c++) {
		t += 0.08;
		put_update(b, t, c, 64);
		struct says s = { .clock = c,
				  .id = 1,
				  .lanes = 1,
				  .tasks = 8,
				  .task_s = 0.01,
				  .compute = 0.08 };
		put_clock(b, t + 0.001, &s);
		/* Its lane is busy all the time. */
		s.id = 2;
		s.tasks = 0;
		put_clock(b, t + 0.001, &s);
	}
	fal_put_fmt(
		b,
		"{\"t\":%.6f,\"ev\":\"back\",\"worker\":\"b\",\"id\":2,\"why\":\"so\","
		"\"seconds\":%.6f}\n",
		t + 0.001, HUNG * 0.08 - 0.04);
	return t;
}

/* Time in which a worker hangs again and again is none of its speed: in that it does
 * nothing. */
static void
test_hung(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("epsp") JOIN(0.5, "a", 1) JOIN(0.5, "b", 2));
	put_hang(&b, put_hang(&b, 1, 0), WELL + HUNG);
	struct outcome o = fit(&b);
	check_good(&o, 2);
	const struct fal_cost_machine *a = &o.cost.machine[0], *m = &o.cost.machine[1];
	const double well = m->seconds - 2 * HUNG * 0.08;
	NEAR(fal_cost_mean_task_s(a), 0.01);
	assert_true(m->by_time);
	NEAR(well, (2 * WELL - 5) * 0.05); /* but for the start */
	NEAR(fal_cost_mean_task_s(m), 0.01 * m->seconds / well);
	NEAR(o.run.epoch_s,
	     10 * ((2 * WELL - 5) * 0.05 + 2 * HUNG * 0.08) / (2 * (WELL + HUNG) - 5));
	/* What it begins then it ends when it is well again. */
	const double hangs = m->seconds - HUNG * 0.08;
	assert_true(fal_cost_hang_s(m, hangs - 0.5) == 0);
	NEAR(fal_cost_hang_s(m, hangs + 0.5), HUNG * 0.08 - 0.5);
	NEAR(fal_cost_task_s(m, 0, hangs + 0.5, 1, 1), HUNG * 0.08 - 0.5 + 0.01);
	drop(&o);
}

/* What hung once, or while the job started, hangs no more, and is held against the clocks
 * in which nobody did. */
static void
test_hung_once(void **state)
{
	(void)state;
	for (unsigned starts = 0; starts < 2; starts++) {
		struct fal_buf b = { 0 };
		struct fal_simulation play;
		put_text(&b, JOB("bsp") JOIN_OF(0.5, "a", 1, 1) JOIN_OF(0.5, "b", 2, 1));
		if (starts) {
			put_clocks(&b, 1, 0, 2, 1);
			put_text(&b, LATE(1.11, "suspect", 0.05) LATE(1.14, "back", 0.04)
					     LATE(1.15, "suspect", 0.05)
						     LATE(1.18, "back", 0.03));
			put_clocks(&b, 1.2, 2, 80, 1);
		} else {
			put_clocks(&b, put_hang(&b, 1, 0), WELL + HUNG, 100, 1);
		}
		struct outcome o = fit(&b);
		check_good(&o, 2);
		const struct fal_cost_machine *m = &o.cost.machine[1];
		for (size_t i = 0; i < m->paces; i++)
			assert_false(m->pace[i].hung);
		NEAR(fal_cost_mean_task_s(m), 0.01);
		NEAR(o.run.epoch_s, 0.5);
		assert_int_equal(fal_predict(&o.cost, &o.run.policy, &play), 0);
		const double s = fal_simulation_epoch_s(&play, &o.cost.grid);
		if (fabs(s / o.run.epoch_s - 1) > 0.01)
			fail_msg("predicted %g, measured %g", s, o.run.epoch_s);
		drop(&o);
	}
}

/* What came before a cut line counts; events that nobody knows do not matter. */
static void
test_cut_end(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp") JOIN(0.5, "a", 1)
			     JOIN(0.5, "b", 2) "{\"t\":0.6,\"ev\":\"unheard-of\"}\n");
	put_clocks(&b, 1, 0, 40, 1);
	put_text(&b, "{\"t\":3.1,\"ev\":\"cl");
	struct outcome o = fit(&b);
	check_good(&o, 2);
	assert_int_equal(o.run.clocks, 35);
	assert_int_equal(fal_trace_end(o.r, &o.diag), FAL_ETRUNC);
	drop(&o);
}

static void
test_many(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	put_text(&b, JOB("bsp"));
	for (unsigned i = 1; i <= FAL_FIT_WORKERS + 1; i++)
		fal_put_fmt(&b,
			    "{\"t\":1,\"ev\":\"join\",\"worker\":\"w%u\",\"id\":%u,"
			    "\"lanes\":[1,1],\"cores\":1}\n",
			    i, i);
	struct outcome o = fit(&b);
	assert_string_equal(o.diag.text, "65538: join.worker: 'w65537' is one more than "
					 "65536");
	assert_int_equal(o.err, FAL_ELIMIT);
	drop(&o);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_uniform),
		cmocka_unit_test(test_straggler),
		cmocka_unit_test(test_own_rounds),
		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_start),
		cmocka_unit_test(test_names),
		cmocka_unit_test(test_stopped_and_resumed),
		cmocka_unit_test(test_idle_clocks),
		cmocka_unit_test(test_hold),
		cmocka_unit_test(test_stream),
		cmocka_unit_test(test_policy_changes),
		cmocka_unit_test(test_long),
		cmocka_unit_test(test_errors),
		cmocka_unit_test(test_hung),
		cmocka_unit_test(test_hung_once),
		cmocka_unit_test(test_cut_end),
		cmocka_unit_test(test_many),
		cmocka_unit_test(test_paces),
		cmocka_unit_test(test_probe),
		cmocka_unit_test(test_all_left),
		cmocka_unit_test(test_turn),
		cmocka_unit_test(test_cut_tasks),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
