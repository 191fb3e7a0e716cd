/* From the scheduler's play to a trace, and back: clocks of drawn sizes, which tasks
 * divide or not, are told as the coordinator tells them, and the model that is fitted to
 * that predicts what the same workers take, under this scheme and the other one.  No
 * prediction is above the sum of the workers' speeds.
 *
 * Drawn from SEED, which is printed; FAL_TEST_SEED gives another one. */
#include "sched_play.h"

#include "base/rng.h"
#include "proj/fit.h"
#include "proj/report.h"
#include "proj/simulate.h"
#include "trace/reader.h"
#include "trace/writer.h"
#include "wire/msg.h"

#include <stdlib.h>

enum { MOST = 6 };

static struct fal_rng rng;
static const char *const rules[] = { "bsp", "epsp" };

/* What is drawn. */
static struct drawn {
	struct fal_grid grid;
	uint32_t workers;
	double task_s, fixed, slow[MOST];
	bool probed;
} drawn;

static double
between(double least, double most)
{
	return least + (most - least) * (double)fal_rng_unit(&rng);
}

static void
draw(void)
{
	uint32_t task = 2 + fal_rng_below(&rng, 31);
	uint32_t batch = 4 * task + fal_rng_below(&rng, 36 * task);
	drawn = (struct drawn){
		.grid = { .samples = 59 * batch + 1 + fal_rng_below(&rng, batch),
			  .batch = batch,
			  .task = task,
			  .epochs = 1 },
		.workers = 1 + fal_rng_below(&rng, MOST),
		.task_s = between(5e-3, 0.05),
		.fixed = between(0, 0.6),
		.probed = fal_rng_below(&rng, 2) == 0,
	};
	for (uint32_t i = 0; i < drawn.workers; i++)
		drawn.slow[i] = fal_rng_below(&rng, 2) == 0 ? 1 : between(1, 4);
}

static const char *
about(void)
{
	static char text[200];
	snprintf(text, sizeof(text), "task %u, batch %u, %u workers (%.2f %.2f %.2f), %s",
		 drawn.grid.task, drawn.grid.batch, drawn.workers, drawn.slow[0],
		 drawn.slow[1], drawn.slow[2], drawn.probed ? "probed" : "not probed");
	return text;
}

/* The sum of what they compute in a second, in full tasks. */
static double
speeds(void)
{
	double sum = 0;
	for (uint32_t i = 0; i < drawn.workers; i++)
		sum += fal_grid_full_samples(&drawn.grid) /
		       (drawn.task_s * drawn.slow[i]);
	return sum;
}

/* --- the trace --------------------------------------------------------------------- */

static struct told {
	struct fal_buf line, all;
	char name[MOST + 1][12];
	double began; /* the clock */
} told;

static void
put(void)
{
	fal_put_bytes(&told.all, told.line.p, told.line.n);
	fal_put_u8(&told.all, '\n');
	told.line.n = 0;
}

static void
tell_job(const struct fal_policy *policy)
{
	const struct fal_grid *g = &drawn.grid;
	struct fal_buf rule = { 0 };
	fal_rule_put(&policy->rule, &rule);
	fal_put_u8(&rule, 0);
	const struct fal_ev_job job = { .name = "drawn",
					.hash = "0",
					.seed = "0",
					.epochs = g->epochs,
					.batch = g->batch,
					.task = g->task,
					.samples = g->samples,
					.params = 1,
					.blocks = 1,
					.shards = 1,
					.clocks_per_epoch = fal_grid_epoch_clocks(g),
					.clocks = fal_grid_clocks(g),
					.scheme = (const char *)rule.p,
					.numerics = "fast",
					.optimizer = "sgd",
					.beta1 = (double)NAN,
					.version = "0" };
	const uint64_t lanes[] = { 1, 1 };
	told = (struct told){ .began = 0 };
	fal_trace_put(&told.line, 0, FAL_EV_JOB, &job);
	fal_buf_free(&rule);
	put();
	for (uint32_t i = 0; i < drawn.workers; i++) {
		double task_s = drawn.task_s * drawn.slow[i];
		snprintf(told.name[i + 1], sizeof(*told.name), "w%u", i + 1);
		struct fal_ev_join join = { .worker = told.name[i + 1],
					    .id = i + 1,
					    .key = "work",
					    .key_fingerprint = "f",
					    .fingerprint = "f",
					    .lanes = { lanes, 2 },
					    .cores = 1,
					    .large_s = (double)NAN };
		if (drawn.probed) {
			join.task_s = task_s;
			join.large = 8 * drawn.grid.task;
			join.large_s = task_s * fal_bound_task_size(drawn.fixed, 8);
		}
		fal_trace_put(&told.line, 0, FAL_EV_JOIN, &join);
		put();
	}
}

