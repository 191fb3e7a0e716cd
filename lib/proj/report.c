/* The straggler projection: sorts the lines of a trace into frames, derives the seconds
 * and classes of each frame, sums them over a window, and makes findings, one sentence of
 * advice each. */
#include "proj/report.h"

#include "base/mem.h"
#include "base/quantile.h"
#include "base/sorted.h"
#include "base/text.h"
#include "job/policy.h"
#include "math/optim.h"
#include "proj/fit.h"
#include "sched/bound.h"
#include "sched/policy.h"
#include "trace/reader.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Keeps the speeds of a worker at so many numbers of lanes. */
enum { RINGS_MAX = 64 };

/* A worker in one frame, or its sums over the frames of a window.  Seconds. */
struct report_cell {
	struct fal_trace_load load;
	double compute, wait;
	double samples;            /* of all its tasks, with the lost ones */
	double won_samples, won_s; /* of tasks whose claims won: samples, and seconds on
				      lanes / lanes */
	double whole;  /* seconds that whole tasks leave a part of its lanes idle */
	uint64_t idle; /* lines in which it was granted nothing and ran nothing */
	double idle_s; /* its wait in these, without latency */
};

/* The uses of time; seconds of a worker, or weighted sums. */
struct report_use {
	double compute; /* in which a lane was busy */
	double ran;     /* of its tasks, if all its lanes were busy */
	double won;     /* the same, of tasks whose claims won */
	double whole, comm, wait[FAL_REPORT_WAITS];
};

/* The last speeds at one number of lanes, a ring. */
struct report_ring {
	uint32_t lanes;
	uint64_t clocks, n; /* n: speeds */
	double *v;
	size_t cap;
};

/* Sums over the frames of a window. */
struct report_sums {
	struct report_cell cell;
	struct report_use use;
	double finish, lag;
	uint64_t finishes; /* frames with finish and lag */
	uint64_t in_class[FAL_CLASS_PIONEER + 1];
	uint64_t in_run[FAL_CLASS_PIONEER + 1]; /* of these, in runs */
	double slower[FAL_CLASS_PIONEER + 1];   /* sums */
};

/* A worker, with the index of its row in the summary. */
struct report_row {
	bool fresh;    /* its next line counts for tasks and speeds only */
	double speed;  /* newest, samples a second; 0: not known */
	double task_s; /* of a full task */
	uint32_t lanes;
	uint64_t dropped; /* rounds, up to its newest frame */
	/* mean wait per line in the row's newest frame, without latency */
	double wait;
	struct fal_trace_load load;  /* of its newest frame */
	struct report_cell cell[2];  /* of the open frames */
	enum fal_class class;        /* in its newest frame */
	enum fal_cause straggles_by; /* the cause when it last was a straggler */
	uint64_t run;                /* frames of this class in a row */
	struct report_ring *ring;    /* by lanes, ascending */
	size_t rings, cap_rings;
	struct report_sums sums;
	struct fal_report_counts counts;
};

struct fal_report_state {
	struct fal_summary summary;
	struct fal_rule rule;
	struct fal_optim optim; /* {0}: not known */
	struct report_row *row;
	size_t rows, cap_rows;
	size_t present;  /* rows with a session */
	bool has_clocks; /* the trace has a clock line */
	/* The open frames of shared rounds: clocks base and base+1, and the lines of
	 * each.  Rounds of the workers' own use cell 0. */
	bool open;
	uint64_t base;
	size_t lines[2];
	bool partial[2]; /* some of these lines count for tasks and speeds only */
	/* The clock under way: its ended tasks, and the end of the clock before. */
	bool ticking;
	uint64_t ended;
	double tick;
	double ring[FAL_REPORT_TICKS]; /* clock seconds, a ring */
	/* Sums of the window. */
	bool begun;   /* the trace has a ledger line */
	double begin; /* time of the window's beginning */
	uint64_t ticks;
	double samples; /* that have ended, of the frames */
	/* Sums for shared rounds, in which each frame has its own clock and speeds: the
	 * ideal seconds of the clocks; the seconds in excess because of whole tasks; and
	 * the uses of the workers' time, weighted by their speeds. */
	double ideal, whole;
	struct report_use use;
	double vain; /* samples claimed for rounds that were not applied */
	/* Scratch for all rows. */
	struct fal_trace_load *load;
	struct fal_trace_class *verdict;
	struct fal_bound_lanes *lanes;
	double *value;
	size_t cap_load, cap_verdict, cap_lanes, cap_value;
};

/* Returns whether workers share rounds, so that a clock has a line of each worker.  The
 * coordinator above grants a group several rounds at once, and a member takes part in
 * some of them: a group's rounds do not count as shared. */
static bool
report_shared(const struct fal_report_state *s)
{
	return s->summary.above == NULL && fal_rule_traits(&s->rule).shared;
}

/* ---- a frame: the uses of its time, and the workers' classes ----------------------- */

/* Returns the median of the projected times of the workers with a class; NAN: none has.
 */
static double
report_median_time(const struct fal_trace_class *verdict, size_t n, double *scratch)
{
	size_t k = 0;
	for (size_t i = 0; i < n; i++)
		if (verdict[i].class != FAL_CLASS_NONE)
			scratch[k++] = verdict[i].projected;
	return fal_quantile(scratch, k, 0.5);
}

/* Returns whether the row counts in the frame: it has a line in the frame or, with rounds
 * of its own, it is here and has a line before. */
static bool
frame_has_row(const struct fal_report_state *s, size_t row, size_t at)
{
	const struct report_row *w = &s->row[row];
	if (w->cell[at].load.clocks > 0)
		return true;
	return !report_shared(s) && w->load.clocks > 0 && !s->summary.worker[row].left;
}

/* Adds weight · use. */
static void
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

/* Returns the cell's seconds by use.  No line of the workers with tasks waited less than
 * `least` seconds. */
static struct report_use
cell_use(const struct report_cell *c, double least)
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

/* Returns the least wait of a line among the workers that had tasks and that others wait
 * for.  Nobody waits for a worker whose rounds are dropped.  Infinite: there is no such
 * worker, and all waits are the coordinator's. */
static double
frame_least_wait(struct fal_report_state *s, size_t at)
{
	double least = HUGE_VAL;
	for (size_t i = 0; i < s->rows && fal_rule_traits(&s->rule).waits; i++) {
		struct report_row *w = &s->row[i];
		const uint64_t dropped = s->summary.worker[i].dropped;
		const struct report_cell *c = &w->cell[at];
		const bool asked = w->load.tasks > 0 || c->load.clocks > c->idle;
		if (frame_has_row(s, i, at) && asked && dropped == w->dropped &&
		    w->wait < least)
			least = w->wait;
		w->dropped = dropped;
	}
	return least;
}

/* Adds a clock of shared rounds, computed at `speed` samples a second, to the sums: the
 * ideal seconds of the clock; the finish of each worker, and its lag behind a common
 * finish; and the cost of whole tasks, which under slack need not fit the clock. */
