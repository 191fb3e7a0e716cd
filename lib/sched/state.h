/* The scheduler's state, private to lib/sched.  Each file calls only files below it in
 * this list.  Calls to schemes go through their table (scheme.h).
 *
 *	scheduler.c   every event, and the steps that follow every event
 *	eval.c        the evaluation of the test set
 *	planner.c     the assignment of a round's free tasks to workers
 *	bsp.c epsp.c asp.c …   the behaviour and the private state of each scheme
 *	retry.c       tasks without a finite result
 *	probation.c   suspects, their probation, the debts of their keys
 *	rounds.c      rounds, updates, teams, early commits
 *	verify.c      claims that a worker of another key computes once more
 *	queues.c      actions, the workers' queues, the heaps over workers
 *	deadlines.c   debts of workers and their deadlines
 *	projection.c  measurements, and projections from them
 *	state.c       look-ups of workers, rounds, retries
 *	pool.c ledger.c heap.c window_stats.c bound.c policy.c
 *	              what needs no scheduler
 */
#ifndef FAL_SCHED_STATE_H
#define FAL_SCHED_STATE_H

#include "base/intervals.h"
#include "base/rng.h"
#include "sched/heap.h"
#include "sched/policy.h"
#include "sched/pool.h"
#include "sched/sched.h"
#include "sched/window_stats.h"

/* A worker's measurements at one lane count. */
struct fal_pace {
	double task_s;    /* EWMA of a full task's seconds; 0: unknown */
	uint32_t nearest; /* nearest lane count with a known task_s; 0: none is known */
};

/* Turns: repeated work of a worker that the coordinator times by its own clock. */
enum fal_turn_kind {
	FAL_TURN_TASK, /* from when a lane may begin a full task until the claim arrives
			*/
	FAL_TURN_PUSH, /* from when a contribution is closed until its last block arrives
			*/
	FAL_TURNS
};

/* The workers that share rounds. */
struct fal_team {
	/* the id of its one worker, or of the group, from 1; 0: the team of all */
	uint32_t id;
	uint32_t at;      /* its index in fal_sched.team */
	uint32_t members; /* active workers */
	/* number of its open rounds, without those with FAL_COMMIT_REPORTED */
	uint32_t open;
	struct fal_round *rounds; /* its open rounds, oldest first, by `next` */
	uint32_t part;            /* its part of the data */
	uint64_t begun;           /* rounds begun under this rule */
	/* its own clock: grows with each of its rounds that is applied or dropped */
	uint64_t clock;
	uint64_t branch_version; /* newest version of its branch; 0: no branch */
	/* the version of its last pull; UINT64_MAX: none, or its round was lost */
	uint64_t version;
	void *state; /* the scheme's own, fal_scheme.team_state_bytes */
};

/* An amount of work.  Its cost depends on both numbers, because each task has a fixed
 * cost. */
struct fal_load {
	uint32_t tasks;
	uint64_t samples;
};

/* Does the job trust the worker with tasks?  (probation.c) */
enum fal_standing {
	FAL_MEMBER,        /* a full member */
	FAL_PROBATION,     /* a former suspect that gets one task, to prove itself */
	FAL_SUSPECT,       /* has missed a deadline and gets no task */
	FAL_SUSPECT_PROVEN /* a suspect whose work has arrived, and which soon is a full
			    * member
			    */
};

struct fal_worker {
	uint32_t id;
	char name[FAL_WORKER_NAME];
	uint32_t key; /* its owner; workers of one key count as one witness */
	/* workers with equal numerics compute equal bits; 0: like no other worker */
	uint32_t numerics;
	bool has_left;
	bool is_excluded; /* by policy */
	/* This worker had no finite result of a task, and other workers must retry the
	 * task (retry.c).  Until then: is_barred: the worker begins no round; is_waiting:
	 * the worker is barred and has no open round, so other workers do not wait for
	 * this worker. */
	bool is_barred, is_waiting;
	/* is counted among the active workers of the job and of its team */
	bool is_counted;
	/* by policy: its share of a clock, as a multiple of an equal share; < 0: as
	 * projected */
	double weight;
	char site[FAL_SITE];   /* by policy; "": none */
	struct fal_team *team; /* NULL: the worker has left */
	uint64_t version;      /* the version that was sent last */

	uint32_t lanes, lanes_min, lanes_max, cores;
	/* its own bounds of lanes, without those of the policy */
	uint32_t own_min, own_max;
	uint32_t lanes_held; /* clocks since the last change of the lanes */

