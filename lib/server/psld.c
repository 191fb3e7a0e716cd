/* Measurements of each clock, and the numbers of blocks that follow. */
#include "server/psld.h"

#include "base/mem.h"
#include "base/quantile.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	MEMORY = 40,   /* measurements that are kept, while nothing changes */
	NEWEST = 3,    /* of these, whose median tells a change */
	RECENT = 6,    /* clocks in which what a shard was given shows */
	CALM = 10,     /* clocks without a move before a trial */
	HORIZON = 300, /* clocks for which a shard has no room, or is known */
	HALVINGS = 100 /* beyond what a double can tell apart */
};

static const double twice = 2;         /* a shard has changed: by this factor */
static const double step = 0.2;        /* part of the blocks that may move at a time */
static const double gain_least = 0.02; /* of a clock */
/* Three standard errors of a median, in spreads: 1.25 · 1.48 · MAD / √n is one. */
static const double errors = 6;
static const double never = 1e9, at_once = 1e-12; /* seconds: as good as */
static const double rounding = 1e-9;              /* of a product that is divided again */

/* The last measurements, the newest last. */
struct series {
	double v[MEMORY];
	uint32_t n;
};

struct fal_psld {
	struct shard {
		uint32_t count;     /* blocks */
		struct series each; /* seconds of one; */
		double spread;      /* of these, before it changed; 0: not known */
		double waited;      /* in the last clock */
		/* Until these clocks: what it was given shows; it has no room for more
		 * than it `had` before; it is known, though it has none. */
		uint64_t shows, full, known;
		uint32_t had;
	} shard[FAL_PSLD_SHARDS];
	uint32_t shards, blocks;
	struct series clock; /* seconds, of those under this map in which nothing moved */
	bool moves;          /* the coming clock moves blocks */
	uint64_t clocks;
	struct shard *newcomer; /* that is tried, and not measured yet; NULL: none is */
	uint32_t kept[FAL_PSLD_SHARDS]; /* blocks before that, */
	double was;                     /* and a clock */
	double seconds, spent;          /* of the job; in trials */
};

/* ---- measurements ------------------------------------------------------------------ */

static void
series_add(struct series *s, double v)
{
	if (s->n == MEMORY)
		memmove(s->v, s->v + 1, --s->n * sizeof(*s->v));
	s->v[s->n++] = v;
}

static double
median(const double *v, uint32_t n)
{
	double sorted[MEMORY];
	memcpy(sorted, v, n * sizeof(*v));
	return fal_quantile(sorted, n, 0.5);
}

/* The median of what they are off by, as a part of their median. */
static double
series_spread(const struct series *s)
{
	double off[MEMORY] = { 0 };
	const double mid = fmax(median(s->v, s->n), at_once);
	for (uint32_t i = 0; i < s->n; i++)
		off[i] = fabs(s->v[i] - mid);
	return median(off, s->n) / mid;
}

static void
measure(struct fal_psld *p, struct shard *s, const struct fal_psld_seen *seen)
{
	struct series *e = &s->each;
	s->waited = seen->waited > 0 ? seen->waited : 0;
	if (s->count == 0 && s->known <= p->clocks)
		e->n = 0;
	if (s->count == 0 || !(seen->took >= 0))
		return;
	series_add(e, fmin(fmax(seen->took, s->waited), never) / s->count);
	if (e->n < 2 * NEWEST)
		return;
	const uint32_t old = e->n - NEWEST;
	const double was = median(e->v, old), is = median(e->v + old, NEWEST);
	if (is <= twice * was && was <= twice * is) {
		s->spread = series_spread(e);
		return;
	}
	memmove(e->v, e->v + old, NEWEST * sizeof(*e->v));
	e->n = NEWEST;
	if (is > was && s->shows > p->clocks)
		s->full = p->clocks + HORIZON;
}

/* ---- numbers of blocks ------------------------------------------------------------- */

/* Blocks that the shard does in `t` seconds. */
static uint32_t
room(double cost, uint32_t most, double t)
{
	return (uint32_t)fmin(floor(t / cost), most);
}

