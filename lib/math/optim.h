/* Optimisers: one elementwise step on flat arrays; learning-rate schedules.
 *
 * Owns the arithmetic of an update: sums, products, quotients and square roots of float32
 * in a stated order, so that every machine, vector width and split of the arrays gives
 * the same bits.  Knows no blocks and no versions; the learning rate is an argument
 * (fal_schedule_lr).
 */
#ifndef FAL_MATH_OPTIM_H
#define FAL_MATH_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* With g the mean gradient, d = g + pull·w, share = 1 and rest = 0:
 *
 *	sgd       w = keep·w - rate·d
 *	momentum  e = share·d;  m = momentum·m + e;  w = keep·w - lr·m
 *	nesterov  e = share·d;  m = momentum·m + e;  w = keep·w - lr·(e + momentum·m)
 *	adagrad   q = d·d;  v = v + share·q
 *	          w = keep·w - (rate·d) / (√(v + rest·q) + eps)
 *	adamw     m = beta1·m + (1-beta1)·d;  v = beta2·v + ((1-beta2)·d)·d
 *	          w = keep·w - (rate·m) / (root·√v + eps)
 *
 * Coupled decay changes the gradient (pull = weight_decay, keep = 1); decoupled decay
 * changes the weights (pull = 0, keep = 1 - lr·weight_decay).  rate is lr; for adamw at
 * step t, from 1 on, rate is lr / (1 - beta1^t) and root is 1 / √(1 - beta2^t).
 *
 * The step of a push, which covers the part s of a clock, has share = s and
 * rest = 1 - pos, the part of the clock that is still missing.  Then rate, and the decay
 * in keep, are s times as large; beta becomes b = 1 - s·(1-beta), and a power of beta
 * becomes the product of b over all steps.  The steps of W equal pushes give one step of
 * the whole clock: exactly for sgd without decay at one gradient, else approximately. */
enum fal_optim_kind { FAL_SGD = 0, FAL_MOMENTUM, FAL_NESTEROV, FAL_ADAGRAD, FAL_ADAMW };
enum { FAL_OPTIMS = FAL_ADAMW + 1 };

/* Elements first … first+count-1 of the flat vector that are frozen, are running
 * statistics instead of weights, or have a learning rate and a weight decay of their own.
 * A running statistic gets a batch's value x in place of the mean gradient, and
 *
 *	ema       w = hold·w + take·x
 *
 * with take = s·buffer_momentum and hold = 1 - take, for every kind, rate and clipping.
 * The rule of the kind steps scaled elements, with lr_scale·lr for lr and
 * decay_scale·weight_decay for weight_decay, and all elements outside of ranges. */
enum fal_range_rule { FAL_RANGE_FROZEN = 0, FAL_RANGE_EMA, FAL_RANGE_SCALED };
struct fal_range {
	uint64_t first, count;
	enum fal_range_rule rule;
	float lr_scale, decay_scale; /* of FAL_RANGE_SCALED */
};

/* {0} is plain SGD.  A kind reads only the members in its rule. */
struct fal_optim {
	enum fal_optim_kind kind;
	float momentum;
	float weight_decay;
	bool decoupled;
	double beta1, beta2;    /* 0 … below 1 */
	float eps;              /* above 0 */
	double ema;             /* of the weights' average, 0 … below 1; 0: no average */
	double clip;            /* largest norm of a mean gradient; 0: no limit */
	double buffer_momentum; /* 0 … 1 */
	/* All pushers share one m of momentum or nesterov; else each pusher has its own.
	 */
	bool one_momentum;
	/* Borrowed: ascending, without overlap. */
	const struct fal_range *range;
	uint32_t ranges;
};

/* Returns the kind's name in falcon-job(5). */
const char *fal_optim_name(enum fal_optim_kind kind);

enum { FAL_OPTIM_SLOTS = 2 };
/* Returns the floats of state of a weight, at most FAL_OPTIM_SLOTS, all zero before the
 * first step. */
uint32_t fal_optim_slots(const struct fal_optim *o);

/* Does each pusher have a momentum of its own? */
bool fal_optim_by_pusher(const struct fal_optim *o);

/* The part of a clock that a step covers.  {0}: the whole clock. */
struct fal_optim_part {
	double share; /* s; 0: 1 */
	double in;    /* pos: the part of the clock pushed so far, this push included */
};

/* The past steps of a state: the number of whole steps, and adamw's products of b over
 * the other steps, 1 without any. */
struct fal_optim_history {
	uint64_t steps;
	double beta1, beta2;
};

/* The factors common to all elements of an update, from the functions below. */
struct fal_optim_step {
	enum fal_optim_kind kind;
	float lr, keep, pull, share, rest;
	float momentum, beta1, rest1, beta2, rest2, root, eps;
	float hold, take; /* 1 and 0 without buffers */
	double decay;     /* keep = 1 - decay */
	/* The largest lr_scale and decay_scale of a range, at least 1. */
	float lr_scale_max, decay_scale_max;
};

/* Returns the step at rate `lr` of weights whose state has had `before` steps.  Powers
 * are products in double, which are equal on every machine. */
struct fal_optim_step fal_optim_step(const struct fal_optim *o, float lr,
				     uint64_t before);
/* Returns the step of a part of a clock, for a state with the past steps `had`. */
struct fal_optim_step fal_optim_part_step(const struct fal_optim *o, float lr,
					  const struct fal_optim_history *had,
					  const struct fal_optim_part *part);
