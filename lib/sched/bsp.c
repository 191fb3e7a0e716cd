/* bsp: bulk synchronous parallel.  One round per clock for everybody, with equal shares:
 * nothing moves, nothing is cloned, lanes stay. */
#include "sched/scheme.h"

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

void
fal_tell_clock(struct fal_sched *s, const struct fal_round *r, double now)
{
	const struct fal_act model = { .kind = FAL_ACT_MODEL };
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
