/* The straggler projection: what a trace says of each worker and of where the time of a
 * clock goes, and what follows from it.
 *
 * Pure, one pass, memory by workers: lines in, a struct out.  A window of a live stream
 * is reported like a whole trace.
 *
 * Frames.  What workers did is held against each other clock by clock.  Where they share
 * rounds (bsp, epsp) a frame is a clock; where rounds are their own it is the time in
 * which a clock's tasks end, and a worker that told nothing in it counts with what it
 * told last.  The first line of a session and those around a hold or a change of policy
 * tell of other waiting too: they count for tasks and speeds only.
 *
 * Where the time goes.  A second of worker w is worth its speed v_w, so the parts of a
 * clock are the means of the workers' seconds, weighted by v_w / Σ v: by the speeds in
 * the clock where rounds are shared, by those in the window where they are not.  Then
 *	ideal = samples / Σ v
 * is what the same lanes would need if nothing else were to be done and samples could be
 * split at will (a part of it is that tasks are small), the others are what was lost to
 * each cause, and together they are the clock.
 */
#ifndef FAL_PROJ_REPORT_H
#define FAL_PROJ_REPORT_H

#include "sched/policy.h"
#include "trace/summary.h"

enum {
	FAL_REPORT_SPEEDS = 256, /* that medians are taken over */
	FAL_REPORT_TICKS = 1024, /* that those of clock seconds are taken over */
	FAL_REPORT_RUN = 3,      /* clocks in a row of one class: persistent */
	FAL_REPORT_SHOWN = 63    /* bytes of a name that are shown to a person: all */
};

/* Samples a second of computing at one number of lanes, over the last speeds with it: one
 * of a clock, or more if it changed in it. */
struct fal_report_speed {
	uint32_t lanes;
	uint64_t clocks; /* that it ran tasks with them, in the whole trace */
	double median, p10, p90;
};

/* Why a worker waits. */
enum fal_report_wait {
	FAL_REPORT_OTHERS,      /* for who is last: what it waits longer than who waits
				   least */
	FAL_REPORT_COORDINATOR, /* what all wait: counting, the step, the next grant */
	FAL_REPORT_IDLE,        /* it was granted nothing */
	FAL_REPORT_LATENCY,     /* round trips of its own link */
	FAL_REPORT_WAITS
};

/* Counts over all lines of a window: tasks whose claims won, moved to the worker and
 * away, clones, claims that lost; staleness in updates; times that it was a suspect. */
struct fal_report_counts {
	uint64_t lines, tasks, in, out, cloned, lost, stale, suspected;
	uint64_t dropped;                /* of the summary, when the window began */
	double lane_tasks, tx, push_all; /* tasks of each lane; bytes sent; seconds */
};

/* Seconds are means over its clocks, or rounds of its own. */
struct fal_report_worker {
	const struct fal_summary_worker *row; /* borrowed: what it is now */
	struct fal_report_counts counts;
	char shown[FAL_REPORT_SHOWN + 1]; /* its name, without control characters */
	/* The class by the window's sums (fal_trace_classify), but for two cases.  A
	 * steady worker that was a straggler in a tenth of its clocks is a straggler.  A
	 * pioneer must have been one in a tenth of its clocks. */
	enum fal_class class;
	enum fal_cause cause;
	double in_class; /* share of its clocks */
	bool persistent; /* half of them, and most of these were 3 or more in a row */
	double slower;   /* its projected time / the median one in these; NAN: no class */
	enum fal_class now; /* in its newest clock; */
	uint64_t run;       /* clocks in a row of that class, up to it */
	uint64_t clocks;    /* lines of the window */
	uint64_t stalls;    /* times that it was a suspect, or, rarely, very slow */
	uint32_t lanes;     /* that it ran last */
	struct fal_report_speed *speed; /* by lanes, ascending */
	size_t speeds;
	double compute, push, pull, wait;
	double waits[FAL_REPORT_WAITS]; /* parts of wait */
	double projected;               /* that an equal share would take it */
	/* Compute, push and pull of a clock in which it ran tasks, and how much later
	 * than the ideal common finish that is; NAN with rounds of its own. */
	double finish, lag;
	uint64_t dropped; /* rounds */
	double stale;     /* mean staleness in updates */
	double idle;      /* share of its clocks in which it was granted nothing */
	double rate;      /* bytes a second in which it pushes; NAN: not known */
	/* The rate below which push.bits = 16 would pay: rounding then takes less than
	 * the third of the bytes that it saves.  NAN: not known, or it pushes fewer bits.
	 */
	double fewer_bits;
};

enum fal_report_part {
	FAL_REPORT_IDEAL,         /* but for small tasks */
	FAL_REPORT_GRANULARITY,   /* whole tasks: on these lanes no sharing avoids it */
	FAL_REPORT_SMALL_TASKS,   /* what of computing a share as one batch would save;
				     NAN: not known */
	FAL_REPORT_STRAGGLERS,    /* waiting for the last one, beyond that */
	FAL_REPORT_COMMUNICATION, /* push, pull and latency that no computing overlaps */
	FAL_REPORT_COORDINATION,
	FAL_REPORT_STANDBY, /* workers that were granted nothing */
	FAL_REPORT_EXTRA,   /* charged to computing, but no task whose claim won: around
			       tasks; lost claims, dropped and cancelled tasks;
			       evaluation */
	FAL_REPORT_PARTS
};

const char *fal_report_part_name(enum fal_report_part part);

struct fal_report_finding {
	const char *kind; /* static: "straggler" … as falcon-proj(1) lists them */
	const struct fal_report_worker *worker; /* the worst of them, or NULL */
	size_t workers;                         /* that it is said of; 0: of the job */
	double share; /* of the clock that is lost to it, all workers together */
	char text[320];
};

/* {0} is empty and valid. */
struct fal_report {
	/* Set by fal_report_end, and good until the next line. */
	const char *name, *scheme; /* of the job; the scheme that holds; borrowed */
	struct fal_rule rule;
	/* It is a group's: versions are made at this address, and of clocks it has parts;
	 * borrowed.  NULL: it is none. */
	const char *above;
	bool shared;          /* workers share rounds */
	bool done;            /* the job has ended */
	uint64_t batch, task; /* samples of a full clock, of a full task */
	double seconds;       /* of the window */
	/* Clocks: of the samples of the lines that count.  Seconds that the tasks of a
	 * clock took to end, over the last ones; NAN: too few. */
	double clocks, clock_median, clock_p95;
	double part[FAL_REPORT_PARTS]; /* seconds of a clock; all 0: no clock yet */
	double clock;                  /* the sum of those that are known */
	struct fal_report_worker *worker;
	size_t workers;
	struct fal_report_finding *finding; /* those that cost most first */
	size_t findings, cap;

	struct fal_report_state *state; /* private */
};

/* Takes the next line; `report` is a struct fal_report, so this is an on_line of
 * fal_trace_reader_new.  Errors: those of fal_summary_line, and FAL_EINVAL
 * for a scheme that there is not. */
int fal_report_line(void *report, struct fal_trace_line *l);

/* A new window, as a change of the scheme also begins one: what follows counts; what is
 * known of workers, their speeds and their classes stays. */
void fal_report_window(struct fal_report *r);

/* Sums up; more lines may follow.  FAL_ETRUNC with `diag`: there was no job line, or no
 * worker has told of a clock. */
int fal_report_end(struct fal_report *r, struct fal_diag *diag);

void fal_report_free(struct fal_report *r); /* `r` is {0} again */

#endif
