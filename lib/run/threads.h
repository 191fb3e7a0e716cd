/* Threads that a program's loop shares work with, where it falls in parts. */
#ifndef FAL_RUN_THREADS_H
#define FAL_RUN_THREADS_H

#include "base/parallel.h"

struct fal_threads; /* opaque */

/* So many, the caller's among them, or fewer where no more can be had.  They sleep until
 * there is work that the caller alone would need `worth_ns` for, judged by its first
 * parts. They hear no signal. */
struct fal_threads *fal_threads_new(uint32_t threads, uint64_t worth_ns);
void fal_threads_free(struct fal_threads *t); /* may be NULL */
/* What so many take of memory, beside the caller's: stacks, and what they compress with.
 */
uint64_t fal_threads_bytes(uint32_t threads);

/* For one thread of the program at a time; it does parts itself, and waits for nobody who
 * has not begun one: where all cores are busy, it does all.  Borrowed; NULL, which is
 * fine, for NULL. */
const struct fal_parallel *fal_threads_parallel(const struct fal_threads *t);

#endif
