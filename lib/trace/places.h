/* Where the blocks are: a `place` line, read and judged. */
#ifndef FAL_TRACE_PLACES_H
#define FAL_TRACE_PLACES_H

#include "trace/clocks.h"
#include "trace/findings.h"
#include "trace/reader.h"

/* Limits of what is read. */
#define FAL_TRACE_PLACED_MAX ((uint64_t)1 << 20) /* blocks */

/* What made a map: as many blocks for each shard, a file, a move. */
#define FAL_TRACE_BLOCKS "blocks"
#define FAL_TRACE_FILE "file"
#define FAL_TRACE_MOVED "moved"

/* {0} is empty and valid. */
struct fal_trace_place {
	uint64_t map;  /* its number */
	char rule[32]; /* "": there was no line */
	uint32_t shards;
	uint32_t places; /* that the rule knew, of which these have blocks */
	uint32_t blocks;
	uint32_t *shard; /* of each block, from 0; owned */
};
void fal_trace_place_free(struct fal_trace_place *p);

/* Reads the line in place of what `p` has.  0 or l->err: FAL_EFORMAT, FAL_ELIMIT,
 * FAL_EINVAL: a block is in no run, or in two, or on a shard that is none;
 * FAL_ENOMEM. */
int fal_trace_place_read(struct fal_trace_line *l, const struct fal_trace_job *job,
			 struct fal_trace_place *p);

/* The same, judged: each map has the next number, or that of a later move, and one by the
 * rule `blocks` is even. */
int fal_places_line(struct fal_trace_place *p, struct fal_trace_line *l,
		    const struct fal_trace_job *job, struct fal_findings *f);

#endif