static void
tell_clock(const struct fal_act *a)
{
	double compute = 0, link = play.link_s, all = play.now - told.began;
	for (uint32_t i = 0; i < a->work.paces; i++)
		compute += a->work.pace[i].seconds;
	link = compute > 0 ? link : 0;
	struct fal_ev_clock m = { .worker = told.name[a->worker],
				  .id = a->worker,
				  .clock = a->clock,
				  .round = FAL_TRACE_ABSENT,
				  .lanes = 1,
				  .compute = compute,
				  .push = link,
				  .push_all = link,
				  .pull = link,
				  .pull_all = link,
				  .wait = fmax(all - compute - 2 * link, 0) };
	fal_line_clock(&told.line, play.now, &a->work, &m);
	put();
}

static void
tell(const struct fal_act *a)
{
	if (a->kind == FAL_ACT_ACCOUNT)
		tell_clock(a);
	if (a->kind != FAL_ACT_STEP)
		return;
	const struct fal_line_update d = { .pushes = 0 };
	struct fal_ev_update line = { .version = a->clock + 1,
				      .clock = a->clock,
				      .rounds = { &a->clock, 1 },
				      .epoch = 1,
				      .samples = (uint32_t)a->divisor };
	fal_line_update(&told.line, play.now, &d, &line);
	put();
	told.began = play.now;
}

/* Plays the rule on what is drawn: its trace is in told.all. */
static void
play_drawn(const char *rule)
{
	struct fal_policy policy = { 0 };
	struct fal_diag diag;
	play_begin(rule, &drawn.grid);
	play_check(fal_rule_parse(rule, &policy.rule, &diag), 0, rule);
	tell_job(&policy);
	play.task_s = drawn.task_s;
	play.fixed = drawn.fixed;
	for (uint32_t i = 0; i < drawn.workers; i++) {
		play_join(drawn.slow[i]);
		struct fal_worker *w = play_its(i + 1);
		w->probe_s = drawn.task_s * drawn.slow[i];
		w->fixed = drawn.probed ? drawn.fixed : (double)NAN;
	}
	play.on_act = tell;
	play_run(fal_grid_clocks(&drawn.grid), INFINITY);
	play_end(NULL);
	play_check(told.all.err, 0, "the trace");
}

static void
read_by(int (*on_line)(void *arg, struct fal_trace_line *l), void *arg)
{
	struct fal_diag diag = { "" };
	struct fal_trace_reader *r = fal_trace_reader_new(on_line, arg);
	if (fal_trace_feed(r, told.all.p, told.all.n, &diag) < 0)
		fail_msg("%s: %s", about(), diag.text);
	fal_trace_reader_free(r);
}

static void
forget(void)
{
	fal_buf_free(&told.line);
	fal_buf_free(&told.all);
}

/* --- what it says ------------------------------------------------------------------ */

/* The model of what ran, and what it took. */
static void
fit(struct fal_cost *cost, struct fal_fit_run *run)
{
	struct fal_diag diag = { "" };
	struct fal_fit *f = fal_fit_new();
	read_by(fal_fit_line, f);
	if (fal_fit_end(f, cost, run, &diag) < 0)
		fail_msg("%s: %s", about(), diag.text);
	fal_fit_free(f);
}

