/* flexrr: SSP with rapid reassignment (Harlap et al., SoCC 2016; schemes.md, flexrr).
 * Workers form a ring.  A worker without work of its own helps the workers before it in
 * the ring.  A worker that is more than 20 % of a round behind its helper lends tasks to
 * the helper: first 2.5 % of a round, and then 5 % each time the helper begins a loan.
 * Only whole tasks are lent; the rest of a loan is added to the next loan, in whatever
 * round.  Tasks that a helper has not begun go back when their owner has no work left.
 * Messages go through the coordinator.
 *
 * steal=half: a worker without work looks at the `helpers` workers before it in the ring,
 * finds the worker with the most samples left in a round, and takes half of these
 * samples, unless 90 % of that round is done.  No task goes back (the variant of FlexPS).
 */
#include "base/branch.h"
#include "sched/scheme.h"

#include <math.h>

/* The workers that may seek work.  scheme_heap[0] holds the slots from `looked` on, which
 * have their turn in this event; scheme_heap[1] holds the others, which have their turn
 * in the next event. */
struct flexrr {
	uint32_t looked;
};

/* The state of a team. */
struct flexrr_team {
	double samples; /* the rest of the last loan, less than a task, for the next loan
			 */
};

static const double behind_at = 0.20;                     /* of a round */
static const double first_loan = 0.025, next_loan = 0.05; /* of a round */
/* steal=half: once this part of a round is done, none of its tasks is stolen */
static const double steal_until = 0.9;
static const double rounding = 1e-6; /* samples */

/* The number of rounds done, plus the done part of the team's first open round. */
static double
worker_progress(const struct fal_sched *s, const struct fal_worker *w)
{
	const struct fal_round *r = w->team->rounds;
	double part =
		r != NULL ? (double)r->ledger.claimed_samples / fal_round_samples(s, r)
			  : 0;
	return (double)w->team->clock + part;
}

/* The last task of round `r` in the queue of `w`, if it has not begun; or NULL. */
static struct fal_node *
last_unstarted_of(const struct fal_worker *w, const struct fal_round *r)
{
	struct fal_node *n = w->tail;
	while (n != NULL && n->round != r)
		n = n->prev;
	return n != NULL && n->began < 0 ? n : NULL;
}

/* The samples of round `r` in the queue of `w`, running tasks included. */
static uint32_t
samples_left(const struct fal_worker *w, const struct fal_round *r)
{
	uint32_t n = 0;
	for (const struct fal_node *i = w->head; i != NULL; i = i->next)
		n += i->round == r ? fal_task_samples(r, i->task) : 0;
	return n;
}

/* Lends whole tasks of up to n samples; returns the rest of n.  A helper computes on the
 * version of its last pull, which must be no older than the version of the round's owner.
 * So SSP's bound holds for the helper, too. */
static double
lend_tasks(struct fal_sched *s, struct fal_worker *from, struct fal_worker *to,
	   const struct fal_round *r, double n, double now)
{
	struct fal_node *node;
	while ((node = last_unstarted_of(from, r)) != NULL &&
	       fal_retry_allows(s, to, r, node->task) &&
	       fal_task_samples(r, node->task) <= n + rounding) {
		n -= fal_task_samples(r, node->task);
		if (fal_branch_of(to->version) != 0 || to->version < r->info.version)
			fal_worker_pull(s, to, 0, now);
		fal_node_move(s, node, to, now);
	}
	return n;
}

/* The active worker `step` places further in the ring; NULL: there is no other active
 * worker. */
static struct fal_worker *
ring_neighbour(const struct fal_sched *s, const struct fal_worker *w, uint32_t step)
{
	uint32_t at = fal_worker_slot(s, w);
	for (uint32_t k = 1; k < s->workers; k++) {
		at = (at + step) % s->workers;
		if (fal_worker_active(&s->worker[at]))
			return &s->worker[at];
	}
	return NULL;
}

/* `w` is done or waits, and helps one of the workers before it in the ring: the worker
 * that is furthest behind. */
