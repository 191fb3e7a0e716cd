/* The scheduler: one state machine, (state, time, event) → actions.
 *
 * No I/O and no clock of its own: time is an argument (seconds, any origin, never going
 * back), actions are queued and fetched by the caller.  So the same code runs live in
 * falcon-ps, in virtual time in falcon-proj and in the cluster simulator.
 *
 * Work is done in rounds.  A round is a run of tasks of one clock that is computed on one
 * version and becomes a part of an update as a whole.  A team has rounds of its own: all
 * workers are one team (bsp, epsp), or each worker is one (asp, ssp, …), or each group.
 * What happens to a round that is complete, and when a team may begin its next one, is
 * what differs between the schemes; each stands in its own file.
 *
 * Cost per event: O(log W) amortised, plus O(W + lanes + K log W) once per clock; for
 * groups O(W log W) once per round of a group; O(W) when a worker leaves.  Memory: O(W +
 * tasks of the open rounds).
 *
 * The schemes and where they come from: schemes.md, frame; the names follow falcon(7).
 */
#ifndef FAL_SCHED_SCHED_H
#define FAL_SCHED_SCHED_H

#include "base/buf.h"
#include "base/err.h"
#include "sched/grid.h"
#include "sched/ledger.h"
#include "sched/policy.h"

#include <stdbool.h>
#include <stdint.h>

enum {
	FAL_LANES_MAX = 1024, /* of one worker */
	FAL_WORKER_NAME = 64  /* bytes, with the NUL */
};

struct fal_sched; /* opaque */

struct fal_sched_conf {
	const struct fal_policy *policy; /* copied */
	struct fal_grid grid;
	uint64_t entropy; /* for what workers must not foresee */
	/* Steps may be ordered before their rounds are complete: see END's `ahead` */
	bool ahead;
	uint32_t lanes_start; /* lanes of a new worker; 0: its maximum */
	/* Samples of an eval task cost this fraction of a training task's. */
	double eval_cost;
	/* What nobody else can get is granted as claimed (design.md, D25). */
	bool preclaims;
	/* A task without a finite result is skipped, instead of ending the job; not for
	 * rules of fal_rule_local. */
	bool skips;
	bool brought; /* no round begins but by fal_sched_bring; for shared ones */
	/* Where a scheduler of before stood, whose rounds were shared: so many clocks are
	 * over with `version`; its policy holds since `first`; the next round.  All 0: at
	 * the beginning. */
	struct fal_sched_from {
		uint64_t clock, version, first, round;
	} from;
};

/* What becomes of a round. */
enum fal_fate {
	FAL_FATE_MERGE,   /* its gradients are collected for the next step */
	FAL_FATE_ADD,     /* weight · its change of weights is collected */
	FAL_FATE_LINE,    /* its gradients step its group's line, to version `version` */
	FAL_FATE_REVISE,  /* its change of weights, as one of the slot `slot` (DynSGD) */
	FAL_FATE_DROP,    /* its tasks are done with, and of no effect */
	FAL_FATE_ABANDON, /* its tasks are anybody's again */
	FAL_FATE_GIVE     /* its sum goes to whoever has brought its tasks */
};

