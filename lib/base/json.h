/* Writes JSON onto a struct fal_buf, without allocating beyond it.
 *
 * Commas come by themselves: a value or key is preceded by one unless the last byte of
 * the buffer opens a container, ends a key or ends a line.  So one buffer takes many
 * lines: end each with fal_put_u8(b, '\n').  Nothing checks that containers are closed.
 * Errors are sticky in the buffer.  Reading JSON is jansson's work (base/json_load.h).
 */
#ifndef FAL_BASE_JSON_H
#define FAL_BASE_JSON_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

void fal_json_open(struct fal_buf *b, char kind);  /* '{' or '[' */
void fal_json_close(struct fal_buf *b, char kind); /* '}' or ']' */

/* "key": — one value must follow.  Quoted like fal_json_str. */
void fal_json_key(struct fal_buf *b, const char *key);

/* A string.  `s` may be a stranger's: control characters are escaped, and each byte that
 * is not part of well-formed UTF-8 (RFC 3629) becomes U+FFFD. */
void fal_json_str(struct fal_buf *b, const char *s);

void fal_json_u64(struct fal_buf *b, uint64_t v);
/* A list of many numbers: much faster than one by one. */
void fal_json_u32s(struct fal_buf *b, const uint32_t *v, size_t n);
void fal_json_i64(struct fal_buf *b, int64_t v);
void fal_json_bool(struct fal_buf *b, bool v);

/* The fewest of 15, 16 or 17 digits that read back as `v`; null when not finite. */
void fal_json_num(struct fal_buf *b, double v);

/* `v` with exactly `decimals` digits after the point; null when not finite. */
void fal_json_fixed(struct fal_buf *b, double v, int decimals);

/* "key": value.  A string that is NULL: no member; `kind`, a container, is to be closed.
 */
void fal_json_member_open(struct fal_buf *b, const char *key, char kind);
void fal_json_member_str(struct fal_buf *b, const char *key, const char *s);
void fal_json_member_u64(struct fal_buf *b, const char *key, uint64_t v);
void fal_json_member_bool(struct fal_buf *b, const char *key, bool v);
void fal_json_member_num(struct fal_buf *b, const char *key, double v);
void fal_json_member_fixed(struct fal_buf *b, const char *key, double v, int decimals);

#endif
