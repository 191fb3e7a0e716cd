/* A cost model of a job, its simulation in virtual time, and the prediction of other
 * policies and other machines. */
#ifndef FAL_PROJ_SIMULATE_H
#define FAL_PROJ_SIMULATE_H

#include "base/err.h"
#include "sched/grid.h"
#include "sched/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The cost model of a job: the seconds that its machines, links and coordinator need for
 * the actions of the scheduler.  fit.h makes a model from a trace.
 *
 * Owns: the struct and its memory.  All times are in seconds.
 */

/* The speed of a worker for a while: in a clock of the trace, in a round of its own, or
 * in a part of either. */
struct fal_cost_pace {
	double task_s;             /* seconds of a full task on one lane */
	double tasks;              /* computed, in full tasks; not below 0 */
	double seconds;            /* wall seconds; above 0 */
	bool hung;                 /* nothing was computed; task_s does not count */
	double at_task, at_second; /* sums over the paces before (fal_cost_update_sums) */
};

/* A worker.
 *
 * The paces are replayed in one of two ways.  By time, for slowness that outlasts a clock
 * (another job, a hot machine): second t of a simulation is second t of the trace.  By
 * work, for slowness that differs from clock to clock: task n of the worker takes as long
 * as the worker's task n in the trace, at any time.  After the last pace the first pace
 * follows. */
struct fal_cost_machine {
	char *name;                    /* owned */
	uint32_t lanes_min, lanes_max; /* that it may run */
	uint32_t lanes, cores;         /* lanes: as in the paces */
	struct fal_cost_pace *pace;    /* owned */
	size_t paces;                  /* at least 1 */
	bool by_time;
	/* Sums over the paces.  work: tasks that one lane does in `seconds`. */
	double tasks, seconds, work;
	/* The share of a full task's seconds that a task of any size takes; NAN: not
	 * known, and counts as 0. */
	double fixed;
	double turn_s; /* for each task, to fetch it and to return the result
			*/
	double pull_s; /* from the sending of a version to the start of computing */
	double push_s; /* from the last task of a round to the counted contribution */
	double rtt_s;  /* a round trip on its link; not part of pull_s, push_s */
};

struct fal_cost {
	struct fal_grid grid; /* of the job */
	struct fal_cost_machine *machine;
	size_t machines, cap;
	/* The coordinator: */
	double step_s; /* from the last counted contribution to the next granted round */
	double message_s;              /* CPU seconds for a message */
	double byte_s;                 /* CPU seconds for a byte, in or out */
	double push_bytes, pull_bytes; /* of a contribution, of a version */
};

void fal_cost_free(struct fal_cost *c); /* sets *c to {0} */
/* Returns a deep copy. */
struct fal_cost fal_cost_copy(const struct fal_cost *c);
/* Appends a copy of `m` under `name`; `m` may be a machine of `c`. */
void fal_cost_add(struct fal_cost *c, const struct fal_cost_machine *m, const char *name);
/* Removes machine `i`. */
void fal_cost_remove(struct fal_cost *c, size_t i);
/* Returns the machine of this name, or NULL. */
struct fal_cost_machine *fal_cost_find(const struct fal_cost *c, const char *name);

/* Sets the machine's sums.  Needed after each change of its paces.  A machine without
 * tasks is replayed by time.  A machine that hung in all paces counts as a machine that
 * never hung.
 */
void fal_cost_update_sums(struct fal_cost_machine *m);
/* Sets the machine's sums, and by_time: true if the machine hung in any pace, or if
 * neighbouring runs of `share` tasks (the tasks of a clock) are alike: their correlation
 * is over 0.7, or they differ by less than 1 %. */
void fal_cost_choose_pacing(struct fal_cost_machine *m, double share);

/* Returns the seconds of the machine's task number `n` on a lane, begun at second `at` of
 * the simulation while `lanes` lanes run; lanes in excess of the cores share the cores.
 * `part`: the task's samples / the samples of a full task. */
double fal_cost_task_s(const struct fal_cost_machine *m, double n, double at, double part,
		       uint32_t lanes);
/* Returns the seconds that the machine still hangs at second `at` of the simulation; 0:
 * the machine does not hang. */
double fal_cost_hang_s(const struct fal_cost_machine *m, double at);
/* Returns the machine's mean pace: Σ seconds of its tasks / tasks. */
double fal_cost_mean_task_s(const struct fal_cost_machine *m);
/* Returns the sum of the machines' speeds at their mean paces: samples a second that
 * their lanes, at most one a core, compute in full tasks without a pause. */
