/* A step that begins before its round is complete: a block as soon as it has counted all
 * tasks, while its sum is in the cache.
 *
 * The version before stays readable meanwhile, so a stepped block stands where its sum
 * was, which nobody needs any more; and at the end that memory and the parameters' change
 * places.  State, and how far a block reaches, nobody sees before.
 */
#include "store/store_priv.h"

#include <assert.h>
#include <string.h>

bool
store_is_done(const struct fal_store *s, const struct round *r, uint32_t b)
{
	return s->ahead.is && s->ahead.round == r->is.round && s->ahead.done[b] != 0;
}

bool
fal_store_ahead(struct fal_store *s, const struct fal_store_ahead *is)
{
	const struct round *r = round_find(s, is->round);
	struct store_ahead *a = &s->ahead;
	if (a->is)
		return a->round == is->round;
	if (r == NULL || r->is.kind != FAL_KIND_GRAD || r->is.mixed ||
	    s->conf.checksums || s->conf.optim.clip > 0 || s->sum != NULL || s->moved ||
	    !(is->divisor > 0) || !(is->samples > 0))
		return false;
	a->is = true;
	a->round = is->round;
	a->by = fal_optim_step(&s->conf.optim, is->lr, s->steps);
	a->divisor = is->divisor;
	a->samples = is->samples;
	a->n = a->run = a->refused = 0;
	memset(a->done, 0, s->blocks);
	memcpy(a->exps, s->exps, s->blocks);
	return true;
}

static void
step_one(struct fal_store *s, struct fal_sum *sum, const int8_t *sum_exps, uint32_t b)
{
	struct store_ahead *a = &s->ahead;
	const struct store_step step = { .sum = sum,
					 .sum_exps = sum_exps,
					 .by = a->by,
					 .divisor = a->divisor,
					 .from = s->params,
					 .params = fal_sum_place(sum, 0),
					 .state = s->state,
					 .exps = a->exps,
					 .reach = s->reach };
	a->refused += !store_step_block(s, &step, 1, b);
	a->done[b] = 1;
	a->n++;
	while (a->run < s->blocks && a->done[a->run] != 0)
		a->run++;
}

static void
step_if_ready(struct fal_store *s, const struct round *r, uint32_t b)
{
	const bool ready = s->ahead.done[b] == 0 && r->counted[b] == r->is.tasks;
	if (ready && store_is_clean(s, r, b, s->ahead.samples))
		step_one(s, r->sum, r->exps, b);
}

void
fal_store_ahead_block(struct fal_store *s, uint32_t b)
{
	const struct round *r = s->ahead.is ? round_find(s, s->ahead.round) : NULL;
	if (r != NULL)
		step_if_ready(s, r, b);
}

void
fal_store_ahead_all(struct fal_store *s)
{
	const struct round *r = s->ahead.is ? round_find(s, s->ahead.round) : NULL;
	for (uint32_t b = 0; r != NULL && b < s->blocks; b++)
		step_if_ready(s, r, b);
}

uint32_t
store_end_ahead(struct fal_store *s)
{
	struct store_ahead *a = &s->ahead;
	assert(s->sum != NULL && !s->moved);
	for (uint32_t b = 0; b < s->blocks; b++)
		if (a->done[b] == 0)
			step_one(s, s->sum, s->sum_exps, b);
	/* Memory of which the other half was written stays a sum's. */
	if (fal_sum_grown(s->sum))
		memcpy(s->params, fal_sum_place(s->sum, 0), s->conf.n * sizeof(float));
	else
		s->params = fal_sum_swap(s->sum, s->params);
	memcpy(s->exps, a->exps, s->blocks);
	s->steps++;
	a->is = false;
	return a->refused;
}

uint32_t
fal_store_made(const struct fal_store *s, uint64_t version, const float **params,
	       const int8_t **exps)
{
	const struct store_ahead *a = &s->ahead;
	if (fal_store_at(s, version, params, exps))
		return s->blocks;
	const struct round *r = a->is ? round_find(s, a->round) : NULL;
	if (r == NULL || version != s->version + 1)
		return 0;
	*params = fal_sum_place(r->sum, 0);
	*exps = a->exps;
	return a->run;
}
