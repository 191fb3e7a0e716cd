/* falcon-stat: where a trace comes from, what lies beside it, how its run is computed
 * anew, and what is printed of all that. */
#ifndef FALCON_STAT_STAT_H
#define FALCON_STAT_STAT_H

#include "base/buf.h"
#include "net/addr.h"
#include "trace/audit.h"
#include "trace/summary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#define PROG "falcon-stat"

/* ---- source.c: where a trace comes from ---- */

struct stat_source {
	const char *name;   /* as it was given; borrowed */
	const char *key;    /* -k, or NULL; borrowed */
	bool live;          /* else a file */
	const char *folder; /* that it lies in, if that was given; or NULL */
	char *path;         /* of the trace then: `name` is it */
	struct fal_addr addr;
};

/* Tells what `name` is: "-" and what exists is a file, all else must be an address.
 * Returns an exit code, after one line on stderr if it is not FAL_EXIT_DONE. */
int stat_source_find(const char *name, const char *key, struct stat_source *out);

/* A folder stands for the trace.jsonl in it. */
void stat_source_enter(struct stat_source *s);
void stat_source_free(struct stat_source *s);

/* Feeds the trace to on_line, of a live job what there is now; with `cut`, also lines
 * that the job has gone on from before.  Returns as above. */
int stat_source_read(const struct stat_source *s, bool cut,
		     int (*on_line)(void *arg, struct fal_trace_line *l), void *arg);

/* Prints the lines of a live job as they come, until it is over or SIGINT comes.
 * Returns as above. */
int stat_source_follow(const struct stat_source *s);

/* ---- folder.c: what a trace says, held against the job, the result, the model and the
 * journal of policies that lie beside it.  falcon-trace(5), section AUDIT ---- */

bool stat_is_folder(const char *path);

/* Policies, in the order of a trace or of a journal; {0}: none. */
struct stat_policies {
	struct stat_policy {
		uint64_t clock; /* from which it holds */
		/* who made it; all of it, as falcon-policy(5) writes it */
		char *by, *text;
	} *v;
	size_t n, cap;
	bool resumed; /* since the last one */
};

void stat_policies_free(struct stat_policies *s);

/* Takes a line of a trace.  Leaves out a policy that a resumed job only repeats.
 * l->err. */
int stat_policies_line(struct stat_policies *s, struct fal_trace_line *l);

/* Adds to the findings of an audit that has taken all lines of DIR/trace.jsonl, which has
 * these policies.  Returns an exit code, after one line on stderr if it is not
 * FAL_EXIT_DONE: a file that is there cannot be read. */
int stat_folder_audit(const char *dir, const struct stat_policies *policies,
		      struct fal_audit *a);

/* ---- recompute.c: what the clocks of a run must have made, held against what they have
 * made (falcon-stat(1), --recompute) ---- */

struct stat_recompute {
	double part;           /* of the clocks, above 0, at most 1 */
	const char *directory; /* where the names in the job begin; NULL: where the
				* run's folder lies */
	const char *from;      /* the weights that it began with; NULL: its own */
	uint64_t program;      /* bytes of it, fal_need_program */
	uint64_t max_memory;   /* 0: any */
	struct rlimit data; /* what held before --max-memory did: its need is counted */
};

/* A difference between the run and the results of job and data. */
struct stat_mismatch {
	uint64_t clock;
	uint32_t id, seq; /* of a contribution; 0: nobody can say which */
	char worker[256], key[256], fingerprint[80];
	char what[200];
};

enum { STAT_MISMATCHES = 64 };

struct stat_recomputed {
	uint64_t clocks, of, reach; /* computed; of the run; that could have been drawn */
	uint32_t kept;              /* versions that were begun with, or could be */
	bool differs;               /* a clock does, the first of them among these: */
	uint64_t from, to;
	struct stat_mismatch mismatch[STAT_MISMATCHES];
	size_t mismatches; /* all of them; the first so many are there */
	char cannot[320];  /* why nothing can be judged; "": it can */
};

/* The trace has passed the audit.  Returns an exit code: FAL_EXIT_DONE, with *out, or
 * why it cannot be done, after one line on stderr. */
int stat_recompute(const struct stat_source *src, const struct stat_recompute *how,
		   struct stat_recomputed *out);

/* The exit code for it. */
int stat_recomputed_code(const struct stat_recomputed *r);

/* ---- print.c: all of it to a buffer, so that a live source can print the same ---- */

/* One table of the job, or one JSON object. */
void stat_table(struct fal_buf *out, const struct fal_summary *s);
void stat_table_json(struct fal_buf *out, const struct fal_summary *s);

/* A line for each epoch, or a JSON object for each. */
void stat_history(struct fal_buf *out, const struct fal_summary *s);
void stat_history_json(struct fal_buf *out, const struct fal_summary *s);

/* The verdict of the audit, and of computing anew, as lines or as one JSON object; `r`:
 * of --recompute, or NULL. */
void stat_audit(struct fal_buf *out, const struct fal_audit_verdict *v,
		const struct stat_recomputed *r);
void stat_audit_json(struct fal_buf *out, const struct fal_audit_verdict *v,
		     const struct stat_recomputed *r);

#endif
