/* A store: versions, what is collected for the next one, and how that is made. */
#include "server/store_priv.h"

#include "base/branch.h"
#include "base/err.h"
#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static size_t
state_len(const struct fal_store_conf *conf)
{
	return conf->n * fal_optim_slots(&conf->optim);
}

/* Parameters, the optimiser's state, an average: what an image has of the newest version.
 */
static size_t
newest_bytes(const struct fal_store_conf *conf)
{
	const size_t average = conf->optim.ema > 0 ? conf->n : 0;
	const size_t products =
		conf->optim.kind == FAL_ADAMW ? sizeof(struct store_products) : 0;
	return (conf->n + state_len(conf) + average) * sizeof(float) +
	       fal_blocks(conf->n) * (sizeof(struct range) + products);
}

/* Older versions. */
static size_t
old_bytes(const struct fal_store_conf *conf, const struct fal_store_most *most)
{
	return (most->versions - 1) * (conf->n * sizeof(float) + fal_blocks(conf->n));
}

size_t
fal_store_bytes(const struct fal_store_conf *conf, const struct fal_store_most *most)
{
	const uint32_t blocks = fal_blocks(conf->n);
	/* A line: its model, what it took over, optimiser state, exponents. */
	const size_t line = (2 * conf->n + state_len(conf)) * sizeof(float) + blocks;
	const size_t round = fal_sum_bytes(conf->n) + (conf->checksums ? blocks * 8 : 0);
	/* What changes weights, or lines have pushed. */
	const size_t moved = (most->deltas || most->lines > 0 ? conf->n : 0) +
			     (most->outer ? conf->n : 0);
	const size_t pushers =
		fal_optim_by_pusher(&conf->optim) ? conf->n * most->pushers : 0;
	struct fal_store_most all = *most;
	all.versions += all.beyond;
	return newest_bytes(conf) + old_bytes(conf, &all) + blocks +
	       most->rounds * round + most->lines * line +
	       (moved + pushers) * sizeof(float);
}

size_t
fal_store_image_bytes(const struct fal_store_conf *conf,
		      const struct fal_store_most *most)
{
	return newest_bytes(conf) + old_bytes(conf, most);
}

struct fal_store *
fal_store_new(const struct fal_store_conf *conf, const float *init)
{
	const uint32_t blocks = fal_blocks(conf->n);
	struct fal_store *s = fal_xcalloc(1, sizeof(*s));
	struct making *m = s->making = fal_xcalloc(1, sizeof(*m));
	const bool averages = conf->optim.ema > 0;
	assert(fal_optim_slots(&conf->optim) <= FAL_OPTIM_SLOTS);
	s->conf = *conf;
	s->blocks = blocks;
	s->params = fal_calloc_aligned(conf->n, sizeof(float));
	s->state = fal_calloc_aligned(state_len(conf), sizeof(float));
	s->average = averages ? fal_calloc_aligned(conf->n, sizeof(float)) : NULL;
	/* Touched where it is needed alone: falcon-ps counts it (image.h, `beyond`). */
	m->params = fal_alloc_pages(conf->n, sizeof(float));
	if (s->params == NULL || s->state == NULL || m->params == NULL ||
	    (averages && s->average == NULL)) {
		fal_store_free(s);
		return NULL;
	}
	s->reach = fal_xcalloc(blocks, sizeof(*s->reach));
	s->exps = fal_xcalloc(blocks, 1);
	s->range = fal_xcalloc(blocks, sizeof(*s->range));
	s->sum_exps = fal_xcalloc(blocks, 1);
	s->had = (struct fal_optim_had){ 0, 1, 1 };
	if (conf->optim.kind == FAL_ADAMW)
		s->products = fal_xcalloc(blocks, sizeof(*s->products));
	m->made = fal_xcalloc(blocks, 1);
	m->due = fal_xcalloc(blocks, sizeof(*m->due));
	m->exps = fal_xcalloc(blocks, 1);
	if (conf->checksums)
		m->checksums = fal_xcalloc(blocks, sizeof(*m->checksums));
	memset(s->exps, FAL_EXP_FIRST, blocks);
	memset(s->range, FAL_EXP_FIRST, blocks * sizeof(*s->range));
	if (init == NULL)
		return s;
	memcpy(s->params, init, conf->n * sizeof(float));
	if (averages)
		memcpy(s->average, init, conf->n * sizeof(float));
	for (uint32_t b = 0; b < blocks; b++)
		s->reach[b].params = (double)fal_max_abs(init + (size_t)b * FAL_BLOCK,
							 fal_block_len(conf->n, b));
	return s;
}

static void
free_olds(struct fal_store *s, uint32_t from)
{
	for (uint32_t i = from; i < s->old_cap; i++) {
		free(s->old[i].params);
		free(s->old[i].exps);
	}
}

