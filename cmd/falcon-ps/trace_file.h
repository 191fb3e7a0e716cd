/* The trace as it is kept: in files, and in memory for those who begin to follow.
 *
 * A file holds it as far as it can be written: what a full disk, a limit or a broken one
 * does not take is left out and counted, and a line `gap` stands in its place
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

struct ps_tape {
	int fd;                   /* -1: closed, or given up */
	const char *path;         /* borrowed */
	bool seeks;               /* a regular file, which can be cut */
	uint64_t size;            /* bytes of whole lines that it holds */
	struct fal_buf out, tail; /* not written yet; the last lines that were */
	struct ps_gap {
		uint64_t lines, bytes; /* lines 0: there is none */
		struct fal_hash_state hash;
		char t[32]; /* of its last line */
		char link[FAL_CHAIN_DIGITS + 1];
	} gap;
};

enum { RECORD_FILES = 2 };

struct ps_line {
	char *text; /* with its newline */
	size_t n;
	const char *ev; /* in it: what stands behind "ev":" */
};

/* {0} is empty and valid. */
struct ps_record {
	struct fal_chain chain; /* of all lines so far */
	struct ps_tape file[RECORD_FILES];
	int files;
	/* job, join, leave, policy, hold, eval, …: older than recent; of suspects, of
	 * those who are one still; of groups, how large each is now */
	struct fal_buf kept;
	struct ps_line *recent; /* a queue: the last 100 rounds */
	size_t head, n, cap;
	size_t rounds;        /* ledger lines in it */
	uint64_t lines;       /* of the files; what a gap stands for is counted */
	bool goes_on;         /* their job line is there already */
	struct fal_buf evals; /* and so are these, which those who look on get, too */
};

/* Adds a file that gets every line; `path` is borrowed until ps_record_close. */
int ps_record_file(struct ps_record *r, const char *path, struct fal_diag *diag);
/* Adds one whose lines follow what it has.  Takes the evaluations of `was`. */
int ps_record_append(struct ps_record *r, const char *path, struct ps_trace *was,
		     struct fal_diag *diag);

/* Adds a file that first gets what `from` has so far.  FAL_EIO, FAL_ENOMEM. */
int ps_record_copy(struct ps_record *r, const char *from, const char *path,
		   struct fal_diag *diag);

/* Takes a line without its newline, and puts its link; that of the job's end is in the
 * files at once.  Returns the line as it is kept, until the next one comes. */
const struct ps_line *ps_record_add(struct ps_record *r, const char *line, size_t n);

/* Appends what a follower gets first: job, join, leave, policy, who is a suspect, and the
 * last 100 rounds. */
void ps_record_history(const struct ps_record *r, struct fal_buf *out);

/* Lets the files be read up to here. */
void ps_record_flush(struct ps_record *r);
/* The same, and what is there outlives a loss of power. */
void ps_record_sync(struct ps_record *r);
void ps_record_close(struct ps_record *r);

#endif
