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
all_shards_in(const struct fal_coord *c, uint64_t said)
{
	return said == fal_map_busy(&c->placement.map);
}

static size_t
acks_index(const struct fal_coord *c, uint64_t round)
{
	return fal_sorted_place64(c->rounds.acks, c->rounds.n_acks,
				  sizeof(*c->rounds.acks), round);
}

/* The shards' reports on the round, or NULL. */
static struct coord_round_acks *
acks_find(const struct fal_coord *c, uint64_t round)
{
	const size_t at = acks_index(c, round);
	return at < c->rounds.n_acks && c->rounds.acks[at].round == round
		       ? &c->rounds.acks[at]
		       : NULL;
}

static void
acks_remove(struct fal_coord *c, uint64_t round)
{
	struct coord_round_acks *g = acks_find(c, round);
	if (g == NULL)
		return;
	free(g->contribution);
	memmove(g, g + 1, (size_t)(c->rounds.acks + --c->rounds.n_acks - g) * sizeof(*g));
}

static struct fal_facts
round_facts(const struct fal_round_info *r)
{
	return (struct fal_facts){ .version = r->version,
				   .tasks = r->tasks,
				   .kind = r->delta ? FAL_KIND_DELTA : FAL_KIND_GRAD,
				   .mixed = r->mixed };
}

bool
coord_make_ticket(const struct fal_coord *c, uint64_t round, struct fal_cid id,
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
				    .facts = round_facts(&r) };
	return true;
}

static void
act_open_round(struct fal_coord *c, const struct fal_act *a)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	const struct fal_shard_order o = { .kind = FAL_ORDER_OPEN,
					   .round = r.round,
					   .facts = round_facts(&r) };
	const size_t at = acks_index(c, r.round);
	FAL_XGROW(c->rounds.acks, c->rounds.acks_cap, c->rounds.n_acks + 1);
	memmove(c->rounds.acks + at + 1, c->rounds.acks + at,
		(c->rounds.n_acks++ - at) * sizeof(*c->rounds.acks));
	c->rounds.acks[at] = (struct coord_round_acks){ .round = r.round };
	coord_command_shards(c, &o);
}

static void
pending_add(struct fal_coord *c, const struct coord_pending_line *n)
{
	FAL_XGROW(c->rounds.pending, c->rounds.pending_cap,
		  (size_t)c->rounds.n_pending + 1);
	c->rounds.pending[c->rounds.n_pending++] = *n;
}

/* NAN: that of a task is not known. */
static double
loss_or_nan(uint64_t loss, bool unknown)
{
	return unknown ? (double)NAN : fal_loss_is((int64_t)loss);
}

/* Collects the round's gradients, or its change of weights.  A clock may be over before
 * the shards step the rounds that a worker or a group owns in this clock. */
static void
collect_round(struct fal_coord *c, const struct fal_act *a,
	      const struct fal_round_info *r)
{
	const uint64_t loss = (uint64_t)fal_ledger_loss(r->ledger);
	const bool own = r->owner != 0 || r->group != 0,
		   unknown = !fal_ledger_loss_known(r->ledger);
	if (own)
		coord_health_add_loss(c, r->clock, loss_or_nan(loss, unknown),
				      r->samples);
	FAL_XGROW(c->rounds.collected, c->rounds.collected_cap,
		  (size_t)c->rounds.n_collected + 1);
	c->rounds.has_gradients |= a->fate == FAL_FATE_MERGE;
	c->rounds.collected[c->rounds.n_collected++] =
		(struct coord_collected){ .round = a->round,
					  .branch =
						  a->fate == FAL_FATE_LINE ? r->group : 0,
					  .loss = loss,
					  .samples = r->samples,
					  .loss_is_unknown = unknown,
					  .clock = r->clock,
					  .is_own = own };
}

static void
act_end_round(struct fal_coord *c, const struct fal_act *a)
{
	static const enum fal_end ends[] = {
		[FAL_FATE_MERGE] = FAL_END_MERGE, [FAL_FATE_ADD] = FAL_END_ADD,
		[FAL_FATE_LINE] = FAL_END_LINE,   [FAL_FATE_REVISE] = FAL_END_REVISE,
		[FAL_FATE_DROP] = FAL_END_DROP,   [FAL_FATE_ABANDON] = FAL_END_DROP,
		[FAL_FATE_GIVE] = FAL_END_GIVE,
	};
	const struct coord_pending_line n = { .act = *a };
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
		acks_remove(c, a->round);
	if (a->fate < FAL_FATE_DROP)
		collect_round(c, a, &r);
	pending_add(c, &n);
	coord_command_shards(c, &o);
}

/* Moves the line's collected rounds, in their order, to the front of the rounds that are
 * not told, behind the rounds of lines that were pushed before. */
static void
collect_branch(struct fal_coord *c, uint32_t branch)
{
	for (uint32_t i = c->rounds.n_in_updates + c->rounds.n_branch_rounds;
	     i < c->rounds.n_collected; i++) {
		const uint32_t at = c->rounds.n_in_updates + c->rounds.n_branch_rounds;
		struct coord_collected m = c->rounds.collected[i],
				       *to = c->rounds.collected + at;
		if (m.branch != branch)
			continue;
		memmove(to + 1, to, (i - at) * sizeof(m));
		*to = m;
		c->rounds.n_branch_rounds++;
	}
}

static void
act_push_branch(struct fal_coord *c, const struct fal_act *a)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_COLLECT,
					   .line = a->line,
					   .weight = a->weight };
	FAL_XGROW(c->rounds.branch, c->rounds.branch_cap,
		  (size_t)c->rounds.n_branches + 1);
	c->rounds.branch[c->rounds.n_branches++] =
		(struct fal_line_push){ a->line, a->weight, a->among };
	collect_branch(c, a->line);
	coord_command_shards(c, &o);
}

