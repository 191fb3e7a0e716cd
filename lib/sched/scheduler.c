/* The events of the scheduler: workers join, claim tasks, send messages and leave.  Also
 * the steps that follow every event, and work that another scheduler brings. */
#include "sched/scheme.h"

#include "base/branch.h"
#include "base/mem.h"
#include "base/oversubscription.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fal_scheme *const schemes[FAL_SCHEMES] = {
	[FAL_BSP] = &fal_scheme_bsp,         [FAL_ASP] = &fal_scheme_asp,
	[FAL_SSP] = &fal_scheme_ssp,         [FAL_EPSP] = &fal_scheme_epsp,
	[FAL_FLEXRR] = &fal_scheme_flexrr,   [FAL_SYNCOPT] = &fal_scheme_syncopt,
	[FAL_CONSGD] = &fal_scheme_consgd,   [FAL_DYNSGD] = &fal_scheme_dynsgd,
	[FAL_WBSP] = &fal_scheme_wbsp,       [FAL_GROUPS] = &fal_scheme_groups,
	[FAL_RENNALA] = &fal_scheme_rennala, [FAL_RINGMASTER] = &fal_scheme_ringmaster,
};

/* ---- steps that follow every event ---------------------------------------- */

/* Applies the pending update if no further round can join the update. */
static void
pending_flush(struct fal_sched *s, double now)
{
	if (s->pending.rounds == 0)
		return;
	if (s->scheme->flush != NULL) {
		s->scheme->flush(s, now);
		return;
	}
	/* With the trait `waves`, a clock waits for its last task. */
	if (s->rounds > 0 ||
	    (s->traits.waves && fal_task_pool_first(&s->pool) == s->pending.clock))
		return;
	fal_teams_wake(s);
	fal_pending_order_step(s, s->traits.waves ? (double)s->pending.samples
						  : s->pending.step_samples);
}

/* Begins all rounds that may begin.  Only workers that may do the retries of a round may
 * begin the round.  While a pending update has to be applied first, applies the update
 * and begins rounds again. */
static void
begin_rounds(struct fal_sched *s, double now)
{
	uint64_t version;
	bool changed;
	do {
		version = s->version;
		changed = fal_retries_review(s, now);
		fal_teams_begin_rounds(s, now);
		pending_flush(s, now);
	} while (changed || s->version != version || s->teams_awake.n > 0);
}

/* Grants the free tasks, those of the oldest round first. */
static void
plan_rounds(struct fal_sched *s, double now)
{
	struct fal_round *r = s->first_unplanned, *next;
	for (; r != NULL && s->unplanned > 0; r = next) {
		next = r->newer;
		fal_round_plan(s, r, now);
		if (s->teams_awake.n > 0) { /* a round was abandoned */
			begin_rounds(s, now);
			next = s->first_unplanned; /* start again at the oldest round */
		}
	}
	if (s->unplanned == 0)
		s->first_unplanned = NULL;
}

/* Completes the rounds that waited only for reports, and have these now. */
static void
rounds_complete_reported(struct fal_sched *s, double now)
{
	struct fal_round *r = s->oldest, *next;
	for (; r != NULL && s->unreported > 0; r = next) {
		next = r->newer;
		if (r->completion != FAL_ROUND_UNREPORTED || r->ledger.due > 0)
			continue;
		r->completion = FAL_ROUND_COMPLETE;
		s->unreported--;
		if (s->conf.is_external) { /* forward the sum to the other scheduler */
			fal_round_end(s, r, (struct fal_act){ .fate = FAL_FATE_FORWARD },
				      now);
			fal_workers_account(s, r);
		} else {
			s->scheme->round_complete(s, r, now);
		}
		next = s->oldest; /* the scheme may have ended other rounds */
	}
}

/* Takes the steps that follow every event. */
static void
sched_settle(struct fal_sched *s, double now)
{
	rounds_complete_reported(s, now);
	fal_rounds_commit_early(s, now);
	if (fal_typical_update(s))
		for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++)
			if (w->turn[FAL_TURN_TASK].n == 0 && !w->has_left)
				fal_worker_refresh_deadline(s, w);
	do {
		fal_probation_advance(s, now);
		begin_rounds(s, now);
		plan_rounds(s, now);
		if (s->rounds > 0 && s->scheme->rebalance != NULL)
			s->scheme->rebalance(s, now);
	} while (s->teams_awake.n > 0); /* a round was abandoned */
	fal_rounds_commit_early(s, now); /* new grants may be claims at once */
	fal_eval_grant_idle(s, now);
}

/* ---- workers -------------------------------------------------------------- */

