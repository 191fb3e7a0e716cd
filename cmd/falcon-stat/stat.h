/* What falcon-stat prints.  All of it goes to a buffer, so that a live source can print
 * the same. */
#ifndef FALCON_STAT_STAT_H
#define FALCON_STAT_STAT_H

#include "base/buf.h"
#include "cli/table.h"
#include "recompute.h"
#include "trace/audit.h"
#include "trace/summary.h"

#define PROG "falcon-stat"

/* One table of the job, or one JSON object. */
void stat_table(struct fal_buf *out, const struct fal_summary *s);
void stat_table_json(struct fal_buf *out, const struct fal_summary *s);

/* A line for each epoch, or a JSON object for each. */
void stat_history(struct fal_buf *out, const struct fal_summary *s);
void stat_history_json(struct fal_buf *out, const struct fal_summary *s);

/* The verdict of the audit, and of computing anew, as lines or as one JSON object; `r`:
 * of --recompute, or NULL. */
void stat_audit(struct fal_buf *out, const struct fal_audit_verdict *v,
		const struct stat_recomputed *r);
void stat_audit_json(struct fal_buf *out, const struct fal_audit_verdict *v,
		     const struct stat_recomputed *r);

#endif
