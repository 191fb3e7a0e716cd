/* bench_leaf: what the hash of a version costs (store/leaf.h): milliseconds of one that
 * is hashed, and, as by default only one of several is, their part of a clock of a
 * second, in percent, which is to be 2 at most.  Arguments: millions of parameters; 1 and
 * 25 by default. */
#include "base/mem.h"
#include "store/leaf.h"

#include "bench.h"

#include <err.h>
#include <stdlib.h>

enum { ROUNDS = 7 };

static void
measure(size_t millions)
{
	const size_t n = millions * 1000000;
	float *params = fal_calloc(n, sizeof(*params));
	uint8_t hash[FAL_HASH_BYTES];
	double best = 0;
	if (params == NULL)
		errx(1, "out of memory");
	for (size_t i = 0; i < n; i++)
		params[i] = (float)(i % 1009);
	for (int i = 0; i < ROUNDS; i++) {
		const double from = now();
		fal_leaf_model(params, n, hash);
		const double ms = (now() - from) * 1e3;
		best = i == 0 || ms < best ? ms : best;
	}
	figure(best, "ms", "leaf.%zuM.version", millions);
	figure(best / fal_leaf_every(n) / 10, "%", "leaf.%zuM.of-a-second", millions);
	free(params);
}

int
main(int argc, char **argv)
{
	for (int i = 1; i < argc; i++)
		measure(strtoull(argv[i], NULL, 10));
	if (argc == 1) {
		measure(1);
		measure(25);
	}
	return 0;
}
