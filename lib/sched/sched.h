/* The scheduler decides which worker computes which task, and when an update is made.
 * The scheduler is one state machine: (state, time, event) → actions.
 *
 * The scheduler does no I/O and has no clock of its own.  Time is an argument (seconds,
 * any origin, never going back); the scheduler queues actions, and the caller fetches the
 * actions.  So the same code runs live in falcon-ps, in virtual time in falcon-proj and
 * in the cluster simulator.
 *
 * Work is done in rounds.  A round is a run of tasks of one clock.  Workers compute the
 * tasks of a round on one version, and the round joins an update as a whole or not at
 * all.  A team is the set of workers that share rounds: all workers are one team (bsp,
 * epsp), or each worker is a team (asp, ssp, …), or each group of workers is one.
 * Schemes differ in what follows a complete round, and in when a team may begin its next
 * round.  Each scheme has a file of its own.
 *
 * Cost per event: O(log W) amortised, plus O(W + lanes + K log W) once per clock; for
 * groups O(W log W) once per round of a group; O(W) when a worker leaves.  Memory: O(W +
 * tasks of the open rounds).
 *
 * schemes.md describes the schemes and their origins; falcon(7) defines the words.
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
	FAL_LANES_MAX = 1024, /* the most lanes of one worker */
	FAL_WORKER_NAME = 64  /* bytes, with the NUL */
};

struct fal_sched; /* opaque */

struct fal_sched_conf {
	const struct fal_policy *policy; /* copied */
	struct fal_grid grid;
	uint64_t entropy; /* seed of the random choices that workers must not foresee */
	/* The scheduler may order steps before their rounds are complete: see
	 * FAL_ACT_END, `ahead`. */
	bool ahead;
	uint32_t lanes_start; /* lanes that a new worker begins with; 0: its lanes_max */
	/* The cost of a sample in an evaluation task, divided by the cost of a sample in
	 * a training task. */
	double eval_cost;
	/* If no other worker can get a task, the grant of the task is also its claim
	 * (design.md, D25). */
	bool preclaims;
	/* A task without a finite result is skipped; if false, such a task ends the job.
	 * Must be false for rules with fal_rule_has_local_steps. */
	bool skips;
	/* Another scheduler brings the tasks: only fal_sched_open_external begins a
	 * round.  Only for rules with shared rounds. */
	bool is_external;
	/* The state of an earlier scheduler with shared rounds, which this scheduler
	 * continues.  At `version`, `clock` clocks are over.  The policy holds since
	 * version `first`.  The next round gets the number `round`.  All 0: the job
	 * begins. */
	struct fal_sched_from {
		uint64_t clock, version, first, round;
	} from;
};

/* The fate of a round. */
enum fal_fate {
	FAL_FATE_MERGE,    /* its gradients are collected for the next step */
	FAL_FATE_ADD,      /* weight · its change of weights is collected */
	FAL_FATE_BRANCH,   /* its gradients step its group's branch, to `version` */
	FAL_FATE_REWEIGHT, /* its change of weights is averaged with those of slot `slot`
			      (dynsgd.c) */
	FAL_FATE_DROP,     /* its tasks count as done, but its sum is thrown away */
	FAL_FATE_RETRY,    /* its tasks may be granted to any worker again */
	/* its sum goes to the other scheduler, which has brought the task */
	FAL_FATE_FORWARD
};

