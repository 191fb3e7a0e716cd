/* Convolution without a column matrix: products straight from the image.
 *
 * A sample's image is copied into a frame of zeros, with `wide` floats a row, and all
 * columns of a product are places of the frame: for tap (c, ky, kx) the values that the
 * outputs see lie one after another, from the tap's offset on.  At the end of each row
 * the product has a few columns too many, which are left out.  With a stride s the frame
 * is split into s·s phases, each with every s-th row and column of the image, and within
 * a phase the values lie one after another again.
 *
 * The padding's zeros are factors like all others.  Orders of sums:
 *
 *	y[o][y][x]        taps (c, ky, kx), then the bias
 *	dw[o][c][ky][kx]  samples, then rows, then columns
 *	dx[c][y][x]       taps (o, ky, kx)
 */
#include "math/layers.h"

#include "base/vector.h"
#include "math/gemm_priv.h"
#include "math/kern.h"

#include <math.h>
#include <string.h>

/* Reads may end so many floats behind a frame. */
enum { BEHIND = 64 };

/* A frame of an image: [channels][s·s phases][high][wide]. */
struct frame {
	int stride, pad;
	int high, wide; /* of a phase */
	int phase;      /* floats of a phase */
	int channel;    /* floats of a channel */
};

/* Sizes and scratch of one layer. */
struct conv_plan {
	int k, pad, s;
	int in, out;     /* channels */
	int h, w;        /* rows and columns of x */
	int y, x;        /* of y */
	int taps;        /* in·k·k */
	int outs;        /* `out`, rounded up to whole vectors */
	struct frame f;  /* of x */
	struct frame fd; /* of dy */
	int ld;          /* floats of a channel of the product y, rounded up */
	int ldx;         /* likewise of a phase of dx */
	/* Offsets in the scratch. */
	size_t image, product, weights, dyt, dwt, at, at_x, at_y;
	size_t floats;
};

static int
round_up(int n)
{
	return (n + FAL_LANES - 1) / FAL_LANES * FAL_LANES;
}

static int
larger(int a, int b)
{
	return a > b ? a : b;
}

static size_t
reserve(struct conv_plan *p, int64_t n)
{
	const size_t at = p->floats;
	p->floats += ((size_t)n + FAL_LANES - 1) / FAL_LANES * FAL_LANES;
	return at;
}

static struct frame
plan_frame(int stride, int pad, int high, int wide)
{
	const int phase = high * wide;
	return (struct frame){ stride, pad, high, wide, phase, phase * stride * stride };
}

static struct conv_plan
plan_conv(const struct fal_layer *l)
{
	struct conv_plan p = { .k = (int)l->kernel,
			       .pad = (int)l->pad,
			       .s = (int)l->stride,
			       .in = (int)l->in.c,
			       .out = (int)l->out.c,
			       .h = (int)l->in.h,
			       .w = (int)l->in.w,
			       .y = (int)l->out.h,
			       .x = (int)l->out.w };
	const int kk = p.k * p.k, reach = (p.k - 1) / p.s;
	p.taps = p.in * kk;
	p.outs = round_up(p.out);
	p.f = plan_frame(p.s, p.pad, p.y + reach, p.x + reach);
	p.ld = round_up((p.y - 1) * p.f.wide + p.x);
	/* For dx: dy with `before` zeros around it. */
	const int before = (p.k - 1 - p.pad) / p.s, after = (p.s - 1 + p.pad) / p.s;
	const int high = (p.h + p.s - 1) / p.s, wide = (p.w + p.s - 1) / p.s;
	p.fd = plan_frame(1, before, before + larger(high + after, p.y),
			  before + larger(wide + after, p.x));
	p.ldx = round_up((high - 1) * p.fd.wide + wide);
	const int64_t image = (int64_t)p.in * p.f.channel,
		      gradient = (int64_t)p.out * p.fd.channel;
	p.image = reserve(&p, (image > gradient ? image : gradient) + BEHIND);
	const int64_t y = (int64_t)p.out * p.ld, dx = (int64_t)p.in * p.ldx;
	p.product = reserve(&p, y > dx ? y : dx);
	p.weights = reserve(&p, (int64_t)p.out * p.taps);
	p.dyt = reserve(&p, (int64_t)p.y * p.x * p.outs);
	p.dwt = reserve(&p, (int64_t)p.taps * p.outs);
	p.at = reserve(&p, (int64_t)larger(p.in, p.out) * kk);
	p.at_x = reserve(&p, (int64_t)p.y * p.x);
	p.at_y = reserve(&p, (int64_t)p.y * p.x);
	return p;
}

