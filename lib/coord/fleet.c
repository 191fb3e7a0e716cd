/* The shards as the coordinator knows them: what they were told, and what they have said.
 *
 * A contribution is whole, a round complete or ended, a version made, when all shards
 * have said so. */
#include "coord/priv.h"

#include "base/mem.h"
#include "base/sorted.h"
#include "trace/chain.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A shard, and all of them that have blocks, as bits. */
static uint64_t
bit_of(uint32_t shard)
{
	return (uint64_t)1 << shard;
}

static uint64_t
all_of(const struct fal_coord *c)
{
	return fal_map_busy(&c->map);
}

bool
coord_have_all(const struct fal_coord *c, uint64_t said)
{
	return said == all_of(c);
}

bool
coord_all_say(const struct fal_coord *c, uint64_t *said, uint32_t shard)
{
	*said |= bit_of(shard);
	return coord_have_all(c, *said);
}

/* The job cannot go on, says a shard, whose words do not last. */
static void
hear_why(struct fal_coord *c, const struct fal_shard_say *say)
{
	if (say->odd == NULL)
		return;
	snprintf(c->odd, sizeof(c->odd), "%s", say->odd);
	c->why = c->odd;
}

/* ---- orders ------------------------------------------------------------------------ */

int
coord_order(struct fal_coord *c, const struct fal_shard_order *o)
{
	coord_call(c);
	int err = c->ops.shards.order(c->ops.shards.arg, o);
	coord_called(c);
	return err;
}

/* What all shards are clipped by, who wait for it: they say the squares of one order
 * after the other. */
static int
on_squares(struct fal_coord *c, uint32_t shard, const struct fal_shard_say *say)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	struct fal_shard_order o = { .kind = FAL_ORDER_SCALE };
	if (c->squares == NULL)
		c->squares = fal_calloc(blocks, sizeof(*c->squares));
	if (c->squares == NULL)
		return FAL_ENOMEM;
	memcpy(c->squares + say->first, say->squares, say->blocks * sizeof(*c->squares));
	if (!coord_all_say(c, &c->squared, shard))
		return FAL_OK;
	c->squared = 0;
	/* In the order of blocks: so the sum is the same however they are placed. */
	for (uint32_t b = 0; b < blocks; b++)
		o.squares += c->squares[b];
	coord_norm(c, say->version, o.squares);
	return coord_order(c, &o);
}

/* ---- rounds ------------------------------------------------------------------------ */

static size_t
place(const struct fal_coord *c, uint64_t round)
{
	return fal_sorted_place64(c->gather, c->gathers, sizeof(*c->gather), round);
}

struct fal_gather *
coord_gather(const struct fal_coord *c, uint64_t round)
{
	const size_t at = place(c, round);
	return at < c->gathers && c->gather[at].round == round ? &c->gather[at] : NULL;
}

int
coord_gather_open(struct fal_coord *c, uint64_t round)
{
	const size_t at = place(c, round);
	if (FAL_GROW(c->gather, c->gather_cap, c->gathers + 1) < 0)
		return FAL_ENOMEM;
	memmove(c->gather + at + 1, c->gather + at,
		(c->gathers++ - at) * sizeof(*c->gather));
	c->gather[at] = (struct fal_gather){ .round = round };
	return FAL_OK;
}

void
coord_gather_end(struct fal_coord *c, uint64_t round)
{
	struct fal_gather *g = coord_gather(c, round);
	if (g == NULL)
		return;
	free(g->partly);
	memmove(g, g + 1, (size_t)(c->gather + --c->gathers - g) * sizeof(*g));
}

void
coord_fleet_free(struct fal_coord *c)
{
	while (c->gathers > 0)
		coord_gather_end(c, c->gather[0].round);
	free(c->gather);
	free(c->squares);
	free(c->on);
}

/* The contribution, and its place in the ledger, for which there is room then; *out NULL:
 * there is none. */
static int
place_in(const struct fal_coord *c, struct fal_gather *g, struct fal_cid id, uint32_t *at,
	 const struct fal_contrib **out)
{
	struct fal_round_info r;
	const bool is = fal_sched_round(c->sched, g->round, &r);
	*out = NULL;
	*at = is ? fal_ledger_find(r.ledger, id) : FAL_NONE;
	if (*at == FAL_NONE)
		return FAL_OK;
	const uint32_t n = r.ledger->contribs;
	if (FAL_GROW(g->partly, g->partly_cap, n) < 0)
		return FAL_ENOMEM;
	while (g->places < n)
		g->partly[g->places++] = (struct fal_partly){ 0 };
	*out = &r.ledger->contrib[*at];
	return FAL_OK;
}

