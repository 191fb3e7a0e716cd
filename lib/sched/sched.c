/* Events in, actions out. */
#include "sched/state.h"

#include "base/line.h"
#include "base/mem.h"
#include "base/sorted.h"

#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const struct fal_scheme *const schemes[FAL_SCHEMES] = {
	[FAL_BSP] = &fal_scheme_bsp,       [FAL_ASP] = &fal_scheme_asp,
	[FAL_SSP] = &fal_scheme_ssp,       [FAL_EPSP] = &fal_scheme_epsp,
	[FAL_FLEXRR] = &fal_scheme_flexrr, [FAL_SYNCOPT] = &fal_scheme_syncopt,
	[FAL_CONSGD] = &fal_scheme_consgd, [FAL_DYNSGD] = &fal_scheme_dynsgd,
	[FAL_WBSP] = &fal_scheme_wbsp,     [FAL_GROUPS] = &fal_scheme_groups,
};

int
fal_sched_new(const struct fal_sched_conf *conf, struct fal_sched **out)
{
	struct fal_sched *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return FAL_ENOMEM;
	s->lanes_start = conf->lanes_start;
	s->patience = 1;
	s->eval_cost = conf->eval_cost;
	s->rng = fal_rng_init(conf->entropy, FAL_RNG_DRAW, 0);
	s->grid = conf->grid;
	s->grid.parts = s->grid.parts > 0 ? s->grid.parts : 1;
	s->full = fal_grid_full(&s->grid);
	s->typical_fixed = (double)NAN;
	s->manned = fal_calloc(s->grid.parts, sizeof(*s->manned));
	if (s->manned == NULL || fal_pool_init(&s->pool, &s->grid) < 0 ||
	    fal_sched_set_policy(s, 0, conf->policy) < 0) {
		fal_sched_free(s);
		return FAL_ENOMEM;
	}
	*out = s;
	return FAL_OK;
}

