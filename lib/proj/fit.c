/* Fits a cost model to a trace: collects reports from its lines, then computes the model.
 */
#include "proj/fit.h"

#include "base/mem.h"
#include "base/oversubscription.h"
#include "base/quantile.h"
#include "job/policy.h"
#include "sched/policy.h"
#include "sched/sched.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A worker's report of a clock, or of a round of its own.  A line with several paces
 * makes one report for each. */
struct fit_report {
	uint32_t clock;
	uint32_t hang; /* the number of the hang that the report stands for; 0: none */
	float tasks, samples, seconds;
	float task_s; /* mean, at one lane a core; 0: no task ran */
	/* Values of the whole line.  In its later reports turn is NAN, and pull and push
	 * are 0. */
	float turn, ran, pull, push;
	float cut, cut_s; /* of the whole line, in its last report, else 0: cancelled
			     tasks, and their seconds on a lane */
};

/* A worker by name.  A session that joins after an earlier one of its name has left
 * continues the row. */
struct fit_worker {
	char *name;
	bool left;
	uint64_t left_after; /* updates */
	uint32_t lanes_min, lanes_max, lanes, cores;
	double fixed;              /* by its probe; NAN: not known */
	double rtt;                /* of its link, in its last line; 0: not known */
	struct fit_report *report; /* grows to a ring of FAL_FIT_CLOCKS */
	size_t cap;
	uint64_t n;          /* reports so far */
	double t;            /* of its last clock line, or of its join */
	bool suspect, stuck; /* stuck: it was a suspect when it left */
	uint32_t hangs;      /* times that it became a suspect */
	double since;        /* when the suspect's deadline began */
	/* seconds since `t` in which the worker was a suspect, counted up to its last
	 * `back` line */
	double hung;
	uint64_t breaks; /* of struct fal_fit, at its last line */
};

/* The last values of a quantity. */
struct fit_ring {
	float v[FAL_FIT_CLOCKS];
	uint64_t n;
};

/* A clock with a shared round. */
struct fit_clock {
	uint64_t number; /* from 1; 0: none */
	double seconds;  /* between its update and the update before; 0: does not count */
	double busy;     /* the longest time that a worker computed, pulled and pushed */
};

struct fal_fit {
	struct fal_optim optim;
	bool has_job;
	bool is_group; /* the trace of a group server, which makes no versions */
	struct fal_trace_job job;
	struct fit_worker *worker;
	size_t workers, cap;
	json_t *names;      /* the last row of each name (fal_names_put) */
	struct fal_ids ids; /* session → index of worker */

	char scheme[128];
	struct fal_policy policy;
	uint64_t begin; /* the policy's first clock */
	bool shared;    /* its rounds are shared */

	bool held, stopped;
	uint64_t updates, newest; /* newest: the clock of the last one */
	uint64_t breaks;          /* events that disturb the time between two updates */
	uint64_t last_breaks;     /* at the last update */
	double last_t;            /* of the last update; below 0: none yet */

	uint64_t suspects;        /* at present */
	uint64_t suspicions;      /* changes of a worker's suspicion */
	uint64_t last_suspicions; /* at the last update */

	/* Under the policy: clocks in all; sums over the lines that count; sums over the
	 * clocks that count, apart for those with a suspect. */
	double since, compute, spent;
	struct fit_sums {
		double counted, seconds, samples;
	} hung, well;
	uint64_t from; /* the first clock that counts */

	struct fit_clock clock[FAL_FIT_CLOCKS]; /* by number, a ring */
	/* Values of clock lines; wait: only of lines with a round of the worker's own. */
	struct fit_ring tx, rx, wait;
};

/* Converts seconds of a task from `from` to `to` running lanes. */
static double
fit_at_lanes(double task_s, uint32_t cores, uint32_t from, uint32_t to)
{
	return task_s * fal_oversubscription(to, cores) /
	       fal_oversubscription(from, cores);
}

struct fal_fit *
fal_fit_new(void)
{
	struct fal_fit *f = fal_xcalloc(1, sizeof(*f));
	f->last_t = -1;
	return f;
}

void
fal_fit_free(struct fal_fit *f)
{
	if (f == NULL)
		return;
	for (size_t i = 0; i < f->workers; i++) {
		free(f->worker[i].name);
		free(f->worker[i].report);
	}
	free(f->worker);
	json_decref(f->names);
	fal_ids_free(&f->ids);
	fal_policy_free(&f->policy);
	free(f);
}

/* ---- workers and policy ---------------------------------------------------------- */

