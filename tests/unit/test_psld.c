/* PSLD against shards in virtual time, with random speeds, links, noise and changes.  The
 * noise of clock k at shard j is the same for every placement, so each placement meets
 * the same slowness.  A clock is the workers' computing, then all shards at once: psld
 * gets what workers would measure.  Epochs are not a question here. */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "base/rng.h"
#include "server/psld.h"

#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { SHARDS = 16, SEEDS = 80 };

struct sim {
	uint64_t seed;
	uint32_t blocks, shards;
	double cost[SHARDS]; /* seconds of a block: its transfer, and its computing */
	double fixed;        /* seconds of a shard whatever its blocks: round trips */
	double work;         /* seconds in which workers compute */
	double hidden;       /* seconds of a transfer that computing hides */
	double noise;        /* standard deviation, as a part */
	uint32_t workers;
	/* A shard that is this many times slower for each block if it has more blocks
	 * than this; a shard that always reports 0 seconds. */
	uint32_t thrashes, room;
	double by;
	uint32_t liar;
	double lies; /* reported time, as a part of the true time */
	uint64_t hangs;
	double hang_s;
	bool steps; /* no trials: a fifth of the blocks moves at most */
	bool stale; /* workers' reports after a move are about the time before it */

	struct fal_psld *psld;
	uint64_t clock;
	uint32_t count[SHARDS];
	double seconds; /* so far */
	uint64_t moved; /* blocks, so far */
};

static struct fal_rng
rng(const struct sim *s, uint32_t n)
{
	return fal_rng_init(s->seed, FAL_RNG_TEST, n);
}

/* This clock's transfer time with the shard in units of its mean; about 1. */
static double
noise_of(const struct sim *s, uint32_t shard)
{
	struct fal_rng g = rng(s, 1000 + (uint32_t)(s->clock * SHARDS + shard));
	const double u = (double)fal_rng_unit(&g), v = (double)fal_rng_unit(&g);
	/* Box and Muller. */
	return exp(s->noise * sqrt(-2 * log(1 - u)) * cos(2 * acos(-1) * v));
}

static double
took_of(const struct sim *s, uint32_t shard, uint32_t count)
{
	const bool slow = s->by > 0 && shard == s->thrashes && count > s->room;
	return count == 0 ? 0 : s->fixed + count * s->cost[shard] * (slow ? s->by : 1);
}

/* The seconds of a clock without noise under these numbers. */
static double
clock_of(const struct sim *s, const uint32_t *count)
{
	double t = 0;
	for (uint32_t i = 0; i < s->shards; i++)
		t = fmax(t, took_of(s, i, count[i]));
	return s->work + fmax(t - s->hidden, 0);
}

/* The shortest clock of any placement on the first n shards: the bound. */
static double
bound_of(const struct sim *s, uint32_t n)
{
	uint32_t to[SHARDS];
	return s->work + fmax(s->fixed + fal_psld_level(s->cost, NULL, n, s->blocks, to) -
				      s->hidden,
			      0);
}

static void
begin(struct sim *s, const uint32_t *count)
{
	s->psld = fal_psld_new(count, s->shards);
	memcpy(s->count, count, s->shards * sizeof(*count));
}

static void
end(struct sim *s)
{
	fal_psld_free(s->psld);
}

/* Blocks of run `was` that are in run `is`. */
static uint32_t
both(uint32_t was, uint32_t had, uint32_t is, uint32_t has)
{
	const uint32_t from = was > is ? was : is,
		       to = was + had < is + has ? was + had : is + has;
	return from < to ? to - from : 0;
}

/* The blocks that move, and their seconds: once over the slowest link on their way, which
 * a clock uses twice for each worker. */