/* Names the versions that its open rounds are computed on, in c->versions.needed: how
 * many. */
static uint32_t
find_needed_versions(struct fal_coord *c, const struct coord_peer *p)
{
	const uint32_t n = fal_sched_named(c->sched, p->worker, NULL, 0);
	FAL_XGROW(c->versions.needed, c->versions.needed_cap, n);
	return fal_sched_named(c->sched, p->worker, c->versions.needed, n);
}

static void
send_version(struct fal_coord *c, struct coord_peer *p, struct fal_coord_model *m)
{
	struct fal_msg told = { .type = FAL_MSG_VERSION };
	told.version.version = m->version;
	told.version.oldest = m->oldest;
	told.version.keep = m->keep;
	m->order = ++p->announced.n;
	coord_send(c, p->id, &told);
	/* The shards send it what it has of the version. */
	m->newest = c->versions.published;
	m->names = find_needed_versions(c, p);
	m->named = c->versions.needed;
	c->ops.model(coord_begin_callback(c), p->id, m);
	coord_end_callback(c);
}

/* The oldest version that workers may be told of. */
static uint64_t
oldest_announced(const struct fal_coord *c)
{
	return c->versions.newest_is_withheld ? c->versions.oldest_announced
					      : c->versions.oldest;
}

void
coord_announce_version(struct fal_coord *c, struct coord_peer *p, uint64_t version,
		       bool keep)
{
	const uint64_t kept = oldest_announced(c);
	const uint64_t needed = fal_sched_oldest(c->sched, p->worker);
	const bool on_line = fal_branch_of(needed) != 0;
	struct fal_coord_model m = { .version = version,
				     .oldest = on_line || needed < kept ? needed : kept,
				     .from = on_line ? 0 : kept,
				     .keep = keep };
	p->announced.oldest = m.oldest;
	p->announced.repeated = 0;
	send_version(c, p, &m);
}

/* Sums up the losses and samples of the rounds that make the update. */
static void
sum_update(const struct fal_coord *c, struct coord_pending_line *n)
{
	uint64_t loss = 0;
	bool unknown = false;
	n->samples = 0;
	for (uint32_t i = n->first; i < n->first + n->rounds; i++) {
		loss += c->rounds.collected[i].loss;
		unknown |= c->rounds.collected[i].loss_is_unknown;
		n->samples += c->rounds.collected[i].samples;
	}
	n->loss = n->samples > 0 ? loss_or_nan(loss, unknown) / (double)n->samples
				 : (double)NAN;
}

/* The count of versions that shards keep when this one is the newest.  A version that is
 * not published yet may have to be held.  Another shard may still lack tasks of a round
 * that one shard has stepped. */
static uint32_t
versions_to_retain(const struct fal_coord *c, uint64_t version)
{
	const uint64_t read = version - fal_sched_read(c->sched, version) + 1;
	uint64_t n = version - c->versions.published;
	if (c->conf.shards > 1 && n < read)
		n = read;
	return n > c->versions.retained ? (uint32_t)n : c->versions.retained;
}

/* Names the worker or group whose round alone makes the update, for a momentum of its
 * own; 0: there is none. */
static uint32_t
pusher_of(struct fal_coord *c, const struct coord_pending_line *n)
{
	const struct fal_rule *rule = &fal_sched_policy(c->sched)->rule;
	struct fal_round_info r;
	if (!n->has_gradients || !fal_rule_traits(rule).alone || rule->quorum > 0 ||
	    !fal_optim_by_pusher(&c->conf.optim) ||
	    !fal_sched_round(c->sched, c->rounds.collected[n->first].round, &r))
		return 0;
	if (r.owner != 0)
		c->sessions.worker[r.owner - 1].momentum = true;
	return r.owner != 0 ? r.owner : r.group;
}

/* Adds to the order the part of a clock that the gradients are, and their pusher. */
static void
set_step_part(struct fal_coord *c, const struct coord_pending_line *n,
	      struct fal_shard_order *o)
{
	const double samples = (double)n->samples;
	if (!n->has_gradients || !(o->divisor > 0))
		return;
	o->slot = pusher_of(c, n);
	if (samples != o->divisor)
		o->part = (struct fal_optim_part){ samples / o->divisor, n->act.in };
	o->divisor = samples;
}

static void
act_step(struct fal_coord *c, const struct fal_act *a)
{
	/* All shards use the same float as the rate; the law needs no more than that. */
	struct coord_pending_line n = { .act = *a,
					.lr = (float)fal_schedule_lr(&c->conf.schedule,
								     a->clock),
					.has_gradients = c->rounds.has_gradients };
	struct fal_shard_order o = {
		.kind = FAL_ORDER_STEP,
		.lr = n.lr,
		.divisor = a->divisor,
		.weight = a->weight,
		.momentum = a->momentum,
		.clipped = n.has_gradients && a->divisor > 0 && c->conf.optim.clip > 0,
		.mark = c->snapshot.is_wanted && coord_can_snapshot(c)
	};
	n.has_snapshot = o.mark;
	c->snapshot.is_wanted &= !o.mark;
	c->rounds.has_gradients = false;
	c->versions.newest_is_withheld = a->ahead;
	c->versions.oldest_announced = c->versions.oldest;
	if (c->versions.newest - c->versions.oldest + 1 >= c->versions.retained)
		c->versions.oldest = c->versions.newest + 2 - c->versions.retained;
	n.version = ++c->versions.newest;
	o.versions = versions_to_retain(c, n.version);
	o.version = n.version;
	o.below = c->versions.oldest;
	n.first = c->rounds.n_in_updates;
	if (c->rounds.n_branches == 0)
		collect_branch(c, 0);
	n.rounds = c->rounds.n_branch_rounds;
	n.branch = c->rounds.branch;
	n.n_branches = c->rounds.n_branches;
	c->rounds.branch = NULL;
	c->rounds.n_branches = c->rounds.n_branch_rounds = 0;
	c->rounds.branch_cap = 0;
	sum_update(c, &n);
	set_step_part(c, &n, &o);
	c->rounds.n_in_updates += n.rounds;
	if (!a->ahead)
		c->status.loss = n.loss;
	n.clocks_over = a->over;
	if (c->conf.test_samples > 0 && n.clocks_over >= c->evaluation.next_clock &&
	    c->evaluation.next_version <= c->versions.published)
		c->evaluation.next_version = n.version;
	/* Is nothing to come behind the version?  Where clocks are over in their order
	 * each is the end of one, whoever has run ahead; else it may be. */
	const bool last = c->control.clocks_end_out_of_order
				  ? fal_sched_front(c->sched) >= c->clocks
				  : a->clock + 1 >= c->clocks;
	/* A version that the job may leave has a hash. */
	o.hash = n.version % c->conf.hashes == 0 || n.has_snapshot ||
		 n.version == c->evaluation.next_version || last;
	pending_add(c, &n);
	coord_command_shards(c, &o);
}

