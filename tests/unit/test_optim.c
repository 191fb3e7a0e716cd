/* Optimisers against worked figures of torch.optim.SGD's algorithm, against PyTorch's
 * formulas in double precision, and against their naive twin; schedules against closed
 * forms.  Held to an instruction set (base/vector.h) by programs of their own. */
#include "../naive_optim.h"
#include "base/parse.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "math/optim.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../held.h"

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
		{ { .kind = FAL_SGD }, { 1.07, -2.24, 0.38 } },
		{ { .kind = FAL_SGD, .momentum = 0.9f, .weight_decay = 0.01f },
		  { 1.065855996051, -2.231736992027, 0.378265185601 } },
		{ { .kind = FAL_MOMENTUM, .momentum = 0.9f },
		  { 1.20455, -2.487275, 0.170975 } },
		{ { .kind = FAL_MOMENTUM, .momentum = 0.9f, .weight_decay = 0.01f },
		  { 1.195396188351, -2.468945329127, 0.167344829250 } },
		{ { .kind = FAL_NESTEROV, .momentum = 0.9f },
		  { 1.254095, -2.6785475, 0.0838775 } },
		{ { .kind = FAL_NESTEROV, .momentum = 0.9f, .weight_decay = 0.01f },
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
		for (uint64_t t = 0; t < 4; t++) {
			const struct fal_optim_step by =
				fal_optim_step(&cases[k].o, 0.1f, t);
			fal_optim_apply(&by, w, m, 3, g[t], 3);
		}
		for (size_t i = 0; i < 3; i++)
			near((double)w[i], cases[k].w[i], 1e-6, "weight", 10 * k + i);
	}
}

static void
slots(void **state)
{
	(void)state;
	static const uint32_t want[FAL_OPTIMS] = { 0, 1, 1, 1, 2 };
	for (unsigned k = 0; k < FAL_OPTIMS; k++)
		assert_int_equal(fal_optim_slots(&(struct fal_optim){
					 .kind = (enum fal_optim_kind)k }),
				 want[k]);
	/* No slots: no state is touched. */
	float w = 1, g = 1;
	const struct fal_optim_step by =
		fal_optim_step(&(struct fal_optim){ 0 }, 0.5f, 0);
	fal_optim_apply(&by, &w, NULL, 0, &g, 1);
	near((double)w, 0.5, 0, "plain step", 0);
}

/* As people set them, and anywhere in what the job file allows. */
static struct fal_optim
draw(struct fal_rng *r, unsigned kind)
{
	const bool real = fal_rng_below(r, 2) == 0;
	return (struct fal_optim){
		.kind = (enum fal_optim_kind)kind,
		.momentum = real ? 0.9f : fal_rng_unit(r),
		.weight_decay = (fal_rng_below(r, 2) == 0 ? 0 : 0.1f) * fal_rng_unit(r),
		.decoupled = kind == FAL_ADAMW || fal_rng_below(r, 2) == 0,
		.beta1 = real ? 0.9 : (double)fal_rng_unit(r),
		.beta2 = real ? 0.999 : (double)fal_rng_unit(r),
		.eps = real ? 1e-8f : ldexpf(1, -(int)fal_rng_below(r, 60)),
	};
}

/* The step number t, from 1 on, of torch.optim's formulas in double precision. */
static void
reference(const struct fal_optim *o, double lr, unsigned t, double g, double *w,
	  double *m, double *v)
{
	const double decay = (double)o->weight_decay, mu = (double)o->momentum;
	if (o->decoupled)
		*w *= 1 - lr * decay;
	else
		g += decay * *w;
	switch (o->kind) {
	case FAL_SGD:
		*w -= lr * g;
		break;
	case FAL_MOMENTUM:
	case FAL_NESTEROV:
		*m = t == 1 ? g : mu * *m + g;
		*w -= lr * (o->kind == FAL_NESTEROV ? g + mu * *m : *m);
		break;
	case FAL_ADAGRAD:
		*m += g * g;
		*w -= lr * g / (sqrt(*m) + (double)o->eps);
		break;
	case FAL_ADAMW:
		*m += (g - *m) * (1 - o->beta1);
		*v = o->beta2 * *v + (1 - o->beta2) * g * g;
		*w -= lr / (1 - pow(o->beta1, t)) * *m /
		      (sqrt(*v) / sqrt(1 - pow(o->beta2, t)) + (double)o->eps);
		break;
	}
}

