/* The cost model: its memory, and what a task takes. */
#include "proj/cost.h"

#include "base/err.h"
#include "base/mem.h"

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

int
fal_cost_add(struct fal_cost *c, const struct fal_cost_machine *m, const char *name)
{
	struct fal_cost_machine copy = *m;
	struct fal_cost_machine *all =
		fal_realloc(c->machine, c->machines + 1, sizeof(*all));
	if (all == NULL)
		return FAL_ENOMEM;
	c->machine = all;
	copy.name = fal_strdup(name);
	copy.pace = fal_calloc(m->paces, sizeof(*copy.pace));
	if (copy.name == NULL || copy.pace == NULL) {
		machine_free(&copy);
		return FAL_ENOMEM;
	}
	memcpy(copy.pace, m->pace, m->paces * sizeof(*copy.pace));
	c->machine[c->machines++] = copy;
	return FAL_OK;
}

int
fal_cost_copy(const struct fal_cost *c, struct fal_cost *out)
{
	*out = *c;
	out->machine = NULL;
	out->machines = 0;
	for (size_t i = 0; i < c->machines; i++)
		if (fal_cost_add(out, &c->machine[i], c->machine[i].name) < 0) {
			fal_cost_free(out);
			return FAL_ENOMEM;
		}
	return FAL_OK;
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

/* How much slower a lane is at `lanes` lanes than alone. */
static double
crowding(const struct fal_cost_machine *m, uint32_t lanes)
{
	return lanes > m->cores ? (double)lanes / m->cores : 1;
}

/* The paces as runs of `share` tasks each: the next run's mean, from entry *i on, of
 * which *used tasks were in the run before.  Negative: there is no whole run any more. */
static double
next_run(const struct fal_cost_machine *m, double share, size_t *i, double *used)
{
	double need = share, sum = 0;
	for (; *i < m->paces; (*i)++, *used = 0) {
		const struct fal_cost_pace *p = &m->pace[*i];
		double take = fmin(need, p->tasks - *used);
		sum += take * p->task_s;
		need -= take;
		if (need <= 0) {
			*used += take;
			return sum / share;
		}
	}
	return -1;
}

/* The correlation of neighbouring runs of `share` tasks, around their mean; 1 where they
 * are all alike. */
static double
persistence(const struct fal_cost_machine *m, double share)
{
	double sum = 0, n = 0, var = 0, cov = 0, used = 0, x, before = 0;
	for (size_t i = 0; (x = next_run(m, share, &i, &used)) >= 0; n++)
		sum += x;
	double mean = sum / fmax(n, 1);
	used = 0;
	for (size_t i = 0, k = 0; (x = next_run(m, share, &i, &used)) >= 0; k++) {
		var += (x - mean) * (x - mean);
		cov += k > 0 ? (x - mean) * (before - mean) : 0;
		before = x;
	}
	return var > 1e-4 * n * mean * mean ? cov / var : 1;
}

void
fal_cost_sum(struct fal_cost_machine *m)
{
	m->tasks = m->seconds = 0;
	for (size_t i = 0; i < m->paces; i++) {
		m->pace[i].at_task = m->tasks;
		m->pace[i].at_second = m->seconds;
		m->tasks += m->pace[i].tasks;
		m->seconds += m->pace[i].seconds;
	}
}

void
fal_cost_settle(struct fal_cost_machine *m, double share)
{
	static const double outlasts = 0.7;
	fal_cost_sum(m);
	m->by_time = m->tasks <= 0 || persistence(m, share) > outlasts;
}

/* The pace in force at `at`, a second or a task's number, which becomes the offset in it:
 * the last one that begins no later. */
static size_t
place_of(const struct fal_cost_machine *m, double *at)
{
	size_t low = 0, high = m->paces;
	*at = fmod(*at, m->by_time ? m->seconds : m->tasks);
	while (high - low > 1) {
		size_t mid = low + (high - low) / 2;
		const struct fal_cost_pace *p = &m->pace[mid];
		if ((m->by_time ? p->at_second : p->at_task) <= *at)
			low = mid;
		else
			high = mid;
	}
	*at -= m->by_time ? m->pace[low].at_second : m->pace[low].at_task;
	return low;
}

double
fal_cost_task_s(const struct fal_cost_machine *m, double n, double at, double size,
		uint32_t lanes)
{
	double crowd = crowding(m, lanes) / crowding(m, m->lanes);
	double in = m->by_time ? at : n, took = 0;
	size_t i = place_of(m, &in);
	if (!m->by_time)
		return m->pace[i].task_s * crowd * size;
	for (;; i = (i + 1) % m->paces, in = 0) {
		double t = m->pace[i].task_s * crowd, left = m->pace[i].seconds - in;
		if (size * t <= left)
			return took + size * t;
		took += left;
		size -= left / t;
	}
}

double
fal_cost_mean(const struct fal_cost_machine *m)
{
	double sum = 0, n = 0;
	for (size_t i = 0; i < m->paces; i++) {
		double weight = m->by_time ? m->pace[i].seconds / m->pace[i].task_s
					   : m->pace[i].tasks;
		sum += weight * m->pace[i].task_s;
		n += weight;
	}
	return n > 0 ? sum / n : m->pace[0].task_s;
}