/* The round of a contribution to an update that was ordered ahead is over. */
static void
end_early_round(struct fal_coord *c, double now, uint64_t round)
{
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, round, &r) || !r.armed)
		return;
	acks_remove(c, round);
	fal_sched_made(c->sched, now, round);
}

/* As it turned out: other claims may have taken the place of those that were there when
 * it was ordered. */
static void
sum_update_again(struct fal_coord *c, struct coord_pending_line *n)
{
	struct fal_round_info r;
	for (uint32_t i = n->first; i < n->first + n->rounds; i++) {
		struct coord_collected *m = &c->rounds.collected[i];
		if (fal_sched_round(c->sched, m->round, &r)) {
			m->loss = (uint64_t)fal_ledger_loss(r.ledger);
			m->loss_is_unknown = !fal_ledger_loss_known(r.ledger);
		}
		if (!m->is_own)
			coord_health_add_loss(c, m->clock,
					      loss_or_nan(m->loss, m->loss_is_unknown),
					      m->samples);
	}
	sum_update(c, n);
	c->status.loss = n->loss;
}

/* All shards have stepped, and what that was made of is reported. */
static void
publish_update(struct fal_coord *c, double now, struct coord_pending_line *n)
{
	const uint64_t version = n->version;
	const uint32_t first = n->first, rounds = n->rounds;
	sum_update_again(c, n);
	c->versions.published = version;
	fal_sched_published(c->sched, now, version);
	for (uint32_t i = first; i < first + rounds; i++)
		end_early_round(c, now, c->rounds.collected[i].round);
	/* The clocks that were ordered ahead are over now, and with them the clocks that
	 * another policy has left. */
	const uint64_t over = n->act.ahead ? fal_sched_over(c->sched) : n->clocks_over;
	c->versions.published_clocks = over;
	coord_health_update(c, version, over, first + rounds);
	if (c->failure == NULL && c->conf.test_samples > 0 &&
	    !c->evaluation.is_under_way && n->clocks_over >= c->evaluation.next_clock &&
	    !(c->evaluation.pinned_is_evaluated && c->evaluation.pinned_clocks == over))
		coord_evaluate_version(c, now, version, over);
	if (n->has_snapshot)
		coord_snapshot_begin(c, version, over);
}

/* Is all that it is made of reported?  Else losses are still to come. */
static bool
update_is_reported(const struct fal_coord *c, const struct coord_pending_line *n)
{
	struct fal_round_info r;
	bool all = true;
	for (uint32_t i = n->first; i < n->first + n->rounds; i++)
		all &= !fal_sched_round(c->sched, c->rounds.collected[i].round, &r) ||
		       !r.armed || r.passed;
	return all;
}

static void
publish_updates(struct fal_coord *c, double now)
{
	for (uint32_t i = 0; i < c->rounds.n_pending && c->err == 0; i++) {
		struct coord_pending_line *n = &c->rounds.pending[i];
		if (n->act.kind != FAL_ACT_STEP || n->version <= c->versions.published ||
		    !all_shards_in(c, n->acks))
			continue;
		if (!update_is_reported(c, n))
			return;
		publish_update(c, now, n);
	}
}

_Static_assert(FAL_KEPT_MAX >= FAL_SLACK_MAX + 8, "shards keep what any slack needs");

void
coord_retain_versions(struct fal_coord *c, uint32_t versions)
{
	struct fal_shard_order o = { .kind = FAL_ORDER_KEEP };
	c->versions.retained = versions;
	o.versions = versions_to_retain(c, c->versions.newest);
	if (c->versions.newest - c->versions.oldest + 1 > versions)
		c->versions.oldest = c->versions.newest + 1 - versions;
	coord_command_shards(c, &o);
}

/* A version's bit in p->announced.repeated; 0: it has none. */
static uint64_t
repeated_bit(const struct coord_peer *p, uint64_t version)
{
	const uint64_t back = p->announced.oldest - version - 1;
	return version < p->announced.oldest && back < 64 ? UINT64_C(1) << back : 0;
}

/* Several may be filled in turn: each is told once, if it has a bit, and none is
 * forgotten for another one as long as the worker has an open round on it. */
