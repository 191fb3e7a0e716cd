/* Deadlines: the work that each worker owes; suspects, and the trials that bring them
 * back. */
#include "sched/state.h"

#include "base/mem.h"
#include "base/minmax.h"
#include "base/oversubscription.h"
#include "base/quantile.h"

#include <math.h>
#include <stdlib.h>

/* ---- suspects and trials -------------------------------------------------- */

/* Suspects are workers that have not kept a deadline.  A suspect becomes a full member
 * again by work that arrives.  A trial gives a suspect one task, which no other worker
 * may take meanwhile.  There is one trial at a time, and none before the last failed
 * trial has cost no more than FAL_COST_PART of the time.
 *
 * The time that others have waited for a worker is a debt of the worker's key, whose
 * sessions come and go: a key that owes more than it may gets no work before it has paid
 * the excess, FAL_COST_PART of a second in each.
 *
 * Somebody works at any time.  When no worker is left all suspects are back, with twice
 * the time: then the suspects were not the slow ones.  When no worker of another key is
 * left for a retry all suspects are back, too, each of them once, until its work has
 * come: else each of many retries would wait for a worker that does nothing any more. */

/* The most doublings of a trial's time: a task that failed for want of time may succeed.
 */
enum { DOUBLED = 4 };

static const char came[] = "its work came", alone[] = "nobody else is left";

/* The worker on trial, or NULL. */
static struct fal_worker *
on_trial(const struct fal_sched *s)
{
	struct fal_worker *w = s->trial != 0 ? fal_worker_find(s, s->trial) : NULL;
	return w != NULL && w->trial ? w : NULL;
}

/* Is there anybody else who works, or may be tried? */
static bool
trial_others(const struct fal_sched *s, const struct fal_worker *w)
{
	bool waits = false; /* for its word */
	for (uint32_t i = 0; i < s->workers && s->barred > 0; i++)
		waits |= s->worker[i].waits && &s->worker[i] != w;
	return waits || s->active > fal_worker_active(w) || s->suspects.n > 0;
}

/* Tells that it is a suspect from now on, as the act says, unless that was told. */
static void
trial_tell(struct fal_sched *s, struct fal_worker *w, struct fal_act act, double now)
{
	if (w->told)
		return;
	act.kind = FAL_ACT_SUSPECT;
	act.worker = w->id;
	w->told = true;
	w->told_at = now;
	fal_act_emit(s, act);
}

/* Tells that `w` is a full member again. */
static void
tell_back(struct fal_sched *s, struct fal_worker *w, const char *why, double now)
{
	const struct fal_act act = { .kind = FAL_ACT_BACK,
				     .worker = w->id,
				     .why = why,
				     .seconds = now - w->told_at };
	if (!w->told)
		return;
	w->told = false;
	fal_act_emit(s, act);
}

/* Whoever has not spoken since it was suspected is asked, once. */
static void
trial_ask(struct fal_sched *s, double now)
{
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		const struct fal_act ping = { .kind = FAL_ACT_PING, .worker = w->id };
		const bool speaks = fal_heap_has(&s->suspects, i);
		if (w->gone || !w->suspected || speaks || w->asked >= w->suspected_at)
			continue;
		w->asked = now;
		fal_act_emit(s, ping);
	}
}

/* Is there no worker who works, or waits for others to do a retry? */
static bool
is_deserted(const struct fal_sched *s)
{
	bool any = s->active > 0;
	for (uint32_t i = 0; i < s->workers && !any; i++)
		any = fal_worker_able(&s->worker[i]);
	return !any;
}

static void
call_back(struct fal_sched *s, struct fal_worker *w, double now)
{
	w->suspected = false;
	w->base = now;
	fal_worker_recount(s, w, now);
	tell_back(s, w, alone, now);
}

/* All suspects are back: nobody else is left. */
static void
trial_recall(struct fal_sched *s, double now)
{
	uint32_t slot;
	trial_ask(s, now);
	if (s->suspects.n == 0)
		return;
	s->patience *= 2;
	while ((slot = fal_heap_top(&s->suspects)) != FAL_NONE)
		call_back(s, &s->worker[slot], now);
}

void
fal_suspects_recall_for_retry(struct fal_sched *s, double now)
{
	trial_ask(s, now);
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (w->called || !fal_heap_has(&s->suspects, i))
			continue;
		w->called = true;
		call_back(s, w, now);
	}
}

