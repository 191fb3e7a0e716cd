/* The loops of exact sums.  GCC vectorises this plain C for three machines, and the
 * program chooses one at run time.  Each loop is exact or rounds elementwise, so all give
 * the same bits. */
#include "wire/bfp_kern.h"

#include "base/vector.h"

#include <endian.h>
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>

/* |g| as bits. */
static inline uint32_t
magnitude_bits(const float *g)
{
	uint32_t bits;
	memcpy(&bits, g, sizeof(bits));
	return bits & INT32_MAX;
}

FAL_VECTOR uint32_t
fal_bfp_max_magnitude(const float *g, uint32_t len)
{
	enum { AHEAD = 2048 }; /* values; the CPU's own prefetch ends with each page */
	uint32_t max = 0, lane[FAL_LANES] = { 0 }, i = 0;
	for (; i + FAL_LANES <= len; i += FAL_LANES) {
		__builtin_prefetch(g + i + AHEAD);
		for (uint32_t k = 0; k < FAL_LANES; k++) {
			const uint32_t bits = magnitude_bits(g + i + k);
			lane[k] = bits > lane[k] ? bits : lane[k];
		}
	}
	for (uint32_t k = 0; k < FAL_LANES; k++)
		max = lane[k] > max ? lane[k] : max;
	for (; i < len; i++) {
		const uint32_t bits = magnitude_bits(g + i);
		max = bits > max ? bits : max;
	}
	return max;
}

FAL_VECTOR uint32_t
fal_bfp_copy(float *restrict to, const float *restrict g, uint32_t len)
{
	uint32_t max = 0;
	for (uint32_t i = 0; i < len; i++) {
		const float v = g[i];
		uint32_t bits;
		to[i] = v;
		memcpy(&bits, &v, sizeof(bits));
		bits &= INT32_MAX;
		max = bits > max ? bits : max;
	}
	return max;
}

/* g·scale is exact, because scale is a power of two; a product below float's range rounds
 * to 0. */
FAL_VECTOR void
fal_bfp_quantise_narrow(int32_t *restrict q, const float *restrict g, float scale,
			uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		q[i] = (int32_t)rintf(g[i] * scale);
}

FAL_VECTOR void
fal_bfp_quantise_wide(int64_t *restrict q, const float *restrict g, float scale,
		      uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		q[i] = (int64_t)rintf(g[i] * scale);
}

FAL_VECTOR void
fal_bfp_widen(int64_t *restrict to, const int32_t *restrict from, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] = from[i];
}

FAL_VECTOR void
fal_bfp_add_narrow(int32_t *restrict to, const int32_t *restrict from, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] += from[i];
}

FAL_VECTOR void
fal_bfp_add_floats(int32_t *restrict to, const float *restrict g, float scale,
		   uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] += (int32_t)rintf(g[i] * scale);
}

FAL_VECTOR void
fal_bfp_add_wide_narrow(int64_t *restrict to, const int32_t *restrict from, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] += from[i];
}

FAL_VECTOR void
fal_bfp_add_wide(int64_t *restrict to, const int64_t *restrict from, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++)
		to[i] += from[i];
}

FAL_VECTOR void
fal_bfp_range_narrow(const int32_t *v, uint32_t len, int64_t *min, int64_t *max)
{
	int32_t lo = v[0], hi = v[0];
	for (uint32_t i = 1; i < len; i++) {
		lo = v[i] < lo ? v[i] : lo;
		hi = v[i] > hi ? v[i] : hi;
	}
	*min = lo;
	*max = hi;
}

FAL_VECTOR void
fal_bfp_range_wide(const int64_t *v, uint32_t len, int64_t *min, int64_t *max)
{
	int64_t lo = v[0], hi = v[0];
	for (uint32_t i = 1; i < len; i++) {
		lo = v[i] < lo ? v[i] : lo;
		hi = v[i] > hi ? v[i] : hi;
	}
	*min = lo;
	*max = hi;
}

FAL_VECTOR void
fal_bfp_split(const int64_t *restrict v, int64_t base, uint32_t len,
	      uint32_t *restrict low, uint32_t *restrict high)
{
	for (uint32_t i = 0; i < len; i++) {
		uint64_t d = (uint64_t)v[i] - (uint64_t)base;
		low[i] = (uint32_t)d;
		high[i] = (uint32_t)(d >> 32);
	}
}

