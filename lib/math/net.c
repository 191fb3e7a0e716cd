/* The plan of an arena, and the walk through the layers and back.
 *
 * Activations are [C][N][H][W] before `flatten` and [N][C] behind it.  relu and tanh work
 * in place: what is before them needs only its input to go back, and in a chain of them
 * the signs and zeros that they leave are those they need.
 */
#include "math/net.h"

#include "base/mem.h"
#include "math/kern.h"
#include "math/layers.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#define HEAD 64 /* bytes before the floats: struct fal_arena */
/* Aim of one column matrix: a quarter of an L2 cache of 1 MB, as gemm packs a copy of it
 * there and its product follows; at four times that LeNet-5 takes half as long again
 * (AVX-512).  More, up to the most, where it would have too few columns for gemm. */
#define COL_FLOATS ((uint64_t)1 << 16)
#define COL_FLOATS_MAX ((uint64_t)1 << 18)
#define COLUMNS 256
#define FLOATS_MAX ((uint64_t)1 << 40)

/* Where a layer's things lie in the arena. */
struct place {
	size_t out;     /* floats: its output */
	size_t at;      /* bytes: maxpool's places of the maxima */
	uint32_t chunk; /* conv: samples at a time */
	bool keeps_col; /* it has a column matrix of its own, kept for the way back */
	size_t col;     /* floats: that */
	uint64_t end;   /* parameters: those of it, and of all layers before, end here */
};

struct fal_net {
	const struct fal_model *m;
	struct place *place; /* of each layer */
	uint32_t batch;
	uint32_t first;  /* the first layer that has parameters: backward ends there */
	size_t slack;    /* floats kept free on both sides of each array */
	size_t in;       /* floats: the input, [C][N][H][W] */
	size_t grad[2];  /* floats: gradients of activations, used in turn */
	size_t col;      /* floats: column matrix of the others */
	uint64_t floats; /* of an arena */
	uint64_t bytes;  /* behind them */
};

struct fal_arena {
	float *f;
	uint8_t *at;
	_Atomic uint64_t steps;
};

/* One walk's arguments. */
struct walk {
	const struct fal_net *net;
	struct fal_arena *a;
	const float *params;
	uint32_t n;
	const struct fal_net_wait *wait; /* NULL: all parameters are there */
	uint64_t asked;                  /* of wait->need, so far */
};

/* Takes an array of `n` floats; returns where it begins. */
static size_t
reserve(struct fal_net *net, uint64_t n)
{
	uint64_t begin = (net->floats + net->slack + 15) & ~(uint64_t)15;
	net->floats = begin + n + net->slack;
	return (size_t)begin;
}

static bool
has_params(const struct fal_layer *l)
{
	return l->kind == FAL_LAYER_CONV || l->kind == FAL_LAYER_DENSE;
}

/* Floats of a column matrix for one sample; 0 when there is none. */
static uint64_t
column_floats(const struct fal_layer *l)
{
	if (l->kind != FAL_LAYER_CONV)
		return 0;
	return (uint64_t)l->in.c * l->kernel * l->kernel * l->out.h * l->out.w;
}

/* Takes the column matrix of a convolution whose whole batch fits into the aim; else
 * only widens `*shared`, floats of the one matrix that the others use in turn. */
static void
plan_columns(struct fal_net *net, const struct fal_layer *l, struct place *p,
	     uint64_t *shared)
{
	const uint64_t col = column_floats(l), plane = (uint64_t)l->out.h * l->out.w;
	const uint64_t least = (COLUMNS + plane - 1) / plane, most = COL_FLOATS_MAX / col;
	uint64_t fit = COL_FLOATS / col;
	if (fit < least)
		fit = least < most ? least : most;
	p->chunk = fit > net->batch ? net->batch : fit > 0 ? (uint32_t)fit : 1;
	p->keeps_col = p->chunk == net->batch;
	if (p->keeps_col)
		p->col = reserve(net, col * p->chunk);
	else
		*shared = col * p->chunk > *shared ? col * p->chunk : *shared;
}

