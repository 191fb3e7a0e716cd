/* Reads a trace (falcon-trace(5)), plain or compressed by zstd(1).  Bytes go in, lines
 * come out: each as the struct that schema.h has for its event.  Also derives facts from
 * the members of one line: the clocks of a job, the round of a ledger line, the tasks of
 * a clock line, the map of a place line.
 *
 * Pure: no descriptors.  Lines are bounded, so memory is bounded, too, whatever a frame
 * claims.  An error names the number of its line.  The reader judges the order of lines,
 * and of each line its syntax, its members, their ranges, and their agreement with each
 * other and with the job.  It does not judge lines against other lines (audit.h).
 */
#ifndef FAL_TRACE_READER_H
#define FAL_TRACE_READER_H

#include "base/err.h"
#include "sched/policy.h"
#include "sched/sched.h"
#include "trace/schema.h"

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The longest line that is read, in bytes without its newline. */
#define FAL_TRACE_LINE_MAX ((size_t)16 << 20)

/* A line.  Its memory is freed when on_line returns, unless on_line keeps it. */
struct fal_trace_line {
	uint64_t number; /* of the line, from 1 */
	double t;        /* seconds since the job began */
	const char *ev;  /* the event's name */
	enum fal_event event;
	union { /* the members; none of FAL_EV_OTHER */
#define FAL_LINE(constant, event) struct fal_ev_##event event;
		FAL_TRACE_EVENTS(FAL_LINE)
#undef FAL_LINE
	} is;
	/* The worker of the line; NULL: the line names none. */
	const char *worker;
	uint32_t id;
	bool cut; /* a later line `restart` cancels this line, which then does not count
		   */
	const json_t *o;  /* the whole line */
	const char *text; /* its n bytes, without newline; NULL in a kept line */
	size_t n;
	int err;                        /* 0, or the first error */
	struct fal_diag diag;           /* its text: "12: ledger.clock: missing" */
	struct fal_trace_block *blocks; /* private: memory of `is` */
};

/* Records "LINE: EV: what" as the line's error, unless the line has an error; returns
 * l->err.  If the text begins with a field and a colon, records "LINE: EV.FIELD: what".
 */
