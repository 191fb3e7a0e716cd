/* The what-if: changes machines, sizes and policies, and predicts the effect. */
#include "proj/simulate.h"

#include "base/mem.h"
#include "base/oversubscription.h"
#include "base/parse.h"
#include "base/quantile.h"
#include "base/rng.h"
#include "sched/bound.h"
#include "sched/policy.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* --- machines ---------------------------------------------------------------------- */

/* Machines that the user describes; 0 and NULL: the value of the machine `like`. */
struct machine_spec {
	const char *name;                    /* of a single machine */
	uint64_t count;                      /* of several machines */
	const struct fal_cost_machine *like; /* NULL: several are like any machine */
	double speed[2];                     /* from … to, times that of `like`; 0: 1 */
	uint64_t lanes, cores;
};

/* Parses one NAME=VALUE of a single machine or, with a count, of several. */
static int
spec_parse_item(const struct fal_cost *cost, char *item, struct machine_spec *s,
		struct fal_diag *diag)
{
	const bool several = s->count > 0;
	const char *why = "not a number in its range";
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
		/* A number or, of several machines, LOW:HIGH. */
		char *high = several ? strchr(value, ':') : NULL;
		if (high != NULL)
			*high++ = '\0';
		err = fal_parse_double(value, 1e-3, 1e3, &s->speed[0]);
		s->speed[1] = s->speed[0];
		if (err == FAL_OK && high != NULL)
			err = fal_parse_double(high, s->speed[0], 1e3, &s->speed[1]);
		if (high != NULL)
			high[-1] = ':';
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

/* Changes the machine as the spec says, to this speed. */
static void
spec_apply(const struct machine_spec *s, double speed, struct fal_cost_machine *m)
{
	double before = fal_oversubscription(m->lanes, m->cores);
	m->cores = s->cores > 0 ? (uint32_t)s->cores : m->cores;
	double factor = fal_oversubscription(m->lanes, m->cores) / before /
			(speed > 0 ? speed : 1);
	for (size_t i = 0; i < m->paces; i++)
		m->pace[i].task_s *= factor;
	m->lanes_max = s->lanes > 0 ? (uint32_t)s->lanes : m->lanes_max;
	m->lanes_min = m->lanes_min < m->lanes_max ? m->lanes_min : m->lanes_max;
	fal_cost_update_sums(m);
}

int
fal_machines_add(struct fal_cost *cost, const char *spec, struct fal_diag *diag)
{
	char *text = fal_xstrdup(spec), *rest = text, *item;
	struct machine_spec s = { 0 };
	int err = FAL_OK;
	while (err == FAL_OK && (item = strsep(&rest, ",")) != NULL)
		err = spec_parse_item(cost, item, &s, diag);
	if (err == FAL_OK && s.name == NULL)
		err = fal_diag_set(diag, FAL_EINVAL, "'%s' has no name=", spec);
	if (err == FAL_OK && s.like == NULL) { /* like the machine of the median speed */
		double *v = fal_xcalloc(cost->machines, sizeof(*v));
		for (size_t i = 0; i < cost->machines; i++)
			v[i] = fal_cost_mean_task_s(&cost->machine[i]);
		const double median = fal_quantile(v, cost->machines, 0.5);
		for (size_t i = 0; i < cost->machines; i++) {
			const struct fal_cost_machine *m = &cost->machine[i];
			const double task_s = fal_cost_mean_task_s(m);
			if (task_s >= median &&
			    (s.like == NULL || task_s < fal_cost_mean_task_s(s.like)))
				s.like = m;
		}
		free(v);
	}
	if (err == FAL_OK) {
		fal_cost_add(cost, s.like, s.name);
		spec_apply(&s, s.speed[0], &cost->machine[cost->machines - 1]);
	}
	free(text);
	return err;
}

/* Sets another grid; a full task may get another size. */
static void
cost_set_grid(struct fal_cost *cost, struct fal_grid to)
{
	const double ratio =
		(double)fal_grid_full_samples(&to) / fal_grid_full_samples(&cost->grid);
	cost->grid = to;
	for (size_t i = 0; i < cost->machines; i++) {
		struct fal_cost_machine *m = &cost->machine[i];
		const double longer = fal_bound_task_size(m->fixed, ratio);
		for (size_t k = 0; k < m->paces; k++) {
			m->pace[k].task_s *= longer;
			m->pace[k].tasks /= ratio;
		}
		m->fixed /= longer;
		fal_cost_update_sums(m);
	}
}

/* --- many machines ----------------------------------------------------------------- */

struct machine_specs {
	struct machine_spec *v; /* their texts are parts of the user's text */
	size_t n, cap;
	uint64_t workers; /* of all of them */
};

/* Parses and adds N[,NAME=VALUE...]. */
static int
specs_parse(const struct fal_cost *cost, char *text, struct machine_specs *g,
	    struct fal_diag *diag)
{
	struct machine_spec s = { 0 };
	char *rest = text, *item = strsep(&rest, ",");
	int err = FAL_OK;
	if (fal_parse_u64(item, 1, FAL_MACHINES_MAX - g->workers, &s.count) < 0)
		return fal_diag_set(diag, FAL_EINVAL,
				    "'%s': not a number of workers, of up to %d in all",
				    item, FAL_MACHINES_MAX);
	while (err == FAL_OK && (item = strsep(&rest, ",")) != NULL)
		err = spec_parse_item(cost, item, &s, diag);
	if (err < 0)
		return err;
	FAL_XGROW(g->v, g->cap, g->n + 1);
	g->v[g->n++] = s;
	g->workers += s.count;
	return FAL_OK;
}

/* Draws a machine from `from` and adds it to `to`, with at most `most` paces. */
static void
spec_draw(struct fal_cost *to, const struct fal_cost *from, const struct machine_spec *s,
	  size_t most, struct fal_rng *r)
{
	const struct fal_cost_machine *like = s->like;
	double speed = s->speed[0];
	if (like == NULL)
		like = &from->machine[fal_rng_below(r, (uint32_t)from->machines)];
	/* A copy that begins at another one of its paces. */
	struct fal_cost_machine part = *like;
	char name[24];
	part.paces = like->paces < most ? like->paces : most;
	part.pace = fal_xcalloc(part.paces, sizeof(*part.pace));
	size_t first = fal_rng_below(r, (uint32_t)like->paces);
	for (size_t i = 0; i < part.paces; i++)
		part.pace[i] = like->pace[(first + i) % like->paces];
	snprintf(name, sizeof(name), "w%zu", to->machines + 1);
	fal_cost_add(to, &part, name);
	free(part.pace);
	if (s->speed[1] > s->speed[0])
		speed += (s->speed[1] - s->speed[0]) * (double)fal_rng_unit(r);
	spec_apply(s, speed, &to->machine[to->machines - 1]);
}

int
fal_machines_draw(struct fal_cost *cost, const char *spec, uint64_t seed,
		  struct fal_diag *diag)
{
	enum { PACES = 1 << 20, LEAST = 64 }; /* of all machines, of one */
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_PROJ, 0);
	struct fal_cost all = *cost;
	struct fal_grid grid = cost->grid;
	struct machine_specs g = { 0 };
	char *text = fal_xstrdup(spec), *rest = text, *one;
	int err = FAL_OK;
	while (err == FAL_OK && (one = strsep(&rest, ";")) != NULL)
		err = specs_parse(cost, one, &g, diag);
	/* The batch and the samples of an epoch for so many workers: whole tasks, unless
	 * a clock is a part of one. */
	const double grow = (double)g.workers / (double)cost->machines;
	const uint32_t unit = grid.batch < grid.task ? 1 : grid.task;
	const double batch = fmax(round(grid.batch * grow / unit), 1) * unit;
	/* The caller decides the length of an epoch. */
	const double clocks =
		fmin((double)fal_grid_epoch_clocks(&grid), floor(UINT32_MAX / batch));
	if (err == FAL_OK && clocks < 1)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "'%s': the batch would not fit 32 bits", spec);
	if (err == FAL_OK) {
		grid.batch = (uint32_t)batch;
		grid.samples = (uint32_t)(batch * clocks);
		const uint64_t even = PACES / g.workers;
		const size_t most = even > LEAST ? (size_t)even : LEAST;
		all.machine = NULL;
		all.machines = all.cap = 0;
		for (size_t i = 0; i < g.n; i++)
			for (uint64_t k = 0; k < g.v[i].count; k++)
				spec_draw(&all, cost, &g.v[i], most, &r);
		cost_set_grid(&all, grid);
		fal_cost_free(cost);
		*cost = all;
	}
	free(text);
	free(g.v);
	return err;
}

