/* The numerics fingerprint and the speed of this machine, found beside the loop. */
#ifndef WORK_PROBE_H
#define WORK_PROBE_H

#include "maker.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct probe_conf {
	struct maker *maker; /* kept until on_end */
	void (*on_end)(void *arg);
	void *arg;
};

struct probe {
	struct maker_probed found;
	bool running, done; /* done: the above is set */
	int err;
	/* private */
	uv_work_t work;
	struct probe_conf conf;
};

/* Starts probing; `p` is kept until on_end: done is true then, or err set.  FAL_EIO. */
int probe_start(struct probe *p, uv_loop_t *loop, const struct probe_conf *conf);

#endif
