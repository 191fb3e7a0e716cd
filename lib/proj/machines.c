/* Other machines, other sizes. */
#include "proj/machines.h"

#include "base/crowd.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/quantile.h"
#include "base/rng.h"
#include "sched/bound.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The machine in the middle by speed; NULL: out of memory. */
static const struct fal_cost_machine *
middle(const struct fal_cost *cost)
{
	double *v = fal_calloc(cost->machines, sizeof(*v));
	if (v == NULL)
		return NULL;
	for (size_t i = 0; i < cost->machines; i++)
		v[i] = fal_cost_mean(&cost->machine[i]);
	const double mean = fal_quantile(v, cost->machines, 0.5);
	const struct fal_cost_machine *at = NULL;
	for (const struct fal_cost_machine *m = cost->machine;
	     m < cost->machine + cost->machines; m++)
		if (fal_cost_mean(m) >= mean &&
		    (at == NULL || fal_cost_mean(m) < fal_cost_mean(at)))
			at = m;
	free(v);
	return at;
}

/* --- what they are to be like ------------------------------------------------------ */

/* Some machines; 0, NULL: as the one that they are like. */
struct spec {
	const char *name;                    /* of a single one */
	uint64_t count;                      /* of several, */
	const struct fal_cost_machine *like; /* which may be like any */
	double speed[2]; /* from … to, times that of `like`; 0: it is 1 */
	uint64_t lanes, cores;
};

/* LOW:HIGH, or one of several where only one number may stand. */
static int
get_speed(char *value, bool range, double speed[2])
{
	char *high = range ? strchr(value, ':') : NULL;
	if (high != NULL)
		*high++ = '\0';
	int err = fal_parse_double(value, 1e-3, 1e3, &speed[0]);
	speed[1] = speed[0];
	if (err == FAL_OK && high != NULL)
		err = fal_parse_double(high, speed[0], 1e3, &speed[1]);
	if (high != NULL)
		high[-1] = ':';
	return err;
}

/* One NAME=VALUE of a single machine, or, with a count, of several. */
static int
get_item(const struct fal_cost *cost, char *item, struct spec *s, struct fal_diag *diag)
{
	const bool several = s->count > 0;
	const char *why = "not a number that it may be";
	char *value = strchr(item, '=');
	bool twice = false;
	int err = FAL_OK;
	if (value == NULL)
		return fal_diag_set(diag, FAL_EINVAL, "'%s' is not NAME=VALUE", item);
	*value++ = '\0';
	if (strcmp(item, "name") == 0 && !several) {
		twice = s->name != NULL;
		s->name = value;
		if (*value == '\0' || fal_cost_find(cost, value) != NULL)
			err = FAL_EINVAL;
		why = "not a new name";
	} else if (strcmp(item, "like") == 0) {
		twice = s->like != NULL;
		s->like = fal_cost_find(cost, value);
		err = s->like == NULL ? FAL_EINVAL : FAL_OK;
		why = "no such worker";
	} else if (strcmp(item, "speed") == 0) {
		twice = s->speed[0] > 0;
		err = get_speed(value, several, s->speed);
	} else if (strcmp(item, "lanes") == 0) {
		twice = s->lanes > 0;
		err = fal_parse_u64(value, 1, FAL_LANES_MAX, &s->lanes);
	} else if (strcmp(item, "cores") == 0) {
		twice = s->cores > 0;
		err = fal_parse_u64(value, 1, FAL_LANES_MAX, &s->cores);
	} else {
		return fal_diag_set(diag, FAL_EINVAL,
				    "'%s' is not one of %slike, speed, lanes, cores",
				    item, several ? "" : "name, ");
	}
	if (err < 0 || twice)
		return fal_diag_set(diag, FAL_EINVAL, "%s: '%s': %s", item, value,
				    twice ? "given twice" : why);
	return FAL_OK;
}

/* The machine becomes what the spec says, with this speed. */
static void
apply(const struct spec *s, double speed, struct fal_cost_machine *m)
{
	double before = fal_crowding(m->lanes, m->cores);
	m->cores = s->cores > 0 ? (uint32_t)s->cores : m->cores;
	double by = fal_crowding(m->lanes, m->cores) / before / (speed > 0 ? speed : 1);
	for (size_t i = 0; i < m->paces; i++)
		m->pace[i].task_s *= by;
	m->lanes_max = s->lanes > 0 ? (uint32_t)s->lanes : m->lanes_max;
	m->lanes_min = m->lanes_min < m->lanes_max ? m->lanes_min : m->lanes_max;
	fal_cost_sum(m);
}

int
fal_machines_add(struct fal_cost *cost, const char *spec, struct fal_diag *diag)
{
	char *text = fal_strdup(spec), *rest = text, *item;
	struct spec s = { 0 };
	int err = text != NULL ? FAL_OK : FAL_ENOMEM;
	while (err == FAL_OK && (item = strsep(&rest, ",")) != NULL)
		err = get_item(cost, item, &s, diag);
	if (err == FAL_OK && s.name == NULL)
		err = fal_diag_set(diag, FAL_EINVAL, "'%s' has no name=", spec);
	if (err == FAL_OK && s.like == NULL && (s.like = middle(cost)) == NULL)
		err = FAL_ENOMEM;
	if (err == FAL_OK)
		err = fal_cost_add(cost, s.like, s.name);
	if (err == FAL_OK)
		apply(&s, s.speed[0], &cost->machine[cost->machines - 1]);
	free(text);
	return err;
}