void
fal_machines_task(struct fal_cost *cost, uint32_t task)
{
	struct fal_grid to = cost->grid;
	to.task = task;
	to.tail_task = (uint32_t)((uint64_t)fal_grid_tail_task(&cost->grid) * task /
				  cost->grid.task);
	to.tail_task = to.tail_task > 0 ? to.tail_task : 1;
	cost_set_grid(cost, to);
}

void
fal_machines_batch(struct fal_cost *cost, uint32_t batch)
{
	struct fal_grid to = cost->grid;
	to.batch = batch;
	cost_set_grid(cost, to);
}

/* --- predictions ------------------------------------------------------------------- */

int
fal_predict(const struct fal_cost *cost, const struct fal_policy *policy,
	    struct fal_simulation *out)
{
	enum { USUAL = 100, LEAST = 2, WARM = 20 };
	/* About five seconds of CPU time: a clock costs as much as its tasks, and a
	 * worker's part in it half as much as a task. */
	static const double most_tasks = 2e6, per_worker = 0.5;
	double k = fal_grid_tasks(&cost->grid, 0), work = 0, seconds = 0;
	for (size_t i = 0; i < cost->machines; i++) {
		work += cost->machine[i].tasks / fal_grid_size(&cost->grid, 0);
		seconds = fmax(seconds, cost->machine[i].seconds);
	}
	double clock = k + per_worker * (double)cost->machines;
	const double all = floor(most_tasks / clock);
	const double warm = fmax(fmin(ceil(all / 4), WARM), 1);
	double most = fmax(all - warm, LEAST);
	struct fal_simulation_conf conf = { .cost = cost,
					    .policy = policy,
					    .clocks = (uint64_t)fmin(fmax(work, USUAL),
								     most),
					    .warm = (uint64_t)warm,
					    .seconds = seconds,
					    .most = (uint64_t)most };
	int err = fal_simulate(&conf, out);
	/* A simulation may meet the quick paces of uneven machines more often than the
	 * slow ones. */
	if (err == FAL_OK)
		out->seconds = fmax(out->seconds, out->samples / fal_cost_speed(cost));
	return err;
}

