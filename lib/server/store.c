/* The store: versions, collected changes, and the steps that make versions from them. */
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

/* The largest magnitude in block b of `v`. */
static double
block_max(const struct fal_store *s, const float *v, uint32_t b)
{
	return (double)fal_max_abs(v + (size_t)b * FAL_BLOCK,
				   fal_block_len(s->conf.n, b));
}

static size_t
state_len(const struct fal_store_conf *conf)
{
	return conf->n * fal_optim_slots(&conf->optim);
}

/* The bytes of the newest version in an image: parameters, optimiser state, average. */
static size_t
newest_version_bytes(const struct fal_store_conf *conf)
{
	const size_t average = conf->optim.ema > 0 ? conf->n : 0;
	const size_t products =
		conf->optim.kind == FAL_ADAMW ? sizeof(struct image_products) : 0;
	return (conf->n + state_len(conf) + average) * sizeof(float) +
	       fal_blocks(conf->n) * (sizeof(struct exp_range) + products);
}

static size_t
old_versions_bytes(const struct fal_store_conf *conf, const struct fal_store_limits *most)
{
	return (most->versions - 1) * (conf->n * sizeof(float) + fal_blocks(conf->n));
}

size_t
fal_store_bytes(const struct fal_store_conf *conf, const struct fal_store_limits *most)
{
	const uint32_t blocks = fal_blocks(conf->n);
	/* A branch: its parameters, its base, optimiser state, exponents. */
	const size_t branch = (2 * conf->n + state_len(conf)) * sizeof(float) + blocks;
	const size_t round = fal_sum_bytes(conf->n) + (conf->checksums ? blocks * 8 : 0);
	/* The collected changes of weights, and the outer optimiser's momentum. */
	const size_t deltas = (most->deltas || most->lines > 0 ? conf->n : 0) +
			      (most->outer ? conf->n : 0);
	const size_t pushers =
		fal_optim_by_pusher(&conf->optim) ? conf->n * most->pushers : 0;
	struct fal_store_limits all = *most;
	all.versions += all.beyond;
	return newest_version_bytes(conf) + old_versions_bytes(conf, &all) + blocks +
	       most->rounds * round + most->lines * branch +
	       (deltas + pushers) * sizeof(float);
}

size_t
fal_store_image_bytes(const struct fal_store_conf *conf,
		      const struct fal_store_limits *most)
{
	return newest_version_bytes(conf) + old_versions_bytes(conf, most);
}

struct fal_store *
fal_store_new(const struct fal_store_conf *conf, const float *init)
{
	const uint32_t blocks = fal_blocks(conf->n);
	struct fal_store *s = fal_xcalloc(1, sizeof(*s));
	struct early_step *m = s->early = fal_xcalloc(1, sizeof(*m));
	const bool averages = conf->optim.ema > 0;
	assert(fal_optim_slots(&conf->optim) <= FAL_OPTIM_SLOTS);
	s->conf = *conf;
	s->blocks = blocks;
	s->params = fal_calloc_aligned(conf->n, sizeof(float));
	s->state = fal_calloc_aligned(state_len(conf), sizeof(float));
	s->average = averages ? fal_calloc_aligned(conf->n, sizeof(float)) : NULL;
	/* Only an early step touches the pages of this memory, which count as a version
	 * (image.h, `beyond`). */
	m->params = fal_alloc_pages(conf->n, sizeof(float));
	if (s->params == NULL || s->state == NULL || m->params == NULL ||
	    (averages && s->average == NULL)) {
		fal_store_free(s);
		return NULL;
	}
	s->reach = fal_xcalloc(blocks, sizeof(*s->reach));
	s->exps = fal_xcalloc(blocks, 1);
	s->exp_range = fal_xcalloc(blocks, sizeof(*s->exp_range));
	s->sum_exps = fal_xcalloc(blocks, 1);
	s->had = (struct fal_optim_history){ 0, 1, 1 };
	if (conf->optim.kind == FAL_ADAMW)
		s->products = fal_xcalloc(blocks, sizeof(*s->products));
	m->is_stepped = fal_xcalloc(blocks, 1);
	m->ready = fal_xcalloc(blocks, sizeof(*m->ready));
	m->exps = fal_xcalloc(blocks, 1);
	if (conf->checksums)
		m->checksums = fal_xcalloc(blocks, sizeof(*m->checksums));
	memset(s->exps, FAL_EXP_FIRST, blocks);
	memset(s->exp_range, FAL_EXP_FIRST, blocks * sizeof(*s->exp_range));
	if (init == NULL)
		return s;
	memcpy(s->params, init, conf->n * sizeof(float));
	if (averages)
		memcpy(s->average, init, conf->n * sizeof(float));
	for (uint32_t b = 0; b < blocks; b++)
		s->reach[b].params = block_max(s, init, b);
	return s;
}

