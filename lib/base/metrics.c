/* A job's own metrics: names, sums, and how they are shown. */
#include "base/metrics.h"

#include "base/json.h"

#include <math.h>
#include <string.h>

uint32_t
fal_metric_find(const struct fal_metric_names *n, const char *name)
{
	uint32_t i = 0;
	while (i < n->n && strcmp(n->v[i], name) != 0)
		i++;
	return i;
}

const char *
fal_metric_add_name(struct fal_metric_names *n, const char *name)
{
	const size_t length = strlen(name);
	if (length == 0 || length >= FAL_METRIC_NAME ||
	    strspn(name, "abcdefghijklmnopqrstuvwxyz0123456789_") != length)
		return "is not a name of at most 32 characters of a-z, 0-9 and _";
	if (fal_metric_find(n, name) < n->n)
		return "stands there twice";
	if (n->n == FAL_METRICS_MAX)
		return "is one too many: a job has at most 8 metrics";
	memcpy(n->v[n->n++], name, length + 1);
	return NULL;
}

struct fal_metrics
fal_metrics_of(double samples, const void *reported, size_t bytes)
{
	struct fal_metrics m = { .samples = samples };
	for (uint32_t i = 0; i < FAL_METRICS_MAX; i++)
		m.sum[i] = (double)NAN;
	if (bytes > 0)
		memcpy(m.sum, reported, bytes);
	return m;
}

void
fal_metrics_add(struct fal_metrics *to, const struct fal_metrics *from)
{
	to->samples += from->samples;
	for (uint32_t i = 0; i < FAL_METRICS_MAX; i++)
		to->sum[i] += from->sum[i];
}

void
fal_metric_put_text(struct fal_buf *out, const struct fal_metrics *m, uint32_t i)
{
	if (isnan(m->sum[i]) || !(m->samples > 0))
		fal_put_u8(out, '-');
	else
		fal_put_fmt(out, "%.6g (sum %.15g)", m->sum[i] / m->samples, m->sum[i]);
}

void
fal_metrics_put_json(struct fal_buf *out, const struct fal_metric_names *n,
		     const struct fal_metrics *training, const struct fal_metrics *test)
{
	for (uint32_t i = 0; i < n->n; i++) {
		if (i == 0)
			fal_json_member_open(out, "metrics", '{');
		fal_json_member_open(out, n->v[i], '{');
		fal_json_member_num(out, "training",
				    training->sum[i] / training->samples);
		fal_json_member_num(out, "training_sum", training->sum[i]);
		if (test != NULL) {
			fal_json_member_num(out, "test", test->sum[i] / test->samples);
			fal_json_member_num(out, "test_sum", test->sum[i]);
		}
		fal_json_close(out, '}');
	}
	if (n->n > 0)
		fal_json_close(out, '}');
}