static void
repeat_version(struct fal_coord *c, struct coord_peer *p, uint64_t version)
{
	const bool on_line =
		fal_branch_of(p->announced.oldest) != 0 || fal_branch_of(version) != 0;
	const uint64_t bit = repeated_bit(p, version);
	struct fal_coord_model m = { .version = version,
				     .oldest = version,
				     .from = version };
	if (on_line || version >= p->announced.oldest ||
	    (p->announced.repeated & bit) != 0)
		return;
	uint64_t stay =
		p->announced.repeated & (bit - 1); /* newer ones; without a bit: all */
	m.names = find_needed_versions(c, p);
	for (uint32_t i = 0; i < m.names; i++) {
		const uint64_t named =
			p->announced.repeated & repeated_bit(p, c->versions.needed[i]);
		stay |= named;
		m.oldest = named != 0 && c->versions.needed[i] < m.oldest
				   ? c->versions.needed[i]
				   : m.oldest;
	}
	p->announced.repeated = stay | bit;
	send_version(c, p, &m);
}

static void
announce_versions(struct fal_coord *c, struct coord_peer *p)
{
	const uint64_t newest = c->versions.newest - c->versions.newest_is_withheld;
	uint64_t from = oldest_announced(c);
	if (!p->ready || (c->is_external && !c->external.has_version))
		return;
	if (!p->announced.is_on_branch && p->announced.next > from)
		from = p->announced.next;
	for (uint64_t v = from; v <= newest; v++) {
		if (c->is_external && !coord_is_installed(c, v))
			continue;
		const bool keep = v != p->announced.pinned_version &&
				  (c->evaluation.is_under_way
					   ? v == c->evaluation.pinned_version
					   : v > 0 && v == c->evaluation.next_version);
		p->announced.pinned_version = keep ? v : p->announced.pinned_version;
		coord_announce_version(c, p, v, keep);
	}
	p->announced.next = newest + 1;
	p->announced.is_on_branch = false;
}

/* Adds up what the round's ledger says. */
static void
count_tasks(struct fal_coord *c, const struct fal_ledger *l, enum fal_fate fate)
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
report_unstepped(struct fal_coord *c, const struct coord_pending_line *n, uint64_t clock,
		 bool change)
{
	if (n->unstepped == 0 || c->ops.unstepped == NULL)
		return;
	const struct coord_known_worker *w = coord_worker_of(c, n->unstepped_by);
	const struct fal_coord_unstepped is = {
		.clock = clock,
		.blocks = n->unstepped,
		.name = w->name,
		.key = c->sessions.key[w->key - 1].record.name,
		.change = change
	};
	c->ops.unstepped(coord_begin_callback(c), &is);
	coord_end_callback(c);
}

static void
trace_round(struct fal_coord *c, double now, const struct coord_pending_line *n)
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
		.version = c->is_external && is_late ? r.after : r.taken,
		.late = is_late && !c->is_external ? r.late : FAL_TRACE_ABSENT,
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
					    .on = c->rounds.granted,
					    .ons = c->rounds.n_granted,
					    .sums = c->conf.audit_sums,
					    .seed = fal_ticket_seed(&c->conf.tickets,
								    r.round),
					    .added = n->sum_added,
					    .sum = n->sum,
					    .n_sums = n->sums };
	fal_line_ledger(&c->trace_line, fal_coord_seconds(c, now), &of, r.ledger, &e);
	coord_write_line(c);
	report_unstepped(c, n, r.clock, r.delta);
	count_tasks(c, r.ledger, n->act.fate);
	if (n->act.fate != FAL_FATE_ABANDON)
		coord_health_add_skipped(c, r.clock, r.ledger->skipped);
	if (n->act.fate == FAL_FATE_GIVE) {
		c->ops.given(coord_begin_callback(c), r.round);
		coord_end_callback(c);
	}
	size_t kept = 0;
	for (size_t i = 0; i < c->rounds.n_granted; i++)
		if (c->rounds.granted[i].round != r.round)
			c->rounds.granted[kept++] = c->rounds.granted[i];
	c->rounds.n_granted = kept;
	fal_sched_forget_round(c->sched, r.round);
}

static void
trace_update(struct fal_coord *c, double now, const struct coord_pending_line *n)
{
	uint64_t *rounds = fal_xcalloc(n->rounds, sizeof(*rounds));
	struct fal_ev_update line = {
		.version = n->version,
		.clock = n->act.clock,
		.rounds = { rounds, n->rounds },
		.groups = n->act.among,
		.divisor = n->has_gradients ? n->act.divisor : 0,
		.samples = (uint32_t)n->samples,
		.loss = n->loss,
		.lr = (double)n->lr,
		.norm = n->norm,
		.epoch = n->act.clock / fal_grid_epoch_clocks(&c->conf.grid) + 1,
		.unstepped = n->unstepped,
	};
	const struct fal_line_update of = {
		.push = n->branch,
		.pushes = n->n_branches,
		.outer = n->act.weight,
		.momentum = n->act.momentum,
		.hash = n->has_hash ? n->hash : NULL,
		.exponents = n->exponents,
	};
	for (uint32_t i = 0; i < n->rounds; i++)
		rounds[i] = c->rounds.collected[n->first + i].round;
	fal_line_update(&c->trace_line, fal_coord_seconds(c, now), &of, &line);
	free(rounds);
	coord_write_line(c);
	report_unstepped(c, n, n->act.clock, false);
	c->placement.lines.version = n->version;
	if (n->act.clock >= c->placement.lines.over)
		c->placement.lines.over = n->act.clock + 1;
}

/* Have all shards said so, and is what was ordered ahead over?  Until then claims come
 * that its line is to have. */
static bool
line_is_complete(const struct fal_coord *c, const struct coord_pending_line *n)
{
	struct fal_round_info r;
	return all_shards_in(c, n->acks) &&
	       (n->act.kind != FAL_ACT_END ||
		!fal_sched_round(c->sched, n->act.round, &r) || !r.armed);
}

