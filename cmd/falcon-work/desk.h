/* The place where one thread computes tasks: its buffers, and the computation. */
#ifndef WORK_DESK_H
#define WORK_DESK_H

#include "data/batch.h"
#include "nn/net.h"
#include "peer/agent.h"

struct desk; /* opaque */

/* For the net's largest tasks; `net` is kept until desk_free.  FAL_ENOMEM. */
int desk_new(const struct fal_net *net, struct desk **out);
void desk_free(struct desk *d);

/* A task, all borrowed: the samples at places first … first+count-1 of `batch`, whose
 * chunks are all here. */
struct desk_job {
	struct fal_run run;
	struct fal_batch batch;
	uint32_t first, count;
};

/* Computes: the quantised gradient to run.sum (nothing for eval), loss, right, samples
 * and nonfinite to `ran`.  FAL_ENOMEM; those of fal_batch_fill. */
int desk_run(struct desk *d, const struct desk_job *job, struct fal_ran *ran);

/* The numerics fingerprint of this machine, and what a task of made-up samples takes
 * once caches are warm, in ns.  FAL_ENOMEM. */
int desk_probe(struct desk *d, uint64_t seed, uint8_t fingerprint[static FAL_FINGERPRINT],
	       uint64_t *task_ns);

#endif
