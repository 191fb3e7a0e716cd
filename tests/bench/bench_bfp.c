/* bench_bfp: GB/s of the exact-sum kernels beside their naive twins: bytes of float32
 * parameters handled a second, one thread, best of several rounds, in cache and in
 * memory. */
#include "../naive_bfp.h"
#include "base/buf.h"
#include "base/rng.h"
#include "wire/bfp.h"

#include "bench.h"

#include <err.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROUNDS = 5 };

struct bench {
	size_t n;
	float *g;
	float *out;
	int8_t *exps;
	struct fal_sum *a;
	struct fal_sum *b;
	int64_t *plain;
	struct fal_buf packed;
	struct fal_buf again;
};

static void
ok(int r, const char *what)
{
	if (r < 0)
		errx(1, "%s: error %d", what, r);
}

static void
quantise(struct bench *x)
{
	ok(fal_sum_quantise(x->a, x->g, x->exps, FAL_BFP_ROOM, NULL), "quantise");
}

static void
quantise_naive(struct bench *x)
{
	ok(fal_sum_quantise_naive(x->a, x->g, x->exps, FAL_BFP_ROOM, NULL), "quantise");
}

/* Rounding to fewer bits, which comes before (push.bits). */
static void
dither(struct bench *x)
{
	for (uint32_t b = 0; b < fal_blocks(x->n); b++)
		fal_bfp_dither(x->g + (size_t)b * FAL_BLOCK, FAL_BLOCK, 8, 1, b);
}

static void
add(struct bench *x)
{
	fal_sum_clear(x->b);
	ok(fal_sum_add(x->b, x->a), "add");
	for (unsigned i = 0; i < 7; i++)
		ok(fal_sum_add(x->b, x->a), "add");
}

static void
add_naive(struct bench *x)
{
	for (unsigned k = 0; k < 8; k++)
		for (size_t i = 0; i < x->n; i++)
			x->plain[i] += sum_value(x->a, i);
}

static void
pack(struct bench *x)
{
	fal_buf_clear(&x->packed);
	for (uint32_t b = 0; b < fal_blocks(x->n); b++)
		ok(fal_sum_pack(x->a, b, x->exps[b], &x->packed), "pack");
}

/* One value at a time into its place, as the header describes the layout. */
static void
pack_naive(struct bench *x)
{
	fal_buf_clear(&x->again);
	for (uint32_t b = 0; b < fal_blocks(x->n); b++) {
		uint8_t *to = fal_buf_room(&x->again, fal_bfp_packed_size(FAL_BLOCK, 24));
		if (to == NULL)
			errx(1, "out of memory");
		memset(to, 0, fal_bfp_packed_size(FAL_BLOCK, 24));
		for (uint32_t i = 0; i < FAL_BLOCK; i++) {
			uint64_t v = (uint64_t)sum_value(x->a, (size_t)b * FAL_BLOCK + i);
			for (uint32_t k = 0; k < 24; k++) {
				uint32_t bit = i / 128 * 24 + k,
					 at = bit / 32 * 128 + i % 128;
				uint32_t place = 8 * 4 * at + bit % 32;
				to[place / 8] |= (uint8_t)((v >> k & 1) << place % 8);
			}
		}
	}
}

static void
unpack(struct bench *x)
{
	struct fal_rd r = fal_rd_init(x->packed.p, x->packed.n);
	struct fal_bfp_rec rec;
	fal_sum_clear(x->b);
	while (r.n != 0) {
		ok(fal_bfp_parse(&r, x->n, &rec), "parse");
		ok(fal_sum_add_rec(x->b, &rec), "add record");
	}
}

static void
unpack_naive(struct bench *x)
{
	struct fal_rd r = fal_rd_init(x->packed.p, x->packed.n);
	struct fal_bfp_rec rec;
	while (r.n != 0) {
		ok(fal_bfp_parse(&r, x->n, &rec), "parse");
		for (uint32_t i = 0; i < rec.len; i++)
			x->plain[rec.block * (size_t)FAL_BLOCK + i] +=
				record_value(&rec, i);
	}
}

