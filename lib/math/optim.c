/* Learning-rate schedules, and the rules of optimisers: a loop for each kind; memory
 * bandwidth limits all loops without quotients and roots. */
#include "math/optim.h"

#include "base/vector.h"
#include "math/scalar.h"

#include <assert.h>
#include <float.h>
#include <math.h>
#include <string.h>

const char *
fal_optim_name(enum fal_optim_kind kind)
{
	static const char *const name[FAL_OPTIMS] = { "sgd", "momentum", "nesterov",
						      "adagrad", "adamw" };
	return name[kind];
}

uint32_t
fal_optim_slots(const struct fal_optim *o)
{
	static const uint32_t slots[FAL_OPTIMS] = {
		[FAL_MOMENTUM] = 1, [FAL_NESTEROV] = 1, [FAL_ADAGRAD] = 1, [FAL_ADAMW] = 2
	};
	return slots[o->kind];
}

bool
fal_optim_by_pusher(const struct fal_optim *o)
{
	return (o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV) && !o->one_momentum;
}

/* Returns whether the step covers the whole clock. */
static bool
is_whole_clock(const struct fal_optim_part *part)
{
	return part->share <= 0 || part->share == 1;
}

/* Returns the step's beta, at least 0, as a push may exceed a clock. */
static double
part_beta(double beta, const struct fal_optim_part *part)
{
	return is_whole_clock(part) ? beta : fmax(1 - part->share * (1 - beta), 0);
}

/* Returns the product of beta over all steps, this step included; `parts_product` is the
 * product over the past steps of parts. */
static double
beta_product(double beta, const struct fal_optim_part *part, uint64_t steps,
	     double parts_product)
{
	return is_whole_clock(part)
		       ? parts_product * fal_power(beta, steps + 1)
		       : parts_product * fal_power(beta, steps) * part_beta(beta, part);
}

struct fal_optim_step
fal_optim_part_step(const struct fal_optim *o, float lr,
		    const struct fal_optim_history *had,
		    const struct fal_optim_part *part)
{
	const double share = is_whole_clock(part) ? 1 : part->share;
	const double rate = (double)lr * share;
	const bool has_momentum = o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV;
	struct fal_optim_step s = { .kind = o->kind,
				    .lr = has_momentum ? lr : (float)rate,
				    .keep = 1,
				    .pull = o->weight_decay,
				    .share = (float)share,
				    .rest = is_whole_clock(part) ? 0
								 : (float)(1 - part->in),
				    .momentum = o->momentum,
				    .eps = o->eps,
				    .hold = 1,
				    .lr_scale_max = 1,
				    .decay_scale_max = 1 };
	for (uint32_t i = 0; i < o->ranges; i++)
		if (o->range[i].rule == FAL_RANGE_EMA) {
			s.hold = (float)(1 - share * o->buffer_momentum);
			s.take = (float)(share * o->buffer_momentum);
		} else if (o->range[i].rule == FAL_RANGE_SCALED) {
			s.lr_scale_max = fmaxf(s.lr_scale_max, o->range[i].lr_scale);
			s.decay_scale_max =
				fmaxf(s.decay_scale_max, o->range[i].decay_scale);
		}
	if (o->decoupled) {
		s.decay = rate * (double)o->weight_decay;
		s.keep = (float)(1 - s.decay);
		s.pull = 0;
	}
	if (o->kind == FAL_ADAMW) {
		const double b1 = part_beta(o->beta1, part);
		const double b2 = part_beta(o->beta2, part);
		s.beta1 = (float)b1;
		s.rest1 = (float)(1 - b1);
		s.beta2 = (float)b2;
		s.rest2 = (float)(1 - b2);
		s.lr = (float)(rate / (1 - beta_product(o->beta1, part, had->steps,
							had->beta1)));
		s.root = (float)(1 / sqrt(1 - beta_product(o->beta2, part, had->steps,
							   had->beta2)));
	}
	return s;
}

struct fal_optim_step
fal_optim_step(const struct fal_optim *o, float lr, uint64_t before)
{
	const struct fal_optim_history had = { before, 1, 1 };
	return fal_optim_part_step(o, lr, &had, &(struct fal_optim_part){ 0 });
}

void
fal_optim_add_step(const struct fal_optim *o, const struct fal_optim_part *part,
		   struct fal_optim_history *had)
{
	if (is_whole_clock(part)) {
		had->steps++;
		return;
	}
	had->beta1 *= part_beta(o->beta1, part);
	had->beta2 *= part_beta(o->beta2, part);
}

