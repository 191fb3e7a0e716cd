/* What each clock tells, and what becomes of the map. */
#include "place/psld.h"

#include "base/mem.h"
#include "base/quantile.h"
#include "base/rng.h"
#include "place/level.h"

#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum {
	WINDOW = 10,   /* clocks that are judged together */
	HURRY = 15,    /* clocks behind a change; behind a move each second is blind */
	MEMORY = 40,   /* of a shard, while nothing changes */
	NEWEST = 3,    /* of these, whose median tells a change */
	HORIZON = 200, /* clocks over which moving must pay */
	ACTIONS = 3    /* FAL_PSLD_OUT, _IN, _MOVE */
};

static const double twice = 2;         /* a shard has changed: by this factor */
static const double longer = 1.15;     /* clocks have */
static const double gain_least = 0.02; /* of a clock */
static const double hurried = 0.2;     /* part of the blocks, after a change */
static const double unhurried = 0.1;   /* the same, else */
/* Of spreads: three standard errors of a median, as 1.25 · 1.48 · MAD / √n is one; behind
 * a change, where to wait costs more than to be wrong, half of it. */
static const double errors = 6, errors_hurried = 3;
static const double never = 1e9;             /* seconds: as good as */
static const double off_least = 0.02;        /* spread: of few that happen to be alike */
static const double most_late = 0.95;        /* part of what a shard takes */
static const double tries = 0.3, less = 0.9; /* probability, and what it falls by */

/* The last measurements, the newest last. */
struct window {
	double v[MEMORY];
	uint32_t n, most; /* most: that are kept */
};

struct shard {
	/* Seconds that it took, and for how many blocks. */
	struct window took, blocks;
	/* Of these, what it takes whatever it has; 0 until it had other numbers. */
	double late;
	double waited; /* in the last clock */
	/* When it was given or lost blocks last, and 0: long ago.  If it was given more:
	 * how many it had before, and what one took. */
	uint64_t touched;
	bool given;
	uint32_t had;
	double before;
	/* With more than `had` each takes so much, until this clock; 0: it has room. */
	double more;
	uint64_t until;
};

struct fal_psld {
	struct fal_psld_conf conf;
	uint32_t *map, *kept; /* kept: what a trial began with */
	uint32_t *count;
	struct shard *shard;
	struct window clock; /* seconds, of those under this map in which nothing moved */
	double before;       /* of one under the maps before it; 0: not known */
	uint64_t clocks, changed; /* changed: of these, when one was found; 0: never */
	uint32_t hurry;           /* clocks in which blocks are placed anew */
	bool moving;              /* the coming clock moves blocks */
	double seconds, spent;    /* of the job; in trials */
	double chance;
	enum fal_psld_act trial; /* FAL_PSLD_STAY: none */
	uint32_t newcomer;       /* of FAL_PSLD_OUT */
	double was, lost;        /* a clock before it; what it has cost */
	struct {
		double sum;
		uint32_t n;
	} reward[ACTIONS];
	struct fal_rng rng;
};

/* ---- measurements ------------------------------------------------------------------ */

static void
add(struct window *w, double v)
{
	if (w->n == w->most)
		memmove(w->v, w->v + 1, --w->n * sizeof(*w->v));
	w->v[w->n++] = v;
}

/* Of n of them, from number `from` on; NAN: of none. */
static double
median(const struct window *w, uint32_t from, uint32_t n)
{
	double v[MEMORY];
	memcpy(v, w->v + from, n * sizeof(*v));
	return fal_quantile(v, n, 0.5);
}

static double
typical(const struct window *w)
{
	return median(w, 0, w->n);
}

/* The newest ones by those before; NAN: there are too few. */
static double
ratio(const struct window *w)
{
	if (w->n < 2 * NEWEST)
		return (double)NAN;
	const uint32_t old = w->n - NEWEST;
	return median(w, old, NEWEST) / median(w, 0, old);
}

