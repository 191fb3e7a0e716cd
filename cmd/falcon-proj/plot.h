/* The pictures of falcon-proj, drawn by gnuplot, as SVG or PNG by the name of the file.
 *
 * All return 0, FAL_EINVAL (no such format; gnuplot_format says so before long work),
 * FAL_ENOENT (gnuplot is not here) or another error of gnuplot_end, with a diagnosis that
 * is a whole message; the file is written as a whole or not at all.
 */
#ifndef FALCON_PROJ_PLOT_H
#define FALCON_PROJ_PLOT_H

#include "base/err.h"
#include "proj/band.h"
#include "proj/curve.h"

enum { PLOT_ROWS = 64 };

/* The straggler projection: a band for each worker, after fal_band_end.  Of more than
 * PLOT_ROWS workers only so many, evenly out of all; up to half of them are persistent
 * stragglers, if there are so many.  FAL_ETRUNC: it has no time. */
int plot_bands(const char *file, const struct fal_band *b, struct fal_diag *diag);

/* A scheme of a what-if. */
struct plot_bar {
	const char *name;  /* borrowed, like all here */
	double epoch_s;    /* predicted seconds per epoch, > 0 */
	double measured_s; /* of the trace; 0: not known */
	double compute;    /* predicted share of the workers' time, 0 … 1 */
	bool ran;          /* it is the scheme of the trace */
	bool other;        /* it makes another model */
};

/* n > 0 bars, in the order given. */
int plot_bars(const char *file, const char *title, const struct plot_bar *bars, size_t n,
	      struct fal_diag *diag);

struct plot_curve {
	const char *name;
	const struct fal_curve *curve;
};

/* Loss, and accuracy if any has it, by time and by samples; n > 0 curves.  FAL_ETRUNC:
 * none has a loss. */
int plot_curves(const char *file, const struct plot_curve *curves, size_t n,
		struct fal_diag *diag);

#endif
