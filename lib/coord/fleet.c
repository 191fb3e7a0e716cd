/* The shards as the coordinator knows them: what they were told, and what they have said.
 *
 * A contribution is whole, a round complete, ended or taken back, a version made, when
 * all shards have said so. */
#include "coord/priv.h"

#include "base/mem.h"
#include "base/sorted.h"

#include <stdlib.h>
#include <string.h>

/* ---- orders ------------------------------------------------------------------------ */

static int
tell(struct fal_coord *c, const struct fal_shard_order *o)
{
	coord_call(c);
	int err = c->ops.shards.order(c->ops.shards.arg, o);
	coord_called(c);
	return err;
}

/* The order waits for its squares, or for one that does. */
static int
put_by(struct fal_coord *c, const struct fal_shard_order *o)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	struct fal_put_by p = { .order = *o };
	if (FAL_GROW(c->put_by, c->put_by_cap, c->put_bys + 1) < 0)
		return FAL_ENOMEM;
	if (o->seen != NULL) {
		p.seen = fal_calloc(blocks, 1);
		if (p.seen == NULL)
			return FAL_ENOMEM;
		memcpy(p.seen, o->seen, blocks);
		p.order.seen = p.seen;
	}
	c->put_by[c->put_bys++] = p;
	return FAL_OK;
}

static int
ask_squares(struct fal_coord *c, const struct fal_shard_order *of)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_SQUARES,
					   .round = of->kind == FAL_ORDER_END
							    ? of->round
							    : UINT64_MAX,
					   .divisor = of->divisor };
	if (c->squares == NULL)
		c->squares = fal_calloc(fal_blocks(c->conf.params), sizeof(*c->squares));
	if (c->squares == NULL)
		return FAL_ENOMEM;
	c->squared = 0;
	return tell(c, &o);
}

int
coord_order(struct fal_coord *c, const struct fal_shard_order *o)
{
	const bool first = c->put_bys == 0;
	int err = first && !o->clipped ? tell(c, o) : put_by(c, o);
	return err == FAL_OK && first && o->clipped ? ask_squares(c, o) : err;
}

/* All squares are here: the order that waited for them goes out, and those behind it, up
 * to the next one that has to wait. */
static int
go_on(struct fal_coord *c)
{
	struct fal_shard_order *first = &c->put_by[0].order;
	size_t n = 0;
	int err = FAL_OK;
	/* In the order of blocks: so the sum is the same however they are placed. */
	for (uint32_t b = 0; b < fal_blocks(c->conf.params); b++)
		first->squares += c->squares[b];
	if (first->kind == FAL_ORDER_STEP)
		coord_norm(c, first->version, first->squares);
	first->clipped = false;
	for (; n < c->put_bys && !c->put_by[n].order.clipped && err == FAL_OK; n++) {
		err = tell(c, &c->put_by[n].order);
		free(c->put_by[n].seen);
	}
	c->put_bys -= n;
	memmove(c->put_by, c->put_by + n, c->put_bys * sizeof(*c->put_by));
	return err == FAL_OK && c->put_bys > 0 ? ask_squares(c, &c->put_by[0].order)
					       : err;
}

static int
on_squares(struct fal_coord *c, const struct fal_shard_say *say)
{
	memcpy(c->squares + say->first, say->squares, say->blocks * sizeof(*c->squares));
	return ++c->squared == c->conf.shards ? go_on(c) : FAL_OK;
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
	free(g->took);
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
	for (size_t i = 0; i < c->put_bys; i++)
		free(c->put_by[i].seen);
	free(c->put_by);
	free(c->gather);
	free(c->partly);
	free(c->squares);
}

/* One shard more says so of the contribution.  1: all have. */
static int
all_say(struct fal_coord *c, const struct fal_shard_say *say)
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
	if (++p->shards < c->conf.shards)
		return 0;
	*p = c->partly[--c->partlies];
	return 1;
}

/* The contribution has so many blocks more at a shard that has taken back what it
 * should. */
static int
brought(struct fal_coord *c, struct fal_gather *g, struct fal_cid id, uint32_t blocks)
{
	struct fal_round_info r;
	const bool is = fal_sched_round(c->sched, g->round, &r);
	const uint32_t n = is ? r.ledger->contribs : 0;
	const uint32_t at =
		is && id.worker != 0 ? fal_ledger_find(r.ledger, id) : FAL_NONE;
	if (FAL_GROW(g->brought, g->brought_cap, (size_t)n) < 0)
		return FAL_ENOMEM;
	while (g->broughts < n)
		g->brought[g->broughts++] = 0;
	if (at != FAL_NONE)
		g->brought[at] += blocks;
	return FAL_OK;
}

static int
on_arrived(struct fal_coord *c, double now, uint32_t shard,
	   const struct fal_shard_say *say)
{
	struct fal_gather *g = coord_gather(c, say->round);
	if (g == NULL)
		return FAL_OK;
	if (g->took != NULL && g->took[shard] && brought(c, g, say->id, say->blocks) < 0)
		return FAL_ENOMEM;
	const int whole = say->whole ? all_say(c, say) : 0;
	if (whole < 0)
		return whole;
	return fal_sched_arrived(c->sched, now, say->round, say->id, say->blocks,
				 whole == 1);
}

static int
on_fenced(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	if (coord_gather(c, say->round) == NULL)
		return FAL_OK;
	const int all = all_say(c, say);
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

/* What the contributions have left, and what came of them since. */
static int
on_taken(struct fal_coord *c, double now, uint32_t shard, const struct fal_shard_say *say)
{
	static const struct fal_cid none = { 0, 0 };
	struct fal_gather *g = coord_gather(c, say->round);
	struct fal_round_info r;
	int err = FAL_OK;
	if (g == NULL)
		return FAL_OK;
	if (g->took == NULL)
		g->took = fal_calloc(c->conf.shards, sizeof(*g->took));
	if (g->took == NULL)
		return FAL_ENOMEM;
	g->took[shard] = true;
	g->taken_blocks += say->blocks;
	for (uint32_t i = 0; i < say->broughts && err == FAL_OK; i++)
		err = brought(c, g, say->brought[i].id, say->brought[i].blocks);
	if (err < 0 || ++g->taken < c->conf.shards)
		return err;
	/* Others may have begun since. */
	err = brought(c, g, none, 0);
	if (err == FAL_OK && fal_sched_round(c->sched, say->round, &r))
		err = coord_taken(c, now, g, &r);
	g = coord_gather(c, say->round);
	if (g == NULL)
		return err;
	free(g->took);
	g->took = NULL;
	g->taken = g->taken_blocks = g->broughts = 0;
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
hear(struct fal_coord *c, double now, uint32_t shard, const struct fal_shard_say *say)
{
	switch (say->kind) {
	case FAL_SAY_ARRIVED:
		return on_arrived(c, now, shard, say);
	case FAL_SAY_COMPLETE:
		return on_complete(c, now, say);
	case FAL_SAY_DOUBT:
		return coord_doubt(c, say);
	case FAL_SAY_HEARD:
		return coord_heard(c, now, say);
	case FAL_SAY_BOUNDED:
		return coord_bounded(c, now, say);
	case FAL_SAY_TAKEN:
		return on_taken(c, now, shard, say);
	case FAL_SAY_FENCED:
		return on_fenced(c, now, say);
	case FAL_SAY_REFUSED:
		return on_refused(c, now, say);
	case FAL_SAY_SQUARES:
		return on_squares(c, say);
	case FAL_SAY_ENDED:
		return on_ended(c, say);
	case FAL_SAY_STEPPED:
		return on_stepped(c, now, say);
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
