/* IDX files and the sets made of them: what is read, and every way to be wrong. */
#include "base/err.h"
#include "base/parse.h"
#include "base/rng.h"
#include "crypto/hash.h"
#include "job/set.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

static char dir[] = "/tmp/falcon-test-data.XXXXXX";
static char image_path[64], label_path[64];

/* 3 images of 2 × 2, and their labels. */
static const uint8_t images[] = { 0, 0, 8, 3, 0, 0, 0, 3, 0, 0, 0, 2,  0,  0,
				  0, 2, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12 };
static const uint8_t labels[] = { 0, 0, 8, 1, 0, 0, 0, 3, 2, 0, 1 };

static int
make_dir(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(image_path, sizeof(image_path), "%s/images", dir);
	snprintf(label_path, sizeof(label_path), "%s/labels", dir);
	return 0;
}

static int
remove_dir(void **state)
{
	(void)state;
	unlink(image_path);
	unlink(label_path);
	return rmdir(dir);
}

static void
spill(const char *path, const void *p, size_t n)
{
	FILE *f = fopen(path, "wb");
	assert_non_null(f);
	assert_int_equal(fwrite(p, 1, n, f), n);
	assert_int_equal(fclose(f), 0);
}

/* gzips p into `out` (room for 4096 bytes); returns the length. */
static size_t
gzipped(const uint8_t *p, size_t n, uint8_t out[static 4096])
{
	gzFile f = gzopen(image_path, "wb9");
	assert_non_null(f);
	assert_int_equal(gzwrite(f, p, (unsigned)n), n);
	assert_int_equal(gzclose(f), Z_OK);
	FILE *in = fopen(image_path, "rb");
	assert_non_null(in);
	size_t got = fread(out, 1, 4096, in);
	fclose(in);
	return got;
}

/* Reading n bytes at p as the image file ends with `err` and a line about the file. */
static void
assert_idx_refused(const void *p, size_t n, const struct fal_array_opts *opts, int err)
{
	struct fal_array idx = { .ndim = 77 };
	struct fal_diag diag = { "" };
	spill(image_path, p, n);
	assert_int_equal(fal_array_read(FAL_FILETYPE_IDX, image_path, opts, &idx, &diag),
			 err);
	assert_int_equal(idx.ndim, 77);
	assert_memory_equal(diag.text, image_path, strlen(image_path));
	assert_int_equal(diag.text[strlen(image_path)], ':');
}

static void
test_idx_plain_and_gzip(void **state)
{
	const struct fal_array_opts all = { 0 };
	uint8_t gz[4096];
	(void)state;
	for (int zipped = 0; zipped < 2; zipped++) {
		struct fal_array idx;
		size_t n = gzipped(images, sizeof(images), gz);
		if (!zipped)
			spill(image_path, images, sizeof(images));
		else
			spill(image_path, gz, n);
		assert_int_equal(fal_array_read(FAL_FILETYPE_IDX, image_path, &all, &idx,
						NULL),
				 FAL_OK);
		assert_int_equal(idx.ndim, 3);
		assert_int_equal(idx.dim[0], 3);
		assert_int_equal(idx.dim[1], 2);
		assert_int_equal(idx.dim[3], 1);
		assert_int_equal(idx.rows, 3);
		assert_int_equal(idx.row_bytes, 4);
		assert_memory_equal(idx.data, images + 16, 12);
		fal_array_free(&idx);
		assert_null(idx.data);
	}
}

