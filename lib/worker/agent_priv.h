/* The worker's state, shared by its own files only: agent.c (lanes, time, the queue),
 * versions.c, contributions.c and local_steps.c.
 *
 * Calls that can fail return 0 or a negative enum fal_err; a lack of memory ends the
 * program. */
#ifndef FAL_WORKER_AGENT_PRIV_H
#define FAL_WORKER_AGENT_PRIV_H

#include "wire/block_map.h"
#include "wire/shard_wait.h"
#include "worker/agent.h"

/* Parameters with their exponents: a version, or the worker's own weights.  Lanes and
 * contributions keep it alive while they need it. */
struct snapshot {
	uint64_t version;
	uint64_t serial; /* of what is in it */
	float *params;   /* NULL, as the two below: nothing has come yet */
	int8_t *exps;
	uint8_t *seen; /* by block */
	uint32_t left; /* blocks still to come */
	bool keep;     /* to be kept for evaluation once it is whole */
	uint32_t due;  /* the last VERSION, counted, for which it is published, */
	uint32_t map;  /* by the map of this epoch, counted from 1; 0: not said yet */
	/* When a shard began with it, 0: none has; of one that comes, shards that are not
	 * through, as bits; by shard, blocks that are published and not here. */
	uint64_t began;
	uint64_t owing;
	uint32_t lack[FAL_SHARDS_MAX];
	/* As bits, shards that have blocks of it; those that publish it from block
	 * `head` on, which is not here yet; and those of which it is.  Blocks that are
	 * here, the first ones. */
	uint64_t shards, opened, begun;
	uint32_t head[FAL_SHARDS_MAX];
	uint32_t came;
	uint32_t refs;
};

struct item {
	uint64_t round, clock;
	uint64_t version, exponents; /* that it is computed on; that has its exponents */
	uint32_t task;
	uint32_t seq; /* of the contribution that it is claimed for; 0: none yet */
	bool delta;
	bool check; /* only what it needed is wanted; may be wanted for good, too */
	bool alone; /* in the contribution that it goes into, as there is room for no more
		     */
	struct fal_cid fills;
};

struct lane {
	bool busy, cancelled, eval;
	bool begun; /* before all of its version was here */
	struct item item;
	struct snapshot *on, *by; /* by: it has the exponents */
	struct fal_sum *sum;
};

/* A claimed task whose verdict is not in yet. */
struct pending {
	uint64_t round;
	uint32_t task, seq, samples;
	struct fal_sum *sum;
};

/* Tasks of a round that were quantised by the same exponents and fill the same. */
struct contrib {
	uint64_t round;
	uint32_t seq, tasks;
	struct fal_cid fills;
	bool closed; /* by its last claim, or by SEAL: a ticket is to come, or a fence */
	bool alone;  /* of one task, ever */
	/* Claimed when it was granted: its tasks, of FAL_SPANS GRANTs at most, `due` of
	 * them without a result yet, and what it is pushed with; closed, and without the
	 * two below, from the start. */
	struct run {
		uint32_t first, count;
	} run[FAL_SPANS];
	uint32_t due;
	bool ticketed;
	struct fal_msg_ticket ticket;
	struct snapshot *by; /* it has the exponents */
	struct fal_sum *sum;
};

/* A contribution to which nothing is added any more, on its way. */
struct push {
	struct fal_msg_ticket ticket; /* it may yet come: */
	bool ticketed;
	struct fal_sum *sum;
	int8_t *exps;
	uint32_t packed; /* blocks so far */
};

/* A delta round: its tasks, cut into pieces, one local step each. */
struct local {
	uint64_t round, clock, version, since;
	uint32_t from, of, steps;
	enum fal_base base;
	float lr;
	bool begun, closed; /* closed: its last task is claimed */
	uint32_t seq;       /* 0: nothing was claimed so far */
	/* Of the piece at work: */
	uint32_t piece, won;
	uint64_t samples;
	struct fal_sum *sum; /* NULL before it has begun */
};

/* Bytes of results whose claims are under way, where those of the lanes' tasks are less.
 */
