/* The scheduler's state, shared by the files of lib/sched only.  Each file calls files
 * below it in this list alone; schemes are called through their table (scheme.h):
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
 *	pool.c ledger.c heap.c window_stats.c bound.c policy.c   objects without a
 *scheduler
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

/* The measurements of a worker at one lane count. */
struct fal_pace {
	double task_s;    /* EWMA of a full task's seconds; 0: unknown */
	uint32_t nearest; /* nearest lane count with a known task_s; 0: none is known */
};

/* Turns: the repeated works of a worker that the coordinator times itself. */
enum fal_turn_kind {
	FAL_TURN_TASK, /* a lane may begin the task → the claim arrives; full tasks only
			*/
	FAL_TURN_PUSH, /* the contribution is closed → its last block arrives */
	FAL_TURNS
};

/* The workers that share rounds. */
struct fal_team {
	uint32_t id;      /* of its one worker; or of the group, from 1; 0: of all */
	uint32_t at;      /* its place in fal_sched.team */
	uint32_t members; /* active workers */
	uint32_t open;    /* its open rounds, without those whose commit is reported */
	struct fal_round *rounds; /* its open rounds, oldest first, by `next` */
	uint32_t part;            /* its part of the data */
	uint64_t begun;           /* rounds begun, ever */
	uint64_t clock;           /* its own clock: rounds that were applied or dropped */
	uint64_t line;            /* newest version of its branch; 0: no branch */
	uint64_t version; /* its last pull; UINT64_MAX: none, or its round was lost */
	void *state;      /* the scheme's: fal_scheme.team_state_bytes */
};

/* Some tasks.  Their cost depends on both numbers, as each task has a fixed part. */
struct fal_load {
	uint32_t tasks;
	uint64_t samples;
};

/* Does the job trust the worker with tasks?  (probation.c) */
enum fal_standing {
	FAL_MEMBER,    /* a full member */
	FAL_PROBATION, /* a former suspect, given one task to prove itself */
	FAL_SUSPECT,   /* has missed a deadline, and gets no task */
	FAL_CLEARED    /* a suspect whose work has arrived: soon a full member */
};

struct fal_worker {
	uint32_t id;
	char name[FAL_WORKER_NAME];
	uint32_t key;      /* the owner: workers of one key are one witness */
	uint32_t numerics; /* workers with equal ones compute equal bits; 0: its own */
	bool has_left;
	bool is_excluded;   /* by policy */
	bool is_on_standby; /* its fingerprint does not count */
	/* retry.c: other workers must retry a task that has no result of this one.
	 * is_barred: begins no round; is_waiting: and has none open, so that no other
	 * worker waits for this one. */
	bool is_barred, is_waiting;
	bool is_counted;       /* in the numbers of active workers of job and team */
	double weight;         /* of its share, by policy; < 0: as projected */
	char site[FAL_SITE];   /* by policy; "": none */
	struct fal_team *team; /* NULL: the worker has left */
	uint64_t version;      /* the version that was sent last */

	uint32_t lanes, lanes_min, lanes_max, cores;
	uint32_t own_min, own_max; /* lanes, without the policy's bounds */
	uint32_t lanes_held;       /* clocks since the last change of the lanes */

	/* Measurements (projection.c, deadlines.c). */
	struct fal_pace *pace; /* by lane count */
	double probe_s;        /* its own probe at one lane; 0: unknown */
	/* The share of a full task's seconds that a task of any size takes; NAN: unknown,
	 * then the typical share. */
	double fixed;
	struct fal_window recent;   /* seconds of full tasks */
	double eval_s;              /* EWMA of a full eval task's seconds; 0: unknown */
	struct fal_window_min pull; /* grant → computation begins */
	struct fal_window_min push; /* last claim → contribution counted */
	double claim_wait_s;        /* end of its last task → arrival of the claim */
	double rtt, last_rtt;       /* a round trip, smoothed; the last one */
	struct fal_window turn[FAL_TURNS]; /* seconds, as on lanes with a core each */
	/* The help of other workers, which take its tasks. */
	struct {
		double clock_s; /* seconds saved in this clock, or that could have been */
		double mean_s;  /* the mean over `clocks` clocks without the first */
		uint32_t clocks;
	} help;

