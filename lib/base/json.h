/* Writes JSON onto a struct fal_buf, without allocating beyond it.
 *
 * Commas are added automatically: before a value or key, unless the last byte of the
 * buffer opens a container, ends a key or ends a line.  So one buffer takes many lines:
 * end each with fal_put_u8(b, '\n').  Nothing checks that containers are closed.  The
 * buffer keeps the first error.  jansson reads JSON (base/json_load.h).
 */
#ifndef FAL_BASE_JSON_H
#define FAL_BASE_JSON_H

#include "base/buf.h"

#include <stdbool.h>
#include <stdint.h>

void fal_json_open(struct fal_buf *b, char kind);  /* '{' or '[' */
void fal_json_close(struct fal_buf *b, char kind); /* '}' or ']' */

/* Writes "key":, which one value must follow.  Quoted like fal_json_str. */
void fal_json_key(struct fal_buf *b, const char *key);

/* Writes a string.  `s` may be a peer's: control characters are escaped, and each byte of
 * invalid UTF-8 (RFC 3629) becomes U+FFFD. */
void fal_json_str(struct fal_buf *b, const char *s);

void fal_json_u64(struct fal_buf *b, uint64_t v);
/* Writes a list of numbers, much faster than fal_json_u64 for each. */
void fal_json_u32s(struct fal_buf *b, const uint32_t *v, size_t n);
void fal_json_i64(struct fal_buf *b, int64_t v);
void fal_json_bool(struct fal_buf *b, bool v);

/* Writes the fewest of 15, 16 or 17 digits that read back as `v`; null if not finite. */
void fal_json_num(struct fal_buf *b, double v);

/* Writes `v` with exactly `decimals` digits after the point; null if not finite. */
void fal_json_fixed(struct fal_buf *b, double v, int decimals);

/* Writes "key": value; writes nothing for a string that is NULL.  The caller closes the
 * container `kind`. */
void fal_json_member_open(struct fal_buf *b, const char *key, char kind);
void fal_json_member_str(struct fal_buf *b, const char *key, const char *s);
void fal_json_member_u64(struct fal_buf *b, const char *key, uint64_t v);
void fal_json_member_bool(struct fal_buf *b, const char *key, bool v);
void fal_json_member_num(struct fal_buf *b, const char *key, double v);
void fal_json_member_fixed(struct fal_buf *b, const char *key, double v, int decimals);

#endif
