/* What group servers have given to the coordinator above them, by their traces: there it
 * stands as the work of one worker, and here it is held against the ledger (falcon-ps
 * --upstream; falcon-trace(5), AUDIT).
 *
 * Lines in, findings out.  Memory is bounded: what was given is kept as runs.
 */
#ifndef FAL_TRACE_BELOW_H
#define FAL_TRACE_BELOW_H

#include "trace/findings.h"
#include "trace/people.h"

struct fal_below; /* opaque */

/* NULL: out of memory. */
struct fal_below *fal_below_new(void);
void fal_below_free(struct fal_below *b); /* may be NULL */

/* A server begins, ends: all traces between the two are of its starts. */
void fal_below_server(struct fal_below *b);
void fal_below_server_end(struct fal_below *b);
/* A trace begins, ends: after its last line `end` counts what has no end as such; one
 * without a line as that of a group which the server's other traces tell of. */
void fal_below_begin(struct fal_below *b);
void fal_below_end(struct fal_below *b);
/* Takes the next line of it; `below` is the struct fal_below, so this is an on_line of
 * fal_trace_reader_new.  What is not a group server's leaves nothing.  Returns 0 or
 * l->err: FAL_EFORMAT, FAL_EINVAL: of another job than the trace before; FAL_ELIMIT,
 * FAL_ENOMEM. */
int fal_below_line(void *below, struct fal_trace_line *l);

/* What was found of the work of groups in a trace above. */
struct fal_below_sums {
	uint64_t tasks;   /* theirs, and given by them */
	uint64_t unknown; /* theirs, but their trace has no end, and these not */
};

/* The ledger line of the trace above: every task that a group's contribution has there
 * was given by that group.  Findings are not errors; 0 or l->err. */
int fal_below_ledger(const struct fal_below *b, struct fal_trace_line *l,
		     const struct fal_trace_round *r, const struct fal_people *p,
		     struct fal_below_sums *sums, struct fal_findings *f);

#endif
