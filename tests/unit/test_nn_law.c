/* The law of lib/math: the same task gives the same bits whatever the addresses, the
 * arena's past and the other lanes, and whoever listens while it is made; NaN goes
 * through; the fingerprint tells. test_nn_law-avx2 and the like are this with the kernels
 * held to one instruction set. */
#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "math/kern.h"
#include "math/layers.h"
#include "math/net.h"

#include <math.h>
#include <pthread.h>
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
#include "../held.h"
#ifdef FAL_VECTOR_HELD
#include "../gemm_held.h"
#endif

static const char lenet[] =
	"input 1 28 28\nconv 6 kernel=5 pad=2\nrelu\nmaxpool 2\n"
	"conv 16 kernel=5\ntanh\nmaxpool 2\nflatten\ndense 120\nrelu\n"
	"dense 84\nrelu\ndense 10";
#define BATCH 9u
#define SPARE 64u /* floats to move an array by */

static struct fal_model *m;
static struct fal_net *net;

/* A task's arrays, at an offset of `shift` floats from an aligned address. */
struct lane {
	struct fal_arena *a;
	float *params, *x, *grad; /* as allocated */
	uint32_t label[BATCH];
	unsigned shift;
	struct fal_loss res;
};

static void
lane_init(struct lane *l, unsigned shift)
{
	*l = (struct lane){ .shift = shift };
	assert_int_equal(fal_arena_new(net, &l->a), 0);
	l->params = fal_calloc_aligned(m->params + SPARE, sizeof(float));
	l->grad = fal_calloc_aligned(m->params + SPARE, sizeof(float));
	l->x = fal_calloc_aligned((size_t)BATCH * m->inputs + SPARE, sizeof(float));
	assert_true(l->params && l->grad && l->x);
	struct fal_rng r = fal_rng_init(7, FAL_RNG_TEST, 2);
	fal_model_init(m, 7, l->params + shift);
	for (size_t i = 0; i < (size_t)BATCH * m->inputs; i++)
		l->x[shift + i] = fal_rng_unit(&r);
	for (unsigned i = 0; i < BATCH; i++)
		l->label[i] = fal_rng_below(&r, m->classes);
}

static void
lane_free(struct lane *l)
{
	fal_arena_free(l->a);
	free(l->params);
	free(l->grad);
	free(l->x);
}

static const float *
lane_grad(struct lane *l, uint32_t n)
{
	struct fal_task t = { l->x + l->shift, l->label, n };
	float *grad = l->grad + l->shift;
	memset(grad, 0xff, m->params * sizeof(*grad));
	fal_net_grad(net, l->a, l->params + l->shift, &t, grad, &l->res);
	return grad;
}

static void
expect_equal(const float *got, const float *want, const char *what, unsigned n)
{
	for (uint64_t i = 0; i < m->params; i++)
		if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
			fail_msg("%s, n %u: gradient[%llu] is %a, was %a", what, n,
				 (unsigned long long)i, (double)got[i], (double)want[i]);
}

static void
test_alignment(void **state)
{
	(void)state;
	struct lane base, moved;
	lane_init(&base, 0);
	for (unsigned shift = 1; shift < 20; shift += 2) {
		lane_init(&moved, shift);
		for (unsigned n = 1; n <= BATCH; n++)
			expect_equal(lane_grad(&moved, n), lane_grad(&base, n),
				     "moved arrays", n);
		if (moved.res.loss != base.res.loss)
			fail_msg("loss %a, was %a", moved.res.loss, base.res.loss);
		lane_free(&moved);
	}
	lane_free(&base);
}

static void
test_arena_has_no_memory(void **state)
{
	(void)state;
	struct lane fresh, used;
	lane_init(&fresh, 0);
	lane_init(&used, 0);
	for (unsigned i = 0; i < m->inputs; i++)
		used.x[i] = NAN;
	lane_grad(&used, BATCH);
	memcpy(used.x, fresh.x, (size_t)BATCH * m->inputs * sizeof(float));
	for (unsigned n = BATCH; n >= 1; n--)
		expect_equal(lane_grad(&used, n), lane_grad(&fresh, n),
			     "an arena after NaN", n);
	lane_free(&used);
	lane_free(&fresh);
}

