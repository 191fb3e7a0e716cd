/* Chunks of the data as they travel: cut into CHUNK messages, each compressed.  Those
 * that were asked for last are kept, so that many who ask cost one reading and one
 * compression.
 */
#ifndef FALCON_PS_CACHE_H
#define FALCON_PS_CACHE_H

#include "base/buf.h"
#include "data/chunk.h"
#include "wire/zip.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { PS_CACHE_MAX = 64 << 20 }; /* bytes; the newest one is kept in any case */

struct ps_packed {
	struct fal_buf bytes; /* of each message: u32 their number, then they */
	uint64_t used;        /* when: grows; 0: it is not here */
};

/* {0} but for `most` is empty and valid. */
struct ps_cache {
	size_t most;
	size_t bytes;           /* kept */
	struct ps_packed *v[2]; /* by chunk: of the training set, of the test set */
	uint32_t n[2];
	uint64_t uses, made;
	struct fal_zip *zip;
};

/* The messages of chunk `i` (< part->chunks) of `set`, which is the test set or not, in
 * *out: borrowed until the next call.  FAL_ENOMEM, or as fal_chunk_get. */
int ps_cache_get(struct ps_cache *c, const struct fal_part *part,
		 const struct fal_set *set, bool test, uint32_t i,
		 const struct fal_buf **out);
void ps_cache_free(struct ps_cache *c);

#endif
