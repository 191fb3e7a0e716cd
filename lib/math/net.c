/* Plans an arena and walks through the layers, forward and backward.
 *
 * Activations are [C][N][H][W] before `flatten` and [N][C] after `flatten`.  relu and
 * tanh work in place: the backward pass of the layer before them reads only that layer's
 * input, and a chain of them keeps the signs and zeros that their own backward passes
 * need.
 */
#include "math/net.h"

#include "base/mem.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "math/kern.h"
#include "math/layers.h"

#include <assert.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 64 /* bytes for struct fal_arena before the floats */
#define FLOATS_MAX ((uint64_t)1 << 40)

/* Offsets of a layer's arrays in the arena. */
struct layer_plan {
	size_t out;          /* floats: the output */
	size_t at;           /* bytes: places of maxpool's maxima */
	uint64_t params_end; /* end of the parameters of this and all earlier layers */
};

struct fal_net {
	const struct fal_model *m;
	struct layer_plan *plan; /* of each layer */
	uint32_t batch;
	uint32_t first;  /* the first layer with parameters: backward ends there */
	size_t in;       /* floats: the input, [C][N][H][W] */
	size_t grad[2];  /* floats: gradients of activations, used in turn */
	size_t scratch;  /* floats: of one layer's products */
	uint64_t floats; /* of an arena */
	uint64_t bytes;  /* behind the floats */
};

struct fal_arena {
	float *f;
	uint8_t *at;
	_Atomic uint64_t steps;
};

/* The arguments of one pass. */
struct pass {
	const struct fal_net *net;
	struct fal_arena *a;
	const float *params;
	uint32_t n;
	const struct fal_net_wait *wait; /* NULL: all parameters are there */
	uint64_t awaited;                /* parameters known to be there */
};

/* Reserves an array of `n` floats; returns its offset. */
static size_t
reserve_floats(struct fal_net *net, uint64_t n)
{
	uint64_t begin = (net->floats + 15) & ~(uint64_t)15;
	net->floats = begin + n + FAL_POOL_SLACK;
	return (size_t)begin;
}

static bool
has_params(const struct fal_layer *l)
{
	return l->kind == FAL_LAYER_CONV || l->kind == FAL_LAYER_DENSE;
}

/* Fills net->plan and the sizes. */
static int
plan_arena(struct fal_net *net)
{
	const struct fal_model *m = net->m;
	uint64_t largest = m->inputs, scratch = 0; /* floats */
	for (uint32_t i = 0; i < m->layers; i++) {
		const uint64_t out = fal_shape_floats(m->layer[i].out);
		largest = out > largest ? out : largest;
	}
	largest *= net->batch;
	if (largest > INT_MAX)
		return FAL_ELIMIT;
	for (uint32_t i = 0; i < m->layers; i++) {
		const struct fal_layer *l = &m->layer[i];
		if (!has_params(l))
			continue;
		/* A dense layer needs a packed block, and dy transposed. */
		const uint64_t n =
			l->kind == FAL_LAYER_CONV
				? fal_conv_scratch(l) /* 0: the layer is too large */
				: FAL_GEMM_SCRATCH + (uint64_t)l->out.c * net->batch;
		if (n == 0)
			return FAL_ELIMIT;
		scratch = n > scratch ? n : scratch;
	}
	net->in = reserve_floats(net, (uint64_t)m->inputs * net->batch);
	/* The end of the parameters so far: the tensors lie in any order. */
	uint64_t end = 0;
	for (uint32_t i = 0; i < m->layers; i++) {
		const struct fal_layer *l = &m->layer[i];
		struct layer_plan *p = &net->plan[i];
		const uint64_t out = fal_shape_floats(l->out) * net->batch;
		if (l->kind == FAL_LAYER_RELU || l->kind == FAL_LAYER_TANH)
			p->out = i > 0 ? p[-1].out : net->in;
		else
			p->out = reserve_floats(net, out);
		if (l->kind == FAL_LAYER_MAXPOOL) {
			p->at = (size_t)net->bytes;
			net->bytes += out + FAL_POOL_SLACK;
		}
		const uint32_t of[2] = { l->weight, l->bias };
		for (int k = 0; k < 2 && has_params(l); k++) {
			const struct fal_tensor *t = &m->tensor[of[k]];
			end = t->offset + t->count > end ? t->offset + t->count : end;
		}
		p->params_end = end;
	}
	net->grad[0] = reserve_floats(net, largest);
	net->grad[1] = reserve_floats(net, largest);
	net->scratch = reserve_floats(net, scratch);
	return net->floats <= FLOATS_MAX ? FAL_OK : FAL_ELIMIT;
}

