/* Levels: the time until which each shard has room, found by halvings. */
#include "place/level.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>

/* Blocks that the shard does in `t` seconds, of `all`. */
static uint32_t
room(const struct fal_level *s, double t, uint32_t all)
{
	if (isnan(s->cost))
		return s->count;
	const double left = fmax(t - s->late, 0);
	double n = floor(left / s->cost);
	if (n > s->knee && s->more > s->cost)
		n = fmax(s->knee, floor(left / s->more));
	return n < all ? (uint32_t)n : all;
}

/* That it takes with what it has. */
static double
seconds(const struct fal_level *s)
{
	const bool over = s->more > s->cost && s->count > s->knee;
	return s->late + s->count * (over ? s->more : s->cost);
}

static uint64_t
rooms(const struct fal_level *s, uint32_t n, double t, uint32_t all)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < n; i++)
		sum += room(&s[i], t, all);
	return sum;
}

/* Blocks that are above the level. */
static uint64_t
surplus(const struct fal_level *s, uint32_t n, double t, uint32_t all)
{
	uint64_t sum = 0;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t r = room(&s[i], t, all);
		sum += s[i].count > r ? s[i].count - r : 0;
	}
	return sum;
}

enum { HALVINGS = 100 }; /* beyond what a double can tell apart */
#define ROUNDING 1e-9    /* a product of whole blocks, divided again, is that many */

/* The least level, up to `high`, at which there is room for all. */
static double
least(const struct fal_level *s, uint32_t n, double high, uint32_t all)
{
	double low = 0;
	for (int i = 0; i < HALVINGS; i++) {
		const double mid = low + (high - low) / 2;
		*(rooms(s, n, mid, all) >= all ? &high : &low) = mid;
	}
	return high;
}

/* The least from `low` up to `high` above which no more than `most` are. */
static double
least_within(const struct fal_level *s, uint32_t n, double low, double high,
	     uint32_t most, uint32_t all)
{
	if (surplus(s, n, low, all) <= most)
		return low;
	for (int i = 0; i < HALVINGS; i++) {
		const double mid = low + (high - low) / 2;
		*(surplus(s, n, mid, all) <= most ? &high : &low) = mid;
	}
	return high;
}

double
fal_level_slowest(const struct fal_level *s, uint32_t n)
{
	double t = 0;
	for (uint32_t i = 0; i < n; i++)
		if (!isnan(s[i].cost) && s[i].count > 0)
			t = fmax(t, seconds(&s[i]));
	return t;
}

double
fal_level(const struct fal_level *s, uint32_t n, uint32_t most, uint32_t *to)
{
	uint32_t all = 0;
	double high = (double)INFINITY, now = 0;
	assert(n <= FAL_LEVEL_MAX);
	for (uint32_t i = 0; i < n; i++) {
		all += s[i].count;
		to[i] = s[i].count;
	}
	for (uint32_t i = 0; i < n; i++) {
		if (!isfinite(s[i].cost))
			continue;
		high = fmin(high, s[i].late + all * fmax(s[i].cost, s[i].more));
		now = s[i].count > 0 ? fmax(now, seconds(&s[i])) : now;
	}
	if (isinf(high))
		return high;
	const double best = least(s, n, high * (1 + ROUNDING), all);
	const double top = fmax(now, best) * (1 + ROUNDING);
	const double from = least_within(s, n, best, top, most, all);
	uint32_t left = most;
	for (uint32_t i = 0; i < n; i++) {
		const uint32_t r = room(&s[i], from, all);
		uint32_t give = to[i] > r ? to[i] - r : 0;
		give = give < left ? give : left;
		to[i] -= give;
		left -= give;
	}
	/* There is room for them: all of it together is for all. */
	for (uint32_t i = 0, given = most - left; i < n && given > 0; i++) {
		const uint32_t r = room(&s[i], best, all);
		uint32_t take = r > s[i].count ? r - s[i].count : 0;
		take = take < given ? take : given;
		to[i] += take;
		given -= take;
	}
	return best;
}
