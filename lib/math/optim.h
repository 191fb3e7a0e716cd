/* Optimisers: one step on flat arrays, elementwise.
 *
 * Owns: the arithmetic of an update.  Elementwise and in float32 with a stated order of
 * operations, of sums, products, quotients and square roots alone, so every machine,
 * vector width and split of the arrays gives the same bits.  Knows no blocks, no
 * versions; the learning rate is an argument (fal_schedule_lr).
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
 * Decay pulls at the gradient (pull = weight_decay, keep = 1), or, decoupled, at the
 * weights (pull = 0, keep = 1 - lr·weight_decay).  rate is lr; adamw's, at step t, from 1
 * on, is lr / (1 - beta1^t), and root is 1 / √(1 - beta2^t).
 *
 * The step of a push, which is a part of a clock, has share = s, that part, and
 * rest = 1 - pos, the part of the clock that is still to come.  Then rate, and the decay
 * in keep, are s times as large.  beta becomes b = 1 - s·(1-beta), and a power of beta
 * the product of the b of all steps.  The steps of W equal pushes amount to one step of
 * the whole clock: exactly for sgd without decay at one gradient, else nearly. */
enum fal_optim_kind { FAL_SGD = 0, FAL_MOMENTUM, FAL_NESTEROV, FAL_ADAGRAD, FAL_ADAMW };
enum { FAL_OPTIMS = FAL_ADAMW + 1 };

/* Elements first … first+count-1 of the flat vector, which stay as they are, or are no
 * weights but running statistics: what comes in the place of their mean gradient is a
 * batch's value x, and
 *
 *	ema       w = hold·w + take·x
 *
 * with take = s·buffer_momentum and hold = 1 - take, whatever the kind, its rate and its
 * clipping.  All others are stepped by the rule of the kind. */
enum fal_range_rule { FAL_RANGE_FROZEN = 0, FAL_RANGE_EMA };
struct fal_range {
	uint64_t first, count;
	enum fal_range_rule rule;
};

/* {0} is plain SGD.  Fields that the kind's rule does not have are not read. */
struct fal_optim {
	enum fal_optim_kind kind;
	float momentum;
	float weight_decay;
	bool decoupled;
	double beta1, beta2; /* 0 … below 1 */
	float eps;           /* above 0 */
	double ema;          /* of the weights' average, 0 … below 1; 0: there is none */
	double clip;         /* the largest norm of a mean gradient; 0: any */
	double buffer_momentum; /* 0 … 1 */
	/* All pushers share one m of momentum or nesterov; else each has its own. */
	bool one_momentum;
	/* Borrowed: ascending, apart from one another. */
	const struct fal_range *range;
	uint32_t ranges;
};

/* "sgd" …, as falcon-job(5) writes them. */
const char *fal_optim_name(enum fal_optim_kind kind);

/* How many floats of state a weight has, all zero before the first step; no more than: */
enum { FAL_OPTIM_SLOTS = 2 };
uint32_t fal_optim_slots(const struct fal_optim *o);

/* Has a pusher a momentum of its own? */
bool fal_optim_by_pusher(const struct fal_optim *o);

/* The part of a clock that a step covers.  {0}: the whole clock. */
struct fal_optim_part {
	double share; /* s; 0: 1 */
	double in;    /* pos: the part of the clock that is in with this push; if share */
};

/* The steps that a state has had: the number of whole ones, and adamw's products of b
 * over the others, 1 if there were none. */
struct fal_optim_had {
	uint64_t steps;
	double beta1, beta2;
};

/* The factors that all elements of an update share; only the functions below make one. */
struct fal_optim_step {
	enum fal_optim_kind kind;
	float lr, keep, pull, share, rest;
	float momentum, beta1, rest1, beta2, rest2, root, eps;
	float hold, take; /* 1 and 0 where there are no buffers */
};

/* The step at rate `lr` of weights whose state has had `before` steps.  The powers are
 * made of products alone, in double: the same on every machine. */
struct fal_optim_step fal_optim_step(const struct fal_optim *o, float lr,
				     uint64_t before);
/* The step of a part of a clock, for a state that has had `had`. */
struct fal_optim_step fal_optim_part_step(const struct fal_optim *o, float lr,
					  const struct fal_optim_had *had,
					  const struct fal_optim_part *part);
/* Counts that step in `had`. */
void fal_optim_have(const struct fal_optim *o, const struct fal_optim_part *part,
		    struct fal_optim_had *had);