/* Takes over *p and its memory as the policy from clock `begin` on. */
static void
fit_set_policy(struct fal_fit *f, const char *scheme, struct fal_policy *p,
	       uint64_t begin)
{
	snprintf(f->scheme, sizeof(f->scheme), "%s", scheme);
	fal_policy_free(&f->policy);
	f->policy = *p;
	f->shared = fal_rule_traits(&p->rule).shared;
	f->begin = begin;
	f->breaks++;
	f->wait.n = 0;
	f->since = f->compute = f->spent = 0;
	f->hung = f->well = (struct fit_sums){ 0 };
	f->from = UINT64_MAX;
}

void
fal_fit_optim(struct fal_trace_line *l, struct fal_optim *o)
{
	const struct fal_ev_job *e = &l->is.job;
	for (int i = 0; i < FAL_OPTIMS; i++)
		if (strcmp(e->optimizer, fal_optim_name((enum fal_optim_kind)i)) == 0)
			o->kind = (enum fal_optim_kind)i;
	const bool adam = o->kind == FAL_ADAMW;
	const double m = adam ? e->beta1 : e->momentum;
	if (o->kind == FAL_SGD || o->kind == FAL_ADAGRAD)
		return;
	if (!(m < 1 && (m > 0 || (adam && m == 0))))
		fal_trace_fail(l, FAL_EINVAL, "%s: not above 0 and below 1",
			       adam ? "beta1" : "momentum");
	o->momentum = (float)m;
	o->one_momentum = e->momentum_per != 0;
	o->beta1 = m;
}

static int
fit_take_job(struct fal_fit *f, struct fal_trace_line *l)
{
	struct fal_trace_job j;
	struct fal_policy p = { 0 };
	if (fal_trace_job_read(l, &j) < 0 ||
	    fal_trace_scheme_read(l, l->is.job.scheme, &p.rule) < 0)
		return l->err;
	if (j.clocks > UINT32_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "clocks: above %u", UINT32_MAX);
	f->job = j;
	f->has_job = true;
	f->is_group = l->is.job.above != NULL;
	fit_set_policy(f, l->is.job.scheme, &p, 0);
	fal_fit_optim(l, &f->optim);
	return l->err;
}

static void
fit_set_suspect(struct fal_fit *f, struct fit_worker *w, bool suspect)
{
	f->suspects += (uint64_t)suspect - (uint64_t)w->suspect;
	f->suspicions++;
	w->suspect = suspect;
}

/* A restart ends all sessions and holds; the job may have more epochs. */
static int
fit_take_restart(struct fal_fit *f, struct fal_trace_line *l)
{
	if (fal_trace_job_restart(l, &f->job) < 0)
		return l->err;
	for (size_t i = 0; i < f->workers; i++) {
		struct fit_worker *w = &f->worker[i];
		if (!w->left)
			w->left_after = f->updates;
		w->left = true;
		fit_set_suspect(f, w, false);
	}
	f->held = f->stopped = false;
	f->breaks++;
	if (f->job.clocks > UINT32_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "epochs: too many");
	return 0;
}

static int
fit_take_policy(struct fal_fit *f, struct fal_trace_line *l)
{
	const struct fal_ev_policy *e = &l->is.policy;
	struct fal_policy p = { 0 };
	if (e->policy.p != NULL) {
		struct fal_diag why = { "out of memory" };
		const struct fal_policy none = { 0 };
		struct fal_policy_text in = { "policy", 1, e->policy.p, e->policy.n };
		int err = fal_policy_json_get(&in, &none, &p, &why);
		if (err < 0)
			fal_trace_fail(l, err, "%s", why.text);
	}
	if (fal_trace_scheme_read(l, e->scheme, &p.rule) < 0)
		fal_policy_free(&p);
	else
		fit_set_policy(f, e->scheme, &p, e->clock);
	return l->err;
}

static int
fit_take_join(struct fal_fit *f, struct fal_trace_line *l)
{
	const struct fal_ev_join *e = &l->is.join;
	const uint64_t *lanes = e->lanes.v;
	if (lanes[0] < 1 || lanes[0] > lanes[1] || lanes[1] > FAL_LANES_MAX)
		return fal_trace_fail(l, FAL_EINVAL, "lanes: [%ju, %ju]", lanes[0],
				      lanes[1]);
	if (fal_ids_get(&f->ids, e->id) != NULL)
		return fal_trace_fail(l, FAL_EINVAL, "id: %u joined before", e->id);
	/* A new session continues the row of its name if the row's session has left. */
	size_t row;
	if (!fal_names_get(&f->names, e->worker, &row) || !f->worker[row].left) {
		row = f->workers;
		if (row == FAL_FIT_WORKERS)
			return fal_trace_fail(l, FAL_ELIMIT,
					      "worker: '%.64s' is one more than %d",
					      e->worker, FAL_FIT_WORKERS);
		FAL_XGROW(f->worker, f->cap, row + 1);
		fal_names_put(&f->names, e->worker, row);
		f->worker[f->workers++] =
			(struct fit_worker){ .name = fal_xstrdup(e->worker) };
	}
	struct fit_worker *w = &f->worker[row];
	w->left = w->stuck = false;
	w->lanes_min = (uint32_t)lanes[0];
	w->lanes_max = w->lanes = (uint32_t)lanes[1];
	w->cores = e->cores > 0 ? (uint32_t)e->cores : 1;
	w->fixed = fal_trace_join_fixed(e, &f->job);
	w->t = l->t;
	f->breaks++;
	fal_ids_put(&f->ids, e->id, row);
	return 0;
}

