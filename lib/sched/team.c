/* Teams: who works for whom, and when a round begins. */
#include "sched/team.h"

#include "base/mem.h"
#include "sched/queue.h"
#include "sched/retry.h"
#include "sched/round.h"
#include "sched/scheme.h"
#include "sched/trial.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

uint32_t
fal_teams_active(const struct fal_sched *s)
{
	if (s->is.own)
		return s->active;
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->teams; i++)
		n += s->team[i]->members > 0;
	return n;
}

uint64_t
fal_slowest(const struct fal_sched *s, const struct fal_team *but)
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

/* It may be able to begin a round, if it has none that it must end first. */
static void
wake(struct fal_sched *s, const struct fal_team *t)
{
	if (t->members > 0 && t->open < s->scheme->ahead(s))
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
fal_team_set(struct fal_sched *s, struct fal_team *t, uint32_t members, uint64_t clock)
{
	uint64_t slowest = fal_slowest(s, NULL);
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
		s->slowest = fal_slowest(s, NULL);
	if (fal_slowest(s, NULL) != slowest)
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
fal_team_join(struct fal_sched *s, struct fal_worker *w)
{
	struct fal_team *t = !s->is.own && s->teams > 0 ? s->team[0] : NULL;
	if (t == NULL) {
		t = s->is.own ? fal_team_new(s, fal_slot(s, w), w->id)
			      : fal_team_new(s, 0, s->is.groups ? 1 : 0);
		t->part = least_used_part(s);
	}
	w->team = t;
	fal_team_set(s, t, t->members + w->counted, t->clock);
}

static void
free_team(struct fal_sched *s, struct fal_team *t)
{
	fal_heap_remove(&s->eager, t->at);
	s->team[t->at] = NULL;
	free(t);
}

void
fal_teams_close_up(struct fal_sched *s)
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
fal_teams_end(struct fal_sched *s)
{
	while (s->teams > 0)
		free(s->team[--s->teams]);
	fal_heap_clear(&s->behind);
	fal_heap_clear(&s->eager);
	if (s->own != NULL && s->scheme->leave != NULL)
		s->scheme->leave(s);
	free(s->own);
	s->own = NULL;
}

void
fal_teams_form(struct fal_sched *s)
{
	const struct fal_scheme *is = s->scheme;
	assert(s->rounds == 0 && s->teams == 0);
	s->own = fal_xcalloc(1, is->own);
	if (is->reserve != NULL)
		is->reserve(s, s->worker_cap);
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
			fal_team_join(s, w);
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
	fal_team_set(s, t, members, clock);
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
		if (s->is.own)
			free_team(s, t);
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
fal_team_next(const struct fal_sched *s, const struct fal_team *t)
{
	return fal_pool_next(&s->pool, part_of(s, t));
}

/* How many tasks a round of the team gets. */
static uint32_t
size_of(const struct fal_sched *s, const struct fal_team *t, uint32_t part)
{
	uint32_t k = fal_grid_tasks(&s->grid, fal_pool_next(&s->pool, part));
	if (s->is.shared)
		return k;
	if (s->is.groups) {
		double n = fmax(round((double)k * t->members / s->active), 1);
		uint32_t left = fal_pool_left(&s->pool, part);
		/* No scrap at the clock's end: less than half of one worker's part. */
		bool scrap = left - n < 0.5 * k / s->active;
		return scrap ? left : (uint32_t)n;
	}
	if (fal_trial_of(s, t))
		return 1;
	uint32_t n = s->scheme->among != NULL ? s->scheme->among(s) : s->active;
	/* Even pieces of what is left of the clock: no small one at its end. */
	uint32_t left = fal_pool_left(&s->pool, part);
	double pieces = fmax(round((double)left * n / k), 1);
	return (uint32_t)ceil(left / pieces);
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

/* Those of the team who have it not are sent the newest version, or that of its line. */
static void
pull(struct fal_sched *s, struct fal_team *t)
{
	uint64_t newest = t->line != 0 ? t->line : s->version;
	struct fal_worker *w;
	for (uint32_t at = 0; (w = next_member(s, t, &at)) != NULL;) {
		if (w->version == newest)
			continue;
		struct fal_act act = { .kind = FAL_ACT_MODEL, .worker = w->id };
		act.version = t->line;
		w->version = newest;
		fal_emit(s, act);
	}
	t->version = newest;
}

/* Tasks were taken, when part `hindmost` was the hindmost: anybody may begin on a part
 * that is the hindmost now and that nobody has. */
static void
wake_others(struct fal_sched *s, uint32_t hindmost)
{
	uint32_t last = fal_pool_hindmost(&s->pool);
	if (last != hindmost && s->manned[last] == 0)
		fal_teams_wake(s);
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
	uint64_t next = fal_team_next(s, t);
	uint32_t ahead = fal_trial_of(s, t) ? 1 : s->scheme->ahead(s);
	return t->members > 0 && t->open < ahead && next < s->allowed &&
	       next < s->pool.clocks && !is_barred(s, t) &&
	       (!s->held ||
		(s->scheme->under_way != NULL && s->scheme->under_way(s, t))) &&
	       (s->scheme->may_begin == NULL || s->scheme->may_begin(s, t));
}

static void
begin(struct fal_sched *s, struct fal_team *t)
{
	struct fal_run_of run;
	bool whole = s->is.shared;
	uint32_t part = part_of(s, t), most = size_of(s, t, part);
	uint32_t hindmost = fal_pool_hindmost(&s->pool);
	if (s->scheme->prepare != NULL)
		s->scheme->prepare(s, t);
	fal_pool_take(&s->pool, part, whole, most, &run);
	fal_round_open(s, t, &run);
	wake_others(s, hindmost);
	struct fal_round *r = s->newest;
	if (s->scheme->begin != NULL)
		s->scheme->begin(s, t, r);
	fal_skip_again(s, r);
	if (!whole && r->base != FAL_START_LOCAL)
		pull(s, t);
	if (whole && s->scheme->lanes != NULL)
		s->scheme->lanes(s);
}

/* The team's workers are about to get new work, of the rounds from this one on. */
static void
refresh_members(struct fal_sched *s, struct fal_team *t, uint64_t round, double now)
{
	struct fal_worker *w;
	for (uint32_t at = 0; (w = next_member(s, t, &at)) != NULL;) {
		if (w->queued == 0) { /* it has to pull first */
			w->fresh = true;
			w->given_at = now;
			w->pulls_from = INFINITY;
			w->given_of = round;
			w->ready = now + w->pull.s;
		}
		fal_refresh(s, w, now);
	}
}

void
fal_team_bring(struct fal_sched *s, const struct fal_run_of *run, uint64_t version,
	       double now)
{
	struct fal_team *t = s->teams > 0 ? s->team[0] : fal_team_new(s, 0, 0);
	assert(s->is.shared);
	fal_round_open(s, t, run);
	s->newest->version = version;
	refresh_members(s, t, s->newest->id, now);
	if (s->scheme->lanes != NULL)
		s->scheme->lanes(s);
}

void
fal_teams_begin(struct fal_sched *s, double now)
{
	uint32_t at;
	while ((at = fal_heap_top(&s->eager)) != FAL_NONE) {
		struct fal_team *t = s->team[at];
		const uint64_t begun = t->begun, first = s->next_round;
		fal_heap_remove(&s->eager, at);
		while (may_begin(s, t))
			begin(s, t);
		if (t->begun > begun)
			refresh_members(s, t, first, now);
	}
}
