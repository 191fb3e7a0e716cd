/* The worker's state, shared by its own files only:
 *
 *	agent.c        lanes, the task queue, time; what the coordinator says
 *	agent_model.c  versions of the parameters
 *	agent_push.c   claims and contributions
 *
 * Calls that can fail return 0 or a negative enum fal_err. */
#ifndef FAL_PEER_AGENT_PRIV_H
#define FAL_PEER_AGENT_PRIV_H

#include "peer/agent.h"

/* One version of the parameters; lanes keep it alive while they compute on it. */
struct snapshot {
	uint64_t version;
	float *params;
	int8_t *exps;
	uint8_t *seen; /* by block */
	uint32_t left; /* blocks still to come */
	uint32_t refs;
};

struct item {
	uint32_t task;
	struct fal_cid fills;
};

struct lane {
	bool busy, cancelled, eval;
	struct item item;
	struct snapshot *on;
	struct fal_sum *sum;
};

/* A claimed task whose verdict is not in yet. */
struct pending {
	uint32_t task, seq;
	struct fal_sum *sum;
};

struct contrib {
	uint32_t seq, tasks;
	struct fal_cid fills;
	struct fal_sum *sum;
};

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

	/* Versions being received, or NULL: the next one, and one to be kept. */
	struct snapshot *coming[2];
	struct snapshot *current; /* newest complete version */
	struct snapshot *spare;   /* memory for the next one, or NULL */
	struct snapshot *kept;    /* version under evaluation */

	uint64_t clock; /* of the queue, the pending claims and the contributions */
	uint32_t lanes; /* in use */
	struct lane *lane;
	VEC(struct item) queue;
	VEC(uint32_t) evals;
	uint64_t eval_version; /* of `evals` */
	VEC(struct pending) pending;
	VEC(struct contrib) contribs;
	VEC(struct fal_sum *) pool;
	uint32_t seq;

	bool pushing; /* something is not sent yet */
	uint64_t since, spent[ACTIVITIES], push_all, pull_all, late;

	bool leaving, left;
	char why[FAL_MSG_WHY];
};

/* agent.c */
int agent_send(struct fal_agent *a, struct fal_msg *m, bool bulk);
/* Hands queued tasks to idle lanes: training first, then evaluation. */
int agent_dispatch(struct fal_agent *a);
/* Whatever belongs to an older clock is of no use to anybody. */
int agent_enter_clock(struct fal_agent *a, uint64_t clock);

/* agent_model.c */
/* May be NULL. */
void agent_free_snapshot(struct snapshot *s);
/* One reference less; the last one leaves the memory to the next version. */
void agent_drop(struct fal_agent *a, struct snapshot *s);
/* Is a version on its way? */
bool agent_pulling(const struct fal_agent *a);
int agent_on_version(struct fal_agent *a, const struct fal_msg *m);
int agent_on_model(struct fal_agent *a, const struct fal_msg *m);

/* agent_push.c */
/* A sum from the pool, or a new one; NULL: out of memory. */
struct fal_sum *agent_take_sum(struct fal_agent *a);
/* Back to the pool; may be NULL. */
int agent_give_sum(struct fal_agent *a, struct fal_sum *sum);
/* Pushes the contributions when nothing can be added to them any more. */
int agent_push_if_idle(struct fal_agent *a);
/* The open contribution of this number, or NULL. */
struct contrib *agent_contrib(struct fal_agent *a, uint32_t seq);
/* Claims a finished task; `sum` is taken. */
int agent_claim(struct fal_agent *a, const struct item *item, struct fal_sum *sum,
		const struct fal_ran *ran);

#endif
