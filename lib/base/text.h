/* Strangers' texts, in UTF-8, for a person: cut between characters, without what could
 * move a terminal's cursor.  Bytes that are no UTF-8 are not looked for. */
#ifndef FAL_BASE_TEXT_H
#define FAL_BASE_TEXT_H

#include <stddef.h>

/* How many bytes of `s`, at most `max`, end between characters. */
size_t fal_text_cut(const char *s, size_t max);

/* Characters of `s`, by code points: combined and wide ones count as one each. */
size_t fal_text_width(const char *s);

/* As much of `s` as fits `cap` > 0 bytes with its NUL, cut between characters, into
 * `out`, which may be `s`; control characters become '?'.  Returns `out`. */
const char *fal_text_plain(char *out, size_t cap, const char *s);

#endif
