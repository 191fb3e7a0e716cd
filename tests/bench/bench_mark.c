/* bench_mark: milliseconds that a mark (server/shard.h) adds to the step that carries it,
 * as the image of a model with momentum is copied; ten of them are 1 % of a clock of a
 * second.  Argument: millions of parameters; 25 by default. */
#include "base/err.h"
#include "base/mem.h"
#include "server/shard_set.h"

#include "bench.h"

#include <err.h>
#include <stdlib.h>

enum { ROUNDS = 7 };

int
main(int argc, char **argv)
{
	const size_t n = (argc > 1 ? strtoull(argv[1], NULL, 10) : 25) * 1000000;
	const struct fal_shard_set_conf conf = {
		.shards = 1,
		.each = { .n = n,
			  .tasks = 8,
			  .optim = { .kind = FAL_MOMENTUM, .momentum = 0.9f } },
	};
	float *init = fal_calloc(n, sizeof(*init));
	struct fal_shard_set *shard_set =
		init != NULL ? fal_shard_set_new(&conf, init) : NULL;
	if (shard_set == NULL)
		errx(1, "out of memory");
	free(init);
	double best = 0, worst = 0;
	for (int i = 0; i < ROUNDS; i++) {
		const struct fal_shard_order mark = { .kind = FAL_ORDER_SNAPSHOT };
		struct fal_image image;
		const double from = now();
		if (fal_shard_set_order(shard_set, &mark, NULL) < 0 ||
		    !fal_shard_set_take_marked(shard_set, 0, &image))
			errx(1, "no image");
		const double ms = (now() - from) * 1e3;
		best = i == 0 || ms < best ? ms : best;
		worst = ms > worst ? ms : worst;
		fal_shard_set_recycle_image(shard_set, 0, &image);
	}
	figure(best, "ms", "mark.%zuM.best", n / 1000000);
	figure(worst, "ms", "mark.%zuM.worst", n / 1000000);
	fal_shard_set_free(shard_set);
	return 0;
}
