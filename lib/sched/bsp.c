/* bsp: bulk synchronous parallel.  One round per clock for everybody, with equal shares,
 * or, shares=speed, in proportion to measured speed (LB-BSP, Chen et al. 2018;
 * schemes.md, bsp): nothing moves, nothing is cloned, lanes stay. */
#include "sched/scheme.h"

#include <math.h>

void
fal_clock_complete(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	const double samples = fal_round_counted_samples(s, r);
	fal_round_set_staleness(s, r, 0);
	fal_round_end(s, r, end, now);
	fal_pending_apply(s, samples);
	fal_clock_publish(s, r, now);
}

/* Notes the help of a clock: the seconds that workers saved the clock by taking another
 * worker's tasks, or that the first idle worker could have saved, had the tasks of the
 * last worker moved.  Moves cost a clock one round trip, whosever tasks move.  So the
 * largest help counts for each worker, unless the worker is more than twice as far away
 * as the one that was helped. */
static void
note_help(struct fal_sched *s, double now)
{
	enum { clocks = 17 }; /* in the mean, and the first, which knew no speeds */
	struct fal_worker *last = NULL, *first = NULL, *most_helped = NULL;
	uint32_t sharing = 0;
	if (s->told_at > 0)
		fal_ewma(&s->clock_s, now - s->told_at);
	s->told_at = now;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (!fal_worker_active(w) || w->work.share == 0)
			continue;
		sharing++;
		if (last == NULL || w->base > last->base)
			last = w;
		if (w->empty >= 0 && (first == NULL || w->empty < first->empty))
			first = w;
	}
	if (sharing < 2)
		return;
	if (first != NULL)
		last->helped =
			fmax(last->helped, last->base - first->empty - first->rtt -
						   fal_task_s(s, first, first->lanes));
	for (uint32_t i = 0; i < s->workers; i++)
		if (most_helped == NULL || s->worker[i].helped > most_helped->helped)
			most_helped = &s->worker[i];
	const double saved = most_helped->helped, far = 2 * most_helped->rtt;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		const double helped = w->rtt <= far ? saved : w->helped;
		w->helped = 0;
		if (w->work.share == 0)
			continue;
		w->helps += w->helps < clocks;
		w->help_s += (helped - w->help_s) / fmax(w->helps - 1, 1);
	}
}

void
fal_clock_publish(struct fal_sched *s, const struct fal_round *r, double now)
{
	const struct fal_act model = { .kind = FAL_ACT_MODEL };
	if (s->is.moves)
		note_help(s, now);
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->gone)
			continue;
		/* Had work, and was not heard of: it takes no less. */
		if (w->fresh && r->id >= w->given_of && fal_worker_active(w) &&
		    w->work.share > 0) {
			const double pull_s =
				now - w->pulls_from - fal_task_s(s, w, w->lanes);
			if (pull_s > w->pull.s) {
				w->pull.n = 0;
				fal_window_min_add(&w->pull, pull_s);
			}
			w->fresh = false;
		}
		w->version = s->version;
	}
	/* What comes late is of the next clock, but for the last one. */
	if (!r->armed || r->clock + 1 < s->pool.clocks)
		fal_workers_account(s, r);
	fal_act_emit(s, model);
}

const struct fal_scheme fal_scheme_bsp = { .complete = fal_clock_complete };
