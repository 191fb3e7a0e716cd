/* The worker's state, shared by its own files only:
 *
 *	agent.c          messages, lanes, time; calls all files below
 *	local_steps.c    delta rounds
 *	contributions.c  claimed results, and the way to the shards
 *	versions.c       versions that come and are here
 *	memory.c         sums and snapshots, and how many there may be
 *	tasks.c          queued and running tasks
 *
 * Each file calls only files below it in this list.  Calls that can fail return 0 or a
 * negative enum fal_err; a lack of memory ends the program. */
#ifndef FAL_WORKER_AGENT_PRIV_H
#define FAL_WORKER_AGENT_PRIV_H

#include "wire/block_map.h"
#include "wire/shard_wait.h"
#include "worker/agent.h"

/* Parameters with their exponents: a version, or the worker's own weights.  Lanes and
 * contributions hold references. */
struct snapshot {
	uint64_t version;
	uint64_t serial; /* of the values */
	float *params;   /* NULL, as the two below: nothing has come yet */
	int8_t *exps;
	uint8_t *received; /* by block */
	uint32_t blocks_left;
	bool for_eval;         /* keep the version for evaluation once it is whole */
	uint32_t announcement; /* number of the version's last VERSION message, */
	uint32_t map_epoch;    /* … under this map, counted from 1; 0: none yet */
	struct fal_map map;    /* the block map at that message */
	uint32_t prefix;       /* blocks that are here from the first on */
	uint32_t refs;
	/* While the version comes; sets of shards are bits. */
	uint64_t began;                /* ns when the first shard began with the version;
					* 0: none has */
	uint64_t shards;               /* shards that have blocks of the version */
	uint64_t shards_published;     /* shards that publish it, whose first block is not
					* here */
	uint64_t shards_begun;         /* shards whose first block is here */
	uint64_t shards_unfinished;    /* shards whose blocks are not all here */
	uint32_t head[FAL_SHARDS_MAX]; /* first block, by shard */
	uint32_t lacking[FAL_SHARDS_MAX]; /* published blocks not here, by shard */
};

struct task {
	uint64_t round, clock;       /* round first: the sort key */
	uint64_t version, exponents; /* that the task computes on; that has the
				      * exponents */
	uint32_t task;
	uint32_t seq;       /* of the contribution that gets its claim; 0: none yet */
	enum fal_kind kind; /* a task may be granted as a check and as a gradient */
	bool is_alone;      /* the contribution has no room for a second task */
	struct fal_contrib_id fills;
};

enum lane_state { LANE_IDLE, LANE_TRAINS, LANE_EVALUATES, LANE_CANCELLED };

struct lane {
	enum lane_state state;
	bool is_early; /* began before all of its version was here */
	struct task task;
	struct snapshot *base, *exp_base; /* exp_base: has the exponents */
	struct fal_sum *sum;
};

/* A claimed task whose verdict has not come. */
struct claim {
	uint64_t round;
	uint32_t task, seq, samples;
	struct fal_sum *sum;
};

/* Tasks of a round that were quantised by the same exponents and fill the same
 * contribution. */
struct contribution {
	uint64_t round;
	uint32_t seq, tasks;
	struct fal_contrib_id fills;
	bool is_closed; /* by its last claim, or by SEAL: TICKET or FENCE will come */
	bool is_alone;  /* never gets a second task */
	/* Claimed when granted (preclaimed): the tasks of at most FAL_SPANS GRANTs, and
	 * the number of results still due.  Such a contribution is closed from the start;
	 * `exp_base` and `sum` are NULL at first. */
	struct span {
		uint32_t first, count;
	} span[FAL_SPANS];
	uint32_t results_due;
	bool has_ticket;
	struct fal_msg_ticket ticket;
	struct snapshot *exp_base;
	struct fal_sum *sum;
};

/* A finished contribution on its way to the shards. */
struct push {
	struct fal_msg_ticket
		ticket; /* with has_ticket; else round, seq and tasks only */
	bool has_ticket;
	struct fal_sum *sum;
	int8_t *exps;
	uint32_t blocks_packed;
};

/* A delta round: its tasks, cut into pieces, one local step each. */
struct local_round {
	uint64_t round, clock, version, since;
	uint32_t first, count, steps;
	enum fal_base base;
	float lr;
	bool has_begun;
	bool is_closed; /* its last task is claimed */
	uint32_t seq;   /* of its contribution; 0: nothing is claimed yet */
	/* The present piece: */
	uint32_t piece, tasks_won;
	uint64_t samples;
	struct fal_sum *sum; /* NULL before the round has begun */
};

enum {
	/* bytes of results with open claims that are allowed even with few lanes */
	CLAIM_BYTES = 8 << 20,
	/* in a queue; falcon-job(5) allows no more samples in a clock */
	TASKS_MAX = 1 << 20
};

