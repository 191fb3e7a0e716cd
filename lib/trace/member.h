/* Members of a line of a trace, for the writer alone: each is put with its name and the
 * comma before it, and is of the kind that fields.h has for it.
 */
#ifndef FAL_TRACE_MEMBER_H
#define FAL_TRACE_MEMBER_H

#include "base/buf.h"
#include "trace/fields.h"
#include "trace/writer.h"

#include <stdint.h>

/* A line in place of what the buffer has; its end, or that of an object in it. */
void fal_member_begin(struct fal_buf *b, double t, const char *ev);
void fal_member_end(struct fal_buf *b);

/* The name alone: its value must follow. */
void fal_member_key(struct fal_buf *b, enum fal_field f, enum fal_field_kind kind);
/* NULL: no member. */
void fal_member_str(struct fal_buf *b, enum fal_field f, const char *value);
void fal_member_hex64(struct fal_buf *b, enum fal_field f, uint64_t value);
void fal_member_num(struct fal_buf *b, enum fal_field f, uint64_t value);
void fal_member_exponent(struct fal_buf *b, enum fal_field f, int value);
void fal_member_real(struct fal_buf *b, enum fal_field f, double value);
void fal_member_seconds(struct fal_buf *b, enum fal_field f, double value);
void fal_member_ns(struct fal_buf *b, enum fal_field f, uint64_t value);
void fal_member_pair(struct fal_buf *b, enum fal_field f, uint32_t one, uint32_t two);
void fal_member_who(struct fal_buf *b, struct fal_line_who w);
/* Its rows must follow, and fal_json_close. */
void fal_member_list(struct fal_buf *b, enum fal_field f);
void fal_member_row(struct fal_buf *b, uint32_t n, const uint64_t *v);

#endif
