/* A directory of chunks, kept between runs and shared by the workers of one machine.
 *
 * Only a cache: whatever goes wrong here, the chunk can be fetched again.  The files
 * are DIR/ab/cd/abcd…, named by the lower-case hex of their content's BLAKE2b-256.
 */
#ifndef FAL_DATA_CACHE_H
#define FAL_DATA_CACHE_H

#include "base/buf.h"
#include "data/chunk.h"

#include <stddef.h>
#include <stdint.h>

/* Where it is: `option`; NULL: $XDG_CACHE_HOME/falcon, or ~/.cache/falcon.  To be freed;
 * NULL: there is no such place, or `option` is "none", or no memory. */
char *fal_cache_where(const char *option);

/* Appends the chunk named `hash` to `out`.  FAL_ENOENT when it is not there, or was
 * there with other bytes: such a file is removed.  FAL_EIO, FAL_ENOMEM. */
int fal_cache_get(const char *dir, const uint8_t hash[static FAL_HASH_BYTES],
		  struct fal_buf *out);

/* Keeps the n (≤ FAL_CHUNK_BYTES) bytes of the chunk named `hash`, which the caller has
 * verified; makes `dir` and its parents where they are missing.  Written beside and
 * renamed: another process sees the whole file or none.  FAL_EIO (errno says why: a
 * full disk, no permission) leaves nothing behind, FAL_ELIMIT. */
int fal_cache_put(const char *dir, const uint8_t hash[static FAL_HASH_BYTES],
		  const uint8_t *p, size_t n);

#endif
