/* Rounds: opened, found, ended; the teams that have them, and when they begin one; rounds
 * whose end is ordered before they are complete. */
#include "sched/scheme.h"

#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- rounds --------------------------------------------------------------- */

/* The start of the chain of round `id`. */
static struct fal_round **
chain(const struct fal_sched *s, uint64_t id)
{
	return &s->known[id & (s->known_cap - 1)];
}

struct fal_round *
fal_round_known(const struct fal_sched *s, uint64_t id)
{
	struct fal_round *r = s->knowns > 0 ? *chain(s, id) : NULL;
	while (r != NULL && r->id != id)
		r = r->chain;
	return r;
}

struct fal_round *
fal_round_find(const struct fal_sched *s, uint64_t id)
{
	struct fal_round *r = fal_round_known(s, id);
	return r != NULL && !r->ended ? r : NULL;
}

static void
learn(struct fal_sched *s, struct fal_round *r)
{
	struct fal_round **first = chain(s, r->id);
	r->chain = *first;
	*first = r;
}

/* Room for one more that is known: chains are one round long. */
static void
grow_known(struct fal_sched *s)
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
			learn(s, r);
		}
	free(old);
}

void
fal_round_free(struct fal_round *r)
{
	fal_ledger_free(&r->ledger);
	free(r->held);
	fal_grant_history_free(&r->given);
	free(r->granted);
	free(r->free_task);
	free(r);
}

/* Everything is as in a new round; the memory stays. */
static void
clear(const struct fal_sched *s, struct fal_round *r, const struct fal_run_of *run)
{
	fal_ledger_open(&r->ledger, &s->grid, run->clock, run->first, run->count);
	FAL_XGROW(r->held, r->held_cap, run->count);
	fal_grant_history_open(&r->given, run->count);
	FAL_XGROW(r->granted, r->granted_cap, run->count);
	FAL_XGROW(r->free_task, r->free_cap, run->count);
	r->clock = run->clock;
	r->complete = r->ended = r->unreported = false;
	r->armed = r->passed = false;
	r->late = FAL_NONE;
	r->base = FAL_START_VERSION;
	r->steps = 1;
	r->since = r->taken = 0;
	r->local = 0;
	r->stale_clocks = r->stale_updates = 0;
	r->free_n = run->count;
	for (uint32_t i = 0; i < run->count; i++) {
		r->held[i] = NULL;
		r->granted[i] = false;
		r->free_task[i] = run->first + i;
	}
}

/* The newest of all, and of its team. */
static void
append(struct fal_sched *s, struct fal_round *r)
{
	struct fal_round **end = &r->team->rounds;
	while (*end != NULL)
		end = &(*end)->next;
	*end = r;
	r->team->open++;
	r->next = r->newer = NULL;
	r->older = s->newest;
	*(s->newest != NULL ? &s->newest->newer : &s->oldest) = r;
	s->newest = r;
	s->rounds++;
	learn(s, r);
	s->knowns++;
}

static void
round_open(struct fal_sched *s, struct fal_team *t, const struct fal_run_of *run)
{
	grow_known(s);
	struct fal_round *r = s->spare;
	if (r != NULL)
		s->spare = r->next;
	else
		r = fal_xcalloc(1, sizeof(*r));
	clear(s, r, run);
	r->id = s->next_round++;
	r->order = t->begun++;
	r->team = t;
	r->owner = s->is.own ? t->id : 0;
	r->group = s->is.groups ? t->id : 0;
	r->delta = s->is.delta;
	r->mixed = s->is.mixed;
	r->version = s->version;
	append(s, r);
	s->unplanned += run->count;
	s->needy = s->needy != NULL ? s->needy : r;
	struct fal_act act = { .kind = FAL_ACT_OPEN, .round = r->id };
	fal_act_emit(s, act);
}

