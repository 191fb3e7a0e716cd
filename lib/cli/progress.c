/* The progress bar. */
#include "cli/progress.h"

#include "cli/cli.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CELLS 30

struct fal_progress
fal_progress_begin(const char *label, uint64_t total, double now)
{
	const char *term = getenv("TERM");
	bool bar = isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
	return (struct fal_progress){ .label = label,
				      .total = total,
				      .out = bar ? stderr : NULL,
				      .colour = fal_cli_colour(stderr),
				      .began = now,
				      .next = now + 1 };
}

void
fal_progress_show(struct fal_progress *p, uint64_t done, double now)
{
	if (p->out == NULL || now < p->next)
		return;
	double part = done < p->total ? (double)done / (double)p->total : 1;
	int full = (int)(part * CELLS);
	char bar[] = "##############################";
	char gap[] = "..............................";

	fprintf(p->out, "\r%s [%s%.*s%s%.*s] %3d %%", p->label,
		p->colour ? "\033[32m" : "", full, bar, p->colour ? "\033[0m" : "",
		CELLS - full, gap, (int)(part * 100));
	if (part > 0)
		fprintf(p->out, ", %.0f s left", (now - p->began) * (1 - part) / part);
	fputs("\033[K", p->out); /* the rest of the line */
	fflush(p->out);
	p->next = now + 0.1;
	p->drawn = true;
}

void
fal_progress_end(struct fal_progress *p)
{
	if (!p->drawn)
		return;
	fputs("\r\033[K", p->out);
	fflush(p->out);
	p->drawn = false;
}