enum fal_act_kind {
	FAL_ACT_LINE, /* the line of `version` takes over the newest version as it */
	FAL_ACT_OPEN, /* round `round` begins: fal_sched_round */
	/* worker: run tasks first … first+count-1, marked `fills`; with a `cid` they are
	 * claimed for it, and, `more`, so are those of the grant behind this one */
	FAL_ACT_GRANT,
	FAL_ACT_REVOKE, /* worker: forget these tasks, running or not */
	/* round `round` is over; `fate`, `weight`, `slot`, `below`, `why`; or, `ahead`,
	 * is at each shard as soon as it has all of it, and goes into the STEP that
	 * follows, of which nobody is told before a MODEL for all: fal_sched_made */
	FAL_ACT_END,
	/* weight · what the line `line` has changed since it took over a version is
	 * collected for the STEP that follows */
	FAL_ACT_PUSH,
	/* apply what was collected, which makes `version`: fal_sched_published.
	 * Gradients are a part of a step of `divisor` samples, and the part `in` of the
	 * clock is in; divisor 0: all samples were skipped, and nothing is applied.
	 * Changes are applied as they are or, with a weight, by an outer step at that
	 * rate, with `momentum` */
	FAL_ACT_STEP,
	/* worker (0: all): send it the newest version, or, not 0, `version` of a line */
	FAL_ACT_MODEL,
	FAL_ACT_ACCOUNT, /* worker: ask where its time went; `round`, `work` */
	FAL_ACT_LANES,   /* worker: use `count` lanes */
	/* fence contribution `cid` at the shards and tell its worker: fal_sched_fenced */
	FAL_ACT_FENCE,
	FAL_ACT_EVAL,    /* worker: evaluate test tasks first … first+count-1 */
	FAL_ACT_PING,    /* worker: ask for how far it is */
	FAL_ACT_CHARGE,  /* worker, or who was it: did what counts against it; `why` */
	FAL_ACT_EVICT,   /* worker: close its session; `why` says it */
	FAL_ACT_CHECK,   /* worker: run these tasks and say only what they give; */
	FAL_ACT_UNCHECK, /* that is not wanted any more, whatever else it is to run */
	/* worker: it has not kept its deadline, others do its tasks: it owes `owes` for
	 * `seconds`, and `why`; is a full member again after `seconds`; `why` */
	FAL_ACT_SUSPECT,
	FAL_ACT_BACK,
	/* its key has cost others too much: its workers get no work for `seconds` */
	FAL_ACT_BARRED,
	FAL_ACT_NONFINITE, /* worker: task `first` of `clock` made no finite result */
	/* task `first` is non-finite twice, and is skipped: it counts as nothing where
	 * contribution `fills` has not brought it */
	FAL_ACT_SKIP,
	FAL_ACT_STOP /* the same, and so the job cannot go on */
};

enum { FAL_WORK_PACES = 4 };

/* Tasks, claimed one after the other, that took about as long. */
struct fal_work_pace {
	uint32_t tasks;
	uint64_t samples; /* theirs */
	double seconds;   /* summed */
	double size;      /* in full tasks, as it was thought */
};

/* What a worker did since the last ACCOUNT, for the trace. */
struct fal_work {
	uint32_t share, done, in, out, cloned, lost;
	uint64_t samples; /* of the tasks done */
	uint32_t paces;
	struct fal_work_pace pace[FAL_WORK_PACES]; /* of its claimed tasks, in order */
	struct fal_work_pace cut; /* tasks that were taken from it while they ran */
	uint64_t stale_updates, stale_clocks; /* of its last round */
};

struct fal_act {
	enum fal_act_kind kind;
	uint32_t worker; /* id */
	uint64_t round;  /* OPEN, GRANT, REVOKE, END, FENCE, NONFINITE, SKIP, ACCOUNT */
	uint32_t first, count;
	struct fal_cid fills; /* GRANT, FENCE, SKIP: the contribution that is filled, or
				 {0, 0} */
	struct fal_cid cid;   /* FENCE; GRANT, or {0, 0} */
	bool late;            /* GRANT: the tasks are late ones of their round; */
	bool more;            /* … and the next GRANT is of the same cid, */
	uint32_t run;         /* … as so many before it */
	enum fal_fate fate;   /* END */
	bool ahead;           /* END, STEP */
	double weight;        /* END, PUSH, STEP */
	double momentum;      /* STEP */
	uint32_t among;       /* with a weight that is a share: of so many workers; STEP
				 of a quorum: groups that there are */
	uint32_t line;        /* PUSH */
	uint64_t version;     /* END, STEP, LINE, MODEL, CHECK */
	uint64_t slot;        /* END */
	uint64_t below;       /* END: nothing more comes to the slots below */
	uint64_t clock; /* STEP: the newest of what was collected; else: of the round */
	bool own;       /* ACCOUNT, STEP: rounds are of one worker, or group */
	/* STEP: clocks that are over with it, but for those that another policy has left
	 * behind one that is ordered ahead */
	uint64_t over;
	struct fal_work work; /* ACCOUNT */
	double divisor;       /* STEP, END by a line: samples */
	double in;            /* STEP: the part of the clock that is in */
	const char *why;      /* END, CHARGE, EVICT, SUSPECT, BACK: static text */
	const char *owes;     /* SUSPECT: "task", "push" or "eval" */
	double seconds;       /* SUSPECT, BACK */
};

/* What the local steps of a delta round begin from; wire/msg.h says it in a message. */
enum fal_start {
	FAL_START_VERSION, /* the version */
	FAL_START_LOCAL,   /* the worker's own weights, as its last round left them */
	FAL_START_REBASE   /* the version, and what it lacks of the worker's own steps */
};

