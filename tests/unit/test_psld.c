/* PSLD against shards in virtual time: drawn speeds, links, noise and changes.
 *
 * The noise of clock k at shard j is the same for every placement, so that each meets the
 * same slowness.  A clock is the work between, then all shards at once: what is asked of
 * psld is what workers would see.  Seconds per epoch are not a question here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/mem.h"
#include "base/rng.h"
#include "place/level.h"
#include "place/place.h"
#include "place/psld.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BLOCK = 4096, SHARDS = 16, SEEDS = 80 };

struct sim {
	uint64_t seed;
	uint32_t blocks, shards, standby; /* the last ones stand by */
	double cost[SHARDS]; /* seconds of a block: its link, and what it computes */
	double fixed;        /* seconds of a shard whatever it has: round trips */
	double late[SHARDS]; /* the same, of one beside others */
	double work;         /* seconds in which workers compute */
	double hidden;       /* seconds of a transfer that computing hides */
	double noise;        /* standard deviation, as a part */
	uint32_t workers;
	/* A shard that takes so many times as long for each, with more blocks than this;
	 * one that is always as good as done, say its clocks. */
	uint32_t thrashes, room;
	double by;
	uint32_t liar;
	double lies; /* what it says, as a part of the truth */
	uint64_t hangs;
	double hang_s;
	/* A shard has one run of blocks; and what workers say of the clock behind a move
	 * is about the map of before it. */
	bool runs, stale;

	struct fal_psld *psld;
	uint64_t clock;
	uint32_t *map;
	double seconds; /* so far */
	uint64_t moved; /* blocks, so far */
};

static struct fal_rng
rng(const struct sim *s, uint32_t n)
{
	return fal_rng_init(s->seed, FAL_RNG_TEST, n);
}

/* What this clock's transfer with the shard takes by its mean; about 1. */
static double
noise_of(const struct sim *s, uint32_t shard)
{
	struct fal_rng g = rng(s, 1000 + (uint32_t)(s->clock * SHARDS + shard));
	const double u = (double)fal_rng_unit(&g), v = (double)fal_rng_unit(&g);
	/* Box and Muller. */
	return exp(s->noise * sqrt(-2 * log(1 - u)) * cos(2 * acos(-1) * v));
}

static void
count_of(const struct sim *s, const uint32_t *map, uint32_t *count)
{
	memset(count, 0, SHARDS * sizeof(*count));
	for (uint32_t b = 0; b < s->blocks; b++)
		count[map[b]]++;
}

static double
took_of(const struct sim *s, uint32_t shard, uint32_t count)
{
	const bool slow = s->by > 0 && shard == s->thrashes && count > s->room;
	return count == 0 ? 0
			  : s->fixed + s->late[shard] +
				    count * s->cost[shard] * (slow ? s->by : 1);
}

/* A clock without noise under these numbers. */
static double
clock_of(const struct sim *s, const uint32_t *count)
{
	double t = 0;
	for (uint32_t i = 0; i < s->shards; i++)
		t = fmax(t, took_of(s, i, count[i]));
	return s->work + fmax(t - s->hidden, 0);
}

/* The shortest clock that a placement on the first n shards has: the bound. */
static double
bound_of(const struct sim *s, uint32_t n)
{
	struct fal_level l[SHARDS] = { { 0 } };
	uint32_t to[SHARDS];
	for (uint32_t i = 0; i < n; i++)
		l[i].cost = s->cost[i];
	l[0].count = s->blocks;
	return s->work + fmax(s->fixed + fal_level(l, n, 0, to) - s->hidden, 0);
}

static void
begin(struct sim *s, const uint32_t *map, bool tries)
{
	const struct fal_psld_conf conf = { .blocks = s->blocks,
					    .shards = s->shards,
					    .map = map,
					    .seed = s->seed,
					    .tries = tries,
					    .runs = s->runs };
	s->psld = fal_psld_new(&conf);
	s->map = fal_calloc(s->blocks, sizeof(*s->map));
	memcpy(s->map, map, s->blocks * sizeof(*map));
}