/* A growing array used as a stack or a queue. */
#define VEC(type)              \
	struct {               \
		type *v;       \
		size_t n, cap; \
	}

enum activity { COMPUTE, PUSH, PULL, WAIT, ACTIVITIES };

struct fal_agent {
	struct fal_agent_conf conf;
	struct fal_agent_ops ops;
	uint32_t blocks;

	struct fal_map map;              /* for pushes; no shards: not known */
	VEC(struct snapshot *) versions; /* whole ones and coming ones */
	uint64_t oldest;                 /* no task will compute on an older version */
	uint32_t announcements;          /* VERSION messages so far */
	struct fal_agent_part placing;   /* the part that has a place; no blocks: none */
	struct snapshot *eval_base;      /* the version under evaluation */
	uint64_t serial;

	uint32_t lanes; /* in use */
	/* Slots of tasks: lane i has the slots i and, with conf.ahead, i + lanes_max. */
	uint32_t slots;
	struct lane *lane;      /* by slot */
	size_t claims_max;      /* tasks begin with at most so many open claims */
	VEC(struct task) queue; /* by round */
	VEC(uint32_t) evals;
	uint64_t eval_version; /* of `evals` */

	VEC(struct claim) claims;
	VEC(struct contribution) contributions; /* oldest first */
	VEC(struct push) pushes;                /* oldest first */
	/* Empty; or FAL_MSG_HEAD bytes of room, and records of the first push that are
	 * not sent yet. */
	struct fal_buf records;
	uint32_t seq;

	struct {
		VEC(struct fal_sum *) pool; /* unused sums */
		size_t halves;              /* of all sums, in the pool or not */
		uint32_t snapshots;         /* snapshots that have memory, with `spare` */
		struct snapshot *spare;     /* memory for the next one, or NULL */
		/* The driver has denied more sums, or more versions. */
		bool sums_denied, versions_denied;
	} memory;

	struct {
		VEC(struct local_round) rounds; /* by round; only the first has begun */
		struct snapshot *weights; /* the worker's own; NULL: never had any */
		float *before;            /* weights before the round */
		struct change {           /* of the last two rounds, newest first */
			bool exists;
			uint64_t round;
			float *delta;
		} change[2];
		float *state;   /* of the optimiser */
		uint64_t steps; /* steps that `state` has made */
	} local;

	struct {
		uint64_t now; /* of the last event */
		uint64_t spent[ACTIVITIES], push_all, pull_all;
		uint64_t early; /* ns in which lanes had only coming versions */
		int64_t late;   /* fal_agent_add_lateness */
		bool has_begun; /* the first task was granted: waiting counts */
	} time;
	uint64_t model_msgs; /* MODEL messages so far */
	bool is_pushing;     /* something is not sent yet */
	struct fal_agent_overlap overlap;
	struct fal_shard_wait shard_wait[FAL_SHARDS_MAX];

	bool is_leaving, has_left;
	char why[FAL_MSG_WHY];
};

/* ---- tasks.c --- */

void agent_send(struct fal_agent *a, struct fal_msg *m, bool bulk);
/* Makes the lane's result unwanted. */
void tasks_cancel_lane(struct fal_agent *a, uint32_t lane);
/* Sets held[k], for each k below `count`, if the k-th task after `task` (k 0: `task`
 * itself) is queued or running. */
void tasks_mark_held(const struct fal_agent *a, const struct task *task, uint32_t count,
		     bool *held);
/* Queues the tasks that are not held: behind the queued tasks of their round that need no
 * later version; but checks before all tasks of the round, as nobody waits for a check
 * when the round is over. */
void tasks_enqueue(struct fal_agent *a, struct task task, uint32_t count,
		   const bool *held);
/* Drops tasks first … first+count-1 of a round from the queue and the lanes: only checks,
 * or, with `checks` false, all tasks except checks. */
void tasks_drop(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count,
		bool checks);
/* Returns true if a queued or running task would go into the contribution. */
bool tasks_has_for_contribution(const struct fal_agent *a, const struct contribution *c);
/* Returns true if a queued task needs this version, or its exponents. */
bool tasks_need_version(const struct fal_agent *a, uint64_t version);

/* ---- memory.c --- */

/* Asks the driver for larger limits.  Returns false if the driver denies them. */
bool memory_grow(struct fal_agent *a, const struct fal_agent_limits *to);
/* Takes from the pool a sum that has not grown; if there is none, makes a new sum. */
struct fal_sum *memory_take_sum(struct fal_agent *a);
/* Takes a sum that has grown from the pool, or NULL. */
struct fal_sum *memory_take_grown_sum(struct fal_agent *a);
/* Returns a sum to the pool; may be NULL. */
void memory_return_sum(struct fal_agent *a, struct fal_sum *sum);
/* Adds `sum`, which is taken, to `to`, which may grow.  Fails as fal_sum_add does. */
int memory_add_sum(struct fal_agent *a, struct fal_sum *to, struct fal_sum *sum);
/* Returns true if one more version may take memory. */
bool memory_allows_version(struct fal_agent *a);
/* Returns true if the limits for sums allow a queued task to begin.  *alone: the task
 * may begin, but no other task may join its contribution. */
