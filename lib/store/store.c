/* Versions, and what is collected for the next one. */
#include "store/store_priv.h"

#include "base/err.h"
#include "base/line.h"
#include "base/mem.h"

#include <assert.h>
#include <math.h>
#include <stdatomic.h>
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
	return (conf->n + state_len(conf) + average) * sizeof(float) +
	       fal_blocks(conf->n) * sizeof(struct range);
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
	struct fal_store_most all = *most;
	all.versions += all.beyond;
	return newest_bytes(conf) + old_bytes(conf, &all) + blocks +
	       most->rounds * round + most->lines * line + moved * sizeof(float);
}

size_t
fal_store_image_bytes(const struct fal_store_conf *conf,
		      const struct fal_store_most *most)
{
	return newest_bytes(conf) + old_bytes(conf, most);
}

static void
begin_with(struct fal_store *s, const float *init)
{
	const size_t bytes = s->conf.n * sizeof(float);
	memcpy(s->params, init, bytes);
	if (s->average != NULL)
		memcpy(s->average, init, bytes);
	for (uint32_t b = 0; b < s->blocks; b++)
		s->reach[b].params = (double)fal_max_abs(init + (size_t)b * FAL_BLOCK,
							 fal_block_len(s->conf.n, b));
}

struct fal_store *
fal_store_new(const struct fal_store_conf *conf, const float *init)
{
	struct fal_store *s = fal_calloc(1, sizeof(*s));
	if (s == NULL)
		return NULL;
	assert(fal_optim_slots(&conf->optim) <= FAL_OPTIM_SLOTS);
	s->conf = *conf;
	s->blocks = fal_blocks(conf->n);
	s->params = fal_calloc_aligned(conf->n, sizeof(float));
	s->state = fal_calloc_aligned(state_len(conf), sizeof(float));
	s->reach = fal_calloc(s->blocks, sizeof(*s->reach));
	s->exps = fal_calloc(s->blocks, 1);
	s->range = fal_calloc(s->blocks, sizeof(*s->range));
	s->making = store_making_new(conf);
	s->sum_exps = fal_calloc(s->blocks, 1);
	if (s->params == NULL || s->state == NULL || s->reach == NULL ||
	    s->exps == NULL || s->range == NULL || s->making == NULL ||
	    s->sum_exps == NULL) {
		fal_store_free(s);
		return NULL;
	}
	if (conf->optim.ema > 0)
		s->average = fal_calloc_aligned(conf->n, sizeof(float));
	if (conf->optim.clip > 0)
		s->norms = fal_calloc(s->blocks, sizeof(*s->norms));
	if ((conf->optim.ema > 0 && s->average == NULL) ||
	    (conf->optim.clip > 0 && s->norms == NULL)) {
		fal_store_free(s);
		return NULL;
	}
	memset(s->exps, FAL_EXP_FIRST, s->blocks);
	memset(s->range, FAL_EXP_FIRST, s->blocks * sizeof(*s->range));
	if (init != NULL)
		begin_with(s, init);
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
	while (s->open.n > 0)
		fal_store_drop(s, s->open.v[0]->is.round);
	fal_store_forget_slots(s, UINT64_MAX);
	fal_store_forget_lines(s);
	for (size_t i = 0; i < s->closed.n; i++)
		round_free(s->closed.v[i]);
	for (size_t i = 0; i < s->spares.n; i++)
		fal_sum_free(s->spares.v[i]);
	free_olds(s, 0);
	free(s->old);
	free(s->open.v);
	free(s->closed.v);
	free(s->spares.v);
	free(s->slots.v);
	free(s->lines.v);
	fal_sum_free(s->sum);
	free(s->sum_exps);
	free(s->delta);
	free(s->params);
	free(s->state);
	free(s->average);
	free(s->reach);
	free(s->norms);
	free(s->exps);
	free(s->range);
	store_making_free(s->making);
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

/* One place more for an old version. */
static int
add_old(struct fal_store *s)
{
	struct old *old = fal_realloc(s->old, (size_t)s->old_cap + 1, sizeof(*old));
	if (old == NULL)
		return FAL_ENOMEM;
	s->old = old;
	struct old o = { .params = fal_alloc_pages(s->conf.n, sizeof(float)),
			 .exps = fal_calloc(s->blocks, 1) };
	if (o.params == NULL || o.exps == NULL) {
		free(o.params);
		free(o.exps);
		return FAL_ENOMEM;
	}
	old[s->old_cap++] = o;
	return FAL_OK;
}

void
store_widen_ranges(struct fal_store *s)
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

int
fal_store_keep(struct fal_store *s, uint32_t versions)
{
	assert(versions > 0);
	while (s->old_cap < versions - 1) {
		int err = add_old(s);
		if (err < 0)
			return err;
	}
	for (; s->olds > versions - 1; s->olds--)
		rotate(s);
	free_olds(s, versions - 1);
	s->old_cap = versions - 1;
	return FAL_OK;
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

bool
fal_store_at(const struct fal_store *s, uint64_t version, const float **params,
	     const int8_t **exps)
{
	const struct line *l = NULL;
	const struct old *old = NULL;
	if (fal_line_of(version) != 0) {
		l = line_find(s, fal_line_of(version));
		if (l == NULL || l->version != version)
			return false;
	} else if (version != s->version) {
		old = find_old(s, version);
		if (old == NULL)
			return false;
	}
	if (params != NULL)
		*params = l != NULL     ? l->params
			  : old != NULL ? old->params
					: store_newest(s);
	if (exps != NULL)
		*exps = l != NULL     ? l->exps
			: old != NULL ? old->exps
				      : store_newest_exps(s);
	return true;
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
	memcpy(c->to + first,
	       c->from != NULL ? c->from + first : store_newest_block(c->s, b),
	       fal_block_len(c->s->conf.n, b) * sizeof(float));
}

void
store_copy(const struct fal_store *s, float *to, const float *from)
{
	struct copying of = { s, to, from };
	fal_parallel_each(s->conf.parallel, s->blocks, copy_block, &of);
}

void
store_put_by(struct fal_store *s, uint64_t version, const float *params,
	     const int8_t *exps)
{
	if (s->old_cap == 0)
		return;
	if (s->olds == s->old_cap)
		rotate(s);
	else
		s->olds++;
	struct old *o = &s->old[s->olds - 1];
	o->version = version;
	store_copy(s, o->params, params);
	memcpy(o->exps, exps, s->blocks);
}

/* ---- rounds -------------------------------------------------------------------- */

/* Memory for the next sum. */
static void
spare(struct fal_store *s, struct fal_sum *sum)
{
	if (FAL_GROW(s->spares.v, s->spares.cap, s->spares.n + 1) < 0)
		fal_sum_free(sum);
	else
		s->spares.v[s->spares.n++] = sum;
}

static struct fal_sum *
take_sum(struct fal_store *s)
{
	if (s->spares.n == 0)
		return fal_sum_new(s->conf.n);
	struct fal_sum *sum = s->spares.v[--s->spares.n];
	fal_sum_clear(sum);
	return sum;
}

int
fal_store_open(struct fal_store *s, const struct fal_store_round *is)
{
	const int8_t *exps;
	size_t at = round_place(s, is->round);
	assert(is->tasks > 0 && round_find(s, is->round) == NULL);
	if (FAL_GROW(s->open.v, s->open.cap, s->open.n + 1) < 0)
		return FAL_ENOMEM;
	struct fal_sum *sum = take_sum(s);
	if (sum == NULL)
		return FAL_ENOMEM;
	struct round *r =
		s->closed.n > 0 ? s->closed.v[--s->closed.n] : round_new(s->blocks);
	if (r == NULL) {
		spare(s, sum);
		return FAL_ENOMEM;
	}
	round_clear(r, s->blocks);
	r->is = *is;
	r->sum = sum;
	if (is->kind == FAL_KIND_GRAD) {
		bool kept = fal_store_at(s, is->version, NULL, &exps);
		assert(kept);
		memcpy(r->exps, exps, s->blocks);
	}
	memmove(s->open.v + at + 1, s->open.v + at,
		(s->open.n++ - at) * sizeof(struct round *));
	s->open.v[at] = r;
	return FAL_OK;
}

void
fal_store_drop(struct fal_store *s, uint64_t round)
{
	struct round *r = round_find(s, round);
	if (r == NULL)
		return;
	size_t at = round_place(s, round);
	memmove(s->open.v + at, s->open.v + at + 1,
		(--s->open.n - at) * sizeof(struct round *));
	if (r->sum != NULL)
		spare(s, r->sum);
	r->sum = NULL;
	if (FAL_GROW(s->closed.v, s->closed.cap, s->closed.n + 1) < 0)
		round_free(r);
	else
		s->closed.v[s->closed.n++] = r;
}

/* ---- collecting ---------------------------------------------------------------- */

struct round *
store_completed(const struct fal_store *s, uint64_t round, enum fal_kind kind)
{
	struct round *r = round_find(s, round);
	assert(r != NULL && r->left == 0 && r->is.kind == kind);
	return r;
}

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

void
store_largest(struct fal_largest *of, const struct fal_largest *more)
{
	if (more->exponent > of->exponent)
		*of = *more;
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

int
store_begin_delta(struct fal_store *s)
{
	if (s->delta == NULL)
		s->delta = fal_calloc_aligned(s->conf.n, sizeof(float));
	if (s->delta == NULL)
		return FAL_ENOMEM;
	if (!s->moved)
		memset(s->delta, 0, s->conf.n * sizeof(float));
	s->moved = true;
	return FAL_OK;
}

int
fal_store_add_delta(struct fal_store *s, uint64_t round, double weight,
		    struct fal_unstepped *out)
{
	const struct round *r = store_completed(s, round, FAL_KIND_DELTA);
	if (store_begin_delta(s) < 0)
		return FAL_ENOMEM;
	float by[FAL_BLOCK];
	double most = 0;
	for (uint32_t b = 0; b < s->blocks; b++) {
		float *to = s->delta + (size_t)b * FAL_BLOCK;
		uint32_t len = change(s, r, b, by, &most, out);
		for (uint32_t i = 0; i < len; i++)
			to[i] += (float)weight * by[i];
	}
	fal_store_drop(s, round);
	return FAL_OK;
}

struct slot *
store_slot(struct fal_store *s, uint64_t slot)
{
	for (size_t i = 0; i < s->slots.n; i++)
		if (s->slots.v[i].slot == slot)
			return &s->slots.v[i];
	if (FAL_GROW(s->slots.v, s->slots.cap, s->slots.n + 1) < 0)
		return NULL;
	struct slot *u = &s->slots.v[s->slots.n];
	*u = (struct slot){ .slot = slot,
			    .mean = fal_calloc_aligned(s->conf.n, sizeof(float)),
			    .is = fal_calloc(s->blocks, sizeof(*u->is)) };
	if (u->mean == NULL || u->is == NULL) {
		free(u->mean);
		free(u->is);
		return NULL;
	}
	s->slots.n++;
	return u;
}

int
fal_store_revise(struct fal_store *s, uint64_t round, uint64_t slot,
		 struct fal_unstepped *out)
{
	const struct round *r = store_completed(s, round, FAL_KIND_DELTA);
	struct slot *u = store_slot(s, slot);
	if (u == NULL || store_begin_delta(s) < 0)
		return FAL_ENOMEM;
	float changed[FAL_BLOCK];
	double most = 0;
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
	return (int)d;
}

void
fal_store_forget_slots(struct fal_store *s, uint64_t below)
{
	for (size_t i = 0; i < s->slots.n;) {
		struct slot *u = &s->slots.v[i];
		if (u->slot >= below) {
			i++;
			continue;
		}
		free(u->mean);
		free(u->is);
		*u = s->slots.v[--s->slots.n];
	}
}

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

struct fal_reach
store_reach(const struct fal_store *s, const float *params, const float *state,
	    uint32_t b)
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
	struct fal_reach reach =
		fal_optim_reach(&step->by, &step->reach[b], mean_bound(step, b));
	const bool proven = reach.params < far && reach.state < far;
	if (!proven) {
		memcpy(was, params, len * sizeof(float));
		memcpy(held_was, state, held * sizeof(float));
	}
	const struct fal_optim_piece piece = { place_of(s, b), len, params, state, mean };
	fal_optim_apply_piece(&s->conf.optim, &step->by, scale, &piece);
	if (!proven)
		reach = store_reach(s, step->params, step->state, b);
	if (!isfinite(reach.params) || !isfinite(reach.state)) {
		memcpy(params, was, len * sizeof(float));
		memcpy(state, held_was, held * sizeof(float));
		return false;
	}
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

/* What the mean gradient is scaled by: by its own norm, or by that of the whole model. */
static float
scale_of(struct fal_store *s, const struct store_step *step)
{
	double squares = s->known ? s->squares : 0;
	if (s->conf.optim.clip <= 0)
		return 1;
	if (!s->known) {
		struct squares of = { s, step, s->norms };
		fal_parallel_each(s->conf.parallel, s->blocks, square_block, &of);
		for (uint32_t b = 0; b < s->blocks; b++)
			squares += s->norms[b];
	}
	s->known = false;
	return fal_optim_scale(&s->conf.optim, squares);
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

void
fal_store_clip(struct fal_store *s, double squares)
{
	s->known = true;
	s->squares = squares;
}

static int8_t
next_exponent(const struct fal_store *s, const struct store_step *step, uint32_t b)
{
	const int8_t needed = fal_sum_needed(step->sum, b);
	return fal_exp_next(step->exps[b], fal_exp_needed_at(needed, s->conf.bits));
}

struct stepping {
	const struct fal_store *s;
	const struct store_step *step;
	float scale;
	atomic_uint beyond, refused;
};

enum stepped
store_step_one(const struct fal_store *s, const struct store_step *step, float scale,
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
	step->exps[b] = next_exponent(s, step, b);
	return STEPPED;
}

static void
step_one(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	struct stepping *g = of;
	if (g->step->made != NULL && g->step->made[b])
		return;
	const enum stepped is = store_step_one(g->s, g->step, g->scale, b);
	g->beyond += is == BEYOND;
	g->refused += is == REFUSED;
}

struct fal_unstepped
store_step(struct fal_store *s, const struct store_step *step)
{
	struct stepping of = { .s = s, .step = step, .scale = scale_of(s, step) };
	fal_parallel_each(s->conf.parallel, s->blocks, step_one, &of);
	return (struct fal_unstepped){ .beyond = of.beyond, .refused = of.refused };
}

const float *
fal_store_average(const struct fal_store *s)
{
	return s->average;
}

/* What was collected of gradients is of no use any more. */
static void
drop_gradients(struct fal_store *s)
{
	spare(s, s->sum);
	s->sum = NULL;
	s->known = false;
}

struct store_step
store_next_step(const struct fal_store *s, const struct fal_sum *sum,
		const int8_t *sum_exps, float lr, double divisor)
{
	return (struct store_step){ .sum = sum,
				    .sum_exps = sum_exps,
				    .by = fal_optim_step(&s->conf.optim, lr, s->steps),
				    .divisor = divisor,
				    .params = s->params,
				    .state = s->state,
				    .exps = s->exps,
				    .reach = s->reach,
				    .made = fal_store_made(s, NULL) };
}

static struct fal_unstepped
step_gradients(struct fal_store *s, float lr, double divisor)
{
	const struct store_step step =
		store_next_step(s, s->sum, s->sum_exps, lr, divisor);
	const struct fal_unstepped is = store_step(s, &step);
	s->steps++;
	drop_gradients(s);
	return is;
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

/* Block b of the average goes on with that of the newest version. */
static void
average_block(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	const struct fal_store *s = of;
	const size_t first = (size_t)b * FAL_BLOCK;
	fal_optim_average(&s->conf.optim, s->average + first, s->params + first,
			  fal_block_len(s->conf.n, b));
}

bool
fal_store_has_gradients(const struct fal_store *s)
{
	return s->sum != NULL;
}

struct fal_unstepped
fal_store_step(struct fal_store *s, float lr, double divisor)
{
	struct making *m = s->making;
	struct fal_unstepped is = { .by = s->largest };
	assert(!m->on || (s->sum == m->sum && !s->moved && lr == m->how.lr &&
			  divisor == m->how.divisor));
	store_put_by(s, s->version, NULL, store_newest_exps(s));
	if (s->sum != NULL && divisor <= 0)
		drop_gradients(s);
	const bool stepped = s->sum != NULL || s->moved;
	if (s->sum != NULL) {
		const struct fal_unstepped now = step_gradients(s, lr, divisor);
		is.beyond = now.beyond + (m->on ? m->beyond : 0);
		is.refused = now.refused + (m->on ? m->refused : 0);
	}
	if (s->moved)
		is.refused += step_deltas(s);
	s->moved = m->on = false;
	s->version++;
	store_widen_ranges(s);
	if (s->average != NULL && stepped)
		fal_parallel_each(s->conf.parallel, s->blocks, average_block, s);
	return is;
}
