/* Rounds, updates and versions: carries out the scheduler's actions, handles the shards'
 * reports, and writes the trace lines of what is done.  Workers may wait for a version;
 * nothing waits for the trace.
 *
 * A contribution is whole, a round is complete or ended, and a version is made, when all
 * shards have reported so. */
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

/* ---- the shards' reports on open rounds ------------------------------------------- */

/* Does this set contain all shards that have blocks? */
static bool
all_shards_in(const struct fal_coord *c, uint64_t shards)
{
	return shards == fal_map_busy(&c->placement.map);
}

static size_t
acks_index(const struct fal_coord *c, uint64_t round)
{
	return fal_sorted_place64(c->rounds.acks, c->rounds.n_acks,
				  sizeof(*c->rounds.acks), round);
}

/* The shards' reports on the round; NULL: the round is not open. */
static struct coord_round_acks *
acks_find(const struct fal_coord *c, uint64_t round)
{
	const size_t place = acks_index(c, round);
	struct coord_round_acks *acks = c->rounds.acks + place;
	return place < c->rounds.n_acks && acks->round == round ? acks : NULL;
}

static void
acks_remove(struct fal_coord *c, uint64_t round)
{
	struct coord_rounds *rounds = &c->rounds;
	struct coord_round_acks *acks = acks_find(c, round);
	if (acks == NULL)
		return;
	free(acks->contribution);
	memmove(acks, acks + 1,
		(size_t)(rounds->acks + --rounds->n_acks - acks) * sizeof(*acks));
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
coord_make_ticket(const struct fal_coord *c, uint64_t round, struct fal_contrib_id id,
		  struct fal_ticket *out)
{
	struct fal_round_info r;
	const struct fal_contrib *contrib = fal_sched_find_contrib(c->sched, round, id);
	if (contrib == NULL || !fal_sched_round(c->sched, round, &r))
		return false;
	*out = (struct fal_ticket){ .round = round,
				    .id = id,
				    .fills = fal_sched_filled_contrib(c->sched, round,
								      contrib),
				    .tasks = contrib->tasks,
				    .facts = round_facts(&r) };
	return true;
}

/* Returns true if an earlier round of the round's owner is still open.  The local
 * steps of a worker count one after the other. */
static bool
follows_open_steps(const struct fal_coord *c, const struct fal_round_info *r)
{
	struct fal_round_info o;
	for (size_t i = 0; i < c->rounds.n_acks && c->rounds.acks[i].round < r->round;
	     i++)
		if (r->delta && fal_sched_round(c->sched, c->rounds.acks[i].round, &o) &&
		    o.delta && o.owner == r->owner)
			return true;
	return false;
}

/* Completes the round if each shard has its whole part of the round, or has ended the
 * round. */
static void
complete_round(struct fal_coord *c, double now, const struct coord_round_acks *acks)
{
	struct fal_round_info r;
	if (c->failure != NULL || !all_shards_in(c, acks->complete | acks->ended) ||
	    !fal_sched_round(c->sched, acks->round, &r))
		return;
	/* A round that an early order ends is not completed here. */
	if (!r.commit_ordered && !follows_open_steps(c, &r))
		fal_sched_note_complete(c->sched, now, r.round);
}

/* ---- versions announced to workers ------------------------------------------------- */

/* Lists in versions.needed the versions on which the worker's open rounds are
 * computed; returns their number. */
static uint32_t
find_needed_versions(struct fal_coord *c, const struct coord_peer *p)
{
	struct coord_versions *v = &c->versions;
	const uint32_t n = fal_sched_list_versions(c->sched, p->worker, NULL, 0);
	FAL_XGROW(v->needed, v->needed_cap, n);
	return fal_sched_list_versions(c->sched, p->worker, v->needed, n);
}

/* Sends VERSION, and makes the shards publish the version to the worker. */
static void
send_version(struct fal_coord *c, struct coord_peer *p,
	     struct fal_coord_publication *model)
{
	struct fal_msg m = { .type = FAL_MSG_VERSION };
	m.version.version = model->version;
	m.version.oldest = model->oldest;
	m.version.keep = model->keep;
	model->order = ++p->announced.n;
	coord_send(c, p->id, &m);
	model->newest = c->versions.published;
	model->names = find_needed_versions(c, p);
	model->named = c->versions.needed;
	COORD_CALL(c, model, p->id, model);
}

/* Returns the oldest version that may be announced to workers. */
static uint64_t
oldest_announced(const struct fal_coord *c)
{
	const struct coord_versions *v = &c->versions;
	return v->newest_is_withheld ? v->oldest_announced : v->oldest;
}

void
coord_announce_version(struct fal_coord *c, struct coord_peer *p, uint64_t version,
		       bool pin)
{
	const uint64_t oldest = oldest_announced(c);
	const uint64_t needed = fal_sched_oldest_version(c->sched, p->worker);
	const bool on_branch = fal_branch_of(needed) != 0;
	struct fal_coord_publication model = { .version = version,
					       .oldest = on_branch || needed < oldest
								 ? needed
								 : oldest,
					       .from = on_branch ? 0 : oldest,
					       .keep = pin };
	p->announced.oldest = model.oldest;
	p->announced.repeated = 0;
	send_version(c, p, &model);
}

/* Returns the bit of the version in announced.repeated; 0: the version has no bit. */
static uint64_t
repeated_bit(const struct coord_peer *p, uint64_t version)
{
	const uint64_t back = p->announced.oldest - version - 1;
	return version < p->announced.oldest && back < 64 ? UINT64_C(1) << back : 0;
}

/* Announces a forgotten version once more, because the worker is granted tasks of a round
 * on this version.  A worker may help several rounds in turn.  A version with its bit in
 * announced.repeated is not announced again: the worker keeps the version as long as the
 * worker has an open round on the version. */
static void
repeat_version(struct fal_coord *c, struct coord_peer *p, uint64_t version)
{
	const bool on_branch =
		fal_branch_of(p->announced.oldest) != 0 || fal_branch_of(version) != 0;
	const uint64_t bit = repeated_bit(p, version);
	struct fal_coord_publication model = { .version = version,
					       .oldest = version,
					       .from = version };
	if (on_branch || version >= p->announced.oldest ||
	    (p->announced.repeated & bit) != 0)
		return;
	/* Newer versions stay; all versions stay if this version has no bit. */
	uint64_t stay = p->announced.repeated & (bit - 1);
	model.names = find_needed_versions(c, p);
	for (uint32_t i = 0; i < model.names; i++) {
		const uint64_t needed = c->versions.needed[i];
		const uint64_t repeated = p->announced.repeated & repeated_bit(p, needed);
		stay |= repeated;
		if (repeated != 0 && needed < model.oldest)
			model.oldest = needed;
	}
	p->announced.repeated = stay | bit;
	send_version(c, p, &model);
}

/* Announces to a ready worker all versions that the worker may compute on and that
 * were not announced to the worker before. */
static void
announce_versions(struct fal_coord *c, struct coord_peer *p)
{
	const struct coord_evaluation *e = &c->evaluation;
	const uint64_t newest = c->versions.newest - c->versions.newest_is_withheld;
	uint64_t from = oldest_announced(c);
	if (p->state != PEER_READY || (c->is_external && !c->external.has_version))
		return;
	if (!p->announced.is_on_branch && p->announced.next > from)
		from = p->announced.next;
	for (uint64_t v = from; v <= newest; v++) {
		if (c->is_external && !coord_is_installed(c, v))
			continue;
		const bool pin = v != p->announced.pinned_version &&
				 (e->pin.is_under_way ? v == e->pin.version
						      : v > 0 && v == e->next_version);
		if (pin)
			p->announced.pinned_version = v;
		coord_announce_version(c, p, v, pin);
	}
	p->announced.next = newest + 1;
	p->announced.is_on_branch = false;
}

/* ---- updates that all shards have made --------------------------------------------- */

/* Returns the loss as a number; NAN: the loss of a task is not known. */
static double
loss_or_nan(uint64_t loss, bool is_unknown)
{
	return is_unknown ? (double)NAN : fal_loss_decode((int64_t)loss);
}

/* Sums up the losses and samples of the rounds that make the update. */
static void
sum_update(const struct fal_coord *c, struct coord_pending_line *line)
{
	uint64_t loss = 0;
	bool is_unknown = false;
	line->samples = 0;
	line->metrics = (struct fal_metrics){ 0 };
	for (uint32_t i = line->first; i < line->first + line->rounds; i++) {
		fal_metrics_add(&line->metrics, &c->rounds.collected[i].metrics);
		loss += c->rounds.collected[i].loss;
		is_unknown |= c->rounds.collected[i].loss_is_unknown;
		line->samples += c->rounds.collected[i].samples;
	}
	line->loss = line->samples > 0
			     ? loss_or_nan(loss, is_unknown) / (double)line->samples
			     : (double)NAN;
}

/* Returns true if all claims of the update's rounds have arrived.  Until then losses
 * are missing. */
static bool
update_is_reported(const struct fal_coord *c, const struct coord_pending_line *line)
{
	struct fal_round_info r;
	for (uint32_t i = line->first; i < line->first + line->rounds; i++)
		if (fal_sched_round(c->sched, c->rounds.collected[i].round, &r) &&
		    r.commit_ordered && !r.all_reported)
			return false;
	return true;
}

/* Publishes the update: all shards have made the version, and all claims are in. */
static void
publish_update(struct fal_coord *c, double now, struct coord_pending_line *line)
{
	struct coord_evaluation *e = &c->evaluation;
	const uint64_t version = line->version;
	const uint32_t end = line->first + line->rounds;
	struct fal_round_info r;
	/* If the update was ordered before its rounds were complete, claims may have
	 * been replaced since then.  So the losses are read again. */
	for (uint32_t i = line->first; i < end; i++) {
		struct coord_collected *m = &c->rounds.collected[i];
		if (fal_sched_round(c->sched, m->round, &r)) {
			m->loss = (uint64_t)fal_ledger_loss(r.ledger);
			m->loss_is_unknown = !fal_ledger_loss_known(r.ledger);
			m->metrics = fal_ledger_metrics(r.ledger);
		}
		if (!m->is_own)
			coord_health_add_loss(c, m->clock,
					      loss_or_nan(m->loss, m->loss_is_unknown),
					      m->samples, &m->metrics);
	}
	sum_update(c, line);
	c->figures.loss = line->loss;
	c->figures.metrics.clock = line->metrics;
	c->versions.published = version;
	fal_sched_note_published(c->sched, now, version);
	for (uint32_t i = line->first; i < end; i++) {
		const uint64_t round = c->rounds.collected[i].round;
		if (!fal_sched_round(c->sched, round, &r) || !r.commit_ordered)
			continue;
		acks_remove(c, round);
		fal_sched_note_applied(c->sched, now, round);
	}
	/* An early order does not count clocks that an earlier policy had left open.  The
	 * scheduler has counted these clocks by now. */
	const uint64_t clocks_over = line->act.ahead
					     ? fal_sched_first_open_clock(c->sched)
					     : line->clocks_over;
	c->versions.published_clocks = clocks_over;
	coord_health_update(c, version, clocks_over, end);
	if (c->failure == NULL && c->conf.test_samples > 0 && !e->pin.is_under_way &&
	    line->clocks_over >= e->pin.next_clock &&
	    !(e->pin.is_evaluated && e->pin.clocks == clocks_over))
		coord_evaluate_version(c, now, version, clocks_over);
	if (line->has_snapshot)
		coord_snapshot_begin(c, version, clocks_over);
}

static void
publish_updates(struct fal_coord *c, double now)
{
	for (uint32_t i = 0; i < c->rounds.n_pending && c->err == 0; i++) {
		struct coord_pending_line *line = &c->rounds.pending[i];
		if (line->act.kind != FAL_ACT_STEP ||
		    line->version <= c->versions.published ||
		    !all_shards_in(c, line->acks))
			continue;
		if (!update_is_reported(c, line))
			return;
		publish_update(c, now, line);
	}
}

/* ---- trace lines ------------------------------------------------------------------- */

static void
pending_append(struct fal_coord *c, const struct coord_pending_line *line)
{
	struct coord_rounds *rounds = &c->rounds;
	FAL_XGROW(rounds->pending, rounds->pending_cap, (size_t)rounds->n_pending + 1);
	rounds->pending[rounds->n_pending++] = *line;
}

/* Returns the pending line of a round (FAL_ACT_END) or a version (FAL_ACT_STEP), or
 * NULL. */
static struct coord_pending_line *
pending_find(const struct fal_coord *c, enum fal_act_kind kind, uint64_t number)
{
	for (uint32_t i = 0; i < c->rounds.n_pending; i++) {
		struct coord_pending_line *line = &c->rounds.pending[i];
		if (line->act.kind == kind &&
		    (kind == FAL_ACT_END ? line->act.round : line->version) == number)
			return line;
	}
	return NULL;
}

static void
pending_free(struct coord_pending_line *line)
{
	free(line->sum);
	free(line->leaves); /* not NULL if some shard has not sent its leaves */
	free(line->branch);
}

/* Adds up the counts in the round's ledger. */
static void
add_task_counts(struct fal_coord *c, const struct fal_ledger *l, enum fal_fate fate)
{
	struct fal_coord_tasks *s = &c->figures.tasks;
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
	s->skipped += fate != FAL_FATE_RETRY ? l->skipped : 0;
}

/* Reports the worker whose large values made the shards leave blocks unchanged. */
static void
report_unstepped(struct fal_coord *c, const struct coord_pending_line *line,
		 uint64_t clock, bool change)
{
	if (line->unstepped == 0 || c->ops.unstepped == NULL)
		return;
	const struct coord_known_worker *w = coord_worker(c, line->unstepped_by);
	const struct fal_coord_skipped_blocks report = {
		.clock = clock,
		.blocks = line->unstepped,
		.name = w->name,
		.key = coord_key(c, w->key)->record.name,
		.change = change
	};
	COORD_CALL(c, unstepped, &report);
}

/* Writes the round's `ledger` line, and forgets the round. */
static void
trace_round(struct fal_coord *c, double now, const struct coord_pending_line *line)
{
	static const char *const bases[] = { "version", "local", "rebase" };
	const struct fal_act *a = &line->act;
	struct coord_rounds *rounds = &c->rounds;
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	const enum fal_trace_end end = a->fate == FAL_FATE_DROP      ? FAL_END_DROPPED
				       : a->fate == FAL_FATE_RETRY   ? FAL_END_ABANDONED
				       : a->fate == FAL_FATE_FORWARD ? FAL_END_FORWARDED
								     : FAL_END_APPLIED;
	const bool applied = end == FAL_END_APPLIED;
	const bool on_branch = a->fate == FAL_FATE_BRANCH;
	const bool has_steps = applied && r.delta && r.steps > 0;
	const bool is_late = r.first_late != FAL_NONE;
	const bool revised = applied && a->fate == FAL_FATE_REWEIGHT;
	const struct fal_ev_stale stale = { r.stale_clocks, r.stale_updates,
					    revised ? a->count : 0 };
	struct fal_ev_ledger e = {
		.round = r.round,
		.clock = r.clock,
		.first = r.first,
		.samples = r.samples,
		/* The task of another coordinator is the only task of its round. */
		.version = c->is_external && is_late ? r.late_version : r.taken,
		.late = is_late && !c->is_external ? r.first_late : FAL_TRACE_ABSENT,
		.blocks = fal_blocks(c->conf.params),
		.kind = r.delta ? FAL_TRACE_DELTA : FAL_TRACE_GRAD,
		.owner = r.owner,
		.group = r.group,
		.local = r.local,
		.end = end,
		.why = applied || end == FAL_END_FORWARDED ? NULL : a->why,
		.weight = applied && r.delta ? a->weight : (double)NAN,
		.among = applied ? a->among : 0,
		.divisor = on_branch ? a->divisor : 0,
		.steps = has_steps ? r.steps : 0,
		.base = has_steps ? bases[r.base] : NULL,
		.since = has_steps && r.base == FAL_START_REBASE ? r.since
								 : FAL_TRACE_ABSENT,
		.lr = applied && (r.delta || on_branch)
			      ? (double)(float)fal_schedule_lr(&c->conf.schedule, r.clock)
			      : 0,
		.stale = applied ? &stale : NULL,
		.unstepped = applied ? line->unstepped : 0,
		.slot = revised && stale.rank > 0 ? a->slot : FAL_TRACE_ABSENT,
	};
	const struct fal_line_ledger facts = { .hashed = c->conf.task_hashes,
					       .on = rounds->granted,
					       .ons = rounds->n_granted,
					       .sums = c->conf.audit_sums,
					       .seed = fal_ticket_seed(&c->conf.tickets,
								       r.round),
					       .added = line->sum_added,
					       .sum = line->sum,
					       .n_sums = line->sums };
	fal_line_ledger(&c->trace_line, fal_coord_trace_time(c, now), &facts, r.ledger,
			&e);
	coord_write_line(c);
	report_unstepped(c, line, r.clock, r.delta);
	add_task_counts(c, r.ledger, a->fate);
	if (a->fate != FAL_FATE_RETRY)
		coord_health_add_skipped(c, r.clock, r.ledger->skipped);
	if (a->fate == FAL_FATE_FORWARD) {
		COORD_CALL(c, given, r.round);
	}
	size_t kept = 0;
	for (size_t i = 0; i < rounds->n_granted; i++)
		if (rounds->granted[i].round != r.round)
			rounds->granted[kept++] = rounds->granted[i];
	rounds->n_granted = kept;
	fal_sched_forget_round(c->sched, r.round);
}

static void
trace_update(struct fal_coord *c, double now, const struct coord_pending_line *line)
{
	const struct fal_act *a = &line->act;
	struct fal_ev_metric metric[FAL_METRICS_MAX];
	uint64_t *rounds = fal_xcalloc(line->rounds, sizeof(*rounds));
	struct fal_ev_update e = {
		.version = line->version,
		.clock = a->clock,
		.rounds = { rounds, line->rounds },
		.groups = a->among,
		.divisor = line->has_gradients ? a->divisor : 0,
		.samples = (uint32_t)line->samples,
		.loss = line->loss,
		.lr = (double)line->lr,
		.norm = line->norm,
		.epoch = a->clock / fal_grid_epoch_clocks(&c->conf.grid) + 1,
		.unstepped = line->unstepped,
		.metrics = { metric, coord_list_metrics(c, &line->metrics, metric) },
	};
	const struct fal_line_update facts = {
		.push = line->branch,
		.pushes = line->n_branches,
		.outer = a->weight,
		.momentum = a->momentum,
		.hash = line->has_hash ? line->hash : NULL,
		.exponents = line->exponents,
	};
	for (uint32_t i = 0; i < line->rounds; i++)
		rounds[i] = c->rounds.collected[line->first + i].round;
	fal_line_update(&c->trace_line, fal_coord_trace_time(c, now), &facts, &e);
	free(rounds);
	coord_write_line(c);
	report_unstepped(c, line, a->clock, false);
	c->placement.lines.version = line->version;
	if (a->clock >= c->placement.lines.clocks_over)
		c->placement.lines.clocks_over = a->clock + 1;
}

/* Returns true if all shards have reported and, after an early order, the round is over.
 * Until then claims may arrive that belong in the line of the round. */
static bool
line_is_complete(const struct fal_coord *c, const struct coord_pending_line *line)
{
	struct fal_round_info r;
	return all_shards_in(c, line->acks) &&
	       (line->act.kind != FAL_ACT_END ||
		!fal_sched_round(c->sched, line->act.round, &r) || !r.commit_ordered);
}

/* Writes the pending lines that are complete, in their order. */
static void
write_pending_lines(struct fal_coord *c, double now)
{
	struct coord_rounds *rounds = &c->rounds;
	uint32_t n = 0, written = 0; /* lines; rounds of updates among them */
	for (; n < rounds->n_pending && line_is_complete(c, &rounds->pending[n]) &&
	       c->err == 0;
	     n++) {
		struct coord_pending_line *line = &rounds->pending[n];
		if (line->act.kind == FAL_ACT_END)
			trace_round(c, now, line);
		else
			trace_update(c, now, line);
		coord_trace_shards(c, now, false);
		coord_measure_clock(c, now);
		if (line->has_snapshot)
			coord_snapshot_end(c, now);
		written += line->rounds;
		pending_free(line);
	}
	rounds->n_pending -= n;
	if (n > 0)
		memmove(rounds->pending, rounds->pending + n,
			rounds->n_pending * sizeof(*rounds->pending));
	/* The rounds collected for later updates stay. */
	rounds->n_collected -= written;
	rounds->n_in_updates -= written;
	if (written > 0)
		memmove(rounds->collected, rounds->collected + written,
			rounds->n_collected * sizeof(*rounds->collected));
	for (uint32_t i = 0; i < rounds->n_pending; i++)
		if (rounds->pending[i].act.kind == FAL_ACT_STEP)
			rounds->pending[i].first -= written;
}

void
coord_rounds_free(struct fal_coord *c)
{
	struct coord_rounds *rounds = &c->rounds;
	while (rounds->n_acks > 0)
		acks_remove(c, rounds->acks[0].round);
	free(rounds->acks);
	for (uint32_t i = 0; i < rounds->n_pending; i++)
		pending_free(&rounds->pending[i]);
	free(rounds->pending);
	free(rounds->collected);
	free(rounds->branch);
	free(rounds->granted);
	free(rounds->squares);
}

/* ---- reports of shards ------------------------------------------------------------- */

/* Collects the squares of a gradient.  Shards clip by the sum of all squares, and all
 * shards wait for this sum.  A shard reports the squares of one order at a time. */
static void
on_shard_squares(struct fal_coord *c, const struct fal_shard_report *report)
{
	struct coord_rounds *rounds = &c->rounds;
	const uint32_t blocks = fal_blocks(c->conf.params);
	struct fal_shard_order o = { .kind = FAL_ORDER_SCALE };
	if (rounds->squares == NULL)
		rounds->squares = fal_xcalloc(blocks, sizeof(*rounds->squares));
	memcpy(rounds->squares + report->first, report->squares,
	       report->blocks * sizeof(*rounds->squares));
	rounds->squares_from |= UINT64_C(1) << report->shard;
	if (!all_shards_in(c, rounds->squares_from))
		return;
	rounds->squares_from = 0;
	/* Adds in the order of blocks, so that the sum does not depend on the map. */
	for (uint32_t b = 0; b < blocks; b++)
		o.squares += rounds->squares[b];
	struct coord_pending_line *line = pending_find(c, FAL_ACT_STEP, report->version);
	if (line != NULL)
		line->norm = sqrt(o.squares);
	coord_command_shards(c, &o);
}

/* Returns the contribution of the report, and sets *out to the shards' reports on this
 * contribution; NULL: there is no such contribution. */
static const struct fal_contrib *
find_contribution(const struct fal_coord *c, struct coord_round_acks *acks,
		  struct fal_contrib_id id, struct coord_contribution_acks **out)
{
	struct fal_round_info r;
	if (acks == NULL || !fal_sched_round(c->sched, acks->round, &r))
		return NULL;
	const uint32_t place = fal_ledger_find(r.ledger, id), n = r.ledger->contribs;
	if (place == FAL_NONE)
		return NULL;
	FAL_XGROW(acks->contribution, acks->contribution_cap, n);
	while (acks->n_contributions < n)
		acks->contribution[acks->n_contributions++] =
			(struct coord_contribution_acks){ 0 };
	*out = &acks->contribution[place];
	return &r.ledger->contrib[place];
}

/* A shard that has ended a round no longer reports that a contribution is whole. */
static void
on_shard_arrived(struct fal_coord *c, double now, const struct fal_shard_report *report)
{
	struct coord_round_acks *acks = acks_find(c, report->round);
	struct coord_contribution_acks *reports;
	if (find_contribution(c, acks, report->id, &reports) == NULL)
		return;
	reports->whole |= (uint64_t)report->whole << report->shard;
	const bool is_whole =
		report->whole && all_shards_in(c, reports->whole | acks->ended);
	if (is_whole)
		reports->whole = 0;
	fal_sched_note_blocks(c->sched, now, report->round, report->id, report->blocks,
			      is_whole);
}

static void
on_shard_fenced(struct fal_coord *c, double now, const struct fal_shard_report *report)
{
	struct coord_contribution_acks *reports;
	const struct fal_contrib *contrib =
		find_contribution(c, acks_find(c, report->round), report->id, &reports);
	/* Nothing to do: no fence was ordered, or all shards have reported before. */
	if (contrib == NULL || contrib->state != FAL_CONTRIB_FENCED ||
	    contrib->is_fenced_by_all)
		return;
	reports->fenced |= UINT64_C(1) << report->shard;
	if (all_shards_in(c, reports->fenced))
		fal_sched_note_fenced(c->sched, now, report->round, report->id);
}

/* Ends the worker's session, as if the worker had pushed the refused records here, and
 * charges the worker's key if no honest worker makes such records. */
static void
on_shard_refused(struct fal_coord *c, double now, const struct fal_shard_report *report)
{
	const struct coord_peer *p = coord_peer_of_worker(c, report->id.worker);
	if (p == NULL || p->state != PEER_READY)
		return;
	if (report->err == FAL_ELIMIT || report->err == FAL_EINVAL)
		coord_key(c, p->key)->record.charges++;
	coord_end_session(c, now, p->id, FAL_MSG_REFUSE, report->odd);
}

/* Enters the shard into `set`, one of the two sets in `acks`: the shard has its whole
 * part of the round, or has ended the round. */
static void
acks_enter(struct fal_coord *c, double now, struct coord_round_acks *acks, uint64_t *set,
	   uint32_t shard)
{
	const uint64_t before = acks->complete | acks->ended;
	*set |= UINT64_C(1) << shard;
	if ((acks->complete | acks->ended) != before)
		complete_round(c, now, acks);
}

/* Enters the shard's report into the pending line.  NULL: there is no such line, or the
 * shard has reported before.  A failure in the report ends the job. */
static struct coord_pending_line *
pending_enter(struct fal_coord *c, enum fal_act_kind kind, uint64_t number,
	      const struct fal_shard_report *report)
{
	struct coord_pending_line *line = pending_find(c, kind, number);
	if (report->odd != NULL) { /* copied, because the text is borrowed */
		snprintf(c->shard_failure, sizeof(c->shard_failure), "%s", report->odd);
		c->failure = c->shard_failure;
	}
	if (line == NULL || (line->acks >> report->shard & 1) != 0)
		return NULL;
	line->acks |= UINT64_C(1) << report->shard;
	if (report->beyond > 0 &&
	    (line->unstepped == 0 || report->most > line->unstepped_exponent)) {
		line->unstepped_by = report->id.worker;
		line->unstepped_exponent = report->most;
	}
	line->unstepped += report->beyond;
	return line;
}

static void
on_shard_ended(struct fal_coord *c, double now, const struct fal_shard_report *report)
{
	struct coord_pending_line *line =
		pending_enter(c, FAL_ACT_END, report->round, report);
	struct coord_round_acks *acks = acks_find(c, report->round);
	struct fal_round_info r;
	if (line == NULL)
		return;
	/* Adds the checksums of the contributions' values at the shard. */
	if (c->conf.audit_sums && fal_sched_round(c->sched, report->round, &r)) {
		FAL_XGROW(line->sum, line->sum_cap, r.ledger->contribs);
		while (line->sums < r.ledger->contribs)
			line->sum[line->sums++] = 0;
		for (uint32_t i = 0; i < report->broughts; i++) {
			const uint32_t place =
				fal_ledger_find(r.ledger, report->brought[i].id);
			if (place != FAL_NONE)
				line->sum[place] += report->brought[i].sum;
		}
		line->sum_added += report->added;
	}
	if (report->rank > 0) {
		line->act.weight = 1.0 / report->rank;
		line->act.count = report->rank;
	}
	if (acks != NULL)
		acks_enter(c, now, acks, &acks->ended, report->shard);
}

static void
on_shard_stepped(struct fal_coord *c, double now, const struct fal_shard_report *report)
{
	struct coord_pending_line *line =
		pending_enter(c, FAL_ACT_STEP, report->version, report);
	if (line == NULL)
		return;
	const bool is_last = all_shards_in(c, line->acks);
	if (report->leaves != NULL) {
		/* The leaves of all blocks, and then their exponents. */
		const uint32_t blocks = fal_blocks(c->conf.params);
		if (line->leaves == NULL)
			line->leaves = fal_xcalloc(blocks, FAL_HASH_BYTES + 1);
		int8_t *exps = (int8_t *)(line->leaves + (size_t)blocks * FAL_HASH_BYTES);
		memcpy(exps + report->first, report->exps, report->blocks);
		memcpy(line->leaves + (size_t)report->first * FAL_HASH_BYTES,
		       report->leaves, (size_t)report->blocks * FAL_HASH_BYTES);
		if (is_last) {
			fal_leaf_root(line->leaves, blocks, line->hash);
			fal_leaf_exponents(exps, blocks, line->exponents);
			line->has_hash = true;
			free(line->leaves);
			line->leaves = NULL;
		}
	}
	if (!is_last)
		return;
	const uint32_t first = line->first, end = first + line->rounds;
	for (uint32_t i = first; i < end; i++)
		fal_sched_note_stepped(c->sched, now, c->rounds.collected[i].round);
	publish_updates(c, now);
}

static void
on_shard_report(struct fal_coord *c, double now, const struct fal_shard_report *report)
{
	struct coord_round_acks *acks = NULL;
	/* A shard without blocks has only one thing to report: whether it can have
	 * blocks. */
	if ((fal_map_busy(&c->placement.map) >> report->shard & 1) == 0 &&
	    report->kind != FAL_REPORT_MIGRATED && report->kind != FAL_REPORT_REFUSED)
		return;
	if (report->beyond > 0 && (report->id.worker - 1 >= c->sessions.workers ||
				   coord_worker(c, report->id.worker)->key == 0)) {
		c->failure = "a shard speaks of work that nobody has done";
		return;
	}
	switch (report->kind) {
	case FAL_REPORT_ARRIVED:
		on_shard_arrived(c, now, report);
		break;
	case FAL_REPORT_COMPLETE:
		acks = acks_find(c, report->round);
		if (acks != NULL)
			acks_enter(c, now, acks, &acks->complete, report->shard);
		break;
	case FAL_REPORT_FENCED:
		on_shard_fenced(c, now, report);
		break;
	case FAL_REPORT_REFUSED:
		on_shard_refused(c, now, report);
		break;
	case FAL_REPORT_SQUARES:
		on_shard_squares(c, report);
		break;
	case FAL_REPORT_ENDED:
		on_shard_ended(c, now, report);
		break;
	case FAL_REPORT_STEPPED:
		on_shard_stepped(c, now, report);
		break;
	case FAL_REPORT_MIGRATED:
		coord_on_migrated(c, now, report);
		break;
	}
}

void
coord_handle_result(struct fal_coord *c, double now, const struct fal_shard_result *r)
{
	for (size_t i = 0; i < r->n && c->err == 0; i++) {
		/* a copy: commands that follow from the report may add to the list */
		const struct fal_shard_report report = r->v[i];
		on_shard_report(c, now, &report);
	}
}

/* Handles c->result, and the results of the commands that follow from a report. */
static void
handle_pending_reports(struct fal_coord *c, double now)
{
	coord_handle_result(c, now, &c->result);
	fal_shard_result_free(&c->result);
}

/* ---- actions of the scheduler ------------------------------------------------------ */

static void
act_open_round(struct fal_coord *c, const struct fal_act *a)
{
	struct coord_rounds *rounds = &c->rounds;
	struct fal_round_info r;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	const struct fal_shard_order o = { .kind = FAL_ORDER_OPEN,
					   .round = r.round,
					   .facts = round_facts(&r) };
	const size_t place = acks_index(c, r.round);
	FAL_XGROW(rounds->acks, rounds->acks_cap, rounds->n_acks + 1);
	memmove(rounds->acks + place + 1, rounds->acks + place,
		(rounds->n_acks++ - place) * sizeof(*rounds->acks));
	rounds->acks[place] = (struct coord_round_acks){ .round = r.round };
	coord_command_shards(c, &o);
}

/* Collects the round's gradients, or its change of weights, for the next update.  The
 * loss of a round of one worker or group counts at once, because its clock may be over
 * before the shards have stepped with all rounds of the clock. */
static void
collect_round(struct fal_coord *c, const struct fal_act *a,
	      const struct fal_round_info *r)
{
	struct coord_rounds *rounds = &c->rounds;
	const struct coord_collected collected = {
		.round = a->round,
		.branch = a->fate == FAL_FATE_BRANCH ? r->group : 0,
		.loss = (uint64_t)fal_ledger_loss(r->ledger),
		.samples = r->samples,
		.loss_is_unknown = !fal_ledger_loss_known(r->ledger),
		.metrics = fal_ledger_metrics(r->ledger),
		.clock = r->clock,
		.is_own = r->owner != 0 || r->group != 0
	};
	if (collected.is_own)
		coord_health_add_loss(c, r->clock,
				      loss_or_nan(collected.loss,
						  collected.loss_is_unknown),
				      r->samples, &collected.metrics);
	rounds->has_gradients |= a->fate == FAL_FATE_MERGE;
	FAL_XGROW(rounds->collected, rounds->collected_cap,
		  (size_t)rounds->n_collected + 1);
	rounds->collected[rounds->n_collected++] = collected;
}

static void
act_end_round(struct fal_coord *c, double now, const struct fal_act *a)
{
	static const enum fal_end ends[] = {
		[FAL_FATE_MERGE] = FAL_END_MERGE,
		[FAL_FATE_ADD] = FAL_END_ADD,
		[FAL_FATE_BRANCH] = FAL_END_BRANCH,
		[FAL_FATE_REWEIGHT] = FAL_END_REWEIGHT,
		[FAL_FATE_DROP] = FAL_END_DROP,
		[FAL_FATE_RETRY] = FAL_END_DROP,
		[FAL_FATE_FORWARD] = FAL_END_FORWARD,
	};
	struct fal_round_info r;
	if (fal_sched_round(c->sched, a->round, &r)) {
		const struct fal_shard_order o = {
			.kind = FAL_ORDER_END,
			.round = a->round,
			.end = ends[a->fate],
			.version = a->version,
			.weight = a->weight,
			.slot = a->slot,
			.below = a->below,
			.divisor = a->divisor,
			.clipped = a->fate == FAL_FATE_BRANCH && c->conf.optim.clip > 0,
			.ahead = a->ahead,
			.lr = (float)fal_schedule_lr(&c->conf.schedule, r.clock)
		};
		if (!a->ahead)
			acks_remove(c, a->round);
		if (a->fate < FAL_FATE_DROP)
			collect_round(c, a, &r);
		pending_append(c, &(struct coord_pending_line){ .act = *a });
		coord_command_shards(c, &o);
	}
	/* Rounds of local steps that have waited for this round may be complete now. */
	for (size_t i = 0; i < c->rounds.n_acks && !a->ahead; i++)
		if (fal_sched_round(c->sched, c->rounds.acks[i].round, &r) && r.delta)
			complete_round(c, now, &c->rounds.acks[i]);
}

/* Moves the collected rounds of the branch (0: rounds without a branch) to the front
 * of the next update's rounds, behind the rounds of branches that are merged
 * already.  The moved rounds keep their order. */
static void
collect_branch(struct fal_coord *c, uint32_t branch)
{
	struct coord_rounds *rounds = &c->rounds;
	for (uint32_t i = rounds->n_in_updates + rounds->n_branch_rounds;
	     i < rounds->n_collected; i++) {
		const uint32_t place = rounds->n_in_updates + rounds->n_branch_rounds;
		struct coord_collected m = rounds->collected[i];
		struct coord_collected *to = rounds->collected + place;
		if (m.branch != branch)
			continue;
		memmove(to + 1, to, (i - place) * sizeof(m));
		*to = m;
		rounds->n_branch_rounds++;
	}
}

static void
act_merge_branch(struct fal_coord *c, const struct fal_act *a)
{
	struct coord_rounds *rounds = &c->rounds;
	const struct fal_shard_order o = { .kind = FAL_ORDER_COLLECT,
					   .branch = a->branch,
					   .weight = a->weight };
	FAL_XGROW(rounds->branch, rounds->branch_cap, (size_t)rounds->n_branches + 1);
	rounds->branch[rounds->n_branches++] =
		(struct fal_branch_push){ a->branch, a->weight, a->among };
	collect_branch(c, a->branch);
	coord_command_shards(c, &o);
}

/* Returns the worker or group whose own momentum makes the update: the owner of the
 * update's single round, if pushers have momenta of their own; else 0. */
static uint32_t
find_pusher(struct fal_coord *c, const struct coord_pending_line *line)
{
	const struct fal_rule *rule = &fal_sched_policy(c->sched)->rule;
	struct fal_round_info r;
	if (!fal_rule_traits(rule).alone || rule->quorum > 0 ||
	    !fal_optim_by_pusher(&c->conf.optim) ||
	    !fal_sched_round(c->sched, c->rounds.collected[line->first].round, &r))
		return 0;
	if (r.owner != 0)
		coord_worker(c, r.owner)->momentum = true;
	return r.owner != 0 ? r.owner : r.group;
}

/* Takes the collected rounds and branches into the update. */
static void
take_collected(struct fal_coord *c, struct coord_pending_line *line)
{
	struct coord_rounds *rounds = &c->rounds;
	if (rounds->n_branches == 0)
		collect_branch(c, 0);
	line->has_gradients = rounds->has_gradients;
	line->first = rounds->n_in_updates;
	line->rounds = rounds->n_branch_rounds;
	line->branch = rounds->branch;
	line->n_branches = rounds->n_branches;
	rounds->n_in_updates += rounds->n_branch_rounds;
	rounds->has_gradients = false;
	rounds->branch = NULL;
	rounds->n_branches = rounds->n_branch_rounds = 0;
	rounds->branch_cap = 0;
	sum_update(c, line);
}

static void
act_step(struct fal_coord *c, const struct fal_act *a)
{
	struct coord_versions *v = &c->versions;
	struct coord_evaluation *e = &c->evaluation;
	/* All shards must use the same float as the rate. */
	struct coord_pending_line line = {
		.act = *a,
		.version = v->newest + 1,
		.lr = (float)fal_schedule_lr(&c->conf.schedule, a->clock),
		.clocks_over = a->over,
		.has_snapshot = c->snapshot.is_wanted && coord_can_snapshot(c)
	};
	take_collected(c, &line);
	c->snapshot.is_wanted &= !line.has_snapshot;
	v->newest_is_withheld = a->ahead;
	v->oldest_announced = v->oldest;
	if (v->newest - v->oldest + 1 >= v->retained)
		v->oldest = v->newest + 2 - v->retained;
	v->newest = line.version;
	struct fal_shard_order o = { .kind = FAL_ORDER_STEP,
				     .version = line.version,
				     .versions = coord_versions_to_retain(c, v->newest),
				     .below = v->oldest,
				     .lr = line.lr,
				     .divisor = a->divisor,
				     .weight = a->weight,
				     .momentum = a->momentum,
				     .mark = line.has_snapshot };
	if (line.has_gradients && a->divisor > 0) {
		const double samples = (double)line.samples;
		o.clipped = c->conf.optim.clip > 0;
		o.slot = find_pusher(c, &line);
		if (samples != a->divisor) /* gradients of a part of a clock */
			o.part = (struct fal_optim_part){ samples / a->divisor,
							  a->clock_part };
		o.divisor = samples;
	}
	if (!a->ahead) {
		c->figures.loss = line.loss;
		c->figures.metrics.clock = line.metrics;
	}
	if (c->conf.test_samples > 0 && line.clocks_over >= e->pin.next_clock &&
	    e->next_version <= v->published)
		e->next_version = line.version;
	/* Is the version the last one?  If clocks end in order, each version ends one
	 * clock, even if some worker has run ahead; else more versions may follow. */
	const bool is_last = c->control.clocks_end_out_of_order
				     ? fal_sched_next_clock(c->sched) >= c->clocks
				     : a->clock + 1 >= c->clocks;
	/* Each version that the job may leave has a hash. */
	o.hash = line.version % c->conf.hashes == 0 || line.has_snapshot ||
		 line.version == e->next_version || is_last;
	pending_append(c, &line);
	coord_command_shards(c, &o);
}

/* Sends a grant of tasks.  With `cid` the tasks are claimed ahead; then also sends the
 * ticket of the contribution. */
static void
act_grant(struct fal_coord *c, struct coord_peer *p, const struct fal_act *a)
{
	struct coord_rounds *rounds = &c->rounds;
	const uint32_t to = p != NULL ? p->id : 0;
	struct fal_msg m = { .type = FAL_MSG_GRANT };
	struct fal_round_info r;
	struct fal_ticket t;
	if (!fal_sched_round(c->sched, a->round, &r))
		return;
	/* In a mixed round a helper computes on the version that the helper has,
	 * whichever that is. */
	const uint64_t version = a->kind == FAL_ACT_CHECK ? a->version
				 : r.mixed && p != NULL   ? p->announced.next - 1
				 : a->late                ? r.late_version
							  : r.version;
	const uint64_t exponents = r.mixed ? version : r.version;
	if (a->kind == FAL_ACT_GRANT && r.mixed) {
		FAL_XGROW(rounds->granted, rounds->granted_cap, rounds->n_granted + 1);
		rounds->granted[rounds->n_granted++] =
			(struct fal_granted_on){ .round = a->round,
						 .version = version,
						 .worker = a->worker,
						 .first = a->first,
						 .count = a->count };
	}
	if (p != NULL)
		repeat_version(c, p, exponents);
	if (p != NULL && version != exponents)
		repeat_version(c, p, version);
	const bool has_ticket =
		a->cid.seq != 0 && coord_make_ticket(c, a->round, a->cid, &t);
	m.grant.round = a->round;
	m.grant.clock = r.clock;
	m.grant.version = version;
	m.grant.exponents = exponents;
	m.grant.first = a->first;
	m.grant.count = a->count;
	m.grant.fills_worker = a->fills.worker;
	m.grant.fills_seq = a->fills.seq;
	m.grant.seq = a->cid.seq;
	m.grant.kind = a->kind == FAL_ACT_CHECK ? FAL_KIND_CHECK
		       : r.delta                ? FAL_KIND_DELTA
						: FAL_KIND_GRAD;
	_Static_assert((int)FAL_START_VERSION == (int)FAL_BASE_VERSION &&
			       (int)FAL_START_LOCAL == (int)FAL_BASE_LOCAL &&
			       (int)FAL_START_REBASE == (int)FAL_BASE_REBASE,
		       "a GRANT names the start of the scheduler");
	m.grant.base = (uint8_t)r.base;
	m.grant.since = r.since;
	m.grant.from = r.first;
	m.grant.of = has_ticket ? t.tasks : r.tasks;
	m.grant.steps = r.steps;
	m.grant.lr = (float)fal_schedule_lr(&c->conf.schedule, r.clock);
	coord_send(c, to, &m);
	/* If there is no ticket any more, a fence or the end of the round is under way to
	 * the worker. */
	struct fal_msg ticket = { .type = FAL_MSG_TICKET };
	if (!has_ticket || a->more)
		return;
	fal_ticket_put(&c->conf.tickets, to, &t, &ticket.ticket);
	coord_send(c, to, &ticket);
}

/* Asks the worker how the worker spent its time; the `clock` line waits for the
 * answer. */
static void
act_account(struct fal_coord *c, double now, struct coord_peer *p,
	    const struct fal_act *a)
{
	struct fal_msg m = { .type = FAL_MSG_ACCOUNT };
	if (p == NULL || p->state != PEER_READY)
		return;
	if (p->lines.n_pending == CLOCK_LINES_MAX) /* the worker does not answer */
		coord_write_clock_lines(c, now, p, CLOCK_LINES_MAX - 1);
	struct coord_clock_line *line = &p->lines.pending[p->lines.n_pending];
	*line = (struct coord_clock_line){ .round = a->round,
					   .clock = a->clock,
					   .own = a->own,
					   .rx = p->rx,
					   .tx = p->tx,
					   .work = a->work };
	if (fal_sched_info(c->sched, a->worker, &line->info))
		p->lines.n_pending++;
	m.account.mark = a->round;
	coord_send(c, p->id, &m);
}

/* The worker becomes a suspect, or stops being one; or workers of its key get no work.
 * The trace has no line for a key that gets no work: the `suspect` and `back` lines
 * suffice. */
static void
act_report_suspect(struct fal_coord *c, double now, const struct coord_peer *p,
		   const struct fal_act *a)
{
	struct fal_coord_suspect late = { .why = a->why,
					  .owes = a->owes,
					  .seconds = a->seconds };
	if (p == NULL || p->state != PEER_READY)
		return;
	if (a->kind == FAL_ACT_BARRED)
		late.key = coord_key(c, p->key)->record.name;
	else if (a->owes != NULL)
		coord_trace_event(c, now, FAL_EV_SUSPECT,
				  &(struct fal_ev_suspect){ p->name, p->worker, a->owes,
							    a->why, a->seconds });
	else
		coord_trace_event(c, now, FAL_EV_BACK,
				  &(struct fal_ev_back){ p->name, p->worker, a->why,
							 a->seconds });
	COORD_CALL(c, late, p->id, p->name, &late);
}

static void
act_trace_nonfinite(struct fal_coord *c, double now, const struct fal_act *a)
{
	const struct fal_grid *g = &c->conf.grid;
	const uint64_t sample = a->clock % fal_grid_epoch_clocks(g) * g->batch +
				fal_grid_samples_before(g, a->clock, a->first);
	coord_trace_event(c, now, FAL_EV_NONFINITE,
			  &(struct fal_ev_nonfinite){ a->round, a->clock, a->first,
						      coord_worker(c, a->worker)->name,
						      a->worker, sample });
}

/* Tells the shards to count a skipped task as empty. */
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
	const struct fal_coord_counted_claim none = { .round = a->round,
						      .task = a->first,
						      .nonfinite = true };
	if (c->is_external) {
		COORD_CALL(c, claimed, &none);
	}
	coord_command_shards(c, &o);
}

