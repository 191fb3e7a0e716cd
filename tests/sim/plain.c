/* Plain numerics. */
#include "plain.h"

#include "base/rng.h"
#include "base/vector.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum { BITS = 24, FIRST = -12, LEAST = -100, MOST = 100, NONE = INT_MIN };

static uint32_t
blocks_of(size_t n)
{
	return (uint32_t)((n + PLAIN_BLOCK - 1) / PLAIN_BLOCK);
}

static size_t
end_of(size_t n, uint32_t b)
{
	const size_t end = ((size_t)b + 1) * PLAIN_BLOCK;
	return end < n ? end : n;
}

static void *
zeros(size_t n, size_t size)
{
	void *p = calloc(n, size);
	assert(p != NULL);
	return p;
}

struct plain
plain_new(size_t n, const float *w)
{
	struct plain p = { .n = n,
			   .w = zeros(n, sizeof(float)),
			   .m = zeros(n, sizeof(float)),
			   .v = zeros(n, sizeof(float)),
			   .b1 = 1,
			   .b2 = 1,
			   .e = zeros(blocks_of(n), sizeof(int)) };
	for (uint32_t b = 0; b < blocks_of(n); b++)
		p.e[b] = FIRST;
	if (w != NULL)
		memcpy(p.w, w, n * sizeof(float));
	return p;
}

void
plain_copy(struct plain *to, const struct plain *from)
{
	memcpy(to->w, from->w, to->n * sizeof(float));
	memcpy(to->m, from->m, to->n * sizeof(float));
	memcpy(to->v, from->v, to->n * sizeof(float));
	to->steps = from->steps;
	to->b1 = from->b1;
	to->b2 = from->b2;
	memcpy(to->e, from->e, blocks_of(to->n) * sizeof(int));
}

void
plain_free(struct plain *p)
{
	free(p->w);
	free(p->m);
	free(p->v);
	free(p->e);
	*p = (struct plain){ 0 };
}

struct plain_sum
plain_sum_new(size_t n)
{
	struct plain_sum s = { .n = n,
			       .v = zeros(n, sizeof(__int128)),
			       .e = zeros(blocks_of(n), sizeof(int)),
			       .needed = zeros(blocks_of(n), sizeof(int)) };
	plain_sum_clear(&s);
	return s;
}

void
plain_sum_clear(struct plain_sum *s)
{
	memset(s->v, 0, s->n * sizeof(__int128));
	for (uint32_t b = 0; b < blocks_of(s->n); b++)
		s->e[b] = s->needed[b] = NONE;
}

void
plain_sum_free(struct plain_sum *s)
{
	free(s->v);
	free(s->e);
	free(s->needed);
}

/* max|g|, by as many maxima as go side by side. */
FAL_VECTOR static float
largest(const float *g, size_t n)
{
	float side[FAL_LANES] = { 0 }, most = 0;
	for (size_t i = 0; i + FAL_LANES <= n; i += FAL_LANES)
		for (size_t k = 0; k < FAL_LANES; k++)
			side[k] = fabsf(g[i + k]) > side[k] ? fabsf(g[i + k]) : side[k];
	for (size_t i = n - n % FAL_LANES; i < n; i++)
		side[0] = fabsf(g[i]) > side[0] ? fabsf(g[i]) : side[0];
	for (size_t k = 0; k < FAL_LANES; k++)
		most = side[k] > most ? side[k] : most;
	return most;
}

/* The least exponent whose power of 2 no value exceeds; NONE: all are zero. */
static int
needed_by(const float *g, size_t from, size_t to)
{
	const float most = largest(g + from, to - from);
	int e;
	const bool is_power = frexpf(most, &e) == 0.5f;
	e -= is_power;
	return most > 0 ? (e < LEAST ? LEAST : e > MOST ? MOST : e) : NONE;
}