	/* Measurements (projection.c, deadlines.c). */
	struct fal_pace *pace; /* by lane count */
	/* seconds of a full task at one lane, by its own probe; 0: unknown */
	double probe_s;
	/* The share of a full task's seconds that a task of any size takes; NAN: unknown;
	 * the typical share then counts. */
	double fixed;
	struct fal_window recent;   /* seconds of full tasks */
	double eval_s;              /* EWMA of a full eval task's seconds; 0: unknown */
	struct fal_window_min pull; /* seconds from a grant until computation begins */
	/* seconds from the last claim until the contribution is counted */
	struct fal_window_min push;
	/* seconds from the end of its last task until the claim arrives */
	double claim_wait_s;
	double rtt, last_rtt; /* seconds of a round trip, smoothed; of the last one */
	struct fal_window turn[FAL_TURNS]; /* seconds, as if each lane had a core */
	/* The help of other workers that take its tasks. */
	struct {
		/* seconds in this clock that help saved or could have saved */
		double clock_s;
		double mean_s; /* the mean over `clocks` clocks without the first */
		uint32_t clocks;
	} help;

	/* Work. */
	struct fal_node *head, *tail; /* its queue, in the order of rounds */
	uint32_t queued;
	uint64_t queued_samples;
	uint32_t open_contribs;
	struct fal_intervals seqs; /* the numbers of all its contributions, ever */
	uint64_t collected_round;  /* its last round of local steps that was collected */
	uint64_t grants, claims;
	uint32_t preclaims; /* number of its contributions that were claimed ahead */
	bool is_group;      /* a group server: nothing is claimed ahead */
	uint32_t evals;     /* eval tasks in its queue */
	uint32_t checks;    /* checks without an answer (verify.c) */
	uint32_t charges;
	struct fal_work work; /* since the last ACCOUNT */

	/* Plan (planner.c). */
	uint32_t plan[FAL_SPANS]; /* by span: the number of tasks about to be granted */
	struct fal_load planned;  /* the planned tasks that begin together */
	uint32_t idle_clocks;     /* clocks in a row without a share */
	/* How often plan_try_idle has tried the worker since its last result from an
	 * ordinary share, up to a limit.  is_tried: its last tasks came from such a try.
	 */
	uint32_t tries;
	bool is_tried;

	/* Times.  The pull timer measures a pull.  The timer runs from the beginning of a
	 * round, if the worker holds no task then, until the worker's first claim. */
	struct {
		bool is_running;
		double since;
		uint64_t round; /* the round; if several rounds began, the first one */
	} pull_timer;
	double pullable_at; /* when its version could be pulled; INFINITY: not yet */
	double pulled_at;   /* when the version is pulled; may lie in the future */
	double progress_at; /* its last progress */
	double finish;      /* projected finish; see fal_worker_refresh */
	/* since when it has had no task that can run; negative: it has such a task */
	double empty_since;
	double block_at; /* when its last block arrived */
	struct {
		double at; /* when a task of `round` was last taken away */
		uint64_t round;
	} relieved;
	double running_since; /* when its oldest running task began */
	double heard_at;      /* when its last message arrived */

	/* Deadlines. */
	double reviewed_at; /* when its debts were last reviewed */
	double excused_to;  /* no debt is due before this time */
	double spared_at;   /* when it was last late while no other worker waited */
	struct {
		/* when the ping under way was sent; negative: no ping is under way */
		double asked_at;
		uint64_t steps; /* the progress of the lanes, by the last answer */
		double answered_at;
	} ping;

	enum fal_standing standing;
	struct {
		double since;  /* when the worker last became a suspect */
		bool has_task; /* the task of the probation was granted */
		/* was recalled for a retry, and none of its work has arrived since */
		bool is_recalled;
		bool is_announced; /* SUSPECT was emitted, and CLEARED was not yet */
		double announced_at;
		uint32_t failures; /* failed probations in a row */
		double next_at;    /* no probation before */
	} suspicion;
};

/* A task in the queue of a worker.  Several workers may have the task in their queues. */
struct fal_node {
	struct fal_node *prev, *next; /* in the queue */
	struct fal_node *other;       /* the next older holder of the task */
	struct fal_round *round;
	uint32_t task;    /* its number in the round's clock */
	uint32_t slot;    /* of the worker */
	double pulled_at; /* when its worker has pulled the version */
	double began;     /* when a lane began the task; negative: not yet */
	bool is_regrant;  /* the worker was granted the same task before */
};

/* The state of an update that is ordered before its round is complete (rounds.c). */
enum fal_commit {
	FAL_COMMIT_NONE,
	FAL_COMMIT_ORDERED, /* the round's end is ordered */
	/* ORDERED, and all results are reported: the team may begin its next round */
	FAL_COMMIT_REPORTED
};