static void
plan_layer(struct fal_net *net, uint32_t i, uint64_t *shared)
{
	const struct fal_layer *l = &net->m->layer[i];
	struct place *p = &net->place[i];
	uint64_t out = fal_shape_floats(l->out) * net->batch;
	if (l->kind == FAL_LAYER_RELU || l->kind == FAL_LAYER_TANH)
		p->out = i > 0 ? p[-1].out : net->in;
	else
		p->out = reserve(net, out);
	if (l->kind == FAL_LAYER_MAXPOOL) {
		p->at = (size_t)net->bytes;
		net->bytes += out + FAL_POOL_SLACK;
	}
	if (l->kind == FAL_LAYER_CONV)
		plan_columns(net, l, p, shared);
}

/* The most floats an activation of the batch has, or 0 when something is too large. */
static uint64_t
widest(const struct fal_net *net)
{
	const struct fal_model *m = net->m;
	uint64_t most = m->inputs;
	for (uint32_t i = 0; i < m->layers; i++) {
		uint64_t out = fal_shape_floats(m->layer[i].out);
		most = out > most ? out : most;
		if (column_floats(&m->layer[i]) > FLOATS_MAX)
			return 0;
	}
	return most * net->batch <= INT_MAX ? most * net->batch : 0;
}

/* Where the parameters of the first layers end, this one's with them, wherever each
 * tensor lies. */
static void
plan_ends(struct fal_net *net)
{
	const struct fal_model *m = net->m;
	uint64_t end = 0;
	for (uint32_t i = 0; i < m->layers; i++) {
		const uint32_t of[2] = { m->layer[i].weight, m->layer[i].bias };
		for (int k = 0; k < 2 && has_params(&m->layer[i]); k++) {
			const struct fal_tensor *t = &m->tensor[of[k]];
			end = t->offset + t->count > end ? t->offset + t->count : end;
		}
		net->place[i].end = end;
	}
}

/* Fills net->place and the sizes. */
static int
plan(struct fal_net *net)
{
	const struct fal_model *m = net->m;
	uint64_t most = widest(net), shared = 0;
	if (most == 0)
		return FAL_ELIMIT;
	net->slack = FAL_POOL_SLACK;
	for (uint32_t i = 0; i < m->layers; i++)
		if (m->layer[i].kind == FAL_LAYER_CONV &&
		    FAL_CONV_SLACK(&m->layer[i]) > net->slack)
			net->slack = FAL_CONV_SLACK(&m->layer[i]);
	net->in = reserve(net, (uint64_t)m->inputs * net->batch);
	for (uint32_t i = 0; i < m->layers; i++)
		plan_layer(net, i, &shared);
	plan_ends(net);
	net->grad[0] = reserve(net, most);
	net->grad[1] = reserve(net, most);
	net->col = reserve(net, shared);
	return net->floats <= FLOATS_MAX ? FAL_OK : FAL_ELIMIT;
}

int
fal_net_new(const struct fal_model *m, uint32_t batch, struct fal_net **out)
{
	if (batch == 0)
		return FAL_EINVAL;
	struct fal_net *net = fal_xcalloc(1, sizeof(*net));
	net->place = fal_xcalloc(m->layers, sizeof(*net->place));
	net->m = m;
	net->batch = batch;
	while (!has_params(&m->layer[net->first]))
		net->first++;
	if (plan(net) < 0) {
		fal_net_free(net);
		return FAL_ELIMIT;
	}
	fal_kern_init();
	*out = net;
	return FAL_OK;
}

void
fal_net_free(struct fal_net *net)
{
	if (net == NULL)
		return;
	free(net->place);
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
		uint64_t rows = net->batch, in = l->in.c;
		if (!has_params(l))
			continue;
		if (l->kind == FAL_LAYER_CONV) {
			rows = net->place[i].chunk * (uint64_t)l->out.h * l->out.w;
			in *= (uint64_t)l->kernel * l->kernel;
		}
		const uint64_t bytes = fal_kern_bytes(rows, l->out.c, in);
		most = bytes > most ? bytes : most;
	}
	return most;
}

