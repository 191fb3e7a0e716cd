/* zstd frames within the receiver's limits, the byte shuffle, and when it pays. */
#include "base/err.h"
#include "base/rng.h"
#include "wire/zip.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zstd.h>

#include <cmocka.h>

enum { MAX = 300000 };

static uint8_t data[MAX];

static void
same(int64_t got, int64_t want, const char *what, size_t i)
{
	if (got != want)
		fail_msg("%s %zu: got %lld, want %lld", what, i, (long long)got,
			 (long long)want);
}

/* Bytes of four kinds, so that there is something to compress. */
static void
fill(uint64_t seed)
{
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < MAX; i++)
		data[i] = (uint8_t)(fal_rng_u32(&r) & 3);
}

static struct fal_zip *
new_zip(int level)
{
	struct fal_zip *z = fal_zip_new(level);
	assert_non_null(z);
	return z;
}

static void
round_trip(void **state)
{
	(void)state;
	static const size_t sizes[] = { 0, 1, 2, 3, 255, 256, 4096, 65535, 65536, MAX };
	static const int levels[] = { FAL_ZIP_LEVEL, 3, FAL_ZIP_LEVEL_MAX };
	fill(1);
	for (size_t l = 0; l < sizeof(levels) / sizeof(levels[0]); l++) {
		struct fal_zip *z = new_zip(levels[l]);
		struct fal_buf frame = { 0 }, back = { 0 };
		for (size_t k = 0; k < sizeof(sizes) / sizeof(sizes[0]); k++) {
			size_t n = sizes[k], start = back.n;
			fal_buf_clear(&frame);
			fal_put_u8(&frame, 42); /* both append */
			same(fal_zip_compress(z, data, n, &frame), 0, "compress", n);
			same(fal_zip_decompress(z, frame.p + 1, frame.n - 1, n, &back), 0,
			     "decompress", n);
			same(frame.p[0], 42, "what stood before", n);
			same((int64_t)(back.n - start), (int64_t)n, "length", n);
			assert_memory_equal(back.p + start, data, n);
			if (n == MAX)
				assert_in_range(frame.n, MAX / 5,
						MAX / 3); /* 2 of 8 bits */
		}
		fal_buf_free(&frame);
		fal_buf_free(&back);
		fal_zip_free(z);
	}
}

/* The same bytes whatever the context compressed before. */
static void
contexts_keep_nothing(void **state)
{
	(void)state;
	struct fal_zip *used = new_zip(1), *fresh = new_zip(1);
	struct fal_buf a = { 0 }, b = { 0 };
	fill(2);
	same(fal_zip_compress(used, data + 5000, 90000, &a), 0, "compress", 0);
	fal_buf_clear(&a);
	same(fal_zip_compress(used, data, 20000, &a), 0, "compress", 1);
	same(fal_zip_compress(fresh, data, 20000, &b), 0, "compress", 2);
	same((int64_t)a.n, (int64_t)b.n, "length", 0);
	assert_memory_equal(a.p, b.p, a.n);
	fal_buf_free(&a);
	fal_buf_free(&b);
	fal_zip_free(used);
	fal_zip_free(fresh);
}

/* Decompresses and checks that a refusal leaves `out` as it was. */
static int
judge(struct fal_zip *z, const uint8_t *p, size_t n, size_t limit)
{
	struct fal_buf out = { 0 };
	fal_put_u32(&out, 0x01020304);
	size_t cap = out.cap;
	int r = fal_zip_decompress(z, p, n, limit, &out);
	if (r < 0)
		same((int64_t)out.n, 4, "length after a refusal", n);
	else
		assert_in_range(out.n, 4, 4 + limit);
	if (r == FAL_ELIMIT)
		same((int64_t)out.cap, (int64_t)cap, "allocated before judging", n);
	fal_buf_free(&out);
	return r;
}

static void
limits(void **state)
{
	(void)state;
	struct fal_zip *z = new_zip(1);
	struct fal_buf f = { 0 };
	fill(3);
	same(fal_zip_compress(z, data, 10000, &f), 0, "compress", 0);
	same(judge(z, f.p, f.n, 10000), 0, "at the limit", 10000);
	same(judge(z, f.p, f.n, 9999), FAL_ELIMIT, "above the limit", 9999);
	same(judge(z, f.p, f.n, 0), FAL_ELIMIT, "above the limit", 0);
	for (size_t n = 0; n < f.n; n++) {
		int r = judge(z, f.p, n, 10000);
		if (r != FAL_ETRUNC && r != FAL_EFORMAT)
			fail_msg("cut at %zu of %zu: got %d, want %d or %d", n, f.n, r,
				 FAL_ETRUNC, FAL_EFORMAT);
		if (n >= 18) /* the longest header is there */
			same(r, FAL_ETRUNC, "cut at", n);
	}
	/* A frame that claims 2^56 bytes: magic, single segment with 8 bytes of size. */
	const uint8_t claims[] = { 0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0, 0, 0,
				   0,    0,    0,    0,    1,    1, 0, 0 };
	same(judge(z, claims, sizeof(claims), MAX), FAL_ELIMIT, "huge claim", 0);
	fal_buf_free(&f);
	fal_zip_free(z);
}

