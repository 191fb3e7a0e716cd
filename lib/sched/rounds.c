/* Opens, ends and forgets rounds; makes updates of rounds; forms teams; orders updates
 * before their rounds are complete. */
#include "sched/scheme.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rounds --------------------------------------------------------------- */

static void
known_add(struct fal_sched *s, struct fal_round *r)
{
	struct fal_round **first = &s->known[r->id & (s->known_cap - 1)];
	r->chain = *first;
	*first = r;
}

/* Makes room for one more known round, so that a chain has at most one round on
 * average. */
static void
known_grow(struct fal_sched *s)
{
	if (s->knowns < s->known_cap)
		return;
	struct fal_round **old = s->known;
	size_t n = s->known_cap, cap = n > 0 ? n * 2 : 16;
	s->known = fal_xcalloc(cap, sizeof(struct fal_round *));
	s->known_cap = cap;
	for (size_t i = 0; i < n; i++)
		for (struct fal_round *r = old[i], *next; r != NULL; r = next) {
			next = r->chain;
			known_add(s, r);
		}
	free(old);
}

void
fal_round_free(struct fal_round *r)
{
	fal_ledger_free(&r->ledger);
	free(r->held);
	fal_grant_history_free(&r->given);
	free(r->free_task);
	free(r);
}

/* Opens a round of these tasks: the newest round of all, and of its team. */
static void
round_open(struct fal_sched *s, struct fal_team *t, const struct fal_task_range *run)
{
	struct fal_round *r = s->spare; /* with the memory of an earlier round */
	if (r != NULL)
		s->spare = r->next;
	else
		r = fal_xcalloc(1, sizeof(*r));
	fal_ledger_open(&r->ledger, &s->grid, run->clock, run->first, run->count);
	FAL_XGROW(r->held, r->held_cap, run->count);
	fal_grant_history_open(&r->given, run->count);
	FAL_XGROW(r->free_task, r->free_cap, run->count);
	r->info = (struct fal_round_info){
		.clock = run->clock,
		.version = s->version,
		.first_late = FAL_NONE,
		.delta = s->traits.delta,
		.mixed = s->traits.mixed,
		.owner = s->traits.own ? t->id : 0,
		.group = s->traits.groups ? t->id : 0,
		.base = FAL_START_VERSION,
		.steps = 1,
	};
	r->has_ended = false;
	r->completion = FAL_ROUND_INCOMPLETE;
	r->commit = FAL_COMMIT_NONE;
	r->free_n = run->count;
	for (uint32_t i = 0; i < run->count; i++) {
		r->held[i] = NULL;
		r->free_task[i] = run->first + i;
	}
	r->id = s->next_round++;
	r->order = t->begun++;
	r->team = t;
	struct fal_round **end = &t->rounds;
	while (*end != NULL)
		end = &(*end)->next;
	*end = r;
	t->open++;
	r->next = r->newer = NULL;
	r->older = s->newest;
	*(s->newest != NULL ? &s->newest->newer : &s->oldest) = r;
	s->newest = r;
	s->rounds++;
	known_grow(s);
	known_add(s, r);
	s->knowns++;
	s->unplanned += run->count;
	s->first_unplanned = s->first_unplanned != NULL ? s->first_unplanned : r;
	fal_act_emit(s, (struct fal_act){ .kind = FAL_ACT_OPEN, .round = r->id });
}

uint32_t
fal_round_samples(const struct fal_sched *s, const struct fal_round *r)
{
	return fal_grid_range_samples(&s->grid, r->info.clock, r->ledger.first,
				      r->ledger.tasks);
}

uint32_t
fal_round_counted_samples(const struct fal_sched *s, const struct fal_round *r)
{
	return fal_round_samples(s, r) - r->ledger.skipped_samples;
}

double
fal_round_divisor(const struct fal_sched *s, const struct fal_round *r)
{
	const uint32_t skipped = r->ledger.skipped_samples;
	return fal_round_counted_samples(s, r) > 0
		       ? fal_grid_samples(&s->grid, r->info.clock) - skipped
		       : 0;
}

void
fal_round_set_staleness(struct fal_sched *s, struct fal_round *r, uint64_t clocks_ahead)
{
	r->info.stale_clocks = clocks_ahead;
	r->info.stale_updates = s->version - r->info.version;
	struct fal_worker *w =
		r->info.owner != 0 ? fal_worker_find(s, r->info.owner) : NULL;
	if (w != NULL) {
		w->work.stale_clocks = r->info.stale_clocks;
		w->work.stale_updates = r->info.stale_updates;
	}
}

/* Removes the round from the open ones, and takes the round's tasks, contributions and
 * checks from their workers.  The round stays known until round_forget. */
