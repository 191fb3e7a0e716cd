/* The hash of a version: of its leaves, which are the hashes of its blocks, in the
 * model's order.  So shards hash their blocks each by itself, and the hash is the same
 * however the model is cut.  falcon-trace(5), section VERSION HASH.
 */
#ifndef FAL_TRACE_LEAF_H
#define FAL_TRACE_LEAF_H

#include "sec/hash.h"

/* Unless its job says otherwise, one version of so many is hashed of a model with n
 * parameters: so hashing is a small part of all clocks, whatever n is (bench_leaf). */
uint32_t fal_leaf_every(size_t n);

/* Blocks that are hashed side by side: more at a time gain nothing. */
enum { FAL_LEAVES_TOGETHER = 16 };

/* The leaves of n parameters that begin with a block: FAL_HASH_BYTES for each block, one
 * after the other. */
void fal_leaves(const float *params, size_t n, uint8_t *out);

/* The hash of the version with these leaves, of all its blocks. */
void fal_leaf_root(const uint8_t *leaves, uint32_t blocks,
		   uint8_t out[static FAL_HASH_BYTES]);

/* The hash of a version with these n parameters. */
void fal_leaf_model(const float *params, size_t n, uint8_t out[static FAL_HASH_BYTES]);

/* The hash of its exponents, one for each block, which the hash of a version is without.
 */
void fal_leaf_exponents(const int8_t *exps, uint32_t blocks,
			uint8_t out[static FAL_HASH_BYTES]);

#endif
