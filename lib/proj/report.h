/* The straggler projection: reports on each worker and on the uses of a clock's time, and
 * derives advice.
 *
 * Pure, one pass, memory by workers: lines in, a struct out.  A window of a live stream
 * gives the same report as a whole trace.
 *
 * Frames.  Workers are compared frame by frame.  If they share rounds (bsp, epsp), a
 * frame is a clock.  If each worker has rounds of its own, a frame is the time in which a
 * clock's tasks end; a worker without a line in the frame counts with the worker's last
 * line.  The first line of a session and the lines around a hold or a change of policy
 * contain waiting for other reasons: they count for tasks and speeds only.
 *
 * The uses of time.  A second of worker w is worth the speed v_w of the worker.  So the
 * parts of a clock are the means of the workers' seconds, weighted by v_w / Σ v: by the
 * speeds in the clock if rounds are shared, else by the speeds in the window.  Then
 * ideal = samples / Σ v is the time that the same lanes need if they only compute and
 * samples can be split at will.  The ideal still includes the cost of small tasks.  The
 * other parts are the losses to each cause, and the sum of all parts is the clock.
 */
#ifndef FAL_PROJ_REPORT_H
#define FAL_PROJ_REPORT_H

#include "sched/policy.h"
#include "trace/summary.h"

enum {
	FAL_REPORT_SPEEDS = 256, /* medians of speeds are over so many last speeds */
	FAL_REPORT_TICKS = 1024, /* medians of clock seconds, too */
	FAL_REPORT_RUN = 3,      /* clocks in a row of one class make it persistent */
	FAL_REPORT_SHOWN = 63    /* bytes of a printed name: all that a name can have */
};

/* Speeds of a worker with one number of lanes, in samples a second of computing; the
 * medians are over the last FAL_REPORT_SPEEDS speeds.  A clock has one speed, or several
 * speeds if the speed changed. */
struct fal_report_speed {
	uint32_t lanes;
	uint64_t clocks; /* with tasks on so many lanes, in the whole trace */
	double median, p10, p90;
};

/* The reasons of waiting. */
enum fal_report_wait {
	FAL_REPORT_OTHERS, /* waiting for the last worker: the wait beyond the least wait
			    * of all workers */
	FAL_REPORT_COORDINATOR, /* for counting, the step and the next grant: the least
				 * wait of all workers */
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

/* A worker.  Seconds are means over the worker's clocks, or over its own rounds. */
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
	bool persistent;    /* the class holds in at least half of its clocks, mostly 3 or
			     * more in a row */
	double slower;      /* projected / the workers' median of projected; NAN: no
			     * class */
	enum fal_class now; /* the class in its newest clock */
	uint64_t run;       /* number of last clocks in a row with that class */
	uint64_t clocks;    /* lines of the window */
	uint64_t stalls;    /* clocks in which it was a suspect, or very slow */
	uint32_t lanes;     /* in its last line */
	struct fal_report_speed *speed; /* by lanes, ascending */
	size_t speeds;
	double compute, push, pull, wait;
	double waits[FAL_REPORT_WAITS]; /* parts of wait */
	double projected;               /* seconds that it needs for an equal share */
	/* finish: compute, push and pull of a clock in which the worker ran tasks.  lag:
	 * from the ideal common finish to this finish.  NAN with rounds of its own. */
	double finish, lag;
	uint64_t dropped; /* rounds */
	double stale;     /* mean staleness in updates */
	double idle;      /* share of its clocks without a granted task */
	double rate;      /* bytes a second while it pushes; NAN: not known */
	/* The rate below which push.bits = 16 pays: rounding then takes less time than
	 * the transfer of the third of the bytes that it saves.  NAN: not known, or the
	 * worker pushes fewer bits already. */
	double fewer_bits;
};

enum fal_report_part {
	FAL_REPORT_IDEAL,       /* without the cost of small tasks */
	FAL_REPORT_GRANULARITY, /* cost of whole tasks, however tasks are shared on these
				 * lanes */
	FAL_REPORT_SMALL_TASKS, /* computing that one batch for each share would save;
				 * NAN: not known */
	FAL_REPORT_STRAGGLERS, /* waiting for the last worker, in excess of granularity */
	FAL_REPORT_COMMUNICATION, /* push, pull and latency that no computing overlaps */
	FAL_REPORT_COORDINATION,
	FAL_REPORT_STANDBY, /* workers that were granted nothing */
	FAL_REPORT_EXTRA,   /* computing without a winning claim: time around tasks; lost
			     * claims; dropped and cancelled tasks; evaluation */
	FAL_REPORT_PARTS
};

const char *fal_report_part_name(enum fal_report_part part);

struct fal_report_finding {
	const char *kind; /* static: "straggler", … (falcon-proj(1)) */
	const struct fal_report_worker *worker; /* the worst affected one, or NULL */
	size_t workers;                         /* affected workers; 0: the whole job */
	double share; /* cost as a share of the clock, over all workers */
	char text[320];
};

/* {0} is empty and valid. */
struct fal_report {
	/* Set by fal_report_end, and good until the next line. */
	const char *name, *scheme; /* of the job; the scheme in force; borrowed */
	struct fal_rule rule;
	/* The address of the coordinator above, if the trace is a group server's; such a
	 * trace has only parts of clocks.  Borrowed.  NULL: the trace is another
	 * server's. */
	const char *above;
	bool shared;          /* workers share rounds */
	bool done;            /* the job has ended */
	uint64_t batch, task; /* samples of a full clock, of a full task */
	double seconds;       /* of the window */
	/* clocks: number of clocks, by the samples of the lines that count. clock_median,
	 * clock_p95: seconds between the ends of clocks, over the last FAL_REPORT_TICKS;
	 * NAN: too few. */
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

/* Begins a new window, as a change of the scheme does: only later lines count, but
 * workers, speeds and classes stay. */
void fal_report_window(struct fal_report *r);

/* Sums up; more lines may follow.  FAL_ETRUNC with `diag`: there is no job line, or no
 * clock line. */
int fal_report_end(struct fal_report *r, struct fal_diag *diag);

void fal_report_free(struct fal_report *r); /* sets *r to {0} */

#endif
