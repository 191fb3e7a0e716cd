/* lib/base: bytes, strict numbers, checked memory. */
#include "base/buf.h"
#include "base/err.h"
#include "base/filetype.h"
#include "base/json.h"
#include "base/mem.h"
#include "base/parse.h"
#include "base/quantile.h"
#include "base/ratelimit.h"
#include "base/rng.h"
#include "base/text.h"

#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define COUNT(a) (sizeof(a) / sizeof((a)[0]))

/* Wherever the room that there is ends. */
static void
test_put_fmt(void **state)
{
	struct fal_buf b = { 0 };
	char want[400];
	(void)state;
	for (size_t before = 0; before < 130; before++)
		for (int n = 0; n < 130; n++) {
			fal_buf_clear(&b);
			for (size_t i = 0; i < before; i++)
				fal_put_u8(&b, 'b');
			snprintf(want, sizeof(want), "%*d|%s", n, n, "end");
			fal_put_fmt(&b, "%*d|%s", n, n, "end");
			assert_int_equal(b.err, FAL_OK);
			assert_int_equal(b.n, before + strlen(want));
			assert_memory_equal(b.p + before, want, strlen(want));
			if (n % 7 == 0)
				fal_buf_free(&b);
		}
	fal_buf_free(&b);
}

static double
some_number(struct fal_rng *r)
{
	const double unit = (double)fal_rng_u64(r) * 0x1p-64;
	switch (fal_rng_below(r, 6)) {
	case 0:
		return unit;
	case 1: /* as near to one as to another: of a 128th 10^6 is a half */
		return (double)(fal_rng_u64(r) >> fal_rng_below(r, 60)) / 128;
	case 2:
		return (double)(fal_rng_u32(r) % 2000000) * 1e-6;
	case 3:
		return ((double)(fal_rng_u32(r) % 2000000) + 0.5) * 1e-6;
	case 4:
		return unit * 2e9;
	default:
		return -unit;
	}
}

static void
test_fixed_is_printf(void **state)
{
	static const double odd[] = { 0, -0.0, 1e9, 999999999.9999995, 5e-7, 1e300 };
	struct fal_rng r = fal_rng_init(1, FAL_RNG_TEST, 0);
	struct fal_buf b = { 0 };
	char want[400];
	(void)state;
	for (size_t i = 0; i < 200000; i++) {
		const double v = i < COUNT(odd) ? odd[i] : some_number(&r);
		const int decimals = i % 10 == 9 ? (int)fal_rng_below(&r, 9) : 6;
		fal_buf_clear(&b);
		fal_json_fixed(&b, v, decimals);
		fal_put_u8(&b, '\0');
		snprintf(want, sizeof(want), "%.*f", decimals, v);
		assert_string_equal((const char *)b.p, want);
	}
	fal_buf_free(&b);
}

static void
test_put_layout(void **state)
{
	static const uint8_t want[] = { 0x01, 0x03, 0x02, 0x07, 0x06, 0x05, 0x04,
					0x0f, 0x0e, 0x0d, 0x0c, 0x0b, 0x0a, 0x09,
					0x08, 2,    0,    'h',  'i',  '4',  '2' };
	struct fal_buf b = { 0 };
	(void)state;
	fal_put_u8(&b, 0x01);
	fal_put_u16(&b, 0x0203);
	fal_put_u32(&b, 0x04050607);
	fal_put_u64(&b, 0x08090a0b0c0d0e0f);
	fal_put_str(&b, "hi");
	fal_put_fmt(&b, "%d", 42);
	assert_int_equal(b.err, FAL_OK);
	assert_int_equal(b.n, sizeof(want));
	assert_memory_equal(b.p, want, sizeof(want));
	fal_buf_clear(&b);
	assert_int_equal(b.n, 0);
	fal_buf_free(&b);
	assert_null(b.p);
}

