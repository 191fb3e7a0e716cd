/* The advice of a report: each sentence where it is due, and nowhere else. */
#include "report_play.h"

#include "base/rng.h"

/* A job is not told to do what it does. */
static void
test_epsp(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	straggle(&p, "epsp");
	for (size_t i = 0; i < 3; i++)
		p.did[i].tasks = p.did[i].share = 5;
	p.did[3].tasks = p.did[3].share = 1;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_near(r.part[FAL_REPORT_GRANULARITY], 0.05 - 16.0 / 325);
	assert_near(r.part[FAL_REPORT_STRAGGLERS], 0);
	FINDINGS(&r,
		 "w4 is a persistent straggler (3.9x slower): epsp gives it fewer tasks "
		 "already",
		 "nothing to mend: 93 % of the time is compute");
	fal_report_free(&r);

	/* It could not help: the tasks had begun. */
	straggle(&p, "epsp:1");
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_near(r.part[FAL_REPORT_GRANULARITY], 0);
	FINDINGS(&r, "w4 is a persistent straggler (3.9x slower): epsp:2 would let the "
		     "others go on (model)");
	fal_report_free(&r);

	/* Everybody is last in turn, by a little. */
	begin(&p, "epsp", 4, 64);
	for (size_t c = 0; c < 40; c++) {
		for (size_t i = 0; i < 4; i++)
			p.did[i].task_s = i == c % 4 ? 0.0115 : 0.01;
		clock_of(&p);
	}
	finish(&r, &p);
	FINDINGS(&r,
		 "8 % of the clock waits for the last tasks: epsp:1/8 would let others "
		 "go on (model)");
	fal_report_free(&r);
}

/* Of four rounds of a version one is dropped when it had claimed all. */
static void
test_dropped(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "syncopt:1", 4, 16);
	for (int c = 0; c < 30; c++) {
		p.t += 0.04;
		for (size_t i = 0; i < 4; i++)
			round_of(&p, i, (size_t)c % 4 == i ? "dropped" : "applied");
	}
	finish(&r, &p);
	/* The window's first lines and rounds are not those of the same clocks. */
	if (fabs(r.part[FAL_REPORT_EXTRA] / r.clock - 0.25) > 0.02)
		fail_msg("extra is %g of %g", r.part[FAL_REPORT_EXTRA], r.clock);
	assert_near(r.part[FAL_REPORT_IDEAL] + r.part[FAL_REPORT_EXTRA], r.clock);
	assert_int_equal(r.findings, 1);
	assert_string_equal(r.finding[0].kind, "unused");
	fal_report_free(&r);
}

/* 24 tasks on 16 lanes take two turns where one and a half would do. */
static void
test_granularity(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "epsp", 2, 24);
	p.did[0].lanes = p.did[1].lanes = 8;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_near(r.clock, 0.02);
	assert_near(r.part[FAL_REPORT_IDEAL], 0.015);
	assert_near(r.part[FAL_REPORT_GRANULARITY], 0.005);
	assert_near(r.part[FAL_REPORT_STRAGGLERS], 0);
	FINDINGS(&r, "tasks of 64 samples leave 25 % idle at 16 lanes: batch.task = 32 "
		     "would leave 0.0 % (model)");
	fal_report_free(&r);

	/* No sharing of the median clock loses it: somebody is always slow. */
	begin(&p, "epsp", 4, 16);
	for (size_t c = 0; c < 40; c++) {
		for (size_t i = 0; i < 4; i++)
			p.did[i].task_s = i == c % 4 ? 0.0115 : 0.01;
		clock_of(&p);
	}
	finish(&r, &p);
	FINDINGS(&r, "tasks of 64 samples leave 10 % idle at 4 lanes: batch.task = 16 "
		     "would leave 2.5 % (model)");
	fal_report_free(&r);

	/* As many tasks as lanes: nothing is left. */
	begin(&p, "epsp", 2, 16);
	p.did[0].lanes = p.did[1].lanes = 8;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_near(r.part[FAL_REPORT_GRANULARITY], 0);
	FINDINGS(&r, "nothing to mend: 100 % of the time is compute");
	fal_report_free(&r);
}

