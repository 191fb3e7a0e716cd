/* What-if: a policy, or other machines, on a fitted cost model. */
#ifndef FAL_PROJ_PREDICT_H
#define FAL_PROJ_PREDICT_H

#include "base/err.h"
#include "proj/play.h"

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
 * nothing is better. */
int fal_advise(const struct fal_cost *cost, const struct fal_policy *now,
	       const struct fal_rule *rules, size_t n_rules, bool model,
	       struct fal_advice *out);

#endif
