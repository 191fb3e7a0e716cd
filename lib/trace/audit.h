/* Proves from a trace that every task of every clock ended exactly once: that it was
 * added to the model, or dropped, by the rules of its scheme.
 *
 * Pure: lines in, a verdict out.  The rules are those of falcon-trace(5), section AUDIT.
 * Memory is bounded: what has ended is kept as runs, and only rounds that are not yet in
 * a version are kept one by one.
 */
#ifndef FAL_TRACE_AUDIT_H
#define FAL_TRACE_AUDIT_H

#include "trace/chain.h"
#include "trace/reader.h"

/* Most rounds that wait for their version. */
#define FAL_AUDIT_WAITING_MAX ((size_t)1 << 18)

/* Sums over ledger lines, in tasks; filled: by fills that were not fenced in turn. */
struct fal_judge_sums {
	uint64_t tasks;   /* of rounds that were not abandoned, */
	uint64_t skipped; /* … and were skipped */
	uint64_t moved, cloned, filled;
	uint64_t dropped; /* claims that lost */
};

/* Sums of test tasks; twice: that two keys have run; alone: that another key was to run,
 * but none was there that answered. */
struct fal_evals {
	uint64_t tasks, twice, alone;
	uint64_t lines, version; /* evaluations; the version of the last one */
	double accuracy, loss;   /* of the last one */
	struct fal_evaluation {
		uint64_t version;
		double accuracy;
	} *all;     /* `lines` of them */
	bool plain; /* version v is that after v clocks */
};

struct fal_audit_verdict {
	bool ok;            /* no findings, and nothing is missing */
	bool finished;      /* the trace has a done line */
	bool cut;           /* it has no end, which was demanded */
	uint64_t clocks;    /* ended, all before them too */
	uint64_t of_clocks; /* clocks of the whole job */
	struct fal_judge_sums sums;
	uint64_t samples_dropped; /* of dropped rounds */
	uint64_t samples_twice;   /* that were computed once more than needed */
	struct fal_stale stale;   /* of the samples that became a part of a version */
	struct fal_evals evals;
	uint64_t charges;   /* charge lines */
	uint64_t refused;   /* refuse lines */
	uint64_t suspects;  /* suspect lines */
	uint64_t unlike;    /* verify lines */
	uint64_t nonfinite; /* nonfinite lines */
	/* The address of the coordinator above; "": the trace is not a group server's. */
	const char *above;
	/* Times that the job went on with other files; of the last: the clock, and which
	 * files. */
	uint64_t parts, part_clock;
	char part[32];
	/* That a gap line tells of; if any, only what is before the first was judged. */
	uint64_t missing_lines, missing_bytes;
	const char *link;  /* that the chain ends with; "": none; borrowed */
	uint64_t findings; /* all of them */
	const char *const
		*text; /* n_text of them, each one line without newline, as
			* "clock 7: task 3: never added"; borrowed from the audit */
	size_t n_text;
};

struct fal_audit;

struct fal_audit *fal_audit_new(void);
/* What is demanded of the lines beside that they agree with each other. */
enum fal_audit_demand {
	FAL_AUDIT_CHAIN = 1,  /* each chains the one before it, as in what was kept */
	FAL_AUDIT_CLOCKS = 2, /* no `clock` line is missing */
	FAL_AUDIT_END = 4,    /* the last one tells how the job ended */
	FAL_AUDIT_PARTS = 8   /* each says what it was divided or weighted by */
};
/* A sum of them; nothing at first. */
void fal_audit_demand(struct fal_audit *a, unsigned demands);
void fal_audit_free(struct fal_audit *a);

/* Takes the next line; `audit` is the struct fal_audit, so this is an on_line of
 * fal_trace_reader_new.  Findings are not errors.  Errors: FAL_EFORMAT, FAL_ELIMIT,
 * FAL_EINVAL (also: an unknown scheme), FAL_ENOMEM (of what a line counts). */
int fal_audit_line(void *audit, struct fal_trace_line *l);
/* What the lines so far say that stands elsewhere, too; "" where they do not. */
struct fal_audit_told {
	const struct fal_trace_job *job;
	char hash[65], model[65], data[65], from[65], name[256], seed[24], optimizer[16];
	char above[256]; /* where the coordinator above is */
	/* Of the model, and of its version: the job is done. */
	char sha256[65], model_hash[65];
	char journal[FAL_CHAIN_DIGITS + 1]; /* that of policies ends with it */
	const char *link;                   /* that the chain ends with; "": none */
	char failed[512];                   /* why the job failed; "": it did not */
	bool resumed;                       /* it went on from a snapshot */
	double loss;                        /* of the last version; NAN: not known */
	double trained; /* seconds, as the last line has them; NAN: it does not */
	const struct fal_evals *evals;
	const struct fal_judge_sums *sums;
};
const struct fal_audit_told *fal_audit_told(const struct fal_audit *a);

/* One more finding: what stands elsewhere is not what the lines say. */
void fal_audit_found(struct fal_audit *a, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* The verdict over the lines so far, after the last one.  FAL_ETRUNC: there was none of
 * the job.  Call it once. */
int fal_audit_end(struct fal_audit *a, struct fal_audit_verdict *out,
		  struct fal_diag *diag);

#endif
