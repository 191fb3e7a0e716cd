/* The order of samples in an epoch. */
#include "data/order.h"

#include "base/err.h"
#include "base/mem.h"
#include "base/rng.h"

#include <stdlib.h>

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

int
fal_order_init(struct fal_order *o, const struct fal_order_opts *opts)
{
	struct fal_rng rng = fal_rng_init(opts->seed, FAL_RNG_ORDER, opts->epoch);
	struct fal_order order = { .n = opts->n, .per_chunk = opts->per_chunk };
	int err = FAL_OK;
	if (opts->n == 0 || opts->n > UINT32_C(1) << 31 || opts->per_chunk == 0 ||
	    opts->shuffle > FAL_SHUFFLE_FULL)
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

uint32_t
fal_order_chunks(const struct fal_order *o, uint32_t first, uint32_t count, uint32_t *out)
{
	uint32_t found = 0;
	for (uint32_t i = 0; i < count && i < o->n && first < o->n - i; i++) {
		uint32_t c = fal_order_at(o, first + i) / o->per_chunk, k = 0;
		while (k < found && out[k] != c)
			k++;
		if (k == found)
			out[found++] = c;
	}
	return found;
}
