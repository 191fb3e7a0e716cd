/* Fewer bits than a sum has: rounding by chance, the same chance for whoever computes the
 * task.  Loops as in bfp_kern.c: all widths of vectors give the same bits. */
#include "wire/bfp.h"

#include "base/rng.h"
#include "base/vector.h"

#include <math.h>

enum { WORDS = 4, COLS = FAL_BLOCK / WORDS / 2 }; /* a word is two numbers */

/* fal_philox of the counters (0 … COLS-1, block, 0, FAL_RNG_ROUND), side by side. */
FAL_VECTOR static void
draw(uint32_t w[static WORDS][COLS], uint64_t seed, uint32_t block)
{
	uint32_t k0 = (uint32_t)seed, k1 = (uint32_t)(seed >> 32);
	for (uint32_t i = 0; i < COLS; i++) {
		w[0][i] = i;
		w[1][i] = block;
		w[2][i] = 0;
		w[3][i] = FAL_RNG_ROUND;
	}
	for (int round = 0; round < 10; round++) {
		for (uint32_t i = 0; i < COLS; i++) {
			const uint64_t p0 = (uint64_t)0xD2511F53u * w[0][i];
			const uint64_t p1 = (uint64_t)0xCD9E8D57u * w[2][i];
			w[0][i] = (uint32_t)(p1 >> 32) ^ w[1][i] ^ k0;
			w[2][i] = (uint32_t)(p0 >> 32) ^ w[3][i] ^ k1;
			w[1][i] = (uint32_t)p1;
			w[3][i] = (uint32_t)p0;
		}
		k0 += 0x9E3779B9u;
		k1 += 0xBB67AE85u;
	}
}

/* From 2^23 on a float is a whole number; a NaN is not less. */
FAL_VECTOR static void
round_by(const uint32_t *restrict w, unsigned shift, float scale, float quantum,
	 float *restrict v, uint32_t len)
{
	for (uint32_t i = 0; i < len; i++) {
		const float t = v[i] * scale, low = floorf(t);
		const float r = (float)(int32_t)(w[i] >> shift & 0xffff);
		const float up = t - low > (r + 0.5f) * 0x1p-16f ? 1.0f : 0.0f;
		v[i] = fabsf(t) < 0x1p23f ? (low + up) * quantum : v[i];
	}
}

void
fal_bfp_dither(float *v, uint32_t len, int8_t e, uint64_t seed, uint32_t block)
{
	const float scale = ldexpf(1, FAL_BFP_P - 1 - e);
	const float quantum = ldexpf(1, e - FAL_BFP_P + 1);
	uint32_t w[WORDS][COLS];
	draw(w, seed, block);
	for (uint32_t at = 0, row = 0; at < len; at += COLS, row++)
		round_by(w[row / 2], row % 2 * 16, scale, quantum, v + at,
			 len - at < COLS ? len - at : COLS);
}
