/* Optimisers against worked figures of torch.optim.SGD's algorithm and against their
 * naive twin; schedules against closed forms. */
#include "base/rng.h"
#include "optim/optim.h"
#include "optim/schedule.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static void
near(double got, double want, double tolerance, const char *what, size_t i)
{
	if (!(fabs(got - want) <= tolerance * fabs(want)))
		fail_msg("%s %zu: got %.12g, want %.12g", what, i, got, want);
}

/* Four steps by lr 0.1 of three weights, in double precision with dampening 0 and the
 * momentum buffer of the first step equal to its gradient. */
static void
four_steps(void **state)
{
	(void)state;
	static const struct {
		struct fal_optim o;
		double w[3];
	} cases[] = {
		{ { FAL_SGD, 0, 0 }, { 1.07, -2.24, 0.38 } },
		{ { FAL_SGD, 0.9f, 0.01f },
		  { 1.065855996051, -2.231736992027, 0.378265185601 } },
		{ { FAL_MOMENTUM, 0.9f, 0 }, { 1.20455, -2.487275, 0.170975 } },
		{ { FAL_MOMENTUM, 0.9f, 0.01f },
		  { 1.195396188351, -2.468945329127, 0.167344829250 } },
		{ { FAL_NESTEROV, 0.9f, 0 }, { 1.254095, -2.6785475, 0.0838775 } },
		{ { FAL_NESTEROV, 0.9f, 0.01f },
		  { 1.241460661141, -2.653343606728, 0.079763902688 } },
	};
	static const float g[4][3] = {
		{ 0.5f, -0.25f, 1.0f },
		{ -1.5f, 0.75f, 0.125f },
		{ 0.0f, 2.0f, -0.625f },
		{ 0.3f, -0.1f, 0.7f },
	};
	for (size_t k = 0; k < sizeof(cases) / sizeof(cases[0]); k++) {
		float w[3] = { 1.0f, -2.0f, 0.5f }, m[3] = { 0 };
		for (int t = 0; t < 4; t++)
			fal_optim_apply(&cases[k].o, 0.1f, w, m, g[t], 3);
		for (size_t i = 0; i < 3; i++)
			near((double)w[i], cases[k].w[i], 1e-6, "weight", 10 * k + i);
	}
}

static void
slots(void **state)
{
	(void)state;
	assert_int_equal(fal_optim_slots(&(struct fal_optim){ .kind = FAL_SGD }), 0);
	assert_int_equal(fal_optim_slots(&(struct fal_optim){ .kind = FAL_MOMENTUM }), 1);
	assert_int_equal(fal_optim_slots(&(struct fal_optim){ .kind = FAL_NESTEROV }), 1);
	/* No slots: no state is touched. */
	float w = 1, g = 1;
	fal_optim_apply(&(struct fal_optim){ 0 }, 0.5f, &w, NULL, &g, 1);
	near((double)w, 0.5, 0, "plain step", 0);
}

enum { N = 1000 };

static void
random_floats(struct fal_rng *r, float *x, size_t n)
{
	for (size_t i = 0; i < n; i++)
		x[i] = ldexpf(fal_rng_unit(r) - 0.5f, (int)fal_rng_below(r, 60) - 40);
}

static void
same_floats(const float *got, const float *want, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(got + i, want + i, sizeof(*got)) != 0)
			fail_msg("%s %zu of %zu: got %a, want %a", what, i, n,
				 (double)got[i], (double)want[i]);
}

/* Bit for bit, any length and alignment: also what makes splitting into blocks safe. */
static void
equals_naive(void **state)
{
	(void)state;
	static float w[2][N + 4], m[2][N + 4], g[N + 4];
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	for (int round = 0; round < 300; round++) {
		const struct fal_optim o = { (enum fal_optim_kind)(round % 3),
					     fal_rng_unit(&r), fal_rng_unit(&r) * 0.1f };
		size_t n = round < 40 ? (size_t)round : fal_rng_below(&r, N);
		size_t at = fal_rng_below(&r, 4);
		float lr = fal_rng_unit(&r);
		random_floats(&r, w[0], N + 4);
		random_floats(&r, m[0], N + 4);
		memcpy(w[1], w[0], sizeof(w[0]));
		memcpy(m[1], m[0], sizeof(m[0]));
		for (int t = 0; t < 3; t++) {
			random_floats(&r, g, N + 4);
			fal_optim_apply(&o, lr, w[0] + at, m[0] + at, g + at, n);
			fal_optim_apply_naive(&o, lr, w[1] + at, m[1] + at, g + at, n);
		}
		same_floats(w[0], w[1], N + 4, "weight");
		same_floats(m[0], m[1], N + 4, "momentum");
	}
}

static void
warm_up(void **state)
{
	(void)state;
	struct fal_schedule s = { .kind = FAL_CONSTANT, .lr = 0.4 };
	near(fal_schedule_lr(&s, 0), 0.4, 0, "no warm-up", 0);
	s.warmup = 4;
	for (uint64_t u = 0; u < 8; u++)
		near(fal_schedule_lr(&s, u), u < 4 ? 0.1 * (double)(u + 1) : 0.4, 1e-15,
		     "warm-up", u);
	near(fal_schedule_lr(&s, UINT64_MAX), 0.4, 0, "the last update", 0);
}

static void
step(void **state)
{
	(void)state;
	const struct fal_schedule s = {
		.kind = FAL_STEP, .lr = 1, .warmup = 2, .every = 3, .gamma = 0.1
	};
	static const double want[] = { 0.5, 1, 1, 1, 1, 0.1, 0.1, 0.1, 0.01, 0.01, 0.01 };
	for (size_t u = 0; u < sizeof(want) / sizeof(want[0]); u++)
		near(fal_schedule_lr(&s, u), want[u], 1e-14, "step", u);
}

static void
cosine(void **state)
{
	(void)state;
	/* CosineAnnealingLR's closed form with T_max = 90, after 10 of warm-up. */
	static const struct {
		uint64_t t;
		double lr;
	} want[] = {
		{ 0, 0.1 },      { 1, 0.09996984593744525 },
		{ 30, 0.07525 }, { 45, 0.0505 },
		{ 60, 0.02575 }, { 89, 0.0010301540625547597 },
		{ 90, 0.001 },   { UINT64_MAX - 10, 0.001 },
	};
	const struct fal_schedule s = {
		.kind = FAL_COSINE, .lr = 0.1, .warmup = 10, .total = 100, .min_lr = 0.001
	};
	near(fal_schedule_lr(&s, 0), 0.01, 1e-15, "warm-up", 0);
	near(fal_schedule_lr(&s, 9), 0.1, 1e-15, "warm-up", 9);
	for (size_t k = 0; k < sizeof(want) / sizeof(want[0]); k++)
		near(fal_schedule_lr(&s, 10 + want[k].t), want[k].lr, 1e-13, "cosine", k);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(four_steps),   cmocka_unit_test(slots),
		cmocka_unit_test(equals_naive), cmocka_unit_test(warm_up),
		cmocka_unit_test(step),         cmocka_unit_test(cosine),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
