/* Delays of the schemes, as updates between a gradient's version and its use. */
#include "job/stale.h"

#include "optim/stable.h"
#include "sched/traits.h"

#include <stdio.h>

enum { SUPPOSED = 4 }; /* workers, where they are not known */

bool
fal_stale_warning(const struct fal_rule *rule, const struct fal_optim *optim,
		  uint32_t workers, char out[static FAL_STALE_TEXT])
{
	const uint32_t n = workers > 0 ? workers : SUPPOSED;
	/* Where each worker's, or group's, gradients are updates of their own, those of
	 * the others come in between. */
	const struct fal_traits is = fal_rule_traits(rule);
	const uint32_t most = !is.groups         ? n
			      : rule->groups > 0 ? rule->groups
						 : rule->most;
	const uint32_t of = most < n ? most : n;
	const uint32_t together = rule->quorum > 0 ? rule->quorum : 1;
	const uint32_t delay = is.alone ? (of - 1) / together : is.delay;
	out[0] = '\0';
	const double momentum = fal_stable_momentum(optim);
	if (delay == 0 || momentum <= 0)
		return false;
	struct fal_buf name = { 0 };
	fal_rule_put(rule, &name);
	char what[80];
	if (is.alone)
		snprintf(what, sizeof(what), "%.*s of %u workers%s", (int)name.n,
			 (const char *)name.p, n,
			 workers > 0 ? "" : ", if so many come,");
	else
		snprintf(what, sizeof(what), "slack %u", delay);
	const double factor = fal_stable_factor(optim, delay);
	snprintf(out, FAL_STALE_TEXT,
		 "%s with %s %g: stable learning rates are up to %.*f times lower", what,
		 optim->kind == FAL_ADAMW ? "beta1" : "momentum", momentum,
		 factor < 9.95 ? 1 : 0, factor);
	fal_buf_free(&name);
	return true;
}
