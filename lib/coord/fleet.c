/* The shards as the coordinator knows them: what they were told, and what they have said.
 *
 * A contribution is whole, a round complete, ended or taken back, a version made, when
 * all shards have said so. */
#include "coord/priv.h"

#include "base/mem.h"
#include "base/sorted.h"
#include "trace/leaf.h"

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
	free(g->brought);
	memmove(g, g + 1, (size_t)(c->gather + --c->gathers - g) * sizeof(*g));
	size_t kept = 0;
	for (size_t i = 0; i < c->partlies; i++)
		if (c->partly[i].round != round)
			c->partly[kept++] = c->partly[i];
	c->partlies = kept;
}

uint32_t
coord_turn(struct fal_gather *g)
{
	g->judged = 0;
	g->beyond = 0;
	return ++g->turn;
}

void
coord_fleet_free(struct fal_coord *c)
{
	while (c->gathers > 0)
		coord_gather_end(c, c->gather[0].round);
	free(c->gather);
	free(c->partly);
	free(c->squares);
}

bool
coord_gathered(const struct fal_coord *c, const struct fal_gather *g)
{
	return (g->judged | g->over) == all_of(c);
}

/* One shard more says so of the contribution; of what comes behind the end of the round
 * there a shard says nothing.  1: all have. */
static int
all_say(struct fal_coord *c, const struct fal_gather *g, uint32_t shard,
	const struct fal_shard_say *say)
{
	struct fal_partly *p = NULL;
	if (c->conf.shards == 1)
		return 1;
	for (size_t i = 0; i < c->partlies && p == NULL; i++)
		if (c->partly[i].round == say->round && c->partly[i].said == say->kind &&
		    fal_cid_eq(c->partly[i].id, say->id))
			p = &c->partly[i];
	if (p == NULL) {
		if (FAL_GROW(c->partly, c->partly_cap, c->partlies + 1) < 0)
			return FAL_ENOMEM;
		p = &c->partly[c->partlies++];
		*p = (struct fal_partly){ .round = say->round,
					  .id = say->id,
					  .said = say->kind };
	}
	p->shards |= bit_of(shard);
	const uint64_t over = say->kind == FAL_SAY_ARRIVED ? g->over : 0;
	if ((p->shards | over) != all_of(c))
		return 0;
	*p = c->partly[--c->partlies];
	return 1;
}

/* A shard has counted so many blocks more of a contribution. */
static int
bring(const struct fal_coord *c, struct fal_gather *g, uint32_t shard,
      const struct fal_brought *more)
{
	struct fal_round_info r;
	const bool is = fal_sched_round(c->sched, g->round, &r);
	const uint32_t at = is ? fal_ledger_find(r.ledger, more->id) : FAL_NONE;
	const uint32_t shards = c->conf.shards;
	if (at == FAL_NONE)
		return FAL_OK;
	if (FAL_GROW(g->brought, g->brought_cap, (size_t)r.ledger->contribs * shards) < 0)
		return FAL_ENOMEM;
	for (; g->broughts < r.ledger->contribs; g->broughts++)
		memset(g->brought + (size_t)g->broughts * shards, 0,
		       shards * sizeof(*g->brought));
	g->brought[(size_t)at * shards + shard] += more->blocks;
	return FAL_OK;
}

static int
on_arrived(struct fal_coord *c, double now, uint32_t shard,
	   const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	if (g == NULL)
		return FAL_OK;
	const struct fal_brought more = { .id = say->id, .blocks = say->blocks };
	if (bring(c, g, shard, &more) < 0)
		return FAL_ENOMEM;
	const int whole = say->whole ? all_say(c, g, shard, say) : 0;
	if (whole < 0)
		return whole;
	return fal_sched_arrived(c->sched, now, say->round, say->id, say->blocks,
				 whole == 1);
}