static void *
work(void *arg)
{
	for (unsigned i = 0; i < 40; i++)
		lane_grad(arg, BATCH);
	return NULL;
}

static void
test_lanes(void **state)
{
	(void)state;
	enum { LANES = 4 };
	struct lane lane[LANES], alone;
	pthread_t thread[LANES];
	lane_init(&alone, 0);
	for (unsigned i = 0; i < LANES; i++) {
		lane_init(&lane[i], i);
		assert_int_equal(pthread_create(&thread[i], NULL, work, &lane[i]), 0);
	}
	const float *want = lane_grad(&alone, BATCH);
	for (unsigned i = 0; i < LANES; i++) {
		assert_int_equal(pthread_join(thread[i], NULL), 0);
		expect_equal(lane[i].grad + i, want, "a lane among others", BATCH);
		lane_free(&lane[i]);
	}
	lane_free(&alone);
}

static void
test_nan_goes_through(void **state)
{
	(void)state;
	const float bad[] = { NAN, INFINITY, -INFINITY };
	for (unsigned i = 0; i < 3; i++) {
		struct lane l;
		lane_init(&l, 0);
		l.x[m->inputs + 400] = bad[i]; /* in sample 1 */
		const float *grad = lane_grad(&l, 2);
		unsigned nans = 0;
		for (uint64_t j = 0; j < m->params; j++)
			nans += grad[j] != grad[j];
		if (nans == 0 || l.res.loss == l.res.loss)
			fail_msg("input %g: loss %g, %u NaN in the gradient",
				 (double)bad[i], l.res.loss, nans);
		lane_grad(&l, 1); /* sample 0 alone is sound */
		if (!isfinite(l.res.loss))
			fail_msg("loss %g of a sound sample", l.res.loss);
		lane_free(&l);
	}
}

/* In each place of a window, in the fast pool (stride 2) and in the general one. */
static void
test_maxpool_keeps_nan(void **state)
{
	(void)state;
	for (uint32_t stride = 1; stride <= 2; stride++)
		for (uint32_t place = 0; place < 4; place++) {
			struct fal_layer l = { .kind = FAL_LAYER_MAXPOOL,
					       .in = { 1, 2, 2, false },
					       .out = { 1, 1, 1, false },
					       .kernel = 2,
					       .stride = stride };
			float x[4 + FAL_POOL_SLACK + 2] = { 1.0f, 4.0f, 2.0f, 3.0f };
			float y[1 + FAL_POOL_SLACK];
			uint8_t at[1 + FAL_POOL_SLACK];
			x[place] = NAN;
			fal_maxpool(&l, 1, x, y, at);
			if (y[0] == y[0] || at[0] != place)
				fail_msg("stride %u: NaN at %u gives %g at %u", stride,
					 place, (double)y[0], at[0]);
		}
}

static void
test_fingerprint(void **state)
{
	(void)state;
	uint8_t a[FAL_FINGERPRINT_BYTES], b[FAL_FINGERPRINT_BYTES];
	char hex[2 * FAL_FINGERPRINT_BYTES + 1];
	struct lane l;
	lane_init(&l, 0);
	assert_int_equal(fal_net_fingerprint(net, l.a, 1, a), 0);
	lane_grad(&l, 3);
	assert_int_equal(fal_net_fingerprint(net, l.a, 1, b), 0);
	assert_memory_equal(a, b, sizeof(a));
	assert_int_equal(fal_net_fingerprint(net, l.a, 2, b), 0);
	assert_memory_not_equal(a, b, sizeof(a));
	fal_hex(a, sizeof(a), hex); /* the same in every build on one machine */
	print_message("# fingerprint %s\n", hex);
	lane_free(&l);
}

static void
test_limits(void **state)
{
	(void)state;
	static const char wide[] = "input 1 1024 1024\nconv 256 kernel=1\navgpool 1024\n"
				   "flatten\ndense 2";
	struct fal_model *big;
	struct fal_net *none = NULL;
	assert_int_equal(fal_net_new(m, 0, &none), FAL_EINVAL);
	assert_int_equal(fal_model_parse("wide", wide, strlen(wide), &big, NULL), 0);
	assert_int_equal(fal_net_new(big, 8, &none), FAL_ELIMIT); /* 2^31 values */
	assert_null(none);
	assert_int_equal(fal_net_new(big, 7, &none), 0);
	assert_true(fal_arena_size(none) > (size_t)7 * 256 * 1024 * 1024 * sizeof(float));
	fal_net_free(none);
	fal_model_free(big);
	fal_net_free(NULL);
	fal_arena_free(NULL);
}