static void
test_round_trip(void **state)
{
	struct fal_buf b = { 0 };
	char name[8];
	(void)state;
	fal_put_u64(&b, UINT64_MAX - 1);
	fal_put_str(&b, "seven77");
	fal_put_u16(&b, 65535);
	struct fal_rd r = fal_rd_init(b.p, b.n);
	assert_int_equal(fal_get_u64(&r), UINT64_MAX - 1);
	fal_get_str(&r, name, sizeof(name));
	assert_string_equal(name, "seven77");
	assert_int_equal(fal_get_u16(&r), 65535);
	assert_int_equal(fal_rd_end(&r), FAL_OK);
	fal_buf_free(&b);
}

static void
test_put_errors_stick(void **state)
{
	struct fal_buf b = { 0 };
	char *longest = malloc(65537);
	(void)state;
	assert_non_null(longest);
	memset(longest, 'x', 65536);
	longest[65536] = '\0';
	fal_put_str(&b, longest);
	assert_int_equal(b.err, FAL_ELIMIT);
	fal_put_u8(&b, 1);
	assert_int_equal(b.n, 0);
	fal_buf_clear(&b);
	fal_put_str(&b, longest + 1);
	assert_int_equal(b.err, FAL_OK);
	assert_int_equal(b.n, 65537);
	assert_null(fal_buf_room(&b, SIZE_MAX));
	assert_int_equal(b.err, FAL_ENOMEM);
	fal_buf_free(&b);
	free(longest);
}

/* The room of nothing is an address, so that NULL always is an error. */
static void
test_room_of_nothing(void **state)
{
	struct fal_buf b = { 0 };
	(void)state;
	assert_non_null(fal_buf_room(&b, 0));
	assert_int_equal(b.n, 0);
	assert_int_equal(b.err, FAL_OK);
	fal_put_u8(&b, 7);
	assert_ptr_equal(fal_buf_room(&b, 0), b.p + 1);
	assert_int_equal(b.n, 1);
	fal_buf_free(&b);
	fal_put_bytes(&b, NULL, 0);
	assert_int_equal(b.err, FAL_OK);
	fal_buf_free(&b);
}

/* Every way to run short, and what the cursor does afterwards. */
static void
test_get_errors_stick(void **state)
{
	static const uint8_t in[] = { 1, 2, 3 };
	struct fal_rd r = fal_rd_init(in, 3);
	(void)state;
	assert_int_equal(fal_get_u32(&r), 0);
	assert_int_equal(r.err, FAL_ETRUNC);
	assert_int_equal(fal_get_u8(&r), 0);
	assert_int_equal(fal_rd_end(&r), FAL_ETRUNC);

	r = fal_rd_init(in, 3);
	assert_int_equal(fal_get_u16(&r), 0x0201);
	assert_int_equal(fal_rd_end(&r), FAL_EFORMAT); /* trailing byte */
	assert_null(fal_get_bytes(&r, SIZE_MAX));
	assert_int_equal(r.err, FAL_ETRUNC);

	r = fal_rd_init(NULL, 0);
	assert_int_equal(fal_rd_end(&r), FAL_OK);
	assert_int_equal(fal_get_u8(&r), 0);
	assert_int_equal(fal_rd_end(&r), FAL_ETRUNC);
}

static void
test_get_str_is_strict(void **state)
{
	static const struct {
		const char *in;
		size_t n;
		int err;
	} bad[] = {
		{ "\3\0ab", 4, FAL_ETRUNC },    /* shorter than it says */
		{ "\4\0abcd", 6, FAL_EFORMAT }, /* no room for the NUL */
		{ "\2\0a\n", 4, FAL_EFORMAT },  /* control character */
		{ "\2\0a\0", 4, FAL_EFORMAT },  { "\2\0a\x7f", 4, FAL_EFORMAT },
		{ "\1", 1, FAL_ETRUNC },
	};
	char out[4];
	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		struct fal_rd r = fal_rd_init(bad[i].in, bad[i].n);
		memset(out, 'x', sizeof(out));
		fal_get_str(&r, out, sizeof(out));
		assert_int_equal(r.err, bad[i].err);
		assert_string_equal(out, "");
	}
	struct fal_rd r = fal_rd_init("\3\0a\xc3\xa9", 5);
	fal_get_str(&r, out, sizeof(out));
	assert_int_equal(fal_rd_end(&r), FAL_OK);
	assert_string_equal(out, "a\xc3\xa9");
}

