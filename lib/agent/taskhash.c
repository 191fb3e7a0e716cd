/* The hash of what a task gave. */
#include "agent/taskhash.h"

#include <string.h>

void
fal_task_hash_block(struct fal_hash_state *h, const struct fal_sum *s, uint32_t block,
		    int8_t exponent)
{
	uint32_t width;
	union fal_sum_room room;
	const void *v = fal_sum_values(s, block, &width, &room);
	const uint8_t head[4] = { (uint8_t)exponent, (uint8_t)fal_sum_needed(s, block),
				  (uint8_t)width, 0 };
	fal_hash_update(h, head, sizeof(head));
	if (width > 0)
		fal_hash_update(h, v,
				(size_t)width * fal_block_len(fal_sum_len(s), block));
}

void
fal_task_hash_end(struct fal_hash_state *h, uint8_t out[static FAL_TASK_HASH])
{
	uint8_t all[FAL_HASH_BYTES];
	fal_hash_final(h, all);
	memcpy(out, all, FAL_TASK_HASH);
}

void
fal_task_hash(const struct fal_sum *s, const int8_t *exps,
	      uint8_t out[static FAL_TASK_HASH])
{
	struct fal_hash_state h;
	fal_hash_init(&h);
	for (uint32_t b = 0; b < fal_blocks(fal_sum_len(s)); b++)
		fal_task_hash_block(&h, s, b, exps[b]);
	fal_task_hash_end(&h, out);
}
