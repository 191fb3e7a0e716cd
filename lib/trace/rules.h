/* What each scheme promises of its rounds and versions, judged from the trace.
 *
 * Owns: which version a round may run on, who it may belong to, what an update may be
 * made of, how stale it may be.  What cannot be told from a trace is left alone: who
 * holds which task is judge.h's, which task ends when is cover.h's.  Private to
 * lib/trace; the rules are those of falcon-trace(5), section AUDIT.
 */
#ifndef FAL_TRACE_RULES_H
#define FAL_TRACE_RULES_H

#include "sched/traits.h"
#include "trace/findings.h"
#include "trace/scheme.h"

/* {0} with a scheme is the beginning of a job. */
struct fal_rules {
	struct fal_rule rule;
	struct fal_traits is; /* of it */
	bool all_said;        /* FAL_AUDIT_PARTS is demanded */
	uint64_t base;        /* the newest version when the scheme began */
	uint64_t applied;     /* rounds since */
	/* dynsgd by version: the ranks given so far in its open slots. */
	struct fal_slot {
		uint64_t slot, rank;
	} *slot;
	size_t slots, cap;
	uint64_t newest; /* slot */
};

/* Another scheme holds from now on, `newest` being the newest version. */
void fal_rules_begin(struct fal_rules *s, const struct fal_rule *rule, uint64_t newest);
void fal_rules_free(struct fal_rules *s);

/* The version that an applied round of shared rounds must have run on. */
uint64_t fal_rules_version(const struct fal_rules *s);

/* Judges a round that has ended while `newest` was the newest version.  0 or
 * FAL_ENOMEM. */
int fal_rules_round(struct fal_rules *s, const struct fal_trace_round *r, uint64_t newest,
		    struct fal_findings *f);

/* True if an update has the rounds of one group only, while those of others wait. */
bool fal_rules_by_group(const struct fal_rules *s);

/* Judges that round r became a part of an update. */
struct fal_rules_update {
	uint64_t version;
	size_t rounds, at; /* it is made of so many; r is number `at` of them, from 0 */
	/* the first, of a quorum that of its group: its group, the version it ran on;
	 * which one of those from there r is, from 1 */
	uint64_t group, model, local;
	double weight;          /* 0: it has none */
	double divisor;         /* the same */
	uint64_t clock_samples; /* of r's clock, but for those that r has skipped */
};
void fal_rules_update(const struct fal_rules *s, const struct fal_trace_round *r,
		      const struct fal_rules_update *u, struct fal_findings *f);

/* Judges the divisor of an update whose rounds, r the last one of them, have so many
 * samples together. */
void fal_rules_divisor(const struct fal_rules *s, const struct fal_trace_round *r,
		       const struct fal_rules_update *u, uint64_t samples,
		       struct fal_findings *f);

#endif