static void
end(struct sim *s)
{
	fal_psld_free(s->psld);
	free(s->map);
}

/* Blocks that move, and the seconds: once over the slowest link that they go over, where
 * a clock has each of them twice for each worker. */
static double
move(struct sim *s)
{
	const uint32_t *now = fal_psld_map(s->psld);
	uint32_t over[SHARDS] = { 0 };
	double t = 0;
	for (uint32_t b = 0; b < s->blocks; b++)
		if (now[b] != s->map[b]) {
			over[now[b]]++;
			over[s->map[b]]++;
			s->moved++;
		}
	for (uint32_t i = 0; i < s->shards; i++)
		t = fmax(t, over[i] * s->cost[i] / (2 * s->workers));
	memcpy(s->map, now, s->blocks * sizeof(*now));
	return t;
}

static bool
is_runs(const struct sim *s)
{
	uint32_t b = 1;
	while (b < s->blocks && s->map[b] >= s->map[b - 1])
		b++;
	return b == s->blocks;
}

/* One clock under the map; its seconds, without noise in `clean`. */
static enum fal_psld_act
step(struct sim *s, double *clean)
{
	uint32_t count[SHARDS];
	struct fal_psld_seen seen[SHARDS];
	double t = 0;
	const uint64_t moved = s->moved;
	const double moving = move(s);
	const bool stale = s->stale && s->moved > moved;
	if (s->runs)
		assert_true(is_runs(s) && s->moved - moved <= s->blocks / 5);
	count_of(s, s->map, count);
	if (clean != NULL)
		*clean = clock_of(s, count);
	for (uint32_t i = 0; i < s->shards; i++) {
		double took = took_of(s, i, count[i]) * noise_of(s, i);
		took += s->hang_s > 0 && s->hangs == s->clock && i == 0 ? s->hang_s : 0;
		seen[i].waited = fmax(took - s->hidden, 0);
		seen[i].took = count[i] == 0 ? (double)NAN : took;
		if (s->lies > 0 && i == s->liar)
			seen[i].took *= s->lies;
		if (stale)
			seen[i] = (struct fal_psld_seen){ (double)NAN, 0 };
		t = fmax(t, fmax(took - s->hidden, 0));
	}
	const double seconds = s->work + t + moving;
	s->seconds += seconds;
	s->clock++;
	return fal_psld_clock(s->psld, seconds, seen);
}

/* A job of drawn size: transfer is most of a clock. */
static struct sim
draw(uint64_t seed, uint32_t *map)
{
	struct sim s = { .seed = seed };
	struct fal_rng g = rng(&s, 0);
	s.shards = 2 + fal_rng_below(&g, 7);
	s.blocks = 40 * s.shards + fal_rng_below(&g, seed % 10 == 0 ? 60000 : 600);
	s.workers = 1 + fal_rng_below(&g, 16);
	s.noise = 0.05 * (double)fal_rng_unit(&g);
	for (uint32_t i = 0; i < s.shards; i++)
		s.cost[i] = (1 + (seed % 2 == 0 ? 3 * (double)fal_rng_unit(&g) : 0)) /
			    s.blocks;
	/* As they should be: from one that must leave all that it has. */
	struct fal_level l[SHARDS + 1] = { { 0 } };
	uint32_t to[SHARDS + 1];
	for (uint32_t i = 0; i < s.shards; i++)
		l[i].cost = s.cost[i];
	l[s.shards] = (struct fal_level){ .cost = (double)INFINITY, .count = s.blocks };
	fal_level(l, s.shards + 1, s.blocks, to);
	for (uint32_t i = 0, b = 0; i < s.shards; i++)
		for (uint32_t k = 0; k < to[i]; k++)
			map[b++] = i;
	s.work = 0.2 * bound_of(&s, s.shards);
	s.fixed = 0.05 * s.work;
	return s;
}

enum { BLOCKS_MAX = 700000 };
static uint32_t first[BLOCKS_MAX];

/* A shard becomes k times slower, or all but one do: found within 5 clocks, and 90 % of
 * what can be won is won within 10 more. */
