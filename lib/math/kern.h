/* The matrix product, by Falcon's own tiles or by OpenBLAS.
 *
 * By the law (design.md, I1) the result of each function depends on the values of its
 * arguments alone, never on addresses, threads or other lanes.
 */
#ifndef FAL_MATH_KERN_H
#define FAL_MATH_KERN_H

#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* C = A·B, or C += A·B with `add`; row-major.  A is m×k, B is k×n (with `tb` n×k), C is
 * m×n; ld* are the floats from one row to the next, at least a row.  A holds no small
 * values (fal_clear_small). */
struct fal_gemm {
	int m, n, k;
	const float *a, *b;
	float *c;
	int lda, ldb, ldc;
	bool tb, add;
	float *scratch; /* FAL_GEMM_SCRATCH floats */
};

#define FAL_GEMM_SCRATCH (320 * 192)

/* Computes the product; m, n and k are at least 1.  Thread-safe.
 *
 * Each element of C is one chain of fused multiply-adds in ascending order of k, which
 * begins at C's old value with `add`, else at +0; small values of B count as +0.  So all
 * CPUs give the same bits.  After fal_kern_use_blas(true) OpenBLAS computes the product.
 */
void fal_gemm(const struct fal_gemm *g);

/* Sets values below 2^-40 to +0.  Where no factor is smaller, no product and no partial
 * sum is subnormal: subnormals make a product many times slower, and flushing them
 * rounds differently on x86 and ARM. */
void fal_clear_small(float *x, size_t n);

/* Returns the name of the instruction set of Falcon's tiles; NULL: the CPU has none. */
const char *fal_gemm_isa(void);

#define FAL_GEMM_MISSING 32
/* False: the CPU has no instruction set for Falcon's tiles; `missing` names the missing
 * one. */
bool fal_gemm_supported(char missing[static FAL_GEMM_MISSING]);

/* Lets OpenBLAS compute all further products, each in the calling thread, with the
 * kernels for this CPU; or, with false, Falcon's tiles, as from the start.  May set
 * OPENBLAS_CORETYPE in the environment.  To be called while no product runs. */
void fal_kern_use_blas(bool yes);

/* Writes the machine and the kernels: "x86_64 AVX-512", "x86_64 OpenBLAS SkylakeX". */
void fal_kern_name(char *out, size_t cap);

/* Returns the most bytes that OpenBLAS keeps for a thread after a product of these sizes;
 * 0: OpenBLAS is not in use. */
uint64_t fal_kern_bytes(uint64_t m, uint64_t n, uint64_t k);

/* Returns the address space of a thread's stack and, if in use, of OpenBLAS during a
 * product. */
uint64_t fal_kern_space(void);

/* Lets OpenBLAS, if in use, take its buffers for `products` products at a time.  With too
 * little address space OpenBLAS retries for ever. */
void fal_kern_reserve(uint32_t products);

/* Sets this thread's arithmetic: the defaults of IEEE 754; with OpenBLAS, which does not
 * clear small values, subnormals as zero.  Returns the state for fal_kern_end. */
uint64_t fal_kern_begin(void);
/* Restores the state from before fal_kern_begin. */
void fal_kern_end(uint64_t before);

#endif
