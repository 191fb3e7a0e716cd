/* Deadlines: the debts of a worker, and until when each may stay open.
 *
 * The coordinator measures all times by its own clock: from the grant to the claim, and
 * from the last claim to the last block.  A worker's reports of its own times do not
 * count.
 *
 * A worker that is nearly late is pinged, and pinged again when its debt is due.  The
 * answer arrives after all earlier messages of the worker, and has the progress of its
 * lanes.  A worker whose lanes progress has more time, up to ten times the deadline, but
 * not on probation.  A worker that does not answer, or whose lanes stand still, has
 * missed the deadline.  A worker that sends block by block has missed its deadline if all
 * blocks together take much more time than before.  No worker is late while no other
 * worker waits for its work (probation.c). */
#include "sched/state.h"

#include "base/minmax.h"
#include "base/oversubscription.h"
#include "base/quantile.h"

#include <math.h>

static const double floor_s = 0.2;  /* the least deadline (design.md, D7) */
static const double floor_rtts = 4; /* the least deadline in round trips, … */
static const double rtt_max = 1;    /* … each counted as at most so many seconds */
/* A worker is pinged after this part of its deadline.  If the deadline is unknown, the
 * ping goes out at once, so that all later steps of the lanes count as progress. */
static const double ping_part = 0.85;
static const double times_max = 10; /* no deadline is extended beyond this factor */
/* Deadlines without a history of the worker, as multiples: of the median of the other
 * workers, or of a pull; and, if no turn of any worker is known, of the least probe. */
static const double unknown_times = 4, probe_times = 10;

void
fal_turn_add(struct fal_sched *s, struct fal_worker *w, enum fal_turn_kind kind,
	     double seconds)
{
	struct fal_window *t = &w->turn[kind];
	s->typical.measured[kind] += t->n == 0;
	fal_window_add(t, fal_max(seconds, 1e-6));
	/* Among many values, one more changes little. */
	if (t->n <= FAL_WINDOW || t->n % 4 == 0)
		fal_window_judge(t);
}

/* How many times longer a turn takes at the worker's lanes than if each lane had a
 * core. */
static double
turn_slowness(const struct fal_worker *w, unsigned kind)
{
	return kind == FAL_TURN_TASK ? fal_oversubscription(w->lanes, w->cores) : 1;
}

bool
fal_typical_update(struct fal_sched *s)
{
	const double probe_s = s->typical.at_probe_s;
	bool is_stale = s->typical.at_over != s->pool.over ||
			(s->typical.probe_s > 0 &&
			 (probe_s == 0 || 2 * s->typical.probe_s <= probe_s));
	for (unsigned k = 0; k < FAL_TURNS; k++)
		is_stale |= s->typical.measured[k] > 0 &&
			    s->typical.measured[k] >= 2 * s->typical.at_measured[k];
	if (!is_stale)
		return false;
	s->typical.at_over = s->pool.over;
	s->typical.at_probe_s = s->typical.probe_s;
	for (unsigned k = 0; k < FAL_TURNS; k++) {
		double *v = s->typical.scratch;
		uint32_t n = 0;
		for (const struct fal_worker *w = s->worker; w < s->worker + s->workers;
		     w++)
			if (!w->has_left && w->turn[k].n > 0)
				v[n++] = w->turn[k].median * turn_slowness(w, k);
		s->typical.at_measured[k] = s->typical.measured[k];
		s->typical.turn_s[k] = n > 0 ? fal_nth_least(v, n, (n - 1) / 2) : 0;
	}
	return true;
}

/* The deadline of a turn for a worker without a history of its own. */
static double
turn_guess_s(const struct fal_sched *s, const struct fal_worker *w,
	     enum fal_turn_kind kind)
{
	if (s->typical.turn_s[kind] > 0)
		return unknown_times * s->typical.turn_s[kind];
	if (kind == FAL_TURN_PUSH) /* a pull is about as large */
		return fal_max(w->turn[FAL_TURN_TASK].limit,
			       unknown_times * w->pull.largest);
	return probe_times * s->typical.probe_s *
	       fal_oversubscription(w->lanes, w->cores);
}

