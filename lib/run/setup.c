/* From texts to a job, its model, and places of samples. */
#include "run/setup.h"

#include "base/mem.h"
#include "base/text.h"
#include "wire/bfp.h"

#include <stdlib.h>

static int
check_data(const struct fal_setup *s, struct fal_diag *diag)
{
	const struct fal_part *part = &s->manifest.train;
	const uint32_t has = fal_part_channels(part);
	if (s->job.channels != 1 && s->job.channels != has)
		return fal_diag_set(diag, FAL_EINVAL,
				    "data.mean lists %u channel%s, a sample has %u",
				    s->job.channels, fal_text_s(s->job.channels), has);
	if (s->job.format == FAL_JOB_FORMAT_TEXT &&
	    (part->dtype != FAL_U8 || part->values != s->job.window + 1))
		return fal_diag_set(diag, FAL_EINVAL,
				    "data.window is %u, but a sample has %u of %s",
				    s->job.window, part->values,
				    fal_dtype_name(part->dtype));
	return FAL_OK;
}

int
fal_setup_parse(const struct fal_setup_text *job, const struct fal_setup_text *model,
		struct fal_job *out, struct fal_model **m, struct fal_diag *diag)
{
	int err = fal_job_parse(job->name, job->p, job->n, out, diag);
	if (err == FAL_OK)
		err = fal_model_parse(model->name, model->p, model->n, m, diag);
	if (err == FAL_OK && out->block == FAL_JOB_BLOCK_TENSOR &&
	    (err = fal_model_align(*m, FAL_BLOCK)) < 0)
		fal_diag_set(diag, err, "%s: more than 2^31 values", model->name);
	return err == FAL_OK ? fal_job_ranges(out, *m, diag) : err;
}

static int
make(struct fal_setup *s, const struct fal_setup_text *job,
     const struct fal_setup_text *model, struct fal_diag *diag)
{
	const struct fal_part *test = &s->manifest.test;
	int err = fal_setup_parse(job, model, &s->job, &s->model, diag);
	if (err == FAL_OK)
		err = check_data(s, diag);
	if (err < 0)
		return err;
	err = fal_norm_init(&s->norm, s->job.channels, s->job.mean, s->job.std);
	const struct fal_order_opts in_order = { .n = test->n,
						 .per_chunk = test->per_chunk };
	if (err == FAL_OK && test->n > 0)
		err = fal_order_init(&s->test_order, &in_order);
	return err < 0 ? fal_diag_set(diag, err, "%s", fal_strerror(err)) : FAL_OK;
}

int
fal_setup_make(struct fal_setup *s, const struct fal_setup_text *job,
	       const struct fal_setup_text *model, struct fal_diag *diag)
{
	int err = make(s, job, model, diag);
	if (err < 0)
		fal_setup_free(s);
	return err;
}

void
fal_setup_free(struct fal_setup *s)
{
	fal_epoch_drop(s->epoch);
	fal_order_free(&s->test_order);
	fal_manifest_free(&s->manifest);
	fal_model_free(s->model);
	fal_job_free(&s->job);
	*s = (struct fal_setup){ 0 };
}

static enum fal_shuffle
shuffle_of(const struct fal_job *job)
{
	if (job->partition != FAL_JOB_PARTITION_SHARED)
		return FAL_SHUFFLE_PARTS;
	return job->shuffle == FAL_JOB_SHUFFLE_FULL ? FAL_SHUFFLE_FULL
						    : FAL_SHUFFLE_WINDOW;
}

struct fal_epoch *
fal_setup_epoch(struct fal_setup *s, uint32_t number)
{
	const struct fal_order_opts opts = {
		.seed = s->job.seed,
		.epoch = number,
		.n = s->manifest.train.n,
		.per_chunk = s->manifest.train.per_chunk,
		.shuffle = shuffle_of(&s->job),
		.batch = s->job.batch,
		.task = s->job.task,
		.parts = s->job.parts,
		.labels = s->manifest.train.labels,
	};
	if (s->epoch == NULL || s->epoch->number != number) {
		struct fal_epoch *e = fal_calloc(1, sizeof(*e));
		if (e == NULL || fal_order_init(&e->order, &opts) < 0) {
			free(e);
			return NULL;
		}
		e->number = number;
		e->refs = 1;
		fal_epoch_drop(s->epoch);
		s->epoch = e;
	}
	s->epoch->refs++;
	return s->epoch;
}

void
fal_epoch_drop(struct fal_epoch *e)
{
	if (e == NULL || --e->refs > 0)
		return;
	fal_order_free(&e->order);
	free(e);
}

uint64_t
fal_setup_bytes(const struct fal_setup *s)
{
	return fal_part_bytes(&s->manifest.train) + fal_part_bytes(&s->manifest.test) +
	       2 * (uint64_t)s->manifest.train.n * sizeof(uint32_t);
}

struct fal_places
fal_setup_places(const struct fal_setup *s, uint64_t clock, uint32_t task)
{
	const struct fal_grid g = fal_job_grid(&s->job, s->manifest.train.n);
	const uint64_t clocks = fal_grid_epoch_clocks(&g);
	struct fal_places p = { .epoch = (uint32_t)(clock / clocks) };
	if (task >= fal_grid_tasks(&g, clock))
		return p;
	p.first = (uint32_t)(clock % clocks * g.batch + (uint64_t)task * g.task);
	p.count = fal_grid_range_samples(&g, clock, task, 1);
	return p;
}

struct fal_places
fal_setup_test_places(const struct fal_setup *s, uint32_t task)
{
	const uint64_t first = (uint64_t)task * s->job.task, n = s->manifest.test.n;
	struct fal_places p = { 0 };
	if (first >= n)
		return p;
	p.first = (uint32_t)first;
	p.count = n - first < s->job.task ? (uint32_t)(n - first) : s->job.task;
	return p;
}
