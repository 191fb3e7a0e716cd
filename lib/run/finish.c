/* What a lane made, as it travels. */
#include "run/finish.h"

#include <math.h>

/* As it travels; what is not finite shows in the gradient. */
static int64_t
fixed_loss(double loss, uint32_t samples)
{
	const double most = (double)samples * FAL_LOSS_MAX;
	const double least = isfinite(loss) ? fmax(fmin(loss, most), -most) : 0;
	return llrint(ldexp(least, FAL_LOSS_BITS));
}

/* Block by block, by way of memory that is ours. */
static int
quantise_packed(const struct fal_run *r, const struct fal_run_made *made)
{
	const uint64_t n = made->packed->params;
	float g[FAL_BLOCK];
	int err = FAL_OK;
	for (uint32_t b = 0; b < fal_blocks(n) && err == FAL_OK; b++) {
		fal_model_unpack(made->packed, made->grad, (uint64_t)b * FAL_BLOCK,
				 fal_block_len(n, b), g);
		err = fal_sum_quantise_block(r->sum, b, g, r->exps[b], r->room);
	}
	return err;
}

int
fal_run_finish(const struct fal_run_job *job, const struct fal_run_made *made,
	       struct fal_ran *ran)
{
	const struct fal_run *r = &job->run;
	int err = FAL_OK;
	if (made->grad != NULL && made->packed != NULL)
		err = quantise_packed(r, made);
	else if (made->grad != NULL)
		err = fal_sum_quantise(r->sum, made->grad, r->exps, r->room, NULL);
	if (err < 0 && err != FAL_ENONFINITE)
		return err;
	ran->nonfinite = err == FAL_ENONFINITE;
	ran->loss = fixed_loss(made->loss, job->count);
	ran->right = made->right;
	ran->samples = job->count;
	return FAL_OK;
}
