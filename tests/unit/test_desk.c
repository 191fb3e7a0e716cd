/* The desk: a task that waits for its parameters gives what one does that has them. */
#include "../drawn.h"
#include "../naive_bfp.h"
#include "run/task_runner.h"

#include "job/set.h"
#include "wire/bfp.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>
#ifdef __SSE2__
#include <immintrin.h>
#endif

enum { SAMPLES = 40, INPUTS = 64, CLASSES = 10, BATCH = 8 };

static const char text[] = "input 64\ndense 190\nrelu\ndense 60\nrelu\ndense 10\n";

static struct fal_rng rng;
static struct fal_model *model;
static struct fal_net *net;
static struct fal_set set;
static struct fal_manifest manifest;
static struct fal_samples *samples;
static struct fal_order order;
static struct fal_norm norm;

static int
begin(void **state)
{
	(void)state;
	rng = fal_rng_init(drawn_seed((uint64_t)time(NULL)), FAL_RNG_TEST, 0);
	set = (struct fal_set){ .n = SAMPLES,
				.shape = { 1, 1, INPUTS },
				.classes = CLASSES,
				.values = INPUTS,
				.sample_bytes = INPUTS,
				.pixels = malloc((size_t)SAMPLES * INPUTS),
				.labels = calloc(SAMPLES, sizeof(uint32_t)) };
	for (uint32_t i = 0; i < SAMPLES * INPUTS; i++)
		set.pixels[i] = (uint8_t)fal_rng_u32(&rng);
	for (uint32_t i = 0; i < SAMPLES; i++)
		set.labels[i] = fal_rng_below(&rng, CLASSES);
	const struct fal_order_opts opts = { .n = SAMPLES, .per_chunk = SAMPLES };
	const float mean = 0.5f, std = 0.3f;
	if (fal_model_parse("m", text, strlen(text), &model, NULL) < 0 ||
	    fal_net_new(model, BATCH, &net) < 0 ||
	    fal_manifest_build(&set, &set, &manifest) < 0 ||
	    fal_samples_new(&manifest.train, &samples) < 0 ||
	    fal_samples_put_set(samples, &set) < 0 || fal_order_init(&order, &opts) < 0 ||
	    fal_norm_init(&norm, 1, &mean, &std) < 0)
		return -1;
	return 0;
}

static int
end(void **state)
{
	(void)state;
	fal_samples_free(samples);
	fal_order_free(&order);
	fal_manifest_free(&manifest);
	fal_set_free(&set);
	fal_net_free(net);
	fal_model_free(model);
	return 0;
}

/* --- while parameters come ---------------------------------------------------------- */

enum { MOST_BLOCKS = 40 };

/* A net of drawn widths, and a task of it, with what a plain run makes. */
struct drawn {
	struct fal_model *model;
	struct fal_net *net;
	struct fal_task_runner *desk;
	float *params;
	int8_t exps[MOST_BLOCKS];
	uint32_t blocks;
	uint32_t parts; /* waits of a whole task: for each layer, or part of one */
	struct fal_lane_task job;
	struct fal_task_result ran;     /* of the plain run, */
	struct fal_buf is[MOST_BLOCKS]; /* … and what it made, as far as it is finite */
	/* The parameters that have come. */
	float *come; /* the parameters that are here */
	uint32_t here, needs, stop;
	struct fal_sum *sum;
};

static void
draw_net(struct drawn *d)
{
	char drawn[256];
	size_t at = (size_t)snprintf(drawn, sizeof(drawn), "input %d\n", INPUTS);
	d->parts = 1;
	for (uint32_t i = fal_rng_below(&rng, 4); i > 0; i--) {
		const uint32_t width = 1 + fal_rng_below(&rng, 200);
		at += (size_t)snprintf(drawn + at, sizeof(drawn) - at, "dense %u\ntanh\n",
				       width);
		d->parts += (width + 127) / 128;
	}
	snprintf(drawn + at, sizeof(drawn) - at, "dense %d\n", CLASSES);
	assert_int_equal(fal_model_parse("m", drawn, strlen(drawn), &d->model, NULL), 0);
	assert_int_equal(fal_net_new(d->model, BATCH, &d->net), 0);
	assert_int_equal(fal_task_runner_new(d->net, &d->desk), 0);
	d->blocks = fal_blocks(d->model->params);
	assert_true(d->blocks <= MOST_BLOCKS);
	d->params = malloc(d->model->params * sizeof(float));
	d->come = malloc(d->model->params * sizeof(float));
	d->sum = fal_sum_new(d->model->params);
	assert_true(d->params && d->come && d->sum);
	fal_model_init(d->model, fal_rng_u32(&rng), d->params);
	memset(d->exps, FAL_EXP_FIRST, sizeof(d->exps));
}