static void
free_old_versions(struct fal_store *s, uint32_t from)
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
	fal_store_forget_slots(s, 0, UINT64_MAX);
	fal_store_forget_branches(s);
	free_old_versions(s, 0);
	free(s->old);
	free(s->slots.v);
	free(s->branches.v);
	fal_sum_free(s->sum);
	free(s->sum_exps);
	free(s->delta);
	free(s->params);
	free(s->state);
	free(s->average);
	free(s->reach);
	free(s->exps);
	free(s->exp_range);
	free(s->products);
	free(s->early->is_stepped);
	free(s->early->ready);
	free(s->early->exps);
	free(s->early->params);
	free(s->early->checksums);
	free(s->early);
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

/* Extends the exponent ranges to the newest version's exponents. */
static void
extend_exp_ranges(struct fal_store *s)
{
	for (uint32_t b = 0; b < s->blocks; b++) {
		struct exp_range *r = &s->exp_range[b];
		r->min = s->exps[b] < r->min ? s->exps[b] : r->min;
		r->max = s->exps[b] > r->max ? s->exps[b] : r->max;
	}
}

/* Moves the oldest version to the end of the list, where its memory is used again. */
static void
rotate_old_versions(struct fal_store *s)
{
	struct old_version first = s->old[0];
	memmove(s->old, s->old + 1, (s->old_cap - 1) * sizeof(*s->old));
	s->old[s->old_cap - 1] = first;
}

void
fal_store_set_retained(struct fal_store *s, uint32_t versions)
{
	const uint32_t cap = versions - 1;
	assert(versions > 0);
	for (; s->n_old > cap; s->n_old--)
		rotate_old_versions(s);
	free_old_versions(s, cap);
	s->old = fal_check_alloc(fal_realloc(s->old, cap, sizeof(*s->old)));
	for (; s->old_cap < cap; s->old_cap++)
		s->old[s->old_cap] = (struct old_version){
			.params = fal_check_alloc(
				fal_alloc_pages(s->conf.n, sizeof(float))),
			.exps = fal_xcalloc(s->blocks, 1)
		};
	s->old_cap = cap;
}

uint64_t
fal_store_oldest(const struct fal_store *s)
{
	return s->n_old > 0 ? s->old[0].version : s->version;
}

struct copy_job {
	const struct fal_store *s;
	float *to;
	const float *from;
};

/* Copies block b of `from`; `from` NULL: block b of the newest whole version. */
static void
copy_block(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	const struct copy_job *c = of;
	const struct early_step *m = c->s->early;
	const size_t first = (size_t)b * FAL_BLOCK;
	const float *from = c->from != NULL ? c->from + first : c->s->params + first;
	if (c->from == NULL && m->is_active && m->is_stepped[b])
		from = fal_sum_memory(m->sum, b);
	memcpy(c->to + first, from, fal_block_len(c->s->conf.n, b) * sizeof(float));
}

/* Copies all parameters of a version; `from` NULL: of the newest whole version. */
static void
copy_params(const struct fal_store *s, float *to, const float *from)
{
	struct copy_job of = { s, to, from };
	fal_parallel_each(s->conf.parallel, s->blocks, copy_block, &of);
}

/* The parameters and exponents of the newest whole version. */
static const float *
newest_params(const struct fal_store *s)
{
	struct early_step *m = s->early;
	if (!m->is_active)
		return s->params;
	if (!m->has_params)
		copy_params(s, m->params, NULL);
	m->has_params = true;
	return m->params;
}

static const int8_t *
newest_exps(const struct fal_store *s)
{
	return s->early->is_active ? s->early->exps : s->exps;
}

static struct branch *
branch_find(const struct fal_store *s, uint32_t branch)
{
	for (size_t i = 0; i < s->branches.n; i++)
		if (fal_branch_of(s->branches.v[i].version) == branch)
			return &s->branches.v[i];
	return NULL;
}

bool
fal_store_find_version(const struct fal_store *s, uint64_t version, const float **params,
		       const int8_t **exps)
{
	const struct branch *l = NULL;
	const struct old_version *old = NULL;
	if (fal_branch_of(version) != 0) {
		l = branch_find(s, fal_branch_of(version));
		if (l == NULL || l->version != version)
			return false;
	} else if (version != s->version) {
		for (uint32_t i = 0; i < s->n_old && old == NULL; i++)
			if (s->old[i].version == version)
				old = &s->old[i];
		if (old == NULL)
			return false;
	}
	if (params != NULL)
		*params = l != NULL     ? l->params
			  : old != NULL ? old->params
					: newest_params(s);
	if (exps != NULL)
		*exps = l != NULL ? l->exps : old != NULL ? old->exps : newest_exps(s);
	return true;
}

