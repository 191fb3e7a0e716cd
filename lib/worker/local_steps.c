/* Local steps: delta rounds, one after the other, on the worker's own weights.
 *
 * Lanes read the weights; a lane whose task was cancelled may read on for a while.  So
 * lanes hold references, and weights with other references are copied before a change. */
#include "worker/agent_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
local_free(struct fal_agent *a)
{
	for (size_t i = 0; i < a->local.rounds.n; i++)
		fal_sum_free(a->local.rounds.v[i].sum);
	snapshot_unref(a, a->local.weights);
	free(a->local.rounds.v);
	free(a->local.before);
	free(a->local.change[0].delta);
	free(a->local.change[1].delta);
	free(a->local.state);
}

struct local_round *
local_find(struct fal_agent *a, uint64_t round)
{
	for (size_t i = 0; i < a->local.rounds.n; i++)
		if (a->local.rounds.v[i].round == round)
			return &a->local.rounds.v[i];
	return NULL;
}

/* Makes sure that nobody else refers to the weights, which are about to change. */
static void
make_weights_private(struct fal_agent *a)
{
	struct snapshot *old = a->local.weights;
	if (old == NULL || old->refs > 1) {
		struct snapshot *s = snapshot_new(a);
		if (old != NULL) {
			memcpy(s->params, old->params, a->conf.n * sizeof(float));
			memcpy(s->exps, old->exps, a->blocks);
		}
		snapshot_unref(a, old);
		a->local.weights = s;
	}
	a->local.weights->serial = ++a->serial;
}

/* ---- beginning ----------------------------------------------------------------- */

int
local_grant(struct fal_agent *a, const struct fal_msg *m)
{
	const uint32_t from = m->grant.from, of = m->grant.of, at = m->grant.first - from;
	const struct local_round *l = local_find(a, m->grant.round);
	if (of == 0 || of > TASKS_MAX || of > UINT32_MAX - from || at >= of ||
	    m->grant.count > of - at || m->grant.base > FAL_BASE_REBASE ||
	    m->grant.steps == 0 || m->grant.steps > FAL_LOCAL_STEPS_MAX)
		return FAL_EFORMAT;
	if (l != NULL)
		return l->first == from && l->count == of ? FAL_OK : FAL_EFORMAT;
	FAL_XGROW(a->local.rounds.v, a->local.rounds.cap, a->local.rounds.n + 1);
	size_t i = a->local.rounds.n++;
	for (; i > 0 && a->local.rounds.v[i - 1].round > m->grant.round &&
	       !a->local.rounds.v[i - 1].has_begun;
	     i--)
		a->local.rounds.v[i] = a->local.rounds.v[i - 1];
	a->local.rounds.v[i] = (struct local_round){ .round = m->grant.round,
						     .clock = m->grant.clock,
						     .version = m->grant.version,
						     .since = m->grant.since,
						     .first = from,
						     .count = of,
						     .steps = m->grant.steps,
						     .base = (enum fal_base)m->grant.base,
						     .lr = m->grant.lr };
	return FAL_OK;
}

/* Returns the first task of piece p.  Pieces have equal numbers of samples, as near as
 * whole tasks allow. */
static uint32_t
piece_first(const struct fal_agent *a, const struct local_round *l, uint32_t p)
{
	const struct fal_grid *g = &a->conf.grid;
	const uint32_t end = l->first + l->count;
	const uint64_t all = fal_grid_range_samples(g, l->clock, l->first, l->count);
	const uint64_t before = fal_grid_samples_before(g, l->clock, l->first);
	if (p == l->steps)
		return end;
	const uint32_t at =
		fal_grid_tasks_within(g, l->clock,
				      (uint32_t)(before + p * all / l->steps));
	return at < l->first ? l->first : at < end ? at : end;
}

/* Moves on to the next piece that has tasks, the present one included.  The last piece
 * always has tasks. */
static void
local_next_piece(const struct fal_agent *a, struct local_round *l)
{
	while (piece_first(a, l, l->piece) == piece_first(a, l, l->piece + 1))
		l->piece++;
	l->tasks_won = 0;
	l->samples = 0;
	fal_sum_clear(l->sum);
}

