/* Facts that follow from the members of one line: the clocks of the job line, the round
 * of a ledger line, the tasks of a clock line, the map of a place line.
 *
 * These calls check that the members of one line agree with each other and with the job;
 * each call that takes a line returns 0 or l->err.
 */
#ifndef FAL_TRACE_LINES_H
#define FAL_TRACE_LINES_H

#include "sched/rule.h"
#include "sched/sched.h"
#include "trace/reader.h"

/* The number of that member must be at most `max`: FAL_ELIMIT. */
int fal_trace_most(struct fal_trace_line *l, const char *name, uint64_t n, uint64_t max);

/* ---- job --------------------------------------------------------------------------- */

/* The numbers of the job line, as falcon-trace(5) names them. */
struct fal_trace_job {
	uint64_t epochs, batch, task, samples, blocks, clocks_per_epoch, clocks;
	uint64_t parts;  /* of the data */
	bool sums;       /* audit = sums */
	bool skips;      /* nonfinite = skip */
	uint64_t hashes; /* one version of so many is hashed; 0: none is */
	uint64_t test;   /* test samples */
	uint64_t shards;
	uint64_t params;
};

/* Reads the line (ev = job).  FAL_ELIMIT, FAL_EINVAL. */
int fal_trace_job_read(struct fal_trace_line *l, struct fal_trace_job *out);
/* A `restart` line: from there on the job may have more epochs, as the line says.
 * FAL_EINVAL: fewer than before. */
int fal_trace_job_restart(struct fal_trace_line *l, struct fal_trace_job *job);

/* The samples of clock c < clocks: the last clock of an epoch may be shorter. */
uint64_t fal_trace_job_samples(const struct fal_trace_job *job, uint64_t c);
/* The tasks of clock c < clocks: the last one may be shorter. */
uint64_t fal_trace_job_tasks(const struct fal_trace_job *job, uint64_t c);
/* The samples of tasks first … first+count-1 of clock c < clocks; tasks that it has not
 * have none. */
uint64_t fal_trace_range_samples(const struct fal_trace_job *job, uint64_t c,
				 uint64_t first, uint64_t count);
/* The epoch of clock c < clocks, from 1. */
uint64_t fal_trace_job_epoch(const struct fal_trace_job *job, uint64_t c);
/* The samples of a full task: no task of the job has more. */
uint64_t fal_trace_job_full(const struct fal_trace_job *job);

/* The scheme of a job or policy line.  FAL_EINVAL: no such scheme, key or value. */
int fal_trace_scheme_read(struct fal_trace_line *l, const char *text,
			  struct fal_rule *out);

/* ---- join, clock ------------------------------------------------------------------- */

/* The share of a full task's seconds that a task of any size takes, as the worker's probe
 * found; NAN: it did not say. */
double fal_trace_join_fixed(const struct fal_ev_join *j, const struct fal_trace_job *job);

/* Some of a worker's tasks, one after the other. */
struct fal_trace_pace {
	uint64_t tasks;
	double samples; /* theirs */
	double task_s;  /* mean seconds of one */
};

/* Their work in full tasks: the fixed share of each, the rest by samples. */
double fal_trace_size(const struct fal_trace_job *job, double fixed,
		      const struct fal_trace_pace *p);

/* The tasks of a clock line, done and lost. */
struct fal_trace_ran {
	struct fal_trace_pace all;
	struct fal_trace_pace pace[FAL_WORK_PACES]; /* in order; one that is `all`, where
						       the line has none */
	size_t paces;
};

/* Reads it.  FAL_ELIMIT: not from 2 to FAL_WORK_PACES paces; FAL_EINVAL: samples that the
 * tasks cannot have; paces that are not of its tasks, or of none, or whose mean is not
 * task_s. */
int fal_trace_clock_ran(struct fal_trace_line *l, const struct fal_trace_job *job,
			struct fal_trace_ran *out);

