/* UTF-8 texts of unknown origin, and their display. */
#include "base/text.h"

#include <ctype.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

/* Does the byte continue a character? */
static bool
is_continuation(char c)
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
			if (!is_continuation(s[n - i]))
				return n - i;
	return n;
}

size_t
fal_text_width(const char *s)
{
	size_t n = 0;
	for (; *s != '\0'; s++)
		n += !is_continuation(*s);
	return n;
}

const char *
fal_text_plural(uint64_t n)
{
	return n == 1 ? "" : "s";
}

const char *
fal_text_thousands(uint64_t n, char out[static 32])
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
		if (!is_continuation(s[i]))
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

/* Is the character a control, a mark that turns the writing direction, or invisible? */
static bool
is_harmful(uint32_t c)
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
		const bool plain = size > 0 && !is_harmful(c);
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

/* Does the text have a run of 16 characters of base64 with both cases?  Words, paths and
 * numbers hardly ever have one; of the pieces of keys, all but one in a thousand have. */
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

enum { KEY_RUN = 43 }; /* characters before the '=' of 32 bytes */

/* Do the last characters before `end` have both cases?  All but one in a thousand million
 * keys do, and few paths of this length do. */
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

/* The offset after the '=' of the first text of a key in the n bytes; 0: there is none.
 * glued: the end of a longer run counts as a key, too. */
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
	static const char pem[] = "PRIVATE KEY-----";
	return key_end(p, n, false) > 0 || memmem(p, n, pem, sizeof(pem) - 1) != NULL;
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

/* --- similar words ------------------------------------------------------------------ */

/* Are at most so many typing errors between two words, without regard to case? */
static bool
are_similar(const char *a, const char *b, unsigned errors)
{
	for (; *a != '\0' && tolower((uint8_t)*a) == tolower((uint8_t)*b); b++)
		a++;
	if (*a == *b)
		return true; /* both end */
	if (errors-- == 0)
		return false;
	return (*a != '\0' && are_similar(a + 1, b, errors)) ||
	       (*b != '\0' && are_similar(a, b + 1, errors)) ||
	       (*a != '\0' && *b != '\0' &&
		(are_similar(a + 1, b + 1, errors) ||
		 (a[0] == b[1] && a[1] == b[0] && are_similar(a + 2, b + 2, errors))));
}

bool
fal_similar_try(struct fal_similar *s, const char *candidate)
{
	const size_t half = strlen(s->word) / 2;
	const unsigned max = s->best != NULL ? s->errors
			     : half < 2      ? (unsigned)half + 1
					     : 3;
	for (unsigned errors = 0; errors < max; errors++)
		if (are_similar(s->word, candidate, errors)) {
			s->best = candidate;
			s->errors = errors;
			return true;
		}
	return false;
}

const char *
fal_similar_hint(const struct fal_similar *s, char out[static FAL_SIMILAR_TEXT])
{
	out[0] = '\0';
	if (s->best != NULL)
		snprintf(out, FAL_SIMILAR_TEXT, "; did you mean '%s'?", s->best);
	return out;
}

/* --- folding ------------------------------------------------------------------------ */

/* The bytes before the break of a line of n bytes: up to the last blank within `width`
 * characters, or to the end of a longer first word. */
static size_t
bytes_before_break(const char *s, size_t n, size_t width)
{
	size_t chars = 0, last = 0, i = 0;
	while (i < n && s[i] == ' ') /* the indent */
		i++;
	for (chars = i; i < n; i++) {
		if (s[i] == ' ' && i > 0 && s[i - 1] != ' ') {
			if (chars > width && last > 0)
				return last;
			last = i;
		}
		chars += ((unsigned char)s[i] & 0xc0) != 0x80;
	}
	return chars > width && last > 0 ? last : n;
}

static void
fold_line(const char *s, size_t n, size_t width, struct fal_buf *out)
{
	static const char indent[] = "  ";
	size_t room = width;
	for (;;) {
		const size_t part = bytes_before_break(s, n, room);
		fal_put_bytes(out, s, part);
		if (part == n)
			return;
		s += part;
		n -= part;
		while (n > 0 && *s == ' ') {
			s++;
			n--;
		}
		if (n == 0)
			return;
		fal_put_fmt(out, "\n%s", indent);
		room = width > sizeof(indent) ? width - (sizeof(indent) - 1) : 1;
	}
}

void
fal_text_wrap(const char *s, size_t n, size_t width, struct fal_buf *out)
{
	const char *end = s + n;
	if (width == 0) {
		fal_put_bytes(out, s, n);
		return;
	}
	while (s < end) {
		const char *nl = memchr(s, '\n', (size_t)(end - s));
		const char *to = nl != NULL ? nl : end;
		fold_line(s, (size_t)(to - s), width, out);
		if (nl != NULL)
			fal_put_u8(out, '\n');
		s = nl != NULL ? nl + 1 : end;
	}
}
