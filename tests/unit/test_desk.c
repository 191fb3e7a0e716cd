/* The desk: what it lends to sums comes out as what it copies to them, whenever they are
 * read, added, dropped, or are there longer than the desk. */
#include "../drawn.h"
#include "run/desk.h"

#include "base/err.h"
#include "data/set.h"
#include "wire/bfp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <cmocka.h>

enum { SAMPLES = 40, INPUTS = 64, CLASSES = 10, BATCH = 8, HELD = 5 };

static const char text[] = "input 64\ndense 190\nrelu\ndense 60\nrelu\ndense 10\n";

static struct fal_rng rng;
static struct fal_model *model;
static struct fal_net *net;
static struct fal_set set;
static struct fal_manifest manifest;
static struct fal_samples *samples;
static struct fal_order order;
static struct fal_norm norm;
static float *params;
static int8_t *exps;

static int
begin(void **state)
{
	(void)state;
	const uint64_t seed = drawn_seed((uint64_t)time(NULL));
	rng = fal_rng_init(seed, FAL_RNG_TEST, 0);
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
	params = malloc(model->params * sizeof(*params));
	exps = calloc(fal_blocks(model->params), 1);
	fal_model_init(model, seed, params);
	memset(exps, FAL_EXP_FIRST, fal_blocks(model->params));
	return 0;
}

static int
end(void **state)
{
	(void)state;
	free(params);
	free(exps);
	fal_samples_free(samples);
	fal_order_free(&order);
	fal_manifest_free(&manifest);
	fal_set_free(&set);
	fal_net_free(net);
	fal_model_free(model);
	return 0;
}

static void
run(struct fal_desk *d, uint32_t first, bool last, struct fal_sum *sum)
{
	const struct fal_run_job job = { .run = { .params = params,
						  .exps = exps,
						  .sum = sum,
						  .last = last,
						  .room = FAL_BFP_ROOM },
					 .batch = { samples, &order, &norm },
					 .first = first,
					 .count = 1 + first % BATCH };
	struct fal_ran ran = { 0 };
	assert_int_equal(fal_desk_run(d, &job, &ran), 0);
	assert_false(ran.nonfinite);
}

static void
same(const struct fal_sum *a, const struct fal_sum *b)
{
	struct fal_buf one = { 0 }, two = { 0 };
	for (uint32_t i = 0; i < fal_blocks(model->params); i++) {
		assert_int_equal(fal_sum_pack(a, i, exps[i], &one), 0);
		assert_int_equal(fal_sum_pack(b, i, exps[i], &two), 0);
	}
	assert_int_equal(one.n, two.n);
	assert_memory_equal(one.p, two.p, one.n);
	fal_buf_free(&one);
	fal_buf_free(&two);
}

/* Sums that wait, of either desk. */
struct twins {
	struct fal_sum *lent[HELD], *own[HELD];
	bool used[HELD];
};

/* Something becomes of one of them. */
static void
use(struct twins *t, uint32_t i)
{
	const uint32_t k = fal_rng_below(&rng, HELD);
	if (!t->used[i])
		return;
	switch (fal_rng_below(&rng, 4)) {
	case 0:
		same(t->lent[i], t->own[i]);
		break;
	case 1:
		fal_sum_clear(t->lent[i]);
		fal_sum_clear(t->own[i]);
		t->used[i] = false;
		break;
	case 2:
		if (k == i || !t->used[k])
			break;
		assert_int_equal(fal_sum_take(t->lent[k], t->lent[i]), 0);
		assert_int_equal(fal_sum_take(t->own[k], t->own[i]), 0);
		t->used[i] = false;
		break;
	default:
		break;
	}
}

static void
lends_what_it_would_copy(void **state)
{
	(void)state;
	for (int turn = 0; turn < 20; turn++) {
		struct twins t = { 0 };
		struct fal_desk *lends, *copies;
		assert_int_equal(fal_desk_new(net, &lends), 0);
		assert_int_equal(fal_desk_new(net, &copies), 0);
		for (uint32_t i = 0; i < HELD; i++) {
			t.lent[i] = fal_sum_new(model->params);
			t.own[i] = fal_sum_new(model->params);
		}
		for (uint32_t step = fal_rng_below(&rng, 40); step > 0; step--) {
			const uint32_t i = fal_rng_below(&rng, HELD);
			const uint32_t first = fal_rng_below(&rng, SAMPLES - BATCH);
			use(&t, fal_rng_below(&rng, HELD));
			if (t.used[i])
				continue;
			t.used[i] = true;
			fal_desk_ready(lends);
			run(lends, first, fal_rng_below(&rng, 4) > 0, t.lent[i]);
			run(copies, first, false, t.own[i]);
		}
		fal_desk_free(lends);
		fal_desk_free(copies);
		for (uint32_t i = 0; i < HELD; i++) {
			if (t.used[i])
				same(t.lent[i], t.own[i]);
			fal_sum_free(t.lent[i]);
			fal_sum_free(t.own[i]);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = { cmocka_unit_test(lends_what_it_would_copy) };
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, begin, end);
}