int
fal_net_check_cpu(struct fal_diag *diag)
{
	char missing[FAL_GEMM_MISSING];
	if (fal_gemm_supported(missing))
		return FAL_OK;
	return fal_diag_set(
		diag, FAL_EINVAL,
		"the CPU lacks %s: the layers need x86-64 with AVX2 and FMA, or "
		"64-bit ARM",
		missing);
}

int
fal_net_new(const struct fal_model *m, uint32_t batch, struct fal_net **out)
{
	if (batch == 0)
		return FAL_EINVAL;
	struct fal_net *net = fal_xcalloc(1, sizeof(*net));
	net->plan = fal_xcalloc(m->layers, sizeof(*net->plan));
	net->m = m;
	net->batch = batch;
	while (!has_params(&m->layer[net->first]))
		net->first++;
	if (plan_arena(net) < 0) {
		fal_net_free(net);
		return FAL_ELIMIT;
	}
	*out = net;
	return FAL_OK;
}

void
fal_net_free(struct fal_net *net)
{
	if (net == NULL)
		return;
	free(net->plan);
	free(net);
}

const struct fal_model *
fal_net_model(const struct fal_net *net)
{
	return net->m;
}

uint32_t
fal_net_batch(const struct fal_net *net)
{
	return net->batch;
}

size_t
fal_arena_size(const struct fal_net *net)
{
	return (size_t)(HEAD + net->floats * sizeof(float) + net->bytes);
}

uint64_t
fal_net_kernel_bytes(const struct fal_net *net)
{
	const struct fal_model *m = net->m;
	uint64_t most = 0;
	for (uint32_t i = 0; i < m->layers; i++) {
		const struct fal_layer *l = &m->layer[i];
		if (l->kind != FAL_LAYER_DENSE)
			continue;
		const uint64_t bytes = fal_kern_bytes(net->batch, l->out.c, l->in.c);
		most = bytes > most ? bytes : most;
	}
	return most;
}

int
fal_arena_new(const struct fal_net *net, struct fal_arena **out)
{
	_Static_assert(sizeof(struct fal_arena) <= HEAD,
		       "struct fal_arena fits into the head");
	uint8_t *p = fal_calloc_aligned(fal_arena_size(net), 1);
	if (p == NULL)
		return FAL_ENOMEM;
	struct fal_arena *a = (struct fal_arena *)p;
	a->f = (float *)(p + HEAD);
	a->at = p + HEAD + net->floats * sizeof(float);
	*out = a;
	return FAL_OK;
}

uint64_t
fal_arena_steps(const struct fal_arena *a)
{
	return atomic_load_explicit(&a->steps, memory_order_relaxed);
}

/* Counts a passed layer; only the arena's lane writes the counter. */
static void
count_step(struct fal_arena *a)
{
	atomic_store_explicit(&a->steps, fal_arena_steps(a) + 1, memory_order_relaxed);
}

void
fal_arena_free(struct fal_arena *a)
{
	free(a);
}

/* to[b][a][n] = from[a][b][n] */
static void
swap_axes(const float *from, float *to, uint32_t na, uint32_t nb, size_t n)
{
	for (size_t i = 0; i < na; i++)
		for (size_t j = 0; j < nb; j++, from += n)
			memcpy(to + (j * na + i) * n, from, n * sizeof(*to));
}

static size_t
plane_floats(struct fal_shape s)
{
	return (size_t)s.h * s.w;
}

static const float *
tensor_params(const struct pass *k, uint32_t i)
{
	return k->params + k->net->m->tensor[i].offset;
}

