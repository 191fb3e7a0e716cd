/* How often a source may do what costs: one token bucket each.  Time is an argument;
 * nothing is allocated.
 */
#ifndef FAL_NET_LIMIT_H
#define FAL_NET_LIMIT_H

#include <stdbool.h>
#include <stdint.h>

#define FAL_LIMIT_SOURCES 256 /* that are told apart */
#define FAL_LIMIT_RATE 10     /* tokens a second that come back */

struct sockaddr;

/* Zero but for `burst`: nobody came yet. */
struct fal_limit {
	double burst; /* tokens of a source at once */
	struct fal_bucket {
		uint64_t source;
		uint64_t at_ns; /* when `spent` was true; 0: the bucket is free */
		double spent;   /* tokens, of `burst` */
	} bucket[FAL_LIMIT_SOURCES];
};

/* The source that an address is counted for: an IPv4 address, also one mapped into IPv6,
 * or the first 64 bits of an IPv6 address, as a host often has all behind them.  0 for
 * other families. */
uint64_t fal_limit_source(const struct sockaddr *sa);

/* Takes a token of `source` at `now_ns`, which is not 0 and does not go back; false: none
 * is left.  A new source takes over the bucket, as it is, of the one with most tokens: so
 * all sources together have FAL_LIMIT_SOURCES times the burst and the rate, no more. */
bool fal_limit_take(struct fal_limit *l, uint64_t source, uint64_t now_ns);

/* Gives a token back: who proved to be a client is not limited. */
void fal_limit_give(struct fal_limit *l, uint64_t source);

#endif
