/* The lines of a policy journal, falcon-policy(5): a chain of changes. */
#ifndef FAL_RUN_JOURNAL_H
#define FAL_RUN_JOURNAL_H

#include "base/buf.h"
#include "base/err.h"
#include "sched/policy.h"
#include "trace/chain.h"

#include <stdbool.h>
#include <stdint.h>

struct fal_journal_line {
	uint64_t clock, version;
	const char *by;
	const struct fal_policy *policy;
};

/* Appends the line, with its newline and its link; `time` is in seconds of the epoch.
 * Where `out` has no memory the chain stays where it was. */
void fal_journal_put(const struct fal_journal_line *l, int64_t time,
		     struct fal_chain *chain, struct fal_buf *out);

/* What is read, and by whom it is wanted; 0 but for the first four. */
struct fal_journal_reading {
	const char *name; /* of the file, for `diag` */
	/* Borrowed for the call, with *chain as it was before the line; a negative return
	 * ends the reading. */
	int (*on_line)(void *arg, const struct fal_journal_line *l);
	void *arg;
	struct fal_chain *chain; /* of all that was read; kept */
	unsigned line;           /* the last one that was looked at, from 1 */
	bool unchained;          /* it is a line, but not the one that follows */
	size_t whole;            /* bytes of the lines that are some, with their ends */
};

/* Hands each line that has an end to on_line.  FAL_EFORMAT, FAL_EINVAL, FAL_ELIMIT: one
 * is no line of a journal, or does not follow, which `diag` (may be NULL) names;
 * FAL_ENOMEM; what on_line returned. */
int fal_journal_read(struct fal_journal_reading *r, const struct fal_buf *text,
		     struct fal_diag *diag);

/* The line at r->line does not chain the one before.  FAL_EINVAL. */
int fal_journal_refuse(struct fal_journal_reading *r, struct fal_diag *diag);

#endif
