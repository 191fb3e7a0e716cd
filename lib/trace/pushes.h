/* What versions of a quorum are made of: the pushes of groups, each by its samples.
 * Private to lib/trace; the rules are those of falcon-trace(5), section AUDIT.
 */
#ifndef FAL_TRACE_PUSHES_H
#define FAL_TRACE_PUSHES_H

#include "trace/findings.h"
#include "trace/reader.h"
#include "trace/rules.h"

/* {0} is empty and valid. */
struct fal_pushes {
	struct fal_pushed {
		uint64_t group, samples, rounds;
		double weight; /* of its line; 0: it has none */
	} *v;
	size_t n, cap;
	uint64_t groups;        /* that there were; 0: the version is of no quorum */
	double outer, momentum; /* of the step; 0: its line has none */
};

/* Of a version: what its line says.  0, the line's error, or FAL_ENOMEM. */
int fal_pushes_read(struct fal_pushes *p, struct fal_trace_line *l);
/* One of its rounds.  0 or FAL_ENOMEM. */
int fal_pushes_round(struct fal_pushes *p, const struct fal_trace_round *r);
/* That was the last one. */
void fal_pushes_judge(const struct fal_pushes *p, const struct fal_rule *rule,
		      uint64_t version, struct fal_findings *f);
void fal_pushes_free(struct fal_pushes *p);

#endif