enum fal_act_kind {
	FAL_ACT_BRANCH, /* copy the newest version to a branch, as the branch's version
			   `version` */
	FAL_ACT_OPEN,   /* round `round` begins; fal_sched_round describes the round */
	/* worker: run tasks first … first+count-1, for a contribution that fills `fills`.
	 * If `cid` is set, the tasks count as claimed, for contribution `cid`; `more`:
	 * the next grant has more tasks of `cid` */
	FAL_ACT_GRANT,
	FAL_ACT_REVOKE, /* worker: forget these tasks, running or not */
	/* round `round` is over; `fate`, `weight`, `slot`, `below`, `why`.  With `ahead`
	 * each shard ends the round as soon as the shard has all blocks of the round, for
	 * the STEP that follows.  No worker hears of that STEP before the MODEL for all
	 * workers.  See fal_sched_note_applied */
	FAL_ACT_END,
	/* collect weight · the change of `branch` since FAL_ACT_BRANCH, for the STEP
	 * that follows */
	FAL_ACT_PUSH,
	/* apply the collected rounds: this makes `version` (fal_sched_note_published).
	 * The divisor of the summed gradients is `divisor`, in samples; 0: all samples
	 * were skipped, and nothing is applied.  `clock_part`: the part of the clock that
	 * is applied by now, these rounds included, 0 to 1.  Changes of weights are
	 * applied as they are; or, if `weight` is not 0, by an outer step at rate
	 * `weight`, with `momentum` */
	FAL_ACT_STEP,
	/* worker (0: all workers): send version `version` of the branch; 0: send the
	 * newest version */
	FAL_ACT_MODEL,
	/* worker: request a report of how the worker spent its time; `round`, `work` */
	FAL_ACT_ACCOUNT,
	FAL_ACT_LANES, /* worker: use `count` lanes */
	/* fence contribution `cid` at the shards and tell its worker; then call
	 * fal_sched_note_fenced */
	FAL_ACT_FENCE,
	FAL_ACT_EVAL, /* worker: evaluate test tasks first … first+count-1 */
	FAL_ACT_PING, /* worker: request the progress of its lanes */
	/* record a charge against the worker, which may have left; `why` */
	FAL_ACT_CHARGE,
	FAL_ACT_EVICT,   /* worker: close its session; `why` */
	FAL_ACT_CHECK,   /* worker: run these tasks again, for their hashes only */
	FAL_ACT_UNCHECK, /* worker: forget these checks; all its other tasks stay */
	/* the worker has missed its deadline, and its tasks may go to other workers.
	 * For `seconds` seconds the worker has owed `owes`; `why` */
	FAL_ACT_SUSPECT,
	/* the worker is a full member again, after `seconds` seconds as a suspect;
	 * `why` */
	FAL_ACT_CLEARED,
	/* the key of the worker has cost other workers too much time: workers of the key
	 * get no work for `seconds` */
	FAL_ACT_BARRED,
	FAL_ACT_NONFINITE, /* worker: its result of task `first` of `clock` is not finite
			    */
	/* two results of task `first` were not finite, so the task is skipped: the task
	 * counts as empty in each block that contribution `fills` has not brought */
	FAL_ACT_SKIP,
	FAL_ACT_STOP /* two results of task `first` were not finite, so the job ends */
};

enum { FAL_WORK_PACES = 4 };

/* Tasks that a worker has claimed one after another, at about the same speed. */
struct fal_work_pace {
	uint32_t tasks;
	uint64_t samples;
	double seconds; /* summed */
	double size;    /* in full tasks, as projected */
};

/* The work of a worker since its last FAL_ACT_ACCOUNT, as the trace records the work. */
struct fal_work {
	uint32_t share, done, in, out, cloned, lost;
	uint64_t samples; /* of the tasks done */
	uint32_t paces;
	/* the tasks that the worker has claimed, in the order of the claims */
	struct fal_work_pace pace[FAL_WORK_PACES];
	struct fal_work_pace cut;             /* running tasks that were taken away */
	uint64_t stale_updates, stale_clocks; /* of its last round */
};

