/* The pictures of falcon-proj: writes the numbers as tables of tab-separated values, and
 * draws the tables with gnuplot and the scripts of share/plots.
 *
 * A table's first line is a comment that names its columns; two empty lines separate
 * tables.  Specification: falcon-proj(1), PICTURES.
 */
#ifndef FALCON_PROJ_PLOT_H
#define FALCON_PROJ_PLOT_H

#include "base/buf.h"
#include "base/err.h"
#include "proj/picture.h"

/* A scheme of a what-if. */
struct plot_bar {
	const char *name;  /* borrowed */
	double epoch_s;    /* predicted seconds per epoch, > 0 */
	double measured_s; /* in the trace; 0: not known */
	double compute;    /* predicted share of the workers' time, 0 … 1 */
	bool ran;          /* the scheme of the trace */
	bool other;        /* the scheme makes another model */
};

/* The curves of a trace; borrowed. */
struct plot_curve {
	char *name;
	const struct fal_curve *curve;
};

/* Puts a Gantt chart, after fal_gantt_end; persistent stragglers are the first rows. */
void plot_put_bands(struct fal_buf *out, const struct fal_gantt *b);
/* Puts n > 0 bars, in this order. */
void plot_put_bars(struct fal_buf *out, const struct plot_bar *bars, size_t n);
/* Puts n > 0 curves. */
void plot_put_curves(struct fal_buf *out, const struct plot_curve *curves, size_t n);

/* Checks that the name of `file` ends in .svg or .png.  FAL_EINVAL, with a diagnosis. */
int plot_check_format(const char *file, struct fal_diag *diag);

/* Draws `numbers` with the script share/plots/`kind`.gp into `file`; after an error there
 * is no `file`.  Needs a name that has passed plot_check_format.  FAL_ENOENT (gnuplot or
 * the script is missing), FAL_EIO (gnuplot failed; its last line), FAL_ENOMEM, or an
 * error of fal_cli_write, each with a diagnosis. */
int plot_draw(const char *file, const char *kind, const struct fal_buf *numbers,
	      struct fal_diag *diag);

#endif
