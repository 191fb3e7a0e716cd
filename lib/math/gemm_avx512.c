/* The tile for AVX-512. */
#ifdef __x86_64__
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target(                                    \
				     "avx512f,avx512dq,avx512vl,avx512bw,avx2,fma"))), \
			     apply_to = function)
#else
#pragma GCC target("avx512f,avx512dq,avx512vl,avx512bw,avx2,fma")
#endif

#define V __m512
#define W 16
#define MR 8
#define NV 3
#define SUMS 25
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define SET1(x) _mm512_set1_ps(x)
#define FMA(x, y, z) _mm512_fmadd_ps(x, y, z)
#define FOUR(row, p) _mm_loadu_ps(*(row) + (p))
#define QUADS(row, p)                                                                    \
	_mm512_insertf32x4(_mm512_insertf32x4(_mm512_insertf32x4(_mm512_castps128_ps512( \
									 FOUR(row, p)),  \
								 FOUR((row) + 4, p), 1), \
					      FOUR((row) + 8, p), 2),                    \
			   FOUR((row) + 12, p), 3)
#define LOW(x, y) _mm512_unpacklo_ps(x, y)
#define HIGH(x, y) _mm512_unpackhi_ps(x, y)
#define PAIR0(x, y) _mm512_shuffle_ps(x, y, 0x44)
#define PAIR1(x, y) _mm512_shuffle_ps(x, y, 0xee)
#define ISA gemm_avx512
#define NAME "avx512f"
#include "math/gemm_tile.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