void
fal_store_free(struct fal_store *s)
{
	if (s == NULL)
		return;
	store_free_rounds(s);
	fal_store_forget_slots(s, UINT64_MAX);
	fal_store_forget_lines(s);
	free_olds(s, 0);
	free(s->old);
	free(s->slots.v);
	free(s->lines.v);
	fal_sum_free(s->sum);
	free(s->sum_exps);
	free(s->delta);
	free(s->params);
	free(s->state);
	free(s->average);
	free(s->reach);
	free(s->exps);
	free(s->range);
	free(s->products);
	free(s->making->made);
	free(s->making->due);
	free(s->making->exps);
	free(s->making->params);
	free(s->making->checksums);
	free(s->making);
	free(s);
}

size_t
fal_store_len(const struct fal_store *s)
{
	return s->conf.n;
}

/* ---- versions ------------------------------------------------------------------ */

uint64_t
fal_store_version(const struct fal_store *s)
{
	return s->version;
}

const float *
fal_store_params(const struct fal_store *s)
{
	return s->params;
}

const int8_t *
fal_store_exps(const struct fal_store *s)
{
	return s->exps;
}

/* The ranges take in the newest version's exponents. */
static void
widen_ranges(struct fal_store *s)
{
	for (uint32_t b = 0; b < s->blocks; b++) {
		struct range *r = &s->range[b];
		r->least = s->exps[b] < r->least ? s->exps[b] : r->least;
		r->most = s->exps[b] > r->most ? s->exps[b] : r->most;
	}
}

/* The oldest place becomes the last one. */
static void
rotate(struct fal_store *s)
{
	struct old first = s->old[0];
	memmove(s->old, s->old + 1, (s->old_cap - 1) * sizeof(*s->old));
	s->old[s->old_cap - 1] = first;
}

void
fal_store_keep(struct fal_store *s, uint32_t versions)
{
	const uint32_t olds = versions - 1;
	assert(versions > 0);
	for (; s->olds > olds; s->olds--)
		rotate(s);
	free_olds(s, olds);
	s->old = fal_must(fal_realloc(s->old, olds, sizeof(*s->old)));
	for (; s->old_cap < olds; s->old_cap++)
		s->old[s->old_cap] = (struct old){
			.params = fal_must(fal_alloc_pages(s->conf.n, sizeof(float))),
			.exps = fal_xcalloc(s->blocks, 1)
		};
	s->old_cap = olds;
}

uint64_t
fal_store_oldest(const struct fal_store *s)
{
	return s->olds > 0 ? s->old[0].version : s->version;
}

/* One that is kept, not the newest. */
static const struct old *
find_old(const struct fal_store *s, uint64_t version)
{
	for (uint32_t i = 0; i < s->olds; i++)
		if (s->old[i].version == version)
			return &s->old[i];
	return NULL;
}

/* A block of the newest version. */
static const float *
newest_block(const struct fal_store *s, uint32_t b)
{
	const struct making *m = s->making;
	return m->on && m->made[b] ? fal_sum_memory(m->sum, b)
				   : s->params + (size_t)b * FAL_BLOCK;
}

struct copying {
	const struct fal_store *s;
	float *to;
	const float *from;
};

static void
copy_block(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	const struct copying *c = of;
	const size_t first = (size_t)b * FAL_BLOCK;
	memcpy(c->to + first, c->from != NULL ? c->from + first : newest_block(c->s, b),
	       fal_block_len(c->s->conf.n, b) * sizeof(float));
}

/* All parameters of a version are copied; NULL: the newest, be the next one made or not.
 */
static void
copy_params(const struct fal_store *s, float *to, const float *from)
{
	struct copying of = { s, to, from };
	fal_parallel_each(s->conf.parallel, s->blocks, copy_block, &of);
}

/* All parameters of the newest version, and its exponents. */
static const float *
newest(const struct fal_store *s)
{
	struct making *m = s->making;
	if (!m->on)
		return s->params;
	if (!m->whole)
		copy_params(s, m->params, NULL);
	m->whole = true;
	return m->params;
}

static const int8_t *
newest_exps(const struct fal_store *s)
{
	return s->making->on ? s->making->exps : s->exps;
}

/* The line, or NULL. */
static struct line *
line_find(const struct fal_store *s, uint32_t line)
{
	for (size_t i = 0; i < s->lines.n; i++)
		if (fal_branch_of(s->lines.v[i].version) == line)
			return &s->lines.v[i];
	return NULL;
}

bool
fal_store_at(const struct fal_store *s, uint64_t version, const float **params,
	     const int8_t **exps)
{
	const struct line *l = NULL;
	const struct old *old = NULL;
	if (fal_branch_of(version) != 0) {
		l = line_find(s, fal_branch_of(version));
		if (l == NULL || l->version != version)
			return false;
	} else if (version != s->version) {
		old = find_old(s, version);
		if (old == NULL)
			return false;
	}
	if (params != NULL)
		*params = l != NULL ? l->params : old != NULL ? old->params : newest(s);
	if (exps != NULL)
		*exps = l != NULL ? l->exps : old != NULL ? old->exps : newest_exps(s);
	return true;
}

/* The version, newer than all old ones, becomes an old one; its values are copied, as by
 * copy_params.  The oldest goes where there are more than are kept. */
