/* Sums a trace up: a row for each worker, a row for each epoch, totals of the job; finds
 * the stragglers and the pioneers, and the causes.
 *
 * Pure: lines in, numbers out.  A summary believes the trace; audit.h does not.
 */
#ifndef FAL_TRACE_SUMMARY_H
#define FAL_TRACE_SUMMARY_H

#include "trace/reader.h"

#include <stddef.h>
#include <stdint.h>

/* ---- classes ----------------------------------------------------------------------- */

/* A worker farther from the median than this share is a straggler or a pioneer. */
#define FAL_CLASS_TOLERANCE 0.20

enum fal_class {
	FAL_CLASS_NONE, /* the worker ran no task: nothing is known */
	FAL_CLASS_STEADY,
	FAL_CLASS_STRAGGLER,
	FAL_CLASS_PIONEER,
	FAL_CLASS_STALLS /* stops now and then; never returned by fal_trace_classify */
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
	uint64_t clocks; /* in which the worker took part */
	uint64_t tasks;  /* run, with the dropped ones */
	double size;     /* of these tasks, in full tasks or in samples; the same unit for
			  * all workers
			  */
	double lane_s;   /* Σ over these tasks: seconds on the lane / lanes */
	/* Seconds that compute does not overlap, summed over the clocks; latency: waiting
	 * for round trips of its own link. */
	double push, pull, latency;
};

struct fal_trace_class {
	enum fal_class class;
	enum fal_cause cause; /* NONE for a steady worker */
	double projected;     /* seconds that the worker needs for an equal share */
};

/* Classifies n workers; writes out[i] for loads[i].
 *
 * Under EPSP all workers finish together, so their finish times say nothing.  The measure
 * is the time that each worker needs for an equal share.  With
 *	S = size / clocks, both summed over the workers that ran tasks,
 * the projected time of a worker is
 *	S · lane_s / size  +  (push + pull + latency) / clocks:
 * compute grows with the share, and the others come once a clock.  More than 20 % above
 * the median of these times: straggler; more than 20 % below: pioneer; else steady (θ of
 * the straggler projection).  The cause is that one of the four parts (compute, push,
 * pull, latency) that is farthest above (straggler) or below (pioneer) its own median.
 * Waiting for others is never a cause: another worker causes it.
 *
 * A worker that ran no task gets the median compute.  The worker is a straggler if its
 * link alone makes it one; else its class is NONE. */
void fal_trace_classify(const struct fal_trace_load *loads, size_t n,
			struct fal_trace_class *out);

const char *fal_class_name(enum fal_class c); /* "straggler", …; NONE: "-" */
const char *fal_cause_name(enum fal_cause c); /* "compute", …; NONE: "-" */

/* ---- shards ------------------------------------------------------------------------ */

/* A straggling shard makes workers wait for more than this share of the time. */
#define FAL_SHARD_BLAME 0.02

struct fal_shard_row {
	char name[256], address[256]; /* of the process; "": the coordinator's */
	uint64_t blocks;              /* in its last line */
	uint64_t rx, tx;              /* sums of its lines */
	double service, queue, blame;
	double took;          /* mean seconds of its part of a version; NAN: not known */
	enum fal_class class; /* by these seconds */
	const char *cause;    /* static; "blocks": more blocks; "pace": more time for each
			       * block; or "-" */
	double slower;        /* took / the median of the shards; NAN: not known */
	uint32_t lines;       /* private: lines with `took` */
};

/* Sums over shard lines: a row for each shard of the newest incarnation.  {0} with `from`
 * and `to` set is empty and valid. */
struct fal_shard_rows {
	struct fal_shard_row v[FAL_TRACE_SHARDS_MAX];
	uint32_t n;
	double from, to; /* the lines' seconds of the job */
};

/* Classifies the shards; more lines may follow.  A straggler is more than
 * FAL_CLASS_TOLERANCE above the median, and workers wait for this shard longer than
 * FAL_SHARD_BLAME. */
