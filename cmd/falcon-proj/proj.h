/* What the parts of falcon-proj share. */
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
#define say(status, ...) (fal_cli_err(PROG, __VA_ARGS__), (status))

/* The options of a question to the trace; values are borrowed. */
struct proj_opt {
	bool json, tsv, follow, strict, policy, allow_model;
	const char *what_if; /* schemes, or NULL */
	const char *plot;    /* file, or NULL */
	struct fal_opt_list with, without;
	uint64_t lanes, task, batch; /* 0: as they are */
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

/* Whether machines or sizes are to be others. */
bool proj_changes(const struct proj_opt *o);

/* The straggler projection as text: a line for the job, tables of the workers and of the
 * parts of a clock, a line for each finding; or as one JSON object on a line. */
void report_text(struct fal_buf *out, const struct fal_report *r);
void report_json(struct fal_buf *out, const struct fal_report *r);

/* --what-if, --workers, and the changes of machines and sizes; also draws the bars for
 * --plot, or prints their numbers for --tsv.  Appends to `out`; returns an exit code,
 * having said what is wrong. */
int proj_what_if(const struct proj_opt *o, struct proj_job *job, struct fal_buf *out);

/* What the window before would have changed. */
struct proj_proposal {
	char *text; /* a policy, owned; NULL: nothing */
	bool told;
};

/* --policy: appends one line of JSON if there is a policy that gains enough, by as many
 * clocks as that takes; with --follow if it is `*last`, too, and was not told.  It
 * becomes that.  Returns an exit code. */
int proj_policy(const struct proj_opt *o, const struct proj_job *job,
		struct proj_proposal *last, struct fal_buf *out);

#endif
