/* safetensors: the bytes written, and what is refused when read. */
#include "base/mem.h"
#include "job/job.h"
#include "model/safetensors.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static const char text[] = "input 2\ndense 3\nrelu\ndense 2";
#define FLOATS 17u /* 3·2 + 3 + 2·3 + 2 */

static struct fal_model *m;
static float params[FLOATS];

static int
open_model(void **state)
{
	(void)state;
	for (unsigned i = 0; i < FLOATS; i++)
		params[i] = 0.5f + (float)i;
	return fal_model_parse("m", text, strlen(text), &m, NULL);
}

static int
close_model(void **state)
{
	(void)state;
	fal_model_free(m);
	return 0;
}

/* A file of this header and `data` bytes: the parameters, again and again. */
static struct fal_buf
file_of(const char *header, size_t data)
{
	struct fal_buf b = { 0 };
	fal_put_u64(&b, strlen(header));
	fal_put_bytes(&b, header, strlen(header));
	for (size_t i = 0; i < data; i++)
		fal_put_u8(&b, ((const uint8_t *)params)[i % sizeof(params)]);
	assert_int_equal(b.err, 0);
	return b;
}

static int
get(const struct fal_buf *b, size_t n, float *out, struct fal_diag *diag)
{
	/* An exact copy, so that a sanitizer sees each read beyond the end. */
	void *copy = fal_calloc(n, 1);
	assert_non_null(copy);
	if (n > 0)
		memcpy(copy, b->p, n);
	const struct fal_safetensors f = { "f", copy, n, NULL, NULL };
	int err = fal_safetensors_get(&f, m, out, diag);
	free(copy);
	return err;
}

#define T0 "\"0.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[0,24]}"
#define T1 "\"0.bias\":{\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[24,36]}"
#define T2 "\"2.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[36,60]}"
#define T3 "\"2.bias\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[60,68]}"
#define NONE ",\"x\":{\"dtype\":\"I8\",\"shape\":[0],\"data_offsets\":[68,68]}"
#define META "\"__metadata__\":{\"z\":\"\xc3\xa9\\u000a\",\"a\":\"1\"},"

static void
expect_bytes(const struct fal_metadata *meta, size_t n, const char *json)
{
	struct fal_buf b = { 0 };
	assert_int_equal(fal_safetensors_put(m, params, meta, n, &b), 0);
	size_t len = strlen(json), padded = (len + 7) & ~(size_t)7;
	assert_int_equal(b.n, 8 + padded + sizeof(params));
	assert_int_equal(b.p[0] | b.p[1] << 8, padded);
	assert_memory_equal(b.p + 8, json, len);
	for (size_t i = len; i < padded; i++)
		assert_int_equal(b.p[8 + i], ' ');
	assert_memory_equal(b.p + 8 + padded, params, sizeof(params));
	float back[FLOATS] = { 0 };
	struct fal_diag diag;
	if (get(&b, b.n, back, &diag) != 0)
		fail_msg("%s", diag.text);
	assert_memory_equal(back, params, sizeof(params));
	fal_buf_free(&b);
}

static void
test_round_trip(void **state)
{
	(void)state;
	expect_bytes(NULL, 0, "{" T0 "," T1 "," T2 "," T3 "}");
	expect_bytes((const struct fal_metadata[]){ { "z", "\xc3\xa9\n" }, { "a", "1" } },
		     2, "{" META T0 "," T1 "," T2 "," T3 "}");
}

static void
test_bad_metadata(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	const struct fal_metadata twice[] = { { "a", "1" }, { "a", "2" } };
	const struct fal_metadata latin[] = { { "a", "\xe9" } };
	assert_int_equal(fal_safetensors_put(m, params, twice, 2, &b), FAL_EINVAL);
	assert_int_equal(fal_safetensors_put(m, params, latin, 1, &b), FAL_EINVAL);
	assert_int_equal(b.n, 0);
	fal_buf_free(&b);
}

static void
test_any_order(void **state)
{
	(void)state;
	struct fal_buf b = file_of(
		"{" T2 "," T3
		",\"0.bias\":{\"data_offsets\":[0,12],\"shape\":[3],\"dtype\":\"F32\"},"
		"\"0.weight\":{\"dtype\":\"F32\",\"shape\":[3,2],\"data_offsets\":[12,36]"
		"}}",
		68);
	float back[FLOATS];
	struct fal_diag diag;
	if (get(&b, b.n, back, &diag) != 0)
		fail_msg("%s", diag.text);
	assert_true(back[6] == params[0]); /* 0.bias lies first in the file */
	assert_true(back[0] == params[3]);
	assert_true(back[9] == params[9]);
	fal_buf_free(&b);
}