/* The debt of the key for what others have waited, which the key pays as time goes by;
 * NULL: no debt. */
static struct fal_key_debt *
cost_of(const struct fal_sched *s, uint32_t key, double now)
{
	for (size_t i = 0; i < s->costs; i++) {
		struct fal_key_debt *c = &s->cost[i];
		if (c->key != key)
			continue;
		c->lost = fmax(0, c->lost - FAL_COST_PART * (now - c->at));
		c->at = now;
		c->told = c->told && c->lost > 0;
		return c;
	}
	return NULL;
}

static bool
has_other_keys(const struct fal_sched *s, uint32_t key)
{
	bool any = false;
	for (uint32_t i = 0; i < s->workers && !any; i++)
		any = !s->worker[i].gone && s->worker[i].key != key;
	return any;
}

/* When the key has paid enough: a late task costs more where tasks are long.  If all
 * workers have one key, lateness says nothing of any of them. */
static double
paid_at(const struct fal_sched *s, const struct fal_key_debt *c, double now)
{
	if (!has_other_keys(s, c->key))
		return now;
	const double typical = fmax(s->typical[FAL_TURN_TASK], s->typical[FAL_TURN_PUSH]);
	const double free_s = fmax(FAL_COST_FREE_S, FAL_COST_FREE_TURNS * typical);
	return now + fmax(0, c->lost - free_s) / FAL_COST_PART;
}

double
fal_key_barred_until(const struct fal_sched *s, uint32_t key, double now)
{
	const struct fal_key_debt *c = cost_of(s, key, now);
	return c != NULL ? paid_at(s, c, now) : now;
}

/* Charges the key of `w` for the time that others have waited for `w` since `since`, but
 * for the time that the key pays for another worker already, and when nobody waited. */
static void
trial_charge(struct fal_sched *s, struct fal_worker *w, double since, double now)
{
	struct fal_key_debt *c = cost_of(s, w->key, now);
	if (c == NULL) {
		FAL_XGROW(s->cost, s->cost_cap, s->costs + 1);
		c = &s->cost[s->costs++];
		*c = (struct fal_key_debt){ .key = w->key, .at = now };
	}
	c->lost += fmax(0, now - fmax(since, fmax(w->spared, c->until)));
	c->until = now;
	const double again = paid_at(s, c, now);
	const struct fal_act act = { .kind = FAL_ACT_BARRED,
				     .worker = w->id,
				     .seconds = again - now };
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *of = &s->worker[i];
		if (of->gone || of->key != w->key)
			continue;
		of->again = again;
		fal_worker_refresh(s, of, now);
	}
	if (c->told || act.seconds < 1)
		return;
	c->told = true;
	fal_act_emit(s, act);
}

/* `w` has not kept its deadline: others, who have waited since `since`, do the work that
 * `w` owes.  trial_tell has told before that `w` is a suspect. */
static void
suspect(struct fal_sched *s, struct fal_worker *w, double since, double now)
{
	if (w->trial) {
		w->failed += w->failed < DOUBLED;
		s->trial_from = now + (now - since) / FAL_COST_PART;
	}
	w->trial = w->proved = false;
	w->suspected = true;
	w->suspected_at = now;
	s->trial_clock = s->pool.over + 1;
	trial_charge(s, w, since, now);
	fal_worker_strip(s, w, true, now);
	fal_worker_recount(s, w, now);
	if (is_deserted(s))
		trial_recall(s, now);
}

void
fal_probation_note_work(struct fal_sched *s, struct fal_worker *w, double now)
{
	s->patience = 1;
	w->proved = w->suspected && w->again <= now;
	w->trial = w->called = false;
	w->failed = 0;
	fal_worker_refresh(s, w, now);
	if (!w->suspected)
		tell_back(s, w, came, now);
}

/* Brings back the suspects whose work came, late as it was. */
static void
take_back(struct fal_sched *s, double now)
{
	uint32_t slot;
	while ((slot = fal_heap_top(&s->suspects)) != FAL_NONE &&
	       s->worker[slot].proved) {
		struct fal_worker *w = &s->worker[slot];
		w->suspected = w->proved = false;
		fal_worker_recount(s, w, now);
		tell_back(s, w, came, now);
	}
}

