/* A cost model out of what the lines said. */
#include "proj/fit_priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

struct weighed {
	double v, weight;
};

/* Memory for n values of a row, of the clocks or of the machines; for what a row's lines
 * and its probe say of its fixed part; for a row's paces. */
struct scratch {
	double *v;
	size_t n;
	struct weighed fixed[FAL_FIT_CLOCKS + 1];
	double common_fixed; /* the rows' median; NAN: nothing is known of any */
	struct fal_cost_pace pace[2 * FAL_FIT_CLOCKS];
};

static int
by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

/* The value below which `share` of them are, less than 1; 0 of none. */
static double
quantile(struct scratch *s, double share)
{
	qsort(s->v, s->n, sizeof(*s->v), by_size);
	return s->n > 0 ? s->v[(size_t)((double)s->n * share)] : 0;
}

static double
median(struct scratch *s)
{
	return quantile(s, 0.5);
}

/* From which clock on lines count. */
static uint64_t
first_clock(const struct fal_fit *f)
{
	return f->since >= FAL_FIT_ENOUGH ? f->begin : 0;
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

#define TYPICAL(f, w, field, s) typical(f, w, offsetof(struct fit_told, field), s)

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

/* The median of a full task's seconds; `whole`: only where all tasks were full. */
static double
typical_s(const struct fal_fit *f, const struct fit_worker *w, double fixed, bool whole,
	  struct scratch *s)
{
	s->n = 0;
	for (uint64_t i = 0; i < kept(w); i++) {
		const struct fit_told *t = told_at(w, i);
		const double v = full_s(f, fixed, t);
		if (t->clock >= first_clock(f) && v > 0 &&
		    !(whole && mean_part(f, t) < 1))
			s->v[s->n++] = v;
	}
	return median(s);
}

static int
by_value(const void *a, const void *b)
{
	const struct weighed *x = a, *y = b;
	return x->v < y->v ? -1 : x->v > y->v;
}

/* The share of a full task's seconds that a task of any size takes: the weighed median of
 * what lines with short tasks say, by how much shorter these were, and of what the probe
 * did, as one task of no samples.  NAN: nothing does. */
static double
fixed_of(const struct fal_fit *f, const struct fit_worker *w, struct scratch *s)
{
	const double usual = typical_s(f, w, w->fixed, true, s);
	double all = 0;
	size_t n = 0;
	if (!isnan(w->fixed))
		s->fixed[n++] = (struct weighed){ w->fixed, 1 };
	for (uint64_t i = 0; i < kept(w) && usual > 0; i++) {
		const struct fit_told *t = told_at(w, i);
		const double part = mean_part(f, t), less = 1 - part;
		if (t->clock < FAL_FIT_WARM || t->clock < first_clock(f) || !(less > 0))
			continue;
		const double is = ((double)t->task_s / usual - part) / less;
		s->fixed[n++] = (struct weighed){ fmin(fmax(is, 0), 1),
						  (double)t->tasks * less * less };
	}
	qsort(s->fixed, n, sizeof(*s->fixed), by_value);
	for (size_t i = 0; i < n; i++)
		all += s->fixed[i].weight;
	double below = 0;
	for (size_t i = 0; i < n; i++)
		if ((below += s->fixed[i].weight) >= all / 2)
			return s->fixed[i].v;
	return (double)NAN;
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

/* What starting costs is no speed: in the first clocks, and most of all in the very
 * first, what is not far from the typical speed is that.  They are kept all the same, so
 * that what follows stays in its place. */
static double
settled(const struct fit_told *t, double task_s, double usual)
{
	/* LeNet-5's tasks took up to 2.5 times as long in the first, 1.5 in the second.
	 */
	const double far = t->clock == 0 ? 3 : 1.5;
	return t->clock < FAL_FIT_WARM && task_s < far * usual ? usual : task_s;
}

/* Of a lane alone, at the lanes that it ran last. */
static double
at_lanes(const struct fit_worker *w, double task_s)
{
	return fit_at_lanes(task_s, w->cores, 1, w->lanes);
}

/* A row's paces, as they are put together. */
struct paces {
	struct fal_cost_pace *v;
	size_t n;
	size_t first; /* with which a clock began, when the job had started */
};

static void
add_pace(struct paces *p, double task_s, double tasks, double seconds)
{
	p->v[p->n++] = (struct fal_cost_pace){ .task_s = task_s,
					       .tasks = tasks,
					       .seconds = seconds };
}

/* In these seconds nothing was done. */
static void
add_hung(struct paces *p, double task_s, double seconds)
{
	add_pace(p, task_s, 0, seconds);
	p->v[p->n - 1].hung = true;
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

/* The paces of a row, line by line.  Where it ran no task the nearest earlier line tells
 * its speed, else the nearest later one; 0: none does. */
static struct paces
paces_of(const struct fal_fit *f, const struct fit_worker *w, double fixed,
	 struct scratch *s)
{
	const double usual = typical_s(f, w, fixed, false, s);
	struct paces p = { .v = s->pace };
	double task_s = 0;
	for (uint64_t i = 0; i < kept(w); i++) {
		const struct fit_told *t = told_at(w, i);
		double after = 0;
		if (t->task_s > 0)
			task_s = at_lanes(w, settled(t, full_s(f, fixed, t), usual));
		if (t->clock < first_clock(f))
			continue;
		if (t->hung) {
			add_hung(&p, task_s, (double)t->seconds);
			continue;
		}
		if (i + 1 < kept(w)) {
			const struct fit_told *next = told_at(w, i + 1);
			after = at_lanes(w, settled(next, full_s(f, fixed, next), usual));
		}
		add_told(&p, t, size_of(f, fixed, t), task_s, after);
		if (t->clock < FAL_FIT_WARM)
			p.first = p.n;
	}
	p.first = p.first < p.n ? p.first : 0;
	if (p.n == 0)
		add_pace(&p, task_s, 0, 1);
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
		.first = paces.first,
		.turn_s = turn_of(f, w, s),
		.pull_s = TYPICAL(f, w, pull, s),
		.push_s = TYPICAL(f, w, push, s),
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
		m->pull_s = pull;
		m->push_s = push;
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

/* Where all have left, those count who did after the last update: the coordinator was
 * stopped, or they were. */
static bool
is_here(const struct fal_fit *f, const struct fit_worker *w, bool all_left)
{
	return !w->left || (all_left && w->left_after == f->updates);
}

static int
model(const struct fal_fit *f, struct scratch *s, struct fal_cost *out)
{
	int err = learn_fixed(f, s);
	out->grid = f->grid;
	bool gone = true;
	for (size_t i = 0; i < f->workers; i++)
		gone = gone && f->worker[i].left;
	for (size_t i = 0; err == 0 && i < f->workers; i++)
		if (is_here(f, &f->worker[i], gone))
			err = add_machine(f, &f->worker[i], s, out);
	if (err == 0)
		err = guess(out, s);
	if (err < 0)
		return err;
	coordinator(f, s, out);
	const double share = fal_grid_size(&f->grid, 0) / (double)out->machines;
	for (size_t i = 0; i < out->machines; i++)
		if (fal_cost_settle(&out->machine[i], share) < 0)
			return FAL_ENOMEM;
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
	struct scratch *s = fal_calloc(1, sizeof(*s));
	int err = FAL_ENOMEM;
	if (s != NULL)
		s->v = fal_calloc(f->workers + FAL_FIT_CLOCKS, sizeof(*s->v));
	if (s != NULL && s->v != NULL)
		err = model(f, s, &c);
	if (s != NULL)
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
				     .clocks = (uint64_t)(f->counted + 0.5),
				     .from = f->from };
	memcpy(run->scheme, f->scheme, sizeof(run->scheme));
	run->shards =
		f->place.rule[0] != '\0' ? f->place.shards : (uint32_t)f->job.shards;
	run->place = f->place;
	run->served = f->served;
	fal_shard_rows_end(&run->served);
	run->place.blocks = (uint32_t)f->job.blocks;
	if (f->samples > 0)
		run->epoch_s = f->seconds * f->grid.samples / f->samples;
	if (f->spent > 0)
		run->compute = f->compute / f->spent;
	return 0;
}
