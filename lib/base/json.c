/* JSON onto a buffer. */
#include "base/json.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void
comma(struct fal_buf *b)
{
	/* A string always ends in a quote, so these bytes are never inside one. */
	if (b->n > 0 && strchr("{[:\n", b->p[b->n - 1]) == NULL)
		fal_put_u8(b, ',');
}

void
fal_json_open(struct fal_buf *b, char kind)
{
	comma(b);
	fal_put_u8(b, (uint8_t)kind);
}

void
fal_json_close(struct fal_buf *b, char kind)
{
	fal_put_u8(b, (uint8_t)kind);
}

/* Bytes of the well-formed UTF-8 sequence that `s` begins with, or 0. */
static size_t
utf8_len(const unsigned char *s)
{
	/* By first byte: how many follow, and the bounds of the second (RFC 3629 §4). */
	size_t more = s[0] < 0x80 ? 0 : s[0] < 0xe0 ? 1 : s[0] < 0xf0 ? 2 : 3;
	unsigned char lo = s[0] == 0xe0 ? 0xa0 : s[0] == 0xf0 ? 0x90 : 0x80;
	unsigned char hi = s[0] == 0xed ? 0x9f : s[0] == 0xf4 ? 0x8f : 0xbf;

	if (more == 0)
		return 1;
	if (s[0] < 0xc2 || s[0] > 0xf4 || s[1] < lo || s[1] > hi)
		return 0;
	for (size_t i = 2; i <= more; i++)
		if (s[i] < 0x80 || s[i] > 0xbf)
			return 0;
	return more + 1;
}

static void
put_quoted(struct fal_buf *b, const char *s)
{
	const unsigned char *p = (const unsigned char *)s;

	fal_put_u8(b, '"');
	while (*p != '\0') {
		size_t n = utf8_len(p);
		if (n == 0)
			fal_put_bytes(b, "\xef\xbf\xbd", 3);
		else if (*p == '"' || *p == '\\')
			fal_put_bytes(b, (const char[]){ '\\', (char)*p }, 2);
		else if (*p < 0x20 || *p == 0x7f)
			fal_put_fmt(b, "\\u%04x", *p);
		else
			fal_put_bytes(b, p, n);
		p += n > 0 ? n : 1;
	}
	fal_put_u8(b, '"');
}

void
fal_json_key(struct fal_buf *b, const char *key)
{
	comma(b);
	put_quoted(b, key);
	fal_put_u8(b, ':');
}

void
fal_json_str(struct fal_buf *b, const char *s)
{
	comma(b);
	put_quoted(b, s);
}

void
fal_json_u64(struct fal_buf *b, uint64_t v)
{
	char digits[20];
	size_t at = sizeof(digits);
	comma(b);
	do
		digits[--at] = (char)('0' + v % 10);
	while ((v /= 10) != 0);
	fal_put_bytes(b, digits + at, sizeof(digits) - at);
}

void
fal_json_i64(struct fal_buf *b, int64_t v)
{
	comma(b);
	fal_put_fmt(b, "%" PRId64, v);
}

void
fal_json_bool(struct fal_buf *b, bool v)
{
	comma(b);
	fal_put_fmt(b, "%s", v ? "true" : "false");
}

void
fal_json_num(struct fal_buf *b, double v)
{
	comma(b);
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

void
fal_json_fixed(struct fal_buf *b, double v, int decimals)
{
	comma(b);
	if (isfinite(v))
		fal_put_fmt(b, "%.*f", decimals, v);
	else
		fal_put_fmt(b, "null");
}

void
fal_json_member_str(struct fal_buf *b, const char *key, const char *s)
{
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
fal_json_member_fixed(struct fal_buf *b, const char *key, double v, int decimals)
{
	fal_json_key(b, key);
	fal_json_fixed(b, v, decimals);
}
