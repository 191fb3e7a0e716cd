/* The map from blocks to shards: the workers' waits for each shard, the conclusions from
 * these waits (server/psld.h; design.md, D40), and blocks that move (D38). */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "base/quantile.h"
#include "server/psld.h"
#include "trace/reader.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

/* ---- waits ----------------------------------------------------------------------- */

/* The workers' waits for each shard, and the `shard` lines that report these waits.
 *
 * A worker's word counts as one among those of all: for each shard the trace has the
 * median of the workers' words, and no worker waited for longer than the job runs. */

enum { CLOCKS_PER_LINE = 10 }; /* between lines */

/* The row of a worker, which may be new. */
static struct fal_shard_wait *
find_wait_row(struct coord_wait_rows *r, uint32_t worker)
{
	size_t at = 0;
	while (at < r->n && r->row[at].worker != worker)
		at++;
	if (at == r->n) {
		FAL_XGROW(r->row, r->cap, r->n + 1);
		r->row[r->n++] = (struct coord_wait_row){ .worker = worker };
	}
	return r->row[at].of;
}

int
coord_take_waits(struct fal_coord *c, uint32_t worker, const struct fal_msg *m)
{
	const uint32_t shards = c->conf.shards;
	/* A worker waits for shards when it does not compute. */
	const uint64_t most = m->worked.push + m->worked.pull + m->worked.wait;
	struct coord_wait_rows *all[] = { &c->placement.lines.rows,
					  c->placement.balance.on
						  ? &c->placement.balance.rows
						  : NULL };
	int err = FAL_OK;
	if (shards == 1) /* no lines tell of a single shard */
		return fal_shard_wait_get(&m->worked.waits, shards, most, NULL);
	for (size_t i = 0; i < 2 && all[i] != NULL && err == FAL_OK; i++)
		err = fal_shard_wait_get(&m->worked.waits, shards, most,
					 find_wait_row(all[i], worker));
	return err;
}

void
coord_placement_free(struct fal_coord *c)
{
	free(c->placement.lines.rows.row);
	free(c->placement.balance.rows.row);
	fal_psld_free(c->placement.balance.psld);
	free(c->placement.lines.served);
	free(c->placement.lines.scratch);
}

/* The median of the workers' words on a shard, by these rows; `scratch` has room for each
 * row.  No worker waited longer than `t` seconds.  The seconds are those in all, and
 * those for a part of a version; NAN: no worker had all of one part. */
struct wait_medians {
	double waited, took;
};
static struct wait_medians
median_wait(const struct coord_wait_rows *r, uint32_t shard, double t, double *scratch)
{
	struct wait_medians out;
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++)
		scratch[n++] = fmin((double)r->row[i].of[shard].waited * 1e-9, t);
	out.waited = n > 0 ? fal_quantile(scratch, n, 0.5) : 0;
	n = 0;
	for (size_t i = 0; i < r->n; i++) {
		const struct fal_shard_wait *of = &r->row[i].of[shard];
		if (of->parts > 0)
			scratch[n++] = fmin((double)of->took * 1e-9 / of->parts, t);
	}
	out.took = fal_quantile(scratch, n, 0.5);
	return out;
}

/* A word of a shard about itself counts on, or it is taken for nothing. */
static double
increase(double is, double was)
{
	return is > was ? is - was : 0;
}

static void
trace_shard_lines(struct fal_coord *c, double now)
{
	struct coord_shard_lines *w = &c->placement.lines;
	const double t = fal_coord_seconds(c, now);
	for (uint32_t i = 0; i < c->conf.shards; i++) {
		struct fal_coord_served is = { 0 }, *was = &w->served[i];
		struct fal_ev_shard line = { .shard = (uint64_t)i + 1,
					     .clock = w->over - 1,
					     .version = w->version };
		coord_begin_callback(c);
		c->ops.shards.served(c->ops.shards.arg, i, &is);
		coord_end_callback(c);
		line.by = is.name;
		line.address = is.address;
		line.blocks = is.blocks;
		line.rx = is.rx > was->rx ? is.rx - was->rx : 0;
		line.tx = is.tx > was->tx ? is.tx - was->tx : 0;
		line.service = increase(is.service, was->service);
		line.queue = increase(is.queue, was->queue) /
			     (c->sessions.n_ready > 0 ? c->sessions.n_ready : 1);
		const struct wait_medians is_of = median_wait(&w->rows, i, t, w->scratch);
		line.blame = is_of.waited;
		line.took = is_of.took;
		coord_trace_event(c, t, FAL_EV_SHARD, &line);
		*was = is;
	}
	w->rows.n = 0;
}

void
coord_trace_shards(struct fal_coord *c, double now, bool last)
{
	struct coord_shard_lines *w = &c->placement.lines;
	if (c->conf.shards == 1 || c->ops.shards.served == NULL ||
	    w->over < w->first_clock + (last ? 1 : CLOCKS_PER_LINE))
		return;
	if (w->served == NULL)
		w->served = fal_xcalloc(FAL_SHARDS_MAX, sizeof(*w->served));
	FAL_XGROW(w->scratch, w->scratch_cap, w->rows.n + 1);
	w->first_clock = w->over;
	trace_shard_lines(c, now);
}

