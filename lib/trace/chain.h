/* Hashes that a trace has.
 *
 * The chain of a trace, as a journal has one: each line ends with a hash of itself and of
 * the line before it, so that the last hash stands for all lines.  falcon-trace(5),
 * section CHAIN.  The hash has no key: a person that changes a line can make the rest
 * anew, but not so that the trace ends as it did.
 *
 * The hash of a version: a hash of its leaves, which are the hashes of its blocks, in the
 * model's order.  So shards hash their blocks each by itself, and the hash is the same
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

/* Digits of a link, 128 bits: to find another trace that ends in a given link takes 2^128
 * tries, and two that end alike 2^64.  A follower begins with a link, so that no line can
 * carry more to the next than is written. */
#define FAL_CHAIN_DIGITS 32

/* The position of a chain; {0}: no line stands before. */
struct fal_chain {
	char link[FAL_CHAIN_DIGITS + 1]; /* of the last line */
};

/* Appends the n bytes of a line, a JSON object with members and without a newline, with
 * its link as the last member and with a newline.  Where `out` has no memory the chain
 * stays where it was. */
void fal_chain_put(struct fal_chain *c, const char *line, size_t n, struct fal_buf *out);

/* The link that a line ends with, with or without its newline; false: it has none, and
 * `link` is as it was. */
bool fal_chain_link(const char *line, size_t n, char link[static FAL_CHAIN_DIGITS + 1]);

/* Goes on behind a line, without its newline, by the link that it ends with.  Returns
 * whether that is the one that it has to have. */
bool fal_chain_take(struct fal_chain *c, const char *line, size_t n);

/* ---- versions ---------------------------------------------------------------------- */

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
