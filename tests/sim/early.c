/* A version leaves while it is made (design.md, D51), as falcon-ps has it: what a shard
 * has made of it goes to whoever waits for it, in drawn pieces at drawn moments, and its
 * first message when all of it is made. */
#include "cluster_priv.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>

void
early_begin(struct cluster *c)
{
	c->pieces = fal_rng_init(c->p->toy.seed, FAL_RNG_TEST, 39);
}

/* Blocks of a message, at most, be it as long as those of falcon-ps or not. */
static uint32_t
most(const struct cluster *c)
{
	return c->p->blocks > 0 ? c->p->blocks : FAL_MODEL_BLOCKS;
}

static uint32_t
messages(const struct cluster *c, const struct fal_shard_part *part)
{
	return (part->count + most(c) - 1) / most(c);
}

static void
send(struct cluster *c, const struct fal_shard_part *part, const struct wanted *to,
     uint32_t at)
{
	const uint32_t b = at * most(c), left = part->count - b;
	ops_model(c, part, to, b, left < most(c) ? left : most(c));
}

static struct early *
find(const struct cluster *c, uint32_t shard, const struct wanted *to)
{
	for (size_t i = 0; i < c->early.n; i++) {
		struct early *e = &c->early.v[i];
		if (e->shard == shard && e->to.peer == to->peer &&
		    e->to.order == to->order)
			return e;
	}
	return NULL;
}

/* May it die, though it is not in the plan that it does? */
static bool
may_die(const struct cluster *c, uint32_t i)
{
	const struct machine *m = &c->p->machine[i];
	const bool lives = fmin(m->crash_at, m->leave_at) == INFINITY;
	return c->worker[i].here && lives && m->group == NULL && m->again == 0 &&
	       m->lie == HONEST && !plan_flips(c->p, i);
}

/* The coordinator dies, where that is planned; else the first worker that may, but not
 * the last one, which lives to the end. */
static void
strike(struct cluster *c)
{
	uint32_t i = 0;
	if (restart_now(c, 0))
		return;
	while (i + 1 < c->p->machines && !may_die(c, i))
		i++;
	if (i + 1 < c->p->machines)
		cluster_push(c,
			     (struct event){ .kind = CRASH, .worker = i, .t = c->now });
}

static struct early *
begin(struct cluster *c, const struct fal_shard_part *part, const struct wanted *to)
{
	int err = FAL_GROW(c->early.v, c->early.cap, c->early.n + 1);
	assert(err == FAL_OK);
	struct early *e = &c->early.v[c->early.n++];
	*e = (struct early){ .to = *to,
			     .shard = part->shard,
			     .left = fal_calloc(messages(c, part), 1) };
	assert(e->left != NULL);
	ops_published(c, part, to);
	if (++c->seen[SEEN_EARLY] == c->p->dies)
		strike(c);
	return e;
}

/* Can message `at` leave?  Not the first one: it says that all of the part is made. */
static bool
can_leave(const struct cluster *c, const struct fal_shard_part *part, const uint8_t *made,
	  uint32_t at)
{
	for (uint32_t b = at * most(c); b < part->count && b < (at + 1) * most(c); b++)
		if (!made[b])
			return false;
	return at > 0;
}

/* The next of those that can leave and have not; `all`: there is none. */
static uint32_t
next(const struct cluster *c, const struct early *e, const struct fal_shard_part *part,
     const uint8_t *made)
{
	const uint32_t all = messages(c, part);
	uint32_t at = 0;
	while (at < all && (!can_leave(c, part, made, at) || (e != NULL && e->left[at])))
		at++;
	return at;
}

/* Is it the worker's that is to come? */
static bool
is_here(const struct cluster *c, const struct wanted *to)
{
	const struct worker *w = &c->worker[to->peer - 1];
	return w->here && w->session == c->incarnation;
}

void
early_some(struct cluster *c, uint32_t shard, const struct wanted *to)
{
	struct fal_shard_part part;
	struct fal_shard_making is;
	if (c->p->blocks == 0 || c->p->psld || !is_here(c, to) ||
	    !fal_shard_set_making(c->shards.shard_set, shard, to->version, &part, &is))
		return;
	struct early *e = find(c, shard, to);
	const uint32_t all = messages(c, &part);
	uint32_t at = next(c, e, &part, is.made);
	if (at == all || fal_rng_below(&c->pieces, 2) == 0)
		return;
	if (e == NULL)
		e = begin(c, &part, to);
	for (uint32_t n = 1 + fal_rng_below(&c->pieces, 3); at < all && n > 0; n--) {
		send(c, &part, to, at);
		e->left[at] = 1;
		at = next(c, e, &part, is.made);
	}
	c->worker[to->peer - 1].early = to->version;
}

/* Nothing of it is waited for any more. */
static void
end(struct cluster *c, struct early *e)
{
	free(e->left);
	*e = c->early.v[--c->early.n];
}

void
early_rest(struct cluster *c, const struct fal_shard_part *part, const struct wanted *to)
{
	struct early *e = find(c, part->shard, to);
	const uint32_t all = messages(c, part);
	if (e == NULL)
		ops_published(c, part, to);
	for (uint32_t at = 0; at < all; at++)
		if (e == NULL || !e->left[at])
			send(c, part, to, at);
	if (e != NULL)
		end(c, e);
}

void
early_drop(struct cluster *c, const struct wanted *to)
{
	for (uint32_t i = 0; i < fal_shard_set_count(c->shards.shard_set); i++) {
		struct early *e = find(c, i, to);
		if (e != NULL)
			end(c, e);
	}
}

bool
early_any(const struct cluster *c)
{
	return c->early.n > 0;
}

void
early_forget(struct cluster *c)
{
	while (c->early.n > 0)
		end(c, &c->early.v[0]);
}

void
early_end(struct cluster *c)
{
	early_forget(c);
	free(c->early.v);
}
