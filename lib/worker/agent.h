/* The worker's side of a job as a pure state machine.  Input: messages and finished
 * tasks.  Output: messages and tasks to run.
 *
 * No I/O, no clock, no threads: falcon-work drives the agent with a socket and lanes; the
 * simulator drives the agent with a fake network.  The agent claims each finished task,
 * and adds the result to the open contribution only when the claim has won.  The agent
 * pushes a contribution when no task of the contribution's round is queued, running or
 * without a verdict; or right behind the contribution's only claim, if the coordinator
 * allows that (design.md, I6).  The push leaves message by message, as fast as the
 * driver's channel takes messages; until then the values stay in the contribution's sum.
 * Several pushes leave one after the other.  A round runs on the version that its GRANT
 * names; several rounds may be under way.
 *
 * A delta round belongs to this worker alone.  Its tasks are cut into pieces.  Each piece
 * is a local step: the worker's own optimiser applies the mean of the piece's gradients
 * to the worker's own weights.  The change of the weights is the contribution. */
#ifndef FAL_WORKER_AGENT_H
#define FAL_WORKER_AGENT_H

#include "base/cid.h"
#include "base/metrics.h"
#include "crypto/hash.h"
#include "math/optim.h"
#include "sched/grid.h"
#include "sched/policy.h"
#include "wire/bfp.h"
#include "wire/msg.h"

struct fal_agent; /* opaque */

/* A task for a lane.  Pointers are borrowed until fal_agent_finished for that lane. */
struct fal_task_run {
	bool eval; /* a test task: no gradient */
	uint64_t round;
	uint64_t clock; /* of the task: selects the samples */
	uint32_t task;
	uint64_t version;   /* on which the round computes, by the coordinator's count */
	uint64_t exponents; /* the version whose exponents quantise the gradient */
	uint64_t serial;    /* of `params`: different values have different serials */
	const float *params;
	const int8_t *exps;
	bool coming;         /* blocks are still missing */
	uint32_t came;       /* so many first blocks are here; ops.came reports more */
	struct fal_sum *sum; /* for the quantised gradient; NULL for eval */
	unsigned room;       /* bits of a quantised value */
	unsigned bits;       /* bits that rounding keeps; 0: all */
	uint64_t seed;       /* of the task: fal_rng_task */
};

/* The result of a task. */
struct fal_task_result {
	bool cancelled; /* there is no result */
	bool nonfinite; /* a value of the gradient is not finite */
	/* most: the gradient's largest value, rounded up to a power of 2.  room: a bound
	 * that this value reaches or exceeds.  0, 0: all values have room. */
	float most, room;
	int64_t loss; /* Σ over the samples, in the units of base/loss.h */
	uint32_t right, samples;
	struct fal_metrics metrics; /* of a job with conf.metrics */
	uint64_t task_ns;           /* compute time, */
	uint64_t waited_ns; /* … and besides, time in which the task waited for blocks */
	uint8_t hash[FAL_TASK_HASH]; /* of a finite gradient: fal_task_hash_block */
	struct fal_sum *sum;         /* only with conf.outer: the agent takes it; NULL: no
				      * result */
};

/* The limits from which the memory of an agent follows. */
struct fal_agent_limits {
	uint32_t versions; /* held at a time */
	uint32_t delay;    /* versions by which updates lag */
	bool own;          /* each worker has rounds of its own */
	bool moves;        /* tasks move to other workers, so claims wait for verdicts */
	bool delta;        /* local steps */
};

/* A version, whose arrays are borrowed for the call. */
struct fal_whole_version {
	uint64_t version;
	bool keep; /* to be evaluated */
	const float *params;
	const int8_t *exps;
};

/* How often tasks overlapped with the transfer of their version, so far. */
struct fal_agent_overlap {
	uint64_t tasks; /* that had a gradient */
	uint64_t begun; /* of these, tasks that began before all of their version was
			 * here */
};

struct fal_agent_ops {
	void *arg;
	/* Message bytes, borrowed for the call.  Bulk messages keep their order among
	 * themselves and never overtake control. */
	void (*send)(void *arg, const struct fal_buf *msg, bool bulk);
	/* Starts a task on an idle lane. */
	void (*run)(void *arg, uint32_t lane, const struct fal_task_run *run);
	/* Cancels the lane's task; fal_agent_finished follows all the same. */
	void (*cancel)(void *arg, uint32_t lane);
	/* A number that grows while lanes make progress: steps of their tasks so far. */
	uint64_t (*steps)(void *arg);
	/* Sends a PUSH, bulk, whose blocks all belong to that shard (numbered as in
	 * PUBLISHED; 0: not known). NULL: all shards are in the coordinator's process, so
	 * `send` does. */
	void (*push)(void *arg, uint32_t shard, const struct fal_buf *msg);
	/* begins: may tasks begin before all of their version is here?  came: the lane's
	 * task now has so many first blocks, never fewer than before.  Both NULL: tasks
	 * may not begin early. */
	bool (*begins)(void *arg);
	void (*came)(void *arg, uint32_t lane, uint32_t blocks);
	/* Asks for more memory than conf.most allows.  If the driver denies the memory,
	 * the agent works with the old limits.  If the agent asked for more than `moves`,
	 * a driver that denies also leaves the job.  NULL: all is allowed. */
	bool (*grow)(void *arg, const struct fal_agent_limits *to);
	/* Reports that all of a version is here.  May be NULL. */
	void (*whole)(void *arg, const struct fal_whole_version *v);
};

