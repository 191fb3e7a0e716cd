/* What the audit keeps of contributions that were not believed: until its round has
 * ended, such a one must have been fenced. */
#ifndef FAL_TRACE_DOUBTS_H
#define FAL_TRACE_DOUBTS_H

#include "trace/findings.h"
#include "trace/people.h"
#include "trace/reader.h"
#include "trace/round.h"

enum fal_verdict { FAL_WITNESSED, FAL_BELIEVED, FAL_BOUNDED, FAL_REFUTED, FAL_VERDICTS };

/* {0} is empty and valid. */
struct fal_doubts {
	struct fal_tainted {
		uint64_t round;
		uint32_t id, seq;
		bool checked, refuted;
		bool again; /* its round was done again, in part */
	} *v;
	size_t n, cap;
	uint64_t verdicts[FAL_VERDICTS];
};

void fal_doubts_free(struct fal_doubts *d);

/* What a `check` line is judged by. */
struct fal_doubts_env {
	uint64_t blocks; /* of the job */
	bool lawful;     /* the law covers the scheme */
	struct fal_people *people;
};

/* A `check` or `again` line.  0, FAL_EFORMAT, FAL_ELIMIT, FAL_ENOMEM. */
int fal_doubts_check(struct fal_doubts *d, struct fal_trace_line *l,
		     const struct fal_doubts_env *env, struct fal_findings *f);
int fal_doubts_again(struct fal_doubts *d, struct fal_trace_line *l,
		     const struct fal_people *people, struct fal_findings *f);
/* Whatever was said of rounds that have not ended does not count any more. */
void fal_doubts_forget(struct fal_doubts *d);
/* The ledger line of round `r`: nothing more will be said of it. */
void fal_doubts_round(struct fal_doubts *d, struct fal_trace_line *l,
		      const struct fal_trace_round *r, struct fal_findings *f);

#endif
