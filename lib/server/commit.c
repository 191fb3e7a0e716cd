/* Rounds, updates and versions: what the scheduler decides of them, what the shards say,
 * and what the trace says when that is done: workers wait for a version, the trace waits
 * for nobody.
 *
 * A contribution is whole, a round complete or ended, a version made, when all shards
 * have said so. */
#include "server/coord_priv.h"

#include "base/branch.h"
#include "base/loss.h"
#include "base/mem.h"
#include "base/sorted.h"
#include "trace/chain.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rounds and versions --------------------------------------------------------- */

static bool
have_all(const struct fal_coord *c, uint64_t said)
{
	return said == fal_map_busy(&c->map);
}

static size_t
gather_place(const struct fal_coord *c, uint64_t round)
{
	return fal_sorted_place64(c->gather, c->gathers, sizeof(*c->gather), round);
}

/* The shards' reports on the round, or NULL. */
static struct fal_gather *
gather_of(const struct fal_coord *c, uint64_t round)
{
	const size_t at = gather_place(c, round);
	return at < c->gathers && c->gather[at].round == round ? &c->gather[at] : NULL;
}

static void
gather_end(struct fal_coord *c, uint64_t round)
{
	struct fal_gather *g = gather_of(c, round);
	if (g == NULL)
		return;
	free(g->partly);
	memmove(g, g + 1, (size_t)(c->gather + --c->gathers - g) * sizeof(*g));
}

static struct fal_facts
facts_of(const struct fal_round_info *r)
{
	return (struct fal_facts){ .version = r->version,
				   .tasks = r->tasks,
				   .kind = r->delta ? FAL_KIND_DELTA : FAL_KIND_GRAD,
				   .mixed = r->mixed };
}

bool
coord_ticket(const struct fal_coord *c, uint64_t round, struct fal_cid id,
	     struct fal_ticket *out)
{
	struct fal_round_info r;
	const struct fal_contrib *contrib = fal_sched_contrib(c->sched, round, id);
	if (contrib == NULL || !fal_sched_round(c->sched, round, &r))
		return false;
	*out = (struct fal_ticket){ .round = round,
				    .id = id,
				    .fills = fal_sched_fills(c->sched, round, contrib),
				    .tasks = contrib->tasks,
				    .facts = facts_of(&r) };
	return true;
}

static void
open_round(struct fal_coord *c, const struct fal_act *a)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	const struct fal_shard_order o = { .kind = FAL_ORDER_OPEN,
					   .round = r.round,
					   .facts = facts_of(&r) };
	const size_t at = gather_place(c, r.round);
	FAL_XGROW(c->gather, c->gather_cap, c->gathers + 1);
	memmove(c->gather + at + 1, c->gather + at,
		(c->gathers++ - at) * sizeof(*c->gather));
	c->gather[at] = (struct fal_gather){ .round = r.round };
	coord_order(c, &o);
}

static void
add_news(struct fal_coord *c, const struct fal_news *n)
{
	FAL_XGROW(c->news, c->news_cap, (size_t)c->newses + 1);
	c->news[c->newses++] = *n;
}

/* NAN: that of a task is not known. */
static double
loss_of(uint64_t loss, bool unknown)
{
	return unknown ? (double)NAN : fal_loss_is((int64_t)loss);
}

/* Collects the round's gradients, or its change of weights.  A clock may be over before
 * the shards step the rounds that a worker or a group owns in this clock. */
static void
collect(struct fal_coord *c, const struct fal_act *a, const struct fal_round_info *r)
{
	const uint64_t loss = (uint64_t)fal_ledger_loss(r->ledger);
	const bool own = r->owner != 0 || r->group != 0,
		   unknown = !fal_ledger_loss_known(r->ledger);
	if (own)
		coord_health_count(c, r->clock, loss_of(loss, unknown), r->samples);
	FAL_XGROW(c->merged, c->merged_cap, (size_t)c->mergeds + 1);
	c->graded |= a->fate == FAL_FATE_MERGE;
	c->merged[c->mergeds++] =
		(struct fal_collected){ .round = a->round,
					.line = a->fate == FAL_FATE_LINE ? r->group : 0,
					.loss = loss,
					.samples = r->samples,
					.unknown = unknown,
					.clock = r->clock,
					.own = own };
}

static void
end_round(struct fal_coord *c, const struct fal_act *a)
{
	static const enum fal_end ends[] = {
		[FAL_FATE_MERGE] = FAL_END_MERGE, [FAL_FATE_ADD] = FAL_END_ADD,
		[FAL_FATE_LINE] = FAL_END_LINE,   [FAL_FATE_REVISE] = FAL_END_REVISE,
		[FAL_FATE_DROP] = FAL_END_DROP,   [FAL_FATE_ABANDON] = FAL_END_DROP,
		[FAL_FATE_GIVE] = FAL_END_GIVE,
	};
	const struct fal_news n = { .act = *a };
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	const struct fal_shard_order o = {
		.kind = FAL_ORDER_END,
		.round = a->round,
		.end = ends[a->fate],
		.version = a->version,
		.weight = a->weight,
		.slot = a->slot,
		.below = a->below,
		.divisor = a->divisor,
		.clipped = a->fate == FAL_FATE_LINE && c->conf.optim.clip > 0,
		.ahead = a->ahead,
		.lr = (float)fal_schedule_lr(&c->conf.schedule, r.clock)
	};
	if (!a->ahead)
		gather_end(c, a->round);
	if (a->fate < FAL_FATE_DROP)
		collect(c, a, &r);
	add_news(c, &n);
	coord_order(c, &o);
}

