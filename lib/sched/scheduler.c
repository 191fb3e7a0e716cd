/* Events in, actions out: the workers that come, work, speak and leave, what follows
 * every event, and the work that another scheduler has given out. */
#include "sched/scheme.h"

#include "base/branch.h"
#include "base/mem.h"
#include "base/sorted.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- workers -------------------------------------------------------------- */

static const struct fal_scheme *const schemes[FAL_SCHEMES] = {
	[FAL_BSP] = &fal_scheme_bsp,         [FAL_ASP] = &fal_scheme_asp,
	[FAL_SSP] = &fal_scheme_ssp,         [FAL_EPSP] = &fal_scheme_epsp,
	[FAL_FLEXRR] = &fal_scheme_flexrr,   [FAL_SYNCOPT] = &fal_scheme_syncopt,
	[FAL_CONSGD] = &fal_scheme_consgd,   [FAL_DYNSGD] = &fal_scheme_dynsgd,
	[FAL_WBSP] = &fal_scheme_wbsp,       [FAL_GROUPS] = &fal_scheme_groups,
	[FAL_RENNALA] = &fal_scheme_rennala, [FAL_RINGMASTER] = &fal_scheme_ringmaster,
};

/* Slots stand in order of their ids, mostly without gaps. */
struct fal_worker *
fal_worker_find(const struct fal_sched *s, uint32_t id)
{
	size_t at = s->workers > 0 ? id - s->worker[0].id : 0;
	if (at >= s->workers || s->worker[at].id != id)
		at = fal_sorted_place(s->worker, s->workers, sizeof(*s->worker), id);
	if (at == s->workers || s->worker[at].id != id || s->worker[at].gone)
		return NULL;
	return &s->worker[at];
}

bool
fal_sched_staffed(const struct fal_sched *s)
{
	return s->active > 0;
}

void
fal_worker_recount(struct fal_sched *s, struct fal_worker *w, double now)
{
	bool active = fal_worker_active(w);
	uint32_t members = w->team->members - w->counted + active;
	s->active = s->active - w->counted + active;
	w->counted = active;
	fal_team_changed(s, w, members, now);
	fal_worker_refresh(s, w, now);
}

/* If all workers are one team, each has the versions before a round begins. */
static void
send_ahead(struct fal_sched *s, struct fal_worker *w)
{
	struct fal_act model = { .kind = FAL_ACT_MODEL, .worker = w->id };
	if (!s->is.shared || w->version == s->version)
		return;
	w->version = s->version;
	fal_act_emit(s, model);
}

void
fal_worker_set_lanes(struct fal_sched *s, struct fal_worker *w, uint32_t lanes)
{
	w->lanes = lanes;
	w->lanes_held = 0;
	fal_act_emit(s, (struct fal_act){
			    .kind = FAL_ACT_LANES, .worker = w->id, .count = lanes });
}

/* Applies the policy's settings for the worker. */
static void
lay_down(struct fal_sched *s, struct fal_worker *w, double now)
{
	const struct fal_policy_worker *p = fal_policy_find(&s->policy, w->name);
	uint32_t least = p != NULL && p->lanes_min > 0 ? p->lanes_min : w->own_min;
	uint32_t most = p != NULL && p->lanes_max > 0 ? p->lanes_max : w->own_max;
	const char *site = p != NULL ? p->site : "";
	bool excluded = p != NULL && p->excluded;
	w->weight = p != NULL ? p->share : -1;
	w->lanes_max = most < w->own_max ? most : w->own_max;
	w->lanes_min = least < w->lanes_max ? least : w->lanes_max;
	uint32_t lanes = w->lanes < w->lanes_min ? w->lanes_min : w->lanes;
	lanes = lanes > w->lanes_max ? w->lanes_max : lanes;
	if (lanes != w->lanes)
		fal_worker_set_lanes(s, w, lanes);
	const bool moved = strcmp(w->site, site) != 0;
	snprintf(w->site, sizeof(w->site), "%s", site);
	if (excluded == w->excluded) {
		if (moved && w->team != NULL && s->scheme->changed != NULL)
			s->scheme->changed(s, now);
		return;
	}
	w->excluded = excluded;
	if (excluded)
		fal_worker_strip(s, w, true, now);
	if (w->team != NULL)
		fal_worker_recount(s, w, now);
}