/* Does the round have all contributions, and the reports of all their tasks? */
enum fal_completion {
	FAL_ROUND_INCOMPLETE,
	FAL_ROUND_UNREPORTED, /* only reports are missing */
	FAL_ROUND_COMPLETE
};

struct fal_round {
	uint64_t id;
	struct fal_round_info info; /* fal_sched_round fills in the members that change */
	uint64_t order; /* its number among its team's rounds under this policy, from 0 */
	struct fal_team *team;
	struct fal_round *older, *newer; /* neighbours among all open rounds */
	/* next round of its team; or of the list of ended, or of spare rounds */
	struct fal_round *next;
	/* next round in the same chain of fal_sched.known */
	struct fal_round *chain;
	bool has_ended;
	enum fal_completion completion;
	enum fal_commit commit;
	struct fal_ledger ledger;
	struct fal_node **held; /* by task: the newest holder; NULL: none */
	size_t held_cap;

	struct fal_grant_history given; /* by task */
	uint32_t *free_task;            /* tasks without a holder */
	uint32_t free_n;
	size_t free_cap;
};

enum { FAL_HEAPS_OF_WORKERS = 10 }; /* of struct fal_sched */

struct fal_sched {
	struct fal_sched_conf conf;
	struct fal_policy policy;
	struct fal_traits traits; /* of its rule */
	const struct fal_scheme *scheme;
	void *scheme_state; /* fal_scheme.state_bytes */
	struct fal_grid grid;
	uint32_t full; /* samples of a full task */
	struct fal_task_pool pool;
	struct fal_rng rng;

	uint64_t version;         /* newest */
	uint64_t published;       /* the newest version that all shards have made */
	double published_at;      /* when all shards had made that version */
	uint64_t branch_versions; /* number of versions of branches, ever */
	uint64_t policy_version;  /* version since which the policy holds */
	uint64_t policy_clock; /* from this clock on, all tasks belong to this policy */
	uint64_t clock_limit;  /* only rounds of clocks before this clock may begin */
	bool is_held;
	/* time of the last end of a clock, 0: none; EWMA of the seconds of a clock */
	double clock_ended_at, clock_s;

	/* The rounds that were collected for the next update. */
	struct {
		uint32_t rounds;
		uint64_t samples, clock; /* clock: the newest clock of the rounds */
		/* Σ of the parts of their clocks that the rounds are */
		double share;
		/* samples of a whole step, of which `samples` are a share */
		double step_samples;
	} pending;

	struct fal_worker *worker; /* by slot, in order of ids */
	uint32_t workers;
	uint32_t last_id; /* the largest id of all workers that ever joined */
	size_t worker_cap;
	uint32_t active; /* workers that may work: fal_worker_active */
	uint32_t left;   /* slots of workers that have left */
	uint32_t barred; /* workers with is_barred */

	/* Typical values over the job's workers. */
	struct {
		double task_s;  /* EWMA of a full task's seconds; 0: unknown */
		double fixed;   /* EWMA of the fixed share; NAN: unknown, counts as 0 */
		double probe_s; /* the least probe of all; 0: none */
		uint32_t measured[FAL_TURNS]; /* workers with a measured turn, ever */
		double turn_s[FAL_TURNS];     /* lower median over workers; 0: unknown */
		/* The inputs of the last computation of turn_s: clocks that were over,
		 * the least probe, and measured workers. */
		uint64_t at_over;
		double at_probe_s;
		uint32_t at_measured[FAL_TURNS];
		/* for the medians; has room for one value of each worker */
		double *scratch;
		size_t scratch_cap;
	} typical;

	/* Suspects (probation.c). */
	double patience; /* a factor of all deadlines */
	struct {
		/* the worker on probation now, or else the last one; 0: none ever */
		uint32_t worker;
		double next_at;      /* no probation before this time */
		uint64_t next_clock; /* no probation before so many clocks are over */
	} probation;
	struct fal_key_debt { /* by key; only keys with workers that were suspects */
		uint32_t key;
		/* seconds that other workers have waited, less the seconds paid */
		double lost;
		double at;         /* `lost` is the debt at this time */
		double until;      /* waiting up to this time is counted in `lost` */
		bool is_announced; /* BARRED was emitted since the key last owed nothing
				    */
	} *debt;
	size_t debts, debt_cap;

	/* teams of one worker: by slot; NULL: the worker has left */
	struct fal_team **team;
	uint32_t teams;
	size_t team_cap;
	struct fal_heap teams_by_clock; /* teams with active workers; least clock first */
	struct fal_heap teams_awake;    /* teams that may be able to begin a round */
	uint64_t slowest; /* least clock in `teams_by_clock`; while `teams_by_clock` is
			     empty, the last known one */
	/* by part of the data: number of teams with active workers */
	uint32_t *part_teams;