/* Moves the line's collected rounds, in their order, to the front of the rounds that are
 * not told, behind the rounds of lines that were pushed before. */
static void
bring_forward(struct fal_coord *c, uint32_t line)
{
	for (uint32_t i = c->told + c->pushed; i < c->mergeds; i++) {
		const uint32_t at = c->told + c->pushed;
		struct fal_collected m = c->merged[i], *to = c->merged + at;
		if (m.line != line)
			continue;
		memmove(to + 1, to, (i - at) * sizeof(m));
		*to = m;
		c->pushed++;
	}
}

static void
push_line(struct fal_coord *c, const struct fal_act *a)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_COLLECT,
					   .line = a->line,
					   .weight = a->weight };
	FAL_XGROW(c->push, c->push_cap, (size_t)c->pushes + 1);
	c->push[c->pushes++] = (struct fal_line_push){ a->line, a->weight, a->among };
	bring_forward(c, a->line);
	coord_order(c, &o);
}

/* Names the versions that its open rounds are computed on, in c->named: how many. */
static uint32_t
name_versions(struct fal_coord *c, const struct fal_peer *p)
{
	const uint32_t n = fal_sched_named(c->sched, p->worker, NULL, 0);
	FAL_XGROW(c->named, c->named_cap, n);
	return fal_sched_named(c->sched, p->worker, c->named, n);
}

static void
tell_version(struct fal_coord *c, struct fal_peer *p, struct fal_coord_model *m)
{
	struct fal_msg told = { .type = FAL_MSG_VERSION };
	told.version.version = m->version;
	told.version.oldest = m->oldest;
	told.version.keep = m->keep;
	m->order = ++p->versions;
	coord_send(c, p->id, &told);
	/* The shards send it what it has of the version. */
	m->newest = c->published;
	m->names = name_versions(c, p);
	m->named = c->named;
	c->ops.model(coord_call(c), p->id, m);
	coord_called(c);
}

/* The oldest version that workers may be told of. */
static uint64_t
oldest_told(const struct fal_coord *c)
{
	return c->untold ? c->oldest_told : c->oldest;
}

void
coord_send_version(struct fal_coord *c, struct fal_peer *p, uint64_t version, bool keep)
{
	const uint64_t kept = oldest_told(c);
	const uint64_t needed = fal_sched_oldest(c->sched, p->worker);
	const bool on_line = fal_branch_of(needed) != 0;
	struct fal_coord_model m = { .version = version,
				     .oldest = on_line || needed < kept ? needed : kept,
				     .from = on_line ? 0 : kept,
				     .keep = keep };
	p->oldest = m.oldest;
	p->again = 0;
	tell_version(c, p, &m);
}

/* Sums up the losses and samples of the rounds that make the update. */
static void
sum_up(const struct fal_coord *c, struct fal_news *n)
{
	uint64_t loss = 0;
	bool unknown = false;
	n->samples = 0;
	for (uint32_t i = n->first; i < n->first + n->rounds; i++) {
		loss += c->merged[i].loss;
		unknown |= c->merged[i].unknown;
		n->samples += c->merged[i].samples;
	}
	n->loss = n->samples > 0 ? loss_of(loss, unknown) / (double)n->samples
				 : (double)NAN;
}

/* The count of versions that shards keep when this one is the newest.  A version that is
 * not published yet may have to be held.  Another shard may still lack tasks of a round
 * that one shard has stepped. */
static uint32_t
kept_with(const struct fal_coord *c, uint64_t version)
{
	const uint64_t read = version - fal_sched_read(c->sched, version) + 1;
	uint64_t n = version - c->published;
	if (c->conf.shards > 1 && n < read)
		n = read;
	return n > c->keeps ? (uint32_t)n : c->keeps;
}

/* Names the worker or group whose round alone makes the update, for a momentum of its
 * own; 0: there is none. */
static uint32_t
pusher_of(struct fal_coord *c, const struct fal_news *n)
{
	const struct fal_rule *rule = &fal_sched_policy(c->sched)->rule;
	struct fal_round_info r;
	if (!n->graded || !fal_rule_traits(rule).alone || rule->quorum > 0 ||
	    !fal_optim_by_pusher(&c->conf.optim) ||
	    !fal_sched_round(c->sched, c->merged[n->first].round, &r))
		return 0;
	if (r.owner != 0)
		c->known[r.owner - 1].momentum = true;
	return r.owner != 0 ? r.owner : r.group;
}

/* Adds to the order the part of a clock that the gradients are, and their pusher. */
static void
say_part(struct fal_coord *c, const struct fal_news *n, struct fal_shard_order *o)
{
	const double samples = (double)n->samples;
	if (!n->graded || !(o->divisor > 0))
		return;
	o->slot = pusher_of(c, n);
	if (samples != o->divisor)
		o->part = (struct fal_optim_part){ samples / o->divisor, n->act.in };
	o->divisor = samples;
}

