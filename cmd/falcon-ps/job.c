/* Loading a job. */
#include "job.h"

#include "base/parse.h"
#include "cli/file.h"

#include <stdlib.h>

enum { TEXT_MAX = 1 << 20 }; /* bytes of a job or model file */

static int
load_text(struct ps_job *j, const char *path, const char *const *set, size_t n_set,
	  struct fal_diag *diag)
{
	int err = fal_cli_read(path, TEXT_MAX, &j->job_text, diag);
	for (size_t i = 0; i < n_set && err == FAL_OK; i++) {
		struct fal_buf changed = { 0 };
		err = fal_job_override(path, (const char *)j->job_text.p, j->job_text.n,
				       set[i], &changed, diag);
		fal_buf_free(&j->job_text);
		j->job_text = changed;
	}
	if (err == FAL_OK)
		err = fal_job_parse(path, (const char *)j->job_text.p, j->job_text.n,
				    &j->job, diag);
	fal_hash(j->job_text.p, j->job_text.n, j->hash);
	fal_hex(j->hash, FAL_HASH_BYTES, j->hash_hex);
	return err;
}

static int
load_model(struct ps_job *j, const char *path, struct fal_diag *diag)
{
	char *file = fal_job_path(path, j->job.model);
	if (file == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	int err = fal_cli_read(file, TEXT_MAX, &j->model_text, diag);
	if (err == FAL_OK)
		err = fal_model_parse(file, (const char *)j->model_text.p,
				      j->model_text.n, &j->model, diag);
	free(file);
	return err;
}

static int
load_set(const struct ps_job *j, const char *path, const char *images, const char *labels,
	 uint32_t most, struct fal_set *set, struct fal_diag *diag)
{
	struct fal_set_opts opts = { .max_samples = most, .classes = j->model->classes };
	char *a = fal_job_path(path, images), *b = fal_job_path(path, labels);
	int err = a != NULL && b != NULL
			  ? fal_set_load_idx(a, b, &opts, set, diag)
			  : fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	if (err == FAL_OK && set->sample_bytes != j->model->inputs)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "%s: samples of %u values, but the model takes %u", a,
				   set->sample_bytes, j->model->inputs);
	free(a);
	free(b);
	return err;
}

static int
load_data(struct ps_job *j, const char *path, struct fal_diag *diag)
{
	const struct fal_job *job = &j->job;
	struct fal_diag why = { "" };
	int err = load_set(j, path, job->train_images, job->train_labels, job->samples,
			   &j->train, diag);
	if (err == FAL_OK && job->test_images != NULL)
		err = load_set(j, path, job->test_images, job->test_labels,
			       job->test_samples, &j->test, diag);
	if (err < 0)
		return err;
	/* One count of classes for both: the model's. */
	j->train.classes = j->test.classes = j->model->classes;
	err = fal_job_bind(&j->job, j->train.n, &why);
	if (err < 0)
		return fal_diag_set(diag, err, "%s: %s", path, why.text);
	err = fal_manifest_build(&j->train, j->test.n > 0 ? &j->test : NULL,
				 &j->manifest);
	if (err < 0)
		return fal_diag_set(diag, err,
				    "%s: training and test data differ in shape", path);
	if (job->partition == FAL_JOB_PARTITION_LABEL_SKEW &&
	    fal_manifest_tell_labels(&j->manifest, &j->train) < 0)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	fal_manifest_encode(&j->manifest, &j->manifest_bytes);
	return j->manifest_bytes.err;
}

int
ps_job_load(struct ps_job *j, const char *path, const char *const *set, size_t n_set,
	    struct fal_diag *diag)
{
	*j = (struct ps_job){ 0 };
	int err = load_text(j, path, set, n_set, diag);
	if (err == FAL_OK)
		err = load_model(j, path, diag);
	return err == FAL_OK ? load_data(j, path, diag) : err;
}

void
ps_job_free(struct ps_job *j)
{
	fal_manifest_free(&j->manifest);
	fal_set_free(&j->train);
	fal_set_free(&j->test);
	fal_model_free(j->model);
	fal_job_free(&j->job);
	fal_buf_free(&j->job_text);
	fal_buf_free(&j->model_text);
	fal_buf_free(&j->manifest_bytes);
}

uint64_t
ps_job_data(const struct ps_job *j)
{
	return (uint64_t)j->train.n * (j->train.sample_bytes + 1) +
	       (uint64_t)j->test.n * (j->test.sample_bytes + 1);
}

uint32_t
ps_job_tasks(const struct ps_job *j)
{
	const struct fal_grid g = fal_job_grid(&j->job, j->train.n);
	return fal_grid_tasks(&g, 0);
}