bool
fal_sched_has_workers(const struct fal_sched *s)
{
	return s->active > 0;
}

/* Sends the newest version: in the one team of all, each worker has the newest version
 * before a round begins. */
static void
worker_send_newest(struct fal_sched *s, struct fal_worker *w)
{
	if (!s->traits.shared || w->version == s->version)
		return;
	w->version = s->version;
	fal_act_emit(s, (struct fal_act){ .kind = FAL_ACT_MODEL, .worker = w->id });
}

/* Applies the policy's settings for the worker. */
static void
worker_apply_policy(struct fal_sched *s, struct fal_worker *w, double now)
{
	const struct fal_policy_worker *p = fal_policy_find(&s->policy, w->name);
	uint32_t least = p != NULL && p->lanes_min > 0 ? p->lanes_min : w->own_min;
	uint32_t most = p != NULL && p->lanes_max > 0 ? p->lanes_max : w->own_max;
	const char *site = p != NULL ? p->site : "";
	const bool is_excluded = p != NULL && p->excluded;
	w->weight = p != NULL ? p->share : -1;
	w->lanes_max = most < w->own_max ? most : w->own_max;
	w->lanes_min = least < w->lanes_max ? least : w->lanes_max;
	uint32_t lanes = w->lanes < w->lanes_min ? w->lanes_min : w->lanes;
	lanes = lanes > w->lanes_max ? w->lanes_max : lanes;
	if (lanes != w->lanes)
		fal_worker_set_lanes(s, w, lanes);
	const bool has_moved = strcmp(w->site, site) != 0;
	snprintf(w->site, sizeof(w->site), "%s", site);
	if (is_excluded == w->is_excluded) {
		if (has_moved && w->team != NULL && s->scheme->teams_changed != NULL)
			s->scheme->teams_changed(s, now);
		return;
	}
	w->is_excluded = is_excluded;
	if (is_excluded)
		fal_worker_strip(s, w, true, now);
	if (w->team != NULL)
		fal_worker_recount(s, w, now);
}

int
fal_sched_set_policy(struct fal_sched *s, double now, const struct fal_policy *p)
{
	bool other = s->scheme == NULL || !fal_rule_equal(&p->rule, &s->policy.rule);
	if (other && s->scheme != NULL && !fal_sched_is_quiet(s))
		return FAL_ESTATE;
	const struct fal_policy copy = fal_policy_copy(p);
	fal_policy_free(&s->policy);
	s->policy = copy;
	if (other && s->scheme != NULL)
		fal_teams_free(s);
	s->scheme = schemes[p->rule.scheme];
	s->traits = fal_rule_traits(&p->rule);
	s->has_fixed_shares = false;
	for (size_t i = 0; i < p->workers; i++)
		s->has_fixed_shares |= p->worker[i].share >= 0;
	if (other)
		fal_teams_form(s);
	for (uint32_t i = 0; i < s->workers && other; i++)
		if (!s->worker[i].has_left)
			worker_send_newest(s, &s->worker[i]);
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++)
		if (!w->has_left)
			worker_apply_policy(s, w, now);
	fal_teams_wake(s);
	sched_settle(s, now);
	return FAL_OK;
}

/* Frees the slots of workers that have left. */
static void
workers_compact(struct fal_sched *s, double now)
{
	uint32_t kept = 0;
	for (size_t i = 0; i < FAL_HEAPS_OF_WORKERS; i++)
		fal_heap_clear(&s->of_workers[i]);
	for (uint32_t i = 0; i < s->workers; i++) {
		if (s->worker[i].has_left)
			continue;
		if (kept < i)
			s->worker[kept] = s->worker[i];
		for (struct fal_node *n = s->worker[kept].head; n != NULL; n = n->next)
			n->slot = kept;
		kept++;
	}
	s->workers = kept;
	s->left = 0;
	fal_teams_compact(s);
	for (uint32_t i = 0; i < kept; i++)
		fal_worker_refresh(s, &s->worker[i], now);
}

/* Makes room for one worker more. */
static void
workers_make_room(struct fal_sched *s, double now)
{
	enum { LEFT_MAX = 16 }; /* slots of workers that have left */
	if (s->left > LEFT_MAX + s->workers / 2)
		workers_compact(s, now);
	size_t n = (size_t)s->workers + 1;
	FAL_XGROW(s->worker, s->worker_cap, n);
	FAL_XGROW(s->typical.scratch, s->typical.scratch_cap, n);
	for (size_t i = 0; i < FAL_HEAPS_OF_WORKERS; i++)
		fal_heap_reserve(&s->of_workers[i], n);
}