static void
order_step(struct fal_coord *c, const struct fal_act *a)
{
	/* All shards use the same float as the rate; the law needs no more than that. */
	struct fal_news n = { .act = *a,
			      .lr = (float)fal_schedule_lr(&c->conf.schedule, a->clock),
			      .graded = c->graded };
	struct fal_shard_order o = { .kind = FAL_ORDER_STEP,
				     .lr = n.lr,
				     .divisor = a->divisor,
				     .weight = a->weight,
				     .momentum = a->momentum,
				     .clipped = n.graded && a->divisor > 0 &&
						c->conf.optim.clip > 0,
				     .mark = c->mark && coord_markable(c) };
	n.marked = o.mark;
	c->mark &= !o.mark;
	c->graded = false;
	c->untold = a->ahead;
	c->oldest_told = c->oldest;
	if (c->version - c->oldest + 1 >= c->keeps)
		c->oldest = c->version + 2 - c->keeps;
	n.version = ++c->version;
	o.versions = kept_with(c, n.version);
	o.version = n.version;
	o.below = c->oldest;
	n.first = c->told;
	if (c->pushes == 0)
		bring_forward(c, 0);
	n.rounds = c->pushed;
	n.push = c->push;
	n.pushes = c->pushes;
	c->push = NULL;
	c->pushes = c->pushed = 0;
	c->push_cap = 0;
	sum_up(c, &n);
	say_part(c, &n, &o);
	c->told += n.rounds;
	if (!a->ahead)
		c->status.loss = n.loss;
	n.over = a->over;
	if (c->conf.test_samples > 0 && n.over >= c->next_eval && c->due <= c->published)
		c->due = n.version;
	/* Is nothing to come behind the version?  Where clocks are over in their order
	 * each is the end of one, whoever has run ahead; else it may be. */
	const bool last = c->loose ? fal_sched_front(c->sched) >= c->clocks
				   : a->clock + 1 >= c->clocks;
	/* A version that the job may leave has a hash. */
	o.hash = n.version % c->conf.hashes == 0 || n.marked || n.version == c->due ||
		 last;
	add_news(c, &n);
	coord_order(c, &o);
}

/* The round of a contribution to an update that was ordered ahead is over. */
static void
made(struct fal_coord *c, double now, uint64_t round)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, round, &r) || !r.armed)
		return;
	gather_end(c, round);
	fal_sched_made(c->sched, now, round);
}

/* As it turned out: other claims may have taken the place of those that were there when
 * it was ordered. */
static void
sum_up_again(struct fal_coord *c, struct fal_news *n)
{
	struct fal_round_info r;
	for (uint32_t i = n->first; i < n->first + n->rounds; i++) {
		struct fal_collected *m = &c->merged[i];
		if (fal_sched_round(c->sched, m->round, &r)) {
			m->loss = (uint64_t)fal_ledger_loss(r.ledger);
			m->unknown = !fal_ledger_loss_known(r.ledger);
		}
		if (!m->own)
			coord_health_count(c, m->clock, loss_of(m->loss, m->unknown),
					   m->samples);
	}
	sum_up(c, n);
	c->status.loss = n->loss;
}

/* All shards have stepped, and what that was made of is reported. */
static void
publish(struct fal_coord *c, double now, struct fal_news *n)
{
	const uint64_t version = n->version;
	const uint32_t first = n->first, rounds = n->rounds;
	sum_up_again(c, n);
	c->published = version;
	fal_sched_published(c->sched, now, version);
	for (uint32_t i = first; i < first + rounds; i++)
		made(c, now, c->merged[i].round);
	/* The clocks that were ordered ahead are over now, and with them the clocks that
	 * another policy has left. */
	const uint64_t over = n->act.ahead ? fal_sched_over(c->sched) : n->over;
	c->stepped = over;
	coord_health(c, version, over, first + rounds);
	if (c->why == NULL && c->conf.test_samples > 0 && !c->evaluating &&
	    n->over >= c->next_eval && !(c->judged && c->kept_clock == over))
		coord_begin_eval(c, now, version, over);
	if (n->marked)
		coord_remember(c, version, over);
}

/* Is all that it is made of reported?  Else losses are still to come. */
static bool
is_reported(const struct fal_coord *c, const struct fal_news *n)
{
	struct fal_round_info r;
	bool all = true;
	for (uint32_t i = n->first; i < n->first + n->rounds; i++)
		all &= !fal_sched_round(c->sched, c->merged[i].round, &r) || !r.armed ||
		       r.passed;
	return all;
}

static void
publish_all(struct fal_coord *c, double now)
{
	for (uint32_t i = 0; i < c->newses && c->err == 0; i++) {
		struct fal_news *n = &c->news[i];
		if (n->act.kind != FAL_ACT_STEP || n->version <= c->published ||
		    !have_all(c, n->said))
			continue;
		if (!is_reported(c, n))
			return;
		publish(c, now, n);
	}
}

_Static_assert(FAL_KEPT_MAX >= FAL_SLACK_MAX + 8, "shards keep what any slack needs");

void
coord_keep_versions(struct fal_coord *c, uint32_t versions)
{
	struct fal_shard_order o = { .kind = FAL_ORDER_KEEP };
	c->keeps = versions;
	o.versions = kept_with(c, c->version);
	if (c->version - c->oldest + 1 > versions)
		c->oldest = c->version + 1 - versions;
	coord_order(c, &o);
}

/* A version's bit in p->again; 0: it has none. */
static uint64_t
again_bit(const struct fal_peer *p, uint64_t version)
{
	const uint64_t back = p->oldest - version - 1;
	return version < p->oldest && back < 64 ? UINT64_C(1) << back : 0;
}

/* Several may be filled in turn: each is told once, if it has a bit, and none is
 * forgotten for another one as long as the worker has an open round on it. */
static void
send_again(struct fal_coord *c, struct fal_peer *p, uint64_t version)
{
	const bool on_line = fal_branch_of(p->oldest) != 0 || fal_branch_of(version) != 0;
	const uint64_t bit = again_bit(p, version);
	struct fal_coord_model m = { .version = version,
				     .oldest = version,
				     .from = version };
	if (on_line || version >= p->oldest || (p->again & bit) != 0)
		return;
	uint64_t stay = p->again & (bit - 1); /* newer ones; without a bit: all */
	m.names = name_versions(c, p);
	for (uint32_t i = 0; i < m.names; i++) {
		const uint64_t named = p->again & again_bit(p, c->named[i]);
		stay |= named;
		m.oldest = named != 0 && c->named[i] < m.oldest ? c->named[i] : m.oldest;
	}
	p->again = stay | bit;
	tell_version(c, p, &m);
}

