/* The chain of a trace or a journal: each line ends with a hash of itself and of the line
 * before it, so that the last one stands for all.  falcon-trace(5), section CHAIN.
 *
 * Pure.  A hash without a key: whoever changes a line can make the rest anew, but not so
 * that it ends as it did.
 */
#ifndef FAL_TRACE_CHAIN_H
#define FAL_TRACE_CHAIN_H

#include "base/buf.h"

#include <stdbool.h>
#include <stddef.h>

/* Digits of a link, 128 bits: to find another trace that ends in a given link takes 2^128
 * tries, and two that end alike 2^64.  What a follower begins with is one of them, so
 * that no more can be carried from line to line than is written. */
#define FAL_CHAIN_DIGITS 32

/* How far it has come; {0}: nothing stands before. */
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

#endif
