/* What tests draw: from SEED, which is printed, so that a run can be made again. */
#ifndef TESTS_DRAWN_H
#define TESTS_DRAWN_H

#include "base/rng.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>

/* SEED of the environment, or else this one. */
static inline uint64_t
drawn_seed(uint64_t otherwise)
{
	const char *given = getenv("SEED");
	const uint64_t seed = given != NULL ? strtoull(given, NULL, 10) : otherwise;
	printf("# SEED=%llu\n", (unsigned long long)seed);
	return seed;
}

static inline bool
one_in(struct fal_rng *rng, uint32_t n)
{
	return fal_rng_below(rng, n) == 0;
}

#endif
