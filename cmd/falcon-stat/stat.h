/* falcon-stat: the source of a trace, the files beside the trace, the new computation of
 * the run, and the output. */
#ifndef FALCON_STAT_STAT_H
#define FALCON_STAT_STAT_H

#include "base/buf.h"
#include "base/text.h"
#include "cli/table.h"
#include "crypto/keyring.h"
#include "net/addr.h"
#include "trace/audit.h"
#include "trace/summary.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>

#define PROG "falcon-stat"

/* A stranger's text without control characters; lives to the end of the block. */
#define PLAIN(s) fal_text_plain((char[FAL_NAME_MAX + 1]){ 0 }, FAL_NAME_MAX + 1, (s))

/* ---- source.c: the source of a trace ---- */

struct stat_source {
	const char *name;   /* of the trace's file, or the address; borrowed */
	const char *key;    /* value of -k, or NULL; borrowed */
	bool live;          /* an address; else a file */
	const char *folder; /* the run's folder, if one was named; else NULL; borrowed */
	char *path;         /* of a file, then also `name`; owned */
	struct fal_addr addr;
};

/* Finds the kind of source: "-" and any existing path is a file, or the folder of a run;
 * any other name must be an address.  Returns an exit code, after one line on stderr if
 * it is not FAL_EXIT_DONE.
 */
int stat_source_find(const char *name, const char *key, struct stat_source *out);

/* Feeds the trace to on_line; of a live job, the lines that exist now.  Returns as above.
 */
enum stat_reading {
	STAT_READ,
	STAT_READ_CUT, /* with the lines that a restart cancelled */
	STAT_READ_ON   /* of a live job, also lines to come, until its end or SIGINT */
};
int stat_source_read(const struct stat_source *s, enum stat_reading how,
		     int (*on_line)(void *arg, struct fal_trace_line *l), void *arg);

/* Prints the lines of a live job as they come, until the job is over or SIGINT comes.
 * Returns as above. */
int stat_source_follow(const struct stat_source *s);

/* ---- folder.c: compares a trace with the job, the result, the model and the journal of
 * policies beside it.  falcon-trace(5), section AUDIT ---- */

/* Policies, in the order of a trace or of a journal; {0}: none. */
struct stat_policies {
	struct stat_policy {
		uint64_t clock; /* the first clock under it */
		char *by;       /* its author */
		char *text;     /* the whole policy, in the form of falcon-policy(5) */
	} *v;
	size_t n, cap;
	bool resumed; /* a restart followed the last policy */
};

void stat_policies_free(struct stat_policies *s);

/* Takes a line of a trace; leaves out a policy that a resumed job only repeats.  Returns
 * l->err. */
int stat_policies_line(struct stat_policies *s, struct fal_trace_line *l);

/* Adds findings to an audit that has taken all lines of DIR/trace.jsonl, which has these
 * policies.  Returns an exit code, after one line on stderr if it is not FAL_EXIT_DONE:
 * an existing file cannot be read. */
int stat_folder_audit(const char *dir, const struct stat_policies *policies,
		      struct fal_audit *a);

/* ---- recompute.c: computes clocks of a run anew and compares the results
 * (falcon-stat(1), --recompute) ---- */

struct stat_recompute {
	double part;           /* of the clocks, above 0, at most 1 */
	const char *directory; /* the base of file names in the job; NULL: the parent of
				* the run's folder */
	const char *from;      /* file of the job's first weights; NULL: as the job
				* names */
	uint64_t program;      /* the program's bytes, fal_memory_prepare */
	uint64_t max_memory;   /* 0: any */
	struct rlimit data;    /* the limit before --max-memory; computing restores it and
				* checks its own need */
};

/* A difference between the run and the results computed from job and data. */
struct stat_mismatch {
	uint64_t clock;
	uint32_t id, seq; /* of the contribution at fault; 0: not known */
	char worker[256], key[256], fingerprint[80];
	char what[200];
};

enum { STAT_MISMATCHES = 64 };

struct stat_recomputed {
	uint64_t clocks, of, reach; /* clocks computed; clocks of the run; clocks that
				       could be drawn */
	uint32_t kept;              /* versions at which computing can begin */
	bool differs;               /* the first differing clock is from … to */
	uint64_t from, to;
	struct stat_mismatch mismatch[STAT_MISMATCHES];
	size_t mismatches; /* all of them; the first STAT_MISMATCHES are kept */
	char cannot[320];  /* why the run cannot be judged; "": it can */
};

/* Computes a part of the clocks anew.  Needs a trace that has passed the audit.  Returns
 * an exit code: FAL_EXIT_DONE, with *out, or another one after one line on stderr. */
int stat_recompute(const struct stat_source *src, const struct stat_recompute *how,
		   struct stat_recomputed *out);

/* Returns the exit code for this outcome. */
int stat_recomputed_code(const struct stat_recomputed *r);

/* ---- watch.c ---- */

/* Shows a live screen of the job until the user presses q.  Returns as above. */
int stat_watch(const struct stat_source *s);

/* ---- print.c: the output, into a buffer ---- */

/* Adds one column to the table for each header; blanks separate the headers. */
void stat_table_head(struct fal_table *t, const char *heads);

/* Parts of a worker's wall time, 0 to 1. */
struct stat_rates {
	double compute, push, pull, wait;
	double samples_s; /* samples a second of its wall time */
};
struct stat_rates stat_worker_rates(const struct fal_summary_worker *w);

/* Returns the cause of the worker's class; "-" if the class does not come from speed. */
const char *stat_worker_cause(const struct fal_summary_worker *w);

/* Put a table of the job, or one JSON object. */
void stat_table(struct fal_buf *out, const struct fal_summary *s);
void stat_table_json(struct fal_buf *out, const struct fal_summary *s);

/* Puts a line for each metric: of training and, once evaluated, of the test set. */
void stat_metrics(struct fal_buf *out, const struct fal_summary *s);

/* Put a line for each epoch, or a JSON object for each. */
void stat_history(struct fal_buf *out, const struct fal_summary *s);
void stat_history_json(struct fal_buf *out, const struct fal_summary *s);

/* Puts gauges for Prometheus, which are OpenMetrics, too. */
void stat_openmetrics(struct fal_buf *out, const struct fal_summary *s);

/* Put the verdict of the audit, and the outcome of computing anew, as lines or as one
 * JSON object.  `r`: the outcome, or NULL. */
void stat_audit(struct fal_buf *out, const struct fal_audit_verdict *v,
		const struct stat_recomputed *r);
void stat_audit_json(struct fal_buf *out, const struct fal_audit_verdict *v,
		     const struct stat_recomputed *r);

#endif
