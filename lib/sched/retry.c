/* Tasks whose gradient is not finite: one retry, then the task is skipped or the job
 * ends, as the job says (job.nonfinite).
 *
 * The retry goes to a worker of another key where there is one, else to another worker,
 * drawn, so that nobody can choose to decide its own case; a worker that is alone retries
 * its own.  A round that has no such worker, as it is of one worker or a group, is
 * abandoned, and its workers begin none with the task while another one could.
 *
 * A task that is skipped is so whichever round has it: one that is begun again after it
 * was abandoned is without the task. */
#include "sched/state.h"

#include "base/mem.h"

static struct fal_retry *
retry_of(const struct fal_sched *s, uint64_t clock, uint32_t task)
{
	for (uint32_t i = 0; i < s->retries; i++)
		if (s->retry[i].clock == clock && s->retry[i].task == task)
			return &s->retry[i];
	return NULL;
}

/* How much the retry by `w` says: 0 where `w` had no result itself, 1 where another
 * worker of its key had none, else 2. */
static int
retry_rank(const struct fal_worker *w, const struct fal_retry *t)
{
	return w->id == t->worker ? 0 : w->key == t->key ? 1 : 2;
}

/* The most that the retry by anybody says; `r`: by those who work for the round. */
static int
retry_best(const struct fal_sched *s, const struct fal_round *r,
	   const struct fal_retry *t)
{
	int best = 0;
	for (uint32_t i = 0; i < s->workers && best < 2; i++) {
		const struct fal_worker *w = &s->worker[i];
		const bool may = r != NULL ? fal_worker_may_compute(s, w, r) : fal_worker_able(w);
		const int is = may ? retry_rank(w, t) : 0;
		best = is > best ? is : best;
	}
	return best;
}

bool
fal_retried(const struct fal_sched *s, const struct fal_round *r, uint32_t task)
{
	return retry_of(s, r->clock, task) != NULL;
}

struct fal_worker *
fal_retry_draw(struct fal_sched *s, const struct fal_round *r, uint32_t task)
{
	const struct fal_retry *t = retry_of(s, r->clock, task);
	const int best = t != NULL ? retry_best(s, r, t) : 0;
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
	const struct fal_retry *t = retry_of(s, r->clock, task);
	return t == NULL || retry_rank(w, t) >= retry_best(s, r, t);
}

/* Removes what is known of these tasks of the clock. */
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
	retry_remove(s, r->clock, task, 1);
}

void
fal_retry_clear_round(struct fal_sched *s, const struct fal_round *r)
{
	retry_remove(s, r->clock, r->ledger.first, r->ledger.tasks);
}

static void
retry_tell(struct fal_sched *s, enum fal_act_kind kind, const struct fal_round *r,
	   const struct fal_worker *w, uint32_t task)
{
	const struct fal_act act = { .kind = kind,
				     .worker = w->id,
				     .round = r->id,
				     .clock = r->clock,
				     .first = task };
	fal_act_emit(s, act);
}

/* The round does without the task: nobody gets the task any more. */
static void
skip_in(struct fal_sched *s, struct fal_round *r, uint32_t task, double now)
{
	struct fal_act act = { .kind = FAL_ACT_SKIP, .round = r->id, .first = task };
	const uint32_t fills = fal_ledger_task(&r->ledger, task)->fills;
	if (fills != FAL_NONE)
		act.fills = r->ledger.contrib[fills].id;
	fal_ledger_skip(&r->ledger, task);
	fal_task_withdraw(s, r, task, now);
	fal_round_notify_owner(s, r);
	fal_act_emit(s, act);
}

static void
skip(struct fal_sched *s, struct fal_round *r, uint32_t task, double now)
{
	uint32_t kept = 0;
	FAL_XGROW(s->skip, s->skip_cap, (size_t)s->skipped + 1);
	for (uint32_t i = 0; i < s->skipped; i++)
		if (s->skip[i].clock >= s->pool.over)
			s->skip[kept++] = s->skip[i];
	s->skip[kept++] = (struct fal_skip){ r->clock, task };
	s->skipped = kept;
	skip_in(s, r, task, now);
}

