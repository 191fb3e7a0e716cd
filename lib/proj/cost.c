/* The cost model's memory, and the one formula in it. */
#include "proj/cost.h"

#include "base/err.h"
#include "base/mem.h"

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
	copy.name = strdup(name);
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

double
fal_cost_task_s(const struct fal_cost_machine *m, uint64_t i, uint32_t lanes)
{
	return m->pace[i % m->paces] * crowding(m, lanes) / crowding(m, m->lanes);
}

static int
by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;
	return x < y ? -1 : x > y;
}

double
fal_cost_pace(const struct fal_cost_machine *m)
{
	double *v = fal_calloc(m->paces, sizeof(*v));
	if (v == NULL)
		return m->pace[0];
	memcpy(v, m->pace, m->paces * sizeof(*v));
	qsort(v, m->paces, sizeof(*v), by_size);
	double mid = v[m->paces / 2];
	free(v);
	return mid;
}