/* Returns the row of the line's worker; NULL with the line's error. */
static struct fit_worker *
fit_row(struct fal_fit *f, struct fal_trace_line *l)
{
	const size_t *row = fal_ids_get(&f->ids, l->id);
	if (row == NULL)
		fal_trace_fail(l, FAL_EINVAL, "id: %u never joined", l->id);
	return row != NULL ? &f->worker[*row] : NULL;
}

/* Members of a group came or went: the group has their lanes, on cores of their own. */
static int
fit_take_group(struct fal_fit *f, struct fal_trace_line *l)
{
	const uint64_t lanes = l->is.group.lanes;
	struct fit_worker *w = fit_row(f, l);
	if (w == NULL || fal_trace_check_max(l, "lanes", lanes, FAL_LANES_MAX) < 0)
		return l->err;
	if (lanes == 0)
		return fal_trace_fail(l, FAL_EINVAL, "lanes: 0");
	w->lanes_min = w->lanes_max = w->lanes = w->cores = (uint32_t)lanes;
	f->breaks++;
	return 0;
}

/* Returns the seconds that the worker was a suspect since its last line. */
static double
worker_hung_s(const struct fit_worker *w, double t)
{
	return w->hung + (w->suspect ? fmax(t - fmax(w->since, w->t), 0) : 0);
}

/* The worker is a suspect, from the beginning of its deadline on; or it is back. */
static int
fit_take_suspicion(struct fal_fit *f, struct fal_trace_line *l)
{
	struct fit_worker *w = fit_row(f, l);
	if (w == NULL)
		return l->err;
	w->hung = worker_hung_s(w, l->t);
	fit_set_suspect(f, w, l->event == FAL_EV_SUSPECT);
	w->hangs += w->suspect;
	w->since = l->t - (w->suspect ? l->is.suspect.seconds : 0);
	return 0;
}

/* A stopped job dismisses its workers, which stay machines of the model. */
static int
fit_take_leave(struct fal_fit *f, struct fal_trace_line *l)
{
	struct fit_worker *w = fit_row(f, l);
	if (w == NULL)
		return l->err;
	w->stuck = w->suspect;
	fit_set_suspect(f, w, false);
	w->left = !f->stopped;
	w->left_after = f->updates;
	f->breaks++;
	return 0;
}

/* A hold for another scheme ends with its policy line or without effect. */
static int
fit_take_hold(struct fal_fit *f, struct fal_trace_line *l)
{
	const char *why = l->is.hold.why;
	if (strcmp(why, "policy") != 0)
		f->held = strcmp(why, "resumed") != 0;
	f->stopped = f->stopped || strcmp(why, "stopped") == 0;
	f->breaks++;
	return l->err;
}

/* ---- clocks ---------------------------------------------------------------------- */

static void
ring_put(struct fit_ring *r, double v)
{
	r->v[r->n++ % FAL_FIT_CLOCKS] = (float)v;
}

/* Returns the clock of this number; NULL: a later clock has its place. */
static struct fit_clock *
fit_clock_at(struct fal_fit *f, uint64_t number)
{
	struct fit_clock *c = &f->clock[number % FAL_FIT_CLOCKS];
	if (c->number > number + 1)
		return NULL;
	if (c->number < number + 1)
		*c = (struct fit_clock){ .number = number + 1 };
	return c;
}

/* A clock line; latency: the worker's wait for its own link, which `wait` leaves out. */
struct fit_line {
	const struct fal_ev_clock *e;
	double compute, latency, wait, cut_s; /* without the time that the worker hung */
	uint64_t cut;
	struct fal_trace_paces ran;
};

static double
line_busy_s(const struct fit_line *c)
{
	return c->e->compute + c->e->push + c->e->pull + c->latency;
}

static void
worker_add_report(struct fit_worker *w, const struct fit_report *report)
{
	if (w->n < FAL_FIT_CLOCKS)
		FAL_XGROW(w->report, w->cap, w->n + 1);
	w->report[w->n++ % FAL_FIT_CLOCKS] = *report;
}

/* Makes a report of each pace of the line.  A line without seconds lasted since the line
 * before. */
