/* A shard's parameters: blocks, their versions, and the sums of the open rounds.
 *
 * A round is a set of tasks that becomes a part of an update as a whole (falcon(7)): all
 * tasks of a clock, or those that one worker or group was given.  Keeps one bit per
 * (contribution, block), so that a block is counted once whatever arrives, and knows a
 * round to be complete when every block has counted its tasks (design.md, I2).
 * Complete rounds are collected for the next update, which a step
 * applies.  No I/O, no clock.
 */
#ifndef FAL_SERVER_STORE_H
#define FAL_SERVER_STORE_H

#include "base/cid.h"
#include "base/parallel.h"
#include "math/optim.h"
#include "server/image.h"
#include "wire/bfp.h"
#include "wire/msg.h"

#include <stdbool.h>
#include <stdint.h>

struct fal_store; /* opaque */

struct fal_store_conf {
	size_t n;               /* parameters */
	uint32_t first;         /* number, in the whole model, of its first block */
	uint32_t tasks;         /* of a full clock: what a task has room for */
	unsigned bits;          /* that its values are to have; 0: all */
	struct fal_optim optim; /* its ranges are borrowed until fal_store_free */
	bool checksums;         /* audit = sums: keep those of what was added */
	const struct fal_parallel *parallel; /* for steps, block by block; borrowed */
};

/* A store at version 0 with the parameters `init` (n floats, copied; NULL: zeros) and all
 * exponents FAL_EXP_FIRST; NULL when out of memory. */
struct fal_store *fal_store_new(const struct fal_store_conf *conf, const float *init);
void fal_store_free(struct fal_store *s);

/* Bytes that a store needs with so much, accumulators and optimiser included; and its
 * image. */
size_t fal_store_bytes(const struct fal_store_conf *conf,
		       const struct fal_store_most *most);
size_t fal_store_image_bytes(const struct fal_store_conf *conf,
			     const struct fal_store_most *most);

size_t fal_store_len(const struct fal_store *s);
uint64_t fal_store_version(const struct fal_store *s);
const float *fal_store_params(const struct fal_store *s); /* n floats, borrowed */
const int8_t *fal_store_exps(const struct fal_store *s);  /* one per block, borrowed */

/* From now on the newest `versions` versions are kept (1: only the newest; before the
 * first call, too). */
void fal_store_keep(struct fal_store *s, uint32_t versions);
/* The oldest version that is kept. */
uint64_t fal_store_oldest(const struct fal_store *s);
/* A version that is kept, or the newest one of a line: parameters and exponents, borrowed
 * until something is added or stepped; NULL: not wanted. */
bool fal_store_at(const struct fal_store *s, uint64_t version, const float **params,
		  const int8_t **exps);

/* A round of `tasks` tasks begins; its number is new. */
struct fal_store_round {
	uint64_t round;
	uint32_t tasks;
	/* GRAD: sums of gradients, quantised on `version`, which must be kept: blocks
	 * with other exponents are refused.  `mixed`: they are aligned instead, as
	 * helpers compute on other versions, and refused outside those that the block has
	 * had in any version.
	 * DELTA: changes of weights; each block brings the exponent it needs. */
	enum fal_kind kind;
	uint64_t version;
	bool mixed;
	uint64_t seed; /* of its checksums */
};
void fal_store_open(struct fal_store *s, const struct fal_store_round *r);

/* One block record of contribution `id`, a sum over `tasks` tasks, which fills `fills`
 * ({0,0}: nothing), for an open round.  1: added.  0: dropped, as the contribution it
 * fills had brought this block.  FAL_EEXIST: this very block came before.  FAL_EFENCED.
 * FAL_EINVAL: wrong exponent, or another task count than before, or more tasks than the
 * round has, or a `needed` that these values cannot have.  FAL_ELIMIT:
 * values that its tasks have no room for.  The record's block is numbered as
 * in the whole model; all others here from 0. */
struct fal_store_from {
	uint64_t round;
	struct fal_cid id, fills;
	uint32_t tasks;
};
int fal_store_add(struct fal_store *s, const struct fal_store_from *from,
		  const struct fal_bfp_rec *rec);

