/* What a trainer is told of a job, and the samples that it may ask for. */
#ifndef WORK_EXEC_JOB_H
#define WORK_EXEC_JOB_H

#include "maker.h"
#include "trainer.h"

/* Makes `j`, to be freed in any case.  The setup's names are kept.  FAL_ENOMEM. */
int exec_job_make(struct trainer_job *j, const struct fal_setup *s);
void exec_job_free(struct trainer_job *j);

/* Whether the trainers' data are the job's, as far as both say what they have; FAL_EINVAL
 * with both values in `diag`. */
int exec_job_agrees(const struct fal_setup *s, const struct fal_grad_hello *h,
		    struct fal_diag *diag);

/* Parameters that are the same everywhere, and are not equal to one another. */
void exec_job_params(const struct fal_setup *s, float *params);

/* Those of a task; `label` has room for as many of them as a full task has. */
struct exec_samples {
	const struct fal_run_job *job;
	uint32_t *label;
	const struct fal_setup *setup;
};

/* trainer_task, fill; `arg` is a struct exec_samples.  Errors of fal_batch_fill. */
int exec_job_fill(void *arg, void *data);

/* Fills memory with samples that are the same everywhere, and made up. */
void exec_job_made_up(const struct fal_setup *s, void *data);

#endif
