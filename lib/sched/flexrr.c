/* flexrr: SSP with rapid reassignment (Harlap et al., SoCC 2016; schemes.md, flexrr).  A
 * worker that is done with its own work, or waits, helps the workers before it in a ring:
 * one that is more than 20 % of a round behind lends it 2.5 % of a round, then 5 % each
 * time it begins with what it was lent; a fraction of a task is left to the next loan, in
 * whatever round.  What a helper has not begun goes back when its owner has nothing left.
 * Messages go through the coordinator.
 *
 * steal=half: a worker that is done takes half of what is left to the one of its group
 * that has most, unless 90 % of that round is done; nothing goes back (FlexPS's variant).
 */
#include "base/branch.h"
#include "sched/scheme.h"

#include <math.h>

/* Workers to look at, by their slots: s->own_heap[0] holds those from `looked` on now,
 * s->own_heap[1] the others, after the next event. */
struct flexrr {
	uint32_t looked;
};

/* The state of a team. */
struct loans {
	double samples; /* less than a task has, left by the last loan to the next one */
};

static const double behind_at = 0.20;                     /* of a round */
static const double first_loan = 0.025, next_loan = 0.05; /* of a round */
static const double too_late = 0.9;  /* steal=half: done of a round */
static const double rounding = 1e-6; /* samples */

