/* The last clocks of a trace as bands: how each worker spent its time, lines in, what is
 * drawn out.
 *
 * Pure, one pass, bounded memory: of each worker the last FAL_BAND_LINES clock lines are
 * kept.  A clock line tells where all of its worker's time since the one before went, so
 * the parts of a worker follow each other without a gap, whether its rounds are shared or
 * its own.
 */
#ifndef FAL_PROJ_PICTURE_H
#define FAL_PROJ_PICTURE_H

#include "trace/summary.h"

#include <stdbool.h>

enum {
	FAL_BAND_CLOCKS = 12,    /* that are drawn */
	FAL_BAND_LINES = 48,     /* that are kept of a worker, at least */
	FAL_BAND_UPDATES = 512,  /* that are kept, at least */
	FAL_BAND_PERSISTENT = 3, /* clocks in a row that make a straggler persistent */
	FAL_BAND_WORKERS_MAX = 1 << 16
};

/* A clock line of one worker. */
struct fal_band_part {
	double begin, end;                /* seconds of the job */
	double pull, compute, push, wait; /* seconds; the order in which they are drawn */
	uint64_t in, out, cloned;         /* tasks moved to it, away from it; clones */
	struct fal_trace_load load;       /* of this clock */
	bool own;                         /* of a round of its own */
};

struct fal_band_row {
	char *name;
	struct fal_band_part *part; /* in order of time */
	size_t n, cap;
	bool cut;      /* there were earlier parts */
	bool left;     /* its last session has ended, */
	double left_t; /* then */

	/* Set by fal_band_end: */
	size_t first;    /* the first part that is drawn */
	bool persistent; /* a straggler in enough of its clocks in a row */
};

/* A new version. */
struct fal_band_update {
	double t; /* seconds of the job */
	uint64_t version, clock;
};

/* {0} is empty and valid. */
struct fal_band {
	char *name, *scheme; /* of the job; the scheme that held last */
	struct fal_band_row *row;
	size_t rows, cap_rows;
	struct fal_band_update *update; /* in order of time */
	size_t updates, cap_updates;

	/* Set by fal_band_end: */
	size_t *shown; /* the rows that are drawn, by name, numbers in it by value */
	size_t n_shown;
	double begin, end; /* seconds of the job that are drawn */
	size_t first_update, shown_updates;
	bool own; /* some of the drawn parts are of rounds of their own */

	/* Private. */
	struct fal_ids ids; /* of sessions: their rows */
};

/* Takes the next line; `band` is a struct fal_band, so this is an on_line of
 * fal_trace_reader_new.  Errors: FAL_EFORMAT, FAL_ELIMIT, FAL_EINVAL. */
int fal_band_line(void *band, struct fal_trace_line *l);

/* Chooses the time to draw, in which the median worker had its last FAL_BAND_CLOCKS
 * clocks.  fal_trace_classify says which worker is a straggler in a clock, over the last
 * clock of each worker, the last but one of each, and so on, as far as they are drawn,
 * but at least FAL_BAND_PERSISTENT of each.  More lines may follow, and another end.
 * FAL_ETRUNC: no clock has ended. */
int fal_band_end(struct fal_band *b, struct fal_diag *diag);

void fal_band_free(struct fal_band *b);

/* The course of a job's loss and accuracy, thinned so that a picture shows all that an
 * eye would see: lines in, points out.
 *
 * Pure, one pass, bounded memory: at most FAL_CURVE_POINTS points each, a mean over equal
 * numbers of lines.
 */

enum { FAL_CURVE_POINTS = 500, FAL_CURVE_VERSIONS = 1 << 14 };

struct fal_curve_point {
	double t, samples; /* seconds of the job; samples that the model was made from */
	double value;
};

/* Points that are means over `each` values; the last over what is left. */
struct fal_curve_line {
	struct fal_curve_point point[FAL_CURVE_POINTS];
	size_t n;
	uint64_t each, in_last; /* values of a point, of the last one */
};

/* {0} is empty and valid, and large: not for the stack. */
struct fal_curve {
	struct fal_curve_line loss;     /* of training, by updates */
	struct fal_curve_line accuracy; /* of the test set, a ratio */

	/* Private. */
	double samples; /* so far */
	struct fal_curve_version {
		uint64_t version;
		double samples;
	} version[FAL_CURVE_VERSIONS]; /* the last ones, by their number */
};

/* Takes the next line; `curve` is a struct fal_curve, so this is an on_line of
 * fal_trace_reader_new.  An accuracy stands at the time when it was known and at the
 * samples of the version that was judged.  A loss that is not finite is left out.
 * Errors: FAL_EFORMAT, FAL_ELIMIT. */
int fal_curve_line(void *curve, struct fal_trace_line *l);

#endif
