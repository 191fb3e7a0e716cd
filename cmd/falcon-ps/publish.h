/* Published versions, encoded once for all workers (design.md, D10). */
#ifndef FALCON_PS_PUBLISH_H
#define FALCON_PS_PUBLISH_H

#include "net/shared.h"
#include "sched/traits.h"
#include "sec/hash.h"
#include "shard/rack.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* One version, in the encodings that somebody has asked for, by shard. */
struct ps_version {
	bool there, odd; /* odd: somebody who was sent it opens ChaCha20-Poly1305 alone */
	uint64_t version;
	struct fal_shared **plain, **packed; /* NULL: nobody asked */
};

struct ps_publisher {
	uint8_t job_hash[FAL_HASH_BYTES];
	uint32_t incarnation;
	const struct fal_rack *rack;
	struct fal_shared_pool *pool; /* made with the first one */
	uint64_t publications;        /* so far */
	bool odd;                     /* as the version before was */
	uint32_t most;                /* ps_published_most */
	struct ps_making {
		struct fal_shared *shared;
		uint64_t version;
		uint32_t shard;
	} * making; /* what is begun */
	size_t making_n, making_cap;
	struct ps_version newest, kept, older; /* older: whichever was sent last */
};

/* What to encode: shard `shard`'s part of a version that it has. */
struct ps_params {
	uint64_t version;
	uint32_t shard;
	bool keep;     /* to be kept for evaluation */
	uint8_t suite; /* of the receiver's session */
};

/* The publication of `from`, with a number above `above`: a receiver demands that they
 * grow.  By the suite of the receiver's session if all who were sent this version and the
 * one before open that, else by ChaCha20-Poly1305, which everybody opens.  Made if it is
 * not there yet; borrowed.  NULL: out of memory, or no such version. */
struct fal_shared *ps_publish(struct ps_publisher *p, struct ps_version *v,
			      const struct ps_params *from, bool packed, uint64_t above);
/* Makes more of what was begun, a piece of each; a long plain publication is only begun
 * by ps_publish, so that it can be on its way while it is made.  This is to be called
 * until nothing is left, before anything else happens to the shards.  How many are not
 * whole yet, or FAL_ENOMEM: then they never will be. */
int ps_publish_more(struct ps_publisher *p);
/* Forgets what nobody is being sent. */
void ps_publisher_forget(struct ps_publisher *p);
void ps_publisher_free(struct ps_publisher *p);

/* So many vectors of parameters are sealed at a time under this rule: the newest, one
 * that is on its way or sealed otherwise, and those of a slack; ps_publish forgets others
 * before it makes more. */
static inline uint32_t
ps_published_most(const struct fal_rule *rule)
{
	const struct fal_traits is = fal_rule_traits(rule);
	return 2 + (is.shared ? is.delay : 1);
}

#endif