static void
write_pending_lines(struct fal_coord *c, double now)
{
	uint32_t n = 0, told = 0;
	for (; n < c->rounds.n_pending && line_is_complete(c, &c->rounds.pending[n]) &&
	       c->err == 0;
	     n++) {
		const struct coord_pending_line *line = &c->rounds.pending[n];
		if (line->act.kind == FAL_ACT_END)
			trace_round(c, now, line);
		else
			trace_update(c, now, line);
		coord_trace_shards(c, now, false);
		coord_balance_measure(c, now);
		if (line->has_snapshot)
			coord_snapshot_end(c, now);
		free(line->sum);
		free(line->leaves); /* where not all had some */
		free(line->branch);
		told += line->rounds;
	}
	c->rounds.n_pending -= n;
	if (n > 0)
		memmove(c->rounds.pending, c->rounds.pending + n,
			c->rounds.n_pending * sizeof(*c->rounds.pending));
	/* Told rounds go; the rounds collected for the next update stay. */
	c->rounds.n_collected -= told;
	c->rounds.n_in_updates -= told;
	if (told > 0)
		memmove(c->rounds.collected, c->rounds.collected + told,
			c->rounds.n_collected * sizeof(*c->rounds.collected));
	for (uint32_t i = 0; i < c->rounds.n_pending; i++)
		c->rounds.pending[i].first -=
			c->rounds.pending[i].act.kind == FAL_ACT_STEP ? told : 0;
}

/* ---- what shards say ------------------------------------------------------------- */

static struct coord_pending_line *
pending_find(const struct fal_coord *c, enum fal_act_kind kind, uint64_t number)
{
	for (uint32_t i = 0; i < c->rounds.n_pending; i++) {
		struct coord_pending_line *n = &c->rounds.pending[i];
		if (n->act.kind == kind &&
		    (kind == FAL_ACT_END ? n->act.round : n->version) == number)
			return n;
	}
	return NULL;
}

/* Collects the squares by whose sum all shards clip; the shards wait for this sum.  The
 * shards say the squares of one order after the other. */
static void
on_shard_squares(struct fal_coord *c, uint32_t shard, const struct fal_shard_say *say)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	struct fal_shard_order o = { .kind = FAL_ORDER_SCALE };
	if (c->rounds.squares == NULL)
		c->rounds.squares = fal_xcalloc(blocks, sizeof(*c->rounds.squares));
	memcpy(c->rounds.squares + say->first, say->squares,
	       say->blocks * sizeof(*c->rounds.squares));
	c->rounds.squares_from |= UINT64_C(1) << shard;
	if (!all_shards_in(c, c->rounds.squares_from))
		return;
	c->rounds.squares_from = 0;
	/* In the order of blocks: so the sum is the same however they are placed. */
	for (uint32_t b = 0; b < blocks; b++)
		o.squares += c->rounds.squares[b];
	struct coord_pending_line *n = pending_find(c, FAL_ACT_STEP, say->version);
	if (n != NULL)
		n->norm = sqrt(o.squares);
	coord_command_shards(c, &o);
}

void
coord_rounds_free(struct fal_coord *c)
{
	while (c->rounds.n_acks > 0)
		acks_remove(c, c->rounds.acks[0].round);
	free(c->rounds.acks);
	free(c->rounds.squares);
	free(c->rounds.granted);
}

/* The contribution, and its place in the ledger, for which there is room then; NULL:
 * there is none. */
static const struct fal_contrib *
find_contribution(const struct fal_coord *c, struct coord_round_acks *g,
		  struct fal_cid id, uint32_t *at)
{
	struct fal_round_info r;
	if (g == NULL || !fal_sched_round(c->sched, g->round, &r))
		return NULL;
	*at = fal_ledger_find(r.ledger, id);
	if (*at == FAL_NONE)
		return NULL;
	const uint32_t n = r.ledger->contribs;
	FAL_XGROW(g->contribution, g->contribution_cap, n);
	while (g->n_contributions < n)
		g->contribution[g->n_contributions++] =
			(struct coord_contribution_acks){ 0 };
	return &r.ledger->contrib[*at];
}

/* A shard that has ended a round no longer reports contributions complete. */
static void
on_shard_arrived(struct fal_coord *c, double now, uint32_t shard,
		 const struct fal_shard_say *say)
{
	struct coord_round_acks *g = acks_find(c, say->round);
	uint32_t at;
	if (find_contribution(c, g, say->id, &at) == NULL)
		return;
	uint64_t *whole = &g->contribution[at].whole;
	*whole |= (uint64_t)say->whole << shard;
	const bool all = say->whole && all_shards_in(c, *whole | g->ended);
	if (all)
		*whole = 0;
	fal_sched_arrived(c->sched, now, say->round, say->id, say->blocks, all);
}

static void
on_shard_fenced(struct fal_coord *c, double now, uint32_t shard,
		const struct fal_shard_say *say)
{
	struct coord_round_acks *g = acks_find(c, say->round);
	uint32_t at;
	const struct fal_contrib *is = find_contribution(c, g, say->id, &at);
	/* None was told to, or all have said so. */
	if (is == NULL || is->state != FAL_CONTRIB_FENCED || is->everywhere)
		return;
	g->contribution[at].fenced |= UINT64_C(1) << shard;
	if (all_shards_in(c, g->contribution[at].fenced))
		fal_sched_fenced(c->sched, now, say->round, say->id);
}

/* Ends the worker's session, as if the worker had pushed the refused records here, and
 * charges its key where no honest worker makes such records. */
static void
on_shard_refused(struct fal_coord *c, double now, const struct fal_shard_say *say)
{
	const struct coord_peer *p =
		coord_find_peer(c, coord_session_of_worker(c, say->id.worker));
	if (p == NULL || !p->ready)
		return;
	if (say->err == FAL_ELIMIT || say->err == FAL_EINVAL)
		coord_charge_key(c, p);
	coord_refuse(c, now, p->id, say->odd);
}

