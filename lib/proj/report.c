/* The lines of a trace, sorted into frames. */
#include "proj/report.h"

#include "base/mem.h"
#include "base/sorted.h"
#include "proj/fit.h"
#include "proj/report_priv.h"
#include "trace/reader.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The most numbers of lanes of a worker whose speeds are kept. */
enum { LANES_MAX = 64 };

/* A clock line. */
struct told {
	const struct fal_ev_clock *is;
	uint64_t lanes;
	double latency;
	struct fal_trace_ran ran;
};

/* What comes next tells of other waiting, too: the open frames count no more, nor does
 * the next line of anyone. */
static void
break_off(struct fal_report_state *s)
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
restart(struct fal_report_state *s)
{
	s->begin = s->summary.seconds;
	s->ticks = 0;
	s->samples = s->ideal = s->whole = s->vain = 0;
	s->use = (struct report_use){ 0 };
	for (size_t i = 0; i < s->rows; i++) {
		s->row[i].sums = (struct report_sums){ 0 };
		s->row[i].counts = (struct report_counts){
			.dropped = s->summary.worker[i].dropped,
		};
	}
}

static int
take_scheme(struct fal_report_state *s, struct fal_trace_line *l, const char *scheme)
{
	const struct fal_rule old = s->rule;
	if (fal_trace_scheme_read(l, scheme, &s->rule) < 0)
		return l->err;
	break_off(s);
	if (!fal_rule_eq(&old, &s->rule))
		restart(s);
	return 0;
}

static int
take_job(struct fal_report_state *s, struct fal_trace_line *l)
{
	fal_fit_optim(l, &s->optim);
	return l->err < 0 ? l->err : take_scheme(s, l, l->is.job.scheme);
}

static int
take_policy(struct fal_report_state *s, struct fal_trace_line *l)
{
	return take_scheme(s, l, l->is.policy.scheme);
}

static int
take_hold(struct fal_report_state *s, struct fal_trace_line *l)
{
	break_off(s);
	return l->err;
}

/* Someone joined or left. */
static int
take_session(struct fal_report_state *s, struct fal_trace_line *l)
{
	const struct fal_summary *sum = &s->summary;
	if (FAL_GROW(s->row, s->cap_rows, sum->n_worker) < 0)
		return FAL_ENOMEM;
	for (; s->rows < sum->n_worker; s->rows++)
		s->row[s->rows] = (struct report_row){ 0 };
	s->row[*fal_ids_get(&sum->ids, l->id)].fresh = true;
	s->present = 0;
	for (size_t i = 0; i < sum->n_worker; i++)
		s->present += !sum->worker[i].left;
	return l->err;
}

static int
take_suspect(struct fal_report_state *s, struct fal_trace_line *l)
{
	s->row[*fal_ids_get(&s->summary.ids, l->id)].counts.suspected++;
	return l->err;
}

/* Closes the frame of clock `base`; the one behind it becomes the first. */
static int
shift(struct fal_report_state *s)
{
	int err = report_frame(s, 0);
	for (size_t i = 0; i < s->rows; i++) {
		s->row[i].cell[0] = s->row[i].cell[1];
		s->row[i].cell[1] = (struct report_cell){ 0 };
	}
	s->lines[0] = s->lines[1];
	s->partial[0] = s->partial[1];
	s->lines[1] = 0;
	s->partial[1] = false;
	s->base++;
	return err;
}

/* The frame of the clock: 0 or 1, or 2 if that is closed.  Lines come up to a clock late,
 * so a line closes what is two clocks before it. */
static int
frame_of(struct fal_report_state *s, uint64_t clock, size_t *at)
{
	int err = 0;
	if (!s->open)
		s->base = clock;
	s->open = true;
	while (err == 0 && clock > s->base + 1 && s->lines[0] + s->lines[1] > 0)
		err = shift(s);
	if (clock > s->base + 1)
		s->base = clock;
	*at = clock < s->base ? 2 : (size_t)(clock - s->base);
	return err;
}

