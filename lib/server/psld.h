/* How many blocks each shard should have, by what workers waited for: after C. Chen et
 * al., "Elastic Parameter Server Load Distribution in Deep Learning Clusters", SoCC 2020,
 * which exploits what was measured and explores what was not.  Its rules are not public;
 * these are ours.
 *
 * Times of clocks in, numbers of blocks out.  A shard is as fast as workers saw it,
 * whatever it says of itself.  A shard without a block stands by.
 *
 * Exploit: the slowest shard is to be done soonest, at what a block took on each.  At
 * most a fifth of the blocks moves at a time, and no shard gets more than twice what it
 * has.  A gain counts up to what workers waited; nothing moves for less than 2 % of a
 * clock, or than the medians may be wrong by.
 *
 * Explore: where nothing is to be gained, a shard that stands by, and was not measured in
 * the last 300 clocks, gets a quarter of a mean share.  When that was measured it is
 * exploited; when all trials together have taken 2 % of the job's seconds the blocks go
 * back.
 *
 * A shard has changed when the median of three clocks is twice or half that of those
 * before: these are forgotten.  A shard that was given blocks and takes twice as long for
 * each then has no room for more than it had, for 300 clocks.
 *
 * Pure: no I/O, no clock.
 */
#ifndef FAL_SERVER_PSLD_H
#define FAL_SERVER_PSLD_H

#include <stdint.h>

enum { FAL_PSLD_SHARDS = 64 };

/* The part of the job's seconds that trials may take together. */
#define FAL_PSLD_BUDGET 0.02

/* A shard in a clock, as the middle worker saw it. */
struct fal_psld_seen {
	/* Seconds until the shard had all that workers pushed, and they had all of its
	 * blocks, without what moving took; NAN: it had none, or nobody can say */
	double took;
	double waited; /* of these, those in which workers did nothing else */
};

/* What follows from a clock. */
enum fal_psld_act {
	FAL_PSLD_STAY, /* all have what they had */
	FAL_PSLD_PLACE,
	FAL_PSLD_OUT, /* one shard more is tried, */
	FAL_PSLD_BACK /* and has none again: that took too long */
};

struct fal_psld; /* opaque */

/* Shards, those that stand by, too, and their blocks. */
struct fal_psld *fal_psld_new(const uint32_t *count, uint32_t shards);
void fal_psld_free(struct fal_psld *p);

/* A clock is over, of so many seconds; `seen`: of each shard.  Unless the answer is
 * FAL_PSLD_STAY other numbers hold from the next clock on. */
enum fal_psld_act fal_psld_clock(struct fal_psld *p, double seconds,
				 const struct fal_psld_seen *seen);

/* How many blocks the shard is to have. */
uint32_t fal_psld_count(const struct fal_psld *p, uint32_t shard);

/* Divides `blocks` among n shards, into `to`, so that the slowest shard is done soonest:
 * a block takes shard i cost[i] > 0 seconds (INFINITY: the shard gets none), and the
 * shard may have most[i] blocks (NULL: all).  Returns the seconds of the slowest shard;
 * INFINITY: there is no room for all blocks. */
double fal_psld_level(const double *cost, const uint32_t *most, uint32_t n,
		      uint32_t blocks, uint32_t *to);

#endif