/* Rounds done, and the part of the open one, which is the team's first. */
static double
progress(const struct fal_sched *s, const struct fal_worker *w)
{
	const struct fal_round *r = w->team->rounds;
	double part =
		r != NULL ? (double)r->ledger.claimed_samples / fal_round_samples(s, r)
			  : 0;
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

/* The samples of round `r` that are left to the worker, those of tasks that run included.
 */
static uint32_t
left(const struct fal_worker *w, const struct fal_round *r)
{
	uint32_t n = 0;
	for (const struct fal_node *i = w->head; i != NULL; i = i->next)
		n += i->round == r ? fal_task_samples(r, i->task) : 0;
	return n;
}

/* Whoever helps computes on what it pulled last, but on nothing older than the round's
 * owner does: the bound of the owner's clock holds for it, too. */
static void
pull_for(struct fal_sched *s, struct fal_worker *w, const struct fal_round *r, double now)
{
	if (fal_branch_of(w->version) != 0 || w->version < r->version)
		fal_worker_pull(s, w, 0, now);
}

/* Lends whole tasks of so many samples in all; returns what is left of these. */
static double
lend(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
     const struct fal_round *r, double n, double now)
{
	struct fal_node *node;
	while ((node = last_of(from, r)) != NULL && fal_retry_allows(s, to, r, node->task) &&
	       fal_task_samples(r, node->task) <= n + rounding) {
		n -= fal_task_samples(r, node->task);
		pull_for(s, to, r, now);
		fal_node_move(s, node, to, now);
	}
	return n;
}

/* The worker `step` places on in the ring of those that are there, or NULL: it is alone.
 */
static struct fal_worker *
neighbour(const struct fal_sched *s, const struct fal_worker *w, uint32_t step)
{
	uint32_t at = fal_worker_slot(s, w);
	for (uint32_t k = 1; k < s->workers; k++) {
		at = (at + step) % s->workers;
		if (fal_worker_active(&s->worker[at]))
			return &s->worker[at];
	}
	return NULL;
}

/* `w` is dry: it takes back what helpers have not begun of its own round. */
static void
take_back(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_round *r = w->team->rounds;
	for (uint32_t i = 0; r != NULL && i < r->ledger.tasks; i++) {
		struct fal_node *n = r->held[i];
		if (n == NULL || n->began >= 0 || &s->worker[n->slot] == w)
			continue;
		fal_node_move(s, n, w, now);
		return;
	}
}

/* Does `w` work for round `r`, or did it? */
static bool
works_on(const struct fal_worker *w, const struct fal_round *r)
{
	const struct fal_node *n = w->head;
	while (n != NULL && n->round != r)
		n = n->next;
	return n != NULL || fal_ledger_newest(&r->ledger, w->id) != FAL_NONE;
}

/* `w` is done, or waits: it helps whoever of those before it is furthest behind. */
static void
help(struct fal_sched *s, struct fal_worker *w, double now)
{
	double least = progress(s, w) - behind_at;
	struct fal_worker *e = w, *helpee = NULL;
	for (uint32_t k = 1; k <= s->policy.rule.helpers; k++) {
		e = neighbour(s, e, s->workers - 1); /* the one before */
		if (e == NULL || e == w)
			break;
		const struct fal_round *r = e->team->rounds;
		if (r == NULL || progress(s, e) >= least || last_of(e, r) == NULL)
			continue;
		least = progress(s, e);
		helpee = e;
	}
	if (helpee == NULL)
		return;
	/* Only whole tasks are lent, and no helper goes without, so that a loan of less
	 * than one is the first of several. */
	const struct fal_round *r = helpee->team->rounds;
	const double one = fal_task_samples(r, last_of(helpee, r)->task);
	const double round = fal_round_samples(s, r);
	struct loans *l = helpee->team->own;
	double n = l->samples + (works_on(w, r) ? next_loan : first_loan) * round;
	while (n + rounding < one)
		n += next_loan * round;
	l->samples = fmod(lend(s, helpee, w, r, n, now), one);
}

/* `w` is done: it takes half of what is left to the one of its group that has most of a
 * round before its next one, its own or stolen. */
static void
steal_half(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_worker *e = w, *victim = NULL;
	uint32_t most = 0;
	for (uint32_t k = 1; k <= s->policy.rule.helpers; k++) {
		e = neighbour(s, e, s->workers - 1); /* the one before */
		if (e == NULL || e == w)
			break;
		const struct fal_round *r = e->head != NULL ? e->head->round : NULL;
		if (r == NULL || r->team->clock >= w->team->clock ||
		    r->ledger.claimed_samples >= too_late * fal_round_samples(s, r) ||
		    last_of(e, r) == NULL || left(e, r) <= most)
			continue;
		most = left(e, r);
		victim = e;
	}
	if (victim != NULL)
		(void)lend(s, victim, w, victim->head->round, most / 2.0, now);
}

/* What it may want to do now, if it has nothing, or little, left to begin. */
static void
look_at(struct fal_sched *s, struct fal_worker *w, double now)
{
	uint32_t slot = fal_worker_slot(s, w);
	if (!fal_heap_has(&s->takers, slot)) /* who is not active never is */
		return;
	if (s->policy.rule.half) {
		if (w->queued == 0)
			steal_half(s, w, now);
		return;
	}
	if (w->queued == 0)
		take_back(s, w, now);
	if (fal_heap_has(&s->takers, slot))
		help(s, w, now);
}

/* Each one that it matters to is looked at once, in the order of the slots. */
static void
rebalance(struct fal_sched *s, double now)
{
	struct flexrr *is = s->own;
	for (uint32_t i; (i = fal_heap_top(&s->own_heap[0])) != FAL_NONE;) {
		fal_heap_remove(&s->own_heap[0], i);
		is->looked = i + 1;
		look_at(s, &s->worker[i], now);
	}
	const struct fal_heap done = s->own_heap[0];
	s->own_heap[0] = s->own_heap[1];
	s->own_heap[1] = done;
	is->looked = 0;
}

/* It matters to the worker itself and to those that may help it: whoever had its turn has
 * the next one after the next event. */
static void
touched(struct fal_sched *s, const struct fal_worker *w)
{
	struct flexrr *is = s->own;
	const struct fal_worker *e = w;
	for (uint32_t k = 0; e != NULL && k <= s->policy.rule.helpers; k++) {
		uint32_t slot = fal_worker_slot(s, e);
		fal_heap_set(&s->own_heap[slot < is->looked], slot, 0);
		e = neighbour(s, e, 1);
	}
}

const struct fal_scheme fal_scheme_flexrr = { .own = sizeof(struct flexrr),
					      .team_own = sizeof(struct loans),
					      .may_begin = fal_ssp_may_begin,
					      .under_way = fal_ssp_under_way,
					      .complete = fal_ssp_complete,
					      .rebalance = rebalance,
					      .refreshed = touched,
					      .touched = touched };
