/* Files of data other than IDX: arrays of NumPy and safetensors, tables, text, CIFAR.
 * What is written by a plain second hand, with drawn types, shapes and spellings, is read
 * back; every way to be wrong has its line.  Then, for each type: manifest, chunks and
 * batches. */
#include "base/err.h"
#include "base/rng.h"
#include "job/order.h"
#include "job/set.h"

#include <math.h>
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

static char dir[] = "/tmp/falcon-test-formats.XXXXXX";
static char path[64], labels_path[64];

static int
make_dir(void **state)
{
	(void)state;
	if (mkdtemp(dir) == NULL)
		return -1;
	snprintf(path, sizeof(path), "%s/samples", dir);
	snprintf(labels_path, sizeof(labels_path), "%s/labels", dir);
	return 0;
}

static int
remove_dir(void **state)
{
	(void)state;
	unlink(path);
	unlink(labels_path);
	return rmdir(dir);
}

/* Into a file, gzipped or not. */
static void
spill(const char *to, const struct fal_buf *b, bool zip)
{
	gzFile f = gzopen(to, zip ? "wb" : "wbT");
	assert_non_null(f);
	assert_int_equal(b->err, 0);
	assert_int_equal(gzwrite(f, b->p, (unsigned)b->n), b->n);
	assert_int_equal(gzclose(f), Z_OK);
}

static void
spill_text(const char *text)
{
	struct fal_buf b = { 0 };
	fal_put_bytes(&b, text, strlen(text));
	spill(path, &b, false);
	fal_buf_free(&b);
}

/* The line is "PATH" and then `want`. */
static void
says(const struct fal_diag *diag, const char *want)
{
	char all[600];
	snprintf(all, sizeof(all), "%s%s", path, want);
	assert_string_equal(diag->text, all);
}

/* --- arrays ------------------------------------------------------------------------- */

static const struct {
	const char *npy, *name;
	enum fal_dtype type, kept;
	unsigned size;
} types[] = {
	{ "|u1", "U8", FAL_U8, FAL_U8, 1 },    { "|i1", "I8", FAL_I8, FAL_I8, 1 },
	{ "<u2", "U16", FAL_U16, FAL_U16, 2 }, { "<i2", "I16", FAL_I16, FAL_I16, 2 },
	{ "<u4", "U32", FAL_U32, FAL_U32, 4 }, { "<i4", "I32", FAL_I32, FAL_I32, 4 },
	{ "<i8", "I64", FAL_I64, FAL_I64, 8 }, { "<f4", "F32", FAL_F32, FAL_F32, 4 },
	{ "<f8", "F64", FAL_F64, FAL_F32, 8 },
};

/* An array of drawn shape and values, and what a plain hand makes of each value. */
struct drawn {
	size_t type;
	unsigned ndim;
	uint32_t dim[4], n;
	struct fal_buf bytes;
	double *value;
};

static struct drawn
draw(struct fal_rng *r, size_t type, unsigned ndim)
{
	struct drawn d = { .type = type, .ndim = ndim, .n = 1 };
	for (unsigned i = 0; i < ndim; i++)
		d.n *= d.dim[i] = 1 + fal_rng_below(r, 5);
	d.value = calloc(d.n, sizeof(*d.value));
	assert_non_null(d.value);
	for (uint32_t i = 0; i < d.n; i++) {
		const unsigned bits = 8 * types[type].size;
		/* A double has 53 bits. */
		const uint64_t u = bits == 64 ? (uint64_t)((int64_t)fal_rng_u64(r) >> 12)
					      : fal_rng_u64(r) >> (64 - bits);
		const char kind = types[type].npy[1];
		double v = kind == 'u'
				   ? (double)u
				   : (double)((int64_t)(u << (64 - bits)) >> (64 - bits));
		if (kind == 'f') {
			const double wide = (double)(int32_t)fal_rng_u32(r) / 1000;
			const float narrow = (float)wide;
			v = narrow;
			fal_put_bytes(&d.bytes,
				      bits == 32 ? (const void *)&narrow : &wide,
				      bits / 8);
		} else {
			fal_put_bytes(&d.bytes, &u, bits / 8);
		}
		d.value[i] = v;
	}
	return d;
}

static void
drawn_free(struct drawn *d)
{
	fal_buf_free(&d->bytes);
	free(d->value);
}

static void
put_shape(struct fal_buf *b, const struct drawn *d, struct fal_rng *r, char open,
	  char close)
{
	fal_put_u8(b, (uint8_t)open);
	for (unsigned i = 0; i < d->ndim; i++)
		fal_put_fmt(b, "%s%u",
			    i == 0                ? ""
			    : fal_rng_below(r, 2) ? ", "
						  : ",",
			    d->dim[i]);
	if (open == '(' && (d->ndim == 1 || fal_rng_below(r, 4) == 0))
		fal_put_u8(b, ',');
	fal_put_u8(b, (uint8_t)close);
}

/* Keys in a drawn order, quotes and blanks as Python allows them. */
static void
put_npy(struct fal_buf *out, const struct drawn *d, struct fal_rng *r)
{
	struct fal_buf h = { 0 };
	const unsigned first = fal_rng_below(r, 3), version = 1 + fal_rng_below(r, 3);
	fal_put_u8(&h, '{');
	for (unsigned k = 0; k < 3; k++) {
		const char quote = fal_rng_below(r, 2) ? '\'' : '"';
		static const char *const key[] = { "descr", "fortran_order", "shape" };
		const unsigned which = (first + k) % 3;
		fal_put_fmt(&h, "%c%s%c:%s", quote, key[which], quote,
			    fal_rng_below(r, 2) ? " " : "");
		if (which == 0)
			fal_put_fmt(&h, "%c%s%c", quote, types[d->type].npy, quote);
		else if (which == 1)
			fal_put_fmt(&h, "False");
		else
			put_shape(&h, d, r, '(', ')');
		if (k < 2 || fal_rng_below(r, 2))
			fal_put_fmt(&h, ", ");
	}
	fal_put_fmt(&h, "}%*s\n", (int)fal_rng_below(r, 70), "");
	fal_put_bytes(out, "\x93NUMPY", 6);
	fal_put_u8(out, (uint8_t)version);
	fal_put_u8(out, 0);
	if (version == 1)
		fal_put_u16(out, (uint16_t)h.n);
	else
		fal_put_u32(out, (uint32_t)h.n);
	fal_put_bytes(out, h.p, h.n);
	fal_put_bytes(out, d->bytes.p, d->bytes.n);
	fal_buf_free(&h);
}