uint64_t
fal_conv_scratch(const struct fal_layer *l)
{
	/* All offsets are ints: of a padded channel, of rounded channels, of weights. */
	const uint64_t kk = (uint64_t)l->kernel * l->kernel;
	const uint64_t most = l->in.c > l->out.c ? l->in.c : l->out.c;
	const uint64_t high = l->in.h + 2 * (uint64_t)l->kernel + 2 * l->stride,
		       wide = l->in.w + 2 * (uint64_t)l->kernel + 2 * l->stride;
	if (high * wide > INT32_MAX || (most + FAL_LANES) * high * wide > INT32_MAX ||
	    (most + FAL_LANES) * l->in.c > INT32_MAX ||
	    (most + FAL_LANES) * l->in.c * kk > INT32_MAX || most * kk > INT32_MAX)
		return 0;
	return plan_conv(l).floats;
}

/* ---- rows, 16 floats at a time ---------------------------------------------------- */

/* to = max(from + bias, floor) for n ≥ lanes floats; the last lanes overlap. */
static inline __attribute__((always_inline)) void
finish_lanes(float *restrict to, const float *restrict from, int n, float bias,
	     float floor, const int lanes)
{
	for (int x = 0; x < n; x += lanes) {
		x = x > n - lanes ? n - lanes : x;
		for (int i = 0; i < lanes; i++) {
			const float v = from[x + i] + bias;
			to[x + i] = v < floor ? floor : v;
		}
	}
}

static inline __attribute__((always_inline)) void
finish_row(float *restrict to, const float *restrict from, int n, float bias, float floor)
{
	if (n >= FAL_LANES)
		finish_lanes(to, from, n, bias, floor, FAL_LANES);
	else if (n >= 8)
		finish_lanes(to, from, n, bias, floor, 8);
	else if (n >= 4)
		finish_lanes(to, from, n, bias, floor, 4);
	else
		finish_lanes(to, from, n, bias, floor, 1);
}

/* A copy, as no image and no product has a -0. */
static inline __attribute__((always_inline)) void
copy_row(float *restrict to, const float *restrict from, int n)
{
	finish_row(to, from, n, 0.0f, -INFINITY);
}

/* Copies the image of sample s, [channels][n][h][w], into the frame, whose zeros are
 * there. */
FAL_VECTOR static void
fill_frame(const struct frame *f, const float *image, int channels, uint32_t n,
	   uint32_t s, int h, int w, float *to)
{
	const int st = f->stride;
	for (int c = 0; c < channels; c++, to += f->channel) {
		const float *from = image + ((size_t)c * n + s) * (size_t)(h * w);
		for (int y = 0; y < h; y++, from += w) {
			const int fy = y + f->pad, row = fy / st;
			float *at = to + fy % st * st * f->phase + row * f->wide;
			if (row >= f->high)
				break;
			if (st == 1) {
				const int fit = f->wide - f->pad;
				copy_row(at + f->pad, from, w < fit ? w : fit);
				continue;
			}
			for (int x = 0; x < w && (x + f->pad) / st < f->wide; x++)
				at[(x + f->pad) % st * f->phase + (x + f->pad) / st] =
					from[x];
		}
	}
}

/* y of sample s from its product: the columns that are outputs, with bias and floor. */
FAL_VECTOR static void
finish_outputs(const struct conv_plan *p, const struct fal_conv *t, uint32_t s,
	       const float *product)
{
	const size_t plane = (size_t)(p->y * p->x);
	for (int o = 0; o < p->out; o++, product += p->ld) {
		float *to = t->y + ((size_t)o * t->n + s) * plane;
		const float *from = product;
		const float bias = t->bias[o];
		for (int y = 0; y < p->y; y++, to += p->x, from += p->f.wide)
			finish_row(to, from, p->x, bias, t->floor);
	}
}

/* The part (py, px) of dx of sample s from its product. */
FAL_VECTOR static void
finish_inputs(const struct conv_plan *p, const struct fal_conv *t, uint32_t s, int py,
	      int px, const float *product)
{
	const size_t plane = (size_t)(p->h * p->w);
	for (int c = 0; c < p->in; c++, product += p->ldx) {
		float *to = t->dx + ((size_t)c * t->n + s) * plane;
		const float *from = product;
		for (int y = py; y < p->h; y += p->s, from += p->fd.wide) {
			if (p->s == 1) {
				copy_row(to + y * p->w, from, p->w);
				continue;
			}
			for (int x = px, i = 0; x < p->w; x += p->s)
				to[y * p->w + x] = from[i++];
		}
	}
}

/* ---- products --------------------------------------------------------------------- */

