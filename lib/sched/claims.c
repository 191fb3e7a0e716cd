/* What workers have claimed, and what of it has come. */
#include "sched/due.h"
#include "sched/members.h"
#include "sched/queue.h"
#include "sched/retry.h"
#include "sched/round.h"
#include "sched/speed.h"
#include "sched/trial.h"
#include "sched/verify.h"

#include <assert.h>
#include <math.h>
#include <string.h>

bool
fal_sched_steps(const struct fal_sched *s, uint32_t id)
{
	const struct fal_worker *w = fal_find(s, id);
	const struct fal_round *r = w != NULL ? w->team->rounds : NULL;
	while (r != NULL && !(r->delta && r->owner == id))
		r = r->next;
	return r != NULL;
}

bool
fal_sched_begun(const struct fal_sched *s, uint64_t round)
{
	return round < s->next_round;
}

bool
fal_sched_round(const struct fal_sched *s, uint64_t round, struct fal_round_info *out)
{
	const struct fal_round *r = fal_round_known(s, round);
	if (r == NULL)
		return false;
	*out = (struct fal_round_info){ .round = r->id,
					.clock = r->clock,
					.version = r->version,
					.first = r->ledger.first,
					.tasks = r->ledger.tasks,
					.samples = fal_round_counted(s, r),
					.delta = r->delta,
					.mixed = r->mixed,
					.armed = r->armed && !r->ended,
					.passed = r->passed,
					.owner = r->owner,
					.group = r->group,
					.taken = r->local > 0 ? r->taken : r->version,
					.local = r->local,
					.base = r->base,
					.since = r->since,
					.steps = r->steps,
					.stale_clocks = r->stale_clocks,
					.stale_updates = r->stale_updates,
					.ledger = &r->ledger };
	return true;
}

/* Do all shards know that what the claim fills is fenced?  Else nobody was told to fill
 * it. */
static bool
may_fill(const struct fal_ledger *l, struct fal_cid fills)
{
	const uint32_t ci = fills.worker != 0 ? fal_ledger_find(l, fills) : FAL_NONE;
	return fills.worker == 0 || (ci != FAL_NONE && l->contrib[ci].everywhere);
}

/* It was run, whether that counts or not. */
static void
note_run(struct fal_sched *s, double now, const struct fal_round *r, struct fal_worker *w,
	 const struct fal_claim_in *c)
{
	const struct fal_load load = fal_load_of(s, r, c->task);
	fal_work_ran(&w->work, c->task_s, (uint32_t)load.samples, fal_size(s, w, load));
	/* Not what it may have had long ago. */
	if (w->fresh && r->id >= w->given_of && w->pulls_from <= now)
		fal_lately_add(&w->pull, fmax(now - w->pulls_from - c->task_s, 1e-6));
	w->fresh = false;
}

/* Its result counts, for contribution `ci`. */
static void
has_result(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	   const struct fal_claim_in *c, uint32_t ci)
{
	w->work.done++;
	w->work.samples += fal_task_samples(s, r, c->task);
	if (!w->retried)
		w->retries = 0;
	r->ledger.contrib[ci].claimed = now;
	struct fal_claim *is = fal_ledger_claimed(&r->ledger, c->task);
	memcpy(is->hash, c->hash, sizeof(c->hash));
	is->version = c->version;
	if (c->verify)
		fal_verify_ask(s, r, w, c, now);
	fal_touch_owner(s, r);
	fal_retry_done(s, r, c->task);
}

/* A number is for one contribution of the whole session, as its name stands in the trace:
 * is it that of another round, or one too many with gaps between to be remembered? */
static bool
is_of_another(const struct fal_worker *w, const struct fal_round *r, struct fal_cid id)
{
	return (fal_spans_has(&w->seqs, id.seq) || w->seqs.n == FAL_SPANS_MAX) &&
	       fal_ledger_find(&r->ledger, id) == FAL_NONE;
}