uint32_t
fal_round_samples(const struct fal_sched *s, const struct fal_round *r)
{
	return fal_grid_range_samples(&s->grid, r->clock, r->ledger.first,
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
	const uint32_t counted = fal_round_counted_samples(s, r);
	const uint32_t skipped = fal_round_samples(s, r) - counted;
	return counted > 0 ? fal_grid_samples(&s->grid, r->clock) - skipped : 0;
}

void
fal_round_set_staleness(struct fal_sched *s, struct fal_round *r, uint64_t behind)
{
	r->stale_clocks = behind;
	r->stale_updates = s->version - r->version;
	struct fal_worker *w = r->owner != 0 ? fal_worker_find(s, r->owner) : NULL;
	if (w != NULL) {
		w->work.stale_clocks = r->stale_clocks;
		w->work.stale_updates = r->stale_updates;
	}
}

/* Takes what is held of the round away from whoever holds it. */
static void
take_all(struct fal_sched *s, struct fal_round *r, double now)
{
	for (uint32_t i = 0; i < r->ledger.tasks; i++)
		while (r->held[i] != NULL)
			fal_node_revoke(s, r->held[i], now);
	for (uint32_t i = 0; i < r->ledger.contribs; i++) {
		struct fal_contrib *c = &r->ledger.contrib[i];
		struct fal_worker *w = fal_worker_find(s, c->id.worker);
		if (c->state != FAL_CONTRIB_OPEN || w == NULL)
			continue;
		w->owed--;
		fal_worker_refresh(s, w, now);
	}
}

/* No open round any more, but known until it is forgotten. */
static void
unlink_round(struct fal_sched *s, struct fal_round *r)
{
	struct fal_round **at = &r->team->rounds;
	while (*at != r)
		at = &(*at)->next;
	*at = r->next;
	r->team->open -= !r->passed;
	*(r->older != NULL ? &r->older->newer : &s->oldest) = r->newer;
	*(r->newer != NULL ? &r->newer->older : &s->newest) = r->older;
	s->rounds--;
	if (s->needy == r)
		s->needy = r->newer;
	r->ended = true;
	r->next = s->ended;
	s->ended = r;
}

/* The round is over. */
static void
close_round(struct fal_sched *s, struct fal_round *r, double now)
{
	assert(!r->ended);
	unlink_round(s, r);
	s->unreported -= r->unreported;
	r->unreported = false;
	fal_verify_cancel(s, NULL, r, now);
	s->unplanned -= r->free_n;
	r->free_n = 0;
	take_all(s, r, now);
}

/* Counts the round into the next update. */
static void
collected(struct fal_sched *s, const struct fal_round *r)
{
	const double of = fal_round_divisor(s, r), counted = fal_round_counted_samples(s, r);
	s->merged++;
	s->merged_samples += fal_round_counted_samples(s, r);
	s->merged_share += counted > 0 ? counted / of : 0;
	if (counted > 0 && s->merged_of <= 0)
		s->merged_of = of;
	else if (counted > 0 && s->merged_of != of)
		s->merged_of = (double)s->merged_samples / s->merged_share;
	if (s->merged == 1 || r->clock > s->merged_clock)
		s->merged_clock = r->clock;
	struct fal_worker *w = r->delta ? fal_worker_find(s, r->owner) : NULL;
	if (w != NULL)
		w->included = r->id;
}

void
fal_round_end(struct fal_sched *s, struct fal_round *r, struct fal_act end, double now)
{
	const struct fal_run_of run = { r->clock, r->ledger.first, r->ledger.tasks };
	struct fal_team *t = r->team;
	close_round(s, r, now);
	fal_round_notify_owner(s, r);
	if (s->conf.brought) { /* the clocks are another's */
		fal_team_update(s, t, t->members, t->clock + 1);
	} else if (end.fate == FAL_FATE_ABANDON) {
		fal_pool_back(&s->pool, &run);
		t->version = UINT64_MAX;
		fal_teams_wake(s);
	} else {
		fal_pool_ended(&s->pool, &run);
		fal_team_update(s, t, t->members, t->clock + 1);
	}
	if (end.fate >= FAL_FATE_DROP && s->scheme->lost != NULL)
		s->scheme->lost(t);
	if (end.fate < FAL_FATE_DROP)
		collected(s, r);
	end.kind = FAL_ACT_END;
	end.round = r->id;
	fal_act_emit(s, end);
}

void
fal_pending_clear(struct fal_sched *s)
{
	s->merged = 0;
	s->merged_samples = 0;
	s->merged_share = s->merged_of = 0;
}

void
fal_pending_apply(struct fal_sched *s, double divisor)
{
	struct fal_act act = { .kind = FAL_ACT_STEP,
			       .clock = s->merged_clock,
			       .own = !s->is.shared,
			       .divisor = divisor,
			       .in = 1 };
	assert(s->merged > 0);
	if (s->is.alone)
		act.in = fal_pool_ended_part(&s->pool, s->merged_clock);
	act.version = ++s->version;
	act.over = s->pool.over;
	for (const struct fal_round *r = s->oldest; r != NULL && r->armed; r = r->newer)
		act.over++;
	fal_pending_clear(s);
	fal_act_emit(s, act);
}

void
fal_worker_account(struct fal_sched *s, struct fal_worker *w, const struct fal_round *r)
{
	struct fal_act act = { .kind = FAL_ACT_ACCOUNT, .worker = w->id };
	act.round = r->id;
	act.clock = r->clock;
	act.own = r->owner != 0 || r->group != 0;
	if (w->work.share > 0)
		w->standby = 0;
	else
		w->standby++;
	act.work = w->work;
	w->work = (struct fal_work){ 0 };
	fal_act_emit(s, act);
}

void
fal_workers_account(struct fal_sched *s, const struct fal_round *r)
{
	for (uint32_t i = 0; i < s->workers; i++)
		if (!s->worker[i].gone)
			fal_worker_account(s, &s->worker[i], r);
}

/* The ended round that *link leads to is known no more. */
static void
forget(struct fal_sched *s, struct fal_round **link)
{
	struct fal_round *r = *link, **at = chain(s, r->id);
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
		forget(s, &s->ended);
}

void
fal_sched_forget_round(struct fal_sched *s, uint64_t round)
{
	struct fal_round **link = &s->ended;
	while (*link != NULL && (*link)->id != round)
		link = &(*link)->next;
	if (*link != NULL)
		forget(s, link);
}

void
fal_task_release(struct fal_sched *s, struct fal_round *r, uint32_t task)
{
	FAL_XGROW(r->free_task, r->free_cap, (size_t)r->free_n + 1);
	r->free_task[r->free_n++] = task;
	s->unplanned++;
	if (s->needy == NULL || r->id < s->needy->id)
		s->needy = r;
}

/* ---- teams ---------------------------------------------------------------- */

uint32_t
fal_teams_count_active(const struct fal_sched *s)
{
	if (s->is.own)
		return s->active;
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->teams; i++)
		n += s->team[i]->members > 0;
	return n;
}