/* What comes behind the end of the round there a shard does not call whole. */
static int
on_arrived(struct fal_coord *c, double now, uint32_t shard,
	   const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	const struct fal_contrib *is;
	uint32_t at;
	if (g == NULL)
		return FAL_OK;
	int err = place_in(c, g, say->id, &at, &is);
	if (is == NULL)
		return err;
	uint64_t *whole = &g->partly[at].whole;
	*whole |= say->whole ? bit_of(shard) : 0;
	const bool all = say->whole && coord_have_all(c, *whole | g->over);
	if (all)
		*whole = 0;
	fal_sched_arrived(c->sched, now, say->round, say->id, say->blocks, all);
	return FAL_OK;
}

static int
on_fenced(struct fal_coord *c, double now, uint32_t shard,
	  const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	const struct fal_contrib *is;
	uint32_t at;
	if (g == NULL)
		return FAL_OK;
	int err = place_in(c, g, say->id, &at, &is);
	if (is == NULL)
		return err;
	/* None was told to, or all have said so. */
	if (is->state != FAL_CONTRIB_FENCED || is->everywhere)
		return FAL_OK;
	if (coord_all_say(c, &g->partly[at].fenced, shard))
		fal_sched_fenced(c->sched, now, say->round, say->id);
	return FAL_OK;
}

/* It is charged and ends, as if it had pushed that here. */
static int
on_refused(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	const struct fal_peer *p = coord_at_work(c, say->id.worker);
	if (p == NULL)
		return FAL_OK;
	if (say->err == FAL_ELIMIT || say->err == FAL_EINVAL)
		coord_charge_key(c, p);
	return coord_refuse(c, now, p->id, say->odd);
}

/* A worker's own steps follow each other: is one before it still waited for? */
static bool
is_behind(const struct fal_coord *c, const struct fal_round_info *r)
{
	struct fal_round_info is;
	for (size_t i = 0; i < c->gathers && c->gather[i].round < r->round; i++)
		if (r->delta && fal_sched_round(c->sched, c->gather[i].round, &is) &&
		    is.delta && is.owner == r->owner)
			return true;
	return false;
}

/* The round is complete, if all shards have their part of it, or have done with it. */
static int
complete(struct fal_coord *c, double now, const struct fal_gather *g)
{
	struct fal_round_info r;
	if (c->why != NULL || !coord_have_all(c, g->complete | g->over) ||
	    !fal_sched_round(c->sched, g->round, &r))
		return FAL_OK;
	/* An order that is on its way ends it. */
	if (!r.armed && !is_behind(c, &r))
		fal_sched_complete(c->sched, now, r.round);
	return FAL_OK;
}

int
coord_complete_behind(struct fal_coord *c, double now)
{
	struct fal_round_info is;
	int err = FAL_OK;
	for (size_t i = 0; i < c->gathers && err == FAL_OK; i++)
		if (fal_sched_round(c->sched, c->gather[i].round, &is) && is.delta)
			err = complete(c, now, &c->gather[i]);
	return err;
}

/* The shard has its part of the round, or has done with it. */
static int
has_all(struct fal_coord *c, double now, struct fal_gather *g, uint64_t *said,
	uint32_t shard)
{
	const uint64_t was = g->complete | g->over;
	*said |= bit_of(shard);
	return (g->complete | g->over) != was ? complete(c, now, g) : FAL_OK;
}

static int
on_complete(struct fal_coord *c, double now, uint32_t shard,
	    const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	return g != NULL ? has_all(c, now, g, &g->complete, shard) : FAL_OK;
}

/* ---- what is told when all have said so -------------------------------------------- */

static struct fal_news *
news_of(const struct fal_coord *c, enum fal_act_kind kind, uint64_t number)
{
	for (uint32_t i = 0; i < c->newses; i++) {
		struct fal_news *n = &c->news[i];
		if (n->act.kind == kind &&
		    (kind == FAL_ACT_END ? n->act.round : n->version) == number)
			return n;
	}
	return NULL;
}

/* Blocks that a shard has left as they were. */
static void
add_unstepped(struct fal_news *n, const struct fal_shard_say *say)
{
	if (say->beyond > 0 && (n->unstepped == 0 || say->most > n->most)) {
		n->by = say->id.worker;
		n->most = say->most;
	}
	n->unstepped += say->beyond;
}

/* What the contributions have added at a shard. */
static int
add_sums(const struct fal_coord *c, struct fal_news *n, const struct fal_shard_say *say)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, say->round, &r))
		return FAL_OK;
	if (FAL_GROW(n->sum, n->sum_cap, r.ledger->contribs) < 0)
		return FAL_ENOMEM;
	while (n->sums < r.ledger->contribs)
		n->sum[n->sums++] = 0;
	for (uint32_t i = 0; i < say->broughts; i++) {
		const uint32_t at = fal_ledger_find(r.ledger, say->brought[i].id);
		if (at != FAL_NONE)
			n->sum[at] += say->brought[i].sum;
	}
	n->added += say->added;
	return FAL_OK;
}

