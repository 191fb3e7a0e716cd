/* The course of a run, clock by clock, as its trace tells it: what each clock was made
 * of, beside job and data, and who made it. */
#ifndef FALCON_STAT_COURSE_H
#define FALCON_STAT_COURSE_H

#include "base/buf.h"
#include "sec/hash.h"
#include "trace/reader.h"

#include <stdbool.h>

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
	uint64_t version, on; /* that it made, 0: none; that its tasks ran on */
	size_t print;         /* of who made it: its place and 1 */
	double lr;
	uint64_t total;     /* clocks that the job had then */
	bool hashed, exact; /* exact: its exponents are */
	/* Of the version, and of its exponents. */
	uint8_t hash[FAL_HASH_BYTES], exponents[FAL_HASH_BYTES];
	bool sure; /* it was computed anew, and has these */
	/* With `want`: its `ledger` lines, as they came. */
	bool want;
	struct fal_trace_line **line;
	size_t lines, line_cap;
};

struct course {
	struct fal_trace_job job;
	/* Of the job line; "": it does not say. */
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
	/* Where snapshots say to have been taken: their links, to be compared. */
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

#endif
