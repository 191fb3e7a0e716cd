/* What the scheduler decides becomes messages; who they go to. */
#include "coord/priv.h"

#include "base/mem.h"
#include "base/sorted.h"

#include <stdio.h>

void
coord_trace(struct fal_coord *c)
{
	if (c->line.err != 0)
		return;
	coord_call(c);
	c->ops.trace(c->ops.arg, (const char *)c->line.p, c->line.n);
	coord_called(c);
}

uint32_t
coord_place(const struct fal_coord *c, uint32_t id)
{
	return (uint32_t)fal_sorted_place(c->peer, c->peers, sizeof(*c->peer), id);
}

struct fal_peer *
coord_find(const struct fal_coord *c, uint32_t id)
{
	uint32_t at = coord_place(c, id);
	return at < c->peers && c->peer[at].id == id ? &c->peer[at] : NULL;
}

uint32_t
coord_live_place(const struct fal_coord *c, uint32_t id)
{
	return (uint32_t)fal_sorted_place(c->live, c->lives, sizeof(*c->live), id);
}

/* The session of worker `id`, or 0: it is gone, and so is what was to be said to it. */
static uint32_t
session_of(const struct fal_coord *c, uint32_t id)
{
	uint32_t at = coord_live_place(c, id);
	return at < c->lives && c->live[at].worker == id ? c->live[at].session : 0;
}

struct fal_peer *
coord_at_work(const struct fal_coord *c, uint32_t id)
{
	struct fal_peer *p = coord_find(c, session_of(c, id));
	return p != NULL && p->ready ? p : NULL;
}

int
coord_send(struct fal_coord *c, uint32_t peer, struct fal_msg *m)
{
	struct fal_buf out = { 0 };
	if (peer == 0)
		return FAL_OK;
	m->incarnation = c->conf.tickets.incarnation;
	int err = fal_msg_put(&out, m);
	if (err == FAL_OK) {
		coord_call(c);
		c->ops.send(c->ops.arg, peer, &out);
		coord_called(c);
	}
	fal_buf_free(&out);
	return err;
}

static int
send_away(struct fal_coord *c, double now, uint32_t peer, enum fal_msg_type type,
	  const char *why)
{
	struct fal_msg m = { .type = (uint16_t)type };
	snprintf(m.refuse.why, sizeof(m.refuse.why), "%s", why);
	if (peer == 0)
		return FAL_OK;
	struct fal_peer *p = coord_find(c, peer);
	if (p != NULL)
		p->parted = true;
	int err = coord_send(c, peer, &m);
	int gone = fal_coord_gone(c, now, peer, why);
	coord_call(c);
	c->ops.close(c->ops.arg, peer, why);
	coord_called(c);
	return err < 0 ? err : gone;
}

int
coord_refuse(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	return send_away(c, now, peer, FAL_MSG_REFUSE, why);
}

int
coord_later(struct fal_coord *c, double now, uint32_t peer, const char *why)
{
	return send_away(c, now, peer, FAL_MSG_LATER, why);
}

int
coord_ping(struct fal_coord *c, double now, uint32_t peer)
{
	struct fal_msg m = { .type = FAL_MSG_PING };
	m.ping.stamp = (uint64_t)((now - c->start) * 1e9);
	return coord_send(c, peer, &m);
}

/* On which version a worker computes tasks of a mixed round. */
static int
note_on(struct fal_coord *c, const struct fal_act *a, uint64_t version)
{
	if (FAL_GROW(c->on, c->on_cap, c->ons + 1) < 0)
		return FAL_ENOMEM;
	c->on[c->ons++] = (struct fal_granted_on){ .round = a->round,
						   .version = version,
						   .worker = a->worker,
						   .first = a->first,
						   .count = a->count };
	return FAL_OK;
}

/* What was granted is claimed: its ticket.  Where that does not count any more, a fence
 * or the round's end is on its way. */
static int
ticket(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_TICKET };
	struct fal_ticket t;
	if (!coord_ticket(c, a->round, a->cid, &t))
		return FAL_OK;
	fal_ticket_put(&c->conf.tickets, to, &t, &m.ticket);
	return coord_send(c, to, &m);
}