/* Every proper prefix, plain and gzipped, and one byte too many. */
static void
test_idx_length_is_exact(void **state)
{
	const struct fal_array_opts all = { 0 }, first = { .max_rows = 1 };
	uint8_t more[sizeof(images) + 1], gz[4096];
	(void)state;
	memcpy(more, images, sizeof(images));
	more[sizeof(images)] = 0;
	for (size_t n = 0; n < sizeof(images); n++) {
		assert_idx_refused(images, n, &all, FAL_ETRUNC);
		assert_idx_refused(images, n, &first, FAL_ETRUNC);
	}
	assert_idx_refused(more, sizeof(more), &all, FAL_EFORMAT);
	assert_idx_refused(more, sizeof(more), &first, FAL_EFORMAT);

	size_t whole = gzipped(more, sizeof(more), gz);
	assert_idx_refused(gz, whole, &all, FAL_EFORMAT);
	whole = gzipped(images, sizeof(images), gz);
	for (size_t n = 3; n < whole; n++)
		assert_idx_refused(gz, n, &all, FAL_ETRUNC);
	gz[whole - 5] ^= 1; /* its CRC */
	assert_idx_refused(gz, whole, &all, FAL_EFORMAT);
}

/* Members in drawn numbers, zeros between and behind them: one file.  What follows that
 * is neither is told with its offset, be it one byte; a cut anywhere is seen. */
static void
test_gzip_members(void **state)
{
	const struct fal_array_opts all = { 0 };
	static const char *const behind[] = { "x",  "\x1f", "\x1f\x8c",
					      "\n", "PK",   "1,2,3\n1,2,3\n" };
	(void)state;
	for (uint64_t seed = 0; seed < 60; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
		const size_t count = 1 + fal_rng_below(&r, 4);
		uint8_t file[4096], gz[4096];
		size_t n = 0, from = 0, last = 0;
		for (size_t i = 0; i < count; i++) {
			const size_t left = sizeof(images) - from;
			/* An empty member is one, too. */
			const size_t some =
				i + 1 == count ? left : fal_rng_below(&r, (uint32_t)left);
			const size_t got = gzipped(images + from, some, gz);
			from += some;
			last = n;
			memcpy(file + n, gz, got);
			n += got;
			const size_t zeros = fal_rng_below(&r, 9);
			memset(file + n, 0, zeros);
			n += i + 1 == count ? 0 : zeros;
		}
		struct fal_array idx;
		struct fal_diag diag = { "" };
		const size_t cut = last + 3 + fal_rng_below(&r, (uint32_t)(n - last - 3));
		assert_idx_refused(file, cut, &all, FAL_ETRUNC);
		const size_t zeros = fal_rng_below(&r, 9);
		memset(file + n, 0, zeros);
		n += zeros;
		spill(image_path, file, n);
		assert_int_equal(fal_array_read(FAL_FILETYPE_IDX, image_path, &all, &idx,
						&diag),
				 FAL_OK);
		assert_memory_equal(idx.data, images + 16, 12);
		fal_array_free(&idx);
		const char *more = behind[fal_rng_below(&r, COUNT(behind))];
		char want[200];
		memcpy(file + n, more, strlen(more));
		snprintf(want, sizeof(want),
			 "%s: byte %zu: neither a gzip member nor zero padding",
			 image_path, n);
		n += strlen(more);
		spill(image_path, file, n);
		assert_int_equal(fal_array_read(FAL_FILETYPE_IDX, image_path, &all, &idx,
						&diag),
				 FAL_EFORMAT);
		assert_string_equal(diag.text, want);
	}
}

static void
test_idx_header_is_strict(void **state)
{
	static const struct {
		size_t at;
		uint8_t value;
		int err;
	} bad[] = {
		{ 0, 1, FAL_EFORMAT },  { 1, 1, FAL_EFORMAT },  { 2, 9, FAL_EFORMAT },
		{ 2, 13, FAL_EFORMAT }, { 3, 0, FAL_EFORMAT },  { 3, 5, FAL_EFORMAT },
		{ 7, 0, FAL_EFORMAT },  { 15, 0, FAL_EFORMAT }, { 8, 0x81, FAL_EFORMAT },
		{ 4, 1, FAL_ELIMIT },   { 11, 4, FAL_ETRUNC },  { 7, 2, FAL_EFORMAT },
	};
	const struct fal_array_opts opts = { .max_bytes = 4096 };
	uint8_t file[sizeof(images)];
	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		memcpy(file, images, sizeof(file));
		file[bad[i].at] = bad[i].value;
		assert_idx_refused(file, sizeof(file), &opts, bad[i].err);
	}
	/* Dimensions whose product leaves 64 bits: 2^31 · (2^31)^3. */
	uint8_t huge[20] = { 0, 0, 8, 4 };
	for (size_t i = 4; i < sizeof(huge); i += 4)
		huge[i] = 0x80;
	assert_idx_refused(huge, sizeof(huge), &opts, FAL_ELIMIT);
	for (size_t i = 16; i < sizeof(huge); i++)
		huge[i] = i == 19;
	assert_idx_refused(huge, sizeof(huge), &opts, FAL_ELIMIT);
}