static void
mean(struct bench *x)
{
	for (uint32_t b = 0; b < fal_blocks(x->n); b++)
		fal_sum_mean(x->a, b, x->exps[b], 60000, x->out + (size_t)b * FAL_BLOCK);
}

static void
mean_naive(struct bench *x)
{
	for (size_t i = 0; i < x->n; i++)
		x->out[i] = (float)(ldexp((double)sum_value(x->a, i),
					  x->exps[i / FAL_BLOCK] - FAL_BFP_P + 1) /
				    60000);
}

static void
checksum(struct bench *x)
{
	uint64_t sum = 0;
	for (uint32_t b = 0; b < fal_blocks(x->n); b++)
		sum += fal_sum_checksum(x->a, b, b, 1);
	x->plain[0] = (int64_t)sum;
}

static double
rate(struct bench *x, void (*f)(struct bench *), unsigned calls)
{
	double best = HUGE_VAL;
	f(x);
	for (unsigned r = 0; r < ROUNDS; r++) {
		double t = now();
		for (unsigned p = 0; p < calls; p++)
			f(x);
		t = (now() - t) / calls;
		best = t < best ? t : best;
	}
	return 4.0 * (double)x->n / best / 1e9;
}

static const struct {
	const char *name;
	void (*fast)(struct bench *);
	void (*naive)(struct bench *); /* NULL: has no other form */
	unsigned times;                /* passes over the vector in one call */
} kernels[] = {
	{ "quantise", quantise, quantise_naive, 1 },
	{ "dither", dither, NULL, 1 },
	{ "add", add, add_naive, 8 },
	{ "pack", pack, pack_naive, 1 },
	{ "add-record", unpack, unpack_naive, 1 },
	{ "mean", mean, mean_naive, 1 },
	{ "checksum", checksum, NULL, 1 },
};

static void
set_up(struct bench *x)
{
	struct fal_rng rng = fal_rng_init(1, FAL_RNG_TEST, 0);
	x->g = malloc(x->n * sizeof(*x->g));
	x->out = malloc(x->n * sizeof(*x->out));
	x->exps = calloc(fal_blocks(x->n), 1);
	x->plain = calloc(x->n, sizeof(*x->plain));
	x->a = fal_sum_new(x->n);
	x->b = fal_sum_new(x->n);
	if (x->g == NULL || x->out == NULL || x->exps == NULL || x->plain == NULL ||
	    x->a == NULL || x->b == NULL)
		errx(1, "out of memory");
	for (size_t i = 0; i < x->n; i++)
		x->g[i] = 2 * fal_rng_unit(&rng) - 1;
}

static void
tear_down(struct bench *x)
{
	fal_sum_free(x->a);
	fal_sum_free(x->b);
	fal_buf_free(&x->packed);
	fal_buf_free(&x->again);
	free(x->g);
	free(x->out);
	free(x->exps);
	free(x->plain);
}

int
main(void)
{
	static const size_t sizes[] = { (size_t)1 << 16, (size_t)1 << 23 };
	for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
		struct bench x = { .n = sizes[k] };
		unsigned calls = k == 0 ? 64 : 1;
		set_up(&x);
		for (size_t i = 0; i < sizeof(kernels) / sizeof(kernels[0]); i++) {
			const char *name = kernels[i].name;
			size_t kib = 4 * x.n / 1024;
			double fast = rate(&x, kernels[i].fast, calls), naive;
			figure(fast * kernels[i].times, "GB/s", "bfp.%zuKiB.%s.fast", kib,
			       name);
			if (kernels[i].naive == NULL)
				continue;
			naive = rate(&x, kernels[i].naive, 1);
			figure(naive * kernels[i].times, "GB/s", "bfp.%zuKiB.%s.naive",
			       kib, name);
		}
		tear_down(&x);
	}
	return 0;
}
