/* Reads a trace (falcon-trace(5)), plain or compressed by zstd(1): bytes in, one line at
 * a time out, as the struct that schema.h has for its event; and what follows from the
 * members of one line: the clocks of a job, the round of a ledger line, the tasks of a
 * clock line, the map of a place line.
 *
 * Pure: no descriptors.  Lines are bounded, so is memory, whatever a frame claims; what
 * is wrong is said with the number of the line.  Judged here are the order of lines, and
 * of each line its syntax, which members it has, their ranges, and whether they agree
 * with each other and with the job; what lines together mean is not (audit.h).
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

/* A line.  on_line may keep it; else its memory is freed when on_line returns. */
struct fal_trace_line {
	uint64_t number; /* of the line, from 1 */
	double t;        /* seconds since the job began */
	const char *ev;  /* the event; as that of the table: */
	enum fal_event event;
	union { /* its members; nothing of FAL_EV_OTHER */
#define FAL_LINE(constant, event) struct fal_ev_##event event;
		FAL_TRACE_EVENTS(FAL_LINE)
#undef FAL_LINE
	} is;
	/* The worker whose line it is; NULL: it names none. */
	const char *worker;
	uint32_t id;
	bool cut; /* does not count: the job went on from before it, in a line `restart`
		   */
	const json_t *o;  /* the whole line */
	const char *text; /* its bytes, without newline; as long */
	size_t n;
	int err;                        /* 0, or the first that failed */
	struct fal_diag diag;           /* what failed: "12: ledger.clock: missing" */
	struct fal_trace_block *blocks; /* private: memory of `is` */
};

/* Records "LINE: EV: what" as the line's error, if it has none yet; returns l->err.  What
 * begins with a field and a colon makes that "LINE: EV.FIELD: what". */
int fal_trace_fail(struct fal_trace_line *l, int err, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));

/* The line, which on_line was given, without its text; it has no members any more. */
struct fal_trace_line *fal_trace_line_keep(struct fal_trace_line *l);
void fal_trace_line_free(struct fal_trace_line *l); /* may be NULL */

/* Is it a job's last line? */
bool fal_trace_is_last(const struct fal_trace_line *l);

/* How a trace has ended so far, for who follows it: {0}, then line by line. */
struct fal_trace_ending {
	bool over;    /* by the job's last line */
	bool stopped; /* by a stop that was asked for */
};
void fal_trace_ending_note(struct fal_trace_ending *e, const struct fal_trace_line *l);
/* What is to be said where nothing more comes of it. */
extern const char fal_trace_early_end[];

struct fal_trace_reader;

/* A reader that calls on_line(arg, line) for each line, the job line first, if there was
 * room for it; a negative return of it ends the reading. */
struct fal_trace_reader *
fal_trace_reader_new(int (*on_line)(void *arg, struct fal_trace_line *l), void *arg);
/* Lines that do not count are told of, too, with `cut`: for what holds of any line. */
void fal_trace_reader_tell_cut(struct fal_trace_reader *r);
void fal_trace_reader_free(struct fal_trace_reader *r);

/* Finds which lines do not count: to be fed the whole trace before fal_trace_feed reads
 * it again.  Judges nothing: what is wrong is found then.  `reader` is a struct
 * fal_trace_reader.  0 or FAL_ENOMEM. */
int fal_trace_find(void *reader, const void *p, size_t n);

/* Feeds n bytes; lines are delivered inside the call.  A trace that begins with a zstd
 * frame is one or more of them, to its end.  Errors: FAL_EFORMAT (no JSON object, a
 * member is missing or of another kind, no zstd frame where one must be), FAL_EINVAL (the
 * first line is not job, another one is, t decreases, or a restart that was not found
 * before cuts lines off which were delivered), FAL_ELIMIT (line too long, a
 * number too large, a frame's window too large: zip.h), FAL_ENOMEM, or what on_line
 * returned; after an error every further call returns it again. */
