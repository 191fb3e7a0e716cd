/* The scheduler's state, shared by its own files only; what each of them does for the
 * others stands in its header:
 *
 *	scheduler.c   workers, claims, time; what follows every event
 *	rounds.c      rounds, the teams that have them, ends ordered ahead
 *	queues.c      the workers' queues, the heaps over them; who gets free tasks
 *	deadlines.c   what workers owe, and until when; suspects and trials
 *	projection.c  what is measured, what is projected from it
 *	retry.c       tasks without a finite result, and those that are skipped
 *	eval.c        the test set
 *	verify.c      claims that another key computes once more
 *	pool.c, ledger.c   tasks not handed out; who claimed what, who was given what
 *	heap.c, recent.c   a heap; the last measurements of something
 *	bound.c       what a clock is held against
 *	policy.c      rules, what each scheme is, policies
 *	bsp.c epsp.c asp.c … what each scheme does, and keeps of its own: scheme.h */
#ifndef FAL_SCHED_STATE_H
#define FAL_SCHED_STATE_H

#include "base/intervals.h"
#include "base/rng.h"
#include "sched/heap.h"
#include "sched/policy.h"
#include "sched/pool.h"
#include "sched/sched.h"
#include "sched/window_stats.h"

/* Nothing extends a deadline beyond so many times itself. */
#define FAL_DEADLINE_TIMES_MAX 10.0

/* What is measured at one lane count. */
struct fal_pace {
	double task_s;    /* EWMA of a full task's seconds; 0: unknown */
	uint32_t nearest; /* nearest lane count with a known task_s; 0: none is known */
};

/* What workers do over and over, and the coordinator measures. */
enum fal_turn_kind {
	FAL_TURN_TASK, /* a lane may begin with it → its claim is heard; full tasks */
	FAL_TURN_PUSH, /* nothing more is to come before it → it has arrived */
	FAL_TURNS
};

/* Workers that share rounds. */
struct fal_team {
	uint32_t id;              /* of its one worker, or of the group from 1; 0: all */
	uint32_t at;              /* its place in fal_sched.team */
	uint32_t members;         /* active workers */
	uint32_t open;            /* its open rounds, but for those that are passed */
	struct fal_round *rounds; /* these, oldest first, by `next` */
	uint32_t part;            /* of the data */
	uint64_t begun;           /* its rounds, ever */
	uint64_t clock;   /* its rounds that were applied or dropped: its own clock */
	uint64_t line;    /* newest version of its line; 0: it has none */
	uint64_t version; /* it pulled last; UINT64_MAX: none, or its round was lost */
	void *own;        /* the scheme's: see fal_scheme.team_own */
};

/* Some tasks.  What they take goes by both: each has a fixed part. */
struct fal_load {
	uint32_t tasks;
	uint64_t samples;
};

struct fal_worker {
	uint32_t id;
	char name[FAL_WORKER_NAME];
	uint32_t key;      /* whose: workers of one key are one witness */
	uint32_t numerics; /* those with the same compute the same bits; 0: its own */
	bool gone, suspected;
	bool excluded; /* by policy */
	/* Others are to retry what it got no result for: it begins no round (retry.c);
	 * and has none open, so that nobody waits for it. */
	bool barred, waits;
	bool stands_by;        /* its fingerprint does not count */
	bool counted;          /* among the active ones, its team's, too */
	double weight;         /* of its share, by policy; < 0: as projected */
	char site[FAL_SITE];   /* by policy; "": none */
	struct fal_team *team; /* NULL: gone */
	uint64_t version;      /* that it was sent last */
	uint32_t lanes, lanes_min, lanes_max, cores;
	uint32_t own_min, own_max; /* lanes, without the policy's bounds */
	uint32_t lanes_held;       /* clocks since the lanes last changed */
	struct fal_pace *pace;     /* by lane count */
	struct fal_intervals seqs; /* numbers that it has given to contributions */
	double probe_s;            /* its own probe at one lane; 0: unknown */
	/* The part of a full task's seconds that a task of any size takes; NAN: unknown,
	 * and then as it is of others. */
	double fixed;
	struct fal_window recent; /* seconds of full tasks */
	double eval_s;            /* EWMA of a full eval task's seconds; 0: unknown */
	struct fal_window_min pull,
		push;  /* grant → compute begins; last claim → counted */
	double wait_s; /* its last task was done → its claim was heard */
	/* The most seconds of this clock that others saved it by taking its tasks, or
	 * could have; the mean help of `helps` clocks but the first (bsp.c). */
	double helped, help_s;
	uint32_t helps;
	double rtt, pong; /* a round trip; its last one */
	/* seconds; of tasks, of lanes that are no crowd */
	struct fal_window turn[FAL_TURNS];

