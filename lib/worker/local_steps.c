/* Local steps: delta rounds, one after the other, on weights of the worker's own.
 *
 * Lanes read the weights, and those whose task was cancelled may do so for a while: they
 * hold a reference, and weights that somebody else refers to are copied before they
 * change. */
#include "worker/agent_priv.h"

#include "base/mem.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void
agent_local_free(struct fal_agent *a)
{
	for (size_t i = 0; i < a->locals.n; i++)
		fal_sum_free(a->locals.v[i].sum);
	agent_drop(a, a->weights);
	free(a->locals.v);
	free(a->last);
	free(a->change[0].by);
	free(a->change[1].by);
	free(a->state);
}

struct local *
agent_local(struct fal_agent *a, uint64_t round)
{
	for (size_t i = 0; i < a->locals.n; i++)
		if (a->locals.v[i].round == round)
			return &a->locals.v[i];
	return NULL;
}

/* Makes the weights ours alone, to be changed. */
static void
own_weights(struct fal_agent *a)
{
	struct snapshot *was = a->weights;
	if (was != NULL && was->refs == 1) {
		was->serial = ++a->serial;
		return;
	}
	struct snapshot *s = agent_snapshot(a);
	s->serial = ++a->serial;
	if (was != NULL) {
		memcpy(s->params, was->params, a->conf.n * sizeof(float));
		memcpy(s->exps, was->exps, a->blocks);
	}
	agent_drop(a, was);
	a->weights = s;
}

/* ---- beginning ----------------------------------------------------------------- */

int
agent_local_grant(struct fal_agent *a, const struct fal_msg *m)
{
	const uint32_t from = m->grant.from, of = m->grant.of, at = m->grant.first - from;
	const struct local *l = agent_local(a, m->grant.round);
	if (of == 0 || of > MOST_TASKS || of > UINT32_MAX - from || at >= of ||
	    m->grant.count > of - at || m->grant.base > FAL_BASE_REBASE ||
	    m->grant.steps == 0 || m->grant.steps > FAL_LOCAL_STEPS_MAX)
		return FAL_EFORMAT;
	if (l != NULL)
		return l->from == from && l->of == of ? FAL_OK : FAL_EFORMAT;
	FAL_XGROW(a->locals.v, a->locals.cap, a->locals.n + 1);
	size_t i = a->locals.n++;
	for (; i > 0 && a->locals.v[i - 1].round > m->grant.round &&
	       !a->locals.v[i - 1].begun;
	     i--)
		a->locals.v[i] = a->locals.v[i - 1];
	a->locals.v[i] = (struct local){ .round = m->grant.round,
					 .clock = m->grant.clock,
					 .version = m->grant.version,
					 .since = m->grant.since,
					 .from = from,
					 .of = of,
					 .steps = m->grant.steps,
					 .base = (enum fal_base)m->grant.base,
					 .lr = m->grant.lr };
	return FAL_OK;
}

/* The first task of piece p: pieces are cut by samples. */
static uint32_t
piece_at(const struct fal_agent *a, const struct local *l, uint32_t p)
{
	const struct fal_grid *g = &a->conf.grid;
	const uint32_t end = l->from + l->of;
	const uint64_t all = fal_grid_range_samples(g, l->clock, l->from, l->of);
	const uint64_t before = fal_grid_before(g, l->clock, l->from);
	if (p == l->steps)
		return end;
	const uint32_t at =
		fal_grid_within(g, l->clock, (uint32_t)(before + p * all / l->steps));
	return at < l->from ? l->from : at < end ? at : end;
}

/* Goes to the first piece, from the one at work on, that has tasks; the last one has. */
static void
next_piece(const struct fal_agent *a, struct local *l)
{
	while (piece_at(a, l, l->piece) == piece_at(a, l, l->piece + 1))
		l->piece++;
	l->won = 0;
	l->samples = 0;
	fal_sum_clear(l->sum);
}