static void
send_to(struct fal_coord *c, struct fal_peer *p)
{
	const uint64_t newest = c->version - c->untold;
	uint64_t from = oldest_told(c);
	if (!p->ready || (c->brought && !c->newer))
		return;
	if (!p->on_line && p->next_version > from)
		from = p->next_version;
	for (uint64_t v = from; v <= newest; v++) {
		if (c->brought && !coord_given(c, v))
			continue;
		const bool keep = v != p->kept && (c->evaluating ? v == c->kept_version
								 : v > 0 && v == c->due);
		p->kept = keep ? v : p->kept;
		coord_send_version(c, p, v, keep);
	}
	p->next_version = newest + 1;
	p->on_line = false;
}

/* Adds up what the round's ledger says. */
static void
count(struct fal_coord *c, const struct fal_ledger *l, enum fal_fate fate)
{
	struct fal_coord_tasks *s = &c->status.tasks;
	for (size_t i = 0; i < l->log[FAL_ENTRY_MOVE].n; i++)
		s->moved += l->log[FAL_ENTRY_MOVE].v[i].count;
	for (size_t i = 0; i < l->log[FAL_ENTRY_CLONE].n; i++)
		s->cloned += l->log[FAL_ENTRY_CLONE].v[i].count;
	for (size_t i = 0; i < l->log[FAL_ENTRY_LOST].n; i++)
		s->lost += l->log[FAL_ENTRY_LOST].v[i].count;
	for (uint32_t i = 0; i < l->contribs; i++)
		if (l->contrib[i].fills != FAL_NONE &&
		    l->contrib[i].state != FAL_CONTRIB_FENCED)
			s->filled += l->contrib[i].tasks;
	s->dropped += fate == FAL_FATE_DROP ? l->tasks : 0;
	s->skipped += fate != FAL_FATE_ABANDON ? l->skipped : 0;
}

/* Names the worker whose values were so large that blocks are left as they were. */
static void
tell_unstepped(struct fal_coord *c, const struct fal_news *n, uint64_t clock, bool change)
{
	if (n->unstepped == 0 || c->ops.unstepped == NULL)
		return;
	const struct fal_known_worker *w = coord_known(c, n->by);
	const struct fal_coord_unstepped is = { .clock = clock,
						.blocks = n->unstepped,
						.name = w->name,
						.key = c->key[w->key - 1].is.name,
						.change = change };
	c->ops.unstepped(coord_call(c), &is);
	coord_called(c);
}

static void
tell_end(struct fal_coord *c, double now, const struct fal_news *n)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, n->act.round, &r))
		return;
	static const char *const bases[] = { "version", "local", "rebase" };
	const enum fal_trace_end end = n->act.fate == FAL_FATE_DROP ? FAL_END_DROPPED
				       : n->act.fate == FAL_FATE_ABANDON
					       ? FAL_END_ABANDONED
				       : n->act.fate == FAL_FATE_GIVE ? FAL_END_GIVEN
								      : FAL_END_APPLIED;
	const bool applied = end == FAL_END_APPLIED, line = n->act.fate == FAL_FATE_LINE;
	const bool steps = applied && r.delta && r.steps > 0;
	const bool is_late = r.late != FAL_NONE;
	const bool revised = applied && n->act.fate == FAL_FATE_REVISE;
	const struct fal_ev_stale stale = { r.stale_clocks, r.stale_updates,
					    revised ? n->act.count : 0 };
	struct fal_ev_ledger e = {
		.round = r.round,
		.clock = r.clock,
		.first = r.first,
		.samples = r.samples,
		/* A task of another coordinator's is alone in its round. */
		.version = c->brought && is_late ? r.after : r.taken,
		.late = is_late && !c->brought ? r.late : FAL_TRACE_ABSENT,
		.blocks = fal_blocks(c->conf.params),
		.kind = r.delta ? FAL_TRACE_DELTA : FAL_TRACE_GRAD,
		.owner = r.owner,
		.group = r.group,
		.local = r.local,
		.end = end,
		.why = applied || end == FAL_END_GIVEN ? NULL : n->act.why,
		.weight = applied && r.delta ? n->act.weight : (double)NAN,
		.among = applied ? n->act.among : 0,
		.divisor = line ? n->act.divisor : 0,
		.steps = steps ? r.steps : 0,
		.base = steps ? bases[r.base] : NULL,
		.since = steps && r.base == FAL_START_REBASE ? r.since : FAL_TRACE_ABSENT,
		.lr = applied && (r.delta || line)
			      ? (double)(float)fal_schedule_lr(&c->conf.schedule, r.clock)
			      : 0,
		.stale = applied ? &stale : NULL,
		.unstepped = applied ? n->unstepped : 0,
		.slot = revised && stale.rank > 0 ? n->act.slot : FAL_TRACE_ABSENT,
	};
	const struct fal_line_ledger of = { .hashed = c->conf.task_hashes,
					    .on = c->on,
					    .ons = c->ons,
					    .sums = c->conf.audit_sums,
					    .seed = fal_ticket_seed(&c->conf.tickets,
								    r.round),
					    .added = n->added,
					    .sum = n->sum,
					    .n_sums = n->sums };
	fal_line_ledger(&c->line, fal_coord_seconds(c, now), &of, r.ledger, &e);
	coord_trace(c);
	tell_unstepped(c, n, r.clock, r.delta);
	count(c, r.ledger, n->act.fate);
	if (n->act.fate != FAL_FATE_ABANDON)
		coord_health_skip(c, r.clock, r.ledger->skipped);
	if (n->act.fate == FAL_FATE_GIVE) {
		c->ops.given(coord_call(c), r.round);
		coord_called(c);
	}
	size_t kept = 0;
	for (size_t i = 0; i < c->ons; i++)
		if (c->on[i].round != r.round)
			c->on[kept++] = c->on[i];
	c->ons = kept;
	fal_sched_forget_round(c->sched, r.round);
}

