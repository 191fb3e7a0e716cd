/* What a report says of the frames that it has seen. */
#include "base/mem.h"
#include "base/quantile.h"
#include "base/text.h"
#include "proj/report_priv.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* What a worker is in this share of its clocks, it is often. */
#define OFTEN 0.10
/* Times that it stood still, or nearly so: fewer may be chance. */
#define STALLS 3

const char *
fal_report_part_name(enum fal_report_part part)
{
	static const char *const name[FAL_REPORT_PARTS] = {
		"ideal",         "granularity", "small_tasks", "stragglers",
		"communication", "coordinator", "standby",     "extra",
	};
	return name[part];
}

static void
forget(struct fal_report *r)
{
	for (size_t i = 0; i < r->workers; i++)
		free(r->worker[i].speed);
	free(r->worker);
	free(r->finding);
	*r = (struct fal_report){ .state = r->state };
}

void
fal_report_free(struct fal_report *r)
{
	struct fal_report_state *s = r->state;
	forget(r);
	*r = (struct fal_report){ 0 };
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->rows; i++) {
		for (size_t k = 0; k < s->row[i].rings; k++)
			free(s->row[i].ring[k].v);
		free(s->row[i].ring);
	}
	free(s->row);
	free(s->load);
	free(s->verdict);
	free(s->lanes);
	free(s->value);
	fal_summary_free(&s->summary);
	free(s);
}

const struct fal_report_speed *
report_speed_at(const struct fal_report_worker *w, uint32_t lanes)
{
	for (size_t i = 0; i < w->speeds; i++)
		if (w->speed[i].lanes == lanes)
			return &w->speed[i];
	return NULL;
}

static int
speeds(const struct report_row *w, struct fal_report_worker *out)
{
	double v[FAL_REPORT_SPEEDS];
	out->speed = fal_calloc(w->rings, sizeof(*out->speed));
	if (out->speed == NULL)
		return FAL_ENOMEM;
	out->speeds = w->rings;
	for (size_t i = 0; i < w->rings; i++) {
		const struct report_ring *r = &w->ring[i];
		const size_t n = r->n < FAL_REPORT_SPEEDS ? r->n : FAL_REPORT_SPEEDS;
		memcpy(v, r->v, n * sizeof(*v));
		out->speed[i] = (struct fal_report_speed){
			.lanes = r->lanes,
			.clocks = r->clocks,
			.median = fal_quantile(v, n, 0.5),
			.p10 = fal_quantile(v, n, 0.1),
			.p90 = fal_quantile(v, n, 0.9),
		};
	}
	return 0;
}

static bool
often(const struct report_sums *sum, enum fal_class class, double all)
{
	return all > 0 && (double)sum->in_class[class] >= OFTEN * all;
}

/* The class of the window: by its sums, v, `slower` than the others.  Who was slow now
 * and then may be slow by them or not; who never was is no pioneer for that. */
static void
classify(const struct report_row *w, const struct fal_trace_class *v, double slower,
	 struct fal_report_worker *out)
{
	const struct report_sums *sum = &w->sums;
	double all = 0;
	for (int i = 0; i <= FAL_CLASS_PIONEER; i++)
		all += (double)sum->in_class[i];
	out->class = v->class;
	out->cause = v->cause;
	out->projected = v->projected;
	out->slower = v->class != FAL_CLASS_NONE ? slower : (double)NAN;
	out->now = w->class;
	out->run = w->run;
	if (v->class == FAL_CLASS_PIONEER && !often(sum, v->class, all)) {
		out->class = FAL_CLASS_STEADY;
		out->cause = FAL_CAUSE_NONE;
	}
	/* Jitter of 15 % makes anybody one in a tenth of its clocks, and costs 4 %. */
	const double more = sum->slower[FAL_CLASS_STRAGGLER] -
			    (double)sum->in_class[FAL_CLASS_STRAGGLER];
	const bool slow = more >= OFTEN * all,
		   is_often = often(sum, FAL_CLASS_STRAGGLER, all);
	const uint64_t slowed = slow ? sum->in_class[FAL_CLASS_STRAGGLER] : 0;
	out->stalls = w->counts.suspected > slowed ? w->counts.suspected : slowed;
	if (out->class == FAL_CLASS_STEADY && slow && is_often) {
		out->class = FAL_CLASS_STRAGGLER;
		out->cause = w->straggles_by;
	} else if (!is_often && out->stalls >= STALLS &&
		   out->class != FAL_CLASS_PIONEER) {
		out->class = FAL_CLASS_STALLS;
		out->cause = FAL_CAUSE_NONE;
		return;
	}
	const uint64_t in = sum->in_class[out->class];
	if (in == 0)
		return;
	out->in_class = (double)in / all;
	out->persistent = 2 * sum->in_run[out->class] >= in && out->in_class >= 0.5;
	out->slower = sum->slower[out->class] / (double)in;
}