/* Seconds of the line's wait that its worker waited for its own link: a round trip, or,
 * where tasks may move, and what it made leaves when its claims have been answered, two;
 * 0 where the line does not say how long one takes. */
double fal_trace_clock_latency(const struct fal_ev_clock *c, bool moves);

/* ---- ledger ------------------------------------------------------------------------ */

/* The round of a ledger line, without who did what. */
struct fal_trace_round {
	uint64_t round, clock, first, tasks, samples, version, blocks;
	enum fal_trace_end end;
	bool delta, has_stale;
	bool moved;                     /* tasks of it were */
	uint32_t owner;                 /* 0: none */
	uint64_t group;                 /* 0: none */
	uint64_t local;                 /* its place on its group's line; 0: none */
	double weight;                  /* 1 if it is not there */
	uint64_t among, steps;          /* 0 if they are not there */
	double divisor;                 /* the same */
	uint64_t clocks, updates, rank; /* stale; rank 0: it has none */
	uint64_t slot;                  /* FAL_TRACE_ABSENT: none */
};

struct fal_trace_round fal_trace_round_of(const struct fal_ev_ledger *e);

/* All of its tasks were added, each once: it became a part of a version, here or above.
 */
bool fal_trace_round_whole(const struct fal_trace_round *r);

/* The samples of rows that end in [first, count], tasks of that clock. */
uint64_t fal_trace_rows_samples(const struct fal_trace_job *job, uint64_t clock,
				struct fal_numbers rows, size_t width);

/* The samples that were computed once more than the round needs: those of claims that
 * lost, of fills, and, if it was abandoned, of all claims. */
uint64_t fal_trace_round_twice(const struct fal_ev_ledger *e,
			       const struct fal_trace_job *job);

/* The samples of the round's tasks, but for those that were skipped.  Its clock is one of
 * the job's, and has its tasks. */
uint64_t fal_trace_round_counted(const struct fal_trace_round *r,
				 struct fal_numbers skipped,
				 const struct fal_trace_job *job);

/* "clock 7", or "round 9 of clock 7" where it is not the same; returns `out`. */
#define FAL_TRACE_ROUND_NAME 64
const char *fal_trace_round_name(const struct fal_trace_round *r,
				 char out[static FAL_TRACE_ROUND_NAME]);

/* The line's asked, equal, unlike, which must agree.  FAL_EFORMAT. */
int fal_trace_verified(struct fal_trace_line *l);

/* The tasks of rows that end in [.., count]. */
uint64_t fal_trace_rows_tasks(struct fal_numbers rows, size_t width);

/* ---- place, shard ------------------------------------------------------------------ */

/* Limit of what is read. */
#define FAL_TRACE_PLACED_MAX ((uint64_t)1 << 20) /* blocks */

/* The rules that make maps: as many blocks for each shard, a file, a move. */
#define FAL_TRACE_BLOCKS "blocks"
#define FAL_TRACE_FILE "file"
#define FAL_TRACE_MOVED "moved"

/* {0} is empty and valid. */
struct fal_trace_place {
	uint64_t map;  /* its number */
	char rule[32]; /* "": there was no line */
	uint32_t shards;
	uint32_t places; /* that the rule knew, of which these have blocks */
	uint32_t blocks;
	uint32_t *shard; /* of each block, from 0; owned */
};
void fal_trace_place_free(struct fal_trace_place *p);

/* Reads the line in place of what `p` has.  FAL_EFORMAT, FAL_ELIMIT, FAL_EINVAL: a block
 * is in no run, or in two, or on a shard that is none; FAL_ENOMEM. */
int fal_trace_place_read(struct fal_trace_line *l, const struct fal_trace_job *job,
			 struct fal_trace_place *p);

/* Does the shard line have a shard, a clock and blocks that the job has?  FAL_ELIMIT,
 * FAL_EINVAL. */
int fal_trace_shard_check(struct fal_trace_line *l, const struct fal_trace_job *job);

#endif
