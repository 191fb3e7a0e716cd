/* What liars say, and what comes of it. */
#ifndef LIES_H
#define LIES_H

#include "cluster.h"

/* What a liar makes of a message, in `out`; false: it is sent as it is.  `lied`: whether
 * this one has lied in words. */
bool lie_of(const struct plan *p, enum lie lie, bool *lied, const struct fal_buf *msg,
	    struct fal_buf *out);

/* Does the trace (n bytes) say that a liar's word was believed: a need, as it stands or
 * bounded, or that a task has no gradient?  Or that it has one which has none? */
enum belief { BELIEF_NO, BELIEF_YES, BELIEF_MADE_UP };
enum belief liar_believed(const struct plan *p, const char *trace, size_t n);

#endif
