/* Convolution: im2col, its reverse col2im, and three matrix products.
 *
 * With stride 1, rows move 16 floats at a time.  im2col writes past the end of a
 * row in ascending order, and the next row overwrites the excess.  A bit mask sets lanes
 * outside the image to zero, as 0·NaN is NaN.
 */
#include "math/layers.h"

#include "base/vector.h"
#include "math/kern.h"

#include <string.h>

/* R, the rows of the column matrix. */
static int
column_rows(const struct fal_layer *l)
{
	return (int)(l->in.c * l->kernel * l->kernel);
}

static int
out_plane(const struct fal_layer *l)
{
	return (int)(l->out.h * l->out.w);
}

/* from[i] if 0 ≤ at + i < n, else 0.  Each lane is computed alone: an array of 16
 * filled by stores of 16 bytes would stall a later load of 32 bytes. */
static inline __attribute__((always_inline)) float
lane_or_zero(const float *from, int at, int n, int i)
{
	uint32_t v;
	float f;
	memcpy(&v, from + i, sizeof(v));
	v = (uint32_t)(at + i) < (uint32_t)n ? v : 0;
	memcpy(&f, &v, sizeof(f));
	return f;
}

static inline __attribute__((always_inline)) void
copy_lanes(const float *restrict from, int at, int n, float *restrict to)
{
	for (int i = 0; i < FAL_LANES; i++)
		to[i] = lane_or_zero(from, at, n, i);
}

static inline __attribute__((always_inline)) void
add_lanes(const float *restrict from, int at, int n, float *restrict sum)
{
	for (int i = 0; i < FAL_LANES; i++)
		sum[i] += lane_or_zero(from, at, n, i);
}

/* A row of the column matrix for one sample, stride 1: `at` = offset (ky, kx) - pad. */
static inline __attribute__((always_inline)) void
copy_window(const struct fal_layer *l, const float *x, int at_y, int at_x, float *to)
{
	int w = (int)l->in.w, h = (int)l->in.h, ow = (int)l->out.w;
	for (int oy = 0; oy < (int)l->out.h; oy++, to += ow) {
		int y = oy + at_y;
		bool inside = y >= 0 && y < h;
		const float *row = inside ? x + y * w : x;
		for (int ox = 0; ox < ow; ox += FAL_LANES) {
			int at = ox + at_x;
			copy_lanes(row + at, at, inside ? w : 0, to + ox);
		}
	}
}

/* As copy_window, for any stride. */
static void
gather_window(const struct fal_layer *l, const float *x, int at_y, int at_x, float *to)
{
	int w = (int)l->in.w, h = (int)l->in.h, stride = (int)l->stride;
	for (int oy = 0; oy < (int)l->out.h; oy++)
		for (int ox = 0; ox < (int)l->out.w; ox++) {
			int iy = oy * stride + at_y, ix = ox * stride + at_x;
			bool inside = iy >= 0 && iy < h && ix >= 0 && ix < w;
			*to++ = inside ? x[iy * w + ix] : 0.0f;
		}
}

/* col [R][ns·Y·X] from the samples s0 … s0 + ns - 1 */
FAL_VECTOR static void
im2col(const struct fal_layer *l, const struct fal_conv *t, uint32_t s0, uint32_t ns)
{
	size_t plane = (size_t)l->in.h * l->in.w;
	int k = (int)l->kernel, pad = (int)l->pad;
	float *to = t->col;
	for (int r = 0; r < column_rows(l); r++) {
		const float *x = t->x + ((size_t)(r / (k * k)) * t->n + s0) * plane;
		int at_y = r / k % k - pad, at_x = r % k - pad;
		for (uint32_t s = 0; s < ns; s++, x += plane, to += out_plane(l)) {
			if (l->stride == 1)
				copy_window(l, x, at_y, at_x, to);
			else
				gather_window(l, x, at_y, at_x, to);
		}
	}
}

/* 16 values of dx at (y, x0), stride 1: the sum over the K·K windows that cover them.
 * `col` points to the sample in the channel's first row; rows are `cols` floats
 * apart. */
static inline __attribute__((always_inline)) void
sum_windows(const struct fal_layer *l, const float *col, int cols, int y, int x0,
	    float sum[FAL_LANES])
{
	int k = (int)l->kernel, pad = (int)l->pad, oh = (int)l->out.h, ow = (int)l->out.w;
	for (int ky = 0; ky < k; ky++) {
		int oy = y + pad - ky;
		if (oy < 0 || oy >= oh)
			continue;
		for (int kx = 0; kx < k; kx++) {
			int ox = x0 + pad - kx;
			const float *from = col + (ptrdiff_t)(ky * k + kx) * cols;
			add_lanes(from + oy * ow + ox, ox, ow, sum);
		}
	}
}