static void
means(const struct report_row *w, struct fal_report_worker *out)
{
	const struct report_sums *sum = &w->sums;
	const double n = (double)sum->cell.load.clocks;
	const bool ended = sum->finishes > 0;
	out->finish = ended ? sum->finish / (double)sum->finishes : (double)NAN;
	out->lag = ended ? sum->lag / (double)sum->finishes : (double)NAN;
	if (!(n > 0)) {
		out->compute = out->push = out->pull = out->wait = (double)NAN;
		return;
	}
	out->compute = sum->cell.compute / n;
	out->push = sum->cell.load.push / n;
	out->pull = sum->cell.load.pull / n;
	out->wait = sum->cell.wait / n;
	for (int i = 0; i < FAL_REPORT_WAITS; i++)
		out->waits[i] = sum->use.wait[i] / n;
	out->idle = (double)sum->cell.idle / n;
}

/* When fewer bits would pay.  A contribution has 24 of them or a few more, besides what
 * else is sent; with much less it has fewer already, or is compressed. */
static void
links(const struct report_counts *c, uint64_t params, struct fal_report_worker *out)
{
	const double round_s = 1e-9; /* of a value and core: bench_bfp's dither */
	const double lines = (double)c->lines, all = (double)params;
	out->rate = c->push_all > 0 ? c->tx / c->push_all : (double)NAN;
	out->fewer_bits = NAN;
	if (lines > 0 && c->lane_tasks > 0 && c->tx > all * lines * 18 / 8 && params > 0)
		out->fewer_bits = c->tx / 3 / (c->lane_tasks * all * round_s);
}

static int
worker(const struct fal_report_state *s, size_t i, struct fal_report_worker *out)
{
	const struct fal_summary_worker *row = &s->summary.worker[i];
	const struct report_row *w = &s->row[i];
	const struct report_counts *c = &w->counts;
	*out = (struct fal_report_worker){
		.name = row->name,
		.left = row->left,
		.suspect = row->suspect,
		.falls = row->falls,
		.fell_s = row->fell_s,
		.members = row->members,
		.clocks = c->lines,
		.lanes = w->lanes,
		.lanes_max = (uint32_t)row->lanes_max,
		.cores = (uint32_t)row->cores,
		.tasks = c->tasks,
		.in = c->in,
		.out = c->out,
		.cloned = c->cloned,
		.lost = c->lost,
		.fixed = row->fixed,
		.dropped = row->dropped - c->dropped,
		.stale = c->lines > 0 ? (double)c->stale / (double)c->lines : 0,
	};
	fal_text_plain(out->shown, sizeof(out->shown), row->name);
	means(w, out);
	links(c, s->summary.job.params, out);
	return speeds(w, out);
}

/* Those who told in the window, or are there. */
static int
workers(struct fal_report *r)
{
	struct fal_report_state *s = r->state;
	for (size_t i = 0; i < s->rows; i++)
		s->load[i] = s->row[i].sums.cell.load;
	int err = fal_trace_classify(s->load, s->rows, s->verdict);
	r->worker = fal_calloc(s->rows, sizeof(*r->worker));
	if (err < 0 || r->worker == NULL)
		return FAL_ENOMEM;
	const double pace = report_pace(s->verdict, s->rows, s->value);
	for (size_t i = 0; i < s->rows; i++) {
		struct fal_report_worker *w = &r->worker[r->workers];
		if (s->row[i].counts.lines == 0 && s->summary.worker[i].left)
			continue;
		err = worker(s, i, w);
		r->workers++;
		if (err < 0)
			return err;
		classify(&s->row[i], &s->verdict[i], s->verdict[i].projected / pace, w);
	}
	return 0;
}

/* With rounds of their own workers are weighed by their speeds over the whole window,
 * each for the time that it was there: v_w T_w of the Σ v T that were to be had in T
 * seconds. A second is then worth v_w · T / Σ v T. */
static struct report_use
use_of(const struct fal_report_state *s, double *ideal)
{
	struct report_use use = { 0 };
	double longest = 0, all = 0;
	for (size_t i = 0; i < s->rows; i++) {
		const struct report_cell *c = &s->row[i].sums.cell;
		const double wall = c->compute + c->load.push + c->load.pull + c->wait;
		longest = wall > longest ? wall : longest;
		all += c->load.lane_s > 0 ? c->samples / c->load.lane_s * wall : 0;
	}
	for (size_t i = 0; i < s->rows && all > 0; i++) {
		const struct report_cell *c = &s->row[i].sums.cell;
		if (c->load.lane_s > 0)
			report_use_add(&use, &s->row[i].sums.use,
				       c->samples / c->load.lane_s * longest / all);
	}
	*ideal = use.won - (all > 0 ? s->vain * longest / all : 0);
	return use;
}

