/* What a fit knows of its lines so far, shared by its own files only:
 *
 *	fit.c        takes the lines
 *	fit_model.c  makes the model of them
 */
#ifndef FAL_PROJ_FIT_PRIV_H
#define FAL_PROJ_FIT_PRIV_H

#include "base/crowd.h"
#include "proj/fit.h"
#include "trace/reader.h"

#include <math.h>

/* What a worker told of a clock, or of a round of its own: of a part of its tasks, where
 * these had several paces. */
struct fit_told {
	uint32_t clock;
	uint32_t hung; /* the number of the hang in which it ran nothing; 0: none */
	float tasks, samples, seconds;
	float task_s; /* mean; if a lane shares its core with none; 0: it ran none */
	/* Of the whole line; in its later parts turn is NAN, pull and push are 0. */
	float turn, ran, pull, push;
	float cut, cut_s; /* of the whole line, in its last part: tasks that were cut
			     short, and what they ran on a lane; in others 0 */
};

/* A worker by name: a session that joins after an earlier one of that name has left
 * continues its row. */
struct fit_worker {
	char *name;
	bool left;
	uint64_t left_after; /* updates */
	uint32_t lanes_min, lanes_max, lanes, cores;
	double fixed;          /* by its probe; NAN: it told nothing of it */
	double rtt;            /* of its link, as it was told last; 0: not known */
	struct fit_told *told; /* a ring of FAL_FIT_CLOCKS, once it has grown to that */
	size_t cap;
	uint64_t n;          /* that it told so far */
	double t;            /* when it told the last, or joined */
	bool suspect, stuck; /* stuck: it was one when it left */
	uint32_t hangs;      /* times that it became one */
	double since;        /* since when it owed what made it one */
	double hung;     /* seconds that it was one since `t`, if it is none any more */
	uint64_t breaks; /* struct fal_fit's then */
};

/* The last values. */
struct fit_ring {
	float v[FAL_FIT_CLOCKS];
	uint64_t n;
};

/* A clock with a shared round. */
struct fit_clock {
	uint64_t number; /* from 1; 0: none */
	double seconds;  /* between its update and the one before; 0: it does not count */
	double busy;     /* of the worker that computed, pulled and pushed longest */
};

struct fal_fit {
	struct fal_optim optim;
	bool have_job;
	bool group; /* the trace is a group's: versions are made elsewhere */
	struct fal_trace_job job;
	struct fal_grid grid; /* the same */
	struct fit_worker *worker;
	size_t workers, cap;
	uint32_t *by_name; /* indices of worker, sorted */
	size_t by_name_cap;
	struct fal_ids ids; /* session → index of worker */

	char scheme[128];
	struct fal_policy policy;
	uint64_t begin; /* the policy's first clock */
	bool shared;    /* its rounds are */

	bool held, stopped;
	uint64_t updates, newest; /* newest: the clock of the last one */
	uint64_t breaks;          /* times that something came between two updates */
	uint64_t last_breaks;     /* at the last update, */
	double last_t;            /* which was then; below 0: none yet */

	uint64_t suspects, lates; /* now; times that one became it, or was back */
	uint64_t last_lates;      /* at the last update */

	/* Under the policy: clocks in all, and the sums over those that count; of updates
	 * with a suspect between them, and of all others. */
	double since, compute, spent;
	struct fit_sums {
		double counted, seconds, samples;
	} hung, well;
	uint64_t from;

	struct fit_clock clock[FAL_FIT_CLOCKS]; /* by number, a ring */
	struct fit_ring tx, rx, wait; /* of clock lines; wait of rounds of one's own */
};

/* Seconds of a task on one of `to` lanes, if they are task_s on one of `from`. */
static inline double
fit_at_lanes(double task_s, uint32_t cores, uint32_t from, uint32_t to)
{
	return task_s * fal_crowding(to, cores) / fal_crowding(from, cores);
}

#endif