static void
frame_add_clock(struct fal_report_state *s, size_t at, double speed)
{
	const double samples = fal_grid_samples(&s->summary.job.grid, s->base + at);
	const double full = fal_grid_full_samples(&s->summary.job.grid);
	double ran = 0, won = 0; /* full tasks */
	size_t n = 0;
	for (size_t i = 0; i < s->rows; i++) {
		const struct report_row *w = &s->row[i];
		if (!frame_has_row(s, i, at) || !(w->speed > 0))
			continue;
		s->lanes[n++] = (struct fal_bound_lanes){ w->task_s, w->lanes,
							  s->summary.worker[i].fixed };
		ran += w->cell[at].samples / full;
		won += w->cell[at].won_samples / full;
	}
	s->samples += samples;
	s->ideal += samples / speed;
	const double ideal = fal_bound_capacity(s->lanes, n, ran);
	const struct fal_bound_tail tail =
		fal_bound_tail_of(&s->summary.job.grid, s->base + at);
	if (s->rule.slack == 0)
		s->whole += fal_bound_whole_tasks(s->lanes, n, won, &tail) -
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

static void
frame_classify(struct fal_report_state *s, size_t at)
{
	for (size_t i = 0; i < s->rows; i++)
		s->load[i] = frame_has_row(s, i, at) ? s->row[i].load
						     : (struct fal_trace_load){ 0 };
	fal_trace_classify(s->load, s->rows, s->verdict);
	const double median = report_median_time(s->verdict, s->rows, s->value);
	for (size_t i = 0; i < s->rows && median > 0; i++) {
		struct report_row *w = &s->row[i];
		const struct fal_trace_class *v = &s->verdict[i];
		if (w->cell[at].load.clocks == 0 || v->class == FAL_CLASS_NONE)
			continue;
		w->run = v->class == w->class ? w->run + 1 : 1;
		w->class = v->class;
		if (v->class == FAL_CLASS_STRAGGLER)
			w->straggles_by = v->cause;
		w->sums.in_class[v->class]++;
		if (w->run >= FAL_REPORT_RUN)
			w->sums.in_run[v->class] +=
				w->run == FAL_REPORT_RUN ? FAL_REPORT_RUN : 1;
		w->sums.slower[v->class] += v->projected / median;
	}
}

/* Closes the open frame `at` (0 or 1), which empties its cells. */
static void
report_close_frame(struct fal_report_state *s, size_t at)
{
	double speed = 0;
	for (size_t i = 0; i < s->rows; i++) {
		struct report_row *w = &s->row[i];
		const struct report_cell *c = &w->cell[at];
		if (c->load.clocks > 0) {
			w->load = c->load;
			w->wait = (c->wait - c->load.latency) / (double)c->load.clocks;
		}
		if (c->load.tasks > 0 && c->load.lane_s > 0) {
			w->speed = c->samples / c->load.lane_s;
			w->task_s = c->load.lane_s / c->load.size * (double)w->lanes;
		}
		if (frame_has_row(s, i, at))
			speed += w->speed;
	}
	/* A clock with missing lines would have work without workers. */
	const bool is_complete = speed > 0 && !(report_shared(s) && s->partial[at]);
	const double least = frame_least_wait(s, at);
	for (size_t i = 0; i < s->rows && is_complete; i++) {
		struct report_row *w = &s->row[i];
		const struct report_cell *c = &w->cell[at];
		const struct report_use use = cell_use(c, least);
		struct report_cell *sum = &w->sums.cell;
		sum->load.clocks += c->load.clocks;
		sum->load.tasks += c->load.tasks;
		sum->load.size += c->load.size;
		sum->load.lane_s += c->load.lane_s;
		sum->load.push += c->load.push;
		sum->load.pull += c->load.pull;
		sum->load.latency += c->load.latency;
		sum->compute += c->compute;
		sum->wait += c->wait;
		sum->samples += c->samples;
		sum->idle += c->idle;
		report_use_add(&w->sums.use, &use, 1);
		report_use_add(&s->use, &use, w->speed / speed);
		if (!report_shared(s))
			s->samples += c->won_samples;
	}
	if (report_shared(s) && is_complete)
		frame_add_clock(s, at, speed);
	frame_classify(s, at);
	for (size_t i = 0; i < s->rows; i++)
		s->row[i].cell[at] = (struct report_cell){ 0 };
}

/* ---- lines ------------------------------------------------------------------------- */

/* A clock line. */
struct report_line {
	const struct fal_ev_clock *e;
	uint64_t lanes;
	double latency;
	struct fal_trace_paces ran;
};

/* The next lines contain waiting for another reason: drops the open frames, and each
 * worker's next line counts for tasks and speeds only. */
static void
report_drop_frames(struct fal_report_state *s)
{
	s->ticking = s->open = false;
	memset(s->lines, 0, sizeof(s->lines));
	memset(s->partial, 0, sizeof(s->partial));
	for (size_t i = 0; i < s->rows; i++) {
		s->row[i].fresh = true;
		memset(s->row[i].cell, 0, sizeof(s->row[i].cell));
	}
}

static void
report_begin_window(struct fal_report_state *s)
{
	s->begin = s->summary.seconds;
	s->ticks = 0;
	s->samples = s->ideal = s->whole = s->vain = 0;
	s->use = (struct report_use){ 0 };
	for (size_t i = 0; i < s->rows; i++) {
		s->row[i].sums = (struct report_sums){ 0 };
		s->row[i].counts = (struct fal_report_counts){
			.dropped = s->summary.worker[i].dropped,
		};
	}
}

static int
report_set_scheme(struct fal_report_state *s, struct fal_trace_line *l,
		  const char *scheme)
{
	const struct fal_rule old = s->rule;
	if (fal_trace_scheme_read(l, scheme, &s->rule) < 0)
		return l->err;
	report_drop_frames(s);
	if (!fal_rule_equal(&old, &s->rule))
		report_begin_window(s);
	return 0;
}

/* Closes the frame of clock `base`; the next frame becomes the first. */
static void
report_next_frame(struct fal_report_state *s)
{
	report_close_frame(s, 0);
	for (size_t i = 0; i < s->rows; i++) {
		s->row[i].cell[0] = s->row[i].cell[1];
		s->row[i].cell[1] = (struct report_cell){ 0 };
	}
	s->lines[0] = s->lines[1];
	s->partial[0] = s->partial[1];
	s->lines[1] = 0;
	s->partial[1] = false;
	s->base++;
}

/* Adds a line with `size` full tasks. */
static void
cell_add_line(struct report_cell *c, const struct report_line *t, double size)
{
	const struct fal_trace_pace *all = &t->ran.all;
	const uint64_t n = all->tasks, lanes = t->lanes;
	const double lane_s = all->task_s / (double)lanes;
	const double won = n > 0 ? (double)t->e->done / (double)n : 0;
	c->load.clocks++;
	c->load.tasks += n;
	c->load.size += size;
	c->load.lane_s += (double)n * lane_s;
	c->load.push += t->e->push;
	c->load.pull += t->e->pull;
	c->load.latency += t->latency;
	c->compute += t->e->compute;
	c->wait += t->e->wait;
	c->samples += all->samples;
	c->won_samples += won * all->samples;
	c->won_s += (double)t->e->done * lane_s;
	c->whole += (double)((lanes - n % lanes) % lanes) * lane_s;
	if (n == 0 && t->e->share == 0) {
		c->idle++;
		c->idle_s += t->e->wait - t->latency;
	}
}

/* Notes the speed of each pace, converted to full tasks, in the ring of the row's number
 * of lanes, which may be new.  Notes nothing if that would be a ring too many. */
static void
row_note_speeds(const struct fal_trace_job *job, double fixed, struct report_row *w,
		const struct report_line *t)
{
	const double full = fal_grid_full_samples(&job->grid) * (double)t->lanes;
	const uint32_t lanes = (uint32_t)t->lanes;
	const size_t size = sizeof(*w->ring);
	struct report_ring *r = NULL;
	for (size_t i = 0; i < t->ran.paces; i++) {
		const struct fal_trace_pace *p = &t->ran.pace[i];
		const double seconds = (double)p->tasks * p->task_s;
		if (!(seconds > 0))
			continue;
		const size_t at = fal_sorted_place(w->ring, w->rings, size, lanes);
		if (at == w->rings || w->ring[at].lanes != lanes) {
			if (w->rings == RINGS_MAX)
				return;
			FAL_XGROW(w->ring, w->cap_rings, w->rings + 1);
			memmove(&w->ring[at + 1], &w->ring[at], (w->rings++ - at) * size);
			w->ring[at] = (struct report_ring){ .lanes = lanes };
		}
		r = &w->ring[at];
		if (r->n < FAL_REPORT_SPEEDS)
			FAL_XGROW(r->v, r->cap, r->n + 1);
		r->v[r->n++ % FAL_REPORT_SPEEDS] =
			full * fal_trace_full_tasks(job, fixed, p) / seconds;
	}
	if (r != NULL)
		r->clocks++;
}

static int
report_take_clock(struct fal_report_state *s, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	const struct fal_trace_job *job = &s->summary.job;
	const size_t row = *fal_ids_get(&s->summary.ids, e->id);
	const double fixed = s->summary.worker[row].fixed;
	struct report_line t = {
		.e = e,
		.lanes = e->lanes > 0 ? e->lanes : 1,
		.latency = fal_trace_clock_latency(e, fal_rule_traits(&s->rule).moves),
	};
	fal_trace_clock_paces(l, job, &t.ran);
	struct report_row *w = &s->row[row];
	size_t at = 0; /* the frame of the clock: 0 or 1, or 2 if that frame is closed */
	if (l->err < 0)
		return l->err;
	row_note_speeds(job, fixed, w, &t);
	if (report_shared(s)) {
		if (!s->open)
			s->base = e->clock;
		s->open = true;
		/* Lines come up to a clock late, so a line closes the frames from two
		 * clocks before it back. */
		while (e->clock > s->base + 1 && s->lines[0] + s->lines[1] > 0)
			report_next_frame(s);
		if (e->clock > s->base + 1)
			s->base = e->clock;
		at = e->clock < s->base ? 2 : (size_t)(e->clock - s->base);
	}
	s->has_clocks = true;
	w->lanes = (uint32_t)t.lanes;
	struct fal_report_counts *c = &w->counts;
	c->lines++;
	c->tasks += e->done;
	c->in += e->in;
	c->out += e->out;
	c->cloned += e->cloned;
	c->lost += e->lost;
	c->lane_tasks += (double)t.ran.all.tasks / (double)t.lanes;
	c->tx += (double)e->tx;
	c->push_all += e->push_all;
	c->stale += e->staleness;
	/* A line of a closed frame comes over a slow link: it counts in the oldest open
	 * frame. */
	s->lines[at % 2] += at < 2;
	s->partial[at % 2] = s->partial[at % 2] || w->fresh;
	if (!w->fresh)
		cell_add_line(&w->cell[at % 2], &t,
			      fal_trace_full_tasks(job, fixed, &t.ran.all));
	w->fresh = false;
	while (report_shared(s) && s->lines[0] > 0 && s->lines[0] >= s->present)
		report_next_frame(s);
	return 0;
}

/* At least the tasks of a clock have ended: notes the seconds of the clock. */
static void
report_tick(struct fal_report_state *s, double t)
{
	const double clock = fal_grid_tasks(&s->summary.job.grid, 0);
	s->ring[s->ticks++ % FAL_REPORT_TICKS] = (t - s->tick) * clock / (double)s->ended;
	s->tick = t;
	s->ended = 0;
	if (!report_shared(s))
		report_close_frame(s, 0);
}

/* Rounds of the workers' own end in swarms if they are applied together: a clock then
 * lasts from the first round of a swarm to the first round of the next swarm.  The clock
 * of a shared round lasts from the end of the round before. */
static int
report_take_ledger(struct fal_report_state *s, struct fal_trace_line *l)
{
	const uint64_t clock = fal_grid_tasks(&s->summary.job.grid, 0);
	const struct fal_ev_ledger *e = &l->is.ledger;
	if (e->end == FAL_END_DROPPED || e->end == FAL_END_ABANDONED) {
		/* The round is not applied: its claims were computed in vain. */
		uint64_t claimed = 0;
		for (size_t i = 0; i < e->contrib.n; i++)
			if (e->contrib.v[i].fills.n == 0)
				claimed +=
					fal_trace_rows_samples(&s->summary.job, e->clock,
							       e->contrib.v[i].tasks, 2);
		s->vain += (double)claimed;
		if (e->end == FAL_END_DROPPED && claimed < e->samples)
			s->samples += (double)(e->samples - claimed);
	}
	if (!s->begun)
		s->begin = l->t;
	s->begun = true;
	if (!s->ticking) {
		s->tick = l->t;
		s->ended = 0;
	} else if (!report_shared(s) && s->ended >= clock) {
		report_tick(s, l->t);
	}
	if (e->end != FAL_END_ABANDONED && (s->ticking || !report_shared(s)))
		s->ended += e->tasks;
	s->ticking = true;
	if (report_shared(s) && s->ended >= clock)
		report_tick(s, l->t);
	return l->err;
}

int
fal_report_line(void *report, struct fal_trace_line *l)
{
	struct fal_report *r = report;
	if (r->state == NULL)
		r->state = fal_xcalloc(1, sizeof(*r->state));
	struct fal_report_state *s = r->state;
	const struct fal_summary *sum = &s->summary;
	int err = fal_summary_line(&s->summary, l);
	if (err < 0)
		return err;
	switch (l->event) {
	case FAL_EV_JOB:
		fal_fit_optim(l, &s->optim);
		return l->err < 0 ? l->err : report_set_scheme(s, l, l->is.job.scheme);
	case FAL_EV_POLICY:
		return report_set_scheme(s, l, l->is.policy.scheme);
	case FAL_EV_HOLD:
		report_drop_frames(s);
		return l->err;
	case FAL_EV_JOIN:
	case FAL_EV_LEAVE:
		FAL_XGROW(s->row, s->cap_rows, sum->n_worker);
		FAL_XGROW(s->load, s->cap_load, sum->n_worker);
		FAL_XGROW(s->verdict, s->cap_verdict, sum->n_worker);
		FAL_XGROW(s->lanes, s->cap_lanes, sum->n_worker);
		FAL_XGROW(s->value, s->cap_value, sum->n_worker);
		for (; s->rows < sum->n_worker; s->rows++)
			s->row[s->rows] = (struct report_row){ 0 };
		s->row[*fal_ids_get(&sum->ids, l->id)].fresh = true;
		s->present = 0;
		for (size_t i = 0; i < sum->n_worker; i++)
			s->present += !sum->worker[i].left;
		return l->err;
	case FAL_EV_CLOCK:
		return report_take_clock(s, l);
	case FAL_EV_LEDGER:
		return report_take_ledger(s, l);
	case FAL_EV_SUSPECT:
		s->row[*fal_ids_get(&s->summary.ids, l->id)].counts.suspected++;
		return l->err;
	default:
		return FAL_OK;
	}
}

void
fal_report_window(struct fal_report *r)
{
	if (r->state != NULL)
		report_begin_window(r->state);
}

/* ---- the window -------------------------------------------------------------------- */

/* A class is frequent for a worker if the class holds in this share of the worker's
 * clocks. */
#define OFTEN 0.10
/* From this number on, a worker's stops and near stops are no chance. */
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
report_clear(struct fal_report *r)
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
	report_clear(r);
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

/* Returns the worker's speed at this number of lanes, or NULL. */
static const struct fal_report_speed *
worker_speed_at(const struct fal_report_worker *w, uint32_t lanes)
{
	for (size_t i = 0; i < w->speeds; i++)
		if (w->speed[i].lanes == lanes)
			return &w->speed[i];
	return NULL;
}

static bool
class_is_frequent(const struct report_sums *sum, enum fal_class class, double all)
{
	return all > 0 && (double)sum->in_class[class] >= OFTEN * all;
}

/* Sets the class of the window from `v`, the class by the window's sums, and from
 * `slower`, the worker's time relative to the median.  A worker that was slow at times is
 * a straggler, whatever the sums say.  A worker that never was slow is not a pioneer for
 * that reason alone. */
static void
worker_set_class(const struct report_row *w, const struct fal_trace_class *v,
		 double slower, struct fal_report_worker *out)
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
	if (v->class == FAL_CLASS_PIONEER && !class_is_frequent(sum, v->class, all)) {
		out->class = FAL_CLASS_STEADY;
		out->cause = FAL_CAUSE_NONE;
	}
	/* Jitter of 15 % makes any worker a straggler in a tenth of its clocks, and costs
	 * 4 %. */
	const double more = sum->slower[FAL_CLASS_STRAGGLER] -
			    (double)sum->in_class[FAL_CLASS_STRAGGLER];
	const bool slow = more >= OFTEN * all,
		   is_often = class_is_frequent(sum, FAL_CLASS_STRAGGLER, all);
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
report_fill_worker(const struct fal_report_state *s, size_t i,
		   struct fal_report_worker *out)
{
	const struct fal_summary_worker *row = &s->summary.worker[i];
	const struct report_row *w = &s->row[i];
	const struct fal_report_counts *c = &w->counts;
	*out = (struct fal_report_worker){
		.row = row,
		.counts = *c,
		.clocks = c->lines,
		.lanes = w->lanes,
		.dropped = row->dropped - c->dropped,
		.stale = c->lines > 0 ? (double)c->stale / (double)c->lines : 0,
	};
	fal_text_plain(out->shown, sizeof(out->shown), row->name);
	const struct report_sums *sum = &w->sums;
	const double lines = (double)sum->cell.load.clocks;
	const bool ended = sum->finishes > 0;
	out->finish = ended ? sum->finish / (double)sum->finishes : (double)NAN;
	out->lag = ended ? sum->lag / (double)sum->finishes : (double)NAN;
	out->compute = out->push = out->pull = out->wait = (double)NAN;
	if (lines > 0) {
		out->compute = sum->cell.compute / lines;
		out->push = sum->cell.load.push / lines;
		out->pull = sum->cell.load.pull / lines;
		out->wait = sum->cell.wait / lines;
		for (int k = 0; k < FAL_REPORT_WAITS; k++)
			out->waits[k] = sum->use.wait[k] / lines;
		out->idle = (double)sum->cell.idle / lines;
	}
	double v[FAL_REPORT_SPEEDS];
	out->speed = fal_xcalloc(w->rings, sizeof(*out->speed));
	out->speeds = w->rings;
	for (size_t k = 0; k < w->rings; k++) {
		const struct report_ring *r = &w->ring[k];
		const size_t n = r->n < FAL_REPORT_SPEEDS ? r->n : FAL_REPORT_SPEEDS;
		memcpy(v, r->v, n * sizeof(*v));
		out->speed[k] = (struct fal_report_speed){
			.lanes = r->lanes,
			.clocks = r->clocks,
			.median = fal_quantile(v, n, 0.5),
			.p10 = fal_quantile(v, n, 0.1),
			.p90 = fal_quantile(v, n, 0.9),
		};
	}
	/* The rate below which fewer bits pay.  A contribution has 24 bits a value or a
	 * few more, besides the other traffic.  With much less traffic, its values have
	 * fewer bits already, or it is compressed. */
	const double round_s = 1e-9; /* of a value and core: bench_bfp's dither */
	const double values = (double)s->summary.job.params;
	out->rate = c->push_all > 0 ? c->tx / c->push_all : (double)NAN;
	out->fewer_bits = NAN;
	if (c->lines > 0 && c->lane_tasks > 0 && values > 0 &&
	    c->tx > values * (double)c->lines * 18 / 8)
		out->fewer_bits = c->tx / 3 / (c->lane_tasks * values * round_s);
}

/* Writes the lanes that the workers ran last, at their median speeds with tasks of `task`
 * samples, into v, which has room for all workers.  Returns their number. */
static size_t
report_lanes(const struct fal_report *r, uint64_t task, struct fal_bound_lanes *v)
{
	const double full = fal_grid_full_samples(&r->state->summary.job.grid);
	const double ratio = (double)task / full;
	size_t n = 0;
	for (size_t i = 0; i < r->workers; i++) {
		const struct fal_report_worker *w = &r->worker[i];
		const struct fal_report_speed *s = worker_speed_at(w, w->lanes);
		if (w->clocks == 0 || s == NULL)
			continue;
		const double longer = fal_bound_task_size(w->row->fixed, ratio);
		v[n++] = (struct fal_bound_lanes){
			.task_s = full * s->lanes / s->median * longer,
			.lanes = s->lanes,
			.fixed = w->row->fixed / longer,
		};
	}
	return n;
}

/* Splits the clock into its parts.  Lanes may idle while other lanes of their worker
 * compute; whole tasks explain this idling, which counts with the waiting for others.
 * Under shared rounds a better sharing might save both, except the cost of whole tasks in
 * any sharing.  The tasks of a worker's own round are fixed. */
static void
report_split_clock(struct fal_report *r)
{
	const struct fal_report_state *s = r->state;
	double ideal = s->ideal;
	struct report_use use = s->use;
	if (!r->shared) {
		/* Workers with rounds of their own: their uses of time, weighted by their
		 * speeds over the whole window.  In T seconds, worker w could compute
		 * v_w T_w of Σ v T samples, T_w being the time that it was here: so its
		 * second has the weight v_w · T / Σ v T. */
		double longest = 0, sum = 0;
		for (size_t i = 0; i < s->rows; i++) {
			const struct report_cell *c = &s->row[i].sums.cell;
			const double wall =
				c->compute + c->load.push + c->load.pull + c->wait;
			longest = wall > longest ? wall : longest;
			sum += c->load.lane_s > 0 ? c->samples / c->load.lane_s * wall
						  : 0;
		}
		use = (struct report_use){ 0 };
		for (size_t i = 0; i < s->rows && sum > 0; i++) {
			const struct report_cell *c = &s->row[i].sums.cell;
			if (c->load.lane_s > 0)
				report_use_add(&use, &s->row[i].sums.use,
					       c->samples / c->load.lane_s * longest /
						       sum);
		}
		ideal = use.won - (sum > 0 ? s->vain * longest / sum : 0);
	}
	const double lanes = fmin(fmax(use.compute - use.ran, 0), use.whole);
	const double all = lanes + use.wait[FAL_REPORT_OTHERS];
	const double whole = r->shared ? fmin(fmax(s->whole, 0), all) : lanes;
	const double extra = use.compute - ideal - lanes;
	r->clocks = s->samples / (double)r->batch;
	if (!(s->samples > 0))
		return;
	/* `extra` is below 0 if tasks of an earlier window ended in this window. */
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
	struct fal_bound_lanes *v = s->lanes; /* has room for all rows */
	const struct fal_bound_tail tail = fal_bound_tail_of(&s->summary.job.grid, 0);
	r->part[FAL_REPORT_SMALL_TASKS] =
		r->part[FAL_REPORT_IDEAL] *
		fal_bound_batch_saving(v, report_lanes(r, r->task, v),
				       (double)r->batch / (double)r->task, &tail);
	if (r->part[FAL_REPORT_SMALL_TASKS] > 0)
		r->part[FAL_REPORT_IDEAL] -= r->part[FAL_REPORT_SMALL_TASKS];
}

/* ---- advice ------------------------------------------------------------------------ */

/* Thresholds. */
#define LOSS 0.05    /* loss of a clock that is worth advice */
#define NOBODY 0.001 /* loss of a clock that counts as none */
#define ALONE                                                                            \
	0.01             /* share of its time; a worker that waits less for others waits \
			    for none */
#define LINK 0.20        /* share of a worker's time, pushing or pulling */
#define COORDINATOR 0.10 /* share of a clock */
#define SPARE 0.50       /* share of a worker's clocks without tasks */
#define TASK_MIN 8       /* samples; smaller tasks compute slowly */
#define LEFT_IDLE 0.03   /* share of a clock that better tasks may leave idle, or save */
#define FASTER 0.05      /* gain that more lanes must have */
#define COMPARED 8       /* clocks at a number of lanes that tell its speed */
#define WELL 0.90        /* share of a clock that is ideal */

/* Follows advice that alters the model: its seconds say nothing about accuracy. */
#define OTHER " (model)"

enum { WHO_MAX = 2 * FAL_REPORT_SHOWN };

/* The workers of a finding, and the worst of them. */
struct affected {
	const struct fal_report_worker *worst;
	size_t n;
	double value;      /* of the worst */
	char who[WHO_MAX]; /* "w5", or "w5, w2 and w7", or as many as fit "and 3 more" */
};

/* Writes, as "epsp:1/4", the rule with the least slack that lets workers compute in the
 * share `loss` of the clock in which they wait: a fraction, if a fraction costs no
 * learning rate; else one more.  Workers fill the time in which a version is made with as
 * many early tasks as there are.  Returns `out`. */
static const char *
more_slack_text(const struct fal_report *r, double loss, char out[static FAL_RULE_TEXT])
{
	enum { OF = 16 };
	const bool is_fraction = r->rule.slack_q > 0;
	struct fal_rule then;
	for (uint32_t p = 1; p < OF && r->rule.slack == 0; p++) {
		then = (struct fal_rule){
			.scheme = FAL_EPSP, .slack = 1, .slack_p = p, .slack_q = OF
		};
		for (; then.slack_p % 2 == 0; then.slack_q /= 2)
			then.slack_p /= 2;
		if (p * (1 - loss) >= OF * loss &&
		    fal_rule_check_grid(&then, &r->state->summary.job.grid, NULL) ==
			    FAL_OK &&
		    fal_stable_factor(&r->state->optim, 1, (double)p / OF) <= 1)
			return fal_rule_text(&then, out);
	}
	then = (struct fal_rule){ .scheme = FAL_EPSP,
				  .slack = r->rule.slack + !is_fraction };
	return fal_rule_text(&then, out);
}

/* Adds a finding before findings of smaller share, and before advice that alters the
 * model.  Advice of more slack also says the cost in learning rate. */
static void __attribute__((format(printf, 5, 6)))
report_add(struct fal_report *r, const char *kind, const struct affected *who,
	   double share, const char *fmt, ...)
{
	char bound[FAL_STALE_TEXT], name[FAL_RULE_TEXT];
	struct fal_rule then;
	va_list ap;
	FAL_XGROW(r->finding, r->cap, r->findings + 1);
	struct fal_report_finding new = {
		.kind = kind,
		.worker = who != NULL ? who->worst : NULL,
		.workers = who != NULL ? who->n : 0,
		.share = share,
	};
	va_start(ap, fmt);
	vsnprintf(new.text, sizeof(new.text), fmt, ap);
	va_end(ap);
	const size_t n = strlen(new.text);
	const char *slack = strstr(new.text, "epsp:");
	if (slack != NULL)
		snprintf(name, sizeof(name), "%.*s", (int)strcspn(slack, " "), slack);
	if (slack != NULL && fal_rule_parse(name, &then, NULL) == FAL_OK &&
	    fal_stale_warning(&then, &r->state->optim, 0, bound))
		snprintf(new.text + n, sizeof(new.text) - n, "; %s", bound);
	const bool alters = strstr(new.text, OTHER) != NULL;
	size_t at = r->findings++;
	for (; at > 0; at--) {
		const struct fal_report_finding *f = &r->finding[at - 1];
		const bool before_alters = strstr(f->text, OTHER) != NULL;
		if (before_alters != alters ? alters : f->share >= share)
			break;
		r->finding[at] = *f;
	}
	r->finding[at] = new;
}

static bool
may_have_more_slack(const struct fal_report *r)
{
	return r->above == NULL && fal_rule_traits(&r->rule).slacks &&
	       r->rule.slack < FAL_SLACK_MAX;
}

/* Returns the text that follows advice of epsp. */
static const char *
epsp_mark(const struct fal_report *r)
{
	const struct fal_rule then = { .scheme = FAL_EPSP };
	return fal_rule_same_model(&r->rule, &then) ? "" : OTHER;
}

static double
report_share(const struct fal_report *r, enum fal_report_part part)
{
	return r->part[part] / r->clock;
}

/* Reasons for a finding about workers. */
enum reason {
	BY_SLOWNESS,   /* slow in most clocks */
	BY_SLOW_SPELL, /* slow at times */
	BY_AWAITING,   /* waits for no other worker, so the others wait for this one */
	BY_LINK,
	BY_SLOW_PUSH, /* the link is so slow that fewer bits pay */
	BY_IDLENESS,
	BY_LANES, /* as fast at fewer lanes */
	BY_STALLS
};

/* Returns a smaller number of lanes at which the worker is as fast, or NULL. */
static const struct fal_report_speed *
worker_fewer_lanes(const struct fal_report_worker *w)
{
	const struct fal_report_speed *now = worker_speed_at(w, w->lanes);
	for (size_t i = 0; now != NULL && i < w->speeds; i++) {
		const struct fal_report_speed *s = &w->speed[i];
		if (s->lanes < now->lanes && s->clocks >= COMPARED &&
		    now->clocks >= COMPARED && now->median < s->median * (1 + FASTER))
			return s;
	}
	return NULL;
}

/* Returns how much the reason affects the worker: a factor, a share of time, a number of
 * stalls; 0: not at all. */
static double
worker_effect(const struct fal_report_worker *w, enum reason by)
{
	const double wall = w->compute + w->push + w->pull + w->wait;
	const bool is_slow =
		w->class == FAL_CLASS_STRAGGLER && w->cause == FAL_CAUSE_COMPUTE;
	const struct fal_report_speed *fewer;
	double most;
	switch (by) {
	case BY_SLOWNESS:
		return is_slow && w->persistent ? w->slower : 0;
	case BY_SLOW_SPELL:
		return is_slow && !w->persistent ? w->slower * w->in_class : 0;
	case BY_AWAITING:
		return w->waits[FAL_REPORT_OTHERS] < ALONE * wall ? w->compute : 0;
	case BY_LINK:
		most = fmax(fmax(w->push, w->pull), w->waits[FAL_REPORT_LATENCY]);
		return wall > 0 && most >= LINK * wall ? most / wall : 0;
	case BY_SLOW_PUSH:
		return wall > 0 && w->push >= LINK * wall && w->rate < w->fewer_bits
			       ? w->push / wall
			       : 0;
	case BY_IDLENESS:
		return w->idle >= SPARE ? w->idle : 0;
	case BY_LANES:
		fewer = worker_fewer_lanes(w);
		return fewer == NULL
			       ? 0
			       : fewer->median / worker_speed_at(w, w->lanes)->median;
	case BY_STALLS:
		return w->class == FAL_CLASS_STALLS ? (double)w->stalls : 0;
	}
	return 0;
}

/* Returns the workers that the reason affects. */
static struct affected
report_affected(const struct fal_report *r, enum reason by)
{
	struct affected g = { 0 };
	for (size_t i = 0; i < r->workers; i++) {
		const double v =
			r->worker[i].clocks > 0 ? worker_effect(&r->worker[i], by) : 0;
		if (v > g.value) {
			g.value = v;
			g.worst = &r->worker[i];
		}
		g.n += v > 0;
	}
	size_t at = 0, named = 1;
	if (g.n > 0)
		at = (size_t)snprintf(g.who, WHO_MAX, "%s", g.worst->shown);
	for (size_t i = 0; i < r->workers && named < g.n; i++) {
		const struct fal_report_worker *w = &r->worker[i];
		const size_t room = WHO_MAX - at - sizeof(" and 65536 more");
		if (w == g.worst || w->clocks == 0 || !(worker_effect(w, by) > 0))
			continue;
		if (strlen(w->shown) + 5 >= room)
			break;
		at += (size_t)snprintf(g.who + at, room, "%s%s",
				       ++named == g.n ? " and " : ", ", w->shown);
	}
	if (named < g.n)
		snprintf(g.who + at, WHO_MAX - at, " and %zu more", g.n - named);
	return g;
}

static void
find_stragglers(struct fal_report *r, const struct affected *g)
{
	const double loss = report_share(r, FAL_REPORT_STRAGGLERS);
	const struct fal_report_worker *w = g->worst;
	const struct fal_traits traits = fal_rule_traits(&r->rule);
	const bool one = g->n == 1;
	const char *it = one ? "it" : "them", *its = one ? "its" : "their";
	char what[96], name[FAL_RULE_TEXT];
	if (g->n == 0)
		return;
	const char *hint = w->row->members > 1 ? "; its own trace names whom" : "";
	if (may_have_more_slack(r) && loss >= LOSS)
		snprintf(what, sizeof(what), "%.16s would let the others go on" OTHER,
			 more_slack_text(r, loss, name));
	else if (traits.slacks && w->persistent)
		snprintf(what, sizeof(what), "epsp gives %s fewer tasks already", it);
	else if (traits.slacks)
		snprintf(what, sizeof(what), "epsp moves %s tasks already", its);
	else if (2 * w->dropped >= w->clocks)
		snprintf(what, sizeof(what),
			 "%s rounds are dropped, epsp would use them%s", its,
			 epsp_mark(r));
	else if (loss < LOSS && w->persistent && w->stale >= 2)
		snprintf(what, sizeof(what), "%.0f updates stale, 0 under epsp%s",
			 w->stale, epsp_mark(r));
	else if (loss < NOBODY)
		snprintf(what, sizeof(what), "nobody waits for %s", it);
	else if (loss < LOSS)
		snprintf(what, sizeof(what), "waiting for %s is %.1f %% of the clock", it,
			 100 * loss);
	else if (w->persistent && !traits.own)
		snprintf(what, sizeof(what), "give %s less to do, as epsp does%s", it,
			 epsp_mark(r));
	else
		snprintf(what, sizeof(what), "epsp would move %s tasks%s%s", its,
			 traits.moves ? " sooner" : "", epsp_mark(r));
	if (w->persistent)
		report_add(r, "straggler", g, loss, "%s %s (%.1fx slower): %s%s", g->who,
			   one ? "is a persistent straggler"
			       : "are persistent stragglers",
			   w->slower, what, hint);
	else
		report_add(r, "straggler", g, loss,
			   "%s %s slow at times (%.1fx in %.0f %% of clocks): %s%s",
			   g->who, one ? "is" : "are", w->slower, 100 * w->in_class, what,
			   hint);
}

/* Adds a finding on waiting that no straggler explains. */
static void
find_waiting(struct fal_report *r)
{
	const struct affected last = report_affected(r, BY_AWAITING);
	const double loss = report_share(r, FAL_REPORT_STRAGGLERS);
	char name[FAL_RULE_TEXT];
	if (may_have_more_slack(r))
		report_add(r, "waiting", NULL, loss,
			   "%.0f %% of the clock waits for the last tasks: %s would let "
			   "others go on" OTHER,
			   100 * loss, more_slack_text(r, loss, name));
	else if (!fal_rule_traits(&r->rule).slacks)
		report_add(r, "waiting", NULL, loss,
			   "%.0f %% of the clock waits for %s: epsp moves tasks%s",
			   100 * loss,
			   last.n > 0 ? last.who : "the last, not always the same",
			   epsp_mark(r));
}

/* Returns the number of lanes that the workers ran last. */
static uint64_t
report_lane_count(const struct fal_report *r)
{
	uint64_t lanes = 0;
	for (size_t i = 0; i < r->workers; i++)
		lanes += r->worker[i].clocks > 0 ? r->worker[i].lanes : 0;
	return lanes;
}

/* The best sharing of a clock: its seconds, and the seconds in which lanes idle. */
struct sharing {
	double clock, idle;
};

/* Returns the best sharing of a clock in tasks of this size.  With a slack s, also a
 * fraction, the tasks of s + 1 clocks are shared at once. */
static struct sharing
report_best_sharing(const struct fal_report *r, uint64_t task, struct fal_bound_lanes *v)
{
	const struct fal_rule *rule = &r->rule;
	const double clocks =
		1 +
		(rule->slack_q > 0 ? (double)rule->slack_p / rule->slack_q : rule->slack);
	const double tasks = (double)r->batch / (double)task;
	const size_t n = report_lanes(r, task, v);
	/* A tail keeps its share of a clock, and its tasks their share of a full task. */
	struct fal_bound_tail tail = fal_bound_tail_of(&r->state->summary.job.grid, 0);
	tail.tasks *= clocks * (double)r->task / (double)task;
	const double clock = fal_bound_whole_tasks(v, n, clocks * tasks, &tail) / clocks;
	return (struct sharing){ clock, clock - fal_bound_capacity(v, n, tasks) };
}

/* Returns the largest halving of the task that leaves little idle and is faster; 0: none
 * does.  *left is the idle share that it leaves.  If the sharing of the median clock does
 * not explain the loss, changing speeds do: then the loss is in proportion to the size.
 */
static uint64_t
report_smaller_task(const struct fal_report *r, double loss, struct fal_bound_lanes *v,
		    double *left)
{
	const struct sharing now = report_best_sharing(r, r->task, v);
	const bool steady = now.idle >= loss / 2 * now.clock;
	for (uint64_t task = r->task / 2; task >= TASK_MIN; task /= 2) {
		const struct sharing then = report_best_sharing(r, task, v);
		*left = steady ? then.idle / then.clock
			       : loss * (double)task / (double)r->task;
		if (*left <= LEFT_IDLE)
			return !steady || then.clock < now.clock ? task : 0;
	}
	return 0;
}

static void
find_granularity(struct fal_report *r)
{
	const double loss = report_share(r, FAL_REPORT_GRANULARITY);
	char what[96];
	const unsigned long lanes = (unsigned long)report_lane_count(r);
	double left = 0;
	const uint64_t task =
		r->shared ? report_smaller_task(r, loss, r->state->lanes, &left) : 0;
	if (task > 0)
		snprintf(what, sizeof(what), "batch.task = %ju would leave %.1f %%" OTHER,
			 task, 100 * left);
	else
		snprintf(what, sizeof(what), "%s",
			 r->shared ? "under epsp:1 they need not fit a clock" OTHER
				   : "a larger batch would fill them" OTHER);
	report_add(r, "granularity", NULL, loss,
		   "tasks of %ju sample%s leave %.0f %% idle at %lu lane%s: %s", r->task,
		   fal_text_plural(r->task), 100 * loss, lanes, fal_text_plural(lanes),
		   what);
}

static void
find_small_tasks(struct fal_report *r)
{
	const double loss = report_share(r, FAL_REPORT_SMALL_TASKS);
	char what[96] = "larger ones would not share as well";
	/* The doubling of the task with the fastest best sharing, and the share of the
	 * clock that it saves; 0: none is clearly faster.  Each lane keeps enough tasks
	 * to share when speeds change. */
	enum { OF_A_LANE = 4 };
	struct fal_bound_lanes *v = r->state->lanes;
	const double now = report_best_sharing(r, r->task, v).clock;
	const uint64_t least = OF_A_LANE * report_lane_count(r);
	uint64_t best = 0;
	double saved = LEFT_IDLE;
	for (uint64_t task = 2 * r->task; least * task <= r->batch; task *= 2) {
		const double gain = 1 - report_best_sharing(r, task, v).clock / now;
		if (gain <= saved)
			continue;
		saved = gain;
		best = task;
	}
	/* The saving is a share of computing; converts it to a share of the clock. */
	saved *= report_share(r, FAL_REPORT_IDEAL) +
		 report_share(r, FAL_REPORT_GRANULARITY) + loss;
	saved = saved < loss ? saved : loss;
	if (best > 0)
		snprintf(what, sizeof(what), "batch.task = %ju saves %.0f %%" OTHER, best,
			 100 * saved);
	report_add(r, "small_tasks", NULL, loss,
		   "%.0f %% of the clock is lost to tasks of only %ju sample%s: %s",
		   100 * loss, r->task, fal_text_plural(r->task), what);
}

/* Returns the advice to overlap a part of the clock, or to have it less often. */
static const char *
advise_overlap(const struct fal_report *r, double loss, char out[static 64])
{
	char name[FAL_RULE_TEXT];
	if (!r->shared || r->rule.slack > 0)
		return "a larger batch needs it less often" OTHER;
	snprintf(out, 64, "%.16s would overlap it" OTHER, more_slack_text(r, loss, name));
	return out;
}

static void
find_links(struct fal_report *r, const struct affected *g)
{
	const struct fal_report_worker *w = g->worst;
	const double latency = w->waits[FAL_REPORT_LATENCY];
	const bool far = latency > w->push && latency > w->pull;
	const bool few = r->above != NULL || 2 * g->n <= r->workers;
	const double loss = report_share(r, FAL_REPORT_COMMUNICATION);
	char what[64];
	report_add(r, "link", g, loss, "%s spend%s %.0f %% of the time %s: %s", g->who,
		   g->n == 1 ? "s" : "", 100 * g->value,
		   far                 ? "on latency of the link"
		   : w->push > w->pull ? "pushing"
				       : "pulling",
		   few && !far ? "a faster link would mend it"
			       : advise_overlap(r, g->value, what));
}

/* Adds a finding on each shard that workers wait for. */
static void
find_shards(struct fal_report *r)
{
	struct fal_shard_rows *all = &r->state->summary.shards;
	const double seconds = all->to - all->from;
	fal_shard_rows_end(all);
	for (uint32_t i = 0; i < all->n; i++) {
		const struct fal_shard_row *w = &all->v[i];
		char who[64]; /* a number, and the beginning of an address */
		if (w->class != FAL_CLASS_STRAGGLER)
			continue;
		if (w->address[0] != '\0')
			snprintf(who, sizeof(who), "shard %u at %.40s", i + 1,
				 w->address);
		else
			snprintf(who, sizeof(who), "shard %u, the coordinator's", i + 1);
		report_add(r, "shard", NULL, w->blame / seconds,
			   "%s is a straggler by %s (%.1fx slower): workers wait for it "
			   "%.0f %% "
			   "of the time",
			   who, w->cause, w->slower, 100 * w->blame / seconds);
	}
}

/* Adds findings on single workers that no part of the clock shows. */
static void
find_single_workers(struct fal_report *r, const struct affected *still)
{
	const struct affected idle = report_affected(r, BY_IDLENESS);
	const struct affected many = report_affected(r, BY_LANES);
	if (still->n > 0)
		report_add(r, "stalls", still, report_share(r, FAL_REPORT_STRAGGLERS),
			   "%s stood still again and again (%.0f times): not slow, but "
			   "held up",
			   still->who, still->value);
	if (idle.n > 0)
		report_add(r, "spare", &idle, report_share(r, FAL_REPORT_STANDBY),
			   "%s had no task in %.0f %% of clocks: the job can spare %s",
			   idle.who, 100 * idle.value, idle.n == 1 ? "it" : "them");
	if (many.n > 0)
		report_add(r, "lanes", &many, 0,
			   "%s: no faster at %u lanes than at %u (%.0f samples/s): bound "
			   "the "
			   "lanes",
			   many.who, many.worst->lanes,
			   worker_fewer_lanes(many.worst)->lanes,
			   worker_speed_at(many.worst, many.worst->lanes)->median);
}

/* Adds a finding if there is none but stragglers without loss. */
static void
find_nothing(struct fal_report *r)
{
	const double ideal = report_share(r, FAL_REPORT_IDEAL);
	for (size_t i = 0; i < r->findings; i++)
		if (strcmp(r->finding[i].kind, "straggler") != 0 ||
		    r->finding[i].share >= LOSS)
			return;
	report_add(r, "well", NULL, 0, "nothing to %s: %.0f %% of the time is compute",
		   ideal >= WELL ? "mend" : "advise", 100 * ideal);
}

/* Fills r->finding: a finding exists if its number passes its threshold, and never
 * advises the present state. */
static void
report_advise(struct fal_report *r)
{
	const struct affected always = report_affected(r, BY_SLOWNESS);
	const struct affected at_times = report_affected(r, BY_SLOW_SPELL);
	const struct affected link = report_affected(r, BY_LINK);
	const struct affected slow = report_affected(r, BY_SLOW_PUSH);
	const struct affected still = report_affected(r, BY_STALLS);
	uint64_t dropped = 0;
	char what[64];
	if (!(r->clock > 0))
		return;
	find_stragglers(r, &always);
	find_stragglers(r, &at_times);
	if (link.n > 0)
		find_links(r, &link);
	/* Only the coordinator above can apply the other advice. */
	if (r->above != NULL)
		return;
	if (slow.n > 0)
		report_add(
			r, "bits", &slow, 0,
			"%s push%s %.1f MB/s: push.bits = 16 pays below %.0f MB/s, by a "
			"third of the bytes" OTHER,
			slow.who, slow.n == 1 ? "es" : "", slow.worst->rate * 1e-6,
			slow.worst->fewer_bits * 1e-6);
	if (always.n + at_times.n + link.n + still.n == 0 &&
	    report_share(r, FAL_REPORT_STRAGGLERS) >= LOSS)
		find_waiting(r);
	if (report_share(r, FAL_REPORT_GRANULARITY) >= LOSS)
		find_granularity(r);
	if (report_share(r, FAL_REPORT_SMALL_TASKS) >= LOSS)
		find_small_tasks(r);
	const double busy = report_share(r, FAL_REPORT_COORDINATION);
	if (busy >= COORDINATOR)
		report_add(r, "coordinator", NULL, busy,
			   "the coordinator takes %.0f %% of a clock (%.1f ms): %s",
			   100 * busy, 1e3 * r->part[FAL_REPORT_COORDINATION],
			   advise_overlap(r, busy, what));
	for (size_t i = 0; i < r->workers; i++)
		dropped += r->worker[i].dropped;
	if (report_share(r, FAL_REPORT_EXTRA) >= LOSS && dropped > 0)
		report_add(r, "unused", NULL, report_share(r, FAL_REPORT_EXTRA),
			   "%.0f %% of the clock computes what %.20s drops: epsp drops "
			   "nothing%s",
			   100 * report_share(r, FAL_REPORT_EXTRA), r->scheme,
			   epsp_mark(r));
	find_shards(r);
	find_single_workers(r, &still);
	find_nothing(r);
}

/* ---- the report -------------------------------------------------------------------- */

int
fal_report_end(struct fal_report *r, struct fal_diag *diag)
{
	struct fal_report_state *s = r->state;
	report_clear(r);
	if (s == NULL || !s->summary.has_job)
		return fal_diag_set(diag, FAL_ETRUNC, "no job line");
	if (!s->has_clocks)
		return fal_diag_set(diag, FAL_ETRUNC, "no worker has told of a clock");
	r->name = s->summary.name;
	r->scheme = s->summary.scheme;
	r->rule = s->rule;
	r->above = s->summary.above;
	r->shared = report_shared(s);
	r->done = s->summary.done;
	r->batch = fal_grid_samples(&s->summary.job.grid, 0);
	r->task = fal_grid_full_samples(&s->summary.job.grid);
	r->seconds = s->summary.seconds - s->begin;
	/* The workers that have a line in the window, or are here. */
	for (size_t i = 0; i < s->rows; i++)
		s->load[i] = s->row[i].sums.cell.load;
	fal_trace_classify(s->load, s->rows, s->verdict);
	r->worker = fal_xcalloc(s->rows, sizeof(*r->worker));
	const double median = report_median_time(s->verdict, s->rows, s->value);
	for (size_t i = 0; i < s->rows; i++) {
		if (s->row[i].counts.lines == 0 && s->summary.worker[i].left)
			continue;
		struct fal_report_worker *w = &r->worker[r->workers++];
		report_fill_worker(s, i, w);
		worker_set_class(&s->row[i], &s->verdict[i],
				 s->verdict[i].projected / median, w);
	}
	double v[FAL_REPORT_TICKS];
	const size_t n = s->ticks < FAL_REPORT_TICKS ? s->ticks : FAL_REPORT_TICKS;
	memcpy(v, s->ring, n * sizeof(*v));
	r->clock_median = fal_quantile(v, n, 0.5);
	r->clock_p95 = fal_quantile(v, n, 0.95);
	report_split_clock(r);
	report_advise(r);
	return 0;
}
