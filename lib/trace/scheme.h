/* The scheme of a job or policy line, as an audit judges by it. */
#ifndef FAL_TRACE_SCHEME_H
#define FAL_TRACE_SCHEME_H

#include "sched/rule.h"
#include "trace/reader.h"

/* Reads a rule.  Returns 0 or l->err: FAL_EINVAL: no such scheme, key or value. */
int fal_trace_scheme_read(struct fal_trace_line *l, const char *text,
			  struct fal_rule *out);

#endif