/* All rows and columns of a product [rows][cols], cols whole vectors. */
static void
compute_product(struct gemm_tile t, int rows, int cols)
{
	const struct gemm_isa *isa = gemm_isa();
	const float *a = t.a, *b = t.b;
	float *c = t.c;
	for (int j = 0; j < cols; j += isa->vectors * isa->width)
		for (int i = 0; i < rows; i += isa->rows) {
			const int left = (cols - j) / isa->width;
			t.a = a + i * t.lda;
			t.b = b + j;
			t.c = c + i * t.ldc + j;
			isa->product(&t, rows - i < isa->rows ? rows - i : isa->rows,
				     left < isa->vectors ? left : isa->vectors);
		}
}

/* Offset of tap (ky, kx) in a channel's frame. */
static int
tap_offset(const struct frame *f, int ky, int kx)
{
	const int s = f->stride;
	return (ky % s * s + kx % s) * f->phase + ky / s * f->wide + kx / s;
}

void
fal_conv_forward(const struct fal_layer *l, const struct fal_conv *t)
{
	const struct conv_plan p = plan_conv(l);
	float *image = t->scratch + p.image, *product = t->scratch + p.product;
	float *w = t->scratch + p.weights;
	int32_t *at = (int32_t *)(t->scratch + p.at);
	for (int c = 0, r = 0; c < p.in; c++)
		for (int i = 0; i < p.k * p.k; i++, r++)
			at[r] = c * p.f.channel + tap_offset(&p.f, i / p.k, i % p.k);
	memcpy(w, t->w, (size_t)p.out * (size_t)p.taps * sizeof(*w));
	fal_clear_small(w, (size_t)p.out * (size_t)p.taps);
	memset(image, 0, ((size_t)p.in * (size_t)p.f.channel + BEHIND) * sizeof(*image));
	for (uint32_t s = 0; s < t->n; s++) {
		fill_frame(&p.f, t->x, p.in, t->n, s, p.h, p.w, image);
		compute_product((struct gemm_tile){ .k = p.taps,
						    .a = w,
						    .lda = p.taps,
						    .b = image,
						    .at_b = at,
						    .c = product,
						    .ldc = p.ld },
				p.out, p.ld);
		finish_outputs(&p, t, s, product);
	}
}

/* Adds one sample to kh rows of kw taps each of the transposed dw.  The output channels
 * are the lanes, and the taps are the rows of a tile, read from the frame in their place:
 * so neither needs the column matrix, which would cost more than its product. */
static void
compute_taps(const struct conv_plan *p, struct gemm_tile t, int kh, int kw)
{
	const struct gemm_isa *isa = gemm_isa();
	const int vectors = (p->out + isa->width - 1) / isa->width;
	const float *a = t.a, *b = t.b;
	float *c = t.c;
	for (int v = 0; v < vectors; v += 2) {
		const int vs = vectors - v < 2 ? 1 : 2;
		for (int y = 0, g; y < kh; y += g) {
			/* Several rows only if they are whole: then their sums lie one
			 * after another. */
			g = kw > 5                                    ? 1
			    : kh - y >= 5 && 5 * kw * vs <= isa->sums ? 5
			    : kh - y >= 3 && 3 * kw * vs <= isa->sums ? 3
			    : kh - y >= 2 && 2 * kw * vs <= isa->sums ? 2
								      : 1;
			for (int x = 0; x < kw; x += 5) {
				t.a = a + y * t.lda + x;
				t.b = b + v * isa->width;
				t.c = c + (y * kw + x) * t.ldc + v * isa->width;
				isa->taps(&t, g, kw - x < 5 ? kw - x : 5, vs);
			}
		}
	}
}

/* Adds sample s to the transposed dw, [taps][outs], whose taps are in the order of their
 * phases. */
static void
add_weights_gradient(const struct conv_plan *p, const struct fal_conv *t, uint32_t s)
{
	const float *image = t->scratch + p->image;
	struct gemm_tile u = { .k = p->y * p->x,
			       .lda = p->f.wide,
			       .at_a = (int32_t *)(t->scratch + p->at_x),
			       .b = t->scratch + p->dyt,
			       .at_b = (int32_t *)(t->scratch + p->at_y),
			       .c = t->scratch + p->dwt,
			       .ldc = p->outs,
			       .add = s > 0 };
	for (int c = 0; c < p->in; c++)
		for (int py = 0; py < p->s && py < p->k; py++)
			for (int px = 0; px < p->s && px < p->k; px++) {
				const int kh = (p->k - py + p->s - 1) / p->s,
					  kw = (p->k - px + p->s - 1) / p->s;
				u.a = image + c * p->f.channel +
				      tap_offset(&p->f, py, px);
				compute_taps(p, u, kh, kw);
				u.c += (ptrdiff_t)(kh * kw) * p->outs;
			}
}

