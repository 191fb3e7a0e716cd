/* The border to the kernel library: what lib/math asks of it, and nothing more.  A second
 * library follows as a second kern_X.c.
 *
 * The law (design.md, I1) asks of each function that its result depends on its
 * arguments' values alone, never on addresses, threads or other lanes.
 */
#ifndef FAL_MATH_KERN_H
#define FAL_MATH_KERN_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* C = A·B, or C += A·B where `add`; row-major.  A is m×k (k×m where `ta`), B is k×n (n×k
 * where `tb`), C m×n; ld* are the floats from a row to the next, at least its length. */
struct fal_gemm {
	int m, n, k;
	const float *a, *b;
	float *c;
	int lda, ldb, ldc;
	bool ta, tb, add;
};

/* Makes the library take the kernels of this CPU and run each call in the thread that
 * makes it.  May set OPENBLAS_CORETYPE in the environment.  Idempotent, thread-safe; to
 * be called before the first fal_gemm. */
void fal_kern_init(void);

/* Makes the library take one kernel set, the same on every x86-64-v3 machine, in place
 * of this CPU's best, until the process ends.  To be called while no fal_gemm runs.
 * FAL_EINVAL where the CPU or this build of the library does not have it; *lacks: what.
 */
int fal_kern_portable(const char **lacks);

/* The CPU's instruction set and the library's kernels: "x86-64-v4 SkylakeX". */
void fal_kern_name(char *out, size_t cap);

/* The most bytes that the library keeps for a thread that has made a product of these
 * sizes. */
uint64_t fal_kern_bytes(uint64_t m, uint64_t n, uint64_t k);

/* The address space that a product under way takes of the library, and its thread's
 * stack; there the library takes its own for so many at a time.  Where there is too
 * little it tries for ever. */
#define FAL_KERN_SPACE (UINT64_C(136) << 20)
void fal_kern_reserve(uint32_t products);

/* From here on this thread's arithmetic takes subnormal numbers as zero: they make
 * kernels ten times slower, and gradients of a trained model are full of them.  Returns
 * what fal_kern_unflush needs to end it. */
unsigned fal_kern_flush(void);
void fal_kern_unflush(unsigned before);

/* m, n and k are at least 1.  Thread-safe. */
void fal_gemm(const struct fal_gemm *g);

#endif