/* The weights become those of `on`, and what that lacks of the worker's own steps. */
static void
set_weights(struct fal_agent *a, const struct local *l, const struct snapshot *on)
{
	own_weights(a);
	float *w = a->weights->params;
	memcpy(w, on->params, a->conf.n * sizeof(float));
	memcpy(a->weights->exps, on->exps, a->blocks);
	for (int k = 1; k >= 0 && l->base == FAL_BASE_REBASE; k--) {
		const struct change *c = &a->change[k];
		for (size_t i = 0; i < a->conf.n && c->there && c->round > l->since; i++)
			w[i] += c->by[i];
	}
}

void
agent_local_begin(struct fal_agent *a)
{
	struct local *l = a->locals.n > 0 ? &a->locals.v[0] : NULL;
	if (l == NULL || l->begun)
		return;
	const struct snapshot *on = agent_version(a, l->version);
	/* Local ones may be missing while the round before is being revoked. */
	if (l->base == FAL_BASE_LOCAL ? a->weights == NULL : on == NULL)
		return;
	if (a->last == NULL) {
		const size_t n = a->conf.n, slots = fal_optim_slots(&a->conf.optim);
		a->last = fal_xcalloc_aligned(n, sizeof(float));
		a->change[0].by = fal_xcalloc_aligned(n, sizeof(float));
		a->change[1].by = fal_xcalloc_aligned(n, sizeof(float));
		a->state = fal_xcalloc_aligned(n * slots, sizeof(float));
	}
	if (l->base != FAL_BASE_LOCAL)
		set_weights(a, l, on);
	l->sum = agent_take_sum(a);
	memcpy(a->last, a->weights->params, a->conf.n * sizeof(float));
	l->begun = true;
	next_piece(a, l);
}

struct snapshot *
agent_local_on(const struct fal_agent *a, const struct item *item)
{
	const struct local *l = a->locals.n > 0 ? &a->locals.v[0] : NULL;
	if (l == NULL || !l->begun || l->round != item->round ||
	    item->task < piece_at(a, l, l->piece) ||
	    item->task >= piece_at(a, l, l->piece + 1))
		return NULL;
	return a->weights;
}

/* ---- steps --------------------------------------------------------------------- */

/* The mean gradient of block b, and what it steps. */
static void
mean_of(const struct fal_agent *a, const struct local *l, uint32_t b, float *mean,
	struct fal_optim_piece *p)
{
	const size_t first = (size_t)b * FAL_BLOCK;
	/* State is kept block by block: slot k of a block follows slot k-1. */
	*p = (struct fal_optim_piece){ .first = first,
				       .n = fal_block_len(a->conf.n, b),
				       .w = a->weights->params + first,
				       .state = a->state +
						first * fal_optim_slots(&a->conf.optim),
				       .mean_grad = mean };
	fal_sum_mean(l->sum, b, a->weights->exps[b], (double)l->samples, mean);
}

static void
step(struct fal_agent *a, const struct local *l)
{
	const struct fal_optim *o = &a->conf.optim;
	const struct fal_optim_step by = fal_optim_step(o, l->lr, a->steps);
	struct fal_optim_piece p;
	float mean[FAL_BLOCK];
	double squares = 0;
	own_weights(a);
	a->steps++;
	for (uint32_t b = 0; b < a->blocks && o->clip > 0; b++) {
		mean_of(a, l, b, mean, &p);
		squares += fal_optim_squares(o, &p);
	}
	const float scale = o->clip > 0 ? fal_optim_scale(o, squares) : 1;
	for (uint32_t b = 0; b < a->blocks; b++) {
		int8_t *e = &a->weights->exps[b];
		mean_of(a, l, b, mean, &p);
		fal_optim_apply_piece(o, &by, scale, &p);
		*e = fal_exp_next(*e, fal_sum_needed(l->sum, b));
	}
}

