/* Between gemm.c, conv.c and the tiles of the instruction sets. */
#ifndef FAL_MATH_GEMM_PRIV_H
#define FAL_MATH_GEMM_PRIV_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* A tile of C and all that goes into the tile.  Each element of C is one chain of fused
 * multiply-adds in ascending order of p:
 *
 *	C[i][j] = (add ? C[i][j] : +0) + Σ_p A(i, p) · b[at_b[p] + j]
 *
 * Columns come in whole vectors.  A(i, p) depends on the function. */
struct gemm_tile {
	int k;
	const float *a;
	ptrdiff_t lda;
	const int32_t *at_a;
	const float *b;
	const int32_t *at_b; /* [k] */
	float *c;
	ptrdiff_t ldc;
	bool add;
};

struct gemm_isa {
	const char *name;
	int width;   /* floats of a vector */
	int rows;    /* of the highest tile of `product` */
	int vectors; /* of the widest tile of `product`: a panel's width */
	int sums;    /* most accumulators of `taps` */

	/* `rows` rows by `vectors` vectors; A(i, p) = a[i·lda + p]. */
	void (*product)(const struct gemm_tile *t, int rows, int vectors);

	/* groups·each rows by 1 or 2 vectors, with groups·each·vectors ≤ sums, groups of
	 * 1, 2, 3 or 5, each of 1 to 5:
	 * A(g·each + e, p) = a[g·lda + at_a[p] + e]. */
	void (*taps)(const struct gemm_tile *t, int groups, int each, int vectors);

	/* Copy columns 0 … n - 1 of B, n at most a panel's width, to a panel: rows of
	 * whole vectors, panel[p][j] = B(p, j), small values as +0.
	 * pack: B(p, j) = b[p·ldb + j]; pack_turned: B(p, j) = b[j·ldb + p]. */
	void (*pack)(const float *b, ptrdiff_t ldb, int k, int n, float *panel);
	void (*pack_turned)(const float *b, ptrdiff_t ldb, int k, int n, float *panel);
};

extern const struct gemm_isa gemm_avx512, gemm_avx2, gemm_neon;

/* The instruction set of this process; NULL: the CPU has none. */
const struct gemm_isa *gemm_isa(void);

struct fal_gemm;
/* fal_gemm without OpenBLAS. */
void gemm_compute(const struct fal_gemm *g);

/* Bits of |x| from which on x is a factor: 2^-40.  The lowest bit of a factor is then at
 * least 2^-63, so products and partial sums are multiples of 2^-126, the least normal
 * number. */
#define GEMM_LEAST ((127 - 40) << 23)

#endif
