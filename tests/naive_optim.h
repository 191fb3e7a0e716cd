/* The naive twin of fal_optim_apply (lib/math): one weight at a time. */
#ifndef FAL_TESTS_NAIVE_OPTIM_H
#define FAL_TESTS_NAIVE_OPTIM_H

#include "math/optim.h"

#include <assert.h>
#include <float.h>
#include <math.h>

/* 0 instead of a denormal. */
static inline float
naive_normal(float x)
{
	return fabsf(x) < FLT_MIN ? 0 : x;
}

/* By how much a weight changes; `m` and `v` are its state. */
static inline float
naive_change(const struct fal_optim_step *s, float d, float *m, float *v)
{
	float a, b;
	switch (s->kind) {
	case FAL_SGD:
		return s->lr * d;
	case FAL_MOMENTUM:
	case FAL_NESTEROV:
		d = s->share * d;
		a = s->momentum * *m;
		*m = a + d;
		a = s->momentum * *m;
		a = s->kind == FAL_NESTEROV ? d + a : *m;
		return s->lr * a;
	case FAL_ADAGRAD:
		a = d * d;
		b = s->share * a;
		*m = naive_normal(*m + b);
		a = s->rest * a;
		b = *m + a;
		b = sqrtf(b) + s->eps;
		a = s->lr * d;
		return a / b;
	case FAL_ADAMW:
		a = s->beta1 * *m;
		b = s->rest1 * d;
		*m = naive_normal(a + b);
		a = s->beta2 * *v;
		b = s->rest2 * d;
		b = b * d;
		*v = naive_normal(a + b);
		b = s->root * sqrtf(*v);
		b = b + s->eps;
		a = s->lr * *m;
		return a / b;
	}
	assert(0 && "a kind of optimiser");
	return 0;
}

static inline void
fal_optim_apply_naive(const struct fal_optim_step *s, float *w, float *state,
		      size_t stride, const float *mean_grad, size_t n)
{
	for (size_t i = 0; i < n; i++) {
		float none = 0;
		float pulled = s->pull * w[i];
		float d = mean_grad[i] + pulled;
		float by =
			naive_change(s, d, state != NULL ? &state[i] : &none,
				     s->kind == FAL_ADAMW ? &state[stride + i] : &none);
		float kept = s->keep * w[i];
		w[i] = kept - by;
	}
}

#endif
