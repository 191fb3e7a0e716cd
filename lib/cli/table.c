/* Tables. */
#include "cli/table.h"

#include "base/mem.h"
#include "base/text.h"
#include "cli/cli.h"

#include <limits.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { DROPPED = INT_MAX }; /* the width of a column that is left out */

void
fal_table_add(struct fal_table *t, const char *fmt, ...)
{
	char *text;
	va_list ap;
	va_start(ap, fmt);
	if (vasprintf(&text, fmt, ap) < 0)
		fal_out_of_memory();
	va_end(ap);
	FAL_XGROW(t->cell, t->cap, t->n + 1);
	t->cell[t->n++] = text;
}

void
fal_table_row(struct fal_table *t, const char *fmt, ...)
{
	char *text, *cell;
	va_list ap;
	va_start(ap, fmt);
	const int n = vasprintf(&text, fmt, ap);
	va_end(ap);
	if (n < 0)
		fal_out_of_memory();
	for (char *rest = text; (cell = strsep(&rest, "\t")) != NULL;)
		fal_table_add(t, "%s", cell);
	free(text);
}

void
fal_table_number(struct fal_table *t, double value, int decimals)
{
	if (isnan(value))
		fal_table_add(t, "-");
	else
		fal_table_add(t, "%.*f", decimals, value);
}

static bool
is_number(const char *s)
{
	if (strcmp(s, "-") == 0 || *s == '\0')
		return true;
	s += *s == '+' || *s == '-';
	const size_t digits = strspn(s, "0123456789");
	s += digits;
	s += *s == '.' ? 1 + strspn(s + 1, "0123456789") : 0;
	return digits > 0 && (*s == '\0' || *s == ' ');
}

/* Characters of a cell, without its sequences for colours, "\033[…m". */
static size_t
cell_width(const char *cell)
{
	size_t n = fal_text_width(cell);
	while ((cell = strchr(cell, '\033')) != NULL) {
		const size_t bytes = strcspn(cell, "m") + 1;
		n -= bytes;
		cell += bytes;
	}
	return n;
}

/* The width of a column in characters, negative if it is left-aligned. */
static int
column_width(const struct fal_table *t, size_t rows, size_t column)
{
	size_t width = 0;
	bool right = true;
	for (size_t r = 0; r < rows; r++) {
		const char *cell = t->cell[r * t->columns + column];
		size_t n = cell_width(cell);
		if (n > width)
			width = n;
		right = right && (r == 0 || is_number(cell));
	}
	return right ? (int)width : -(int)width;
}

/* --- shortened names --------------------------------------------------------------- */

struct short_name {
	char *text;       /* shown */
	const char *name; /* borrowed */
};

static int
compare_short_names(const void *a, const void *b)
{
	const struct short_name *x = a, *y = b;
	const int order = strcmp(x->text, y->text);
	return order != 0 ? order : strcmp(x->name, y->name);
}

/* Bytes of the first `n` characters. */
static size_t
prefix_of_chars(const char *s, size_t n)
{
	size_t i = 0;
	while (s[i] != '\0' && (((uint8_t)s[i] & 0xc0) == 0x80 || n-- > 0))
		i++;
	return i;
}

/* Shortens a name to `most` characters: its two ends, which mostly differ between
 * names. */
static char *
shorten_name(const char *s, size_t most)
{
	static const char gap[] = "...";
	const size_t width = fal_text_width(s), room = most - strlen(gap);
	if (width <= most)
		return fal_xstrdup(s);
	const size_t head = prefix_of_chars(s, room - room / 2);
	return fal_xprintf("%.*s%s%s", (int)head, s, gap,
			   s + prefix_of_chars(s, width - room / 2));
}

static void
short_names_free(struct short_name *v, size_t n)
{
	for (size_t i = 0; i < n; i++)
		free(v[i].text);
	free(v);
}

/* The first cells of all rows, shortened and sorted. */
static struct short_name *
short_names_of(const struct fal_table *t, size_t rows, size_t most)
{
	struct short_name *v = fal_xcalloc(rows, sizeof(*v));
	for (size_t r = 0; r < rows; r++) {
		v[r].name = t->cell[r * t->columns];
		v[r].text = shorten_name(v[r].name, most);
	}
	qsort(v, rows, sizeof(*v), compare_short_names);
	return v;
}

