/* What-if. */
#include "proj/predict.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "sched/sched.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
fal_predict(const struct fal_cost *cost, const struct fal_policy *policy,
	    struct fal_play *out)
{
	enum { USUAL = 100, LEAST = 40, WARM = 20 };
	/* About ten seconds: a clock costs as much as its tasks, and a worker's part in
	 * it half as much as a task. */
	static const double most_tasks = 9e6, per_worker = 0.5;
	double k = fal_grid_tasks(&cost->grid, 0), work = 0, seconds = 0;
	for (size_t i = 0; i < cost->machines; i++) {
		work += cost->machine[i].tasks;
		seconds = fmax(seconds, cost->machine[i].seconds);
	}
	double clock = k + per_worker * (double)cost->machines;
	double most = fmax(floor(most_tasks / clock), LEAST);
	struct fal_play_conf conf = { .cost = cost,
				      .policy = policy,
				      .clocks =
					      (uint64_t)fmin(fmax(work / k, USUAL), most),
				      .warm = WARM,
				      .seconds = seconds,
				      .most = (uint64_t)most };
	return fal_play(&conf, out);
}

/* --- machines --------------------------------------------------------------------- */

struct mean {
	double task_s;
	size_t machine;
};

static int
by_mean(const void *a, const void *b)
{
	const struct mean *x = a, *y = b;
	return x->task_s < y->task_s ? -1 : x->task_s > y->task_s;
}

/* The machine in the middle by speed; NULL: out of memory. */
static const struct fal_cost_machine *
middle(const struct fal_cost *cost)
{
	struct mean *m = fal_calloc(cost->machines, sizeof(*m));
	if (m == NULL)
		return NULL;
	for (size_t i = 0; i < cost->machines; i++)
		m[i] = (struct mean){ fal_cost_mean(&cost->machine[i]), i };
	qsort(m, cost->machines, sizeof(*m), by_mean);
	size_t at = m[cost->machines / 2].machine;
	free(m);
	return &cost->machine[at];
}

struct with {
	const char *name;
	const struct fal_cost_machine *like;
	double speed;
	uint64_t lanes, cores;
};

static int
with_item(const struct fal_cost *cost, char *item, struct with *w, struct fal_diag *diag)
{
	char *value = strchr(item, '=');
	if (value == NULL)
		return fal_diag_set(diag, FAL_EINVAL, "'%s' is not NAME=VALUE", item);
	*value++ = '\0';
	int err = FAL_OK;
	if (strcmp(item, "name") == 0) {
		w->name = value;
		if (*value == '\0' || fal_cost_find(cost, value) != NULL)
			err = FAL_EINVAL;
	} else if (strcmp(item, "like") == 0) {
		w->like = fal_cost_find(cost, value);
		err = w->like == NULL ? FAL_EINVAL : FAL_OK;
	} else if (strcmp(item, "speed") == 0) {
		err = fal_parse_double(value, 1e-6, 1e6, &w->speed);
	} else if (strcmp(item, "lanes") == 0) {
		err = fal_parse_u64(value, 1, FAL_LANES_MAX, &w->lanes);
	} else if (strcmp(item, "cores") == 0) {
		err = fal_parse_u64(value, 1, FAL_LANES_MAX, &w->cores);
	} else {
		return fal_diag_set(diag, FAL_EINVAL,
				    "'%s' is not one of name, like, speed, lanes, cores",
				    item);
	}
	if (err < 0)
		return fal_diag_set(diag, FAL_EINVAL, "%s: '%s': %s", item, value,
				    item[0] == 'n'   ? "not a new name"
				    : item[1] == 'i' ? "no such worker"
						     : "not a number that it may be");
	return FAL_OK;
}

/* The machine becomes what the spec says. */
static void
apply(const struct with *w, struct fal_cost_machine *m)
{
	double before = fal_cost_crowding(m, m->lanes);
	m->cores = w->cores > 0 ? (uint32_t)w->cores : m->cores;
	double by = fal_cost_crowding(m, m->lanes) / before / w->speed;
	for (size_t i = 0; i < m->paces; i++)
		m->pace[i].task_s *= by;
	m->lanes_max = w->lanes > 0 ? (uint32_t)w->lanes : m->lanes_max;
	m->lanes_min = m->lanes_min < m->lanes_max ? m->lanes_min : m->lanes_max;
	fal_cost_sum(m);
}