double
fal_turn_typical_s(const struct fal_sched *s, const struct fal_worker *w)
{
	const struct fal_window *t = &w->turn[FAL_TURN_TASK];
	if (t->n > 0)
		return t->median * fal_oversubscription(w->lanes, w->cores);
	return turn_guess_s(s, w, FAL_TURN_TASK) / unknown_times;
}

bool
fal_turns_unknown(const struct fal_sched *s)
{
	return s->typical.measured[FAL_TURN_TASK] == 0 && s->typical.probe_s == 0;
}

/* The floor of a deadline by the round trip to the worker. */
static double
distance_floor_s(const struct fal_worker *w)
{
	return floor_rtts * fal_min(w->rtt, rtt_max);
}

static double
turn_deadline_s(const struct fal_sched *s, const struct fal_worker *w,
		enum fal_turn_kind kind, double least)
{
	double d = w->turn[kind].n > 0 ? w->turn[kind].limit * turn_slowness(w, kind)
				       : turn_guess_s(s, w, kind);
	d = fal_max(fal_max(d, floor_s), least);
	return s->patience * d *
	       (w->standing == FAL_PROBATION ? 1u << w->suspicion.failures : 1);
}

double
fal_task_deadline_s(const struct fal_sched *s, const struct fal_worker *w)
{
	return (w->checks > 0 ? 2 : 1) *
	       turn_deadline_s(s, w, FAL_TURN_TASK, distance_floor_s(w));
}

/* The deadline of a worker whose lanes go on.  The floor of round trips is not
 * multiplied, because distance does not make lanes slower. */
static double
turn_limit_s(const struct fal_sched *s, const struct fal_worker *w,
	     enum fal_turn_kind kind)
{
	const double d = turn_deadline_s(s, w, kind, distance_floor_s(w));
	return w->standing == FAL_PROBATION
		       ? d
		       : fal_max(d, times_max * turn_deadline_s(s, w, kind, 0));
}

/* ---- debts ---------------------------------------------------------------- */

/* Replaces the debt `d` by contribution `c`, which was closed at `first`, if `c` is due
 * earlier. */
static void
debt_add_push(const struct fal_sched *s, const struct fal_worker *w,
	      const struct fal_contrib *c, double first, struct fal_debt *d)
{
	const double since = fal_max(first, c->last_block_at);
	const double allowed_s =
		turn_deadline_s(s, w, FAL_TURN_PUSH, distance_floor_s(w));
	const double pulls_s = unknown_times * s->patience * w->pull.largest;
	const double whole_s = fal_max(turn_limit_s(s, w, FAL_TURN_PUSH), pulls_s);
	if (since + allowed_s < d->since + d->allowed_s) {
		d->first = first;
		d->since = since;
		d->allowed_s = allowed_s;
		d->kind = FAL_TURN_PUSH;
		d->what = "push";
	}
	/* The last claim may have closed several contributions. */
	const double push_first =
		w->head == NULL ? fal_max(first, w->progress_at) : first;
	if (push_first + whole_s < d->push_until) {
		d->push_first = push_first;
		d->push_until = push_first + whole_s;
	}
}

/* The oldest open round for which the worker may compute, or NULL. */
static const struct fal_round *
debt_first_round(const struct fal_sched *s, const struct fal_worker *w)
{
	return s->traits.own ? w->team->rounds : s->oldest;
}

/* Does the worker owe blocks of a closed contribution?  A contribution is closed if its
 * round is before the first round of the queue. */
static bool
owes_push(const struct fal_sched *s, const struct fal_worker *w)
{
	if (w->open_contribs == 0 || w->head == NULL)
		return w->open_contribs > 0;
	const struct fal_round *r = debt_first_round(s, w);
	return r != NULL && r->id < w->head->round->id;
}

