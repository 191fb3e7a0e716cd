/* A frame of the report: its seconds by cause, and how the workers stood in it. */
#include "base/mem.h"
#include "base/quantile.h"
#include "proj/report_priv.h"

#include <math.h>

double
report_pace(const struct fal_trace_class *verdict, size_t n, double *scratch)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		if (verdict[i].class != FAL_CLASS_NONE)
			scratch[k++] = verdict[i].projected;
	return fal_quantile(scratch, k, 0.5);
}

int
report_room(struct fal_report_state *s)
{
	const size_t n = s->rows;
	return FAL_GROW(s->load, s->cap_load, n) < 0 ||
			       FAL_GROW(s->verdict, s->cap_verdict, n) < 0 ||
			       FAL_GROW(s->lanes, s->cap_lanes, n) < 0 ||
			       FAL_GROW(s->value, s->cap_value, n) < 0
		       ? FAL_ENOMEM
		       : 0;
}

/* Whether the row counts in the frame: it told in it; or, if rounds are its own, it is
 * there and told before. */
static bool
counts(const struct fal_report_state *s, size_t row, size_t at)
{
	const struct report_row *w = &s->row[row];
	if (w->cell[at].load.clocks > 0)
		return true;
	return !report_shared(s) && w->load.clocks > 0 && !s->summary.worker[row].left;
}

/* What is newest of a row that told in the frame. */
static void
renew(struct report_row *w, const struct report_cell *c)
{
	w->load = c->load;
	w->wait = (c->wait - c->load.latency) / (double)c->load.clocks;
	if (c->load.tasks == 0 || !(c->load.lane_s > 0))
		return;
	w->speed = c->samples / c->load.lane_s;
	w->task_s = c->load.lane_s / c->load.size * (double)w->lanes;
}

static void
add_cell(struct report_cell *to, const struct report_cell *c)
{
	to->load.clocks += c->load.clocks;
	to->load.tasks += c->load.tasks;
	to->load.size += c->load.size;
	to->load.lane_s += c->load.lane_s;
	to->load.push += c->load.push;
	to->load.pull += c->load.pull;
	to->load.latency += c->load.latency;
	to->compute += c->compute;
	to->wait += c->wait;
	to->samples += c->samples;
	to->idle += c->idle;
}

void
report_use_add(struct report_use *to, const struct report_use *use, double weight)
{
	to->compute += weight * use->compute;
	to->ran += weight * use->ran;
	to->won += weight * use->won;
	to->whole += weight * use->whole;
	to->comm += weight * use->comm;
	for (int i = 0; i < FAL_REPORT_WAITS; i++)
		to->wait[i] += weight * use->wait[i];
}

/* What the cell's seconds went to; no line of those who had tasks waited less than
 * `least` seconds. */
static struct report_use
use_of(const struct report_cell *c, double least)
{
	const double lines = (double)(c->load.clocks - c->idle);
	const double rest = c->wait - c->load.latency - c->idle_s;
	const double all = lines > 0 && rest > lines * least ? lines * least : rest;
	return (struct report_use){
		.compute = c->compute,
		.ran = c->load.lane_s,
		.won = c->won_s,
		.whole = c->whole,
		.comm = c->load.push + c->load.pull + c->load.latency,
		.wait = { [FAL_REPORT_OTHERS] = rest - all,
			  [FAL_REPORT_COORDINATOR] = all,
			  [FAL_REPORT_IDLE] = c->idle_s,
			  [FAL_REPORT_LATENCY] = c->load.latency },
	};
}

/* The least wait of a line among those who had tasks and were waited for, as they are not
 * if their rounds are dropped.  Where nobody is, all waits are the coordinator's. */
static double
least_wait(struct fal_report_state *s, size_t at)
{
	double least = HUGE_VAL;
	for (size_t i = 0; i < s->rows && fal_rule_traits(&s->rule).waits; i++) {
		struct report_row *w = &s->row[i];
		const uint64_t dropped = s->summary.worker[i].dropped;
		const struct report_cell *c = &w->cell[at];
		const bool asked = w->load.tasks > 0 || c->load.clocks > c->idle;
		if (counts(s, i, at) && asked && dropped == w->dropped && w->wait < least)
			least = w->wait;
		w->dropped = dropped;
	}
	return least;
}

