/* Findings as text. */
#include "trace/findings.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static void
keep(struct fal_findings *f, const char *text)
{
	f->n++;
	if (f->err != 0 || f->n_text == FAL_FINDINGS_TEXTS_MAX)
		return;
	char *copy = fal_strdup(text);
	if (copy == NULL || FAL_GROW(f->text, f->cap, f->n_text + 1) < 0) {
		free(copy);
		f->err = FAL_ENOMEM;
		return;
	}
	f->text[f->n_text++] = copy;
}

void
fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
	    uint64_t count, const char *fmt, ...)
{
	char text[400], name[FAL_TRACE_ROUND_NAME];
	size_t at = 0;
	if (r != NULL)
		at += (size_t)snprintf(text, sizeof(text),
				       "%s: ", fal_trace_round_name(r, name));
	if (count == 1)
		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "task %llu: ", (unsigned long long)first);
	else if (count > 1)
		at += (size_t)snprintf(text + at, sizeof(text) - at,
				       "tasks %llu-%llu: ", (unsigned long long)first,
				       (unsigned long long)(first + count - 1));
	va_list ap;
	va_start(ap, fmt);
	vsnprintf(text + at, sizeof(text) - at, fmt, ap);
	va_end(ap);
	keep(f, text);
}

void
fal_findings_free(struct fal_findings *f)
{
	for (size_t i = 0; i < f->n_text; i++)
		free(f->text[i]);
	free(f->text);
	*f = (struct fal_findings){ 0 };
}
