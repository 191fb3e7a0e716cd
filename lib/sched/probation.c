/* Suspects: workers that have missed a deadline, and the probation that brings them back.
 *
 * A suspect becomes a full member again by work that arrives.  Probation gives a suspect
 * one task, which no other worker may take meanwhile.  At most one worker is on probation
 * at a time.  After a failed probation the next one waits, so that failed probations cost
 * no more than 2 % of the time.
 *
 * The time that other workers have waited for a worker is a debt of the worker's key,
 * because sessions come and go.  A key that owes more than allowed gets no work until the
 * excess is paid; each second pays 2 % of a second.
 *
 * At any time some worker works.  When no worker is left, all suspects are recalled, and
 * all deadlines double, because the deadlines were too short.  When no worker of another
 * key is left for a retry, all suspects are recalled, too, but a suspect is not recalled
 * again before its work has arrived: else each of many retries would wait for a worker
 * that has stopped working. */
#include "sched/state.h"

#include "base/mem.h"
#include "base/minmax.h"

#include <math.h>

/* The most doublings of a probation's time.  With more time a task that was late before
 * may succeed. */
enum { DOUBLINGS_MAX = 4 };

/* Other workers may wait for a key this many seconds, or this many typical tasks or
 * pushes, whichever is longer.  The key pays for longer waits: each second without work
 * pays this part of a second. */
static const double free_s = 2, free_turns = 16, cost_part = 0.02;

static const char work_came[] = "its work came", no_other[] = "nobody else is left";

/* ---- announcements -------------------------------------------------------- */

/* Announces that `w` is a full member again. */
static void
member_announce(struct fal_sched *s, struct fal_worker *w, const char *why, double now)
{
	const struct fal_act act = { .kind = FAL_ACT_CLEARED,
				     .worker = w->id,
				     .why = why,
				     .seconds = now - w->suspicion.announced_at };
	if (!w->suspicion.is_announced)
		return;
	w->suspicion.is_announced = false;
	fal_act_emit(s, act);
}

/* Pings, once each, those suspects that have sent no message since they became
 * suspects. */
static void
suspects_ping(struct fal_sched *s, double now)
{
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->has_left || !fal_worker_is_suspect(w) ||
		    fal_heap_has(&s->suspects, i) ||
		    w->ping.asked_at >= w->suspicion.since)
			continue;
		w->ping.asked_at = now;
		fal_act_emit(s,
			     (struct fal_act){ .kind = FAL_ACT_PING, .worker = w->id });
	}
}

/* ---- recalls -------------------------------------------------------------- */

/* Does no worker work, and does none wait for a retry by other workers? */
static bool
job_is_deserted(const struct fal_sched *s)
{
	bool any = s->active > 0;
	for (uint32_t i = 0; i < s->workers && !any; i++)
		any = fal_worker_able(&s->worker[i]);
	return !any;
}

static void
suspect_recall(struct fal_sched *s, struct fal_worker *w, double now)
{
	w->standing = FAL_MEMBER;
	w->progress_at = now;
	fal_worker_recount(s, w, now);
	member_announce(s, w, no_other, now);
}

/* Recalls all suspects that have sent messages, because no other worker is left. */
static void
suspects_recall(struct fal_sched *s, double now)
{
	uint32_t slot;
	suspects_ping(s, now);
	if (s->suspects.n == 0)
		return;
	s->patience *= 2;
	while ((slot = fal_heap_top(&s->suspects)) != FAL_NONE)
		suspect_recall(s, &s->worker[slot], now);
}

void
fal_suspects_recall_for_retry(struct fal_sched *s, double now)
{
	suspects_ping(s, now);
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->suspicion.is_recalled || !fal_heap_has(&s->suspects, i))
			continue;
		w->suspicion.is_recalled = true;
		suspect_recall(s, w, now);
	}
}

/* ---- debts of keys -------------------------------------------------------- */

/* The debt of the key, less the part that is paid by now; NULL: no debt. */
static struct fal_key_debt *
key_debt(const struct fal_sched *s, uint32_t key, double now)
{
	for (size_t i = 0; i < s->debts; i++) {
		struct fal_key_debt *c = &s->debt[i];
		if (c->key != key)
			continue;
		c->lost = fmax(0, c->lost - cost_part * (now - c->at));
		c->at = now;
		c->is_announced = c->is_announced && c->lost > 0;
		return c;
	}
	return NULL;
}

/* The time when the key has paid enough.  Where tasks are long, a late task costs more,
 * and so more is free.  If all workers have one key, lateness tells nothing about any
 * worker. */
static double
key_paid_at(const struct fal_sched *s, const struct fal_key_debt *c, double now)
{
	bool has_other_keys = false;
	for (uint32_t i = 0; i < s->workers && !has_other_keys; i++)
		has_other_keys = !s->worker[i].has_left && s->worker[i].key != c->key;
	if (!has_other_keys)
		return now;
	const double *turn_s = s->typical.turn_s;
	const double typical = fmax(turn_s[FAL_TURN_TASK], turn_s[FAL_TURN_PUSH]);
	return now + fmax(0, c->lost - fmax(free_s, free_turns * typical)) / cost_part;
}