static float *
input_of(const struct pass *k, uint32_t i)
{
	return k->a->f + (i > 0 ? k->net->plan[i - 1].out : k->net->in);
}

/* Returns whether layer i is a relu that the layer before computes with its bias. */
static bool
is_relu_fused(const struct fal_model *m, uint32_t i)
{
	return i > 0 && i < m->layers && m->layer[i].kind == FAL_LAYER_RELU &&
	       has_params(&m->layer[i - 1]);
}

static struct fal_conv
conv_arrays(const struct pass *k, uint32_t i)
{
	return (struct fal_conv){ .n = k->n,
				  .w = tensor_params(k, k->net->m->layer[i].weight),
				  .x = input_of(k, i),
				  .scratch = k->a->f + k->net->scratch };
}

/* Rows of a dense layer's weights in one product, forward and backward: forward begins
 * when the first rows are there.  Fewer rows cost more, as the library packs x for each
 * product. The result depends on the shape alone. */
#define ROWS 128

/* Waits for the first `end` parameters.  False: k->wait cancelled the task. */
static bool
await_params(struct pass *k, uint64_t end)
{
	if (k->wait == NULL || end <= k->awaited)
		return true;
	k->awaited = end;
	return k->wait->need(k->wait->arg, end);
}

/* y [N][O] = x [N][C] · wᵀ [C][O] + b.  False: cancelled. */
static bool
dense_forward(struct pass *k, uint32_t i, float *y, float floor)
{
	const struct fal_model *m = k->net->m;
	const struct fal_layer *l = &m->layer[i];
	const uint32_t in = l->in.c, out = l->out.c;
	const uint64_t w = m->tensor[l->weight].offset;
	struct fal_gemm g = {
		.m = (int)k->n,
		.k = (int)in,
		.a = input_of(k, i),
		.lda = (int)in,
		.ldb = (int)in,
		.tb = true,
		.ldc = (int)out,
		.scratch = k->a->f + k->net->scratch,
	};
	for (uint32_t from = 0, end; from < out; from = end) {
		end = out - from > ROWS ? from + ROWS : out;
		if (!await_params(k, end < out ? w + (uint64_t)end * in
					       : k->net->plan[i].params_end))
			return false;
		g.n = (int)(end - from);
		g.b = k->params + w + (uint64_t)from * in;
		g.c = y + from;
		fal_gemm(&g);
	}
	fal_bias_cols(y, k->n, out, tensor_params(k, l->bias), floor);
	return true;
}

/* Computes the output of layer i.  False: cancelled. */
static bool
forward_layer(struct pass *k, uint32_t i)
{
	const struct fal_model *m = k->net->m;
	const struct fal_layer *l = &m->layer[i];
	const float *x = input_of(k, i);
	float *y = k->a->f + k->net->plan[i].out;
	size_t n = k->n, out = (size_t)fal_shape_floats(l->out);
	float floor = is_relu_fused(m, i + 1) ? 0.0f : -INFINITY;
	if (has_params(l))
		fal_clear_small(input_of(k, i), n * (size_t)fal_shape_floats(l->in));
	switch (l->kind) {
	case FAL_LAYER_CONV: {
		if (!await_params(k, k->net->plan[i].params_end))
			return false;
		struct fal_conv t = conv_arrays(k, i);
		t.y = y;
		t.bias = tensor_params(k, l->bias);
		t.floor = floor;
		fal_conv_forward(l, &t);
		break;
	}
	case FAL_LAYER_DENSE:
		return dense_forward(k, i, y, floor);
	case FAL_LAYER_RELU:
		if (!is_relu_fused(m, i))
			fal_relu(y, n * out);
		break;
	case FAL_LAYER_TANH:
		fal_tanh_all(y, n * out);
		break;
	case FAL_LAYER_MAXPOOL:
		fal_maxpool(l, l->in.c * n, x, y, k->a->at + k->net->plan[i].at);
		break;
	case FAL_LAYER_AVGPOOL:
		fal_avgpool(l, l->in.c * n, x, y);
		break;
	case FAL_LAYER_FLATTEN:
		swap_axes(x, y, l->in.c, k->n, plane_floats(l->in));
		break;
	}
	return true;
}

