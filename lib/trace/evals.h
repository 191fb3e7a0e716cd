/* Evaluations, as the audit judges them: does what each key said of the test set have
 * another key's word, in part? */
#ifndef FAL_TRACE_EVALS_H
#define FAL_TRACE_EVALS_H

#include "trace/clocks.h"
#include "trace/findings.h"
#include "trace/reader.h"

/* Test tasks, summed; twice: of two keys; alone: to be run by another key, but none was
 * there that answered. */
struct fal_evals {
	uint64_t tasks, twice, alone;
};

/* An `eval` line; one without `keys` is not judged.  0, FAL_EFORMAT, FAL_ELIMIT. */
int fal_evals_line(struct fal_evals *e, struct fal_trace_line *l,
		   const struct fal_trace_job *job, struct fal_findings *f);

#endif
