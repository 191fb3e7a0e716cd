/* Rounds, updates and versions, as the scheduler decides them; and what the trace says of
 * them when that is done: workers wait for a version, the trace waits for nobody. */
#include "peer/coord_priv.h"

#include "base/line.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

/* Gradients were within the numbers, and yet a step leads out of them. */
static const char not_finite[] = "a step would make parameters that are not finite";

int
coord_open_round(struct fal_coord *c, const struct fal_act *a)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return FAL_OK;
	struct fal_store_round open = { .round = r.round,
					.tasks = r.tasks,
					.kind = r.delta ? FAL_KIND_DELTA : FAL_KIND_GRAD,
					.version = r.version,
					.mixed = r.mixed };
	return fal_store_open(c->store, &open);
}

static int
add_news(struct fal_coord *c, const struct fal_news *n)
{
	if (FAL_GROW(c->news, c->news_cap, (size_t)c->newses + 1) < 0)
		return FAL_ENOMEM;
	c->news[c->newses++] = *n;
	return FAL_OK;
}

/* Its gradients, or its change of weights, are collected. */
static int
collect(struct fal_coord *c, struct fal_act *a)
{
	struct fal_round_info r;
	if (FAL_GROW(c->merged, c->merged_cap, (size_t)c->mergeds + 1) < 0 ||
	    !fal_sched_round(c->sched, a->round, &r))
		return FAL_ENOMEM;
	struct fal_collected *m = &c->merged[c->mergeds++];
	*m = (struct fal_collected){ .round = a->round,
				     .line = a->fate == FAL_FATE_LINE ? r.group : 0,
				     .loss = (uint64_t)fal_ledger_loss(r.ledger),
				     .samples = fal_grid_range_samples(&c->conf.grid,
								       r.clock, r.first,
								       r.tasks) };
	if (a->fate == FAL_FATE_MERGE)
		return fal_store_merge(c->store, a->round);
	if (a->fate == FAL_FATE_ADD)
		return fal_store_add_delta(c->store, a->round, a->weight);
	if (a->fate == FAL_FATE_LINE) {
		const struct fal_store_line_step step = {
			.version = a->version,
			.lr = (float)fal_schedule_lr(&c->conf.schedule, r.clock),
			.divisor = a->divisor
		};
		if (fal_store_line_step(c->store, a->round, &step) > 0)
			c->why = not_finite;
		return FAL_OK;
	}
	int rank = fal_store_revise(c->store, a->round, a->slot);
	if (rank < 0)
		return rank;
	fal_store_forget_slots(c->store, a->below);
	a->weight = 1.0 / rank;
	a->count = (uint32_t)rank;
	return FAL_OK;
}

int
coord_end_round(struct fal_coord *c, const struct fal_act *a)
{
	struct fal_news n = { .act = *a };
	bool open = fal_store_is_open(c->store, a->round);
	int err = FAL_OK;
	coord_judge_forget(c, a->round);
	if (c->conf.audit_sums && open) {
		n.sent = fal_store_sent(c->store, a->round);
		n.added = fal_store_added(c->store, a->round);
	}
	if (a->fate < FAL_FATE_DROP)
		err = collect(c, &n.act);
	if (err == FAL_ELIMIT) {
		c->why = "gradients are beyond the range of sums";
		return FAL_OK;
	} else if (open)
		fal_store_drop(c->store, a->round);
	return err < 0 ? err : add_news(c, &n);
}

/* What was collected on the line stands first among what is not told, in its order; how
 * many rounds that is. */
static uint32_t
bring_forward(struct fal_coord *c, uint32_t line)
{
	uint32_t n = 0;
	for (uint32_t i = c->told; i < c->mergeds; i++) {
		struct fal_collected m = c->merged[i], *to = c->merged + c->told + n;
		if (m.line != line)
			continue;
		memmove(to + 1, to, (i - c->told - n) * sizeof(m));
		*to = m;
		n++;
	}
	return n;
}

