/* Contributions: claimed results of a round that are summed up, and their way to the
 * shards. */
#include "worker/agent_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* ---- pushes ------------------------------------------------------------------------ */

void
push_enqueue(struct fal_agent *a, const struct push *p)
{
	FAL_XGROW(a->pushes.v, a->pushes.cap, a->pushes.n + 1);
	a->pushes.v[a->pushes.n++] = *p;
	a->is_pushing = true;
}

/* Ends push i, whether or not all of it was sent. */
static void
push_end(struct fal_agent *a, size_t i)
{
	const struct push p = a->pushes.v[i];
	if (i == 0)
		fal_buf_clear(&a->records);
	memmove(a->pushes.v + i, a->pushes.v + i + 1, (--a->pushes.n - i) * sizeof(p));
	free(p.exps);
	memory_return_sum(a, p.sum);
}

/* The index of a push, or pushes.n. */
static size_t
push_find(const struct fal_agent *a, uint64_t round, uint32_t seq)
{
	size_t i = 0;
	while (i < a->pushes.n &&
	       (a->pushes.v[i].ticket.round != round || a->pushes.v[i].ticket.seq != seq))
		i++;
	return i;
}

/* The index of the first push that has its ticket, or pushes.n. */
static size_t
push_find_ticketed(const struct fal_agent *a)
{
	size_t i = 0;
	while (i < a->pushes.n && !a->pushes.v[i].has_ticket)
		i++;
	return i;
}

bool
push_is_due(const struct fal_agent *a)
{
	return push_find_ticketed(a) < a->pushes.n;
}

void
push_end_ticketed(struct fal_agent *a)
{
	for (size_t i = a->pushes.n; i-- > 0;)
		if (a->pushes.v[i].has_ticket)
			push_end(a, i);
}

/* The bytes of packed records. */
static size_t
packed_bytes(const struct fal_agent *a)
{
	return a->records.n > 0 ? a->records.n - FAL_MSG_HEAD : 0;
}

bool
push_send_next(struct fal_agent *a)
{
	const size_t limit = FAL_MSG_MAX - FAL_MSG_HEAD, i = push_find_ticketed(a);
	if (i == a->pushes.n)
		return false;
	const struct push next = a->pushes.v[i];
	memmove(a->pushes.v + 1, a->pushes.v, i * sizeof(next));
	a->pushes.v[0] = next;
	struct push *p = &a->pushes.v[0];
	size_t fit = packed_bytes(a);
	uint32_t blocks = fit > 0; /* packed: in the message, or one too many */
	/* One message holds as many records of one shard as fit.  A packed record that
	 * does not fit waits for the next message. */
	const uint32_t shard = agent_route(a, p->blocks_packed - blocks);
	while (p->blocks_packed < a->blocks &&
	       agent_route(a, p->blocks_packed) == shard &&
	       (a->conf.push_blocks == 0 || blocks < a->conf.push_blocks)) {
		const uint32_t b = p->blocks_packed++;
		if (a->records.n == 0)
			(void)fal_buf_room(&a->records, FAL_MSG_HEAD);
		if (fal_sum_pack(p->sum, b, p->exps[b], &a->records) < 0)
			fal_out_of_memory();
		if (packed_bytes(a) > limit)
			break;
		fit = packed_bytes(a);
		blocks++;
	}
	/* The first `fit` bytes of the records are sent with the message's head before
	 * them. */
	struct fal_msg m = { .type = FAL_MSG_PUSH, .incarnation = a->conf.incarnation };
	struct fal_buf head = { 0 };
	m.push.ticket = p->ticket;
	m.push.epoch = a->conf.map_epoch;
	fal_msg_put(&head, &m);
	assert(head.n <= FAL_MSG_HEAD);
	uint8_t *at = a->records.p + FAL_MSG_HEAD;
	memcpy(at - head.n, head.p, head.n);
	const struct fal_buf msg = { .p = at - head.n, .n = head.n + fit };
	if (a->ops.push != NULL)
		a->ops.push(a->ops.arg, shard, &msg);
	else
		a->ops.send(a->ops.arg, &msg, true);
	fal_buf_free(&head);
	a->records.n -= fit;
	memmove(at, at + fit, packed_bytes(a));
	if (p->blocks_packed == a->blocks && packed_bytes(a) == 0)
		push_end(a, 0);
	return true;
}

