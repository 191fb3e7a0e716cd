/* Sums: how many there are, and whether a task finds room for its own.
 *
 * They are counted in halves: what has only ever been quantised takes one, what has grown
 * two (fal_sum_new).  A contribution of several tasks may grow, so it is charged two from
 * its first task on; who is alone in his is charged one.  A task begins only if its sum
 * and what it begins are within what there may be, and a half is left besides for the
 * tasks of what has begun: so that always ends, and what waits for it begins.
 */
#include "agent/priv.h"

#include "base/mem.h"

static size_t
halves(const struct fal_sum *s)
{
	return s == NULL ? 0 : fal_sum_grown(s) ? 2 : 1;
}

/* ---- the pool ---------------------------------------------------------------------- */

static struct fal_sum *
from_pool(struct fal_agent *a, size_t i)
{
	struct fal_sum *sum = a->pool.v[i];
	a->pool.v[i] = a->pool.v[--a->pool.n];
	return sum;
}

/* The place of one that has grown, or has not; pool.n: there is none. */
static size_t
pooled(const struct fal_agent *a, bool grown)
{
	size_t i = 0;
	while (i < a->pool.n && fal_sum_grown(a->pool.v[i]) != grown)
		i++;
	return i;
}

static void
free_sum(struct fal_agent *a, struct fal_sum *sum)
{
	a->halves -= halves(sum);
	fal_sum_free(sum);
}

/* Versions that there are beyond those that were judged, and `more`.  Each takes as much
 * as a half, which there may then be less. */
static size_t
beyond(const struct fal_agent *a, uint32_t more)
{
	const uint32_t most = a->conf.most.versions;
	const uint32_t is = a->live + more - (a->weights != NULL);
	return most == 0 || a->conf.most.delta || is <= most ? 0 : is - most;
}

/* Of what nobody uses so much goes that there are no more than so many halves. */
static void
shrink(struct fal_agent *a, size_t most)
{
	while (a->halves > most && a->pool.n > 0) {
		const size_t i = pooled(a, false);
		free_sum(a, from_pool(a, i < a->pool.n ? i : 0));
	}
}

/* As much goes as one half more takes. */
static void
make_room(struct fal_agent *a)
{
	if (a->conf.sums != 0)
		shrink(a, a->conf.sums - beyond(a, 0) - 1);
}

struct fal_sum *
agent_take_sum(struct fal_agent *a)
{
	const size_t i = pooled(a, false);
	if (i < a->pool.n)
		return from_pool(a, i);
	make_room(a);
	struct fal_sum *sum = fal_sum_new(a->conf.n);
	a->halves += sum != NULL;
	return sum;
}

struct fal_sum *
agent_take_grown(struct fal_agent *a)
{
	const size_t i = pooled(a, true);
	if (i == a->pool.n)
		return NULL;
	return from_pool(a, i);
}

int
agent_give_sum(struct fal_agent *a, struct fal_sum *sum)
{
	if (sum == NULL)
		return FAL_OK;
	/* Where others bring the sums, all that is taken from here is what those are
	 * added to. */
	if (a->conf.outer && (a->pool.n > 0 || !fal_sum_grown(sum))) {
		free_sum(a, sum);
		return FAL_OK;
	}
	if (FAL_GROW(a->pool.v, a->pool.cap, a->pool.n + 1) < 0) {
		free_sum(a, sum);
		return FAL_ENOMEM;
	}
	fal_sum_clear(sum);
	a->pool.v[a->pool.n++] = sum;
	return FAL_OK;
}

int
agent_add(struct fal_agent *a, struct fal_sum *to, struct fal_sum *sum)
{
	const bool grown = fal_sum_grown(to);
	if (!grown)
		make_room(a);
	int err = fal_sum_add(to, sum);
	fal_sum_clear(sum);
	a->halves += !grown && fal_sum_grown(to);
	return err;
}

size_t
fal_agent_holds(const struct fal_agent *a)
{
	return a->halves + a->live;
}