static void
change(bool runs)
{
	uint64_t found_most = 0, won_most = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		s.runs = s.stale = runs;
		struct fal_rng g = rng(&s, 1);
		uint64_t found = UINT64_MAX, won = UINT64_MAX;
		double clean, was = 0;
		begin(&s, first, false);
		for (uint64_t at = 30 + fal_rng_below(&g, 30); s.clock < at;)
			step(&s, &clean);
		const double by = 2.5 + 6 * (double)fal_rng_unit(&g);
		const uint32_t who = fal_rng_below(&g, s.shards);
		s.cost[who] *= by;
		const uint64_t from = s.clock;
		const double best = bound_of(&s, s.shards);
		for (uint64_t k = 0; k < 16; k++) {
			step(&s, &clean);
			was = k == 0 ? clean : was;
			/* It is said in the clock in which it is found. */
			if (found == UINT64_MAX && fal_psld_since(s.psld) == 0)
				found = s.clock - from;
			if (won == UINT64_MAX && clean - best <= 0.1 * (was - best))
				won = s.clock - from;
		}
		if (found > 5 || won > 15)
			fail_msg("seed %llu: shard %u of %u takes %.1f times as long: "
				 "found in clock %lld, won in clock %lld; %u blocks, "
				 "clocks "
				 "of %g, now %g, at best %g",
				 (unsigned long long)seed, who, s.shards, by,
				 (long long)found, (long long)won, s.blocks, was, clean,
				 best);
		found_most = found > found_most ? found : found_most;
		won_most = won > won_most ? won : won_most;
		end(&s);
	}
	printf("# %sa change is found within %llu clocks, 90 %% of the gain won within "
	       "%llu (%d seeds)\n",
	       runs ? "in runs: " : "", (unsigned long long)found_most,
	       (unsigned long long)won_most, SEEDS);
}

static void
test_change(void **state)
{
	(void)state;
	change(false);
}

/* The same where each shard has one run: no step moves more than a fifth. */
static void
test_runs(void **state)
{
	(void)state;
	change(true);
}

/* The shortest clock where shards are late: found by halvings. */
static double
bound_late(const struct sim *s)
{
	double low = 0, high = 1e3;
	for (int k = 0; k < 60; k++) {
		const double t = low + (high - low) / 2;
		uint64_t room = 0;
		for (uint32_t i = 0; i < s->shards; i++)
			room += (uint64_t)fmax(0, floor((t - s->fixed - s->late[i]) /
							s->cost[i]));
		*(room >= s->blocks ? &high : &low) = t;
	}
	return s->work + fmax(high - s->hidden, 0);
}

/* All that a shard sends comes later than before, whatever it has; blocks may have moved
 * just before: that is found as soon.  For less than 2 % of a clock nothing moves. */
