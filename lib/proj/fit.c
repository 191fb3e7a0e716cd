/* Fits a cost model to a trace: takes the lines, and makes the model of them. */
#include "proj/fit.h"

#include "base/mem.h"
#include "base/oversubscription.h"
#include "base/quantile.h"
#include "job/policy.h"
#include "sched/policy.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A worker's report of a clock, or of a round of its own.  If its tasks had several
 * paces, a report covers a part of them. */
struct fit_told {
	uint32_t clock;
	uint32_t hung; /* the number of the hang in which it ran nothing; 0: none */
	float tasks, samples, seconds;
	float task_s; /* mean; if a lane shares its core with none; 0: it ran none */
	/* Values of the whole line; in its later parts turn is NAN, pull and push are
	 * 0. */
	float turn, ran, pull, push;
	float cut, cut_s; /* of the whole line, in its last part: tasks that were cut
			     short, and what they ran on a lane; in others 0 */
};

/* A worker by name: a session that joins after an earlier one of that name has left
 * continues its row. */
struct fit_worker {
	char *name;
	bool left;
	uint64_t left_after; /* updates */
	uint32_t lanes_min, lanes_max, lanes, cores;
	double fixed;          /* by its probe; NAN: it told nothing of it */
	double rtt;            /* of its link, as it was told last; 0: not known */
	struct fit_told *told; /* a ring of FAL_FIT_CLOCKS, once it has grown to that */
	size_t cap;
	uint64_t n;          /* that it told so far */
	double t;            /* when it told the last, or joined */
	bool suspect, stuck; /* stuck: it was one when it left */
	uint32_t hangs;      /* times that it became one */
	double since;        /* since when it owed what made it one */
	double hung;     /* seconds that it was one since `t`, if it is none any more */
	uint64_t breaks; /* struct fal_fit's then */
};

/* The last values. */
struct fit_ring {
	float v[FAL_FIT_CLOCKS];
	uint64_t n;
};

/* A clock with a shared round. */
struct fit_clock {
	uint64_t number; /* from 1; 0: none */
	double seconds;  /* between its update and the one before; 0: it does not count */
	double busy;     /* of the worker that computed, pulled and pushed longest */
};

struct fal_fit {
	struct fal_optim optim;
	bool have_job;
	bool group; /* the trace is a group's: versions are made elsewhere */
	struct fal_trace_job job;
	struct fal_grid grid; /* the same */
	struct fit_worker *worker;
	size_t workers, cap;
	uint32_t *by_name; /* indices of worker, sorted */
	size_t by_name_cap;
	struct fal_ids ids; /* session → index of worker */

	char scheme[128];
	struct fal_policy policy;
	uint64_t begin; /* the policy's first clock */
	bool shared;    /* its rounds are */

	bool held, stopped;
	uint64_t updates, newest; /* newest: the clock of the last one */
	uint64_t breaks;          /* times that something came between two updates */
	uint64_t last_breaks;     /* at the last update, */
	double last_t;            /* which was then; below 0: none yet */

	uint64_t suspects, lates; /* now; times that one became it, or was back */
	uint64_t last_lates;      /* at the last update */

	/* Under the policy: clocks in all, and the sums over those that count; of updates
	 * with a suspect between them, and of all others. */
	double since, compute, spent;
	struct fit_sums {
		double counted, seconds, samples;
	} hung, well;
	uint64_t from;

	struct fit_clock clock[FAL_FIT_CLOCKS]; /* by number, a ring */
	struct fit_ring tx, rx, wait; /* of clock lines; wait of rounds of one's own */
};

/* Seconds of a task on one of `to` lanes, if they are task_s on one of `from`. */
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
		free(f->worker[i].told);
	}
	free(f->worker);
	free(f->by_name);
	fal_ids_free(&f->ids);
	fal_policy_free(&f->policy);
	free(f);
}

/* ---- who is there, and what holds ----------------------------------------------- */

/* What holds begins anew at clock `begin`; the policy is taken. */
static void
set_policy(struct fal_fit *f, const char *scheme, struct fal_policy *p, uint64_t begin)
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
take_job(struct fal_fit *f, struct fal_trace_line *l)
{
	struct fal_trace_job j;
	struct fal_policy p = { 0 };
	if (fal_trace_job_read(l, &j) < 0 ||
	    fal_trace_scheme_read(l, l->is.job.scheme, &p.rule) < 0)
		return l->err;
	if (j.clocks > UINT32_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "clocks: above %u", UINT32_MAX);
	f->grid = j.grid;
	f->job = j;
	f->have_job = true;
	f->group = l->is.job.above != NULL;
	set_policy(f, l->is.job.scheme, &p, 0);
	fal_fit_optim(l, &f->optim);
	return l->err;
}

