/* Headers, parameters and samples for trainers. */
#include "exec_job.h"

#include "base/rng.h"
#include "model/safetensors.h"

#include <inttypes.h>

/* The two tensors of a slot of samples: labels first, so that both are aligned. */
static int
samples_header(const struct setup *s, struct fal_buf *out)
{
	const struct fal_part *part = &s->manifest.train;
	const uint64_t y = 8 * (uint64_t)s->job.task;
	const uint64_t x = 4 * (uint64_t)s->job.task * part->sample_bytes;
	fal_put_fmt(out,
		    "{\"y\":{\"dtype\":\"I64\",\"shape\":[%u],"
		    "\"data_offsets\":[0,%" PRIu64 "]},"
		    "\"x\":{\"dtype\":\"F32\",\"shape\":[%u,%u,%u,%u],"
		    "\"data_offsets\":[%" PRIu64 ",%" PRIu64 "]}}",
		    s->job.task, y, s->job.task, part->shape[0], part->shape[1],
		    part->shape[2], y, y + x);
	return out->err;
}

int
exec_job_make(struct child_job *j, const struct setup *s)
{
	*j = (struct child_job){ 0 };
	j->job = (struct fal_grad_job){ .name = s->job.name,
					.seed = s->job.seed,
					.task = s->job.task,
					.batch = s->job.batch,
					.train = s->manifest.train.n,
					.test = s->manifest.test.n };
	j->params_bytes = s->model->params * sizeof(float);
	j->samples_bytes = (uint64_t)s->job.task *
			   (8 + 4 * (uint64_t)s->manifest.train.sample_bytes);
	int err = fal_safetensors_header(s->model, &j->params);
	return err < 0 ? err : samples_header(s, &j->samples);
}

void
exec_job_free(struct child_job *j)
{
	fal_buf_free(&j->params);
	fal_buf_free(&j->samples);
}

void
exec_job_params(const struct setup *s, float *params)
{
	struct fal_rng r = fal_rng_init(s->job.seed, FAL_RNG_TEST, 1);
	if (s->model->layers > 0)
		fal_model_init(s->model, s->job.seed, params);
	for (uint64_t i = 0; s->model->layers == 0 && i < s->model->params; i++)
		params[i] = (fal_rng_unit(&r) - 0.5f) / 8;
}

int
exec_job_fill(void *arg, void *data)
{
	const struct exec_samples *s = arg;
	const struct maker_job *j = s->job;
	int64_t *y = data;
	float *x = (float *)(y + s->task);
	int err = fal_batch_fill(&j->batch, j->first, j->count, x, s->label);
	for (uint32_t i = 0; i < j->count && err == FAL_OK; i++)
		y[i] = s->label[i];
	return err;
}
