/* Measures shards clock by clock, and computes their numbers of blocks. */
#include "server/psld.h"

#include "base/mem.h"
#include "base/quantile.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

enum {
	MEMORY = 40,   /* measurements kept of an unchanged shard */
	NEWEST = 3,    /* number of the newest measurements whose median shows a change */
	RECENT = 6,    /* clocks in which the effect of new blocks can show */
	CALM = 10,     /* clocks without a move before a trial */
	HORIZON = 300, /* clocks for which a shard counts as full, or as known */
	HALVINGS = 100 /* more than the precision of a double */
};

/* a shard has changed if its time changes by this factor */
static const double change_factor = 2;
static const double move_part_max = 0.2; /* part of the blocks that may move at a time */
static const double gain_min = 0.02;     /* the least gain, as a part of a clock */
/* Three standard errors of a median, in spreads; one is 1.25 · 1.48 · MAD / √n. */
static const double noise_factor = 6;
/* Stand for infinite seconds, and for 0 seconds. */
static const double seconds_max = 1e9, seconds_min = 1e-12;
/* relative error of a product after division by one factor */
static const double rounding_slack = 1e-9;

/* The last measurements, newest last. */
struct series {
	double v[MEMORY];
	uint32_t n;
};

struct fal_psld {
	struct shard {
		uint32_t count;     /* blocks */
		struct series each; /* seconds of one block */
		double spread;      /* of `each` before the last change; 0: unknown */
		double waited;      /* in the last clock */
		/* Until these clocks: the effect of new blocks can show; the shard is
		 * full, with room for `full_count` blocks; the shard counts as known,
		 * although it has no blocks. */
		uint64_t shows_until, full_until, known_until;
		uint32_t full_count;
	} shard[FAL_PSLD_SHARDS];
	uint32_t shards, blocks;
	struct series clock; /* seconds of clocks under this map in which nothing moved */
	bool moves;          /* blocks move in the coming clock */
	uint64_t clocks;
	struct shard *newcomer; /* the shard on trial, not measured yet; NULL: none */
	uint32_t count_before[FAL_PSLD_SHARDS]; /* blocks before the trial */
	double clock_before;                    /* seconds of a clock before the trial */
	double job_seconds, trial_seconds;      /* so far */
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
series_median(const double *v, uint32_t n)
{
	double sorted[MEMORY];
	memcpy(sorted, v, n * sizeof(*v));
	return fal_quantile(sorted, n, 0.5);
}

/* The median of the absolute deviations, as a part of the median. */
static double
series_spread(const struct series *s)
{
	double off[MEMORY] = { 0 };
	const double mid = fmax(series_median(s->v, s->n), seconds_min);
	for (uint32_t i = 0; i < s->n; i++)
		off[i] = fabs(s->v[i] - mid);
	return series_median(off, s->n) / mid;
}

/* Adds a clock's measurement of a shard, and detects a change of its speed. */
static void
measure_shard(struct fal_psld *p, struct shard *s,
	      const struct fal_psld_measurement *seen)
{
	struct series *e = &s->each;
	s->waited = seen->waited > 0 ? seen->waited : 0;
	if (s->count == 0 && s->known_until <= p->clocks)
		e->n = 0;
	if (s->count == 0 || !(seen->took >= 0))
		return;
	series_add(e, fmin(fmax(seen->took, s->waited), seconds_max) / s->count);
	if (e->n < 2 * NEWEST)
		return;
	const uint32_t old = e->n - NEWEST;
	const double was = series_median(e->v, old),
		     is = series_median(e->v + old, NEWEST);
	if (is <= change_factor * was && was <= change_factor * is) {
		s->spread = series_spread(e);
		return;
	}
	memmove(e->v, e->v + old, NEWEST * sizeof(*e->v));
	e->n = NEWEST;
	if (is > was && s->shows_until > p->clocks)
		s->full_until = p->clocks + HORIZON;
}

/* ---- numbers of blocks ------------------------------------------------------------- */

double
fal_psld_level(const double *cost, const uint32_t *most, uint32_t n, uint32_t blocks,
	       uint32_t *to)
{
	double low = 0, high = 0, t;
	uint64_t sum = 0;
	for (uint32_t i = 0; i < n; i++)
		if (isfinite(cost[i]))
			high = fmax(high, blocks * cost[i] * (1 + rounding_slack));
	for (int k = 0; k <= HALVINGS + 1; k++) {
		t = k == 0 || k > HALVINGS ? high : low + (high - low) / 2;
		sum = 0;
		for (uint32_t i = 0; i < n; i++) {
			const uint32_t limit = most != NULL ? most[i] : blocks;
			/* The blocks that shard i processes in `t` seconds. */
			to[i] = (uint32_t)fmin(floor(t / cost[i]), limit);
			sum += to[i];
		}
		if (k == 0 && sum < blocks)
			return (double)INFINITY;
		*(sum >= blocks ? &high : &low) = t;
	}
	/* The sum may be a few blocks too large: the slowest shards give these blocks
	 * up. */
	for (; sum > blocks; sum--) {
		uint32_t slowest = 0;
		for (uint32_t i = 1; i < n; i++)
			if (to[i] > 0 && (to[slowest] == 0 ||
					  to[i] * cost[i] > to[slowest] * cost[slowest]))
				slowest = i;
		to[slowest]--;
	}
	return high;
}

/* `to` is the wanted number of blocks of each shard.  Changes `to` so that not too many
 * blocks move at once.  Each shard has one run of blocks, and the runs are in the order
 * of the shards.  So a change of one run also shifts the runs after it.  Therefore all
 * ends of runs move the same part of the way to their places in `to`: the whole way, or
 * less if too many blocks would move. */
static void
limit_step(const struct fal_psld *p, uint32_t *to)
{
	const double most = fmax(move_part_max * p->blocks - p->shards, 1);
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
		/* Rounds away from the present end, so that the end arrives after some
		 * steps. */
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
			if (s->shows_until <= p->clocks)
				s->full_count = s->count;
			s->shows_until = p->clocks + RECENT;
		}
		if (to[i] == 0 && s->count > 0)
			s->known_until = p->clocks + HORIZON;
		s->count = to[i];
	}
	p->clock.n = 0;
	p->moves = true;
}