static void
set_suspect(struct fal_fit *f, struct fit_worker *w, bool is)
{
	f->suspects += (uint64_t)is - (uint64_t)w->suspect;
	f->lates++;
	w->suspect = is;
}

/* No session lives on, nor does what stopped them; and the job may have more epochs by
 * now. */
static int
take_restart(struct fal_fit *f, struct fal_trace_line *l)
{
	if (fal_trace_job_restart(l, &f->job) < 0)
		return l->err;
	for (size_t i = 0; i < f->workers; i++) {
		struct fit_worker *w = &f->worker[i];
		if (!w->left)
			w->left_after = f->updates;
		w->left = true;
		set_suspect(f, w, false);
	}
	f->held = f->stopped = false;
	f->breaks++;
	if (f->job.clocks > UINT32_MAX)
		return fal_trace_fail(l, FAL_ELIMIT, "epochs: too many");
	f->grid.epochs = f->job.grid.epochs;
	return 0;
}

static int
take_policy(struct fal_fit *f, struct fal_trace_line *l)
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
		set_policy(f, e->scheme, &p, e->clock);
	return l->err;
}

/* Where the rows of this name begin in by_name. */
static size_t
place(const struct fal_fit *f, const char *name)
{
	size_t low = 0, high = f->workers;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (strcmp(f->worker[f->by_name[mid]].name, name) < 0)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* The row that a newcomer of this name continues, or a new one; NULL: an error. */
static struct fit_worker *
row_for(struct fal_fit *f, struct fal_trace_line *l, const char *name)
{
	const size_t at = place(f, name);
	for (size_t i = at; i < f->workers; i++) {
		struct fit_worker *w = &f->worker[f->by_name[i]];
		if (strcmp(w->name, name) != 0)
			break;
		if (w->left)
			return w;
	}
	if (f->workers == FAL_FIT_WORKERS) {
		fal_trace_fail(l, FAL_ELIMIT, "worker: '%.64s' is one more than %d", name,
			       FAL_FIT_WORKERS);
		return NULL;
	}
	FAL_XGROW(f->worker, f->cap, f->workers + 1);
	FAL_XGROW(f->by_name, f->by_name_cap, f->workers + 1);
	memmove(&f->by_name[at + 1], &f->by_name[at],
		(f->workers - at) * sizeof(*f->by_name));
	f->by_name[at] = (uint32_t)f->workers;
	f->worker[f->workers] = (struct fit_worker){ .name = fal_xstrdup(name) };
	return &f->worker[f->workers++];
}

static int
take_join(struct fal_fit *f, struct fal_trace_line *l)
{
	const struct fal_ev_join *e = &l->is.join;
	const uint64_t *lanes = e->lanes.v;
	if (lanes[0] < 1 || lanes[0] > lanes[1] || lanes[1] > FAL_LANES_MAX)
		return fal_trace_fail(l, FAL_EINVAL, "lanes: [%ju, %ju]", lanes[0],
				      lanes[1]);
	if (fal_ids_get(&f->ids, e->id) != NULL)
		return fal_trace_fail(l, FAL_EINVAL, "id: %u joined before", e->id);
	struct fit_worker *w = row_for(f, l, e->worker);
	if (w == NULL)
		return l->err;
	w->left = w->stuck = false;
	w->lanes_min = (uint32_t)lanes[0];
	w->lanes_max = w->lanes = (uint32_t)lanes[1];
	w->cores = e->cores > 0 ? (uint32_t)e->cores : 1;
	w->fixed = fal_trace_join_fixed(e, &f->job);
	w->t = l->t;
	f->breaks++;
	fal_ids_put(&f->ids, e->id, (size_t)(w - f->worker));
	return 0;
}

/* The row of the line's id; NULL with the error set. */
static struct fit_worker *
row_of(struct fal_fit *f, struct fal_trace_line *l)
{
	const size_t *row = fal_ids_get(&f->ids, l->id);
	if (row == NULL)
		fal_trace_fail(l, FAL_EINVAL, "id: %u never joined", l->id);
	return row != NULL ? &f->worker[*row] : NULL;
}

/* Members of a group have come or gone: it has as many lanes as they have, on cores of
 * their own. */
static int
take_group(struct fal_fit *f, struct fal_trace_line *l)
{
	const uint64_t lanes = l->is.group.lanes;
	struct fit_worker *w = row_of(f, l);
	if (w == NULL || fal_trace_most(l, "lanes", lanes, FAL_LANES_MAX) < 0)
		return l->err;
	if (lanes == 0)
		return fal_trace_fail(l, FAL_EINVAL, "lanes: 0");
	w->lanes_min = w->lanes_max = w->lanes = w->cores = (uint32_t)lanes;
	f->breaks++;
	return 0;
}

/* Seconds for which it was a suspect since its last line. */
static double
hung(const struct fit_worker *w, double t)
{
	return w->hung + (w->suspect ? fmax(t - fmax(w->since, w->t), 0) : 0);
}

/* It is a suspect, from when it began to owe what it did not do, or is back. */
static int
take_late(struct fal_fit *f, struct fal_trace_line *l)
{
	struct fit_worker *w = row_of(f, l);
	if (w == NULL)
		return l->err;
	w->hung = hung(w, l->t);
	set_suspect(f, w, l->event == FAL_EV_SUSPECT);
	w->hangs += w->suspect;
	w->since = l->t - (w->suspect ? l->is.suspect.seconds : 0);
	return 0;
}

/* When a job is stopped its workers are sent away: they are still its machines. */
static int
take_leave(struct fal_fit *f, struct fal_trace_line *l)
{
	struct fit_worker *w = row_of(f, l);
	if (w == NULL)
		return l->err;
	w->stuck = w->suspect;
	set_suspect(f, w, false);
	w->left = !f->stopped;
	w->left_after = f->updates;
	f->breaks++;
	return 0;
}

/* A hold for another scheme ends with its policy line, or is given up. */
static int
take_hold(struct fal_fit *f, struct fal_trace_line *l)
{
	const char *why = l->is.hold.why;
	if (strcmp(why, "policy") != 0)
		f->held = strcmp(why, "resumed") != 0;
	f->stopped = f->stopped || strcmp(why, "stopped") == 0;
	f->breaks++;
	return l->err;
}

/* ---- what it took ---------------------------------------------------------------- */

static void
put(struct fit_ring *r, double v)
{
	r->v[r->n++ % FAL_FIT_CLOCKS] = (float)v;
}

/* The clock of this number; NULL: later ones have its place. */
static struct fit_clock *
clock_of(struct fal_fit *f, uint64_t number)
{
	struct fit_clock *c = &f->clock[number % FAL_FIT_CLOCKS];
	if (c->number > number + 1)
		return NULL;
	if (c->number < number + 1)
		*c = (struct fit_clock){ .number = number + 1 };
	return c;
}

/* A clock line; latency: the worker's wait for its own link, which is not in `wait`. */
struct line {
	const struct fal_ev_clock *is;
	double compute, latency, wait, cut_s; /* without the time that it hung */
	uint64_t cut;
	struct fal_trace_paces ran;
};

static double
busy(const struct line *c)
{
	return c->is->compute + c->is->push + c->is->pull + c->latency;
}

/* Adds the line to the sums, unless something came between it and the one before. */
static void
sum_up(struct fal_fit *f, struct fit_worker *w, const struct line *c)
{
	const bool own = c->is->round != FAL_TRACE_ABSENT;
	struct fit_clock *at = own ? NULL : clock_of(f, c->is->clock);
	if (at != NULL && busy(c) > at->busy && !w->suspect)
		at->busy = busy(c);
	if (w->breaks == f->breaks && c->is->clock >= f->from) {
		f->compute += w->suspect ? 0 : c->is->compute;
		f->spent += busy(c) + c->wait;
	}
	w->breaks = f->breaks;
	if (c->ran.all.tasks > 0)
		put(&f->tx, (double)c->is->tx);
	if (c->is->pull_all > 0)
		put(&f->rx, (double)c->is->rx);
	if (own && busy(c) + c->wait > 0)
		put(&f->wait, c->wait);
}

/* What its lanes spent on each task beside computing it: all are busy in all waves but
 * the last.  Below 0 if tasks of the line ran before it; NAN: it ran none. */
static double
turn(const struct fit_worker *w, const struct line *c)
{
	const double waves = ceil((double)c->ran.all.tasks / w->lanes);
	const double whole = c->compute - c->cut_s / w->lanes; /* tasks */
	return waves > 0 ? whole / waves - c->ran.all.task_s : (double)NAN;
}

static void
add_told(struct fit_worker *w, const struct fit_told *told)
{
	if (w->n < FAL_FIT_CLOCKS)
		FAL_XGROW(w->told, w->cap, w->n + 1);
	w->told[w->n++ % FAL_FIT_CLOCKS] = *told;
}

/* Takes what the worker hung out of the line: it is no pace, nor are tasks that were cut
 * short by it. */
static void
keep_hung(struct fit_worker *w, struct line *c, double ran, double t, double *all)
{
	const double s = fmin(hung(w, t), *all - ran / w->lanes);
	w->hung = 0;
	if (!(s > 0))
		return;
	*all -= s;
	c->compute = (double)NAN; /* says nothing of its turns */
	c->cut = 0;
	c->cut_s = 0;
	add_told(w, &(struct fit_told){ .clock = (uint32_t)c->is->clock,
					.hung = w->hangs,
					.turn = NAN,
					.seconds = (float)s });
}

/* Keeps the line, pace by pace; one that the worker did not account for lasted since its
 * last. */
static void
keep(struct fit_worker *w, struct line *c, double t)
{
	const double ran = (double)c->ran.all.tasks * c->ran.all.task_s;
	double all = busy(c) + c->wait;
	if (!(all > 0))
		all = t - w->t;
	keep_hung(w, c, ran, t, &all);
	w->t = t;
	for (size_t i = 0; i < c->ran.paces; i++) {
		const struct fal_trace_pace *p = &c->ran.pace[i];
		const double part = (double)p->tasks * p->task_s;
		const struct fit_told told = {
			.clock = (uint32_t)c->is->clock,
			.tasks = (float)p->tasks,
			.samples = (float)p->samples,
			.seconds = (float)(c->ran.paces > 1 && ran > 0 ? all * part / ran
								       : all),
			.task_s = (float)fit_at_lanes(p->task_s, w->cores, w->lanes, 1),
			.turn = i == 0 ? (float)turn(w, c) : NAN,
			.ran = (float)c->ran.all.tasks,
			.pull = i == 0 ? (float)c->is->pull_all : 0,
			.push = i == 0 ? (float)c->is->push_all : 0,
			.cut = i + 1 == c->ran.paces ? (float)c->cut : 0,
			.cut_s = i + 1 == c->ran.paces ? (float)c->cut_s : 0,
		};
		add_told(w, &told);
	}
}

static int
take_clock(struct fal_fit *f, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	const bool own = e->round != FAL_TRACE_ABSENT;
	/* While a clock ends, tasks of all those that are open may. */
	const uint64_t most = (uint64_t)(FAL_SLACK_MAX + 2) * fal_grid_tasks(&f->grid, 0);
	const bool moves = fal_rule_traits(&f->policy.rule).moves;
	const double latency = fal_trace_clock_latency(e, moves);
	struct fit_worker *w = row_of(f, l);
	struct line c = { .is = e,
			  .compute = e->compute,
			  .latency = latency,
			  .wait = e->wait - latency,
			  .cut = e->cut,
			  .cut_s = e->cut > 0 ? e->cut_s : 0 };
	if (w == NULL || fal_trace_most(l, "done", e->done, most) < 0 ||
	    fal_trace_most(l, "lost", e->lost, most) < 0 ||
	    fal_trace_most(l, "cut", e->cut, most) < 0 ||
	    fal_trace_most(l, "lanes", e->lanes, FAL_LANES_MAX) < 0 ||
	    (!own && fal_trace_most(l, "clock", e->clock, f->job.clocks - 1) < 0) ||
	    fal_trace_clock_paces(l, &f->job, &c.ran) < 0)
		return l->err;
	if (e->cut > 0 && isnan(e->cut_s))
		return fal_trace_fail(l, FAL_EFORMAT, "cut_s: missing");
	if (e->rtt > 0)
		w->rtt = e->rtt;
	if (f->stopped) /* it may be no whole clock */
		return 0;
	if (e->lanes > 0)
		w->lanes = (uint32_t)e->lanes;
	sum_up(f, w, &c);
	keep(w, &c, l->t);
	return 0;
}

static int
take_update(struct fal_fit *f, struct fal_trace_line *l)
{
	const uint64_t clock = l->is.update.clock, samples = l->is.update.samples;
	if (fal_trace_most(l, "clock", clock, f->job.clocks - 1) < 0)
		return l->err;
	const bool counts = f->last_t >= 0 && f->last_breaks == f->breaks && !f->held;
	const bool hung = f->suspects > 0 || f->lates != f->last_lates;
	const double seconds = counts ? l->t - f->last_t : 0;
	f->last_lates = f->lates;
	f->updates++;
	f->newest = clock;
	f->last_t = l->t;
	f->last_breaks = f->breaks;
	struct fit_clock *c = f->shared ? clock_of(f, clock) : NULL;
	if (c != NULL)
		c->seconds = seconds;
	if (clock < f->begin)
		return 0;
	const double clocks = (double)samples / fal_grid_samples(&f->grid, clock);
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
		[FAL_EV_CLOCK] = take_clock,   [FAL_EV_UPDATE] = take_update,
		[FAL_EV_POLICY] = take_policy, [FAL_EV_JOIN] = take_join,
		[FAL_EV_LEAVE] = take_leave,   [FAL_EV_HOLD] = take_hold,
		[FAL_EV_JOB] = take_job,       [FAL_EV_SUSPECT] = take_late,
		[FAL_EV_BACK] = take_late,     [FAL_EV_RESTART] = take_restart,
		[FAL_EV_GROUP] = take_group,
	};
	struct fal_fit *f = fit;
	if (!f->have_job && l->event != FAL_EV_JOB)
		return fal_trace_fail(l, FAL_EINVAL, "the first line is not job");
	return take[l->event] != NULL ? take[l->event](f, l) : 0;
}