#define WAITING ((size_t)8 << 20)

/* In a queue; falcon-job(5) allows no more samples in a clock. */
enum { MOST_TASKS = 1 << 20 };

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

	struct fal_map map; /* that what is pushed goes by; no shards: not known */
	VEC(struct snapshot *) versions; /* whole ones and coming ones */
	uint64_t oldest;                 /* nothing older will be computed on */
	uint32_t told;                   /* VERSION messages so far */
	struct fal_agent_part placing; /* for which a place was given; no blocks: none */
	struct snapshot *spare;        /* memory for the next one, or NULL */
	uint32_t live;                 /* that have memory, this one, too */
	struct snapshot *kept;         /* version under evaluation */

	uint32_t lanes; /* in use */
	size_t waiting; /* lanes go on beside so many results without a verdict */
	uint64_t serial;
	struct lane *lane;
	VEC(struct item) queue; /* by round */
	VEC(uint32_t) evals;
	uint64_t eval_version; /* of `evals` */
	VEC(struct pending) pending;
	VEC(struct contrib) contribs; /* oldest first */
	VEC(struct push) pushes;      /* oldest first */
	/* FAL_MSG_HEAD bytes of room, and records of the first one that are not sent yet;
	 * or nothing. */
	struct fal_buf records;
	VEC(struct fal_sum *) pool;
	size_t halves; /* of sums, in the pool or not */
	bool refused;  /* more of them, */
	bool denied;   /* … or a version more */
	uint32_t seq;

	VEC(struct local) locals; /* by round; only the first one may have begun */
	struct snapshot *weights; /* the worker's own, or NULL: it never had any */
	float *last;              /* as they were when the round began */
	struct change {           /* of the last two rounds, the newest first */
		bool there;
		uint64_t round;
		float *by;
	} change[2];
	float *state;   /* of the optimiser */
	uint64_t steps; /* that it has had */

	uint64_t pulled; /* MODEL messages, ever */
	bool pushing;    /* something is not sent yet */
	uint64_t since, spent[ACTIVITIES], push_all, pull_all;
	uint64_t behind; /* lanes were busy only with versions that come, in ns */
	int64_t late;    /* fal_agent_late */
	struct fal_agent_overlap overlap;
	struct fal_shard_wait waited[FAL_SHARDS_MAX];

	bool leaving, left;
	char why[FAL_MSG_WHY];
};

/* ---- agent.c --- */

void agent_send(struct fal_agent *a, struct fal_msg *m, bool bulk);
/* Hands queued tasks to idle lanes: training first, then evaluation. */
void agent_dispatch(struct fal_agent *a);
/* May the agent take so much from now on? */
bool agent_grow(struct fal_agent *a, const struct fal_agent_most *to);
/* Is this lane at a task of training that is still wanted? */
bool agent_trains(const struct lane *l);
/* Drops tasks first … first+count-1 of a round from the queue and the lanes, be they of
 * kind check or of the others. */
void agent_take_back(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count,
		     bool check);
/* Is anything queued or running that would go into the contribution? */
bool agent_at_work(const struct fal_agent *a, const struct contrib *c);
/* Is a task queued that wants this version, or its exponents? */
bool agent_named(const struct fal_agent *a, uint64_t version);

/* ---- versions.c --- */

/* Another map holds: a BLOCKS. */
int agent_on_blocks(struct fal_agent *a, const struct fal_msg *m);
/* The shard, from 1, that has the block; 0: not known. */
uint32_t agent_route(const struct fal_agent *a, uint32_t block);
/* May be NULL. */
void agent_free_snapshot(struct snapshot *s);
/* Memory with one reference. */
struct snapshot *agent_snapshot(struct fal_agent *a);
/* One reference less; the last one leaves the memory to the next version. */
void agent_drop(struct fal_agent *a, struct snapshot *s);
/* Is a version on its way? */
bool agent_pulling(const struct fal_agent *a);
/* A version that is here as a whole, or NULL. */
struct snapshot *agent_version(const struct fal_agent *a, uint64_t version);
/* The same, or one that comes as surely as tasks may begin on it, if that may be. */
struct snapshot *agent_to_begin(const struct fal_agent *a, uint64_t version);
void agent_on_version(struct fal_agent *a, const struct fal_msg *m);
int agent_on_published(struct fal_agent *a, const struct fal_msg *m);
int agent_on_model(struct fal_agent *a, const struct fal_msg *m);
/* No lane was at work for so long. */
void agent_wait_for(struct fal_agent *a, uint64_t ns);
/* Puts the rows of WORKED, which begin anew. */
void agent_put_waits(struct fal_agent *a, struct fal_buf *out);