static void
test_late(void **state)
{
	(void)state;
	uint64_t found_most = 0;
	unsigned slower = 0;
	double least = 1;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		struct fal_rng g = rng(&s, 6);
		uint64_t found = UINT64_MAX, won = UINT64_MAX;
		double clean, was = 0;
		s.noise *= 0.6;
		for (uint32_t b = 0; b < s.blocks; b++) /* evenly, whoever is faster */
			first[b] = (uint32_t)((uint64_t)b * s.shards / s.blocks);
		s.runs = s.stale = true;
		begin(&s, first, false);
		uint64_t at = 12 + fal_rng_below(&g, 40);
		while (s.clock < at)
			step(&s, &clean);
		/* Another one is faster, which nobody is in a hurry for. */
		const uint64_t moved = s.moved;
		s.cost[fal_rng_below(&g, s.shards)] *= seed % 2 == 0 ? 0.6 : 1;
		while (seed % 2 == 0 && s.moved == moved && s.clock < at + 30)
			step(&s, &clean);
		for (at = s.clock + fal_rng_below(&g, 4); s.clock < at;)
			step(&s, &clean);
		const uint32_t who = fal_rng_below(&g, s.shards);
		s.late[who] = (clean - s.work) * (0.5 + 1.5 * (double)fal_rng_unit(&g));
		const uint64_t from = s.clock;
		const double best = bound_late(&s);
		for (uint64_t k = 0; k < 16; k++) {
			step(&s, &clean);
			was = k == 0 ? clean : was;
			if (found == UINT64_MAX &&
			    fal_psld_since(s.psld) <= s.clock - from)
				found = s.clock - from;
			if (won == UINT64_MAX &&
			    clean - best <= 0.1 * (was - best) + 0.02 * best)
				won = s.clock - from;
		}
		const double part = (was - clean) / (was - best - 0.02 * best);
		slower += won > 15;
		least = fmin(least, part);
		if (found > 5 || part < 0.9)
			fail_msg("seed %llu: from clock %llu on shard %u of %u is late "
				 "by %g: found in clock %lld; %u blocks, clocks of %g, "
				 "now %g, at best %g",
				 (unsigned long long)seed, (unsigned long long)from, who,
				 s.shards, s.late[who], (long long)found, s.blocks, was,
				 clean, best);
		found_most = found > found_most ? found : found_most;
		end(&s);
	}
	printf("# who is late is found within %llu clocks; %u of %d seeds have not won "
	       "90 "
	       "%% in 15, but %.0f %%\n",
	       (unsigned long long)found_most, slower, SEEDS, 100 * least);
	assert_true(slower == 0);
}

/* A shard that was just given blocks gets slower and slower by itself: they leave, and
 * more. */
static void
test_given(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		struct fal_rng g = rng(&s, 5);
		double clean, was = 0;
		const uint32_t who = fal_rng_below(&g, s.shards);
		s.runs = s.stale = true;
		s.cost[who] *= 3 + 4 * (double)fal_rng_unit(&g);
		begin(&s, first, false);
		for (uint64_t at = 30 + fal_rng_below(&g, 30); s.clock < at;)
			step(&s, &clean);
		/* As fast as it was thought to be, for some clocks. */
		s.cost[who] /= 5;
		for (uint64_t at = s.clock + 4 + fal_rng_below(&g, 6); s.clock < at;)
			step(&s, &clean);
		s.cost[who] *= 2.5;
		for (uint64_t at = s.clock + 2 + fal_rng_below(&g, 3); s.clock < at;)
			step(&s, &clean);
		s.cost[who] *= 2 + 4 * (double)fal_rng_unit(&g);
		const double best = bound_of(&s, s.shards);
		const uint64_t from = s.clock;
		while (s.clock < from + 25) {
			step(&s, &clean);
			was = s.clock == from + 1 ? clean : was;
		}
		if (clean - best > 0.1 * (was - best))
			fail_msg("seed %llu: clocks of %g, after that %g, at best %g",
				 (unsigned long long)seed, was, clean, best);
		end(&s);
	}
}

/* Nothing changes: what is measured differs, and blocks stay where they are. */
static void
test_still(void **state)
{
	(void)state;
	uint64_t most = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		begin(&s, first, false);
		while (s.clock < 100)
			step(&s, NULL);
		const uint64_t was = s.moved;
		while (s.clock < 1100)
			step(&s, NULL);
		const uint64_t part = (s.moved - was) * 100 / s.blocks;
		most = part > most ? part : most;
		if (part > 20)
			fail_msg("seed %llu: %llu %% of %u blocks were moved in 1000 "
				 "clocks",
				 (unsigned long long)seed, (unsigned long long)part,
				 s.blocks);
		end(&s);
	}
	printf("# at most %llu %% of the blocks are moved in 1000 even clocks\n",
	       (unsigned long long)most);
}

/* All shards are alike, and have what they should; what is measured differs by a tenth,
 * from the first clock on: nobody is to wait any longer for that. */