/* 300 steps of each kind at a rate that changes; both see the gradients of a weight that
 * is drawn to a target, so that none is lost in the noise. */
static void
as_pytorch(void **state)
{
	(void)state;
	enum { W = 17, STEPS = 300 };
	struct fal_rng r = fal_rng_init(20261122, FAL_RNG_TEST, 1);
	double worst = 0;
	for (unsigned k = 0; k < 10 * FAL_OPTIMS; k++) {
		struct fal_optim o = draw(&r, k % FAL_OPTIMS);
		o.eps = fmaxf(o.eps, 1e-8f);
		double w[W], m[W] = { 0 }, v[W] = { 0 };
		float fw[W], fs[2 * W] = { 0 }, g[W];
		for (size_t i = 0; i < W; i++)
			w[i] = (double)(fw[i] = fal_rng_unit(&r) - 0.5f);
		for (unsigned t = 1; t <= STEPS; t++) {
			const float lr = 0.01f / (float)(1 + t % 7);
			const struct fal_optim_step by = fal_optim_step(&o, lr, t - 1);
			for (size_t i = 0; i < W; i++)
				g[i] = (float)w[i] - 1 + 0.5f * fal_rng_unit(&r);
			fal_optim_apply(&by, fw, fs, W, g, W);
			for (size_t i = 0; i < W; i++)
				reference(&o, (double)lr, t, (double)g[i], &w[i], &m[i],
					  &v[i]);
		}
		for (size_t i = 0; i < W; i++) {
			const double off = fabs((double)fw[i] - w[i]);
			worst = fmax(worst, off);
			if (!(off < 1e-5))
				fail_msg("%s, weight %zu: %.9g, want %.9g",
					 fal_optim_name(o.kind), i, (double)fw[i], w[i]);
		}
	}
	print_message("# worst difference %.2g\n", worst);
}

enum { N = 1000 };

/* Of all sizes down to denormals and zeros, where roots and quotients must agree, too. */
static void
random_floats(struct fal_rng *r, float *x, size_t n)
{
	const int least = fal_rng_below(r, 4) == 0 ? -160 : -40;
	for (size_t i = 0; i < n; i++) {
		const bool zero = fal_rng_below(r, 16) == 0;
		const float x1 = fal_rng_unit(r) - 0.5f;
		x[i] = zero ? 0 : ldexpf(x1, (int)fal_rng_below(r, 60) + least);
	}
}

static void
same_floats(const float *got, const float *want, size_t n, const char *what)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(got + i, want + i, sizeof(*got)) != 0)
			fail_msg("%s %zu of %zu: got %a, want %a", what, i, n,
				 (double)got[i], (double)want[i]);
}

/* All of a clock, or a part of it. */
static struct fal_optim_part
draw_part(struct fal_rng *r)
{
	const double share = (double)fal_rng_unit(r);
	return fal_rng_below(r, 3) == 0
		       ? (struct fal_optim_part){ 0 }
		       : (struct fal_optim_part){
				 share, share + (1 - share) * (double)fal_rng_unit(r)
			 };
}

