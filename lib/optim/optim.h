/* Optimisers: one step on flat arrays, elementwise.
 *
 * Owns: the arithmetic of an update.  Elementwise and in float32 with a stated order of
 * operations, so every machine, vector width and split of the arrays gives the same
 * bits.  Knows no blocks, no versions; the learning rate is an argument (schedule.h).
 */
#ifndef FAL_OPTIM_OPTIM_H
#define FAL_OPTIM_OPTIM_H

#include <stddef.h>
#include <stdint.h>

enum fal_optim_kind {
	FAL_SGD = 0,  /* w -= lr·d,                    d = g + weight_decay·w */
	FAL_MOMENTUM, /* m = momentum·m + d; w -= lr·m */
	FAL_NESTEROV  /* m = momentum·m + d; w -= lr·(d + momentum·m) */
};

/* {0} is plain SGD.  `momentum` is not read by FAL_SGD. */
struct fal_optim {
	enum fal_optim_kind kind;
	float momentum;
	float weight_decay;
};

/* How many floats of state a weight has: the state of n weights is one array of
 * fal_optim_slots·n floats, slot after slot, all zero before the first step. */
uint32_t fal_optim_slots(const struct fal_optim *o);

/* One step: w[n] and state[slots·n] change in place by mean_grad[n] (borrowed; the three
 * do not overlap; state may be NULL when slots is 0).  The rules are torch.optim.SGD's
 * with dampening 0: its first step, m = d, is ours with m = 0.  Each product and each
 * sum above is rounded to float32. */
void fal_optim_apply(const struct fal_optim *o, float lr, float *w, float *state,
		     const float *mean_grad, size_t n);

/* The naive twin of fal_optim_apply: one weight at a time. */
void fal_optim_apply_naive(const struct fal_optim *o, float lr, float *w, float *state,
			   const float *mean_grad, size_t n);

#endif
