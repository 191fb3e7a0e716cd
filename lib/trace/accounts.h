/* What each worker did, by the ledger and by its own `clock` lines: the two must agree.
 *
 * A worker's figures come when a round of its has ended, and all that are due when it
 * leaves or the job is done.  So what they add up to lies, then, between the rounds that
 * have ended and these with those that were open or abandoned; and the clock lines of
 * shared rounds count up by one, up to the last one for whoever is here when the job is
 * done: who has none of that is gone, and its `leave` is missing.  Private to lib/trace;
 * the rules are those of falcon-trace(5), section AUDIT.
 */
#ifndef FAL_TRACE_ACCOUNTS_H
#define FAL_TRACE_ACCOUNTS_H

#include "base/spans.h"
#include "trace/findings.h"
#include "trace/people.h"

enum { FAL_FIGURES = 6 }; /* share, done, in, out, cloned, lost */

/* {0} is empty and valid. */
struct fal_accounts {
	struct fal_account {
		uint64_t told[FAL_FIGURES]; /* in clock lines */
		/* In ledger lines: what it must have told of, and what it may have. */
		uint64_t sure[FAL_FIGURES], maybe[FAL_FIGURES];
		bool begun;   /* it has had a clock line */
		double spent; /* seconds, told in those behind the first */
		uint64_t due; /* the clock of its next line, if it has had one; or 0 */
		struct fal_spans seqs; /* of its contributions */
	} *v;                          /* by the worker's place in fal_people */
	size_t n, cap;
	uint64_t ran_on; /* the version that the last round ran on */
	bool loose; /* workers of some rounds may join them when others have accounted */
	bool lost;  /* the coordinator was restarted: what it was told is */
	bool ahead; /* workers may have accounted before their round ended */
	bool gappy; /* rounds were not always those of their clocks */
};

void fal_accounts_free(struct fal_accounts *a);

/* What a ledger line is judged by. */
struct fal_accounts_env {
	const struct fal_people *people;
	const struct fal_trace_round *round;
	uint64_t
		early; /* versions by which it may be granted before its own is told of */
};

/* Each of them returns 0, or l->err: FAL_EFORMAT, FAL_ELIMIT, FAL_ENOMEM. */

/* A ledger line: who is named was here, no contribution is of two rounds. */
int fal_accounts_ledger(struct fal_accounts *a, struct fal_trace_line *l,
			const struct fal_accounts_env *env, struct fal_findings *f);
/* A clock line. */
int fal_accounts_clock(struct fal_accounts *a, struct fal_trace_line *l,
		       const struct fal_people *p, struct fal_findings *f);
/* The worker leaves. */
int fal_accounts_leave(struct fal_accounts *a, struct fal_trace_line *l,
		       const struct fal_people *p, struct fal_findings *f);
/* The job of so many clocks is done. */
int fal_accounts_done(struct fal_accounts *a, struct fal_trace_line *l,
		      const struct fal_people *p, uint64_t clocks,
		      struct fal_findings *f);

#endif