	/* Work. */
	struct fal_node *head, *tail; /* its queue, by round */
	uint32_t queued;
	uint64_t queued_samples;
	uint32_t open_contribs;
	struct fal_intervals seqs; /* numbers of all its contributions */
	uint64_t collected_round;  /* its last round of local steps that was collected */
	uint64_t grants, claims;
	uint32_t preclaims; /* contributions that were claimed ahead */
	bool is_group;      /* a group server: nothing is claimed ahead */
	uint32_t evals;     /* eval tasks in its queue */
	uint32_t checks;    /* checks without an answer (verify.c) */
	uint32_t charges;
	struct fal_work work; /* since the last ACCOUNT */

	/* Plan (planner.c). */
	uint32_t plan[FAL_SPANS]; /* tasks about to be granted */
	struct fal_load planned;  /* the planned tasks that begin together */
	uint32_t idle_clocks;     /* clocks in a row without a share */
	/* Tries of a worker without shares, since its last result from an ordinary share;
	 * true: its last tasks came by such a try. */
	uint32_t tries;
	bool is_tried;

	/* Times.  The pull timer runs from the begin of a round in which the worker
	 * held nothing to its first claim, and measures the pull. */
	struct {
		bool is_running;
		double since;
		uint64_t round; /* the round, or the first of several that began */
	} pull_timer;
	double pullable_at; /* its version was there to pull; INFINITY: not yet */
	double pulled_at;   /* the version is pulled; may lie in the future */
	double progress_at; /* its last progress */
	double finish;      /* projected finish; see fal_worker_refresh */
	double empty_since; /* may compute nothing; negative: has a task to compute */
	double block_at;    /* its last block arrived */
	struct {
		double at; /* a task of this round was last taken away */
		uint64_t round;
	} relieved;
	double running_since; /* begin of its oldest running task */
	double heard_at;      /* its last message */

	/* Deadlines. */
	double reviewed_at; /* its debts were last looked at */
	double excused_to;  /* no debt is due before */
	double spared_at;   /* it was last late while no other worker waited */
	struct {
		double asked_at; /* a ping is under way since; negative: none */
		uint64_t steps;  /* the last answer, */
		double answered_at;
	} ping;

	enum fal_standing standing;
	struct {
		double since;      /* when it last became a suspect */
		bool has_task;     /* on probation: its task was granted */
		bool is_recalled;  /* back for a retry, without work of its own since */
		bool is_announced; /* by SUSPECT, and not yet by BACK, */
		double announced_at;
		uint32_t failures; /* of probations, in a row */
		double next_at;    /* no probation before */
	} suspicion;
};

/* A task in the queue of a worker.  A task may be in many queues. */
struct fal_node {
	struct fal_node *prev, *next; /* in the queue */
	struct fal_node *other;       /* the next older holder of the task */
	struct fal_round *round;
	uint32_t task;    /* of the round's clock */
	uint32_t slot;    /* of the worker */
	double pulled_at; /* its worker has pulled the version */
	double began;     /* a lane began the task; negative: not yet */
	bool is_regrant;  /* the same worker had the task before */
};

/* An update that is ordered before its round is complete (rounds.c). */
enum fal_commit {
	FAL_COMMIT_NONE,
	FAL_COMMIT_ORDERED, /* the round's end is ordered */
	FAL_COMMIT_REPORTED /* all results are reported, too: the team may go on */
};

/* Has the round all contributions, and all reports of their tasks? */
enum fal_completion {
	FAL_ROUND_INCOMPLETE,
	FAL_ROUND_UNREPORTED, /* complete but for reports */
	FAL_ROUND_COMPLETE
};

