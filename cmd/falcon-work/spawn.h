/* Starting and ending a trainer's process: its descriptors, environment and group. */
#ifndef WORK_SPAWN_H
#define WORK_SPAWN_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

/* What it shares: inherited under the numbers that its environment names. */
enum spawn_shared { SPAWN_PARAMS, SPAWN_GRADS, SPAWN_SAMPLES, SPAWN_SHARED };

struct spawn_conf {
	const char *command; /* for /bin/sh -c */
	const char *key;     /* file of the key, not to be told; NULL: none */
	uint32_t lane;
	int fd[SPAWN_SHARED];
};

/* Our ends, which do not block. */
struct spawned {
	pid_t pid; /* also its group's; 0: none */
	int in, out, err;
	int params, grads; /* pipes */
};

/* Starts it in a group of its own; it is killed when the calling thread ends.  FAL_EIO
 * (errno), FAL_ENOMEM. */
int spawn(const struct spawn_conf *conf, struct spawned *out);

/* Whether it has ended by itself; then `status` is as of waitpid, and it is still to be
 * killed, as is whoever it left in its group. */
bool spawn_ended(const struct spawned *s, int *status);

/* Kills its group and reaps it; and closes our ends: *s is none. */
void spawn_kill(const struct spawned *s);
void spawn_close(struct spawned *s);

/* CPU time of it, in clock ticks; 0: not known. */
uint64_t spawn_ticks(pid_t pid);

#endif
