/* A progress bar on stderr: only on a terminal, and only after the first second.  Time is
 * an argument.  The bar is one line, never wider than the terminal: the least important
 * parts are left out first.
 */
#ifndef FAL_CLI_PROGRESS_H
#define FAL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

enum { FAL_PROGRESS_NOTES = 3 };

struct fal_progress {
	const char *label; /* borrowed until fal_progress_wipe */
	/* Further texts, the most important first; "": none.  Borrowed for each
	 * fal_progress_show. */
	const char *note[FAL_PROGRESS_NOTES];
	uint64_t total; /* in any unit; above 0 */
	FILE *out;      /* NULL: shows nothing */
	bool colour;
	double began; /* seconds: the last call without any unit done */
	double next;  /* seconds: the next drawing */
};

/* A bar for `total` units, from now on.  Shows nothing if stderr is no terminal or a dumb
 * one. */
struct fal_progress fal_progress_begin(const char *label, uint64_t total, uint64_t now);

/* `done` units are done `at`, in ns of any one clock.  Draws at most ten times a
 * second, in the terminal's width.  Shows the time left from two seconds after the last
 * call with no unit done. */
void fal_progress_show(struct fal_progress *p, uint64_t done, uint64_t at);

/* Wipes the bar, if it is the last line, so that the next line starts clean.  fal_cli_err
 * does so itself. */
void fal_progress_wipe(void);

/* Columns of the terminal `f`, or, if the terminal does not tell, COLUMNS of the
 * environment, or 80.  For a stdout that is no terminal, COLUMNS, too: watch(1) sets
 * COLUMNS, and reads from a pipe.  0: no limit. */
size_t fal_cli_width(FILE *f);

#endif