/* Under shared rounds, of a clock that `speed` samples a second worked on: what it would
 * take, when each finished, against all at once, and what whole tasks cost, which under
 * slack need not fit the clock. */
static void
clock_ends(struct fal_report_state *s, size_t at, double speed)
{
	const double samples =
		(double)fal_trace_job_samples(&s->summary.job, s->base + at);
	const double full = (double)fal_trace_job_full(&s->summary.job);
	double ran = 0, won = 0; /* full tasks */
	size_t n = 0;
	for (size_t i = 0; i < s->rows; i++) {
		const struct report_row *w = &s->row[i];
		if (!counts(s, i, at) || !(w->speed > 0))
			continue;
		s->lanes[n++] = (struct fal_bound_lanes){ w->task_s, w->lanes,
							  s->summary.worker[i].fixed };
		ran += w->cell[at].samples / full;
		won += w->cell[at].won_samples / full;
	}
	s->samples += samples;
	s->ideal += samples / speed;
	const double ideal = fal_bound_capacity(s->lanes, n, ran);
	if (s->rule.slack == 0)
		s->whole += fal_bound_whole(s->lanes, n, won) -
			    fal_bound_capacity(s->lanes, n, won);
	for (size_t i = 0; i < s->rows; i++) {
		const struct report_cell *c = &s->row[i].cell[at];
		struct report_sums *sum = &s->row[i].sums;
		if (c->load.tasks == 0)
			continue;
		const double finish = c->compute + c->load.push + c->load.pull;
		sum->finishes++;
		sum->finish += finish;
		sum->lag += finish - ideal;
	}
}

/* The row told of a frame in which it was of this class, this much slower. */
static void
note_class(struct report_row *w, const struct fal_trace_class *v, double slower)
{
	struct report_sums *sum = &w->sums;
	w->run = v->class == w->class ? w->run + 1 : 1;
	w->class = v->class;
	if (v->class == FAL_CLASS_STRAGGLER)
		w->straggles_by = v->cause;
	sum->in_class[v->class]++;
	if (w->run >= FAL_REPORT_RUN)
		sum->in_run[v->class] += w->run == FAL_REPORT_RUN ? FAL_REPORT_RUN : 1;
	sum->slower[v->class] += slower;
}

static int
classes(struct fal_report_state *s, size_t at)
{
	for (size_t i = 0; i < s->rows; i++)
		s->load[i] =
			counts(s, i, at) ? s->row[i].load : (struct fal_trace_load){ 0 };
	int err = fal_trace_classify(s->load, s->rows, s->verdict);
	if (err < 0)
		return err;
	const double pace = report_pace(s->verdict, s->rows, s->value);
	for (size_t i = 0; i < s->rows; i++)
		if (s->row[i].cell[at].load.clocks > 0 &&
		    s->verdict[i].class != FAL_CLASS_NONE && pace > 0)
			note_class(&s->row[i], &s->verdict[i],
				   s->verdict[i].projected / pace);
	return 0;
}

int
report_frame(struct fal_report_state *s, size_t at)
{
	int err = report_room(s);
	if (err < 0)
		return err;
	double all = 0;
	for (size_t i = 0; i < s->rows; i++) {
		struct report_row *w = &s->row[i];
		if (w->cell[at].load.clocks > 0)
			renew(w, &w->cell[at]);
		if (counts(s, i, at))
			all += w->speed;
	}
	/* A clock of which not all is known would have work without workers. */
	const bool whole = all > 0 && !(report_shared(s) && s->partial[at]);
	const double least = least_wait(s, at);
	for (size_t i = 0; i < s->rows && whole; i++) {
		struct report_row *w = &s->row[i];
		const struct report_use use = use_of(&w->cell[at], least);
		add_cell(&w->sums.cell, &w->cell[at]);
		report_use_add(&w->sums.use, &use, 1);
		report_use_add(&s->use, &use, w->speed / all);
		if (!report_shared(s))
			s->samples += w->cell[at].won_samples;
	}
	if (report_shared(s) && whole)
		clock_ends(s, at, all);
	err = classes(s, at);
	for (size_t i = 0; i < s->rows; i++)
		s->row[i].cell[at] = (struct report_cell){ 0 };
	return err;
}