/* ---- balance --------------------------------------------------------------------- */

/* The best shard of each block, by the workers' waits (server/psld.h; design.md, D40).
 *
 * The coordinator measures each clock that is over when the clock is told.  The caller
 * who runs the coordinator asks for the conclusions from this measurement, and moves
 * blocks where that is possible. */

void
coord_balance_measure(struct fal_coord *c, double now)
{
	struct coord_balance *b = &c->placement.balance;
	if (!b->on || c->placement.lines.over <= b->over)
		return;
	FAL_XGROW(c->placement.lines.scratch, c->placement.lines.scratch_cap,
		  b->rows.n + 1);
	const double clocks = (double)(c->placement.lines.over - b->over),
		     since = now - b->at;
	for (uint32_t i = 0; i < c->conf.shards; i++) {
		const struct wait_medians is =
			median_wait(&b->rows, i, since, c->placement.lines.scratch);
		b->seen[i] = b->stale ? (struct fal_psld_seen){ (double)NAN, 0 }
				      : (struct fal_psld_seen){ is.took, is.waited };
	}
	b->due = since >= 0; /* NAN: when it began is not known */
	b->seconds = since / clocks;
	b->over = c->placement.lines.over;
	b->at = now;
	b->stale = false;
	b->rows.n = 0;
}

/* Has psld these shards, and the map that holds? */
static bool
psld_is_current(const struct fal_coord *c, uint64_t who)
{
	const struct coord_balance *b = &c->placement.balance;
	uint32_t i = 0;
	if (b->psld == NULL || b->who != who)
		return false;
	while (i < b->shards &&
	       fal_psld_count(b->psld, i) == c->placement.map.of[b->order[i]].count)
		i++;
	return i == b->shards;
}

/* psld begins with the map that holds: the shards that have blocks in their order, then
 * those that could have some. */
static void
restart_psld(struct fal_coord *c, uint64_t who)
{
	struct coord_balance *b = &c->placement.balance;
	uint32_t count[FAL_SHARDS_MAX];
	b->shards = fal_map_in_order(&c->placement.map, b->order);
	for (uint32_t i = 0; i < FAL_SHARDS_MAX; i++)
		if ((who & ~fal_map_busy(&c->placement.map)) >> i & 1)
			b->order[b->shards++] = i;
	for (uint32_t i = 0; i < b->shards; i++)
		count[i] = c->placement.map.of[b->order[i]].count;
	fal_psld_free(b->psld);
	b->psld = fal_psld_new(count, b->shards);
	b->who = who;
}

const char *
fal_coord_balance(struct fal_coord *c, uint64_t may, struct fal_map *to)
{
	static const char *const name[] = { [FAL_PSLD_PLACE] = FAL_PSLD_BY ":place",
					    [FAL_PSLD_OUT] = FAL_PSLD_BY ":out",
					    [FAL_PSLD_BACK] = FAL_PSLD_BY ":back" };
	coord_enter(c);
	struct coord_balance *b = &c->placement.balance;
	const uint64_t who = may | fal_map_busy(&c->placement.map);
	struct fal_psld_seen seen[FAL_SHARDS_MAX];
	if (!b->due || c->placement.move.waits || c->placement.move.begun)
		return NULL;
	b->due = false;
	if (!psld_is_current(c, who))
		restart_psld(c, who);
	for (uint32_t i = 0; i < b->shards; i++)
		seen[i] = b->seen[b->order[i]];
	const enum fal_psld_act act = fal_psld_clock(b->psld, b->seconds, seen);
	if (act == FAL_PSLD_STAY)
		return NULL;
	*to = c->placement.map;
	for (uint32_t i = 0, at = 0; i < b->shards; i++) {
		const uint32_t count = fal_psld_count(b->psld, i);
		to->of[b->order[i]] = (struct fal_extent){ count > 0 ? at : 0, count };
		if (count > 0 && b->order[i] >= to->shards)
			to->shards = b->order[i] + 1;
		at += count;
	}
	return name[act];
}

/* ---- moves ----------------------------------------------------------------------- */

/* Blocks that move from shard to shard (design.md, D38).
 *
 * A boundary is where nothing is under way: no round is open, no version still to be
 * made. There the shards hear of the next map, each gets what it lacks of it from those
 * that have it, and when all have said so, they take it: until then the map of before
 * holds, and nothing of it is gone. */

const struct fal_map *
fal_coord_next_map(const struct fal_coord *c)
{
	coord_enter(c);
	return c->placement.move.waits || c->placement.move.begun ? &c->placement.move.to
								  : NULL;
}

void
coord_send_block_map(struct fal_coord *c, uint32_t peer)
{
	struct fal_msg m = { .type = FAL_MSG_BLOCKS,
			     .blocks.epoch = c->placement.map.epoch };
	struct fal_buf of = { 0 };
	fal_map_put(&of, &c->placement.map);
	m.blocks.of = (struct fal_tail){ of.p, of.n };
	coord_send(c, peer, &m);
	fal_buf_free(&of);
}