	struct fal_node *head, *tail; /* its queue, by round */
	uint32_t queued;
	uint64_t queued_samples;
	uint32_t owed;            /* its open contributions */
	uint64_t included;        /* its last round of local steps that was collected */
	uint64_t given, claims;   /* grants to it, claims by it */
	uint32_t preclaimed;      /* contributions that were claimed ahead for it */
	bool group;               /* server: nothing is claimed ahead for it */
	uint32_t evals;           /* eval tasks it holds */
	uint32_t checks;          /* that it has not answered (verify.c) */
	uint32_t plan[FAL_SPANS]; /* tasks about to be given to it */
	struct fal_load planned;  /* those of them that begin together */
	uint32_t standby;         /* clocks in a row with share 0 */
	/* How often it was given a task all the same, since it had a result without that;
	 * and did it come by its last ones so? */
	uint32_t retries;
	bool retried;
	bool fresh;        /* a round began when it held nothing, which gave it its first
			      task then, if any; it has claimed nothing since */
	double given_at;   /* when it became fresh, */
	uint64_t given_of; /* … by this round, and those that began with it */
	double pulls_from; /* when what it then computes on was there to pull; INFINITY:
			      it is not yet */
	double ready;      /* when it has pulled what it computes on */
	double base;       /* when it last made progress */
	double finish;     /* projected finish; see fal_worker_refresh */
	double empty;      /* since when it holds nothing; negative: it does */
	double came;       /* when a block of it last came */
	double relieved;   /* when a task was last taken from it, … */
	uint64_t relieved_of; /* … of this round */
	double began;         /* since when the oldest of its running tasks runs */
	double looked;        /* when it was last looked at, as something was due */
	double heard;         /* when it last spoke */
	double asked;    /* since when it is asked how far it is; negative: it is not */
	uint64_t steps;  /* what it answered last, */
	double steps_at; /* and when */
	double excused;  /* until then whatever is due is not */
	double spared;   /* when it was late last, and nobody waited for it */
	double suspected_at;
	bool trial, tried; /* it is on trial, and has got its task */
	bool proved;       /* suspected, but its work came */
	bool called;       /* back for a retry, and no work of it has come since */
	bool told;         /* by SUSPECT, and not yet by BACK, */
	double told_at;    /* … and when */
	uint32_t failed;   /* trials, one after the other */
	double again;      /* not tried before */
	uint32_t charges;
	struct fal_work work; /* since the last ACCOUNT */
};

/* That a worker holds a task: a place in its queue.  A task may have many holders. */
struct fal_node {
	struct fal_node *prev, *next; /* in the queue; next: spare ones, too */
	struct fal_node *other;       /* holder of the task; those before it come later */
	struct fal_round *round;
	uint32_t task; /* of the round's clock */
	uint32_t slot; /* the worker's */
	double ready;  /* its worker has pulled what it is computed on */
	double began;  /* when a lane began with it; negative: not yet */
	bool again;    /* it had it before */
};