/* dw [out][in][k][k] from its transposed sums. */
static void
turn_weights_gradient(const struct conv_plan *p, const float *dwt, float *dw)
{
	for (int c = 0; c < p->in; c++)
		for (int py = 0; py < p->s && py < p->k; py++)
			for (int px = 0; px < p->s && px < p->k; px++)
				for (int y = py; y < p->k; y += p->s)
					for (int x = px; x < p->k; x += p->s) {
						float *to =
							dw + (c * p->k + y) * p->k + x;
						for (int o = 0; o < p->out; o++)
							to[o * p->taps] = dwt[o];
						dwt += p->outs;
					}
}

static void
compute_weights_gradient(const struct conv_plan *p, const struct fal_conv *t)
{
	const struct gemm_isa *isa = gemm_isa();
	const int plane = p->y * p->x;
	float *image = t->scratch + p->image;
	int32_t *at_x = (int32_t *)(t->scratch + p->at_x);
	int32_t *at_y = (int32_t *)(t->scratch + p->at_y);
	struct conv_plan q = *p;
	q.outs = (p->out + isa->width - 1) / isa->width * isa->width;
	for (int y = 0, i = 0; y < p->y; y++)
		for (int x = 0; x < p->x; x++, i++) {
			at_x[i] = y * p->f.wide + x;
			at_y[i] = i * q.outs;
		}
	memset(image, 0,
	       ((size_t)p->in * (size_t)p->f.channel + BEHIND) * sizeof(*image));
	for (uint32_t s = 0; s < t->n; s++) {
		fill_frame(&p->f, t->x, p->in, t->n, s, p->h, p->w, image);
		isa->pack_turned(t->dy + (size_t)s * (size_t)plane,
				 (ptrdiff_t)t->n * plane, plane, p->out,
				 t->scratch + p->dyt);
		add_weights_gradient(&q, t, s);
	}
	turn_weights_gradient(&q, t->scratch + p->dwt, t->dw);
}

/* The taps of dx's part (py, px): their weights [in][taps], and their offsets in dy's
 * frame.  Returns how many an input channel has. */
static int
turn_weights(const struct conv_plan *p, const float *from, int py, int px, float *w,
	     int32_t *at)
{
	const int ky0 = (py + p->pad) % p->s, kx0 = (px + p->pad) % p->s;
	const struct frame *f = &p->fd;
	/* The place that the first tap sees; each further tap sees the place before. */
	const int first =
		((py + p->pad) / p->s + f->pad) * f->wide + (px + p->pad) / p->s + f->pad;
	int taps = 0;
	for (int c = 0; c < p->in; c++) {
		taps = 0;
		for (int o = 0; o < p->out; o++) {
			const float *plane = from + o * p->taps + c * p->k * p->k;
			int row = o * f->channel + first;
			for (int ky = ky0; ky < p->k; ky += p->s, row -= f->wide)
				for (int kx = kx0, i = 0; kx < p->k; kx += p->s, i++) {
					at[taps++] = row - i;
					*w++ = plane[ky * p->k + kx];
				}
		}
	}
	return taps;
}

static void
compute_inputs_gradient(const struct conv_plan *p, const struct fal_conv *t)
{
	float *image = t->scratch + p->image, *product = t->scratch + p->product;
	float *w = t->scratch + p->weights;
	int32_t *at = (int32_t *)(t->scratch + p->at);
	memset(image, 0,
	       ((size_t)p->out * (size_t)p->fd.channel + BEHIND) * sizeof(*image));
	for (int part = 0; part < p->s * p->s; part++) {
		const int py = part / p->s, px = part % p->s;
		const int taps = turn_weights(p, t->w, py, px, w, at);
		fal_clear_small(w, (size_t)(p->in * taps));
		for (uint32_t s = 0; s < t->n; s++) {
			fill_frame(&p->fd, t->dy, p->out, t->n, s, p->y, p->x, image);
			compute_product((struct gemm_tile){ .k = taps,
							    .a = w,
							    .lda = taps,
							    .b = image,
							    .at_b = at,
							    .c = product,
							    .ldc = p->ldx },
					p->in, p->ldx);
			finish_inputs(p, t, s, py, px, product);
		}
	}
}

void
fal_conv_back(const struct fal_layer *l, const struct fal_conv *t)
{
	const struct conv_plan p = plan_conv(l);
	compute_weights_gradient(&p, t);
	if (t->dx != NULL)
		compute_inputs_gradient(&p, t);
}
