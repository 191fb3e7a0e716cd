/* The scheduler's state, shared by its own files only. */
#ifndef FAL_SCHED_STATE_H
#define FAL_SCHED_STATE_H

#include "sched/heap.h"
#include "sched/sched.h"

enum { FAL_RECENT = 16 }; /* task times kept for medians */

/* What is measured at one lane count. */
struct fal_pace {
	double task_s;    /* EWMA of a task's seconds; 0: unknown */
	uint32_t nearest; /* nearest lane count with a known task_s; 0: none is known */
};

struct fal_worker {
	uint32_t id;
	bool gone, suspected;
	uint32_t lanes, lanes_min, lanes_max, cores;
	uint32_t lanes_held;   /* clocks since the lanes last changed */
	struct fal_pace *pace; /* by lane count */
	double probe_s;        /* its own probe at one lane; 0: unknown */
	double recent[FAL_RECENT];
	uint32_t recents;      /* measured tasks, ever */
	double late_s;         /* what fal_late_s says of them; 0: nothing yet */
	double eval_s;         /* EWMA of an eval task's seconds; 0: unknown */
	double pull_s, push_s; /* EWMA: publish → compute begins; last claim → counted */
	double rtt;

	uint32_t head, tail, queued; /* its task queue, by node */
	uint32_t given, claims;      /* in this clock: grants to it, claims by it */
	uint32_t evals;              /* eval tasks it holds */
	bool no_evals;               /* it let some lie: no more until it does one */
	uint32_t plan;               /* tasks about to be given to it */
	uint32_t standby;            /* clocks in a row with share 0 */
	double ready;                /* when it has pulled the clock's version */
	double base;                 /* when it last made progress */
	double finish;               /* projected finish of what it holds */
	double heard, pinged;        /* when it last spoke, when it was last asked */
	double claimed;              /* when it last claimed in this clock */
	uint32_t newest;             /* its newest contribution in this clock */
	uint32_t charges;
	struct fal_work work;
};

/* A place in a worker's queue.  Task t has node t and, when cloned, node t + K. */
struct fal_node {
	uint32_t prev, next;
	uint32_t slot; /* the worker's slot, or FAL_NONE */
	double began;  /* when a lane began with it; negative: not yet */
};

/* A scheme: what differs between synchronisation rules. */
struct fal_scheme {
	const char *name;
	/* The cost of worker `w` holding n tasks; whoever has the least gets the next. */
	double (*cost)(const struct fal_sched *s, const struct fal_worker *w, uint32_t n,
		       double now);
	int (*rebalance)(struct fal_sched *s, double now); /* NULL: never */
	int (*lanes)(struct fal_sched *s);                 /* NULL: fixed */
};
extern const struct fal_scheme fal_scheme_bsp, fal_scheme_epsp;

struct fal_sched {
	const struct fal_scheme *scheme;
	uint32_t lanes_start;
	double eval_cost;
	double typical_s; /* EWMA of a task's seconds over all workers; 0: unknown */

	struct fal_worker *worker; /* by slot, in order of ids; slots hold for a clock */
	uint32_t workers;
	uint32_t last_id; /* of all that ever joined */
	size_t worker_cap;
	uint32_t active; /* neither gone nor suspected */

	bool open;
	double opened;
	struct fal_ledger ledger;
	struct fal_node *node; /* 2·K */
	size_t node_cap;
	uint32_t *nonfinite; /* by task: slot that reported it non-finite, or FAL_NONE */
	bool *granted;       /* by task: was granted before */
	size_t nonfinite_cap, granted_cap;
	uint32_t *free_task; /* tasks that nobody holds */
	uint32_t free_n;
	size_t free_cap;

	/* Active workers by what they can give or take (keys in the order of heap.h): */
	struct fal_heap takers;  /* nothing unstarted; by finish after one task more */
	struct fal_heap donors;  /* something unstarted; latest finish first */
	struct fal_heap runners; /* running a task without a clone; latest finish first */
	struct fal_heap idle;    /* holding nothing; fastest first */
	struct fal_heap due;     /* owing something; when to look at it again */
	struct fal_heap planner; /* scratch of fal_plan */