static void
test_noise(void **state)
{
	(void)state;
	double worst = 0;
	uint64_t most = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(2 * seed + 1, first); /* of even speeds */
		struct fal_rng g = rng(&s, 4);
		uint32_t count[SHARDS];
		double clean, sum = 0;
		s.noise = 0.02 + 0.1 * (double)fal_rng_unit(&g);
		s.runs = s.stale = true;
		count_of(&s, first, count);
		const double even = clock_of(&s, count);
		begin(&s, first, false);
		while (s.clock < 100) {
			step(&s, &clean);
			sum += clean / 100;
		}
		worst = fmax(worst, sum / even - 1);
		const uint64_t part = s.moved * 100 / s.blocks;
		most = part > most ? part : most;
		if (part > 5 || sum / even > 1.02)
			fail_msg("seed %llu: %llu %% of %u blocks were moved, clocks of "
				 "%g "
				 "and not %g",
				 (unsigned long long)seed, (unsigned long long)part,
				 s.blocks, sum, even);
		end(&s);
	}
	printf("# at most %llu %% are moved for noise; clocks are longer by up to %.1f "
	       "%%\n",
	       (unsigned long long)most, 100 * worst);
}

/* Seconds of so many clocks under a map that stays. */
static double
static_s(const struct sim *like, const uint32_t *map, uint64_t clocks)
{
	struct sim s = *like;
	uint32_t count[SHARDS];
	double sum = 0;
	count_of(&s, map, count);
	for (s.clock = 0; s.clock < clocks; s.clock++) {
		double t = 0;
		for (uint32_t i = 0; i < s.shards; i++)
			t = fmax(t, took_of(&s, i, count[i]) * noise_of(&s, i));
		sum += s.work + fmax(t - s.hidden, 0);
	}
	return sum;
}

/* From any map, with and without shards that stand by: what is tried never costs more
 * than its budget. */
static void
test_budget(void **state)
{
	(void)state;
	double worst = 0;
	uint64_t trials = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		enum { CLOCKS = 1500 };
		struct sim s = draw(seed, first);
		struct fal_rng g = rng(&s, 2);
		s.hidden = seed % 4 == 0 ? 2 * s.work : 0;
		if (seed % 3 == 0 && s.shards < SHARDS - 2) {
			s.cost[s.shards] =
				s.cost[0] * (0.5 + 4 * (double)fal_rng_unit(&g));
			s.shards++;
		}
		begin(&s, first, true);
		while (s.clock < CLOCKS) {
			const enum fal_psld_act act = step(&s, NULL);
			trials += act >= FAL_PSLD_OUT && act <= FAL_PSLD_MOVE;
		}
		const double is = static_s(&s, first, CLOCKS);
		const double over = s.seconds / is - 1;
		worst = fmax(worst, over);
		/* Its budget; and what measuring wrong and a clock too many may be. */
		if (over > FAL_PSLD_BUDGET + 0.01)
			fail_msg("seed %llu: %.1f s, where the first map takes %.1f "
				 "(%+.2f %%)",
				 (unsigned long long)seed, s.seconds, is, 100 * over);
		end(&s);
	}
	assert_true(trials > SEEDS);
	printf("# %llu trials; never slower than the first map by more than %.2f %%\n",
	       (unsigned long long)trials, 100 * worst);
}

/* A shard that stands by is found out and used, one that is no good is not. */
static void
test_standby(void **state)
{
	(void)state;
	unsigned used = 0, n = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		const bool good = seed % 2 == 1;
		const double even = bound_of(&s, s.shards);
		s.cost[s.shards] = good ? s.cost[0] / 2 : 20 * s.cost[0];
		s.shards++;
		begin(&s, first, true);
		double clean = 0;
		while (s.clock < 3000) {
			double one;
			step(&s, &one);
			clean += s.clock > 2500 ? one / 500 : 0;
		}
		n += good;
		used += good && clean < even - 0.8 * (even - bound_of(&s, s.shards));
		if (!good && clean > 1.1 * even)
			fail_msg("seed %llu: clocks of %g, not %g",
				 (unsigned long long)seed, clean, even);
		end(&s);
	}
	printf("# of %u good shards that stood by %u are used\n", n, used);
	assert_true(used > n * 9 / 10);
}

