/* Helper threads for a program's loop, for work that consists of independent parts. */
#ifndef FAL_RUN_THREADS_H
#define FAL_RUN_THREADS_H

#include "base/parallel.h"

struct fal_threads; /* opaque */

/* Starts `threads` threads, the caller's included, or fewer if the system has no more.
 * Helpers sleep until there is work that would take the caller alone `worth_ns` or
 * longer, as estimated from the first parts.  Helpers block all signals. */
struct fal_threads *fal_threads_new(uint32_t threads, uint64_t worth_ns);
void fal_threads_free(struct fal_threads *t); /* may be NULL */

/* Returns the bytes of the helpers' stacks and compressors. */
uint64_t fal_threads_bytes(uint32_t threads);

/* Returns the interface to share work, borrowed; NULL for NULL.  One thread of the
 * program may use the interface at a time.  The caller does parts as well and never waits
 * for a helper that has not begun a part: if all cores are busy, the caller does all
 * parts. */
const struct fal_parallel *fal_threads_parallel(const struct fal_threads *t);

#endif
