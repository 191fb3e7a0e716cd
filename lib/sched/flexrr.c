/* flexrr: SSP with rapid reassignment (Harlap et al., SoCC 2016; SYSTEMS section 2).  A
 * worker that is done with its own work, or waits, helps the workers before it in a ring:
 * one that is more than 20 % of a round behind lends it 2.5 % of a round, then 5 % each
 * time it begins with what it was lent.  What a helper has not begun goes back when its
 * owner has nothing left.  Messages go through the coordinator.
 *
 * steal=half: a worker that is done takes half of what the one with most left of its
 * group has not begun, unless that one has done 90 % of its round (FlexPS's variant).
 */
#include "sched/state.h"

#include <math.h>

static const double behind_at = 0.20;                     /* of a round */
static const double first_loan = 0.025, next_loan = 0.05; /* of a round */
static const double too_late = 0.9; /* steal=half: done of a round */

/* The round that the worker owns and has to do, or NULL. */
static struct fal_round *
own_round(const struct fal_sched *s, const struct fal_worker *w)
{
	for (uint32_t i = 0; i < s->rounds && w->team->open > 0; i++)
		if (s->round[i]->team == w->team)
			return s->round[i];
	return NULL;
}

/* Rounds done, and the part of the open one. */
static double
progress(const struct fal_sched *s, const struct fal_worker *w)
{
	const struct fal_round *r = own_round(s, w);
	double part = r != NULL ? (double)r->ledger.claimed / r->ledger.tasks : 0;
	return (double)w->team->clock + part;
}

/* The last task of round `r` that `w` holds and has not begun, or NULL. */
static struct fal_node *
last_of(const struct fal_worker *w, const struct fal_round *r)
{
	struct fal_node *n = w->tail;
	while (n != NULL && n->round != r)
		n = n->prev;
	return n != NULL && n->began < 0 ? n : NULL;
}

/* How many unbegun tasks of round `r` the worker holds. */
static uint32_t
unbegun(const struct fal_worker *w, const struct fal_round *r)
{
	uint32_t n = 0;
	for (const struct fal_node *i = w->head; i != NULL; i = i->next)
		n += i->round == r && i->began < 0;
	return n;
}

static int
lend(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
     const struct fal_round *r, uint32_t n, double now)
{
	struct fal_node *node;
	for (; n > 0 && (node = last_of(from, r)) != NULL; n--)
		if (fal_move(s, node, to, now) < 0)
			return FAL_ENOMEM;
	return FAL_OK;
}

/* The `k`-th worker before `w` in the ring, or NULL: it is not there. */
static struct fal_worker *
before(const struct fal_sched *s, const struct fal_worker *w, uint32_t k)
{
	uint32_t at = (fal_slot(s, w) + s->workers - k % s->workers) % s->workers;
	struct fal_worker *e = &s->worker[at];
	return e != w && fal_worker_active(e) ? e : NULL;
}

/* `w` is dry: it takes back what helpers have not begun of its own round. */
static int
take_back(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_round *r = own_round(s, w);
	for (uint32_t i = 0; r != NULL && i < r->ledger.tasks; i++) {
		struct fal_node *n = &r->node[i];
		if (n->slot == FAL_NONE || n->began >= 0 || &s->worker[n->slot] == w)
			continue;
		return fal_move(s, n, w, now);
	}
	return FAL_OK;
}

/* `w` is dry: it helps whoever of those before it is far behind. */
static int
help(struct fal_sched *s, struct fal_worker *w, double now)
{
	double here = progress(s, w);
	for (uint32_t k = 1; k <= s->policy.rule.helpers && k < s->workers; k++) {
		struct fal_worker *e = before(s, w, k);
		struct fal_round *r = e != NULL ? own_round(s, e) : NULL;
		if (r == NULL || r->team == w->team ||
		    here - progress(s, e) <= behind_at || last_of(e, r) == NULL)
			continue;
		bool begun = w->work.in > 0;
		double part = begun ? next_loan : first_loan;
		return lend(s, e, w, r, (uint32_t)ceil(part * r->ledger.tasks), now);
	}
	return FAL_OK;
}

/* `w` is done: it takes half of what is left to the one of its group that has most. */
static int
steal_half(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_worker *victim = NULL;
	uint32_t most = 1; /* half of one is nothing */
	for (uint32_t k = 1; k <= s->policy.rule.helpers && k < s->workers; k++) {
		struct fal_worker *e = before(s, w, k);
		const struct fal_round *r = e != NULL ? own_round(s, e) : NULL;
		if (r == NULL || e->team->clock >= w->team->clock ||
		    (double)r->ledger.claimed >= too_late * r->ledger.tasks ||
		    unbegun(e, r) <= most)
			continue;
		most = unbegun(e, r);
		victim = e;
	}
	return victim != NULL ? lend(s, victim, w, own_round(s, victim), most / 2, now)
			      : FAL_OK;
}

static int
rebalance(struct fal_sched *s, double now)
{
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (!fal_worker_active(w) || !fal_heap_has(&s->takers, i))
			continue;
		if (take_back(s, w, now) < 0)
			return FAL_ENOMEM;
		if (!fal_heap_has(&s->takers, i))
			continue;
		bool half = s->policy.rule.half;
		if (half && w->queued == 0 && steal_half(s, w, now) < 0)
			return FAL_ENOMEM;
		if (!half && help(s, w, now) < 0)
			return FAL_ENOMEM;
	}
	return FAL_OK;
}

const struct fal_scheme fal_scheme_flexrr = { .own = true,
					      .mixed = true,
					      .ahead = fal_ahead_one,
					      .may_begin = fal_ssp_may_begin,
					      .under_way = fal_ssp_under_way,
					      .complete = fal_ssp_complete,
					      .cost = fal_cost_equal,
					      .rebalance = rebalance };
