/* The straggler projection: reports each worker and the uses of a clock's time, and
 *derives advice.
 *
 * Pure, one pass, memory by workers: lines in, a struct out.  A window of a live stream
 * gives the same report as a whole trace.
 *
 * Frames.  Workers are compared frame by frame.  If they share rounds (bsp, epsp), a
 *frame is a clock.  If each has rounds of its own, a frame is the time in which a clock's
 *tasks end, and a worker without a line in it counts with its last line.  The first line
 *of a session and the lines around a hold or a change of policy contain waiting for other
 * reasons: they count for tasks and speeds only.
 *
 * The uses of time.  A second of worker w is worth its speed v_w.  So the parts of a
 *clock are the means of the workers' seconds, weighted by v_w / Σ v: by the speeds in the
 *clock if rounds are shared, else by the speeds in the window.  Then ideal = samples / Σ
 *v is the time that the same lanes need if they do nothing else and samples can be split
 *at will (small tasks account for a part of it).  The other parts are the losses to each
 * cause, and the sum of all parts is the clock.
 */
#ifndef FAL_PROJ_REPORT_H
#define FAL_PROJ_REPORT_H

#include "sched/policy.h"
#include "trace/summary.h"

enum {
	FAL_REPORT_SPEEDS = 256, /* medians of speeds are over the last so many */
	FAL_REPORT_TICKS = 1024, /* medians of clock seconds, too */
	FAL_REPORT_RUN = 3,      /* so many clocks in a row of one class are persistent */
	FAL_REPORT_SHOWN = 63    /* bytes of a printed name: all that a name can have */
};

/* Samples a second of computing at one number of lanes, over its last speeds there.  A
 * clock has one speed, or several if the speed changed. */
struct fal_report_speed {
	uint32_t lanes;
	uint64_t clocks; /* with tasks on so many lanes, in the whole trace */
	double median, p10, p90;
};

/* The reasons of waiting. */
enum fal_report_wait {
	FAL_REPORT_OTHERS, /* the last worker: the wait in excess of the least wait of
			      any worker */
	FAL_REPORT_COORDINATOR, /* counting, the step, the next grant: the least wait */
	FAL_REPORT_IDLE,        /* it was granted nothing */
	FAL_REPORT_LATENCY,     /* round trips of its own link */
	FAL_REPORT_WAITS
};

/* Counts over all lines of a window: tasks whose claims won, moved to the worker and
 * away, clones, claims that lost; staleness in updates; suspicions. */
struct fal_report_counts {
	uint64_t lines, tasks, in, out, cloned, lost, stale, suspected;
	uint64_t dropped;                /* rounds before the window */
	double lane_tasks, tx, push_all; /* tasks of each lane; bytes sent; seconds */
};

/* Seconds are means over its clocks, or rounds of its own. */
struct fal_report_worker {
	const struct fal_summary_worker *row; /* its present state; borrowed */
	struct fal_report_counts counts;
	char shown[FAL_REPORT_SHOWN + 1]; /* its name, without control characters */
	/* The class by the window's sums (fal_trace_classify), with two exceptions.  A
	 * steady worker that was a straggler in a tenth of its clocks is a straggler.  A
	 * pioneer must have been one in a tenth of its clocks. */
	enum fal_class class;
	enum fal_cause cause;
	double in_class;    /* share of its clocks */
	bool persistent;    /* at least half of its clocks, mostly 3 or more in a row */
	double slower;      /* its projected time / the median in these; NAN: no class */
	enum fal_class now; /* the class in its newest clock */
	uint64_t run;       /* the last clocks, in a row, with that class */
	uint64_t clocks;    /* lines of the window */
	uint64_t stalls;    /* clocks in which it was a suspect, or very slow */
	uint32_t lanes;     /* in its last line */
	struct fal_report_speed *speed; /* by lanes, ascending */
	size_t speeds;
	double compute, push, pull, wait;
	double waits[FAL_REPORT_WAITS]; /* parts of wait */
	double projected;               /* seconds that it needs for an equal share */
	/* Compute, push and pull of a clock in which it ran tasks, and the lag of their
	 * end behind the ideal common finish; NAN with rounds of its own. */
	double finish, lag;
	uint64_t dropped; /* rounds */
	double stale;     /* mean staleness in updates */
	double idle;      /* share of its clocks in which it was granted nothing */
	double rate;      /* bytes a second while it pushes; NAN: not known */
	/* The rate below which push.bits = 16 pays: then rounding takes less time than
	 * the third of the bytes that it saves.  NAN: not known, or the worker pushes
	 * fewer bits already. */
	double fewer_bits;
};

enum fal_report_part {
	FAL_REPORT_IDEAL,       /* without the cost of small tasks */
	FAL_REPORT_GRANULARITY, /* cost of whole tasks, in any sharing on these lanes */
	FAL_REPORT_SMALL_TASKS, /* computing that a share in one batch would save; NAN:
				   not known */
	FAL_REPORT_STRAGGLERS, /* waiting for the last worker, in excess of granularity */
	FAL_REPORT_COMMUNICATION, /* push, pull and latency that no computing overlaps */
	FAL_REPORT_COORDINATION,
	FAL_REPORT_STANDBY, /* workers that were granted nothing */
	FAL_REPORT_EXTRA,   /* computing without a winning claim: time around tasks; lost
			       claims, dropped and cancelled tasks; evaluation */
	FAL_REPORT_PARTS
};

const char *fal_report_part_name(enum fal_report_part part);

struct fal_report_finding {
	const char *kind; /* static: "straggler", … (falcon-proj(1)) */
	const struct fal_report_worker *worker; /* the worst affected one, or NULL */
	size_t workers;                         /* affected; 0: the job is */
	double share; /* of the clock that it costs, all workers together */
	char text[320];
};

/* {0} is empty and valid. */
struct fal_report {
	/* Set by fal_report_end, and good until the next line. */
	const char *name, *scheme; /* of the job; the scheme in force; borrowed */
	struct fal_rule rule;
	/* Address of the coordinator above, if the trace is a group server's, which has
	 * only parts of clocks; borrowed.  NULL: it is not. */
	const char *above;
	bool shared;          /* workers share rounds */
	bool done;            /* the job has ended */
	uint64_t batch, task; /* samples of a full clock, of a full task */
	double seconds;       /* of the window */
	/* Clocks: by the samples of the lines that count.  Seconds between the ends of
	 * clocks, over the last ones; NAN: too few. */
	double clocks, clock_median, clock_p95;
	double part[FAL_REPORT_PARTS]; /* seconds of a clock; all 0: no clock yet */
	double clock;                  /* the sum of the known parts */
	struct fal_report_worker *worker;
	size_t workers;
	struct fal_report_finding *finding; /* by cost, the largest first */
	size_t findings, cap;

	struct fal_report_state *state; /* private */
};

/* Takes the next line; `report` is a struct fal_report: an on_line of
 * fal_trace_reader_new. Errors: those of fal_summary_line, and FAL_EINVAL for an unknown
 * scheme. */
int fal_report_line(void *report, struct fal_trace_line *l);

/* Begins a new window, as a change of the scheme does: only later lines count, but the
 * workers, their speeds and their classes stay. */
void fal_report_window(struct fal_report *r);

/* Sums up; more lines may follow.  FAL_ETRUNC with `diag`: there is no job line, or no
 * clock line. */
int fal_report_end(struct fal_report *r, struct fal_diag *diag);

void fal_report_free(struct fal_report *r); /* sets *r to {0} */

#endif
