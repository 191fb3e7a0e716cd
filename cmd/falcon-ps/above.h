/* --upstream: the coordinator above, of which this one is a worker (design.md, D50).
 * Its connection is above.c's: one worker's session, from HELLO to its end; what passes
 * between that and what is here is lib/group's. */
#ifndef FALCON_PS_ABOVE_H
#define FALCON_PS_ABOVE_H

#include "coord/coord.h"
#include "net/addr.h"
#include "net/retry.h"
#include "sec/keyring.h"

struct ps_server;
struct fal_files;
struct above; /* opaque */

struct ps_above_opt {
	const char *text; /* its address, as it was said */
	const struct fal_addr *addr;
	const struct fal_client_key *key;
	struct fal_retry *retry; /* of all incarnations */
	/* What it has been before, as it must not be taken for another one each time that
	 * its members come back one by one. */
	struct ps_above_past {
		bool several;     /* its members have had several numerics */
		uint32_t members; /* that there were when it had to say others */
	} *past;
	const char *job;   /* the file that was judged here; NULL: it came from above, */
	const char *cache; /* and its data are in this folder (data/cache.h) */
	uint8_t instance[FAL_INSTANCE]; /* of this process */
};

/* What HELLO says of this process, but for its lanes, which are 1. */
void above_hello(const struct ps_above_opt *opt, struct fal_msg *m);

/* The job from above, into `j`, and its data into opt->cache.  An exit code; what is not
 * success has been said. */
int above_fetch(const struct ps_above_opt *opt, struct fal_files *j);

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
