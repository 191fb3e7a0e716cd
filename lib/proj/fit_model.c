/* A cost model out of what the lines said. */
#include "proj/fit_priv.h"

#include "base/mem.h"
#include "base/quantile.h"

#include <stdlib.h>
#include <string.h>

/* Memory for n values of a row, of the clocks or of the machines; for a row's paces. */
struct scratch {
	double *v;
	size_t n;
	double common_fixed; /* the rows' median; NAN: nothing is known of any */
	bool prone;          /* one of the machines hangs time and again */
	struct fal_cost_pace pace[2 * FAL_FIT_CLOCKS];
};

/* The value below which `share` of them are; 0 of none. */
static double
quantile(struct scratch *s, double share)
{
	return s->n > 0 ? fal_quantile(s->v, s->n, share) : 0;
}

static double
median(struct scratch *s)
{
	return quantile(s, 0.5);
}

/* From which clock on lines count: what happens while a job starts is no property of its
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

/* What the row's lanes spend around a task: the median of the lines, in which cancelled
 * tasks are few, or the mean, in which it does not matter whose tasks ran in which line;
 * the smaller one, at least 0. */
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
	return quantile(s, share);
}

/* The part's tasks, in full ones. */
static double
size_of(const struct fal_fit *f, double fixed, const struct fit_told *t)
{
	const struct fal_trace_pace p = { .tasks = (uint64_t)t->tasks,
					  .samples = (double)t->samples };
	return fal_trace_size(&f->job, fixed, &p);
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
	const double full = (double)fal_trace_job_full(&f->job);
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

/* Sets the scratch's common_fixed.  0 or FAL_ENOMEM. */
static int
learn_fixed(const struct fal_fit *f, struct scratch *s)
{
	double *v = fal_calloc(f->workers, sizeof(*v));
	size_t n = 0;
	if (v == NULL)
		return FAL_ENOMEM;
	for (size_t i = 0; i < f->workers; i++) {
		v[n] = fixed_of(f, &f->worker[i], s);
		if (!isnan(v[n]))
			n++;
	}
	memcpy(s->v, v, n * sizeof(*v));
	s->n = n;
	s->common_fixed = n > 0 ? median(s) : (double)NAN;
	free(v);
	return 0;
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
add_told(struct paces *p, const struct fit_told *t, double tasks, double task_s,
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

/* The paces of a row, line by line.  Where it ran no task the nearest earlier line tells
 * its speed, else the nearest later one; 0: none does. */
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
		add_told(&p, t, size_of(f, fixed, t), task_s, after);
	}
	/* Who was excluded before it had shown how fast it is is as the others are. */
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
static int
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
	return fal_cost_add(out, &m, w->name);
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

/* What of a clock is neither computing, pulling nor pushing of the worker that was last;
 * of rounds of one's own, what those waited who did not wait for others: of n workers
 * that wait for each other one does not. */
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

/* The coordinator's costs.  Its messages, which a play adds, are in the rest as well. */
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
	int err = learn_fixed(f, s);
	out->grid = f->grid;
	bool gone = true;
	for (size_t i = 0; i < f->workers; i++)
		gone = gone && f->worker[i].left;
	/* Where all have left, those count who did after the last update: the coordinator
	 * was stopped, or they were. */
	for (size_t i = 0; err == 0 && i < f->workers; i++)
		if (!f->worker[i].left || (gone && f->worker[i].left_after == f->updates))
			err = add_machine(f, &f->worker[i], s, out);
	if (err == 0)
		err = guess(out, s);
	if (err < 0)
		return err;
	coordinator(f, s, out);
	const double share = fal_grid_size(&f->grid, 0) / (double)out->machines;
	for (size_t i = 0; i < out->machines; i++)
		fal_cost_settle(&out->machine[i], share);
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
	s->v = fal_calloc(f->workers + FAL_FIT_CLOCKS, sizeof(*s->v));
	int err = s->v != NULL ? model(f, s, &c) : FAL_ENOMEM;
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
		return fal_diag_set(diag, err, "%s",
				    err == FAL_ETRUNC
					    ? "no worker is here that ran a task"
					    : fal_strerror(err));
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
