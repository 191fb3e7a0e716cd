/* The last clocks of a trace as a Gantt chart: a row for each worker, with the uses of
 * the worker's time.
 *
 * Pure, one pass, bounded memory: lines in, a chart out; keeps the last FAL_GANTT_LINES
 * clock lines of each worker.  A clock line states the use of all of the worker's time
 * since the worker's line before.  So the parts of a row follow each other without a gap,
 * with shared rounds and with rounds of the worker's own.
 */
#ifndef FAL_PROJ_PICTURE_H
#define FAL_PROJ_PICTURE_H

#include "trace/summary.h"

#include <stdbool.h>

enum {
	FAL_GANTT_CLOCKS = 12,    /* drawn */
	FAL_GANTT_LINES = 48,     /* kept for each worker, at least */
	FAL_GANTT_UPDATES = 512,  /* kept, at least */
	FAL_GANTT_PERSISTENT = 3, /* clocks in a row that make a straggler persistent */
	FAL_GANTT_WORKERS_MAX = 1 << 16
};

/* A clock line of one worker. */
struct fal_gantt_part {
	double begin, end;                /* seconds of the job */
	double pull, compute, push, wait; /* seconds, in the order of drawing */
	uint64_t in, out, cloned;   /* tasks moved to the worker, and away; clones */
	struct fal_trace_load load; /* of this clock */
	bool own;                   /* a round of the worker's own */
};

struct fal_gantt_row {
	char *name;
	struct fal_gantt_part *part; /* in order of time */
	size_t n, cap;
	bool cut;      /* earlier parts were dropped */
	bool left;     /* its last session has ended … */
	double left_t; /* … at this time */

	/* Set by fal_gantt_end: */
	size_t first;    /* the first drawn part */
	bool persistent; /* a straggler in enough of its clocks in a row */
};

/* A new version. */
struct fal_gantt_update {
	double t; /* seconds of the job */
	uint64_t version, clock;
};

/* {0} is empty and valid. */
struct fal_gantt {
	char *name, *scheme; /* of the job; the last scheme */
	struct fal_gantt_row *row;
	size_t rows, cap_rows;
	struct fal_gantt_update *update; /* in order of time */
	size_t updates, cap_updates;

	/* Set by fal_gantt_end: */
	size_t *shown; /* drawn rows, by name; numbers in names sort by value */
	size_t n_shown;
	double begin, end; /* drawn seconds of the job */
	size_t first_update, shown_updates;
	bool own; /* some drawn parts are rounds of workers' own */

	/* Private. */
	struct fal_ids ids; /* of sessions: their rows */
};

/* Takes the next line, as an on_line of fal_trace_reader_new; `band` is a struct
 * fal_gantt.  Errors: FAL_EFORMAT, FAL_ELIMIT, FAL_EINVAL. */
int fal_gantt_line(void *band, struct fal_trace_line *l);

/* Chooses the time to draw: the last FAL_GANTT_CLOCKS clocks of the median worker.  Finds
 * the stragglers with fal_trace_classify: first over the last clock of each worker, then
 * over the last clock but one of each worker, and so on; over all drawn clocks, but at
 * least FAL_GANTT_PERSISTENT clocks of each worker. More lines and further calls may
 * follow.  FAL_ETRUNC: no clock has ended. */
int fal_gantt_end(struct fal_gantt *b, struct fal_diag *diag);

void fal_gantt_free(struct fal_gantt *b);

/* The curves of a job's loss and accuracy, thinned to the resolution of a picture: lines
 * in, points out.
 *
 * Pure, one pass, bounded memory: at most FAL_CURVE_POINTS points a curve, each a mean
 * over the same number of lines.
 */

enum { FAL_CURVE_POINTS = 500, FAL_CURVE_VERSIONS = 1 << 14 };

struct fal_curve_point {
	double t, samples; /* seconds of the job; samples that the model has seen */
	double value;
};

/* Points: means over `each` values, the last point over `in_last` values. */
struct fal_curve_line {
	struct fal_curve_point point[FAL_CURVE_POINTS];
	size_t n;
	uint64_t each, in_last;
};

/* {0} is empty and valid.  The struct is too large for the stack. */
struct fal_curve {
	struct fal_curve_line loss;                /* of training, by updates */
	struct fal_curve_line test_loss, accuracy; /* of the test set; a ratio */
	double began; /* training, in seconds of the job; 0: not known */

	/* Private. */
	double samples; /* so far */
	struct fal_curve_version {
		uint64_t version;
		double samples;
	} version[FAL_CURVE_VERSIONS]; /* the last versions; the place follows from the
					* number */
};

/* Takes the next line, as an on_line of fal_trace_reader_new; `curve` is a struct
 * fal_curve.  An evaluation has the time of its line and the samples of the evaluated
 * version.  Leaves out a loss that is not finite.  Errors: FAL_EFORMAT, FAL_ELIMIT. */
int fal_curve_line(void *curve, struct fal_trace_line *l);

#endif