/* Adds the closed contributions of the worker to the debt. */
static void
debt_add_pushes(const struct fal_sched *s, const struct fal_worker *w, struct fal_debt *d)
{
	const struct fal_round *r = debt_first_round(s, w);
	uint32_t left = w->open_contribs;
	for (; r != NULL && left > 0; r = s->traits.own ? r->next : r->newer) {
		const struct fal_ledger *l = &r->ledger;
		if (w->head != NULL && r->id >= w->head->round->id)
			return;
		for (uint32_t c = fal_ledger_newest(l, w->id); c != FAL_NONE;
		     c = l->contrib[c].older) {
			if (l->contrib[c].state != FAL_CONTRIB_OPEN)
				continue;
			debt_add_push(s, w, &l->contrib[c],
				      fal_max(l->contrib[c].claimed_at,
					      fal_worker_relieved_at(w, r)),
				      d);
			left--;
		}
	}
	/* The other contributions belong to rounds of other workers (flexrr). */
	const struct fal_contrib any = { .last_block_at = w->block_at };
	if (left > 0 && w->head == NULL)
		debt_add_push(s, w, &any, fal_max(w->progress_at, w->relieved.at), d);
}

struct fal_debt
fal_debt_of(const struct fal_sched *s, const struct fal_worker *w)
{
	struct fal_debt d = { .first = INFINITY,
			      .since = INFINITY,
			      .push_until = INFINITY };
	if (w->queued > 0) {
		d.first = d.since = w->running_since;
		d.allowed_s = fal_task_deadline_s(s, w);
		d.what = "task";
	}
	if (owes_push(s, w))
		debt_add_pushes(s, w, &d);
	if (w->queued == 0 && w->open_contribs == 0 && w->evals > 0) {
		/* The worker may have to pull the version first. */
		const double task_s = fal_task_deadline_s(s, w);
		d.first = d.since = w->progress_at;
		d.allowed_s = task_s + fal_min(w->pull.largest, task_s);
		d.what = "eval";
	}
	return d;
}

double
fal_debt_limit(const struct fal_sched *s, const struct fal_worker *w,
	       const struct fal_debt *d)
{
	return d->first + fal_max(d->allowed_s, turn_limit_s(s, w, d->kind));
}

double
fal_debt_due_at(const struct fal_sched *s, const struct fal_worker *w,
		const struct fal_debt *d)
{
	return fal_max(fal_min(d->since + d->allowed_s, fal_debt_limit(s, w, d)),
		       w->excused_to);
}

bool
fal_debt_is_asked(const struct fal_worker *w, const struct fal_debt *d)
{
	return w->ping.asked_at >= d->since;
}

double
fal_debt_next_look(const struct fal_sched *s, const struct fal_worker *w,
		   const struct fal_debt *d)
{
	const double part = fal_turns_unknown(s) ? 0 : ping_part;
	const double push_until = fal_max(d->push_until, w->excused_to);
	if (fal_debt_is_asked(w, d))
		return fal_min(push_until, w->ping.asked_at + d->allowed_s);
	if (w->ping.answered_at < d->since)
		return fal_min(push_until, d->since + part * d->allowed_s);
	return fal_min(push_until,
		       fal_max(fal_debt_due_at(s, w, d),
			       w->ping.answered_at + (1 - part) * d->allowed_s));
}

double
fal_deadline_next_look(const struct fal_sched *s, const struct fal_worker *w, double late)
{
	/* A task is never due sooner, whatever its deadline is. */
	const double least = ping_part * s->patience * floor_s;
	if (late < w->running_since + least && w->head != NULL && !fal_turns_unknown(s) &&
	    !owes_push(s, w))
		return late;
	const struct fal_debt d = fal_debt_of(s, w);
	return isinf(d.since) ? INFINITY : fal_min(fal_debt_next_look(s, w, &d), late);
}