int
fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j)
{
	if (j->lanes_min < 1 || j->lanes_max < j->lanes_min || j->cores < 1 ||
	    j->lanes_max > FAL_LANES_MAX || j->id <= s->last_id || j->id == FAL_EVALUATED)
		return FAL_EINVAL;
	static const uint32_t no_key = 0x80000000; /* marks keys that are made up */
	workers_make_room(s, now);
	uint32_t lanes = s->conf.lanes_start > 0 ? s->conf.lanes_start : j->lanes_max;
	lanes = lanes < j->lanes_min ? j->lanes_min : lanes;
	lanes = lanes > j->lanes_max ? j->lanes_max : lanes;
	struct fal_worker *w = &s->worker[s->workers++];
	*w = (struct fal_worker){
		.id = j->id,
		.key = j->key != 0 ? j->key : no_key | j->id,
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
		.last_rtt = j->rtt,
		.is_group = j->group,
		.empty_since = now,
		.progress_at = now,
		.heard_at = now,
		.ping = { .asked_at = -1, .answered_at = -1 },
	};
	snprintf(w->name, sizeof(w->name), "%s", j->name != NULL ? j->name : "");
	w->suspicion.next_at = fal_key_barred_until(s, w->key, now);
	if (w->suspicion.next_at > now) {
		w->standing = FAL_SUSPECT;
		w->suspicion.since = now;
	}
	s->last_id = w->id;
	fal_worker_restore(w, &j->history);
	if (!isnan(w->fixed))
		fal_typical_add_fixed(s, w->fixed);
	if (j->task_s > 0 && (s->typical.probe_s <= 0 || j->task_s < s->typical.probe_s))
		s->typical.probe_s = j->task_s;
	if (s->typical.at_probe_s <= 0)
		s->typical.at_probe_s = s->typical.probe_s;
	fal_worker_set_lanes(s, w, lanes);
	worker_apply_policy(s, w, now);
	fal_team_assign(s, w);
	worker_send_newest(s, w);
	fal_worker_recount(s, w, now);
	sched_settle(s, now);
	return FAL_OK;
}

int
fal_sched_set_lanes(struct fal_sched *s, double now, uint32_t id, uint32_t lanes,
		    double task_s)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return FAL_OK;
	if (lanes < 1 || lanes > FAL_LANES_MAX)
		return FAL_EINVAL;
	/* The speed of each lane stays the same. */
	const uint32_t at = w->pace[w->lanes].nearest;
	const struct fal_history was = { .lanes = lanes,
					 .task_s = at > 0 ? w->pace[at].task_s : 0,
					 .fixed = -1,
					 .eval_s = w->eval_s,
					 .push_s = w->push.least };
	free(w->pace);
	w->pace = fal_xcalloc((size_t)lanes + 1, sizeof(*w->pace));
	w->own_min = w->own_max = w->cores = lanes;
	fal_worker_restore(w, &was);
	if (task_s > 0)
		w->probe_s = task_s;
	worker_apply_policy(s, w, now);
	fal_worker_recount(s, w, now);
	sched_settle(s, now);
	return FAL_OK;
}

void
fal_sched_leave(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return;
	fal_deadline_note_leave(s, w, now);
	w->has_left = true;
	w->is_waiting = false;
	s->left++;
	fal_worker_strip(s, w, false, now);
	fal_worker_recount(s, w, now);
	free(w->pace);
	w->pace = NULL;
	fal_intervals_free(&w->seqs);
	sched_settle(s, now);
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
		.suspected = fal_worker_is_suspect(w),
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
				     .push_s = w->push.least };
	return true;
}

/* ---- the scheduler -------------------------------------------------------- */

struct fal_sched *
fal_sched_new(const struct fal_sched_conf *conf)
{
	struct fal_sched *s = fal_xcalloc(1, sizeof(*s));
	s->conf = *conf;
	s->conf.policy = NULL; /* s->policy is the copy */
	s->patience = 1;
	s->rng = fal_rng_init(conf->entropy, FAL_RNG_DRAW, 0);
	s->grid = conf->grid;
	s->grid.parts = s->grid.parts > 0 ? s->grid.parts : 1;
	s->full = fal_grid_full_samples(&s->grid);
	s->typical.fixed = (double)NAN;
	s->part_teams = fal_xcalloc(s->grid.parts, sizeof(*s->part_teams));
	fal_task_pool_init(&s->pool, &s->grid);
	workers_make_room(s, 0);
	fal_sched_set_policy(s, 0, conf->policy);
	s->version = s->published = conf->from.version;
	s->policy_version = conf->from.first;
	s->next_round = conf->from.round;
	fal_task_pool_skip_clocks(&s->pool, conf->from.clock);
	return s;
}

