/* The findings of an audit: what is wrong, and with which task of which round.
 * Private to lib/trace. */
#ifndef FAL_TRACE_FINDINGS_H
#define FAL_TRACE_FINDINGS_H

#include "trace/round.h"

#include <stdarg.h>

/* Findings of one kind, which is their format, that are kept as text; further ones are
 * only counted. */
#define FAL_FINDINGS_KIND_MAX 20

/* {0} is empty and valid. */
struct fal_findings {
	uint64_t n; /* all of them */
	char **text;
	size_t n_text, cap;
	struct fal_findings_kind {
		const char *fmt;
		uint64_t n;  /* all of them */
		size_t last; /* the place in `text` of the last one */
	} *kind;
	size_t kinds, kind_cap;
	int err; /* 0 or FAL_ENOMEM, sticky */
};

/* Adds "clock 7: tasks 3-4: …", or, for a round that is not just a clock, "round 9 of
 * clock 7: …".  `r` NULL: without; count 0: without tasks. */
void fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
		 uint64_t count, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
/* The same, of a line: "line 7: ". */
void fal_finding_line(struct fal_findings *f, const struct fal_trace_line *l,
		      const char *fmt, ...) __attribute__((format(printf, 3, 4)));
/* The same, with another text before it. */
void fal_finding_v(struct fal_findings *f, const char *of, const char *fmt, va_list ap)
	__attribute__((format(printf, 3, 0)));
/* The last text of each kind tells how many more there are. */
void fal_findings_end(struct fal_findings *f);
void fal_findings_free(struct fal_findings *f);

#endif
