/* The manifest, chunks as they travel, a worker's partial set, the cache, batches. */
#include "base/buf.h"
#include "base/err.h"
#include "base/parse.h"
#include "base/rng.h"
#include "job/chunk.h"
#include "job/order.h"

#include <errno.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

enum {
	TRAIN = 25,    /* samples: chunks of 10, 10 and 5 */
	TEST = 3,      /* one chunk */
	PIXELS = 99999 /* a sample: 3 × 1 × 33333, ten to a chunk with their labels */
};

/* A made-up set; the caller frees it. */
static struct fal_set
made_set(uint32_t n, uint64_t seed)
{
	struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
	struct fal_set set = {
		.n = n,
		.shape = { 3, 1, PIXELS / 3 },
		.classes = 10,
		.sample_bytes = PIXELS,
		.pixels = malloc((size_t)n * PIXELS),
		.labels = malloc(n * sizeof(uint32_t)),
	};
	assert_non_null(set.pixels);
	assert_non_null(set.labels);
	for (size_t i = 0; i < (size_t)n * PIXELS; i++)
		set.pixels[i] = (uint8_t)fal_rng_u32(&r);
	for (uint32_t i = 0; i < n; i++)
		set.labels[i] = fal_rng_below(&r, 10);
	return set;
}

/* What most tests need. */
struct fixture {
	struct fal_set train, test;
	struct fal_manifest m;
	struct fal_buf bytes; /* of m */
};

static int
set_up(void **state)
{
	static struct fixture fx;
	fx = (struct fixture){ .train = made_set(TRAIN, 1), .test = made_set(TEST, 2) };
	*state = &fx;
	if (fal_manifest_build(&fx.train, &fx.test, &fx.m) < 0)
		return -1;
	fal_manifest_encode(&fx.m, &fx.bytes);
	return fx.bytes.err;
}

static int
tear_down(void **state)
{
	struct fixture *fx = *state;
	fal_set_free(&fx->train);
	fal_set_free(&fx->test);
	fal_manifest_free(&fx->m);
	fal_buf_free(&fx->bytes);
	return 0;
}

static void
test_geometry(void **state)
{
	const struct fixture *fx = *state;
	const struct fal_part *part = &fx->m.train;
	assert_int_equal(part->n, TRAIN);
	assert_int_equal(part->per_chunk, 10);
	assert_int_equal(part->chunks, 3);
	assert_int_equal(fal_chunk_samples(part, 1), 10);
	assert_int_equal(fal_chunk_samples(part, 2), 5);
	assert_int_equal(fal_chunk_bytes(part, 2), 5 * (PIXELS + 1));
	assert_int_equal(fx->m.test.chunks, 1);
	assert_int_equal(fal_chunk_samples(&fx->m.test, 0), TEST);
}

/* The bytes, laid out by hand as falcon-data(7) says. */
static void
test_manifest_bytes(void **state)
{
	const struct fixture *fx = *state;
	struct fal_buf want = { 0 };
	const struct fal_part *part[] = { &fx->m.train, &fx->m.test };
	fal_put_bytes(&want, "FALD\1", 5);
	for (unsigned i = 0; i < 2; i++) {
		const uint32_t head[] = {
			i == 0 ? TRAIN : TEST, 3, 1, PIXELS / 3, 10, 10
		};
		for (unsigned k = 0; k < 6; k++)
			fal_put_u32(&want, head[k]);
		for (uint32_t c = 0; c < part[i]->chunks; c++)
			fal_put_bytes(&want, part[i]->hash[c], FAL_HASH_BYTES);
	}
	assert_int_equal(fx->bytes.n, want.n);
	assert_memory_equal(fx->bytes.p, want.p, want.n);
	fal_buf_free(&want);
}

static void
test_manifest_round_trip(void **state)
{
	const struct fixture *fx = *state;
	struct fal_manifest m;
	struct fal_buf again = { 0 };
	assert_int_equal(fal_manifest_parse(fx->bytes.p, fx->bytes.n, &m), FAL_OK);
	assert_int_equal(m.train.sample_bytes, PIXELS);
	assert_int_equal(m.train.chunks, 3);
	fal_manifest_encode(&m, &again);
	assert_int_equal(again.n, fx->bytes.n);
	assert_memory_equal(again.p, fx->bytes.p, again.n);
	fal_manifest_free(&m);
	fal_buf_free(&again);
}

