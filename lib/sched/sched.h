/* The scheduler: one state machine, (state, time, event) → actions.
 *
 * No I/O and no clock of its own: time is an argument (seconds, any origin, never going
 * back), actions are queued and fetched by the caller.  So the same code runs live in
 * falcon-ps, in virtual time in falcon-proj and in the cluster simulator.
 *
 * Work is done in rounds.  A round is a run of tasks of one clock that is computed on one
 * version and becomes a part of an update as a whole.  A team has rounds of its own: all
 * workers are one team (bsp, epsp), or each worker is one (asp, ssp, …), or each group.
 * Schemes differ in what follows a complete round, and in when a team may begin its next
 * one; each stands in its own file.
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
	uint64_t entropy; /* of draws that workers must not foresee */
	/* Steps may be ordered before their rounds are complete: see END's `ahead`. */
	bool ahead;
	uint32_t lanes_start; /* lanes of a new worker; 0: its maximum */
	/* Samples of an eval task cost this fraction of a training task's. */
	double eval_cost;
	/* A task that no other worker can get is granted as claimed (design.md, D25). */
	bool preclaims;
	/* A task without a finite result is skipped, instead of ending the job; not for
	 * rules of fal_rule_has_local_steps. */
	bool skips;
	bool brought; /* rounds begin by fal_sched_open_external alone; for shared rounds
		       */
	/* The state of an earlier scheduler with shared rounds, which this one continues:
	 * so many clocks are over with `version`; its policy holds since `first`; the
	 * next round.  All 0: from the beginning. */
	struct fal_sched_from {
		uint64_t clock, version, first, round;
	} from;
};

/* The fate of a round. */
enum fal_fate {
	FAL_FATE_MERGE,    /* its gradients are collected for the next step */
	FAL_FATE_ADD,      /* weight · its change of weights is collected */
	FAL_FATE_BRANCH,   /* its gradients step its group's line, to version `version` */
	FAL_FATE_REWEIGHT, /* its change of weights joins the slot `slot` (DynSGD) */
	FAL_FATE_DROP,     /* its tasks are over, without effect */
	FAL_FATE_RETRY,    /* its tasks are free for all again */
	FAL_FATE_FORWARD   /* its sum goes to the scheduler that brought its tasks */
};

enum fal_act_kind {
	FAL_ACT_BRANCH, /* the line of `version` takes over the newest version under it */
	FAL_ACT_OPEN,   /* round `round` begins: fal_sched_round */
	/* worker: run tasks first … first+count-1, marked `fills`; with a `cid` they are
	 * claimed for it, and, `more`, so are the tasks of the next grant */
	FAL_ACT_GRANT,
	FAL_ACT_REVOKE, /* worker: forget these tasks, running or not */
	/* round `round` is over; `fate`, `weight`, `slot`, `below`, `why`.  `ahead`: each
	 * shard ends the round as soon as it has all of its blocks, for the STEP that
	 * follows; no worker hears of that STEP before a MODEL for all:
	 * fal_sched_note_applied */
	FAL_ACT_END,
	/* weight · the change of the line `line` since it took over a version is
	 * collected for the STEP that follows */
	FAL_ACT_PUSH,
	/* apply the collected rounds, which makes `version`: fal_sched_note_published.
	 * Gradients are a part of a step of `divisor` samples, and the part `in` of the
	 * clock is in; divisor 0: all samples were skipped, and nothing is applied.
	 * Changes are applied as they are or, with a weight, by an outer step at that
	 * rate, with `momentum` */
	FAL_ACT_STEP,
	/* worker (0: all): send it the newest version, or, not 0, `version` of a line */
	FAL_ACT_MODEL,
	FAL_ACT_ACCOUNT, /* worker: ask where its time went; `round`, `work` */
	FAL_ACT_LANES,   /* worker: use `count` lanes */
	/* fence contribution `cid` at the shards and tell its worker:
	   fal_sched_note_fenced */
	FAL_ACT_FENCE,
	FAL_ACT_EVAL,   /* worker: evaluate test tasks first … first+count-1 */
	FAL_ACT_PING,   /* worker: ask how far its lanes are */
	FAL_ACT_CHARGE, /* worker, which may have left: note a charge against it; `why` */
	FAL_ACT_EVICT,  /* worker: close its session; `why` */
	FAL_ACT_CHECK,  /* worker: run these tasks for their hashes alone, … */
	FAL_ACT_UNCHECK, /* … or do not, but keep its other tasks */
	/* worker: has missed its deadline, others do its tasks: it owes `owes` for
	 * `seconds`; `why` */
	FAL_ACT_SUSPECT,
	FAL_ACT_CLEARED, /* worker: is a full member again, after `seconds`; `why` */
	/* the worker's key has cost others too much: its workers get no work for
	 * `seconds` */
	FAL_ACT_BARRED,
	FAL_ACT_NONFINITE, /* worker: task `first` of `clock` made no finite result */
	/* task `first` is non-finite twice, and is skipped: it counts as nothing where
	 * contribution `fills` has not brought it */
	FAL_ACT_SKIP,
	FAL_ACT_STOP /* task `first` is non-finite twice, and ends the job */
};

