/* The map from blocks to shards: how long workers wait for each shard; which map would be
 * better (server/psld.h; design.md, D40); and moves of blocks (D38). */
#include "server/coord_priv.h"

#include "base/mem.h"
#include "base/quantile.h"
#include "server/psld.h"
#include "trace/reader.h"

#include <math.h>
#include <stdlib.h>

/* ---- waits ----------------------------------------------------------------------- */

/* The workers' waits for each shard, and the `shard` lines that report these waits.
 *
 * No single worker decides: for each shard the trace has the median of all workers'
 * waits, and no wait is longer than the job runs. */

enum { CLOCKS_PER_LINE = 10 };

/* Returns the worker's waits; adds waits for a new worker. */
static struct fal_shard_wait *
find_waits(struct coord_wait_rows *r, uint32_t worker)
{
	size_t i = 0;
	while (i < r->n && r->row[i].worker != worker)
		i++;
	if (i == r->n) {
		FAL_XGROW(r->row, r->cap, r->n + 1);
		r->row[r->n++] = (struct coord_wait_row){ .worker = worker };
	}
	return r->row[i].waits;
}

int
coord_take_waits(struct fal_coord *c, uint32_t worker, const struct fal_msg *m)
{
	const uint32_t shards = c->conf.shards;
	struct coord_placement *pl = &c->placement;
	/* A worker waits for shards only while the worker does not compute. */
	const uint64_t limit = m->worked.push + m->worked.pull + m->worked.wait;
	if (shards == 1) /* the trace has no `shard` lines for a single shard */
		return fal_shard_wait_get(&m->worked.waits, shards, limit, NULL);
	int err = fal_shard_wait_get(&m->worked.waits, shards, limit,
				     find_waits(&pl->lines.rows, worker));
	if (err == FAL_OK && pl->balance.is_on)
		err = fal_shard_wait_get(&m->worked.waits, shards, limit,
					 find_waits(&pl->balance.rows, worker));
	return err;
}

void
coord_placement_free(struct fal_coord *c)
{
	struct coord_placement *pl = &c->placement;
	free(pl->lines.rows.row);
	free(pl->lines.served);
	free(pl->lines.scratch);
	free(pl->balance.rows.row);
	fal_psld_free(pl->balance.psld);
}

/* The medians of the workers' waits for a shard. */
struct wait_medians {
	double waited; /* sum of the seconds of waiting */
	/* seconds for the shard's part of a version; NAN: no worker has got one */
	double took;
};

/* The medians for the shard in these rows; `scratch` has room for each row.  No worker
 * waited longer than `t` seconds. */
static struct wait_medians
median_waits(const struct coord_wait_rows *r, uint32_t shard, double t, double *scratch)
{
	struct wait_medians out = { 0 };
	size_t n = 0;
	for (size_t i = 0; i < r->n; i++)
		scratch[i] = fmin((double)r->row[i].waits[shard].waited * 1e-9, t);
	if (r->n > 0)
		out.waited = fal_quantile(scratch, r->n, 0.5);
	for (size_t i = 0; i < r->n; i++) {
		const struct fal_shard_wait *wait = &r->row[i].waits[shard];
		if (wait->parts > 0)
			scratch[n++] = fmin((double)wait->took * 1e-9 / wait->parts, t);
	}
	out.took = fal_quantile(scratch, n, 0.5);
	return out;
}

/* The increase of a number that a shard reports about itself; 0 if the number fell. */
static double
increase(double to, double from)
{
	return to > from ? to - from : 0;
}

void
coord_trace_shards(struct fal_coord *c, double now, bool at_end)
{
	struct coord_shard_lines *l = &c->placement.lines;
	const double t = fal_coord_trace_time(c, now);
	if (c->conf.shards == 1 || c->ops.shards.served == NULL ||
	    l->clocks_over < l->first_clock + (at_end ? 1 : CLOCKS_PER_LINE))
		return;
	if (l->served == NULL)
		l->served = fal_xcalloc(FAL_SHARDS_MAX, sizeof(*l->served));
	FAL_XGROW(l->scratch, l->scratch_cap, l->rows.n + 1);
	l->first_clock = l->clocks_over;
	for (uint32_t i = 0; i < c->conf.shards; i++) {
		struct fal_coord_shard_stats served = { 0 }, *last = &l->served[i];
		coord_begin_callback(c);
		c->ops.shards.served(c->ops.shards.arg, i, &served);
		coord_end_callback(c);
		const struct wait_medians waits =
			median_waits(&l->rows, i, t, l->scratch);
		const double workers = c->sessions.n_ready > 0 ? c->sessions.n_ready : 1;
		const struct fal_ev_shard line = {
			.shard = (uint64_t)i + 1,
			.clock = l->clocks_over - 1,
			.version = l->version,
			.by = served.name,
			.address = served.address,
			.blocks = served.blocks,
			.rx = served.rx > last->rx ? served.rx - last->rx : 0,
			.tx = served.tx > last->tx ? served.tx - last->tx : 0,
			.service = increase(served.service, last->service),
			.queue = increase(served.queue, last->queue) / workers,
			.blame = waits.waited,
			.took = waits.took,
		};
		coord_trace_event(c, now, FAL_EV_SHARD, &line);
		*last = served;
	}
	l->rows.n = 0;
}