/* Bit for bit, any length and alignment: also what makes splitting into blocks safe. */
static void
equals_naive(void **state)
{
	(void)state;
	static float w[2][N + 4], held[2][2 * N + 8], g[N + 4];
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	for (unsigned round = 0; round < 500; round++) {
		const struct fal_optim o = draw(&r, round % FAL_OPTIMS);
		size_t n = round < 40 ? (size_t)round : fal_rng_below(&r, N);
		size_t at = fal_rng_below(&r, 4), stride = N + fal_rng_below(&r, 4);
		float lr = fal_rng_unit(&r);
		random_floats(&r, w[0], N + 4);
		random_floats(&r, held[0], 2 * N + 8);
		for (size_t i = 0; i < 2 * N + 8 && o.kind >= FAL_ADAGRAD; i++)
			held[0][i] = fabsf(held[0][i]);
		memcpy(w[1], w[0], sizeof(w[0]));
		memcpy(held[1], held[0], sizeof(held[0]));
		for (uint64_t t = 0; t < 3; t++) {
			const struct fal_optim_history had = { round % 3 == 0 ? t
									      : 1000 * t,
							       1, 1 };
			const struct fal_optim_part part = draw_part(&r);
			const struct fal_optim_step by =
				fal_optim_part_step(&o, lr, &had, &part);
			random_floats(&r, g, N + 4);
			fal_optim_apply(&by, w[0] + at, held[0] + at, stride, g + at, n);
			fal_optim_apply_naive(&by, w[1] + at, held[1] + at, stride,
					      g + at, n);
		}
		same_floats(w[0], w[1], N + 4, "weight");
		same_floats(held[0], held[1], 2 * N + 8, "state");
	}
}

/* The bits of 200 steps of each kind, whatever computes them. */
static void
same_everywhere(void **state)
{
	(void)state;
	static const char want[] = "9b37b0c6a07bc3d5";
	char hex[2 * FAL_HASH_BYTES + 1];
	static float w[N], held[2 * N], g[N];
	struct fal_hash_state h;
	uint8_t got[FAL_HASH_BYTES];
	fal_hash_init(&h);
	for (unsigned k = 0; k < FAL_OPTIMS; k++) {
		const struct fal_optim o = { .kind = (enum fal_optim_kind)k,
					     .momentum = 0.9f,
					     .weight_decay = 0.01f,
					     .decoupled = k % 2 == 0,
					     .beta1 = 0.9,
					     .beta2 = 0.999,
					     .eps = 1e-8f };
		struct fal_rng r = fal_rng_init(k, FAL_RNG_TEST, 2);
		memset(held, 0, sizeof(held));
		random_floats(&r, w, N);
		for (uint64_t t = 0; t < 200; t++) {
			const struct fal_optim_step by = fal_optim_step(&o, 0.001f, t);
			for (size_t i = 0; i < N; i++)
				g[i] = fal_rng_unit(&r) - 0.5f;
			fal_optim_apply(&by, w, held, N, g, N);
		}
		fal_hash_update(&h, w, sizeof(w));
		fal_hash_update(&h, held, fal_optim_slots(&o) * N * sizeof(float));
	}
	fal_hash_final(&h, got);
	fal_hex(got, sizeof(got), hex);
	if (strncmp(hex, want, strlen(want)) != 0)
		fail_msg("hash: got %s, want %s...", hex, want);
}

/* State that gets no gradient any more is 0 in the end, not denormal. */
static void
state_dies(void **state)
{
	(void)state;
	const struct fal_optim o = {
		.kind = FAL_ADAMW, .beta1 = 0.9, .beta2 = 0.99, .eps = 1e-8f
	};
	float w = 1, held[2] = { 0 }, g = 1;
	for (uint64_t t = 0; t < 10000; t++, g = 0) {
		const struct fal_optim_step by = fal_optim_step(&o, 0.01f, t);
		fal_optim_apply(&by, &w, held, 1, &g, 1);
	}
	assert_true(held[0] == 0 && held[1] == 0);
	assert_true(isfinite(w) && w < 1);
}

/* Not inlined: GCC 12 for ARM crashes when it vectorises this loop with a constant n. */
__attribute__((noinline)) static double
largest(const float *v, size_t n)
{
	double most = 0;
	for (size_t i = 0; i < n; i++)
		most = fmax(most, (double)fabsf(v[i]));
	return most;
}

