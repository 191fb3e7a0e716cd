/* The numerics fingerprint and the speed of this machine, found beside the loop. */
#ifndef WORK_PROBE_H
#define WORK_PROBE_H

#include "nn/net.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

/* What is probed: the task's net; that of a larger batch, or NULL.  Kept until on_end. */
struct probe_conf {
	const struct fal_net *net, *large;
	uint64_t seed;
	void (*on_end)(void *arg);
	void *arg;
};

struct probe {
	uint8_t fingerprint[FAL_FINGERPRINT];
	uint64_t task_ns;
	/* Samples of a larger batch, and what it would take on the same footing; 0, 0:
	 * there is none. */
	uint32_t large;
	uint64_t large_ns;
	bool running, done; /* done: the four above are set */
	int err;
	/* private */
	uv_work_t work;
	struct probe_conf conf;
};

/* Starts probing; `p` is kept until on_end: done is true then, or err set.  FAL_EIO. */
int probe_start(struct probe *p, uv_loop_t *loop, const struct probe_conf *conf);

#endif
