/* The order of samples in an epoch. */
#include "data/order.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

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

static int
shuffle_window(uint32_t *id, const struct fal_order_opts *opts, struct fal_rng *rng)
{
	uint32_t chunks = (opts->n - 1) / opts->per_chunk + 1;
	uint32_t *chunk = fal_calloc(chunks, sizeof(*chunk));
	if (chunk == NULL)
		return FAL_ENOMEM;
	shuffle_full(chunk, chunks, rng);
	uint32_t begin = 0, end = 0; /* places of the group */
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
	return FAL_OK;
}

/* Sorts the list by one byte of the labels; samples that have the same one keep their
 * order. */
static void
sort_by_byte(const uint32_t *list, const uint32_t *labels, unsigned shift, uint32_t n,
	     uint32_t *out)
{
	uint32_t next[257] = { 0 }; /* place of the next sample of each */
	for (uint32_t i = 0; i < n; i++)
		next[(labels[i] >> shift & 255) + 1]++;
	for (unsigned l = 1; l < 257; l++)
		next[l] += next[l - 1];
	for (uint32_t i = 0; i < n; i++)
		out[next[labels[list[i]] >> shift & 255]++] = list[i];
}

/* Every sample in the order in which partitions are cut off: the same in all epochs. */
static int
deal(uint32_t *list, const struct fal_order_opts *opts)
{
	struct fal_rng rng = fal_rng_init(opts->seed, FAL_RNG_DEAL, 0);
	shuffle_full(list, opts->n, &rng);
	if (opts->labels == NULL)
		return FAL_OK;
	uint32_t *sorted = fal_calloc(opts->n, sizeof(*sorted));
	if (sorted == NULL)
		return FAL_ENOMEM;
	for (unsigned shift = 0; shift < 32; shift += 16) {
		sort_by_byte(list, opts->labels, shift, opts->n, sorted);
		sort_by_byte(sorted, opts->labels, shift + 8, opts->n, list);
	}
	free(sorted);
	return FAL_OK;
}

/* The places from `first` on that one task of an epoch has. */
struct run {
	uint32_t first, count, part;
};

/* The run behind `r`, {0} before the first; count 0: there is none. */
static struct run
next_task(const struct fal_order_opts *opts, struct run r)
{
	const uint32_t first = r.first + r.count;
	if (first == opts->n)
		return (struct run){ 0 };
	const uint32_t in_clock = first % opts->batch;
	const uint32_t clock = first - in_clock, left = opts->n - clock;
	const uint32_t samples = left < opts->batch ? left : opts->batch;
	const uint32_t tasks = (samples - 1) / opts->task + 1, k = in_clock / opts->task;
	/* The i with floor(i·K/N) ≤ k < floor((i+1)·K/N). */
	const uint64_t i = (((uint64_t)k + 1) * opts->parts - 1) / tasks;
	const uint32_t rest = samples - in_clock;
	return (struct run){ .first = first,
			     .count = rest < opts->task ? rest : opts->task,
			     .part = (uint32_t)i };
}

/* Partition i is as many samples of the dealt list as part i has places, behind those
 * of the parts before it; so nothing is left over, whatever the geometry. */
static int
shuffle_parts(uint32_t *id, const struct fal_order_opts *opts, struct fal_rng *rng)
{
	uint32_t *list = fal_calloc(opts->n, sizeof(*list));
	uint32_t *next = fal_calloc((size_t)opts->parts + 1, sizeof(*next));
	int err = list != NULL && next != NULL ? deal(list, opts) : FAL_ENOMEM;
	if (err < 0)
		goto out;
	for (struct run r = next_task(opts, (struct run){ 0 }); r.count > 0;
	     r = next_task(opts, r))
		next[r.part + 1] += r.count;
	for (uint32_t i = 0; i < opts->parts; i++) {
		fal_rng_shuffle(rng, list + next[i], next[i + 1]);
		next[i + 1] += next[i];
	}
	for (struct run r = next_task(opts, (struct run){ 0 }); r.count > 0;
	     r = next_task(opts, r)) {
		memcpy(id + r.first, list + next[r.part], r.count * sizeof(*id));
		next[r.part] += r.count;
	}
out:
	free(list);
	free(next);
	return err;
}

static bool
valid(const struct fal_order_opts *opts)
{
	if (opts->n == 0 || opts->n > UINT32_C(1) << 31 || opts->per_chunk == 0 ||
	    opts->shuffle > FAL_SHUFFLE_PARTS)
		return false;
	return opts->shuffle != FAL_SHUFFLE_PARTS ||
	       (opts->task > 0 && opts->task <= opts->batch && opts->parts > 0);
}

int
fal_order_init(struct fal_order *o, const struct fal_order_opts *opts)
{
	struct fal_rng rng = fal_rng_init(opts->seed, FAL_RNG_ORDER, opts->epoch);
	struct fal_order order = { .n = opts->n };
	int err = FAL_OK;
	if (!valid(opts))
		return FAL_EINVAL;
	if (opts->shuffle != FAL_SHUFFLE_NONE) {
		order.id = fal_calloc(opts->n, sizeof(*order.id));
		if (order.id == NULL)
			return FAL_ENOMEM;
	}
	if (opts->shuffle == FAL_SHUFFLE_FULL)
		shuffle_full(order.id, opts->n, &rng);
	else if (opts->shuffle == FAL_SHUFFLE_WINDOW)
		err = shuffle_window(order.id, opts, &rng);
	else if (opts->shuffle == FAL_SHUFFLE_PARTS)
		err = shuffle_parts(order.id, opts, &rng);
	if (err < 0) {
		fal_order_free(&order);
		return err;
	}
	*o = order;
	return FAL_OK;
}

void
fal_order_free(struct fal_order *o)
{
	free(o->id);
	*o = (struct fal_order){ 0 };
}