static void
test_refusals(void **state)
{
	(void)state;
	static const struct {
		const char *header;
		size_t data;
		const char *diag;
	} cases[] = {
		{ "", 68, "f: header does not begin with '{'" },
		{ " {" T0 "," T1 "," T2 "," T3 "}", 68,
		  "f: header does not begin with '{'" },
		{ "{" T0 "," T1 "," T2 "," T3 "}x", 68,
		  "f: header: end of file expected" },
		{ "{" T0 "," T1 "," T2 "," T3 "}", 67,
		  "f: tensor '2.bias' has bad data_offsets" },
		{ "{" T0 "," T1 "," T2 "," T3 "}", 69,
		  "f: trailing bytes after the data" },
		{ "{" T0 "," T1 "," T2 "}", 60,
		  "f: has no tensor '2.bias', which the model has" },
		{ "{" T0 "," T1 "," T2 "," T3 NONE "}", 68,
		  "f: tensor 'x' is none of the model's" },
		{ "{" T0 "," T1 "," T2
		  ",\"x\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[60,68]}}",
		  68, "f: has no tensor '2.bias', which the model has" },
		{ "{" T0 "," T1 "," T2 "," T3 "," T3 "}", 68,
		  "f: header: duplicate object key" },
		{ "{\"__metadata__\":{\"a\":1}," T0 "," T1 "," T2 "," T3 "}", 68,
		  "f: metadata 'a' is not a string" },
		{ "{\"__metadata__\":[]," T0 "," T1 "," T2 "," T3 "}", 68,
		  "f: '__metadata__' is not an object" },
#define LAST(body) "{" T0 "," T1 "," T2 ",\"2.bias\":{" body "}}"
		{ LAST("\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[60,68]"), 68,
		  "f: tensor '2.bias' has more or fewer bytes than its shape" },
		{ LAST("\"dtype\":\"F64\",\"shape\":[2],\"data_offsets\":[60,68]"), 68,
		  "f: tensor '2.bias' is F64, but F32, F16 or BF16 is wanted" },
		{ LAST("\"dtype\":7,\"shape\":[2],\"data_offsets\":[60,68]"), 68,
		  "f: tensor '2.bias' is malformed" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[3],\"data_offsets\":[60,68]"), 68,
		  "f: tensor '2.bias' has the shape [3], but the model wants [2]" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[60,68]"), 68,
		  "f: tensor '2.bias' has the shape [2,1], but the model wants [2]" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2.0],\"data_offsets\":[60,68]"), 68,
		  "f: tensor '2.bias' has a dimension that is not a number" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[60,72]"), 72,
		  "f: tensor '2.bias' has more or fewer bytes than its shape" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[68,60]"), 68,
		  "f: tensors overlap or leave a gap at byte 60 of the data" },
		/* An empty tensor has its place among those that begin there. */
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[60,68]},\"x\":{"
		       "\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[60,60]"),
		  68, "f: tensor 'x' is none of the model's" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[-8,0]"), 68,
		  "f: tensor '2.bias' has bad data_offsets" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[60]"), 68,
		  "f: tensor '2.bias' has bad data_offsets" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[60,68,1]"), 68,
		  "f: tensor '2.bias' has bad data_offsets" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[56,64]"), 68,
		  "f: tensors overlap or leave a gap at byte 60 of the data" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[64,72]"), 72,
		  "f: tensors overlap or leave a gap at byte 60 of the data" },
		{ LAST("\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[60,68],\"x\":"
		       "1"),
		  68, "f: tensor '2.bias' is malformed" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_buf b = file_of(cases[i].header, cases[i].data);
		struct fal_diag diag = { "" };
		float back[FLOATS] = { 0 };
		int err = get(&b, b.n, back, &diag);
		if (err != FAL_EFORMAT ||
		    strncmp(diag.text, cases[i].diag, strlen(cases[i].diag)) != 0)
			fail_msg("case %zu: %d \"%s\", expected \"%s\"", i, err,
				 diag.text, cases[i].diag);
		for (unsigned j = 0; j < FLOATS; j++)
			assert_true(back[j] == 0.0f);
		fal_buf_free(&b);
	}
}