struct fal_round {
	uint64_t id, clock, version;
	/* Tasks from `late` on are computed on the version `after`, those before on
	 * `version`, whose exponents are those of all; FAL_NONE: there are none such. */
	uint32_t late;
	uint64_t after;
	uint64_t order; /* of its team under this policy, from 0 */
	struct fal_team *team;
	struct fal_round *older, *newer; /* of all open ones */
	struct fal_round *next;  /* of its team, or of those that ended, or are spare */
	struct fal_round *chain; /* see fal_sched.known */
	uint32_t owner, group, local;
	uint64_t taken;
	bool delta, mixed, complete, ended;
	bool unreported; /* it would be complete, but reports are due */
	bool armed;      /* its end was ordered ahead, */
	bool passed;     /* … and its team may go on */
	enum fal_start base;
	uint64_t since;
	uint32_t steps;
	uint64_t stale_clocks, stale_updates;
	struct fal_ledger ledger;
	struct fal_node **held; /* by task: its newest holder; NULL: nobody */
	size_t held_cap;
	bool *granted; /* by task: was granted before */
	size_t granted_cap;
	struct fal_grant_history given; /* by task: to whom, ever */
	uint32_t *free_task;    /* tasks that nobody holds */
	uint32_t free_n;
	size_t free_cap;
};

enum { FAL_HEAPS_OF_WORKERS = 10 }; /* of struct fal_sched */

struct fal_sched {
	struct fal_sched_conf conf;
	struct fal_policy policy;
	struct fal_traits is; /* of its rule */
	const struct fal_scheme *scheme;
	void *own; /* the scheme's: see there */
	struct fal_grid grid;
	uint32_t full; /* samples of a full task */
	struct fal_pool pool;
	double told_at,
		clock_s;  /* when a clock ended last, 0: none; EWMA of its seconds */
	double typical_s; /* EWMA of a full task's seconds, of all workers; 0: unknown */
	double typical_fixed; /* EWMA of what is found of `fixed`; NAN: unknown, as 0 */

	uint64_t version;    /* newest */
	uint64_t published;  /* the newest that all shards have made, */
	double published_at; /* … and since when */
	uint64_t lines;      /* versions of lines, ever */
	uint64_t first;      /* version at which the policy began to hold */
	uint64_t whole;      /* all tasks of the clocks from here on are its own */
	uint64_t allowed;    /* rounds of clocks before this one may begin */
	bool held;
	bool fixed_shares; /* some worker's weight is laid down */
	double quota;    /* shares by speed: samples of the plan for a task per second */
	bool plans_late; /* tasks are planned that no worker begins with before others */
	/* What was collected for the next step: */
	uint32_t merged; /* rounds */
	uint64_t merged_samples, merged_clock;
	double merged_share; /* the sum of the rounds' shares of their clocks */
	double merged_of;    /* the samples of a whole step: merged_samples are a share */

	struct fal_worker *worker; /* by slot, in order of ids */
	uint32_t workers;
	uint32_t last_id; /* of all that ever joined */
	size_t worker_cap;
	uint32_t active; /* neither gone nor suspected nor excluded */
	uint32_t gone;
	uint32_t unknown;            /* that are here and have shown nothing */
	uint32_t knowing[FAL_TURNS]; /* that showed anything, ever */
	double probe_s;              /* the least probe of all; 0: there was none */
	/* The workers' lower median of what is measured; 0: nothing yet.  As it was when
	 * so many clocks were over, and so many had shown any. */
	double typical[FAL_TURNS];
	struct {
		uint64_t over;
		double probe_s;
		uint32_t knowing[FAL_TURNS];
	} typical_known;
	double *scratch; /* of the medians; room for a value of each worker */
	size_t scratch_cap;
	double patience;      /* times by which all deadlines are longer */
	uint32_t trial;       /* who is on trial, or was; 0: nobody ever */
	double trial_from;    /* no trial before, */
	uint64_t trial_clock; /* … nor before so many clocks are over */
	struct fal_key_debt { /* of keys whose workers were suspected */
		uint32_t key;
		double lost;  /* seconds that others have waited, less what was paid */
		double at;    /* by then; */
		double until; /* those until then are in it */
		bool told;    /* that its workers get no work, since it owed nothing */
	} *cost;
	size_t costs, cost_cap;