/* Only the newest are of what is now: a median of three has changed when two have. */
static void
forget(struct window *w)
{
	const uint32_t keep = w->n < NEWEST - 1 ? w->n : NEWEST - 1;
	memmove(w->v, w->v + w->n - keep, keep * sizeof(*w->v));
	w->n = keep;
}

/* By how much measurements differ, as a part of the typical one. */
static double
spread(const struct window *w)
{
	struct window off = { .n = w->n };
	const double mid = typical(w);
	for (uint32_t i = 0; i < w->n; i++)
		off.v[i] = fabs(w->v[i] - mid);
	return w->n > 1 && mid > 0 ? typical(&off) / mid / sqrt(w->n) : 0;
}

/* What a block took, each time, as if of as many as now. */
static struct window
each(const struct shard *s)
{
	struct window w = { .n = s->took.n };
	const double now = w.n > 0 ? s->blocks.v[w.n - 1] : 0;
	for (uint32_t i = 0; i < w.n; i++) {
		const double took = s->took.v[i], late = fmin(s->late, most_late * took);
		w.v[i] = (took - late) / s->blocks.v[i] + late / now;
	}
	return w;
}

static double
cost(const struct shard *s)
{
	const struct window w = each(s);
	return typical(&w);
}

static void
range(const struct window *w, double *low, double *high)
{
	*low = *high = w->v[0];
	for (uint32_t i = 1; i < w->n; i++) {
		*low = fmin(*low, w->v[i]);
		*high = fmax(*high, w->v[i]);
	}
}

/* By what it took for other numbers of blocks: the line whose slope is the median of
 * those through any two that differ by a tenth (Theil and Sen), so that a few that are of
 * another time do not turn it.  What may as well be nothing is nothing. */
static void
fit(struct shard *s)
{
	double slope[MEMORY * (MEMORY - 1) / 2], low, high;
	const uint32_t n = s->took.n;
	struct window rest = { .n = n };
	size_t pairs = 0;
	range(&s->blocks, &low, &high);
	if (high - low < 0.1 * high)
		return;
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t k = 0; k < i; k++) {
			const double d = s->blocks.v[i] - s->blocks.v[k];
			if (fabs(d) >= 0.1 * fmax(s->blocks.v[i], s->blocks.v[k]))
				slope[pairs++] = (s->took.v[i] - s->took.v[k]) / d;
		}
	const double one = pairs >= NEWEST ? fal_quantile(slope, pairs, 0.5) : 0;
	if (!(one > 0)) /* fewer that take longer are of another time */
		return;
	for (uint32_t i = 0; i < n; i++)
		rest.v[i] = s->took.v[i] - one * s->blocks.v[i];
	const double late = typical(&rest);
	const double wrong = fmax(spread(&rest) * late, off_least * typical(&s->took)) *
			     high / (high - low);
	s->late = late > errors_hurried * wrong ? late : 0;
}

/* The newest by those before, as if all had been of as many blocks as now: between as
 * much for each, and as much in all, lies what may be, and only what is beyond it is a
 * change. NAN: there are too few. */
static double
ratio_of(const struct shard *s)
{
	struct window high = s->took, low = s->took;
	if (s->took.n < 2 * NEWEST)
		return (double)NAN;
	const uint32_t n = s->took.n, old = n - NEWEST;
	for (uint32_t i = 0; i < n; i++) {
		const double by = s->blocks.v[n - 1] / s->blocks.v[i];
		high.v[i] *= fmax(by, 1);
		low.v[i] *= fmin(by, 1);
	}
	const double up = median(&low, old, NEWEST) / median(&high, 0, old);
	const double down = median(&high, old, NEWEST) / median(&low, 0, old);
	return up > 1 ? up : down < 1 ? down : 1;
}

static void
forget_shard(struct shard *s)
{
	forget(&s->took);
	forget(&s->blocks);
}

