/* --upstream: the coordinator above, of which this one is a worker (design.md, D50).
 * The connection is one worker's session, from HELLO to its end; what passes between that
 * and what is here is lib/group's. */
#ifndef FALCON_PS_UPSTREAM_H
#define FALCON_PS_UPSTREAM_H

#include "coord/coord.h"
#include "net/addr.h"
#include "net/retry.h"
#include "sec/keyring.h"

struct ps_server;
struct above; /* opaque */

struct ps_above_opt {
	const char *text; /* its address, as it was said */
	const struct fal_addr *addr;
	const struct fal_client_key *key;
	struct fal_retry *retry; /* of all incarnations */
	bool *several;   /* its members have had several numerics, in any incarnation */
	const char *job; /* the job's file here; job, model and data are those above */
	uint8_t instance[FAL_INSTANCE]; /* of this process */
};

/* It is dialled at once; what is here is ready when enough members are.  NULL: out of
 * memory. */
struct above *above_new(struct ps_server *s);
void above_free(struct above *a); /* when the loop has ended; may be NULL */

/* After an event: what is to be done goes down and up. */
void above_event(struct above *a);
/* The server ends; it is not waited for any more. */
void above_close(struct above *a);
void above_kill(struct above *a);

/* What an order needs beside what the coordinator knows: parameters, or room for a sum.
 * FAL_ENOMEM. */
int above_order(struct above *a, struct fal_shard_order *o);
/* Of fal_coord_ops; `arg` is the server. */
void above_claimed(void *arg, const struct fal_coord_claimed *is);
void above_given(void *arg, uint64_t round);
void above_evaluated(void *arg, const struct fal_coord_evaluated *is);

#endif