	struct fal_team **team; /* where every worker is one, by its slot; NULL: gone */
	uint32_t teams;
	size_t team_cap;
	struct fal_heap behind; /* those with active workers; least clock first */
	struct fal_heap eager;  /* those that may be able to begin a round */
	uint64_t slowest; /* the least clock of these; where there are none, the last */
	uint32_t *manned; /* by part of the data: those with active workers */
	/* Tasks that are to be retried, and the worker that had no finite result. */
	struct fal_retry {
		uint64_t clock;
		uint32_t task, worker, key;
	} *retry;
	uint32_t retries;
	size_t retry_cap;
	/* Tasks that were not finite twice, of clocks that are not over. */
	struct fal_skip {
		uint64_t clock;
		uint32_t task;
	} *skip;
	uint32_t skipped;
	size_t skip_cap;
	uint32_t barred; /* workers */
	struct fal_rng rng;

	struct fal_round *oldest, *newest; /* open ones */
	uint32_t rounds;                   /* open */
	struct fal_round *ended;           /* not forgotten yet */
	struct fal_round *spare;           /* memory of others */
	struct fal_node *spare_node;       /* memory, by `next` */
	struct fal_round **known;          /* open or ended, chained by number modulo */
	size_t knowns, known_cap;          /* known_cap: a power of 2 */
	uint32_t unreported; /* open rounds that are complete but for reports */
	uint64_t next_round;
	uint64_t unplanned;      /* free tasks of the open rounds */
	struct fal_round *needy; /* none before it has any; NULL: none at all */

	/* Heaps of workers, by their slots. */
	union {
		struct fal_heap of_workers[FAL_HEAPS_OF_WORKERS];
		struct {
			/* Active ones by what they can give or take (keys in the order of
			 * heap.h): */
			struct fal_heap takers;  /* nothing unstarted; by finish after one
						    task more */
			struct fal_heap donors;  /* something unstarted; latest finish
						    first */
			struct fal_heap runners; /* running what nobody was given since;
						    latest finish first */
			struct fal_heap idle;    /* holding nothing; fastest first */
			struct fal_heap due;     /* owing something; when to look at it
						    again */
			struct fal_heap suspects; /* that speak; by `again` */
			struct fal_heap awaits;   /* a version that is not published, to
						     begin; by that */
			struct fal_heap planner;  /* scratch of fal_round_plan */
			struct fal_heap own_heap[2]; /* the scheme's: see there */
		};
	};

	uint32_t eval_tasks, eval_left; /* all; not yet evaluated */
	struct fal_eval_task {
		uint32_t holder; /* worker id, 0: nobody, FAL_EVALUATED */
		uint32_t said, worker[2], key[2]; /* who has evaluated it, two at most */
	} *eval_task;
	size_t eval_task_cap;
	struct fal_grant_history eval_given; /* by eval task: to whom, ever */
	uint32_t *eval_free;
	uint32_t eval_free_n;
	size_t eval_free_cap;

	struct fal_verify *verify; /* not answered yet (verify.c) */
	size_t verifies, verify_cap;

	struct fal_act *act;
	size_t acts, act_next, act_cap;
};
_Static_assert(offsetof(struct fal_sched, own_heap[2]) ==
		       offsetof(struct fal_sched, of_workers[FAL_HEAPS_OF_WORKERS]),
	       "every heap of workers is counted");

#define FAL_EVALUATED UINT32_MAX /* no worker's id */
#define FAL_OWN_KEY 0x80000000u  /* set in what is no key's number */

/* It may work; so it does, unless others are to say something before. */
static inline bool
fal_worker_able(const struct fal_worker *w)
{
	return !w->gone && !w->suspected && !w->excluded && !w->stands_by;
}

static inline bool
fal_worker_active(const struct fal_worker *w)
{
	return fal_worker_able(w) && !w->waits;
}

static inline uint32_t
fal_task_samples(const struct fal_round *r, uint32_t task)
{
	return fal_ledger_task(&r->ledger, task)->samples;
}

