/* A progress bar on stderr: only on a terminal, and only for what has taken longer than
 * a second.  Time is an argument.  It is one line, never wider than the terminal: what
 * does not fit is left out, the least important first.
 */
#ifndef FAL_CLI_PROGRESS_H
#define FAL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { FAL_PROGRESS_NOTES = 3 };

struct fal_progress {
	const char *label; /* borrowed until fal_progress_end */
	/* What else there is to say, the most important first; "": nothing.  Borrowed
	 * for each fal_progress_show. */
	const char *note[FAL_PROGRESS_NOTES];
	uint64_t total; /* in any unit; above 0 */
	FILE *out;      /* NULL: shows nothing */
	bool colour;
	double began,
		next; /* seconds: the last without any unit done; the next drawing */
};

/* A bar for `total` units, beginning now.  Shows nothing where stderr is no terminal or
 * a dumb one. */
struct fal_progress fal_progress_begin(const char *label, uint64_t total, double now);

/* `done` units are done at `now`, in seconds of any one clock.  Draws at most ten times
 * a second, as wide as the terminal is then.  The time that is left is told from two
 * seconds on after the last call with none done. */
void fal_progress_show(struct fal_progress *p, uint64_t done, double now);

/* Wipes the bar that was drawn last, if it stands there still, so that the next line
 * starts clean.  fal_cli_err does that itself. */
void fal_progress_end(void);

/* Columns of the terminal `f`; where it does not say, COLUMNS of the environment, else
 * 80. */
size_t fal_cli_columns(FILE *f);
/* The same; 0 where `f` is no terminal. */
size_t fal_cli_width(FILE *f);

#endif
