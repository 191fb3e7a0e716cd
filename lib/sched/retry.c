/* Tasks whose gradient is not finite.  Such a task is retried once; after that the task
 * is skipped or ends the job, as job.nonfinite says.
 *
 * The retry goes to a worker of another key if there is one; else to another worker; a
 * single worker retries its own task.  The worker is drawn, so that no worker can choose
 * to decide its own case.  A round of one worker, or of a group, may have no other
 * worker: then the round is abandoned, and its workers begin no round with the task while
 * another worker could.
 *
 * A skipped task is skipped in every round of its clock, also when an abandoned round
 * begins again. */
#include "sched/state.h"

#include "base/mem.h"

/* How much a retry by `w` tells: 0 if `w` itself had no finite result of the task, 1 if
 * another worker of its key had none, else 2. */
static int
retry_rank(const struct fal_worker *w, const struct fal_retry *t)
{
	return w->id == t->worker ? 0 : w->key == t->key ? 1 : 2;
}

/* The largest retry_rank of any worker (with `r`: of any worker of the round). */
static int
retry_best_rank(const struct fal_sched *s, const struct fal_round *r,
		const struct fal_retry *t)
{
	int best = 0;
	for (uint32_t i = 0; i < s->workers && best < 2; i++) {
		const struct fal_worker *w = &s->worker[i];
		const bool may =
			r != NULL ? fal_worker_may_compute(s, w, r) : fal_worker_able(w);
		const int rank = may ? retry_rank(w, t) : 0;
		best = rank > best ? rank : best;
	}
	return best;
}

struct fal_worker *
fal_retry_draw(struct fal_sched *s, const struct fal_round *r, uint32_t task)
{
	const struct fal_retry *t = fal_retry_find(s, r->info.clock, task);
	const int best = t != NULL ? retry_best_rank(s, r, t) : 0;
	struct fal_worker *drawn = NULL;
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->workers && best > 0; i++) {
		struct fal_worker *w = &s->worker[i];
		if (fal_worker_may_compute(s, w, r) && retry_rank(w, t) == best &&
		    fal_rng_below(&s->rng, ++n) == 0)
			drawn = w;
	}
	return drawn;
}

bool
fal_retry_allows(const struct fal_sched *s, const struct fal_worker *w,
		 const struct fal_round *r, uint32_t task)
{
	const struct fal_retry *t = fal_retry_find(s, r->info.clock, task);
	return t == NULL || retry_rank(w, t) >= retry_best_rank(s, r, t);
}

static void
retry_remove(struct fal_sched *s, uint64_t clock, uint32_t first, uint32_t count)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < s->retries; i++)
		if (s->retry[i].clock != clock || s->retry[i].task - first >= count)
			s->retry[kept++] = s->retry[i];
	s->retries = kept;
}

void
fal_retry_clear(struct fal_sched *s, const struct fal_round *r, uint32_t task)
{
	retry_remove(s, r->info.clock, task, 1);
}

void
fal_retry_clear_round(struct fal_sched *s, const struct fal_round *r)
{
	retry_remove(s, r->info.clock, r->ledger.first, r->ledger.tasks);
}

static void
retry_emit(struct fal_sched *s, enum fal_act_kind kind, const struct fal_round *r,
	   const struct fal_worker *w, uint32_t task)
{
	fal_act_emit(s, (struct fal_act){ .kind = kind,
					  .worker = w->id,
					  .round = r->id,
					  .clock = r->info.clock,
					  .first = task });
}

void
fal_retry_nonfinite(struct fal_sched *s, double now, struct fal_round *r,
		    struct fal_worker *w, uint32_t task)
{
	static const struct fal_act abandoned = { .fate = FAL_FATE_RETRY,
						  .why = "not finite" };
	const struct fal_ltask *t = fal_ledger_task(&r->ledger, task);
	if (t->contrib != FAL_NONE || t->skipped)
		return;
	fal_task_drop_claimed(s, r, task, w);
	retry_emit(s, FAL_ACT_NONFINITE, r, w, task);
	struct fal_retry *retry = fal_retry_find(s, r->info.clock, task);
	const bool is_shared = r->info.owner == 0 && r->info.group == 0;
	/* The retry decides only if no other worker could tell more. */
	if (retry != NULL && retry_rank(w, retry) >= retry_best_rank(s, NULL, retry)) {
		if (s->conf.skips) {
			fal_retry_clear(s, r, task);
			fal_task_skip(s, r, task, now);
		} else {
			retry_emit(s, FAL_ACT_STOP, r, w, task);
		}
		return;
	}
	if (retry == NULL) {
		FAL_XGROW(s->retry, s->retry_cap, (size_t)s->retries + 1);
		retry = &s->retry[s->retries++];
		*retry = (struct fal_retry){ r->info.clock, task, w->id, w->key };
		/* Suspects of another key that answer are better than no other key. */
		if (retry_best_rank(s, NULL, retry) < 2)
			fal_suspects_recall_for_retry(s, now);
	}
	if (!is_shared &&
	    retry_best_rank(s, r, retry) < retry_best_rank(s, NULL, retry)) {
		fal_round_end(s, r, abandoned, now);
		return;
	}
	/* A task of a fenced contribution is free only when all shards know of the
	 * fence. */
	const bool is_free =
		t->fills == FAL_NONE || r->ledger.contrib[t->fills].is_fenced_by_all;
	if (is_free && fal_task_newest_holder(r, task) == NULL)
		fal_task_release(s, r, task);
}

bool
fal_retries_review(struct fal_sched *s, double now)
{
	/* the next round, if its tasks have come back to the pool */
	const struct fal_task_range *run = s->pool.backs > 0 ? s->pool.back : NULL;
	uint32_t kept = 0;
	bool changed = false;
	if (s->retries == 0 && s->barred == 0)
		return false;
	for (uint32_t i = 0; i < s->retries; i++)
		if (s->retry[i].clock >= s->pool.over)
			s->retry[kept++] = s->retry[i];
	s->retries = kept;
	/* A round has no other retry than that of its first task. */
	const struct fal_retry *t =
		run != NULL ? fal_retry_find(s, run->clock, run->first) : NULL;
	const int best = t != NULL ? retry_best_rank(s, NULL, t) : 0;
	s->barred = 0;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		if (w->has_left)
			continue;
		/* A barred worker finishes its open rounds.  Without an open round, a
		 * barred worker waits for the others, and no worker waits for it. */
		const bool is_barred = t != NULL && retry_rank(w, t) < best;
		const bool is_waiting = is_barred && w->team->open == 0;
		changed |= is_barred != w->is_barred || is_waiting != w->is_waiting;
		w->is_barred = is_barred;
		s->barred += is_barred;
		if (is_waiting == w->is_waiting)
			continue;
		w->is_waiting = is_waiting;
		if (is_waiting)
			fal_worker_strip(s, w, true, now);
		fal_worker_recount(s, w, now);
	}
	if (changed)
		fal_teams_wake(s);
	return changed;
}