static void
worker_add_line(struct fit_worker *w, struct fit_line *c, double t)
{
	const double ran = (double)c->ran.all.tasks * c->ran.all.task_s;
	double all = line_busy_s(c) + c->wait;
	if (!(all > 0))
		all = t - w->t;
	/* The time that the worker hung has a report of its own.  The line loses this
	 * time, and the cancelled tasks, as the hang caused them. */
	const double hung = fmin(worker_hung_s(w, t), all - ran / w->lanes);
	w->hung = 0;
	if (hung > 0) {
		all -= hung;
		c->compute = (double)NAN; /* tells nothing about the turns */
		c->cut = 0;
		c->cut_s = 0;
		worker_add_report(w, &(struct fit_report){ .clock = (uint32_t)c->e->clock,
							   .hang = w->hangs,
							   .turn = NAN,
							   .seconds = (float)hung });
	}
	w->t = t;
	/* The seconds that a lane spent around each task; all lanes are busy in all waves
	 * of tasks but the last.  Below 0 if tasks of the line ran before the line. */
	const double waves = ceil((double)c->ran.all.tasks / w->lanes);
	const double turn =
		waves > 0 ? (c->compute - c->cut_s / w->lanes) / waves - c->ran.all.task_s
			  : (double)NAN;
	for (size_t i = 0; i < c->ran.paces; i++) {
		const struct fal_trace_pace *p = &c->ran.pace[i];
		const double part = (double)p->tasks * p->task_s;
		const struct fit_report report = {
			.clock = (uint32_t)c->e->clock,
			.tasks = (float)p->tasks,
			.samples = (float)p->samples,
			.seconds = (float)(c->ran.paces > 1 && ran > 0 ? all * part / ran
								       : all),
			.task_s = (float)fit_at_lanes(p->task_s, w->cores, w->lanes, 1),
			.turn = i == 0 ? (float)turn : NAN,
			.ran = (float)c->ran.all.tasks,
			.pull = i == 0 ? (float)c->e->pull_all : 0,
			.push = i == 0 ? (float)c->e->push_all : 0,
			.cut = i + 1 == c->ran.paces ? (float)c->cut : 0,
			.cut_s = i + 1 == c->ran.paces ? (float)c->cut_s : 0,
		};
		worker_add_report(w, &report);
	}
}

static int
fit_take_clock(struct fal_fit *f, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	const bool own_round = e->round != FAL_TRACE_ABSENT;
	/* While a clock ends, tasks of all open clocks may end. */
	const uint64_t most =
		(uint64_t)(FAL_SLACK_MAX + 2) * fal_grid_tasks_max(&f->job.grid);
	const bool moves = fal_rule_traits(&f->policy.rule).moves;
	const double latency = fal_trace_clock_latency(e, moves);
	struct fit_worker *w = fit_row(f, l);
	struct fit_line c = { .e = e,
			      .compute = e->compute,
			      .latency = latency,
			      .wait = e->wait - latency,
			      .cut = e->cut,
			      .cut_s = e->cut > 0 ? e->cut_s : 0 };
	if (w == NULL || fal_trace_check_max(l, "done", e->done, most) < 0 ||
	    fal_trace_check_max(l, "lost", e->lost, most) < 0 ||
	    fal_trace_check_max(l, "cut", e->cut, most) < 0 ||
	    fal_trace_check_max(l, "lanes", e->lanes, FAL_LANES_MAX) < 0 ||
	    (!own_round &&
	     fal_trace_check_max(l, "clock", e->clock, f->job.clocks - 1) < 0) ||
	    fal_trace_clock_paces(l, &f->job, &c.ran) < 0)
		return l->err;
	if (e->cut > 0 && isnan(e->cut_s))
		return fal_trace_fail(l, FAL_EFORMAT, "cut_s: missing");
	if (e->rtt > 0)
		w->rtt = e->rtt;
	if (f->stopped) /* the clock may be incomplete */
		return 0;
	if (e->lanes > 0)
		w->lanes = (uint32_t)e->lanes;
	struct fit_clock *at = own_round ? NULL : fit_clock_at(f, e->clock);
	if (at != NULL && line_busy_s(&c) > at->busy && !w->suspect)
		at->busy = line_busy_s(&c);
	/* The sums leave out a line if an event disturbed its time. */
	if (w->breaks == f->breaks && e->clock >= f->from) {
		f->compute += w->suspect ? 0 : e->compute;
		f->spent += line_busy_s(&c) + c.wait;
	}
	w->breaks = f->breaks;
	if (c.ran.all.tasks > 0)
		ring_put(&f->tx, (double)e->tx);
	if (e->pull_all > 0)
		ring_put(&f->rx, (double)e->rx);
	if (own_round && line_busy_s(&c) + c.wait > 0)
		ring_put(&f->wait, c.wait);
	worker_add_line(w, &c, l->t);
	return 0;
}