struct fal_act {
	enum fal_act_kind kind;
	uint32_t worker; /* id */
	/* OPEN, GRANT, REVOKE, END, FENCE, SKIP, NONFINITE, STOP, ACCOUNT, CHECK,
	 * UNCHECK */
	uint64_t round;
	uint32_t first, count;
	struct fal_contrib_id
		fills; /* GRANT, FENCE, SKIP: the contribution to fill, or {0, 0} */
	struct fal_contrib_id cid; /* FENCE; GRANT, or {0, 0} */
	bool late;                 /* GRANT: the tasks are late tasks of their round */
	bool more;                 /* GRANT: the next GRANT is of the same cid */
	uint32_t run;              /* GRANT: the number of earlier GRANTs of the cid */
	enum fal_fate fate;        /* END */
	bool ahead;                /* END, STEP */
	double weight;             /* END, PUSH, STEP */
	double momentum;           /* STEP */
	/* END, PUSH: `weight` is a share among this number of workers.  STEP of a
	 * quorum: the number of groups.  Else 0. */
	uint32_t among;
	uint32_t branch;  /* PUSH */
	uint64_t version; /* BRANCH, END, STEP, MODEL, CHECK */
	uint64_t slot;    /* END */
	uint64_t below;   /* END: no later round changes a slot below this number */
	/* STEP: the newest clock of the collected rounds.  ACCOUNT, NONFINITE, STOP: the
	 * clock of the round */
	uint64_t clock;
	bool own; /* ACCOUNT, STEP: each round belongs to one worker or one group */
	/* STEP: the number of clocks that are over with this step.  A clock of an older
	 * policy is not counted if the clock ends after a clock that was ordered
	 * ahead */
	uint64_t over;
	struct fal_work work; /* ACCOUNT */
	double divisor;       /* STEP, END with FAL_FATE_BRANCH: samples */
	double clock_part;    /* STEP: the part of its clock that is applied with it */
	const char *why;      /* END, CHARGE, EVICT, SUSPECT, CLEARED: static text */
	const char *owes;     /* SUSPECT: "task", "push" or "eval" */
	double seconds;       /* SUSPECT, CLEARED, BARRED */
};

/* The weights from which a delta round's local steps start (wire/msg.h has the
 * message). */
enum fal_start {
	FAL_START_VERSION, /* the version */
	FAL_START_LOCAL,   /* the worker's own weights at the end of its last round */
	/* the version plus the worker's own steps that the version lacks */
	FAL_START_REBASE
};

/* A round, open, or ended and not yet forgotten. */
struct fal_round_info {
	uint64_t round, clock, version;
	/* Tasks from `first_late` on, if any, are computed on `late_version`, the others
	 * on `version`.  All tasks use the exponents of `version`. */
	uint32_t first_late;
	uint64_t late_version;
	uint32_t first, tasks;
	uint32_t samples;  /* without those of skipped tasks */
	bool delta, mixed; /* delta: contributions are changes of weights; mixed: the
			      tasks are computed on several versions */
	/* END of the round was ordered ahead, but the round is not over */
	bool commit_ordered;
	bool all_reported; /* commit_ordered, and all its results are reported */
	uint32_t owner;    /* the worker's id; 0: a team of several */
	uint32_t group;    /* from 1; 0: none */
	/* A round on a branch: `taken` is the version that the branch has copied, and
	 * `local` the number of the branch's rounds since then, this round included.
	 * Other rounds: `version`, and 0. */
	uint64_t taken;
	uint32_t local;
	/* For delta rounds.  `since`: the last round of the worker that the version
	 * contains. */
	enum fal_start base;
	uint64_t since;
	uint32_t steps;
	/* The staleness, known at the end of the round: clocks between its team and the
	 * slowest team; updates between `version` and the version that contains the
	 * round. */
	uint64_t stale_clocks, stale_updates;
	const struct fal_ledger *ledger; /* borrowed */
};
/* Fills `*out` with the facts about the round.  Returns false if the round is
 * unknown. */
bool fal_sched_round(const struct fal_sched *s, uint64_t round,
		     struct fal_round_info *out);

struct fal_worker_info {
	uint32_t id;
	uint32_t lanes, lanes_min, lanes_max;
	/* The projected seconds of a full task with this number of lanes; 0: unknown. */
	double task_s;
	/* time when the worker is expected to finish the tasks that it holds */
	double finish;
	double rtt; /* seconds of a round trip to the worker; 0: unknown */
	bool suspected;
	bool able; /* the worker may get work: it is neither a suspect nor excluded */
};

/* Makes a scheduler; no round begins before fal_sched_set_clock_limit. */
struct fal_sched *fal_sched_new(const struct fal_sched_conf *conf);
void fal_sched_free(struct fal_sched *s);

/* Lets rounds of clocks before `clock` begin. */
void fal_sched_set_clock_limit(struct fal_sched *s, double now, uint64_t clock);
/* While `hold` is true no round begins.  Under ssp:0 and flexrr:0 a clock that has begun
 * still gets its further rounds. */
void fal_sched_hold(struct fal_sched *s, double now, bool hold);
/* Is no round open, no step pending and every version published? */
bool fal_sched_is_quiet(const struct fal_sched *s);
/* May any worker get work? */
bool fal_sched_has_workers(const struct fal_sched *s);
/* Sets the policy (copied) for the next round and later ones.  FAL_ESTATE: the policy has
 * another rule, and the scheduler is not quiet. */