/* ---- contributions ----------------------------------------------------------------- */

/* Ends contribution i without a result. */
static void
contribution_forget(struct fal_agent *a, size_t i)
{
	const struct contribution c = a->contributions.v[i];
	memmove(a->contributions.v + i, a->contributions.v + i + 1,
		(--a->contributions.n - i) * sizeof(c));
	snapshot_unref(a, c.exp_base);
	memory_return_sum(a, c.sum);
}

/* The index of an open contribution, or contributions.n. */
static size_t
contribution_find(const struct fal_agent *a, uint64_t round, uint32_t seq)
{
	size_t i = 0;
	while (i < a->contributions.n &&
	       (a->contributions.v[i].round != round || a->contributions.v[i].seq != seq))
		i++;
	return i;
}

/* Sends contribution i on its way, if its ticket and all results are here. */
static int
contribution_push_if_done(struct fal_agent *a, size_t i)
{
	struct contribution *c = &a->contributions.v[i];
	struct push p = { .ticket = c->ticket, .has_ticket = true, .sum = c->sum };
	if (c->results_due > 0 || !c->has_ticket)
		return FAL_OK;
	if (c->sum == NULL)
		return FAL_ESTATE; /* a ticket for nothing */
	c->sum = NULL;
	p.exps = fal_xcalloc(a->blocks, 1);
	memcpy(p.exps, c->exp_base->exps, a->blocks);
	push_enqueue(a, &p);
	contribution_forget(a, i);
	return FAL_OK;
}

void
contribution_close_idle(struct fal_agent *a)
{
	for (size_t i = 0; i < a->contributions.n; i++) {
		struct contribution *c = &a->contributions.v[i];
		struct fal_msg m = { .type = FAL_MSG_SEAL };
		if (c->is_closed || tasks_has_for_contribution(a, c))
			continue;
		c->is_closed = true;
		m.seal.round = c->round;
		m.seal.seq = c->seq;
		agent_send(a, &m, false);
	}
}

/* Adds a task's sum, which is taken.  The first sum becomes the contribution's own,
 * unless the pool has a sum that has grown already. */
static int
contribution_add_sum(struct fal_agent *a, struct contribution *c, struct fal_sum *sum)
{
	if (sum == NULL)
		return FAL_OK;
	if (c->sum == NULL && !c->is_alone)
		c->sum = memory_take_grown_sum(a);
	if (c->sum != NULL)
		return memory_add_sum(a, c->sum, sum);
	c->sum = sum;
	return FAL_OK;
}

void
contribution_claim(struct fal_agent *a, const struct lane *was, struct fal_msg *claim)
{
	struct contribution *c = NULL;
	for (size_t i = 0; i < a->contributions.n && c == NULL && !was->task.is_alone;
	     i++) {
		struct contribution *o = &a->contributions.v[i];
		if (o->round == was->task.round && o->exp_base == was->exp_base &&
		    !o->is_closed && fal_contrib_id_equal(o->fills, was->task.fills))
			c = o;
	}
	if (c == NULL) {
		FAL_XGROW(a->contributions.v, a->contributions.cap,
			  a->contributions.n + 1);
		was->exp_base->refs++;
		c = &a->contributions.v[a->contributions.n++];
		*c = (struct contribution){ .round = was->task.round,
					    .seq = ++a->seq,
					    .fills = was->task.fills,
					    .is_alone = was->task.is_alone,
					    .exp_base = was->exp_base };
	}
	claim->claim.seq = c->seq;
	claim->claim.last = c->is_closed =
		c->is_alone || !tasks_has_for_contribution(a, c);
}

int
contribution_add(struct fal_agent *a, const struct claim *won)
{
	const size_t i = contribution_find(a, won->round, won->seq);
	if (i == a->contributions.n) {
		memory_return_sum(a, won->sum);
		return FAL_OK;
	}
	a->contributions.v[i].tasks++;
	return contribution_add_sum(a, &a->contributions.v[i], won->sum);
}

