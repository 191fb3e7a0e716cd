/* Reads JSON with jansson, and tells a lack of memory from a fault of the text.  Jansson
 * 2.14 does not: after a failed allocation it may lose a byte of a string or a member of
 * an object, or report a missing member.  So all JSON is read here, and each allocation
 * of jansson is watched.
 */
#ifndef FAL_BASE_JSON_LOAD_H
#define FAL_BASE_JSON_LOAD_H

#include <jansson.h>
#include <stddef.h>

/* As json_loadb.  NULL: the text is no JSON, and why->text says why; or memory is short,
 * and why->text is empty. */
json_t *fal_json_load(const void *p, size_t n, size_t flags, json_error_t *why);

/* As json_unpack_ex; `why` may be NULL.  FAL_EFORMAT: `o` does not fit `fmt`, or `o` is
 * NULL; FAL_ENOMEM. */
int fal_json_unpack(json_t *o, json_error_t *why, size_t flags, const char *fmt, ...);

#endif