/* ---- parameters that still come, and a gradient that goes out while it is made ------
 */

/* Appends layers that keep an image's shape or make it smaller, and flattens it. */
static void
draw_image(struct fal_rng *r, char *text, size_t room)
{
	uint32_t side = 5 + fal_rng_below(r, 12);
	size_t at = strlen(text);
	at += (size_t)snprintf(text + at, room - at, "input %u %u %u\n",
			       1 + fal_rng_below(r, 3), side, side);
	for (uint32_t i = fal_rng_below(r, 6); i > 0; i--) {
		const uint32_t kernel = 1 + fal_rng_below(r, 3),
			       kind = fal_rng_below(r, 5);
		const uint32_t pad = fal_rng_below(r, kernel);
		if (kind < 2 && side + 2 * pad >= kernel) {
			at += (size_t)snprintf(text + at, room - at,
					       "conv %u kernel=%u pad=%u\n",
					       1 + fal_rng_below(r, 5), kernel, pad);
			side = side + 2 * pad - kernel + 1;
		} else if (kind == 2 && side >= 2) {
			at += (size_t)snprintf(text + at, room - at, "%spool 2\n",
					       one_in(r, 2) ? "max" : "avg");
			side /= 2;
		} else {
			at += (size_t)snprintf(text + at, room - at, "%s\n",
					       one_in(r, 2) ? "relu" : "tanh");
		}
	}
	snprintf(text + at, room - at, "flatten\n");
}

static struct fal_model *
draw_model(struct fal_rng *r)
{
	char text[1024] = "";
	struct fal_model *drawn;
	struct fal_diag diag;
	if (one_in(r, 3))
		snprintf(text, sizeof(text), "input %u\n", 1 + fal_rng_below(r, 100));
	else
		draw_image(r, text, sizeof(text));
	size_t at = strlen(text);
	for (uint32_t i = fal_rng_below(r, 4); i > 0; i--)
		at += (size_t)snprintf(text + at, sizeof(text) - at, "%sdense %u\n%s",
				       one_in(r, 2) ? "tanh\n" : "",
				       1 + fal_rng_below(r, one_in(r, 3) ? 600 : 40),
				       one_in(r, 2) ? "relu\n" : "");
	snprintf(text + at, sizeof(text) - at, "dense %u", 2 + fal_rng_below(r, 9));
	if (fal_model_parse("drawn", text, strlen(text), &drawn, &diag) < 0)
		fail_msg("%s:\n%s", diag.text, text);
	return drawn;
}

/* Who listens: parameters are here from the first one on. */
struct ears {
	const float *real; /* what all come to */
	float *params, *grad;
	uint64_t n, here;
	uint32_t needs;
	uint32_t parts; /* that layers with parameters are waited for in */
	uint32_t stop;  /* at this call of need; 0: never */
};

static bool
on_need(void *arg, uint64_t floats)
{
	struct ears *e = arg;
	if (floats <= e->here || floats > e->n)
		fail_msg("needs %llu of %llu floats, %llu were here",
			 (unsigned long long)floats, (unsigned long long)e->n,
			 (unsigned long long)e->here);
	if (++e->needs == e->stop)
		return false;
	memcpy(e->params + e->here, e->real + e->here,
	       (size_t)(floats - e->here) * sizeof(float));
	e->here = floats;
	return true;
}

/* What is not here yet is no number; nor is what was not written. */
static void
forget_all(struct ears *e)
{
	for (uint64_t i = 0; i < e->n; i++)
		e->params[i] = NAN;
	memset(e->grad, 0xff, (size_t)e->n * sizeof(float));
	e->here = 0;
	e->needs = 0;
}