double fal_cost_speed(const struct fal_cost *c);
/* Computes fal_bound_sizes at the machines' mean paces. */
void fal_cost_task_sizes(const struct fal_cost *c, double *whole, double *small);

/* Simulates a policy on a cost model: runs the real scheduler (lib/sched) in virtual
 * time, with simulated workers that take the model's times.  The scheduler gets the same
 * calls as in a live job.
 *
 * Cost: O(log W) for an event, in addition to the scheduler's own.
 */

struct fal_simulation_conf {
	const struct fal_cost *cost;     /* borrowed */
	const struct fal_policy *policy; /* borrowed */
	uint64_t warm; /* first clocks, which do not count: the scheduler learns speeds */
	/* After the warm clocks the simulation ends when `clocks` clocks and `seconds`
	 * seconds have passed, or when `most` clocks have passed; most 0: `seconds` does
	 * not count. */
	uint64_t clocks;
	double seconds;
	uint64_t most;
};

/* The results, over the clocks that count. */
struct fal_simulation {
	double seconds, clocks; /* clocks: ended samples / samples of a clock */
	double samples; /* samples of versions; tasks under way count by their computed
			 * part */
	double dropped, duplicates; /* samples; duplicates: samples of lost races */
	double updates;
	double moved, cloned; /* tasks */
	double stale_updates; /* mean over samples */
	double compute;       /* Σ seconds of workers computing / (workers · seconds) */
	double bytes;         /* to and from the coordinator */
	double load;          /* the coordinator's own seconds / seconds */
};

/* Runs the simulation.  FAL_ESTATE: the policy comes to a halt. */
int fal_simulate(const struct fal_simulation_conf *conf, struct fal_simulation *out);

/* Returns the seconds of an epoch at this rate. */
double fal_simulation_epoch_s(const struct fal_simulation *p,
			      const struct fal_grid *grid);

/* The what-if: a policy, or other machines, on a fitted cost model. */

enum { FAL_MACHINES_MAX = 1000000 }; /* limit of drawn machines */

/* Adds the machine NAME=VALUE[,NAME=VALUE...] to `cost`: name (must be new), like (an
 * existing machine; default: a median one), speed (times that of `like`; default 1),
 * lanes (at most), cores.  FAL_EINVAL with `diag`: the fault and the value. */
int fal_machines_add(struct fal_cost *cost, const char *spec, struct fal_diag *diag);

/* Replaces the machines by N[,NAME=VALUE...][;...].  Each of the N machines is a copy of
 * an existing machine, drawn by `seed`, or of the machine `like`; each copy begins at a
 * random pace.  speed is as in fal_machines_add, or LOW:HIGH, drawn uniformly; lanes and
 * cores are as in fal_machines_add.  The batch grows in proportion, so that a worker
 * keeps its number of tasks.  FAL_EINVAL with `diag`. */
int fal_machines_draw(struct fal_cost *cost, const char *spec, uint64_t seed,
		      struct fal_diag *diag);

/* Cuts the batch into tasks of `task` samples.  A task's time is in proportion to its
 * samples, except for the fixed part. */
void fal_machines_task(struct fal_cost *cost, uint32_t task);
/* Sets another batch for the same machines. */
void fal_machines_batch(struct fal_cost *cost, uint32_t batch);

/* Simulates `policy` long enough to meet all paces of the model, within a budget of
 * tasks. The result is never faster than fal_cost_speed.  Seconds per epoch:
 * fal_simulation_epoch_s. Errors as fal_simulate's. */
int fal_predict(const struct fal_cost *cost, const struct fal_policy *policy,
		struct fal_simulation *out);

/* A possible change, and its gain. */
struct fal_advice {
	struct fal_policy policy; /* fal_policy_free */
	double now_s, then_s;     /* seconds per epoch */
	bool model;               /* the change alters the model under the law */
};

/* Finds the best policy of these: another scheme that makes the same model (with `model`:
 * any of `rules`); shares by speed; at most one lane a core; the job without the workers
 * that slow it down.  A policy with fewer changes wins unless another policy is 1 %
 * faster.  out->policy is a copy of `now` if nothing is better.  FAL_ESTATE: `now` comes
 * to a halt. */
int fal_advise(const struct fal_cost *cost, const struct fal_policy *now,
	       const struct fal_rule *rules, size_t n_rules, bool model,
	       struct fal_advice *out);

#endif
