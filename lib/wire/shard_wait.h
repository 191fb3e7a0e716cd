/* How long a worker waited for each shard: the tail of WORKED (falcon-protocol(7)).
 *
 * No I/O, no memory of its own. */
#ifndef FAL_WIRE_SHARD_WAIT_H
#define FAL_WIRE_SHARD_WAIT_H

#include "wire/msg.h"

struct fal_shard_wait {
	uint32_t parts;        /* of versions, received as a whole */
	uint64_t took, waited; /* ns, of all parts */
};

/* Appends the row of a shard (counted from 0), unless all its numbers are 0. */
void fal_shard_wait_put(struct fal_buf *out, uint32_t shard,
			const struct fal_shard_wait *w);

/* Adds the rows, in order of their shards, to `w`, by shard (NULL: only checks them): all
 * rows or none.  The job has `shards` shards.  FAL_EFORMAT; FAL_ELIMIT: the waits add up
 * to more than `most` ns, or a part took more than FAL_MSG_NS_MAX. */
int fal_shard_wait_get(const struct fal_tail *rows, uint32_t shards, uint64_t most,
		       struct fal_shard_wait *w);

#endif
