/* Steps of an optimiser, for optim.py: reads the weights and then the mean gradient of
 * each update as float32 from standard input, and writes the weights after the last one.
 *
 * dump_steps KIND N LR MOMENTUM BETA1 BETA2 EPS DECAY coupled|decoupled */
#include "base/mem.h"
#include "math/optim.h"

#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int
main(int argc, char **argv)
{
	if (argc != 10)
		errx(2, "nine arguments");
	struct fal_optim o = { .kind = FAL_SGD,
			       .momentum = strtof(argv[4], NULL),
			       .beta1 = strtod(argv[5], NULL),
			       .beta2 = strtod(argv[6], NULL),
			       .eps = strtof(argv[7], NULL),
			       .weight_decay = strtof(argv[8], NULL),
			       .decoupled = strcmp(argv[9], "decoupled") == 0 };
	unsigned kind = 0;
	while (kind < FAL_OPTIMS && strcmp(fal_optim_name(kind), argv[1]) != 0)
		kind++;
	o.kind = (enum fal_optim_kind)kind;
	const size_t n = strtoul(argv[2], NULL, 10);
	const float lr = strtof(argv[3], NULL);
	float *w = fal_calloc(n, sizeof(*w)), *g = fal_calloc(n, sizeof(*g));
	float *state = fal_calloc(2 * n, sizeof(*state));
	if (w == NULL || g == NULL || state == NULL || kind == FAL_OPTIMS ||
	    fread(w, sizeof(*w), n, stdin) != n)
		errx(1, "no weights");
	for (uint64_t t = 0; fread(g, sizeof(*g), n, stdin) == n; t++) {
		const struct fal_optim_step by = fal_optim_step(&o, lr, t);
		fal_optim_apply(&by, w, state, n, g, n);
	}
	fwrite(w, sizeof(*w), n, stdout);
	free(w);
	free(g);
	free(state);
	return 0;
}
