/* Judges one ledger line: was every task of the round added exactly once?
 *
 * Private to lib/trace: audit.h is what a program uses.  The rules are those of
 * falcon-trace(5), section AUDIT.
 */
#ifndef FAL_TRACE_JUDGE_H
#define FAL_TRACE_JUDGE_H

#include "trace/findings.h"
#include "trace/ids.h"

/* What one ledger line may hold at most, so that judging it stays cheap. */
#define FAL_JUDGE_EVENTS_MAX ((size_t)1 << 22) /* sum of all its counts */
#define FAL_JUDGE_CONTRIBS_MAX ((size_t)1 << 16)
#define FAL_JUDGE_TASK_EVENTS_MAX ((size_t)1 << 12) /* that name one task */

/* Sums over ledger lines, in tasks; filled: by fills that were not fenced in turn. */
struct fal_judge_sums {
	uint64_t tasks;   /* of rounds that were not abandoned, */
	uint64_t skipped; /* … and were skipped */
	uint64_t moved, cloned, filled;
	uint64_t dropped; /* claims that lost */
};

/* What the ledger is judged by, and where findings go. */
struct fal_judge_env {
	const struct fal_trace_job *job;
	const struct fal_trace_round *round; /* its head; its clock has its tasks */
	const struct fal_ids *ids;           /* of the workers that joined */
	struct fal_findings *findings;
};

/* Judges the line (ev = ledger) and adds to *sums: all rules for a round that was
 * applied; one that was dropped or abandoned may be incomplete.  Findings are not errors:
 * 0 is returned for any line that follows the format, else l->err: FAL_EFORMAT,
 * FAL_ELIMIT, FAL_ENOMEM. */
int fal_judge_ledger(const struct fal_judge_env *env, struct fal_trace_line *l,
		     struct fal_judge_sums *sums);

#endif