/* A round, open, or ended and not yet forgotten. */
struct fal_round_info {
	uint64_t round, clock, version;
	/* Tasks from `late` on, if there are such, are computed on the version `after`,
	 * with the exponents of `version`, as the others are. */
	uint32_t late;
	uint64_t after;
	uint32_t first, tasks;
	uint32_t samples;  /* of all but those that were skipped */
	bool delta, mixed; /* its contributions; mixed: on several versions */
	bool armed;        /* END was ordered ahead, and it is not over; … */
	bool passed;       /* … and all of it is reported */
	uint32_t owner;    /* the worker's id; 0: a team of several */
	uint32_t group;    /* from 1; 0: none */
	/* of a round on a line: the model's version that the line took over, rounds of
	 * the line since then, this one included; else version, 0 */
	uint64_t taken;
	uint32_t local;
	/* of a delta round; since: the worker's last round in the version */
	enum fal_start base;
	uint64_t since;
	uint32_t steps;
	/* Known at its end: clocks that its team was ahead of the slowest, updates
	 * between its version and the one that it goes into. */
	uint64_t stale_clocks, stale_updates;
	const struct fal_ledger *ledger; /* borrowed */
};
/* False: unknown. */
bool fal_sched_round(const struct fal_sched *s, uint64_t round,
		     struct fal_round_info *out);

struct fal_worker_info {
	uint32_t id;
	uint32_t lanes, lanes_min, lanes_max;
	/* Seconds a full task takes at these lanes, projected; 0: unknown. */
	double task_s;
	double finish; /* projected finish of what it holds */
	double rtt;    /* seconds of a round trip to it; 0: unknown */
	bool suspected;
	bool able; /* to work: no suspect, and not kept from it */
};

/* A scheduler that holds: fal_sched_allow lets it begin. */
struct fal_sched *fal_sched_new(const struct fal_sched_conf *conf);
void fal_sched_free(struct fal_sched *s);

/* Rounds of clocks before `clock` may begin. */
void fal_sched_allow(struct fal_sched *s, double now, uint64_t clock);
/* No new round begins while `hold` is true. */
void fal_sched_hold(struct fal_sched *s, double now, bool hold);
/* No round is open, nothing waits for a step, all versions are published. */
bool fal_sched_quiet(const struct fal_sched *s);
/* Somebody is there who may be given work. */
bool fal_sched_staffed(const struct fal_sched *s);
/* The policy changes, from the next round on (copied).  FAL_ESTATE: the rule is another
 * one and the scheduler is not quiet. */
int fal_sched_set_policy(struct fal_sched *s, double now, const struct fal_policy *p);
const struct fal_policy *fal_sched_policy(const struct fal_sched *s);
/* Versions back from the newest that tasks are computed on: 1 is the newest only. */
uint32_t fal_sched_versions(const struct fal_sched *s);
/* The oldest version that the worker may still be told to compute on. */
uint64_t fal_sched_oldest(const struct fal_sched *s, uint32_t id);
/* On which versions, of these and newer ones, the open rounds of the worker, or of all,
 * are computed, the oldest round's first: the first `cap` of them in `out`.  Returns how
 * many there are.  Of rounds that were ordered to end those that somebody fills; of
 * lines all. */
uint32_t fal_sched_named(const struct fal_sched *s, uint32_t id, uint64_t *out,
			 uint32_t cap);
/* All clocks before this one are over: every task of theirs has ended. */
uint64_t fal_sched_over(const struct fal_sched *s);
/* The clock whose tasks are handed out next; never before fal_sched_over. */
uint64_t fal_sched_front(const struct fal_sched *s);
/* Where another one would stand that goes on from `version`, with which `clock` clocks
 * are over.  False: rounds are not shared, or none of them goes on from there. */
bool fal_sched_at(const struct fal_sched *s, uint64_t version, uint64_t clock,
		  struct fal_sched_from *out);
/* Everything is over, and applied. */
bool fal_sched_done(const struct fal_sched *s);

/* Measurements of a worker, for a scheduler that comes later.  Seconds; 0 for what was
 * not measured, -1 for `fixed`. */
struct fal_history {
	uint32_t lanes;                       /* at which */
	double task_s, fixed, eval_s, push_s; /* a full task takes so long, … */
};
/* False: nothing yet. */
bool fal_sched_history(const struct fal_sched *s, uint32_t id, struct fal_history *out);