uint64_t
fal_slowest_clock(const struct fal_sched *s, const struct fal_team *but)
{
	bool others = but != NULL && fal_heap_top(&s->behind) == but->at;
	double least = others ? fal_heap_second(&s->behind) : fal_heap_least(&s->behind);
	return isinf(least) ? UINT64_MAX : (uint64_t)least;
}

struct fal_worker *
fal_team_worker(const struct fal_sched *s, const struct fal_team *t)
{
	return s->is.own ? &s->worker[t->at] : NULL;
}

/* Rounds that a team may have open at once. */
static uint32_t
most_open(const struct fal_sched *s)
{
	return s->scheme->ahead != NULL ? s->scheme->ahead(s) : 1;
}

/* The team may be able to begin a round, if there is none that must end first. */
static void
wake(struct fal_sched *s, const struct fal_team *t)
{
	if (t->members > 0 && t->open < most_open(s))
		fal_heap_set(&s->eager, t->at, 0);
}

void
fal_teams_wake(struct fal_sched *s)
{
	for (uint32_t i = 0; i < s->teams; i++)
		if (s->team[i] != NULL)
			wake(s, s->team[i]);
}

void
fal_team_update(struct fal_sched *s, struct fal_team *t, uint32_t members, uint64_t clock)
{
	uint64_t slowest = fal_slowest_clock(s, NULL);
	if (t->members == 0 && members > 0)
		s->manned[t->part]++;
	if (t->members > 0 && members == 0)
		s->manned[t->part]--;
	t->members = members;
	t->clock = clock;
	if (members > 0)
		fal_heap_set(&s->behind, t->at, (double)clock);
	else
		fal_heap_remove(&s->behind, t->at);
	if (s->behind.n > 0)
		s->slowest = fal_slowest_clock(s, NULL);
	if (fal_slowest_clock(s, NULL) != slowest)
		fal_teams_wake(s);
	else
		wake(s, t);
}