static int
fit_take_update(struct fal_fit *f, struct fal_trace_line *l)
{
	const uint64_t clock = l->is.update.clock, samples = l->is.update.samples;
	if (fal_trace_check_max(l, "clock", clock, f->job.clocks - 1) < 0)
		return l->err;
	const bool counts = f->last_t >= 0 && f->last_breaks == f->breaks && !f->held;
	const bool hung = f->suspects > 0 || f->suspicions != f->last_suspicions;
	const double seconds = counts ? l->t - f->last_t : 0;
	f->last_suspicions = f->suspicions;
	f->updates++;
	f->newest = clock;
	f->last_t = l->t;
	f->last_breaks = f->breaks;
	struct fit_clock *c = f->shared ? fit_clock_at(f, clock) : NULL;
	if (c != NULL)
		c->seconds = seconds;
	if (clock < f->begin)
		return 0;
	const double clocks = (double)samples / fal_grid_samples(&f->job.grid, clock);
	if (counts && f->since >= FAL_FIT_WARM) {
		struct fit_sums *s = hung ? &f->hung : &f->well;
		f->from = f->from == UINT64_MAX ? clock : f->from;
		s->counted += clocks;
		s->seconds += seconds;
		s->samples += (double)samples;
	}
	f->since += clocks;
	return 0;
}

int
fal_fit_line(void *fit, struct fal_trace_line *l)
{
	static int (*const take[FAL_EVENTS])(struct fal_fit *f,
					     struct fal_trace_line *l) = {
		[FAL_EV_CLOCK] = fit_take_clock,    [FAL_EV_UPDATE] = fit_take_update,
		[FAL_EV_POLICY] = fit_take_policy,  [FAL_EV_JOIN] = fit_take_join,
		[FAL_EV_LEAVE] = fit_take_leave,    [FAL_EV_HOLD] = fit_take_hold,
		[FAL_EV_JOB] = fit_take_job,        [FAL_EV_SUSPECT] = fit_take_suspicion,
		[FAL_EV_BACK] = fit_take_suspicion, [FAL_EV_RESTART] = fit_take_restart,
		[FAL_EV_GROUP] = fit_take_group,
	};
	struct fal_fit *f = fit;
	if (!f->has_job && l->event != FAL_EV_JOB)
		return fal_trace_fail(l, FAL_EINVAL, "the first line is not job");
	return take[l->event] != NULL ? take[l->event](f, l) : 0;
}

/* ---- the model ------------------------------------------------------------------- */

/* Memory for n values of a row, of the clocks or of the machines; for a row's paces. */
struct scratch {
	double *v;
	size_t n;
	double common_fixed; /* the rows' median; NAN: not known of any row */
	bool has_hangs;      /* one of the machines hangs repeatedly */
	struct fal_cost_pace pace[2 * FAL_FIT_CLOCKS];
};

/* Returns the median of the values; 0: there is none. */
static double
scratch_median(struct scratch *s)
{
	return s->n > 0 ? fal_quantile(s->v, s->n, 0.5) : 0;
}

/* Returns the first clock whose lines count: the start of a job shows no property of its
 * machines. */
static uint64_t
fit_first_clock(const struct fal_fit *f)
{
	const uint64_t begin = f->since >= FAL_FIT_ENOUGH ? f->begin : 0;
	return f->newest >= FAL_FIT_ENOUGH && begin < FAL_FIT_WARM ? FAL_FIT_WARM : begin;
}

/* Returns kept report i of a row, from the oldest on. */
static const struct fit_report *
worker_report(const struct fit_worker *w, uint64_t i)
{
	const uint64_t gone = w->n > FAL_FIT_CLOCKS ? w->n - FAL_FIT_CLOCKS : 0;
	assert(i < w->n - gone);
	return &w->report[(gone + i) % FAL_FIT_CLOCKS];
}

static uint64_t
worker_reports(const struct fit_worker *w)
{
	return w->n < FAL_FIT_CLOCKS ? w->n : FAL_FIT_CLOCKS;
}

/* Returns the median over the row's reports of the positive values of a field, which has
 * offset `at` in struct fit_report. */
static double
worker_median(const struct fal_fit *f, const struct fit_worker *w, size_t at,
	      struct scratch *s)
{
	s->n = 0;
	for (uint64_t i = 0; i < worker_reports(w); i++) {
		const struct fit_report *t = worker_report(w, i);
		const float v = *(const float *)((const char *)t + at);
		if (t->clock >= fit_first_clock(f) && v > 0)
			s->v[s->n++] = (double)v;
	}
	return scratch_median(s);
}