static void
round_close(struct fal_sched *s, struct fal_round *r, double now)
{
	assert(!r->has_ended);
	struct fal_round **at = &r->team->rounds;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	r->team->open -= r->commit != FAL_COMMIT_REPORTED;
	*(r->older != NULL ? &r->older->newer : &s->oldest) = r->newer;
	*(r->newer != NULL ? &r->newer->older : &s->newest) = r->older;
	s->rounds--;
	if (s->first_unplanned == r)
		s->first_unplanned = r->newer;
	r->has_ended = true;
	r->next = s->ended;
	s->ended = r;
	s->unreported -= r->completion == FAL_ROUND_UNREPORTED;
	fal_verify_cancel(s, NULL, r, now);
	s->unplanned -= r->free_n;
	r->free_n = 0;
	for (uint32_t i = 0; i < r->ledger.tasks; i++)
		while (r->held[i] != NULL)
			fal_node_revoke(s, r->held[i], now);
	for (uint32_t i = 0; i < r->ledger.contribs; i++) {
		struct fal_contrib *c = &r->ledger.contrib[i];
		struct fal_worker *w = fal_worker_find(s, c->id.worker);
		if (c->state != FAL_CONTRIB_OPEN || w == NULL)
			continue;
		w->open_contribs--;
		fal_worker_refresh(s, w, now);
	}
}

/* Forgets the ended round that *link points to. */
static void
round_forget(struct fal_sched *s, struct fal_round **link)
{
	struct fal_round *r = *link, **at = &s->known[r->id & (s->known_cap - 1)];
	while (*at != r)
		at = &(*at)->chain;
	*at = r->chain;
	s->knowns--;
	*link = r->next;
	r->next = s->spare;
	s->spare = r;
}

void
fal_sched_forget(struct fal_sched *s)
{
	while (s->ended != NULL)
		round_forget(s, &s->ended);
}

void
fal_sched_forget_round(struct fal_sched *s, uint64_t round)
{
	struct fal_round **link = &s->ended;
	while (*link != NULL && (*link)->id != round)
		link = &(*link)->next;
	if (*link != NULL)
		round_forget(s, link);
}

/* ---- updates -------------------------------------------------------------- */

/* Adds the round to the pending update. */
static void
pending_add(struct fal_sched *s, const struct fal_round *r)
{
	const double of = fal_round_divisor(s, r);
	const double counted = fal_round_counted_samples(s, r);
	s->pending.rounds++;
	s->pending.samples += fal_round_counted_samples(s, r);
	s->pending.share += counted > 0 ? counted / of : 0;
	if (counted > 0 && s->pending.step_samples <= 0)
		s->pending.step_samples = of;
	else if (counted > 0 && s->pending.step_samples != of)
		s->pending.step_samples = (double)s->pending.samples / s->pending.share;
	if (s->pending.rounds == 1 || r->info.clock > s->pending.clock)
		s->pending.clock = r->info.clock;
	struct fal_worker *w = r->info.delta ? fal_worker_find(s, r->info.owner) : NULL;
	if (w != NULL)
		w->collected_round = r->id;
}

void
fal_pending_clear(struct fal_sched *s)
{
	s->pending.rounds = 0;
	s->pending.samples = 0;
	s->pending.share = s->pending.step_samples = 0;
}

void
fal_pending_order_step(struct fal_sched *s, double divisor)
{
	struct fal_act act = { .kind = FAL_ACT_STEP,
			       .clock = s->pending.clock,
			       .own = !s->traits.shared,
			       .divisor = divisor,
			       .clock_part = 1 };
	assert(s->pending.rounds > 0);
	if (s->traits.alone)
		act.clock_part = fal_task_pool_ended_part(&s->pool, s->pending.clock);
	act.version = ++s->version;
	act.over = s->pool.over;
	for (const struct fal_round *r = s->oldest;
	     r != NULL && r->commit != FAL_COMMIT_NONE; r = r->newer)
		act.over++;
	fal_pending_clear(s);
	fal_act_emit(s, act);
}

bool
fal_sched_is_drained(const struct fal_sched *s)
{
	return s->rounds == 0 && s->pending.rounds == 0 &&
	       !(s->traits.waves && s->pool.backs > 0);
}