static void
put_by(struct fal_store *s, uint64_t version, const float *params, const int8_t *exps)
{
	if (s->old_cap == 0)
		return;
	if (s->olds == s->old_cap)
		rotate(s);
	else
		s->olds++;
	struct old *o = &s->old[s->olds - 1];
	o->version = version;
	copy_params(s, o->params, params);
	memcpy(o->exps, exps, s->blocks);
}

/* ---- collecting ---------------------------------------------------------------- */

int
fal_store_merge(struct fal_store *s, uint64_t round)
{
	struct round *r = store_completed(s, round, FAL_KIND_GRAD);
	if (s->sum != NULL) {
		int err = fal_sum_add_aligned(s->sum, s->sum_exps, r->sum, r->exps);
		if (err < 0)
			return err;
		store_largest(&s->largest, &r->largest);
	} else {
		s->sum = r->sum;
		s->largest = r->largest;
		r->sum = NULL;
		memcpy(s->sum_exps, r->exps, s->blocks);
	}
	fal_store_drop(s, round);
	return FAL_OK;
}

/* The largest weight of all, taken as at least 1. */
static double
largest_weight(const struct fal_store *s)
{
	double most = 1;
	for (uint32_t b = 0; b < s->blocks; b++)
		most = fmax(most, (double)fal_max_abs(s->params + (size_t)b * FAL_BLOCK,
						      fal_block_len(s->conf.n, b)));
	return most;
}

/* Is the change more than FAL_CHANGE_MOST times the largest weight?  That is looked for
 * once for all blocks, and mostly not at all: `*most` is 0 until then. */
static bool
is_too_large(const struct fal_store *s, const float *by, uint32_t len, double *most)
{
	const double is = (double)fal_max_abs(by, len) / FAL_CHANGE_MOST;
	if (is <= 1)
		return false;
	if (*most < 1)
		*most = largest_weight(s);
	return is > *most;
}

/* Block b of a round's change of the weights, zeros where it is too large, as
 * is_too_large has it; how many values. */
static uint32_t
change(const struct fal_store *s, const struct round *r, uint32_t b,
       float by[static FAL_BLOCK], double *most, struct fal_unstepped *out)
{
	const uint32_t len = fal_block_len(s->conf.n, b);
	fal_sum_mean(r->sum, b, r->exps[b], 1, by);
	if (is_too_large(s, by, len, most)) {
		memset(by, 0, len * sizeof(*by));
		out->by = r->largest;
		out->beyond++;
	}
	return len;
}

/* n floats, zeros. */
static float *
new_vector(const struct fal_store *s)
{
	return fal_must(fal_calloc_aligned(s->conf.n, sizeof(float)));
}

/* Something is added to s->delta, which is there then. */
static void
begin_delta(struct fal_store *s)
{
	if (s->delta == NULL)
		s->delta = new_vector(s);
	if (!s->moved)
		memset(s->delta, 0, s->conf.n * sizeof(float));
	s->moved = true;
}

void
fal_store_add_delta(struct fal_store *s, uint64_t round, double weight,
		    struct fal_unstepped *out)
{
	const struct round *r = store_completed(s, round, FAL_KIND_DELTA);
	float by[FAL_BLOCK];
	double most = 0;
	begin_delta(s);
	for (uint32_t b = 0; b < s->blocks; b++) {
		float *to = s->delta + (size_t)b * FAL_BLOCK;
		uint32_t len = change(s, r, b, by, &most, out);
		for (uint32_t i = 0; i < len; i++)
			to[i] += (float)weight * by[i];
	}
	fal_store_drop(s, round);
}

/* The slot's entry, made if it is new. */
static struct slot *
slot_at(struct fal_store *s, uint64_t slot)
{
	for (size_t i = 0; i < s->slots.n; i++)
		if (s->slots.v[i].slot == slot)
			return &s->slots.v[i];
	FAL_XGROW(s->slots.v, s->slots.cap, s->slots.n + 1);
	struct slot *u = &s->slots.v[s->slots.n++];
	*u = (struct slot){ .slot = slot,
			    .mean = new_vector(s),
			    .is = fal_xcalloc(s->blocks, sizeof(*u->is)) };
	return u;
}

uint32_t
fal_store_revise(struct fal_store *s, uint64_t round, uint64_t slot,
		 struct fal_unstepped *out)
{
	const struct round *r = store_completed(s, round, FAL_KIND_DELTA);
	struct slot *u = slot_at(s, slot);
	float changed[FAL_BLOCK];
	double most = 0;
	begin_delta(s);
	const uint32_t d = ++u->came;
	for (uint32_t b = 0; b < s->blocks; b++) {
		size_t first = (size_t)b * FAL_BLOCK;
		uint32_t len = change(s, r, b, changed, &most, out);
		for (uint32_t i = 0; i < len; i++) {
			float by = (changed[i] - u->mean[first + i]) / (float)d;
			u->mean[first + i] += by;
			s->delta[first + i] += by;
		}
	}
	fal_store_drop(s, round);
	return d;
}

