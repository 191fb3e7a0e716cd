/* Loading a job. */
#include "job.h"

#include "base/mem.h"
#include "base/parse.h"
#include "base/text.h"
#include "cli/file.h"
#include "model/safetensors.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { TEXT_MAX = 1 << 20 }; /* bytes of a job or model file */

/* The assignment is made in the text. */
static int
override(struct ps_job *j, const char *path, const char *assignment,
	 struct fal_diag *diag)
{
	struct fal_buf changed = { 0 };
	int err = fal_job_override(path, (const char *)j->job_text.p, j->job_text.n,
				   assignment, &changed, diag);
	fal_buf_free(&j->job_text);
	j->job_text = changed;
	return err;
}

static int
load_text(struct ps_job *j, const char *path, const char *const *set, size_t n_set,
	  struct fal_diag *diag)
{
	int err = fal_cli_read(path, TEXT_MAX, &j->job_text, diag);
	for (size_t i = 0; i < n_set && err == FAL_OK; i++)
		err = override(j, path, set[i], diag);
	return err < 0 ? err
		       : fal_job_parse(path, (const char *)j->job_text.p, j->job_text.n,
				       &j->job, diag);
}

/* Names and shapes, and their first values. */
static int
use_init(struct ps_job *j, const char *file, const struct fal_buf *bytes,
	 struct fal_diag *diag)
{
	size_t data;
	int err = FAL_OK;
	if (j->model == NULL) {
		err = fal_safetensors_model(file, bytes->p, bytes->n, &j->model, &data,
					    diag);
		if (err == FAL_OK)
			err = fal_safetensors_header(j->model, &j->model_text);
		if (err < 0)
			return err;
	}
	j->init = fal_calloc_aligned(j->model->params, sizeof(float));
	if (j->init == NULL)
		return fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	err = fal_safetensors_get(j->model, file, bytes->p, bytes->n, j->init, diag);
	for (uint32_t i = 0; err == FAL_OK && i < j->model->tensors; i++) {
		const struct fal_tensor *t = &j->model->tensor[i];
		for (uint64_t k = 0; k < t->count; k++)
			if (!isfinite(j->init[t->offset + k]))
				return fal_diag_set(diag, FAL_ENONFINITE,
						    "%s: value %llu of tensor '%s' is "
						    "not finite",
						    file, (unsigned long long)k,
						    FAL_QUOTE(t->name));
	}
	return err;
}

/* What model.init names; the job's text says its SHA-256 then. */
static int
load_init(struct ps_job *j, const char *path, const char *file, struct fal_diag *diag)
{
	enum { HEADER = 2 << 20 };
	static const char key[] = "model.init-sha256=";
	uint8_t sum[FAL_HASH_BYTES];
	char set[sizeof(key) + 2 * FAL_HASH_BYTES], *hex = set + sizeof(key) - 1;
	struct fal_buf bytes = { 0 };
	int err = fal_cli_read(file, FAL_MODEL_MAX_FLOATS * sizeof(float) + HEADER,
			       &bytes, diag);
	if (err == FAL_OK)
		err = use_init(j, file, &bytes, diag);
	memcpy(set, key, sizeof(key));
	fal_sha256(bytes.p, bytes.n, sum);
	fal_hex(sum, sizeof(sum), hex);
	if (err == FAL_OK && j->job.init_sha256 == NULL)
		err = override(j, path, set, diag);
	else if (err == FAL_OK && strcmp(hex, j->job.init_sha256) != 0)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "%s: its SHA-256 is %s, not model.init-sha256", file,
				   hex);
	fal_buf_free(&bytes);
	return err;
}

static int
load_model(struct ps_job *j, const char *path, struct fal_diag *diag)
{
	const struct fal_job *job = &j->job;
	char *file = job->model != NULL ? fal_job_path(path, job->model) : NULL;
	char *init = job->init != NULL ? fal_job_path(path, job->init) : NULL;
	int err = FAL_OK;
	if ((job->model != NULL && file == NULL) || (job->init != NULL && init == NULL))
		err = fal_diag_set(diag, FAL_ENOMEM, "out of memory");
	if (err == FAL_OK && file != NULL)
		err = fal_cli_read(file, TEXT_MAX, &j->model_text, diag);
	if (err == FAL_OK && file != NULL)
		err = fal_model_parse(file, (const char *)j->model_text.p,
				      j->model_text.n, &j->model, diag);
	if (err == FAL_OK && init != NULL)
		err = load_init(j, path, init, diag);
	free(file);
	free(init);
	struct fal_diag why = { "" };
	if (err == FAL_OK && (err = fal_job_freeze(&j->job, j->model, &why)) < 0)
		fal_diag_set(diag, err, "%s: %s", path, why.text);
	fal_hash(j->job_text.p, j->job_text.n, j->hash);
	fal_hex(j->hash, FAL_HASH_BYTES, j->hash_hex);
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
	if (err == FAL_OK && j->model->layers > 0 &&
	    set->sample_bytes != j->model->inputs)
		err = fal_diag_set(diag, FAL_EINVAL,
				   "%s: samples of %u value%s, but the model takes %u", a,
				   set->sample_bytes, fal_text_s(set->sample_bytes),
				   j->model->inputs);
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
	/* One count of classes for both: the model's, or what the data have. */
	uint32_t classes = j->model->classes;
	if (classes == 0)
		classes = j->train.classes > j->test.classes ? j->train.classes
							     : j->test.classes;
	j->train.classes = j->test.classes = classes;
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
	free(j->init);
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