static void
test_manifest_without_test(void **state)
{
	const struct fixture *fx = *state;
	struct fal_manifest m, back;
	struct fal_buf b = { 0 };
	assert_int_equal(fal_manifest_build(&fx->train, NULL, &m), FAL_OK);
	fal_manifest_encode(&m, &b);
	assert_int_equal(fal_manifest_parse(b.p, b.n, &back), FAL_OK);
	assert_int_equal(back.train.n, TRAIN);
	assert_int_equal(back.test.n, 0);
	fal_manifest_free(&back);
	fal_manifest_free(&m);
	fal_buf_free(&b);
}

/* Version 2: the labels of all training samples stand at the end. */
static void
test_manifest_with_labels(void **state)
{
	const struct fixture *fx = *state;
	struct fal_manifest m, back;
	struct fal_buf b = { 0 }, again = { 0 };
	assert_int_equal(fal_manifest_build(&fx->train, &fx->test, &m), FAL_OK);
	assert_int_equal(fal_manifest_add_labels(&m, &fx->train), FAL_OK);
	fal_manifest_encode(&m, &b);
	assert_int_equal(b.n, fx->bytes.n + TRAIN);
	assert_int_equal(b.p[4], 2);
	assert_memory_equal(b.p + 5, fx->bytes.p + 5, fx->bytes.n - 5);
	for (unsigned i = 0; i < TRAIN; i++)
		assert_int_equal(b.p[fx->bytes.n + i], fx->train.labels[i]);
	for (size_t n = 0; n < b.n; n++)
		assert_int_equal(fal_manifest_parse(b.p, n, &back), FAL_ETRUNC);
	assert_int_equal(fal_manifest_parse(b.p, b.n, &back), FAL_OK);
	fal_manifest_encode(&back, &again);
	assert_int_equal(again.n, b.n);
	assert_memory_equal(again.p, b.p, b.n);
	b.p[b.n - 1] = 10; /* of 10 classes */
	fal_manifest_free(&back);
	assert_int_equal(fal_manifest_parse(b.p, b.n, &back), FAL_EFORMAT);
	fal_manifest_free(&m);
	fal_buf_free(&b);
	fal_buf_free(&again);
}

static void
test_manifest_build_refuses(void **state)
{
	const struct fixture *fx = *state;
	struct fal_set other = fx->test;
	struct fal_manifest m;
	other.classes = 9;
	assert_int_equal(fal_manifest_build(&fx->train, &other, &m), FAL_EINVAL);
	other = fx->test;
	other.shape[0] = 1;
	other.shape[1] = 3;
	assert_int_equal(fal_manifest_build(&fx->train, &other, &m), FAL_EINVAL);
}

static void
test_manifest_length_is_exact(void **state)
{
	const struct fixture *fx = *state;
	uint8_t more[1024] = { 0 };
	struct fal_manifest m = { .train.n = 77 };
	assert_in_range(fx->bytes.n, 1, sizeof(more) - 1);
	memcpy(more, fx->bytes.p, fx->bytes.n);
	for (size_t n = 0; n < fx->bytes.n; n++)
		assert_int_equal(fal_manifest_parse(more, n, &m), FAL_ETRUNC);
	assert_int_equal(fal_manifest_parse(more, fx->bytes.n + 1, &m), FAL_EFORMAT);
	assert_int_equal(m.train.n, 77);
}

