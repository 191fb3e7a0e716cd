/* Tasks that were claimed without a result, their gradient being not finite.
 *
 * It may be the task, then the job has diverged, or its worker, which errs or lies.  So
 * another one runs it: of another key where there is one, for the workers of one key are
 * one witness; else another session, drawn, so that nobody can choose to decide his own
 * case.  Two keys have the last word; where there is but one, all its sessions, when
 * another one has not come for some time (fal_sched_alone): until then they run it again
 * and again, and whoever is suspected is back, who may know better.  Who has not kept a
 * deadline since, and brought nothing, has no word any more when it is long ago: else a
 * key that hangs beside one that denies would keep the job from ever ending.
 *
 * Where such tasks are skipped they end no job, and one key's word is enough while nobody
 * else is at work. */
#include "sched/doubt.h"

#include "base/least.h"
#include "base/mem.h"
#include "sched/members.h"
#include "sched/plan.h"
#include "sched/queue.h"
#include "sched/round.h"
#include "sched/skip.h"
#include "sched/team.h"
#include "sched/trial.h"

#include <math.h>

static bool
is_about(const struct fal_doubt *d, uint64_t clock, uint32_t task)
{
	return d->clock == clock && d->task == task;
}

/* Seconds in which whoever is here may say what a task makes, however slow; as falcon-ps
 * has them for who is not. */
static const double long_ago_s = 300;

/* Has `w`, since that was said, only been late? */
static bool
is_mute(const struct fal_worker *w, const struct fal_doubt *d)
{
	return d->old && w->suspected_at > d->since && w->kept <= w->suspected_at;
}

/* What the word of `w` on a task that is in doubt would be: 0 nothing new, 1 that of
 * another session, 2 that of another key. */
static int
weight(const struct fal_sched *s, const struct fal_worker *w, uint64_t clock,
       uint32_t task)
{
	int best = 2;
	for (uint32_t i = 0; i < s->doubts; i++) {
		const struct fal_doubt *d = &s->doubt[i];
		if (!is_about(d, clock, task))
			continue;
		if (d->worker == w->id || is_mute(w, d))
			return 0;
		if (d->key == w->key)
			best = 1;
	}
	return best;
}

/* Is the worker's word waited for?  Where tasks are skipped nobody waits for a trial. */
static bool
is_awaited(const struct fal_sched *s, const struct fal_worker *w)
{
	return !s->skips || !w->trial;
}

/* The most that the word of anybody in the job would be; `r`: of those who may run its
 * tasks. */
static int
most_weight(const struct fal_sched *s, const struct fal_round *r, uint64_t clock,
	    uint32_t task)
{
	int best = 0;
	for (uint32_t i = 0; i < s->workers && best < 2; i++) {
		const struct fal_worker *w = &s->worker[i];
		bool may = r != NULL ? fal_works_for(s, w, r) : fal_worker_able(w);
		int is = may && is_awaited(s, w) ? weight(s, w, clock, task) : 0;
		best = is > best ? is : best;
	}
	return best;
}

bool
fal_doubted(const struct fal_sched *s, const struct fal_round *r, uint32_t task)
{
	bool any = false;
	for (uint32_t i = 0; i < s->doubts && !any; i++)
		any = is_about(&s->doubt[i], r->clock, task);
	return any;
}

struct fal_worker *
fal_doubt_draw(struct fal_sched *s, const struct fal_round *r, uint32_t task)
{
	struct fal_worker *drawn = NULL;
	uint32_t n = 0;
	int best = 1;
	const bool any = fal_doubted(s, r, task);
	for (uint32_t i = 0; i < s->workers && any; i++) {
		struct fal_worker *w = &s->worker[i];
		bool may = fal_works_for(s, w, r) && is_awaited(s, w);
		int is = may ? weight(s, w, r->clock, task) : 0;
		if (is < best)
			continue;
		n = is > best ? 0 : n;
		best = is;
		if (fal_rng_below(&s->rng, ++n) == 0)
			drawn = w;
	}
	return drawn;
}