void
fal_round_end(struct fal_sched *s, struct fal_round *r, struct fal_act end, double now)
{
	const struct fal_task_range run = { r->info.clock, r->ledger.first,
					    r->ledger.tasks };
	struct fal_team *t = r->team;
	round_close(s, r, now);
	fal_round_notify_owner(s, r);
	if (s->conf.is_external) { /* the other scheduler knows which clocks are over */
		fal_team_update(s, t, t->members, t->clock + 1);
	} else if (end.fate == FAL_FATE_RETRY) {
		fal_task_pool_back(&s->pool, &run);
		t->version = UINT64_MAX;
		fal_teams_wake(s);
	} else {
		fal_task_pool_ended(&s->pool, &run);
		fal_team_update(s, t, t->members, t->clock + 1);
	}
	if (end.fate < FAL_FATE_DROP)
		pending_add(s, r);
	else if (s->scheme->round_lost != NULL)
		s->scheme->round_lost(t);
	end.kind = FAL_ACT_END;
	end.round = r->id;
	fal_act_emit(s, end);
}

void
fal_worker_account(struct fal_sched *s, struct fal_worker *w, const struct fal_round *r)
{
	const struct fal_act act = { .kind = FAL_ACT_ACCOUNT,
				     .worker = w->id,
				     .round = r->id,
				     .clock = r->info.clock,
				     .own = r->info.owner != 0 || r->info.group != 0,
				     .work = w->work };
	w->idle_clocks = w->work.share > 0 ? 0 : w->idle_clocks + 1;
	w->work = (struct fal_work){ 0 };
	fal_act_emit(s, act);
}

void
fal_workers_account(struct fal_sched *s, const struct fal_round *r)
{
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++)
		if (!w->has_left)
			fal_worker_account(s, w, r);
}

/* ---- shared rounds: a round is a clock -------------------------------------- */

/* Measures the help in a clock, in seconds: what the clock gained because a worker took
 * tasks of another worker; or what the clock could have gained if tasks of the last
 * worker had moved to the first idle worker.  Moves cost a clock one round trip,
 * whichever worker's tasks move.  So the largest help counts for every worker, unless the
 * worker is more than twice as far away as the helped worker. */
static void
clock_measure_help(struct fal_sched *s, double now)
{
	/* the clocks in the mean, and the first clock, in which no speeds were known */
	enum { CLOCKS = 17 };
	struct fal_worker *last = NULL, *first = NULL, *most_helped = NULL;
	uint32_t sharing = 0;
	if (s->clock_ended_at > 0)
		fal_ewma(&s->clock_s, now - s->clock_ended_at);
	s->clock_ended_at = now;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		if (!fal_worker_active(w) || w->work.share == 0)
			continue;
		sharing++;
		if (last == NULL || w->progress_at > last->progress_at)
			last = w;
		if (w->empty_since >= 0 &&
		    (first == NULL || w->empty_since < first->empty_since))
			first = w;
	}
	if (sharing < 2)
		return;
	if (first != NULL)
		last->help.clock_s =
			fmax(last->help.clock_s,
			     last->progress_at - first->empty_since - first->rtt -
				     fal_task_s(s, first, first->lanes));
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++)
		if (most_helped == NULL || w->help.clock_s > most_helped->help.clock_s)
			most_helped = w;
	const double saved = most_helped->help.clock_s, far = 2 * most_helped->rtt;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		const double help_s = w->rtt <= far ? saved : w->help.clock_s;
		w->help.clock_s = 0;
		if (w->work.share == 0)
			continue;
		w->help.clocks += w->help.clocks < CLOCKS;
		w->help.mean_s += (help_s - w->help.mean_s) / fmax(w->help.clocks - 1, 1);
	}
}

/* Publishes the version of a clock.  Its results must be reported and its step
 * ordered. */
static void
clock_publish(struct fal_sched *s, const struct fal_round *r, double now)
{
	if (s->traits.moves)
		clock_measure_help(s, now);
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		if (w->has_left)
			continue;
		/* The worker has work and no claim yet, so its pull has taken at least
		 * pull_s. */
		if (w->pull_timer.is_running && r->id >= w->pull_timer.round &&
		    fal_worker_active(w) && w->work.share > 0) {
			const double pull_s =
				now - w->pullable_at - fal_task_s(s, w, w->lanes);
			if (pull_s > w->pull.least) {
				w->pull.n = 0;
				fal_window_min_add(&w->pull, pull_s);
			}
			w->pull_timer.is_running = false;
		}
		w->version = s->version;
	}
	/* Late work counts in the account of the next clock; the last clock has no next
	 * clock. */
	if (r->commit == FAL_COMMIT_NONE || r->info.clock + 1 < s->pool.clocks)
		fal_workers_account(s, r);
	fal_act_emit(s, (struct fal_act){ .kind = FAL_ACT_MODEL });
}

void
fal_clock_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	const double samples = fal_round_counted_samples(s, r);
	fal_round_set_staleness(s, r, 0);
	fal_round_end(s, r, end, now);
	fal_pending_order_step(s, samples);
	clock_publish(s, r, now);
}

