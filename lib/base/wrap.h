/* Lines that fit a terminal. */
#ifndef FAL_BASE_WRAP_H
#define FAL_BASE_WRAP_H

#include "base/buf.h"

/* Appends n bytes of text to `out`; a line of more than `width` characters is broken
 * between words, and goes on two further to the right.  A longer word stays whole.
 * width 0: as it is. */
void fal_wrap(const char *s, size_t n, size_t width, struct fal_buf *out);

#endif