static void
end_slot(struct fal_store *s, struct slot *u)
{
	free(u->mean);
	free(u->is);
	*u = s->slots.v[--s->slots.n];
}

void
fal_store_forget_slots(struct fal_store *s, uint64_t below)
{
	for (size_t i = s->slots.n; i-- > 0;)
		if (s->slots.v[i].slot < below)
			end_slot(s, &s->slots.v[i]);
}

void
fal_store_forget_slot(struct fal_store *s, uint64_t slot)
{
	for (size_t i = s->slots.n; i-- > 0;)
		if (s->slots.v[i].slot == slot)
			end_slot(s, &s->slots.v[i]);
}

/* The momentum of the pusher. */
static float *
momentum_of(struct fal_store *s, uint64_t pusher)
{
	if (s->slots.n == 0)
		memset(s->state, 0, state_len(&s->conf) * sizeof(float));
	return slot_at(s, pusher)->mean;
}

/* A step of the optimiser by the gradients `sum`, quantised with `sum_exps`, over
 * `divisor` samples. */
struct store_step {
	const struct fal_sum *sum;
	const int8_t *sum_exps;
	struct fal_optim_step by;
	double divisor;
	float *params, *state; /* which model */
	int8_t *exps;
	struct fal_reach *reach;
	bool slot;           /* `state` is a slot's, of which `reach` does not tell */
	const uint8_t *made; /* by block, it was stepped before; NULL: none was */
	/* The sum whose memory gets the values that a block had before; NULL: nobody asks
	 * for these values. */
	struct fal_sum *keeps;
};

/* A bound of the values of the mean gradient of block b, from the sum's bound. */
static double
mean_bound(const struct store_step *step, uint32_t b)
{
	return ldexp((double)fal_sum_bound(step->sum, b),
		     step->sum_exps[b] - FAL_BFP_P + 1) /
	       step->divisor;
}

/* Does the mean gradient of block b lead out of the numbers?  Mostly its bound proves
 * that it does not. */
static bool
is_beyond(const struct fal_store *s, const struct store_step *step, uint32_t b,
	  const float *mean)
{
	const double most = ldexp(1, fal_optim_most(&s->conf.optim));
	return mean_bound(step, b) >= most &&
	       (double)fal_max_abs(mean, fal_block_len(s->conf.n, b)) >= most;
}

/* The number, in the whole model, of the block's first element. */
static uint64_t
place_of(const struct fal_store *s, uint32_t b)
{
	return ((uint64_t)s->conf.first + b) * FAL_BLOCK;
}

/* How far block b of a model with this state reaches. */
static struct fal_reach
reach_of(const struct fal_store *s, const float *params, const float *state, uint32_t b)
{
	const uint32_t slots = fal_optim_slots(&s->conf.optim);
	const size_t first = (size_t)b * FAL_BLOCK;
	const uint32_t len = fal_block_len(s->conf.n, b);
	return (struct fal_reach){ (double)fal_max_abs(params + first, len),
				   (double)fal_max_abs(state + first * slots,
						       slots * len) };
}

/* Steps a block by its mean gradient, which is of no use then; false, and nothing has
 * changed, where it, or its state, would not be finite.  Mostly how far it can have gone
 * proves that it is. */
static bool
step_block(const struct fal_store *s, const struct store_step *step, float scale,
	   uint32_t b, float *mean)
{
	static const double far = 0x1p100;
	const uint32_t slots = fal_optim_slots(&s->conf.optim);
	const size_t first = (size_t)b * FAL_BLOCK;
	const uint32_t len = fal_block_len(s->conf.n, b), held = slots * len;
	/* State is kept block by block: slot k of a block follows slot k-1. */
	float *params = step->params + first, *state = step->state + first * slots;
	float was[FAL_BLOCK], held_was[FAL_BLOCK * FAL_OPTIM_SLOTS];
	struct fal_reach from = step->reach[b];
	if (step->slot)
		from.state = (double)fal_max_abs(state, held);
	struct fal_reach reach = fal_optim_reach(&step->by, &from, mean_bound(step, b));
	const bool proven = reach.params < far && reach.state < far;
	if (!proven) {
		memcpy(was, params, len * sizeof(float));
		memcpy(held_was, state, held * sizeof(float));
	}
	const struct fal_optim_piece piece = { place_of(s, b), len, params, state, mean };
	fal_optim_apply_piece(&s->conf.optim, &step->by, scale, &piece);
	if (!proven)
		reach = reach_of(s, step->params, step->state, b);
	if (!isfinite(reach.params) || !isfinite(reach.state)) {
		memcpy(params, was, len * sizeof(float));
		memcpy(state, held_was, held * sizeof(float));
		return false;
	}
	if (step->slot)
		reach.state = step->reach[b].state;
	step->reach[b] = reach;
	return true;
}

/* The mean gradient of block b. */
static void
mean_of(const struct store_step *step, uint32_t b, float mean[static FAL_BLOCK])
{
	fal_sum_mean(step->sum, b, step->sum_exps[b], step->divisor, mean);
}