/* ---- contributions, and tasks without a result ------------------------------- */

void
fal_contrib_fence(struct fal_sched *s, struct fal_round *r, uint32_t ci)
{
	struct fal_ledger *l = &r->ledger;
	const struct fal_contrib *c = &l->contrib[ci];
	const struct fal_worker *w = fal_worker_find(s, c->id.worker);
	struct fal_act act = { .kind = FAL_ACT_FENCE,
			       .worker = c->id.worker,
			       .round = r->id,
			       .cid = c->id };
	if (c->fills != FAL_NONE)
		act.fills = l->contrib[c->fills].id;
	fal_act_emit(s, act);
	/* The fence also calls off tasks of the contribution that have no result yet. */
	for (uint32_t i = c->head; i != FAL_NONE && c->due > 0 && w != NULL;
	     i = l->claim[i].next)
		if (fal_ledger_task(l, l->claim[i].task)->due)
			fal_task_drop(s, r, l->claim[i].task, w);
	fal_ledger_fence(l, ci);
}

void
fal_worker_strip(struct fal_sched *s, struct fal_worker *w, bool wants_revokes,
		 double now)
{
	while (w->head != NULL) {
		struct fal_round *r = w->head->round;
		const uint32_t task = w->head->task;
		fal_node_detach(s, w->head);
		if (wants_revokes)
			fal_task_revoke(s, w, r, task);
		/* A task that was claimed ahead becomes free only when all shards have
		 * fenced its contribution. */
		if (fal_ledger_task(&r->ledger, task)->contrib == FAL_NONE &&
		    fal_task_newest_holder(r, task) == NULL)
			fal_task_release(s, r, task);
	}
	for (uint32_t t = 0; w->evals > 0 && t < s->eval.tasks; t++) {
		if (s->eval.task[t].holder != w->id)
			continue;
		s->eval.task[t].holder = 0;
		s->eval.free[s->eval.free_n++] = t;
		w->evals--;
	}
	fal_verify_cancel(s, w, NULL, now);
	for (struct fal_round *r = s->oldest; r != NULL && w->open_contribs > 0;
	     r = r->newer) {
		const struct fal_ledger *l = &r->ledger;
		for (uint32_t c = fal_ledger_newest(l, w->id); c != FAL_NONE;
		     c = l->contrib[c].older) {
			if (l->contrib[c].state != FAL_CONTRIB_OPEN)
				continue;
			fal_contrib_fence(s, r, c);
			fal_round_notify_owner(s, r);
			w->open_contribs--;
		}
	}
}

/* Skips the task in this round only. */
static void
round_skip_task(struct fal_sched *s, struct fal_round *r, uint32_t task, double now)
{
	struct fal_act act = { .kind = FAL_ACT_SKIP, .round = r->id, .first = task };
	const uint32_t fills = fal_ledger_task(&r->ledger, task)->fills;
	if (fills != FAL_NONE)
		act.fills = r->ledger.contrib[fills].id;
	fal_ledger_skip(&r->ledger, task);
	fal_task_withdraw(s, r, task, now);
	fal_round_notify_owner(s, r);
	fal_act_emit(s, act);
}

void
fal_task_skip(struct fal_sched *s, struct fal_round *r, uint32_t task, double now)
{
	uint32_t kept = 0;
	FAL_XGROW(s->skip, s->skip_cap, (size_t)s->skipped + 1);
	for (uint32_t i = 0; i < s->skipped; i++)
		if (s->skip[i].clock >= s->pool.over)
			s->skip[kept++] = s->skip[i];
	s->skip[kept++] = (struct fal_skip){ r->info.clock, task };
	s->skipped = kept;
	round_skip_task(s, r, task, now);
}

/* ---- teams ---------------------------------------------------------------- */

uint32_t
fal_teams_count_active(const struct fal_sched *s)
{
	if (s->traits.own)
		return s->active;
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->teams; i++)
		n += s->team[i]->members > 0;
	return n;
}

uint64_t
fal_slowest_clock(const struct fal_sched *s, const struct fal_team *but)
{
	bool is_top = but != NULL && fal_heap_top(&s->teams_by_clock) == but->at;
	double least = is_top ? fal_heap_second(&s->teams_by_clock)
			      : fal_heap_min_key(&s->teams_by_clock);
	return isinf(least) ? UINT64_MAX : (uint64_t)least;
}

/* The number of rounds that a team may have open at once. */
static uint32_t
open_rounds_max(const struct fal_sched *s)
{
	return 1 + s->traits.delay + s->traits.overlaps;
}

/* Notes that the team may be able to begin a round, unless one of its rounds must end
 * before. */
