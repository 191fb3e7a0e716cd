/* Look-ups in the scheduler's state; changes nothing. */
#include "sched/state.h"

#include "base/sorted.h"

struct fal_worker *
fal_worker_find(const struct fal_sched *s, uint32_t id)
{
	/* Slots are in the order of ids, mostly without gaps. */
	size_t at = s->workers > 0 ? id - s->worker[0].id : 0;
	if (at >= s->workers || s->worker[at].id != id)
		at = fal_sorted_place(s->worker, s->workers, sizeof(*s->worker), id);
	if (at == s->workers || s->worker[at].id != id || s->worker[at].has_left)
		return NULL;
	return &s->worker[at];
}

struct fal_round *
fal_round_known(const struct fal_sched *s, uint64_t id)
{
	struct fal_round *r = s->knowns > 0 ? s->known[id & (s->known_cap - 1)] : NULL;
	while (r != NULL && r->id != id)
		r = r->chain;
	return r;
}

struct fal_round *
fal_round_find(const struct fal_sched *s, uint64_t id)
{
	struct fal_round *r = fal_round_known(s, id);
	return r != NULL && !r->has_ended ? r : NULL;
}

const struct fal_round *
fal_oldest_unfinished_round(const struct fal_sched *s)
{
	const struct fal_round *r = s->oldest;
	while (r != NULL && r->commit == FAL_COMMIT_REPORTED &&
	       r->ledger.claimed == r->ledger.tasks)
		r = r->newer;
	return r;
}

struct fal_retry *
fal_retry_find(const struct fal_sched *s, uint64_t clock, uint32_t task)
{
	for (uint32_t i = 0; i < s->retries; i++)
		if (s->retry[i].clock == clock && s->retry[i].task == task)
			return &s->retry[i];
	return NULL;
}

struct fal_worker *
fal_probation_worker(const struct fal_sched *s)
{
	const uint32_t id = s->probation.worker;
	struct fal_worker *w = id != 0 ? fal_worker_find(s, id) : NULL;
	return w != NULL && w->standing == FAL_PROBATION ? w : NULL;
}

struct fal_worker *
fal_probation_unserved(const struct fal_sched *s)
{
	struct fal_worker *w = fal_probation_worker(s);
	return w != NULL && w->queued == 0 && w->open_contribs == 0 &&
			       !w->suspicion.has_task
		       ? w
		       : NULL;
}