	/* Tasks to be retried, and for each the worker that had no finite result. */
	struct fal_retry {
		uint64_t clock;
		uint32_t task, worker, key;
	} *retry;
	uint32_t retries;
	size_t retry_cap;
	/* Skipped tasks: non-finite twice, in clocks that are not over. */
	struct fal_skip {
		uint64_t clock;
		uint32_t task;
	} *skip;
	uint32_t skipped;
	size_t skip_cap;

	struct fal_round *oldest, *newest; /* open rounds */
	uint32_t rounds;                   /* open */
	struct fal_round *ended;           /* ended rounds that are not forgotten */
	struct fal_round *spare;           /* memory for later rounds */
	/* open and ended rounds: a hash table by id, with chains */
	struct fal_round **known;
	size_t knowns, known_cap; /* known_cap: a power of 2 */
	uint32_t unreported;      /* open rounds with FAL_ROUND_UNREPORTED */
	uint64_t next_round;
	uint64_t unplanned; /* free tasks of the open rounds */
	/* no older round has free tasks; NULL: no round has free tasks */
	struct fal_round *first_unplanned;

	/* Heaps of workers, by their slots. */
	union {
		struct fal_heap of_workers[FAL_HEAPS_OF_WORKERS];
		struct {
			/* Active workers that may take or give tasks. */
			/* would be idle within about a round trip; keyed by the finish
			 * after one task more */
			struct fal_heap takers;
			/* have an unstarted task; latest finish first */
			struct fal_heap donors;
			struct fal_heap runners; /* run a task without a newer holder;
						    latest finish first */
			struct fal_heap idle;    /* no task can run; fastest first */
			/* have a debt; keyed by the time of its next review */
			struct fal_heap due;
			struct fal_heap suspects; /* suspects that have sent a message
						     since, keyed by suspicion.next_at */
			struct fal_heap awaits;   /* wait for a version to be published,
						     keyed by version */
			struct fal_heap planner;  /* scratch of planner.c */
			struct fal_heap scheme_heap[2]; /* the scheme's */
		};
	};

	bool has_fixed_shares; /* the policy fixes the share of some worker */
	/* shares by speed: planned samples for each unit of speed, in full tasks a
	 * second */
	double quota;
	/* the planned tasks are late tasks, which wait for a version of their own */
	bool is_planning_late;

	/* The evaluation of the test set (eval.c). */
	struct {
		uint32_t tasks, left; /* all tasks; tasks not evaluated yet */
		struct fal_eval_task {
			uint32_t holder; /* worker id; 0: none; or FAL_EVALUATED */
			/* The workers that have evaluated the task, two at most. */
			uint32_t answers, worker[2], key[2];
		} *task;
		size_t task_cap;
		struct fal_grant_history given; /* by eval task */
		uint32_t *free;
		uint32_t free_n;
		size_t free_cap;
	} eval;

	struct fal_verify *verify; /* checks without an answer (verify.c) */
	size_t verifies, verify_cap;

	struct fal_act *act;
	size_t acts, act_next, act_cap;
};
_Static_assert(offsetof(struct fal_sched, scheme_heap[2]) ==
		       offsetof(struct fal_sched, of_workers[FAL_HEAPS_OF_WORKERS]),
	       "every heap of workers is counted");

#define FAL_EVALUATED UINT32_MAX /* the id of no worker */

static inline bool
fal_worker_is_suspect(const struct fal_worker *w)
{
	return w->standing >= FAL_SUSPECT;
}

/* May the worker work, unless it must wait for retries by other workers? */
static inline bool
fal_worker_able(const struct fal_worker *w)
{
	return !w->has_left && !fal_worker_is_suspect(w) && !w->is_excluded;
}

static inline bool
fal_worker_active(const struct fal_worker *w)
{
	return fal_worker_able(w) && !w->is_waiting;
}

static inline uint32_t
fal_task_samples(const struct fal_round *r, uint32_t task)
{
	return fal_ledger_task(&r->ledger, task)->samples;
}

/* The newest holder of a task; older holders follow by `other`.  NULL: no holder. */
static inline struct fal_node *
fal_task_newest_holder(const struct fal_round *r, uint32_t task)
{
	return r->held[task - r->ledger.first];
}

static inline struct fal_load
fal_load_of_task(const struct fal_round *r, uint32_t task)
{
	return (struct fal_load){ 1, fal_task_samples(r, task) };
}

static inline struct fal_load
fal_load_queued(const struct fal_worker *w)
{
	return (struct fal_load){ w->queued, w->queued_samples };
}

/* The queued load, without late tasks that wait for their version (a fraction of
 * slack). */
struct fal_load fal_load_runnable(const struct fal_sched *s, const struct fal_worker *w);

