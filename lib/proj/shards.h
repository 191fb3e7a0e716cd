/* Other shards: what the blocks on so many of them, each on a machine of its own, would
 * cost a fitted job.
 *
 * A shard serves a byte in the seconds that the coordinator does, by its speed; all serve
 * at once, so that a clock has the time of the slowest one.  Messages, and what an update
 * takes beside, stay the coordinator's.
 */
#ifndef FAL_PROJ_SHARDS_H
#define FAL_PROJ_SHARDS_H

#include "base/err.h"
#include "place/place.h"
#include "proj/cost.h"
#include "trace/shards.h"

#include <stdbool.h>

enum { FAL_SHARDS_PLAYED = 64 };

struct fal_shards {
	double speed[FAL_SHARDS_PLAYED]; /* times that of the coordinator's machine */
	uint32_t n;
};

/* So many shards as the trace shows them: the speed of each is that at which workers had
 * its blocks, and together they are as fast as so many machines like the coordinator's;
 * one of which nothing is known is as fast as the middle one. */
void fal_shards_seen(const struct fal_shard_rows *rows, uint32_t n,
		     struct fal_shards *out);
/* Reads N[,speed=X][;...].  FAL_EINVAL with `diag`: what is wrong, and the value. */
int fal_shards_get(const char *spec, struct fal_shards *out, struct fal_diag *diag);

/* How the blocks lie, and what follows. */
struct fal_shards_plan {
	double most;    /* the largest part of the blocks that a shard has */
	double slowest; /* seconds of the slowest one, by those of all blocks on one shard
			   with speed 1 */
	double bound;   /* of any placement of whole blocks: the same */
	uint64_t clocks; /* psld: until nothing moves any more */
	double moved;    /* psld: blocks, as a part of all */
};

/* By a static rule.  FAL_ENOMEM. */
int fal_shards_static(const struct fal_shards *s, const struct fal_place_model *m,
		      enum fal_place_rule rule, struct fal_shards_plan *out);
/* By psld, from our own even placement on, in clocks that are nothing but transfer.
 * FAL_ENOMEM. */
int fal_shards_psld(const struct fal_shards *s, const struct fal_place_model *m,
		    struct fal_shards_plan *out);

/* The job's costs are what they are with that. */
void fal_shards_cost(const struct fal_shards_plan *plan, struct fal_cost *c);

#endif