double
fal_key_barred_until(const struct fal_sched *s, uint32_t key, double now)
{
	const struct fal_key_debt *c = key_debt(s, key, now);
	return c != NULL ? key_paid_at(s, c, now) : now;
}

/* Charges the key of `w` for the time that others have waited for `w` since `since`, less
 * the time that the key pays for another worker already, and less the time in which no
 * worker waited. */
static void
key_charge(struct fal_sched *s, struct fal_worker *w, double since, double now)
{
	struct fal_key_debt *c = key_debt(s, w->key, now);
	if (c == NULL) {
		FAL_XGROW(s->debt, s->debt_cap, s->debts + 1);
		c = &s->debt[s->debts++];
		*c = (struct fal_key_debt){ .key = w->key, .at = now };
	}
	c->lost += fmax(0, now - fmax(since, fmax(w->spared_at, c->until)));
	c->until = now;
	const double next_at = key_paid_at(s, c, now);
	const struct fal_act act = { .kind = FAL_ACT_BARRED,
				     .worker = w->id,
				     .seconds = next_at - now };
	for (struct fal_worker *same = s->worker; same < s->worker + s->workers; same++) {
		if (same->has_left || same->key != w->key)
			continue;
		same->suspicion.next_at = next_at;
		fal_worker_refresh(s, same, now);
	}
	if (c->is_announced || act.seconds < 1)
		return;
	c->is_announced = true;
	fal_act_emit(s, act);
}

/* ---- suspicion and probation ------------------------------------------------ */

/* Makes `w` a suspect: other workers, which have waited since `since`, do the work that
 * `w` owes. */
static void
worker_suspect(struct fal_sched *s, struct fal_worker *w, double since, double now)
{
	if (w->standing == FAL_PROBATION) {
		w->suspicion.failures += w->suspicion.failures < DOUBLINGS_MAX;
		s->probation.next_at = now + (now - since) / cost_part;
	}
	w->standing = FAL_SUSPECT;
	w->suspicion.since = now;
	s->probation.next_clock = s->pool.over + 1;
	key_charge(s, w, since, now);
	fal_worker_strip(s, w, true, now);
	fal_worker_recount(s, w, now);
	if (job_is_deserted(s))
		suspects_recall(s, now);
}

void
fal_probation_note_work(struct fal_sched *s, struct fal_worker *w, double now)
{
	const bool is_suspect = fal_worker_is_suspect(w);
	s->patience = 1;
	if (is_suspect)
		w->standing =
			w->suspicion.next_at <= now ? FAL_SUSPECT_PROVEN : FAL_SUSPECT;
	else
		w->standing = FAL_MEMBER;
	w->suspicion.is_recalled = false;
	w->suspicion.failures = 0;
	fal_worker_refresh(s, w, now);
	if (!is_suspect)
		member_announce(s, w, work_came, now);
}

void
fal_probation_advance(struct fal_sched *s, double now)
{
	struct fal_worker *w = fal_probation_worker(s);
	const bool is_active = w != NULL && fal_worker_active(w);
	uint32_t slot;
	/* A probation ends when the probation can tell nothing more. */
	if (w != NULL && (!is_active || s->active == 1)) {
		w->standing = FAL_MEMBER;
		fal_worker_refresh(s, w, now);
		member_announce(s, w, is_active ? no_other : "it is given no work", now);
	} else if (w != NULL && w->suspicion.has_task && w->queued == 0 &&
		   w->open_contribs == 0 && w->evals == 0) {
		/* The round was over without the task of `w`; more time would not have
		 * helped. */
		w->standing = FAL_MEMBER;
		worker_suspect(s, w, now, now);
	}
	while ((slot = fal_heap_top(&s->suspects)) != FAL_NONE &&
	       s->worker[slot].standing == FAL_SUSPECT_PROVEN) {
		w = &s->worker[slot];
		w->standing = FAL_MEMBER;
		fal_worker_recount(s, w, now);
		member_announce(s, w, work_came, now);
	}
	if (job_is_deserted(s))
		suspects_recall(s, now);
	if (fal_probation_worker(s) != NULL || s->active == 0 ||
	    now < s->probation.next_at || s->pool.over < s->probation.next_clock ||
	    fal_heap_min_key(&s->suspects) > now)
		return;
	w = &s->worker[fal_heap_top(&s->suspects)];
	w->standing = FAL_PROBATION;
	w->suspicion.has_task = false;
	w->progress_at = now;
	s->probation.worker = w->id;
	s->probation.next_clock = s->pool.over + 1;
	fal_worker_recount(s, w, now);
}

/* ---- deadlines ------------------------------------------------------------ */

/* Does another worker wait for the debts of `w`, and could that worker do the work?  If
 * no other worker is active the job waits, whatever its scheme. */
