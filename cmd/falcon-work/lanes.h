/* Lanes: threads that compute, each one task at a time, and report to the loop.  If the
 * lane's last task was too short to be worth a thread, the loop's thread computes the
 * next task like that one (backend.only_computes).  Such a task is over when lane_start
 * or lane_release returns, but on_end still follows later.
 *
 * With emulation a task lasts as long as its virtual time.  Once the first task has
 * begun, the faults of --emulate come: a crash, and a time in which the worker answers no
 * message.
 *
 * All functions are for the loop's thread.  No function calls back.
 */
#ifndef WORK_LANES_H
#define WORK_LANES_H

#include "backend.h"
#include "emul/emul.h"

#include <uv.h>

struct lanes; /* opaque */

/* The outcome of a task. */
struct lane_result {
	struct fal_task_result ran;
	int err;             /* FAL_ENOMEM: the task could not be computed */
	uint64_t virtual_ns; /* its virtual time; 0: cancelled, or not emulated */
	/* The time from the task's virtual end to its real end, less the earlier lateness
	 * of the lane that this task made up for.  The sum over all tasks is the time
	 * lost. */
	int64_t late_ns;
};

struct lanes_conf {
	struct backend *backend; /* started; kept until lanes_free */
	uint32_t lanes;
	struct fal_emul *emulate; /* NULL: none; kept */
	bool hashes_tasks;        /* fal_job_hashes_tasks */
	void *arg;
	/* A task has ended; called from the loop, once for each lane_start.  The callback
	 * may start the next task. */
	void (*on_end)(void *arg, uint32_t lane, const struct lane_result *result);
};

/* Starts the threads.  `conf` is copied.  FAL_EIO; FAL_ENOMEM: no memory for a stack. */
int lanes_new(uv_loop_t *loop, const struct lanes_conf *conf, struct lanes **out);

/* Ends the threads, all of them idle; memory goes when the loop has run once more.  Does
 * nothing with NULL. */
void lanes_free(struct lanes *l);

/* Gives an idle lane a task.  The task is copied, except its id; its pointers must stay
 * valid until the task ends.  The task begins at once if `has_samples`, else with
 * lane_release. */
void lane_start(struct lanes *l, uint32_t lane, const struct fal_lane_task *job,
		bool has_samples);
void lane_release(struct lanes *l, uint32_t lane);

/* The first `blocks` blocks of the version that the lane's task runs on have arrived. */
void lane_add_blocks(struct lanes *l, uint32_t lane, uint32_t blocks);

/* Cancels the lane's task, which ends soon.  Does nothing if the lane is idle. */
void lane_cancel(struct lanes *l, uint32_t lane);

/* The task that waits for lane_release, or NULL. */
const struct fal_lane_task *lane_held_task(struct lanes *l, uint32_t lane);

/* Returns the progress of all lanes, in steps of their tasks.  A step is a step of the
 * backend or, with emulation, a part of the task's virtual time.  The number never
 * falls. */
uint64_t lanes_progress(const struct lanes *l);

bool lanes_are_idle(const struct lanes *l);

struct spare_core { /* zeroed at first */
	/* ns: time of the last measurement; fal_cli_idle_ns and fal_cli_cpu_ns at that
	 * time */
	uint64_t at, idle, own;
	bool exists;
};

/* Returns true if a third of a core would have been idle lately, had `lanes` lanes
 * computed all the time beside the present other load.  The measure is the idle time
 * plus this process's own CPU time; this sum does not depend on how this process uses
 * the answer.  now: ns.  The answer holds for half a second.  The first answer is
 * false; so is the answer on a system without these figures. */
bool spare_core_exists(struct spare_core *s, uint64_t now, uint32_t lanes);

#endif