/* --- advice ----------------------------------------------------------------------- */

/* Makes the policy `try` the advice if it can run and is clearly faster than the advice
 * so far; frees it otherwise. */
static void
advice_consider(const struct fal_cost *cost, struct fal_policy *try,
		struct fal_advice *best)
{
	static const double worth = 1.01; /* times faster, for a further change */
	struct fal_simulation played;
	const double s = fal_predict(cost, try, &played) < 0
				 ? INFINITY
				 : fal_simulation_epoch_s(&played, &cost->grid);
	if (!(s * worth < best->then_s)) {
		fal_policy_free(try);
		return;
	}
	fal_policy_free(&best->policy);
	best->policy = *try;
	best->then_s = s;
}

/* Tries shares by speed, for a scheme with equal shares. */
static void
advice_try_shares(const struct fal_cost *cost, struct fal_advice *best)
{
	enum { MOST = 256 }; /* a policy has a bounded length */
	double all = 0;
	const struct fal_traits traits = fal_rule_traits(&best->policy.rule);
	if (!traits.shared || traits.moves || cost->machines > MOST)
		return;
	for (size_t i = 0; i < cost->machines; i++)
		all += cost->machine[i].lanes / fal_cost_mean_task_s(&cost->machine[i]);
	struct fal_policy try = fal_policy_copy(&best->policy);
	for (size_t i = 0; i < cost->machines; i++) {
		const struct fal_cost_machine *m = &cost->machine[i];
		const double share =
			m->lanes / fal_cost_mean_task_s(m) / all * (double)cost->machines;
		/* Rounded, so that the advice is the same in each window of a trace. */
		fal_policy_entry(&try, m->name)->share = round(share * 20) / 20;
	}
	advice_consider(cost, &try, best);
}

