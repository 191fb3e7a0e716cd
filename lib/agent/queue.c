/* Tasks that wait for a lane or for their version. */
#include "agent/priv.h"

#include "base/mem.h"

#include <stdlib.h>
#include <string.h>

/* Where the items of later rounds begin. */
static size_t
end_of(const struct fal_agent *a, uint64_t round)
{
	size_t low = 0, high = a->queue.n;
	while (low < high) {
		size_t mid = low + (high - low) / 2;
		if (a->queue.v[mid].round <= round)
			low = mid + 1;
		else
			high = mid;
	}
	return low;
}

/* Would the item go into the contribution? */
static bool
goes_into(const struct item *item, const struct contrib *c)
{
	return !item->check && !item->alone && item->seq == 0 &&
	       item->round == c->round && item->version == c->on->version &&
	       fal_cid_eq(item->fills, c->fills);
}

bool
agent_at_work(const struct fal_agent *a, const struct contrib *c)
{
	for (size_t i = end_of(a, c->round); i > 0 && a->queue.v[i - 1].round == c->round;
	     i--)
		if (goes_into(&a->queue.v[i - 1], c))
			return true;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (agent_trains(&a->lane[i]) && goes_into(&a->lane[i].item, c))
			return true;
	return false;
}

bool
agent_named(const struct fal_agent *a, uint64_t version)
{
	for (size_t i = 0; i < a->queue.n; i++)
		if (a->queue.v[i].version == version)
			return true;
	return false;
}

/* Is it one of `count` tasks of the round from `first` on, of kind check or not? */
static bool
is_of(const struct item *at, uint64_t round, uint32_t first, uint32_t count, bool check)
{
	return at->round == round && at->check == check && at->task - first < count;
}

/* Which of `count` tasks from that of `item` on are queued or being run already, by task.
 */
static void
mark_held(const struct fal_agent *a, const struct item *item, uint32_t count, bool *held)
{
	const uint64_t round = item->round;
	const uint32_t first = item->task;
	for (size_t i = end_of(a, round); i > 0 && a->queue.v[i - 1].round == round; i--)
		if (is_of(&a->queue.v[i - 1], round, first, count, item->check))
			held[a->queue.v[i - 1].task - first] = true;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++)
		if (agent_trains(&a->lane[i]) &&
		    is_of(&a->lane[i].item, round, first, count, item->check))
			held[a->lane[i].item.task - first] = true;
}

/* The tasks from that of `item` on that are not held: behind those of their round, but
 * checks before them, as nobody waits for a check when the round is over. */
static int
enqueue(struct fal_agent *a, struct item item, const bool *held, uint32_t count)
{
	uint32_t fresh = 0;
	for (uint32_t i = 0; i < count; i++)
		fresh += !held[i];
	if (FAL_GROW(a->queue.v, a->queue.cap, a->queue.n + fresh) < 0)
		return FAL_ENOMEM;
	const size_t before = item.round > 0 ? end_of(a, item.round - 1) : 0;
	struct item *at = a->queue.v + (item.check ? before : end_of(a, item.round));
	memmove(at + fresh, at, (size_t)(a->queue.v + a->queue.n - at) * sizeof(item));
	a->queue.n += fresh;
	for (uint32_t i = 0; i < count; i++, item.task++)
		if (!held[i])
			*at++ = item;
	return FAL_OK;
}

/* May there be local steps? */
static bool
may_step(struct fal_agent *a)
{
	struct fal_agent_most to = a->conf.most;
	to.own = to.delta = true;
	return to.versions == 0 || a->conf.most.delta || agent_grow(a, &to);
}

int
agent_on_grant(struct fal_agent *a, const struct fal_msg *m)
{
	const bool delta = m->grant.kind == FAL_KIND_DELTA;
	const bool check = m->grant.kind == FAL_KIND_CHECK;
	if (a->leaving)
		return FAL_OK;
	if (m->grant.count > MOST_TASKS - a->queue.n)
		return FAL_ELIMIT;
	if (m->grant.seq != 0 &&
	    (m->grant.seq < FAL_PRECLAIMED || m->grant.kind != FAL_KIND_GRAD))
		return FAL_EFORMAT;
	if (!delta && !check && m->grant.kind != FAL_KIND_GRAD)
		return FAL_EFORMAT;
	/* Nobody here has weights to step, and members claim for themselves. */
	if ((delta || m->grant.seq != 0) && a->conf.outer)
		return FAL_EINVAL;
	if (delta && !may_step(a))
		return FAL_OK;
	int err = delta ? agent_local_grant(a, m) : FAL_OK;
	if (err < 0 || m->grant.count == 0)
		return err;
	const struct item item = {
		.round = m->grant.round,
		.clock = m->grant.clock,
		.version = m->grant.version,
		.task = m->grant.first,
		.delta = delta,
		.check = check,
		.seq = m->grant.seq,
		.fills = { m->grant.fills_worker, m->grant.fills_seq },
	};
	bool *held = fal_calloc(m->grant.count, sizeof(*held));
	if (held == NULL)
		return FAL_ENOMEM;
	mark_held(a, &item, m->grant.count, held);
	if (item.seq != 0)
		err = memchr(held, 1, m->grant.count * sizeof(*held)) != NULL
			      ? FAL_ESTATE
			      : agent_preclaimed(a, m);
	if (err == FAL_OK)
		err = enqueue(a, item, held, m->grant.count);
	free(held);
	return err == FAL_OK ? agent_dispatch(a) : err;
}

bool
agent_next(struct fal_agent *a, struct item *item, struct snapshot **on)
{
	for (size_t i = 0; i < a->queue.n; i++) {
		const struct item *q = &a->queue.v[i];
		struct snapshot *s = q->delta   ? agent_local_on(a, q)
				     : q->check ? agent_version(a, q->version)
						: agent_to_begin(a, q->version);
		bool alone;
		if (s == NULL || !agent_affords(a, q, &alone))
			continue;
		*on = s;
		*item = *q;
		item->alone = alone;
		memmove(a->queue.v + i, a->queue.v + i + 1,
			(--a->queue.n - i) * sizeof(*q));
		return true;
	}
	return false;
}

void
agent_take_back(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count,
		bool check)
{
	size_t kept = 0;
	for (size_t i = 0; i < a->queue.n; i++)
		if (!is_of(&a->queue.v[i], round, first, count, check))
			a->queue.v[kept++] = a->queue.v[i];
	a->queue.n = kept;
	for (uint32_t i = 0; i < a->conf.lanes_max; i++) {
		const struct lane *l = &a->lane[i];
		if (agent_trains(l) && is_of(&l->item, round, first, count, check))
			agent_cancel(a, i);
	}
}

int
agent_on_revoke(struct fal_agent *a, const struct fal_msg *m)
{
	const bool check = m->revoke.check != 0;
	int err = FAL_OK;
	if (!check && agent_local(a, m->revoke.round) != NULL)
		err = agent_local_kill(a, m->revoke.round);
	else
		agent_take_back(a, m->revoke.round, m->revoke.first, m->revoke.count,
				check);
	if (err == FAL_OK && !check)
		err = agent_drop_preclaimed(a, m->revoke.round, m->revoke.first,
					    m->revoke.count);
	if (err == FAL_OK)
		err = agent_dispatch(a);
	return err == FAL_OK ? agent_close(a) : err;
}
