/* Texts for a person. */
#include "base/text.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Whether the byte goes on with a character that began before it. */
static bool
goes_on(char c)
{
	return ((unsigned char)c & 0xc0) == 0x80;
}

size_t
fal_text_cut(const char *s, size_t max)
{
	size_t n = strnlen(s, max);
	/* A character has four bytes at most. */
	if (n == max)
		for (size_t i = 0; i < 4 && i <= n; i++)
			if (!goes_on(s[n - i]))
				return n - i;
	return n;
}

size_t
fal_text_width(const char *s)
{
	size_t n = 0;
	for (; *s != '\0'; s++)
		n += !goes_on(*s);
	return n;
}

const char *
fal_text_s(uint64_t n)
{
	return n == 1 ? "" : "s";
}

const char *
fal_text_group(uint64_t n, char out[static 32])
{
	char digits[24];
	const int len = snprintf(digits, sizeof(digits), "%" PRIu64, n);
	char *p = out;
	for (int i = 0; i < len; i++) {
		if (i > 0 && (len - i) % 3 == 0)
			*p++ = ',';
		*p++ = digits[i];
	}
	*p = '\0';
	return out;
}

size_t
fal_text_char(const char *s, size_t n, uint32_t *out)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	const uint8_t c = (uint8_t)*s;
	const size_t size = c < 0x80 ? 1 : c < 0xc0 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : 4;
	uint32_t v = size <= 1 ? c : c & (0x7fu >> size);
	if (size == 0 || size > n || c > 0xf4)
		return 0;
	for (size_t i = 1; i < size; i++) {
		if (!goes_on(s[i]))
			return 0;
		v = v << 6 | ((uint8_t)s[i] & 0x3f);
	}
	*out = v;
	const bool none = v < least[size] || (v >= 0xd800 && v < 0xe000) || v > 0x10ffff;
	return none ? 0 : size;
}

size_t
fal_text_bom(const void *text, size_t n)
{
	return n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0 ? 3 : 0;
}

bool
fal_text_is_utf8(const char *s)
{
	uint32_t c;
	size_t n = strlen(s), k = 1;
	for (; n > 0 && k > 0; s += k, n -= k)
		k = fal_text_char(s, n, &c);
	return k > 0;
}

/* Controls, marks that turn the direction of what follows, what is not seen. */
static bool
does_harm(uint32_t c)
{
	return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0xad || c == 0x061c ||
	       (c >= 0x200b && c < 0x2010) || (c >= 0x2028 && c < 0x202f) ||
	       (c >= 0x2060 && c < 0x2070) || c == 0xfeff ||
	       (c >= 0xe0000 && c < 0xe1000);
}

const char *
fal_text_plain(char *out, size_t cap, const char *s)
{
	const size_t n = fal_text_cut(s, cap - 1);
	size_t to = 0;
	uint32_t c;
	for (size_t i = 0, size; i < n; i += size) {
		size = fal_text_char(s + i, n - i, &c);
		const bool plain = size > 0 && !does_harm(c);
		size = size > 0 ? size : 1;
		if (plain)
			memmove(out + to, s + i, size);
		else
			out[to] = '?';
		to += plain ? size : 1;
	}
	out[to] = '\0';
	return out;
}

/* A-Z a-z 0-9 + / */
static bool
is_base64(uint8_t c)
{
	return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
	       (c >= '0' && c <= '9') || c == '+' || c == '/';
}

/* A run of 16 of these characters in which both cases occur: of words, paths and numbers
 * hardly any, of the pieces of keys all but one in a thousand. */
static bool
may_be_key(const char *s)
{
	enum { RUN = 16 };
	unsigned run = 0, upper = 0, lower = 0;
	for (; *s != '\0'; s++) {
		if (!is_base64((uint8_t)*s)) {
			run = upper = lower = 0;
			continue;
		}
		run++;
		upper += *s >= 'A' && *s <= 'Z';
		lower += *s >= 'a' && *s <= 'z';
		if (run >= RUN && upper > 0 && lower > 0)
			return true;
	}
	return false;
}

const char *
fal_text_quote(char out[static FAL_QUOTE_BYTES], const char *s)
{
	enum { SHOWN = 40 };
	size_t n = may_be_key(s) ? 0 : fal_text_cut(s, SHOWN);
	memcpy(out, s, n);
	strcpy(out + n, s[n] != '\0' ? "..." : "");
	return fal_text_plain(out, FAL_QUOTE_BYTES, out);
}

const char *
fal_text_unless_key(const char *s)
{
	return may_be_key(s) ? "it cannot be read" : s;
}

enum { KEY_RUN = 43 }; /* characters of 32 bytes, before the '=' */

/* Are both cases among the last characters of a key's text?  They are but in one of a
 * thousand million keys; in paths, which may be as long, seldom. */
static bool
has_both_cases(const char *end)
{
	bool upper = false, lower = false;
	for (int i = 1; i <= KEY_RUN; i++) {
		upper |= end[-i] >= 'A' && end[-i] <= 'Z';
		lower |= end[-i] >= 'a' && end[-i] <= 'z';
	}
	return upper && lower;
}

/* Where the first text of a key in the n bytes ends, behind its '='; 0: there is none.
 * `glued`: of a longer run its end may be one. */
static size_t
key_end(const char *s, size_t n, bool glued)
{
	size_t run = 0;
	for (size_t i = 0; i < n; i++) {
		if (s[i] == '=' && (glued ? run >= KEY_RUN : run == KEY_RUN) &&
		    (i + 1 == n || s[i + 1] != '=') && has_both_cases(s + i))
			return i + 1;
		run = is_base64((uint8_t)s[i]) ? run + 1 : 0;
	}
	return 0;
}

bool
fal_text_has_key(const void *p, size_t n)
{
	return key_end(p, n, false) > 0;
}

void
fal_text_hide_keys(char *s)
{
	size_t end;
	while ((end = key_end(s, strlen(s), true)) > 0) {
		char *to = s + end - KEY_RUN - 1;
		memcpy(to, "...", 3);
		memmove(to + 3, s + end, strlen(s + end) + 1);
		s = to + 3;
	}
}