/* What the update is made of. */
static void
sum_up(const struct fal_coord *c, struct fal_news *n)
{
	uint64_t loss = 0;
	for (uint32_t i = n->first; i < n->first + n->rounds; i++) {
		loss += c->merged[i].loss;
		n->samples += c->merged[i].samples;
	}
	n->loss = ldexp((double)(int64_t)loss, -FAL_LOSS_BITS) / (double)n->samples;
}

int
coord_step(struct fal_coord *c, double now, const struct fal_act *a)
{
	/* One float for all shards; the law needs no more than that all use the same. */
	struct fal_news n = { .act = *a,
			      .lr = (float)fal_schedule_lr(&c->conf.schedule, a->clock) };
	uint64_t over = fal_sched_over(c->sched);
	int err = a->line != 0 ? fal_store_push(c->store, a->line, a->weight) : FAL_OK;
	if (err < 0)
		return err;
	n.graded = fal_store_has_gradients(c->store);
	if (fal_store_step(c->store, n.lr, a->divisor) > 0)
		c->why = not_finite;
	n.norm = n.graded ? fal_store_norm(c->store) : 0;
	n.version = fal_store_version(c->store);
	n.first = c->told;
	n.rounds = bring_forward(c, a->line);
	sum_up(c, &n);
	c->told += n.rounds;
	c->status.loss = n.loss;
	/* Of the clocks that are over in one event this one may be the first. */
	over = a->own ? over : a->clock + 1;
	c->stepped = over;
	coord_health(c, n.loss, n.samples, over);
	if (c->why == NULL && c->conf.test_samples > 0 && !c->evaluating &&
	    over >= c->next_eval && !(c->judged && c->kept_clock == over))
		err = coord_begin_eval(c, now, over);
	return err < 0 ? err : add_news(c, &n);
}

void
coord_send_version(struct fal_coord *c, struct fal_peer *p, uint64_t version, bool keep)
{
	uint64_t kept = fal_store_oldest(c->store);
	uint64_t needed = fal_sched_oldest(c->sched, p->worker);
	bool on_line = fal_line_of(needed) != 0;
	struct fal_coord_model m = { .version = version,
				     .oldest = on_line || needed < kept ? needed : kept,
				     .keep = keep };
	c->ops.model(c->ops.arg, p->id, &m);
}

static void
send_to(struct fal_coord *c, struct fal_peer *p)
{
	uint64_t newest = fal_store_version(c->store);
	uint64_t from = fal_store_oldest(c->store);
	if (!p->ready)
		return;
	if (!p->on_line && p->next_version > from)
		from = p->next_version;
	for (uint64_t v = from; v <= newest; v++) {
		bool keep = c->evaluating && v == c->kept_version && !p->keeps;
		p->keeps |= keep;
		coord_send_version(c, p, v, keep);
	}
	p->next_version = newest + 1;
	p->on_line = false;
}

void
coord_send_line(struct fal_coord *c, uint32_t peer, uint64_t version)
{
	struct fal_peer *p = coord_find(c, peer);
	if (p == NULL || !p->ready)
		return;
	p->on_line = true;
	coord_send_version(c, p, version, false);
}

void
coord_send_versions(struct fal_coord *c, uint32_t peer)
{
	if (peer == 0) {
		for (uint32_t i = 0; i < c->peers; i++)
			send_to(c, &c->peer[i]);
		return;
	}
	struct fal_peer *p = coord_find(c, peer);
	if (p != NULL)
		send_to(c, p);
}

