/* Sums the `shard` lines up: a row for each shard of the newest incarnation, and which of
 * them workers wait for.
 *
 * Pure; it believes what the trace says.
 */
#ifndef FAL_TRACE_SHARDS_H
#define FAL_TRACE_SHARDS_H

#include "trace/classify.h"
#include "trace/serving.h"

/* Workers do nothing but wait for a straggler in more than this part of the time. */
#define FAL_SHARD_BLAME 0.02

struct fal_shard_row {
	char name[256], address[256]; /* of the process; "": the coordinator's */
	uint64_t blocks;              /* that it had last */
	uint64_t rx, tx;              /* sums of its lines */
	double service, queue, blame;
	double took;          /* seconds of a version's part, the mean; NAN: not known */
	enum fal_class class; /* by these seconds, as workers are by theirs */
	const char *cause;    /* static; "blocks": it has more of them; "pace": it takes
				 longer for each; or "-" */
	double slower;        /* took, in those of the middle one; NAN */
	uint32_t lines;       /* private: with `took` */
};

/* {0} is empty and valid. */
struct fal_shard_rows {
	struct fal_shard_row v[FAL_TRACE_SHARDS_MAX];
	uint32_t n;
	double from, to; /* seconds of the job that the lines are of */
};

/* Another incarnation begins. */
void fal_shard_rows_begin(struct fal_shard_rows *r, double t);
/* Takes a `shard` line.  0 or l->err. */
int fal_shard_rows_line(struct fal_shard_rows *r, struct fal_trace_line *l,
			const struct fal_trace_job *job);
/* Classifies them; more lines may follow.  A straggler is more than FAL_CLASS_TOLERANCE
 * above the median, and waited for. */
void fal_shard_rows_end(struct fal_shard_rows *r);

#endif
