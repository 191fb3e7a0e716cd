/* The state folder of one job, locked while the job is served.
 *
 *	lock                 held by the falcon-ps that serves the job
 *	job                  the effective job text: the state of another job is refused
 *	incarnation          the number of restarts
 *	policy.jsonl         the policy journal (falcon-policy(5))
 *	trace.jsonl          the trace (falcon-trace(5))
 *	trace.N.jsonl        traces of earlier starts that began at the first clock
 *	snapshot.CLOCK       snapshots to resume from (snapshot.h)
 *	model.safetensors    the final model
 *	average.safetensors  the averaged weights; best.safetensors: the best model
 *	result.json          output of falcon-ps --json; if it exists the job is done
 */
#ifndef FALCON_PS_STATE_DIR_H
#define FALCON_PS_STATE_DIR_H

#include "base/buf.h"
#include "base/err.h"
#include "cli/cli.h"
#include "run/job_files.h"
#include "run/snapshot.h"
#include "trace/chain.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define PROG "falcon-ps"

struct ps_state {
	char *dir;
	int lock, folder;       /* descriptors */
	bool has_trained;       /* an earlier start trained here and left a trace */
	uint32_t incarnation;   /* of this start, once it is counted */
	bool is_done;           /* result.json exists: `result` holds it */
	bool has_failed;        /* result.json says that the job failed */
	uint32_t epochs_before; /* epochs before an extension; 0: no extension */
	bool text_differs;      /* the file `job` differs from the job's text */
	struct fal_buf result;
};

/* Makes and locks the folder `dir` for the job.  If all values of the job equal the
 * values in the folder's file `job`, the file's text becomes the job's text.  `accept`:
 * kinds of files that may differ (fal_files_hash_kind); all may if the job is not done
 * and begins at its first clock (`begins_anew`).  FAL_EEXIST (another process serves it),
 * FAL_EINVAL (it is another job's), FAL_EFORMAT, FAL_EIO, FAL_EPERM, FAL_ENOMEM, with a
 * diagnosis. */
int ps_state_open(struct ps_state *s, const char *dir, struct fal_files *job,
		  const struct fal_opt_list *accept, bool begins_anew,
		  struct fal_diag *diag);
/* Does the list of --accept-change contain this kind? */
bool ps_accepts_kind(const struct fal_opt_list *accept, const char *kind);
/* Writes the job's text if the text differs from the file `job`, and removes the result
 * of the shorter job, since the job goes on.  FAL_EIO, FAL_ENOMEM. */
int ps_state_write_job(struct ps_state *s, const struct fal_files *job,
		       struct fal_diag *diag);
void ps_state_close(struct ps_state *s);

/* Renames the trace of an earlier start that trained, to the first free name of
 * trace.1.jsonl, trace.2.jsonl, …  FAL_EIO with a diagnosis. */
int ps_state_rename_trace(const struct ps_state *s, struct fal_diag *diag);

/* Counts one more start, on disk.  FAL_EIO, FAL_EFORMAT, FAL_ENOMEM. */
int ps_state_count_start(struct ps_state *s, struct fal_diag *diag);

/* The content of an earlier start's trace, checked along the chain.  Bytes at the end
 * that a crash left, and that are no line of the trace, do not count. */
struct ps_old_trace {
	struct fal_chain chain; /* up to the last line */
	double t;               /* of the last line */
	uint64_t bytes;         /* of whole lines */
	uint64_t torn;          /* bytes that follow */
	uint64_t changed;       /* the first synced line that has changed; 0: none */
	bool has_job_line;
	uint64_t lines;       /* a gap counts as the lines that it stands for */
	uint64_t clocks;      /* that were over, by the last update */
	double worked;        /* seconds since the first worker joined; 0: none did */
	struct fal_buf evals; /* the lines of evaluations that count */
	struct ps_eval_line { /* line number, and end of the line in `evals` */
		uint64_t line;
		size_t end;
	} *eval;
	size_t n_evals, cap;
};
/* A position of the trace: `lines` are known to be on disk.  ps_state_read_trace sets
 * `chain` to the chain up to the last of them, if that line exists. */
struct ps_trace_position {
	uint64_t lines;
	struct fal_chain chain;
};
/* Reads the trace.  Evaluations after at->lines do not count.  FAL_EIO, FAL_ENOMEM;
 * call ps_old_trace_free in any case. */
int ps_state_read_trace(const struct ps_state *s, struct ps_old_trace *out,
			struct ps_trace_position *at, struct fal_diag *diag);
void ps_old_trace_free(struct ps_old_trace *t);

/* A file of the folder that is written at the job's end.  Its disk space and its
 * descriptor are taken before the job begins.  {.fd = -1} is valid. */
struct ps_result_file {
	int fd;
	char *path, *temp; /* final name, and name before the commit */
	uint64_t written;  /* bytes */
};

/* Takes disk space for `bytes` of DIR/name.  FAL_EEXIST, FAL_EIO (no space) with a
 * diagnosis; call ps_result_file_drop in any case. */
int ps_result_file_reserve(const struct ps_state *s, const char *name, uint64_t bytes,
			   struct ps_result_file *p, struct fal_diag *diag);
/* Writes n bytes more.  Needs disk space only beyond what was reserved, and no
 * descriptor.  FAL_EIO with a diagnosis. */
int ps_result_file_write(struct ps_result_file *p, const void *bytes, size_t n,
			 struct fal_diag *diag);
/* Gives the file its final name, for good.  FAL_EIO with a diagnosis: there is no such
 * file. */
int ps_result_file_commit(const struct ps_state *s, struct ps_result_file *p,
			  struct fal_diag *diag);
void ps_result_file_drop(struct ps_result_file *p);

/* Returns DIR/name; free it with free(). */
char *ps_state_path(const struct ps_state *s, const char *name);

/* The policy journal: policy.jsonl of the folder, falcon-policy(5).  Each change is a
 * line, which is on disk before the change holds. */
struct ps_journal {
	int fd;                 /* -1: closed */
	char *path;             /* owned */
	struct fal_chain chain; /* of its lines */
	uint64_t torn;          /* bytes that ps_journal_open cut off */
};

/* Opens `path` (taken), makes it if need be, and calls on_line for each line, borrowed
 * for the call, with j->chain as it was before the line; a negative return of on_line
 * ends the reading.  If the last line has no newline or is unreadable, a crash tore the
 * line before the line's change was acknowledged: ps_journal_open cuts the line off.
 * FAL_EFORMAT, FAL_EINVAL: another line is no line of a journal, or a whole last line
 * ends with another byte than a newline; `diag` names the line.  FAL_EIO, FAL_ENOMEM.
 * Close the journal in any case. */
int ps_journal_open(struct ps_journal *j, char *path,
		    int (*on_line)(void *arg, const struct fal_journal_line *l),
		    void *arg, struct fal_diag *diag);

/* Appends a line, with the time of day, and syncs the file.  Cuts off a line that was
 * written only in part.  FAL_EIO (errno is set), FAL_ENOMEM. */
int ps_journal_add(struct ps_journal *j, const struct fal_journal_line *l);

void ps_journal_close(struct ps_journal *j);

#endif
