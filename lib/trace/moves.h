/* The last move of blocks: what `place` lines say of it.
 *
 * Pure; it believes what the trace says.
 */
#ifndef FAL_TRACE_MOVES_H
#define FAL_TRACE_MOVES_H

#include "trace/places.h"

/* {0} is empty and valid. */
struct fal_trace_moves {
	uint64_t moves;  /* of the newest incarnation; of the last of them: */
	char by[256];    /* who wanted it */
	double t, took;  /* when it was done, and in which seconds; NAN: not known */
	uint64_t blocks; /* that went to another shard */
	/* By shard: how many it has more than before. */
	int64_t more[FAL_TRACE_SHARDS_MAX];
	struct fal_trace_place is; /* private: where the blocks are */
};

/* Takes a `place` line.  0 or l->err; of more blocks than can be read nothing is known.
 */
int fal_trace_moves_line(struct fal_trace_moves *m, struct fal_trace_line *l,
			 const struct fal_trace_job *job);
void fal_trace_moves_free(struct fal_trace_moves *m);

#endif
