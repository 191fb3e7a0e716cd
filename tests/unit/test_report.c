/* The straggler projection of made-up traces whose figures are known. */
#include "report_play.h"

#include "base/rng.h"

static void
test_equal(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "bsp", 4, 16);
	p.coord = 0.001;
	for (size_t i = 0; i < 4; i++)
		p.did[i].push = p.did[i].pull = 0.001;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_int_equal(r.workers, 4);
	assert_near(r.clocks, 19); /* not the one that began with joining */
	assert_near(r.clock, 0.043);
	assert_near(r.clock_median, 0.043);
	assert_near(r.clock_p95, 0.043);
	assert_near(r.part[FAL_REPORT_IDEAL], 0.04);
	assert_near(r.part[FAL_REPORT_GRANULARITY], 0);
	assert_near(r.part[FAL_REPORT_STRAGGLERS], 0);
	assert_near(r.part[FAL_REPORT_COMMUNICATION], 0.002);
	assert_near(r.part[FAL_REPORT_COORDINATION], 0.001);
	for (size_t i = 0; i < 4; i++) {
		const struct fal_report_worker *w = &r.worker[i];
		assert_string_equal(fal_class_name(w->class), "steady");
		assert_true(w->persistent);
		assert_near(w->in_class, 1);
		assert_near(w->slower, 1);
		assert_near(w->finish, 0.042);
		assert_near(w->lag, 0.002);
		assert_near(w->waits[FAL_REPORT_COORDINATOR], 0.001);
		assert_int_equal(w->counts.tasks, 80);
		assert_int_equal(w->counts.in, 20);
		assert_int_equal(w->counts.out, 40);
		assert_int_equal(w->counts.cloned, 60);
		assert_int_equal(w->speeds, 1);
		assert_near(w->speed[0].median, TASK / 0.01);
	}
	FINDINGS(&r, "nothing to mend: 93 % of the time is compute");
	fal_report_free(&r);
}

static void
test_persistent(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	straggle(&p, "bsp");
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	/* 3 · 100 + 25 tasks a second; 3 · 5 + 1 whole ones are over after 50 ms. */
	const double ideal = 16.0 / 325;
	assert_near(r.clock, 0.163);
	assert_near(r.part[FAL_REPORT_IDEAL], ideal);
	assert_near(r.part[FAL_REPORT_GRANULARITY], 0.05 - ideal);
	assert_near(r.part[FAL_REPORT_STRAGGLERS], 0.16 - 0.05);
	assert_near(r.part[FAL_REPORT_COMMUNICATION], 0.002);
	assert_near(r.part[FAL_REPORT_COORDINATION], 0.001);
	const struct fal_report_worker *w = &r.worker[3];
	assert_string_equal(fal_class_name(w->class), "straggler");
	assert_string_equal(fal_cause_name(w->cause), "compute");
	assert_true(w->persistent);
	assert_near(w->in_class, 1);
	assert_near(w->slower, 0.162 / 0.042);
	assert_near(w->lag, 0.162 - ideal);
	assert_near(w->waits[FAL_REPORT_OTHERS], 0);
	assert_near(r.worker[0].waits[FAL_REPORT_OTHERS], 0.12);
	assert_near(r.worker[0].lag, 0.042 - ideal);
	assert_int_equal(w->run, 19);
	FINDINGS(&r, "w4 is a persistent straggler (3.9x slower): give it less to do, as "
		     "epsp does");
	assert_ptr_equal(r.finding[0].worker, w);
	assert_int_equal(r.finding[0].workers, 1);
	assert_near(r.finding[0].share, (0.16 - 0.05) / 0.163);
	fal_report_free(&r);
}

/* A job of `epochs` clocks, each of the whole set, whose batch and task may be larger. */
static void
begin_whole(struct play *p, size_t workers, uint32_t tasks, uint32_t batch, uint32_t task,
	    int epochs)
{
	begin(p, "bsp", workers, tasks);
	fal_buf_clear(&p->b);
	fal_put_fmt(&p->b,
		    "{\"t\":0,\"ev\":\"job\",\"name\":\"toy\",\"epochs\":%d,\"batch\":%u,"
		    "\"task\":%u,\"samples\":%u,\"blocks\":1,\"clocks_per_epoch\":1,"
		    "\"params\":1000,\"clocks\":%d,\"scheme\":\"bsp\","
		    "\"audit\":\"claims\"}\n",
		    epochs, batch, task, tasks * TASK, epochs);
	for (size_t i = 0; i < workers; i++)
		fal_put_fmt(&p->b,
			    "{\"t\":0,\"ev\":\"join\",\"worker\":\"w%zu\",\"id\":%zu,"
			    "\"lanes\":[1,16],\"cores\":16,\"fingerprint\":\"f\"}\n",
			    i + 1, i + 1);
}

