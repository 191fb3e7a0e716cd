/* Hostile tables: what is read holds together, and is read again from what a plain hand
 * writes of it. */
#include "base/buf.h"
#include "job/set.h"
#include "spill.h"

#include <assert.h>
#include <math.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void
again(const struct fal_set *set)
{
	struct fal_buf b = { 0 };
	const float *v = (const float *)(const void *)set->pixels;
	const struct fal_set_opts all = { 0 };
	struct fal_diag diag;
	struct fal_set back;
	fal_put_fmt(&b, "y");
	for (uint32_t k = 0; k < set->values; k++)
		fal_put_fmt(&b, ",%u", k);
	for (uint32_t i = 0; i < set->n; i++) {
		fal_put_fmt(&b, "\n%u", set->labels[i]);
		for (uint32_t k = 0; k < set->values; k++) {
			assert(isfinite(*v));
			fal_put_fmt(&b, ",%.9g", (double)*v++);
		}
	}
	assert(b.err == 0);
	const struct fal_csv t = { spill(b.p, b.n), "y", ',' };
	assert(fal_set_load_csv(&t, &all, &back, &diag) == FAL_OK);
	assert(back.n == set->n && back.values == set->values &&
	       back.classes == set->classes);
	assert(memcmp(back.labels, set->labels, set->n * sizeof(*set->labels)) == 0);
	assert(memcmp(back.pixels, set->pixels, (size_t)set->n * set->sample_bytes) == 0);
	fal_set_free(&back);
	fal_buf_free(&b);
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	const struct fal_csv t = { spill(p, n), "y", n % 2 ? ',' : '\t' };
	const struct fal_set_opts opts = { .max_bytes = 1 << 20,
					   .max_samples = (uint32_t)(n % 5 / 4) };
	struct fal_diag diag;
	struct fal_set set;
	if (fal_set_load_csv(&t, &opts, &set, &diag) < 0)
		return 0;
	again(&set);
	fal_set_free(&set);
	return 0;
}
