/* Tickets: the coordinator's signed statement about a contribution, which the worker
 * carries to the shards with its push (design.md, D17).  A shard believes nothing else
 * about a push.
 *
 * The MAC's key is drawn for each incarnation.  Only the coordinator and its shards know
 * the key. */
#ifndef FAL_SERVER_TICKET_H
#define FAL_SERVER_TICKET_H

#include "base/cid.h"
#include "crypto/hash.h"
#include "wire/msg.h"

/* The facts about a round that a shard needs to sum the round up. */
struct fal_facts {
	/* the version that tasks are computed on; with `mixed`, other versions, too */
	uint64_t version;
	uint32_t tasks;
	enum fal_kind kind; /* of the contributions: GRAD or DELTA */
	bool mixed;
};

/* The coordinator's statement about a contribution: the number of its tasks, the
 * contribution that it fills, and the facts of its round, as in FAL_ORDER_OPEN. */
struct fal_ticket {
	uint64_t round;
	struct fal_contrib_id id, fills;
	uint32_t tasks;
	struct fal_facts facts;
	uint32_t epoch; /* of the block map for the push; 0: the present map */
};

/* The scope of a ticket: a ticket counts only in the same scope. */
struct fal_ticket_scope {
	uint8_t key[FAL_MAC_KEY];
	uint32_t incarnation;
	uint32_t epoch; /* of the block map */
};

/* Returns the seed of a round's checksums: the same in every shard, and secret until the
 * coordinator publishes the seed after the round. */
uint64_t fal_ticket_seed(const struct fal_ticket_scope *in, uint64_t round);

/* Writes the ticket for `session`, with its MAC. */
void fal_ticket_put(const struct fal_ticket_scope *in, uint32_t session,
		    const struct fal_ticket *t, struct fal_msg_ticket *out);

/* Reads a ticket that came from `session`.  Returns false if the coordinator did not
 * issue the ticket, or issued the ticket for another scope or session. */
bool fal_ticket_get(const struct fal_ticket_scope *in, uint32_t session,
		    const struct fal_msg_ticket *m, struct fal_ticket *out);

#endif
