/* Claims, and the contributions that they fill. */
#include "agent/priv.h"

#include "base/mem.h"

#include <string.h>

/* ---- contributions ----------------------------------------------------------------- */

/* Contribution i is over, and nothing more is made of it. */
static int
forget(struct fal_agent *a, size_t i)
{
	const struct contrib c = a->contribs.v[i];
	memmove(a->contribs.v + i, a->contribs.v + i + 1,
		(--a->contribs.n - i) * sizeof(c));
	agent_drop(a, c.on);
	return agent_give_sum(a, c.sum);
}

/* The place of an open contribution, or contribs.n. */
static size_t
place_of(const struct fal_agent *a, uint64_t round, uint32_t seq)
{
	size_t i = 0;
	while (i < a->contribs.n &&
	       (a->contribs.v[i].round != round || a->contribs.v[i].seq != seq))
		i++;
	return i;
}

/* `p` goes out, with the exponents of this version. */
static int
push_on(struct fal_agent *a, const struct snapshot *on, struct push *p)
{
	p->exps = fal_calloc(a->blocks, 1);
	if (p->exps != NULL)
		memcpy(p->exps, on->exps, a->blocks);
	return agent_push(a, p);
}

/* Contribution i goes out. */
static int
push_contrib(struct fal_agent *a, size_t i)
{
	struct contrib *c = &a->contribs.v[i];
	struct push p = { .ticket = c->ticket, .ticketed = true, .sum = c->sum };
	if (c->sum == NULL)
		return FAL_ESTATE; /* a ticket for nothing */
	c->sum = NULL;
	int err = push_on(a, c->on, &p);
	int gave = forget(a, i);
	return err == FAL_OK ? gave : err;
}

/* The push of a contribution is over, if there is one. */
static int
stop_push(struct fal_agent *a, uint64_t round, uint32_t seq)
{
	const size_t i = agent_push_of(a, round, seq);
	return i < a->pushes.n ? agent_push_end(a, i) : FAL_OK;
}

/* What is claimed for a contribution that is closed with that, and has nothing else, goes
 * out behind the claim: it counts if that is won, and a fence ends it if not. */
static int
push_early(struct fal_agent *a, struct pending *p)
{
	struct contrib *c = &a->contribs.v[place_of(a, p->round, p->seq)];
	struct push push = { .ticket = { .round = p->round,
					 .seq = p->seq,
					 .tasks = 1,
					 .fills_worker = c->fills.worker,
					 .fills_seq = c->fills.seq },
			     .early = true,
			     .sum = p->sum };
	bool only = c->tasks == 0;
	for (size_t i = 0; i < a->pending.n; i++)
		only &= &a->pending.v[i] == p || a->pending.v[i].round != p->round ||
			a->pending.v[i].seq != p->seq;
	if (!only || a->ops.early == NULL || !a->ops.early(a->ops.arg))
		return FAL_OK;
	p->sum = NULL;
	c->early = true;
	return push_on(a, c->on, &push);
}

/* Nothing goes into contribution i any more. */
static int
seal(struct fal_agent *a, struct contrib *c)
{
	struct fal_msg m = { .type = FAL_MSG_SEAL };
	c->closed = true;
	m.seal.round = c->round;
	m.seal.seq = c->seq;
	return agent_send(a, &m, false);
}

int
agent_close(struct fal_agent *a)
{
	int err = FAL_OK;
	for (size_t i = 0; i < a->contribs.n && err == FAL_OK; i++)
		if (!a->contribs.v[i].closed && !agent_at_work(a, &a->contribs.v[i]))
			err = seal(a, &a->contribs.v[i]);
	return err;
}

/* ---- claimed ahead ----------------------------------------------------------------- */

/* What is not done of contribution i is called off. */
static int
call_off(struct fal_agent *a, size_t i)
{
	const struct contrib c = a->contribs.v[i];
	agent_take_back(a, c.round, c.first, c.count, false);
	return forget(a, i);
}

int
agent_preclaimed(struct fal_agent *a, const struct fal_msg *m)
{
	const struct contrib c = { .round = m->grant.round,
				   .seq = m->grant.seq,
				   .closed = true,
				   .alone = m->grant.count == 1,
				   .first = m->grant.first,
				   .count = m->grant.count,
				   .due = m->grant.count };
	if (place_of(a, c.round, c.seq) < a->contribs.n)
		return FAL_ESTATE;
	if (FAL_GROW(a->contribs.v, a->contribs.cap, a->contribs.n + 1) < 0)
		return FAL_ENOMEM;
	a->contribs.v[a->contribs.n++] = c;
	return FAL_OK;
}