bool
fal_trial_of(const struct fal_sched *s, const struct fal_team *t)
{
	const struct fal_worker *w = on_trial(s);
	return w != NULL && w->team == t && t->members == 1 && !s->is.shared;
}

/* Ends the trial that has lost its object. */
static void
end(struct fal_sched *s, struct fal_worker *w, double now)
{
	if (!fal_worker_active(w) || s->active == 1) {
		const bool only = fal_worker_active(w);
		w->trial = false;
		fal_worker_refresh(s, w, now);
		tell_back(s, w, only ? alone : "it is given no work", now);
		return;
	}
	/* The round was over without it: more time would not have helped the trial. */
	bool lost = w->tried && w->queued == 0 && w->owed == 0 && w->evals == 0;
	if (!lost)
		return;
	w->trial = false;
	suspect(s, w, now, now);
}

void
fal_probation_advance(struct fal_sched *s, double now)
{
	struct fal_worker *w = on_trial(s);
	if (w != NULL)
		end(s, w, now);
	take_back(s, now);
	if (is_deserted(s))
		trial_recall(s, now);
	if (on_trial(s) != NULL || s->active == 0 || now < s->trial_from ||
	    s->pool.over < s->trial_clock || fal_heap_least(&s->suspects) > now)
		return;
	w = &s->worker[fal_heap_top(&s->suspects)];
	w->suspected = w->tried = false;
	w->trial = true;
	w->base = now;
	s->trial = w->id;
	s->trial_clock = s->pool.over + 1;
	fal_worker_recount(s, w, now);
}

struct fal_worker *
fal_probation_unserved(const struct fal_sched *s)
{
	struct fal_worker *w = on_trial(s);
	return w != NULL && w->queued == 0 && w->owed == 0 && !w->tried ? w : NULL;
}

/* ---- deadlines ------------------------------------------------------------ */

/* The debts of a worker and their deadlines: measured here, from the grant to the claim,
 * and from the last claim to the last block.  A worker's word about itself counts for
 * nothing.
 *
 * A nearly late worker is asked, and again when its debt is due: the answer comes behind
 * all that the worker had to say, and tells how far its lanes are.  Lanes that go on have
 * longer, up to FAL_DEADLINE_TIMES_MAX the deadline, but on trial; all others have not kept the
 * deadline.  A worker that sends block by block has not kept it, either, if all blocks
 * take it much more time than blocks have taken it.  Nobody is late where nobody waits
 * for the others' work. */

static const double deadline_floor = 0.2; /* seconds (design.md, D7) */
static const double floor_rtts = 4;       /* as above, */
static const double rtt_max = 1;          /* … of a second at most */
/* The part of the deadline after which a worker is asked.  If no deadline is
 * known, the worker is asked at once, so that all that its lanes do until then counts. */
static const double first_look = 0.85;
static const double unknown_times =
	4; /* medians of the others, or pulls, without history */
static const double probe_times = 10; /* the least probe, where nobody has any */
static const char push[] = "push";    /* what is owed, as the trace calls it */

/* The debt that is due first. */
struct debt {
	double first; /* since when it is owed */
	double since; /* when something of it last came */
	double d;     /* seconds from then on */
	const char *owes;
	/* The contribution whose last block is due first: since when, and until when. */
	double begun, whole;
};

void
fal_turn_add(struct fal_sched *s, struct fal_worker *w, enum fal_turn_kind kind,
	   double seconds)
{
	struct fal_window *t = &w->turn[kind];
	s->knowing[kind] += t->n == 0;
	s->unknown -= t->n == 0 && kind == FAL_TURN_TASK;
	fal_window_add(t, fal_max(seconds, 1e-6));
	/* Another value of many changes little. */
	if (t->n <= FAL_WINDOW || t->n % 4 == 0)
		fal_window_judge(t);
}

/* The lower median of what the workers show that have shown any, at their lanes; 0. */
static double
median_of_all(struct fal_sched *s, enum fal_turn_kind kind)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		double crowd = kind == FAL_TURN_TASK
				       ? fal_oversubscription(w->lanes, w->cores)
				       : 1;
		if (!w->gone && w->turn[kind].n > 0)
			s->scratch[n++] = w->turn[kind].mid * crowd;
	}
	return n > 0 ? fal_nth_least(s->scratch, n, (n - 1) / 2) : 0;
}

