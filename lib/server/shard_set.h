/* The shards of one process.  Each shard has a run of the model's blocks.
 *
 * Calls to the shard_set go to all of its shards, in order of their numbers.  Remote
 * shards are shards of the job in other processes; of these the shard_set knows only the
 * numbers and runs of blocks.
 *
 * A move (FAL_ORDER_MIGRATE_BEGIN) makes the next shard beside each present one, from
 * parts of all present shards.  No round is open then, so the present shards do not
 * change.  When all next shards have reported that they are complete, COMMIT replaces and
 * frees the present shards.  So no block's last copy is dropped before there is another
 * copy.  After ABORT, or a crash, the present shards continue (design.md, D38). */
#ifndef FAL_SERVER_SHARD_SET_H
#define FAL_SERVER_SHARD_SET_H

#include "server/shard.h"

struct fal_shard_set; /* opaque */

struct fal_shard_set_conf {
	/* shards of the job; 0 counts as 1; at most one for each block */
	uint32_t shards;
	const struct fal_map *map; /* NULL: an even map; borrowed for the call */
	/* The local shards: `here` shards from number `first` on; here = 0: all. */
	uint32_t first, here;
	struct fal_shard_conf
		each; /* the shard_set sets `number`, `first`, `count` and `tickets` */
	struct fal_ticket_scope tickets;
};

/* Makes a shard_set.  `init`: all parameters, copied; NULL: zeros, for shards to be
 * restored.  Returns NULL when out of memory. */
struct fal_shard_set *fal_shard_set_new(const struct fal_shard_set_conf *conf,
					const float *init);
void fal_shard_set_free(struct fal_shard_set *r);

/* Returns the number of shards of the job.  Some may have no blocks. */
uint32_t fal_shard_set_count(const struct fal_shard_set *r);
/* Lists the shards that have blocks, in order of their blocks.  Returns their number. */
uint32_t fal_shard_set_list(const struct fal_shard_set *r,
			    uint32_t out[static FAL_SHARDS_MAX]);

/* Returns shard `i`, borrowed; NULL: the shard is remote, or has no block. */
struct fal_shard *fal_shard_set_shard(const struct fal_shard_set *r, uint32_t i);

/* Some blocks of a shard on their way to another shard. */
struct fal_shard_set_piece {
	uint32_t epoch;        /* of the map for which the piece moves */
	uint32_t first, count; /* blocks */
	struct fal_image image;
};

/* Gives a new local shard away: sets `out` to the whole shard, as a piece of a move to
 * the present map.  FAL_ENOMEM. */
int fal_shard_set_give(struct fal_shard_set *r, uint32_t i,
		       struct fal_shard_set_piece *out);

/* As fal_shard_order and fal_shard_push, for all shards: `out` gets the reports of all
 * local shards.  `shard_set` is a struct fal_shard_set *; the void * lets these functions
 * be callbacks of a coordinator.
 *
 * A push goes to all local shards, also after an error; the first error is returned.  A
 * push by an older map is ignored, because its round is over.  A push by the next map
 * goes to the next shards, because a worker may hear of the COMMIT before this process
 * does.  FAL_ESTATE: neither map has that epoch, or the next shard still lacks blocks. */
int fal_shard_set_order(void *shard_set, const struct fal_shard_order *o,
			struct fal_shard_result *out);
int fal_shard_set_push(void *shard_set, const struct fal_ticket *t,
		       const struct fal_tail *records, struct fal_shard_result *out,
		       struct fal_diag *diag);
/* The same for shard `i` alone. */
int fal_shard_set_order_one(struct fal_shard_set *r, uint32_t i,
			    const struct fal_shard_order *o,
			    struct fal_shard_result *out);
int fal_shard_set_push_one(struct fal_shard_set *r, uint32_t i,
			   const struct fal_ticket *t, const struct fal_tail *records,
			   struct fal_shard_result *out, struct fal_diag *diag);
/* Reads the ticket of a PUSH from `session`.  FAL_EAUTH: the coordinator did not issue
 * the ticket. */
int fal_shard_set_ticket(const struct fal_shard_set *r, uint32_t session,
			 const struct fal_msg *m, struct fal_ticket *out,
			 struct fal_diag *diag);
/* Checks the ticket of a PUSH from `session`, then does fal_shard_set_push.  FAL_EAUTH as
 * above. */
int fal_shard_set_push_msg(void *shard_set, uint32_t session, const struct fal_msg *m,
			   struct fal_shard_result *out, struct fal_diag *diag);

