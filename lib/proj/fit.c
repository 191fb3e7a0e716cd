/* The lines of a trace, one by one. */
#include "proj/fit_priv.h"

#include "base/mem.h"
#include "job/policy.h"
#include "sched/sched.h"
#include "sched/traits.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
	if (j.samples > UINT32_MAX || j.batch > UINT32_MAX || j.task > UINT32_MAX ||
	    j.clocks > UINT32_MAX)
		return fal_trace_fail(l, FAL_ELIMIT,
				      "samples, batch, task, clocks: one is above %u",
				      UINT32_MAX);
	f->grid = (struct fal_grid){ .samples = (uint32_t)j.samples,
				     .batch = (uint32_t)j.batch,
				     .task = (uint32_t)j.task,
				     .epochs = (uint32_t)j.epochs,
				     .parts = (uint32_t)j.parts };
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
	f->grid.epochs = (uint32_t)f->job.epochs;
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
	char *copy = fal_strdup(name);
	if (copy == NULL || FAL_GROW(f->worker, f->cap, f->workers + 1) < 0 ||
	    FAL_GROW(f->by_name, f->by_name_cap, f->workers + 1) < 0) {
		free(copy);
		fal_trace_fail(l, FAL_ENOMEM, "%s", fal_strerror(FAL_ENOMEM));
		return NULL;
	}
	memmove(&f->by_name[at + 1], &f->by_name[at],
		(f->workers - at) * sizeof(*f->by_name));
	f->by_name[at] = (uint32_t)f->workers;
	f->worker[f->workers] = (struct fit_worker){ .name = copy };
	return &f->worker[f->workers++];
}

static int
take_join(struct fal_fit *f, struct fal_trace_line *l)
{
	const struct fal_ev_join *e = &l->is.join;
	const uint64_t *lanes = e->lanes.v;
	if (lanes[0] < 1 || lanes[0] > lanes[1] || lanes[1] > FAL_LANES_MAX)
		return fal_trace_fail(l, FAL_EINVAL, "lanes: [%llu, %llu]",
				      (unsigned long long)lanes[0],
				      (unsigned long long)lanes[1]);
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
	return fal_ids_put(&f->ids, e->id, (size_t)(w - f->worker));
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
	struct fal_trace_ran ran;
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

static int
add_told(struct fit_worker *w, const struct fit_told *told)
{
	if (w->n < FAL_FIT_CLOCKS && FAL_GROW(w->told, w->cap, w->n + 1) < 0)
		return FAL_ENOMEM;
	w->told[w->n++ % FAL_FIT_CLOCKS] = *told;
	return 0;
}

/* Takes what the worker hung out of the line: it is no pace, nor are tasks that were cut
 * short by it. */
static int
keep_hung(struct fit_worker *w, struct line *c, double ran, double t, double *all)
{
	const double s = fmin(hung(w, t), *all - ran / w->lanes);
	w->hung = 0;
	if (!(s > 0))
		return 0;
	*all -= s;
	c->compute = (double)NAN; /* says nothing of its turns */
	c->cut = 0;
	c->cut_s = 0;
	return add_told(w, &(struct fit_told){ .clock = (uint32_t)c->is->clock,
					       .hung = w->hangs,
					       .turn = NAN,
					       .seconds = (float)s });
}

/* Keeps the line, pace by pace; one that the worker did not account for lasted since its
 * last. */
static int
keep(struct fit_worker *w, struct line *c, double t)
{
	const double ran = (double)c->ran.all.tasks * c->ran.all.task_s;
	double all = busy(c) + c->wait;
	if (!(all > 0))
		all = t - w->t;
	int err = keep_hung(w, c, ran, t, &all);
	w->t = t;
	for (size_t i = 0; i < c->ran.paces && err == 0; i++) {
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
		err = add_told(w, &told);
	}
	return err;
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
	    fal_trace_clock_ran(l, &f->job, &c.ran) < 0)
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
	return keep(w, &c, l->t);
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
