/* What went on side by side, as a trace tells: versions that came while tasks computed on
 * them, contributions that left while they were made, versions that went out before all
 * that is in them had come.
 *
 * Each call takes a line of its kind; errors are those of trace/reader.h.
 */
#ifndef FAL_TRACE_OVERLAP_H
#define FAL_TRACE_OVERLAP_H

#include "trace/reader.h"

struct fal_overlap {
	uint64_t pull, push;     /* µs, of all workers; of these, */
	uint64_t pulled, pushed; /* … beside the same round's computing */
	uint64_t versions;       /* of several shards; of these, */
	uint64_t ahead;          /* … the first part was made so */
	double came;             /* private: since the last update */
};

int fal_overlap_clock(struct fal_overlap *o, struct fal_trace_line *l);
int fal_overlap_ledger(struct fal_overlap *o, struct fal_trace_line *l);
int fal_overlap_update(struct fal_overlap *o, struct fal_trace_line *l);

#endif
