/* bsp: bulk synchronous parallel.  One round per clock for everybody, with equal shares,
 * or, shares=speed, in proportion to measured speed (LB-BSP, Chen et al. 2018;
 * schemes.md, bsp): nothing moves, nothing is cloned, lanes stay. */
#include "sched/scheme.h"

#include <math.h>

void
fal_complete_clock(struct fal_sched *s, struct fal_round *r, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_MERGE, .weight = 1 };
	const double samples = fal_round_counted(s, r);
	fal_stale(s, r, 0);
	fal_round_end(s, r, end, now);
	fal_step(s, samples);
	fal_tell_clock(s, r, now);
}

/* What others saved each worker of the clock, or could have saved who was the last. */
static void
note_help(struct fal_sched *s)
{
	enum { most = 17 }; /* clocks in the mean, and the first, which knew no speeds */
	struct fal_worker *last = NULL, *before = NULL;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (!fal_worker_active(w) || w->work.share == 0)
			continue;
		if (last == NULL || w->base > last->base) {
			before = last;
			last = w;
		} else if (before == NULL || w->base > before->base) {
			before = w;
		}
	}
	if (before == NULL)
		return;
	last->helped = fmax(last->helped, last->base - before->base - before->rtt -
						  fal_task_s(s, before, before->lanes));
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->work.share == 0)
			continue;
		w->helps += w->helps < most;
		w->help_s += (w->helped - w->help_s) / fmax(w->helps - 1, 1);
		w->helped = 0;
	}
}

void
fal_tell_clock(struct fal_sched *s, const struct fal_round *r, double now)
{
	const struct fal_act model = { .kind = FAL_ACT_MODEL };
	if (s->is.moves)
		note_help(s);
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
				fal_lately_add(&w->pull, pull_s);
			}
			w->fresh = false;
		}
		w->version = s->version;
	}
	/* What comes late is of the next clock, but for the last one. */
	if (!r->armed || r->clock + 1 < s->pool.clocks)
		fal_account_all(s, r);
	fal_emit(s, model);
}

const struct fal_scheme fal_scheme_bsp = { .complete = fal_complete_clock };