double
fal_psld_level(const double *cost, const uint32_t *most, uint32_t n, uint32_t blocks,
	       uint32_t *to)
{
	double low = 0, high = 0, t;
	uint64_t sum = 0;
	for (uint32_t i = 0; i < n; i++)
		if (isfinite(cost[i]))
			high = fmax(high, blocks * cost[i] * (1 + rounding));
	for (int k = 0; k <= HALVINGS + 1; k++) {
		t = k == 0 || k > HALVINGS ? high : low + (high - low) / 2;
		sum = 0;
		for (uint32_t i = 0; i < n; i++)
			sum += to[i] = room(cost[i], most != NULL ? most[i] : blocks, t);
		if (k == 0 && sum < blocks)
			return (double)INFINITY;
		*(sum >= blocks ? &high : &low) = t;
	}
	/* The last blocks are too many: the shards that are done last give them up. */
	for (; sum > blocks; sum--) {
		uint32_t last = 0;
		for (uint32_t i = 1; i < n; i++)
			if (to[i] > 0 &&
			    (to[last] == 0 || to[i] * cost[i] > to[last] * cost[last]))
				last = i;
		to[last]--;
	}
	return high;
}

/* A shard has one run of blocks, in the order of the shards, and whatever is between two
 * of them moves along: so ends of runs come nearer to those by `to`, all by the same
 * part, which is all of the way unless too much would move. */
static void
limit_step(const struct fal_psld *p, uint32_t *to)
{
	const double most = fmax(step * p->blocks - p->shards, 1);
	double end = 0, want = 0, moves = 0, last = 0;
	for (uint32_t i = 0; i < p->shards; i++) {
		end += p->shard[i].count;
		want += to[i];
		moves += fabs(want - end);
	}
	const double part = most < moves ? most / moves : 1;
	end = want = 0;
	for (uint32_t i = 0; i < p->shards; i++) {
		end += p->shard[i].count;
		want += to[i];
		/* Rounded away from where it is, so that it gets there. */
		const double at =
			end + copysign(ceil(part * fabs(want - end)), want - end);
		to[i] = (uint32_t)(at - last);
		last = at;
	}
}

static void
set_counts(struct fal_psld *p, const uint32_t *to)
{
	for (uint32_t i = 0; i < p->shards; i++) {
		struct shard *s = &p->shard[i];
		if (to[i] > s->count) {
			s->had = s->shows > p->clocks ? s->had : s->count;
			s->shows = p->clocks + RECENT;
		}
		if (to[i] == 0 && s->count > 0)
			s->known = p->clocks + HORIZON;
		s->count = to[i];
	}
	p->clock.n = 0;
	p->moves = true;
}

/* A quarter of a mean share. */
static uint32_t
probe(const struct fal_psld *p)
{
	uint32_t busy = 0;
	for (uint32_t i = 0; i < p->shards; i++)
		busy += p->shard[i].count > 0;
	assert(busy > 0); /* somebody has the blocks */
	return 1 + p->blocks / (4 * busy);
}

/* Seconds of a block on each shard (INFINITY: a shard without blocks that was not
 * measured), and how many blocks it may have.  False: too little is known of a shard that
 * has some. */
static bool
costs(const struct fal_psld *p, double *cost, uint32_t *most)
{
	for (uint32_t i = 0; i < p->shards; i++) {
		const struct shard *s = &p->shard[i];
		const bool known = s->each.n >= NEWEST;
		if (s->count > 0 && !known)
			return false;
		cost[i] = known ? fmax(median(s->each.v, s->each.n), at_once)
				: (double)INFINITY;
		most[i] = s->full > p->clocks ? s->had
			  : s->count > 0      ? 2 * s->count
					      : probe(p);
	}
	return true;
}

