/* model.block = tensor: where tensors of drawn sizes lie, and that nothing else of the
 * model shows it: its first weights, its file, what a trainer gets. */
#include "base/buf.h"
#include "base/err.h"
#include "base/rng.h"
#include "model/model.h"
#include "model/safetensors.h"
#include "wire/bfp.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SEEDS = 60 };

/* Mostly small, some above a block, some a block to the value. */
static uint32_t
draw_size(struct fal_rng *r)
{
	switch (fal_rng_below(r, 6)) {
	case 0:
		return FAL_BLOCK;
	case 1:
		return FAL_BLOCK * (1 + fal_rng_below(r, 3)) + fal_rng_below(r, 3) - 1;
	case 2:
		return 1;
	default:
		return 1 + fal_rng_below(r, 5000);
	}
}

/* Names and shapes alone, as model.init has them, or layers. */
static struct fal_model *
draw(struct fal_rng *r)
{
	struct fal_buf text = { 0 };
	struct fal_model *m = NULL;
	struct fal_diag diag = { "" };
	const uint32_t n = 1 + fal_rng_below(r, 12);
	if (fal_rng_below(r, 2)) {
		uint64_t at = 0;
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t size = draw_size(r);
			fal_put_fmt(&text,
				    "%c\"t%u\":{\"dtype\":\"F32\",\"shape\":[%u],"
				    "\"data_offsets\":[%llu,%llu]}",
				    i == 0 ? '{' : ',', i, size,
				    (unsigned long long)at * 4,
				    (unsigned long long)(at + size) * 4);
			at += size;
		}
		fal_put_u8(&text, '}');
	} else {
		fal_put_fmt(&text, "input %u\n", 1 + fal_rng_below(r, 200));
		for (uint32_t i = 0; i < n; i++)
			fal_put_fmt(&text, "dense %u\n", 2 + fal_rng_below(r, 200));
	}
	if (fal_model_parse("drawn", (const char *)text.p, text.n, &m, &diag) < 0)
		fail_msg("%s", diag.text);
	fal_buf_free(&text);
	return m;
}

static float *
floats(uint64_t n)
{
	float *p = calloc(n, sizeof(*p));
	assert_non_null(p);
	return p;
}

static void
no_block_has_two_tensors(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
		struct fal_model *m = draw(&r);
		uint64_t values = 0, blocks = 0;
		assert_int_equal(m->values, m->params);
		assert_int_equal(fal_model_align(m, FAL_BLOCK), 0);
		for (uint32_t i = 0; i < m->tensors; i++) {
			const struct fal_tensor *t = &m->tensor[i];
			/* Each begins in the first block that is free. */
			assert_int_equal(t->offset, blocks * FAL_BLOCK);
			blocks += fal_blocks(t->count);
			values += t->count;
		}
		assert_int_equal(m->values, values);
		assert_int_equal(fal_blocks(m->params), blocks);
		const struct fal_tensor *last = &m->tensor[m->tensors - 1];
		assert_int_equal(m->params, last->offset + last->count);
		fal_model_free(m);
	}
}

/* A part of the flat vector is found among the tensors, but for one with gaps. */
static void
in_one_piece(const struct fal_model *m, const float *packed, uint64_t first, uint64_t n,
	     const float *flat)
{
	uint64_t of_tensors = 0;
	for (uint32_t i = 0; i < m->tensors; i++) {
		const struct fal_tensor *t = &m->tensor[i];
		const uint64_t from = t->offset > first ? t->offset : first;
		const uint64_t end = t->offset + t->count;
		const uint64_t to = end < first + n ? end : first + n;
		of_tensors += from < to ? to - from : 0;
	}
	const float *at = n > 0 ? fal_model_packed_place(m, packed, first, n) : NULL;
	assert_int_equal(at != NULL, n > 0 && of_tensors == n);
	if (at != NULL)
		assert_memory_equal(at, flat + first, n * sizeof(*at));
}

