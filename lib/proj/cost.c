/* The cost model: its memory, and the seconds of a task. */
#include "proj/simulate.h"

#include "base/mem.h"
#include "base/oversubscription.h"
#include "sched/bound.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void
machine_free(struct fal_cost_machine *m)
{
	free(m->name);
	free(m->pace);
}

void
fal_cost_free(struct fal_cost *c)
{
	for (size_t i = 0; i < c->machines; i++)
		machine_free(&c->machine[i]);
	free(c->machine);
	*c = (struct fal_cost){ 0 };
}

void
fal_cost_add(struct fal_cost *c, const struct fal_cost_machine *m, const char *name)
{
	struct fal_cost_machine copy = *m; /* m may be in the array that moves */
	copy.name = fal_xstrdup(name);
	copy.pace = fal_xcalloc(m->paces, sizeof(*copy.pace));
	memcpy(copy.pace, m->pace, m->paces * sizeof(*copy.pace));
	FAL_XGROW(c->machine, c->cap, c->machines + 1);
	c->machine[c->machines++] = copy;
}

struct fal_cost
fal_cost_copy(const struct fal_cost *c)
{
	struct fal_cost copy = *c;
	copy.machine = NULL;
	copy.machines = copy.cap = 0;
	for (size_t i = 0; i < c->machines; i++)
		fal_cost_add(&copy, &c->machine[i], c->machine[i].name);
	return copy;
}

void
fal_cost_remove(struct fal_cost *c, size_t i)
{
	machine_free(&c->machine[i]);
	c->machines--;
	memmove(&c->machine[i], &c->machine[i + 1],
		(c->machines - i) * sizeof(*c->machine));
}

struct fal_cost_machine *
fal_cost_find(const struct fal_cost *c, const char *name)
{
	for (size_t i = 0; i < c->machines; i++)
		if (strcmp(c->machine[i].name, name) == 0)
			return &c->machine[i];
	return NULL;
}

/* A position in the paces: after `used` tasks of pace `i`. */
struct pace_position {
	size_t i;
	double used;
};

/* Moves by `n` tasks and returns their mean task_s; negative: there are fewer. */
static double
paces_advance(const struct fal_cost_machine *m, struct pace_position *at, double n)
{
	double need = n, sum = 0;
	for (; at->i < m->paces; at->i++, at->used = 0) {
		const struct fal_cost_pace *p = &m->pace[at->i];
		double take = fmin(need, p->tasks - at->used);
		sum += take * p->task_s;
		need -= take;
		if (need <= 0) {
			at->used += take;
			return n > 0 ? sum / n : 0;
		}
	}
	return -1;
}

void
fal_cost_update_sums(struct fal_cost_machine *m)
{
	m->tasks = m->seconds = m->work = 0;
	bool works = false;
	for (size_t i = 0; i < m->paces; i++)
		works |= !m->pace[i].hung;
	for (size_t i = 0; i < m->paces; i++) {
		m->pace[i].at_task = m->tasks;
		m->pace[i].at_second = m->seconds;
		m->tasks += m->pace[i].tasks;
		m->seconds += m->pace[i].seconds;
		m->pace[i].hung &= works;
		if (!m->pace[i].hung)
			m->work += m->pace[i].seconds / m->pace[i].task_s;
	}
	m->by_time = m->by_time || !(m->tasks > 0);
}

void
fal_cost_choose_pacing(struct fal_cost_machine *m, double share)
{
	static const double outlasts = 0.7, alike = 0.01;
	/* The figures are of consecutive runs of `share` tasks; var and cov (of
	 * neighbours) are sums. */
	double n = 0, mean = 0, var = 0, cov = 0, x, before = -1;
	struct pace_position p = { 0 };
	for (; (x = paces_advance(m, &p, share)) >= 0; n++)
		mean += x;
	mean /= fmax(n, 1);
	p = (struct pace_position){ 0 };
	for (double i = 0; i < n; i++, before = x) {
		x = paces_advance(m, &p, share);
		cov += before >= 0 ? (x - mean) * (before - mean) : 0;
		var += (x - mean) * (x - mean);
	}
	bool hung = false;
	for (size_t i = 0; i < m->paces; i++)
		hung |= m->pace[i].hung;
	m->by_time = hung || n < 2 || var <= alike * alike * mean * mean * n ||
		     cov > outlasts * var;
	fal_cost_update_sums(m);
}

