/* What-if. */
#include "proj/predict.h"

#include "base/mem.h"
#include "sched/sched.h"
#include "sched/traits.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
fal_predict(const struct fal_cost *cost, const struct fal_policy *policy,
	    struct fal_play *out)
{
	enum { USUAL = 100, LEAST = 2, WARM = 20 };
	/* About five seconds: a clock costs as much as its tasks, and a worker's part in
	 * it half as much as a task. */
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
	struct fal_play_conf conf = { .cost = cost,
				      .policy = policy,
				      .clocks = (uint64_t)fmin(fmax(work, USUAL), most),
				      .warm = (uint64_t)warm,
				      .seconds = seconds,
				      .most = (uint64_t)most };
	int err = fal_play(&conf, out);
	/* A play that meets the quick paces of uneven machines more often than the slow
	 * ones. */
	if (err == FAL_OK)
		out->seconds = fmax(out->seconds, out->samples / fal_cost_speed(cost));
	return err;
}

/* --- advice ----------------------------------------------------------------------- */

/* Takes the policy in `try` as the advice if it is clearly faster than what stands
 * there; frees it otherwise. */
static int
consider(const struct fal_cost *cost, struct fal_policy *try, struct fal_advice *best)
{
	static const double worth = 1.01; /* times faster, for one change more */
	struct fal_play played;
	int err = fal_predict(cost, try, &played);
	if (err < 0) {
		fal_policy_free(try);
		return err == FAL_ESTATE ? FAL_OK : err; /* it cannot even begin */
	}
	double s = fal_play_epoch_s(&played, &cost->grid);
	if (s * worth >= best->then_s) {
		fal_policy_free(try);
		return FAL_OK;
	}
	fal_policy_free(&best->policy);
	best->policy = *try;
	best->then_s = s;
	return FAL_OK;
}

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
		err = consider(cost, &try, best);
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
	const struct fal_traits is = fal_rule_traits(&best->policy.rule);
	if (!is.shared || is.moves || cost->machines > MOST)
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
			e->share = round(share * 20) / 20; /* so that windows agree */
	}
	return err == FAL_OK ? consider(cost, &try, best) : err;
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
		return consider(cost, &try, best);
	fal_policy_free(&try);
	return err;
}

static bool
policy_excludes(const struct fal_policy *p, const struct fal_cost_machine *m)
{
	const struct fal_policy_worker *e = fal_policy_find(p, m->name);
	return e != NULL && e->excluded;
}

/* Of those that are not excluded, the one that needs longest for a task and its link. */
static const struct fal_cost_machine *
slowest(const struct fal_cost *cost, const struct fal_policy *p)
{
	const struct fal_cost_machine *at = NULL;
	double most = 0;
	for (size_t i = 0; i < cost->machines; i++) {
		const struct fal_cost_machine *m = &cost->machine[i];
		const double s = fal_cost_mean(m) + m->pull_s + m->push_s + m->rtt_s;
		if (s > most && !policy_excludes(p, m)) {
			most = s;
			at = m;
		}
	}
	return at;
}

/* Each that is excluded comes back, if that helps; then the slowest go, as long as that
 * does. */
static int
try_exclusions(const struct fal_cost *cost, struct fal_advice *best)
{
	for (size_t i = 0; i + 1 < 2 * cost->machines; i++) {
		const bool back = i < cost->machines;
		const struct fal_cost_machine *m =
			back ? &cost->machine[i] : slowest(cost, &best->policy);
		struct fal_policy try;
		struct fal_policy_worker *e;
		const double before = best->then_s;
		if (m == NULL || (back && !policy_excludes(&best->policy, m)))
			continue;
		int err = fal_policy_copy(&best->policy, &try);
		if (err == FAL_OK)
			err = fal_policy_entry(&try, m->name, &e);
		if (err < 0)
			return err;
		e->excluded = !back;
		e->admitted = back;
		err = consider(cost, &try, best);
		if (err < 0 || (!back && best->then_s >= before))
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