int
agent_drop_preclaimed(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count)
{
	int err = FAL_OK;
	for (size_t i = a->contribs.n; i-- > 0 && err == FAL_OK;) {
		const struct contrib *c = &a->contribs.v[i];
		if (c->round == round && c->due > 0 &&
		    (c->first - first < count || first - c->first < c->count))
			err = call_off(a, i);
	}
	return err;
}

int
agent_leave_preclaimed(struct fal_agent *a)
{
	int err = FAL_OK;
	for (size_t i = a->contribs.n; i-- > 0 && err == FAL_OK;)
		if (a->contribs.v[i].due > 0)
			err = forget(a, i);
	return err;
}

/* Adds a task's sum, which is taken: the first one is what the others are added to, where
 * none is there that has grown already. */
static int
add_task(struct fal_agent *a, struct contrib *c, struct fal_sum *sum)
{
	if (c->sum == NULL && !c->alone)
		c->sum = agent_take_grown(a);
	if (c->sum == NULL) {
		c->sum = sum;
		return FAL_OK;
	}
	int err = agent_add(a, c->sum, sum);
	int gave = agent_give_sum(a, sum);
	return err == FAL_OK ? gave : err;
}

/* Claimed ahead, it has all that its ticket, which is here, says. */
static bool
is_made(const struct contrib *c)
{
	return c->due == 0 && c->ticketed;
}

/* The result of a task that was claimed ahead; its sum is taken. */
static int
report(struct fal_agent *a, const struct lane *was, struct fal_msg *claim)
{
	const size_t i = place_of(a, was->item.round, was->item.seq);
	struct contrib *c = i < a->contribs.n ? &a->contribs.v[i] : NULL;
	if (c != NULL && c->on == NULL) {
		c->on = was->on;
		c->on->refs++;
	}
	int err = FAL_OK;
	if (c == NULL)
		err = agent_give_sum(a, was->sum);
	else if (was->sum != NULL)
		err = add_task(a, c, was->sum);
	if (err < 0 || c == NULL)
		return err;
	claim->claim.seq = c->seq;
	err = agent_send(a, claim, false);
	c->due--;
	return err == FAL_OK && is_made(c) ? push_contrib(a, i) : err;
}

/* ---- claims ------------------------------------------------------------------------ */

static struct contrib *
new_contrib(struct fal_agent *a, const struct lane *was)
{
	if (FAL_GROW(a->contribs.v, a->contribs.cap, a->contribs.n + 1) < 0)
		return NULL;
	was->on->refs++;
	struct contrib *c = &a->contribs.v[a->contribs.n++];
	*c = (struct contrib){ .round = was->item.round,
			       .seq = ++a->seq,
			       .fills = was->item.fills,
			       .alone = was->item.alone,
			       .on = was->on };
	return c;
}

/* The open contribution that a task goes into, made if there is none; it is closed with
 * the last one. */
static int
contrib_for(struct fal_agent *a, const struct lane *was, struct fal_msg *claim)
{
	struct contrib *c = NULL;
	for (size_t i = 0; i < a->contribs.n && c == NULL && !was->item.alone; i++) {
		struct contrib *o = &a->contribs.v[i];
		if (o->round == was->item.round && o->on == was->on && !o->closed &&
		    fal_cid_eq(o->fills, was->item.fills))
			c = o;
	}
	if (c == NULL && (c = new_contrib(a, was)) == NULL)
		return FAL_ENOMEM;
	claim->claim.seq = c->seq;
	claim->claim.last = c->closed = c->alone || !agent_at_work(a, c);
	return FAL_OK;
}

/* Says into which contribution the task goes. */
static int
seq_for(struct fal_agent *a, const struct lane *was, struct fal_msg *claim)
{
	if (!was->item.delta)
		return contrib_for(a, was, claim);
	struct local *l = agent_local(a, was->item.round);
	if (l->seq == 0)
		l->seq = ++a->seq;
	claim->claim.seq = l->seq;
	claim->claim.last = l->closed = agent_local_last(a, l);
	return FAL_OK;
}

