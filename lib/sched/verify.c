/* Claims that a worker of another key computes once more (job.verify).
 *
 * A drawn claim is granted again, as a check, to a worker of another key that computes
 * the same bits and holds the version.  The round does not wait: a check without an
 * answer ends with its round, or when its worker leaves or becomes a suspect.  A worker
 * has at most one check for each lane, because a worker runs checks before its own tasks
 * of the round. */
#include "sched/state.h"

#include "base/mem.h"
#include "base/minmax.h"

#include <math.h>
#include <string.h>

/* The index of the check of the task by the worker; s->verifies: none. */
static size_t
verify_place(const struct fal_sched *s, uint32_t worker, uint64_t round, uint32_t task)
{
	size_t i = 0;
	while (i < s->verifies &&
	       !(s->verify[i].worker == worker && s->verify[i].round == round &&
		 s->verify[i].task == task))
		i++;
	return i;
}

void
fal_verify_request(struct fal_sched *s, struct fal_round *r, const struct fal_worker *of,
		   const struct fal_claim_report *c, double now)
{
	struct fal_act act = { .kind = FAL_ACT_CHECK,
			       .round = r->id,
			       .version = c->version };
	struct fal_worker *best = NULL;
	double least = INFINITY;
	r->ledger.asked++;
	for (struct fal_worker *w = s->worker; w < s->worker + s->workers; w++) {
		/* The worker must hold the version.  In the one team of all, every worker
		 * holds all kept versions; in other teams a worker holds the version that
		 * was sent last. */
		if (!fal_worker_active(w) || w->key == of->key ||
		    w->numerics != of->numerics || w->checks >= w->lanes ||
		    (!s->traits.shared && w->version != c->version) ||
		    verify_place(s, w->id, r->id, c->task) < s->verifies)
			continue;
		const double cost =
			(w->queued + w->checks + 1) / fal_worker_rate(s, w, w->lanes);
		if (cost < least) {
			best = w;
			least = cost;
		}
	}
	if (best == NULL)
		return;
	FAL_XGROW(s->verify, s->verify_cap, s->verifies + 1);
	struct fal_verify *v = &s->verify[s->verifies++];
	*v = (struct fal_verify){ .round = r->id,
				  .task = c->task,
				  .worker = best->id,
				  .id = { c->worker, c->seq } };
	memcpy(v->hash, c->hash, sizeof(v->hash));
	best->checks++;
	fal_worker_refresh(s, best, now);
	act.worker = best->id;
	fal_act_emit_task(s, act, c->task);
}

/* Removes check i.  If the worker has been running the check, it begins its own tasks
 * now. */
static void
verify_remove(struct fal_sched *s, size_t i, double now)
{
	struct fal_worker *w = fal_worker_find(s, s->verify[i].worker);
	s->verify[i] = s->verify[--s->verifies];
	if (w == NULL)
		return;
	struct fal_node *n = w->head;
	w->checks--;
	for (uint32_t k = 0; k < w->lanes && n != NULL; k++, n = n->next)
		if (n->began >= 0)
			n->began = fal_max(n->began, now);
	if (w->evals > 0 && w->queued == 0)
		w->progress_at = now;
	fal_worker_refresh(s, w, now);
}

bool
fal_sched_answer_check(struct fal_sched *s, double now, const struct fal_check_answer *c,
		       struct fal_verify *unlike)
{
	struct fal_round *r = fal_round_find(s, c->round);
	const size_t i = verify_place(s, c->worker, c->round, c->task);
	if (r == NULL || i == s->verifies)
		return false;
	*unlike = s->verify[i];
	verify_remove(s, i, now);
	const bool equal = memcmp(unlike->hash, c->hash, sizeof(unlike->hash)) == 0;
	r->ledger.equal += equal;
	r->ledger.unlike += !equal;
	return !equal;
}

void
fal_verify_cancel(struct fal_sched *s, const struct fal_worker *w,
		  const struct fal_round *r, double now)
{
	for (size_t i = s->verifies; i-- > 0;) {
		const struct fal_verify v = s->verify[i];
		const struct fal_act act = { .kind = FAL_ACT_UNCHECK,
					     .worker = v.worker,
					     .round = v.round };
		if ((w != NULL && v.worker != w->id) || (r != NULL && v.round != r->id))
			continue;
		verify_remove(s, i, now);
		fal_act_emit_task(s, act, v.task);
	}
}
