/* What the job line of a trace says of every clock: its tasks and samples; and what these
 * sizes cost a worker. */
#ifndef FAL_TRACE_CLOCKS_H
#define FAL_TRACE_CLOCKS_H

#include "sched/sched.h"
#include "trace/reader.h"

/* Limits of what is read, so that no trace makes its reader allocate without bound. */
#define FAL_TRACE_TASKS_MAX ((uint64_t)1 << 20)   /* of one clock */
#define FAL_TRACE_BLOCKS_MAX ((uint64_t)1 << 32)  /* of one model */
#define FAL_TRACE_SHARDS_MAX ((uint64_t)64)       /* of the parameters */
#define FAL_TRACE_PARTS_MAX ((uint64_t)1 << 16)   /* of the data */
#define FAL_TRACE_SAMPLES_MAX ((uint64_t)1 << 40) /* of one epoch */

enum { FAL_TRACE_BLOCK = 4096 }; /* parameters of a block */

/* The numbers of the job line, as falcon-trace(5) names them. */
struct fal_trace_job {
	uint64_t epochs, batch, task, samples, blocks, clocks_per_epoch, clocks;
	uint64_t parts;  /* of the data; 1 if the line has none */
	bool sums;       /* audit = sums */
	bool skips;      /* nonfinite = skip */
	uint64_t hashes; /* one version of so many is hashed; 0 if the line has none */
	uint64_t test;   /* test samples; 0 if the line has none */
	uint64_t shards; /* 1 if the line has none */
	uint64_t params; /* 0 if the line has none */
};

/* Reads the line (ev = job); its own numbers must agree with each other.  Returns 0 or
 * l->err: FAL_EFORMAT, FAL_ELIMIT, or FAL_EINVAL. */
int fal_trace_job_read(struct fal_trace_line *l, struct fal_trace_job *out);
/* A `restart` line: from there on the job may have more epochs, as the line says.
 * FAL_EFORMAT; FAL_EINVAL: fewer than before. */
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

/* Of a join line: the share of a full task's seconds that a task of any size takes, as
 * the worker's probe found; NAN: it did not say. */
double fal_trace_join_fixed(struct fal_trace_line *l, const struct fal_trace_job *job);

/* Some of a worker's tasks, one after the other. */
struct fal_trace_pace {
	uint64_t tasks;
	double samples; /* theirs */
	double task_s;  /* mean seconds of one */
};

/* What they are in full tasks: the fixed share of each, the rest by samples. */
double fal_trace_size(const struct fal_trace_job *job, double fixed,
		      const struct fal_trace_pace *p);

/* What a clock line says of its tasks, done and lost. */
struct fal_trace_ran {
	struct fal_trace_pace all;
	struct fal_trace_pace pace[FAL_WORK_PACES]; /* in order; one that is `all`, where
						       the line has none */
	size_t paces;
};

/* Reads it.  A line without samples has those of mean tasks of its clock.  Returns 0 or
 * l->err.  FAL_ELIMIT: more than `most` tasks, not from 2 to FAL_WORK_PACES paces;
 * FAL_EINVAL: samples that the tasks cannot have; paces that are not of its tasks, or of
 * none, or whose mean is not task_s. */
int fal_trace_clock_ran(struct fal_trace_line *l, const struct fal_trace_job *job,
			uint64_t most, struct fal_trace_ran *out);

/* Seconds of the line's wait that its worker waited for its own link: a round trip, or,
 * where tasks may move, and what it made leaves when its claims have been answered, two;
 * 0 where the line does not say how long one takes. */
double fal_trace_clock_latency(struct fal_trace_line *l, bool moves);

#endif