static void
team_wake(struct fal_sched *s, const struct fal_team *t)
{
	if (t->members > 0 && t->open < open_rounds_max(s))
		fal_heap_set(&s->teams_awake, t->at, 0);
}

void
fal_teams_wake(struct fal_sched *s)
{
	for (uint32_t i = 0; i < s->teams; i++)
		if (s->team[i] != NULL)
			team_wake(s, s->team[i]);
}

void
fal_team_update(struct fal_sched *s, struct fal_team *t, uint32_t members, uint64_t clock)
{
	uint64_t slowest = fal_slowest_clock(s, NULL);
	if (t->members == 0 && members > 0)
		s->part_teams[t->part]++;
	if (t->members > 0 && members == 0)
		s->part_teams[t->part]--;
	t->members = members;
	t->clock = clock;
	if (members > 0)
		fal_heap_set(&s->teams_by_clock, t->at, (double)clock);
	else
		fal_heap_remove(&s->teams_by_clock, t->at);
	if (s->teams_by_clock.n > 0)
		s->slowest = fal_slowest_clock(s, NULL);
	if (fal_slowest_clock(s, NULL) != slowest)
		fal_teams_wake(s);
	else
		team_wake(s, t);
}

struct fal_team *
fal_team_new(struct fal_sched *s, uint32_t at, uint32_t id)
{
	size_t n = (size_t)at + 1;
	assert(at >= s->teams);
	FAL_XGROW(s->team, s->team_cap, n);
	fal_heap_reserve(&s->teams_by_clock, n);
	fal_heap_reserve(&s->teams_awake, n);
	struct fal_team *t = fal_xcalloc(1, sizeof(*t) + s->scheme->team_state_bytes);
	while (s->teams < at)
		s->team[s->teams++] = NULL;
	*t = (struct fal_team){ .id = id,
				.at = at,
				.clock = s->slowest,
				/* Each shared round made one version. */
				.begun = s->traits.shared ? s->version - s->policy_version
							  : 0,
				.version = UINT64_MAX,
				.state = t + 1 };
	s->team[s->teams++] = t;
	return t;
}

void
fal_team_assign(struct fal_sched *s, struct fal_worker *w)
{
	struct fal_team *t = !s->traits.own && s->teams > 0 ? s->team[0] : NULL;
	if (t == NULL) {
		t = s->traits.own ? fal_team_new(s, fal_worker_slot(s, w), w->id)
				  : fal_team_new(s, 0, s->traits.groups ? 1 : 0);
		/* The part of the data with the fewest teams; the first of equals. */
		for (uint32_t p = 1; p < s->grid.parts; p++)
			if (s->part_teams[p] < s->part_teams[t->part])
				t->part = p;
	}
	w->team = t;
	fal_team_update(s, t, t->members + w->is_counted, t->clock);
}

void
fal_teams_compact(struct fal_sched *s)
{
	uint32_t kept = 0;
	fal_heap_clear(&s->teams_by_clock);
	fal_heap_clear(&s->teams_awake);
	for (uint32_t i = 0; i < s->teams; i++) {
		struct fal_team *t = s->team[i];
		if (t == NULL)
			continue;
		t->at = kept;
		s->team[kept++] = t;
		if (t->members > 0)
			fal_heap_set(&s->teams_by_clock, t->at, (double)t->clock);
	}
	s->teams = kept;
	fal_teams_wake(s);
}

void
fal_teams_free(struct fal_sched *s)
{
	while (s->teams > 0)
		free(s->team[--s->teams]);
	fal_heap_clear(&s->teams_by_clock);
	fal_heap_clear(&s->teams_awake);
	fal_heap_clear(&s->scheme_heap[0]);
	fal_heap_clear(&s->scheme_heap[1]);
	free(s->scheme_state);
	s->scheme_state = NULL;
}

void
fal_teams_form(struct fal_sched *s)
{
	assert(s->rounds == 0 && s->teams == 0);
	s->scheme_state = fal_xcalloc(1, s->scheme->state_bytes);
	if (s->scheme->start != NULL)
		s->scheme->start(s);
	memset(s->part_teams, 0, s->grid.parts * sizeof(*s->part_teams));
	s->slowest = 0;
	s->policy_version = s->version;
	s->policy_clock = fal_task_pool_untouched(&s->pool);
	s->pending.clock = 0;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		w->team = NULL;
		if (!w->has_left)
			fal_team_assign(s, w);
	}
}