static void
tell_step(struct fal_coord *c, double now, const struct fal_news *n)
{
	uint64_t *rounds = fal_xcalloc(n->rounds, sizeof(*rounds));
	struct fal_ev_update line = {
		.version = n->version,
		.clock = n->act.clock,
		.rounds = { rounds, n->rounds },
		.groups = n->act.among,
		.divisor = n->graded ? n->act.divisor : 0,
		.samples = (uint32_t)n->samples,
		.loss = n->loss,
		.lr = (double)n->lr,
		.norm = n->norm,
		.epoch = n->act.clock / fal_grid_epoch_clocks(&c->conf.grid) + 1,
		.unstepped = n->unstepped,
	};
	const struct fal_line_update of = {
		.push = n->push,
		.pushes = n->pushes,
		.outer = n->act.weight,
		.momentum = n->act.momentum,
		.hash = n->hashed ? n->hash : NULL,
		.exponents = n->exponents,
	};
	for (uint32_t i = 0; i < n->rounds; i++)
		rounds[i] = c->merged[n->first + i].round;
	fal_line_update(&c->line, fal_coord_seconds(c, now), &of, &line);
	free(rounds);
	coord_trace(c);
	tell_unstepped(c, n, n->act.clock, false);
	c->waits.version = n->version;
	if (n->act.clock >= c->waits.over)
		c->waits.over = n->act.clock + 1;
}

/* Have all shards said so, and is what was ordered ahead over?  Until then claims come
 * that its line is to have. */
static bool
is_told(const struct fal_coord *c, const struct fal_news *n)
{
	struct fal_round_info r;
	return have_all(c, n->said) &&
	       (n->act.kind != FAL_ACT_END ||
		!fal_sched_round(c->sched, n->act.round, &r) || !r.armed);
}

static void
tell_news(struct fal_coord *c, double now)
{
	uint32_t n = 0, told = 0;
	for (; n < c->newses && is_told(c, &c->news[n]) && c->err == 0; n++) {
		const struct fal_news *news = &c->news[n];
		if (news->act.kind == FAL_ACT_END)
			tell_end(c, now, news);
		else
			tell_step(c, now, news);
		coord_tell_shards(c, now, false);
		coord_measure(c, now);
		if (news->marked)
			coord_marked(c, now);
		free(news->sum);
		free(news->leaves); /* where not all had some */
		free(news->push);
		told += news->rounds;
	}
	c->newses -= n;
	if (n > 0)
		memmove(c->news, c->news + n, c->newses * sizeof(*c->news));
	/* Told rounds go; the rounds collected for the next update stay. */
	c->mergeds -= told;
	c->told -= told;
	if (told > 0)
		memmove(c->merged, c->merged + told, c->mergeds * sizeof(*c->merged));
	for (uint32_t i = 0; i < c->newses; i++)
		c->news[i].first -= c->news[i].act.kind == FAL_ACT_STEP ? told : 0;
}

/* ---- what shards say ------------------------------------------------------------- */

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

/* Collects the squares by whose sum all shards clip; the shards wait for this sum.  The
 * shards say the squares of one order after the other. */
static void
on_squares(struct fal_coord *c, uint32_t shard, const struct fal_shard_say *say)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	struct fal_shard_order o = { .kind = FAL_ORDER_SCALE };
	if (c->squares == NULL)
		c->squares = fal_xcalloc(blocks, sizeof(*c->squares));
	memcpy(c->squares + say->first, say->squares, say->blocks * sizeof(*c->squares));
	c->squared |= UINT64_C(1) << shard;
	if (!have_all(c, c->squared))
		return;
	c->squared = 0;
	/* In the order of blocks: so the sum is the same however they are placed. */
	for (uint32_t b = 0; b < blocks; b++)
		o.squares += c->squares[b];
	struct fal_news *n = news_of(c, FAL_ACT_STEP, say->version);
	if (n != NULL)
		n->norm = sqrt(o.squares);
	coord_order(c, &o);
}

void
coord_commit_free(struct fal_coord *c)
{
	while (c->gathers > 0)
		gather_end(c, c->gather[0].round);
	free(c->gather);
	free(c->squares);
	free(c->on);
}

/* The contribution, and its place in the ledger, for which there is room then; NULL:
 * there is none. */
static const struct fal_contrib *
place_in(const struct fal_coord *c, struct fal_gather *g, struct fal_cid id, uint32_t *at)
{
	struct fal_round_info r;
	if (g == NULL || !fal_sched_round(c->sched, g->round, &r))
		return NULL;
	*at = fal_ledger_find(r.ledger, id);
	if (*at == FAL_NONE)
		return NULL;
	const uint32_t n = r.ledger->contribs;
	FAL_XGROW(g->partly, g->partly_cap, n);
	while (g->places < n)
		g->partly[g->places++] = (struct fal_partly){ 0 };
	return &r.ledger->contrib[*at];
}

