/* bench_optim: milliseconds that a store takes for an update of a million parameters,
 * sums to means included, one thread, median of several updates, by each optimiser: in
 * memory, and once what a block needs is in cache. */
#include "base/mem.h"
#include "base/rng.h"
#include "server/store.h"

#include "bench.h"

#include <err.h>
#include <stdlib.h>

enum { UPDATES = 9, LARGE = 1 << 24, SMALL = 1 << 16, TASKS = 1 };

static void
ok(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: error %d", what, r);
}

static int
by_size(const void *a, const void *b)
{
	const double x = *(const double *)a, y = *(const double *)b;
	return (x > y) - (x < y);
}

/* Brings a round of these gradients, up to where it is collected. */
static void
collect(struct fal_store *s, uint64_t round, struct fal_sum *sum, const float *grad,
	struct fal_buf *buf)
{
	const struct fal_store_round r = {
		.round = round, .tasks = TASKS, .kind = FAL_KIND_GRAD, .version = round
	};
	const struct fal_store_from from = { .round = round,
					     .id = { 1, (uint32_t)round + 1 },
					     .tasks = TASKS };
	fal_store_open(s, &r);
	ok(fal_sum_quantise(sum, grad, fal_store_exps(s), FAL_BFP_ROOM, NULL),
	   "quantise");
	for (uint32_t b = 0; b < fal_blocks(fal_store_len(s)); b++) {
		struct fal_bfp_rec rec;
		fal_buf_clear(buf);
		ok(fal_sum_pack(sum, b, fal_store_exps(s)[b], buf), "pack");
		struct fal_rd in = fal_rd_init(buf->p, buf->n);
		ok(fal_bfp_parse(&in, fal_store_len(s), &rec), "read");
		ok(fal_store_add(s, &from, &rec), "add");
	}
	ok(fal_store_merge(s, round), "merge");
}

static void
measure(enum fal_optim_kind kind, size_t n, const char *where)
{
	const struct fal_store_conf conf = { .n = n,
					     .tasks = TASKS,
					     .optim = { .kind = kind,
							.momentum = 0.9f,
							.weight_decay = 0.01f,
							.beta1 = 0.9,
							.beta2 = 0.999,
							.eps = 1e-8f } };
	float *grad = fal_calloc_aligned(n, sizeof(float));
	struct fal_sum *sum = fal_sum_new(n);
	struct fal_buf buf = { 0 };
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	double ms[UPDATES];
	if (grad == NULL || sum == NULL)
		errx(1, "out of memory");
	for (size_t i = 0; i < n; i++)
		grad[i] = fal_rng_unit(&r) - 0.5f;
	struct fal_store *s = fal_store_new(&conf, grad);
	if (s == NULL)
		errx(1, "out of memory");
	for (uint64_t k = 0; k < UPDATES; k++) {
		collect(s, k, sum, grad, &buf);
		const double began = now();
		const struct fal_unstepped un =
			fal_store_step(s, &(struct fal_store_update){ .lr = 1e-3f,
								      .divisor = 1 });
		if (un.out_of_range + un.nonfinite > 0)
			errx(1, "a block was refused");
		ms[k] = (now() - began) * 1e3;
	}
	qsort(ms, UPDATES, sizeof(*ms), by_size);
	figure(ms[UPDATES / 2] / ((double)n / 1e6), "ms", "optim.%s.%s-million",
	       fal_optim_name(kind), where);
	fal_store_free(s);
	fal_sum_free(sum);
	fal_buf_free(&buf);
	free(grad);
}

int
main(void)
{
	for (unsigned k = 0; k < FAL_OPTIMS; k++) {
		measure((enum fal_optim_kind)k, LARGE, "memory");
		measure((enum fal_optim_kind)k, SMALL, "cache");
	}
	return 0;
}
