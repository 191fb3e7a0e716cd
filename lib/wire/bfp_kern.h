/* The loops of exact sums, for bfp.c alone: they check nothing and have no memory of
 * their own.
 *
 * Arrays are borrowed, hold `len` values (1 to FAL_BLOCK) and do not overlap.  `narrow`
 * is int32, `wide` int64. No sum may leave its type: the caller keeps the bounds. */
#ifndef FAL_WIRE_BFP_KERN_H
#define FAL_WIRE_BFP_KERN_H

#include <stdint.h>

enum { FAL_BFP_COLS = 128 }; /* columns of a packed block */

/* A u32 at any address in a byte string, little-endian there. */
typedef uint32_t fal_u32_any __attribute__((aligned(1), may_alias));

/* Returns the largest of the values' bits without the sign: they order as |g|, with NaN
 * on top.  Prefetches the half block that follows in memory. */
uint32_t fal_bfp_max_magnitude(const float *g, uint32_t len);

/* The same, and copies g to `to`. Each value is read once, so the result and the copy
 * agree even if another process writes to `g` meanwhile. */
uint32_t fal_bfp_copy(float *restrict to, const float *restrict g, uint32_t len);

/* q = rint(g·scale), half to even; `scale` is a power of two. */
void fal_bfp_quantise_narrow(int32_t *restrict q, const float *restrict g, float scale,
			     uint32_t len);
void fal_bfp_quantise_wide(int64_t *restrict q, const float *restrict g, float scale,
			   uint32_t len);

void fal_bfp_widen(int64_t *restrict to, const int32_t *restrict from, uint32_t len);

/* to += from */
void fal_bfp_add_narrow(int32_t *restrict to, const int32_t *restrict from, uint32_t len);
void fal_bfp_add_floats(int32_t *restrict to, const float *restrict g, float scale,
			uint32_t len); /* as quantised */
void fal_bfp_add_wide(int64_t *restrict to, const int64_t *restrict from, uint32_t len);
void fal_bfp_add_wide_narrow(int64_t *restrict to, const int32_t *restrict from,
			     uint32_t len);

/* The least and the greatest value. */
void fal_bfp_range_narrow(const int32_t *v, uint32_t len, int64_t *min, int64_t *max);
void fal_bfp_range_wide(const int64_t *v, uint32_t len, int64_t *min, int64_t *max);

/* fal_bfp_split splits v - base into two planes of u32; fal_bfp_add_planes adds base and
 * two such planes to `to`.  Both modulo 2^64. */
void fal_bfp_split(const int64_t *restrict v, int64_t base, uint32_t len,
		   uint32_t *restrict low, uint32_t *restrict high);
void fal_bfp_add_planes(int64_t *restrict to, const uint32_t *restrict low,
			const uint32_t *restrict high, int64_t base, uint32_t len);

/* Packs v - base, each below 2^width, 0 <= width <= 32, as one plane of the layout of
 * fal_bfp_packed_size.  Places without a value are not written: unless `len` is a
 * multiple of FAL_BFP_COLS there are such places, and the caller zeroes `out`. */
void fal_bfp_pack_plane(fal_u32_any *restrict out, const uint32_t *restrict v,
			uint32_t base, uint32_t len, unsigned width);

/* Sets `to` to base + the values of a plane; or adds these to `to`.  Modulo 2^32. */
void fal_bfp_unpack(uint32_t *restrict to, const fal_u32_any *restrict in, uint32_t base,
		    uint32_t len, unsigned width);
void fal_bfp_unpack_add(uint32_t *restrict to, const fal_u32_any *restrict in,
			uint32_t base, uint32_t len, unsigned width);

/* out = (float)((double)v·scale / divisor), where scale is a power of two. */
void fal_bfp_mean_narrow(const int32_t *restrict v, double scale, double divisor,
			 uint32_t len, float *restrict out);
void fal_bfp_mean_wide(const int64_t *restrict v, double scale, double divisor,
		       uint32_t len, float *restrict out);

#endif
