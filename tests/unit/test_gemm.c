/* The matrix product and the convolution, bit for bit against plain loops with fmaf, on
 * each instruction set of this CPU. */
#include "base/mem.h"
#include "base/rng.h"
#include "math/kern.h"
#include "math/layers.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

#include "../drawn.h"
#include "../gemm_held.h"

static const char *const sets[] = { "avx512f", "avx2", "neon" };
#define SETS (sizeof(sets) / sizeof(*sets))

#define SPARE 16 /* floats behind an array, which nobody may write */
static const float untouched = 12345.0f;

static float
draw_value(struct fal_rng *r)
{
	const float v = fal_rng_unit(r) - 0.5f;
	switch (fal_rng_below(r, 12)) {
	case 0:
		return 0.0f;
	case 1: /* on both sides of the least factor */
		return v * 0x1p-39f;
	case 2:
		return v * 0x1p-126f; /* subnormal */
	default:
		return v;
	}
}

static float *
draw_array(struct fal_rng *r, size_t n)
{
	float *p = fal_calloc_aligned(n + SPARE, sizeof(*p));
	assert_non_null(p);
	for (size_t i = 0; i < n; i++)
		p[i] = draw_value(r);
	for (size_t i = 0; i < SPARE; i++)
		p[n + i] = untouched;
	return p;
}

static float
factor(float v)
{
	return fabsf(v) < 0x1p-40f ? 0.0f : v;
}

static void
expect_bits(const char *set, const char *what, const float *got, const float *want,
	    size_t n)
{
	for (size_t i = 0; i < n; i++)
		if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
			fail_msg("%s, %s: [%zu] is %a, the naive twin has %a", set, what,
				 i, (double)got[i], (double)want[i]);
	for (size_t i = n; i < n + SPARE; i++)
		if (memcmp(&got[i], &untouched, sizeof(float)) != 0)
			fail_msg("%s, %s: wrote behind the end", set, what);
}

/* ---- products --------------------------------------------------------------------- */

static void
naive_gemm(const struct fal_gemm *g)
{
	for (int i = 0; i < g->m; i++)
		for (int j = 0; j < g->n; j++) {
			float *c = &g->c[i * g->ldc + j];
			float sum = g->add ? *c : 0.0f;
			for (int p = 0; p < g->k; p++) {
				const int at = g->tb ? j * g->ldb + p : p * g->ldb + j;
				sum = fmaf(g->a[i * g->lda + p], factor(g->b[at]), sum);
			}
			*c = sum;
		}
}

static struct fal_gemm
draw_product(struct fal_rng *r, char what[static 128])
{
	const uint32_t most = one_in(r, 4) ? 700 : one_in(r, 2) ? 100 : 20;
	struct fal_gemm g = { .m = 1 + (int)fal_rng_below(r, most / 4),
			      .n = 1 + (int)fal_rng_below(r, most),
			      .k = 1 + (int)fal_rng_below(r, most),
			      .tb = one_in(r, 2),
			      .add = one_in(r, 3) };
	g.lda = g.k + (int)fal_rng_below(r, 3);
	g.ldb = (g.tb ? g.k : g.n) + (int)fal_rng_below(r, 3);
	g.ldc = g.n + (int)fal_rng_below(r, 3);
	snprintf(what, 128, "m %d, n %d, k %d, tb %d, add %d", g.m, g.n, g.k, g.tb,
		 g.add);
	return g;
}

static void
test_products(void **state)
{
	(void)state;
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 1);
	float *scratch = fal_calloc_aligned(FAL_GEMM_SCRATCH, sizeof(float));
	assert_non_null(scratch);
	for (int round = 0; round < 150; round++) {
		char what[128];
		struct fal_gemm g = draw_product(&r, what);
		const size_t as = (size_t)(g.m * g.lda), cs = (size_t)(g.m * g.ldc);
		float *a = draw_array(&r, as);
		float *b = draw_array(&r, (size_t)((g.tb ? g.n : g.k) * g.ldb));
		float *old = draw_array(&r, cs);
		float *want = draw_array(&r, cs), *got = draw_array(&r, cs);
		fal_clear_small(a, as);
		g.a = a;
		g.b = b;
		g.scratch = scratch;
		g.c = memcpy(want, old, cs * sizeof(float));
		naive_gemm(&g);
		for (size_t i = 0; i < SETS; i++) {
			if (!hold_gemm(sets[i]))
				continue;
			g.c = memcpy(got, old, cs * sizeof(float));
			fal_gemm(&g);
			expect_bits(sets[i], what, got, want, cs);
		}
		free(a);
		free(b);
		free(old);
		free(want);
		free(got);
	}
	free(scratch);
}

