/* Fits a cost model to a trace: lines in, machines and costs out.  Also measures the run,
 * so that a prediction can be compared with it.
 *
 * Pure, one pass, bounded memory: keeps the paces of each worker's last FAL_FIT_CLOCKS
 * clock lines.  Only lines under the last policy count; if the last policy held for fewer
 * than FAL_FIT_ENOUGH clocks, all lines count.
 */
#ifndef FAL_PROJ_FIT_H
#define FAL_PROJ_FIT_H

#include "base/err.h"
#include "math/optim.h"
#include "proj/simulate.h"
#include "sched/policy.h"
#include "trace/reader.h"

#include <stdbool.h>

enum {
	FAL_FIT_CLOCKS = 4096,
	FAL_FIT_WORKERS = 1 << 16,
	FAL_FIT_WARM = 5,
	FAL_FIT_ENOUGH = 20
};

/* The coordinator's CPU seconds for a message with its answer, and for a byte, as
 * measured for falcon-ps on a 2.x GHz virtual core (LeNet-5 in tasks of 8 and of 2
 * samples; a perceptron of 0.67 M parameters; 8 workers, epsp). */
#define FAL_FIT_MESSAGE_S 25e-6
#define FAL_FIT_BYTE_S 0.75e-9

struct fal_fit; /* opaque */

struct fal_fit *fal_fit_new(void);
void fal_fit_free(struct fal_fit *f);

/* Takes the next line; an on_line of fal_trace_reader_new.  The trace needs its job line,
 * and may then go on in mid-job, as a live stream does.  Errors, with the line's number:
 * FAL_EFORMAT, FAL_ELIMIT (also: more workers than FAL_FIT_WORKERS, more tasks in a line
 * than possible), FAL_EINVAL (also: a worker that never joined). */
int fal_fit_line(void *fit, struct fal_trace_line *l);

/* The measured run. */
struct fal_fit_run {
	struct fal_optim optim;   /* of the job; {0}: not in the trace */
	char scheme[128];         /* the last scheme, as in the trace */
	struct fal_policy policy; /* the last policy; owned by the fit, until the next
				   * policy line */
	/* Seconds per epoch over the clocks under `policy`, by the samples that became a
	 * part of a version.  Does not count the first FAL_FIT_WARM clocks, nor the time
	 * between two updates with a hold, a join or a leave between them.  0: too few
	 * clocks. */
	double epoch_s;
	double compute; /* share of the workers' time, as fal_simulation.compute */
	/* how many such clocks there were: their samples, divided by the samples of a
	 * clock */
	uint64_t clocks;
	uint64_t from; /* number of the first of these clocks */
};

/* Reads the optimiser of a job line. */
void fal_fit_optim(struct fal_trace_line *l, struct fal_optim *o);

/* Computes the model and the run from the lines so far; more lines may follow (a live
 * stream).
 *
 * Machines: the workers, by name, that have not left, or that were there when the job
 * stopped or made the last version; in the order of their joins. Paces: one or more for
 * each clock line, without the first FAL_FIT_WARM clocks of the job. Hangs: a worker
 * hangs while it is a suspect.  If a worker hung more than once, or still hangs, each
 * hang becomes a pace of its own.  A single hang that has ended is left out of the model
 * and of the run's sums.  Fixed part of tasks: by the worker's probe and by the worker's
 * lines with short tasks.  A machine that ran no task, or whose fixed part is not known,
 * gets the median of the other machines.
 *
 * The caller frees `cost` with fal_cost_free.  FAL_EINVAL with `diag`: the trace of a
 * group server, which makes no versions.  FAL_ETRUNC with `diag`: too few lines. */
int fal_fit_end(struct fal_fit *f, struct fal_cost *cost, struct fal_fit_run *run,
		struct fal_diag *diag);

#endif
