/* A shard: a run of a job's blocks as a pure state machine.
 *
 * The coordinator sends orders in sequence.  Workers send pushes, each with the
 * coordinator's ticket.  A call that executes an order or a push reports all that came of
 * it; the shard keeps no reports.  The shard knows rounds by their numbers, and never
 * sees the ledger or the scheduler.  No I/O, no clock.
 *
 * The shard is the only user of its store (store.h).  Calls that can fail return 0 or a
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
	uint32_t number;       /* number of the shard, as its reports give it */
	size_t n;              /* parameters of the whole model */
	uint32_t first, count; /* its blocks in the model */
	/* the most tasks of a clock: this number bounds the values of one task */
	uint32_t tasks;
	unsigned bits; /* bits of a task's quantised values; 0: all bits */
	struct fal_optim optim;
	bool checksums; /* audit = sums: keep a checksum of each contribution */
	/* the scope in which tickets are valid; the seeds of checksums come from this
	 * scope, too */
	struct fal_ticket_scope tickets;
	const struct fal_parallel *parallel; /* runs steps in parallel; borrowed; NULL:
						this thread runs steps */
	/* Borrowed, and read before each early step.  True: no early steps, because
	 * workers get no block before the whole version is made.  NULL: false. */
	const bool *at_once;
};

/* Makes a shard at version 0. `init`: the parameters of its blocks, copied; NULL: zeros.
 * Returns NULL when out of memory. */
struct fal_shard *fal_shard_new(const struct fal_shard_conf *conf, const float *init);
void fal_shard_free(struct fal_shard *s);

/* How a round ends. */
enum fal_end {
	FAL_END_MERGE, /* collect the gradients for the next step */
	FAL_END_ADD,   /* collect weight · the change of weights */
	/* step the branch of `version`; the branch then has this version */
	FAL_END_BRANCH,
	FAL_END_REWEIGHT, /* collect the change of weights, averaged with those of slot
			   `slot` */
	FAL_END_DROP,     /* discard the round */
	FAL_END_FORWARD   /* add the sum to `into`: only for shards of this process */
};

enum fal_order_kind {
	/* Open `round`, with `facts`.  The numbers of opened rounds grow. */
	FAL_ORDER_OPEN,
	/* Fence contribution `id`, which fills `fills`: its further blocks do not count.
	 * Answer: FENCED.
	 */
	FAL_ORDER_FENCE,
	/* Count `facts.tasks` tasks of the round, which fill `fills`, as empty. */
	FAL_ORDER_SKIP,
	/* End the round: `end`, `version`, `weight`, `slot`, `below`, `lr`, `divisor`.
	 * Answer: ENDED. `ahead`: end the round as soon as it is complete.  All later
	 * orders of the kinds from END to FORGET wait until this round has ended. */
	FAL_ORDER_END,
	/* Copy the newest version to the branch of `version`, as version `version`. */
	FAL_ORDER_BRANCH,
	/* Collect weight · (the change of branch `branch` since BRANCH). */
	FAL_ORDER_COLLECT,
	/* Make the next version from the collected changes, at rate `lr`.  Gradients are
	 * a sum over `divisor` samples (0: gradients make no step), and the part `part`
	 * of a clock; `slot`, if not 0, is the pusher of the gradients.  With `weight`,
	 * an outer optimiser steps changes of weights at that rate, with `momentum`.
	 * Keep the newest `versions` versions, this one included.  Answer: STEPPED. */
	FAL_ORDER_STEP,
	FAL_ORDER_RETAIN, /* keep the newest `versions` versions from now on */
	/* keep version `version`, which the shard still has, until the next PIN */
	FAL_ORDER_PIN,
	/* Make an image of the newest version, `version`, and of the kept versions from
	 * `below` on. */
	FAL_ORDER_SNAPSHOT,
	FAL_ORDER_FORGET, /* end the slot `slot`; 0: all slots and branches */
	/* Follows when all shards have reported their SQUARES: `squares` is the sum over
	 * all shards. */
	FAL_ORDER_SCALE,
	/* The next three are for a shard_set (shard_set.h).  Begin a move to the map
	 * `map`, between rounds: make the next shards, beside the present ones.  Answer:
	 * MIGRATED. */
	FAL_ORDER_MIGRATE_BEGIN,
	/* all shards have answered MIGRATED: replace the present shards by the next
	 * ones */
	FAL_ORDER_COMMIT,
	FAL_ORDER_ABORT, /* drop the next shards */
	/* Install a version that another coordinator has made: `version` becomes the
	 * newest version, with `params` and `exps` of the whole model.  `version` is no
	 * older than the newest.  Keep the newest `versions` versions.  No answer. */
	FAL_ORDER_INSTALL
};