/* ---- the model ------------------------------------------------------------------- */

/* Memory for n values of a row, of the clocks or of the machines; for a row's paces. */
struct scratch {
	double *v;
	size_t n;
	double common_fixed; /* the rows' median; NAN: nothing is known of any */
	bool prone;          /* one of the machines hangs time and again */
	struct fal_cost_pace pace[2 * FAL_FIT_CLOCKS];
};

/* The value in the middle; 0 of none. */
static double
median(struct scratch *s)
{
	return s->n > 0 ? fal_quantile(s->v, s->n, 0.5) : 0;
}

/* Returns the first clock whose lines count: the start of a job shows no property of its
 * machines. */
static uint64_t
first_clock(const struct fal_fit *f)
{
	const uint64_t begin = f->since >= FAL_FIT_ENOUGH ? f->begin : 0;
	return f->newest >= FAL_FIT_ENOUGH && begin < FAL_FIT_WARM ? FAL_FIT_WARM : begin;
}

/* Line i of a row, of those that are kept, the oldest first. */
static const struct fit_told *
told_at(const struct fit_worker *w, uint64_t i)
{
	const uint64_t gone = w->n > FAL_FIT_CLOCKS ? w->n - FAL_FIT_CLOCKS : 0;
	return &w->told[(gone + i) % FAL_FIT_CLOCKS];
}

