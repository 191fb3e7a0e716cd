/* Tasks that are skipped, as nobody has a finite result of them.
 *
 * That holds for the task, whichever round has it: one that is abandoned is begun again
 * without it. */
#include "sched/skip.h"

#include "base/mem.h"
#include "sched/queue.h"

/* The task goes to nobody any more, and counts without a result. */
static int
skip(struct fal_sched *s, struct fal_round *r, uint32_t task, double now)
{
	struct fal_act act = { .kind = FAL_ACT_SKIP, .round = r->id, .first = task };
	const uint32_t fills = fal_ledger_task(&r->ledger, task)->fills;
	if (fills != FAL_NONE)
		act.fills = r->ledger.contrib[fills].id;
	fal_ledger_skip(&r->ledger, task);
	if (fal_withdraw(s, r, task, now) < 0)
		return FAL_ENOMEM;
	fal_touch_owner(s, r);
	return fal_emit(s, act) != NULL ? FAL_OK : FAL_ENOMEM;
}

int
fal_skip(struct fal_sched *s, struct fal_round *r, uint32_t task, double now)
{
	uint32_t kept = 0;
	if (FAL_GROW(s->skip, s->skip_cap, (size_t)s->skipped + 1) < 0)
		return FAL_ENOMEM;
	for (uint32_t i = 0; i < s->skipped; i++)
		if (s->skip[i].clock >= s->pool.over)
			s->skip[kept++] = s->skip[i];
	s->skip[kept++] = (struct fal_skip){ r->clock, task };
	s->skipped = kept;
	return skip(s, r, task, now);
}

int
fal_skip_again(struct fal_sched *s, struct fal_round *r)
{
	int err = FAL_OK;
	for (uint32_t i = 0; i < s->skipped && err == FAL_OK; i++)
		if (s->skip[i].clock == r->clock &&
		    fal_ledger_has(&r->ledger, s->skip[i].task))
			err = skip(s, r, s->skip[i].task, 0); /* nobody holds it */
	return err;
}

bool
fal_skip_waits(const struct fal_sched *s)
{
	for (uint32_t i = 0; i < s->workers && s->skips; i++) {
		const struct fal_worker *w = &s->worker[i];
		if (w->waits && fal_worker_able(w))
			return true;
	}
	return false;
}