void
fal_worker_recount(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_team *t = w->team;
	uint64_t clock = t->clock;
	const bool is_active = fal_worker_active(w);
	const uint32_t members = t->members - w->is_counted + is_active;
	const bool has_shrunk = members < t->members;
	s->active = s->active - w->is_counted + is_active;
	w->is_counted = is_active;
	/* A team that is active again continues at the clock of the slowest other team;
	 * if there is none, at the clock of the last team that was active. */
	if (t->members == 0 && members > 0 && clock < s->slowest)
		clock = s->slowest;
	fal_team_update(s, t, members, clock);
	if (has_shrunk) /* any team may now take tasks of its part of the data */
		fal_teams_wake(s);
	const struct fal_act end = { .fate = FAL_FATE_RETRY,
				     .why = fal_worker_is_suspect(w)
						    ? "its worker is overdue"
						    : "its worker left" };
	while (t->rounds != NULL && members == 0 && !s->traits.shared)
		fal_round_end(s, t->rounds, end, now);
	if (w->has_left) {
		w->team = NULL;
		if (s->traits.own) {
			fal_heap_remove(&s->teams_awake, t->at);
			s->team[t->at] = NULL;
			free(t);
		}
	}
	if (s->scheme->teams_changed != NULL)
		s->scheme->teams_changed(s, now);
	fal_worker_refresh(s, w, now);
}

/* ---- rounds begin ----------------------------------------------------------- */

/* The part of the data from which the team takes tasks: its own part; or the hindmost
 * part, if the own part must wait, or if the hindmost part is further behind and has no
 * team because its worker left. */
static uint32_t
team_next_part(const struct fal_sched *s, const struct fal_team *t)
{
	uint32_t last = s->pool.hindmost;
	uint64_t own = s->pool.part[t->part].clock;
	if (s->grid.parts == 1 || s->pool.part[last].clock >= own)
		return t->part;
	if (own >= s->clock_limit)
		return last;
	return s->part_teams[last] > 0 ? t->part : last;
}

/* The number of first tasks of the run that together have at least `samples` samples; at
 * least one. */
static uint32_t
tasks_covering(const struct fal_sched *s, const struct fal_task_range *run,
	       double samples)
{
	const struct fal_grid *g = &s->grid;
	const double end = fal_grid_samples_before(g, run->clock, run->first) + samples;
	const uint32_t whole = fal_grid_tasks_within(g, run->clock, (uint64_t)end);
	const uint32_t behind =
		whole + (fal_grid_samples_before(g, run->clock, whole) < end);
	return behind > run->first ? behind - run->first : 1;
}

/* Is the team's only worker on probation? */
static bool
team_is_on_probation(const struct fal_sched *s, const struct fal_team *t)
{
	const struct fal_worker *w = fal_probation_worker(s);
	return w != NULL && w->team == t && t->members == 1 && !s->traits.shared;
}

/* The number of tasks of the team's next round. */
static uint32_t
team_round_tasks(const struct fal_sched *s, const struct fal_team *t, uint32_t part)
{
	const struct fal_task_range run = fal_task_pool_left(&s->pool, part);
	const double all = fal_grid_samples(&s->grid, run.clock);
	const double left =
		fal_grid_range_samples(&s->grid, run.clock, run.first, run.count);
	if (s->traits.shared)
		return fal_grid_tasks(&s->grid, run.clock);
	if (s->traits.groups) {
		const double n = all * t->members / s->active;
		const uint32_t one =
			fal_grid_range_samples(&s->grid, run.clock, run.first, 1);
		/* Leaves no rest at the clock's end that is less than half of one
		 * worker's part. */
		const bool is_scrap = left - n < 0.5 * all / s->active;
		return is_scrap ? run.count : tasks_covering(s, &run, n - 0.5 * one);
	}
	if (team_is_on_probation(s, t))
		return 1;
	if (s->scheme->round_tasks != NULL)
		return s->scheme->round_tasks(s, t);
	uint32_t n =
		s->scheme->clock_rounds != NULL ? s->scheme->clock_rounds(s) : s->active;
	/* Cuts the rest of the clock into even pieces, so that no small piece is left at
	 * the end. */
	return tasks_covering(s, &run, left / fmax(round(left * n / all), 1));
}

/* Iterates over the team's active workers; NULL: no more.  `*at` must be 0 at first. */
static struct fal_worker *
team_next_member(const struct fal_sched *s, const struct fal_team *t, uint32_t *at)
{
	if (s->traits.own) {
		struct fal_worker *w = (*at)++ == 0 ? &s->worker[t->at] : NULL;
		return w != NULL && fal_worker_active(w) ? w : NULL;
	}
	while (*at < s->workers) {
		struct fal_worker *w = &s->worker[(*at)++];
		if (w->team == t && fal_worker_active(w))
			return w;
	}
	return NULL;
}