static void
test_parse_u64(void **state)
{
	static const struct {
		const char *s;
		int err;
	} bad[] = {
		{ "", FAL_EFORMAT },
		{ " 1", FAL_EFORMAT },
		{ "1 ", FAL_EFORMAT },
		{ "+1", FAL_EFORMAT },
		{ "-1", FAL_EFORMAT },
		{ "0x10", FAL_EFORMAT },
		{ "1.0", FAL_EFORMAT },
		{ "o1", FAL_EFORMAT },
		{ "9", FAL_ELIMIT },
		{ "101", FAL_ELIMIT },
		{ "18446744073709551616", FAL_ELIMIT },
		{ "99999999999999999999999", FAL_ELIMIT },
	};
	uint64_t v = 77;
	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(fal_parse_u64(bad[i].s, 10, 100, &v), bad[i].err);
		assert_int_equal(v, 77);
	}
	assert_int_equal(fal_parse_u64("10", 10, 100, &v), FAL_OK);
	assert_int_equal(v, 10);
	assert_int_equal(fal_parse_u64("100", 10, 100, &v), FAL_OK);
	assert_int_equal(v, 100);
	assert_int_equal(fal_parse_u64("18446744073709551615", 0, UINT64_MAX, &v),
			 FAL_OK);
	assert_int_equal(v, UINT64_MAX);
	static const struct {
		const char *s;
		int err;
		uint32_t min, max;
	} range[] = {
		{ "2", FAL_OK, 2, 2 },        { "2:5", FAL_OK, 2, 5 },
		{ "9:9", FAL_OK, 9, 9 },      { "1:5", FAL_ELIMIT, 0, 0 },
		{ "10", FAL_ELIMIT, 0, 0 },   { "5:10", FAL_ELIMIT, 0, 0 },
		{ "5:2", FAL_ELIMIT, 0, 0 },  { "2:", FAL_EFORMAT, 0, 0 },
		{ ":2", FAL_EFORMAT, 0, 0 },  { "2:5:6", FAL_EFORMAT, 0, 0 },
		{ "2x", FAL_EFORMAT, 0, 0 },  { "", FAL_EFORMAT, 0, 0 },
		{ "2;5", FAL_EFORMAT, 0, 0 },
	};
	for (size_t i = 0; i < COUNT(range); i++) {
		uint32_t min = 0, max = 0;
		assert_int_equal(fal_parse_range(range[i].s, 2, 9, &min, &max),
				 range[i].err);
		assert_int_equal(min, range[i].min);
		assert_int_equal(max, range[i].max);
	}
}

static void
test_parse_double(void **state)
{
	static const struct {
		const char *s;
		int err;
	} bad[] = {
		{ "", FAL_EFORMAT },    { " 1", FAL_EFORMAT },   { "1 ", FAL_EFORMAT },
		{ "nan", FAL_EFORMAT }, { "inf", FAL_EFORMAT },  { "0x1p3", FAL_EFORMAT },
		{ "o.1", FAL_EFORMAT }, { "1e", FAL_EFORMAT },   { "1,5", FAL_EFORMAT },
		{ "--1", FAL_EFORMAT }, { "1e999", FAL_ELIMIT }, { "10.5", FAL_ELIMIT },
		{ "-1.5", FAL_ELIMIT }, { ".", FAL_EFORMAT },
	};
	double v = 77;
	(void)state;
	for (size_t i = 0; i < COUNT(bad); i++) {
		assert_int_equal(fal_parse_double(bad[i].s, -1, 10, &v), bad[i].err);
		assert_true(v == 77.0);
	}
	assert_int_equal(fal_parse_double("1e-3", -1, 10, &v), FAL_OK);
	assert_true(v == 1e-3);
	assert_int_equal(fal_parse_double("-1", -1, 10, &v), FAL_OK);
	assert_true(v == -1.0);
}

