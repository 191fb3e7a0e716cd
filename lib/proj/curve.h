/* How the loss and the accuracy of a job went, thinned so that a picture shows all that
 * an eye would see: lines in, points out.
 *
 * Pure, one pass, bounded memory: at most FAL_CURVE_POINTS points each, a mean over equal
 * numbers of lines.
 */
#ifndef FAL_PROJ_CURVE_H
#define FAL_PROJ_CURVE_H

#include "trace/reader.h"

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
