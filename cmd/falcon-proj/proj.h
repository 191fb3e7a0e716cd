/* Shared by the files of falcon-proj. */
#ifndef FALCON_PROJ_PROJ_H
#define FALCON_PROJ_PROJ_H

#include "base/buf.h"
#include "cli/cli.h"
#include "proj/fit.h"
#include "proj/report.h"

#include <stdbool.h>
#include <stdint.h>

#define PROG "falcon-proj"

/* Prints one line on stderr; returns `status`. */
#define fail(status, ...) (fal_cli_err(PROG, __VA_ARGS__), (status))

/* The options; values are borrowed. */
struct proj_opt {
	bool json, tsv, gantt, follow, strict, policy, allow_model;
	const char *what_if; /* schemes, or NULL */
	const char *plot;    /* file, or NULL */
	struct fal_opt_list with, without;
	uint64_t lanes, task, batch; /* 0: no change */
	const char *workers;         /* SPEC, or NULL */
	uint64_t seed, window;
	double min_gain; /* per cent */
};

/* A fitted trace. */
struct proj_job {
	const char *name; /* of the trace */
	struct fal_cost cost;
	struct fal_fit_run run;
};

/* Returns whether the options change machines or sizes. */
bool proj_changes(const struct proj_opt *o);

/* Puts the straggler projection as text: a line for the job, tables of the workers and of
 * the parts of a clock, a line for each finding; or as one JSON object on a line. */
void report_text(struct fal_buf *out, const struct fal_report *r);
void report_json(struct fal_buf *out, const struct fal_report *r);

/* Answers --what-if, --workers, and the changes of machines and sizes; also draws the
 * bars for --plot, or puts their numbers for --tsv.  Appends to `out`.  Returns an exit
 * code, after one line on stderr if it is not FAL_EXIT_DONE. */
int proj_what_if(const struct proj_opt *o, struct proj_job *job, struct fal_buf *out);

/* The proposal of the last window. */
struct proj_proposal {
	char *text; /* a policy, owned; NULL: none */
	bool printed;
};

/* Answers --policy: appends one line of JSON if a policy gains enough over enough clocks;
 * with --follow only if the last window proposed the same policy, and the policy is not
 * printed yet.  Replaces *last by this proposal.  Returns an exit code. */
int proj_policy(const struct proj_opt *o, const struct proj_job *job,
		struct proj_proposal *last, struct fal_buf *out);

#endif
