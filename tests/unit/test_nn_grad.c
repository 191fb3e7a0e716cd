/* lib/math against its naive twin, and the twin's gradient against finite differences. */
#include "base/mem.h"
#include "base/rng.h"
#include "math/net.h"

#include "naive_nn.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include <cmocka.h>

/* Every kind of layer; edges, strides, padding and overlap of every kind; widths around
 * multiples of 16; column matrices too large for a whole batch. */
static const char *const models[] = {
	"input 5\ndense 3",
	"input 33\ndense 17\nrelu\ndense 10 init=glorot",
	"input 9\ntanh\ndense 20\ntanh\nrelu\ndense 4",
	"input 6\nrelu\ntanh\ndense 7\nrelu\ntanh\ndense 2",
	"input 2 5 7\nflatten\ndense 4",
	"input 3 6 6\nrelu\nflatten\ndense 3",
	"input 1 8 8\nconv 3 kernel=3\nrelu\nflatten\ndense 5",
	"input 2 7 17\nconv 3 kernel=5 pad=2\ntanh\nconv 4 "
	"kernel=3\nrelu\nflatten\ndense 3",
	"input 2 9 33\nconv 5 kernel=3 pad=2\nconv 2 kernel=1\nrelu\nflatten\ndense 3",
	"input 2 11 10\nconv 3 kernel=3 stride=2 pad=1\nrelu\n"
	"conv 4 kernel=2 stride=3\nflatten\ndense 3",
	"input 1 16 16\nconv 2 kernel=16\nflatten\ndense 3",
	"input 2 8 36\nmaxpool 2\nconv 3 kernel=3 pad=1\nmaxpool 2\nflatten\ndense 3",
	"input 1 9 11\nconv 2 kernel=2\nmaxpool 2\nconv 2 kernel=1\nmaxpool "
	"2\nflatten\ndense 3",
	"input 1 9 9\nconv 3 kernel=3 pad=1\nmaxpool 3 stride=2\nrelu\nflatten\ndense 3",
	"input 1 13 13\nconv 3 kernel=2\nmaxpool 2 stride=1\nmaxpool 3\nflatten\ndense 3",
	"input 2 10 10\nconv 3 kernel=3\navgpool 2\ntanh\navgpool 3 "
	"stride=1\nflatten\ndense 3",
	"input 3 72 72\nconv 2 kernel=5 pad=2\nrelu\nmaxpool 2\nconv 16 kernel=3 pad=1\n"
	"conv 3 kernel=5 pad=2\nmaxpool 4\nflatten\ndense 4",
	"input 4 4 4\nconv 3 kernel=4\nflatten",
	"input 7\ndense 300\nrelu\ndense 129\ndense 3",
};
#define MODELS (sizeof(models) / sizeof(models[0]))
#define BATCH 5u

struct fixture {
	struct fal_model *m;
	float *params, *x, *grad;
	uint32_t label[BATCH];
	double *dparams;
};

static struct fixture
set_up(unsigned i)
{
	struct fixture f;
	struct fal_diag diag;
	if (fal_model_parse("model", models[i], strlen(models[i]), &f.m, &diag) != 0)
		fail_msg("model %u: %s", i, diag.text);
	f.params = fal_calloc(f.m->params, sizeof(*f.params));
	f.grad = fal_calloc(f.m->params, sizeof(*f.grad));
	f.dparams = fal_calloc(f.m->params, sizeof(*f.dparams));
	f.x = fal_calloc(BATCH * f.m->inputs, sizeof(*f.x));
	assert_true(f.params && f.grad && f.dparams && f.x);
	struct fal_rng r = fal_rng_init(i, FAL_RNG_TEST, 1);
	fal_model_init(f.m, i, f.params);
	for (uint64_t j = 0; j < f.m->params; j++) {
		f.params[j] += 0.1f * fal_rng_unit(&r) - 0.05f; /* biases too */
		f.dparams[j] = (double)f.params[j];
	}
	for (size_t j = 0; j < (size_t)BATCH * f.m->inputs; j++)
		f.x[j] = 2.0f * fal_rng_unit(&r) - 1.0f;
	for (unsigned j = 0; j < BATCH; j++)
		f.label[j] = fal_rng_below(&r, f.m->classes);
	return f;
}

static void
tear_down(struct fixture *f)
{
	fal_model_free(f->m);
	free(f->params);
	free(f->grad);
	free(f->dparams);
	free(f->x);
}

/* Compares the gradient of n samples with the twin's.  Tolerance: 1e-5 of the largest
 * element of the tensor, about what float sums of a few thousand terms lose. */