static int
claim_result(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	     const struct fal_claim_in *c)
{
	struct fal_cid id = { c->worker, c->seq };
	uint64_t twice;
	uint32_t ci;
	if (is_of_another(w, r, id))
		return FAL_ESTATE;
	int won = may_fill(&r->ledger, c->fills)
			  ? fal_ledger_claim(&r->ledger, id, c->fills, c->task, c->loss,
					     &ci)
			  : 0;
	if (won < 0)
		return won;
	note_run(s, now, r, w, c);
	if (won == 0) {
		w->work.lost++;
		fal_ledger_log(&r->ledger, FAL_ENTRY_LOST, w->id, 0, c->task);
		return 0;
	}
	const bool opened = r->ledger.contrib[ci].tasks == 1;
	w->owed += opened;
	if (opened && fal_spans_add(&w->seqs, id.seq, (uint64_t)id.seq + 1, &twice) < 0)
		return FAL_ENOMEM;
	fal_drop_claimed(s, r, c->task, w);
	fal_withdraw(s, r, c->task, now);
	has_result(s, now, r, w, c, ci);
	return 1;
}

/* All blocks of the contribution are counted, and what they are made of is reported. */
static void
done(struct fal_sched *s, double now, struct fal_round *r, uint32_t ci,
     struct fal_worker *w)
{
	const struct fal_contrib *c = &r->ledger.contrib[ci];
	/* What goes out while it is made is under way before it is claimed: what is left
	 * then says nothing of what a push takes. */
	const double from = c->first > 0 ? fmin(c->first, c->claimed) : c->claimed;
	fal_ledger_done(&r->ledger, ci);
	w->owed--;
	fal_turned(s, w, FAL_TURN_PUSH, now - fmax(from, w->relieved));
	fal_trial_kept(s, w, now);
	/* It pushes when it holds nothing more: since its last claim, or since a task was
	 * taken from it. */
	if (w->queued == 0 || s->rounds > 1)
		fal_lately_add(&w->push, fmax(now - fmax(c->claimed, w->empty), 1e-6));
	fal_refresh(s, w, now);
}

/* A task that was claimed ahead has a result. */
static int
report(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
       const struct fal_claim_in *c)
{
	const uint32_t ci =
		fal_ledger_find(&r->ledger, (struct fal_cid){ c->worker, c->seq });
	if (ci == FAL_NONE || !fal_ledger_report(&r->ledger, ci, c->task, c->loss))
		return FAL_ESTATE;
	note_run(s, now, r, w, c);
	fal_drop_own(s, r, c->task, w);
	has_result(s, now, r, w, c, ci);
	if (r->ledger.contrib[ci].due == 0 && r->ledger.contrib[ci].whole)
		done(s, now, r, ci, w);
	return 1;
}

/* Is it a word about what was fenced since? */
static bool
is_fenced(const struct fal_round *r, const struct fal_claim_in *c)
{
	const uint32_t ci =
		fal_ledger_find(&r->ledger, (struct fal_cid){ c->worker, c->seq });
	return ci != FAL_NONE && r->ledger.contrib[ci].state == FAL_CONTRIB_FENCED;
}

/* A task without a result: where it was claimed ahead, nothing comes of the others that
 * were granted with it. */
static void
no_result(struct fal_sched *s, double now, struct fal_round *r, struct fal_worker *w,
	  uint32_t task)
{
	const struct fal_ltask *t = fal_ledger_task(&r->ledger, task);
	if (t->due && r->ledger.contrib[t->contrib].id.worker == w->id) {
		fal_fence(s, r, t->contrib);
		w->owed--;
	}
	fal_retry_nonfinite(s, now, r, w, task);
}

