/* Normalised samples by place. */
#include "data/batch.h"

#include "base/err.h"

#include <math.h>
#include <stdbool.h>

enum { AHEAD = 2, AHEAD_BYTES = 4096 }; /* samples, and of each */

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
	for (uint32_t c = 0; c < channels; c++) {
		norm->mean[c] = mean[c];
		norm->std[c] = std[c];
		for (unsigned v = 0; v < 256; v++)
			norm->table[c][v] = ((float)v / 255.0f - mean[c]) / std[c];
	}
	return FAL_OK;
}

static void
look_up(const float *restrict table, const uint8_t *restrict row, uint32_t n,
	float *restrict x)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] = table[row[i]];
}

/* The values of one sample. */
static void
normalise(const struct fal_norm *norm, const struct fal_part *part, const uint8_t *row,
	  float *x)
{
	const uint32_t plane = part->values / norm->channels;
	const size_t size = fal_dtype_size(part->dtype);
	for (uint32_t c = 0; c < norm->channels; c++, row += plane * size, x += plane)
		if (part->dtype == FAL_U8)
			look_up(norm->table[c], row, plane, x);
		else
			for (uint32_t k = 0; k < plane; k++)
				x[k] = (fal_dtype_float(part->dtype, row + k * size) -
					norm->mean[c]) /
				       norm->std[c];
}

static bool
fits(const struct fal_batch *b, uint32_t first, uint32_t count)
{
	const struct fal_part *part = fal_samples_part(b->samples);
	return b->order->n == part->n && first <= part->n && count <= part->n - first &&
	       part->dtype != FAL_ABSENT;
}

/* The sample at a place, and its label; NULL: its chunk is missing. */
static const uint8_t *
row_at(const struct fal_batch *b, uint32_t place, uint32_t *label)
{
	*label = 0;
	return fal_samples_row(b->samples, fal_order_at(b->order, place), label);
}

/* Samples lie anywhere: the bytes of this one come while others are at work. */
static void
fetch(const struct fal_batch *b, uint32_t place)
{
	const struct fal_part *part = fal_samples_part(b->samples);
	const size_t all = part->values * fal_dtype_size(part->dtype);
	const size_t bytes = all < AHEAD_BYTES ? all : AHEAD_BYTES;
	uint32_t label;
	const uint8_t *row = row_at(b, place, &label);
	for (size_t at = 0; row != NULL && at < bytes; at += 64)
		__builtin_prefetch(row + at);
}

int
fal_batch_fill(const struct fal_batch *b, uint32_t first, uint32_t count, float *x,
	       uint32_t *label)
{
	const struct fal_part *part = fal_samples_part(b->samples);
	if (!fits(b, first, count) ||
	    (b->norm->channels != 1 && b->norm->channels != fal_part_channels(part)))
		return FAL_EINVAL;
	for (uint32_t i = 0; i < count; i++, x += part->values) {
		const uint8_t *row = row_at(b, first + i, &label[i]);
		if (row == NULL)
			return FAL_ENOENT;
		if (count - i > AHEAD)
			fetch(b, first + i + AHEAD);
		normalise(b->norm, part, row, x);
	}
	return FAL_OK;
}

int
fal_batch_whole(const struct fal_batch *b, uint32_t first, uint32_t count, int64_t *x,
		uint32_t *label)
{
	const struct fal_part *part = fal_samples_part(b->samples);
	if (!fits(b, first, count) || !fal_dtype_is_whole(part->dtype))
		return FAL_EINVAL;
	const size_t size = fal_dtype_size(part->dtype);
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *row = row_at(b, first + i, &label[i]);
		if (row == NULL)
			return FAL_ENOENT;
		for (uint32_t k = 0; k < part->values; k++, row += size)
			*x++ = fal_dtype_whole(part->dtype, row);
	}
	return FAL_OK;
}