static uint64_t
kept(const struct fit_worker *w)
{
	return w->n < FAL_FIT_CLOCKS ? w->n : FAL_FIT_CLOCKS;
}

/* The median of what the row told of a field, at `at` in struct fit_told, where it is
 * above 0. */
static double
typical(const struct fal_fit *f, const struct fit_worker *w, size_t at, struct scratch *s)
{
	s->n = 0;
	for (uint64_t i = 0; i < kept(w); i++) {
		const struct fit_told *t = told_at(w, i);
		const float v = *(const float *)((const char *)t + at);
		if (t->clock >= first_clock(f) && v > 0)
			s->v[s->n++] = (double)v;
	}
	return median(s);
}

/* Returns the seconds that the row's lanes spend around a task: the median of the lines
 * or their mean, the smaller of the two, at least 0.  Cancelled tasks weigh little in the
 * median; the mean is the same whichever line a task ran in. */
static double
turn_of(const struct fal_fit *f, const struct fit_worker *w, struct scratch *s)
{
	double sum = 0, tasks = 0;
	s->n = 0;
	for (uint64_t i = 0; i < kept(w); i++) {
		const struct fit_told *t = told_at(w, i);
		if (t->clock < first_clock(f) || isnan(t->turn))
			continue;
		s->v[s->n++] = (double)t->turn;
		sum += (double)t->turn * (double)t->ran;
		tasks += (double)t->ran;
	}
	return fmax(fmin(median(s), tasks > 0 ? sum / tasks : 0), 0);
}

