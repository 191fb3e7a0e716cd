/* epsp: elastic-parallelism synchronous parallel (schemes.md, epsp).
 * Shares minimise the latest projected finish; unstarted tasks move from the straggler's
 * tail; the last running tasks are cloned; lanes follow the projection.
 *
 * Slack s: the clock's round may begin while s older ones are open, and is computed on
 * exactly the version of s clocks before; updates are applied in the order of clocks.
 * So the model depends on s alone.  Whoever is done with all open rounds is blocked by
 * the slack: it takes from the oldest round first.  s = 0: enforced.
 *
 * Slack p/q: the rounds of slack 1, but their late tasks are computed on the version
 * before the clock, as with slack 0.  They are handed out with the early ones, and wait
 * at their workers for the version.
 */
#include "sched/scheme.h"

#include <math.h>

/* Its projected finish; among equals, whoever holds less. */
static double
cost(const struct fal_sched *s, const struct fal_worker *w, struct fal_load held,
     struct fal_load more, double now)
{
	double tie = 1e-6 * (w->queued + more.tasks) * fal_task_s(s, w, w->lanes);
	return fal_worker_project(s, w, held, more, now) + tie;
}

/* The cost of moving a task to `w`: a round trip, and a doubt of 5 % of the task. */
static double
move_cost(const struct fal_sched *s, const struct fal_worker *w, struct fal_load task)
{
	return w->rtt + 0.05 * fal_task_s(s, w, w->lanes) * fal_load_size(s, w, task);
}

/* Do its claims wait much longer than tasks take?  Then it is the coordinator whom the
 * clock waits for, and tasks that `w` had more of would be claimed no sooner, but cost
 * two messages.  The last claim says so for a while, as long as some like it would wait.
 */
static bool
in_line(const struct fal_sched *s, const struct fal_worker *w, double now)
{
	return w->wait_s > 4 * fal_task_s(s, w, w->lanes) + 2 * w->rtt &&
	       now < w->base + 4 * w->wait_s;
}

/* The worker with the latest finish of those in `h`, as projected now: the keys may be
 * of a time when less was known.  Nothing has changed since `sure` was projected, who
 * becomes the one that is returned. */
static uint32_t
latest(struct fal_sched *s, const struct fal_heap *h, uint32_t *sure, double now)
{
	uint32_t slot;
	while ((slot = fal_heap_top(h)) != *sure && slot != FAL_NONE) {
		fal_worker_refresh(s, &s->worker[slot], now);
		*sure = slot;
	}
	return slot;
}

/* Moves one task to whoever finishes it first, if that ends before its holder would.
 * False: no task is moved. */
static bool
transfer(struct fal_sched *s, double now, uint32_t *sure)
{
	uint32_t to = fal_heap_top(&s->takers), from = latest(s, &s->donors, sure, now);
	if (to == FAL_NONE || from == FAL_NONE || to == from)
		return false;
	struct fal_worker *r = &s->worker[to], *d = &s->worker[from];
	struct fal_node *n = fal_worker_last_unstarted(s, d);
	if (n == NULL || in_line(s, r, now) || !fal_retry_allows(s, r, n->round, n->task))
		return false;
	const struct fal_load task = fal_load_of_task(n->round, n->task);
	const double finish = fal_worker_project(s, r, fal_load_queued(r), task, now);
	if (finish + move_cost(s, r, task) >= d->finish)
		return false;
	d->helped = fmax(d->helped, d->finish - finish - r->rtt);
	*sure = FAL_NONE;
	fal_node_move(s, n, r, now);
	return true;
}

/* Clones a last running task on the fastest idle worker, if that does all of it clearly
 * sooner than what is left of it is done.  False: no task is cloned. */