static double
pace_begin(const struct fal_cost_machine *m, size_t i)
{
	return m->by_time ? m->pace[i].at_second : m->pace[i].at_task;
}

/* Returns the pace at `at`, a second or a task's number: the last one that does not begin
 * later.  *at becomes the offset in it. */
static size_t
machine_pace_at(const struct fal_cost_machine *m, double *at)
{
	size_t low = 0, high = m->paces;
	*at = fmod(*at, m->by_time ? m->seconds : m->tasks);
	while (high - low > 1) {
		const size_t mid = low + (high - low) / 2;
		*(pace_begin(m, mid) <= *at ? &low : &high) = mid;
	}
	*at -= pace_begin(m, low);
	assert(low < m->paces);
	return low;
}

double
fal_cost_task_s(const struct fal_cost_machine *m, double n, double at, double part,
		uint32_t lanes)
{
	double need = fal_bound_task_size(m->fixed, part) *
		      fal_oversubscription(lanes, m->cores) /
		      fal_oversubscription(m->lanes, m->cores),
	       took = 0;
	double in = m->by_time ? at : n;
	size_t i = machine_pace_at(m, &in);
	if (!m->by_time)
		return m->pace[i].task_s * need;
	if (need > m->work) { /* whole rounds through all paces */
		took = floor(need / m->work) * m->seconds;
		need = fmod(need, m->work);
	}
	for (size_t k = 0; k <= m->paces; k++, i = (i + 1) % m->paces, in = 0) {
		double t = m->pace[i].task_s, left = m->pace[i].seconds - in;
		if (!m->pace[i].hung && need * t <= left)
			return took + need * t;
		took += left;
		need -= m->pace[i].hung ? 0 : left / t;
	}
	return took; /* reached only by rounding errors */
}

double
fal_cost_hang_s(const struct fal_cost_machine *m, double at)
{
	double left = 0;
	size_t i = m->by_time ? machine_pace_at(m, &at) : 0;
	for (; m->by_time && m->pace[i].hung; i = (i + 1) % m->paces, at = 0)
		left += m->pace[i].seconds - at;
	return left;
}

double
fal_cost_mean_task_s(const struct fal_cost_machine *m)
{
	double sum = 0, n = 0;
	for (size_t i = 0; i < m->paces; i++) {
		double weight = m->by_time ? m->pace[i].seconds / m->pace[i].task_s
					   : m->pace[i].tasks;
		sum += weight * m->pace[i].task_s;
		n += m->pace[i].hung ? 0 : weight;
	}
	return n > 0 ? sum / n : m->pace[0].task_s;
}

/* Returns the machine's lanes that have a core each. */
static struct fal_bound_lanes
machine_lanes(const struct fal_cost_machine *m)
{
	return (struct fal_bound_lanes){
		.lanes = m->lanes < m->cores ? m->lanes : m->cores,
		.task_s = fal_cost_mean_task_s(m) /
			  fal_oversubscription(m->lanes, m->cores),
		.fixed = m->fixed,
	};
}

double
fal_cost_speed(const struct fal_cost *c)
{
	double sum = 0;
	for (size_t i = 0; i < c->machines; i++) {
		const struct fal_bound_lanes v = machine_lanes(&c->machine[i]);
		sum += v.lanes / v.task_s;
	}
	return sum * fal_grid_full_samples(&c->grid);
}

void
fal_cost_task_sizes(const struct fal_cost *c, double *whole, double *small)
{
	struct fal_bound_lanes *v = fal_xcalloc(c->machines, sizeof(*v));
	const double k = fal_grid_size(&c->grid, 0);
	for (size_t i = 0; i < c->machines; i++)
		v[i] = machine_lanes(&c->machine[i]);
	const struct fal_bound_tail tail = fal_bound_tail_of(&c->grid, 0);
	fal_bound_sizes(v, c->machines, k, &tail, whole, small);
	free(v);
}