int
fal_predict_with(struct fal_cost *cost, const char *spec, struct fal_diag *diag)
{
	char *text = fal_strdup(spec), *rest = text, *item;
	struct with w = { .speed = 1 };
	int err = text != NULL ? FAL_OK : FAL_ENOMEM;
	while (err == FAL_OK && (item = strsep(&rest, ",")) != NULL)
		err = with_item(cost, item, &w, diag);
	if (err == FAL_OK && w.name == NULL)
		err = fal_diag_set(diag, FAL_EINVAL, "'%s' has no name=", spec);
	if (err == FAL_OK && w.like == NULL && (w.like = middle(cost)) == NULL)
		err = FAL_ENOMEM;
	if (err == FAL_OK)
		err = fal_cost_add(cost, w.like, w.name);
	if (err == FAL_OK)
		apply(&w, &cost->machine[cost->machines - 1]);
	free(text);
	return err;
}

/* A copy of `m` that begins elsewhere in its paces, of which it gets at most `most`. */
static int
draw(struct fal_cost *to, const struct fal_cost_machine *m, size_t most, size_t number,
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
	fal_cost_sum(&part);
	snprintf(name, sizeof(name), "w%zu", number);
	int err = fal_cost_add(to, &part, name);
	free(part.pace);
	return err;
}

int
fal_predict_scale(struct fal_cost *cost, size_t workers, uint64_t seed)
{
	enum { PACES = 1 << 20 }; /* of all machines */
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_PROJ, 0);
	struct fal_cost all = *cost;
	double grow = (double)workers / (double)cost->machines;
	double tasks = round(fal_grid_tasks(&cost->grid, 0) * grow);
	double batch = fmax(tasks, 1) * cost->grid.task;
	/* Enough for clocks that are whole; how long an epoch is, is the caller's. */
	double clocks = fmin((double)fal_grid_epoch_clocks(&cost->grid),
			     floor(UINT32_MAX / batch));
	double samples = batch * clocks;
	size_t most = PACES / workers > 64 ? PACES / workers : 64;
	int err = FAL_OK;
	if (clocks < 1)
		return FAL_ELIMIT;
	all.machine = NULL;
	all.machines = 0;
	all.grid.batch = (uint32_t)batch;
	all.grid.samples = (uint32_t)samples;
	for (size_t i = 0; i < workers && err == FAL_OK; i++) {
		uint32_t from = fal_rng_below(&r, (uint32_t)cost->machines);
		err = draw(&all, &cost->machine[from], most, i + 1, &r);
	}
	fal_cost_free(err == FAL_OK ? cost : &all);
	if (err == FAL_OK)
		*cost = all;
	return err;
}

void
fal_predict_task(struct fal_cost *cost, uint32_t task)
{
	double ratio = (double)task / cost->grid.task;
	for (size_t i = 0; i < cost->machines; i++) {
		struct fal_cost_machine *m = &cost->machine[i];
		for (size_t k = 0; k < m->paces; k++) {
			m->pace[k].task_s *= ratio;
			m->pace[k].tasks /= ratio;
		}
		fal_cost_sum(m);
	}
	cost->grid.task = task;
}

/* --- advice ----------------------------------------------------------------------- */

/* Takes the policy in `try` as the advice if it is faster by `gain` than what stands
 * there; frees it otherwise. */
static int
consider(const struct fal_cost *cost, struct fal_policy *try, double gain,
	 struct fal_advice *best)
{
	struct fal_play played;
	int err = fal_predict(cost, try, &played);
	if (err < 0) {
		fal_policy_free(try);
		return err == FAL_ESTATE ? FAL_OK : err; /* it cannot even begin */
	}
	double s = fal_play_epoch_s(&played, &cost->grid);
	if (s * gain >= best->then_s) {
		fal_policy_free(try);
		return FAL_OK;
	}
	fal_policy_free(&best->policy);
	best->policy = *try;
	best->then_s = s;
	return FAL_OK;
}

static const double worth = 1.01; /* times faster, for one change more */

