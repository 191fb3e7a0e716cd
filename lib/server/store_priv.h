/* The store's state, shared by its own files only:
 *
 *	store.c      versions and lines, how they are stepped, and all of it as arrays
 *	round_sum.c  open rounds: the sum of each, and which contribution brought what
 *
 * Calls that can fail return 0 or a negative enum fal_err. */
#ifndef FAL_SERVER_STORE_PRIV_H
#define FAL_SERVER_STORE_PRIV_H

#include "server/store.h"

/* One contribution as this shard sees it. */
struct entry {
	struct fal_cid id; /* first: they stand in its order */
	uint32_t tasks;    /* 0: only fenced so far */
	bool fenced;
	uint32_t have;      /* bits set in `seen` and `inherited` */
	uint8_t *seen;      /* by block, bits: came with this contribution */
	uint8_t *inherited; /* by block, bits: came with what it fills; NULL: nothing */
	/* With checksums, by block: of what was added, in the quantum of the sum. */
	uint64_t *sums;
};

struct round {
	struct fal_store_round is;
	struct fal_sum *sum; /* NULL while the round is not open */
	int8_t *exps;        /* of the sum, by block */
	uint32_t skipped;    /* tasks that bring nothing */
	uint32_t *counted;   /* by block: tasks counted */
	uint32_t left;       /* blocks that have not counted all tasks yet */
	struct entry *entry;
	uint32_t entries;
	size_t entry_cap;
	struct fal_largest largest; /* value that was added */
};

/* An older version. */
struct old {
	uint64_t version;
	float *params;
	int8_t *exps;
};

/* The next version, which is made, block by block, where the newest one was: each block
 * as soon as it has all its tasks.  The step makes the blocks that are left, and makes of
 * all blocks the same as if the step had made all at once.
 *
 * Till then the store has the whole version before, as a fill may need this version,
 * without memory of its own: the values that a block had are in the memory of its sum,
 * which nobody needs any more. */
struct making {
	bool on;
	struct fal_store_make how;
	uint8_t *made;            /* by block, is it? */
	uint32_t n;               /* so many are; */
	uint32_t beyond, refused; /* … of these, as of fal_unstepped */
	uint32_t *due; /* blocks that have all their tasks since the last look */
	uint32_t dues;
	/* That of the round: in its memory is what made blocks had; with checksums, by
	 * block, what its own was. */
	struct fal_sum *sum;
	uint64_t *checksums;
	/* The newest version meanwhile: its exponents, and, once somebody has asked, all
	 * of its parameters. */
	int8_t *exps;
	float *params;
	bool whole;
};

/* The numbers of a slot or a line as an array of an image, which is made of blocks: the
 * same for each. */
struct store_numbers {
	uint64_t number, count;
};

/* Adamw's products of b, as an image has them by block. */
struct store_products {
	double beta1, beta2;
};

/* The mean of one slot's changes of weights so far, or the momentum of a pusher. */
struct slot {
	uint64_t slot;
	uint32_t came;
	float *mean;              /* n */
	struct store_numbers *is; /* by block, for the image */
};

/* A model that is stepped by itself. */
struct line {
	uint64_t version;              /* its newest */
	float *params, *taken, *state; /* taken: what it took over */
	int8_t *exps;
	struct fal_reach *reach;  /* by block */
	uint64_t steps;           /* that `state` has had */
	struct store_numbers *is; /* by block, for the image */
};

/* The exponents that a block has had, in all versions so far. */
struct range {
	int8_t least, most;
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
	uint64_t version;
	float *params, *state;
	float *average;                  /* of the versions; NULL: none is asked for */
	struct fal_reach *reach;         /* by block */
	struct fal_optim_had had;        /* steps that `state` has had; */
	struct store_products *products; /* … of them, by block, for the image */
	int8_t *exps;
	struct range *range; /* by block */
	struct making *making;

	uint32_t olds; /* that are filled, of old_cap */
	uint32_t old_cap;
	struct old *old; /* oldest first */

	VEC(struct round *) open;     /* by number */
	VEC(struct round *) closed;   /* memory for the next ones */
	VEC(struct fal_sum *) spares; /* the same */

	/* Collected for the next step: */
	struct fal_sum *sum; /* of gradients, or NULL */
	int8_t *sum_exps;
	struct fal_largest largest; /* value in it */
	bool moved;                 /* `delta` is in use */
	float *delta;               /* n: changes of weights; NULL before the first */
	VEC(struct slot) slots;

	VEC(struct line) lines;
};

/* ---- store.c ---- */

/* *of becomes what has the larger value. */
static inline void
store_largest(struct fal_largest *of, const struct fal_largest *more)
{
	if (more->exponent > of->exponent)
		*of = *more;
}
/* Block b of the round has all its tasks: it is made next, where that is to be. */
void store_make_next(struct fal_store *s, const struct round *r, uint32_t b);
/* Was it made of this round? */
bool store_is_made(const struct fal_store *s, const struct round *r, uint32_t b);

/* ---- round_sum.c ---- */

/* The open round of this number, or NULL. */
struct round *round_find(const struct fal_store *s, uint64_t number);
/* The complete round of this number and kind. */
struct round *store_completed(const struct fal_store *s, uint64_t round,
			      enum fal_kind kind);
/* The checksum of the block of its sum, by its number in the model. */
uint64_t round_checksum(const struct fal_store *s, const struct round *r, uint32_t b);
/* Memory for the next sum (taken). */
void store_spare_sum(struct fal_store *s, struct fal_sum *sum);
void store_free_rounds(struct fal_store *s);

#endif