void
fal_worker_pull(struct fal_sched *s, struct fal_worker *w, uint64_t branch_version,
		double now)
{
	w->version = branch_version != 0 ? branch_version : s->version;
	w->pulled_at = fmax(w->pulled_at, now + w->pull.least);
	fal_act_emit(s, (struct fal_act){ .kind = FAL_ACT_MODEL,
					  .worker = w->id,
					  .version = branch_version });
}

/* Are all members barred, because other workers must do the retries in the next round? */
static bool
team_is_barred(const struct fal_sched *s, const struct fal_team *t)
{
	uint32_t at = 0;
	const struct fal_worker *w = s->barred > 0 ? team_next_member(s, t, &at) : NULL;
	while (w != NULL && w->is_barred && !s->traits.own)
		w = team_next_member(s, t, &at);
	return s->barred > 0 && (w == NULL || w->is_barred);
}

/* May the team begin its next round?  With the trait `waves`, no round of the next clock
 * begins while a round of this clock is open or not applied.  While rounds are held, only
 * rounds of a wave under way may begin. */
static bool
team_may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	const uint64_t next = fal_task_pool_next(&s->pool, team_next_part(s, t));
	const uint64_t wave = s->rounds > 0           ? s->oldest->info.clock
			      : s->pending.rounds > 0 ? s->pending.clock
						      : fal_task_pool_first(&s->pool);
	const uint32_t open_max = team_is_on_probation(s, t) ? 1 : open_rounds_max(s);
	return t->members > 0 && t->open < open_max && next < s->clock_limit &&
	       next < s->pool.clocks && !team_is_barred(s, t) &&
	       (!s->is_held || (s->traits.waves && !fal_sched_is_drained(s))) &&
	       (!s->traits.waves || next == wave) &&
	       (s->scheme->may_begin == NULL || s->scheme->may_begin(s, t));
}

static void
team_begin_round(struct fal_sched *s, struct fal_team *t, double now)
{
	struct fal_task_range run;
	bool is_shared = s->traits.shared;
	const uint32_t part = team_next_part(s, t);
	const struct fal_task_range left = fal_task_pool_left(&s->pool, part);
	uint32_t tasks_max = team_round_tasks(s, t, part);
	const uint32_t hindmost = s->pool.hindmost;
	/* The round ends before the next task to be retried. */
	for (uint32_t i = 0; i < s->retries && !is_shared; i++) {
		const uint32_t before = s->retry[i].task - left.first;
		if (s->retry[i].clock == left.clock && before - 1 < tasks_max)
			tasks_max = before;
	}
	if (s->scheme->before_round != NULL)
		s->scheme->before_round(s, t);
	fal_task_pool_take(&s->pool, part, is_shared, tasks_max, &run);
	round_open(s, t, &run);
	/* Any team may begin a round on a part of the data that becomes the hindmost and
	 * has no team. */
	const uint32_t last = s->pool.hindmost;
	if (last != hindmost && s->part_teams[last] == 0)
		fal_teams_wake(s);
	struct fal_round *r = s->newest;
	if (s->scheme->begin_round != NULL)
		s->scheme->begin_round(s, t, r);
	/* Tasks that an earlier round of the clock skipped are skipped here, too. */
	for (uint32_t i = 0; i < s->skipped; i++)
		if (s->skip[i].clock == r->info.clock &&
		    fal_ledger_has(&r->ledger, s->skip[i].task))
			round_skip_task(s, r, s->skip[i].task, 0);
	if (is_shared && s->scheme->set_lanes != NULL)
		s->scheme->set_lanes(s);
	if (is_shared || r->info.base == FAL_START_LOCAL)
		return;
	/* Members that lack the newest version, or that of the team's branch, pull it. */
	t->version = t->branch_version != 0 ? t->branch_version : s->version;
	struct fal_worker *w;
	for (uint32_t at = 0; (w = team_next_member(s, t, &at)) != NULL;)
		if (w->version != t->version)
			fal_worker_pull(s, w, t->branch_version, now);
}

/* Prepares the team's workers for grants of the rounds from `round` on. */
static void
team_refresh(struct fal_sched *s, struct fal_team *t, uint64_t round, double now)
{
	struct fal_worker *w;
	for (uint32_t at = 0; (w = team_next_member(s, t, &at)) != NULL;) {
		/* The worker has to pull the version first, unless the worker has it. */
		if (w->queued == 0 &&
		    (s->traits.shared || w->pull.n == 0 || w->pulled_at > now)) {
			w->pull_timer.is_running = true;
			w->pull_timer.since = now;
			w->pullable_at = INFINITY;
			w->pull_timer.round = round;
			w->pulled_at = now + w->pull.least;
		}
		fal_worker_refresh(s, w, now);
	}
}

