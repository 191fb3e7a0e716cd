/* The trace of the running job: all lines in files, and some lines in memory, for
 * observers that begin to follow.
 *
 * A file may refuse lines, because the disk is full or broken, or a limit is reached.
 * Refused lines are counted, and a line `gap` stands in their place (falcon-trace(5)).
 * The job goes on whatever happens to its files.
 */
#ifndef FALCON_PS_TRACE_FILE_H
#define FALCON_PS_TRACE_FILE_H

#include "base/buf.h"
#include "base/err.h"
#include "crypto/hash.h"
#include "state_dir.h"
#include "trace/chain.h"

#include <stdbool.h>
#include <stdint.h>

/* A file that gets every line. */
struct ps_trace_sink {
	int fd;                   /* -1: closed, or given up */
	const char *path;         /* borrowed */
	bool is_regular;          /* a regular file, which can be cut */
	uint64_t size;            /* bytes of whole lines in the file */
	struct fal_buf out, tail; /* lines not written yet; the last lines written */
	struct ps_trace_gap {
		uint64_t lines, bytes; /* missing ones; 0 lines: there is no gap */
		struct fal_hash_state hash;
		char t[32]; /* of its last line */
		char link[FAL_CHAIN_DIGITS + 1];
	} gap;
};

enum { TRACE_SINKS = 2 };

struct ps_trace_line {
	char *text; /* with its newline */
	size_t n;
	const char *ev; /* in `text`: after "ev":" */
};

/* {0} is empty and valid. */
struct ps_trace_file {
	struct fal_chain chain; /* of all lines so far */
	struct ps_trace_sink sink[TRACE_SINKS];
	int sinks;
	/* Lines older than `recent` that observers need: job, join, leave, policy, hold,
	 * eval, …; the suspicions that still stand, and the last size of each group. */
	struct fal_buf kept;
	struct ps_trace_line *recent; /* a queue: the last 100 rounds */
	size_t head, n, cap;
	size_t rounds;        /* ledger lines in the queue */
	uint64_t lines;       /* in the files; a gap counts as the lines it replaces */
	bool has_job_line;    /* the files have the job line of an earlier start */
	struct fal_buf evals; /* of earlier starts, for observers */
};

/* Creates a file that gets every line; `path` is borrowed until ps_trace_file_close.
 * FAL_EIO with a diagnosis. */
int ps_trace_file_create(struct ps_trace_file *f, const char *path,
			 struct fal_diag *diag);
/* Opens a file that has lines of an earlier start, cuts off all bytes after those lines,
 * and appends every line.  Takes the evaluations of `was`. */
int ps_trace_file_append(struct ps_trace_file *f, const char *path,
			 struct ps_old_trace *was, struct fal_diag *diag);
/* Creates a file that first gets the content of the file `from`.  FAL_EIO, FAL_ENOMEM. */
int ps_trace_file_copy(struct ps_trace_file *f, const char *from, const char *path,
		       struct fal_diag *diag);

/* Adds a line, given without its newline, and links it to the chain.  A line about the
 * job's end is in the files before this function returns.  Returns the line, valid until
 * the next call. */
const struct ps_trace_line *ps_trace_file_add(struct ps_trace_file *f, const char *line,
					      size_t n);

/* Appends the lines that an observer gets first: `kept`, then `recent`. */
void ps_trace_file_history(const struct ps_trace_file *f, struct fal_buf *out);

/* ps_trace_file_flush writes all lines to the files; ps_trace_file_sync also syncs the
 * files. */
void ps_trace_file_flush(struct ps_trace_file *f);
void ps_trace_file_sync(struct ps_trace_file *f);
void ps_trace_file_close(struct ps_trace_file *f);

#endif
