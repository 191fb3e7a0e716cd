/* Events in, actions out. */
#include "sched/ahead.h"
#include "sched/brought.h"
#include "sched/due.h"
#include "sched/eval.h"
#include "sched/members.h"
#include "sched/plan.h"
#include "sched/queue.h"
#include "sched/retry.h"
#include "sched/round.h"
#include "sched/scheme.h"
#include "sched/team.h"
#include "sched/trial.h"

#include "base/line.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>

struct fal_sched *
fal_sched_new(const struct fal_sched_conf *conf)
{
	struct fal_sched *s = fal_xcalloc(1, sizeof(*s));
	s->lanes_start = conf->lanes_start;
	s->ahead = conf->ahead;
	s->patience = 1;
	s->eval_cost = conf->eval_cost;
	s->preclaims = conf->preclaims;
	s->skips = conf->skips;
	s->brought = conf->brought;
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
	fal_teams_end(s);
	free(s->team);
	free(s->manned);
	fal_sched_forget(s);
	for (uint32_t i = 0; i < s->workers; i++) {
		while (s->worker[i].head != NULL)
			fal_detach(s, s->worker[i].head);
		free(s->worker[i].pace);
		fal_spans_free(&s->worker[i].seqs);
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
	free(s->eval_holder);
	free(s->eval_free);
	free(s->eval_said);
	fal_holds_free(&s->eval_given);
	free(s->verify);
	free(s->act);
	free(s);
}

/* Is what was collected all that the update is to be made of?  A clock that is collected
 * as a whole waits for its last task. */
static bool
is_whole(const struct fal_sched *s)
{
	return !s->is.waves || fal_pool_first(&s->pool) != s->merged_clock;
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
	if (s->rounds > 0 || !is_whole(s))
		return;
	fal_teams_wake(s);
	fal_step(s, (double)s->merged_samples);
}

/* Rounds begin, and others in the place of what had to be applied first. */
static void
begin_rounds(struct fal_sched *s, double now)
{
	uint64_t version;
	do {
		version = s->version;
		fal_teams_begin(s, now);
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
		fal_plan(s, r, now);
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
		if (s->brought)
			fal_brought_complete(s, r, now);
		else
			s->scheme->complete(s, r, now);
		next = s->oldest; /* it may have ended others */
	}
}

void
fal_settle(struct fal_sched *s, double now)
{
	end_reported(s, now);
	fal_ahead(s, now);
	fal_due_typical(s);
	do {
		fal_trial_next(s, now);
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
	fal_ahead(s, now); /* of what was granted, too */
	fal_eval_feed(s, now);
}

void
fal_sched_allow(struct fal_sched *s, double now, uint64_t clock)
{
	if (s->allowed == clock)
		return;
	s->allowed = clock;
	fal_teams_wake(s);
	fal_settle(s, now);
}

void
fal_sched_hold(struct fal_sched *s, double now, bool hold)
{
	s->held = hold;
	fal_teams_wake(s);
	fal_settle(s, now);
}

bool
fal_drained(const struct fal_sched *s)
{
	return s->rounds == 0 && s->merged == 0 && !(s->is.waves && s->pool.backs > 0);
}

bool
fal_sched_quiet(const struct fal_sched *s)
{
	return fal_drained(s) && s->published == s->version;
}

void
fal_sched_published(struct fal_sched *s, double now, uint64_t version)
{
	s->published = version;
	while (fal_heap_least(&s->awaits) <= (double)version)
		fal_refresh(s, &s->worker[fal_heap_top(&s->awaits)], now);
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
	const struct fal_worker *w = fal_find(s, id);
	bool on_line = w != NULL && w->team != NULL && w->team->line != 0 &&
		       w->version != UINT64_MAX && fal_line_of(w->version) != 0;
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
	const struct fal_worker *w = fal_find(s, id);
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
	/* Of what another policy has left clocks may be over in another order. */
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
	if (fal_goes_ahead(s)) {
		r->complete = true;
		fal_settle(s, now);
		return;
	}
	/* What is there may be sooner than the word of it. */
	r->unreported = true;
	s->unreported++;
	fal_settle(s, now);
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
