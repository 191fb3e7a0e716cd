/* Shuffles the samples of an epoch, and fills batches by place. */
#include "job/order.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <assert.h>
#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

static void
shuffle_full(uint32_t *id, uint32_t n, struct fal_rng *rng)
{
	for (uint32_t i = 0; i < n; i++)
		id[i] = i;
	fal_rng_shuffle(rng, id, n);
}

static void
shuffle_window(uint32_t *id, const struct fal_order_opts *opts, struct fal_rng *rng)
{
	uint32_t chunks = (opts->n - 1) / opts->per_chunk + 1;
	uint32_t *chunk = fal_xcalloc(chunks, sizeof(*chunk));
	shuffle_full(chunk, chunks, rng);
	uint32_t begin = 0, end = 0; /* places of the current group */
	for (uint32_t c = 0; c < chunks; c++) {
		uint32_t first = chunk[c] * opts->per_chunk, left = opts->n - first;
		uint32_t n = left < opts->per_chunk ? left : opts->per_chunk;
		for (uint32_t i = 0; i < n; i++)
			id[end++] = first + i;
		if ((c + 1) % FAL_ORDER_GROUP == 0 || c + 1 == chunks) {
			fal_rng_shuffle(rng, id + begin, end - begin);
			begin = end;
		}
	}
	free(chunk);
}

/* Sorts the list by one byte of the labels; the sort is stable. */
static void
sort_by_byte(const uint32_t *list, const uint32_t *labels, unsigned shift, uint32_t n,
	     uint32_t *out)
{
	uint32_t next[257] = { 0 }; /* place of the next sample with each byte */
	for (uint32_t i = 0; i < n; i++)
		next[(labels[i] >> shift & 255) + 1]++;
	for (unsigned l = 1; l < 257; l++)
		next[l] += next[l - 1];
	for (uint32_t i = 0; i < n; i++)
		out[next[labels[list[i]] >> shift & 255]++] = list[i];
}

/* The places of a part in a clock of the epoch. */
struct part_run {
	uint32_t first, count, part;
};

/* Returns run `i` of the runs of all clocks and parts. */
static struct part_run
part_run_at(const struct fal_grid *g, uint64_t i)
{
	const uint64_t clock = i / g->parts;
	const uint32_t part = (uint32_t)(i % g->parts);
	const uint32_t first = fal_grid_part_first_task(g, clock, part);
	const uint32_t tasks = fal_grid_part_first_task(g, clock, part + 1) - first;
	return (struct part_run){
		.first = (uint32_t)(clock * g->batch) +
			 fal_grid_samples_before(g, clock, first),
		.count = fal_grid_range_samples(g, clock, first, tasks),
		.part = part,
	};
}

/* Partition i gets as many samples of the list as part i has places, after the samples of
 * the parts before; so no sample is left over with any geometry. */
static void
shuffle_parts(uint32_t *id, const struct fal_order_opts *opts, struct fal_rng *rng)
{
	const struct fal_grid *g = opts->grid;
	const uint64_t runs = fal_grid_epoch_clocks(g) * g->parts;
	uint32_t *list = fal_xcalloc(opts->n, sizeof(*list));
	uint32_t *next = fal_xcalloc((size_t)g->parts + 1, sizeof(*next));
	/* The order from which partitions are cut is equal in all epochs. */
	struct fal_rng deal = fal_rng_init(opts->seed, FAL_RNG_DEAL, 0);
	shuffle_full(list, opts->n, &deal);
	if (opts->labels != NULL) {
		uint32_t *sorted = fal_xcalloc(opts->n, sizeof(*sorted));
		for (unsigned shift = 0; shift < 32; shift += 16) {
			sort_by_byte(list, opts->labels, shift, opts->n, sorted);
			sort_by_byte(sorted, opts->labels, shift + 8, opts->n, list);
		}
		free(sorted);
	}
	for (uint64_t i = 0; i < runs; i++) {
		const struct part_run r = part_run_at(g, i);
		next[r.part + 1] += r.count;
	}
	for (uint32_t i = 0; i < g->parts; i++) {
		fal_rng_shuffle(rng, list + next[i], next[i + 1]);
		next[i + 1] += next[i];
	}
	assert(next[g->parts] == opts->n);
	for (uint64_t i = 0; i < runs; i++) {
		const struct part_run r = part_run_at(g, i);
		memcpy(id + r.first, list + next[r.part], r.count * sizeof(*id));
		next[r.part] += r.count;
	}
	free(list);
	free(next);
}