/* Do two different names look alike? */
static bool
any_look_alike(const struct short_name *v, size_t rows)
{
	for (size_t r = 1; r < rows; r++)
		if (strcmp(v[r - 1].text, v[r].text) == 0 &&
		    strcmp(v[r - 1].name, v[r].name) != 0)
			return true;
	return false;
}

/* Shortens the first column to `most` characters, or to more if two would look alike. */
static void
shorten_names(struct fal_table *t, size_t rows, size_t most)
{
	struct short_name *v;
	while (any_look_alike(v = short_names_of(t, rows, most), rows)) {
		short_names_free(v, rows);
		most++; /* whole names differ */
	}
	short_names_free(v, rows);
	for (size_t r = 0; r < rows; r++) {
		char **cell = &t->cell[r * t->columns], *text = shorten_name(*cell, most);
		free(*cell);
		*cell = text;
	}
}

/* --- layout ------------------------------------------------------------------------ */

static size_t
table_width(const struct fal_table *t, const int *width)
{
	size_t all = 0;
	for (size_t c = 0; c < t->columns; c++)
		all += (size_t)abs(width[c]) + (c > 0 ? 2 : 0);
	return all;
}

void
fal_table_text(struct fal_table *t, struct fal_buf *out)
{
	size_t rows = t->n / t->columns;
	int *width = fal_xcalloc(t->columns, sizeof(*width));
	for (size_t c = 0; c < t->columns; c++)
		width[c] = column_width(t, rows, c);
	/* Shortens names as far as the width demands and `shorten` allows. */
	size_t all = table_width(t, width);
	const size_t first = (size_t)abs(width[0]);
	if (t->width > 0 && all > t->width && t->shorten > 0 && first > t->shorten) {
		const size_t over = all - t->width;
		const bool is_enough = first >= over + t->shorten;
		shorten_names(t, rows, is_enough ? first - over : t->shorten);
		width[0] = column_width(t, rows, 0);
	}
	/* Drops columns until the table fits. */
	const char *drop = t->drops != NULL ? t->drops : "";
	all = table_width(t, width);
	while (t->width > 0 && all > t->width && *drop != '\0') {
		const size_t n = strcspn(drop, " ");
		for (size_t c = 0; c < t->columns && t->n >= t->columns; c++) {
			if (strlen(t->cell[c]) != n || strncmp(t->cell[c], drop, n) != 0)
				continue;
			all -= (size_t)abs(width[c]) + 2;
			width[c] = DROPPED;
		}
		drop += n;
		drop += strspn(drop, " ");
	}
	for (size_t r = 0; r < rows; r++) {
		const char *before = "";
		for (size_t c = 0; c < t->columns; c++) {
			if (width[c] == DROPPED)
				continue;
			const char *cell = t->cell[r * t->columns + c];
			/* printf counts bytes. */
			const int more = (int)(strlen(cell) - cell_width(cell));
			fal_put_fmt(out, "%s%*s", before,
				    width[c] < 0 ? width[c] - more : width[c] + more,
				    cell);
			before = "  ";
		}
		while (out->err == 0 && out->p[out->n - 1] == ' ')
			out->n--;
		fal_put_u8(out, '\n');
	}
	free(width);
	fal_table_free(t);
	if (out->err < 0)
		fal_out_of_memory();
}

void
fal_table_print(struct fal_table *t)
{
	struct fal_buf text = { 0 };
	fal_table_text(t, &text);
	fal_cli_print(&text);
	fal_buf_free(&text);
}

void
fal_sparkline_text(const double *v, size_t n, size_t width, bool utf8,
		   struct fal_buf *out)
{
	static const char *const block[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
	static const char *const sign[] = { "_", ".", "-", ":", "=", "+", "*", "#" };
	double least = INFINITY, most = -INFINITY;
	for (size_t i = 0; i < n; i++) {
		least = fmin(least, v[i]);
		most = fmax(most, v[i]);
	}
	width = n < width ? n : width;
	for (size_t i = 0; i < width; i++) {
		const double above = v[(i + 1) * n / width - 1] - least;
		const double level = most > least ? 7 * above / (most - least) : 0;
		fal_put_fmt(out, "%s", (utf8 ? block : sign)[lround(level)]);
	}
}

void
fal_table_free(struct fal_table *t)
{
	for (size_t i = 0; i < t->n; i++)
		free(t->cell[i]);
	free(t->cell);
	*t = (struct fal_table){ .columns = t->columns,
				 .width = t->width,
				 .shorten = t->shorten,
				 .drops = t->drops };
}
