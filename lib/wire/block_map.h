/* The block map: which shard has which blocks, from one move to the next.
 *
 * A shard keeps its number during an incarnation, and has one run of blocks, or none.
 * The epoch of each map is one higher than that of the map before. */
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
	uint32_t shards; /* numbered 0 … shards-1 */
	struct fal_extent of[FAL_SHARDS_MAX];
};

/* Returns the first block of shard i if `shards` shards share `blocks` blocks evenly.  A
 * shard may have no block. */
static inline uint32_t
fal_map_first(uint32_t blocks, uint32_t shards, uint32_t i)
{
	return (uint32_t)((uint64_t)blocks * i / shards);
}

/* Makes the map of epoch 1: `blocks` blocks, shared as evenly as whole blocks allow, in
 * the order of the shards. */
void fal_map_even(struct fal_map *m, uint32_t blocks, uint32_t shards);
/* Returns true if each of `blocks` blocks belongs to exactly one shard. */
bool fal_map_covers(const struct fal_map *m, uint32_t blocks);
/* Returns the shards that have blocks, as bits; or lists them in `out`, in order of their
 * blocks, and returns their number. */
uint64_t fal_map_busy(const struct fal_map *m);
uint32_t fal_map_list(const struct fal_map *m, uint32_t out[static FAL_SHARDS_MAX]);

/* Write the map as in BLOCKS, PLACE and ORDER, without its epoch; and read such a map:
 * FAL_EFORMAT. */
void fal_map_put(struct fal_buf *out, const struct fal_map *m);
int fal_map_get(const struct fal_tail *of, uint32_t epoch, uint32_t blocks,
		struct fal_map *out);

/* Takes all blocks from the shards `leave` (as bits), half to each neighbour, and raises
 * the epoch.  FAL_ENOENT: no other shard has blocks. */
int fal_map_drain(struct fal_map *m, uint64_t leave);
/* Gives `shard`, which has no blocks, half the blocks of the shard with the most, and
 * raises the epoch.  FAL_ENOENT: no shard has more than one block. */
int fal_map_split_largest(struct fal_map *m, uint32_t shard);

#endif
