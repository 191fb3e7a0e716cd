/* Sums a trace up: a row for each worker, a row for each epoch, the job as a whole; names
 * the stragglers and the pioneers, and why they are.
 *
 * Pure: lines in, numbers out.  A summary believes what the trace says; audit.h does not.
 */
#ifndef FAL_TRACE_SUMMARY_H
#define FAL_TRACE_SUMMARY_H

#include "trace/reader.h"

#include <stddef.h>
#include <stdint.h>

/* ---- classes ----------------------------------------------------------------------- */

/* A worker is off the pace when it is this much off the median. */
#define FAL_CLASS_TOLERANCE 0.20

enum fal_class {
	FAL_CLASS_NONE, /* it ran no task: nothing is known */
	FAL_CLASS_STEADY,
	FAL_CLASS_STRAGGLER,
	FAL_CLASS_PIONEER,
	FAL_CLASS_STALLS /* it stands still now and then: fal_trace_classify says never */
};

enum fal_cause {
	FAL_CAUSE_NONE,
	FAL_CAUSE_COMPUTE,
	FAL_CAUSE_PUSH,
	FAL_CAUSE_PULL,
	FAL_CAUSE_LATENCY
};

/* The work of one worker. */
struct fal_trace_load {
	uint64_t clocks; /* that it took part in */
	uint64_t tasks;  /* that it ran, dropped ones included */
	double size;     /* of these: full tasks, or samples, the same for all workers */
	double lane_s;   /* sum over these tasks of seconds on their lane / lanes */
	/* Seconds, not overlapped by compute; sums over the clocks; latency: waiting for
	 * round trips of its own link. */
	double push, pull, latency;
};

struct fal_trace_class {
	enum fal_class class;
	enum fal_cause cause; /* NONE for a steady worker */
	double projected;     /* seconds that an equal share would take it */
};

/* Classifies n workers.
 *
 * Under EPSP all workers finish together, so their finish says nothing; what counts is
 * the time that each would need for an equal share.  With
 *	S = size / clocks, both summed over the workers that ran tasks,
 * the projected time of a worker is
 *	S · lane_s / size  +  (push + pull + latency) / clocks,
 * compute growing with the share and the others paid once a clock.  More than 20 %
 * above the median of these: straggler; more than 20 % below: pioneer; else steady (θ of
 * the straggler projection).  The cause is the one of the four parts that is farthest
 * above (straggler) or below (pioneer) its own median.  Other waiting is never a cause:
 * who waits is held up by another.
 *
 * A worker that was there and ran no task is a straggler by what its link alone takes, at
 * the median's computing, or nothing is known of it.
 *
 * Writes out[i] for loads[i]. */
void fal_trace_classify(const struct fal_trace_load *loads, size_t n,
			struct fal_trace_class *out);

const char *fal_class_name(enum fal_class c); /* "straggler", …; NONE: "-" */
const char *fal_cause_name(enum fal_cause c); /* "compute", …; NONE: "-" */

/* ---- the job ----------------------------------------------------------------------- */

/* Updates that the job's rates are taken over. */
#define FAL_SUMMARY_RATE_UPDATES 100

/* ---- shards ------------------------------------------------------------------------ */

/* Workers do nothing but wait for a straggler in more than this part of the time. */
#define FAL_SHARD_BLAME 0.02

struct fal_shard_row {
	char name[256], address[256]; /* of the process; "": the coordinator's */
	uint64_t blocks;              /* that it had last */
	uint64_t rx, tx;              /* sums of its lines */
	double service, queue, blame;
	double took;          /* seconds of a version's part, the mean; NAN: not known */
	enum fal_class class; /* by these seconds, as workers are by theirs */
	const char *cause;    /* static; "blocks": it has more of them; "pace": it takes
				 longer for each; or "-" */
	double slower;        /* took, in those of the middle one; NAN */
	uint32_t lines;       /* private: with `took` */
};

