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

/* Feeds n bytes in steps; appends what they hold.  0 or the error. */
static int
unzip(struct fal_unzip *u, const uint8_t *p, size_t n, size_t step, struct fal_buf *out)
{
	for (size_t at = 0; at < n; at += step) {
		struct fal_rd in = fal_rd_init(p + at, n - at < step ? n - at : step);
		const uint8_t *piece;
		size_t k;
		do {
			int err = fal_unzip_next(u, &in, &piece, &k);
			if (err < 0)
				return err;
			fal_put_bytes(out, piece, k);
		} while (k > 0);
		same((int64_t)in.n, 0, "left of the step at", at);
	}
	return fal_unzip_end(u);
}

/* The frames in steps of any size, or an error. */
static int
unzip_all(const struct fal_buf *f, size_t n, size_t step, struct fal_buf *out)
{
	struct fal_unzip *u = fal_unzip_new();
	assert_non_null(u);
	fal_buf_clear(out);
	int err = unzip(u, f->p, n, step, out);
	fal_unzip_free(u);
	return err;
}

static void
streams(void **state)
{
	(void)state;
	static const size_t steps[] = { 1, 7, 4096, SIZE_MAX / 2 };
	struct fal_zip *z = new_zip(1);
	struct fal_buf f = { 0 }, out = { 0 };
	fill(7);
	same(fal_zip_compress(z, data, MAX, &f), 0, "compress", 0);
	const size_t one = f.n;
	same(fal_zip_compress(z, data, 0, &f), 0, "compress", 1);
	same(fal_zip_compress(z, data, 1000, &f), 0, "compress", 2);
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		same(unzip_all(&f, f.n, steps[i], &out), 0, "step", steps[i]);
		same((int64_t)out.n, MAX + 1000, "length, step", steps[i]);
		assert_memory_equal(out.p, data, MAX);
		assert_memory_equal(out.p + MAX, data, 1000);
		same(unzip_all(&f, one - 1, steps[i], &out), FAL_ETRUNC, "cut", steps[i]);
		same(unzip_all(&f, one, steps[i], &out), 0, "one frame", steps[i]);
		same(unzip_all(&f, one + 3, steps[i], &out), FAL_ETRUNC,
		     "cut in the next", steps[i]);
	}
	/* Zeros between frames and behind them are padding; text is told where it is. */
	f.n = one;
	fal_put_bytes(&f, "\0\0\0", 3);
	same(fal_zip_compress(z, data, 1000, &f), 0, "compress", 3);
	fal_put_bytes(&f, "\0\0\0\0\0", 5);
	const size_t end = f.n;
	for (size_t i = 0; i < sizeof(steps) / sizeof(steps[0]); i++) {
		same(unzip_all(&f, end, steps[i], &out), 0, "padded, step", steps[i]);
		same((int64_t)out.n, MAX + 1000, "length, padded", steps[i]);
		f.n = end;
		fal_put_bytes(&f, "{\"t\":1}\n", 8);
		struct fal_unzip *u = fal_unzip_new();
		assert_non_null(u);
		same(unzip(u, f.p, f.n, steps[i], &out), FAL_EFORMAT, "text behind",
		     steps[i]);
		same((int64_t)fal_unzip_frame(u), (int64_t)end, "text at, step",
		     steps[i]);
		fal_unzip_free(u);
	}
	f.p[0] ^= 1;
	same(unzip_all(&f, f.n, 1, &out), FAL_EFORMAT, "no magic", 0);
	fal_buf_free(&f);
	fal_buf_free(&out);
	fal_zip_free(z);
}

/* However much a frame holds or claims, a piece is small. */
static void
bombs(void **state)
{
	(void)state;
	/* The header says no size but a window of 2^(10 + 18) bytes; then a last block: a
	 * byte and how often. */
	uint8_t frame[] = { 0x28, 0xb5, 0x2f, 0xfd, 0, 18 << 3, 3, 0, 0x10, 'x' };
	const struct fal_buf f = { frame, sizeof(frame), sizeof(frame), 0 };
	struct fal_buf out = { 0 };
	same(unzip_all(&f, f.n, 1, &out), FAL_ELIMIT, "a window of 256 MiB", 0);
	frame[5] = 17 << 3;
	frame[8] = 0x08; /* 64 Ki bytes of 'x' */
	same(unzip_all(&f, f.n, 1, &out), 0, "a window of 128 MiB", 0);
	same((int64_t)out.n, 65536, "bytes", 0);

	struct fal_unzip *u = fal_unzip_new();
	struct fal_zip *z = new_zip(1);
	struct fal_buf zeros = { 0 }, bomb = { 0 };
	assert_non_null(fal_buf_room(&zeros, 8 << 20));
	memset(zeros.p, 0, zeros.n);
	same(fal_zip_compress(z, zeros.p, zeros.n, &bomb), 0, "compress", 0);
	assert_in_range(bomb.n, 1, 2000);
	struct fal_rd in = fal_rd_init(bomb.p, bomb.n);
	const uint8_t *piece;
	size_t n, sum = 0;
	do {
		same(fal_unzip_next(u, &in, &piece, &n), 0, "piece at", sum);
		assert_in_range(n, 0, 128 << 10);
		sum += n;
	} while (n > 0);
	same((int64_t)sum, 8 << 20, "bytes", 0);
	same(fal_unzip_end(u), 0, "end", 0);
	fal_buf_free(&zeros);
	fal_buf_free(&bomb);
	fal_buf_free(&out);
	fal_zip_free(z);
	fal_unzip_free(u);
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
		cmocka_unit_test(mutations),  cmocka_unit_test(pays),
		cmocka_unit_test(streams),    cmocka_unit_test(bombs),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