/* Nothing more of contribution `id` is accepted; what it brought stays counted.
 * FAL_ESTATE: the round is not open, or what it fills is not fenced. */
int fal_store_fence(struct fal_store *s, uint64_t round, struct fal_cid id,
		    struct fal_cid fills);

/* So many tasks of an open round bring nothing: each block counts them that has not
 * counted them by contribution `fills` ({0,0}: none).  FAL_EINVAL, and nothing has
 * changed: the round has no such tasks left. */
int fal_store_skip(struct fal_store *s, uint64_t round, uint32_t tasks,
		   struct fal_cid fills);

/* True when all blocks of `id` are counted, its own or those of what it fills. */
bool fal_store_whole(const struct fal_store *s, uint64_t round, struct fal_cid id);

/* True when every block has counted the round's tasks. */
bool fal_store_complete(const struct fal_store *s, uint64_t round);

/* The contributions of an open round that are fenced, or of which anything came, each
 * with what it has brought: *n of them, to be freed. */
struct fal_brought *fal_store_brought(const struct fal_store *s, uint64_t round,
				      uint32_t *n);
/* The checksum, where there are any, of an open round's sum as it is, over all blocks.
 * The checksums of all contributions add up to it, unless the shard did wrong. */
uint64_t fal_store_added(const struct fal_store *s, uint64_t round);

/* The contribution with the largest value in a sum, which is about 2^exponent;
 * FAL_EXP_NONE: no value was added. */
struct fal_largest {
	struct fal_cid id;
	int8_t exponent;
};

/* Blocks that a step, or a change of weights, has left as they were, exponents included.
 * `beyond`: their mean gradient leads out of the numbers, or their change is more than
 * FAL_CHANGE_MOST times the largest weight of the store, taken as at least 1; the largest
 * value was of `by`.  `refused`: any other that would not be finite any more. */
enum { FAL_CHANGE_MOST = 4 };
struct fal_unstepped {
	uint32_t beyond, refused;
	struct fal_largest by;
};

/* The end of an open round, which the store then forgets.  All but drop need the round
 * complete.
 * merge: collects the round's gradients for the next update.  FAL_ELIMIT.
 * add: collects weight · the round's change of the weights for the next update.
 * revise: collects the change as DynSGD by version (schemes.md, dynsgd): the change is
 *   one of the changes of slot `slot`; the d-th to come changes what the slot has
 *   contributed by (u - U)/d, so that it always is their mean.  Returns d.
 * Both count a block that they leave out as unchanged, and add this block to *out.
 * drop: throws the round away, complete or not. */
int fal_store_merge(struct fal_store *s, uint64_t round);
void fal_store_add_delta(struct fal_store *s, uint64_t round, double weight,
			 struct fal_unstepped *out);
uint32_t fal_store_revise(struct fal_store *s, uint64_t round, uint64_t slot,
			  struct fal_unstepped *out);
void fal_store_drop(struct fal_store *s, uint64_t round);

/* Parameters that are made elsewhere.
 * give: the sum of the complete round of gradients is added to `into`, of the whole
 *   model, and the round is forgotten.
 *   FAL_ELIMIT: it would be beyond the range of sums.
 * put: the version, the newest from now on, has these parameters and exponents (copied);
 *   as many are kept as of others, and some between them may be missing.  FAL_EINVAL: it
 *   is older. */
int fal_store_give(struct fal_store *s, uint64_t round, struct fal_sum *into);
int fal_store_put(struct fal_store *s, uint64_t version, const float *params,
		  const int8_t *exps);

/* Lines: models that are stepped by themselves between their pushes, each with optimiser
 * state and exponents of its own; 2 + optimiser slots times n floats a line.  Versions of
 * lines are numbered as base/branch.h says; only the newest of a line is kept.
 *
 * line: the line of `version` is the newest version of the store from now on, under this
 *   number.  A new line begins with its exponents, too, and optimiser state 0.
 * line_step: the gradients of the complete round, over `divisor` samples, step the line
 *   of `version`, by the optimiser at rate `lr`, to this number; the round is forgotten.
 * push: weight times what the line has changed since it took over a version is collected
 *   for the next update. */
