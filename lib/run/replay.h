/* Clocks of a job computed anew, by one machine and nobody's word: each task on a desk,
 * as a worker's lane does it, their sum in a shard, as the run's own.
 *
 * Begins at version 0 or at a snapshot; what the clocks were made of, beside job and
 * data, is said with each.  Threads of its own. */
#ifndef FAL_RUN_REPLAY_H
#define FAL_RUN_REPLAY_H

#include "run/job_files.h"
#include "run/snapshot.h"

struct fal_anew; /* opaque */

struct fal_anew_conf {
	const struct fal_files *files; /* kept until fal_anew_free */
	unsigned lanes;                /* threads that compute */
	uint32_t versions;             /* that rounds run on, at a time */
	uint32_t held; /* copies of versions that snapshots hold, at a time: 4 at most */
};

/* Makes a replay that has read the job; fal_anew_start does the large part.  FAL_EINVAL:
 * the job's gradients cannot be computed here; FAL_ENOMEM; with `diag`. */
int fal_anew_new(const struct fal_anew_conf *conf, struct fal_anew **out,
		 struct fal_diag *diag);
/* Bytes that it is going to need, for the largest of what it is asked for; `space` gets
 * those of address space besides, that are hardly used. */
uint64_t fal_anew_need(const struct fal_anew *a, uint64_t *space);
/* Once, before all that follows.  FAL_ENOMEM, with `diag`. */
int fal_anew_start(struct fal_anew *a, struct fal_diag *diag);
void fal_anew_free(struct fal_anew *a);

/* The numerics fingerprint of this machine, for this job. */
const uint8_t *fal_anew_fingerprint(const struct fal_anew *a);

/* The next clock follows this snapshot; NULL: version 0.  As fal_snapshot_load. */
int fal_anew_begin(struct fal_anew *a, int folder, const struct fal_found *f,
		   struct fal_diag *diag);

struct fal_anew_clock {
	uint64_t clock;
	uint64_t on; /* the version that its tasks run on, and that has the exponents; */
	uint64_t late; /* … tasks from this one on run on the next version */
	float lr;
	const uint8_t *skips; /* by task: nothing of it counts */
	const uint64_t *seed; /* by task: checksums are wanted, under these; or NULL */
};
/* The result of a task. */
struct fal_anew_task {
	bool nonfinite;
	uint8_t hash[FAL_TASK_HASH];
	uint64_t sum; /* fal_sum_checksum over all blocks */
};
/* Computes all tasks of the clock, into `out`, and makes the next version of those that
 * are not skipped.  FAL_ENONFINITE: that cannot be; FAL_ESTATE: a version is not there;
 * FAL_ENOMEM. */
int fal_anew_clock(struct fal_anew *a, const struct fal_anew_clock *c,
		   struct fal_anew_task *out);

/* The parameters of the newest version, borrowed until the next call. */
const float *fal_anew_params(struct fal_anew *a);
/* The same of its exponents, one for each block. */
const int8_t *fal_anew_exps(const struct fal_anew *a);

/* Is all that the newest version is made of, optimiser and exponents too, what the
 * snapshot has?  1: it is; 0: `differs` is what is not.  As fal_snapshot_load. */
int fal_anew_same(struct fal_anew *a, int folder, const struct fal_found *f,
		  char differs[static FAL_IMAGE_NAME], struct fal_diag *diag);

#endif