static double
move(struct sim *s)
{
	double t = 0;
	for (uint32_t i = 0, was = 0, is = 0; i < s->shards; i++) {
		const uint32_t had = s->count[i], has = fal_psld_count(s->psld, i),
			       stay = both(was, had, is, has);
		s->moved += has - stay;
		t = fmax(t, (had + has - 2 * stay) * s->cost[i] / (2 * s->workers));
		was += had;
		is += has;
	}
	for (uint32_t i = 0; i < s->shards; i++)
		s->count[i] = fal_psld_count(s->psld, i);
	return t;
}

/* Plays one clock under the map; returns its seconds, and sets `clean` to those without
 * noise. */
static enum fal_psld_act
step(struct sim *s, double *clean)
{
	const uint32_t *count = s->count;
	struct fal_psld_measurement seen[SHARDS];
	double t = 0;
	const uint64_t moved = s->moved;
	const double moving = move(s);
	const bool stale = s->stale && s->moved > moved;
	if (s->steps)
		assert_true(s->moved - moved <= s->blocks / 5);
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
			seen[i] = (struct fal_psld_measurement){ (double)NAN, 0 };
		t = fmax(t, fmax(took - s->hidden, 0));
	}
	const double seconds = s->work + t + moving;
	s->seconds += seconds;
	s->clock++;
	return fal_psld_clock(s->psld, seconds, seen);
}

/* A job of random size: transfer is most of a clock. */
static struct sim
draw(uint64_t seed, uint32_t *count)
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
	/* Places blocks as they should be. */
	fal_psld_level(s.cost, NULL, s.shards, s.blocks, count);
	memset(count + s.shards, 0, (SHARDS - s.shards) * sizeof(*count));
	s.work = 0.2 * bound_of(&s, s.shards);
	s.fixed = 0.05 * s.work;
	return s;
}

static uint32_t first[SHARDS];

/* A shard becomes k times slower, or all but one do: found within 5 clocks, and 90 % of
 * the possible gain is reached within 10 more. */
static void
change(bool stale)
{
	uint64_t found_most = 0, won_most = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		s.steps = true;
		s.stale = stale;
		struct fal_rng g = rng(&s, 1);
		uint64_t found = UINT64_MAX, won = UINT64_MAX;
		double clean, was = 0;
		begin(&s, first);
		for (uint64_t at = 30 + fal_rng_below(&g, 30); s.clock < at;)
			step(&s, &clean);
		const double by = 2.5 + 6 * (double)fal_rng_unit(&g);
		const uint32_t who = fal_rng_below(&g, s.shards);
		s.cost[who] *= by;
		const uint64_t from = s.clock, moved = s.moved;
		const double best = bound_of(&s, s.shards);
		for (uint64_t k = 0; k < 16; k++) {
			step(&s, &clean);
			was = k == 0 ? clean : was;
			if (found == UINT64_MAX && s.moved > moved)
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
	       stale ? "by half of the clocks: " : "", (unsigned long long)found_most,
	       (unsigned long long)won_most, SEEDS);
}

static void
test_change(void **state)
{
	(void)state;
	change(false);
}

/* The same without a measurement of the clock behind a move. */
static void
test_stale(void **state)
{
	(void)state;
	change(true);
}

/* A shard that was just given blocks gets slower and slower by itself: it loses them, and
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
		s.stale = true;
		s.cost[who] *= 3 + 4 * (double)fal_rng_unit(&g);
		begin(&s, first);
		for (uint64_t at = 30 + fal_rng_below(&g, 30); s.clock < at;)
			step(&s, &clean);
		/* For some clocks the shard is as fast as expected. */
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