/* The tensor "it" between others. */
static void
put_tensors(struct fal_buf *out, const struct drawn *d, struct fal_rng *r)
{
	struct fal_buf h = { 0 };
	const size_t before = fal_rng_below(r, 20), after = fal_rng_below(r, 20);
	fal_put_fmt(&h,
		    "{\"__metadata__\":{\"a\":\"b\"},\"before\":{\"dtype\":\"BF16\","
		    "\"shape\":[%zu],\"data_offsets\":[0,%zu]},\"after\":{\"dtype\":"
		    "\"U8\",\"shape\":[%zu],\"data_offsets\":[%zu,%zu]},"
		    "\"it\":{\"dtype\":\"%s\",\"shape\":",
		    before, before, after, before + d->bytes.n,
		    before + d->bytes.n + after, types[d->type].name);
	put_shape(&h, d, r, '[', ']');
	fal_put_fmt(&h, ",\"data_offsets\":[%zu,%zu]}}%*s", before, before + d->bytes.n,
		    (int)fal_rng_below(r, 9), "");
	fal_put_u64(out, h.n);
	fal_put_bytes(out, h.p, h.n);
	for (size_t i = 0; i < before; i++)
		fal_put_u8(out, 0xee);
	fal_put_bytes(out, d->bytes.p, d->bytes.n);
	for (size_t i = 0; i < after; i++)
		fal_put_u8(out, 0xee);
	fal_buf_free(&h);
}

static void
same(const struct fal_array *a, const struct drawn *d, uint32_t rows)
{
	const unsigned size = types[d->type].kept == FAL_F32 ? 4 : types[d->type].size;
	assert_int_equal(a->dtype, types[d->type].kept);
	assert_int_equal(a->ndim, d->ndim);
	assert_int_equal(a->rows, rows);
	assert_int_equal(a->row_values, d->n / d->dim[0]);
	assert_int_equal(a->row_bytes, d->n / d->dim[0] * size);
	for (unsigned i = 0; i < d->ndim; i++)
		assert_int_equal(a->dim[i], d->dim[i]);
	for (uint32_t i = 0; i < rows * a->row_values; i++) {
		const uint8_t *p = a->data + i * size;
		if (a->dtype != FAL_F32)
			assert_true(fal_dtype_integer(a->dtype, p) ==
				    (int64_t)d->value[i]);
		assert_true(fal_dtype_float(a->dtype, p) == (float)d->value[i]);
	}
}

static void
arrays_come_back(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
		struct drawn d = draw(&r, fal_rng_below(&r, COUNT(types)),
				      1 + fal_rng_below(&r, 4));
		const bool npy = fal_rng_below(&r, 2), zip = fal_rng_below(&r, 2);
		const uint32_t rows = fal_rng_below(&r, d.dim[0] + 1);
		const struct fal_array_opts opts = { .max_rows = rows, .tensor = "it" };
		struct fal_buf file = { 0 };
		struct fal_array a;
		struct fal_diag diag = { "" };
		(npy ? put_npy : put_tensors)(&file, &d, &r);
		spill(path, &file, zip);
		int err =
			fal_array_read(npy ? FAL_FILETYPE_NPY : FAL_FILETYPE_SAFETENSORS,
				       path, &opts, &a, &diag);
		if (err < 0)
			fail_msg("seed %llu: %s", (unsigned long long)seed, diag.text);
		same(&a, &d, rows != 0 ? rows : d.dim[0]);
		fal_array_free(&a);
		/* Cut anywhere, it is not read. */
		file.n = fal_rng_below(&r, (uint32_t)file.n);
		spill(path, &file, zip);
		err = fal_array_read(npy ? FAL_FILETYPE_NPY : FAL_FILETYPE_SAFETENSORS,
				     path, &opts, &a, &diag);
		assert_int_equal(err, FAL_ETRUNC);
		fal_buf_free(&file);
		drawn_free(&d);
	}
}