/* dw [O][C] = dyᵀ [O][N] · x [N][C];  dx [N][C] = dy [N][O] · w [O][C] */
static void
dense_back(const struct pass *k, uint32_t i, const float *dy, float *grad, float *dx)
{
	const struct fal_model *m = k->net->m;
	const struct fal_layer *l = &m->layer[i];
	const uint32_t in = l->in.c, out = l->out.c;
	const uint64_t w = m->tensor[l->weight].offset;
	float *scratch = k->a->f + k->net->scratch;
	float *turned = scratch + FAL_GEMM_SCRATCH; /* dyᵀ [O][N] */
	if (dx != NULL)
		fal_gemm(&(struct fal_gemm){ .m = (int)k->n,
					     .n = (int)in,
					     .k = (int)out,
					     .a = dy,
					     .lda = (int)out,
					     .b = tensor_params(k, l->weight),
					     .ldb = (int)in,
					     .c = dx,
					     .ldc = (int)in,
					     .scratch = scratch });
	fal_sum_cols(dy, k->n, out, grad + m->tensor[l->bias].offset);
	fal_transpose(dy, k->n, out, turned);
	fal_gemm(&(struct fal_gemm){ .m = (int)out,
				     .n = (int)in,
				     .k = (int)k->n,
				     .a = turned,
				     .lda = (int)k->n,
				     .b = input_of(k, i),
				     .ldb = (int)in,
				     .c = grad + w,
				     .ldc = (int)in,
				     .scratch = scratch });
}

/* Turns d[0], the gradient of layer i's output, into the gradient of its input; d[1] is
 * scratch. */
static void
back_layer(const struct pass *k, uint32_t i, float *d[2], float *grad)
{
	const struct fal_model *m = k->net->m;
	const struct fal_layer *l = &m->layer[i];
	const float *y = k->a->f + k->net->plan[i].out;
	size_t n = k->n, out = (size_t)fal_shape_floats(l->out);
	float *dx = i > k->net->first ? d[1] : NULL;
	if (has_params(l))
		fal_clear_small(d[0], n * out);
	switch (l->kind) {
	case FAL_LAYER_CONV: {
		struct fal_conv t = conv_arrays(k, i);
		t.dy = d[0];
		t.dw = grad + m->tensor[l->weight].offset;
		t.dx = dx;
		fal_conv_back(l, &t);
		fal_sum_rows(d[0], l->out.c, n * plane_floats(l->out),
			     grad + m->tensor[l->bias].offset);
		break;
	}
	case FAL_LAYER_DENSE:
		dense_back(k, i, d[0], grad, dx);
		break;
	case FAL_LAYER_RELU:
		fal_relu_back(d[0], y, n * out);
		return;
	case FAL_LAYER_TANH:
		fal_tanh_back(d[0], y, n * out);
		return;
	case FAL_LAYER_MAXPOOL:
		fal_maxpool_back(l, l->in.c * n, d[0], k->a->at + k->net->plan[i].at, dx);
		break;
	case FAL_LAYER_AVGPOOL:
		fal_avgpool_back(l, l->in.c * n, d[0], dx);
		break;
	case FAL_LAYER_FLATTEN:
		swap_axes(d[0], dx, k->n, l->in.c, plane_floats(l->in));
		break;
	}
	d[1] = d[0];
	d[0] = dx;
}

/* Returns the logits; NULL: cancelled. */
static const float *
forward_all(struct pass *k, const float *x)
{
	const struct fal_net *net = k->net;
	const struct fal_model *m = net->m;
	assert(k->n > 0 && k->n <= net->batch);
	if (m->input.flat)
		swap_axes(x, k->a->f + net->in, 1, 1, (size_t)m->inputs * k->n);
	else
		swap_axes(x, k->a->f + net->in, k->n, m->input.c, plane_floats(m->input));
	for (uint32_t i = 0; i < m->layers; i++, count_step(k->a))
		if (!forward_layer(k, i))
			return NULL;
	return k->a->f + net->plan[m->layers - 1].out;
}