struct fal_shard_order {
	enum fal_order_kind kind;
	uint64_t round, version;
	struct fal_facts facts; /* OPEN, SKIP */
	struct fal_contrib_id id, fills;
	enum fal_end end;
	double weight, divisor, squares, momentum;
	/* STEP, END of a branch: the order waits for the squares of all shards, by which
	 * the step is clipped */
	bool clipped;
	bool ahead; /* END */
	float lr;
	struct fal_optim_part part;
	/* below: of END, the first slot that may still get changes; of SNAPSHOT and of
	 * STEP with `mark`, the first kept version for the image */
	uint64_t slot, below;
	uint32_t branch, versions;
	bool mark;                 /* STEP: then SNAPSHOT, with `below` */
	bool hash;                 /* STEP: put leaves into STEPPED */
	const struct fal_map *map; /* borrowed */
	/* END with FAL_END_FORWARD: a sum over the whole model; borrowed */
	struct fal_sum *into;
	const float *params; /* INSTALL, like `exps`: borrowed */
	const int8_t *exps;
};

enum fal_report_kind {
	/* `blocks` more blocks of `id` were counted; `whole`: all blocks of `id` are
	 * counted now. */
	FAL_REPORT_ARRIVED,
	/* Every block of the round has counted all tasks.  Not reported if END came
	 * ahead. */
	FAL_REPORT_COMPLETE,
	FAL_REPORT_FENCED, /* No further block of `id` counts. */
	/* A push of `id` was refused: `err`, `odd`.  Only the process of a remote shard
	 * reports this; a shard of this process returns the error instead. */
	FAL_REPORT_REFUSED,
	/* The squares of the mean gradient of each of the `blocks` blocks from `first`
	 * on.  A clipped order, which makes `version`, waits for SCALE. */
	FAL_REPORT_SQUARES,
	/* The round has ended.  Its change of weights is the `rank`-th of its slot (0: no
	 * slot).  With checksums: `brought` has the checksum of each contribution, and
	 * `added` is the checksum of the whole sum.  `beyond` blocks did not step, or are
	 * left out of the change of weights; the largest value was about 2^most, of `id`.
	 */
	FAL_REPORT_ENDED,
	/* `version` is made.  `beyond` blocks did not step; contribution `id` had the
	 * largest value, about 2^most.  If STEP had `hash`, the report has the `leaves`
	 * (trace/chain.h) and exponents (`exps`) of the `blocks` blocks from `first`
	 * on. */
	FAL_REPORT_STEPPED,
	/* The shard has all blocks that the map of epoch `version` gives it.  Or, with
	 * `err` and `odd`: the process of the shard cannot have these blocks. */
	FAL_REPORT_MIGRATED
};

struct fal_shard_report {
	enum fal_report_kind kind;
	uint32_t shard; /* number in the job */
	uint64_t round, version;
	struct fal_contrib_id id;
	uint32_t blocks, beyond, first;
	int8_t *exps;    /* this array belongs to the report */
	double *squares; /* the same */
	uint8_t *leaves; /* the same */
	int8_t most;
	bool whole;
	struct fal_contribution_blocks *brought; /* the same */
	uint32_t broughts;
	uint32_t rank;
	uint64_t added;
	const char
		*odd; /* ENDED, STEPPED: the reason why the job cannot go on, or NULL */
	int err;
};
void fal_shard_report_free(struct fal_shard_report *report);

/* The reports that orders and pushes have caused, in the order of the events.  {0}:
 * none.
 *
 * A push has at most one ARRIVED.  A push or an order that completes a round may let any
 * number of queued orders run, so there may be any number of ENDED, STEPPED and
 * COMPLETE.  The list ends at the first order that must wait, perhaps with the SQUARES
 * of that order. */