/* A shard that has ended a round no longer reports contributions complete. */
static void
on_arrived(struct fal_coord *c, double now, uint32_t shard,
	   const struct fal_shard_say *say)
{
	struct fal_gather *g = gather_of(c, say->round);
	uint32_t at;
	if (place_in(c, g, say->id, &at) == NULL)
		return;
	uint64_t *whole = &g->partly[at].whole;
	*whole |= (uint64_t)say->whole << shard;
	const bool all = say->whole && have_all(c, *whole | g->over);
	if (all)
		*whole = 0;
	fal_sched_arrived(c->sched, now, say->round, say->id, say->blocks, all);
}

static void
on_fenced(struct fal_coord *c, double now, uint32_t shard,
	  const struct fal_shard_say *say)
{
	struct fal_gather *g = gather_of(c, say->round);
	uint32_t at;
	const struct fal_contrib *is = place_in(c, g, say->id, &at);
	/* None was told to, or all have said so. */
	if (is == NULL || is->state != FAL_CONTRIB_FENCED || is->everywhere)
		return;
	g->partly[at].fenced |= UINT64_C(1) << shard;
	if (have_all(c, g->partly[at].fenced))
		fal_sched_fenced(c->sched, now, say->round, say->id);
}

/* Ends the worker's session, as if the worker had pushed the refused records here, and
 * charges its key where no honest worker makes such records. */
static void
on_refused(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	const struct fal_peer *p = coord_find(c, coord_session_of(c, say->id.worker));
	if (p == NULL || !p->ready)
		return;
	if (say->err == FAL_ELIMIT || say->err == FAL_EINVAL)
		coord_charge_key(c, p);
	coord_refuse(c, now, p->id, say->odd);
}

/* A worker's own steps follow each other: is one before it still waited for? */
static bool
is_behind(const struct fal_coord *c, const struct fal_round_info *r)
{
	struct fal_round_info is;
	for (size_t i = 0; i < c->gathers && c->gather[i].round < r->round; i++)
		if (r->delta && fal_sched_round(c->sched, c->gather[i].round, &is) &&
		    is.delta && is.owner == r->owner)
			return true;
	return false;
}

/* The round is complete, if all shards have their part of it, or have done with it. */
static void
complete(struct fal_coord *c, double now, const struct fal_gather *g)
{
	struct fal_round_info r;
	if (c->why != NULL || !have_all(c, g->complete | g->over) ||
	    !fal_sched_round(c->sched, g->round, &r))
		return;
	/* An order that is on its way ends it. */
	if (!r.armed && !is_behind(c, &r))
		fal_sched_complete(c->sched, now, r.round);
}

static void
complete_behind(struct fal_coord *c, double now)
{
	struct fal_round_info is;
	for (size_t i = 0; i < c->gathers; i++)
		if (fal_sched_round(c->sched, c->gather[i].round, &is) && is.delta)
			complete(c, now, &c->gather[i]);
}

/* The shard has its part of the round, or has done with it. */
static void
has_all(struct fal_coord *c, double now, struct fal_gather *g, uint64_t *said,
	uint32_t shard)
{
	const uint64_t was = g->complete | g->over;
	*said |= UINT64_C(1) << shard;
	if ((g->complete | g->over) != was)
		complete(c, now, g);
}

/* The news that the shard reports done for the first time; or NULL.  A report of why the
 * job cannot go on ends the job. */
static struct fal_news *
news_done_by(struct fal_coord *c, enum fal_act_kind kind, uint64_t number, uint32_t shard,
	     const struct fal_shard_say *say)
{
	struct fal_news *n = news_of(c, kind, number);
	if (say->odd != NULL) { /* the say's words do not last */
		snprintf(c->odd, sizeof(c->odd), "%s", say->odd);
		c->why = c->odd;
	}
	if (n == NULL || (n->said >> shard & 1) != 0)
		return NULL;
	n->said |= UINT64_C(1) << shard;
	if (say->beyond > 0 && (n->unstepped == 0 || say->most > n->most)) {
		n->by = say->id.worker;
		n->most = say->most;
	}
	n->unstepped += say->beyond;
	return n;
}

/* Adds the checksums of what each contribution has brought to a shard. */
static void
add_sums(const struct fal_coord *c, struct fal_news *n, const struct fal_shard_say *say)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, say->round, &r))
		return;
	FAL_XGROW(n->sum, n->sum_cap, r.ledger->contribs);
	while (n->sums < r.ledger->contribs)
		n->sum[n->sums++] = 0;
	for (uint32_t i = 0; i < say->broughts; i++) {
		const uint32_t at = fal_ledger_find(r.ledger, say->brought[i].id);
		if (at != FAL_NONE)
			n->sum[at] += say->brought[i].sum;
	}
	n->added += say->added;
}

static void
on_ended(struct fal_coord *c, double now, uint32_t shard, const struct fal_shard_say *say)
{
	struct fal_news *n = news_done_by(c, FAL_ACT_END, say->round, shard, say);
	struct fal_gather *g = gather_of(c, say->round);
	if (n == NULL)
		return;
	if (c->conf.audit_sums)
		add_sums(c, n, say);
	if (say->rank > 0) {
		n->act.weight = 1.0 / say->rank;
		n->act.count = say->rank;
	}
	if (g != NULL)
		has_all(c, now, g, &g->over, shard);
}

/* The leaves and exponents of a shard's blocks; with those of all, the hashes of the
 * version. */