struct fal_round {
	uint64_t id;
	struct fal_round_info info; /* fal_sched_round sets the members that change */
	uint64_t order; /* among its team's rounds under this policy, from 0 */
	struct fal_team *team;
	struct fal_round *older, *newer; /* of all open ones */
	struct fal_round *next;          /* of its team; or of the ended, or spare ones */
	struct fal_round *chain;         /* in fal_sched.known */
	bool has_ended;
	enum fal_completion completion;
	enum fal_commit commit;
	struct fal_ledger ledger;
	struct fal_node **held; /* by task: its newest holder; NULL: none */
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
	struct fal_pool pool;
	struct fal_rng rng;

	uint64_t version;    /* newest */
	uint64_t published;  /* the newest that all shards have made, */
	double published_at; /* … and since when */
	uint64_t lines;      /* versions of branches, ever */
	uint64_t first;      /* version at which the policy began to hold */
	uint64_t whole;      /* the clocks from here on have tasks of this policy only */
	uint64_t allowed;    /* rounds of clocks before this one may begin */
	bool is_held;
	double clock_ended_at, clock_s; /* the last end of a clock, 0: none; EWMA */

	/* The rounds that were collected for the next update. */
	struct {
		uint32_t rounds;
		uint64_t samples, clock; /* clock: the newest */
		double share;            /* Σ of the rounds' shares of their clocks */
		double step_samples; /* of a whole step: `samples` are a share of it */
	} pending;

	struct fal_worker *worker; /* by slot, in order of ids */
	uint32_t workers;
	uint32_t last_id; /* of all that ever joined */
	size_t worker_cap;
	uint32_t active; /* workers that may work: fal_worker_active */
	uint32_t left;   /* slots of workers that have left */
	uint32_t barred; /* workers (retry.c) */

	/* Typical values over the job's workers. */
	struct {
		double task_s;  /* EWMA of a full task's seconds; 0: unknown */
		double fixed;   /* EWMA of the fixed share; NAN: unknown, taken as 0 */
		double probe_s; /* the least probe of all; 0: none */
		uint32_t unmeasured;          /* workers without a measured task */
		uint32_t measured[FAL_TURNS]; /* workers with a measured turn, ever */
		double turn_s[FAL_TURNS];     /* lower median over workers; 0: unknown; */
		/* … as computed when the three were so large. */
		uint64_t at_over;
		double at_probe_s;
		uint32_t at_measured[FAL_TURNS];
		double *scratch; /* of the medians; room for a value of each worker */
		size_t scratch_cap;
	} typical;

	/* Suspects (probation.c). */
	double patience; /* factor of all deadlines */
	struct {
		uint32_t worker;     /* on probation now, or last; 0: none ever */
		double next_at;      /* no probation before, */
		uint64_t next_clock; /* … nor before so many clocks are over */
	} probation;
	struct fal_key_debt { /* of keys with workers that were suspects */
		uint32_t key;
		double lost;       /* seconds that others have waited, less those paid */
		double at;         /* the time of `lost` */
		double until;      /* waits until then are counted */
		bool is_announced; /* by BARRED, since the key owed nothing */
	} *debt;
	size_t debts, debt_cap;

	struct fal_team **team; /* teams of one worker: by its slot; NULL: has left */
	uint32_t teams;
	size_t team_cap;
	struct fal_heap behind; /* teams with active workers; least clock first */
	struct fal_heap eager;  /* teams that may be able to begin a round */
	uint64_t
		slowest; /* least clock in `behind`; the last known where that is empty */
	uint32_t *manned; /* by part of the data: teams with active workers */

	/* Tasks to be retried, and the worker without a finite result. */
	struct fal_retry {
		uint64_t clock;
		uint32_t task, worker, key;
	} *retry;
	uint32_t retries;
	size_t retry_cap;
	/* Tasks that were non-finite twice, of clocks that are not over. */
	struct fal_skip {
		uint64_t clock;
		uint32_t task;
	} *skip;
	uint32_t skipped;
	size_t skip_cap;

