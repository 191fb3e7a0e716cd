/* The trace of the running job: in files, and in memory for observers that begin to
 * follow.
 *
 * A file may refuse lines, as its disk is full or broken, or a limit is reached.  Such
 * lines are left out and counted, and a line `gap` stands in their place
 * (falcon-trace(5)).  The job goes on whatever happens to its files.
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
		uint64_t lines, bytes; /* missing; 0 lines: there is no gap */
		struct fal_hash_state hash;
		char t[32]; /* of its last line */
		char link[FAL_CHAIN_DIGITS + 1];
	} gap;
};

enum { TRACE_SINKS = 2 };

struct ps_trace_line {
	char *text; /* with its newline */
	size_t n;
	const char *ev; /* in `text`: behind "ev":" */
};

/* {0} is empty and valid. */
struct ps_trace_file {
	struct fal_chain chain; /* of all lines so far */
	struct ps_trace_sink sink[TRACE_SINKS];
	int sinks;
	/* Lines older than `recent` that observers need: job, join, leave, policy, hold,
	 * eval, …; of suspicions those that stand, of groups their last sizes. */
	struct fal_buf kept;
	struct ps_trace_line *recent; /* a queue: the last 100 rounds */
	size_t head, n, cap;
	size_t rounds;        /* ledger lines in the queue */
	uint64_t lines;       /* of the files; a gap counts as its lines */
	bool has_job_line;    /* the files have it from an earlier start */
	struct fal_buf evals; /* of earlier starts, which observers get, too */
};

/* Creates a file that gets every line; `path` is borrowed until ps_trace_file_close.
 * FAL_EIO with a diagnosis. */
int ps_trace_file_create(struct ps_trace_file *f, const char *path,
			 struct fal_diag *diag);
/* The same for a file with lines of an earlier start, behind which it is cut off.  Takes
 * the evaluations of `was`. */
int ps_trace_file_append(struct ps_trace_file *f, const char *path,
			 struct ps_old_trace *was, struct fal_diag *diag);
/* Creates a file that first gets the content of the file `from`.  FAL_EIO, FAL_ENOMEM. */
int ps_trace_file_copy(struct ps_trace_file *f, const char *from, const char *path,
		       struct fal_diag *diag);

/* Adds a line, given without its newline, and links it to the chain.  The line of the
 * job's end is in the files when this returns.  Returns the line, valid until the next
 * call. */
const struct ps_trace_line *ps_trace_file_add(struct ps_trace_file *f, const char *line,
					      size_t n);

/* Appends the lines that an observer gets first: job, join, leave, policy, suspicions,
 * and the last 100 rounds. */
void ps_trace_file_history(const struct ps_trace_file *f, struct fal_buf *out);

/* Writes all lines to the files; the second: durably. */
void ps_trace_file_flush(struct ps_trace_file *f);
void ps_trace_file_sync(struct ps_trace_file *f);
void ps_trace_file_close(struct ps_trace_file *f);

#endif