int
fal_sched_set_policy(struct fal_sched *s, double now, const struct fal_policy *p)
{
	bool other = s->scheme == NULL || !fal_rule_eq(&p->rule, &s->policy.rule);
	if (other && s->scheme != NULL && !fal_sched_quiet(s))
		return FAL_ESTATE;
	const struct fal_policy copy = fal_policy_copy(p);
	fal_policy_free(&s->policy);
	s->policy = copy;
	if (other && s->scheme != NULL)
		fal_teams_free(s);
	s->scheme = schemes[p->rule.scheme];
	s->is = fal_rule_traits(&p->rule);
	s->fixed_shares = false;
	for (size_t i = 0; i < p->workers; i++)
		s->fixed_shares |= p->worker[i].share >= 0;
	if (other)
		fal_teams_form(s);
	for (uint32_t i = 0; i < s->workers && other; i++)
		if (!s->worker[i].gone)
			send_ahead(s, &s->worker[i]);
	for (uint32_t i = 0; i < s->workers; i++)
		if (!s->worker[i].gone)
			lay_down(s, &s->worker[i], now);
	fal_teams_wake(s);
	fal_sched_settle(s, now);
	return FAL_OK;
}

/* The slots of workers that left are free for others. */
static void
drop_gone(struct fal_sched *s, double now)
{
	uint32_t kept = 0;
	for (size_t i = 0; i < FAL_HEAPS_OF_WORKERS; i++)
		fal_heap_clear(&s->of_workers[i]);
	for (uint32_t i = 0; i < s->workers; i++) {
		if (s->worker[i].gone)
			continue;
		if (kept < i)
			s->worker[kept] = s->worker[i];
		for (struct fal_node *n = s->worker[kept].head; n != NULL; n = n->next)
			n->slot = kept;
		kept++;
	}
	s->workers = kept;
	s->gone = 0;
	fal_teams_compact(s);
	for (uint32_t i = 0; i < kept; i++)
		fal_worker_refresh(s, &s->worker[i], now);
}

static void
make_room(struct fal_sched *s, double now)
{
	enum { SPARE = 16 }; /* so many that left may stay */
	if (s->gone > SPARE + s->workers / 2)
		drop_gone(s, now);
	size_t n = (size_t)s->workers + 1;
	FAL_XGROW(s->worker, s->worker_cap, n);
	FAL_XGROW(s->scratch, s->scratch_cap, n);
	for (size_t i = 0; i < FAL_HEAPS_OF_WORKERS; i++)
		fal_heap_reserve(&s->of_workers[i], n);
}

int
fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j)
{
	if (j->lanes_min < 1 || j->lanes_max < j->lanes_min || j->cores < 1 ||
	    j->lanes_max > FAL_LANES_MAX || j->id <= s->last_id || j->id == FAL_EVALUATED)
		return FAL_EINVAL;
	make_room(s, now);
	uint32_t lanes = s->conf.lanes_start > 0 ? s->conf.lanes_start : j->lanes_max;
	lanes = lanes < j->lanes_min ? j->lanes_min : lanes;
	lanes = lanes > j->lanes_max ? j->lanes_max : lanes;
	struct fal_worker *w = &s->worker[s->workers++];
	*w = (struct fal_worker){
		.id = j->id,
		.key = j->key != 0 ? j->key : FAL_OWN_KEY | j->id,
		.numerics = j->numerics,
		.version = UINT64_MAX,
		.lanes = lanes,
		.own_min = j->lanes_min,
		.own_max = j->lanes_max,
		.cores = j->cores,
		.pace = fal_xcalloc((size_t)j->lanes_max + 1, sizeof(*w->pace)),
		.probe_s = j->task_s,
		.fixed = j->fixed,
		.rtt = j->rtt,
		.pong = j->rtt,
		.stands_by = j->stands_by,
		.group = j->group,
		.empty = now,
		.base = now,
		.heard = now,
		.asked = -1,
		.steps_at = -1,
	};
	snprintf(w->name, sizeof(w->name), "%s", j->name != NULL ? j->name : "");
	w->again = fal_key_barred_until(s, w->key, now);
	w->suspected = w->again > now;
	w->suspected_at = w->suspected ? now : 0;
	s->last_id = w->id;
	fal_worker_restore(w, &j->was);
	if (!isnan(w->fixed))
		fal_typical_fixed(s, w->fixed);
	s->unknown++;
	if (j->task_s > 0 && (s->probe_s <= 0 || j->task_s < s->probe_s))
		s->probe_s = j->task_s;
	if (s->typical_known.probe_s <= 0)
		s->typical_known.probe_s = s->probe_s;
	fal_worker_set_lanes(s, w, lanes);
	lay_down(s, w, now);
	fal_team_assign(s, w);
	send_ahead(s, w);
	fal_worker_recount(s, w, now);
	fal_sched_settle(s, now);
	return FAL_OK;
}