/* Have so many more shown something that what is typical may be another? */
static bool
is_stale(const struct fal_sched *s)
{
	const double probe_s = s->typical_known.probe_s;
	bool stale = s->typical_known.over != s->pool.over ||
		     (s->probe_s > 0 && (probe_s == 0 || 2 * s->probe_s <= probe_s));
	for (int k = 0; k < FAL_TURNS; k++)
		stale |= s->knowing[k] > 0 &&
			 s->knowing[k] >= 2 * s->typical_known.knowing[k];
	return stale;
}

void
fal_typical_update(struct fal_sched *s)
{
	if (s->unknown == 0 || !is_stale(s))
		return;
	s->typical_known.over = s->pool.over;
	s->typical_known.probe_s = s->probe_s;
	for (int k = 0; k < FAL_TURNS; k++) {
		s->typical_known.knowing[k] = s->knowing[k];
		s->typical[k] = median_of_all(s, (enum fal_turn_kind)k);
	}
	for (uint32_t i = 0; i < s->workers; i++)
		if (s->worker[i].turn[FAL_TURN_TASK].n == 0 && !s->worker[i].gone)
			fal_worker_refresh_deadline(s, &s->worker[i]);
}

/* Without a history of its own. */
static double
guess(const struct fal_sched *s, const struct fal_worker *w, enum fal_turn_kind kind)
{
	if (s->typical[kind] > 0)
		return unknown_times * s->typical[kind];
	if (kind == FAL_TURN_PUSH) /* what it pulled is about as large */
		return fal_max(w->turn[FAL_TURN_TASK].most, unknown_times * w->pull.most);
	return probe_times * s->probe_s * fal_oversubscription(w->lanes, w->cores);
}

/* The seconds of a full task at `w`, as measured here; without that, as may be guessed.
 */
static double
turn_s(const struct fal_sched *s, const struct fal_worker *w)
{
	const struct fal_window *t = &w->turn[FAL_TURN_TASK];
	if (t->n > 0)
		return t->mid * fal_oversubscription(w->lanes, w->cores);
	return guess(s, w, FAL_TURN_TASK) / unknown_times;
}

/* Has nobody in the job shown, nor said, what a task takes? */
static bool
nothing_known(const struct fal_sched *s)
{
	return s->knowing[FAL_TURN_TASK] == 0 && s->probe_s == 0;
}

/* The least deadline of `w`, wherever `w` is: some round trips. */
static double
there_and_back(const struct fal_worker *w)
{
	return floor_rtts * fal_min(w->rtt, rtt_max);
}

static double
deadline(const struct fal_sched *s, const struct fal_worker *w, enum fal_turn_kind kind,
	 double least)
{
	double d = w->turn[kind].most;
	if (w->turn[kind].n == 0)
		d = guess(s, w, kind);
	else if (kind == FAL_TURN_TASK)
		d *= fal_oversubscription(w->lanes, w->cores);
	d = fal_max(fal_max(d, deadline_floor), least);
	return s->patience * d * (w->trial ? 1u << w->failed : 1);
}

double
fal_task_deadline_s(const struct fal_sched *s, const struct fal_worker *w)
{
	return (w->checks > 0 ? 2 : 1) * deadline(s, w, FAL_TURN_TASK, there_and_back(w));
}

void
fal_deadline_note_claim(struct fal_sched *s, struct fal_worker *w, const struct fal_node *n,
		double now)
{
	/* Short ones would say too little. */
	if (n->began >= 0 && fal_task_samples(n->round, n->task) == s->full)
		fal_turn_add(s, w, FAL_TURN_TASK,
			   (now - n->began) / fal_oversubscription(w->lanes, w->cores));
}

/* The longest deadline of a worker whose lanes go on: distance does not make lanes
 * slower, so that round trips are not multiplied. */
static double
longest(const struct fal_sched *s, const struct fal_worker *w, enum fal_turn_kind kind)
{
	const double d = deadline(s, w, kind, there_and_back(w));
	return w->trial ? d : fal_max(d, FAL_DEADLINE_TIMES_MAX * deadline(s, w, kind, 0));
}

/* Takes in that contribution `c` is owed, with nothing to add since `first`, if it is due
 * before `o`. */