static void
help_slowest(struct fal_sched *s, struct fal_worker *w, double now)
{
	double least = worker_progress(s, w) - behind_at;
	struct fal_worker *e = w, *helpee = NULL;
	for (uint32_t k = 1; k <= s->policy.rule.helpers; k++) {
		e = ring_neighbour(s, e, s->workers - 1); /* the one before */
		if (e == NULL || e == w)
			break;
		const struct fal_round *r = e->team->rounds;
		if (r == NULL || worker_progress(s, e) >= least ||
		    last_unstarted_of(e, r) == NULL)
			continue;
		least = worker_progress(s, e);
		helpee = e;
	}
	if (helpee == NULL)
		return;
	/* Only whole tasks are lent.  Every helper gets at least one: a smaller loan
	 * grows by further loans until the loan is a task. */
	const struct fal_round *r = helpee->team->rounds;
	const double one = fal_task_samples(r, last_unstarted_of(helpee, r)->task);
	const double round = fal_round_samples(s, r);
	struct flexrr_team *own = helpee->team->state;
	const bool has_helped = samples_left(w, r) > 0 ||
				fal_ledger_newest(&r->ledger, w->id) != FAL_NONE;
	double n = own->samples + (has_helped ? next_loan : first_loan) * round;
	while (n + rounding < one)
		n += next_loan * round;
	own->samples = fmod(lend_tasks(s, helpee, w, r, n, now), one);
}

/* `w` is done, and takes half of the samples that another worker has left in a round: the
 * most samples that any of the `helpers` workers before `w` in the ring has left.  The
 * round, the other worker's own or a stolen one, comes before the next round of `w`.
 */
static void
steal_half(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_worker *e = w, *victim = NULL;
	uint32_t most = 0;
	for (uint32_t k = 1; k <= s->policy.rule.helpers; k++) {
		e = ring_neighbour(s, e, s->workers - 1); /* the one before */
		if (e == NULL || e == w)
			break;
		const struct fal_round *r = e->head != NULL ? e->head->round : NULL;
		if (r == NULL || r->team->clock >= w->team->clock ||
		    r->ledger.claimed_samples >= steal_until * fal_round_samples(s, r) ||
		    last_unstarted_of(e, r) == NULL || samples_left(e, r) <= most)
			continue;
		most = samples_left(e, r);
		victim = e;
	}
	if (victim != NULL)
		(void)lend_tasks(s, victim, w, victim->head->round, most / 2.0, now);
}

/* Gets work for `w` if `w` has no task, or only a few tasks, left to begin. */
static void
worker_seek_work(struct fal_sched *s, struct fal_worker *w, double now)
{
	uint32_t slot = fal_worker_slot(s, w);
	if (!fal_heap_has(&s->takers, slot)) /* this heap holds active workers only */
		return;
	if (s->policy.rule.steals_half) {
		if (w->queued == 0)
			steal_half(s, w, now);
		return;
	}
	/* Without work, `w` takes back a task of its round that a helper has not begun.
	 */
	const struct fal_round *r = w->queued == 0 ? w->team->rounds : NULL;
	for (uint32_t i = 0; r != NULL && i < r->ledger.tasks; i++) {
		struct fal_node *n = r->held[i];
		if (n == NULL || n->began >= 0 || &s->worker[n->slot] == w)
			continue;
		fal_node_move(s, n, w, now);
		break;
	}
	if (fal_heap_has(&s->takers, slot))
		help_slowest(s, w, now);
}

/* Looks once at each worker that may seek work, in the order of the slots. */
static void
flexrr_rebalance(struct fal_sched *s, double now)
{
	struct flexrr *state = s->scheme_state;
	for (uint32_t i; (i = fal_heap_top(&s->scheme_heap[0])) != FAL_NONE;) {
		fal_heap_remove(&s->scheme_heap[0], i);
		state->looked = i + 1;
		worker_seek_work(s, &s->worker[i], now);
	}
	const struct fal_heap done = s->scheme_heap[0];
	s->scheme_heap[0] = s->scheme_heap[1];
	s->scheme_heap[1] = done;
	state->looked = 0;
}

/* `w` and its helpers may now seek work: in this event, or, if they have had their turn,
 * in the next event. */
static void
flexrr_worker_changed(struct fal_sched *s, const struct fal_worker *w)
{
	const struct flexrr *state = s->scheme_state;
	const struct fal_worker *e = w;
	for (uint32_t k = 0; e != NULL && k <= s->policy.rule.helpers; k++) {
		uint32_t slot = fal_worker_slot(s, e);
		fal_heap_set(&s->scheme_heap[slot < state->looked], slot, 0);
		e = ring_neighbour(s, e, 1);
	}
}

const struct fal_scheme fal_scheme_flexrr = {
	.state_bytes = sizeof(struct flexrr),
	.team_state_bytes = sizeof(struct flexrr_team),
	.may_begin = fal_ssp_may_begin,
	.round_complete = fal_ssp_complete,
	.rebalance = flexrr_rebalance,
	.worker_changed = flexrr_worker_changed,
	.round_changed = flexrr_worker_changed,
};
