/* Machines that get bits wrong, and what is told of it where two keys run a task. */
#ifndef FLIPS_H
#define FLIPS_H

#include "cluster_priv.h"

/* The task has come out on the machine: perhaps with a bit wrong.  True: it has. */
bool flips_strike(struct worker *w, const struct fal_task_run *run);

/* A worker was asked to run a task that counts already. */
void flips_asked(struct cluster *c, uint32_t peer, const struct fal_msg *grant);
/* Does the worker run it as a check, or for a group server that does? */
bool flips_is_asked(const struct worker *w, const struct fal_task_run *run);
/* The coordinator's op: two keys have unlike results of a task. */
void flips_unlike(void *arg, const struct fal_coord_mismatch *is);

/* What is wrong with what the trace says of them, or NULL; `o` is told what escaped. */
const char *flips_judge(const struct plan *p, struct outcome *o, struct fal_diag *diag);

#endif
