/* Where the parameters are made elsewhere: sums leave, versions come. */
#include "store/store_priv.h"

#include "base/err.h"

#include <assert.h>
#include <string.h>

int
fal_store_give(struct fal_store *s, uint64_t round, struct fal_sum *into)
{
	const struct round *r = store_completed(s, round, FAL_KIND_GRAD);
	int64_t sum[FAL_BLOCK], v[FAL_BLOCK];
	int err = FAL_OK;
	for (uint32_t b = 0; b < s->blocks && err == FAL_OK; b++) {
		const uint32_t as = s->conf.first + b;
		const uint32_t len = fal_block_len(s->conf.n, b);
		const uint64_t bound = fal_sum_bound(r->sum, b) + fal_sum_bound(into, as);
		const int8_t needed = fal_sum_needed(r->sum, b),
			     had = fal_sum_needed(into, as);
		if (bound > (uint64_t)FAL_BFP_LIMIT)
			return FAL_ELIMIT;
		fal_sum_load(r->sum, b, v);
		fal_sum_load(into, as, sum);
		for (uint32_t i = 0; i < len; i++)
			sum[i] += v[i];
		err = fal_sum_store(into, as, sum, bound, needed > had ? needed : had);
	}
	fal_store_drop(s, round);
	return err;
}

int
fal_store_put(struct fal_store *s, uint64_t version, const float *params,
	      const int8_t *exps)
{
	assert(!s->making->on);
	if (version < s->version)
		return FAL_EINVAL;
	if (version > s->version)
		store_put_by(s, s->version, s->params, s->exps);
	s->version = version;
	memcpy(s->params, params, s->conf.n * sizeof(*params));
	memcpy(s->exps, exps, s->blocks);
	store_widen_ranges(s);
	for (uint32_t b = 0; b < s->blocks; b++)
		s->reach[b] = store_reach(s, s->params, s->state, b);
	return FAL_OK;
}