int
fal_sched_capacity(struct fal_sched *s, double now, uint32_t id, uint32_t lanes,
		   double task_s)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return FAL_OK;
	if (lanes < 1 || lanes > FAL_LANES_MAX)
		return FAL_EINVAL;
	/* A lane stays as fast as it is. */
	const uint32_t at = w->pace[w->lanes].nearest;
	const struct fal_history was = { .lanes = lanes,
					 .task_s = at > 0 ? w->pace[at].task_s : 0,
					 .fixed = -1,
					 .eval_s = w->eval_s,
					 .push_s = w->push.s };
	free(w->pace);
	w->pace = fal_xcalloc((size_t)lanes + 1, sizeof(*w->pace));
	w->own_min = w->own_max = w->cores = lanes;
	fal_worker_restore(w, &was);
	if (task_s > 0)
		w->probe_s = task_s;
	lay_down(s, w, now);
	fal_worker_recount(s, w, now);
	fal_sched_settle(s, now);
	return FAL_OK;
}

void
fal_sched_leave(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return;
	fal_deadline_note_leave(s, w, now);
	w->gone = true;
	w->waits = false;
	s->gone++;
	s->unknown -= w->turn[FAL_TURN_TASK].n == 0;
	fal_worker_strip(s, w, false, now);
	fal_worker_recount(s, w, now);
	free(w->pace);
	w->pace = NULL;
	fal_intervals_free(&w->seqs);
	fal_sched_settle(s, now);
}

void
fal_sched_stand_by(struct fal_sched *s, double now, uint32_t id, bool stands_by)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL || w->stands_by == stands_by)
		return;
	w->stands_by = stands_by;
	if (stands_by)
		fal_worker_strip(s, w, true, now);
	fal_worker_recount(s, w, now);
	fal_sched_settle(s, now);
}

bool
fal_sched_info(const struct fal_sched *s, uint32_t id, struct fal_worker_info *out)
{
	const struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return false;
	*out = (struct fal_worker_info){
		.id = id,
		.lanes = w->lanes,
		.lanes_min = w->lanes_min,
		.lanes_max = w->lanes_max,
		.task_s = w->recent.n > 0 || w->probe_s > 0 ? fal_task_s(s, w, w->lanes)
							    : 0,
		.finish = w->finish,
		.rtt = w->rtt,
		.suspected = w->suspected,
		.able = fal_worker_able(w),
	};
	return true;
}

bool
fal_sched_history(const struct fal_sched *s, uint32_t id, struct fal_history *out)
{
	const struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL || w->pace[w->lanes].nearest == 0)
		return false;
	const uint32_t lanes = w->pace[w->lanes].nearest;
	*out = (struct fal_history){ .lanes = lanes,
				     .task_s = w->pace[lanes].task_s,
				     .fixed = isnan(w->fixed) ? -1 : w->fixed,
				     .eval_s = w->eval_s,
				     .push_s = w->push.s };
	return true;
}

/* ---- what follows every event --------------------------------------------- */

struct fal_sched *
fal_sched_new(const struct fal_sched_conf *conf)
{
	struct fal_sched *s = fal_xcalloc(1, sizeof(*s));
	s->conf = *conf;
	s->conf.policy = NULL; /* the copy is s->policy */
	s->patience = 1;
	s->rng = fal_rng_init(conf->entropy, FAL_RNG_DRAW, 0);
	s->grid = conf->grid;
	s->grid.parts = s->grid.parts > 0 ? s->grid.parts : 1;
	s->full = fal_grid_full(&s->grid);
	s->typical_fixed = (double)NAN;
	s->manned = fal_xcalloc(s->grid.parts, sizeof(*s->manned));
	fal_pool_init(&s->pool, &s->grid);
	fal_sched_set_policy(s, 0, conf->policy);
	s->version = s->published = conf->from.version;
	s->first = conf->from.first;
	s->next_round = conf->from.round;
	fal_pool_skip(&s->pool, conf->from.clock);
	return s;
}

void
fal_sched_free(struct fal_sched *s)
{
	if (s == NULL)
		return;
	fal_teams_free(s);
	free(s->team);
	free(s->manned);
	fal_sched_forget(s);
	for (uint32_t i = 0; i < s->workers; i++) {
		while (s->worker[i].head != NULL)
			fal_node_detach(s, s->worker[i].head);
		free(s->worker[i].pace);
		fal_intervals_free(&s->worker[i].seqs);
	}
	free(s->worker);
	for (struct fal_node *n; (n = s->spare_node) != NULL;) {
		s->spare_node = n->next;
		free(n);
	}
	for (struct fal_round *r; (r = s->oldest) != NULL;) {
		s->oldest = r->newer;
		fal_round_free(r);
	}
	for (struct fal_round *r; (r = s->spare) != NULL;) {
		s->spare = r->next;
		fal_round_free(r);
	}
	free(s->known);
	fal_pool_free(&s->pool);
	fal_policy_free(&s->policy);
	fal_heap_free(&s->behind);
	fal_heap_free(&s->eager);
	for (size_t i = 0; i < FAL_HEAPS_OF_WORKERS; i++)
		fal_heap_free(&s->of_workers[i]);
	free(s->scratch);
	free(s->retry);
	free(s->cost);
	free(s->skip);
	free(s->eval_task);
	free(s->eval_free);
	fal_grant_history_free(&s->eval_given);
	free(s->verify);
	free(s->act);
	free(s);
}

