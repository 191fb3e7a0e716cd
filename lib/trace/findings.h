/* The findings of an audit: what is wrong, and with which task of which round.
 * Private to lib/trace. */
#ifndef FAL_TRACE_FINDINGS_H
#define FAL_TRACE_FINDINGS_H

#include "trace/round.h"

/* Findings kept as text; further ones are only counted. */
#define FAL_FINDINGS_TEXTS_MAX ((size_t)1000)

/* {0} is empty and valid. */
struct fal_findings {
	uint64_t n;  /* all of them */
	char **text; /* the first n_text */
	size_t n_text, cap;
	int err; /* 0 or FAL_ENOMEM, sticky */
};

/* Adds "clock 7: tasks 3-4: …", or, for a round that is not just a clock, "round 9 of
 * clock 7: …".  `r` NULL: without; count 0: without tasks. */
void fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
		 uint64_t count, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));
void fal_findings_free(struct fal_findings *f);

#endif