static void
take_in(const struct fal_sched *s, const struct fal_worker *w,
	const struct fal_contrib *c, double first, struct debt *o)
{
	const double since = fal_max(first, c->came);
	const double d = deadline(s, w, FAL_TURN_PUSH, there_and_back(w));
	const double pulls = unknown_times * s->patience * w->pull.most;
	const double whole = fal_max(longest(s, w, FAL_TURN_PUSH), pulls);
	if (since + d < o->since + o->d) {
		o->first = first;
		o->since = since;
		o->d = d;
		o->owes = push;
	}
	/* Several may have been closed together, with the last claim. */
	const double begun = w->head == NULL ? fal_max(first, w->base) : first;
	if (begun + whole < o->whole) {
		o->begun = begun;
		o->whole = begun + whole;
	}
}

/* The first one open of those that it may work for, or NULL. */
static const struct fal_round *
first_round(const struct fal_sched *s, const struct fal_worker *w)
{
	return s->is.own ? w->team->rounds : s->oldest;
}

/* Is there any to which it has nothing more to add? */
static bool
owes_blocks(const struct fal_sched *s, const struct fal_worker *w)
{
	if (w->owed == 0 || w->head == NULL)
		return w->owed > 0;
	const struct fal_round *r = first_round(s, w);
	return r != NULL && r->id < w->head->round->id;
}

/* The contributions to which it has nothing more to add: those of rounds before the one
 * that its queue begins with. */
static void
owed_blocks(const struct fal_sched *s, const struct fal_worker *w, struct debt *o)
{
	const struct fal_round *r = first_round(s, w);
	uint32_t left = w->owed;
	for (; r != NULL && left > 0; r = s->is.own ? r->next : r->newer) {
		const struct fal_ledger *l = &r->ledger;
		if (w->head != NULL && r->id >= w->head->round->id)
			return;
		for (uint32_t c = fal_ledger_newest(l, w->id); c != FAL_NONE;
		     c = l->contrib[c].older) {
			if (l->contrib[c].state != FAL_CONTRIB_OPEN)
				continue;
			take_in(s, w, &l->contrib[c],
				fal_max(l->contrib[c].claimed, fal_worker_relieved_at(w, r)), o);
			left--;
		}
	}
	/* To rounds of others (flexrr). */
	const struct fal_contrib any = { .came = w->came };
	if (left > 0 && w->head == NULL)
		take_in(s, w, &any, fal_max(w->base, w->relieved), o);
}

static struct debt
debt_of(const struct fal_sched *s, const struct fal_worker *w)
{
	struct debt o = { .first = INFINITY, .since = INFINITY, .whole = INFINITY };
	if (w->queued > 0) {
		o.first = o.since = w->began;
		o.d = fal_task_deadline_s(s, w);
		o.owes = "task";
	}
	if (owes_blocks(s, w))
		owed_blocks(s, w, &o);
	if (w->queued == 0 && w->owed == 0 && w->evals > 0) {
		/* First it may have to pull the version that is evaluated. */
		double d = fal_task_deadline_s(s, w);
		o.first = o.since = w->base;
		o.d = d + fal_min(w->pull.most, d);
		o.owes = "eval";
	}
	return o;
}

static double
limit(const struct fal_sched *s, const struct fal_worker *w, const struct debt *o)
{
	const enum fal_turn_kind kind = o->owes == push ? FAL_TURN_PUSH : FAL_TURN_TASK;
	return o->first + fal_max(o->d, longest(s, w, kind));
}

/* Others have waited for it since then: for no longer than it may have, in which this
 * process stood still itself. */
static double
waits_since(const struct fal_sched *s, const struct fal_worker *w, const struct debt *o,
	    double now)
{
	return fal_max(o->first, now - (limit(s, w, o) - o->first));
}

static double
due_at(const struct fal_sched *s, const struct fal_worker *w, const struct debt *o)
{
	return fal_max(fal_min(o->since + o->d, limit(s, w, o)), w->excused);
}

/* Has it been asked for this debt, and not answered? */
static bool
is_asked(const struct fal_worker *w, const struct debt *o)
{
	return w->asked >= o->since;
}

