/* Lines that fit a terminal. */
#include "base/wrap.h"

#include <stdbool.h>
#include <string.h>

/* So many of the n bytes of a line go before its break: up to the last blank that leaves
 * no more than `width` characters, or, where the first word is longer, to its end. */
static size_t
first_part(const char *s, size_t n, size_t width)
{
	size_t chars = 0, last = 0, i = 0;
	while (i < n && s[i] == ' ') /* it is indented */
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
		const size_t part = first_part(s, n, room);
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
fal_wrap(const char *s, size_t n, size_t width, struct fal_buf *out)
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