/* Clocks are cut otherwise: a full task may have another size. */
static void
cut(struct fal_cost *cost, struct fal_grid to)
{
	const double ratio = (double)fal_grid_full(&to) / fal_grid_full(&cost->grid);
	cost->grid = to;
	for (size_t i = 0; i < cost->machines; i++) {
		struct fal_cost_machine *m = &cost->machine[i];
		const double longer = fal_bound_longer(m->fixed, ratio);
		for (size_t k = 0; k < m->paces; k++) {
			m->pace[k].task_s *= longer;
			m->pace[k].tasks /= ratio;
		}
		m->fixed /= longer;
		fal_cost_sum(m);
	}
}

/* --- many of them ------------------------------------------------------------------ */

/* The groups of a SPEC. */
struct groups {
	char *text;
	struct spec *v;
	size_t n, cap;
	uint64_t workers;
};

/* N[,NAME=VALUE...] */
static int
get_group(const struct fal_cost *cost, char *text, struct groups *g,
	  struct fal_diag *diag)
{
	struct spec s = { 0 };
	char *rest = text, *item = strsep(&rest, ",");
	int err = FAL_OK;
	if (fal_parse_u64(item, 1, FAL_MACHINES_MAX - g->workers, &s.count) < 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "'%s': not a number of workers, of up to %d in all",
				    item, FAL_MACHINES_MAX);
	while (err == FAL_OK && (item = strsep(&rest, ",")) != NULL)
		err = get_item(cost, item, &s, diag);
	if (err < 0)
		return err;
	if (FAL_GROW(g->v, g->cap, g->n + 1) < 0)
		return FAL_ENOMEM;
	g->v[g->n++] = s;
	g->workers += s.count;
	return FAL_OK;
}

static int
get_groups(const struct fal_cost *cost, const char *spec, struct groups *g,
	   struct fal_diag *diag)
{
	g->text = fal_strdup(spec);
	if (g->text == NULL)
		return FAL_ENOMEM;
	char *rest = g->text, *one;
	int err = FAL_OK;
	while (err == FAL_OK && (one = strsep(&rest, ";")) != NULL)
		err = get_group(cost, one, g, diag);
	return err;
}

/* A copy of `m` that begins elsewhere in its paces, of which it gets at most `most`. */
static int
copy_of(struct fal_cost *to, const struct fal_cost_machine *m, size_t most,
	struct fal_rng *r)
{
	struct fal_cost_machine part = *m;
	char name[24];
	part.paces = m->paces < most ? m->paces : most;
	part.pace = fal_calloc(part.paces, sizeof(*part.pace));
	if (part.pace == NULL)
		return FAL_ENOMEM;
	size_t first = fal_rng_below(r, (uint32_t)m->paces);
	for (size_t i = 0; i < part.paces; i++)
		part.pace[i] = m->pace[(first + i) % m->paces];
	snprintf(name, sizeof(name), "w%zu", to->machines + 1);
	int err = fal_cost_add(to, &part, name);
	free(part.pace);
	return err;
}

static int
draw(struct fal_cost *to, const struct fal_cost *from, const struct spec *s, size_t most,
     struct fal_rng *r)
{
	const struct fal_cost_machine *like = s->like;
	double speed = s->speed[0];
	if (like == NULL)
		like = &from->machine[fal_rng_below(r, (uint32_t)from->machines)];
	int err = copy_of(to, like, most, r);
	if (s->speed[1] > s->speed[0])
		speed += (s->speed[1] - s->speed[0]) * (double)fal_rng_unit(r);
	if (err == FAL_OK)
		apply(s, speed, &to->machine[to->machines - 1]);
	return err;
}

/* The batch of so many workers; clocks stay whole.  FAL_ELIMIT. */
static int
grow_batch(const struct fal_cost *cost, uint64_t workers, struct fal_grid *grid)
{
	double grow = (double)workers / (double)cost->machines;
	/* Whole tasks, unless a clock is a part of one. */
	const uint32_t task = cost->grid.task, unit = cost->grid.batch < task ? 1 : task;
	double batch = fmax(round(cost->grid.batch * grow / unit), 1) * unit;
	/* How long an epoch is, is the caller's. */
	double clocks = fmin((double)fal_grid_epoch_clocks(&cost->grid),
			     floor(UINT32_MAX / batch));
	if (clocks < 1)
		return FAL_ELIMIT;
	grid->batch = (uint32_t)batch;
	grid->samples = (uint32_t)(batch * clocks);
	return FAL_OK;
}

int
fal_machines_draw(struct fal_cost *cost, const char *spec, uint64_t seed,
		  struct fal_diag *diag)
{
	enum { PACES = 1 << 20, LEAST = 64 }; /* of all machines, of one */
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_PROJ, 0);
	struct fal_cost all = *cost;
	struct fal_grid grid = cost->grid;
	struct groups g = { 0 };
	all.machine = NULL;
	all.machines = 0;
	int err = get_groups(cost, spec, &g, diag);
	if (err == FAL_OK && grow_batch(cost, g.workers, &grid) < 0)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "'%s': the batch would not fit 32 bits", spec);
	for (size_t i = 0; i < g.n && err == FAL_OK; i++) {
		const uint64_t even = PACES / g.workers;
		const size_t most = even > LEAST ? (size_t)even : LEAST;
		for (uint64_t k = 0; k < g.v[i].count && err == FAL_OK; k++)
			err = draw(&all, cost, &g.v[i], most, &r);
	}
	if (err == FAL_OK)
		cut(&all, grid);
	fal_cost_free(err == FAL_OK ? cost : &all);
	if (err == FAL_OK)
		*cost = all;
	free(g.text);
	free(g.v);
	return err;
}

void
fal_machines_task(struct fal_cost *cost, uint32_t task)
{
	struct fal_grid to = cost->grid;
	to.task = task;
	cut(cost, to);
}

void
fal_machines_batch(struct fal_cost *cost, uint32_t batch)
{
	struct fal_grid to = cost->grid;
	to.batch = batch;
	cut(cost, to);
}