/* Nothing changes but the measurements: blocks stay where they are. */
static void
test_still(void **state)
{
	(void)state;
	uint64_t most = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		begin(&s, first);
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

/* All shards are alike, and have equal numbers of blocks; measurements differ by a tenth
 * from the first clock on.  Clocks must not get longer. */
static void
test_noise(void **state)
{
	(void)state;
	double worst = 0;
	uint64_t most = 0;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(2 * seed + 1, first); /* of even speeds */
		struct fal_rng g = rng(&s, 4);
		double clean, sum = 0;
		s.noise = 0.02 + 0.1 * (double)fal_rng_unit(&g);
		s.stale = true;
		const double even = clock_of(&s, first);
		begin(&s, first);
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

/* The seconds of `clocks` clocks under a constant map. */
static double
static_s(const struct sim *like, const uint32_t *count, uint64_t clocks)
{
	struct sim s = *like;
	double sum = 0;
	for (s.clock = 0; s.clock < clocks; s.clock++) {
		double t = 0;
		for (uint32_t i = 0; i < s.shards; i++)
			t = fmax(t, took_of(&s, i, count[i]) * noise_of(&s, i));
		sum += s.work + fmax(t - s.hidden, 0);
	}
	return sum;
}

/* From any map, with and without standby shards: trials never cost more than their
 * budget. */
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
		begin(&s, first);
		while (s.clock < CLOCKS) {
			const enum fal_psld_act act = step(&s, NULL);
			trials += act == FAL_PSLD_TRY;
		}
		const double is = static_s(&s, first, CLOCKS);
		const double over = s.seconds / is - 1;
		worst = fmax(worst, over);
		/* The budget, plus the cost of wrong measurements and of one clock too
		 * many. */
		if (over > FAL_PSLD_BUDGET + 0.01)
			fail_msg("seed %llu: %.1f s, where the first map takes %.1f "
				 "(%+.2f %%)",
				 (unsigned long long)seed, s.seconds, is, 100 * over);
		end(&s);
	}
	assert_true(trials > SEEDS / 3);
	printf("# %llu trials; never slower than the first map by more than %.2f %%\n",
	       (unsigned long long)trials, 100 * worst);
}

/* A good standby shard is found and used, a useless one is not. */
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
		begin(&s, first);
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

/* Odd shards: the map stays valid, and no clock gets longer than it must. */
static void
test_odd(void **state)
{
	(void)state;
	for (uint64_t seed = 1; seed <= SEEDS; seed++) {
		struct sim s = draw(seed, first);
		struct fal_rng g = rng(&s, 3);
		double clean, late = 0;
		const uint32_t odd = (uint32_t)(seed % 4);
		const uint32_t who = fal_rng_below(&g, s.shards);
		if (odd == 0) { /* hangs for a hundred clocks */
			s.hangs = 40 + fal_rng_below(&g, 20);
			s.hang_s = 100;
		} else if (odd == 1) { /* has no room for more than it has */
			s.thrashes = who;
			s.by = 5;
			s.room = first[who];
			for (uint32_t i = 0; i < s.shards; i++)
				s.cost[i] *= i == who ? 0.5 : 1;
		} else if (odd == 2) { /* always measured as 0 seconds */
			s.lies = 1e-9;
			s.liar = who;
		} else { /* only the part that no worker waits for */
			s.hidden = 100;
		}
		begin(&s, first);
		const double was = clock_of(&s, first);
		uint64_t moved = 0;
		for (; s.clock < 600;) {
			step(&s, &clean);
			late += s.clock > 100 && clean > 1.3 * was;
			moved = s.clock == 100 ? s.moved : moved;
		}
		if (odd == 3)
			assert_int_equal(s.moved, 0);
		/* A full shard is given more blocks once in 300 clocks. */
		if (late > 50 || s.moved - moved > 2 * s.blocks)
			fail_msg("seed %llu: odd %u: %.0f clocks are longer than at "
				 "first, "
				 "%llu of %u blocks moved",
				 (unsigned long long)seed, odd, late,
				 (unsigned long long)(s.moved - moved), s.blocks);
		end(&s);
	}
}

