/* Findings as text. */
#include "trace/findings.h"

#include "base/mem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Bytes of a text; room behind it for how many more there are of its kind. */
enum { TEXT = 400, MORE = 48 };

/* Where the text of another finding of this kind belongs; NULL: nowhere. */
static char *
place(struct fal_findings *f, const char *fmt)
{
	size_t i = 0;
	while (i < f->kinds && f->kind[i].fmt != fmt)
		i++;
	if (FAL_GROW(f->kind, f->kind_cap, i + 1) < 0 ||
	    FAL_GROW(f->text, f->cap, f->n_text + 1) < 0) {
		f->err = FAL_ENOMEM;
		return NULL;
	}
	if (i == f->kinds)
		f->kind[f->kinds++] = (struct fal_findings_kind){ .fmt = fmt };
	if (f->kind[i].n++ >= FAL_FINDINGS_KIND_MAX)
		return NULL;
	char *text = fal_calloc(1, TEXT + MORE);
	if (text == NULL)
		f->err = FAL_ENOMEM;
	else
		f->text[f->kind[i].last = f->n_text++] = text;
	return text;
}

void
fal_finding_v(struct fal_findings *f, const char *of, const char *fmt, va_list ap)
{
	f->n++;
	char *text = f->err == 0 ? place(f, fmt) : NULL;
	if (text == NULL)
		return;
	const size_t at = (size_t)snprintf(text, TEXT, "%s", of);
	vsnprintf(text + at, TEXT - at, fmt, ap);
}

void
fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
	    uint64_t count, const char *fmt, ...)
{
	char of[FAL_TRACE_ROUND_NAME + 64] = "", name[FAL_TRACE_ROUND_NAME];
	int at = 0;
	if (r != NULL)
		at = snprintf(of, sizeof(of), "%s: ", fal_trace_round_name(r, name));
	if (count == 1)
		snprintf(of + at, sizeof(of) - (size_t)at, "task %" PRIu64 ": ", first);
	else if (count > 1)
		snprintf(of + at, sizeof(of) - (size_t)at,
			 "tasks %" PRIu64 "-%" PRIu64 ": ", first, first + count - 1);
	va_list ap;
	va_start(ap, fmt);
	fal_finding_v(f, of, fmt, ap);
	va_end(ap);
}

void
fal_finding_line(struct fal_findings *f, const struct fal_trace_line *l, const char *fmt,
		 ...)
{
	char of[32];
	snprintf(of, sizeof(of), "line %" PRIu64 ": ", l->number);
	va_list ap;
	va_start(ap, fmt);
	fal_finding_v(f, of, fmt, ap);
	va_end(ap);
}

void
fal_findings_end(struct fal_findings *f)
{
	for (size_t i = 0; i < f->kinds && f->err == 0; i++)
		if (f->kind[i].n > FAL_FINDINGS_KIND_MAX)
			snprintf(strchr(f->text[f->kind[i].last], '\0'), MORE,
				 ", and %" PRIu64 " more of this kind",
				 f->kind[i].n - FAL_FINDINGS_KIND_MAX);
}

void
fal_findings_free(struct fal_findings *f)
{
	for (size_t i = 0; i < f->n_text; i++)
		free(f->text[i]);
	free(f->text);
	free(f->kind);
	*f = (struct fal_findings){ 0 };
}
