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
	uint64_t lines, version; /* evaluations; the version of the last one */
	uint64_t first, odd;     /* of the first one; of one that is no multiple of it */
	double accuracy, loss;   /* of the last one */
	struct fal_evaluation {
		uint64_t version;
		double accuracy;
	} *all; /* `lines` of them */
	size_t cap;
	bool plain;   /* version v is that after v clocks */
	bool regular; /* and every so many are evaluated, if any */
};

void fal_evals_free(struct fal_evals *e);
/* An `eval` line.  0, FAL_EFORMAT, FAL_ELIMIT, FAL_ENOMEM. */
int fal_evals_line(struct fal_evals *e, struct fal_trace_line *l,
		   const struct fal_trace_job *job, struct fal_findings *f);
/* A `done` line: it tells of the last one. */
int fal_evals_done(const struct fal_evals *e, struct fal_trace_line *l,
		   struct fal_findings *f);

#endif