void
fal_sched_free(struct fal_sched *s)
{
	if (s == NULL)
		return;
	for (uint32_t i = 0; i < s->teams; i++)
		free(s->team[i]);
	free(s->team);
	free(s->manned);
	fal_sched_forget(s);
	for (uint32_t i = 0; i < s->workers; i++) {
		while (s->worker[i].head != NULL)
			fal_detach(s, s->worker[i].head);
		free(s->worker[i].pace);
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
	fal_heap_free(&s->takers);
	fal_heap_free(&s->donors);
	fal_heap_free(&s->runners);
	fal_heap_free(&s->idle);
	fal_heap_free(&s->due);
	fal_heap_free(&s->suspects);
	free(s->scratch);
	fal_heap_free(&s->slow);
	fal_heap_free(&s->look);
	fal_heap_free(&s->later);
	fal_heap_free(&s->planner);
	free(s->doubt);
	free(s->eval_holder);
	free(s->eval_free);
	free(s->eval_said);
	fal_holds_free(&s->eval_given);
	while (s->checks > 0)
		fal_checks_end(s, s->check[0].round);
	free(s->check);
	free(s->act);
	free(s);
}

/* Slots stand in order of their ids, mostly without gaps. */
struct fal_worker *
fal_find(const struct fal_sched *s, uint32_t id)
{
	size_t at = s->workers > 0 ? id - s->worker[0].id : 0;
	if (at >= s->workers || s->worker[at].id != id)
		at = fal_sorted_place(s->worker, s->workers, sizeof(*s->worker), id);
	if (at == s->workers || s->worker[at].id != id || s->worker[at].gone)
		return NULL;
	return &s->worker[at];
}

/* Is what was collected all that the update is to be made of?  A clock that is collected
 * as a whole waits for its last task. */
static bool
is_whole(const struct fal_sched *s)
{
	return !s->is.waves || fal_pool_first(&s->pool) != s->merged_clock;
}

/* When no round is open, nothing more will come to what was collected. */
static int
flush(struct fal_sched *s)
{
	if (s->merged == 0)
		return FAL_OK;
	if (s->scheme->flush != NULL)
		return s->scheme->flush(s);
	if (s->rounds > 0 || !is_whole(s))
		return FAL_OK;
	fal_teams_wake(s);
	return fal_step(s, (double)s->merged_samples);
}

/* Rounds begin, and others in the place of what had to be applied first. */
static int
begin_rounds(struct fal_sched *s, double now)
{
	uint64_t version;
	int err;
	do {
		version = s->version;
		err = fal_teams_begin(s, now);
		if (err == FAL_OK)
			err = flush(s);
	} while (err == FAL_OK && s->version != version);
	return err;
}

/* Free tasks find holders, those of the oldest round first. */
static int
plan_rounds(struct fal_sched *s, double now)
{
	struct fal_round *r = s->needy, *next;
	int err = FAL_OK;
	for (; r != NULL && s->unplanned > 0 && err == FAL_OK; r = next) {
		next = r->newer;
		err = fal_plan(s, r, now);
		if (err == FAL_OK && s->eager.n > 0) { /* one was abandoned */
			err = begin_rounds(s, now);
			next = s->needy; /* from the first one on */
		}
	}
	if (s->unplanned == 0)
		s->needy = NULL;
	return err;
}

/* Rounds begin; those about tasks in doubt have been decided of before. */
static int
begin_decided(struct fal_sched *s, double now)
{
	bool anew = true;
	int err = FAL_OK;
	while (err == FAL_OK && anew) {
		err = fal_doubts_review(s, now, &anew);
		if (err == FAL_OK)
			err = begin_rounds(s, now);
	}
	return err;
}

/* Free tasks find holders, work is evened out, nobody waits for a trial. */
static int
share_out(struct fal_sched *s, double now)
{
	int err = plan_rounds(s, now);
	if (err == FAL_OK && s->rounds > 0 && s->scheme->rebalance != NULL)
		err = s->scheme->rebalance(s, now);
	return err == FAL_OK ? fal_trial_relieve(s, now) : err;
}

int
fal_settle(struct fal_sched *s, double now)
{
	int err;
	fal_due_typical(s, now);
	do {
		err = fal_trial_next(s, now);
		if (err == FAL_OK)
			err = begin_decided(s, now);
		if (err == FAL_OK)
			err = share_out(s, now);
	} while (err == FAL_OK && s->eager.n > 0); /* a round was abandoned */
	return err == FAL_OK ? fal_eval_feed(s, now) : err;
}

int
fal_sched_allow(struct fal_sched *s, double now, uint64_t clock)
{
	if (s->allowed == clock)
		return FAL_OK;
	s->allowed = clock;
	fal_teams_wake(s);
	return fal_settle(s, now);
}

int
fal_sched_hold(struct fal_sched *s, double now, bool hold)
{
	s->held = hold;
	fal_teams_wake(s);
	return fal_settle(s, now);
}

bool
fal_sched_quiet(const struct fal_sched *s)
{
	return s->rounds == 0 && s->merged == 0 && !(s->is.waves && s->pool.backs > 0);
}

bool
fal_sched_staffed(const struct fal_sched *s)
{
	return s->active > 0;
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

bool
fal_sched_names(const struct fal_sched *s, uint32_t id, uint64_t version)
{
	const struct fal_worker *w = fal_find(s, id);
	const struct fal_round *r = w != NULL && w->team != NULL ? w->team->rounds : NULL;
	while (r != NULL && r->version != version)
		r = r->next;
	return r != NULL;
}

uint64_t
fal_sched_oldest(const struct fal_sched *s, uint32_t id)
{
	const struct fal_worker *w = fal_find(s, id);
	bool on_line = w != NULL && w->team != NULL && w->team->line != 0 &&
		       w->version != UINT64_MAX && fal_line_of(w->version) != 0;
	uint64_t oldest = on_line ? w->team->line : s->version;
	const struct fal_round *r = w != NULL && w->team != NULL ? w->team->rounds : NULL;
	for (; r != NULL; r = r->next)
		oldest = r->version < oldest ? r->version : oldest;
	return oldest;
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
fal_sched_done(const struct fal_sched *s)
{
	return fal_sched_quiet(s) && s->pool.over == s->pool.clocks;
}

int
fal_recount(struct fal_sched *s, struct fal_worker *w, double now)
{
	bool active = fal_worker_active(w);
	uint32_t members = w->team->members - w->counted + active;
	s->active = s->active - w->counted + active;
	w->counted = active;
	int err = fal_team_changed(s, w, members, now);
	fal_refresh(s, w, now);
	return err;
}

/* Where all are one team, everybody has the versions before a round begins. */
static int
send_ahead(struct fal_sched *s, struct fal_worker *w)
{
	struct fal_act model = { .kind = FAL_ACT_MODEL, .worker = w->id };
	if (!fal_one_team(s) || w->version == s->version)
		return FAL_OK;
	w->version = s->version;
	return fal_emit(s, model) != NULL ? FAL_OK : FAL_ENOMEM;
}

/* What the policy lays down for the worker. */
static int
lay_down(struct fal_sched *s, struct fal_worker *w, double now)
{
	const struct fal_policy_worker *p = fal_policy_find(&s->policy, w->name);
	uint32_t least = p != NULL && p->lanes_min > 0 ? p->lanes_min : w->own_min;
	uint32_t most = p != NULL && p->lanes_max > 0 ? p->lanes_max : w->own_max;
	bool excluded = p != NULL && p->excluded;
	w->weight = p != NULL ? p->share : -1;
	w->lanes_max = most < w->own_max ? most : w->own_max;
	w->lanes_min = least < w->lanes_max ? least : w->lanes_max;
	uint32_t lanes = w->lanes < w->lanes_min ? w->lanes_min : w->lanes;
	lanes = lanes > w->lanes_max ? w->lanes_max : lanes;
	if (lanes != w->lanes) {
		struct fal_act act = { .kind = FAL_ACT_LANES,
				       .worker = w->id,
				       .count = lanes };
		w->lanes = lanes;
		if (fal_emit(s, act) == NULL)
			return FAL_ENOMEM;
	}
	if (excluded == w->excluded)
		return FAL_OK;
	w->excluded = excluded;
	if (excluded && fal_strip(s, w, true) < 0)
		return FAL_ENOMEM;
	return w->team != NULL ? fal_recount(s, w, now) : FAL_OK;
}

int
fal_sched_set_policy(struct fal_sched *s, double now, const struct fal_policy *p)
{
	struct fal_policy copy;
	bool other = s->scheme == NULL || !fal_rule_eq(&p->rule, &s->policy.rule);
	if (other && s->scheme != NULL && !fal_sched_quiet(s))
		return FAL_ESTATE;
	if (fal_policy_copy(p, &copy) < 0)
		return FAL_ENOMEM;
	fal_policy_free(&s->policy);
	s->policy = copy;
	s->scheme = schemes[p->rule.scheme];
	s->is = fal_rule_traits(&p->rule);
	s->fixed_shares = false;
	for (size_t i = 0; i < p->workers; i++)
		s->fixed_shares |= p->worker[i].share >= 0;
	if (other && fal_teams_form(s) < 0)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < s->workers && other; i++)
		if (!s->worker[i].gone && send_ahead(s, &s->worker[i]) < 0)
			return FAL_ENOMEM;
	for (uint32_t i = 0; i < s->workers; i++)
		if (!s->worker[i].gone && lay_down(s, &s->worker[i], now) < 0)
			return FAL_ENOMEM;
	fal_teams_wake(s);
	return fal_settle(s, now);
}

/* The slots of workers that left are free for others. */
static void
drop_gone(struct fal_sched *s, double now)
{
	struct fal_heap *heaps[] = { &s->takers,  &s->donors,  &s->runners, &s->idle,
				     &s->due,     &s->slow,    &s->look,    &s->later,
				     &s->planner, &s->suspects };
	uint32_t kept = 0;
	for (size_t i = 0; i < sizeof(heaps) / sizeof(heaps[0]); i++)
		fal_heap_clear(heaps[i]);
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
	fal_teams_close_up(s);
	for (uint32_t i = 0; i < kept; i++)
		fal_refresh(s, &s->worker[i], now);
}

static int
make_room(struct fal_sched *s, double now)
{
	enum { SPARE = 16 }; /* so many that left may stay */
	if (s->gone > SPARE + s->workers / 2)
		drop_gone(s, now);
	size_t n = (size_t)s->workers + 1;
	if (FAL_GROW(s->worker, s->worker_cap, n) < 0 ||
	    fal_heap_reserve(&s->takers, n) < 0 || fal_heap_reserve(&s->donors, n) < 0 ||
	    fal_heap_reserve(&s->runners, n) < 0 || fal_heap_reserve(&s->idle, n) < 0 ||
	    fal_heap_reserve(&s->due, n) < 0 || fal_heap_reserve(&s->slow, n) < 0 ||
	    fal_heap_reserve(&s->look, n) < 0 || fal_heap_reserve(&s->later, n) < 0 ||
	    fal_heap_reserve(&s->planner, n) < 0 ||
	    fal_heap_reserve(&s->suspects, n) < 0 ||
	    FAL_GROW(s->scratch, s->scratch_cap, n) < 0)
		return FAL_ENOMEM;
	return FAL_OK;
}

int
fal_sched_join(struct fal_sched *s, double now, const struct fal_join *j)
{
	if (j->lanes_min < 1 || j->lanes_max < j->lanes_min || j->cores < 1 ||
	    j->lanes_max > FAL_LANES_MAX || j->id <= s->last_id || j->id == FAL_EVALUATED)
		return FAL_EINVAL;
	if (make_room(s, now) < 0)
		return FAL_ENOMEM;
	struct fal_pace *pace = fal_calloc((size_t)j->lanes_max + 1, sizeof(*pace));
	if (pace == NULL)
		return FAL_ENOMEM;
	uint32_t lanes = s->lanes_start > 0 ? s->lanes_start : j->lanes_max;
	lanes = lanes < j->lanes_min ? j->lanes_min : lanes;
	lanes = lanes > j->lanes_max ? j->lanes_max : lanes;
	struct fal_worker *w = &s->worker[s->workers++];
	*w = (struct fal_worker){
		.id = j->id,
		.key = j->key != 0 ? j->key : FAL_OWN_KEY | j->id,
		.version = UINT64_MAX,
		.lanes = lanes,
		.own_min = j->lanes_min,
		.own_max = j->lanes_max,
		.cores = j->cores,
		.pace = pace,
		.probe_s = j->task_s,
		.fixed = j->fixed,
		.rtt = j->rtt,
		.stands_by = j->stands_by,
		.empty = now,
		.base = now,
		.heard = now,
		.asked = -1,
		.steps_at = -1,
	};
	snprintf(w->name, sizeof(w->name), "%s", j->name != NULL ? j->name : "");
	s->last_id = w->id;
	if (!isnan(w->fixed))
		fal_typical_fixed(s, w->fixed);
	s->unknown++;
	if (j->task_s > 0 && (s->probe_s <= 0 || j->task_s < s->probe_s))
		s->probe_s = j->task_s;
	if (s->typical_known.probe_s <= 0)
		s->typical_known.probe_s = s->probe_s;
	struct fal_act act = { .kind = FAL_ACT_LANES, .worker = w->id, .count = lanes };
	if (fal_emit(s, act) == NULL || lay_down(s, w, now) < 0 ||
	    fal_team_join(s, w) < 0)
		return FAL_ENOMEM;
	if (send_ahead(s, w) < 0)
		return FAL_ENOMEM;
	return fal_recount(s, w, now) < 0 ? FAL_ENOMEM : fal_settle(s, now);
}

int
fal_sched_leave(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return FAL_OK;
	w->gone = true;
	w->waits = false;
	s->gone++;
	s->unknown -= w->turn[FAL_TURN_TASK].n == 0;
	if (fal_strip(s, w, false) < 0 || fal_recount(s, w, now) < 0)
		return FAL_ENOMEM;
	free(w->pace);
	w->pace = NULL;
	return fal_settle(s, now);
}

int
fal_sched_stand_by(struct fal_sched *s, double now, uint32_t id, bool stands_by)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL || w->stands_by == stands_by)
		return FAL_OK;
	w->stands_by = stands_by;
	if (stands_by && fal_strip(s, w, true) < 0)
		return FAL_ENOMEM;
	return fal_recount(s, w, now) < 0 ? FAL_ENOMEM : fal_settle(s, now);
}