static void
test_small_values(void **state)
{
	(void)state;
	float v[6] = { 0x1p-40f, 0x1.fffffep-41f, -0x1p-40f, -0x1p-149f, NAN, -INFINITY };
	fal_clear_small(v, 6);
	assert_true(v[0] == 0x1p-40f && v[2] == -0x1p-40f);
	assert_true(v[1] == 0 && v[3] == 0 && !signbit(v[3]));
	assert_true(isnan(v[4]) && v[5] == -INFINITY);
}

/* ---- convolutions ----------------------------------------------------------------- */

/* x at tap (ky, kx) of output (oy, ox) of channel c, sample s. */
static float
seen(const struct fal_layer *l, const struct fal_conv *t, uint32_t c, uint32_t s,
     uint32_t oy, uint32_t ox, uint32_t ky, uint32_t kx)
{
	const uint32_t y = oy * l->stride + ky, x = ox * l->stride + kx;
	if (y < l->pad || x < l->pad || y - l->pad >= l->in.h || x - l->pad >= l->in.w)
		return 0.0f;
	return t->x[(((size_t)c * t->n + s) * l->in.h + y - l->pad) * l->in.w + x -
		    l->pad];
}

static void
naive_forward(const struct fal_layer *l, const struct fal_conv *t)
{
	float *y = t->y;
	const uint32_t k = l->kernel;
	for (uint32_t o = 0; o < l->out.c; o++)
		for (uint32_t s = 0; s < t->n; s++)
			for (uint32_t i = 0; i < l->out.h * l->out.w; i++) {
				const float *w = t->w + (size_t)o * l->in.c * k * k;
				float sum = 0.0f;
				for (uint32_t c = 0; c < l->in.c; c++)
					for (uint32_t j = 0; j < k * k; j++)
						sum = fmaf(factor(*w++),
							   seen(l, t, c, s, i / l->out.w,
								i % l->out.w, j / k,
								j % k),
							   sum);
				sum += t->bias[o];
				*y++ = sum < t->floor ? t->floor : sum;
			}
}

static void
naive_dw(const struct fal_layer *l, const struct fal_conv *t)
{
	float *dw = t->dw;
	const uint32_t k = l->kernel, plane = l->out.h * l->out.w;
	for (uint32_t o = 0; o < l->out.c; o++)
		for (uint32_t c = 0; c < l->in.c; c++)
			for (uint32_t j = 0; j < k * k; j++) {
				const float *dy = t->dy + (size_t)o * t->n * plane;
				float sum = 0.0f;
				for (uint32_t s = 0; s < t->n; s++)
					for (uint32_t i = 0; i < plane; i++)
						sum = fmaf(*dy++,
							   seen(l, t, c, s, i / l->out.w,
								i % l->out.w, j / k,
								j % k),
							   sum);
				*dw++ = sum;
			}
}

/* dx at row y, column x: a tap counts where the stride leads from an output, inside or
 * not, to the place. */
static float
naive_dx_at(const struct fal_layer *l, const struct fal_conv *t, uint32_t c, uint32_t s,
	    long y, long x)
{
	const long k = l->kernel, st = l->stride, oh = l->out.h, ow = l->out.w;
	float sum = 0.0f;
	for (uint32_t o = 0; o < l->out.c; o++)
		for (long j = 0; j < k * k; j++) {
			const long ay = y + l->pad - j / k, ax = x + l->pad - j % k;
			if (ay % st != 0 || ax % st != 0)
				continue;
			const bool inside =
				ay >= 0 && ax >= 0 && ay / st < oh && ax / st < ow;
			const size_t at = ((size_t)o * t->n + s) * (size_t)(oh * ow);
			const float *dy = t->dy + at;
			const size_t w = ((size_t)o * l->in.c + c) * (size_t)(k * k);
			sum = fmaf(factor(t->w[w + (size_t)j]),
				   inside ? dy[ay / st * ow + ax / st] : 0.0f, sum);
		}
	return sum;
}

