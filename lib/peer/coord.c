/* The coordinator's clocks. */
#include "peer/coord_priv.h"

#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* An evaluation must be over so many clocks after its version (DESIGN section 7). */
enum { EVAL_CLOCKS = 5 };

static int send_version(struct fal_coord *c, double now);

int
fal_coord_new(const struct fal_coord_conf *conf, const struct fal_coord_ops *ops,
	      const float *init, double now, struct fal_coord **out)
{
	struct fal_coord *c = fal_calloc(1, sizeof(*c));
	if (c == NULL)
		return FAL_ENOMEM;
	c->conf = *conf;
	c->ops = *ops;
	c->start = now;
	c->status.accuracy = -1;
	c->clocks = (uint64_t)conf->epochs *
		    ((conf->samples + conf->batch - 1) / conf->batch);
	struct fal_sched_conf sched = { .scheme = conf->scheme,
					.lanes_start = conf->lanes_start,
					/* forward only: about a third of a step */
					.eval_cost = 1.0 / 3 };
	struct fal_store_conf store = { .n = conf->params,
					.optim = conf->optim,
					.checksums = conf->audit_sums,
					.checksum_seed = conf->seed };
	int err = fal_sched_new(&sched, &c->sched);
	if (err == FAL_OK) {
		c->store = fal_store_new(&store, init);
		c->kept = fal_calloc_aligned(conf->params, sizeof(float));
		err = c->store != NULL && c->kept != NULL ? FAL_OK : FAL_ENOMEM;
	}
	if (err < 0) {
		fal_coord_free(c);
		return err;
	}
	fal_line_job(&c->line, conf, c->clocks, fal_blocks(conf->params));
	ops->trace(ops->arg, (const char *)c->line.p, c->line.n);
	fal_line_policy(&c->line, 0, 0, conf->scheme);
	ops->trace(ops->arg, (const char *)c->line.p, c->line.n);
	*out = c;
	return FAL_OK;
}

void
fal_coord_free(struct fal_coord *c)
{
	if (c == NULL)
		return;
	fal_sched_free(c->sched);
	fal_store_free(c->store);
	free(c->peer);
	free(c->live);
	free(c->kept);
	fal_buf_free(&c->line);
	free(c);
}

uint64_t
coord_epoch_clocks(const struct fal_coord *c)
{
	return c->clocks / c->conf.epochs;
}

static uint32_t
clock_samples(const struct fal_coord *c, uint64_t clock)
{
	uint64_t first = clock % coord_epoch_clocks(c) * c->conf.batch;
	uint64_t left = c->conf.samples - first;
	return left < c->conf.batch ? (uint32_t)left : c->conf.batch;
}

static uint32_t
clock_tasks(const struct fal_coord *c, uint64_t clock)
{
	return (clock_samples(c, clock) + c->conf.task - 1) / c->conf.task;
}

/* The lines of the clock that has just been completed. */
static void
trace_clock(struct fal_coord *c, double now, uint64_t clock, double lr)
{
	const struct fal_ledger *l = fal_sched_ledger(c->sched);
	struct fal_line_ledger d = { .t = now - c->start,
				     .clock = clock,
				     .samples = clock_samples(c, clock),
				     .blocks = fal_blocks(c->conf.params),
				     .sums = c->conf.audit_sums };
	if (d.sums) {
		d.sent = fal_store_sent(c->store);
		d.added = fal_store_added(c->store);
	}
	fal_line_ledger(&c->line, &d, l);
	coord_trace(c);
	fal_line_update(&c->line, d.t, clock + 1, clock, d.samples, c->status.loss, lr,
			clock / coord_epoch_clocks(c) + 1);
	coord_trace(c);
	for (size_t i = 0; i < l->log[FAL_ENTRY_MOVE].n; i++)
		c->status.moved += l->log[FAL_ENTRY_MOVE].v[i].count;
	for (size_t i = 0; i < l->log[FAL_ENTRY_CLONE].n; i++)
		c->status.cloned += l->log[FAL_ENTRY_CLONE].v[i].count;
	for (size_t i = 0; i < l->log[FAL_ENTRY_LOST].n; i++)
		c->status.lost += l->log[FAL_ENTRY_LOST].v[i].count;
	for (uint32_t i = 0; i < l->contribs; i++)
		if (l->contrib[i].fills != FAL_NONE &&
		    l->contrib[i].state == FAL_CONTRIB_DONE)
			c->status.filled += l->contrib[i].tasks;
	for (uint32_t i = 0; i < c->peers; i++) {
		struct fal_peer *p = &c->peer[i];
		if (!p->ready)
			continue;
		p->owes_line = fal_sched_info(c->sched, p->worker, &p->info);
		p->line_clock = clock;
		p->line_rx = p->rx;
		p->line_tx = p->tx;
	}
}