enum { FAL_WORK_PACES = 4 };

/* Tasks of about the same speed, claimed one after the other. */
struct fal_work_pace {
	uint32_t tasks;
	uint64_t samples;
	double seconds; /* summed */
	double size;    /* in full tasks, as projected */
};

/* The work of a worker since the last ACCOUNT, for the trace. */
struct fal_work {
	uint32_t share, done, in, out, cloned, lost;
	uint64_t samples; /* of the tasks done */
	uint32_t paces;
	struct fal_work_pace pace[FAL_WORK_PACES]; /* of its claimed tasks, in order */
	struct fal_work_pace cut;             /* running tasks that were taken away */
	uint64_t stale_updates, stale_clocks; /* of its last round */
};

struct fal_act {
	enum fal_act_kind kind;
	uint32_t worker; /* id */
	uint64_t round;  /* OPEN, GRANT, REVOKE, END, FENCE, NONFINITE, SKIP, ACCOUNT */
	uint32_t first, count;
	struct fal_cid
		fills;      /* GRANT, FENCE, SKIP: the contribution to fill, or {0, 0} */
	struct fal_cid cid; /* FENCE; GRANT, or {0, 0} */
	bool late;          /* GRANT: the tasks are late ones of their round; */
	bool more;          /* … the next GRANT is of the same cid, */
	uint32_t run;       /* … so many GRANTs of the cid came before */
	enum fal_fate fate; /* END */
	bool ahead;         /* END, STEP */
	double weight;      /* END, PUSH, STEP */
	double momentum;    /* STEP */
	/* With a weight that is a share: the number of workers it is a share of.  STEP of
	 * a quorum: the number of groups. */
	uint32_t among;
	uint32_t line;    /* PUSH */
	uint64_t version; /* END, STEP, LINE, MODEL, CHECK */
	uint64_t slot;    /* END */
	uint64_t below;   /* END: nothing more comes to the slots below */
	uint64_t clock; /* STEP: the newest of the collected rounds; else: of the round */
	bool own;       /* ACCOUNT, STEP: rounds are of one worker, or group */
	/* STEP: clocks that are over with this step, but for clocks of an older policy
	 * behind one that is ordered ahead */
	uint64_t over;
	struct fal_work work; /* ACCOUNT */
	double divisor;       /* STEP, END by a line: samples */
	double in;            /* STEP: the part of the clock that is in */
	const char *why;      /* END, CHARGE, EVICT, SUSPECT, BACK: static text */
	const char *owes;     /* SUSPECT: "task", "push" or "eval" */
	double seconds;       /* SUSPECT, BACK, BARRED */
};

/* The start of the local steps of a delta round (wire/msg.h has its message). */
enum fal_start {
	FAL_START_VERSION, /* the version */
	FAL_START_LOCAL,   /* the worker's own weights, as its last round left them */
	FAL_START_REBASE   /* the version, and what it lacks of the worker's own steps */
};