/* Of 16 bits, beside others. */
static void
test_halves(void **state)
{
	(void)state;
	static const char header[] =
		"{\"0.weight\":{\"dtype\":\"F16\",\"shape\":[3,2],\"data_offsets\":[0,12]"
		"},"
		"\"0.bias\":{\"dtype\":\"BF16\",\"shape\":[3],\"data_offsets\":[12,18]},"
		"\"2.weight\":{\"dtype\":\"F32\",\"shape\":[2,3],\"data_offsets\":[18,42]"
		"},"
		"\"2.bias\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[42,46]}}";
	static const uint16_t half[] = { 0x3c00, 0xc000, 0x7bff, 0x0001, 0x83ff,
					 0x3555, 0x3f80, 0xff7f, 0x0001 };
	static const float is[] = {
		1,           -2, 65504,        0x1p-24f, -0x1.ff8p-15f,
		0x1.554p-2f, 1,  -0x1.fep127f, 0x1p-133f
	};
	struct fal_buf b = { 0 };
	float back[FLOATS];
	struct fal_diag diag;
	fal_put_u64(&b, strlen(header));
	fal_put_bytes(&b, header, strlen(header));
	fal_put_bytes(&b, half, sizeof(half));
	fal_put_bytes(&b, params, 6 * sizeof(float));
	fal_put_u16(&b, 0x8000);
	fal_put_u16(&b, 0xfc00);
	if (get(&b, b.n, back, &diag) != 0)
		fail_msg("%s", diag.text);
	assert_memory_equal(back, is, sizeof(is));
	assert_memory_equal(back + 9, params, 6 * sizeof(float));
	assert_true(back[15] == 0 && signbit(back[15]) && back[16] == -INFINITY);
	fal_buf_free(&b);
}

static void
test_sizes(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	float back[FLOATS];
	assert_int_equal(fal_safetensors_put(m, params, NULL, 0, &b), 0);
	for (size_t n = 0; n < b.n; n++)
		if (get(&b, n, back, NULL) == 0)
			fail_msg("%zu of %zu bytes are accepted", n, b.n);
	assert_int_equal(get(&b, 7, back, NULL), FAL_ETRUNC);
	b.p[3] = 1; /* a header of 16 MiB */
	assert_int_equal(get(&b, b.n, back, NULL), FAL_ELIMIT);
	memset(b.p, 0xff, 8);
	assert_int_equal(get(&b, b.n, back, NULL), FAL_ELIMIT);
	fal_buf_free(&b);
}

/* Every byte of length and header, changed in 255 ways: refused, unless it is still such
 * a file (a digit cannot change, a space may become another blank). */
static void
test_mutations(void **state)
{
	(void)state;
	struct fal_buf b = { 0 };
	float back[FLOATS];
	unsigned refused = 0, tried = 0;
	assert_int_equal(fal_safetensors_put(m, params, NULL, 0, &b), 0);
	for (size_t i = 0; i < b.n - sizeof(params); i++)
		for (unsigned x = 1; x < 256; x++, tried++) {
			b.p[i] ^= (uint8_t)x;
			if (get(&b, b.n, back, NULL) != 0)
				refused++;
			else
				assert_memory_equal(back, params, sizeof(params));
			b.p[i] ^= (uint8_t)x;
		}
	print_message("# %u of %u mutations refused\n", refused, tried);
	assert_true(refused + 32 > tried);
	fal_buf_free(&b);
}

/* ---- names and shapes ---- */

static bool
is_counter(const void *arg, const char *tensor)
{
	(void)arg;
	return strstr(tensor, "tracked") != NULL;
}

static int
names(const struct fal_buf *b, size_t n, struct fal_model **out, struct fal_diag *diag)
{
	void *copy = fal_calloc(n, 1);
	assert_non_null(copy);
	if (n > 0)
		memcpy(copy, b->p, n);
	const struct fal_safetensors f = { "f", copy, n, is_counter, NULL };
	int err = fal_safetensors_model(&f, out, diag);
	free(copy);
	return err;
}

/* A file of any order becomes a flat vector in the order of its data; what is sent of it
 * is the same model to whoever reads that. */