int
coord_complete_clock(struct fal_coord *c, double now)
{
	uint64_t clock = fal_store_version(c->store);
	uint32_t samples = clock_samples(c, clock);
	/* One float for all shards; the law needs no more than that all use the same. */
	float lr = (float)fal_schedule_lr(&c->conf.schedule, clock);
	c->status.loss = ldexp((double)fal_ledger_loss(fal_sched_ledger(c->sched)),
			       -FAL_LOSS_BITS) /
			 samples;
	int err = fal_sched_close(c->sched, now);
	if (err < 0)
		return err;
	fal_store_update(c->store, lr, samples);
	c->published = false;
	/* The workers wait for the version; the trace waits for nobody. */
	err = send_version(c, now);
	trace_clock(c, now, clock, (double)lr);
	return err < 0 ? err : coord_advance(c, now);
}

static bool
eval_due(const struct fal_coord *c, uint64_t version)
{
	if (c->conf.test_samples == 0 || version == 0)
		return false;
	return version == c->clocks ||
	       (c->conf.eval_every > 0 && version % c->conf.eval_every == 0);
}

static void
publish(struct fal_coord *c, bool keep)
{
	uint64_t version = fal_store_version(c->store);
	if (keep) {
		memcpy(c->kept, fal_store_params(c->store),
		       c->conf.params * sizeof(float));
		c->kept_version = version;
		c->eval_right = c->eval_samples = 0;
		c->eval_loss = 0;
		c->evaluating = true;
	}
	for (uint32_t i = 0; i < c->peers; i++)
		if (c->peer[i].ready)
			c->ops.model(c->ops.arg, c->peer[i].id, false, keep);
	c->published = true;
}

/* Publishes the newest version, and has it evaluated if that is due, as far as allowed.
 */
static int
send_version(struct fal_coord *c, double now)
{
	bool keep = eval_due(c, fal_store_version(c->store));
	uint32_t tasks = (c->conf.test_samples + c->conf.task - 1) / c->conf.task;
	if (c->published || (keep && c->evaluating)) /* the one before is not over yet */
		return FAL_OK;
	publish(c, keep);
	return keep ? fal_sched_eval(c->sched, now, tasks) : FAL_OK;
}

int
coord_advance(struct fal_coord *c, double now)
{
	uint64_t version = fal_store_version(c->store);
	if (c->finished || c->why != NULL || fal_sched_is_open(c->sched) || !c->began)
		return coord_drain(c, now);
	int err = send_version(c, now);
	if (err < 0)
		return err;
	if (!c->published)
		return coord_drain(c, now);
	if (version == c->clocks) {
		c->finished = !c->evaluating;
		return coord_drain(c, now);
	}
	if (c->evaluating && version >= c->kept_version + EVAL_CLOCKS)
		return coord_drain(c, now);
	uint32_t tasks = clock_tasks(c, version);
	fal_store_open(c->store, tasks);
	err = fal_sched_open(c->sched, now, version, tasks);
	return err < 0 ? err : coord_drain(c, now);
}

int
fal_coord_tick(struct fal_coord *c, double now)
{
	int err = fal_sched_tick(c->sched, now);
	return err < 0 ? err : coord_drain(c, now);
}

double
fal_coord_wake(const struct fal_coord *c)
{
	return fal_sched_wake(c->sched);
}

const struct fal_store *
fal_coord_store(const struct fal_coord *c)
{
	return c->store;
}

const float *
fal_coord_kept(const struct fal_coord *c, uint64_t *version)
{
	*version = c->kept_version;
	return c->evaluating ? c->kept : NULL;
}

struct fal_coord_status
fal_coord_status(const struct fal_coord *c)
{
	struct fal_coord_status s = c->status;
	s.clock = fal_store_version(c->store);
	s.clocks = c->clocks;
	s.workers = c->ready;
	s.done = c->finished;
	s.failed = c->why != NULL;
	s.why = c->why;
	return s;
}

void
fal_coord_finish(struct fal_coord *c, double now, const char *sha256, const char *why)
{
	c->why = why != NULL ? why : c->why;
	for (uint32_t i = 0; i < c->peers; i++) {
		struct fal_peer *p = &c->peer[i];
		if (p->left)
			continue;
		if (p->owes_line) {
			struct fal_msg none = { .type = FAL_MSG_WORKED };
			none.worked.clock = p->line_clock;
			coord_worked(c, now, p, &none);
		}
		coord_send_done(c, p->id);
		p->ready = false;
		p->left = true;
	}
	if (c->why != NULL)
		fal_line_failed(&c->line, now - c->start, fal_store_version(c->store),
				c->why);
	else
		fal_line_done(&c->line, now - c->start, fal_store_version(c->store),
			      sha256, c->status.accuracy);
	coord_trace(c);
}