/* Returns a quantile of the ring. */
static double
ring_quantile(const struct fit_ring *r, double share, struct scratch *s)
{
	for (s->n = 0; s->n < r->n && s->n < FAL_FIT_CLOCKS; s->n++)
		s->v[s->n] = (double)r->v[s->n];
	return s->n > 0 ? fal_quantile(s->v, s->n, share) : 0;
}

/* Returns the report's tasks, in full ones. */
static double
report_full_tasks(const struct fal_fit *f, double fixed, const struct fit_report *t)
{
	const struct fal_trace_pace p = { .tasks = (uint64_t)t->tasks,
					  .samples = (double)t->samples };
	return fal_trace_full_tasks(&f->job, fixed, &p);
}

/* Returns the seconds of a full task; 0: no task ran. */
static double
report_full_task_s(const struct fal_fit *f, double fixed, const struct fit_report *t)
{
	const double size = report_full_tasks(f, fixed, t);
	return size > 0 ? (double)t->task_s * (double)t->tasks / size : 0;
}

/* Returns the mean share of a full task's samples that the report's tasks have. */
static double
report_mean_part(const struct fal_fit *f, const struct fit_report *t)
{
	const double full = fal_grid_full_samples(&f->job.grid);
	return t->tasks > 0 ? (double)t->samples / ((double)t->tasks * full) : 1;
}

/* Returns the share of a full task's seconds that a task of any size takes: the median
 * over its probe and the reports with shorter tasks.  NAN: there are none. */
static double
worker_fixed(const struct fal_fit *f, const struct fit_worker *w, struct scratch *s)
{
	/* The median seconds of a full task, over reports with only full tasks. */
	s->n = 0;
	for (uint64_t i = 0; i < worker_reports(w); i++) {
		const struct fit_report *t = worker_report(w, i);
		const double v = report_full_task_s(f, w->fixed, t);
		if (t->clock >= fit_first_clock(f) && v > 0 &&
		    !(report_mean_part(f, t) < 1))
			s->v[s->n++] = v;
	}
	const double usual = scratch_median(s);
	s->n = 0;
	if (!isnan(w->fixed))
		s->v[s->n++] = w->fixed;
	for (uint64_t i = 0; i < worker_reports(w) && usual > 0; i++) {
		const struct fit_report *t = worker_report(w, i);
		const double part = report_mean_part(f, t), less = 1 - part;
		if (t->clock >= fit_first_clock(f) && less > 0)
			s->v[s->n++] =
				fmin(fmax(((double)t->task_s / usual - part) / less, 0),
				     1);
	}
	return s->n > 0 ? scratch_median(s) : (double)NAN;
}

/* The paces of a row. */
struct paces {
	struct fal_cost_pace *v;
	size_t n;
};

static void
paces_add(struct paces *p, double task_s, double tasks, double seconds)
{
	p->v[p->n++] = (struct fal_cost_pace){ .task_s = task_s,
					       .tasks = tasks,
					       .seconds = seconds };
}

/* Adds the paces of a report with `tasks` full tasks at task_s; `after`: task_s of the
 * next report (0: not known).  Cancelled tasks count as slow as the slower of the two,
 * and not quicker than they ran.  A worker that loses races is slow, and would otherwise
 * seem quick. */
static void
paces_add_report(struct paces *p, const struct fit_report *t, double tasks, double task_s,
		 double after)
{
	const double ran = tasks * task_s;
	const double cut_s = t->cut > 0 ? (double)t->cut_s : 0;
	const double part = cut_s > 0 ? (double)t->seconds * cut_s / (ran + cut_s) : 0;
	if ((double)t->seconds - part > 0)
		paces_add(p, task_s, tasks, (double)t->seconds - part);
	if (part > 0) {
		const double least = cut_s / (double)t->cut;
		const double slow = fmax(fmax(task_s, after), least);
		paces_add(p, slow, cut_s / slow, part);
	}
}

/* Returns the paces of a row, report by report.  A report without tasks gets the speed of
 * the nearest earlier report, else of the nearest later one; 0: there is none. */