/* Announces the newest version of a branch to the worker; or all versions, to the worker
 * or, with worker 0, to all workers. */
static void
act_announce(struct fal_coord *c, double now, struct coord_peer *p,
	     const struct fal_act *a)
{
	if (a->version != 0) {
		if (p == NULL || p->state != PEER_READY)
			return;
		p->announced.is_on_branch = true;
		coord_announce_version(c, p, a->version, false);
	} else if (a->worker != 0) {
		if (p != NULL)
			announce_versions(c, p);
	} else {
		c->versions.newest_is_withheld = false;
		for (uint32_t i = 0; i < c->sessions.peers; i++)
			announce_versions(c, &c->sessions.peer[i]);
		publish_updates(c, now);
	}
}

static void
run_action(struct fal_coord *c, double now, const struct fal_act *a)
{
	struct coord_peer *p = coord_peer_of_worker(c, a->worker);
	const uint32_t to = p != NULL ? p->id : 0;
	struct fal_msg m = { 0 };
	switch (a->kind) {
	case FAL_ACT_BRANCH:
		coord_command_shards(c,
				     &(struct fal_shard_order){ .kind = FAL_ORDER_BRANCH,
								.version = a->version });
		break;
	case FAL_ACT_OPEN:
		act_open_round(c, a);
		break;
	case FAL_ACT_END:
		act_end_round(c, now, a);
		break;
	case FAL_ACT_PUSH:
		act_merge_branch(c, a);
		break;
	case FAL_ACT_STEP:
		act_step(c, a);
		break;
	case FAL_ACT_MODEL:
		act_announce(c, now, p, a);
		break;
	case FAL_ACT_ACCOUNT:
		act_account(c, now, p, a);
		break;
	case FAL_ACT_GRANT:
	case FAL_ACT_CHECK:
		act_grant(c, p, a);
		break;
	case FAL_ACT_REVOKE:
	case FAL_ACT_UNCHECK:
		m.type = FAL_MSG_REVOKE;
		m.revoke.round = a->round;
		m.revoke.first = a->first;
		m.revoke.count = a->count;
		m.revoke.check = a->kind == FAL_ACT_UNCHECK;
		coord_send(c, to, &m);
		break;
	case FAL_ACT_LANES:
		m.type = FAL_MSG_LANES;
		m.lanes.lanes = a->count;
		coord_send(c, to, &m);
		break;
	case FAL_ACT_FENCE: /* nothing more of the contribution counts */
		coord_command_shards(c,
				     &(struct fal_shard_order){ .kind = FAL_ORDER_FENCE,
								.round = a->round,
								.id = a->cid,
								.fills = a->fills });
		m.type = FAL_MSG_FENCE;
		m.fence.round = a->round;
		m.fence.seq = a->cid.seq;
		coord_send(c, to, &m);
		break;
	case FAL_ACT_EVAL:
		m.type = FAL_MSG_EVAL;
		m.eval.version = c->evaluation.pin.version;
		m.eval.first = a->first;
		m.eval.count = a->count;
		coord_send(c, to, &m);
		break;
	case FAL_ACT_PING:
		coord_send_ping(c, now, to);
		break;
	case FAL_ACT_CHARGE:
		coord_charge_worker(c, now, a->worker, a->why);
		break;
	case FAL_ACT_SUSPECT:
	case FAL_ACT_CLEARED:
	case FAL_ACT_BARRED:
		act_report_suspect(c, now, p, a);
		break;
	case FAL_ACT_EVICT:
		coord_end_session(c, now, to, FAL_MSG_REFUSE, a->why);
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

void
coord_run_actions(struct fal_coord *c, double now)
{
	struct coord_sessions *s = &c->sessions;
	struct fal_act a;
	handle_pending_reports(c, now);
	while (c->err == 0 && fal_sched_next_action(c->sched, &a)) {
		run_action(c, now, &a);
		handle_pending_reports(c, now);
	}
	if (c->err < 0)
		return;
	/* The shards forget the momentum of workers that left and have no update to come;
	 * during a move a shard's state does not change. */
	if (c->placement.move.state != MOVE_RUNNING) {
		for (uint32_t i = 0; i < s->leavers; i++)
			coord_command_shards(c, &(struct fal_shard_order){
							.kind = FAL_ORDER_FORGET,
							.slot = s->leaver[i] });
		s->leavers = 0;
	}
	if (c->err == 0)
		write_pending_lines(c, now);
}
