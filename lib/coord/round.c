/* Rounds, updates and versions, as the scheduler decides them; and what the trace says of
 * them when that is done: workers wait for a version, the trace waits for nobody. */
#include "coord/priv.h"

#include "base/line.h"
#include "base/loss.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

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

int
coord_open_round(struct fal_coord *c, const struct fal_act *a)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return FAL_OK;
	const struct fal_shard_order o = { .kind = FAL_ORDER_OPEN,
					   .round = r.round,
					   .facts = facts_of(&r) };
	int err = coord_gather_open(c, r.round);
	return err < 0 ? err : coord_order(c, &o);
}

static int
add_news(struct fal_coord *c, const struct fal_news *n)
{
	if (FAL_GROW(c->news, c->news_cap, (size_t)c->newses + 1) < 0)
		return FAL_ENOMEM;
	c->news[c->newses++] = *n;
	return FAL_OK;
}

/* NAN: that of a task is not known. */
static double
loss_of(uint64_t loss, bool unknown)
{
	return unknown ? (double)NAN : fal_loss_is((int64_t)loss);
}

/* Its gradients, or its change of weights, are collected.  A clock may be over before
 * what it has in rounds of its own is stepped. */
static int
collect(struct fal_coord *c, const struct fal_act *a, const struct fal_round_info *r)
{
	const uint64_t loss = (uint64_t)fal_ledger_loss(r->ledger);
	const bool own = r->owner != 0 || r->group != 0,
		   unknown = !fal_ledger_loss_known(r->ledger, &c->conf.grid, r->clock);
	if (own &&
	    coord_health_count(c, r->clock, loss_of(loss, unknown), r->samples) < 0)
		return FAL_ENOMEM;
	if (FAL_GROW(c->merged, c->merged_cap, (size_t)c->mergeds + 1) < 0)
		return FAL_ENOMEM;
	c->graded |= a->fate == FAL_FATE_MERGE;
	c->merged[c->mergeds++] =
		(struct fal_collected){ .round = a->round,
					.line = a->fate == FAL_FATE_LINE ? r->group : 0,
					.loss = loss,
					.samples = r->samples,
					.unknown = unknown,
					.clock = r->clock,
					.own = own };
	return FAL_OK;
}

static enum fal_end
end_of(enum fal_fate fate)
{
	switch (fate) {
	case FAL_FATE_MERGE:
		return FAL_END_MERGE;
	case FAL_FATE_ADD:
		return FAL_END_ADD;
	case FAL_FATE_LINE:
		return FAL_END_LINE;
	case FAL_FATE_REVISE:
		return FAL_END_REVISE;
	case FAL_FATE_GIVE:
		return FAL_END_GIVE;
	default:
		return FAL_END_DROP;
	}
}

int
coord_end_round(struct fal_coord *c, const struct fal_act *a)
{
	const struct fal_news n = { .act = *a };
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return FAL_OK;
	const struct fal_shard_order o = {
		.kind = FAL_ORDER_END,
		.round = a->round,
		.end = end_of(a->fate),
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
		coord_gather_end(c, a->round);
	int err = a->fate < FAL_FATE_DROP ? collect(c, a, &r) : FAL_OK;
	if (err == FAL_OK)
		err = add_news(c, &n);
	return err < 0 ? err : coord_order(c, &o);
}

/* What was collected on the line stands first among what is not told, behind that of
 * lines that were pushed before it, in its order. */
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

int
coord_push(struct fal_coord *c, const struct fal_act *a)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_COLLECT,
					   .line = a->line,
					   .weight = a->weight };
	if (FAL_GROW(c->push, c->push_cap, (size_t)c->pushes + 1) < 0)
		return FAL_ENOMEM;
	c->push[c->pushes++] = (struct fal_line_push){ a->line, a->weight, a->among };
	bring_forward(c, a->line);
	return coord_order(c, &o);
}

/* On which versions its open rounds are computed, in c->named. */
static int
name_versions(struct fal_coord *c, const struct fal_peer *p, uint32_t *names)
{
	uint32_t n = fal_sched_named(c->sched, p->worker, NULL, 0);
	if (FAL_GROW(c->named, c->named_cap, n) < 0)
		return FAL_ENOMEM;
	*names = fal_sched_named(c->sched, p->worker, c->named, n);
	return FAL_OK;
}

