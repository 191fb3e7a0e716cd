/* A table for people: columns as wide as their widest cell, numbers to the right.
 *
 * A column is right-aligned if each of its cells below the header is a number, perhaps
 * with a unit after a blank, or "-".  Characters of UTF-8 count as one column each, and
 * sequences for colours as none.
 */
#ifndef FAL_CLI_TABLE_H
#define FAL_CLI_TABLE_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

struct fal_table {
	size_t columns; /* set by the caller; the rest is zero at first */
	/* The terminal's columns, as the limit of a line (fal_cli_width); 0: no limit. */
	size_t width;
	/* First measure: the cells of the first column, names, are shortened in their
	 * middle, to at least so many characters, and to more where two different names
	 * would look alike; 0: names are never shortened. */
	size_t shorten;
	/* Second measure: the columns with these headers are left out, the least
	 * important first; blanks between headers.  NULL: none. */
	const char *drops;
	char **cell; /* row after row, the header first */
	size_t n, cap;
};

/* Adds the next cell, in reading order. */
void fal_table_add(struct fal_table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Adds the next cells, which tabs separate in the formatted text: not for cells that may
 * contain a tab. */
void fal_table_row(struct fal_table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Adds a number as the next cell; NAN: "-". */
void fal_table_number(struct fal_table *t, double value, int decimals);

/* Appends the text of the table to `out`, lines without trailing blanks, and frees the
 * cells; an unfinished last row is left out. */
void fal_table_text(struct fal_table *t, struct fal_buf *out);
/* The same, on stdout, folded on a terminal. */
void fal_table_print(struct fal_table *t);

/* Appends n values as at most `width` characters, the lowest for the least value, the
 * highest for the largest one.  Without `utf8`, of ASCII. */
void fal_sparkline_text(const double *v, size_t n, size_t width, bool utf8,
			struct fal_buf *out);

/* Frees the cells; `t` keeps only the caller's settings. */
void fal_table_free(struct fal_table *t);

#endif