static void
test_parse_size(void **state)
{
	static const struct {
		const char *s;
		int err;
		uint64_t v;
	} cases[] = {
		{ "0", FAL_OK, 0 },
		{ "512", FAL_OK, 512 },
		{ "1K", FAL_OK, 1024 },
		{ "3M", FAL_OK, 3 << 20 },
		{ "2G", FAL_OK, UINT64_C(2) << 30 },
		{ "1T", FAL_OK, UINT64_C(1) << 40 },
		{ "16777215T", FAL_OK, UINT64_C(16777215) << 40 },
		{ "16777216T", FAL_ELIMIT, 0 },
		{ "1k", FAL_EFORMAT, 0 },
		{ "1KB", FAL_EFORMAT, 0 },
		{ "K", FAL_EFORMAT, 0 },
		{ "1.5M", FAL_EFORMAT, 0 },
		{ "-1", FAL_EFORMAT, 0 },
	};
	(void)state;
	for (size_t i = 0; i < COUNT(cases); i++) {
		uint64_t v = 0;
		assert_int_equal(fal_parse_size(cases[i].s, &v), cases[i].err);
		assert_int_equal(v, cases[i].v);
	}
}

static void
test_hex(void **state)
{
	static const uint8_t in[] = { 0x00, 0x9a, 0xff };
	char out[7];
	(void)state;
	fal_hex(in, sizeof(in), out);
	assert_string_equal(out, "009aff");
	fal_hex(in, 0, out);
	assert_string_equal(out, "");
}

static void
test_mem(void **state)
{
	uint32_t *a = NULL;
	size_t cap = 0, big = SIZE_MAX / 2;
	(void)state;
	assert_null(fal_realloc(NULL, big, 4));
	assert_null(fal_calloc_aligned(big, 4));
	assert_null(fal_calloc_aligned(SIZE_MAX - 8, 1));
	assert_int_equal(FAL_GROW(a, cap, 3), FAL_OK);
	assert_in_range(cap, 3, 64);
	a[2] = 5;
	assert_int_equal(FAL_GROW(a, cap, 1000), FAL_OK);
	assert_in_range(cap, 1000, 4000);
	assert_int_equal(a[2], 5);
	size_t was = cap;
	assert_int_equal(FAL_GROW(a, cap, SIZE_MAX), FAL_ENOMEM);
	assert_int_equal(cap, was);
	free(a);

	for (size_t n = 0; n < 200; n += 67) {
		uint8_t *p = fal_calloc_aligned(n, 1);
		assert_non_null(p);
		assert_int_equal((uintptr_t)p % 64, 0);
		for (size_t i = 0; i < n; i++)
			assert_int_equal(p[i], 0);
		free(p);
	}
	void *empty = fal_calloc(0, 8);
	assert_non_null(empty);
	free(empty);
	char *copy = fal_strdup("falcon");
	assert_string_equal(copy, "falcon");
	free(copy);
}

static void
test_diag(void **state)
{
	struct fal_diag d;
	char longer[1024];
	(void)state;
	memset(longer, 'y', sizeof(longer) - 1);
	longer[sizeof(longer) - 1] = '\0';
	assert_int_equal(fal_diag_set(&d, FAL_EINVAL, "a:%d: '%s'", 3, "x\n\x1b[31m"),
			 FAL_EINVAL);
	assert_string_equal(d.text, "a:3: 'x??[31m'");
	assert_int_equal(fal_diag_set(NULL, FAL_EIO, "%s", longer), FAL_EIO);
	fal_diag_set(&d, FAL_EIO, "%s", longer);
	assert_int_equal(strlen(d.text), sizeof(d.text) - 1);
	for (int err = 0; err >= FAL_ENONFINITE; err--)
		assert_string_not_equal(fal_strerror(err), "unknown error");
	assert_string_equal(fal_strerror(FAL_ENONFINITE - 1), "unknown error");
}