/* When no round is open, nothing more will come to what was collected. */
static void
flush(struct fal_sched *s, double now)
{
	if (s->merged == 0)
		return;
	if (s->scheme->flush != NULL) {
		s->scheme->flush(s, now);
		return;
	}
	/* A clock that is collected as a whole waits for its last task. */
	if (s->rounds > 0 || (s->is.waves && fal_pool_first(&s->pool) == s->merged_clock))
		return;
	fal_teams_wake(s);
	fal_pending_apply(s, s->is.waves ? (double)s->merged_samples : s->merged_of);
}

/* Rounds begin, and others in the place of what had to be applied first. */
static void
begin_rounds(struct fal_sched *s, double now)
{
	uint64_t version;
	do {
		version = s->version;
		fal_teams_begin_rounds(s, now);
		flush(s, now);
	} while (s->version != version);
}

/* Free tasks find holders, those of the oldest round first. */
static void
plan_rounds(struct fal_sched *s, double now)
{
	struct fal_round *r = s->needy, *next;
	for (; r != NULL && s->unplanned > 0; r = next) {
		next = r->newer;
		fal_round_plan(s, r, now);
		if (s->eager.n > 0) { /* one was abandoned */
			begin_rounds(s, now);
			next = s->needy; /* from the first one on */
		}
	}
	if (s->unplanned == 0)
		s->needy = NULL;
}

/* Rounds that waited for reports alone, and have them. */
static void
end_reported(struct fal_sched *s, double now)
{
	struct fal_round *r = s->oldest, *next;
	for (; r != NULL && s->unreported > 0; r = next) {
		next = r->newer;
		if (!r->unreported || r->ledger.due > 0)
			continue;
		r->unreported = false;
		r->complete = true;
		s->unreported--;
		if (s->conf.brought) { /* the sum is whoever's has brought the tasks */
			fal_round_end(s, r, (struct fal_act){ .fate = FAL_FATE_GIVE },
				      now);
			fal_workers_account(s, r);
		} else {
			s->scheme->complete(s, r, now);
		}
		next = s->oldest; /* it may have ended others */
	}
}

void
fal_sched_settle(struct fal_sched *s, double now)
{
	end_reported(s, now);
	fal_rounds_commit_early(s, now);
	fal_typical_update(s);
	do {
		fal_probation_advance(s, now);
		/* Rounds begin, of workers that may do the retries in them. */
		bool changed;
		do {
			changed = fal_retries_review(s, now);
			begin_rounds(s, now);
		} while (changed);
		plan_rounds(s, now);
		if (s->rounds > 0 && s->scheme->rebalance != NULL)
			s->scheme->rebalance(s, now);
	} while (s->eager.n > 0); /* a round was abandoned */
	fal_rounds_commit_early(s, now); /* of what was granted, too */
	fal_eval_grant_idle(s, now);
}

void
fal_sched_allow(struct fal_sched *s, double now, uint64_t clock)
{
	if (s->allowed == clock)
		return;
	s->allowed = clock;
	fal_teams_wake(s);
	fal_sched_settle(s, now);
}

void
fal_sched_hold(struct fal_sched *s, double now, bool hold)
{
	s->held = hold;
	fal_teams_wake(s);
	fal_sched_settle(s, now);
}

bool
fal_sched_is_drained(const struct fal_sched *s)
{
	return s->rounds == 0 && s->merged == 0 && !(s->is.waves && s->pool.backs > 0);
}

bool
fal_sched_quiet(const struct fal_sched *s)
{
	return fal_sched_is_drained(s) && s->published == s->version;
}

void
fal_sched_published(struct fal_sched *s, double now, uint64_t version)
{
	s->published = version;
	s->published_at = now;
	while (fal_heap_least(&s->awaits) <= (double)version)
		fal_worker_refresh(s, &s->worker[fal_heap_top(&s->awaits)], now);
}

const struct fal_policy *
fal_sched_policy(const struct fal_sched *s)
{
	return &s->policy;
}

uint32_t
fal_sched_versions(const struct fal_sched *s)
{
	return s->is.delay + 1;
}

uint64_t
fal_sched_oldest(const struct fal_sched *s, uint32_t id)
{
	const struct fal_worker *w = fal_worker_find(s, id);
	bool on_line = w != NULL && w->team != NULL && w->team->line != 0 &&
		       w->version != UINT64_MAX && fal_branch_of(w->version) != 0;
	uint64_t oldest = on_line ? w->team->line : s->version;
	const struct fal_round *r = w != NULL && w->team != NULL ? w->team->rounds : NULL;
	for (; r != NULL; r = r->next)
		if (!r->passed)
			oldest = r->version < oldest ? r->version : oldest;
	return oldest;
}