struct fal_join {
	uint32_t id;
	const char *name;  /* NULL: none */
	uint32_t key;      /* workers of one key are one witness; 0: it has its own */
	uint32_t numerics; /* those of equal ones compute the same bits; 0: its own */
	bool stands_by;    /* fal_sched_stand_by */
	bool group;        /* a group server: it claims what its members have made */
	uint32_t lanes_min, lanes_max, cores;
	double task_s, fixed, rtt;
	struct fal_history was; /* known of it; lanes 0: nothing */
};
/* A worker is ready.  `id`, from 1 to UINT32_MAX - 1, is new and larger than every id
 * before.  task_s: its own probe of a full task at one lane, 0 if unknown; fixed: the
 * part of it that a task of any size takes, NAN if unknown; rtt: seconds, 0 if unknown.
 * `name` is copied (FAL_WORKER_NAME).  0 or FAL_EINVAL.  The worker is sent a version
 * before its first grant. */
int fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j);

/* It has so many lanes from now on, all of them in use, each with `task_s` for a task as
 * probed; 0: unknown.  Unknown ids are ignored.  FAL_EINVAL: not 1 to FAL_LANES_MAX. */
int fal_sched_capacity(struct fal_sched *s, double now, uint32_t id, uint32_t lanes,
		       double task_s);

/* The worker gets no work, or gets it again; what it had is others'. */
void fal_sched_stand_by(struct fal_sched *s, double now, uint32_t id, bool stands_by);

/* The worker is gone (unknown ids are ignored): its open contributions are fenced, its
 * tasks granted to others, rounds of its own abandoned. */
void fal_sched_leave(struct fal_sched *s, double now, uint32_t id);

/* Any message of the worker arrived.  That makes no member of a suspected one, but it may
 * be tried. */
void fal_sched_heard(struct fal_sched *s, double now, uint32_t id);

/* The worker was given a round of local steps, which is not over. */
bool fal_sched_steps(const struct fal_sched *s, uint32_t id);

/* The store says that the round is complete. */
void fal_sched_complete(struct fal_sched *s, double now, uint64_t round);

/* A finished task is claimed. */
struct fal_claim_in {
	uint32_t worker;
	uint64_t round;
	uint32_t task;
	uint32_t seq;                 /* the worker's contribution */
	struct fal_cid fills;         /* what that contribution fills */
	double task_s;                /* seconds it computed */
	int64_t loss;                 /* fixed point */
	bool nonfinite;               /* no result: its gradient was not finite */
	uint8_t hash[FAL_CLAIM_HASH]; /* of what it gave: the ledger keeps it, */
	uint64_t version;             /* … and on which version it was computed */
	bool verify; /* if it is won, another key is to compute it once more */
};
/* With the `seq` of what was claimed ahead: that it is there.
 * 1 won, 0 lost (also: a round that is over, or what was fenced, or is skipped), or the
 * ledger's error or FAL_ESTATE (a task that it was never granted, or more claims than
 * tasks that it was granted, clones and tasks granted again included): a worker that
 * breaks the protocol, to be evicted by the caller. */
int fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_in *c);

/* No claim goes into contribution `cid` any more.  1: it counts; 0: it does not, being
 * unknown, fenced or over; FAL_ESTATE: it was sealed before. */
int fal_sched_seal(struct fal_sched *s, uint64_t round, struct fal_cid cid);

/* Where contribution `cid` of an open round stands, or NULL: unknown or over.
 * Borrowed until the next call. */
const struct fal_contrib *fal_sched_contrib(const struct fal_sched *s, uint64_t round,
					    struct fal_cid cid);
/* What contribution `c` of that round fills; {0, 0}: nothing. */
struct fal_cid fal_sched_fills(const struct fal_sched *s, uint64_t round,
			       const struct fal_contrib *c);

/* `blocks` blocks of `cid` were added; `complete`: all its blocks are counted. */
void fal_sched_arrived(struct fal_sched *s, double now, uint64_t round,
		       struct fal_cid cid, uint32_t blocks, bool complete);

/* All shards have fenced `cid` (FAL_ACT_FENCE): its tasks may go out again, to fill it.
 */
void fal_sched_fenced(struct fal_sched *s, double now, uint64_t round,
		      struct fal_cid cid);
/* All shards have made the version (FAL_ACT_STEP): before, no task can begin on it. */
void fal_sched_published(struct fal_sched *s, double now, uint64_t version);
/* All shards have made what the round, whose end was ordered ahead, went into: so all of
 * it is there, and reports that will not come are not waited for.  Where it has passed
 * (fal_round_info), it is over.  Unknown ones, and those that are, are ignored. */
