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
row(struct fal_rows *r, uint32_t worker)
{
	const size_t shards = FAL_SHARDS_MAX; /* some may come later */
	uint32_t at = 0;
	while (at < r->n && r->worker[at] != worker)
		at++;
	if (at == r->n) {
		if (FAL_GROW(r->worker, r->worker_cap, at + 1) < 0 ||
		    FAL_GROW(r->of, r->cap, (at + 1) * shards) < 0)
			return NULL;
		r->worker[r->n++] = worker;
		memset(r->of + at * shards, 0, shards * sizeof(*r->of));
	}
	return r->of + at * shards;
}

int
coord_waited(struct fal_coord *c, uint32_t worker, const struct fal_msg *m)
{
	const uint32_t shards = c->conf.shards;
	/* A worker waits for shards when it does not compute. */
	const uint64_t most = m->worked.push + m->worked.pull + m->worked.wait;
	struct fal_rows *all[] = { &c->waits.rows,
				   c->balance.on ? &c->balance.rows : NULL };
	int err = FAL_OK;
	if (shards == 1) /* of it there are no lines */
		return fal_waited_get(&m->worked.waits, shards, most, NULL);
	for (size_t i = 0; i < 2 && all[i] != NULL && err == FAL_OK; i++) {
		struct fal_waited *is = row(all[i], worker);
		err = is != NULL ? fal_waited_get(&m->worked.waits, shards, most, is)
				 : FAL_ENOMEM;
	}
	return err;
}

static void
rows_free(struct fal_rows *r)
{
	free(r->worker);
	free(r->of);
}

void
coord_waits_free(struct fal_coord *c)
{
	rows_free(&c->waits.rows);
	rows_free(&c->balance.rows);
	fal_psld_free(c->balance.psld);
	free(c->waits.served);
	free(c->waits.scratch);
}

/* What the worker in row `i` says of a shard. */
static const struct fal_waited *
said_of(const struct fal_rows *r, uint32_t i, uint32_t shard)
{
	return &r->of[(size_t)i * FAL_SHARDS_MAX + shard];
}

struct coord_middle
coord_middle(const struct fal_rows *r, uint32_t shard, double t, double *scratch)
{
	struct coord_middle out;
	size_t n = 0;
	for (uint32_t i = 0; i < r->n; i++)
		scratch[n++] = fmin((double)said_of(r, i, shard)->waited * 1e-9, t);
	out.waited = n > 0 ? fal_quantile(scratch, n, 0.5) : 0;
	n = 0;
	for (uint32_t i = 0; i < r->n; i++) {
		const struct fal_waited *of = said_of(r, i, shard);
		if (of->parts > 0)
			scratch[n++] = fmin((double)of->took * 1e-9 / of->parts, t);
	}
	out.took = fal_quantile(scratch, n, 0.5);
	return out;
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
		struct fal_ev_shard line = { .shard = (uint64_t)i + 1,
					     .clock = w->over - 1,
					     .version = w->version };
		coord_call(c);
		c->ops.shards.served(c->ops.shards.arg, i, &is);
		coord_called(c);
		line.by = is.name;
		line.address = is.address;
		line.blocks = is.blocks;
		line.rx = is.rx > was->rx ? is.rx - was->rx : 0;
		line.tx = is.tx > was->tx ? is.tx - was->tx : 0;
		line.service = since(is.service, was->service);
		line.queue = since(is.queue, was->queue) / (c->ready > 0 ? c->ready : 1);
		const struct coord_middle is_of =
			coord_middle(&w->rows, i, t, w->scratch);
		line.blame = is_of.waited;
		line.took = is_of.took;
		fal_trace_put(&c->line, t, FAL_EV_SHARD, &line);
		coord_trace(c);
		*was = is;
	}
	w->rows.n = 0;
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
	if (w->served == NULL || FAL_GROW(w->scratch, w->scratch_cap, w->rows.n + 1) < 0)
		return FAL_ENOMEM;
	w->told = w->over;
	tell(c, now);
	return FAL_OK;
}