int
agent_claim(struct fal_agent *a, const struct lane *was, const struct fal_ran *ran)
{
	const struct item *item = &was->item;
	struct fal_msg m = { .type = FAL_MSG_CLAIM };
	int err = FAL_OK;
	const struct local *local = agent_local(a, item->round);
	if (item->delta && (local == NULL || local->closed))
		return agent_give_sum(a, was->sum); /* ended without this task */
	m.claim.round = item->round;
	m.claim.task = item->task;
	m.claim.fills_worker = item->fills.worker;
	m.claim.fills_seq = item->fills.seq;
	m.claim.version = item->version;
	m.claim.task_ns = ran->task_ns;
	m.claim.loss = ran->loss;
	m.claim.nonfinite = ran->nonfinite;
	memcpy(m.claim.hash, ran->hash, sizeof(m.claim.hash));
	if (ran->nonfinite) {
		err = agent_give_sum(a, was->sum);
		return err == FAL_OK ? agent_send(a, &m, false) : err;
	}
	if (item->seq != 0)
		return report(a, was, &m);
	if (FAL_GROW(a->pending.v, a->pending.cap, a->pending.n + 1) < 0 ||
	    seq_for(a, was, &m) < 0) {
		fal_sum_free(was->sum);
		return FAL_ENOMEM;
	}
	struct pending *p = &a->pending.v[a->pending.n++];
	*p = (struct pending){ item->round, item->task, m.claim.seq, ran->samples,
			       was->sum };
	err = agent_send(a, &m, false);
	return err == FAL_OK && m.claim.last != 0 && !item->delta ? push_early(a, p)
								  : err;
}

int
agent_checked(struct fal_agent *a, const struct lane *was, const struct fal_ran *ran)
{
	struct fal_msg m = { .type = FAL_MSG_CHECKED };
	m.checked.round = was->item.round;
	m.checked.task = was->item.task;
	m.checked.nonfinite = ran->nonfinite;
	memcpy(m.checked.hash, ran->hash, sizeof(m.checked.hash));
	int err = agent_send(a, &m, false);
	int gave = agent_give_sum(a, was->sum);
	return err == FAL_OK ? gave : err;
}

/* Adds what was won to where it belongs, if that is still there; its sum is taken. */
static int
won(struct fal_agent *a, const struct pending *p)
{
	struct local *l = agent_local(a, p->round);
	size_t i = place_of(a, p->round, p->seq);
	if (l != NULL && l->seq == p->seq) {
		int err = agent_local_won(a, l, p);
		int gave = agent_give_sum(a, p->sum);
		return err == FAL_OK ? gave : err;
	}
	if (i == a->contribs.n)
		return agent_give_sum(a, p->sum);
	a->contribs.v[i].tasks++;
	return p->sum != NULL ? add_task(a, &a->contribs.v[i], p->sum) : FAL_OK;
}

int
agent_on_verdict(struct fal_agent *a, const struct fal_msg *m)
{
	size_t i = 0;
	while (i < a->pending.n && (a->pending.v[i].round != m->verdict.round ||
				    a->pending.v[i].task != m->verdict.task ||
				    a->pending.v[i].seq != m->verdict.seq))
		i++;
	if (i == a->pending.n)
		return FAL_OK;
	const struct pending p = a->pending.v[i];
	a->pending.v[i] = a->pending.v[--a->pending.n];
	int err = m->verdict.won != 0 ? won(a, &p) : agent_give_sum(a, p.sum);
	if (err == FAL_OK)
		err = agent_dispatch(a);
	return err == FAL_OK ? agent_close(a) : err;
}

int
agent_on_ticket(struct fal_agent *a, const struct fal_msg *m)
{
	const struct fal_msg_ticket *t = &m->ticket;
	const size_t i = place_of(a, t->round, t->seq),
		     k = agent_push_of(a, t->round, t->seq);
	if (i < a->contribs.n) {
		struct contrib *c = &a->contribs.v[i];
		if (!c->closed || c->ticketed || c->tasks + c->count != t->tasks)
			return FAL_ESTATE;
		c->ticketed = true;
		c->ticket = *t;
		if (!c->early)
			return is_made(c) ? push_contrib(a, i) : FAL_OK;
		int err = forget(a, i);
		if (err < 0)
			return err;
	}
	if (k == a->pushes.n || a->pushes.v[k].ticketed)
		return FAL_OK;
	if (a->pushes.v[k].ticket.tasks != t->tasks)
		return FAL_ESTATE;
	a->pushes.v[k].ticket = *t;
	a->pushes.v[k].ticketed = true;
	return FAL_OK;
}

int
agent_on_fence(struct fal_agent *a, const struct fal_msg *m)
{
	const uint64_t round = m->fence.round;
	const uint32_t seq = m->fence.seq;
	const struct local *l = agent_local(a, round);
	size_t i = place_of(a, round, seq);
	if (l != NULL && l->seq == seq) {
		int err = agent_local_kill(a, round);
		return err == FAL_OK ? agent_dispatch(a) : err;
	}
	if (i < a->contribs.n && a->contribs.v[i].due > 0) {
		int err = call_off(a, i);
		return err == FAL_OK ? agent_dispatch(a) : err;
	}
	if (i < a->contribs.n) {
		int err = forget(a, i);
		if (err < 0)
			return err;
	}
	return stop_push(a, round, seq);
}
