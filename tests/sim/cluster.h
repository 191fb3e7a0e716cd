/* A whole cluster in one process and in virtual time: the real coordinator, the real
 * workers' state machines, a fake network between them, and a seeded misfortune. */
#ifndef CLUSTER_H
#define CLUSTER_H

#include "seen.h"
#include "server/coord.h"
#include "toy.h"

enum { MAX_WORKERS = TOY_MACHINES, MAX_SHARDS = 6 };

/* What a liar says, within the type of a message: in its pushes, and else. */
enum lie {
	HONEST,
	LIE_LARGE,  /* needed 100, and everywhere more than thrice what the tasks of a
		       clock have room for */
	LIE_ZEROS,  /* needed 100, and nothing */
	LIE_ROOM,   /* 2^62 - 1 everywhere */
	LIE_NEEDED, /* the most that may be needed, of what it computed */
	LIE_FREEZE, /* the same, and nothing */
	LIE_LOW,    /* less than what it computed needs */
	LIE_PUSHES,
	LIE_ACCUSE = LIE_PUSHES, /* nothing that it computes is finite */
	LIE_LEAVE,               /* its local steps led out of the numbers: it leaves */
	LIE_BOAST,               /* an evaluation that nobody computed */
	LIE_CLAIM,               /* a task that it was never given */
	LIE_PRINT,               /* another fingerprint than it has */
	LIES,
	/* Not drawn where it was not when the first seeds were kept: */
	LIE_MUTE = LIES /* pushes what it does not report, where that was claimed ahead */
};

/* How a machine stops to be of use, answering all the while. */
enum hang {
	HANG_NOT,
	HANG_STOP,    /* its lanes end no task any more */
	HANG_PRETEND, /* nor now, but they say that they go on */
	HANG_SLOW,    /* they are 10^5 times slower */
	HANG_CLAIM,   /* it claims, and pushes nothing */
	HANG_HALF,    /* it pushes the first half of the blocks */
	HANG_DRAWN,   /* one of those before; the next one is drawn on its own: */
	HANG_MUTE = HANG_DRAWN, /* it works on, but answers no check */
	HANGS
};

enum { IMPURE = 255 };

struct plan;

/* What one simulated machine is like. */
struct machine {
	/* It is a group server, whose machines and rule this says, or NULL.  Its times
	 * are those of the whole cluster; it has the toy of all. */
	const struct plan *group;
	double join_at; /* seconds */
	double task_s;  /* of a full task on one lane */
	double fixed;   /* the part of it that a task of any size takes */
	double jitter;  /* ± part of task_s */
	uint32_t lanes_min, lanes_max, cores;
	double latency, per_byte;  /* of its link */
	uint32_t window;           /* bulk messages under way to the coordinator */
	uint32_t push_blocks;      /* in each of them at most; 0: what fits */
	uint32_t sums;             /* that it may have, in halves; 0: any number, */
	uint32_t versions;         /* and versions */
	double crash_at, leave_at; /* infinity: never */
	bool silent;               /* nobody notices the crash: no connection reset */
	double stall_at, stall_s;  /* frozen for a while */
	double cut_at, cut_s;      /* its link is cut for a while */
	enum lie lie;              /* under a key of its own, but for other liars */
	uint32_t key;              /* that of machine number `key` - 1; 0: its own */
	uint32_t print;            /* of its numerics; IMPURE: of those of no other */
	bool flaky;                /* every 7th task comes out non-finite at first */
	uint32_t again; /* the process of machine number `again` - 1; 0: its own */
	enum hang hang;
	double hang_at; /* infinity: never */
};

/* Something that a controller asks for. */
struct order {
	double at;
	const char *scheme; /* another one; NULL: pause, for as long as `pause_s` */
	double pause_s;
};

enum { MAX_ORDERS = 4 };

/* A version that is marked: the next one, or, `now`, the newest, if that may be. */
struct mark {
	uint64_t clock; /* so many are over */
	bool now;
	double takes; /* seconds until it is on disk */
};

/* The coordinator dies with all shards, and begins again. */
struct restart {
	uint64_t clock; /* so many are over, */
	double after;   /* since so many seconds */
};

/* The blocks move: to what a stream of this seed draws. */
struct move {
	uint64_t clock; /* so many are over, */
	double after;   /* since so many seconds */
	uint64_t seed;
};

enum { MAX_MARKS = 4, MAX_RESTARTS = 5, MAX_MOVES = 5 };

/* Where a shard is, if it is elsewhere. */
struct place {
	double latency;           /* seconds, of its link to the coordinator */
	double stall_at, stall_s; /* frozen for a while */
	double lost_at, lost_s;   /* its link is, for a while */
	double dies_at, known_s;  /* it dies, and all begin again when that is known */
};