static int
grant(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return FAL_OK;
	m.grant.round = a->round;
	m.grant.clock = r.clock;
	/* Whoever helps with a mixed round computes on what it has. */
	struct fal_peer *p = to != 0 ? coord_find(c, to) : NULL;
	m.grant.version = a->kind == FAL_ACT_CHECK ? a->version
			  : r.mixed && p != NULL   ? p->next_version - 1
						   : r.version;
	if (a->kind == FAL_ACT_GRANT && r.mixed && note_on(c, a, m.grant.version) < 0)
		return FAL_ENOMEM;
	if (p != NULL && coord_send_again(c, p, m.grant.version) < 0)
		return FAL_ENOMEM;
	m.grant.first = a->first;
	m.grant.count = a->count;
	m.grant.fills_worker = a->fills.worker;
	m.grant.fills_seq = a->fills.seq;
	m.grant.seq = a->cid.seq;
	m.grant.kind = a->kind == FAL_ACT_CHECK ? FAL_KIND_CHECK
		       : r.delta                ? FAL_KIND_DELTA
						: FAL_KIND_GRAD;
	m.grant.base = (uint8_t)r.base;
	m.grant.since = r.since;
	m.grant.from = r.first;
	m.grant.of = r.tasks;
	m.grant.steps = r.steps;
	m.grant.lr = (float)fal_schedule_lr(&c->conf.schedule, r.clock);
	int err = coord_send(c, to, &m);
	return err == FAL_OK && a->cid.seq != 0 ? ticket(c, to, a) : err;
}

/* Asks where the worker's time went; its `clock` line follows when it has answered. */
static int
account(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	struct fal_peer *p = to != 0 ? coord_find(c, to) : NULL;
	if (p == NULL || !p->ready)
		return FAL_OK;
	if (p->oweds == FAL_OWED_MAX) /* it answers none of them */
		coord_owed(c, now, p, FAL_OWED_MAX - 1);
	struct fal_owed *o = &p->owed[p->oweds];
	*o = (struct fal_owed){ .round = a->round,
				.clock = a->clock,
				.own = a->own,
				.rx = p->rx,
				.tx = p->tx,
				.work = a->work };
	if (fal_sched_info(c->sched, a->worker, &o->info))
		p->oweds++;
	m.account.mark = a->round;
	return coord_send(c, to, &m);
}

/* It is a suspect, or back; or workers of its key get no work, which the trace does not
 * say: it has who is a suspect, and for how long. */
static void
trace_late(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	struct fal_coord_late late = { .why = a->why,
				       .owes = a->owes,
				       .seconds = a->seconds };
	const struct fal_peer *p = to != 0 ? coord_find(c, to) : NULL;
	if (p == NULL || !p->ready)
		return;
	if (a->kind == FAL_ACT_BARRED) {
		late.key = c->key[p->key - 1].name;
	} else {
		const double t = fal_coord_seconds(c, now);
		if (a->owes != NULL)
			fal_trace_put(&c->line, t, FAL_EV_SUSPECT,
				      &(struct fal_ev_suspect){ p->name, p->worker,
								a->owes, a->why,
								a->seconds });
		else
			fal_trace_put(&c->line, t, FAL_EV_BACK,
				      &(struct fal_ev_back){ p->name, p->worker, a->why,
							     a->seconds });
		coord_trace(c);
	}
	if (c->ops.late == NULL)
		return;
	coord_call(c);
	c->ops.late(c->ops.arg, p->id, p->name, &late);
	coord_called(c);
}

static void
trace_nonfinite(struct fal_coord *c, double now, const struct fal_act *a)
{
	const struct fal_grid *g = &c->conf.grid;
	const uint64_t sample = a->clock % fal_grid_epoch_clocks(g) * g->batch +
				(uint64_t)a->first * g->task;
	fal_trace_put(&c->line, fal_coord_seconds(c, now), FAL_EV_NONFINITE,
		      &(struct fal_ev_nonfinite){ a->round, a->clock, a->first,
						  coord_known(c, a->worker)->name,
						  a->worker, sample });
	coord_trace(c);
}

