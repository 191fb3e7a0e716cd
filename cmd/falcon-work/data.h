/* Prefetching of samples from the cache or the coordinator, in the order in which tasks
 * need them; or loading of all samples from a local copy of the job's files.
 *
 * The owner requests chunks and passes on the answers; lanes read the samples.  The cache
 * is read and written in threads of libuv's pool. */
#ifndef WORK_DATA_H
#define WORK_DATA_H

#include "job/chunk.h"
#include "job/job.h"
#include "job/order.h"
#include "wire/msg.h"

#include <uv.h>

enum { PREFETCH_SLOTS = 4 }; /* chunks that are read, requested or cached at a time */

struct prefetch; /* opaque */

struct prefetch_ops {
	void *arg;
	/* Requests a chunk from the coordinator. */
	void (*request)(void *arg, bool test, uint32_t chunk);
	/* Another chunk has arrived.  Never called after prefetch_stop; called from the
	 * loop or from within prefetch_add_chunk. */
	void (*on_chunk)(void *arg);
};

/* Makes an empty prefetch for the data of `m`, which is kept until prefetch_free; the
 * directory `cache` (NULL: none) is kept until the loop ends.  `ops` is copied.
 * FAL_ENOMEM. */
int prefetch_new(uv_loop_t *loop, const struct fal_manifest *m, const char *cache,
		 const struct prefetch_ops *ops, struct prefetch **out);

/* Frees the samples, which no lane may read any more.  The other memory is freed later,
 * when the loop has run on and the cache is written.  Does nothing with NULL. */
void prefetch_free(struct prefetch *f);

/* The samples of one set; NULL: the job has no such set. */
struct fal_samples *prefetch_samples(const struct prefetch *f, bool test);

/* Fetches missing chunks, from the next turn of the loop on: the chunks that `order`
 * (borrowed for the call) needs from the place `first` on, the other training chunks, the
 * test set.  Repeats requests that have no answer yet.  `task`: samples of a task.
 */
void prefetch_start(struct prefetch *f, const struct fal_order *order, uint32_t first,
		    uint32_t task);

/* Stops all requests, until prefetch_start or prefetch_prioritize. */
void prefetch_stop(struct prefetch *f);

/* Returns true if the chunks of the first task, and at least the first group of
 * chunks, have arrived. */
bool prefetch_has_first_task(const struct prefetch *f);

/* Returns true if all chunks of the places first … first+count-1 of `order` have
 * arrived. */
bool prefetch_has(const struct prefetch *f, bool test, const struct fal_order *order,
		  uint32_t first, uint32_t count);

/* Fetches the missing chunks of the places first … first+count-1 next. */
void prefetch_prioritize(struct prefetch *f, bool test, const struct fal_order *order,
			 uint32_t first, uint32_t count);

/* Adds a CHUNK message.  FAL_ESTATE: not requested, or out of order; errors of
 * fal_samples_put_chunk. */
int prefetch_add_chunk(struct prefetch *f, const struct fal_msg *m);

/* Loads all of the job's data, in the calling thread, from files in `dir` that have the
 * last parts of the job's names.  No other thread may use the samples meanwhile.  Errors
 * of fal_load_set or fal_samples_put_set, with `diag`. */
int prefetch_load_local(struct prefetch *f, const struct fal_job *job, const char *dir,
			struct fal_diag *diag);

#endif