static void
test_manifest_numbers(void **state)
{
	const struct fixture *fx = *state;
	const size_t test_at = 5 + 24 + 3 * FAL_HASH_BYTES;
	const struct {
		size_t at;
		uint32_t v;
		int err;
	} bad[] = {
		{ 0, 0x12345678, FAL_EFORMAT }, /* magic */
		{ 5, 0, FAL_EFORMAT },          /* no training samples */
		{ 5, 0xffffffff, FAL_ELIMIT },  { 5, 0x80000001, FAL_ELIMIT },
		{ 5, 0x80000000, FAL_ETRUNC }, /* 6.9 GB of hashes, not allocated */
		{ 9, 0, FAL_ELIMIT },           { 9, 0xffffffff, FAL_ELIMIT },
		{ 9, 32, FAL_ELIMIT }, /* a sample above 1 MiB */
		{ 9, 4, FAL_ELIMIT },  /* a chunk above 1 MiB */
		{ 9, 1, FAL_EFORMAT }, /* shape unlike the test set's */
		{ 17, 0xffffffff, FAL_ELIMIT }, { 21, 0, FAL_ELIMIT },
		{ 21, 257, FAL_EFORMAT }, /* not of labels that are bytes */
		{ 21, 0x80000001, FAL_ELIMIT }, { 21, 9, FAL_EFORMAT },
		{ 25, 0, FAL_ELIMIT },          { 25, 11, FAL_ELIMIT },
		{ 25, 0xffffffff, FAL_ELIMIT }, { test_at, 11, FAL_ETRUNC },
		{ test_at, 0, FAL_EFORMAT }, /* trailing bytes */
	};
	struct fal_manifest m;
	uint8_t copy[1024];
	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		memcpy(copy, fx->bytes.p, fx->bytes.n);
		for (unsigned b = 0; b < 4; b++)
			copy[bad[i].at + b] = (uint8_t)(bad[i].v >> 8 * b);
		int err = fal_manifest_parse(copy, fx->bytes.n, &m);
		if (err != bad[i].err)
			print_message("# case %zu: offset %zu value %u\n", i, bad[i].at,
				      bad[i].v);
		assert_int_equal(err, bad[i].err);
	}
	memcpy(copy, fx->bytes.p, fx->bytes.n);
	copy[4] = 5;
	assert_int_equal(fal_manifest_parse(copy, fx->bytes.n, &m), FAL_EVERSION);
}

static void
test_chunks_travel(void **state)
{
	const struct fixture *fx = *state;
	struct fal_samples *s;
	struct fal_buf b = { 0 };
	uint32_t label;
	assert_int_equal(fal_samples_new(&fx->m.train, &s), FAL_OK);
	for (uint32_t i = 0; i < 3; i++) {
		assert_false(fal_samples_has_chunk(s, i));
		fal_buf_clear(&b);
		assert_int_equal(fal_chunk_get(&fx->m.train, &fx->train, i, &b), FAL_OK);
		assert_int_equal(b.n, fal_chunk_bytes(&fx->m.train, i));
		assert_null(fal_samples_row(s, i * 10, &label));
		assert_int_equal(fal_samples_put_chunk(s, i, b.p, b.n), FAL_OK);
		assert_true(fal_samples_has_chunk(s, i));
		assert_int_equal(fal_samples_put_chunk(s, i, b.p, b.n), FAL_EEXIST);
	}
	for (uint32_t id = 0; id < TRAIN; id++) {
		const uint8_t *row = fal_samples_row(s, id, &label);
		assert_non_null(row);
		assert_memory_equal(row, fx->train.pixels + (size_t)id * PIXELS, PIXELS);
		assert_int_equal(label, fx->train.labels[id]);
	}
	assert_null(fal_samples_row(s, TRAIN, &label));
	assert_null(fal_samples_row(s, UINT32_MAX, &label));
	assert_int_equal(fal_chunk_get(&fx->m.train, &fx->train, 3, &b), FAL_ENOENT);
	assert_int_equal(fal_chunk_get(&fx->m.train, &fx->test, 0, &b), FAL_EINVAL);
	fal_buf_free(&b);
	fal_samples_free(s);
}

