/* Normalised samples by place. */
#include "data/batch.h"

#include "base/err.h"

#include <math.h>

int
fal_norm_init(struct fal_norm *norm, uint32_t channels, const float *mean,
	      const float *std)
{
	if (channels == 0 || channels > FAL_NORM_CHANNELS)
		return FAL_EINVAL;
	for (uint32_t c = 0; c < channels; c++)
		if (!isfinite(mean[c]) || !isfinite(std[c]) || std[c] <= 0)
			return FAL_EINVAL;
	norm->channels = channels;
	for (uint32_t c = 0; c < channels; c++)
		for (unsigned v = 0; v < 256; v++)
			norm->table[c][v] = ((float)v / 255.0f - mean[c]) / std[c];
	return FAL_OK;
}

int
fal_batch_fill(const struct fal_batch *b, uint32_t first, uint32_t count, float *x,
	       uint32_t *label)
{
	const struct fal_part *part = fal_samples_part(b->samples);
	const struct fal_norm *norm = b->norm;
	if (b->order->n != part->n || first > part->n || count > part->n - first ||
	    (norm->channels != 1 && norm->channels != part->shape[0]))
		return FAL_EINVAL;
	uint32_t plane = part->sample_bytes / norm->channels;
	for (uint32_t i = 0; i < count; i++) {
		uint8_t class;
		const uint8_t *row =
			fal_samples_row(b->samples, fal_order_at(b->order, first + i),
					&class);
		if (row == NULL)
			return FAL_ENOENT;
		label[i] = class;
		for (uint32_t c = 0; c < norm->channels; c++)
			for (uint32_t k = 0; k < plane; k++)
				*x++ = norm->table[c][*row++];
	}
	return FAL_OK;
}
