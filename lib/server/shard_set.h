/* The shards of one process: each has a run of the model's blocks.
 *
 * What is said to the rack is said to all of its shards, in their order.  Shards of the
 * job that are elsewhere have their numbers, and ranges, here, too, and nothing more.
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

struct fal_rack; /* opaque */

struct fal_rack_conf {
	uint32_t shards; /* of the job; 0: one; never more than there are blocks */
	const struct fal_map *map; /* NULL: evenly; borrowed for the call */
	/* Those that are here, if `here` is not 0: so many from `first` on. */
	uint32_t first, here;
	struct fal_shard_conf each; /* `first`, `count` and `tickets` are the rack's */
	struct fal_ticket_in tickets;
};

/* `init`: all parameters, copied; NULL: zeros, of shards that are to become something.
 * NULL when out of memory. */
struct fal_rack *fal_rack_new(const struct fal_rack_conf *conf, const float *init);
void fal_rack_free(struct fal_rack *r);

/* The numbers that there are: some may have no block. */
uint32_t fal_rack_shards(const struct fal_rack *r);
/* Which of them have blocks, in the order of these: how many. */
uint32_t fal_rack_in_order(const struct fal_rack *r, uint32_t out[static FAL_SHARDS_MAX]);

/* One of them, borrowed; NULL: it is elsewhere, or has no block. */
struct fal_shard *fal_rack_at(const struct fal_rack *r, uint32_t i);

/* Some blocks of a shard, on their way to another one. */
struct fal_rack_piece {
	uint32_t epoch;        /* of the map that it is for */
	uint32_t first, count; /* blocks */
	struct fal_image image;
};

/* A shard that nothing was said to yet goes elsewhere: `out` gets all that it is, as a
 * piece of a move to the map that holds.  FAL_ENOMEM. */
int fal_rack_give(struct fal_rack *r, uint32_t i, struct fal_rack_piece *out);

/* As fal_shard_order, fal_shard_push and fal_shard_next; `rack` is a struct fal_rack, so
 * that they can be a coordinator's ops.  All shards hear a push, whatever one makes of
 * it; the first error is returned.  What is pushed by a map of before is passed over: its
 * round is over; what is pushed by the next one is for what a shard will be, as the
 * coordinator's word that it is may come later.  FAL_ESTATE: it is of no such map. */
int fal_rack_order(void *rack, const struct fal_shard_order *o);
int fal_rack_push(void *rack, const struct fal_ticket *t, const struct fal_tail *records,
		  struct fal_diag *diag);
/* The same, of shard `i` alone. */
int fal_rack_order_at(struct fal_rack *r, uint32_t i, const struct fal_shard_order *o);
int fal_rack_push_at(struct fal_rack *r, uint32_t i, const struct fal_ticket *t,
		     const struct fal_tail *records, struct fal_diag *diag);
bool fal_rack_next_at(struct fal_rack *r, uint32_t i, struct fal_shard_say *out);
/* The ticket of a PUSH that came from `session`; FAL_EAUTH as below. */
int fal_rack_ticket(const struct fal_rack *r, uint32_t session, const struct fal_msg *m,
		    struct fal_ticket *out, struct fal_diag *diag);
/* The door for PUSHes: one that came from `session`.  As fal_rack_push; FAL_EAUTH: its
 * ticket is not the coordinator's. */
int fal_rack_msg(void *rack, uint32_t session, const struct fal_msg *m,
		 struct fal_diag *diag);
bool fal_rack_next(void *rack, uint32_t *shard, struct fal_shard_say *out);

/* In a move: what shard `from`, which is here, has of what `to` will have, borrowed until
 * the next order; no more than `most` blocks, behind those that `out` says: {0} are none.
 * 1; 0: nothing more, or `to` stays as it is; FAL_ESTATE: a version is being made. */
int fal_rack_piece(const struct fal_rack *r, uint32_t from, uint32_t to, uint32_t most,
		   struct fal_rack_piece *out);
/* Hands all pieces of a move that are for shards elsewhere to `each`, about a mebibyte of
 * a version at a time; `each` may take the image.  Returns a value below 0 that `each`
 * returns. */
int fal_rack_pieces(const struct fal_rack *r,
		    int (*each)(void *arg, uint32_t to, struct fal_rack_piece *piece),
		    void *arg);
/* Shard `to`, which is here, gets the piece.  A part that the shard has already counts
 * once, and a piece of a move that never was is passed over.  Shards here get the pieces
 * of shards here by fal_rack_order.  FAL_EFORMAT, FAL_EINVAL: the piece cannot be a part
 * of the shard. */
int fal_rack_graft(struct fal_rack *r, uint32_t to, const struct fal_rack_piece *piece);

/* The blocks of shard `i`. */
void fal_rack_range(const struct fal_rack *r, uint32_t i, uint32_t *first,
		    uint32_t *blocks);

/* What shard `i` has of a version, borrowed until the next order or push; false: the
 * version is neither kept nor held. */
struct fal_shard_part {
	uint32_t shard, first, count; /* whose; blocks */
	size_t values;
	const float *params;
	const int8_t *exps;
};
bool fal_rack_part(const struct fal_rack *r, uint32_t i, uint64_t version,
		   struct fal_shard_part *out);
/* What shard `i` has of a version that is being made, and of which blocks of the part. */
bool fal_rack_making(const struct fal_rack *r, uint32_t i, uint64_t version,
		     struct fal_shard_part *out, struct fal_shard_making *is);
/* All parameters of a version, borrowed until the next order, push or call; NULL: it is
 * neither kept nor held; or, where shards are elsewhere, not what was brought together
 * last. */
const float *fal_rack_params(struct fal_rack *r, uint64_t version);
/* A version is to be brought together: what is here of it, is.  False: it is neither kept
 * nor held. */
bool fal_rack_gather(struct fal_rack *r, uint64_t version);
/* What a shard has of it that is elsewhere: arrays `params`, and `average`, where there
 * is one.  FAL_EFORMAT: that is not what it should be. */
int fal_rack_fill(struct fal_rack *r, uint32_t i, const struct fal_image *has);
/* Is something on its way?  Is all of the version together? */
bool fal_rack_gathers(const struct fal_rack *r);
bool fal_rack_gathered(const struct fal_rack *r, uint64_t version);
/* The average that optim.ema asks for, borrowed likewise, beside the parameters; NULL:
 * there is none. */
const float *fal_rack_average(struct fal_rack *r);
/* Bytes that the shards take, with a version that is held; those of the image of a marked
 * one. */
uint64_t fal_rack_bytes(const struct fal_rack_conf *conf,
			const struct fal_store_most *most);
uint64_t fal_rack_image_bytes(const struct fal_rack_conf *conf,
			      const struct fal_store_most *most);

/* The images of a marked version, by shard: `out` has room for all numbers, and gets
 * those that are here.  All or none; false: some shard has none. */
bool fal_rack_marked(struct fal_rack *r, uint64_t version, struct fal_image *out);
/* That of a shard is needed no more: memory for the next one. */
void fal_rack_spare(struct fal_rack *r, uint32_t i, struct fal_image *image);
/* New shards become what an image says.  `fill` gets the bytes of each array in the order
 * of the image, shard by shard: what it returns below 0 is returned, as FAL_EINVAL,
 * FAL_ENOMEM are; the rack is of no use then. */
int fal_rack_become(struct fal_rack *r, const struct fal_image_head *is,
		    int (*fill)(void *arg, const struct fal_image_array *a), void *arg);

#endif