/* The shards send it what it has of the version. */
static int
send_model(struct fal_coord *c, const struct fal_peer *p, struct fal_coord_model *m)
{
	m->newest = c->published;
	int err = name_versions(c, p, &m->names);
	if (err < 0)
		return err;
	m->named = c->named;
	coord_call(c);
	c->ops.model(c->ops.arg, p->id, m);
	coord_called(c);
	return FAL_OK;
}

static int
tell_version(struct fal_coord *c, struct fal_peer *p, struct fal_coord_model *m)
{
	struct fal_msg told = { .type = FAL_MSG_VERSION };
	told.version.version = m->version;
	told.version.oldest = m->oldest;
	told.version.keep = m->keep;
	m->order = ++p->versions;
	int err = coord_send(c, p->id, &told);
	return err < 0 ? err : send_model(c, p, m);
}

/* Of what workers may be told of. */
static uint64_t
oldest_told(const struct fal_coord *c)
{
	return c->untold ? c->oldest_told : c->oldest;
}

/* What is to be said of the version. */
static struct fal_coord_model
model_of(const struct fal_coord *c, const struct fal_peer *p, uint64_t version)
{
	const uint64_t kept = oldest_told(c);
	const uint64_t needed = fal_sched_oldest(c->sched, p->worker);
	const bool on_line = fal_line_of(needed) != 0;
	return (struct fal_coord_model){ .version = version,
					 .oldest =
						 on_line || needed < kept ? needed : kept,
					 .from = on_line ? 0 : kept };
}

int
coord_send_version(struct fal_coord *c, struct fal_peer *p, uint64_t version, bool keep)
{
	struct fal_coord_model m = model_of(c, p, version);
	m.keep = keep;
	p->oldest = m.oldest;
	p->again = 0;
	return tell_version(c, p, &m);
}

/* What the update is made of. */
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

/* How many versions are kept when this one is the newest.  What is not published yet may
 * have to be held; and what a shard has stepped another one may still lack tasks of. */
static uint32_t
kept_with(const struct fal_coord *c, uint64_t version)
{
	const uint64_t read = version - fal_sched_read(c->sched, version) + 1;
	uint64_t n = version - c->published;
	if (c->conf.shards > 1 && n < read)
		n = read;
	return n > c->keeps ? (uint32_t)n : c->keeps;
}

/* Is nothing to come behind the version?  Where clocks are over in their order each is
 * the end of one, whoever has run ahead; else it may be. */
static bool
is_last(const struct fal_coord *c, const struct fal_news *n)
{
	return c->loose ? fal_sched_front(c->sched) >= c->clocks
			: n->act.clock + 1 >= c->clocks;
}

/* Is the hash of the version asked for?  What the job may leave has one: the last
 * version, and what is marked or evaluated. */
static bool
is_hashed(const struct fal_coord *c, const struct fal_news *n)
{
	return n->version % c->conf.hashes == 0 || n->marked || n->version == c->due ||
	       is_last(c, n);
}

int
coord_step(struct fal_coord *c, const struct fal_act *a)
{
	/* One float for all shards; the law needs no more than that all use the same. */
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
	c->told += n.rounds;
	if (!a->ahead)
		c->status.loss = n.loss;
	n.over = a->over;
	if (c->conf.test_samples > 0 && n.over >= c->next_eval && c->due <= c->published)
		c->due = n.version;
	o.hash = is_hashed(c, &n);
	int err = add_news(c, &n);
	if (err == FAL_OK)
		err = coord_order(c, &o);
	return err;
}

/* The round of a contribution to an update that was ordered ahead is over. */
static int
made(struct fal_coord *c, double now, uint64_t round)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, round, &r) || !r.armed)
		return FAL_OK;
	coord_gather_end(c, round);
	fal_sched_made(c->sched, now, round);
	return FAL_OK;
}

/* As it turned out: other claims may have taken the place of those that were there when
 * it was ordered. */
static int
sum_up_again(struct fal_coord *c, struct fal_news *n)
{
	struct fal_round_info r;
	int err = FAL_OK;
	for (uint32_t i = n->first; i < n->first + n->rounds && err == FAL_OK; i++) {
		struct fal_collected *m = &c->merged[i];
		if (fal_sched_round(c->sched, m->round, &r)) {
			m->loss = (uint64_t)fal_ledger_loss(r.ledger);
			m->unknown =
				!fal_ledger_loss_known(r.ledger, &c->conf.grid, r.clock);
		}
		if (!m->own)
			err = coord_health_count(c, m->clock,
						 loss_of(m->loss, m->unknown),
						 m->samples);
	}
	sum_up(c, n);
	c->status.loss = n->loss;
	return err;
}

