/* Learning-rate schedules, and the rates that are stable. */
#include "optim/optim.h"

#include <assert.h>
#include <complex.h>
#include <math.h>

static double
cosine(const struct fal_schedule *s, uint64_t t)
{
	assert(s->total >= s->warmup);
	uint64_t whole = s->total - s->warmup;
	if (t >= whole)
		return s->min_lr;
	double wave = 1 + cos(M_PI * (double)t / (double)whole);
	return s->min_lr + (s->lr - s->min_lr) * wave / 2;
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
		return s->lr * pow(s->gamma, (double)(t / s->every));
	case FAL_COSINE:
		return cosine(s, t);
	}
	assert(0 && "a kind of schedule");
	return 0;
}

/* With d = w - w', the step without the learning rate, a momentum m and gradients that
 * are the weights n updates ago, the recurrences are
 *
 *	sgd, momentum   w(t+1) - w(t) = m (w(t) - w(t-1)) - a w(t-n)
 *	nesterov        w(t+1) - w(t) = m (w(t) - w(t-1)) - a ((1+m) w(t-n) - m w(t-n-1))
 *
 * so for w(t) = z^t
 *
 *	a = -z^n (z^2 - (1+m) z + m) / b(z),   b(z) = z, or (1+m) z - m.
 *
 * A root reaches the unit circle where this a is real for z = e^(iθ), and the first one
 * that does bounds the rate.
 */
double
fal_stable_momentum(const struct fal_optim *o)
{
	if (o->kind == FAL_ADAMW)
		return o->beta1;
	return o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV ? (double)o->momentum
								  : 0;
}

/* The a for which e^(iθ) is a root. */
static double complex
rate_at(const struct fal_optim *o, uint32_t delay, double theta)
{
	const double m = fal_stable_momentum(o);
	const double complex z = cexp(I * theta);
	const double complex b = o->kind == FAL_NESTEROV ? (1 + m) * z - m : z;
	return -cexp(I * theta * delay) * (z * z - (1 + m) * z + m) / b;
}

double
fal_stable_rate(const struct fal_optim *o, uint32_t delay)
{
	enum {
		STEPS = 64
	}; /* for each half turn of z^n, in which the sign changes once */
	delay = delay < FAL_DELAY_MAX ? delay : FAL_DELAY_MAX;
	const uint32_t n = STEPS * (delay + 2);
	const double turn = acos(-1);
	/* At θ = π a is real. */
	double least = creal(rate_at(o, delay, turn));
	if (least <= 0)
		least = INFINITY;
	for (uint32_t i = 1; i + 1 < n; i++) {
		double low = turn * i / n, high = turn * (i + 1) / n;
		const bool up = cimag(rate_at(o, delay, low)) > 0;
		if (up == (cimag(rate_at(o, delay, high)) > 0))
			continue;
		for (int k = 0; k < 50; k++) {
			const double mid = (low + high) / 2;
			if ((cimag(rate_at(o, delay, mid)) > 0) == up)
				low = mid;
			else
				high = mid;
		}
		const double a = creal(rate_at(o, delay, low));
		least = a > 0 && a < least ? a : least;
	}
	return o->kind == FAL_ADAMW ? least / (1 - o->beta1) : least;
}

double
fal_stable_factor(const struct fal_optim *o, uint32_t delay)
{
	return fal_stable_rate(o, 0) / fal_stable_rate(o, delay);
}