static void
npy_refusals(void **state)
{
	(void)state;
	static const struct {
		const char *header, *want;
	} bad[] = {
		{ "{'descr': '<f4', 'fortran_order': True, 'shape': (1,), }",
		  ": Fortran order: save it with numpy.ascontiguousarray" },
		{ "{'descr': '>f4', 'fortran_order': False, 'shape': (1,), }",
		  ": type '>f4' is big-endian: save it with .astype('<f4')" },
		{ "{'descr': '<c8', 'fortran_order': False, 'shape': (1,), }",
		  ": type '<c8' is not one of |u1 |i1 <u2 <i2 <u4 <i4 <i8 <f4 <f8" },
		{ "{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (1,), }",
		  ": an array of structures, not of numbers" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (), }",
		  ": a single value, not an array" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1,1,1,1,1), }",
		  ": more than 4 dimensions" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 0), }",
		  ": dimension 1 is 0, not 1 to 2^31" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (-1,), }",
		  ": header: not a dimension at '-1,), }'" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999,), }",
		  ": dimension 0 is 4294967295, not 1 to 2^31" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2147483648, "
		  "2147483648, 2147483648), }",
		  ": too large" },
		{ "{'descr': '<f4', 'shape': (1,), }", ": header without fortran_order" },
		{ "{'descr': '<f4', 'descr': '<f4', 'shape': (1,), }",
		  ": header: unknown or second key 'descr'" },
		{ "{'descr': '<f4', 'fortran_order': 0, 'shape': (1,), }",
		  ": header: not True or False at '0, 'shape': (1,), }'" },
		{ "{'descr': '<f4' 'fortran_order': False, 'shape': (1,), }",
		  ": header: no ',' behind a value at ''fortran_order': False, 'shape': "
		  "(1,), }'" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1 1), }",
		  ": header: not a shape at '1), }'" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (1,), } x",
		  ": header: more than a dictionary at 'x'" },
		{ "", ": header: not a dictionary at ''" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (2, 2), }",
		  ": value 1 of row 1 is nan, not finite in single precision" },
		{ "{'descr': '<f4', 'fortran_order': False, 'shape': (3,), }",
		  ": trailing bytes after the data" },
	};
	static const float data[] = { 1, 2, 3, NAN };
	const struct fal_array_opts all = { 0 };
	struct fal_array a;
	struct fal_diag diag;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct fal_buf b = { 0 };
		fal_put_bytes(&b, "\x93NUMPY\1\0", 8);
		fal_put_u16(&b, (uint16_t)strlen(bad[i].header));
		fal_put_bytes(&b, bad[i].header, strlen(bad[i].header));
		fal_put_bytes(&b, data, sizeof(data));
		spill(path, &b, false);
		assert_true(fal_array_read(FAL_FILETYPE_NPY, path, &all, &a, &diag) < 0);
		says(&diag, bad[i].want);
		fal_buf_free(&b);
	}
	/* What is finite in the file is told as it is there. */
	static const struct {
		double is;
		const char *want;
	} large[] = {
		{ -1e300,
		  ": value 1 of row 0 is -1e+300, not finite in single precision" },
		{ 3.5e38,
		  ": value 1 of row 0 is 3.5e+38, not finite in single precision" },
		{ -INFINITY,
		  ": value 1 of row 0 is -inf, not finite in single precision" },
		{ -NAN, ": value 1 of row 0 is nan, not finite in single precision" },
	};
	const char *header =
		"{'descr': '<f8', 'fortran_order': False, 'shape': (1, 2), }";
	for (size_t i = 0; i < COUNT(large); i++) {
		const double pair[] = { 1e30, large[i].is };
		struct fal_buf b = { 0 };
		fal_put_bytes(&b, "\x93NUMPY\1\0", 8);
		fal_put_u16(&b, (uint16_t)strlen(header));
		fal_put_bytes(&b, header, strlen(header));
		fal_put_bytes(&b, pair, sizeof(pair));
		spill(path, &b, false);
		assert_int_equal(fal_array_read(FAL_FILETYPE_NPY, path, &all, &a, &diag),
				 FAL_ENONFINITE);
		says(&diag, large[i].want);
		fal_buf_free(&b);
	}
	spill_text("\x93NUMPY\4\1......");
	assert_int_equal(fal_array_read(FAL_FILETYPE_NPY, path, &all, &a, &diag),
			 FAL_EVERSION);
	says(&diag, ": version 4.1 of .npy, not 1.0 to 3.0");
	spill_text("a,b,c\n1,2,3\n");
	assert_int_equal(fal_array_read(FAL_FILETYPE_NPY, path, &all, &a, &diag),
			 FAL_EFORMAT);
	says(&diag, ": not a .npy file");
}

static void
tensor_refusals(void **state)
{
	(void)state;
	static const struct {
		const char *header, *want;
	} bad[] = {
		{ "{}", ": there is no tensor 'it'" },
		{ "[1]", ": header does not begin with '{'" },
		{ "{\"it\":1}", ": tensor 'it' is malformed" },
		{ "{\"it\":{\"dtype\":\"BF16\",\"shape\":[2],\"data_offsets\":[0,4]}}",
		  ": tensor 'it': type 'BF16' is not one of U8 I8 U16 I16 U32 I32 I64 "
		  "F32 F64" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]}}",
		  ": tensor 'it' has not 1 to 4 dimensions" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[0,0]}}",
		  ": dimension 0 is 0, not 1 to 2^31" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[9999999999],"
		  "\"data_offsets\":[0,8]}}",
		  ": dimension 0 is 4294967295, not 1 to 2^31" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,4]}}",
		  ": tensor 'it' has not the bytes of its shape" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[-4,0]}}",
		  ": tensor 'it' has bad data_offsets" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[8,12]}}",
		  ": tensors overlap or leave a gap at byte 0 of the data" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[0,12]}}",
		  ": file is truncated" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
		  ": trailing bytes after the data" },
		{ "{\"it\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]},"
		  "\"more\":{\"dtype\":\"U8\",\"shape\":[9],\"data_offsets\":[4,13]}}",
		  ": file is truncated" },
		{ "{\"a\":{\"dtype\":\"BOOL\",\"shape\":[4],\"data_offsets\":[0,4]},"
		  "\"it\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[4,8]}}",
		  ": value 0 of row 0 is inf, not finite in single precision" },
	};
	static const float data[] = { 1, INFINITY };
	const struct fal_array_opts opts = { .tensor = "it" };
	struct fal_array a;
	struct fal_diag diag;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct fal_buf b = { 0 };
		fal_put_u64(&b, strlen(bad[i].header));
		fal_put_bytes(&b, bad[i].header, strlen(bad[i].header));
		fal_put_bytes(&b, data, sizeof(data));
		spill(path, &b, false);
		assert_true(fal_array_read(FAL_FILETYPE_SAFETENSORS, path, &opts, &a,
					   &diag) < 0);
		says(&diag, bad[i].want);
		fal_buf_free(&b);
	}
}

/* --- tables ------------------------------------------------------------------------- */