/* All shards have stepped, and what that was made of is reported. */
static int
publish(struct fal_coord *c, double now, struct fal_news *n)
{
	const uint64_t version = n->version;
	const uint32_t first = n->first, rounds = n->rounds;
	int err = sum_up_again(c, n);
	c->published = version;
	fal_sched_published(c->sched, now, version);
	for (uint32_t i = first; i < first + rounds && err == FAL_OK; i++)
		err = made(c, now, c->merged[i].round);
	/* What is ordered ahead is over now, and with it what another policy has left. */
	const uint64_t over = n->act.ahead ? fal_sched_over(c->sched) : n->over;
	c->stepped = over;
	if (err == FAL_OK)
		err = coord_health(c, version, over, first + rounds);
	if (err == FAL_OK && c->why == NULL && c->conf.test_samples > 0 &&
	    !c->evaluating && n->over >= c->next_eval &&
	    !(c->judged && c->kept_clock == over))
		err = coord_begin_eval(c, now, version, over);
	return err == FAL_OK && n->marked ? coord_remember(c, version, over) : err;
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

int
coord_publish(struct fal_coord *c, double now)
{
	int err = FAL_OK;
	for (uint32_t i = 0; i < c->newses && err == FAL_OK; i++) {
		struct fal_news *n = &c->news[i];
		if (n->act.kind != FAL_ACT_STEP || n->version <= c->published ||
		    !coord_have_all(c, n->said))
			continue;
		if (!is_reported(c, n))
			return FAL_OK;
		err = publish(c, now, n);
	}
	return err;
}

int
coord_stepped(struct fal_coord *c, double now, const struct fal_news *n)
{
	const uint32_t first = n->first, rounds = n->rounds;
	for (uint32_t i = first; i < first + rounds; i++)
		fal_sched_stepped(c->sched, now, c->merged[i].round);
	return coord_publish(c, now);
}

void
coord_norm(struct fal_coord *c, uint64_t version, double squares)
{
	for (uint32_t i = 0; i < c->newses; i++)
		if (c->news[i].act.kind == FAL_ACT_STEP && c->news[i].version == version)
			c->news[i].norm = sqrt(squares);
}

_Static_assert(FAL_KEPT_MAX >= FAL_SLACK_MAX + 8, "shards keep what any slack needs");

int
coord_keep_versions(struct fal_coord *c, uint32_t versions)
{
	struct fal_shard_order o = { .kind = FAL_ORDER_KEEP };
	c->keeps = versions;
	o.versions = kept_with(c, c->version);
	if (c->version - c->oldest + 1 > versions)
		c->oldest = c->version + 1 - versions;
	return coord_order(c, &o);
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
int
coord_send_again(struct fal_coord *c, struct fal_peer *p, uint64_t version)
{
	const bool on_line = fal_line_of(p->oldest) != 0 || fal_line_of(version) != 0;
	const uint64_t bit = again_bit(p, version);
	struct fal_coord_model m = { .version = version,
				     .oldest = version,
				     .from = version };
	if (on_line || version >= p->oldest || (p->again & bit) != 0)
		return FAL_OK;
	uint64_t stay = p->again & (bit - 1); /* newer ones; without a bit: all */
	int err = name_versions(c, p, &m.names);
	if (err < 0)
		return err;
	for (uint32_t i = 0; i < m.names; i++) {
		const uint64_t named = p->again & again_bit(p, c->named[i]);
		stay |= named;
		m.oldest = named != 0 && c->named[i] < m.oldest ? c->named[i] : m.oldest;
	}
	p->again = stay | bit;
	return tell_version(c, p, &m);
}

static int
send_to(struct fal_coord *c, struct fal_peer *p)
{
	const uint64_t newest = c->version - c->untold;
	uint64_t from = oldest_told(c);
	int err = FAL_OK;
	if (!p->ready || (c->brought && !c->newer))
		return FAL_OK;
	if (!p->on_line && p->next_version > from)
		from = p->next_version;
	for (uint64_t v = from; v <= newest && err == FAL_OK; v++) {
		if (c->brought && !coord_given(c, v))
			continue;
		const bool keep = v != p->kept && (c->evaluating ? v == c->kept_version
								 : v > 0 && v == c->due);
		p->kept = keep ? v : p->kept;
		err = coord_send_version(c, p, v, keep);
	}
	p->next_version = newest + 1;
	p->on_line = false;
	return err;
}

int
coord_send_line(struct fal_coord *c, uint32_t peer, uint64_t version)
{
	struct fal_peer *p = coord_find(c, peer);
	if (p == NULL || !p->ready)
		return FAL_OK;
	p->on_line = true;
	return coord_send_version(c, p, version, false);
}

int
coord_send_versions(struct fal_coord *c, uint32_t peer)
{
	struct fal_peer *p = coord_find(c, peer);
	int err = FAL_OK;
	if (peer != 0)
		return p != NULL ? send_to(c, p) : FAL_OK;
	for (uint32_t i = 0; i < c->peers && err == FAL_OK; i++)
		err = send_to(c, &c->peer[i]);
	return err;
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
						.key = c->key[w->key - 1].name,
						.change = change };
	coord_call(c);
	c->ops.unstepped(c->ops.arg, &is);
	coord_called(c);
}

static int
tell_end(struct fal_coord *c, double now, const struct fal_news *n)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, n->act.round, &r))
		return FAL_OK;
	static const char *const bases[] = { "version", "local", "rebase" };
	const enum fal_trace_end end = n->act.fate == FAL_FATE_DROP ? FAL_END_DROPPED
				       : n->act.fate == FAL_FATE_ABANDON
					       ? FAL_END_ABANDONED
				       : n->act.fate == FAL_FATE_GIVE ? FAL_END_GIVEN
								      : FAL_END_APPLIED;
	const bool applied = end == FAL_END_APPLIED, line = n->act.fate == FAL_FATE_LINE;
	const bool steps = applied && r.delta && r.steps > 0;
	const bool revised = applied && n->act.fate == FAL_FATE_REVISE;
	const struct fal_ev_stale stale = { r.stale_clocks, r.stale_updates,
					    revised ? n->act.count : 0 };
	struct fal_ev_ledger e = {
		.round = r.round,
		.clock = r.clock,
		.first = r.first,
		.samples = r.samples,
		.version = r.taken,
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
	int err = n->act.fate != FAL_FATE_ABANDON
			  ? coord_health_skip(c, r.clock, r.ledger->skipped)
			  : FAL_OK;
	if (n->act.fate == FAL_FATE_GIVE) {
		coord_call(c);
		c->ops.given(c->ops.arg, r.round);
		coord_called(c);
	}
	size_t kept = 0;
	for (size_t i = 0; i < c->ons; i++)
		if (c->on[i].round != r.round)
			c->on[kept++] = c->on[i];
	c->ons = kept;
	fal_sched_forget_round(c->sched, r.round);
	return err;
}

