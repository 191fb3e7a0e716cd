/* Tasks that are run once more, elsewhere: to be added, or only to be a witness.
 *
 * A round whose sums are not believed, or lead out of the numbers, is done again in part:
 * its contributions are fenced as they stand, and others fill them; not, where there is
 * anybody else, the key on which suspicion fell.  A check runs the tasks of one
 * contribution on one worker of another key, which answers what they needed. */
#include "sched/check.h"

#include "base/mem.h"
#include "sched/due.h"
#include "sched/members.h"
#include "sched/queue.h"
#include "sched/round.h"
#include "sched/speed.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

static void
forget(struct fal_sched *s, struct fal_check *c)
{
	free(c->task);
	*c = s->check[--s->checks];
}

/* The place of the task among those that are not answered yet; c->left: it is none. */
static uint32_t
place(const struct fal_check *c, uint32_t task)
{
	uint32_t k = 0;
	while (k < c->left && c->task[k] != task)
		k++;
	return k;
}

/* Is the witness to run the task for another check, too? */
static bool
for_another(const struct fal_sched *s, const struct fal_check *c, uint32_t task)
{
	for (size_t i = 0; i < s->checks; i++) {
		const struct fal_check *o = &s->check[i];
		if (o != c && o->round == c->round && o->worker == c->worker &&
		    place(o, task) < o->left)
			return true;
	}
	return false;
}

/* Nobody wants the rest of the check. */
static int
unask(struct fal_sched *s, struct fal_check *c)
{
	struct fal_act act = { .kind = FAL_ACT_UNCHECK,
			       .worker = c->worker,
			       .round = c->round };
	for (uint32_t k = 0; k < c->left; k++)
		if (!for_another(s, c, c->task[k]) &&
		    fal_emit_task(s, act, c->task[k]) < 0)
			return FAL_ENOMEM;
	forget(s, c);
	return FAL_OK;
}

/* ---- again ----------------------------------------------------------------------- */

static bool
others_in(const struct fal_sched *s, const struct fal_round *r)
{
	for (uint32_t i = 0; i < s->workers; i++) {
		const struct fal_worker *w = &s->worker[i];
		if (fal_worker_active(w) && w->team == r->team && w->key != r->suspect)
			return true;
	}
	return false;
}

bool
fal_may_run(const struct fal_sched *s, const struct fal_round *r,
	    const struct fal_worker *w)
{
	return r->suspect == 0 || w->key != r->suspect || !others_in(s, r);
}

static int
fence(struct fal_sched *s, struct fal_round *r, uint32_t ci, double now)
{
	struct fal_ledger *l = &r->ledger;
	const struct fal_contrib *c = &l->contrib[ci];
	struct fal_worker *w = fal_find(s, c->id.worker);
	const bool owed = c->state == FAL_CONTRIB_OPEN;
	if (!owed)
		fal_ledger_reopen(l, ci);
	if (fal_fence(s, r, ci) < 0)
		return FAL_ENOMEM;
	if (owed && w != NULL) {
		w->owed--;
		fal_refresh(s, w, now);
	}
	return FAL_OK;
}

int
fal_sched_again(struct fal_sched *s, double now, uint64_t round, uint32_t suspect,
		const uint32_t *brought)
{
	struct fal_round *r = fal_round_find(s, round);
	if (r == NULL)
		return FAL_OK;
	for (size_t i = 0; i < s->checks;)
		if (s->check[i].round != round || s->check[i].one != FAL_NONE)
			i++;
		else if (unask(s, &s->check[i]) < 0)
			return FAL_ENOMEM;
	r->suspect = suspect;
	for (uint32_t i = 0; i < r->ledger.contribs; i++) {
		struct fal_contrib *c = &r->ledger.contrib[i];
		c->blocks = brought[i];
		/* Also what was not whole yet: blocks of it are gone, too. */
		if (c->state != FAL_CONTRIB_FENCED && fence(s, r, i, now) < 0)
			return FAL_ENOMEM;
	}
	return fal_settle(s, now);
}