int
fal_order_init(struct fal_order *o, const struct fal_order_opts *opts)
{
	struct fal_rng rng = fal_rng_init(opts->seed, FAL_RNG_ORDER, opts->epoch);
	const struct fal_grid *g = opts->grid;
	if (opts->n == 0 || opts->n > UINT32_C(1) << 31 || opts->per_chunk == 0 ||
	    opts->shuffle > FAL_SHUFFLE_PARTS ||
	    (opts->shuffle == FAL_SHUFFLE_PARTS &&
	     (g->task == 0 || g->task > g->batch || g->parts == 0 ||
	      g->samples != opts->n)))
		return FAL_EINVAL;
	*o = (struct fal_order){ .n = opts->n };
	if (opts->shuffle != FAL_SHUFFLE_NONE)
		o->id = fal_xcalloc(opts->n, sizeof(*o->id));
	if (opts->shuffle == FAL_SHUFFLE_FULL)
		shuffle_full(o->id, opts->n, &rng);
	else if (opts->shuffle == FAL_SHUFFLE_WINDOW)
		shuffle_window(o->id, opts, &rng);
	else if (opts->shuffle == FAL_SHUFFLE_PARTS)
		shuffle_parts(o->id, opts, &rng);
	return FAL_OK;
}

void
fal_order_free(struct fal_order *o)
{
	free(o->id);
	*o = (struct fal_order){ 0 };
}

/* ---- batches --------------------------------------------------------------------- */

enum { PREFETCH_SAMPLES = 2, PREFETCH_BYTES = 4096 }; /* in advance; of each */

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
normalise_bytes(const float *restrict table, const uint8_t *restrict row, uint32_t n,
		float *restrict x)
{
	for (uint32_t i = 0; i < n; i++)
		x[i] = table[row[i]];
}

/* Computes the input values of one sample. */
static void
normalise_sample(const struct fal_norm *norm, const struct fal_part *part,
		 const uint8_t *row, float *x)
{
	const uint32_t plane = part->values / norm->channels;
	const size_t size = fal_dtype_size(part->dtype);
	for (uint32_t c = 0; c < norm->channels; c++, row += plane * size, x += plane)
		if (part->dtype == FAL_U8)
			normalise_bytes(norm->table[c], row, plane, x);
		else
			for (uint32_t k = 0; k < plane; k++)
				x[k] = (fal_dtype_float(part->dtype, row + k * size) -
					norm->mean[c]) /
				       norm->std[c];
}

/* Are the places within the order, and the order one of these samples? */
static bool
batch_fits(const struct fal_batch *b, uint32_t first, uint32_t count)
{
	const struct fal_part *part = fal_samples_part(b->samples);
	return b->order->n == part->n && first <= part->n && count <= part->n - first &&
	       part->dtype != FAL_ABSENT;
}

/* Returns the sample at a place and its label; NULL: the chunk is missing. */
static const uint8_t *
batch_row(const struct fal_batch *b, uint32_t place, uint32_t *label)
{
	*label = 0;
	return fal_samples_row(b->samples, fal_order_at(b->order, place), label);
}

int
fal_batch_fill(const struct fal_batch *b, uint32_t first, uint32_t count, float *x,
	       uint32_t *label)
{
	const struct fal_part *part = fal_samples_part(b->samples);
	if (!batch_fits(b, first, count) ||
	    (b->norm->channels != 1 && b->norm->channels != fal_part_channels(part)))
		return FAL_EINVAL;
	const size_t sample_bytes = part->values * fal_dtype_size(part->dtype);
	const size_t prefetched_bytes =
		sample_bytes < PREFETCH_BYTES ? sample_bytes : PREFETCH_BYTES;
	for (uint32_t i = 0; i < count; i++, x += part->values) {
		const uint8_t *row = batch_row(b, first + i, &label[i]);
		if (row == NULL)
			return FAL_ENOENT;
		/* Prefetches a later sample, whose memory is unrelated to its neighbours'
		 * memory. */
		uint32_t later_label;
		const uint8_t *later =
			count - i > PREFETCH_SAMPLES
				? batch_row(b, first + i + PREFETCH_SAMPLES, &later_label)
				: NULL;
		for (size_t at = 0; later != NULL && at < prefetched_bytes; at += 64)
			__builtin_prefetch(later + at);
		normalise_sample(b->norm, part, row, x);
	}
	return FAL_OK;
}

int
fal_batch_fill_integers(const struct fal_batch *b, uint32_t first, uint32_t count,
			int64_t *x, uint32_t *label)
{
	const struct fal_part *part = fal_samples_part(b->samples);
	if (!batch_fits(b, first, count) || !fal_dtype_is_integer(part->dtype))
		return FAL_EINVAL;
	const size_t size = fal_dtype_size(part->dtype);
	for (uint32_t i = 0; i < count; i++) {
		const uint8_t *row = batch_row(b, first + i, &label[i]);
		if (row == NULL)
			return FAL_ENOENT;
		for (uint32_t k = 0; k < part->values; k++, row += size)
			*x++ = fal_dtype_integer(part->dtype, row);
	}
	return FAL_OK;
}
