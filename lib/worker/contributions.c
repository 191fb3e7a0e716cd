/* Claims, the contributions that they fill, and those that are on their way; the sums
 * that all of these hold, and the hash of what a task gave.
 *
 * Sums are counted in halves: what has only ever been quantised takes one, what has grown
 * two (fal_sum_new).  A contribution of several tasks may grow, so it is charged two from
 * its first task on; who is alone in his is charged one.  A task begins only if its sum
 * and what it begins are within what there may be, and a half is left besides for the
 * tasks of what has begun: so that always ends, and what waits for it begins. */
#include "worker/agent_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- the hash of a task ---- */

void
fal_task_hash_block(struct fal_hash_state *h, const struct fal_sum *s, uint32_t block,
		    int8_t exponent)
{
	uint32_t width;
	union fal_sum_room room;
	const void *v = fal_sum_values(s, block, &width, &room);
	const uint8_t head[4] = { (uint8_t)exponent, (uint8_t)fal_sum_needed(s, block),
				  (uint8_t)width, 0 };
	fal_hash_update(h, head, sizeof(head));
	if (width > 0)
		fal_hash_update(h, v,
				(size_t)width * fal_block_len(fal_sum_len(s), block));
}

void
fal_task_hash_end(struct fal_hash_state *h, uint8_t out[static FAL_TASK_HASH])
{
	uint8_t all[FAL_HASH_BYTES];
	fal_hash_final(h, all);
	memcpy(out, all, FAL_TASK_HASH);
}

static size_t
halves(const struct fal_sum *s)
{
	return s == NULL ? 0 : fal_sum_grown(s) ? 2 : 1;
}

/* ---- the pool ---------------------------------------------------------------------- */

