/* Which shard has which block: static rules, that know sizes and nothing else.
 *
 * A rule gives runs of floats to shards, as the system that it is named after does; a
 * block belongs to the run that has most of its floats, the first of equal ones.  With
 * tensors that share no block (falcon-job(5), block = tensor) that is exact.  What they
 * know as the key of an array is here its number in the model's order, from 0.
 *
 * Pure: no memory of its own, no I/O, no clock.
 */
#ifndef FAL_PLACE_PLACE_H
#define FAL_PLACE_PLACE_H

#include <stdbool.h>
#include <stdint.h>

enum fal_place_rule {
	/* Ours: shard i of S has the blocks from ⌊B·i/S⌋ on. */
	FAL_PLACE_BLOCKS,
	/* MXNet: a tensor of fewer than 10^6 floats goes whole to (number · 9973) mod S;
	 * others are split in S parts, each from round(n/S·i) on (apache/mxnet
	 * src/kvstore/kvstore_dist.h, EncodeDefaultKey; MXNET_KVSTORE_BIGARRAY_BOUND). */
	FAL_PLACE_MXNET,
	/* BytePS: parts of 4,096,000 bytes; part p of tensor t goes to djb2 of the
	 * decimal digits of 2^16·t + p, mod S (bytedance/byteps byteps/common/global.cc,
	 * EncodeDefaultKey and Hash_DJB2; operations.cc, InitTensor;
	 * BYTEPS_PARTITION_BYTES, BYTEPS_KEY_HASH_FN). */
	FAL_PLACE_BYTEPS,
	/* TensorFlow: tensor t goes whole to t mod S (tensorflow/tensorflow
	 * tensorflow/python/training/device_setter.py, _RoundRobinStrategy, which
	 * replica_device_setter has by default; without a partitioner, as
	 * fixed_size_partitioner in ops/partitioned_variables.py is one, nothing is
	 * split). */
	FAL_PLACE_TENSORFLOW,
	FAL_PLACE_RULES
};

/* "blocks", "mxnet", "byteps", "tensorflow"; and back, false: no rule has that name. */
const char *fal_place_name(enum fal_place_rule rule);
bool fal_place_find(const char *name, enum fal_place_rule *out);

/* Does it ask for the tensors?  If not, none need be known. */
bool fal_place_by_tensor(enum fal_place_rule rule);

/* A tensor: `count` floats of the flat vector, from `at` on. */
struct fal_place_tensor {
	uint64_t at, count;
};

struct fal_place_model {
	uint32_t blocks;
	uint32_t block; /* floats of one, but that the last may be shorter */
	const struct fal_place_tensor *tensor; /* in order; borrowed */
	uint32_t tensors;
};

/* By FAL_PLACE_BLOCKS, the first block of shard i; of number `shards`: how many there
 * are. */
static inline uint32_t
fal_place_first(uint32_t blocks, uint32_t shards, uint32_t i)
{
	return (uint32_t)((uint64_t)blocks * i / shards);
}

/* The shard, below `shards`, of each block, into `map`.  A shard may have none. */
void fal_place(enum fal_place_rule rule, const struct fal_place_model *m, uint32_t shards,
	       uint32_t *map);

/* The same, in place, with one range for each shard (at most 64), in their order: each
 * has as many blocks as the rule gives it, and so its bytes, whichever blocks they are.
 */
void fal_place_ranges(uint32_t *map, uint32_t blocks, uint32_t shards);

/* Ranges, numbered by those that there are: how many. */
uint32_t fal_place_dense(uint32_t *map, uint32_t blocks);

#endif