/* True: this shard is another one than before. */
static bool
measure(struct fal_psld *p, uint32_t i, const struct fal_psld_seen *seen)
{
	struct shard *s = &p->shard[i];
	s->waited = seen->waited > 0 ? seen->waited : 0;
	if (s->touched + 2 * NEWEST < p->clocks)
		s->touched = 0;
	if (s->until <= p->clocks)
		s->more = 0;
	if (p->count[i] == 0 || !(seen->took >= 0))
		return false;
	add(&s->took, fmin(fmax(seen->took, s->waited), never));
	add(&s->blocks, p->count[i]);
	if (s->more > 0 && p->count[i] > s->had)
		s->more = cost(s);
	const double by = ratio_of(s);
	if (!(by > twice || by < 1 / twice)) {
		fit(s);
		return false;
	}
	forget_shard(s);
	s->late = 0;
	if (by > twice && s->touched > 0 && s->given) { /* no room for so many */
		s->more = cost(s);
		s->until = p->clocks + HORIZON;
	} else if (s->touched == 0) {
		s->more = 0; /* it has changed by itself */
	}
	return true;
}

/* A clock of the map, if nothing was moved in it.  True: it takes longer than before,
 * whoever it is; those who may be are measured anew. */
static bool
measure_clock(struct fal_psld *p, double seconds)
{
	const struct window *w = &p->clock;
	p->seconds += seconds;
	if (p->moving)
		return false;
	add(&p->clock, seconds);
	/* Of a new map there are none before: it was not to make clocks longer. */
	const double by = w->n >= NEWEST && w->n < 2 * NEWEST && p->before > 0
				  ? median(w, w->n - NEWEST, NEWEST) / p->before
				  : ratio(w);
	return p->trial == FAL_PSLD_STAY && by > longer;
}

/* What is known of clocks stays when the map goes. */
static void
new_map(struct fal_psld *p)
{
	if (p->clock.n >= NEWEST)
		p->before = typical(&p->clock);
	else if (p->clock.n > 0)
		p->before = fmax(p->before, typical(&p->clock));
	p->clock.n = 0;
	p->moving = true;
}

static void
found_change(struct fal_psld *p)
{
	p->changed = p->clocks;
	p->hurry = HURRY;
	p->chance = tries;
	memset(p->reward, 0, sizeof(p->reward));
	p->before = 0;
	forget(&p->clock);
}

/* ---- maps -------------------------------------------------------------------------- */

/* Blocks of a shard of which some were measured: down to as many fewer than it ever had
 * as lie between the most and the fewest; the last one leaves alone, when it was seen
 * what that takes. */
static double
may_lose(const struct shard *s, uint32_t count)
{
	double low, high;
	range(&s->blocks, &low, &high);
	return fmax(count - fmax(2 * low - high, 1), 1);
}

static void
levels(const struct fal_psld *p, struct fal_level *out)
{
	double least = (double)INFINITY; /* nobody is faster than the fastest measured */
	uint32_t to[FAL_PSLD_SHARDS];
	for (uint32_t i = 0; i < p->conf.shards; i++) {
		const double t = cost(&p->shard[i]);
		least = t > 0 ? fmin(least, t) : least;
	}
	for (uint32_t i = 0; i < p->conf.shards; i++) {
		const struct shard *s = &p->shard[i];
		const bool over = s->more > 0 && p->count[i] > s->had;
		/* Of more than twice as many nothing is known. */
		out[i] = (struct fal_level){ .count = p->count[i],
					     .more = s->more > 0 ? s->more : never,
					     .knee = s->more > 0 ? s->had
								 : 2 * p->count[i] };
		out[i].cost = p->count[i] == 0 ? (double)INFINITY : fmax(cost(s), least);
		out[i].cost = over ? s->before : out[i].cost;
		if (p->count[i] > 0 && (s->took.n == 0 || isinf(least)))
			out[i].cost = (double)NAN;
	}
	/* That a shard is late, and not slow, is a reason to take more from it, though no
	 * farther than it was seen: of as many blocks as were never taken from it nothing
	 * is known.  It is none to give it more. */
	const double even = fal_level(out, p->conf.shards, 0, to);
	for (uint32_t i = 0; i < p->conf.shards; i++) {
		struct fal_level *l = &out[i];
		const double late = p->shard[i].late, took = l->count * l->cost;
		if (!(late > 0 && took > even)) /* NAN: nothing is known of it */
			continue;
		l->cost = fmax(l->cost - late / l->count,
			       (took - even) / may_lose(&p->shard[i], l->count));
		l->late = fmax(took - l->cost * l->count, 0);
	}
}

