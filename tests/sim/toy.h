/* The simulator's toy problem: a gradient that is cheap, depends on the parameters and
 * on the task, and is the same wherever it is computed; and the model that it leads to,
 * computed by one plain loop without scheduler, store or messages. */
#ifndef TOY_H
#define TOY_H

#include "math/optim.h"
#include "sched/policy.h"
#include "wire/bfp.h"

enum { TOY_MACHINES = 24 };

struct toy {
	uint64_t seed;
	size_t n; /* parameters */
	uint32_t samples, batch, task, epochs;
	double tail; /* of a clock: in tasks of */
	uint32_t tail_task;
	struct fal_optim optim;
	struct fal_range *range; /* of optim, or NULL */
	float lr;
	unsigned bits; /* of a gradient's values; 0: all */
	uint32_t odd;  /* of so many tasks about one has no finite gradient; 0: none */
	/* By machine: the part of its tasks that come out with one bit wrong. */
	double flips[TOY_MACHINES];
	/* By machine: how a sum of several tasks lies about its exponents, in one block
	 * of so many (0: in all). */
	enum toy_lie {
		TOY_HONEST,
		TOY_NEEDED, /* it needed the most that it has room for */
		TOY_ZEROS,  /* the same, and all is zero */
		TOY_GROUP   /* members of a group do, some of them */
	} lies[TOY_MACHINES];
	uint32_t lies_of;
};

uint32_t toy_clocks(const struct toy *t); /* of the whole job */
uint32_t toy_clock_tasks(const struct toy *t, uint64_t clock);
/* What a task has room for. */
unsigned toy_room(const struct toy *t);
/* The exponent that a liar says a block of this exponent needed. */
int toy_need(const struct toy *t, int exponent);
uint32_t toy_clock_samples(const struct toy *t, uint64_t clock);
uint32_t toy_task_samples(const struct toy *t, uint64_t clock, uint32_t task);

void toy_init(const struct toy *t, float *params);
/* The gradient of a task, summed over its samples. */
void toy_grad(const struct toy *t, const float *params, uint64_t clock, uint32_t task,
	      float *grad);
/* It has no finite gradient. */
bool toy_odd(const struct toy *t, uint64_t clock, uint32_t task);
/* One bit of what a task gives. */
struct toy_flip {
	size_t at; /* the parameter whose value it is in */
	unsigned bit;
};

/* Is one wrong, and which, whenever the machine runs the task?  Two machines whose
 * numbers are not both even or both odd hardly ever get the same one wrong. */
bool toy_flips(const struct toy *t, uint32_t machine, uint64_t clock, uint32_t task,
	       struct toy_flip *out);
/* The value with the bit changed, or another one where the largest of the block, ±most,
 * would not be that any more: so nothing else of the block tells of it.  Perhaps none
 * can be. */
int64_t toy_flipped(int64_t v, unsigned bit, int64_t most);
/* Its loss, fixed point. */
int64_t toy_loss(const struct toy *t, uint64_t clock, uint32_t task);

/* The final parameters by the slack of the rule: `params` has n floats. */
void toy_reference(const struct toy *t, const struct fal_rule *rule, float *params);

#endif