static void
test_wrong_chunks_are_refused(void **state)
{
	const struct fixture *fx = *state;
	struct fal_samples *s;
	struct fal_buf b = { 0 };
	assert_int_equal(fal_samples_new(&fx->m.train, &s), FAL_OK);
	assert_int_equal(fal_chunk_get(&fx->m.train, &fx->train, 1, &b), FAL_OK);
	assert_int_equal(fal_samples_put_chunk(s, 0, b.p, b.n), FAL_EAUTH);
	assert_int_equal(fal_samples_put_chunk(s, 2, b.p, b.n), FAL_EFORMAT);
	assert_int_equal(fal_samples_put_chunk(s, 3, b.p, b.n), FAL_ENOENT);
	assert_int_equal(fal_samples_put_chunk(s, 1, b.p, b.n - 1), FAL_EFORMAT);
	assert_int_equal(fal_samples_put_chunk(s, 1, b.p, 0), FAL_EFORMAT);
	struct fal_rng r = fal_rng_init(7, FAL_RNG_TEST, 0);
	unsigned refused = 0;
	for (unsigned i = 0; i < 50; i++) {
		size_t at = fal_rng_below(&r, (uint32_t)b.n);
		b.p[at] ^= (uint8_t)(1 << i % 8);
		refused += fal_samples_put_chunk(s, 1, b.p, b.n) == FAL_EAUTH;
		b.p[at] ^= (uint8_t)(1 << i % 8);
	}
	assert_int_equal(refused, 50);
	assert_false(fal_samples_has_chunk(s, 1));
	assert_int_equal(fal_samples_put_chunk(s, 1, b.p, b.n), FAL_OK);
	fal_buf_free(&b);
	fal_samples_free(s);
}

/* A manifest that vouches for a label outside its classes. */
static void
test_labels_are_checked(void **state)
{
	const struct fixture *fx = *state;
	struct fal_manifest m;
	struct fal_samples *s;
	struct fal_buf b = { 0 };
	fx->test.labels[2] = 10;
	assert_int_equal(fal_manifest_build(&fx->test, NULL, &m), FAL_OK);
	assert_int_equal(fal_samples_new(&m.train, &s), FAL_OK);
	assert_int_equal(fal_chunk_get(&m.train, &fx->test, 0, &b), FAL_OK);
	assert_int_equal(fal_samples_put_chunk(s, 0, b.p, b.n), FAL_EFORMAT);
	fx->test.labels[2] = 9;
	fal_buf_free(&b);
	fal_samples_free(s);
	fal_manifest_free(&m);
}

static void
test_local_copy(void **state)
{
	const struct fixture *fx = *state;
	struct fal_samples *s;
	assert_int_equal(fal_samples_new(&fx->m.train, &s), FAL_OK);
	assert_int_equal(fal_samples_put_set(s, &fx->test), FAL_EINVAL);
	fx->train.pixels[15 * PIXELS] ^= 1;
	assert_int_equal(fal_samples_put_set(s, &fx->train), FAL_EAUTH);
	assert_true(fal_samples_has_chunk(s, 0));
	assert_false(fal_samples_has_chunk(s, 1));
	fx->train.pixels[15 * PIXELS] ^= 1;
	assert_int_equal(fal_samples_put_set(s, &fx->train), FAL_OK);
	assert_true(fal_samples_has_chunk(s, 2));
	fal_samples_free(s);
	assert_int_equal(fal_samples_new(&(struct fal_part){ 0 }, &s), FAL_EINVAL);
}

/* Batches by place are the samples of the order, normalised per channel. */
static void
test_batch(void **state)
{
	const struct fixture *fx = *state;
	const struct fal_order_opts opts = { .seed = 5,
					     .epoch = 1,
					     .n = TRAIN,
					     .per_chunk = 10,
					     .shuffle = FAL_SHUFFLE_WINDOW };
	const float mean[] = { 0.5f, 0.25f, 0.0f }, std[] = { 0.5f, 2.0f, 1.0f };
	struct fal_order order;
	struct fal_norm norm;
	struct fal_samples *s;
	uint32_t label[4];
	float *x = malloc(4 * PIXELS * sizeof(*x));
	assert_non_null(x);
	assert_int_equal(fal_norm_init(&norm, 3, mean, std), FAL_OK);
	assert_int_equal(fal_order_init(&order, &opts), FAL_OK);
	assert_int_equal(fal_samples_new(&fx->m.train, &s), FAL_OK);
	const struct fal_batch b = { s, &order, &norm };
	assert_int_equal(fal_batch_fill(&b, 21, 4, x, label), FAL_ENOENT);
	assert_int_equal(fal_samples_put_set(s, &fx->train), FAL_OK);
	assert_int_equal(fal_batch_fill(&b, 21, 4, x, label), FAL_OK);
	for (uint32_t i = 0; i < 4; i++) {
		uint32_t id = fal_order_at(&order, 21 + i);
		assert_int_equal(label[i], fx->train.labels[id]);
		for (size_t k = 0; k < PIXELS; k++) {
			size_t c = k / (PIXELS / 3);
			float u = fx->train.pixels[(size_t)id * PIXELS + k];
			float want = (u / 255.0f - mean[c]) / std[c];
			if (x[i * PIXELS + k] != want)
				print_message("# sample %u pixel %zu: %g, not %g\n", id,
					      k, (double)x[i * PIXELS + k], (double)want);
			assert_true(x[i * PIXELS + k] == want);
		}
	}
	assert_int_equal(fal_batch_fill(&b, TRAIN, 0, x, label), FAL_OK);
	assert_int_equal(fal_batch_fill(&b, 22, 4, x, label), FAL_EINVAL);
	assert_int_equal(fal_batch_fill(&b, UINT32_MAX, 4, x, label), FAL_EINVAL);
	fal_order_free(&order);
	fal_samples_free(s);
	free(x);
}