/* When a task was last taken from `w`, if that task was of round `r`; else 0. */
static inline double
fal_worker_relieved_at(const struct fal_worker *w, const struct fal_round *r)
{
	return w->relieved.round == r->id ? w->relieved.at : 0;
}

static inline uint32_t
fal_worker_slot(const struct fal_sched *s, const struct fal_worker *w)
{
	return (uint32_t)(w - s->worker);
}

/* The only worker of the team; NULL: teams may have several workers. */
static inline struct fal_worker *
fal_team_worker(const struct fal_sched *s, const struct fal_team *t)
{
	return s->traits.own ? &s->worker[t->at] : NULL;
}

/* May `w` work for round `r`?  In a group the worker must have the version of the round;
 * in the one team of all every worker has the version. */
static inline bool
fal_worker_may_compute(const struct fal_sched *s, const struct fal_worker *w,
		       const struct fal_round *r)
{
	return fal_worker_active(w) && w->team == r->team &&
	       (!s->traits.groups || w->version == r->info.version);
}

/* ---- state.c ---- */

/* The worker with this id; NULL: unknown, or it has left.  O(log W). */
struct fal_worker *fal_worker_find(const struct fal_sched *s, uint32_t id);
/* The round of this number, if open, or ended and not forgotten; NULL: unknown.  O(1). */
struct fal_round *fal_round_known(const struct fal_sched *s, uint64_t id);
/* The same, for open rounds only. */
struct fal_round *fal_round_find(const struct fal_sched *s, uint64_t id);
/* The oldest open round that may have tasks to compute, or NULL.  A round that was
 * committed early has none once all its tasks are claimed and reported. */
const struct fal_round *fal_oldest_unfinished_round(const struct fal_sched *s);
/* The retry of the task, or NULL. */
struct fal_retry *fal_retry_find(const struct fal_sched *s, uint64_t clock,
				 uint32_t task);
/* The worker on probation, or NULL. */
struct fal_worker *fal_probation_worker(const struct fal_sched *s);
/* The worker on probation, if its task was not granted yet; else NULL. */
struct fal_worker *fal_probation_unserved(const struct fal_sched *s);

/* ---- projection.c ---- */

/* Seconds of a full task on a lane of `w` when `w` has `lanes` lanes; without
 * measurements, a guess. */
double fal_task_s(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes);
/* The cost of `load` for `w`, in full tasks: each task has a fixed part; the rest is in
 * proportion to samples. */
double fal_load_size(const struct fal_sched *s, const struct fal_worker *w,
		     struct fal_load load);
/* Full tasks per second of `w` at `lanes` lanes. */
double fal_worker_rate(const struct fal_sched *s, const struct fal_worker *w,
		       uint32_t lanes);
/* Uses the history `was` for `w` until `w` is measured.  Ignores a history at more lanes
 * than `w` may run. */
void fal_worker_restore(struct fal_worker *w, const struct fal_history *was);
/* Seconds of a full eval task. */
double fal_eval_task_s(const struct fal_sched *s, const struct fal_worker *w);
/* Counts a claimed task that took `task_s` seconds; size: in full tasks.  The task joins
 * the last pace if their speeds are alike; else the task begins a new pace.  With more
 * than FAL_WORK_PACES paces the two neighbours that differ least are merged (Ward). */
void fal_work_add(struct fal_work *work, double task_s, uint32_t samples, double size);

/* Measures a task of so many samples that took `task_s` seconds.  O(1), O(lanes) once for
 * each lane count. */
void fal_worker_measure(struct fal_sched *s, struct fal_worker *w, double task_s,
			uint32_t samples);
/* Adds `x` to a moving average; *mean 0: no value yet. */
void fal_ewma(double *mean, double x);
/* Adds the fixed share that was measured at one worker to the typical one. */
void fal_typical_add_fixed(struct fal_sched *s, double fixed);
/* The seconds after which a running full task is late: median + 6·max(MAD, 5 %). */
double fal_task_late_s(const struct fal_sched *s, const struct fal_worker *w);
/* The time when `w` will have finished and pushed `first`, the front of its queue, and
 * `extra` more work.  Running tasks end on their lanes; the other tasks follow lane by
 * lane. */
double fal_worker_project(const struct fal_sched *s, const struct fal_worker *w,
			  struct fal_load first, struct fal_load extra, double now);

/* ---- deadlines.c ---- */

/* The debt of a worker that is due first. */
struct fal_debt {
	double first;     /* owed since; INFINITY: no debt */
	double since;     /* the last sign of the owed work */
	double allowed_s; /* seconds from `since` on */
	enum fal_turn_kind kind;
	const char *what; /* "task", "push" or "eval" */
	/* The open contribution that is due first: since when it is owed, and when it is
	 * due. */
	double push_first, push_until;
};

