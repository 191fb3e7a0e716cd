/* A task in a lane: the task, the computed gradient, and the result for the coordinator.
 */
#ifndef FAL_RUN_TASK_H
#define FAL_RUN_TASK_H

#include "job/order.h"
#include "math/net.h"
#include "model/model.h"
#include "worker/agent.h"

/* A task, all borrowed: the samples at places first … first+count-1 of `batch`, all of
 * whose chunks are present. */
struct fal_lane_task {
	uint64_t id; /* unique among these lanes */
	struct fal_task_run run;
	struct fal_batch batch;
	uint32_t first, count;
	bool hashed; /* the result needs its hash */
	bool flip;   /* the result gets one wrong bit, for falcon-emulate(5) */
	const struct fal_net_wait
		*wait; /* waits for missing parameters; NULL: none missing */
};

/* The computed gradient and loss of a task. */
struct fal_task_output {
	const float *grad; /* NULL for eval; borrowed */
	/* The model, if the gradient's tensors lie one after another, in memory where
	 * another process may still write.  NULL: the gradient is a flat vector. */
	const struct fal_model *packed;
	double loss;
	uint32_t right;
	const struct fal_metrics *metrics; /* borrowed; NULL: none are known */
};

/* Ends a task: quantises the gradient into run.sum (except for eval), and sets hash (all
 * 0 if not needed), loss, right, samples, metrics, nonfinite, most and room of `ran`.
 * Errors of fal_sum_quantise_block except FAL_ENONFINITE. */
int fal_lane_task_finish(const struct fal_lane_task *job,
			 const struct fal_task_output *made, struct fal_task_result *ran);

/* Writes the message about a gradient too large for its exponents to `diag`; `most` and
 * `room` are those of struct fal_task_result. */
void fal_explain_large_gradient(float most, float room, struct fal_diag *diag);

#endif