/* The version that a task is computed on. */
static inline uint64_t
fal_task_version(const struct fal_round *r, uint32_t task)
{
	return task < r->late ? r->version : r->after;
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

static inline struct fal_load
fal_load_full(const struct fal_sched *s, uint32_t tasks)
{
	return (struct fal_load){ tasks, (uint64_t)tasks * s->full };
}

/* When a task of round `r` was taken from it, where no other one was since; else 0. */
static inline double
fal_worker_relieved_at(const struct fal_worker *w, const struct fal_round *r)
{
	return w->relieved_of == r->id ? w->relieved : 0;
}

static inline uint32_t
fal_worker_slot(const struct fal_sched *s, const struct fal_worker *w)
{
	return (uint32_t)(w - s->worker);
}

/* ---- scheduler.c ---- */

/* Does all that follows an event. */
void fal_sched_settle(struct fal_sched *s, double now);
/* No round is open, nothing waits for a step. */
bool fal_sched_is_drained(const struct fal_sched *s);

/* The worker with this id, or NULL: unknown or gone.  O(log W). */
struct fal_worker *fal_worker_find(const struct fal_sched *s, uint32_t id);
/* The worker is to use so many lanes, and is told. */
void fal_worker_set_lanes(struct fal_sched *s, struct fal_worker *w, uint32_t lanes);
/* The worker came, went, or changed: who counts, and who works for whom. */
void fal_worker_recount(struct fal_sched *s, struct fal_worker *w, double now);

/* ---- rounds.c ---- */

/* The open round of this number, or NULL.  O(1). */
struct fal_round *fal_round_find(const struct fal_sched *s, uint64_t id);
/* The round of this number that is open, or ended and not forgotten; NULL.  O(1). */
struct fal_round *fal_round_known(const struct fal_sched *s, uint64_t id);
/* Ends the round: `end` says its fate, weight, slot, below and why.  Held tasks of the
 * round are taken away; its tasks are over, or, abandoned, come back to the pool.
 * Staleness must be set before. */
void fal_round_end(struct fal_sched *s, struct fal_round *r, struct fal_act end,
		   double now);
/* Nothing is collected for the next step. */
void fal_pending_clear(struct fal_sched *s);
/* Applies what was collected, as a part of a step of `divisor` samples. */
void fal_pending_apply(struct fal_sched *s, double divisor);
/* Tells worker `w` to account for its time up to now, the end of round `r`. */
void fal_worker_account(struct fal_sched *s, struct fal_worker *w, const struct fal_round *r);
/* Tells the same to all workers that are here. */
void fal_workers_account(struct fal_sched *s, const struct fal_round *r);
/* Sets the round's staleness: its team's clocks before the slowest, and the updates
 * since its version. */
void fal_round_set_staleness(struct fal_sched *s, struct fal_round *r, uint64_t behind);
/* Samples of the round's tasks; of all but those that are skipped. */
uint32_t fal_round_samples(const struct fal_sched *s, const struct fal_round *r);
uint32_t fal_round_counted_samples(const struct fal_sched *s, const struct fal_round *r);
/* The divisor of the sum of a round that is applied alone, as its part of its clock: the
 * clock's samples but for those that the round has skipped; 0: the round has skipped all.
 */
double fal_round_divisor(const struct fal_sched *s, const struct fal_round *r);
void fal_round_free(struct fal_round *r);
void fal_task_release(struct fal_sched *s, struct fal_round *r, uint32_t task);

/* Forms the teams, as the scheme has them: at a new policy. */
void fal_teams_form(struct fal_sched *s);
/* Frees them, and what is the scheme's own. */
void fal_teams_free(struct fal_sched *s);
/* A team of nobody yet, whose clock is the slowest, behind those that there are, at
 * place `at`; NULL: out of memory. */
struct fal_team *fal_team_new(struct fal_sched *s, uint32_t at, uint32_t id);
/* The team has so many active workers, and this clock: it may begin, and, where it was
 * the slowest, others. */
void fal_team_update(struct fal_sched *s, struct fal_team *t, uint32_t members,
		  uint64_t clock);
/* A worker that joined gets its team. */
void fal_team_assign(struct fal_sched *s, struct fal_worker *w);
/* A worker left, is suspected or excluded, or is in again: its team has so many active
 * workers now; its rounds are abandoned if nobody is left for them. */
void fal_team_changed(struct fal_sched *s, struct fal_worker *w, uint32_t members,
		      double now);
/* Teams move up to where there are none any more. */
void fal_teams_compact(struct fal_sched *s);
/* Any team may be able to begin a round that could not before. */
void fal_teams_wake(struct fal_sched *s);
/* A round of the task, of the one team that there is: fal_sched_bring. */
void fal_round_open_external(struct fal_sched *s, const struct fal_bring *b, double now);
/* Sends `w` the newest version, or `line`, that of its line: what it is given from now on
 * is not due while it pulls. */
void fal_worker_pull(struct fal_sched *s, struct fal_worker *w, uint64_t line, double now);
/* Begins whatever may begin.  O(log W) for each team that may be able to. */
void fal_teams_begin_rounds(struct fal_sched *s, double now);
/* The clock of the tasks that its next round would get. */
uint64_t fal_team_next_clock(const struct fal_sched *s, const struct fal_team *t);
/* The least clock of the teams that have active workers; `but` is not looked at.
 * UINT64_MAX: there is none.  O(1). */
uint64_t fal_slowest_clock(const struct fal_sched *s, const struct fal_team *but);
/* Teams with active workers. */
uint32_t fal_teams_count_active(const struct fal_sched *s);
/* The worker of a team of one. */
struct fal_worker *fal_team_worker(const struct fal_sched *s, const struct fal_team *t);

/* Are they, under this rule? */
bool fal_commits_early(const struct fal_sched *s);
/* Orders what can be. */
void fal_rounds_commit_early(struct fal_sched *s, double now);
/* The first open round that anybody has to compute for; or NULL. */
const struct fal_round *fal_oldest_unfinished_round(const struct fal_sched *s);

/* ---- queues.c ---- */

void fal_act_emit(struct fal_sched *s, struct fal_act act);
/* Appends the task to a range of the last action where it touches it. */
void fal_act_emit_task(struct fal_sched *s, struct fal_act act, uint32_t task);
/* Recomputes the projection of `w` and its places in the heaps. */
void fal_worker_refresh(struct fal_sched *s, struct fal_worker *w, double now);
/* Only its place in the heap `due`. */
void fal_worker_refresh_deadline(struct fal_sched *s, struct fal_worker *w);
/* The round's owner, if it has one, is told to the scheme. */
void fal_round_notify_owner(struct fal_sched *s, const struct fal_round *r);
/* The newest holder of a task; the others by `other`.  NULL: nobody holds it. */
struct fal_node *fal_task_newest_holder(const struct fal_round *r, uint32_t task);
/* The node of the task in the queue of `w`, or NULL. */
struct fal_node *fal_node_find(const struct fal_sched *s, const struct fal_round *r,
			     uint32_t task, const struct fal_worker *w);
/* Takes the node out of all lists; it is spare. */
void fal_node_detach(struct fal_sched *s, struct fal_node *node);
/* Takes it from its worker, who is told unless it is gone; if it had begun it was cut
 * short, and its worker says so. */
void fal_node_revoke(struct fal_sched *s, struct fal_node *n, double now);
/* The last unstarted task of the oldest round that `w` has any of, or NULL. */
struct fal_node *fal_worker_last_unstarted(const struct fal_sched *s,
				    const struct fal_worker *w);
void fal_node_move(struct fal_sched *s, struct fal_node *node, struct fal_worker *to,
	      double now);
/* A running task of `w` that nobody else was given since, or NULL. */
struct fal_node *fal_worker_uncloned(const struct fal_worker *w);
/* Runs a task that `from` is running on `to`, too; 0 also when there is none left. */
void fal_worker_clone_task(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
		    double now);
/* Fences the open contribution `ci`: shards and its worker are told.  The contribution's
 * tasks are free again when all shards know (fal_sched_fenced). */
void fal_contrib_fence(struct fal_sched *s, struct fal_round *r, uint32_t ci);
/* Takes everything from `w`: tasks, open contributions, eval tasks; `tell`: with
 * revokes. */
void fal_worker_strip(struct fal_sched *s, struct fal_worker *w, bool tell, double now);
/* The task leaves all queues and the free tasks; its holders are told. */
void fal_task_withdraw(struct fal_sched *s, struct fal_round *r, uint32_t task, double now);
/* The task leaves the queue of `w`, which has claimed it; other holders keep it.  A
 * worker that was given the task twice may have claimed it before the second grant came,
 * and is told: else the worker would run the task again. */
void fal_task_drop_claimed(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		      const struct fal_worker *w);
/* The task leaves the queue of `w`, which knows; other holders keep it. */
void fal_task_drop(struct fal_sched *s, const struct fal_round *r, uint32_t task,
		  const struct fal_worker *w);

/* May `w` work for round `r`?  For a team's own round it must have been sent the version;
 * in the one team of all everybody is. */
bool fal_worker_may_compute(const struct fal_sched *s, const struct fal_worker *w,
		   const struct fal_round *r);
void fal_round_plan(struct fal_sched *s, struct fal_round *r, double now);

/* ---- deadlines.c ---- */

/* The seconds that may pass at `w` from the moment that a full task and its version are
 * there until the task's claim is heard: median + 6·max(MAD, 5 %) of the times measured
 * here, without those 4 times the median of the others, or 10 times the least probe; with
 * floors of 4 RTT, of a second at most, and 200 ms; on trial twice that for each trial
 * that `w` failed in a row; with checks, which come first, twice as many. */
double fal_task_deadline_s(const struct fal_sched *s, const struct fal_worker *w);
/* Notes a turn that took `w` so many seconds. */
void fal_turn_add(struct fal_sched *s, struct fal_worker *w, enum fal_turn_kind kind,
		double seconds);
/* The task at `n` was claimed by its holder `w`. */
void fal_deadline_note_claim(struct fal_sched *s, struct fal_worker *w, const struct fal_node *n,
		     double now);
/* Brings what is typical up to date, once in a clock; after any event. */
void fal_typical_update(struct fal_sched *s);
/* When what `w` owes must be looked at, or `late`, if that is sooner; infinity: it owes
 * nothing. */
double fal_deadline_next_look(const struct fal_sched *s, const struct fal_worker *w, double late);
/* Looks at it: asks the worker, or suspects it. */
void fal_deadline_review(struct fal_sched *s, struct fal_worker *w, double now);
/* The worker answers what it was asked at `asked`: its lanes are `steps` far.  True: that
 * was not enough, it is suspected. */
bool fal_deadline_note_answer(struct fal_sched *s, struct fal_worker *w, double asked,
		    uint64_t steps, double now);
/* `w` goes: what it owes for longer than that takes its key pays, if others wait for it.
 */
void fal_deadline_note_leave(struct fal_sched *s, struct fal_worker *w, double now);

/* Seconds that a key may cost others, or so many times what a task or a push takes; and
 * the part of each second that it may cost beyond that. */
#define FAL_COST_FREE_S 2.0
#define FAL_COST_FREE_TURNS 16
#define FAL_COST_PART 0.02

/* No other key is left for a retry: suspects who speak are back, unless they were before
 * and no work of theirs has come since; the others are asked. */
void fal_suspects_recall_for_retry(struct fal_sched *s, double now);
/* Work of `w` has arrived. */
void fal_probation_note_work(struct fal_sched *s, struct fal_worker *w, double now);
/* Is the team nobody but who is on trial? */
bool fal_trial_of(const struct fal_sched *s, const struct fal_team *t);
/* Ends a trial, begins the next one, if that is due. */
void fal_probation_advance(struct fal_sched *s, double now);
/* The worker on trial that still has to get its task, or NULL. */
struct fal_worker *fal_probation_unserved(const struct fal_sched *s);
/* Until when workers of the key get no work: `now`, or later. */
double fal_key_barred_until(const struct fal_sched *s, uint32_t key, double now);

/* ---- projection.c ---- */

/* Seconds a full task takes on a lane of `w` at `lanes` lanes; a guess if never measured.
 */
double fal_task_s(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes);
/* The cost of some tasks for `w`, in full tasks: each its fixed part, the rest by
 * samples. */
double fal_load_size(const struct fal_sched *s, const struct fal_worker *w,
		struct fal_load load);
/* Full tasks per second of `w` at its lanes. */
double fal_worker_rate(const struct fal_sched *s, const struct fal_worker *w, uint32_t lanes);
/* Takes over the history of `w` until `w` is measured; lanes that `w` may not run now say
 * nothing. */
void fal_worker_restore(struct fal_worker *w, const struct fal_history *was);
double fal_eval_task_s(const struct fal_sched *s, const struct fal_worker *w);
/* Times, by which one speed differs from another. */
#define FAL_JUMP 1.5

/* Counts a claimed task of so many samples, which took `task_s` seconds: the task joins
 * the pace before it if that is no other speed, else begins one; where there are too many
 * paces, the neighbours that differ least become one (Ward).  size: in full tasks. */
void fal_work_add(struct fal_work *work, double task_s, uint32_t samples, double size);

/* A task of so many samples took `task_s` seconds.  O(1), O(lanes) once for each lane
 * count. */
void fal_worker_measure(struct fal_sched *s, struct fal_worker *w, double task_s,
		  uint32_t samples);
void fal_ewma(double *mean, double x); /* 0 means: no value yet */
/* Something was found out of a worker's fixed part. */
void fal_typical_fixed(struct fal_sched *s, double fixed);
/* A full task that has run for longer than this is late: median + 6·max(MAD, 5 %). */
double fal_task_late_s(const struct fal_sched *s, const struct fal_worker *w);
/* When `w` will have finished `first`, which it holds first, and `extra` more, pushing
 * included: running tasks end on their lanes, the others follow lane by lane. */
double fal_worker_project(const struct fal_sched *s, const struct fal_worker *w,
		   struct fal_load first, struct fal_load extra, double now);

/* ---- retry.c ---- */

/* `w` has claimed the task without a finite result: the task is retried, or, after the
 * retry, is skipped or ends the job. */
void fal_retry_nonfinite(struct fal_sched *s, double now, struct fal_round *r,
			 struct fal_worker *w, uint32_t task);
/* Forgets the retry of the task, which has a result; of all tasks of the round, which
 * nobody wants any more. */
void fal_retry_clear(struct fal_sched *s, const struct fal_round *r, uint32_t task);
void fal_retry_clear_round(struct fal_sched *s, const struct fal_round *r);
/* Is the task to be retried?  The worker that is drawn for the retry, or NULL: there is
 * no retry, or anybody may do it.  May `w` have the task? */
bool fal_retried(const struct fal_sched *s, const struct fal_round *r, uint32_t task);
struct fal_worker *fal_retry_draw(struct fal_sched *s, const struct fal_round *r,
				  uint32_t task);
bool fal_retry_allows(const struct fal_sched *s, const struct fal_worker *w,
		   const struct fal_round *r, uint32_t task);
/* Workers begin no round while the next one has a task that others are to retry.
 * True: some are stopped, or go on. */
bool fal_retries_review(struct fal_sched *s, double now);
/* The round is new: tasks that an earlier round of its clock skipped are skipped in it,
 * too. */
void fal_round_skip_known(struct fal_sched *s, struct fal_round *r);

/* ---- eval.c ---- */

void fal_eval_grant_idle(struct fal_sched *s, double now);
/* The eval tasks that `w` holds are anybody's again. */
void fal_eval_return(struct fal_sched *s, struct fal_worker *w);

/* ---- verify.c ---- */

/* A claim of the worker `of`, which counts, was drawn: another key is asked, if one can
 * be. */
void fal_verify_request(struct fal_sched *s, struct fal_round *r, const struct fal_worker *of,
		    const struct fal_claim_in *c, double now);
/* Takes back the checks of a worker (NULL: of all) and of a round that is over (NULL: of
 * all). */
void fal_verify_cancel(struct fal_sched *s, const struct fal_worker *w,
		      const struct fal_round *r, double now);

#endif
