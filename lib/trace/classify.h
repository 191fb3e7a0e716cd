/* Names the stragglers and the pioneers of a job, and why they are. */
#ifndef FAL_TRACE_CLASSIFY_H
#define FAL_TRACE_CLASSIFY_H

#include <stddef.h>
#include <stdint.h>

/* A worker is off the pace when it is this much off the median. */
#define FAL_CLASS_TOLERANCE 0.20

enum fal_class {
	FAL_CLASS_NONE, /* it ran no task: nothing is known */
	FAL_CLASS_STEADY,
	FAL_CLASS_STRAGGLER,
	FAL_CLASS_PIONEER,
	FAL_CLASS_STALLS /* it stands still now and then: fal_trace_classify says never */
};

enum fal_cause {
	FAL_CAUSE_NONE,
	FAL_CAUSE_COMPUTE,
	FAL_CAUSE_PUSH,
	FAL_CAUSE_PULL,
	FAL_CAUSE_LATENCY
};

/* What one worker did. */
struct fal_trace_load {
	uint64_t clocks; /* that it took part in */
	uint64_t tasks;  /* that it ran, dropped ones included */
	double size;     /* of these: full tasks, or samples, the same for all workers */
	double lane_s;   /* sum over these tasks of seconds on their lane / lanes */
	/* Seconds, not overlapped by compute; sums over the clocks; latency: waiting for
	 * round trips of its own link. */
	double push, pull, latency;
};

struct fal_trace_class {
	enum fal_class class;
	enum fal_cause cause; /* NONE for a steady worker */
	double projected;     /* seconds that an equal share would take it */
};

/* Classifies n workers.
 *
 * Under EPSP all workers finish together, so their finish says nothing; what counts is
 * the time that each would need for an equal share.  With
 *	S = size / clocks, both summed over the workers that ran tasks,
 * the projected time of a worker is
 *	S · lane_s / size  +  (push + pull + latency) / clocks,
 * compute growing with the share and the others paid once a clock.  More than 20 %
 * above the median of these: straggler; more than 20 % below: pioneer; else steady (θ of
 * the straggler projection).  The cause is the one of the four parts that is farthest
 * above (straggler) or below (pioneer) its own median.  Other waiting is never a cause:
 * who waits is held up by another.
 *
 * A worker that was there and ran no task is a straggler by what its link alone takes, at
 * the median's computing, or nothing is known of it.
 *
 * Writes out[i] for loads[i].  Returns 0 or FAL_ENOMEM. */
int fal_trace_classify(const struct fal_trace_load *loads, size_t n,
		       struct fal_trace_class *out);

const char *fal_class_name(enum fal_class c); /* "straggler", …; NONE: "-" */
const char *fal_cause_name(enum fal_cause c); /* "compute", …; NONE: "-" */

#endif
