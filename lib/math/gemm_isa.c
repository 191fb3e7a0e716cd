/* Chooses the instruction set of Falcon's tiles by the CPU. */
#include "math/gemm_priv.h"
#include "math/kern.h"

#include <stdio.h>

const struct gemm_isa *
gemm_isa(void)
{
#if defined(__x86_64__)
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl"))
		return &gemm_avx512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
		return &gemm_avx2;
	return NULL;
#elif defined(__aarch64__)
	return &gemm_neon;
#else
	return NULL;
#endif
}

bool
fal_gemm_supported(char missing[static FAL_GEMM_MISSING])
{
	if (gemm_isa() != NULL)
		return true;
#ifdef __x86_64__
	snprintf(missing, FAL_GEMM_MISSING, "%s",
		 __builtin_cpu_supports("avx2") ? "FMA" : "AVX2");
#else
	snprintf(missing, FAL_GEMM_MISSING, "x86-64 or 64-bit ARM");
#endif
	return false;
}
