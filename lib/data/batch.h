/* From bytes to what a network eats: normalised float samples and labels of a range of
 * places.
 */
#ifndef FAL_DATA_BATCH_H
#define FAL_DATA_BATCH_H

#include "data/order.h"
#include "data/samples.h"

#include <stdint.h>

enum { FAL_NORM_CHANNELS = 16 };

/* x = (value - mean) / std in float arithmetic, and of bytes x = (byte / 255 - mean) /
 * std, by table; a value type. */
struct fal_norm {
	uint32_t channels; /* 1: the same for every channel */
	float mean[FAL_NORM_CHANNELS], std[FAL_NORM_CHANNELS];
	float table[FAL_NORM_CHANNELS][256];
};

/* Makes the tables of `channels` means and standard deviations (borrowed).  FAL_EINVAL
 * when channels is not 1 … FAL_NORM_CHANNELS, a value is not finite, or std ≤ 0. */
int fal_norm_init(struct fal_norm *norm, uint32_t channels, const float *mean,
		  const float *std);

/* Where a lane's samples come from; all borrowed. */
struct fal_batch {
	const struct fal_samples *samples;
	const struct fal_order *order; /* of as many samples */
	const struct fal_norm *norm;   /* one channel, or as fal_part_channels */
};

/* Fills x (count × values floats) and label (count: classes, or the bits of targets) with
 * the samples at the places first … first+count-1.  FAL_ENOENT when a chunk of them is
 * missing (x and label are then partly written), FAL_EINVAL for places beyond the order,
 * or an order or channels that do not fit the samples. */
int fal_batch_fill(const struct fal_batch *b, uint32_t first, uint32_t count, float *x,
		   uint32_t *label);

/* The same of whole numbers, as they are: x of count × values numbers.  FAL_EINVAL for
 * samples of another type, too. */
int fal_batch_whole(const struct fal_batch *b, uint32_t first, uint32_t count, int64_t *x,
		    uint32_t *label);

#endif
