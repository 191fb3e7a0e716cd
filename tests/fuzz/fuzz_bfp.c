/* Records of exact sums from a stranger: the first two bytes are the vector's length,
 * then records follow.  What is taken must mean one thing: the naive unpacking, the
 * sum, and the sum packed and parsed again agree. */
#include "../naive_bfp.h"
#include "base/err.h"
#include "wire/bfp.h"

#include <stdbool.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *p, size_t n);

static void
must(bool fact)
{
	if (!fact)
		abort();
}

/* `s` holds the record's values and nothing else in its block. */
static void
again(const struct fal_sum *s, const struct fal_bfp_rec *rec)
{
	struct fal_buf buf = { 0 };
	struct fal_bfp_rec back;
	must(fal_sum_pack(s, rec->block, rec->exponent, &buf) == 0);
	struct fal_rd r = fal_rd_init(buf.p, buf.n);
	must(fal_bfp_parse(&r, fal_sum_len(s), &back) == 0 && fal_rd_end(&r) == 0);
	must(back.block == rec->block && back.needed == rec->needed);
	must(back.width <= rec->width);
	for (uint32_t i = 0; i < rec->len; i++) {
		size_t at = (size_t)rec->block * FAL_BLOCK + i;
		must(sum_value(s, at) == record_value(rec, i));
		must(record_value(&back, i) == record_value(rec, i));
	}
	fal_buf_free(&buf);
}

/* Records of any exponents add up within the sum's own bound, or are refused. */
static void
aligned(struct fal_sum *sum, int8_t exps[static 3], const struct fal_bfp_rec *rec)
{
	must(fal_sum_add_rec_aligned(sum, &exps[rec->block], rec) != FAL_ENOMEM);
	must(exps[rec->block] >= FAL_EXP_MIN && exps[rec->block] <= FAL_EXP_MAX);
	const int64_t bound = (int64_t)fal_sum_bound(sum, rec->block);
	for (uint32_t i = 0; i < rec->len; i++) {
		int64_t v = sum_value(sum, (size_t)rec->block * FAL_BLOCK + i);
		must(v >= -bound && v <= bound);
	}
}

int
LLVMFuzzerTestOneInput(const uint8_t *p, size_t n)
{
	struct fal_rd r = fal_rd_init(p, n);
	size_t len = fal_get_u16(&r) % (2 * FAL_BLOCK + 2) + (size_t)1;
	struct fal_sum *one = fal_sum_new(len), *sum = fal_sum_new(len);
	struct fal_sum *mixed = fal_sum_new(len);
	int8_t exps[3] = { 0 };
	struct fal_bfp_rec rec;
	must(one != NULL && sum != NULL && mixed != NULL);
	while (r.n != 0 && fal_bfp_parse(&r, len, &rec) == 0) {
		fal_sum_clear(one);
		must(fal_sum_add_rec(one, &rec) == 0);
		again(one, &rec);
		aligned(mixed, exps, &rec);
		if (fal_sum_add_rec(sum, &rec) < 0)
			break; /* the sums' limit */
	}
	fal_sum_free(one);
	fal_sum_free(sum);
	fal_sum_free(mixed);
	return 0;
}
