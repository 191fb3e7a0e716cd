/* Limits on the number of handshakes that a server computes, after the check of the MAC.
 *
 * A wrong MAC costs a hash, and a token of the source.  Without a token of the source the
 * handshake fails as well; only the logged reason differs.  A right MAC is remembered, so
 * that a replay, which has the MAC and the ephemeral key of an earlier handshake, counts
 * as wrong.  A right MAC costs a token of the name at the source; the token comes back
 * when the session opens.  So a stranger without a name's key cannot spend the tokens of
 * that name, from any source.  Time is an argument; nothing is allocated.
 */
#ifndef FAL_NET_GATE_H
#define FAL_NET_GATE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Rate limits: one token bucket for each source. */
#define FAL_LIMIT_SOURCES 256 /* sources with buckets of their own */
#define FAL_LIMIT_RATE 10     /* tokens a second that come back */

struct sockaddr;

/* With all members 0 except `burst`, all buckets are free. */
struct fal_limit {
	double burst; /* tokens of a source at once */
	struct fal_bucket {
		uint64_t source;
		uint64_t at_ns; /* time of `spent`; 0: the bucket is free */
		double spent;   /* tokens, of `burst` */
	} bucket[FAL_LIMIT_SOURCES];
};

/* The source of an address: an IPv4 address, also one mapped into IPv6, or the first 64
 * bits of an IPv6 address, as a host often has all addresses of such a prefix.  0 for
 * other families. */
uint64_t fal_limit_source(const struct sockaddr *sa);

/* Takes a token of `source` at `now_ns`, which is not 0 and does not go back.  False: no
 * token is left.  A new source takes over the bucket with the most tokens, and gets no
 * tokens beyond those: so all sources together have at most FAL_LIMIT_SOURCES times the
 * burst and the rate. */
bool fal_limit_take_token(struct fal_limit *l, uint64_t source, uint64_t now_ns);

/* Gives a token back, for a source that has proved to be a client. */
void fal_limit_return_token(struct fal_limit *l, uint64_t source);

#define FAL_GATE_WRONG 20  /* tokens of a source for wrong MACs */
#define FAL_GATE_RIGHT 128 /* tokens of a name at a source for sessions not open yet */
#define FAL_GATE_SEEN 4096 /* right MACs that are remembered */
#define FAL_GATE_PRINT 16  /* bytes of a MAC that are remembered */

struct fal_gate {
	struct fal_limit wrong, right;
	uint8_t seen[FAL_GATE_SEEN][FAL_GATE_PRINT];
	unsigned next; /* the oldest in `seen` */
};

void fal_gate_init(struct fal_gate *g);

/* The token bucket's key for a name at a source. */
uint64_t fal_gate_group(uint64_t from, const char *name);

/* Counts a handshake with a wrong MAC from `from` (fal_limit_source; 0 has no limits):
 * FAL_EAUTH; FAL_ELIMIT, with `diag`: the source has no token left. */
int fal_gate_count_wrong(struct fal_gate *g, uint64_t from, uint64_t now_ns,
			 struct fal_diag *diag);

/* Counts a handshake with the right `mac`, of FAL_GATE_PRINT bytes or more.  FAL_OK: the
 * server may answer.  With `diag`: FAL_ELIMIT, the server may not answer now; FAL_EAUTH,
 * the handshake is a replay. */
int fal_gate_count_right(struct fal_gate *g, uint64_t from, uint64_t group,
			 const uint8_t *mac, uint64_t now_ns, struct fal_diag *diag);

/* Gives the token of an answered handshake back, since the handshake's session has
 * opened. */
void fal_gate_refund(struct fal_gate *g, uint64_t from, uint64_t group);

#endif