/* Copies the newest whole version to the old versions; drops the oldest one if there are
 * more than the store keeps.  `params` as in copy_params. */
static void
archive_newest(struct fal_store *s, const float *params, const int8_t *exps)
{
	if (s->old_cap == 0)
		return;
	if (s->n_old == s->old_cap)
		rotate_old_versions(s);
	else
		s->n_old++;
	struct old_version *o = &s->old[s->n_old - 1];
	o->version = s->version;
	copy_params(s, o->params, params);
	memcpy(o->exps, exps, s->blocks);
}

void
fal_store_open(struct fal_store *s, const struct fal_store_round *conf)
{
	const int8_t *exps = NULL;
	const bool kept = conf->kind != FAL_KIND_GRAD ||
			  fal_store_find_version(s, conf->version, NULL, &exps);
	assert(kept);
	store_add_round(s, conf, exps);
}

/* ---- collecting ---------------------------------------------------------------- */

int
fal_store_merge(struct fal_store *s, uint64_t round)
{
	struct round *r = round_find_complete(s, round, FAL_KIND_GRAD);
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

/* Returns true if the change is more than FAL_CHANGE_MOST times the largest weight,
 * which counts as at least 1.  *largest is 0 until a block needs the largest weight;
 * most often no block needs the weight, and the search is saved. */
static bool
is_delta_too_large(const struct fal_store *s, const float *delta, uint32_t len,
		   double *largest)
{
	const double needed = (double)fal_max_abs(delta, len) / FAL_CHANGE_MOST;
	if (needed <= 1)
		return false;
	if (*largest < 1) {
		*largest = 1;
		for (uint32_t b = 0; b < s->blocks; b++)
			*largest = fmax(*largest, block_max(s, s->params, b));
	}
	return needed > *largest;
}

/* Reads block b of a round's change of weights; a change that is too large becomes zeros,
 * and counts in *out.  Returns the number of values. */
static uint32_t
read_delta_block(const struct fal_store *s, const struct round *r, uint32_t b,
		 float delta[static FAL_BLOCK], double *largest,
		 struct fal_unstepped *out)
{
	const uint32_t len = fal_block_len(s->conf.n, b);
	fal_sum_mean(r->sum, b, r->exps[b], 1, delta);
	if (is_delta_too_large(s, delta, len, largest)) {
		memset(delta, 0, len * sizeof(*delta));
		out->by = r->largest;
		out->out_of_range++;
	}
	return len;
}

/* n zeros. */
static float *
new_vector(const struct fal_store *s)
{
	return fal_check_alloc(fal_calloc_aligned(s->conf.n, sizeof(float)));
}

/* Makes s->delta ready for additions. */
static void
begin_delta(struct fal_store *s)
{
	if (s->delta == NULL)
		s->delta = new_vector(s);
	else if (!s->has_delta)
		memset(s->delta, 0, s->conf.n * sizeof(float));
	s->has_delta = true;
}

void
fal_store_add_delta(struct fal_store *s, uint64_t round, double weight,
		    struct fal_unstepped *out)
{
	const struct round *r = round_find_complete(s, round, FAL_KIND_DELTA);
	float delta[FAL_BLOCK];
	double largest = 0;
	begin_delta(s);
	for (uint32_t b = 0; b < s->blocks; b++) {
		float *to = s->delta + (size_t)b * FAL_BLOCK;
		uint32_t len = read_delta_block(s, r, b, delta, &largest, out);
		for (uint32_t i = 0; i < len; i++)
			to[i] += (float)weight * delta[i];
	}
	fal_store_drop(s, round);
}

static struct slot *
slot_find_or_add(struct fal_store *s, uint64_t slot)
{
	for (size_t i = 0; i < s->slots.n; i++)
		if (s->slots.v[i].slot == slot)
			return &s->slots.v[i];
	FAL_XGROW(s->slots.v, s->slots.cap, s->slots.n + 1);
	struct slot *u = &s->slots.v[s->slots.n++];
	*u = (struct slot){ .slot = slot,
			    .mean = new_vector(s),
			    .numbers = fal_xcalloc(s->blocks, sizeof(*u->numbers)) };
	return u;
}

uint32_t
fal_store_reweight(struct fal_store *s, uint64_t round, uint64_t slot,
		   struct fal_unstepped *out)
{
	const struct round *r = round_find_complete(s, round, FAL_KIND_DELTA);
	struct slot *u = slot_find_or_add(s, slot);
	float delta[FAL_BLOCK];
	double largest = 0;
	begin_delta(s);
	const uint32_t d = ++u->n_deltas;
	for (uint32_t b = 0; b < s->blocks; b++) {
		size_t first = (size_t)b * FAL_BLOCK;
		uint32_t len = read_delta_block(s, r, b, delta, &largest, out);
		for (uint32_t i = 0; i < len; i++) {
			float by = (delta[i] - u->mean[first + i]) / (float)d;
			u->mean[first + i] += by;
			s->delta[first + i] += by;
		}
	}
	fal_store_drop(s, round);
	return d;
}

void
fal_store_forget_slots(struct fal_store *s, uint64_t first, uint64_t end)
{
	for (size_t i = s->slots.n; i-- > 0;) {
		struct slot *u = &s->slots.v[i];
		if (u->slot < first || u->slot >= end)
			continue;
		free(u->mean);
		free(u->numbers);
		*u = s->slots.v[--s->slots.n];
	}
}

/* ---- steps ----------------------------------------------------------------------- */

/* A step of the optimiser by the gradients `sum`, quantised with `sum_exps`, over
 * `divisor` samples. */
struct store_step {
	const struct fal_sum *sum;
	const int8_t *sum_exps;
	struct fal_optim_step by;
	double divisor;
	float *params, *state; /* of the model that steps */
	int8_t *exps;
	struct fal_optim_bounds *reach;
	/* `state` belongs to a slot, and `reach` does not cover slots */
	bool has_slot_state;
	/* by block, in an early step; NULL: no block is stepped */
	const uint8_t *is_stepped;
	/* The memory of this sum gets the former values of stepped blocks; NULL: former
	 * values are not kept. */
	struct fal_sum *former;
};

/* An upper bound of the values of the mean gradient of block b, from the bound of the
 * sum. */
static double
mean_grad_bound(const struct store_step *step, uint32_t b)
{
	return ldexp((double)fal_sum_bound(step->sum, b),
		     step->sum_exps[b] - FAL_BFP_P + 1) /
	       step->divisor;
}

/* Returns true if the mean gradient of block b is too large for the optimiser.  Most
 * often the bound proves that no value is too large, and the values need not be read. */
static bool
is_out_of_range(const struct fal_store *s, const struct store_step *step, uint32_t b,
		const float *mean)
{
	const double limit = ldexp(1, fal_optim_overflow_exponent(&s->conf.optim));
	return mean_grad_bound(step, b) >= limit &&
	       (double)fal_max_abs(mean, fal_block_len(s->conf.n, b)) >= limit;
}

/* The index of the block's first element in the whole model. */
static uint64_t
first_element(const struct fal_store *s, uint32_t b)
{
	return ((uint64_t)s->conf.first + b) * FAL_BLOCK;
}

/* The largest magnitudes in block b of a model with this state. */
static struct fal_optim_bounds
measure_reach(const struct fal_store *s, const float *params, const float *state,
	      uint32_t b)
{
	const uint32_t slots = fal_optim_slots(&s->conf.optim);
	const float *block_state = state + (size_t)b * FAL_BLOCK * slots;
	const uint32_t n = slots * fal_block_len(s->conf.n, b);
	return (struct fal_optim_bounds){ block_max(s, params, b),
					  (double)fal_max_abs(block_state, n) };
}

/* Steps block b by its mean gradient, and overwrites that gradient.  Returns false,
 * without a change, if parameters or state would not be finite.  Most often a bound of
 * the step proves that they are finite, and the values need not be read. */
static bool
optimise_block(const struct fal_store *s, const struct store_step *step, float scale,
	       uint32_t b, float *mean)
{
	static const double proof_limit = 0x1p100;
	const uint32_t slots = fal_optim_slots(&s->conf.optim);
	const size_t first = (size_t)b * FAL_BLOCK;
	const uint32_t len = fal_block_len(s->conf.n, b), state_n = slots * len;
	/* State is stored block by block: slot k of a block follows slot k-1. */
	float *params = step->params + first, *state = step->state + first * slots;
	float old_params[FAL_BLOCK], old_state[FAL_BLOCK * FAL_OPTIM_SLOTS];
	struct fal_optim_bounds from = step->reach[b];
	if (step->has_slot_state)
		from.state = (double)fal_max_abs(state, state_n);
	struct fal_optim_bounds reach =
		fal_optim_step_bounds(&step->by, &from, mean_grad_bound(step, b));
	const bool proven = reach.params < proof_limit && reach.state < proof_limit;
	if (!proven) {
		memcpy(old_params, params, len * sizeof(float));
		memcpy(old_state, state, state_n * sizeof(float));
	}
	const struct fal_optim_piece piece = { first_element(s, b), len, params, state,
					       mean };
	fal_optim_apply_piece(&s->conf.optim, &step->by, scale, &piece);
	if (!proven)
		reach = measure_reach(s, step->params, step->state, b);
	if (!isfinite(reach.params) || !isfinite(reach.state)) {
		memcpy(params, old_params, len * sizeof(float));
		memcpy(state, old_state, state_n * sizeof(float));
		return false;
	}
	if (step->has_slot_state)
		reach.state = step->reach[b].state;
	step->reach[b] = reach;
	return true;
}

struct squares_job {
	const struct fal_store *s;
	const struct store_step *step;
	double *out;
};

/* Sums the squares of the clipped part of block b's mean gradient: 0 for a block out of
 * range, which does not step. */
static void
square_block(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	const struct squares_job *q = of;
	_Alignas(64) float mean[FAL_BLOCK];
	const struct fal_optim_piece piece = { .first = first_element(q->s, b),
					       .n = fal_block_len(q->s->conf.n, b),
					       .mean_grad = mean };
	fal_sum_mean(q->step->sum, b, q->step->sum_exps[b], q->step->divisor, mean);
	q->out[b] = is_out_of_range(q->s, q->step, b, mean)
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
	struct squares_job of = { s, &step, out };
	if (step.sum != NULL)
		fal_parallel_each(s->conf.parallel, s->blocks, square_block, &of);
	else
		memset(out, 0, s->blocks * sizeof(*out));
}

struct step_job {
	const struct fal_store *s;
	const struct store_step *step;
	float scale;               /* of the mean gradient */
	const struct round *early; /* the ready blocks of this round; NULL: all blocks */
	atomic_uint n_stepped;     /* blocks stepped so far, counted for `early` */
	atomic_uint out_of_range, nonfinite;
};

/* Steps block i, or the i-th ready block, by its scaled mean gradient, unless an early
 * step has stepped that block. */
static void
step_block(void *of, uint32_t i, uint32_t thread)
{
	(void)thread;
	struct step_job *g = of;
	const struct fal_store *s = g->s;
	const struct store_step *step = g->step;
	const struct early_step *m = s->early;
	const uint32_t b = g->early != NULL ? m->ready[i] : i;
	_Alignas(64) float mean[FAL_BLOCK];
	if (step->is_stepped != NULL && step->is_stepped[b])
		return;
	if (g->early != NULL && m->checksums != NULL)
		m->checksums[b] = round_checksum(s, g->early, b);
	fal_sum_mean(step->sum, b, step->sum_exps[b], step->divisor, mean);
	const bool out_of_range = is_out_of_range(s, step, b, mean);
	if (step->former != NULL)
		memcpy(fal_sum_memory(step->former, b),
		       step->params + (size_t)b * FAL_BLOCK,
		       fal_block_len(s->conf.n, b) * sizeof(float));
	if (out_of_range) {
		g->out_of_range++;
	} else if (!optimise_block(s, step, g->scale, b, mean)) {
		g->nonfinite++;
	} else {
		const int8_t needed = fal_sum_needed(step->sum, b);
		step->exps[b] = fal_exp_next(step->exps[b],
					     fal_exp_needed_at(needed, s->conf.bits));
	}
	if (g->early != NULL) {
		m->is_stepped[b] = 1;
		g->n_stepped++;
	}
}

/* Steps all blocks, clipped by the summed squares of the whole model.  Counts the blocks
 * that cannot step. */
static struct fal_unstepped
step_all(const struct fal_store *s, const struct store_step *step, double squares)
{
	const float scale =
		s->conf.optim.clip > 0 ? fal_optim_scale(&s->conf.optim, squares) : 1;
	struct step_job of = { .s = s, .step = step, .scale = scale };
	fal_parallel_each(s->conf.parallel, s->blocks, step_block, &of);
	return (struct fal_unstepped){ .out_of_range = of.out_of_range,
				       .nonfinite = of.nonfinite };
}

const uint8_t *
fal_store_early_blocks(const struct fal_store *s, uint32_t *n)
{
	if (n != NULL)
		*n = s->early->n_stepped;
	return s->early->is_active ? s->early->is_stepped : NULL;
}

const float *
fal_store_average(const struct fal_store *s)
{
	return s->average;
}

/* A step of the newest version; the caller adds the gradients. */
static struct store_step
newest_step(const struct fal_store *s)
{
	return (struct store_step){ .params = s->params,
				    .state = s->state,
				    .exps = s->exps,
				    .reach = s->reach,
				    .is_stepped = fal_store_early_blocks(s, NULL) };
}

/* Adds the collected changes to the weights.  Returns the number of blocks that stay as
 * they are because the result would not be finite. */
static uint32_t
apply_delta(struct fal_store *s)
{
	uint32_t nonfinite = 0;
	float trial[FAL_BLOCK];
	for (uint32_t b = 0; b < s->blocks; b++) {
		const size_t first = (size_t)b * FAL_BLOCK;
		const uint32_t len = fal_block_len(s->conf.n, b);
		for (uint32_t i = 0; i < len; i++)
			trial[i] = s->params[first + i] + s->delta[first + i];
		const double reach = (double)fal_max_abs(trial, len);
		if (!isfinite(reach)) {
			nonfinite++;
			continue;
		}
		memcpy(s->params + first, trial, len * sizeof(float));
		s->reach[b].params = reach;
	}
	return nonfinite;
}

struct average_job {
	const struct fal_store *s;
	const struct fal_optim_part *part;
};

/* Updates block b of the average by the newest version. */
static void
average_block(void *of, uint32_t b, uint32_t thread)
{
	(void)thread;
	const struct average_job *a = of;
	const struct fal_store *s = a->s;
	const size_t first = (size_t)b * FAL_BLOCK;
	fal_optim_average(&s->conf.optim, a->part, s->average + first, s->params + first,
			  fal_block_len(s->conf.n, b));
}

struct fal_unstepped
fal_store_step(struct fal_store *s, const struct fal_store_update *how)
{
	struct early_step *m = s->early;
	struct fal_unstepped unstepped = { .by = s->largest };
	assert(!m->is_active ||
	       (s->sum == m->sum && !s->has_delta && how->lr == m->how.lr &&
		how->divisor == m->how.divisor && how->part.share <= 0));
	archive_newest(s, NULL, newest_exps(s));
	const bool has_grads = s->sum != NULL && how->divisor > 0,
		   changes = has_grads || s->has_delta;
	if (has_grads) {
		struct store_step step = newest_step(s);
		step.sum = s->sum;
		step.sum_exps = s->sum_exps;
		step.divisor = how->divisor;
		step.by =
			fal_optim_part_step(&s->conf.optim, how->lr, &s->had, &how->part);
		step.has_slot_state =
			how->pusher != 0 && fal_optim_by_pusher(&s->conf.optim);
		if (step.has_slot_state && s->slots.n == 0) /* the first slot */
			memset(s->state, 0, state_len(&s->conf) * sizeof(float));
		if (step.has_slot_state)
			step.state = slot_find_or_add(s, how->pusher)->mean;
		const struct fal_unstepped now = step_all(s, &step, how->squares);
		fal_optim_add_step(&s->conf.optim, &how->part, &s->had);
		unstepped.out_of_range =
			now.out_of_range + (m->is_active ? m->out_of_range : 0);
		unstepped.nonfinite = now.nonfinite + (m->is_active ? m->nonfinite : 0);
	}
	if (s->sum != NULL)
		store_recycle_sum(s, s->sum);
	s->sum = NULL;
	if (s->has_delta)
		unstepped.nonfinite += apply_delta(s);
	s->has_delta = m->is_active = false;
	s->version++;
	extend_exp_ranges(s);
	struct average_job of = { s, &how->part };
	if (s->average != NULL && changes)
		fal_parallel_each(s->conf.parallel, s->blocks, average_block, &of);
	return unstepped;
}

/* ---- early steps (struct early_step) ------------------------------------------------
 */

/* Steps the ready blocks. */
static void
step_ready_blocks(struct fal_store *s)
{
	struct early_step *m = s->early;
	const struct round *r = m->n_ready > 0 ? round_find(s, m->how.round) : NULL;
	if (r == NULL)
		return;
	struct store_step step = newest_step(s);
	struct step_job of = { .s = s, .step = &step, .scale = 1, .early = r };
	step.sum = r->sum;
	step.sum_exps = r->exps;
	step.divisor = m->how.divisor;
	step.by = fal_optim_part_step(&s->conf.optim, m->how.lr, &s->had,
				      &(struct fal_optim_part){ 0 });
	step.former = m->sum;
	fal_parallel_each(s->conf.parallel, m->n_ready, step_block, &of);
	m->n_stepped += of.n_stepped;
	m->out_of_range += of.out_of_range;
	m->nonfinite += of.nonfinite;
	m->n_ready = 0;
}

int
fal_store_step_early(struct fal_store *s, const struct fal_store_step_early *how)
{
	const struct round *r = round_find(s, how->round);
	struct early_step *m = s->early;
	if (m->is_active || r == NULL || r->conf.kind != FAL_KIND_GRAD)
		return 0;
	/* Each block must step by its own gradients alone. */
	if (s->sum != NULL || s->has_delta || s->conf.optim.clip > 0 ||
	    s->average != NULL || !(how->divisor > 0) || !isfinite(how->lr))
		return 0;
	memcpy(m->exps, s->exps, s->blocks);
	memset(m->is_stepped, 0, s->blocks);
	m->is_active = true;
	m->has_params = false;
	m->how = *how;
	m->sum = r->sum;
	m->n_stepped = m->out_of_range = m->nonfinite = m->n_ready = 0;
	for (uint32_t b = 0; b < s->blocks; b++)
		if (r->tasks_counted[b] == r->conf.tasks)
			round_queue_early(s, r, b);
	step_ready_blocks(s);
	return 1;
}

void
fal_store_step_ready(struct fal_store *s)
{
	if (s->early->is_active)
		step_ready_blocks(s);
}

/* ---- branches --------------------------------------------------------------------- */

bool
fal_store_has_branch(const struct fal_store *s, uint32_t branch)
{
	return branch_find(s, branch) != NULL;
}

void
fal_store_forget_branches(struct fal_store *s)
{
	for (size_t i = 0; i < s->branches.n; i++) {
		struct branch *l = &s->branches.v[i];
		free(l->params);
		free(l->base);
		free(l->state);
		free(l->exps);
		free(l->reach);
		free(l->numbers);
	}
	s->branches.n = 0;
}

static struct branch *
branch_add(struct fal_store *s)
{
	FAL_XGROW(s->branches.v, s->branches.cap, s->branches.n + 1);
	struct branch *l = &s->branches.v[s->branches.n++];
	*l = (struct branch){ .params = new_vector(s),
			      .base = new_vector(s),
			      .state = fal_check_alloc(
				      fal_calloc_aligned(state_len(&s->conf),
							 sizeof(float))),
			      .exps = fal_xcalloc(s->blocks, 1),
			      .reach = fal_xcalloc(s->blocks, sizeof(*l->reach)),
			      .numbers = fal_xcalloc(s->blocks, sizeof(*l->numbers)) };
	memcpy(l->exps, s->exps, s->blocks);
	return l;
}

void
fal_store_set_branch(struct fal_store *s, uint64_t version)
{
	struct branch *l = branch_find(s, fal_branch_of(version));
	if (l == NULL)
		l = branch_add(s);
	l->version = version;
	memcpy(l->params, s->params, s->conf.n * sizeof(float));
	memcpy(l->base, s->params, s->conf.n * sizeof(float));
	for (uint32_t b = 0; b < s->blocks; b++)
		l->reach[b].params = s->reach[b].params;
}

struct fal_unstepped
fal_store_step_branch(struct fal_store *s, uint64_t round,
		      const struct fal_store_step_branch *step)
{
	const struct round *r = round_find_complete(s, round, FAL_KIND_GRAD);
	struct branch *l = branch_find(s, fal_branch_of(step->version));
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
	struct fal_unstepped unstepped = step_all(s, &by, step->squares);
	unstepped.by = r->largest;
	l->version = step->version;
	fal_store_drop(s, round);
	return unstepped;
}

void
fal_store_collect_branch(struct fal_store *s, uint32_t branch, double weight)
{
	const struct branch *l = branch_find(s, branch);
	assert(l != NULL);
	begin_delta(s);
	for (size_t i = 0; i < s->conf.n; i++)
		s->delta[i] += (float)weight * (l->params[i] - l->base[i]);
}

void
fal_store_outer_step(struct fal_store *s, double rate, double momentum)
{
	const struct slot *v = slot_find_or_add(s, 0);
	const float m = (float)momentum, lr = (float)rate;
	begin_delta(s);
	for (size_t i = 0; i < s->conf.n; i++) {
		v->mean[i] = m * v->mean[i] + s->delta[i];
		s->delta[i] = lr * (s->delta[i] + m * v->mean[i]);
	}
}

/* ---- versions made elsewhere --------------------------------------------------------
 */

int
fal_store_install(struct fal_store *s, uint64_t version, const float *params,
		  const int8_t *exps)
{
	assert(!s->early->is_active);
	if (version < s->version)
		return FAL_EINVAL;
	if (version > s->version)
		archive_newest(s, s->params, s->exps);
	s->version = version;
	memcpy(s->params, params, s->conf.n * sizeof(*params));
	memcpy(s->exps, exps, s->blocks);
	extend_exp_ranges(s);
	for (uint32_t b = 0; b < s->blocks; b++)
		s->reach[b] = measure_reach(s, s->params, s->state, b);
	return FAL_OK;
}

/* ---- images ----------------------------------------------------------------------- */

/* Appends the numbers of a branch or a slot, which `array` repeats for each block. */
static void
image_add_numbers(const struct fal_store *s, struct fal_image *m, const char *name,
		  struct image_numbers *array, struct image_numbers numbers)
{
	for (uint32_t b = 0; b < s->blocks; b++)
		array[b] = numbers;
	fal_image_add(m, name, false, array, (size_t)s->blocks * sizeof(*array));
}

static void
image_add_branch(const struct fal_store *s, struct fal_image *m, uint32_t i)
{
	const struct branch *l = &s->branches.v[i];
	const size_t values = s->conf.n * sizeof(float);
	char name[FAL_IMAGE_NAME];
	snprintf(name, sizeof(name), "line.%u", i);
	image_add_numbers(s, m, name, l->numbers,
			  (struct image_numbers){ l->version, l->steps });
	snprintf(name, sizeof(name), "line.%u.params", i);
	fal_image_add(m, name, true, l->params, values);
	snprintf(name, sizeof(name), "line.%u.taken", i);
	fal_image_add(m, name, true, l->base, values);
	snprintf(name, sizeof(name), "line.%u.exponents", i);
	fal_image_add(m, name, false, l->exps, s->blocks);
	snprintf(name, sizeof(name), "line.%u.optimizer", i);
	if (state_len(&s->conf) > 0)
		fal_image_add(m, name, true, l->state,
			      state_len(&s->conf) * sizeof(float));
}

int
fal_store_image(struct fal_store *s, uint64_t from, struct fal_image *m)
{
	const size_t values = s->conf.n * sizeof(float),
		     state = state_len(&s->conf) * sizeof(float);
	char name[FAL_IMAGE_NAME];
	if (s->early->is_active)
		return FAL_ESTATE;
	/* The versions from `from` on that precede the newest one without a gap. */
	uint32_t olds = 0;
	while (olds < s->n_old && s->version - olds > from &&
	       s->old[s->n_old - 1 - olds].version + olds + 1 == s->version)
		olds++;
	m->is = (struct fal_image_head){ .version = s->version,
					 .steps = s->had.steps,
					 .olds = olds,
					 .lines = (uint32_t)s->branches.n,
					 .slots = (uint32_t)s->slots.n };
	fal_image_add(m, "params", true, s->params, values);
	fal_image_add(m, "exponents", false, s->exps, s->blocks);
	fal_image_add(m, "ranges", false, s->exp_range,
		      s->blocks * sizeof(*s->exp_range));
	if (state > 0)
		fal_image_add(m, "optimizer", true, s->state, state);
	for (uint32_t b = 0; b < s->blocks && s->products != NULL; b++)
		s->products[b] = (struct image_products){ s->had.beta1, s->had.beta2 };
	if (s->products != NULL)
		fal_image_add(m, "products", false, s->products,
			      s->blocks * sizeof(*s->products));
	if (s->average != NULL)
		fal_image_add(m, "average", true, s->average, values);
	for (uint32_t i = 1; i <= olds; i++) { /* the newest of them first */
		const struct old_version *o = &s->old[s->n_old - i];
		snprintf(name, sizeof(name), "params.%u", i);
		fal_image_add(m, name, true, o->params, values);
		snprintf(name, sizeof(name), "exponents.%u", i);
		fal_image_add(m, name, false, o->exps, s->blocks);
	}
	for (uint32_t i = 0; i < s->branches.n; i++)
		image_add_branch(s, m, i);
	for (uint32_t i = 0; i < s->slots.n; i++) {
		const struct slot *u = &s->slots.v[i];
		snprintf(name, sizeof(name), "slot.%u", i);
		image_add_numbers(s, m, name, u->numbers,
				  (struct image_numbers){ u->slot, u->n_deltas });
		snprintf(name, sizeof(name), "slot.%u.mean", i);
		fal_image_add(m, name, true, u->mean, values);
	}
	return FAL_OK;
}

int
fal_store_restore_begin(struct fal_store *s, const struct fal_image_head *is)
{
	assert(s->version == 0 && s->open.n == 0);
	if (is->olds > is->version || is->olds >= FAL_KEPT_MAX ||
	    fal_branch_of(is->version) != 0 || is->lines > FAL_IMAGE_OTHERS ||
	    is->slots > FAL_IMAGE_OTHERS)
		return FAL_EINVAL;
	fal_store_set_retained(s, is->olds + 1);
	s->version = is->version;
	s->had.steps = is->steps;
	s->n_old = is->olds;
	for (uint32_t i = 0; i < s->n_old; i++)
		s->old[i].version = s->version - s->n_old + i;
	/* The numbers of branches and slots follow from their arrays (restore_end). */
	for (uint32_t i = 0; i < is->lines; i++)
		branch_add(s);
	for (uint32_t i = 0; i < is->slots; i++)
		slot_find_or_add(s, i);
	return FAL_OK;
}

void
fal_store_restore_end(struct fal_store *s)
{
	for (uint32_t b = 0; b < s->blocks; b++)
		s->reach[b] = measure_reach(s, s->params, s->state, b);
	if (s->products != NULL) {
		s->had.beta1 = s->products[0].beta1;
		s->had.beta2 = s->products[0].beta2;
	}
	for (size_t i = 0; i < s->branches.n; i++) {
		struct branch *l = &s->branches.v[i];
		l->version = l->numbers[0].number;
		l->steps = l->numbers[0].count;
		for (uint32_t b = 0; b < s->blocks; b++)
			l->reach[b] = measure_reach(s, l->params, l->state, b);
	}
	for (size_t i = 0; i < s->slots.n; i++) {
		struct slot *u = &s->slots.v[i];
		u->slot = u->numbers[0].number;
		u->n_deltas = (uint32_t)u->numbers[0].count;
	}
}