double
fal_schedule_lr(const struct fal_schedule *s, uint64_t update)
{
	if (update < s->warmup)
		return s->lr * ((double)(update + 1) / (double)s->warmup);
	uint64_t t = update - s->warmup;
	switch (s->kind) {
	case FAL_CONSTANT:
		return s->lr;
	case FAL_STEP:
		assert(s->every > 0);
		return s->lr * fal_power(s->gamma, t / s->every);
	case FAL_COSINE: {
		assert(s->total >= s->warmup);
		const uint64_t total = s->total - s->warmup;
		if (t >= total)
			return s->min_lr;
		const double wave = 1 + fal_cos_pi((double)t / (double)total);
		return s->min_lr + (s->lr - s->min_lr) * wave / 2;
	}
	case FAL_TABLE:
		assert(s->factors > 0);
		return s->lr * (double)s->factor[t < s->factors ? t : s->factors - 1];
	}
	assert(0 && "a kind of schedule");
	return 0;
}

FAL_VECTOR static void
apply_sgd(const struct fal_optim_step *s, float *restrict w, const float *restrict g,
	  size_t n)
{
	const float lr = s->lr, keep = s->keep, pull = s->pull;
	for (size_t i = 0; i < n; i++)
		w[i] = keep * w[i] - lr * (g[i] + pull * w[i]);
}

FAL_VECTOR static void
apply_momentum(const struct fal_optim_step *s, float *restrict w, float *restrict m,
	       const float *restrict g, size_t n)
{
	const float lr = s->lr, keep = s->keep, pull = s->pull, mu = s->momentum;
	const float share = s->share;
	for (size_t i = 0; i < n; i++) {
		m[i] = mu * m[i] + share * (g[i] + pull * w[i]);
		w[i] = keep * w[i] - lr * m[i];
	}
}

FAL_VECTOR static void
apply_nesterov(const struct fal_optim_step *s, float *restrict w, float *restrict m,
	       const float *restrict g, size_t n)
{
	const float lr = s->lr, keep = s->keep, pull = s->pull, mu = s->momentum;
	const float share = s->share;
	for (size_t i = 0; i < n; i++) {
		float d = share * (g[i] + pull * w[i]);
		m[i] = mu * m[i] + d;
		w[i] = keep * w[i] - lr * (d + mu * m[i]);
	}
}

/* 0 instead of a denormal. */
static inline float
flush_denormal(float x)
{
	return fabsf(x) < FLT_MIN ? 0 : x;
}

FAL_VECTOR static void
apply_adagrad(const struct fal_optim_step *s, float *restrict w, float *restrict v,
	      const float *restrict g, size_t n)
{
	const float lr = s->lr, keep = s->keep, pull = s->pull, eps = s->eps;
	const float share = s->share, rest = s->rest;
	for (size_t i = 0; i < n; i++) {
		float d = g[i] + pull * w[i], square = d * d;
		v[i] = flush_denormal(v[i] + share * square);
		w[i] = keep * w[i] - lr * d / (sqrtf(v[i] + rest * square) + eps);
	}
}

FAL_VECTOR static void
apply_adamw(const struct fal_optim_step *s, float *restrict w, float *restrict m,
	    float *restrict v, const float *restrict g, size_t n)
{
	const float keep = s->keep, pull = s->pull, rate = s->lr, root = s->root;
	const float beta1 = s->beta1, rest1 = s->rest1, eps = s->eps;
	const float beta2 = s->beta2, rest2 = s->rest2;
	for (size_t i = 0; i < n; i++) {
		float d = g[i] + pull * w[i];
		m[i] = flush_denormal(beta1 * m[i] + rest1 * d);
		v[i] = flush_denormal(beta2 * v[i] + rest2 * d * d);
		w[i] = keep * w[i] - rate * m[i] / (root * sqrtf(v[i]) + eps);
	}
}

void
fal_optim_apply(const struct fal_optim_step *s, float *w, float *state, size_t stride,
		const float *mean_grad, size_t n)
{
	switch (s->kind) {
	case FAL_SGD:
		apply_sgd(s, w, mean_grad, n);
		break;
	case FAL_MOMENTUM:
		apply_momentum(s, w, state, mean_grad, n);
		break;
	case FAL_NESTEROV:
		apply_nesterov(s, w, state, mean_grad, n);
		break;
	case FAL_ADAGRAD:
		apply_adagrad(s, w, state, mean_grad, n);
		break;
	case FAL_ADAMW:
		apply_adamw(s, w, state, state + stride, mean_grad, n);
		break;
	}
}

int
fal_optim_overflow_exponent(const struct fal_optim *o)
{
	const bool squared = o->kind == FAL_ADAGRAD || o->kind == FAL_ADAMW;
	return squared && o->clip <= 0 ? 60 : 120;
}