const float *
fal_net_forward(const struct fal_net *net, struct fal_arena *a, const float *params,
		const struct fal_task *t)
{
	uint64_t before = fal_kern_begin();
	const float *z =
		forward_all(&(struct pass){ net, a, params, t->n, NULL, 0 }, t->x);
	fal_kern_end(before);
	return z;
}

void
fal_net_eval(const struct fal_net *net, struct fal_arena *a, const float *params,
	     const struct fal_task *t, struct fal_loss *res)
{
	const float *z = fal_net_forward(net, a, params, t);
	fal_softmax_loss(z, t->label, t->n, net->m->classes, NULL, res);
}

void
fal_net_grad(const struct fal_net *net, struct fal_arena *a, const float *params,
	     const struct fal_task *t, float *grad, struct fal_loss *res)
{
	(void)fal_net_grad_waiting(net, a, params, t, grad, res, NULL);
}

bool
fal_net_grad_waiting(const struct fal_net *net, struct fal_arena *a, const float *params,
		     const struct fal_task *t, float *grad, struct fal_loss *res,
		     const struct fal_net_wait *wait)
{
	struct pass k = { net, a, params, t->n, wait, 0 };
	float *d[2] = { a->f + net->grad[0], a->f + net->grad[1] };
	uint64_t before = fal_kern_begin();
	const float *z = forward_all(&k, t->x);
	if (z != NULL)
		fal_softmax_loss(z, t->label, t->n, net->m->classes, d[0], res);
	for (uint32_t i = net->m->layers; z != NULL && i-- > net->first; count_step(a))
		back_layer(&k, i, d, grad);
	fal_kern_end(before);
	return z != NULL;
}

/* ---- the numerics fingerprint: hashes the gradient of a random task and calculations
 * with subnormal numbers ---- */

enum { SUBNORMAL = 4 };

int
fal_net_fingerprint(const struct fal_net *net, struct fal_arena *a, uint64_t seed,
		    uint8_t out[static FAL_FINGERPRINT_BYTES])
{
	static const volatile float small[2] = { FLT_MIN, FLT_MIN / 4 };
	const struct fal_model *m = fal_net_model(net);
	uint32_t n = fal_net_batch(net);
	size_t inputs = (size_t)n * m->inputs;
	float *params = fal_calloc_aligned(m->params, sizeof(*params));
	float *grad = fal_calloc_aligned(m->params + SUBNORMAL, sizeof(*grad));
	float *x = fal_calloc_aligned(inputs, sizeof(*x));
	uint32_t *label = fal_calloc(n, sizeof(*label));
	uint8_t hash[FAL_HASH_BYTES];
	int err = FAL_ENOMEM;
	if (params == NULL || grad == NULL || x == NULL || label == NULL)
		goto free_all;
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	struct fal_loss res;
	fal_model_init(m, seed, params);
	for (size_t i = 0; i < inputs; i++)
		x[i] = fal_rng_unit(&r);
	for (uint32_t i = 0; i < n; i++)
		label[i] = fal_rng_below(&r, m->classes);
	fal_net_grad(net, a, params, &(struct fal_task){ x, label, n }, grad, &res);
	/* The first two of the last results are subnormal or have a subnormal factor: a
	 * thread that flushes such numbers to zero gets other bits.  The last two are
	 * products of small values, which the matrix product leaves out. */
	float *last = grad + m->params;
	const float one = 1, b[2] = { small[0], small[1] };
	const uint64_t before = fal_kern_begin();
	last[0] = small[0] * 0x1.000002p-1f;
	last[1] = small[1] * 0x1p20f;
	fal_gemm(&(struct fal_gemm){ .m = 1,
				     .n = 2,
				     .k = 1,
				     .a = &one,
				     .lda = 1,
				     .b = b,
				     .ldb = 2,
				     .c = last + 2,
				     .ldc = 2,
				     .scratch = a->f + net->scratch });
	fal_kern_end(before);
	fal_hash(grad, (m->params + SUBNORMAL) * sizeof(*grad), hash);
	memcpy(out, hash, FAL_FINGERPRINT_BYTES);
	err = FAL_OK;
free_all:
	free(label);
	free(x);
	free(grad);
	free(params);
	return err;
}