/* In quanta, half to even.  A double holds the product as it is. */
static int64_t
quantised(float g, double quanta)
{
	return llrint((double)g * quanta);
}

/* How many make 1, with the exponent e. */
static double
quanta(int e)
{
	return ldexp(1, BITS - 1 - e);
}

/* The four words of a block of numbers; and the first two. */
static uint64_t
drawn(uint64_t seed, const uint32_t ctr[static 4], uint32_t word[static 4])
{
	const uint32_t key[2] = { (uint32_t)seed, (uint32_t)(seed >> 32) };
	fal_philox(ctr, key, word);
	return word[0] | (uint64_t)word[1] << 32;
}

/* Down, or up where what is cut off is more than `by`. */
static float
dithered(float g, double unit, double by)
{
	const double t = (double)g * unit, low = floor(t);
	return fabs(t) < 8388608 ? (float)((low + ((float)(t - low) > by)) / unit) : g;
}

void
plain_dither(float *g, size_t n, const int *e, unsigned bits, uint64_t seed,
	     uint64_t clock, uint32_t task)
{
	enum { EACH = 512 }; /* values of a block that are that far apart share a draw */
	const uint32_t of[4] = { (uint32_t)clock, (uint32_t)(clock >> 32), task, 9 };
	uint32_t word[4];
	const uint64_t own = drawn(seed, of, word);
	for (uint32_t b = 0; b < blocks_of(n) && bits != 0; b++) {
		const size_t first = (size_t)b * PLAIN_BLOCK, end = end_of(n, b);
		const double unit = quanta(e[b]);
		for (uint32_t at = 0; at < EACH && first + at < end; at++) {
			const uint32_t ctr[4] = { at, b, 0, 10 };
			drawn(own, ctr, word);
			for (size_t i = first + at, k = 0; i < end; i += EACH, k++) {
				const uint32_t r = word[k / 2] >> (k % 2 * 16) & 0xffff;
				g[i] = dithered(g[i], unit, (r + 0.5) / 65536);
			}
		}
	}
}

void
plain_sum_add(struct plain_sum *s, const float *g, const int *e, uint32_t from,
	      uint32_t to)
{
	for (uint32_t b = from; b < to; b++) {
		const size_t first = (size_t)b * PLAIN_BLOCK, end = end_of(s->n, b);
		const int was = s->e[b] == NONE ? e[b] : s->e[b];
		const int is = was < e[b] ? was : e[b];
		const double unit = quanta(e[b]);
		for (size_t i = first; i < end && is < was; i++)
			s->v[i] *= (__int128)1 << (was - is);
		for (size_t i = first; i < end && e[b] == is; i++)
			s->v[i] += quantised(g[i], unit);
		for (size_t i = first; i < end && e[b] > is; i++)
			s->v[i] += quantised(g[i], unit) * ((__int128)1 << (e[b] - is));
		s->e[b] = is;
		plain_sum_need(s, b, needed_by(g, first, end));
	}
}

void
plain_sum_need(struct plain_sum *s, uint32_t block, int needed)
{
	s->needed[block] = needed > s->needed[block] ? needed : s->needed[block];
}

void
plain_sum_flip(struct plain_sum *s, const float *g, const int *e,
	       const struct toy_flip *flip)
{
	const uint32_t b = (uint32_t)(flip->at / PLAIN_BLOCK);
	const double unit = quanta(e[b]);
	const int64_t v = quantised(g[flip->at], unit);
	int64_t most = 0;
	for (size_t i = (size_t)b * PLAIN_BLOCK; i < end_of(s->n, b); i++) {
		const int64_t is = llabs(quantised(g[i], unit));
		most = is > most ? is : most;
	}
	s->v[flip->at] += (__int128)(toy_flipped(v, flip->bit, most) - v) *
			  ((__int128)1 << (e[b] - s->e[b]));
}

/* What the numbers of a step are. */
struct rates {
	float lr, root, keep, pull, share, rest, b1, c1, b2, c2;
	double decay;
};

