/* The worker's side of a job as a pure state machine: messages and finished tasks in,
 * messages and tasks to run out.
 *
 * No I/O, no clock, no threads: falcon-work drives it with a socket and lanes, the
 * simulator with a fake network.  A finished task is claimed; its result is added to
 * the open contribution only when the claim has won; a contribution is pushed when
 * nothing of its round is queued, running or unanswered, or behind its only claim, where
 * the coordinator sees to that (design.md, I6).  It
 * goes out message by message, as the driver's channel takes them, and stays
 * in its sum till then; several go one after the other.  A round runs on the version that
 * its GRANT names; several may be under way.
 *
 * A delta round is this worker's alone.  Its tasks are cut into pieces; each piece is a
 * local step: the mean of its gradients on the worker's own weights goes into the
 * worker's own optimiser.  What the weights have changed by is the contribution.
 */
#ifndef FAL_WORKER_AGENT_H
#define FAL_WORKER_AGENT_H

#include "base/cid.h"
#include "crypto/hash.h"
#include "math/optim.h"
#include "sched/grid.h"
#include "sched/policy.h"
#include "wire/bfp.h"
#include "wire/msg.h"

struct fal_agent; /* opaque */

/* A task for a lane.  Pointers are borrowed until fal_agent_finished for that lane. */
struct fal_run {
	bool eval; /* a test task: no gradient */
	uint64_t round;
	uint64_t clock; /* whose task: which samples */
	uint32_t task;
	uint64_t version;   /* that it begins with, as the coordinator counts; */
	uint64_t exponents; /* … and the one that has the exponents */
	uint64_t serial;    /* of the parameters: others have another one */
	const float *params;
	const int8_t *exps;
	bool coming;         /* not all of both is here yet: */
	uint32_t came;       /* so many blocks are, the first ones; then see ops.came */
	struct fal_sum *sum; /* the quantised gradient goes here; NULL for eval */
	unsigned room;       /* that its values have */
	unsigned bits;       /* to round them to; 0: all */
	uint64_t seed;       /* of the task: fal_rng_task */
};

/* What a lane made of it. */
struct fal_ran {
	bool cancelled; /* nothing was made */
	bool nonfinite; /* a value of the gradient is not finite */
	/* The gradient's largest value, rounded up to a power of 2, and the bound that
	 * this value is not below; 0, 0: the gradient has room. */
	float most, room;
	int64_t loss; /* Σ over the samples, as base/loss.h has it */
	uint32_t right, samples;
	uint64_t task_ns;            /* how long it took, */
	uint64_t waited_ns;          /* … beside waiting for what was coming */
	uint8_t hash[FAL_TASK_HASH]; /* of the gradient, where it is finite: fal_task_hash
				      */
	struct fal_sum *sum;         /* with conf.outer: taken; NULL: no result */
};

/* What the memory of an agent follows from. */
struct fal_agent_most {
	uint32_t versions; /* at a time */
	uint32_t delay;    /* versions by which updates are late */
	bool own;          /* rounds are of one worker */
	bool moves;        /* tasks go to others, so that claims wait for verdicts */
	bool delta;        /* local steps */
};

/* A version, whose arrays are borrowed for the call. */
struct fal_whole {
	uint64_t version;
	bool keep; /* to be evaluated */
	const float *params;
	const int8_t *exps;
};

/* What went on side by side, so far. */
struct fal_agent_overlap {
	uint64_t tasks; /* that had a gradient; of these, */
	uint64_t begun; /* … before all of their version was here */
};

struct fal_agent_ops {
	void *arg;
	/* Message bytes, borrowed for the call.  Bulk messages keep their order among
	 * themselves and never overtake control. */
	void (*send)(void *arg, const struct fal_buf *msg, bool bulk);
	/* Starts a task on an idle lane. */
	void (*run)(void *arg, uint32_t lane, const struct fal_run *run);
	/* Its result is not wanted any more; fal_agent_finished follows all the same. */
	void (*cancel)(void *arg, uint32_t lane);
	/* A number that grows while lanes really work: steps of their tasks, so far. */
	uint64_t (*steps)(void *arg);
	/* As send, bulk: a PUSH, whose blocks all are that shard's (of PUBLISHED; 0: not
	 * known).  NULL: all shards are where the coordinator is. */
	void (*push)(void *arg, uint32_t shard, const struct fal_buf *msg);
	/* May tasks begin before all of their version is here?  Then `came` says of the
	 * task of a lane that so many blocks are, the first ones; never less than before.
	 * NULL, both: no. */
	bool (*begins)(void *arg);
	void (*came)(void *arg, uint32_t lane, uint32_t blocks);
	/* The job has come to need more than conf.most: may it be this?  Else what it
	 * would take is done without; if it is only `moves` that differs, at leisure, and
	 * otherwise the caller leaves.  NULL: it may. */
	bool (*grow)(void *arg, const struct fal_agent_most *to);
	/* All of a version is here.  May be NULL. */
	void (*whole)(void *arg, const struct fal_whole *v);
};

