/* What a ledger line says of its round: the head, before who did what. */
#ifndef FAL_TRACE_ROUND_H
#define FAL_TRACE_ROUND_H

#include "trace/clocks.h"

enum fal_trace_end {
	FAL_TRACE_APPLIED,
	FAL_TRACE_DROPPED,
	FAL_TRACE_ABANDONED,
	FAL_TRACE_GIVEN
};

/* As falcon-trace(5) names them.  A line without the fields of rounds is of bsp or epsp:
 * the round of its clock, all of its tasks, applied. */
struct fal_trace_round {
	uint64_t round, clock, first, tasks, samples, version, blocks;
	enum fal_trace_end end;
	bool delta;
	bool has_owner, has_group, has_stale, has_slot;
	bool moved; /* tasks of it were */
	uint32_t owner;
	uint64_t group;
	uint64_t local;                 /* its place on its group's line; 0: none */
	double weight;                  /* 1 if it is not there */
	uint64_t among, steps;          /* 0 if they are not there */
	double divisor;                 /* the same */
	uint64_t clocks, updates, rank; /* stale; rank 0: it has none */
	uint64_t slot;
};

/* Reads the line (ev = ledger).  Returns 0 or l->err: FAL_EFORMAT, FAL_ELIMIT. */
int fal_trace_round_read(struct fal_trace_line *l, struct fal_trace_round *out);

/* All of its tasks were added, each once: it became a part of a version, here or above.
 */
bool fal_trace_round_whole(const struct fal_trace_round *r);

/* The samples that were computed once more than the round needs: those of claims that
 * lost, of fills, and, if it was abandoned, of all claims.  Reads the same line; its
 * clock is one of the job's. */
uint64_t fal_trace_round_twice(struct fal_trace_line *l, const struct fal_trace_job *job,
			       const struct fal_trace_round *r);

/* The samples of the round's tasks, but for those that were skipped; *skipped: so many
 * tasks.  Reads the same line; its clock is one of the job's, and has its tasks. */
uint64_t fal_trace_round_counted(struct fal_trace_line *l,
				 const struct fal_trace_job *job,
				 const struct fal_trace_round *r, uint64_t *skipped);

/* "clock 7", or "round 9 of clock 7" where it is not the same; returns `out`. */
#define FAL_TRACE_ROUND_NAME 64
const char *fal_trace_round_name(const struct fal_trace_round *r,
				 char out[static FAL_TRACE_ROUND_NAME]);

#endif
