/* What-if: a policy, or other machines, on a fitted cost model. */
#ifndef FAL_PROJ_WHAT_IF_H
#define FAL_PROJ_WHAT_IF_H

#include "base/err.h"
#include "proj/simulate.h"

enum { FAL_MACHINES_MAX = 1000000 }; /* that are drawn */

/* Reads NAME=VALUE[,NAME=VALUE...] into a further machine of `cost`: name (must be new),
 * like (a machine that is there; else a median one), speed (times that of `like`, 1),
 * lanes (at most), cores.  FAL_EINVAL with `diag`: what is wrong, and the value.
 */
int fal_machines_add(struct fal_cost *cost, const char *spec, struct fal_diag *diag);

/* Makes the model the machines that N[,NAME=VALUE...][;...] says: N of them, each drawn,
 * by `seed`, from those that are there, or `like` one of them, with another part of its
 * slowness first; speed as above or, as LOW:HIGH, drawn evenly; lanes and cores as above.
 * The batch grows in proportion, so that a worker has as many tasks as before.
 * FAL_EINVAL with `diag`. */
int fal_machines_draw(struct fal_cost *cost, const char *spec, uint64_t seed,
		      struct fal_diag *diag);

/* Cuts the batch into tasks of `task` samples, whose time is in proportion but for what
 * is fixed. */
void fal_machines_task(struct fal_cost *cost, uint32_t task);
/* The same machines with another batch. */
void fal_machines_batch(struct fal_cost *cost, uint32_t batch);

/* Plays `policy` long enough to meet the slowness of the whole model, within a budget of
 * tasks; never faster than fal_cost_speed.  Seconds per epoch: fal_play_epoch_s.  Errors
 * as fal_play's. */
int fal_predict(const struct fal_cost *cost, const struct fal_policy *policy,
		struct fal_play *out);

/* What could be changed, and what it would bring. */
struct fal_advice {
	struct fal_policy policy; /* fal_policy_free */
	double now_s, then_s;     /* seconds per epoch */
	bool model;               /* it alters the model under the law */
};

/* The best of: another scheme with the same model (any of `rules`, if `model`); shares by
 * speed; no more lanes than cores; without the workers that hold all up.  A policy that
 * changes less wins unless another one is 1 % faster.  advice->policy is `now` where
 * nothing is better.  FAL_ESTATE: `now` cannot go on. */
int fal_advise(const struct fal_cost *cost, const struct fal_policy *now,
	       const struct fal_rule *rules, size_t n_rules, bool model,
	       struct fal_advice *out);

#endif