/* Traces the places of the blocks from now on. */
static void
trace_place(struct fal_coord *c, double now)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	uint32_t *shard = fal_xcalloc(blocks, sizeof(*shard));
	struct fal_line_place line = { .map = c->placement.map.epoch,
				       .rule = FAL_TRACE_MOVED,
				       .by = c->placement.move.by,
				       .took = now - c->placement.move.since,
				       .shards = c->placement.map.shards,
				       .blocks = blocks,
				       .shard = shard };
	for (uint32_t i = 0; i < c->placement.map.shards; i++)
		for (uint32_t b = 0; b < c->placement.map.of[i].count; b++)
			shard[c->placement.map.of[i].first + b] = i;
	fal_line_place(&c->trace_line, fal_coord_seconds(c, now), &line);
	coord_write_line(c);
	free(shard);
}

/* The move is over, with this result. */
static void
conclude_move(struct fal_coord *c, double now, int result)
{
	c->placement.move.waits = c->placement.move.begun = false;
	/* The words that come next are of the map before the move. */
	c->placement.balance.stale = true;
	c->placement.balance.due = false;
	c->placement.balance.rows.n = 0;
	if (c->ops.moved != NULL) {
		c->ops.moved(coord_begin_callback(c), &c->placement.map, result);
		coord_end_callback(c);
	}
	fal_sched_hold(c->sched, now, coord_holds(c));
}

void
coord_move_advance(struct fal_coord *c, double now, bool quiet)
{
	struct coord_move *m = &c->placement.move;
	const struct fal_shard_order o = { .kind = FAL_ORDER_MIGRATE_BEGIN,
					   .map = &m->to };
	const bool over = c->is_finished || c->failure != NULL || c->control.stopping;
	if (m->waits && over)
		conclude_move(c, now, FAL_ESTATE);
	if (!m->waits || !quiet)
		return;
	m->waits = false;
	m->begun = true;
	m->since = now;
	m->said = 0;
	/* Versions that nobody can name any more need not move. */
	coord_retain_versions(c, c->versions.retained);
	coord_command_shards(c, &o);
}

/* All have what they will have. */
static void
commit_move(struct fal_coord *c, double now)
{
	coord_command_shards(c, &(struct fal_shard_order){ .kind = FAL_ORDER_COMMIT });
	c->placement.map = c->placement.move.to;
	c->conf.shards = c->placement.map.shards;
	c->conf.tickets.epoch = c->placement.map.epoch;
	for (uint32_t i = 0; i < c->sessions.peers; i++)
		if (c->sessions.peer[i].ready)
			coord_send_block_map(c, c->sessions.peer[i].id);
	trace_place(c, now);
	conclude_move(c, now, FAL_OK);
}

/* The shards were told, and it will never be. */
static void
abort_move(struct fal_coord *c, double now, int why)
{
	coord_command_shards(c, &(struct fal_shard_order){ .kind = FAL_ORDER_ABORT });
	conclude_move(c, now, why);
}

void
coord_shard_migrated(struct fal_coord *c, double now, uint32_t shard,
		     const struct fal_shard_say *say)
{
	struct coord_move *m = &c->placement.move;
	if (!m->begun || say->version != m->to.epoch)
		return;
	if (say->err < 0) {
		abort_move(c, now, say->err);
		return;
	}
	m->said |= UINT64_C(1) << shard;
	/* A shard that has no blocks, and will have none, has nothing to say. */
	const uint64_t all = fal_map_busy(&c->placement.map) | fal_map_busy(&m->to);
	if ((m->said & all) == all)
		commit_move(c, now);
}

int
fal_coord_move(struct fal_coord *c, double now, const struct fal_map *to, const char *by,
	       struct fal_diag *diag)
{
	coord_enter(c);
	struct coord_move *m = &c->placement.move;
	if (c->is_finished || c->failure != NULL || c->control.stopping)
		return fal_diag_set(diag, FAL_ESTATE, "the job is over");
	if (m->waits || m->begun)
		return fal_diag_set(diag, FAL_ESTATE, "a move by '%s' is under way",
				    m->by);
	if (!fal_map_covers(to, fal_blocks(c->conf.params)) ||
	    to->shards < c->placement.map.shards)
		return fal_diag_set(diag, FAL_EINVAL, "no map after the one that holds");
	*m = (struct coord_move){ .waits = true, .to = *to, .epoch = m->epoch };
	m->epoch =
		(m->epoch > c->placement.map.epoch ? m->epoch : c->placement.map.epoch) +
		1;
	m->to.epoch = m->epoch;
	snprintf(m->by, sizeof(m->by), "%s", by);
	fal_sched_hold(c->sched, now, true);
	coord_policy_advance(c, now);
	return coord_advance(c, now);
}

int
fal_coord_move_abort(struct fal_coord *c, double now)
{
	coord_enter(c);
	if (!c->placement.move.begun && !c->placement.move.waits)
		return c->err;
	if (c->placement.move.begun)
		abort_move(c, now, FAL_ESTATE);
	else
		conclude_move(c, now, FAL_ESTATE);
	return coord_advance(c, now);
}