bool
fal_doubt_may(const struct fal_sched *s, const struct fal_worker *w,
	      const struct fal_round *r, uint32_t task)
{
	return s->doubts == 0 ||
	       weight(s, w, r->clock, task) >= most_weight(s, r, r->clock, task);
}

/* What is said of the task is of no use any more. */
static void
forget_task(struct fal_sched *s, uint64_t clock, uint32_t task)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < s->doubts; i++)
		if (!is_about(&s->doubt[i], clock, task))
			s->doubt[kept++] = s->doubt[i];
	s->doubts = kept;
}

static int
tell(struct fal_sched *s, enum fal_act_kind kind, const struct fal_round *r,
     const struct fal_worker *w, uint32_t task)
{
	const struct fal_act act = { .kind = kind,
				     .worker = w->id,
				     .round = r->id,
				     .clock = r->clock,
				     .first = task };
	return fal_emit(s, act) != NULL ? FAL_OK : FAL_ENOMEM;
}

/* What was said of the task before: by this worker, by others of its key, by others. */
struct said {
	bool before, by_another;
	bool abandoned; /* the round, when this worker said it */
	uint32_t sessions;
	double since; /* when it was first said */
};

static struct said
what_was_said(const struct fal_sched *s, const struct fal_worker *w, uint64_t clock,
	      uint32_t task)
{
	struct said is = { .since = INFINITY };
	for (uint32_t i = 0; i < s->doubts; i++) {
		const struct fal_doubt *d = &s->doubt[i];
		if (!is_about(d, clock, task))
			continue;
		is.before |= d->worker == w->id;
		is.abandoned |= d->worker == w->id && d->abandoned;
		is.by_another |= d->key != w->key;
		is.sessions++;
		is.since = fal_min(is.since, d->since);
	}
	return is;
}

void
fal_sched_alone(struct fal_sched *s, double seconds)
{
	s->alone_s = seconds;
}

/* Nobody else can say what the task makes: that is told once. */
static int
tell_alone(struct fal_sched *s, double now, const struct fal_round *r,
	   const struct fal_worker *w, uint32_t task, double since)
{
	bool told = false;
	for (uint32_t i = 0; i < s->doubts; i++) {
		struct fal_doubt *d = &s->doubt[i];
		if (!is_about(d, r->clock, task))
			continue;
		told |= d->alone;
		d->alone = true;
	}
	if (told)
		return FAL_OK;
	if (tell(s, FAL_ACT_ALONE, r, w, task) < 0)
		return FAL_ENOMEM;
	s->act[s->acts - 1].seconds = since + s->alone_s - now;
	return FAL_OK;
}

bool
fal_sched_lone(const struct fal_sched *s, struct fal_lone *out)
{
	for (uint32_t i = 0; i < s->doubts; i++) {
		const struct fal_doubt *d = &s->doubt[i];
		if (!d->alone || most_weight(s, NULL, d->clock, d->task) > 0)
			continue;
		*out = (struct fal_lone){ d->worker, d->task, d->clock,
					  d->since + s->alone_s };
		return true;
	}
	return false;
}

static void
grow_old(struct fal_sched *s, double now)
{
	for (uint32_t i = 0; i < s->doubts; i++)
		s->doubt[i].old = now >= s->doubt[i].since + long_ago_s;
}

/* The round comes to nothing, so that others can have the task. */
static int
abandon(struct fal_sched *s, struct fal_round *r, const struct fal_worker *w,
	uint32_t task, double now)
{
	const struct fal_act end = { .fate = FAL_FATE_ABANDON, .why = "not finite" };
	for (uint32_t i = 0; i < s->doubts; i++)
		s->doubt[i].abandoned |= is_about(&s->doubt[i], r->clock, task) &&
					 s->doubt[i].worker == w->id;
	return fal_round_end(s, r, end, now);
}

