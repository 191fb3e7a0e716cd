/* Which shard should have which block, by what workers waited for (place/psld.h;
 * design.md, D40).
 *
 * Each clock that is over is measured when it is told; whoever runs the coordinator asks
 * what follows from it, and moves blocks where it can. */
#include "coord/priv.h"

#include "base/mem.h"
#include "place/psld.h"

#include <math.h>

int
coord_measure(struct fal_coord *c, double now)
{
	struct fal_balance *b = &c->balance;
	if (!b->on || c->waits.over <= b->over)
		return FAL_OK;
	if (FAL_GROW(c->waits.scratch, c->waits.scratch_cap, b->rows.n + 1) < 0)
		return FAL_ENOMEM;
	const double clocks = (double)(c->waits.over - b->over), since = now - b->at;
	for (uint32_t i = 0; i < c->conf.shards; i++) {
		const struct coord_middle is =
			coord_middle(&b->rows, i, since, c->waits.scratch);
		b->seen[i] = b->stale ? (struct fal_psld_seen){ (double)NAN, 0 }
				      : (struct fal_psld_seen){ is.took, is.waited };
	}
	b->due = since >= 0; /* NAN: when it began is not known */
	b->seconds = since / clocks;
	b->over = c->waits.over;
	b->at = now;
	b->stale = false;
	b->rows.n = 0;
	return FAL_OK;
}

void
coord_measure_anew(struct fal_coord *c)
{
	c->balance.stale = true;
	c->balance.due = false;
	c->balance.rows.n = 0;
}

/* Has psld these shards, and the map that holds? */
static bool
knows(const struct fal_coord *c, uint64_t who)
{
	const struct fal_balance *b = &c->balance;
	uint32_t i = 0;
	if (b->psld == NULL || b->who != who)
		return false;
	while (i < b->shards &&
	       fal_psld_count(b->psld, i) == c->map.of[b->order[i]].count)
		i++;
	return i == b->shards;
}

/* psld begins with the map that holds: the shards that have blocks in their order, then
 * those that could have some.  Without memory there is no psld. */
static void
begin_anew(struct fal_coord *c, uint64_t who)
{
	struct fal_balance *b = &c->balance;
	uint32_t count[FAL_SHARDS_MAX];
	b->shards = fal_map_in_order(&c->map, b->order);
	for (uint32_t i = 0; i < FAL_SHARDS_MAX; i++)
		if ((who & ~fal_map_busy(&c->map)) >> i & 1)
			b->order[b->shards++] = i;
	for (uint32_t i = 0; i < b->shards; i++)
		count[i] = c->map.of[b->order[i]].count;
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
	struct fal_balance *b = &c->balance;
	const uint64_t who = may | fal_map_busy(&c->map);
	struct fal_psld_seen seen[FAL_SHARDS_MAX];
	if (!b->due || c->move.waits || c->move.begun)
		return NULL;
	b->due = false;
	if (!knows(c, who))
		begin_anew(c, who);
	if (b->psld == NULL)
		return NULL;
	for (uint32_t i = 0; i < b->shards; i++)
		seen[i] = b->seen[b->order[i]];
	const enum fal_psld_act act = fal_psld_clock(b->psld, b->seconds, seen);
	if (act == FAL_PSLD_STAY)
		return NULL;
	*to = c->map;
	for (uint32_t i = 0, at = 0; i < b->shards; i++) {
		const uint32_t count = fal_psld_count(b->psld, i);
		to->of[b->order[i]] = (struct fal_extent){ count > 0 ? at : 0, count };
		if (count > 0 && b->order[i] >= to->shards)
			to->shards = b->order[i] + 1;
		at += count;
	}
	return name[act];
}
