/* The hashes in a trace.
 *
 * The chain of a trace or a journal: each line ends with a hash of that line and of the
 * hash before it, so that the last hash stands for all lines.  falcon-trace(5), section
 * CHAIN.  The hash has no key: a person who changes a line can compute the later hashes
 * anew, but the trace then ends with another hash.
 *
 * The hash of a version: a hash of its leaves.  The leaves are the hashes of its blocks,
 * in the model's order.  So each shard hashes its own blocks, and the hash is the same
 * however the model is cut.  falcon-trace(5), section VERSION HASH.
 *
 * Pure.
 */
#ifndef FAL_TRACE_CHAIN_H
#define FAL_TRACE_CHAIN_H

#include "base/buf.h"
#include "crypto/hash.h"

#include <stdbool.h>
#include <stddef.h>

/* Digits of a link, 128 bits: finding another trace that ends in a given link takes 2^128
 * tries; finding two traces with equal ends takes 2^64.  A follower begins with a written
 * link, so this link is all the state that a line hands to the next line. */
#define FAL_CHAIN_DIGITS 32

/* The position in a chain; {0}: before the first line. */
struct fal_chain {
	char link[FAL_CHAIN_DIGITS + 1]; /* of the last line */
};

/* Appends a line to `out`, with its link as the last member and with a newline.  `line`
 * is n bytes: a JSON object with members, without a newline.  If `out` has no memory, the
 * chain keeps its position. */
void fal_chain_put(struct fal_chain *c, const char *line, size_t n, struct fal_buf *out);

/* Copies the link that a line ends with; the newline is optional.  false: the line has no
 * link, and `link` is unchanged. */
bool fal_chain_link(const char *line, size_t n, char link[static FAL_CHAIN_DIGITS + 1]);

/* Moves the position behind a line (without its newline), to the line's own link. Returns
 * whether this link is right. */
bool fal_chain_take(struct fal_chain *c, const char *line, size_t n);

/* ---- versions ---------------------------------------------------------------------- */

/* Returns the default interval, in versions, between hashed versions of a model with n
 * parameters.  With this interval hashing takes a small part of a run's time, whatever n
 * is (bench_leaf). */
uint32_t fal_leaf_interval(size_t n);

/* Blocks that are hashed side by side; more at a time gain nothing. */
enum { FAL_LEAF_BATCH = 16 };

/* Computes the leaves of n parameters, which begin with a block: FAL_HASH_BYTES for each
 * block, one after the other. */
void fal_leaf_hashes(const float *params, size_t n, uint8_t *out);

/* Computes the hash of the version with these leaves, of all its blocks. */
void fal_leaf_root(const uint8_t *leaves, uint32_t blocks,
		   uint8_t out[static FAL_HASH_BYTES]);

/* Computes the hash of the version with these n parameters. */
void fal_leaf_model(const float *params, size_t n, uint8_t out[static FAL_HASH_BYTES]);

/* Computes the hash of a version's exponents, one for each block.  The hash of the
 * version does not include them. */
void fal_leaf_exponents(const int8_t *exps, uint32_t blocks,
			uint8_t out[static FAL_HASH_BYTES]);

#endif
