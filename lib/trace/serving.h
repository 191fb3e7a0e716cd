/* What the `shard` lines say, read and judged. */
#ifndef FAL_TRACE_SERVING_H
#define FAL_TRACE_SERVING_H

#include "trace/findings.h"
#include "trace/places.h"

/* One line. */
struct fal_trace_shard {
	uint32_t shard; /* from 0 */
	uint64_t clock, version;
	const char *name, *address; /* borrowed from the line; NULL: the coordinator's */
	uint64_t blocks, rx, tx;
	double service, queue, took, blame; /* took: NAN, where it is not known */
};
/* 0 or l->err. */
int fal_trace_shard_read(struct fal_trace_line *l, const struct fal_trace_job *job,
			 struct fal_trace_shard *out);

/* {0}: no line yet, in this incarnation. */
struct fal_serving {
	uint32_t next;   /* shard that the next line is of; 0: a set begins */
	uint64_t over;   /* behind the clock of the last set */
	uint64_t blocks; /* of this one, so far */
};

/* Lines come in sets, one of each shard in order, each set of a later clock; together
 * they have all blocks, each as many as `place` says.  `version`: the newest. */
int fal_serving_line(struct fal_serving *s, struct fal_trace_line *l,
		     const struct fal_trace_job *job, const struct fal_trace_place *place,
		     uint64_t version, struct fal_findings *f);

#endif
