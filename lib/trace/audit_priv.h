/* Shared by the files of the audit: findings, and the calls from file to file.
 *
 *	audit.c    all lines: workers, tasks that have ended, versions, schemes
 *	ledger.c   one round: was every task of it added exactly once?
 *	schemes.c  the promises of each scheme about its rounds and versions
 */
#ifndef FAL_TRACE_AUDIT_PRIV_H
#define FAL_TRACE_AUDIT_PRIV_H

#include "sched/policy.h"
#include "trace/audit.h"
#include "trace/reader.h"

/* ---- findings: what is wrong, and with which task of which round ---------------------
 */

/* Findings of one kind, which is their format, that are kept as text; further ones are
 * only counted. */
#define FAL_FINDINGS_KIND_MAX 20

/* {0} is empty and valid. */
struct fal_findings {
	uint64_t n; /* all of them */
	char **text;
	size_t n_text, cap;
	struct fal_findings_kind {
		const char *fmt;
		uint64_t n;  /* all of them */
		size_t last; /* the place in `text` of the last one */
	} *kind;
	size_t kinds, kind_cap;
};

/* Adds "clock 7: tasks 3-4: …", or, for a round that is not just a clock, "round 9 of
 * clock 7: …".  `r` NULL: without; count 0: without tasks. */
void fal_finding(struct fal_findings *f, const struct fal_trace_round *r, uint64_t first,
		 uint64_t count, const char *fmt, ...)
	__attribute__((format(printf, 5, 6)));

/* ---- ledger.c ------------------------------------------------------------------------
 */

/* Limits of one ledger line, so that judging it stays cheap. */
#define FAL_JUDGE_EVENTS_MAX ((size_t)1 << 22) /* sum of all its counts */
#define FAL_JUDGE_CONTRIBS_MAX ((size_t)1 << 16)
#define FAL_JUDGE_TASK_EVENTS_MAX ((size_t)1 << 12) /* that name one task */

/* Judges the line (ev = ledger) and adds to *sums: all rules for a round that was
 * applied; one that was dropped or abandoned may be incomplete.  The clock of round r has
 * the round's tasks; `ids` are those of the workers that joined.  Findings are not
 * errors: l->err is FAL_EFORMAT or FAL_ELIMIT. */
void fal_judge_ledger(struct fal_trace_line *l, const struct fal_trace_job *job,
		      const struct fal_trace_round *r, const struct fal_ids *ids,
		      struct fal_findings *f, struct fal_judge_sums *sums);

/* ---- schemes.c -----------------------------------------------------------------------
 */

/* The scheme that holds, and the rounds under it.  {0} is valid before the first one. */
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
	/* The pushes of groups in the version that is read, if its scheme has a quorum.
	 */
	struct fal_pushed {
		uint64_t group, samples, rounds;
		double weight; /* of its line; 0: it has none */
	} *push;
	size_t pushes, push_cap;
};

/* Another scheme holds from now on, `newest` being the newest version. */
void fal_rules_begin(struct fal_rules *s, const struct fal_rule *rule, uint64_t newest);
void fal_rules_free(struct fal_rules *s);

/* Judges a round that has ended. */
void fal_rules_round(struct fal_rules *s, const struct fal_trace_round *r,
		     struct fal_findings *f);

/* True if an update has the rounds of one group only, while those of others wait. */
bool fal_rules_by_group(const struct fal_rules *s);

/* An update, and its rounds so far. */
struct fal_rules_update {
	const struct fal_ev_update *line;
	uint64_t version;            /* that it should make */
	size_t at;                   /* the place of `last`, from 0 */
	struct fal_trace_round last; /* the newest of them; tasks 0: none yet */
	/* the first round, of a quorum that of its group: its group, its version; the
	 * place of `last` among the rounds from there on, from 1 */
	uint64_t group, model, local;
	uint64_t
		clock_samples; /* of the clock of `last`, but for those that it skipped */
	uint64_t samples, clock; /* of all rounds; of the newest clock */
};

/* An update begins; `last` became a part of it; `last` was the last one. */
void fal_rules_update(struct fal_rules *s, const struct fal_ev_update *line);
void fal_rules_update_round(struct fal_rules *s, const struct fal_rules_update *u,
			    struct fal_findings *f);
void fal_rules_update_end(const struct fal_rules *s, const struct fal_rules_update *u,
			  struct fal_findings *f);

#endif