/* The tasks of the line are `size` full ones. */
static void
add(struct report_cell *c, const struct told *t, double size)
{
	const struct fal_trace_pace *all = &t->ran.all;
	const uint64_t n = all->tasks, lanes = t->lanes;
	const double lane_s = all->task_s / (double)lanes;
	const double won = n > 0 ? (double)t->is->done / (double)n : 0;
	c->load.clocks++;
	c->load.tasks += n;
	c->load.size += size;
	c->load.lane_s += (double)n * lane_s;
	c->load.push += t->is->push;
	c->load.pull += t->is->pull;
	c->load.latency += t->latency;
	c->compute += t->is->compute;
	c->wait += t->is->wait;
	c->samples += all->samples;
	c->won_samples += won * all->samples;
	c->won_s += (double)t->is->done * lane_s;
	c->whole += (double)((lanes - n % lanes) % lanes) * lane_s;
	if (n == 0 && t->is->share == 0) {
		c->idle++;
		c->idle_s += t->is->wait - t->latency;
	}
}

/* The speeds at a number of lanes, or NULL: of so many none are kept.  FAL_ENOMEM. */
static int
ring_of(struct report_row *w, uint32_t lanes, struct report_ring **out)
{
	const size_t size = sizeof(*w->ring);
	const size_t at = fal_sorted_place(w->ring, w->rings, size, lanes);
	*out = NULL;
	if (at == w->rings || w->ring[at].lanes != lanes) {
		if (w->rings == LANES_MAX)
			return 0;
		if (FAL_GROW(w->ring, w->cap_rings, w->rings + 1) < 0)
			return FAL_ENOMEM;
		memmove(&w->ring[at + 1], &w->ring[at], (w->rings++ - at) * size);
		w->ring[at] = (struct report_ring){ .lanes = lanes };
	}
	*out = &w->ring[at];
	return 0;
}

/* Notes a speed at a number of lanes. */
static int
note(struct report_row *w, uint32_t lanes, double speed)
{
	struct report_ring *r;
	int err = ring_of(w, lanes, &r);
	if (err < 0 || r == NULL)
		return err;
	if (r->n < FAL_REPORT_SPEEDS && FAL_GROW(r->v, r->cap, r->n + 1) < 0)
		return FAL_ENOMEM;
	r->v[r->n++ % FAL_REPORT_SPEEDS] = speed;
	return 0;
}

/* Notes the speed of each pace: with full tasks, whatever it ran. */
static int
note_speeds(const struct fal_trace_job *job, double fixed, struct report_row *w,
	    const struct told *t)
{
	const double full = (double)fal_trace_job_full(job);
	const uint32_t lanes = (uint32_t)t->lanes;
	struct report_ring *r;
	int err = 0;
	bool any = false;
	for (size_t i = 0; i < t->ran.paces && err == 0; i++) {
		const struct fal_trace_pace *p = &t->ran.pace[i];
		const double seconds = (double)p->tasks * p->task_s;
		if (!(seconds > 0))
			continue;
		err = note(w, lanes,
			   full * (double)lanes * fal_trace_size(job, fixed, p) /
				   seconds);
		any = true;
	}
	if (err == 0 && any && (err = ring_of(w, lanes, &r)) == 0 && r != NULL)
		r->clocks++;
	return err;
}

static void
count(struct report_counts *c, const struct told *t)
{
	const struct fal_ev_clock *e = t->is;
	c->lines++;
	c->tasks += e->done;
	c->in += e->in;
	c->out += e->out;
	c->cloned += e->cloned;
	c->lost += e->lost;
	c->lane_tasks += (double)t->ran.all.tasks / (double)t->lanes;
	c->tx += (double)e->tx;
	c->push_all += e->push_all;
	c->stale += e->staleness;
}