int fal_trace_feed(struct fal_trace_reader *r, const void *p, size_t n,
		   struct fal_diag *diag);

/* The bytes have ended; FAL_ETRUNC if in the middle of a line or a frame: the lines
 * before were delivered; FAL_EFORMAT if there was none before. */
int fal_trace_end(struct fal_trace_reader *r, struct fal_diag *diag);
/* The number of that member must be at most `max`: FAL_ELIMIT. */
int fal_trace_most(struct fal_trace_line *l, const char *name, uint64_t n, uint64_t max);

/* ---- job --------------------------------------------------------------------------- */

/* The numbers of the job line, as falcon-trace(5) names them. */
struct fal_trace_job {
	struct fal_grid grid;
	uint64_t blocks, clocks_per_epoch, clocks;
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

/* The samples of tasks first … first+count-1 of clock c < clocks; tasks that it has not
 * have none. */
uint64_t fal_trace_range_samples(const struct fal_trace_job *job, uint64_t c,
				 uint64_t first, uint64_t count);
/* The epoch of clock c < clocks, from 1. */
uint64_t fal_trace_job_epoch(const struct fal_trace_job *job, uint64_t c);

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
 * where tasks may move, and what it made may leave when its claims have been answered,
 * two at most; 0 where the line does not say how long one takes. */
double fal_trace_clock_latency(const struct fal_ev_clock *c, bool moves);

/* ---- ledger ------------------------------------------------------------------------ */

/* The round of a ledger line, without who did what. */
struct fal_trace_round {
	uint64_t round, clock, first, tasks, samples, version, blocks;
	uint64_t late; /* tasks from here on ran on the next version; FAL_TRACE_ABSENT */
	enum fal_trace_end end;
	bool delta, has_stale;
	bool moved;                /* tasks of it were */
	uint32_t owner;            /* 0: none */
	uint64_t group;            /* 0: none */
	uint64_t local;            /* its place on its group's line; 0: none */
	double weight;             /* 1 if it is not there */
	uint64_t among, steps;     /* 0 if they are not there */
	double divisor;            /* the same */
	struct fal_ev_stale stale; /* rank 0: it has none */
	uint64_t slot;             /* FAL_TRACE_ABSENT: none */
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

/* The samples of the round's tasks, but for those that were skipped.  The round's clock
 * is one of the job's, and has the round's tasks. */
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
 * is in no run, or in two, or on a shard that is none. */
int fal_trace_place_read(struct fal_trace_line *l, const struct fal_trace_job *job,
			 struct fal_trace_place *p);

/* Does the shard line have a shard, a clock and blocks that the job has?  FAL_ELIMIT,
 * FAL_EINVAL. */
int fal_trace_shard_check(struct fal_trace_line *l, const struct fal_trace_job *job);

/* ---- staleness --------------------------------------------------------------------- */

enum fal_stale_kind {
	FAL_STALE_CLOCKS,  /* clocks before the slowest worker */
	FAL_STALE_UPDATES, /* updates between the version it ran on and the one it changed
			    */
	FAL_STALE_RANK,    /* rank of arrival in its version, from 1 */
	FAL_STALE_KINDS
};

/* Farther than this is counted here. */
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

struct fal_id {
	uint32_t id;
	size_t value;
};

/* A map from names to numbers, NULL at first and freed by json_decref: the number of
 * `name`; and another one for it. */
bool fal_names_get(json_t *const *names, const char *name, size_t *out);
void fal_names_put(json_t **names, const char *name, size_t value);

/* {0} is empty and valid. */
struct fal_ids {
	struct fal_id *v;
	size_t n, cap;
};

/* The value of `id`, borrowed until the next put, or NULL. */
size_t *fal_ids_get(const struct fal_ids *ids, uint64_t id);
/* Adds an id that is not there. */
void fal_ids_put(struct fal_ids *ids, uint32_t id, size_t value);
void fal_ids_free(struct fal_ids *ids);

#endif