/* Shards that are odd: the map is one, and no clock gets longer by more than it must. */
static void
test_odd(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		struct fal_rng g = rng(&s, 3);
		uint32_t count[SHARDS];
		double clean, late = 0;
		const uint32_t odd = (uint32_t)(seed % 4);
		const uint32_t who = fal_rng_below(&g, s.shards);
		if (odd == 0) { /* hangs for a hundred clocks */
			s.hangs = 40 + fal_rng_below(&g, 20);
			s.hang_s = 100;
		} else if (odd == 1) { /* has no room for more than it has */
			s.thrashes = who;
			s.by = 5;
			count_of(&s, first, count);
			s.room = count[who];
			for (uint32_t i = 0; i < s.shards; i++)
				s.cost[i] *= i == who ? 0.5 : 1;
		} else if (odd == 2) { /* is never seen to take any time */
			s.lies = 1e-9;
			s.liar = who;
		} else { /* only what nobody waits for */
			s.hidden = 100;
		}
		begin(&s, first, false);
		const double was = clock_of(&s, (count_of(&s, first, count), count));
		uint64_t moved = 0;
		for (; s.clock < 600;) {
			step(&s, &clean);
			late += s.clock > 100 && clean > 1.3 * was;
			moved = s.clock == 100 ? s.moved : moved;
		}
		if (odd == 3)
			assert_int_equal(s.moved, 0);
		/* One that has no room is given more once in 200 clocks. */
		if (late > 50 || s.moved - moved > 2 * s.blocks)
			fail_msg("seed %llu: odd %u: %.0f clocks are longer than at "
				 "first, "
				 "%llu of %u blocks moved",
				 (unsigned long long)seed, odd, late,
				 (unsigned long long)(s.moved - moved), s.blocks);
		end(&s);
	}
}

/* One shard alone; nothing is ever measured; nothing takes any time; never ends. */
static void
test_nothing(void **state)
{
	(void)state;
	const double took[] = { NAN, 0, INFINITY, -1 };
	for (uint32_t shards = 1; shards <= 3; shards++)
		for (unsigned i = 0; i < 4; i++) {
			uint32_t map[] = { 0, shards / 2, shards - 1 };
			const struct fal_psld_conf conf = {
				.blocks = 3, .shards = shards, .map = map, .tries = false
			};
			struct fal_psld *p = fal_psld_new(&conf);
			const struct fal_psld_seen one = { took[i], took[i] };
			const struct fal_psld_seen seen[] = { one, one, one };
			for (int k = 0; k < 200; k++)
				assert_int_equal(fal_psld_clock(p, 1, seen),
						 FAL_PSLD_STAY);
			assert_memory_equal(fal_psld_map(p), map, sizeof(map));
			fal_psld_free(p);
		}
}

/* One of three never answers: it has no block in the end. */
static void
test_never(void **state)
{
	(void)state;
	const uint32_t map[] = { 0, 0, 0, 1, 1, 1, 2, 2, 2 };
	const struct fal_psld_conf conf = { .blocks = 9, .shards = 3, .map = map };
	struct fal_psld *p = fal_psld_new(&conf);
	for (int k = 0; k < 20; k++) {
		struct fal_psld_seen seen[3];
		for (uint32_t i = 0; i < 3; i++) {
			const double took =
				i == 1 ? (double)INFINITY : 0.1 * fal_psld_count(p, i);
			seen[i] = (struct fal_psld_seen){ took, took };
		}
		fal_psld_clock(p, 1, seen);
	}
	assert_int_equal(fal_psld_count(p, 1), 0);
	assert_in_range(fal_psld_count(p, 0), 4, 5);
	fal_psld_free(p);
}

/* A model a hundred times larger is as good, and no clock takes a second. */
static void
test_large(void **state)
{
	(void)state;
	struct sim s = { .seed = 7, .shards = 16, .blocks = BLOCKS_MAX, .workers = 8 };
	const struct fal_place_model m = { .blocks = s.blocks, .block = BLOCK };
	for (uint32_t i = 0; i < s.shards; i++)
		s.cost[i] = 1.0 / s.blocks;
	s.noise = 0.03;
	fal_place(FAL_PLACE_BLOCKS, &m, s.shards, first);
	begin(&s, first, false);
	double clean;
	while (s.clock < 20)
		step(&s, &clean);
	s.cost[3] *= 4;
	while (s.clock < 35)
		step(&s, &clean);
	assert_true(clean < 1.1 * bound_of(&s, s.shards));
	end(&s);
}