/* A round, open, or ended and not yet forgotten. */
struct fal_round_info {
	uint64_t round, clock, version;
	/* Tasks from `late` on, if any, are computed on the version `after`; all tasks
	 * have the exponents of `version`. */
	uint32_t late;
	uint64_t after;
	uint32_t first, tasks;
	uint32_t samples;  /* without those of skipped tasks */
	bool delta, mixed; /* its contributions; mixed: on several versions */
	bool armed;        /* its END was ordered ahead, and it is not over; … */
	bool passed;       /* … and all its results are reported */
	uint32_t owner;    /* the worker's id; 0: a team of several */
	uint32_t group;    /* from 1; 0: none */
	/* A round on a line: the model's version that the line took over, and the line's
	 * rounds since then, this one included; else version, 0. */
	uint64_t taken;
	uint32_t local;
	/* A delta round; since: the worker's last round in the version. */
	enum fal_start base;
	uint64_t since;
	uint32_t steps;
	/* Known at its end: clocks between its team and the slowest, updates between its
	 * version and the one that it goes into. */
	uint64_t stale_clocks, stale_updates;
	const struct fal_ledger *ledger; /* borrowed */
};
/* Sets the facts of the round.  False: the round is unknown. */
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
	bool able; /* may get work: no suspect, not excluded, not on standby */
};

/* Makes a scheduler; no round begins before fal_sched_set_clock_limit. */
struct fal_sched *fal_sched_new(const struct fal_sched_conf *conf);
void fal_sched_free(struct fal_sched *s);

/* Lets rounds of clocks before `clock` begin. */
void fal_sched_set_clock_limit(struct fal_sched *s, double now, uint64_t clock);
/* While `hold` is true no new round begins. */
void fal_sched_hold(struct fal_sched *s, double now, bool hold);
/* Is no round open, no step pending, every version published? */
bool fal_sched_is_quiet(const struct fal_sched *s);
/* May any worker be given work? */
bool fal_sched_has_workers(const struct fal_sched *s);
/* Changes the policy from the next round on (copied).  FAL_ESTATE: the rule is another
 * one and the scheduler is not quiet. */
int fal_sched_set_policy(struct fal_sched *s, double now, const struct fal_policy *p);
const struct fal_policy *fal_sched_policy(const struct fal_sched *s);
/* The number of newest versions on which tasks are computed; 1: on the newest only. */
uint32_t fal_sched_count_versions(const struct fal_sched *s);
/* The oldest version on which the worker may still be told to compute. */
uint64_t fal_sched_oldest_version(const struct fal_sched *s, uint32_t id);
/* Sets `out` to the versions of the worker's open rounds, oldest round first, `cap` of
 * them at most; returns their number.  Of rounds that were ordered to end only those
 * count that need to be filled; of lines all. */
uint32_t fal_sched_list_versions(const struct fal_sched *s, uint32_t id, uint64_t *out,
				 uint32_t cap);
/* The first clock that is not over: every task of the clocks before has ended. */
uint64_t fal_sched_first_open_clock(const struct fal_sched *s);
/* The clock whose tasks are handed out next; never before fal_sched_first_open_clock. */
uint64_t fal_sched_next_clock(const struct fal_sched *s);
/* Sets the start of a scheduler that goes on from `version`, with which `clock` clocks
 * are over.  False: rounds are not shared, or none of them goes on from there. */
bool fal_sched_resume_point(const struct fal_sched *s, uint64_t version, uint64_t clock,
			    struct fal_sched_from *out);
/* Is all work over, and applied? */
bool fal_sched_is_done(const struct fal_sched *s);

/* Measurements of a worker, for a later scheduler.  Seconds; 0: not measured, of `fixed`
 * -1. */
struct fal_history {
	uint32_t lanes;                       /* of these measurements */
	double task_s, fixed, eval_s, push_s; /* task_s: a full task; fixed: its part */
};
/* Sets the measurements of the worker.  False: there are none. */
bool fal_sched_history(const struct fal_sched *s, uint32_t id, struct fal_history *out);

struct fal_join {
	uint32_t id;
	const char *name;  /* NULL: none */
	uint32_t key;      /* workers of one key are one witness; 0: a key of its own */
	uint32_t numerics; /* workers with equal ones compute equal bits; 0: its own */
	bool stands_by;    /* fal_sched_set_standby */
	bool group;        /* a group server: it claims the results of its members */
	uint32_t lanes_min, lanes_max, cores;
	double task_s, fixed, rtt;
	struct fal_history was; /* of an earlier session; lanes 0: none */
};
/* Adds a worker, which is ready.  `id`, from 1 to UINT32_MAX - 1, is larger than every id
 * before.  task_s: its own probe of a full task at one lane, 0 if unknown; fixed: the
 * part of task_s that a task of any size takes, NAN if unknown; rtt: seconds, 0 if
 * unknown. `name` is copied (FAL_WORKER_NAME).  0 or FAL_EINVAL.  The worker is sent a
 * version before its first grant. */
int fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j);

/* Sets the number of the worker's lanes, all in use, each with `task_s` for a task as
 * probed; 0: unknown.  Unknown ids are ignored.  FAL_EINVAL: not 1 to FAL_LANES_MAX. */
int fal_sched_set_lanes(struct fal_sched *s, double now, uint32_t id, uint32_t lanes,
			double task_s);

/* stands_by: the worker gets no work, and its tasks go to others; else it gets work
 * again.
 */
void fal_sched_set_standby(struct fal_sched *s, double now, uint32_t id, bool stands_by);

/* Removes a worker (unknown ids are ignored): its open contributions are fenced, its
 * tasks granted to others, rounds of its own abandoned. */
void fal_sched_leave(struct fal_sched *s, double now, uint32_t id);

/* Notes a message of the worker.  A suspect that speaks may be tried. */
void fal_sched_note_message(struct fal_sched *s, double now, uint32_t id);

/* Has the worker a round of local steps that is not over? */
bool fal_sched_has_local_round(const struct fal_sched *s, uint32_t id);

/* Notes that the store has the complete round. */
void fal_sched_note_complete(struct fal_sched *s, double now, uint64_t round);

/* The claim of a finished task. */
struct fal_claim_report {
	uint32_t worker;
	uint64_t round;
	uint32_t task;
	uint32_t seq;                 /* the worker's contribution */
	struct fal_cid fills;         /* the contribution that it fills */
	double task_s;                /* seconds of computation */
	int64_t loss;                 /* fixed point */
	bool nonfinite;               /* the gradient was not finite: no result */
	uint8_t hash[FAL_CLAIM_HASH]; /* of the result: the ledger keeps it, */
	uint64_t version;             /* … and the version it was computed on */
	bool verify; /* if the claim is won, another key is to compute it once more */
};
/* Claims a task, or, with the `seq` of a grant that was claimed ahead, reports its
 * result. 1 won; 0 lost, also if the round is over, or the contribution fenced, or the
 * task skipped; or the ledger's error, or FAL_ESTATE: the worker was never granted the
 * task, or has made more claims than it was granted tasks, clones and tasks granted again
 * included. After an error the caller evicts the worker. */
int fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_report *c);

/* Seals contribution `cid`: no more claims go into it.  1: it counts; 0: it does not,
 * being unknown, fenced or over; FAL_ESTATE: it was sealed before. */
int fal_sched_seal(struct fal_sched *s, uint64_t round, struct fal_cid cid);

/* Contribution `cid` of an open round, or NULL: unknown or over.  Borrowed until the next
 * call. */
const struct fal_contrib *fal_sched_find_contrib(const struct fal_sched *s,
						 uint64_t round, struct fal_cid cid);
/* The contribution that `c` of that round fills; {0, 0}: none. */
struct fal_cid fal_sched_filled_contrib(const struct fal_sched *s, uint64_t round,
					const struct fal_contrib *c);

/* Notes that `blocks` blocks of `cid` were added; `complete`: all its blocks are counted.
 */
void fal_sched_note_blocks(struct fal_sched *s, double now, uint64_t round,
			   struct fal_cid cid, uint32_t blocks, bool complete);

/* Notes that all shards have fenced `cid` (FAL_ACT_FENCE): its tasks may go out again, to
 * fill it. */
void fal_sched_note_fenced(struct fal_sched *s, double now, uint64_t round,
			   struct fal_cid cid);
/* Notes that all shards have made the version (FAL_ACT_STEP): before, no task can begin
 * on it. */
void fal_sched_note_published(struct fal_sched *s, double now, uint64_t version);
/* Notes that all shards have stepped with the round, whose end was ordered ahead: so all
 * its contributions are there, and missing reports are not waited for.  Unknown rounds
 * and rounds that have passed (fal_round_info) are ignored. */
void fal_sched_note_stepped(struct fal_sched *s, double now, uint64_t round);
/* The same, and the round is over if it has passed; else the call is ignored. */
void fal_sched_note_applied(struct fal_sched *s, double now, uint64_t round);
/* The oldest version, up to `version`, of a round that was ordered ahead and is not over;
 * `version` itself if there is none. */
