/* epsp: elastic-parallelism synchronous parallel (schemes.md, epsp).  Shares minimise the
 * latest projected finish; unstarted tasks move away from the tail of a straggler's
 * queue; the last running tasks are cloned; the numbers of lanes follow the projection.
 *
 * Slack s: a clock's round may begin while s older rounds are open.  The round is
 * computed on exactly the version of s clocks before, and updates are applied in the
 * order of clocks, so the model depends on s alone.  A worker that is done with all open
 * rounds must wait because of the slack, so such a worker takes tasks of the oldest round
 * first.  s = 0 is the enforced mode: every clock waits for the one before.
 *
 * Slack p/q: rounds begin as with slack 1, and the early tasks of a clock are computed as
 * with slack 1.  The late tasks are computed on the version just before the clock, as
 * with slack 0.  Late tasks are granted together with early tasks, and wait at their
 * workers for the version.
 */
#include "sched/scheme.h"

#include <math.h>

/* The projected finish.  Of workers with equal finishes, the worker with less work is
 * first. */
static double
epsp_cost(const struct fal_sched *s, const struct fal_worker *w, struct fal_load held,
	  struct fal_load more, double now)
{
	double tie = 1e-6 * (w->queued + more.tasks) * fal_task_s(s, w, w->lanes);
	return fal_worker_project(s, w, held, more, now) + tie;
}

/* ---- moves and clones ------------------------------------------------------- */

/* Do claims of `w` wait much longer than its tasks take?  Then the coordinator is the
 * bottleneck: a move of a task of `w` costs two messages, and the claim comes no sooner.
 * The verdict is valid for the time that four such claims would wait. */
static bool
worker_waits_for_coordinator(const struct fal_sched *s, const struct fal_worker *w,
			     double now)
{
	return w->claim_wait_s > 4 * fal_task_s(s, w, w->lanes) + 2 * w->rtt &&
	       now < w->progress_at + 4 * w->claim_wait_s;
}

/* Gives one task of the worker with the latest finish, the holder, to the worker that
 * would finish the task first.  Moves an unstarted task; or, with `clones`, if no task
 * can move, clones a running task at an idle worker.  The other worker must finish sooner
 * than the holder, by a round trip and by a part of the task, because projections are
 * uncertain.  *fresh: the slot of a worker whose projection is up to date; set to the
 * holder, or to FAL_NONE if a task is given.  False: no task is given. */
static bool
task_give(struct fal_sched *s, bool clones, double now, uint32_t *fresh)
{
	const struct fal_heap *takers = clones ? &s->idle : &s->takers;
	const struct fal_heap *holders = clones ? &s->runners : &s->donors;
	const uint32_t taker = fal_heap_top(takers);
	uint32_t holder;
	/* The keys of the heap may be older than now. */
	while ((holder = fal_heap_top(holders)) != *fresh && holder != FAL_NONE) {
		fal_worker_refresh(s, &s->worker[holder], now);
		*fresh = holder;
	}
	if (taker == FAL_NONE || holder == FAL_NONE || taker == holder ||
	    (clones && s->donors.n > 0))
		return false;
	struct fal_worker *to = &s->worker[taker], *from = &s->worker[holder];
	struct fal_node *n =
		clones ? fal_worker_uncloned(from) : fal_worker_last_unstarted(s, from);
	if (n == NULL || worker_waits_for_coordinator(s, to, now) ||
	    !fal_retry_allows(s, to, n->round, n->task))
		return false;
	const struct fal_load task = fal_load_of_task(n->round, n->task);
	const double finish =
		fal_worker_project(s, to, fal_load_runnable(s, to), task, now);
	const double cost = to->rtt + (clones ? 0.1 : 0.05) *
					      fal_task_s(s, to, to->lanes) *
					      fal_load_size(s, to, task);
	if (finish + cost >= from->finish)
		return false;
	from->help.clock_s = fmax(from->help.clock_s, from->finish - finish - to->rtt);
	*fresh = FAL_NONE;
	if (clones)
		fal_worker_clone_task(s, from, to, now);
	else
		fal_node_move(s, n, to, now);
	return true;
}

static void
epsp_rebalance(struct fal_sched *s, double now)
{
	uint32_t fresh = FAL_NONE;
	while (task_give(s, false, now, &fresh))
		;
	while (!s->policy.no_clones && task_give(s, true, now, &fresh))
		;
}

/* ---- lanes ---------------------------------------------------------------- */

/* Some worker gives a lane back if the projected speed of all workers stays at 99 % of
 * the best speed or above.  Some worker takes a lane again if the projected speed is
 * below 98.5 % of the best speed.  After a change the lanes of a worker stay for 3
 * clocks. */
static const double keep = 0.99, regain = 0.985;
static const uint32_t settle_clocks = 3;

static void
epsp_set_lanes(struct fal_sched *s)
{
	double total = 0, best = 0;
	struct fal_worker *gain = NULL, *give = NULL;
	double gain_rate = INFINITY, give_rate = INFINITY, give_less = 0;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		if (!fal_worker_active(w))
			continue;
		const double rate = fal_worker_rate(s, w, w->lanes);
		double best_rate = 0;
		for (uint32_t p = w->lanes_min; p <= w->lanes_max; p++)
			best_rate = fmax(best_rate, fal_worker_rate(s, w, p));
		total += rate;
		best += best_rate;
		if (++w->lanes_held <= settle_clocks || w->recent.n == 0)
			continue;
		if (w->lanes < w->lanes_max && rate < gain_rate &&
		    fal_worker_rate(s, w, w->lanes + 1) > rate) {
			gain = w;
			gain_rate = rate;
		}
		if (w->lanes == w->lanes_min)
			continue;
		const double less = fal_worker_rate(s, w, w->lanes - 1);
		if (rate - less < give_rate - give_less) {
			give = w;
			give_rate = rate;
			give_less = less;
		}
	}
	if (gain != NULL && total < regain * best)
		fal_worker_set_lanes(s, gain, gain->lanes + 1);
	else if (give != NULL && total - give_rate + give_less >= keep * best)
		fal_worker_set_lanes(s, give, give->lanes - 1);
}

/* ---- rounds --------------------------------------------------------------- */

static void
epsp_begin_round(struct fal_sched *s, struct fal_team *t, struct fal_round *r)
{
	const uint64_t slack = s->policy.rule.slack;
	(void)t;
	r->info.version = s->policy_version + (r->order > slack ? r->order - slack : 0);
	if (r->order > 0) {
		r->info.first_late = fal_rule_first_late_task(&s->policy.rule, &s->grid,
							      r->info.clock);
		r->info.late_version = r->info.version + 1;
	}
}

/* Applies updates in the order of rounds, even if the rounds are complete in another
 * order. */
static void
epsp_round_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	(void)r;
	while (s->oldest != NULL && s->oldest->completion == FAL_ROUND_COMPLETE)
		fal_clock_complete(s, s->oldest, now);
}

const struct fal_scheme fal_scheme_epsp = {
	.begin_round = epsp_begin_round,
	.round_complete = epsp_round_complete,
	.cost = epsp_cost,
	.rebalance = epsp_rebalance,
	.set_lanes = epsp_set_lanes,
};
