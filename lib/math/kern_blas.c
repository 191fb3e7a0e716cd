/* The choice between Falcon's tiles and OpenBLAS, and the thread's arithmetic.  OpenBLAS
 * is single-threaded and only for gemm: its level-1 sums depend on alignment. */
#include "math/kern.h"

#include "math/gemm_priv.h"

#include <cblas.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>

/* Missing in OpenBLAS's header.  A buffer has 128 MiB; OpenBLAS keeps freed buffers for
 * all threads. */
void *blas_memory_alloc(int procpos);
void blas_memory_free(void *buffer);
int openblas_num_threads_env(void);
/* Weak: a build for a single CPU lacks both. */
void gotoblas_dynamic_init(void) __attribute__((weak));
void gotoblas_dynamic_quit(void) __attribute__((weak));

/* OpenBLAS calls this function when it is loaded; each thread of its own would take a
 * buffer. */
__attribute__((weak, visibility("default"))) int
openblas_num_threads_env(void)
{
	return 1;
}

/* Written before the lanes begin. */
static bool uses_blas;

/* OpenBLAS 0.3.21 takes an unknown, newer Intel CPU for a Prescott, whose kernels are
 * five times slower.  Then OpenBLAS is to choose again by the CPU's features, unless the
 * user has set OPENBLAS_CORETYPE. */
static void
init_blas(void)
{
#ifdef __x86_64__
	const char *core = NULL;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		core = "Haswell";
	if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		core = "SkylakeX";
	if (core != NULL && gotoblas_dynamic_init != NULL &&
	    strcmp(openblas_get_corename(), "Prescott") == 0 &&
	    setenv("OPENBLAS_CORETYPE", core, 0) == 0) {
		gotoblas_dynamic_quit();
		gotoblas_dynamic_init();
	}
#endif
	openblas_set_num_threads(1);
}

void
fal_kern_use_blas(bool yes)
{
	static pthread_once_t once = PTHREAD_ONCE_INIT;
	if (yes)
		pthread_once(&once, init_blas);
	uses_blas = yes;
}

void
fal_kern_reserve(uint32_t products)
{
	enum { BUFFERS_MAX = 64 }; /* OpenBLAS's own limit */
	void *buffer[BUFFERS_MAX];
	const uint32_t n = products < BUFFERS_MAX ? products : BUFFERS_MAX;
	for (uint32_t i = 0; uses_blas && i < n; i++)
		buffer[i] = blas_memory_alloc(0);
	for (uint32_t i = 0; uses_blas && i < n; i++)
		blas_memory_free(buffer[i]);
}

void
fal_kern_name(char *out, size_t cap)
{
	struct utsname system;
	const char *isa = fal_gemm_isa();
	snprintf(out, cap, "%s %s%s%s", uname(&system) == 0 ? system.machine : "?",
		 isa != NULL ? isa : "none", uses_blas ? " OpenBLAS " : "",
		 uses_blas ? openblas_get_corename() : "");
}

uint64_t
fal_kern_space(void)
{
	return (UINT64_C(8) + (uses_blas ? 128 : 0)) << 20;
}

uint64_t
fal_kern_bytes(uint64_t m, uint64_t n, uint64_t k)
{
	/* Packed panels of the operands: P·Q floats of one and Q times the longest side
	 * of the other, at most the buffer. */
	enum { P = 768, Q = 448 };
	const uint64_t longest = m > n ? (m > k ? m : k) : n > k ? n : k;
	const uint64_t p = longest < P ? longest : P, q = longest < Q ? longest : Q;
	const uint64_t bytes = (p + longest) * q * sizeof(float);
	if (!uses_blas)
		return 0;
	return bytes < (32 << 20) ? bytes : 32 << 20;
}

void
fal_gemm(const struct fal_gemm *g)
{
	if (!uses_blas) {
		gemm_compute(g);
		return;
	}
	cblas_sgemm(CblasRowMajor, CblasNoTrans, g->tb ? CblasTrans : CblasNoTrans, g->m,
		    g->n, g->k, 1.0f, g->a, g->lda, g->b, g->ldb, g->add ? 1.0f : 0.0f,
		    g->c, g->ldc);
}

#if defined(__x86_64__)
#include <immintrin.h>

uint64_t
fal_kern_begin(void)
{
	const unsigned before = _mm_getcsr();
	const unsigned ieee = 0x1f80, flushing = 0x8040;
	_mm_setcsr(uses_blas ? ieee | flushing : ieee);
	return before;
}

void
fal_kern_end(uint64_t before)
{
	_mm_setcsr((unsigned)before);
}
#elif defined(__aarch64__)
uint64_t
fal_kern_begin(void)
{
	const uint64_t flushing = 1 << 24;
	uint64_t before;
	__asm__ volatile("mrs %0, fpcr" : "=r"(before));
	__asm__ volatile("msr fpcr, %0" : : "r"(uses_blas ? flushing : 0));
	return before;
}

void
fal_kern_end(uint64_t before)
{
	__asm__ volatile("msr fpcr, %0" : : "r"(before));
}
#else
uint64_t
fal_kern_begin(void)
{
	return 0;
}

void
fal_kern_end(uint64_t before)
{
	(void)before;
}
#endif
