/* Inside lib/shard, of one shard; see shard.h.
 *
 *	shard.c        rounds: what opens them, and what comes of them
 *	shard_queue.c  what is carried out in its order: their ends, and versions
 *	shard_image.c  a version that is held; all of it as arrays, and back
 *
 * Calls that can fail return 0 or a negative enum fal_err. */
#ifndef FAL_SHARD_SHARD_PRIV_H
#define FAL_SHARD_SHARD_PRIV_H

#include "shard/shard.h"
#include "store/store.h"

struct shard_round {
	uint64_t round; /* first: they stand in its order */
	bool late;      /* its version is still to be made: the store does not know it */
	bool ahead;     /* its end is ordered */
	uint32_t skipped; /* tasks, while it is late */
	struct fal_facts is;
};

struct fal_shard {
	struct fal_shard_conf conf;
	struct fal_store *store;
	struct shard_round *open; /* by round */
	size_t opens, open_cap;
	uint64_t next_round; /* no order has opened this one, nor any behind it */
	/* Fences of rounds that are not open yet. */
	struct early {
		uint64_t round;
		struct fal_cid id, fills;
	} *early;
	size_t earlies, early_cap;
	/* What is carried out in its order: the first one waits for its round, or for the
	 * squares of other shards, the others for it. */
	struct waiting {
		struct fal_shard_order order;
		bool asked; /* SQUARES was said */
	} *wait;
	size_t waits, wait_cap;
	bool holds;
	uint64_t held; /* version */
	float *held_params;
	int8_t *held_exps;
	struct fal_image marked; /* or nothing, or memory for one: */
	bool there;              /* it is one */

	struct fal_shard_say *say;
	size_t says, next, say_cap;
};

/* shard.c */
/* An open round, or NULL. */
struct shard_round *shard_find(const struct fal_shard *s, uint64_t round);
int shard_say(struct fal_shard *s, const struct fal_shard_say *what);
/* What has contributed to the round so far: in `out`, which owns it then.  FAL_ENOMEM. */
int shard_brought(struct fal_shard *s, uint64_t round, struct fal_shard_say *out);
/* A version was made: rounds on it open. */
int shard_open_late(struct fal_shard *s);

/* shard_queue.c */
/* The order is carried out when its turn comes; `open` is its round, or NULL. */
int shard_wait_for(struct fal_shard *s, struct shard_round *open,
		   const struct fal_shard_order *o);
/* Carries out what waits, as far as that goes. */
int shard_go_on(struct fal_shard *s);
/* The first that waits is clipped by the sum of all squares. */
int shard_scale(struct fal_shard *s, const struct fal_shard_order *o);

/* shard_image.c */
/* The version is held; FAL_ESTATE: it is not kept. */
int shard_hold(struct fal_shard *s, uint64_t version);
/* An image of the newest version is made, and of those before it from `from` on; without
 * memory there is none, and the job goes on. */
void shard_mark(struct fal_shard *s, uint64_t from);

#endif
