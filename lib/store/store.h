/* A shard's parameters: blocks, their version, and the sums of the open clock.
 *
 * Keeps one bit per (contribution, block), so that a block is counted once whatever
 * arrives, and knows a clock to be complete when every block has counted its K tasks
 * (DESIGN section 7, "Exactly once").  No I/O, no clock.
 */
#ifndef FAL_STORE_STORE_H
#define FAL_STORE_STORE_H

#include "optim/optim.h"
#include "sched/ledger.h"
#include "wire/bfp.h"

#include <stdbool.h>
#include <stdint.h>

struct fal_store; /* opaque */

struct fal_store_conf {
	size_t n; /* parameters */
	struct fal_optim optim;
	bool checksums; /* audit = sums: keep what was sent and what was added */
	uint64_t checksum_seed;
};

/* A store at version 0 with the parameters `init` (n floats, copied) and all exponents
 * FAL_EXP_FIRST; NULL when out of memory. */
struct fal_store *fal_store_new(const struct fal_store_conf *conf, const float *init);
void fal_store_free(struct fal_store *s);

/* Bytes that a store of n parameters needs, accumulators and optimiser included. */
size_t fal_store_bytes(const struct fal_store_conf *conf);

size_t fal_store_len(const struct fal_store *s);
uint64_t fal_store_version(const struct fal_store *s);
const float *fal_store_params(const struct fal_store *s); /* n floats, borrowed */
const int8_t *fal_store_exps(const struct fal_store *s);  /* one per block, borrowed */

/* A clock of `tasks` tasks begins on the current version; sums are zero. */
void fal_store_open(struct fal_store *s, uint32_t tasks);

/* One block record of contribution `id`, a sum over `tasks` tasks, which fills `fills`
 * ({0,0}: nothing).  1: added.  0: dropped, as the contribution it fills had brought
 * this block.  FAL_EEXIST: this very block came before.  FAL_EFENCED.  FAL_EINVAL: wrong
 * exponent, or another task count than before, or more tasks than the clock has.
 * FAL_ENOMEM, FAL_ELIMIT. */
int fal_store_add(struct fal_store *s, struct fal_cid id, struct fal_cid fills,
		  uint32_t tasks, const struct fal_bfp_rec *rec);

/* Nothing more of contribution `id` is accepted; what it brought stays counted.
 * 0 or FAL_ENOMEM. */
int fal_store_fence(struct fal_store *s, struct fal_cid id, struct fal_cid fills);

/* True when all blocks of `id` are counted, its own or those of what it fills. */
bool fal_store_whole(const struct fal_store *s, struct fal_cid id);

/* True when every block has counted the clock's tasks. */
bool fal_store_complete(const struct fal_store *s);

/* Applies the complete clock's mean gradient over `samples` samples at rate `lr`, moves
 * to the next version and its exponents, forgets the contributions. */
void fal_store_update(struct fal_store *s, float lr, double samples);

/* With checksums, of the open clock: what the records said, and what was added, each
 * summed over the blocks.  They are equal unless the shard did wrong. */
uint64_t fal_store_sent(const struct fal_store *s);
uint64_t fal_store_added(const struct fal_store *s);

#endif
