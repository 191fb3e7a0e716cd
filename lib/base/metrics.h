/* A job's own metrics: sums over samples that trainers report beside the loss.
 * falcon-job(5) has their names, job.metrics. */
#ifndef FAL_BASE_METRICS_H
#define FAL_BASE_METRICS_H

#include "base/buf.h"

#include <stddef.h>
#include <stdint.h>

enum {
	FAL_METRICS_MAX = 8,
	FAL_METRIC_NAME = 33 /* bytes of a name with its NUL */
};

/* Bound of a task's sum, either way: with this bound no sum of tasks overflows. */
#define FAL_METRIC_MOST 1e30

struct fal_metric_names {
	uint32_t n;
	char v[FAL_METRICS_MAX][FAL_METRIC_NAME];
};

/* The sums of the metrics over the samples of some tasks, in the order of the names.  All
 * 0 is a valid sum of no task. */
struct fal_metrics {
	double samples;
	double sum[FAL_METRICS_MAX]; /* NAN: some task's sum is not known */
};

/* Returns the metric's index, or n->n. */
uint32_t fal_metric_find(const struct fal_metric_names *n, const char *name);

/* Adds a name.  Returns NULL, or what is wrong: the name has other characters than
 * a-z, 0-9 and _, or stands there already, or there are too many names. */
const char *fal_metric_add_name(struct fal_metric_names *n, const char *name);

/* Makes the sums of a task from those that it has reported, `bytes` long; the others are
 * not known. */
struct fal_metrics fal_metrics_of(double samples, const void *reported, size_t bytes);

void fal_metrics_add(struct fal_metrics *to, const struct fal_metrics *from);

/* Appends "MEAN (sum SUM)" of metric i; "-": not known, or of no samples. */
void fal_metric_put_text(struct fal_buf *out, const struct fal_metrics *m, uint32_t i);

/* Appends the member "metrics", of the training set and, unless NULL, of the test set;
 * nothing for a job without metrics. */
void fal_metrics_put_json(struct fal_buf *out, const struct fal_metric_names *n,
			  const struct fal_metrics *training,
			  const struct fal_metrics *test);

#endif