/* Shard lines, summed up: a row for each shard of the newest incarnation, and which of
 * them workers wait for.  {0} with the times is empty and valid. */
struct fal_shard_rows {
	struct fal_shard_row v[FAL_TRACE_SHARDS_MAX];
	uint32_t n;
	double from, to; /* seconds of the job that the lines are of */
};

/* Classifies them; more lines may follow.  A straggler is more than FAL_CLASS_TOLERANCE
 * above the median, and waited for. */
void fal_shard_rows_end(struct fal_shard_rows *r);

/* The last move of blocks, by place lines. */
struct fal_trace_moves {
	uint64_t moves;  /* of the newest incarnation; of the last of them: */
	char by[256];    /* who wanted it */
	double t, took;  /* when it was done, and in which seconds; NAN: not known */
	uint64_t blocks; /* that went to another shard */
	/* By how many blocks each shard has grown. */
	int64_t more[FAL_TRACE_SHARDS_MAX];
	struct fal_trace_place is; /* private: where the blocks are */
};

/* ---- workers, epochs, the job ------------------------------------------------------ */

/* Where wall time went, in seconds; `late` is beside it. */
struct fal_summary_spent {
	double compute, push, pull, wait, late;
};

/* A worker by name: a session that joins after an earlier one of that name has left
 * continues its row. */
struct fal_summary_worker {
	char *name, *fingerprint;
	char *key, *key_fingerprint; /* whose it is; NULL: the trace does not say */
	char *build;                 /* its program's version; the same */
	char *kernels;               /* that compute its tasks; the same */
	bool standby;                /* its numerics keep it from work */
	bool left;                   /* its last session has ended */
	uint64_t falls;              /* how often it was lost, … */
	double fell_s;               /* … and the seconds since it had told of work */
	bool suspect;                /* it has not kept its deadline, since … */
	double since;                /* … then, … */
	char *why;                   /* … and why */
	bool silent;                 /* it is here, but no work of it has come for long */
	double worked, longest; /* when it told of work last; between two such times */
	uint64_t lanes_max;     /* that it may run */
	uint64_t cores;         /* that it has */
	double fixed;           /* fal_trace_join_fixed */
	uint64_t lanes;         /* that it ran last */
	uint64_t share;         /* that it was granted last */
	uint64_t last_clock;    /* that it told of */
	uint64_t last_round;    /* of its own, if own_rounds */
	bool own_rounds;        /* it told of them */
	uint64_t done, in, out; /* tasks: claims won, moved to it, moved away */
	uint64_t cloned, lost;  /* tasks: clones that it ran, claims that lost */
	uint64_t dropped;       /* rounds of its own that were dropped */
	double samples;         /* of its done tasks */
	double ran;             /* of those that were lost, too */
	struct fal_summary_spent spent;
	uint64_t stale_sum, stale_max; /* updates, over its lines; load.clocks of them */
	double core_s;                 /* sum over its tasks of core seconds */
	struct fal_trace_load load;
	struct fal_trace_class verdict;
	bool impure;  /* its fingerprint says so: its bits are not the same twice */
	bool differs; /* it is impure, or its fingerprint not that of most workers, ... */
	bool skewed;  /* ... and it is of another build than these */
	/* When it was there to be given work; the last time may not have ended. */
	struct fal_summary_stay {
		double from, to;
	} *stay;
	size_t stays, stay_cap;
	bool stands_ready; /* it has not */
	double told;       /* when its last clock line was written */
	uint64_t members;  /* it is a group server, with so many; 0: it is none */
	uint64_t up, down; /* bytes that it sent, and got */
};

/* What to call it: "left", "suspect", "silent", or by fal_class_name. */
const char *fal_summary_class(const struct fal_summary_worker *w);