/* A batch above the set: a clock has the set's samples, and is told of as such; of few
 * clocks all count but the first. */
static void
test_large_batch(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 40; seed++) {
		struct fal_rng rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
		const size_t workers = 1 + fal_rng_below(&rng, 4);
		const uint32_t tasks = (uint32_t)workers *
				       (1 + fal_rng_below(&rng, 4) / (uint32_t)workers);
		const uint32_t batch = tasks * TASK + fal_rng_below(&rng, 1 << 20);
		const uint32_t task =
			tasks == 1 ? TASK + fal_rng_below(&rng, batch - TASK + 1) : TASK;
		const int clocks = 1 + (int)fal_rng_below(&rng, 4);
		struct fal_report r;
		struct play p;
		begin_whole(&p, workers, tasks, batch, task, clocks);
		p.coord = 0.001;
		for (size_t i = 0; i < workers; i++)
			p.did[i].push = p.did[i].pull = 0.001;
		for (int c = 0; c < clocks; c++)
			clock_of(&p);
		finish(&r, &p);
		const double work = 0.01 * (tasks / (uint32_t)workers);
		assert_int_equal(r.batch, tasks * TASK);
		assert_int_equal(r.task, TASK);
		assert_near(r.clocks, clocks - 1);
		for (size_t i = 0; i < workers; i++) {
			const struct fal_report_worker *w = &r.worker[i];
			assert_near(w->speed[0].median, TASK / 0.01);
			if (clocks > 1)
				assert_near(w->compute, work);
			else
				assert_true(isnan(w->compute) && isnan(w->wait));
		}
		assert_near(r.clock, clocks > 1 ? work + 0.003 : 0);
		assert_near(r.part[FAL_REPORT_IDEAL], clocks > 1 ? work : 0);
		fal_report_free(&r);
	}
}

/* Twice as slow in every fifth clock: steady by its sums. */
static void
test_transient(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "bsp", 4, 16);
	for (int c = 0; c < 41; c++) {
		p.did[3].task_s = c % 5 == 4 ? 0.0199 : 0.01;
		clock_of(&p);
	}
	finish(&r, &p);
	const struct fal_report_worker *w = &r.worker[3];
	assert_string_equal(fal_class_name(w->class), "straggler");
	assert_false(w->persistent);
	assert_near(w->in_class, 0.2);
	assert_near(w->slower, 1.99);
	assert_near(w->speed[0].p10, TASK / 0.0199);
	assert_near(w->speed[0].p90, TASK / 0.01);
	FINDINGS(&r, "w4 is slow at times (2.0x in 20 % of clocks): epsp would move its "
		     "tasks");
	fal_report_free(&r);
}

/* Three with rounds of their own, one of them three times slower; nobody waits but for
 * the coordinator. */
/* A clock in which the speed changed shows both of them, not their mean. */
static void
test_paces(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "epsp", 2, 8);
	p.did[1].task_s = 0.02;
	p.did[1].paces = ",\"paces\":[[2,10000],[2,30000]]";
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	const struct fal_report_speed *s = &r.worker[1].speed[0];
	assert_int_equal(s->clocks, 20);
	assert_near(s->p10, TASK / 0.03);
	assert_near(s->p90, TASK / 0.01);
	assert_near(r.worker[0].speed[0].p90, r.worker[0].speed[0].p10);
	fal_report_free(&r);
}