/* Of 1, 2, 3 and 4 bytes a character. */
static void
test_text(void **state)
{
	(void)state;
	static const char s[] = "a\u00fc\u20ac\U0001f600";
	static const size_t cut[] = { 0, 1, 1, 3, 3, 3, 6, 6, 6, 6, 10, 10 };
	for (size_t max = 0; max < COUNT(cut); max++)
		assert_int_equal(fal_text_cut(s, max), cut[max]);
	assert_string_equal(fal_text_plural(0), "s");
	assert_string_equal(fal_text_plural(1), "");
	assert_string_equal(fal_text_plural(UINT64_MAX), "s");
	assert_int_equal(fal_text_width(s), 4);
	char out[8];
	assert_string_equal(fal_text_plain(out, sizeof(out), s), "a\u00fc\u20ac");
	assert_string_equal(fal_text_plain(out, sizeof(out), "\x1b[2J\n\x7f"), "?[2J??");
	/* Bytes that are no UTF-8: cut where they are. */
	assert_int_equal(fal_text_cut("\x80\x80\x80\x80\x80\x80\x80", 6), 6);
	assert_string_equal(fal_text_plain(out, 1, s), "");
	char wide[32];
	/* C1 controls, marks that turn the direction or are not seen, half characters. */
	assert_string_equal(fal_text_plain(wide, sizeof(wide),
					   "\xc2\x9b"
					   "31m"),
			    "?31m");
	assert_string_equal(fal_text_plain(wide, sizeof(wide),
					   "\x9b"
					   "1m\xe2\x80"),
			    "?1m??");
	assert_string_equal(fal_text_plain(wide, sizeof(wide), "a\u202eb"), "a?b");
	assert_string_equal(fal_text_plain(wide, sizeof(wide), "\u2066\u200b\ufeff"),
			    "???");
	assert_string_equal(fal_text_plain(wide, sizeof(wide), "\xc0\x8a\xed\xa0\x80"),
			    "?????");
	assert_string_equal(fal_text_plain(wide, sizeof(wide), "\xf0\x9f\x98\x80"),
			    "\xf0\x9f\x98\x80");
	assert_true(fal_text_is_utf8(s) && fal_text_is_utf8(""));
	assert_false(fal_text_is_utf8("a\xe9") || fal_text_is_utf8("\xe2\x80"));

	struct fal_diag d;
	char longer[600];
	memset(longer, 'x', sizeof(longer));
	memcpy(longer + 510, "\u00fc", 3);
	fal_diag_set(&d, 0, "%s", longer);
	assert_int_equal(strlen(d.text), 510);
	memcpy(longer + 509, "\u00fc", 3);
	fal_diag_set(&d, 0, "%s", longer);
	assert_int_equal(strlen(d.text), 511);
}

static void
test_similar(void **state)
{
	(void)state;
	static const char *const of[] = { "bsp", "epsp", "lr", "momentum",
					  "weight-decay" };
	static const char *const words[][2] = {
		{ "bps", "bsp" },
		{ "BSP", "bsp" },
		{ "esp", "bsp" },
		{ "rl", "lr" },
		{ "x", NULL },
		{ "xy", NULL },
		{ "momentun", "momentum" },
		{ "mmentu", "momentum" },
		{ "mentu", NULL },
		{ "weigth-decya", "weight-decay" },
		{ "", NULL },
		{ "bsp ", "bsp" },
		{ "decay", NULL },
	};
	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++) {
		struct fal_similar is = { .word = words[i][0] };
		char hint[FAL_SIMILAR_TEXT], want[FAL_SIMILAR_TEXT] = "";
		for (size_t k = 0; k < sizeof(of) / sizeof(of[0]); k++)
			fal_similar_try(&is, of[k]);
		if (words[i][1] != NULL)
			snprintf(want, sizeof(want), "; did you mean '%s'?", words[i][1]);
		assert_string_equal(fal_similar_hint(&is, hint), want);
	}
}