/* dx of one plane, stride 1. */
static inline __attribute__((always_inline)) void
sum_plane(const struct fal_layer *l, const float *col, int cols, float *dx)
{
	int w = (int)l->in.w;
	for (int y = 0; y < (int)l->in.h; y++, dx += w)
		for (int x0 = 0; x0 < w; x0 += FAL_LANES) {
			float sum[FAL_LANES] = { 0 };
			sum_windows(l, col, cols, y, x0, sum);
			int n = w - x0 < FAL_LANES ? w - x0 : FAL_LANES;
			memcpy(dx + x0, sum, (size_t)n * sizeof(float));
		}
}

/* As sum_plane, for any stride. */
static void
scatter_plane(const struct fal_layer *l, const float *col, int cols, float *dx)
{
	int k = (int)l->kernel, pad = (int)l->pad, stride = (int)l->stride;
	int w = (int)l->in.w, h = (int)l->in.h, ow = (int)l->out.w;
	memset(dx, 0, (size_t)h * (size_t)w * sizeof(*dx));
	for (int r = 0; r < k * k; r++, col += cols)
		for (int i = 0; i < out_plane(l); i++) {
			int y = i / ow * stride + r / k - pad;
			int x = i % ow * stride + r % k - pad;
			if (y >= 0 && y < h && x >= 0 && x < w)
				dx[y * w + x] += col[i];
		}
}

/* dx of the samples s0 … s0 + ns - 1 from col: the reverse of im2col */
FAL_VECTOR static void
col2im(const struct fal_layer *l, const struct fal_conv *t, uint32_t s0, uint32_t ns)
{
	size_t plane = (size_t)l->in.h * l->in.w;
	int cols = (int)ns * out_plane(l), kk = (int)(l->kernel * l->kernel);
	for (uint32_t c = 0; c < l->in.c; c++)
		for (uint32_t s = 0; s < ns; s++) {
			const float *col = t->col + (ptrdiff_t)c * kk * cols +
					   (ptrdiff_t)s * out_plane(l);
			float *dx = t->dx + ((size_t)c * t->n + s0 + s) * plane;
			if (l->stride == 1)
				sum_plane(l, col, cols, dx);
			else
				scatter_plane(l, col, cols, dx);
		}
}

/* Samples of the chunk that begins at sample s0. */
static uint32_t
chunk_samples(const struct fal_conv *t, uint32_t s0)
{
	return t->n - s0 < t->chunk ? t->n - s0 : t->chunk;
}

void
fal_conv_forward(const struct fal_layer *l, const struct fal_conv *t)
{
	int r = column_rows(l), plane = out_plane(l);
	for (uint32_t s0 = 0; s0 < t->n; s0 += t->chunk) {
		uint32_t ns = chunk_samples(t, s0);
		int cols = (int)ns * plane;
		im2col(l, t, s0, ns);
		/* y [O][cols] = w [O][R] · col [R][cols] */
		fal_gemm(&(struct fal_gemm){ .m = (int)l->out.c,
					     .n = cols,
					     .k = r,
					     .a = t->w,
					     .lda = r,
					     .b = t->col,
					     .ldb = cols,
					     .c = t->y + (size_t)s0 * (size_t)plane,
					     .ldc = (int)t->n * plane });
	}
}

void
fal_conv_back(const struct fal_layer *l, const struct fal_conv *t)
{
	int o = (int)l->out.c, r = column_rows(l), plane = out_plane(l);
	for (uint32_t s0 = 0; s0 < t->n; s0 += t->chunk) {
		uint32_t ns = chunk_samples(t, s0);
		int cols = (int)ns * plane, ld = (int)t->n * plane;
		const float *dy = t->dy + (size_t)s0 * (size_t)plane;
		if (!t->keeps_col)
			im2col(l, t, s0, ns);
		/* dw [O][R] += dy [O][cols] · colᵀ [cols][R] */
		fal_gemm(&(struct fal_gemm){ .m = o,
					     .n = r,
					     .k = cols,
					     .a = dy,
					     .lda = ld,
					     .b = t->col,
					     .ldb = cols,
					     .tb = true,
					     .c = t->dw,
					     .ldc = r,
					     .add = s0 > 0 });
		if (t->dx == NULL)
			continue;
		/* col [R][cols] = wᵀ [R][O] · dy [O][cols] */
		fal_gemm(&(struct fal_gemm){ .m = r,
					     .n = cols,
					     .k = o,
					     .a = t->w,
					     .lda = r,
					     .ta = true,
					     .b = dy,
					     .ldb = ld,
					     .c = t->col,
					     .ldc = cols });
		col2im(l, t, s0, ns);
	}
}