static void
test_idx_options(void **state)
{
	struct fal_array idx;
	(void)state;
	spill(image_path, images, sizeof(images));
	const struct fal_array_opts two = { .max_rows = 2, .max_bytes = 8 };
	assert_int_equal(fal_array_read(FAL_FILETYPE_IDX, image_path, &two, &idx, NULL),
			 FAL_OK);
	assert_int_equal(idx.rows, 2);
	assert_int_equal(idx.dim[0], 3);
	assert_memory_equal(idx.data, images + 16, 8);
	fal_array_free(&idx);
	const struct fal_array_opts four = { .max_rows = 4 }, small = { .max_bytes = 11 };
	assert_idx_refused(images, sizeof(images), &four, FAL_EINVAL);
	assert_idx_refused(images, sizeof(images), &small, FAL_ELIMIT);
}

static void
test_idx_unreadable(void **state)
{
	const struct fal_array_opts all = { 0 };
	struct fal_array idx;
	struct fal_diag diag;
	(void)state;
	assert_int_equal(fal_array_read(FAL_FILETYPE_IDX, "/nonexistent/x", &all, &idx,
					&diag),
			 FAL_ENOENT);
	assert_string_equal(diag.text, "/nonexistent/x: No such file or directory");
	assert_int_equal(fal_array_read(FAL_FILETYPE_IDX, "/", &all, &idx, &diag),
			 FAL_EIO);
	assert_string_equal(diag.text, "/: Is a directory");
}

static void
test_set_loads(void **state)
{
	const struct fal_set_opts all = { 0 }, two = { .max_samples = 2, .classes = 10 };
	struct fal_set set;
	(void)state;
	spill(image_path, images, sizeof(images));
	spill(label_path, labels, sizeof(labels));
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, label_path,
					     &all, &set, NULL),
			 FAL_OK);
	assert_int_equal(set.n, 3);
	assert_int_equal(set.shape[0], 1);
	assert_int_equal(set.shape[1], 2);
	assert_int_equal(set.shape[2], 2);
	assert_int_equal(set.sample_bytes, 4);
	assert_int_equal(set.classes, 3);
	assert_memory_equal(set.pixels, images + 16, 12);
	for (unsigned i = 0; i < 3; i++)
		assert_int_equal(set.labels[i], labels[8 + i]);
	fal_set_free(&set);
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, label_path,
					     &two, &set, NULL),
			 FAL_OK);
	assert_int_equal(set.n, 2);
	assert_int_equal(set.classes, 10);
	fal_set_free(&set);
}