/* Seconds of an epoch, predicted; never more than all speeds. */
static double
predict(const struct fal_cost *cost, const char *rule)
{
	struct fal_policy policy = { 0 };
	struct fal_diag diag;
	struct fal_simulation p;
	play_check(fal_rule_parse(rule, &policy.rule, &diag), 0, rule);
	play_check(fal_predict(cost, &policy, &p), 0, rule);
	const double rate = p.samples / p.seconds, most = fal_cost_speed(cost);
	if (rate > most * (1 + 5e-4)) /* the trace has whole microseconds */
		fail_msg("%s: %s: %.1f samples/s of %.1f", about(), rule, rate, most);
	return fal_simulation_epoch_s(&p, &cost->grid);
}

static void
is_near(double is, double want, double tol, const char *what)
{
	if (!(fabs(is / want - 1) <= tol))
		fail_msg("%s: %s: %.4g, want %.4g", about(), what, is, want);
}

/* Every speed in the report is one of full tasks. */
static void
report(void)
{
	struct fal_diag diag = { "" };
	struct fal_report r = { 0 };
	double sum = 0;
	read_by(fal_report_line, &r);
	if (fal_report_end(&r, &diag) < 0)
		fail_msg("%s: %s", about(), diag.text);
	for (size_t i = 0; i < r.workers; i++)
		if (r.worker[i].speeds > 0)
			sum += r.worker[i].speed[0].median;
	if (sum > speeds() * 1.001)
		fail_msg("%s: %.1f samples/s of %.1f", about(), sum, speeds());
	fal_report_free(&r);
}

/* Whether each machine ran enough to be known. */
static bool
all_ran(const struct fal_cost *c)
{
	for (size_t i = 0; i < c->machines; i++)
		if (!(c->machine[i].tasks > 2))
			return false;
	return true;
}

/* Plays `rule`, fits, and predicts each of these, if all is known. */
static double
from(const char *rule, double said[static 2], bool *known)
{
	static const char *const others[] = { "asp",  "ssp:3",    "syncopt:1", "flexrr",
					      "wbsp", "groups:2", "epsp:2" };
	struct fal_cost cost;
	struct fal_fit_run run;
	play_drawn(rule);
	fit(&cost, &run);
	/* Without a probe, who always has the same mix of tasks tells one sum of two
	 * parts. */
	*known = drawn.probed && all_ran(&cost);
	if (*known)
		is_near(fal_cost_speed(&cost), speeds(), 0.01, "the sum of speeds");
	for (size_t to = 0; to < 2; to++)
		said[to] = predict(&cost, rules[to]);
	for (size_t i = 0; i < sizeof(others) / sizeof(*others); i++)
		predict(&cost, others[i]);
	report();
	fal_cost_free(&cost);
	forget();
	return run.epoch_s;
}

static void
there_and_back(void **state)
{
	(void)state;
	for (int k = 0; k < 30; k++) {
		double took[2], said[2][2];
		bool known[2];
		draw();
		for (size_t i = 0; i < 2; i++)
			took[i] = from(rules[i], said[i], &known[i]);
		for (size_t i = 0; i < 2; i++)
			for (size_t to = 0; to < 2 && known[i]; to++)
				is_near(said[i][to], took[to], 0.04, rules[to]);
	}
}

int
main(void)
{
	const char *text = getenv("FAL_TEST_SEED");
	const uint64_t seed = text != NULL ? strtoull(text, NULL, 10) : 1;
	const struct CMUnitTest tests[] = {
		cmocka_unit_test_teardown(there_and_back, play_end),
	};
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
	cmocka_set_message_output(CM_OUTPUT_TAP);
	print_message("# seed %llu\n", (unsigned long long)seed);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