static bool
worker_is_waited_for(const struct fal_sched *s, const struct fal_worker *w)
{
	const bool has_others = s->active > fal_worker_active(w);
	bool has_substitute = has_others || s->suspects.n > 0;
	for (uint32_t i = 0; i < s->workers && s->barred > 0; i++)
		has_substitute |= s->worker[i].is_waiting && &s->worker[i] != w;
	return has_substitute &&
	       (s->traits.waits || w->standing == FAL_PROBATION || s->idle.n > 0 ||
		fal_probation_unserved(s) != NULL || s->retries > 0 || !has_others);
}

/* The time since which other workers have waited for the debt.  The wait is no longer
 * than the limit of the debt, because this process may have been suspended itself. */
static double
debt_waits_since(const struct fal_sched *s, const struct fal_worker *w,
		 const struct fal_debt *d, double now)
{
	return fal_max(d->first, now - (fal_debt_limit(s, w, d) - d->first));
}

/* Acts on a missed deadline of `w`.  True: `w` is a suspect now.  False: no worker waits
 * for `w`, or no worker would do the work sooner.  While the time of no task is known, a
 * busy worker would not be sooner.  A worker that awaits a version is not busy, because
 * the version may wait for this very work.  Silent suspects do not count, and are
 * pinged. */
static bool
debt_missed(struct fal_sched *s, struct fal_worker *w, const struct fal_debt *d,
	    const char *why, double now)
{
	const uint32_t self = fal_heap_has(&s->awaits, fal_worker_slot(s, w));
	const bool is_replaceable = !fal_turns_unknown(s) || s->idle.n > 0 ||
				    s->suspects.n > 0 || s->awaits.n > self;
	const struct fal_act act = { .kind = FAL_ACT_SUSPECT,
				     .worker = w->id,
				     .owes = d->what,
				     .why = why,
				     .seconds = now - d->since };
	w->ping.asked_at = -1;
	if (is_replaceable && worker_is_waited_for(s, w)) {
		if (!w->suspicion.is_announced) {
			w->suspicion.is_announced = true;
			w->suspicion.announced_at = now;
			fal_act_emit(s, act);
		}
		worker_suspect(s, w, debt_waits_since(s, w, d, now), now);
		return true;
	}
	w->excused_to = now + d->allowed_s;
	w->spared_at = now;
	/* A suspect alone may be able to end the clock. */
	s->probation.next_clock = s->pool.over;
	fal_worker_refresh(s, w, now);
	suspects_ping(s, now);
	return false;
}

void
fal_deadline_review(struct fal_sched *s, struct fal_worker *w, double now)
{
	struct fal_debt d = fal_debt_of(s, w);
	if (now < fal_debt_next_look(s, w, &d))
		return;
	if (now >= fal_max(d.push_until, w->excused_to)) {
		d.first = d.since = d.push_first;
		d.kind = FAL_TURN_PUSH;
		d.what = "push";
		debt_missed(s, w, &d, "it sends too slowly", now);
	} else if (fal_debt_is_asked(w, &d)) {
		debt_missed(s, w, &d, "it does not answer", now);
	} else {
		w->ping.asked_at = now;
		fal_act_emit(s,
			     (struct fal_act){ .kind = FAL_ACT_PING, .worker = w->id });
	}
}

bool
fal_deadline_note_answer(struct fal_sched *s, struct fal_worker *w, double asked,
			 uint64_t steps, double now)
{
	const struct fal_debt d = fal_debt_of(s, w);
	const bool has_answered_before = w->ping.answered_at >= d.since;
	const bool has_moved = steps > w->ping.steps;
	if (!fal_debt_is_asked(w, &d) || asked < w->ping.asked_at)
		return false;
	w->ping.asked_at = -1;
	w->ping.steps = steps;
	w->ping.answered_at = now;
	if (has_answered_before && now >= fal_debt_due_at(s, w, &d)) {
		if (!has_moved)
			return debt_missed(s, w, &d,
					   d.kind == FAL_TURN_PUSH
						   ? "it sends nothing"
						   : "its lanes stand still",
					   now);
		if (now >= fal_debt_limit(s, w, &d))
			return debt_missed(s, w, &d, "it takes too long", now);
		w->excused_to = fal_min(now + d.allowed_s, fal_debt_limit(s, w, &d));
	}
	fal_worker_refresh(s, w, now);
	return false;
}

void
fal_deadline_note_leave(struct fal_sched *s, struct fal_worker *w, double now)
{
	const struct fal_debt d = fal_debt_of(s, w);
	const double usual_s = d.kind == FAL_TURN_PUSH ? s->typical.turn_s[FAL_TURN_PUSH]
						       : fal_turn_typical_s(s, w);
	if (worker_is_waited_for(s, w) && now > d.first + usual_s)
		key_charge(s, w, debt_waits_since(s, w, &d, now) + usual_s, now);
}
