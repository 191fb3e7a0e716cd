/* Computes tasks in one thread, with that thread's buffers. */
#ifndef FAL_RUN_TASK_RUNNER_H
#define FAL_RUN_TASK_RUNNER_H

#include "math/kern.h"
#include "math/net.h"
#include "run/job_files.h"
#include "run/task.h"

struct fal_task_runner; /* opaque */

/* Makes the net of the job's model for the job's largest task, and makes this process use
 * the kernels that job.numerics demands.  The net borrows the model of `s`.  FAL_EINVAL
 * (a model without layers, data that do not fit the model, a CPU without an
 * instruction set for the layers), FAL_ENOMEM; with `diag`. */
int fal_task_runner_net(const struct fal_setup *s, struct fal_net **out,
			struct fal_diag *diag);

/* Returns the bytes of a runner; fal_task_runner_trial_bytes adds the memory of
 * fal_task_runner_time or fal_task_runner_fingerprint. */
uint64_t fal_task_runner_bytes(const struct fal_net *net);
uint64_t fal_task_runner_trial_bytes(const struct fal_net *net);

/* Makes a runner for the net's largest tasks; `net` is kept until fal_task_runner_free.
 * FAL_ENOMEM. */
int fal_task_runner_new(const struct fal_net *net, struct fal_task_runner **out);
void fal_task_runner_free(struct fal_task_runner *d);

/* Computes the task, with the gradient in the memory of run.sum, and ends the task with
 * fal_lane_task_finish; sets ran->cancelled if job->wait->need returned false.  Errors of
 * fal_batch_fill and fal_lane_task_finish. */
int fal_task_runner_run(struct fal_task_runner *d, const struct fal_lane_task *job,
			struct fal_task_result *ran);

/* Returns the number of layers passed so far, in all tasks.  For any thread. */
uint64_t fal_task_runner_steps(const struct fal_task_runner *d);

/* Computes the numerics fingerprint of this machine.  FAL_ENOMEM. */
int fal_task_runner_fingerprint(struct fal_task_runner *d, uint64_t seed,
				uint8_t fingerprint[static FAL_FINGERPRINT]);

/* The time of the largest task with warm caches, in ns: wall time, and CPU time of this
 * thread, which does not depend on other load. */
struct fal_task_runner_time {
	uint64_t wall, cpu;
};

/* Times the largest task on samples of zeros.  FAL_ENOMEM. */
int fal_task_runner_time(struct fal_task_runner *d, uint64_t seed,
			 struct fal_task_runner_time *out);

#endif
