/* The interface to the kernel library: all that lib/math needs from the library.  A
 * second library would be a second kern_X.c.
 *
 * By the law (design.md, I1) the result of each function depends on the values of its
 * arguments alone, never on addresses, threads or other lanes.
 */
#ifndef FAL_MATH_KERN_H
#define FAL_MATH_KERN_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* C = A·B, or C += A·B with `add`; row-major.  A is m×k (with `ta` k×m), B is k×n (with
 * `tb` n×k), C is m×n; ld* are the floats from one row to the next, at least a row. */
struct fal_gemm {
	int m, n, k;
	const float *a, *b;
	float *c;
	int lda, ldb, ldc;
	bool ta, tb, add;
};

/* Lets the library choose the kernels for this CPU and run each call in the calling
 * thread.  May set OPENBLAS_CORETYPE in the environment.  Idempotent, thread-safe; to be
 * called before the first fal_gemm. */
void fal_kern_init(void);

/* Lets the library use the kernel set of all x86-64-v3 machines instead of this CPU's
 * best, until the process ends.  To be called while no fal_gemm runs.  FAL_EINVAL: the
 * CPU or this build of the library lacks the feature named by *lacks. */
int fal_kern_portable(const char **lacks);

/* Writes the machine and the library's kernels: "x86_64 SkylakeX". */
void fal_kern_name(char *out, size_t cap);

/* Returns the most bytes that the library keeps for a thread after a product of these
 * sizes. */
uint64_t fal_kern_bytes(uint64_t m, uint64_t n, uint64_t k);

/* Address space of the library and of the thread's stack during a product. */
#define FAL_KERN_SPACE (UINT64_C(136) << 20)

/* Lets the library take its buffers for `products` products at a time.  With too little
 * address space the library retries for ever. */
void fal_kern_reserve(uint32_t products);

/* Flushes subnormal numbers of this thread's arithmetic to zero from now on: subnormals
 * make kernels ten times slower, and gradients of a trained model have many.  Returns the
 * state for fal_kern_unflush. */
unsigned fal_kern_flush(void);
/* Restores the state from before fal_kern_flush. */
void fal_kern_unflush(unsigned before);

/* Computes the product; m, n and k are at least 1.  Thread-safe. */
void fal_gemm(const struct fal_gemm *g);

#endif
