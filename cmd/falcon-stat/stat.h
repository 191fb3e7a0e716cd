/* What falcon-stat prints.  All of it goes to a buffer, so that a live source can print
 * the same. */
#ifndef FALCON_STAT_STAT_H
#define FALCON_STAT_STAT_H

#include "base/buf.h"
#include "cli/table.h"
#include "recompute.h"
#include "trace/audit.h"
#include "trace/summary.h"

#include <stdbool.h>

#define PROG "falcon-stat"

/* One table of the job, or one JSON object. */
void stat_table(struct fal_buf *out, const struct fal_summary *s);
void stat_table_json(struct fal_buf *out, const struct fal_summary *s);

/* The part of these that is about shards; nothing where the trace does not tell. */
void stat_shards(struct fal_buf *out, const struct fal_shard_rows *r);
void stat_shards_json(struct fal_buf *out, const struct fal_shard_rows *r);
/* The last move of their blocks, likewise. */
void stat_moves(struct fal_buf *out, const struct fal_trace_moves *m);
void stat_moves_json(struct fal_buf *out, const struct fal_trace_moves *m);

/* A line for each epoch, or a JSON object for each. */
void stat_history(struct fal_buf *out, const struct fal_summary *s);
void stat_history_json(struct fal_buf *out, const struct fal_summary *s);

/* The verdict of the audit. */
void stat_audit(struct fal_buf *out, const struct fal_audit_verdict *v);
/* `r`: of --recompute, or NULL. */
void stat_audit_json(struct fal_buf *out, const struct fal_audit_verdict *v,
		     const struct stat_recomputed *r);

/* How many samples were used at which staleness: "0: 1234, 1: 567" by updates, "-" if
 * none; or all three histograms as a JSON object. */
void stat_stale(struct fal_buf *out, const struct fal_stale *s);
void stat_stale_json(struct fal_buf *out, const struct fal_stale *s);

/* Appends the table and frees it; an error is left in `out`. */
void stat_put_table(struct fal_buf *out, struct fal_table *t);

#endif