/* Tasks of 64 samples take 10 ms, 4 of which no sample does; a lane does 4 of them. */
static void
test_small_tasks(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin_probed(&p, "epsp", 2, 8,
		     ",\"task_s\":0.01,\"large\":512,\"large_s\":0.052");
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_near(r.worker[1].row->fixed, 0.4);
	assert_near(r.clock, 0.04);
	assert_near(r.part[FAL_REPORT_SMALL_TASKS], 0.012); /* 3 of 4 times */
	assert_near(r.part[FAL_REPORT_IDEAL], 0.028);
	FINDINGS(&r, "30 % of the clock is lost to tasks of only 64 samples: larger ones "
		     "would not share as well");
	fal_report_free(&r);

	/* Of 16 a lane four may become one. */
	begin_probed(&p, "epsp", 2, 32,
		     ",\"task_s\":0.01,\"large\":512,\"large_s\":0.052");
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_near(r.part[FAL_REPORT_SMALL_TASKS], 0.06);
	FINDINGS(&r,
		 "38 % of the clock is lost to tasks of only 64 samples: batch.task = "
		 "256 saves 30 % (model)");
	fal_report_free(&r);
}

static void
test_links(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	/* One of four pushes 30 ms of 70 while the others wait. */
	begin(&p, "bsp", 4, 16);
	p.did[1].push = 0.03;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_string_equal(fal_cause_name(r.worker[1].cause), "push");
	FINDINGS(&r, "w2 spends 43 % of the time pushing: a faster link would mend it");
	fal_report_free(&r);

	/* All wait 30 ms of 70 for round trips of one of them, and nobody for the
	 * coordinator; where tasks may move there are two in a clock. */
	for (int moves = 0; moves < 2; moves++) {
		begin(&p, moves ? "epsp" : "bsp", 4, 16);
		p.coord = 0.03;
		p.did[1].paces = moves ? ",\"rtt\":0.015" : ",\"rtt\":0.03";
		for (int c = 0; c < 20; c++)
			clock_of(&p);
		finish(&r, &p);
		assert_string_equal(fal_class_name(r.worker[1].class), "straggler");
		assert_string_equal(fal_cause_name(r.worker[1].cause), "latency");
		assert_string_equal(fal_class_name(r.worker[0].class), "steady");
		assert_near(r.worker[1].waits[FAL_REPORT_LATENCY], 0.03);
		assert_near(r.worker[0].waits[FAL_REPORT_OTHERS], 0.03);
		assert_near(r.part[FAL_REPORT_COORDINATION], 0);
		FINDINGS(&r, "w2 spends 43 % of the time on latency of the link: epsp:1 "
			     "would overlap it (model)");
		fal_report_free(&r);
	}

	/* It is so far that it gets no task, and its lines come five clocks late. */
	begin(&p, "epsp", 4, 15);
	for (size_t i = 0; i < 3; i++)
		p.did[i].tasks = p.did[i].share = 5;
	p.did[3] = (struct did){ .lanes = 1, .wait = 0.05, .paces = ",\"rtt\":0.3" };
	for (int c = 0; c < 40; c++) {
		p.workers = 3;
		clock_of(&p);
		p.workers = 4;
		if (c < 5)
			continue;
		p.clock -= 6;
		tell(&p, 3, false);
		p.clock += 6;
	}
	finish(&r, &p);
	assert_string_equal(fal_class_name(r.worker[3].class), "straggler");
	assert_string_equal(fal_cause_name(r.worker[3].cause), "latency");
	assert_near(r.worker[3].waits[FAL_REPORT_LATENCY], 0.05);
	fal_report_free(&r);

	/* It pushes 3 bytes of a parameter at 100 MB/s, and would round four tasks. */
	begin(&p, "bsp", 4, 16);
	p.did[1].push = 0.03;
	p.did[1].paces = ",\"tx\":3000000,\"push_all\":0.03";
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_near(r.worker[1].rate, 1e8);
	assert_near(r.worker[1].fewer_bits, 1e6 / (4 * 1e6 * 1e-9));
	FINDINGS(
		&r, "w2 spends 43 % of the time pushing: a faster link would mend it",
		"w2 pushes 100.0 MB/s: push.bits = 16 pays below 250 MB/s, by a third of "
		"the bytes (model)");
	fal_report_free(&r);

	/* At 300 MB/s it would lose; with 2 bytes it has fewer already. */
	for (int k = 0; k < 2; k++) {
		begin(&p, "bsp", 4, 16);
		p.did[1].push = 0.03;
		p.did[1].paces = k == 0 ? ",\"tx\":3000000,\"push_all\":0.01"
					: ",\"tx\":2000000,\"push_all\":0.03";
		for (int c = 0; c < 20; c++)
			clock_of(&p);
		finish(&r, &p);
		assert_int_equal(isnan(r.worker[1].fewer_bits), k);
		FINDINGS(&r, "w2 spends 43 % of the time pushing: a faster link would "
			     "mend it");
		fal_report_free(&r);
	}

	/* All pull. */
	begin(&p, "bsp", 4, 16);
	for (size_t i = 0; i < 4; i++)
		p.did[i].pull = 0.0102;
	p.did[2].pull = 0.0105;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	FINDINGS(&r, "w3, w1, w2 and w4 spend 21 % of the time pulling: epsp:5/16 would "
		     "overlap "
		     "it (model)");
	fal_report_free(&r);

	begin(&p, "bsp", 4, 16);
	p.coord = 0.005;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	FINDINGS(&r,
		 "the coordinator takes 11 % of a clock (5.0 ms): epsp:1/8 would overlap "
		 "it (model)");
	fal_report_free(&r);
}