/* One shard alone; no measurements; measurements of 0; of infinity. */
static void
test_nothing(void **state)
{
	(void)state;
	const double took[] = { NAN, 0, INFINITY, -1 };
	const uint32_t count[3][3] = { { 3 }, { 1, 2 }, { 1, 1, 1 } };
	for (uint32_t shards = 1; shards <= 3; shards++)
		for (unsigned i = 0; i < 4; i++) {
			struct fal_psld *p = fal_psld_new(count[shards - 1], shards);
			const struct fal_psld_measurement one = { took[i], took[i] };
			const struct fal_psld_measurement seen[] = { one, one, one };
			for (int k = 0; k < 200; k++)
				assert_int_equal(fal_psld_clock(p, 1, seen),
						 FAL_PSLD_STAY);
			for (uint32_t k = 0; k < shards; k++)
				assert_int_equal(fal_psld_count(p, k),
						 count[shards - 1][k]);
			fal_psld_free(p);
		}
}

/* One of three never answers: it has no block in the end. */
static void
test_never(void **state)
{
	(void)state;
	const uint32_t count[] = { 3, 3, 3 };
	struct fal_psld *p = fal_psld_new(count, 3);
	for (int k = 0; k < 20; k++) {
		struct fal_psld_measurement seen[3];
		for (uint32_t i = 0; i < 3; i++) {
			const double took =
				i == 1 ? (double)INFINITY : 0.1 * fal_psld_count(p, i);
			seen[i] = (struct fal_psld_measurement){ took, took };
		}
		fal_psld_clock(p, 1, seen);
	}
	assert_int_equal(fal_psld_count(p, 1), 0);
	assert_in_range(fal_psld_count(p, 0), 4, 5);
	fal_psld_free(p);
}

/* A model a hundred times larger is placed as well, in less than a second for each clock.
 */
static void
test_large(void **state)
{
	(void)state;
	struct sim s = { .seed = 7, .shards = 16, .blocks = 700000, .workers = 8 };
	for (uint32_t i = 0; i < s.shards; i++) {
		s.cost[i] = 1.0 / s.blocks;
		first[i] = s.blocks / s.shards;
	}
	s.noise = 0.03;
	begin(&s, first);
	double clean;
	while (s.clock < 20)
		step(&s, &clean);
	s.cost[3] *= 4;
	while (s.clock < 35)
		step(&s, &clean);
	assert_true(clean < 1.1 * bound_of(&s, s.shards));
	end(&s);
}

/* ---- against maps that stay -------------------------------------------------------- */

/* 4 shards, 4 workers and links that are 85 % of a clock; the causes of stragglers. */
enum cause { SKEW, LINK, COMPUTE, CAUSES };

static void
test_static(void **state)
{
	(void)state;
	static const char *const name[] = { "one shard has 90 % of the blocks",
					    "one shard at a quarter of the bandwidth",
					    "one shard computes 8 times as long" };
	for (enum cause c = SKEW; c < CAUSES; c++) {
		enum { CLOCKS = 400 };
		struct sim s = { .seed = 11, .shards = 4, .workers = 4, .blocks = 240 };
		/* A block's link, 16 kB eight times at 100 MB/s, and its computing, a
		 * quarter of that. */
		for (uint32_t i = 0; i < s.shards; i++) {
			s.cost[i] = 1.3e-3 + 0.3e-3;
			first[i] = c != SKEW ? 60 : i == 3 ? 216 : 8;
		}
		if (c == LINK)
			s.cost[1] = 4 * 1.3e-3 + 0.3e-3;
		else if (c == COMPUTE)
			s.cost[1] = 1.3e-3 + 8 * 0.3e-3;
		s.fixed = 2e-3;
		s.work = 0.15 / 0.85 * s.blocks / 4 * 1.6e-3;
		s.noise = 0.05;
		begin(&s, first);
		double clean, last = 0;
		while (s.clock < CLOCKS) {
			step(&s, &clean);
			last += s.clock > CLOCKS - 100 ? clean / 100 : 0;
		}
		const double was = clock_of(&s, first), most = was / bound_of(&s, 4);
		/* From the first clock on, moves and trials included. */
		const double up = static_s(&s, first, CLOCKS) / s.seconds;
		printf("# %s: %5.1f ms a clock, psld %5.1f; %.2f times as fast over %d "
		       "clocks (bound %.2f)\n",
		       name[c], 1e3 * was, 1e3 * last, up, CLOCKS, most);
		if (up < 0.9 * most || (most >= 3.1 && up < 2.86))
			fail_msg("%s: %.2f, bound %.2f", name[c], up, most);
		end(&s);
	}
}