size_t
report_lanes(const struct fal_report *r, uint64_t task, struct fal_bound_lanes *v)
{
	const double full = (double)fal_trace_job_full(&r->state->summary.job);
	const double ratio = (double)task / full;
	size_t n = 0;
	for (size_t i = 0; i < r->workers; i++) {
		const struct fal_report_worker *w = &r->worker[i];
		const struct fal_report_speed *s = report_speed_at(w, w->lanes);
		if (w->clocks == 0 || s == NULL)
			continue;
		const double longer = fal_bound_longer(w->fixed, ratio);
		v[n++] = (struct fal_bound_lanes){
			.task_s = full * s->lanes / s->median * longer,
			.lanes = s->lanes,
			.fixed = w->fixed / longer,
		};
	}
	return n;
}

/* The share of computing that tasks are small by. */
static double
small(const struct fal_report *r)
{
	struct fal_bound_lanes *v = r->state->lanes; /* has room for all rows */
	const uint64_t full = fal_trace_job_full(&r->state->summary.job);
	return fal_bound_small(v, report_lanes(r, full, v),
			       (double)r->batch / (double)full);
}

/* What lanes idle while others of their worker compute, which whole tasks explain, stands
 * by the waiting for others: under shared rounds a better sharing might save it, but for
 * what whole tasks cost however they are shared; a round of one's own has its tasks. */
static void
parts(struct fal_report *r)
{
	const struct fal_report_state *s = r->state;
	double ideal = s->ideal;
	const struct report_use use = r->shared ? s->use : use_of(s, &ideal);
	const double lanes = fmin(fmax(use.compute - use.ran, 0), use.whole);
	const double all = lanes + use.wait[FAL_REPORT_OTHERS];
	const double whole = r->shared ? fmin(fmax(s->whole, 0), all) : lanes;
	const double extra = use.compute - ideal - lanes;
	r->clocks = s->samples / (double)r->batch;
	if (!(s->samples > 0))
		return;
	/* Below 0 if tasks that began in an earlier window ended in this one. */
	r->part[FAL_REPORT_IDEAL] = ideal + (extra < 0 ? extra : 0);
	r->part[FAL_REPORT_GRANULARITY] = whole;
	r->part[FAL_REPORT_STRAGGLERS] = all - whole;
	r->part[FAL_REPORT_COMMUNICATION] = use.comm;
	r->part[FAL_REPORT_COORDINATION] = use.wait[FAL_REPORT_COORDINATOR];
	r->part[FAL_REPORT_STANDBY] = use.wait[FAL_REPORT_IDLE];
	r->part[FAL_REPORT_EXTRA] = extra > 0 ? extra : 0;
	for (int i = 0; i < FAL_REPORT_PARTS; i++) {
		r->part[i] /= r->clocks;
		r->clock += r->part[i];
	}
	r->part[FAL_REPORT_SMALL_TASKS] = r->part[FAL_REPORT_IDEAL] * small(r);
	if (r->part[FAL_REPORT_SMALL_TASKS] > 0)
		r->part[FAL_REPORT_IDEAL] -= r->part[FAL_REPORT_SMALL_TASKS];
}

static void
ticks(struct fal_report *r)
{
	const struct fal_report_state *s = r->state;
	double v[FAL_REPORT_TICKS];
	const size_t n = s->ticks < FAL_REPORT_TICKS ? s->ticks : FAL_REPORT_TICKS;
	memcpy(v, s->ring, n * sizeof(*v));
	r->clock_median = fal_quantile(v, n, 0.5);
	r->clock_p95 = fal_quantile(v, n, 0.95);
}

int
fal_report_end(struct fal_report *r, struct fal_diag *diag)
{
	struct fal_report_state *s = r->state;
	forget(r);
	if (s == NULL || !s->summary.have_job)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	if (!s->told)
		return fal_diag_set(diag, FAL_ETRUNC, "no worker has told of a clock");
	r->name = s->summary.name;
	r->scheme = s->summary.scheme;
	r->rule = s->rule;
	r->above = s->summary.above;
	r->shared = report_shared(s);
	r->done = s->summary.done;
	r->batch = fal_trace_job_samples(&s->summary.job, 0);
	r->task = fal_trace_job_full(&s->summary.job);
	r->seconds = s->summary.seconds - s->begin;
	int err = report_room(s);
	if (err == 0)
		err = workers(r);
	if (err == 0) {
		ticks(r);
		parts(r);
		err = report_advise(r);
	}
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : 0;
}