/* Nobody has a result of the task, with `w` as the last one. */
static int
decide(struct fal_sched *s, struct fal_round *r, const struct fal_worker *w,
       uint32_t task, double now)
{
	if (!s->skips)
		return tell(s, FAL_ACT_STOP, r, w, task);
	forget_task(s, r->clock, task);
	return fal_skip(s, r, task, now);
}

int
fal_doubt_claim(struct fal_sched *s, double now, struct fal_round *r,
		struct fal_worker *w, uint32_t task)
{
	const struct said said = what_was_said(s, w, r->clock, task);
	const struct fal_ltask *t = fal_ledger_task(&r->ledger, task);
	if (t->contrib != FAL_NONE || t->skipped)
		return FAL_OK;
	grow_old(s, now);
	if (fal_drop_claimed(s, r, task, w) < 0 ||
	    FAL_GROW(s->doubt, s->doubt_cap, (size_t)s->doubts + 1) < 0)
		return FAL_ENOMEM;
	if (!said.before) {
		s->doubt[s->doubts++] = (struct fal_doubt){ .clock = r->clock,
							    .task = task,
							    .worker = w->id,
							    .key = w->key,
							    .since = now };
		if (tell(s, FAL_ACT_DOUBT, r, w, task) < 0)
			return FAL_ENOMEM;
	}
	/* The owner of a round tries again before it is taken from him. */
	bool again = !said.before && r->owner != 0;
	/* Nobody else could have the tasks of a round that is everybody's, were it begun
	 * again: who may not have them has been refuted. */
	const struct fal_round *of = r->owner == 0 && r->group == 0 ? r : NULL;
	int team = most_weight(s, r, r->clock, task);
	int job = most_weight(s, of, r->clock, task);
	const bool known = job == 0 && (said.before || said.sessions > 0);
	bool all = known && (s->skips || now >= said.since + s->alone_s);
	/* The same worker got it again: nobody else came for it. */
	all = all || (s->skips && said.abandoned);
	if (known && !all && !said.by_another) {
		if (fal_trial_recall(s, now) < 0)
			return FAL_ENOMEM;
		team = most_weight(s, r, r->clock, task);
		job = most_weight(s, of, r->clock, task);
		if (job == 0 && tell_alone(s, now, r, w, task, said.since) < 0)
			return FAL_ENOMEM;
	}
	if (!again && (said.by_another || all))
		return decide(s, r, w, task, now);
	if (!again && team < job)
		return abandon(s, r, w, task, now);
	/* What was fenced for it is free when all shards know. */
	const uint32_t fills = fal_ledger_task(&r->ledger, task)->fills;
	const bool freed = fills == FAL_NONE || r->ledger.contrib[fills].everywhere;
	return fal_task_held(r, task) || !freed ? FAL_OK : fal_free_task(s, r, task);
}

void
fal_doubt_forget(struct fal_sched *s, const struct fal_round *r)
{
	for (uint32_t i = 0; i < r->ledger.tasks; i++)
		forget_task(s, r->clock, r->ledger.first + i);
}

/* Is somebody of a third key here? */
static bool
has_third(const struct fal_sched *s, uint32_t a, uint32_t b)
{
	bool any = false;
	for (uint32_t i = 0; i < s->workers && !any; i++) {
		const struct fal_worker *w = &s->worker[i];
		any = fal_worker_able(w) && w->key != a && w->key != b;
	}
	return any;
}

/* Remembers that `by` has contradicted `key`; *other: somebody else had. */
static int
deny(struct fal_sched *s, uint32_t key, uint32_t by, bool *other)
{
	size_t i = 0;
	while (i < s->denials && s->denied[i].key != key)
		i++;
	if (FAL_GROW(s->denied, s->denied_cap, i + 1) < 0)
		return FAL_ENOMEM;
	*other = i < s->denials && s->denied[i].by != by;
	if (!*other)
		s->denied[i] = (struct fal_denied){ key, by };
	s->denials += i == s->denials;
	return FAL_OK;
}