static double
of_ring(const struct fit_ring *r, double share, struct scratch *s)
{
	for (s->n = 0; s->n < r->n && s->n < FAL_FIT_CLOCKS; s->n++)
		s->v[s->n] = (double)r->v[s->n];
	return s->n > 0 ? fal_quantile(s->v, s->n, share) : 0;
}

/* The part's tasks, in full ones. */
static double
size_of(const struct fal_fit *f, double fixed, const struct fit_told *t)
{
	const struct fal_trace_pace p = { .tasks = (uint64_t)t->tasks,
					  .samples = (double)t->samples };
	return fal_trace_full_tasks(&f->job, fixed, &p);
}

/* Seconds of a full one; 0: it ran none. */
static double
full_s(const struct fal_fit *f, double fixed, const struct fit_told *t)
{
	const double size = size_of(f, fixed, t);
	return size > 0 ? (double)t->task_s * (double)t->tasks / size : 0;
}

/* The part of a full one's samples that its tasks have in the mean. */
static double
mean_part(const struct fal_fit *f, const struct fit_told *t)
{
	const double full = fal_grid_full(&f->job.grid);
	return t->tasks > 0 ? (double)t->samples / ((double)t->tasks * full) : 1;
}

/* The median of a full task's seconds, where all tasks were full. */
static double
typical_s(const struct fal_fit *f, const struct fit_worker *w, struct scratch *s)
{
	s->n = 0;
	for (uint64_t i = 0; i < kept(w); i++) {
		const struct fit_told *t = told_at(w, i);
		const double v = full_s(f, w->fixed, t);
		if (t->clock >= first_clock(f) && v > 0 && !(mean_part(f, t) < 1))
			s->v[s->n++] = v;
	}
	return median(s);
}