static enum fal_psld_act
exploit(struct fal_psld *p, double seconds)
{
	double cost[FAL_PSLD_SHARDS], now = 0, waited = 0, noise = gain_least * seconds;
	uint32_t most[FAL_PSLD_SHARDS], to[FAL_PSLD_SHARDS];
	if (!costs(p, cost, most))
		return FAL_PSLD_STAY;
	for (uint32_t i = 0; i < p->shards; i++) {
		const struct shard *s = &p->shard[i];
		if (s->count == 0)
			continue;
		now = fmax(now, s->count * cost[i]);
		waited = fmax(waited, s->waited);
		/* Right after a change some are of a clock in which it came. */
		const double spread = s->each.n < 2 * NEWEST && s->spread > 0
					      ? s->spread
					      : series_spread(&s->each);
		noise = fmax(noise,
			     errors * spread * s->count * cost[i] / sqrt(s->each.n));
	}
	double best = fal_psld_level(cost, most, p->shards, p->blocks, to);
	if (isinf(best)) /* no room: then by what they take */
		best = fal_psld_level(cost, NULL, p->shards, p->blocks, to);
	if (!(fmin(now - best, waited) > noise))
		return FAL_PSLD_STAY;
	limit_step(p, to);
	set_counts(p, to);
	return FAL_PSLD_PLACE;
}

/* ---- trials ------------------------------------------------------------------------ */

/* A shard that stands by, and is not known, gets some blocks of all others. */
static enum fal_psld_act
explore(struct fal_psld *p)
{
	double cost[FAL_PSLD_SHARDS];
	uint32_t most[FAL_PSLD_SHARDS], to[FAL_PSLD_SHARDS], i = 0;
	const uint32_t gets = probe(p);
	while (i < p->shards && (p->shard[i].count > 0 || p->shard[i].each.n > 0))
		i++;
	p->was = median(p->clock.v, p->clock.n);
	if (i == p->shards || p->clock.n < CALM || gets >= p->blocks ||
	    p->spent + p->was > FAL_PSLD_BUDGET * p->seconds || !costs(p, cost, most))
		return FAL_PSLD_STAY;
	fal_psld_level(cost, NULL, p->shards, p->blocks - gets, to);
	to[i] = gets;
	p->newcomer = &p->shard[i];
	for (i = 0; i < p->shards; i++)
		p->kept[i] = p->shard[i].count;
	set_counts(p, to);
	return FAL_PSLD_OUT;
}

/* The new shard is to be measured, unless that takes too long: then all is as before, and
 * the shard is known as one that is of no use. */
static enum fal_psld_act
judge(struct fal_psld *p, double seconds)
{
	struct shard *s = p->newcomer;
	p->spent += fmax(seconds - p->was, 0);
	if (p->spent <= FAL_PSLD_BUDGET * p->seconds && s->shows > p->clocks)
		return FAL_PSLD_STAY;
	s->each.n = 0;
	while (s->each.n < NEWEST)
		series_add(&s->each, never);
	p->newcomer = NULL;
	set_counts(p, p->kept);
	return FAL_PSLD_BACK;
}

/* ---- all of it --------------------------------------------------------------------- */

enum fal_psld_act
fal_psld_clock(struct fal_psld *p, double seconds, const struct fal_psld_seen *seen)
{
	p->seconds += seconds;
	p->clocks++;
	for (uint32_t i = 0; i < p->shards; i++)
		measure(p, &p->shard[i], &seen[i]);
	if (!p->moves)
		series_add(&p->clock, seconds);
	p->moves = false;
	if (p->newcomer != NULL && p->newcomer->each.n < NEWEST)
		return judge(p, seconds);
	p->newcomer = NULL;
	const enum fal_psld_act act = exploit(p, seconds);
	return act == FAL_PSLD_STAY ? explore(p) : act;
}

struct fal_psld *
fal_psld_new(const uint32_t *count, uint32_t shards)
{
	struct fal_psld *p = fal_xcalloc(1, sizeof(*p));
	p->shards = shards;
	for (uint32_t i = 0; i < shards; i++)
		p->blocks += p->shard[i].count = count[i];
	return p;
}

void
fal_psld_free(struct fal_psld *p)
{
	free(p);
}

uint32_t
fal_psld_count(const struct fal_psld *p, uint32_t shard)
{
	return p->shard[shard].count;
}