/* The shard is to have another number of blocks. */
static void
touch(struct fal_psld *p, uint32_t i, uint32_t to)
{
	struct shard *s = &p->shard[i];
	const bool more = to > p->count[i];
	if (to == p->count[i])
		return;
	/* Of several times in a row what was before the first counts. */
	if (more && s->took.n > 0 && !(s->touched > 0 && s->given) && s->more == 0) {
		s->had = p->count[i];
		s->before = cost(s);
	}
	s->given = more;
	s->touched = p->clocks + 1;
	if (to == 0) {
		s->took.n = s->blocks.n = 0;
		s->late = 0;
	}
}

/* The same number of blocks in each run, as ends of runs. */
static void
ends_of(const struct fal_psld *p, const uint32_t *count, uint32_t *end)
{
	for (uint32_t i = 0, sum = 0; i < p->conf.shards; i++)
		end[i] = sum += count[i];
}

/* Runs as near to these numbers as moving so many blocks lets them come: each time it is
 * the farthest end that comes nearer by a block. */
static void
near_runs(const struct fal_psld *p, uint32_t most, uint32_t *to)
{
	uint32_t end[FAL_PSLD_SHARDS], want[FAL_PSLD_SHARDS];
	const uint32_t n = p->conf.shards;
	ends_of(p, p->count, end);
	ends_of(p, to, want);
	for (; most > 0; most--) {
		uint32_t best = n, far = 0;
		for (uint32_t i = 0; i + 1 < n; i++) {
			const bool up = want[i] > end[i];
			const uint32_t d = up ? want[i] - end[i] : end[i] - want[i];
			/* No end passes another one. */
			const uint32_t before = i > 0 ? end[i - 1] : 0;
			const bool may = up ? end[i] < end[i + 1] : before < end[i];
			if (d > far && may) {
				best = i;
				far = d;
			}
		}
		if (best == n)
			break;
		end[best] += want[best] > end[best] ? 1 : UINT32_MAX;
	}
	for (uint32_t i = 0; i < n; i++)
		to[i] = end[i] - (i > 0 ? end[i - 1] : 0);
}

/* The map has these numbers: who has too many gives its last ones. */
static void
give(struct fal_psld *p, const uint32_t *to)
{
	uint32_t shard = 0;
	for (uint32_t b = p->conf.blocks; b-- > 0;) {
		uint32_t *from = &p->map[b];
		if (p->count[*from] <= to[*from])
			continue;
		while (p->count[shard] >= to[shard])
			shard++;
		p->count[*from]--;
		p->count[shard]++;
		*from = shard;
	}
}

static void
lay_runs(struct fal_psld *p, const uint32_t *to)
{
	for (uint32_t i = 0, b = 0; i < p->conf.shards; i++) {
		p->count[i] = to[i];
		for (uint32_t k = 0; k < to[i]; k++)
			p->map[b++] = i;
	}
}

static void
take_map(struct fal_psld *p, const uint32_t *to)
{
	for (uint32_t i = 0; i < p->conf.shards; i++)
		touch(p, i, to[i]);
	if (p->conf.runs)
		lay_runs(p, to);
	else
		give(p, to);
	new_map(p);
}

/* Seconds that moving takes: of the shard that gives or is given most. */
static double
moving_s(const struct fal_level *s, uint32_t n, const uint32_t *to)
{
	double t = 0;
	for (uint32_t i = 0; i < n; i++)
		if (isfinite(s[i].cost))
			t = fmax(t, s[i].cost * fabs((double)to[i] - s[i].count));
	return t;
}

