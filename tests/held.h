/* Programs that are held to one instruction set (base/vector.h). */
#ifndef TESTS_HELD_H
#define TESTS_HELD_H

#include <stdbool.h>
#include <stdio.h>

/* This machine does not have it: says so, as a test that is skipped. */
static inline bool
held_in_vain(void)
{
#ifdef FAL_VECTOR_HELD
	if (!__builtin_cpu_supports(FAL_VECTOR_HELD)) {
		printf("1..0 # SKIP this machine does not have " FAL_VECTOR_HELD "\n");
		return true;
	}
#endif
	return false;
}

#endif