void
fal_round_open_external(struct fal_sched *s, const struct fal_external_task *b,
			double now)
{
	const struct fal_task_range run = { b->clock, b->task, 1 };
	struct fal_team *t = s->teams > 0 ? s->team[0] : fal_team_new(s, 0, 0);
	assert(s->traits.shared);
	round_open(s, t, &run);
	s->newest->info.version = b->exponents;
	if (b->version != b->exponents) {
		s->newest->info.first_late = b->task;
		s->newest->info.late_version = b->version;
	}
	team_refresh(s, t, s->newest->id, now);
	if (s->scheme->set_lanes != NULL)
		s->scheme->set_lanes(s);
}

void
fal_teams_begin_rounds(struct fal_sched *s, double now)
{
	uint32_t at;
	while ((at = fal_heap_top(&s->teams_awake)) != FAL_NONE) {
		struct fal_team *t = s->team[at];
		const uint64_t begun = t->begun, first = s->next_round;
		fal_heap_remove(&s->teams_awake, at);
		while (team_may_begin(s, t) && (s->retries == 0 || t->begun == begun))
			team_begin_round(s, t, now);
		if (t->begun == begun)
			continue;
		team_refresh(s, t, first, now);
		if (s->retries > 0) {
			team_wake(s, t);
			return;
		}
	}
}

/* ---- early commits ---------------------------------------------------------- */

/* Early commits: updates that are ordered before their rounds are complete.  When all
 * tasks of a clock are claimed, the contents of its step are known, and do not change any
 * more.  Each shard steps when the shard has all contributions; meanwhile the tasks of
 * the next clock are granted.  If a contribution is lost on its way, its tasks run again
 * and fill it, and the shards wait.  Only rules with the trait `ahead` commit early,
 * because these rules abandon no round (policy.c). */

bool
fal_commits_early(const struct fal_sched *s)
{
	/* Skipped samples are known only when the round is complete. */
	return s->conf.ahead && s->traits.ahead && !s->conf.skips;
}

/* Is the round complete, or are at least all its tasks claimed? */
static bool
round_has_all_claims(const struct fal_round *r)
{
	return r->ledger.claimed == r->ledger.tasks ||
	       r->completion == FAL_ROUND_COMPLETE;
}

/* Rounds commit in order.  A round commits only when the round before is reported. */
void
fal_rounds_commit_early(struct fal_sched *s, double now)
{
	struct fal_round *r = fal_commits_early(s) ? s->oldest : NULL;
	for (; r != NULL; r = r->newer) {
		if (r->commit == FAL_COMMIT_REPORTED)
			continue;
		if (r->commit == FAL_COMMIT_NONE) {
			const uint64_t version = r->info.first_late != FAL_NONE
							 ? r->info.late_version
							 : r->info.version;
			/* Only in the oldest round may tasks that were claimed ahead
			 * still run: else workers would need more versions. */
			if (!round_has_all_claims(r) || version > s->published ||
			    (r->ledger.due > 0 && r != s->oldest))
				break;
			/* Orders the end of the round, and the step that applies the
			 * round. */
			const double samples = fal_round_counted_samples(s, r);
			fal_round_set_staleness(s, r, 0);
			r->commit = FAL_COMMIT_ORDERED;
			pending_add(s, r);
			fal_act_emit(s, (struct fal_act){ .kind = FAL_ACT_END,
							  .fate = FAL_FATE_MERGE,
							  .weight = 1,
							  .round = r->id,
							  .ahead = true });
			fal_pending_order_step(s, samples);
			s->act[s->acts - 1].ahead = true;
		}
		if (r->ledger.due > 0 || !round_has_all_claims(r))
			break;
		r->commit = FAL_COMMIT_REPORTED;
		r->team->open--;
		fal_team_update(s, r->team, r->team->members, r->team->clock + 1);
		clock_publish(s, r, now);
	}
}

void
fal_round_end_committed(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_task_range run = { r->info.clock, r->ledger.first,
					    r->ledger.tasks };
	assert(r->commit == FAL_COMMIT_REPORTED);
	round_close(s, r, now);
	fal_task_pool_ended(&s->pool, &run);
	if (r->info.clock + 1 == s->pool.clocks)
		fal_workers_account(s, r);
}

uint64_t
fal_sched_oldest_read_version(const struct fal_sched *s, uint64_t version)
{
	/* If any round is committed, the oldest round is, and has the oldest version. */
	const struct fal_round *r = s->oldest;
	return r != NULL && r->commit != FAL_COMMIT_NONE && r->info.version < version
		       ? r->info.version
		       : version;
}