void fal_store_line(struct fal_store *s, uint64_t version);
struct fal_store_line_step {
	uint64_t version;
	float lr;
	double divisor, squares; /* as fal_store_step */
};
struct fal_unstepped fal_store_line_step(struct fal_store *s, uint64_t round,
					 const struct fal_store_line_step *step);
void fal_store_push(struct fal_store *s, uint32_t line, double weight);
/* The collected changes of weights become the step of an outer optimiser with Nesterov's
 * momentum.  The momentum begins with none and is kept until slots are forgotten: this
 * momentum is slot 0, and nobody revises anything of slot 0 then. */
void fal_store_outer(struct fal_store *s, double rate, double momentum);
bool fal_store_has_line(const struct fal_store *s, uint32_t line);
/* All lines are over. */
void fal_store_forget_lines(struct fal_store *s);

/* Frees the slots below `below`, to which nothing more will come. */
void fal_store_forget_slots(struct fal_store *s, uint64_t below);
/* Frees the slot `slot`, if there is one. */
void fal_store_forget_slot(struct fal_store *s, uint64_t slot);

/* Applies the collected changes: gradients, over `divisor` samples, by the optimiser at
 * rate `lr`, but for divisor 0, where they are no step, and, with optim.clip, clipped by
 * the summed `squares` of the whole model; changes of weights by plain addition.  Moves
 * to the next version and its exponents.  A block whose mean gradient leads out of the
 * numbers, or that would not be finite any more, or its state, stays as it is and is
 * counted in the result.  The same holds for line_step.  Parameters are always finite.
 *
 * Gradients are the `part` of a clock.  If optim has a momentum by pusher, the momentum
 * of `pusher`, if that is not 0, is the slot of this number.  The first such slot zeroes
 * the momentum that steps without a pusher have. */
struct fal_store_update {
	float lr;
	double divisor, squares;
	uint64_t pusher;
	struct fal_optim_part part;
};
struct fal_unstepped fal_store_step(struct fal_store *s,
				    const struct fal_store_update *how);
/* The average of all versions that optim.ema asks for, n floats; NULL: it asks for none.
 */
const float *fal_store_average(const struct fal_store *s);
/* The squares of the mean gradient over `divisor` samples, summed by block into `out`: of
 * the complete round of this number, or, where there is none, of what was collected.  A
 * block that leads out of the numbers has 0. */
void fal_store_squares(struct fal_store *s, uint64_t round, double divisor, double *out);

/* The next version is made while its round is open: each block as soon as it has all its
 * tasks; what is not made so is when the round has been merged, and the step that must
 * follow it is carried out: of this round alone, with the same `lr` and `divisor`.  Till
 * then the store's parameters and exponents are those of the version that is made, as
 * they come to be, and the newest one is had by fal_store_at: what it had where blocks
 * are made is in the memory of their sums, which nobody needs any more. 1; 0, and nothing
 * has changed: it cannot be, as the step is clipped, averaged or of more, or one is made
 * already. */
struct fal_store_make {
	uint64_t round; /* of gradients */
	float lr;
	double divisor;
};
int fal_store_make(struct fal_store *s, const struct fal_store_make *how);
/* Makes what has all its tasks by what was added since the last time, where a version is
 * made: after all records of a push. */
void fal_store_make_more(struct fal_store *s);
/* By block: is it made?  Borrowed until the step; *n (or NULL): how many are.  NULL: no
 * version is made. */
const uint8_t *fal_store_made(const struct fal_store *s, uint32_t *n);

/* ---- a store as an image, and back ---- */

/* Appends all that the versions to come depend on, as it is, with the versions from
 * `from` on: borrowed until the next call.  No round is a part of it, nor what was
 * collected for a step.  FAL_ESTATE: a version is being made. */
int fal_store_image(struct fal_store *s, uint64_t from, struct fal_image *m);
/* A new store becomes one with these numbers: its image has the arrays to be filled;
 * then fal_store_became.  FAL_EINVAL: it kept more versions than there were,
 * or than there may be. */
int fal_store_become(struct fal_store *s, const struct fal_image_head *is);
void fal_store_became(struct fal_store *s);

#endif
