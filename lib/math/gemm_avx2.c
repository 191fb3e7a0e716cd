/* The tile for AVX2 with FMA. */
#ifdef __x86_64__
#include <immintrin.h>
#ifdef __clang__
#pragma clang attribute push(__attribute__((target("avx2,fma"))), apply_to = function)
#else
#pragma GCC target("avx2,fma")
#endif

#define V __m256
#define W 8
#define MR 6
#define NV 2
#define SUMS 12
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define SET1(x) _mm256_set1_ps(x)
#define FMA(x, y, z) _mm256_fmadd_ps(x, y, z)
#define FOUR(row, p) _mm_loadu_ps(*(row) + (p))
#define QUADS(row, p) \
	_mm256_insertf128_ps(_mm256_castps128_ps256(FOUR(row, p)), FOUR((row) + 4, p), 1)
#define LOW(x, y) _mm256_unpacklo_ps(x, y)
#define HIGH(x, y) _mm256_unpackhi_ps(x, y)
#define PAIR0(x, y) _mm256_shuffle_ps(x, y, 0x44)
#define PAIR1(x, y) _mm256_shuffle_ps(x, y, 0xee)
#define ISA gemm_avx2
#define NAME "avx2"
#include "math/gemm_tile.h"
#ifdef __clang__
#pragma clang attribute pop
#endif
#endif