int fal_trace_fail(struct fal_trace_line *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* Inside on_line: returns a copy of the line that outlives the call, without its text.
 * The original loses its members. */
struct fal_trace_line *fal_trace_line_keep(struct fal_trace_line *l);
/* Frees a kept line; takes NULL. */
void fal_trace_line_free(struct fal_trace_line *l);

/* Returns whether the line is the last one of a job: done or failed. */
bool fal_trace_is_last(const struct fal_trace_line *l);

/* The end of a trace.  A follower starts with {0} and notes each line. */
struct fal_trace_ending {
	bool over;    /* the job's last line has come */
	bool stopped; /* a controller stopped the job */
};
void fal_trace_ending_note(struct fal_trace_ending *e, const struct fal_trace_line *l);
/* The message for a trace that ends before its job. */
extern const char fal_trace_early_end[];

struct fal_trace_reader;

/* Returns a reader that calls on_line(arg, line) for each line.  A negative return of
 * on_line ends the reading. */
struct fal_trace_reader *
fal_trace_reader_new(int (*on_line)(void *arg, struct fal_trace_line *l), void *arg);
/* Makes the reader also deliver the lines that do not count, with `cut` set. */
void fal_trace_reader_deliver_cut(struct fal_trace_reader *r);
void fal_trace_reader_free(struct fal_trace_reader *r);

/* The first of two passes: finds the restart lines, which say which lines do not count.
 * Gets the whole trace, before fal_trace_feed gets the same trace.  Reports no faults;
 * the second pass does.  `reader` is a struct fal_trace_reader.  0 or FAL_ENOMEM. */
int fal_trace_find_restarts(void *reader, const void *p, size_t n);

/* Feeds n bytes and delivers their lines.  A trace that begins with a zstd frame consists
 * of zstd frames to its end.  Errors: FAL_EFORMAT (no JSON object; a member is missing or
 * of another kind; no zstd frame where a frame must be), FAL_EINVAL (the first line is
 * not job; another line is; t decreases; a restart that the first pass did not find cuts
 * off delivered lines), FAL_ELIMIT (a line is too long, a number too large, a frame's
 * window too large: zip.h), FAL_ENOMEM, or the return of on_line.  After an error every
 * further call returns the same error. */
int fal_trace_feed(struct fal_trace_reader *r, const void *p, size_t n,
		   struct fal_diag *diag);

/* Ends the trace.  The trace may end in the middle of a line or a frame: FAL_ETRUNC after
 * delivered lines, FAL_EFORMAT before the end of the first line. */
int fal_trace_end(struct fal_trace_reader *r, struct fal_diag *diag);

/* Checks that member `name`, the number n, is at most `max`: FAL_ELIMIT. */
/* Reads the metrics of a line into `out`, in the order of `names`; adds new names. */
void fal_trace_read_metrics(struct fal_trace_line *l, const struct fal_ev_metric *v,
			    size_t n, double samples, struct fal_metric_names *names,
			    struct fal_metrics *out);

int fal_trace_check_max(struct fal_trace_line *l, const char *name, uint64_t n,
			uint64_t max);

/* ---- job --------------------------------------------------------------------------- */

/* The numbers of the job line, by their names in falcon-trace(5). */
struct fal_trace_job {
	struct fal_grid grid;
	uint64_t blocks, clocks_per_epoch, clocks;
	bool sums;       /* audit = sums */
	bool skips;      /* nonfinite = skip */
	uint64_t hashes; /* interval of hashed versions; 0: no version has a hash */
	uint64_t test;   /* test samples */
	uint64_t shards;
	uint64_t params;
};

/* Reads the job line.  FAL_ELIMIT, FAL_EINVAL. */
int fal_trace_job_read(struct fal_trace_line *l, struct fal_trace_job *out);
/* Sets the number of epochs from a `restart` line.  FAL_EINVAL: fewer than before;
 * FAL_ELIMIT. */
int fal_trace_job_restart(struct fal_trace_line *l, struct fal_trace_job *job);

/* Returns the samples of tasks first … first+count-1 of clock c < clocks; tasks beyond
 * the clock's last task count 0. */
uint64_t fal_trace_range_samples(const struct fal_trace_job *job, uint64_t c,
				 uint64_t first, uint64_t count);

/* Parses the scheme of a job or policy line.  FAL_EINVAL: no such scheme, key or value.
 */
int fal_trace_scheme_read(struct fal_trace_line *l, const char *text,
			  struct fal_rule *out);

/* ---- join, clock ------------------------------------------------------------------- */

/* Returns the share of a full task's seconds that a task of any size takes, by the
 * worker's probe; NAN: the line has no such probe. */
double fal_trace_join_fixed(const struct fal_ev_join *j, const struct fal_trace_job *job);

/* Consecutive tasks of a worker. */
struct fal_trace_pace {
	uint64_t tasks;
	double samples; /* of all of them */
	double task_s;  /* mean seconds of a task */
};

/* Returns the work of these tasks in full tasks: the fixed share of each task, and the
 * rest in proportion to its samples. */
double fal_trace_full_tasks(const struct fal_trace_job *job, double fixed,
			    const struct fal_trace_pace *p);

/* The tasks of a clock line, done and lost. */
struct fal_trace_paces {
	struct fal_trace_pace all;
	struct fal_trace_pace pace[FAL_WORK_PACES]; /* in order; one, `all`, if the line
						     * has none */
	size_t paces;
};

/* Reads the paces of a clock line.  FAL_ELIMIT: not from 2 to FAL_WORK_PACES paces;
 * FAL_EINVAL: samples that the tasks cannot have; paces of other tasks, of no task, or
 * with a mean other than task_s. */
int fal_trace_clock_paces(struct fal_trace_line *l, const struct fal_trace_job *job,
			  struct fal_trace_paces *out);

/* Returns the seconds of the line's wait that the worker waited for its own link: at most
 * one round trip.  If tasks may move, at most two round trips, since contributions then
 * leave only after the answers to their claims.  0: the line has no time of a round
 * trip. */
double fal_trace_clock_latency(const struct fal_ev_clock *c, bool moves);

/* ---- ledger ------------------------------------------------------------------------ */

/* The round of a ledger line, without its lists of tasks. */
struct fal_trace_round {
	uint64_t round, clock, first, tasks, samples, version, blocks;
	uint64_t late; /* from this task on, tasks ran on the next version;
			  FAL_TRACE_ABSENT */
	enum fal_trace_end end;
	bool delta, has_stale;
	bool moved;                /* some tasks were moved */
	uint32_t owner;            /* 0: none */
	uint64_t group;            /* 0: none */
	uint64_t local;            /* place on the branch of its group; 0: none */
	double weight;             /* 1 if absent */
	uint64_t among, steps;     /* 0 if absent */
	double divisor;            /* 0 if absent */
	struct fal_ev_stale stale; /* rank 0: no rank */
	uint64_t slot;             /* FAL_TRACE_ABSENT: none */
};

struct fal_trace_round fal_trace_round_of(const struct fal_ev_ledger *e);

/* Returns whether all tasks of the round were added, each once: the round became a part
 * of a version, here or at the coordinator above. */
bool fal_trace_round_is_complete(const struct fal_trace_round *r);

/* Returns the samples of the tasks in rows of this clock.  Each row ends with [first,
 * count]. */
uint64_t fal_trace_rows_samples(const struct fal_trace_job *job, uint64_t clock,
				struct fal_numbers rows, size_t width);

/* Returns the number of tasks in rows.  Each row ends with a count. */
uint64_t fal_trace_rows_tasks(struct fal_numbers rows, size_t width);

/* Returns the samples that were computed in excess of the round: those of lost claims and
 * of fills, and, if the round was abandoned, of all claims. */
uint64_t fal_trace_round_duplicates(const struct fal_ev_ledger *e,
				    const struct fal_trace_job *job);

/* Returns the samples of the round's tasks without the skipped ones.  Needs a clock that
 * the job has and tasks that the clock has. */
uint64_t fal_trace_round_samples(const struct fal_trace_round *r,
				 struct fal_numbers skipped,
				 const struct fal_trace_job *job);

/* Writes "clock 7", or "round 9 of clock 7" where the numbers differ; returns `out`. */
#define FAL_TRACE_ROUND_NAME 64
const char *fal_trace_round_name(const struct fal_trace_round *r,
				 char out[static FAL_TRACE_ROUND_NAME]);

/* Checks that the line's counts of verified tasks (asked, equal, unlike) agree.
 * FAL_EFORMAT. */
int fal_trace_check_verified(struct fal_trace_line *l);

/* ---- place, shard ------------------------------------------------------------------ */

/* The most blocks of a map that the reader accepts. */
#define FAL_TRACE_PLACED_MAX ((uint64_t)1 << 20)

/* The rules that make maps: equally many blocks for each shard, a file, a move. */
#define FAL_TRACE_BLOCKS "blocks"
#define FAL_TRACE_FILE "file"
#define FAL_TRACE_MOVED "moved"

/* {0} is empty and valid. */
struct fal_trace_place {
	uint64_t map;  /* its number */
	char rule[32]; /* "": there was no line */
	uint32_t shards;
	uint32_t places; /* places of the rule; `shards` of these have blocks */
	uint32_t blocks;
	uint32_t *shard; /* of each block, from 0; owned */
};
void fal_trace_place_free(struct fal_trace_place *p);

/* Replaces *p by the line's map.  FAL_EFORMAT, FAL_ELIMIT, FAL_EINVAL: a block is in no
 * run, in two runs, or on a shard that does not exist. */
int fal_trace_place_read(struct fal_trace_line *l, const struct fal_trace_job *job,
			 struct fal_trace_place *p);

/* Checks that the job has the shard line's shard, clock and blocks.  FAL_ELIMIT,
 * FAL_EINVAL. */
int fal_trace_shard_check(struct fal_trace_line *l, const struct fal_trace_job *job);

/* ---- staleness --------------------------------------------------------------------- */

enum fal_stale_kind {
	FAL_STALE_CLOCKS,  /* clocks before the slowest worker */
	FAL_STALE_UPDATES, /* updates from the version that a round ran on to the version
			    * that it changed */
	FAL_STALE_RANK,    /* order of arrival in its version, from 1 */
	FAL_STALE_KINDS
};

/* The largest value counted by itself; larger values count as this one. */
#define FAL_STALE_MAX 256

/* {0} is empty and valid. */
struct fal_stale {
	uint64_t samples[FAL_STALE_KINDS][FAL_STALE_MAX + 1];
};

/* Counts the samples of a round that became a part of `version`. */
void fal_stale_add(struct fal_stale *s, const struct fal_trace_round *r,
		   uint64_t version);

const char *fal_stale_name(enum fal_stale_kind kind); /* "clocks", … */

/* ---- workers ----------------------------------------------------------------------- */

/* A map from names to numbers, NULL at first, freed by json_decref. */
bool fal_names_get(json_t *const *names, const char *name, size_t *out);
/* Sets or replaces the number of `name`. */
void fal_names_put(json_t **names, const char *name, size_t value);

/* A map from ids of sessions to numbers.  {0} is empty and valid. */
struct fal_ids {
	struct fal_id {
		uint32_t id;
		size_t value;
	} *v; /* ascending */
	size_t n, cap;
};

/* Returns the value of `id`, borrowed until the next put, or NULL. */
size_t *fal_ids_get(const struct fal_ids *ids, uint64_t id);
/* Adds `id`, which must not be there. */
void fal_ids_put(struct fal_ids *ids, uint32_t id, size_t value);
void fal_ids_free(struct fal_ids *ids);

#endif
