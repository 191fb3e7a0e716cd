/* Blocks that move from shard to shard (design.md, D38).
 *
 * A boundary is where nothing is under way: no round is open, no version still to be
 * made. There the shards hear of the next map, each gets what it lacks of it from those
 * that have it, and when all have said so, they take it: until then the map of before
 * holds, and nothing of it is gone. */
#include "coord/priv.h"

#include "base/mem.h"
#include "trace/reader.h"

#include <stdio.h>
#include <stdlib.h>

const struct fal_map *
fal_coord_next_map(const struct fal_coord *c)
{
	coord_enter(c);
	return c->move.waits || c->move.begun ? &c->move.to : NULL;
}

int
coord_send_blocks(struct fal_coord *c, uint32_t peer)
{
	struct fal_msg m = { .type = FAL_MSG_BLOCKS, .blocks.epoch = c->map.epoch };
	struct fal_buf of = { 0 };
	fal_map_put(&of, &c->map);
	m.blocks.of = (struct fal_tail){ of.p, of.n };
	int err = of.err < 0 ? of.err : coord_send(c, peer, &m);
	fal_buf_free(&of);
	return err;
}

/* Where the blocks are from now on. */
static int
trace_place(struct fal_coord *c, double now)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	uint32_t *shard = fal_calloc(blocks, sizeof(*shard));
	struct fal_line_place line = { .map = c->map.epoch,
				       .rule = FAL_TRACE_MOVED,
				       .by = c->move.by,
				       .took = now - c->move.since,
				       .shards = c->map.shards,
				       .blocks = blocks,
				       .shard = shard };
	if (shard == NULL)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < c->map.shards; i++)
		for (uint32_t b = 0; b < c->map.of[i].count; b++)
			shard[c->map.of[i].first + b] = i;
	fal_line_place(&c->line, fal_coord_seconds(c, now), &line);
	coord_trace(c);
	free(shard);
	return FAL_OK;
}

/* The move is over, with this result. */
static int
conclude(struct fal_coord *c, double now, int result)
{
	c->move.waits = c->move.begun = false;
	coord_measure_anew(c);
	if (c->ops.moved != NULL) {
		coord_call(c);
		c->ops.moved(c->ops.arg, &c->map, result);
		coord_called(c);
	}
	fal_sched_hold(c->sched, now, coord_holds(c));
	return FAL_OK;
}

int
coord_move_advance(struct fal_coord *c, double now, bool quiet)
{
	struct fal_move *m = &c->move;
	const struct fal_shard_order o = { .kind = FAL_ORDER_MIGRATE_BEGIN,
					   .map = &m->to };
	if (!m->waits)
		return FAL_OK;
	if (c->finished || c->why != NULL || c->control.stopping)
		return conclude(c, now, FAL_ESTATE);
	if (!quiet)
		return FAL_OK;
	m->waits = false;
	m->begun = true;
	m->since = now;
	m->said = 0;
	/* Versions that nobody can name any more need not move. */
	int err = coord_keep_versions(c, c->keeps);
	return err < 0 ? err : coord_order(c, &o);
}

/* All have what they will have. */
static int
take(struct fal_coord *c, double now)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_COMMIT };
	int err = coord_order(c, &o);
	c->map = c->move.to;
	c->conf.shards = c->map.shards;
	c->conf.tickets.epoch = c->map.epoch;
	for (uint32_t i = 0; i < c->peers && err == FAL_OK; i++)
		if (c->peer[i].ready)
			err = coord_send_blocks(c, c->peer[i].id);
	if (err == FAL_OK)
		err = trace_place(c, now);
	return err < 0 ? err : conclude(c, now, FAL_OK);
}

/* The shards were told, and it will never be. */
static int
give_up(struct fal_coord *c, double now, int why)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_ABORT };
	int err = coord_order(c, &o);
	return err < 0 ? err : conclude(c, now, why);
}

int
coord_migrated(struct fal_coord *c, double now, uint32_t shard,
	       const struct fal_shard_say *say)
{
	struct fal_move *m = &c->move;
	if (!m->begun || say->version != m->to.epoch)
		return FAL_OK;
	if (say->err < 0)
		return give_up(c, now, say->err);
	m->said |= UINT64_C(1) << shard;
	/* Whoever has nothing, and will have nothing, has nothing to say. */
	const uint64_t all = fal_map_busy(&c->map) | fal_map_busy(&m->to);
	return (m->said & all) == all ? take(c, now) : FAL_OK;
}

int
fal_coord_move(struct fal_coord *c, double now, const struct fal_map *to, const char *by,
	       struct fal_diag *diag)
{
	coord_enter(c);
	struct fal_move *m = &c->move;
	if (c->finished || c->why != NULL || c->control.stopping)
		return fal_diag_set(diag, FAL_ESTATE, "the job is over");
	if (m->waits || m->begun)
		return fal_diag_set(diag, FAL_ESTATE, "a move by '%s' is under way",
				    m->by);
	if (!fal_map_covers(to, fal_blocks(c->conf.params)) || to->shards < c->map.shards)
		return fal_diag_set(diag, FAL_EINVAL, "no map after the one that holds");
	*m = (struct fal_move){ .waits = true, .to = *to, .epoch = m->epoch };
	m->epoch = (m->epoch > c->map.epoch ? m->epoch : c->map.epoch) + 1;
	m->to.epoch = m->epoch;
	snprintf(m->by, sizeof(m->by), "%s", by);
	fal_sched_hold(c->sched, now, true);
	int err = coord_control_advance(c, now);
	return err < 0 ? err : coord_advance(c, now);
}

int
fal_coord_move_abort(struct fal_coord *c, double now)
{
	coord_enter(c);
	int err = FAL_OK;
	if (c->move.begun)
		err = give_up(c, now, FAL_ESTATE);
	else if (c->move.waits)
		err = conclude(c, now, FAL_ESTATE);
	else
		return FAL_OK;
	return err < 0 ? err : coord_advance(c, now);
}