/* However a step is rounded, it stays within what reach says. */
static void
reach(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(3, FAL_RNG_TEST, 0);
	for (unsigned round = 0; round < 2000; round++) {
		const struct fal_optim o = draw(&r, round % FAL_OPTIMS);
		float w[16], held[32] = { 0 }, g[16];
		struct fal_optim_bounds is = { 0 };
		random_floats(&r, w, 16);
		is.params = largest(w, 16);
		for (uint64_t t = 0; t < 20; t++) {
			const struct fal_optim_history had = { t, 1, 1 };
			const struct fal_optim_part part = draw_part(&r);
			const struct fal_optim_step by = fal_optim_part_step(
				&o, ldexpf(1, -(int)fal_rng_below(&r, 12)), &had, &part);
			random_floats(&r, g, 16);
			is = fal_optim_step_bounds(&by, &is, largest(g, 16));
			fal_optim_apply(&by, w, held, 16, g, 16);
			const double most = largest(w, 16), kept = largest(held, 32);
			if (!(most <= is.params) ||
			    (fal_optim_slots(&o) > 0 && !(kept <= is.state)))
				fail_msg("%s: %g and %g, said %g and %g",
					 fal_optim_name(o.kind), most, kept, is.params,
					 is.state);
		}
	}
}

/* The formulas of a push in double precision, written down once more: `s` of the clock,
 * `in` of which is there. */
struct pushed {
	double w, m, v, left1, left2;
};

static void
push_reference(const struct fal_optim *o, double lr, double s, double in, double g,
	       struct pushed *p)
{
	const double decay = (double)o->weight_decay, mu = (double)o->momentum;
	const double b1 = 1 - s * (1 - o->beta1), b2 = 1 - s * (1 - o->beta2);
	const double d = o->decoupled ? g : g + decay * p->w;
	if (o->decoupled)
		p->w *= 1 - lr * decay * s;
	switch (o->kind) {
	case FAL_SGD:
		p->w -= lr * s * d;
		break;
	case FAL_MOMENTUM:
		p->m = mu * p->m + s * d;
		p->w -= lr * p->m;
		break;
	case FAL_NESTEROV:
		p->m = mu * p->m + s * d;
		p->w -= lr * (s * d + mu * p->m);
		break;
	case FAL_ADAGRAD:
		p->v += s * d * d;
		p->w -= lr * s * d / (sqrt(p->v + (1 - in) * d * d) + (double)o->eps);
		break;
	case FAL_ADAMW:
		p->m = b1 * p->m + (1 - b1) * d;
		p->v = b2 * p->v + (1 - b2) * d * d;
		p->left1 *= b1;
		p->left2 *= b2;
		p->w -= lr * s * (p->m / (1 - p->left1)) /
			(sqrt(p->v / (1 - p->left2)) + (double)o->eps);
		break;
	}
}

/* Pushes of any share, and whole steps between them. */
static void
pushes_are_the_formulas(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(7, FAL_RNG_TEST, 3);
	for (unsigned k = 0; k < 40 * FAL_OPTIMS; k++) {
		struct fal_optim o = draw(&r, k % FAL_OPTIMS);
		o.eps = fmaxf(o.eps, 1e-8f);
		struct fal_optim_history had = { 0, 1, 1 };
		float w = fal_rng_unit(&r) - 0.5f, held[2] = { 0 };
		struct pushed p = { .w = (double)w, .left1 = 1, .left2 = 1 };
		for (unsigned t = 0; t < 60; t++) {
			const struct fal_optim_part part = draw_part(&r);
			const float lr = 0.01f, g = w - 1 + 0.5f * fal_rng_unit(&r);
			const bool whole = part.share <= 0;
			const struct fal_optim_step by =
				fal_optim_part_step(&o, lr, &had, &part);
			fal_optim_apply(&by, &w, held, 1, &g, 1);
			fal_optim_add_step(&o, &part, &had);
			push_reference(&o, (double)lr, whole ? 1 : part.share,
				       whole ? 1 : part.in, (double)g, &p);
			near((double)w + 1, p.w + 1, 1e-5, fal_optim_name(o.kind), t);
		}
	}
}

/* At one gradient, from zero state on, W equal pushes change a weight in each clock by
 * what one step of all changes it, but for 1 %. */