static void
test_own_rounds(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "asp", 3, 12);
	p.did[2].task_s = 0.03;
	p.did[2].stale = 6;
	for (size_t i = 0; i < 3; i++) {
		p.did[i].push = 0.001;
		p.did[i].wait = i == 2 ? 0.003 : 0.001;
	}
	/* Rounds take 42 ms, and 124 ms: about three of the others for one. */
	for (int c = 0; c < 60; c++) {
		p.t += 0.042;
		round_of(&p, 0, "applied");
		round_of(&p, 1, "applied");
		if (c % 3 == 2)
			round_of(&p, 2, "applied");
	}
	finish(&r, &p);
	assert_false(r.shared);
	assert_true(isnan(r.worker[0].finish));
	assert_true(isnan(r.worker[2].lag));
	assert_near(r.part[FAL_REPORT_GRANULARITY], 0);
	assert_near(r.part[FAL_REPORT_STRAGGLERS], 0);
	/* Of 100 + 100 + 33.3 tasks a second. */
	const double lost = 0.001 * (200.0 / 42 + 100.0 / 3 / 124) +
			    0.001 * (200.0 / 42 + 100.0 / 124);
	const double used = (200 * 40.0 / 42 + 100.0 / 3 * 120 / 124) / 1000 * 1000;
	if (fabs(r.part[FAL_REPORT_IDEAL] / r.clock - used / (used + 1000 * lost)) > 0.01)
		fail_msg("ideal is %g of %g", r.part[FAL_REPORT_IDEAL], r.clock);
	assert_near(r.worker[2].waits[FAL_REPORT_COORDINATOR], 0.003);
	assert_near(r.worker[2].stale, 6);
	assert_true(r.worker[2].persistent);
	FINDINGS(&r, "nothing to mend: 95 % of the time is compute",
		 "w3 is a persistent straggler (3.0x slower): 6 updates stale, 0 under "
		 "epsp (model)");
	fal_report_free(&r);
}

/* Two of three are waited for by the third: not the coordinator's fault. */
static void
test_own_waits(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "ssp:0", 3, 12);
	p.did[2].task_s = 0.03;
	for (int c = 0; c < 30; c++) {
		p.t += 0.121;
		for (size_t i = 0; i < 3; i++) {
			p.did[i].wait = 0.121 - compute_of(&p.did[i]);
			round_of(&p, i, "applied");
		}
	}
	finish(&r, &p);
	assert_near(r.worker[0].waits[FAL_REPORT_OTHERS], 0.08);
	assert_near(r.worker[0].waits[FAL_REPORT_COORDINATOR], 0.001);
	assert_near(r.part[FAL_REPORT_COORDINATION], 0.001);
	assert_near(r.clock, 0.121);
	FINDINGS(&r, "w3 is a persistent straggler (3.0x slower): epsp would move its "
		     "tasks");
	fal_report_free(&r);
}

static void
test_lanes(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "bsp", 2, 16);
	for (int c = 0; c < 20; c++) {
		p.did[0].lanes = p.did[1].lanes = c < 10 ? 1 : 2;
		p.did[1].task_s = c < 10 ? 0.01 : 0.0198; /* two lanes share one core */
		clock_of(&p);
	}
	finish(&r, &p);
	for (size_t i = 0; i < 2; i++) {
		const struct fal_report_speed *s = r.worker[i].speed;
		assert_int_equal(r.worker[i].speeds, 2);
		assert_int_equal(s[0].lanes, 1);
		assert_int_equal(s[1].lanes, 2);
		assert_int_equal(s[0].clocks, 10);
		assert_near(s[0].median, TASK / 0.01);
		assert_near(s[1].median, i == 0 ? 2 * TASK / 0.01 : 2 * TASK / 0.0198);
	}
	assert_int_equal(r.findings, 2);
	assert_string_equal(r.finding[1].text,
			    "w2: no faster at 2 lanes than at 1 (6465 samples/s): bound "
			    "the lanes");
	fal_report_free(&r);
}