/* Pushes the round's changes of weights, each block with the least exponent that holds
 * it. */
static int
push_change(struct fal_agent *a, struct local *l)
{
	int8_t *exps = fal_xcalloc(a->blocks, 1);
	/* The one before the last is not needed any more. */
	float *by = a->change[1].by;
	a->change[1] = a->change[0];
	a->change[0] = (struct change){ true, l->round, by };
	for (size_t i = 0; i < a->conf.n; i++)
		by[i] = a->weights->params[i] - a->last[i];
	for (uint32_t b = 0; b < a->blocks; b++) {
		exps[b] = fal_exp_needed(by + (size_t)b * FAL_BLOCK,
					 fal_block_len(a->conf.n, b));
		if (exps[b] == FAL_EXP_NONE)
			exps[b] = FAL_EXP_MIN;
	}
	int err = fal_sum_quantise(l->sum, by, exps, FAL_BFP_ROOM_DELTA, NULL);
	if (err < 0) {
		struct fal_msg m = { .type = FAL_MSG_LEAVE };
		m.leave.cause = FAL_LEAVE_NONFINITE;
		snprintf(m.leave.why, sizeof(m.leave.why), "its weights are not finite");
		free(exps);
		a->left = true;
		agent_send(a, &m, false);
		return err;
	}
	const struct push p = {
		.ticket = { .round = l->round, .seq = l->seq, .tasks = l->of },
		.sum = l->sum,
		.exps = exps
	};
	l->sum = NULL;
	agent_push(a, &p);
	return FAL_OK;
}

/* Round i is over. */
static void
forget_round(struct fal_agent *a, size_t i)
{
	struct fal_sum *sum = a->locals.v[i].sum;
	memmove(a->locals.v + i, a->locals.v + i + 1,
		(--a->locals.n - i) * sizeof(*a->locals.v));
	agent_give_sum(a, sum);
}

/* Tasks of the piece at work that are claimed: won, or unanswered. */
static uint32_t
claimed(const struct fal_agent *a, const struct local *l)
{
	uint32_t n = l->won;
	for (size_t i = 0; i < a->pending.n; i++)
		n += a->pending.v[i].seq == l->seq;
	return n;
}

bool
agent_local_last(const struct fal_agent *a, const struct local *l)
{
	return l->piece + 1 == l->steps &&
	       claimed(a, l) + 1 ==
		       piece_at(a, l, l->piece + 1) - piece_at(a, l, l->piece);
}

int
agent_local_won(struct fal_agent *a, struct local *l, const struct pending *p)
{
	int err = agent_add(a, l->sum, p->sum);
	l->won++;
	l->samples += p->samples;
	if (err < 0 || l->won < piece_at(a, l, l->piece + 1) - piece_at(a, l, l->piece))
		return err;
	step(a, l);
	if (++l->piece < l->steps) {
		next_piece(a, l);
		return FAL_OK;
	}
	assert(l == &a->locals.v[0]);
	err = push_change(a, l);
	forget_round(a, 0);
	return err;
}

/* ---- ending -------------------------------------------------------------------- */

void
agent_local_kill(struct fal_agent *a, uint64_t round)
{
	const struct local *l = agent_local(a, round);
	agent_take_back(a, round, l->from, l->of, false);
	if (l->begun) {
		/* The weights are again as the round before left them. */
		own_weights(a);
		memcpy(a->weights->params, a->last, a->conf.n * sizeof(float));
	}
	forget_round(a, (size_t)(l - a->locals.v));
}

void
agent_local_leave(struct fal_agent *a)
{
	for (size_t i = 0; i < a->locals.n;) {
		const struct local *l = &a->locals.v[i];
		if (l->begun && l->piece + 1 == l->steps &&
		    claimed(a, l) ==
			    piece_at(a, l, l->piece + 1) - piece_at(a, l, l->piece))
			i++;
		else
			agent_local_kill(a, l->round);
	}
}