/* ---- levels ------------------------------------------------------------------------ */

/* The least possible time of the slowest shard, one block after the other. */
static double
best_of(const double *cost, const uint32_t *most, uint32_t n, uint32_t blocks)
{
	uint32_t has[SHARDS] = { 0 };
	double t = 0;
	for (uint32_t b = 0; b < blocks; b++) {
		uint32_t to = n;
		for (uint32_t i = 0; i < n; i++)
			if (has[i] < most[i] &&
			    (to == n ||
			     (has[i] + 1) * cost[i] < (has[to] + 1) * cost[to]))
				to = i;
		if (to == n)
			return (double)INFINITY;
		t = fmax(t, ++has[to] * cost[to]);
	}
	return t;
}

/* The slowest shard finishes as soon as whole blocks allow, and no shard has more than
 * its limit. */
static void
test_level(void **state)
{
	(void)state;
	unsigned full = 0;
	for (uint64_t seed = 1; seed <= 1000; seed++) {
		struct fal_rng g = fal_rng_init(seed, FAL_RNG_TEST, 1);
		const uint32_t n = 1 + fal_rng_below(&g, SHARDS);
		const uint32_t blocks = 1 + fal_rng_below(&g, seed % 5 == 0 ? 3 : 1000);
		const bool any = seed % 2 == 0;
		double cost[SHARDS], t = 0;
		uint32_t to[SHARDS], most[SHARDS], sum = 0;
		for (uint32_t i = 0; i < n; i++) {
			cost[i] = 1 / (0.01 + (double)fal_rng_unit(&g));
			if (fal_rng_below(&g, 12) == 0)
				cost[i] = (double)INFINITY;
			most[i] = any ? blocks : fal_rng_below(&g, 3 * blocks / n + 2);
			if (isinf(cost[i]))
				most[i] = 0;
		}
		const double is = fal_psld_level(cost, any ? NULL : most, n, blocks, to);
		const double best = best_of(cost, most, n, blocks);
		if (isinf(best)) {
			assert_true(isinf(is));
			full++;
			continue;
		}
		for (uint32_t i = 0; i < n; i++) {
			assert_true(to[i] <= most[i]);
			t = fmax(t, to[i] > 0 ? to[i] * cost[i] : 0);
			sum += to[i];
		}
		assert_int_equal(sum, blocks);
		if (!(t <= best * (1 + 1e-6)) || fabs(is - best) > best * 1e-6)
			fail_msg(
				"seed %llu: %u blocks on %u shards take %g, said %g, not "
				"%g",
				(unsigned long long)seed, blocks, n, t, is, best);
	}
	assert_in_range(full, 1, 500);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_change), cmocka_unit_test(test_stale),
		cmocka_unit_test(test_given),  cmocka_unit_test(test_still),
		cmocka_unit_test(test_budget), cmocka_unit_test(test_standby),
		cmocka_unit_test(test_odd),    cmocka_unit_test(test_nothing),
		cmocka_unit_test(test_never),  cmocka_unit_test(test_noise),
		cmocka_unit_test(test_large),  cmocka_unit_test(test_static),
		cmocka_unit_test(test_level),
	};
	cmocka_set_message_output(CM_OUTPUT_TAP);
	return cmocka_run_group_tests(tests, NULL, NULL);
}
