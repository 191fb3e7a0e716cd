/* Parameter server load distribution (PSLD): decides how many blocks each shard should
 * have, by the time that workers waited for each shard.  After C. Chen et al., "Elastic
 * Parameter Server Load Distribution in Deep Learning Clusters", SoCC 2020, which
 * exploits measurements and explores where there are none.  The paper's rules are not
 * public; these rules are ours.
 *
 * Input: times of clocks.  Output: numbers of blocks.  Only workers' measurements of a
 * shard count, not what the shard says of itself.  A shard without a block is on standby.
 *
 * Exploit: place blocks so that the slowest shard finishes soonest, at the measured time
 * of a block on each shard.  At most a fifth of the blocks moves at a time, and no shard
 * gets more than twice its blocks.  A gain counts as no more than the time that workers
 * waited.  A gain of less than 2 % of a clock, or less than the error of the medians,
 * moves nothing.
 *
 * Explore: if no gain is left, a standby shard that was not measured in the last 300
 * clocks gets a quarter of a mean share, as a trial.  Once measured, the shard takes part
 * in the exploitation.  When all trials together have taken 2 % of the job's seconds, the
 * blocks go back.
 *
 * A shard has changed when the median of its last three clocks is twice or half the
 * median before; the earlier measurements are then dropped.  A shard that gets blocks and
 * then takes twice as long for each block is full: for 300 clocks the shard gets no more
 * blocks than before.
 *
 * Pure: no I/O, no clock. */
#ifndef FAL_SERVER_PSLD_H
#define FAL_SERVER_PSLD_H

#include <stdint.h>

enum { FAL_PSLD_SHARDS = 64 };

/* The part of the job's seconds that trials may take together. */
#define FAL_PSLD_BUDGET 0.02

/* A shard in one clock, as the median worker measured it. */
struct fal_psld_measurement {
	/* Seconds until the shard had all pushes of the workers and the workers had all
	 * blocks of the shard, without the time of moves; NAN: the shard has no blocks,
	 * or was not measured */
	double took;
	double waited; /* the part of `took` in which workers did nothing else */
};

/* The decision after a clock. */
enum fal_psld_act {
	FAL_PSLD_STAY, /* no change */
	FAL_PSLD_PLACE,
	FAL_PSLD_TRY,   /* a trial of one more shard begins */
	FAL_PSLD_REVERT /* the trial took too long: the blocks go back */
};

struct fal_psld; /* opaque */

/* `count`: the blocks of each shard, standby shards included. */
struct fal_psld *fal_psld_new(const uint32_t *count, uint32_t shards);
void fal_psld_free(struct fal_psld *p);

/* Takes the measurements of a clock of `seconds`; `seen`: by shard.  Unless the answer is
 * FAL_PSLD_STAY, fal_psld_count changes from the next clock on. */
enum fal_psld_act fal_psld_clock(struct fal_psld *p, double seconds,
				 const struct fal_psld_measurement *seen);

/* Returns the number of blocks that the shard is to have. */
uint32_t fal_psld_count(const struct fal_psld *p, uint32_t shard);

/* Divides `blocks` among n shards, into `to`, so that the slowest shard finishes soonest.
 * Shard i needs cost[i] > 0 seconds for each block (INFINITY: the shard gets none), and
 * may have at most most[i] blocks (NULL: all shards may have all).  Returns the seconds
 * of the slowest shard; INFINITY: the shards have no room for all blocks. */
double fal_psld_level(const double *cost, const uint32_t *most, uint32_t n,
		      uint32_t blocks, uint32_t *to);

#endif