uint64_t fal_sched_oldest_read_version(const struct fal_sched *s, uint64_t version);

/* Notes the answer to a PING of `rtt` seconds ago.  The worker's lanes are `steps` far,
 * in any unit: a growing number proves that they work. */
void fal_sched_note_pong(struct fal_sched *s, double now, uint32_t id, double rtt,
			 uint64_t steps);

/* Charges the worker, which may have left; at the second charge it is evicted. */
void fal_sched_charge(struct fal_sched *s, uint32_t id, const char *why);

/* A claim that a worker of another key computes once more (verify.c). */
struct fal_verify {
	uint64_t round;
	uint32_t task, worker; /* worker: the one that is asked */
	struct fal_cid id;     /* of the claim */
	uint8_t hash[FAL_CLAIM_HASH];
};
/* A worker's answer to a check. */
struct fal_check_answer {
	uint32_t worker, task;
	uint64_t round;
	const uint8_t *hash; /* FAL_CLAIM_HASH bytes */
};
/* Takes the answer to a check.  True: the hash differs from that of the claim, which is
 * set in `*unlike`.  False: it is equal, or the worker was not asked, or the round is
 * over. */
bool fal_sched_answer_check(struct fal_sched *s, double now,
			    const struct fal_check_answer *c, struct fal_verify *unlike);

/* Starts an evaluation of test tasks 0 … tasks-1: by workers that would wait, or, while
 * no round is open, by all.  0 or FAL_ESTATE (one is under way). */
int fal_sched_start_eval(struct fal_sched *s, double now, uint32_t tasks);
/* Takes the worker's evaluation of `task`, of so many samples, in task_s seconds.  1: it
 * counts; 0: the task was evaluated before, or needs another worker's answer; FAL_EINVAL:
 * no such task; FAL_ESTATE: the worker was never granted the task. */
int fal_sched_claim_eval(struct fal_sched *s, double now, uint32_t id, uint32_t task,
			 uint32_t samples, double task_s);
bool fal_sched_is_eval_done(const struct fal_sched *s);
/* Could a worker confirm the evaluated task: one under another key, or, if all have one
 * key, in another session? */
bool fal_sched_eval_can_repeat(const struct fal_sched *s, uint32_t task);
/* Has the task evaluated once more, by such a worker if there still is one. */
void fal_sched_repeat_eval(struct fal_sched *s, double now, uint32_t task);

/* Time passes: call at or after fal_sched_next_tick. */
void fal_sched_tick(struct fal_sched *s, double now);
/* When the next tick is due; infinity: not before another event. */
double fal_sched_next_tick(const struct fal_sched *s);

/* Fetches the next action; false when there is none. */
bool fal_sched_next_action(struct fal_sched *s, struct fal_act *out);
/* Forgets the rounds whose END was fetched; this round. */
void fal_sched_forget(struct fal_sched *s);
void fal_sched_forget_round(struct fal_sched *s, uint64_t round);

/* ---- work of another scheduler, with conf.brought ---- */

struct fal_external_task {
	uint64_t clock, version, exponents; /* exponents: the version that has them */
	uint32_t task;
};
/* Begins a round of this task, which is over when its sum is given (FAL_FATE_FORWARD);
 * returns its number.  fal_sched_set_version has told the version before. */
uint64_t fal_sched_open_external(struct fal_sched *s, double now,
				 const struct fal_external_task *b);
/* Drops the round; an unknown one is ignored. */
void fal_sched_cancel_external(struct fal_sched *s, double now, uint64_t round);
/* Sets the oldest round that is not over; false: there is none. */
bool fal_sched_oldest_external(const struct fal_sched *s, uint64_t *round);
/* Sets the newest version. */
void fal_sched_set_version(struct fal_sched *s, double now, uint64_t version);
/* Prepares so many test tasks, none of which is to be evaluated yet. */
void fal_sched_prepare_evals(struct fal_sched *s, double now, uint32_t tasks);
/* Starts the evaluation of one.  FAL_EINVAL: there is no such task. */
int fal_sched_start_eval_task(struct fal_sched *s, double now, uint32_t task);

/* Sets the facts of a worker; false: the worker is not here. */
bool fal_sched_info(const struct fal_sched *s, uint32_t id, struct fal_worker_info *out);

#endif
