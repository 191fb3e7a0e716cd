/* Other machines, and other sizes, of a fitted cost model. */
#ifndef FAL_PROJ_MACHINES_H
#define FAL_PROJ_MACHINES_H

#include "base/err.h"
#include "proj/cost.h"

enum { FAL_MACHINES_MAX = 1000000 }; /* that are drawn */

/* Reads NAME=VALUE[,NAME=VALUE...] into a further machine of `cost`: name (must be new),
 * like (a machine that is there; else a median one), speed (times that of `like`, 1),
 * lanes (at most), cores.  FAL_EINVAL with `diag`: what is wrong, and the value;
 * FAL_ENOMEM. */
int fal_machines_add(struct fal_cost *cost, const char *spec, struct fal_diag *diag);

/* Makes the model the machines that N[,NAME=VALUE...][;...] says: N of them, each drawn,
 * by `seed`, from those that are there, or `like` one of them, with another part of its
 * slowness first; speed as above or, as LOW:HIGH, drawn evenly; lanes and cores as above.
 * The batch grows in proportion, so that a worker has as many tasks as before.
 * FAL_EINVAL with `diag`; FAL_ENOMEM. */
int fal_machines_draw(struct fal_cost *cost, const char *spec, uint64_t seed,
		      struct fal_diag *diag);

/* Cuts the batch into tasks of `task` samples, whose time is in proportion but for what
 * is fixed. */
void fal_machines_task(struct fal_cost *cost, uint32_t task);
/* The same machines with another batch. */
void fal_machines_batch(struct fal_cost *cost, uint32_t batch);

#endif
