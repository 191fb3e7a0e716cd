/* Tables. */
#include "cli/table.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/text.h"

#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GONE = INT_MAX }; /* the width of a column that is left out */

void
fal_table_add(struct fal_table *t, const char *fmt, ...)
{
	char *text;
	va_list ap;
	va_start(ap, fmt);
	int n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0) {
		t->err = FAL_ENOMEM;
		return;
	}
	if (FAL_GROW(t->cell, t->cap, t->n + 1) < 0) {
		free(text);
		t->err = FAL_ENOMEM;
		return;
	}
	t->cell[t->n++] = text;
}

static bool
numeric(const char *s)
{
	if (strcmp(s, "-") == 0 || *s == '\0')
		return true;
	s += *s == '+' || *s == '-';
	const size_t digits = strspn(s, "0123456789");
	s += digits;
	s += *s == '.' ? 1 + strspn(s + 1, "0123456789") : 0;
	return digits > 0 && (*s == '\0' || *s == ' ');
}

/* The width of a column in characters, negative where it is left-aligned. */
static int
column_width(const struct fal_table *t, size_t rows, size_t column)
{
	size_t width = 0;
	bool right = true;
	for (size_t r = 0; r < rows; r++) {
		const char *cell = t->cell[r * t->columns + column];
		size_t n = fal_text_width(cell);
		if (n > width)
			width = n;
		right = right && (r == 0 || numeric(cell));
	}
	return right ? (int)width : -(int)width;
}

/* Columns go until it fits. */
static void
fit(const struct fal_table *t, int *width)
{
	const char *drop = t->drops != NULL ? t->drops : "";
	size_t all = 0;
	for (size_t c = 0; c < t->columns; c++)
		all += (size_t)abs(width[c]) + (c > 0 ? 2 : 0);
	while (t->width > 0 && all > t->width && *drop != '\0') {
		const size_t n = strcspn(drop, " ");
		for (size_t c = 0; c < t->columns && t->n >= t->columns; c++) {
			if (strlen(t->cell[c]) != n || strncmp(t->cell[c], drop, n) != 0)
				continue;
			all -= (size_t)abs(width[c]) + 2;
			width[c] = GONE;
		}
		drop += n;
		drop += strspn(drop, " ");
	}
}

/* printf counts bytes. */
static void
put_cell(struct fal_buf *out, const char *before, int width, const char *cell)
{
	const int more = (int)(strlen(cell) - fal_text_width(cell));
	fal_put_fmt(out, "%s%*s", before, width < 0 ? width - more : width + more, cell);
}

int
fal_table_text(const struct fal_table *t, struct fal_buf *out)
{
	size_t rows = t->n / t->columns;
	int *width = fal_calloc(t->columns, sizeof(*width));
	if (width == NULL || t->err < 0) {
		free(width);
		return FAL_ENOMEM;
	}
	for (size_t c = 0; c < t->columns; c++)
		width[c] = column_width(t, rows, c);
	fit(t, width);
	for (size_t r = 0; r < rows; r++) {
		const char *before = "";
		for (size_t c = 0; c < t->columns; c++) {
			if (width[c] == GONE)
				continue;
			put_cell(out, before, width[c], t->cell[r * t->columns + c]);
			before = "  ";
		}
		while (out->err == 0 && out->p[out->n - 1] == ' ')
			out->n--;
		fal_put_u8(out, '\n');
	}
	free(width);
	return out->err;
}

void
fal_table_free(struct fal_table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->cell[i]);
	free(t->cell);
	*t = (struct fal_table){ .columns = t->columns,
				 .width = t->width,
				 .drops = t->drops };
}