/* ---- against the static rules ------------------------------------------------------ */

/* 4 shards, 4 workers and links that are 85 % of a clock; the causes of stragglers. */
enum cause { SKEW, LINK, COMPUTE, CAUSES };

static void
test_rules(void **state)
{
	(void)state;
	static const char *const name[] = { "one tensor with 90 % of the bytes",
					    "one shard at a quarter of the bandwidth",
					    "one shard computes 8 times as long" };
	for (enum cause c = SKEW; c < CAUSES; c++) {
		printf("# %s:\n", name[c]);
		for (int r = 0; r < FAL_PLACE_RULES; r++) {
			const enum fal_place_rule rule = (enum fal_place_rule)r;
			enum { CLOCKS = 400 };
			struct sim s = { .seed = 11, .shards = 4, .workers = 4 };
			/* A million floats in ten tensors; each below 10^6, 4,096,000
			 * bytes. */
			struct fal_place_tensor t[10];
			const uint32_t of[] = { 6, 10 };
			const uint32_t tensors = of[c != SKEW];
			uint64_t at = 0;
			for (uint32_t i = 0; i < tensors; i++) {
				t[i].count = c == SKEW && i == 3 ? 216
					     : c == SKEW         ? 4
								 : 24;
				t[i].count *= BLOCK;
				t[i].at = at;
				at += t[i].count;
			}
			s.blocks = (uint32_t)(at / BLOCK);
			/* A block's link, 16 kB eight times at 100 MB/s, and its
			 * computing, a quarter of that. */
			for (uint32_t i = 0; i < s.shards; i++)
				s.cost[i] = 1.3e-3 + 0.3e-3;
			if (c == LINK)
				s.cost[1] = 4 * 1.3e-3 + 0.3e-3;
			else if (c == COMPUTE)
				s.cost[1] = 1.3e-3 + 8 * 0.3e-3;
			s.fixed = 2e-3;
			s.work = 0.15 / 0.85 * s.blocks / 4 * 1.6e-3;
			s.noise = 0.05;
			const struct fal_place_model m = { s.blocks, BLOCK, t, tensors };
			fal_place(rule, &m, s.shards, first);
			begin(&s, first, true);
			double clean, last = 0;
			while (s.clock < CLOCKS) {
				step(&s, &clean);
				last += s.clock > CLOCKS - 100 ? clean / 100 : 0;
			}
			uint32_t count[SHARDS];
			count_of(&s, first, count);
			const double was = clock_of(&s, count);
			const double most = was / bound_of(&s, 4);
			/* From the first clock on, with all that was moved and tried. */
			const double up = static_s(&s, first, CLOCKS) / s.seconds;
			printf("#   %-10s %5.1f ms a clock, psld %5.1f; %.2f times as "
			       "fast over %d clocks (bound %.2f)\n",
			       fal_place_name(rule), 1e3 * was, 1e3 * last, up, CLOCKS,
			       most);
			if (up < 0.9 * most || (most >= 3.1 && up < 2.86))
				fail_msg("%s, %s: %.2f, bound %.2f", name[c],
					 fal_place_name(rule), up, most);
			end(&s);
		}
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_change),  cmocka_unit_test(test_runs),
		cmocka_unit_test(test_late),    cmocka_unit_test(test_given),
		cmocka_unit_test(test_still),   cmocka_unit_test(test_budget),
		cmocka_unit_test(test_standby), cmocka_unit_test(test_odd),
		cmocka_unit_test(test_nothing), cmocka_unit_test(test_never),
		cmocka_unit_test(test_noise),   cmocka_unit_test(test_large),
		cmocka_unit_test(test_rules),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