uint32_t
fal_sched_named(const struct fal_sched *s, uint32_t id, uint64_t *out, uint32_t cap)
{
	const struct fal_worker *w = fal_worker_find(s, id);
	const struct fal_round *r = w != NULL && w->team != NULL ? w->team->rounds : NULL;
	const bool on_line = r != NULL && w->team->line != 0;
	const uint64_t oldest = on_line ? 0 : fal_sched_oldest(s, id);
	uint32_t n = 0;
	for (; r != NULL; r = r->next) {
		/* Ordered to end, and somebody has to fill it: maybe who was granted a
		 * task of it when this version was no old one. */
		const bool filled = r->passed && r->ledger.claimed < r->ledger.tasks;
		if ((r->version >= oldest || filled) && ++n <= cap)
			out[n - 1] = r->version;
		if (r->late != FAL_NONE && ++n <= cap)
			out[n - 1] = r->after;
	}
	return n;
}

uint64_t
fal_sched_over(const struct fal_sched *s)
{
	return s->pool.over;
}

uint64_t
fal_sched_front(const struct fal_sched *s)
{
	uint64_t next = fal_pool_first(&s->pool);
	return next > s->pool.over ? next : s->pool.over;
}

bool
fal_sched_at(const struct fal_sched *s, uint64_t version, uint64_t clock,
	     struct fal_sched_from *out)
{
	const uint64_t front = fal_pool_first(&s->pool);
	/* Clocks that another policy has left may be over in another order. */
	if (!s->is.shared || clock > front || clock < s->whole)
		return false;
	/* Each round is a clock. */
	*out = (struct fal_sched_from){ .clock = clock,
					.version = version,
					.first = s->first,
					.round = s->next_round - (front - clock) };
	return true;
}

bool
fal_sched_done(const struct fal_sched *s)
{
	return fal_sched_quiet(s) && s->pool.over == s->pool.clocks;
}

void
fal_sched_complete(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || r->unreported)
		return;
	if (fal_commits_early(s)) {
		r->complete = true;
		fal_sched_settle(s, now);
		return;
	}
	/* A sum may be complete sooner than the reports of its tasks. */
	r->unreported = true;
	s->unreported++;
	fal_sched_settle(s, now);
}

bool
fal_sched_next(struct fal_sched *s, struct fal_act *out)
{
	if (s->act_next == s->acts) {
		s->act_next = s->acts = 0;
		return false;
	}
	*out = s->act[s->act_next++];
	return true;
}

/* ---- claims, and what of them has come ------------------------------------ */

bool
fal_sched_steps(const struct fal_sched *s, uint32_t id)
{
	const struct fal_worker *w = fal_worker_find(s, id);
	const struct fal_round *r = w != NULL ? w->team->rounds : NULL;
	while (r != NULL && !(r->delta && r->owner == id))
		r = r->next;
	return r != NULL;
}

bool
fal_sched_round(const struct fal_sched *s, uint64_t round, struct fal_round_info *out)
{
	const struct fal_round *r = fal_round_known(s, round);
	if (r == NULL)
		return false;
	*out = (struct fal_round_info){ .round = r->id,
					.clock = r->clock,
					.version = r->version,
					.late = r->late,
					.after = r->after,
					.first = r->ledger.first,
					.tasks = r->ledger.tasks,
					.samples = fal_round_counted_samples(s, r),
					.delta = r->delta,
					.mixed = r->mixed,
					.armed = r->armed && !r->ended,
					.passed = r->passed,
					.owner = r->owner,
					.group = r->group,
					.taken = r->local > 0 ? r->taken : r->version,
					.local = r->local,
					.base = r->base,
					.since = r->since,
					.steps = r->steps,
					.stale_clocks = r->stale_clocks,
					.stale_updates = r->stale_updates,
					.ledger = &r->ledger };
	return true;
}

/* Do all shards know that what the claim fills is fenced?  Else nobody was told to fill
 * it. */
static bool
may_fill(const struct fal_ledger *l, struct fal_cid fills)
{
	const uint32_t ci = fills.worker != 0 ? fal_ledger_find(l, fills) : FAL_NONE;
	return fills.worker == 0 || (ci != FAL_NONE && l->contrib[ci].everywhere);
}