static void
draw_task(struct drawn *d)
{
	d->job = (struct fal_lane_task){
		.run = { .params = d->params,
			 .exps = d->exps,
			 .room = FAL_BFP_ROOM,
			 .bits = one_in(&rng, 2) ? 8 + fal_rng_below(&rng, 16) : 0,
			 .seed = fal_rng_u32(&rng) },
		.batch = { samples, &order, &norm },
		.first = fal_rng_below(&rng, SAMPLES - BATCH),
		.count = 1 + fal_rng_below(&rng, BATCH)
	};
}

/* Runs the task on a desk that waits for nothing. */
static void
run_plainly(struct drawn *d)
{
	struct fal_task_runner *plain;
	struct fal_sum *sum = fal_sum_new(d->model->params);
	assert_non_null(sum);
	assert_int_equal(fal_task_runner_new(d->net, &plain), 0);
	d->job.run.sum = sum;
	d->ran = (struct fal_task_result){ 0 };
	assert_int_equal(fal_task_runner_run(plain, &d->job, &d->ran), 0);
	for (uint32_t b = 0; b < d->blocks && !d->ran.nonfinite; b++)
		assert_int_equal(fal_sum_pack(sum, b, d->exps[b], &d->is[b]), 0);
	fal_task_runner_free(plain);
	fal_sum_free(sum);
}

static void
free_drawn(struct drawn *d)
{
	fal_sum_free(d->sum);
	fal_task_runner_free(d->desk);
	fal_net_free(d->net);
	fal_model_free(d->model);
	free(d->params);
	free(d->come);
	for (uint32_t b = 0; b < d->blocks; b++)
		fal_buf_free(&d->is[b]);
}

static void
expect_block(const struct drawn *d, uint32_t b)
{
	struct fal_buf got = { 0 };
	assert_int_equal(fal_sum_pack(d->sum, b, d->exps[b], &got), 0);
	if (got.n != d->is[b].n || memcmp(got.p, d->is[b].p, got.n) != 0)
		fail_msg("block %u of %u is another one", b, d->blocks);
	fal_buf_free(&got);
}

/* Whole blocks come, and more than is asked for at times. */
static bool
give(void *arg, uint64_t floats)
{
	struct drawn *d = arg;
	uint32_t blocks = fal_blocks(floats);
	assert_true(blocks > 0 && blocks <= d->blocks);
	if (++d->needs == d->stop)
		return false;
	if (one_in(&rng, 3))
		blocks += fal_rng_below(&rng, d->blocks - blocks + 1);
	for (; d->here < blocks; d->here++) {
		const size_t first = (size_t)d->here * FAL_BLOCK;
		memcpy(d->come + first, d->params + first,
		       fal_block_len(d->model->params, d->here) * sizeof(float));
	}
	return true;
}

static void
run_waiting(struct drawn *d, struct fal_task_result *ran)
{
	const struct fal_net_wait wait = { d, give };
	for (uint64_t i = 0; i < d->model->params; i++)
		d->come[i] = NAN;
	d->here = d->needs = 0;
	d->job.run.params = d->come;
	d->job.run.sum = d->sum;
	d->job.wait = &wait;
	*ran = (struct fal_task_result){ 0 };
	assert_int_equal(fal_task_runner_run(d->desk, &d->job, ran), 0);
	d->job.wait = NULL;
	d->job.run.params = d->params;
}

