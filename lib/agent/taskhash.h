/* The hash of what a task gave (falcon-protocol(7), "The task's hash"): whoever computes
 * the same bits says the same, in whatever contribution the task goes.
 *
 * Made block by block, in the pass that quantises.
 */
#ifndef FAL_AGENT_TASKHASH_H
#define FAL_AGENT_TASKHASH_H

#include "sec/hash.h"
#include "wire/bfp.h"
#include "wire/msg.h"

/* A running one: fal_hash_init, then all blocks in order, then the end. */
void fal_task_hash_block(struct fal_hash_state *h, const struct fal_sum *s,
			 uint32_t block, int8_t exponent);
void fal_task_hash_end(struct fal_hash_state *h, uint8_t out[static FAL_TASK_HASH]);

/* All of the task alone, as it was quantised under `exps`. */
void fal_task_hash(const struct fal_sum *s, const int8_t *exps,
		   uint8_t out[static FAL_TASK_HASH]);

#endif
