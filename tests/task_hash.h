/* The hash of all of a task alone, as it was quantised under `exps`. */
#ifndef FAL_TESTS_TASK_HASH_H
#define FAL_TESTS_TASK_HASH_H

#include "worker/agent.h"

static inline void
fal_task_hash(const struct fal_sum *s, const int8_t *exps,
	      uint8_t out[static FAL_TASK_HASH])
{
	struct fal_hash_state h;
	fal_hash_init(&h);
	for (uint32_t b = 0; b < fal_blocks(fal_sum_len(s)); b++)
		fal_task_hash_block(&h, s, b, exps[b]);
	fal_task_hash_end(&h, out);
}

#endif