/* The deadline of a full task: seconds that may pass from when `w` has the task and its
 * version until the claim arrives.  The deadline is the median + 6·max(MAD, 5 %) of the
 * times measured here; without such times, 4 times the median of the other workers, or 10
 * times the least probe.  The floors are 4 RTT, with an RTT of at most a second, and 200
 * ms.  On probation the deadline doubles for each failed probation in a row.  The
 * deadline also doubles with checks, because checks run first. */
double fal_task_deadline_s(const struct fal_sched *s, const struct fal_worker *w);
/* Adds a turn of `w` that took so many seconds. */
void fal_turn_add(struct fal_sched *s, struct fal_worker *w, enum fal_turn_kind kind,
		  double seconds);
/* Recomputes the typical turns if, since the last time, a clock has ended, twice as many
 * workers are measured, or the least probe has halved.  False: nothing has changed. */
bool fal_typical_update(struct fal_sched *s);
/* Seconds of a turn of `w` with a full task, as measured here; else a guess. */
double fal_turn_typical_s(const struct fal_sched *s, const struct fal_worker *w);
/* Does the job have neither a measured turn nor a probe? */
bool fal_turns_unknown(const struct fal_sched *s);

struct fal_debt fal_debt_of(const struct fal_sched *s, const struct fal_worker *w);
/* The time at which the debt is overdue, whatever its worker answers. */
double fal_debt_limit(const struct fal_sched *s, const struct fal_worker *w,
		      const struct fal_debt *d);
/* The time at which the debt is due; after that, only a worker whose lanes progress has
 * more time. */
double fal_debt_due_at(const struct fal_sched *s, const struct fal_worker *w,
		       const struct fal_debt *d);
/* Was the worker pinged for this debt, and is the answer still to come? */
bool fal_debt_is_asked(const struct fal_worker *w, const struct fal_debt *d);
/* When the debt must be reviewed next. */
double fal_debt_next_look(const struct fal_sched *s, const struct fal_worker *w,
			  const struct fal_debt *d);
/* When the debts of `w` must be reviewed next, at the latest at `late`; INFINITY: no
 * debt. */
double fal_deadline_next_look(const struct fal_sched *s, const struct fal_worker *w,
			      double late);

/* ---- queues.c ---- */

/* Queues an action for the caller. */
void fal_act_emit(struct fal_sched *s, struct fal_act act);
/* Extends the last action by the task, if that action is the same for neighbouring tasks;
 * else queues the action for the task. */
void fal_act_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task);
/* Sets the lanes of the worker, and tells the worker. */
void fal_worker_set_lanes(struct fal_sched *s, struct fal_worker *w, uint32_t lanes);
/* Recomputes the projection of `w` and its places in the heaps. */
void fal_worker_refresh(struct fal_sched *s, struct fal_worker *w, double now);
/* Recomputes only the place of `w` in the heap `due`. */
void fal_worker_refresh_deadline(struct fal_sched *s, struct fal_worker *w);
/* Tells the scheme that the round has changed, if the round has one worker. */
void fal_round_notify_owner(struct fal_sched *s, const struct fal_round *r);
/* The node of the task in the queue of `w`, or NULL. */
struct fal_node *fal_node_find(const struct fal_sched *s, const struct fal_round *r,
			       uint32_t task, const struct fal_worker *w);
/* Removes the node from all lists. */
void fal_node_detach(struct fal_sched *s, struct fal_node *node);
/* Takes the task from its worker, and tells the worker unless the worker has left.  A
 * running task counts as cut. */
void fal_node_revoke(struct fal_sched *s, struct fal_node *n, double now);
/* Takes the task from its worker, and grants the task to `to`, unless another worker
 * holds the task, too. */
void fal_node_move(struct fal_sched *s, struct fal_node *node, struct fal_worker *to,
		   double now);
/* The last task of `w` that can move, or NULL.  If `w` holds tasks of the oldest
 * unfinished round, only these tasks count. */
struct fal_node *fal_worker_last_unstarted(const struct fal_sched *s,
					   const struct fal_worker *w);
/* A running task of `w` that no other worker was granted since, or NULL. */
struct fal_node *fal_worker_uncloned(const struct fal_worker *w);
/* Clones a running task of `from` at `to`, if `from` has one that no newer holder has. */
void fal_worker_clone_task(struct fal_sched *s, struct fal_worker *from,
			   struct fal_worker *to, double now);
/* Grants `w` the task.  is_firm: a first grant, after which the task never moves. */
void fal_task_grant(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
		    uint32_t task, bool is_firm, double now);
