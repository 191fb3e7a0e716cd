/* --exec: the trainers of a worker, of one command, each for as many tasks at once as it
 * says in its hello.  They stay while jobs and connections come and go.
 */
#ifndef WORK_EXEC_H
#define WORK_EXEC_H

#include "child.h"

struct exec {
	struct child **child;
	uint32_t n, lanes;           /* children; tasks at once that all of them do */
	uint32_t depth;              /* tasks of each lane to be there at a time */
	struct fal_grad_hello hello; /* the same for all */
};

struct exec_conf {
	const char *command, *worker, *key; /* of child_conf */
	uint32_t lanes;
	unsigned mute; /* of child_conf */
	bool once;
	bool shallow; /* tasks are timed one by one: none waits in a trainer */
};

/* Starts them and waits for their first words.  FAL_EPERM: one was given up; FAL_EIO,
 * FAL_ENOMEM; with `diag`. */
int exec_open(const struct exec_conf *conf, struct exec **out, struct fal_diag *diag);
/* Ends them all.  NULL: nothing. */
void exec_close(struct exec *e);

/* Where the task of this number (fal_agent_ops, run) goes: which child, which slot. */
struct exec_at {
	struct child *child;
	uint32_t number, slot;
};
struct exec_at exec_at(const struct exec *e, uint32_t lane);

/* How many such numbers there are. */
static inline uint32_t
exec_slots(const struct exec *e)
{
	return e->lanes * e->depth;
}

#endif
