/* What a shard may believe of a push: the coordinator's word for it, in the worker's
 * hands (design.md, D17).
 *
 * The key of the MAC is drawn for an incarnation, and known to the coordinator and to
 * its shards. */
#ifndef FAL_SERVER_TICKET_H
#define FAL_SERVER_TICKET_H

#include "base/cid.h"
#include "crypto/hash.h"
#include "wire/msg.h"

/* What a shard must know of a round to sum it up. */
struct fal_facts {
	uint64_t version; /* that it is computed on; with `mixed`, on others, too */
	uint32_t tasks;
	enum fal_kind kind; /* what its contributions are: GRAD or DELTA */
	bool mixed;
};

/* What the coordinator knows of a contribution: of how many tasks it is, what it fills,
 * and what OPEN says of its round. */
struct fal_ticket {
	uint64_t round;
	struct fal_cid id, fills;
	uint32_t tasks;
	struct fal_facts facts;
	uint32_t epoch; /* of the block map that it is pushed by; 0: that which holds */
};

/* Where a ticket is good. */
struct fal_ticket_in {
	uint8_t key[FAL_MAC_KEY];
	uint32_t incarnation;
	uint32_t epoch; /* of the block map */
};

/* The seed of the checksums of a round: the same in every shard, and nobody's else before
 * it is told, when the round is over. */
uint64_t fal_ticket_seed(const struct fal_ticket_in *in, uint64_t round);

/* The ticket as it is sent to `session`. */
void fal_ticket_put(const struct fal_ticket_in *in, uint32_t session,
		    const struct fal_ticket *t, struct fal_msg_ticket *out);

/* A ticket that came from `session`.  False: it is not the coordinator's, or not for
 * this. */
bool fal_ticket_get(const struct fal_ticket_in *in, uint32_t session,
		    const struct fal_msg_ticket *m, struct fal_ticket *out);

#endif
