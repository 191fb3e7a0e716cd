/* Published versions, encoded once for all workers (design.md, D10). */
#ifndef FALCON_PS_PUBLISH_H
#define FALCON_PS_PUBLISH_H

#include "net/shared.h"
#include "sec/hash.h"
#include "shard/rack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One version, in the encodings that somebody has asked for, by shard. */
struct ps_version {
	bool there;
	uint64_t version;
	struct fal_shared **plain, **packed; /* NULL: nobody asked */
};

struct ps_publisher {
	uint8_t job_hash[FAL_HASH_BYTES];
	uint32_t incarnation;
	const struct fal_rack *rack;
	struct fal_shared_pool *pool;          /* made with the first one */
	uint64_t publications;                 /* so far */
	struct ps_version newest, kept, older; /* older: whichever was sent last */
};

/* What to encode: shard `shard`'s part of a version that it has. */
struct ps_params {
	uint64_t version;
	uint32_t shard;
	bool keep; /* to be kept for evaluation */
};

/* The publication of `from`, with a number above `above`: a receiver demands that they
 * grow.  Made if it is not there yet; borrowed.  NULL: out of memory, or no such
 * version. */
struct fal_shared *ps_publish(struct ps_publisher *p, struct ps_version *v,
			      const struct ps_params *from, bool packed, uint64_t above);
void ps_publisher_free(struct ps_publisher *p);

#endif