static void
on_leaves(const struct fal_coord *c, struct fal_news *n, const struct fal_shard_say *say)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	if (n->leaves == NULL)
		n->leaves = fal_xcalloc(blocks, FAL_HASH_BYTES + 1);
	int8_t *exps = (int8_t *)(n->leaves + (size_t)blocks * FAL_HASH_BYTES);
	memcpy(exps + say->first, say->exps, say->blocks);
	memcpy(n->leaves + (size_t)say->first * FAL_HASH_BYTES, say->leaves,
	       (size_t)say->blocks * FAL_HASH_BYTES);
	if (!have_all(c, n->said))
		return;
	fal_leaf_root(n->leaves, blocks, n->hash);
	fal_leaf_exponents(exps, blocks, n->exponents);
	n->hashed = true;
	free(n->leaves);
	n->leaves = NULL;
}

static void
on_stepped(struct fal_coord *c, double now, uint32_t shard,
	   const struct fal_shard_say *say)
{
	struct fal_news *n = news_done_by(c, FAL_ACT_STEP, say->version, shard, say);
	if (n == NULL)
		return;
	if (say->leaves != NULL)
		on_leaves(c, n, say);
	if (!have_all(c, n->said))
		return;
	const uint32_t first = n->first, rounds = n->rounds;
	for (uint32_t i = first; i < first + rounds; i++)
		fal_sched_stepped(c->sched, now, c->merged[i].round);
	publish_all(c, now);
}

static void
hear(struct fal_coord *c, double now, uint32_t shard, const struct fal_shard_say *say)
{
	struct fal_gather *g = NULL;
	/* The coordinator asks a shard without blocks only whether it can have some. */
	if ((fal_map_busy(&c->map) >> shard & 1) == 0 && say->kind != FAL_SAY_MIGRATED &&
	    say->kind != FAL_SAY_REFUSED)
		return;
	if (say->beyond > 0 && (say->id.worker - 1 >= c->workers ||
				coord_known(c, say->id.worker)->key == 0)) {
		c->why = "a shard speaks of work that nobody has done";
		return;
	}
	switch (say->kind) {
	case FAL_SAY_ARRIVED:
		on_arrived(c, now, shard, say);
		break;
	case FAL_SAY_COMPLETE:
		g = gather_of(c, say->round);
		if (g != NULL)
			has_all(c, now, g, &g->complete, shard);
		break;
	case FAL_SAY_FENCED:
		on_fenced(c, now, shard, say);
		break;
	case FAL_SAY_REFUSED:
		on_refused(c, now, say);
		break;
	case FAL_SAY_SQUARES:
		on_squares(c, shard, say);
		break;
	case FAL_SAY_ENDED:
		on_ended(c, now, shard, say);
		break;
	case FAL_SAY_STEPPED:
		on_stepped(c, now, shard, say);
		break;
	case FAL_SAY_MIGRATED:
		coord_migrated(c, now, shard, say);
		break;
	}
}

static void
hear_all(struct fal_coord *c, double now)
{
	struct fal_shard_say say;
	uint32_t shard;
	while (c->err == 0) {
		coord_call(c);
		const bool any = c->ops.shards.next(c->ops.shards.arg, &shard, &say);
		coord_called(c);
		if (!any)
			return;
		hear(c, now, shard, &say);
	}
}

/* ---- what the scheduler decides is carried out ------------------------------------- */

static void
grant(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	struct fal_round_info r;
	struct fal_ticket t;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	m.grant.round = a->round;
	m.grant.clock = r.clock;
	/* The helper of a mixed round computes on the version that the helper has. */
	struct fal_peer *p = coord_find(c, to);
	m.grant.version = a->kind == FAL_ACT_CHECK ? a->version
			  : r.mixed && p != NULL   ? p->next_version - 1
			  : a->late                ? r.after
						   : r.version;
	m.grant.exponents = r.mixed ? m.grant.version : r.version;
	if (a->kind == FAL_ACT_GRANT && r.mixed) {
		FAL_XGROW(c->on, c->on_cap, c->ons + 1);
		c->on[c->ons++] = (struct fal_granted_on){ .round = a->round,
							   .version = m.grant.version,
							   .worker = a->worker,
							   .first = a->first,
							   .count = a->count };
	}
	if (p != NULL)
		send_again(c, p, m.grant.exponents);
	if (p != NULL && m.grant.version != m.grant.exponents)
		send_again(c, p, m.grant.version);
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
	m.grant.of = a->cid.seq != 0 && coord_ticket(c, a->round, a->cid, &t) ? t.tasks
									      : r.tasks;
	m.grant.steps = r.steps;
	m.grant.lr = (float)fal_schedule_lr(&c->conf.schedule, r.clock);
	coord_send(c, to, &m);
	/* A contribution that is granted as claimed gets its ticket.  Where the ticket
	 * does not count any more, a fence or the round's end is on its way. */
	struct fal_msg with = { .type = FAL_MSG_TICKET };
	if (a->cid.seq == 0 || a->more || !coord_ticket(c, a->round, a->cid, &t))
		return;
	fal_ticket_put(&c->conf.tickets, to, &t, &with.ticket);
	coord_send(c, to, &with);
}

/* Asks where the worker's time went; its `clock` line follows when it has answered. */
static void
account(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	struct fal_peer *p = coord_find(c, to);
	if (p == NULL || !p->ready)
		return;
	if (p->oweds == FAL_OWED_MAX) /* the worker answers none of them */
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
	coord_send(c, to, &m);
}

/* The worker is a suspect, or back; or workers of its key get no work.  The trace does
 * not say that a key gets no work: the trace has the suspects, and for how long they are
 * suspects. */
