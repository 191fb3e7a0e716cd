/* The backend computes the gradients of a job's tasks.  The backend is either the net of
 * this process (backend_native.c), or a pool of trainers, programs that this process
 * starts (backend_exec.c).  Lanes, job runtime and session use only this header.
 *
 * A slot runs one task at a time, in a thread of its own or in the loop's thread. */
#ifndef WORK_BACKEND_H
#define WORK_BACKEND_H

#include "run/job_files.h"
#include "run/task.h"
#include "trainer.h"
#include "wire/msg.h"

/* The figures of a backend that READY carries. */
struct backend_profile {
	uint8_t fingerprint[FAL_FINGERPRINT];
	uint64_t task_ns; /* time of the largest task */
	/* The samples of a larger batch, and the batch's time, measured as task_ns; 0, 0:
	 * no larger batch was tried. */
	uint32_t large_batch;
	uint64_t large_ns;
	uint8_t data_hash[FAL_DATA_HASH]; /* of the trainers' own data; 0: not known */
	char kernels[FAL_MSG_NAME];       /* description of the kernels */
	uint32_t lane;                    /* of the trainer that was probed last */
};

/* The first member of each backend's own struct. */
struct backend {
	const struct backend_ops *ops;
	bool needs_samples; /* Falcon loads the samples of tasks */
	bool only_computes; /* a task never waits, so the loop may run short tasks */
	/* A lane takes so many further tasks (0 or 1), each in a slot of its own: lane l
	 * has the slots l and l + lanes.  Without emulation only, which has tasks of a
	 * lane one after the other. */
	uint32_t ahead;
};

/* The memory that a backend takes, in bytes. */
struct backend_memory {
	uint64_t kernels;       /* the kernel library */
	uint64_t lanes;         /* all lanes */
	uint64_t probe;         /* the probe, before the first task */
	uint64_t address_space; /* reserved besides, hardly used */
};

struct backend_ops {
	/* The peak memory.  The probe may take up to `room` bytes more than its minimum.
	 * Called before start, at least once with the room that the probe will have. */
	struct backend_memory (*memory)(struct backend *b, uint64_t room);
	/* Allocates the lanes' resources.  FAL_ENOMEM. */
	int (*start)(struct backend *b);
	/* Measures numerics and speed in the calling thread, while no lane has a task.
	 * FAL_EPERM: the backend can do nothing more, and has logged the reason. */
	int (*probe)(struct backend *b, struct backend_profile *out);
	/* Computes a task in the calling thread: the quantised gradient to run.sum
	 * (nothing for eval); loss, right, samples and nonfinite to `result`. FAL_ENOMEM;
	 * FAL_EPERM as above; the errors of fal_batch_fill. */
	int (*run)(struct backend *b, uint32_t slot, const struct fal_lane_task *job,
		   struct fal_task_result *result);
	/* Cancels the task of this id, which the slot has or had last.  The task's run,
	 * which may be about to begin, may return at once with any result.  For any
	 * thread; NULL: runs are too short to be cancelled. */
	void (*cancel)(struct backend *b, uint32_t slot, uint64_t id);
	/* The progress of all lanes: a number that grows while they work.  For any
	 * thread. */
	uint64_t (*progress)(const struct backend *b);
	/* The worker is about to end: cancels all tasks, and lets no further task run.
	 * NULL: runs are too short. */
	void (*quit)(struct backend *b);
	/* Frees the backend.  No lane may have a task. */
	void (*free)(struct backend *b);
};

/* Makes the backend with the net of the job's model in this process, with the kernels
 * that job.numerics demands.  `s` is kept.  FAL_EINVAL: a model without layers, data that
 * do not fit the model, or a CPU without portable kernels; FAL_ENOMEM; with `diag`. */
int backend_native_new(const struct fal_setup *s, uint32_t lanes, struct backend **out,
		       struct fal_diag *diag);

/* --- --exec: trainers of one command, one for each lane ---------------------------- */

/* Trainers stay while jobs and connections come and go. */
struct trainer_pool {
	struct trainer **trainer; /* by lane */
	uint32_t lanes;
	struct fal_grad_hello hello; /* the same for all */
};

/* Starts one trainer for each lane, by `conf` except conf->number, and waits for the
 * hellos of all trainers.  FAL_EPERM: a trainer was given up; FAL_EIO; with `diag`. */
int trainer_pool_open(const struct trainer_conf *conf, uint32_t lanes,
		      struct trainer_pool **out, struct fal_diag *diag);
/* Ends all trainers.  Does nothing with NULL. */
void trainer_pool_close(struct trainer_pool *pool);

/* Makes the backend with these trainers.  `s` and `pool` are kept.  FAL_EINVAL, with
 * `diag`: the trainers' hello does not fit the job. */
int backend_exec_new(struct fal_setup *s, struct trainer_pool *pool, struct backend **out,
		     struct fal_diag *diag);

/* Makes the job for the trainers.  The names of `s` are kept. */
void trainer_job_make(struct trainer_job *j, const struct fal_setup *s);
void trainer_job_free(struct trainer_job *j);

/* Compares numbers of samples and hash of the trainers' data with the job's, as far as
 * the hello has numbers and the job demands a hash.  FAL_EINVAL, with `diag`: two values
 * differ, or the hello lacks a hash that the job demands, or the trainer wants samples
 * that the job does not have. */
int trainer_job_check_data(const struct fal_setup *s, const struct fal_grad_hello *h,
			   struct fal_diag *diag);

/* Fills in parameters for a probe: different values, the same on all machines. */
void trainer_job_fill_params(const struct fal_setup *s, float *params);

/* Writes the samples of a task to a trainer's memory; `label` has room for the labels of
 * a full task.  Errors of fal_batch_fill. */
int trainer_job_fill_samples(const struct fal_setup *s, const struct fal_lane_task *job,
			     uint32_t *label, void *data);

#endif