static void
the_file_is_the_same(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < SEEDS; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
		struct fal_rng again = r;
		struct fal_model *a = draw(&r), *b = draw(&again);
		assert_int_equal(fal_model_align(b, FAL_BLOCK), 0);
		float *pa = floats(a->params), *pb = floats(b->params);
		float *packed = floats(b->values), *back = floats(b->params);
		struct fal_buf fa = { 0 }, fb = { 0 }, ha = { 0 }, hb = { 0 };
		if (a->layers > 0) {
			fal_model_init(a, seed, pa);
			fal_model_init(b, seed, pb);
		} else {
			for (uint64_t i = 0; i < a->params; i++)
				pa[i] = fal_rng_unit(&r);
			fal_model_unpack(b, pa, 0, b->params, pb);
		}
		fal_model_pack(b, pb, packed);
		assert_memory_equal(packed, pa, a->params * sizeof(*pa));
		for (int i = 0; i < 20; i++) {
			const uint64_t first = fal_rng_below(&r, (uint32_t)b->params);
			const uint64_t n =
				fal_rng_below(&r, (uint32_t)(b->params - first) + 1);
			memset(back, -1, n * sizeof(*back));
			fal_model_unpack(b, packed, first, n, back);
			assert_memory_equal(back, pb + first, n * sizeof(*back));
			in_one_piece(b, packed, first, n, pb);
		}
		memset(back, 0, b->params * sizeof(*back));
		assert_int_equal(fal_safetensors_put(a, pa, NULL, 0, &fa), 0);
		assert_int_equal(fal_safetensors_put(b, pb, NULL, 0, &fb), 0);
		assert_int_equal(fa.n, fb.n);
		assert_memory_equal(fa.p, fb.p, fa.n);
		assert_true(fb.n <= fal_safetensors_bound(b, 0));
		assert_int_equal(fal_safetensors_header(a, &ha), 0);
		assert_int_equal(fal_safetensors_header(b, &hb), 0);
		assert_int_equal(ha.n, hb.n);
		assert_memory_equal(ha.p, hb.p, ha.n);
		/* What is read has gaps that nobody touches. */
		assert_int_equal(
			fal_safetensors_get(&(struct fal_safetensors){ "x", fb.p, fb.n,
								       NULL, NULL },
					    b, back, NULL),
			0);
		assert_memory_equal(back, pb, b->params * sizeof(*pb));
		fal_buf_free(&fa);
		fal_buf_free(&fb);
		fal_buf_free(&ha);
		fal_buf_free(&hb);
		free(pa);
		free(pb);
		free(packed);
		free(back);
		fal_model_free(a);
		fal_model_free(b);
	}
}

/* A tensor of small gradients behind one of large ones: sharing a block it has their
 * quantum, and nothing of it is left; alone it keeps what single precision has. */
static void
small_gradients_are_kept(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 1);
		const uint32_t big = FAL_BLOCK + 1 + fal_rng_below(&r, FAL_BLOCK - 200);
		const uint32_t small = 1 + fal_rng_below(&r, 100);
		char text[200];
		struct fal_model *m;
		snprintf(
			text, sizeof(text),
			"{\"a\":{\"dtype\":\"F32\",\"shape\":[%u],\"data_offsets\":[0,%u]"
			"},\"b\":{\"dtype\":\"F32\",\"shape\":[%u],\"data_offsets\":[%u,%"
			"u]"
			"}}",
			big, 4 * big, small, 4 * big, 4 * (big + small));
		for (int aligned = 0; aligned < 2; aligned++) {
			assert_int_equal(fal_model_parse("two", text, strlen(text), &m,
							 NULL),
					 0);
			if (aligned)
				assert_int_equal(fal_model_align(m, FAL_BLOCK), 0);
			float *g = floats(m->params);
			for (uint32_t i = 0; i < big; i++)
				g[i] = (fal_rng_unit(&r) - 0.5f) * 1024;
			const uint64_t at = m->tensor[1].offset;
			for (uint32_t i = 0; i < small; i++)
				g[at + i] = (0.5f + fal_rng_unit(&r)) * 0x1p-20f;
			const uint32_t block = (uint32_t)(at / FAL_BLOCK);
			const int8_t e = fal_exp_needed(g + (size_t)block * FAL_BLOCK,
							fal_block_len(m->params, block));
			/* The quantum is 2^(e - 23). */
			if (aligned)
				assert_true(e <= -19);
			else
				assert_true(e >= 8 && g[at] * 2 < 0x1p-15f);
			free(g);
			fal_model_free(m);
		}
	}
}

static void
too_large(void **state)
{
	(void)state;
	struct fal_buf text = { 0 };
	struct fal_model *m;
	/* Below 2^31 values, and above with blocks of 2^23. */
	for (uint32_t i = 0; i < 300; i++)
		fal_put_fmt(&text,
			    "%c\"t%u\":{\"dtype\":\"F32\",\"shape\":[7000001],"
			    "\"data_offsets\":[%llu,%llu]}",
			    i == 0 ? '{' : ',', i, 28000004ull * i,
			    28000004ull * (i + 1));
	fal_put_u8(&text, '}');
	assert_int_equal(fal_model_parse("large", (const char *)text.p, text.n, &m, NULL),
			 0);
	const uint64_t params = m->params, second = m->tensor[1].offset;
	assert_int_equal(fal_model_align(m, UINT32_C(1) << 23), FAL_ELIMIT);
	assert_int_equal(m->params, params);
	assert_int_equal(m->tensor[1].offset, second);
	fal_model_free(m);
	fal_buf_free(&text);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(no_block_has_two_tensors),
		cmocka_unit_test(the_file_is_the_same),
		cmocka_unit_test(small_gradients_are_kept),
		cmocka_unit_test(too_large),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