static struct paces
worker_paces(const struct fal_fit *f, const struct fit_worker *w, double fixed,
	     struct scratch *s)
{
	struct paces p = { .v = s->pace };
	const struct fal_policy_worker *e = fal_policy_find(&f->policy, w->name);
	uint32_t first = 0, last = 0; /* hangs */
	for (uint64_t i = 0; i < worker_reports(w); i++) {
		const struct fit_report *t = worker_report(w, i);
		if (t->hang == 0 || t->clock < fit_first_clock(f))
			continue;
		first = first == 0 ? t->hang : first;
		last = t->hang;
	}
	/* The worker hangs repeatedly, or at present.  A single hang is no property of a
	 * machine. */
	const bool hangs = first != last || (last != 0 && (w->suspect || w->stuck));
	s->has_hangs |= hangs;
	double task_s = 0;
	uint64_t ran = 0; /* reports with tasks */
	for (uint64_t i = 0; i < worker_reports(w); i++) {
		const struct fit_report *t = worker_report(w, i);
		double after = 0;
		ran += t->tasks > 0;
		if (t->task_s > 0)
			task_s = fit_at_lanes(report_full_task_s(f, fixed, t), w->cores,
					      1, w->lanes);
		if (t->clock < fit_first_clock(f))
			continue;
		if (t->hang && hangs) {
			paces_add(&p, task_s, 0, (double)t->seconds);
			p.v[p.n - 1].hung = true;
		}
		if (t->hang)
			continue;
		if (i + 1 < worker_reports(w)) {
			const struct fit_report *next = worker_report(w, i + 1);
			after = fit_at_lanes(report_full_task_s(f, fixed, next), w->cores,
					     1, w->lanes);
		}
		paces_add_report(&p, t, report_full_tasks(f, fixed, t), task_s, after);
	}
	/* A worker that was excluded before its speed was known counts as an average one.
	 */
	const bool is_unknown = e != NULL && e->excluded && ran < FAL_FIT_ENOUGH;
	if (p.n == 0 || is_unknown) {
		p.n = 0;
		paces_add(&p, is_unknown ? 0 : task_s, 0, 1);
	}
	for (size_t i = 1; i < p.n; i++)
		if (!(p.v[i].task_s > 0))
			p.v[i].task_s = p.v[i - 1].task_s;
	for (size_t i = p.n - 1; i-- > 0;)
		if (!(p.v[i].task_s > 0))
			p.v[i].task_s = p.v[i + 1].task_s;
	return p;
}

/* Adds a row as a machine; its pace is 0 if it ran no task. */
static void
fit_add_machine(const struct fal_fit *f, const struct fit_worker *w, struct scratch *s,
		struct fal_cost *out)
{
	const double own = worker_fixed(f, w, s);
	const double fixed = isnan(own) ? s->common_fixed : own;
	const struct paces paces = worker_paces(f, w, fixed, s);
	/* The seconds that the row's lanes spend around a task: the median of the lines
	 * or their mean, the smaller of the two, at least 0.  Cancelled tasks weigh
	 * little in the median; the mean is the same whichever line a task ran in. */
	double sum = 0, tasks = 0;
	s->n = 0;
	for (uint64_t i = 0; i < worker_reports(w); i++) {
		const struct fit_report *t = worker_report(w, i);
		if (t->clock < fit_first_clock(f) || isnan(t->turn))
			continue;
		s->v[s->n++] = (double)t->turn;
		sum += (double)t->turn * (double)t->ran;
		tasks += (double)t->ran;
	}
	const double turn_s =
		fmax(fmin(scratch_median(s), tasks > 0 ? sum / tasks : 0), 0);
	const struct fal_cost_machine m = {
		.lanes_min = w->lanes_min,
		.lanes_max = w->lanes_max,
		.lanes = w->lanes,
		.cores = w->cores,
		.fixed = fixed,
		.pace = paces.v,
		.paces = paces.n,
		.turn_s = turn_s,
		.pull_s = worker_median(f, w, offsetof(struct fit_report, pull), s),
		.push_s = worker_median(f, w, offsetof(struct fit_report, push), s),
		.rtt_s = w->rtt,
	};
	fal_cost_add(out, &m, w->name);
}

static bool
machine_is_known(const struct fal_cost_machine *m)
{
	return m->pace[0].task_s > 0;
}

/* Returns the median over the known machines of a field, which has offset `at` in struct
 * fal_cost_machine. */
static double
cost_median(const struct fal_cost *c, size_t at, struct scratch *s)
{
	s->n = 0;
	for (size_t i = 0; i < c->machines; i++)
		if (machine_is_known(&c->machine[i]))
			s->v[s->n++] =
				*(const double *)((const char *)&c->machine[i] + at);
	return scratch_median(s);
}

/* Gives the median values to machines that ran no task.  FAL_ETRUNC: no machine did. */
static int
cost_fill_unknown(struct fal_cost *c, struct scratch *s)
{
	const double turn = cost_median(c, offsetof(struct fal_cost_machine, turn_s), s);
	const double pull = cost_median(c, offsetof(struct fal_cost_machine, pull_s), s);
	const double push = cost_median(c, offsetof(struct fal_cost_machine, push_s), s);
	s->n = 0;
	for (size_t i = 0; i < c->machines; i++) {
		const struct fal_cost_machine *m = &c->machine[i];
		if (machine_is_known(m))
			s->v[s->n++] = fit_at_lanes(fal_cost_mean_task_s(m), m->cores,
						    m->lanes, 1);
	}
	const double pace = scratch_median(s);
	if (!(pace > 0))
		return FAL_ETRUNC;
	for (size_t i = 0; i < c->machines; i++) {
		struct fal_cost_machine *m = &c->machine[i];
		if (machine_is_known(m))
			continue;
		m->turn_s = turn;
		m->pull_s = fmax(m->pull_s, pull); /* its link may be known to be slow */
		m->push_s = fmax(m->push_s, push);
		for (size_t k = 0; k < m->paces; k++)
			m->pace[k].task_s = fit_at_lanes(pace, m->cores, 1, m->lanes);
	}
	return 0;
}

