/* Plays a policy on a cost model: the scheduler itself (lib/sched) in virtual time, with
 * workers that take what the model says.  What it is asked is what it would be asked
 * live.
 *
 * Cost: O(log W) for an event beside the scheduler's own.
 */
#ifndef FAL_PROJ_SIMULATE_H
#define FAL_PROJ_SIMULATE_H

#include "proj/cost.h"
#include "sched/policy.h"

#include <stdbool.h>

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

#endif