void
local_begin(struct fal_agent *a)
{
	struct local_round *l = a->local.rounds.n > 0 ? &a->local.rounds.v[0] : NULL;
	if (l == NULL || l->has_begun)
		return;
	const struct snapshot *base = agent_version(a, l->version);
	/* Own weights may be missing while the round before is being revoked. */
	if (l->base == FAL_BASE_LOCAL ? a->local.weights == NULL : base == NULL)
		return;
	if (a->local.before == NULL) {
		const size_t n = a->conf.n, slots = fal_optim_slots(&a->conf.optim);
		a->local.before = fal_xcalloc_aligned(n, sizeof(float));
		a->local.change[0].delta = fal_xcalloc_aligned(n, sizeof(float));
		a->local.change[1].delta = fal_xcalloc_aligned(n, sizeof(float));
		a->local.state = fal_xcalloc_aligned(n * slots, sizeof(float));
	}
	if (l->base != FAL_BASE_LOCAL) {
		make_weights_private(a);
		float *w = a->local.weights->params;
		memcpy(w, base->params, a->conf.n * sizeof(float));
		memcpy(a->local.weights->exps, base->exps, a->blocks);
		/* Adds the worker's own changes that the version lacks. */
		for (int k = 1; k >= 0 && l->base == FAL_BASE_REBASE; k--) {
			const struct change *c = &a->local.change[k];
			const bool lacks = c->exists && c->round > l->since;
			for (size_t i = 0; i < a->conf.n && lacks; i++)
				w[i] += c->delta[i];
		}
	}
	l->sum = memory_take_sum(a);
	memcpy(a->local.before, a->local.weights->params, a->conf.n * sizeof(float));
	l->has_begun = true;
	local_next_piece(a, l);
}

struct snapshot *
local_base(const struct fal_agent *a, const struct task *task)
{
	const struct local_round *l =
		a->local.rounds.n > 0 ? &a->local.rounds.v[0] : NULL;
	if (l == NULL || !l->has_begun || l->round != task->round ||
	    task->task < piece_first(a, l, l->piece) ||
	    task->task >= piece_first(a, l, l->piece + 1))
		return NULL;
	return a->local.weights;
}

/* ---- steps --------------------------------------------------------------------- */

/* Computes the mean gradient of block b, and sets *p to the piece of the model that the
 * gradient steps. */
static void
local_mean(const struct fal_agent *a, const struct local_round *l, uint32_t b,
	   float *mean, struct fal_optim_piece *p)
{
	const size_t first = (size_t)b * FAL_BLOCK;
	/* State is stored block by block: slot k of a block follows slot k-1. */
	*p = (struct fal_optim_piece){ .first = first,
				       .n = fal_block_len(a->conf.n, b),
				       .w = a->local.weights->params + first,
				       .state = a->local.state +
						first * fal_optim_slots(&a->conf.optim),
				       .mean_grad = mean };
	fal_sum_mean(l->sum, b, a->local.weights->exps[b], (double)l->samples, mean);
}

/* Pushes the round's change of weights, each block with the least exponent that holds the
 * change.  FAL_ENONFINITE: the change is not finite; a LEAVE was sent. */
static int
push_change(struct fal_agent *a, struct local_round *l)
{
	int8_t *exps = fal_xcalloc(a->blocks, 1);
	/* The change before the last one is of no more use. */
	float *delta = a->local.change[1].delta;
	a->local.change[1] = a->local.change[0];
	a->local.change[0] = (struct change){ true, l->round, delta };
	for (size_t i = 0; i < a->conf.n; i++)
		delta[i] = a->local.weights->params[i] - a->local.before[i];
	for (uint32_t b = 0; b < a->blocks; b++) {
		exps[b] = fal_exp_needed(delta + (size_t)b * FAL_BLOCK,
					 fal_block_len(a->conf.n, b));
		if (exps[b] == FAL_EXP_NONE)
			exps[b] = FAL_EXP_MIN;
	}
	int err = fal_sum_quantise(l->sum, delta, exps, FAL_BFP_ROOM_DELTA, NULL);
	if (err < 0) {
		struct fal_msg m = { .type = FAL_MSG_LEAVE };
		m.leave.cause = FAL_LEAVE_NONFINITE;
		snprintf(m.leave.why, sizeof(m.leave.why), "its weights are not finite");
		free(exps);
		a->has_left = true;
		agent_send(a, &m, false);
		return err;
	}
	const struct push p = {
		.ticket = { .round = l->round, .seq = l->seq, .tasks = l->count },
		.sum = l->sum,
		.exps = exps
	};
	l->sum = NULL;
	push_enqueue(a, &p);
	return FAL_OK;
}