int
fal_arena_new(const struct fal_net *net, struct fal_arena **out)
{
	_Static_assert(sizeof(struct fal_arena) <= HEAD, "the head holds it");
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

/* A layer was passed; the lane alone writes it. */
static void
step(struct fal_arena *a)
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
plane(struct fal_shape s)
{
	return (size_t)s.h * s.w;
}

static const float *
tensor(const struct walk *k, uint32_t i)
{
	return k->params + k->net->m->tensor[i].offset;
}

static float *
input_of(const struct walk *k, uint32_t i)
{
	return k->a->f + (i > 0 ? k->net->place[i - 1].out : k->net->in);
}

/* Whether layer i is a relu that the bias before it does on the way. */
static bool
is_fused(const struct fal_model *m, uint32_t i)
{
	return i > 0 && i < m->layers && m->layer[i].kind == FAL_LAYER_RELU &&
	       has_params(&m->layer[i - 1]);
}

static struct fal_conv
conv_task(const struct walk *k, uint32_t i)
{
	const struct place *p = &k->net->place[i];
	return (struct fal_conv){ .n = k->n,
				  .chunk = p->chunk,
				  .keeps_col = p->keeps_col,
				  .w = tensor(k, k->net->m->layer[i].weight),
				  .x = input_of(k, i),
				  .col = k->a->f +
					 (p->keeps_col ? p->col : k->net->col) };
}

/* Rows of a dense layer's weights that are at work at a time, for its output and for
 * their gradient: a forward begins when the first ones are there.  Fewer cost more, as
 * the library packs x for each.  What comes of it depends on nothing but the shape. */
#define ROWS 128

/* Waits for the first `end` parameters.  False: k->wait did not want any more. */
static bool
await(struct walk *k, uint64_t end)
{
	if (k->wait == NULL || end <= k->asked)
		return true;
	k->asked = end;
	return k->wait->need(k->wait->arg, end);
}

/* y [N][O] = x [N][C] · wᵀ [C][O] + b.  False: as await. */
static bool
dense_forward(struct walk *k, uint32_t i, float *y, float floor)
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
	};
	for (uint32_t from = 0, end; from < out; from = end) {
		end = out - from > ROWS ? from + ROWS : out;
		if (!await(k, end < out ? w + (uint64_t)end * in : k->net->place[i].end))
			return false;
		g.n = (int)(end - from);
		g.b = k->params + w + (uint64_t)from * in;
		g.c = y + from;
		fal_gemm(&g);
	}
	fal_bias_cols(y, k->n, out, tensor(k, l->bias), floor);
	return true;
}

/* False: as await. */
static bool
forward_layer(struct walk *k, uint32_t i)
{
	const struct fal_model *m = k->net->m;
	const struct fal_layer *l = &m->layer[i];
	const float *x = input_of(k, i);
	float *y = k->a->f + k->net->place[i].out;
	size_t n = k->n, out = (size_t)fal_shape_floats(l->out);
	float floor = is_fused(m, i + 1) ? 0.0f : -INFINITY;
	switch (l->kind) {
	case FAL_LAYER_CONV: {
		if (!await(k, k->net->place[i].end))
			return false;
		struct fal_conv t = conv_task(k, i);
		t.y = y;
		fal_conv_forward(l, &t);
		fal_bias_rows(y, l->out.c, n * plane(l->out), tensor(k, l->bias), floor);
		break;
	}
	case FAL_LAYER_DENSE:
		return dense_forward(k, i, y, floor);
	case FAL_LAYER_RELU:
		if (!is_fused(m, i))
			fal_relu(y, n * out);
		break;
	case FAL_LAYER_TANH:
		fal_tanh_all(y, n * out);
		break;
	case FAL_LAYER_MAXPOOL:
		fal_maxpool(l, l->in.c * n, x, y, k->a->at + k->net->place[i].at);
		break;
	case FAL_LAYER_AVGPOOL:
		fal_avgpool(l, l->in.c * n, x, y);
		break;
	case FAL_LAYER_FLATTEN:
		swap_axes(x, y, l->in.c, k->n, plane(l->in));
		break;
	}
	return true;
}

