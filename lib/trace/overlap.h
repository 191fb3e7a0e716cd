/* What went on side by side, as a trace tells: versions that came while tasks computed on
 * them, contributions that left while they were made, versions that went out before all
 * that is in them had come.
 *
 * Each call takes a line of its kind; the first returns 0 or l->err.
 */
#ifndef FAL_TRACE_OVERLAP_H
#define FAL_TRACE_OVERLAP_H

#include "trace/reader.h"

#include <stdbool.h>
#include <stdint.h>

enum { FAL_OVERLAP_LAST = 64 }; /* clocks and versions that are remembered */

struct fal_overlap {
	uint64_t pull, push;     /* µs, of all workers; of these, */
	uint64_t pulled, pushed; /* … beside the same round's computing */
	uint64_t
		versions; /* of several shards, or of which a worker said when it came; */
	uint64_t ahead;   /* … of these, the first part was made, or came, so */
	/* Private: when the last block came since the last update; the last versions, by
	 * their numbers; which of them rounds of the last clocks ran on. */
	double came;
	struct {
		uint64_t version, came; /* µs */
		bool known, ahead;
	} of[FAL_OVERLAP_LAST];
	struct fal_overlap_ran {
		uint64_t clock; /* and 1 */
		uint64_t version;
		uint64_t from; /* when it began to come to the first worker, µs */
	} ran[FAL_OVERLAP_LAST];
};

int fal_overlap_clock(struct fal_overlap *o, struct fal_trace_line *l);
void fal_overlap_ledger(struct fal_overlap *o, const struct fal_ev_ledger *e);
void fal_overlap_update(struct fal_overlap *o, const struct fal_ev_update *e);

#endif