/* One step: w[n] and its state change in place by mean_grad[n] (borrowed; no two of them
 * overlap).  Slot k of the state of w[i] is state[k·stride + i]; state may be NULL when
 * there are no slots.  Each product, sum, quotient and root of the rules above is rounded
 * to float32; m and v that are smaller than FLT_MIN become 0 (adagrad and adamw: a weight
 * that gets no gradient any more would have denormal state, and slow steps, for ever).
 * The rules are PyTorch's: SGD with dampening 0, Adagrad, AdamW. */
void fal_optim_apply(const struct fal_optim_step *s, float *w, float *state,
		     size_t stride, const float *mean_grad, size_t n);

/* A piece of the flat vector, whose elements begin at number `first`; state as above. */
struct fal_optim_piece {
	uint64_t first;
	size_t n;
	float *w, *state;
	float *mean_grad; /* scratch, too */
};
/* fal_optim_apply of mean_grad · scale (1: as it is), with stride n, and the rules of the
 * ranges. */
void fal_optim_apply_piece(const struct fal_optim *o, const struct fal_optim_step *s,
			   float scale, const struct fal_optim_piece *p);

/* The sum of the squares of the piece's mean gradient, which becomes 0 within the ranges,
 * in double: element i is added to sum i mod 8, and these one after the other.  The norm
 * of a gradient is the root of such sums of its blocks, added in their order. */
double fal_optim_squares(const struct fal_optim *o, const struct fal_optim_piece *p);
/* What the mean gradient of these summed squares is multiplied by:
 * clip / (norm + 1e-6) where that is below 1, as torch.nn.utils.clip_grad_norm_ does. */
float fal_optim_scale(const struct fal_optim *o, double squares);

/* average[n] += s·(1 - ema)·(w[n] - average[n]), each operation rounded to float32. */
void fal_optim_average(const struct fal_optim *o, const struct fal_optim_part *part,
		       float *average, const float *w, size_t n);

/* Mean gradients of 2^this and more lead out of the numbers, by themselves or in the
 * state, or very soon will. */
int fal_optim_most(const struct fal_optim *o);

/* What no weight of an array, and no state, exceeds in magnitude. */
struct fal_reach {
	double params, state;
};
/* The same after a step by mean gradients that do not exceed `mean`, however they are
 * rounded. */
struct fal_reach fal_optim_reach(const struct fal_optim_step *s,
				 const struct fal_reach *was, double mean);

/* Learning-rate schedules.
 *
 * Only the coordinator computes a rate, and sends it with the update as a float: the
 * functions of libm differ between machines.
 */

enum fal_schedule_kind {
	FAL_CONSTANT = 0,
	FAL_STEP,  /* lr·gamma^⌊t / every⌋ */
	FAL_COSINE /* min_lr + (lr - min_lr)·(1 + cos(π·t / T)) / 2; min_lr from t = T on
		    */
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
};

/* The rate of an update, the first one being 0.  The warm-up is linear: lr·(u + 1) /
 * warmup for update u < warmup, so from lr/warmup to lr (Goyal et al., "Accurate, large
 * minibatch SGD", 2017); then the rule (cosine: Loshchilov and Hutter, "SGDR", ICLR
 * 2017, without restarts). */
double fal_schedule_lr(const struct fal_schedule *s, uint64_t update);

/* How large a learning rate may be where gradients come late.
 *
 * The step of lib/math on a quadratic, with gradients that are `delay` updates old, is a
 * linear recurrence; the rate is stable as long as all roots of its characteristic
 * polynomial lie within the unit circle.
 *
 * What adagrad and adamw divide by changes slowly beside that, and is taken as a part of
 * the curvature: the one then is sgd, the other momentum at the rate lr·(1 - beta1).
 *
 * A clock may have `pushes` equal pushes, 1 or more: each is a step of that share of the
 * clock.  Pushers with a momentum each push in turn.
 */

enum { FAL_DELAY_MAX = 1024 };

/* The largest stable learning rate, times the largest curvature, of gradients that are
 * `delay` updates old (more than FAL_DELAY_MAX count as so many, also of pushers); of a
 * fraction 1/4 a quarter of each gradient is one update older than the rest. */
double fal_stable_rate(const struct fal_optim *o, double pushes, double delay);

/* The part of the last step that the next one takes over. */
double fal_stable_momentum(const struct fal_optim *o);

/* How many times lower that is than in one push, without delay. */
double fal_stable_factor(const struct fal_optim *o, double pushes, double delay);

#endif