/* A task that waits for its parameters gives what one does that has them. */
static void
waiting_changes_nothing(void **state)
{
	(void)state;
	for (int turn = 0; turn < 60; turn++) {
		struct drawn d = { 0 };
		struct fal_task_result ran;
		draw_net(&d);
		for (int task = 0; task < 3; task++) {
			draw_task(&d);
			run_plainly(&d);
			d.stop = one_in(&rng, 4) ? 1 + fal_rng_below(&rng, d.parts) : 0;
			run_waiting(&d, &ran);
			assert_int_equal(ran.cancelled, d.stop > 0);
			assert_int_equal(d.needs, d.stop > 0 ? d.stop : d.parts);
			for (uint32_t b = 0; b < d.blocks; b++) {
				if (!ran.cancelled)
					expect_block(&d, b);
				fal_buf_clear(&d.is[b]);
			}
			if (!ran.cancelled) {
				assert_int_equal(ran.loss, d.ran.loss);
				assert_int_equal(ran.right, d.ran.right);
				assert_int_equal(ran.samples, d.ran.samples);
				assert_false(ran.nonfinite);
			}
			fal_sum_clear(d.sum);
		}
		free_drawn(&d);
	}
}

/* A task reports a block that has no room for its values, and a value that is not finite.
 */
static void
waiting_tells_of_the_bad_one(void **state)
{
	(void)state;
	for (int turn = 0; turn < 60; turn++) {
		struct drawn d = { 0 };
		struct fal_task_result ran;
		draw_net(&d);
		draw_task(&d);
		const bool all = one_in(&rng, 5);
		if (!all)
			d.exps[fal_rng_below(&rng, d.blocks)] = FAL_EXP_MIN;
		run_plainly(&d);
		assert_false(d.ran.nonfinite);
		if (all)
			d.params[fal_rng_below(&rng, INPUTS)] =
				NAN; /* of the first layer */
		run_waiting(&d, &ran);
		assert_true(ran.nonfinite == all);
		assert_true(ran.room ==
			    (all ? 0 : fal_bfp_most(FAL_EXP_MIN, FAL_BFP_ROOM)));
		assert_true(all ? ran.most == 0
				: ran.most >= ran.room && isfinite(ran.most));
		assert_false(ran.cancelled);
		fal_sum_clear(d.sum);
		free_drawn(&d);
	}
}

/* Some values have no room, by more in one block than in all others: fal_lane_task_finish
 * reports that block.  A value that is not finite, anywhere, is reported alone. */
static void
larger_than_its_room(void **state)
{
	enum { N = 3 * FAL_BLOCK + 100, BLOCKS = 4 };
	static float g[N];
	struct fal_sum *sum = fal_sum_new(N);
	(void)state;
	assert_non_null(sum);
	for (int turn = 0; turn < 200; turn++) {
		const unsigned room = 39 + fal_rng_below(&rng, FAL_BFP_ROOM - 38);
		const uint32_t worst = fal_rng_below(&rng, BLOCKS);
		const float odd[] = { NAN, INFINITY, -INFINITY };
		int8_t e[BLOCKS];
		float most = 0;
		for (uint32_t b = 0; b < BLOCKS; b++) {
			e[b] = (int8_t)(fal_rng_below(&rng, 120) - 90);
			const uint32_t len = fal_block_len(N, b);
			float *block = g + b * FAL_BLOCK;
			const float bound = fal_bfp_most(e[b], room);
			for (uint32_t i = 0; i < len; i++)
				block[i] = bound * (fal_rng_unit(&rng) - 0.5f);
			const uint32_t at = fal_rng_below(&rng, len);
			if (b == worst)
				block[at] = most =
					bound * (one_in(&rng, 2) ? 16 : 0x1p14f);
			else if (one_in(&rng, 2))
				block[at] = bound * (1 + 6 * fal_rng_unit(&rng));
			if (one_in(&rng, 2))
				block[at] = -block[at];
		}
		const bool finite = !one_in(&rng, 3);
		if (!finite)
			g[fal_rng_below(&rng, N)] = odd[fal_rng_below(&rng, 3)];
		const struct fal_lane_task one = {
			.run = { .exps = e, .sum = sum, .room = room }, .count = 1
		};
		const struct fal_task_output made = { .grad = g };
		struct fal_task_result ran = { 0 };
		assert_int_equal(fal_lane_task_finish(&one, &made, &ran), 0);
		assert_true(ran.nonfinite == !finite);
		const float bound = finite ? fal_bfp_most(e[worst], room) : 0;
		if (ran.room != bound || ran.most != (finite ? most : 0))
			fail_msg("%g of %g, not %g of %g", (double)ran.most,
				 (double)ran.room, (double)most, (double)bound);
	}
	fal_sum_free(sum);
}