static int
try_rules(const struct fal_cost *cost, const struct fal_policy *now,
	  const struct fal_rule *rules, size_t n, bool model, struct fal_advice *best)
{
	struct fal_policy try;
	int err = FAL_OK;
	for (size_t i = 0; i < n && err == FAL_OK; i++) {
		bool same = fal_rule_same_model(&rules[i], &now->rule);
		if (fal_rule_eq(&rules[i], &now->rule) || (!same && !model))
			continue;
		err = fal_policy_copy(now, &try);
		if (err < 0)
			break;
		try.rule = rules[i];
		err = consider(cost, &try, worth, best);
	}
	return err;
}

/* Shares by speed, for a scheme that gives equal ones. */
static int
try_shares(const struct fal_cost *cost, struct fal_advice *best)
{
	enum { MOST = 256 }; /* a policy has a bounded length */
	struct fal_policy try;
	double all = 0;
	if (best->policy.rule.scheme != FAL_BSP || cost->machines > MOST)
		return FAL_OK;
	for (size_t i = 0; i < cost->machines; i++)
		all += cost->machine[i].lanes / fal_cost_mean(&cost->machine[i]);
	int err = fal_policy_copy(&best->policy, &try);
	for (size_t i = 0; i < cost->machines && err == FAL_OK; i++) {
		const struct fal_cost_machine *m = &cost->machine[i];
		struct fal_policy_worker *e;
		err = fal_policy_entry(&try, m->name, &e);
		double share = m->lanes / fal_cost_mean(m) / all * (double)cost->machines;
		if (err == FAL_OK)
			e->share = round(share * 100) / 100;
	}
	return err == FAL_OK ? consider(cost, &try, worth, best) : err;
}

/* No more lanes than cores. */
static int
try_lanes(const struct fal_cost *cost, struct fal_advice *best)
{
	struct fal_policy try;
	bool any = false;
	int err = fal_policy_copy(&best->policy, &try);
	for (size_t i = 0; i < cost->machines && err == FAL_OK; i++) {
		const struct fal_cost_machine *m = &cost->machine[i];
		struct fal_policy_worker *e;
		if (m->lanes_max <= m->cores)
			continue;
		err = fal_policy_entry(&try, m->name, &e);
		if (err < 0)
			break;
		any = true;
		e->lanes_max = m->cores;
		e->lanes_min = m->lanes_min < m->cores ? m->lanes_min : m->cores;
	}
	if (err == FAL_OK && any)
		return consider(cost, &try, worth, best);
	fal_policy_free(&try);
	return err;
}

/* Without the slowest, as long as that helps. */
static int
try_exclusions(const struct fal_cost *cost, struct fal_advice *best)
{
	struct fal_policy try;
	for (size_t out = 0; out + 1 < cost->machines; out++) {
		const struct fal_cost_machine *worst = NULL;
		for (size_t i = 0; i < cost->machines; i++) {
			const struct fal_cost_machine *m = &cost->machine[i];
			const struct fal_policy_worker *e =
				fal_policy_find(&best->policy, m->name);
			if ((e == NULL || !e->excluded) &&
			    (worst == NULL || fal_cost_mean(m) > fal_cost_mean(worst)))
				worst = m;
		}
		struct fal_policy_worker *e;
		double before = best->then_s;
		if (worst == NULL)
			return FAL_OK;
		int err = fal_policy_copy(&best->policy, &try);
		if (err == FAL_OK)
			err = fal_policy_entry(&try, worst->name, &e);
		if (err < 0)
			return err;
		e->excluded = true;
		err = consider(cost, &try, worth, best);
		if (err < 0 || best->then_s >= before)
			return err;
	}
	return FAL_OK;
}

int
fal_advise(const struct fal_cost *cost, const struct fal_policy *now,
	   const struct fal_rule *rules, size_t n_rules, bool model,
	   struct fal_advice *out)
{
	struct fal_play played;
	int err = fal_predict(cost, now, &played);
	if (err < 0)
		return err;
	*out = (struct fal_advice){ .now_s = fal_play_epoch_s(&played, &cost->grid) };
	out->then_s = out->now_s;
	err = fal_policy_copy(now, &out->policy);
	if (err == FAL_OK)
		err = try_rules(cost, now, rules, n_rules, model, out);
	if (err == FAL_OK)
		err = try_shares(cost, out);
	if (err == FAL_OK)
		err = try_lanes(cost, out);
	if (err == FAL_OK)
		err = try_exclusions(cost, out);
	if (err < 0)
		fal_policy_free(&out->policy);
	out->model = !fal_rule_same_model(&out->policy.rule, &now->rule);
	return err;
}
