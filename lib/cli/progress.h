/* A progress bar on stderr: only on a terminal, and only for what has taken longer than
 * a second.  Time is an argument.
 */
#ifndef FAL_CLI_PROGRESS_H
#define FAL_CLI_PROGRESS_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

struct fal_progress {
	const char *label; /* borrowed until fal_progress_end */
	uint64_t total;    /* in any unit; above 0 */
	FILE *out;         /* NULL: shows nothing */
	bool colour;
	double began, next; /* seconds: the first call; the next drawing */
	bool drawn;
};

/* A bar for `total` units, beginning now.  Shows nothing where stderr is no terminal or
 * a dumb one. */
struct fal_progress fal_progress_begin(const char *label, uint64_t total, double now);

/* `done` units are done at `now`, in seconds of any one clock.  Draws at most ten times
 * a second. */
void fal_progress_show(struct fal_progress *p, uint64_t done, double now);

/* Wipes the bar, so that the next line on stderr starts clean. */
void fal_progress_end(struct fal_progress *p);

#endif
