/* The parameter store of one shard: blocks, their versions, and the sums of open rounds.
 *
 * A round is a set of tasks that joins an update as a whole (falcon(7)): all tasks of a
 * clock, or the tasks granted to one worker or group.  The store keeps one bit for each
 * pair of contribution and block, so a block counts once whatever arrives.  A round is
 * complete when every block has counted all tasks of the round (design.md, I2).  Complete
 * rounds are collected for the next update, and a step applies the update.  No I/O, no
 * clock. */
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
	size_t n;       /* parameters */
	uint32_t first; /* number of the first block in the whole model */
	/* the most tasks of a clock: this number bounds the values of one task */
	uint32_t tasks;
	unsigned bits; /* bits of a task's quantised values; 0: all bits */
	struct fal_optim
		optim;  /* the parameter ranges stay borrowed until fal_store_free */
	bool checksums; /* audit = sums: keep a checksum of each contribution */
	const struct fal_parallel *parallel; /* runs steps block by block; borrowed */
};

/* Makes a store at version 0 with the parameters `init` (n floats, copied; NULL: zeros).
 * All exponents are FAL_EXP_FIRST. Returns NULL when out of memory. */
struct fal_store *fal_store_new(const struct fal_store_conf *conf, const float *init);
void fal_store_free(struct fal_store *s);

/* Returns the most bytes that a store takes under these limits, accumulators and
 * optimiser state included; and the most bytes of its image. */
size_t fal_store_bytes(const struct fal_store_conf *conf,
		       const struct fal_store_limits *most);
size_t fal_store_image_bytes(const struct fal_store_conf *conf,
			     const struct fal_store_limits *most);

size_t fal_store_len(const struct fal_store *s);
uint64_t fal_store_version(const struct fal_store *s);
const float *fal_store_params(const struct fal_store *s); /* n floats, borrowed */
const int8_t *fal_store_exps(const struct fal_store *s);  /* one per block, borrowed */

/* Keeps the newest `versions` versions from now on.  Before the first call the store
 * keeps 1, the newest. */
void fal_store_set_retained(struct fal_store *s, uint32_t versions);
/* Returns the number of the oldest kept version. */
uint64_t fal_store_oldest(const struct fal_store *s);
/* Finds a kept version, or the newest version of a branch.  Sets *params and *exps,
 * borrowed until the next addition or step.  `params` or `exps` may be NULL.  Returns
 * false if the store does not have the version. */
bool fal_store_find_version(const struct fal_store *s, uint64_t version,
			    const float **params, const int8_t **exps);

/* A round of `tasks` tasks.  Opening needs a new round number. */
struct fal_store_round {
	uint64_t round;
	uint32_t tasks;
	/* GRAD: sums of gradients, quantised with the exponents of `version`, which the
	 * store must have.  The store refuses blocks with other exponents.  With `mixed`
	 * the store aligns exponents instead, because helpers compute on other versions,
	 * and refuses exponents that the block never had in any version.
	 *
	 * DELTA: changes of weights.  Each block record brings the exponent that its
	 * values need. */
	enum fal_kind kind;
	uint64_t version;
	bool mixed;
	uint64_t seed; /* of the round's checksums */
};
void fal_store_open(struct fal_store *s, const struct fal_store_round *r);

/* Adds one block record of contribution `id`, a sum over `tasks` tasks, to an open round.
 * The contribution takes the place of `fills` ({0,0}: of none).  The record numbers its
 * block as in the whole model; all other calls here count blocks from 0.
 *
 * Returns 1: added.  0: dropped, because `fills` has brought this block.  FAL_EEXIST: the
 * contribution brought this block before.  FAL_EFENCED: the contribution is fenced.
 * FAL_ESTATE: the round is not open, or `fills` is not fenced.  FAL_EINVAL: a wrong
 * exponent; another number of tasks than in earlier records of `id`; more tasks than the
 * round has; or a `needed` (wire/bfp.h) that these values cannot have.  FAL_ELIMIT: the
 * values are too large for that many tasks. */
struct fal_store_from {
	uint64_t round;
	struct fal_contrib_id id, fills;
	uint32_t tasks;
};
int fal_store_add(struct fal_store *s, const struct fal_store_from *from,
		  const struct fal_bfp_rec *rec);

/* Fences contribution `id`: refuses its later records, keeps the earlier ones counted.
 * FAL_ESTATE: the round is not open, or `fills` is not fenced. */
