/* Blocks that go from one shard to another while the job runs. */
#include "cluster_priv.h"

/* May it have blocks?  Who is gone, or never was reached, does not. */
static bool
is_there(const struct cluster *c, uint32_t i)
{
	return !c->p->apart || !c->link[i].gone;
}

/* Any of those that are there, in any order, and any cuts. */
static struct fal_map
draw_cuts(const struct cluster *c, struct fal_rng *r)
{
	const uint32_t blocks = fal_blocks(c->p->toy.n);
	uint32_t who[MAX_SHARDS], n = 0, at = 0;
	const uint32_t now = c->map.shards, all = now > c->p->most ? now : c->p->most;
	struct fal_map map = { .shards = all };
	for (uint32_t i = 0; i < all; i++)
		if (is_there(c, i))
			who[n++] = i;
	const uint32_t want = 1 + fal_rng_below(r, n < blocks ? n : blocks);
	for (uint32_t left = want; left > 0; left--) {
		const uint32_t k = fal_rng_below(r, n), i = who[k];
		const uint32_t most = blocks - at - (left - 1);
		who[k] = who[--n];
		map.of[i].first = at;
		map.of[i].count = left > 1 ? 1 + fal_rng_below(r, most) : most;
		at += map.of[i].count;
	}
	return map;
}

/* One has none any more, or one gets its first, where that can be; or anything. */
static struct fal_map
draw_map(const struct cluster *c, struct fal_rng *r)
{
	struct fal_map map = c->map;
	const uint32_t one = fal_rng_below(r, c->p->most), what = fal_rng_below(r, 3);
	const bool has = map.of[one].count > 0;
	if (what == 0 && has && fal_map_drain(&map, UINT64_C(1) << one) == FAL_OK)
		return map;
	if (what == 1 && !has && is_there(c, one) &&
	    fal_map_split_largest(&map, one) == FAL_OK)
		return map;
	return draw_cuts(c, r);
}

void
moves_watch(struct cluster *c, const struct fal_coord_status *s)
{
	const struct plan *p = c->p;
	for (; c->moves < p->moves && s->clock >= p->move[c->moves].clock; c->moves++)
		cluster_push(c, (struct event){ .kind = MOVE,
						.lane = c->moves,
						.t = c->now + p->move[c->moves].after });
}

void
moves_begin(struct cluster *c, const struct event *e)
{
	struct fal_rng r = fal_rng_init(c->p->move[e->lane].seed, FAL_RNG_TEST, 17);
	struct fal_diag diag;
	for (uint32_t i = 0; i < c->p->most; i++)
		if (!is_there(c, i) && c->map.of[i].count > 0)
			return; /* all begin again soon */
	const struct fal_map map = draw_map(c, &r);
	int err = fal_coord_move_blocks(c->coord, c->now, &map, "control", &diag);
	cluster_ok(c, err == FAL_ESTATE ? FAL_OK : err, "a move");
}

void
moves_balance(struct cluster *c)
{
	struct fal_map map;
	struct fal_diag diag;
	uint64_t may = 0;
	for (uint32_t i = 0; i < c->p->most; i++) {
		may |= (uint64_t)is_there(c, i) << i;
		if (!is_there(c, i) && c->map.of[i].count > 0)
			return; /* all begin again soon */
	}
	const char *by = c->p->psld ? fal_coord_balance(c->coord, may, &map) : NULL;
	if (by == NULL)
		return;
	int err = fal_coord_move_blocks(c->coord, c->now, &map, by, &diag);
	cluster_ok(c, err == FAL_ESTATE ? FAL_OK : err, by);
	c->seen[SEEN_PLACED_PSLD]++;
}

void
moves_moved(void *arg, const struct fal_map *map, int err)
{
	struct cluster *c = arg;
	if (err < 0)
		return;
	c->placed = map->epoch;
	c->seen[SEEN_PLACED]++;
	c->seen[SEEN_PLACED_FAR] += c->p->apart;
	for (uint32_t i = 0; i < map->shards; i++) {
		const bool had = c->map.of[i].count > 0, has = map->of[i].count > 0;
		c->seen[SEEN_PLACED_JOIN] += !had && has;
		c->seen[SEEN_PLACED_DRAIN] += had && !has;
	}
	c->map = *map;
}

/* Sends a worker again the versions that a dead shard without blocks still owed.  The
 * real falcon-work opens a new session for them; the simulator's worker keeps its
 * session. */
static void
send_again(struct cluster *c, uint32_t i, uint32_t shard)
{
	struct worker *w = &c->worker[i];
	if (!w->here || w->session != c->incarnation)
		return;
	for (uint32_t k = 0; k < w->told.n; k++) {
		struct told *t = &w->told.v[k];
		const bool lacks =
			t->left > 0 && !fal_agent_has_version(w->agent, t->version);
		if (!lacks ||
		    (k < w->heard && !fal_agent_awaits_shard(w->agent, shard + 1)))
			continue;
		t->left = UINT32_MAX; /* some blocks come twice */
		fleet_want(c, &(struct wanted){ i + 1, k + 1, t->version });
	}
}

bool
moves_mourn(struct cluster *c, uint32_t shard)
{
	if (c->map.of[shard].count > 0)
		return true;
	c->seen[SEEN_PLACED_STAY] += fal_coord_pending_map(c->coord) != NULL;
	cluster_ok(c, fal_coord_abort_move(c->coord, c->now), "stay");
	for (uint32_t i = 0; i < c->p->machines; i++)
		send_again(c, i, shard);
	return false;
}