/* Adds that step to `had`. */
void fal_optim_add_step(const struct fal_optim *o, const struct fal_optim_part *part,
			struct fal_optim_history *had);

/* Makes one step: changes w[n] and its state in place by mean_grad[n] (borrowed, without
 * overlap).  Slot k of the state of w[i] is state[k·stride + i]; state may be NULL
 * without slots.  Each product, sum, quotient and root of the rules above is rounded to
 * float32. m and v below FLT_MIN become 0 (adagrad and adamw: else a weight without
 * further gradients would keep a denormal state and slow every step).  The rules are
 * PyTorch's: SGD with dampening 0, Adagrad, AdamW. */
void fal_optim_apply(const struct fal_optim_step *s, float *w, float *state,
		     size_t stride, const float *mean_grad, size_t n);

/* A piece of the flat vector from element `first` on; `state` as for fal_optim_apply. */
struct fal_optim_piece {
	uint64_t first;
	size_t n;
	float *w, *state;
	float *mean_grad; /* the functions change the gradient */
};
/* Makes a step with mean_grad · scale as fal_optim_apply with stride n, and with the
 * rules of the ranges. */
void fal_optim_apply_piece(const struct fal_optim *o, const struct fal_optim_step *s,
			   float scale, const struct fal_optim_piece *p);

/* Sets the mean gradient to 0 within frozen ranges and statistics, and returns the sum of
 * its squares in double: element i is added to sum i mod 8, then the eight sums in order.
 * The norm of a gradient is the root of the blocks' sums, added in order. */
double fal_optim_squares(const struct fal_optim *o, const struct fal_optim_piece *p);
/* Returns the factor that clips a mean gradient with these summed squares:
 * min(1, clip / (norm + 1e-6)), as torch.nn.utils.clip_grad_norm_ does. */
float fal_optim_scale(const struct fal_optim *o, double squares);

/* average[n] += s·(1 - ema)·(w[n] - average[n]), each operation rounded to float32. */
void fal_optim_average(const struct fal_optim *o, const struct fal_optim_part *part,
		       float *average, const float *w, size_t n);

/* Returns the exponent e such that mean gradients of 2^e and more overflow float32 in the
 * step or the state, at once or within a few steps. */
int fal_optim_overflow_exponent(const struct fal_optim *o);

/* Bounds of the magnitudes of an array's weights and state. */
struct fal_optim_bounds {
	double params, state;
};
/* Returns the bounds after a step with mean gradients of magnitude `mean` at most, with
 * room for rounding. */
struct fal_optim_bounds fal_optim_step_bounds(const struct fal_optim_step *s,
					      const struct fal_optim_bounds *was,
					      double mean);

/* Learning-rate schedules.
 *
 * Only the coordinator computes a rate and sends the rate as a float with the update, as
 * libm's functions differ between machines.
 */

enum fal_schedule_kind {
	FAL_CONSTANT = 0,
	FAL_STEP,   /* lr·gamma^⌊t / every⌋ */
	FAL_COSINE, /* min_lr + (lr - min_lr)·(1 + cos(π·t / T)) / 2; min_lr from t = T on
		     */
	FAL_TABLE   /* lr·factor[t]; the last factor from t = factors on */
};

/* t counts the updates after the warm-up, T = total - warmup. */
struct fal_schedule {
	enum fal_schedule_kind kind;
	double lr;
	uint64_t warmup; /* updates; 0: none */
	uint64_t every;  /* step: updates, > 0 */
	double gamma;    /* step */
	uint64_t total;  /* cosine: updates with the warm-up, >= warmup */
	double min_lr;   /* cosine */
	/* table: borrowed; 0: not loaded, and no rate is asked for */
	const float *factor;
	uint64_t factors;
};

/* Returns the rate of update u, from 0.  The warm-up is linear from lr/warmup to lr:
 * lr·(u + 1) / warmup for u < warmup (Goyal et al., "Accurate, large minibatch SGD",
 * 2017); the kind's rule follows (cosine: Loshchilov and Hutter, "SGDR", ICLR 2017,
 * without restarts). */
double fal_schedule_lr(const struct fal_schedule *s, uint64_t update);

/* Largest stable learning rates with delayed gradients.
 *
 * A step on a quadratic with gradients that are `delay` updates old is a linear
 * recurrence; a rate is stable if all roots of the characteristic polynomial lie within
 * the unit circle.
 *
 * The divisors of adagrad and adamw change slowly in comparison and count as a part of
 * the curvature: adagrad is treated as sgd, adamw as momentum at the rate lr·(1 - beta1).
 *
 * A clock has `pushes` equal pushes, 1 or more, each a step of an equal share of the
 * clock.  Pushers with momenta of their own push in turn.
 */

enum { FAL_DELAY_MAX = 1024 };

/* Returns the largest stable learning rate, times the largest curvature, for gradients
 * that are `delay` updates old.  `delay` and `pushes` count as FAL_DELAY_MAX at most.
 * With a fraction of 1/4 a quarter of each gradient is one update older than the rest. */
double fal_stable_rate(const struct fal_optim *o, double pushes, double delay);

/* Returns the part of the last step that the next step repeats. */
double fal_stable_momentum(const struct fal_optim *o);

/* Returns the stable rate with one push and no delay, divided by the stable rate with
 * these pushes and this delay. */
double fal_stable_factor(const struct fal_optim *o, double pushes, double delay);

#endif