static void
trace_late(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	struct fal_coord_late late = { .why = a->why,
				       .owes = a->owes,
				       .seconds = a->seconds };
	const struct fal_peer *p = coord_find(c, to);
	if (p == NULL || !p->ready)
		return;
	if (a->kind == FAL_ACT_BARRED) {
		late.key = c->key[p->key - 1].is.name;
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
	c->ops.late(coord_call(c), p->id, p->name, &late);
	coord_called(c);
}

static void
trace_nonfinite(struct fal_coord *c, double now, const struct fal_act *a)
{
	const struct fal_grid *g = &c->conf.grid;
	const uint64_t sample = a->clock % fal_grid_epoch_clocks(g) * g->batch +
				fal_grid_before(g, a->clock, a->first);
	coord_put(c, fal_coord_seconds(c, now), FAL_EV_NONFINITE,
		  &(struct fal_ev_nonfinite){ a->round, a->clock, a->first,
					      coord_known(c, a->worker)->name, a->worker,
					      sample });
}

/* The shards count a task that brings nothing. */
static void
skip(struct fal_coord *c, const struct fal_act *a)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	const struct fal_shard_order o = { .kind = FAL_ORDER_SKIP,
					   .round = a->round,
					   .fills = a->fills,
					   .facts = { .tasks = 1 } };
	const struct fal_coord_claimed none = { .round = a->round,
						.task = a->first,
						.nonfinite = true };
	if (c->brought)
		coord_tell_claimed(c, &none);
	coord_order(c, &o);
}

/* Shards and worker hear that nothing more of a contribution counts. */
static void
fence(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_FENCE,
					   .round = a->round,
					   .id = a->cid,
					   .fills = a->fills };
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	m.fence.round = a->round;
	m.fence.seq = a->cid.seq;
	coord_order(c, &o);
	coord_send(c, to, &m);
}

static void
revoke(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_REVOKE };
	m.revoke.round = a->round;
	m.revoke.first = a->first;
	m.revoke.count = a->count;
	m.revoke.check = a->kind == FAL_ACT_UNCHECK;
	coord_send(c, to, &m);
}

static void
evaluate(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_EVAL };
	m.eval.version = c->kept_version;
	m.eval.first = a->first;
	m.eval.count = a->count;
	coord_send(c, to, &m);
}

/* The worker, or with 0 all of them, is told of what it may compute on. */
static void
tell_versions(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	struct fal_peer *p = coord_find(c, to);
	if (a->version != 0 && p != NULL && p->ready) { /* the newest one of a line */
		p->on_line = true;
		coord_send_version(c, p, a->version, false);
	}
	if (a->version != 0)
		return;
	if (p != NULL)
		send_to(c, p);
	if (a->worker != 0)
		return;
	c->untold = false;
	for (uint32_t i = 0; i < c->peers; i++)
		send_to(c, &c->peer[i]);
	publish_all(c, now);
}

static void
apply(struct fal_coord *c, double now, const struct fal_act *a)
{
	const uint32_t to = coord_session_of(c, a->worker);
	struct fal_msg lanes = { .type = FAL_MSG_LANES, .lanes.lanes = a->count };
	const struct fal_shard_order line = { .kind = FAL_ORDER_LINE,
					      .version = a->version };
	switch (a->kind) {
	case FAL_ACT_LINE:
		coord_order(c, &line);
		break;
	case FAL_ACT_OPEN:
		open_round(c, a);
		break;
	case FAL_ACT_END:
		end_round(c, a);
		if (!a->ahead)
			complete_behind(c, now);
		break;
	case FAL_ACT_PUSH:
		push_line(c, a);
		break;
	case FAL_ACT_STEP:
		order_step(c, a);
		break;
	case FAL_ACT_MODEL:
		tell_versions(c, now, to, a);
		break;
	case FAL_ACT_ACCOUNT:
		account(c, now, to, a);
		break;
	case FAL_ACT_GRANT:
	case FAL_ACT_CHECK:
		grant(c, to, a);
		break;
	case FAL_ACT_REVOKE:
	case FAL_ACT_UNCHECK:
		revoke(c, to, a);
		break;
	case FAL_ACT_LANES:
		coord_send(c, to, &lanes);
		break;
	case FAL_ACT_FENCE:
		fence(c, to, a);
		break;
	case FAL_ACT_EVAL:
		evaluate(c, to, a);
		break;
	case FAL_ACT_PING:
		coord_ping(c, now, to);
		break;
	case FAL_ACT_CHARGE:
		coord_charged(c, now, a->worker, a->why);
		break;
	case FAL_ACT_SUSPECT:
	case FAL_ACT_BACK:
	case FAL_ACT_BARRED:
		trace_late(c, now, to, a);
		break;
	case FAL_ACT_EVICT:
		coord_refuse(c, now, to, a->why);
		break;
	case FAL_ACT_NONFINITE:
		trace_nonfinite(c, now, a);
		break;
	case FAL_ACT_STOP:
		c->why = "a gradient is not finite, on two runs";
		break;
	case FAL_ACT_SKIP:
		skip(c, a);
		break;
	}
}

/* Has the shards forget the momentum of workers that left and have no update to come.
 * During a move a shard's state does not change, so the caller waits. */
static void
forget_leavers(struct fal_coord *c)
{
	for (uint32_t i = 0; i < c->leavers; i++)
		coord_order(c, &(struct fal_shard_order){ .kind = FAL_ORDER_FORGET,
							  .slot = c->leaver[i] });
	c->leavers = 0;
}

void
coord_drain(struct fal_coord *c, double now)
{
	struct fal_act a;
	hear_all(c, now);
	while (c->err == 0 && fal_sched_next(c->sched, &a)) {
		apply(c, now, &a);
		hear_all(c, now);
	}
	if (c->err == 0 && !c->move.begun)
		forget_leavers(c);
	if (c->err == 0)
		tell_news(c, now);
}