/* A field in a drawn spelling. */
static void
put_field(struct fal_buf *b, struct fal_rng *r, const char *text)
{
	if (fal_rng_below(r, 3) != 0) {
		fal_put_fmt(b, "%s", text);
		return;
	}
	fal_put_u8(b, '"');
	for (const char *p = text; *p != '\0'; p++)
		fal_put_fmt(b, *p == '"' ? "\"\"" : "%c", *p);
	fal_put_u8(b, '"');
}

static void
tables_come_back(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 1);
		const uint32_t columns = 1 + fal_rng_below(&r, 6);
		const uint32_t rows = 1 + fal_rng_below(&r, 9);
		const uint32_t at = fal_rng_below(&r, columns + 1);
		const uint32_t used = fal_rng_below(&r, rows + 1);
		const char *eol = fal_rng_below(&r, 2) ? "\r\n" : "\n";
		const char comma = fal_rng_below(&r, 2) ? ',' : '\t';
		float want[10][6];
		uint32_t class[10]; /* or bits of targets */
		const bool targets = fal_rng_below(&r, 3) == 0;
		const uint32_t most = fal_rng_below(&r, 2) ? 256 : UINT32_C(1) << 31;
		uint32_t classes = 0;
		struct fal_buf b = { 0 };
		char text[40];
		if (fal_rng_below(&r, 2))
			fal_put_bytes(&b, "\xef\xbb\xbf", 3);
		for (uint32_t i = 0; i <= rows; i++) {
			for (uint32_t k = 0; k <= columns; k++) {
				const uint32_t c = k - (k > at);
				const double v = (double)(int32_t)fal_rng_u32(&r) / 997;
				if (i == 0)
					snprintf(text, sizeof(text),
						 k == at ? "the class" : "c%u", c);
				else if (k == at && !targets)
					snprintf(text, sizeof(text), "%u",
						 class[i - 1] = fal_rng_below(&r, most));
				else
					snprintf(text, sizeof(text),
						 fal_rng_below(&r, 2) ? "%.17g" : "%.17e",
						 v);
				const float narrow = (float)v;
				if (i > 0 && k != at)
					want[i - 1][c] = narrow;
				else if (i > 0 && targets)
					memcpy(&class[i - 1], &narrow, sizeof(narrow));
				if (k > 0)
					fal_put_u8(&b, (uint8_t)comma);
				put_field(&b, &r, text);
			}
			if (i < rows || fal_rng_below(&r, 2))
				fal_put_fmt(&b, "%s", eol);
		}
		const uint32_t n = used != 0 ? used : rows;
		for (uint32_t i = 0; i < n && !targets; i++)
			classes = class[i] >= classes ? class[i] + 1u : classes;
		const struct fal_csv t = { path, "the class", comma };
		const struct fal_set_opts opts = { .max_samples = used,
						   .targets = targets };
		struct fal_set set;
		struct fal_diag diag = { "" };
		spill(path, &b, fal_rng_below(&r, 2));
		if (fal_set_load_csv(&t, &opts, &set, &diag) < 0)
			fail_msg("seed %llu: %s", (unsigned long long)seed, diag.text);
		assert_int_equal(set.dtype, FAL_F32);
		assert_int_equal(set.n, n);
		assert_int_equal(set.classes, targets ? 1 : classes);
		assert_true(set.targets == targets);
		assert_int_equal(set.values, columns);
		assert_int_equal(set.shape[2], columns);
		for (uint32_t i = 0; i < n; i++) {
			assert_int_equal(set.labels[i], class[i]);
			assert_memory_equal(set.pixels + i * columns * sizeof(float),
					    want[i], columns * sizeof(float));
		}
		fal_set_free(&set);
		fal_buf_free(&b);
	}
}

/* As wide as a sample may be, and wider by a column. */
static void
table_width(void **state)
{
	(void)state;
	const struct fal_csv t = { path, "y", ',' };
	const struct fal_set_opts all = { 0 };
	const uint32_t most = FAL_SAMPLE_MAX / sizeof(float);
	for (uint32_t columns = most; columns <= most + 1; columns++) {
		struct fal_buf b = { 0 };
		struct fal_set set;
		struct fal_manifest m;
		struct fal_diag diag = { "" };
		fal_put_fmt(&b, "y");
		for (uint32_t i = 0; i < columns; i++)
			fal_put_fmt(&b, ",a");
		fal_put_fmt(&b, "\n1");
		for (uint32_t i = 0; i < columns; i++)
			fal_put_fmt(&b, ",2");
		spill(path, &b, false);
		int err = fal_set_load_csv(&t, &all, &set, &diag);
		if (columns > most) {
			assert_int_equal(err, FAL_ELIMIT);
			assert_non_null(strstr(diag.text, ":1: too many columns"));
		} else {
			assert_int_equal(err, 0);
			assert_int_equal(set.values, columns);
			assert_int_equal(fal_manifest_build(&set, NULL, &m), 0);
			assert_int_equal(m.train.per_chunk, 1);
			fal_manifest_free(&m);
			fal_set_free(&set);
		}
		fal_buf_free(&b);
	}
}