/* Takes a sum that has grown, or has not, from the pool; NULL: there is none. */
static struct fal_sum *
take_pooled(struct fal_agent *a, bool grown)
{
	for (size_t i = 0; i < a->pool.n; i++) {
		struct fal_sum *sum = a->pool.v[i];
		if (fal_sum_grown(sum) != grown)
			continue;
		a->pool.v[i] = a->pool.v[--a->pool.n];
		return sum;
	}
	return NULL;
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

/* Frees sums that nobody uses, until there are at most so many halves. */
static void
shrink(struct fal_agent *a, size_t most)
{
	while (a->halves > most && a->pool.n > 0) {
		struct fal_sum *sum = take_pooled(a, false);
		free_sum(a, sum != NULL ? sum : take_pooled(a, true));
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
	struct fal_sum *sum = take_pooled(a, false);
	if (sum != NULL)
		return sum;
	make_room(a);
	sum = fal_sum_new(a->conf.n);
	if (sum == NULL)
		fal_out_of_memory();
	a->halves++;
	return sum;
}

void
agent_give_sum(struct fal_agent *a, struct fal_sum *sum)
{
	if (sum == NULL)
		return;
	/* If others bring the sums, a sum taken from here serves only to add theirs to.
	 */
	if (a->conf.outer && (a->pool.n > 0 || !fal_sum_grown(sum))) {
		free_sum(a, sum);
		return;
	}
	FAL_XGROW(a->pool.v, a->pool.cap, a->pool.n + 1);
	fal_sum_clear(sum);
	a->pool.v[a->pool.n++] = sum;
}

int
agent_add(struct fal_agent *a, struct fal_sum *to, struct fal_sum *sum)
{
	const bool grown = fal_sum_grown(to);
	if (!grown)
		make_room(a);
	int err = fal_sum_add(to, sum);
	a->halves += !grown && fal_sum_grown(to);
	agent_give_sum(a, sum);
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
	       one->exponents == other->exponents && fal_cid_eq(one->fills, other->fills);
}

/* Is there a contribution for it that has a task? */
static bool
has_contrib(const struct fal_agent *a, const struct item *item)
{
	for (size_t i = 0; i < a->contribs.n; i++) {
		const struct contrib *c = &a->contribs.v[i];
		if (c->by != NULL && c->round == item->round &&
		    (item->seq != 0 ? c->seq == item->seq
				    : !c->closed && c->by->version == item->exponents &&
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

/* The halves charged to lane i: its sum, and those that the first task of a contribution
 * begins. */
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
		n += c->alone ? halves(c->sum) : c->by != NULL ? 2 : 0;
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

/* ---- contributions on their way ---- */

void
agent_push(struct fal_agent *a, const struct push *p)
{
	FAL_XGROW(a->pushes.v, a->pushes.cap, a->pushes.n + 1);
	a->pushes.v[a->pushes.n++] = *p;
	a->pushing = true;
}

/* Push i is over, or the rest of it is not wanted. */
static void
push_end(struct fal_agent *a, size_t i)
{
	const struct push p = a->pushes.v[i];
	if (i == 0)
		fal_buf_clear(&a->records);
	memmove(a->pushes.v + i, a->pushes.v + i + 1, (--a->pushes.n - i) * sizeof(p));
	free(p.exps);
	agent_give_sum(a, p.sum);
}

/* The place of a push, or pushes.n. */
static size_t
push_of(const struct fal_agent *a, uint64_t round, uint32_t seq)
{
	size_t i = 0;
	while (i < a->pushes.n &&
	       (a->pushes.v[i].ticket.round != round || a->pushes.v[i].ticket.seq != seq))
		i++;
	return i;
}

/* The place of the first push that has its ticket, or pushes.n. */
static size_t
first_ticketed(const struct fal_agent *a)
{
	size_t i = 0;
	while (i < a->pushes.n && !a->pushes.v[i].ticketed)
		i++;
	return i;
}

void
agent_push_over(struct fal_agent *a)
{
	for (size_t i = a->pushes.n; i-- > 0;)
		if (a->pushes.v[i].ticketed)
			push_end(a, i);
}

/* Bytes of records that are packed. */
static size_t
packed(const struct fal_agent *a)
{
	return a->records.n > 0 ? a->records.n - FAL_MSG_HEAD : 0;
}

/* Sends the first n bytes of records, with the head before them. */
static void
send_records(struct fal_agent *a, uint32_t shard, const struct push *p, size_t n)
{
	struct fal_msg m = { .type = FAL_MSG_PUSH, .incarnation = a->conf.incarnation };
	struct fal_buf head = { 0 };
	m.push.ticket = p->ticket;
	m.push.epoch = a->conf.map_epoch;
	fal_msg_put(&head, &m);
	assert(head.n <= FAL_MSG_HEAD);
	uint8_t *at = a->records.p + FAL_MSG_HEAD - head.n;
	memcpy(at, head.p, head.n);
	const struct fal_buf msg = { .p = at, .n = head.n + n };
	if (a->ops.push != NULL)
		a->ops.push(a->ops.arg, shard, &msg);
	else
		a->ops.send(a->ops.arg, &msg, true);
	fal_buf_free(&head);
}

/* The next message of the first push: as many records as fit.  The one that does not is
 * kept for the message after it. */
static void
push_some(struct fal_agent *a)
{
	const size_t most = FAL_MSG_MAX - FAL_MSG_HEAD;
	struct push *p = &a->pushes.v[0];
	size_t fit = packed(a);
	uint32_t blocks = fit > 0; /* packed: in the message, or one too many */
	/* Only what goes to the same shard. */
	const uint32_t to = agent_route(a, p->packed - blocks);
	while (p->packed < a->blocks && agent_route(a, p->packed) == to &&
	       (a->conf.push_blocks == 0 || blocks < a->conf.push_blocks)) {
		const uint32_t b = p->packed++;
		if (a->records.n == 0)
			(void)fal_buf_room(&a->records, FAL_MSG_HEAD);
		if (fal_sum_pack(p->sum, b, p->exps[b], &a->records) < 0)
			fal_out_of_memory();
		if (packed(a) > most)
			break;
		fit = packed(a);
		blocks++;
	}
	send_records(a, to, p, fit);
	a->records.n -= fit;
	uint8_t *at = a->records.p + FAL_MSG_HEAD;
	memmove(at, at + fit, packed(a));
	if (p->packed == a->blocks && packed(a) == 0)
		push_end(a, 0);
}

bool
agent_push_waits(const struct fal_agent *a)
{
	return first_ticketed(a) < a->pushes.n;
}

bool
fal_agent_more(struct fal_agent *a)
{
	const size_t i = first_ticketed(a), on_way = a->pushes.n;
	if (a->left)
		return false;
	if (i < on_way) {
		const struct push p = a->pushes.v[i];
		memmove(a->pushes.v + 1, a->pushes.v, i * sizeof(p));
		a->pushes.v[0] = p;
		push_some(a);
		if (a->pushes.n < on_way)
			agent_dispatch(a); /* what waits for its sum */
		return true;
	}
	if (!a->leaving || a->pending.n + a->contribs.n + a->pushes.n > 0)
		return false;
	struct fal_msg m = { .type = FAL_MSG_LEAVE };
	snprintf(m.leave.why, sizeof(m.leave.why), "%s", a->why);
	a->left = true;
	agent_send(a, &m, true); /* behind the contributions, so in the bulk queue */
	return true;
}

/* ---- contributions ----------------------------------------------------------------- */

/* Contribution i is over, and nothing more is made of it. */
static void
forget_contrib(struct fal_agent *a, size_t i)
{
	const struct contrib c = a->contribs.v[i];
	memmove(a->contribs.v + i, a->contribs.v + i + 1,
		(--a->contribs.n - i) * sizeof(c));
	agent_drop(a, c.by);
	agent_give_sum(a, c.sum);
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
static void
push_by(struct fal_agent *a, const struct snapshot *by, struct push *p)
{
	p->exps = fal_xcalloc(a->blocks, 1);
	memcpy(p->exps, by->exps, a->blocks);
	agent_push(a, p);
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
	push_by(a, c->by, &p);
	forget_contrib(a, i);
	return FAL_OK;
}

void
agent_close(struct fal_agent *a)
{
	for (size_t i = 0; i < a->contribs.n; i++) {
		struct contrib *c = &a->contribs.v[i];
		struct fal_msg m = { .type = FAL_MSG_SEAL };
		if (c->closed || agent_at_work(a, c))
			continue;
		c->closed = true;
		m.seal.round = c->round;
		m.seal.seq = c->seq;
		agent_send(a, &m, false);
	}
}

/* ---- claimed ahead ----------------------------------------------------------------- */

/* Calls off the tasks of contribution i that are not done. */
static void
call_off(struct fal_agent *a, size_t i)
{
	const struct contrib c = a->contribs.v[i];
	for (int k = 0; k < FAL_SPANS; k++)
		agent_take_back(a, c.round, c.run[k].first, c.run[k].count, false);
	forget_contrib(a, i);
}

int
agent_preclaimed(struct fal_agent *a, const struct fal_msg *m)
{
	const struct run run = { m->grant.first, m->grant.count };
	const struct contrib c = { .round = m->grant.round,
				   .seq = m->grant.seq,
				   .closed = true,
				   .alone = m->grant.of == 1,
				   .run = { run },
				   .due = m->grant.of };
	const size_t i = place_of(a, c.round, c.seq);
	if (run.count > m->grant.of)
		return FAL_EFORMAT;
	if (i < a->contribs.n) { /* another run */
		struct contrib *was = &a->contribs.v[i];
		uint32_t k = 0, granted = run.count;
		for (; k < FAL_SPANS && was->run[k].count > 0; k++)
			granted += was->run[k].count;
		if (was->ticketed || k == FAL_SPANS || granted > m->grant.of)
			return FAL_ESTATE;
		was->run[k] = run;
		return FAL_OK;
	}
	FAL_XGROW(a->contribs.v, a->contribs.cap, a->contribs.n + 1);
	a->contribs.v[a->contribs.n++] = c;
	return FAL_OK;
}

void
agent_drop_preclaimed(struct fal_agent *a, uint64_t round, uint32_t first, uint32_t count)
{
	for (size_t i = a->contribs.n; i-- > 0;) {
		const struct contrib *c = &a->contribs.v[i];
		bool has = false;
		for (int k = 0; k < FAL_SPANS; k++)
			has |= c->run[k].count > 0 &&
			       (c->run[k].first - first < count ||
				first - c->run[k].first < c->run[k].count);
		if (c->round == round && c->due > 0 && has)
			call_off(a, i);
	}
}

void
agent_leave_preclaimed(struct fal_agent *a)
{
	for (size_t i = a->contribs.n; i-- > 0;)
		if (a->contribs.v[i].due > 0)
			forget_contrib(a, i);
}

/* Adds a task's sum, which is taken: the first one is what the others are added to, where
 * none is there that has grown already. */
static int
add_task(struct fal_agent *a, struct contrib *c, struct fal_sum *sum)
{
	if (c->sum == NULL && !c->alone)
		c->sum = take_pooled(a, true);
	if (c->sum != NULL)
		return agent_add(a, c->sum, sum);
	c->sum = sum;
	return FAL_OK;
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
	if (i == a->contribs.n) {
		agent_give_sum(a, was->sum);
		return FAL_OK;
	}
	struct contrib *c = &a->contribs.v[i];
	if (c->by == NULL) {
		c->by = was->by;
		c->by->refs++;
	}
	int err = was->sum != NULL ? add_task(a, c, was->sum) : FAL_OK;
	if (err < 0)
		return err;
	claim->claim.seq = c->seq;
	agent_send(a, claim, false);
	c->due--;
	return is_made(c) ? push_contrib(a, i) : FAL_OK;
}

/* ---- claims ------------------------------------------------------------------------ */

/* The open contribution that a task goes into, made if there is none; it is closed with
 * the last one. */
static void
contrib_for(struct fal_agent *a, const struct lane *was, struct fal_msg *claim)
{
	struct contrib *c = NULL;
	for (size_t i = 0; i < a->contribs.n && c == NULL && !was->item.alone; i++) {
		struct contrib *o = &a->contribs.v[i];
		if (o->round == was->item.round && o->by == was->by && !o->closed &&
		    fal_cid_eq(o->fills, was->item.fills))
			c = o;
	}
	if (c == NULL) {
		FAL_XGROW(a->contribs.v, a->contribs.cap, a->contribs.n + 1);
		was->by->refs++;
		c = &a->contribs.v[a->contribs.n++];
		*c = (struct contrib){ .round = was->item.round,
				       .seq = ++a->seq,
				       .fills = was->item.fills,
				       .alone = was->item.alone,
				       .by = was->by };
	}
	claim->claim.seq = c->seq;
	claim->claim.last = c->closed = c->alone || !agent_at_work(a, c);
}

int
agent_claim(struct fal_agent *a, const struct lane *was, const struct fal_ran *ran)
{
	const struct item *item = &was->item;
	struct fal_msg m = { .type = FAL_MSG_CLAIM };
	struct local *local = agent_local(a, item->round);
	if (item->delta && (local == NULL || local->closed)) {
		agent_give_sum(a, was->sum); /* ended without this task */
		return FAL_OK;
	}
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
		agent_give_sum(a, was->sum);
		agent_send(a, &m, false);
		return FAL_OK;
	}
	if (item->seq != 0)
		return report(a, was, &m);
	if (item->delta) {
		if (local->seq == 0)
			local->seq = ++a->seq;
		m.claim.seq = local->seq;
		m.claim.last = local->closed = agent_local_last(a, local);
	} else {
		contrib_for(a, was, &m);
	}
	FAL_XGROW(a->pending.v, a->pending.cap, a->pending.n + 1);
	a->pending.v[a->pending.n++] =
		(struct pending){ item->round, item->task, m.claim.seq, ran->samples,
				  was->sum };
	agent_send(a, &m, false);
	return FAL_OK;
}

void
agent_checked(struct fal_agent *a, const struct lane *was, const struct fal_ran *ran)
{
	struct fal_msg m = { .type = FAL_MSG_CHECKED };
	m.checked.round = was->item.round;
	m.checked.task = was->item.task;
	m.checked.nonfinite = ran->nonfinite;
	memcpy(m.checked.hash, ran->hash, sizeof(m.checked.hash));
	agent_send(a, &m, false);
	agent_give_sum(a, was->sum);
}

/* Adds what was won to where it belongs, if that is still there; its sum is taken. */
static int
won(struct fal_agent *a, const struct pending *p)
{
	struct local *l = agent_local(a, p->round);
	size_t i = place_of(a, p->round, p->seq);
	if (l != NULL && l->seq == p->seq)
		return agent_local_won(a, l, p);
	if (i == a->contribs.n) {
		agent_give_sum(a, p->sum);
		return FAL_OK;
	}
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
	if (m->verdict.won == 0)
		agent_give_sum(a, p.sum);
	int err = m->verdict.won != 0 ? won(a, &p) : FAL_OK;
	if (err < 0)
		return err;
	agent_dispatch(a);
	agent_close(a);
	return FAL_OK;
}

int
agent_on_ticket(struct fal_agent *a, const struct fal_msg *m)
{
	const struct fal_msg_ticket *t = &m->ticket;
	const size_t i = place_of(a, t->round, t->seq), k = push_of(a, t->round, t->seq);
	if (i < a->contribs.n) {
		struct contrib *c = &a->contribs.v[i];
		uint32_t tasks = c->tasks;
		for (int r = 0; r < FAL_SPANS; r++)
			tasks += c->run[r].count;
		if (!c->closed || c->ticketed || tasks != t->tasks)
			return FAL_ESTATE;
		c->ticketed = true;
		c->ticket = *t;
		return is_made(c) ? push_contrib(a, i) : FAL_OK;
	}
	if (k == a->pushes.n || a->pushes.v[k].ticketed)
		return FAL_OK;
	if (a->pushes.v[k].ticket.tasks != t->tasks)
		return FAL_ESTATE;
	a->pushes.v[k].ticket = *t;
	a->pushes.v[k].ticketed = true;
	return FAL_OK;
}

void
agent_on_fence(struct fal_agent *a, const struct fal_msg *m)
{
	const uint64_t round = m->fence.round;
	const uint32_t seq = m->fence.seq;
	const struct local *l = agent_local(a, round);
	const size_t i = place_of(a, round, seq), k = push_of(a, round, seq);
	if (l != NULL && l->seq == seq) {
		agent_local_kill(a, round);
		return;
	}
	if (i < a->contribs.n && a->contribs.v[i].due > 0) {
		call_off(a, i);
		return;
	}
	if (i < a->contribs.n)
		forget_contrib(a, i);
	if (k < a->pushes.n)
		push_end(a, k);
}