/* ---- contributions.c --- */

/* A sum from the pool, or a new one, that has not grown. */
struct fal_sum *agent_take_sum(struct fal_agent *a);
/* Gives a sum back to the pool; may be NULL. */
void agent_give_sum(struct fal_agent *a, struct fal_sum *sum);
/* Adds `sum`, which is taken, to `to`, which may grow.  As fal_sum_add. */
int agent_add(struct fal_agent *a, struct fal_sum *to, struct fal_sum *sum);
/* May memory be taken for one version more?  May that of one which is over be kept for
 * the next? */
bool agent_version_more(struct fal_agent *a);
bool agent_spares(const struct fal_agent *a);
/* May a queued task begin, as far as sums go?  Alone: with no other in its contribution.
 */
bool agent_affords(const struct fal_agent *a, const struct item *item, bool *alone);
/* A contribution is to go out, behind those before it; sum and exps are taken. */
void agent_push(struct fal_agent *a, const struct push *p);
/* Is there anything that could be sent now? */
bool agent_push_waits(const struct fal_agent *a);
/* Ends all pushes that have a ticket: their rounds are over. */
void agent_push_over(struct fal_agent *a);
/* Tasks were granted that are claimed already. */
int agent_preclaimed(struct fal_agent *a, const struct fal_msg *m);
/* Drops what was claimed ahead and has some of these tasks: no result comes of them. */
void agent_drop_preclaimed(struct fal_agent *a, uint64_t round, uint32_t first,
			   uint32_t count);
/* … of which not all is done. */
void agent_leave_preclaimed(struct fal_agent *a);
/* Closes the contributions to which nothing can be added any more. */
void agent_close(struct fal_agent *a);
/* Claims a finished task; its sum is taken.  As fal_sum_add. */
int agent_claim(struct fal_agent *a, const struct lane *was, const struct fal_ran *ran);
/* Says what a task of kind check needed; its sum is taken. */
void agent_checked(struct fal_agent *a, const struct lane *was,
		   const struct fal_ran *ran);
int agent_on_verdict(struct fal_agent *a, const struct fal_msg *m);
int agent_on_ticket(struct fal_agent *a, const struct fal_msg *m);
void agent_on_fence(struct fal_agent *a, const struct fal_msg *m);

/* ---- local_steps.c --- */

/* The round of a GRANT of kind delta, which may be new. */
int agent_local_grant(struct fal_agent *a, const struct fal_msg *m);
/* The round of this number, or NULL. */
struct local *agent_local(struct fal_agent *a, uint64_t round);
/* Begins the first round if its base is here. */
void agent_local_begin(struct fal_agent *a);
/* What a task of a delta round runs on; NULL: its piece is not at work. */
struct snapshot *agent_local_on(const struct fal_agent *a, const struct item *item);
/* Is every task of the round claimed, with this one? */
bool agent_local_last(const struct fal_agent *a, const struct local *l);
/* A claim was won; its sum is taken.  FAL_ENONFINITE: the weights are of no use any more,
 * which a LEAVE has said; those of fal_sum_add. */
int agent_local_won(struct fal_agent *a, struct local *l, const struct pending *p);
/* Nothing will come of the round any more. */
void agent_local_kill(struct fal_agent *a, uint64_t round);
/* Kills the rounds that cannot end without another task. */
void agent_local_leave(struct fal_agent *a);
void agent_local_free(struct fal_agent *a);

#endif