struct fal_shard_result {
	struct fal_shard_report *v;
	size_t n, cap;
};
/* Adds a report, and takes its arrays. */
void fal_shard_result_add(struct fal_shard_result *r,
			  const struct fal_shard_report *report);
/* Frees the reports, and makes the result empty. */
void fal_shard_result_free(struct fal_shard_result *r);

/* Executes an order, and adds all resulting reports to `r`.  `r` may be NULL if the
 * order has no answer and no other order waits.  Returns 0; FAL_ELIMIT: more fences of
 * unopened rounds than a clock has tasks; FAL_EINVAL, FAL_ESTATE: a correct coordinator
 * never gives such an order.
 *
 * For a round that is over, the shard only gives the answer that the order asks for; it
 * ignores other orders for rounds that are not open.  Orders of the kinds from END to
 * FORGET are executed in sequence: while the first order waits, all others wait, too.
 * Orders of other kinds are executed at once; but a round whose version is not made yet
 * opens when that version is made. */
int fal_shard_order(struct fal_shard *s, const struct fal_shard_order *o,
		    struct fal_shard_result *r);

/* Adds block records of a contribution, and adds all resulting reports to `r`.  The
 * shard ignores records of other shards' blocks, and all records of a round that is
 * over.  A ticket opens a round that OPEN has not opened yet.  Each record stands alone:
 * as far as the push can be parsed, good records count whatever else the push contains,
 * so a shard needs to know nothing about the records of other shards.
 *
 * Returns 0, also for a fenced contribution, whose worker may not know of the fence yet;
 * or the reason for a refusal, with `diag`: FAL_EINVAL and FAL_ELIMIT are the fault of
 * the worker's key. */
int fal_shard_push(struct fal_shard *s, const struct fal_ticket *t,
		   const struct fal_tail *records, struct fal_shard_result *r,
		   struct fal_diag *diag);

/* Returns the newest whole version. */
uint64_t fal_shard_version(const struct fal_shard *s);
/* Finds a kept or pinned version, or the newest version of a branch: the parameters and
 * exponents of the shard's blocks, borrowed until the next order or push.  Returns false
 * if the shard does not have the version. */
bool fal_shard_find_version(const struct fal_shard *s, uint64_t version,
			    const float **params, const int8_t **exps);
/* A version that an early step makes block by block while its round is open: the number,
 * parameters and exponents so far, and a flag for each block, set if the block is made.
 * Borrowed until the next order or push.  fal_shard_making returns false if there is no
 * such version. */
struct fal_shard_making {
	uint64_t version;
	const float *params;
	const int8_t *exps;
	const uint8_t *made;
	uint32_t n; /* flags that are set */
};
bool fal_shard_making(const struct fal_shard *s, struct fal_shard_making *out);
/* Returns the average of the weights (optim.ema), borrowed until the next order or push;
 * NULL: the job asks for no average. */
const float *fal_shard_average(const struct fal_shard *s);

/* Appends the whole present state to `live`; the arrays are borrowed until the next
 * order.  FAL_ESTATE: an early step is under way. */
int fal_shard_image(struct fal_shard *s, struct fal_image *live);

/* ---- images that outlive a shard ---- */

/* Hands over the image that SNAPSHOT, or a STEP with `mark`, has made of this version;
 * the pinned version is included.  Returns false if there is none, for lack of memory. */
bool fal_shard_take_marked(struct fal_shard *s, uint64_t version, struct fal_image *out);
/* Takes an image that the caller no longer needs; its memory serves for the next
 * image. */
void fal_shard_recycle_image(struct fal_shard *s, struct fal_image *image);

/* Restores a new shard from an image in two calls.  The first call takes the numbers, and
 * sets `live` to the shard's own arrays, borrowed.  The caller fills the arrays, calls
 * nothing else meanwhile, and then makes the second call.  FAL_EINVAL: no image can have
 * these numbers. */
int fal_shard_restore_begin(struct fal_shard *s, const struct fal_image_head *is,
			    struct fal_image *live);
void fal_shard_restore_end(struct fal_shard *s);

#endif
