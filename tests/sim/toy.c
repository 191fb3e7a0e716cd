/* The toy problem and its plain solution. */
#include "toy.h"

#include "base/mem.h"
#include "base/rng.h"
#include "base/vector.h"
#include "plain.h"

#include <assert.h>
#include <math.h>
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

static uint32_t
small(const struct toy *t)
{
	return t->tail > 0 ? t->tail_task : t->task;
}

static uint32_t
head_tasks(const struct toy *t, uint64_t clock)
{
	return (uint32_t)floor((1 - t->tail) * toy_clock_samples(t, clock) / t->task);
}

uint32_t
toy_task_samples(const struct toy *t, uint64_t clock, uint32_t task)
{
	const uint32_t n = toy_clock_samples(t, clock), head = head_tasks(t, clock);
	if (task < head)
		return t->task;
	const uint32_t left = n - head * t->task - (task - head) * small(t);
	return left < small(t) ? left : small(t);
}

uint32_t
toy_clock_tasks(const struct toy *t, uint64_t clock)
{
	const uint32_t head = head_tasks(t, clock);
	const uint32_t left = toy_clock_samples(t, clock) - head * t->task;
	return head + (left + small(t) - 1) / small(t);
}

unsigned
toy_room(const struct toy *t)
{
	return fal_bfp_room(toy_clock_tasks(t, 0));
}

int
toy_need(const struct toy *t, int exponent)
{
	const int most = exponent + (int)toy_room(t) - FAL_BFP_P + 1;
	return most < FAL_EXP_MAX ? most : FAL_EXP_MAX;
}

void
toy_init(const struct toy *t, float *params)
{
	struct fal_rng rng = fal_rng_init(t->seed, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < t->n; i++)
		params[i] = fal_rng_unit(&rng) - 0.5f;
}

/* What a task gives for weights i … i+n-1: `scale` of each, and noise that `h` says. */
FAL_VECTOR static void
gradient(const float *params, uint32_t i, uint32_t n, const float by[static 2],
	 uint32_t h, float *grad)
{
	const float scale = by[0], spread = by[1];
	for (uint32_t k = 0; k < n; k++) {
		uint32_t x = (i + k) * 2654435761u * h;
		x ^= x >> 15;
		const float noise = (float)(int32_t)(x & 0xffff) * 0x1p-16f - 0.5f;
		grad[k] = scale * params[k] + noise * spread;
	}
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
	for (uint32_t b = 0; b < fal_blocks(t->n); b++) {
		const size_t at = (size_t)b * FAL_BLOCK;
		const float by[2] = { scale, b % 4 == 3 ? spread : 1 };
		gradient(params + at, (uint32_t)at, fal_block_len(t->n, b), by, h,
			 grad + at);
	}
}

bool
toy_odd(const struct toy *t, uint64_t clock, uint32_t task)
{
	struct fal_rng rng = fal_rng_init(t->seed ^ clock << 32 ^ task, FAL_RNG_TEST, 7);
	/* Of each epoch there is something. */
	if (t->odd == 0 || (task == 0 && clock % epoch_clocks(t) == 0))
		return false;
	return fal_rng_below(&rng, t->odd) == 0;
}

bool
toy_flips(const struct toy *t, uint32_t machine, uint64_t clock, uint32_t task,
	  struct toy_flip *out)
{
	const uint64_t where = (uint64_t)machine << 48 ^ clock << 24 ^ task;
	struct fal_rng rng = fal_rng_init(t->seed ^ where, FAL_RNG_TEST, 11);
	if (t->flips[machine] <= 0 || toy_odd(t, clock, task) ||
	    (double)fal_rng_unit(&rng) >= t->flips[machine])
		return false;
	out->at = fal_rng_below(&rng, (uint32_t)t->n);
	out->bit = 2 * fal_rng_below(&rng, 11) + machine % 2;
	return true;
}

int64_t
toy_flipped(int64_t v, unsigned bit, int64_t most)
{
	const int64_t is = v ^ (int64_t)1 << bit;
	if (llabs(is) <= most && llabs(v) < most)
		return is;
	/* The largest has another one of its own, but for the highest, by which it is
	 * known; with no other it is one less. */
	const int64_t bits = v < 0 ? ~v : v, lowest = bits & -bits;
	return lowest != bits ? v ^ lowest : v < 0 ? v + 1 : v - 1;
}

int64_t
toy_loss(const struct toy *t, uint64_t clock, uint32_t task)
{
	const int64_t loss = (int64_t)(clock * 1000 + task + 1);
	return t->seed % 2 == 0 ? loss : -loss; /* of any kind, falcon-job(5) */
}

/* A fraction of slack: does a sample of the task lie behind that part of the clock? */
static bool
is_late(const struct toy *t, const struct fal_rule *rule, uint64_t clock, uint32_t task)
{
	uint64_t end = 0;
	for (uint32_t i = 0; i <= task; i++)
		end += toy_task_samples(t, clock, i);
	return rule->slack_q > 0 &&
	       end * rule->slack_q >
		       (uint64_t)toy_clock_samples(t, clock) * rule->slack_p;
}

void
toy_reference(const struct toy *t, const struct fal_rule *rule, float *params)
{
	const uint32_t slack = rule->slack;
	const uint32_t clocks = toy_clocks(t), blocks = fal_blocks(t->n);
	struct plain *v = fal_calloc((size_t)clocks + 1, sizeof(*v));
	struct plain_sum sum = plain_sum_new(t->n);
	float *grad = fal_calloc(t->n, sizeof(*grad));
	assert(v != NULL && grad != NULL);
	toy_init(t, params);
	v[0] = plain_new(t->n, params);
	for (uint32_t c = 0; c < clocks; c++) {
		const struct plain *by = &v[c > slack ? c - slack : 0];
		uint32_t samples = 0;
		plain_sum_clear(&sum);
		for (uint32_t task = 0; task < toy_clock_tasks(t, c); task++) {
			if (toy_odd(t, c, task))
				continue;
			const struct plain *on =
				c > 0 && is_late(t, rule, c, task) ? by + 1 : by;
			samples += toy_task_samples(t, c, task);
			toy_grad(t, on->w, c, task, grad);
			plain_dither(grad, t->n, by->e, t->bits, t->seed, c, task);
			plain_sum_add(&sum, grad, by->e, 0, blocks);
		}
		v[c + 1] = plain_new(t->n, NULL);
		plain_copy(&v[c + 1], &v[c]);
		if (samples > 0)
			plain_step(&v[c + 1], &t->optim, &sum,
				   &(struct plain_by){ t->lr, samples, 1, 1, t->bits });
	}
	memcpy(params, v[clocks].w, t->n * sizeof(float));
	for (uint32_t c = 0; c <= clocks; c++)
		plain_free(&v[c]);
	plain_sum_free(&sum);
	free(grad);
	free(v);
}
