/* The order of samples in an epoch (falcon-data(7) defines the order): the sample at each
 * place 0 … n-1, as a pure function of seed, epoch and geometry, equal everywhere; and
 * batches of normalised samples by place.
 */
#ifndef FAL_JOB_ORDER_H
#define FAL_JOB_ORDER_H

#include "job/chunk.h"
#include "sched/grid.h"

enum fal_shuffle {
	FAL_SHUFFLE_NONE = 0, /* place = sample id: for evaluation */
	FAL_SHUFFLE_WINDOW,   /* chunks, then samples within groups of 8 chunks */
	FAL_SHUFFLE_FULL,     /* all samples */
	FAL_SHUFFLE_PARTS     /* the samples of each partition among its own places */
};

enum {
	FAL_ORDER_GROUP = 8 /* chunks of a group of FAL_SHUFFLE_WINDOW */
};

/* The arguments of an order. */
struct fal_order_opts {
	uint64_t seed;
	uint32_t epoch;
	uint32_t n;         /* samples, 1 … 2^31 */
	uint32_t per_chunk; /* samples a chunk, ≥ 1 */
	enum fal_shuffle shuffle;
	/* Only for FAL_SHUFFLE_PARTS. */
	const struct fal_grid *grid; /* borrowed; its parts are the partitions' places */
	const uint32_t *labels; /* n, borrowed: partitions by label; NULL: at random */
};

struct fal_order {
	uint32_t n;
	uint32_t *id; /* n sample ids by place; NULL: place = sample id */
};

/* Makes the order: n·4 bytes (none for FAL_SHUFFLE_NONE; FAL_SHUFFLE_PARTS needs n·4
 * bytes more meanwhile), about 10 ns a sample.  Free with fal_order_free.  FAL_EINVAL:
 * options outside their range.  A lack of memory ends the program. */
int fal_order_init(struct fal_order *o, const struct fal_order_opts *opts);
void fal_order_free(struct fal_order *o); /* `o` is {0} again */

/* Returns the sample at `place` (< n). */
static inline uint32_t
fal_order_at(const struct fal_order *o, uint32_t place)
{
	return o->id != NULL ? o->id[place] : place;
}

/* ---- batches: the input of a network for a range of places ---- */

enum { FAL_NORM_CHANNELS = 16 };

/* x = (value - mean) / std in float arithmetic; for bytes x = (byte / 255 - mean) / std,
 * from the table.  A value type. */
struct fal_norm {
	uint32_t channels; /* 1: the same for every channel */
	float mean[FAL_NORM_CHANNELS], std[FAL_NORM_CHANNELS];
	float table[FAL_NORM_CHANNELS][256];
};

/* Makes the tables for `channels` means and standard deviations (borrowed).  FAL_EINVAL:
 * channels is not 1 … FAL_NORM_CHANNELS, a value is not finite, or a std ≤ 0. */
int fal_norm_init(struct fal_norm *norm, uint32_t channels, const float *mean,
		  const float *std);

/* The source of a lane's samples; all borrowed. */
struct fal_batch {
	const struct fal_samples *samples;
	const struct fal_order *order; /* of these samples */
	const struct fal_norm *norm;   /* one channel, or fal_part_channels */
};

/* Fills x (count × values floats) and label (count: classes, or the bits of targets) with
 * the samples at the places first … first+count-1.  FAL_ENOENT (a chunk is missing; x and
 * label are partly written), FAL_EINVAL (places beyond the order; an order or channels
 * that do not fit the samples). */
int fal_batch_fill(const struct fal_batch *b, uint32_t first, uint32_t count, float *x,
		   uint32_t *label);

/* As fal_batch_fill, for samples of whole numbers without normalisation: x gets count ×
 * values numbers.  Also FAL_EINVAL for samples of another type. */
int fal_batch_fill_integers(const struct fal_batch *b, uint32_t first, uint32_t count,
			    int64_t *x, uint32_t *label);

#endif