/* Adds the task to the free tasks of its round. */
void fal_task_release(struct fal_sched *s, struct fal_round *r, uint32_t task);
/* Removes the task from all queues and from the free tasks; tells its holders. */
void fal_task_withdraw(struct fal_sched *s, struct fal_round *r, uint32_t task,
		       double now);
/* Removes the task from the queue of `w`, which has claimed the task; other holders keep
 * the task.  A worker that was granted the task twice may have claimed the task before
 * the second grant arrived.  Such a worker is told, because it would else run the task
 * again. */
void fal_task_drop_claimed(struct fal_sched *s, const struct fal_round *r, uint32_t task,
			   const struct fal_worker *w);
/* Removes the task from the queue of `w`, without a message to `w`. */
void fal_task_drop(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		   const struct fal_worker *w);
/* Tells the worker to forget the task. */
void fal_task_revoke(struct fal_sched *s, const struct fal_worker *w,
		     const struct fal_round *r, uint32_t task);

/* ---- verify.c ---- */

/* Asks a worker of another key to compute a claim of `of` once more, if such a worker
 * can. */
void fal_verify_request(struct fal_sched *s, struct fal_round *r,
			const struct fal_worker *of, const struct fal_claim_report *c,
			double now);
/* Takes back the checks of this worker (NULL: of all workers) in this round (NULL: in all
 * rounds). */
void fal_verify_cancel(struct fal_sched *s, const struct fal_worker *w,
		       const struct fal_round *r, double now);

/* ---- rounds.c ---- */

/* Ends the round: `end` says its fate, weight, slot, below and why.  Takes the tasks away
 * from their holders.  The tasks are then over or, if the fate is FAL_FATE_RETRY, back in
 * the pool.  Set the staleness before. */
void fal_round_end(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		   double now);
/* Ends a round that was committed early, when its update is made. */
void fal_round_end_committed(struct fal_sched *s, struct fal_round *r, double now);
void fal_round_free(struct fal_round *r);
/* Empties the pending update. */
void fal_pending_clear(struct fal_sched *s);
/* Orders the step that applies the pending update; the sum of gradients is divided by
 * `divisor` samples. */
void fal_pending_order_step(struct fal_sched *s, double divisor);
/* Is no round open, and no update pending? */
bool fal_sched_is_drained(const struct fal_sched *s);
/* Asks `w` to account for its time until now, which is the end of round `r`. */
void fal_worker_account(struct fal_sched *s, struct fal_worker *w,
			const struct fal_round *r);
/* The same for all workers. */
void fal_workers_account(struct fal_sched *s, const struct fal_round *r);
/* Sets the round's staleness, in clocks and in updates since the round's version.
 * clocks_ahead: how far its team is ahead of the slowest team. */
void fal_round_set_staleness(struct fal_sched *s, struct fal_round *r,
			     uint64_t clocks_ahead);
/* Samples of the round's tasks; the second call leaves skipped tasks out. */
uint32_t fal_round_samples(const struct fal_sched *s, const struct fal_round *r);
uint32_t fal_round_counted_samples(const struct fal_sched *s, const struct fal_round *r);
/* The divisor of the sum of a round that is applied alone: the samples of its clock, less
 * those that the round has skipped; 0: the round has skipped all its samples. */
double fal_round_divisor(const struct fal_sched *s, const struct fal_round *r);
/* Skips the task in the round, and in later rounds of its clock: no worker gets it. */
void fal_task_skip(struct fal_sched *s, struct fal_round *r, uint32_t task, double now);
/* Fences the open contribution `ci`; tells shards and its worker.  The tasks are free
 * again when all shards know of the fence (fal_sched_note_fenced). */
void fal_contrib_fence(struct fal_sched *s, struct fal_round *r, uint32_t ci);
/* Takes all from `w`: tasks, open contributions, eval tasks, checks.  wants_revokes:
 * tells the worker to forget its tasks. */
void fal_worker_strip(struct fal_sched *s, struct fal_worker *w, bool wants_revokes,
		      double now);

/* Forms the teams of a new policy. */
void fal_teams_form(struct fal_sched *s);
/* Frees the teams and the scheme's state. */
void fal_teams_free(struct fal_sched *s);
/* Makes an empty team at index `at`, the last one; its clock is the slowest clock. */
struct fal_team *fal_team_new(struct fal_sched *s, uint32_t at, uint32_t id);
/* Sets the team's number of active workers and its clock.  The team may then be able to
 * begin a round; so may other teams, if this team was the slowest. */
void fal_team_update(struct fal_sched *s, struct fal_team *t, uint32_t members,
		     uint64_t clock);
