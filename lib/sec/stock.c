/* Batches of keys: one is used from its beginning to its end, and filled anew when all of
 * it came back. */
#include "sec/stock.h"

#include "base/mem.h"
#include "sec/keyring.h"
#include "sec/secret.h"

#include <assert.h>
#include <stdlib.h>

enum { KEYS = 128 }; /* of a batch: 4 KiB, a page */

struct batch {
	uint8_t *keys; /* in locked memory */
	unsigned taken, given;
};

struct fal_stock {
	struct batch *v;
	size_t n, cap;
	size_t at; /* of the batch in use */
};

struct fal_stock *
fal_stock_new(void)
{
	return fal_xcalloc(1, sizeof(struct fal_stock));
}

void
fal_stock_free(struct fal_stock *s)
{
	if (s == NULL)
		return;
	for (size_t i = 0; i < s->n; i++) {
		assert(s->v[i].taken == s->v[i].given);
		fal_secret_free(s->v[i].keys);
	}
	free(s->v);
	free(s);
}

/* s->at becomes a batch of KEYS fresh keys. */
static void
refill(struct fal_stock *s)
{
	size_t i = 0;
	while (i < s->n && s->v[i].given < KEYS)
		i++;
	if (i == s->n) {
		FAL_XGROW(s->v, s->cap, s->n + 1);
		s->v[i].keys = fal_secret_alloc((size_t)KEYS * FAL_KEY_BYTES);
		s->n++;
	}
	struct batch *b = &s->v[s->at = i];
	fal_random_bytes(b->keys, (size_t)KEYS * FAL_KEY_BYTES);
	b->taken = b->given = 0;
}

const uint8_t *
fal_stock_take(struct fal_stock *s)
{
	if (s->n == 0 || s->v[s->at].taken == KEYS)
		refill(s);
	struct batch *b = &s->v[s->at];
	return b->keys + (size_t)b->taken++ * FAL_KEY_BYTES;
}

void
fal_stock_give(struct fal_stock *s, const uint8_t *key)
{
	for (size_t i = 0; key != NULL && i < s->n; i++) {
		struct batch *b = &s->v[i];
		if (key < b->keys || key >= b->keys + (size_t)KEYS * FAL_KEY_BYTES)
			continue;
		fal_secret_wipe(b->keys + (key - b->keys), FAL_KEY_BYTES);
		b->given++;
		return;
	}
	assert(key == NULL);
}