int
fal_sched_heard(struct fal_sched *s, double now, uint32_t id)
{
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return FAL_OK;
	w->heard = now;
	if (!w->suspected)
		return FAL_OK;
	return fal_trial_heard(s, w, now) < 0 ? FAL_ENOMEM : fal_settle(s, now);
}

bool
fal_sched_steps(const struct fal_sched *s, uint32_t id)
{
	const struct fal_worker *w = fal_find(s, id);
	const struct fal_round *r = w != NULL ? w->team->rounds : NULL;
	while (r != NULL && !(r->delta && r->owner == id))
		r = r->next;
	return r != NULL;
}

int
fal_sched_complete(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL)
		return FAL_OK;
	r->complete = true;
	if (s->scheme->complete(s, r, now) < 0)
		return FAL_ENOMEM;
	return fal_settle(s, now);
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
					.first = r->ledger.first,
					.tasks = r->ledger.tasks,
					.delta = r->delta,
					.mixed = r->mixed,
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

static int
claim_result(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	     const struct fal_claim_in *c)
{
	struct fal_cid id = { c->worker, c->seq };
	uint32_t ci;
	int won = fal_ledger_claim(&r->ledger, id, c->fills, c->task, c->loss, &ci);
	if (won < 0)
		return won;
	const struct fal_load load = fal_load_of(s, r, c->task);
	fal_work_ran(&w->work, c->task_s, (uint32_t)load.samples, fal_size(s, w, load));
	if (won == 0) {
		w->work.lost++;
		return fal_ledger_log(&r->ledger, FAL_ENTRY_LOST, w->id, 0, c->task);
	}
	w->work.done++;
	w->work.samples += load.samples;
	if (w->fresh)
		fal_ewma(&w->pull_s, fmax(now - w->given_at - c->task_s, 1e-6));
	w->fresh = false;
	r->ledger.contrib[ci].claimed = now;
	w->owed += r->ledger.contrib[ci].tasks == 1;
	fal_touch_owner(s, r);
	if (fal_withdraw(s, r, c->task, w, now) < 0)
		return FAL_ENOMEM;
	return fal_doubt_clear(s, now, r, w, c->task) < 0 ? FAL_ENOMEM : 1;
}