struct squares {
	const struct fal_store *s;
	const struct store_step *step;
	double *out;
};

/* The sum of the squares of what is clipped of the mean gradient of block b: 0 where the
 * block leads out of the numbers, and so is not stepped. */
static void
square_block(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	const struct squares *q = of;
	_Alignas(64) float mean[FAL_BLOCK];
	const struct fal_optim_piece piece = { .first = place_of(q->s, b),
					       .n = fal_block_len(q->s->conf.n, b),
					       .mean_grad = mean };
	mean_of(q->step, b, mean);
	q->out[b] = is_beyond(q->s, q->step, b, mean)
			    ? 0
			    : fal_optim_squares(&q->s->conf.optim, &piece);
}

void
fal_store_squares(struct fal_store *s, uint64_t round, double divisor, double *out)
{
	const struct round *r = round_find(s, round);
	const struct store_step step = { .sum = r != NULL ? r->sum : s->sum,
					 .sum_exps = r != NULL ? r->exps : s->sum_exps,
					 .divisor = divisor };
	struct squares of = { s, &step, out };
	if (step.sum != NULL)
		fal_parallel_each(s->conf.parallel, s->blocks, square_block, &of);
	else
		memset(out, 0, s->blocks * sizeof(*out));
}

struct stepping {
	const struct fal_store *s;
	const struct store_step *step;
	float scale;
	atomic_uint beyond, refused;
};

enum stepped { STEPPED, BEYOND, REFUSED };
/* Steps block b alone, its mean gradient scaled. */
static enum stepped
step_block_of(const struct fal_store *s, const struct store_step *step, float scale,
	      uint32_t b)
{
	_Alignas(64) float mean[FAL_BLOCK];
	const size_t first = (size_t)b * FAL_BLOCK;
	mean_of(step, b, mean);
	const bool beyond = is_beyond(s, step, b, mean);
	if (step->keeps != NULL)
		memcpy(fal_sum_memory(step->keeps, b), step->params + first,
		       fal_block_len(s->conf.n, b) * sizeof(float));
	if (beyond)
		return BEYOND;
	if (!step_block(s, step, scale, b, mean))
		return REFUSED;
	const int8_t needed = fal_sum_needed(step->sum, b);
	step->exps[b] =
		fal_exp_next(step->exps[b], fal_exp_needed_at(needed, s->conf.bits));
	return STEPPED;
}

static void
step_one(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	struct stepping *g = of;
	if (g->step->made != NULL && g->step->made[b])
		return;
	const enum stepped is = step_block_of(g->s, g->step, g->scale, b);
	g->beyond += is == BEYOND;
	g->refused += is == REFUSED;
}

/* Steps all blocks, clipped by the summed squares of the whole model; those that cannot
 * be stepped are counted. */
static struct fal_unstepped
step_all(const struct fal_store *s, const struct store_step *step, double squares)
{
	const float scale =
		s->conf.optim.clip > 0 ? fal_optim_scale(&s->conf.optim, squares) : 1;
	struct stepping of = { .s = s, .step = step, .scale = scale };
	fal_parallel_each(s->conf.parallel, s->blocks, step_one, &of);
	return (struct fal_unstepped){ .beyond = of.beyond, .refused = of.refused };
}

const uint8_t *
fal_store_made(const struct fal_store *s, uint32_t *n)
{
	if (n != NULL)
		*n = s->making->n;
	return s->making->on ? s->making->made : NULL;
}

const float *
fal_store_average(const struct fal_store *s)
{
	return s->average;
}

/* The step of the newest version; the caller adds the gradients. */
static struct store_step
next_step(const struct fal_store *s)
{
	return (struct store_step){ .params = s->params,
				    .state = s->state,
				    .exps = s->exps,
				    .reach = s->reach,
				    .made = fal_store_made(s, NULL) };
}

/* Adds the changes of weights. */
static uint32_t
step_deltas(struct fal_store *s)
{
	uint32_t refused = 0;
	float trial[FAL_BLOCK];
	for (uint32_t b = 0; b < s->blocks; b++) {
		const size_t first = (size_t)b * FAL_BLOCK;
		const uint32_t len = fal_block_len(s->conf.n, b);
		for (uint32_t i = 0; i < len; i++)
			trial[i] = s->params[first + i] + s->delta[first + i];
		const double reach = (double)fal_max_abs(trial, len);
		if (!isfinite(reach)) {
			refused++;
			continue;
		}
		memcpy(s->params + first, trial, len * sizeof(float));
		s->reach[b].params = reach;
	}
	return refused;
}

struct averaging {
	const struct fal_store *s;
	const struct fal_optim_part *part;
};

/* Block b of the average goes on with that of the newest version. */
static void
average_block(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	const struct averaging *a = of;
	const struct fal_store *s = a->s;
	const size_t first = (size_t)b * FAL_BLOCK;
	fal_optim_average(&s->conf.optim, a->part, s->average + first, s->params + first,
			  fal_block_len(s->conf.n, b));
}