/* Notes that the worker has run the task, whether its result counts or not. */
static void
note_run(struct fal_sched *s, double now, const struct fal_round *r, struct fal_worker *w,
	 const struct fal_claim_in *c)
{
	const struct fal_load load = fal_load_of_task(r, c->task);
	fal_work_add(&w->work, c->task_s, (uint32_t)load.samples, fal_load_size(s, w, load));
	/* Not what it may have had long ago. */
	if (w->fresh && r->id >= w->given_of && w->pulls_from <= now)
		fal_window_min_add(&w->pull, fmax(now - w->pulls_from - c->task_s, 1e-6));
	w->fresh = false;
}

/* Counts the result of the task, for contribution `ci`. */
static void
has_result(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	   const struct fal_claim_in *c, uint32_t ci)
{
	w->work.done++;
	w->work.samples += fal_task_samples(r, c->task);
	if (!w->retried)
		w->retries = 0;
	r->ledger.contrib[ci].claimed = now;
	struct fal_claim *is = fal_ledger_claimed(&r->ledger, c->task);
	memcpy(is->hash, c->hash, sizeof(c->hash));
	is->version = c->version;
	if (c->verify)
		fal_verify_request(s, r, w, c, now);
	fal_round_notify_owner(s, r);
	fal_retry_clear(s, r, c->task);
}

/* A number is for one contribution of the whole session, as its name stands in the trace:
 * is it that of another round, or one too many with gaps between to be remembered? */
static bool
is_of_another(const struct fal_worker *w, const struct fal_round *r, struct fal_cid id)
{
	return (fal_intervals_has(&w->seqs, id.seq) || w->seqs.n == FAL_INTERVALS_MAX) &&
	       fal_ledger_find(&r->ledger, id) == FAL_NONE;
}

static int
claim_result(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	     const struct fal_claim_in *c)
{
	struct fal_cid id = { c->worker, c->seq };
	uint64_t twice;
	uint32_t ci;
	if (is_of_another(w, r, id))
		return FAL_ESTATE;
	int won = may_fill(&r->ledger, c->fills)
			  ? fal_ledger_claim(&r->ledger, id, c->fills, c->task, c->loss,
					     &ci)
			  : 0;
	if (won < 0)
		return won;
	note_run(s, now, r, w, c);
	if (won == 0) {
		w->work.lost++;
		fal_ledger_log(&r->ledger, FAL_ENTRY_LOST, w->id, 0, c->task);
		return 0;
	}
	const bool opened = r->ledger.contrib[ci].tasks == 1;
	w->owed += opened;
	if (opened &&
	    fal_intervals_add(&w->seqs, id.seq, (uint64_t)id.seq + 1, &twice) < 0)
		return FAL_ENOMEM;
	fal_task_drop_claimed(s, r, c->task, w);
	fal_task_withdraw(s, r, c->task, now);
	has_result(s, now, r, w, c, ci);
	return 1;
}

/* All blocks of the contribution are counted, and what they are made of is reported. */
static void
done(struct fal_sched *s, double now, struct fal_round *r, uint32_t ci,
     struct fal_worker *w)
{
	const struct fal_contrib *c = &r->ledger.contrib[ci];
	/* A contribution that goes out while it is made is under way before it is
	 * claimed: the rest then says nothing of the time that a push takes. */
	const double from = c->first > 0 ? fmin(c->first, c->claimed) : c->claimed;
	r->ledger.contrib[ci].state = FAL_CONTRIB_DONE;
	w->owed--;
	fal_turn_add(s, w, FAL_TURN_PUSH, now - fmax(from, fal_worker_relieved_at(w, r)));
	fal_probation_note_work(s, w, now);
	/* A worker pushes when it holds nothing more: since its last claim, or since a
	 * task was taken from it. */
	if (w->queued == 0 || s->rounds > 1)
		fal_window_min_add(&w->push,
				   fmax(now - fmax(c->claimed, w->empty), 1e-6));
	fal_worker_refresh(s, w, now);
}

/* A task that was claimed ahead has a result. */
static int
report(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
       const struct fal_claim_in *c)
{
	const uint32_t ci =
		fal_ledger_find(&r->ledger, (struct fal_cid){ c->worker, c->seq });
	if (ci == FAL_NONE || !fal_ledger_report(&r->ledger, ci, c->task, c->loss))
		return FAL_ESTATE;
	note_run(s, now, r, w, c);
	fal_task_drop(s, r, c->task, w);
	has_result(s, now, r, w, c, ci);
	if (r->ledger.contrib[ci].due == 0 && r->ledger.contrib[ci].whole)
		done(s, now, r, ci, w);
	return 1;
}

/* Is it a word about what was fenced since? */
static bool
is_fenced(const struct fal_round *r, const struct fal_claim_in *c)
{
	const uint32_t ci =
		fal_ledger_find(&r->ledger, (struct fal_cid){ c->worker, c->seq });
	return ci != FAL_NONE && r->ledger.contrib[ci].state == FAL_CONTRIB_FENCED;
}