static int
on_fenced(struct fal_coord *c, double now, uint32_t shard,
	  const struct fal_shard_say *say)
{
	const struct fal_gather *g = coord_gather(c, say->round);
	if (g == NULL)
		return FAL_OK;
	const int all = all_say(c, g, shard, say);
	return all != 1 ? all : fal_sched_fenced(c->sched, now, say->round, say->id);
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

/* The shard has its part of the round, or has done with it.  When all have, those that
 * hold theirs learn what is made of it. */
static int
has_all(struct fal_coord *c, double now, struct fal_gather *g, uint64_t *said,
	uint32_t shard)
{
	const uint64_t was = g->judged | g->over;
	*said |= bit_of(shard);
	return (g->judged | g->over) != was && coord_gathered(c, g)
		       ? coord_judge(c, now, g)
		       : FAL_OK;
}

static int
on_complete(struct fal_coord *c, double now, uint32_t shard,
	    const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	if (g == NULL || g->turn != say->turn)
		return FAL_OK;
	if (say->beyond > 0 && (g->beyond == 0 || say->most > g->most)) {
		g->by = say->id;
		g->most = say->most;
	}
	g->beyond += say->beyond;
	return has_all(c, now, g, &g->judged, shard);
}

/* By place in the ledger: what all shards have counted; NULL: out of memory. */
static uint32_t *
brought_all(const struct fal_coord *c, const struct fal_gather *g, uint32_t contribs)
{
	uint32_t *all = fal_calloc(contribs, sizeof(*all));
	for (uint32_t i = 0; all != NULL && i < g->broughts * c->conf.shards; i++)
		all[i / c->conf.shards] += g->brought[i];
	return all;
}

/* What the contributions have left there; of a round that is over, all. */
static int
on_taken(struct fal_coord *c, double now, uint32_t shard, const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	struct fal_round_info r;
	if (g == NULL || !fal_sched_round(c->sched, say->round, &r))
		return FAL_OK;
	g->taken_blocks += say->blocks;
	for (uint32_t i = 0; i < g->broughts && say->ok; i++)
		g->brought[(size_t)i * c->conf.shards + shard] = 0;
	for (uint32_t i = 0; i < say->broughts; i++)
		if (bring(c, g, shard, &say->brought[i]) < 0)
			return FAL_ENOMEM;
	if (!coord_all_say(c, &g->taken, shard))
		return FAL_OK;
	uint32_t *all = brought_all(c, g, r.ledger->contribs);
	int err = all != NULL ? coord_taken(c, now, g, &r, all) : FAL_ENOMEM;
	free(all);
	g = coord_gather(c, say->round);
	if (g != NULL)
		g->taken = g->taken_blocks = 0;
	return err;
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
	memcpy(exps + say->first, say->counts, say->blocks);
	memcpy(n->leaves + (size_t)say->first * FAL_HASH_BYTES, say->leaves,
	       (size_t)say->blocks * FAL_HASH_BYTES);
	if (n->said != all_of(c))
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
	int err = say->leaves != NULL ? on_leaves(c, n, say) : FAL_OK;
	return err < 0 || n->said != all_of(c) ? err : coord_stepped(c, now, n);
}

static int
hear(struct fal_coord *c, double now, uint32_t shard, const struct fal_shard_say *say)
{
	switch (say->kind) {
	case FAL_SAY_ARRIVED:
		return on_arrived(c, now, shard, say);
	case FAL_SAY_COMPLETE:
		return on_complete(c, now, shard, say);
	case FAL_SAY_DOUBT:
		return coord_doubt(c, say);
	case FAL_SAY_HEARD:
		return coord_heard(c, now, shard, say);
	case FAL_SAY_BOUNDED:
		return coord_bounded(c, now, shard, say);
	case FAL_SAY_TAKEN:
		return on_taken(c, now, shard, say);
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
	case FAL_SAY_PLACED:
		return coord_placed(c, now, shard, say);
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