int
fal_sched_abandon(struct fal_sched *s, double now, uint64_t round, const char *why)
{
	struct fal_round *r = fal_round_find(s, round);
	const struct fal_act end = { .fate = FAL_FATE_ABANDON, .why = why };
	if (r == NULL)
		return FAL_OK;
	int err = fal_round_end(s, r, end, now);
	return err < 0 ? err : fal_settle(s, now);
}

/* ---- checks ---------------------------------------------------------------------- */

/* Has the worker this version?  The one team of all has all that are kept; of others
 * there is what they were sent last. */
static bool
has(const struct fal_sched *s, const struct fal_worker *w, uint64_t version)
{
	return s->is.shared || w->version == version;
}

/* Whose word is wanted to decide between two others' may be a suspect, too: it is a
 * matter of its machine, not of its haste. */
static bool
is_here(const struct fal_worker *w, const struct fal_check_of *of)
{
	return fal_worker_active(w) || (of->but != 0 && w->suspected && !w->gone &&
					!w->excluded && !w->stands_by && !w->waits);
}

/* May `w` be the witness?  It must have the version, or be able to get it; and not have
 * let a check lie and done no task since. */
static bool
is_other(const struct fal_sched *s, const struct fal_worker *w,
	 const struct fal_check_of *of)
{
	const bool silent = w->unheard != 0 && w->unheard == w->claims + 1;
	const bool alike = !of->is_one || w->numerics == of->numerics;
	return is_here(w, of) && w->key != of->key && w->key != of->but && alike &&
	       !silent && (has(s, w, of->version) || of->version == s->version);
}

uint32_t
fal_checks_held(const struct fal_sched *s, const struct fal_worker *w)
{
	uint32_t n = 0;
	for (size_t i = 0; i < s->checks; i++)
		n += s->check[i].worker == w->id ? s->check[i].left : 0;
	return n;
}

bool
fal_checks_before(const struct fal_sched *s, const struct fal_worker *w,
		  const struct fal_node *n)
{
	for (size_t i = 0; i < s->checks; i++) {
		const struct fal_check *c = &s->check[i];
		/* A worker runs what is of the older round first. */
		if (c->worker == w->id && c->round <= n->round->id &&
		    c->since <= n->began)
			return true;
	}
	return false;
}

/* Seconds until it may have run all that it is asked as a witness, and so many more. */
static double
patience(const struct fal_sched *s, const struct fal_worker *w, uint32_t more)
{
	const uint32_t tasks = w->queued + fal_checks_held(s, w) + more;
	return fal_deadline_s(s, w) + ceil((double)tasks / w->lanes) * fal_turn_s(s, w);
}

/* What it says of a task does not tell on which version it was run: where these differ
 * nobody is asked twice. */
static bool
was_asked(const struct fal_round *r, const struct fal_worker *w,
	  const struct fal_check *c)
{
	for (uint32_t k = 0; r->mixed && k < c->left; k++)
		if (fal_holds_has(&r->asked, c->task[k] - r->ledger.first, w->id))
			return true;
	return false;
}

/* The witness that is done first, but a suspect only where all are; NULL: there is none.
 */
static struct fal_worker *
witness(struct fal_sched *s, const struct fal_round *r, const struct fal_check_of *of,
	const struct fal_check *c)
{
	struct fal_worker *best = NULL;
	double least = 0;
	for (uint32_t i = 0; i < s->workers; i++) {
		struct fal_worker *w = &s->worker[i];
		if (!is_other(s, w, of) || was_asked(r, w, c))
			continue;
		const double tasks_left = w->queued + fal_checks_held(s, w) + c->left;
		const double cost =
			w->suspected ? INFINITY : tasks_left / fal_rate(s, w, w->lanes);
		if (best == NULL || cost < least) {
			best = w;
			least = cost;
		}
	}
	return best;
}

/* The check, of nobody yet: c->task is to be freed.  FAL_ENOMEM. */
static int
make_check(const struct fal_round *r, uint32_t ci, const struct fal_check_of *of,
	   struct fal_check *c)
{
	const struct fal_ledger *l = &r->ledger;
	const uint32_t tasks = of->is_one ? 1 : l->contrib[ci].tasks;
	*c = (struct fal_check){ .round = r->id,
				 .id = of->id,
				 .one = of->is_one ? of->one : FAL_NONE,
				 .task = fal_calloc(tasks, sizeof(*c->task)) };
	if (c->task == NULL)
		return FAL_ENOMEM;
	if (of->is_one)
		c->task[c->left++] = of->one;
	for (uint32_t i = l->contrib[ci].head; i != FAL_NONE && !of->is_one;
	     i = l->claim[i].next)
		c->task[c->left++] = l->claim[i].task;
	return FAL_OK;
}

