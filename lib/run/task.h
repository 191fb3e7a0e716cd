/* A task of a job on its way through a lane: what it is, what was computed, and what of
 * that travels. */
#ifndef FAL_RUN_TASK_H
#define FAL_RUN_TASK_H

#include "job/order.h"
#include "math/net.h"
#include "model/model.h"
#include "worker/agent.h"

/* A task, all borrowed: the samples at places first … first+count-1 of `batch`, whose
 * chunks are all here. */
struct fal_run_job {
	uint64_t id; /* no other task of these lanes has it */
	struct fal_run run;
	struct fal_batch batch;
	uint32_t first, count;
	bool hashed; /* the hash of what it gives is wanted */
	bool flip;   /* it comes out with one bit wrong, for falcon-emulate(5) */
	const struct fal_net_wait *wait; /* for parameters to come; NULL: all are here */
};

/* The computed result of a task. */
struct fal_run_made {
	const float *grad; /* NULL for eval; borrowed */
	/* The gradient's tensors are one after another, and somebody else may still write
	 * there.  NULL: it is a flat vector. */
	const struct fal_model *packed;
	double loss;
	uint32_t right;
};

/* The end of a task: the quantised gradient to run.sum (nothing for eval), its hash (0:
 * not wanted), loss, right, samples, nonfinite, most and room to `ran`.  Errors of
 * fal_sum_quantise_block but FAL_ENONFINITE. */
int fal_run_finish(const struct fal_run_job *job, const struct fal_run_made *made,
		   struct fal_ran *ran);

/* Writes the message about a gradient without room, by fal_ran.most and room, to `diag`.
 */
void fal_run_say_large(float most, float room, struct fal_diag *diag);

#endif
