/* JSON onto a buffer. */
#include "base/json.h"

#include "base/text.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
put_comma(struct fal_buf *b)
{
	/* A string always ends in a quote, so these bytes are never inside one. */
	if (b->n > 0 && strchr("{[:\n", b->p[b->n - 1]) == NULL)
		fal_put_u8(b, ',');
}

void
fal_json_open(struct fal_buf *b, char kind)
{
	put_comma(b);
	fal_put_u8(b, (uint8_t)kind);
}

void
fal_json_close(struct fal_buf *b, char kind)
{
	fal_put_u8(b, (uint8_t)kind);
}

static void
put_quoted(struct fal_buf *b, const char *s)
{
	const char *end = s + strlen(s);
	uint32_t c;

	fal_put_u8(b, '"');
	while (s < end) {
		const char *from = s; /* bytes that need no escape */
		while (*s >= 0x20 && *s < 0x7f && *s != '"' && *s != '\\')
			s++;
		fal_put_bytes(b, from, (size_t)(s - from));
		if (s == end)
			break;
		const size_t n = fal_text_char(s, (size_t)(end - s), &c);
		if (n == 0)
			fal_put_bytes(b, "\xef\xbf\xbd", 3);
		else if (c == '"' || c == '\\')
			fal_put_bytes(b, (const char[]){ '\\', (char)c }, 2);
		else if (c < 0x20 || c == 0x7f)
			fal_put_fmt(b, "\\u%04x", c);
		else
			fal_put_bytes(b, s, n);
		s += n > 0 ? n : 1;
	}
	fal_put_u8(b, '"');
}

void
fal_json_key(struct fal_buf *b, const char *key)
{
	put_comma(b);
	put_quoted(b, key);
	fal_put_u8(b, ':');
}

void
fal_json_str(struct fal_buf *b, const char *s)
{
	put_comma(b);
	put_quoted(b, s);
}

void
fal_json_u64(struct fal_buf *b, uint64_t v)
{
	char digits[20];
	size_t at = sizeof(digits);
	put_comma(b);
	do
		digits[--at] = (char)('0' + v % 10);
	while ((v /= 10) != 0);
	fal_put_bytes(b, digits + at, sizeof(digits) - at);
}

void
fal_json_u32s(struct fal_buf *b, const uint32_t *v, size_t n)
{
	enum { BYTES_MAX = 11 }; /* of a number and its comma */
	fal_json_open(b, '[');
	uint8_t *p = fal_buf_room(b, n * BYTES_MAX);
	if (p == NULL)
		return;
	for (size_t i = 0; i < n; i++) {
		uint32_t left = v[i], digits = 1;
		for (uint32_t k = left; k > 9; k /= 10)
			digits++;
		for (uint32_t k = digits; k > 0; left /= 10)
			p[--k] = (uint8_t)('0' + left % 10);
		p[digits] = ',';
		p += digits + 1;
	}
	b->n = (size_t)(p - b->p) - (n > 0);
	fal_json_close(b, ']');
}

void
fal_json_i64(struct fal_buf *b, int64_t v)
{
	put_comma(b);
	fal_put_fmt(b, "%" PRId64, v);
}

void
fal_json_bool(struct fal_buf *b, bool v)
{
	put_comma(b);
	fal_put_fmt(b, "%s", v ? "true" : "false");
}

void
fal_json_num(struct fal_buf *b, double v)
{
	put_comma(b);
	if (!isfinite(v)) {
		fal_put_fmt(b, "null");
		return;
	}
	char text[32];
	for (int digits = 15; digits <= 17; digits++) {
		snprintf(text, sizeof(text), "%.*g", digits, v);
		double back = strtod(text, NULL);
		if (back >= v && back <= v)
			break;
	}
	fal_put_fmt(b, "%s", text);
}

/* Writes the text of "%.6f", several times as fast.  False: v is not between 0 and 1e9;
 * traces have many such times, in seconds.  v·10^6 is computed as the sum of two doubles,
 * and rounded as printf does: to the nearest, of two equally near ones to the even one.
 */
static bool
put_micros(struct fal_buf *b, double v)
{
	if (!(v >= 0 && v < 1e9) || signbit(v))
		return false;
	const double scaled = v * 1e6, rest = fma(v, 1e6, -scaled);
	uint64_t n = (uint64_t)scaled;
	const double over = (scaled - (double)n) - 0.5; /* exact, as `rest` is */
	n += over > -rest || (over >= -rest && n % 2 == 1);
	char text[24];
	size_t at = sizeof(text);
	for (int i = 0; i < 6; i++, n /= 10)
		text[--at] = (char)('0' + n % 10);
	text[--at] = '.';
	do
		text[--at] = (char)('0' + n % 10);
	while ((n /= 10) != 0);
	fal_put_bytes(b, text + at, sizeof(text) - at);
	return true;
}

void
fal_json_fixed(struct fal_buf *b, double v, int decimals)
{
	put_comma(b);
	if (decimals == 6 && put_micros(b, v))
		return;
	if (isfinite(v))
		fal_put_fmt(b, "%.*f", decimals, v);
	else
		fal_put_fmt(b, "null");
}

void
fal_json_member_open(struct fal_buf *b, const char *key, char kind)
{
	fal_json_key(b, key);
	fal_json_open(b, kind);
}

void
fal_json_member_str(struct fal_buf *b, const char *key, const char *s)
{
	if (s == NULL)
		return;
	fal_json_key(b, key);
	fal_json_str(b, s);
}

void
fal_json_member_u64(struct fal_buf *b, const char *key, uint64_t v)
{
	fal_json_key(b, key);
	fal_json_u64(b, v);
}

void
fal_json_member_bool(struct fal_buf *b, const char *key, bool v)
{
	fal_json_key(b, key);
	fal_json_bool(b, v);
}

void
fal_json_member_num(struct fal_buf *b, const char *key, double v)
{
	fal_json_key(b, key);
	fal_json_num(b, v);
}

void
fal_json_member_fixed(struct fal_buf *b, const char *key, double v, int decimals)
{
	fal_json_key(b, key);
	fal_json_fixed(b, v, decimals);
}
