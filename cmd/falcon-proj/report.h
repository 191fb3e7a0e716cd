/* Prints a straggler projection. */
#ifndef FALCON_PROJ_REPORT_H
#define FALCON_PROJ_REPORT_H

#include "base/buf.h"
#include "proj/report.h"

/* A line for the job, tables of the workers and of the parts of a clock, and a line for
 * each finding; errors are sticky in `out`. */
void report_text(struct fal_buf *out, const struct fal_report *r);

/* One JSON object with the same, on a line. */
void report_json(struct fal_buf *out, const struct fal_report *r);

#endif
