/* The source of samples: the cache, or the coordinator; the samples needed first come
 * first.
 *
 * A feed asks for chunks through its owner and gets them back as messages; lanes read the
 * samples.  The cache is read and written beside the loop.  Or all samples come from a
 * local copy of the job's files. */
#ifndef WORK_DATA_H
#define WORK_DATA_H

#include "job/chunk.h"
#include "job/job.h"
#include "job/order.h"
#include "wire/msg.h"

#include <uv.h>

enum { FEED_PLACES = 4 }; /* chunks that are looked for, asked for or kept at a time */

struct feed; /* opaque */

struct feed_ops {
	void *arg;
	/* Ask the coordinator. */
	void (*get)(void *arg, bool test, uint32_t chunk);
	/* Another chunk is here.  Never called after feed_stop; called from the loop or
	 * from within feed_chunk. */
	void (*on_chunk)(void *arg);
};

/* An empty one for the data of `m`, which is kept until feed_free, `cache` (a
 * directory; NULL: none) until the loop ends.  `ops` is copied.  FAL_ENOMEM. */
int feed_new(uv_loop_t *loop, const struct fal_manifest *m, const char *cache,
	     const struct feed_ops *ops, struct feed **out);

/* No lane reads any more; memory goes when the loop has run on, and the cache is done. */
void feed_free(struct feed *f);

/* The samples of one set; NULL: the job has no such set. */
struct fal_samples *feed_samples(const struct feed *f, bool test);

/* Fetches what is missing, from the next turn of the loop on: the chunks that `order`
 * (borrowed for the call) needs from the place `first` on, the other training chunks,
 * the test set.  Chunks that were asked for before are asked for again.  `task` are the
 * samples of a task. */
void feed_start(struct feed *f, const struct fal_order *order, uint32_t first,
		uint32_t task);

/* Asks for nothing any more, until feed_start or feed_hurry. */
void feed_stop(struct feed *f);

/* Whether the first group is here, or the first task's chunks where those are more. */
bool feed_first(const struct feed *f);

/* Whether all chunks of the places first … first+count-1 of `order` are here. */
bool feed_has(const struct feed *f, bool test, const struct fal_order *order,
	      uint32_t first, uint32_t count);

/* Fetches next those chunks of the places first … first+count-1 that are not here. */
void feed_hurry(struct feed *f, bool test, const struct fal_order *order, uint32_t first,
		uint32_t count);

/* A CHUNK message.  FAL_ESTATE: not asked for, or out of order; errors of
 * fal_samples_put_chunk. */
int feed_chunk(struct feed *f, const struct fal_msg *m);

/* Puts all of the job's data in, from files in `dir` that have the last parts of the
 * job's names, in the calling thread; nobody else touches the samples meanwhile.  Errors
 * of fal_load_set or fal_samples_put_set, with `diag`. */
int feed_fill(struct feed *f, const struct fal_job *job, const char *dir,
	      struct fal_diag *diag);

#endif