static void
table_refusals(void **state)
{
	(void)state;
	static const struct {
		const char *text, *want;
	} bad[] = {
		{ "", ":1: no header: the file is empty" },
		{ "a,b\n1,2\n", ":1: no column is called 'y' (data.label)" },
		{ "y;a\n1;2\n", ":1: no column is called 'y' (data.label): columns look "
				"separated by ';'" },
		{ "\"y\";\"a, b\";\"c\"\n1;2;3\n",
		  ":1: 'y' has text after its closing quote: columns look separated by "
		  "';'" },
		{ "y\ta\n1\t2\n",
		  ":1: no column is called 'y' (data.label): columns look "
		  "separated by tabs" },
		{ "y|a\n", ":1: no column is called 'y' (data.label): columns look "
			   "separated by '|'" },
		{ "a,b;c\n1,2\n", ":1: no column is called 'y' (data.label)" },
		{ "5.1,3.5,0\n4.9,3,1\n", ":1: no column is called 'y' (data.label): the "
					  "first line has numbers, no names" },
		{ "y\n1\n", ":1: no column but the label's" },
		{ "y,a,y\n1,2,3\n", ":1: two columns are called 'y'" },
		{ "y,,a\n1,2,3\n", ":1: column 2 has no name" },
		{ "y,a\n", ":2: no record after the header" },
		{ "y,a\n1,\n", ":2: column 'a': is empty" },
		{ "y,a\n1,2\n,2\n", ":3: column 'y': is empty" },
		{ "y,a\n1,\"\"\n", ":2: column 'a': is empty" },
		{ "y,a\n1,2\n\n1,2\n", ":3: an empty line" },
		{ "y,a\n1,2\n\n", ":3: an empty line" },
		{ "y,a\n1,2,3\n", ":2: more fields than the 2 of the header" },
		{ "y,a,b\n1,2\n", ":2: 2 fields, but the header has 3" },
		{ "y,a\n1,x\n", ":2: column 'a': 'x' is not a number" },
		{ "y,a\n1, 2\n", ":2: column 'a': ' 2' is not a number" },
		{ "y,a\n1,nan\n", ":2: column 'a': 'nan' is not a number" },
		{ "y,a\n1,1e39\n", ":2: column 'a': '1e39' is not a single-precision "
				   "number" },
		{ "y,a\n-1,1\n", ":2: column 'y': '-1' is not a class, a whole number "
				 "from 0 to 2147483647" },
		{ "y,a\n2147483648,1\n", ":2: column 'y': '2147483648' is not a class, a "
					 "whole number from 0 to 2147483647" },
		{ "y,a\n1.0,1\n", ":2: column 'y': '1.0' is not a class, a whole number "
				  "from 0 to 2147483647" },
		{ "y,a\n1,\"2\n", ":2: a quote that is not closed" },
		{ "y,a\n1,2\"\n", ":2: a quote within a field" },
		{ "y,a\n1,\"2\"3\n", ":2: '2' has text after its closing quote" },
		{ "y,a\r1,2\n", ":1: a CR that ends no line" },
		/* Lines are counted within quotes, too. */
		{ "y,\"a\nb\"\n1,2\n1,x\n", ":4: column 'a?b': 'x' is not a number" },
	};
	const struct fal_csv t = { path, "y", ',' };
	const struct fal_set_opts all = { 0 }, three = { .max_samples = 3 },
				  few = { .classes = 2 }, small = { .max_bytes = 4 };
	struct fal_set set;
	struct fal_diag diag;
	for (size_t i = 0; i < COUNT(bad); i++) {
		spill_text(bad[i].text);
		assert_true(fal_set_load_csv(&t, &all, &set, &diag) < 0);
		says(&diag, bad[i].want);
	}
	spill_text("y,a\n1,2\n1,2\n");
	assert_int_equal(fal_set_load_csv(&t, &three, &set, &diag), FAL_EINVAL);
	says(&diag, ": has 2 rows, not 3");
	assert_int_equal(fal_set_load_csv(&t, &small, &set, &diag), FAL_ELIMIT);
	spill_text("y,a\n2,2\n");
	assert_int_equal(fal_set_load_csv(&t, &few, &set, &diag), FAL_EFORMAT);
	says(&diag, ":2: column 'y': '2' is not a class, a whole number from 0 to 1");
}

/* Columns of drawn names, and a second file that has them in another order, or by another
 * name, or as they were; the label stands anywhere in both. */
static void
table_names(void **state)
{
	(void)state;
	enum { SAME, MOVED, RENAMED, WAYS };
	const struct fal_csv t = { path, "y", ',' };
	for (uint64_t seed = 0; seed < 300; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 6);
		const unsigned n = 2 + fal_rng_below(&r, 9);
		const unsigned way = fal_rng_below(&r, WAYS);
		char name[10][16], other[10][16], want[200];
		struct fal_columns columns = { 0 };
		struct fal_set_opts opts = { .columns = &columns };
		struct fal_set set = { 0 };
		unsigned first = n, label = 0;
		for (unsigned i = 0; i < n; i++)
			snprintf(name[i], sizeof(name[i]), "c%u %u", i,
				 fal_rng_below(&r, 1000));
		memcpy(other, name, sizeof(name));
		const unsigned at = fal_rng_below(&r, n);
		if (way == RENAMED)
			snprintf(other[at], sizeof(other[at]), "d%u", at);
		if (way == MOVED) {
			const unsigned to = (at + 1 + fal_rng_below(&r, n - 1)) % n;
			memcpy(other[at], name[to], sizeof(other[at]));
			memcpy(other[to], name[at], sizeof(other[to]));
		}
		for (unsigned i = n; i-- > 0;)
			first = strcmp(name[i], other[i]) != 0 ? i : first;
		for (unsigned file = 0; file < 2; file++) {
			struct fal_buf b = { 0 };
			label = fal_rng_below(&r, n + 1);
			for (unsigned line = 0; line < 2; line++)
				for (unsigned i = 0; i <= n; i++) {
					const unsigned c = i - (i > label);
					if (i == label)
						fal_put_fmt(&b, line == 0 ? "y" : "7");
					else if (line == 0)
						fal_put_fmt(&b, "%s",
							    file == 0 ? name[c]
								      : other[c]);
					else
						fal_put_fmt(&b, "%u", c);
					fal_put_fmt(&b, i < n ? "," : "\n");
				}
			spill(path, &b, fal_rng_below(&r, 2));
			fal_buf_free(&b);
			struct fal_diag diag = { "" };
			int err = file == 0 && fal_rng_below(&r, 2)
					  ? fal_csv_columns(&t, &columns, &diag)
					  : fal_set_load_csv(&t, &opts, &set, &diag);
			if (file == 1 && way != SAME) {
				snprintf(want, sizeof(want),
					 ":1: column %u is '%s', not '%s' as in %s",
					 first + (first >= label) + 1, other[first],
					 name[first], path);
				assert_int_equal(err, FAL_EFORMAT);
				says(&diag, want);
			} else if (err < 0) {
				fail_msg("seed %llu: %s", (unsigned long long)seed,
					 diag.text);
			} else if (file == 1 || set.n > 0) {
				assert_int_equal(set.labels[0], 7);
				for (unsigned i = 0; i < n; i++) {
					float v;
					memcpy(&v, set.pixels + i * sizeof(v), sizeof(v));
					assert_true(v == (float)i);
				}
				fal_set_free(&set);
			}
			set = (struct fal_set){ 0 };
			assert_int_equal(columns.n, n);
		}
		fal_columns_free(&columns);
	}
}