void
fal_sched_free(struct fal_sched *s)
{
	if (s == NULL)
		return;
	fal_teams_free(s);
	free(s->team);
	free(s->part_teams);
	fal_sched_forget(s);
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		while (w->head != NULL)
			fal_node_detach(s, w->head);
		free(w->pace);
		fal_intervals_free(&w->seqs);
	}
	free(s->worker);
	for (struct fal_round *r; (r = s->oldest) != NULL;) {
		s->oldest = r->newer;
		fal_round_free(r);
	}
	for (struct fal_round *r; (r = s->spare) != NULL;) {
		s->spare = r->next;
		fal_round_free(r);
	}
	free(s->known);
	fal_task_pool_free(&s->pool);
	fal_policy_free(&s->policy);
	fal_heap_free(&s->teams_by_clock);
	fal_heap_free(&s->teams_awake);
	for (size_t i = 0; i < FAL_HEAPS_OF_WORKERS; i++)
		fal_heap_free(&s->of_workers[i]);
	free(s->typical.scratch);
	free(s->retry);
	free(s->debt);
	free(s->skip);
	free(s->eval.task);
	free(s->eval.free);
	fal_grant_history_free(&s->eval.given);
	free(s->verify);
	free(s->act);
	free(s);
}

void
fal_sched_set_clock_limit(struct fal_sched *s, double now, uint64_t clock)
{
	if (s->clock_limit == clock)
		return;
	s->clock_limit = clock;
	fal_teams_wake(s);
	sched_settle(s, now);
}

void
fal_sched_hold(struct fal_sched *s, double now, bool hold)
{
	s->is_held = hold;
	fal_teams_wake(s);
	sched_settle(s, now);
}

bool
fal_sched_is_quiet(const struct fal_sched *s)
{
	return fal_sched_is_drained(s) && s->published == s->version;
}

void
fal_sched_note_published(struct fal_sched *s, double now, uint64_t version)
{
	s->published = version;
	s->published_at = now;
	while (fal_heap_min_key(&s->awaits) <= (double)version)
		fal_worker_refresh(s, &s->worker[fal_heap_top(&s->awaits)], now);
}

const struct fal_policy *
fal_sched_policy(const struct fal_sched *s)
{
	return &s->policy;
}

uint32_t
fal_sched_count_versions(const struct fal_sched *s)
{
	return s->traits.delay + 1;
}

uint64_t
fal_sched_oldest_version(const struct fal_sched *s, uint32_t id)
{
	const struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return s->version;
	const bool is_on_branch = w->team->branch_version != 0 &&
				  w->version != UINT64_MAX &&
				  fal_branch_of(w->version) != 0;
	uint64_t oldest = is_on_branch ? w->team->branch_version : s->version;
	for (const struct fal_round *r = w->team->rounds; r != NULL; r = r->next)
		if (r->commit != FAL_COMMIT_REPORTED)
			oldest = r->info.version < oldest ? r->info.version : oldest;
	return oldest;
}

uint32_t
fal_sched_list_versions(const struct fal_sched *s, uint32_t id, uint64_t *out,
			uint32_t cap)
{
	const struct fal_worker *w = fal_worker_find(s, id);
	const struct fal_round *r = w != NULL ? w->team->rounds : NULL;
	const uint64_t oldest = r != NULL && w->team->branch_version != 0
					? 0
					: fal_sched_oldest_version(s, id);
	uint32_t n = 0;
	for (; r != NULL; r = r->next) {
		/* A committed round that lost claims needs workers that run the tasks
		 * again: perhaps workers that were granted a task before this version
		 * got old. */
		const bool is_filled = r->commit == FAL_COMMIT_REPORTED &&
				       r->ledger.claimed < r->ledger.tasks;
		if ((r->info.version >= oldest || is_filled) && ++n <= cap)
			out[n - 1] = r->info.version;
		if (r->info.first_late != FAL_NONE && ++n <= cap)
			out[n - 1] = r->info.late_version;
	}
	return n;
}

uint64_t
fal_sched_first_open_clock(const struct fal_sched *s)
{
	return s->pool.over;
}

uint64_t
fal_sched_next_clock(const struct fal_sched *s)
{
	uint64_t next = fal_task_pool_first(&s->pool);
	return next > s->pool.over ? next : s->pool.over;
}

