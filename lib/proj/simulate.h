/* A cost model of a job, its play in virtual time, and what another policy, or other
 * machines, would do. */
#ifndef FAL_PROJ_SIMULATE_H
#define FAL_PROJ_SIMULATE_H

#include "base/err.h"
#include "sched/grid.h"
#include "sched/policy.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The cost model of a job: what its machines, links and coordinator take for what the
 * scheduler asks of them.  fit.h makes one from a trace.
 *
 * Owns: the struct and its memory.  Seconds everywhere.
 */

/* The speed of a worker for a while: in a clock of the trace, a round of its own, or a
 * part of it. */
struct fal_cost_pace {
	double task_s;             /* seconds of a full task on one lane */
	double tasks;              /* that it did, in full ones; not below 0 */
	double seconds;            /* that passed; above 0 */
	bool hung;                 /* nothing was done in them, at whatever task_s */
	double at_task, at_second; /* sums over those before; fal_cost_settle sets them */
};

/* A worker.
 *
 * Slowness that outlasts its clocks (another job, a hot machine) goes by the time: second
 * t of a play is second t of the trace.  Slowness that is another one for each clock goes
 * by the work: task n of the worker takes what its task n took in the trace, whenever it
 * comes.  After the end the beginning comes again. */
struct fal_cost_machine {
	char *name;                    /* owned */
	uint32_t lanes_min, lanes_max; /* that it may run */
	uint32_t lanes, cores;         /* lanes: that the paces are of */
	struct fal_cost_pace *pace;    /* owned */
	size_t paces;                  /* at least 1 */
	bool by_time;
	/* Sums over the paces; work: tasks that one lane does in these seconds. */
	double tasks, seconds, work;
	/* The share of a full task's seconds that any task takes; NAN: not known,
	 * and then taken to be 0. */
	double fixed;
	double turn_s; /* that a lane spends around each task: it is given, and taken */
	double pull_s; /* a version leaves for it → it computes */
	double push_s; /* it holds no more of a round → what it made is counted */
	double rtt_s;  /* a round trip on its link, which these two leave out */
};

struct fal_cost {
	struct fal_grid grid; /* of the job */
	struct fal_cost_machine *machine;
	size_t machines, cap;
	/* The coordinator: */
	double step_s; /* the last contribution is counted → the next round is granted */
	double message_s;              /* seconds that a message costs it */
	double byte_s;                 /* seconds that a byte costs it, in or out */
	double push_bytes, pull_bytes; /* of a contribution, of a version */
};

void fal_cost_free(struct fal_cost *c); /* `c` is {0} again */
/* A deep copy. */
struct fal_cost fal_cost_copy(const struct fal_cost *c);
/* Appends a copy of `m`, which may be one of them, under `name`. */
void fal_cost_add(struct fal_cost *c, const struct fal_cost_machine *m, const char *name);
/* Takes machine `i` out. */
void fal_cost_remove(struct fal_cost *c, size_t i);
/* The machine of this name, or NULL. */
struct fal_cost_machine *fal_cost_find(const struct fal_cost *c, const char *name);

/* Sets the machine's sums: after each change of its paces.  A machine without tasks goes
 * by the time; a machine that hung in all paces is taken to have hung in none. */
void fal_cost_sum(struct fal_cost_machine *m);
/* Sets these sums, and the way in which the machine goes through its paces: by the time
 * if it hung in any, or neighbouring runs of `share` tasks, a clock's, are alike (their
 * correlation is over 0.7, or they differ by less than 1 %); else by the work. */
void fal_cost_settle(struct fal_cost_machine *m, double share);

/* Seconds that the machine's task number `n` takes on a lane, begun at second `at` of the
 * play while `lanes` lanes run: lanes beyond its cores share them.  `part`: of a full
 * one's samples. */
double fal_cost_task_s(const struct fal_cost_machine *m, double n, double at, double part,
		       uint32_t lanes);
/* Seconds for which it still hangs at second `at` of the play; 0: it does not. */
double fal_cost_hangs(const struct fal_cost_machine *m, double at);
/* The machine's mean pace: Σ seconds of its tasks / tasks. */
double fal_cost_mean(const struct fal_cost_machine *m);
/* The sum of the machines' speeds at their mean paces: samples a second that their lanes
 * compute in full tasks, without a pause; no more lanes than cores. */