int
fal_sched_claim(struct fal_sched *s, double now, const struct fal_claim_in *c)
{
	struct fal_worker *w = fal_find(s, c->worker);
	struct fal_round *r = fal_round_find(s, c->round);
	if (w == NULL)
		return 0;
	if (w->claims == w->given || (c->nonfinite && c->seq >= FAL_PRECLAIMED))
		return FAL_ESTATE;
	w->claims++;
	if (r == NULL)
		return c->round < s->next_round ? 0 : FAL_ESTATE;
	if (!fal_ledger_has(&r->ledger, c->task))
		return FAL_EINVAL;
	if (!fal_holds_has(&r->given, c->task - r->ledger.first, w->id))
		return FAL_ESTATE;
	const bool ahead = c->seq >= FAL_PRECLAIMED;
	if (ahead && is_fenced(r, c))
		return 0;
	const struct fal_node *n = fal_held_by(s, r, c->task, w);
	if (n != NULL && n->began >= 0 && !w->fresh)
		w->wait_s = now - n->began - c->task_s;
	if (n != NULL)
		fal_due_claimed(s, w, n, now);
	if (c->task_s > 0)
		fal_measured(s, w, c->task_s, fal_task_samples(s, r, c->task));
	w->base = now;
	int won = 0;
	if (c->nonfinite)
		no_result(s, now, r, w, c->task);
	else
		won = ahead ? report(s, now, r, w, c) : claim_result(s, now, r, w, c);
	if (won < 0)
		return won;
	fal_refresh(s, w, now);
	fal_settle(s, now);
	return won;
}

const struct fal_contrib *
fal_sched_contrib(const struct fal_sched *s, uint64_t round, struct fal_cid cid)
{
	const struct fal_round *r = fal_round_find(s, round);
	if (r == NULL || fal_find(s, cid.worker) == NULL)
		return NULL;
	uint32_t ci = fal_ledger_find(&r->ledger, cid);
	return ci != FAL_NONE ? &r->ledger.contrib[ci] : NULL;
}

int
fal_sched_seal(struct fal_sched *s, uint64_t round, struct fal_cid cid)
{
	struct fal_round *r = fal_round_find(s, round);
	const struct fal_contrib *c = fal_sched_contrib(s, round, cid);
	if (cid.seq >= FAL_PRECLAIMED)
		return FAL_ESTATE;
	if (c == NULL || c->state == FAL_CONTRIB_FENCED)
		return 0;
	int err = fal_ledger_seal(&r->ledger, (uint32_t)(c - r->ledger.contrib));
	return err < 0 ? err : 1;
}

struct fal_cid
fal_sched_fills(const struct fal_sched *s, uint64_t round, const struct fal_contrib *c)
{
	const struct fal_round *r = fal_round_find(s, round);
	return r != NULL && c->fills != FAL_NONE ? r->ledger.contrib[c->fills].id
						 : (struct fal_cid){ 0, 0 };
}

void
fal_sched_arrived(struct fal_sched *s, double now, uint64_t round, struct fal_cid cid,
		  uint32_t blocks, bool complete)
{
	struct fal_round *r = fal_round_find(s, round);
	const uint32_t ci = r != NULL ? fal_ledger_find(&r->ledger, cid) : FAL_NONE;
	if (ci == FAL_NONE)
		return;
	const struct fal_contrib *c = &r->ledger.contrib[ci];
	struct fal_worker *w = fal_find(s, cid.worker);
	/* They count, too, where they came before the fence. */
	fal_ledger_arrived(&r->ledger, ci, blocks);
	if (c->state != FAL_CONTRIB_OPEN || w == NULL)
		return;
	if (blocks > 0)
		r->ledger.contrib[ci].came = w->came = now;
	if (blocks > 0 && c->first == 0)
		r->ledger.contrib[ci].first = now;
	r->ledger.contrib[ci].whole |= complete;
	if (complete && c->due == 0)
		done(s, now, r, ci, w);
}

void
fal_sched_fenced(struct fal_sched *s, double now, uint64_t round, struct fal_cid cid)
{
	struct fal_round *r = fal_round_find(s, round);
	const uint32_t ci = r != NULL ? fal_ledger_find(&r->ledger, cid) : FAL_NONE;
	if (ci == FAL_NONE)
		return;
	struct fal_contrib *c = &r->ledger.contrib[ci];
	assert(c->state == FAL_CONTRIB_FENCED && !c->everywhere);
	c->everywhere = true;
	for (uint32_t i = c->head; i != FAL_NONE; i = r->ledger.claim[i].next) {
		const uint32_t task = r->ledger.claim[i].task;
		if (!fal_ledger_task(&r->ledger, task)->skipped)
			fal_free_task(s, r, task);
	}
	fal_settle(s, now);
}