static void
equal_pushes_make_a_clock(void **state)
{
	(void)state;
	enum { CLOCKS = 20, MOST = 7 };
	static const unsigned many[] = { 1, 4, 7 };
	for (unsigned k = 0; k < 2 * FAL_OPTIMS * 3; k++) {
		const struct fal_optim o = { .kind = (enum fal_optim_kind)(k %
									   FAL_OPTIMS),
					     .momentum = 0.9f,
					     .beta1 = 0.9,
					     .beta2 = 0.999,
					     .eps = 1e-8f,
					     .weight_decay = k % 2 == 0 ? 0 : 0.01f,
					     .decoupled = true };
		const unsigned n = many[k / (2 * FAL_OPTIMS)];
		const float g = 0.3f;
		float w = 1, all = 1, held[2] = { 0 }, of_all[2] = { 0 },
		      own[MOST] = { 0 };
		struct fal_optim_history had = { 0, 1, 1 };
		for (unsigned c = 0; c < CLOCKS; c++) {
			const double was = (double)w, was_all = (double)all;
			const struct fal_optim_step step = fal_optim_step(&o, 0.01f, c);
			fal_optim_apply(&step, &all, of_all, 1, &g, 1);
			for (unsigned i = 0; i < n; i++) {
				const struct fal_optim_part part = { 1.0 / n,
								     (i + 1.0) / n };
				const struct fal_optim_step by =
					fal_optim_part_step(&o, 0.01f, &had, &part);
				fal_optim_apply(&by, &w,
						fal_optim_by_pusher(&o) ? &own[i] : held,
						1, &g, 1);
				fal_optim_add_step(&o, &part, &had);
			}
			const double want = (double)all - was_all;
			near((double)w - was, want, 0.01, fal_optim_name(o.kind), n);
		}
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

static void
table(void **state)
{
	(void)state;
	static const float factor[] = { 0, 1, 0.25f };
	const struct fal_schedule s = {
		.kind = FAL_TABLE, .lr = 0.1, .factor = factor, .factors = 3
	};
	static const double want[] = { 0, 0.1, 0.025, 0.025 };
	for (size_t u = 0; u < sizeof(want) / sizeof(want[0]); u++)
		near(fal_schedule_lr(&s, u), want[u], 1e-15, "table", u);
}

/* Pieces of a vector with ranges, wherever either ends: what is frozen stays, what is a
 * running statistic moves by its own rule, whatever is clipped, and the rest is as if it
 * stood alone. */
static void
ranges(void **state)
{
	(void)state;
	struct fal_rng r = fal_rng_init(4, FAL_RNG_TEST, 0);
	for (unsigned round = 0; round < 500; round++) {
		static float w[2][N], held[2][2 * N], g[N], squared[N];
		int rule[N], is_in[N];
		struct fal_range range[5];
		struct fal_optim o = draw(&r, round % FAL_OPTIMS);
		o.range = range;
		o.buffer_momentum = (double)fal_rng_unit(&r);
		const float hold = (float)(1 - o.buffer_momentum);
		const float take = (float)o.buffer_momentum;
		const float scale = round % 2 ? 1 : fal_rng_unit(&r);
		memset(rule, -1, sizeof(rule));
		for (uint64_t at = fal_rng_below(&r, N); at < N && o.ranges < 5;) {
			const uint64_t count = 1 + fal_rng_below(&r, (uint32_t)(N - at));
			/* Powers of two, so that scales and roundings commute. */
			static const float scales[] = { 0, 0.25f, 1, 2 };
			const enum fal_range_rule is = fal_rng_below(&r, 3);
			range[o.ranges] =
				(struct fal_range){ at, count, is,
						    scales[fal_rng_below(&r, 4)],
						    scales[fal_rng_below(&r, 4)] };
			for (uint64_t i = at; i < at + count; i++) {
				rule[i] = (int)is;
				is_in[i] = (int)o.ranges;
			}
			o.ranges++;
			at += count + fal_rng_below(&r, N);
		}
		random_floats(&r, w[0], N);
		random_floats(&r, g, N);
		memcpy(w[1], w[0], sizeof(w[0]));
		memcpy(squared, g, sizeof(g));
		memset(held, 0, sizeof(held));
		const struct fal_optim_step by = fal_optim_step(&o, 0.1f, round);
		for (size_t at = 0, n; at < N; at += n) {
			n = 1 + fal_rng_below(&r, (uint32_t)(N - at));
			const struct fal_optim_piece p = { at, n, w[0] + at,
							   held[0] + 2 * at, g + at };
			const struct fal_optim_piece sq = { .first = at,
							    .n = n,
							    .mean_grad = squared + at };
			double part[8] = { 0 }, want = 0;
			const double got = fal_optim_squares(&o, &sq);
			/* The state lies piece by piece. */
			for (size_t i = at; i < at + n; i++) {
				float s[2] = { 0 };
				const float scaled = scale < 1 ? g[i] * scale : g[i];
				const float old = hold * w[1][i], new = take *g[i];
				if (rule[i] == FAL_RANGE_EMA)
					w[1][i] = old + new;
				if (rule[i] >= 0 && rule[i] != FAL_RANGE_SCALED)
					continue;
				struct fal_optim own = o;
				float lr = 0.1f;
				if (rule[i] == FAL_RANGE_SCALED) {
					own.weight_decay *= range[is_in[i]].decay_scale;
					lr *= range[is_in[i]].lr_scale;
				}
				const struct fal_optim_step its =
					fal_optim_step(&own, lr, round);
				part[(i - at) % 8] += (double)g[i] * (double)g[i];
				fal_optim_apply_naive(&its, &w[1][i], s, 1, &scaled, 1);
				held[1][2 * at + i - at] = s[0];
				held[1][2 * at + n + i - at] = s[1];
			}
			for (size_t k = 0; k < 8; k++)
				want += part[k];
			near(got, want, 0, "squares", round);
			fal_optim_apply_piece(&o, &by, scale, &p);
		}
		same_floats(w[0], w[1], N, "weight");
		same_floats(held[0], held[1], 2 * N, "state");
	}
}

static void
clipped(void **state)
{
	(void)state;
	static float g[N];
	struct fal_rng r = fal_rng_init(5, FAL_RNG_TEST, 0);
	for (size_t n = 0; n < N; n = n < 40 ? n + 1 : n + 97) {
		double part[8] = { 0 }, want = 0;
		random_floats(&r, g, N);
		for (size_t i = 0; i < n; i++)
			part[i % 8] += (double)g[i] * (double)g[i];
		for (size_t k = 0; k < 8; k++)
			want += part[k];
		const struct fal_optim_piece p = { .n = n, .mean_grad = g };
		const double got = fal_optim_squares(&(struct fal_optim){ 0 }, &p);
		if (memcmp(&got, &want, sizeof(got)) != 0)
			fail_msg("%zu: got %a, want %a", n, got, want);
	}
	const struct fal_optim o = { .clip = 2 };
	near((double)fal_optim_scale(&o, 16), 0.5, 1e-6, "scale", 0);
	near((double)fal_optim_scale(&o, 3.9), 1, 0, "scale", 1);
	near((double)fal_optim_scale(&o, 0), 1, 0, "scale", 2);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(four_steps),
		cmocka_unit_test(slots),
		cmocka_unit_test(equals_naive),
		cmocka_unit_test(warm_up),
		cmocka_unit_test(step),
		cmocka_unit_test(cosine),
		cmocka_unit_test(table),
		cmocka_unit_test(as_pytorch),
		cmocka_unit_test(same_everywhere),
		cmocka_unit_test(state_dies),
		cmocka_unit_test(reach),
		cmocka_unit_test(pushes_are_the_formulas),
		cmocka_unit_test(equal_pushes_make_a_clock),
		cmocka_unit_test(ranges),
		cmocka_unit_test(clipped),
	};
	if (held_in_vain())
		return 0;
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