/* Steps the newest version by the collected gradients. */
static void
step_grads(struct fal_store *s, const struct fal_store_update *how,
	   struct fal_unstepped *is)
{
	const struct making *m = s->making;
	struct store_step step = next_step(s);
	step.sum = s->sum;
	step.sum_exps = s->sum_exps;
	step.divisor = how->divisor;
	step.by = fal_optim_part_step(&s->conf.optim, how->lr, &s->had, &how->part);
	step.slot = how->pusher != 0 && fal_optim_by_pusher(&s->conf.optim);
	if (step.slot)
		step.state = momentum_of(s, how->pusher);
	const struct fal_unstepped now = step_all(s, &step, how->squares);
	fal_optim_have(&s->conf.optim, &how->part, &s->had);
	is->beyond = now.beyond + (m->on ? m->beyond : 0);
	is->refused = now.refused + (m->on ? m->refused : 0);
}

struct fal_unstepped
fal_store_step(struct fal_store *s, const struct fal_store_update *how)
{
	struct making *m = s->making;
	struct fal_unstepped is = { .by = s->largest };
	assert(!m->on || (s->sum == m->sum && !s->moved && how->lr == m->how.lr &&
			  how->divisor == m->how.divisor && how->part.share <= 0));
	put_by(s, s->version, NULL, newest_exps(s));
	const bool steps = s->sum != NULL && how->divisor > 0,
		   stepped = steps || s->moved;
	if (steps)
		step_grads(s, how, &is);
	if (s->sum != NULL)
		store_spare_sum(s, s->sum);
	s->sum = NULL;
	if (s->moved)
		is.refused += step_deltas(s);
	s->moved = m->on = false;
	s->version++;
	widen_ranges(s);
	struct averaging of = { s, &how->part };
	if (s->average != NULL && stepped)
		fal_parallel_each(s->conf.parallel, s->blocks, average_block, &of);
	return is;
}

/* ---- a version that is made while its round is open (struct making) -------------- */

/* Some blocks that may be made. */
struct some {
	const struct fal_store *s;
	const struct round *r;
	struct store_step step;
	atomic_uint made, beyond, refused;
};

static void
make_due(void *of, uint32_t i, uint32_t thread)
{
	(void)thread;
	struct some *some = of;
	const struct fal_store *s = some->s;
	const struct round *r = some->r;
	struct making *m = s->making;
	const uint32_t b = m->due[i];
	if (m->made[b])
		return;
	if (m->checksums != NULL)
		m->checksums[b] = round_checksum(s, r, b);
	const enum stepped is = step_block_of(s, &some->step, 1, b);
	some->beyond += is == BEYOND;
	some->refused += is == REFUSED;
	m->made[b] = 1;
	some->made++;
}

/* Makes the blocks that may be made. */
static void
make_dues(struct fal_store *s, const struct round *r)
{
	struct making *m = s->making;
	struct some of = { .s = s, .r = r, .step = next_step(s) };
	of.step.sum = r->sum;
	of.step.sum_exps = r->exps;
	of.step.divisor = m->how.divisor;
	of.step.by = fal_optim_part_step(&s->conf.optim, m->how.lr, &s->had,
					 &(struct fal_optim_part){ 0 });
	of.step.keeps = m->sum;
	fal_parallel_each(s->conf.parallel, m->dues, make_due, &of);
	m->n += of.made;
	m->beyond += of.beyond;
	m->refused += of.refused;
	m->dues = 0;
}

int
fal_store_make(struct fal_store *s, const struct fal_store_make *how)
{
	const struct round *r = round_find(s, how->round);
	struct making *m = s->making;
	if (m->on || r == NULL || r->is.kind != FAL_KIND_GRAD)
		return 0;
	/* The step is of nothing but gradients that no other block has a say in. */
	if (s->sum != NULL || s->moved || s->conf.optim.clip > 0 || s->average != NULL ||
	    !(how->divisor > 0) || !isfinite(how->lr))
		return 0;
	memcpy(m->exps, s->exps, s->blocks);
	memset(m->made, 0, s->blocks);
	m->on = true;
	m->whole = false;
	m->how = *how;
	m->sum = r->sum;
	m->n = m->beyond = m->refused = m->dues = 0;
	for (uint32_t b = 0; b < s->blocks; b++)
		if (r->counted[b] == r->is.tasks)
			store_make_next(s, r, b);
	make_dues(s, r);
	return 1;
}

void
store_make_next(struct fal_store *s, const struct round *r, uint32_t b)
{
	struct making *m = s->making;
	if (m->on && r->is.round == m->how.round && m->dues < s->blocks)
		m->due[m->dues++] = b;
}

void
fal_store_make_more(struct fal_store *s)
{
	struct making *m = s->making;
	const struct round *r = m->on && m->dues > 0 ? round_find(s, m->how.round) : NULL;
	if (r != NULL)
		make_dues(s, r);
}

bool
store_is_made(const struct fal_store *s, const struct round *r, uint32_t b)
{
	const struct making *m = s->making;
	return m->on && r->is.round == m->how.round && m->made[b];
}

/* ---- lines ------------------------------------------------------------------------ */