/* A window has its own sums; speeds and runs go on; ending twice says the same. */
static void
test_window(void **state)
{
	struct fal_report r = { 0 };
	struct fal_diag diag = { "" };
	struct play p;
	(void)state;
	straggle(&p, "bsp");
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	read_on(&r, &p);
	const double clock = r.clock;
	assert_int_equal(fal_report_end(&r, &diag), 0);
	assert_near(r.clock, clock);
	assert_int_equal(r.workers, 4);
	assert_int_equal(r.findings, 1);

	fal_report_window(&r);
	assert_int_equal(fal_report_end(&r, &diag), 0);
	assert_near(r.clock, 0);
	assert_int_equal(r.findings, 0);
	assert_int_equal(r.workers, 4);

	p.did[3].task_s = 0.01;
	for (int c = 0; c < 5; c++)
		clock_of(&p);
	read_on(&r, &p);
	assert_near(r.clocks, 5);
	assert_near(r.clock, 0.043);
	assert_near(r.seconds, 5 * 0.043);
	assert_int_equal(r.worker[3].clocks, 5);
	assert_int_equal(r.worker[3].counts.tasks, 20);
	assert_string_equal(fal_class_name(r.worker[3].class), "steady");
	assert_int_equal(r.worker[3].speed[0].clocks, 25);
	assert_near(r.worker[3].speed[0].median, TASK / 0.04);
	assert_int_equal(r.worker[0].run, 24);
	fal_trace_reader_free(p.reader);
	fal_report_free(&r);
}

/* Ten minutes of pause are nobody's loss. */
static void
test_hold(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "bsp", 4, 16);
	for (int c = 0; c < 10; c++)
		clock_of(&p);
	fal_put_fmt(&p.b,
		    "{\"t\":%.6f,\"ev\":\"hold\",\"why\":\"paused\",\"by\":\"x\"}\n",
		    p.t);
	p.t += 600;
	fal_put_fmt(&p.b,
		    "{\"t\":%.6f,\"ev\":\"hold\",\"why\":\"resumed\",\"by\":\"x\"}\n",
		    p.t);
	p.coord = 600;
	p.t -= 600;
	clock_of(&p);
	p.coord = 0;
	for (int c = 0; c < 10; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_near(r.clocks, 19);
	assert_near(r.clock, 0.04);
	assert_near(r.clock_p95, 0.04);
	fal_report_free(&r);
}

/* What is said is said of the scheme that holds. */
static void
test_change(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	straggle(&p, "bsp");
	for (int c = 0; c < 10; c++)
		clock_of(&p);
	fal_put_fmt(&p.b,
		    "{\"t\":%.6f,\"ev\":\"policy\",\"clock\":10,\"version\":10,"
		    "\"scheme\":\"epsp\",\"by\":\"x\"}\n",
		    p.t);
	p.did[3].task_s = 0.01;
	for (int c = 0; c < 10; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_string_equal(r.scheme, "epsp");
	assert_near(r.clocks, 9);
	assert_near(r.seconds, 10 * 0.043);
	assert_string_equal(fal_class_name(r.worker[3].class), "steady");
	FINDINGS(&r, "nothing to mend: 93 % of the time is compute");
	fal_report_free(&r);
}

static void
test_refuses(void **state)
{
	struct fal_report r = { 0 };
	struct fal_diag diag = { "" };
	struct play p;
	(void)state;
	assert_int_equal(fal_report_end(&r, &diag), FAL_ETRUNC);
	assert_string_equal(diag.text, "no job line");
	begin(&p, "bsp", 4, 16);
	struct fal_trace_reader *reader = fal_trace_reader_new(fal_report_line, &r);
	assert_int_equal(whole_feed(reader, p.b.p, p.b.n, &diag), 0);
	assert_int_equal(fal_report_end(&r, &diag), FAL_ETRUNC);
	assert_string_equal(diag.text, "no worker has told of a clock");
	static const char bad[] = "{\"t\":1,\"ev\":\"clock\",\"clock\":0,\"id\":9}\n";
	assert_int_equal(whole_feed(reader, bad, sizeof(bad) - 1, &diag), FAL_EINVAL);
	assert_string_equal(diag.text, "6: clock.id: 9 never joined");
	fal_trace_reader_free(reader);
	fal_buf_free(&p.b);
	fal_report_free(&r);
	fal_report_free(&r);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_equal),      cmocka_unit_test(test_persistent),
		cmocka_unit_test(test_transient),  cmocka_unit_test(test_paces),
		cmocka_unit_test(test_own_rounds), cmocka_unit_test(test_own_waits),
		cmocka_unit_test(test_lanes),      cmocka_unit_test(test_window),
		cmocka_unit_test(test_hold),       cmocka_unit_test(test_change),
		cmocka_unit_test(test_refuses),    cmocka_unit_test(test_large_batch),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("report", tests, NULL, NULL);
}
