/* The even placement: which shard has which block by default.
 *
 * Pure: no memory of its own, no I/O, no clock.
 */
#ifndef FAL_PLACE_PLACE_H
#define FAL_PLACE_PLACE_H

#include <stdint.h>

/* The first block of shard i; of number `shards`: how many blocks there are.  A shard may
 * have none. */
static inline uint32_t
fal_place_first(uint32_t blocks, uint32_t shards, uint32_t i)
{
	return (uint32_t)((uint64_t)blocks * i / shards);
}

#endif
