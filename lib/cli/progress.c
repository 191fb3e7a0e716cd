/* The terminal and the progress bar. */
#include "cli/progress.h"

#include "base/err.h"
#include "base/parse.h"
#include "cli/cli.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* The stream whose last line is a bar; NULL: none.  A process has one terminal, and so
 * one such variable. */
static _Atomic(FILE *) drawn;

enum { CELLS = 30, CELLS_MIN = 10 };

struct fal_progress
fal_progress_begin(const char *label, uint64_t total, uint64_t now)
{
	const char *term = getenv("TERM");
	const char *no_colour = getenv("NO_COLOR"); /* https://no-color.org */
	bool bar = isatty(STDERR_FILENO) && term != NULL && strcmp(term, "dumb") != 0;
	return (struct fal_progress){ .label = label,
				      .total = total,
				      .out = bar ? stderr : NULL,
				      .colour = no_colour == NULL || *no_colour == '\0',
				      .began = 1e-9 * (double)now,
				      .next = 1e-9 * (double)now + 1 };
}

/* COLUMNS of the environment; 0: not set, or no number. */
static size_t
environment_columns(void)
{
	uint64_t n;
	const char *columns = getenv("COLUMNS");
	const bool is_number =
		columns != NULL && fal_parse_u64(columns, 1, UINT16_MAX, &n) == FAL_OK;
	return is_number ? (size_t)n : 0;
}

static size_t
terminal_columns(FILE *f)
{
	struct winsize size;
	if (ioctl(fileno(f), TIOCGWINSZ, &size) == 0 && size.ws_col > 0)
		return size.ws_col;
	const size_t columns = environment_columns();
	return columns > 0 ? columns : 80;
}

size_t
fal_cli_width(FILE *f)
{
	if (isatty(fileno(f)))
		return terminal_columns(f);
	return f == stdout ? environment_columns() : 0;
}

/* Bytes of the first `most` characters of `s`, and their number. */
static size_t
prefix_bytes(const char *s, size_t most, size_t *chars)
{
	size_t n = 0;
	*chars = 0;
	for (; s[n] != '\0'; n++) {
		bool first = ((unsigned char)s[n] & 0xc0) != 0x80;
		if (first && *chars == most)
			break;
		*chars += first;
	}
	return n;
}

/* The parts of a line that its columns have room for. */
struct layout {
	size_t label; /* bytes */
	size_t cells;
	bool percentage, left, note[FAL_PROGRESS_NOTES];
};

/* Gives room in the order of importance: the percentage, the label (half the line at
 * most), the time left, a short bar, the notes; then the bar grows. */
static struct layout
progress_layout(const struct fal_progress *p, size_t columns, const char *left)
{
	struct layout l = { 0 };
	size_t chars, room = columns - 1; /* in the last column a cursor may wrap */
	if (room < 5)
		return l;
	l.percentage = true;
	room -= 5; /* "100 %" */
	l.label = prefix_bytes(p->label, room / 2, &chars);
	room -= l.label > 0 ? chars + 1 : 0;
	l.left = *left != '\0' && strlen(left) <= room;
	room -= l.left ? strlen(left) : 0;
	if (room < CELLS_MIN + 3)
		return l;
	l.cells = CELLS_MIN;
	room -= CELLS_MIN + 3; /* "[] " */
	for (size_t i = 0; i < FAL_PROGRESS_NOTES; i++) {
		const char *note = p->note[i] != NULL ? p->note[i] : "";
		prefix_bytes(note, SIZE_MAX, &chars);
		l.note[i] = *note != '\0' && chars + 2 <= room;
		room -= l.note[i] ? chars + 2 : 0;
	}
	l.cells += room < CELLS - CELLS_MIN ? room : CELLS - CELLS_MIN;
	return l;
}

void
fal_progress_show(struct fal_progress *p, uint64_t done, uint64_t at)
{
	const double now = 1e-9 * (double)at;
	if (done == 0) /* the work has not begun */
		p->began = now;
	if (p->out == NULL || now < p->next)
		return;
	double part = done < p->total ? (double)done / (double)p->total : 1;
	char left[48] = "";
	if (now - p->began >= 2) /* the first units are not typical */
		snprintf(left, sizeof(left), ", %.0f s left",
			 (now - p->began) * (1 - part) / part);
	const struct layout l = progress_layout(p, terminal_columns(p->out), left);
	const int full = (int)(part * (double)l.cells);
	char bar[] = "##############################";
	char gap[] = "..............................";

	fprintf(p->out, "\r%.*s%s", (int)l.label, p->label, l.label > 0 ? " " : "");
	if (l.cells > 0)
		fprintf(p->out, "[%s%.*s%s%.*s] ", p->colour ? "\033[32m" : "", full, bar,
			p->colour ? "\033[0m" : "", (int)l.cells - full, gap);
	if (l.percentage)
		fprintf(p->out, "%3d %%%s", (int)(part * 100), l.left ? left : "");
	for (size_t i = 0; i < FAL_PROGRESS_NOTES; i++)
		if (l.note[i])
			fprintf(p->out, ", %s", p->note[i]);
	fputs("\033[K", p->out); /* the rest of the line */
	fflush(p->out);
	p->next = now + 0.1;
	drawn = p->out;
}

void
fal_progress_wipe(void)
{
	FILE *f = atomic_exchange(&drawn, NULL);
	if (f == NULL)
		return;
	fputs("\r\033[K", f);
	fflush(f);
}