/* Computes the model.  FAL_ETRUNC. */
static int
fit_model(const struct fal_fit *f, struct scratch *s, struct fal_cost *out)
{
	/* The common fixed share. */
	double *fixed = fal_xcalloc(f->workers, sizeof(*fixed));
	size_t n = 0;
	for (size_t i = 0; i < f->workers; i++) {
		fixed[n] = worker_fixed(f, &f->worker[i], s);
		n += isnan(fixed[n]) ? 0 : 1;
	}
	memcpy(s->v, fixed, n * sizeof(*fixed));
	free(fixed);
	s->n = n;
	s->common_fixed = n > 0 ? scratch_median(s) : (double)NAN;
	out->grid = f->job.grid;
	bool all_left = true;
	for (size_t i = 0; i < f->workers; i++)
		all_left = all_left && f->worker[i].left;
	/* If all have left, the workers that left after the last update count: the
	 * coordinator was stopped, or those workers were. */
	for (size_t i = 0; i < f->workers; i++)
		if (!f->worker[i].left ||
		    (all_left && f->worker[i].left_after == f->updates))
			fit_add_machine(f, &f->worker[i], s, out);
	if (cost_fill_unknown(out, s) < 0)
		return FAL_ETRUNC;
	/* The coordinator's costs.  The rest of a clock includes the coordinator's
	 * messages, which a simulation adds itself. */
	out->message_s = FAL_FIT_MESSAGE_S;
	out->byte_s = FAL_FIT_BYTE_S;
	out->push_bytes = ring_quantile(&f->tx, 0.5, s);
	out->pull_bytes = ring_quantile(&f->rx, 0.5, s);
	const double talk =
		2 * out->message_s + (out->push_bytes + out->pull_bytes) * out->byte_s;
	/* The seconds of a clock in which the last worker neither computes, pulls nor
	 * pushes.  For workers with rounds of their own: the wait of the workers that did
	 * not wait for others; among m workers that wait for each other, one does not. */
	s->n = 0;
	for (size_t i = 0; i < FAL_FIT_CLOCKS && f->shared; i++) {
		const struct fit_clock *at = &f->clock[i];
		if (at->number > fit_first_clock(f) && at->seconds > 0 && at->busy > 0)
			s->v[s->n++] = at->seconds - at->busy;
	}
	const double m = (double)out->machines;
	const double rest = f->shared ? scratch_median(s) - m * talk
				      : ring_quantile(&f->wait, 0.5 / m, s) - talk;
	out->step_s = fmax(rest, 0);
	const double share = fal_grid_size(&f->job.grid, 0) / m;
	for (size_t i = 0; i < out->machines; i++)
		fal_cost_choose_pacing(&out->machine[i], share);
	return 0;
}

int
fal_fit_end(struct fal_fit *f, struct fal_cost *cost, struct fal_fit_run *run,
	    struct fal_diag *diag)
{
	struct fal_cost c = { 0 };
	if (!f->has_job)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	if (f->is_group)
		return fal_diag_set(diag, FAL_EINVAL,
				    "a group server's trace cannot predict other "
				    "schemes: use the trace of the coordinator above");
	struct scratch *s = fal_xcalloc(1, sizeof(*s));
	struct fit_sums sums = f->well;
	s->v = fal_xcalloc(f->workers + FAL_FIT_CLOCKS, sizeof(*s->v));
	const int err = fit_model(f, s, &c);
	/* A model without hangs is compared with the clocks without hangs. */
	if (s->has_hangs || !(sums.samples > 0)) {
		sums.counted += f->hung.counted;
		sums.seconds += f->hung.seconds;
		sums.samples += f->hung.samples;
	}
	free(s->v);
	free(s);
	if (err < 0) {
		fal_cost_free(&c);
		return fal_diag_set(diag, err, "no worker that is here has run a task");
	}
	*cost = c;
	*run = (struct fal_fit_run){ .optim = f->optim,
				     .policy = f->policy,
				     .clocks = (uint64_t)(sums.counted + 0.5),
				     .from = f->from };
	memcpy(run->scheme, f->scheme, sizeof(run->scheme));
	if (sums.samples > 0)
		run->epoch_s = sums.seconds * f->job.grid.samples / sums.samples;
	if (f->spent > 0)
		run->compute = f->compute / f->spent;
	return 0;
}