/* `w` is told. */
static int
tell_check(struct fal_sched *s, struct fal_round *r, struct fal_worker *w,
	   const struct fal_check_of *of, const struct fal_check *c)
{
	const struct fal_act model = { .kind = FAL_ACT_MODEL, .worker = w->id };
	struct fal_act act = { .kind = FAL_ACT_CHECK,
			       .worker = w->id,
			       .round = r->id,
			       .version = of->version };
	if (!has(s, w, of->version)) {
		w->version = s->version;
		if (fal_emit(s, model) == NULL)
			return FAL_ENOMEM;
	}
	for (uint32_t k = 0; k < c->left; k++)
		if ((r->mixed && fal_holds_give(&r->asked, c->task[k] - r->ledger.first,
						w->id) < 0) ||
		    fal_emit_task(s, act, c->task[k]) < 0)
			return FAL_ENOMEM;
	act.kind = FAL_ACT_PING; /* how far it is now */
	return fal_emit(s, act) != NULL ? FAL_OK : FAL_ENOMEM;
}

int
fal_sched_check(struct fal_sched *s, double now, uint64_t round,
		const struct fal_check_of *of)
{
	struct fal_round *r = fal_round_find(s, round);
	uint32_t ci = r != NULL ? fal_ledger_find(&r->ledger, of->id) : FAL_NONE;
	struct fal_check c;
	if (ci == FAL_NONE)
		return 0;
	if (FAL_GROW(s->check, s->check_cap, s->checks + 1) < 0 ||
	    make_check(r, ci, of, &c) < 0)
		return FAL_ENOMEM;
	struct fal_worker *w = witness(s, r, of, &c);
	if (w == NULL) {
		free(c.task);
		return 0;
	}
	c.worker = w->id;
	c.claims = w->claims;
	c.since = c.asked = now;
	c.steps = UINT64_MAX;
	c.expires = now + patience(s, w, c.left);
	c.last = now + FAL_MOST_TIMES * patience(s, w, c.left);
	s->check[s->checks++] = c;
	return tell_check(s, r, w, of, &c) < 0 ? FAL_ENOMEM : 1;
}

/* `worker` has answered task k of the check.  2: that was the last one; else 1. */
static int
answered(struct fal_sched *s, struct fal_check *c, uint32_t k)
{
	struct fal_worker *w = fal_find(s, c->worker);
	fal_put_off(s, w, w->heard); /* it spoke just now */
	c->task[k] = c->task[--c->left];
	if (c->left > 0)
		return 1;
	forget(s, c);
	return 2;
}

/* The check that `worker` was asked to run the task for, and has not answered: of it
 * alone, or with others; NULL: none. */
static struct fal_check *
asked_for(const struct fal_sched *s, uint32_t worker, uint64_t round, uint32_t task,
	  bool one)
{
	for (size_t i = 0; i < s->checks; i++) {
		struct fal_check *c = &s->check[i];
		if (c->round == round && c->worker == worker &&
		    (c->one != FAL_NONE) == one && place(c, task) < c->left)
			return c;
	}
	return NULL;
}

int
fal_sched_checked(struct fal_sched *s, uint32_t worker, uint64_t round, uint32_t task,
		  bool whole, struct fal_cid *of)
{
	struct fal_check *c = asked_for(s, worker, round, task, false);
	if (c == NULL)
		return 0;
	*of = c->id;
	return whole ? answered(s, c, place(c, task)) : 1;
}

int
fal_sched_unasked(struct fal_sched *s, uint64_t round, struct fal_cid id, uint32_t one)
{
	for (size_t i = 0; i < s->checks; i++) {
		struct fal_check *c = &s->check[i];
		if (c->round == round && fal_cid_eq(c->id, id) && c->one == one)
			return unask(s, c);
	}
	return FAL_OK;
}

