/* What falcon-ps serves: the job's files, judged and in memory. */
#ifndef FALCON_PS_JOB_H
#define FALCON_PS_JOB_H

#include "base/buf.h"
#include "base/err.h"
#include "data/chunk.h"
#include "data/set.h"
#include "job/job.h"
#include "model/model.h"
#include "sec/hash.h"

struct ps_job {
	struct fal_job job;
	struct fal_model *model;
	float *init;                /* model->params; NULL: they are drawn */
	struct fal_set train, test; /* test.n 0: none */
	struct fal_manifest manifest;
	/* What workers get: the effective job text, which has the SHA-256 of what
	 * model.init names; the model's, or names and shapes; the manifest. */
	struct fal_buf job_text, model_text, manifest_bytes;
	uint8_t hash[FAL_HASH_BYTES]; /* of the job text */
	char hash_hex[2 * FAL_HASH_BYTES + 1];
};

/* Reads the job file `path`, applies the assignments `set` ("section.key=value"), then
 * reads model and data.  On error `diag` names file, line and value.  Free with
 * ps_job_free in each case. */
int ps_job_load(struct ps_job *j, const char *path, const char *const *set, size_t n_set,
		struct fal_diag *diag);
void ps_job_free(struct ps_job *j);

/* Tasks of a whole clock: K. */
uint32_t ps_job_tasks(const struct ps_job *j);

/* Bytes of all samples with their labels: of all chunks. */
uint64_t ps_job_data(const struct ps_job *j);

#endif
