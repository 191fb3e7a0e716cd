/* Proves from a trace that every task of every clock ended exactly once: the task was
 * added to the model, or dropped, by the rules of its scheme.
 *
 * Pure: lines in, a verdict out.  The rules are those of falcon-trace(5), section AUDIT.
 * Memory is bounded: tasks that have ended are kept as runs, and only rounds that are not
 * yet in a version are kept one by one. */
#ifndef FAL_TRACE_AUDIT_H
#define FAL_TRACE_AUDIT_H

#include "trace/chain.h"
#include "trace/reader.h"

/* The most rounds that may wait for their version. */
#define FAL_AUDIT_WAITING_MAX ((size_t)1 << 18)

/* Sums over ledger lines, in tasks. */
struct fal_audit_sums {
	uint64_t tasks;   /* of rounds that were not abandoned */
	uint64_t skipped; /* of these, skipped ones */
	uint64_t moved, cloned;
	uint64_t filled;  /* by fills that were not fenced in turn */
	uint64_t dropped; /* claims that lost */
};

/* Evaluations.  tasks: all test tasks.  repeated: tasks that two keys have run.
 * unanswered: tasks that another key should have repeated, but no key answered. */
struct fal_evals {
	uint64_t tasks, repeated, unanswered;
	uint64_t lines, version;    /* number of evaluations; version of the last one */
	double accuracy, loss;      /* of the last one */
	struct fal_metrics metrics; /* likewise */
	struct fal_evaluation {
		uint64_t version;
		double accuracy;
	} *all;     /* `lines` of them */
	bool plain; /* version v is the version after v clocks */
};

struct fal_audit_verdict {
	bool ok;            /* no findings, and nothing is missing */
	bool finished;      /* the trace has a done line */
	bool cut;           /* the trace lacks the end that was demanded */
	uint64_t clocks;    /* number of first clocks that have all ended */
	uint64_t of_clocks; /* clocks of the whole job */
	struct fal_audit_sums sums;
	uint64_t samples_dropped;   /* of dropped rounds */
	uint64_t duplicate_samples; /* computed in excess of their rounds */
	struct fal_stale stale;     /* of the samples that became a part of a version */
	struct fal_evals evals;
	uint64_t charges;   /* charge lines */
	uint64_t refused;   /* refuse lines */
	uint64_t suspects;  /* suspect lines */
	uint64_t unlike;    /* verify lines */
	uint64_t nonfinite; /* nonfinite lines */
	/* The address of the coordinator above; "": the trace is not a group server's. */
	const char *above;
	/* The number of times that the job went on with changed files; for the last time,
	 * the clock and the kinds of changed files. */
	uint64_t parts, part_clock;
	char part[32];
	/* Missing lines and bytes, by gap lines.  If there are any, the verdict is about
	 * the lines before the first gap. */
	uint64_t missing_lines, missing_bytes;
	const char *link;        /* last link of the chain; "": none; borrowed */
	uint64_t findings;       /* all of them */
	const char *const *text; /* n_text findings, each a line without newline, as
				  * "clock 7: task 3: never added"; borrowed */
	size_t n_text;
};

struct fal_audit;

struct fal_audit *fal_audit_new(void);
/* Demands on the lines, besides their agreement with each other. */
enum fal_audit_demand {
	FAL_AUDIT_CHAIN = 1,  /* each line chains the line before it, as in a kept file */
	FAL_AUDIT_CLOCKS = 2, /* no `clock` line is missing */
	FAL_AUDIT_END = 4,    /* the last line says how the job ended */
	FAL_AUDIT_PARTS = 8   /* each round says its divisor or the base of its weight */
};
/* Sets the demands, a sum of these values; without a call there are no demands. */
void fal_audit_demand(struct fal_audit *a, unsigned demands);
void fal_audit_free(struct fal_audit *a);

/* Takes the next line, as an on_line of fal_trace_reader_new; `audit` is a struct
 * fal_audit.  Findings are not errors.  Errors: FAL_EFORMAT, FAL_ELIMIT, FAL_EINVAL
 * (also: an unknown scheme), FAL_ENOMEM (for a number in the line). */
int fal_audit_line(void *audit, struct fal_trace_line *l);
/* Facts of the lines so far that other files of the run have, too.  A text is "" if no
 * line has the text. */
struct fal_audit_facts {
	const struct fal_trace_job *job;
	char hash[65], model[65], data[65], from[65], name[256], seed[24], optimizer[16];
	char above[256]; /* the address of the coordinator above */
	/* If the job is done: SHA-256 of the model's file; the hash of its version. */
	char sha256[65], model_hash[65];
	char journal[FAL_CHAIN_DIGITS + 1]; /* the last link of the policy journal */
	const char *link;                   /* the last one of the chain */
	char failed[512];                   /* the reason; "": the job did not fail */
	bool resumed;                       /* the job went on from a snapshot */
	double loss;                        /* of the last version; NAN: not known */
	struct fal_metric_names metric_names;
	struct fal_metrics metrics; /* of the last version */
	double trained;             /* seconds, by the last line; NAN: not known */
	const struct fal_evals *evals;
	const struct fal_audit_sums *sums;
};
const struct fal_audit_facts *fal_audit_facts(const struct fal_audit *a);

/* Adds a finding that another file contradicts the lines. */
void fal_audit_add_finding(struct fal_audit *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* Judges all lines.  FAL_ETRUNC: there was no job line.  To be called once. */
int fal_audit_end(struct fal_audit *a, struct fal_audit_verdict *out,
		  struct fal_diag *diag);

#endif
