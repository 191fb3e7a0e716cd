/* Naive twins of exact sums: quantising with ldexp and nearbyint, unpacking bit by bit.
 */
#ifndef FAL_TESTS_NAIVE_BFP_H
#define FAL_TESTS_NAIVE_BFP_H

#include "base/err.h"
#include "wire/bfp.h"

#include <math.h>

static inline int
quantise_block_naive(struct fal_sum *s, uint32_t b, const float *g, int e, unsigned room)
{
	const uint32_t len = fal_block_len(fal_sum_len(s), b);
	const double most = (double)fal_bfp_largest(room);
	int64_t v[FAL_BLOCK];
	double max = 0;
	for (uint32_t i = 0; i < len; i++) {
		if (!isfinite(g[i]))
			return FAL_ENONFINITE;
		max = fmax(max, fabs((double)g[i]));
		const double q = nearbyint(ldexp((double)g[i], FAL_BFP_P - 1 - e));
		v[i] = (int64_t)fmax(fmin(q, most), -most);
	}
	int needed = max > 0 ? FAL_EXP_MIN : FAL_EXP_NONE;
	while (max > ldexp(1, needed) && needed != FAL_EXP_NONE && needed < FAL_EXP_MAX)
		needed++;
	const double bound = fmin(nearbyint(ldexp(max, FAL_BFP_P - 1 - e)), most);
	return fal_sum_store(s, b, v, (uint64_t)bound, (int8_t)needed);
}

static inline int
fal_sum_quantise_naive(struct fal_sum *s, const float *g, const int8_t *exps,
		       unsigned room, uint32_t *bad_block)
{
	int r = FAL_OK;
	for (uint32_t b = 0; b < fal_blocks(fal_sum_len(s)) && r == FAL_OK; b++) {
		r = quantise_block_naive(s, b, g + (size_t)b * FAL_BLOCK, exps[b], room);
		if (r == FAL_ENONFINITE && bad_block != NULL)
			*bad_block = b;
	}
	return r;
}

/* Copies all values to v [fal_sum_len]. */
static inline void
sum_copy(const struct fal_sum *s, int64_t *v)
{
	for (uint32_t b = 0; b < fal_blocks(fal_sum_len(s)); b++)
		fal_sum_load(s, b, v + (size_t)b * FAL_BLOCK);
}

/* Returns value i of the sum. */
static inline int64_t
sum_value(const struct fal_sum *s, size_t i)
{
	union fal_sum_room room;
	uint32_t width;
	const size_t at = i % FAL_BLOCK;
	const void *v = fal_sum_values(s, (uint32_t)(i / FAL_BLOCK), &width, &room);
	if (width == 0)
		return 0;
	return width == sizeof(int64_t) ? ((const int64_t *)v)[at]
					: ((const int32_t *)v)[at];
}

/* Returns value i of the record. */
static inline int64_t
record_value(const struct fal_bfp_rec *rec, uint32_t i)
{
	const uint32_t columns = 128, rows = (rec->len + columns - 1) / columns;
	const uint32_t low = rec->width < 32 ? rec->width : 32;
	uint64_t d = 0;
	for (uint32_t bit = 0; bit < rec->width; bit++) {
		const bool second = bit >= 32;
		const uint32_t width = second ? rec->width - 32U : low;
		const uint32_t place = i / columns * width + bit % 32;
		const uint32_t first = second ? (rows * low + 31) / 32 * columns : 0;
		const uint32_t word = first + place / 32 * columns + i % columns;
		const uint8_t byte = rec->packed[4 * word + place % 32 / 8];
		d |= (uint64_t)(byte >> place % 8 & 1) << bit;
	}
	return (int64_t)((uint64_t)rec->base + d);
}

#endif
