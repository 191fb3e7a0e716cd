/* A shard: a range of a job's blocks as a pure state machine that is fed by messages.
 *
 * The coordinator sends orders, in their order; workers send pushes, each with the
 * coordinator's ticket; the shard's words wait until they are fetched.  The shard knows
 * rounds by their numbers and never sees the ledger or the scheduler.  No I/O, no clock.
 *
 * The shard owns lib/server, and is its only user.  Calls that can fail return 0 or a
 * negative enum fal_err. */
#ifndef FAL_SERVER_SHARD_H
#define FAL_SERVER_SHARD_H

#include "base/err.h"
#include "math/optim.h"
#include "server/image.h"
#include "server/ticket.h"
#include "wire/block_map.h"

#include <stdbool.h>
#include <stdint.h>

struct fal_shard; /* opaque */

struct fal_shard_conf {
	size_t n;              /* parameters of the whole model */
	uint32_t first, count; /* its blocks */
	uint32_t tasks;        /* of a full clock: what a task has room for */
	unsigned bits;         /* that its values are to have; 0: all */
	struct fal_optim optim;
	bool checksums;               /* audit = sums: keep those of what was added, */
	struct fal_ticket_in tickets; /* … under the seeds of these */
	const struct fal_parallel *parallel; /* for steps; borrowed; NULL: none */
	/* Borrowed, and looked at each time: all blocks of a step are to be made at once,
	 * as nobody is sent any before; NULL: they are not */
	const bool *at_once;
};

/* A shard at version 0 with the parameters `init` (those of its blocks, copied; NULL:
 * zeros); NULL when out of memory. */
struct fal_shard *fal_shard_new(const struct fal_shard_conf *conf, const float *init);
void fal_shard_free(struct fal_shard *s);

/* What becomes of a round. */
enum fal_end {
	FAL_END_MERGE,  /* its gradients are collected for the next step */
	FAL_END_ADD,    /* weight · its change of weights is collected */
	FAL_END_LINE,   /* its gradients step the line of `version`, to this number */
	FAL_END_REVISE, /* its change of weights, as one of the slot `slot` */
	FAL_END_DROP,   /* it comes to nothing */
	FAL_END_GIVE    /* its sum is added to `into`: of shards of this process alone */
};

enum fal_order_kind {
	/* `round` begins: `facts`.  Orders open rounds in the order of their numbers */
	FAL_ORDER_OPEN,
	/* nothing more of contribution `id` counts; it fills `fills`; answered by FENCED
	 */
	FAL_ORDER_FENCE,
	/* `facts.tasks` tasks of the round, which fill `fills`, bring nothing */
	FAL_ORDER_SKIP,
	/* the round is over: `end`, `version`, `weight`, `slot`, `below`, `lr`,
	 * `divisor`; answered by ENDED.  `ahead`: as soon as it is complete; so are all
	 * that follow it, in the order of this enum from here to FORGET */
	FAL_ORDER_END,
	/* the line of `version` takes over the newest version as it */
	FAL_ORDER_LINE,
	/* weight · what the line `line` has changed since it took over a version is
	 * collected */
	FAL_ORDER_COLLECT,
	/* what was collected becomes the next version, at rate `lr`.  Gradients are the
	 * sum over `divisor` samples, 0: they make no step, and the `part` of a clock;
	 * `slot`, if not 0, is their pusher.  With `weight`, changes of weights are
	 * stepped at that rate, with `momentum`.  The newest `versions` are kept from
	 * then on, this one included; answered by STEPPED */
	FAL_ORDER_STEP,
	FAL_ORDER_KEEP, /* the newest `versions` versions are kept from now on */
	FAL_ORDER_HOLD, /* `version`, which is kept, is held, until the next such */
	/* an image is made of the newest version, `version`, and of those before it that
	 * are not below `below` */
	FAL_ORDER_MARK,
	FAL_ORDER_FORGET, /* `slot` is over; 0: all slots and lines are */
	/* the answer to all shards' SQUARES: their sum, `squares` */
	FAL_ORDER_SCALE,
	/* Of a shard_set (shard_set.h).  Nothing is under way: a move begins, to the map
	 * `map`, and what each shard will have comes to be beside what it has; answered
	 * by MIGRATED */
	FAL_ORDER_MIGRATE_BEGIN,
	FAL_ORDER_COMMIT, /* all have said so: it has what it will have, and that alone */
	FAL_ORDER_ABORT,  /* the move never was */
	/* `version`, which is no older than the newest, is the newest from now on:
	 * `params` and `exps`, of the whole model, of which the newest `versions` are
	 * kept.  It was made elsewhere, and is not answered */
	FAL_ORDER_PUT
};

struct fal_shard_order {
	enum fal_order_kind kind;
	uint64_t round, version;
	struct fal_facts facts; /* OPEN, SKIP */
	struct fal_cid id, fills;
	enum fal_end end;
	double weight, divisor, squares, momentum;
	/* STEP, END by a line: it waits for the squares of all shards, and is clipped by
	 * their sum */
	bool clipped;
	bool ahead; /* END */
	float lr;
	struct fal_optim_part part;
	uint64_t slot, below; /* END: nothing more comes to the slots below; MARK */
	uint32_t line, versions;
	bool mark;                 /* STEP: as MARK of what it makes, with `below` */
	bool hash;                 /* STEP: STEPPED has its leaves */
	const struct fal_map *map; /* borrowed */
	struct fal_sum *into;      /* END that gives: of the whole model; borrowed */
	const float *params;       /* PUT, as `exps`: borrowed */
	const int8_t *exps;
};
/* 0; FAL_ELIMIT: more fences of rounds that nobody has opened than a clock has tasks;
 * FAL_EINVAL, FAL_ESTATE: an order that no coordinator gives.  For a round that is over
 * here, the shard only gives the answer that an order asks for.  The shard passes over
 * other orders for rounds that are not open.  The shard carries out END and the kinds
 * behind END in enum fal_order_kind in their order, whatever the first of them waits for;
 * all others at once, but a round on a version that is still to be made opens with that
 * version. */