int
fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_in *c)
{
	struct fal_worker *w = fal_find(s, c->worker);
	struct fal_round *r = fal_round_find(s, c->round);
	if (w == NULL)
		return 0;
	if (w->claims == w->given)
		return FAL_ESTATE;
	w->claims++;
	if (r == NULL)
		return c->round < s->next_round ? 0 : FAL_ESTATE;
	if (!fal_ledger_has(&r->ledger, c->task))
		return FAL_EINVAL;
	if (!fal_holds_has(&r->given, c->task - r->ledger.first, w->id))
		return FAL_ESTATE;
	const struct fal_node *n = fal_held_by(s, r, c->task, w);
	if (n != NULL && n->began >= 0 && !w->fresh)
		w->wait_s = now - n->began - c->task_s;
	if (n != NULL)
		fal_due_claimed(s, w, n, now);
	if (c->task_s > 0)
		fal_measured(s, w, c->task_s, fal_task_samples(s, r, c->task));
	w->base = now;
	int won = c->nonfinite ? fal_doubt_claim(s, now, r, w, c->task)
			       : claim_result(s, now, r, w, c);
	if (won < 0)
		return won;
	fal_refresh(s, w, now);
	int err = fal_settle(s, now);
	return err < 0 ? err : won;
}

const struct fal_contrib *
fal_sched_contrib(const struct fal_sched *s, uint64_t round, struct fal_cid cid)
{
	const struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || fal_find(s, cid.worker) == NULL)
		return NULL;
	uint32_t ci = fal_ledger_find(&r->ledger, cid);
	return ci != FAL_NONE ? &r->ledger.contrib[ci] : NULL;
}

