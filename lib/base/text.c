/* Texts for a person. */
#include "base/text.h"

#include <stdbool.h>
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
fal_text_plain(char *out, size_t cap, const char *s)
{
	size_t n = fal_text_cut(s, cap - 1);
	for (size_t i = 0; i < n; i++)
		out[i] = (unsigned char)s[i] < 0x20 || s[i] == 0x7f ? '?' : s[i];
	out[n] = '\0';
	return out;
}
