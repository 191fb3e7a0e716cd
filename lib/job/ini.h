/* INI text as lines: inih (the only place that includes it), made strict.
 *
 * inih splits a line; around it stand what it lacks: the line number at each entry, and
 * refusals of over-long lines, control characters, text behind a section header and
 * values that go on over lines.  Comments begin a line with ; or #, or follow a blank
 * and ; inside it.
 */
#ifndef FAL_JOB_INI_H
#define FAL_JOB_INI_H

#include "base/buf.h"
#include "base/err.h"

#include <stdbool.h>
#include <stddef.h>

/* The longest line, in bytes: inih reads into 200 on its stack. */
#define FAL_INI_LINE 197

/* Is it a character that no line has? */
static inline bool
fal_ini_is_control(char c)
{
	return ((unsigned char)c < ' ' && c != '\t') || c == 0x7f;
}

/* Called for each section header (key and value NULL) and each entry, in order; the
 * strings are borrowed for the call.  Returns 0, or an error with its own diagnosis
 * made, which ends the reading. */
typedef int fal_ini_fn(void *user, const char *section, const char *key,
		       const char *value, unsigned line);

/* Reads `n` bytes of text; `name` stands before the line number in a diagnosis.
 * Returns 0, FAL_EFORMAT, or what on_entry returned. */
int fal_ini_read(const char *name, const char *text, size_t n, fal_ini_fn *on_entry,
		 void *user, struct fal_diag *diag);

/* One entry to be set; the strings are borrowed. */
struct fal_ini_entry {
	const char *section;
	const char *key;
	const char *value;
};

/* Appends to `out` the text with `e` set: its line is replaced; without one, a line is
 * put below the section's header; without that, a section is added at the end.  Other
 * bytes stay as they are.  Errors: as fal_ini_read, FAL_ENOMEM. */
int fal_ini_set(const char *name, const char *text, size_t n,
		const struct fal_ini_entry *e, struct fal_buf *out,
		struct fal_diag *diag);

#endif