struct fal_team *
fal_team_new(struct fal_sched *s, uint32_t at, uint32_t id)
{
	size_t n = (size_t)at + 1;
	assert(at >= s->teams);
	FAL_XGROW(s->team, s->team_cap, n);
	fal_heap_reserve(&s->behind, n);
	fal_heap_reserve(&s->eager, n);
	struct fal_team *t = fal_xcalloc(1, sizeof(*t) + s->scheme->team_own);
	while (s->teams < at)
		s->team[s->teams++] = NULL;
	*t = (struct fal_team){ .id = id,
				.at = at,
				.clock = s->slowest,
				/* Shared rounds: each was a version. */
				.begun = s->is.shared ? s->version - s->first : 0,
				.version = UINT64_MAX,
				.own = t + 1 };
	s->team[s->teams++] = t;
	return t;
}

/* The part of the data that the fewest teams have. */
static uint32_t
least_used_part(const struct fal_sched *s)
{
	uint32_t best = 0, least = UINT32_MAX;
	for (uint32_t p = 0; p < s->grid.parts; p++)
		if (s->manned[p] < least) {
			least = s->manned[p];
			best = p;
		}
	return best;
}

void
fal_team_assign(struct fal_sched *s, struct fal_worker *w)
{
	struct fal_team *t = !s->is.own && s->teams > 0 ? s->team[0] : NULL;
	if (t == NULL) {
		t = s->is.own ? fal_team_new(s, fal_worker_slot(s, w), w->id)
			      : fal_team_new(s, 0, s->is.groups ? 1 : 0);
		t->part = least_used_part(s);
	}
	w->team = t;
	fal_team_update(s, t, t->members + w->counted, t->clock);
}

void
fal_teams_compact(struct fal_sched *s)
{
	uint32_t kept = 0;
	fal_heap_clear(&s->behind);
	fal_heap_clear(&s->eager);
	for (uint32_t i = 0; i < s->teams; i++) {
		struct fal_team *t = s->team[i];
		if (t == NULL)
			continue;
		t->at = kept;
		s->team[kept++] = t;
		if (t->members > 0)
			fal_heap_set(&s->behind, t->at, (double)t->clock);
	}
	s->teams = kept;
	fal_teams_wake(s);
}

void
fal_teams_free(struct fal_sched *s)
{
	while (s->teams > 0)
		free(s->team[--s->teams]);
	fal_heap_clear(&s->behind);
	fal_heap_clear(&s->eager);
	fal_heap_clear(&s->own_heap[0]);
	fal_heap_clear(&s->own_heap[1]);
	free(s->own);
	s->own = NULL;
}

void
fal_teams_form(struct fal_sched *s)
{
	const struct fal_scheme *is = s->scheme;
	assert(s->rounds == 0 && s->teams == 0);
	s->own = fal_xcalloc(1, is->own);
	if (is->form != NULL)
		is->form(s);
	memset(s->manned, 0, s->grid.parts * sizeof(*s->manned));
	s->slowest = 0;
	s->first = s->version;
	s->whole = fal_pool_untouched(&s->pool);
	s->merged_clock = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		w->team = NULL;
		if (!w->gone)
			fal_team_assign(s, w);
	}
}

