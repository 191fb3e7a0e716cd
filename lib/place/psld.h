/* Blocks are moved between shards while the job runs, by what workers really waited for:
 * after C. Chen et al., "Elastic Parameter Server Load Distribution in Deep Learning
 * Clusters", SoCC 2020, whose rules are not public; these are ours.
 *
 * Times of clocks in, maps out.  A shard is as fast as workers saw it, whatever it says
 * of itself.  A shard without a block stands by.
 *
 * change    the median of three clocks is twice, or half, what a block took on a shard
 *           before; or the clock takes 15 % longer, be it under the map before.  What was
 *           before is forgotten then, of shards that differ by as much, and blocks are
 *           placed anew for each of the next 15 clocks, else each 10th:
 * late      a shard that had other numbers of blocks takes so long for each as these say,
 *           and besides as long as it does whatever it has.  That counts only where it
 *           is to have fewer, and no farther below what it had than it was seen; the last
 *           block leaves it alone.  Nor is it given more than as many again at a time.
 * exploit   so that the slowest shard, at what a block took on each, is done soonest;
 *           moving at most 20 % of the blocks after a change, else 10 %.  Not for less
 *           than 2 % of a clock, what workers did not wait, what a median of so many
 *           measurements may be wrong by, or what moving takes of 200 clocks.
 * explore   where that leaves all as it is, with a probability of 0.3 that falls by a
 *           tenth each time until something changes: a shard that stands by gets a
 *           quarter of a mean share, the one that takes longest for a block gets none, or
 *           an eighth of a shard's blocks goes to another.  Which one: UCB1.  After 10
 *           clocks that is kept if clocks are 2 % shorter, or would be if the new shard
 *           had its share, or else rolled back; at once, if they are 15 % longer, or all
 *           trials together have taken 2 % of the job's seconds.
 *
 * Whoever is given more blocks, and takes twice as long for each then, has no room for
 * them: for 200 clocks it has as many as before, unless it changes by itself.
 *
 * Pure: no I/O, no clock.
 */
#ifndef FAL_PLACE_PSLD_H
#define FAL_PLACE_PSLD_H

#include <stdbool.h>
#include <stdint.h>

enum { FAL_PSLD_SHARDS = 64 };

/* Part of the job's seconds that trials may take, all together. */
#define FAL_PSLD_BUDGET 0.02

struct fal_psld_conf {
	uint32_t blocks, shards; /* shards: those that stand by, too */
	const uint32_t *map;     /* to begin with, by block; copied */
	uint64_t seed;           /* of what is tried */
	bool tries;              /* explore, too */
	/* A shard has one run of blocks, in the order of the shards, as `map` has: to
	 * give some to another moves all those between, and a step is as much smaller. */
	bool runs;
};

/* A shard in a clock, as workers saw it: the middle one of them.  What it says of itself
 * is no part of this. */
struct fal_psld_seen {
	/* Seconds until it had all that they pushed, and they all of its blocks, without
	 * what moving took; NAN: it had none, or nobody can say */
	double took;
	double waited; /* of these, those in which they did nothing else */
};

/* What follows from a clock. */
enum fal_psld_act {
	FAL_PSLD_STAY, /* the map is as it was */
	FAL_PSLD_PLACE,
	FAL_PSLD_OUT, /* one shard more is tried, */
	FAL_PSLD_IN,  /* one less, */
	FAL_PSLD_MOVE,
	FAL_PSLD_BACK /* what was tried is rolled back */
};

struct fal_psld; /* opaque */

struct fal_psld *fal_psld_new(const struct fal_psld_conf *conf); /* NULL: no memory */
void fal_psld_free(struct fal_psld *p);

/* A clock is over, of so many seconds, under the map; `seen`: of each shard.  Unless it
 * is FAL_PSLD_STAY there is another map, which holds from the next clock on. */
enum fal_psld_act fal_psld_clock(struct fal_psld *p, double seconds,
				 const struct fal_psld_seen *seen);

/* The map, by block, borrowed until the next clock; how many blocks a shard has. */
const uint32_t *fal_psld_map(const struct fal_psld *p);
uint32_t fal_psld_count(const struct fal_psld *p, uint32_t shard);
/* Clocks since the last change was found, 0: in the last one; UINT64_MAX: none was. */
uint64_t fal_psld_since(const struct fal_psld *p);

#endif
