/* The store's state, shared by its own files only:
 *
 *	store.c      versions and branches, steps, images
 *	round_sum.c  open rounds: the sum of each round, and each contribution's share
 *
 * store.c calls round_sum.c, never the other way round.  Calls that can fail return 0 or
 * a negative enum fal_err. */
#ifndef FAL_SERVER_STORE_PRIV_H
#define FAL_SERVER_STORE_PRIV_H

#include "server/store.h"

/* One contribution to a round, as this shard sees the contribution. */
struct share {
	struct fal_contrib_id id; /* first: the sort key */
	uint32_t tasks;           /* 0: only fenced so far */
	bool is_fenced;
	uint32_t n_counted; /* bits set in `received` and `inherited` */
	uint8_t *received;  /* bit by block: came with this contribution */
	/* bit by block: came with the contribution that this one fills; NULL: none */
	uint8_t *inherited;
	/* with checksums, by block: checksum of the added values, in the quantum of the
	 * sum */
	uint64_t *checksums;
};

struct round {
	struct fal_store_round conf;
	struct fal_sum *sum;     /* NULL while the round is not open */
	int8_t *exps;            /* of the sum, by block */
	uint32_t tasks_skipped;  /* tasks that bring nothing */
	uint32_t *tasks_counted; /* by block */
	uint32_t blocks_left;    /* blocks that have not counted all tasks yet */
	struct share *share;     /* by id */
	uint32_t shares;
	size_t share_cap;
	struct fal_largest largest; /* the largest value added so far */
};

struct old_version {
	uint64_t version;
	float *params;
	int8_t *exps;
};

/* An early step: makes the next version in place, block by block, each block as soon as
 * the block has all its tasks.  fal_store_step steps the other blocks.  The result is the
 * same as if fal_store_step had stepped all blocks at once.
 *
 * Meanwhile the store still has the whole newest version, because a fill may need that
 * version.  A stepped block's former values are in the memory of the block's sum, which
 * is of no further use. */
struct early_step {
	bool is_active;
	struct fal_store_step_early how;
	uint8_t *is_stepped;              /* by block */
	uint32_t n_stepped;               /* blocks */
	uint32_t out_of_range, nonfinite; /* as in fal_unstepped */
	uint32_t *ready;                  /* blocks that completed since the last pass */
	uint32_t n_ready;
	/* The sum of the round, whose memory keeps former values; with checksums, each
	 * stepped block's checksum before that. */
	struct fal_sum *sum;
	uint64_t *checksums;
	/* The newest whole version: exponents, and, after the first request, all
	 * parameters. */
	int8_t *exps;
	float *params;
	bool has_params;
};

/* The numbers of a slot or a branch in an image.  Images consist of blocks, so each block
 * repeats them. */
struct image_numbers {
	uint64_t number, count;
};

/* Adamw's products of b, repeated for each block of an image. */
struct image_products {
	double beta1, beta2;
};

/* The mean of one slot's changes of weights so far, or the momentum of a pusher. */
struct slot {
	uint64_t slot;
	uint32_t n_deltas;
	float *mean;                   /* n */
	struct image_numbers *numbers; /* by block */
};

/* A model that steps by itself. */
struct branch {
	uint64_t version;             /* newest */
	float *params, *base, *state; /* base: the parameters as last copied */
	int8_t *exps;
	struct fal_optim_bounds *reach; /* by block */
	uint64_t steps;                 /* that `state` has had */
	struct image_numbers *numbers;  /* by block */
};

/* The extreme exponents that a block has had in all versions so far. */
struct exp_range {
	int8_t min, max;
};

/* A growing array. */
#define VEC(type)              \
	struct {               \
		type *v;       \
		size_t n, cap; \
	}

struct fal_store {
	struct fal_store_conf conf;
	uint32_t blocks;

	/* The newest version: */
	uint64_t version;
	float *params, *state;
	float *average;                  /* average of all versions; NULL: not wanted */
	struct fal_optim_bounds *reach;  /* by block */
	struct fal_optim_history had;    /* the steps that `state` has had */
	struct image_products *products; /* by block; NULL: not adamw */
	int8_t *exps;
	struct exp_range *exp_range; /* by block */
	struct early_step *early;

	struct old_version *old; /* oldest first */
	uint32_t n_old, old_cap;

	VEC(struct round *) open;        /* by number */
	VEC(struct round *) free_rounds; /* memory for later rounds */
	VEC(struct fal_sum *) free_sums; /* likewise */

	/* Collected for the next step: */
	struct fal_sum *sum; /* of gradients, or NULL */
	int8_t *sum_exps;
	struct fal_largest largest; /* the largest value in the sum */
	bool has_delta;             /* `delta` holds a change */
	float *delta;               /* n: changes of weights; NULL before the first */
	VEC(struct slot) slots;

	VEC(struct branch) branches;
};

/* ---- round_sum.c ---- */

/* Sets *of to the larger of *of and *more. */
static inline void
store_largest(struct fal_largest *of, const struct fal_largest *more)
{
	if (more->exponent > of->exponent)
		*of = *more;
}
/* Finds the open round of this number, or NULL. */
struct round *round_find(const struct fal_store *s, uint64_t number);
/* Finds the round of this number, which must be complete and of this kind. */
struct round *round_find_complete(const struct fal_store *s, uint64_t number,
				  enum fal_kind kind);
/* Opens a round; gradients are quantised with `exps`. */
void store_add_round(struct fal_store *s, const struct fal_store_round *conf,
		     const int8_t *exps);
/* Queues block b for the early step if the round has one.  The block must be complete. */
void round_queue_early(struct fal_store *s, const struct round *r, uint32_t b);
/* Computes the checksum of block b of the sum. */
uint64_t round_checksum(const struct fal_store *s, const struct round *r, uint32_t b);
/* Keeps the memory of `sum` for later rounds. */
void store_recycle_sum(struct fal_store *s, struct fal_sum *sum);
void store_free_rounds(struct fal_store *s);

#endif
