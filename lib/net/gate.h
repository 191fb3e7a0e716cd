/* Who may cause the cryptography of a handshake, once its MAC is judged.
 *
 * A wrong MAC costs a hash, and its source's budget; only when that is spent it matters.
 * A right one is remembered, so that a replay, which has the MAC of what it replays, and
 * the ephemeral key, counts as wrong; then it is charged to its name and source, and what
 * opens a session is not charged in the end.  So nobody who lacks a name's key can spend
 * that name's budget, from wherever he comes.  Time is an argument; nothing is allocated.
 */
#ifndef FAL_NET_GATE_H
#define FAL_NET_GATE_H

#include "base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* How often a source may do what costs: one token bucket each. */
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

#define FAL_GATE_WRONG 20  /* wrong handshakes of a source at once */
#define FAL_GATE_RIGHT 128 /* right ones of a name and source, while none has opened */
#define FAL_GATE_SEEN 4096 /* right ones that are remembered */
#define FAL_GATE_PRINT 16  /* bytes of its MAC that one is known by */

struct fal_gate {
	struct fal_limit wrong, right;
	uint8_t seen[FAL_GATE_SEEN][FAL_GATE_PRINT];
	unsigned next; /* the oldest of them */
};

void fal_gate_init(struct fal_gate *g);

/* What a name at a source is counted as. */
uint64_t fal_gate_group(uint64_t from, const char *name);

/* A handshake with a wrong MAC came from `from` (fal_limit_source; 0 has no limits):
 * FAL_EAUTH; FAL_ELIMIT when it is one too many, which `diag` then says. */
int fal_gate_wrong(struct fal_gate *g, uint64_t from, uint64_t now_ns,
		   struct fal_diag *diag);

/* One with the right `mac` came, of FAL_GATE_PRINT bytes or more.  FAL_OK: it may be
 * answered; FAL_ELIMIT: not now; FAL_EAUTH: it came before.  `diag` says why not. */
int fal_gate_right(struct fal_gate *g, uint64_t from, uint64_t group, const uint8_t *mac,
		   uint64_t now_ns, struct fal_diag *diag);

/* By one that was answered a session has opened. */
void fal_gate_proved(struct fal_gate *g, uint64_t from, uint64_t group);

#endif