bool
fal_store_has_line(const struct fal_store *s, uint32_t line)
{
	return line_find(s, line) != NULL;
}

void
fal_store_forget_lines(struct fal_store *s)
{
	for (size_t i = 0; i < s->lines.n; i++) {
		struct line *l = &s->lines.v[i];
		free(l->params);
		free(l->taken);
		free(l->state);
		free(l->exps);
		free(l->reach);
		free(l->is);
	}
	s->lines.n = 0;
}

static struct line *
add_line(struct fal_store *s, uint64_t version)
{
	FAL_XGROW(s->lines.v, s->lines.cap, s->lines.n + 1);
	struct line *l = &s->lines.v[s->lines.n++];
	*l = (struct line){ .version = version,
			    .params = new_vector(s),
			    .taken = new_vector(s),
			    .state = fal_must(fal_calloc_aligned(state_len(&s->conf),
								 sizeof(float))),
			    .exps = fal_xcalloc(s->blocks, 1),
			    .reach = fal_xcalloc(s->blocks, sizeof(*l->reach)),
			    .is = fal_xcalloc(s->blocks, sizeof(*l->is)) };
	memcpy(l->exps, s->exps, s->blocks);
	return l;
}

void
fal_store_line(struct fal_store *s, uint64_t version)
{
	struct line *l = line_find(s, fal_branch_of(version));
	if (l == NULL)
		l = add_line(s, version);
	l->version = version;
	memcpy(l->params, s->params, s->conf.n * sizeof(float));
	memcpy(l->taken, s->params, s->conf.n * sizeof(float));
	for (uint32_t b = 0; b < s->blocks; b++)
		l->reach[b].params = s->reach[b].params;
}

struct fal_unstepped
fal_store_line_step(struct fal_store *s, uint64_t round,
		    const struct fal_store_line_step *step)
{
	const struct round *r = store_completed(s, round, FAL_KIND_GRAD);
	struct line *l = line_find(s, fal_branch_of(step->version));
	assert(l != NULL);
	const struct store_step by = { .sum = r->sum,
				       .sum_exps = r->exps,
				       .by = fal_optim_step(&s->conf.optim, step->lr,
							    l->steps++),
				       .divisor = step->divisor,
				       .params = l->params,
				       .state = l->state,
				       .exps = l->exps,
				       .reach = l->reach };
	struct fal_unstepped is = step_all(s, &by, step->squares);
	is.by = r->largest;
	l->version = step->version;
	fal_store_drop(s, round);
	return is;
}

void
fal_store_push(struct fal_store *s, uint32_t line, double weight)
{
	const struct line *l = line_find(s, line);
	assert(l != NULL);
	begin_delta(s);
	for (size_t i = 0; i < s->conf.n; i++)
		s->delta[i] += (float)weight * (l->params[i] - l->taken[i]);
}

void
fal_store_outer(struct fal_store *s, double rate, double momentum)
{
	const struct slot *v = slot_at(s, 0);
	const float m = (float)momentum, lr = (float)rate;
	begin_delta(s);
	for (size_t i = 0; i < s->conf.n; i++) {
		v->mean[i] = m * v->mean[i] + s->delta[i];
		s->delta[i] = lr * (s->delta[i] + m * v->mean[i]);
	}
}

/* ---- a version that comes from elsewhere ------------------------------------------ */

int
fal_store_put(struct fal_store *s, uint64_t version, const float *params,
	      const int8_t *exps)
{
	assert(!s->making->on);
	if (version < s->version)
		return FAL_EINVAL;
	if (version > s->version)
		put_by(s, s->version, s->params, s->exps);
	s->version = version;
	memcpy(s->params, params, s->conf.n * sizeof(*params));
	memcpy(s->exps, exps, s->blocks);
	widen_ranges(s);
	for (uint32_t b = 0; b < s->blocks; b++)
		s->reach[b] = reach_of(s, s->params, s->state, b);
	return FAL_OK;
}

/* ---- images ----------------------------------------------------------------------- */

/* The count of versions before the newest, from `from` on, that follow each other up to
 * the newest. */
static uint32_t
olds_of(const struct fal_store *s, uint64_t from)
{
	uint32_t n = 0;
	while (n < s->olds && s->version - n > from &&
	       s->old[s->olds - 1 - n].version + n + 1 == s->version)
		n++;
	return n;
}

/* The newest of them first. */
static void
image_olds(const struct fal_store *s, struct fal_image *m)
{
	for (uint32_t i = 1; i <= m->is.olds; i++) {
		const struct old *o = &s->old[s->olds - i];
		char name[FAL_IMAGE_NAME];
		snprintf(name, sizeof(name), "params.%u", i);
		fal_image_add(m, name, true, o->params, s->conf.n * sizeof(float));
		snprintf(name, sizeof(name), "exponents.%u", i);
		fal_image_add(m, name, false, o->exps, s->blocks);
	}
}