bool
fal_sched_resume_point(const struct fal_sched *s, uint64_t version, uint64_t clock,
		       struct fal_sched_from *out)
{
	const uint64_t front = fal_task_pool_first(&s->pool);
	/* Clocks with tasks of another policy may end in another order. */
	if (!s->traits.shared || clock > front || clock < s->policy_clock)
		return false;
	/* Each round is one clock, so the last `front - clock` rounds are the rounds of
	 * clock `clock` and of later clocks. */
	*out = (struct fal_sched_from){ .clock = clock,
					.version = version,
					.first = s->policy_version,
					.round = s->next_round - (front - clock) };
	return true;
}

bool
fal_sched_is_done(const struct fal_sched *s)
{
	return fal_sched_is_quiet(s) && s->pool.over == s->pool.clocks;
}

void
fal_sched_note_complete(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || r->completion == FAL_ROUND_UNREPORTED)
		return;
	if (fal_commits_early(s)) {
		r->completion = FAL_ROUND_COMPLETE;
	} else {
		/* A sum may be complete before all its tasks are reported. */
		r->completion = FAL_ROUND_UNREPORTED;
		s->unreported++;
	}
	sched_settle(s, now);
}

void
fal_sched_note_stepped(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || r->commit != FAL_COMMIT_ORDERED ||
	    r->completion == FAL_ROUND_COMPLETE)
		return;
	r->completion = FAL_ROUND_COMPLETE;
	sched_settle(s, now);
}

void
fal_sched_note_applied(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || r->commit != FAL_COMMIT_REPORTED)
		return;
	fal_round_end_committed(s, r, now);
	sched_settle(s, now);
}

bool
fal_sched_next_action(struct fal_sched *s, struct fal_act *out)
{
	if (s->act_next == s->acts) {
		s->act_next = s->acts = 0;
		return false;
	}
	*out = s->act[s->act_next++];
	return true;
}

/* ---- claims and contributions --------------------------------------------- */

bool
fal_sched_has_local_round(const struct fal_sched *s, uint32_t id)
{
	const struct fal_worker *w = fal_worker_find(s, id);
	const struct fal_round *r = w != NULL ? w->team->rounds : NULL;
	while (r != NULL && !(r->info.delta && r->info.owner == id))
		r = r->next;
	return r != NULL;
}

bool
fal_sched_round(const struct fal_sched *s, uint64_t round, struct fal_round_info *out)
{
	const struct fal_round *r = fal_round_known(s, round);
	if (r == NULL)
		return false;
	*out = r->info;
	out->round = r->id;
	out->first = r->ledger.first;
	out->tasks = r->ledger.tasks;
	out->samples = fal_round_counted_samples(s, r);
	out->commit_ordered = r->commit != FAL_COMMIT_NONE && !r->has_ended;
	out->all_reported = r->commit == FAL_COMMIT_REPORTED;
	out->taken = r->info.local > 0 ? r->info.taken : r->info.version;
	out->ledger = &r->ledger;
	return true;
}

/* Notes that the worker has run the task, whether its result counts or not. */
static void
claim_note_run(struct fal_sched *s, double now, const struct fal_round *r,
	       struct fal_worker *w, const struct fal_claim_report *c)
{
	const struct fal_load load = fal_load_of_task(r, c->task);
	fal_work_add(&w->work, c->task_s, (uint32_t)load.samples,
		     fal_load_size(s, w, load));
	/* A task of an older round tells nothing about the pull. */
	if (w->pull_timer.is_running && r->id >= w->pull_timer.round &&
	    w->pullable_at <= now)
		fal_window_min_add(&w->pull,
				   fmax(now - w->pullable_at - c->task_s, 1e-6));
	w->pull_timer.is_running = false;
}

/* Counts the result of the task, for contribution `ci`. */
static void
claim_add_result(struct fal_sched *s, double now, struct fal_round *r,
		 struct fal_worker *w, const struct fal_claim_report *c, uint32_t ci)
{
	w->work.done++;
	w->work.samples += fal_task_samples(r, c->task);
	if (!w->is_tried)
		w->tries = 0;
	r->ledger.contrib[ci].claimed_at = now;
	struct fal_claim *claim = fal_ledger_claimed(&r->ledger, c->task);
	memcpy(claim->hash, c->hash, sizeof(c->hash));
	claim->version = c->version;
	if (c->metrics != NULL)
		fal_ledger_set_metrics(&r->ledger, c->task, c->metrics);
	if (c->verify)
		fal_verify_request(s, r, w, c, now);
	fal_round_notify_owner(s, r);
	fal_retry_clear(s, r, c->task);
}

