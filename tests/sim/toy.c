/* The toy problem and its plain solution. */
#include "toy.h"

#include "base/mem.h"
#include "base/rng.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

static uint32_t
epoch_clocks(const struct toy *t)
{
	return (t->samples + t->batch - 1) / t->batch;
}

uint32_t
toy_clocks(const struct toy *t)
{
	return t->epochs * epoch_clocks(t);
}

uint32_t
toy_clock_samples(const struct toy *t, uint64_t clock)
{
	uint32_t first = (uint32_t)(clock % epoch_clocks(t)) * t->batch;
	return t->samples - first < t->batch ? t->samples - first : t->batch;
}

uint32_t
toy_task_samples(const struct toy *t, uint64_t clock, uint32_t task)
{
	uint32_t left = toy_clock_samples(t, clock) - task * t->task;
	return left < t->task ? left : t->task;
}

uint32_t
toy_clock_tasks(const struct toy *t, uint64_t clock)
{
	return (toy_clock_samples(t, clock) + t->task - 1) / t->task;
}

unsigned
toy_room(const struct toy *t)
{
	return fal_bfp_room(toy_clock_tasks(t, 0));
}

void
toy_init(const struct toy *t, float *params)
{
	struct fal_rng rng = fal_rng_init(t->seed, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < t->n; i++)
		params[i] = fal_rng_unit(&rng) - 0.5f;
}

void
toy_grad(const struct toy *t, const float *params, uint64_t clock, uint32_t task,
	 float *grad)
{
	struct fal_rng rng = fal_rng_init(t->seed ^ clock << 32 ^ task, FAL_RNG_TEST, 1);
	float scale = 0.25f + fal_rng_unit(&rng);
	uint32_t h = fal_rng_u32(&rng) | 1;
	/* Some blocks grow from task to task, so that exponents move and sums escape. */
	float spread = (float)(1u << fal_rng_below(&rng, 18));
	for (size_t i = 0; i < t->n; i++) {
		uint32_t x = (uint32_t)i * 2654435761u * h;
		x ^= x >> 15;
		float noise = (float)(x & 0xffff) * 0x1p-16f - 0.5f;
		float g = scale * params[i] + noise;
		grad[i] = i / FAL_BLOCK % 4 == 3 ? g * spread : g;
	}
}

int64_t
toy_loss(const struct toy *t, uint64_t clock, uint32_t task)
{
	(void)t;
	return (int64_t)(clock * 1000 + task + 1);
}

/* What the plain loop keeps: parameters, optimiser state and exponents; and those of the
 * last versions, by version modulo slack + 1. */
struct plain {
	float *params, *state, *grad, *mean;
	int8_t *exps;
	float *old_params;
	int8_t *old_exps;
};

static void
reference_clock(const struct toy *t, uint64_t clock, uint32_t slack, struct plain *p)
{
	uint32_t blocks = fal_blocks(t->n), slots = fal_optim_slots(&t->optim);
	struct fal_sum *sum = fal_sum_new(t->n), *one = fal_sum_new(t->n);
	assert(sum != NULL && one != NULL);
	size_t new = clock % (slack + 1);
	memcpy(p->old_params + new * t->n, p->params, t->n * sizeof(float));
	memcpy(p->old_exps + new *blocks, p->exps, blocks);
	size_t old = (clock > slack ? clock - slack : 0) % (slack + 1);
	const int8_t *exps = p->old_exps + old * blocks;
	for (uint32_t task = 0; task < toy_clock_tasks(t, clock); task++) {
		toy_grad(t, p->old_params + old * t->n, clock, task, p->grad);
		int err = fal_sum_quantise(one, p->grad, exps, toy_room(t), NULL);
		err = err == 0 ? fal_sum_add(sum, one) : err;
		assert(err == 0);
	}
	for (uint32_t b = 0; b < blocks; b++) {
		size_t first = (size_t)b * FAL_BLOCK;
		fal_sum_mean(sum, b, exps[b], toy_clock_samples(t, clock), p->mean);
		fal_optim_apply_naive(&t->optim, t->lr, p->params + first,
				      p->state + first * slots, p->mean,
				      fal_block_len(t->n, b));
		p->exps[b] = fal_exp_next(p->exps[b], fal_sum_needed(sum, b));
	}
	fal_sum_free(sum);
	fal_sum_free(one);
}

void
toy_reference(const struct toy *t, uint32_t slack, float *params)
{
	size_t blocks = fal_blocks(t->n), kept = (size_t)slack + 1;
	struct plain p = { .params = params };
	p.grad = fal_calloc_aligned(t->n, sizeof(float));
	p.mean = fal_calloc_aligned(FAL_BLOCK, sizeof(float));
	p.state = fal_calloc_aligned(t->n * fal_optim_slots(&t->optim), sizeof(float));
	p.exps = fal_calloc(blocks, 1);
	p.old_params = fal_calloc(t->n * kept, sizeof(float));
	p.old_exps = fal_calloc(blocks * kept, 1);
	assert(p.grad != NULL && p.mean != NULL && p.state != NULL && p.exps != NULL &&
	       p.old_params != NULL && p.old_exps != NULL);
	memset(p.exps, FAL_EXP_FIRST, blocks);
	toy_init(t, params);
	for (uint32_t c = 0; c < toy_clocks(t); c++)
		reference_clock(t, c, slack, &p);
	free(p.grad);
	free(p.mean);
	free(p.state);
	free(p.exps);
	free(p.old_params);
	free(p.old_exps);
}
