/* Pools.  A window of 2 with stride 2 has loops of its own, with 16 outputs at a time:
 * they write past the end of a row in ascending order, and the next row overwrites the
 * excess.
 */
#include "math/layers.h"

#include "base/vector.h"

#include <string.h>

static size_t
plane_in(const struct fal_layer *l)
{
	return (size_t)l->in.h * l->in.w;
}

static bool
is_halving(const struct fal_layer *l)
{
	return l->kernel == 2 && l->stride == 2;
}

/* Takes place and value if the value is larger than m or a NaN. */
#define TAKE_LARGER(place, value)                \
	do {                                     \
		float v = (value);               \
		uint32_t more = v > m || v != v; \
		k = more ? (place) : k;          \
		m = more ? v : m;                \
	} while (0)

/* 16 maxima of the input rows a and b */
static inline __attribute__((always_inline)) void
max_lanes(const float *restrict a, const float *restrict b, float *restrict y,
	  uint8_t *restrict at)
{
	for (int i = 0; i < FAL_LANES; i++) {
		float m = a[2 * i];
		uint32_t k = 0;
		TAKE_LARGER(1, a[2 * i + 1]);
		TAKE_LARGER(2, b[2 * i]);
		TAKE_LARGER(3, b[2 * i + 1]);
		y[i] = m;
		at[i] = (uint8_t)k;
	}
}

FAL_VECTOR static void
maxpool_halving(const struct fal_layer *l, size_t planes, const float *x, float *y,
		uint8_t *at)
{
	size_t w = l->in.w, ow = l->out.w;
	for (size_t p = 0; p < planes; p++, x += plane_in(l))
		for (size_t oy = 0; oy < l->out.h; oy++, y += ow, at += ow) {
			const float *row = x + 2 * oy * w;
			for (size_t ox = 0; ox < ow; ox += FAL_LANES)
				max_lanes(row + 2 * ox, row + w + 2 * ox, y + ox,
					  at + ox);
		}
}

static void
window_max(const struct fal_layer *l, const float *x, float *y, uint8_t *at)
{
	float m = x[0];
	uint32_t best = 0;
	for (uint32_t i = 1; i < l->kernel * l->kernel; i++) {
		float v = x[(size_t)(i / l->kernel) * l->in.w + i % l->kernel];
		if (v > m || v != v) {
			m = v;
			best = i;
		}
	}
	*y = m;
	*at = (uint8_t)best;
}

void
fal_maxpool(const struct fal_layer *l, size_t planes, const float *x, float *y,
	    uint8_t *at)
{
	if (is_halving(l)) {
		maxpool_halving(l, planes, x, y, at);
		return;
	}
	for (size_t p = 0; p < planes; p++, x += plane_in(l))
		for (size_t oy = 0; oy < l->out.h; oy++)
			for (size_t ox = 0; ox < l->out.w; ox++)
				window_max(l, x + (oy * l->in.w + ox) * l->stride, y++,
					   at++);
}

/* The gradient of 16 maxima in one of the two input rows: places k and k + 1. */
static inline __attribute__((always_inline)) void
spread_lanes(const float *restrict dy, const uint8_t *restrict at, uint32_t k,
	     float *restrict dx)
{
	for (int i = 0; i < FAL_LANES; i++) {
		uint32_t place = at[i];
		dx[2 * i] = place == k ? dy[i] : 0.0f;
		dx[2 * i + 1] = place == k + 1 ? dy[i] : 0.0f;
	}
}

FAL_VECTOR static void
maxpool_halving_back(const struct fal_layer *l, size_t planes, const float *dy,
		     const uint8_t *at, float *dx)
{
	size_t ow = l->out.w, rows = planes * l->in.h;
	for (size_t r = 0; r < rows; r++, dx += 2 * ow) {
		uint32_t k = r % 2 != 0 ? 2 : 0;
		for (size_t ox = 0; ox < ow; ox += FAL_LANES)
			spread_lanes(dy + ox, at + ox, k, dx + 2 * ox);
		dy += k / 2 * ow;
		at += k / 2 * ow;
	}
}

void
fal_maxpool_back(const struct fal_layer *l, size_t planes, const float *dy,
		 const uint8_t *at, float *dx)
{
	if (is_halving(l) && l->in.h % 2 == 0 && l->in.w % 2 == 0) {
		maxpool_halving_back(l, planes, dy, at, dx);
		return;
	}
	memset(dx, 0, planes * plane_in(l) * sizeof(*dx));
	for (size_t p = 0; p < planes; p++, dx += plane_in(l))
		for (size_t oy = 0; oy < l->out.h; oy++)
			for (size_t ox = 0; ox < l->out.w; ox++, at++) {
				size_t y = oy * l->stride + *at / l->kernel;
				size_t x = ox * l->stride + *at % l->kernel;
				dx[y * l->in.w + x] += *dy++;
			}
}

void
fal_avgpool(const struct fal_layer *l, size_t planes, const float *x, float *y)
{
	float area = (float)l->kernel * (float)l->kernel;
	for (size_t p = 0; p < planes; p++, x += plane_in(l))
		for (size_t oy = 0; oy < l->out.h; oy++)
			for (size_t ox = 0; ox < l->out.w; ox++) {
				const float *at = x + (oy * l->in.w + ox) * l->stride;
				float sum = 0.0f;
				for (size_t ky = 0; ky < l->kernel; ky++, at += l->in.w)
					for (size_t kx = 0; kx < l->kernel; kx++)
						sum += at[kx];
				*y++ = sum / area;
			}
}

void
fal_avgpool_back(const struct fal_layer *l, size_t planes, const float *dy, float *dx)
{
	float area = (float)l->kernel * (float)l->kernel;
	memset(dx, 0, planes * plane_in(l) * sizeof(*dx));
	for (size_t p = 0; p < planes; p++, dx += plane_in(l))
		for (size_t oy = 0; oy < l->out.h; oy++)
			for (size_t ox = 0; ox < l->out.w; ox++) {
				float *at = dx + (oy * l->in.w + ox) * l->stride;
				float d = *dy++ / area;
				for (size_t ky = 0; ky < l->kernel; ky++, at += l->in.w)
					for (size_t kx = 0; kx < l->kernel; kx++)
						at[kx] += d;
			}
}