static void
test_spare(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "epsp", 3, 12);
	for (int c = 0; c < 20; c++) {
		const uint32_t n = c < 4 ? 4 : 0;
		p.did[2].tasks = p.did[2].share = n;
		p.did[0].tasks = p.did[1].tasks = n > 0 ? 4 : 6;
		clock_of(&p);
	}
	finish(&r, &p);
	assert_near(r.worker[2].idle, 16.0 / 19);
	assert_int_equal(r.findings, 1);
	assert_string_equal(r.finding[0].text,
			    "w3 had no task in 84 % of clocks: the job can spare it");
	if (!(r.part[FAL_REPORT_STANDBY] > 0.01))
		fail_msg("standby is %g s", r.part[FAL_REPORT_STANDBY]);
	fal_report_free(&r);
}

static void
test_waiting(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "bsp", 4, 64);
	for (size_t c = 0; c < 40; c++) {
		for (size_t i = 0; i < 4; i++)
			p.did[i].task_s = i == c % 4 ? 0.0115 : 0.01;
		clock_of(&p);
	}
	finish(&r, &p);
	FINDINGS(&r,
		 "8 % of the clock waits for the last, not always the same: epsp moves "
		 "tasks");
	fal_report_free(&r);

	/* It is always the same, though not slow enough to be a straggler. */
	begin(&p, "bsp", 4, 64);
	p.did[2].task_s = 0.0115;
	for (size_t c = 0; c < 40; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_string_equal(fal_class_name(r.worker[2].class), "steady");
	FINDINGS(&r, "8 % of the clock waits for w3: epsp moves tasks");
	fal_report_free(&r);
}

/* Half are half as fast; alike ones are named together. */
static void
test_two_classes(void **state)
{
	struct fal_report r;
	struct play p;
	(void)state;
	begin(&p, "bsp", 4, 64);
	p.did[1].task_s = 0.02;
	p.did[2].task_s = 0.0201;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	assert_string_equal(fal_class_name(r.worker[0].class), "pioneer");
	FINDINGS(&r, "w3 and w2 are persistent stragglers (1.3x slower): give them "
		     "less to do, as epsp does");
	assert_int_equal(r.finding[0].workers, 2);
	assert_string_equal(r.finding[0].worker->row->name, "w3");
	fal_report_free(&r);

	/* Nobody waits for anybody. */
	begin(&p, "wbsp", 2, 8);
	for (int c = 0; c < 60; c++) {
		p.t += 0.04;
		p.did[1].task_s = c % 4 == 0 ? 0.03 : 0.01;
		p.did[0].task_s = c % 4 == 2 ? 0.03 : 0.01;
		round_of(&p, 0, "applied");
		round_of(&p, 1, "applied");
	}
	finish(&r, &p);
	assert_int_equal(r.findings, 2);
	assert_string_equal(r.finding[0].kind, "straggler");
	if (strstr(r.finding[0].text, ": nobody waits for them") == NULL)
		fail_msg("'%s'", r.finding[0].text);
	assert_string_equal(r.finding[1].kind, "well");
	fal_report_free(&r);
}

