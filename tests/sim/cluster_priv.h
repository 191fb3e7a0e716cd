/* The cluster's state, shared by its own files only:
 *
 *	cluster.c  events, the network, the coordinator
 *	worker.c   what a worker does
 *	lies.c     what liars say
 *	bound.c    how long a clock may take */
#ifndef CLUSTER_PRIV_H
#define CLUSTER_PRIV_H

#include "../racked.h"
#include "cluster.h"

#include "agent/agent.h"
#include "base/mem.h"
#include "base/rng.h"

enum kind {
	TO_COORD,  /* a message arrives at the coordinator */
	TO_WORKER, /* a message arrives at a worker */
	LANE,      /* a lane's task is over */
	JOIN,
	CRASH,
	LEAVE,
	ORDER, /* a controller asks for something */
	RESUME,
	RESET, /* the coordinator learns that a connection is gone */
	TAKEN  /* a worker's link has a bulk message */
};

struct event {
	double t;
	uint64_t order; /* ties: first in, first out */
	enum kind kind;
	uint32_t worker;
	uint32_t lane, run; /* LANE: which run of the lane */
	struct fal_buf msg;
};

struct lane {
	bool busy, cancelled;
	uint32_t run;
	double began, ends;
	struct fal_run what;
};

/* A contribution that was fenced. */
struct fenced {
	uint64_t round;
	uint32_t peer, seq;
};

/* A growing array. */
#define VEC(type)              \
	struct {               \
		type *v;       \
		size_t n, cap; \
	}

struct cluster;

struct worker {
	struct cluster *c;
	const struct machine *m;
	uint32_t index;
	bool here, dead;
	bool over; /* its session has ended: nothing of it arrives any more */
	struct fal_agent *agent;
	struct lane lane[8];
	double up_ctl, up_bulk, down_ctl, down_bulk; /* last arrival, by direction */
	uint32_t under_way;                          /* bulk messages */
	uint64_t steps;                              /* of tasks that are over */
	bool lied;                                   /* once is enough */
	bool *shown; /* flaky: by task of the job, already non-finite once */
};

struct cluster {
	const struct plan *p;
	struct fal_rng rng;
	double now;
	uint64_t order, events;
	struct event *heap;
	size_t n, cap;
	struct racked shards; /* and whose they are: */
	struct fal_coord *coord;
	struct worker worker[MAX_WORKERS];
	struct fal_buf trace;
	float *grad;
	uint64_t publication;
	uint64_t clock;  /* that is not over, */
	double clock_at; /* since when */
	double longest;
	const char *failure;
	uint64_t lies, refused;
	bool asked; /* somebody was asked to witness */
	uint64_t seen[SEEN];
	VEC(struct fenced) fences; /* that workers were told of */
};

/* cluster.c */

/* An error ends the run, with `what`. */
void cluster_ok(struct cluster *c, int err, const char *what);
/* It is going to happen; e.msg is taken. */
void cluster_push(struct cluster *c, struct event e);
struct fal_buf cluster_copy(const struct fal_buf *msg);
/* When a message of n bytes that leaves now arrives: in order within its queue, whose
 * last arrival is *last, and not before `other`. */
double cluster_arrival(struct cluster *c, const struct machine *m, size_t n, double *last,
		       double other);
/* The time, as agents have it. */
uint64_t cluster_ns(const struct cluster *c);

/* worker.c */

/* It opens its session. */
void worker_join(struct cluster *c, struct worker *w);
/* A lane's task is over, if it is the run of the event still. */
void worker_lane_over(struct cluster *c, struct worker *w, const struct event *e);
/* Sends a message, as an agent does: arg is the worker. */
void worker_send(void *arg, const struct fal_buf *msg, bool bulk);
/* Does it hang by now? */
bool worker_hangs(const struct worker *w);

#endif