/* The share of a full task's seconds that a task of any size takes: the median of what
 * its probe did, as one task of no samples, and lines say with tasks that are shorter in
 * the mean.  NAN: nothing does. */
static double
fixed_of(const struct fal_fit *f, const struct fit_worker *w, struct scratch *s)
{
	const double usual = typical_s(f, w, s);
	s->n = 0;
	if (!isnan(w->fixed))
		s->v[s->n++] = w->fixed;
	for (uint64_t i = 0; i < kept(w) && usual > 0; i++) {
		const struct fit_told *t = told_at(w, i);
		const double part = mean_part(f, t), less = 1 - part;
		if (t->clock >= first_clock(f) && less > 0)
			s->v[s->n++] =
				fmin(fmax(((double)t->task_s / usual - part) / less, 0),
				     1);
	}
	return s->n > 0 ? median(s) : (double)NAN;
}

/* Sets the scratch's common_fixed. */
static void
learn_fixed(const struct fal_fit *f, struct scratch *s)
{
	double *v = fal_xcalloc(f->workers, sizeof(*v));
	size_t n = 0;
	for (size_t i = 0; i < f->workers; i++) {
		v[n] = fixed_of(f, &f->worker[i], s);
		if (!isnan(v[n]))
			n++;
	}
	memcpy(s->v, v, n * sizeof(*v));
	s->n = n;
	s->common_fixed = n > 0 ? median(s) : (double)NAN;
	free(v);
}

/* A row's paces, as they are put together. */
struct paces {
	struct fal_cost_pace *v;
	size_t n;
};

static void
add_pace(struct paces *p, double task_s, double tasks, double seconds)
{
	p->v[p->n++] = (struct fal_cost_pace){ .task_s = task_s,
					       .tasks = tasks,
					       .seconds = seconds };
}

/* Adds what a part says of `tasks` full ones, the worker being at task_s, and `after` in
 * the next part (0: not known).  Tasks that were cut short are as slow as the slower one
 * of these, and no quicker than they ran: who loses a race is slow, and would else seem
 * not to be. */
static void
add_told_paces(struct paces *p, const struct fit_told *t, double tasks, double task_s,
	       double after)
{
	const double ran = tasks * task_s;
	const double cut_s = t->cut > 0 ? (double)t->cut_s : 0;
	const double part = cut_s > 0 ? (double)t->seconds * cut_s / (ran + cut_s) : 0;
	if ((double)t->seconds - part > 0)
		add_pace(p, task_s, tasks, (double)t->seconds - part);
	if (part > 0) {
		const double least = cut_s / (double)t->cut;
		const double slow = fmax(fmax(task_s, after), least);
		add_pace(p, slow, cut_s / slow, part);
	}
}

/* Does it hang time and again, or now?  What happened once is no property of a machine.
 */
static bool
is_prone(const struct fal_fit *f, const struct fit_worker *w)
{
	uint32_t first = 0, last = 0;
	for (uint64_t i = 0; i < kept(w); i++) {
		const struct fit_told *t = told_at(w, i);
		if (t->hung == 0 || t->clock < first_clock(f))
			continue;
		first = first == 0 ? t->hung : first;
		last = t->hung;
	}
	return first != last || (last != 0 && (w->suspect || w->stuck));
}