/* Bytes that zstd itself would take, and we do not. */
static void
stricter_than_zstd(void **state)
{
	(void)state;
	struct fal_zip *z = new_zip(1);
	struct fal_buf f = { 0 };
	fill(4);
	same(fal_zip_compress(z, data, 1000, &f), 0, "compress", 0);
	size_t one = f.n;
	same(judge(z, f.p, one, MAX), 0, "one frame", 0);
	fal_put_u8(&f, 0);
	same(judge(z, f.p, f.n, MAX), FAL_EFORMAT, "a byte behind", 0);
	f.n = one;
	same(fal_zip_compress(z, data, 0, &f), 0, "compress", 1);
	same(judge(z, f.p, f.n, MAX), FAL_EFORMAT, "an empty frame behind", 0);

	const uint8_t skippable[] = { 0x50, 0x2a, 0x4d, 0x18, 0, 0, 0, 0 };
	same(judge(z, skippable, sizeof(skippable), MAX), FAL_EFORMAT, "skippable", 0);

	uint8_t frame[2000];
	ZSTD_CCtx *c = ZSTD_createCCtx();
	assert_non_null(c);
	ZSTD_CCtx_setParameter(c, ZSTD_c_contentSizeFlag, 0);
	size_t n = ZSTD_compress2(c, frame, sizeof(frame), data, 1000);
	assert_false(ZSTD_isError(n));
	same(judge(z, frame, n, MAX), FAL_EFORMAT, "no size in the header", 0);
	ZSTD_freeCCtx(c);
	fal_buf_free(&f);
	fal_zip_free(z);
}

/* Any one bit flipped: refused, or within the limit; the context is good afterwards. */
static void
mutations(void **state)
{
	(void)state;
	struct fal_zip *z = new_zip(1);
	struct fal_buf f = { 0 };
	size_t refused = 0;
	fill(5);
	same(fal_zip_compress(z, data, 3000, &f), 0, "compress", 0);
	for (size_t bit = 0; bit < 8 * f.n; bit++) {
		f.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
		refused += judge(z, f.p, f.n, 4096) < 0;
		f.p[bit / 8] ^= (uint8_t)(1 << bit % 8);
	}
	print_message("# %zu of %zu flips refused\n", refused, 8 * f.n);
	assert_in_range(refused, 32 + 16, 8 * f.n); /* the magic, the size, and more */
	same(judge(z, f.p, f.n, 3000), 0, "good again", 0);
	fal_buf_free(&f);
	fal_zip_free(z);
}

static void
shuffle_equals_naive(void **state)
{
	(void)state;
	static uint8_t planes[4 * 5000 + 1], back[4 * 5000 + 1];
	struct fal_rng r = fal_rng_init(6, FAL_RNG_TEST, 0);
	for (size_t i = 0; i < MAX; i++)
		data[i] = (uint8_t)fal_rng_u32(&r);
	for (size_t n = 0; n <= 5000; n += n < 300 ? 1 : 47) {
		planes[4 * n] = back[4 * n] = 0x5a;
		fal_shuffle4(planes, data + n % 4, n); /* any alignment */
		for (size_t i = 0; i < 4 * n; i++)
			same(planes[i % 4 * n + i / 4], data[n % 4 + i], "plane byte", i);
		fal_unshuffle4(back, planes, n);
		for (size_t i = 0; i < 4 * n; i++)
			same(back[i], data[n % 4 + i], "byte", i);
		same(planes[4 * n], 0x5a, "behind the planes", n);
		same(back[4 * n], 0x5a, "behind the numbers", n);
	}
}

static void
pays(void **state)
{
	(void)state;
	/* 50 MB saved: half a second on a link of 100 MB/s. */
	struct fal_zip_stat s = { 100000000, 50000000, 499999999 };
	assert_true(fal_zip_pays(&s, 1e8));
	assert_false(fal_zip_pays(&s, 1.01e8));
	s.ns = 500000001;
	assert_false(fal_zip_pays(&s, 1e8));
	assert_true(fal_zip_pays(&s, 0.99e8));
	s.bytes_out = 100000001; /* longer than before */
	s.ns = 0;
	assert_false(fal_zip_pays(&s, 1));
	s.bytes_out = s.bytes_in = 0; /* nothing measured */
	assert_false(fal_zip_pays(&s, 1));
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(round_trip), cmocka_unit_test(contexts_keep_nothing),
		cmocka_unit_test(limits),     cmocka_unit_test(stricter_than_zstd),
		cmocka_unit_test(mutations),  cmocka_unit_test(shuffle_equals_naive),
		cmocka_unit_test(pays),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