int fal_sched_set_policy(struct fal_sched *s, double now, const struct fal_policy *p);
const struct fal_policy *fal_sched_policy(const struct fal_sched *s);
/* The number of newest versions on which tasks are computed; 1: on the newest only. */
uint32_t fal_sched_count_versions(const struct fal_sched *s);
/* Returns the oldest version on which the scheduler may still grant new tasks to the
 * worker.  Tasks that must run again may be on an older version. */
uint64_t fal_sched_oldest_version(const struct fal_sched *s, uint32_t id);
/* Sets `out` to the versions of the worker's open rounds, oldest round first, at most
 * `cap` versions; returns their number.  A round that has `all_reported` counts only
 * while some of its tasks must run again.  A round on a branch always counts. */
uint32_t fal_sched_list_versions(const struct fal_sched *s, uint32_t id, uint64_t *out,
				 uint32_t cap);
/* The first clock that is not over: every task of the clocks before has ended. */
uint64_t fal_sched_first_open_clock(const struct fal_sched *s);
/* The clock whose tasks are handed out next; never before fal_sched_first_open_clock. */
uint64_t fal_sched_next_clock(const struct fal_sched *s);
/* Fills `*out` with the conf.from of a scheduler that is to continue from `version`; at
 * that version `clock` clocks are over.  Returns false if rounds are not shared or no
 * scheduler can continue from that version. */
bool fal_sched_resume_point(const struct fal_sched *s, uint64_t version, uint64_t clock,
			    struct fal_sched_from *out);
/* Is all work done, and are all updates applied? */
bool fal_sched_is_done(const struct fal_sched *s);

/* Measurements of a worker, for a later scheduler, in seconds.  Not measured: 0, or -1
 * for `fixed`. */
struct fal_history {
	uint32_t lanes; /* the number of lanes during these measurements */
	/* task_s: a full task; fixed: the part of task_s that does not depend on the
	 * size of the task
	 */
	double task_s, fixed, eval_s, push_s;
};
/* Fills `*out` with the measurements of the worker.  Returns false if there are none. */
bool fal_sched_history(const struct fal_sched *s, uint32_t id, struct fal_history *out);

struct fal_join {
	uint32_t id;
	const char *name; /* NULL: none */
	/* number of the worker's key.  Workers of one key cannot confirm each other's
	 * results.  0: no other worker has this worker's key */
	uint32_t key;
	/* two workers with the same number compute the same bits; 0: no other worker
	 * computes the same bits */
	uint32_t numerics;
	bool group; /* a group server, which claims the results of its members */
	uint32_t lanes_min, lanes_max, cores;
	double task_s, fixed, rtt;
	/* measurements in an earlier session; history.lanes 0: none */
	struct fal_history history;
};
/* Adds a worker that is ready to work.  The caller must choose an `id` from 1 to
 * UINT32_MAX - 1 that is larger than all earlier ids.  task_s: seconds of a full task at
 * one lane, as the worker has probed, 0 if unknown; fixed: the part of task_s that a
 * task of any size takes, NAN if unknown; rtt: seconds, 0 if unknown. `name` is copied
 * (FAL_WORKER_NAME bytes).  Returns 0 or FAL_EINVAL.  The scheduler has a version sent
 * to the worker before the worker's first grant. */
int fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j);

/* Sets the number of lanes that the worker uses.  task_s: seconds of a full task on one
 * of these lanes, as the worker has probed; 0: unknown.  Unknown ids are ignored.
 * FAL_EINVAL: not 1 to FAL_LANES_MAX. */
int fal_sched_set_lanes(struct fal_sched *s, double now, uint32_t id, uint32_t lanes,
			double task_s);

/* Removes a worker (unknown ids are ignored): fences its open contributions, grants its
 * tasks to other workers, and abandons rounds of its own. */
void fal_sched_leave(struct fal_sched *s, double now, uint32_t id);

/* Notes a message of the worker.  A suspect that sends messages may go on probation. */
void fal_sched_note_message(struct fal_sched *s, double now, uint32_t id);

/* Does the worker have a round of local steps that is not over? */
bool fal_sched_has_local_round(const struct fal_sched *s, uint32_t id);