static void
test_quote(void **state)
{
	static const struct {
		const char *s, *want;
	} t[] = {
		{ "o.1", "o.1" },
		{ "", "" },
		{ "learningratemultiplier", "learningratemultiplier" },
		{ "a\x1b[2J", "a?[2J" },
		{ "0123456789 0123456789 0123456789 0123456789",
		  "0123456789 0123456789 0123456789 0123456..." },
		/* Keys, pieces of them, and what stands around. */
		{ "EEWxVn6xvc574sKdv4ONFP/AwwCl0n5LAG53qxkyWKA=", "..." },
		{ "coordinator self EEWxVn6xvc574sKdv4", "..." },
		{ "xvc574sKdv4ONFP/", "..." },
		{ "xvc574sKdv4ONFP", "xvc574sKdv4ONFP" },
	};
	(void)state;
	for (size_t i = 0; i < COUNT(t); i++)
		assert_string_equal(FAL_QUOTE(t[i].s), t[i].want);
	assert_string_equal(fal_text_unless_key("end of file near 'a'"),
			    "end of file near 'a'");
	assert_string_equal(fal_text_unless_key("near 'xvc574sKdv4ONFP/'"),
			    "it cannot be read");
	const char key[] = "a self EEWxVn6xvc574sKdv4ONFP/AwwCl0n5LAG53qxkyWKA=\n";
	assert_true(fal_text_has_key(key, sizeof(key) - 1));
	assert_true(fal_text_has_key(key, sizeof(key) - 2));
	assert_false(fal_text_has_key(key, sizeof(key) - 3));
	assert_true(fal_text_has_key("-----BEGIN PRIVATE KEY-----\nMC4CAQAw", 36));
	assert_false(fal_text_has_key("-----BEGIN PUBLIC KEY-----\nMCowBQYD", 35));
	char hidden[] = "work EEWxVn6xvc574sKdv4ONFP/AwwCl0n5LAG53qxkyWKA=, "
			"lab/EEWxVn6xvc574sKdv4ONFP/AwwCl0n5LAG53qxkyWKA=: "
			"EEWxVn6xvc574sKdv4ONFP/AwwCl0n5LAG53qxkyWKA";
	fal_text_hide_keys(hidden);
	assert_string_equal(hidden, "work ..., lab/...: "
				    "EEWxVn6xvc574sKdv4ONFP/AwwCl0n5LAG53qxkyWKA");
	/* A long path is no key. */
	static const char path[] =
		"/srv/lab/experiments/resnet20/november/third/attempt4=old";
	char same[sizeof(path)];
	memcpy(same, path, sizeof(path));
	fal_text_hide_keys(same);
	assert_string_equal(same, path);
	assert_false(fal_text_has_key("", 0));
	/* A digest, and base64 of something longer. */
	assert_false(fal_text_has_key("x"
				      "EEWxVn6xvc574sKdv4ONFP/AwwCl0n5LAG53qxkyWKA=",
				      45));
}

static void
test_quantile(void **state)
{
	(void)state;
	double odd[] = { 3, 1, 2 }, even[] = { 4, 1, 3, 2 };
	assert_float_equal(fal_quantile(odd, 3, 0.5), 2, 0);
	assert_float_equal(fal_quantile(odd, 3, 0), 1, 0);
	assert_float_equal(fal_quantile(odd, 3, 1), 3, 0);
	assert_float_equal(fal_quantile(even, 4, 0.5), 2.5, 0);
	assert_float_equal(fal_quantile(even, 4, 0.1), 1.3, 1e-9);
	const double none = fal_quantile(even, 0, 0.5);
	assert_true(none != none);
}

static int
by_value(const void *a, const void *b)
{
	const double *x = a, *y = b;
	return (*x > *y) - (*x < *y);
}

