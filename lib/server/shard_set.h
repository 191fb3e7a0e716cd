/* The shards of one process: each has a run of the model's blocks.
 *
 * What is said to the shard_set is said to all of its shards, in their order.  Shards of
 * the job that are elsewhere have their numbers, and ranges, here, too, and nothing more.
 *
 * A move (FAL_ORDER_MIGRATE_BEGIN) makes, beside each shard, what it will be by the next
 * map, from parts of what all of them are; nothing is under way then, so that these do
 * not change. When the coordinator has heard from all that they are whole, COMMIT lets
 * go of what was before; so no block's last copy is dropped before there is another one,
 * and with ABORT, or a crash, the move never was.  (design.md, D38.)
 */
#ifndef FAL_SERVER_SHARD_SET_H
#define FAL_SERVER_SHARD_SET_H

#include "server/shard.h"

struct fal_shard_set; /* opaque */

struct fal_shard_set_conf {
	uint32_t shards; /* of the job; 0: one; never more than there are blocks */
	const struct fal_map *map; /* NULL: evenly; borrowed for the call */
	/* Those that are here, if `here` is not 0: so many from `first` on. */
	uint32_t first, here;
	struct fal_shard_conf
		each; /* `first`, `count` and `tickets` are the shard_set's */
	struct fal_ticket_in tickets;
};

/* `init`: all parameters, copied; NULL: zeros, of shards that are to become something.
 * NULL when out of memory. */
struct fal_shard_set *fal_shard_set_new(const struct fal_shard_set_conf *conf,
					const float *init);
void fal_shard_set_free(struct fal_shard_set *r);

/* The numbers that there are: some may have no block. */
uint32_t fal_shard_set_shards(const struct fal_shard_set *r);
/* Which of them have blocks, in the order of these: how many. */
uint32_t fal_shard_set_in_order(const struct fal_shard_set *r,
				uint32_t out[static FAL_SHARDS_MAX]);

/* One of them, borrowed; NULL: it is elsewhere, or has no block. */
struct fal_shard *fal_shard_set_at(const struct fal_shard_set *r, uint32_t i);

/* Some blocks of a shard, on their way to another one. */
struct fal_shard_set_piece {
	uint32_t epoch;        /* of the map that it is for */
	uint32_t first, count; /* blocks */
	struct fal_image image;
};

/* A shard that nothing was said to yet goes elsewhere: `out` gets all that it is, as a
 * piece of a move to the map that holds.  FAL_ENOMEM. */
int fal_shard_set_give(struct fal_shard_set *r, uint32_t i,
		       struct fal_shard_set_piece *out);

/* As fal_shard_order, fal_shard_push and fal_shard_next; `shard_set` is a struct
 * fal_shard_set, so that they can be a coordinator's ops.  All shards hear a push,
 * whatever one makes of it; the first error is returned.  What is pushed by a map of
 * before is passed over: its round is over; what is pushed by the next one is for what a
 * shard will be, as the coordinator's word that it is may come later.  FAL_ESTATE: it is
 * of no such map. */
int fal_shard_set_order(void *shard_set, const struct fal_shard_order *o);
int fal_shard_set_push(void *shard_set, const struct fal_ticket *t,
		       const struct fal_tail *records, struct fal_diag *diag);
/* The same, of shard `i` alone. */
int fal_shard_set_order_at(struct fal_shard_set *r, uint32_t i,
			   const struct fal_shard_order *o);
int fal_shard_set_push_at(struct fal_shard_set *r, uint32_t i, const struct fal_ticket *t,
			  const struct fal_tail *records, struct fal_diag *diag);
bool fal_shard_set_next_at(struct fal_shard_set *r, uint32_t i,
			   struct fal_shard_say *out);
/* The ticket of a PUSH that came from `session`; FAL_EAUTH as below. */
int fal_shard_set_ticket(const struct fal_shard_set *r, uint32_t session,
			 const struct fal_msg *m, struct fal_ticket *out,
			 struct fal_diag *diag);
/* The door for PUSHes: one that came from `session`.  As fal_shard_set_push; FAL_EAUTH:
 * its ticket is not the coordinator's. */
int fal_shard_set_msg(void *shard_set, uint32_t session, const struct fal_msg *m,
		      struct fal_diag *diag);