static void
test_batch_mismatch(void **state)
{
	const struct fixture *fx = *state;
	const struct fal_order_opts opts = { .seed = 5,
					     .epoch = 1,
					     .n = TRAIN - 1,
					     .per_chunk = 10,
					     .shuffle = FAL_SHUFFLE_NONE };
	const float mean[] = { 0, 0, NAN }, std[] = { 1, 1, 1 }, zero = 0, less = -1;
	struct fal_order order;
	struct fal_norm norm;
	struct fal_samples *s;
	uint32_t label;
	float *x = malloc(PIXELS * sizeof(*x));
	assert_non_null(x);
	assert_int_equal(fal_norm_init(&norm, 3, mean, std), FAL_EINVAL);
	assert_int_equal(fal_norm_init(&norm, 1, mean, &zero), FAL_EINVAL);
	assert_int_equal(fal_norm_init(&norm, 1, mean, &less), FAL_EINVAL);
	assert_int_equal(fal_norm_init(&norm, 0, mean, std), FAL_EINVAL);
	assert_int_equal(fal_norm_init(&norm, FAL_NORM_CHANNELS + 1, mean, std),
			 FAL_EINVAL);
	assert_int_equal(fal_norm_init(&norm, 2, mean, std), FAL_OK);
	assert_int_equal(fal_order_init(&order, &opts), FAL_OK);
	assert_int_equal(fal_samples_new(&fx->m.train, &s), FAL_OK);
	assert_int_equal(fal_samples_put_set(s, &fx->train), FAL_OK);
	const struct fal_batch b = { s, &order, &norm };
	assert_int_equal(fal_batch_fill(&b, 0, 1, x, &label), FAL_EINVAL);
	order.n = TRAIN;
	assert_int_equal(fal_batch_fill(&b, 0, 1, x, &label), FAL_EINVAL); /* channels */
	assert_int_equal(fal_norm_init(&norm, 1, mean, std), FAL_OK);
	assert_int_equal(fal_batch_fill(&b, 0, 1, x, &label), FAL_OK);
	assert_true(x[PIXELS - 1] == (float)fx->train.pixels[PIXELS - 1] / 255.0f);
	fal_order_free(&order);
	fal_samples_free(s);
	free(x);
}

/* The cache file of `hash` below `dir`. */
static const char *
cache_file(const char *dir, const uint8_t *hash)
{
	static char path[256];
	char hex[2 * FAL_HASH_BYTES + 1];
	fal_hex(hash, FAL_HASH_BYTES, hex);
	snprintf(path, sizeof(path), "%s/%.2s/%.2s/%s", dir, hex, hex + 2, hex);
	return path;
}