/* A worker's own steps follow each other: is one before it still waited for? */
static bool
follows_open_steps(const struct fal_coord *c, const struct fal_round_info *r)
{
	struct fal_round_info is;
	for (size_t i = 0; i < c->rounds.n_acks && c->rounds.acks[i].round < r->round;
	     i++)
		if (r->delta && fal_sched_round(c->sched, c->rounds.acks[i].round, &is) &&
		    is.delta && is.owner == r->owner)
			return true;
	return false;
}

/* The round is complete, if all shards have their part of it, or have done with it. */
static void
complete_round(struct fal_coord *c, double now, const struct coord_round_acks *g)
{
	struct fal_round_info r;
	if (c->failure != NULL || !all_shards_in(c, g->complete | g->ended) ||
	    !fal_sched_round(c->sched, g->round, &r))
		return;
	/* An order that is on its way ends it. */
	if (!r.armed && !follows_open_steps(c, &r))
		fal_sched_complete(c->sched, now, r.round);
}

static void
complete_local_rounds(struct fal_coord *c, double now)
{
	struct fal_round_info is;
	for (size_t i = 0; i < c->rounds.n_acks; i++)
		if (fal_sched_round(c->sched, c->rounds.acks[i].round, &is) && is.delta)
			complete_round(c, now, &c->rounds.acks[i]);
}

/* The shard has its part of the round, or has done with it. */
static void
shard_has_all(struct fal_coord *c, double now, struct coord_round_acks *g, uint64_t *said,
	      uint32_t shard)
{
	const uint64_t was = g->complete | g->ended;
	*said |= UINT64_C(1) << shard;
	if ((g->complete | g->ended) != was)
		complete_round(c, now, g);
}

/* The line that the shard reports done for the first time; or NULL.  A report of why the
 * job cannot go on ends the job. */
static struct coord_pending_line *
pending_ack(struct fal_coord *c, enum fal_act_kind kind, uint64_t number, uint32_t shard,
	    const struct fal_shard_say *say)
{
	struct coord_pending_line *n = pending_find(c, kind, number);
	if (say->odd != NULL) { /* the say's words do not last */
		snprintf(c->shard_failure, sizeof(c->shard_failure), "%s", say->odd);
		c->failure = c->shard_failure;
	}
	if (n == NULL || (n->acks >> shard & 1) != 0)
		return NULL;
	n->acks |= UINT64_C(1) << shard;
	if (say->beyond > 0 && (n->unstepped == 0 || say->most > n->unstepped_exponent)) {
		n->unstepped_by = say->id.worker;
		n->unstepped_exponent = say->most;
	}
	n->unstepped += say->beyond;
	return n;
}

/* Adds the checksums of what each contribution has brought to a shard. */
static void
add_checksums(const struct fal_coord *c, struct coord_pending_line *n,
	      const struct fal_shard_say *say)
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
	n->sum_added += say->added;
}

static void
on_shard_ended(struct fal_coord *c, double now, uint32_t shard,
	       const struct fal_shard_say *say)
{
	struct coord_pending_line *n =
		pending_ack(c, FAL_ACT_END, say->round, shard, say);
	struct coord_round_acks *g = acks_find(c, say->round);
	if (n == NULL)
		return;
	if (c->conf.audit_sums)
		add_checksums(c, n, say);
	if (say->rank > 0) {
		n->act.weight = 1.0 / say->rank;
		n->act.count = say->rank;
	}
	if (g != NULL)
		shard_has_all(c, now, g, &g->ended, shard);
}

/* The leaves and exponents of a shard's blocks; with those of all, the hashes of the
 * version. */
static void
add_leaves(const struct fal_coord *c, struct coord_pending_line *n,
	   const struct fal_shard_say *say)
{
	const uint32_t blocks = fal_blocks(c->conf.params);
	if (n->leaves == NULL)
		n->leaves = fal_xcalloc(blocks, FAL_HASH_BYTES + 1);
	int8_t *exps = (int8_t *)(n->leaves + (size_t)blocks * FAL_HASH_BYTES);
	memcpy(exps + say->first, say->exps, say->blocks);
	memcpy(n->leaves + (size_t)say->first * FAL_HASH_BYTES, say->leaves,
	       (size_t)say->blocks * FAL_HASH_BYTES);
	if (!all_shards_in(c, n->acks))
		return;
	fal_leaf_root(n->leaves, blocks, n->hash);
	fal_leaf_exponents(exps, blocks, n->exponents);
	n->has_hash = true;
	free(n->leaves);
	n->leaves = NULL;
}

static void
on_shard_stepped(struct fal_coord *c, double now, uint32_t shard,
		 const struct fal_shard_say *say)
{
	struct coord_pending_line *n =
		pending_ack(c, FAL_ACT_STEP, say->version, shard, say);
	if (n == NULL)
		return;
	if (say->leaves != NULL)
		add_leaves(c, n, say);
	if (!all_shards_in(c, n->acks))
		return;
	const uint32_t first = n->first, rounds = n->rounds;
	for (uint32_t i = first; i < first + rounds; i++)
		fal_sched_stepped(c->sched, now, c->rounds.collected[i].round);
	publish_updates(c, now);
}