	struct fal_round *oldest, *newest; /* open ones */
	uint32_t rounds;                   /* open */
	struct fal_round *ended;           /* not forgotten yet */
	struct fal_round *spare;           /* memory for others */
	struct fal_round **known; /* open or ended: a hash table by id, with chains */
	size_t knowns, known_cap; /* known_cap: a power of 2 */
	uint32_t unreported;      /* open rounds with FAL_ROUND_UNREPORTED */
	uint64_t next_round;
	uint64_t unplanned;      /* free tasks of the open rounds */
	struct fal_round *needy; /* no older round has free tasks; NULL: none has */

	/* Heaps of workers, by their slots. */
	union {
		struct fal_heap of_workers[FAL_HEAPS_OF_WORKERS];
		struct {
			/* Active workers, by tasks to give or to take: */
			struct fal_heap takers;  /* nothing unstarted; by finish after one
						    task more */
			struct fal_heap donors;  /* something unstarted; latest finish
						    first */
			struct fal_heap runners; /* running a task without a newer holder;
						    latest finish first */
			struct fal_heap idle;    /* holding nothing; fastest first */
			struct fal_heap due;     /* in debt; by the next look at it */
			struct fal_heap suspects; /* that have spoken since; by
						     suspicion.next_at */
			struct fal_heap awaits;  /* waiting for a version to be published;
						    by version */
			struct fal_heap planner; /* scratch of planner.c */
			struct fal_heap scheme_heap[2]; /* the scheme's */
		};
	};

	bool has_fixed_shares; /* a worker's weight is laid down */
	double quota; /* shares by speed: samples of a plan for a task per second */
	bool is_planning_late; /* the planned tasks wait for a version of their own */