/* Puts a worker that has joined into a team. */
void fal_team_assign(struct fal_sched *s, struct fal_worker *w);
/* Updates the numbers of active workers of job and team after a change of `w`.  Abandons
 * the rounds of a team without workers. */
void fal_worker_recount(struct fal_sched *s, struct fal_worker *w, double now);
/* Closes the gaps between teams. */
void fal_teams_compact(struct fal_sched *s);
/* Notes that any team may be able to begin a round. */
void fal_teams_wake(struct fal_sched *s);
/* Begins all rounds that may begin, or the first one of a team if some task must be
 * retried: who may begin the next round depends on the tasks that are left.  O(log W) for
 * each team that may be able to. */
void fal_teams_begin_rounds(struct fal_sched *s, double now);
/* Opens a round of a task of another scheduler (fal_sched_open_external). */
void fal_round_open_external(struct fal_sched *s, const struct fal_external_task *b,
			     double now);
/* Sends `w` the newest version or, unless branch_version is 0, this version of its
 * branch; deadlines of grants from now on include that pull. */
void fal_worker_pull(struct fal_sched *s, struct fal_worker *w, uint64_t branch_version,
		     double now);
/* The least clock of the teams with active workers, except `but` (NULL: of all).
 * UINT64_MAX: no such team.  O(1). */
uint64_t fal_slowest_clock(const struct fal_sched *s, const struct fal_team *but);
/* Teams with active workers. */
uint32_t fal_teams_count_active(const struct fal_sched *s);

/* Does this rule order updates before their rounds are complete? */
bool fal_commits_early(const struct fal_sched *s);
/* Orders all updates that can be ordered now. */
void fal_rounds_commit_early(struct fal_sched *s, double now);

/* ---- probation.c ---- */

/* Reviews the debts of `w`: pings `w`, or makes `w` a suspect, if a debt is due. */
void fal_deadline_review(struct fal_sched *s, struct fal_worker *w, double now);
/* `w` answers the ping that was sent at `asked`; `steps` is the progress of its lanes.
 * True: `w` is a suspect now. */
bool fal_deadline_note_answer(struct fal_sched *s, struct fal_worker *w, double asked,
			      uint64_t steps, double now);
/* `w` leaves.  If other workers wait for a debt of `w` that is beyond the usual time, its
 * key pays. */
void fal_deadline_note_leave(struct fal_sched *s, struct fal_worker *w, double now);
/* Call this when no worker of another key is left for a retry.  Recalls the suspects that
 * have sent messages, unless they were recalled before and no work of theirs has arrived
 * since; pings the other suspects. */
void fal_suspects_recall_for_retry(struct fal_sched *s, double now);
/* Notes that work of `w` has arrived. */
void fal_probation_note_work(struct fal_sched *s, struct fal_worker *w, double now);
/* Ends a probation that is over; begins the next one when it is due. */
void fal_probation_advance(struct fal_sched *s, double now);
/* The time until which workers of the key get no work; `now`: the key is not barred. */
double fal_key_barred_until(const struct fal_sched *s, uint32_t key, double now);

/* ---- retry.c ---- */

/* `w` has claimed the task without a finite result: the task is retried; if this was the
 * retry, the task is skipped or ends the job. */
void fal_retry_nonfinite(struct fal_sched *s, double now, struct fal_round *r,
			 struct fal_worker *w, uint32_t task);
/* Forgets the retry of a task that has a result now. */
void fal_retry_clear(struct fal_sched *s, const struct fal_round *r, uint32_t task);
/* Forgets the retries of a cancelled round. */
void fal_retry_clear_round(struct fal_sched *s, const struct fal_round *r);
/* Draws the worker for the retry of the task; NULL: there is no retry, or any worker may
 * do the retry. */
struct fal_worker *fal_retry_draw(struct fal_sched *s, const struct fal_round *r,
				  uint32_t task);
/* Do the retries allow `w` to have the task? */
bool fal_retry_allows(const struct fal_sched *s, const struct fal_worker *w,
		      const struct fal_round *r, uint32_t task);
/* Bars workers from rounds while the next round begins with a task that other workers
 * must retry.
 * True: some worker is newly barred, or free again. */
bool fal_retries_review(struct fal_sched *s, double now);

/* ---- planner.c ---- */

/* Grants the free tasks of the round. */
void fal_round_plan(struct fal_sched *s, struct fal_round *r, double now);

/* ---- eval.c ---- */

/* Grants eval tasks to idle workers. */
void fal_eval_grant_idle(struct fal_sched *s, double now);
/* Counts the evaluation of `task` by `w`: see fal_sched_claim_eval. */
int fal_eval_claim(struct fal_sched *s, struct fal_worker *w, uint32_t task,
		   uint32_t samples, double task_s, double now);

#endif
