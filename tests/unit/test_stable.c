/* Stable learning rates: the figures that are known, and trials on a quadratic. */
#include "math/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>

#include <cmocka.h>

/* Whether the weights die out under this rate, from a gradient `delay` updates late, by
 * so many pushers in turn; what adagrad and adamw divide by is 1. */
static int
dies_out(const struct fal_optim *o, uint32_t pushes, double delay, double rate)
{
	const uint32_t whole = (uint32_t)delay;
	const double part = delay - whole;
	enum { UPDATES = 40000 };
	const bool moves = o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV;
	const bool adam = o->kind == FAL_ADAMW;
	const double s = 1.0 / pushes;
	const double m = adam ? 1 - s * (1 - o->beta1) : moves ? (double)o->momentum : 0;
	double w[64], held[64] = { 0 }, late = 0;
	for (uint32_t i = 0; i < 64; i++)
		w[i] = 1;
	for (uint32_t t = whole + 1; t < UPDATES; t++) {
		const double now = w[t % 64], old = (1 - part) * w[(t - whole) % 64] +
						    part * w[(t - whole - 1) % 64];
		const double g = adam ? (1 - m) * old : s * old;
		double *v = &held[fal_optim_by_pusher(o) ? t % pushes : 0];
		*v = m * *v + g;
		w[(t + 1) % 64] =
			now - (adam ? rate * s : rate) *
				      (o->kind == FAL_NESTEROV ? g + m * *v : *v);
		if (!(fabs(w[(t + 1) % 64]) < 1e9))
			return 0;
		late = t > UPDATES - 500 ? fmax(late, fabs(w[(t + 1) % 64])) : 0;
	}
	return late < 1;
}

static void
test_known(void **state)
{
	(void)state;
	static const struct {
		struct fal_optim optim;
		double delay, rate;
	} known[] = {
		{ { .kind = FAL_SGD }, 0, 2 },
		{ { .kind = FAL_SGD }, 1, 1 },
		{ { .kind = FAL_SGD }, 2, 0.618034 },
		{ { .kind = FAL_MOMENTUM, .momentum = 0.9f }, 0, 3.8 },
		{ { .kind = FAL_NESTEROV, .momentum = 0.9f }, 0, 3.8 / 2.8 },
		{ { .kind = FAL_NESTEROV, .momentum = 0.9f }, 1, 0.25 },
		{ { .kind = FAL_NESTEROV, .momentum = 0.9f }, 2, 0.08 },
		{ { .kind = FAL_ADAGRAD, .momentum = 0.9f }, 1, 1 },
		{ { .kind = FAL_ADAMW, .momentum = 0.5f, .beta1 = 0.9 }, 0, 38 },
		{ { .kind = FAL_ADAMW, .beta1 = 0 }, 1, 1 },
		/* A part of each gradient is one late. */
		{ { .kind = FAL_NESTEROV, .momentum = 0.9f }, 0.25, 1.837 },
		{ { .kind = FAL_NESTEROV, .momentum = 0.9f }, 0.5, 0.77 },
		{ { .kind = FAL_SGD }, 0.25, 4 },
		{ { .kind = FAL_SGD }, 0.5, 2 },
		{ { .kind = FAL_MOMENTUM, .momentum = 0.9f }, 0.25, 0.4 },
		{ { .kind = FAL_ADAMW, .beta1 = 0.9 }, 0.25, 4 },
	};
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		const double got = fal_stable_rate(&known[i].optim, 1, known[i].delay);
		print_message("kind %d, delay %g: %.4f\n", (int)known[i].optim.kind,
			      known[i].delay, got);
		assert_true(fabs(got - known[i].rate) <= 0.06 * known[i].rate);
	}
	struct fal_optim o = { .kind = FAL_NESTEROV, .momentum = 0.9f };
	assert_int_equal(lround(fal_stable_factor(&o, 1, 0)), 1);
	assert_int_equal(lround(fal_stable_factor(&o, 1, 2)), 17);
	assert_true(isfinite(fal_stable_factor(&o, 1, UINT32_MAX)));
	/* Eight workers, each its own momentum; one of all. */
	assert_int_equal(lround(100 * fal_stable_factor(&o, 8, 7)), 175);
	o.one_momentum = true;
	assert_int_equal(lround(100 * fal_stable_factor(&o, 8, 7)), 962);
}

/* A little below the rate the weights die out, a little above they do not. */
static void
test_trials(void **state)
{
	unsigned seed = 20261122;
	(void)state;
	for (int i = 0; i < 60; i++) {
		const double m = rand_r(&seed) % 95 / 100.0;
		const struct fal_optim o = { .kind = (enum fal_optim_kind)(i %
									   FAL_OPTIMS),
					     .momentum = (float)m,
					     .beta1 = m,
					     .one_momentum = i % 3 == 0 };
		const uint32_t pushes = i % 2 == 0 ? 1 : 1 + (uint32_t)rand_r(&seed) % 9;
		const double part =
			rand_r(&seed) % 3 == 0 ? rand_r(&seed) % 16 / 16.0 : 0;
		const double delay = (uint32_t)rand_r(&seed) % 20 + part;
		const double rate = fal_stable_rate(&o, pushes, delay);
		if (!dies_out(&o, pushes, delay, 0.97 * rate) ||
		    dies_out(&o, pushes, delay, 1.03 * rate))
			print_error("kind %d, momentum %.2f, %u pushes, delay %g: not "
				    "%.5f\n",
				    (int)o.kind, (double)o.momentum, pushes, delay, rate);
		assert_true(dies_out(&o, pushes, delay, 0.97 * rate));
		assert_false(dies_out(&o, pushes, delay, 1.03 * rate));
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_known),
		cmocka_unit_test(test_trials),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