static double
next_look(const struct fal_sched *s, const struct fal_worker *w, const struct debt *o)
{
	const double look = nothing_known(s) ? 0 : first_look;
	const double whole = fal_max(o->whole, w->excused);
	if (is_asked(w, o))
		return fal_min(whole, w->asked + o->d);
	if (w->steps_at < o->since)
		return fal_min(whole, o->since + look * o->d);
	return fal_min(whole, fal_max(due_at(s, w, o), w->steps_at + (1 - look) * o->d));
}

double
fal_deadline_next_look(const struct fal_sched *s, const struct fal_worker *w, double late)
{
	/* Whatever the deadline, tasks are due no sooner than that. */
	const double least = first_look * s->patience * deadline_floor;
	if (late < w->began + least && w->head != NULL && !nothing_known(s) &&
	    !owes_blocks(s, w))
		return late;
	const struct debt o = debt_of(s, w);
	return isinf(o.since) ? INFINITY : fal_min(next_look(s, w, &o), late);
}

/* Does anybody wait for what the worker owes, who could do it?  Where no other worker is
 * active the job waits, whatever its scheme. */
static bool
is_waited_for(const struct fal_sched *s, const struct fal_worker *w)
{
	const bool waited = s->is.waits || w->trial || s->idle.n > 0 || s->retries > 0 ||
			    s->active <= fal_worker_active(w);
	return waited && trial_others(s, w);
}

/* The worker has not kept its deadline.  True: it is suspected.  False: nobody waits for
 * it, or nobody would do its work sooner but suspects that were not asked since.  While
 * nothing is known of tasks, a busy worker would not; one that awaits a version is not
 * busy, and the version may wait for this very work. */
static bool
overdue(struct fal_sched *s, struct fal_worker *w, const struct debt *o, const char *why,
	double now)
{
	const bool awaits = s->awaits.n > fal_heap_has(&s->awaits, fal_worker_slot(s, w));
	const bool free =
		!nothing_known(s) || s->idle.n > 0 || s->suspects.n > 0 || awaits;
	const struct fal_act act = { .owes = o->owes,
				     .why = why,
				     .seconds = now - o->since };
	w->asked = -1;
	if (free && is_waited_for(s, w)) {
		trial_tell(s, w, act, now);
		suspect(s, w, waits_since(s, w, o, now), now);
		return true;
	}
	w->excused = now + o->d;
	w->spared = now;
	s->trial_clock = s->pool.over; /* nobody else may be there to end the clock */
	fal_worker_refresh(s, w, now);
	trial_ask(s, now);
	return false;
}

void
fal_deadline_review(struct fal_sched *s, struct fal_worker *w, double now)
{
	const struct debt o = debt_of(s, w);
	if (now < next_look(s, w, &o))
		return;
	if (now >= fal_max(o.whole, w->excused)) {
		const struct debt all = { o.begun, o.begun, o.d, push, o.begun, o.whole };
		overdue(s, w, &all, "it sends too slowly", now);
	} else if (is_asked(w, &o)) {
		overdue(s, w, &o, "it does not answer", now);
	} else {
		w->asked = now;
		fal_act_emit(s, (struct fal_act){ .kind = FAL_ACT_PING, .worker = w->id });
	}
}

bool
fal_deadline_note_answer(struct fal_sched *s, struct fal_worker *w, double asked, uint64_t steps,
	       double now)
{
	const struct debt o = debt_of(s, w);
	bool answers = is_asked(w, &o) && asked >= w->asked;
	bool known = w->steps_at >= o.since, moved = steps > w->steps;
	if (!answers)
		return false;
	w->asked = -1;
	w->steps = steps;
	w->steps_at = now;
	if (known && now >= due_at(s, w, &o)) {
		if (moved && now >= limit(s, w, &o))
			return overdue(s, w, &o, "it takes too long", now);
		if (!moved)
			return overdue(s, w, &o,
				       o.owes == push ? "it sends nothing"
						      : "its lanes stand still",
				       now);
		w->excused = fal_min(now + o.d, limit(s, w, &o));
	}
	fal_worker_refresh(s, w, now);
	return false;
}

void
fal_deadline_note_leave(struct fal_sched *s, struct fal_worker *w, double now)
{
	const struct debt o = debt_of(s, w);
	const double usual = o.owes == push ? s->typical[FAL_TURN_PUSH] : turn_s(s, w);
	if (is_waited_for(s, w) && now > o.first + usual)
		trial_charge(s, w, waits_since(s, w, &o, now) + usual, now);
}
