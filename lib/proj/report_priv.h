/* What a report keeps while the lines come.  Private to lib/proj/report*.c. */
#ifndef FAL_PROJ_REPORT_PRIV_H
#define FAL_PROJ_REPORT_PRIV_H

#include "optim/optim.h"
#include "proj/report.h"
#include "sched/bound.h"
#include "sched/traits.h"

/* A worker in one frame, or its sums over the frames of a window.  Seconds. */
struct report_cell {
	struct fal_trace_load load;
	double compute, wait;
	double samples;            /* of the tasks that it ran, lost ones included */
	double won_samples, won_s; /* of those whose claims won: their samples, their
				      seconds on lanes / lanes */
	double whole;  /* seconds that whole tasks leave a part of its lanes idle */
	uint64_t idle; /* lines in which it was granted nothing and ran nothing */
	double idle_s; /* that it waited in these, but for latency */
};

/* What the parts of a clock are made of; seconds of a worker, or weighted sums. */
struct report_use {
	double compute; /* in which a lane was busy */
	double ran;     /* that its tasks take if its lanes are all busy */
	double won;     /* the same of those whose claims won */
	double whole, comm, wait[FAL_REPORT_WAITS];
};

/* The last speeds at one number of lanes, a ring. */
struct report_ring {
	uint32_t lanes;
	uint64_t clocks, n; /* n: speeds */
	double *v;
	size_t cap;
};

/* Sums over the frames of a window. */
struct report_sums {
	struct report_cell cell;
	struct report_use use; /* of its own */
	double finish, lag;
	uint64_t finishes; /* frames that these two are of */
	uint64_t in_class[FAL_CLASS_PIONEER + 1];
	uint64_t in_run[FAL_CLASS_PIONEER + 1]; /* of them, in runs */
	double slower[FAL_CLASS_PIONEER + 1];   /* sums */
};

/* Counts over all lines of a window. */
struct report_counts {
	uint64_t lines, tasks, in, out, cloned, lost, stale, suspected;
	uint64_t dropped;                /* of the summary, when the window began */
	double lane_tasks, tx, push_all; /* tasks of each lane; bytes sent; seconds */
};

/* A worker; its index is that of its row in the summary. */
struct report_row {
	bool fresh;    /* its next line does not count for times */
	double speed;  /* newest, samples a second; 0: not known */
	double task_s; /* of a full task */
	uint32_t lanes;
	uint64_t dropped;            /* rounds, up to its newest frame */
	double wait;                 /* of a line in its newest frame, but for latency */
	struct fal_trace_load load;  /* of its newest frame */
	struct report_cell cell[2];  /* of the open frames */
	enum fal_class class;        /* in its newest frame */
	enum fal_cause straggles_by; /* when it last was a straggler */
	uint64_t run;                /* frames of this class in a row */
	struct report_ring *ring;    /* by lanes, ascending */
	size_t rings, cap_rings;
	struct report_sums sums;
	struct report_counts counts;
};

struct fal_report_state {
	struct fal_summary summary;
	struct fal_rule rule;
	struct fal_optim optim; /* {0}: not known */
	struct report_row *row;
	size_t rows, cap_rows;
	size_t present; /* rows whose sessions last */
	bool told;      /* some worker has, ever */
	/* The open frames of shared rounds: clocks base and base+1, and the lines of
	 * each.  With rounds of their own: cell 0. */
	bool open;
	uint64_t base;
	size_t lines[2];
	bool partial[2]; /* some of these lines do not count */
	/* The clock that ends: its tasks so far, and when the last one ended. */
	bool ticking;
	uint64_t ended;
	double tick;
	double ring[FAL_REPORT_TICKS]; /* clock seconds, a ring */
	/* Sums of the window. */
	bool begun;   /* a round has ended, ever */
	double begin; /* when the window began */
	uint64_t ticks;
	double samples; /* that are over, of the frames */
	/* Under shared rounds, where each frame has its clock and speeds of its own: the
	 * ideal seconds of the clocks, those by which whole tasks exceed them, and the
	 * workers', weighted by their speeds. */
	double ideal, whole;
	struct report_use use;
	double vain; /* samples claimed for rounds that were not applied */
	/* Scratch for all rows. */
	struct fal_trace_load *load;
	struct fal_trace_class *verdict;
	struct fal_bound_lanes *lanes;
	double *value;
	size_t cap_load, cap_verdict, cap_lanes, cap_value;
};

/* Whether workers share rounds, so that a clock has a line of each of them.  Those of a
 * group share what was granted above, of which there are several at once, and a member
 * has part in some. */
static inline bool
report_shared(const struct fal_report_state *s)
{
	return s->summary.above == NULL && fal_rule_traits(&s->rule).shared;
}

/* Makes room for all rows in the scratch.  FAL_ENOMEM. */
int report_room(struct fal_report_state *s);

/* The median of the projected times of those that have one; NAN: none has. */
double report_pace(const struct fal_trace_class *verdict, size_t n, double *scratch);

/* Adds weight · use. */
void report_use_add(struct report_use *to, const struct report_use *use, double weight);

/* Closes the open frame `at` (0 or 1): its cells are empty afterwards.  FAL_ENOMEM. */
int report_frame(struct fal_report_state *s, size_t at);

/* The worker's speed at this number of lanes, or NULL. */
const struct fal_report_speed *report_speed_at(const struct fal_report_worker *w,
					       uint32_t lanes);

/* The lanes that the workers ran last, at their median speeds, as they are with tasks of
 * `task` samples, into v, which has room for all workers.  Returns how many. */
size_t report_lanes(const struct fal_report *r, uint64_t task, struct fal_bound_lanes *v);

/* Fills r->finding from the rest.  FAL_ENOMEM. */
int report_advise(struct fal_report *r);

#endif
