/* Fits a cost model to a trace: lines in, machines and costs out; and what the trace says
 * of the job as it ran, to hold a prediction against.
 *
 * Pure, one pass, bounded memory: of each worker the last FAL_FIT_CLOCKS clocks are kept.
 */
#ifndef FAL_PROJ_FIT_H
#define FAL_PROJ_FIT_H

#include "base/err.h"
#include "proj/cost.h"
#include "sched/policy.h"
#include "trace/reader.h"

#include <stdbool.h>

enum { FAL_FIT_CLOCKS = 4096, FAL_FIT_WORKERS = 1 << 16 };

struct fal_fit; /* opaque */

struct fal_fit *fal_fit_new(void); /* NULL: out of memory */
void fal_fit_free(struct fal_fit *f);

/* Takes the next line; an on_line of fal_trace_reader_new. */
int fal_fit_line(void *fit, struct fal_trace_line *l);

/* What ran. */
struct fal_fit_run {
	char scheme[128];         /* that held last, as in the trace */
	struct fal_policy policy; /* the whole of it; owned by the fit */
	double epoch_s;  /* seconds per epoch over the clocks under that policy, holds and
			    the first FAL_FIT_WARM clocks left out; 0: too few */
	double compute;  /* share of the workers' time, as fal_play's */
	uint64_t clocks; /* that this is taken over */
	uint64_t from;   /* the first of them, by number */
};

enum { FAL_FIT_WARM = 5 };

/* The model and the run, from the lines so far; more lines may follow (a live stream).
 * `cost` is the caller's: fal_cost_free.  FAL_ETRUNC with `diag`: too little to say
 * anything ("no clock ended"), FAL_ENOMEM. */
int fal_fit_end(struct fal_fit *f, struct fal_cost *cost, struct fal_fit_run *run,
		struct fal_diag *diag);

#endif