static enum fal_psld_act
exploit(struct fal_psld *p, double part, double seconds)
{
	struct fal_level s[FAL_PSLD_SHARDS] = { 0 };
	uint32_t to[FAL_PSLD_SHARDS];
	const uint32_t n = p->conf.shards;
	const double most = fmax(1, part * p->conf.blocks);
	const double by = p->changed > 0 && p->hurry > 0 ? errors_hurried : errors;
	double waited = 0, noise = gain_least * seconds;
	levels(p, s);
	const double best = fal_level(s, n, p->conf.blocks, to);
	const double now = fal_level_slowest(s, n);
	for (uint32_t i = 0; i < n; i++) {
		waited = fmax(waited, p->shard[i].waited);
		const struct window w = each(&p->shard[i]);
		if (s[i].count > 0 && isfinite(s[i].cost))
			noise = fmax(noise, by * spread(&w) * s[i].count * s[i].cost);
	}
	const double gain = fmin(now - best, waited);
	if (!(gain > noise) || gain * HORIZON <= moving_s(s, n, to))
		return FAL_PSLD_STAY;
	if (p->conf.runs)
		near_runs(p, (uint32_t)most, to);
	else
		fal_level(s, n, (uint32_t)most, to);
	take_map(p, to);
	return FAL_PSLD_PLACE;
}

/* ---- trials ------------------------------------------------------------------------ */

static uint32_t
active(const struct fal_psld *p)
{
	uint32_t n = 0;
	for (uint32_t i = 0; i < p->conf.shards; i++)
		n += p->count[i] > 0;
	return n;
}

/* One that stands by is given a quarter of a mean share, by whoever is slowest then. */
static bool
try_out(struct fal_psld *p, uint32_t *to)
{
	struct fal_level s[FAL_PSLD_SHARDS] = { 0 };
	uint32_t idle = 0;
	while (idle < p->conf.shards && p->count[idle] > 0)
		idle++;
	if (idle == p->conf.shards)
		return false;
	levels(p, s);
	for (uint32_t n = 1 + p->conf.blocks / (4 * active(p)); n > 0; n--) {
		uint32_t worst = idle;
		for (uint32_t i = 0; i < p->conf.shards; i++)
			if (i != idle && to[i] > 1 && !isnan(s[i].cost) &&
			    (worst == idle ||
			     to[i] * s[i].cost > to[worst] * s[worst].cost))
				worst = i;
		if (worst == idle)
			break;
		to[worst]--;
		to[idle]++;
	}
	p->newcomer = idle;
	return to[idle] > 0;
}

static bool
try_in(struct fal_psld *p, uint32_t *to)
{
	struct fal_level s[FAL_PSLD_SHARDS] = { 0 };
	uint32_t worst = p->conf.shards;
	levels(p, s);
	for (uint32_t i = 0; i < p->conf.shards; i++)
		if (p->count[i] > 0 && !isnan(s[i].cost) &&
		    (worst == p->conf.shards || s[i].cost > s[worst].cost))
			worst = i;
	if (worst == p->conf.shards || active(p) < 2)
		return false;
	s[worst].cost = (double)INFINITY;
	fal_level(s, p->conf.shards, p->conf.blocks, to);
	return to[worst] == 0;
}

static bool
try_move(struct fal_psld *p, uint32_t *to)
{
	uint32_t who[FAL_PSLD_SHARDS], n = 0;
	for (uint32_t i = 0; i < p->conf.shards; i++)
		if (p->count[i] > 0)
			who[n++] = i;
	if (n < 2)
		return false;
	const uint32_t a = fal_rng_below(&p->rng, n), b = fal_rng_below(&p->rng, n - 1);
	const uint32_t from = who[a], dest = who[b < a ? b : b + 1];
	const uint32_t blocks = (p->count[from] + 7) / 8;
	to[from] -= blocks;
	to[dest] += blocks;
	return to[from] > 0;
}