static int
on_ended(struct fal_coord *c, double now, uint32_t shard, const struct fal_shard_say *say)
{
	struct fal_news *n = news_of(c, FAL_ACT_END, say->round);
	struct fal_gather *g = coord_gather(c, say->round);
	hear_why(c, say);
	if (n == NULL || (n->said & bit_of(shard)) != 0)
		return FAL_OK;
	n->said |= bit_of(shard);
	add_unstepped(n, say);
	if (c->conf.audit_sums && add_sums(c, n, say) < 0)
		return FAL_ENOMEM;
	if (say->rank > 0) {
		n->act.weight = 1.0 / say->rank;
		n->act.count = say->rank;
	}
	return g != NULL ? has_all(c, now, g, &g->over, shard) : FAL_OK;
}

/* The leaves and exponents of a shard's blocks; with those of all, the hashes of the
 * version. */
static int
on_leaves(const struct fal_coord *c, struct fal_news *n, const struct fal_shard_say *say)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	if (n->leaves == NULL)
		n->leaves = fal_calloc(blocks, FAL_HASH_BYTES + 1);
	if (n->leaves == NULL)
		return FAL_ENOMEM;
	int8_t *exps = (int8_t *)(n->leaves + (size_t)blocks * FAL_HASH_BYTES);
	memcpy(exps + say->first, say->exps, say->blocks);
	memcpy(n->leaves + (size_t)say->first * FAL_HASH_BYTES, say->leaves,
	       (size_t)say->blocks * FAL_HASH_BYTES);
	if (!coord_have_all(c, n->said))
		return FAL_OK;
	fal_leaf_root(n->leaves, blocks, n->hash);
	fal_leaf_exponents(exps, blocks, n->exponents);
	n->hashed = true;
	free(n->leaves);
	n->leaves = NULL;
	return FAL_OK;
}

static int
on_stepped(struct fal_coord *c, double now, uint32_t shard,
	   const struct fal_shard_say *say)
{
	struct fal_news *n = news_of(c, FAL_ACT_STEP, say->version);
	hear_why(c, say);
	if (n == NULL || (n->said & bit_of(shard)) != 0)
		return FAL_OK;
	n->said |= bit_of(shard);
	add_unstepped(n, say);
	int err = say->leaves != NULL ? on_leaves(c, n, say) : FAL_OK;
	return err < 0 || !coord_have_all(c, n->said) ? err : coord_stepped(c, now, n);
}

/* Who has no block is asked nothing but whether it can have some. */
static bool
is_asked(const struct fal_coord *c, uint32_t shard, const struct fal_shard_say *say)
{
	return (all_of(c) & bit_of(shard)) != 0 || say->kind == FAL_SAY_MIGRATED ||
	       say->kind == FAL_SAY_REFUSED;
}

/* The worker whose values a shard calls too large has worked here. */
static bool
can_be(const struct fal_coord *c, const struct fal_shard_say *say)
{
	if (say->beyond == 0)
		return true;
	return say->id.worker - 1 < c->workers &&
	       coord_known(c, say->id.worker)->key != 0;
}

static int
hear(struct fal_coord *c, double now, uint32_t shard, const struct fal_shard_say *say)
{
	if (!is_asked(c, shard, say))
		return FAL_OK;
	if (!can_be(c, say)) {
		c->why = "a shard speaks of work that nobody has done";
		return FAL_OK;
	}
	switch (say->kind) {
	case FAL_SAY_ARRIVED:
		return on_arrived(c, now, shard, say);
	case FAL_SAY_COMPLETE:
		return on_complete(c, now, shard, say);
	case FAL_SAY_FENCED:
		return on_fenced(c, now, shard, say);
	case FAL_SAY_REFUSED:
		return on_refused(c, now, say);
	case FAL_SAY_SQUARES:
		return on_squares(c, shard, say);
	case FAL_SAY_ENDED:
		return on_ended(c, now, shard, say);
	case FAL_SAY_STEPPED:
		return on_stepped(c, now, shard, say);
	case FAL_SAY_MIGRATED:
		return coord_migrated(c, now, shard, say);
	}
	return FAL_OK;
}

/* The next thing that a shard says; false: there is none. */
static bool
next_say(struct fal_coord *c, uint32_t *shard, struct fal_shard_say *out)
{
	coord_call(c);
	bool any = c->ops.shards.next(c->ops.shards.arg, shard, out);
	coord_called(c);
	return any;
}

int
coord_hear(struct fal_coord *c, double now)
{
	struct fal_shard_say say;
	uint32_t shard;
	int err = FAL_OK;
	while (err == FAL_OK && next_say(c, &shard, &say))
		err = hear(c, now, shard, &say);
	return err;
}
