/* Replays clocks of a job on one machine that trusts no worker: computes each task as a
 * worker's lane does, and steps a shard with the sum as the run did.
 *
 * A replay begins at version 0 or at a snapshot.  The caller names for each clock the
 * facts that do not follow from job and data.  The module starts threads of its own. */
#ifndef FAL_RUN_REPLAY_H
#define FAL_RUN_REPLAY_H

#include "run/job_files.h"
#include "run/snapshot.h"

struct fal_replay; /* opaque */

struct fal_replay_conf {
	const struct fal_files *files; /* kept until fal_replay_free */
	unsigned lanes;                /* computing threads */
	uint32_t versions;             /* versions that open rounds use at a time */
	uint32_t held;                 /* held copies of versions in all, at most 4 */
};

/* Reads the job; fal_replay_start takes most of the memory and time.  FAL_EINVAL (this
 * program cannot compute the job's gradients), FAL_ENOMEM; with `diag`. */
int fal_replay_new(const struct fal_replay_conf *conf, struct fal_replay **out,
		   struct fal_diag *diag);
/* Returns the most bytes that the replay will need; sets `*space` to the bytes of address
 * space that the replay reserves besides, and hardly uses. */
uint64_t fal_replay_memory(const struct fal_replay *a, uint64_t *space);
/* Takes memory and loads samples; to be called once, before the functions below.
 * FAL_ENOMEM, with `diag`. */
int fal_replay_start(struct fal_replay *a, struct fal_diag *diag);
void fal_replay_free(struct fal_replay *a);

/* Returns the numerics fingerprint of this machine for this job. */
const uint8_t *fal_replay_fingerprint(const struct fal_replay *a);

/* Loads the snapshot after which the next clock begins; NULL: version 0.  Errors of
 * fal_snapshot_load. */
int fal_replay_load_snapshot(struct fal_replay *a, int folder,
			     const struct fal_snapshot_found *f, struct fal_diag *diag);

struct fal_replay_clock {
	uint64_t clock;
	uint64_t on;   /* version of the tasks' parameters and of all exponents */
	uint64_t late; /* tasks from this one on run on version on + 1 */
	float lr;
	const uint8_t *skips; /* by task: 1: the task does not count */
	const uint64_t *seed; /* by task: seeds of the checksums; NULL: no checksums */
};
/* The result of a task. */
struct fal_replay_task {
	bool nonfinite;
	uint8_t hash[FAL_TASK_HASH];
	uint64_t sum; /* fal_sum_checksum over all blocks */
};
/* Computes all tasks of the clock into `out` and makes the next version from the tasks
 * that are not skipped.  FAL_ENONFINITE (a task that counts, or the step, gives values
 * that are not finite), FAL_ESTATE (a version is missing), FAL_ENOMEM. */
int fal_replay_clock(struct fal_replay *a, const struct fal_replay_clock *c,
		     struct fal_replay_task *out);

/* Returns the parameters of the newest version, borrowed until the next call. */
const float *fal_replay_params(struct fal_replay *a);
/* Returns the exponents of the newest version, one for each block, borrowed as well. */
const int8_t *fal_replay_exponents(const struct fal_replay *a);

/* Compares the newest version with a snapshot: parameters, optimiser and exponents.
 * Returns 1 if all are equal, 0 if not, with the name of a difference in `differs`.
 * Errors of fal_snapshot_load. */
int fal_replay_compare(struct fal_replay *a, int folder,
		       const struct fal_snapshot_found *f,
		       char differs[static FAL_IMAGE_NAME], struct fal_diag *diag);

#endif