/* Claims a task that was granted without a contribution. */
static int
claim_task(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	   const struct fal_claim_report *c)
{
	const struct fal_contrib_id id = { c->worker, c->seq };
	struct fal_ledger *l = &r->ledger;
	uint64_t twice;
	uint32_t ci;
	int won = 0;
	/* A number names one contribution in the whole session, because the trace has the
	 * number.  So a number of another round is refused; a new number is refused, too,
	 * if the remembered numbers have too many gaps. */
	if ((fal_intervals_has(&w->seqs, id.seq) || w->seqs.n == FAL_INTERVALS_MAX) &&
	    fal_ledger_find(l, id) == FAL_NONE)
		return FAL_ESTATE;
	/* No worker is told to fill a contribution before all shards know that the
	 * contribution is fenced. */
	const bool fills = c->fills.worker != 0;
	const uint32_t filled = fills ? fal_ledger_find(l, c->fills) : FAL_NONE;
	if (!fills || (filled != FAL_NONE && l->contrib[filled].is_fenced_by_all))
		won = fal_ledger_claim(l, id, c->fills, c->task, c->loss, &ci);
	if (won < 0)
		return won;
	claim_note_run(s, now, r, w, c);
	if (won == 0) {
		w->work.lost++;
		fal_ledger_log(l, FAL_ENTRY_LOST, w->id, 0, c->task);
		return 0;
	}
	const bool is_new = l->contrib[ci].tasks == 1;
	w->open_contribs += is_new;
	if (is_new &&
	    fal_intervals_add(&w->seqs, id.seq, (uint64_t)id.seq + 1, &twice) < 0)
		return FAL_ENOMEM;
	fal_task_drop_claimed(s, r, c->task, w);
	fal_task_withdraw(s, r, c->task, now);
	claim_add_result(s, now, r, w, c, ci);
	return 1;
}

/* Finishes a contribution: all its blocks are counted, and all its tasks are reported. */
static void
contrib_finish(struct fal_sched *s, double now, struct fal_round *r, uint32_t ci,
	       struct fal_worker *w)
{
	struct fal_contrib *c = &r->ledger.contrib[ci];
	/* Blocks that are sent while the contribution is still growing are under way
	 * before its last claim.  Then the time since the claim tells nothing about a
	 * push. */
	const double from = c->first_block_at > 0 ? fmin(c->first_block_at, c->claimed_at)
						  : c->claimed_at;
	c->state = FAL_CONTRIB_DONE;
	w->open_contribs--;
	fal_turn_add(s, w, FAL_TURN_PUSH, now - fmax(from, fal_worker_relieved_at(w, r)));
	fal_probation_note_work(s, w, now);
	/* A worker pushes when its queue becomes empty: at its last claim, or when a task
	 * was taken away. */
	if (w->queued == 0 || s->rounds > 1)
		fal_window_min_add(&w->push,
				   fmax(now - fmax(c->claimed_at, w->empty_since), 1e-6));
	fal_worker_refresh(s, w, now);
}

/* Reports a task of contribution `ci` (FAL_NONE: unknown), which was claimed ahead. */
static int
claim_report(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	     const struct fal_claim_report *c, uint32_t ci)
{
	if (ci == FAL_NONE || !fal_ledger_report(&r->ledger, ci, c->task, c->loss))
		return FAL_ESTATE;
	claim_note_run(s, now, r, w, c);
	fal_task_drop(s, r, c->task, w);
	claim_add_result(s, now, r, w, c, ci);
	if (r->ledger.contrib[ci].due == 0 && r->ledger.contrib[ci].is_counted)
		contrib_finish(s, now, r, ci, w);
	return 1;
}