void
fal_team_changed(struct fal_sched *s, struct fal_worker *w, uint32_t members, double now)
{
	struct fal_team *t = w->team;
	uint64_t clock = t->clock;
	bool came = t->members == 0 && members > 0, went = members < t->members;
	/* Whoever was away is as far as the slowest of the others, or as these were when
	 * the last one went. */
	if (came && clock < s->slowest)
		clock = s->slowest;
	fal_team_update(s, t, members, clock);
	if (went) /* its part of the data is anybody's */
		fal_teams_wake(s);
	bool ends = members == 0 && !s->is.shared;
	const struct fal_act end = { .fate = FAL_FATE_ABANDON,
				     .why = w->suspected ? "its worker is overdue"
							 : "its worker left" };
	while (t->rounds != NULL && ends)
		fal_round_end(s, t->rounds, end, now);
	if (w->gone) {
		w->team = NULL;
		if (s->is.own) {
			fal_heap_remove(&s->eager, t->at);
			s->team[t->at] = NULL;
			free(t);
		}
	}
	if (s->scheme->changed != NULL)
		s->scheme->changed(s, now);
}

/* The part of the data that the team takes from: its own, unless that must wait, or one
 * that nobody has, whose worker left, is further behind. */
static uint32_t
part_of(const struct fal_sched *s, const struct fal_team *t)
{
	uint32_t last = fal_pool_hindmost(&s->pool);
	uint64_t own = s->pool.part[t->part].clock;
	if (s->grid.parts == 1 || s->pool.part[last].clock >= own)
		return t->part;
	if (own >= s->allowed)
		return last;
	return s->manned[last] > 0 ? t->part : last;
}

uint64_t
fal_team_next_clock(const struct fal_sched *s, const struct fal_team *t)
{
	return fal_pool_next(&s->pool, part_of(s, t));
}

/* The fewest tasks from the run's first on that have so many samples; at least one. */
static uint32_t
covering(const struct fal_sched *s, const struct fal_run_of *run, double samples)
{
	const struct fal_grid *g = &s->grid;
	const double end = fal_grid_before(g, run->clock, run->first) + samples;
	const uint32_t whole = fal_grid_within(g, run->clock, (uint64_t)end);
	const uint32_t behind = whole + (fal_grid_before(g, run->clock, whole) < end);
	return behind > run->first ? behind - run->first : 1;
}

/* How many tasks a round of the team gets. */
static uint32_t
size_of(const struct fal_sched *s, const struct fal_team *t, uint32_t part)
{
	const struct fal_run_of run = fal_pool_left(&s->pool, part);
	const double all = fal_grid_samples(&s->grid, run.clock);
	const double left =
		fal_grid_range_samples(&s->grid, run.clock, run.first, run.count);
	if (s->is.shared)
		return fal_grid_tasks(&s->grid, run.clock);
	if (s->is.groups) {
		const double n = all * t->members / s->active;
		const uint32_t one =
			fal_grid_range_samples(&s->grid, run.clock, run.first, 1);
		/* No scrap at the clock's end: less than half of one worker's part. */
		const bool scrap = left - n < 0.5 * all / s->active;
		return scrap ? run.count : covering(s, &run, n - 0.5 * one);
	}
	if (fal_trial_of(s, t))
		return 1;
	if (s->scheme->tasks != NULL)
		return s->scheme->tasks(s, t);
	uint32_t n = s->scheme->among != NULL ? s->scheme->among(s) : s->active;
	/* Even pieces of what is left of the clock: no small one at its end. */
	return covering(s, &run, left / fmax(round(left * n / all), 1));
}