/* Their numbers, as an array; `p` is one of a line or a slot. */
static void
image_numbers(const struct fal_store *s, struct fal_image *m, const char *name,
	      struct store_numbers *p, struct store_numbers is)
{
	for (uint32_t b = 0; b < s->blocks; b++)
		p[b] = is;
	fal_image_add(m, name, false, p, (size_t)s->blocks * sizeof(*p));
}

static void
image_line(const struct fal_store *s, struct fal_image *m, uint32_t i)
{
	const struct line *l = &s->lines.v[i];
	const size_t values = s->conf.n * sizeof(float);
	char name[FAL_IMAGE_NAME];
	snprintf(name, sizeof(name), "line.%u", i);
	image_numbers(s, m, name, l->is, (struct store_numbers){ l->version, l->steps });
	snprintf(name, sizeof(name), "line.%u.params", i);
	fal_image_add(m, name, true, l->params, values);
	snprintf(name, sizeof(name), "line.%u.taken", i);
	fal_image_add(m, name, true, l->taken, values);
	snprintf(name, sizeof(name), "line.%u.exponents", i);
	fal_image_add(m, name, false, l->exps, s->blocks);
	snprintf(name, sizeof(name), "line.%u.optimizer", i);
	if (state_len(&s->conf) > 0)
		fal_image_add(m, name, true, l->state,
			      state_len(&s->conf) * sizeof(float));
}

static void
image_slot(const struct fal_store *s, struct fal_image *m, uint32_t i)
{
	const struct slot *u = &s->slots.v[i];
	char name[FAL_IMAGE_NAME];
	snprintf(name, sizeof(name), "slot.%u", i);
	image_numbers(s, m, name, u->is, (struct store_numbers){ u->slot, u->came });
	snprintf(name, sizeof(name), "slot.%u.mean", i);
	fal_image_add(m, name, true, u->mean, s->conf.n * sizeof(float));
}

int
fal_store_image(struct fal_store *s, uint64_t from, struct fal_image *m)
{
	const size_t values = s->conf.n * sizeof(float),
		     state = state_len(&s->conf) * sizeof(float);
	if (s->making->on)
		return FAL_ESTATE;
	m->is = (struct fal_image_head){ .version = s->version,
					 .steps = s->had.steps,
					 .olds = olds_of(s, from),
					 .lines = (uint32_t)s->lines.n,
					 .slots = (uint32_t)s->slots.n };
	fal_image_add(m, "params", true, s->params, values);
	fal_image_add(m, "exponents", false, s->exps, s->blocks);
	fal_image_add(m, "ranges", false, s->range, s->blocks * sizeof(*s->range));
	if (state > 0)
		fal_image_add(m, "optimizer", true, s->state, state);
	for (uint32_t b = 0; b < s->blocks && s->products != NULL; b++)
		s->products[b] = (struct store_products){ s->had.beta1, s->had.beta2 };
	if (s->products != NULL)
		fal_image_add(m, "products", false, s->products,
			      s->blocks * sizeof(*s->products));
	if (s->average != NULL)
		fal_image_add(m, "average", true, s->average, values);
	image_olds(s, m);
	for (uint32_t i = 0; i < s->lines.n; i++)
		image_line(s, m, i);
	for (uint32_t i = 0; i < s->slots.n; i++)
		image_slot(s, m, i);
	return FAL_OK;
}

int
fal_store_become(struct fal_store *s, const struct fal_image_head *is)
{
	assert(s->version == 0 && s->open.n == 0);
	if (is->olds > is->version || is->olds >= FAL_KEPT_MAX ||
	    fal_branch_of(is->version) != 0 || is->lines > FAL_IMAGE_OTHERS ||
	    is->slots > FAL_IMAGE_OTHERS)
		return FAL_EINVAL;
	fal_store_keep(s, is->olds + 1);
	s->version = is->version;
	s->had.steps = is->steps;
	s->olds = is->olds;
	for (uint32_t i = 0; i < s->olds; i++)
		s->old[i].version = s->version - s->olds + i;
	/* Lines and slots, whose numbers come with their arrays. */
	for (uint32_t i = 0; i < is->lines; i++)
		add_line(s, 0);
	for (uint32_t i = 0; i < is->slots; i++)
		slot_at(s, i);
	return FAL_OK;
}

void
fal_store_became(struct fal_store *s)
{
	for (uint32_t b = 0; b < s->blocks; b++)
		s->reach[b] = reach_of(s, s->params, s->state, b);
	if (s->products != NULL) {
		s->had.beta1 = s->products[0].beta1;
		s->had.beta2 = s->products[0].beta2;
	}
	for (size_t i = 0; i < s->lines.n; i++) {
		struct line *l = &s->lines.v[i];
		l->version = l->is[0].number;
		l->steps = l->is[0].count;
		for (uint32_t b = 0; b < s->blocks; b++)
			l->reach[b] = reach_of(s, l->params, l->state, b);
	}
	for (size_t i = 0; i < s->slots.n; i++) {
		s->slots.v[i].slot = s->slots.v[i].is[0].number;
		s->slots.v[i].came = (uint32_t)s->slots.v[i].is[0].count;
	}
}