/* The shards count a task that brings nothing. */
static int
skip(struct fal_coord *c, const struct fal_act *a)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return FAL_OK;
	const struct fal_shard_order o = { .kind = FAL_ORDER_SKIP,
					   .round = a->round,
					   .fills = a->fills,
					   .facts = { .tasks = 1 } };
	const struct fal_coord_claimed none = { .round = a->round,
						.task = a->first,
						.nonfinite = true };
	if (c->brought)
		coord_tell_claimed(c, &none);
	return coord_order(c, &o);
}

static int
take_over(struct fal_coord *c, const struct fal_act *a)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_LINE,
					   .version = a->version };
	return coord_order(c, &o);
}

/* A round is over. */
static int
end(struct fal_coord *c, double now, const struct fal_act *a)
{
	int err = coord_end_round(c, a);
	return err < 0 || a->ahead ? err : coord_complete_behind(c, now);
}

/* Shards and worker hear that nothing more of a contribution counts. */
static int
fence(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_FENCE,
					   .round = a->round,
					   .id = a->cid,
					   .fills = a->fills };
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	m.fence.round = a->round;
	m.fence.seq = a->cid.seq;
	int err = coord_order(c, &o);
	return err < 0 ? err : coord_send(c, to, &m);
}

static int
revoke(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_REVOKE };
	m.revoke.round = a->round;
	m.revoke.first = a->first;
	m.revoke.count = a->count;
	m.revoke.check = a->kind == FAL_ACT_UNCHECK;
	return coord_send(c, to, &m);
}

static int
evaluate(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_EVAL };
	m.eval.version = c->kept_version;
	m.eval.first = a->first;
	m.eval.count = a->count;
	return coord_send(c, to, &m);
}

static int
lanes(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_LANES };
	m.lanes.lanes = a->count;
	return coord_send(c, to, &m);
}

/* The worker, or with 0 all of them, is told of what it may compute on. */
static int
tell_versions(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	if (a->version != 0)
		return coord_send_line(c, to, a->version);
	if (a->worker != 0)
		return to != 0 ? coord_send_versions(c, to) : FAL_OK;
	c->untold = false;
	int err = coord_send_versions(c, 0);
	return err == FAL_OK ? coord_publish(c, now) : err;
}

static int
apply(struct fal_coord *c, double now, const struct fal_act *a)
{
	const uint32_t to = session_of(c, a->worker);
	switch (a->kind) {
	case FAL_ACT_LINE:
		return take_over(c, a);
	case FAL_ACT_OPEN:
		return coord_open_round(c, a);
	case FAL_ACT_END:
		return end(c, now, a);
	case FAL_ACT_PUSH:
		return coord_push(c, a);
	case FAL_ACT_STEP:
		return coord_step(c, a);
	case FAL_ACT_MODEL:
		return tell_versions(c, now, to, a);
	case FAL_ACT_ACCOUNT:
		return account(c, now, to, a);
	case FAL_ACT_GRANT:
	case FAL_ACT_CHECK:
		return grant(c, to, a);
	case FAL_ACT_REVOKE:
	case FAL_ACT_UNCHECK:
		return revoke(c, to, a);
	case FAL_ACT_LANES:
		return lanes(c, to, a);
	case FAL_ACT_FENCE:
		return fence(c, to, a);
	case FAL_ACT_EVAL:
		return evaluate(c, to, a);
	case FAL_ACT_PING:
		return coord_ping(c, now, to);
	case FAL_ACT_CHARGE:
		return coord_charged(c, now, a->worker, a->why);
	case FAL_ACT_SUSPECT:
	case FAL_ACT_BACK:
	case FAL_ACT_BARRED:
		trace_late(c, now, to, a);
		return FAL_OK;
	case FAL_ACT_EVICT:
		return coord_refuse(c, now, to, a->why);
	case FAL_ACT_NONFINITE:
		trace_nonfinite(c, now, a);
		return FAL_OK;
	case FAL_ACT_STOP:
		c->why = "a gradient is not finite, on two runs";
		return FAL_OK;
	case FAL_ACT_SKIP:
		return skip(c, a);
	}
	return FAL_OK;
}

int
coord_drain(struct fal_coord *c, double now)
{
	struct fal_act a;
	int err;
	while ((err = coord_hear(c, now)) == FAL_OK && fal_sched_next(c->sched, &a))
		if ((err = apply(c, now, &a)) < 0)
			return err;
	return err == FAL_OK ? coord_tell(c, now) : err;
}
