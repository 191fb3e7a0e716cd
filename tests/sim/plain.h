/* The numerics of falcon-protocol(7) and falcon-job(5), written down once more, one value
 * at a time, as plainly as can be.  Nothing of lib/wire, lib/server or lib/math computes
 * here, so that a fault of theirs shows. */
#ifndef PLAIN_H
#define PLAIN_H

#include "math/optim.h" /* what optimiser a job has, as data */
#include "toy.h"

#include <stddef.h>
#include <stdint.h>

enum { PLAIN_BLOCK = 4096 };

/* A model: weights, the optimiser's state, and the exponents of its blocks. */
struct plain {
	size_t n;
	float *w, *m, *v; /* m and v as of optim.h; adagrad's v is in m */
	uint64_t steps;   /* that m and v have had: whole ones; */
	double b1, b2;    /* … of the others the products of the betas */
	int *e;           /* by block */
};

/* A sum of what tasks gave.  Where blocks have different quanta it is kept in the finest
 * of them: 128 bits are enough for that. */
struct plain_sum {
	size_t n;
	__int128 *v;
	int *e, *needed; /* by block; NONE: nothing was added, nothing needed */
};

/* All zero, at the first exponents; weights from `w`, or zero where NULL.  Never fails:
 * a test without memory ends. */
struct plain plain_new(size_t n, const float *w);
void plain_copy(struct plain *to, const struct plain *from);
void plain_free(struct plain *p);

struct plain_sum plain_sum_new(size_t n);
void plain_sum_clear(struct plain_sum *s);
void plain_sum_free(struct plain_sum *s);

/* s += g, quantised by the exponents e, in the blocks from … to-1. */
void plain_sum_add(struct plain_sum *s, const float *g, const int *e, uint32_t from,
		   uint32_t to);
/* The block counts as having needed this, too. */
void plain_sum_need(struct plain_sum *s, uint32_t block, int needed);

/* What was added so has the one bit wrong. */
void plain_sum_flip(struct plain_sum *s, const float *g, const int *e,
		    const struct toy_flip *flip);

/* What a task's gradient is with `bits` bits (0: all), by the exponents e and the job's
 * seed. */
void plain_dither(float *g, size_t n, const int *e, unsigned bits, uint64_t seed,
		  uint64_t clock, uint32_t task);

/* One step by the mean over `divisor` samples, and the exponents that follow from it,
 * for gradients of `bits` bits (0: all).  They are `share` of a clock, of which `in` is
 * there; 1, 1: all of it. */
struct plain_by {
	float lr;
	double divisor, share, in;
	unsigned bits;
};
void plain_step(struct plain *p, const struct fal_optim *o, const struct plain_sum *s,
		const struct plain_by *by);

/* A change of weights as it travels: by the least exponent that holds each block. */
void plain_travel(float *change, size_t n);

#endif