void fal_shard_rows_end(struct fal_shard_rows *r);

/* The last move of blocks, by place lines. */
struct fal_trace_moves {
	/* moves in the newest incarnation; the members that follow describe the last
	 * move */
	uint64_t moves;
	char by[256];    /* the key that ordered it */
	double t, took;  /* its end, its seconds; NAN: not known */
	uint64_t blocks; /* blocks that went to another shard */
	/* The growth of each shard, in blocks. */
	int64_t more[FAL_TRACE_SHARDS_MAX];
	struct fal_trace_place map; /* private: the present map */
};

/* ---- workers, epochs, the job ------------------------------------------------------ */

/* The parts of wall time, in seconds; `late` is not a part. */
struct fal_summary_spent {
	double compute, push, pull, wait, late;
};

/* A worker by name.  A session that joins after the end of an earlier session of the same
 * name continues the row. */
struct fal_summary_worker {
	char *name, *fingerprint;
	char *key, *key_fingerprint; /* of its session; NULL: the trace does not say */
	char *build;                 /* its program's version; NULL: as above */
	char *kernels;               /* kernels of its tasks; NULL: as above */
	struct {
		bool nondeterministic; /* by its fingerprint: bits differ from run to run
					*/
		bool differs; /* nondeterministic, or not most workers' fingerprint */
		bool skewed;  /* differs, and so does its build */
	} numerics;
	bool left; /* its last session has ended */
	struct {
		uint64_t n;     /* number of lost connections */
		double seconds; /* from its last work to the loss, summed */
	} falls;
	struct {
		bool holds;   /* it has missed a deadline */
		double since; /* time of the last `suspect` or `back` line */
		char *why;    /* the reason in that line */
	} suspicion;
	bool silent;         /* here, but has reported no work for long */
	double last_work;    /* time of its last clock line with tasks */
	double longest;      /* most seconds between two such lines */
	uint64_t lanes_max;  /* most lanes */
	uint64_t cores;      /* that it has */
	double fixed;        /* fal_trace_join_fixed */
	uint64_t lanes;      /* in its last clock line */
	uint64_t share;      /* tasks granted last */
	uint64_t last_clock; /* of its clock lines */
	uint64_t last_round; /* its own last round, if own_rounds */
	bool own_rounds;     /* its last clock line has a round of its own */
	double last_report;  /* time of its last clock line */
	struct {
		uint64_t done, in, out; /* claims won, moved to it, moved away */
		uint64_t cloned, lost;  /* clones that it ran, claims that lost */
	} tasks;
	uint64_t dropped; /* rounds of its own that were dropped */
	double samples;   /* of its done tasks */
	double ran;       /* samples of its done and lost tasks */
	struct fal_summary_spent spent;
	struct fal_summary_spent recent; /* each clock line counts 10 % less than the
					  * next one */
	struct {
		uint64_t sum, max; /* updates, over its load.clocks lines */
	} stale;
	double core_s; /* sum over its tasks of core seconds */
	struct fal_trace_load load;
	struct fal_trace_class verdict;
	struct { /* the times in which work could be granted to it */
		struct fal_summary_stay {
			double from, to;
		} *v;
		size_t n, cap;
		bool is_open; /* the last stay has not ended */
	} stays;
	uint64_t members; /* of a group server; 0: it is none */
	struct {
		uint64_t up, down; /* sent, received */
	} bytes;
};

/* Returns the class to print: "left", "suspect", "silent", or by fal_class_name. */
const char *fal_summary_class(const struct fal_summary_worker *w);

struct fal_summary_epoch {
	uint64_t epoch; /* from 1 */
	uint64_t updates, samples;
	double loss_sum; /* loss · samples */
	/* Seconds of the job; the first epoch begins when the first worker gets work. */
	double begin, end;
	bool evaluated;
	double accuracy, test_loss; /* if evaluated; a test loss of NAN: not known */
	struct fal_metrics training, test; /* likewise */
};

/* The job's rates are means over the last so many updates. */
#define FAL_SUMMARY_RATE_UPDATES 100