int
fal_sched_seal(struct fal_sched *s, uint64_t round, struct fal_cid cid)
{
	struct fal_round *r = fal_round_find(s, round);
	const struct fal_contrib *c = fal_sched_contrib(s, round, cid);
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

int
fal_sched_arrived(struct fal_sched *s, double now, uint64_t round, struct fal_cid cid,
		  uint32_t blocks, bool complete)
{
	struct fal_round *r = fal_round_find(s, round);
	const struct fal_contrib *c = fal_sched_contrib(s, round, cid);
	if (c == NULL || c->state != FAL_CONTRIB_OPEN)
		return FAL_OK;
	uint32_t ci = (uint32_t)(c - r->ledger.contrib);
	struct fal_worker *w = fal_find(s, cid.worker);
	fal_ledger_arrived(&r->ledger, ci, blocks);
	if (blocks > 0)
		r->ledger.contrib[ci].came = w->came = now;
	if (!complete)
		return FAL_OK;
	fal_ledger_done(&r->ledger, ci);
	w->owed--;
	fal_turned(s, w, FAL_TURN_PUSH, now - fmax(c->claimed, w->relieved));
	if (fal_trial_kept(s, w, now) < 0)
		return FAL_ENOMEM;
	/* It pushes when it holds nothing more: since its last claim, or since a task was
	 * taken from it. */
	if (w->queued == 0 || s->rounds > 1)
		fal_ewma(&w->push_s, fmax(now - fmax(c->claimed, w->empty), 1e-6));
	fal_refresh(s, w, now);
	return FAL_OK;
}

int
fal_sched_pong(struct fal_sched *s, double now, uint32_t id, double rtt, uint64_t steps)
{
	static const double rounding = 1e-6; /* of times that travel as whole ns */
	struct fal_worker *w = fal_find(s, id);
	if (w == NULL)
		return FAL_OK;
	/* What is shorter is nearer the truth: the rest is waiting in somebody's queue.
	 */
	w->rtt = w->rtt > 0 ? fmin(rtt, w->rtt + 0.1 * (rtt - w->rtt)) : rtt;
	const double asked = now - rtt + rounding;
	if (fal_checks_answer(s, w, asked, steps, now) < 0)
		return FAL_ENOMEM;
	int err = fal_due_answer(s, w, asked, steps, now);
	return err > 0 ? fal_settle(s, now) : err;
}

int
fal_sched_charge(struct fal_sched *s, double now, uint32_t id, const char *why)
{
	(void)now;
	struct fal_worker *w = fal_find(s, id);
	struct fal_act act = { .kind = FAL_ACT_CHARGE, .worker = id, .why = why };
	if (fal_emit(s, act) == NULL)
		return FAL_ENOMEM;
	act.kind = FAL_ACT_EVICT;
	return w == NULL || ++w->charges < 2 || fal_emit(s, act) != NULL ? FAL_OK
									 : FAL_ENOMEM;
}

/* Looks at a worker that owes something and is late. */
static int
review(struct fal_sched *s, struct fal_worker *w, double now)
{
	int err = fal_due_review(s, w, now);
	if (err < 0)
		return err;
	fal_refresh(s, w, now);
	/* Its task may take twice as long as it took so far. */
	double next = fmin(now + fmax(now - w->base, 1e-3), fal_due_next(s, w));
	if (fal_heap_has(&s->due, fal_slot(s, w)))
		fal_heap_set(&s->due, fal_slot(s, w), fmax(next, now + 1e-3));
	return FAL_OK;
}

int
fal_sched_tick(struct fal_sched *s, double now)
{
	bool any = false;
	if (fal_checks_late(s, now) < 0)
		return FAL_ENOMEM;
	while (fal_heap_least(&s->due) <= now) {
		any = true;
		int err = review(s, &s->worker[fal_heap_top(&s->due)], now);
		if (err < 0)
			return err;
	}
	return any ? fal_settle(s, now) : FAL_OK;
}

double
fal_sched_wake(const struct fal_sched *s)
{
	return fmin(fal_heap_least(&s->due), fal_checks_due(s));
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

bool
fal_sched_info(const struct fal_sched *s, uint32_t id, struct fal_worker_info *out)
{
	const struct fal_worker *w = fal_find(s, id);
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
		.suspected = w->suspected,
	};
	return true;
}