struct plan {
	struct toy toy;
	const char *scheme;
	bool audit_sums;
	uint32_t hashes; /* one version of so many is hashed */
	double verify;   /* the part of tasks that another key runs, too */
	bool preclaims;  /* grants may be claimed ahead */
	bool begins;     /* workers begin before all of a version is here */
	uint32_t shards; /* at first, */
	uint32_t most;   /* … and, with those that join, in the end */
	uint32_t moves;
	struct move move[MAX_MOVES];
	uint32_t piece; /* blocks of one that is on its way, at most */
	double refuses; /* the part of shards that cannot have what they should */
	bool psld;      /* blocks move by what workers waited for */
	bool apart;     /* they are elsewhere: */
	struct place place[MAX_SHARDS];
	double way[MAX_WORKERS][MAX_SHARDS]; /* seconds that a push takes */
	/* Seconds that a byte takes on a shard's line to all workers together, 0: none;
	 * from `slow_at` on one of them takes so many times as long. */
	double line[MAX_SHARDS], slow_at, slower;
	uint32_t slow;
	uint32_t test_samples, eval_every, lanes_start, parts;
	uint32_t machines, min_workers;
	/* Versions leave while they are made, by so many blocks; 0: when they are.
	 * When so many parts did, a machine dies; 0: none does. */
	uint32_t blocks, dies;
	bool probes; /* workers say what a task takes */
	bool hung;   /* all machines but the last one hang, and nothing else happens */
	struct machine machine[MAX_WORKERS];
	uint32_t orders;
	struct order order[MAX_ORDERS];
	uint32_t marks, restarts; /* in the order of their clocks */
	struct mark mark[MAX_MARKS];
	struct restart restart[MAX_RESTARTS];
	double back;     /* seconds until a worker knows, at most */
	bool marks_all;  /* … and each version is marked, as mark[0] */
	uint32_t keep;   /* snapshots */
	bool disk_fails; /* what is on it when it dies is damaged */
	bool levels;     /* some machines are group servers, or it is one's */
	bool calm; /* nothing happens but what flips and lies lead to, and all are there
		    * from the beginning */
	uint64_t entropy; /* the coordinator's */
};

/* Whose process a machine is, and whose key it has. */
/* How its samples are cut. */
static inline struct fal_grid
plan_grid(const struct plan *p)
{
	return (struct fal_grid){ .samples = p->toy.samples,
				  .batch = p->toy.batch,
				  .task = p->toy.task,
				  .tail = p->toy.tail,
				  .tail_task = p->toy.tail_task,
				  .epochs = p->toy.epochs,
				  .parts = p->parts };
}

static inline uint32_t
plan_process(const struct plan *p, uint32_t machine)
{
	const uint32_t again = p->machine[machine].again;
	return again > 0 ? again - 1 : machine;
}

static inline uint32_t
plan_owner(const struct plan *p, uint32_t machine)
{
	const uint32_t key = p->machine[machine].key;
	return key > 0 ? key - 1 : plan_process(p, machine);
}

/* Does it lie, or, where it is a group server, any member of it, for which it answers? */
bool machine_lies(const struct machine *m);

/* Does any machine with this one's key get bits wrong? */
bool plan_flips(const struct plan *p, uint32_t machine);

/* Lines of a trace. */
struct lines {
	char *p; /* free with free() */
	size_t n;
};

struct outcome {
	/* Static text; NULL: none, and the job was finished, or a liar ended it that may
	 * (lies_end). */
	const char *failure;
	struct fal_coord_status status;
	double seconds; /* virtual */
	uint64_t events;
	uint64_t lies, refused; /* messages that lie; liars whose session was ended */
	uint64_t beyond;        /* gradients too large for what they were made on */
	uint64_t flips;         /* tasks that came out with a bit wrong, */
	uint64_t escaped;       /* … and are in the model: flips_judge */
	uint64_t seen[SEEN];    /* how often it happened: seen.h */
	/* Parts of what may be, in plans that watch it, else 0: a clock's seconds; how
	 * often the coordinator wakes up in a second. */
	double longest, busiest;
	float *params; /* final; free with free() */
	char *trace;   /* all lines; free with free() */
	size_t trace_n;
	/* Of each group server that there was: its trace.  free() both. */
	struct lines *group;
	size_t groups;
};

/* Runs the plan to its end.  `salt` seeds the network's delays. */
struct outcome cluster_run(const struct plan *p, uint64_t salt);

#endif