int fal_shard_order(struct fal_shard *s, const struct fal_shard_order *o);

/* Block records for a contribution; the shard passes over records of other shards'
 * blocks, and over all records when their round is over.  The ticket opens a round that
 * OPEN has not come to yet.  Each record stands alone: good records count whatever else
 * is in the push, as far as the push can be read, so that shards need not know of each
 * other's records.
 * 0, also where the contribution is fenced: its worker has not heard of the fence yet;
 * or why the push is refused, with `diag`: FAL_EINVAL and FAL_ELIMIT are the key's fault.
 */
int fal_shard_push(struct fal_shard *s, const struct fal_ticket *t,
		   const struct fal_tail *records, struct fal_diag *diag);

enum fal_say_kind {
	/* blocks of `id` were counted: `blocks`; `whole`: with these all of them are */
	FAL_SAY_ARRIVED,
	/* Every block of the round has counted its tasks.  Not said where its end was
	 * ordered ahead */
	FAL_SAY_COMPLETE,
	FAL_SAY_FENCED, /* nothing of `id` is counted any more */
	/* A push of `id` was refused: `err`, `odd`.  Said by whoever carries pushes to a
	 * shard that is elsewhere; here the push itself has failed */
	FAL_SAY_REFUSED,
	/* of the mean gradient, by all `blocks` from `first` on: an order that is clipped
	 * waits for SCALE; `version` that it makes */
	FAL_SAY_SQUARES,
	/* `rank` in its slot; with checksums, those of what each contribution has
	 * `brought`, and what was `added` of all.  `beyond` blocks of its line were not
	 * stepped, or of its change of weights are left out, by `id` with 2^most */
	FAL_SAY_ENDED,
	/* to `version`; `beyond` blocks were not stepped, most of all by `id` with
	 * 2^most; where that was asked for, with the `leaves` (trace/chain.h) and
	 * exponents, `exps`, of all `blocks` from `first` on */
	FAL_SAY_STEPPED,
	/* It has all of what it will have by the map of epoch `version`; or, said by
	 * whoever has the shard elsewhere, it cannot have that: `err`, `odd` */
	FAL_SAY_MIGRATED
};

struct fal_shard_say {
	enum fal_say_kind kind;
	uint64_t round, version;
	struct fal_cid id;
	uint32_t blocks, beyond, first;
	int8_t *exps;    /* owned by the shard until the next say is fetched */
	double *squares; /* the same */
	uint8_t *leaves; /* the same */
	int8_t most;
	bool whole;
	struct fal_brought *brought; /* the same */
	uint32_t broughts;
	uint32_t rank;
	uint64_t added;
	const char *odd; /* ENDED, STEPPED: why the job cannot go on, or NULL */
	int err;
};
/* The next thing that it has to say; false: nothing. */
bool fal_shard_next(struct fal_shard *s, struct fal_shard_say *out);
/* Frees the arrays of one that is the caller's own. */
void fal_shard_say_free(struct fal_shard_say *say);

/* The newest version that is whole. */
uint64_t fal_shard_version(const struct fal_shard *s);
/* A version that is kept or held, or the newest of a line: the parameters and exponents
 * of its blocks, borrowed until the next order or push. */
bool fal_shard_at(const struct fal_shard *s, uint64_t version, const float **params,
		  const int8_t **exps);
/* A version that is being made block by block, of a round that is not complete here yet:
 * its number, parameters and exponents as they come to be, and by block whether it is
 * made; borrowed until the next order or push.  False: there is none. */
struct fal_shard_making {
	uint64_t version;
	const float *params;
	const int8_t *exps;
	const uint8_t *made;
	uint32_t n; /* so many are */
};
bool fal_shard_making(const struct fal_shard *s, struct fal_shard_making *out);
/* The average of its weights that optim.ema asks for, borrowed likewise; NULL: none. */
const float *fal_shard_average(const struct fal_shard *s);

/* All that it is, as it is: borrowed until the next order.  FAL_ESTATE: a version is
 * being made. */
int fal_shard_image(struct fal_shard *s, struct fal_image *live);

/* ---- what is left when it is gone ---- */

/* The image that MARK, or a marked STEP, has made of this version, with what is held:
 * `out` is given it.  False: there is none, as there was no memory for it. */
bool fal_shard_marked(struct fal_shard *s, uint64_t version, struct fal_image *out);
/* It is not needed any more (taken): memory for the next one. */
void fal_shard_spare(struct fal_shard *s, struct fal_image *image);

/* A new shard becomes what an image says: these numbers, and then the arrays, which
 * `live` borrows from it, to be filled in; then fal_shard_became.  Nothing else may be
 * called between.  FAL_EINVAL: no image has these numbers. */
int fal_shard_become(struct fal_shard *s, const struct fal_image_head *is,
		     struct fal_image *live);
void fal_shard_became(struct fal_shard *s);

#endif
