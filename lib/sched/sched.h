/* The scheduler: one state machine, (state, time, event) → actions.
 *
 * No I/O and no clock of its own: time is an argument (seconds, any origin, never going
 * back), actions are queued and fetched by the caller.  So the same code runs live in
 * falcon-ps, in virtual time in falcon-proj and in the cluster simulator.  Cost per
 * event: O(log W) amortised, plus O(W + lanes + K log W) once per clock.
 * Memory: O(W), where a worker that left counts until the next clock opens.
 *
 * Source: DESIGN section 7 (EPSP); the names follow falcon(7).
 */
#ifndef FAL_SCHED_SCHED_H
#define FAL_SCHED_SCHED_H

#include "base/buf.h"
#include "base/err.h"
#include "sched/ledger.h"

#include <stdbool.h>
#include <stdint.h>

enum { FAL_LANES_MAX = 1024 }; /* of one worker */

struct fal_sched; /* opaque */

struct fal_sched_conf {
	const char *scheme;   /* "bsp" or "epsp"; borrowed for the call */
	uint32_t lanes_start; /* lanes of a new worker; 0: its maximum */
	/* Samples of an eval task cost this fraction of a training task's. */
	double eval_cost;
};

enum fal_act_kind {
	FAL_ACT_GRANT,  /* worker: run tasks first … first+count-1, marked `fills` */
	FAL_ACT_REVOKE, /* worker: forget these tasks, running or not */
	FAL_ACT_LANES,  /* worker: use `count` lanes */
	FAL_ACT_FENCE,  /* fence contribution `cid` at the shards and tell its worker */
	FAL_ACT_EVAL,   /* worker: evaluate test tasks first … first+count-1 */
	FAL_ACT_PING,   /* worker: ask for a sign of life */
	FAL_ACT_EVICT,  /* worker: close its session; `why` says it */
	FAL_ACT_STOP    /* the job cannot go on: task `first` is non-finite twice */
};

struct fal_act {
	enum fal_act_kind kind;
	uint32_t worker; /* id */
	uint32_t first, count;
	struct fal_cid
		fills;      /* GRANT, FENCE: the contribution that is filled, or {0, 0} */
	struct fal_cid cid; /* FENCE */
	const char *why;    /* EVICT: static text */
};

/* What a worker did in one clock, for the trace. */
struct fal_work {
	uint32_t share, done, in, out, cloned, lost;
};

struct fal_worker_info {
	uint32_t id;
	uint32_t lanes, lanes_min, lanes_max;
	double task_s; /* seconds a task takes at these lanes, projected; 0: unknown */
	double finish; /* projected finish of the open clock */
	bool suspected;
	struct fal_work work; /* of the open or last clock */
};

/* A scheduler, or an error: FAL_EINVAL (unknown scheme), FAL_ENOMEM. */
int fal_sched_new(const struct fal_sched_conf *conf, struct fal_sched **out);
void fal_sched_free(struct fal_sched *s);

/* True when `name` is a scheme that fal_sched_new knows. */
bool fal_scheme_known(const char *name);

/* A worker is ready.  `id`, from 1 to UINT32_MAX - 1, is new and larger than every id
 * before.  task_s: its own probe of a task at one lane, 0 if unknown; rtt: seconds, 0 if
 * unknown.  0 or FAL_ENOMEM, FAL_EINVAL. */
struct fal_join {
	uint32_t id;
	uint32_t lanes_min, lanes_max, cores;
	double task_s, rtt;
};
int fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j);

/* The worker is gone (unknown ids are ignored): its open contributions are fenced, its
 * tasks granted to others. */
int fal_sched_leave(struct fal_sched *s, double now, uint32_t id);

/* Any message of the worker arrived: it is alive; a suspected worker is in again. */
int fal_sched_heard(struct fal_sched *s, double now, uint32_t id);

/* The clock `clock` of `tasks` tasks begins; its version has just been published. */
int fal_sched_open(struct fal_sched *s, double now, uint64_t clock, uint32_t tasks);

/* True while a clock is open. */
bool fal_sched_is_open(const struct fal_sched *s);

/* The store says that the open clock is complete: it is closed.  0 or FAL_ENOMEM. */
int fal_sched_close(struct fal_sched *s, double now);

/* A finished task is claimed. */
struct fal_claim_in {
	uint32_t worker;
	uint64_t clock;
	uint32_t task;
	uint32_t seq;         /* the worker's contribution */
	struct fal_cid fills; /* what that contribution fills */
	double task_s;        /* seconds it computed */
	int64_t loss;         /* fixed point */
	bool nonfinite;       /* no result: its gradient was not finite */
};
/* 1 won, 0 lost (also: a clock that is over), or the ledger's error or FAL_ESTATE (more
 * claims in this clock than tasks that it was granted, clones and tasks granted again
 * included): a worker that breaks the protocol, to be evicted by the caller. */
int fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_in *c);

/* Where contribution `cid` of the open clock stands, or NULL: unknown or over.
 * Borrowed until the next call. */
const struct fal_contrib *fal_sched_contrib(const struct fal_sched *s,
					    struct fal_cid cid);
/* What contribution `c` fills; {0, 0}: nothing. */
struct fal_cid fal_sched_fills(const struct fal_sched *s, const struct fal_contrib *c);

/* `blocks` blocks of `cid` were added; `complete`: all its blocks are counted. */
void fal_sched_arrived(struct fal_sched *s, double now, struct fal_cid cid,
		       uint32_t blocks, bool complete);

/* A round trip to the worker took `rtt` seconds. */
void fal_sched_rtt(struct fal_sched *s, uint32_t id, double rtt);

/* The worker did something that charges it; at the second charge it is evicted. */
int fal_sched_charge(struct fal_sched *s, double now, uint32_t id, const char *why);

/* Test tasks 0 … tasks-1 are to be evaluated: by workers that would wait, or, while no
 * clock is open, by everyone.  Then they are taken from a worker that speaks but
 * evaluates nothing for its deadline while another one is idle; it gets no more until it
 * evaluates one or a clock opens.  0 or FAL_ENOMEM, FAL_ESTATE (one is under way). */
int fal_sched_eval(struct fal_sched *s, double now, uint32_t tasks);
/* The worker has evaluated `task`: 1 it counts, 0 it was done before, FAL_EINVAL. */
int fal_sched_evaluated(struct fal_sched *s, double now, uint32_t id, uint32_t task,
			double task_s);
bool fal_sched_eval_done(const struct fal_sched *s);

/* Time passes: call at or after fal_sched_wake.  0 or FAL_ENOMEM. */
int fal_sched_tick(struct fal_sched *s, double now);
/* When the next tick is due; infinity: not before another event. */
double fal_sched_wake(const struct fal_sched *s);

/* Fetches the next action; false when there is none. */
bool fal_sched_next(struct fal_sched *s, struct fal_act *out);

/* The ledger of the open or last clock; borrowed. */
const struct fal_ledger *fal_sched_ledger(const struct fal_sched *s);

/* What is known of a worker; false if it is not here. */
bool fal_sched_info(const struct fal_sched *s, uint32_t id, struct fal_worker_info *out);

#endif
