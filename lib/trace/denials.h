/* What the audit keeps of tasks that make no finite result, as workers say: until they
 * have ended. */
#ifndef FAL_TRACE_DENIALS_H
#define FAL_TRACE_DENIALS_H

#include "trace/findings.h"
#include "trace/people.h"
#include "trace/reader.h"
#include "trace/round.h"

/* {0} is empty and valid. */
struct fal_denials {
	struct fal_denial {
		uint64_t clock, task;
		uint32_t id; /* who says so */
	} *v;
	size_t n, cap;
	uint64_t said; /* in all */
	bool diverged; /* one key alone is waited for: `lone` */
	uint32_t lone;
};

void fal_denials_free(struct fal_denials *d);

/* A `nonfinite` line: somebody who is here says so of a task that the job has.  An
 * `alone` line: it has said so.  0, FAL_EFORMAT, FAL_ELIMIT, FAL_ENOMEM. */
int fal_denials_line(struct fal_denials *d, struct fal_trace_line *l,
		     const struct fal_trace_job *job, const struct fal_people *people,
		     struct fal_findings *f);
/* A `diverged` line: who says so has joined, and is waited for no longer when it was.  0,
 * FAL_EFORMAT. */
int fal_denials_diverged(struct fal_denials *d, struct fal_trace_line *l,
			 const struct fal_trace_job *job, const struct fal_people *people,
			 struct fal_findings *f);
/* The round's ledger line: of what it skipped somebody has said so. */
void fal_denials_skipped(struct fal_denials *d, struct fal_trace_line *l,
			 const struct fal_trace_round *r, struct fal_findings *f);
/* The round has ended. */
void fal_denials_round(struct fal_denials *d, const struct fal_trace_round *r);

#endif