/* --- bytes -------------------------------------------------------------------------- */

static void
text_in_windows(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 100; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 2);
		const uint32_t bytes = 2 + fal_rng_below(&r, 300);
		const uint32_t window = 1 + fal_rng_below(&r, bytes - 1);
		const uint32_t have = (bytes - 1) / window;
		const uint32_t used = fal_rng_below(&r, have + 1);
		const struct fal_set_opts opts = { .max_samples = used };
		struct fal_set set;
		struct fal_buf b = { 0 };
		struct fal_diag diag = { "" };
		for (uint32_t i = 0; i < bytes; i++)
			fal_put_u8(&b, (uint8_t)fal_rng_u32(&r));
		spill(path, &b, fal_rng_below(&r, 2));
		if (fal_set_load_text(path, window, &opts, &set, &diag) < 0)
			fail_msg("seed %llu: %s", (unsigned long long)seed, diag.text);
		assert_int_equal(set.n, used != 0 ? used : have);
		assert_int_equal(set.values, window + 1);
		for (uint32_t i = 0; i < set.n; i++)
			assert_memory_equal(set.pixels + i * (window + 1),
					    b.p + i * window, window + 1);
		fal_set_free(&set);
		const struct fal_set_opts more = { .max_samples = have + 1 };
		assert_int_equal(fal_set_load_text(path, window, &more, &set, &diag),
				 FAL_EINVAL);
		assert_int_equal(fal_set_load_text(path, bytes, &opts, &set, &diag),
				 FAL_EFORMAT);
		fal_buf_free(&b);
	}
}

static void
cifar_records(void **state)
{
	(void)state;
	static const struct {
		enum fal_cifar kind;
		unsigned labels, label, classes;
	} kinds[] = { { FAL_CIFAR10, 1, 0, 10 },
		      { FAL_CIFAR100_FINE, 2, 1, 100 },
		      { FAL_CIFAR100_COARSE, 2, 0, 20 } };
	for (uint64_t seed = 0; seed < 12; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 3);
		const size_t k = seed % COUNT(kinds);
		const uint32_t n = 1 + fal_rng_below(&r, 4);
		const uint32_t record = kinds[k].labels + 3072;
		const struct fal_set_opts all = { 0 };
		struct fal_buf b = { 0 };
		struct fal_set set;
		struct fal_diag diag = { "" };
		for (uint32_t i = 0; i < n * record; i++)
			fal_put_u8(&b, i % record < kinds[k].labels
					       ? (uint8_t)fal_rng_below(&r, 10)
					       : (uint8_t)fal_rng_u32(&r));
		memcpy(b.p, "\0\0\x08", 3); /* as an IDX file begins */
		spill(path, &b, fal_rng_below(&r, 2));
		assert_int_equal(fal_set_load_cifar(path, kinds[k].kind, &all, &set,
						    &diag),
				 0);
		assert_int_equal(set.n, n);
		assert_int_equal(set.classes, kinds[k].classes);
		assert_int_equal(set.shape[0] * 10000 + set.shape[1] * 100 + set.shape[2],
				 33232);
		for (uint32_t i = 0; i < n; i++) {
			const uint8_t *at = b.p + i * record;
			assert_int_equal(set.labels[i], at[kinds[k].label]);
			assert_memory_equal(set.pixels + i * 3072, at + kinds[k].labels,
					    3072);
		}
		fal_set_free(&set);
		b.p[(n - 1) * record + kinds[k].label] = (uint8_t)kinds[k].classes;
		spill(path, &b, false);
		assert_int_equal(fal_set_load_cifar(path, kinds[k].kind, &all, &set,
						    &diag),
				 FAL_EFORMAT);
		char want[80];
		snprintf(want, sizeof(want), ": label %u of sample %u is not below %u",
			 kinds[k].classes, n - 1, kinds[k].classes);
		says(&diag, want);
		b.n--;
		spill(path, &b, false);
		assert_int_equal(fal_set_load_cifar(path, kinds[k].kind, &all, &set,
						    &diag),
				 FAL_EFORMAT);
		fal_buf_free(&b);
	}
}

/* --- from files to batches ---------------------------------------------------------- */

static double
label_of(const struct fal_set *set, uint32_t i)
{
	float v;
	memcpy(&v, &set->labels[i], sizeof(v));
	return set->targets ? (double)v : set->labels[i];
}

