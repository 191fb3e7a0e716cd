/* The maker of gradients for a job's tasks: the net of this process, in backend_native.c,
 * or trainers, programs that the process starts, in backend_exec.c.  Lanes, kit and
 * session know no more of a maker than stands here.
 *
 * A lane runs one task at a time, each from a thread of its own or from the loop's. */
#ifndef WORK_BACKEND_H
#define WORK_BACKEND_H

#include "run/job_files.h"
#include "run/task.h"
#include "wire/msg.h"

/* The figures of a maker that READY carries. */
struct maker_probed {
	uint8_t fingerprint[FAL_FINGERPRINT];
	uint64_t task_ns; /* of the largest task */
	/* Samples of a larger batch, and what it would take on the same footing; 0, 0:
	 * there is none. */
	uint32_t large;
	uint64_t large_ns;
	uint8_t data[FAL_DATA_HASH]; /* that trainers have of their own; 0: not said */
	char kernels[FAL_MSG_NAME];  /* that compute it, in words */
	uint32_t lane;               /* whose trainer was probed last */
};

/* The first member of each kind's own struct. */
struct maker {
	const struct maker_ops *ops;
	bool samples; /* it needs those of Falcon */
	bool quick;   /* it only computes: short tasks may be the loop's own */
};

/* The memory that a maker takes, in bytes. */
struct maker_need {
	uint64_t kernels; /* of their library */
	uint64_t lanes;   /* of all lanes */
	uint64_t probe;   /* of the probe, before the first task */
	uint64_t space;   /* of address space besides, that is hardly used */
};

struct maker_ops {
	/* The most bytes of each, where the probe may have `room` of them for more than
	 * it must.  Before start, once at least with the room that there is. */
	struct maker_need (*need)(struct maker *m, uint64_t room);
	/* Makes what the lanes need.  FAL_ENOMEM. */
	int (*start)(struct maker *m);
	/* Finds numerics and speed, in the calling thread, while no lane has a task.
	 * FAL_EPERM: it can do nothing more, and has said why. */
	int (*probe)(struct maker *m, struct maker_probed *out);
	/* Computes, in the calling thread: the quantised gradient to run.sum (nothing for
	 * eval), loss, right, samples and nonfinite to `ran`.  FAL_ENOMEM; FAL_EPERM, as
	 * above; those of fal_batch_fill. */
	int (*run)(struct maker *m, uint32_t lane, const struct fal_run_job *job,
		   struct fal_ran *ran);
	/* The task of this id, which the lane has or had last, is not wanted: its run,
	 * which may be about to begin, may return at once, with anything.  For any
	 * thread; NULL: it is too short to be worth it. */
	void (*cancel)(struct maker *m, uint32_t lane, uint64_t id);
	/* How far all lanes are: a number that grows while they work.  For any thread. */
	uint64_t (*steps)(const struct maker *m);
	/* The worker is about to end: tasks do so, as cancelled, as soon as can be, and
	 * no more is computed.  NULL, as above. */
	void (*quit)(struct maker *m);
	/* No lane has a task. */
	void (*free)(struct maker *m);
};

/* The net of the job's model, in kernels that job.numerics asks for, for this process.
 * `s` is kept.  FAL_EINVAL for a model without layers, data that do not fit it, or a CPU
 * that cannot be portable; FAL_ENOMEM; with `diag`. */
int maker_net_new(const struct fal_setup *s, uint32_t lanes, struct maker **out,
		  struct fal_diag *diag);

/* Trainers, one for each lane.  `s` and `e` are kept.  FAL_EINVAL, with
 * `diag`: what the trainers said does not fit the job. */
struct exec;
int maker_exec_new(struct fal_setup *s, struct exec *e, struct maker **out,
		   struct fal_diag *diag);

#endif
