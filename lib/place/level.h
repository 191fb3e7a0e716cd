/* Blocks between shards of known speed, so that the slowest is done soonest.  All blocks
 * are alike; numbers of them are all there is here.
 *
 * Pure: no memory of its own, no I/O, no clock.
 */
#ifndef FAL_PLACE_LEVEL_H
#define FAL_PLACE_LEVEL_H

#include <stdint.h>

enum { FAL_LEVEL_MAX = 65 }; /* shards: of a job, and one */

/* A shard. */
struct fal_level {
	uint32_t count; /* blocks that it has */
	double cost;    /* seconds that each takes, above 0; INFINITY: it should have
			   none; NAN: not known, it keeps what it has */
	double late;    /* seconds before the first of them, whatever it has */
	double more;    /* above 0: if it has more than `knee`, each takes so much */
	uint32_t knee;
};

/* Moves at most `most` blocks: `to` is how many each has then.  Returns the seconds of
 * the slowest shard, if any number of blocks could be moved, which no whole blocks are
 * below; INFINITY: there is none that could have all.  O(n), and no sorting: by halvings.
 */
double fal_level(const struct fal_level *s, uint32_t n, uint32_t most, uint32_t *to);

/* Seconds of the slowest one as they are; those of unknown cost do not count. */
double fal_level_slowest(const struct fal_level *s, uint32_t n);

#endif