/* Labels of any type of whole numbers, as many classes as it has; targets of any. */
static void
pairs(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 200; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 4);
		const struct fal_set_opts all = { .targets = seed % 3 == 0 };
		struct drawn x = draw(&r, fal_rng_below(&r, COUNT(types)),
				      2 + fal_rng_below(&r, 3));
		struct drawn y = draw(&r, fal_rng_below(&r, COUNT(types)), 1);
		if (fal_rng_below(&r, 2))
			y.dim[y.ndim++] = 1; /* a column */
		struct fal_buf a = { 0 }, b = { 0 };
		struct fal_set set;
		struct fal_diag diag = { "" };
		const bool whole = types[y.type].npy[1] != 'f';
		const unsigned size = types[y.type].size;
		const uint32_t most = size == 1 ? 100 : size == 2 ? 30000 : 1 << 30;
		bool fits = (whole || all.targets) && y.n == x.dim[0];
		if (whole)
			fal_buf_clear(&y.bytes);
		for (uint32_t i = 0; i < y.n && whole; i++) {
			const int64_t v =
				(int64_t)fal_rng_below(&r, most) - (seed % 7 == 0);
			const bool sign = types[y.type].npy[1] == 'i';
			/* -1 is 255, or 65535, where there is no sign; of wider ones it
			 * is too large. */
			fits = fits && (all.targets || v >= 0 || (!sign && size < 4));
			y.value[i] = v >= 0 || sign
					     ? (double)v
					     : (double)(UINT64_MAX >> (64 - 8 * size));
			fal_put_bytes(&y.bytes, &v, types[y.type].size);
		}
		put_npy(&a, &x, &r);
		put_npy(&b, &y, &r);
		spill(path, &a, false);
		spill(labels_path, &b, false);
		int err = fal_set_load_arrays(FAL_FILETYPE_NPY, path, labels_path, &all,
					      &set, &diag);
		if ((err == FAL_OK) != fits)
			fail_msg("seed %llu: %d: %s", (unsigned long long)seed, err,
				 diag.text);
		for (uint32_t i = 0; err == FAL_OK && i < y.n; i++)
			assert_true(label_of(&set, i) ==
				    (all.targets ? (float)y.value[i] : y.value[i]));
		if (err == FAL_OK) {
			assert_int_equal(set.shape[2], x.dim[x.ndim - 1]);
			fal_set_free(&set);
		} else if (!whole && !all.targets && y.n == x.dim[0]) {
			assert_non_null(strstr(diag.text, "labels"));
		}
		fal_buf_free(&a);
		fal_buf_free(&b);
		drawn_free(&x);
		drawn_free(&y);
	}
}

/* Labels of several columns: one-hot ones are called that, be they floats. */
static void
one_hot(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 50; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 7);
		const struct fal_set_opts all = { 0 };
		const uint32_t n = 1 + fal_rng_below(&r, 9);
		const uint32_t classes = 2 + fal_rng_below(&r, 9);
		const bool spoilt = fal_rng_below(&r, 2);
		const uint32_t where = fal_rng_below(&r, n * classes);
		struct drawn x = { .ndim = 2, .dim = { n, 1 } };
		struct drawn y = { .ndim = 2, .dim = { n, classes }, .type = seed % 9 };
		const char *npy = types[y.type].npy;
		struct fal_buf a = { 0 }, b = { 0 };
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t one = fal_rng_below(&r, classes);
			fal_put_u8(&x.bytes, 0);
			for (uint32_t k = 0; k < classes; k++) {
				const bool other = spoilt && where == i * classes + k;
				const uint64_t v = (k == one) != other;
				const float f = (float)v;
				const double d = (double)v;
				fal_put_bytes(&y.bytes,
					      npy[1] != 'f'   ? (const void *)&v
					      : npy[2] == '4' ? (const void *)&f
							      : &d,
					      types[y.type].size);
			}
		}
		put_npy(&a, &x, &r);
		put_npy(&b, &y, &r);
		spill(path, &a, false);
		spill(labels_path, &b, false);
		struct fal_set set;
		struct fal_diag diag;
		const char *want = spoilt ? "2 dimensions: samples, not labels?"
					  : "one-hot labels: save the numbers of the "
					    "classes, argmax(axis=1)";
		assert_int_equal(fal_set_load_arrays(FAL_FILETYPE_NPY, path, labels_path,
						     &all, &set, &diag),
				 FAL_EFORMAT);
		assert_string_equal(diag.text + strlen(labels_path) + 2, want);
		fal_buf_free(&a);
		fal_buf_free(&b);
		fal_buf_free(&x.bytes);
		fal_buf_free(&y.bytes);
	}
}

/* A set of this type, with labels, drawn; what its manifest says, and a worker's copy of
 * it. */