/* The paces of a row, line by line.  If the row ran no task in a line, the nearest
 * earlier line tells its speed, else the nearest later one; 0: none does. */
static struct paces
paces_of(const struct fal_fit *f, const struct fit_worker *w, double fixed,
	 struct scratch *s)
{
	struct paces p = { .v = s->pace };
	const bool prone = is_prone(f, w);
	s->prone |= prone;
	const struct fal_policy_worker *e = fal_policy_find(&f->policy, w->name);
	double task_s = 0;
	uint64_t ran = 0; /* lines */
	for (uint64_t i = 0; i < kept(w); i++) {
		const struct fit_told *t = told_at(w, i);
		double after = 0;
		ran += t->tasks > 0;
		if (t->task_s > 0)
			task_s = fit_at_lanes(full_s(f, fixed, t), w->cores, 1, w->lanes);
		if (t->clock < first_clock(f))
			continue;
		if (t->hung && prone) { /* nothing was done in these seconds */
			add_pace(&p, task_s, 0, (double)t->seconds);
			p.v[p.n - 1].hung = true;
		}
		if (t->hung)
			continue;
		if (i + 1 < kept(w)) {
			const struct fit_told *next = told_at(w, i + 1);
			after = fit_at_lanes(full_s(f, fixed, next), w->cores, 1,
					     w->lanes);
		}
		add_told_paces(&p, t, size_of(f, fixed, t), task_s, after);
	}
	/* A worker that was excluded before it had shown its speed is taken to be like
	 * the others. */
	const bool hasty = e != NULL && e->excluded && ran < FAL_FIT_ENOUGH;
	if (p.n == 0 || hasty) {
		p.n = 0;
		add_pace(&p, hasty ? 0 : task_s, 0, 1);
	}
	for (size_t i = 1; i < p.n; i++) /* of tasks that were cut short, too */
		if (!(p.v[i].task_s > 0))
			p.v[i].task_s = p.v[i - 1].task_s;
	for (size_t i = p.n - 1; i-- > 0;)
		if (!(p.v[i].task_s > 0))
			p.v[i].task_s = p.v[i + 1].task_s;
	return p;
}

/* A row as a machine; its pace is 0 if it ran no task. */
static void
add_machine(const struct fal_fit *f, const struct fit_worker *w, struct scratch *s,
	    struct fal_cost *out)
{
	const double own = fixed_of(f, w, s);
	const double fixed = isnan(own) ? s->common_fixed : own;
	const struct paces paces = paces_of(f, w, fixed, s);
	const struct fal_cost_machine m = {
		.lanes_min = w->lanes_min,
		.lanes_max = w->lanes_max,
		.lanes = w->lanes,
		.cores = w->cores,
		.fixed = fixed,
		.pace = paces.v,
		.paces = paces.n,
		.turn_s = turn_of(f, w, s),
		.pull_s = typical(f, w, offsetof(struct fit_told, pull), s),
		.push_s = typical(f, w, offsetof(struct fit_told, push), s),
		.rtt_s = w->rtt,
	};
	fal_cost_add(out, &m, w->name);
}

static bool
is_known(const struct fal_cost_machine *m)
{
	return m->pace[0].task_s > 0;
}

/* The median over the machines of a field, at `at` in struct fal_cost_machine. */
static double
common(const struct fal_cost *c, size_t at, struct scratch *s)
{
	s->n = 0;
	for (size_t i = 0; i < c->machines; i++)
		if (is_known(&c->machine[i]))
			s->v[s->n++] =
				*(const double *)((const char *)&c->machine[i] + at);
	return median(s);
}

/* A machine that ran no task yet is as the others are.  FAL_ETRUNC: none ran any. */
static int
guess(struct fal_cost *c, struct scratch *s)
{
	const double turn = common(c, offsetof(struct fal_cost_machine, turn_s), s);
	const double pull = common(c, offsetof(struct fal_cost_machine, pull_s), s);
	const double push = common(c, offsetof(struct fal_cost_machine, push_s), s);
	s->n = 0;
	for (size_t i = 0; i < c->machines; i++) {
		const struct fal_cost_machine *m = &c->machine[i];
		if (is_known(m))
			s->v[s->n++] =
				fit_at_lanes(fal_cost_mean(m), m->cores, m->lanes, 1);
	}
	const double pace = median(s);
	if (!(pace > 0))
		return FAL_ETRUNC;
	for (size_t i = 0; i < c->machines; i++) {
		struct fal_cost_machine *m = &c->machine[i];
		if (is_known(m))
			continue;
		m->turn_s = turn;
		m->pull_s = fmax(m->pull_s, pull); /* its link has shown that */
		m->push_s = fmax(m->push_s, push);
		for (size_t k = 0; k < m->paces; k++)
			m->pace[k].task_s = fit_at_lanes(pace, m->cores, 1, m->lanes);
	}
	return 0;
}

