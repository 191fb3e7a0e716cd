/* The numerics fingerprint and the speed of this machine, found beside the loop. */
#ifndef WORK_PROBE_H
#define WORK_PROBE_H

#include "nn/net.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>
#include <uv.h>

struct probe {
	uint8_t fingerprint[FAL_FINGERPRINT];
	uint64_t task_ns;
	bool running, done; /* done: the two above are set */
	int err;
	/* private */
	uv_work_t work;
	const struct fal_net *net;
	uint64_t seed;
	void (*on_end)(void *arg);
	void *arg;
};

/* Starts probing `net`, which is kept, as is `p`, until on_end: done is true then, or
 * err set.  FAL_EIO. */
int probe_start(struct probe *p, uv_loop_t *loop, const struct fal_net *net,
		uint64_t seed, void (*on_end)(void *arg), void *arg);

#endif
