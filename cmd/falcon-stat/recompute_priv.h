/* The inside of falcon-stat --recompute.  Each file calls only files below it:
 *
 *	recompute.c  computes clocks anew, and judges the contributions to them
 *	plan.c       the versions that a run has kept; a draw of clocks; mismatches
 *	course.c     the course of a run by its trace: clock by clock, the inputs of the
 *	             computation beside job and data, and the contributors */
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

/* The reason why a clock cannot be computed anew, or COURSE_COMPUTABLE. */
enum course_status {
	COURSE_COMPUTABLE,
	COURSE_UNKNOWN, /* the clock has not ended, or no version follows from it alone */
	COURSE_UNLAWFUL, /* its scheme is not under the law (falcon-schemes(7)) */
	COURSE_MIXED     /* its contributors have several numerics */
};

struct course_clock {
	enum course_status why;
	const char *scheme; /* static */
	uint64_t version;   /* the version made from the clock; 0: none */
	uint64_t base;      /* the version that its tasks ran on, but … */
	uint64_t late;      /* … tasks from here on ran on the next; FAL_TRACE_ABSENT */
	/* the numerics of the clock's contributors: 1 + index in struct course's
	 * `fingerprint`; 0: not known */
	size_t fingerprint;
	double lr;
	uint64_t total; /* clocks of the job at that time */
	bool has_hash, has_exponents;
	/* The hash of the version, and that of its exponents. */
	uint8_t hash[FAL_HASH_BYTES], exponents[FAL_HASH_BYTES];
	bool is_confirmed; /* computed anew, with both hashes equal */
	/* The clock's `ledger` lines, if wanted, in order. */
	bool is_wanted;
	struct fal_trace_line **line;
	size_t lines, line_cap;
};

struct course {
	struct fal_trace_job job;
	char hash[65];    /* of the job; "": the line has none */
	char sha256[65];  /* of the model, if the job is done; else "" */
	uint64_t version; /* of this model */
	struct course_clock *clock;
	size_t clocks, clock_cap;
	uint64_t newest; /* version */
	uint64_t delay;  /* of a version behind its base, at most */
	bool is_lawful;  /* the scheme in force is under the law */
	bool has_parts;  /* the job went on with other files */
	const char *scheme;
	struct course_worker {
		char *name, *key, *key_fingerprint; /* NULL: the trace does not say */
		size_t fingerprint;
	} *worker;
	size_t workers, worker_cap;
	struct fal_ids ids; /* places of these */
	char **fingerprint; /* of numerics, each once */
	size_t fingerprints, fingerprint_cap;
	/* Positions in the trace that snapshots name, for comparison with the trace. */
	struct course_mark {
		uint64_t line;
		const char *link; /* of that line; borrowed */
		bool is_met;
	} *mark;
	size_t marks;
	bool second_pass; /* only keeps the wanted lines */
	uint64_t counted; /* lines */
};

/* Takes a line; `course` is a struct course, {0} at first: an on_line of a reader.  For
 * the second pass set second_pass, and feed the same trace.  Errors as of
 * fal_audit_line. */
int course_line(void *course, struct fal_trace_line *l);
void course_free(struct course *c);

/* Returns the worker; NULL: it never joined. */
const struct course_worker *course_worker(const struct course *c, uint64_t id);

/* ---- recompute.c ---- */

/* A version that the run has kept, after `clock` clocks.  Computing begins at an anchor,
 * or is compared with an anchor. */
struct anchor {
	uint64_t clock;
	struct fal_snapshot_found found; /* of a snapshot */
	bool is_snapshot;
	bool is_model;  /* only the model is kept: computing cannot begin there */
	uint64_t reach; /* clocks from here on that can be drawn; once is_drawn: that are
			 * drawn */
	bool is_drawn;
};

struct recompute {
	const struct stat_source *src;
	const struct stat_recompute *how;
	struct stat_recomputed *out;
	struct course course;
	struct fal_files files;
	struct fal_replay *anew;
	uint64_t clock; /* being computed; the next three are arrays by its tasks */
	struct fal_replay_task *task;
	uint8_t *skips;
	uint64_t *seed;
	size_t fingerprint; /* of this machine's numerics in the course, or 0 */
	int folder;
	struct anchor *anchor; /* ascending */
	size_t anchors, anchor_cap;
	struct fal_rng rng;
	struct fal_progress progress;
};

/* ---- plan.c ---- */

/* Notes that the run cannot be judged, with the reason; returns FAL_ESTATE. */
int recompute_cannot_judge(struct recompute *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Adds a mismatch. */
void recompute_mismatch(struct recompute *r, const struct stat_mismatch *m);
/* Adds a mismatch that is no contribution's fault. */
void recompute_add_mismatch(struct recompute *r, uint64_t clock, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Prints the error; returns it. */
int recompute_print_error(int err, const struct fal_diag *diag);

/* Makes an anchor of each readable snapshot; each other snapshot is a mismatch. */
int plan_list_snapshots(struct recompute *r);
/* After the first pass of the course: removes the snapshots of another trace; each is a
 * mismatch. */
void plan_drop_foreign(struct recompute *r);
/* Adds version 0, which the job defines, and the model. */
void plan_add_ends(struct recompute *r);
/* Sets how far a draw of `n` clocks may reach from each anchor.  If no clock can be
 * drawn, returns as recompute_cannot_judge. */
int plan_measure(struct recompute *r, uint64_t n);
/* Draws anchors, and clocks from them on, until there are `n` clocks; *total is their
 * number. */
void plan_draw(struct recompute *r, uint64_t n, uint64_t *total);
/* Returns the anchor after so many clocks, or NULL. */
const struct anchor *plan_anchor(const struct recompute *r, uint64_t clock);
/* Returns whether the version after so many clocks can be compared with anything. */
bool plan_is_comparable(const struct recompute *r, uint64_t clocks);

#endif
