/* --exec: the trainers of a worker, of one command, one for each lane, and what they are
 * told of a job.  Trainers stay while jobs and connections come and go.
 */
#ifndef WORK_BACKEND_EXEC_H
#define WORK_BACKEND_EXEC_H

#include "backend.h"
#include "trainer.h"

struct exec {
	struct trainer **trainer; /* by lane */
	uint32_t lanes;
	struct fal_grad_hello hello; /* the same for all */
};

/* Starts one trainer for each lane, by `conf` but for its number, and waits for their
 * hellos.  FAL_EPERM: one was given up; FAL_EIO; with `diag`. */
int exec_open(const struct trainer_conf *conf, uint32_t lanes, struct exec **out,
	      struct fal_diag *diag);
/* Ends them all.  NULL: nothing. */
void exec_close(struct exec *e);

/* Makes `j`.  The setup's names are kept. */
void exec_job_make(struct trainer_job *j, const struct fal_setup *s);
void exec_job_free(struct trainer_job *j);

/* Whether the trainers' data are the job's, as far as both say what they have; FAL_EINVAL
 * with both values in `diag`. */
int exec_job_agrees(const struct fal_setup *s, const struct fal_grad_hello *h,
		    struct fal_diag *diag);

/* Parameters that are the same everywhere, and are not equal to one another. */
void exec_job_params(const struct fal_setup *s, float *params);

/* Puts the samples of a task into the memory of a trainer; `label` has room for as many
 * as a full task has.  Errors of fal_batch_fill. */
int exec_job_fill(const struct fal_setup *s, const struct fal_run_job *job,
		  uint32_t *label, void *data);

#endif
