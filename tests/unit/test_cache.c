/* Chunks that are kept as they travel: what is in them, how often they are made, and how
 * much is kept. */
#include "../../cmd/falcon-ps/server.h"

#include "base/mem.h"
#include "base/rng.h"
#include "wire/msg.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

enum { SAMPLE = 1000, ZIP_LIMIT = 65536 };

/* A set of n samples, half of each the same for all; its manifest. */
static struct fal_set
set_of(uint32_t n, uint64_t seed, struct fal_manifest *m)
{
	struct fal_rng rng = fal_rng_init(seed, FAL_RNG_DRAW, 0);
	struct fal_set s = {
		.n = n, .shape = { 1, 1, SAMPLE }, .classes = 2, .sample_bytes = SAMPLE
	};
	s.pixels = fal_calloc(n, SAMPLE);
	s.labels = fal_calloc(n, sizeof(*s.labels));
	for (size_t i = 0; i < (size_t)n * SAMPLE; i++)
		if (i % SAMPLE < SAMPLE / 2)
			s.pixels[i] = (uint8_t)fal_rng_u64(&rng);
	assert_int_equal(fal_manifest_build(&s, &s, m), FAL_OK);
	return s;
}

/* The chunk's messages hold it. */
static void
same(const struct fal_buf *packed, const struct fal_set *set, const struct fal_part *part,
     bool test, uint32_t i)
{
	struct fal_buf want = { 0 }, got = { 0 };
	struct fal_rd r = fal_rd_init(packed->p, packed->n);
	struct fal_zip *zip = fal_zip_new(FAL_ZIP_LEVEL);
	assert_int_equal(fal_chunk_get(part, set, i, &want), FAL_OK);
	while (r.n > 0) {
		struct fal_buf msg = { 0 };
		struct fal_msg m;
		const size_t n = fal_get_u32(&r);
		const uint8_t *p = fal_get_bytes(&r, n);
		assert_in_range(n, 1, ZIP_LIMIT);
		assert_int_equal(fal_zip_decompress(zip, p, n, ZIP_LIMIT, &msg), FAL_OK);
		assert_int_equal(fal_msg_get(msg.p, msg.n, &m), FAL_OK);
		assert_int_equal(m.type, FAL_MSG_CHUNK);
		assert_int_equal(m.chunk.test, test);
		assert_int_equal(m.chunk.chunk, i);
		assert_int_equal(m.chunk.total, want.n);
		assert_int_equal(m.chunk.offset, got.n);
		fal_put_bytes(&got, m.chunk.bytes.p, m.chunk.bytes.n);
		fal_buf_free(&msg);
	}
	assert_int_equal(got.n, want.n);
	assert_memory_equal(got.p, want.p, want.n);
	fal_zip_free(zip);
	fal_buf_free(&want);
	fal_buf_free(&got);
}

static void
forget(struct fal_set *s, struct fal_manifest *m, struct ps_cache *c)
{
	ps_cache_free(c);
	fal_manifest_free(m);
	fal_set_free(s);
}

static void
made_once(void **state)
{
	struct fal_manifest m;
	struct fal_set s = set_of(3500, 7, &m);
	struct ps_cache c = { .limit = PS_CACHE_MAX };
	const struct fal_buf *out;
	(void)state;
	assert_in_range(m.train.chunks, 3, 10);
	for (int session = 0; session < 20; session++)
		for (uint32_t i = 0; i < 2 * m.train.chunks; i++) {
			const bool test = i >= m.train.chunks;
			const struct fal_part *part = test ? &m.test : &m.train;
			const uint32_t chunk = i % m.train.chunks;
			assert_int_equal(ps_cache_get(&c, part, &s, test, chunk, &out),
					 FAL_OK);
			if (session == 19)
				same(out, &s, part, test, chunk);
		}
	assert_int_equal(c.made, 2 * m.train.chunks);
	forget(&s, &m, &c);
}

static void
bounded(void **state)
{
	struct fal_manifest m;
	struct fal_set s = set_of(12000, 8, &m);
	struct ps_cache c = { .limit = 3 << 20 };
	const struct fal_buf *out;
	(void)state;
	for (uint32_t i = 0; i < 3 * m.train.chunks; i++) {
		const uint32_t chunk = i % m.train.chunks;
		assert_int_equal(ps_cache_get(&c, &m.train, &s, false, chunk, &out),
				 FAL_OK);
		same(out, &s, &m.train, false, chunk);
		assert_in_range(c.bytes, 1, c.limit);
		/* Who is asked for all the time stays. */
		assert_int_equal(ps_cache_get(&c, &m.test, &s, true, 0, &out), FAL_OK);
	}
	assert_int_equal(c.made, 3 * m.train.chunks + 1);
	forget(&s, &m, &c);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(made_once),
		cmocka_unit_test(bounded),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