/* A task without a result: where it was claimed ahead, nothing comes of the others that
 * were granted with it. */
static void
no_result(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	  uint32_t task)
{
	const struct fal_ltask *t = fal_ledger_task(&r->ledger, task);
	if (t->due && r->ledger.contrib[t->contrib].id.worker == w->id) {
		fal_contrib_fence(s, r, t->contrib);
		w->owed--;
	}
	fal_retry_nonfinite(s, now, r, w, task);
}

int
fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_in *c)
{
	struct fal_worker *w = fal_worker_find(s, c->worker);
	struct fal_round *r = fal_round_find(s, c->round);
	if (w == NULL)
		return 0;
	if (w->claims == w->given || (c->nonfinite && c->seq >= FAL_PRECLAIMED))
		return FAL_ESTATE;
	w->claims++;
	if (r == NULL)
		return c->round < s->next_round ? 0 : FAL_ESTATE;
	if (!fal_ledger_has(&r->ledger, c->task))
		return FAL_EINVAL;
	if (!fal_grant_history_has(&r->given, c->task - r->ledger.first, w->id))
		return FAL_ESTATE;
	const bool ahead = c->seq >= FAL_PRECLAIMED;
	if (ahead && is_fenced(r, c))
		return 0;
	const struct fal_node *n = fal_node_find(s, r, c->task, w);
	if (n != NULL && n->began >= 0 && !w->fresh)
		w->wait_s = now - n->began - c->task_s;
	if (n != NULL)
		fal_deadline_note_claim(s, w, n, now);
	if (c->task_s > 0)
		fal_worker_measure(s, w, c->task_s, fal_task_samples(r, c->task));
	w->base = now;
	int won = 0;
	if (c->nonfinite)
		no_result(s, now, r, w, c->task);
	else
		won = ahead ? report(s, now, r, w, c) : claim_result(s, now, r, w, c);
	if (won < 0)
		return won;
	fal_worker_refresh(s, w, now);
	fal_sched_settle(s, now);
	return won;
}

const struct fal_contrib *
fal_sched_contrib(const struct fal_sched *s, uint64_t round, struct fal_cid cid)
{
	const struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || fal_worker_find(s, cid.worker) == NULL)
		return NULL;
	uint32_t ci = fal_ledger_find(&r->ledger, cid);
	return ci != FAL_NONE ? &r->ledger.contrib[ci] : NULL;
}

int
fal_sched_seal(struct fal_sched *s, uint64_t round, struct fal_cid cid)
{
	struct fal_round *r = fal_round_find(s, round);
	const struct fal_contrib *c = fal_sched_contrib(s, round, cid);
	if (cid.seq >= FAL_PRECLAIMED)
		return FAL_ESTATE;
	if (c == NULL || c->state == FAL_CONTRIB_FENCED)
		return 0;
	int err = fal_ledger_seal(&r->ledger, (uint32_t)(c - r->ledger.contrib));
	return err < 0 ? err : 1;
}

struct fal_cid
fal_sched_fills(const struct fal_sched *s, uint64_t round, const struct fal_contrib *c)
{
	const struct fal_round *r = fal_round_find(s, round);
	return r != NULL && c->fills != FAL_NONE ? r->ledger.contrib[c->fills].id
						 : (struct fal_cid){ 0, 0 };
}

void
fal_sched_arrived(struct fal_sched *s, double now, uint64_t round, struct fal_cid cid,
		  uint32_t blocks, bool complete)
{
	struct fal_round *r = fal_round_find(s, round);
	const uint32_t ci = r != NULL ? fal_ledger_find(&r->ledger, cid) : FAL_NONE;
	if (ci == FAL_NONE)
		return;
	const struct fal_contrib *c = &r->ledger.contrib[ci];
	struct fal_worker *w = fal_worker_find(s, cid.worker);
	/* Blocks count, too, where they came before the fence. */
	r->ledger.contrib[ci].blocks += blocks;
	if (c->state != FAL_CONTRIB_OPEN || w == NULL)
		return;
	if (blocks > 0)
		r->ledger.contrib[ci].came = w->came = now;
	if (blocks > 0 && c->first == 0)
		r->ledger.contrib[ci].first = now;
	r->ledger.contrib[ci].whole |= complete;
	if (complete && c->due == 0)
		done(s, now, r, ci, w);
}

