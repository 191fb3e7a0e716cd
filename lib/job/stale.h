/* Where late gradients meet momentum: what a rule costs in learning rate. */
#ifndef FAL_JOB_STALE_H
#define FAL_JOB_STALE_H

#include "optim/optim.h"
#include "sched/rule.h"

#include <stdbool.h>

enum { FAL_STALE_TEXT = 192 };

/* Says how many times lower stable learning rates may be under the rule, with `workers`
 * workers (0: not known), than with gradients that are never late: "slack 2 with momentum
 * 0.9: stable learning rates are up to 17 times lower".  Where it takes workers and they
 * are not known, it supposes some, and says so.  false, and "": the rule makes no
 * gradient late, or the optimiser has no momentum. */
bool fal_stale_warning(const struct fal_rule *rule, const struct fal_optim *optim,
		       uint32_t workers, char out[static FAL_STALE_TEXT]);

#endif