/* ---- room -------------------------------------------------------------------------- */

/* Do both go into the same contribution?  Not what is alone in its own. */
static bool
together(const struct item *one, const struct item *other)
{
	return !one->alone && !other->alone && !one->check && !other->check &&
	       one->round == other->round && one->seq == other->seq &&
	       one->version == other->version && fal_cid_eq(one->fills, other->fills);
}

/* Is there a contribution for it that has a task? */
static bool
has_contrib(const struct fal_agent *a, const struct item *item)
{
	for (size_t i = 0; i < a->contribs.n; i++) {
		const struct contrib *c = &a->contribs.v[i];
		if (c->on != NULL && c->round == item->round &&
		    (item->seq != 0 ? c->seq == item->seq
				    : !c->closed && c->on->version == item->version &&
					      fal_cid_eq(c->fills, item->fills)))
			return true;
	}
	return false;
}

/* Does lane i, or one before it, run a task of the same contribution? */
static bool
runs(const struct fal_agent *a, const struct item *item, uint32_t lanes)
{
	for (uint32_t i = 0; i < lanes; i++)
		if (agent_trains(&a->lane[i]) && together(&a->lane[i].item, item))
			return true;
	return false;
}

/* What lane i is charged: its sum, and what the first task of a contribution begins. */
static size_t
charged(const struct fal_agent *a, uint32_t i)
{
	const struct lane *l = &a->lane[i];
	const bool begins = agent_trains(l) && !l->item.check && !l->item.delta &&
			    !l->item.alone && !has_contrib(a, &l->item) &&
			    !runs(a, &l->item, i);
	return (size_t)(l->sum != NULL) + (begins ? 2 : 0);
}

static size_t
in_use(const struct fal_agent *a)
{
	size_t n = 0;
	for (size_t i = 0; i < a->pending.n; i++)
		n += a->pending.v[i].sum != NULL;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		n += charged(a, i);
	for (size_t i = 0; i < a->contribs.n; i++) {
		const struct contrib *c = &a->contribs.v[i];
		n += c->alone || c->early ? halves(c->sum) : c->on != NULL ? 2 : 0;
	}
	for (size_t i = 0; i < a->pushes.n; i++)
		n += halves(a->pushes.v[i].sum);
	for (size_t i = 0; i < a->locals.n; i++)
		n += a->locals.v[i].sum != NULL ? 2 : 0;
	return n;
}

/* Is another task queued that goes where this one does? */
static bool
followed(const struct fal_agent *a, const struct item *item)
{
	for (size_t i = 0; i < a->queue.n; i++)
		if (&a->queue.v[i] != item && together(&a->queue.v[i], item))
			return true;
	return false;
}

bool
agent_version_more(struct fal_agent *a)
{
	enum { LEAST = 3 }; /* halves with which all ends: a contribution and a task */
	struct fal_agent_most to = a->conf.most;
	const size_t more = beyond(a, 1);
	if (more == 0 || a->spare != NULL)
		return true;
	if (a->conf.sums >= more + LEAST && in_use(a) + more < a->conf.sums) {
		shrink(a, a->conf.sums - more);
		return true;
	}
	to.delay += to.own ? 0 : (uint32_t)more;
	to.versions += (uint32_t)more;
	a->denied = a->denied || !agent_grow(a, &to);
	return !a->denied;
}

bool
agent_spares(const struct fal_agent *a)
{
	return beyond(a, 0) == 0;
}

bool
agent_affords(const struct fal_agent *a, const struct item *item, bool *alone)
{
	*alone = false;
	if (a->conf.sums == 0 || item->delta)
		return true;
	const size_t most = a->conf.sums - beyond(a, 0), used = in_use(a);
	if (used == 0)
		return true;
	if (used >= most)
		return false;
	if (item->check || has_contrib(a, item) || runs(a, item, a->conf.lanes_max))
		return true;
	if (used + 3 <= most)
		return true;
	*alone = used + 2 <= most && !followed(a, item);
	return *alone;
}
