/* Reads JSON with jansson, and holds nothing against the text that was for want of
 * memory: jansson may go on without what an allocation was for (2.14 drops a byte of a
 * string, or a member of a copy), or say that a member is missing.  So all of Falcon's
 * goes through here, where each of its allocations is watched.
 */
#ifndef FAL_BASE_JSON_LOAD_H
#define FAL_BASE_JSON_LOAD_H

#include <jansson.h>
#include <stddef.h>

/* json_loadb.  NULL: it is none, and why->text says what it is not; or we are out of
 * memory, and the text is empty. */
json_t *fal_json_load(const void *p, size_t n, size_t flags, json_error_t *why);

/* json_unpack_ex; `why` may be NULL.  FAL_EFORMAT: `o` (NULL: none, too) is not so;
 * FAL_ENOMEM. */
int fal_json_unpack(json_t *o, json_error_t *why, size_t flags, const char *fmt, ...);

#endif