/* dw [O][C] = dyᵀ [O][N] · x [N][C];  dx [N][C] = dy [N][O] · w [O][C] */
static void
dense_back(const struct walk *k, uint32_t i, const float *dy, float *grad, float *dx)
{
	const struct fal_model *m = k->net->m;
	const struct fal_layer *l = &m->layer[i];
	const uint32_t in = l->in.c, out = l->out.c;
	const uint64_t w = m->tensor[l->weight].offset;
	struct fal_gemm dw = {
		.n = (int)in,
		.k = (int)k->n,
		.lda = (int)out,
		.ta = true,
		.b = input_of(k, i),
		.ldb = (int)in,
		.ldc = (int)in,
	};
	if (dx != NULL)
		fal_gemm(&(struct fal_gemm){ .m = (int)k->n,
					     .n = (int)in,
					     .k = (int)out,
					     .a = dy,
					     .lda = (int)out,
					     .b = tensor(k, l->weight),
					     .ldb = (int)in,
					     .c = dx,
					     .ldc = (int)in });
	fal_sum_cols(dy, k->n, out, grad + m->tensor[l->bias].offset);
	for (uint32_t end = out, from; end > 0; end = from) {
		from = (end - 1) / ROWS * ROWS;
		dw.m = (int)(end - from);
		dw.a = dy + from;
		dw.c = grad + w + (uint64_t)from * in;
		fal_gemm(&dw);
	}
}

/* d[0], the gradient of layer i's output, becomes that of its input; d[1] is scratch. */
static void
back_layer(const struct walk *k, uint32_t i, float *d[2], float *grad)
{
	const struct fal_model *m = k->net->m;
	const struct fal_layer *l = &m->layer[i];
	const float *y = k->a->f + k->net->place[i].out;
	size_t n = k->n, out = (size_t)fal_shape_floats(l->out);
	float *dx = i > k->net->first ? d[1] : NULL;
	switch (l->kind) {
	case FAL_LAYER_CONV: {
		struct fal_conv t = conv_task(k, i);
		t.dy = d[0];
		t.dw = grad + m->tensor[l->weight].offset;
		t.dx = dx;
		fal_conv_back(l, &t);
		fal_sum_rows(d[0], l->out.c, n * plane(l->out),
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
		fal_maxpool_back(l, l->in.c * n, d[0], k->a->at + k->net->place[i].at,
				 dx);
		break;
	case FAL_LAYER_AVGPOOL:
		fal_avgpool_back(l, l->in.c * n, d[0], dx);
		break;
	case FAL_LAYER_FLATTEN:
		swap_axes(d[0], dx, k->n, l->in.c, plane(l->in));
		break;
	}
	d[1] = d[0];
	d[0] = dx;
}

/* NULL: k->wait did not want any more. */
static const float *
forward(struct walk *k, const float *x)
{
	const struct fal_net *net = k->net;
	const struct fal_model *m = net->m;
	assert(k->n > 0 && k->n <= net->batch);
	if (m->input.flat)
		swap_axes(x, k->a->f + net->in, 1, 1, (size_t)m->inputs * k->n);
	else
		swap_axes(x, k->a->f + net->in, k->n, m->input.c, plane(m->input));
	for (uint32_t i = 0; i < m->layers; i++, step(k->a))
		if (!forward_layer(k, i))
			return NULL;
	return k->a->f + net->place[m->layers - 1].out;
}

const float *
fal_net_forward(const struct fal_net *net, struct fal_arena *a, const float *params,
		const struct fal_task *t)
{
	unsigned before = fal_kern_flush();
	const float *z = forward(&(struct walk){ net, a, params, t->n, NULL, 0 }, t->x);
	fal_kern_unflush(before);
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
	struct walk k = { net, a, params, t->n, wait, 0 };
	float *d[2] = { a->f + net->grad[0], a->f + net->grad[1] };
	unsigned before = fal_kern_flush();
	const float *z = forward(&k, t->x);
	if (z != NULL)
		fal_softmax_loss(z, t->label, t->n, net->m->classes, d[0], res);
	for (uint32_t i = net->m->layers; z != NULL && i-- > net->first; step(a))
		back_layer(&k, i, d, grad);
	fal_kern_unflush(before);
	return z != NULL;
}