	uint32_t eval_tasks, eval_left; /* all; not yet evaluated */
	uint32_t *eval_holder; /* by eval task: worker id, 0: nobody, FAL_EVALUATED */
	size_t eval_holder_cap;
	uint32_t *eval_free;
	uint32_t eval_free_n;
	size_t eval_free_cap;

	struct fal_act *act;
	size_t acts, act_next, act_cap;
};

#define FAL_EVALUATED UINT32_MAX /* no worker's id */

static inline bool
fal_worker_active(const struct fal_worker *w)
{
	return !w->gone && !w->suspected;
}

static inline uint32_t
fal_slot(const struct fal_sched *s, const struct fal_worker *w)
{
	return (uint32_t)(w - s->worker);
}

/* sched.c: the worker with this id, or NULL: unknown or gone.  O(log W). */
struct fal_worker *fal_find(const struct fal_sched *s, uint32_t id);

/* speed.c: what is measured, and what is projected from it. */

/* Seconds a task takes on a lane of `w` at `lanes` lanes; a guess if never measured. */
double fal_task_s(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes);
double fal_eval_s(const struct fal_sched *s, const struct fal_worker *w);
/* A task took `task_s` seconds.  O(1), O(lanes) once for each lane count. */
void fal_measured(struct fal_sched *s, struct fal_worker *w, double task_s);
void fal_ewma(double *mean, double x); /* 0 means: no value yet */
/* A task that has run for longer than this is late: median + 6·max(MAD, 5 %). */
double fal_late_s(const struct fal_sched *s, const struct fal_worker *w);
/* A worker that has been silent for longer than this is suspected: fal_late_s with
 * floors of 4 RTT and 200 ms. */
double fal_deadline_s(const struct fal_sched *s, const struct fal_worker *w);
/* When `w` will have finished the tasks that it holds and `extra` ones more, pushing
 * included: running tasks end on their lanes, the others follow lane by lane. */
double fal_project(const struct fal_sched *s, const struct fal_worker *w, uint32_t extra,
		   double now);

/* queue.c: queues, heaps, actions.  All return 0 or FAL_ENOMEM. */

struct fal_act *fal_emit(struct fal_sched *s, struct fal_act act);
/* Appends the task to a range of the last action where it touches it. */
int fal_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task);
/* Recomputes the projection of `w` and its places in the heaps. */
void fal_refresh(struct fal_sched *s, struct fal_worker *w, double now);
uint32_t fal_node_task(const struct fal_sched *s, uint32_t node);
void fal_detach(struct fal_sched *s, uint32_t node);
/* Puts `node` at the end of the queue of `w` and tells it. */
int fal_give(struct fal_sched *s, struct fal_worker *w, uint32_t node);
int fal_move_tail(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
		  double now);
/* Runs a task that `from` is running on `to`, too; 0 also when there is none left. */
int fal_clone_head(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
		   double now);
/* Takes everything from `w`: tasks, open contributions, eval tasks; `tell`: with
 * revokes. */
int fal_strip(struct fal_sched *s, struct fal_worker *w, bool tell);
/* The task leaves all queues and the free tasks; holders but `except` are told. */
int fal_withdraw(struct fal_sched *s, uint32_t task, const struct fal_worker *except,
		 double now);
/* The task leaves the queue of `w`, which knows; other holders keep it. */
void fal_drop_own(struct fal_sched *s, uint32_t task, const struct fal_worker *w);
int fal_free_task(struct fal_sched *s, uint32_t task);
bool fal_task_held(const struct fal_sched *s, uint32_t task);

/* plan.c: who gets the free tasks. */
int fal_plan(struct fal_sched *s, double now);

/* eval.c */
int fal_eval_feed(struct fal_sched *s, double now);
/* The eval tasks that `w` holds are anybody's again. */
void fal_eval_return(struct fal_sched *s, struct fal_worker *w);
/* True when `w` speaks but evaluates nothing, and somebody else waits for its tasks. */
bool fal_eval_overdue(const struct fal_sched *s, const struct fal_worker *w, double now);

#endif