int
contribution_on_ticket(struct fal_agent *a, const struct fal_msg_ticket *t)
{
	const size_t i = contribution_find(a, t->round, t->seq),
		     k = push_find(a, t->round, t->seq);
	if (i < a->contributions.n) {
		struct contribution *c = &a->contributions.v[i];
		uint32_t tasks = c->tasks;
		for (int r = 0; r < FAL_SPANS; r++)
			tasks += c->span[r].count;
		if (!c->is_closed || c->has_ticket || tasks != t->tasks)
			return FAL_ESTATE;
		c->has_ticket = true;
		c->ticket = *t;
		return contribution_push_if_done(a, i);
	}
	if (k == a->pushes.n || a->pushes.v[k].has_ticket)
		return FAL_OK;
	if (a->pushes.v[k].ticket.tasks != t->tasks)
		return FAL_ESTATE;
	a->pushes.v[k].ticket = *t;
	a->pushes.v[k].has_ticket = true;
	return FAL_OK;
}

/* ---- claimed when granted ---------------------------------------------------------- */

/* Drops preclaimed contribution i, and those of its tasks that are not done. */
static void
preclaim_forget(struct fal_agent *a, size_t i)
{
	const struct contribution c = a->contributions.v[i];
	for (int k = 0; k < FAL_SPANS; k++)
		tasks_drop(a, c.round, c.span[k].first, c.span[k].count, false);
	contribution_forget(a, i);
}

int
preclaim_add(struct fal_agent *a, const struct fal_msg *m)
{
	const struct span span = { m->grant.first, m->grant.count };
	const struct contribution c = { .round = m->grant.round,
					.seq = m->grant.seq,
					.is_closed = true,
					.is_alone = m->grant.of == 1,
					.span = { span },
					.results_due = m->grant.of };
	const size_t i = contribution_find(a, c.round, c.seq);
	if (span.count > m->grant.of)
		return FAL_EFORMAT;
	if (i < a->contributions.n) { /* another GRANT for it */
		struct contribution *was = &a->contributions.v[i];
		uint32_t k = 0, granted = span.count;
		for (; k < FAL_SPANS && was->span[k].count > 0; k++)
			granted += was->span[k].count;
		if (was->has_ticket || k == FAL_SPANS || granted > m->grant.of)
			return FAL_ESTATE;
		was->span[k] = span;
		return FAL_OK;
	}
	FAL_XGROW(a->contributions.v, a->contributions.cap, a->contributions.n + 1);
	a->contributions.v[a->contributions.n++] = c;
	return FAL_OK;
}

void
preclaim_drop(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count)
{
	for (size_t i = a->contributions.n; i-- > 0;) {
		const struct contribution *c = &a->contributions.v[i];
		bool overlaps = false;
		for (int k = 0; k < FAL_SPANS; k++)
			overlaps |= c->span[k].count > 0 &&
				    (c->span[k].first - first < count ||
				     first - c->span[k].first < c->span[k].count);
		if (c->round == round && c->results_due > 0 && overlaps)
			preclaim_forget(a, i);
	}
}

void
preclaim_drop_unfinished(struct fal_agent *a)
{
	for (size_t i = a->contributions.n; i-- > 0;)
		if (a->contributions.v[i].results_due > 0)
			contribution_forget(a, i);
}

int
preclaim_report(struct fal_agent *a, const struct lane *was, struct fal_msg *claim)
{
	const size_t i = contribution_find(a, was->task.round, was->task.seq);
	if (i == a->contributions.n) {
		memory_return_sum(a, was->sum);
		return FAL_OK;
	}
	struct contribution *c = &a->contributions.v[i];
	if (c->exp_base == NULL) {
		c->exp_base = was->exp_base;
		c->exp_base->refs++;
	}
	int err = contribution_add_sum(a, c, was->sum);
	if (err < 0)
		return err;
	claim->claim.seq = c->seq;
	agent_send(a, claim, false);
	c->results_due--;
	return contribution_push_if_done(a, i);
}

void
contribution_fence(struct fal_agent *a, uint64_t round, uint32_t seq)
{
	const size_t i = contribution_find(a, round, seq), k = push_find(a, round, seq);
	if (i < a->contributions.n && a->contributions.v[i].results_due > 0) {
		preclaim_forget(a, i);
		return;
	}
	if (i < a->contributions.n)
		contribution_forget(a, i);
	if (k < a->pushes.n)
		push_end(a, k);
}
