/* What keys that compute the same bits said of a task, and not the same: a `verify` line.
 */
#ifndef FAL_TRACE_WORDS_H
#define FAL_TRACE_WORDS_H

#include "trace/findings.h"
#include "trace/people.h"
#include "trace/reader.h"

/* {0} is empty and valid. */
struct fal_words {
	uint64_t wrong;     /* tasks of which two keys contradicted a third one, */
	uint64_t undecided; /* … and of which nobody could decide */
};

/* The line is judged: words of different keys, and a verdict that follows from them.  0,
 * FAL_EFORMAT, FAL_ELIMIT. */
int fal_words_line(struct fal_words *w, struct fal_trace_line *l,
		   const struct fal_people *people, struct fal_findings *f);

#endif