/* {0} is empty and valid. */
struct fal_summary {
	bool has_job, done;
	struct fal_trace_job job;
	char *name, *scheme;
	char *above;   /* the address of the coordinator above, if the trace is a group
			  server's; else NULL */
	char *failed;  /* the reason; NULL: the job did not fail */
	json_t *names; /* the last row of each name (fal_names_put) */
	struct fal_summary_worker *worker;
	size_t n_worker, cap_worker;
	struct fal_summary_epoch *epoch;
	size_t n_epoch, cap_epoch;
	uint64_t version; /* the newest */
	double seconds;   /* time of the last line */
	double began;     /* when the first worker got work; 0: not known */
	/* Samples that became a part of a version, that were dropped, that were computed
	 * in excess; tasks that were moved, cloned, skipped. */
	uint64_t samples, dropped, duplicates, moved, cloned, skipped;
	struct fal_stale stale; /* of the samples of rounds that were applied */
	double loss;            /* of the last update with samples */
	struct fal_metric_names metric_names;
	struct fal_metrics metrics; /* of the same update */
	struct {
		bool exists;
		uint64_t epoch;
		double accuracy, loss; /* NAN: not known */
		struct fal_metrics metrics;
	} eval;                        /* the last one */
	struct fal_summary_resumed {   /* restarts of the coordinator */
		uint64_t incarnation;  /* number of restarts; 0: never */
		double t;              /* of the last time */
		uint64_t clock, until; /* began at `clock`; `until` was done before */
	} resumed;

	struct fal_shard_rows shards; /* of a job with several shards, by shard lines */
	struct fal_trace_moves moves; /* of their blocks */
	struct fal_summary_verify {   /* claims repeated by another key */
		uint64_t asked, equal, unlike;
		char *who; /* the workers of the last unlike results, or NULL */
		uint64_t clock, task; /* of these */
	} verify;

	char *trainer; /* the last failure of a trainer; NULL: none */

	/* Set by fal_summary_end. */
	uint64_t clocks; /* that have ended, by their tasks; in a group's trace: clocks
			  * before the last one that it contributed to */
	double stalled;  /* seconds since the last update, if unusually many; else 0 */
	/* Rates per second over the last updates, or, in a group's trace, over the rounds
	 * that the group has given; 0: too few, or stalled. */
	struct {
		double clocks, samples, updates;
		double capacity; /* samples; 0: not known */
	} rate;
	bool identical;                 /* all fingerprints are equal */
	struct fal_summary_spent spent; /* of all workers */

	/* Private. */
	struct fal_ids ids;   /* session → index of worker */
	uint64_t last_clock;  /* of clock lines */
	uint64_t next_clock;  /* 1 + the newest clock of an update */
	uint64_t ended_tasks; /* of rounds that were applied or dropped */
	bool is_partial;      /* the trace begins in mid-job, or lines are missing */
	bool has_gap;         /* lines are missing: ids may be unknown */
	struct fal_summary_tick {
		double t, clocks;
		uint64_t samples;
	} tick[FAL_SUMMARY_RATE_UPDATES + 1]; /* the last updates, a ring */
	uint64_t ticks;
};

/* Takes the next line, as an on_line of fal_trace_reader_new; `summary` is a struct
 * fal_summary.  Errors: FAL_EFORMAT, FAL_ELIMIT, FAL_EINVAL. */
int fal_summary_line(void *summary, struct fal_trace_line *l);

/* Computes clocks, classes, rates, numerics, and the capacity
 *	Σ min(lanes_max, cores) · samples a core-second,
 * over the workers.  Each worker counts for that part of the rates' time in which the
 * worker was here and no suspect.  An excluded worker, which reports no clocks, counts as
 * here until its last report.  More lines and further calls may follow.  FAL_ETRUNC:
 * there was no line. */
int fal_summary_end(struct fal_summary *s, struct fal_diag *diag);

void fal_summary_free(struct fal_summary *s);

#endif