static int
take_clock(struct fal_report_state *s, struct fal_trace_line *l)
{
	const struct fal_ev_clock *e = &l->is.clock;
	const struct fal_trace_job *job = &s->summary.job;
	const size_t row = *fal_ids_get(&s->summary.ids, e->id);
	const double fixed = s->summary.worker[row].fixed;
	struct told t = {
		.is = e,
		.lanes = e->lanes > 0 ? e->lanes : 1,
		.latency = fal_trace_clock_latency(e, fal_rule_traits(&s->rule).moves),
	};
	fal_trace_clock_ran(l, job, &t.ran);
	struct report_row *w = &s->row[row];
	size_t at = 0;
	int err = l->err != 0 ? l->err : note_speeds(job, fixed, w, &t);
	if (err == 0 && report_shared(s))
		err = frame_of(s, e->clock, &at);
	if (err < 0)
		return err;
	s->told = true;
	w->lanes = (uint32_t)t.lanes;
	count(&w->counts, &t);
	/* What comes from far is later: it stands for its clock in the oldest open one.
	 */
	s->lines[at % 2] += at < 2;
	s->partial[at % 2] = s->partial[at % 2] || w->fresh;
	if (!w->fresh)
		add(&w->cell[at % 2], &t, fal_trace_size(job, fixed, &t.ran.all));
	w->fresh = false;
	while (err == 0 && report_shared(s) && s->lines[0] > 0 &&
	       s->lines[0] >= s->present)
		err = shift(s);
	return err;
}

/* A round that was not applied: what had been claimed for it was computed in vain. */
static void
take_vain(struct fal_report_state *s, const struct fal_ev_ledger *e)
{
	uint64_t claimed = 0;
	for (size_t i = 0; i < e->contrib.n; i++)
		if (e->contrib.v[i].fills.n == 0)
			claimed += fal_trace_rows_samples(&s->summary.job, e->clock,
							  e->contrib.v[i].tasks, 2);
	s->vain += (double)claimed;
	if (e->end == FAL_END_DROPPED && claimed < e->samples)
		s->samples += (double)(e->samples - claimed);
}

/* The tasks of a clock, or some more, are over: notes its seconds. */
static int
tick(struct fal_report_state *s, double t)
{
	const double clock = (double)fal_trace_job_tasks(&s->summary.job, 0);
	s->ring[s->ticks++ % FAL_REPORT_TICKS] = (t - s->tick) * clock / (double)s->ended;
	s->tick = t;
	s->ended = 0;
	return report_shared(s) ? 0 : report_frame(s, 0);
}

/* Rounds of workers' own end in swarms where they are applied together, so a clock lasts
 * from the first of a swarm to the first of another; that of a shared round from the end
 * of the one before. */
static int
take_ledger(struct fal_report_state *s, struct fal_trace_line *l)
{
	const uint64_t clock = fal_trace_job_tasks(&s->summary.job, 0);
	const struct fal_ev_ledger *e = &l->is.ledger;
	int err = 0;
	if (e->end == FAL_END_DROPPED || e->end == FAL_END_ABANDONED)
		take_vain(s, e);
	if (!s->begun)
		s->begin = l->t;
	s->begun = true;
	if (!s->ticking) {
		s->tick = l->t;
		s->ended = 0;
	} else if (!report_shared(s) && s->ended >= clock) {
		err = tick(s, l->t);
	}
	if (e->end != FAL_END_ABANDONED && (s->ticking || !report_shared(s)))
		s->ended += e->tasks;
	s->ticking = true;
	if (report_shared(s) && s->ended >= clock)
		err = tick(s, l->t);
	return err < 0 ? err : l->err;
}

int
fal_report_line(void *report, struct fal_trace_line *l)
{
	static int (*const take[FAL_EVENTS])(struct fal_report_state *s,
					     struct fal_trace_line *l) = {
		[FAL_EV_JOB] = take_job,       [FAL_EV_POLICY] = take_policy,
		[FAL_EV_HOLD] = take_hold,     [FAL_EV_JOIN] = take_session,
		[FAL_EV_LEAVE] = take_session, [FAL_EV_CLOCK] = take_clock,
		[FAL_EV_LEDGER] = take_ledger, [FAL_EV_SUSPECT] = take_suspect,
	};
	struct fal_report *r = report;
	if (r->state == NULL)
		r->state = fal_xcalloc(1, sizeof(*r->state));
	int err = fal_summary_line(&r->state->summary, l);
	if (err < 0)
		return err;
	return take[l->event] != NULL ? take[l->event](r->state, l) : 0;
}

void
fal_report_window(struct fal_report *r)
{
	if (r->state != NULL)
		restart(r->state);
}
