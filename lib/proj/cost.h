/* The cost model of a job: what its machines, links and coordinator take for what the
 * scheduler asks of them.  fit.h makes one from a trace; play.h plays the scheduler on
 * it.
 *
 * Owns: the struct and its memory.  Seconds everywhere.
 */
#ifndef FAL_PROJ_COST_H
#define FAL_PROJ_COST_H

#include "sched/grid.h"

#include <stddef.h>
#include <stdint.h>

/* A worker: how fast it was, clock by clock.
 *
 * Slowness is kept by the worker's clocks, not by the time of day: clock i of a play
 * takes what clock i of the trace took, whatever the scheme makes of it, and after the
 * last the first comes again.  A worker with rounds of its own counts these. */
struct fal_cost_machine {
	char *name;                                  /* owned */
	uint32_t lanes_min, lanes_max, lanes, cores; /* lanes: that it ran last */
	double *pace;  /* owned; seconds of one task on one lane at `lanes` lanes */
	size_t paces;  /* at least 1 */
	double pull_s; /* a version leaves for it → it computes */
	double push_s; /* it holds no more of a round → what it made is counted */
};

struct fal_cost {
	struct fal_grid grid; /* of the job */
	struct fal_cost_machine *machine;
	size_t machines;
	/* The coordinator: */
	double step_s; /* the last contribution is counted → the next round is granted */
	double message_s;              /* seconds that a message costs it */
	double byte_s;                 /* seconds that a byte costs it, in or out */
	double push_bytes, pull_bytes; /* of a contribution, of a version */
};

void fal_cost_free(struct fal_cost *c); /* `c` is {0} again */
/* A deep copy.  FAL_ENOMEM. */
int fal_cost_copy(const struct fal_cost *c, struct fal_cost *out);
/* Appends a copy of `m` under `name`.  FAL_ENOMEM. */
int fal_cost_add(struct fal_cost *c, const struct fal_cost_machine *m, const char *name);
/* Takes machine `i` out. */
void fal_cost_remove(struct fal_cost *c, size_t i);
/* The machine of this name, or NULL. */
struct fal_cost_machine *fal_cost_find(const struct fal_cost *c, const char *name);

/* Seconds of one task on one lane of `m` in its clock i, at `lanes` lanes: lanes beyond
 * its cores share them. */
double fal_cost_task_s(const struct fal_cost_machine *m, uint64_t i, uint32_t lanes);
/* The median of its pace. */
double fal_cost_pace(const struct fal_cost_machine *m);

#endif