/* Adds up what the round's ledger says. */
static void
count(struct fal_coord *c, const struct fal_ledger *l, enum fal_fate fate)
{
	struct fal_coord_status *s = &c->status;
	for (size_t i = 0; i < l->log[FAL_ENTRY_MOVE].n; i++)
		s->moved += l->log[FAL_ENTRY_MOVE].v[i].count;
	for (size_t i = 0; i < l->log[FAL_ENTRY_CLONE].n; i++)
		s->cloned += l->log[FAL_ENTRY_CLONE].v[i].count;
	for (size_t i = 0; i < l->log[FAL_ENTRY_LOST].n; i++)
		s->lost += l->log[FAL_ENTRY_LOST].v[i].count;
	for (uint32_t i = 0; i < l->contribs; i++)
		if (l->contrib[i].fills != FAL_NONE &&
		    l->contrib[i].state == FAL_CONTRIB_DONE)
			s->filled += l->contrib[i].tasks;
	s->dropped += fate == FAL_FATE_DROP ? l->tasks : 0;
}

static void
tell_end(struct fal_coord *c, double now, const struct fal_news *n)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, n->act.round, &r))
		return;
	const bool revised = n->act.fate == FAL_FATE_REVISE;
	const bool line = n->act.fate == FAL_FATE_LINE;
	const bool steps = r.delta || line;
	struct fal_line_ledger d = {
		.t = fal_coord_seconds(c, now),
		.round = r.round,
		.clock = r.clock,
		.version = r.taken,
		.first = r.first,
		.end = n->act.fate == FAL_FATE_DROP      ? FAL_ROUND_DROPPED
		       : n->act.fate == FAL_FATE_ABANDON ? FAL_ROUND_ABANDONED
							 : FAL_ROUND_APPLIED,
		.why = n->act.why,
		.delta = r.delta,
		.weight = n->act.weight,
		.among = n->act.among,
		.divisor = line ? n->act.divisor : 0,
		.lr = steps ? (double)(float)fal_schedule_lr(&c->conf.schedule, r.clock)
			    : 0,
		.steps = r.delta ? r.steps : 0,
		.base = r.base,
		.since = r.since,
		.on = c->on,
		.ons = c->ons,
		.owner = r.owner,
		.group = r.group,
		.local = r.local,
		.clocks = r.stale_clocks,
		.updates = r.stale_updates,
		.rank = revised ? n->act.count : 0,
		.slot = n->act.slot,
		.samples =
			fal_grid_range_samples(&c->conf.grid, r.clock, r.first, r.tasks),
		.blocks = fal_blocks(c->conf.params),
		.sums = c->conf.audit_sums,
		.sent = n->sent,
		.added = n->added
	};
	fal_line_ledger(&c->line, &d, r.ledger);
	coord_trace(c);
	count(c, r.ledger, n->act.fate);
	size_t kept = 0;
	for (size_t i = 0; i < c->ons; i++)
		if (c->on[i].round != r.round)
			c->on[kept++] = c->on[i];
	c->ons = kept;
}

static void
tell_step(struct fal_coord *c, double now, const struct fal_news *n)
{
	struct fal_line_update d = {
		.t = fal_coord_seconds(c, now),
		.version = n->version,
		.clock = n->act.clock,
		.round = c->merged + n->first,
		.rounds = n->rounds,
		.weight = n->act.line != 0 ? n->act.weight : 0,
		.among = n->act.line != 0 ? n->act.among : 0,
		.divisor = n->graded ? n->act.divisor : 0,
		.samples = (uint32_t)n->samples,
		.loss = n->loss,
		.lr = (double)n->lr,
		.norm = n->norm,
		.epoch = n->act.clock / fal_grid_epoch_clocks(&c->conf.grid) + 1
	};
	fal_line_update(&c->line, &d);
	coord_trace(c);
}

void
coord_tell(struct fal_coord *c, double now)
{
	for (uint32_t i = 0; i < c->newses; i++)
		if (c->news[i].act.kind == FAL_ACT_END)
			tell_end(c, now, &c->news[i]);
		else
			tell_step(c, now, &c->news[i]);
	c->newses = 0;
	/* What was told goes; what is collected for the next update stays. */
	c->mergeds -= c->told;
	if (c->told > 0)
		memmove(c->merged, c->merged + c->told, c->mergeds * sizeof(*c->merged));
	c->told = 0;
	fal_sched_forget(c->sched);
}
