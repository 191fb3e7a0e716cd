/* The block map: which shard has which blocks, from one move to the next.
 *
 * A shard keeps its number for as long as an incarnation lasts, and has a run of blocks,
 * or none.  Each map has an epoch, one more than that before it.
 */
#ifndef FAL_WIRE_BLOCK_MAP_H
#define FAL_WIRE_BLOCK_MAP_H

#include "base/buf.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct fal_extent {
	uint32_t first, count; /* blocks */
};

struct fal_map {
	uint32_t epoch;
	uint32_t shards; /* numbers that there are: 0 … shards-1 */
	struct fal_extent of[FAL_SHARDS_MAX];
};

/* The first block of shard i where `blocks` blocks are shared evenly by `shards` shards.
 * A shard may have none. */
static inline uint32_t
fal_map_first(uint32_t blocks, uint32_t shards, uint32_t i)
{
	return (uint32_t)((uint64_t)blocks * i / shards);
}

/* So many blocks, as evenly as whole blocks let it, in the order of the shards: epoch
 * 1. */
void fal_map_even(struct fal_map *m, uint32_t blocks, uint32_t shards);
/* Is each of so many blocks some shard's, and no two's? */
bool fal_map_covers(const struct fal_map *m, uint32_t blocks);
/* The shards that have blocks: as bits; and in the order of these, into `out`, which
 * returns how many. */
uint64_t fal_map_busy(const struct fal_map *m);
uint32_t fal_map_in_order(const struct fal_map *m, uint32_t out[static FAL_SHARDS_MAX]);

/* As BLOCKS, PLACE and an ORDER have it, without its epoch; and back, FAL_EFORMAT. */
void fal_map_put(struct fal_buf *out, const struct fal_map *m);
int fal_map_get(const struct fal_tail *of, uint32_t epoch, uint32_t blocks,
		struct fal_map *out);

/* The map after `m` in which no shard of `leave` (as bits) has blocks: what they had goes
 * to the shards beside it, half to each.  FAL_ENOENT: nobody else has any. */
int fal_map_drain(struct fal_map *m, uint64_t leave);
/* The map after `m` in which `shard`, which has none, has some: half of what that with
 * the most has.  FAL_ENOENT: nobody has more than one. */
int fal_map_enter(struct fal_map *m, uint32_t shard);

#endif