/* By squaring, as optim.h has it: the order of products tells in the last bit. */
static double
raised(double b, uint64_t n)
{
	double p = 1;
	for (; n > 0; n /= 2) {
		p = n % 2 ? p * b : p;
		b *= b;
	}
	return p;
}

/* Counts the step, and returns 1 less the product of all betas. */
static double
unbiased(double beta, double b, uint64_t steps, double *parts, bool whole)
{
	if (whole)
		return 1 - *parts * raised(beta, steps);
	const double product = *parts * raised(beta, steps) * b;
	*parts *= b;
	return 1 - product;
}

static struct rates
rates_of(struct plain *p, const struct fal_optim *o, const struct plain_by *by)
{
	const bool whole = by->share == 1;
	const double rate = (double)by->lr * by->share;
	const bool moves = o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV;
	double b1 = o->beta1, b2 = o->beta2;
	struct rates r = { .lr = moves ? by->lr : (float)rate,
			   .keep = 1,
			   .pull = o->weight_decay,
			   .share = (float)by->share,
			   .rest = (float)(1 - by->in) };
	if (o->decoupled) {
		r.decay = rate * (double)o->weight_decay;
		r.keep = (float)(1 - r.decay);
		r.pull = 0;
	}
	if (!whole) {
		b1 = 1 - by->share * (1 - b1);
		b2 = 1 - by->share * (1 - b2);
	}
	b1 = b1 > 0 ? b1 : 0;
	b2 = b2 > 0 ? b2 : 0;
	p->steps += whole;
	const double m = unbiased(o->beta1, b1, p->steps, &p->b1, whole);
	const double v = unbiased(o->beta2, b2, p->steps, &p->b2, whole);
	if (o->kind != FAL_ADAMW)
		return r;
	r.lr = (float)(rate / m);
	r.root = (float)(1 / sqrt(v));
	r.b1 = (float)b1;
	r.c1 = (float)(1 - b1);
	r.b2 = (float)b2;
	r.c2 = (float)(1 - b2);
	return r;
}

static float
no_denormal(float x)
{
	return fpclassify(x) == FP_SUBNORMAL ? 0 : x;
}

/* As optim.h says it, each operation rounded to float. */
static void
step_one(const struct fal_optim *o, const struct rates *r, float g, float *w, float *m,
	 float *v)
{
	const float pulled = r->pull * *w, d = g + pulled;
	float by = r->lr * d;
	if (o->kind == FAL_MOMENTUM || o->kind == FAL_NESTEROV) {
		const float part = r->share * d;
		const float took = o->momentum * *m;
		*m = took + part;
		const float ahead = o->momentum * *m;
		const float along = o->kind == FAL_NESTEROV ? part + ahead : *m;
		by = r->lr * along;
	} else if (o->kind == FAL_ADAGRAD) {
		const float square = d * d;
		const float part = r->share * square, rest = r->rest * square;
		*m = no_denormal(*m + part);
		const float all = *m + rest;
		const float root = sqrtf(all), under = root + o->eps;
		by = by / under;
	} else if (o->kind == FAL_ADAMW) {
		const float m_took = r->b1 * *m, m_new = r->c1 * d;
		const float v_took = r->b2 * *v, part = r->c2 * d, v_new = part * d;
		*m = no_denormal(m_took + m_new);
		*v = no_denormal(v_took + v_new);
		const float root = sqrtf(*v), scaled = r->root * root;
		const float under = scaled + o->eps, over = r->lr * *m;
		by = over / under;
	}
	const float kept = r->keep * *w;
	*w = kept - by;
}

/* The range that it is in, or NULL. */
static const struct fal_range *
range_of(const struct fal_optim *o, size_t i)
{
	for (uint32_t k = 0; k < o->ranges; k++)
		if (i >= o->range[k].first && i - o->range[k].first < o->range[k].count)
			return &o->range[k];
	return NULL;
}