/* Notes that every shard has all blocks of the round. */
void fal_sched_note_complete(struct fal_sched *s, double now, uint64_t round);

/* The claim of a finished task. */
struct fal_claim_report {
	uint32_t worker;
	uint64_t round;
	uint32_t task;
	uint32_t seq;                      /* the worker's contribution */
	struct fal_contrib_id fills;       /* the contribution that `seq` fills */
	double task_s;                     /* seconds of computation */
	int64_t loss;                      /* fixed point */
	const struct fal_metrics *metrics; /* borrowed; NULL: the job has none */
	bool nonfinite;                    /* the gradient was not finite: no result */
	uint8_t hash[FAL_CLAIM_HASH];      /* of the result; the ledger keeps the hash */
	uint64_t version;                  /* the version that the task was computed on */
	bool verify; /* if the claim wins, another key is to compute the task once more */
};
/* Claims a task; or, with the `seq` of a grant that was claimed ahead, reports the
 * result of its task.  Returns 1 if the claim wins; 0 if the claim loses, or if the
 * round is over, the contribution is fenced, or the task is skipped.  FAL_ESTATE: the
 * worker was never granted the task, or has made more claims than it has had grants,
 * clones and repeated grants included.  Other errors: those of fal_ledger_claim.  After
 * any error the caller must evict the worker. */
int fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_report *c);

/* Seals contribution `cid`, which then gets no more claims.  Returns 1 if the
 * contribution counts; 0 if the contribution does not count, because it is unknown,
 * fenced or over.  FAL_ESTATE: the contribution was sealed before, or its tasks were
 * claimed as they were granted. */
int fal_sched_close_contrib(struct fal_sched *s, uint64_t round,
			    struct fal_contrib_id cid);

/* Returns contribution `cid` of an open round, borrowed until the next call; NULL if the
 * contribution is unknown or its round is over. */
const struct fal_contrib *fal_sched_find_contrib(const struct fal_sched *s,
						 uint64_t round,
						 struct fal_contrib_id cid);
/* Returns the id of the contribution that `c`, a contribution of that round, fills; {0,
 * 0}: none. */
struct fal_contrib_id fal_sched_filled_contrib(const struct fal_sched *s, uint64_t round,
					       const struct fal_contrib *c);

/* Notes that `blocks` blocks of `cid` were added; `complete`: all its blocks are counted.
 */
void fal_sched_note_blocks(struct fal_sched *s, double now, uint64_t round,
			   struct fal_contrib_id cid, uint32_t blocks, bool complete);

/* Notes that all shards have fenced `cid` (FAL_ACT_FENCE).  The tasks of `cid` may then
 * be granted again, for contributions that fill `cid`. */
void fal_sched_note_fenced(struct fal_sched *s, double now, uint64_t round,
			   struct fal_contrib_id cid);
/* Notes that all shards have made the version (FAL_ACT_STEP).  Before this call no task
 * can begin on the version. */
void fal_sched_note_published(struct fal_sched *s, double now, uint64_t version);
/* Notes that all shards have stepped with a round whose end was ordered ahead.  So the
 * shards have all its contributions, and the scheduler no longer waits for missing
 * reports.  Ignores unknown rounds and rounds that have `all_reported` (fal_round_info).
 */
void fal_sched_note_stepped(struct fal_sched *s, double now, uint64_t round);
/* Notes that all shards have ended the round.  A round that has `all_reported` is then
 * over; other rounds are ignored. */
void fal_sched_note_applied(struct fal_sched *s, double now, uint64_t round);
/* Returns the oldest version of the rounds that were ordered ahead and are not over, or
 * `version` if that is older or there is no such round. */
uint64_t fal_sched_oldest_read_version(const struct fal_sched *s, uint64_t version);

/* Notes the answer to a PING of `rtt` seconds ago.  `steps` is the progress of the
 * worker's lanes, in any unit.  A number larger than the last one shows that the lanes
 * work. */
void fal_sched_note_pong(struct fal_sched *s, double now, uint32_t id, double rtt,
			 uint64_t steps);

/* Charges the worker, which may have left; the second charge evicts the worker. */
void fal_sched_charge(struct fal_sched *s, uint32_t id, const char *why);