/* All that are meant are named, as far as there is room. */
static void
test_names(void **state)
{
	(void)state;
	struct fal_report r;
	struct play p;
	begin(&p, "bsp", 8, 32);
	for (size_t i = 0; i < 5; i++)
		p.did[7 - i].push = 0.05 + 0.01 * (double)i;
	for (int c = 0; c < 20; c++)
		clock_of(&p);
	finish(&r, &p);
	FINDINGS(&r, "w4, w5, w6, w7 and w8 spend 69 % of the time pushing: epsp:1 would "
		     "overlap it (model)");
	assert_int_equal(r.finding[0].workers, 5);
	fal_report_free(&r);

	/* Names of 37 bytes: of five two fit.  Of 52 and 53: one does, and misses by a
	 * byte. */
	static const struct {
		size_t workers;
		const char *longer, *want;
	} names[] = {
		{ 5, "-with-a-name-of-so-many-characters-",
		  "w-with-a-name-of-so-many-characters-4, "
		  "w-with-a-name-of-so-many-characters-5 and 3 more spend 69 %" },
		{ 2, "-with-a-name-of-so-many-characters-and-15-more-is-",
		  "w-with-a-name-of-so-many-characters-and-15-more-is-7 and 1 more "
		  "spend 60 %" },
	};
	for (size_t k = 0; k < 2; k++) {
		static const char join[] = "\"worker\":\"w";
		begin(&p, "bsp", 8, 32);
		for (size_t i = 0; i < names[k].workers; i++)
			p.did[7 - i].push = 0.05 + 0.01 * (double)i;
		for (int c = 0; c < 20; c++)
			clock_of(&p);
		struct fal_buf long_names = { 0 };
		for (size_t i = 0; i < p.b.n; i++) {
			fal_put_u8(&long_names, p.b.p[i]);
			if (i + 1 >= sizeof(join) - 1 &&
			    memcmp(p.b.p + i + 2 - sizeof(join), join,
				   sizeof(join) - 1) == 0)
				fal_put_fmt(&long_names, "%s%s", names[k].longer,
					    k > 0 && p.b.p[i + 1] == '8' ? "x" : "");
		}
		fal_buf_free(&p.b);
		p.b = long_names;
		finish(&r, &p);
		if (strncmp(r.finding[0].text, names[k].want, strlen(names[k].want)) != 0)
			fail_msg("'%s'", r.finding[0].text);
		fal_report_free(&r);
	}
}

/* Who stands still now and then is not slow, and somebody is told; twice may be chance.
 */
static void
test_stalls(void **state)
{
	(void)state;
	for (unsigned times = 2; times < 5; times++) {
		struct fal_report r;
		struct play p;
		begin(&p, "bsp", 4, 16);
		for (unsigned c = 0; c < 80; c++) {
			clock_of(&p);
			if (c % 18 != 17 || c / 18 >= times)
				continue;
			fal_put_fmt(&p.b,
				    "{\"t\":%.6f,\"ev\":\"suspect\",\"worker\":\"w2\","
				    "\"id\":2,\"owes\":\"task\",\"why\":\"so\","
				    "\"seconds\":0.3}\n{\"t\":%.6f,\"ev\":\"back\","
				    "\"worker\":\"w2\",\"id\":2,\"why\":\"so\","
				    "\"seconds\":0.2}\n",
				    p.t + 0.3, p.t + 0.5);
			p.t += 0.6;
		}
		finish(&r, &p);
		const bool stalls = times > 2;
		assert_string_equal(fal_class_name(r.worker[1].class),
				    stalls ? "stalls" : "steady");
		assert_string_equal(fal_class_name(r.worker[0].class), "steady");
		if (stalls != (strncmp(r.finding[0].text,
				       "w2 stood still again and again", 30) == 0))
			fail_msg("%u times: '%s'", times, r.finding[0].text);
		fal_report_free(&r);
	}

	/* Long tasks, and no deadline that was passed: rarely, but it costs a tenth. */
	struct fal_report r;
	struct play p;
	begin(&p, "bsp", 4, 16);
	for (unsigned c = 0; c < 80; c++) {
		p.did[1].task_s = c % 26 == 25 ? 0.16 : 0.01;
		clock_of(&p);
	}
	finish(&r, &p);
	assert_string_equal(fal_class_name(r.worker[1].class), "stalls");
	assert_int_equal(r.worker[1].stalls, 3);
	fal_report_free(&r);

	/* Each time it is a suspect and slow, which is once; and nobody else is last. */
	begin(&p, "bsp", 4, 16);
	for (unsigned c = 0; c < 80; c++) {
		p.did[1].task_s = c % 11 == 9 ? 0.04 : 0.01;
		clock_of(&p);
		if (c % 11 == 9)
			fal_put_fmt(&p.b,
				    "{\"t\":%.6f,\"ev\":\"suspect\",\"worker\":\"w2\","
				    "\"id\":2,\"owes\":\"task\",\"why\":\"so\","
				    "\"seconds\":0.1}\n{\"t\":%.6f,\"ev\":\"back\","
				    "\"worker\":\"w2\",\"id\":2,\"why\":\"so\","
				    "\"seconds\":0}\n",
				    p.t, p.t);
	}
	finish(&r, &p);
	assert_true(r.part[FAL_REPORT_STRAGGLERS] > 0.05 * r.clock);
	FINDINGS(&r, "w2 stood still again and again (7 times): not slow, but held up");
	fal_report_free(&r);
}