/* ---- balance --------------------------------------------------------------------- */

/* Decides which shard should have each block, by the workers' waits (server/psld.h;
 * design.md, D40).
 *
 * The coordinator measures each clock when the trace has the clock's update.  The caller
 * asks for the decision by fal_coord_balance, and moves blocks if a move is possible. */

void
coord_measure_clock(struct fal_coord *c, double now)
{
	struct coord_balance *b = &c->placement.balance;
	struct coord_shard_lines *l = &c->placement.lines;
	if (!b->is_on || l->clocks_over <= b->clocks_over)
		return;
	FAL_XGROW(l->scratch, l->scratch_cap, b->rows.n + 1);
	const double clocks = (double)(l->clocks_over - b->clocks_over),
		     seconds = now - b->measured_at;
	for (uint32_t i = 0; i < c->conf.shards; i++) {
		const struct wait_medians waits =
			median_waits(&b->rows, i, seconds, l->scratch);
		b->seen[i] = b->is_stale ? (struct fal_psld_measurement){ (double)NAN, 0 }
					 : (struct fal_psld_measurement){ waits.took,
									  waits.waited };
	}
	/* false if NAN: the start of the first clock is not known */
	b->is_due = seconds >= 0;
	b->seconds = seconds / clocks;
	b->clocks_over = l->clocks_over;
	b->measured_at = now;
	b->is_stale = false;
	b->rows.n = 0;
}

/* Returns true if b->psld works with these shards and with the present map. */
static bool
psld_is_current(const struct fal_coord *c, uint64_t shards)
{
	const struct coord_balance *b = &c->placement.balance;
	uint32_t i = 0;
	if (b->psld == NULL || b->set != shards)
		return false;
	while (i < b->shards &&
	       fal_psld_count(b->psld, i) == c->placement.map.of[b->order[i]].count)
		i++;
	return i == b->shards;
}

const char *
fal_coord_balance(struct fal_coord *c, uint64_t may, struct fal_map *to)
{
	static const char *const name[] = { [FAL_PSLD_PLACE] = FAL_PSLD_BY ":place",
					    [FAL_PSLD_TRY] = FAL_PSLD_BY ":out",
					    [FAL_PSLD_REVERT] = FAL_PSLD_BY ":back" };
	coord_enter(c);
	struct coord_balance *b = &c->placement.balance;
	const struct fal_map *map = &c->placement.map;
	const uint64_t busy = fal_map_busy(map), shards = may | busy;
	struct fal_psld_measurement seen[FAL_SHARDS_MAX];
	if (!b->is_due || c->placement.move.state != MOVE_NONE)
		return NULL;
	b->is_due = false;
	if (!psld_is_current(c, shards)) {
		/* psld starts with the present map: first the shards that have blocks, in
		 * their order; then the other shards of the set. */
		uint32_t count[FAL_SHARDS_MAX];
		b->shards = fal_map_list(map, b->order);
		for (uint32_t i = 0; i < FAL_SHARDS_MAX; i++)
			if ((shards & ~busy) >> i & 1)
				b->order[b->shards++] = i;
		for (uint32_t i = 0; i < b->shards; i++)
			count[i] = map->of[b->order[i]].count;
		fal_psld_free(b->psld);
		b->psld = fal_psld_new(count, b->shards);
		b->set = shards;
	}
	for (uint32_t i = 0; i < b->shards; i++)
		seen[i] = b->seen[b->order[i]];
	const enum fal_psld_act act = fal_psld_clock(b->psld, b->seconds, seen);
	if (act == FAL_PSLD_STAY)
		return NULL;
	*to = *map;
	for (uint32_t i = 0, first = 0; i < b->shards; i++) {
		const uint32_t count = fal_psld_count(b->psld, i);
		to->of[b->order[i]] = (struct fal_extent){ count > 0 ? first : 0, count };
		if (count > 0 && b->order[i] >= to->shards)
			to->shards = b->order[i] + 1;
		first += count;
	}
	return name[act];
}