static void
travel(struct fal_rng *r, size_t type)
{
	struct drawn d = draw(r, type, 4);
	const uint32_t n = d.dim[0], values = d.n / n;
	const unsigned size = types[type].size;
	/* Labels of a byte, wider ones, or targets. */
	const unsigned kind = fal_rng_below(r, 3);
	struct fal_set set = { .dtype = types[type].type,
			       .n = n,
			       .shape = { d.dim[1], d.dim[2], d.dim[3] },
			       .targets = kind == 2,
			       .classes = kind == 0   ? 1 + fal_rng_below(r, 256)
					  : kind == 1 ? 257 + fal_rng_below(r, 1 << 20)
						      : 1,
			       .values = values,
			       .sample_bytes = values * size,
			       .pixels = d.bytes.p,
			       .labels = calloc(n, sizeof(uint32_t)) };
	struct fal_manifest m, back;
	struct fal_buf bytes = { 0 }, again = { 0 };
	struct fal_samples *s;
	struct fal_order order;
	struct fal_norm norm;
	const struct fal_order_opts opts = { .n = n, .per_chunk = 1 };
	const float mean[16] = { 0.5f, 1, 2 },
		    std[16] = { 2, 0.5f, 3, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1 };
	float *x = calloc(d.n, sizeof(*x));
	int64_t *whole = calloc(d.n, sizeof(*whole));
	uint32_t label[5];
	for (uint32_t i = 0; i < n; i++) {
		const float v = fal_rng_unit(r) - 0.5f;
		set.labels[i] = fal_rng_below(r, set.classes);
		if (set.targets)
			memcpy(&set.labels[i], &v, sizeof(v));
	}
	const bool told = fal_rng_below(r, 2);
	assert_int_equal(fal_manifest_build(&set, NULL, &m), 0);
	if (told)
		assert_int_equal(fal_manifest_add_labels(&m, &set), 0);
	fal_manifest_encode(&m, &bytes);
	assert_int_equal(bytes.p[4], kind != 0                    ? 4
				     : types[type].type != FAL_U8 ? 3
								  : 1 + told);
	for (size_t cut = 0; cut < bytes.n; cut++)
		assert_true(fal_manifest_parse(bytes.p, cut, &back) < 0);
	assert_int_equal(fal_manifest_parse(bytes.p, bytes.n, &back), 0);
	assert_int_equal(back.train.dtype, types[type].type);
	assert_int_equal(back.train.sample_bytes, values * size);
	fal_manifest_encode(&back, &again);
	assert_memory_equal(again.p, bytes.p, bytes.n);
	assert_int_equal(fal_samples_new(&back.train, &s), 0);
	assert_int_equal(fal_samples_put_set(s, &set), 0);
	const uint32_t channels = fal_part_channels(&back.train);
	assert_int_equal(fal_norm_init(&norm, channels > 16 ? 1 : channels, mean, std),
			 0);
	assert_int_equal(fal_order_init(&order, &opts), 0);
	const struct fal_batch b = { s, &order, &norm };
	assert_int_equal(fal_batch_fill(&b, 0, n, x, label), 0);
	assert_memory_equal(label, set.labels, n * sizeof(*label));
	if (told)
		assert_memory_equal(back.train.labels, label, n * sizeof(*label));
	const bool is_whole = types[type].npy[1] != 'f';
	assert_int_equal(fal_batch_fill_integers(&b, 0, n, whole, label),
			 is_whole ? 0 : FAL_EINVAL);
	for (uint32_t i = 0; i < d.n; i++) {
		const uint32_t c = i % values / (values / norm.channels);
		const float v = (float)d.value[i];
		const float u = types[type].type == FAL_U8 ? v / 255.0f : v;
		assert_true(x[i] == (u - mean[c]) / std[c]);
		if (is_whole)
			assert_true((double)whole[i] == d.value[i]);
	}
	fal_order_free(&order);
	fal_samples_free(s);
	fal_manifest_free(&m);
	fal_manifest_free(&back);
	fal_buf_free(&bytes);
	fal_buf_free(&again);
	free(set.labels);
	free(x);
	free(whole);
	drawn_free(&d);
}

static void
types_travel(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 20; seed++)
		for (size_t type = 0; type + 1 < COUNT(types); type++) {
			struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 5);
			travel(&r, type);
		}
}

/* Samples that Falcon does not have. */
static void
by_index(void **state)
{
	(void)state;
	struct fal_set train, test;
	struct fal_manifest m, back;
	struct fal_buf bytes = { 0 };
	struct fal_samples *s;
	assert_int_equal(fal_set_make_absent(0, &train), FAL_EINVAL);
	assert_int_equal(fal_set_make_absent(60000, &train), 0);
	assert_int_equal(fal_set_make_absent(77, &test), 0);
	assert_int_equal(fal_manifest_build(&train, &test, &m), 0);
	fal_manifest_encode(&m, &bytes);
	assert_int_equal(fal_manifest_parse(bytes.p, bytes.n, &back), 0);
	assert_int_equal(back.train.n, 60000);
	assert_int_equal(back.test.n, 77);
	assert_int_equal(back.train.chunks + back.test.chunks, 0);
	assert_int_equal(fal_part_bytes(&back.train), 0);
	assert_int_equal(fal_samples_new(&back.train, &s), 0);
	assert_int_equal(fal_samples_put_chunk(s, 0, bytes.p, 0), FAL_ENOENT);
	fal_samples_free(s);
	/* With labels, as another type's, or with bytes' form, it is none. */
	bytes.p[6] = 1;
	assert_int_equal(fal_manifest_parse(bytes.p, bytes.n, &back), FAL_EFORMAT);
	bytes.p[6] = 0;
	bytes.p[5] = FAL_U8;
	assert_int_equal(fal_manifest_parse(bytes.p, bytes.n, &back), FAL_EFORMAT);
	bytes.p[5] = FAL_DTYPES;
	assert_int_equal(fal_manifest_parse(bytes.p, bytes.n, &back), FAL_EFORMAT);
	fal_manifest_free(&m);
	fal_buf_free(&bytes);
}

/* Sets that follow one another. */
static void
appended(void **state)
{
	(void)state;
	const struct fal_csv t = { path, "y", ',' };
	const struct fal_set_opts all = { 0 };
	struct fal_set a, b;
	spill_text("y,a\n1,2\n");
	assert_int_equal(fal_set_load_csv(&t, &all, &a, NULL), 0);
	spill_text("y,a\n4,5\n0,7\n");
	assert_int_equal(fal_set_load_csv(&t, &all, &b, NULL), 0);
	assert_int_equal(fal_set_append(&a, &b), 0);
	assert_null(b.pixels);
	assert_int_equal(a.n, 3);
	assert_int_equal(a.classes, 5);
	assert_memory_equal(a.labels, ((const uint32_t[]){ 1, 4, 0 }), 12);
	assert_memory_equal(a.pixels, ((const float[]){ 2, 5, 7 }), 12);
	spill_text("y,a,b\n4,5,6\n");
	assert_int_equal(fal_set_load_csv(&t, &all, &b, NULL), 0);
	assert_int_equal(fal_set_append(&a, &b), FAL_EINVAL);
	fal_set_free(&a);
	fal_set_free(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(arrays_come_back), cmocka_unit_test(npy_refusals),
		cmocka_unit_test(tensor_refusals),  cmocka_unit_test(tables_come_back),
		cmocka_unit_test(table_width),      cmocka_unit_test(table_refusals),
		cmocka_unit_test(table_names),      cmocka_unit_test(text_in_windows),
		cmocka_unit_test(cifar_records),    cmocka_unit_test(pairs),
		cmocka_unit_test(one_hot),          cmocka_unit_test(types_travel),
		cmocka_unit_test(by_index),         cmocka_unit_test(appended),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, make_dir, remove_dir);
}
