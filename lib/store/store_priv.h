/* The store's state, shared by its own files only:
 *
 *	store.c        versions, and what is collected for the next one
 *	store_line.c   models that are stepped by themselves
 *	store_round.c  an open round: who brought what
 *	store_make.c   a version that is made while its round is not complete
 *	store_image.c  all of it as arrays, and back
 *	store_given.c  sums that leave, and versions that come
 *
 * Calls that can fail return 0 or a negative enum fal_err. */
#ifndef FAL_STORE_STORE_PRIV_H
#define FAL_STORE_STORE_PRIV_H

#include "store/store.h"

/* One contribution as this shard sees it. */
struct entry {
	struct fal_cid id;
	uint32_t tasks; /* 0: only fenced so far */
	bool fenced;
	uint32_t have;      /* bits set in `seen` and `inherited` */
	uint8_t *seen;      /* by block, bits: came with this contribution */
	uint8_t *inherited; /* by block, bits: came with what it fills; NULL: nothing */
	/* With checksums, by block: of what was added, in the quantum of the sum. */
	uint64_t *sums;
};

#define EMPTY UINT32_MAX /* of an index */

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
	uint32_t *index; /* open addressing over entries; or EMPTY */
	size_t index_cap;
	struct fal_largest largest; /* value that was added */
};

/* An older version. */
struct old {
	uint64_t version;
	float *params;
	int8_t *exps;
};

/* The next version, which is made, block by block, where the newest one was. */
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

/* What the changes of weights of one slot have contributed so far. */
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
	float *average;          /* of the versions; NULL: none is asked for */
	struct fal_reach *reach; /* by block */
	double *norms;  /* by block, scratch of a step that is clipped; NULL: none is */
	uint64_t steps; /* that `state` has had */
	bool known;     /* the next step is clipped by `squares`, not by its own */
	double squares;
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

/* store.c */

/* The complete round of this number and kind. */
struct round *store_completed(const struct fal_store *s, uint64_t round,
			      enum fal_kind kind);
/* All parameters of a version are copied; NULL: the newest, be the next one made or not.
 */
void store_copy(const struct fal_store *s, float *to, const float *from);
/* The version, newer than all old ones, becomes an old one; its values are copied, as by
 * store_copy.  Of more than are kept the oldest goes. */
void store_put_by(struct fal_store *s, uint64_t version, const float *params,
		  const int8_t *exps);
/* The ranges take in the newest version's exponents. */
void store_widen_ranges(struct fal_store *s);
/* *of becomes what has the larger value. */
void store_largest(struct fal_largest *of, const struct fal_largest *more);
/* The slot's entry, made if it is new; NULL: out of memory. */
struct slot *store_slot(struct fal_store *s, uint64_t slot);
/* Something is added to s->delta, which is there then.  FAL_ENOMEM. */
int store_begin_delta(struct fal_store *s);
/* One step of the optimiser by the gradients `sum`, quantised with `sum_exps`, over
 * `divisor` samples. */
struct store_step {
	const struct fal_sum *sum;
	const int8_t *sum_exps;
	struct fal_optim_step by;
	double divisor;
	float *params, *state; /* which model */
	int8_t *exps;
	struct fal_reach *reach;
	const uint8_t *made; /* by block, it was stepped before; NULL: none was */
	/* That whose memory gets what a block was; NULL: nobody asks for that. */
	struct fal_sum *keeps;
};
/* That of the newest version. */
struct store_step store_next_step(const struct fal_store *s, const struct fal_sum *sum,
				  const int8_t *sum_exps, float lr, double divisor);
/* Steps all blocks; those that cannot be stepped are counted. */
struct fal_unstepped store_step(struct fal_store *s, const struct store_step *step);
/* Block b alone, its mean gradient scaled. */
enum stepped { STEPPED, BEYOND, REFUSED };
enum stepped store_step_one(const struct fal_store *s, const struct store_step *step,
			    float scale, uint32_t b);

/* How far block b of a model with this state reaches. */
struct fal_reach store_reach(const struct fal_store *s, const float *params,
			     const float *state, uint32_t b);

/* store_make.c */

/* NULL: out of memory. */
struct making *store_making_new(const struct fal_store_conf *conf);
void store_making_free(struct making *m); /* NULL is fine */
/* What the newest version has: of a block; of all; its exponents. */
const float *store_newest_block(const struct fal_store *s, uint32_t b);
const float *store_newest(const struct fal_store *s);
const int8_t *store_newest_exps(const struct fal_store *s);
/* The checksum of the sum of a block that is made. */
uint64_t store_made_checksum(const struct fal_store *s, uint32_t b);
/* Block b of the round has all its tasks: it is made next, where that is to be. */
void store_make_next(struct fal_store *s, const struct round *r, uint32_t b);
/* Was it made of this round? */
bool store_is_made(const struct fal_store *s, const struct round *r, uint32_t b);

/* store_line.c: the line, or NULL; a line of this version, or NULL: out of memory. */
struct line *line_find(const struct fal_store *s, uint32_t line);
struct line *store_add_line(struct fal_store *s, uint64_t version);

/* store_round.c */

/* The memory of a round of this many blocks; NULL: out of memory. */
struct round *round_new(uint32_t blocks);
void round_free(struct round *r); /* NULL is fine; r->sum is NULL */
/* As if no record had ever come. */
void round_clear(struct round *r, uint32_t blocks);
/* The open round of this number, or NULL. */
struct round *round_find(const struct fal_store *s, uint64_t number);
/* The checksum of the block of its sum, by its number in the model. */
uint64_t round_checksum(const struct fal_store *s, const struct round *r, uint32_t b);
/* Where it stands, or belongs, in s->open. */
size_t round_place(const struct fal_store *s, uint64_t number);

#endif
