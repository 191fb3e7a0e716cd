/* Parses INI text strictly: each line is a section, an entry, a comment or empty.
 *
 * A comment is a line that begins with ; or #, or the text from a blank and ; or # on,
 * after a section or a value.  A value in double quotes may hold both, and blanks at its
 * ends.
 */
#ifndef FAL_JOB_INI_H
#define FAL_JOB_INI_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The longest line in bytes, without its end and the blanks at its begin. */
#define FAL_INI_LINE 197

/* Is the character forbidden in lines? */
static inline bool
fal_ini_is_control(char c)
{
	return ((unsigned char)c < ' ' && c != '\t') || c == 0x7f;
}

/* The bytes of a value without quotes: `s` up to a comment or the end. */
size_t fal_ini_value_length(const char *s);

/* Takes each section header (key and value NULL) and each entry, in order; the strings
 * are borrowed for the call.  Returns 0, or an error, with its diagnosis made, that ends
 * the reading. */
typedef int fal_ini_fn(void *user, const char *section, const char *key,
		       const char *value, unsigned line);

/* Parses `n` bytes of text; `name` stands before the line number in a diagnosis.  Returns
 * the error that ended the reading: FAL_EFORMAT, errors of on_entry. */
int fal_ini_read(const char *name, const char *text, size_t n, fal_ini_fn *on_entry,
		 void *user, struct fal_problems *problems);

/* An entry to be set; the strings are borrowed. */
struct fal_ini_entry {
	const char *section;
	const char *key;
	const char *value;
};

/* Appends the text with `e` set: replaces the entry's line; without one inserts a line
 * below the section's header; without a header adds a section at the end.  Other bytes do
 * not change.  Errors of fal_ini_read, FAL_ENOMEM. */
int fal_ini_set(const char *name, const char *text, size_t n,
		const struct fal_ini_entry *e, struct fal_buf *out,
		struct fal_diag *diag);

#endif
