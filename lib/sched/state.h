/* The scheduler's state, shared by its own files only; what each of them does for the
 * others stands in its header:
 *
 *	sched.c   events in, actions out; what follows every event
 *	members.c   who is there, and what the policy lays down for each
 *	claims.c  what workers have claimed, and what of it has come
 *	suspicion.c   signs of life, and what follows where there are none
 *	round.c   rounds: opened, found, ended
 *	ahead.c   rounds whose end is ordered before they are complete
 *	brought.c work that another scheduler has given out
 *	team.c    who works for whom; when a round begins
 *	plan.c    who gets a round's free tasks
 *	queue.c   the workers' queues, the heaps over them
 *	speed.c   what is measured, what is projected from it
 *	retry.c   tasks without a finite result, and those that are skipped
 *	due.c     what workers owe, and until when
 *	trial.c   who has not kept that, and how it comes back
 *	eval.c    the test set
 *	verify.c  claims that another key computes once more
 *	pool.c, ledger.c, holds.c   tasks not handed out; who claimed what; who was given
 *	          what
 *	heap.c, recent.c   a heap; the last measurements of something
 *	policy.c  rules, what each scheme is, policies
 *	bsp.c epsp.c asp.c … what it does, and keeps of its own: scheme.h
 *
 * Calls that can fail return */
#ifndef FAL_SCHED_STATE_H
#define FAL_SCHED_STATE_H

#include "base/rng.h"
#include "base/spans.h"
#include "sched/heap.h"
#include "sched/holds.h"
#include "sched/policy.h"
#include "sched/pool.h"
#include "sched/recent.h"
#include "sched/sched.h"

/* Nothing extends a deadline beyond so many times itself. */
#define FAL_MOST_TIMES 10.0

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
	struct fal_spans seqs;     /* numbers that it has given to contributions */
	double probe_s;            /* its own probe at one lane; 0: unknown */
	/* The part of a full task's seconds that a task of any size takes; NAN: unknown,
	 * and then as it is of others. */
	double fixed;
	struct fal_recent recent;     /* seconds of full tasks */
	double eval_s;                /* EWMA of a full eval task's seconds; 0: unknown */
	struct fal_lately pull, push; /* grant → compute begins; last claim → counted */
	double wait_s;                /* its last task was done → its claim was heard */
	double rtt, pong;             /* a round trip; its last one */
	/* seconds; of tasks, of lanes that are no crowd */
	struct fal_recent turn[FAL_TURNS];

	struct fal_node *head, *tail; /* its queue, by round */
	uint32_t queued;
	uint64_t queued_samples;
	uint32_t owed;          /* its open contributions */
	uint64_t included;      /* its last round of local steps that was collected */
	uint64_t given, claims; /* grants to it, claims by it */
	uint32_t preclaimed;    /* contributions that were claimed ahead for it */
	bool group;             /* server: nothing is claimed ahead for it */
	uint32_t evals;         /* eval tasks it holds */
	uint32_t checks;        /* that it has not answered (verify.c) */
	uint32_t plan;          /* tasks about to be given to it */
	uint32_t standby;       /* clocks in a row with share 0 */
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
	double finish;     /* projected finish; see fal_refresh */
	double empty;      /* since when it holds nothing; negative: it does */
	double came;       /* when a block of it last came */
	double kept;       /* when work of it was last whole */
	double relieved;   /* when a task was last taken from it */
	double began;      /* since when the oldest of its running tasks runs */
	double looked;     /* when it was last looked at, as something was due */
	double heard;      /* when it last spoke */
	double asked;      /* since when it is asked how far it is; negative: it is not */
	uint64_t steps;    /* what it answered last, */
	double steps_at;   /* and when */
	double excused;    /* until then whatever is due is not */
	double spared;     /* when it was late last, and nobody waited for it */
	double suspected_at;
	bool trial, tried; /* it is on trial, and has got its task */
	bool proved;       /* suspected, but its work came */
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
	double began;  /* when a lane began with it; negative: not yet */
	bool again;    /* it had it before */
};

struct fal_round {
	uint64_t id, clock, version;
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
	struct fal_holds given;      /* by task: to whom, ever */
	uint32_t last, last_samples; /* its clock's last task */
	uint32_t *free_task;         /* tasks that nobody holds */
	uint32_t free_n;
	size_t free_cap;
};

/* Some tasks.  What they take goes by both: each has a fixed part. */
struct fal_load {
	uint32_t tasks;
	uint64_t samples;
};

enum { FAL_HEAPS_OF_WORKERS = 8 }; /* of struct fal_sched */

struct fal_sched {
	struct fal_policy policy;
	struct fal_traits is; /* of its rule */
	const struct fal_scheme *scheme;
	void *own; /* the scheme's: see there */
	struct fal_grid grid;
	uint32_t full; /* samples of a full task */
	struct fal_pool pool;
	uint32_t lanes_start;
	bool ahead; /* fal_sched_conf */
	double eval_cost;
	bool preclaims;
	bool brought;     /* fal_sched_conf */
	double typical_s; /* EWMA of a full task's seconds, of all workers; 0: unknown */
	double typical_fixed; /* EWMA of what is found of `fixed`; NAN: unknown, as 0 */

	uint64_t version;   /* newest */
	uint64_t published; /* the newest that all shards have made */
	uint64_t lines;     /* versions of lines, ever */
	uint64_t first;     /* version at which the policy began to hold */
	uint64_t whole;     /* all tasks of the clocks from here on are its own */
	uint64_t allowed;   /* rounds of clocks before this one may begin */
	bool held;
	bool fixed_shares; /* some worker's weight is laid down */
	/* What was collected for the next step: */
	uint32_t merged; /* rounds */
	uint64_t merged_samples, merged_clock;

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
	bool skips; /* tasks that were not finite twice, of clocks that are not over: */
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
			struct fal_heap planner;  /* scratch of fal_plan */
		};
	};

	uint32_t eval_tasks, eval_left; /* all; not yet evaluated */
	uint32_t *eval_holder; /* by eval task: worker id, 0: nobody, FAL_EVALUATED */
	size_t eval_holder_cap;
	struct fal_holds eval_given; /* by eval task: to whom, ever */
	struct fal_said {            /* by eval task: who has evaluated it */
		uint32_t n, worker[2], key[2];
	} *eval_said;
	size_t eval_said_cap;
	uint32_t *eval_free;
	uint32_t eval_free_n;
	size_t eval_free_cap;

	struct fal_verify *verify; /* not answered yet (verify.c) */
	size_t verifies, verify_cap;

	struct fal_act *act;
	size_t acts, act_next, act_cap;
};

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

/* Samples of a task. */
static inline uint32_t
fal_task_samples(const struct fal_sched *s, const struct fal_round *r, uint32_t task)
{
	return task == r->last ? r->last_samples : s->full;
}

static inline struct fal_load
fal_load_of(const struct fal_sched *s, const struct fal_round *r, uint32_t task)
{
	return (struct fal_load){ 1, fal_task_samples(s, r, task) };
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

static inline uint32_t
fal_slot(const struct fal_sched *s, const struct fal_worker *w)
{
	return (uint32_t)(w - s->worker);
}

/* sched.c: what follows every event. */
void fal_settle(struct fal_sched *s, double now);
/* No round is open, nothing waits for a step. */
bool fal_drained(const struct fal_sched *s);

#endif