/* Is it a weight, and not frozen? */
static bool
is_stepped(const struct fal_range *in)
{
	return in == NULL || in->rule == FAL_RANGE_SCALED;
}

/* The rates of what is in this range, or in none. */
static struct rates
rates_in(const struct rates *r, const struct fal_range *in)
{
	struct rates its = *r;
	if (in == NULL)
		return its;
	its.lr = r->lr * in->lr_scale;
	its.pull = r->pull * in->decay_scale;
	its.keep = (float)(1 - r->decay * (double)in->lr_scale * (double)in->decay_scale);
	return its;
}

/* The mean gradient of one weight, or the mean of what came for it. */
static float
mean_of(__int128 v, double unit, double divisor)
{
	const bool fits = v == (int64_t)v; /* which is converted sooner, and as well */
	const double sum = (fits ? (double)(int64_t)v : (double)v) / unit;
	return (float)(sum / divisor);
}

/* Quanta of the block that make 1. */
static double
unit_of(const struct plain_sum *s, uint32_t b)
{
	return s->e[b] != NONE ? quanta(s->e[b]) : 1;
}

static float
scale_of(const struct plain_sum *s, const struct fal_optim *o, double divisor)
{
	double all = 0;
	for (uint32_t b = 0; b < blocks_of(s->n) && o->clip > 0; b++) {
		const double unit = unit_of(s, b);
		double part[8] = { 0 }, block = 0;
		for (size_t i = (size_t)b * PLAIN_BLOCK; i < end_of(s->n, b); i++) {
			const double g = (double)mean_of(s->v[i], unit, divisor);
			part[i % 8] += is_stepped(range_of(o, i)) ? g * g : 0;
		}
		for (size_t k = 0; k < 8; k++)
			block += part[k];
		all += block;
	}
	const double scale = o->clip > 0 ? o->clip / (sqrt(all) + 1e-6) : 1;
	return scale < 1 ? (float)scale : 1;
}

static int
next_exponent(int e, int needed, unsigned bits)
{
	if (needed == NONE)
		return e;
	const int wanted = needed + (bits != 0 ? BITS - (int)bits : 0);
	const int next = wanted < e - 2 ? e - 2 : wanted > e + 8 ? e + 8 : wanted;
	return next < LEAST ? LEAST : next > MOST ? MOST : next;
}

void
plain_step(struct plain *p, const struct fal_optim *o, const struct plain_sum *s,
	   const struct plain_by *by)
{
	const struct rates r = rates_of(p, o, by);
	const float scale = scale_of(s, o, by->divisor);
	const double take = by->share * o->buffer_momentum;
	for (uint32_t b = 0; b < blocks_of(p->n); b++) {
		const double unit = unit_of(s, b);
		for (size_t i = (size_t)b * PLAIN_BLOCK; i < end_of(p->n, b); i++) {
			const struct fal_range *in = range_of(o, i);
			const float mean = mean_of(s->v[i], unit, by->divisor);
			const struct rates its = rates_in(&r, in);
			if (is_stepped(in))
				step_one(o, &its, mean * scale, &p->w[i], &p->m[i],
					 &p->v[i]);
			else if (in->rule == FAL_RANGE_EMA)
				p->w[i] =
					(float)(1 - take) * p->w[i] + (float)take * mean;
		}
		p->e[b] = next_exponent(p->e[b], s->needed[b], by->bits);
	}
}

void
plain_travel(float *change, size_t n)
{
	for (uint32_t b = 0; b < blocks_of(n); b++) {
		const size_t first = (size_t)b * PLAIN_BLOCK, end = end_of(n, b);
		const int e = needed_by(change, first, end);
		for (size_t i = first; i < end && e != NONE; i++)
			change[i] = (float)((double)quantised(change[i], quanta(e)) /
					    quanta(e));
	}
}