int fal_store_fence(struct fal_store *s, uint64_t round, struct fal_contrib_id id,
		    struct fal_contrib_id fills);

/* Counts `tasks` tasks of an open round as empty, except in blocks that contribution
 * `fills` ({0,0}: none) has brought.  FAL_EINVAL, without an effect: the round has fewer
 * tasks left. */
int fal_store_skip(struct fal_store *s, uint64_t round, uint32_t tasks,
		   struct fal_contrib_id fills);

/* Returns true if all blocks of `id` are counted, by `id` itself or by the contribution
 * that it fills. */
bool fal_store_is_whole(const struct fal_store *s, uint64_t round,
			struct fal_contrib_id id);

/* Returns true if every block has counted all tasks of the round. */
bool fal_store_is_complete(const struct fal_store *s, uint64_t round);

/* Lists what each contribution has brought to an open round, fenced contributions
 * included.  Sets *n; the caller frees the array. */
struct fal_contribution_blocks *fal_store_list_contributions(const struct fal_store *s,
							     uint64_t round, uint32_t *n);
/* Returns the checksum of an open round's present sum over all blocks.  The checksums of
 * all contributions add up to this number unless the shard computed wrongly. */
uint64_t fal_store_checksum(const struct fal_store *s, uint64_t round);

/* The contribution with the largest value in a sum, about 2^exponent.  FAL_EXP_NONE: no
 * value was added. */
struct fal_largest {
	struct fal_contrib_id id;
	int8_t exponent;
};

/* How many blocks a step, or a change of weights, has left as they were, exponents
 * included.  `out_of_range`: the mean gradient is too large for the optimiser, or the
 * change is more than FAL_CHANGE_MOST times the largest weight of the store, taken as at
 * least 1; contribution `by` had the largest value.  `nonfinite`: the result would not be
 * finite for any other reason. */
enum { FAL_CHANGE_MOST = 4 };
struct fal_unstepped {
	uint32_t out_of_range, nonfinite;
	struct fal_largest by;
};

/* Ends of an open round; the store then forgets the round.  All ends but drop need a
 * complete round.
 *
 * merge: collects the round's gradients for the next update.  FAL_ELIMIT: the sum leaves
 * the range of sums.
 *
 * add: collects weight · (the round's change of weights) for the next update.
 *
 * reweight: collects the change as DynSGD by version does (schemes.md, dynsgd).  The
 * change is one of several of slot `slot`.  A slot contributes the mean of its changes.
 * Let U be the mean before the d-th change u; then the contribution grows by (u - U)/d.
 * Returns d.
 *
 * add and reweight leave a block unchanged if its change is too large, and count that
 * block in *out.
 *
 * drop: throws the round away, complete or not. */
int fal_store_merge(struct fal_store *s, uint64_t round);
void fal_store_add_delta(struct fal_store *s, uint64_t round, double weight,
			 struct fal_unstepped *out);
uint32_t fal_store_reweight(struct fal_store *s, uint64_t round, uint64_t slot,
			    struct fal_unstepped *out);
void fal_store_drop(struct fal_store *s, uint64_t round);

/* Parameters that another process makes.
 *
 * fal_store_forward adds the sum of the complete round of gradients to `into`, a sum over
 * the whole model, and forgets the round.  FAL_ELIMIT: the result leaves the range of
 * sums.
 *
 * fal_store_install makes `version` the newest version, with these parameters and
 * exponents (copied).  The store keeps as many of these versions as of versions that it
 * makes itself; version numbers may be missing.  FAL_EINVAL: the store has a newer
 * version. */
int fal_store_forward(struct fal_store *s, uint64_t round, struct fal_sum *into);
int fal_store_install(struct fal_store *s, uint64_t version, const float *params,
		      const int8_t *exps);

/* Branches: models that step by themselves between their pushes.  Each branch has an
 * optimiser state and exponents of its own, and takes 2 + (optimiser slots) times n
 * floats.  base/branch.h numbers the versions of branches.  The store keeps only the
 * newest version of a branch.
 *
 * fal_store_set_branch copies the newest version of the store to the branch of `version`,
 * under that number.  A new branch copies the exponents, too, and starts with optimiser
 * state 0.
 *
 * fal_store_step_branch makes the version `version` of its branch: steps the branch by
 * the gradients of the complete round over `divisor` samples, at rate `lr`; then forgets
 * the round.
 *
 * fal_store_collect_branch collects weight · (the change of the branch since the last
 * fal_store_set_branch) for the next update. */