/* Nothing will come of the check: `late`, or its witness is gone. */
static int
give_up(struct fal_sched *s, struct fal_check *c, bool late)
{
	struct fal_act act = { .kind = FAL_ACT_UNHEARD,
			       .worker = c->worker,
			       .round = c->round,
			       .cid = c->id,
			       .first = c->one,
			       .count = late };
	int err = unask(s, c);
	if (err < 0)
		return err;
	return fal_emit(s, act) != NULL ? FAL_OK : FAL_ENOMEM;
}

/* It is waited for once more, but not for ever. */
static void
wait_on(const struct fal_sched *s, const struct fal_worker *w, struct fal_check *c,
	double now)
{
	c->claims = w->claims;
	c->asked = -1;
	c->expires = fmin(now + patience(s, w, 0), c->last);
}

/* Its witness is asked how far it is, before nothing more is expected of it. */
static int
ask(struct fal_sched *s, const struct fal_worker *w, struct fal_check *c, double now)
{
	const struct fal_act ping = { .kind = FAL_ACT_PING, .worker = w->id };
	wait_on(s, w, c, now);
	c->asked = now;
	return fal_emit(s, ping) != NULL ? FAL_OK : FAL_ENOMEM;
}

/* Its witness, `w` if it is still there, let it lie: 1: and is suspected, if `why` says
 * that it did nothing else meanwhile. */
static int
unheard(struct fal_sched *s, struct fal_worker *w, struct fal_check *c, const char *why,
	double now)
{
	const double since = c->since;
	if (w != NULL)
		w->unheard = w->claims + 1;
	if (give_up(s, c, true) < 0)
		return FAL_ENOMEM;
	return w != NULL && why != NULL ? fal_due_stood(s, w, since, why, now) : FAL_OK;
}

int
fal_checks_late(struct fal_sched *s, double now)
{
	int err = FAL_OK;
	bool any = false;
	for (size_t i = 0; i < s->checks && err >= 0; any |= err > 0) {
		struct fal_check *c = &s->check[i];
		struct fal_worker *w = fal_find(s, c->worker);
		err = FAL_OK;
		const bool more = w != NULL && now < c->last;
		if (c->expires > now)
			i++;
		else if (more && w->claims > c->claims) /* it had other work to do */
			wait_on(s, w, c, now);
		else if (more && c->asked < 0)
			err = ask(s, w, c, now);
		else
			err = unheard(s, w, c, more ? fal_due_mute : NULL, now);
	}
	return err < 0 ? err : any;
}

int
fal_checks_answer(struct fal_sched *s, struct fal_worker *w, double asked, uint64_t steps,
		  double now)
{
	int err = FAL_OK;
	bool any = false;
	for (size_t i = 0; i < s->checks && err >= 0; any |= err > 0) {
		struct fal_check *c = &s->check[i];
		err = FAL_OK;
		const bool answers =
			c->worker == w->id && c->asked >= 0 && asked >= c->asked;
		const bool first = c->steps == UINT64_MAX, moved = steps > c->steps;
		i += !answers || first || moved;
		if (!answers)
			continue;
		c->asked = -1;
		c->steps = steps;
		if (moved)
			wait_on(s, w, c, now);
		else if (!first)
			err = unheard(s, w, c, fal_due_still, now);
	}
	return err < 0 ? err : any;
}

int
fal_checks_of(struct fal_sched *s, const struct fal_worker *w)
{
	for (size_t i = 0; i < s->checks;)
		if (s->check[i].worker != w->id)
			i++;
		else if (give_up(s, &s->check[i], false) < 0)
			return FAL_ENOMEM;
	return FAL_OK;
}

void
fal_checks_end(struct fal_sched *s, uint64_t round)
{
	for (size_t i = 0; i < s->checks;)
		if (s->check[i].round == round)
			forget(s, &s->check[i]);
		else
			i++;
}

double
fal_checks_due(const struct fal_sched *s)
{
	double due = INFINITY;
	for (size_t i = 0; i < s->checks; i++)
		due = fmin(due, s->check[i].expires);
	return due;
}
