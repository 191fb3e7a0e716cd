/* A picture by gnuplot: a script in memory, run by the gnuplot on PATH, and the look that
 * all pictures share.
 *
 * Places on the picture are pixels from its left and top; it is GNUPLOT_WIDTH wide.
 */
#ifndef FALCON_PROJ_GNUPLOT_H
#define FALCON_PROJ_GNUPLOT_H

#include "base/buf.h"
#include "base/err.h"

enum {
	GNUPLOT_WIDTH = 900,
	GNUPLOT_FONT = 16,  /* pixels */
	GNUPLOT_SMALL = 14, /* pixels; no text is smaller */
	GNUPLOT_CHAR = 9    /* pixels that a character takes, about */
};

/* Colours that the colour-blind tell apart (Okabe and Ito 2008). */
#define GNUPLOT_BLACK "#000000"
#define GNUPLOT_ORANGE "#E69F00"
#define GNUPLOT_SKY "#56B4E9"
#define GNUPLOT_GREEN "#009E73"
#define GNUPLOT_BLUE "#0072B2"
#define GNUPLOT_VERMILION "#D55E00"
#define GNUPLOT_PURPLE "#CC79A7"
#define GNUPLOT_GREY "#777777"

struct gnuplot {
	const char *file;
	unsigned height;    /* of the picture, pixels */
	struct fal_buf out; /* the script; its error is sticky */
};

/* Whether the name of `file` ends in a format that can be drawn.  FAL_EINVAL: no, with a
 * diagnosis that says which can. */
int gnuplot_format(const char *file, struct fal_diag *diag);

/* Begins the script of a picture in a format of gnuplot_format.  `file` is kept. */
void gnuplot_begin(struct gnuplot *g, const char *file, unsigned height);

/* Script text. */
void gnuplot_put(struct gnuplot *g, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* `text` as a string of the script that stands for itself and nothing else: at most
 * `most` characters of it, the last an ellipsis if there are more; '?' for control
 * characters, and for all that is not ASCII where the whole is not UTF-8. */
void gnuplot_quote(struct gnuplot *g, const char *text, size_t most);
/* The characters that gnuplot_quote puts. */
size_t gnuplot_width(const char *text, size_t most);
/* A line of text; `style` is further script, such as "center font ',14'". */
void gnuplot_text(struct gnuplot *g, double x, double y, const char *style,
		  const char *fmt, ...) __attribute__((format(printf, 5, 6)));
/* The rectangle that what is plotted next fills, in pixels. */
void gnuplot_area(struct gnuplot *g, double left, double right, double top,
		  double bottom);
/* An entry of a legend: a rectangle of this style and its text.  gnuplot's own legends
 * are laid out by guesses at the width of text. */
void gnuplot_swatch(struct gnuplot *g, double x, double y, const char *style,
		    const char *text);

/* Runs the script, makes `file` the picture, and frees the script.  Nothing is left
 * behind when it fails: FAL_ENOENT (no gnuplot), FAL_EIO (it failed, with its last line),
 * FAL_ENOMEM, or those of fal_cli_write, each with a diagnosis. */
int gnuplot_end(struct gnuplot *g, struct fal_diag *diag);

#endif
