/* The law of lib/nn: the same task gives the same bits whatever the addresses, the
 * arena's past and the other lanes; NaN goes through; the fingerprint tells. */
#include "base/mem.h"
#include "base/parse.h"
#include "base/rng.h"
#include "nn/fingerprint.h"
#include "nn/net.h"
#include "nn/pool.h"

#include <math.h>
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

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
		cmocka_unit_test(test_nan_goes_through),
		cmocka_unit_test(test_maxpool_keeps_nan),
		cmocka_unit_test(test_fingerprint),
		cmocka_unit_test(test_limits),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, open_net, close_net);
}
