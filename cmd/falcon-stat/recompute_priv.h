/* Inside falcon-stat's recompute: what is shared by
 *
 *	recompute.c  what is read and computed, and what is wrong with it
 *	course.c     the course of a run, clock by clock, as its trace tells it: what each
 *	             clock was made of, beside job and data, and who made it
 *	plan.c       which versions are kept, and which of them are drawn */
#ifndef FALCON_STAT_RECOMPUTE_PRIV_H
#define FALCON_STAT_RECOMPUTE_PRIV_H

#include "base/rng.h"
#include "cli/progress.h"
#include "crypto/hash.h"
#include "run/replay.h"
#include "stat.h"
#include "trace/reader.h"

#include <stdbool.h>
#include <stdint.h>

/* ---- course.c ---- */

/* Why a clock cannot be computed anew. */
enum course_why {
	COURSE_MAY,
	COURSE_UNTOLD, /* it is not over, or no version follows it alone */
	COURSE_UNLAWFUL,
	COURSE_MIXED /* by workers of several numerics */
};

struct course_clock {
	enum course_why why;
	const char *scheme;   /* static */
	uint64_t version, on; /* that it made, 0: none; that its tasks ran on, */
	uint64_t late; /* … but those from here on, on the next one; FAL_TRACE_ABSENT */
	size_t print;  /* of who made it: its place and 1 */
	double lr;
	uint64_t total;     /* clocks that the job had then */
	bool hashed, exact; /* exact: its exponents are */
	/* The hash of the version, and that of its exponents. */
	uint8_t hash[FAL_HASH_BYTES], exponents[FAL_HASH_BYTES];
	bool sure; /* it was computed anew, and has these */
	/* The clock's `ledger` lines with `want`, as they came. */
	bool want;
	struct fal_trace_line **line;
	size_t lines, line_cap;
};

struct course {
	struct fal_trace_job job;
	/* The hash in the job line; "": the line gives none. */
	char hash[65];
	char sha256[65];  /* of the model: the job is done, and it is */
	uint64_t version; /* of this version */
	struct course_clock *clock;
	size_t clocks, clock_cap;
	uint64_t made;  /* the newest version */
	uint64_t delay; /* that a version was late by, at most */
	bool lawful;    /* the scheme that holds is */
	bool parts;     /* it went on with other files */
	const char *scheme;
	struct course_worker {
		char *name, *key, *key_fingerprint; /* NULL: not said */
		size_t print;
	} *worker;
	size_t workers, worker_cap;
	struct fal_ids ids; /* places of these */
	char **print;       /* fingerprints of numerics */
	size_t prints, print_cap;
	/* The lines at which snapshots claim to have been taken, and their links, to be
	 * compared. */
	struct course_mark {
		uint64_t line;
		const char *link; /* borrowed */
		bool met;
	} *mark;
	size_t marks;
	bool again; /* only lines that are wanted are taken */
	uint64_t counted;
};

/* {0} is empty and valid.  `course` is a struct course: on_line of a reader.  With
 * `again`, it reads the same trace once more.  Errors as of fal_audit_line. */
int course_line(void *course, struct fal_trace_line *l);
void course_free(struct course *c);

/* NULL: it never joined. */
const struct course_worker *course_worker(const struct course *c, uint64_t id);

/* ---- recompute.c ---- */

/* A version that is kept: so many clocks are in it. */
struct point {
	uint64_t clock;
	struct fal_found found; /* of a snapshot */
	bool snapshot, last;    /* last: only the model is, to end with */
	uint64_t reach;         /* clocks behind it that can be drawn */
	bool drawn;
};

struct recompute {
	const struct stat_source *src;
	const struct stat_recompute *how;
	struct stat_recomputed *out;
	struct course course;
	struct fal_files files;
	struct fal_anew *anew;
	uint64_t clock; /* that is computed; by task of it: */
	struct fal_anew_task *task;
	uint8_t *skips;
	uint64_t *seed;
	size_t print; /* of this machine's numerics in the course, or 0 */
	int folder;
	struct point *point; /* by clock */
	size_t points, point_cap;
	struct fal_rng rng;
	struct fal_progress progress;
};

/* The answer is that there is none: FAL_ESTATE. */
int recompute_cannot(struct recompute *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Something is wrong, which is no contribution's fault. */
void recompute_found(struct recompute *r, uint64_t clock, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* The error, having said what it is. */
int recompute_say(int err, const struct fal_diag *diag);

/* ---- plan.c ---- */

/* The snapshots that are what they say; the others are found. */
int plan_find(struct recompute *r);
/* Once the course was read: those that are of another trace are found, too, and gone. */
void plan_judge(struct recompute *r);
/* Version 0, which the job says, and the model. */
void plan_ends(struct recompute *r);
/* How far a draw of `n` clocks may reach.  As recompute_cannot, if nowhere. */
int plan_measure(struct recompute *r, uint64_t n);
/* Draws until there are `n` clocks, of which each point then has so many. */
void plan_draw(struct recompute *r, uint64_t n, uint64_t *total);
/* The point at a clock, or NULL. */
const struct point *plan_point(const struct recompute *r, uint64_t clock);
/* Is there anything that the version after so many clocks can be held against? */
bool plan_comparable(const struct recompute *r, uint64_t clocks);

#endif