	/* The evaluation of the test set (eval.c). */
	struct {
		uint32_t tasks, left; /* all; not yet evaluated */
		struct fal_eval_task {
			uint32_t holder; /* worker id, 0: none, FAL_EVALUATED */
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

#define FAL_EVALUATED UINT32_MAX /* no worker's id */
#define FAL_OWN_KEY 0x80000000u  /* set in the key of a worker without one */

static inline bool
fal_worker_is_suspect(const struct fal_worker *w)
{
	return w->standing >= FAL_SUSPECT;
}

/* May the worker work, apart from retries that other workers must do first? */
static inline bool
fal_worker_able(const struct fal_worker *w)
{
	return !w->has_left && !fal_worker_is_suspect(w) && !w->is_excluded &&
	       !w->is_on_standby;
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

/* The queued load without the tasks that wait for a version under a slack that is a
 * fraction. */
struct fal_load fal_load_runnable(const struct fal_sched *s, const struct fal_worker *w);

/* When a task of round `r` was taken from `w`, if none of another round was since; else
 * 0.
 */
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

/* The worker of a team of one; NULL: teams have several. */
static inline struct fal_worker *
fal_team_worker(const struct fal_sched *s, const struct fal_team *t)
{
	return s->traits.own ? &s->worker[t->at] : NULL;
}

/* May `w` work for round `r`?  A group's round needs its version at the worker; in the
 * one team of all every worker has the version. */
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
/* The round of this number that is open, or has ended and is not forgotten; NULL:
 * unknown. O(1). */
struct fal_round *fal_round_known(const struct fal_sched *s, uint64_t id);
/* The same, open ones only. */
struct fal_round *fal_round_find(const struct fal_sched *s, uint64_t id);
/* The oldest open round with tasks to compute, or NULL. */
const struct fal_round *fal_oldest_unfinished_round(const struct fal_sched *s);
/* The retry of the task, or NULL. */
struct fal_retry *fal_retry_find(const struct fal_sched *s, uint64_t clock,
				 uint32_t task);
/* The worker on probation, or NULL. */
struct fal_worker *fal_probation_worker(const struct fal_sched *s);
/* The worker on probation, if its task is still to be granted; else NULL. */
struct fal_worker *fal_probation_unserved(const struct fal_sched *s);

/* ---- projection.c ---- */

/* Seconds of a full task on a lane of `w` at `lanes` lanes; a guess without measurements.
 */
double fal_task_s(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes);
/* The cost of some tasks for `w`, in full tasks: the fixed part of each, the rest by
 * samples. */
double fal_load_size(const struct fal_sched *s, const struct fal_worker *w,
		     struct fal_load load);
/* Full tasks per second of `w` at `lanes` lanes. */
double fal_worker_rate(const struct fal_sched *s, const struct fal_worker *w,
		       uint32_t lanes);
/* Takes over the history of `w`, until `w` is measured; a history at more lanes than `w`
 * may run is ignored. */
void fal_worker_restore(struct fal_worker *w, const struct fal_history *was);
/* Seconds of a full eval task. */
double fal_eval_task_s(const struct fal_sched *s, const struct fal_worker *w);
/* Speeds that differ by this factor are different ones. */
#define FAL_JUMP 1.5

/* Counts a claimed task that took `task_s` seconds; size: in full tasks.  The task joins
 * the last pace if their speeds are alike, else begins a pace; beyond FAL_WORK_PACES the
 * two neighbours that differ least become one (Ward). */
void fal_work_add(struct fal_work *work, double task_s, uint32_t samples, double size);

/* Measures a task of so many samples that took `task_s` seconds.  O(1), O(lanes) once for
 * each lane count. */
void fal_worker_measure(struct fal_sched *s, struct fal_worker *w, double task_s,
			uint32_t samples);
/* Adds `x` to a moving average; *mean 0: no value yet. */
void fal_ewma(double *mean, double x);
/* Adds what was found of a worker's fixed part to the typical one. */
void fal_typical_add_fixed(struct fal_sched *s, double fixed);
/* A full task that has run for longer is late: median + 6·max(MAD, 5 %). */
double fal_task_late_s(const struct fal_sched *s, const struct fal_worker *w);
/* When `w` will have finished `first`, the front of its queue, and `extra` more, pushing
 * included: running tasks end on their lanes, the others follow lane by lane. */
double fal_worker_project(const struct fal_sched *s, const struct fal_worker *w,
			  struct fal_load first, struct fal_load extra, double now);

/* ---- deadlines.c ---- */

/* Nothing extends a deadline beyond this factor. */
#define FAL_DEADLINE_TIMES_MAX 10.0

/* The debt of a worker that is due first. */
struct fal_debt {
	double first;     /* owed since; INFINITY: no debt */
	double since;     /* the last sign of the owed work */
	double allowed_s; /* seconds from `since` on */
	enum fal_turn_kind kind;
	const char *what; /* "task", "push" or "eval" */
	/* The open contribution that must be complete first: owed since, and until. */
	double push_first, push_until;
};

/* The seconds that may pass at `w` from the moment at which a full task and its version
 * are there to the claim of the task: median + 6·max(MAD, 5 %) of the times measured
 * here; without such, 4 times the median of the other workers, or 10 times the least
 * probe. Floors: 4 RTT, of a second at most, and 200 ms.  On probation twice as long for
 * each failed one in a row; twice as long with checks, which come first. */
double fal_task_deadline_s(const struct fal_sched *s, const struct fal_worker *w);
/* Adds a turn of `w` that took so many seconds. */
void fal_turn_add(struct fal_sched *s, struct fal_worker *w, enum fal_turn_kind kind,
		  double seconds);
/* Recomputes the typical turns, if a clock has ended since, or twice as many workers are
 * measured; false: nothing has changed. */
bool fal_typical_update(struct fal_sched *s);
/* Seconds of a full task of `w` as measured here, else a guess. */
double fal_turn_typical_s(const struct fal_sched *s, const struct fal_worker *w);
/* Has no worker of the job measured or told the time of a task? */
bool fal_turns_unknown(const struct fal_sched *s);

struct fal_debt fal_debt_of(const struct fal_sched *s, const struct fal_worker *w);
/* The debt is overdue then, whatever its worker answers. */
double fal_debt_limit(const struct fal_sched *s, const struct fal_worker *w,
		      const struct fal_debt *d);
/* The debt is due: later only if the lanes of the worker go on. */
double fal_debt_due_at(const struct fal_sched *s, const struct fal_worker *w,
		       const struct fal_debt *d);
/* Is the worker asked for this debt, and has not answered? */
bool fal_debt_is_asked(const struct fal_worker *w, const struct fal_debt *d);
/* When the debt must be looked at. */
double fal_debt_next_look(const struct fal_sched *s, const struct fal_worker *w,
			  const struct fal_debt *d);
/* When the debts of `w` must be looked at, `late` at the latest; INFINITY: no debt. */
double fal_deadline_next_look(const struct fal_sched *s, const struct fal_worker *w,
			      double late);

/* ---- queues.c ---- */

/* Queues an action for the caller. */
void fal_act_emit(struct fal_sched *s, struct fal_act act);
/* Extends the range of the last action by the task where they touch; else queues the
 * action. */
void fal_act_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task);
/* Sets the lanes of the worker, and tells the worker. */
void fal_worker_set_lanes(struct fal_sched *s, struct fal_worker *w, uint32_t lanes);
/* Recomputes the projection of `w` and its places in the heaps. */
void fal_worker_refresh(struct fal_sched *s, struct fal_worker *w, double now);
/* Only its place in the heap `due`. */
void fal_worker_refresh_deadline(struct fal_sched *s, struct fal_worker *w);
/* Tells the scheme that something of the round changed, if the round has one worker. */
void fal_round_notify_owner(struct fal_sched *s, const struct fal_round *r);
/* The node of the task in the queue of `w`, or NULL. */
struct fal_node *fal_node_find(const struct fal_sched *s, const struct fal_round *r,
			       uint32_t task, const struct fal_worker *w);
/* Removes the node from all lists. */
void fal_node_detach(struct fal_sched *s, struct fal_node *node);
/* Takes the task from its worker and tells the worker, unless it has left.  A running
 * task counts as cut. */
void fal_node_revoke(struct fal_sched *s, struct fal_node *n, double now);
/* Moves the task to `to`. */
void fal_node_move(struct fal_sched *s, struct fal_node *node, struct fal_worker *to,
		   double now);
/* The last unstarted task of the oldest round in the queue of `w`, or NULL. */
struct fal_node *fal_worker_last_unstarted(const struct fal_sched *s,
					   const struct fal_worker *w);
/* A running task of `w` that was granted to no other worker since, or NULL. */
struct fal_node *fal_worker_uncloned(const struct fal_worker *w);
/* Grants a running task of `from` to `to`, too, if one is uncloned. */
void fal_worker_clone_task(struct fal_sched *s, struct fal_worker *from,
			   struct fal_worker *to, double now);
/* Grants `w` a free task of the round.  is_firm: a task granted for the first time, to a
 * worker whose tasks never move. */
void fal_task_grant(struct fal_sched *s, struct fal_worker *w, struct fal_round *r,
		    uint32_t task, bool is_firm, double now);
/* Adds the task to the free tasks of its round. */
void fal_task_release(struct fal_sched *s, struct fal_round *r, uint32_t task);
/* Removes the task from the queues and from the free tasks; tells its holders. */
void fal_task_withdraw(struct fal_sched *s, struct fal_round *r, uint32_t task,
		       double now);
/* Removes the task from the queue of `w`, which has claimed it; other holders keep it.  A
 * worker that was granted the task twice may have claimed it before the second grant
 * came, and is told: else the worker would run the task again. */
void fal_task_drop_claimed(struct fal_sched *s, const struct fal_round *r, uint32_t task,
			   const struct fal_worker *w);
/* The same, without a word: the worker knows. */
void fal_task_drop(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		   const struct fal_worker *w);
/* Tells the worker to forget the task. */
void fal_task_revoke(struct fal_sched *s, const struct fal_worker *w,
		     const struct fal_round *r, uint32_t task);

/* ---- verify.c ---- */

/* Asks a worker of another key to compute a claim of `of` once more, if one can. */
void fal_verify_request(struct fal_sched *s, struct fal_round *r,
			const struct fal_worker *of, const struct fal_claim_report *c,
			double now);
/* Takes back the checks of a worker (NULL: of all) and a round (NULL: of all). */
void fal_verify_cancel(struct fal_sched *s, const struct fal_worker *w,
		       const struct fal_round *r, double now);

/* ---- rounds.c ---- */

/* Ends the round: `end` says its fate, weight, slot, below and why.  Held tasks are taken
 * away; the tasks are over, or, abandoned, come back to the pool.  The staleness must be
 * set before. */
void fal_round_end(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		   double now);
/* The same for a round that was committed early, when its update is made. */
void fal_round_end_committed(struct fal_sched *s, struct fal_round *r, double now);
void fal_round_free(struct fal_round *r);
/* Empties the pending update. */
void fal_pending_clear(struct fal_sched *s);
/* Applies the pending update, as a part of a step of `divisor` samples. */
void fal_pending_apply(struct fal_sched *s, double divisor);
/* Nothing is open, and nothing waits for an update. */
bool fal_sched_is_drained(const struct fal_sched *s);
/* Asks `w` to account for its time up to now, the end of round `r`. */
void fal_worker_account(struct fal_sched *s, struct fal_worker *w,
			const struct fal_round *r);
/* The same of all workers. */
void fal_workers_account(struct fal_sched *s, const struct fal_round *r);
/* Sets the round's staleness: `behind`, the clocks between its team and the slowest, and
 * the updates since its version. */
void fal_round_set_staleness(struct fal_sched *s, struct fal_round *r, uint64_t behind);
/* Samples of the round's tasks; the same without skipped tasks. */
uint32_t fal_round_samples(const struct fal_sched *s, const struct fal_round *r);
uint32_t fal_round_counted_samples(const struct fal_sched *s, const struct fal_round *r);
/* The divisor of the sum of a round that is applied alone, as its part of its clock: the
 * clock's samples without those that the round has skipped; 0: the round has skipped all.
 */
double fal_round_divisor(const struct fal_sched *s, const struct fal_round *r);
/* Skips the task in the round, and in later rounds of its clock: no worker gets it. */
void fal_task_skip(struct fal_sched *s, struct fal_round *r, uint32_t task, double now);
/* Fences the open contribution `ci`; shards and its worker are told.  Its tasks are free
 * again when all shards know (fal_sched_note_fenced). */
void fal_contrib_fence(struct fal_sched *s, struct fal_round *r, uint32_t ci);
/* Takes all from `w`: tasks, open contributions, eval tasks, checks.  wants_revokes: the
 * worker is told of its tasks. */
void fal_worker_strip(struct fal_sched *s, struct fal_worker *w, bool wants_revokes,
		      double now);

/* Forms the teams of a new policy. */
void fal_teams_form(struct fal_sched *s);
/* Frees the teams and the scheme's state. */
void fal_teams_free(struct fal_sched *s);
/* Makes an empty team at place `at`, behind all others; its clock is the slowest. */
struct fal_team *fal_team_new(struct fal_sched *s, uint32_t at, uint32_t id);
/* Sets the team's number of active workers and its clock: the team may begin, and others,
 * if it was the slowest. */
void fal_team_update(struct fal_sched *s, struct fal_team *t, uint32_t members,
		     uint64_t clock);
/* Gives a worker that joined its team. */
void fal_team_assign(struct fal_sched *s, struct fal_worker *w);
/* Counts the worker, which came, left or changed, in its team and in the job.  Rounds of
 * a team without workers are abandoned. */
void fal_worker_recount(struct fal_sched *s, struct fal_worker *w, double now);
/* Closes the gaps between teams. */
void fal_teams_compact(struct fal_sched *s);
/* Notes that any team may be able to begin a round. */
void fal_teams_wake(struct fal_sched *s);
/* Begins all rounds that may begin.  O(log W) for each team that may be able to. */
void fal_teams_begin_rounds(struct fal_sched *s, double now);
/* Opens a round of a task of another scheduler (fal_sched_open_external). */
void fal_round_open_external(struct fal_sched *s, const struct fal_external_task *b,
			     double now);
/* Sends `w` the newest version, or version `line` of its branch; grants from now on are
 * due after that pull. */
void fal_worker_pull(struct fal_sched *s, struct fal_worker *w, uint64_t line,
		     double now);
/* The least clock of the teams with active workers, except `but` (NULL: of all).
 * UINT64_MAX: no such team.  O(1). */
uint64_t fal_slowest_clock(const struct fal_sched *s, const struct fal_team *but);
/* Teams with active workers. */
uint32_t fal_teams_count_active(const struct fal_sched *s);

/* Does this rule order updates before their rounds are complete? */
bool fal_commits_early(const struct fal_sched *s);
/* Orders all updates that can be ordered. */
void fal_rounds_commit_early(struct fal_sched *s, double now);

/* ---- probation.c ---- */

/* Seconds that a key may cost other workers, or so many typical tasks or pushes; and the
 * share of each second that it may cost beyond that. */
#define FAL_COST_FREE_S 2.0
#define FAL_COST_FREE_TURNS 16
#define FAL_COST_PART 0.02

/* Looks at the debts of `w`: pings the worker, or makes it a suspect. */
void fal_deadline_review(struct fal_sched *s, struct fal_worker *w, double now);
/* `w` answers a ping of `asked`: its lanes are `steps` far.  True: `w` is a suspect now.
 */
bool fal_deadline_note_answer(struct fal_sched *s, struct fal_worker *w, double asked,
			      uint64_t steps, double now);
/* `w` leaves: its key pays for a debt beyond the usual time, if others wait for it. */
void fal_deadline_note_leave(struct fal_sched *s, struct fal_worker *w, double now);
/* No other key is left for a retry: suspects that speak are back, unless they were before
 * without any work since; the others are pinged. */
void fal_suspects_recall_for_retry(struct fal_sched *s, double now);
/* Notes that work of `w` has arrived. */
void fal_probation_note_work(struct fal_sched *s, struct fal_worker *w, double now);
/* Ends a probation, begins the next one, if that is due. */
void fal_probation_advance(struct fal_sched *s, double now);
/* The time until which workers of the key get no work; `now`: they may get some. */
double fal_key_barred_until(const struct fal_sched *s, uint32_t key, double now);

/* ---- retry.c ---- */

/* `w` has claimed the task without a finite result: the task is retried, or, after the
 * retry, is skipped or ends the job. */
void fal_retry_nonfinite(struct fal_sched *s, double now, struct fal_round *r,
			 struct fal_worker *w, uint32_t task);
/* Forgets the retry of the task, which has a result now. */
void fal_retry_clear(struct fal_sched *s, const struct fal_round *r, uint32_t task);
/* Forgets the retries of a round that is not wanted any more. */
void fal_retry_clear_round(struct fal_sched *s, const struct fal_round *r);
/* Draws the worker for the retry of the task; NULL: no retry, or any worker may do it. */
struct fal_worker *fal_retry_draw(struct fal_sched *s, const struct fal_round *r,
				  uint32_t task);
/* May `w` have the task? */
bool fal_retry_allows(const struct fal_sched *s, const struct fal_worker *w,
		      const struct fal_round *r, uint32_t task);
/* Bars workers from rounds while the next round has a task that others must retry.
 * True: some are barred, or free again. */
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