int
fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_report *c)
{
	struct fal_worker *w = fal_worker_find(s, c->worker);
	struct fal_round *r = fal_round_find(s, c->round);
	const bool is_preclaimed = c->seq >= FAL_PRECLAIMED;
	uint32_t ci = FAL_NONE; /* of a task that was claimed ahead */
	if (w == NULL)
		return 0;
	if (w->claims == w->grants || (c->nonfinite && is_preclaimed))
		return FAL_ESTATE;
	w->claims++;
	if (r == NULL)
		return c->round < s->next_round ? 0 : FAL_ESTATE;
	if (!fal_ledger_has(&r->ledger, c->task))
		return FAL_EINVAL;
	if (!fal_grant_history_has(&r->given, c->task - r->ledger.first, w->id))
		return FAL_ESTATE;
	if (is_preclaimed)
		ci = fal_ledger_find(&r->ledger,
				     (struct fal_contrib_id){ c->worker, c->seq });
	if (ci != FAL_NONE && r->ledger.contrib[ci].state == FAL_CONTRIB_FENCED)
		return 0;
	const struct fal_node *n = fal_node_find(s, r, c->task, w);
	if (n != NULL && n->began >= 0) {
		const double turn_s = now - n->began;
		if (!w->pull_timer.is_running)
			w->claim_wait_s = turn_s - c->task_s;
		/* Only full tasks count: short tasks tell too little. */
		if (fal_task_samples(r, c->task) == s->full)
			fal_turn_add(s, w, FAL_TURN_TASK,
				     turn_s / fal_oversubscription(w->lanes, w->cores));
	}
	if (c->task_s > 0)
		fal_worker_measure(s, w, c->task_s, fal_task_samples(r, c->task));
	w->progress_at = now;
	int won = 0;
	if (!c->nonfinite) {
		won = is_preclaimed ? claim_report(s, now, r, w, c, ci)
				    : claim_task(s, now, r, w, c);
	} else {
		const struct fal_ltask *t = fal_ledger_task(&r->ledger, c->task);
		/* A contribution that was claimed ahead is fenced, with all its tasks. */
		if (t->due && r->ledger.contrib[t->contrib].id.worker == w->id) {
			fal_contrib_fence(s, r, t->contrib);
			w->open_contribs--;
		}
		fal_retry_nonfinite(s, now, r, w, c->task);
	}
	if (won < 0)
		return won;
	fal_worker_refresh(s, w, now);
	sched_settle(s, now);
	return won;
}

const struct fal_contrib *
fal_sched_find_contrib(const struct fal_sched *s, uint64_t round,
		       struct fal_contrib_id cid)
{
	const struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || fal_worker_find(s, cid.worker) == NULL)
		return NULL;
	uint32_t ci = fal_ledger_find(&r->ledger, cid);
	return ci != FAL_NONE ? &r->ledger.contrib[ci] : NULL;
}

int
fal_sched_close_contrib(struct fal_sched *s, uint64_t round, struct fal_contrib_id cid)
{
	struct fal_round *r = fal_round_find(s, round);
	const struct fal_contrib *c = fal_sched_find_contrib(s, round, cid);
	if (cid.seq >= FAL_PRECLAIMED)
		return FAL_ESTATE;
	if (c == NULL || c->state == FAL_CONTRIB_FENCED)
		return 0;
	int err = fal_ledger_seal(&r->ledger, (uint32_t)(c - r->ledger.contrib));
	return err < 0 ? err : 1;
}

struct fal_contrib_id
fal_sched_filled_contrib(const struct fal_sched *s, uint64_t round,
			 const struct fal_contrib *c)
{
	const struct fal_round *r = fal_round_find(s, round);
	return r != NULL && c->fills != FAL_NONE ? r->ledger.contrib[c->fills].id
						 : (struct fal_contrib_id){ 0, 0 };
}

void
fal_sched_note_blocks(struct fal_sched *s, double now, uint64_t round,
		      struct fal_contrib_id cid, uint32_t blocks, bool complete)
{
	struct fal_round *r = fal_round_find(s, round);
	const uint32_t ci = r != NULL ? fal_ledger_find(&r->ledger, cid) : FAL_NONE;
	if (ci == FAL_NONE)
		return;
	struct fal_contrib *c = &r->ledger.contrib[ci];
	struct fal_worker *w = fal_worker_find(s, cid.worker);
	/* Blocks that came before the fence count, too. */
	c->blocks += blocks;
	if (c->state != FAL_CONTRIB_OPEN || w == NULL)
		return;
	if (blocks > 0)
		c->last_block_at = w->block_at = now;
	if (blocks > 0 && c->first_block_at == 0)
		c->first_block_at = now;
	c->is_counted |= complete;
	if (complete && c->due == 0)
		contrib_finish(s, now, r, ci, w);
}

void
fal_sched_note_fenced(struct fal_sched *s, double now, uint64_t round,
		      struct fal_contrib_id cid)
{
	struct fal_round *r = fal_round_find(s, round);
	const uint32_t ci = r != NULL ? fal_ledger_find(&r->ledger, cid) : FAL_NONE;
	if (ci == FAL_NONE)
		return;
	struct fal_contrib *c = &r->ledger.contrib[ci];
	assert(c->state == FAL_CONTRIB_FENCED && !c->is_fenced_by_all);
	c->is_fenced_by_all = true;
	for (uint32_t i = c->head; i != FAL_NONE; i = r->ledger.claim[i].next) {
		const uint32_t task = r->ledger.claim[i].task;
		if (!fal_ledger_task(&r->ledger, task)->skipped)
			fal_task_release(s, r, task);
	}
	sched_settle(s, now);
}