/* `by` has a result where a worker of another key had none, which counts against that.
 * There may be many that have none, where tasks are skipped or a job diverges, and one
 * key, lying, could have its way with all who say so: where there are three, two must
 * contradict it. */
static int
contradict(struct fal_sched *s, double now, const struct fal_doubt *d, uint32_t by)
{
	static const char why[] = "non-finite result that another did not get";
	bool other;
	if (deny(s, d->key, by, &other) < 0)
		return FAL_ENOMEM;
	if (!other && (s->skips || has_third(s, d->key, by)))
		return FAL_OK;
	return fal_sched_charge(s, now, d->worker, why);
}

int
fal_doubt_clear(struct fal_sched *s, double now, const struct fal_round *r,
		const struct fal_worker *w, uint32_t task)
{
	const uint32_t id = w->id, key = w->key;
	int err = FAL_OK;
	for (uint32_t i = 0; i < s->doubts; i++) {
		const struct fal_doubt d = s->doubt[i];
		if (is_about(&d, r->clock, task) && d.worker != id && d.key != key &&
		    err == FAL_OK)
			err = contradict(s, now, &d, key);
	}
	forget_task(s, r->clock, task);
	return err;
}

/* Doubts of clocks that are over are of no use. */
static void
forget(struct fal_sched *s)
{
	uint32_t kept = 0;
	for (uint32_t i = 0; i < s->doubts; i++)
		if (s->doubt[i].clock >= s->pool.over)
			s->doubt[kept++] = s->doubt[i];
	s->doubts = kept;
}

/* Is it about a task that would be handed out next? */
static bool
is_next(const struct fal_sched *s, const struct fal_doubt *d)
{
	const struct fal_run_of *run = s->pool.back;
	return s->pool.backs > 0 && d->clock == run->clock && d->task >= run->first &&
	       d->task - run->first < run->count;
}

/* Marks whose word on the task says less than that of others. */
static void
mark(struct fal_sched *s, const struct fal_doubt *d)
{
	int most = most_weight(s, NULL, d->clock, d->task);
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (!w->gone && weight(s, w, d->clock, d->task) < most)
			w->bar = true;
	}
}

static bool
all_marked(const struct fal_sched *s)
{
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		if (fal_worker_able(w) && !w->bar)
			return false;
	}
	return true;
}

static void
unmark(struct fal_sched *s)
{
	for (uint32_t i = 0; i < s->workers; i++)
		s->worker[i].bar = false;
}

int
fal_doubts_review(struct fal_sched *s, double now, bool *changed)
{
	const struct fal_doubt *first = NULL;
	*changed = false;
	if (s->doubts == 0 && s->barred == 0)
		return FAL_OK;
	forget(s);
	grow_old(s, now);
	unmark(s);
	for (uint32_t i = 0; i < s->doubts; i++) {
		const struct fal_doubt *d = &s->doubt[i];
		if (!is_next(s, d))
			continue;
		first = first == NULL ? d : first;
		mark(s, d);
	}
	if (first != NULL && all_marked(s)) { /* one after the other */
		unmark(s);
		mark(s, first);
	}
	s->barred = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->gone)
			continue;
		/* Who has work goes on with it; who has none waits for the others, and
		 * they not for him. */
		bool waits = w->bar && w->team->open == 0;
		*changed |= w->bar != w->barred || waits != w->waits;
		w->barred = w->bar;
		s->barred += w->bar;
		if (waits == w->waits)
			continue;
		w->waits = waits;
		if ((waits && fal_strip(s, w, true, now) < 0) || fal_recount(s, w, now) < 0)
			return FAL_ENOMEM;
	}
	if (*changed)
		fal_teams_wake(s);
	return FAL_OK;
}