struct fal_agent_conf {
	size_t n; /* parameters */
	uint32_t lanes_max;
	uint64_t serial; /* the first of fal_run's is one more */
	uint32_t incarnation;
	uint32_t map_epoch; /* of the block map, as WELCOME said; BLOCKS says the rest */
	uint32_t tasks;     /* of a full clock: what a task has room for */
	struct fal_grid grid;       /* for local steps alone */
	unsigned push_bits;         /* of a gradient's values; 0: all */
	uint64_t seed;              /* of the job */
	struct fal_optim optim;     /* of local steps; its ranges stay borrowed */
	uint32_t push_blocks;       /* in a PUSH at most; 0: as many as it holds */
	struct fal_agent_most most; /* what memory was judged by; {0}: it was not */
	/* Others run the tasks, all that there are lanes for, and make their sums:
	 * run.sum is NULL.  No task is claimed when it is granted. */
	bool outer;
	size_t sums; /* of gradients, in halves, that there may be; 0: any number.  Local
			steps take theirs whatever there are */
};

/* Under this rule, where versions may be evaluated. */
struct fal_agent_most fal_agent_most(const struct fal_rule *rule, bool evaluates);

/* What conf.sums is to be, and the most bytes that an agent then takes. */
size_t fal_agent_sums(const struct fal_agent_conf *conf,
		      const struct fal_agent_most *most);
uint64_t fal_agent_bytes(const struct fal_agent_conf *conf,
			 const struct fal_agent_most *most);

/* `ops` is copied. */
struct fal_agent *fal_agent_new(const struct fal_agent_conf *conf,
				const struct fal_agent_ops *ops);
/* No lane may be running. */
void fal_agent_free(struct fal_agent *a);

/* One message of the coordinator (BLOCKS, VERSION, GRANT, REVOKE, VERDICT, TICKET, LANES,
 * FENCE, EVAL, ACCOUNT, DRAIN, PING) or of a shard (PUBLISHED, MODEL).  `now` in ns.  0,
 * or why the coordinator is not understood; FAL_ENONFINITE: local steps have led out of
 * the numbers, and the coordinator was told so by a LEAVE. */
int fal_agent_msg(struct fal_agent *a, uint64_t now, const struct fal_msg *m);

/* Blocks of a version. */
struct fal_agent_part {
	uint64_t version;
	uint32_t first, blocks;
};

/* A MODEL of `part`, n bytes long, is about to be opened: where its values may be put at
 * once, and *head, the bytes before them; NULL: nowhere but in the message.  Nobody reads
 * there, whatever comes to stand there, before the message is given to fal_agent_msg, as
 * the next one, with model.placed and no values; it need not come. */
uint8_t *fal_agent_place(struct fal_agent *a, const struct fal_agent_part *part, size_t n,
			 size_t *head);

/* The task of `lane` is over.  As fal_sum_add. */
int fal_agent_finished(struct fal_agent *a, uint64_t now, uint32_t lane,
		       const struct fal_ran *ran);

/* The driver has room for a bulk message: sends the next one of what is to be pushed, and
 * at last LEAVE.  To be called after each of the calls here, and when there is room
 * again, until it returns false: nothing is to be sent now. */
bool fal_agent_more(struct fal_agent *a);

/* Everything that was sent has left. */
void fal_agent_flushed(struct fal_agent *a, uint64_t now);

/* Hands back what is not claimed, pushes what is, then sends LEAVE with `why`; so does
 * DRAIN.  fal_agent_left becomes true when nothing more is to come. */
void fal_agent_leave(struct fal_agent *a, uint64_t now, const char *why);
bool fal_agent_left(const struct fal_agent *a);

/* Lanes that the coordinator has it use. */
uint32_t fal_agent_lanes(const struct fal_agent *a);

/* Halves of sums that there are, and versions, which take as much each. */
size_t fal_agent_holds(const struct fal_agent *a);

/* Is all of the version here, to compute on or to evaluate? */
bool fal_agent_has(const struct fal_agent *a, uint64_t version);

struct fal_agent_overlap fal_agent_overlap(const struct fal_agent *a);

/* The block map that it pushes by, borrowed; NULL: none was said yet. */
const struct fal_map *fal_agent_map(const struct fal_agent *a);

/* The hash of what a task gave (falcon-protocol(7), "The task's hash"): whoever computes
 * the same bits says the same, in whatever contribution the task goes.  A running one, in
 * the pass that quantises: fal_hash_init, then all blocks in order, then the end. */
void fal_task_hash_block(struct fal_hash_state *h, const struct fal_sum *s,
			 uint32_t block, int8_t exponent);
void fal_task_hash_end(struct fal_hash_state *h, uint8_t out[static FAL_TASK_HASH]);

/* An emulated task ended so late, in ns, or made so much good of what was lost before;
 * the sum is reported with the next WORKED, as soon as it is above 0. */
void fal_agent_late(struct fal_agent *a, int64_t ns);

#endif