static void
on_shard_event(struct fal_coord *c, double now, uint32_t shard,
	       const struct fal_shard_say *say)
{
	struct coord_round_acks *g = NULL;
	/* The coordinator asks a shard without blocks only whether it can have some. */
	if ((fal_map_busy(&c->placement.map) >> shard & 1) == 0 &&
	    say->kind != FAL_SAY_MIGRATED && say->kind != FAL_SAY_REFUSED)
		return;
	if (say->beyond > 0 && (say->id.worker - 1 >= c->sessions.workers ||
				coord_worker_of(c, say->id.worker)->key == 0)) {
		c->failure = "a shard speaks of work that nobody has done";
		return;
	}
	switch (say->kind) {
	case FAL_SAY_ARRIVED:
		on_shard_arrived(c, now, shard, say);
		break;
	case FAL_SAY_COMPLETE:
		g = acks_find(c, say->round);
		if (g != NULL)
			shard_has_all(c, now, g, &g->complete, shard);
		break;
	case FAL_SAY_FENCED:
		on_shard_fenced(c, now, shard, say);
		break;
	case FAL_SAY_REFUSED:
		on_shard_refused(c, now, say);
		break;
	case FAL_SAY_SQUARES:
		on_shard_squares(c, shard, say);
		break;
	case FAL_SAY_ENDED:
		on_shard_ended(c, now, shard, say);
		break;
	case FAL_SAY_STEPPED:
		on_shard_stepped(c, now, shard, say);
		break;
	case FAL_SAY_MIGRATED:
		coord_shard_migrated(c, now, shard, say);
		break;
	}
}

static void
take_shard_events(struct fal_coord *c, double now)
{
	struct fal_shard_say say;
	uint32_t shard;
	while (c->err == 0) {
		coord_begin_callback(c);
		const bool any = c->ops.shards.next(c->ops.shards.arg, &shard, &say);
		coord_end_callback(c);
		if (!any)
			return;
		on_shard_event(c, now, shard, &say);
	}
}

/* ---- what the scheduler decides is carried out ------------------------------------- */

static void
act_grant(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	struct fal_round_info r;
	struct fal_ticket t;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	m.grant.round = a->round;
	m.grant.clock = r.clock;
	/* The helper of a mixed round computes on the version that the helper has. */
	struct coord_peer *p = coord_find_peer(c, to);
	m.grant.version = a->kind == FAL_ACT_CHECK ? a->version
			  : r.mixed && p != NULL   ? p->announced.next - 1
			  : a->late                ? r.after
						   : r.version;
	m.grant.exponents = r.mixed ? m.grant.version : r.version;
	if (a->kind == FAL_ACT_GRANT && r.mixed) {
		FAL_XGROW(c->rounds.granted, c->rounds.granted_cap,
			  c->rounds.n_granted + 1);
		c->rounds.granted[c->rounds.n_granted++] =
			(struct fal_granted_on){ .round = a->round,
						 .version = m.grant.version,
						 .worker = a->worker,
						 .first = a->first,
						 .count = a->count };
	}
	if (p != NULL)
		repeat_version(c, p, m.grant.exponents);
	if (p != NULL && m.grant.version != m.grant.exponents)
		repeat_version(c, p, m.grant.version);
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
	m.grant.of = a->cid.seq != 0 && coord_make_ticket(c, a->round, a->cid, &t)
			     ? t.tasks
			     : r.tasks;
	m.grant.steps = r.steps;
	m.grant.lr = (float)fal_schedule_lr(&c->conf.schedule, r.clock);
	coord_send(c, to, &m);
	/* A contribution that is granted as claimed gets its ticket.  Where the ticket
	 * does not count any more, a fence or the round's end is on its way. */
	struct fal_msg with = { .type = FAL_MSG_TICKET };
	if (a->cid.seq == 0 || a->more || !coord_make_ticket(c, a->round, a->cid, &t))
		return;
	fal_ticket_put(&c->conf.tickets, to, &t, &with.ticket);
	coord_send(c, to, &with);
}

/* Asks where the worker's time went; its `clock` line follows when it has answered. */
static void
act_account(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	struct coord_peer *p = coord_find_peer(c, to);
	if (p == NULL || !p->ready)
		return;
	if (p->lines.n_pending == CLOCK_LINES_MAX) /* the worker answers none of them */
		coord_write_clock_lines(c, now, p, CLOCK_LINES_MAX - 1);
	struct coord_clock_line *o = &p->lines.pending[p->lines.n_pending];
	*o = (struct coord_clock_line){ .round = a->round,
					.clock = a->clock,
					.own = a->own,
					.rx = p->rx,
					.tx = p->tx,
					.work = a->work };
	if (fal_sched_info(c->sched, a->worker, &o->info))
		p->lines.n_pending++;
	m.account.mark = a->round;
	coord_send(c, to, &m);
}

/* The worker is a suspect, or back; or workers of its key get no work.  The trace does
 * not say that a key gets no work: the trace has the suspects, and for how long they are
 * suspects. */
static void
act_report_suspect(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	struct fal_coord_late late = { .why = a->why,
				       .owes = a->owes,
				       .seconds = a->seconds };
	const struct coord_peer *p = coord_find_peer(c, to);
	if (p == NULL || !p->ready)
		return;
	if (a->kind == FAL_ACT_BARRED) {
		late.key = c->sessions.key[p->key - 1].record.name;
	} else {
		const double t = fal_coord_seconds(c, now);
		if (a->owes != NULL)
			fal_trace_put(&c->trace_line, t, FAL_EV_SUSPECT,
				      &(struct fal_ev_suspect){ p->name, p->worker,
								a->owes, a->why,
								a->seconds });
		else
			fal_trace_put(&c->trace_line, t, FAL_EV_BACK,
				      &(struct fal_ev_back){ p->name, p->worker, a->why,
							     a->seconds });
		coord_write_line(c);
	}
	if (c->ops.late == NULL)
		return;
	c->ops.late(coord_begin_callback(c), p->id, p->name, &late);
	coord_end_callback(c);
}

