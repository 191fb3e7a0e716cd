/* Holds the matrix product to one instruction set; link with -Wl,--wrap=gemm_isa. */
#ifndef FAL_TESTS_GEMM_HELD_H
#define FAL_TESTS_GEMM_HELD_H

#include "math/gemm_priv.h"

#include <string.h>

static const struct gemm_isa *held_isa; /* NULL: the CPU decides */

/* Declared here for the linker alone. */
const struct gemm_isa *__real_gemm_isa(void);
const struct gemm_isa *__wrap_gemm_isa(void);
const struct gemm_isa *
__wrap_gemm_isa(void)
{
	return held_isa != NULL ? held_isa : __real_gemm_isa();
}

/* Returns false if the CPU lacks the instruction set `name`. */
static bool
hold_gemm(const char *name)
{
	static const struct gemm_isa *const all[] = {
#if defined(__x86_64__)
		&gemm_avx512,
		&gemm_avx2,
#elif defined(__aarch64__)
		&gemm_neon,
#endif
		NULL,
	};
	held_isa = NULL;
	/* The CPU also has the instruction sets that stand behind the best one. */
	bool is_here = false;
	for (size_t i = 0; all[i] != NULL; i++) {
		is_here = is_here || all[i] == __real_gemm_isa();
		if (is_here && strcmp(all[i]->name, name) == 0)
			held_isa = all[i];
	}
	return held_isa != NULL;
}

#endif
