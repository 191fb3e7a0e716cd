/* The naive twin of fal_sum_quantise: one value at a time with ldexp and nearbyint. */
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

#endif