static bool
attempt(struct fal_psld *p, enum fal_psld_act act, uint32_t *to)
{
	memcpy(to, p->count, p->conf.shards * sizeof(*to));
	return act == FAL_PSLD_OUT  ? try_out(p, to)
	       : act == FAL_PSLD_IN ? try_in(p, to)
				    : try_move(p, to);
}

/* UCB1 (Auer et al., 2002): what has paid, and what was seldom tried. */
static double
promise(const struct fal_psld *p, int action)
{
	double all = 0;
	for (int i = 0; i < ACTIONS; i++)
		all += p->reward[i].n;
	const double n = p->reward[action].n;
	return n > 0 ? p->reward[action].sum / n + sqrt(2 * log(all) / n)
		     : (double)INFINITY;
}

static enum fal_psld_act
explore(struct fal_psld *p)
{
	uint32_t to[FAL_PSLD_SHARDS];
	bool tried[ACTIONS] = { false };
	for (int k = 0; k < ACTIONS; k++) {
		int best = -1;
		for (int i = 0; i < ACTIONS; i++)
			if (!tried[i] && (best < 0 || promise(p, i) > promise(p, best)))
				best = i;
		tried[best] = true;
		const enum fal_psld_act act = (enum fal_psld_act)(FAL_PSLD_OUT + best);
		if (!attempt(p, act, to))
			continue;
		p->was = typical(&p->clock);
		p->lost = 0;
		p->trial = act;
		memcpy(p->kept, p->map, p->conf.blocks * sizeof(*p->kept));
		take_map(p, to);
		return act;
	}
	return FAL_PSLD_STAY;
}

/* The trial is over; `clock`: seconds that one takes with it. */
static void
remember(struct fal_psld *p, double clock)
{
	const int action = (int)p->trial - (int)FAL_PSLD_OUT;
	const double r = 0.5 + (p->was - clock) / p->was;
	p->reward[action].sum += fmin(fmax(r, 0), 1);
	p->reward[action].n++;
	p->spent += fmax(p->lost, 0);
	p->trial = FAL_PSLD_STAY;
}

static void
roll_back(struct fal_psld *p)
{
	uint32_t to[FAL_PSLD_SHARDS] = { 0 };
	for (uint32_t b = 0; b < p->conf.blocks; b++)
		to[p->kept[b]]++;
	for (uint32_t i = 0; i < p->conf.shards; i++)
		touch(p, i, to[i]);
	/* The very blocks that were there. */
	memcpy(p->map, p->kept, p->conf.blocks * sizeof(*p->map));
	memcpy(p->count, to, p->conf.shards * sizeof(*to));
	new_map(p);
}

/* One shard more, now that it was measured: would clocks be shorter if it had its share?
 */
static bool
would_pay(const struct fal_psld *p)
{
	struct fal_level s[FAL_PSLD_SHARDS] = { 0 };
	uint32_t to[FAL_PSLD_SHARDS];
	double waited = 0;
	levels(p, s);
	const double with = fal_level(s, p->conf.shards, 0, to);
	for (uint32_t i = 0; i < p->conf.shards; i++)
		waited = fmax(waited, p->shard[i].waited);
	s[p->newcomer].cost = (double)INFINITY;
	const double without = fal_level(s, p->conf.shards, 0, to);
	return fmin(without - with, waited) > gain_least * p->was;
}

static enum fal_psld_act
judge(struct fal_psld *p, double seconds)
{
	const double now = typical(&p->clock);
	p->lost += seconds - p->was;
	const bool dear = p->spent + p->lost > FAL_PSLD_BUDGET * p->seconds;
	const bool bad = p->clock.n >= NEWEST && now > longer * p->was;
	if (!dear && !bad && p->clock.n < WINDOW)
		return FAL_PSLD_STAY;
	const bool good =
		p->clock.n == WINDOW && (now < (1 - gain_least) * p->was ||
					 (p->trial == FAL_PSLD_OUT && would_pay(p)));
	remember(p, dear && !good ? fmax(seconds, p->was) : now);
	if (good)
		return FAL_PSLD_STAY;
	roll_back(p);
	return FAL_PSLD_BACK;
}