static void
test_cache(void **state)
{
	const struct fixture *fx = *state;
	const uint8_t *hash = fx->m.train.hash[1];
	char base[] = "/tmp/falcon-test-cache.XXXXXX", dir[64], command[96];
	struct fal_buf b = { 0 }, got = { 0 };
	assert_non_null(mkdtemp(base));
	snprintf(dir, sizeof(dir), "%s/a/b", base);
	assert_int_equal(fal_chunk_get(&fx->m.train, &fx->train, 1, &b), FAL_OK);
	fal_put_u8(&got, 0x55); /* what is there already stays */

	assert_int_equal(fal_cache_get(dir, hash, &got), FAL_ENOENT);
	assert_int_equal(fal_cache_put(dir, hash, b.p, b.n), FAL_OK);
	assert_int_equal(fal_cache_put(dir, hash, b.p, b.n), FAL_OK);
	assert_int_equal(fal_cache_get(dir, hash, &got), FAL_OK);
	assert_int_equal(got.n, b.n + 1);
	assert_int_equal(got.p[0], 0x55);
	assert_memory_equal(got.p + 1, b.p, b.n);
	assert_int_equal(access(cache_file(dir, hash), R_OK), 0);

	/* One bit, a shorter and a longer file: not there, and gone from the disk. */
	for (unsigned i = 0; i < 3; i++) {
		FILE *f = fopen(cache_file(dir, hash), "wb");
		assert_non_null(f);
		b.p[77] ^= i == 0;
		fwrite(b.p, 1, i == 1 ? b.n - 1 : b.n, f);
		for (size_t k = 0; i == 2 && k < 2 * FAL_CHUNK_BYTES - b.n; k++)
			fputc(0, f);
		fclose(f);
		b.p[77] ^= i == 0;
		got.n = 1;
		assert_int_equal(fal_cache_get(dir, hash, &got), FAL_ENOENT);
		assert_int_equal(got.n, 1);
		assert_int_equal(access(cache_file(dir, hash), F_OK), -1);
		assert_int_equal(errno, ENOENT);
	}
	assert_int_equal(fal_cache_put(dir, hash, b.p, FAL_CHUNK_BYTES + 1), FAL_ELIMIT);
	snprintf(command, sizeof(command), "rm -r %s", base);
	assert_int_equal(system(command), 0);
	fal_buf_free(&b);
	fal_buf_free(&got);
}

/* Where nothing can be written the caller hears of it, and nothing is left behind. */
static void
test_cache_unwritable(void **state)
{
	const struct fixture *fx = *state;
	const uint8_t *hash = fx->m.train.hash[0];
	char base[] = "/tmp/falcon-test-cache.XXXXXX", dir[64], command[96];
	struct fal_buf got = { 0 };
	int fd = mkstemp(base);
	assert_true(fd >= 0);
	close(fd);
	snprintf(dir, sizeof(dir), "%s/sub", base); /* below a plain file */
	assert_int_equal(fal_cache_put(dir, hash, (const uint8_t *)"x", 1), FAL_EIO);
	assert_int_equal(errno, ENOTDIR);
	assert_int_equal(fal_cache_get(dir, hash, &got), FAL_EIO);
	assert_int_equal(unlink(base), 0);

	/* The name is taken by a directory: the rename fails. */
	strcpy(base, "/tmp/falcon-test-cache.XXXXXX");
	assert_non_null(mkdtemp(base));
	assert_int_equal(fal_cache_put(base, hash, (const uint8_t *)"x", 1), FAL_OK);
	assert_int_equal(unlink(cache_file(base, hash)), 0);
	assert_int_equal(mkdir(cache_file(base, hash), 0700), 0);
	assert_int_equal(fal_cache_put(base, hash, (const uint8_t *)"x", 1), FAL_EIO);
	assert_int_equal(errno, EISDIR);
	assert_int_equal(rmdir(cache_file(base, hash)), 0);
	snprintf(command, sizeof(command), "test -z \"$(find %s -type f)\"", base);
	assert_int_equal(system(command), 0);
	snprintf(command, sizeof(command), "rm -r %s", base);
	assert_int_equal(system(command), 0);
	fal_buf_free(&got);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_geometry),
		cmocka_unit_test(test_manifest_bytes),
		cmocka_unit_test(test_manifest_round_trip),
		cmocka_unit_test(test_manifest_without_test),
		cmocka_unit_test(test_manifest_with_labels),
		cmocka_unit_test(test_manifest_build_refuses),
		cmocka_unit_test(test_manifest_length_is_exact),
		cmocka_unit_test(test_manifest_numbers),
		cmocka_unit_test(test_chunks_travel),
		cmocka_unit_test(test_wrong_chunks_are_refused),
		cmocka_unit_test(test_labels_are_checked),
		cmocka_unit_test(test_local_copy),
		cmocka_unit_test(test_batch),
		cmocka_unit_test(test_batch_mismatch),
		cmocka_unit_test(test_cache),
		cmocka_unit_test(test_cache_unwritable),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("data_chunk", tests, set_up, tear_down);
}
