/* The place where one thread computes tasks: its buffers, and the computation. */
#ifndef WORK_DESK_H
#define WORK_DESK_H

#include "maker.h"
#include "nn/net.h"

struct desk; /* opaque */

/* For the net's largest tasks; `net` is kept until desk_free.  FAL_ENOMEM. */
int desk_new(const struct fal_net *net, struct desk **out);
void desk_free(struct desk *d);

/* As maker_run says. */
int desk_run(struct desk *d, const struct maker_job *job, struct fal_ran *ran);

/* How far it is: layers that it has passed, ever.  For any thread. */
uint64_t desk_steps(const struct desk *d);

/* The numerics fingerprint of this machine.  FAL_ENOMEM. */
int desk_fingerprint(struct desk *d, uint64_t seed,
		     uint8_t fingerprint[static FAL_FINGERPRINT]);

/* What the largest task takes once caches are warm: ns that pass, and of this thread's
 * CPU, whatever else the machine does. */
struct desk_time {
	uint64_t wall, cpu;
};

/* Times it on made-up samples.  FAL_ENOMEM. */
int desk_time(struct desk *d, uint64_t seed, struct desk_time *out);

#endif
