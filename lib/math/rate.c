/* The largest stable rates, for warnings and reports: no step depends on this file, so
 * its functions may be libm's. */
#include "math/optim.h"

#include <assert.h>
#include <complex.h>
#include <math.h>

/* With a momentum m, a rate a, and gradients that equal the weights n updates ago, the
 * recurrences are
 *
 *	sgd, momentum   w(t+1) - w(t) = v(t),                 v(t) = m v(t-p) - a w(t-n)
 *	nesterov        w(t+1) - w(t) = m v(t) - a w(t-n)
 *
 * with p = 1, or with p pushers in turn that each have a v of their own.  With a delay
 * n + f the part f of a gradient is n + 1 updates old, the rest n.  So for w(t) = z^t
 *
 *	a = -(z - 1) (1 - y) / (b g),   y = m z^-p,   b = 1, or 1 + m - y,
 *	g = z^-n (1 - f + f/z).
 *
 * A root is on the unit circle if this a is real for z = e^(iθ); the least such a bounds
 * the rate.
 */
struct recurrence {
	double momentum;
	double delay;  /* n + f */
	uint32_t turn; /* p */
	bool is_nesterov;
};

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
rate_at(const struct recurrence *r, double theta)
{
	const double complex y = r->momentum * cexp(-I * theta * r->turn);
	const double complex b = r->is_nesterov ? 1 + r->momentum - y : 1;
	const double n = floor(r->delay), f = r->delay - n;
	const double complex g = cexp(-I * theta * n) * (1 - f + f * cexp(-I * theta));
	return -(cexp(I * theta) - 1) * (1 - y) / (b * g);
}

double
fal_stable_rate(const struct fal_optim *o, double pushes, double delay)
{
	const bool adam = o->kind == FAL_ADAMW, own = fal_optim_by_pusher(o);
	/* adamw's m becomes takes·gradient + (1 - takes)·m. */
	const double takes = adam ? (1 - o->beta1) / pushes : 1;
	const struct recurrence r = {
		.momentum = adam ? 1 - takes : fal_stable_momentum(o),
		.delay = fmin(delay, FAL_DELAY_MAX),
		.turn = own ? (uint32_t)fmin(pushes, FAL_DELAY_MAX) : 1,
		.is_nesterov = o->kind == FAL_NESTEROV
	};
	/* Steps of the search in a half turn of z^n, in which the sign changes once. */
	enum { STEPS = 64 };
	const uint32_t n = STEPS * ((uint32_t)ceil(r.delay) + r.turn + 1);
	const double turn = acos(-1);
	/* a is real at θ = π. */
	double least = creal(rate_at(&r, turn));
	if (!(least > 0))
		least = INFINITY;
	for (uint32_t i = 1; i + 1 < n; i++) {
		double low = turn * i / n, high = turn * (i + 1) / n;
		const bool is_above = cimag(rate_at(&r, low)) > 0;
		if (is_above == (cimag(rate_at(&r, high)) > 0))
			continue;
		for (int k = 0; k < 50; k++) {
			const double mid = (low + high) / 2;
			if ((cimag(rate_at(&r, mid)) > 0) == is_above)
				low = mid;
			else
				high = mid;
		}
		const double a = creal(rate_at(&r, low));
		least = a > 0 && a < least ? a : least;
	}
	return pushes * least / takes;
}

double
fal_stable_factor(const struct fal_optim *o, double pushes, double delay)
{
	return fal_stable_rate(o, 1, 0) / fal_stable_rate(o, pushes, delay);
}