/* ---- all of it --------------------------------------------------------------------- */

enum fal_psld_act
fal_psld_clock(struct fal_psld *p, double seconds, const struct fal_psld_seen *seen)
{
	const bool slower = measure_clock(p, seconds);
	bool changed = slower;
	for (uint32_t i = 0; i < p->conf.shards; i++)
		changed |= measure(p, i, &seen[i]);
	for (uint32_t i = 0; slower && i < p->conf.shards; i++) {
		const double by = ratio_of(&p->shard[i]);
		if (by > longer || by < 1 / longer)
			forget_shard(&p->shard[i]);
	}
	p->moving = false;
	p->clocks++;
	if (changed) {
		/* A trial, if there is one, is of what was before. */
		p->spent += p->trial != FAL_PSLD_STAY ? fmax(p->lost, 0) : 0;
		p->trial = FAL_PSLD_STAY;
		found_change(p);
	}
	if (p->trial != FAL_PSLD_STAY)
		return judge(p, seconds);
	if (p->hurry > 0) {
		p->hurry--;
		/* Of less than a median nothing is known. */
		return p->clocks >= NEWEST ? exploit(p, hurried, seconds) : FAL_PSLD_STAY;
	}
	if (p->clocks % WINDOW != 0 || p->clock.n < NEWEST)
		return FAL_PSLD_STAY;
	const enum fal_psld_act act = exploit(p, unhurried, typical(&p->clock));
	const double room = FAL_PSLD_BUDGET * p->seconds - p->spent;
	if (act != FAL_PSLD_STAY || !p->conf.tries || room < typical(&p->clock) ||
	    (double)fal_rng_unit(&p->rng) >= p->chance)
		return act;
	p->chance *= less;
	return explore(p);
}

struct fal_psld *
fal_psld_new(const struct fal_psld_conf *conf)
{
	assert(conf->shards > 0 && conf->shards <= FAL_PSLD_SHARDS);
	struct fal_psld *p = fal_calloc(1, sizeof(*p));
	if (p == NULL)
		return NULL;
	p->conf = *conf;
	p->conf.map = NULL;
	p->map = fal_calloc(conf->blocks, sizeof(*p->map));
	p->kept = fal_calloc(conf->blocks, sizeof(*p->kept));
	p->count = fal_calloc(conf->shards, sizeof(*p->count));
	p->shard = fal_calloc(conf->shards, sizeof(*p->shard));
	p->rng = fal_rng_init(conf->seed, FAL_RNG_DRAW, 0);
	p->chance = tries;
	p->hurry = HURRY; /* nothing is known of the map */
	if (p->map == NULL || p->kept == NULL || p->count == NULL || p->shard == NULL) {
		fal_psld_free(p);
		return NULL;
	}
	p->clock.most = WINDOW;
	for (uint32_t i = 0; i < conf->shards; i++)
		p->shard[i].took.most = p->shard[i].blocks.most = MEMORY;
	memcpy(p->map, conf->map, conf->blocks * sizeof(*p->map));
	for (uint32_t b = 0; b < conf->blocks; b++)
		p->count[p->map[b]]++;
	return p;
}

void
fal_psld_free(struct fal_psld *p)
{
	if (p == NULL)
		return;
	free(p->map);
	free(p->kept);
	free(p->count);
	free(p->shard);
	free(p);
}

const uint32_t *
fal_psld_map(const struct fal_psld *p)
{
	return p->map;
}

uint32_t
fal_psld_count(const struct fal_psld *p, uint32_t shard)
{
	return p->count[shard];
}

uint64_t
fal_psld_since(const struct fal_psld *p)
{
	return p->changed > 0 ? p->clocks - p->changed : UINT64_MAX;
}