struct fal_optim_bounds
fal_optim_step_bounds(const struct fal_optim_step *s, const struct fal_optim_bounds *was,
		      double mean)
{
	const double most_decay = (double)s->decay_scale_max;
	const double d = mean + fabs((double)s->pull) * most_decay * was->params;
	const double part = (double)s->share * d;
	double state = d, by = d;
	switch (s->kind) {
	case FAL_SGD:
		break;
	case FAL_MOMENTUM:
	case FAL_NESTEROV:
		state = (double)s->momentum * was->state + part;
		by = s->kind == FAL_NESTEROV ? part + (double)s->momentum * state : state;
		break;
	case FAL_ADAGRAD:
		state = was->state + (double)s->share * d * d;
		by = d / (double)s->eps;
		break;
	case FAL_ADAMW: /* m and v are means of d and of its square */
		state = fmax(was->state, fmax(d, d * d));
		by = state / (double)s->eps;
		break;
	}
	const double most_lr = (double)s->lr_scale_max;
	/* A scale may be 0, and the weight is kept as a whole. */
	const double keep = fmax(1, s->decay * most_lr * most_decay - 1);
	const double weight = keep * was->params + fabs((double)s->lr) * most_lr * by;
	const double running = s->take > 0 ? fmax(was->params, mean) : 0;
	/* The factor covers the rounding of each operation. */
	return (struct fal_optim_bounds){ fmax(weight, running) * 1.001, state * 1.001 };
}

/* ---- ranges, and clipping ------------------------------------------------------- */

/* Returns the number of elements from element `at` of the piece on that lie in the same
 * range, or in no range; sets `*in` to that range, or to NULL. */
static size_t
stretch_at(const struct fal_optim *o, const struct fal_optim_piece *p, size_t at,
	   const struct fal_range **in)
{
	const uint64_t from = p->first + at, end = p->first + p->n;
	/* The first range that ends behind `from`. */
	uint32_t low = 0, high = o->ranges;
	while (low < high) {
		const uint32_t mid = low + (high - low) / 2;
		if (o->range[mid].first + o->range[mid].count <= from)
			low = mid + 1;
		else
			high = mid;
	}
	const struct fal_range *r = low < o->ranges ? &o->range[low] : NULL;
	const bool inside = r != NULL && r->first <= from;
	uint64_t to = r == NULL ? end : inside ? r->first + r->count : r->first;
	*in = inside ? r : NULL;
	to = to < end ? to : end;
	assert(to > from);
	return (size_t)(to - from);
}

FAL_VECTOR static void
scale_by(float scale, float *g, size_t n)
{
	for (size_t i = 0; i < n; i++)
		g[i] *= scale;
}

FAL_VECTOR static void
update_statistics(const struct fal_optim_step *s, float *restrict w,
		  const float *restrict x, size_t n)
{
	const float hold = s->hold, take = s->take;
	for (size_t i = 0; i < n; i++)
		w[i] = hold * w[i] + take * x[i];
}

void
fal_optim_apply_piece(const struct fal_optim *o, const struct fal_optim_step *s,
		      float scale, const struct fal_optim_piece *p)
{
	const struct fal_range *in;
	for (size_t at = 0, n; at < p->n; at += n) {
		n = stretch_at(o, p, at, &in);
		float *w = p->w + at, *g = p->mean_grad + at;
		const bool scaled = in != NULL && in->rule == FAL_RANGE_SCALED;
		if (in != NULL && in->rule == FAL_RANGE_EMA)
			update_statistics(s, w, g, n);
		if (in != NULL && !scaled)
			continue;
		if (scale < 1)
			scale_by(scale, g, n);
		struct fal_optim_step by = *s;
		if (scaled) {
			by.lr *= in->lr_scale;
			by.pull *= in->decay_scale;
			by.keep = (float)(1 - s->decay * (double)in->lr_scale *
						      (double)in->decay_scale);
		}
		fal_optim_apply(&by, w, p->state != NULL ? p->state + at : NULL, p->n, g,
				n);
	}
}

FAL_VECTOR static double
sum_squares(const float *g, size_t n)
{
	double sum[8] = { 0 }; /* a product of two floats is exact in double */
	size_t i = 0;
	for (; i + 8 <= n; i += 8)
		for (size_t k = 0; k < 8; k++)
			sum[k] += (double)g[i + k] * (double)g[i + k];
	for (size_t k = 0; i + k < n; k++)
		sum[k] += (double)g[i + k] * (double)g[i + k];
	double all = 0;
	for (size_t k = 0; k < 8; k++)
		all += sum[k];
	return all;
}

double
fal_optim_squares(const struct fal_optim *o, const struct fal_optim_piece *p)
{
	const struct fal_range *in;
	for (size_t at = 0, n; at < p->n; at += n) {
		n = stretch_at(o, p, at, &in);
		if (in != NULL && in->rule != FAL_RANGE_SCALED)
			memset(p->mean_grad + at, 0, n * sizeof(float));
	}
	return sum_squares(p->mean_grad, p->n);
}

float
fal_optim_scale(const struct fal_optim *o, double squares)
{
	const double scale = o->clip / (sqrt(squares) + 1e-6);
	return scale < 1 ? (float)scale : 1;
}

FAL_VECTOR void
fal_optim_average(const struct fal_optim *o, const struct fal_optim_part *part,
		  float *restrict average, const float *restrict w, size_t n)
{
	const float rest = (float)(1 - part_beta(o->ema, part));
	for (size_t i = 0; i < n; i++)
		average[i] += rest * (w[i] - average[i]);
}