/* Tries at most one lane a core. */
static void
advice_try_lanes(const struct fal_cost *cost, struct fal_advice *best)
{
	struct fal_policy try = fal_policy_copy(&best->policy);
	bool any = false;
	for (size_t i = 0; i < cost->machines; i++) {
		const struct fal_cost_machine *m = &cost->machine[i];
		if (m->lanes_max <= m->cores)
			continue;
		struct fal_policy_worker *e = fal_policy_entry(&try, m->name);
		any = true;
		e->lanes_max = m->cores;
		e->lanes_min = m->lanes_min < m->cores ? m->lanes_min : m->cores;
	}
	if (any)
		advice_consider(cost, &try, best);
	else
		fal_policy_free(&try);
}

static bool
policy_excludes(const struct fal_policy *p, const struct fal_cost_machine *m)
{
	const struct fal_policy_worker *e = fal_policy_find(p, m->name);
	return e != NULL && e->excluded;
}

/* Tries to admit each excluded machine; then to exclude the slowest ones, as long as that
 * helps. */
static void
advice_try_exclusions(const struct fal_cost *cost, struct fal_advice *best)
{
	for (size_t i = 0; i + 1 < 2 * cost->machines; i++) {
		const bool back = i < cost->machines;
		const struct fal_cost_machine *m = back ? &cost->machine[i] : NULL;
		const double before = best->then_s;
		/* The machine that needs longest for a task and its link, of those that
		 * are not excluded. */
		double most = 0;
		for (size_t k = 0; k < cost->machines && !back; k++) {
			const struct fal_cost_machine *o = &cost->machine[k];
			const double took = fal_cost_mean_task_s(o) + o->pull_s +
					    o->push_s + o->rtt_s;
			if (took > most && !policy_excludes(&best->policy, o)) {
				most = took;
				m = o;
			}
		}
		if (m == NULL || (back && !policy_excludes(&best->policy, m)))
			continue;
		struct fal_policy try = fal_policy_copy(&best->policy);
		struct fal_policy_worker *e = fal_policy_entry(&try, m->name);
		e->excluded = !back;
		e->admitted = back;
		advice_consider(cost, &try, best);
		if (!back && best->then_s >= before)
			return;
	}
}

int
fal_advise(const struct fal_cost *cost, const struct fal_policy *now,
	   const struct fal_rule *rules, size_t n_rules, bool model,
	   struct fal_advice *out)
{
	struct fal_simulation played;
	int err = fal_predict(cost, now, &played);
	if (err < 0)
		return err;
	*out = (struct fal_advice){ .now_s = fal_simulation_epoch_s(&played,
								    &cost->grid) };
	out->then_s = out->now_s;
	out->policy = fal_policy_copy(now);
	for (size_t i = 0; i < n_rules; i++) {
		const bool same = fal_rule_same_model(&rules[i], &now->rule);
		if (fal_rule_equal(&rules[i], &now->rule) || (!same && !model))
			continue;
		struct fal_policy try = fal_policy_copy(now);
		try.rule = rules[i];
		advice_consider(cost, &try, out);
	}
	advice_try_shares(cost, out);
	advice_try_lanes(cost, out);
	advice_try_exclusions(cost, out);
	out->model = !fal_rule_same_model(&out->policy.rule, &now->rule);
	return FAL_OK;
}
