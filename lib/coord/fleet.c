/* The shards as the coordinator knows them: what they were told, and what they have said.
 *
 * A contribution is whole, a round complete, ended or taken back, a version made, when
 * all shards have said so. */
#include "coord/priv.h"

#include "base/mem.h"
#include "base/sorted.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

int
coord_order(struct fal_coord *c, const struct fal_shard_order *o)
{
	return c->ops.shards.order(c->ops.shards.arg, o);
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
	g->complete = g->beyond = 0;
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

/* One shard more has all of its part of the contribution.  1: all have. */
static int
is_whole(struct fal_coord *c, const struct fal_shard_say *say)
{
	struct fal_partly *p = NULL;
	if (c->conf.shards == 1)
		return 1;
	for (size_t i = 0; i < c->partlies && p == NULL; i++)
		if (c->partly[i].round == say->round &&
		    fal_cid_eq(c->partly[i].id, say->id))
			p = &c->partly[i];
	if (p == NULL) {
		if (FAL_GROW(c->partly, c->partly_cap, c->partlies + 1) < 0)
			return FAL_ENOMEM;
		p = &c->partly[c->partlies++];
		*p = (struct fal_partly){ .round = say->round, .id = say->id };
	}
	if (++p->shards < c->conf.shards)
		return 0;
	*p = c->partly[--c->partlies];
	return 1;
}

static int
on_arrived(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	const int whole = say->whole ? is_whole(c, say) : 0;
	if (whole < 0)
		return whole;
	return fal_sched_arrived(c->sched, now, say->round, say->id, say->blocks,
				 whole == 1);
}

static int
on_complete(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	if (g == NULL || g->turn != say->turn)
		return FAL_OK;
	if (say->beyond > 0 && (g->beyond == 0 || say->most > g->most)) {
		g->by = say->id;
		g->most = say->most;
	}
	g->beyond += say->beyond;
	return ++g->complete == c->conf.shards ? coord_judge(c, now, g) : FAL_OK;
}

/* What the contributions have left. */
static int
on_taken(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	struct fal_round_info r;
	if (g == NULL || !fal_sched_round(c->sched, say->round, &r))
		return FAL_OK;
	if (g->brought == NULL)
		g->brought = fal_calloc(r.ledger->contribs, sizeof(*g->brought));
	if (g->brought == NULL)
		return FAL_ENOMEM;
	g->taken_blocks += say->blocks;
	for (uint32_t i = 0; i < say->broughts; i++) {
		const uint32_t at = fal_ledger_find(r.ledger, say->brought[i].id);
		if (at != FAL_NONE)
			g->brought[at] += say->brought[i].blocks;
	}
	if (++g->taken < c->conf.shards)
		return FAL_OK;
	g->taken = 0;
	int err = coord_taken(c, now, g, &r);
	g = coord_gather(c, say->round);
	if (g != NULL) {
		free(g->brought);
		g->brought = NULL;
		g->taken_blocks = 0;
	}
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

static int
on_ended(struct fal_coord *c, const struct fal_shard_say *say)
{
	struct fal_news *n = news_of(c, FAL_ACT_END, say->round);
	if (say->odd != NULL)
		c->why = say->odd;
	if (n == NULL)
		return FAL_OK;
	n->said++;
	n->sent += say->sent;
	n->added += say->added;
	if (say->rank > 0) {
		n->act.weight = 1.0 / say->rank;
		n->act.count = say->rank;
	}
	return FAL_OK;
}

static int
on_stepped(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	struct fal_news *n = news_of(c, FAL_ACT_STEP, say->version);
	if (say->odd != NULL)
		c->why = say->odd;
	if (n == NULL || ++n->said < c->conf.shards)
		return FAL_OK;
	return coord_stepped(c, now, n);
}

static int
hear(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	switch (say->kind) {
	case FAL_SAY_ARRIVED:
		return on_arrived(c, now, say);
	case FAL_SAY_COMPLETE:
		return on_complete(c, now, say);
	case FAL_SAY_DOUBT:
		return coord_doubt(c, say);
	case FAL_SAY_HEARD:
		return coord_heard(c, now, say);
	case FAL_SAY_BOUNDED:
		return coord_bounded(c, now, say);
	case FAL_SAY_TAKEN:
		return on_taken(c, now, say);
	case FAL_SAY_SQUARES:
		memcpy(c->squares + say->first, say->squares,
		       say->blocks * sizeof(*c->squares));
		c->squared++;
		return FAL_OK;
	case FAL_SAY_ENDED:
		return on_ended(c, say);
	case FAL_SAY_STEPPED:
		return on_stepped(c, now, say);
	}
	return FAL_OK;
}

int
coord_hear(struct fal_coord *c, double now)
{
	struct fal_shard_say say;
	uint32_t shard;
	int err = FAL_OK;
	while (err == FAL_OK && c->ops.shards.next(c->ops.shards.arg, &shard, &say))
		err = hear(c, now, &say);
	return err;
}

int
coord_squares(struct fal_coord *c, double now, uint64_t round, double divisor,
	      double *out)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_SQUARES,
					   .round = round,
					   .divisor = divisor };
	const uint32_t blocks = fal_blocks(c->conf.params);
	*out = 0;
	if (c->conf.optim.clip <= 0)
		return FAL_OK;
	if (c->squares == NULL)
		c->squares = fal_calloc(blocks, sizeof(*c->squares));
	if (c->squares == NULL)
		return FAL_ENOMEM;
	c->squared = 0;
	int err = coord_order(c, &o);
	if (err == FAL_OK)
		err = coord_hear(c, now);
	/* Shards answer at once, as long as they are in the coordinator's process. */
	assert(err < 0 || c->squared == c->conf.shards);
	for (uint32_t b = 0; b < blocks; b++)
		*out += c->squares[b];
	return err;
}
