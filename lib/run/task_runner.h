/* The place where one thread computes tasks: its buffers, and the computation. */
#ifndef FAL_RUN_TASK_RUNNER_H
#define FAL_RUN_TASK_RUNNER_H

#include "math/kern.h"
#include "math/net.h"
#include "run/job_files.h"
#include "run/task.h"

struct fal_task_runner; /* opaque */

/* The net of the job's model, for its largest task, in kernels that job.numerics asks
 * for, for this process; its model is `s`'s.  FAL_EINVAL for a model without layers, data
 * that do not fit it, or a CPU that cannot be portable; FAL_ENOMEM; with `diag`. */
int fal_task_runner_net(const struct fal_setup *s, struct fal_net **out,
			struct fal_diag *diag);

/* The bytes of a desk; and those of one with what is made to time it, or to tell its
 * numerics. */
uint64_t fal_task_runner_bytes(const struct fal_net *net);
uint64_t fal_task_runner_trial_bytes(const struct fal_net *net);

/* For the net's largest tasks; `net` is kept until fal_task_runner_free.  FAL_ENOMEM. */
int fal_task_runner_new(const struct fal_net *net, struct fal_task_runner **out);
void fal_task_runner_free(struct fal_task_runner *d);

/* Computes the task: to run.sum, where the gradient is made, and `ran`, as fal_run_finish
 * says.  Of a task that job->wait->need wants no more `ran` says that it was cancelled.
 * Those of fal_batch_fill, too. */
int fal_task_runner_run(struct fal_task_runner *d, const struct fal_run_job *job,
			struct fal_ran *ran);

/* How far it is: layers that it has passed, ever.  For any thread. */
uint64_t fal_task_runner_steps(const struct fal_task_runner *d);

/* The numerics fingerprint of this machine.  FAL_ENOMEM. */
int fal_task_runner_fingerprint(struct fal_task_runner *d, uint64_t seed,
				uint8_t fingerprint[static FAL_FINGERPRINT]);

/* What the largest task takes once caches are warm: ns that pass, and of this thread's
 * CPU, whatever else the machine does. */
struct fal_task_runner_time {
	uint64_t wall, cpu;
};

/* Times it on made-up samples.  FAL_ENOMEM. */
int fal_task_runner_time(struct fal_task_runner *d, uint64_t seed,
			 struct fal_task_runner_time *out);

#endif