/* Equal machines whose clocks differ by 15 %: nobody is anything but steady. */
static void
test_jitter(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= 10; seed++) {
		struct fal_rng rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
		struct fal_report r;
		struct play p;
		begin(&p, "bsp", 4, 16);
		for (int c = 0; c < 80; c++) {
			for (size_t i = 0; i < 4; i++) {
				double normal = -6;
				for (int k = 0; k < 12; k++)
					normal += (double)fal_rng_unit(&rng);
				p.did[i].task_s = 0.01 * fmax(1 + 0.15 * normal, 0.1);
			}
			clock_of(&p);
		}
		finish(&r, &p);
		for (size_t i = 0; i < 4; i++)
			if (r.worker[i].class != FAL_CLASS_STEADY)
				fail_msg("seed %llu: w%zu is '%s'",
					 (unsigned long long)seed, i + 1,
					 fal_class_name(r.worker[i].class));
		fal_report_free(&r);
	}
}

/* What alters the model comes last, whatever it saves, and says what slack costs where
 * there is momentum. */
static void
test_other_models(void **state)
{
	(void)state;
	static const char sgd[] = "\"scheme\":\"bsp\"";
	for (int momentum = 0; momentum < 2; momentum++) {
		struct fal_report r;
		struct play p;
		begin(&p, "bsp", 4, 16);
		if (momentum) {
			struct fal_buf b = { 0 };
			const char *at = strstr((const char *)p.b.p, sgd);
			assert_non_null(at);
			fal_put_bytes(&b, p.b.p, (size_t)(at - (const char *)p.b.p));
			fal_put_fmt(&b, "\"optimizer\":\"nesterov\",\"momentum\":0.9,");
			fal_put_bytes(&b, at, p.b.n - (size_t)(at - (const char *)p.b.p));
			fal_buf_free(&p.b);
			p.b = b;
		}
		p.coord = 0.06;
		p.did[1].task_s = 0.015;
		for (int c = 0; c < 20; c++)
			clock_of(&p);
		finish(&r, &p);
		assert_true(r.findings > 1);
		assert_string_equal(r.finding[0].kind, "straggler");
		assert_null(strstr(r.finding[0].text, "(model)"));
		assert_non_null(
			strstr(r.finding[1].text, "epsp:1 would overlap it (model)"));
		const char *bound = strstr(r.finding[1].text,
					   "; slack 1 with momentum 0.9: stable learning "
					   "rates are up to ");
		assert_int_equal(bound != NULL, momentum);
		fal_report_free(&r);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_epsp),        cmocka_unit_test(test_dropped),
		cmocka_unit_test(test_granularity), cmocka_unit_test(test_small_tasks),
		cmocka_unit_test(test_links),       cmocka_unit_test(test_spare),
		cmocka_unit_test(test_waiting),     cmocka_unit_test(test_two_classes),
		cmocka_unit_test(test_names),       cmocka_unit_test(test_stalls),
		cmocka_unit_test(test_jitter),      cmocka_unit_test(test_other_models),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("report advice", tests, NULL, NULL);
}