/* As it is of numbers that are sorted. */
static void
test_quantile_drawn(void **state)
{
	(void)state;
	for (uint64_t seed = 0; seed < 2000; seed++) {
		struct fal_rng r = fal_rng_init(seed, FAL_RNG_TEST, 0);
		double v[600], sorted[600];
		const uint32_t n = 1 + fal_rng_below(&r, seed % 4 == 0 ? 600 : 40);
		const uint32_t values = 1 + fal_rng_below(&r, 2 * n);
		for (uint32_t i = 0; i < n; i++)
			v[i] = sorted[i] = (double)fal_rng_below(&r, values) / 7;
		qsort(sorted, n, sizeof(*sorted), by_value);
		const double q = seed % 3 == 0 ? 0.5 : (double)fal_rng_unit(&r);
		const double at = q * (n - 1);
		const uint32_t low = (uint32_t)at, high = low + 1 < n ? low + 1 : low;
		const double want =
			sorted[low] + (at - low) * (sorted[high] - sorted[low]);
		const double is = fal_quantile(v, n, q);
		if (is != want)
			fail_msg("seed %d: %.17g, not %.17g", (int)seed, is, want);
	}
}

/* What goes on and on is said at once and then after pauses that double up to an hour;
 * what has been quiet for a whole pause is said at once again. */
static void
seldom_doubles(void **state)
{
	struct fal_ratelimit s = { 0 };
	uint64_t left = 99, lines = 0, all = 0;
	double last = 0, pause = 0;
	(void)state;
	for (double now = 1; now < 30000; now += 0.5, all++) {
		if (!fal_ratelimit(&s, now, &left))
			continue;
		if (lines > 0) {
			const double want = fmin(10 * pow(2, (double)lines - 1), 3600);
			pause = now - last;
			assert_true(fabs(pause - want) < 0.01);
			assert_int_equal(left, (uint64_t)(2 * pause) - 1);
		} else {
			assert_int_equal(left, 0);
		}
		last = now;
		lines++;
	}
	assert_int_equal(lines, 16);
	/* Quiet for longer than a pause; then again, in the first, short one. */
	assert_true(fal_ratelimit(&s, last + 3 * pause, &left));
	assert_false(fal_ratelimit(&s, last + 3 * pause + 9, &left));
	assert_true(fal_ratelimit(&s, last + 3 * pause + 10, &left));
	assert_int_equal(left, 1);
}

/* Whatever the length of its header is: those of some look like a pickle's head. */
static void
test_safetensors_of_any_length(void **state)
{
	(void)state;
	for (uint32_t n = 8; n < 1 << 20; n++) {
		const uint8_t head[9] = {
			(uint8_t)n, (uint8_t)(n >> 8), (uint8_t)(n >> 16), 0, 0, 0, 0, 0,
			'{'
		};
		const struct fal_filetype *is = fal_filetype_of(head, sizeof(head));
		assert_non_null(is);
		assert_int_equal(is->kind, FAL_FILETYPE_SAFETENSORS);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_safetensors_of_any_length),
		cmocka_unit_test(seldom_doubles),
		cmocka_unit_test(test_quote),
		cmocka_unit_test(test_similar),
		cmocka_unit_test(test_put_layout),
		cmocka_unit_test(test_put_fmt),
		cmocka_unit_test(test_fixed_is_printf),
		cmocka_unit_test(test_round_trip),
		cmocka_unit_test(test_put_errors_stick),
		cmocka_unit_test(test_room_of_nothing),
		cmocka_unit_test(test_get_errors_stick),
		cmocka_unit_test(test_get_str_is_strict),
		cmocka_unit_test(test_parse_u64),
		cmocka_unit_test(test_parse_double),
		cmocka_unit_test(test_parse_size),
		cmocka_unit_test(test_hex),
		cmocka_unit_test(test_mem),
		cmocka_unit_test(test_diag),
		cmocka_unit_test(test_text),
		cmocka_unit_test(test_quantile),
		cmocka_unit_test(test_quantile_drawn),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests_name("base", tests, NULL, NULL);
}