static void
listen_to(struct fal_rng *r, const struct fal_net *of, const struct fal_task *t,
	  struct ears *e)
{
	const struct fal_net_wait wait = { e, on_need };
	struct fal_loss plain, res;
	struct fal_arena *a;
	float *want = fal_calloc(e->n, sizeof(float));
	assert_int_equal(fal_arena_new(of, &a), 0);
	assert_non_null(want);
	fal_net_grad(of, a, e->real, t, want, &plain);
	/* No more is wanted in the middle; the arena is as good as before. */
	e->stop = 1 + fal_rng_below(r, e->parts);
	forget_all(e);
	assert_false(fal_net_grad_waiting(of, a, e->params, t, e->grad, &res, &wait));
	assert_int_equal(e->needs, e->stop);
	e->stop = 0;
	forget_all(e);
	assert_true(fal_net_grad_waiting(of, a, e->params, t, e->grad, &res, &wait));
	assert_int_equal(e->needs, e->parts);
	assert_int_equal(e->here, e->n);
	assert_memory_equal(e->grad, want, (size_t)e->n * sizeof(float));
	if (memcmp(&res.loss, &plain.loss, sizeof(res.loss)) != 0 ||
	    res.right != plain.right)
		fail_msg("loss %a, was %a", res.loss, plain.loss);
	forget_all(e);
	assert_true(fal_net_grad_waiting(of, a, e->real, t, e->grad, &res, NULL));
	assert_memory_equal(e->grad, want, (size_t)e->n * sizeof(float));
	free(want);
	fal_arena_free(a);
}

static void
test_listeners_change_nothing(void **state)
{
	(void)state;
	struct fal_rng r =
		fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 4);
	for (int round = 0; round < 40; round++) {
		struct fal_model *drawn = draw_model(&r);
		const uint32_t batch = 1 + fal_rng_below(&r, 8);
		const uint32_t n = 1 + fal_rng_below(&r, batch);
		struct fal_net *of;
		float *real = fal_calloc(drawn->params, sizeof(float));
		float *x = fal_calloc((size_t)n * drawn->inputs, sizeof(float));
		struct ears e = { .real = real,
				  .n = drawn->params,
				  .params = fal_calloc(drawn->params, sizeof(float)),
				  .grad = fal_calloc(drawn->params, sizeof(float)) };
		uint32_t label[8];
		assert_true(real && x && e.params && e.grad);
		assert_int_equal(fal_net_new(drawn, batch, &of), 0);
		for (uint32_t i = 0; i < drawn->layers; i++) {
			const struct fal_layer *l = &drawn->layer[i];
			if (l->kind == FAL_LAYER_CONV)
				e.parts++;
			else if (l->kind == FAL_LAYER_DENSE)
				e.parts += (l->out.c + 127) / 128;
		}
		for (uint64_t i = 0; i < drawn->params; i++)
			real[i] = fal_rng_unit(&r) - 0.5f;
		for (size_t i = 0; i < (size_t)n * drawn->inputs; i++)
			x[i] = 2 * fal_rng_unit(&r) - 1;
		for (uint32_t i = 0; i < n; i++)
			label[i] = fal_rng_below(&r, drawn->classes);
		listen_to(&r, of, &(struct fal_task){ x, label, n }, &e);
		free(real);
		free(x);
		free(e.params);
		free(e.grad);
		fal_net_free(of);
		fal_model_free(drawn);
	}
}

static int
open_net(void **state)
{
	(void)state;
	return fal_model_parse("lenet", lenet, strlen(lenet), &m, NULL) != 0 ||
	       fal_net_new(m, BATCH, &net) != 0;
}

static int
close_net(void **state)
{
	(void)state;
	fal_net_free(net);
	fal_model_free(m);
	return 0;
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_alignment),
		cmocka_unit_test(test_arena_has_no_memory),
		cmocka_unit_test(test_lanes),
		cmocka_unit_test(test_listeners_change_nothing),
		cmocka_unit_test(test_nan_goes_through),
		cmocka_unit_test(test_maxpool_keeps_nan),
		cmocka_unit_test(test_fingerprint),
		cmocka_unit_test(test_limits),
	};
	if (held_in_vain())
		return 0;
#ifdef FAL_VECTOR_HELD
	(void)hold_gemm(FAL_VECTOR_HELD);
#endif
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, open_net, close_net);
}