/* Rows of one and of three dimensions. */
static void
test_set_shapes(void **state)
{
	static const uint8_t flat[] = { 0, 0, 8, 2, 0, 0, 0, 3, 0,
					0, 0, 2, 1, 2, 3, 4, 5, 6 };
	static const uint8_t colour[] = { 0, 0, 8, 4, 0, 0, 0, 3, 0, 0, 0, 2, 0,
					  0, 0, 1, 0, 0, 0, 1, 1, 2, 3, 4, 5, 6 };
	const struct fal_set_opts all = { 0 };
	struct fal_set set;
	(void)state;
	spill(label_path, labels, sizeof(labels));
	spill(image_path, flat, sizeof(flat));
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, label_path,
					     &all, &set, NULL),
			 FAL_OK);
	assert_int_equal(set.shape[0], 1);
	assert_int_equal(set.shape[1], 1);
	assert_int_equal(set.shape[2], 2);
	fal_set_free(&set);
	spill(image_path, colour, sizeof(colour));
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, label_path,
					     &all, &set, NULL),
			 FAL_OK);
	assert_int_equal(set.shape[0], 2);
	assert_int_equal(set.shape[1], 1);
	assert_int_equal(set.shape[2], 1);
	fal_set_free(&set);
}

static void
test_set_refuses(void **state)
{
	uint8_t two[] = { 0, 0, 8, 1, 0, 0, 0, 2, 1, 1 };
	const struct fal_set_opts all = { 0 }, one = { .max_samples = 1 };
	const struct fal_set_opts narrow = { .classes = 2 },
				  wide = { .classes = UINT32_MAX };
	struct fal_set set = { .n = 77 };
	struct fal_diag diag;
	char want[256];
	(void)state;
	spill(image_path, images, sizeof(images));
	spill(label_path, two, sizeof(two));
	snprintf(want, sizeof(want), "%s: 2 labels for the 3 samples of %s", label_path,
		 image_path);
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, label_path,
					     &all, &set, &diag),
			 FAL_EFORMAT);
	assert_string_equal(diag.text, want);
	/* Not hidden by taking only the first. */
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, label_path,
					     &one, &set, &diag),
			 FAL_EFORMAT);
	assert_string_equal(diag.text, want);

	spill(label_path, labels, sizeof(labels));
	snprintf(want, sizeof(want), "%s: label 2 of sample 0 is not below 2",
		 label_path);
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, label_path,
					     &narrow, &set, &diag),
			 FAL_EFORMAT);
	assert_string_equal(diag.text, want);
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, label_path,
					     &wide, &set, &diag),
			 FAL_EINVAL);
	/* The two files in the wrong order, and one of them twice. */
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, label_path, image_path,
					     &all, &set, &diag),
			 FAL_EFORMAT);
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, image_path, image_path,
					     &all, &set, &diag),
			 FAL_EFORMAT);
	assert_int_equal(set.n, 77);
}

/* The real thing, where Debian's package is installed. */
static void
test_fashion(void **state)
{
	static const char sum[] =
		"c867c93ff95360594e8ec3287995350b824dd110b11595c0e13d5423f621867a";
	static const char *x =
		"/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz";
	static const char *y =
		"/usr/share/datasets/fashion-mnist/t10k-labels-idx1-ubyte.gz";
	const struct fal_set_opts all = { 0 };
	struct fal_set set;
	uint8_t hash[FAL_HASH_BYTES];
	char hex[2 * FAL_HASH_BYTES + 1];
	(void)state;
	if (access(x, R_OK) != 0)
		skip();
	assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_IDX, x, y, &all, &set, NULL),
			 FAL_OK);
	assert_int_equal(set.n, 10000);
	assert_int_equal(set.classes, 10);
	assert_int_equal(set.sample_bytes, 784);
	fal_sha256(set.pixels, 7840000, hash);
	fal_hex(hash, sizeof(hash), hex);
	assert_string_equal(hex, sum);
	fal_set_free(&set);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_idx_plain_and_gzip),
		cmocka_unit_test(test_idx_length_is_exact),
		cmocka_unit_test(test_gzip_members),
		cmocka_unit_test(test_idx_header_is_strict),
		cmocka_unit_test(test_idx_options),
		cmocka_unit_test(test_idx_unreadable),
		cmocka_unit_test(test_set_loads),
		cmocka_unit_test(test_set_shapes),
		cmocka_unit_test(test_set_refuses),
		cmocka_unit_test(test_fashion),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("data", tests, make_dir, remove_dir);
}
