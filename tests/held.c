/* Holds a program's layers to AVX2, as on another CPU. */
#include "gemm_held.h"

#include <stdio.h>
#include <stdlib.h>

__attribute__((constructor)) static void
hold_layers(void)
{
#ifdef __x86_64__
	if (!hold_gemm("avx2")) {
		fputs("this machine does not have AVX2 and FMA\n", stderr);
		exit(77);
	}
#endif
}
