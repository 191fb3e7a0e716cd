/* The bottom of the audit: the list of findings, bounded by kind; the workers that
 * joined, and the sums of their work. */
#include "trace/audit_priv.h"

#include "base/mem.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

/* ---- findings ------------------------------------------------------------------------
 */

/* Bytes of a text, and of the number of further findings behind it. */
enum { TEXT = 400, MORE = 48 };

static void __attribute__((format(printf, 3, 0)))
finding_add(struct fal_findings *f, const char *subject, const char *fmt, va_list ap)
{
	size_t i = 0;
	f->n++;
	while (i < f->kinds && f->kind[i].fmt != fmt)
		i++;
	if (i == f->kinds) {
		FAL_XGROW(f->kind, f->kind_cap, i + 1);
		f->kind[f->kinds++] = (struct fal_findings_kind){ .fmt = fmt };
	}
	if (f->kind[i].n++ >= FAL_FINDINGS_KIND_MAX)
		return;
	char *text = fal_xcalloc(1, TEXT + MORE);
	const size_t at = (size_t)snprintf(text, TEXT, "%s", subject);
	vsnprintf(text + at, TEXT - at, fmt, ap);
	FAL_XGROW(f->text, f->cap, f->n_text + 1);
	f->kind[i].last = f->n_text;
	f->text[f->n_text++] = text;
}

void
fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
	    uint64_t count, const char *fmt, ...)
{
	char subject[FAL_TRACE_ROUND_NAME + 64] = "", name[FAL_TRACE_ROUND_NAME];
	int at = 0;
	if (r != NULL)
		at = snprintf(subject, sizeof(subject),
			      "%s: ", fal_trace_round_name(r, name));
	if (count == 1)
		snprintf(subject + at, sizeof(subject) - (size_t)at, "task %ju: ", first);
	else if (count > 1)
		snprintf(subject + at, sizeof(subject) - (size_t)at,
			 "tasks %ju-%ju: ", first, first + count - 1);
	va_list ap;
	va_start(ap, fmt);
	finding_add(f, subject, fmt, ap);
	va_end(ap);
}

void
fal_finding_of_line(struct fal_findings *f, const struct fal_trace_line *l,
		    const char *fmt, ...)
{
	char subject[32];
	snprintf(subject, sizeof(subject), "line %ju: ", l->number);
	va_list ap;
	va_start(ap, fmt);
	finding_add(f, subject, fmt, ap);
	va_end(ap);
}

void
fal_audit_add_finding(struct fal_audit *a, const char *fmt, ...)
{
	va_list ap;
	va_start(ap, fmt);
	finding_add(&a->findings, "", fmt, ap);
	va_end(ap);
}

void
fal_findings_end(struct fal_findings *f)
{
	for (size_t i = 0; i < f->kinds; i++)
		if (f->kind[i].n > FAL_FINDINGS_KIND_MAX)
			snprintf(strchr(f->text[f->kind[i].last], '\0'), MORE,
				 ", and %ju more of this kind",
				 f->kind[i].n - FAL_FINDINGS_KIND_MAX);
}

/* ---- workers -------------------------------------------------------------------------
 */

struct audit_worker *
fal_audit_worker(const struct fal_audit *a, uint64_t id)
{
	const size_t *at = fal_ids_get(&a->workers.ids, id);
	return at != NULL ? &a->workers.v[*at] : NULL;
}

void
fal_audit_add_figure(struct fal_audit *a, const struct fal_trace_round *r, uint64_t id,
		     enum fal_figure figure, uint64_t tasks, bool possible)
{
	struct audit_worker *w = fal_audit_worker(a, id);
	/* Update lines may be late by as many updates as are under way. */
	const uint64_t early =
		1 + a->rules.rule.slack + (a->rules.traits.shared ? 0 : a->workers.n);
	if (w == NULL)
		return;
	(possible || r->end == FAL_END_ABANDONED ? w->possible : w->certain)[figure] +=
		tasks;
	if (!w->is_here && w->left_version + early < r->version)
		fal_finding(&a->findings, r, 0, 0,
			    "worker %ju left when version %ju was the newest", id,
			    w->left_version);
}

bool
fal_audit_add_range(struct fal_trace_line *l, struct fal_intervals *s, uint64_t begin,
		    uint64_t end, uint64_t *twice)
{
	const int overlap = fal_intervals_add(s, begin, end, twice);
	if (overlap < 0)
		fal_trace_fail(l, overlap, "%s", fal_strerror(overlap));
	return overlap == 1;
}
