/* Lanes: the threads that compute, one task at a time each, and their way to the loop.  A
 * task like the lane's last one, which was so quick that handing it to a thread would
 * cost as much, is computed in the loop's thread (maker.quick); so it is over when
 * lane_start or lane_begin is, and on_end comes behind that as ever.
 *
 * With emulation a task takes its virtual time, and once the first one has begun the
 * faults of --emulate come: a crash, and a time in which no message is answered.
 *
 * All functions are for the loop's thread.  None of them calls back.
 */
#ifndef WORK_LANES_H
#define WORK_LANES_H

#include "backend.h"
#include "emul/emul.h"

#include <uv.h>

struct lanes; /* opaque */

/* The outcome of a task. */
struct lane_end {
	struct fal_ran ran;
	int err;         /* FAL_ENOMEM: it could not be computed */
	bool emulated;   /* the two below are set */
	uint64_t due_ns; /* its virtual time */
	/* By which it ended after its virtual end, less by how much the one before it on
	 * this lane did, where this one made that good: the sum is what was lost. */
	int64_t late_ns;
};

struct lanes_conf {
	struct maker *maker; /* started; kept until lanes_free */
	uint32_t lanes;
	struct fal_emul *emulate; /* NULL: none; kept */
	bool hashed;              /* fal_job_hashes_tasks */
	void *arg;
	/* A task is over; called from the loop, once for each lane_start.  The next one
	 * may be started from within. */
	void (*on_end)(void *arg, uint32_t lane, const struct lane_end *end);
};

/* Starts the threads.  `conf` is copied.  FAL_EIO; FAL_ENOMEM: of a stack. */
int lanes_new(uv_loop_t *loop, const struct lanes_conf *conf, struct lanes **out);

/* Ends the threads, all of them idle; memory goes when the loop has run once more. */
void lanes_free(struct lanes *l);

/* Gives an idle lane a task (copied but for its id, its pointers are kept until the end),
 * which begins at once if `here`, else, as its samples are not here yet, with lane_begin.
 */
void lane_start(struct lanes *l, uint32_t lane, const struct fal_run_job *job, bool here);
void lane_begin(struct lanes *l, uint32_t lane);

/* `blocks` blocks are here of the version on which the lane's task runs, and which was
 * coming. */
void lane_came(struct lanes *l, uint32_t lane, uint32_t blocks);

/* The lane's task is not wanted: it ends soon, as cancelled.  Nothing if it is idle. */
void lane_cancel(struct lanes *l, uint32_t lane);

/* The task that waits for lane_begin, or NULL. */
const struct fal_run_job *lane_waits(struct lanes *l, uint32_t lane);

/* The progress of all lanes, in steps of their tasks: the maker's, or, with emulation,
 * parts of their virtual times.  The number never goes back. */
uint64_t lanes_steps(const struct lanes *l);

bool lanes_idle(const struct lanes *l);

struct spare { /* zeroed at first */
	/* ns: when it was looked at; fal_cli_idle_ns and fal_cli_own_ns then */
	uint64_t at, idle, own;
	bool core;
};

/* Would the machine have had a third of a core lately beside so many lanes that compute
 * all the time, whoever else is on it?  The measure is the idle time plus this process's
 * own time, a sum that does not depend on this process's use of the answer.  now: ns.
 * The answer is good for half a second; at first, and where the system does not tell: no.
 */
bool spare_core(struct spare *s, uint64_t now, uint32_t lanes);

#endif