/* ---- evaluation ----------------------------------------------------------- */

int
fal_sched_claim_eval(struct fal_sched *s, double now, uint32_t id, uint32_t task,
		     uint32_t samples, double task_s)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (task >= s->eval.tasks)
		return FAL_EINVAL;
	if (w == NULL)
		return 0;
	const int counts = fal_eval_claim(s, w, task, samples, task_s, now);
	if (counts >= 0)
		sched_settle(s, now);
	return counts;
}

/* ---- signs of life, and time ---------------------------------------------- */

void
fal_sched_note_message(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return;
	w->heard_at = now;
	if (!fal_worker_is_suspect(w))
		return;
	fal_worker_refresh(s, w, now);
	sched_settle(s, now);
}

void
fal_sched_note_pong(struct fal_sched *s, double now, uint32_t id, double rtt,
		    uint64_t steps)
{
	/* messages carry times in whole nanoseconds */
	static const double rounding = 1e-6;
	struct fal_worker *w = fal_worker_find(s, id);
	if (w == NULL)
		return;
	/* A shorter round trip is nearer the truth, because the rest of a longer one is
	 * time in a queue.  A single long round trip tells that the worker was suspended,
	 * and nothing about the link. */
	const double longer = fmin(rtt, w->last_rtt) - w->rtt;
	w->rtt = w->rtt > 0 ? fmin(rtt, w->rtt + 0.1 * longer) : rtt;
	w->last_rtt = rtt;
	const double asked = now - rtt + rounding;
	if (fal_deadline_note_answer(s, w, asked, steps, now))
		sched_settle(s, now);
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

/* The time when the scheme must apply the pending update even without an event. */
static double
scheme_next_flush(const struct fal_sched *s)
{
	return s->scheme->next_flush != NULL ? s->scheme->next_flush(s) : INFINITY;
}

void
fal_sched_tick(struct fal_sched *s, double now)
{
	bool wants_settle = scheme_next_flush(s) <= now;
	/* After these steps the scheduler may know that other workers are late, too. */
	while (wants_settle || fal_heap_min_key(&s->due) <= now) {
		wants_settle = false;
		while (fal_heap_min_key(&s->due) <= now) {
			struct fal_worker *w = &s->worker[fal_heap_top(&s->due)];
			fal_deadline_review(s, w, now);
			w->reviewed_at = now;
			fal_worker_refresh(s, w, now);
		}
		sched_settle(s, now);
	}
}

double
fal_sched_next_tick(const struct fal_sched *s)
{
	return fmin(scheme_next_flush(s), fal_heap_min_key(&s->due));
}

/* ---- work of another scheduler -------------------------------------------- */

/* Work of another scheduler (design.md, D50).  A round begins when the other scheduler
 * brings its task, and ends when its sum is forwarded; fal_sched_set_version sets the
 * newest version.  Clocks before the oldest clock of an open round count as over, because
 * no message tells more.  As in any job, workers share rounds, and late or dead workers
 * lose their tasks. */

uint64_t
fal_sched_open_external(struct fal_sched *s, double now,
			const struct fal_external_task *b)
{
	assert(s->conf.is_external && b->version <= s->version);
	fal_round_open_external(s, b, now);
	const uint64_t round = s->newest->id;
	/* A clock may come back: another group may have had its tasks before. */
	uint64_t first = b->clock;
	for (const struct fal_round *r = s->oldest; r != NULL; r = r->newer)
		first = r->info.clock < first ? r->info.clock : first;
	fal_task_pool_skip_clocks(&s->pool, first);
	sched_settle(s, now);
	return round;
}

void
fal_sched_cancel_external(struct fal_sched *s, double now, uint64_t round)
{
	const struct fal_act end = { .fate = FAL_FATE_DROP,
				     .why = "it is not wanted any more" };
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL)
		return;
	fal_retry_clear_round(s, r); /* a task that is brought again has no retry yet */
	fal_round_end(s, r, end, now);
	sched_settle(s, now);
}

bool
fal_sched_oldest_external(const struct fal_sched *s, uint64_t *round)
{
	if (s->oldest != NULL)
		*round = s->oldest->id;
	return s->oldest != NULL;
}

void
fal_sched_set_version(struct fal_sched *s, double now, uint64_t version)
{
	assert(s->conf.is_external && version >= s->version);
	s->version = version;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++)
		if (!w->has_left)
			w->version = version;
	fal_sched_note_published(s, now, version);
	fal_act_emit(s, (struct fal_act){ .kind = FAL_ACT_MODEL });
}
