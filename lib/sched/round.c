/* Rounds: opened, found, ended. */
#include "sched/round.h"

#include "base/mem.h"
#include "sched/members.h"
#include "sched/queue.h"
#include "sched/scheme.h"
#include "sched/team.h"
#include "sched/verify.h"

#include <assert.h>
#include <stdlib.h>

/* Where the chain of round `id` begins. */
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
	fal_holds_free(&r->given);
	free(r->granted);
	free(r->free_task);
	free(r);
}

/* A round's memory, used before or new. */
static struct fal_round *
take(struct fal_sched *s)
{
	struct fal_round *r = s->spare;
	if (r == NULL)
		return fal_xcalloc(1, sizeof(*r));
	s->spare = r->next;
	return r;
}

/* Everything is as in a new round; the memory stays. */
static void
clear(const struct fal_sched *s, struct fal_round *r, const struct fal_run_of *run)
{
	fal_ledger_open(&r->ledger, run->first, run->count);
	FAL_XGROW(r->held, r->held_cap, run->count);
	fal_holds_open(&r->given, run->count);
	FAL_XGROW(r->granted, r->granted_cap, run->count);
	FAL_XGROW(r->free_task, r->free_cap, run->count);
	r->clock = run->clock;
	r->last = fal_grid_tasks(&s->grid, run->clock) - 1;
	r->last_samples = fal_grid_range_samples(&s->grid, run->clock, r->last, 1);
	r->complete = r->ended = r->unreported = false;
	r->armed = r->passed = false;
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

void
fal_round_open(struct fal_sched *s, struct fal_team *t, const struct fal_run_of *run)
{
	grow_known(s);
	struct fal_round *r = take(s);
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
	fal_emit(s, act);
}

uint32_t
fal_round_samples(const struct fal_sched *s, const struct fal_round *r)
{
	return fal_grid_range_samples(&s->grid, r->clock, r->ledger.first,
				      r->ledger.tasks);
}

uint32_t
fal_round_claimed(const struct fal_sched *s, const struct fal_round *r)
{
	const struct fal_ledger *l = &r->ledger;
	uint32_t samples = l->claimed * s->full;
	if (fal_ledger_has(l, r->last)) {
		const struct fal_ltask *last = fal_ledger_task(l, r->last);
		if (last->contrib != FAL_NONE || last->skipped)
			samples -= s->full - r->last_samples;
	}
	return samples;
}

uint32_t
fal_round_counted(const struct fal_sched *s, const struct fal_round *r)
{
	const struct fal_ledger *l = &r->ledger;
	uint32_t samples = fal_round_samples(s, r) - l->skipped * s->full;
	if (fal_ledger_has(l, r->last) && fal_ledger_task(l, r->last)->skipped)
		samples += s->full - r->last_samples;
	return samples;
}

double
fal_round_divisor(const struct fal_sched *s, const struct fal_round *r)
{
	const uint32_t counted = fal_round_counted(s, r);
	const uint32_t skipped = fal_round_samples(s, r) - counted;
	return counted > 0 ? fal_grid_samples(&s->grid, r->clock) - skipped : 0;
}

void
fal_stale(struct fal_sched *s, struct fal_round *r, uint64_t behind)
{
	r->stale_clocks = behind;
	r->stale_updates = s->version - r->version;
	struct fal_worker *w = r->owner != 0 ? fal_find(s, r->owner) : NULL;
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
			fal_take_away(s, r->held[i], now);
	for (uint32_t i = 0; i < r->ledger.contribs; i++) {
		struct fal_contrib *c = &r->ledger.contrib[i];
		struct fal_worker *w = fal_find(s, c->id.worker);
		if (c->state != FAL_CONTRIB_OPEN || w == NULL)
			continue;
		w->owed--;
		fal_refresh(s, w, now);
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
	fal_verifies_end(s, NULL, r, now);
	s->unplanned -= r->free_n;
	r->free_n = 0;
	take_all(s, r, now);
}

/* It goes into the next update. */
static void
collected(struct fal_sched *s, const struct fal_round *r)
{
	s->merged++;
	s->merged_samples += fal_round_counted(s, r);
	if (s->merged == 1 || r->clock > s->merged_clock)
		s->merged_clock = r->clock;
	struct fal_worker *w = r->delta ? fal_find(s, r->owner) : NULL;
	if (w != NULL)
		w->included = r->id;
}

void
fal_round_arm(struct fal_sched *s, struct fal_round *r)
{
	const struct fal_act end = { .kind = FAL_ACT_END,
				     .fate = FAL_FATE_MERGE,
				     .weight = 1,
				     .round = r->id,
				     .ahead = true };
	r->armed = true;
	collected(s, r);
	fal_emit(s, end);
}

void
fal_round_pass(struct fal_sched *s, struct fal_round *r)
{
	struct fal_team *t = r->team;
	assert(r->armed && !r->passed);
	r->passed = true;
	t->open--;
	fal_team_set(s, t, t->members, t->clock + 1);
}

void
fal_round_over(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_run_of run = { r->clock, r->ledger.first, r->ledger.tasks };
	assert(r->passed);
	close_round(s, r, now);
	fal_pool_ended(&s->pool, &run);
	if (r->clock + 1 == s->pool.clocks)
		fal_account_all(s, r);
}

void
fal_round_end(struct fal_sched *s, struct fal_round *r, struct fal_act end, double now)
{
	const struct fal_run_of run = { r->clock, r->ledger.first, r->ledger.tasks };
	struct fal_team *t = r->team;
	close_round(s, r, now);
	fal_touch_owner(s, r);
	if (s->brought) { /* the clocks are another's */
		fal_team_set(s, t, t->members, t->clock + 1);
	} else if (end.fate == FAL_FATE_ABANDON) {
		fal_pool_back(&s->pool, &run);
		t->version = UINT64_MAX;
		fal_teams_wake(s);
	} else {
		fal_pool_ended(&s->pool, &run);
		fal_team_set(s, t, t->members, t->clock + 1);
	}
	if (end.fate >= FAL_FATE_DROP && s->scheme->lost != NULL)
		s->scheme->lost(t);
	if (end.fate < FAL_FATE_DROP)
		collected(s, r);
	end.kind = FAL_ACT_END;
	end.round = r->id;
	fal_emit(s, end);
}

void
fal_step(struct fal_sched *s, double divisor)
{
	struct fal_act act = { .kind = FAL_ACT_STEP,
			       .clock = s->merged_clock,
			       .own = !s->is.shared,
			       .divisor = divisor };
	assert(s->merged > 0);
	act.version = ++s->version;
	act.over = s->pool.over;
	for (const struct fal_round *r = s->oldest; r != NULL && r->armed; r = r->newer)
		act.over++;
	s->merged = 0;
	s->merged_samples = 0;
	fal_emit(s, act);
}

void
fal_account(struct fal_sched *s, struct fal_worker *w, const struct fal_round *r)
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
	fal_emit(s, act);
}

void
fal_account_all(struct fal_sched *s, const struct fal_round *r)
{
	for (uint32_t i = 0; i < s->workers; i++)
		if (!s->worker[i].gone)
			fal_account(s, &s->worker[i], r);
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
fal_free_task(struct fal_sched *s, struct fal_round *r, uint32_t task)
{
	FAL_XGROW(r->free_task, r->free_cap, (size_t)r->free_n + 1);
	r->free_task[r->free_n++] = task;
	s->unplanned++;
	if (s->needy == NULL || r->id < s->needy->id)
		s->needy = r;
}

bool
fal_task_held(const struct fal_round *r, uint32_t task)
{
	return fal_holders(r, task) != NULL;
}