double fal_cost_speed(const struct fal_cost *c);
/* fal_bound_sizes at these machines' mean paces. */
void fal_cost_sizes(const struct fal_cost *c, double *whole, double *small);

/* Plays a policy on a cost model: the scheduler itself (lib/sched) in virtual time, with
 * workers that take the model's times.  The scheduler is asked the same questions as in a
 * live job.
 *
 * Cost: O(log W) for an event beside the scheduler's own.
 */

struct fal_play_conf {
	const struct fal_cost *cost;     /* borrowed */
	const struct fal_policy *policy; /* borrowed */
	uint64_t warm;   /* the first clocks do not count: nothing is known yet */
	uint64_t clocks; /* then so many clocks' tasks are to be over, */
	double seconds;  /* and so many seconds, unless that takes */
	uint64_t most;   /* more clocks than this; 0: seconds do not matter */
};

/* Over the clocks that count. */
struct fal_play {
	double seconds, clocks; /* clocks: samples that are over / those of a clock */
	double samples; /* that become a part of a version; of tasks under way the part
			   done */
	double dropped, twice; /* samples; twice: lost races */
	double updates;
	double moved, cloned; /* tasks */
	double stale_updates; /* mean over samples */
	double compute;       /* Σ seconds of workers computing / (workers · seconds) */
	double bytes;         /* to and from the coordinator */
	double load;          /* the coordinator's own seconds / seconds */
};

/* 0, or FAL_ESTATE: nothing happens any more, the policy cannot go on. */
int fal_play(const struct fal_play_conf *conf, struct fal_play *out);

/* Seconds that an epoch takes at this rate. */
double fal_play_epoch_s(const struct fal_play *p, const struct fal_grid *grid);

/* The what-if: a policy, or other machines, on a fitted cost model. */

enum { FAL_MACHINES_MAX = 1000000 }; /* that are drawn */

/* Reads NAME=VALUE[,NAME=VALUE...] into a further machine of `cost`: name (must be new),
 * like (a machine that is there; else a median one), speed (times that of `like`, 1),
 * lanes (at most), cores.  FAL_EINVAL with `diag`: what is wrong, and the value.
 */
int fal_machines_add(struct fal_cost *cost, const char *spec, struct fal_diag *diag);

/* Makes the model the machines that N[,NAME=VALUE...][;...] says: N of them, each drawn,
 * by `seed`, from those that are there, or `like` one of them, with another part of its
 * slowness first; speed as above or, as LOW:HIGH, drawn evenly; lanes and cores as above.
 * The batch grows in proportion, so that a worker has as many tasks as before.
 * FAL_EINVAL with `diag`. */
int fal_machines_draw(struct fal_cost *cost, const char *spec, uint64_t seed,
		      struct fal_diag *diag);

/* Cuts the batch into tasks of `task` samples, whose time is in proportion but for what
 * is fixed. */
void fal_machines_task(struct fal_cost *cost, uint32_t task);
/* The same machines with another batch. */
void fal_machines_batch(struct fal_cost *cost, uint32_t batch);

/* Plays `policy` long enough to meet the slowness of the whole model, within a budget of
 * tasks; never faster than fal_cost_speed.  Seconds per epoch: fal_play_epoch_s.  Errors
 * as fal_play's. */
int fal_predict(const struct fal_cost *cost, const struct fal_policy *policy,
		struct fal_play *out);

/* A possible change, and its gain. */
struct fal_advice {
	struct fal_policy policy; /* fal_policy_free */
	double now_s, then_s;     /* seconds per epoch */
	bool model;               /* it alters the model under the law */
};

/* The best of: another scheme with the same model (any of `rules`, if `model`); shares by
 * speed; no more lanes than cores; without the workers that hold all up.  A policy that
 * changes less wins unless another one is 1 % faster.  advice->policy is `now` where
 * nothing is better.  FAL_ESTATE: `now` cannot go on. */
int fal_advise(const struct fal_cost *cost, const struct fal_policy *now,
	       const struct fal_rule *rules, size_t n_rules, bool model,
	       struct fal_advice *out);

#endif
