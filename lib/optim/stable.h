/* How large a learning rate may be where gradients come late.
 *
 * The step of lib/optim on a quadratic, with gradients that are `delay` updates old, is a
 * linear recurrence; the rate is stable as long as all roots of its characteristic
 * polynomial lie within the unit circle.
 *
 * What adagrad and adamw divide by changes slowly beside that, and is taken as a part of
 * the curvature: the one then is sgd, the other momentum at the rate lr·(1 - beta1).
 */
#ifndef FAL_OPTIM_STABLE_H
#define FAL_OPTIM_STABLE_H

#include "optim/optim.h"

#include <stdint.h>

enum { FAL_DELAY_MAX = 1024 };

/* The largest stable learning rate, times the largest curvature, of gradients that are
 * `delay` updates old (more than FAL_DELAY_MAX count as so many). */
double fal_stable_rate(const struct fal_optim *o, uint32_t delay);

/* The part of the last step that the next one takes over. */
double fal_stable_momentum(const struct fal_optim *o);

/* How many times lower that is than without delay. */
double fal_stable_factor(const struct fal_optim *o, uint32_t delay);

#endif