void fal_sched_stepped(struct fal_sched *s, double now, uint64_t round);
void fal_sched_made(struct fal_sched *s, double now, uint64_t round);
/* The oldest version, up to this one, that such a round is computed on, which is not
 * over; this one where there is none. */
uint64_t fal_sched_read(const struct fal_sched *s, uint64_t version);

/* The worker answers a PING of `rtt` seconds ago; its lanes are `steps` far, in any unit:
 * that it grows proves that they work. */
void fal_sched_pong(struct fal_sched *s, double now, uint32_t id, double rtt,
		    uint64_t steps);

/* The worker, which may be gone, did something that charges it; at the second charge it
 * is evicted. */
void fal_sched_charge(struct fal_sched *s, uint32_t id, const char *why);

/* A claim that a worker of another key computes once more (verify.c). */
struct fal_verify {
	uint64_t round;
	uint32_t task, worker; /* who is asked */
	struct fal_cid id;     /* of the claim */
	uint8_t hash[FAL_CLAIM_HASH];
};
/* A worker's answer to a check. */
struct fal_checked_in {
	uint32_t worker, task;
	uint64_t round;
	const uint8_t *hash; /* FAL_CLAIM_HASH bytes */
};
/* True: the claim is `*unlike`, and has another hash.  False: the same, or the worker was
 * not asked, or the round is over. */
bool fal_sched_verified(struct fal_sched *s, double now, const struct fal_checked_in *c,
			struct fal_verify *unlike);

/* Test tasks 0 … tasks-1 are to be evaluated: by workers that would wait, or, while no
 * round is open, by everyone.  0 or FAL_ESTATE (one is under way). */
int fal_sched_eval(struct fal_sched *s, double now, uint32_t tasks);
/* The worker has evaluated `task`, of so many samples, in task_s seconds: 1 it counts, 0
 * it was done before, or another one is to say more of it, FAL_EINVAL; FAL_ESTATE: it was
 * never given it. */
int fal_sched_evaluated(struct fal_sched *s, double now, uint32_t id, uint32_t task,
			uint32_t samples, double task_s);
bool fal_sched_eval_done(const struct fal_sched *s);
/* Is somebody here who could say something new of a task that was evaluated: under a key
 * that did not, or, where all have the same one, in another session? */
bool fal_sched_eval_can_repeat(const struct fal_sched *s, uint32_t task);
/* The task is evaluated once more, by such a one if there is one still. */
void fal_sched_eval_again(struct fal_sched *s, double now, uint32_t task);

/* Time passes: call at or after fal_sched_wake. */
void fal_sched_tick(struct fal_sched *s, double now);
/* When the next tick is due; infinity: not before another event. */
double fal_sched_wake(const struct fal_sched *s);

/* Fetches the next action; false when there is none. */
bool fal_sched_next(struct fal_sched *s, struct fal_act *out);
/* The rounds whose END was fetched may be forgotten; this one may. */
void fal_sched_forget(struct fal_sched *s);
void fal_sched_forget_round(struct fal_sched *s, uint64_t round);

/* ---- work of another scheduler's, with conf.brought ---- */

/* A round of this task begins, which is over when its sum is given (FAL_FATE_GIVE);
 * returns its number.  The version is one that fal_sched_newer has told. */
struct fal_bring {
	uint64_t clock, version, exponents; /* exponents: the version that has them */
	uint32_t task;
};
uint64_t fal_sched_bring(struct fal_sched *s, double now, const struct fal_bring *b);
/* Nobody wants the round any more; unknown ones are ignored. */
void fal_sched_unwanted(struct fal_sched *s, double now, uint64_t round);
/* The oldest round that is not over; false: there is none. */
bool fal_sched_brought(const struct fal_sched *s, uint64_t *round);
/* The newest version is this one. */
void fal_sched_newer(struct fal_sched *s, double now, uint64_t version);
/* Of so many test tasks none is to be evaluated; this one is.  FAL_EINVAL: there is no
 * such task. */
void fal_sched_evals(struct fal_sched *s, double now, uint32_t tasks);
int fal_sched_eval_one(struct fal_sched *s, double now, uint32_t task);

/* What is known of a worker; false if it is not here. */
bool fal_sched_info(const struct fal_sched *s, uint32_t id, struct fal_worker_info *out);

#endif