/* The team's active workers one after the other, NULL at the end; `*at` is 0 first. */
static struct fal_worker *
next_member(const struct fal_sched *s, const struct fal_team *t, uint32_t *at)
{
	if (s->is.own) {
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
fal_worker_pull(struct fal_sched *s, struct fal_worker *w, uint64_t line, double now)
{
	w->version = line != 0 ? line : s->version;
	w->ready = fmax(w->ready, now + w->pull.s);
	fal_act_emit(s, (struct fal_act){
			    .kind = FAL_ACT_MODEL, .worker = w->id, .version = line });
}

/* Sends the newest version, or that of the team's line, to the members that lack it. */
static void
pull(struct fal_sched *s, struct fal_team *t, double now)
{
	uint64_t newest = t->line != 0 ? t->line : s->version;
	struct fal_worker *w;
	for (uint32_t at = 0; (w = next_member(s, t, &at)) != NULL;) {
		if (w->version != newest)
			fal_worker_pull(s, w, t->line, now);
	}
	t->version = newest;
}

/* Is it for others to decide of what would be handed out to it? */
static bool
is_barred(const struct fal_sched *s, const struct fal_team *t)
{
	uint32_t at = 0;
	const struct fal_worker *w = s->barred > 0 ? next_member(s, t, &at) : NULL;
	while (w != NULL && w->barred && !s->is.own)
		w = next_member(s, t, &at);
	return s->barred > 0 && (w == NULL || w->barred);
}

static bool
may_begin(const struct fal_sched *s, const struct fal_team *t)
{
	uint64_t next = fal_team_next_clock(s, t);
	uint32_t ahead = fal_trial_of(s, t) ? 1 : most_open(s);
	return t->members > 0 && t->open < ahead && next < s->allowed &&
	       next < s->pool.clocks && !is_barred(s, t) &&
	       (!s->held ||
		(s->scheme->under_way != NULL && s->scheme->under_way(s, t))) &&
	       (s->scheme->may_begin == NULL || s->scheme->may_begin(s, t));
}

static void
begin(struct fal_sched *s, struct fal_team *t, double now)
{
	struct fal_run_of run;
	bool whole = s->is.shared;
	uint32_t part = part_of(s, t), most = size_of(s, t, part);
	const uint32_t hindmost = fal_pool_hindmost(&s->pool);
	if (s->scheme->prepare != NULL)
		s->scheme->prepare(s, t);
	fal_pool_take(&s->pool, part, whole, most, &run);
	round_open(s, t, &run);
	/* Anybody may begin on a part that is the hindmost now and that nobody has. */
	const uint32_t last = fal_pool_hindmost(&s->pool);
	if (last != hindmost && s->manned[last] == 0)
		fal_teams_wake(s);
	struct fal_round *r = s->newest;
	if (s->scheme->begin != NULL)
		s->scheme->begin(s, t, r);
	fal_round_skip_known(s, r);
	if (!whole && r->base != FAL_START_LOCAL)
		pull(s, t, now);
	if (whole && s->scheme->lanes != NULL)
		s->scheme->lanes(s);
}

/* The team's workers are about to get new work, of the rounds from this one on. */
static void
refresh_members(struct fal_sched *s, struct fal_team *t, uint64_t round, double now)
{
	struct fal_worker *w;
	for (uint32_t at = 0; (w = next_member(s, t, &at)) != NULL;) {
		/* The worker has to pull first, unless it has the version. */
		if (w->queued == 0 &&
		    (s->is.shared || w->pull.n == 0 || w->ready > now)) {
			w->fresh = true;
			w->given_at = now;
			w->pulls_from = INFINITY;
			w->given_of = round;
			w->ready = now + w->pull.s;
		}
		fal_worker_refresh(s, w, now);
	}
}

void
fal_round_open_external(struct fal_sched *s, const struct fal_bring *b, double now)
{
	const struct fal_run_of run = { b->clock, b->task, 1 };
	struct fal_team *t = s->teams > 0 ? s->team[0] : fal_team_new(s, 0, 0);
	assert(s->is.shared);
	round_open(s, t, &run);
	s->newest->version = b->exponents;
	if (b->version != b->exponents) {
		s->newest->late = b->task;
		s->newest->after = b->version;
	}
	refresh_members(s, t, s->newest->id, now);
	if (s->scheme->lanes != NULL)
		s->scheme->lanes(s);
}

void
fal_teams_begin_rounds(struct fal_sched *s, double now)
{
	uint32_t at;
	while ((at = fal_heap_top(&s->eager)) != FAL_NONE) {
		struct fal_team *t = s->team[at];
		const uint64_t begun = t->begun, first = s->next_round;
		fal_heap_remove(&s->eager, at);
		while (may_begin(s, t))
			begin(s, t, now);
		if (t->begun > begun)
			refresh_members(s, t, first, now);
	}
}

/* ---- ahead ---------------------------------------------------------------- */

/* Updates that are ordered before their rounds are complete: when all of a clock is
 * claimed, what its step is made of is known, and stays so.  Each shard steps when it has
 * all of it, and the next clock is handed out meanwhile.  Whatever happens to a
 * contribution on its way, its tasks are run again and fill it: the shards wait.  Under
 * the law only (policy.c), where no round is abandoned. */

bool
fal_commits_early(const struct fal_sched *s)
{
	/* Samples that are skipped are known when all is complete. */
	return s->conf.ahead && s->is.ahead && !s->conf.skips;
}

/* Is all of it claimed, or has it come although claims were lost again? */
static bool
has_all(const struct fal_round *r)
{
	return r->ledger.claimed == r->ledger.tasks || r->complete;
}

/* Are all tasks of the round claimed, by workers that had its version?  Tasks that were
 * claimed as they were granted may still be at work in the oldest round alone: workers
 * would need more versions else. */
static bool
can_arm(const struct fal_sched *s, const struct fal_round *r)
{
	return has_all(r) && (r->ledger.due == 0 || r == s->oldest) &&
	       s->published >= (r->late != FAL_NONE ? r->after : r->version);
}

/* Orders the round's end, and the step that it goes into. */
static void
arm(struct fal_sched *s, struct fal_round *r)
{
	const double samples = fal_round_counted_samples(s, r);
	fal_round_set_staleness(s, r, 0);
	r->armed = true;
	collected(s, r);
	fal_act_emit(s, (struct fal_act){ .kind = FAL_ACT_END,
				      .fate = FAL_FATE_MERGE,
				      .weight = 1,
				      .round = r->id,
				      .ahead = true });
	fal_pending_apply(s, samples);
	s->act[s->acts - 1].ahead = true;
}

/* All of an armed round is reported: its team may begin another in its place. */
static void
pass(struct fal_sched *s, struct fal_round *r)
{
	struct fal_team *t = r->team;
	assert(r->armed && !r->passed);
	r->passed = true;
	t->open--;
	fal_team_update(s, t, t->members, t->clock + 1);
}

/* In the order of rounds, as their updates are: each is armed, and passes when all of it
 * is reported, as the next one may then, too. */
void
fal_rounds_commit_early(struct fal_sched *s, double now)
{
	struct fal_round *r = fal_commits_early(s) ? s->oldest : NULL;
	for (; r != NULL && (r->armed || can_arm(s, r)); r = r->newer) {
		if (!r->armed)
			arm(s, r);
		if (r->passed)
			continue;
		if (r->ledger.due > 0 || !has_all(r))
			break;
		pass(s, r);
		fal_clock_publish(s, r, now);
	}
}

void
fal_sched_stepped(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || !r->armed || r->passed || r->complete)
		return;
	r->complete = true;
	fal_sched_settle(s, now);
}

void
fal_sched_made(struct fal_sched *s, double now, uint64_t round)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || !r->passed)
		return;
	const struct fal_run_of run = { r->clock, r->ledger.first, r->ledger.tasks };
	close_round(s, r, now);
	fal_pool_ended(&s->pool, &run);
	if (r->clock + 1 == s->pool.clocks)
		fal_workers_account(s, r);
	fal_sched_settle(s, now);
}

uint64_t
fal_sched_read(const struct fal_sched *s, uint64_t version)
{
	/* An armed round is the oldest, and has the oldest version. */
	const struct fal_round *r = s->oldest;
	return r != NULL && r->armed && r->version < version ? r->version : version;
}

const struct fal_round *
fal_oldest_unfinished_round(const struct fal_sched *s)
{
	const struct fal_round *r = s->oldest;
	while (r != NULL && r->passed && r->ledger.claimed == r->ledger.tasks)
		r = r->newer;
	return r;
}
