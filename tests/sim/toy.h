/* The simulator's toy problem: a gradient that is cheap, depends on the parameters and
 * on the task, and is the same wherever it is computed; and the model that it leads to,
 * computed by one plain loop without scheduler, store or messages. */
#ifndef TOY_H
#define TOY_H

#include "optim/optim.h"
#include "wire/bfp.h"

struct toy {
	uint64_t seed;
	size_t n; /* parameters */
	uint32_t samples, batch, task, epochs;
	struct fal_optim optim;
	struct fal_range *range; /* of optim, or NULL */
	float lr;
	uint32_t odd; /* of so many tasks about one has no finite gradient; 0: none */
};

uint32_t toy_clocks(const struct toy *t); /* of the whole job */
uint32_t toy_clock_tasks(const struct toy *t, uint64_t clock);
/* What a task has room for. */
unsigned toy_room(const struct toy *t);
uint32_t toy_clock_samples(const struct toy *t, uint64_t clock);
uint32_t toy_task_samples(const struct toy *t, uint64_t clock, uint32_t task);

void toy_init(const struct toy *t, float *params);
/* The gradient of a task, summed over its samples. */
void toy_grad(const struct toy *t, const float *params, uint64_t clock, uint32_t task,
	      float *grad);
/* It has no finite gradient. */
bool toy_odd(const struct toy *t, uint64_t clock, uint32_t task);
/* Its loss, fixed point. */
int64_t toy_loss(const struct toy *t, uint64_t clock, uint32_t task);

/* The final parameters with every clock's gradients taken `slack` versions back: `params`
 * has n floats. */
void toy_reference(const struct toy *t, uint32_t slack, float *params);

#endif