static void
test_names(void **state)
{
	(void)state;
	struct fal_buf b = file_of(
		"{\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,1,2],\"data_offsets\":[20,"
		"36]},"
		"\"__metadata__\":{\"format\":\"pt\",\"scale\":\"frozen\",\"a.weight\":"
		"\"not\","
		"\"none\":\"frozen\"},"
		"\"scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
		"\"a.weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]}} "
		" ",
		36);
	struct fal_model *got, *again;
	struct fal_buf sent = { 0 };
	struct fal_diag diag = { "" };
	if (names(&b, b.n, &got, &diag) != 0)
		fail_msg("%s", diag.text);
	assert_int_equal(fal_safetensors_header(got, &sent), 0);
	static const char want[] =
		"{\"__metadata__\":{\"scale\":\"frozen\"},"
		"\"a.weight\":{\"dtype\":\"F32\",\"shape\":[4],\"data_offsets\":[0,16]},"
		"\"scale\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[16,20]},"
		"\"b.weight\":{\"dtype\":\"F32\",\"shape\":[2,1,2],\"data_offsets\":[20,"
		"36]}}";
	assert_int_equal(sent.n, sizeof(want) - 1);
	assert_memory_equal(sent.p, want, sent.n);
	assert_int_equal(fal_model_parse("t", (const char *)sent.p, sent.n, &again,
					 &diag),
			 0);
	assert_int_equal(again->layers, 0);
	assert_int_equal(again->params, 9);
	assert_int_equal(again->tensors, 3);
	assert_string_equal(again->tensor[2].name, "b.weight");
	assert_int_equal(again->tensor[2].offset, 5);
	assert_int_equal(again->tensor[2].dims, 3);
	assert_true(again->tensor[1].frozen && !again->tensor[0].frozen);
	struct fal_job job = { 0 };
	assert_int_equal(fal_job_set_ranges(&job, again, &diag), 0);
	assert_int_equal(job.optim.ranges, 1);
	assert_int_equal(job.optim.range[0].first, 4);
	assert_int_equal(job.optim.range[0].count, 1);
	assert_int_equal(job.optim.range[0].rule, FAL_RANGE_FROZEN);
	fal_job_free(&job);
	struct fal_buf put = { 0 };
	assert_int_equal(fal_safetensors_put(again, params, NULL, 0, &put), 0);
	assert_true(put.n <= fal_safetensors_bound(again, 0));
	fal_buf_free(&put);
	fal_buf_free(&sent);
	fal_buf_free(&b);
	fal_model_free(got);
	fal_model_free(again);
}

#define ONE(rest) "{\"w\":{\"dtype\":\"F32\"," rest "}}"