bool fal_shard_set_next(void *shard_set, uint32_t *shard, struct fal_shard_say *out);

/* In a move: what shard `from`, which is here, has of what `to` will have, borrowed until
 * the next order; no more than `most` blocks, behind those that `out` says: {0} are none.
 * 1; 0: nothing more, or `to` stays as it is; FAL_ESTATE: a version is being made. */
int fal_shard_set_piece(const struct fal_shard_set *r, uint32_t from, uint32_t to,
			uint32_t most, struct fal_shard_set_piece *out);
/* Hands all pieces of a move that are for shards elsewhere to `each`, about a mebibyte of
 * a version at a time; `each` may take the image.  Returns a value below 0 that `each`
 * returns. */
int fal_shard_set_pieces(const struct fal_shard_set *r,
			 int (*each)(void *arg, uint32_t to,
				     struct fal_shard_set_piece *piece),
			 void *arg);
/* Shard `to`, which is here, gets the piece.  A part that the shard has already counts
 * once, and a piece of a move that never was is passed over.  Shards here get the pieces
 * of shards here by fal_shard_set_order.  FAL_EFORMAT, FAL_EINVAL: the piece cannot be a
 * part of the shard. */
int fal_shard_set_graft(struct fal_shard_set *r, uint32_t to,
			const struct fal_shard_set_piece *piece);

/* The blocks of shard `i`. */
void fal_shard_set_range(const struct fal_shard_set *r, uint32_t i, uint32_t *first,
			 uint32_t *blocks);

/* What shard `i` has of a version, borrowed until the next order or push; false: the
 * version is neither kept nor held. */
struct fal_shard_part {
	uint32_t shard, first, count; /* whose; blocks */
	size_t values;
	const float *params;
	const int8_t *exps;
};
bool fal_shard_set_part(const struct fal_shard_set *r, uint32_t i, uint64_t version,
			struct fal_shard_part *out);
/* What shard `i` has of a version that is being made, and of which blocks of the part. */
bool fal_shard_set_making(const struct fal_shard_set *r, uint32_t i, uint64_t version,
			  struct fal_shard_part *out, struct fal_shard_making *is);
/* All parameters of a version, borrowed until the next order, push or call; NULL: it is
 * neither kept nor held; or, where shards are elsewhere, not what was brought together
 * last. */
const float *fal_shard_set_params(struct fal_shard_set *r, uint64_t version);
/* A version is to be brought together: what is here of it, is.  False: it is neither kept
 * nor held. */
bool fal_shard_set_gather(struct fal_shard_set *r, uint64_t version);
/* What a shard has of it that is elsewhere: arrays `params`, and `average`, where there
 * is one.  FAL_EFORMAT: that is not what it should be. */
int fal_shard_set_fill(struct fal_shard_set *r, uint32_t i, const struct fal_image *has);
/* Is something on its way?  Is all of the version together? */
bool fal_shard_set_gathers(const struct fal_shard_set *r);
bool fal_shard_set_gathered(const struct fal_shard_set *r, uint64_t version);
/* The average that optim.ema asks for, borrowed likewise, beside the parameters; NULL:
 * there is none. */
const float *fal_shard_set_average(struct fal_shard_set *r);
/* Bytes that the shards take, with a version that is held; those of the image of a marked
 * one. */
uint64_t fal_shard_set_bytes(const struct fal_shard_set_conf *conf,
			     const struct fal_store_most *most);
uint64_t fal_shard_set_image_bytes(const struct fal_shard_set_conf *conf,
				   const struct fal_store_most *most);

/* The images of a marked version, by shard: `out` has room for all numbers, and gets
 * those that are here.  All or none; false: some shard has none. */
bool fal_shard_set_marked(struct fal_shard_set *r, uint64_t version,
			  struct fal_image *out);
/* That of a shard is needed no more: memory for the next one. */
void fal_shard_set_spare(struct fal_shard_set *r, uint32_t i, struct fal_image *image);
/* New shards become what an image says.  `fill` gets the bytes of each array in the order
 * of the image, shard by shard: what it returns below 0 is returned, as FAL_EINVAL,
 * FAL_ENOMEM are; the shard_set is of no use then. */
int fal_shard_set_become(struct fal_shard_set *r, const struct fal_image_head *is,
			 int (*fill)(void *arg, const struct fal_image_array *a),
			 void *arg);

#endif
