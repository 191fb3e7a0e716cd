/* The state folder: one job's, locked while it is served.
 *
 *	lock               held by the falcon-ps that serves the job
 *	job                the effective job text: another job's state is refused
 *	incarnation        how often it was started again
 *	policy.jsonl       the policy journal (falcon-policy(5))
 *	trace.jsonl        the trace (falcon-trace(5))
 *	trace.N.jsonl      that of an earlier start, which began at the first clock, too
 *	snapshot.CLOCK     what it goes on from (snapshot.h)
 *	model.safetensors  the final model
 *	result.json        what falcon-ps --json printed; there: the job is done
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
	int lock, folder;     /* descriptors */
	bool begun;           /* an earlier start trained here: its trace is there */
	uint32_t incarnation; /* of this one, once it is counted */
	bool done;            /* result.json is there: `result` holds it */
	bool failed;          /* and says that the job failed */
	uint32_t epochs;      /* that the job had so far, if it is to have more; else 0 */
	bool other; /* the job's text is another one than that which stands there */
	struct fal_buf result;
};

/* A file of the folder that is written at the end: its room and its descriptor are taken
 * before the job begins.  {.fd = -1} is valid. */
struct ps_place {
	int fd;
	char *path, *temp; /* where it will be, where it is */
	uint64_t written;  /* bytes */
};

/* Makes and locks the folder `dir` for the job, whose text becomes the one that stands
 * there where no value differs.  `accept`: kinds of files that may differ
 * (fal_files_input); all may if the job is not done and is to begin `anew`.  FAL_EEXIST
 * (served by another), FAL_EINVAL (another job's), FAL_EFORMAT, FAL_EIO, FAL_EPERM,
 * FAL_ENOMEM; `diag` says which. */
int ps_state_open(struct ps_state *s, const char *dir, struct fal_files *job,
		  const struct fal_opt_list *accept, bool anew, struct fal_diag *diag);
/* Is this kind among them? */
bool ps_state_accepts(const struct fal_opt_list *accept, const char *kind);
/* The job goes on: it is not done, and its text is this one.  FAL_EIO, FAL_ENOMEM. */
int ps_state_change(struct ps_state *s, const struct fal_files *job,
		    struct fal_diag *diag);
void ps_state_close(struct ps_state *s);

/* Renames the trace of an earlier start, if that trained: to the first of trace.1.jsonl,
 * trace.2.jsonl, … that is free.  FAL_EIO with a diagnosis. */
int ps_state_keep_trace(const struct ps_state *s, struct fal_diag *diag);

/* Counts one more start, on disk.  FAL_EIO, FAL_EFORMAT, FAL_ENOMEM. */
int ps_state_count(struct ps_state *s, struct fal_diag *diag);

/* The content of an earlier start's trace, along its chain; bytes that a crash left at
 * the end, and that are no line of the trace, do not count. */
struct ps_trace {
	struct fal_chain chain; /* as far as it has come */
	double t;               /* of the last line */
	uint64_t bytes;         /* of whole lines */
	uint64_t torn;          /* those that follow */
	uint64_t changed; /* the first line that is not what was written, though it was
			   * known to be on disk; 0: none */
	bool job;         /* it has its job line */
	uint64_t lines;   /* a gap counts as what it stands for */
	uint64_t clocks;  /* over, as the last update says */
	double worked;    /* since the first worker came; 0: none came */
	struct fal_buf evals; /* the lines of evaluations that count, and */
	struct ps_eval_at {   /* their numbers, and where they end */
		uint64_t line;
		size_t end;
	} *eval;
	size_t n_evals, cap;
};
/* `at`: so many lines are known to be on disk, and of the last of them it has the link,
 * if it is there; those behind do not count.  FAL_EIO, FAL_ENOMEM; ps_trace_free() in any
 * case. */
struct ps_trace_at {
	uint64_t lines;
	struct fal_chain chain;
};
int ps_state_trace(const struct ps_state *s, struct ps_trace *out, struct ps_trace_at *at,
		   struct fal_diag *diag);
void ps_trace_free(struct ps_trace *t);

/* Takes room for `bytes` of DIR/name.  FAL_EEXIST, FAL_EIO (no room) with a diagnosis;
 * drop it in each case. */
int ps_state_reserve(const struct ps_state *s, const char *name, uint64_t bytes,
		     struct ps_place *p, struct fal_diag *diag);
/* Writes n bytes more; then it is there, for good, under its name.  Needs no room but for
 * what is more than it was reserved for, and no descriptor.  FAL_EIO with a diagnosis:
 * nothing stands there. */
int ps_place_write(struct ps_place *p, const void *bytes, size_t n,
		   struct fal_diag *diag);
int ps_state_settle(const struct ps_state *s, struct ps_place *p, struct fal_diag *diag);
void ps_place_drop(struct ps_place *p);

/* DIR/name; free with free(). */
char *ps_state_path(const struct ps_state *s, const char *name);

/* The policy journal: policy.jsonl of the folder, falcon-policy(5).  A line for each
 * change, on disk before the change holds. */
struct ps_journal {
	int fd;                 /* -1: closed */
	char *path;             /* owned */
	struct fal_chain chain; /* of its lines */
	uint64_t torn;          /* bytes that ps_journal_open cut off */
};

/* Opens `path` (taken), made if it is not there, and hands each line
 * to on_line, borrowed for the call, with j->chain as it was before it; a negative return
 * of it ends the reading.  A last line without its newline, or that cannot be read, was
 * torn by a crash before its change was acknowledged: it is
 * cut off.  FAL_EFORMAT or FAL_EINVAL: any other line that is no line of a journal, or a
 * whole one that has something else for its newline, which `diag` names; FAL_EIO,
 * FAL_ENOMEM.  Close in each case. */
int ps_journal_open(struct ps_journal *j, char *path,
		    int (*on_line)(void *arg, const struct fal_journal_line *l),
		    void *arg, struct fal_diag *diag);

/* Appends a line, with the time of day, and syncs it.  A line that could not be written
 * wholly is cut off again.  FAL_EIO (errno is set), FAL_ENOMEM. */
int ps_journal_add(struct ps_journal *j, const struct fal_journal_line *l);

void ps_journal_close(struct ps_journal *j);

#endif
