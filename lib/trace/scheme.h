/* The scheme of a job or policy line: as much of falcon-policy(5) as an audit judges by.
 */
#ifndef FAL_TRACE_SCHEME_H
#define FAL_TRACE_SCHEME_H

#include "trace/reader.h"

enum fal_trace_scheme_id {
	FAL_TRACE_EPSP, /* bsp, epsp: rounds are shared by all workers */
	FAL_TRACE_ASP,
	FAL_TRACE_SSP,
	FAL_TRACE_FLEXRR,
	FAL_TRACE_SYNCOPT, /* also ssp:0, flexrr:0 */
	FAL_TRACE_CONSGD,
	FAL_TRACE_DYNSGD,
	FAL_TRACE_WBSP,
	FAL_TRACE_GROUPS
};

struct fal_trace_scheme {
	enum fal_trace_scheme_id id;
	uint64_t slack;  /* epsp, ssp, flexrr, consgd, dynsgd */
	bool delta;      /* its rounds change weights, and do not sum up gradients */
	bool by_updates; /* dynsgd,staleness=updates */
	uint64_t local;  /* groups,mode=delta: most rounds of a group in an update, else 0
			  */
	double lambda;   /* consgd; 0: 1 / workers */
};

/* Reads NAME[:N][,KEY=VALUE...]; keys that the audit does not need are skipped.
 * Returns 0 or l->err: FAL_EINVAL: no such scheme, or not its number. */
int fal_trace_scheme_read(struct fal_trace_line *l, const char *text,
			  struct fal_trace_scheme *out);

#endif