/* Returns the seconds of a clock in which the last worker neither computes, pulls nor
 * pushes.  For rounds of their own: the wait of the workers that did not wait for others.
 * Among n workers that wait for each other, one does not. */
static double
rest_of(const struct fal_fit *f, size_t n, struct scratch *s)
{
	if (!f->shared)
		return of_ring(&f->wait, 0.5 / (double)n, s);
	s->n = 0;
	for (size_t i = 0; i < FAL_FIT_CLOCKS; i++) {
		const struct fit_clock *c = &f->clock[i];
		if (c->number > first_clock(f) && c->seconds > 0 && c->busy > 0)
			s->v[s->n++] = c->seconds - c->busy;
	}
	return median(s);
}

/* The coordinator's costs.  The rest of a clock has the coordinator's messages as well,
 * which a play adds. */
static void
coordinator(const struct fal_fit *f, struct scratch *s, struct fal_cost *c)
{
	c->message_s = FAL_FIT_MESSAGE_S;
	c->byte_s = FAL_FIT_BYTE_S;
	c->push_bytes = of_ring(&f->tx, 0.5, s);
	c->pull_bytes = of_ring(&f->rx, 0.5, s);
	const double talk =
		2 * c->message_s + (c->push_bytes + c->pull_bytes) * c->byte_s;
	const double n = f->shared ? (double)c->machines : 1;
	c->step_s = fmax(rest_of(f, c->machines, s) - n * talk, 0);
}

static int
model(const struct fal_fit *f, struct scratch *s, struct fal_cost *out)
{
	learn_fixed(f, s);
	out->grid = f->grid;
	bool gone = true;
	for (size_t i = 0; i < f->workers; i++)
		gone = gone && f->worker[i].left;
	/* If all have left, the workers that left after the last update count: the
	 * coordinator was stopped, or those workers were. */
	for (size_t i = 0; i < f->workers; i++)
		if (!f->worker[i].left || (gone && f->worker[i].left_after == f->updates))
			add_machine(f, &f->worker[i], s, out);
	if (guess(out, s) < 0)
		return FAL_ETRUNC;
	coordinator(f, s, out);
	const double share = fal_grid_size(&f->grid, 0) / (double)out->machines;
	for (size_t i = 0; i < out->machines; i++)
		fal_cost_choose_pacing(&out->machine[i], share);
	return 0;
}

int
fal_fit_end(struct fal_fit *f, struct fal_cost *cost, struct fal_fit_run *run,
	    struct fal_diag *diag)
{
	struct fal_cost c = { 0 };
	if (!f->have_job)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	if (f->group)
		return fal_diag_set(diag, FAL_EINVAL,
				    "the trace of a group server: what another scheme "
				    "would do is told by that of the coordinator above");
	struct scratch *s = fal_xcalloc(1, sizeof(*s));
	struct fit_sums of = f->well;
	s->v = fal_xcalloc(f->workers + FAL_FIT_CLOCKS, sizeof(*s->v));
	const int err = model(f, s, &c);
	/* Machines that do not hang are held against the clocks in which none did. */
	if (s->prone || !(of.samples > 0)) {
		of.counted += f->hung.counted;
		of.seconds += f->hung.seconds;
		of.samples += f->hung.samples;
	}
	free(s->v);
	free(s);
	if (err < 0) {
		fal_cost_free(&c);
		return fal_diag_set(diag, err, "no worker is here that ran a task");
	}
	*cost = c;
	*run = (struct fal_fit_run){ .optim = f->optim,
				     .policy = f->policy,
				     .clocks = (uint64_t)(of.counted + 0.5),
				     .from = f->from };
	memcpy(run->scheme, f->scheme, sizeof(run->scheme));
	if (of.samples > 0)
		run->epoch_s = of.seconds * f->grid.samples / of.samples;
	if (f->spent > 0)
		run->compute = f->compute / f->spent;
	return 0;
}
