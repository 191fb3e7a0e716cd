/* What a lane made, as it travels. */
#include "run/finish.h"

#include "base/loss.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* Makes one value of the block wrong by its lowest bit, where nothing in the block tells
 * of it; false: there is none. */
static bool
flip(struct fal_sum *s, uint32_t block)
{
	const uint64_t bound = fal_sum_bound(s, block);
	const uint32_t len = fal_block_len(fal_sum_len(s), block);
	int64_t v[FAL_BLOCK];
	uint32_t i = 0;
	fal_sum_load(s, block, v);
	while (i < len && (uint64_t)llabs(v[i]) >= bound / 2)
		i++;
	if (i == len || bound < 4)
		return false;
	v[i] ^= 1;
	return fal_sum_store(s, block, v, bound, fal_sum_needed(s, block)) == FAL_OK;
}

/* Block `b` of the gradient: where it was made, if it is in one piece there, or a copy in
 * `own`; always the copy with `copy`. */
static const float *
block_of(const struct fal_run_made *made, uint64_t n, uint32_t b, bool copy,
	 float own[static FAL_BLOCK])
{
	const uint64_t first = (uint64_t)b * FAL_BLOCK;
	const uint32_t len = fal_block_len(n, b);
	const float *g = made->packed == NULL
				 ? made->grad + first
				 : fal_model_packed(made->packed, made->grad, first, len);
	if (g != NULL && !copy)
		return g;
	if (g != NULL)
		memcpy(own, g, len * sizeof(*own));
	else
		fal_model_unpack(made->packed, made->grad, first, len, own);
	return own;
}

static int
quantise_block(const struct fal_run_job *job, const struct fal_run_made *made, uint32_t b)
{
	const struct fal_run *r = &job->run;
	const uint64_t n = fal_sum_len(r->sum);
	float own[FAL_BLOCK];
	const float *g = block_of(made, n, b, r->bits != 0, own);
	if (r->bits != 0)
		fal_bfp_dither(own, fal_block_len(n, b), r->exps[b], r->seed, b);
	return fal_sum_quantise_block(r->sum, b, g, r->exps[b], r->room);
}

/* Block by block, and hashes what comes of it. */
static int
quantise(const struct fal_run_job *job, const struct fal_run_made *made,
	 uint8_t hash[static FAL_TASK_HASH])
{
	const struct fal_run *r = &job->run;
	bool wrong = job->flip;
	const uint32_t blocks = fal_blocks(fal_sum_len(r->sum));
	struct fal_hash_state h;
	int err = FAL_OK;
	fal_hash_init(&h);
	for (uint32_t b = 0; b < blocks && err == FAL_OK; b++) {
		err = quantise_block(job, made, b);
		if (err == FAL_OK && wrong)
			wrong = !flip(r->sum, b);
		if (err == FAL_OK && job->hashed)
			fal_task_hash_block(&h, r->sum, b, r->exps[b]);
	}
	memset(hash, 0, FAL_TASK_HASH);
	if (err == FAL_OK && job->hashed)
		fal_task_hash_end(&h, hash);
	return err;
}

/* Notes the block that is furthest beyond its room, if one is. */
static void
note_large(const struct fal_run *r, struct fal_ran *ran)
{
	double beyond = 0;
	for (uint32_t b = 0; b < fal_blocks(fal_sum_len(r->sum)); b++) {
		const float most = ldexpf(1, fal_sum_needed(r->sum, b));
		const float room = fal_bfp_most(r->exps[b], r->room);
		if (most >= room && (double)most / (double)room > beyond &&
		    fal_sum_bound(r->sum, b) == (uint64_t)fal_bfp_largest(r->room)) {
			beyond = (double)most / (double)room;
			ran->most = most;
			ran->room = room;
		}
	}
}

void
fal_run_say_large(float most, float room, struct fal_diag *diag)
{
	fal_diag_set(diag, FAL_ENONFINITE,
		     "gradient is finite, but reaches %.7g, and there is room for less "
		     "than %.7g, as which it counts: scale the data or the loss",
		     (double)most, (double)room);
}

int
fal_run_finish(const struct fal_run_job *job, const struct fal_run_made *made,
	       struct fal_ran *ran)
{
	int err = FAL_OK;
	if (made->grad != NULL)
		err = quantise(job, made, ran->hash);
	if (err < 0 && err != FAL_ENONFINITE)
		return err;
	ran->nonfinite = err == FAL_ENONFINITE;
	ran->most = ran->room = 0;
	if (made->grad != NULL && !ran->nonfinite)
		note_large(&job->run, ran);
	ran->loss = fal_loss_said(made->loss, job->count);
	ran->right = made->right;
	ran->samples = job->count;
	return FAL_OK;
}
