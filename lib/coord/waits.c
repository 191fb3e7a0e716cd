/* What workers waited for of each shard, and the `shard` lines that say so.
 *
 * A worker's word counts as one among those of all: of each shard the trace has what the
 * middle one of them says, and nobody waited for longer than the job runs. */
#include "coord/priv.h"

#include "base/mem.h"
#include "base/quantile.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CLOCKS = 10 }; /* between lines */

/* The row of a worker, which may be new; NULL: out of memory. */
static struct fal_waited *
row(struct fal_waits *w, uint32_t worker)
{
	const size_t shards = FAL_SHARDS_MAX; /* some may come later */
	uint32_t at = 0;
	while (at < w->n && w->worker[at] != worker)
		at++;
	if (at == w->n) {
		if (FAL_GROW(w->worker, w->worker_cap, at + 1) < 0 ||
		    FAL_GROW(w->of, w->cap, (at + 1) * shards) < 0)
			return NULL;
		w->worker[w->n++] = worker;
		memset(w->of + at * shards, 0, shards * sizeof(*w->of));
	}
	return w->of + at * shards;
}

int
coord_waited(struct fal_coord *c, uint32_t worker, const struct fal_msg *m)
{
	const uint32_t shards = c->conf.shards;
	/* A worker waits for shards when it does not compute. */
	const uint64_t most = m->worked.push + m->worked.pull + m->worked.wait;
	if (shards == 1) /* of it there are no lines */
		return fal_waited_get(&m->worked.waits, shards, most, NULL);
	struct fal_waited *is = row(&c->waits, worker);
	return is != NULL ? fal_waited_get(&m->worked.waits, shards, most, is)
			  : FAL_ENOMEM;
}

void
coord_waits_free(struct fal_coord *c)
{
	free(c->waits.worker);
	free(c->waits.of);
	free(c->waits.served);
	free(c->waits.scratch);
}

/* What the worker in row `i` says of a shard. */
static const struct fal_waited *
said_of(const struct fal_waits *w, uint32_t i, uint32_t shard)
{
	return &w->of[(size_t)i * FAL_SHARDS_MAX + shard];
}

/* What the middle one of the workers says of a shard, at `t` seconds of the job; NAN:
 * nobody had all of a part. */
static void
middle(struct fal_waits *w, double t, struct fal_line_shard *out)
{
	size_t n = 0;
	for (uint32_t i = 0; i < w->n; i++)
		w->scratch[n++] =
			fmin((double)said_of(w, i, out->shard)->waited * 1e-9, t);
	out->blame = n > 0 ? fal_quantile(w->scratch, n, 0.5) : 0;
	n = 0;
	for (uint32_t i = 0; i < w->n; i++) {
		const struct fal_waited *of = said_of(w, i, out->shard);
		if (of->parts > 0)
			w->scratch[n++] = fmin((double)of->took * 1e-9 / of->parts, t);
	}
	out->took = fal_quantile(w->scratch, n, 0.5);
}

/* A word of a shard about itself counts on, or it is taken for nothing. */
static double
since(double is, double was)
{
	return is > was ? is - was : 0;
}

static void
tell(struct fal_coord *c, double now)
{
	struct fal_waits *w = &c->waits;
	const double t = fal_coord_seconds(c, now);
	for (uint32_t i = 0; i < c->conf.shards; i++) {
		struct fal_coord_served is = { 0 }, *was = &w->served[i];
		struct fal_line_shard line = { .shard = i,
					       .clock = w->over - 1,
					       .version = w->version };
		coord_call(c);
		c->ops.shards.served(c->ops.shards.arg, i, &is);
		coord_called(c);
		line.name = is.name;
		line.address = is.address;
		line.blocks = is.blocks;
		line.rx = is.rx > was->rx ? is.rx - was->rx : 0;
		line.tx = is.tx > was->tx ? is.tx - was->tx : 0;
		line.service = since(is.service, was->service);
		line.queue = since(is.queue, was->queue) / (c->ready > 0 ? c->ready : 1);
		middle(w, t, &line);
		fal_line_shard(&c->line, t, &line);
		coord_trace(c);
		*was = is;
	}
	w->n = 0;
}

int
coord_tell_shards(struct fal_coord *c, double now, bool last)
{
	struct fal_waits *w = &c->waits;
	if (c->conf.shards == 1 || c->ops.shards.served == NULL ||
	    w->over < w->told + (last ? 1 : CLOCKS))
		return FAL_OK;
	if (w->served == NULL)
		w->served = fal_calloc(FAL_SHARDS_MAX, sizeof(*w->served));
	if (w->served == NULL || FAL_GROW(w->scratch, w->scratch_cap, w->n + 1) < 0)
		return FAL_ENOMEM;
	w->told = w->over;
	tell(c, now);
	return FAL_OK;
}
