/* --exec: the trainers of a worker, of one command, one for each lane.  They stay while
 * jobs and connections come and go.
 */
#ifndef WORK_EXEC_H
#define WORK_EXEC_H

#include "trainer.h"

struct exec {
	struct trainer **trainer; /* by lane */
	uint32_t lanes;
	struct fal_grad_hello hello; /* the same for all */
};

/* Starts one trainer for each lane, by `conf` but for its number, and waits for their
 * hellos.  FAL_EPERM: one was given up; FAL_EIO, FAL_ENOMEM; with `diag`. */
int exec_open(const struct trainer_conf *conf, uint32_t lanes, struct exec **out,
	      struct fal_diag *diag);
/* Ends them all.  NULL: nothing. */
void exec_close(struct exec *e);

#endif