void
fal_round_skip_known(struct fal_sched *s, struct fal_round *r)
{
	for (uint32_t i = 0; i < s->skipped; i++)
		if (s->skip[i].clock == r->clock &&
		    fal_ledger_has(&r->ledger, s->skip[i].task))
			skip_in(s, r, s->skip[i].task, 0); /* nobody holds it */
}

void
fal_retry_nonfinite(struct fal_sched *s, double now, struct fal_round *r,
		    struct fal_worker *w, uint32_t task)
{
	static const struct fal_act abandoned = { .fate = FAL_FATE_ABANDON,
						  .why = "not finite" };
	const struct fal_ltask *t = fal_ledger_task(&r->ledger, task);
	if (t->contrib != FAL_NONE || t->skipped)
		return;
	fal_task_drop_claimed(s, r, task, w);
	retry_tell(s, FAL_ACT_NONFINITE, r, w, task);
	struct fal_retry *is = retry_of(s, r->clock, task);
	const bool shared = r->owner == 0 && r->group == 0;
	/* The retry is that of the best worker there is; or of the same one, whose round
	 * was abandoned for nothing. */
	if (is != NULL && (retry_rank(w, is) >= retry_best(s, NULL, is) ||
			   (!shared && w->id == is->worker))) {
		if (s->conf.skips) {
			fal_retry_clear(s, r, task);
			skip(s, r, task, now);
		} else {
			retry_tell(s, FAL_ACT_STOP, r, w, task);
		}
		return;
	}
	if (is == NULL) {
		FAL_XGROW(s->retry, s->retry_cap, (size_t)s->retries + 1);
		is = &s->retry[s->retries++];
		*is = (struct fal_retry){ r->clock, task, w->id, w->key };
		/* Suspects that answer are better than no other key. */
		if (retry_best(s, NULL, is) < 2)
			fal_suspects_recall_for_retry(s, now);
	}
	if (!shared && retry_best(s, r, is) < retry_best(s, NULL, is)) {
		fal_round_end(s, r, abandoned, now);
		return;
	}
	/* A task whose contribution was fenced is free when all shards know. */
	const bool freed = t->fills == FAL_NONE || r->ledger.contrib[t->fills].everywhere;
	if (freed && fal_task_newest_holder(r, task) == NULL)
		fal_task_release(s, r, task);
}

/* The first retry that would be handed out next, of a clock that is not over; NULL. */
static const struct fal_retry *
next_retry(const struct fal_sched *s)
{
	const struct fal_run_of *run = s->pool.back;
	for (uint32_t i = 0; i < s->retries && s->pool.backs > 0; i++)
		if (s->retry[i].clock == run->clock &&
		    s->retry[i].task - run->first < run->count)
			return &s->retry[i];
	return NULL;
}

bool
fal_retries_review(struct fal_sched *s, double now)
{
	uint32_t kept = 0;
	bool changed = false;
	if (s->retries == 0 && s->barred == 0)
		return false;
	for (uint32_t i = 0; i < s->retries; i++)
		if (s->retry[i].clock >= s->pool.over)
			s->retry[kept++] = s->retry[i];
	s->retries = kept;
	const struct fal_retry *t = next_retry(s);
	const int best = t != NULL ? retry_best(s, NULL, t) : 0;
	s->barred = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->gone)
			continue;
		/* A worker with work goes on with it; one without waits for the others,
		 * and nobody for that one. */
		const bool bar = t != NULL && retry_rank(w, t) < best;
		const bool waits = bar && w->team->open == 0;
		changed |= bar != w->barred || waits != w->waits;
		w->barred = bar;
		s->barred += bar;
		if (waits == w->waits)
			continue;
		w->waits = waits;
		if (waits)
			fal_worker_strip(s, w, true, now);
		fal_worker_recount(s, w, now);
	}
	if (changed)
		fal_teams_wake(s);
	return changed;
}