/* ---- moves ----------------------------------------------------------------------- */

/* Blocks that move from shard to shard (design.md, D38).
 *
 * A boundary is a time when nothing is under way: no round is open, and every version is
 * made.  At a boundary the shards hear of the next map, and each shard gets the blocks
 * that it lacks from the shards that have them.  When all shards have reported so, they
 * take the next map.  Until then the present map holds, and no shard frees a block. */

const struct fal_map *
fal_coord_pending_map(const struct fal_coord *c)
{
	coord_enter(c);
	return c->placement.move.state != MOVE_NONE ? &c->placement.move.next_map : NULL;
}

void
coord_send_block_map(struct fal_coord *c, uint32_t peer)
{
	const struct fal_map *map = &c->placement.map;
	struct fal_msg m = { .type = FAL_MSG_BLOCKS, .blocks.epoch = map->epoch };
	struct fal_buf extents = { 0 };
	fal_map_put(&extents, map);
	m.blocks.of = (struct fal_tail){ extents.p, extents.n };
	coord_send(c, peer, &m);
	fal_buf_free(&extents);
}

/* Writes to the trace which shard has which blocks from now on. */
static void
trace_place(struct fal_coord *c, double now)
{
	const struct fal_map *map = &c->placement.map;
	const uint32_t blocks = fal_blocks(c->conf.params);
	uint32_t *shard = fal_xcalloc(blocks, sizeof(*shard));
	const struct fal_line_place line = { .map = map->epoch,
					     .rule = FAL_TRACE_MOVED,
					     .by = c->placement.move.wanted_by,
					     .took = now - c->placement.move.started_at,
					     .shards = map->shards,
					     .blocks = blocks,
					     .shard = shard };
	for (uint32_t i = 0; i < map->shards; i++)
		for (uint32_t b = 0; b < map->of[i].count; b++)
			shard[map->of[i].first + b] = i;
	fal_line_place(&c->trace_line, fal_coord_trace_time(c, now), &line);
	coord_write_line(c);
	free(shard);
}

/* Ends the move: the shards use the next map; or, with an error, never will. */
void
coord_move_end(struct fal_coord *c, double now, int err)
{
	struct coord_balance *b = &c->placement.balance;
	if (err < 0 && c->placement.move.state == MOVE_RUNNING)
		coord_command_shards(c, &(struct fal_shard_order){
						.kind = FAL_ORDER_ABORT });
	c->placement.move.state = MOVE_NONE;
	/* The next reports of waits still measure the map before the move. */
	b->is_stale = true;
	b->is_due = false;
	b->rows.n = 0;
	COORD_CALL(c, moved, &c->placement.map, err);
	coord_hold_rounds(c, now);
}

void
coord_move_advance(struct fal_coord *c, double now, bool is_quiet)
{
	struct coord_move *m = &c->placement.move;
	const struct fal_shard_order o = { .kind = FAL_ORDER_MIGRATE_BEGIN,
					   .map = &m->next_map };
	if (m->state == MOVE_PENDING && coord_is_over(c))
		coord_move_end(c, now, FAL_ESTATE);
	if (m->state != MOVE_PENDING || !is_quiet)
		return;
	m->state = MOVE_RUNNING;
	m->started_at = now;
	m->ready = 0;
	/* Versions on which no worker can compute any more need not move. */
	coord_retain_versions(c, c->versions.retained);
	coord_command_shards(c, &o);
}

void
coord_on_migrated(struct fal_coord *c, double now, const struct fal_shard_report *report)
{
	struct coord_move *m = &c->placement.move;
	const struct coord_peer *p = NULL;
	if (m->state != MOVE_RUNNING || report->version != m->next_map.epoch)
		return;
	if (report->err < 0) {
		coord_move_end(c, now, report->err);
		return;
	}
	m->ready |= UINT64_C(1) << report->shard;
	/* A shard that has blocks in neither map reports nothing. */
	const uint64_t all = fal_map_busy(&c->placement.map) | fal_map_busy(&m->next_map);
	if ((m->ready & all) != all)
		return;
	coord_command_shards(c, &(struct fal_shard_order){ .kind = FAL_ORDER_COMMIT });
	c->placement.map = m->next_map;
	c->conf.shards = m->next_map.shards;
	c->conf.tickets.epoch = m->next_map.epoch;
	while ((p = coord_next_peer(c, p, PEER_READY)) != NULL)
		coord_send_block_map(c, p->id);
	trace_place(c, now);
	coord_move_end(c, now, FAL_OK);
}
