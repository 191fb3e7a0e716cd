/* What a worker waited for of each shard: the tail of WORKED (falcon-protocol(7)).
 *
 * Bytes in, numbers out; no memory of its own.
 */
#ifndef FAL_WIRE_SHARD_WAIT_H
#define FAL_WIRE_SHARD_WAIT_H

#include "wire/msg.h"

struct fal_shard_wait {
	uint32_t parts;        /* of versions, that came whole */
	uint64_t took, waited; /* ns, of all of them */
};

/* Appends the row of a shard, from 0, unless there is nothing to say. */
void fal_shard_wait_put(struct fal_buf *out, uint32_t shard,
			const struct fal_shard_wait *w);

/* Rows in the order of their shards, of a job that has so many, added to `w`, by shard,
 * if it is not NULL: all or nothing.  FAL_EFORMAT; FAL_ELIMIT: they waited longer than
 * `most` ns together, or a part took longer than any time. */
int fal_shard_wait_get(const struct fal_tail *rows, uint32_t shards, uint64_t most,
		       struct fal_shard_wait *w);

#endif