void
fal_sched_fenced(struct fal_sched *s, double now, uint64_t round, struct fal_cid cid)
{
	struct fal_round *r = fal_round_find(s, round);
	const uint32_t ci = r != NULL ? fal_ledger_find(&r->ledger, cid) : FAL_NONE;
	if (ci == FAL_NONE)
		return;
	struct fal_contrib *c = &r->ledger.contrib[ci];
	assert(c->state == FAL_CONTRIB_FENCED && !c->everywhere);
	c->everywhere = true;
	for (uint32_t i = c->head; i != FAL_NONE; i = r->ledger.claim[i].next) {
		const uint32_t task = r->ledger.claim[i].task;
		if (!fal_ledger_task(&r->ledger, task)->skipped)
			fal_task_release(s, r, task);
	}
	fal_sched_settle(s, now);
}

/* ---- signs of life, and time ---------------------------------------------- */

void
fal_sched_heard(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return;
	w->heard = now;
	if (!w->suspected)
		return;
	fal_worker_refresh(s, w, now);
	fal_sched_settle(s, now);
}

void
fal_sched_pong(struct fal_sched *s, double now, uint32_t id, double rtt, uint64_t steps)
{
	static const double rounding = 1e-6; /* of times that travel as whole ns */
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return;
	/* A shorter round trip is nearer the truth: the rest is waiting in somebody's
	 * queue.  A single long one tells of a worker that stood still, not of its link.
	 */
	const double longer = fmin(rtt, w->pong) - w->rtt;
	w->rtt = w->rtt > 0 ? fmin(rtt, w->rtt + 0.1 * longer) : rtt;
	w->pong = rtt;
	const double asked = now - rtt + rounding;
	if (fal_deadline_note_answer(s, w, asked, steps, now))
		fal_sched_settle(s, now);
}

void
fal_sched_charge(struct fal_sched *s, uint32_t id, const char *why)
{
	struct fal_worker *w = fal_worker_find(s, id);
	struct fal_act act = { .kind = FAL_ACT_CHARGE, .worker = id, .why = why };
	fal_act_emit(s, act);
	act.kind = FAL_ACT_EVICT;
	if (w != NULL && ++w->charges >= 2)
		fal_act_emit(s, act);
}

/* When the scheme has something to do, though nothing happens. */
static double
until(const struct fal_sched *s)
{
	return s->scheme->until != NULL ? s->scheme->until(s) : INFINITY;
}

/* Looks at all workers that owe something and are late. */
static void
review_late(struct fal_sched *s, double now)
{
	while (fal_heap_least(&s->due) <= now) {
		struct fal_worker *w = &s->worker[fal_heap_top(&s->due)];
		fal_deadline_review(s, w, now);
		w->looked = now;
		fal_worker_refresh(s, w, now);
	}
}

void
fal_sched_tick(struct fal_sched *s, double now)
{
	bool any = until(s) <= now;
	/* Whoever is settled with may be late by what is known only now. */
	while (any || fal_heap_least(&s->due) <= now) {
		any = false;
		review_late(s, now);
		fal_sched_settle(s, now);
	}
}

double
fal_sched_wake(const struct fal_sched *s)
{
	return fmin(until(s), fal_heap_least(&s->due));
}

/* ---- work of another scheduler -------------------------------------------- */

/* Work of another scheduler (design.md, D50): rounds begin when their tasks are brought,
 * and end when their sum is given; versions are told.  Nobody says which clocks are over:
 * as far as can be seen here, those before the clock that was brought.  A round is shared
 * as ever, and a worker that dies or is late is treated as ever. */

uint64_t
fal_sched_bring(struct fal_sched *s, double now, const struct fal_bring *b)
{
	assert(s->conf.brought && b->version <= s->version);
	fal_round_open_external(s, b, now);
	const uint64_t round = s->newest->id;
	/* Clocks may come back, of which somebody else had tasks. */
	uint64_t first = b->clock;
	for (const struct fal_round *r = s->oldest; r != NULL; r = r->newer)
		first = r->clock < first ? r->clock : first;
	fal_pool_skip(&s->pool, first);
	fal_sched_settle(s, now);
	return round;
}

void
fal_sched_unwanted(struct fal_sched *s, double now, uint64_t round)
{
	const struct fal_act end = { .fate = FAL_FATE_DROP,
				     .why = "it is not wanted any more" };
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL)
		return;
	fal_retry_clear_round(s, r); /* if they are brought again, it is another story */
	fal_round_end(s, r, end, now);
	fal_sched_settle(s, now);
}

bool
fal_sched_brought(const struct fal_sched *s, uint64_t *round)
{
	if (s->oldest != NULL)
		*round = s->oldest->id;
	return s->oldest != NULL;
}

void
fal_sched_newer(struct fal_sched *s, double now, uint64_t version)
{
	const struct fal_act model = { .kind = FAL_ACT_MODEL };
	assert(s->conf.brought && version >= s->version);
	s->version = version;
	for (uint32_t i = 0; i < s->workers; i++)
		if (!s->worker[i].gone)
			s->worker[i].version = version;
	fal_sched_published(s, now, version);
	fal_act_emit(s, model);
}