FAL_VECTOR void
fal_bfp_add_planes(int64_t *restrict to, const uint32_t *restrict low,
		   const uint32_t *restrict high, int64_t base, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		uint64_t d = (uint64_t)high[i] << 32 | low[i];
		to[i] = (int64_t)((uint64_t)to[i] + (uint64_t)base + d);
	}
}

FAL_VECTOR void
fal_bfp_pack_plane(fal_u32_any *restrict out, const uint32_t *restrict v, uint32_t base,
		   uint32_t len, unsigned width)
{
	for (uint32_t at = 0, bit = 0; width != 0 && at < len;
	     at += FAL_BFP_COLS, bit += width) {
		fal_u32_any *to = out + bit / 32 * FAL_BFP_COLS;
		const uint32_t *from = v + at;
		uint32_t cols = len - at < FAL_BFP_COLS ? len - at : FAL_BFP_COLS;
		unsigned shift = bit % 32;
		if (shift == 0)
			for (uint32_t c = 0; c < cols; c++)
				to[c] = htole32(from[c] - base);
		else
			for (uint32_t c = 0; c < cols; c++)
				to[c] |= htole32((from[c] - base) << shift);
		if (shift + width <= 32)
			continue;
		for (uint32_t c = 0; c < cols; c++)
			to[FAL_BFP_COLS + c] = htole32((from[c] - base) >> (32 - shift));
	}
}

/* to = base + values, or to += those.  Inlined, so each caller loses the test of `add`.
 */
static inline __attribute__((always_inline)) void
unpack_plane(uint32_t *restrict to, const fal_u32_any *restrict in, uint32_t base,
	     uint32_t len, unsigned width, bool add)
{
	uint32_t mask = (uint32_t)(((uint64_t)1 << width) - 1);
	for (uint32_t i = 0; width == 0 && i < len; i++)
		to[i] = (add ? to[i] : 0) + base;
	for (uint32_t bit = 0; width != 0 && len != 0; bit += width) {
		const fal_u32_any *from = in + bit / 32 * FAL_BFP_COLS;
		uint32_t cols = len < FAL_BFP_COLS ? len : FAL_BFP_COLS;
		unsigned shift = bit % 32;
		if (shift + width <= 32)
			for (uint32_t c = 0; c < cols; c++)
				to[c] = (add ? to[c] : 0) + base +
					(le32toh(from[c]) >> shift & mask);
		else
			for (uint32_t c = 0; c < cols; c++) {
				uint32_t d = le32toh(from[c]) >> shift |
					     le32toh(from[FAL_BFP_COLS + c])
						     << (32 - shift);
				to[c] = (add ? to[c] : 0) + base + (d & mask);
			}
		to += cols;
		len -= cols;
	}
}

FAL_VECTOR void
fal_bfp_unpack(uint32_t *restrict to, const fal_u32_any *restrict in, uint32_t base,
	       uint32_t len, unsigned width)
{
	unpack_plane(to, in, base, len, width, false);
}

FAL_VECTOR void
fal_bfp_unpack_add(uint32_t *restrict to, const fal_u32_any *restrict in, uint32_t base,
		   uint32_t len, unsigned width)
{
	unpack_plane(to, in, base, len, width, true);
}

/* No product is subnormal, so float and double both round once. */
FAL_VECTOR static void
mean_normal(const int32_t *restrict v, float scale, uint32_t len, float *restrict out)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = (float)v[i] * scale;
}

FAL_VECTOR static void
mean_any(const int32_t *restrict v, double scale, double divisor, uint32_t len,
	 float *restrict out)
{
	for (uint32_t i = 0; i < len; i++)
		out[i] = (float)((double)v[i] * scale / divisor);
}

void
fal_bfp_mean_narrow(const int32_t *restrict v, double scale, double divisor, uint32_t len,
		    float *restrict out)
{
	if (divisor == 1 && scale >= (double)FLT_MIN && scale <= 0x1p90)
		mean_normal(v, (float)scale, len, out);
	else
		mean_any(v, scale, divisor, len, out);
}

FAL_VECTOR void
fal_bfp_mean_wide(const int64_t *restrict v, double scale, double divisor, uint32_t len,
		  float *restrict out)
{
	if (divisor == 1)
		for (uint32_t i = 0; i < len; i++)
			out[i] = (float)((double)v[i] * scale);
	else
		for (uint32_t i = 0; i < len; i++)
			out[i] = (float)((double)v[i] * scale / divisor);
}
