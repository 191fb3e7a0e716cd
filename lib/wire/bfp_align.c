/* Sums whose exponents differ.
 *
 * The coarser side (the larger exponent) is shifted to the finer quantum, which is exact,
 * as long as the sum stays within 2^FAL_BFP_ROOM_ALL.  Where it would not, the finer side
 * is rounded to the coarser quantum, half to even: an error of half a quantum at most, as
 * each task of the coarser side has brought already.  So shifting never uses up the room
 * of what is still to come, and only a sum that is too large by itself is refused. */
#include "wire/bfp.h"

#include "base/err.h"

#include <stdbool.h>

/* A block: len values of magnitude up to `bound`, in quanta of 2^(e - FAL_BFP_P + 1). */
struct values {
	int64_t v[FAL_BLOCK];
	uint32_t len;
	uint64_t bound;
	int e;
};

/* Whether the coarser one, shifted by k, and the finer one can be added. */
static bool
fits(uint64_t coarse, int k, uint64_t fine)
{
	const uint64_t most = (uint64_t)1 << FAL_BFP_ROOM_ALL;
	return coarse == 0 || (k < 63 && fine <= most && coarse <= (most - fine) >> k);
}

static void
make_finer(struct values *x, int k)
{
	x->e -= k;
	if (x->bound == 0)
		return;
	x->bound <<= k;
	for (uint32_t i = 0; i < x->len; i++)
		x->v[i] *= (int64_t)1 << k;
}

/* v / 2^k, rounded half to even; |v| <= 2^62. */
static int64_t
rounded(int64_t v, int k)
{
	if (k > 62)
		return 0;
	const int64_t unit = (int64_t)1 << k, low = v & (unit - 1);
	const int64_t q = (v - low) / unit;
	return q + (low > unit / 2 || (low == unit / 2 && (q & 1) != 0));
}

static void
make_coarser(struct values *x, int k)
{
	x->e += k;
	x->bound = k > 62 ? 0 : (uint64_t)rounded((int64_t)x->bound, k);
	for (uint32_t i = 0; i < x->len; i++)
		x->v[i] = rounded(x->v[i], k);
}

/* to += from, both brought to one quantum: 0, or 1 when that had to round; FAL_ELIMIT. */
static int
align_add(struct values *to, struct values *from)
{
	struct values *fine = to->e < from->e ? to : from;
	struct values *coarse = fine == to ? from : to;
	const int k = coarse->e - fine->e;
	const bool exact = fits(coarse->bound, k, fine->bound);
	if (exact)
		make_finer(coarse, k);
	else
		make_coarser(fine, k);
	if (to->bound + from->bound > (uint64_t)FAL_BFP_LIMIT)
		return FAL_ELIMIT;
	to->bound += from->bound;
	for (uint32_t i = 0; i < to->len; i++)
		to->v[i] += from->v[i];
	return !exact;
}

/* Adds `from` to the block, whose exponent is *e. */
static int
add_values(struct fal_sum *dst, uint32_t block, int8_t *e, struct values *from,
	   int8_t needed)
{
	struct values to = { .len = from->len,
			     .bound = fal_sum_bound(dst, block),
			     .e = *e };
	const int8_t had = fal_sum_needed(dst, block);
	fal_sum_load(dst, block, to.v);
	const int rounding = align_add(&to, from);
	if (rounding < 0)
		return rounding;
	int err = fal_sum_store(dst, block, to.v, to.bound, needed > had ? needed : had);
	if (err < 0)
		return err;
	*e = (int8_t)to.e;
	return rounding;
}

int
fal_sum_add_aligned(struct fal_sum *dst, int8_t *dst_exps, const struct fal_sum *src,
		    const int8_t *src_exps)
{
	const size_t n = fal_sum_len(dst);
	for (uint32_t b = 0; b < fal_blocks(n); b++) {
		int err;
		if (fal_sum_bound(dst, b) == 0)
			dst_exps[b] = src_exps[b];
		if (dst_exps[b] == src_exps[b] || fal_sum_bound(src, b) == 0) {
			err = fal_sum_add_block(dst, src, b);
		} else {
			struct values from = { .len = fal_block_len(n, b),
					       .bound = fal_sum_bound(src, b),
					       .e = src_exps[b] };
			fal_sum_load(src, b, from.v);
			err = add_values(dst, b, &dst_exps[b], &from,
					 fal_sum_needed(src, b));
		}
		if (err < 0)
			return err;
	}
	return FAL_OK;
}

int
fal_sum_add_rec_aligned(struct fal_sum *dst, int8_t *e, const struct fal_bfp_rec *rec)
{
	if (fal_bfp_rec_bound(rec) == 0 || *e == rec->exponent)
		return fal_sum_add_rec(dst, rec);
	if (fal_sum_bound(dst, rec->block) == 0) {
		int err = fal_sum_add_rec(dst, rec);
		*e = err == FAL_OK ? rec->exponent : *e;
		return err;
	}
	struct values from = { .len = rec->len,
			       .bound = fal_bfp_rec_bound(rec),
			       .e = rec->exponent };
	fal_bfp_rec_load(rec, from.v);
	return add_values(dst, rec->block, e, &from, rec->needed);
}