/* During a move, cuts the next piece that the local shard `from` has for shard `to`: at
 * most `most` blocks, which follow the blocks of the last piece in `out` ({0}: there is
 * none).  The piece is borrowed until the next order.  Returns 1: `out` is the piece; 0:
 * there are no more pieces, or `to` keeps its blocks; FAL_ESTATE: an early step is under
 * way. */
int fal_shard_set_piece(const struct fal_shard_set *r, uint32_t from, uint32_t to,
			uint32_t most, struct fal_shard_set_piece *out);
/* Hands all pieces of a move for remote shards to `each`, in pieces of about a mebibyte
 * of a version.  `each` may take the image over.  Stops at a negative value of `each`,
 * and returns that value. */
int fal_shard_set_each_piece(struct fal_shard_set *r,
			     int (*each)(void *arg, uint32_t to,
					 struct fal_shard_set_piece *piece),
			     void *arg);
/* Adds a piece to the local shard `to`; `out` gets a report when that was the last
 * missing piece.  Blocks that the shard has already are ignored.  A
 * piece that belongs to no present move is ignored.  Local pieces for local shards move
 * by fal_shard_set_order instead.  FAL_EFORMAT, FAL_EINVAL: the piece cannot be a part of
 * the shard. */
int fal_shard_set_graft(struct fal_shard_set *r, uint32_t to,
			const struct fal_shard_set_piece *piece,
			struct fal_shard_result *out);

/* Sets *first and *blocks to the run of blocks of shard `i`. */
void fal_shard_set_range(const struct fal_shard_set *r, uint32_t i, uint32_t *first,
			 uint32_t *blocks);

/* The part of a version that shard `i` has, borrowed until the next order or push.
 * Returns false if the version is neither kept nor pinned, or the shard is remote. */
struct fal_shard_part {
	uint32_t shard, first, count; /* its number; its blocks */
	size_t values;
	const float *params;
	const int8_t *exps;
};
bool fal_shard_set_part(const struct fal_shard_set *r, uint32_t i, uint64_t version,
			struct fal_shard_part *out);
/* The part of a version that an early step of shard `i` makes, with the flags of finished
 * blocks. */
bool fal_shard_set_making(const struct fal_shard_set *r, uint32_t i, uint64_t version,
			  struct fal_shard_part *out, struct fal_shard_making *is);
/* Returns all parameters of a version, borrowed until the next order, push or call of
 * this function.  NULL: the version is neither kept nor pinned; or, with remote shards,
 * the version is not the gathered one. */
const float *fal_shard_set_params(struct fal_shard_set *r, uint64_t version);
/* Starts to gather a version: copies the local parts.  Returns false if the version is
 * neither kept nor pinned, or memory is short. */
bool fal_shard_set_gather(struct fal_shard_set *r, uint64_t version);
/* Adds the part of remote shard `i`: the arrays `params` and, if the job asks for one,
 * `average`.  FAL_EFORMAT: the arrays do not fit. */
int fal_shard_set_gather_part(struct fal_shard_set *r, uint32_t i,
			      const struct fal_image *has);
/* is_gathering returns true if some part is still missing; has_gathered, if all of
 * `version` is gathered. */
bool fal_shard_set_is_gathering(const struct fal_shard_set *r);
bool fal_shard_set_has_gathered(const struct fal_shard_set *r, uint64_t version);
/* Returns the average (optim.ema), borrowed likewise, of the version that
 * fal_shard_set_params has returned; NULL: the job asks for no average. */
const float *fal_shard_set_average(struct fal_shard_set *r);
/* Return the most bytes of the shards, a pinned version included; and the most bytes of
 * the image of a marked version. */
uint64_t fal_shard_set_bytes(const struct fal_shard_set_conf *conf,
			     const struct fal_store_limits *most);
uint64_t fal_shard_set_image_bytes(const struct fal_shard_set_conf *conf,
				   const struct fal_store_limits *most);

/* Hands over the images of a marked version: `out`, empty images by shard number, gets
 * those of local shards.  Hands over all images or none: returns false if a local shard
 * has no image. */
bool fal_shard_set_take_marked(struct fal_shard_set *r, uint64_t version,
			       struct fal_image *out);
/* Takes a shard's image that is of no more use, as memory for the next one. */
void fal_shard_set_recycle_image(struct fal_shard_set *r, uint32_t i,
				 struct fal_image *image);
/* Restores new shards from an image.  `fill` is called for each array, shard by shard, in
 * the order of the image, and fills the array.  Returns a negative value of `fill`,
 * FAL_EINVAL or FAL_ENOMEM; the shard_set is then only to be freed. */
int fal_shard_set_restore(struct fal_shard_set *r, const struct fal_image_head *is,
			  int (*fill)(void *arg, const struct fal_image_array *a),
			  void *arg);

#endif
