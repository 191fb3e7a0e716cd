/* A table for people: columns as wide as their widest cell, numbers to the right.
 *
 * A column is right-aligned when each of its cells below the header is a number, which
 * may have a unit behind a blank, or "-".  Characters of UTF-8 count as one column each.
 */
#ifndef FAL_CLI_TABLE_H
#define FAL_CLI_TABLE_H

#include "base/buf.h"

#include <stddef.h>

struct fal_table {
	size_t columns; /* set by the caller; the rest starts as zero */
	/* The terminal's columns, in which it is to fit (fal_cli_width); 0: any. */
	size_t width;
	/* Where it does not: first the cells of the first column, names, are cut in their
	 * middle, to so many characters at least, and more where two that differ would
	 * look alike; 0: they stay whole. */
	size_t shorten;
	/* Then, if it still does not: which columns go, by their headers, the least
	 * important first, blanks between.  NULL: none. */
	const char *drops;
	char **cell; /* row after row, the header first */
	size_t n, cap;
};

/* The next cell, in reading order. */
void fal_table_add(struct fal_table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The next cells, which are apart by tabs in the text that comes of it: no cell that may
 * have a tab of its own. */
void fal_table_row(struct fal_table *t, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Appends the text of the table to `out`, lines without trailing blanks; cells of an
 * unfinished last row are left out.  The cells may be cut now. */
void fal_table_text(struct fal_table *t, struct fal_buf *out);

/* Frees the cells; `t` is empty again, but for what the caller set. */
void fal_table_free(struct fal_table *t);

#endif