/* What is between tensors has no gradient, whatever memory the desk was given. */
static void
nothing_is_between_tensors(void **state)
{
	char layers[64];
	struct fal_model *m;
	struct fal_net *of;
	struct fal_task_runner *d;
	(void)state;
	/* 64 · 64 weights are a block, more of them one and a part. */
	snprintf(layers, sizeof(layers), "input %d\ndense %u\ntanh\ndense %d\n", INPUTS,
		 1 + fal_rng_below(&rng, 200), CLASSES);
	assert_int_equal(fal_model_parse("m", layers, strlen(layers), &m, NULL), 0);
	assert_int_equal(fal_model_align(m, FAL_BLOCK), 0);
	assert_true(m->values < m->params);
	float *p = calloc(m->params, sizeof(*p));
	int8_t *e = malloc(fal_blocks(m->params));
	assert_true(p != NULL && e != NULL);
	memset(e, FAL_EXP_FIRST, fal_blocks(m->params));
	fal_model_init(m, 7, p);
	assert_int_equal(fal_net_new(m, BATCH, &of), 0);
	assert_int_equal(fal_task_runner_new(of, &d), 0);
	for (int turn = 0; turn < 3; turn++) {
		struct fal_sum *sum = fal_sum_new(m->params);
		memset(fal_sum_memory(sum, 0), 0x40, m->params * sizeof(float));
		const struct fal_lane_task job = { .run = { .params = p,
							    .exps = e,
							    .sum = sum,
							    .bits = turn == 2 ? 12 : 0,
							    .room = FAL_BFP_ROOM },
						   .batch = { samples, &order, &norm },
						   .count = BATCH };
		struct fal_task_result ran = { 0 };
		assert_int_equal(fal_task_runner_run(d, &job, &ran), 0);
		assert_false(ran.nonfinite);
		uint64_t at = 0;
		for (uint32_t t = 0; t < m->tensors; t++) {
			for (; at < m->tensor[t].offset; at++)
				assert_int_equal(sum_value(sum, at), 0);
			at += m->tensor[t].count;
		}
		for (; at < m->params; at++)
			assert_int_equal(sum_value(sum, at), 0);
		fal_sum_free(sum);
	}
	fal_task_runner_free(d);
	fal_net_free(of);
	fal_model_free(m);
	free(p);
	free(e);
}

static bool is_flushing;
uint64_t __real_fal_kern_begin(void);
uint64_t __wrap_fal_kern_begin(void);

uint64_t
__wrap_fal_kern_begin(void)
{
	const uint64_t before = __real_fal_kern_begin();
#ifdef __SSE2__
	if (is_flushing)
		_mm_setcsr(_mm_getcsr() | 0x8040);
#endif
	return before;
}

/* A machine that flushes subnormal numbers to zero has another fingerprint, though the
 * gradient that it hashes has none. */
static void
subnormals_tell(void **state)
{
	uint8_t a[FAL_FINGERPRINT], b[FAL_FINGERPRINT];
	struct fal_task_runner *d;
	(void)state;
#ifndef __SSE2__
	skip();
#endif
	assert_int_equal(fal_task_runner_new(net, &d), 0);
	assert_int_equal(fal_task_runner_fingerprint(d, 1, a), 0);
	assert_int_equal(fal_task_runner_fingerprint(d, 1, b), 0);
	assert_memory_equal(a, b, sizeof(a));
#ifdef __SSE2__
	/* A thread that flushes is set right. */
	_mm_setcsr(_mm_getcsr() | 0x8040);
	assert_int_equal(fal_task_runner_fingerprint(d, 1, b), 0);
	_mm_setcsr(_mm_getcsr() & ~0x8040u);
	assert_memory_equal(a, b, sizeof(a));
#endif
	is_flushing = true;
	assert_int_equal(fal_task_runner_fingerprint(d, 1, b), 0);
	is_flushing = false;
	assert_memory_not_equal(a, b, sizeof(a));
	fal_task_runner_free(d);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(nothing_is_between_tensors),
		cmocka_unit_test(waiting_changes_nothing),
		cmocka_unit_test(waiting_tells_of_the_bad_one),
		cmocka_unit_test(larger_than_its_room),
		cmocka_unit_test(subnormals_tell),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, begin, end);
}