static void
act_trace_nonfinite(struct fal_coord *c, double now, const struct fal_act *a)
{
	const struct fal_grid *g = &c->conf.grid;
	const uint64_t sample = a->clock % fal_grid_epoch_clocks(g) * g->batch +
				fal_grid_before(g, a->clock, a->first);
	coord_trace_event(c, fal_coord_seconds(c, now), FAL_EV_NONFINITE,
			  &(struct fal_ev_nonfinite){ a->round, a->clock, a->first,
						      coord_worker_of(c, a->worker)->name,
						      a->worker, sample });
}

/* The shards count a task that brings nothing. */
static void
act_skip(struct fal_coord *c, const struct fal_act *a)
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
	if (c->is_external)
		coord_report_claim(c, &none);
	coord_command_shards(c, &o);
}

/* Shards and worker hear that nothing more of a contribution counts. */
static void
act_fence(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	const struct fal_shard_order o = { .kind = FAL_ORDER_FENCE,
					   .round = a->round,
					   .id = a->cid,
					   .fills = a->fills };
	struct fal_msg m = { .type = FAL_MSG_FENCE };
	m.fence.round = a->round;
	m.fence.seq = a->cid.seq;
	coord_command_shards(c, &o);
	coord_send(c, to, &m);
}

static void
act_revoke(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_REVOKE };
	m.revoke.round = a->round;
	m.revoke.first = a->first;
	m.revoke.count = a->count;
	m.revoke.check = a->kind == FAL_ACT_UNCHECK;
	coord_send(c, to, &m);
}

static void
act_evaluate(struct fal_coord *c, uint32_t to, const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_EVAL };
	m.eval.version = c->evaluation.pinned_version;
	m.eval.first = a->first;
	m.eval.count = a->count;
	coord_send(c, to, &m);
}

/* The worker, or with 0 all of them, is told of what it may compute on. */
static void
act_announce(struct fal_coord *c, double now, uint32_t to, const struct fal_act *a)
{
	struct coord_peer *p = coord_find_peer(c, to);
	if (a->version != 0 && p != NULL && p->ready) { /* the newest one of a line */
		p->announced.is_on_branch = true;
		coord_announce_version(c, p, a->version, false);
	}
	if (a->version != 0)
		return;
	if (p != NULL)
		announce_versions(c, p);
	if (a->worker != 0)
		return;
	c->versions.newest_is_withheld = false;
	for (uint32_t i = 0; i < c->sessions.peers; i++)
		announce_versions(c, &c->sessions.peer[i]);
	publish_updates(c, now);
}

static void
run_action(struct fal_coord *c, double now, const struct fal_act *a)
{
	const uint32_t to = coord_session_of_worker(c, a->worker);
	struct fal_msg lanes = { .type = FAL_MSG_LANES, .lanes.lanes = a->count };
	const struct fal_shard_order line = { .kind = FAL_ORDER_LINE,
					      .version = a->version };
	switch (a->kind) {
	case FAL_ACT_LINE:
		coord_command_shards(c, &line);
		break;
	case FAL_ACT_OPEN:
		act_open_round(c, a);
		break;
	case FAL_ACT_END:
		act_end_round(c, a);
		if (!a->ahead)
			complete_local_rounds(c, now);
		break;
	case FAL_ACT_PUSH:
		act_push_branch(c, a);
		break;
	case FAL_ACT_STEP:
		act_step(c, a);
		break;
	case FAL_ACT_MODEL:
		act_announce(c, now, to, a);
		break;
	case FAL_ACT_ACCOUNT:
		act_account(c, now, to, a);
		break;
	case FAL_ACT_GRANT:
	case FAL_ACT_CHECK:
		act_grant(c, to, a);
		break;
	case FAL_ACT_REVOKE:
	case FAL_ACT_UNCHECK:
		act_revoke(c, to, a);
		break;
	case FAL_ACT_LANES:
		coord_send(c, to, &lanes);
		break;
	case FAL_ACT_FENCE:
		act_fence(c, to, a);
		break;
	case FAL_ACT_EVAL:
		act_evaluate(c, to, a);
		break;
	case FAL_ACT_PING:
		coord_send_ping(c, now, to);
		break;
	case FAL_ACT_CHARGE:
		coord_charge_worker(c, now, a->worker, a->why);
		break;
	case FAL_ACT_SUSPECT:
	case FAL_ACT_BACK:
	case FAL_ACT_BARRED:
		act_report_suspect(c, now, to, a);
		break;
	case FAL_ACT_EVICT:
		coord_refuse(c, now, to, a->why);
		break;
	case FAL_ACT_NONFINITE:
		act_trace_nonfinite(c, now, a);
		break;
	case FAL_ACT_STOP:
		c->failure = "a gradient is not finite, on two runs";
		break;
	case FAL_ACT_SKIP:
		act_skip(c, a);
		break;
	}
}

/* Has the shards forget the momentum of workers that left and have no update to come.
 * During a move a shard's state does not change, so the caller waits. */
static void
forget_leaver_momentum(struct fal_coord *c)
{
	for (uint32_t i = 0; i < c->sessions.leavers; i++)
		coord_command_shards(c, &(struct fal_shard_order){
						.kind = FAL_ORDER_FORGET,
						.slot = c->sessions.leaver[i] });
	c->sessions.leavers = 0;
}

void
coord_run_actions(struct fal_coord *c, double now)
{
	struct fal_act a;
	take_shard_events(c, now);
	while (c->err == 0 && fal_sched_next(c->sched, &a)) {
		run_action(c, now, &a);
		take_shard_events(c, now);
	}
	if (c->err == 0 && !c->placement.move.begun)
		forget_leaver_momentum(c);
	if (c->err == 0)
		write_pending_lines(c, now);
}