struct fal_summary_epoch {
	uint64_t epoch; /* from 1 */
	uint64_t updates, samples;
	double loss_sum;   /* loss · samples */
	double begin, end; /* seconds of the job */
	bool judged;
	double accuracy; /* if judged */
};

/* {0} is empty and valid. */
struct fal_summary {
	bool have_job, done;
	struct fal_trace_job job;
	char *name, *scheme;
	char *above;   /* its job is that of a coordinator there, for which it is a group;
			  NULL: its own */
	char *failed;  /* why the job could not be ended, or NULL */
	json_t *names; /* the row of each, the last of several (fal_names_put) */
	struct fal_summary_worker *worker;
	size_t n_worker, cap_worker;
	struct fal_summary_epoch *epoch;
	size_t n_epoch, cap_epoch;
	uint64_t version; /* the last */
	double seconds;   /* of the last line */
	/* Samples that became a part of a version, that were dropped, that were computed
	 * once more than needed; tasks that were moved, cloned, skipped. */
	uint64_t samples, dropped, twice, moved, cloned, skipped;
	struct fal_stale stale; /* of the samples of rounds that were applied */
	double loss;            /* of the last update that has any samples */
	bool judged;
	double accuracy; /* of the last evaluation, if judged */
	uint64_t judged_epoch;
	struct fal_summary_resumed {   /* the coordinator was started again, ... */
		uint64_t incarnation;  /* ... so often; 0: never */
		double t;              /* since then, the last time */
		uint64_t clock, until; /* at this clock; up to that one was done before */
	} resumed;

	struct fal_shard_rows shards; /* of several, as far as lines tell */
	struct fal_trace_moves moves; /* of their blocks */
	struct fal_summary_verify {   /* claims that another key computed once more */
		uint64_t asked, equal, unlike;
		char *who;            /* whose results were unlike last; NULL: nobody's */
		uint64_t clock, task; /* … and of what */
	} verify;

	char *trainer; /* whose trainer failed last, and why; NULL: none has */

	/* Set by fal_summary_end. */
	uint64_t clocks; /* that have ended, by their tasks; of a group's, all before that
			    of which it gave a part last */
	double stalled;  /* seconds since the last update, if that is long ago; else 0 */
	/* A second, over the last updates, or the rounds that a group has given; 0: too
	 * few, or stalled. */
	double clocks_s, samples_s, updates_s;
	double capacity;                /* samples a second; 0: not known */
	bool strict;                    /* numerics = require */
	size_t counts;                  /* row, and 1, whose task counted last; 0: none */
	bool identical;                 /* all fingerprints are equal */
	struct fal_summary_spent spent; /* of all workers */

	/* Private. */
	struct fal_ids ids;  /* session → index of worker */
	uint64_t last_clock; /* of clock lines */
	uint64_t next_clock; /* behind the newest of an update */
	uint64_t ended;      /* tasks of rounds that were applied or dropped */
	bool part;           /* the trace begins in mid-job, or lines are missing */
	bool gap;            /* they are: ids may be unknown */
	struct fal_summary_tick {
		double t, clocks;
		uint64_t samples;
	} tick[FAL_SUMMARY_RATE_UPDATES + 1]; /* the last updates, a ring */
	uint64_t n_tick;
};

/* Takes the next line; `summary` is a struct fal_summary, so this is an on_line of
 * fal_trace_reader_new.  Errors: FAL_EFORMAT, FAL_ELIMIT, FAL_EINVAL. */
int fal_summary_line(void *summary, struct fal_trace_line *l);

/* Derives what needs all lines: clocks, classes, rates, numerics, and the capacity
 *	Σ min(lanes_max, cores) · samples a core-second,
 * over the workers, each for the part of the time of the rates in which it was here and
 * no suspect; who was told of no more clocks, as it was excluded, was here until then.
 * FAL_ETRUNC: there was no line. */
int fal_summary_end(struct fal_summary *s, struct fal_diag *diag);

void fal_summary_free(struct fal_summary *s);

#endif