static bool
clone(struct fal_sched *s, double now, uint32_t *sure)
{
	uint32_t to = fal_heap_top(&s->idle), from = latest(s, &s->runners, sure, now);
	if (to == FAL_NONE || from == FAL_NONE || s->donors.n > 0)
		return false;
	struct fal_worker *r = &s->worker[to], *d = &s->worker[from];
	const struct fal_load none = { 0 };
	const struct fal_node *n = fal_worker_uncloned(d);
	if (n == NULL || in_line(s, r, now) || !fal_retry_allows(s, r, n->round, n->task))
		return false;
	const struct fal_load task = fal_load_of_task(n->round, n->task);
	const double doubt = 0.1 * fal_task_s(s, r, r->lanes) * fal_load_size(s, r, task);
	const double finish = fal_worker_project(s, r, none, task, now);
	if (d->finish <= finish + doubt + r->rtt)
		return false;
	d->helped = fmax(d->helped, d->finish - finish - r->rtt);
	*sure = FAL_NONE;
	fal_worker_clone_task(s, d, r, now);
	return true;
}

static void
rebalance(struct fal_sched *s, double now)
{
	uint32_t sure = FAL_NONE;
	while (transfer(s, now, &sure))
		;
	while (!s->policy.no_clones && clone(s, now, &sure))
		;
}

static double
best_rate(const struct fal_sched *s, const struct fal_worker *w)
{
	double best = 0;
	for (uint32_t p = w->lanes_min; p <= w->lanes_max; p++)
		best = fmax(best, fal_worker_rate(s, w, p));
	return best;
}

/* A lane is given back while the projected clock stays within 1 % of the best one, and
 * taken again when it would be 1.5 % longer; nobody changes within 3 clocks. */
static const double keep = 0.99, regain = 0.985;
static const uint32_t settle = 3;

static void
lanes(struct fal_sched *s)
{
	double total = 0, best = 0;
	struct fal_worker *gain = NULL, *give = NULL;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (!fal_worker_active(w))
			continue;
		total += fal_worker_rate(s, w, w->lanes);
		best += w->lanes_min < w->lanes_max ? best_rate(s, w)
						    : fal_worker_rate(s, w, w->lanes);
		if (++w->lanes_held <= settle || w->recent.n == 0)
			continue;
		if (w->lanes < w->lanes_max &&
		    fal_worker_rate(s, w, w->lanes + 1) > fal_worker_rate(s, w, w->lanes) &&
		    (gain == NULL ||
		     fal_worker_rate(s, w, w->lanes) < fal_worker_rate(s, gain, gain->lanes)))
			gain = w;
		if (w->lanes > w->lanes_min &&
		    (give == NULL ||
		     fal_worker_rate(s, w, w->lanes) - fal_worker_rate(s, w, w->lanes - 1) <
			     fal_worker_rate(s, give, give->lanes) -
				     fal_worker_rate(s, give, give->lanes - 1)))
			give = w;
	}
	if (gain != NULL && total < regain * best)
		fal_worker_set_lanes(s, gain, gain->lanes + 1);
	else if (give != NULL && total - fal_worker_rate(s, give, give->lanes) +
						 fal_worker_rate(s, give, give->lanes - 1) >=
					 keep * best)
		fal_worker_set_lanes(s, give, give->lanes - 1);
}

static uint32_t
ahead(const struct fal_sched *s)
{
	return s->policy.rule.slack + 1;
}

static void
begin(struct fal_sched *s, struct fal_team *t, struct fal_round *r)
{
	const uint64_t slack = s->policy.rule.slack;
	(void)t;
	r->version = s->first + (r->order > slack ? r->order - slack : 0);
	if (r->order > 0) {
		r->late = fal_rule_late(&s->policy.rule, &s->grid, r->clock);
		r->after = r->version + 1;
	}
}

/* Updates are applied in the order of rounds, whichever is complete first. */
static void
complete(struct fal_sched *s, struct fal_round *r, double now)
{
	(void)r;
	while (s->oldest != NULL && s->oldest->complete)
		fal_clock_complete(s, s->oldest, now);
}

const struct fal_scheme fal_scheme_epsp = { .ahead = ahead,
					    .begin = begin,
					    .complete = complete,
					    .cost = cost,
					    .rebalance = rebalance,
					    .lanes = lanes };