static void
test_names_refused(void **state)
{
	(void)state;
	static const struct {
		const char *header;
		size_t data;
		int err;
		const char *diag;
	} cases[] = {
		{ "{}", 0, FAL_EFORMAT, "f: has no 'tensors'" },
		{ "{\"w\":{\"dtype\":\"F16\",\"shape\":[2],\"data_offsets\":[0,4]}}", 4,
		  FAL_EFORMAT, "f: tensor 'w' is not F32" },
		{ "{\"w\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8,
		  FAL_EFORMAT, "f: tensor 'w' is not F32" },
		{ ONE("\"shape\":[2],\"data_offsets\":[0,8]"), 12, FAL_EFORMAT,
		  "f: trailing bytes after the data" },
		{ ONE("\"shape\":[2],\"data_offsets\":[4,12]"), 12, FAL_EFORMAT,
		  "f: tensors overlap or leave a gap at byte 0 of the data" },
		{ ONE("\"shape\":[2],\"data_offsets\":[2,10]"), 12, FAL_EFORMAT,
		  "f: tensors overlap or leave a gap at byte 0 of the data" },
		{ ONE("\"shape\":[3],\"data_offsets\":[0,8]"), 8, FAL_EFORMAT,
		  "f: tensor 'w' has more or fewer bytes than its shape" },
		{ ONE("\"shape\":[0],\"data_offsets\":[0,0]"), 0, FAL_EFORMAT,
		  "f: tensor 'w' is empty" },
		{ ONE("\"shape\":[1,1,1,1,1,1,1,1,1],\"data_offsets\":[0,4]"), 4,
		  FAL_EFORMAT, "f: tensor 'w' has more than 8 dimensions" },
		{ ONE("\"shape\":[65536,65536,65536,65536],\"data_offsets\":[0,0]"), 0,
		  FAL_ELIMIT, "f: tensor 'w' has more than 2^31 values" },
		{ "{\"a\\nb\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}",
		  4, FAL_EFORMAT, "f: 'a?b' is not a name for a tensor" },
		{ "{\"\":{\"dtype\":\"F32\",\"shape\":[1],\"data_offsets\":[0,4]}}", 4,
		  FAL_EFORMAT, "f: '' is not a name for a tensor" },
		{ "{\"__metadata__\":{\"a\":1}}", 0, FAL_EFORMAT,
		  "f: metadata 'a' is not a string" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct fal_buf b = file_of(cases[i].header, cases[i].data);
		struct fal_diag diag = { "" };
		struct fal_model *got;
		int err = names(&b, b.n, &got, &diag);
		if (err != cases[i].err || strcmp(diag.text, cases[i].diag) != 0)
			fail_msg("case %zu: %d \"%s\", expected %d \"%s\"", i, err,
				 diag.text, cases[i].err, cases[i].diag);
		fal_buf_free(&b);
	}
	struct fal_buf b = file_of("{" T0 "," T1 "," T2 "," T3 "}", 68);
	struct fal_model *got;
	for (size_t n = 0; n < b.n; n++)
		if (names(&b, n, &got, NULL) == 0)
			fail_msg("%zu of %zu bytes are accepted", n, b.n);
	fal_buf_free(&b);
}

/* Counters are passed over, wherever they stand; floats of such names stay, and so do
 * other integers, which are refused. */
static void
test_counters(void **state)
{
	(void)state;
	static const char header[] =
		"{\"tracked.mean\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":["
		"24,32]},"
		"\"__metadata__\":{\"format\":\"pt\"},"
		"\"a.tracked\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]},"
		"\"a\":{\"dtype\":\"F32\",\"shape\":[2,2],\"data_offsets\":[8,24]},"
		"\"b.tracked\":{\"dtype\":\"BOOL\",\"shape\":[1],\"data_offsets\":[32,"
		"33]}}";
	struct fal_buf b = file_of(header, 33);
	struct fal_diag diag = { "" };
	struct fal_model *got;
	float back[6];
	for (size_t i = 0; i < 33; i++)
		b.p[b.n - 33 + i] = (uint8_t)i;
	if (names(&b, b.n, &got, &diag) != 0)
		fail_msg("%s", diag.text);
	assert_int_equal(got->tensors, 2);
	assert_string_equal(got->tensor[0].name, "a");
	assert_string_equal(got->tensor[1].name, "tracked.mean");
	assert_int_equal(got->tensor[1].offset, 4);
	assert_int_equal(got->params, 6);
	const struct fal_safetensors f = { "f", b.p, b.n, is_counter, NULL };
	if (fal_safetensors_get(&f, got, back, &diag) != 0)
		fail_msg("%s", diag.text);
	assert_memory_equal(back, b.p + b.n - 25, 24);
	const struct fal_safetensors all = { "f", b.p, b.n, NULL, NULL };
	assert_int_equal(fal_safetensors_get(&all, got, back, &diag), FAL_EFORMAT);
	assert_string_equal(diag.text, "f: tensor 'a.tracked' is none of the model's");
	fal_model_free(got);
	for (size_t n = 0; n < b.n; n++)
		if (names(&b, n, &got, &diag) == 0)
			fail_msg("%zu of %zu bytes are accepted", n, b.n);
	fal_buf_free(&b);
	b = file_of("{\"n\":{\"dtype\":\"I64\",\"shape\":[],\"data_offsets\":[0,8]}}", 8);
	assert_int_equal(names(&b, b.n, &got, &diag), FAL_EFORMAT);
	assert_string_equal(diag.text, "f: tensor 'n' is not F32");
	fal_buf_free(&b);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_round_trip),    cmocka_unit_test(test_bad_metadata),
		cmocka_unit_test(test_any_order),     cmocka_unit_test(test_refusals),
		cmocka_unit_test(test_halves),        cmocka_unit_test(test_sizes),
		cmocka_unit_test(test_mutations),     cmocka_unit_test(test_names),
		cmocka_unit_test(test_names_refused), cmocka_unit_test(test_counters),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, open_model, close_model);
}