static void
naive_dx(const struct fal_layer *l, const struct fal_conv *t)
{
	float *dx = t->dx;
	for (uint32_t c = 0; c < l->in.c; c++)
		for (uint32_t s = 0; s < t->n; s++)
			for (uint32_t i = 0; i < l->in.h * l->in.w; i++)
				*dx++ = naive_dx_at(l, t, c, s, i / l->in.w, i % l->in.w);
}

static struct fal_layer
draw_layer(struct fal_rng *r, char what[static 128])
{
	struct fal_layer l = { .kind = FAL_LAYER_CONV };
	const uint32_t side = one_in(r, 3) ? 40 : 9;
	l.kernel = 1 + fal_rng_below(r, one_in(r, 5) ? 12 : 5);
	l.pad = fal_rng_below(r, l.kernel);
	l.stride = one_in(r, 2) ? 1 : 1 + fal_rng_below(r, 4);
	l.in = (struct fal_shape){ 1 + fal_rng_below(r, 5),
				   l.kernel + fal_rng_below(r, side),
				   l.kernel + fal_rng_below(r, side), false };
	l.out = (struct fal_shape){ 1 + fal_rng_below(r, one_in(r, 4) ? 40 : 10),
				    (l.in.h + 2 * l.pad - l.kernel) / l.stride + 1,
				    (l.in.w + 2 * l.pad - l.kernel) / l.stride + 1,
				    false };
	snprintf(what, 128, "%ux%ux%u to %u, kernel %u, pad %u, stride %u", l.in.c,
		 l.in.h, l.in.w, l.out.c, l.kernel, l.pad, l.stride);
	return l;
}

/* All of a layer, on each instruction set. */
static void
compare_conv(struct fal_rng *r, const struct fal_layer *l, const char *what)
{
	const uint32_t n = 1 + fal_rng_below(r, 4);
	const size_t ws = (size_t)l->out.c * l->in.c * l->kernel * l->kernel;
	const size_t xs = (size_t)n * l->in.c * l->in.h * l->in.w;
	const size_t ys = (size_t)n * l->out.c * l->out.h * l->out.w;
	float *w = draw_array(r, ws), *bias = draw_array(r, l->out.c);
	float *x = draw_array(r, xs), *dy = draw_array(r, ys);
	float *y[2] = { draw_array(r, ys), draw_array(r, ys) };
	float *dw[2] = { draw_array(r, ws), draw_array(r, ws) };
	float *dx[2] = { draw_array(r, xs), draw_array(r, xs) };
	const uint64_t floats = fal_conv_scratch(l);
	float *scratch = fal_calloc_aligned((size_t)floats, sizeof(float));
	assert_non_null(scratch);
	fal_clear_small(x, xs);
	fal_clear_small(dy, ys);
	struct fal_conv t = { n,     w,      bias, one_in(r, 2) ? 0.0f : -INFINITY,
			      x,     y[0],   dy,   dw[0],
			      dx[0], scratch };
	naive_forward(l, &t);
	naive_dw(l, &t);
	naive_dx(l, &t);
	t.y = y[1];
	t.dw = dw[1];
	t.dx = dx[1];
	for (size_t i = 0; i < SETS; i++) {
		if (!hold_gemm(sets[i]))
			continue;
		memset(scratch, 0xff, (size_t)floats * sizeof(float));
		fal_conv_forward(l, &t);
		fal_conv_back(l, &t);
		expect_bits(sets[i], what, y[1], y[0], ys);
		expect_bits(sets[i], what, dw[1], dw[0], ws);
		expect_bits(sets[i], what, dx[1], dx[0], xs);
	}
	float *all[] = {
		w, bias, x, dy, y[0], y[1], dw[0], dw[1], dx[0], dx[1], scratch
	};
	for (size_t i = 0; i < sizeof(all) / sizeof(*all); i++)
		free(all[i]);
}

static void
test_convolutions(void **state)
{
	(void)state;
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 2);
	for (int round = 0; round < 120; round++) {
		char what[128];
		const struct fal_layer l = draw_layer(&r, what);
		compare_conv(&r, &l, what);
	}
}

static void
test_names(void **state)
{
	(void)state;
	char missing[FAL_GEMM_MISSING];
	assert_true(fal_gemm_supported(missing));
	assert_non_null(fal_gemm_isa());
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_products),
		cmocka_unit_test(test_small_values),
		cmocka_unit_test(test_convolutions),
		cmocka_unit_test(test_names),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