/* Forgets round i. */
static void
local_forget(struct fal_agent *a, size_t i)
{
	struct fal_sum *sum = a->local.rounds.v[i].sum;
	memmove(a->local.rounds.v + i, a->local.rounds.v + i + 1,
		(--a->local.rounds.n - i) * sizeof(*a->local.rounds.v));
	memory_return_sum(a, sum);
}

/* Counts the tasks of the present piece without a claim: neither won nor waiting for a
 * verdict. */
static uint32_t
piece_unclaimed(const struct fal_agent *a, const struct local_round *l)
{
	uint32_t n = piece_first(a, l, l->piece + 1) - piece_first(a, l, l->piece) -
		     l->tasks_won;
	for (size_t i = 0; i < a->claims.n; i++)
		n -= a->claims.v[i].seq == l->seq;
	return n;
}

void
local_claim(struct fal_agent *a, struct local_round *l, struct fal_msg *claim)
{
	if (l->seq == 0)
		l->seq = ++a->seq;
	claim->claim.seq = l->seq;
	claim->claim.last = l->is_closed =
		l->piece + 1 == l->steps && piece_unclaimed(a, l) == 1;
}

int
local_add(struct fal_agent *a, struct local_round *l, const struct claim *won)
{
	int err = memory_add_sum(a, l->sum, won->sum);
	l->tasks_won++;
	l->samples += won->samples;
	const uint32_t tasks =
		piece_first(a, l, l->piece + 1) - piece_first(a, l, l->piece);
	if (err < 0 || l->tasks_won < tasks)
		return err;
	/* All tasks of the piece are here: takes the step. */
	const struct fal_optim *o = &a->conf.optim;
	const struct fal_optim_step by = fal_optim_step(o, l->lr, a->local.steps);
	struct fal_optim_piece p;
	float mean[FAL_BLOCK];
	double squares = 0;
	make_weights_private(a);
	a->local.steps++;
	for (uint32_t b = 0; b < a->blocks && o->clip > 0; b++) {
		local_mean(a, l, b, mean, &p);
		squares += fal_optim_squares(o, &p);
	}
	const float scale = o->clip > 0 ? fal_optim_scale(o, squares) : 1;
	for (uint32_t b = 0; b < a->blocks; b++) {
		int8_t *e = &a->local.weights->exps[b];
		local_mean(a, l, b, mean, &p);
		fal_optim_apply_piece(o, &by, scale, &p);
		*e = fal_exp_next(*e, fal_sum_needed(l->sum, b));
	}
	if (++l->piece < l->steps) {
		local_next_piece(a, l);
		return FAL_OK;
	}
	assert(l == &a->local.rounds.v[0]);
	err = push_change(a, l);
	local_forget(a, 0);
	return err;
}

/* ---- ending -------------------------------------------------------------------- */

void
local_kill(struct fal_agent *a, uint64_t round)
{
	const struct local_round *l = local_find(a, round);
	tasks_drop(a, round, l->first, l->count, false);
	if (l->has_begun) {
		/* Restores the weights of the round before. */
		make_weights_private(a);
		memcpy(a->local.weights->params, a->local.before,
		       a->conf.n * sizeof(float));
	}
	local_forget(a, (size_t)(l - a->local.rounds.v));
}

void
local_leave(struct fal_agent *a)
{
	for (size_t i = 0; i < a->local.rounds.n;) {
		const struct local_round *l = &a->local.rounds.v[i];
		if (l->has_begun && l->piece + 1 == l->steps &&
		    piece_unclaimed(a, l) == 0)
			i++;
		else
			local_kill(a, l->round);
	}
}
