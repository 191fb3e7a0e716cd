/* The policy journal beside a trace: what it says of each change, and what the trace
 * says. falcon-trace(5), section AUDIT. */
#ifndef FALCON_STAT_JOURNAL_H
#define FALCON_STAT_JOURNAL_H

#include "base/buf.h"
#include "trace/audit.h"
#include "trace/reader.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Policies, in the order of a trace or of a journal; {0}: none. */
struct stat_policies {
	struct stat_policy {
		uint64_t clock; /* from which it holds */
		char *by,
			*text; /* who made it; all of it, as falcon-policy(5) writes it */
	} *v;
	size_t n, cap;
	bool resumed; /* since the last one */
};

void stat_policies_free(struct stat_policies *s);

/* Takes a line of a trace.  What was resumed says again what held by then, which is left
 * out.  FAL_ENOMEM; or l->err. */
int stat_policies_line(struct stat_policies *s, struct fal_trace_line *l);

/* Adds to the findings of `a` where the journal, the text of policy.jsonl
 * (empty: there may be none), and what a trace has are not the same.  `end`: that has the
 * end of its job, and says that the journal ends with this link; NULL: it has not, and
 * the journal may know of changes that it did not come to.
 * FAL_ENOMEM. */
int stat_journal_audit(const struct stat_policies *trace, const struct fal_buf *text,
		       const char *end, struct fal_audit *a);

#endif