static void
compare(struct fixture *f, unsigned i, const struct fal_net *net, struct fal_arena *a,
	uint32_t n)
{
	struct fal_loss res;
	double *want = naive_array(f->m->params), loss = 0.0;
	for (uint32_t s = 0; s < n; s++)
		loss += naive_loss(f->m, f->dparams, f->x + s * f->m->inputs, f->label[s],
				   want);
	memset(f->grad, 0xff, f->m->params * sizeof(*f->grad));
	fal_net_grad(net, a, f->params, &(struct fal_task){ f->x, f->label, n }, f->grad,
		     &res);
	if (!(fabs(res.loss - loss) <= 1e-5 * loss))
		fail_msg("model %u n %u: loss %.9g, naive %.9g", i, n, res.loss, loss);
	for (uint32_t t = 0; t < f->m->tensors; t++) {
		const struct fal_tensor *at = &f->m->tensor[t];
		double most = 0.0;
		for (uint64_t j = at->offset; j < at->offset + at->count; j++)
			most = fmax(most, fabs(want[j]));
		for (uint64_t j = at->offset; j < at->offset + at->count; j++)
			if (!(fabs((double)f->grad[j] - want[j]) <= 1e-5 * most))
				fail_msg("model %u n %u %s[%llu]: %.9g, naive %.9g", i, n,
					 at->name, (unsigned long long)(j - at->offset),
					 (double)f->grad[j], want[j]);
	}
	free(want);
}

static void
test_gradient_equals_naive(void **state)
{
	(void)state;
	for (unsigned i = 0; i < MODELS; i++) {
		struct fixture f = set_up(i);
		struct fal_net *net;
		struct fal_arena *a;
		assert_int_equal(fal_net_new(f.m, BATCH, &net), 0);
		assert_int_equal(fal_arena_new(net, &a), 0);
		compare(&f, i, net, a, BATCH);
		compare(&f, i, net, a, 1); /* a short task, in a used arena */
		fal_arena_free(a);
		fal_net_free(net);
		tear_down(&f);
	}
}

static void
test_naive_equals_finite_difference(void **state)
{
	(void)state;
	const double step = 1e-6;
	for (unsigned i = 0; i < MODELS; i++) {
		struct fixture f = set_up(i);
		double *grad = naive_array(f.m->params);
		naive_loss(f.m, f.dparams, f.x, f.label[0], grad);
		for (uint64_t k = 0; k < 24; k++) {
			uint64_t j = k * (f.m->params - 1) / 23;
			double keep = f.dparams[j];
			f.dparams[j] = keep + step;
			double up = naive_loss(f.m, f.dparams, f.x, f.label[0], NULL);
			f.dparams[j] = keep - step;
			double down = naive_loss(f.m, f.dparams, f.x, f.label[0], NULL);
			f.dparams[j] = keep;
			double want = (up - down) / (2.0 * step);
			/* The loss, about 1, is good to 1e-16: the quotient to 1e-9. */
			if (!(fabs(grad[j] - want) <= 1e-7 + 1e-6 * fabs(want)))
				fail_msg("model %u parameter %llu: %.12g, difference "
					 "%.12g",
					 i, (unsigned long long)j, grad[j], want);
		}
		free(grad);
		tear_down(&f);
	}
}

static void
test_forward_and_eval(void **state)
{
	(void)state;
	struct fixture f = set_up(1);
	struct fal_net *net;
	struct fal_arena *a;
	assert_int_equal(fal_net_new(f.m, BATCH, &net), 0);
	assert_int_equal(fal_arena_new(net, &a), 0);
	struct fal_task t = { f.x, f.label, BATCH };
	const float *z = fal_net_forward(net, a, f.params, &t);
	for (uint32_t s = 0; s < BATCH;
	     s++) { /* make the labels right but for the last */
		uint32_t best = 0;
		for (uint32_t c = 1; c < f.m->classes; c++)
			if (z[s * f.m->classes + c] > z[s * f.m->classes + best])
				best = c;
		f.label[s] = s + 1 < BATCH ? best : (best + 1) % f.m->classes;
	}
	struct fal_loss eval, grad;
	fal_net_eval(net, a, f.params, &t, &eval);
	fal_net_grad(net, a, f.params, &t, f.grad, &grad);
	assert_int_equal(eval.right, BATCH - 1);
	assert_int_equal(grad.right, BATCH - 1);
	if (eval.loss != grad.loss)
		fail_msg("eval's loss %.17g, grad's %.17g", eval.loss, grad.loss);
	fal_arena_free(a);
	fal_net_free(net);
	tear_down(&f);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_gradient_equals_naive),
		cmocka_unit_test(test_naive_equals_finite_difference),
		cmocka_unit_test(test_forward_and_eval),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