struct fal_agent_conf {
	size_t n; /* parameters */
	uint32_t lanes_max;
	/* A lane has up to `ahead` (0 or 1) further tasks, which the driver begins when
	 * the lane's task ends.  The lane of a call is then a slot, below (1 + ahead) ·
	 * lanes_max. */
	uint32_t ahead;
	uint64_t serial; /* the first fal_task_run has serial + 1 */
	uint32_t incarnation;
	uint32_t map_epoch;     /* epoch of WELCOME; BLOCKS has the map itself */
	uint32_t tasks;         /* the most of a clock: bounds one task's values */
	struct fal_grid grid;   /* for local steps only */
	unsigned push_bits;     /* of a gradient's quantised values; 0: all */
	uint64_t seed;          /* of the job */
	uint32_t metrics;       /* number of the job's metrics */
	struct fal_optim optim; /* of local steps; the parameter ranges stay borrowed */
	uint32_t push_blocks;   /* most blocks of a PUSH; 0: as many as fit */
	struct fal_agent_limits most; /* the limits for memory; {0}: none */
	/* For a group server's agent: the group's workers run the tasks, as many at a
	 * time as there are lanes, and make the sums, so run.sum is NULL.  No task is
	 * claimed at the time of its grant. */
	bool outer;
	size_t sums; /* the limit for sums of gradients, in halves; 0: none.  Local steps
		      * take sums beyond the limit */
};

/* Computes the limits for a job with this rule. */
struct fal_agent_limits fal_agent_limits(const struct fal_rule *rule, bool evaluates);

/* fal_agent_sums computes conf.sums under these limits; fal_agent_bytes computes the most
 * bytes that such an agent takes. */
size_t fal_agent_sums(const struct fal_agent_conf *conf,
		      const struct fal_agent_limits *most);
uint64_t fal_agent_bytes(const struct fal_agent_conf *conf,
			 const struct fal_agent_limits *most);

/* Makes an agent; copies `conf` and `ops`. */
struct fal_agent *fal_agent_new(const struct fal_agent_conf *conf,
				const struct fal_agent_ops *ops);
/* Frees the agent; all lanes must be idle. */
void fal_agent_free(struct fal_agent *a);

/* Handles one message of the coordinator (BLOCKS, VERSION, GRANT, REVOKE, VERDICT,
 * TICKET, LANES, FENCE, EVAL, ACCOUNT, DRAIN, PING) or of a shard (PUBLISHED, MODEL).
 * `now` in ns.  Returns 0, or the fault in the message; FAL_ENONFINITE: local steps have
 * made weights that are not finite, and the agent has sent a LEAVE with this reason. */
int fal_agent_msg(struct fal_agent *a, uint64_t now, const struct fal_msg *m);

/* Blocks of a version. */
struct fal_agent_part {
	uint64_t version;
	uint32_t first, blocks;
};

/* Returns the place for the values of a MODEL message of `part` before the message, n
 * bytes long, is decrypted, and sets *head to the number of bytes before the values.
 * NULL: there is no place.  The caller may write anything there: the agent reads the
 * place only if the next call of fal_agent_msg has the message, with model.placed and
 * without values.  The message need not come. */
uint8_t *fal_agent_place(struct fal_agent *a, const struct fal_agent_part *part, size_t n,
			 size_t *head);

/* Takes the result of the task of `lane`. Fails as fal_sum_add does. */
int fal_agent_finished(struct fal_agent *a, uint64_t now, uint32_t lane,
		       const struct fal_task_result *ran);

/* Sends the next bulk message: a PUSH, or at the end LEAVE.  After each call of a
 * function here, and when the driver has room again, the driver calls fal_agent_send_next
 * until false is returned: there is nothing to send now. */
bool fal_agent_send_next(struct fal_agent *a);

/* Tells the agent that all sent messages have left this process. */
void fal_agent_flushed(struct fal_agent *a, uint64_t now);

/* Starts to leave, as DRAIN does: hands back unclaimed tasks, pushes claimed ones, then
 * sends LEAVE with `why`. fal_agent_has_left becomes true when nothing more will be sent.
 */
void fal_agent_leave(struct fal_agent *a, uint64_t now, const char *why);
bool fal_agent_has_left(const struct fal_agent *a);

/* Returns the number of lanes that the coordinator allows. */
uint32_t fal_agent_lanes(const struct fal_agent *a);

/* Returns true if all of the version is here, to compute on or to evaluate. */
bool fal_agent_has_version(const struct fal_agent *a, uint64_t version);

/* Returns true if a version that is coming lacks blocks that the shard, counted from 1,
 * had when the version was announced. */
bool fal_agent_awaits_shard(const struct fal_agent *a, uint32_t shard);

struct fal_agent_overlap fal_agent_overlap(const struct fal_agent *a);

/* Returns the block map for pushes, borrowed; NULL: not known yet. */
const struct fal_map *fal_agent_map(const struct fal_agent *a);

/* The hash of a task's gradient (falcon-protocol(7), "The task's hash"): equal bits give
 * equal hashes, whatever contribution gets the task.  The pass that quantises also
 * computes the hash: fal_hash_init, all blocks in order, then fal_task_hash_end. */
void fal_task_hash_block(struct fal_hash_state *h, const struct fal_sum *s,
			 uint32_t block, int8_t exponent);
void fal_task_hash_end(struct fal_hash_state *h, uint8_t out[static FAL_TASK_HASH]);

/* Adds the ns by which an emulated task ended late; negative: the ns by which the task
 * made up for earlier lateness.  The next WORKED reports the sum if the sum is above 0.
 */
void fal_agent_add_lateness(struct fal_agent *a, int64_t ns);

#endif
