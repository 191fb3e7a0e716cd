/* Rows of shards. */
#include "trace/shards.h"

#include "base/quantile.h"

#include <math.h>
#include <stdio.h>

void
fal_shard_rows_begin(struct fal_shard_rows *r, double t)
{
	*r = (struct fal_shard_rows){ .from = t, .to = t };
}

int
fal_shard_rows_line(struct fal_shard_rows *r, struct fal_trace_line *l,
		    const struct fal_trace_job *job)
{
	struct fal_trace_shard is;
	if (fal_trace_shard_read(l, job, &is) < 0)
		return l->err;
	struct fal_shard_row *w = &r->v[is.shard];
	r->n = is.shard >= r->n ? is.shard + 1 : r->n;
	r->to = l->t;
	snprintf(w->name, sizeof(w->name), "%s", is.name != NULL ? is.name : "");
	snprintf(w->address, sizeof(w->address), "%s",
		 is.address != NULL ? is.address : "");
	if (is.blocks != w->blocks) /* what it took was for others */
		w->lines = 0;
	w->blocks = is.blocks;
	w->rx += is.rx;
	w->tx += is.tx;
	w->service += is.service;
	w->queue += is.queue;
	w->blame += is.blame;
	if (!isnan(is.took)) {
		const double sum = w->lines > 0 ? w->took * w->lines : 0;
		w->took = (sum + is.took) / ++w->lines;
	}
	return 0;
}

/* Seconds of a part: at least what a trace can tell from none. */
static double
took(const struct fal_shard_row *w)
{
	return fmax(w->took, 1e-6);
}

/* The middle one of those that are known: seconds of a part, or of a block of it. */
static double
middle(const struct fal_shard_rows *r, bool each)
{
	double v[FAL_TRACE_SHARDS_MAX];
	size_t n = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		const struct fal_shard_row *w = &r->v[i];
		if (w->lines > 0 && w->blocks > 0)
			v[n++] = each ? took(w) / (double)w->blocks : took(w);
	}
	return fal_quantile(v, n, 0.5);
}

void
fal_shard_rows_end(struct fal_shard_rows *r)
{
	const double all = middle(r, false), each = middle(r, true);
	for (uint32_t i = 0; i < r->n; i++) {
		struct fal_shard_row *w = &r->v[i];
		const bool known = w->lines > 0 && w->blocks > 0;
		w->class = FAL_CLASS_NONE;
		w->cause = "-";
		w->slower = known ? took(w) / all : (double)NAN;
		if (w->lines == 0)
			w->took = (double)NAN;
		if (!known)
			continue;
		w->class = FAL_CLASS_STEADY;
		if (w->slower < 1 - FAL_CLASS_TOLERANCE)
			w->class = FAL_CLASS_PIONEER;
		if (w->slower < 1 + FAL_CLASS_TOLERANCE ||
		    w->blame < FAL_SHARD_BLAME * (r->to - r->from))
			continue;
		/* Slower by its pace times its blocks: whichever is more of it. */
		const double pace = took(w) / (double)w->blocks / each;
		w->class = FAL_CLASS_STRAGGLER;
		w->cause = pace * pace >= w->slower ? "pace" : "blocks";
	}
}