void fal_store_set_branch(struct fal_store *s, uint64_t version);
struct fal_store_step_branch {
	uint64_t version;
	float lr;
	double divisor, squares; /* as fal_store_step */
};
struct fal_unstepped fal_store_step_branch(struct fal_store *s, uint64_t round,
					   const struct fal_store_step_branch *step);
void fal_store_collect_branch(struct fal_store *s, uint32_t branch, double weight);
/* Turns the collected changes of weights into the step of an outer optimiser with
 * Nesterov's momentum.  The momentum starts at 0 and lives in slot 0 until slots are
 * forgotten, so no round may use slot 0 meanwhile. */
void fal_store_outer_step(struct fal_store *s, double rate, double momentum);
bool fal_store_has_branch(const struct fal_store *s, uint32_t branch);
/* Ends all branches. */
void fal_store_forget_branches(struct fal_store *s);

/* Frees the slots from `first` up to, but without, `end`. */
void fal_store_forget_slots(struct fal_store *s, uint64_t first, uint64_t end);

/* Makes the next version, and its exponents, from the collected changes.  Gradients are a
 * sum over `divisor` samples (0: gradients make no step).  The optimiser applies them at
 * rate `lr`; with optim.clip the gradients are clipped by `squares`, summed over the
 * whole model.  Changes of weights are added.  A block stays as it is, and counts in the
 * result, if its mean gradient is out of range or if its parameters or state would not be
 * finite.  fal_store_step_branch treats such blocks in the same way, so parameters are
 * always finite.
 *
 * `part` is the share of a clock that the gradients make up.  If the optimiser has a
 * momentum for each pusher, the slot number `pusher` (0: none) holds that momentum.  When
 * the first such slot is made, the momentum of steps without a pusher becomes 0. */
struct fal_store_update {
	float lr;
	double divisor, squares;
	uint64_t pusher;
	struct fal_optim_part part;
};
struct fal_unstepped fal_store_step(struct fal_store *s,
				    const struct fal_store_update *how);
/* Returns the average of all versions (optim.ema), n floats; NULL: the job asks for no
 * average. */
const float *fal_store_average(const struct fal_store *s);
/* Sets out[b] to the sum of the squares of block b's mean gradient over `divisor`
 * samples.  The gradients are those of the complete round `round` or, if there is no
 * such round, the collected gradients.  The result for a block whose mean gradient is
 * out of range is 0. */
void fal_store_squares(struct fal_store *s, uint64_t round, double divisor, double *out);

/* Starts an early step by an open round: each block steps as soon as the block has
 * counted all tasks.  After the merge of the round the next fal_store_step steps the
 * other blocks.  That step must apply this round alone, with the same `lr` and `divisor`.
 *
 * Until then fal_store_params and fal_store_exps show the version in progress, and
 * fal_store_find_version finds the newest whole version.  The memory of a stepped block's
 * sum keeps the values that the block had, because the sum is of no further use.
 *
 * Returns 1: the early step is under way.  Returns 0, without an effect: the step is
 * clipped or averaged or uses more than this round, or another early step is under
 * way. */
struct fal_store_step_early {
	uint64_t round; /* of gradients */
	float lr;
	double divisor;
};
int fal_store_step_early(struct fal_store *s, const struct fal_store_step_early *how);
/* Steps the blocks that have completed since the last call, if an early step is under
 * way.  The caller must call this after the last record of each push. */
void fal_store_step_ready(struct fal_store *s);
/* Returns the flags of early stepped blocks, borrowed until the step, and sets *n (or
 * NULL) to their count.  NULL: no early step is under way. */
const uint8_t *fal_store_early_blocks(const struct fal_store *s, uint32_t *n);

/* ---- a store as an image, and back ---- */

/* Appends to `m`, as borrowed arrays valid until the next call, the present values of
 * everything that later versions depend on, with the kept versions from `from` on.  Open
 * rounds and collected changes are not part of an image.  FAL_ESTATE: an early step is
 * under way. */
int fal_store_image(struct fal_store *s, uint64_t from, struct fal_image *m);
/* Restores a new store from an image in two calls.  The first call takes the numbers.
 * The caller then fills the arrays of the store's own image, and makes the second call.
 * FAL_EINVAL: the numbers name more versions than can have existed, or more than the
 * limits allow. */
int fal_store_restore_begin(struct fal_store *s, const struct fal_image_head *is);
void fal_store_restore_end(struct fal_store *s);

#endif