/* The blocks of a trial: a quarter of a mean share. */
static uint32_t
trial_count(const struct fal_psld *p)
{
	uint32_t busy = 0;
	for (uint32_t i = 0; i < p->shards; i++)
		busy += p->shard[i].count > 0;
	assert(busy > 0); /* some shard always has the blocks */
	return 1 + p->blocks / (4 * busy);
}

/* Computes, for each shard, the seconds of a block (INFINITY: a shard without blocks that
 * was not measured) and the most blocks that the shard may have.  Returns false if some
 * shard with blocks was measured too rarely. */
static bool
compute_costs(const struct fal_psld *p, double *cost, uint32_t *most)
{
	for (uint32_t i = 0; i < p->shards; i++) {
		const struct shard *s = &p->shard[i];
		const bool known = s->each.n >= NEWEST;
		if (s->count > 0 && !known)
			return false;
		cost[i] = known ? fmax(series_median(s->each.v, s->each.n), seconds_min)
				: (double)INFINITY;
		most[i] = s->full_until > p->clocks ? s->full_count
			  : s->count > 0            ? 2 * s->count
						    : trial_count(p);
	}
	return true;
}

static enum fal_psld_act
exploit(struct fal_psld *p, double seconds)
{
	double cost[FAL_PSLD_SHARDS], now = 0, waited = 0, noise = gain_min * seconds;
	uint32_t most[FAL_PSLD_SHARDS], to[FAL_PSLD_SHARDS];
	if (!compute_costs(p, cost, most))
		return FAL_PSLD_STAY;
	for (uint32_t i = 0; i < p->shards; i++) {
		const struct shard *s = &p->shard[i];
		if (s->count == 0)
			continue;
		now = fmax(now, s->count * cost[i]);
		waited = fmax(waited, s->waited);
		/* Right after a change some measurements still belong to the clock of the
		 * change. */
		const double spread = s->each.n < 2 * NEWEST && s->spread > 0
					      ? s->spread
					      : series_spread(&s->each);
		noise = fmax(noise, noise_factor * spread * s->count * cost[i] /
					    sqrt(s->each.n));
	}
	double best = fal_psld_level(cost, most, p->shards, p->blocks, to);
	if (isinf(best)) /* no room for all blocks: ignore the limits */
		best = fal_psld_level(cost, NULL, p->shards, p->blocks, to);
	if (!(fmin(now - best, waited) > noise))
		return FAL_PSLD_STAY;
	limit_step(p, to);
	set_counts(p, to);
	return FAL_PSLD_PLACE;
}

/* ---- trials ------------------------------------------------------------------------ */

/* Starts a trial: an unknown standby shard gets some blocks of all others. */
static enum fal_psld_act
explore(struct fal_psld *p)
{
	double cost[FAL_PSLD_SHARDS];
	uint32_t most[FAL_PSLD_SHARDS], to[FAL_PSLD_SHARDS], i = 0;
	const uint32_t gets = trial_count(p);
	while (i < p->shards && (p->shard[i].count > 0 || p->shard[i].each.n > 0))
		i++;
	p->clock_before = series_median(p->clock.v, p->clock.n);
	if (i == p->shards || p->clock.n < CALM || gets >= p->blocks ||
	    p->trial_seconds + p->clock_before > FAL_PSLD_BUDGET * p->job_seconds ||
	    !compute_costs(p, cost, most))
		return FAL_PSLD_STAY;
	fal_psld_level(cost, NULL, p->shards, p->blocks - gets, to);
	to[i] = gets;
	p->newcomer = &p->shard[i];
	for (i = 0; i < p->shards; i++)
		p->count_before[i] = p->shard[i].count;
	set_counts(p, to);
	return FAL_PSLD_TRY;
}

/* ---- clocks ---------------------------------------------------------------------- */

enum fal_psld_act
fal_psld_clock(struct fal_psld *p, double seconds,
	       const struct fal_psld_measurement *seen)
{
	p->job_seconds += seconds;
	p->clocks++;
	for (uint32_t i = 0; i < p->shards; i++)
		measure_shard(p, &p->shard[i], &seen[i]);
	if (!p->moves)
		series_add(&p->clock, seconds);
	p->moves = false;
	if (p->newcomer != NULL && p->newcomer->each.n < NEWEST) {
		struct shard *s = p->newcomer;
		p->trial_seconds += fmax(seconds - p->clock_before, 0);
		if (p->trial_seconds <= FAL_PSLD_BUDGET * p->job_seconds &&
		    s->shows_until > p->clocks)
			return FAL_PSLD_STAY; /* the trial continues */
		/* The trial takes too long: the shard counts as useless, and the numbers
		 * of blocks before the trial hold again. */
		s->each.n = 0;
		while (s->each.n < NEWEST)
			series_add(&s->each, seconds_max);
		p->newcomer = NULL;
		set_counts(p, p->count_before);
		return FAL_PSLD_REVERT;
	}
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
