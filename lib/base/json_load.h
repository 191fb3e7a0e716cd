/* Reads JSON with jansson, without mistaking a lack of memory for a fault of the text:
 * after a failed allocation jansson may go on with a byte of a string or a member of a
 * copy less (2.14), or report a missing member.  So all JSON is read here, where each of
 * its allocations is watched.
 */
#ifndef FAL_BASE_JSON_LOAD_H
#define FAL_BASE_JSON_LOAD_H

#include <jansson.h>
#include <stddef.h>

/* As json_loadb.  NULL: the text is no JSON, for the reason why->text; or there is no
 * memory, and why->text is empty. */
json_t *fal_json_load(const void *p, size_t n, size_t flags, json_error_t *why);

/* As json_unpack_ex; `why` may be NULL.  FAL_EFORMAT: `o` is not so, or NULL;
 * FAL_ENOMEM. */
int fal_json_unpack(json_t *o, json_error_t *why, size_t flags, const char *fmt, ...);

#endif