static void
tell_step(struct fal_coord *c, double now, const struct fal_news *n)
{
	struct fal_ev_update line = {
		.version = n->version,
		.clock = n->act.clock,
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
		.round = c->merged + n->first,
		.rounds = n->rounds,
		.push = n->push,
		.pushes = n->pushes,
		.outer = n->act.weight,
		.momentum = n->act.momentum,
		.hash = n->hashed ? n->hash : NULL,
		.exponents = n->exponents,
	};
	fal_line_update(&c->line, fal_coord_seconds(c, now), &of, &line);
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
	return coord_have_all(c, n->said) &&
	       (n->act.kind != FAL_ACT_END ||
		!fal_sched_round(c->sched, n->act.round, &r) || !r.armed);
}

int
coord_tell(struct fal_coord *c, double now)
{
	uint32_t n = 0, told = 0;
	int err = FAL_OK;
	for (; n < c->newses && is_told(c, &c->news[n]) && err == FAL_OK; n++) {
		const struct fal_news *news = &c->news[n];
		if (news->act.kind == FAL_ACT_END)
			err = tell_end(c, now, news);
		else
			tell_step(c, now, news);
		if (err == FAL_OK)
			err = coord_tell_shards(c, now, false);
		if (err == FAL_OK)
			err = coord_measure(c, now);
		if (err == FAL_OK && news->marked)
			err = coord_marked(c, now);
		free(news->sum);
		free(news->leaves); /* where not all had some */
		free(news->push);
		told += news->rounds;
	}
	c->newses -= n;
	if (n > 0)
		memmove(c->news, c->news + n, c->newses * sizeof(*c->news));
	/* What was told goes; what is collected for the next update stays. */
	c->mergeds -= told;
	c->told -= told;
	if (told > 0)
		memmove(c->merged, c->merged + told, c->mergeds * sizeof(*c->merged));
	for (uint32_t i = 0; i < c->newses; i++)
		c->news[i].first -= c->news[i].act.kind == FAL_ACT_STEP ? told : 0;
	return err;
}