/* A claim that a worker of another key computes once more (verify.c). */
struct fal_verify {
	uint64_t round;
	/* worker: the worker that computes the task once more */
	uint32_t task, worker;
	struct fal_contrib_id id; /* of the claim */
	uint8_t hash[FAL_CLAIM_HASH];
};
/* A worker's answer to a check. */
struct fal_check_answer {
	uint32_t worker, task;
	uint64_t round;
	const uint8_t *hash; /* FAL_CLAIM_HASH bytes */
};
/* Takes the answer to a check.  Returns true, and sets `*unlike` to the claim, if the
 * answer's hash differs from the claim's.  Returns false if the hashes are equal, or the
 * worker was not asked, or the round is over. */
bool fal_sched_answer_check(struct fal_sched *s, double now,
			    const struct fal_check_answer *c, struct fal_verify *unlike);

/* Starts an evaluation of test tasks 0 … tasks-1.  Workers without other work evaluate;
 * while no round is open, all workers evaluate.  0, or FAL_ESTATE: an evaluation is
 * under way. */
int fal_sched_start_eval(struct fal_sched *s, double now, uint32_t tasks);
/* Takes the worker's evaluation of `task`, which has `samples` samples and took task_s
 * seconds.  Returns 1 if the evaluation counts; 0 if the task was evaluated before, or
 * still needs another worker's answer.  FAL_EINVAL: no such task.  FAL_ESTATE: the
 * worker was never granted the task. */
int fal_sched_claim_eval(struct fal_sched *s, double now, uint32_t id, uint32_t task,
			 uint32_t samples, double task_s);
bool fal_sched_is_eval_done(const struct fal_sched *s);
/* Could another worker confirm the evaluated task?  A worker of another key can; if all
 * workers have one key, a worker of another session can. */
bool fal_sched_eval_can_repeat(const struct fal_sched *s, uint32_t task);
/* Has the task evaluated once more: by a worker that can confirm the first result, or by
 * any worker if all such workers have left. */
void fal_sched_repeat_eval(struct fal_sched *s, double now, uint32_t task);

/* Acts on the passage of time; call this at or after fal_sched_next_tick. */
void fal_sched_tick(struct fal_sched *s, double now);
/* Returns the time of the next tick; infinity: none is due before another event. */
double fal_sched_next_tick(const struct fal_sched *s);

/* Takes the next action from the queue.  Returns false if the queue is empty. */
bool fal_sched_next_action(struct fal_sched *s, struct fal_act *out);
/* Forget the rounds whose END was fetched: all such rounds, or this round. */
void fal_sched_forget(struct fal_sched *s);
void fal_sched_forget_round(struct fal_sched *s, uint64_t round);

/* ---- work of another scheduler, with conf.is_external ---- */

struct fal_external_task {
	uint64_t clock, version,
		exponents; /* the task uses the exponents of version `exponents` */
	uint32_t task;
};
/* Begins a round of this task; returns the number of the round.  The round is over when
 * its sum is forwarded (FAL_FATE_FORWARD).  The caller must have announced the task's
 * version by fal_sched_set_version. */
uint64_t fal_sched_open_external(struct fal_sched *s, double now,
				 const struct fal_external_task *b);
/* Drops the round; does nothing if the round is unknown. */
void fal_sched_cancel_external(struct fal_sched *s, double now, uint64_t round);
/* Sets `*round` to the oldest round that is not over.  Returns false if no round is
 * open. */
bool fal_sched_oldest_external(const struct fal_sched *s, uint64_t *round);
/* Sets the newest version, and has the version sent to all workers. */
void fal_sched_set_version(struct fal_sched *s, double now, uint64_t version);
/* Prepares `tasks` test tasks for fal_sched_start_eval_task, without starting an
 * evaluation. */
void fal_sched_prepare_evals(struct fal_sched *s, double now, uint32_t tasks);
/* Starts the evaluation of one test task.  FAL_EINVAL: there is no such task. */
int fal_sched_start_eval_task(struct fal_sched *s, double now, uint32_t task);

/* Fills `*out` with the facts about worker `id`.  Returns false if the worker is not
 * here. */
bool fal_sched_info(const struct fal_sched *s, uint32_t id, struct fal_worker_info *out);

#endif