bool memory_allows_task(const struct fal_agent *a, const struct task *task, bool *alone);
/* Makes a snapshot with memory and one reference. */
struct snapshot *snapshot_new(struct fal_agent *a);
/* Drops a reference (NULL: none).  After the last one the next version may use the
 * memory. */
void snapshot_unref(struct fal_agent *a, struct snapshot *s);
void snapshot_free(struct snapshot *s); /* may be NULL */

/* ---- versions.c --- */

/* The shard, from 1, that has the block; 0: not known. */
uint32_t agent_route(const struct fal_agent *a, uint32_t block);
/* Returns true if a version is being received. */
bool versions_are_coming(const struct fal_agent *a);
/* A version that is here as a whole, or NULL. */
struct snapshot *agent_version(const struct fal_agent *a, uint64_t version);
/* The same; or a coming version that no shard can hold up any more, if tasks may begin
 * early. */
struct snapshot *versions_find_beginnable(const struct fal_agent *a, uint64_t version);
/* Handle messages.  Each returns 1 if queued tasks may be able to begin now, 0, or an
 * error. */
int agent_on_version(struct fal_agent *a, const struct fal_msg *m);
int agent_on_published(struct fal_agent *a, const struct fal_msg *m);
int agent_on_model(struct fal_agent *a, const struct fal_msg *m);
/* Charges `ns`, in which no lane was at work, to the shards that the worker waits for. */
void agent_wait_for(struct fal_agent *a, uint64_t ns);
/* Writes the rows of WORKED, and sets them to 0. */
void agent_put_waits(struct fal_agent *a, struct fal_buf *out);

/* ---- contributions.c --- */

/* Queues a push behind the others; sum and exps are taken. */
void push_enqueue(struct fal_agent *a, const struct push *p);
/* Returns true if any push has its ticket. */
bool push_is_due(const struct fal_agent *a);
/* Sends the next message of the first push that has its ticket.  Returns false if there
 * is none. */
bool push_send_next(struct fal_agent *a);
/* Ends all pushes that have a ticket: their rounds are over. */
void push_end_ticketed(struct fal_agent *a);
/* Adds the tasks of a preclaimed GRANT.  FAL_EFORMAT, FAL_ESTATE. */
int preclaim_add(struct fal_agent *a, const struct fal_msg *m);
/* Drops the preclaimed contributions that have some of these tasks. */
void preclaim_drop(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count);
/* Drops the preclaimed contributions that lack results. */
void preclaim_drop_unfinished(struct fal_agent *a);
/* Claims the result of a preclaimed task, whose sum is taken.  Fails as fal_sum_add
 * does. */
int preclaim_report(struct fal_agent *a, const struct lane *was, struct fal_msg *claim);
/* Finds or makes the open contribution that gets a task, and fills in the claim.  The
 * claim closes the contribution if the contribution will get no other task. */
void contribution_claim(struct fal_agent *a, const struct lane *was,
			struct fal_msg *claim);
/* Takes the sum of a won claim, and adds it to the claim's contribution, if the
 * contribution still exists. */
int contribution_add(struct fal_agent *a, const struct claim *won);
/* Closes the contributions to which nothing can be added any more. */
void contribution_close_idle(struct fal_agent *a);
int contribution_on_ticket(struct fal_agent *a, const struct fal_msg_ticket *t);
void contribution_fence(struct fal_agent *a, uint64_t round, uint32_t seq);

/* ---- local_steps.c --- */

/* Adds the round of a GRANT of kind delta, unless it is known.  FAL_EFORMAT. */
int local_grant(struct fal_agent *a, const struct fal_msg *m);
/* The round of this number, or NULL. */
struct local_round *local_find(struct fal_agent *a, uint64_t round);
/* Begins the first round if its base is here. */
void local_begin(struct fal_agent *a);
/* Returns the snapshot for a task of a delta round; NULL: the task does not belong to the
 * present piece. */
struct snapshot *local_base(const struct fal_agent *a, const struct task *task);
/* Fills in the claim of a task of the round, and closes the round with the last one. */
void local_claim(struct fal_agent *a, struct local_round *l, struct fal_msg *claim);
/* Adds a won claim; its sum is taken.  FAL_ENONFINITE: the weights are useless now, and a
 * LEAVE has said so; the errors of fal_sum_add. */
int local_add(struct fal_agent *a, struct local_round *l, const struct claim *won);
/* Ends a round without a result. */
void local_kill(struct fal_agent *a, uint64_t round);
/* Kills the rounds that need another task to end. */
void local_leave(struct fal_agent *a);
void local_free(struct fal_agent *a);

#endif
