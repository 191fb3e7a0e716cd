/* Fits a cost model to a trace: lines in, machines and costs out; and what the trace says
 * of the job as it ran, to hold a prediction against.
 *
 * Pure, one pass, bounded memory: of each worker the paces of the last clock lines are
 * kept, FAL_FIT_CLOCKS of them.  Lines count that are under the policy that held last;
 * all do if that held for fewer than FAL_FIT_ENOUGH clocks.
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

/* What a message costs a coordinator, with its answer, and a byte of it, in seconds of
 * one core: CPU seconds of falcon-ps on a 2.x GHz virtual core (LeNet-5 in tasks of 8 and
 * of 2 samples; a perceptron of 0.67 M parameters; 8 workers, epsp). */
#define FAL_FIT_MESSAGE_S 25e-6
#define FAL_FIT_BYTE_S 0.75e-9

struct fal_fit; /* opaque */

struct fal_fit *fal_fit_new(void);
void fal_fit_free(struct fal_fit *f);

/* Takes the next line; an on_line of fal_trace_reader_new.  The trace may begin in
 * mid-job, as that of a live stream does, but not without its job line.  Errors, with the
 * line's number: FAL_EFORMAT, FAL_ELIMIT (also: more workers than FAL_FIT_WORKERS, more
 * tasks in a line than can be), FAL_EINVAL (also: a worker that never joined). */
int fal_fit_line(void *fit, struct fal_trace_line *l);

/* What ran. */
struct fal_fit_run {
	struct fal_optim optim;   /* of the job; {0} where the trace does not say */
	char scheme[128];         /* that held last, as in the trace */
	struct fal_policy policy; /* the whole of it; owned by the fit, until its next
				     policy line */
	/* Seconds per epoch over the clocks under that policy, by the samples that became
	 * a part of a version; left out are the first FAL_FIT_WARM clocks, and updates
	 * with a hold, a join or a leave between them.  0: too few */
	double epoch_s;
	double compute;  /* share of the workers' time over these, as fal_simulate's */
	uint64_t clocks; /* that they are, by their samples */
	uint64_t from;   /* the first of them, by number */
};

/* Reads the optimiser of a job line. */
void fal_fit_optim(struct fal_trace_line *l, struct fal_optim *o);

/* The model and the run, from the lines so far; more lines may follow (a live stream).
 * Machines are the workers by name that have not left, or were there when the job was
 * stopped or its last version made, in the order in which they joined; paces are one
 * or more for each clock line, but those of the first FAL_FIT_WARM clocks of the job.
 * Time in which a worker was a suspect is a pace in which it hangs if that happened more
 * than once, or lasts, and else left out, of the run's sums, too.  The fixed part of its
 * tasks is what its probe and its lines with short tasks say.  A machine that ran no task
 * yet, or whose fixed part nothing tells, is in that as the median of the others. `cost`
 * is the caller's: fal_cost_free.  FAL_EINVAL with `diag`: it is the trace of a group
 * server, which makes no versions.  FAL_ETRUNC with `diag`: too little to say anything.
 */
int fal_fit_end(struct fal_fit *f, struct fal_cost *cost, struct fal_fit_run *run,
		struct fal_diag *diag);

#endif
